# SPDX-License-Identifier: BSD-3-Clause
"""What a line does in one library, and whether two libraries did the same."""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import numpy as np

from .values import build

#: How far results may be apart, relative to the largest of them.
TOLERANCE = {"float16": 4e-3, "float32": 3e-5, "float64": 1e-9}
TOLERANCE |= {"complex64": 3e-5, "complex128": 1e-9}


class Unknown(Exception):
    """A result of a dtype or a layout that one library or NumPy does not have."""


class Outcome(NamedTuple):
    error: tuple[type, str] | None
    results: tuple[Any, ...] = ()  # arrays, dtypes by name, Python's numbers
    structure: str = ""
    arguments: tuple[Any, ...] = ()  # after the call
    requires_grad: tuple[bool, ...] = ()
    backward_error: tuple[type, str] | None = None
    gradients: tuple[Any, ...] = ()


def run(function: Any, mt: Any, values: list[Any], keywords: dict[str, Any], written: bool) -> Any:
    """``written``: the function changes its first argument, which so must be no leaf."""
    leaves: list[Any] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            args = [build(v, mt, leaves) for v in values]
            kwargs = {k: build(v, mt, leaves) for k, v in keywords.items()}
            if written and isinstance(args[0], mt.Tensor) and args[0].requires_grad:
                args[0] = args[0].clone()
            given = function(*args, **kwargs)
            flat: list[Any] = []
            structure = flatten(given, mt, flat)
    except Exception as error:
        return Outcome((type(error), str(error)))
    results = tuple(plain(v, mt) for v in flat)
    arguments = tuple(array_of(x) for x in leaves)
    tensors = [v for v in flat if isinstance(v, mt.Tensor)]
    wants = tuple(bool(t.requires_grad) for t in tensors)
    failed, gradients = derive(mt, tensors, leaves)
    return Outcome(None, results, structure, arguments, wants, failed, gradients)


def derive(mt: Any, tensors: list[Any], leaves: list[Any]) -> tuple[Any, tuple[Any, ...]]:
    """The gradients of the leaves, for a fixed cotangent of each result."""
    wanting = [t for t in tensors if t.requires_grad]
    if not wanting:
        return None, ()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mt.autograd.backward(wanting, [cotangent(t, mt) for t in wanting])
    except Exception as error:
        return (type(error), str(error)), ()
    return None, tuple(
        array_of(x.grad) if x.is_leaf and x.grad is not None else None for x in leaves
    )


def cotangent(t: Any, mt: Any) -> Any:
    shape = tuple(t.shape)
    flat = np.cos(np.arange(1.0, math.prod(shape) + 1)).reshape(shape)
    if t.is_complex():
        flat = flat + 1j * np.sin(flat * 3)
    return mt.from_numpy(np.array(flat.reshape(shape))).to(t.dtype)


def flatten(value: Any, mt: Any, into: list[Any]) -> str:
    """The leaves of a result; returns its structure, in which all kinds of tuples are one."""
    if isinstance(value, (tuple, list)) and not isinstance(value, getattr(mt, "Size", ())):
        inner = ", ".join(flatten(v, mt, into) for v in value)
        return f"({inner})" if isinstance(value, tuple) else f"[{inner}]"
    into.append(value)
    return "tensor" if isinstance(value, mt.Tensor) else type(value).__name__


def array_of(t: Any) -> Any:
    if str(t.dtype).endswith(("complex32", "bfloat16")):
        raise Unknown
    if any(n < 0 for n in t.shape) or "sparse" in str(t.layout):
        raise Unknown
    return t.detach().resolve_conj().resolve_neg().numpy(force=True)


def plain(value: Any, mt: Any) -> Any:
    if isinstance(value, mt.Tensor):
        return array_of(value)
    if isinstance(value, mt.dtype):
        return str(value).rpartition(".")[2]
    if isinstance(value, tuple):
        return tuple(value)
    if isinstance(value, (bool, int, float, complex, str, type(None))):
        return value
    return type(value).__name__


def difference(theirs: Outcome, ours: Outcome) -> str | None:
    """A word for the first thing in which the two differ."""
    if (theirs.error is None) != (ours.error is None):
        return "refused" if theirs.error is None else "accepted"
    if theirs.error is not None and ours.error is not None:
        return None if same_error(theirs.error[0], ours.error[0]) else "error type"
    if theirs.structure != ours.structure:
        return "structure"
    for a, b in zip(theirs.results, ours.results, strict=True):
        if word := differ(a, b):
            return word
    for a, b in zip(theirs.arguments, ours.arguments, strict=True):
        if differ(a, b):
            return "argument afterwards"
    if theirs.requires_grad != ours.requires_grad:
        return "requires_grad"
    return differ_in_gradients(theirs, ours)


def differ_in_gradients(theirs: Outcome, ours: Outcome) -> str | None:
    if (theirs.backward_error is None) != (ours.backward_error is None):
        return "backward refused" if theirs.backward_error is None else "backward accepted"
    if theirs.backward_error is not None and ours.backward_error is not None:
        same = same_error(theirs.backward_error[0], ours.backward_error[0])
        return None if same else "backward error type"
    for a, b in zip(theirs.gradients, ours.gradients, strict=True):
        if (a is None) != (b is None):
            return "gradient is None"
        if a is not None and (word := differ(a, b)):
            return f"gradient {word}"
    return None


def same_error(theirs: type, ours: type) -> bool:
    """One type, or a narrower one; by name, since each library has a LinAlgError of its own, which
    torch's code calls _LinAlgError.
    """
    return issubclass(ours, theirs) or theirs.__name__.lstrip("_") == ours.__name__


def differ(a: Any, b: Any) -> str | None:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if a.dtype != b.dtype:
            return "dtype"
        if a.shape != b.shape:
            return "shape"
        return None if close(a, b) else "value"
    if isinstance(a, (bool, str, tuple, type(None))) or type(a) is not type(b):
        return None if type(a) is type(b) and a == b else "value"
    return None if close(np.asarray(a), np.asarray(b)) else "value"


def close(a: Any, b: Any) -> bool:
    tolerance = TOLERANCE.get(str(a.dtype))
    if tolerance is None or a.size == 0:
        return bool(np.array_equal(a, b))
    if a.dtype.kind == "c":
        # What is infinite or NaN in part depends on the order in which parts are multiplied.
        finite = np.isfinite(a)
        if not np.array_equal(finite, np.isfinite(b)):
            return False
        a, b = a[finite], b[finite]
    with np.errstate(all="ignore"):
        finite = np.abs(a[np.isfinite(a)])
        largest = float(finite.max()) if finite.size else 0.0
        relative = tolerance * np.abs(np.nan_to_num(a)) * 8
        near = np.abs(a - b) <= relative + tolerance * min(largest, 1e4) + tolerance / 100
        return bool((near | (a == b) | (np.isnan(a) & np.isnan(b))).all())
