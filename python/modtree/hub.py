# SPDX-License-Identifier: BSD-3-Clause
"""Models and weights from the network: refused, nothing here downloads."""

from __future__ import annotations

from typing import Any, NoReturn

from modtree import _imports

__all__ = [
    "download_url_to_file",
    "get_dir",
    "help",
    "list",
    "load",
    "load_state_dict_from_url",
    "set_dir",
]


def _refuse(name: str) -> NoReturn:
    raise RuntimeError(
        f"modtree.hub.{name}: modtree downloads nothing; fetch the file by other means and give "
        f"its path to modtree.load(), which reads files of torch too"
    )


def load(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises RuntimeError."""
    _refuse("load")


def load_state_dict_from_url(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises RuntimeError."""
    _refuse("load_state_dict_from_url")


def download_url_to_file(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises RuntimeError."""
    _refuse("download_url_to_file")


def list(*args: Any, **kwargs: Any) -> NoReturn:  # noqa: A001
    """Raises RuntimeError."""
    _refuse("list")


def help(*args: Any, **kwargs: Any) -> NoReturn:  # noqa: A001
    """Raises RuntimeError."""
    _refuse("help")


def get_dir() -> NoReturn:
    """Raises RuntimeError: nothing is kept."""
    _refuse("get_dir")


def set_dir(d: Any) -> NoReturn:
    """Raises RuntimeError: nothing is kept."""
    _refuse("set_dir")


_imports.answer_for_missing(__name__)
