"""Tiny checkpoints, written from scratch by each test that needs one."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import ml_dtypes
import numpy as np

VOCAB, WIDTH = 11, 8

_CODES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "float64": "F64", "int8": "I8", "int64": "I64"}


def matrix(rows: int = VOCAB, columns: int = WIDTH, seed: int = 0, dtype=np.float32) -> np.ndarray:
    """Random numbers that survive every float dtype unchanged."""
    values = np.random.default_rng(seed).integers(-64, 64, (rows, columns)) / 8
    return values.astype(dtype)


def vector(size: int = WIDTH, seed: int = 7) -> np.ndarray:
    return matrix(1, size, seed)[0]


def llama_tensors(tied: bool = False) -> dict[str, np.ndarray]:
    tensors = {
        "model.embed_tokens.weight": matrix(seed=1),
        "model.layers.0.self_attn.q_proj.weight": matrix(WIDTH, WIDTH, 2),
        "model.norm.weight": vector(),
    }
    return tensors if tied else tensors | {"lm_head.weight": matrix(seed=3)}


def llama_config(**changes) -> dict:
    config = {"model_type": "llama", "vocab_size": VOCAB, "hidden_size": WIDTH, "num_hidden_layers": 1}
    return config | {"tie_word_embeddings": False} | changes


def safetensors_bytes(tensors: dict[str, np.ndarray]) -> bytes:
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, array in tensors.items():
        raw = np.ascontiguousarray(array).tobytes()
        header[name] = {
            "dtype": _CODES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    return with_header(json.dumps(header).encode(), data)


def with_header(header: bytes, data: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header + data


def write_model(folder: Path, tensors: dict[str, np.ndarray], config: dict | None) -> Path:
    """Write a folder with one model.safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    return write_config(folder, config)


def write_config(folder: Path, config: dict | None) -> Path:
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def write_sharded(folder: Path, shards: list[dict[str, np.ndarray]], config: dict | None = None) -> Path:
    """Write a folder with safetensors shards and their index."""
    folder.mkdir(parents=True, exist_ok=True)
    weight_map = {}
    for i, tensors in enumerate(shards, 1):
        shard = f"model-{i:05}-of-{len(shards):05}.safetensors"
        (folder / shard).write_bytes(safetensors_bytes(tensors))
        weight_map |= dict.fromkeys(tensors, shard)
    write_index(folder, weight_map)
    return write_config(folder, config)


def write_index(folder: Path, weight_map: dict, name: str = "model.safetensors.index.json") -> None:
    (folder / name).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def flax_tree(tensors: dict[str, np.ndarray]) -> dict:
    """Nest dotted names."""
    tree: dict = {}
    for name, array in tensors.items():
        *path, leaf = name.split(".")
        node = tree
        for part in path:
            node = node.setdefault(part, {})
        node[leaf] = array
    return tree


def flax_bytes(tensors: dict[str, np.ndarray], chunk_bytes: int | None = None) -> bytes:
    """Serialise as Flax does; ``chunk_bytes`` shrinks the size above which it cuts arrays into chunks."""
    from flax import serialization

    usual = serialization.MAX_CHUNK_SIZE
    serialization.MAX_CHUNK_SIZE = chunk_bytes or usual
    try:
        return serialization.msgpack_serialize(flax_tree(tensors))
    finally:
        serialization.MAX_CHUNK_SIZE = usual


def flax_llama(tied: bool = False) -> dict[str, np.ndarray]:
    tensors = {"model.embed_tokens.embedding": matrix(seed=1), "model.norm.weight": vector()}
    return tensors if tied else tensors | {"lm_head.kernel": matrix(seed=3).T.copy()}


def write_gguf(
    path: Path, tensors: dict[str, tuple[np.ndarray, str]], keys: dict | None = None, architecture: str = "llama"
) -> Path:
    """Write a GGUF file; each tensor comes with the name of its ggml type (quantised types need 32-item rows)."""
    import gguf

    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(1)
    writer.add_embedding_length(next(iter(tensors.values()))[0].shape[-1])
    for key, value in (keys or {}).items():
        add = {str: writer.add_string, int: writer.add_uint32, list: writer.add_array, bool: writer.add_bool}
        (add | {float: writer.add_float32})[type(value)](key, value)
    for name, (array, kind) in tensors.items():
        number = gguf.GGMLQuantizationType[kind]
        if kind in ("F32", "F16"):
            writer.add_tensor(name, array.astype({"F32": np.float32, "F16": np.float16}[kind]))
        else:
            writer.add_tensor(name, gguf.quantize(array.astype(np.float32), number), raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
