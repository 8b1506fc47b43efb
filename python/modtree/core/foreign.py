# SPDX-License-Identifier: BSD-3-Clause
"""torch's modules beside ours: which values are of which kind, and the warnings where one is put
into the other.
"""

from __future__ import annotations

import sys
import warnings
import weakref
from typing import Any

from modtree import _C

# A metaclass may answer anything for `cls.__mro__`.
_mro_of = type.__dict__["__mro__"].__get__

# By id, since a metaclass may have any __hash__ and __eq__; a class that died gives its place to
# the next at its address.
_warned: dict[int, weakref.ref[type]] = {}


def is_native(value: Any) -> bool:
    """True for an object of the native class. isinstance() is also true for what says so by its
    ``__class__``, such as a mock with a spec or a proxy, and does not have native fields.
    """
    return issubclass(type(value), _C.ModuleBase)


def state_of(module: Any) -> dict[str, Any]:
    """The attributes and registries of a module, without asking anything that a class may
    override. A look at its ``__dict__`` would end the compact form of a module of modtree.
    """
    if is_native(module):
        return _C.ModuleBase.__getstate__(module)
    return dict(getattr(module, "__dict__", {}))


def is_module_class(cls: type) -> bool:
    """True if the class is a ``torch.nn.Module``. Never imports torch: without it, none is."""
    home = sys.modules.get("torch.nn.modules.module")
    module_class = None if home is None else vars(home).get("Module")
    return any(base is module_class for base in _mro_of(cls))


def _warn_once(cls: type, message: str, stacklevel: int) -> None:
    known = _warned.get(id(cls))
    if known is None or known() is not cls:
        warnings.warn(message, UserWarning, stacklevel=stacklevel + 1)
        # Not where warnings are errors: then nothing is assigned, this time and the next.
        _warned[id(cls)] = weakref.ref(cls)


def warn_of_child(parent: Any, name: str, child: Any) -> None:
    """Called by native code when a torch module becomes an attribute of one of ours."""
    cls = type(child)
    _warn_once(
        cls,
        f"{type(parent).__name__}.{name} is a torch.nn.Module "
        f"({cls.__module__}.{cls.__qualname__}), which modtree keeps as a plain attribute: "
        f"parameters(), state_dict(), train(), to() and apply() do not reach it, and repr() does "
        f"not show it. Use a layer of modtree.nn in its place, or let its class be defined with "
        f"modtree.nn.Module as the base",
        stacklevel=2,
    )


def warn_of_parent(parent: Any, name: str, child: Any) -> None:
    """Called by native code when one of our modules becomes a plain attribute of a torch module."""
    cls = type(parent)
    _warn_once(
        cls,
        f"{cls.__name__}.{name} is a module of modtree ({type(child).__name__}), which torch "
        f"keeps as a plain attribute: parameters(), state_dict(), train(), to() and apply() of the "
        f"torch.nn.Module around it do not reach it, and repr() does not show it. Let "
        f"{cls.__qualname__} be defined with modtree.nn.Module as the base, or use a layer of "
        f"torch.nn",
        stacklevel=3 if sys._getframe(1).f_code.co_name == "__setattr__" else 2,
    )


_C._install(
    is_foreign_module_class=is_module_class,
    warn_of_foreign_child=warn_of_child,
    warn_of_foreign_parent=warn_of_parent,
)
