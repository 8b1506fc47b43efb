# SPDX-License-Identifier: BSD-3-Clause
"""Arguments that must fit together: for an operation, a function that draws them.

It gets the line's :class:`Draw` and returns values by the names of torch's schema; what it leaves
out is drawn by its type. One line in eight does without, so that what does not fit is tried too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .values import Draw

Rule = Callable[[Draw], dict[str, Any]]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """The rule for functions, methods and methods in place of these names."""

    def enter(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        return function

    return enter


def rule_of(name: str) -> Rule | None:
    bare = name.rpartition(".")[2]
    return RULES.get(name) or RULES.get(bare) or RULES.get(bare.rstrip("_"))


def sizes(draw: Draw, count: int) -> list[int]:
    return [draw.rng.choice((0, 1, 1, 2, 2, 3, 3, 4)) for _ in range(count)]


# -- indices along a dimension ---------------------------------------------------------------------


def _place(draw: Draw) -> int:
    return draw.rng.randrange(len(draw.shape)) if draw.shape else 0


def _size(draw: Draw, dim: int) -> int:
    return draw.shape[dim] if draw.shape else 1


def _smaller(draw: Draw, dim: int, free: bool = True) -> tuple[int, ...]:
    """A shape within the line's; along ``dim`` of any size."""
    inside = [draw.rng.randint(min(n, 1), n) if draw.chance(0.4) else n for n in draw.shape]
    if inside and free and draw.chance(0.4):
        inside[dim] = draw.rng.randint(0, 4)
    return tuple(inside)


@rule("gather", "take_along_dim")
def _gather(draw: Draw) -> dict[str, Any]:
    dim = _place(draw)
    index = draw.index(_smaller(draw, dim), _size(draw, dim))
    return {"self": draw.tensor(draw.shape), "dim": dim, "index": index, "indices": index}


@rule("scatter", "scatter_add", "scatter_reduce")
def _scatter(draw: Draw) -> dict[str, Any]:
    dim = _place(draw)
    shape = _smaller(draw, dim)
    return {
        "self": draw.tensor(draw.shape),
        "dim": dim,
        "index": draw.index(shape, _size(draw, dim)),
        "src": draw.tensor(shape),
    }


@rule("index_select", "index_add", "index_copy", "index_fill", "index_reduce")
def _index(draw: Draw) -> dict[str, Any]:
    dim = _place(draw)
    count = draw.rng.randint(0, 4)
    shape = list(draw.shape)
    if shape:
        shape[dim] = count
    else:
        count = 1
    source = draw.tensor(tuple(shape))
    given = {"self": draw.tensor(draw.shape), "dim": dim, "source": source}
    return given | {"index": draw.index((count,), _size(draw, dim))}


@rule("take", "put")
def _take(draw: Draw) -> dict[str, Any]:
    count = 1
    for n in draw.shape:
        count *= n
    shape = tuple(sizes(draw, draw.rng.randint(0, 2)))
    index = draw.index(shape, count)
    return {"self": draw.tensor(draw.shape), "index": index, "source": draw.tensor(shape)}


# -- products --------------------------------------------------------------------------------------


def _same(draw: Draw, **shapes: tuple[int, ...]) -> dict[str, Any]:
    return {name: draw.tensor(shape) for name, shape in shapes.items()}


@rule("mm")
def _mm(draw: Draw) -> dict[str, Any]:
    n, k, m = sizes(draw, 3)
    return _same(draw, self=(n, k), mat2=(k, m))


@rule("bmm")
def _bmm(draw: Draw) -> dict[str, Any]:
    b, n, k, m = sizes(draw, 4)
    return _same(draw, self=(b, n, k), mat2=(b, k, m))


@rule("mv")
def _mv(draw: Draw) -> dict[str, Any]:
    n, k = sizes(draw, 2)
    return _same(draw, self=(n, k), vec=(k,))


@rule("dot", "vdot")
def _dot(draw: Draw) -> dict[str, Any]:
    (n,) = sizes(draw, 1)
    return _same(draw, self=(n,), other=(n,), tensor=(n,))


@rule("outer")
def _outer(draw: Draw) -> dict[str, Any]:
    n, m = sizes(draw, 2)
    return _same(draw, self=(n,), vec2=(m,))


@rule("addmm")
def _addmm(draw: Draw) -> dict[str, Any]:
    n, k, m = sizes(draw, 3)
    start = draw.rng.choice(((n, m), (m,), (1, m), ()))
    return _same(draw, self=start, mat1=(n, k), mat2=(k, m))


@rule("baddbmm")
def _baddbmm(draw: Draw) -> dict[str, Any]:
    b, n, k, m = sizes(draw, 4)
    return _same(draw, self=(b, n, m), batch1=(b, n, k), batch2=(b, k, m))


@rule("matmul", "operator.matmul")
def _matmul(draw: Draw) -> dict[str, Any]:
    n, k, m, b = sizes(draw, 4)
    first = draw.rng.choice(((k,), (n, k), (b, n, k)))
    second = draw.rng.choice(((k,), (k, m), (b, k, m)))
    a, c = draw.tensor(first), draw.tensor(second)
    return {"self": a, "input": a, "other": c}


@rule("tensordot")
def _tensordot(draw: Draw) -> dict[str, Any]:
    rows, inner, columns = (sizes(draw, draw.rng.randint(0, 2)) for _ in range(3))
    dims: Any = len(inner)
    first, second = [*rows, *inner], [*inner, *columns]
    if draw.chance(0.5):
        dims = [list(range(len(rows), len(first))), list(range(len(inner)))]
    if inner and draw.chance(0.2):
        second[0] = 1
    return _same(draw, self=tuple(first), other=tuple(second)) | {"dims": dims}


@rule("einsum")
def _einsum(draw: Draw) -> dict[str, Any]:
    """Letters with sizes; an operand may have a size of 1 instead, or an ellipsis for the rest."""
    size = dict(zip("ijkl", sizes(draw, 4), strict=True))
    terms = ["".join(draw.rng.choices("ijkl", k=draw.rng.randint(0, 3))) for _ in range(3)]
    terms = terms[: draw.rng.choice((1, 2, 2, 2, 3))]
    shapes = [tuple(1 if draw.chance(0.05) else size[letter] for letter in term) for term in terms]
    dots = sizes(draw, draw.rng.randint(1, 2)) if draw.chance(0.2) else []
    if dots:
        shapes = [(*dots, *shape) for shape in shapes]
        terms = ["..." + term for term in terms]
    equation = ",".join(terms)
    if draw.chance(0.7):
        letters = sorted({c for c in equation if c.isalpha()})
        kept = draw.rng.sample(letters, draw.rng.randint(0, len(letters)))
        equation += "->" + ("..." if dots and draw.chance(0.9) else "") + "".join(kept)
    return {"equation": equation, "tensors": [draw.tensor(shape) for shape in shapes]}


# -- others ----------------------------------------------------------------------------------------


@rule("masked_scatter")
def _masked_scatter(draw: Draw) -> dict[str, Any]:
    mask = draw.tensor(draw.shape, "bool")
    count = int(mask.array.sum()) + draw.rng.randint(0, 2)
    return {"self": draw.tensor(draw.shape), "mask": mask, "source": draw.tensor((count,))}


@rule("reshape", "view", "broadcast_to", "expand", "expand_as", "view_as", "reshape_as")
def _reshape(draw: Draw) -> dict[str, Any]:
    return {"self": draw.tensor(draw.shape)}


@rule("complex", "polar")
def _complex(draw: Draw) -> dict[str, Any]:
    draw.dtype = draw.rng.choice(("float32", "float64"))
    return {}


@rule("view_as_complex")
def _view_as_complex(draw: Draw) -> dict[str, Any]:
    draw.dtype = draw.rng.choice(("float32", "float64"))
    return {"self": draw.tensor((*draw.shape, 2))}
