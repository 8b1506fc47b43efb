# SPDX-License-Identifier: BSD-3-Clause
"""What is in the object of a file: its parts, the state dict among them, and which of its tensors
share memory.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from modtree.files.checkpoint.base import CheckpointError, View, shortened
from modtree.files.checkpoint.other_files import not_damaged
from modtree.files.pickled.stand_in import StandIn, short_text
from modtree.files.torch.records import TensorRecord

#: Under which of them programs keep the state dict, the first that is there counts.
_USUAL = ("state_dict", "model_state_dict", "model", "module")
#: How deep containers may be nested, and at how many places one may stand: files may come from
#: anywhere.
_DEEPEST = _PLACES = 64
_MOST_PARTS = 64
_FEW = 6  # names in a list
_RANDOM = re.compile(r"rng|random", re.IGNORECASE)

_Names = Callable[[str], "frozenset[str] | None"]


def _is_tensor(value: Any) -> bool:
    return type(value) is TensorRecord


def _children(value: Any) -> Iterator[tuple[Any, Any]]:
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
        if _is_tensor(value):
            yield value
            continue
        for _, item in _children(value):
            if _may_hold(item) and id(item) not in seen:
                seen.add(id(item))
                waiting.append(item)


def _may_hold(value: Any) -> bool:
    kind = type(value)
    return kind in (TensorRecord, StandIn, list, tuple) or isinstance(
        value, (dict, collections.deque)
    )


class Holders:
    """Which containers in an object have tensors, at any depth; found in one pass, however often a
    container stands in others.
    """

    def __init__(self, obj: Any) -> None:
        above: dict[int, list[int]] = {id(obj): []}
        found: list[int] = []
        waiting = [obj]
        while waiting:
            value = waiting.pop()
            for _, item in _children(value):
                if _is_tensor(item):
                    found.append(id(value))
                elif _may_hold(item):
                    if id(item) not in above:
                        above[id(item)] = []
                        waiting.append(item)
                    above[id(item)].append(id(value))
        self._ids = set(found)
        while found:
            for holder in above[found.pop()]:
                if holder not in self._ids:
                    self._ids.add(holder)
                    found.append(holder)

    def __contains__(self, value: Any) -> bool:
        return _is_tensor(value) or id(value) in self._ids


# -- parts -----------------------------------------------------------------------------------------


class Part(NamedTuple):
    """A part of what a file holds.

    Attributes:
        name: Its key.
        text: What it is, in a few words.
        tensors: How many tensors it has.
        nbytes: Their bytes.
    """

    name: str
    text: str
    tensors: int
    nbytes: int


def parts_of(obj: Any, read: Callable[[TensorRecord], Any]) -> list[Part]:
    """The parts of an object, in their order; the last one says how many more there are.

    Args:
        obj: The object.
        read: The value of a tensor with one element.
    """
    children = list(_children(obj))
    parts = [_part(str(key), value, read) for key, value in children[:_MOST_PARTS]]
    if len(children) > _MOST_PARTS:
        parts.append(Part("...", f"{len(children) - _MOST_PARTS:,} more parts", 0, 0))
    return parts


def _part(name: str, value: Any, read: Callable[[TensorRecord], Any]) -> Part:
    tensors = list(tensors_in(value))
    return Part(name, _text(name, value, read), len(tensors), sum(t.nbytes for t in tensors))


def _text(name: str, value: Any, read: Callable[[TensorRecord], Any]) -> str:
    if (optimizer := _optimizer(value)) is not None:
        return _optimizer_text(*optimizer, read)
    if type(value) is StandIn and value.is_script:
        return f"‹module {value.kind}›"
    if isinstance(value, dict) and value:
        if _RANDOM.search(name):
            return f"random states: {_names(value)}"
        if any(map(_is_tensor, value.values())):
            return "a state dict"
        if any(map(_may_hold, value.values())) or len(value) > _FEW:
            return f"a dict: {_names(value)}"
    if type(value) in (list, tuple) and any(isinstance(item, dict) for item in value):
        return f"a list of {len(value)}: {_listed(value, read)}"
    return _short(value)


def _listed(value: Any, read: Callable[[TensorRecord], Any]) -> str:
    """What is in a list, each kind of thing once."""
    texts = dict.fromkeys(_text("", item, read) for item in value[:_FEW])
    return "; ".join(texts) + ("; ..." if len(value) > _FEW else "")


def _names(value: dict[Any, Any]) -> str:
    more = f" and {len(value) - _FEW:,} more" if len(value) > _FEW else ""
    return f"{', '.join(_short(str(key), 30)[1:-1] for key in list(value)[:_FEW])}{more}"


def _short(value: Any, length: int = 100) -> str:
    text = short_text(value, 20)
    return text if len(text) <= length else f"{text[: length - 3]}..."


def _optimizer(value: Any) -> tuple[list[Any], dict[Any, Any]] | None:
    """The groups and states of an optimizer, or of its state dict."""
    named = value.attributes if type(value) is StandIn else value
    if not isinstance(named, dict):
        return None
    groups, states = named.get("param_groups"), named.get("state")
    if type(states) is StandIn:  # a defaultdict with a factory of its own
        states = states.pairs
    return (groups, states) if isinstance(groups, list) and isinstance(states, dict) else None


def _optimizer_text(
    groups: list[Any], states: dict[Any, Any], read: Callable[[TensorRecord], Any]
) -> str:
    words = [f"{len(groups)} {'group' if len(groups) == 1 else 'groups'}"]
    words.append(f"state of {len(states)} {'parameter' if len(states) == 1 else 'parameters'}")
    rates = [group.get("lr") for group in groups if isinstance(group, dict)]
    plain = dict.fromkeys(_short(rate, 20) for rate in rates if type(rate) in (int, float))
    if plain:
        words.append(f"lr {', '.join(list(plain)[:4])}")
    first = next(iter(states.values()), None)
    step = first.get("step") if isinstance(first, dict) else None
    if type(step) is TensorRecord and step.place.size == () and step.source is not None:
        step = read(step)
    if type(step) in (int, float):
        words.append(f"step {step:g}" if type(step) is float else f"step {_short(step, 20)}")
    return f"an optimizer: {', '.join(words)}"


def part_names(obj: Any) -> list[str]:
    """The names of the parts of an object."""
    return [key if type(key) is str else shortened(key) for key, _ in _children(obj)]


def part_at(obj: Any, at: str, path: str) -> Any:
    """The part of an object that a path such as "optimizer.state" names. Keys may have dots.

    Raises:
        CheckpointError: There is none. The message names what there is.
    """
    value, rest = obj, at
    while rest:
        children = {str(key): child for key, child in _children(value)}
        if type(value) is StandIn and value.is_module:
            children |= {str(key): child for key, child in value.attributes["_modules"].items()}
        fits = [name for name in children if rest == name or rest.startswith(f"{name}.")]
        if not fits:
            there = ", ".join(shortened(name)[1:-1] for name in list(children)[:10])
            more = f" and {len(children) - 10} more" if len(children) > 10 else ""
            error = CheckpointError(
                f"it has no part {at!r:.100}: {f'there is {there}{more}' if there else 'no parts'}",
                path,
            )
            raise not_damaged(error)
        name = max(fits, key=len)
        value, rest = children[name], rest[len(name) + 1 :]
    return value


def values_of(at: str, value: Any) -> dict[Any, Any]:
    """What is in a part without tensors by its names; of one without parts, itself."""
    return dict(_children(value)) or {at.rpartition(".")[2]: value}


def find_state(obj: Any, holders: Holders) -> tuple[Any, str]:
    """The state dict in the object of a file: what stands under "state_dict", "model_state_dict",
    "model" or, of DeepSpeed, "module", where that has tensors, or else the object itself.

    Returns:
        What has the tensors, and under which key it stands ("" for the object itself).
    """
    named: dict[Any, Any] = obj if isinstance(obj, dict) else {}
    if type(obj) is StandIn and not obj.is_module and not obj.is_script:
        named = {**obj.attributes, **obj.pairs}
    for name in _USUAL:
        value = named.get(name)
        if (isinstance(value, dict) or type(value) is StandIn) and value in holders:
            return value, name
    return obj, ""


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
        self._entered: collections.Counter[int] = collections.Counter()

    def enter(self, value: Any, prefix: str, depth: int = 0, in_foreign: bool = False) -> None:
        """Takes up everything in a container.

        Args:
            value: The container.
            prefix: Of its keys.
            depth: How many containers are above it.
            in_foreign: Is one of them a foreign object? What is in those may lead back to them, and
                is taken up once.
        """
        self._entered[id(value)] += 1
        if in_foreign and (self._entered[id(value)] > 1 or depth > _DEEPEST):
            return
        if self._entered[id(value)] > _PLACES or depth > _DEEPEST:
            raise CheckpointError(
                "a dict in it contains itself, or stands at many places", self._path
            )
        if type(value) is not StandIn:
            self._container(value, prefix, depth, in_foreign)
        elif value.is_module:
            self._module(value, prefix, depth)
        elif value.is_script:
            self._script(value, prefix, depth)
        else:
            self._foreign(value, prefix, depth)

    def _container(self, value: Any, prefix: str, depth: int, in_foreign: bool) -> None:
        items = list(_children(value))
        is_nested = not any(_is_tensor(item) for _, item in items)
        own = getattr(value, "_metadata", None)
        for name, local in own.items() if isinstance(own, dict) else ():
            assert self.flat.versions is not None
            self.flat.versions[f"{prefix}{name}" if name else prefix[:-1]] = local
        for number, (key, item) in enumerate(items):
            if type(key) not in (str, int) and not depth and not self._lists:
                raise CheckpointError(f"{shortened(key)} is no key of a state dict", self._path)
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
        if key in self.flat.entries:
            raise CheckpointError("two entries have this key", self._path, key)
        self.flat.entries[key] = value

    def _foreign(self, value: StandIn, prefix: str, depth: int) -> None:
        self.flat.in_parts[prefix[:-1]] = value
        for number, (name, item) in enumerate(value.parts()):
            full = prefix + _key_text(name, number)
            if _is_tensor(item):
                self._add(full, item, in_foreign=True)
            elif _may_hold(item) and item in self._holders:
                self.enter(item, f"{full}.", depth + 1, in_foreign=True)

    def _module(self, value: StandIn, prefix: str, depth: int) -> None:
        attributes = value.attributes
        passed_over = attributes.get("_non_persistent_buffers_set")
        passed_over = passed_over if isinstance(passed_over, set) else ()
        for registry in ("_parameters", "_buffers"):
            for name, item in attributes[registry].items():
                if registry == "_buffers" and name in passed_over:
                    continue
                if _is_tensor(item):
                    self._add(f"{prefix}{name}", item)
                elif type(item) is StandIn and item in self._holders:
                    self.enter(item, f"{prefix}{name}.", depth + 1)
        for name, item in attributes["_modules"].items():
            if type(item) is StandIn:
                self.enter(item, f"{prefix}{name}.", depth + 1)

    def _script(self, value: StandIn, prefix: str, depth: int) -> None:
        names = self._names_of(value.kind)
        for name, item in value.attributes.items():
            if _is_tensor(item):
                if names is None or name in names:
                    self._add(f"{prefix}{name}", item)
            elif type(item) is StandIn and item in self._holders:
                self.enter(item, f"{prefix}{name}.", depth + 1)


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
    if _is_tensor(state):
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
