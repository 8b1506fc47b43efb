# SPDX-License-Identifier: BSD-3-Clause
"""Pictures of a tree of modules: one outline (what is drawn), and a writer for each format."""

from __future__ import annotations

import os
from typing import Any

from modtree.files.checkpoint.atomic import atomic_file
from modtree.files.checkpoint.replacing import OfTensors, check_replaced
from modtree.inspection.drawing import svg
from modtree.inspection.drawing.graphs import write_dot, write_mermaid
from modtree.inspection.drawing.outline import make_outline
from modtree.inspection.tree import read_tree

__all__ = ["Drawing", "draw"]

_WRITERS = {
    "text/vnd.graphviz": write_dot,
    "text/vnd.mermaid": write_mermaid,
    "image/svg+xml": svg.write,
}
_DIRECTIONS = ("LR", "TB")
_THEMES = ("auto", "light", "dark")


class Drawing(str):
    """The text of a drawing, which notebooks show as a picture."""

    media_type: str

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {self.media_type: str(self), "text/plain": f"<drawing of {len(self):,} characters>"}


def draw(
    media_type: str,
    model: Any,
    path: str | os.PathLike[str] | None,
    depth: int | None,
    fold: bool,
    shapes: bool,
    leaves: bool,
    max_boxes: int,
    direction: str,
    theme: str,
) -> Drawing:
    """What the public functions return, by the type of the text; they describe the options."""
    _check_choice("direction", direction, _DIRECTIONS)
    _check_choice("theme", theme, _THEMES)
    if depth is not None and depth < 0:
        raise ValueError(f"depth must be 0 (the model alone) or more, or None, got {depth}")
    if max_boxes < 1:
        raise ValueError(f"max_boxes must be 1 or more, got {max_boxes}")
    tree = read_tree(model)
    outline = make_outline(tree, depth=depth, is_folded=fold, leaves=leaves, max_boxes=max_boxes)
    drawing = Drawing(_WRITERS[media_type](outline, shapes, direction, theme))
    drawing.media_type = media_type
    if path is not None:
        _write(drawing, path, model)
    return drawing


def _write(drawing: str, path: str | os.PathLike[str], model: Any) -> None:
    check_replaced(path, OfTensors(model, is_written=False), None)
    with atomic_file(path) as file:
        file.write(drawing.encode())


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be {' or '.join(map(repr, choices))}, got {value!r}")
