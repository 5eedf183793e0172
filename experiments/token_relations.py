"""Which tokens lie next to each other in a model: primary tokens, near-duplicates, named pairs, analogies.

    python -m experiments.token_relations --model=HuggingFaceTB/SmolLM2-135M --workdir=runs/tokens \
        --pairs=cat-dog,king-queen --analogies=king-man+woman=queen

For each model, in one walk over all pairs of rows: nearest and most opposed token of every token, near-duplicates, and
the tail above epsilon = mu + 2 sigma; then primary tokens, row lengths, named pairs, analogies (your own, and a hundred
that come with the package), embedding against unembedding, what W_Q, W_K and W_V of block 0 see, and the gains of the
norms. Writes records.jsonl, relations-<model>.npz (neighbours of every token), tables (.csv, .md, .tex), figures (PNG
and PDF) and report.html. A vocabulary of 49,152 takes about half a minute on two CPU cores for
--parts=neighbours,norms,analogies,gains; each of the projections adds a walk.

Source of the questions: Guha 2026, arXiv:2606.02765, section 2.3 and appendix C.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from typing import Any

from absl import flags

from experiments import launch
from experiments.launch import FLAGS, Devices, UserError
from repcap_jax.reports.workdir import Workdir, safe_name

_PARTS = ["neighbours", "norms", "analogies", "unembedding", "projections", "gains"]

flags.DEFINE_multi_string(
    "model", [], "Model: a folder, a file or a Hub id, with @revision if wanted; may be repeated."
)
flags.DEFINE_string("models_file", None, "File with one model a line.")
flags.DEFINE_enum("matrix", "embedding", ["embedding", "unembedding"], "Whose rows the tokens are.")
flags.DEFINE_list("parts", _PARTS, f"What to measure: some of {', '.join(_PARTS)}.")
flags.DEFINE_integer("neighbours", 5, "Nearest tokens to keep for each token.", lower_bound=1, upper_bound=1024)
flags.DEFINE_integer("tau", 10, "A primary token is the nearest neighbour of more than so many.", lower_bound=0)
flags.DEFINE_float(
    "near", 0.99, "Cosine above which two tokens are near-duplicates.", lower_bound=-1, upper_bound=0.9999999
)
flags.DEFINE_list("pairs", [], "Named pairs, cat-dog (or cat:dog, for words with a hyphen).")
flags.DEFINE_list("analogies", [], "Analogies, king-man+woman, with =queen at the end where an answer is expected.")
flags.DEFINE_enum("exclude", "variants", ["variants", "words", "nothing"], "What may not answer an analogy.")
flags.DEFINE_integer("top", 40, "Answers to keep for each analogy.", lower_bound=1)
flags.DEFINE_integer("tile", None, "Rows and columns of a tile (a power of two); by default chosen by platform.")
flags.DEFINE_string("embedding_tensor", None, "Name of the embedding tensor, where it cannot be told.")
flags.DEFINE_string("unembedding_tensor", None, "Name of the unembedding tensor, where it cannot be told.")

_SMOKE_ROWS, _SMOKE_WIDTH = 1500, 48
_LISTED = 500  # primary tokens in a record


def main() -> int:
    """Run the experiment; the exit status is 1 if a model failed."""
    models = launch.listed_models(FLAGS.model, FLAGS.models_file)
    if not models and not FLAGS.smoke:
        raise UserError("name a model with --model=..., several with --models_file=..., or try --smoke")
    pairs, analogies = _checked_flags()
    devices = launch.start_devices()
    names = (
        "matrix",
        "parts",
        "neighbours",
        "tau",
        "near",
        "pairs",
        "analogies",
        "exclude",
        "top",
        "precision",
        "smoke",
    )
    settings = {name: FLAGS[name].value for name in (*names, "embedding_tensor", "unembedding_tensor")}
    devices.together(lambda: launch.check_same_work(models, "models", devices))
    with launch.open_workdir("token_relations", settings, devices) as workdir, tempfile.TemporaryDirectory() as folder:
        sources = {model: model for model in models} or {"smoke-matrix": _smoke_model(folder)}
        failed = launch.sweep_models(
            sources,
            lambda model, source, place: _measure(model, source, place, pairs, analogies, workdir, devices),
            _summary,
            workdir,
            devices,
        )
        if devices.writes:
            from repcap_jax.reports.relation_report import write_relation_report

            print(f"report: {write_relation_report(workdir)}", flush=True)
    return 1 if failed else 0


def _checked_flags() -> tuple[list[tuple[str, str]], list[Any]]:
    """Named pairs and analogies as they are asked."""
    from repcap_jax.embeddings.lexicon import parse_analogy, parse_pair
    from repcap_jax.kernels.walk import check_tile

    if wrong := [part for part in FLAGS.parts if part not in _PARTS]:
        raise UserError(f"--parts takes {', '.join(_PARTS)}, got {', '.join(wrong)}")
    try:
        check_tile(FLAGS.tile)
        return [parse_pair(text) for text in FLAGS.pairs], [parse_analogy(text) for text in FLAGS.analogies]
    except ValueError as error:
        raise UserError(str(error)) from error


def _measure(
    model: str, source: str, place: str, pairs: list, analogies: list, workdir: Workdir, devices: Devices
) -> dict[str, Any]:
    from repcap_jax.checkpoints import open_checkpoint

    started = time.monotonic()
    source, revision = launch.source_and_revision(source)
    tensors = {"embedding_tensor": FLAGS.embedding_tensor, "unembedding_tensor": FLAGS.unembedding_tensor}
    with contextlib.ExitStack() as stack:
        checkpoint = devices.together(lambda: stack.enter_context(open_checkpoint(source, revision, **tensors)))
        x = devices.together(checkpoint.embedding if FLAGS.matrix == "embedding" else checkpoint.unembedding)
        words, notes = devices.together(lambda: _words(checkpoint, bool(pairs or analogies)))
        record: dict[str, Any] = {"model": checkpoint.name, "family": checkpoint.family, "matrix": FLAGS.matrix}
        record |= {"n_rows": len(x), "d_model": x.shape[1], "notes": notes}
        arrays: dict[str, Any] = {}
        walk = {"tile": FLAGS.tile, "mesh": devices.mesh, "precision": FLAGS.precision}
        if "neighbours" in FLAGS.parts:
            _add_neighbours(record, arrays, x, words, walk, lambda: launch.progress(place, devices))
        if "norms" in FLAGS.parts:
            _add_norms(record, arrays, x, words)
        _add_words(record, x, words, pairs, analogies)
        if "unembedding" in FLAGS.parts:
            _add_unembedding(record, arrays, x, checkpoint, walk, place, devices)
        if "projections" in FLAGS.parts:
            _add_projections(record, arrays, x, checkpoint, words, walk, place, devices)
        if "gains" in FLAGS.parts:
            from repcap_jax.embeddings.first_block import gain_record, norm_gains

            record["gains"] = gain_record(devices.together(lambda: norm_gains(checkpoint)))
        record["checkpoint"] = checkpoint.to_record()
    name = f"relations-{safe_name(model)}.npz"
    workdir.save_arrays(name, **arrays)
    seconds = {"total": round(time.monotonic() - started, 3)}
    return workdir.append(
        {"key": model, "status": "done", "source": source, **record, "arrays": name, "seconds": seconds}
    )


def _words(checkpoint: Any, needed: bool) -> tuple[Any, list[str]]:
    """What looks words up, and why there is none; an error only if words were named."""
    from repcap_jax.checkpoints.words import Words

    try:
        return Words(checkpoint.tokenizer()), []
    except ValueError as error:
        if needed:
            raise ValueError(f"--pairs and --analogies need a tokenizer: {error}") from error
        return None, [f"no tokenizer, so tokens are shown by number and analogies are left out: {error}"]


def _texts(words: Any, rows: Any) -> list[str]:
    return [f"#{row}" for row in rows] if words is None else words.texts(rows)


def _add_neighbours(record: dict, arrays: dict, x: Any, words: Any, walk: dict, progress: Any) -> None:
    import numpy as np

    from repcap_jax.embeddings.primary import in_degrees, primary_tokens, tail_share
    from repcap_jax.embeddings.relations import token_relations

    with progress() as report:
        found = token_relations(x, count=FLAGS.neighbours, near=FLAGS.near, progress=report, **walk)
    primaries = primary_tokens(found, FLAGS.tau)
    degrees = in_degrees(found.neighbours.ids[:, 0])
    relations = found.to_record()
    for group in relations["near_duplicates"]["groups"]:
        group["texts"] = _texts(words, group["rows"])
    tokens = [token.to_record() for token in primaries[:_LISTED]]
    for token in tokens:
        token |= {"text": _texts(words, [token["row"]])[0], "secondary_texts": _texts(words, token["secondary"])}
    levels, counts = np.unique(degrees, return_counts=True)
    record["relations"] = relations
    record["primary"] = {
        "tau": FLAGS.tau,
        "count": len(primaries),
        "tokens": tokens,
        "tail": tail_share(x, found, primaries).to_record(),
        "in_degrees": [list(pair) for pair in zip(levels.tolist(), counts.tolist())],
    }
    arrays |= found.arrays() | {"in_degrees": degrees}


def _add_norms(record: dict, arrays: dict, x: Any, words: Any) -> None:
    from repcap_jax.embeddings.norms import row_norms

    found = row_norms(x)
    record["norms"] = found.to_record()
    for name in ("zero_rows", "tiny_rows"):
        record["norms"][name]["texts"] = _texts(words, record["norms"][name]["ids"][:100])
    arrays |= found.arrays()


def _add_words(record: dict, x: Any, words: Any, pairs: list, analogies: list) -> None:
    from repcap_jax.embeddings.lexicon import ask, built_in_analogies, named_pairs, scores

    if words is None:
        return
    options = {"top": FLAGS.top, "exclude": FLAGS.exclude, "precision": FLAGS.precision}
    record["pairs"] = [pair.to_record() for pair in named_pairs(x, words, pairs)]
    record["asked"] = [result.to_record(words) for result in ask(x, words, analogies, **options)]
    problems = [f"{pair['first']}-{pair['second']}" for pair in record["pairs"] if pair["problem"]]
    problems += [entry["question"] for entry in record["asked"] if entry["problem"]]
    if problems:
        record["notes"].append(f"not answered, see their tables for the reason: {', '.join(problems)}.")
    if "analogies" in FLAGS.parts:
        results = ask(x, words, built_in_analogies(), **options)
        found = {relation: score.to_record() for relation, score in scores(results).items()}
        record["analogies"] = {"scores": found, "results": [result.to_record(words) for result in results]}


def _add_unembedding(
    record: dict, arrays: dict, x: Any, checkpoint: Any, walk: dict, place: str, devices: Devices
) -> None:
    from repcap_jax.checkpoints import CheckpointError
    from repcap_jax.embeddings.unembedding import compare_unembedding

    try:
        tied = devices.together(lambda: checkpoint.tied)
        if tied:
            record["notes"].append("tied: embedding and unembedding are one matrix and were not compared.")
            return
        other = devices.together(checkpoint.unembedding if FLAGS.matrix == "embedding" else checkpoint.embedding)
    except CheckpointError as error:
        record["notes"].append(f"embedding and unembedding were not compared: {error}")
        return
    if other.shape != x.shape:
        record["notes"].append(f"embedding and unembedding differ in shape, {x.shape} and {other.shape}: not compared.")
        return
    both = (x, other) if FLAGS.matrix == "embedding" else (other, x)
    with launch.progress(f"{place} unembedding", devices) as report:
        found = compare_unembedding(*both, progress=report, **walk)
    record["unembedding"] = found.to_record()
    arrays |= found.arrays()


def _add_projections(
    record: dict, arrays: dict, x: Any, checkpoint: Any, words: Any, walk: dict, place: str, devices: Devices
) -> None:
    from repcap_jax.embeddings.first_block import first_projections, input_gain, projected_tokens

    if FLAGS.matrix != "embedding" and not devices.together(lambda: checkpoint.tied):
        record["notes"].append("block 0 sees the embedding: its projections of the unembedding were left out.")
        return
    try:
        projections = devices.together(lambda: first_projections(checkpoint))
    except ValueError as error:
        record["notes"].append(f"projections of block 0 were left out: {error}")
        return
    gain = devices.together(lambda: input_gain(checkpoint))
    record["projections"] = {}
    for part, matrix in projections.items():
        if matrix.shape[1] != x.shape[1]:
            record["notes"].append(f"W of {part} takes vectors of length {matrix.shape[1]}: left out.")
            continue
        with launch.progress(f"{place} {part}", devices) as report:
            found = projected_tokens(x, matrix, gain, progress=report, **walk)
        nearest, cosines = found.nearest.ids[:, 0], found.nearest.cosines[:, 0]
        rows = [token["row"] for token in (record.get("primary") or {}).get("tokens", [])[:10]]
        examples = [
            {"token": text, "nearest": other, "cosine": float(cosines[row])}
            for row, text, other in zip(rows, _texts(words, rows), _texts(words, nearest[rows]))
            if nearest[row] >= 0
        ]
        record["projections"][part] = found.to_record() | {"examples": examples}
        arrays |= {f"{part}_counts": found.counts, f"{part}_edges": found.edges}
        arrays[f"{part}_neighbour_ids"] = nearest.astype("int32")


def _summary(record: dict[str, Any]) -> str:
    parts = []
    if primary := record.get("primary"):
        found = record["relations"]
        first = ", ".join(f"{token['text']} ({token['in_degree']})" for token in primary["tokens"][:3])
        share = primary["tail"]["share"]
        parts.append(
            f"epsilon = {found['epsilon']:.5f}, {primary['count']} primary tokens{first and f' ({first}, ..)'}"
        )
        parts.append("no tail" if share is None else f"they explain {share:.2%} of the tail")
        parts.append(f"{found['near_duplicates']['total_pairs']:,} near-duplicate pairs")
    if score := (record.get("analogies") or {}).get("scores", {}).get("all"):
        parts.append(f"analogies {score['accuracy_1']:.0%} at 1, {score['accuracy_10']:.0%} at 10 (n = {score['n']})")
    if projections := record.get("projections"):
        medians = ", ".join(f"{name} {of['nearest']['quantiles']['0.5']:.3f}" for name, of in projections.items())
        parts.append(f"median cosine of the nearest token seen by block 0: {medians}")
    return f"{'; '.join(parts) or 'done'} ({record['seconds']['total']:.1f} s)"


def _smoke_model(folder: str) -> str:
    """A small Gaussian matrix with a common direction, a hub with many neighbours, and a few equal rows."""
    import numpy as np

    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((_SMOKE_ROWS, _SMOKE_WIDTH)).astype(np.float32) + 0.2
    matrix[100:140] = matrix[7] + 0.6 * rng.standard_normal((40, _SMOKE_WIDTH))
    matrix[-5:] = matrix[-5]
    path = os.path.join(folder, "smoke-matrix.npy")
    np.save(path, matrix)
    return path


if __name__ == "__main__":
    launch.run(main)
