"""Shared inputs of the capacity tests: the published figures, where the reference folder is present."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

REFERENCE = Path(__file__).resolve().parents[2].parent / "shared" / "reference"


def _reference(name):
    path = REFERENCE / name
    if not path.is_file():
        pytest.skip(f"published figures not present: {path}")
    return path


@pytest.fixture(scope="session")
def published_models():
    """Rows of the paper's model table as dictionaries."""
    lines = _reference("guha2026_models.csv").read_text().splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


@pytest.fixture(scope="session")
def published_grid_paths():
    return {name: _reference(f"guha2026_{name}_packing.json") for name in ("optimized", "random")}


@pytest.fixture(scope="session")
def published_cells(published_grid_paths):
    """The paper's grids as float arrays of rows [k, d, epsilon]."""
    return {name: np.array(json.loads(path.read_text())["cells"]) for name, path in published_grid_paths.items()}
