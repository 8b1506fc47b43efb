# SPDX-License-Identifier: BSD-3-Clause
"""Pictures of a tree of modules: one outline (what is drawn), and a writer for each format.

What the public functions need is imported when the first picture is drawn: few programs draw any.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

__all__ = ["to_dot", "to_mermaid", "to_svg"]


def _draw(media_type: str, *options: Any) -> str:
    draw = importlib.import_module("modtree.inspection.drawing.draw").draw
    drawing: str = draw(media_type, *options)
    return drawing


def to_svg(
    model: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    depth: int | None = None,
    fold: bool = True,
    shapes: bool = True,
    leaves: bool = False,
    max_boxes: int = 300,
    direction: str = "LR",
    theme: str = "auto",
) -> str:
    """Draws the tree of a model as SVG: boxes in boxes, to be read down and then right.

    The picture needs nothing else, and is shown as it is in a page, a README or a notebook, where a
    cell that ends in it shows it. Siblings that are built alike are one box, "× 24". A bar is a
    box's share of all parameters. Dashed lines go to a module that is in the tree once more, dotted
    ones from tensor to tied tensor. The mouse over a box shows its path, its sizes and its tensors.

    Args:
        model: A module of modtree or of torch.
        path: Where the text is written to as well, as UTF-8.
        depth: How many levels below the model are drawn; as many as there is room for by default.
        fold: Whether siblings that are built alike are one box.
        shapes: Whether boxes show the shapes of their parameters; otherwise ``extra_repr``.
        leaves: Whether each parameter and buffer has a box of its own.
        max_boxes: How many boxes there are at most. Where the tree has more, levels at the bottom
            are left out, and boxes say how many modules they have inside.
        direction: ``"LR"`` fills columns from left to right, ``"TB"`` puts everything below each
            other.
        theme: ``"light"``, ``"dark"``, or ``"auto"``, by the reader's settings.

    Returns:
        The text, which notebooks show as a picture.

    Raises:
        TypeError: the model is not a module.
        ValueError: an option is out of its range.

    Example:
        >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        >>> mt.to_svg(net)[:4]
        '<svg'
    """
    return _draw(
        "image/svg+xml", model, path, depth, fold, shapes, leaves, max_boxes, direction, theme
    )


def to_dot(
    model: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    depth: int | None = None,
    fold: bool = True,
    shapes: bool = True,
    leaves: bool = False,
    max_boxes: int = 300,
    direction: str = "LR",
    theme: str = "auto",
) -> str:
    """Draws the tree of a model in DOT, for Graphviz and what else reads its files.

    Each module is a node with an edge from its parent. Siblings that are built alike are one node,
    "× 24". Dashed edges go to a module that is in the tree once more, dotted ones from tensor to
    tied tensor. See :func:`modtree.to_svg` for a picture without Graphviz.

    Args:
        model: A module of modtree or of torch.
        path: Where the text is written to as well, as UTF-8.
        depth, fold, shapes, leaves, max_boxes: As in :func:`modtree.to_svg`, for nodes in place of
            boxes.
        direction: Where the tree grows, ``"LR"`` to the right or ``"TB"`` down.
        theme: ``"light"``, ``"dark"``, or ``"auto"`` for light nodes on no background, which
            suits both.

    Returns:
        The text.

    Raises:
        TypeError: the model is not a module.
        ValueError: an option is out of its range.

    Example:
        >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        >>> print(mt.to_dot(net).splitlines()[0])
        digraph "Sequential" {
    """
    return _draw(
        "text/vnd.graphviz", model, path, depth, fold, shapes, leaves, max_boxes, direction, theme
    )


def to_mermaid(
    model: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    depth: int | None = None,
    fold: bool = True,
    shapes: bool = True,
    leaves: bool = False,
    max_boxes: int = 300,
    direction: str = "LR",
    theme: str = "auto",
) -> str:
    """Draws the tree of a model as a flowchart of Mermaid, for a Markdown block ``mermaid``.

    Each module is a node with an arrow from its parent. Siblings that are built alike are one node,
    "× 24". Dashed arrows go to a module that is in the tree once more, dotted ones from tensor to
    tied tensor.

    Args:
        model: A module of modtree or of torch.
        path: Where the text is written to as well, as UTF-8.
        depth, fold, shapes, leaves: As in :func:`modtree.to_svg`, for nodes in place of boxes.
        max_boxes: The same. Mermaid as pages have it refuses more than 500 arrows, which 300 nodes
            keep to.
        direction: Where the tree grows, ``"LR"`` to the right or ``"TB"`` down.
        theme: ``"light"``, ``"dark"``, or ``"auto"`` for light nodes in the theme of the page.

    Returns:
        The text.

    Raises:
        TypeError: the model is not a module.
        ValueError: an option is out of its range.

    Example:
        >>> print(mt.to_mermaid(nn.Sequential(nn.ReLU(), nn.Tanh()), theme="light"))
        %%{init: {"theme": "default"}}%%
        flowchart LR
          n0["Sequential"]:::other
          n1["0: ReLU"]:::activation
          n2["1: Tanh"]:::activation
          n0 --> n1
          n0 --> n2
          classDef activation fill:#fce6e4,stroke:#e09a94,color:#1f2328
          classDef other fill:#f4f5f7,stroke:#bcc3cc,color:#1f2328
        <BLANKLINE>
    """
    return _draw(
        "text/vnd.mermaid", model, path, depth, fold, shapes, leaves, max_boxes, direction, theme
    )
