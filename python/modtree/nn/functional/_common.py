# SPDX-License-Identifier: BSD-3-Clause
"""Checks of arguments that the functions of this package share: tensors, sizes, reductions; and
texts of what exists for one, two and three axes.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from modtree._C import as_tuple, is_grad_enabled
from modtree.core.type_names import no_tensor
from modtree.numpy.tensor.tensor import Tensor

Sizes = tuple[int, ...]


def need_tensor(name: str, *arguments: Any) -> None:
    """Says what came instead of a tensor of ours."""
    for x in arguments:
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}: expected a modtree.Tensor, got {no_tensor(x)}")


def need_constants(name: str, **arguments: Any) -> None:
    """RuntimeError for what a function has no gradient for, rather than a gradient that is
    missing.
    """
    for keyword, value in arguments.items():
        if value is not None and value.requires_grad and is_grad_enabled():
            raise RuntimeError(
                f"The function '{name}' is not differentiable with respect to argument "
                f"'{keyword}'. This input cannot have requires_grad True: pass its detach()"
            )


def checked_dim(dim: int, ndim: int) -> int:
    limit = max(ndim, 1)
    if not -limit <= dim < limit:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-limit}, {limit - 1}], but "
            f"got {dim})"
        )
    return dim


# -- reductions of losses --------------------------------------------------------------------------


_REDUCTIONS = ("none", "mean", "sum")


def reduction_of(
    size_average: bool | None, reduce: bool | None, reduction: str, stacklevel: int = 3
) -> str:
    """``reduction``, or what the two arguments that came before it say."""
    if size_average is not None or reduce is not None:
        size_average = True if size_average is None else size_average
        is_reduced = reduce is None or reduce
        reduction = "none" if not is_reduced else "mean" if size_average else "sum"
        warnings.warn(
            f"size_average and reduce args will be deprecated, please use "
            f"reduction={reduction!r} instead.",
            stacklevel=stacklevel,
        )
    return reduction


def loss_reduction(
    size_average: bool | None, reduce: bool | None, reduction: str, stacklevel: int = 3
) -> str:
    """:func:`reduction_of`, checked."""
    if size_average is not None or reduce is not None:
        return reduction_of(size_average, reduce, reduction, stacklevel + 1)
    return reduction if reduction in _REDUCTIONS else checked_reduction(reduction)


def checked_reduction(reduction: str) -> str:
    if reduction not in _REDUCTIONS:
        raise ValueError(
            f"{reduction} is not a valid value for reduction: use 'none', 'mean' or 'sum'"
        )
    return reduction


def reduced(loss: Tensor, reduction: str) -> Tensor:
    """The mean or the sum of a loss, or the loss."""
    checked_reduction(reduction)
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


# -- one value or one for each axis ----------------------------------------------------------------


def tuple_of(value: Any, n: int) -> tuple[Any, ...]:
    """A sequence as it is, one value ``n`` times."""
    return as_tuple(value) if isinstance(value, Iterable) else (value,) * n


def _sizes(name: str, what: str, value: Any, n: int) -> Sizes | None:
    """``value`` for each of ``n`` axes; None if it has another number of ints."""
    try:
        if not isinstance(value, (tuple, list)):
            return (operator.index(value),) * n
        sizes = tuple(operator.index(v) for v in value)
    except TypeError:
        raise TypeError(
            f"{name}(): argument '{what}' must be an int or a tuple of ints, got {value!r}"
        ) from None
    return sizes * n if len(sizes) == 1 else sizes if len(sizes) == n else None


_WORDS = {1: "one int", 2: "two ints", 3: "three ints"}


def whole_size(name: str, what: str, value: Any) -> int:
    """A size as an int; of what is a flag or has a fraction, TypeError."""
    if isinstance(value, bool):
        raise TypeError(f"{name}(): expected {what} to be whole numbers, got {value!r}")
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name}(): expected {what} to be whole numbers, got {value!r}") from None


def pool_sizes(name: str, what: str, value: Any, n: int) -> Sizes:
    """``value`` for each of ``n`` axes, with the message of pooling."""
    sizes = _sizes(name, what, value, n)
    if sizes is None:
        raise RuntimeError(
            f"{name}: {what} must either be a single int, or a tuple of {_WORDS[n]}, got {value!r}"
        )
    return sizes


def conv_sizes(name: str, what: str, value: Any, n: int) -> Sizes:
    """``value`` for each of ``n`` axes, with the message of convolutions."""
    sizes = _sizes(name, what, value, n)
    if sizes is None:
        raise RuntimeError(
            f"expected {what} to be a single integer value or a list of {n} values to match the "
            f"convolution dimensions, but got {what}={list(map(operator.index, value))}"
        )
    return sizes


# -- what exists for one, two and three axes -------------------------------------------------------


def for_axes(n: int, text: str, **words: str) -> str:
    """A docstring for ``n`` axes, from one that has ``{sizes}``, ``{results}``, ``{first}``,
    ``{last}`` and ``{others}`` where they differ, and other words in braces.
    """
    names = "DHW"[-n:] if n > 1 else "L"
    return text.format(
        n=n,
        sizes=", ".join(names),
        results=", ".join(f"{name}'" for name in names),
        first=names[0],
        last=("last axis", "last two axes", "last three axes")[n - 1],
        others=", likewise for the others" if n > 1 else "",
        **words,
    )


def without_argument(text: str, argument: str) -> str:
    """A docstring without the line of an argument."""
    return "\n".join(line for line in text.split("\n") if f" {argument}:" not in line)


def named(function: Callable[..., Any], name: str, text: str) -> Any:
    """The function that was made for some axes, under its own name and with its docstring."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return function
