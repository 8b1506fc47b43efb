# SPDX-License-Identifier: BSD-3-Clause
"""The public functions that look at models: ``check``, ``compare``, ``summary`` and pictures.

The parts of ``modtree.inspection`` that do the work are imported when one of these functions is
called, or its annotations are evaluated: few programs do.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from modtree import inspection
from modtree.core.loading.rename import Rename
from modtree.core.module import Module
from modtree.files.checkpoint.base import Checkpoint
from modtree.files.sources.source import Source

if TYPE_CHECKING:
    import modtree.inspection.check
    import modtree.inspection.comparison.result
    import modtree.inspection.drawing
    import modtree.inspection.summary  # noqa: F401  (named as inspection.summary)

Comparable: TypeAlias = str | os.PathLike[str] | Source | Mapping[str, Any] | Checkpoint | Module


def check(model: Any, example: Any = None) -> inspection.check.Findings:
    """Lists likely mistakes in a model.

    Looks for tensors and modules in plain attributes, lists and dicts, where the tree does not see
    them; names that hide each other; buffers and parameters with wrong flags, with NaN, or over
    one memory; ties that a load would break; modules in different modes; hooks left behind. With
    an example also for parameters that no output depends on. The guide "Seeing a model" has all
    kinds with what to do about each.

    The model is not changed: the forward of the example runs in evaluation mode, and where that
    leaves parameters unused, once more as the model is; modes, buffers, gradients and random
    numbers are as before.

    Args:
        model: A module of modtree or of torch.
        example: The input of a forward: a tensor, a tuple or list of arguments, or a dict of
            arguments by name.

    Returns:
        A list of findings, each with ``path``, ``kind``, ``message`` and ``hint``, that prints as a
        report.

    Raises:
        TypeError: ``model`` is not a module.
        RuntimeError: the forward raised; the message says in which module.

    Example:
        >>> net = nn.Linear(2, 2)
        >>> net.scales = [mt.ones(2)]
        >>> [(found.path, found.kind) for found in mt.check(net)]
        [('scales[0]', 'hidden-tensor')]
    """
    return inspection.check.find_mistakes(model, example)


def summary(
    model: Any,
    input_shape: Any = None,
    *,
    example: Any = None,
    dtypes: Any = None,
    depth: int | None = None,
    fold: bool = True,
    times: bool | int = False,
    columns: Any = None,
) -> inspection.summary.Summary:
    """Shows a model as a table: a line for each module with its class, parameters, bytes and dtype.

    With an input also what a forward computes: shapes, multiply-adds and bytes of activations. It
    runs on zeros of ``input_shape`` or on ``example``, in evaluation mode and without gradients.
    Afterwards the model is what it was: modes, buffers, hooks and random numbers. A model on meta
    runs there; of a model with lazy modules a copy runs, and the table shows that copy. Code of
    torch.compile is not used.

    Equal blocks in a row take the lines of one, marked ``x 24``, with the numbers of one. A module
    that is in the tree twice is counted in its first place, and so is a tied parameter.
    Multiply-adds are those of linear, convolutional, recurrent and attention layers; what a
    ``forward`` computes by calling functions is not seen. Quantized weights are shown with the
    dtype and bytes that they are stored in.

    Args:
        model: A module of modtree or of torch.
        input_shape: The shape of the input with its batch dimension, a list of shapes, or a dict
            of shapes by the names of arguments. The input is zeros. A tensor there is an example.
        example: In its place the input itself: a tensor, a tuple or list of arguments, or a dict
            of arguments by name.
        dtypes: The dtype of the zeros, or one for each shape; by default that of the first
            floating parameter.
        depth: How many levels below the model are shown; None shows all.
        fold: False gives each of equal blocks its own lines.
        times: Also measures how long each module takes, in this many runs, of which the quickest
            counts; True for three.
        columns: The names of the columns: "kernel", "input shape", "output shape", "parameters",
            "share", "mult-adds", "buffers", "trainable", "bytes", "activations", "dtype", "time",
            "notes"; "all" for all of them. By default those that say something about most models.

    Returns:
        A :class:`Summary`. ``print`` shows it as text, ``show()`` in colours on a terminal where
        rich is installed, notebooks as a table that opens and closes; ``to_dict()`` is for JSON.

    Raises:
        TypeError: ``model`` is not a module, or an argument makes no sense.
        RuntimeError: the forward raised; the message says in which module.

    Example:
        >>> print(mt.summary(nn.Sequential(nn.Linear(4, 8), nn.ReLU()), (1, 4)))
        name        class       output shape  parameters  mult-adds  bytes  dtype
        Sequential  Sequential  (1, 8)                40         32  160 B  float32
          0         Linear      (1, 8)                40         32  160 B  float32
          1         ReLU        (1, 8)                 -          -      -  -
        <BLANKLINE>
        parameters   40 (all trainable)
        buffers      0
        bytes        160 B
        modules      3
        input        (1, 4)
        output       (1, 8)
        mult-adds    32
        activations  64 B
    """
    return inspection.summary.summarize(
        model, input_shape, example, dtypes, depth, fold, times, columns
    )


def compare(
    a: Comparable,
    b: Comparable,
    *,
    rtol: float = 0.0,
    atol: float = 0.0,
    values: bool = True,
    rename: Rename | None = None,
    at: str | tuple[str | None, str | None] | None = None,
    join: Any = None,
    large_header: bool = False,
) -> inspection.comparison.Diff:
    """Compares two models, state dicts or checkpoints: keys, shapes, dtypes and values.

    Models, state dicts and paths go together in any combination. Files are read tensor by tensor.

    >>> import copy
    >>> before = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    >>> after = copy.deepcopy(before)
    >>> after[0].bias.data[1] += 1
    >>> print(mt.compare(before, after))
    a: Sequential a, 2 entries
    b: Sequential b, 2 entries
    values differ (1 of 2 entries):
      0.bias: 1 of 3 elements, by at most 1 (relative ...)

    Args:
        a: A model, a state dict, or the path of a checkpoint.
        b: The same.
        rtol: Elements are the same when ``|a - b| <= atol + rtol * |b|``; NaN is the same as NaN.
        atol: See ``rtol``.
        values: Compare values, not only keys, shapes and dtypes.
        rename: Rules that the keys of ``a`` go through first, as ``load_state_dict`` has them:
            ``{"module.": ""}``.
        at: The part of files with several that is compared, such as "ema" or "optimizer"; a tuple
            names one for each side. The default is the model.
        join: How files of several ranks are put together, as in :func:`load_file`; for the side
            that has such files.
        large_header: Whether a safetensors header of more than 100 MB is read.

    Returns:
        A :class:`Diff`, true where something differs.

    Raises:
        TypeError: One of the two cannot be compared.
        OSError: A file cannot be opened.
        CheckpointError: A file is damaged, or not a checkpoint.
    """
    return inspection.comparison.compare(a, b, rtol, atol, values, rename, at, join, large_header)


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
    return inspection.drawing.draw(
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
    return inspection.drawing.draw(
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
    return inspection.drawing.draw(
        "text/vnd.mermaid", model, path, depth, fold, shapes, leaves, max_boxes, direction, theme
    )
