# SPDX-License-Identifier: BSD-3-Clause
"""SVG drawings: valid, the same every time, nothing over the edge."""

from __future__ import annotations

import copy
import itertools
import re
import xml.etree.ElementTree as ET

import pytest
from helpers.drawn_models import ODD_NAMES, chain, experts, odd, random_tree

import modtree as mt
from modtree import nn
from modtree.inspection.drawing.layout import MARGIN, Frame, lay_out
from modtree.inspection.drawing.outline import make_outline
from modtree.inspection.drawing.palette import DARK, KINDS, LIGHT, kind_of_layer
from modtree.inspection.drawing.wording import ellipsis, text_width
from modtree.inspection.tree import read_tree

SVG = "{http://www.w3.org/2000/svg}"


def frames_of(model, direction="LR", **options):
    options = {"depth": None, "is_folded": True, "leaves": False, "max_boxes": 300, **options}
    return lay_out(make_outline(read_tree(model), **options), direction, True)


def contains(outer: tuple[float, ...], inner: tuple[float, ...]) -> bool:
    return (
        outer[0] <= inner[0]
        and outer[1] <= inner[1]
        and inner[0] + inner[2] <= outer[0] + outer[2] + 1e-6
        and inner[1] + inner[3] <= outer[1] + outer[3] + 1e-6
    )


def area(frame: Frame) -> tuple[float, float, float, float]:
    return frame.x, frame.y, frame.width, frame.height


def card(frame: Frame) -> tuple[float, float, float, float]:
    """Without the sheets behind it."""
    return frame.x, frame.y, frame.width - frame.sheets, frame.height - frame.sheets


def apart(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] + a[2] <= b[0] or b[0] + b[2] <= a[0] or a[1] + a[3] <= b[1] or b[1] + b[3] <= a[1]


def text_area(text) -> tuple[float, float, float, float]:
    shift = {"start": 0.0, "middle": 0.5, "end": 1.0}[text.anchor]
    return text.x - shift * text.width, text.y - 9, text.width, 11


def check_layout(frames: list[Frame]) -> None:
    """Boxes lie in their parents, apart from each other and from all texts but their own; texts
    lie in their boxes, apart from each other.
    """
    for frame in frames:
        children = [frames[child.number] for child in frame.box.children]
        texts = [text_area(text) for text in frame.texts]
        assert all(contains(card(frame), area(child)) for child in children)
        assert all(apart(area(a), area(b)) for a, b in itertools.combinations(children, 2))
        assert all(contains(card(frame), text) for text in texts), frame.texts
        assert all(apart(area(child), text) for child in children for text in texts)
        assert all(apart(a, b) for a, b in itertools.combinations(texts, 2)), frame.texts
        if frame.bar is not None:
            bar = (frame.bar.x, frame.bar.y, frame.bar.width, 3)
            assert contains(card(frame), bar) and frame.bar.filled <= frame.bar.width
            assert all(apart(bar, other) for other in [*texts, *map(area, children)])
        if frame.badge is not None:
            assert contains(card(frame), frame.badge)


@pytest.mark.parametrize("direction", ["LR", "TB"])
@pytest.mark.parametrize("leaves", [False, True])
def test_nothing_overlaps_or_leaves_its_box(direction, leaves, rounds):
    for seed in range(rounds(8, 40)):
        check_layout(frames_of(random_tree(seed), direction, leaves=leaves))
    for model in (odd(), chain(900), experts(3, 5), nn.Module(), nn.Linear(2, 2), nn.LSTM(2, 2, 4)):
        check_layout(frames_of(model, direction, leaves=leaves))


def test_deep_trees_are_no_recursion():
    check_layout(frames_of(chain(3000), depth=3000, max_boxes=4000))


def test_children_are_read_down_and_then_right():
    frames = frames_of(nn.Sequential(*[nn.Linear(i + 1, 2 * i + 1) for i in range(40)]))
    order = [(frame.x, frame.y) for frame in frames[1:]]
    assert order == sorted(order) and len({x for x, _ in order}) > 1
    below = frames_of(nn.Sequential(*[nn.Linear(i + 1, 2 * i + 1) for i in range(40)]), "TB")
    assert len({frame.x for frame in below[1:]}) == 1


def test_bars_are_shares_of_all_parameters():
    blocks = nn.ModuleList([nn.Linear(9, 1, bias=False) for _ in range(3)])
    frames = frames_of(nn.ModuleDict({"a": nn.Linear(73, 1, bias=False), "b": blocks}))
    assert [frame.share for frame in frames] == pytest.approx([1, 0.73, 0.27, 0.27])
    bar = frames[1].bar
    assert bar.filled == pytest.approx(0.73 * bar.width)


def check_document(text: str) -> ET.Element:
    """What holds for every SVG drawing."""
    root = ET.fromstring(text)
    assert root.tag == f"{SVG}svg" and root.get("role") == "img"
    names = root.get("aria-labelledby").split()
    assert [root[0].get("id"), root[1].get("id")] == names
    assert (root[0].tag, root[1].tag) == (f"{SVG}title", f"{SVG}desc")
    assert root[0].text and root[1].text
    tags = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert tags <= {"svg", "title", "desc", "style", "g", "rect", "text", "path", "circle"}
    assert not re.search(r"url\(|@import|href|javascript|\bon\w+=", text)
    width, height = float(root.get("width")), float(root.get("height"))
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
    for element in root.iter(f"{SVG}rect"):
        place = [float(element.get(key, 0)) for key in ("x", "y", "width", "height")]
        assert contains((0, 0, width, height), tuple(place))
    for element in root.iter(f"{SVG}path"):
        numbers = [float(n) for n in re.findall(r"-?[\d.]+", element.get("d"))]
        assert min(numbers) >= 0 and max(numbers) <= max(width, height)
    return root


@pytest.mark.parametrize("theme", ["auto", "light", "dark"])
def test_documents_are_valid(theme):
    models = [random_tree(seed) for seed in range(10)]
    for model in [*models, odd(), nn.Module(), nn.Linear(2, 2), experts(3, 5)]:
        check_document(mt.to_svg(model, theme=theme))


def test_texts_are_in_the_picture():
    root = check_document(mt.to_svg(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1))))
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert texts[:2] == ["Sequential", "40"]
    for text in ("0", "Linear", "weight 8×4, bias 8", "1", "Dropout", "p=0.1, inplace=False"):
        assert text in texts
    plain = mt.to_svg(nn.Sequential(nn.Linear(4, 8)), shapes=False)
    assert "in_features=4, out_features=8," in plain and ">weight 8×4, bias 8<" not in plain


def test_the_tooltip_has_what_the_box_leaves_out():
    model = nn.Module()
    model.part = nn.BatchNorm1d(1000)
    model.part.weight.requires_grad_(False)
    root = check_document(mt.to_svg(model))
    tips = [element.text for element in root.iter(f"{SVG}title")]
    assert tips[2].splitlines() == [
        "part",
        f"BatchNorm1d({model.part.extra_repr()})",
        "2,000 parameters, 1,000 frozen",
        "2,001 elements in buffers",
        "15.6 KiB",
        "parameter weight: 1000 float32",
        "parameter bias: 1000 float32",
        "buffer running_mean: 1000 float32",
        "buffer running_var: 1000 float32",
        "buffer num_batches_tracked: scalar int64",
    ]


def test_links_are_drawn_and_explained():
    model = nn.ModuleDict({"embed": nn.Embedding(5, 3), "head": nn.Linear(3, 5)})
    assert "the same" not in mt.to_svg(model)
    model["head"].weight = model["embed"].weight
    model["again"] = model["embed"]
    root = check_document(mt.to_svg(model))
    groups = [g for g in root.iter(f"{SVG}g") if g.get("class", "").startswith("link")]
    assert sorted(g.get("class") for g in groups) == ["link shared"] * 2 + ["link tied"] * 2
    assert "tied: weight" in [g[0].text for g in groups]
    assert {"the same module", "the same tensor"} <= {t.text for t in root.iter(f"{SVG}text")}


def test_odd_names_are_shown():
    root = check_document(mt.to_svg(odd()))
    texts = {element.text for element in root.iter(f"{SVG}text")}
    assert {'<&">', "&amp;", "]]>", "tab\\x09and\\x0aline", "\\x00\\x1b[31m", "\\ud800"} <= texts
    assert {"\\uffff", "\\u202eturned"} <= texts
    assert {"שלום עולם", "漢字の名前", "🎉👨‍👩‍👧 x"} <= texts
    for element in root.iter(f"{SVG}text"):  # other fonts are held to the width
        if not element.text.isascii() and not re.search("[×·…]", element.text):
            assert float(element.get("textLength")) > 0
    assert len(ODD_NAMES) == len(set(ODD_NAMES))


def test_the_same_model_gives_the_same_text():
    for seed in range(5):
        assert mt.to_svg(random_tree(seed)) == mt.to_svg(copy.deepcopy(random_tree(seed)))


def test_drawings_have_different_ids_and_styles_of_their_own():
    """So that several can stand in one page."""
    names = [re.findall(r' id="(.+?)"', mt.to_svg(m)) for m in (nn.ReLU(), nn.Tanh())]
    assert not set(names[0]) & set(names[1])
    for theme in ("auto", "light", "dark"):
        style = re.search(r"<style>(.+)</style>", mt.to_svg(nn.ReLU(), theme=theme))[1]
        rules = re.sub(r"@media\(.+?\)\{(.+)\}$", r"\1", style)
        selectors = [s for rule in re.findall(r"([^{}]+)\{", rules) for s in rule.split(",")]
        assert selectors and all(s.startswith(f".modtree-{theme} ") for s in selectors)


def test_themes():
    light, dark, auto = (mt.to_svg(nn.ReLU(), theme=t) for t in ("light", "dark", "auto"))
    assert LIGHT.page in light and DARK.page not in light
    assert DARK.page in dark and LIGHT.page not in dark.replace(DARK.badge_text, "")
    assert "prefers-color-scheme:dark" in auto and LIGHT.page in auto and DARK.page in auto


def test_twenty_thousand_modules_are_a_small_file():
    model = experts(76, 260)
    assert len(mt.to_svg(model)) < 20_000
    assert len(mt.to_svg(model, fold=False)) < 300_000
    assert len(mt.to_svg(model, fold=False, leaves=True)) < 300_000


# -- parts -----------------------------------------------------------------------------------------


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    low, high = sorted([luminance(a), luminance(b)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("palette", [LIGHT, DARK])
def test_colours_have_contrast(palette):
    assert set(palette.tints) == {*KINDS, "other"}
    assert contrast(palette.badge, palette.badge_text) >= 4.5
    for tint in palette.tints.values():
        for behind in (tint.fill, *palette.card, palette.page):
            for colour in (palette.text, palette.muted, tint.accent):
                assert contrast(colour, behind) >= 4.5, (colour, behind)
    for colour in palette.link.values():  # of lines
        for behind in (*palette.card, palette.page, *(t.fill for t in palette.tints.values())):
            assert contrast(colour, behind) >= 3, (colour, behind)


def test_kinds_of_layers():
    kinds = {
        nn.Conv2d: "convolution",
        nn.ConvTranspose1d: "convolution",
        nn.Linear: "linear",
        nn.Bilinear: "linear",
        nn.LayerNorm: "norm",
        nn.BatchNorm2d: "norm",
        nn.ReLU: "activation",
        nn.ReLU6: "activation",
        nn.SiLU: "activation",
        nn.PReLU: "activation",
        nn.Softmax: "activation",
        nn.MultiheadAttention: "attention",
        nn.LSTM: "recurrent",
        nn.Embedding: "embedding",
        nn.MaxPool2d: "pooling",
        nn.Dropout: "dropout",
        nn.Sequential: "other",
        nn.ModuleList: "other",
    }
    assert {cls: kind_of_layer(cls.__name__) for cls in kinds} == kinds
    assert kind_of_layer("Prelude") == "other"


def test_ellipsis_keeps_to_the_room():
    for text in (*ODD_NAMES, "plain", ""):
        for room in (20, 50, 120):
            cut = ellipsis(text, room, 12)
            assert text_width(cut, 12) <= room or cut == "…"
            assert cut == text or (cut.endswith("…") and text.startswith(cut[:-1]))
    assert ellipsis("ab👨‍👩‍👧", text_width("ab👨", 12) + 8, 12) == "ab👨…"


def test_margin():
    frame = frames_of(nn.ReLU())[0]
    root = ET.fromstring(mt.to_svg(nn.ReLU()))
    assert (frame.x, frame.y) == (MARGIN, MARGIN)
    assert float(root.get("width")) == frame.width + 2 * MARGIN
    assert float(root.get("height")) == frame.height + 2 * MARGIN
