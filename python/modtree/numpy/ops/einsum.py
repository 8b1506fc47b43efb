# SPDX-License-Identifier: BSD-3-Clause
"""einsum and tensordot, carried out as matrix products."""

from __future__ import annotations

import functools
import math
import string
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from modtree._C import _promote_types as promote_types
from modtree._C import as_dtype, as_tuple
from modtree.numpy.ops.generic import conj, operation, operation_of_list
from modtree.numpy.ops.matrix_product import matmul
from modtree.numpy.ops.registry import define, derive, export, ops

if TYPE_CHECKING:
    from modtree.numpy.argument_types import Tensor

# A label of a dimension is a number: that of its letter, or for what an ellipsis stands for -1, -2,
# ... from the right.
Labels = tuple[int, ...]

_LETTERS = string.ascii_uppercase + string.ascii_lowercase


@functools.lru_cache(512)
def parse(equation: str, ranks: tuple[int, ...]) -> tuple[tuple[Labels, ...], Labels]:
    """The labels of the operands and of the result."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise RuntimeError(
            f"einsum(): the equation {equation!r} has {len(terms)} operand(s), but {len(ranks)} "
            f"were given"
        )
    inputs = tuple(
        _term_labels(term, rank, i) for i, (term, rank) in enumerate(zip(terms, ranks, strict=True))
    )
    hidden = max((-min(labels, default=0) for labels in inputs), default=0)
    ellipsis = tuple(range(-hidden, 0)) if hidden > 0 else ()
    if not arrow:
        flat = [label for labels in inputs for label in labels if label >= 0]
        return inputs, (*ellipsis, *sorted(x for x in set(flat) if flat.count(x) == 1))
    before, dots, after = right.partition("...")
    output = (*map(_letter, before), *(ellipsis if dots else ()), *map(_letter, after))
    known = {label for labels in inputs for label in labels}
    for label in output:
        if label not in known:
            raise RuntimeError(
                f"einsum(): output subscript {_name(label)} does not appear in the equation for "
                f"any input operand"
            )
        if output.count(label) > 1:
            raise RuntimeError(
                f"einsum(): output subscript {_name(label)} appears more than once in the output"
            )
    return inputs, output


def _letter(char: str) -> int:
    if char not in _LETTERS:
        raise RuntimeError(
            f"einsum(): invalid subscript given: {char!r}; subscripts must be in [a-zA-Z]"
        )
    return ord(char)


def _name(label: int) -> str:
    return chr(label) if label >= 0 else "..."


def _term_labels(term: str, rank: int, number: int) -> Labels:
    before, dots, after = term.partition("...")
    hidden = rank - len(before) - len(after)
    if hidden < 0 or (hidden and not dots):
        raise RuntimeError(
            f"einsum(): the number of subscripts in the equation ({len(before) + len(after)}) does "
            f"not match the number of dimensions ({rank}) for operand {number}"
            + ("" if dots else " and no ellipsis was given")
        )
    return (*map(_letter, before), *range(-hidden, 0), *map(_letter, after))


def sizes_of(xs: Any, inputs: tuple[Labels, ...]) -> dict[int, int]:
    """Label -> size; dimensions of size 1 fit any other."""
    sizes: dict[int, int] = {}
    for number, (x, labels) in enumerate(zip(xs, inputs, strict=True)):
        if len(set(labels)) < len(labels):
            _check_diagonal(number, x, labels)
        for axis, (label, size) in enumerate(zip(labels, x.shape, strict=True)):
            have = sizes.setdefault(label, size)
            if have == 1:
                sizes[label] = size
            elif size not in (1, have):
                raise RuntimeError(
                    f"einsum(): subscript {_name(label)} has size {size} for operand {number} "
                    f"(dimension {axis}) which does not broadcast with previously seen size {have}"
                )
    return sizes


def _check_diagonal(number: int, x: Any, labels: Labels) -> None:
    sizes: dict[int, int] = {}
    for label, size in zip(labels, x.shape, strict=True):
        if sizes.setdefault(label, size) != size:
            raise RuntimeError(
                f"einsum(): subscript {_name(label)} is repeated for operand {number} but the "
                f"sizes don't match, {size} != {sizes[label]}"
            )


def _contract_all(xs: Any, inputs: tuple[Labels, ...], output: Labels) -> Any:
    sizes = sizes_of(xs, inputs)
    items = [_prepared(x, labels, sizes) for x, labels in zip(xs, inputs, strict=True)]
    while len(items) > 1:
        # Of integers and several dtypes, which partial sums there are decides the dtype.
        choose = len(items) > 2 and _are_of_one_kind(items)
        i, j = _next_pair(items, output, sizes) if choose else (0, 1)
        second, first = items.pop(j), items.pop(i)
        keep = set(output).union(*(labels for _, labels in items))
        product = _contract(*first, *second, keep)
        items.insert(i if not choose else len(items), product)
    x, labels = _summed(*items[0], set(output), len(xs) == 1)
    result = x.transpose([labels.index(label) for label in output]) if labels != output else x
    # The result has memory of its own: it may be written to.
    own = result.base is None and not any(result is given for given in xs)
    return result if own else result.copy()


def _are_of_one_kind(items: Any) -> bool:
    dtype = items[0][0].dtype
    return dtype.kind not in "biu" and all(x.dtype == dtype for x, _ in items)


def _prepared(x: Any, labels: Labels, sizes: dict[int, int]) -> tuple[Any, Labels]:
    """The operand with each label once, without the dimensions of size 1 that were to be
    broadcast.
    """
    if any(x.shape[i] == 1 and sizes[label] != 1 for i, label in enumerate(labels)):
        kept = [i for i, label in enumerate(labels) if x.shape[i] == sizes[label]]
        x = x.reshape([x.shape[i] for i in kept])
        labels = tuple(labels[i] for i in kept)
    if len(set(labels)) < len(labels):
        once = tuple(dict.fromkeys(labels))
        x = np.einsum(x, [once.index(label) for label in labels], list(range(len(once))))
        labels = once
    return x, labels


def _summed(x: Any, labels: Labels, keep: set[int], alone: bool) -> tuple[Any, Labels]:
    """Integers are summed as int64; of several operands not along a size of 1."""
    drop = tuple(i for i, label in enumerate(labels) if label not in keep)
    if not drop:
        return x, labels
    dtype = x.dtype
    if dtype.kind in "biu" and (alone or any(x.shape[i] != 1 for i in drop)):
        dtype = np.dtype(np.int64)
    return (
        np.asarray(np.add.reduce(x, axis=drop, dtype=dtype)),
        tuple(label for label in labels if label in keep),
    )


def _next_pair(items: Any, output: Labels, sizes: dict[int, int]) -> tuple[int, int]:
    """The two operands whose product adds least to what has to be held."""
    best, best_cost = (0, 1), math.inf
    for j in range(1, len(items)):
        for i in range(j):
            others = (labels for k, (_, labels) in enumerate(items) if k not in (i, j))
            keep = set(output).union(*others)
            product = {*items[i][1], *items[j][1]} & keep
            cost = math.prod(sizes[label] for label in product)
            cost -= items[i][0].size + items[j][0].size
            if cost < best_cost:
                best, best_cost = (i, j), cost
    return best


def _contract(a: Any, la: Labels, b: Any, lb: Labels, keep: set[int]) -> tuple[Any, Labels]:
    """The product of two operands, summed over the labels that nobody else needs."""
    a, la = _summed(a, la, keep.union(lb), False)
    b, lb = _summed(b, lb, keep.union(la), False)
    if a.dtype != b.dtype or a.dtype.kind in "biu":
        a, b, la, lb = _of_one_dtype(a, la, b, lb, keep)
    shared = [label for label in la if label in lb]
    batch = [label for label in shared if label in keep]
    inner = [label for label in shared if label not in keep]
    rows = [label for label in la if label not in lb]
    columns = [label for label in lb if label not in la]
    labels = (*batch, *rows, *columns)
    left = a.transpose([la.index(label) for label in (*batch, *rows, *inner)])
    right = b.transpose([lb.index(label) for label in (*batch, *inner, *columns)])
    nb, nr, ni = len(batch), len(rows), len(inner)
    shape = (*left.shape[: nb + nr], *right.shape[nb + ni :])
    if not inner:
        spread = left.reshape(left.shape + (1,) * len(columns))
        wide = right.reshape(right.shape[:nb] + (1,) * nr + right.shape[nb:])
        return np.asarray(spread * wide), labels
    lead = left.shape[:nb]
    m, k = math.prod(left.shape[nb : nb + nr]), math.prod(left.shape[nb + nr :])
    n = math.prod(right.shape[nb + ni :])
    product = matmul(left.reshape(*lead, m, k), right.reshape(*lead, k, n))
    return product.reshape(shape), labels


def _of_one_dtype(
    a: Any, la: Labels, b: Any, lb: Labels, keep: set[int]
) -> tuple[Any, Any, Labels, Labels]:
    """Factors of several dtypes meet in one, unless the product is one of matrices."""
    sizes = dict(zip(la, a.shape, strict=True))
    inner = [label for label in la if label in lb and label not in keep]
    if any(sizes[label] != 1 for label in inner):
        if a.dtype != b.dtype:
            raise RuntimeError(
                f"einsum(): expected factors of one dtype, but got {a.dtype} and {b.dtype}: "
                f"convert with .to(dtype) first"
            )
        if a.dtype.kind == "b":
            raise NotImplementedError("\"bmm\" not implemented for 'Bool': convert with .float()")
        return a, b, la, lb
    kind = promote_types(as_dtype(a.dtype), as_dtype(b.dtype)).dtype
    a, b = a.astype(kind, copy=False), b.astype(kind, copy=False)
    if inner:
        a, b = (
            x.reshape([n for n, label in zip(x.shape, labels, strict=True) if label not in inner])
            for x, labels in ((a, la), (b, lb))
        )
        la, lb = (tuple(x for x in labels if x not in inner) for labels in (la, lb))
    return a, b, la, lb


def _meta(xs: Any, inputs: tuple[Labels, ...], output: Labels) -> Any:
    sizes = sizes_of(xs, inputs)
    dtype = xs[0].dtype
    if dtype.kind in "biu" or any(
        x.dtype != dtype for x in xs
    ):  # by the same function, of arrays as small as they can be
        small = [np.zeros([min(n, 2) for n in x.shape], dtype) for x in xs]
        dtype = _contract_all(small, inputs, output).dtype
    return tuple(sizes[label] for label in output), dtype


define("einsum", _contract_all, operands=-1, meta=_meta)
_einsum_op = ops["einsum"]


def einsum(equation: str, *operands: Any) -> Tensor:
    """Sums of products, as the equation says: einsum("ij,jk->ik", a, b).

    Args:
        equation: Letters for the dimensions of each operand, ``...`` for any number of them, and
            after ``->`` those of the result (without an arrow: those that occur once, in
            alphabetical order). A letter twice in one operand takes its diagonal.
        operands: Tensors of one dtype. Also einsum(a, [0, 1], b, [1, 2], [0, 2]): lists of numbers
            below 52 in place of letters.
    """
    if not isinstance(equation, str):
        equation, operands = _from_lists((equation, *operands))
    elif len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = as_tuple(operands[0])
    if not operands:
        raise ValueError("einsum(): must provide at least one operand")
    inputs, output = parse(equation, tuple(x.ndim for x in operands))
    return _einsum_op(list(operands), inputs, output)


def _from_lists(args: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    terms = [
        "".join("..." if label is Ellipsis else _LETTERS[label] for label in labels)
        for labels in args[1::2]
    ]
    equation = ",".join(terms)
    if len(args) % 2:
        equation += "->" + "".join("..." if x is Ellipsis else _LETTERS[x] for x in args[-1])
        args = args[:-1]
    return equation, args[::2]


def _axes(dims: Any, tensor: Any) -> list[int]:
    axes = [dims] if isinstance(dims, int) else [int(d) for d in dims]
    for axis in axes:
        if not -tensor.ndim <= axis < tensor.ndim:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-tensor.ndim}, "
                f"{tensor.ndim - 1}], but got {axis})"
            )
    return [axis % tensor.ndim for axis in axes]


def tensordot(
    a: Tensor, b: Tensor, dims: int | tuple[Sequence[int], Sequence[int]] | list[Sequence[int]] = 2
) -> Tensor:
    """Sums over pairs of dimensions: the last `dims` of a with the first of b, or those of two
    lists.

    Args:
        a: A tensor.
        b: A tensor.
        dims: A number: the last dimensions of ``a`` and the first of ``b``; or two lists of
            dimensions.
    """
    if isinstance(dims, int):
        if dims < 0 or dims > min(a.ndim, b.ndim):
            raise RuntimeError(
                "tensordot expects dims >= 0 and at most the dimensions of both tensors, but got "
                f"dims={dims} for {a.ndim}D and {b.ndim}D"
            )
        dims = list(range(a.ndim - dims, a.ndim)), list(range(dims))
    first, second = _axes(dims[0], a), _axes(dims[1], b)
    if len(first) != len(second):
        raise RuntimeError(
            f"both dimension lists should have same length, got {len(first)} and {len(second)}"
        )
    for i, j in zip(first, second, strict=True):
        if a.shape[i] != b.shape[j] and 1 not in (a.shape[i], b.shape[j]):
            raise RuntimeError(
                f"contracted dimensions need to match, but first has size {a.shape[i]} in dim {i} "
                f"and second has size {b.shape[j]} in dim {j}"
            )
        if a.shape[i] != b.shape[j]:
            if a.shape[i] == 1:
                b = b.sum(j, keepdim=True, dtype=b.dtype)
            else:
                a = a.sum(i, keepdim=True, dtype=a.dtype)
    if a.dtype is not b.dtype:
        raise RuntimeError(
            f"tensordot: expected operands to have the same dtype, but got: {a.dtype} and "
            f"{b.dtype}. Convert one with .to(dtype)"
        )
    if a.dtype.dtype.kind == "b":
        raise NotImplementedError("\"mm\" not implemented for 'Bool': convert with .float() first")
    left = list(range(a.ndim))
    right = list(range(a.ndim, a.ndim + b.ndim))
    for i, j in zip(first, second, strict=True):
        right[j] = left[i]
    output = [x for i, x in enumerate(left) if i not in first]
    output += [x for j, x in enumerate(right) if j not in second]
    return _einsum_op([a, b], (tuple(left), tuple(right)), tuple(output))


export("einsum", einsum, method=False)
export("tensordot", tensordot, method=False)

# -- derivatives -----------------------------------------------------------------------------------

_einsum = operation_of_list("einsum")
_expand = operation("expand")
_getitem_backward = operation("getitem_backward")


def _einsum_back(
    g: Any, _out: Any, xs: Any, inputs: tuple[Labels, ...], output: Labels
) -> list[Any]:
    sizes = sizes_of(xs, inputs)
    if any(x.dtype != g.dtype for x in xs):
        xs = [_as(x, g.dtype) for x in xs]
    return [_einsum_operand(g, i, xs, inputs, output, sizes) for i in range(len(xs))]


def _as(x: Any, dtype: Any) -> Any:
    return x.astype(dtype) if isinstance(x, np.ndarray) else x.to(dtype)


def _einsum_operand(
    g: Any,
    number: int,
    xs: Any,
    inputs: tuple[Labels, ...],
    output: Labels,
    sizes: dict[int, int],
) -> Any:
    """The same sum of products with the gradient in the operand's place."""
    shape, labels = tuple(xs[number].shape), inputs[number]
    others = [conj(x) for i, x in enumerate(xs) if i != number]
    other_labels = [x for i, x in enumerate(inputs) if i != number]
    known = set(output)
    for x, names in zip(others, other_labels, strict=True):
        known.update(n for n, size in zip(names, x.shape, strict=True) if size == sizes[n])
    once = tuple(dict.fromkeys(labels))
    size_here = dict(zip(labels, shape, strict=True))
    spread = {n for n in once if size_here[n] != sizes[n]}  # of size 1, broadcast in the forward
    target = tuple(n for n in once if n in known and n not in spread)
    result = _einsum([g, *others], (output, *other_labels), target)
    if target != once:
        result = result.reshape(tuple(sizes[n] if n in target else 1 for n in once))
        result = _expand(result, tuple(size_here[n] for n in once))
    if len(once) == len(labels):
        return result
    place = []  # the diagonal
    for n in labels:
        along = [1] * len(once)
        along[once.index(n)] = -1
        place.append(np.arange(size_here[n]).reshape(along))
    return _getitem_backward(result, shape, tuple(place))


derive("einsum", _einsum_back)
