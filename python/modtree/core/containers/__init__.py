# SPDX-License-Identifier: BSD-3-Clause
"""Modules that hold modules or parameters: in a row, in a list, in a dict.

They are ordinary model code on the public API of :class:`modtree.nn.Module`.
"""

from __future__ import annotations

import warnings
from typing import Any

from modtree.core.containers.module_dict import ModuleDict
from modtree.core.containers.module_list import ModuleList
from modtree.core.containers.parameter_dict import MissingKeyError, ParameterDict
from modtree.core.containers.parameter_list import ParameterList
from modtree.core.containers.sequential import Sequential
from modtree.core.module import Module

__all__ = [
    "Container",
    "MissingKeyError",
    "ModuleDict",
    "ModuleList",
    "ParameterDict",
    "ParameterList",
    "Sequential",
]


class Container(Module):
    """Deprecated: a module with the given children. Subclass :class:`Module` instead.

    Example:
        >>> c = nn.Container(encoder=nn.Identity())  # FutureWarning
        >>> c.encoder
        Identity()
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        _warn(stacklevel=3)
        super().__init_subclass__(**kwargs)

    def __init__(self, **kwargs: Module | None) -> None:
        super().__init__()
        if type(self) is Container:  # a subclass was warned about when it was made
            _warn(stacklevel=3)
        for name, module in kwargs.items():
            self.add_module(name, module)


def _warn(stacklevel: int) -> None:
    warnings.warn(
        "nn.Container is deprecated: a plain nn.Module holds children just as well, "
        "subclass that instead",
        FutureWarning,
        stacklevel=stacklevel,
    )
