"""The rules on names find each architecture's embedding, unembedding, final norm and default tie."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from repcap_jax.checkpoints import CheckpointError, open_checkpoint, roles
from repcap_jax.checkpoints.store import Entry, FileStore
from tests.checkpoints import builders as b

_FACTS = Path(__file__).parents[3] / "shared" / "reference" / "tensor_names.json"


def _architectures() -> list:
    if not _FACTS.is_file():
        return [pytest.param("", {}, marks=pytest.mark.skip(reason=f"the reference file {_FACTS.name} is not here"))]
    return [pytest.param(name, row, id=name) for name, row in json.loads(_FACTS.read_text())["archs"].items()]


class _Shapes(FileStore):
    """A store of names and shapes alone."""

    def __init__(self, shapes: dict[str, tuple[int, ...]]):
        super().__init__(Path("shapes"), {name: Entry(shape, "float32") for name, shape in shapes.items()})

    def _read(self, name: str, entry: Entry) -> np.ndarray:
        return np.zeros(entry.shape, np.float32)


def _layers_of(model: str) -> dict[str, tuple[int, ...]]:
    """Tensors inside numbered layers whose last names look like the roles."""
    return {
        f"{model}.layers.0.norm.weight": (b.WIDTH,),
        f"{model}.layers.0.final_layer_norm.weight": (b.WIDTH,),
        f"{model}.layers.61.embed_tokens.weight": (b.VOCAB, b.WIDTH),
        f"{model}.layers.61.shared_head.norm.weight": (b.WIDTH,),
        f"{model}.h.0.mlp.output.weight": (b.WIDTH, b.WIDTH),
        "mtp.embed_tokens.weight": (b.VOCAB, b.WIDTH),
        "mtp.norm.weight": (b.WIDTH,),
    }


@pytest.mark.parametrize(("architecture", "facts"), _architectures())
def test_each_architecture(architecture, facts):
    matrices = (
        "wte",
        "wpe",
        "embed",
        "embeddings",
        "embed_tokens",
        "embed_in",
        "word_embeddings",
        "lm_head",
        "embed_out",
    )
    shapes = {
        name: (b.VOCAB, b.WIDTH) if name.split(".")[-2:][0] in matrices and name.endswith(".weight") else (b.WIDTH,)
        for name in facts["top"]
    } | _layers_of("model")
    store = _Shapes(shapes)
    config = {"model_type": architecture, "hidden_size": b.WIDTH, "vocab_size": b.VOCAB}
    tied = facts["tie"] == "(True, True)"

    module = facts["emb"].rsplit(".", 1)[-1]
    embedding = roles.find_embedding(store, config)
    assert embedding in facts["top"] and embedding.endswith(f"{module}.weight")
    assert roles.tied_flag(config) is tied

    heads = [name for name in facts["top"] if name in ("lm_head.weight", "embed_out.weight")]
    assert roles.find_head(store, config) == (heads[0] if heads else None)
    assert tied == (not heads)

    norm = roles.find_final_norm(store)
    assert norm is None if architecture == "olmo" else norm in facts["top"]
    if norm:
        biased = norm.replace(".weight", ".bias") in facts["top"]
        assert (roles.bias_of(store, norm) is not None) is biased
    if heads:
        assert (roles.bias_of(store, heads[0]) is not None) is (architecture in ("gptj", "phi", "codegen"))
    plus_one = {"gemma", "gemma2", "gemma3", "gemma3_text", "qwen3_next", "qwen3_5_text", "nemotron"}
    assert roles.norm_offset(config) == int(architecture in plus_one)


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["wte.weight", "wpe.weight", "ln_f.weight"], "wte.weight"),  # the gpt2 file on the Hub has no prefix
        (["decoder.embed_tokens.weight", "decoder.embed_positions.weight"], "decoder.embed_tokens.weight"),
        (["tok_embeddings.weight", "output.weight", "norm.weight"], "tok_embeddings.weight"),
        (["token_embd.weight", "position_embd.weight", "blk.0.attn_output.weight"], "token_embd.weight"),
        (["params.transformer.wte.embedding", "params.transformer.wpe.embedding"], "params.transformer.wte.embedding"),
        (
            ["thinker.model.embed_tokens.weight", "talker.model.embed_tokens.weight"],
            "thinker.model.embed_tokens.weight",
        ),
        (["vision_model.embeddings.weight", "model.embed_tokens.weight"], "model.embed_tokens.weight"),
    ],
)
def test_other_spellings(names, found):
    assert roles.find_embedding(_Shapes(dict.fromkeys(names, (b.VOCAB, b.WIDTH))), {}) == found


def test_unknown_layout_lists_the_matrices(tmp_path):
    tensors = {"strange.table": b.matrix(), "odd.thing": b.matrix(5, 3), "layers.0.w": b.matrix(), "x.bias": b.vector()}
    folder = b.write_model(tmp_path, tensors, {"model_type": "nobody-knows"})
    with pytest.raises(CheckpointError) as failure:
        open_checkpoint(folder).embedding()
    for words in ("strange.table (11, 8)", "odd.thing (5, 3)", "embedding_tensor=NAME", "model.safetensors"):
        assert words in str(failure.value)
    assert "layers.0.w" not in str(failure.value)
    np.testing.assert_array_equal(open_checkpoint(folder, embedding_tensor="strange.table").embedding(), b.matrix())


def test_two_candidates_are_ambiguous_unless_the_config_tells(tmp_path):
    tensors = {"encoder.embed_tokens.weight": b.matrix(5, 3), "decoder.embed_tokens.weight": b.matrix()}
    with pytest.raises(CheckpointError, match="several tensors.*encoder.*decoder"):
        open_checkpoint(b.write_model(tmp_path / "a", tensors, None)).embedding()
    folder = b.write_model(tmp_path / "b", tensors, {"hidden_size": b.WIDTH, "vocab_size": b.VOCAB})
    np.testing.assert_array_equal(open_checkpoint(folder).embedding(), b.matrix())


@pytest.mark.parametrize(
    ("changes", "words"), [({"hidden_size": 9}, "expected d_model 9"), ({"vocab_size": 12}, "at least 12 rows")]
)
def test_sizes_that_contradict_the_config(tmp_path, changes, words):
    folder = b.write_model(tmp_path, b.llama_tensors(), b.llama_config(**changes))
    with pytest.raises(CheckpointError, match=words):
        open_checkpoint(folder).embedding()


def test_rows_beyond_the_vocabulary_are_padding(tmp_path):
    folder = b.write_model(tmp_path, b.llama_tensors(), b.llama_config(vocab_size=b.VOCAB - 2))
    assert open_checkpoint(folder).embedding().shape == (b.VOCAB, b.WIDTH)


@pytest.mark.parametrize("shape", [(8,), (0, 8), (8, 0), (2, 2, 2), ()])
def test_no_matrix(tmp_path, shape):
    folder = b.write_model(tmp_path, {"wte.weight": np.zeros(shape, np.float32)}, None)
    with pytest.raises(CheckpointError, match=r"wte\.weight.*expected a non-empty matrix"):
        open_checkpoint(folder).embedding()
    with pytest.raises(CheckpointError, match="non-empty matrix"):
        open_checkpoint(folder, embedding_tensor="wte.weight").embedding()


def test_multimodal_configs_are_looked_into():
    config = {"model_type": "gemma3", "text_config": {"hidden_size": 8, "model_type": "gemma3_text"}}
    assert roles.config_value(config, "hidden_size") == 8
    assert roles.tied_flag(config) is True
    assert roles.tied_flag({"model_type": "llava", "text_config": {"tie_word_embeddings": True}}) is True
    assert roles.tied_flag({"model_type": "gemma", "tie_word_embeddings": False}) is False
    assert roles.tied_flag({}) is None
