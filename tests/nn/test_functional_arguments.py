# SPDX-License-Identifier: BSD-3-Clause
"""The functions of modtree.nn.functional take torch's arguments, with torch's defaults."""

from __future__ import annotations

import inspect

import pytest

from modtree.nn import functional as F

torch = pytest.importorskip("torch")

#: Those that are written in Python there: the others have no signature to look at.
SEEN = [name for name in F.__all__ if inspect.isfunction(getattr(torch.nn.functional, name, None))]
#: Dispatchers of pooling, which take anything.
SEEN = [
    n for n in SEEN if "args" not in inspect.signature(getattr(torch.nn.functional, n)).parameters
]


def arguments(function):
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


def test_all_are_torchs():
    assert [name for name in F.__all__ if not hasattr(torch.nn.functional, name)] == []
    assert len(set(F.__all__)) == len(F.__all__)
    assert all(hasattr(F, name) for name in F.__all__)


@pytest.mark.parametrize("name", SEEN)
def test_arguments(name):
    assert arguments(getattr(F, name)) == arguments(getattr(torch.nn.functional, name))
