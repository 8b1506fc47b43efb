# SPDX-License-Identifier: BSD-3-Clause
"""The libraries whose tensors a model may hold, by the names that torch has for everything."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["libraries"]


def libraries() -> dict[str, Any]:
    """By the name of their family: ``modtree`` and ``torch``, where they have made tensors yet."""
    homes = {"numpy": "modtree.numpy.tensor.tensor", "torch": "torch"}
    return {
        family: sys.modules[home.partition(".")[0]]
        for family, home in homes.items()
        if home in sys.modules
    }
