# SPDX-License-Identifier: BSD-3-Clause
"""``load_state_dict(..., rename=, partial=, dry_run=)``."""

from __future__ import annotations

import contextlib
import copy
import copyreg
import dataclasses
import itertools
import warnings
import weakref
from collections.abc import Mapping
from typing import Any

from modtree import _C
from modtree.core import families
from modtree.core.foreign import is_native, state_of
from modtree.core.loading.codes import find_codes
from modtree.core.loading.mismatch import by_module, dtypes_of, wrong_shapes
from modtree.core.loading.model_keys import ModelKeys, is_meta, walk
from modtree.core.loading.rename import Rename, rename_keys
from modtree.core.state_dict import StateDict, _IncompatibleKeys

# Under `modtree run` the class shows torch's function in its place.
_load = _C.ModuleBase.load_state_dict

_FEW = 12


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """What ``load_state_dict(partial=True)`` did, and ``dry_run=True`` would do; the same of
    ``load_optimizer_state``, whose keys are the names of parameters.

    Args:
        loaded: the keys that went (or would go) into the model.
        skipped: why each of the other keys of the state dict did not.
        missing_keys: the keys of the model for which the state dict has nothing.
        unexpected_keys: the keys of the state dict for which the model has nothing; they are among
            ``skipped`` too.
        ignored_keys: the keys below a child that is None in the model, which every load passes
            over in silence; they are among ``skipped`` too.
        meta_keys: the tensors of the model, buffers that are not persistent among them, that are
            on meta after the load: without values.
    """

    loaded: list[str]
    skipped: dict[str, str]
    missing_keys: list[str]
    unexpected_keys: list[str]
    ignored_keys: list[str] = dataclasses.field(default_factory=list)
    meta_keys: list[str] = dataclasses.field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """True if everything fits, so that a strict load succeeds."""
        return len(self.skipped) == len(self.ignored_keys) and not self.missing_keys

    def __str__(self) -> str:
        total = len(self.loaded) + len(self.skipped)
        fit = "fits" if len(self.loaded) == 1 else "fit"
        entries = "entry" if total == 1 else "entries"
        lines = [f"{len(self.loaded)} of {total} {entries} {fit}"]
        if self.skipped:
            lines.append(f"skipped ({len(self.skipped)}):")
            lines += [
                f"  {key}: {why}" for key, why in itertools.islice(self.skipped.items(), _FEW)
            ]
            if len(self.skipped) > _FEW:
                lines.append(f"  and {len(self.skipped) - _FEW} more")
        for what, keys in (("missing", self.missing_keys), ("left on meta", self.meta_keys)):
            groups = by_module(keys)
            lines += [f"{what} ({len(keys)}):"] if keys else []
            lines += [f"  {group}" for group in groups[:_FEW]]
            if len(groups) > _FEW:
                lines.append(f"  and {len(groups) - _FEW} more")
        return "\n".join(lines)


def _without_storage(tensor: Any) -> Any:
    """A tensor on meta of the same kind, or the value itself where there is none."""
    family = families.family_of(tensor)
    if family is None or family.is_uninitialized(tensor):
        return tensor
    empty = family.empty_like(family.detach(tensor), "meta")
    if family.is_parameter(tensor):
        return family.make_parameter(empty, family.requires_grad(tensor))
    return empty


def _twin(model: Any) -> Any:
    """A model of the same classes to try a load on: its registered tensors are on meta, what else
    its modules have is copied where that is possible.
    """
    memo: dict[int, Any] = {}
    found = {id(module): module for _, module in walk(model)}
    # What is not a module of modtree is copied in place.
    modules = [module for module in found.values() if is_native(module)]
    states = [state_of(module) for module in modules]
    # All of these are known before anything is copied that may lead to them.
    for module, state in zip(modules, states, strict=True):
        memo[id(module)] = _C.ModuleBase.__new__(type(module))
        for tensor in (*state["_parameters"].values(), *state["_buffers"].values()):
            if id(tensor) not in memo:
                memo[id(tensor)] = _without_storage(tensor)
    for module, state in zip(modules, states, strict=True):
        twin = memo[id(module)]
        for name, value in state.items():
            if name in ("_parameters", "_buffers"):
                state[name] = {key: memo[id(tensor)] for key, tensor in value.items()}
            elif name == "_modules":
                state[name] = {key: _copied(child, memo) for key, child in value.items()}
            else:
                state[name] = _copied(value, memo)
        _C.ModuleBase.__setstate__(twin, state)  # type: ignore[attr-defined]
        for name in copyreg._slotnames(type(module)):  # type: ignore[attr-defined]
            with contextlib.suppress(AttributeError):
                slot = getattr(type(module), name)
                slot.__set__(twin, _copied(slot.__get__(module), memo))
    return memo[id(model)]


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    """A copy; the value itself where it cannot be copied."""
    if id(value) in memo:
        return memo[id(value)]
    family = families.family_of(value)
    if family is not None and family.has_grad_fn(value):
        return copy.deepcopy(family.detach(value))  # as weight_norm keeps what it computes
    try:
        return copy.deepcopy(value, memo)
    except Exception:
        return value


def _try_load(module: Any, state_dict: Mapping[str, Any], assign: bool) -> LoadReport:
    values = StateDict((key, _without_storage(value)) for key, value in state_dict.items())
    metadata = getattr(state_dict, "_metadata", None)
    if metadata is not None:
        values._metadata = copy.copy(metadata)
    messages: list[str] = []
    twin, keys = _twin(module), ModelKeys(module)
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
    ignored = [key for key in state_dict if keys.none_above(key) is not None]
    skipped = {key: keys.why_not(key) for key in (*unexpected, *ignored)}
    skipped |= _codes_for_floats(keys, values, skipped)
    for key, (saved, own) in wrong_shapes(messages).items():
        skipped[key] = f"its shape is {list(saved)}, that of the model {list(own)}"
    for message in messages:
        for key in state_dict:
            if key not in skipped and f'"{key}"' in message:
                skipped[key] = message
    ordered = {key: skipped[key] for key in state_dict if key in skipped}
    loaded = [key for key in state_dict if key not in skipped]
    left = _left_on_meta(keys, state_dict, set(loaded) if assign else set())
    return LoadReport(loaded, ordered, list(missing), list(unexpected), ignored, left)


def _codes_for_floats(
    keys: ModelKeys, given: Mapping[str, Any], without_place: Mapping[str, str]
) -> dict[str, str]:
    """Why codes are not weights: the model has floats, and nothing for their scales."""
    own = dtypes_of(keys.tensors)
    dtypes = dtypes_of(given)
    return {
        key: f"codes of {dtypes[key]}, without meaning as {own[key]} without {scale!r}"
        for key, scale in find_codes(dtypes).beside.items()
        if scale in without_place and own.get(key, dtypes[key]) != dtypes[key]
    }


def _left_on_meta(keys: ModelKeys, state_dict: Mapping[str, Any], assigned: set[str]) -> list[str]:
    """The tensors that are on meta when those of these keys have been assigned."""
    on_meta = set(keys.on_meta())
    return [
        key
        for key in (*keys.tensors, *keys.transient)
        if (is_meta(state_dict[key]) if key in assigned else key in on_meta)
    ]


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


def remember_loaded(keys: Any, model: Any) -> None:
    """What a load returns, where it is modtree's own, then tells what is on meta in the model."""
    if type(keys) is not _IncompatibleKeys:
        return
    loaded = weakref.ref(model)

    def read() -> ModelKeys | None:
        model = loaded()
        return None if model is None else ModelKeys(model)

    keys._read_model = read


_C._install(load_with_options=load_with_options, remember_loaded=remember_loaded)
