# SPDX-License-Identifier: BSD-3-Clause
"""Says why a function is traced again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax

_MOST = 5


def _join(found: Iterator[str]) -> str:
    texts: list[str] = []
    for text in found:
        if len(texts) == _MOST:
            texts.append("...")
            break
        texts.append(text)
    return "; ".join(texts)


def what_changed(old: Any, new: Any) -> str:
    """What differs between the structures of two calls, with paths."""
    return _join(_differences(old, new)) or "the containers of the arguments differ"


def _differences(old: Any, new: Any) -> Iterator[str]:
    if old.roots != new.roots:
        yield f"modules are at {_places(new)} of the arguments, not at {_places(old)}"
        return
    modules = {module[:2]: module for module in old.modules}
    now = {module[:2]: module for module in new.modules}
    for key, (_, path, cls, training) in now.items():
        if key not in modules:
            yield f"{path!r}: a new module ({cls.__name__})"
            continue
        _, _, old_cls, old_training = modules[key]
        if cls is not old_cls:
            yield f"{path!r}: {old_cls.__name__} became {cls.__name__}"
        elif training is not old_training:
            yield f"{_entry(path, 'training')}: {old_training} became {training}"
    for _, path, *_ in (module for key, module in modules.items() if key not in now):
        yield f"{path!r}: the module is gone"
    yield from _differing_places(old, new)
    yield from _differing_constants(old, new)


def _entry(path: str, name: str) -> str:
    return repr(f"{path}.{name}" if path else name)


def _places(structure: Any) -> str:
    return ", ".join("/".join(map(str, root)) for root in structure.roots) or "no place"


def _differing_places(old: Any, new: Any) -> Iterator[str]:
    before = {(old.modules[m][0], path): (leaf, kind) for m, path, leaf, kind in old.places}
    after = {(new.modules[m][0], path): (leaf, kind) for m, path, leaf, kind in new.places}
    for key, (leaf, kind) in after.items():
        if key not in before:
            yield f"{key[1]!r}: a new {'parameter' if kind else 'buffer'}"
        elif before[key][1] != kind:
            yield f"{key[1]!r}: became a {'parameter' if kind else 'buffer'}"
        elif (before[key][0] < 0) != (leaf < 0):
            yield f"{key[1]!r}: {'became None' if leaf < 0 else 'was None'}"
    for key in before.keys() - after.keys():
        yield f"{key[1]!r}: is gone"
    if before.keys() == after.keys() and _ties(before) != _ties(after):
        changed = sorted(path for (_, path) in set(_ties(before)) ^ set(_ties(after)))
        yield f"arrays that several names share: {', '.join(changed) or 'others than before'}"


def _ties(places: dict[Any, Any]) -> dict[Any, Any]:
    first: dict[int, Any] = {}
    return {
        key: first[leaf]
        for key, (leaf, _) in places.items()
        if leaf >= 0 and first.setdefault(leaf, key) != key
    }


def _differing_constants(old: Any, new: Any) -> Iterator[str]:
    def named(structure: Any) -> dict[Any, Any]:
        return {(*structure.modules[m][:2], name): value for m, name, value in structure.constants}

    before, after = named(old), named(new)
    for key, value in after.items():
        if key not in before:
            yield f"{_entry(*key[1:])}: a new attribute"
        elif before[key] is not value and not _equal(before[key], value):
            yield f"{_entry(*key[1:])}: {_short(before[key])} became {_short(value)}"
    for key in before.keys() - after.keys():
        yield f"{_entry(*key[1:])}: the attribute is gone"


def _equal(one: Any, other: Any) -> bool:
    try:
        return type(one) is type(other) and bool(one == other)
    except Exception:
        return False


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def avals_of(leaves: Any, others: Any) -> tuple[list[str], dict[str, str]]:
    """The types of arrays as texts: of leaves, and of other arguments by path."""
    keyed = jax.tree_util.tree_flatten_with_path(others)[0]
    return (
        [_type_of(leaf) for leaf in leaves],
        {jax.tree_util.keystr(path): _type_of(value) for path, value in keyed},
    )


def _type_of(value: Any) -> str:
    aval = jax.typeof(value)
    return aval.str_short() + (" (weak type)" if getattr(aval, "weak_type", False) else "")


def what_changed_in_arrays(structure: Any, old: Any, new: Any) -> str:
    """What differs between the arrays of two calls of one structure, with paths."""
    return _join(_differing_arrays(structure, old, new)) or (
        "a setting of jax, a device or a sharding changed"
    )


def _differing_arrays(structure: Any, old: Any, new: Any) -> Iterator[str]:
    paths = {leaf: path for _, path, leaf, _ in reversed(structure.places)}
    for leaf, (before, after) in enumerate(zip(old[0], new[0], strict=True)):
        if before != after:
            yield f"{paths[leaf]!r}: {before} became {after}"
    for path, after in new[1].items():
        before = old[1].get(path)
        if before is None:
            yield f"argument {path}: a new array"
        elif before != after:
            yield f"argument {path}: {before} became {after}"
    for path in old[1].keys() - new[1].keys():
        yield f"argument {path}: is gone"
