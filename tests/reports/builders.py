"""Records and histograms of made-up models, shaped as the embedding experiment writes them."""

from __future__ import annotations

import matplotlib
import matplotlib.text
import numpy as np

from repcap_jax.capacity.estimate import (
    capacity_bracket,
    capacity_range,
    direction_budget,
    representational_capacity,
)
from repcap_jax.reports.atomic import safe_name

BINS = 2000
EDGES = np.linspace(-1, 1, BINS + 1)


def made_up_counts(mean, std, skew=0.0, pairs=10**9, seed=0):
    """A distribution of cosines with that mean and std, and a heavier right tail where skew > 0, as exact counts."""
    rng = np.random.default_rng(seed)
    tail = rng.gamma(2.0, size=400_000) - 2.0
    sample = rng.normal(size=400_000) + skew * tail
    sample = mean + std * (sample - sample.mean()) / sample.std()
    smooth = np.convolve(np.histogram(np.clip(sample, -1, 1), EDGES)[0], np.hanning(9) / np.hanning(9).sum(), "same")
    return np.round(smooth / smooth.sum() * pairs).astype(np.int64)


def texts(figure):
    """All texts of a figure."""
    return [text.get_text() for text in figure.findobj(matplotlib.text.Text) if text.get_text()]


def matrix_record(d, vocab, tied, mean, std, counts=None):
    """The entry of one matrix."""
    epsilon, pairs = mean + 2 * std, vocab * (vocab - 1) // 2
    nothing = {"count": 0, "ids": []}
    distribution = {
        "n_rows": vocab,
        "d_model": d,
        "n_pairs": pairs,
        "mean": mean,
        "std": std,
        "epsilon": epsilon,
        "epsilon_1.5_sigma": mean + 1.5 * std,
        "epsilon_3_sigma": mean + 3 * std,
        "precision": "highest",
        "devices": 1,
        "isotropic_std": d**-0.5,
        "isotropic_epsilon": 2 * d**-0.5,
        "isotropic_largest": 6 * d**-0.5,
        "zero_rows": nothing,
        "nonfinite_rows": nothing,
        "duplicate_rows": nothing,
        "largest": None,
        "smallest": None,
    }
    if counts is not None:
        filled = np.flatnonzero(counts)
        distribution["largest"] = {"cosine": float(EDGES[filled[-1] + 1]), "rows": [0, 1]}
        distribution["smallest"] = {"cosine": float(EDGES[filled[0]]), "rows": [2, 3]}
        distribution["share_above_epsilon"] = float(counts[EDGES[:-1] >= epsilon].sum() / counts.sum())
    capacity = representational_capacity(d, epsilon)
    return {
        "distribution": distribution,
        "capacity": capacity.to_record(),
        "bracket": capacity_bracket(d, epsilon).to_record(),
        "capacity_range": capacity_range(d, mean, std).to_record(),
        "budget": direction_budget(vocab, capacity.capacity, tied).to_record(),
    }


def add_model(workdir, name, family, d, mean, std, *, vocab=32_000, untied=None, skew=0.3, moments_only=False, seed=0):
    """Append one finished model; `untied` is (mean, std) of an unembedding."""
    wanted = {"embedding": (mean, std)} | ({} if untied is None else {"unembedding": untied})
    arrays, matrices = {}, {}
    for number, (matrix, (mu, sigma)) in enumerate(wanted.items()):
        counts = None if moments_only else made_up_counts(mu, sigma, skew, seed=seed + number)
        matrices[matrix] = matrix_record(d, vocab, untied is None, mu, sigma, counts)
        if counts is not None:
            arrays |= {f"{matrix}_counts": counts, f"{matrix}_edges": EDGES}
    correspondence = None
    if untied is not None:
        cosines = np.clip(np.random.default_rng(seed).normal(0.15, 0.07, vocab), -1, 1)
        correspondence = {
            "n": vocab,
            "excluded": 0,
            "mean": float(cosines.mean()),
            "std": float(cosines.std()),
            "min": float(cosines.min()),
            "max": float(cosines.max()),
            "quantiles": {"0.5": float(np.median(cosines))},
        }
        arrays |= {"correspondence_counts": np.histogram(cosines, EDGES)[0], "correspondence_edges": EDGES}
    histogram = None
    if arrays and not moments_only:
        histogram = f"histogram-{safe_name(name)}.npz"
        workdir.save_arrays(histogram, **arrays)
    return workdir.append(
        {
            "key": name,
            "status": "done",
            "model": name,
            "source": f"/models/{name}",
            "checkpoint": {"format": "safetensors"},
            "family": family,
            "d_model": d,
            "vocab_size": vocab,
            "tied": untied is None,
            "rows": "all",
            "notes": [],
            "matrices": matrices,
            "correspondence": correspondence,
            "histogram": histogram,
            "seconds": {"embedding": 1.0},
        }
    )


THIRTEEN = (
    ("SmolLM2-135M-Instruct", "llama", 576, 0.44231, 0.14318, None),
    ("meta/Llama_2 7B", "llama", 4096, 0.003, 0.0307, (0.02, 0.035)),
    ("meta/Llama 3.1 8B", "llama", 4096, 0.004, 0.0257, (0.08, 0.04)),
    ("meta/Llama 3.2 1B", "llama", 2048, 0.15, 0.066, None),
    ("Qwen/Qwen3-0.6B", "qwen3", 1024, 0.12, 0.066, None),
    ("Qwen/Qwen3-8B", "qwen3", 4096, 0.012, 0.0238, (0.09, 0.05)),
    ("Qwen/Qwen2.5-72B", "qwen2", 8192, 0.01, 0.0256, (0.03, 0.03)),
    ("google/gemma-2-2b", "gemma2", 2304, 0.2, 0.075, None),
    ("google/gemma-3-27b", "gemma3_text", 5376, 0.02, 0.027, None),
    ("mistralai/Mistral-7B-Instruct-v0.3", "mistral", 4096, 0.006, 0.032, (0.012, 0.03)),
    ("microsoft/phi-4 50% & $x_1^2$ | <b>", "phi3", 5120, 0.004, 0.027, (0.05, 0.03)),
    ("openai/gpt-oss-20b", "gpt_oss", 2880, 0.15, 0.0656, (0.1, 0.06)),
    ("deepseek-ai/DeepSeek-V3.2-Exp", "deepseek_v3", 7168, 0.005, 0.027, (0.004, 0.03)),
)


def add_thirteen(workdir, **options):
    """Append thirteen models like published ones."""
    for seed, (name, family, d, mean, std, untied) in enumerate(THIRTEEN):
        add_model(workdir, name, family, d, mean, std, untied=untied, seed=3 * seed, **options)
