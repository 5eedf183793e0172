"""Token text in figures: what the font has is shown, the rest as escapes, so that no figure prints boxes."""

from __future__ import annotations

import functools

from matplotlib import font_manager, ft2font

from repcap_jax.reports.style import plain

_FONT = "DejaVu Sans"


def drawable(text: str, length: int = 24) -> str:
    r"""Return text that the figures' font can draw: other characters as `\u` escapes, the middle of long text left out.

    Args:
      text: of a token.
      length: most characters shown.
    """
    known = _characters()
    parts = [c if ord(c) in known else c.encode("unicode_escape").decode() for c in text]
    if sum(map(len, parts)) > length:
        parts = _shortened(parts, length)
    return plain("".join(parts))


def joined(texts: list[str], width: int, separator: str = "  ") -> str:
    """Return as many texts as fit into a number of characters, drawable, in their order."""
    shown: list[str] = []
    for text in map(drawable, texts):
        if shown and sum(map(len, shown)) + len(separator) * len(shown) + len(text) > width:
            break
        shown.append(text)
    return separator.join(shown)


def _shortened(parts: list[str], length: int) -> list[str]:
    kept, used = [], 0
    for part in parts:
        if used + len(part) > length - 1:
            break
        kept.append(part)
        used += len(part)
    return [*kept, "…"]


@functools.cache
def _characters() -> frozenset[int]:
    return frozenset(ft2font.FT2Font(font_manager.findfont(_FONT)).get_charmap())
