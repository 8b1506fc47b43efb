# SPDX-License-Identifier: BSD-3-Clause
"""Size: the shape of a tensor."""

from __future__ import annotations

import operator
from typing import Any, SupportsIndex, overload


class Size(tuple[int, ...]):
    """The extents of a tensor: a tuple of ints that prints as ``modtree.Size([2, 3])``."""

    __module__ = "modtree"  # the name in pickles and in repr

    __slots__ = ()

    def __new__(cls, sizes: Any = ()) -> Size:
        return tuple.__new__(cls, map(operator.index, sizes))

    def numel(self) -> int:
        """The number of elements of such a tensor."""
        total = 1
        for size in self:
            total *= size
        return total

    def __repr__(self) -> str:
        return f"modtree.Size([{', '.join(map(str, self))}])"

    __str__ = __repr__

    @overload
    def __getitem__(self, index: SupportsIndex) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> Size: ...

    def __getitem__(self, index: Any) -> Any:
        result = tuple.__getitem__(self, index)
        return Size(result) if isinstance(index, slice) else result

    def __add__(self, other: Any) -> Any:
        return (
            Size(tuple.__add__(self, tuple(other))) if isinstance(other, tuple) else NotImplemented
        )

    def __mul__(self, count: Any) -> Any:
        return Size(tuple.__mul__(self, count))

    __rmul__ = __mul__

    def __reduce__(self) -> tuple[Any, ...]:
        return Size, (tuple(self),)
