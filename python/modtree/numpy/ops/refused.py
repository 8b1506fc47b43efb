# SPDX-License-Identifier: BSD-3-Clause
"""Which operations are not defined for which dtypes: those that torch refuses on the CPU. NumPy
would answer some of them, by an order of complex numbers or the integers that bools stand for.

The dtype is the one in which the operands meet, before integers become floats; of functions that
are made of several operations, the dtype of the first argument.
"""

from __future__ import annotations

import numpy as np

#: Not implemented: NotImplementedError.
_MISSING = {
    "bool": (
        "abs absolute addcmul addcmul_ addmm baddbmm_ bitwise_left_shift bitwise_left_shift_ "
        "bitwise_right_shift ceil clamp dot floor floor_divide floor_divide_ fmod fmod_ lerp "
        "logaddexp logcumsumexp matmul mm mv remainder round round_ threshold trace trunc "
        "trunc_divide vdot"
    ),
    "integers": "lerp logaddexp logcumsumexp",
    "floats": (
        "bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor"
    ),
    "complex": (
        "amax amin atan2 bitwise_and bitwise_left_shift bitwise_not bitwise_or "
        "bitwise_right_shift bitwise_xor ceil clamp clamp_ clamp_max clamp_max_ clamp_min "
        "clamp_min_ clip clip_ digamma erf erfinv floor floor_divide fmod ge greater "
        "greater_equal gt le less less_equal lgamma logit logit_ lt max min relu remainder "
        "round round_ sign threshold trunc"
    ),
}

#: Without meaning: RuntimeError.
_REFUSED = {
    "bool": ("argmax argmin complex neg negative polar positive relu topk"),
    "integers": "complex polar",
    "complex": ("abs_ absolute_ argmax argmin argsort complex maximum minimum polar sort topk"),
}

#: Operations whose operands are all tensors: a number among them is a TypeError.
_TENSORS_ONLY = frozenset("atan2 dot logaddexp matmul maximum minimum vdot".split())
#: Functions of one operation whose operands meet in one dtype, which the operation limits.
MEETING = frozenset("addcmul clamp clamp_max clamp_min clip lerp".split())
#: Operations whose numbers must fit the dtype in which the operands meet; others cast them with the
#: tensors, so that integers wrap around and floats become infinite.
_FITTING = frozenset("addcdiv addcmul clamp lerp where".split())
#: Others: an exponent must fit integers and float16; numbers stay in float32 beside float16.
_OWN_FITTING = {"pow": 2, "mul": 3, "true_divide": 3}

_CLASSES = {
    "bool": "?",
    "integers": "bBhHiIlLqQ",
    "floats": "efd",
    "complex": "FD",
}


def _mask(table: dict[str, str], name: str) -> int:
    """The numbers of the dtypes for which the table has the operation, as bits."""
    chars = "".join(_CLASSES[kind] for kind, names in table.items() if name in names.split())
    return sum({1 << np.dtype(char).num for char in chars})


def limits_of(name: str) -> tuple[int, int, bool, int]:
    """What ``_limit()`` of an operation, or of a function that is public, gets."""
    return (
        _mask(_MISSING, name),
        _mask(_REFUSED, name),
        name in _TENSORS_ONLY,
        _OWN_FITTING.get(name, int(name in _FITTING)),
    )
