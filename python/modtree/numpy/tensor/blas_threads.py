# SPDX-License-Identifier: BSD-3-Clause
"""The threads of the library behind NumPy's products of matrices.

NumPy has no function for their number. The library is asked itself: NumPy's extension module, or
one of the libraries that came with it, has a function for it, by one of a few names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

# The functions that set and get the number. OpenBLAS: as NumPy's wheels have it, and as others
# build it, with integers of 64 bits or not.
_NAMES = (
    *(
        (f"{prefix}openblas_set_num_threads{suffix}", f"{prefix}openblas_get_num_threads{suffix}")
        for prefix in ("scipy_", "")
        for suffix in ("64_", "_64", "")
    ),
    ("MKL_Set_Num_Threads", "MKL_Get_Max_Threads"),
    ("bli_thread_set_num_threads", "bli_thread_get_num_threads"),
)


@dataclass(frozen=True)
class _Blas:
    """The functions of one library."""

    set_count: Callable[[int], Any]
    get_count: Callable[[], int]


def _extension() -> str | None:
    core = getattr(np, "_core", None) or getattr(np, "core", None)
    return getattr(getattr(core, "_multiarray_umath", None), "__file__", None)


def _paths() -> Iterator[str]:
    """Files in which the functions may be found: NumPy's extension module, through which those of
    the libraries that it needs are seen (not on Windows), and what came with it.
    """
    extension = _extension()
    if extension is None:
        return
    if sys.platform != "win32":
        yield extension
    package = Path(extension).parents[1]
    for folder in (package.parent / "numpy.libs", package / ".libs", package / ".dylibs"):
        if folder.is_dir():
            yield from sorted(str(p) for p in folder.iterdir() if "blas" in p.name.lower())


def _functions(library: Any) -> _Blas | None:
    import ctypes

    for set_name, get_name in _NAMES:
        set_count = getattr(library, set_name, None)
        get_count = getattr(library, get_name, None)
        if set_count is not None and get_count is not None:
            wide = ctypes.c_ssize_t if set_name.startswith("bli_") else ctypes.c_int
            set_count.argtypes, set_count.restype = [wide], None
            get_count.argtypes, get_count.restype = [], wide
            return _Blas(set_count, get_count)
    return None


_found: list[_Blas | None] = []


def _blas() -> _Blas | None:
    """The library's functions; None where they are not found. It is looked for once."""
    if not _found:
        _found.append(_search())
    return _found[0]


def _search() -> _Blas | None:
    try:
        import ctypes
    except ImportError:  # an interpreter without libffi
        return None
    for path in _paths():
        try:
            # Loaded already, and not to be loaded otherwise.
            library = ctypes.CDLL(path)
        except OSError:
            continue
        if (functions := _functions(library)) is not None:
            return functions
    return None


def set_blas_threads(count: int) -> None:
    """From now on so many threads, as far as the library has room for them."""
    if (blas := _blas()) is not None:
        blas.set_count(count)


def get_blas_threads() -> int | None:
    """How many threads; None where there is no library that says it."""
    blas = _blas()
    return None if blas is None else int(blas.get_count())
