# SPDX-License-Identifier: BSD-3-Clause
"""One program on modtree and on torch: results, dtypes, shapes, gradients and types of errors."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import modtree


def differentiated(function: Callable[..., Any], *arrays: Any) -> Callable[[Any], list[Any]]:
    """A program: the function of these arrays (of tensors of them, and of anything else as it is),
    and the gradients of a weighted sum of its results.
    """

    def program(lib: Any) -> list[Any]:
        inputs = [_leaf(lib, value) if isinstance(value, np.ndarray) else value for value in arrays]
        results = function(lib, *inputs)
        results = list(results) if isinstance(results, (tuple, list)) else [results]
        leaves = [x for x in inputs if isinstance(x, lib.Tensor) and x.requires_grad]
        total: Any = 0
        for y in results:
            if y.requires_grad:
                weights = np.asarray(np.cos(np.arange(y.numel())) + 0.5, _numpy(y).dtype)
                part = (y * lib.from_numpy(weights.reshape(tuple(y.shape)))).sum()
                total = total + (part.real if part.is_complex() else part)
        if leaves and isinstance(total, lib.Tensor):
            total.backward()
        return [*results, *(x.grad for x in leaves)]

    return program


def _leaf(lib: Any, array: np.ndarray) -> Any:
    tensor = lib.from_numpy(array.copy())
    return tensor.requires_grad_() if array.dtype.kind in "fc" else tensor


def _numpy(x: Any) -> np.ndarray:
    return x.detach().resolve_conj().numpy()


def _outcome(lib: Any, program: Callable[[Any], Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            results = program(lib)
        except Exception as error:
            return error
    results = results if isinstance(results, (tuple, list)) else [results]
    return [None if x is None else _numpy(x) if isinstance(x, lib.Tensor) else x for x in results]


def same(program: Callable[[Any], Any], tolerance: float = 1e-6) -> None:
    """Asserts that both give the same. An error of ours may be of a subclass of torch's type."""
    torch = importlib.import_module("torch")
    ours, theirs = _outcome(modtree, program), _outcome(torch, program)
    if isinstance(ours, Exception) or isinstance(theirs, Exception):
        names = [base.__name__ for base in type(ours).__mro__]
        assert type(theirs).__name__.lstrip("_") in names, f"{ours!r} instead of {theirs!r}"
        return
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        if not isinstance(other, np.ndarray):
            assert mine is other or mine == other
            continue
        assert mine is not None, "a gradient is missing"
        assert (mine.shape, mine.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(mine, other, rtol=tolerance, atol=tolerance)
