# SPDX-License-Identifier: BSD-3-Clause
"""Copying modules whose classes take part in the pickling protocol with methods of their own.

``Module`` defines ``__copy__`` and ``__deepcopy__`` (native); these do what :mod:`copy` does for a class without them.
"""

from __future__ import annotations

import copy
from typing import Any


def _rebuild(reduced: Any, self: Any, memo: dict[int, Any] | None) -> Any:
    if isinstance(reduced, str):
        return self
    function, args, state, *rest = (*reduced, None)[: max(3, len(reduced))]
    if any(part is not None for part in rest):
        raise TypeError(
            f"cannot copy {type(self).__name__}: its __reduce_ex__ describes list or dict items"
        )
    if memo is not None:
        args = tuple(copy.deepcopy(arg, memo) for arg in args)
    result = function(*args)
    if memo is not None:
        memo[id(self)] = result
    if state is not None:
        if memo is not None:
            state = copy.deepcopy(state, memo)
        result.__setstate__(state)
    return result


def copy_by_protocol(self: Any) -> Any:
    """``copy.copy`` through ``__reduce_ex__`` and ``__setstate__``."""
    return _rebuild(self.__reduce_ex__(4), self, None)


def deepcopy_by_protocol(self: Any, memo: dict[int, Any]) -> Any:
    """``copy.deepcopy`` through ``__reduce_ex__`` and ``__setstate__``."""
    return _rebuild(self.__reduce_ex__(4), self, memo)
