# SPDX-License-Identifier: BSD-3-Clause
"""What may differ: values by rounding, range and NaN, in operations of all kinds."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compare import TOLERANCE
from ..values import Named, TensorValue
from .failures import (
    OUTCOMES,
    Allowed,
    agree_where_finite,
    arrays,
    bare,
    beyond,
    given,
    largest_of,
    message,
)


def rounded_to_narrow(f: Any) -> bool:
    """Results in a wide dtype of what was computed in a narrower one, by the narrow one's rounding:
    of operands of several dtypes, and with ``dtype=``.
    """
    if f.word not in ("value", "gradient value"):
        return False
    named = [v.name for v in (*f.line.values, *f.line.keywords.values()) if isinstance(v, Named)]
    # Integers are computed in float32.
    given = ("float32" if a.dtype.kind in "biu" else str(a.dtype) for a in arrays(f))
    kinds = {name for name in (*named, *given) if name in TOLERANCE}
    near = max((TOLERANCE[name] for name in kinds), default=0.0)
    if near <= min((TOLERANCE[name] for name in kinds), default=0.0):
        return False
    return differ_by(f, near)


def saturated_gates(f: Any) -> bool:
    """Recurrent layers: their gradients have factors of what is left to 1, and each step rounds."""
    if not bare(f).startswith(("RNN", "LSTM", "GRU")) or not f.word.endswith("value"):
        return False
    kinds = {str(a.dtype) for a in arrays(f)}
    single = kinds & {"float32", "complex64"}
    near = 1e-2 if "float16" in kinds else 1e-5 if single else 1e-12
    return differ_by(f, near if f.word == "value" else 5 * near)


def sums_of_halves(f: Any) -> bool:
    """torch adds up the gradient of pooled elements, and weighs pixels of a grid, in float16."""
    halves = any(a.dtype == np.float16 for a in arrays(f))
    pooled = "_pool" in bare(f) and f.word == "gradient value"
    weighed = bare(f) == "grid_sample" and f.word.endswith("value")
    if not halves or not (pooled or weighed):
        return False
    both = (getattr(outcome, OUTCOMES[f.word]) for outcome in (f.theirs, f.ours))
    pairs = [pair for pair in zip(*both, strict=True) if pair[0] is not None]
    return all(np.allclose(a, b, 8e-3, 8e-3, equal_nan=True) for a, b in pairs)


def differ_by(f: Any, near: float) -> bool:
    """True if values differ by at most this share of the largest given, or of their own size."""
    largest = max(map(largest_of, arrays(f)), default=0.0)
    both = (getattr(outcome, OUTCOMES[f.word]) for outcome in (f.theirs, f.ours))
    for a, b in zip(*both, strict=True):
        if isinstance(a, np.ndarray) and a.dtype.kind in "fc":
            with np.errstate(all="ignore"):
                a, b = a.astype(complex), b.astype(complex)
            size = max(largest, largest_of(a))
            if not np.allclose(a, b, 8 * near, near * size, equal_nan=True):
                return False
    return True


def half_beside_complex(f: Any) -> bool:
    kinds = {a.dtype.str[1:] for a in arrays(f)}
    if "'ComplexHalf'" in message(f) and f.word in ("accepted", "backward accepted"):
        return True
    return f.word == "dtype" and "f2" in kinds and bool(kinds & {"c8", "c16"})


def several_dtypes(f: Any) -> bool:
    """torch computes some gradients in the dtype of one operand, where integers wrap around."""
    names = ("addcdiv", "addcmul", "lerp", "atan2", "logaddexp")
    names += ("div", "divide", "true_divide", "truediv", "itruediv", "mul", "multiply", "imul")
    names += ("pow", "cumprod", "prod", "sub")
    names += (
        "soft_margin_loss",
        "remainder",
        "fmod",
        "mod",
        "imod",
        "add",
        "ipow",
    )
    kinds = {a.dtype for a in arrays(f)}
    given = f.line.keywords.get("dtype") is not None
    return bare(f) in names and f.word == "gradient value" and (len(kinds) > 1 or given)


def power_of(f: Any) -> float:
    """The p of a norm."""
    named = [f.line.keywords[name] for name in ("p", "ord", "norm_type") if name in f.line.keywords]
    tensors = sum(isinstance(v, TensorValue) for v in f.line.values[:2])
    power = (*named, *f.line.values[tensors : tensors + 1], 2.0)[0]
    return float(power) if isinstance(power, (int, float)) else 2.0


def steep_powers(f: Any) -> bool:
    """Roots of sums of powers so large or small that they amplify roundings, and overflow."""
    parts = ("norm", "dist", "triplet", "normalize")
    named = f.word.endswith("value") and any(part in bare(f) for part in parts)
    return named and not (1e-3 < abs(power_of(f)) < 100 or power_of(f) == 0)


#: What takes numbers that overflow, beside norms, distances and losses.
FACTORS_AND_LIMITS = tuple(
    "celu elu leaky_relu threshold hardtanh hardshrink softshrink softplus logit "
    "add sub subtract addmm baddbmm addcdiv addcmul lerp "
    "pow ipow var std var_mean std_mean normalize "
    "contains linspace".split()
)


def odd_numbers(f: Any) -> bool:
    """NaN, infinite and enormous numbers as parameters: limits, factors, corrections."""
    # Times the largest values that are drawn, they overflow.
    kinds = [str(a.dtype) for a in arrays(f)]
    kinds += [v.name for v in f.line.keywords.values() if isinstance(v, Named)]
    limit = 6e4 if "float16" in kinds else 1e9
    odd = [v for v in given(f) if not abs(v) < limit]
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
    if half or f.word not in ("value", "gradient value"):
        return half
    nan_limit = bare(f) == "hardtanh" and any(v != v for v in odd)  # the slope asks for the result
    part = any(part in bare(f) for part in ("norm", "dist", "loss", "_pool", "similarity"))
    known = part or bare(f) in FACTORS_AND_LIMITS
    return nan_limit or (known and bool(odd or fraction and given(f)) and agree_where_finite(f))


#: Functions of complex numbers that go to a limit, which torch's formulas of parts do not reach.
LIMITS = tuple("abs absolute sgn atanh logaddexp logsumexp logcumsumexp outer".split())


def complex_at_infinity(f: Any) -> bool:
    def odd(a: Any) -> bool:
        with np.errstate(all="ignore"):
            return a.dtype.kind == "c" and not (np.abs(a) < 1e18).all()

    results = [a for a in f.theirs.results if isinstance(a, np.ndarray)]
    if bare(f) not in LIMITS or f.word not in ("value", "gradient value"):
        return False
    return any(odd(a) for a in [*arrays(f), *results]) and agree_where_finite(f)


def cancelling_terms(f: Any) -> bool:
    names = ("cumsum", "index_add", "mean", "sum")
    return bare(f) in names and f.word == "value" and any(beyond(a, 1e9) for a in arrays(f))


ALLOWED = [
    Allowed("values of float16 and float32 beside wider ones", rounded_to_narrow),
    Allowed("recurrent layers whose gates saturate", saturated_gates),
    Allowed("gradients of `group_norm`, `layer_norm`", sums_of_halves),
    Allowed("float16 beside complex numbers", half_beside_complex),
    Allowed("gradients where operands of several dtypes meet", several_dtypes),
    Allowed("NaN, infinite and enormous numbers as parameters", odd_numbers),
    Allowed("NaN, infinite and enormous numbers as parameters", steep_powers),
    Allowed("complex numbers with infinite or enormous parts", complex_at_infinity),
    Allowed("sums of large terms that cancel", cancelling_terms),
]
