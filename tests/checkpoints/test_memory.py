"""Reading one tensor allocates about that tensor, however large the file around it."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from repcap_jax.checkpoints import open_checkpoint
from tests.checkpoints import builders as b

ROWS, COLUMNS = 4096, 256  # 4 MiB in float32


@pytest.mark.parametrize("kind", ["safetensors", "flax", "flax chunks", "gguf f16", "gguf q8", "npz"])
def test_peak_is_about_one_tensor(tmp_path, kind):
    big = b.matrix(ROWS, COLUMNS, dtype=np.float16)
    names = ["model.embed_tokens.weight", "lm_head.weight", "other.weight"]
    if kind == "safetensors":
        path = tmp_path / "model.safetensors"
        path.write_bytes(b.safetensors_bytes(dict.fromkeys(names, big)))
    elif kind.startswith("flax"):
        path = tmp_path / "flax_model.msgpack"
        path.write_bytes(b.flax_bytes(dict.fromkeys(names, big), 2**18 if "chunks" in kind else None))
    elif kind.startswith("gguf"):
        names = ["token_embd.weight", "output.weight"]
        path = b.write_gguf(tmp_path / "m.gguf", dict.fromkeys(names, (big, "F16" if "f16" in kind else "Q8_0")))
    else:
        path = tmp_path / "m.npz"
        np.savez(path, **dict.fromkeys(names, big))
    with open_checkpoint(path) as checkpoint:
        checkpoint.tensor(checkpoint.names()[-1])  # imports and tables that the first read makes are not its tensor
        tracemalloc.start()
        try:
            read = checkpoint.tensor(names[0])
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert read.nbytes == ROWS * COLUMNS * 4
    if "q8" not in kind:
        np.testing.assert_array_equal(read, big)
    assert peak < read.nbytes * 1.25
