# SPDX-License-Identifier: BSD-3-Clause
"""Rules that would make the keys of a checkpoint those of a model.

Every function works in time linear in the letters of the keys, so that the error of a large load
comes as soon as that of a small one, whatever a file has as its keys.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from modtree.core.loading.mismatch import Mismatch, given_shapes, renamed, shape_of
from modtree.inspection.load_failures.certainty import doubt
from modtree.inspection.load_failures.layouts import separator_rules
from modtree.inspection.load_failures.norm_forms import form_rules
from modtree.inspection.load_failures.numbering import Shift, find_shifts

_SAMPLES = 8
_LONGEST_READ = 300  # letters of a key that is compared letter by letter
_MOST_CUTS = 40  # dots of a key, from the left, at which a prefix may end
_LARGEST_MODULE = 64  # entries of one module among which a renamed one is looked for
_MOST_ALIKE = 64  # keys of one shape and number among which the partner of another is looked for
_MOST_READ = 10_000  # keys of each side in which rules are looked for
_MOST_ROUNDS = 6  # rules that are looked for one after the other
_NUMBER = re.compile("[0-9]+")
_MOST_SHIFTED = 24  # rules of a call for layers that have other numbers

#: Names that other programs have for the entries of normalizations.
_SYNONYMS = {"gamma": "weight", "beta": "bias"}

#: What AveragedModel counts in, beside the copy of the model that it calls `module`.
_AVERAGES = "n_averaged"

_WRAPPERS = {
    "module.": "as DataParallel and DistributedDataParallel save them",
    "_orig_mod.": "as a module made by torch.compile saves them",
    "_fsdp_wrapped_module.": "as FullyShardedDataParallel saves them",
    "_forward_module.": "as Lightning Fabric and DeepSpeed save them",
    "model.": "as a module that holds the model as `model` saves them",
    "base_model.model.": "as peft saves them",
}
Rules: TypeAlias = "dict[str | re.Pattern[str], str]"


class Found(NamedTuple):
    """Rules that mend some of a mismatch.

    Attributes:
        rules: For ``load_state_dict(rename=)``, to be applied in this order.
        reasons: What each of them is about.
        rest: What is still wrong with them.
        shifts: Layers of which the names do not tell which are the same, with the rules.
        doubts: Why other rules, which fit some keys, are not given.
    """

    rules: Rules
    reasons: list[str]
    rest: Mismatch
    shifts: list[Shift]
    doubts: list[str]

    @property
    def is_named(self) -> bool:
        """True if the names, with these rules, tell which entry is which."""
        return not self.shifts and not self.doubts

    @property
    def is_sure(self) -> bool:
        """True if what fits by its name is what it was when it was saved."""
        return self.is_named and not self.rest.turned


class _Rule(NamedTuple):
    old: str | re.Pattern[str]
    new: str
    reason: str
    is_known: bool = False  # no further proof is needed


def find_rules(found: Mismatch, only: tuple[_Finder, ...] | None = None) -> Found:
    """The rules that fit, one after the other, until none mends anything. A rule is given where it
    is the one explanation of all keys, also of those that matched by name.

    Args:
        found: What a load found.
        only: The searches to be made; all unless given.
    """
    rules: Rules = {}
    reasons: list[str] = []
    doubts: dict[str, None] = {}
    rest = found
    for _ in range(_MOST_ROUNDS):
        new = _next_rules(rest, rules, only or _FINDERS, doubts)
        if not new:
            break
        rest = renamed(rest, {rule.old: rule.new for rule in new})
        rules |= {rule.old: rule.new for rule in new}
        reasons += dict.fromkeys(rule.reason for rule in new)
    shifts = find_shifts(given_shapes(rest), rest.own)
    # Where the rules explain all keys, others that were looked at do not.
    return Found(rules, reasons, rest, shifts, [] if rest.is_empty else list(doubts))


def _next_rules(
    rest: Mismatch, rules: Rules, finders: tuple[_Finder, ...], doubts: dict[str, None]
) -> list[_Rule]:
    """The first rules that mend something, and are sure."""
    if not rest.missing and not rest.unexpected and not rest.shapes:
        return []
    for find in finders:
        part = rest if find in _OF_ALL_KEYS else _beginning(rest)
        found = [rule for rule in find(part) if rule.old not in rules]
        for new in (found, *([rule] for rule in found)) if len(found) > 1 else (found,):
            if new and _mends_more(rest, new):
                reason = None if all(rule.is_known for rule in new) else _doubt(rest, new)
                if reason is None:
                    return new
                doubts[reason] = None
    return []


def _mends_more(rest: Mismatch, new: list[_Rule]) -> bool:
    left = renamed(rest, {rule.old: rule.new for rule in new})
    before = len(rest.missing) + len(rest.shapes)
    return left is not rest and len(left.missing) + len(left.shapes) < before


def _doubt(rest: Mismatch, new: list[_Rule]) -> str | None:
    return doubt(rest, {rule.old: rule.new for rule in new})


def _beginning(found: Mismatch) -> Mismatch:
    """A mismatch of many keys as one of the first of them: what is renamed in a large model is so
    in each of its parts.
    """
    missing, unexpected = found.missing[:_MOST_READ], found.unexpected[:_MOST_READ]
    if len(missing) == len(found.missing) and len(unexpected) == len(found.unexpected):
        return found
    state_dict = {key: found.state_dict.get(key) for key in unexpected}
    return found._replace(missing=missing, unexpected=unexpected, shapes={}, state_dict=state_dict)


def shown_rules(rules: Rules) -> str:
    """Rules as a program has them."""
    parts = []
    for old, new in rules.items():
        if isinstance(old, re.Pattern):
            text = repr(old.pattern)
            if "\\" in old.pattern and not set(old.pattern) & {"'", '"', "\n"}:
                text = f"r'{old.pattern}'"
            parts.append(f"re.compile({text}): {_shown_text(new)}")
        else:
            parts.append(f"{old!r}: {new!r}")
    return f"{{{', '.join(parts)}}}"


def _shown_text(text: str) -> str:
    is_raw = "\\" in text and not set(text) & {"'", '"', "\n"}
    return f"r'{text}'" if is_raw else repr(text)


def _mends(found: Mismatch, rules: Rules) -> bool:
    """True if rules give the model more keys, all of the right shape, and take none away."""
    rest = renamed(found, rules)
    return (
        len(rest.missing) < len(found.missing)
        and len(rest.shapes) == len(found.shapes)
        and set(rest.missing) <= set(found.missing)
    )


# -- prefixes --------------------------------------------------------------------------------------


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


def _prefixes(found: Mismatch) -> list[_Rule]:
    prefix = _most_common_prefix(found.unexpected, found.missing)
    if prefix is not None:
        saved = f", {_WRAPPERS[prefix]}" if prefix in _WRAPPERS else ""
        if f"{prefix.removesuffix('module.')}{_AVERAGES}" in found.unexpected:
            saved = (
                f", and there is {_AVERAGES!r}, as AveragedModel saves averages of weights; those "
                f"of the last step are in the state dict of the model itself"
            )
        return [_Rule(prefix, "", f"the keys of the state dict begin with {prefix!r}{saved}")]
    prefix = _most_common_prefix(found.missing, found.unexpected)
    if prefix is None:
        return []
    reason = f"the keys of the model begin with {prefix!r}, those of the state dict do not"
    if f"{prefix.removesuffix('module.')}{_AVERAGES}" in found.missing:
        reason += ": it is an AveragedModel, and its copy gets the weights"
    for old in ("", _all_but_fitting(found)):
        if old is not None and _mends_most(found, {old: prefix}):
            return [_Rule(old, prefix, reason)]
    return [_Rule("", prefix, reason)]


def _mends_most(found: Mismatch, rules: Rules) -> bool:
    return set(renamed(found, rules).missing) <= set(found.missing)


def _all_but_fitting(found: Mismatch) -> re.Pattern[str] | None:
    """The beginning of keys that are not in a child whose keys fit as they are."""
    unexpected = set(found.unexpected)
    fitting = {key.partition(".")[0] for key in found.state_dict if key not in unexpected}
    others = {key.partition(".")[0] for key in unexpected}
    if not 0 < len(fitting) <= _SAMPLES or fitting & others:
        return None
    return re.compile(rf"^(?!(?:{'|'.join(map(re.escape, sorted(fitting)))})(?:\.|$))")


# -- modules ---------------------------------------------------------------------------------------


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


def _modules(found: Mismatch) -> list[_Rule]:
    return [
        _Rule(old, new, f"renamed modules: {old[:-1]!r} is {new[:-1]!r} now")
        for old, new in _module_rules(found).items()
    ]


# -- parts of keys ---------------------------------------------------------------------------------


def _segments(key: str) -> list[str] | None:
    if len(key) > _LONGEST_READ:
        return None
    parts = key.split(".")
    return parts if len(parts) <= _MOST_CUTS else None


def _common(some: list[str], others: list[str]) -> tuple[int, int]:
    """How many parts two keys have in common at their beginning, and at their end."""
    most = min(len(some), len(others))
    first = 0
    while first < most and some[first] == others[first]:
        first += 1
    last = 0
    while last < most - first and some[-1 - last] == others[-1 - last]:
        last += 1
    return first, last


def _parts(found: Mismatch) -> list[_Rule]:
    """A part in the middle of many keys that has another name, is there or is not, such as
    ``layers.*.self_attn.`` for ``layers.*.attn.``.
    """
    groups: dict[object, list[list[str]]] = {}
    for key in found.missing:
        parts = _segments(key)
        if parts is not None:
            groups.setdefault(_signature(parts, found.model_shape(key)), []).append(parts)
    changes: Counter[tuple[tuple[str, ...], tuple[str, ...], bool]] = Counter()
    for key in found.unexpected:
        parts = _segments(key)
        if parts is None:
            continue
        partner = _partner(
            parts, groups.get(_signature(parts, shape_of(found.state_dict.get(key))), [])
        )
        if partner is not None:
            changes[_change(parts, partner)] += 1
    for (old, new, is_first), count in changes.most_common(4):
        rule = _rule_of_change(old, new, is_first)
        if count > 1 and rule is not None and _mends(found, {rule.old: rule.new}):
            return [rule]
    return []


def _signature(parts: list[str], shape: tuple[int, ...] | None) -> object:
    return parts[-1], tuple(part for part in parts if part.isdecimal()), shape


def _partner(parts: list[str], candidates: list[list[str]]) -> list[str] | None:
    """The one that has the most in common with a key; None where two have."""
    best, most, is_alone = None, -1, False
    for other in candidates[: _MOST_ALIKE + 1]:
        count = sum(_common(parts, other))
        if count >= most:
            best, most, is_alone = other, count, count > most
    return best if is_alone and len(candidates) <= _MOST_ALIKE else None


def _change(parts: list[str], other: list[str]) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    first, last = _common(parts, other)
    if first and len(parts) == first + last:  # something is added: say behind what
        first -= 1
    old, new = parts[first : len(parts) - last], other[first : len(other) - last]
    if [p for p in old if p.isdecimal()] == [p for p in new if p.isdecimal()]:
        old, new = (["*" if p.isdecimal() else p for p in side] for side in (old, new))
    return tuple(old), tuple(new), first == 0


def _rule_of_change(old: tuple[str, ...], new: tuple[str, ...], is_first: bool) -> _Rule | None:
    if not old:
        return None
    before, after = ".".join(old), ".".join(new)
    reason = f"renamed modules: {before!r} is {after!r} now"
    if not new:
        reason = f"the keys have {before!r} in them, which the model has not"
    if is_first and "*" not in old:
        return _Rule(f"{before}.", f"{after}." if new else "", reason)
    begin, start = ("^", "") if is_first else (r"\.", ".")
    pattern = r"\.".join(r"(\d+)" if part == "*" else re.escape(part) for part in old)
    numbers = iter(range(1, 1 + len(new)))
    target = [rf"\{next(numbers)}" if part == "*" else part.replace("\\", r"\\") for part in new]
    return _Rule(
        re.compile(rf"{begin}{pattern}\."), start + "".join(f"{part}." for part in target), reason
    )


# -- entries ---------------------------------------------------------------------------------------


def _entries(found: Mismatch) -> list[_Rule]:
    """Parameters of one module under other names, such as gamma and beta for weight and bias."""
    known = [
        _rule_of_entry(old, new)
        for old, new in _SYNONYMS.items()
        if any(key.endswith(old) for key in found.unexpected)
    ]
    rules = [rule for rule in known if _mends(found, {rule.old: rule.new})]
    if rules:
        return [rule._replace(is_known=True) for rule in rules]
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
            own = same[0].rpartition(".")[2]
            # A part of what an entry is computed from is none.
            names[name, own] += not (
                name.startswith((f"{own}_", "original")) or own.startswith((f"{name}_", "original"))
            )
    only_pair = len(found.missing) == len(found.unexpected) == 1
    (old, new), count = names.most_common(1)[0] if names else (("", ""), 0)
    return [_rule_of_entry(old, new)] if count > 1 or (count and only_pair) else []


def _rule_of_entry(old: str, new: str) -> _Rule:
    pattern = re.compile(rf"\b{re.escape(old)}$")
    return _Rule(
        pattern, new.replace("\\", r"\\"), f"entries called {old!r} are called {new!r} now"
    )


# -- numbers ---------------------------------------------------------------------------------------


def _shifts(found: Mismatch) -> list[_Rule]:
    """Layers that have other numbers; those of blocks that differ in their own numbers alone are
    renamed by one rule.
    """
    alike: dict[object, list[Shift]] = {}
    for shift in find_shifts(given_shapes(found), found.own):
        pairs = None if shift.pairs is None else tuple(sorted(shift.pairs.items()))
        alike.setdefault((_NUMBER.sub("*", shift.begin), shift.end, pairs), []).append(shift)
    rules: list[_Rule] = []
    for shifts in alike.values():
        reason = str(shifts[0])
        if len(shifts) > 1:
            reason += f", and so in {len(shifts)} places"
        new = [
            _Rule(*(_of_all(old, by) if len(shifts) > 1 else (old, by)), reason, is_known=True)
            for old, by in shifts[0].rules().items()
        ]
        if len(rules) + len(new) <= _MOST_SHIFTED:
            rules += new
    return rules


def _of_all(old: str | re.Pattern[str], new: str) -> tuple[re.Pattern[str], str]:
    """A rule for one block as one for all blocks, whatever their numbers are."""
    text = old if isinstance(old, str) else old.pattern
    pattern = text if text.startswith("^") else f"^{re.escape(text)}"
    parts = _NUMBER.split(pattern)
    *others, _ = _NUMBER.finditer(new)
    target, at = "", 0
    for i, match in enumerate(others, 1):
        target += f"{new[at : match.start()]}\\g<{i}>"
        at = match.end()
    last = list(_NUMBER.finditer(pattern))[-1]
    pattern = "([0-9]+)".join(parts[:-1]) + last[0] + parts[-1]
    return re.compile(pattern), target + new[at:]


# -- forms of norms --------------------------------------------------------------------------------


def _forms(found: Mismatch) -> list[_Rule]:
    """Weight norm or spectral norm, which has other keys as a hook and as a parametrization."""
    return [_Rule(*rule, is_known=True) for rule in form_rules(found)]


def _separators(found: Mismatch) -> list[_Rule]:
    return [_Rule(*rule, is_known=True) for rule in separator_rules(found)]


_Finder: TypeAlias = "Callable[[Mismatch], list[_Rule]]"
_OF_ALL_KEYS: tuple[_Finder, ...] = (_prefixes, _forms, _separators, _shifts)
_FINDERS: tuple[_Finder, ...] = (*_OF_ALL_KEYS, _modules, _entries, _parts)


# -- for those who ask for prefixes alone ----------------------------------------------------------


def likely_rules(found: Mismatch) -> Found:
    """Rules of prefixes alone, by which most of the unexpected keys become missing ones; none
    where none is sure.
    """
    result = find_rules(found, (_prefixes, _shifts, _modules))
    if all(type(old) is str for old in result.rules):
        return result
    return result._replace(rules={}, reasons=[], rest=found)


def explain_names(found: Mismatch) -> str | None:
    """Why the names of an optimizer's parameters do not match, and what to try; None where nothing
    is sure.
    """
    changed = find_rules(found)
    if not changed.rules or not changed.is_sure:
        return None
    call = f"rename={shown_rules(changed.rules)}"
    more = "" if changed.rest.is_empty else ", partial=True"
    return f"Likely cause: {'; '.join(changed.reasons)}. Try: {call}{more}"
