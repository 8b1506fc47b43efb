# SPDX-License-Identifier: BSD-3-Clause
"""Native code takes no shortcut past a protocol in which a class takes part."""

from __future__ import annotations

import pytest
from helpers import protocol_classes
from helpers.implementations import implementation, needs_torch


@pytest.mark.parametrize("where", ["root", "child", "part of a list"])
@pytest.mark.parametrize("name", protocol_classes.NAMES)
def test_a_deepcopy_is_that_of_the_general_protocol(impl, name, where):
    """Which every memo that is no dict leads to."""
    ways = ("deepcopy", "deepcopy with another memo")
    native, general = [
        protocol_classes.outcome(impl.nn, impl.lib, name, where, way) for way in ways
    ]
    assert native == general


@needs_torch
@pytest.mark.parametrize("name", protocol_classes.NAMES)
def test_classes_that_take_part_in_one_protocol(ours, name):
    """Copies, pickles and walks of their objects are torch's."""
    torch = implementation("torch")
    expected = protocol_classes.outcomes(torch.nn, torch.lib, name)
    assert protocol_classes.outcomes(ours.nn, ours.lib, name) == expected
