# SPDX-License-Identifier: BSD-3-Clause
"""Leaves that show which module they are, and what the container tests compare."""

from __future__ import annotations

from typing import Any


def tagger(impl: Any):
    """``tag(3)`` makes a module that appends 3 to the list it is called with and prints as
    ``<3>``.
    """

    class Tag(impl.nn.Module):
        def __init__(self, tag):
            super().__init__()
            self.tag = tag

        def forward(self, x):
            return [*x, self.tag]

        def __repr__(self):
            return f"<{self.tag}>"

    return Tag


def tags(container: Any) -> list[Any]:
    """The tags of the modules, in order."""
    return [None if m is None else m.tag for m in container]


def entries(container: Any) -> dict[str, Any]:
    """Names and tags of the children, in order (compare with ``list(...items())`` where order
    matters).
    """
    return {k: None if m is None else m.tag for k, m in container._modules.items()}


def keys(container: Any) -> list[str]:
    return list(container._modules)
