# SPDX-License-Identifier: BSD-3-Clause
"""Both libraries check arguments here: torch's compiler switches torch's checks off for good."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def torch_checks_arguments():
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.distributions.Distribution.set_default_validate_args(True)
