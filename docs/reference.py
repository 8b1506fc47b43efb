# SPDX-License-Identifier: BSD-3-Clause
"""Writes the pages of the reference: each public name of a module, with its docstring."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

#: Module -> what its page says first.
PAGES = {
    "modtree": "Functions on tensors, creation, dtypes, random numbers, switches and files.",
    "modtree.Tensor": "The methods and attributes of tensors.",
    "modtree.nn": "Modules: the base class, containers, layers, losses.",
    "modtree.nn.functional": "The layers as functions, usually imported as ``F``.",
    "modtree.nn.init": "Initial values of parameters, written in place.",
    "modtree.nn.utils": "Gradients clipped, parameters as one vector, norms of weights.",
    "modtree.nn.utils.parametrize": "Parameters that are computed from others.",
    "modtree.nn.utils.parametrizations": "Parametrizations: orthogonal matrices, norms of weights.",
    "modtree.nn.utils.prune": "Parameters of which some values are zero.",
    "modtree.optim": "Optimizers.",
    "modtree.optim.lr_scheduler": "Schedules of learning rates.",
    "modtree.optim.swa_utils": "Averages of models over training.",
    "modtree.autograd": "Gradients.",
    "modtree.autograd.functional": "Jacobians, Hessians and products with them.",
    "modtree.linalg": "Linear algebra.",
    "modtree.random": "Generators and their states.",
    "modtree.serialization": "Files of tensors.",
    "modtree.checkpoints": "Checkpoints as safetensors files.",
    "modtree.editing": "Parts of models: found, changed, observed.",
    "modtree.func": "Modules as functions.",
    "modtree.utils.checkpoint": "Activations computed again in backward instead of kept.",
    "modtree.utils.data": "Datasets, samplers and batches.",
    "modtree.amp": "Mixed precision, as far as NumPy has it.",
    "modtree.families": "Libraries whose tensors a module tree may hold.",
}


def public_names(module: ModuleType) -> list[str]:
    """What a module offers: no private names, no modules in it, nothing of another package."""
    names = set(getattr(module, "__all__", ()))
    if module.__name__ == "modtree" or not names:
        names |= {n for n in vars(module) if not n.startswith("_")}
    return sorted(
        name
        for name in names
        if not name.startswith("_")
        and not inspect.ismodule(getattr(module, name))
        and name not in {"annotations", "Tensor" if module.__name__ == "modtree" else ""}
    )


def is_function(value: Any) -> bool:
    """Operations are callable objects of a native type."""
    return inspect.isroutine(value) or type(value).__name__ in {"Op", "Typed"}


def entry(path: str, value: Any, listed: dict[type, str]) -> Iterator[str]:
    if inspect.isclass(value):
        # A class stands where it was imported from first, and is listed where it is public too.
        options = "   :members:\n   :show-inheritance:\n"
        if listed.setdefault(value, path) != path:
            options += "   :no-index:\n"
        if issubclass(value, tuple) and hasattr(value, "_fields"):  # its docstring has the fields
            options += f"   :exclude-members: {', '.join(value._fields)}\n"
        yield f".. autoclass:: {path}\n{options}"
    elif is_function(value):
        yield f".. autofunction:: {path}\n"
    else:
        yield f".. py:data:: {path}\n\n   {type(value).__name__}\n"


def members(cls: type) -> Iterator[str]:
    name = f"{cls.__module__}.{cls.__qualname__}"
    yield f".. autoclass:: {name}\n"
    for attribute in sorted(n for n in dir(cls) if not n.startswith("_")):
        value = inspect.getattr_static(cls, attribute)
        callable_ = callable(getattr(cls, attribute))
        kind = "automethod" if callable_ else "autoattribute"
        if isinstance(value, property):
            kind = "autoproperty"
        yield f".. {kind}:: {name}.{attribute}\n"


def page(name: str, text: str, listed: dict[type, str]) -> str:
    lines = [name, "=" * len(name), "", text, ""]
    if name == "modtree.Tensor":
        lines += members(importlib.import_module("modtree").Tensor)
    else:
        module = importlib.import_module(name)
        lines += [f".. py:module:: {name}", ""]
        for item in public_names(module):
            lines += entry(f"{name}.{item}", getattr(module, item), listed)
    return "\n".join(lines)


def write_reference(folder: Path) -> None:
    """Only what changed is written, so that the next build reads only that again."""
    folder.mkdir(exist_ok=True)
    listed = "\n".join(f"   {name}" for name in PAGES)
    classes: dict[type, str] = {}
    texts = {name: page(name, text, classes) for name, text in PAGES.items()}
    texts["index"] = f"Reference\n=========\n\n.. toctree::\n   :maxdepth: 1\n\n{listed}\n"
    for name, text in texts.items():
        path = folder / f"{name}.rst"
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
