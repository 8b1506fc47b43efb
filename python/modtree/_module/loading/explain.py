# SPDX-License-Identifier: BSD-3-Clause
"""The lines that the error of a failed ``load_state_dict()`` adds to torch's."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from modtree import _C, families
from modtree._module.loading.causes import likely_causes
from modtree._module.loading.key_rules import near_matches
from modtree._module.loading.mismatch import Mismatch, shape_of

__all__ = ["by_module", "explain_load", "wrong_shapes"]

# Under `modtree run` the class shows torch's function in its place.
_registered = _C.ModuleBase.__getattr__

_FEW = 8  # keys that need no summary
_MOST_MODULES = 12
_MOST_VERSIONS = 1000  # missing keys whose modules are asked for their version
_MOST_TIES = 100_000  # keys among which the other name of a tied tensor is looked for
_ARRAY = re.compile(
    r'While \w+ the parameter named "(.+)", expected torch.Tensor or Tensor-like object from '
    r"checkpoint but received <class 'numpy.ndarray'>$"
)
_SIZE_MISMATCH = re.compile(
    r"size mismatch for (.+): copying a param with shape (.+) from checkpoint, "
    r"the shape in current model is (.+?)\.?$"
)


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text))


def wrong_shapes(
    messages: Iterable[str],
) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    """Of the entries that these messages of a load name: the shape in the checkpoint, and that in
    the model.
    """
    matches = (_SIZE_MISMATCH.match(message) for message in messages)
    return {match[1]: (_shape(match[2]), _shape(match[3])) for match in matches if match}


def _without_numbers(path: str) -> str:
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", path)


def by_module(keys: list[str]) -> list[str]:
    """The keys grouped by their modules; modules that differ in their numbers alone are one line,
    ``layers.*.norm (weight, bias) x 24``.
    """
    names: dict[str, list[str]] = {}
    for key in keys:
        module, _, name = key.rpartition(".")
        names.setdefault(module, []).append(name)
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for module, own in names.items():
        groups.setdefault((_without_numbers(module), tuple(own)), []).append(module)
    lines = []
    for (pattern, entries), modules in groups.items():
        path = modules[0] if len(modules) == 1 else pattern
        times = f" x {len(modules)}" if len(modules) > 1 else ""
        lines.append(f"{path or 'the root'} ({', '.join(entries)}){times}")
    return lines


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


def _older_versions(module: Any, state_dict: Mapping[str, Any], missing: list[str]) -> list[str]:
    metadata = getattr(state_dict, "_metadata", None)
    if not isinstance(metadata, Mapping):
        return []
    for path in dict.fromkeys(key.rpartition(".")[0] for key in missing[:_MOST_VERSIONS]):
        saved = metadata.get(path)
        own = inspect.getattr_static(type(_entry(module, path)), "_version", None)
        version = saved.get("version") if isinstance(saved, Mapping) else None
        if own is not None and isinstance(saved, Mapping) and version != own:
            return [
                f"{path or 'the root'!r} was saved in version {version} of its class, which is at "
                f"version {own} now. Try: model.load_state_dict(state_dict, strict=False), which "
                f"leaves the entries as they are that are missing"
            ]
    return []


def _arrays(module: Any, found: Mismatch, messages: list[str]) -> list[str]:
    """Of values that are arrays of NumPy, which torch does not take either."""
    matches = [match for message in messages if (match := _ARRAY.match(message))]
    given = next(iter(found.state_dict.values()), None)
    if not matches and not (found.unexpected and issubclass(type(given), np.ndarray)):
        return []
    key = matches[0][1] if matches else next(iter(found.missing), "")
    family = families.family_of(_entry(module, key))
    library = "torch" if family is not None and family.name == "torch" else "modtree"
    return [
        "the values are arrays of NumPy, as those of safetensors.numpy.load_file() are. Try: "
        f"state_dict = {{key: {library}.from_numpy(value) for key, value in state_dict.items()}}"
    ]


def _tie_finder(module: Any, state_dict: Mapping[str, Any]) -> Callable[[str], str | None]:
    """A function of a key of the model: the key of the state dict with the same tensor."""
    known: dict[int, str] = {}

    def tie(key: str) -> str | None:
        tensor = _entry(module, key)
        if tensor is None:
            return None
        if not known:
            for other in itertools.islice(state_dict, _MOST_TIES):
                if type(other) is str:
                    known.setdefault(id(_entry(module, other)), other)
            known.pop(id(None), None)
        return known.get(id(tensor))

    return tie


def _counts(found: Mismatch) -> list[str]:
    given = len(found.state_dict)
    expected = given - len(found.unexpected) + len(found.missing)
    # Hooks may have put into the lists what is in neither.
    of_model = f" of the {expected}" if expected >= len(found.missing) else ""
    of_given = f" of the {given}" if given >= len(found.unexpected) else ""
    counts = []
    if found.missing:
        counts.append(f"{len(found.missing)}{of_model} keys of the model are missing")
    if found.unexpected:
        counts.append(f"{len(found.unexpected)}{of_given} keys of the state dict were not expected")
    if found.shapes:
        counts.append(f"{len(found.shapes)} have another shape")
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
    found = Mismatch(
        missing,
        unexpected,
        shapes,
        state_dict,
        lambda key: shape_of(_entry(module, key)),
        _tie_finder(module, state_dict),
    )
    causes = likely_causes(found) + _older_versions(module, state_dict, missing)
    causes += _arrays(module, found, messages)
    near = near_matches(found) if not causes and missing and unexpected else []
    if not causes and not near and len(missing) + len(unexpected) + len(shapes) <= _FEW:
        return ""  # torch's message says it all
    lines = _counts(found)
    lines += _summary("Missing", missing) + _summary("Unexpected", unexpected)
    lines += [f"Likely cause: {cause}." for cause in causes]
    lines += [f"{key!r} is perhaps {other!r}." for key, other in near]
    if not causes:
        lines.append(
            "To load what fits and see what does not: model.load_state_dict(state_dict, "
            "partial=True)"
        )
    return "\n\n" + "\n".join(lines)


_C._install(explain_load=explain_load)
