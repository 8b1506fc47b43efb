# SPDX-License-Identifier: BSD-3-Clause
"""What the three ways of drawing have in common: their options, and the text that they return."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from modtree._inspection.drawing.outline import Outline, make_outline
from modtree._inspection.tree import read_tree

__all__ = ["DIRECTIONS", "THEMES", "Drawing", "check_choice", "finish", "outline_of"]

DIRECTIONS = ("LR", "TB")
THEMES = ("auto", "light", "dark")


class Drawing(str):
    """The text of a drawing, which notebooks show as a picture."""

    media_type: str

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {self.media_type: str(self), "text/plain": f"<drawing of {len(self):,} characters>"}


def outline_of(
    model: Any, *, depth: int | None, is_folded: bool, leaves: bool, max_boxes: int
) -> Outline:
    """The outline of a model, by the options that users give."""
    if depth is not None and depth < 0:
        raise ValueError(f"depth must be 0 (the model alone) or more, or None, got {depth}")
    if max_boxes < 1:
        raise ValueError(f"max_boxes must be 1 or more, got {max_boxes}")
    return make_outline(
        read_tree(model), depth=depth, is_folded=is_folded, leaves=leaves, max_boxes=max_boxes
    )


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """ValueError for an option that is none of these."""
    if value not in choices:
        raise ValueError(f"{name} must be {' or '.join(map(repr, choices))}, got {value!r}")


def finish(text: str, media_type: str, path: str | os.PathLike[str] | None) -> Drawing:
    """What is returned; where a path is given, the file as well."""
    drawing = Drawing(text)
    drawing.media_type = media_type
    if path is not None:
        Path(path).write_text(text, encoding="utf-8", newline="\n")
    return drawing
