# SPDX-License-Identifier: BSD-3-Clause
"""The types of tensors in GGUF files, by their numbers."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["PLAIN", "QUANTIZED", "PlainType", "QuantizedType"]


class PlainType(NamedTuple):
    """Numbers: torch's name of their dtype, and the bytes of each."""

    name: str
    itemsize: int


class QuantizedType(NamedTuple):
    """Blocks of numbers with a scale: how many a block has, and its bytes."""

    name: str
    block: int
    nbytes: int


PLAIN = {
    0: PlainType("float32", 4),
    1: PlainType("float16", 2),
    24: PlainType("int8", 1),
    25: PlainType("int16", 2),
    26: PlainType("int32", 4),
    27: PlainType("int64", 8),
    28: PlainType("float64", 8),
    30: PlainType("bfloat16", 2),
}
QUANTIZED = {
    number: QuantizedType(*facts)
    for number, facts in {
        2: ("Q4_0", 32, 18),
        3: ("Q4_1", 32, 20),
        6: ("Q5_0", 32, 22),
        7: ("Q5_1", 32, 24),
        8: ("Q8_0", 32, 34),
        9: ("Q8_1", 32, 40),
        10: ("Q2_K", 256, 84),
        11: ("Q3_K", 256, 110),
        12: ("Q4_K", 256, 144),
        13: ("Q5_K", 256, 176),
        14: ("Q6_K", 256, 210),
        15: ("Q8_K", 256, 292),
        16: ("IQ2_XXS", 256, 66),
        17: ("IQ2_XS", 256, 74),
        18: ("IQ3_XXS", 256, 98),
        19: ("IQ1_S", 256, 50),
        20: ("IQ4_NL", 32, 18),
        21: ("IQ3_S", 256, 110),
        22: ("IQ2_S", 256, 82),
        23: ("IQ4_XS", 256, 136),
        29: ("IQ1_M", 256, 56),
        34: ("TQ1_0", 256, 54),
        35: ("TQ2_0", 256, 66),
        39: ("MXFP4", 32, 17),
        40: ("NVFP4", 64, 36),
        41: ("Q1_0", 128, 18),
    }.items()
}
