# SPDX-License-Identifier: BSD-3-Clause
"""Why do the keys of a checkpoint not match those of a model? The usual causes, each with the call
that would mend it.

Every function works in time linear in the letters of the keys, so that the error of a large load
comes as soon as that of a small one, whatever a file has as its keys.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from modtree import families

__all__ = ["Mismatch", "likely_causes", "likely_rules", "near_matches", "shape_of"]

_SAMPLES = 8
_LONGEST_SEARCH = 400  # keys that one key is compared with, letter by letter
_LONGEST_READ = 300  # letters of a key that is compared letter by letter
_MOST_CUTS = 40  # dots of a key, from the left, at which a prefix may end
_CLOSE = 0.75  # how alike two keys must read, from 0 to 1
_LARGEST_MODULE = 64  # entries of one module among which a renamed one is looked for

_WRAPPERS = {
    "module.": "as DataParallel and DistributedDataParallel save them",
    "_orig_mod.": "as a module made by torch.compile saves them",
    "_fsdp_wrapped_module.": "as FullyShardedDataParallel saves them",
    "model.": "as a module that holds the model as `model` saves them",
}
_USUAL_NAMES = ("state_dict", "model_state_dict", "model", "module", "net", "weights", "params")


class Mismatch(NamedTuple):
    """What a failed load found.

    Attributes:
        missing: keys of the model that the state dict lacks.
        unexpected: keys of the state dict that the model lacks.
        shapes: of each entry of the wrong shape, that in the checkpoint and that in the model.
        state_dict: the given mapping.
        model_shape: gives the shape of an entry of the model by its key, or None.
    """

    missing: list[str]
    unexpected: list[str]
    shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...]]]
    state_dict: Mapping[str, Any]
    model_shape: Callable[[str], tuple[int, ...] | None]


def _samples(keys: list[str]) -> list[str]:
    step = max(1, len(keys) // _SAMPLES)
    return keys[::step][: _SAMPLES + 1]


def _splits(key: str) -> Iterator[tuple[str, str]]:
    """``key`` cut at each of its first dots, the dot on the left side."""
    at = key.find(".")
    for _ in range(_MOST_CUTS):
        if at < 0:
            return
        yield key[: at + 1], key[at + 1 :]
        at = key.find(".", at + 1)


def _most_common_prefix(keys: list[str], others: list[str]) -> str | None:
    """The prefix without which at least half of ``keys`` are among ``others``."""
    known = set(others)
    found = Counter(
        prefix for key in _samples(keys) for prefix, rest in _splits(key) if rest in known
    )
    for prefix, _ in found.most_common(3):
        fitting = sum(key.startswith(prefix) and key[len(prefix) :] in known for key in keys)
        if 2 * fitting >= min(len(keys), len(others)):
            return prefix
    return None


def _rename_call(rules: dict[str, str]) -> str:
    return f"model.load_state_dict(state_dict, rename={rules!r})"


def _nested_state_dict(found: Mismatch) -> Iterator[str]:
    for key in (*_USUAL_NAMES, *_samples(found.unexpected)):
        if key in found.unexpected and isinstance(found.state_dict.get(key), Mapping):
            yield (
                f"the mapping holds another mapping under {key!r}, as checkpoints with more than "
                f"the model's state do. Try: model.load_state_dict(state_dict[{key!r}])"
            )
            return


def _prefixes(found: Mismatch) -> Iterator[str]:
    prefix = _most_common_prefix(found.unexpected, found.missing)
    if prefix is not None:
        saved = f", {_WRAPPERS[prefix]}" if prefix in _WRAPPERS else ""
        yield (
            f"the keys of the state dict begin with {prefix!r}{saved}. "
            f"Try: {_rename_call({prefix: ''})}"
        )
        return
    prefix = _most_common_prefix(found.missing, found.unexpected)
    if prefix is not None:
        yield (
            f"the keys of the model begin with {prefix!r}, those of the state dict do not. "
            f"Try: {_rename_call({'': prefix})}, or load into the module at {prefix[:-1]!r}"
        )


def _parametrized(key: str) -> str | None:
    """The entry whose original a key is, or None."""
    path, _, name = key.rpartition(".")
    module, _, parametrized = path.rpartition(".")
    if name not in ("original", "original0") or not parametrized:
        return None
    if module.rpartition(".")[2] != "parametrizations":
        return None
    return module[: -len("parametrizations")] + parametrized


def _parametrizations(found: Mismatch) -> Iterator[str]:
    missing, unexpected = set(found.missing), set(found.unexpected)
    for key in found.missing:
        entry = _parametrized(key)
        if entry is not None and entry in unexpected:
            yield (
                f"{entry!r} is parametrized in the model, and was not when it was saved. "
                "Try: load first and parametrize then"
            )
            break
    for key in found.unexpected:
        entry = _parametrized(key)
        if entry is not None and entry in missing:
            yield (
                f"{entry!r} was parametrized when it was saved, and is not in the model. "
                "Try: parametrize the model in the same way before loading"
            )
            break
        if key.endswith("_g") and key[:-2] in missing and key[:-2] + "_v" in unexpected:
            yield (
                f"{key[:-2]!r} was saved under weight_norm. Try: apply weight_norm to the model "
                "before loading"
            )
            break


def shape_of(value: Any) -> tuple[int, ...] | None:
    """The shape of a tensor that has one; None of anything else."""
    family = families.family_of(value)
    if family is None or family.is_uninitialized(value):
        return None
    return tuple(family.shape(value))


def _renamed_pairs(found: Mismatch) -> Counter[tuple[str, str]]:
    """How often a prefix of unexpected keys would have to become a prefix of missing ones."""
    by_end: dict[int, str | None] = {}  # by hashes: the ends of long keys would fill the memory
    for key in found.missing:
        for _, rest in _splits(key):
            end = hash(rest)
            by_end[end] = key if end not in by_end else None  # None: not one key's alone
    pairs: Counter[tuple[str, str]] = Counter()
    for key in found.unexpected:
        for prefix, rest in _splits(key):
            missing = by_end.get(hash(rest))
            if missing and missing.endswith(rest):
                pairs[prefix, missing[: len(missing) - len(rest)]] += 1
                break
    return pairs


def _module_rules(found: Mismatch) -> dict[str, str]:
    """Prefixes of unexpected keys, and what they are in the model."""
    rules: dict[str, str] = {}
    missing = set(found.missing)
    for (old, new), _ in _renamed_pairs(found).most_common(4):
        if any(old.startswith(known) or known.startswith(old) for known in rules):
            continue
        keys = [key for key in found.unexpected if key.startswith(old)]
        fitting = 0
        for key in keys:
            target = new + key[len(old) :]
            shape = shape_of(found.state_dict.get(key))
            fitting += target in missing and shape in (None, found.model_shape(target))
        if 2 * fitting > len(keys):
            rules[old] = new
    return rules


def _renamed_modules(found: Mismatch) -> Iterator[str]:
    rules = _module_rules(found)
    if rules:
        changes = ", ".join(f"{old[:-1]!r} is {new[:-1]!r} now" for old, new in rules.items())
        yield f"renamed modules: {changes}. Try: {_rename_call(rules)}"


def _renamed_entries(found: Mismatch) -> Iterator[str]:
    """Parameters of one module under other names, such as gamma and beta for weight and bias."""
    by_module: dict[str, list[str]] = {}
    for key in found.missing:
        by_module.setdefault(key.rpartition(".")[0], []).append(key)
    names: Counter[tuple[str, str]] = Counter()
    for key in found.unexpected:
        module, _, name = key.rpartition(".")
        shape = shape_of(found.state_dict.get(key))
        others = by_module.get(module, [])
        if shape is None or len(others) > _LARGEST_MODULE:
            continue
        same = [other for other in others if found.model_shape(other) == shape]
        if len(same) == 1:
            names[name, same[0].rpartition(".")[2]] += 1
    only_pair = len(found.missing) == len(found.unexpected) == 1
    (old, new), count = names.most_common(1)[0] if names else (("", ""), 0)
    if count > 1 or (count and only_pair):
        yield (
            f"entries called {old!r} are called {new!r} now. Try: model.load_state_dict("
            f"state_dict, rename={{re.compile(r'\\b{re.escape(old)}$'): {new!r}}})"
        )


def _transposed(found: Mismatch) -> Iterator[str]:
    turned = [
        key for key, (saved, own) in found.shapes.items() if len(own) > 1 and saved == own[::-1]
    ]
    if turned:
        yield (
            f"transposed entries ({len(turned)} of {len(found.shapes)} of the wrong shape), "
            f"{turned[0]!r} first. Try: state_dict[key] = state_dict[key].T for these"
        )


def _all_sizes(found: Mismatch) -> Iterator[str]:
    pairs = Counter(
        (a, b)
        for saved, own in found.shapes.values()
        if len(saved) == len(own)
        for a, b in set(zip(saved, own, strict=True))
        if a != b
    )
    if len(found.shapes) > 2 and pairs:
        (saved_size, own_size), count = pairs.most_common(1)[0]
        if 2 * count > len(found.shapes):
            yield (
                f"the model was built with other sizes: {saved_size} in the checkpoint is "
                f"{own_size} in the model, in {count} entries"
            )


def likely_causes(found: Mismatch) -> list[str]:
    """One sentence per cause that fits, the most telling first."""
    causes: list[str] = []
    if found.missing and found.unexpected:
        for finder in (_prefixes, _parametrizations):
            causes += finder(found)
        if not causes:
            causes += _renamed_modules(found)
        if not causes:
            causes += _renamed_entries(found)
    if found.unexpected and not causes:
        causes += _nested_state_dict(found)
    causes += _transposed(found) if found.shapes else ()
    causes += _all_sizes(found) if found.shapes else ()
    return causes


def likely_rules(found: Mismatch) -> dict[str, str]:
    """Prefixes and what takes their place, so that most of the unexpected keys become missing
    ones; empty where no rule does.
    """
    if not found.missing or not found.unexpected:
        return {}
    prefix = _most_common_prefix(found.unexpected, found.missing)
    if prefix is not None:
        return {prefix: ""}
    prefix = _most_common_prefix(found.missing, found.unexpected)
    if prefix is not None:
        return {"": prefix}
    return _module_rules(found)


def near_matches(found: Mismatch, most: int = 5) -> list[tuple[str, str]]:
    """Pairs of a missing key and the unexpected one that reads most like it."""
    by_name: dict[str, list[str]] = {}
    unexpected = [key for key in found.unexpected if len(key) <= _LONGEST_READ]
    for key in unexpected:
        by_name.setdefault(key.rpartition(".")[2], []).append(key)
    pairs = []
    for key in found.missing[:most]:
        if len(key) > _LONGEST_READ:
            continue
        candidates = by_name.get(key.rpartition(".")[2]) or unexpected
        close = difflib.get_close_matches(key, candidates[:_LONGEST_SEARCH], n=1, cutoff=_CLOSE)
        if close:
            pairs.append((key, close[0]))
    return pairs
