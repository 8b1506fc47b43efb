# SPDX-License-Identifier: BSD-3-Clause
"""``modtree.diff``: differences of neighbours of a tensor, as torch has it. Two models go on to
``modtree.compare``, which was a part of it.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, overload

from modtree._ops import functions
from modtree._ops.overridable import overridable
from modtree._tensor.tensor import Tensor
from modtree.core.loading.rename import Rename
from modtree.inspection.functions import Comparable, can_be_compared, compare

if TYPE_CHECKING:
    from modtree.inspection.comparison.result import Diff

__all__ = ["diff"]


@overload
def diff(
    a: Comparable,
    b: Comparable,
    /,
    *,
    rtol: float = ...,
    atol: float = ...,
    values: bool = ...,
    rename: Rename | None = ...,
) -> Diff: ...
@overload
def diff(
    input: Tensor,
    n: int = ...,
    dim: int = ...,
    prepend: Tensor | None = ...,
    append: Tensor | None = ...,
    *,
    out: Tensor | None = ...,
) -> Tensor: ...
def diff(
    input: Any,
    n: Any = 1,
    dim: int = -1,
    prepend: Any = None,
    append: Any = None,
    *,
    out: Any = None,
    **options: Any,
) -> Any:
    """The differences of neighbours along a dimension, ``n`` times over.

    Two models, state dicts or paths go on to :func:`modtree.compare`, with a DeprecationWarning.

    Args:
        input: The tensor.
        n: How often differences are taken.
        dim: Along which dimension.
        prepend: What is joined in front of the tensor first.
        append: What is joined behind it first.
        out: Where the result is written.
        options: Those of :func:`modtree.compare`.
    """
    if can_be_compared(input):
        if type(n) is int and n == 1:
            raise TypeError("compare(a, b) takes two models, state dicts or paths: b is missing")
        if dim != -1 or not (prepend is append is out is None):
            raise TypeError("dim, prepend, append and out are for tensors, not for comparisons")
        warnings.warn(
            "modtree.diff of models, state dicts and checkpoints is modtree.compare(a, b) now",
            DeprecationWarning,
            stacklevel=2,
        )
        return compare(input, n, **options)
    if options:
        raise TypeError(
            f"{', '.join(options)}: of models, state dicts and paths, and diff got "
            f"{type(input).__name__} to take differences of"
        )
    more = {} if out is None else {"out": out}  # which only tensors of modtree take
    return functions.diff(input, n, dim, prepend, append, **more)


diff = overridable(diff)
