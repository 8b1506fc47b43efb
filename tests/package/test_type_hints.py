# SPDX-License-Identifier: BSD-3-Clause
"""typing.get_type_hints() finds what the annotations of operations name."""

from __future__ import annotations

import typing
from types import FunctionType

import pytest

import modtree as mt
from modtree import _C, linalg, nn


@pytest.mark.parametrize("module", [mt, nn.functional, linalg, mt.Tensor], ids=lambda m: m.__name__)
def test_annotations_of_functions_can_be_evaluated(module):
    functions = {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, FunctionType | _C.Overridable)
    }
    assert len(functions) > 10
    hints = {name: typing.get_type_hints(function) for name, function in functions.items()}
    assert mt.Tensor in {hint.get("return") for hint in hints.values()}


def test_types_of_functions_that_load_their_part_when_called():
    returned = [typing.get_type_hints(f)["return"] for f in (mt.check, mt.compare, mt.summary)]
    assert [cls.__name__ for cls in returned] == ["Findings", "Diff", "Summary"]
    assert type(mt.check(nn.Linear(2, 2))) is returned[0]


def test_types_of_an_operation():
    hints = typing.get_type_hints(mt.add)
    assert hints["input"] is mt.Tensor and set(typing.get_args(hints["other"])) > {mt.Tensor, float}
