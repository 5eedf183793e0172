"""Models of one name are told apart by their sources."""

import pytest

from repcap_jax.reports.model_names import tell_apart


@pytest.mark.parametrize(
    ("sources", "names"),
    [
        (["org/model@step1", "org/model@step2"], ["model@step1", "model@step2"]),
        (["runs/a/final", "runs/b/final/"], ["final (a)", "final (b)"]),
        (["a/x/final", "b/x/final", "b/y/final"], ["final (a, x)", "final (b, x)", "final (y)"]),
        (["final", "a/final"], ["final", "final (a)"]),
    ],
)
def test_names(sources, names):
    found = tell_apart({"key": source, "model": "final"} for source in sources)
    assert [record["model"] for record in found] == names


def test_layers_of_one_model_keep_their_name():
    records = [{"key": f"a/m layer {i}", "layer": i, "model": "m"} for i in range(3)]
    assert tell_apart([*records, {"key": "a/m", "model": "m"}])[:3] == records
    records.append({"key": "b/m layer 0", "layer": 0, "model": "m"})
    assert [record["model"] for record in tell_apart(records)] == ["m (a)"] * 3 + ["m (b)"]


def test_names_that_differ_stay():
    records = [{"key": "org/one", "model": "one"}, {"key": "org/two", "model": "two"}, {"key": "lost"}]
    assert tell_apart(records) == records
