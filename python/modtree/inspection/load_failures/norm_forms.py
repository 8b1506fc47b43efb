# SPDX-License-Identifier: BSD-3-Clause
"""Parametrized entries of which one side has another form: weight norm and spectral norm, as hooks
and as parametrizations, and entries that are not parametrized.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from modtree.core.loading.mismatch import Mismatch, shape_of

_FEW = 4  # entries that a call has in it

_WEIGHT_NORM = "nn.utils.parametrizations.weight_norm"
_OLDER_WEIGHT_NORM = "nn.utils.weight_norm"
_SPECTRAL_NORM = "nn.utils.parametrizations.spectral_norm"
_OLDER_SPECTRAL_NORM = "nn.utils.spectral_norm"

#: How keys of an entry end in each form, after the path of the module and the name of the entry.
_ENDS = {
    _WEIGHT_NORM: (r"parametrizations.\1.original0", r"parametrizations.\1.original1"),
    _OLDER_WEIGHT_NORM: (r"\1_g", r"\1_v"),
    _SPECTRAL_NORM: (
        r"parametrizations.\1.original",
        r"parametrizations.\1.0._u",
        r"parametrizations.\1.0._v",
    ),
    _OLDER_SPECTRAL_NORM: (r"\1_orig", r"\1_u", r"\1_v"),
}
#: Forms of one norm.
_OTHER_FORM = {
    _WEIGHT_NORM: _OLDER_WEIGHT_NORM,
    _OLDER_WEIGHT_NORM: _WEIGHT_NORM,
    _SPECTRAL_NORM: _OLDER_SPECTRAL_NORM,
    _OLDER_SPECTRAL_NORM: _SPECTRAL_NORM,
}


def norms(found: Mismatch) -> Iterator[str]:
    """What entries have, or had, a form of their own; at most one sentence for each form."""
    given = _entries_by_form(found.state_dict)
    own = _entries_by_form(found.own)
    missing, unexpected = set(found.missing), set(found.unexpected)
    for form, entries in given.items():
        absent = [e for e in entries if not unexpected.isdisjoint(_keys(form, e))]
        plain = [e for e in absent if e in found.own and e in missing]
        if plain:
            yield _saved_with(found, form, plain)
    for form, entries in own.items():
        lacking = [e for e in entries if e in unexpected and not missing.isdisjoint(_keys(form, e))]
        if lacking:
            yield _in_model_alone(form, lacking[0])


def _keys(form: str | None, entry: str) -> list[str]:
    """The keys of an entry in a form; of one that no form is known of, the first of them."""
    path, _, name = entry.rpartition(".")
    begin = f"{path}." if path else ""
    if form is None:
        return [f"{begin}parametrizations.{name}.original{end}" for end in ("", "0")]
    return [begin + end.replace(r"\1", name) for end in _ENDS[form]]


def _entries_by_form(keys: Mapping[str, Any]) -> dict[str | None, dict[str, None]]:
    """The entries of which keys have the parts, by form; under None those with another
    parametrization.
    """
    found: dict[str | None, dict[str, None]] = {}
    for key in keys:
        entry = _entry_of(key) if type(key) is str else None
        if entry is None:
            continue
        forms = (form for form in _ENDS if all(k in keys for k in _keys(form, entry)))
        form = next(forms, None)
        if form is not None or ".original" in key[-10:]:
            found.setdefault(form, {})[entry] = None
    return found


def _entry_of(key: str) -> str | None:
    """The entry of which a key has the first part, or None."""
    if key.endswith(("_g", "_orig")):
        return key.rpartition("_")[0]
    path, _, name = key.rpartition(".")
    module, _, entry = path.rpartition(".")
    if name not in ("original", "original0") or not entry:
        return None
    if module.rpartition(".")[2] != "parametrizations":
        return None
    return module[: -len("parametrizations")] + entry


def _saved_with(found: Mismatch, form: str | None, entries: list[str]) -> str:
    calls = {entry: _call(found, form, entry) for entry in entries}
    how = "parametrize the model in the same way before loading"
    if form is not None and None not in calls.values():
        shown = [f"{form}({given})" for given in itertools.islice(calls.values(), _FEW)]
        more = f", and so on for {len(calls)} entries" if len(calls) > _FEW else ""
        how = f"{'; '.join(shown)}{more}, before loading"
    if form is None or form in (_WEIGHT_NORM, _SPECTRAL_NORM):
        return (
            f"{entries[0]!r} was parametrized when it was saved, and is not in the model. Try: "
            f"{how}"
        )
    return f"{entries[0]!r} was saved under {form.rpartition('.')[2]}. Try: {how}"


def _call(found: Mismatch, form: str | None, entry: str) -> str | None:
    """The arguments of the function for an entry; None where shapes say that it was another."""
    shape = found.own.get(entry)
    if form is None or not shape:
        return None
    parts = [shape_of(found.state_dict.get(key)) for key in _keys(form, entry)]
    if None in parts:
        return None
    if form in (_WEIGHT_NORM, _OLDER_WEIGHT_NORM):
        lengths, direction = parts
        fitting = [
            dim
            for dim, size in enumerate(shape)
            if lengths == tuple(size if i == dim else 1 for i in range(len(shape)))
        ]
        is_first = True
    else:
        direction, u, v = parts
        fitting = [
            dim
            for dim, size in enumerate(shape)
            if u == (size,) and v == (math.prod(shape) // max(size, 1),)
        ]
        # The class of the layer says which dimension it is where no other is given.
        is_first = len(fitting) > 1
    if direction != shape or not fitting:
        return None
    path, _, name = entry.rpartition(".")
    module = f"model.get_submodule({path!r})" if path else "model"
    dim = f", dim={fitting[0]}" if fitting[0] or not is_first else ""
    return f"{module}{'' if name == 'weight' else f', {name!r}'}{'' if len(shape) < 2 else dim}"


def form_rules(found: Mismatch) -> list[tuple[re.Pattern[str], str, str]]:
    """The rules, with what they are about, by which entries that have a norm in one form get the
    keys of the form that the model has.
    """
    given, own = _entries_by_form(found.state_dict), _entries_by_form(found.own)
    missing = set(found.missing)
    for form, entries in given.items():
        if form is None:
            continue
        other = _OTHER_FORM[form]
        changed = [e for e in entries if e in own.get(other, ())]
        if any(missing.isdisjoint(_keys(other, e)) for e in changed) or not changed:
            continue
        names = "|".join(sorted({re.escape(entry.rpartition(".")[2]) for entry in changed}))
        reason = f"{changed[0]!r} was saved under {_shown(form)}, the model has {_shown(other)}"
        patterns = (re.escape(end).replace(re.escape(r"\1"), f"({names})") for end in _ENDS[form])
        return [
            (re.compile(rf"\b{pattern}$"), new, reason)
            for pattern, new in zip(patterns, _ENDS[other], strict=True)
        ]
    return []


def _shown(form: str) -> str:
    name = form.removeprefix("nn.utils.")
    return name if "." in name else f"the older {name}"


def _in_model_alone(form: str | None, entry: str) -> str:
    if form is None or form in (_WEIGHT_NORM, _SPECTRAL_NORM):
        return (
            f"{entry!r} is parametrized in the model, and was not when it was saved: load before "
            f"you parametrize"
        )
    short = form.rpartition(".")[2]
    return (
        f"{entry!r} has {short} in the model, and had not when it was saved: load before you "
        f"call {short}"
    )
