# SPDX-License-Identifier: BSD-3-Clause
"""``modtree bench`` times the operations on module trees on this machine."""

from __future__ import annotations

import argparse
import gc
import importlib
import importlib.util
import json
import platform
import time

from modtree._C import __version__
from modtree.cli.ending import SAME
from modtree.cli.options import add_json, count, describe, tolerance
from modtree.cli.timed_operations import Operation, count_modules, operations

__all__ = ["execute", "fill"]

_DESCRIPTION = """\
Times the operations on a tree of layers with 16 small blocks each, with torch beside it where torch
is installed. The parameters have four elements each, so what is timed is the work on the tree, not
on numbers. Sides take turns, and the quickest run of each counts.
"""
_EXAMPLES = """\
    modtree bench
    modtree bench --layers 200 --seconds 1
    modtree bench --no-torch --json
"""
_STATUS = "0: measured"


def fill(parser: argparse.ArgumentParser) -> None:
    """Gives the parser of this command its arguments and its help."""
    describe(parser, _DESCRIPTION, _EXAMPLES, _STATUS)
    parser.add_argument(
        "--layers", type=count, default=24, metavar="N", help="layers of the tree; 24"
    )
    parser.add_argument(
        "--seconds", type=tolerance, default=0.3, metavar="S", help="how long each is measured; 0.3"
    )
    parser.add_argument("--no-torch", action="store_true", help="do not compare with torch")
    add_json(parser)


def _measured(sides: list[Operation], seconds: float) -> list[float]:
    """ns per item of the quickest run of each side."""
    best = [float("inf")] * len(sides)
    end = time.perf_counter() + seconds * len(sides)
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()  # as timeit does: a collection would count for whom it happens to
    try:
        while True:
            for at, side in enumerate(sides):
                start = time.perf_counter_ns()
                result = side.run()
                best[at] = min(best[at], (time.perf_counter_ns() - start) / side.items)
                del result
            if time.perf_counter() >= end:
                return best
    finally:
        if was_enabled:
            gc.enable()


def execute(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Measures, and returns the exit status."""
    names = ["modtree"]
    if not options.no_torch and importlib.util.find_spec("torch") is not None:
        names.append("torch")
    libs = [importlib.import_module(name) for name in names]
    # All is imported before the first line: CPython ends otherwise where an interrupt comes while a
    # class is made by exec(), as dataclasses are.
    _ = [lib.Tensor for lib in libs]
    versions = {"python": platform.python_version(), "modtree": __version__}
    versions |= {name: lib.__version__ for name, lib in zip(names[1:], libs[1:], strict=True)}
    rows = []
    if not options.json:
        _print_title(versions, options.layers)
    for sides in zip(*(operations(lib, options.layers) for lib in libs), strict=True):
        times = _measured(list(sides), options.seconds)
        rows.append((sides[0].name, sides[0].per, dict(zip(names, times, strict=True))))
        if not options.json:
            numbers = "".join(f"{ns:>11,.1f}" for ns in times)
            ratio = f"{times[1] / times[0]:>9.1f}" if len(times) > 1 else ""
            print(f"{sides[0].name:<25}{sides[0].per:<7}{numbers}{ratio}", flush=True)
    if options.json:
        found = [{"operation": name, "per": per, "ns": ns} for name, per, ns in rows]
        answer = {
            "versions": versions,
            "modules": count_modules(options.layers),
            "operations": found,
        }
        print(json.dumps(answer, indent=1))
    return SAME


def _print_title(versions: dict[str, str], layers: int) -> None:
    print(", ".join(f"{name} {version}" for name, version in versions.items()))
    print(f"a tree of {count_modules(layers):,} modules; nanoseconds per item\n")
    torch = f"{'torch':>11}{'ratio':>9}" if "torch" in versions else ""
    print(f"{'operation':<25}{'per':<7}{'modtree':>11}{torch}", flush=True)
