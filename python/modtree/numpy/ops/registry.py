# SPDX-License-Identifier: BSD-3-Clause
"""The table of operations: every computation on tensors is a call of one of them.

An operation has a name, a forward function on arrays with NumPy's own argument names, and a
promotion rule. Calling it (C++) takes tensors apart, brings their dtypes together as torch does,
runs the function and wraps what comes out. ``np.exp(t)``, ``t.exp()`` and ``modtree.exp(t)`` are
calls of one operation. Derivative rules belong to operations too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any

from modtree._C import Op, Overridable, _install
from modtree.numpy.ops import refused, signatures
from modtree.numpy.ops.overridable import overridable, overridable_property

if TYPE_CHECKING:
    from modtree.numpy.argument_types import Tensor

#: Name -> operation.
ops: dict[str, Op] = {}
#: Name -> the forward function that also returns what the derivative needs.
recording: dict[str, Callable[..., Any]] = {}
#: NumPy function -> operation: what NumPy's protocols look up.
by_function: dict[Any, Op] = {}


def define(
    name: str,
    forward: Callable[..., Any],
    *,
    promote: str = "none",
    first: int = 0,
    operands: int = 0,
    view: bool = False,
    meta: Callable[..., Any] | None = None,
    numpy: Any = None,
    doc: str | None = None,
    record: Callable[..., Any] | None = None,
    **flags: int,
) -> Op:
    """Adds an operation to the table.

    Args:
        name: Its name in the table, in messages, and of the method where it is one.
        forward: The function on arrays.
        promote: What happens to the operands: "none", "arith" (they meet in one dtype), "floating"
            (and integers become the default floating dtype), "compare", "logical", "bitwise",
            "same" (they must be of one dtype).
        first: Index of the first operand among the positional arguments.
        operands: Number of operands; -1 when the argument ``first`` is a sequence of them.
        view: The result may share memory with the first argument.
        meta: ``meta(*arrays, **kwargs) -> (shape, dtype)`` (or a list of such pairs) for meta
            tensors. Element-wise operations and views need none.
        numpy: The NumPy function that means it; ``forward`` when that is a ufunc.
        doc: What ``help()`` shows.
        flags: ``strict_view``, ``no_bool``, ``check_zero``, ``number_edges``;
            ``csrc/numpy/tensor/op.h`` tells what they are.
        record: The forward function while operations are recorded: returns ``(result, saved)``, and
            ``saved`` comes to the derivative in place of the result.
    """
    if name in ops:
        raise ValueError(f"the operation '{name}' is in the table already")
    parameters, line = signatures.documented(name)
    op = Op(
        name,
        forward,
        promote=promote,
        first=first,
        operands=operands,
        view=view,
        meta=meta,
        doc=line if doc is None else doc,
        **flags,
    )
    if promote != "none":  # others are parts of functions, whose dtypes export() limits
        op._limit(*refused.limits_of(name))
    if parameters is not None:
        op.__text_signature__ = (
            f"({signatures.untyped(parameters)}, /)"  # what inspect asks a method descriptor for
        )
    ops[name] = op
    if record is not None:
        recording[name] = record
    if numpy is not None:
        by_function[numpy] = op
    return op


@dataclass(frozen=True)
class Derivative:
    """How gradients go backward through an operation; made by :func:`derive`,
    :func:`derive_jointly`, :func:`not_differentiable`.
    """

    functions: tuple[Callable[..., Any] | None, ...] = ()
    joint: Callable[..., Any] | None = None
    double_backward: bool = True


#: Name -> derivative.
derivatives: dict[str, Derivative] = {}


def derive(name: str, *functions: Callable[..., Any] | None, double_backward: bool = True) -> None:
    """Gives an operation its derivative, one function for each positional argument that has one.

    A function is called as ``f(g, out, *args, **kwargs)``: the gradient of the result, the result,
    and the arguments as the forward function got them. The names of its parameters say what the
    graph keeps: ``x`` the array, ``_x`` nothing (None comes in its place), ``x_like`` a stand-in
    without memory that has its shape and dtype. Numbers, shapes and None always come as they are.
    It returns the gradient of that argument; a gradient that was broadcast is summed to the
    argument's shape, and cast to its dtype, afterwards. No array it gets may be changed.

    Args:
        name: The operation's name.
        functions: One per positional argument, None for those without a gradient. For an argument
            that is a sequence of tensors it returns a list.
        double_backward: The functions run on tensors too (operators and NumPy functions that are
            operations), so that the gradient itself can be derived.
    """
    _add_derivative(name, Derivative(functions, None, double_backward))


def derive_jointly(
    name: str, function: Callable[..., Any], *, double_backward: bool = False
) -> None:
    """Gives an operation its derivative as one function for all its arguments.

    Called as ``f(needs, g, out, *args, **kwargs)``; ``needs`` says for each positional argument
    whether its gradient is wanted. It returns a tuple of gradients for the positional arguments
    (None where there is none). Parameter names mean what they mean to :func:`derive`.
    """
    _add_derivative(name, Derivative((), function, double_backward))


def not_differentiable(*names: str) -> None:
    """Operations whose results need no gradient whatever goes in: comparisons, indices."""
    for name in names:
        _add_derivative(name, Derivative())


def _add_derivative(name: str, derivative: Derivative) -> None:
    if name in derivatives:
        raise ValueError(f"the operation '{name}' has a derivative already")
    op = ops[name]
    derivatives[name] = derivative
    # True stands for "the gradient passes unchanged", which needs no call.
    functions = tuple(True if f is unchanged else f for f in derivative.functions)
    if derivative.joint is not None:
        kept: tuple[tuple[int, int, bool], ...] = (_kept(derivative.joint, 3),)
    else:
        kept = tuple((0, 0, False) if f is None else _kept(f, 2) for f in derivative.functions)
    op._set_derivative(
        _backward_name(name),
        functions,
        kept,
        derivative.joint,
        recording.get(name),
        derivative.double_backward,
    )


def unchanged(g: Any, _out: Any = None, *_args: Any, **_kwargs: Any) -> Any:
    """The derivative of what hands its argument on: addition, reshaping by broadcasting."""
    return g


#: Positional arguments that an operation can have.
_MAX_ARGUMENTS = 14


def _kept(function: Callable[..., Any], first: int) -> tuple[int, int, bool]:
    """(arrays, shapes, result): what a derivative function names; bits are positional arguments,
    which start at parameter ``first``.
    """
    if function is unchanged:
        return 0, 0, False
    parameters = list(inspect.signature(function).parameters.values())
    named = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = [p for p in parameters if p.kind is p.VAR_POSITIONAL]
    names = [p.name for p in named]
    if rest:
        names += [rest[0].name] * (_MAX_ARGUMENTS + first - len(names))
    arrays = shapes = 0
    for i, name in enumerate(names[first:]):
        if name.startswith("_"):
            continue
        if name.endswith("_like"):
            shapes |= 1 << i
        else:
            arrays |= 1 << i
    return arrays, shapes, not names[first - 1].startswith("_")


#: Names that torch gives to nodes, where the operation has another.
_BACKWARD_NAMES = {
    "true_divide": "DivBackward0",
    "matmul": "MmBackward0",
    "convert": "ToCopyBackward0",
    "copy": "CopyBackwards",
    "max_all": "MaxBackward1",
    "min_all": "MinBackward1",
    "conv_transpose": "ConvolutionBackward0",
    "batch_norm": "NativeBatchNormBackward0",
    "layer_norm": "NativeLayerNormBackward0",
    "group_norm": "NativeGroupNormBackward0",
}


def _backward_name(name: str) -> str:
    camel = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
    return _BACKWARD_NAMES.get(name, camel + "Backward0")


def find(name: str) -> Op:
    """The operation of that name (where a pickled one comes back)."""
    return ops[name]


#: What the class Tensor gets as methods, and the package as functions.
methods: dict[str, Any] = {}
functions: dict[str, Any] = {}


def export(name: str, value: Any, *, method: bool = True, function: bool = True) -> None:
    """Makes an operation, or a function on top of one, public."""
    # A property has the name of its getter from CPython 3.13 on, and cannot be given another.
    if isinstance(value, FunctionType) and value.__name__ == "<lambda>":
        value.__name__ = value.__qualname__ = name
    value = overridable_property(value) if isinstance(value, property) else overridable(value)
    # What meets in one dtype first is limited by this one, in the operation.
    limits = refused.limits_of(name) if name.rstrip("_") not in refused.MEETING else (0,)
    if any(limits) and isinstance(value, (Op, Overridable)):
        value._limit(*limits)
    if method:
        methods[name] = value
    if function:
        functions[name] = value


def inplace_of(op: Op) -> Callable[..., Any]:
    """The method that writes the result of an operation into its first argument."""
    write = op.inplace

    def method(self: Tensor, *args: Any) -> Tensor:
        return write(self, *args)

    method.__name__ = method.__qualname__ = op.__name__ + "_"
    method.__doc__ = f"{op.__name__}() in place."
    parameters, _ = signatures.documented(op.__name__)
    if parameters is not None:
        others = parameters.partition(", ")[2]
        own = signatures.signature(f"self, {others}" if others else "self")
        method.__signature__ = own  # type: ignore[attr-defined]
    return method


_install(find_operation=find)
