# SPDX-License-Identifier: BSD-3-Clause
"""What the parts of a file or a folder are, and which of them is the model: one decision for all
formats, from what the parts are.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from modtree.files.checkpoint.base import CheckpointError, shortened
from modtree.files.checkpoint.other_files import not_damaged
from modtree.files.pickled.stand_in import StandIn, short_text
from modtree.files.torch.contents import Holders, children, is_tensor, may_hold, tensors_in
from modtree.files.torch.records import TensorRecord

_MOST_PARTS = 64
_FEW = 6  # names in a list
_RANDOM = re.compile(r"rng|random", re.IGNORECASE)

# -- which part is the model -----------------------------------------------------------------------

#: Under which of them programs keep the state dict, the first that is there counts.
_USUAL = ("state_dict", "model_state_dict", "model", "module")
_DEEPEST = 8  # containers above a state dict
_MOST_CHOICES = 64
_OPTIMIZER = re.compile(r"optim|(?:^|_)opt(?:_|$)|momentum|^(?:mu|nu)$", re.IGNORECASE)
_SCHEDULER = {"last_epoch", "base_lrs", "_step_count"}


class Found(NamedTuple):
    """The state dict in an object.

    Attributes:
        state: What has the tensors; None where several have.
        under: Under which names, joined by dots, it stands; "" for the object itself.
        choices: The names of all state dicts where nothing says which is the model.
    """

    state: Any
    under: str = ""
    choices: tuple[str, ...] = ()


def find_state(obj: Any, holders: Holders) -> Found:
    """The state dict of the model: the only one, or what stands under a usual name.

    A module is one, and so is a dict with tensors whose keys have dots, or that has versions of
    modules. States of optimizers, of schedulers and of random numbers are none, whatever their
    names. Dicts in dicts without any of these are one tree. Tensors beside a state dict, such as a
    step, are other parts.

    Args:
        obj: The object of a file.
        holders: The containers that have tensors.
    """
    if is_state_dict(obj) or not may_hold(obj) or _optimizer(obj) is not None:
        return Found(obj)
    named = dict(_named(obj))
    usual = next((n for n in _USUAL if may_hold(named.get(n)) and named[n] in holders), None)
    if usual is not None and _is_container(named[usual]):
        inner = find_state(named[usual], holders)
        under = f"{usual}.{inner.under}".rstrip(".")
        return Found(inner.state, under, tuple(f"{usual}.{name}" for name in inner.choices))
    found = list(_candidates(obj, holders, "", 0, {id(obj)}))[: _MOST_CHOICES + 1]
    strong = [(name, value) for name, value in found if is_state_dict(value)]
    ends = [part for part in strong if part[0].rpartition(".")[2] in _USUAL]
    strong = ends if len(ends) == 1 else strong
    if len(strong) == 1:
        return Found(strong[0][1], strong[0][0])
    if strong:
        return Found(None, choices=tuple(name for name, _ in found))
    if any(is_tensor(item) for item in named.values()) or not found:
        return Found(obj)  # a state dict without dots, or an optimizer alone
    if len(found) == 1 and len(named) > 1:
        return Found(found[0][1], found[0][0])
    is_training = any(_is_of_training(name, item, holders) for name, item in named.items())
    return Found(None, choices=tuple(n for n, _ in found)) if is_training else Found(obj)


def is_state_dict(value: Any) -> bool:
    """Whether something is the state of a module, by what it has itself."""
    if type(value) is StandIn:
        return value.is_module or value.is_script
    if not isinstance(value, dict) or _optimizer(value) is not None:
        return False
    keys = [key for key, item in value.items() if _is_leaf(item)]
    if not keys or not all(type(key) is str for key in keys):
        return False
    has_versions = isinstance(getattr(value, "_metadata", None), dict)
    return has_versions or any("." in key for key in keys)


def _is_leaf(value: Any) -> bool:
    """Whether it is a tensor, or one that is made of several."""
    is_described = type(value) is StandIn and bool(value.text)
    return is_tensor(value) or is_described


def _is_container(value: Any) -> bool:
    return isinstance(value, dict) or type(value) is StandIn


def _named(value: Any) -> Iterator[tuple[Any, Any]]:
    """What is in a container under names: of an object its attributes and items."""
    if type(value) is StandIn:
        yield from {**value.attributes, **value.pairs}.items()
    else:
        yield from children(value)


def _candidates(
    value: Any, holders: Holders, prefix: str, depth: int, seen: set[int]
) -> Iterator[tuple[str, Any]]:
    """The state dicts in a container, and trees of tensors that have none, by their names."""
    for key, item in _named(value):
        if not may_hold(item) or _is_leaf(item) or item not in holders:
            continue
        if _is_of_training(key, item, holders) or str(key).endswith("_extra_state"):
            continue
        name = f"{prefix}{key}"
        inside: list[tuple[str, Any]] = []
        if not is_state_dict(item) and depth < _DEEPEST and id(item) not in seen:
            seen.add(id(item))  # what stands at many places is looked through once
            inside = list(_candidates(item, holders, f"{name}.", depth + 1, seen))
        states = [part for part in inside if is_state_dict(part[1])]
        yield from states or [(name, item)]


def _is_of_training(name: Any, value: Any, holders: Holders) -> bool:
    """Whether a part is the state of optimizers, of a scheduler or of random numbers."""
    if not may_hold(value) or value not in holders:
        return False
    if _optimizer(value) is not None or (type(name) is str and _OPTIMIZER.search(name)):
        return True
    if isinstance(value, dict) and not _SCHEDULER.isdisjoint(value):
        return True
    if type(name) is str and _RANDOM.search(name):
        return all(tensor.dtype.name == "uint8" for tensor in tensors_in(value))
    inner = [item for _, item in _named(value) if may_hold(item) and item in holders]
    return bool(inner) and all(_optimizer(item) is not None for item in inner)


def names_beside(obj: Any, under: str) -> list[str]:
    """The names of the parts beside the one that is opened, at each level above it."""
    names: list[str] = []
    prefix = ""
    while under:
        items = [item for _, item in children(obj)]
        inner = dict(zip(part_names(obj), items, strict=True))
        fits = [name for name in inner if f"{under}.".startswith(f"{name}.")]
        names += [f"{prefix}{name}" for name in inner if name not in fits]
        if not fits:
            break
        name = max(fits, key=len)
        obj, prefix, under = inner[name], f"{prefix}{name}.", under[len(name) + 1 :]
    return names


def without_training(state: dict[Any, Any], holders: Holders) -> tuple[list[str], dict[Any, Any]]:
    """The names of states of optimizers that a state dict has beside its own tensors, and the state
    dict without them.
    """
    if not is_state_dict(state):
        return [], state
    beside = [name for name, item in state.items() if _optimizer(item) and item in holders]
    if not beside:
        return [], state
    rest = copy.copy(state)
    for name in beside:
        del rest[name]
    return beside, rest


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
    inner = list(children(obj))
    parts = [_part(str(key), value, read) for key, value in inner[:_MOST_PARTS]]
    if len(inner) > _MOST_PARTS:
        parts.append(Part("...", f"{len(inner) - _MOST_PARTS:,} more parts", 0, 0))
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
        if any(map(is_tensor, value.values())):
            return "a state dict"
        if any(map(may_hold, value.values())) or len(value) > _FEW:
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
    return [key if type(key) is str else shortened(key) for key, _ in children(obj)]


def part_at(obj: Any, at: str, path: str) -> Any:
    """The part of an object that a path such as "optimizer.state" names. Keys may have dots.

    Raises:
        CheckpointError: There is none. The message names what there is.
    """
    value, rest = obj, at
    while rest:
        inner = {str(key): child for key, child in children(value)}
        if type(value) is StandIn and value.is_module:
            inner |= {str(key): child for key, child in value.attributes["_modules"].items()}
        fits = [name for name in inner if rest == name or rest.startswith(f"{name}.")]
        if not fits:
            there = ", ".join(shortened(name)[1:-1] for name in list(inner)[:10])
            more = f" and {len(inner) - 10} more" if len(inner) > 10 else ""
            error = CheckpointError(
                f"it has no part {at!r:.100}: {f'there is {there}{more}' if there else 'no parts'}",
                path,
            )
            raise not_damaged(error)
        name = max(fits, key=len)
        value, rest = inner[name], rest[len(name) + 1 :]
    return value


def values_of(at: str, value: Any) -> dict[Any, Any]:
    """What is in a part without tensors by its names; of one without parts, itself."""
    return dict(children(value)) or {at.rpartition(".")[2]: value}
