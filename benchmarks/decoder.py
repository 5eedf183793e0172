"""Hidden states: tokens per second beside torch transformers on the same weights, and how far they are apart.

    python benchmarks/decoder.py                         # about 2 minutes on two cores
    python benchmarks/decoder.py --model /checkpoints/x  # any folder with safetensors

By default the weights are random, in the shape of SmolLM2-135M with a third of its layers and a small vocabulary. Both
compute the residual stream of all layers for one batch, in this process and in turn, with as many threads as there are
processors; compilation is left out. Where torch cannot be imported, only ours is printed.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from repcap_jax.checkpoints import open_checkpoint  # noqa: E402
from repcap_jax.models import hidden_states, load_decoder  # noqa: E402

SMOLLM2 = {
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 10,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 2048,
    "vocab_size": 1024,
    "rope_theta": 100000.0,
    "tie_word_embeddings": True,
}


def write_random(folder: Path, config: dict[str, Any], seed: int) -> None:
    """A checkpoint of a llama with random weights."""
    from safetensors.numpy import save_file

    rng = np.random.default_rng(seed)
    d, inner = config["hidden_size"], config["intermediate_size"]
    keys = d * config["num_key_value_heads"] // config["num_attention_heads"]
    shapes = {
        "self_attn.q_proj": (d, d),
        "self_attn.k_proj": (keys, d),
        "self_attn.v_proj": (keys, d),
        "self_attn.o_proj": (d, d),
        "mlp.gate_proj": (inner, d),
        "mlp.up_proj": (inner, d),
        "mlp.down_proj": (d, inner),
    }
    tensors = {"model.embed_tokens.weight": rng.standard_normal((config["vocab_size"], d), np.float32)}
    tensors["model.norm.weight"] = np.ones(d, np.float32)
    for layer in range(config["num_hidden_layers"]):
        start = f"model.layers.{layer}."
        for name, shape in shapes.items():
            tensors[f"{start}{name}.weight"] = rng.standard_normal(shape, np.float32) * shape[1] ** -0.5
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{start}{name}.weight"] = np.ones(d, np.float32)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["LlamaForCausalLM"]}))


def seconds_of(calls: list[Callable[[], Any]], repeats: int) -> list[float]:
    """The shortest of some runs of each call, taken in turn so that all meet the same machine, after one to warm up."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(repeats + 1):
        for call, taken in zip(calls, times, strict=True):
            began = time.perf_counter()
            call()
            taken.append(time.perf_counter() - began)
    return [min(taken[1:]) for taken in times]


def ours(folder: Path, dtype: str) -> Callable[[np.ndarray], np.ndarray]:
    with open_checkpoint(folder) as checkpoint:
        decoder = load_decoder(checkpoint, dtype=dtype, head=False)
    return lambda tokens: jax.block_until_ready(hidden_states(decoder, tokens))


def in_torch(folder: Path) -> Callable[[np.ndarray], list[Any]]:
    import torch
    from transformers import AutoModel

    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()

    def run(tokens: np.ndarray) -> list[Any]:
        with torch.inference_mode():
            ids = torch.from_numpy(tokens)
            return model(ids, output_hidden_states=True, use_cache=False).hidden_states

    return run


def apart(states: np.ndarray, by_torch: list[Any]) -> float:
    """The largest difference relative to a layer's root mean square, the last layer (normalised in torch) left out."""
    worst = 0.0
    for mine, theirs in zip(np.asarray(states)[:-1], by_torch[:-1], strict=True):
        reference = theirs.numpy()
        worst = max(worst, float(np.abs(mine - reference).max() / np.sqrt(np.mean(reference**2))))
    return worst


def measure(folder: Path, shapes: list[tuple[int, int]], repeats: int, seed: int) -> None:
    mine = ours(folder, "float32")
    try:
        theirs = in_torch(folder)
    except ImportError as error:
        theirs, reason = None, str(error).strip().splitlines()[0]
        print(f"torch is left out: {reason}")
    vocabulary = json.loads((folder / "config.json").read_text())["vocab_size"]
    print("\n| batch | tokens each | ours, tokens/s | torch, tokens/s | ours / torch | largest difference |")
    print("|---|---|---|---|---|---|")
    for batch, length in shapes:
        tokens = np.random.default_rng(seed).integers(0, vocabulary, (batch, length))
        methods = [method for method in (mine, theirs) if method is not None]
        seconds = seconds_of([functools.partial(method, tokens) for method in methods], repeats)
        rates = [batch * length / taken for taken in seconds]
        row = f"| {batch} | {length} | {rates[0]:.0f} |"
        if theirs is None:
            print(f"{row} - | - | - |", flush=True)
            continue
        difference = apart(mine(tokens), theirs(tokens))
        print(f"{row} {rates[1]:.0f} | {rates[0] / rates[1]:.2f} | {difference:.1e} |", flush=True)


def shape(text: str) -> tuple[int, int]:
    """ "8:256" -> (8, 256)."""
    batch, length = text.split(":")
    return int(batch), int(length)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="folder with config.json and safetensors")
    parser.add_argument("--layers", type=int, default=SMOLLM2["num_hidden_layers"])
    parser.add_argument("--shapes", type=shape, nargs="+", default=[(16, 128), (8, 256), (4, 512)], metavar="B:S")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    flags = parser.parse_args()
    print(f"jax {jax.__version__} on {jax.devices()[0].device_kind}, seed {flags.seed}")
    if flags.model is not None:
        measure(flags.model, flags.shapes, flags.repeats, flags.seed)
        return
    with tempfile.TemporaryDirectory() as folder:
        write_random(Path(folder), SMOLLM2 | {"num_hidden_layers": flags.layers}, flags.seed)
        measure(Path(folder), flags.shapes, flags.repeats, flags.seed)


if __name__ == "__main__":
    main()
