# SPDX-License-Identifier: BSD-3-Clause
"""Containers, under torch's path."""

from __future__ import annotations

from modtree.core.containers import (
    Container,
    ModuleDict,
    ModuleList,
    ParameterDict,
    ParameterList,
    Sequential,
)
from modtree.nn.modules._indent import _addindent

__all__ = [
    "_addindent",
    "Container",
    "ModuleDict",
    "ModuleList",
    "ParameterDict",
    "ParameterList",
    "Sequential",
]
