# SPDX-License-Identifier: BSD-3-Clause
"""What registering a hook returns, under torch's path."""

from __future__ import annotations

from modtree._module.hooks import RemovableHandle

__all__ = ["RemovableHandle"]
