# SPDX-License-Identifier: BSD-3-Clause
"""How large the rooms may be. Ceilings only fall: who needs more says in the commit that raises one
what the lines buy.
"""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "modtree"

pytestmark = pytest.mark.skipif(not (ROOT / "csrc").exists(), reason="needs the sources")

#: Folders of the package -> the lines that they may have together.
CEILINGS = {
    "core": 6_210,
    "torch": 2_770,
    "numpy nn optim autograd func utils distributions": 42_360,
    "jax jax_arrays": 6_020,
    "files": 15_570,
    "inspection": 8_230,
    "editing": 3_510,
    "cli": 2_090,
}
WHOLE = {"python/modtree": 87_990, "csrc": 50_840, "bench": 3_690, "docs": 7_250, "tests": 133_800}
#: Files and folders at the top of the package, without what a build writes.
ENTRIES = 23


#: Made by builds: stubs have another suffix, and these are pages.
MADE = {"api", "family_functions.md", "missing.md"}


def written(folder: str) -> list[Path]:
    """The sources and texts in a folder that somebody has written."""
    found = [ROOT / "csrc" / "bind" / "extension.pyi"] if folder == "csrc" else []
    for path in (ROOT / folder).rglob("*") if (ROOT / folder).is_dir() else [ROOT / folder]:
        parts = path.relative_to(ROOT).parts
        if path.suffix in (".py", ".cpp", ".h", ".md", ".txt") and not MADE.intersection(parts):
            found.append(path)
    return found


def lines(folder: str) -> int:
    return sum(path.read_bytes().count(b"\n") for path in written(folder))


@pytest.mark.parametrize("rooms", CEILINGS)
def test_a_room_stays_below_its_ceiling(rooms):
    assert sum(lines(f"python/modtree/{room}") for room in rooms.split()) <= CEILINGS[rooms]


def test_what_no_room_has_stays_below_its_ceiling():
    in_rooms = sum(lines(f"python/modtree/{room}") for rooms in CEILINGS for room in rooms.split())
    assert lines("python/modtree") - in_rooms <= 1_350


@pytest.mark.parametrize("folder", WHOLE)
def test_a_folder_stays_below_its_ceiling(folder):
    assert lines(folder) <= WHOLE[folder]


def test_the_package_has_few_entries():
    entries = {path.relative_to(PACKAGE).parts[0] for path in written("python/modtree")}
    assert len(entries) <= ENTRIES, sorted(entries)
