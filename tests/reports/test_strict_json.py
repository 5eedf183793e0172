"""JSON for every reader: plain types, and a reason beside each null that was a number."""

import datetime
import enum
import json
import math
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repcap_jax.reports.strict_json import digest, dump_line, dump_pretty, json_ready, parse_strict


class Colour(enum.Enum):
    RED = "red"


def test_converts_every_kind_of_value_that_results_hold():
    value = {
        "float32": np.float32(0.5),
        "bfloat16": ml_dtypes.bfloat16(0.5),
        "int64": np.int64(2**53 + 1),
        "bool": np.bool_(True),
        "array": np.arange(4).reshape(2, 2),
        "bf16 array": np.ones(2, ml_dtypes.bfloat16),
        "path": Path("/a/b"),
        "tuple": (1, (2, "x")),
        "set": {3, 1, 2},
        "enum": Colour.RED,
        "date": datetime.date(2026, 1, 2),
        7: "number as key",
    }
    assert json_ready(value) == {
        "float32": 0.5,
        "bfloat16": 0.5,
        "int64": 2**53 + 1,
        "bool": True,
        "array": [[0, 1], [2, 3]],
        "bf16 array": [1.0, 1.0],
        "path": "/a/b",
        "tuple": [1, [2, "x"]],
        "set": [1, 2, 3],
        "enum": "red",
        "date": "2026-01-02",
        "7": "number as key",
    }
    assert json_ready({"x": np.bool_(False)})["x"] is False


def test_a_jax_array_is_converted_too():
    jnp = pytest.importorskip("jax.numpy")
    assert json_ready(jnp.ones(2)) == [1.0, 1.0]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, np.float32("nan"), np.array(np.inf)])
def test_a_number_that_is_none_becomes_null_with_a_reason(number):
    ready = json_ready({"a": {"x": number, "y": 1}})
    assert ready["a"]["x"] is None and str(np.asarray(number)) in ready["a"]["x_reason"]
    assert "y_reason" not in ready["a"]


def test_a_reason_that_is_given_is_kept_and_a_plain_null_needs_none():
    assert json_ready({"x": math.nan, "x_reason": "constant column"})["x_reason"] == "constant column"
    assert json_ready({"x_reason": None, "x": math.nan})["x_reason"] == "the value was nan"
    assert json_ready({"x": None}) == {"x": None}
    assert json_ready([1.0, math.nan]) == [1.0, None]


@pytest.mark.parametrize("value", [b"bytes", 1j, lambda: 0, object(), np.array(1j)])
def test_what_has_no_json_form_is_refused_with_its_place(value):
    with pytest.raises(TypeError, match=r"value\.deep\[1\]"):
        json_ready({"deep": [0, value]})


def test_reading_refuses_what_is_not_json():
    for text in ("NaN", '{"a": Infinity}', "{", b"\xff"):
        with pytest.raises(ValueError):
            parse_strict(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=12,
    )
)
def test_output_is_strict_one_line_and_stable(value):
    line = dump_line(value)
    assert "\n" not in line
    assert parse_strict(line) == json.loads(dump_pretty(value))
    assert json_ready(parse_strict(line)) == parse_strict(line)


def test_the_digest_ignores_order_and_sees_every_change():
    assert digest({"a": 1, "b": [1, 2]}) == digest({"b": (1, 2), "a": np.int64(1)})
    assert len({digest(v) for v in ({"a": 1}, {"a": 2}, {"a": "1"}, {"b": 1}, {"a": None}, {})}) == 6
