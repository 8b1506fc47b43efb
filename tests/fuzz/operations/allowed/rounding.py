# SPDX-License-Identifier: BSD-3-Clause
"""What may differ: values by rounding, range and NaN, in operations of all kinds."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..values import Named
from .failures import Allowed, arrays, bare, beyond, given, message


def rounded_to_narrow(f: Any) -> bool:
    """Values of float16, and what becomes of them and of float32 beside wider ones."""
    if f.word not in ("value", "gradient value"):
        return False
    given = f.line.keywords.get("dtype") or next(
        (v for v in f.line.values if hasattr(v, "name")), None
    )
    kinds = {np.dtype(a.dtype) if a.dtype.kind in "fc" else np.dtype("f") for a in arrays(f)}
    if given is not None and given.name in ("float16", "float32", "complex64"):
        kinds.add(np.dtype(given.name))
    if np.dtype(np.float16) in kinds:
        steps = bare(f).startswith(("RNN", "LSTM", "GRU"))  # each of which rounds
        near = 1e-2 if f.word == "value" else 5e-2
        if steps and f.word != "value":
            return True
    elif bare(f).startswith(("RNN", "LSTM", "GRU")) and np.dtype("f") in kinds:
        near = 1e-3  # gates saturate
    elif len(kinds) > 1 and kinds & {np.dtype("f"), np.dtype("F")}:
        near = 1e-5
    else:
        return False
    what = "results" if f.word == "value" else "gradients"
    for a, b in zip(getattr(f.theirs, what), getattr(f.ours, what), strict=True):
        if isinstance(a, np.ndarray) and a.size and a.dtype.kind in "fc":
            with np.errstate(all="ignore"):
                a, b = a.astype(complex), b.astype(complex)
                largest = np.abs(a[np.isfinite(a)]).max(initial=0.0)
            if not np.allclose(a, b, near, near * largest, equal_nan=True):
                return False
    return True


def half_beside_complex(f: Any) -> bool:
    kinds = {a.dtype.str[1:] for a in arrays(f)}
    if "'ComplexHalf'" in message(f) and f.word in ("accepted", "backward accepted"):
        return True
    return f.word == "dtype" and "f2" in kinds and bool(kinds & {"c8", "c16"})


def several_dtypes(f: Any) -> bool:
    """torch computes some gradients in the dtype of one operand, where integers wrap around."""
    names = ("addcdiv", "addcmul", "lerp", "hypot", "atan2", "logaddexp", "logaddexp2", "ldexp")
    names += ("div", "divide", "true_divide", "truediv", "itruediv", "mul", "multiply", "imul")
    names += ("pow", "float_power", "xlogy", "copysign", "nextafter", "cumprod", "prod", "sub")
    names += ("arctan2", "remainder", "fmod", "mod", "imod", "rsub", "add", "ipow", "renorm")
    kinds = {a.dtype for a in arrays(f)}
    given = f.line.keywords.get("dtype") is not None
    return bare(f) in names and f.word == "gradient value" and (len(kinds) > 1 or given)


def odd_numbers(f: Any) -> bool:
    """NaN, infinite and enormous numbers as parameters: limits, factors, corrections."""
    # Times the largest values that are drawn, they overflow.
    kinds = [str(a.dtype) for a in arrays(f)]
    kinds += [v.name for v in f.line.keywords.values() if isinstance(v, Named)]
    limit, least = 6e4 if "float16" in kinds else 1e9, 0.0
    if any(part in bare(f) for part in ("norm", "dist", "triplet")):
        limit, least = 100, 1e-3  # powers of it are taken
    odd = [v for v in given(f) if not (v == 0 or least < abs(v) < limit)]
    if odd and f.word in ("accepted", "error type") and "without overflow" in message(f):
        return True
    if odd and f.word == "refused" and "does not fit" in f.ours.error[1]:
        return True
    fraction = bare(f) == "logit"  # of which the limit is a fraction
    if f.word == "accepted":
        return bool(odd) and "without overflow" in message(f)
    if f.word == "backward accepted":
        return bool(odd)
    half = limit < 1e9 and f.word == "refused" and "without overflow" in f.ours.error[1]
    return half or f.word in ("value", "gradient value") and bool(odd or fraction and given(f))


def complex_at_infinity(f: Any) -> bool:
    def odd(a: Any) -> bool:
        with np.errstate(all="ignore"):
            return a.dtype.kind == "c" and not (np.abs(a) < 1e18).all()

    results = [a for a in f.theirs.results if isinstance(a, np.ndarray)]
    return f.word in ("value", "gradient value") and any(odd(a) for a in [*arrays(f), *results])


def cancelling_terms(f: Any) -> bool:
    names = ("cumsum", "index_add", "mean", "nanmean", "nansum", "sum")
    return bare(f) in names and f.word == "value" and any(beyond(a, 1e9) for a in arrays(f))


ALLOWED = [
    Allowed("values of float16, alone and beside", rounded_to_narrow),
    Allowed("float16 beside complex numbers", half_beside_complex),
    Allowed("gradients where operands of several dtypes meet", several_dtypes),
    Allowed("NaN, infinite and enormous numbers as parameters", odd_numbers),
    Allowed("complex numbers with infinite or NaN parts", complex_at_infinity),
    Allowed("sums of large terms that cancel", cancelling_terms),
]
