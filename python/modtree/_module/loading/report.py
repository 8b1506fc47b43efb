# SPDX-License-Identifier: BSD-3-Clause
"""``load_state_dict(..., rename=, partial=, dry_run=)``."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import warnings
from collections.abc import Mapping
from typing import Any

from modtree import _C, families
from modtree._module.loading.explain import by_module, wrong_shapes
from modtree._module.loading.rename import Rename, rename_keys
from modtree._module.state_dict import StateDict

__all__ = ["LoadReport"]

# Under `modtree run` the class shows torch's function in its place.
_load = _C.ModuleBase.load_state_dict

_FEW = 12


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """What ``load_state_dict(partial=True)`` did, and ``dry_run=True`` would do.

    Args:
        loaded: the keys that went (or would go) into the model.
        skipped: why each of the other keys of the state dict did not.
        missing_keys: the keys of the model for which the state dict has nothing.
        unexpected_keys: the keys of the state dict for which the model has nothing; they are among
            ``skipped`` too.
    """

    loaded: list[str]
    skipped: dict[str, str]
    missing_keys: list[str]
    unexpected_keys: list[str]

    @property
    def is_complete(self) -> bool:
        """Does everything fit, so that a strict load succeeds?"""
        return not self.skipped and not self.missing_keys

    def __str__(self) -> str:
        total = len(self.loaded) + len(self.skipped)
        lines = [f"{len(self.loaded)} of {total} entries fit"]
        if self.skipped:
            lines.append(f"skipped ({len(self.skipped)}):")
            lines += [
                f"  {key}: {why}" for key, why in itertools.islice(self.skipped.items(), _FEW)
            ]
            if len(self.skipped) > _FEW:
                lines.append(f"  and {len(self.skipped) - _FEW} more")
        if self.missing_keys:
            groups = by_module(self.missing_keys)
            lines.append(f"missing ({len(self.missing_keys)}):")
            lines += [f"  {group}" for group in groups[:_FEW]]
            if len(groups) > _FEW:
                lines.append(f"  and {len(groups) - _FEW} more")
        return "\n".join(lines)


def _without_storage(tensor: Any) -> Any:
    """A tensor on meta of the same kind, or the value itself where there is no such thing."""
    family = families.family_of(tensor)
    if family is None or family.is_uninitialized(tensor):
        return tensor
    empty = family.empty_like(family.detach(tensor), "meta")
    if family.is_parameter(tensor):
        return family.make_parameter(empty, family.requires_grad(tensor))
    return empty


def _twin(module: Any) -> Any:
    """A copy of the module whose registered tensors are on meta."""
    memo: dict[int, Any] = {}
    for tensor in itertools.chain(module.parameters(), module.buffers()):
        family = families.family_of(tensor)
        memo[id(tensor)] = _without_storage(tensor)
        grad = family.grad(tensor) if family is not None else None
        if grad is not None:
            memo[id(grad)] = None
    try:
        return copy.deepcopy(module, memo)
    except Exception as error:
        raise TypeError(
            "dry_run and partial try the load on a copy of the module, and "
            f"{type(module).__name__} cannot be copied: {error}"
        ) from error


def _try_load(module: Any, state_dict: Mapping[str, Any], assign: bool) -> LoadReport:
    values = StateDict((key, _without_storage(value)) for key, value in state_dict.items())
    metadata = getattr(state_dict, "_metadata", None)
    if metadata is not None:
        values._metadata = copy.copy(metadata)
    messages: list[str] = []
    twin = _twin(module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            missing, unexpected = _load(twin, values, strict=False, assign=assign)
        except RuntimeError as error:
            details = vars(error)
            if "error_messages" not in details:
                raise
            missing, unexpected = details["missing_keys"], details["unexpected_keys"]
            messages = details["error_messages"]
    skipped = dict.fromkeys(unexpected, "the model has no such entry")
    for key, (saved, own) in wrong_shapes(messages).items():
        skipped[key] = f"its shape is {list(saved)}, that of the model {list(own)}"
    for message in messages:
        for key in state_dict:
            if key not in skipped and f'"{key}"' in message:
                skipped[key] = message
    ordered = {key: skipped[key] for key in state_dict if key in skipped}
    loaded = [key for key in state_dict if key not in skipped]
    return LoadReport(loaded, ordered, list(missing), list(unexpected))


def load_with_options(
    module: Any,
    state_dict: Mapping[str, Any],
    strict: bool,
    assign: bool,
    rename: Rename | None,
    partial: bool,
    dry_run: bool,
) -> Any:
    """``load_state_dict()`` when one of the last three arguments was given."""
    if rename is not None:
        state_dict = rename_keys(state_dict, rename)
    if not partial and not dry_run:
        return _load(module, state_dict, strict=strict, assign=assign)
    report = _try_load(module, state_dict, assign)
    if dry_run:
        return report
    fitting = StateDict((key, state_dict[key]) for key in report.loaded)
    metadata = getattr(state_dict, "_metadata", None)
    if metadata is not None:
        fitting._metadata = metadata
    _load(module, fitting, strict=False, assign=assign)
    return report


_C._install(load_with_options=load_with_options)
