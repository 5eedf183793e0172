"""The package's face: lazy names, no side effects, imports that point one way."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import repcap_jax

ROOT = Path(__file__).parent.parent / "repcap_jax"
DOCS = ROOT.parent / "docs"
LAYERS = {
    "kernels": set(),
    "capacity": set(),
    "checkpoints": {"kernels"},
    "models": {"kernels", "checkpoints"},
    "embeddings": {"kernels", "capacity", "checkpoints", "models"},
    "packing": {"kernels", "capacity", "checkpoints", "models"},
    "alignment": {"kernels", "capacity", "checkpoints", "models"},
    "concepts": {"kernels", "capacity", "checkpoints", "models"},
    "superposition": {"kernels", "capacity", "checkpoints", "models"},
    "reports": {"capacity"},
}


def test_every_public_name_is_there():
    for name in repcap_jax.__all__:
        assert getattr(repcap_jax, name) is not None
    assert set(repcap_jax.__all__) <= set(dir(repcap_jax))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = repcap_jax.nonsense


@pytest.mark.parametrize("text", sorted(["README.md", *(f"docs/{path.name}" for path in DOCS.glob("*.md"))]))
def test_names_in_the_documentation_exist(text):
    for name in set(re.findall(r"\brc\.(\w+)", (DOCS.parent / text).read_text(encoding="utf-8"))):
        assert getattr(repcap_jax, name) is not None


def test_import_is_light():
    code = "import sys, repcap_jax; print({'jax', 'transformers', 'matplotlib', 'scipy'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "set()"


def imported(path):
    """Parts of the package that a module imports from."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        yield from (name.split(".")[1] for name in names if name.startswith("repcap_jax.") and name.count("."))


@pytest.mark.parametrize("part", [part for part in LAYERS if (ROOT / part).is_dir()])
def test_imports_point_one_way(part):
    for path in (ROOT / part).rglob("*.py"):
        beyond = set(imported(path)) - LAYERS[part] - {part, "_version"}
        assert not beyond, f"{path.relative_to(ROOT)} may not import from {beyond}"
