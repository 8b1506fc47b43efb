# SPDX-License-Identifier: BSD-3-Clause
"""Parameters, their types and first lines of help of operations that are called without a Python
function around them.

DLMF is the NIST Digital Library of Mathematical Functions, https://dlmf.nist.gov.

Their arguments are positional: what carries them out are functions on arrays, whose names for them
are NumPy's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

_ONE = {
    "abs": "The absolute value of each element.",
    "acos": "The arc cosine of each element, in radians.",
    "acosh": "The inverse hyperbolic cosine of each element.",
    "asin": "The arc sine of each element, in radians.",
    "asinh": "The inverse hyperbolic sine of each element.",
    "atan": "The arc tangent of each element, in radians.",
    "atanh": "The inverse hyperbolic tangent of each element.",
    "bitwise_not": "Each element with all bits inverted; logical not for bools.",
    "ceil": "The smallest integer not below each element.",
    "conj": "The complex conjugate of each element.",
    "cos": "The cosine of each element, in radians.",
    "cosh": "The hyperbolic cosine of each element.",
    "digamma": "The logarithmic derivative of the gamma function of each element (DLMF 5.2.2).",
    "erf": "The error function of each element (DLMF 7.2.1).",
    "erfinv": "The inverse of the error function of each element (DLMF 7.17.1).",
    "exp": "e to the power of each element.",
    "expm1": "exp(x) - 1 for each element x, exact near 0.",
    "floor": "The largest integer not above each element.",
    "isfinite": "True where an element is neither infinite nor NaN.",
    "isinf": "True where an element is infinite.",
    "isnan": "True where an element is NaN.",
    "lgamma": "The logarithm of the absolute value of the gamma function of each element (DLMF "
    "5.2.1).",
    "log": "The natural logarithm of each element.",
    "log10": "The logarithm to base 10 of each element.",
    "log1p": "log(1 + x) for each element x, exact near 0.",
    "log2": "The logarithm to base 2 of each element.",
    "logical_not": "True where an element is zero.",
    "matrix_exp": "The matrix exponential of each square matrix, by a Pade approximation that is "
    "scaled and squared (Higham, 2005).",
    "neg": "Each element with the other sign.",
    "reciprocal": "1 / x for each element x.",
    "relu": "max(x, 0) for each element x.",
    "rsqrt": "1 / sqrt(x) for each element x.",
    "sgn": "The sign of each element; x / |x| for complex x.",
    "sigmoid": "1 / (1 + exp(-x)) for each element x.",
    "sign": "-1, 0 or 1 for each element.",
    "sin": "The sine of each element, in radians.",
    "sinh": "The hyperbolic sine of each element.",
    "sqrt": "The square root of each element.",
    "square": "The square of each element.",
    "tan": "The tangent of each element, in radians.",
    "tanh": "The hyperbolic tangent of each element.",
    "trace": "The sum of the diagonal of a matrix.",
    "trunc": "Each element without what is behind its point.",
}
_TWO = {
    "atan2": "The angle of the point (other, input), in radians, in the right quadrant.",
    "bitwise_and": "The bits that both have; logical and for bools.",
    "bitwise_left_shift": "input * 2 ** other, for integers.",
    "bitwise_or": "The bits that either has; logical or for bools.",
    "bitwise_right_shift": "input / 2 ** other rounded down, for integers.",
    "bitwise_xor": "The bits that exactly one has; logical exclusive or for bools.",
    "eq": "True where input == other.",
    "floor_divide": "input / other, rounded down.",
    "fmod": "The remainder of input / other with the sign of input.",
    "ge": "True where input >= other.",
    "gt": "True where input > other.",
    "le": "True where input <= other.",
    "logaddexp": "log(exp(input) + exp(other)), without overflow between.",
    "logical_and": "True where both are nonzero.",
    "logical_or": "True where at least one is nonzero.",
    "logical_xor": "True where exactly one is nonzero.",
    "lt": "True where input < other.",
    "maximum": "The larger of two elements; NaN where one is.",
    "minimum": "The smaller of two elements; NaN where one is.",
    "mul": "input * other.",
    "ne": "True where input != other.",
    "remainder": "The remainder of input / other with the sign of other.",
    "true_divide": "input / other.",
}
_MORE = {
    "dot": ("input, other", "The sum of the products of two vectors' elements."),
    "lerp": ("input, end, weight", "input + weight * (end - input)."),
    "matmul": (
        "input, other",
        "The matrix product; of vectors the dot product; leading dimensions are batches.",
    ),
    "masked_select": ("input, mask", "The elements where the mask holds, as a vector."),
    "outer": ("input, vec2", "The outer product of two vectors."),
    "pow": ("input, exponent: Operand", "input to the power of exponent."),
}


def documented(name: str) -> tuple[str | None, str | None]:
    """(parameters, line of help) of an operation; None where no table has it. A parameter without
    a type is a tensor.
    """
    if name in _ONE:
        return "input", _ONE[name]
    if name in _TWO:
        return "input, other: Operand", _TWO[name]
    return _MORE.get(name, (None, None))


def untyped(parameters: str) -> str:
    """The names alone, as ``__text_signature__`` has them."""
    return ", ".join(parameter.partition(":")[0] for parameter in parameters.split(", "))


_made: dict[str, inspect.Signature] = {}


def signature(parameters: str) -> inspect.Signature:
    """The signature of a function of tensors with these positional parameters, which gives one; one
    object for each text.
    """
    known = _made.get(parameters)
    if known is None:
        pairs = [parameter.partition(": ") for parameter in parameters.split(", ")]
        kind = inspect.Parameter.POSITIONAL_ONLY
        known = _made[parameters] = inspect.Signature(
            [inspect.Parameter(n, kind, annotation=t or "Tensor") for n, _, t in pairs],
            return_annotation="Tensor",
        )
    return known


def like(method: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """The method, shown by ``inspect.signature`` with the parameters of the function it calls."""
    method.__wrapped__ = function  # type: ignore[attr-defined]
    return method
