# SPDX-License-Identifier: BSD-3-Clause
"""``python -m bench.bench_jax``: jitted steps with modules, beside equinox, flax NNX and bare lists
of arrays. Needs jax, optax, equinox and flax; absent libraries are left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
from typing import Any

from .common import ROOT, machine

#: The most that modtree may take at 200 layers, as a multiple of bare lists.
TARGETS = {"forward": 1.3, "train": 1.5, "buffers": 1.6}
#: The most seconds of a split and merge at 200 layers.
SPLIT_AND_MERGE = 1e-4

PACKAGES = {"modtree": "modtree", "equinox": "equinox", "flax.nnx": "flax"}


def run(side: str, layers: int, seconds: float, only: list[str] | None) -> dict[str, Any]:
    """What a process of its own measures."""
    code = (
        "import json; from bench.jax_nets import measured; "
        f"print(json.dumps(measured({side!r}, {layers}, {seconds}, {only!r})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def least(found: list[dict[str, Any]]) -> dict[str, list[float]]:
    """The least of several processes."""
    return {
        name: [min(values) for values in zip(*(one[name] for one in found), strict=True)]
        for name in found[0]
    }


def row(name: str, layers: int, sides: dict[str, dict[str, list[float]]]) -> str:
    """A line of the table."""
    floors = [found[name][1] for found in sides.values() if len(found[name]) > 1]
    cells = [f"{1e3 * min(floors):.3f}" if floors else ""]
    for found in sides.values():
        values = found[name]
        more = f" ({values[0] / values[1]:.2f})" if len(values) > 1 else ""
        cells.append(f"{1e3 * values[0]:.3f}{more}")
    return f"| {name}, {layers} layers | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, nargs="*", default=[10, 200, 2000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each step in a process")
    parser.add_argument("--steps", nargs="*", help="forward, train, buffers, 'split and merge'")
    parser.add_argument("--only", nargs="*", help="libraries")
    given = parser.parse_args()
    names = [
        side
        for side, package in PACKAGES.items()
        if importlib.util.find_spec(package) and (not given.only or side in given.only)
    ]
    print(machine())
    print(
        f"\nms; in brackets the multiple of bare lists in the same process\n\n"
        f"| step | bare lists | {' | '.join(names)} |\n|---|{'---|' * (len(names) + 1)}"
    )
    missed = []
    for layers in given.layers:
        found: dict[str, list[dict[str, Any]]] = {side: [] for side in names}
        for _ in range(given.rounds):
            for side in names:
                found[side].append(run(side, layers, given.seconds, given.steps))
        sides = {side: least(parts) for side, parts in found.items()}
        for name in next(iter(sides.values())):
            print(row(name, layers, sides), flush=True)
        if layers == 200 and "modtree" in sides:
            own = sides["modtree"]
            missed += [
                f"{name}: {own[name][0] / own[name][1]:.2f}, at most {most}"
                for name, most in TARGETS.items()
                if name in own and own[name][0] > most * own[name][1]
            ]
            merged = own.get("split and merge", [0.0])[0]
            if merged > SPLIT_AND_MERGE:
                missed.append(f"split and merge: {1e3 * merged:.3f} ms, at most 0.1")
    if missed:
        sys.exit("missed: " + "; ".join(missed))


if __name__ == "__main__":
    main()
