# SPDX-License-Identifier: BSD-3-Clause
"""bincount, histc, searchsorted, bucketize, isin, unique_consecutive, mode, nanmedian, cov."""

from __future__ import annotations

import math
from collections import namedtuple
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from modtree._C import TensorBase, as_dtype, fitted_number, get_default_dtype
from modtree._ops.generic import rows_of, shared_evenly, wrap_dim
from modtree._ops.registry import define, derive, export, not_differentiable, ops
from modtree._ops.sort import check_slices, refuse_keepdim

if TYPE_CHECKING:
    from modtree._argument_types import Number, Operand, Tensor, ValuesIndices

_mode_result = namedtuple("mode", ["values", "indices"])  # type: ignore[name-match]
_nanmedian_result = namedtuple("nanmedian", ["values", "indices"])  # type: ignore[name-match]

# -- counting --------------------------------------------------------------------------------------


def _bincount(x: Any, weights: Any, minlength: int) -> Any:
    if x.dtype.kind not in "iu":
        raise NotImplementedError(
            f"\"bincount\" not implemented for '{x.dtype}': it counts integers"
        )
    if x.ndim != 1 or (x.size and x.min() < 0):
        raise RuntimeError(
            f"bincount only supports 1-d non-negative integral inputs (got shape "
            f"{list(x.shape)}, {x.dtype})"
        )
    single = weights is not None and weights.dtype == np.float32
    if weights is not None and weights.dtype.kind == "c":
        weights = weights.real
    result = np.bincount(x, weights, minlength)
    return result.astype(np.float32) if single else result


def _histc(x: Any, bins: int, low: Any, high: Any) -> Any:
    if low == high and x.size:
        low, high = x.min(), x.max()
    if low == high:
        low, high = low - 1, high + 1
    if low == high and np.isfinite(low):  # so large that 1 is lost beside it
        counts = np.zeros(bins, x.dtype)
        counts[0 if x.dtype == np.float16 else bins // 2] = x.size
        return counts
    if not low < high or not np.isfinite([low, high]).all():
        return np.histogram(x, bins, (low, high))[0].astype(x.dtype)  # which refuses it
    inside = x[(x >= low) & (x <= high)]
    places = ((inside - low) * bins / (high - low)).astype(np.int64)
    return np.bincount(np.minimum(places, bins - 1), minlength=bins).astype(x.dtype)


def _searchsorted(sequence: Any, values: Any, right: bool) -> Any:
    side = "right" if right else "left"
    if sequence.ndim == 1:
        return np.searchsorted(sequence, values, side).astype(np.int64)
    rows, wanted = rows_of(sequence), rows_of(values)
    found = [np.searchsorted(row, v, side) for row, v in zip(rows, wanted, strict=True)]
    return np.asarray(found, np.int64).reshape(values.shape)


define("bincount", _bincount)
define("histc", _histc)
define("searchsorted", _searchsorted)
define("isin", lambda x, y, invert: np.isin(x, y, invert=invert))


def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each number from 0 up occurs, or the sums of weights.

    Args:
        weights: What each element adds in place of 1.
        minlength: The least length of the result.
    """
    if not input.numel():  # torch passes over the weights, whatever their shape
        weights = None
    return ops["bincount"](input, weights, minlength)


def histc(input: Tensor, bins: int = 100, min: Number = 0, max: Number = 0) -> Tensor:  # noqa: A002
    """Counts in bins of equal width from min to max; from the smallest to the largest value where
    both are equal.

    Args:
        bins: Number of bins.
        min: Lower end.
        max: Upper end.
    """
    if bins <= 0:
        raise RuntimeError(f"histc(): bins must be > 0, but got {bins}")
    limits = (fitted_number(limit, input.dtype) for limit in (min, max))
    return ops["histc"](input, bins, *limits)


def searchsorted(
    sorted_sequence: Tensor,
    input: Operand,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
) -> Tensor:
    """Where values belong in a sorted sequence (or each row's values in its row).

    Args:
        sorted_sequence: Sorted along its last dimension.
        input: The values.
        out_int32: Indices of int32 in place of int64.
        right: Behind elements that are equal, else in front of them.
        side: "left" or "right", NumPy's form of ``right``.
    """
    if side not in (None, "left", "right"):
        raise RuntimeError(f"searchsorted(): side can only be 'left' or 'right' but got {side}")
    if side == "left" and right:
        raise RuntimeError(
            "searchsorted(): side and right contradict each other, got left and True"
        )
    right = right if side is None else side == "right"
    values = input if isinstance(input, TensorBase) else np.asarray(input)
    kind = sorted_sequence.dtype.dtype
    own = values.dtype if isinstance(values, np.ndarray) else values.dtype.dtype
    if "c" in own.kind + kind.kind or own.kind == kind.kind == "b":
        raise NotImplementedError(f'"searchsorted" not implemented for {own}')
    lead = sorted_sequence.shape[:-1]
    if sorted_sequence.ndim != 1 and (values.ndim == 0 or values.shape[:-1] != lead):
        raise RuntimeError(
            f"searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions "
            f"of boundaries tensor and input value tensor must match, got "
            f"{list(sorted_sequence.shape)} and {list(values.shape)}"
        )
    if isinstance(values, np.ndarray) and values.dtype.kind == "i" and kind.kind in "iu":
        values = values.astype(kind)  # a number takes the dtype of what it is compared with
    found = ops["searchsorted"](sorted_sequence, values, right)
    return found.to(as_dtype("int32")) if out_int32 else found


def bucketize(
    input: Operand, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """The bucket of each value between sorted boundaries.

    Args:
        boundaries: A sorted vector.
        out_int32: Indices of int32 in place of int64.
        right: A value that equals a boundary belongs to the bucket behind it, else in front of it.
    """
    if boundaries.ndim != 1:
        raise RuntimeError(
            f"bucketize(): boundaries tensor must be 1 dimension, but got dim({boundaries.ndim})"
        )
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


def isin(
    elements: Operand, test_elements: Operand, *, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    """Which elements are among the test elements?

    Args:
        elements: A tensor or a number.
        test_elements: A tensor or a number.
        assume_unique: Neither has an element twice; makes no difference.
        invert: Which are not?
    """
    for given in (elements, test_elements):
        if isinstance(given, (bool, complex)):
            raise RuntimeError(
                f"Unsupported input type encountered for isin(): {type(given).__name__}"
            )
        if isinstance(given, TensorBase) and given.dtype.dtype.kind in "bc":
            raise RuntimeError(f"Unsupported input type encountered for isin(): {given.dtype}")
    return ops["isin"](elements, test_elements, invert)


@overload
def unique_consecutive(
    input: Tensor,
    return_inverse: Literal[False] = False,
    return_counts: Literal[False] = False,
    dim: int | None = None,
) -> Tensor: ...
@overload
def unique_consecutive(
    input: Tensor,
    return_inverse: Literal[False] = False,
    *,
    return_counts: Literal[True],
    dim: int | None = None,
) -> tuple[Tensor, Tensor]: ...
@overload
def unique_consecutive(
    input: Tensor,
    return_inverse: Literal[True],
    return_counts: Literal[False] = False,
    dim: int | None = None,
) -> tuple[Tensor, Tensor]: ...
@overload
def unique_consecutive(
    input: Tensor,
    return_inverse: Literal[True],
    return_counts: Literal[True],
    dim: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]: ...
@overload
def unique_consecutive(
    input: Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any: ...
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """Values, or slices along dim, without their repetitions next to each other.

    Args:
        return_inverse: Also the index into the result for each element.
        return_counts: Also how often each value occurs.
        dim: The dimension whose slices are compared; the flattened input without.
    """
    if dim is not None:
        dim = wrap_dim(dim, input.ndim)
        if input.ndim == 0:
            raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
        check_slices(input, dim)
    result = ops["unique_consecutive"](input, return_inverse, return_counts, dim)
    return result if return_inverse or return_counts else result[0]


def _unique_consecutive(x: Any, inverse: bool, counts: bool, axis: int | None) -> Any:
    alone = axis is None or x.ndim == 0
    size = 1 if alone else math.prod(n for i, n in enumerate(x.shape) if i != axis)
    rows = (x if alone else np.moveaxis(x, axis, 0)).reshape(-1 if alone else x.shape[axis], size)
    first = np.ones(len(rows), bool)
    first[1:] = (rows[1:] != rows[:-1]).any(1)
    results = [x.reshape(-1)[first] if alone else np.compress(first, x, axis)]
    if inverse:
        places = np.cumsum(first) - 1
        results.append(places.reshape(x.shape) if alone else places)
    if counts:
        results.append(np.diff(np.append(np.flatnonzero(first), len(rows))))
    return tuple(results)


define("unique_consecutive", _unique_consecutive)

# -- indices ---------------------------------------------------------------------------------------


def _mode_indices(x: Any, axis: int) -> Any:
    """The last index of the most frequent value, the smallest one of equally frequent ones; the
    axis is kept as 1.
    """
    if x.size == 0 or x.ndim == 0:
        return np.zeros([1 if i == axis % x.ndim else n for i, n in enumerate(x.shape)], np.int64)

    def of_row(row: Any) -> int:
        values, counts = np.unique(row, return_counts=True, equal_nan=False)
        found = np.flatnonzero(row == values[counts.argmax()])
        return found[-1] if found.size else 0  # all are NaN, of which no two are equal

    return np.apply_along_axis(lambda row: np.array([of_row(row)]), axis, x).astype(np.int64)


def _nanmedian_indices(x: Any, axis: int) -> Any:
    if x.ndim == 0:
        return np.zeros((), np.int64)
    known = np.maximum((~np.isnan(x)).sum(axis, keepdims=True) - 1, 0) // 2
    return np.take_along_axis(np.argsort(x, axis, kind="stable"), known, axis).astype(np.int64)


define("mode_indices", _mode_indices)
define("nanmedian_indices", _nanmedian_indices)


def _nanmedian(x: Any) -> Any:
    flat = np.sort(x, axis=None)
    known = int(np.count_nonzero(~np.isnan(flat)))
    return flat[max(known - 1, 0) // 2] if flat.size else np.full((), np.nan, x.dtype)


define("nanmedian", _nanmedian)


def _taken(name: str, result_type: Any, input: Any, dim: int, keepdim: bool | None) -> Any:
    if input.ndim == 0:
        wrap_dim(dim, 0)
    elif input.size(dim) == 0:
        shown = name.partition("_")[0]
        raise IndexError(
            f"{shown}(): Expected reduction dim {wrap_dim(dim, input.ndim)} to have non-zero size."
        )
    indices = ops[name](input, dim)
    values = ops["take_along_dim"](input, indices, dim)
    if keepdim or input.ndim == 0:
        return result_type(values, indices)
    return result_type(values.squeeze(dim), indices.squeeze(dim))


def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
    """The most frequent value along dim and its last index.

    Args:
        dim: The dimension; may count from the end.
        keepdim: Leave the dimension in the result, with size 1.
    """
    return _taken("mode_indices", _mode_result, input, dim, keepdim)


@overload
def nanmedian(input: Tensor, dim: None = None, keepdim: None = None) -> Tensor: ...
@overload
def nanmedian(input: Tensor, dim: int, keepdim: bool | None = None) -> ValuesIndices: ...
def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool | None = None) -> Any:
    """The median of what is not NaN (the lower one of two); with dim also its index.

    Args:
        dim: The dimension; all elements without.
        keepdim: Leave the dimension in the result, with size 1; only with dim.
    """
    if dim is None:
        refuse_keepdim("nanmedian", keepdim)
        return ops["nanmedian"](input)
    return _taken("nanmedian_indices", _nanmedian_result, input, dim, keepdim)


# -- covariance ------------------------------------------------------------------------------------


def cov(
    input: Tensor,
    *,
    correction: int = 1,
    fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Tensor:
    """The covariance matrix of variables in rows, with observations in columns that may be counted
    or weighted.

    Args:
        correction: Subtracted from the number of observations in the divisor.
        fweights: How often each observation counts: integers.
        aweights: The weight of each observation.

    Shape:
        - input: (variables, observations), or one variable, (observations).
        - output: (variables, variables), or ().
    """
    if input.ndim > 2:
        raise RuntimeError(
            f"cov(): expected input to have two or fewer dimensions but got {input.ndim} dimensions"
        )
    if input.dtype.name == "bool":
        raise RuntimeError("cov(): bool dtype is not supported for input")
    x = input if input.ndim == 2 else input.reshape(1, input.numel())
    if not (x.is_floating_point() or x.is_complex()):
        x = x.to(get_default_dtype())
    weights: Any = None
    for name, given in (("fweights", fweights), ("aweights", aweights)):
        if given is not None:
            if given.ndim > 1:
                raise RuntimeError(
                    f"cov(): expected {name} to have one or fewer dimensions but got {name} with "
                    f"{given.ndim} dimensions"
                )
            fits = given.is_floating_point() is (name == "aweights")
            if not fits or given.is_complex() or given.dtype.name == "bool":
                raise RuntimeError(
                    f"cov(): expected fweights to have integral dtype and aweights to have "
                    f"floating point dtype but got {name} with {given.dtype} dtype"
                )
            if given.numel() != x.shape[1]:
                raise RuntimeError(
                    f"cov(): expected {name} to have the same numel as there are observations in "
                    f"the input but got {given.numel()} != {x.shape[1]}"
                )
            if (given.detach() < 0).any():
                raise RuntimeError(f"cov(): {name} cannot be negative")
            weights = given if weights is None else weights * given
    if weights is None:
        total: Any = x.size(1)
        centred = x - x.mean(1, keepdim=True)
        product = centred @ centred.conj().mT
    else:
        total = weights.sum()
        if total.numel() and not total.detach():
            raise RuntimeError("cov(): weights sum to zero, can't be normalized")
        centred = x - (x * weights).sum(1, keepdim=True) / total
        product = (centred * weights) @ centred.conj().mT
    if aweights is not None and correction:
        free = total - correction * (weights * aweights).sum() / total
    else:
        free = total - correction
    if isinstance(free, TensorBase):
        free = free.clamp(min=0)  # type: ignore[attr-defined]
    else:
        free = x.new_tensor(float(max(free, 0)))  # a tensor can divide by 0
    return (product / free).squeeze()  # of one variable a number, also where it is a row


def corrcoef(input: Tensor) -> Tensor:
    """The matrix of Pearson's correlation coefficients of variables in rows.

    Shape:
        - input: (variables, observations), or one variable, (observations).
        - output: (variables, variables), or ().
    """
    c = cov(input)
    if c.ndim == 0:
        return c / c
    scale = c.diagonal().real.sqrt() if c.is_complex() else c.diagonal().sqrt()
    c = c / scale.unsqueeze(1) / scale.unsqueeze(0)
    if not c.is_complex():
        return c.clamp(-1, 1)
    return c.real.clamp(-1, 1) + c.imag.clamp(-1, 1) * 1j


_function: Any  # of one type after another
for _function in (bincount, histc, mode, nanmedian, cov, corrcoef, unique_consecutive):
    export(_function.__name__, _function)


for _function in (searchsorted, bucketize, isin):
    export(_function.__name__, _function, method=False)

# -- derivatives -----------------------------------------------------------------------------------


def _unique_consecutive_refused(*_args: Any) -> Any:
    raise NotImplementedError(
        "unique_consecutive() has no derivative: call it on tensor.detach(), or under "
        "modtree.no_grad()"
    )


derive("unique_consecutive", _unique_consecutive_refused)


def _bincount_refused(*_args: Any) -> Any:
    raise NotImplementedError(
        "bincount() has no derivative: call it on weights.detach(), or under modtree.no_grad()"
    )


derive("bincount", None, _bincount_refused)

not_differentiable("histc", "searchsorted", "isin", "mode_indices", "nanmedian_indices")
derive("nanmedian", shared_evenly)
