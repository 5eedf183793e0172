"""Unembeddings in which concepts are planted under a known inner product."""

import numpy as np

from repcap_jax.concepts.pairs import TokenPairs


def anisotropic(n=600, d=16, seed=0, spread=30.0):
    """Rows with a known covariance whose eigenvalues span `spread` squared; returns rows and its square root."""
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.standard_normal((d, d)))
    root = basis * np.geomspace(1.0, 1.0 / spread, d) @ basis.T
    return (rng.standard_normal((n, d)) @ root).astype(np.float32), root


def token_pairs(rows, name="concept", group="group"):
    """Token pairs without words."""
    rows = np.asarray(rows, np.int64).reshape(-1, 2)
    return TokenPairs(name, group, rows, tuple((str(a), str(b)) for a, b in rows), ())


def planted(n_concepts=4, pairs=25, d=16, noise=0.2, seed=0, background=8000):
    """Rows whose first pairs differ by concept directions that are orthogonal under the covariance of all rows.

    Whitened, concept k is the k-th axis; in the space of the rows it is the k-th column of the covariance's root.
    """
    rng = np.random.default_rng(seed)
    x, root = anisotropic(background, d, seed)
    concepts = []
    for number in range(n_concepts):
        first = 2 * pairs * number
        before, after = np.arange(first, first + pairs), np.arange(first + pairs, first + 2 * pairs)
        shift = np.zeros(d)
        shift[number] = 1.0
        x[after] = x[before] + (1.5 * shift + noise * rng.standard_normal((pairs, d))) @ root
        concepts.append(token_pairs(np.stack([before, after], axis=1), f"c{number}", f"g{number % 2}"))
    return x, root, concepts
