# SPDX-License-Identifier: BSD-3-Clause
"""``modtree.check``: likely mistakes in a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from modtree.inspection.check.hidden import hidden
from modtree.inspection.check.hooks import hooks_left, modes
from modtree.inspection.check.look import Finding, Findings, Look
from modtree.inspection.check.names import dotted_names, shadowed_names
from modtree.inspection.check.tensors import (
    grad_flags,
    kinds_of_dtypes,
    meta_beside_real,
    shared_memory,
    ties,
    values,
)
from modtree.inspection.check.unused import unused
from modtree.inspection.inputs import arguments_of, to_run
from modtree.inspection.tree import read_tree

__all__ = ["Finding", "Findings", "find_mistakes"]

_CHECKS: tuple[Callable[[Look], Iterator[Finding]], ...] = (
    hidden,
    shadowed_names,
    dotted_names,
    grad_flags,
    values,
    meta_beside_real,
    shared_memory,
    ties,
    modes,
    hooks_left,
    kinds_of_dtypes,
)


def find_mistakes(model: Any, example: Any = None) -> Findings:
    """See modtree.check."""
    look = Look(read_tree(model))
    found = Findings(finding for look_for in _CHECKS for finding in look_for(look))
    if example is not None:
        tree = to_run(look.tree)
        found += unused(Look(tree), *arguments_of(tree, example=example))
    return found
