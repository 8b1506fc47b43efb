# SPDX-License-Identifier: BSD-3-Clause
"""Random structures under ``modtree.jax`` (``tests/fuzz/structures.py``): some here, more with
``tools/fuzz_differential --structures``.
"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("jax")


@pytest.fixture(scope="module")
def structures() -> Any:
    from fuzz import structures

    return structures


@pytest.mark.parametrize("seed", range(12))
def test_structures_are_as_described(structures: Any, seed: int) -> None:
    structures.Round(str(seed)).run(8)


def test_a_container_that_is_shared_is_found(structures: Any, monkeypatch: Any) -> None:
    """A split whose made modules share lists with their origin."""
    tree_map = structures.jax.tree.map

    def shares(function: Any, tree: Any, *rest: Any, **options: Any) -> Any:
        made = tree_map(function, tree, *rest, **options)
        for name, value in structures.plain(tree).items():
            setattr(made, name, value)
        return made

    monkeypatch.setattr(structures.jax.tree, "map", shares)
    with pytest.raises(AssertionError):
        for seed in range(20):
            found = structures.Round(str(seed))
            found.root.log = [1]
            found.check_map()
