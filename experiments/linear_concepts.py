"""Are concepts directions, and orthogonal in which inner product: counterfactual pairs, heat maps, interventions.

    python -m experiments.linear_concepts --model=HuggingFaceTB/SmolLM2-135M --workdir=runs/concepts

For each model: the causal inner product of its unembedding, the direction of each concept (two dozen lists of word
pairs come with the package, --concepts=folder adds your own word<TAB>word files), each pair's projection on the
direction of the other pairs against random pairs, heat maps of |cosine| between concepts under the causal, the
Euclidean and a random inner product with a permutation test, and, unless --parts=directions, the concepts in hidden
states of contexts: measurement, intervention, and the isomorphism of the two representations. Writes records.jsonl,
concepts-<model>.npz, tables (.csv, .md, .tex), figures (PNG and PDF) and report.html. A vocabulary of 49,152 takes
about half a minute on two CPU cores.

Source of the questions: Park, Choe, Veitch 2024, arXiv:2311.03658.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import statistics
import tempfile
import time
from typing import Any

from absl import flags

from experiments import launch
from experiments.launch import FLAGS, Devices, UserError
from repcap_jax.reports.workdir import Workdir, safe_name

flags.DEFINE_multi_string("model", [], "Model: a folder, a file or a Hub id, with @revision if wanted.")
flags.DEFINE_string("models_file", None, "File with one model a line.")
flags.DEFINE_string("concepts", None, "Folder of your own word<TAB>word files, one concept each.")
flags.DEFINE_boolean("built_in", True, "Use the concepts that come with the package.")
flags.DEFINE_string("contexts", None, "Folder of your own context<TAB>context files, named as the concepts.")
flags.DEFINE_list("parts", ["directions", "contexts"], "What to measure: directions always, contexts if named.")
flags.DEFINE_integer("min_pairs", 10, "Fewest single-token pairs of a concept.", lower_bound=2)
flags.DEFINE_boolean(
    "normalise", True, "Give each pair the same weight; the paper takes the mean of plain differences."
)
flags.DEFINE_float("floor", 1e-6, "Least eigenvalue of the covariance, as a share of the largest.", 1e-15, 1.0)
flags.DEFINE_integer("random_pairs", 100_000, "Random pairs of tokens to compare with.", lower_bound=100)
flags.DEFINE_integer("bootstraps", 2000, "Resamples for each interval.", lower_bound=10)
flags.DEFINE_integer("permutations", 10_000, "Exchanges of the permutation test.", lower_bound=10)
flags.DEFINE_list("alphas", ["0", "0.1", "0.2", "0.3", "0.4"], "How much of a concept interventions add.")
flags.DEFINE_integer("seed", 0, "Seed of every random draw.")
flags.DEFINE_string("embedding_tensor", None, "Name of the embedding tensor, where it cannot be told.")
flags.DEFINE_string("unembedding_tensor", None, "Name of the unembedding tensor, where it cannot be told.")

# The flags that change the numbers of a model.
_RESULT_FLAGS = (
    "built_in", "parts", "min_pairs", "normalise", "floor", "random_pairs", "bootstraps", "permutations", "alphas",
    "seed", "precision", "smoke", "embedding_tensor", "unembedding_tensor",
)  # fmt: skip
_SMOKE_CONCEPTS = 7
_EXAMPLES, _NEXT = 2, 6  # contexts a concept whose next tokens are listed, and how many tokens


def main() -> int:
    """Run the experiment; the exit status is 1 if a model failed."""
    models = launch.listed_models(FLAGS.model, FLAGS.models_file)
    if not models and not FLAGS.smoke:
        raise UserError("name a model with --model=..., several with --models_file=..., or try --smoke")
    alphas = _checked_flags()
    concepts, contexts = _texts("concepts", FLAGS.built_in), _texts("contexts", True)
    if FLAGS.smoke:
        concepts = concepts[-_SMOKE_CONCEPTS:]
    devices = launch.start_devices()
    settings = {name: FLAGS[name].value for name in _RESULT_FLAGS}
    settings |= {"concepts": _as_record(concepts), "contexts": _as_record(contexts)}
    devices.together(lambda: launch.check_same_work(models, "models", devices))
    with (
        launch.open_workdir("linear_concepts", settings, devices, **launch.generator(FLAGS.seed)) as workdir,
        tempfile.TemporaryDirectory() as folder,
    ):
        sources = {model: model for model in models} or {"smoke-model": _smoke_model(folder, concepts)}
        failed = launch.sweep_models(
            sources,
            lambda model, source, place: _measure(model, source, concepts, contexts, alphas, workdir, devices),
            _summary,
            workdir,
            devices,
        )
        if devices.writes:
            from repcap_jax.reports.concept_report import write_concept_report

            print(f"report: {write_concept_report(workdir)}", flush=True)
    return 1 if failed else 0


def _checked_flags() -> list[float]:
    if wrong := [part for part in FLAGS.parts if part not in ("directions", "contexts")]:
        raise UserError(f"--parts takes directions, contexts, got {', '.join(wrong)}")
    if not FLAGS.built_in and not FLAGS.concepts:
        raise UserError("--nobuilt_in leaves no concept; give --concepts=folder")
    alphas = sorted(set(launch.numbers("alphas", float)))
    if not alphas or not all(map(math.isfinite, alphas)):
        raise UserError(f"--alphas takes finite numbers, got {','.join(FLAGS.alphas) or 'none'}")
    return alphas


def _texts(flag: str, built_in: bool) -> list[Any]:
    """Concepts or contexts of the package and of the user's folder, whose files come before those of one name."""
    from repcap_jax.concepts.pairs import built_in_concepts, built_in_contexts, read_folder

    found = {}
    if built_in:
        found = {item.name: item for item in (built_in_concepts if flag == "concepts" else built_in_contexts)()}
    if FLAGS[flag].value:
        try:
            found |= {item.name: item for item in read_folder(FLAGS[flag].value)}
        except ValueError as error:
            raise UserError(f"--{flag}: {error}") from error
    return list(found.values())


def _as_record(items: list[Any]) -> dict[str, list]:
    """What was asked, so that results of other lists are other results."""
    return {item.name: [item.group, [list(pair) for pair in item.pairs]] for item in items}


def _measure(
    model: str, source: str, concepts: list, contexts: list, alphas: list, workdir: Workdir, devices: Devices
) -> dict[str, Any]:
    from repcap_jax.checkpoints import open_checkpoint
    from repcap_jax.checkpoints.words import Words
    from repcap_jax.concepts.inner_product import causal_inner_product
    from repcap_jax.concepts.pairs import usable

    started = time.monotonic()
    source, revision = launch.source_and_revision(source)
    tensors = {"embedding_tensor": FLAGS.embedding_tensor, "unembedding_tensor": FLAGS.unembedding_tensor}
    with contextlib.ExitStack() as stack:
        checkpoint = devices.together(lambda: stack.enter_context(open_checkpoint(source, revision, **tensors)))
        words = devices.together(lambda: Words(checkpoint.tokenizer()))
        x = devices.together(checkpoint.unembedding)
        kept, left_out = usable(concepts, words, len(x), FLAGS.min_pairs)
        if not kept:
            raise ValueError(f"no concept is usable: {'; '.join(f'{name}: {why}' for name, why in left_out.items())}")
        causal = causal_inner_product(x, floor=FLAGS.floor)
        record: dict[str, Any] = {"model": checkpoint.name, "family": checkpoint.family, "notes": []}
        record |= {"n_rows": len(x), "d_model": x.shape[1], "left_out": left_out, "causal": causal.to_record()}
        arrays: dict[str, Any] = {}
        directions = _add_directions(record, arrays, x, kept, causal)
        if "contexts" in FLAGS.parts:
            states = devices.together(lambda: _states(record, checkpoint, words, contexts, directions))
            _add_contexts(record, x, states, directions, {pairs.name: pairs for pairs in kept}, causal, alphas, words)
        record["checkpoint"] = checkpoint.to_record()
    name = f"concepts-{safe_name(model)}.npz"
    workdir.save_arrays(name, **arrays)
    record |= {"arrays": name, "seconds": {"total": round(time.monotonic() - started, 3)}}
    return workdir.append({"key": model, "status": "done", "source": source, **record})


def _add_directions(record: dict, arrays: dict, x: Any, kept: list, causal: Any) -> list[Any]:
    """Directions, separation and heat maps under three inner products; returns the causal directions."""
    import jax

    from repcap_jax.concepts.directions import concept_direction
    from repcap_jax.concepts.heat_map import heat_map, permutation_test
    from repcap_jax.concepts.inner_product import euclidean_inner_product, random_inner_product
    from repcap_jax.concepts.separation import separations

    pair_key, product_key, test_key = jax.random.split(jax.random.key(FLAGS.seed), 3)
    products = [causal, euclidean_inner_product(x.shape[1]), random_inner_product(product_key, causal)]
    record["products"], maps, found = {}, [], {}
    for product in products:
        directions = _directions(record, x, kept, product, concept_direction)
        found[product.name] = directions
        options = {"random_pairs": FLAGS.random_pairs, "bootstraps": FLAGS.bootstraps, "precision": FLAGS.precision}
        if FLAGS.smoke:
            options |= {"random_pairs": min(FLAGS.random_pairs, 2000), "bootstraps": min(FLAGS.bootstraps, 200)}
        compared = separations(x, directions, product, pair_key, **options)
        maps.append(heat_map(directions, product.name))
        pairs = {item.name: item for item in kept}
        entries = []
        for direction, separation in zip(directions, compared):
            entries.append(pairs[direction.name].to_record() | direction.to_record())
            entries[-1]["separation"] = separation.to_record()
            start = f"{product.name}/{direction.name}"
            arrays |= {f"{start}/left_out": direction.left_out, f"{start}/left_out_cosines": direction.left_out_cosines}
            arrays |= {f"{start}/counts": separation.counts, f"{start}/edges": separation.edges}
            if product.name == "causal":
                arrays[f"{start}/direction"] = direction.direction
        record["products"][product.name] = {"concepts": entries, "heat_map": maps[-1].to_record()}
    record["tests"] = []
    for other in maps[1:]:
        try:
            test = permutation_test(maps[0], other, test_key, permutations=FLAGS.permutations)
            record["tests"].append(test.to_record())
        except ValueError as error:
            record["notes"].append(f"no permutation test against the {other.product} inner product: {error}")
    return found["causal"]


def _directions(record: dict, x: Any, kept: list, product: Any, concept_direction: Any) -> list[Any]:
    """The direction of every concept that has one; the others are left out under all inner products."""
    found = []
    for pairs in list(kept):
        try:
            found.append(concept_direction(x, pairs, product, normalise=FLAGS.normalise))
        except ValueError as error:
            if product.name != "causal":
                raise
            record["left_out"][pairs.name] = str(error)
            kept.remove(pairs)
    if not found:
        raise ValueError(f"no concept has a direction: {record['left_out']}")
    return found


def _states(
    record: dict, checkpoint: Any, words: Any, contexts: list, directions: list
) -> dict[str, tuple[Any, Any, Any]]:
    """Hidden states after the final norm at the end of each context: concept -> texts, before, after."""
    import numpy as np

    names = {direction.name for direction in directions}
    asked = [context for context in contexts if context.name in names and len(context.pairs) >= 2]
    for context in contexts:
        if context not in asked:
            record["notes"].append(f"contexts of {context.name} were left out: no such concept, or one pair only.")
    if not asked:
        return {}
    from repcap_jax.models import extract_states, load_decoder

    try:
        decoder = load_decoder(checkpoint, head=False, precision=FLAGS.precision)
    except ValueError as error:  # a family that is not supported, or an embedding without its layers
        record["notes"].append(f"contexts were not measured: {error}")
        return {}
    texts = [text for context in asked for pair in context.pairs for text in pair]
    tokens = [np.asarray(words.encode_text(text), np.int32) for text in texts]
    states = extract_states(decoder, tokens, [[len(ids) - 1] for ids in tokens])[-1]
    final = np.asarray(decoder.final_norm(states), np.float64)
    if final.shape[1] != len(directions[0].direction):
        record["notes"].append("contexts were not measured: the model projects its last state before the unembedding.")
        return {}
    found, at = {}, 0
    for context in asked:
        part = final[at : at + 2 * len(context.pairs)]
        found[context.name] = (context.pairs, part[::2], part[1::2])
        at += len(part)
    return found


def _add_contexts(
    record: dict, x: Any, states: dict, directions: list, concepts: dict, causal: Any, alphas: list, words: Any
) -> None:
    """Measurement, isomorphism, intervention, and the next tokens of a few contexts."""
    import numpy as np

    from repcap_jax.concepts import measurement as on

    if not states:
        return
    for name, (_, before, after) in states.items():
        record.setdefault("measurements", []).append(on.measure(before, after, directions, name).to_record())
        carried = on.isomorphism(before, after, directions, causal, name)
        record.setdefault("isomorphisms", []).append(carried.to_record())
    every = np.concatenate([before for _, before, _ in states.values()])
    for direction in directions:
        found = on.intervention(every, x, direction, concepts, causal, alphas)
        record.setdefault("interventions", []).append(found.to_record())
        if direction.name not in states:
            continue
        texts, before, _ = states[direction.name]
        for alpha in alphas:
            changed = on.intervene(before[:_EXAMPLES], direction, causal, alpha)
            ids, _ = on.most_likely(changed, x, _NEXT)
            for (text, _), row in zip(texts, ids):
                example = {"context": text, "concept": direction.name, "alpha": alpha, "tokens": words.texts(row)}
                record.setdefault("examples", []).append(example)


def _summary(record: dict[str, Any]) -> str:
    causal = record["products"]["causal"]
    aucs = sorted(entry["separation"]["auc"]["value"] for entry in causal["concepts"])
    parts = [
        f"{len(aucs)} concepts, {sum(auc > 0.8 for auc in aucs)} with AUC > 0.8, median {statistics.median(aucs):.3f}"
    ]
    means = {name: found["heat_map"]["off_block"] for name, found in record["products"].items()}
    if means["causal"] is not None:
        parts.append("off-block |cosine| " + ", ".join(f"{mean:.3f} {name}" for name, mean in means.items()))
    parts += [f"p = {test['p_value']:.2g} against {test['second']}" for test in record["tests"]]
    if record["left_out"]:
        parts.append(f"left out: {', '.join(record['left_out'])}")
    return f"{'; '.join(parts)} ({record['seconds']['total']:.1f} s)"


def _smoke_model(folder: str, concepts: list) -> str:
    """A small random unembedding with a planted direction for every concept, and a tokenizer that knows its words."""
    import numpy as np
    from safetensors.numpy import save_file

    rng = np.random.default_rng(0)
    names = list(dict.fromkeys(["a", *(word for item in concepts for pair in item.pairs for word in pair)]))
    rows = rng.standard_normal((len(names), 64)).astype(np.float32)
    number = {name: row for row, name in enumerate(names)}
    for item in concepts:
        shift = 2 * rng.standard_normal(64) / 8
        for before, after in item.pairs:
            rows[number[after]] = rows[number[before]] + shift + 0.3 * rng.standard_normal(64)
    save_file({"model.embed_tokens.weight": rows}, os.path.join(folder, "model.safetensors"))
    config = {"vocab_size": len(names), "hidden_size": 64, "tie_word_embeddings": True}
    vocabulary = {"type": "WordLevel", "vocab": number | {"[UNK]": len(names)}, "unk_token": "[UNK]"}
    tokenizer = {
        "version": "1.0",
        "model": vocabulary,
        "added_tokens": [],
        "pre_tokenizer": {"type": "WhitespaceSplit"},
    }
    for name, content in (("config", config), ("tokenizer", tokenizer)):
        with open(os.path.join(folder, f"{name}.json"), "w", encoding="utf-8") as file:
            json.dump(content, file)
    return folder


if __name__ == "__main__":
    launch.run(main)
