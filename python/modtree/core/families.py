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
from abc import ABCMeta
from collections.abc import Callable
from types import ModuleType
from typing import Any

from modtree import _C
from modtree.core.family import TensorFamily

# Root module of a library -> its family, or the name of the module that has it as ``family``.
_families: dict[str, TensorFamily | str] = {
    "modtree": "modtree.numpy.family",
    "torch": "modtree.torch.family",
    "jax": "modtree.jax_arrays.family",
    "jaxlib": "modtree.jax_arrays.family",
}

# The names of our own before they are imported, and where their `Tensor` is. Most types of these
# libraries are not tensors, and need no family, and a library may be half imported when its first
# module is made.
_own = {
    "modtree.numpy.family": ("numpy", "modtree.numpy.tensor.tensor", "Tensor"),
    "modtree.torch.family": ("torch", "torch", "Tensor"),
    "modtree.jax_arrays.family": ("jax", "jax", None),  # tracers have no base in common with arrays
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
            f"that has one as 'family', got {type(family).__name__}"
        )
    _families[root_module_name] = family
    _found.clear()
    _functions.clear()
    _C._forget_families()


def find(cls: type) -> TensorFamily | None:
    """The family whose tensors the instances of a type are; None when they are not tensors.

    Never imports a library: a type that claims to be defined in one that nobody has imported has no
    family.
    """
    family = _answer(cls)
    return None if family is NotImplemented else family


def _answer(cls: type) -> Any:
    """As :func:`find`, but NotImplemented where that may change: nobody has registered the type
    with the library's abstract class so far.
    """
    mro = _mro_of(cls)
    asked = set()
    answer = None
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
        if family is not None:
            if family.owns(cls):
                return family
            if isinstance(family.tensor_type, ABCMeta):
                answer = NotImplemented
    return answer


def family_of(value: Any) -> TensorFamily | None:
    """The family of a value; None when it is not a tensor, by its type or by its ``__class__``,
    which ``isinstance()`` believes as well.
    """
    family = family_of_type(type(value))
    if family is None:
        try:
            claimed = value.__class__
        except Exception:  # what a proxy refers to is gone
            return None
        if claimed is not type(value) and isinstance(claimed, type):
            return family_of_type(claimed)
    return family


def family_of_type(cls: type) -> TensorFamily | None:
    """The family of all values of a type; runs no code of theirs."""
    try:
        if cls in _found:
            return _found[cls]
        family = _answer(cls)
        if family is not NotImplemented:
            _found[cls] = family
    except Exception:  # a metaclass without a usable __hash__ or __eq__
        family = _answer(cls)
    return None if family is NotImplemented else family


def family_named(name: str) -> TensorFamily:
    """The family of that name, imported with its library if need be.

    Raises:
        ValueError: No family has that name.
    """
    for root, entry in list(_families.items()):
        if isinstance(entry, str) and _name_of(entry) == name:
            family: TensorFamily = importlib.import_module(entry).family
            if _families.get(root) == entry:
                _families[root] = family
            return family
        if isinstance(entry, TensorFamily) and entry.name == name:
            return entry
    known = sorted(set(map(_name_of, _families.values())))
    raise ValueError(
        f"expected the name of a tensor family, one of {', '.join(known)}, got {name!r}; "
        "modtree.families.register announces others"
    )


def _name_of(entry: TensorFamily | str) -> str:
    if isinstance(entry, str):
        return _own[entry][0] if entry in _own else entry.rpartition(".")[2]
    return entry.name


# (family, name of a function) -> the function.
_functions: dict[tuple[TensorFamily, str], Callable[..., Any]] = {}


def function_for(family: TensorFamily, name: str) -> Callable[..., Any]:
    """The function of that name on tensors of a family.

    Raises:
        NotImplementedError: It does not have such a function.
    """
    known = _functions.get((family, name))
    if known is not None:
        return known
    for home in family.functions:
        found: Any = importlib.import_module(home)
        for part in name.split("."):  # "linalg.norm"
            found = getattr(found, part, None)
        if callable(found):
            _functions[family, name] = found
            return found
    raise NotImplementedError(
        f"{name}() is not available for tensors of {family.name}: modtree's functions for "
        f"{family.name} do not have it; modtree.to_family(model, 'numpy') converts the model"
    )


class _Functions:
    """Functions on tensors of one family, as attributes."""

    def __init__(self, family: TensorFamily) -> None:
        self._family = family

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(f"the functions of {self._family.name} do not have {name!r}")
        return function_for(self._family, name)

    def __repr__(self) -> str:
        return f"<functions on tensors of {self._family.name}>"


def functions_of(value: Any) -> Any:
    """The functions of the library of a tensor, by torch's names: for code that runs on any.

    Args:
        value: A tensor, or a module: that of its first parameter or buffer decides.

    Returns:
        An object whose attributes are the functions: torch's own for torch, modtree's for NumPy. A
        function that is missing raises NotImplementedError with its name.

    Raises:
        TypeError: The value is neither, or a module without tensors.
    """
    tensor = value
    if isinstance(value, _C.ModuleBase):
        tensor = next(value.parameters(), next(value.buffers(), None))
    family = family_of(tensor)
    if family is None:
        raise TypeError(
            f"functions_of() expected a tensor or a module with tensors, got "
            f"{type(value).__module__}.{type(value).__qualname__}"
        )
    return _Functions(family)


def is_parameter(value: Any) -> bool:
    """True for a parameter of any library."""
    family = family_of(value)
    return family is not None and bool(family.is_parameter(value))


def is_lazy(value: Any) -> bool:
    """True for a parameter or buffer whose shape is not known yet."""
    family = family_of(value)
    return family is not None and bool(family.is_uninitialized(value))


def is_device(value: Any) -> bool:
    """True for a device of a library whose family was met."""
    met = {id(entry): entry for entry in _families.values() if not isinstance(entry, str)}
    return any(family.is_device(value) for family in met.values())


def _load(root: str, mro: tuple[type, ...]) -> TensorFamily | None:
    """The family registered for a root module; None when no class of the MRO can be a tensor of
    it.
    """
    entry = _families[root]
    if not isinstance(entry, str):
        return entry
    _, home, name = _own.get(entry, (None, root, None))
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


_C._install(find_family=_answer)
