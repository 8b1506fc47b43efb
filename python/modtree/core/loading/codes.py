# SPDX-License-Identifier: BSD-3-Clause
"""Which entries of a state dict are codes of quantized numbers, and which belong to them: scales,
zero points and tables. Neither means anything without the other, and no cast keeps them right.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

_NARROW = re.compile(r"u?int[1-8]|float[468]_(?!e8m0).*")
_SCALES = "float8_e8m0fnu"
_PACKED = ("int16", "uint16", "int32", "uint32")
#: Names of codes alone.
_CODES = re.compile(r"(?:^|_)(?:qweight|qdata|int_repr|int_data|packed|codes|W_q)$|^_data$")
#: Names of what belongs to codes.
_BESIDE = re.compile(
    r"(?:^|_)(?<!logit_)(?<!layer_)(?:q?scales?|q?zeros?|zero_?points?|absmax|amax|q(?:uant_)?map|"
    r"SCB|codebooks?|lut)\d*(?:_inv|_?\d+|_(?:weight|input|output|float))*$"
)


class Codes(NamedTuple):
    """What is quantized in a state dict.

    Attributes:
        beside: For each key of codes, that of an entry that belongs to them; "" where none shows.
        belonging: The keys of all entries that belong to codes.
    """

    beside: dict[str, str]
    belonging: set[str]


def find_codes(dtypes: Mapping[str, str]) -> Codes:
    """The codes in a state dict.

    Args:
        dtypes: The name of the dtype of each tensor.
    """
    narrow = [key for key, dtype in dtypes.items() if _may_be_codes(key, dtype)]
    if not narrow and _SCALES not in dtypes.values():
        return Codes({}, set())
    extra = [key for key in dtypes if _BESIDE.search(key.rpartition(".")[2])]
    holders: dict[str, str] = {}
    for key in extra:
        holders.setdefault(key.rpartition(".")[0], key)
    beside = {}
    for key in narrow:
        module, _, name = key.rpartition(".")
        # Its siblings, or what is below it, as `weight.absmax` is.
        found = holders.get(module, holders.get(key, ""))
        if key not in extra and (found or _CODES.search(name)):
            beside[key] = found
    if beside:  # other weights of such a file have their scales elsewhere, or are scales
        floats = [key for key in narrow if dtypes[key].startswith("float")]
        beside |= {key: "" for key in floats if key not in beside}
    above = {path for key in beside for path in (key, *_paths_above(key))}
    belonging = {key for key in extra if key.rpartition(".")[0] in above}
    return Codes(beside, belonging | {key for key, dtype in dtypes.items() if dtype == _SCALES})


def _may_be_codes(key: str, dtype: str) -> bool:
    if dtype in _PACKED:
        return _CODES.search(key.rpartition(".")[2]) is not None
    return _NARROW.fullmatch(dtype) is not None


def _paths_above(key: str) -> list[str]:
    """The modules that hold an entry, up to four levels: the scale of a module's outputs is not
    where its packed weights are.
    """
    parts = key.split(".")
    return [".".join(parts[:-count]) for count in range(1, min(len(parts), 5))]
