# SPDX-License-Identifier: BSD-3-Clause
"""State dicts: what ``state_dict()`` and ``load_state_dict()`` return, and the registration of
their hooks.

The walks themselves are native (``csrc/core/module/state/state_dict.cpp``,
``csrc/core/module/state/load_state_dict.cpp``).
"""

from __future__ import annotations

import copy
import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

from modtree import _C
from modtree.core.hooks import RemovableHandle, WrappedHook

_Hook = Callable[..., Any]


class StateDict(OrderedDict):
    """The result of ``Module.state_dict()``: an ordered dict whose copies keep ``_metadata``.

    ``_metadata`` maps the path of every module to ``{"version": ...}``. After a walk without Python
    code it is kept as a compact record and becomes a real dict when it is first asked for.
    """

    # Native code stores the record here; the attribute is deleted when `_metadata` is made from it.
    # `_origin` is set where tensors are in the map of a file. Loads ask for `_metadata` before they
    # read, and so ask it for the versions, which it gives if the file is as long as it was.
    __slots__ = ("_metadata_record", "_origin")

    _metadata: OrderedDict[str, dict[str, Any]]

    def __getattr__(self, name: str) -> Any:
        # Reached only while `_metadata` is not in the instance dict.
        if name == "_metadata":
            try:
                record = self._metadata_record
            except AttributeError:
                pass
            else:
                self._metadata = _C._make_state_metadata(record)
                return self._metadata
            try:
                origin = self._origin
            except AttributeError:
                pass
            else:
                versions = origin()
                if versions is not None:
                    return versions
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "_metadata":
            self._forget_record()

    def __delattr__(self, name: str) -> None:
        if name == "_metadata":
            self._settle()
        super().__delattr__(name)

    def _forget_record(self) -> None:
        for name in StateDict.__slots__:
            try:
                super().__delattr__(name)
            except AttributeError:
                pass

    def _settle(self) -> None:
        """Puts the `_metadata` into the instance dict, if there is any."""
        versions = getattr(self, "_metadata", None)
        if versions is not None and "_metadata" not in vars(self):
            self._metadata = versions

    def __reduce__(self) -> Any:
        # Pickled as what torch's state dicts are, so that files can be read without modtree and by
        # torch's restricted unpickler.
        self._settle()
        cls = OrderedDict if type(self) is StateDict else type(self)
        return cls, (), dict(vars(self)) or None, None, iter(self.items())

    def __deepcopy__(self, memo: dict[int, Any]) -> StateDict:
        new = memo[id(self)] = type(self)()
        self._settle()
        vars(new).update(copy.deepcopy(vars(self), memo))
        for key, value in self.items():
            new[copy.deepcopy(key, memo)] = copy.deepcopy(value, memo)
        return new

    def __copy__(self) -> StateDict:
        new = type(self)(self)
        self._settle()
        vars(new).update(vars(self))
        return new

    def copy(self) -> StateDict:
        """A shallow copy with the same ``_metadata`` object."""
        return copy.copy(self)


class _IncompatibleKeys(
    NamedTuple("IncompatibleKeys", [("missing_keys", list[str]), ("unexpected_keys", list[str])])
):
    """What ``load_state_dict()`` returns: the keys that found no partner on the other side.

    Its text ends with buffers that are on meta and that no checkpoint has.
    """

    #: Set by :mod:`modtree.core.loading.report`, for the result of a whole load.
    _read_model: Callable[[], Any] | None = None

    @property
    def meta_keys(self) -> list[str]:
        """The tensors of the model that are on meta, buffers that are not persistent among them;
        none when the model is gone.
        """
        keys = None if self._read_model is None else self._read_model()
        return [] if keys is None else keys.on_meta()

    def __repr__(self) -> str:
        keys = None if self._read_model is None else self._read_model()
        left = [] if keys is None else keys.transient_on_meta()
        if not self.missing_keys and not self.unexpected_keys:
            shown = [*left[:3], *([f"and {len(left) - 3} more"] if len(left) > 3 else [])]
            more = f"; on meta, without values: {', '.join(shown)}" if left else ""
            return f"<All keys matched successfully{more}>"
        more = f", not persistent and on meta: {left!r}" if left else ""
        return (
            f"_IncompatibleKeys(missing_keys={self.missing_keys!r}, "
            f"unexpected_keys={self.unexpected_keys!r}{more})"
        )

    __str__ = __repr__

    def __reduce__(self) -> Any:
        return type(self), (self.missing_keys, self.unexpected_keys)


# -- hooks of state_dict() -------------------------------------------------------------------------


class PublicStateDictHook:
    """A hook of ``register_state_dict_post_hook`` in the table of a module.

    The entry itself says that the hook is public, so that the same function registered in the older
    way elsewhere stays what it is there. It is equal to its function and shows its attributes.
    """

    _from_public_api = True

    def __init__(self, hook: _Hook) -> None:
        functools.update_wrapper(self, hook)
        self.hook = hook

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.hook(*args, **kwargs)

    def __eq__(self, other: object) -> Any:
        if isinstance(other, PublicStateDictHook):
            other = other.hook
        return self.hook == other

    def __hash__(self) -> int:
        return hash(self.hook)


def register_state_dict_pre_hook(self: Any, hook: _Hook) -> RemovableHandle:
    """Calls ``hook(module, prefix, keep_vars)`` before the entries of this module are collected."""
    handle = RemovableHandle(self._state_dict_pre_hooks)
    self._state_dict_pre_hooks[handle.id] = hook
    return handle


def register_state_dict_post_hook(self: Any, hook: _Hook) -> RemovableHandle:
    """Calls ``hook(module, state_dict, prefix, local_metadata)`` when the entries of this module
    are collected.

    The hook may change ``state_dict`` in place and must return None.
    """
    if not callable(hook):
        raise AttributeError(
            f"'{type(hook).__name__}' object is not callable: a state_dict post-hook is a "
            f"function of (module, state_dict, prefix, local_metadata)"
        )
    try:
        hook._from_public_api = True  # type: ignore[attr-defined]
    except (AttributeError, TypeError):
        pass  # a bound method or a builtin; the table entry carries the flag
    handle = RemovableHandle(self._state_dict_hooks)
    self._state_dict_hooks[handle.id] = PublicStateDictHook(hook)
    return handle


def _register_state_dict_hook(self: Any, hook: _Hook) -> RemovableHandle:
    """The older form of :func:`register_state_dict_post_hook`: the root's hook may return another
    state dict.
    """
    if getattr(hook, "_from_public_api", False):
        raise RuntimeError(
            "Cannot register this hook: it was previously registered via "
            "register_state_dict_post_hook; wrap the function in a new one"
        )
    handle = RemovableHandle(self._state_dict_hooks)
    self._state_dict_hooks[handle.id] = hook
    return handle


# -- hooks of load_state_dict() --------------------------------------------------------------------


def _register_load_state_dict_pre_hook(
    self: Any, hook: _Hook, with_module: bool = False
) -> RemovableHandle:
    """The older form of :func:`register_load_state_dict_pre_hook`; the module is passed first only
    when asked for.
    """
    handle = RemovableHandle(self._load_state_dict_pre_hooks)
    self._load_state_dict_pre_hooks[handle.id] = WrappedHook(hook, self if with_module else None)
    return handle


def register_load_state_dict_pre_hook(self: Any, hook: _Hook) -> RemovableHandle:
    """Calls the hook before entries are loaded into this module.

    ``hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
    error_msgs)`` may change the state dict and the lists in place; what it returns is ignored.
    """
    return self._register_load_state_dict_pre_hook(hook, with_module=True)


def register_load_state_dict_post_hook(self: Any, hook: _Hook) -> RemovableHandle:
    """Calls ``hook(module, incompatible_keys)`` when this module and its children are loaded.

    The hook may change the lists ``incompatible_keys.missing_keys`` and ``.unexpected_keys`` in
    place (clearing both suppresses the error of a strict load) and must return None.
    """
    handle = RemovableHandle(self._load_state_dict_post_hooks)
    self._load_state_dict_post_hooks[handle.id] = hook
    return handle


_C._install(IncompatibleKeys=_IncompatibleKeys, StateDict=StateDict)
