# SPDX-License-Identifier: BSD-3-Clause
"""Writes the pages of the reference: each public name of a module, with its docstring."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

#: Group -> its sentence, names of the package, and pages: module -> what its page says first.
GROUPS: dict[str, tuple[str, str, dict[str, str]]] = {
    "Modules": (
        "The base class, layers, and what is done to their parameters.",
        "",
        {
            "modtree.nn": "Modules: the base class, containers, layers, losses.",
            "modtree.nn.functional": "The layers as functions, usually imported as ``F``.",
            "modtree.nn.init": "Initial values of parameters, written in place.",
            "modtree.nn.utils": "Clip gradients, flatten parameters, normalize weights.",
            "modtree.nn.utils.parametrize": "Parameters that are computed from others.",
            "modtree.nn.utils.parametrizations": "Orthogonal matrices, norms of weights.",
            "modtree.nn.utils.prune": "Parameters of which some values are zero.",
        },
    ),
    "Loading and saving": (
        "Checkpoints of any library, states of optimizers.",
        "load_file save_file load save load_optimizer_state optimizer_state from_torch to_torch "
        "LoadReport CheckpointError",
        {
            "modtree.checkpoints": "Open, convert and verify checkpoints.",
            "modtree.serialization": "Files of ``save`` and ``load``: who may build what.",
        },
    ),
    "Looking at models": (
        "Tables, likely mistakes, differences and pictures, for models of modtree and of torch.",
        "summary check compare to_svg to_dot to_mermaid",
        {},
    ),
    "Changing models": (
        "Parts of a model by pattern: found, replaced, frozen, moved, observed and patched.",
        "find find_parameters edit param_groups capture intervene",
        {"modtree.editing": "The same functions, and the classes of what they return."},
    ),
    "Other tensor libraries": (
        "Modules whose leaves are torch tensors, jax arrays, or those of a library of your own.",
        "default_family to_family",
        {
            "modtree.jax": "jax's transformations for functions that take modules.",
            "modtree.families": "Libraries whose tensors a module tree may hold.",
        },
    ),
    "Tensors and training on NumPy": (
        "torch's functions, gradients, optimizers and data loaders on NumPy arrays.",
        "",
        {
            "modtree": "Functions on tensors, creation, dtypes, random numbers and switches.",
            "modtree.Tensor": "The methods and attributes of tensors.",
            "modtree.linalg": "Linear algebra.",
            "modtree.random": "Generators and their states.",
            "modtree.autograd": "Gradients.",
            "modtree.autograd.functional": "Jacobians, Hessians and products with them.",
            "modtree.func": "Modules as functions.",
            "modtree.optim": "Optimizers.",
            "modtree.optim.lr_scheduler": "Schedules of learning rates.",
            "modtree.optim.swa_utils": "Averages of models over training.",
            "modtree.utils.checkpoint": "Recompute activations instead of storing them.",
            "modtree.utils.data": "Datasets, samplers and batches.",
            "modtree.distributions": "Probability distributions.",
            "modtree.overrides": "Classes that take part in calls by ``__torch_function__``.",
            "modtree.amp": "Mixed precision, as far as NumPy has it.",
        },
    ),
}
PAGES = {name: text for _, _, pages in GROUPS.values() for name, text in pages.items()}


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


def first_sentence(value: Any) -> str:
    """What a docstring says first, without its links."""
    text = " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split())
    return re.sub(r":\w+:`([^`]+)`", r"``\1``", text.partition(". ")[0].partition(": a ")[0])


def index(there: list[str]) -> str:
    """The page that leads to the others, by what somebody wants to do."""
    modtree = importlib.import_module("modtree")
    lines = ["Reference", "=========", ""]
    for title, (sentence, names, pages) in GROUPS.items():
        lines += [title, "-" * len(title), "", sentence, ""]
        for name in names.split():
            text = first_sentence(getattr(modtree, name)).rstrip(".")
            lines += [f":py:obj:`modtree.{name}`", f"    {text}.", ""]
        for name in filter(there.__contains__, pages):
            lines += [f":doc:`{name} <{name}>`", f"    {pages[name]}", ""]
    return "\n".join([*lines, ".. toctree::", "   :hidden:", "", *(f"   {n}" for n in there), ""])


def write_reference(folder: Path) -> None:
    """Only what changed is written, so that the next build reads only that again."""
    folder.mkdir(exist_ok=True)
    has_jax = importlib.util.find_spec("jax") is not None
    there = [name for name in PAGES if has_jax or name != "modtree.jax"]
    classes: dict[type, str] = {}
    texts = {name: page(name, PAGES[name], classes) for name in there}
    texts["index"] = index(there)
    for name, text in texts.items():
        path = folder / f"{name}.rst"
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
