# SPDX-License-Identifier: BSD-3-Clause
"""add, sub, mul, div, remainder, pow, logaddexp and other arithmetic of two tensors; lerp,
addcmul, addcdiv.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from modtree._C import TensorBase, _result_type, fitted_number, kernels
from modtree.numpy.ops.generic import conj, native, no_gradient, pick, zeros
from modtree.numpy.ops.registry import define, derive, export, inplace_of, ops, unchanged

if TYPE_CHECKING:
    from modtree.numpy.argument_types import Number, Operand, Tensor

define("add", np.add, promote="arith", operands=2, numpy=np.add, number_edges=2)
define(
    "sub", np.subtract, promote="arith", operands=2, no_bool=True, numpy=np.subtract, number_edges=1
)
define("mul", np.multiply, promote="arith", operands=2, numpy=np.multiply, number_edges=2)
define(
    "true_divide",
    np.true_divide,
    promote="floating",
    operands=2,
    numpy=np.true_divide,
    number_edges=1,
)


def _power(a: Any, b: Any, out: Any = None) -> Any:
    """Integers wrap around; a negative exponent array gives what 1 / a ** b truncates to."""
    kind = a.dtype.kind
    if kind == "f" and b.ndim == 0:
        # The usual exponents have shorter ways, which torch takes too.
        short = _SHORT_POWERS.get(b.item())
        return np.power(a, b, out=out) if short is None else short(a, out)
    if kind == "b":
        if b.ndim:
            raise NotImplementedError("\"pow\" not implemented for 'Bool': convert with .to(dtype)")
        return np.logical_or(a, np.logical_not(b))
    if kind == "i" and b.ndim and (b < 0).any():
        a, b = np.broadcast_arrays(a, b)
        odd = np.where(b % 2 == 0, a * a, a)
        return np.where(
            b < 0, np.where(np.abs(a) == 1, odd, 0), np.power(a, np.maximum(b, 0))
        ).astype(a.dtype)
    return np.power(a, b)


# Up to so many elements NumPy's functions cost less than the call of a kernel.
_SMALL = 64
# Of float16 torch takes no roots, which tell -infinity from infinity.
_SHORT_POWERS: dict[float, Any] = {
    2.0: np.square,
    3.0: lambda a, out: np.multiply(a * a, a, out),
    0.5: lambda a, out: np.power(a, 0.5, out) if a.dtype == np.float16 else np.sqrt(a, out),
    -0.5: lambda a, out: (
        np.power(a, -0.5, out) if a.dtype == np.float16 else np.reciprocal(np.sqrt(a), out)
    ),
    -1.0: np.reciprocal,
    -2.0: lambda a, out: np.reciprocal(a * a, out),
}


def _with_kernel(kernel: Any, ufunc: Any) -> Any:
    """The kernel for many floats, the function of NumPy otherwise."""

    def forward(a: Any, b: Any) -> Any:
        if a.size <= _SMALL and b.size <= _SMALL or not native(a, b):
            return ufunc(a, b)
        return kernel(a, b) if a.shape == b.shape else kernel(*np.broadcast_arrays(a, b))

    return forward


define(
    "floor_divide",
    np.floor_divide,
    promote="arith",
    operands=2,
    check_zero=True,
    numpy=np.floor_divide,
)
define(
    "remainder",
    _with_kernel(kernels.remainder, np.remainder),
    promote="arith",
    operands=2,
    check_zero=True,
    numpy=np.remainder,
)
define(
    "fmod",
    _with_kernel(kernels.fmod, np.fmod),
    promote="arith",
    operands=2,
    check_zero=True,
    numpy=np.fmod,
)
define("pow", _power, promote="arith", operands=2, numpy=np.power, writes_into=True)
define("atan2", np.arctan2, promote="floating", operands=2, numpy=np.arctan2)


def complex_logaddexp(a: Any, b: Any) -> Any:
    """log(exp(a) + exp(b)) of complex numbers, from the one with the larger real part."""
    first = (a.real >= b.real) | np.isnan(a.real)
    large, small = np.where(first, a, b), np.where(first, b, a)
    both_infinite = np.isinf(large.real) & (large.real == small.real)
    with np.errstate(all="ignore"):
        result = large + np.log1p(np.exp(small - large))
        at_infinity = np.where(large.real < 0, small, np.log(np.exp(large) + np.exp(small)))
    return np.where(both_infinite, at_infinity, result)


_real_logaddexp = _with_kernel(kernels.logaddexp, np.logaddexp)


def _logaddexp(a: Any, b: Any) -> Any:
    return complex_logaddexp(a, b) if a.dtype.kind == "c" else _real_logaddexp(a, b)


define(
    "logaddexp",
    _logaddexp,
    promote="arith",
    operands=2,
    numpy=np.logaddexp,
)

for _name in ("mul true_divide floor_divide remainder fmod pow atan2 logaddexp").split():
    export(_name, ops[_name])
    export(_name + "_", inplace_of(ops[_name]), function=False)
export("multiply", ops["mul"])

_add, _sub, _mul, _div = ops["add"], ops["sub"], ops["mul"], ops["true_divide"]


def _scaled(input: Any, other: Any, alpha: Any) -> Any:
    """alpha * other, in the dtype in which input and other meet."""
    kind = _result_type(input, other)
    alpha = scale_factor("alpha", alpha, kind)
    if not isinstance(other, TensorBase):
        return other and alpha if kind.dtype.kind == "b" else _product(other, alpha, kind)
    return _mul(other.to(kind), alpha)  # type: ignore[attr-defined]


def _product(a: Any, b: Any, kind: Any) -> Any:
    """Of two numbers; beyond 64 bits it wraps around, or is a float."""
    product = a * b
    if type(product) is not int or -(2**63) <= product < 2**64:
        return product
    return (product + 2**63) % 2**64 - 2**63 if kind.dtype.kind in "iu" else float(product)


def _refuse_bools() -> None:
    raise RuntimeError(
        "Subtraction, the `-` operator, with a bool is not supported: use `^`, or int() of it"
    )


def scale_factor(name: str, value: Any, dtype: Any) -> Any:
    """The number by which operands are multiplied that meet in a dtype, as one of this dtype."""
    kind = dtype.dtype.kind
    if isinstance(value, bool) and kind != "b":
        raise RuntimeError(f"Boolean {name} only supported for Boolean results.")
    if isinstance(value, float) and kind in "biu":
        raise RuntimeError(
            f"For integral input tensors, argument {name} must not be a floating point number "
            f"(got {value})."
        )
    if isinstance(value, complex) and kind != "c":
        raise RuntimeError(
            f"For non-complex input tensors, argument {name} must not be a complex number "
            f"(got {value})."
        )
    return bool(value) if kind == "b" else fitted_number(value, dtype)


def add(input: Tensor, other: Operand, *, alpha: Number = 1) -> Tensor:
    """input + alpha * other.

    Args:
        other: A tensor that broadcasts with ``input``, or a number.
        alpha: A factor of ``other``.
    """
    if type(alpha) is not int or alpha != 1:
        other = _scaled(input, other, alpha)
    return _add(input, other)


def _is_bool(x: Any) -> bool:
    return isinstance(x, TensorBase) and x.dtype.name == "bool"


def sub(input: Tensor, other: Operand, *, alpha: Number = 1) -> Tensor:
    """input - alpha * other.

    Args:
        other: A tensor that broadcasts with ``input``, or a number.
        alpha: A factor of ``other``.
    """
    if input is True or input is False or other is True or other is False:
        _refuse_bools()
    if type(alpha) is not int or alpha != 1:
        if _is_bool(input) or _is_bool(other):
            _refuse_bools()
        other = _scaled(input, other, alpha)
    return _sub(input, other)


def add_(self: Tensor, other: Operand, *, alpha: Number = 1) -> Tensor:
    """self += alpha * other, in place."""
    if type(alpha) is not int or alpha != 1:
        other = _scaled(self, other, alpha)
    return _add.inplace(self, other)


def sub_(self: Tensor, other: Operand, *, alpha: Number = 1) -> Tensor:
    """self -= alpha * other, in place."""
    if other is True or other is False:
        _refuse_bools()
    if type(alpha) is not int or alpha != 1:
        if _is_bool(self) or _is_bool(other):
            _refuse_bools()
        other = _scaled(self, other, alpha)
    return _sub.inplace(self, other)


def _rounded_quotient(input: Any, other: Any, mode: str) -> Any:
    if mode == "floor":
        return ops["floor_divide"](input, other)
    if mode == "trunc":
        return ops["trunc_divide"](input, other)
    raise RuntimeError(
        f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found {mode!r}"
    )


def _trunc_divide(a: Any, b: Any) -> Any:
    if a.dtype.kind in "iu":
        quotient = np.floor_divide(a, b)
        return quotient + ((quotient < 0) & (quotient * b != a)).astype(a.dtype)
    return np.trunc(np.true_divide(a, b))


define("trunc_divide", _trunc_divide, promote="arith", operands=2, check_zero=True)


def div(input: Tensor, other: Operand, *, rounding_mode: str | None = None) -> Tensor:
    """input / other; whole quotients with rounding_mode "floor" or "trunc".

    Args:
        other: A tensor that broadcasts with ``input``, or a number.
        rounding_mode: None, ``"floor"`` or ``"trunc"`` (towards zero).
    """
    if rounding_mode is None:
        return _div(input, other)
    return _rounded_quotient(input, other, rounding_mode)


def div_(self: Tensor, other: Operand, *, rounding_mode: str | None = None) -> Tensor:
    """self /= other, in place."""
    if rounding_mode is None:
        return _div.inplace(self, other)
    name = {"floor": "floor_divide", "trunc": "trunc_divide"}.get(rounding_mode)
    return ops[name].inplace(self, other) if name else _rounded_quotient(self, other, rounding_mode)


_function: Any  # of one type after another
for _function in (add, sub, div):
    export(_function.__name__, _function)
export("subtract", sub)
export("divide", div)
for _function in (add_, sub_, div_):
    export(_function.__name__, _function, function=False)

# -- three operands --------------------------------------------------------------------------------


def _fits(out: Any, change: Any) -> Any:
    """``out``, where what ``change`` is added to is of its shape."""
    return out if out is not None and np.shape(change) == out.shape else None


def _lerp(start: Any, end: Any, weight: Any, out: Any = None) -> Any:
    """From the nearer end, so that weight 1 gives exactly ``end``."""
    step = end - start
    near = np.abs(weight) < 0.5
    if near.ndim == 0:
        fits = _fits(out, step)
        step = np.multiply(step, weight if near else 1 - weight, out=_own(step))
        return np.add(start, step, fits) if near else np.subtract(end, step, fits)
    return np.where(near, start + weight * step, end - step * (1 - weight))


def _weight(input: Any, end: Any, weight: Any) -> Any:
    """The weight of lerp(), after a check that all are of one dtype."""
    kind = input.dtype
    if isinstance(end, TensorBase) and end.dtype != kind:
        raise RuntimeError(
            f"expected dtype {kind} for `end` but got dtype {end.dtype}: convert with .to(dtype)"
        )
    if not isinstance(weight, TensorBase):
        if kind.dtype.kind in "bui":
            raise NotImplementedError(
                f'"lerp" not implemented for {kind}: convert with .to(dtype) first'
            )
        return fitted_number(weight, kind)
    given: Any = weight
    if given.dtype != kind and given.ndim:
        raise RuntimeError(
            f"expected dtype {kind} for `weight` but got dtype {given.dtype}: convert with "
            f".to(dtype)"
        )
    return weight


def lerp(input: Tensor, end: Tensor, weight: Operand) -> Tensor:
    """input + weight * (end - input).

    Args:
        end: What weight 1 gives; broadcasts with ``input`` and is of its dtype.
        weight: A number, or a tensor that broadcasts with both.
    """
    return ops["lerp"](input, end, _weight(input, end, weight))


def lerp_(self: Tensor, end: Tensor, weight: Operand) -> Tensor:
    """lerp() in place."""
    return ops["lerp"].inplace(self, end, _weight(self, end, weight))


def _own(array: Any) -> Any:
    """Fresh memory that a product with a fraction may be written into."""
    return array if type(array) is np.ndarray and array.dtype.kind in "fc" else None


def _addcmul(x: Any, a: Any, b: Any, v: Any, out: Any = None) -> Any:
    change = v * a
    change = np.multiply(change, b, out=_own(change) if np.shape(change) == np.shape(b) else None)
    return np.add(x, change, _fits(out, change))


def _addcdiv(x: Any, a: Any, b: Any, v: Any, out: Any = None) -> Any:
    change = v * (a / b)
    return np.add(x, change, _fits(out, change))


define("lerp", _lerp, promote="arith", operands=3, writes_into=True)
define("addcmul", _addcmul, promote="arith", operands=3, writes_into=True)
define("addcdiv", _addcdiv, promote="arith", operands=3, writes_into=True)


def _factor(value: Any, *operands: Any) -> Any:
    """The number by which a product is multiplied, as one of the dtype in which all meet."""
    if type(value) is int and value == 1:
        return value
    if isinstance(value, TensorBase):
        value = value.item()
    return fitted_number(value, _result_type(*operands))


def _check_quotient(*operands: Any) -> None:
    if all(isinstance(x, TensorBase) and x.dtype.dtype.kind in "biu" for x in operands):
        raise RuntimeError(
            "Integer division with addcdiv is no longer supported: convert with .float(), or use "
            "div(rounding_mode=...) and mul()"
        )


def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
    """input + value * tensor1 * tensor2.

    Args:
        tensor1: First factor; broadcasts with ``input``.
        tensor2: Second one.
        value: A factor of the product.
    """
    return ops["addcmul"](input, tensor1, tensor2, _factor(value, input, tensor1, tensor2))


def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
    """input + value * tensor1 / tensor2.

    Args:
        tensor1: The dividend; broadcasts with ``input``.
        tensor2: The divisor.
        value: A factor of the quotient.
    """
    _check_quotient(tensor1, tensor2)
    return ops["addcdiv"](input, tensor1, tensor2, _factor(value, input, tensor1, tensor2))


export("lerp", lerp)
export("lerp_", lerp_, function=False)
export("addcmul", addcmul)
export("addcdiv", addcdiv)


def addcmul_(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
    """self += value * tensor1 * tensor2, in place."""
    factor = _factor(value, self, tensor1, tensor2)
    return ops["addcmul"].inplace(self, tensor1, tensor2, factor)


def addcdiv_(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
    """self += value * tensor1 / tensor2, in place."""
    _check_quotient(tensor1, tensor2)
    factor = _factor(value, self, tensor1, tensor2)
    return ops["addcdiv"].inplace(self, tensor1, tensor2, factor)


export("addcmul_", addcmul_, function=False)
export("addcdiv_", addcdiv_, function=False)


# -- derivatives -----------------------------------------------------------------------------------

derive("add", unchanged, unchanged)
derive("sub", unchanged, lambda g, _out, _a, _b: -g)
derive(
    "mul",
    lambda g, _out, _a, b: g * conj(b),
    lambda g, _out, a, _b: g * conj(a),
)
derive(
    "true_divide",
    lambda g, _out, _a, b: g / conj(b),
    lambda g, _out, a, b: -g * conj((a / b) / b),
)
derive("floor_divide", no_gradient, no_gradient)
derive("trunc_divide", no_gradient, no_gradient)
derive("remainder", unchanged, lambda g, _out, a, b: -g * np.floor_divide(a, b))
derive("fmod", unchanged, lambda g, _out, a, b: -g * np.trunc(a / b))


def _pow_base(g: Any, _out: Any, a: Any, b: Any) -> Any:
    """Where the exponent is 0 the gradient is 0, also at 0 ** 0."""
    if b.ndim == 0 and not (isinstance(b, TensorBase) and b.requires_grad):
        number = b.item()
        if number == 2:
            return g * (a.conj() * 2)
        if number == 0:
            return zeros(g)
        short = _SHORT_POWERS.get(number - 1) if isinstance(a, np.ndarray) else None
        power = a ** (number - 1) if short is None or a.dtype.kind != "f" else short(a, None)
        return g * conj(power * number)
    return pick(b == 0, 0, g * conj(b * np.power(a, b - 1)))


def _pow_exponent(g: Any, out: Any, a: Any, b: Any) -> Any:
    """0 ** b does not change with b, except where b is negative."""
    settled = (a == 0) & (b.real >= 0)
    return pick(settled, 0, g * conj(out * np.log(pick(settled, 1, a))))


derive("pow", _pow_base, _pow_exponent)


def _atan2_scale(a: Any, b: Any) -> Any:
    """1 / (a^2 + b^2), and 0 at the origin, where the angle has no direction to change in."""
    square = a * a + b * b
    origin = square == 0
    return pick(origin, 0, 1 / pick(origin, 1, square))


derive(
    "atan2",
    lambda g, _out, a, b: g * (b * _atan2_scale(a, b)),
    lambda g, _out, a, b: -g * (a * _atan2_scale(a, b)),
)
derive(
    "logaddexp",
    lambda g, _out, a, b: g / conj(1 + np.exp(b - a)),
    lambda g, _out, a, b: g / conj(1 + np.exp(a - b)),
)

derive(
    "lerp",
    lambda g, _out, _start, _end, weight: g * conj(1 - weight),
    lambda g, _out, _start, _end, weight: g * conj(weight),
    lambda g, _out, start, end, _weight: g * (end - start).conj(),
)
derive(
    "addcmul",
    unchanged,
    lambda g, _out, _x, _a, b, v: g * (v * b).conj(),
    lambda g, _out, _x, a, _b, v: g * (v * a).conj(),
)
derive(
    "addcdiv",
    unchanged,
    lambda g, _out, _x, _a, b, v: g * (v / b).conj(),
    lambda g, _out, _x, a, b, v: -g * (v * a / (b * b)).conj(),
)
