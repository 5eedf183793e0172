"""Is each layer's geometry organised for prediction? Hidden states against the unembedding's readout subspace.

    python -m experiments.layer_alignment --model=HuggingFaceTB/SmolLM2-135M --workdir=runs/alignment

For each model: hidden states of --n tokens of a text (Python's own help topics by default), before the final norm, and
once more after it. For each layer: Spearman's rho of all pairs' cosine distances in the full space and in the top k
right singular vectors of the unembedding, against --nulls random subspaces (z, effect, Monte-Carlo error, p), after the
top m principal directions are removed; the same over a table of k and m; and spectral metrics. Writes records.jsonl,
layer_table (.csv, .md, .tex), figures (PNG and PDF) and report.html. Finished layers are skipped when the run is
started again.

States of any other model or framework: --hidden_states=FILE.safetensors with one (n, d) array for each layer, in the
order of their names, beside a --model that gives the unembedding.

Source of the method: Xu 2026, arXiv:2605.17084.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags

from experiments import launch
from experiments.launch import FLAGS, Devices, UserError
from repcap_jax.reports.progress import duration
from repcap_jax.reports.workdir import Workdir

flags.DEFINE_multi_string(
    "model", [], "Model: a folder, a .gguf file or a Hub id, with @revision if wanted. Repeat or separate by commas."
)
flags.DEFINE_string("models_file", None, "File with one model a line.")
flags.DEFINE_string("hidden_states", None, "States of one model: a .safetensors file with an (n, d) array a layer.")
flags.DEFINE_multi_string("text", [], "Text files, plain or .jsonl with a text in each line. By default help topics.")
flags.DEFINE_integer("n", 1000, "Tokens whose states are compared.", lower_bound=3)
flags.DEFINE_integer("seq_len", 256, "Tokens in a sequence.", lower_bound=2)
flags.DEFINE_boolean("keep_first", False, "Also draw position 0, an attention sink that moves z by 2 to 7.")
flags.DEFINE_integer("k", 100, "Dimension of the readout subspace.", lower_bound=1)
flags.DEFINE_integer("m", 1, "Principal directions removed (CCR-m).", lower_bound=0)
flags.DEFINE_list("table_ks", None, "Values of k in the sensitivity table; by default half, once and twice k.")
flags.DEFINE_list("table_ms", None, "Values of m in it; by default 0,1,5,10.")
flags.DEFINE_integer("nulls", 100, "Random subspaces.", lower_bound=2)
flags.DEFINE_integer("table_nulls", 20, "Random subspaces of the sensitivity table's other cells.", lower_bound=2)
flags.DEFINE_boolean("fresh_nulls", False, "Random subspaces of its own for each layer, instead of one set for all.")
flags.DEFINE_boolean("centre_readout", False, "Subtract the mean row of the unembedding first.")
flags.DEFINE_boolean("fold_gain", False, "Fold the final norm's gain into the unembedding.")
flags.DEFINE_boolean("remove_after", False, "Remove principal directions of the projected states after projecting.")
flags.DEFINE_enum("ranks", "auto", ["auto", "sort", "binned"], "How pairs are ranked; see repcap_jax.spearman.")
flags.DEFINE_enum("dtype", "float32", ["float32", "bfloat16"], "Weights of the decoder.")
flags.DEFINE_integer("seed", 0, "Seed of tokens and random subspaces.")
flags.DEFINE_string("embedding_tensor", None, "Name of the embedding tensor, where it cannot be told.")
flags.DEFINE_string("unembedding_tensor", None, "Name of the unembedding tensor, where it cannot be told.")

_SETTINGS = (
    "hidden_states text n seq_len keep_first k m table_ks table_ms nulls table_nulls fresh_nulls centre_readout "
    "fold_gain remove_after ranks dtype seed embedding_tensor unembedding_tensor precision smoke"
).split()


class _Plan(NamedTuple):
    """What the flags ask for: the k and m of the table, None where the default is meant, and the text."""

    ks: list[int] | None
    ms: list[int] | None
    documents: Any

    @property
    def widest(self) -> int:
        """The largest k of all."""
        return max([FLAGS.k, *([FLAGS.k * 2] if self.ks is None else self.ks)])


def main() -> int:
    """Run the experiment; the exit status is 1 if a model or a layer failed."""
    models = launch.listed_models(FLAGS.model, FLAGS.models_file)
    plan = _plan(models)
    devices = launch.start_devices()
    devices.together(lambda: launch.check_same_work(models, "models", devices))
    settings = {name: FLAGS[name].value for name in _SETTINGS} | {"content": _content(plan)}
    about = launch.generator(FLAGS.seed)
    with (
        launch.open_workdir("layer_alignment", settings, devices, **about) as workdir,
        tempfile.TemporaryDirectory() as folder,
    ):
        failed = launch.sweep_models(
            {model: model for model in models} or {"smoke-model": _smoke_model(folder)},
            lambda model, source, place: _measure(model, source, place, plan, workdir, devices),
            lambda record: _summary(workdir, record),
            workdir,
            devices,
        )
        if devices.writes:
            from repcap_jax.reports.alignment_report import write_alignment_report

            print(f"report: {write_alignment_report(workdir)}", flush=True)
    return 1 if failed else 0


def _plan(models: list[str]) -> _Plan:
    """Check the flags before anything is started."""
    if not models and (FLAGS.hidden_states or not FLAGS.smoke):
        raise UserError("name a model with --model=..., several with --models_file=..., or try --smoke")
    if FLAGS.hidden_states and len(models) > 1:
        raise UserError("--hidden_states holds the states of one model: name one --model, which gives the unembedding")
    if FLAGS.smoke:
        FLAGS.n, FLAGS.nulls, FLAGS.seq_len = min(FLAGS.n, 100), min(FLAGS.nulls, 10), min(FLAGS.seq_len, 64)
        FLAGS.k = min(FLAGS.k, 16)
    plan = _Plan(_numbers("table_ks", 1), _numbers("table_ms", 0), _documents())
    if FLAGS.hidden_states:
        if ignored := [name for name in ("text", "n", "seq_len", "keep_first") if FLAGS[name].present]:
            raise UserError(f"--{', --'.join(ignored)} choose tokens of a text: leave out with --hidden_states")
    elif max([FLAGS.m, *(plan.ms or [])]) > FLAGS.n - 2:
        raise UserError(f"--m and --table_ms go up to n - 2 = {FLAGS.n - 2}: more leave nothing to compare")
    return plan


def _documents() -> Any:
    """The text; None where states are given instead."""
    from repcap_jax.models.text import read_documents

    if FLAGS.hidden_states:
        if not os.path.isfile(os.path.expanduser(FLAGS.hidden_states)):
            raise UserError(f"--hidden_states: there is no file {FLAGS.hidden_states}")
        return None
    try:
        return read_documents(FLAGS.text or None)
    except ValueError as error:
        raise UserError(f"--text: {error}") from error


def _content(plan: _Plan) -> str:
    """Digest of the text, or of the file of states: another content under the same name is another run."""
    if plan.documents is not None:
        return plan.documents.sha256
    with open(os.path.expanduser(FLAGS.hidden_states), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _numbers(flag: str, lowest: int) -> list[int] | None:
    """The values of a comma-separated flag."""
    if FLAGS[flag].value is None:
        return None
    try:
        values = [int(text) for text in FLAGS[flag].value]
    except ValueError as error:
        raise UserError(f"--{flag} takes whole numbers separated by commas: {error}") from error
    if not values or min(values) < lowest:
        raise UserError(f"--{flag} takes whole numbers of at least {lowest}, got {FLAGS[flag].value}")
    return values


def _measure(model: str, source: str, place: str, plan: _Plan, workdir: Workdir, devices: Devices) -> dict[str, Any]:
    """Score the layers of one model that are not finished yet; its record, once all are."""
    import jax

    import repcap_jax as rc

    began = time.monotonic()
    source, revision = launch.source_and_revision(source)
    tensors = {"embedding_tensor": FLAGS.embedding_tensor, "unembedding_tensor": FLAGS.unembedding_tensor}
    key = jax.random.key(FLAGS.seed)
    with contextlib.ExitStack() as stack:
        checkpoint = devices.together(lambda: stack.enter_context(rc.open_checkpoint(source, revision, **tensors)))
        readout = devices.together(lambda: _readout(checkpoint, plan))
        states, about = _states(checkpoint, key, place, plan, devices)
        about |= {"model": checkpoint.name, "source": source, "family": checkpoint.family}
        about |= {"d_model": readout.shape[0], "checkpoint": checkpoint.to_record()}
    if states[0].shape[1] != readout.shape[0]:
        raise ValueError(
            f"the hidden states have d = {states[0].shape[1]}, but the unembedding of {model} has {readout.shape[0]}"
        )
    nulls_key = jax.random.fold_in(key, 1)
    frames = None if FLAGS.fresh_nulls else rc.grassmann_frames(nulls_key, FLAGS.nulls, *readout.shape)
    failed = []
    with launch.progress(f"{place} layers", devices, unit="layers") as progress:
        for number, hidden in enumerate(states):
            name = _state_name(number, about)
            cell = {"key": f"{model} layer {number}", "kind": "layer", **about, "layer": number, "name": name}
            if not devices.agree([workdir.finished(cell["key"])])[0]:
                layer_key = jax.random.fold_in(nulls_key, number) if FLAGS.fresh_nulls else None
                failed += _score(cell, hidden, readout, layer_key, frames, plan, workdir, devices)
            progress(number + 1, len(states))
            if failed and FLAGS.fail_fast:
                break
    if failed:
        raise RuntimeError(f"{len(failed)} of {len(states)} layers failed, see above")
    seconds = round(time.monotonic() - began, 3)
    record = {"key": model, "status": "done", "kind": "model", "model": about["model"], "seconds": seconds}
    workdir.append(record)
    return record


def _score(
    cell: dict[str, Any],
    hidden: Any,
    readout: Any,
    key: Any,
    frames: Any,
    plan: _Plan,
    workdir: Workdir,
    devices: Devices,
) -> list[str]:
    """Score one layer and record it; its key if it failed."""
    from repcap_jax.alignment import layer_alignment

    began = time.monotonic()
    try:
        found = layer_alignment(
            hidden,
            readout,
            key,
            k=FLAGS.k,
            remove=FLAGS.m,
            ks=plan.ks,
            ms=plan.ms,
            nulls=FLAGS.nulls,
            table_nulls=min(FLAGS.table_nulls, FLAGS.nulls),
            remove_after=FLAGS.remove_after,
            frames=frames,
            method=FLAGS.ranks,
            mesh=devices.mesh,
        )
    except ValueError as error:
        workdir.failed(cell["key"], error, kind="layer", model=cell["model"], layer=cell["layer"])
        print(f"{cell['key']}: failed: {error}", file=sys.stderr, flush=True)
        return [cell["key"]]
    workdir.append({**cell, "status": "done", **found.to_record(), "seconds": round(time.monotonic() - began, 3)})
    return []


def _readout(checkpoint: Any, plan: _Plan) -> Any:
    """The readout subspace, as wide as the widest that is asked for and the width allows."""
    import repcap_jax as rc

    unembedding = checkpoint.unembedding()
    d = unembedding.shape[1]
    largest = max([FLAGS.k, *(plan.ks or [])])
    if largest >= d:
        flag = "--k" if largest == FLAGS.k else "--table_ks"
        raise ValueError(f"k must be smaller than the width d = {d} of {checkpoint.name}, got {largest}: choose {flag}")
    gain = None
    if FLAGS.fold_gain:
        norm = checkpoint.final_norm()
        if norm is None:
            raise ValueError(f"--fold_gain: {checkpoint.name} has no final norm that could be told")
        gain = norm.weight + norm.offset
    return rc.readout_subspace(unembedding, min(plan.widest, d - 1), centre=FLAGS.centre_readout, gain=gain)


def _states(checkpoint: Any, key: Any, place: str, plan: _Plan, devices: Devices) -> tuple[Any, dict[str, Any]]:
    """The states of each layer, and what is to be recorded of them."""
    if FLAGS.hidden_states:
        states = devices.together(_given_states)
        return states, {"blocks": len(states) - 1, "normed": False, "states": FLAGS.hidden_states}
    import jax
    import numpy as np

    from repcap_jax.models import extract_states, load_decoder
    from repcap_jax.models.text import sample_tokens

    sample = devices.together(
        lambda: sample_tokens(
            jax.random.fold_in(key, 0),
            checkpoint,
            FLAGS.n,
            documents=plan.documents,
            seq_len=FLAGS.seq_len,
            skip_first=not FLAGS.keep_first,
        )
    )
    decoder = devices.together(
        lambda: load_decoder(checkpoint, dtype=FLAGS.dtype, head=False, mesh=devices.mesh, precision=FLAGS.precision)
    )
    with launch.progress(f"{place} forward", devices, unit="sequences") as progress:
        states = extract_states(decoder, sample.sequences, sample.positions, progress=progress)
    normed = np.asarray(decoder.final_norm(states[-1]))[None]
    about = {"blocks": decoder.n_layers, "normed": True, "text": sample.to_record(), "decoder": decoder.to_record()}
    return np.concatenate([states, normed]), about


def _given_states() -> list[Any]:
    """The arrays of --hidden_states, `layer_2` before `layer_10`."""
    from repcap_jax.checkpoints.safetensors_store import open_safetensors

    with contextlib.closing(open_safetensors(Path(FLAGS.hidden_states).expanduser())) as store:
        arrays = {name: store.read(name) for name in store.names()}

    def in_order(name: str) -> list[Any]:
        return [(part.isdigit(), int(part) if part.isdigit() else part) for part in re.split(r"(\d+)", name)]

    shapes = {array.shape for array in arrays.values()}
    if len(shapes) != 1 or len(next(iter(shapes))) != 2:
        found = ", ".join(f"{name} {array.shape}" for name, array in list(arrays.items())[:8])
        raise ValueError(f"{FLAGS.hidden_states}: expected an (n, d) array a layer, all of one shape, found {found}")
    return [arrays[name] for name in sorted(arrays, key=in_order)]


def _state_name(number: int, about: dict[str, Any]) -> str:
    if number == 0:
        return "embedding"
    return "final norm" if about["normed"] and number == about["blocks"] + 1 else f"block {number}"


def _summary(workdir: Workdir, record: dict[str, Any]) -> str:
    """z of the first layer, the least, the largest and the last block's, and the time that a model took."""
    from repcap_jax.reports.alignment_data import read_layers

    (found,) = [layers for layers in read_layers(workdir)[0] if layers.source == record["key"]]
    z = found.score("z")
    last = z[~found.normed][-1]
    ends = f"z = {z[0]:+.1f} at the embedding, {last:+.1f} at the last block"
    return f"{len(z)} layers, {ends}, {min(z):+.1f} to {max(z):+.1f} over all ({duration(record['seconds'])})"


def _smoke_model(folder: str) -> str:
    """A small random llama whose tokens are single bytes."""
    import numpy as np
    from safetensors.numpy import save_file
    from tokenizers.pre_tokenizers import ByteLevel

    layers, d, inner, alphabet = 3, 64, 128, sorted(ByteLevel.alphabet())
    shapes = {"self_attn.q_proj": (d, d), "self_attn.k_proj": (d, d), "self_attn.v_proj": (d, d)}
    shapes |= {"self_attn.o_proj": (d, d), "mlp.gate_proj": (inner, d), "mlp.up_proj": (inner, d)}
    shapes["mlp.down_proj"] = (d, inner)
    shapes = {f"layers.{i}.{name}": shape for i in range(layers) for name, shape in shapes.items()}
    norms = [f"layers.{i}.{name}_layernorm" for i in range(layers) for name in ("input", "post_attention")]
    rng = np.random.default_rng(0)
    tensors = {
        f"model.{name}.weight": rng.standard_normal(shape).astype(np.float32) / shape[1] ** 0.5
        for name, shape in {"embed_tokens": (len(alphabet), d), **shapes}.items()
    }
    tensors |= {f"model.{name}.weight": np.ones(d, np.float32) for name in [*norms, "norm"]}
    path = os.path.join(folder, "smoke-model")
    os.mkdir(path)
    save_file(tensors, os.path.join(path, "model.safetensors"))
    config = {"model_type": "llama", "vocab_size": len(alphabet), "hidden_size": d, "intermediate_size": inner}
    config |= {"num_hidden_layers": layers, "num_attention_heads": 4, "tie_word_embeddings": True}
    bytewise = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    pieces = {"type": "BPE", "vocab": {letter: i for i, letter in enumerate(alphabet)}, "merges": []}
    tokenizer = {"version": "1.0", "added_tokens": [], "pre_tokenizer": bytewise, "decoder": bytewise, "model": pieces}
    for name, content in (("config", config), ("tokenizer", tokenizer)):
        with open(os.path.join(path, f"{name}.json"), "w", encoding="utf-8") as file:
            json.dump(content, file)
    return path


if __name__ == "__main__":
    launch.run(main)
