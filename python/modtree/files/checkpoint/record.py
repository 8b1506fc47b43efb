# SPDX-License-Identifier: BSD-3-Clause
"""What a state dict has beyond tensors of their own, as text in the metadata of a file.

One entry, ``modtree``, holds it as JSON; readers that do not know it pass it over. Each key whose
tensor is that of another key also has an entry of its own that names the other one, as
``safetensors.torch.save_model`` writes it.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from modtree.core.strides import reach
from modtree.files.checkpoint.base import Checkpoint, CheckpointError, View, shortened

RECORD_KEY = "modtree"
_Shapes = Mapping[str, tuple[int, ...]]


_ADVICE = (
    "have get_extra_state() return tensors, or text, numbers, lists and dicts of them, or write "
    "with modtree.save()"
)


def _advice(key: str, value: Any) -> str:
    """What to try about a value that JSON cannot say."""
    if isinstance(value, Mapping) and any(hasattr(part, "shape") for part in value.values()):
        return (
            f"it is a state dict itself, so save that, save_file(state[{key!r}], path), and "
            f"numbers with metadata="
        )
    return _ADVICE


#: Of numbers that Python reads as text.
_MOST_BITS = 14_000


@dataclass
class Record:
    """The attributes of a :class:`Checkpoint` of these names."""

    ties: dict[str, str] = field(default_factory=dict)
    views: dict[str, View] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    versions: Any = None

    def give_to(self, checkpoint: Checkpoint) -> None:
        vars(checkpoint).update(vars(self))

    def metadata(self, path: str, advice: str | None = None) -> dict[str, str]:
        """The entries for the metadata of a file.

        Args:
            path: Of the file, for errors.
            advice: What to do about values that JSON cannot say.

        Raises:
            CheckpointError: JSON cannot say one of the values.
        """
        for key, value in self.values.items():
            if (wrong := not_json(value)) is not None:
                raise CheckpointError(
                    f"the entry is no tensor, and safetensors files hold such as JSON, which has "
                    f"no {wrong}: {advice or _advice(key, value)}",
                    path,
                    key,
                )
        content: dict[str, Any] = {}
        if self.versions is not None:
            content["versions"] = _short_versions(self.versions, path)
        shared: dict[str, Any] = dict(self.ties)
        for key, view in self.views.items():
            shared[key] = [view.of, list(view.shape), list(view.strides), view.offset]
        for name, part in (("shared", shared), ("values", self.values), ("places", self.places)):
            content |= {name: part} if part else {}
        ties = self.ties | {key: view.of for key, view in self.views.items()}
        return {**ties, RECORD_KEY: _dumped(content, path)} if content else ties

    def without_values(self, is_wrong: Callable[[Any], bool]) -> list[str]:
        """Takes out values of a kind, and returns their keys."""
        wrong = [key for key, value in self.values.items() if is_wrong(value)]
        for key in wrong:
            del self.values[key]
            self.places.pop(key, None)
        return wrong


def _dumped(content: Any, path: str) -> str:
    import json  # takes a while, and few programs need it

    try:
        return json.dumps(content, separators=(",", ":"), ensure_ascii=False)
    except RecursionError:
        raise CheckpointError("its extra state is nested too deeply for JSON", path) from None


def not_json(value: Any) -> str | None:
    """What in a value would not come back from JSON as it was; None when all would."""
    waiting, seen = [value], 0
    while waiting:
        value = waiting.pop()
        seen += 1
        if seen > 10_000_000:
            return "value within itself"
        if type(value) is list:
            waiting += value
        elif type(value) is dict:
            for key, part in value.items():
                if type(key) is not str:
                    return f"dict with a key such as {shortened(key)}"
                waiting += (part, key)
        elif type(value) is str and not _is_unicode(value):
            return f"text such as {shortened(value)}"
        elif type(value) is int and value.bit_length() > _MOST_BITS:
            return f"number of {value.bit_length():,} bits"
        elif value is not None and type(value) not in (str, int, float, bool):
            return getattr(value, "shown_as", type(value).__name__)
    return None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _short_versions(versions: Any, path: str) -> dict[str, Any]:
    """A module that has a version and nothing else is written as the version."""
    short = {}
    for name, local in versions.items():
        alone = type(local) is dict and list(local) == ["version"]
        short[name] = local["version"] if alone and type(local["version"]) is not dict else local
        if type(name) is not str or not_json(short[name]) is not None:
            raise CheckpointError(
                f"the _metadata of module {shortened(name)} is {shortened(local)}, which JSON "
                f"cannot say; write with modtree.save()",
                path,
            )
    return short


# -- reading ---------------------------------------------------------------------------------------


def take_record(metadata: dict[str, str], shapes: _Shapes, path: str) -> Record:
    """Takes the record out of the metadata of a file.

    Args:
        metadata: What the file has as metadata. The entries of the record leave it.
        shapes: The tensors in the file.
        path: Of the file, for errors.

    Raises:
        CheckpointError: The record is damaged.
    """
    record = Record()
    text = metadata.pop(RECORD_KEY, None)
    if text is None:
        ties = {key: kept for key, kept in metadata.items() if _is_tie(key, kept, shapes)}
        record.ties.update(ties)
    else:
        _read(record, _loaded(text, path), shapes, path)
    for key in (*record.ties, *record.views):
        metadata.pop(key, None)
    return record


def _is_tie(key: str, kept: str, shapes: _Shapes) -> bool:
    """Is it an entry of ``save_model``? "format" stands in most files, and is none of them."""
    return key != "format" and key not in shapes and kept in shapes


def _loaded(text: str, path: str) -> dict[str, Any]:
    import json

    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"{type(error).__name__}: {shortened(str(error))}") from None
    if type(content) is not dict:
        raise _damaged(path, f"{shortened(content)} where an object belongs")
    return content


def _damaged(path: str, what: str, key: str | None = None) -> CheckpointError:
    return CheckpointError(f"the metadata 'modtree' of the file is damaged: {what}", path, key)


def _read(record: Record, content: dict[str, Any], shapes: _Shapes, path: str) -> None:
    parts = {name: content.get(name, {}) for name in ("shared", "values", "places", "versions")}
    for name, part in parts.items():
        if type(part) is not dict:
            raise _damaged(path, f"its {name} are {shortened(part)}")
    for key, shared in parts["shared"].items():
        if key in shapes:
            raise _damaged(path, "the file has a tensor of its own for it", key)
        if type(shared) is str and shared in shapes:
            record.ties[key] = shared
        else:
            record.views[key] = _read_view(shared, shapes, path, key)
    for key in parts["values"]:
        if key in shapes or key in parts["shared"]:
            raise _damaged(path, "it is to be a tensor and a value at once", key)
    record.values.update(parts["values"])
    for key, place in parts["places"].items():
        if type(place) is not int:
            raise _damaged(path, f"its place is {shortened(place)}", key)
    record.places.update(parts["places"])
    if "versions" in content:
        record.versions = OrderedDict(
            (name, local if type(local) is dict else {"version": local})
            for name, local in parts["versions"].items()
        )


def _read_view(shared: Any, shapes: _Shapes, path: str, key: str) -> View:
    try:
        of, shape, strides, offset = shared
        numbers = (*shape, *strides, offset)
        if (
            of not in shapes
            or not all(type(n) is int and 0 <= n < 1 << 63 for n in numbers)
            or not len(shape) == len(strides) <= 64
            or offset + reach(shape, strides) > math.prod(shapes[of])
            or math.prod(shape) > math.prod(shapes[of])
        ):
            raise ValueError
    except (TypeError, ValueError):
        raise _damaged(path, f"no part of a tensor of the file: {shortened(shared)}", key) from None
    return View(of, tuple(shape), tuple(strides), offset)
