# SPDX-License-Identifier: BSD-3-Clause
"""RemovableHandle: what registering a hook returns."""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from modtree import _C

_Ref = Callable[[], Any]

# Two threads never get the same id. A thread may take it twice: handlers of signals register hooks
# at any time.
_counting = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_counting.acquire,
        after_in_parent=_counting.release,
        after_in_child=_counting.release,
    )


class RemovableHandle:
    """What registering a hook returns: removes the hook with :meth:`remove`, or at the end of a
    ``with`` block.

    Args:
        hooks_dict: The table that has the hook under :attr:`id`. Held weakly, so it must be
            an ``OrderedDict`` or another mapping that can be weakly referenced.
        extra_dict: A further table, or a list of them, from which the id is removed as well.
    """

    #: The id that the next hook of any kind gets.
    next_id: int = 0

    id: int
    hooks_dict_ref: _Ref
    extra_dict_ref: tuple[_Ref, ...]

    def __init__(self, hooks_dict: Any, *, extra_dict: Any = None) -> None:
        self.hooks_dict_ref = weakref.ref(hooks_dict)
        if extra_dict is None:
            extra_dict = ()
        elif isinstance(extra_dict, Mapping):
            extra_dict = (extra_dict,)
        self.extra_dict_ref = tuple(weakref.ref(table) for table in extra_dict)
        with _counting:
            self.id = RemovableHandle.next_id
            RemovableHandle.next_id += 1

    def remove(self) -> None:
        """Removes the hook; does nothing if that is done, or if its module is gone."""
        for ref in (self.hooks_dict_ref, *self.extra_dict_ref):
            table = ref()
            if type(table) is OrderedDict or type(table) is dict:
                table.pop(self.id, None)
            elif table is not None and self.id in table:
                del table[self.id]

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        self.remove()

    def __getstate__(self) -> tuple[Any, ...]:
        return self.hooks_dict_ref(), self.id, tuple(ref() for ref in self.extra_dict_ref)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        # Older states end after the id.
        hooks_dict, self.id = state[:2]
        extra_dicts = state[2] if len(state) > 2 and state[2] is not None else ()
        self.hooks_dict_ref = _ref_or_dead(hooks_dict)
        self.extra_dict_ref = tuple(map(_ref_or_dead, extra_dicts))
        following = self.id + 1
        with _counting:
            RemovableHandle.next_id = max(RemovableHandle.next_id, following)


def _ref_or_dead(table: Any) -> _Ref:
    # A reference to a table that dies at once, when there is none.
    return weakref.ref(OrderedDict() if table is None else table)


_C._install(RemovableHandle=RemovableHandle)
