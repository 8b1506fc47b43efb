# SPDX-License-Identifier: BSD-3-Clause
"""How a checkpoint is split into files: sizes, names, and which tensor goes where."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any

__all__ = ["as_size", "is_named", "is_shard_of", "shard_names", "split"]

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def as_size(size: Any) -> int:
    """A number of bytes, of an int or text such as "5GB" (5 * 10**9) or "500MiB" (500 * 2**20).

    Raises:
        ValueError: It is no size.
        TypeError: It is neither int nor str.
    """
    if isinstance(size, str):
        match = _SIZE.fullmatch(size)
        if match is None:
            raise ValueError(f"{size!r} is no size: expected for example '5GB' or '500MiB'")
        number, unit, binary = match.groups()
        result = int(float(number) * (1024 if binary else 1000) ** _POWERS[unit.lower()])
    elif isinstance(size, int) and not isinstance(size, bool):
        result = size
    else:
        raise TypeError(f"a size is an int or text such as '5GB', got {type(size).__name__}")
    if result <= 0:
        raise ValueError(f"a size must be positive, got {size!r}")
    return result


def split(sizes: Iterable[tuple[str, int]], largest: int | None) -> list[list[str]]:
    """Keys in their order, in groups of up to ``largest`` bytes; a larger tensor is alone."""
    groups: list[list[str]] = [[]]
    filled = 0
    for key, size in sizes:
        if largest is not None and groups[-1] and filled + size > largest:
            groups.append([])
            filled = 0
        groups[-1].append(key)
        filled += size
    return groups


def shard_names(path: str, count: int, token: bytes = b"") -> list[str]:
    """The names of the shards of a checkpoint, as Hugging Face has them: of model.safetensors
    model-00001-of-00003.safetensors and so on; temporary ones have a token of four random bytes.
    """
    stem, ending = os.path.splitext(os.path.basename(path))
    stem += f"-{token.hex()}" if token else ""
    return [f"{stem}-{i:05}-of-{count:05}{ending}" for i in range(1, count + 1)]


def is_shard_of(name: str, path: str, only_temporary: bool = False) -> bool:
    """Could the file of this name be a shard of a checkpoint, named by :func:`shard_names`?"""
    stem, ending = os.path.splitext(os.path.basename(path))
    rest = name[len(stem) :]
    token = "(-[0-9a-f]{8})" if only_temporary else "(-[0-9a-f]{8})?"
    pattern = rf"{token}-\d{{5,}}-of-\d{{5,}}{re.escape(ending)}"
    return name.startswith(stem) and re.fullmatch(pattern, rest) is not None


def is_named(name: str, index: str) -> bool:
    """Whether the file of an index, where there is one, names a shard."""
    try:
        with open(index, "rb") as file:
            return os.fsencode(name) in file.read()
    except OSError:
        return False
