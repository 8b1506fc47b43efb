# SPDX-License-Identifier: BSD-3-Clause
"""A plugin of pytest: tests of modtree with torch leaves run on ``torch.nn``, whose Module is the
native class.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import modtree.dropin  # noqa: F401  # before torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers import implementations  # noqa: E402

_implementation = implementations.implementation


def implementation(kind: str) -> SimpleNamespace:
    if kind != "modtree-torch":
        return _implementation(kind)
    found = _implementation("torch")
    found.name, found.is_torch = kind, False
    found.module = importlib.import_module("torch.nn.modules.module")
    return found


implementations.implementation = implementation
