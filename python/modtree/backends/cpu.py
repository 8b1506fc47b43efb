# SPDX-License-Identifier: BSD-3-Clause
"""What the processor can do."""

from __future__ import annotations

__all__ = ["get_cpu_capability"]


def get_cpu_capability() -> str:
    """ "DEFAULT": kernels are not chosen by the processor."""
    return "DEFAULT"
