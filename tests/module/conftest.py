# SPDX-License-Identifier: BSD-3-Clause
"""What tests of modules need, whatever ran in the process before."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True, scope="module")
def classes_that_jax_does_not_keep():
    """modtree.jax registers each new class of modules with jax, which keeps it for good."""
    if "modtree.jax" not in sys.modules:
        yield
        return
    from modtree import nn

    register = vars(nn.Module)["__init_subclass__"]
    del nn.Module.__init_subclass__
    yield
    nn.Module.__init_subclass__ = register
