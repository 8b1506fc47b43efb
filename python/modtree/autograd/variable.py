# SPDX-License-Identifier: BSD-3-Clause
"""``Variable``: the old name of a tensor that takes part in a graph."""

from __future__ import annotations

from typing import Any

from modtree import _C

__all__ = ["Variable"]


class _VariableMeta(type):
    """Every tensor is a Variable."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _C.TensorBase)


class Variable(metaclass=_VariableMeta):
    """``Variable(tensor, requires_grad=False)`` gives a tensor over the same memory without
    history.

    Args:
        data: A tensor.
        requires_grad: Record operations on the result.
        volatile: Accepted.
    """

    def __new__(cls, data: Any, requires_grad: bool = False, volatile: bool = False) -> Any:
        return data.detach().requires_grad_(requires_grad)
