# SPDX-License-Identifier: BSD-3-Clause
"""backward() and grad(): running the native engine, and what it asks of Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from modtree import _C
from modtree._C import as_tuple
from modtree.numpy.ops.registry import ops
from modtree.numpy.tensor.creation import zeros_like


def _tuple(tensors: Any) -> tuple[Any, ...]:
    return (tensors,) if isinstance(tensors, _C.TensorBase) else as_tuple(tensors)


def _gradients_for(tensors: tuple[Any, ...], gradients: Any) -> tuple[Any, ...]:
    if gradients is None:
        return (None,) * len(tensors)
    given = (gradients,) if isinstance(gradients, _C.TensorBase) else as_tuple(gradients)
    if len(given) != len(tensors):
        raise RuntimeError(f"got {len(tensors)} tensors and {len(given)} gradients")
    return given


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Adds the gradients of the sum of ``tensors`` to the ``grad`` of the leaves that they were
    computed from.

    Args:
        tensors: A tensor or a sequence of them.
        grad_tensors: For each its weight, a tensor of its shape; None means 1 and needs a tensor of
            one element.
        retain_graph: Keep what the graph saved, so that it can be gone through again. The default
            is ``create_graph``.
        create_graph: Record backward itself, so that gradients can be derived again.
        inputs: Add to the grad of these tensors only.

    Raises:
        RuntimeError: A tensor needs no gradient, a weight has another shape, or the graph was gone
            through before.
    """
    if inputs is not None and not isinstance(inputs, _C.TensorBase) and len(inputs) == 0:
        raise RuntimeError("'inputs' argument to backward cannot be empty.")
    roots = _tuple(tensors)
    keep = create_graph if retain_graph is None else retain_graph
    _C.run_backward(
        roots,
        _gradients_for(roots, grad_tensors),
        None if inputs is None else _tuple(inputs),
        keep_graph=keep,
        create_graph=create_graph,
        accumulate=True,
        allow_unused=True,
    )


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """The gradients of the sum of ``outputs`` with respect to ``inputs``, as a tuple; no ``grad``
    changes.

    Args:
        outputs: A tensor or a sequence of them.
        inputs: The tensors to derive by.
        grad_outputs: The weights of the outputs, as ``grad_tensors`` of :func:`backward`; with
            ``is_grads_batched`` each has one dimension more in front, and so has each gradient.
        retain_graph: As for :func:`backward`.
        create_graph: As for :func:`backward`.
        only_inputs: Always so; programs written for old versions of torch say it.
        allow_unused: Give None for an input that the outputs do not depend on; else that is an
            error.
        is_grads_batched: Do one pass for each entry of the weights' first dimension.
        materialize_grads: Zeros in place of None.
    """
    roots, wanted = _tuple(outputs), _tuple(inputs)
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but "
            "got: allow_unused=False."
        )
    if not wanted:
        raise ValueError("grad requires non-empty inputs.")
    keep = create_graph if retain_graph is None else retain_graph
    weights = _gradients_for(roots, grad_outputs)

    def run(weights: tuple[Any, ...], keep: bool) -> tuple[Any, ...]:
        return _C.run_backward(
            roots,
            weights,
            wanted,
            keep_graph=keep,
            create_graph=create_graph,
            accumulate=False,
            allow_unused=bool(allow_unused) or materialize_grads,
        )

    if is_grads_batched:
        result = _batched(run, weights, keep)
    else:
        result = run(weights, keep)
    if materialize_grads:
        result = tuple(
            zeros_like(t) if g is None else g for g, t in zip(result, wanted, strict=True)
        )
    return result


def _batched(run: Any, weights: Sequence[Any], keep: bool) -> tuple[Any, ...]:
    count = {len(w) for w in weights if w is not None}
    if len(count) != 1:
        raise ValueError(
            f"with is_grads_batched all grad_outputs need the same first dimension, got "
            f"{sorted(count)}"
        )
    (n,) = count
    rows = [
        run(tuple(None if w is None else w[i] for w in weights), keep or i < n - 1)
        for i in range(n)
    ]
    return tuple(
        None if column[0] is None else ops["stack"](list(column), 0)
        for column in zip(*rows, strict=True)
    )


def _fit(value: Any, shape: tuple[int, ...], dtype: Any, name: str) -> Any:
    """A gradient that a derivative computed on tensors, with the shape and dtype that it must
    have.
    """
    if not isinstance(value, _C.TensorBase):
        value = _C.wrap(value)
    have = tuple(value.shape)
    if have != shape:
        lead = len(shape) - len(have)
        if lead > 0 and all(n == 1 for n in shape[:lead]):
            have = shape[:lead] + have
            value = value.reshape(have)
        extra = len(have) - len(shape)
        if extra < 0 or any(n not in (1, m) for n, m in zip(shape, have[extra:], strict=True)):
            raise RuntimeError(
                f"Function {name} returned an invalid gradient: got shape {list(have)} but "
                f"expected shape compatible with {list(shape)}"
            )
        summed = [i for i, m in enumerate(have) if i < extra or (shape[i - extra] == 1 and m != 1)]
        value = value.sum(summed).reshape(shape) if summed else value.reshape(shape)
    if value.dtype != dtype:
        if value.is_complex() and not dtype.is_complex:
            value = value.real
        value = value.to(dtype)
    return value


def refuse_second(name: str) -> Any:
    def refuse(*gradients: Any) -> Any:
        raise RuntimeError(
            f"derivative of {name} is not differentiable: it was computed on arrays, not recorded. "
            "Write the function with operations whose gradients can be derived again"
        )

    return refuse


_C._install(fit_gradient=_fit, refuse_double_backward=refuse_second)
