# SPDX-License-Identifier: BSD-3-Clause
"""Why the keys of a checkpoint do not match those of a model: the usual causes, each with the call
that mends it.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from modtree.core.loading.codes import find_codes
from modtree.core.loading.mismatch import Mismatch, Shape, dtypes_of, given_shapes, mismatch_of
from modtree.inspection.load_failures.certainty import RENUMBERED
from modtree.inspection.load_failures.key_rules import Found, find_rules, shown_rules
from modtree.inspection.load_failures.layouts import (
    attention_parts,
    flat_keys,
    is_nested,
    other_case,
    pointwise,
    separator_rules,
)
from modtree.inspection.load_failures.norm_forms import norms

_USUAL_NAMES = ("state_dict", "model_state_dict", "model", "module", "net", "weights", "params")
_FEW = 4  # names that a call has in it
_MOST_TIES = 50  # missing keys whose tensor is looked for under another name
_MOST_MAPPINGS = 16  # in which the state dict is looked for
_MOST_KEYS = 1000  # keys of a mapping in the mapping that are looked for in the model

_AVERAGED = re.compile(r"(?<![a-z])(ema|swa|averaged?|shadow)(?![a-z])", re.IGNORECASE)


_NESTED = (
    "the state dict has a dict for each module in place of keys with dots. Try: flat = lambda "
    "tree, path='': {full: tensor for key, value in tree.items() for full, tensor in (flat(value, "
    "f'{path}{key}.') if isinstance(value, dict) else {f'{path}{key}': value}).items()}; "
    "model.load_state_dict(flat(state_dict))"
)


class Causes(NamedTuple):
    """Why the keys do not match.

    Attributes:
        likely: One sentence per cause that fits, the most telling first.
        doubts: What does not tell which entry is which.
    """

    likely: list[str]
    doubts: list[str]


def likely_causes(found: Mismatch) -> Causes:
    """The causes that fit, each with the call that mends it where no other explanation fits."""
    codes = _codes(found)
    if codes is not None:
        return Causes([codes], [])
    if is_nested(found):
        return Causes([_NESTED], [])
    nested = _nested_state_dict(found)
    if nested is not None:
        return nested
    case = other_case(found)
    if case is not None:
        what = "the keys of the state dict differ from those of the model in upper and lower case"
        return Causes([f"{what}. Try: model.load_state_dict(state_dict, rename={case})"], [])
    mark = None if separator_rules(found) else flat_keys(found)
    if mark is not None:
        return Causes([_flat(mark)], [])
    changed = find_rules(found)
    causes = [_renames(changed)] if changed.rules else []
    return Causes(causes + _others(changed), doubts_of(changed))


def doubts_of(changed: Found) -> list[str]:
    """What to say of explanations that are not given, since others fit as well."""
    doubts = [
        f"several explanations fit, as {reason}"
        for reason in changed.doubts
        if not changed.shifts or not reason.endswith(RENUMBERED)
    ]
    shifts = [*map(str, changed.shifts)]
    if len(shifts) > _FEW:
        shifts = [*shifts[:_FEW], f"and so in {len(shifts) - _FEW} more places"]
    return doubts[:_FEW] + shifts


def _others(changed: Found) -> list[str]:
    """Causes that are not names; without calls where they are what a rename leaves, or where other
    explanations fit.
    """
    found = changed.rest
    causes = []
    for find in (norms, _nones, attention_parts, pointwise, _ties, _layers, _transposed, _sizes):
        is_sure = changed.is_sure or (find is _transposed and changed.is_named)
        for cause in find(found):
            if changed.rules:
                cause = cause.partition(" Try: ")[0].rstrip(".:")
            causes.append(cause if is_sure else _without_loads(cause))
    return causes


def _without_loads(cause: str) -> str:
    """A cause without calls that load by names, where these do not tell which entry is which."""
    what, is_there, calls = cause.partition(" Try: ")
    kept = calls.partition(", or load ")[0]
    return f"{what} Try: {kept}" if is_there and "load_state_dict" not in kept else what.rstrip(".")


def _renames(changed: Found, mapping: str = "state_dict") -> str:
    """The call that renames keys, and what it would leave."""
    rename = f"rename={shown_rules(changed.rules)}"
    reasons = "; ".join(changed.reasons)
    rest = changed.rest
    if rest.is_empty:
        return f"{reasons}. Try: model.load_state_dict({mapping}, {rename})"
    left = [
        f"{len(keys)} {what}"
        for keys, what in (
            (rest.missing, "missing"),
            (rest.unexpected, "not expected"),
            (rest.shapes, "of another shape"),
        )
        if keys
    ]
    leaves = f"which leaves {', '.join(left)}"
    if not changed.is_sure:
        return f"{reasons}; {rename} takes that away, {leaves}"
    return f"{reasons}. Try: model.load_state_dict({mapping}, {rename}, partial=True), {leaves}"


# -- what was given --------------------------------------------------------------------------------


def _nested_state_dict(found: Mismatch) -> Causes | None:
    if not found.unexpected or len(found.state_dict) > _MOST_KEYS or not found.missing:
        return None
    if set(found.state_dict) == {"state", "param_groups"}:
        what = "this is the state of an optimizer"
        return Causes([f"{what}. Try: optimizer.load_state_dict(state_dict)"], [])
    fitting: list[tuple[int, str, Found]] = []
    averages: set[str] = set()
    for place, inner in itertools.islice(_mappings(found), _MOST_MAPPINGS):
        changed = find_rules(mismatch_of(inner, found))
        gained = len(found.missing) - len(changed.rest.missing)
        if gained > 0:
            fitting.append((gained, place, changed))
            averages |= {place} if _AVERAGED.search(place) or "n_averaged" in inner else set()
    if not fitting:
        return None
    most = max(gained for gained, _, _ in fitting)
    best = [(place, changed) for gained, place, changed in fitting if gained == most]
    if len(best) > 1:
        places = " and ".join(f"{place}{_average(place in averages)}" for place, _ in best)
        intro = "the mapping holds several state dicts that fit, of which only you know the right"
        return Causes([f"{intro} one: {places}"], [])
    place, changed = best[0]
    mapping = f"state_dict{place}"
    intro = (
        f"the mapping holds the state dict under {place}{_average(place in averages)}, as "
        f"checkpoints with more than the model's state do"
    )
    doubts = doubts_of(changed)
    if changed.rules:
        return Causes([f"{intro}; there, {_renames(changed, mapping)}"], doubts)
    if changed.rest.is_empty:
        return Causes([f"{intro}. Try: model.load_state_dict({mapping})"], doubts)
    if not changed.is_sure:
        return Causes([intro, *(_without_loads(cause) for cause in _others(changed))], doubts)
    return Causes([f"{intro}. Try: model.load_state_dict({mapping}, partial=True)"], doubts)


def _codes(found: Mismatch) -> str | None:
    """Weights that are codes, in a model that has no place for their scales."""
    unexpected = set(found.unexpected)
    if not unexpected:
        return None
    dtypes = dtypes_of(found.state_dict)
    found_codes = find_codes(dtypes).beside.items()
    codes = {key: scale for key, scale in found_codes if (scale or key) in unexpected}
    if not codes:
        return None
    key, scale = next(iter(codes.items()))
    more = f", and so are {len(codes) - 1} more entries" if len(codes) > 1 else ""
    belongs = f", which {scale!r} belongs to" if scale else ""
    return (
        f"{key!r} has codes of quantized weights, in {dtypes[key]}{belongs}{more}: the model has "
        f"plain weights. Load the file with the library that quantized it, or into a model that "
        f"was quantized in the same way"
    )


def _average(is_average: bool) -> str:
    return " (averages of weights)" if is_average else ""


def _mappings(found: Mismatch) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The dicts in the mapping, those under usual names first, and the dicts in them."""
    unexpected = set(found.unexpected)
    first = [name for name in _USUAL_NAMES if name in unexpected]
    for key in dict.fromkeys((*first, *found.unexpected)):
        value: Any = found.state_dict.get(key)
        if not issubclass(type(value), dict):
            continue
        yield f"[{key!r}]", value
        if len(value) <= _MOST_KEYS:
            for name, inner in value.items():
                if type(name) is str and issubclass(type(inner), dict):
                    yield f"[{key!r}][{name!r}]", inner


def _flat(mark: str) -> str:
    names = f"{{key.replace('.', {mark!r}): key for key in model.state_dict()}}.get"
    return (
        f"the keys of the state dict have {mark!r} where those of the model have '.'. Try: "
        f"model.load_state_dict(state_dict, rename={names})"
    )


# -- what is missing or has another shape ----------------------------------------------------------


def _ties(found: Mismatch) -> Iterator[str]:
    ties = {}
    for key in found.missing[:_MOST_TIES]:
        tie = found.tie(key)
        if tie is not None:
            ties[key] = tie
    if not ties:
        return
    pairs = ", ".join(f"{key!r}: state_dict[{tie!r}]" for key, tie in ties.items())
    key, tie = next(iter(ties.items()))
    call = f". Try: model.load_state_dict({{**state_dict, {pairs}}})"
    is_all = len(ties) == len(found.missing) and not found.unexpected and not found.shapes
    yield (
        f"{key!r} is the same tensor as {tie!r}, and files such as those of safetensors keep "
        f"one of them{call if is_all else ''}"
    )


def _nones(found: Mismatch) -> Iterator[str]:
    """Entries that are None in the model, or in the checkpoint."""
    is_alone = not found.missing and not found.shapes
    empty = [key for key in found.unexpected if found.state_dict.get(key, 0) is None]
    if empty:
        call = (
            ". Try: model.load_state_dict({key: value for key, value in state_dict.items() if "
            "value is not None})"
        )
        is_all = is_alone and len(empty) == len(found.unexpected)
        yield f"the state dict has None under {empty[0]!r}{call if is_all else ''}"
        return
    nones = [key for key in found.unexpected if found.is_none(key)]
    if not nones:
        return
    more = f" and {len(nones) - 1} more are" if len(nones) > 1 else " is"
    what = (
        f"{nones[0]!r}{more} None in the model, as with bias=False or track_running_stats=False. "
        f"Try: build the model so that it has them"
    )
    if is_alone and len(nones) == len(found.unexpected):
        what += ", or load the others with model.load_state_dict(state_dict, strict=False)"
    yield what


def _layers(found: Mismatch) -> Iterator[str]:
    """Blocks with numbers, of which one side has more."""
    own, given = Counter[str](), Counter[str]()
    for keys, count in ((found.missing, own), (found.unexpected, given)):
        for prefix in {block for key in keys if (block := _block(key)) is not None}:
            count[prefix[0]] += 1
    if not own and not given:
        return
    unexpected = set(found.unexpected)
    both = {
        block
        for key in found.state_dict
        if key not in unexpected and (block := _block(key)) is not None
    }
    shared = Counter(path for path, _ in both)
    for path in (*own, *given):
        if not shared[path] or (own[path] and given[path]):
            continue
        of_model, of_state = shared[path] + own[path], shared[path] + given[path]
        all_of = {_block(k) for k in (found.missing if own[path] else found.unexpected)}
        if any(block in both for block in all_of if block is not None and block[0] == path):
            continue
        yield (
            f"{path!r} has {_blocks(of_model)} in the model and {of_state} in the state dict. "
            f"Try: build the model with {of_state}, or load what fits with "
            f"model.load_state_dict(state_dict, partial=True)"
        )
        return


def _blocks(count: int) -> str:
    return f"{count} block{'' if count == 1 else 's'}"


def _block(key: str) -> tuple[str, str] | None:
    """The path to the first number in a key, and the number."""
    match = re.match(r"([^\d.][^.]*(?:\.[^\d.][^.]*){0,40})\.(\d+)\.", key[:400])
    return (match[1], match[2]) if match else None


def _transposed(found: Mismatch) -> Iterator[str]:
    turned = found.turned
    if not turned:
        return
    what = (
        f"transposed entries ({len(turned)} of {len(found.shapes)} of the wrong shape), "
        f"{turned[0]!r} first, as Conv1D of GPT-2 and programs of TensorFlow keep weights of Linear"
    )
    square = [key for key, shape in found.own.items() if _is_square(shape)]
    if square:
        more = f" and {len(square) - 1} more" if len(square) > 1 else ""
        yield f"{what}; square ones, {square[0]!r}{more}, may be so too, which no shape tells"
    elif len(turned) < len(found.shapes) or found.missing or found.unexpected:
        yield f"{what}, or modules in other places"
    elif not _are_the_same_modules(found, turned):
        yield f"{what}, or modules of other sizes"
    else:
        yield (
            f"{what}. Try: own = model.state_dict(); "
            f"model.load_state_dict({{key: value.T if key in own and value.shape != "
            f"own[key].shape else value for key, value in state_dict.items()}})"
        )


def _is_square(shape: Shape) -> bool:
    return shape is not None and len(shape) > 1 and shape == shape[::-1] and max(shape) > 1


def _are_the_same_modules(found: Mismatch, turned: list[str]) -> bool:
    """True if each module with a turned entry has others that fit, such as a bias, and its entries
    fit only this module.
    """
    own, given = _by_module(found.own), _by_module(given_shapes(found))
    modules = {key.rpartition(".")[0] for key in turned}
    if any(all(f"{m}.{n}".lstrip(".") in found.shapes for n in own[m]) for m in modules):
        return False
    return not any(
        given[module] == shapes
        for module in modules
        for other, shapes in own.items()
        if other != module
    )


def _by_module(shapes: Mapping[str, Shape]) -> dict[str, dict[str, Shape]]:
    modules: dict[str, dict[str, Shape]] = {}
    for key, shape in shapes.items():
        module, _, name = key.rpartition(".")
        modules.setdefault(module, {})[name] = shape
    return modules


def _sizes(found: Mismatch) -> Iterator[str]:
    turned = set(found.turned)
    shapes = {key: pair for key, pair in found.shapes.items() if key not in turned}
    pairs = Counter(
        (a, b)
        for saved, own in shapes.values()
        if len(saved) == len(own)
        for a, b in set(zip(saved, own, strict=True))
        if a != b
    )
    if not pairs:
        return
    (saved_size, own_size), count = pairs.most_common(1)[0]
    if pairs[own_size, saved_size]:
        return  # modules that have changed places
    if len(shapes) > 2 and 2 * count > len(shapes):
        yield (
            f"the model was built with other sizes: {saved_size} in the checkpoint is "
            f"{own_size} in the model, in {count} entries. Try: build the model with {saved_size}"
        )
    elif all(saved[1:] == own[1:] and len(saved) == len(own) for saved, own in shapes.values()):
        yield (
            f"the first size of {next(iter(shapes))!r} is {saved_size} in the checkpoint and "
            f"{own_size} in the model, as with another vocabulary or number of classes. Try: "
            f"build the model with {saved_size}, or load the others with "
            f"model.load_state_dict(state_dict, partial=True)"
        )
