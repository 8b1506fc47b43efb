# SPDX-License-Identifier: BSD-3-Clause
"""What is in the object of a file: its parts, the state dict among them, and which of its tensors
share memory.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from modtree.files.checkpoint.base import CheckpointError, View, shortened
from modtree.files.checkpoint.other_files import not_damaged
from modtree.files.pickled.stand_in import StandIn
from modtree.files.torch.records import TensorRecord

#: How deep containers may be nested: files may come from anywhere.
_DEEPEST = 200
#: How much more is taken up than an object has containers, where those stand at many places.
_TIMES, _ANYWAY = 64, 100_000

_Names = Callable[[str], "frozenset[str] | None"]


def is_tensor(value: Any) -> bool:
    return type(value) is TensorRecord


def children(value: Any) -> Iterator[tuple[Any, Any]]:
    """What is directly in a value, by key, number or attribute."""
    if isinstance(value, dict):
        yield from value.items()
    elif type(value) in (list, tuple, collections.deque):
        yield from enumerate(value)
    elif type(value) is StandIn:
        yield from value.parts()


def tensors_in(value: Any) -> Iterator[TensorRecord]:
    """All tensors in a value, each object once."""
    waiting, seen = [value], {id(value)}
    while waiting:
        value = waiting.pop()
        if is_tensor(value):
            yield value
            continue
        for _, item in children(value):
            if may_hold(item) and id(item) not in seen:
                seen.add(id(item))
                waiting.append(item)


def may_hold(value: Any) -> bool:
    kind = type(value)
    return kind in (TensorRecord, StandIn, list, tuple) or isinstance(
        value, (dict, collections.deque)
    )


class Holders:
    """Which containers in an object have tensors, at any depth; found in one pass, however often a
    container stands in others.

    Attributes:
        count: How many containers there are.
    """

    def __init__(self, obj: Any) -> None:
        above: dict[int, list[int]] = {id(obj): []}
        found: list[int] = []
        waiting = [obj]
        while waiting:
            value = waiting.pop()
            for _, item in children(value):
                if is_tensor(item):
                    found.append(id(value))
                elif may_hold(item):
                    if id(item) not in above:
                        above[id(item)] = []
                        waiting.append(item)
                    above[id(item)].append(id(value))
        self.count = len(above)
        self._ids = set(found)
        while found:
            for holder in above[found.pop()]:
                if holder not in self._ids:
                    self._ids.add(holder)
                    found.append(holder)

    def __contains__(self, value: Any) -> bool:
        return is_tensor(value) or id(value) in self._ids


# -- entries ---------------------------------------------------------------------------------------


class Flat(NamedTuple):
    """The entries of a state dict.

    Attributes:
        entries: Tensors and values by their keys.
        versions: Its ``_metadata``, or None.
        in_parts: Objects that are no tensors themselves, whose tensors are entries: their keys.
    """

    entries: dict[str, Any]
    versions: dict[str, Any] | None
    in_parts: dict[str, StandIn]


class _Flattening:
    def __init__(self, path: str, holders: Holders, names_of: _Names, lists: bool) -> None:
        self._path = path
        self._holders = holders
        self._names_of = names_of
        self._lists = lists
        self.flat = Flat({}, {}, {})
        self._entered: set[int] = set()
        self._above: set[int] = set()
        self._left = _ANYWAY + _TIMES * holders.count

    def enter(self, value: Any, prefix: str, depth: int = 0, in_foreign: bool = False) -> None:
        """Takes up everything in a container.

        Args:
            value: The container.
            prefix: Of its keys.
            depth: How many containers are above it.
            in_foreign: Is one of them a foreign object? What is in those may lead back to them, and
                is taken up once.
        """
        if in_foreign and (id(value) in self._entered or depth > _DEEPEST):
            return
        if id(value) in self._above:
            raise CheckpointError("a container in it contains itself", self._path, prefix[:-1])
        if depth > _DEEPEST:
            raise CheckpointError("containers are nested too deeply", self._path)
        self._entered.add(id(value))
        self._above.add(id(value))
        if type(value) is not StandIn:
            self._container(value, prefix, depth, in_foreign)
        elif value.is_module:
            self._module(value, prefix, depth)
        elif value.is_script:
            self._script(value, prefix, depth)
        else:
            self._foreign(value, prefix, depth)
        self._above.discard(id(value))

    def _container(self, value: Any, prefix: str, depth: int, in_foreign: bool) -> None:
        items = list(children(value))
        is_nested = not any(is_tensor(item) for _, item in items)
        own = getattr(value, "_metadata", None)
        for name, local in own.items() if isinstance(own, dict) else ():
            assert self.flat.versions is not None
            self.flat.versions[f"{prefix}{name}" if name else prefix[:-1]] = local
        for number, (key, item) in enumerate(items):
            if type(key) not in (str, int) and not depth and not self._lists:
                raise _no_key(key, self._path)
            full = prefix + _key_text(key, number)
            enters = type(item) is StandIn or (is_nested and isinstance(item, dict))
            enters = enters or ((self._lists or in_foreign) and type(item) in (list, tuple, dict))
            if enters and item in self._holders:
                self.enter(item, f"{full}.", depth + 1, in_foreign)
            else:
                self._add(full, item, in_foreign)

    def _add(self, key: str, value: Any, in_foreign: bool = False) -> None:
        while in_foreign and key in self.flat.entries:
            key += "'"  # an item and an attribute of one name
        self._left -= 1
        if self._left < 0:
            raise CheckpointError("containers in it stand at too many places", self._path)
        if key in self.flat.entries:
            raise CheckpointError("two entries have this key", self._path, key)
        self.flat.entries[key] = value

    def _foreign(self, value: StandIn, prefix: str, depth: int) -> None:
        self.flat.in_parts[prefix[:-1]] = value
        for number, (name, item) in enumerate(value.parts()):
            full = prefix + _key_text(name, number)
            if is_tensor(item):
                self._add(full, item, in_foreign=True)
            elif may_hold(item) and item in self._holders:
                self.enter(item, f"{full}.", depth + 1, in_foreign=True)

    def _module(self, value: StandIn, prefix: str, depth: int) -> None:
        attributes = value.attributes
        passed_over = attributes.get("_non_persistent_buffers_set")
        passed_over = passed_over if isinstance(passed_over, set) else ()
        for registry in ("_parameters", "_buffers"):
            for name, item in attributes[registry].items():
                if registry == "_buffers" and name in passed_over:
                    continue
                if is_tensor(item):
                    self._add(f"{prefix}{name}", item)
                elif type(item) is StandIn and item in self._holders:
                    self.enter(item, f"{prefix}{name}.", depth + 1)
        for name, item in attributes["_modules"].items():
            if type(item) is StandIn and item in self._holders:
                self.enter(item, f"{prefix}{name}.", depth + 1)

    def _script(self, value: StandIn, prefix: str, depth: int) -> None:
        names = self._names_of(value.kind)
        for name, item in value.attributes.items():
            if is_tensor(item):
                if names is None or name in names:
                    self._add(f"{prefix}{name}", item)
            elif type(item) is StandIn and item in self._holders:
                self.enter(item, f"{prefix}{name}.", depth + 1)


#: The text that a key of another type stands for.
_TEXTS: dict[type, str] = {bytes: "key.decode()", tuple: "'.'.join(map(str, key))"}


def _no_key(key: Any, path: str) -> CheckpointError:
    reason = f"{shortened(key)} is no key of a state dict"
    if type(key) not in _TEXTS:
        return CheckpointError(reason, path)
    made = f"{{{_TEXTS[type(key)]}: value for key, value in modtree.load(path).items()}}"
    error: CheckpointError = not_damaged(CheckpointError(f"{reason}; try {made}", path))
    return error


def _key_text(key: Any, number: int) -> str:
    """A key as text; of what has no short text, such as a tensor, its number."""
    if type(key) in (str, int):
        return str(key)
    return shortened(key) if type(key) in (float, bool, type(None), tuple, bytes) else str(number)


def flat_state(
    state: Any, path: str, holders: Holders, names_of: _Names, lists: bool = False
) -> Flat:
    """The entries of a state dict by their keys, tensors and others.

    A dict with tensors is a state dict, and its other entries are values. One without holds state
    dicts, several of them or one in parts: their keys are joined by dots. A stand-in with tensors
    is entered: of a module its parameters and buffers, of everything else whatever it has.

    Args:
        state: What has the tensors.
        path: Of the file, for errors.
        holders: The containers that have tensors.
        names_of: The parameters and buffers of a class of TorchScript; None where its code does not
            say.
        lists: Whether lists and dicts beside tensors are entered too.

    Raises:
        CheckpointError: Two entries have one key, or a key is no text.
    """
    work = _Flattening(path, holders, names_of, lists)
    if is_tensor(state):
        return Flat({"tensor": state}, None, {})
    work.enter(state, "")
    return work.flat._replace(versions=work.flat.versions or None)


# -- shared memory ---------------------------------------------------------------------------------


def shared_entries(records: dict[str, TensorRecord]) -> tuple[dict[str, str], dict[str, View]]:
    """Which entries are the tensor of another one, and which lie in the memory of another one."""
    ties: dict[str, str] = {}
    by_storage: dict[str, list[tuple[str, TensorRecord]]] = {}
    first: dict[Any, str] = {}
    for key, record in records.items():
        kept = first.setdefault(_identity(key, record), key)
        if kept != key:
            ties[key] = kept
        elif record.storage is not None and record.nbytes:
            by_storage.setdefault(record.storage.key, []).append((key, record))
    views: dict[str, View] = {}
    for members in by_storage.values():
        if len(members) > 1:
            views.update(_views(members))
    views |= {key: views[kept] for key, kept in ties.items() if kept in views}
    return {key: kept for key, kept in ties.items() if kept not in views}, views


def _identity(key: str, record: TensorRecord) -> Any:
    if record.storage is None:
        return id(record) if record.source is not None else key
    if not record.nbytes:
        return key
    if record.attributes:  # of its own
        return id(record)
    flags = record.is_parameter, record.requires_grad, bool(record.noted)
    return record.storage.key, record.dtype.name, record.place, flags


def _views(members: list[tuple[str, TensorRecord]]) -> dict[str, View]:
    """Parts of the largest of them whose elements lie one after the other."""
    whole = [(record.nbytes, key, record) for key, record in members if record.is_plain]
    if not whole:
        return {}
    _, of, base = max(whole, key=lambda item: item[0])
    count = base.nbytes // base.dtype.itemsize
    views = {}
    for key, record in members:
        if key == of or record.dtype != base.dtype or record.noted or record.attributes:
            continue
        if record.is_parameter or record.requires_grad:
            continue
        offset = record.place.offset - base.place.offset
        if offset >= 0 and offset + record.reach <= count:
            views[key] = View(of, record.place.size, record.place.stride, offset)
    return views
