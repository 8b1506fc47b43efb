# SPDX-License-Identifier: BSD-3-Clause
"""The lines that the errors of ``load_state_dict()`` add to torch's."""

from __future__ import annotations

import inspect
import os
import re
from collections import OrderedDict
from collections.abc import Mapping, Sized
from typing import Any

import numpy as np

from modtree import _C
from modtree.core.foreign import is_module_class
from modtree.core.loading.mismatch import (
    Mismatch,
    by_module,
    library_of,
    mismatch_of,
    shape_of,
    wrong_shapes,
)
from modtree.core.loading.model_keys import ModelKeys
from modtree.inspection.load_failures.causes import likely_causes
from modtree.inspection.load_failures.certainty import near_matches

# Under `modtree run` the class shows torch's function in its place.
_registered = _C.ModuleBase.__getattr__

_EMPTY: tuple[dict[str, Any], ...] = ({}, OrderedDict())
_VIEWS = tuple(type(view) for empty in _EMPTY for view in (empty.items(), empty.values()))
_MOST_ITEMS = 100_000
_LONGEST_SHOWN = 300  # letters of a path
_FEW = 8  # keys that need no summary
_MOST_MODULES = 12
_MOST_VERSIONS = 1000  # missing keys whose modules are asked for their version
_ARRAY = re.compile(
    r'While \w+ the parameter named "(.+)", expected torch.Tensor or Tensor-like object from '
    r"checkpoint but received <class 'numpy.ndarray'>$"
)


def _summary(what: str, keys: list[str]) -> list[str]:
    if len(keys) <= _FEW:
        return []
    lines = by_module(keys)
    if len(lines) > _MOST_MODULES:
        more = len(lines) - _MOST_MODULES
        lines = [*lines[:_MOST_MODULES], f"and {more} more"]
    return [f"{what}, by module: {'; '.join(lines)}"]


def _entry(module: Any, path: str) -> Any:
    """What the registries have at a dotted path, or None: without asking anything that a class may
    override, as nobody called it.
    """
    found = module
    for name in path.split(".") if path else ():
        if not isinstance(found, _C.ModuleBase):
            return None
        try:
            found = _registered(found, name)
        except AttributeError:
            return None
    return found


def _older_versions(
    module: Any, state_dict: Mapping[str, Any], missing: list[str], is_all: bool
) -> list[str]:
    metadata = getattr(state_dict, "_metadata", None)
    if not isinstance(metadata, Mapping):
        return []
    for path in dict.fromkeys(key.rpartition(".")[0] for key in missing[:_MOST_VERSIONS]):
        saved = metadata.get(path)
        own = inspect.getattr_static(type(_entry(module, path)), "_version", None)
        version = saved.get("version") if isinstance(saved, Mapping) else None
        if own is not None and isinstance(saved, Mapping) and version != own:
            what = (
                f"{path or 'the root'!r} was saved in version {version} of its class, which is at "
                f"version {own} now"
            )
            call = (
                ". Try: model.load_state_dict(state_dict, strict=False), which leaves the entries "
                "as they are that are missing"
            )
            return [what + (call if is_all else "")]
    return []


def _arrays(module: Any, found: Mismatch, messages: list[str]) -> list[str]:
    """Of values that are arrays of NumPy, which torch does not take either."""
    matches = [match for message in messages if (match := _ARRAY.match(message))]
    given = next(iter(found.state_dict.values()), None)
    if not matches and not (found.unexpected and issubclass(type(given), np.ndarray)):
        return []
    key = matches[0][1] if matches else next(iter(found.missing), "")
    converted = f"{library_of(_entry(module, key))}.from_numpy(value)"
    if not all(issubclass(type(value), np.ndarray) for value in found.state_dict.values()):
        converted += " if type(value).__module__ == 'numpy' else value"
    return [
        "the values are arrays of NumPy, as those of safetensors.numpy.load_file() are. Try: "
        f"state_dict = {{key: {converted} for key, value in state_dict.items()}}"
    ]


def _count(keys: Sized, total: int, of: str, one: str, many: str) -> str:
    """How many keys of all: "2 of the 12 keys of the model are missing"."""
    if len(keys) == total == 1:
        return f"the one key of {of} {one}"
    of_all = f" of the {total}" if total >= len(keys) else ""  # hooks may report others
    nouns = "key" if len(keys) == 1 and not of_all else "keys"
    return f"{len(keys)}{of_all} {nouns} of {of} {one if len(keys) == 1 else many}"


def _counts(found: Mismatch, expected: int) -> list[str]:
    given = len(found.state_dict)
    counts = []
    if found.missing:
        counts.append(_count(found.missing, expected, "the model", "is missing", "are missing"))
    if found.unexpected:
        counts.append(
            _count(
                found.unexpected, given, "the state dict", "was not expected", "were not expected"
            )
        )
    if found.shapes:
        has = "has" if len(found.shapes) == 1 else "have"
        counts.append(f"{len(found.shapes)} {has} another shape")
    return [", ".join(counts) + "."] if counts else []


def explain_load(
    module: Any,
    state_dict: Mapping[str, Any],
    missing: list[str],
    unexpected: list[str],
    messages: list[str],
) -> str:
    """What follows torch's message about a failed load, after an empty line: how much of it
    failed, why it probably did, and what to try. Empty when there is nothing to add.

    Args:
        missing, unexpected: the keys that found no partner, in the order of the load.
        messages: the other errors of the load.
    """
    shapes = wrong_shapes(messages)
    if not isinstance(state_dict, dict):
        return ""  # a mapping of somebody's own, whose methods nobody called
    keys = ModelKeys(module)
    own_shapes = keys.shapes()
    # The older spectral norm reports an entry that it computes, and some twice.
    missing = list(dict.fromkeys(key for key in missing if f"{key}_orig" not in own_shapes))
    found = Mismatch(
        missing,
        unexpected,
        shapes,
        state_dict,
        own_shapes,
        keys.tie_finder(state_dict),
        lambda key: keys.none_above(key) is not None,
        keys.nones.__contains__,
    )
    causes, doubts = likely_causes(found)
    causes += _older_versions(
        module, state_dict, missing, is_all=not (doubts or unexpected or shapes)
    )
    causes += _arrays(module, found, messages)
    near = near_matches(found) if not causes and not doubts and missing and unexpected else []
    is_short = len(missing) + len(unexpected) + len(shapes) <= _FEW
    if not causes and not doubts and not near and is_short:
        return ""  # torch's message says it all
    lines = _counts(found, len(keys.tensors) + len(keys.extra_state))
    lines += _summary("Missing", missing) + _summary("Unexpected", unexpected)
    lines += [f"Likely cause: {cause}." for cause in causes]
    lines += [f"Not clear: {doubt}." for doubt in doubts]
    lines += [f"{key!r} is perhaps {other!r}." for key, other in near]
    if doubts:
        lines.append(
            "To see what would fit by its name: model.load_state_dict(state_dict, dry_run=True)"
        )
    elif not causes:
        lines.append(
            "To load what fits and see what does not: model.load_state_dict(state_dict, "
            "partial=True)"
        )
    return "\n\n" + "\n".join(lines)


# -- what was given in place of a state dict -------------------------------------------------------


def explain_given(module: Any, given: Any) -> str:
    """What follows torch's message that something is not dict-like, after an empty line: what it
    is, and the call that loads it. Empty where there is nothing to add.
    """
    cause = _cause(ModelKeys(module), given)
    return f"\n\nLikely cause: {cause}." if cause else ""


def _cause(keys: ModelKeys, given: Any) -> str | None:
    cls = type(given)
    if issubclass(cls, (str, os.PathLike)):
        return _of_path(keys, given)
    if issubclass(cls, _C.ModuleBase) or is_module_class(cls):
        what = "this is a model, and its state dict is expected"
        fits = _fits(keys, ModelKeys(given).tensors)
        return what + (". Try: model.load_state_dict(state_dict.state_dict())" if fits else "")
    is_list = issubclass(cls, (list, tuple))
    if (is_list or cls in _VIEWS) and 0 < len(given) <= _MOST_ITEMS:
        return _of_row(keys, list(given), is_list)
    return None


def _of_path(keys: ModelKeys, path: Any) -> str | None:
    if len(os.fspath(path)) > _LONGEST_SHOWN:
        return None
    if not os.path.exists(path):
        return (
            f"this is a path, and a state dict is expected, as modtree.load_file(path) reads one; "
            f"there is no file {os.fspath(path)!r}"
        )
    library = library_of(next(iter(keys.tensors.values()), None))
    read = "modtree.load_file"
    if library == "torch":
        ends = str(path).endswith(".safetensors")
        read = "safetensors.torch.load_file" if ends else "torch.load"
    return (
        f"this is the path of a file, and its state dict is expected. Try: "
        f"model.load_state_dict({read}(state_dict))"
    )


def _of_row(keys: ModelKeys, items: list[Any], is_list: bool) -> str | None:
    """Of a list of pairs, of state dicts, or of tensors in the order of the model."""
    if all(type(item) is tuple and len(item) == 2 and type(item[0]) is str for item in items):
        pairs = dict(items)
        if len(pairs) == len(items) and _fits(keys, pairs):
            return (
                "these are the pairs of a state dict. Try: model.load_state_dict(dict(state_dict))"
            )
    if is_list:
        mappings = [i for i, item in enumerate(items) if issubclass(type(item), dict)]
        fitting = [i for i in mappings if _fits(keys, items[i])]
        if len(fitting) == 1:
            return (
                f"the state dict is at place {fitting[0]} of this. Try: "
                f"model.load_state_dict(state_dict[{fitting[0]}])"
            )
    if not keys.extra_state and len(items) == len(keys.tensors):
        shapes = [shape_of(item) for item in items]
        if None not in shapes and shapes == list(keys.shapes().values()):
            return (
                "these are tensors of the shapes that the model has, in its order. Try: "
                "model.load_state_dict(dict(zip(model.state_dict(), state_dict)))"
            )
    return None


def _fits(keys: ModelKeys, given: Mapping[str, Any]) -> bool:
    """True if a load of these would succeed."""
    own = keys.shapes()
    rest = mismatch_of(given, Mismatch(list(own), [], {}, {}, own))
    return rest.is_empty and set(given) == set(own)
