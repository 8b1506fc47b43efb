# SPDX-License-Identifier: BSD-3-Clause
"""Single keys that may be one another, where no rule says so."""

from __future__ import annotations

import difflib

from modtree.core.loading.mismatch import Mismatch, shape_of
from modtree.inspection.load_failures.certainty import doubt

__all__ = ["near_matches"]

_LONGEST_SEARCH = 400  # keys that one key is compared with, letter by letter
_LONGEST_READ = 300  # letters of a key that is compared letter by letter
_CLOSE = 0.75  # how alike two keys must read, from 0 to 1
_MOST_GUESSED = 2  # keys of one shape that are guessed by their places


def near_matches(found: Mismatch, most: int = 5) -> list[tuple[str, str]]:
    """Pairs of a missing key and the unexpected one that reads most like it. Where none does, and
    as many are missing of its shape as are not expected, the one at the same place among them. None
    where other pairs fit as well.
    """
    by_name: dict[str, list[str]] = {}
    unexpected = [key for key in found.unexpected if len(key) <= _LONGEST_READ]
    for key in unexpected:
        by_name.setdefault(key.rpartition(".")[2], []).append(key)
    by_shape = _by_shape(found)
    pairs = []
    for key in found.missing[:most]:
        if len(key) > _LONGEST_READ:
            continue
        candidates = by_name.get(key.rpartition(".")[2]) or unexpected
        close = difflib.get_close_matches(key, candidates[:_LONGEST_SEARCH], n=1, cutoff=_CLOSE)
        other = close[0] if close else by_shape.get(key)
        if other is not None and _may_be(found, key, other):
            pairs.append((key, other))
    names = {other: key for key, other in pairs}
    is_sure = len(names) == len(pairs) and doubt(found, lambda key: names.get(key, key)) is None
    return pairs if is_sure else []


def _may_be(found: Mismatch, key: str, other: str) -> bool:
    saved, own = shape_of(found.state_dict.get(other)), found.own.get(key)
    return saved is None or own is None or saved == own


def _by_shape(found: Mismatch) -> dict[str, str]:
    """Of missing keys, the unexpected one at the same place among those of the same shape."""
    sides: list[dict[object, list[str]]] = [{}, {}]
    for key in found.missing:
        sides[0].setdefault(found.model_shape(key), []).append(key)
    for key in found.unexpected:
        sides[1].setdefault(shape_of(found.state_dict.get(key)), []).append(key)
    missing, unexpected = sides
    return {
        key: other
        for shape, keys in missing.items()
        if shape is not None and len(unexpected.get(shape, ())) == len(keys) <= _MOST_GUESSED
        for key, other in zip(keys, unexpected[shape], strict=True)
        if len(other) <= _LONGEST_READ
    }
