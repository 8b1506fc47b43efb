# SPDX-License-Identifier: BSD-3-Clause
"""Methods of tensors that are made of other operations, and answers to questions about where and
how values are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from modtree import _C
from modtree._C import as_tuple
from modtree._ops.registry import export, functions
from modtree._ops.signatures import signature
from modtree._tensor.layouts import preserve_format
from modtree._tensor.memory_formats import check_format, in_format, in_order_of

if TYPE_CHECKING:
    from modtree._argument_types import Number, Sizes, Tensor, memory_format


def fill_diagonal_(self: Tensor, fill_value: Number, wrap: bool = False) -> Tensor:
    """Sets the elements whose indices are equal, in place.

    Args:
        fill_value: A number.
        wrap: In a tall matrix, start again below each square.

    Raises:
        RuntimeError: Fewer than 2 dimensions, or more than 2 of different sizes.
    """
    sizes = tuple(self.shape)
    if len(sizes) < 2:
        raise RuntimeError("dimensions must larger than 1")
    if len(sizes) > 2 and len(set(sizes)) > 1:
        raise RuntimeError("all dimensions of input must be of equal length")
    if wrap and len(sizes) == 2 and self.numel():
        rows, columns = sizes
        for start in range(0, rows, columns + 1):
            self[start : start + columns].diagonal().fill_(fill_value)
        return self
    diagonal = self
    while diagonal.ndim > 1:
        diagonal = diagonal.diagonal(0, 0, 1)
    diagonal.fill_(fill_value)
    return self


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


def map_(self: Tensor, tensor: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Replaces each element a by ``callable(a, b)``, b from another tensor that broadcasts, in
    place.
    """
    _C.check_inplace(self)
    other = tensor.detach().expand(self.shape).reshape(-1).tolist()
    own = self.detach().reshape(-1).tolist()
    values = [callable(a, b) for a, b in zip(own, other, strict=True)]
    with_values = functions["reshape"](self.new_tensor(values), self.shape)
    return self.copy_(with_values)


def resize_as_(
    self: Tensor, the_template: Tensor, *, memory_format: memory_format | None = None
) -> Tensor:
    """resize_() to the shape of another tensor, and to a format (by default its)."""
    check_format("resize_as_", memory_format, or_none=True)
    if self.shape != the_template.shape:
        self.resize_(the_template.shape)
    if memory_format is preserve_format:
        self.data = in_order_of(the_template, self.data, None)
    elif memory_format is not None:
        self.data = in_format(self.data, memory_format)
    return self


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


for _function in (fill_diagonal_, sum_to_size, map_, resize_as_):
    export(_function.__name__, _function, function=False)
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
    """Are the values in main memory?"""
    return not self.is_meta


export("is_cpu", property(_is_cpu), function=False)
for _name in ("is_xpu", "is_nested", "is_mkldnn"):
    export(_name, property(_always(_name, False)), function=False)
