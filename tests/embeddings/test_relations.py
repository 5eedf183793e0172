"""Neighbours, primary tokens, near-duplicates and row lengths, with planted structure and plain references."""

import json

import numpy as np
import pytest

from repcap_jax.embeddings.norms import row_norms
from repcap_jax.embeddings.primary import in_degrees, primary_tokens, tail_share
from repcap_jax.embeddings.relations import token_relations
from repcap_jax.embeddings.unembedding import compare_unembedding
from tests import oracles

N, D, HUB, COPIES = 400, 24, 17, (40, 210, 399)


@pytest.fixture(scope="module")
def planted():
    """Random rows with a hub that 30 others lie around, three equal rows, a zero row and a row of NaN."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((N, D)).astype(np.float32)
    x[100:130] = x[HUB] + 0.5 * rng.standard_normal((30, D))
    x[list(COPIES)] = x[COPIES[0]]
    x[5], x[6, 2] = 0, np.nan
    return x


@pytest.fixture(scope="module")
def relations(planted):
    return token_relations(planted, count=3, near=0.99, max_pairs=64)


@pytest.fixture(scope="module")
def exact(planted):
    """All cosines both ways, NaN on the diagonal and for excluded rows."""
    cosines = oracles.cosine_matrix(planted, planted)
    np.fill_diagonal(cosines, np.nan)
    return cosines


def test_neighbours_and_opposites(relations, exact):
    usable = np.setdiff1d(np.arange(N), [5, 6])
    np.testing.assert_allclose(relations.neighbours.cosines[usable, 0], np.nanmax(exact[usable], axis=1), atol=1e-5)
    np.testing.assert_allclose(relations.opposed.cosines[usable, 0], np.nanmin(exact[usable], axis=1), atol=1e-5)
    found = exact[usable[:, None], relations.neighbours.ids[usable]]
    np.testing.assert_allclose(found, -np.sort(-np.nan_to_num(exact[usable], nan=-2))[:, :3], atol=1e-5)
    assert (relations.neighbours.ids[[5, 6]] == -1).all() and relations.excluded_rows.tolist() == [5, 6]


def test_tail_and_moments(relations, planted):
    cosines = oracles.pair_cosines(planted)
    assert relations.mean == pytest.approx(cosines.mean(), abs=1e-6)
    assert relations.epsilon == pytest.approx(cosines.mean() + 2 * cosines.std(), abs=1e-5)
    assert abs(relations.pairs_above_epsilon - np.sum(cosines > relations.epsilon)) <= 1
    assert relations.counts.sum() == relations.n_pairs == len(cosines)


def test_planted_copies_are_listed(relations):
    near = relations.near_duplicates
    assert near.pairs.total == 3 and [group.tolist() for group in near.groups()] == [list(COPIES)]
    assert near.duplicate_rows.tolist() == list(COPIES[1:])


def test_planted_hub_is_primary(relations, exact, planted):
    primaries = primary_tokens(relations, tau=10)
    assert [token.row for token in primaries] == [HUB]
    (hub,) = primaries
    nearest = np.nanargmax(np.nan_to_num(exact, nan=-2), axis=1)
    expected = np.setdiff1d(np.flatnonzero(nearest == HUB), [5, 6])
    assert sorted(hub.secondary.tolist()) == expected.tolist() and hub.in_degree >= 15
    assert (np.diff(hub.cosines) <= 0).all()
    np.testing.assert_allclose(hub.cosines, exact[HUB, hub.secondary], atol=1e-5)
    assert in_degrees(relations.neighbours.ids[:, 0]).sum() == N - 2
    members = np.append(hub.secondary, HUB)
    inside = exact[np.ix_(members, members)][np.triu_indices(len(members), 1)]
    share = tail_share(planted, relations, primaries)
    assert share.above == np.sum(inside > relations.epsilon) and share.pairs == len(inside)
    assert share.share == pytest.approx(share.above / relations.pairs_above_epsilon)
    assert tail_share(planted, relations, []).above == 0


def test_two_primaries_share_their_pair_once():
    """Two hubs that are each other's nearest neighbour: their pair belongs to both clusters and counts once."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((60, 40)).astype(np.float32)
    x[1] = x[0] + 0.05 * rng.standard_normal(40)
    x[10:20] = x[0] + 0.1 * (x[0] - x[1]) + 0.35 * rng.standard_normal((10, 40))
    x[20:30] = x[1] + 0.1 * (x[1] - x[0]) + 0.35 * rng.standard_normal((10, 40))
    relations = token_relations(x, epsilon=0.5, max_pairs=64)
    primaries = primary_tokens(relations, tau=1)
    clusters = [set(token.secondary.tolist()) | {token.row} for token in primaries]
    assert {0, 1} <= {token.row for token in primaries} and clusters[0] & clusters[1] == {0, 1}
    pairs = {(i, j) for cluster in clusters for i in cluster for j in cluster if i < j}
    cosines = oracles.cosine_matrix(x)
    share = tail_share(x, relations, primaries)
    assert share.pairs == len(pairs) and share.above == sum(cosines[i, j] > 0.5 for i, j in pairs)


def test_large_clusters_are_folded(planted, relations, monkeypatch):
    primaries = primary_tokens(relations, tau=10)
    usual = tail_share(planted, relations, primaries)
    monkeypatch.setattr("repcap_jax.embeddings.primary._ON_HOST", 4)
    assert tail_share(planted, relations, primaries) == usual


def test_records_are_strict_json(relations, planted):
    for record in (relations.to_record(), primary_tokens(relations, 10)[0].to_record(), row_norms(planted).to_record()):
        json.dumps(record, allow_nan=False)
    assert relations.arrays()["neighbour_ids"].shape == (N, 3)


def test_row_norms(planted):
    x = planted.copy()
    x[8] *= 1e-4
    found = row_norms(x)
    assert found.zero_rows.tolist() == [5] and found.nonfinite_rows.tolist() == [6] and found.tiny_rows.tolist() == [8]
    exact = np.linalg.norm(np.delete(x, 6, axis=0).astype(np.float64), axis=1)
    np.testing.assert_allclose(np.delete(found.norms, 6), exact, rtol=1e-12)
    rising = row_norms(np.outer(np.arange(1, 51), np.ones(3)))
    assert rising.correlation_with_id == pytest.approx(1.0)
    assert (np.diff(rising.by_id(5)["median"]) > 0).all()
    assert row_norms(np.eye(4)).to_record()["correlation_with_id"] is None


def test_embedding_against_unembedding():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((150, 16)).astype(np.float32)
    y = (x + 0.2 * rng.standard_normal((150, 16))).astype(np.float32)
    y[9] = -x[9]
    found = compare_unembedding(x, y)
    exact = oracles.cosine_matrix(x, y)
    np.testing.assert_allclose(found.own, np.diagonal(exact), atol=1e-12)
    assert found.own_is_nearest == np.mean(exact.argmax(axis=1) == np.arange(150)) < 1
    assert found.counts.sum() == 150**2
    json.dumps(found.to_record(), allow_nan=False)


def test_bad_input(relations, planted):
    for options, says in (({"near": 1.0}, "threshold"), ({"epsilon": 2.0}, "epsilon"), ({"count": 0}, "count")):
        with pytest.raises(ValueError, match=says):
            token_relations(planted, **options)
    with pytest.raises(ValueError, match="tau"):
        primary_tokens(relations, -1)
    with pytest.raises(ValueError, match="relations are of"):
        tail_share(planted[:10], relations, [])
    with pytest.raises(ValueError, match="tiny"):
        row_norms(planted, tiny=2.0)
    with pytest.raises(ValueError, match="one shape"):
        compare_unembedding(planted, planted[:10])


@pytest.mark.slow
def test_devices_and_tiles_do_not_matter(planted, relations, mesh_of):
    shared = token_relations(planted, count=3, near=0.99, max_pairs=64, mesh=mesh_of(4), tile=128)
    usable = np.setdiff1d(np.arange(N), [5, 6])
    np.testing.assert_array_equal(shared.neighbours.ids[usable], relations.neighbours.ids[usable])
    assert shared.pairs_above_epsilon == relations.pairs_above_epsilon and shared.devices == 4
    assert [t.row for t in primary_tokens(shared)] == [t.row for t in primary_tokens(relations)]
