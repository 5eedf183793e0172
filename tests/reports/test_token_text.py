"""Token text in figures: nothing prints a box."""

import warnings

from repcap_jax.reports.style import figure_bytes, new_figure, style
from repcap_jax.reports.token_text import drawable, joined


def test_what_the_font_lacks_becomes_escapes():
    assert drawable("␣naïve") == "␣naïve" and drawable("привет") == "привет"
    assert drawable("中文") == "\\u4e2d\\u6587" and drawable("😀a") in ("😀a", "\\U0001f600a")
    assert drawable("$x$") == "\\$x\\$" and drawable("_x").strip() == "_x"
    assert len(drawable("x" * 100, 24)) == 24 and drawable("x" * 100).endswith("…")
    assert joined(["aaa", "bbb", "ccc"], 8) == "aaa  bbb"
    assert joined(["a" * 20], 5)  # one is always shown


def test_no_glyph_is_missing():
    with style(), warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = new_figure(3, 2)
        axes = figure.add_subplot()
        axes.set_yticks(range(4), [drawable(text) for text in ("中文", "한국어", "␣عربي", "ไทย\u200b")])
        assert figure_bytes(figure, "png", "t")
