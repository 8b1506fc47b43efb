# SPDX-License-Identifier: BSD-3-Clause
"""What may differ: operations element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..values import TensorValue
from .failures import Allowed, arrays, bare, beyond, given, message


def fused_product(f: Any) -> bool:
    """A product that overflows beside an infinity."""
    return (
        bare(f) in ("addcmul", "add", "sub")
        and f.word == "value"
        and (
            any(np.isinf(a).any() for a in arrays(f) if a.dtype.kind in "fc")
            and any(beyond(a, 1e18) for a in arrays(f))
        )
    )


def overflowing_quotient(f: Any) -> bool:
    return (
        bare(f) in ("remainder", "mod", "imod", "fmod")
        and f.word == "value"
        and (any(beyond(a, 1e18) for a in arrays(f)))
    )


def beyond_the_dtype(f: Any) -> bool:
    numbers = [v for v in f.line.values if isinstance(v, (int, float)) and abs(v) > 100]
    if bare(f) == "hinge_embedding_loss" and f.word == "value":
        return any(a.dtype == np.uint8 for a in arrays(f))
    negative = [v for v in f.line.values if isinstance(v, (int, float)) and v < 0]
    return f.word == "value" and bool(numbers or negative) and bare(f) in COMPARISONS


COMPARISONS = ("lt le gt ge eq ne less less_equal greater greater_equal not_equal").split()


def largest_integers(f: Any) -> bool:
    names = ("softsign", "isclose", "allclose")
    whole = all(a.dtype.kind in "iu" for a in arrays(f)[:2])
    large = any(beyond(a, 100) for a in arrays(f))
    return bare(f) in names and f.word == "value" and (bare(f) == "softsign" or whole and large)


def whole_powers(f: Any) -> bool:
    text = "" if f.ours.error is None else f.ours.error[1]
    return bare(f) in ("pow", "ipow") and (
        (f.word == "refused" and "negative integer powers" in text)
        or (f.word == "accepted" and "'Bool'" in message(f))
    )


def powers_of_nothing(f: Any) -> bool:
    return (
        bare(f) in ("pow", "ipow")
        and f.word in ("value", "gradient value")
        and (any(a.dtype.kind == "c" for a in arrays(f)))
    )


def roots_of_infinity(f: Any) -> bool:
    values = [*f.line.values, *f.line.keywords.values()]
    return (
        bare(f) in ("pow", "ipow")
        and f.word == "value"
        and any(isinstance(v, TensorValue) and v.array.size == 1 for v in values[1:])
        and np.isneginf(arrays(f)[0].real).any()
    )


def false_as_an_exponent(f: Any) -> bool:
    return (
        bare(f) in ("pow", "ipow")
        and f.word == "gradient value"
        and any(v is False for v in given(f))
    )


def number_by_tensor(f: Any) -> bool:
    return f.word == "gradient value" and (
        bare(f) in ("truediv", "itruediv") and isinstance(f.line.values[0], (int, float))
    )


def nan_among_limits(f: Any) -> bool:
    return bare(f) in (
        "logit",
        "prod",
        "cumprod",
        "scatter_reduce",
        "pow",
        "ipow",
        "nan_to_num",
    ) and (f.word == "gradient value" and any(not np.isfinite(a).all() for a in arrays(f)))


def at_poles(f: Any) -> bool:
    """torch takes the sine of a multiple of pi, and the series of an infinite number is NaN."""
    names = ("digamma", "lgamma")
    with np.errstate(all="ignore"):
        return (
            bare(f) in names
            and f.word in ("value", "gradient value")
            and any((np.isinf(a) | ((a < 0) & (a == np.floor(a)))).any() for a in arrays(f))
        )


def sizes_that_are_not_positive(f: Any) -> bool:
    return (
        bare(f) == "polar"
        and f.word == "gradient value"
        and not ((arrays(f)[0] > 0) & np.isfinite(arrays(f)[0])).all()
    )


def corner_of_activation(f: Any) -> bool:
    names = ("elu", "selu", "celu", "hardswish", "hardshrink", "softshrink", "hardtanh", "relu6")
    return (
        bare(f) in (*names, "softsign", "threshold")
        and f.word == "gradient value"
        and any(not np.isfinite(a).all() for a in arrays(f))
    )


def gelu_of_infinity(f: Any) -> bool:
    return bare(f) == "gelu" and f.word == "value" and any(np.isinf(a).any() for a in arrays(f))


def sixth(f: Any) -> bool:
    return (
        bare(f) == "hardsigmoid" and f.word == "gradient value" and arrays(f)[0].dtype.char == "d"
    )


ALLOWED = [
    Allowed("`addcmul` whose product overflows", fused_product),
    Allowed("remainders of quotients that overflow", overflowing_quotient),
    Allowed("comparisons with a number beyond the range", beyond_the_dtype),
    Allowed("`softsign`, `isclose` that overflow", largest_integers),
    Allowed("powers of integers and bools by a tensor without dimensions", whole_powers),
    Allowed("powers with complex exponents", powers_of_nothing),
    Allowed("powers of -infinity by a tensor", roots_of_infinity),
    Allowed("the gradient of `0 ** False`", false_as_an_exponent),
    Allowed("the gradient of a number divided by a tensor", number_by_tensor),
    Allowed("gradients of products and powers at NaN", nan_among_limits),
    Allowed("derivatives of `lgamma` and `digamma`", at_poles),
    Allowed("gradient of `polar`", sizes_that_are_not_positive),
    Allowed("gradients of activations at NaN", corner_of_activation),
    Allowed("`gelu` of +inf", gelu_of_infinity),
    Allowed("derivative of `hardsigmoid`", sixth),
]
