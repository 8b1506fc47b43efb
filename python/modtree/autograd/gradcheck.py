# SPDX-License-Identifier: BSD-3-Clause
"""Checks derivatives against differences of function values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from modtree import _C
from modtree._C import as_tuple
from modtree.numpy.tensor.engine import grad
from modtree.numpy.tensor.grad_mode import enable_grad, no_grad
from modtree.numpy.tensor.random_creation import randn_like

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]


#: Arguments of torch's functions for checks that modtree cannot make.
_ABSENT_CHECKS = (
    "check_batched_grad",
    "check_batched_forward_grad",
    "check_forward_ad",
    "check_fwd_over_rev",
)


class GradcheckError(RuntimeError):
    """A derivative differs from the differences of the function's values."""


def _tensors(values: Any) -> list[Any]:
    given = (values,) if isinstance(values, _C.TensorBase) else values
    return [v for v in given if isinstance(v, _C.TensorBase)]


def _derivable(outputs: Any) -> list[Any]:
    return [t for t in _tensors(outputs) if t.requires_grad]


def _numeric(run: Callable[[], list[Any]], x: Any, eps: float) -> list[Any]:
    """For each output a matrix: rows are elements of x, columns elements of the output. Complex x:
    df/dre + 1j df/dim.
    """
    array = x.detach()._array
    steps = (eps, 1j * eps) if array.dtype.kind == "c" else (eps,)
    columns: list[list[Any]] = []
    for place in np.ndindex(array.shape):
        kept = array[place]
        total: list[Any] = []
        for step in steps:
            values = []
            for sign in (1, -1):
                array[place] = kept + sign * step
                with no_grad():
                    values.append([np.array(t._array) for t in run()])
            array[place] = kept
            change = [(a - b) / (2 * eps) for a, b in zip(*values, strict=True)]
            total = change if not total else [(a, b) for a, b in zip(total, change, strict=True)]
        columns.append(total)
    return [list(column) for column in zip(*columns, strict=True)]


def _products(differences: list[Any], weight: np.ndarray, shape: Any, is_complex: bool) -> Any:
    """The gradient that a weight of the output has, from differences: the real part of each change
    times the weight.
    """

    def inner(change: np.ndarray) -> float:
        return float(np.sum((np.conj(weight) * change).real))

    if is_complex:
        values = [inner(real) + 1j * inner(imag) for real, imag in differences]
    else:
        values = [inner(change) for change in differences]
    return np.asarray(values).reshape(shape)


def _unit_weights(output: Any) -> Any:
    """Every element of the output once, and times i where it is complex."""
    shape, dtype = tuple(output.shape), output._array.dtype
    for unit in (1, 1j) if dtype.kind == "c" else (1,):
        for place in np.ndindex(shape):
            weight = np.zeros(shape, dtype)
            weight[place] = unit
            yield place, weight


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    **others: Any,
) -> bool:
    """Compares the gradients of a function with differences of its values.

    Args:
        func: Takes ``inputs``, gives a tensor or a tuple of them.
        inputs: A tensor or a tuple; those that require grad are checked, and should be of float64
            (or complex128).
        eps: How far inputs are moved.
        atol: Difference that is allowed.
        rtol: Difference that is allowed, relative to the value.
        raise_exception: Raise where they differ; else return False.
        nondet_tol: How much two backward passes may differ.
        check_undefined_grad: A missing gradient of an output must count as zeros.
        check_grad_dtypes: Gradients must have the dtypes of their inputs.
        others: Further arguments of torch's function; a check that needs ``vmap`` or forward mode
            is refused, the others are accepted.

    Raises:
        GradcheckError: The derivative is wrong, and ``raise_exception`` is set.
        NotImplementedError: A check that needs ``vmap`` or forward mode.
        ValueError: No input requires grad.
    """
    refused = [name for name in _ABSENT_CHECKS if others.get(name)]
    if refused:
        raise NotImplementedError(
            f"gradcheck: {', '.join(refused)} needs vmap or forward mode, which modtree does not "
            f"have. Leave it out to check the backward pass"
        )
    given = (inputs,) if isinstance(inputs, _C.TensorBase) else as_tuple(inputs)
    wanted = [t for t in _tensors(given) if t.requires_grad]
    if not wanted:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of the "
            "them have requires_grad=True."
        )

    def run() -> list[Any]:
        return _tensors(func(*given))

    try:
        with enable_grad():
            everything = run()
            outputs = [(k, t) for k, t in enumerate(everything) if t.requires_grad]
            for i, x in enumerate(wanted):
                numeric = _numeric(run, x, eps) if x.numel() else []
                for k, output in outputs:
                    if not numeric:
                        continue
                    _compare(grad, i, x, k, output, numeric[k], atol, rtol, nondet_tol)
            if check_grad_dtypes:
                _check_dtypes(grad, wanted, [t for _, t in outputs])
            if check_undefined_grad and len(outputs) > 1:
                for _k, output in outputs:  # the others get no gradient at all
                    grad([output], wanted, [output.detach() * 0 + 1], True, allow_unused=True)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _compare(
    grad: Any,
    i: int,
    x: Any,
    k: int,
    output: Any,
    numeric: Any,
    atol: float,
    rtol: float,
    nondet_tol: float,
) -> None:
    for place, weight in _unit_weights(output):

        def analytic() -> np.ndarray:
            given = _C.from_array(weight.copy())  # noqa: B023
            (g,) = grad([output], [x], [given], True, allow_unused=True)
            return np.zeros(tuple(x.shape)) if g is None else np.array(g.detach()._array)

        expected = _products(numeric, weight, tuple(x.shape), x.is_complex())
        found = analytic()
        if not np.allclose(found, expected, rtol, atol, equal_nan=True):
            raise GradcheckError(
                f"Jacobian mismatch for output {k} with respect to input {i}, element {place} of "
                f"the output:\n"
                f"numerical: {expected}\nanalytical: {found}"
            )
        if np.abs(analytic() - found).max(initial=0) > nondet_tol:
            raise GradcheckError(
                f"Backward is not reentrant: output {k}, input {i}: two passes gave different "
                f"gradients"
            )


def _check_dtypes(grad: Any, wanted: list[Any], outputs: list[Any]) -> None:
    weights = [t.detach() * 0 + 1 for t in outputs]
    for i, (x, g) in enumerate(
        zip(wanted, grad(outputs, wanted, weights, True, allow_unused=True), strict=True)
    ):
        if g is not None and g.dtype != x.dtype:
            raise GradcheckError(
                f"the gradient of input {i} has dtype {g.dtype}, the input {x.dtype}"
            )


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    **others: Any,
) -> bool:
    """Are the second derivatives of a function what differences of its gradients say? Arguments as
    for :func:`gradcheck`.

    Args:
        func: As for :func:`gradcheck`.
        inputs: As for :func:`gradcheck`.
        grad_outputs: The weights of the outputs; random ones when left out.
        eps: As for :func:`gradcheck`.
        atol: As for :func:`gradcheck`.
        rtol: As for :func:`gradcheck`.
        raise_exception: As for :func:`gradcheck`.
        others: Further arguments of :func:`gradcheck`.
    """
    given = (inputs,) if isinstance(inputs, _C.TensorBase) else as_tuple(inputs)
    with enable_grad():
        outputs = _derivable(func(*given))
    if grad_outputs is None:
        weights = tuple(randn_like(t).detach().requires_grad_() for t in outputs)
    else:
        weights = (
            (grad_outputs,) if isinstance(grad_outputs, _C.TensorBase) else as_tuple(grad_outputs)
        )

    def gradients(*values: Any) -> tuple[Any, ...]:
        arguments, weights = values[: len(given)], values[len(given) :]
        wanted = [t for t in _tensors(arguments) if t.requires_grad]
        with enable_grad():
            found = grad(
                _derivable(func(*arguments)),
                wanted,
                weights,
                create_graph=True,
                materialize_grads=True,
            )
        return tuple(found)

    return gradcheck(
        gradients,
        (*given, *weights),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        **others,
    )
