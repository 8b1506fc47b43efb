# SPDX-License-Identifier: BSD-3-Clause
"""The names under which editing is public."""

from __future__ import annotations

import inspect

import modtree as mt

NAMES = ("capture", "edit", "find", "find_parameters", "intervene", "param_groups")

#: Public names of modtree that torch has with another meaning.
OTHER_MEANING: set[str] = set()


def test_the_names_are_there_and_explained():
    for name in NAMES:
        value = getattr(mt, name)
        assert name in mt.__all__ and value.__module__.startswith("modtree.editing.")
        assert len(inspect.getdoc(value)) > 100


def test_no_name_is_one_of_torch_with_another_meaning(torch):
    ours = {
        name
        for name in mt.__all__
        if getattr(getattr(mt, name), "__module__", "").startswith(
            ("modtree.editing", "modtree.inspection", "modtree.checkpoints", "modtree.families")
        )
    }
    assert {*NAMES} <= ours
    assert {name for name in ours if name in dir(torch)} == OTHER_MEANING
