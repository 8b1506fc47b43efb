# SPDX-License-Identifier: BSD-3-Clause
"""Writing pickles whose entries are named when one of them cannot be written."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from modtree.core.families import family_named, family_of

_HOMES = ("jax.", "jaxlib.")


def dump(obj: Any, file: Any, pickle_module: Any, protocol: int) -> None:
    """Pickles an object.

    Args:
        obj: The object.
        file: Open for writing bytes.
        pickle_module: The module whose ``dump`` writes.
        protocol: The version of the format.

    Raises:
        Exception: What pickle raises, with the place of the entry in front of its text.
    """
    if "jax" in sys.modules:
        family_named("jax")  # which says how jax's values are pickled
    write = _dump if pickle_module is pickle else pickle_module.dump
    try:
        write(obj, file, protocol=protocol)
    except (OSError, MemoryError, RecursionError):  # of the file, of the machine
        raise
    except Exception as error:
        place = _place_of_failure(obj, write, protocol)
        if len(error.args) == 1 and isinstance(error.args[0], str):
            error.args = (f"{place}: {error.args[0]}",)
            raise
        raise TypeError(f"{place}: {error}") from error


def _dump(obj: Any, file: Any, protocol: int) -> None:
    made = _WithJax if "jax" in sys.modules else pickle.Pickler
    made(file, protocol=protocol).dump(obj)


class _WithJax(pickle.Pickler):
    """Refuses what can be pickled, and what :func:`modtree.load` does not give back."""

    def reducer_override(self, value: Any) -> Any:
        kind = type(value)
        if isinstance(value, np.ndarray):
            if value.dtype.names == ("float0",):
                raise TypeError("an array of float0 has no values: leave it out")
        elif str(kind.__module__).startswith(_HOMES) and hasattr(value, "dtype"):
            if family_of(value) is None:
                raise TypeError(f"a {kind.__module__}.{kind.__qualname__}: save what is in it")
        return NotImplemented


class _Nowhere:
    """A file that keeps nothing."""

    @staticmethod
    def write(data: Any) -> int:
        return len(data)


def _place_of_failure(obj: Any, write: Any, protocol: int) -> str:
    """Which of the things in containers cannot be written."""
    place, inner = "obj", obj
    while True:
        for name, item in _items(inner):
            try:
                write(item, _Nowhere, protocol=protocol)
            except Exception:
                place, inner = place + name, item
                break
        else:
            return place


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield f"[{key!r}]", item
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield f"[{i}]", item
