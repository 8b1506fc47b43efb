# SPDX-License-Identifier: BSD-3-Clause
"""Facts for tests of torch programs on the native class."""

from __future__ import annotations

import os
import sys

import pytest

#: Set by test_under_dropin.py in the run in which ``torch.nn.Module`` is to be the native class.
EXPECTED = "MODTREE_TESTS_UNDER_DROPIN"


# The tests start processes in folders of their own.
if "PYTHONPATH" in os.environ:
    folders = os.environ["PYTHONPATH"].split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, folders))


@pytest.fixture(scope="session")
def under_dropin() -> bool:
    """Is ``torch.nn.Module`` the native class in this process?"""
    dropin = sys.modules.get("modtree.dropin")
    return dropin is not None and dropin.is_active()


@pytest.fixture(autouse=True)
def _runs_on_the_class_that_is_meant(under_dropin):
    assert under_dropin == (EXPECTED in os.environ)
