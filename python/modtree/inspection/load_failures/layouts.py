# SPDX-License-Identifier: BSD-3-Clause
"""Other layouts of the same checkpoint: keys with other separators (``norm.1`` for ``norm1``, ``_``
or ``/`` for a dot), 1x1 convolutions for linear layers, and queries, keys and values in one tensor
or in three.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from modtree.core.loading.mismatch import Mismatch, Shape, library_of, mismatch_of, shape_of

_LONGEST_READ = 300  # letters of a key that is read
_MOST_KEYS = 20_000
_DEEPEST = 40
_MOST_STEMS = 12  # words of one rule
#: A word and the number behind it, at the end of a part of a key.
_NUMBERED = re.compile(r"\b([^\W\d](?:\w*?[^\W\d_])?)([._]?)([0-9]+)(?=\.|$)")

_Rules = list[tuple[re.Pattern[str], str, str]]

#: What the layers for queries, keys and values are called.
_TRIPLES = (
    ("q_proj", "k_proj", "v_proj"),
    ("query", "key", "value"),
    ("wq", "wk", "wv"),
    ("to_q", "to_k", "to_v"),
    ("q", "k", "v"),
    ("q_lin", "k_lin", "v_lin"),
    ("linear_q", "linear_k", "linear_v"),
    ("query_proj", "key_proj", "value_proj"),
)
_PARTS = ("weight", "bias")


# -- what separates the parts of keys --------------------------------------------------------------


def separator_rules(found: Mismatch) -> _Rules:
    """Rules by which all keys become those of the model, with what they are about."""
    if not found.missing or not found.unexpected or len(found.own) > _MOST_KEYS:
        return []
    for rules in (_slashes(found), _ENDINGS, _ZEROS, _numbers(found)):
        if rules and _is_whole(found, rules):
            return rules
    return []


def flat_keys(found: Mismatch) -> str | None:
    """What replaces the dots, where the keys without them are those of the model."""
    if not found.missing or not found.unexpected or len(found.own) > _MOST_KEYS:
        return None
    for mark in ("_", "/", "-", ":", ""):
        names = {key.replace(".", mark): key for key in found.own}
        if len(names) < len(found.own) or any(key not in names for key in found.state_dict):
            continue
        given = {names[key]: value for key, value in found.state_dict.items()}
        if mismatch_of(given, found).is_empty:
            return mark
    return None


def _is_whole(found: Mismatch, rules: _Rules) -> bool:
    """True if the rules give each unexpected key a place, and the model all that it lacks."""
    given = {}
    for key, value in found.state_dict.items():
        new = key
        if type(key) is str:
            for pattern, by, _ in rules:
                new = pattern.sub(by, new)
        if new in given or (new != key and key in found.own):
            return False
        given[new] = value
    return mismatch_of(given, found).is_empty


#: Of nnx, which has a variable around each tensor.
_ENDINGS: _Rules = [
    (re.compile(r"\.(?:value|raw_value)$"), "", "the keys of the state dict end in '.value'")
]
_ZEROS: _Rules = [
    (re.compile("(?<![0-9])0+(?=[0-9])"), "", "numbers have zeros before them, as '00' for '0'")
]


def other_case(found: Mismatch) -> str | None:
    """The call that gives keys the case of the model, where nothing else differs."""
    names = {key.lower(): key for key in found.own}
    given = {key.lower(): value for key, value in found.state_dict.items() if type(key) is str}
    if not found.missing or len(names) < len(found.own) or len(given) < len(found.state_dict):
        return None
    if given.keys() == {*found.state_dict} and names.keys() == {*found.own}:
        return None
    inner = {names.get(key, key): value for key, value in given.items()}
    if not mismatch_of(inner, found).is_empty:
        return None
    if names.keys() == {*found.own}:
        return "str.lower"
    return "lambda key: {own.lower(): own for own in model.state_dict()}[key.lower()]"


def is_nested(found: Mismatch) -> bool:
    """True if the dicts in the mapping are the model's entries, module by module."""
    flat: dict[str, Any] = {}
    waiting = [("", found.state_dict)]
    while waiting and len(flat) <= _MOST_KEYS:
        prefix, mapping = waiting.pop()
        for key, value in mapping.items():
            full = f"{prefix}{key}"
            if issubclass(type(value), dict) and full.count(".") < _DEEPEST:
                waiting.append((f"{full}.", value))
            else:
                flat[full] = value
    if len(flat) == len(found.state_dict) or not found.missing:
        return False
    return mismatch_of(flat, found).is_empty


def _slashes(found: Mismatch) -> _Rules:
    if any("/" in key for key in found.own) or not any("/" in key for key in found.unexpected):
        return []
    return [(re.compile("/"), ".", "the keys of the state dict have '/' for '.'")]


def _numbers(found: Mismatch) -> _Rules:
    """Numbers that are parts of their own on one side alone, for the words before them."""
    own: dict[str, str] = {}
    for key in found.missing:
        if len(key) > _LONGEST_READ or own.setdefault(_joined(key), key) != key:
            return []
    words: dict[tuple[str, str], dict[str, None]] = {}
    for key in found.unexpected:
        partner = own.get(_joined(key)) if len(key) <= _LONGEST_READ else None
        if partner is None:
            return []
        pairs = zip(_NUMBERED.findall(key), _NUMBERED.findall(partner), strict=False)
        for (word, mark, _), (_, new_mark, _) in pairs:
            if mark != new_mark:
                words.setdefault((mark, new_mark), {})[word] = None
    rules: _Rules = []
    for (mark, new_mark), stems in words.items():
        names = "|".join(map(re.escape, stems))
        first = next(iter(stems))
        rules.append(
            (
                re.compile(rf"\b({names}){re.escape(mark)}([0-9]+)(?=\.|$)"),
                rf"\1{new_mark}\2",
                f"numbers behind words: '{first}{mark}1' is '{first}{new_mark}1' now",
            )
        )
    return rules if sum(map(len, words.values())) <= _MOST_STEMS else []


def _joined(key: str) -> str:
    return _NUMBERED.sub(r"\1\3", key)


# -- 1x1 convolutions ------------------------------------------------------------------------------


def pointwise(found: Mismatch) -> Iterator[str]:
    """Weights that have the values of the model's with, or without, sizes of 1 at their ends."""
    changed = [key for key, pair in found.shapes.items() if _is_pointwise(*pair)]
    if not changed:
        return
    saved, own = found.shapes[changed[0]]
    kinds = ("a 1x1 convolution", "a linear layer")
    now, then = kinds if len(own) > len(saved) else kinds[::-1]
    what = (
        f"{changed[0]!r} has the shape {list(saved)} in the checkpoint and {list(own)} in the "
        f"model: it was that of {then}, and is that of {now}"
    )
    if len(changed) < len(found.shapes) or found.missing or found.unexpected:
        yield what
    elif not _are_in_their_places(found, changed):
        yield f"{what}, or modules are in other places"
    else:
        yield (
            f"{what}. Try: own = model.state_dict(); model.load_state_dict({{key: value.reshape("
            "own[key].shape) if key in own and value.shape != own[key].shape else value for key, "
            "value in state_dict.items()})"
        )


def _is_pointwise(saved: Shape, own: Shape) -> bool:
    if saved is None or own is None:
        return False
    short, long = sorted((saved, own), key=len)
    return len(short) == 2 < len(long) and long == short + (1,) * (len(long) - 2)


def _are_in_their_places(found: Mismatch, changed: list[str]) -> bool:
    """True if no changed entry has the shape of another entry that has changed."""
    if any(shape_of(value) is None for value in found.state_dict.values()):
        return False  # a value that the call could not ask for its shape
    own = {found.shapes[key][1] for key in changed}
    return not any(found.shapes[key][0] in own for key in changed)


# -- queries, keys and values ----------------------------------------------------------------------


class _Fused(NamedTuple):
    """Layers of queries, keys and values on one side that are one entry on the other.

    Attributes:
        names: What the three are called.
        whole: The key of the one entry.
        parts: The keys of the three.
    """

    names: tuple[str, str, str]
    whole: str
    parts: tuple[str, ...]


def attention_parts(found: Mismatch) -> Iterator[str]:
    """Entries for queries, keys and values that are three on one side and one on the other."""
    given = {key: shape_of(found.state_dict.get(key)) for key in found.unexpected}
    own = {key: found.own.get(key) for key in found.missing}
    for is_split, parts, wholes in ((True, given, own), (False, own, given)):
        fused = list(_fused(parts, wholes))
        if not fused:
            continue
        first = fused[0]
        shapes = " + ".join(str(list(parts[key] or ())) for key in first.parts)
        three = f"{', '.join(map(repr, first.parts))} ({shapes})"
        one = f"{first.whole!r} ({list(wholes[first.whole] or ())})"
        what = (
            f"{three} of the state dict are {one} of the model"
            if is_split
            else f"{one} of the state dict is {three} of the model"
        )
        call = _call(found, fused, is_split)
        if not all(map(_is_of_multi_head_attention, fused)):
            what += ", whose rows may be in another order, as one head after the other"
        yield what + (f". Try: {call}" if call else "")
        return


def _fused(parts: Mapping[str, Shape], wholes: Mapping[str, Shape]) -> Iterator[_Fused]:
    beside: dict[str, list[str]] = {}
    for whole in wholes:
        module, _, entry = whole.rpartition(".")
        inside = entry in _PARTS  # of a module, whose siblings are the three
        beside.setdefault(module.rpartition(".")[0] if inside else module, []).append(whole)
    for key in parts:
        path, _, entry = key.rpartition(".")
        module, _, name = path.rpartition(".")
        names = next((names for names in _TRIPLES if names[0] == name), None)
        if names is None or entry not in _PARTS:
            continue
        begin = f"{module}." if module else ""
        three = tuple(f"{begin}{name}.{entry}" for name in names)
        shapes = [parts.get(part) for part in three]
        if None in shapes:
            continue
        joined = (sum(shape[0] for shape in shapes if shape), *(shapes[0] or ())[1:])
        alike = all(shape and shape[1:] == joined[1:] for shape in shapes)
        fitting = [w for w in beside.get(module, ()) if wholes[w] == joined and w.endswith(entry)]
        if alike and len(fitting) == 1:
            yield _Fused(names, fitting[0], three)


def _call(found: Mismatch, fused: list[_Fused], is_split: bool) -> str | None:
    """The load of these, where the order of the rows is known: ``nn.MultiheadAttention`` has all
    queries first, all keys then.
    """
    names = fused[0].names
    if any(one.names != names or not _is_of_multi_head_attention(one) for one in fused):
        return None
    if not _is_all(found, fused, is_split):
        return None
    first, second, third = names
    entry = r"\.(weight|bias)$"
    if not is_split:
        whole = r"r'\bin_proj_(weight|bias)$'"
        return (
            f"model.load_state_dict({{re.sub({whole}, name + r'.\\1', key): part for key, value in "
            f"state_dict.items() for name, part in (zip({names!r}, value.chunk(3)) if "
            f"re.search({whole}, key) else [('', value)])}})"
        )
    cat = f"{library_of(found.state_dict.get(fused[0].parts[0]))}.cat"
    one, rest = rf"r'\b{first}{entry}'", rf"r'\b({second}|{third}){entry}'"
    return (
        f"model.load_state_dict({{re.sub({one}, r'in_proj_\\1', key): {cat}([state_dict[re.sub("
        f"{one}, name + r'.\\1', key)] for name in {names!r}]) if re.search({one}, key) else value "
        f"for key, value in state_dict.items() if not re.search({rest}, key)}})"
    )


def _is_of_multi_head_attention(one: _Fused) -> bool:
    return one.whole.rpartition(".")[2] in ("in_proj_weight", "in_proj_bias")


def _is_all(found: Mismatch, fused: list[_Fused], is_split: bool) -> bool:
    """True if the load then finds all keys, and only these."""
    given: dict[Any, Any] = dict(found.state_dict)
    of_first = re.compile(rf"\b({'|'.join(fused[0].names)})\.(weight|bias)$")
    of_whole = re.compile(r"\bin_proj_(weight|bias)$")
    known = {key for one in fused for key in (one.parts if is_split else (one.whole,))}
    pattern = of_first if is_split else of_whole
    if {key for key in given if type(key) is str and pattern.search(key)} != known:
        return False  # the call would change others
    for one in fused:
        old, new = (one.parts, (one.whole,)) if is_split else ((one.whole,), one.parts)
        for key in old:
            del given[key]
        given |= {key: None for key in new}
        sizes = [found.own.get(part) for part in one.parts]
        if not is_split and any(size != sizes[0] for size in sizes):
            return False
    return mismatch_of(given, found).is_empty
