# SPDX-License-Identifier: BSD-3-Clause
"""Building C++ extensions of torch: refused, since there is no libtorch to build against."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = [
    "BuildExtension",
    "CUDAExtension",
    "CppExtension",
    "include_paths",
    "library_paths",
    "load",
    "load_inline",
]


def _refuse(name: str) -> NoReturn:
    raise RuntimeError(
        f"modtree.utils.cpp_extension.{name}: there is no C++ library of tensors to build against; "
        f"write the extension for NumPy (pybind11's array_t), and wrap its arrays by "
        f"modtree.from_numpy()"
    )


def load(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises RuntimeError."""
    _refuse("load")


def load_inline(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises RuntimeError."""
    _refuse("load_inline")


def include_paths(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises RuntimeError."""
    _refuse("include_paths")


def library_paths(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises RuntimeError."""
    _refuse("library_paths")


def CppExtension(*args: Any, **kwargs: Any) -> NoReturn:  # noqa: N802
    """Raises RuntimeError."""
    _refuse("CppExtension")


def CUDAExtension(*args: Any, **kwargs: Any) -> NoReturn:  # noqa: N802
    """Raises RuntimeError."""
    _refuse("CUDAExtension")


class BuildExtension:
    """Raises RuntimeError when it is made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse("BuildExtension")
