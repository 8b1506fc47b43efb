# SPDX-License-Identifier: BSD-3-Clause
"""Tensors with a tangent. The graph goes backward only: tangents are computed when they are asked
for, as the derivative of a product of a vector with the Jacobian by that vector.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from modtree._tensor.creation import zeros_like
from modtree._tensor.engine import grad
from modtree._tensor.grad_mode import enable_grad

__all__ = [
    "UnpackedDualTensor",
    "dual_level",
    "enter_dual_level",
    "exit_dual_level",
    "make_dual",
    "unpack_dual",
]

#: (tensor that is derived by, tangent) of the level that is entered; None outside of one.
_duals: list[tuple[Any, Any]] | None = None


class UnpackedDualTensor(NamedTuple):
    """A value, and its derivative in the direction of the tangents; None where it has none."""

    primal: Any
    tangent: Any


def enter_dual_level() -> int:
    """Begins to keep tangents; only one level can be entered."""
    global _duals
    if _duals is not None:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    _duals = []
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """Forgets the tangents.

    Args:
        level: The number that :func:`enter_dual_level` gave.
    """
    global _duals
    if _duals is None or level not in (None, 0):
        raise RuntimeError(
            "Trying to exit a forward AD level that was not the last one that was created. This "
            "is not supported."
        )
    _duals = None


class dual_level:  # noqa: N801
    """Context in which tensors can have tangents."""

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *exception: Any) -> None:
        exit_dual_level()


def make_dual(tensor: Any, tangent: Any, *, level: int | None = None) -> Any:
    """A tensor with a tangent: a handle of the same memory, which requires grad.

    Args:
        tensor: Values of a floating or complex dtype.
        tangent: The direction, of the same shape and dtype.
        level: The number of the level.
    """
    if _duals is None:
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to "
            "enter_dual_level() first."
        )
    for what, value in (("primal", tensor), ("tangent", tangent)):
        if not (value.is_floating_point() or value.is_complex()):
            raise ValueError(
                f"Expected {what} to be floating point or complex, but got: {value.dtype}"
            )
    if tensor.shape != tangent.shape or tensor.dtype != tangent.dtype:
        raise RuntimeError(
            f"Expected a tangent of the primal's shape {list(tensor.shape)} and dtype "
            f"{tensor.dtype}, got shape {list(tangent.shape)} and dtype {tangent.dtype}"
        )
    with enable_grad():
        dual = tensor.view_as(tensor) if tensor.requires_grad else tensor.detach().requires_grad_()
    _duals.append((dual, tangent))
    return dual


def unpack_dual(tensor: Any, *, level: int | None = None) -> UnpackedDualTensor:
    """The value and the tangent of a tensor.

    Args:
        tensor: What was computed from dual tensors, or one itself.
        level: The number of the level.
    """
    if _duals is None or not tensor.requires_grad or not _duals:
        return UnpackedDualTensor(tensor, None)
    for dual, tangent in _duals:
        if dual is tensor:
            return UnpackedDualTensor(tensor.detach(), tangent)
    with enable_grad():
        weights = zeros_like(tensor).detach().requires_grad_()
        pulled = grad(
            [tensor], [d for d, _ in _duals], [weights], create_graph=True, allow_unused=True
        )
        pairs = [
            (g, t)
            for g, (_, t) in zip(pulled, _duals, strict=True)
            if g is not None and g.requires_grad
        ]
        if all(g is None for g in pulled):
            return UnpackedDualTensor(tensor, None)
        if not pairs:
            return UnpackedDualTensor(tensor.detach(), zeros_like(tensor))
        records = any(t.requires_grad for _, t in pairs)
        (found,) = grad(
            [g for g, _ in pairs],
            [weights],
            [t for _, t in pairs],
            retain_graph=True,
            create_graph=records,
            allow_unused=True,
        )
    if found is None:
        found = zeros_like(tensor)
    return UnpackedDualTensor(tensor.detach(), found)
