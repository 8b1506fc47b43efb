# SPDX-License-Identifier: BSD-3-Clause
"""``modtree bench`` times the operations on module trees on this machine."""

from __future__ import annotations

import argparse
import copy
import gc
import importlib
import importlib.util
import json
import platform
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from modtree._C import __version__
from modtree._cli.ending import SAME
from modtree._cli.options import add_json, describe, tolerance

__all__ = ["execute", "fill"]

_DESCRIPTION = """\
Times the operations on a tree of small blocks, with torch beside it where torch is installed. The
parameters have four elements each, so what is timed is the work on the tree, not on numbers. Sides
take turns, and the quickest run of each counts.
"""
_EXAMPLES = """\
    modtree bench
    modtree bench --blocks 5000 --seconds 1
    modtree bench --no-torch --json
"""
_STATUS = "0: measured"
_CALLS = 1000  # of what is too quick to be timed alone


def fill(parser: argparse.ArgumentParser) -> None:
    """Gives the parser of this command its arguments and its help."""
    describe(parser, _DESCRIPTION, _EXAMPLES, _STATUS)
    parser.add_argument(
        "--blocks", type=_count, default=1000, metavar="N", help="blocks of the tree; 1000"
    )
    parser.add_argument(
        "--seconds", type=tolerance, default=0.3, metavar="S", help="how long each is measured; 0.3"
    )
    parser.add_argument("--no-torch", action="store_true", help="do not compare with torch")
    add_json(parser)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1 on, got {text!r}")
    return int(text)


class _Operation(NamedTuple):
    """What is timed: ``run``, of which ``items`` come out."""

    name: str
    per: str
    items: int
    run: Callable[[], Any]


def _operations(lib: Any, blocks: int) -> Iterator[_Operation]:
    nn: Any = lib.nn
    base: Any = nn.Module

    class Block(base):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(lib.zeros(4))
            self.bias = nn.Parameter(lib.zeros(4))
            self.act = nn.Identity()

        def forward(self, x: Any) -> Any:
            return x

    def build() -> Any:
        return nn.ModuleList([Block() for _ in range(blocks)])

    tree, block, value = build(), Block(), nn.Parameter(lib.zeros(4))
    state = tree.state_dict()
    modules, entries = 2 * blocks + 1, 2 * blocks

    def read() -> None:
        for _ in range(_CALLS):
            block.weight  # noqa: B018

    def write() -> None:
        for _ in range(_CALLS):
            block.weight = value

    def call() -> None:
        for _ in range(_CALLS):
            block(None)

    yield _Operation("m.weight", "read", _CALLS, read)
    yield _Operation("m.weight = p", "write", _CALLS, write)
    yield _Operation("m(x), forward returns x", "call", _CALLS, call)
    yield _Operation("build the tree", "module", modules, build)
    yield _Operation("parameters()", "entry", entries, lambda: list(tree.parameters()))
    yield _Operation("named_parameters()", "entry", entries, lambda: list(tree.named_parameters()))
    yield _Operation("state_dict()", "entry", entries, tree.state_dict)
    yield _Operation("load_state_dict()", "entry", entries, lambda: tree.load_state_dict(state))
    yield _Operation("train()", "module", modules, tree.train)
    yield _Operation("zero_grad()", "entry", entries, tree.zero_grad)
    yield _Operation("copy.deepcopy()", "module", modules, lambda: copy.deepcopy(tree))


def _measured(sides: list[_Operation], seconds: float) -> list[float]:
    """ns per item of the quickest run of each side."""
    best = [float("inf")] * len(sides)
    end = time.perf_counter() + seconds * len(sides)
    gc.collect()
    while True:
        for at, side in enumerate(sides):
            start = time.perf_counter_ns()
            result = side.run()
            best[at] = min(best[at], (time.perf_counter_ns() - start) / side.items)
            del result
        if time.perf_counter() >= end:
            return best


def execute(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Measures, and returns the exit status."""
    names = ["modtree"]
    if not options.no_torch and importlib.util.find_spec("torch") is not None:
        names.append("torch")
    libs = [importlib.import_module(name) for name in names]
    versions = {"python": platform.python_version(), "modtree": __version__}
    versions |= {name: lib.__version__ for name, lib in zip(names[1:], libs[1:], strict=True)}
    rows = []
    if not options.json:
        _print_title(versions, options.blocks)
    for sides in zip(*(_operations(lib, options.blocks) for lib in libs), strict=True):
        times = _measured(list(sides), options.seconds)
        rows.append((sides[0].name, sides[0].per, dict(zip(names, times, strict=True))))
        if not options.json:
            numbers = "".join(f"{ns:>11,.1f}" for ns in times)
            ratio = f"{times[1] / times[0]:>9.1f}" if len(times) > 1 else ""
            print(f"{sides[0].name:<25}{sides[0].per:<7}{numbers}{ratio}", flush=True)
    if options.json:
        found = [{"operation": name, "per": per, "ns": ns} for name, per, ns in rows]
        answer = {"versions": versions, "modules": 2 * options.blocks + 1, "operations": found}
        print(json.dumps(answer, indent=1))
    return SAME


def _print_title(versions: dict[str, str], blocks: int) -> None:
    print(", ".join(f"{name} {version}" for name, version in versions.items()))
    print(f"a tree of {2 * blocks + 1:,} modules; nanoseconds per item\n")
    torch = f"{'torch':>11}{'ratio':>9}" if "torch" in versions else ""
    print(f"{'operation':<25}{'per':<7}{'modtree':>11}{torch}", flush=True)
