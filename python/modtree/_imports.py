# SPDX-License-Identifier: BSD-3-Clause
"""One import of modtree for each process; the names of what it makes public.

Native code knows the classes that the first import made (which methods are Module's own, what a
Parameter is), and it outlives ``sys.modules``. A second import is refused.
"""

from __future__ import annotations

import importlib
import opcode
import sys
import threading
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec, PathFinder
from types import FunctionType, ModuleType
from typing import Any

from modtree import _C, _paths

__all__ = [
    "absent",
    "answer_for_missing",
    "answer_lazily",
    "complete_numpy_side",
    "find_tool",
    "name_by_public_path",
    "need_numpy_side",
    "refuse_second",
    "register_tool",
]

#: Where the pages of docs/ can be read; an installed package has none of them.
PAGES = "https://modtree.readthedocs.io/en/latest/"
LISTED = f"names of torch that modtree lacks are listed at {PAGES}missing.html"

#: Whether all of the NumPy side has been imported.
is_complete = False
# Held while a name is imported on first use: two threads that begin at different ends of the NumPy
# side would wait for each other's modules.
_first_use = threading.RLock()
#: Parts of the package that stand without the NumPy side.
_LIGHT = ("checkpoints", "families")

_IMPORT_FROM = opcode.opmap["IMPORT_FROM"]


_tools: dict[str, str] = {}


def register_tool(task: str, module: str) -> None:
    """Says which module does something for the files below it; it is imported when they ask."""
    _tools[task] = module


def find_tool(task: str) -> ModuleType:
    """The module that was registered for a task."""
    return importlib.import_module(_tools[task])


def refuse_second(name: str) -> None:
    """For modules that hand their classes to native code, in their first lines.

    Raises:
        ImportError: The module runs a second time in this process.
    """
    executed: set[str] = vars(_C).setdefault("_executed", set())
    if name in executed:
        raise ImportError(
            f"{name} cannot be executed a second time in this process: native code and all modules "
            f"that exist hold its first classes. Do not reload it or remove it from sys.modules; "
            f"start another process",
            name=name,
        )
    executed.add(name)


def complete_numpy_side() -> None:
    """For the packages of the NumPy side, in their first lines: whichever of their files is
    imported first, all that a tensor needs at run time is imported, in one order.
    """
    if not is_complete:
        importlib.import_module("modtree.numpy.complete")


def need_numpy_side() -> None:
    """The same for code that runs, in any thread."""
    if not is_complete:
        with _first_use:
            complete_numpy_side()


def name_by_public_path(module: str, public: list[str]) -> None:
    """Gives functions of internal modules the names by which users know them. They are what pickles
    hold, so that a file outlives a move between internal modules.
    """
    for name in public:
        value: Any = vars(sys.modules[module]).get(name)  # a submodule that waits stays away
        is_function: bool = isinstance(value, (FunctionType, _C.Overridable))
        if is_function and value.__module__.startswith(("modtree._", "modtree.numpy.")):
            if value.__qualname__.startswith("_"):  # public on top of something of that name
                value.__name__ = value.__qualname__ = name
            if value.__qualname__ == name:
                value.__module__ = module


def absent(module: ModuleType, name: str, frame: Any) -> Exception:
    """What to raise for a name that a module does not have.

    Args:
        module: The module.
        name: The name.
        frame: What asked for it.
    """
    if _is_import_from(frame):
        file = getattr(module, "__file__", None)
        place = f"{module.__name__!r} ({file or 'unknown location'})"
        text = f"cannot import name {name!r} from {place}; {LISTED}"
        return ImportError(text, name=module.__name__, path=file)
    text = f"module {module.__name__!r} has no attribute {name!r}; {LISTED}"
    return AttributeError(text, name=name, obj=module)


def answer_for_missing(module: str, submodules: tuple[str, ...] = ()) -> None:
    """Gives a module what to answer for a name that it does not have.

    A submodule that few programs need, and each that is a row of ``_paths``, is imported when it
    is first asked for. Every other name is CPython's AttributeError, in ``from ... import`` its
    ImportError, with the address of the list of what is absent. The function enters the module at
    run time, where type checkers do not see it: to them every name would be there.

    Args:
        module: The name of the module.
        submodules: What to import on first use.
    """
    there = sys.modules[module]
    if "__getattr__" in vars(there):  # it has an answer of its own
        return

    def __getattr__(name: str) -> Any:
        full_name = f"{module}.{name}"
        if name in submodules or full_name in _paths.ROWS:
            return importlib.import_module(full_name)
        raise absent(there, name, sys._getframe(1))

    answer: Callable[[str], Any] = __getattr__
    answer.__module__ = module
    vars(there)["__getattr__"] = answer


class _RowFinder:
    """Finds and fills the modules that are rows of ``_paths``. Comes first: the stubs of some are
    in folders, which other finders would take for packages.
    """

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name not in _paths.ROWS:
            return None
        loader: Any = self
        has_rows = any(row.startswith(f"{name}.") for row in _paths.ROWS)
        return ModuleSpec(name, loader, origin=_paths.__file__, is_package=has_rows)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        path = module.__name__
        for group in _paths.ROWS[path]:
            vars(module).update(group.contents(path))
        rows = [row for row in _paths.ROWS if row.rpartition(".")[0] == path]
        public = [name for name in vars(module) if not name.startswith("_")]
        vars(module)["__all__"] = sorted([*public, *(row.rpartition(".")[2] for row in rows)])
        module.__file__ = _paths.__file__
        module.__doc__ = f"torch{path.removeprefix('modtree')} in modtree: a row of modtree._paths."
        answer_for_missing(path)


def answer_lazily(module: str, homes: Mapping[str, str], others: str) -> None:
    """Gives a package what to answer for its public names: each is imported when it is first asked
    for, and is an attribute from then on.

    Args:
        module: The name of the package.
        homes: The module of a name that comes alone.
        others: The module that puts all the rest of ``__all__`` into the package's namespace.
    """
    there = sys.modules[module]

    def __getattr__(name: str) -> Any:
        if name in homes:
            value = getattr(importlib.import_module(homes[name]), name)
            vars(there)[name] = value
            return value
        if name in there.__all__ and name not in _LIGHT:
            need_numpy_side()
        full_name = f"{module}.{name}"
        if full_name in _paths.ROWS or PathFinder.find_spec(full_name, there.__path__) is not None:
            with _first_use:
                return importlib.import_module(full_name)
        if name in there.__all__:
            with _first_use:
                importlib.import_module(others)
            if name in vars(there):
                return vars(there)[name]
        raise absent(there, name, sys._getframe(1))

    def __dir__() -> list[str]:
        return sorted({*vars(there), *there.__all__})

    for answer in (__getattr__, __dir__):
        answer.__module__ = module
        vars(there)[answer.__name__] = answer


def _is_import_from(frame: Any) -> bool:
    """Is the frame executing ``from module import name``? CPython would put words of its own in the
    place of an AttributeError there.
    """
    return frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] == _IMPORT_FROM


# The package imports this module before all others. With the rest of sys.modules, this stops a
# second import of the whole package before any of it runs.
refuse_second(__name__)
sys.meta_path.insert(0, _RowFinder())
