# SPDX-License-Identifier: BSD-3-Clause
"""Jacobians and Hessians of functions, and their products with vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from modtree import _C, _imports
from modtree.numpy.ops.registry import ops
from modtree.numpy.tensor.creation import zeros_like
from modtree.numpy.tensor.engine import grad
from modtree.numpy.tensor.grad_mode import enable_grad

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def _tuple(values: Any, what: str) -> tuple[tuple[Any, ...], bool]:
    """The tensors, and whether they came as a tuple."""
    given = values if isinstance(values, (tuple, list)) else (values,)
    for i, value in enumerate(given):
        if not isinstance(value, _C.TensorBase):
            raise TypeError(
                f"{what} must be a Tensor or a tuple of Tensors, but entry {i} has type "
                f"{type(value)}"
            )
    return tuple(given), isinstance(values, (tuple, list))


def _prepared(inputs: tuple[Any, ...], create_graph: bool) -> tuple[Any, ...]:
    """Inputs to derive by: other handles on the same graph, or leaves."""
    if create_graph:
        return tuple(
            x.view_as(x) if x.requires_grad else x.detach().requires_grad_() for x in inputs
        )
    return tuple(x.detach().requires_grad_() for x in inputs)


def _finished(values: Any, create_graph: bool) -> Any:
    if isinstance(values, tuple):
        return tuple(_finished(v, create_graph) for v in values)
    return values if create_graph else values.detach()


def _as(values: tuple[Any, ...], is_tuple: bool) -> Any:
    return values if is_tuple else values[0]


def _grads(
    outputs: Any, inputs: Any, weights: Any, create_graph: bool, strict: bool
) -> tuple[Any, ...]:
    derivable = [(o, w) for o, w in zip(outputs, weights, strict=True) if o.requires_grad]
    found: tuple[Any, ...] = (None,) * len(inputs)
    if derivable:
        found = grad(
            [o for o, _ in derivable],
            inputs,
            [w for _, w in derivable],
            retain_graph=True,
            create_graph=create_graph,
            allow_unused=True,
        )
    if strict and (not derivable or any(g is None for g in found)):
        raise RuntimeError(
            "an output of the function does not depend on an input, which strict=True does not "
            "allow"
        )
    return tuple(zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True))


def _weights(v: Any, like: tuple[Any, ...], what: str) -> tuple[Any, ...]:
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError(f"v can only be None when the {what} is one tensor with one element")
        return (like[0].detach() * 0 + 1,)
    given, _ = _tuple(v, "v")
    if [tuple(w.shape) for w in given] != [tuple(t.shape) for t in like]:
        raise RuntimeError(
            f"v has sizes {[tuple(w.shape) for w in given]}, the {what} "
            f"{[tuple(t.shape) for t in like]}"
        )
    return given


def vjp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """(value, product of v with the Jacobian): v has the shapes of the outputs, the product those
    of the inputs.

    Args:
        func: Takes the tensors ``inputs``, returns one or a tuple.
        inputs: A tensor or a tuple of tensors.
        v: As the results; may be left out for one number.
        create_graph: Record the computation, so that its result can be derived again.
        strict: Raise when a result does not depend on an input, instead of zeros.
    """
    with enable_grad():
        given, is_tuple = _tuple(inputs, "inputs")
        given = _prepared(given, create_graph)
        outputs, outputs_tuple = _tuple(func(*given), "the outputs of the function")
        product = _grads(outputs, given, _weights(v, outputs, "output"), create_graph, strict)
    return (
        _as(_finished(outputs, create_graph), outputs_tuple),
        _as(_finished(product, create_graph), is_tuple),
    )


def jvp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """(value, product of the Jacobian with v): v has the shapes of the inputs, the product those of
    the outputs.

    Computed by two backward passes: the first one's dependence on its weights is linear, and is
    derived.

    Args:
        func: Takes the tensors ``inputs``, returns one or a tuple.
        inputs: A tensor or a tuple of tensors.
        v: As ``inputs``; may be left out for one number.
        create_graph: Record the computation, so that its result can be derived again.
        strict: Raise when a result does not depend on an input, instead of zeros.
    """
    with enable_grad():
        given, _ = _tuple(inputs, "inputs")
        directions = _weights(v, given, "input")
        given = _prepared(given, create_graph)
        outputs, is_tuple = _tuple(func(*given), "the outputs of the function")
        weights = tuple(zeros_like(o).requires_grad_() for o in outputs)
        slopes = _grads(outputs, given, weights, True, strict)
        product = _grads(slopes, weights, directions, create_graph, strict)
    return (
        _as(_finished(outputs, create_graph), is_tuple),
        _as(_finished(product, create_graph), is_tuple),
    )


def _check_strategy(strategy: str, strict: bool, vectorize: bool) -> None:
    if strategy == "forward-mode":
        raise NotImplementedError(
            'autograd.functional: "forward-mode" is not available, since derivatives only go '
            'backward. Use strategy="reverse-mode", which gives the same result'
        )
    if strategy != "reverse-mode":
        raise AssertionError(  # as in torch
            f'Expected strategy to be either "forward-mode" or "reverse-mode", got {strategy!r}'
        )
    if strict and vectorize:
        raise RuntimeError(
            "autograd.functional.jacobian: `strict=True` and `vectorized=True` are not supported "
            "together. Please either set `strict=False` or `vectorize=False`."
        )


def jacobian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The Jacobian: for each output and input a tensor whose shape is the output's followed by the
    input's.

    Args:
        func: Takes the inputs, gives a tensor or a tuple.
        inputs: A tensor or a tuple; the result is nested in tuples as outputs and inputs are.
        create_graph: Let the result be derived.
        strict: Refuse outputs that do not depend on an input; else their entries are 0.
        vectorize: Accepted; one pass is made for each element of the outputs.
        strategy: "reverse-mode".

    Raises:
        AssertionError: Another strategy.
        NotImplementedError: The strategy "forward-mode".
        RuntimeError: ``strict`` with ``vectorize``; a result or an input is no tensor.
    """
    _check_strategy(strategy, strict, vectorize)
    with enable_grad():
        given, is_tuple = _tuple(inputs, "inputs")
        given = _prepared(given, create_graph)
        outputs, outputs_tuple = _tuple(func(*given), "the outputs of the function")
        result = []
        for output in outputs:
            rows = []
            for i in range(output.numel()):
                weight = zeros_like(output).reshape(-1)
                weight[i] = 1
                rows.append(
                    _grads((output,), given, (weight.reshape(output.shape),), create_graph, strict)
                )
            parts = []
            for k, x in enumerate(given):
                shape = (*tuple(output.shape), *tuple(x.shape))
                if rows:
                    parts.append(ops["stack"]([row[k] for row in rows], 0).reshape(shape))
                else:
                    parts.append(x.new_zeros(shape))
            result.append(_as(tuple(parts), is_tuple))
    return _as(_finished(tuple(result), create_graph), outputs_tuple)


def _scalar(func: Callable[..., Any]) -> Callable[..., Any]:
    def checked(*args: Any) -> Any:
        value = func(*args)
        is_tensor: bool = isinstance(value, _C.TensorBase)
        if not is_tensor or value.numel() != 1:
            raise RuntimeError("the function has to return one tensor with one element")
        return value.reshape(())

    return checked


def hessian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The second derivatives of a function with one number as its value; arguments as for
    :func:`jacobian`.

    Args:
        func: Takes the tensors ``inputs``, returns one number.
        inputs: A tensor or a tuple of tensors.
        create_graph: Record the computation, so that its result can be derived again.
        strict: Raise when a result does not depend on an input, instead of zeros.
        vectorize: Accepted.
        outer_jacobian_strategy: "reverse-mode".
    """

    def slope(*args: Any) -> Any:
        return jacobian(_scalar(func), args if is_tuple else args[0], create_graph=True)

    _, is_tuple = _tuple(inputs, "inputs")
    return jacobian(slope, inputs, create_graph, strict, vectorize, outer_jacobian_strategy)


def vhp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """(value, product of v with the Hessian) of a function with one number as its value.

    Args:
        func: Takes the tensors ``inputs``, returns one number.
        inputs: A tensor or a tuple of tensors.
        v: As ``inputs``.
        create_graph: Record the computation, so that its result can be derived again.
        strict: Raise when a result does not depend on an input, instead of zeros.
    """
    with enable_grad():
        given, is_tuple = _tuple(inputs, "inputs")
        directions = _weights(v, given, "input")
        given = _prepared(given, create_graph)
        value = _scalar(func)(*given)
        slopes = _grads((value,), given, (value.detach() * 0 + 1,), True, strict)
        product = _grads(slopes, given, directions, create_graph, strict)
    return _finished(value, create_graph), _as(_finished(product, create_graph), is_tuple)


def hvp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """(value, product of the Hessian with v); the Hessian is symmetric, so this is :func:`vhp`.

    Args:
        func: Takes the tensors ``inputs``, returns one number.
        inputs: A tensor or a tuple of tensors.
        v: As ``inputs``.
        create_graph: Record the computation, so that its result can be derived again.
        strict: Raise when a result does not depend on an input, instead of zeros.
    """
    return vhp(func, inputs, v, create_graph, strict)


_imports.answer_for_missing(__name__)
