# SPDX-License-Identifier: BSD-3-Clause
"""``modtree.check``: what is probably a mistake in a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from modtree._inspection.check.findings import Finding, Findings
from modtree._inspection.check.hidden import hidden
from modtree._inspection.check.hooks import hooks_left, modes
from modtree._inspection.check.look import Look
from modtree._inspection.check.names import dotted_names, shadowed_names
from modtree._inspection.check.sharing import shared_memory, ties
from modtree._inspection.check.tensors import (
    grad_flags,
    kinds_of_dtypes,
    meta_beside_real,
    values,
)
from modtree._inspection.check.unused import unused
from modtree._inspection.inputs import arguments_of
from modtree._inspection.lazy import to_run
from modtree._inspection.tree import read_tree

__all__ = ["Finding", "Findings", "check"]

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


def check(model: Any, example: Any = None) -> Findings:
    """What is probably a mistake in a model; an empty list where nothing is.

    Looks for tensors and modules in plain attributes, lists and dicts, where the tree does not see
    them; names that hide each other; buffers and parameters with wrong flags, with NaN, or over
    one memory; ties that a load would break; modules in different modes; hooks left behind. With
    an example also for parameters that no output depends on. The guide "Seeing a model" has all
    kinds with what to do about each.

    The model is not changed: the forward of the example runs in evaluation mode, and where that
    leaves parameters unused, once more as the model is; modes, buffers, gradients and random
    numbers are as before.

    Args:
        model: A module of modtree or of torch.
        example: The input of a forward: a tensor, a tuple or list of arguments, or a dict of
            arguments by name.

    Returns:
        A list of findings, each with ``path``, ``kind``, ``message`` and ``hint``, that prints as a
        report.

    Raises:
        TypeError: ``model`` is no module.
        RuntimeError: the forward raised; the message says in which module.

    Example:
        >>> net = nn.Linear(2, 2)
        >>> net.scales = [mt.ones(2)]
        >>> [(found.path, found.kind) for found in mt.check(net)]
        [('scales[0]', 'hidden-tensor')]
    """
    look = Look(read_tree(model))
    found = Findings(finding for look_for in _CHECKS for finding in look_for(look))
    if example is not None:
        tree = to_run(look.tree)
        found += unused(Look(tree), *arguments_of(tree, example=example))
    return found
