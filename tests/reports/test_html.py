"""The report: one file, escaped, nothing from elsewhere."""

import base64
import re
from html.parser import HTMLParser

import pytest

from repcap_jax.reports.html import Image, Section, write_report
from repcap_jax.reports.style import new_figure, save_figure
from repcap_jax.reports.tables import Column, make_table
from repcap_jax.reports.workdir import Workdir

EVIL = "<script>alert('x')</script> & \"quotes\" {{ 7 * 7 }}"
VOID = {"meta", "img", "br", "link", "input"}


class Checker(HTMLParser):
    """Follows the tags, so that an unclosed or stray one is noticed."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.words = [], [], []

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture
def page(tmp_path):
    settings = {"model": EVIL, "bins": 10}
    with Workdir.open(tmp_path, experiment="test", settings=settings, devices=["cpu:0 " + EVIL], seed=0) as workdir:
        figure = new_figure(1, 1)
        save_figure(workdir, figure, "fig")
        table = make_table([{"m": EVIL}], [Column("m", "m", align="right")], EVIL, [EVIL])
        images = [Image("fig", EVIL), Image("absent", "x")]
        sections = [Section(EVIL, [EVIL], [table], images), Section("Second")]
        path = write_report(workdir, EVIL, sections, warnings=[EVIL])
    return path.read_text(encoding="utf-8"), (tmp_path / "fig.png").read_bytes()


def test_everything_is_escaped_and_well_formed(page):
    checker = Checker()
    checker.feed(page[0])
    assert checker.open == [] and "script" not in {tag for tag, _ in checker.seen}
    assert "<script" not in page[0] and "49" not in "".join(checker.words).replace(EVIL, "")[:200]
    assert "".join(checker.words).count(EVIL) >= 9


def test_figures_are_inside_and_nothing_is_fetched(page):
    (data,) = re.findall(r'src="data:image/png;base64,([^"]+)"', page[0])
    assert base64.b64decode(data) == page[1]
    bare = page[0].replace(data, "")
    assert not re.search(r"https?:|url\(|@import|<link|<iframe|srcset", bare)
    assert not re.search(r'(?:src|href)="(?!data:)', bare)


def test_the_run_and_what_is_missing_are_told(page):
    for text in (
        "numpy",
        "settings digest",
        "The figure absent is missing",
        "seed",
        "width=device-width",
        "@media print",
    ):
        assert text in page[0]
