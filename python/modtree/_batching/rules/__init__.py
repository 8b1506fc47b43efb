# SPDX-License-Identifier: BSD-3-Clause
"""Rules: how an operation is carried out on whole batches.

A rule is called as ``rule(level, op, args, kwargs)``, with the arguments as they were given: of
tensors with the batch, ``level.full_of(t)`` (or ``t._full``) has it as dimension 0. It returns the
result (or a tuple) with the batch as dimension 0, or NotImplemented where it does not apply: then
the operation is called for each sample.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from modtree._batching.rules import indexing, layers, pointwise, products, reductions, shapes

__all__ = ["RULES"]

#: Name of an operation -> its rule.
RULES: dict[str, Callable[..., Any]] = {}
for _group in (pointwise, reductions, shapes, indexing, products, layers):
    RULES.update(_group.RULES)
