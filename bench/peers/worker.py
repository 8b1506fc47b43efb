# SPDX-License-Identifier: BSD-3-Clause
"""What runs inside a peer's environment: times each operation on each tree, one JSON line each.

    python -m bench.peers.worker NAME SECONDS LARGEST

LARGEST is the number of entries up to which trees grow; 0 leaves growth out.
"""

from __future__ import annotations

import gc
import importlib
import json
import pickle
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

from bench.common import unrolled
from bench.micro import bytes_of

#: Name of the row, of the adapter's method, and what it is per.
OPERATIONS = (
    ("parameters", "parameters", "parameter"),
    ("modules", "modules", "module"),
    ("named_parameters", "named", "parameter"),
    ("state_dict", "state", "entry"),
    ("load", "load", "entry"),
    ("train", "train", "module"),
    ("apply", "apply", "entry"),
    ("cast", "cast", "entry"),
    ("deepcopy", "deepcopy", "module"),
    ("dumps", "dumps", "module"),
    ("loads", "loads", "module"),
)
BLOCKS, EXPERTS, LINKS = 20, 64, 900
GROWTH_SECONDS = 20.0  # what one operation may be expected to take on the next size
SIZES = (1_000, 10_000, 100_000, 1_000_000)

#: Modules, parameters, and entries of a state dict, the same for every peer.
COUNTS = {
    "experts": (1 + 1 + BLOCKS * (4 + EXPERTS), BLOCKS * (4 + 3 * EXPERTS), 0),
    "resnet50": (151, 161, 320),
    "chain": (LINKS, LINKS, 0),
}


def best(run: Callable[[], Any], seconds: float, setup: Callable[[], Any] | None = None) -> float:
    """The least CPU time of some runs, in ns."""
    took: list[int] = []
    end = time.process_time() + seconds
    while len(took) < 3 or (time.process_time() < end and len(took) < 15):
        if setup is not None:
            setup()
        gc.collect()
        gc.disable()
        try:
            start = time.process_time_ns()
            result = run()
            took.append(time.process_time_ns() - start)
        finally:
            gc.enable()
        del result
        if took[0] > 5e9 * seconds:  # once is enough
            break
    return float(min(took))


def traced(make: Callable[[], Any], objects: int) -> float:
    """Bytes per object that Python's allocators give for what ``make`` returns."""
    kept = make()
    del kept
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = make()
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0] - before
        del kept
        return round(taken / objects)
    finally:
        tracemalloc.stop()


Row = tuple[str, str, Callable[[], float]]


def single(peer: Any, seconds: float) -> Iterator[Row]:
    def of(text: str, make: Callable[[], Any], value: Callable[[], Any] = int) -> float:
        run = unrolled(text, copies=50, rounds=40, m=make(), v=value())
        return best(run, seconds) / 2000

    side = peer.side()
    yield "construct.empty", "module", lambda: best(_many(peer.empty), seconds) / 1000
    yield "bytes.empty", "bytes", lambda: bytes_of(peer.empty)
    yield "read.parameter", "read", lambda: of("m.w2", peer.small)
    yield "read.child", "read", lambda: of("m.child", peer.small)
    yield "read.plain", "read", lambda: of("m.flag", peer.small)
    yield "write.parameter", "write", lambda: of("m.w2 = v", peer.small, side.parameter)
    yield "write.child", "write", lambda: of("m.child = v", peer.small, peer.empty)
    yield "write.plain", "write", lambda: of("m.flag = 2", peer.small)
    yield "call", "call", lambda: of("m(v)", peer.identity, side.zeros)


def _many(make: Callable[[], Any]) -> Callable[[], list[Any]]:
    return lambda: [make() for _ in range(1000)]


def _tree_operation(peer: Any, name: str, m: Any, seconds: float) -> float:
    if name == "load":
        state = peer.foreign(m)
        return best(lambda: peer.load(m, state), seconds)
    if name == "loads":
        data = peer.dumps(m)
        return best(lambda: pickle.loads(data), seconds)
    operation = getattr(peer, name)
    return best(lambda: operation(m), seconds)


def trees(peer: Any, seconds: float) -> Iterator[Row]:
    side = peer.side()

    def construct() -> float:
        leaves = [side.parameter() for _ in range(COUNTS["experts"][1])]
        run = lambda: peer.experts(BLOCKS, EXPERTS, iter(leaves))  # noqa: E731
        return best(run, seconds) / COUNTS["experts"][0]

    def memory() -> float:
        leaves = [side.parameter() for _ in range(COUNTS["experts"][1])]
        return traced(lambda: peer.experts(BLOCKS, EXPERTS, iter(leaves)), COUNTS["experts"][0])

    yield "experts.construct", "module", construct
    yield "experts.bytes", "bytes per module", memory
    builders = {
        "experts": lambda: peer.experts(BLOCKS, EXPERTS),
        "resnet50": peer.resnet50,
        "chain": lambda: peer.chain(LINKS),
    }
    for tree, build in builders.items():
        modules, parameters, entries = COUNTS[tree]
        items = {"module": modules, "parameter": parameters, "entry": entries or parameters}
        m: list[Any] = []
        for key, name, per in OPERATIONS:
            if name != "loads" and getattr(peer, name) is None:
                continue

            def run(
                name: str = name,
                per: str = per,
                build: Any = build,
                m: list[Any] = m,
                items: dict[str, int] = items,
            ) -> float:
                if not m:
                    m.append(build())
                return _tree_operation(peer, name, m[0], seconds) / items[per]

            yield f"{tree}.{key}", per, run


def growth(peer: Any, seconds: float, largest: int) -> Iterator[Row]:
    """ns per entry of names and of loading, up to a million entries; a library stops where the
    next size would take longer than some seconds.
    """
    spent = {"build": 0.0, "named": 0.0, "load": 0.0}
    for size in (s for s in SIZES if s <= largest):
        blocks = max(1, round(size / (64 * 3 + 4)))
        entries = blocks * (64 * 3 + 4)
        held: list[Any] = []

        def run(name: str, held: list[Any] = held, blocks: int = blocks, n: int = entries) -> float:
            if spent[name] > GROWTH_SECONDS or (not held and spent["build"] > 3 * GROWTH_SECONDS):
                raise TimeoutError("the size before took too long to go on")
            if not held:
                start = time.process_time()
                held.append(peer.experts(blocks, 64))
                spent["build"] = 10 * (time.process_time() - start)
            took = _tree_operation(peer, name, held[0], seconds)
            spent[name] = 10 * took / 1e9
            return took / n

        for key, name in (("named_parameters", "named"), ("load", "load")):
            yield f"growth.{key}.{size}", "entry", lambda name=name, run=run: run(name)


def report(rows: Iterator[Row]) -> None:
    for key, per, measure in rows:
        line: dict[str, Any] = {"key": key, "per": per}
        try:
            line["value"] = round(measure(), 2)
        except Exception as error:  # what a library cannot do is part of the answer
            text = str(error).strip().splitlines()
            line["error"] = f"{type(error).__name__}: {text[0][:120] if text else ''}"
        print(json.dumps(line), flush=True)


def main(name: str, seconds: str, largest: str) -> None:
    peer = importlib.import_module(f"bench.peers.{name}").Library()
    limit = float(seconds)
    said = {
        key: getattr(getattr(peer, method, None), "__doc__", "") for key, method, _ in OPERATIONS
    }
    print(json.dumps({"expressions": {k: v for k, v in said.items() if v}}), flush=True)
    report(single(peer, limit))
    report(trees(peer, limit))
    report(growth(peer, limit, int(largest)))


if __name__ == "__main__":
    main(*sys.argv[1:])
