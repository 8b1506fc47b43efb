# SPDX-License-Identifier: BSD-3-Clause
"""Which tensor family answers for the values of a type.

The module tree asks :func:`find` once for every type of which a value reaches it and keeps the
answer for as long as the type lives. A family of a library that is not known here is announced by
:func:`register`; that takes no change in C++.
"""

from __future__ import annotations

import importlib
import sys
import weakref
from types import ModuleType
from typing import Any

from modtree import _C
from modtree.core.family import TensorFamily

__all__ = [
    "TensorFamily",
    "family_of",
    "find",
    "is_device",
    "is_lazy",
    "is_parameter",
    "register",
]

# Root module of a library -> its family, or the name of the module that has it as ``family``.
_families: dict[str, TensorFamily | str] = {
    "modtree": "modtree.families.numpy",
    "torch": "modtree.families.torch",
    "jax": "modtree.families.jax",
    "jaxlib": "modtree.families.jax",
}

# Where the `Tensor` of our own families lives. Most types of these libraries are no tensors and
# need no family, and a library may be half imported when its first module is made.
_tensor_home = {
    "modtree.families.numpy": ("modtree._tensor.tensor", "Tensor"),
    "modtree.families.torch": ("torch", "Tensor"),
    "modtree.families.jax": ("jax", None),  # tracers have no base in common with arrays
}

# Answers for the callers in Python; the native code has a cache of its own.
_found: weakref.WeakKeyDictionary[type, TensorFamily | None] = weakref.WeakKeyDictionary()

# A metaclass may answer anything for `cls.__mro__` and `cls.__module__`; these read what the
# interpreter itself uses.
_mro_of = type.__dict__["__mro__"].__get__
_module_of = type.__dict__["__module__"].__get__


def register(root_module_name: str, family: TensorFamily | ModuleType | str) -> None:
    """Announces the family of the tensors of a library.

    Args:
        root_module_name: The top-level module in which the library defines its tensor types:
            ``"jaxlib"``. A library with several of them is registered once for each.
        family: A :class:`TensorFamily`, or a module (or the name of one, imported when the first
            type of the library is met) that holds it under the name ``family``.

    Values that are attributes of a module already stay what they are: register before building
    modules.
    """
    if not isinstance(root_module_name, str) or not root_module_name.isidentifier():
        raise ValueError(
            f"expected the name of a top-level module such as 'jaxlib', got {root_module_name!r}"
        )
    if isinstance(family, ModuleType):
        family = family.family
    if not isinstance(family, (TensorFamily, str)):
        raise TypeError(
            f"expected a modtree.families.TensorFamily for '{root_module_name}', or a module "
            f"that has one as "
            f"'family', got {type(family).__name__}"
        )
    _families[root_module_name] = family
    _found.clear()
    _C._forget_families()


def find(cls: type) -> TensorFamily | None:
    """The family whose tensors the instances of a type are; None when they are no tensors.

    Never imports a library: a type that claims to be defined in one that nobody has imported has no
    family.
    """
    mro = _mro_of(cls)
    asked = set()
    for base in mro:
        try:
            module = _module_of(base)
        except AttributeError:
            continue
        if not isinstance(module, str):
            continue
        root = module.partition(".")[0]
        if root in asked or root not in _families:
            continue
        asked.add(root)
        family = _load(root, mro)
        if family is not None and family.owns(cls):
            return family
    return None


def family_of(value: Any) -> TensorFamily | None:
    """The family of a value; None when it is no tensor."""
    cls = type(value)
    try:
        if cls in _found:
            return _found[cls]
    except Exception:  # a metaclass without a usable __hash__ or __eq__
        return find(cls)
    family = _found[cls] = find(cls)
    return family


def is_parameter(value: Any) -> bool:
    """Is it a parameter of any library?"""
    family = family_of(value)
    return family is not None and bool(family.is_parameter(value))


def is_lazy(value: Any) -> bool:
    """Is it a parameter or buffer whose shape is not known yet?"""
    family = family_of(value)
    return family is not None and bool(family.is_uninitialized(value))


def is_device(value: Any) -> bool:
    """Is it a device of a library whose family was met?"""
    met = {id(entry): entry for entry in _families.values() if not isinstance(entry, str)}
    return any(family.is_device(value) for family in met.values())


def _load(root: str, mro: tuple[type, ...]) -> TensorFamily | None:
    """The family registered for a root module; None when no class of the MRO can be a tensor of
    it.
    """
    entry = _families[root]
    if not isinstance(entry, str):
        return entry
    home, name = _tensor_home.get(entry, (root, None))
    library = sys.modules.get(home)
    if library is None:
        return None
    if name is None:
        if getattr(getattr(library, "__spec__", None), "_initializing", False):
            return None
    else:
        tensor_class = vars(library).get(name)
        if not any(base is tensor_class for base in mro):
            return None
    family = importlib.import_module(entry).family
    if not isinstance(family, TensorFamily):
        raise TypeError(f"'{entry}.family' must be a modtree.families.TensorFamily, got {family!r}")
    if _families.get(root) == entry:
        _families[root] = family
    return family


_C._install(find_family=find)
