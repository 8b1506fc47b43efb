# SPDX-License-Identifier: BSD-3-Clause
"""The models that a command line names: ``module:factory``."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from modtree.cli.ending import Trouble
from modtree.cli.words import near_name
from modtree.files.checkpoint.progress import working
from modtree.inspection.dry_run import ADVICE

FACTORY_HELP = (
    "a model, or a function or class that makes one, as module:name: mypackage.models:build, or "
    "models.py:Net"
)
_INPUT_ADVICE = (
    ". If it needs another input: --input-shape once for each, --dtype int64 for indices; without "
    "--input-shape it is not run"
)


def model_from(name: str) -> Any:
    """The model that ``module:factory`` names. What its code prints goes to stderr.

    Raises:
        Trouble: It does not exist, its code failed, or it made no model.
    """
    module_name, colon, path = name.rpartition(":")
    if not colon or not module_name or not path:
        raise Trouble(f"expected module:factory, such as mypackage.models:build, got {name!r}")
    with contextlib.redirect_stdout(sys.stderr), working(f"Building {name}"):
        found = _attribute(_module(module_name), path, name)
        if _is_model(found):
            return found
        if not callable(found):
            raise Trouble(f"{name} is {_kind(found)}: expected a model, or what returns one")
        try:
            model = found()
        except (Exception, SystemExit) as error:
            raise Trouble(f"{name}() raised {_said(error)}") from error
    if not _is_model(model):
        raise Trouble(f"{name}() returned {_kind(model)}: expected a model")
    return model


@contextlib.contextmanager
def forward_trouble() -> Iterator[None]:
    """Turns the errors of a model that is run on zeros into advice for the command line."""
    try:
        yield
    except RuntimeError as error:
        text = str(error)
        if text.endswith(ADVICE):
            text = text.removesuffix(ADVICE) + _INPUT_ADVICE
        raise Trouble(text) from error
    except (TypeError, ValueError) as error:
        raise Trouble(str(error)) from error


def _module(name: str) -> ModuleType:
    try:
        if name.endswith(".py") and os.path.exists(name):
            return _from_file(name)
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise Trouble(f"cannot import {name}: {_said(error)}") from error


def _from_file(path: str) -> ModuleType:
    name = os.path.splitext(os.path.basename(path))[0]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # its name ends in .py
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _attribute(module: ModuleType, path: str, name: str) -> Any:
    found: Any = module
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            hint = near_name(part, dir(found))
            raise Trouble(f"{name}: {_kind(found)} has no attribute {part!r}{hint}") from None
    return found


def _is_model(value: Any) -> bool:
    """A module of modtree or of torch."""
    kind = type(value)
    return all(callable(getattr(kind, n, None)) for n in ("state_dict", "named_modules"))


def _kind(value: Any) -> str:
    if isinstance(value, ModuleType):
        return f"module {value.__name__}"
    return "None" if value is None else f"of type {type(value).__name__}"


def _said(error: BaseException) -> str:
    """The error and the line of the user's code that raised it."""
    text = " ".join(str(error).split())
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if f.filename != __file__ and not f.filename.startswith("<frozen")]
    inside = [f for f in own if f"{os.sep}importlib{os.sep}" not in f.filename]
    where = f" ({inside[-1].filename}, line {inside[-1].lineno})" if inside else ""
    return f"{type(error).__name__}: {text}{where}" if text else f"{type(error).__name__}{where}"
