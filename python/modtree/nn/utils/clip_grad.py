# SPDX-License-Identifier: BSD-3-Clause
"""Gradients kept in bounds: by their norm together, or each value."""

from __future__ import annotations

import importlib
import math
import types
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from modtree import _C
from modtree.core import families

__all__ = [
    "clip_grad_norm",
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "get_total_norm",
]


def _listed(tensors: Any) -> list[Any]:
    return [tensors] if families.family_of(tensors) is not None else list(tensors)


def _grads(parameters: list[Any], caller: str) -> list[Any]:
    for family in {families.find(kind) for kind in set(map(type, parameters))}:
        if family is not None and family.immutable:
            family.library(caller)  # which says what to do instead
    return [p.grad for p in parameters if p.grad is not None]


def _library(tensors: list[Any], caller: str) -> Any:
    """The library that all the tensors are of; modtree if there are none.

    Raises:
        TypeError: one is no tensor, or they are of several libraries.
    """
    found: dict[str, Any] = {}
    for kind in set(map(type, tensors)):
        family = families.find(kind)
        if family is None:
            raise TypeError(f"{caller}: expected tensors, got {kind.__name__}")
        found[family.name] = family
    if len(found) > 1:
        raise TypeError(f"{caller}: tensors are of several libraries: {', '.join(sorted(found))}")
    for family in found.values():
        return family.library(caller)
    return importlib.import_module("modtree")


def get_total_norm(
    tensors: Any,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Any:
    """The norm of all elements of the tensors together, as a 0-d tensor; 0 for no tensors.

    Args:
        tensors: a tensor, or tensors of one library.
        norm_type: the order; ``float("inf")`` for the largest magnitude.
        error_if_nonfinite: raise if it is infinite or NaN.
        foreach: chooses an implementation of torch, for tensors of torch.

    Raises:
        RuntimeError: the norm is not finite and ``error_if_nonfinite`` is set.
    """
    tensors = _listed(tensors)
    library = _library(tensors, "get_total_norm")
    if library.__name__ != "modtree":
        return library.nn.utils.get_total_norm(tensors, norm_type, error_if_nonfinite, foreach)
    order = float(norm_type)
    if not tensors:
        return library.tensor(0.0)
    arrays = [tensor._array for tensor in tensors]
    kinds = {array.dtype for array in arrays}
    for kind in kinds:
        if kind.kind not in "fc":
            raise RuntimeError(
                f"a norm needs floating or complex elements, got {kind}; convert with .float() "
                f"first"
            )
    with np.errstate(all="ignore"):
        total = _norm(arrays, order)
        result = np.asarray(total, np.result_type(*kinds).type(0).real.dtype)
    if error_if_nonfinite and not math.isfinite(total):
        raise RuntimeError(
            f"The total norm of order {order} for gradients from `parameters` is non-finite "
            f"({total}), so it cannot be clipped. To disable this error and scale the gradients by "
            "the non-finite norm anyway, set `error_if_nonfinite=False`"
        )
    return _C.from_array(result)


def _norm(arrays: list[Any], order: float) -> float:
    """The norm of the norms of the arrays: of the order, that is the norm of all elements."""
    flats = [array.ravel(order="K") for array in arrays]
    # Squares of float16 overflow from 256 on.
    flats = [flat.astype(np.float32) if flat.dtype == np.float16 else flat for flat in flats]
    if order == 2:
        # Sums of squares need no root in between.
        squares = [float((np.vdot if f.dtype.kind == "c" else np.dot)(f, f).real) for f in flats]
        return math.sqrt(sum(squares))
    norms = [float(np.linalg.norm(flat, order)) if flat.size else 0.0 for flat in flats]
    return float(np.linalg.norm(norms, order))


def clip_grads_with_norm_(
    parameters: Any, max_norm: float, total_norm: Any, foreach: bool | None = None
) -> None:
    """Scales the gradients by ``max_norm / (total_norm + 1e-6)`` if that is below 1.

    Args:
        parameters: a tensor or tensors; those without gradient are passed over.
        max_norm: the norm they may have.
        total_norm: the one they have, as :func:`get_total_norm` gives it.
        foreach: chooses an implementation of torch, for tensors of torch.
    """
    parameters = _listed(parameters)
    grads = _grads(parameters, "clip_grads_with_norm_")
    if not grads:
        return
    library = _library(grads, "clip_grads_with_norm_")
    if library.__name__ != "modtree":
        library.nn.utils.clip_grads_with_norm_(parameters, max_norm, total_norm, foreach)
        return
    factor = float(max_norm) / (float(total_norm) + 1e-6)
    if factor >= 1.0:  # false for NaN, which goes into the gradients
        return
    with library.no_grad():
        for grad in grads:
            grad.mul_(factor)


def clip_grad_norm_(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Any:
    """Scales the gradients, in place, so that their norm together is at most ``max_norm``.

    Args:
        parameters: a tensor or tensors; those without gradient are passed over.
        max_norm: the norm they may have.
        norm_type: the order; ``float("inf")`` for the largest magnitude.
        error_if_nonfinite: raise instead of scaling by an infinite or NaN norm.
        foreach: chooses an implementation of torch, for tensors of torch.

    Returns:
        The norm they had, as a 0-d tensor.

    Raises:
        RuntimeError: the norm is not finite and ``error_if_nonfinite`` is set. Nothing has changed.

    Example:
        >>> weight = nn.Parameter(mt.zeros(2))
        >>> (weight * mt.tensor([3.0, 4.0])).sum().backward()
        >>> nn.utils.clip_grad_norm_([weight], 1.0)
        tensor(5.)
        >>> weight.grad
        tensor([0.6000, 0.8000])
    """
    exhausted = isinstance(parameters, types.GeneratorType)
    parameters = _listed(parameters)
    if exhausted and not parameters:
        warnings.warn(
            "`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=2
        )
    grads = _grads(parameters, "clip_grad_norm_")
    total = get_total_norm(grads, norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(parameters, max_norm, total, foreach)
    return total


def clip_grad_norm(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Any:
    """The old name of :func:`clip_grad_norm_`.

    Args:
        parameters: a tensor or tensors.
        max_norm: the norm they may have.
        norm_type: the order.
        error_if_nonfinite: raise instead of scaling by an infinite or NaN norm.
        foreach: chooses an implementation of torch, for tensors of torch.
    """
    warnings.warn(
        "`nn.utils.clip_grad_norm` is now deprecated in favor of `nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grad_value_(
    parameters: Any | Iterable[Any], clip_value: float, foreach: bool | None = None
) -> None:
    """Brings every value of the gradients, in place, into ``[-clip_value, clip_value]``.

    Args:
        parameters: a tensor or tensors; those without gradient are passed over.
        clip_value: the bound.
        foreach: chooses an implementation of torch, for tensors of torch.
    """
    parameters = _listed(parameters)
    grads = _grads(parameters, "clip_grad_value_")
    library = _library(grads, "clip_grad_value_")
    if library.__name__ != "modtree":
        library.nn.utils.clip_grad_value_(parameters, clip_value, foreach)
        return
    bound = float(clip_value)
    with library.no_grad():
        for grad in grads:
            grad.clamp_(min=-bound, max=bound)
