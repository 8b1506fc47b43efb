# SPDX-License-Identifier: BSD-3-Clause
"""Switches of libraries that are not used here: programs may set them, ``is_available()`` says
False.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

__all__ = ["cuda", "cudnn", "mps"]


class _Absent(SimpleNamespace):
    """Keeps what it is told and does nothing."""

    def is_available(self) -> bool:
        return False

    def is_built(self) -> bool:
        return False

    def version(self) -> Any:
        return None


cudnn = _Absent(enabled=False, benchmark=False, deterministic=False, allow_tf32=False)
mps = _Absent()
cuda = _Absent(matmul=SimpleNamespace(allow_tf32=False))
