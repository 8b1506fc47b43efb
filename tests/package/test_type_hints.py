# SPDX-License-Identifier: BSD-3-Clause
"""typing.get_type_hints() finds what the annotations of operations name."""

from __future__ import annotations

import typing
from types import FunctionType

import pytest

import modtree as mt
from modtree import _C, linalg, nn

#: These load what they return when they are called.
LOADED_LATER = {"check", "compare", "summary"}


@pytest.mark.parametrize("module", [mt, nn.functional, linalg, mt.Tensor], ids=lambda m: m.__name__)
def test_annotations_of_functions_can_be_evaluated(module):
    functions = {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, FunctionType | _C.Overridable) and name not in LOADED_LATER
    }
    assert len(functions) > 20
    hints = {name: typing.get_type_hints(function) for name, function in functions.items()}
    assert mt.Tensor in {hint.get("return") for hint in hints.values()}


def test_types_of_an_operation():
    hints = typing.get_type_hints(mt.add)
    assert hints["input"] is mt.Tensor and set(typing.get_args(hints["other"])) > {mt.Tensor, float}
