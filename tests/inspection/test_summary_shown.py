# SPDX-License-Identifier: BSD-3-Clause
"""How a summary is shown: as text, in the colours of rich, in a notebook."""

from __future__ import annotations

import importlib.util
import io
import sys
from html.parser import HTMLParser
from types import ModuleType

import pytest
from helpers.needs import needs

import modtree as mt
from modtree import nn
from modtree.inspection.phrases import bytes_text, seconds_text, shape_text, share_text

needs_rich = needs("rich")


def model(depth=3):
    layers = [nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(depth)]
    return nn.Sequential(nn.Embedding(10, 4), *layers, nn.BatchNorm1d(4))


TEXT = """\
name        class        parameters  buffers  bytes  dtype
Sequential  Sequential          108        9  472 B  float32
  0         Embedding            40        -  160 B  float32
  1-3  x 3  Sequential           20        -   80 B  float32
    0       Linear               20        -   80 B  float32
    1       ReLU                  -        -      -  -
  4         BatchNorm1d           8        9   72 B  float32

parameters  108 (all trainable)
buffers     9
bytes       472 B
modules     12
x n         n equal blocks; numbers are per block"""


def test_text():
    summary = mt.summary(model())
    assert str(summary) == repr(summary) == TEXT


def test_text_of_an_empty_model():
    assert str(mt.summary(nn.Identity())).splitlines()[1].split() == ["Identity"] * 2 + ["-"] * 3


def test_text_of_a_name_with_a_line_end_and_an_escape():
    parent = nn.Module()
    parent._modules["a\n\x1b[31mb"] = nn.ReLU()
    assert r"  a\n\x1b[31mb  ReLU" in str(mt.summary(parent))


def test_show_prints_text_where_no_terminal_watches(capsys):
    mt.summary(model()).show()
    assert capsys.readouterr().out == TEXT + "\n"


def test_show_prints_text_where_rich_is_not_installed(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    mt.summary(model()).show()
    assert capsys.readouterr().out == TEXT + "\n"


def test_show_asks_rich_where_a_terminal_watches(monkeypatch):
    printed = []
    rich = ModuleType("rich")
    rich.print = printed.append
    monkeypatch.setitem(sys.modules, "rich", rich)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    summary = mt.summary(model())
    summary.show()
    assert printed == [summary]


# -- rich ------------------------------------------------------------------------------------------


def by_rich(width):
    console = importlib.import_module("rich.console").Console(width=width, file=io.StringIO())
    console.print(mt.summary(model(), (2,), dtypes=mt.int64, times=1, columns="all"))
    return console.file.getvalue().splitlines()


@needs_rich
def test_rich_shows_all_columns_where_there_is_room():
    head, first, _, folded = by_rich(200)[:4]
    assert head.split() == (
        "name class kernel input shape output shape parameters share mult-adds buffers trainable "
        "bytes activations dtype time".split()
    )
    assert first.split()[:7] == ["Sequential", "Sequential", "-", "(2,)", "(2,", "4)", "108"]
    assert folded.split()[:4] == ["1-3", "x", "3", "Sequential"]


@needs_rich
@pytest.mark.parametrize("width", [60, 80, 100])
def test_rich_leaves_out_columns_where_there_is_none(width):
    lines = by_rich(width)
    assert all(len(line) <= width for line in lines)
    assert {"name", "parameters", "time"} < set(lines[0].split())
    assert "108" in lines[1].split()  # numbers are never cut


# -- notebooks -------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Elements that are open and were not closed, the texts, and how deep details are."""

    def __init__(self):
        super().__init__()
        self.open, self.texts, self.deepest, self.tags = [], [], 0, []

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        self.tags.append((tag, dict(attributes)))
        self.deepest = max(self.deepest, self.open.count("details"))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.texts.append(data)


def page_of(summary):
    page = Page()
    page.feed(summary._repr_html_())
    assert page.open == []
    return page


def test_html_opens_and_closes_by_levels():
    page = page_of(mt.summary(nn.Sequential(model())))
    opened = ["open" in attributes for tag, attributes in page.tags if tag == "details"]
    assert opened == [True, True, False]
    assert page.deepest == 3
    assert "  x 3" in page.texts


def test_html_needs_nothing_from_elsewhere():
    html = mt.summary(model())._repr_html_()
    assert not any(word in html for word in ("http", "<script", "<link", "url(", "@import"))


def test_a_module_is_a_tree_that_folds_in_a_notebook():
    module = model()
    assert module._repr_html_() == mt.summary(module)._repr_html_()
    module._modules[3] = nn.ReLU()  # written past all checks: the text is shown
    assert module._repr_html_() is None


def test_html_escapes_names_of_the_user():
    class Odd(nn.Module):
        pass

    Odd.__name__ = "<b>&"
    parent = nn.Module()
    parent._modules['<i onclick="x">'] = Odd()
    html = mt.summary(parent)._repr_html_()
    assert "<b>" not in html
    assert "<i " not in html
    page = page_of(mt.summary(parent))
    assert {"<b>&", '<i onclick="x">'} < set(page.texts)


def test_html_of_a_deep_chain_does_not_nest_without_end():
    module = nn.Module()
    for _ in range(600):
        parent = nn.Module()
        parent.child = module
        module = parent
    page = page_of(mt.summary(module))
    assert page.deepest <= 121
    assert page.texts.count("child") == 600


# -- numbers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "-"),
        (1, "1 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1024**2 - 1, "1.0 MiB"),
        (5 * 1024**3, "5.0 GiB"),
        (7000 * 1024**4, "7000.0 TiB"),
    ],
)
def test_bytes(count, text):
    assert bytes_text(count) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 0, "-"),
        (0, 5, "0%"),
        (5, 5, "100%"),
        (1, 10**6, "<1%"),
        (10**6 - 1, 10**6, ">99%"),
        (1, 3, "33%"),
    ],
)
def test_shares(part, whole, text):
    assert share_text(part, whole) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (1.5, "1.5 s"), (0.0123, "12.3 ms"), (0.9996, "1000 ms"), (2e-8, "0.02 us")],
)
def test_seconds(seconds, text):
    assert seconds_text(seconds) == text


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (None, "-"),
        ((), "()"),
        ((1, 2), "(1, 2)"),
        ([(1,), (2,)], "[(1,), (2,)]"),
        ({"a": (1,), "b": [(2,), (3,)]}, "{a: (1,), b: [(2,), (3,)]}"),
        ([(1, 2, 3)] * 9, "[(1, 2, 3), (1, 2, 3), (1, 2, 3), +6]"),
    ],
)
def test_shapes(spec, text):
    assert shape_text(spec) == text
