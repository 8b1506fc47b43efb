# SPDX-License-Identifier: BSD-3-Clause
"""Operations that work on each element: NumPy's broadcasting carries the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from modtree import _C
from modtree._ops.registry import ops

__all__ = ["RULES", "aligned", "aligned_all"]

_ONE = """
exp exp2 expm1 log log2 log10 log1p sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh
deg2rad rad2deg reciprocal square ceil floor trunc conj sign isnan isinf isfinite signbit
logical_not rsqrt sigmoid relu steady sgn frac erf erfc erfinv neg abs bitwise_not round nan_to_num
lgamma digamma polygamma sinc logit angle clone convert real imag
gelu silu mish softplus logsigmoid softsign hardtanh leaky_relu elu threshold hardswish hardsigmoid
hardshrink softshrink view_as_real view_as_complex
""".split()

#: Operands that meet in one dtype.
_SEVERAL = """
add sub mul true_divide floor_divide remainder fmod pow atan2 hypot logaddexp copysign nextafter
trunc_divide lerp addcmul addcdiv maximum minimum fmax fmin eq ne lt le gt ge logical_and logical_or
logical_xor bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift isclose where
clamp xlogy logaddexp2 heaviside gcd lcm
""".split()


def aligned(level: Any, value: Any, ndim: int) -> Any:
    """The tensor with the batch in front of ``ndim`` dimensions, so that it is broadcast as its
    samples are; what has no batch as it is.
    """
    if not level.holds(value):
        return value
    if value.ndim == ndim:
        return value._full
    return ops["reshape"](value._full, (level.size, *(1,) * (ndim - value.ndim), *value.shape))


def aligned_all(level: Any, values: Any) -> list[Any]:
    """The tensors among the values, aligned to that with most dimensions."""
    ndim = max((v.ndim for v in values if isinstance(v, _C.TensorBase)), default=0)
    return [aligned(level, value, ndim) for value in values]


def _one(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    if not level.holds(args[0]) or any(map(level.holds, args[1:])):
        return NotImplemented
    return op(args[0]._full, *args[1:], **kwargs)


def _operands(name: str, args: Any) -> range:
    """Places of the arguments that meet in one dtype."""
    return range(1 if name == "where" else 0, len(args))


def _several(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    return op(*_in_their_dtype(level, op, args), **kwargs)


def _in_their_dtype(level: Any, op: Any, args: Any) -> list[Any]:
    """The arguments aligned. A sample without dimensions counts less than others where dtypes meet,
    and the batch would give it one: it is converted before.
    """
    result = aligned_all(level, args)
    places = _operands(op.__name__, args)
    tensors = [args[i] for i in places if isinstance(args[i], _C.TensorBase)]
    if len({t.dtype for t in tensors}) < 2 or not any(
        level.holds(t) and t.ndim == 0 for t in tensors
    ):
        return result
    kind = _C._result_type(*(args[i] for i in places if _is_operand(args[i])))
    for i in places:
        if level.holds(args[i]) and args[i].ndim == 0:
            result[i] = result[i]._convert(kind, None, False)
    return result


def _is_operand(value: Any) -> bool:
    return isinstance(value, (_C.TensorBase, bool, int, float, complex))


def _masked_fill(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    x, mask, value = args
    ndim = max(x.ndim, mask.ndim)
    if level.holds(value):
        return ops["where"](
            aligned(level, mask, ndim),
            aligned(level, value, ndim)._convert(x.dtype, None, False),
            aligned(level, x, ndim),
        )
    return op(aligned(level, x, ndim), aligned(level, mask, ndim), value)


def _independent(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    return (
        op(*[a._full if level.holds(a) else a for a in args])
        if level.holds(args[0])
        else (NotImplemented)
    )


def _prelu(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    x, weight = args
    if weight.numel() != 1 and x.ndim < 1:
        return NotImplemented
    # The weight is one number, or one for each channel, dimension 1 (0 of a vector).
    after = 0 if weight.numel() == 1 else max(x.ndim - 2, 0)
    shape = (weight.numel(), *(1,) * after) if weight.numel() != 1 else ()
    slope = weight.reshape(shape)
    return ops["where"](x > 0, x, x * slope)._full


RULES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(_ONE, _one),
    **dict.fromkeys(_SEVERAL, _several),
    "masked_fill": _masked_fill,
    "independent": _independent,
    "prelu": _prelu,
}
