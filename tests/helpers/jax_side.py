# SPDX-License-Identifier: BSD-3-Clause
"""Which tests of the ``impl`` fixture run with jax arrays too, and why others of their files do
not.
"""

from __future__ import annotations

from pathlib import Path

import pytest

FILES: dict[str, dict[str, str]] = {
    p.stem: {} for p in Path(__file__).parents[1].glob("module/test_*.py")
}


def choose(items: list[pytest.Item]) -> list[pytest.Item]:
    """Takes the tests that do not have a side with jax out of the list, and marks those to skip."""
    kept, left_out = [], []
    for item in items:
        if "modtree-jax" not in item.keywords:
            kept.append(item)
            continue
        reasons = FILES.get(item.path.stem)
        (left_out if reasons is None else kept).append(item)
        reason = (reasons or {}).get(getattr(item, "originalname", item.name))
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))
    items[:] = kept
    return left_out
