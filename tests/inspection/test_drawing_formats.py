# SPDX-License-Identifier: BSD-3-Clause
"""DOT and Mermaid, and what the three formats have in common."""

from __future__ import annotations

import copy
import inspect
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from helpers.drawn_models import chain, experts, odd, random_tree
from helpers.limits import HANGS_AFTER

import modtree as mt
from modtree import nn

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "drawings.md"
FORMATS = [mt.to_dot, mt.to_mermaid, mt.to_svg]

needs_graphviz = pytest.mark.skipif(shutil.which("dot") is None, reason="needs Graphviz")


def graphviz(text: str) -> dict:
    """The graph as Graphviz reads it."""
    command = ["dot", "-Tdot_json"]
    done = subprocess.run(
        command, input=text, capture_output=True, encoding="utf-8", timeout=HANGS_AFTER
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return json.loads(done.stdout)


def tied_and_shared():
    model = nn.ModuleDict({"embed": nn.Embedding(5, 3), "head": nn.Linear(3, 5)})
    model["head"].weight = model["embed"].weight
    model["again"] = model["embed"]
    return model


# -- all three -------------------------------------------------------------------------------------


def test_the_options_are_the_same():
    first = inspect.signature(mt.to_dot)
    assert all(inspect.signature(draw) == first for draw in FORMATS)


@pytest.mark.parametrize("draw", FORMATS)
def test_the_text_is_written_and_returned(draw, tmp_path):
    path = tmp_path / "drawing"
    text = draw(odd(), path)
    assert isinstance(text, str) and path.read_bytes() == text.encode()
    assert draw(odd(), str(path)) == text
    assert "\r" not in text and text.endswith("\n")


@pytest.mark.parametrize(
    "draw, kind",
    [
        (mt.to_dot, "text/vnd.graphviz"),
        (mt.to_mermaid, "text/vnd.mermaid"),
        (mt.to_svg, "image/svg+xml"),
    ],
)
def test_notebooks_show_a_picture(draw, kind):
    text = draw(nn.ReLU())
    bundle = text._repr_mimebundle_()
    assert bundle[kind] == text and type(bundle[kind]) is str
    assert copy.deepcopy(text)._repr_mimebundle_() == bundle


@pytest.mark.parametrize("draw", FORMATS)
def test_options_out_of_range(draw):
    with pytest.raises(ValueError, match=r"direction must be 'LR' or 'TB', got 'RL'"):
        draw(nn.ReLU(), direction="RL")
    with pytest.raises(ValueError, match=r"theme must be 'auto' or 'light' or 'dark', got None"):
        draw(nn.ReLU(), theme=None)
    with pytest.raises(ValueError, match=r"depth must be 0 .* got -1"):
        draw(nn.ReLU(), depth=-1)
    with pytest.raises(ValueError, match=r"max_boxes must be 1 or more, got 0"):
        draw(nn.ReLU(), max_boxes=0)
    with pytest.raises(TypeError, match="expected a module.*got list"):
        draw([nn.ReLU()])


@pytest.mark.parametrize("draw", FORMATS)
def test_torch_modules_are_drawn(draw, torch):
    text = draw(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU()))
    assert "weight 3×2, bias 3" in text
    leaves = nn.Sequential(nn.Linear(2, 3))
    leaves[0].weight = torch.nn.Parameter(torch.zeros(7, 2, dtype=torch.bfloat16))
    assert "weight 7×2, bias 3" in draw(leaves)


@pytest.mark.parametrize("draw", FORMATS)
def test_lazy_modules_are_drawn(draw):
    text = draw(nn.Sequential(nn.LazyLinear(3)))
    assert "weight ?, bias" in text


@pytest.mark.parametrize("draw", FORMATS)
def test_drawing_leaves_the_model_as_it_was(draw):
    model = random_tree(1)

    def state():
        tensors = [(name, id(p), p._version) for name, p in model.named_parameters()]
        return tensors, [(name, id(m), m.training) for name, m in model.named_modules()]

    before = state()
    assert draw(model) == draw(model)
    assert state() == before


@pytest.mark.parametrize("draw", FORMATS)
def test_a_broken_extra_repr_is_left_out(draw):
    class Broken(nn.Module):
        def extra_repr(self):
            raise RuntimeError("not built yet")

    assert "Broken" in draw(Broken())


@pytest.mark.parametrize("draw", FORMATS)
def test_sizes_stay_bounded(draw):
    for model in (experts(76, 260), chain(900), odd()):
        assert len(draw(model)) < 50_000
    assert len(draw(experts(76, 260), fold=False)) < 300_000


@pytest.mark.skipif(not PAGE.is_file(), reason="needs the source tree")
def test_the_picture_of_the_page_is_current(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first_block = re.search(r"```python\n(.+?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(first_block[1], {})
    written = (tmp_path / "captioner.svg").read_text(encoding="utf-8")
    assert written == PAGE.with_name("captioner.svg").read_text(encoding="utf-8")


# -- DOT -------------------------------------------------------------------------------------------


def test_dot_by_example():
    model = nn.Sequential(*[nn.Linear(2, 2) for _ in range(24)])
    lines = mt.to_dot(model, direction="TB").splitlines()
    assert lines[0] == 'digraph "Sequential" {' and lines[-1] == "}"
    assert "rankdir=TB" in lines[1]
    label = r'label="0-23: Linear × 24\lweight 2×2, bias 2\l6 parameters each\l"'
    assert label in lines[5] and "peripheries=2" in lines[5]
    assert lines[6] == "  n0 -> n1;"


@needs_graphviz
@pytest.mark.parametrize("theme", ["auto", "light", "dark"])
def test_graphviz_reads_what_was_written(theme):
    for model in (odd(), tied_and_shared(), nn.Module(), *map(random_tree, range(5))):
        text = mt.to_dot(model, theme=theme)
        found = graphviz(text)
        nodes = {node["name"] for node in found["objects"]}
        edges = found.get("edges", [])
        assert nodes == {f"n{i}" for i in range(len(nodes))}
        assert len(nodes) + len(edges) == len(re.findall(r"^  n\d+", text, re.MULTILINE))


@needs_graphviz
def test_graphviz_has_the_names():
    labels = [node["label"] for node in graphviz(mt.to_dot(odd()))["objects"]]
    for name in ("\\\\back\\\\N", '<&amp;">', "&amp;amp;", "{curly}|pipe|[square]", "\\\\x00"):
        assert any(label.startswith(name) for label in labels), (name, labels)


def test_links_in_dot():
    text = mt.to_dot(tied_and_shared())
    assert re.search(r'n2 -> n1 \[style=dotted, .*tooltip="tied: weight"\]', text)
    assert re.search(r'n3 -> n1 \[style=dashed, .*tooltip="the same module"\]', text)


# -- Mermaid ---------------------------------------------------------------------------------------

NODE = re.compile(r'  n\d+(\["[^"]*"\]|\[\["[^"]*"\]\]):::(\w+)')
LINES = (
    NODE,
    re.compile(r"  n\d+ (-->|-\.->) n\d+"),
    re.compile(r"  classDef \w+ fill:#\w{6},stroke:#\w{6},color:#\w{6}(,stroke-dasharray:4 3)?"),
    re.compile(r"  linkStyle \d+(,\d+)* stroke:#\w{6},stroke-dasharray:\d 4"),
)


def check_mermaid(text: str) -> list[str]:
    """Every line is one of a few kinds; returns the labels as the reader sees them."""
    head, *lines = text.splitlines()
    assert re.fullmatch(r"flowchart (LR|TB)", head)
    assert [line for line in lines if not any(kind.fullmatch(line) for kind in LINES)] == []
    styles = {match[2] for match in map(NODE.fullmatch, lines) if match}
    assert styles == set(re.findall(r"classDef (\w+)", text))
    arrows = sum(bool(LINES[1].fullmatch(line)) for line in lines)
    numbers = [int(n) for line in re.findall(r"linkStyle ([\d,]+)", text) for n in line.split(",")]
    assert len(numbers) == text.count("-.->") and all(n < arrows for n in numbers)
    labels = re.findall(r'\["([^"]*)"\]', text)
    for label in labels:  # what is no number of a character is plain text
        assert not re.search(r"[#&<>;`*|\\\[\]{}%]", re.sub(r"#\d+;|<br>", "", label)), label
    return [re.sub(r"#(\d+);", lambda match: chr(int(match[1])), label) for label in labels]


def test_mermaid_by_example():
    model = nn.Sequential(*[nn.Linear(2, 2) for _ in range(24)], nn.Tanh())
    assert mt.to_mermaid(model).splitlines()[:6] == [
        "flowchart LR",
        '  n0["Sequential<br>144 parameters"]:::other',
        '  n1[["0-23: Linear × 24<br>weight 2×2, bias 2<br>6 parameters each"]]:::linear',
        '  n2["24: Tanh"]:::activation',
        "  n0 --> n1",
        "  n0 --> n2",
    ]


def test_mermaid_is_well_formed():
    for model in (tied_and_shared(), nn.Module(), experts(3, 5), *map(random_tree, range(20))):
        check_mermaid(mt.to_mermaid(model))


def test_mermaid_has_the_names():
    labels = check_mermaid(mt.to_mermaid(odd(), direction="TB"))
    for name in ('<&">', "&amp;", "--> end", "`code`", "#35;", "*star* _under_", "1. list"):
        assert any(label.startswith(f"{name}: Linear<br>") for label in labels), name


def test_mermaid_keeps_to_the_text_that_pages_take():
    model = nn.Module()
    for i in range(290):
        model.add_module(f"{i:03}#" + '"' * 100, nn.LSTM(2, i + 1))
    text = mt.to_mermaid(model)
    assert len(text) <= 50_000 and len(check_mermaid(text)) == 291


def test_links_in_mermaid():
    text = mt.to_mermaid(tied_and_shared())
    assert "  n2 -.-> n1\n  n3 -.-> n1\n" in text or "  n3 -.-> n1\n  n2 -.-> n1\n" in text
    assert "stroke-dasharray:6 4" in text and "stroke-dasharray:1 4" in text


def test_themes_of_mermaid():
    assert mt.to_mermaid(nn.ReLU(), theme="dark").startswith('%%{init: {"theme": "dark"}}%%\n')
    assert mt.to_mermaid(nn.ReLU(), theme="light").startswith('%%{init: {"theme": "default"}}%%\n')
