# SPDX-License-Identifier: BSD-3-Clause
"""Methods of tensors that are made of other operations, and answers to questions about where and
how values are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modtree._C import as_tuple
from modtree.numpy.ops.registry import export
from modtree.numpy.ops.signatures import signature

if TYPE_CHECKING:
    from modtree.numpy.argument_types import Sizes, Tensor


def sum_to_size(self: Tensor, *size: int | Sizes) -> Tensor:
    """The sums over what broadcasting from ``size`` would repeat: the opposite of ``expand``.

    Raises:
        RuntimeError: A tensor of that size does not broadcast to this one's shape.
    """
    target = as_tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
    shape = tuple(self.shape)
    extra = len(shape) - len(target)
    if extra < 0 or any(n not in (1, m) for n, m in zip(target, shape[extra:], strict=True)):
        raise RuntimeError(f"size {{{list(target)}}} is not expandable to size {{{list(shape)}}}.")
    summed = [i for i, m in enumerate(shape) if i < extra or (target[i - extra] == 1 and m != 1)]
    if not target:
        return self.sum()
    return self.sum(summed, keepdim=True).reshape(target) if summed else self


def _itself(name: str, text: str) -> Any:
    def method(self: Tensor, *_: Any, **__: Any) -> Tensor:
        return self

    method.__name__ = method.__qualname__ = name
    method.__doc__ = text
    method.__signature__ = signature("input")  # type: ignore[attr-defined]
    return method


def _always(name: str, answer: bool) -> Any:
    def method(self: Tensor) -> bool:
        return answer

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"{answer}, for every tensor."
    return method


export("sum_to_size", sum_to_size, function=False)
export(
    "pin_memory",
    _itself("pin_memory", "The tensor: there is no device that pinned memory would serve."),
    function=False,
)
export("to_dense", _itself("to_dense", "The tensor, which is dense."), function=False)
for _name in ("resolve_conj", "resolve_neg"):
    export(_name, _itself(_name, "The tensor, whose values are in its memory as they are."))
for _name in ("is_conj", "is_neg", "is_distributed"):
    export(_name, _always(_name, False))


def _is_cpu(self: Tensor) -> bool:
    """True if the values are in main memory."""
    return not self.is_meta


export("is_cpu", property(_is_cpu), function=False)
for _name in ("is_xpu", "is_nested", "is_mkldnn"):
    export(_name, property(_always(_name, False)), function=False)
