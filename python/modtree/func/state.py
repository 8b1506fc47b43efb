# SPDX-License-Identifier: BSD-3-Clause
"""The parameters of several modules as those of an ensemble."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from modtree.core import families

__all__ = ["stack_module_state"]


def stack_module_state(models: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """(parameters, buffers) of modules of one class: name -> the tensors of all of them, stacked
    along a new first dimension. ``torch.func.vmap`` over :func:`~modtree.func.functional_call` runs
    models with torch leaves as an ensemble.

    Parameters that are leaves and require grad stay such as a whole.

    Args:
        models: Modules of one class, all training or all not.

    Raises:
        RuntimeError: There are none, or they differ in class or mode.
    """
    models = list(models) if isinstance(models, Sequence) else list(models)
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if not (all(m.training for m in models) or not any(m.training for m in models)):
        raise RuntimeError(
            "stack_module_state: Expected all models to have the same training/eval mode."
        )
    if not all(type(m) is type(models[0]) for m in models):
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    return _stacked(models, "named_parameters"), _stacked(models, "named_buffers")


def _stacked(models: list[Any], entries: str) -> dict[str, Any]:
    tables = [dict(getattr(model, entries)()) for model in models]
    return {name: _stack([table[name] for table in tables]) for name in tables[0]}


def _stack(tensors: list[Any]) -> Any:
    family = families.family_of(tensors[0])
    if family is None:
        raise TypeError(f"stack_module_state: {type(tensors[0])} is of no library of tensors")
    if not any(family.has_grad_fn(t) for t in tensors):
        needs = {bool(family.requires_grad(t)) for t in tensors}
        if len(needs) > 1:
            raise RuntimeError(
                "stack_module_state: Expected parameters of one name to have the same "
                "requires_grad in all models"
            )
        stacked = family.stack([family.detach(t) for t in tensors])
        family.set_requires_grad(stacked, needs.pop())
        return stacked
    return family.stack(tensors)
