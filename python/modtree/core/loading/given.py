# SPDX-License-Identifier: BSD-3-Clause
"""What was given to ``load_state_dict()`` in place of a state dict."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from modtree import _C
from modtree.core import families
from modtree.core.foreign import is_module_class
from modtree.core.loading.mismatch import Mismatch, mismatch_of, shape_of
from modtree.core.loading.model_keys import ModelKeys

__all__ = ["explain_given", "library_of"]

_EMPTY: tuple[dict[str, Any], ...] = ({}, OrderedDict())
_VIEWS = tuple(type(view) for empty in _EMPTY for view in (empty.items(), empty.values()))
_MOST_ITEMS = 100_000
_LONGEST_SHOWN = 300  # letters of a path


def library_of(tensor: Any) -> str:
    """The library that makes tensors for a module with this one."""
    family = families.family_of(tensor)
    return "torch" if family is not None and family.name == "torch" else "modtree"


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
        return f"there is no file {os.fspath(path)!r}, and its state dict would be expected"
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
    """Would a load of these succeed?"""
    own = keys.shapes()
    rest = mismatch_of(given, Mismatch(list(own), [], {}, {}, own))
    return rest.is_empty and set(given) == set(own)


_C._install(explain_given=explain_given)
