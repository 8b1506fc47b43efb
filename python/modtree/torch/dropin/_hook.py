# SPDX-License-Identifier: BSD-3-Clause
"""The import hook: torch's own file of Module is executed unchanged, then the native class takes
the place of the class in it.
"""

from __future__ import annotations

import builtins
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from types import ModuleType
from typing import Any

from modtree.torch import launch as _launch
from modtree.torch.dropin import _adopt, _compile, _export, _libraries, _meta, _profiling

#: Module of torch, or of a library on it -> what is done with it once it was executed.
_AFTER: dict[str, Callable[[ModuleType], None]] = {
    "torch.nn.modules.module": _adopt.adopt,
    "torch._dynamo": _compile.teach_dynamo,
    "torch._meta_registrations": _meta.let_initializers_return,
    "torch.autograd.profiler": _profiling.show_calls_to_profilers,
    "torch.fx.experimental.proxy_tensor": _export.give_proxies_the_layout_of_modules,
    "pyro.nn.module": _libraries.let_pyro_make_modules,
}


class _Loader(Loader):
    """Runs the loader of a module, then what is to be done with it."""

    def __init__(self, loader: Loader, after: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._after = after

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # What others ask of the module's loader (its source, say) they ask of torch's own.
        spec = module.__spec__
        if spec is not None:
            spec.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._after(module)


class _Finder(MetaPathFinder):
    """Finds the modules in which something is to be done; no others."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        after = _AFTER.get(name)
        if after is None:
            return None
        for finder in sys.meta_path:
            if finder is self:
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _Loader(spec.loader, after)
                return spec
        return None


_finder = _Finder()


def is_installed() -> bool:
    """True if torch was imported with the native class, or will be."""
    return _finder in sys.meta_path


def is_active() -> bool:
    """True if ``torch.nn.Module`` is the native class."""
    return _adopt.adopted() is not None


def install() -> None:
    """Prepares the import of torch, in this process and in those that it starts.

    Raises:
        ImportError: torch is imported already, or is not installed.
    """
    if is_installed():
        return
    if "torch.nn.modules.module" in sys.modules:
        raise ImportError(_already_imported())
    if importlib.util.find_spec("torch") is None:
        raise ModuleNotFoundError(
            "modtree.dropin puts modtree's Module under programs of torch, and torch is not "
            f"installed for this Python: {sys.executable} -m pip install torch",
            name="torch",
        )
    sys.meta_path.insert(0, _finder)
    _tell_child_processes()


def _already_imported() -> str:
    # A main module has two names in processes that multiprocessing knows.
    modules = {id(module): (name, module) for name, module in reversed(list(sys.modules.items()))}
    importers = [
        f"{name} ({getattr(module, '__file__', None) or 'no file'})"
        for name, module in reversed(modules.values())
        if name.partition(".")[0] not in ("torch", "functorch", "modtree") and _uses_torch(module)
    ]
    who = f" (imported by {', '.join(importers[:3])})" if importers else ""
    start = "make `import modtree.dropin` the first import of the program, or start it with "
    start += "`modtree run`"
    if hasattr(builtins, "get_ipython"):  # a notebook, or an IPython shell
        start = "restart the kernel with `import modtree.dropin` as the first line of its first "
        start += "cell, and with no startup file of IPython that imports torch"
    return (
        f"modtree.dropin must be imported before torch, and torch is imported already{who}: {start}"
    )


def _uses_torch(module: Any) -> bool:
    names = getattr(module, "__dict__", None)
    if not isinstance(names, dict):
        return False
    found = [value for value in list(names.values()) if isinstance(value, ModuleType)]
    return any(str(vars(value).get("__name__")).partition(".")[0] == "torch" for value in found)


def _tell_child_processes() -> None:
    """Lets Python processes that this one starts (workers of a DataLoader, ``torchrun``) do the
    same: they find ``site/sitecustomize.py`` on their path.
    """
    os.environ.update(_launch.with_dropin(os.environ))
