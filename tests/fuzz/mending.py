# SPDX-License-Identifier: BSD-3-Clause
"""Takes back what torch leaves behind where docs/compat.md says that ours leaves nothing: both
worlds can go on together.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from .observe import is_uninitialized
from .world import TooMuch

TABLES = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "_keys")


@contextlib.contextmanager
def nothing_changed(w: Any) -> Iterator[None]:
    """What is refused changes nothing: rows "assigning a Parameter that is refused" and those of
    the containers.
    """
    if not w.impl.is_torch:
        yield
        return
    before = []
    for m in w.modules:
        entries = object.__getattribute__(m, "__dict__")
        tables = [entries[t] for t in TABLES if isinstance(entries.get(t), (dict, set))]
        before.append((entries, dict(entries), [(t, t.copy()) for t in tables]))
    steps_before = w.steps_inside
    try:
        yield
    except Exception:
        if w.steps_inside != steps_before:  # what they did must stay, and is not told apart
            raise TooMuch from None
        for entries, old, tables in before:
            refill(entries, old)
            for table, content in tables:
                refill(table, content)
        raise


def refill(table: Any, content: Any) -> None:
    if isinstance(table, set) or list(table) != list(content):
        table.clear()
    table.update(content)


@contextlib.contextmanager
def same_registry(w: Any, m: Any) -> Iterator[None]:
    """Row "`_modules` after a deletion by position"."""
    before = w.children(m)
    yield
    after = w.children(m)
    if w.impl.is_torch and after is not before and before is not None:
        content = dict(after)
        before.clear()
        before.update(content)
        object.__getattribute__(m, "__dict__")["_modules"] = before


@contextlib.contextmanager
def no_dangling_keys(w: Any, m: Any) -> Iterator[None]:
    """Row "`ParameterDict[key] = value` that is refused", where a part of an update stays."""
    keys = getattr(m, "_keys", None)
    before = set(keys) if isinstance(keys, dict) else set()
    try:
        yield
    except Exception:
        # A module that has become a ParameterDict by its class has no keys.
        if w.impl.is_torch and isinstance(m, w.impl.nn.ParameterDict) and isinstance(keys, dict):
            places = (vars(m), m._parameters, m._buffers, m._modules)
            for key in [k for k in m._keys if not any(k in place for place in places)]:
                if key not in before:
                    del m._keys[key]
        raise


@contextlib.contextmanager
def nothing_written(w, m):
    """Row "a `load_state_dict` that raises"."""
    if not w.impl.is_torch:
        yield
        return
    lib, tables, flags, shadows = w.impl.lib, [], [], []
    for module in w.below(m):
        entries = object.__getattribute__(module, "__dict__")
        shadows.append((entries, dict(entries)))  # an assignment takes what hides a parameter
        for name in ("_parameters", "_buffers"):
            table = entries.get(name, {})
            tensors = {k: t for k, t in table.items() if isinstance(t, lib.Tensor)}
            values = {k: t.detach().clone() for k, t in tensors.items() if not is_uninitialized(t)}
            tables.append((table, dict(table), values))
        names = entries.get("_non_persistent_buffers_set", set())
        flags.append((names, set(names)))
    try:
        yield
    except RuntimeError:
        with lib.no_grad():
            for table, items, values in tables:
                refill(table, items)
                for name, value in values.items():
                    items[name].copy_(value)
        for names, old in flags:
            refill(names, old)
        for entries, old in shadows:
            entries.update({k: v for k, v in old.items() if k not in entries})
        raise


def unmarked(w, sd, options):
    """Row "`load_state_dict(sd, assign=True)`": a copy of the metadata for torch to mark."""
    metadata = getattr(sd, "_metadata", None)
    if not (w.impl.is_torch and options.get("assign") and metadata):
        return sd
    sd = OrderedDict(sd)
    sd._metadata = OrderedDict((k, dict(v)) for k, v in metadata.items())
    return sd
