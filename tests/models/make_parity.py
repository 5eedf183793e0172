"""Tiny random checkpoints of every family, and what torch transformers makes of them.

    python -m tests.models.make_parity            # writes tests/data/parity/<case>/
    python -m tests.models.make_parity --check    # computes them again and compares with what is there, and with JAX

`make parity` installs CPU torch and does the second. Needs the `parity` extra.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from tests.checkpoints.builders import safetensors_bytes
from tests.models.parity import DATA, differences
from tests.models.parity_cases import CASES, ROWS, SEQ, VOCAB

_WRITTEN_ALIKE = 2e-5  # how far two torch releases or processors may differ


def build(name: str, config: dict):
    """A torch model with random weights that float16 represents, in float32, and the tensors to save."""
    import torch
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    # transformers writes into the dicts that it is given
    settings = {key: value for key, value in copy.deepcopy(config).items() if key != "model_type"}
    # Only eager attention caps scores; but with falcon's linear biases it adds them twice.
    attention = "sdpa" if config["model_type"] == "falcon" else "eager"
    filled = CONFIG_MAPPING[config["model_type"]](**settings)
    model = AutoModelForCausalLM.from_config(filled, attn_implementation=attention)
    model = model.float().eval()
    rng = np.random.default_rng(sum(name.encode()))
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            values = _random(rng, key, tuple(parameter.shape), norm=0.0 if "gemma" in config["model_type"] else 1.0)
            parameter.copy_(torch.from_numpy(values.astype(np.float16).astype(np.float32)))
    model.tie_weights()
    tensors = {key: value.numpy().astype(np.float16) for key, value in model.state_dict().items()}
    shared = getattr(model, "all_tied_weights_keys", None) or {}
    return model, {key: value for key, value in tensors.items() if key not in shared}


def _random(rng: np.random.Generator, key: str, shape: tuple[int, ...], norm: float) -> np.ndarray:
    """Weights large enough for every part to matter; those of norms lie around `norm`."""
    values = rng.standard_normal(shape)
    if key.endswith("bias"):
        return 0.3 * values
    if len(shape) == 1 or "norm" in key:
        return norm + 0.4 * values
    return values * (0.4 if any(part in key for part in ("emb", "wte", "wpe")) else 1.2 * shape[-1] ** -0.5)


def reference(model, tokens: np.ndarray) -> dict[str, np.ndarray]:
    """The residual stream before and after each block, and the logits, by torch.

    Read off by hooks: transformers normalises the last of its hidden states for most families.
    """
    import torch

    states: list = []
    blocks = _blocks(model)
    handles = [blocks[0].register_forward_pre_hook(lambda _, args, kwargs: states.append(_first(args, kwargs)),
                                                   with_kwargs=True)]  # fmt: skip
    for block in blocks:
        handles.append(block.register_forward_hook(lambda _, args, out: states.append(_first((out,), {}))))
    with torch.no_grad():
        logits = model(torch.from_numpy(tokens), use_cache=False).logits
    for handle in handles:
        handle.remove()
    return {"hidden_states": torch.stack(states).numpy(), "logits": logits.numpy()}


def _blocks(model):
    import torch

    lists = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList)]
    return next(found for found in lists if len(found) == model.config.num_hidden_layers)


def _first(args, kwargs):
    found = args[0] if args else kwargs["hidden_states"]
    return (found[0] if isinstance(found, tuple) else found).clone()


def write(name: str, folder: Path) -> None:
    """Write one case: config.json, model.safetensors, reference.npz."""
    config = CASES[name]
    model, tensors = build(name, config)
    tokens = np.random.default_rng(len(name)).integers(2, VOCAB, (ROWS, SEQ))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    np.savez(folder / "reference.npz", tokens=tokens.astype(np.int32), **reference(model, tokens))


def check(name: str, scratch: Path) -> float:
    """Compute one case again, compare it with what is stored and with JAX; the largest difference to JAX."""
    write(name, scratch / name)
    for file in ("config.json", "model.safetensors"):
        if (scratch / name / file).read_bytes() != (DATA / name / file).read_bytes():
            raise SystemExit(f"{name}: {file} is not what this script writes; run it without --check")
    with np.load(scratch / name / "reference.npz") as now, np.load(DATA / name / "reference.npz") as then:
        for key in then:
            np.testing.assert_allclose(now[key], then[key], atol=_WRITTEN_ALIKE, rtol=0, err_msg=f"{name}: {key}")
    return max(differences(scratch / name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("cases", nargs="*", default=list(CASES))
    flags = parser.parse_args()
    worst = 0.0
    with tempfile.TemporaryDirectory() as scratch:
        for name in flags.cases:
            if flags.check:
                difference = check(name, Path(scratch))
                worst = max(worst, difference)
                print(f"{name:22} largest difference to torch {difference:.1e}", flush=True)
            else:
                write(name, DATA / name)
                print(name, flush=True)
    if worst > 1e-4:
        sys.exit(f"a difference of {worst:.1e} is beyond 1e-4")


if __name__ == "__main__":
    main()
