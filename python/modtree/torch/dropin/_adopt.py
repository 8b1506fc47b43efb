# SPDX-License-Identifier: BSD-3-Clause
"""Puts the native class in the place of ``Module`` in torch's file, once that was executed."""

from __future__ import annotations

import collections
import importlib
import os
import sys
import warnings
from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType
from typing import Any

from modtree import _C
from modtree.core import hooks as _hooks
from modtree.core import module as _own_file
from modtree.core import switches as _switches
from modtree.core.handles import RemovableHandle as _OwnHandle
from modtree.torch.dropin import _checks, _faces
from modtree.torch.facts import CONVERSIONS, facts_of, native_facts, warning_lines

#: What belongs to the layout of torch's class.
_NOT_TAKEN = ("__dict__", "__weakref__")

#: The process-wide tables of hooks.
_TABLES = tuple(name for name in dir(_C) if name.startswith("_global_") and name != "_global_hooks")

_SWITCHES = tuple(
    f"{verb}_{what}_module_params_on_conversion"
    for verb in ("get", "set")
    for what in ("overwrite", "swap")
)

_torch_file: ModuleType | None = None
_original: type | None = None


def adopted() -> ModuleType | None:
    """torch's file of Module, once the native class is in it; None before."""
    return _torch_file


def original_functions() -> dict[str, FunctionType]:
    """torch's own functions of Module, by name."""
    assert _original is not None
    return {k: v for k, v in vars(_original).items() if isinstance(v, FunctionType)}


def adopt(file: ModuleType) -> None:
    """Makes the native class the ``Module`` of torch's file.

    Raises:
        ImportError: the file is not as modtree knows it; nothing was changed.
    """
    global _torch_file, _original
    left_to_torch = _checks.check(file)
    facts = facts_of(file)
    _original = file.Module
    warning = None if facts["warns_at_caller"] else _warning_in(file)
    _C._set_torch_facts(native_facts(facts), warning)
    _hooks.torch_warning = warning
    _C._adopt_module_class(_attributes(_original), _own_file.Module, left_to_torch)
    _let_super_find(_original, _C.ModuleBase)
    file.Module = _C.ModuleBase  # type: ignore[attr-defined]
    _share_hook_tables(file)
    _share_small_classes(file)
    _share_switches()
    _find_tracing()
    _find_conversion(_original)
    _torch_file = file


def _attributes(original: type) -> dict[str, Any]:
    """What is on the class: all that torch has there, with faces over the native slots."""
    attributes = {k: v for k, v in vars(original).items() if k not in _NOT_TAKEN}
    for name, face in _faces.FACES.items():
        theirs = attributes[name]
        face.__name__ = name
        face.__qualname__ = theirs.__qualname__
        face.__module__ = theirs.__module__
        face.__doc__ = theirs.__doc__
        face.__annotations__ = theirs.__annotations__
        attributes[name] = face
    for name in _faces.WITH_TIES:
        attributes[name] = _faces.with_ties(attributes[name])
    attributes["__name__"] = original.__name__
    attributes["__qualname__"] = original.__qualname__
    return attributes


def _warning_in(file: ModuleType) -> Callable[[str, str], None]:
    """What gives a warning at the place in torch's file that has the text which begins so."""
    lines = warning_lines(file)

    def warn(begins: str, text: str) -> None:
        warnings.warn_explicit(
            text,
            UserWarning,
            file.__file__ or "",
            next((line for known, line in lines.items() if known.startswith(begins)), 1),
            file.__name__,
            registry=vars(file).setdefault("__warningregistry__", {}),
        )

    return warn


def _let_super_find(original: type, native: type) -> None:
    """``super()`` without arguments in torch's functions is to mean the native class."""
    for function in vars(original).values():
        names = getattr(getattr(function, "__code__", None), "co_freevars", ())
        if "__class__" in names:
            function.__closure__[names.index("__class__")].cell_contents = native


# -- what there is once in a process -------------------------------------------------------------


class _TorchFile(ModuleType):
    """torch's file of Module: an assignment to one of its tables of hooks reaches native code."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _TABLES:
            _C._rebind_global_hooks(name, value)
            setattr(_own_file, name, value)
        super().__setattr__(name, value)


def _share_hook_tables(file: ModuleType) -> None:
    for name in _TABLES:
        if hasattr(file, name):
            setattr(file, name, getattr(_C, name))
    file.__class__ = _TorchFile
    for name, value in vars(file).items():
        if name.startswith("register_module_") or name == "_has_any_global_hook":
            setattr(_own_file, name, value)
    for name in ("_get_backward_hooks", "_get_backward_pre_hooks"):
        setattr(_own_file.Module, name, vars(_C.ModuleBase)[name])


def _share_small_classes(file: ModuleType) -> None:
    theirs = file.RemovableHandle
    theirs.next_id = max(theirs.next_id, _OwnHandle.next_id)
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "modtree" and (
            vars(module).get("RemovableHandle") is _OwnHandle
        ):
            module.RemovableHandle = theirs  # type: ignore[attr-defined]
    _C._install(
        RemovableHandle=theirs,
        IncompatibleKeys=file._IncompatibleKeys,
        StateDict=collections.OrderedDict,
    )


def _share_switches() -> None:
    theirs = importlib.import_module("torch.__future__")
    for module in (_switches, sys.modules.get("modtree.__future__")):
        for name in _SWITCHES if module is not None else ():
            setattr(module, name, getattr(theirs, name))
    _C._install(
        get_overwrite_module_params_on_conversion=theirs.get_overwrite_module_params_on_conversion,
        get_swap_module_params_on_conversion=theirs.get_swap_module_params_on_conversion,
    )


def _find_tracing() -> None:
    torch = sys.modules["torch"]
    name = "libtorch_cpu.dylib" if sys.platform == "darwin" else "libtorch_cpu.so"
    library = os.path.join(os.path.dirname(torch.__file__ or ""), "lib", name)
    _C._set_tracing_probe(library, torch._C._get_tracing_state)


def _find_conversion(original: type) -> None:
    """The function that ``Module.to`` gives to ``_apply``, if it is the one that native code knows;
    any other is called, as all functions are.
    """
    for code in vars(original)["to"].__code__.co_consts:
        if isinstance(code, CodeType) and (code.co_freevars, code.co_names) in CONVERSIONS:
            _C._set_torch_to(code)
