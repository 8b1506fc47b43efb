# SPDX-License-Identifier: BSD-3-Clause
"""``python -m bench.readme``: puts the tables of the last runs into README.md and, of the
comparison with other libraries, into docs/performance.md, with a plot beside it.
"""

from __future__ import annotations

import argparse
import json
import re
import textwrap
from pathlib import Path
from typing import Any

from . import bench_dropin, bench_peers, plot
from .common import FLOOR, OURS, OURS_TORCH, ROOT, TORCH, TORCH_FLOOR, number, ratio_of

_TREE, _TRAINING, _DROPIN = "bench", "bench-autograd", "bench-dropin"
_PEERS, _ALL_PEERS, _GROWTH = "bench-peers", "bench-peers-all", "bench-peers-growth"

#: Of the comparison with other libraries README has these rows, docs/performance.md all.
_PEER_ROWS = (
    "construct.empty",
    "bytes.empty",
    "read.parameter",
    "read.plain",
    "write.parameter",
    "call",
    "experts.construct",
    "experts.parameters",
    "experts.named_parameters",
    "experts.state_dict",
    "experts.load",
    "experts.train",
    "experts.apply",
    "experts.deepcopy",
    "experts.dumps",
    "experts.loads",
)

#: Of the whole-tree rows one model is enough.
_NOT_IN_README = ("ResNet-50: ", "expert tree: ")

_ROWS = (
    "read.parameter",
    "read.child",
    "read.plain",
    "write.parameter",
    "write.child",
    "write.plain",
    "call",
    "call.direct",
    "call.native",
    "call.hook",
    "construct.empty",
    "bytes.empty",
    "experts.parameters.repeated",
    "experts.modules.repeated",
    "experts.named_parameters.first",
    "experts.named_parameters.repeated",
    "experts.state_dict",
    "experts.load",
    "experts.load.assign",
    "experts.train",
    "experts.zero_grad",
    "experts.apply",
    "experts.to",
    "experts.deepcopy",
    "experts.dumps",
    "experts.loads",
    "calls150.train",
    "calls150.parameters",
    "calls150.zero_grad",
    "calls150.state_dict",
    "chain900.train",
    "chain900.state_dict",
    "chain900.load",
)


def text_of(record: dict[str, Any]) -> str:
    """The paragraph and the table."""
    machine = record["machine"]
    rows = {row["key"]: row for row in record["rows"]}
    text = (
        f"ns of CPU time per item on one thread of {machine['cpu']} ({machine['python']}, "
        f"NumPy {machine['numpy']}, torch {machine['torch']}, commit {machine['commit']}), "
        f"measured with `{machine['command']}`. Most rows are of a mixture-of-experts tree with "
        "15,862 modules and 47,092 tiny parameters, the last ones of a chain of 900 modules. The "
        "floor is the least that CPython and NumPy need for the same result, for torch leaves the "
        "least that torch needs; [bench/README.md](bench/README.md) says how to read it."
    )
    lines = [
        textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False),
        "",
        "| operation | per | floor | modtree | modtree, torch leaves | torch | ratio to the floor "
        "(torch leaves) | torch / modtree | reach |",
        "|---|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for key in _ROWS:
        if key not in rows:
            continue
        row = rows[key]
        measured = row["values"]
        values = [measured.get(side) for side in (FLOOR, OURS, OURS_TORCH, TORCH)]
        ours, torch = values[1], values[3]
        ratio = f"{torch / ours:.1f}" if ours and torch else "-"
        own = TORCH_FLOOR if TORCH_FLOOR in measured else FLOOR
        floors = ratio_of(measured, OURS, FLOOR), ratio_of(measured, OURS_TORCH, own)
        per = row["per"] if row["unit"] == "ns" else f"{row['per']}, {row['unit']}"
        cells = " | ".join(number(v) for v in values)
        title = row["title"] + (", chain" if key.startswith("chain900") else "")
        lines.append(
            f"| {title} | {per} | {cells} | {floors[0]} ({floors[1]}) | {ratio} | {_reached(row)} |"
        )
    return "\n".join(lines)


def _reached(row: dict[str, Any]) -> str:
    """The budgets of a row, those that were missed marked."""
    said = []
    for budget in row["budgets"]:
        which = "torch leaves " if budget["side"] == OURS_TORCH else ""
        said.append(f"{which}{budget['budget']}" + ("" if budget["met"] else " (missed)"))
    return ", ".join(said) or "-"


def training_text_of(record: dict[str, Any]) -> str:
    """The same for the run of bench.bench_autograd: all its rows."""
    machine = record["machine"]
    text = (
        f"One thread of {machine['cpu']} (torch {machine['torch']}, commit {machine['commit']}), "
        f"`{machine['command']}`. The floor is NumPy on bare arrays, for convolutions the matrix "
        "products alone."
    )
    lines = [
        textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False),
        "",
        "| operation | per | floor | modtree | torch | modtree / torch |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for row in record["rows"]:
        values = [row["values"].get(side) for side in (FLOOR, OURS, TORCH)]
        ours, torch = values[1], values[2]
        ratio = f"{ours / torch:.2f}" if ours and torch else "-"
        cells = " | ".join(number(v) for v in values)
        lines.append(f"| {row['title']} | {row['per']}, {row['unit']} | {cells} | {ratio} |")
    return "\n".join(lines)


def dropin_text_of(record: dict[str, Any]) -> str:
    """The same for the run of bench.bench_dropin."""
    machine = record["machine"]
    rows = [
        row
        for row in record["rows"]
        if row["per"] != "call" or not row["name"].startswith(_NOT_IN_README)
    ]
    text = (
        "CPU time of the same programs on torch's class and on modtree's, one thread of "
        f"{machine['cpu']} ({machine['python']}, torch {machine['torch']}, commit "
        f"{machine['commit']}), `{machine['command']}`. The models have the shapes of their names "
        "with many small layers."
    )
    return f"{textwrap.fill(text, 100)}\n\n{bench_dropin.table(rows)}"


def _peer_paragraph(record: dict[str, Any]) -> str:
    machine = record["machine"]
    text = (
        f"ns of CPU time per item on one thread of {machine['cpu']} ({machine['python']}, commit "
        f"{machine['commit']}), `{machine['command']}`; in brackets how many times modtree's. Each "
        "library in an environment of its own, in processes that take turns, the least of all "
        "rounds; spread: by how much the median of a library's rounds is above it, of the least "
        "steady library."
    )
    return textwrap.fill(text, 100)


def peers_text_of(record: dict[str, Any]) -> str:
    """README's table of the run of bench.bench_peers."""
    more = (
        "[docs/performance.md](docs/performance.md) has all rows, the expressions that were run "
        "and what a library could not do."
    )
    table = bench_peers.table(record, _PEER_ROWS)
    return f"{_peer_paragraph(record)}\n{textwrap.fill(more, 100)}\n\n{table}"


def all_peers_text_of(record: dict[str, Any]) -> str:
    """The whole comparison, for docs/performance.md."""
    keys = tuple(row["key"] for row in record["rows"] if not row["key"].startswith("growth."))
    parts = [_peer_paragraph(record), bench_peers.table(record, keys)]
    wrapped = "\n".join(
        textwrap.fill(line, 100, subsequent_indent="  ", break_long_words=False)
        for part in (bench_peers.notes(record), bench_peers.expressions(record))
        for line in part.splitlines()
    )
    return "\n\n".join([*parts, wrapped])


def growth_text_of(record: dict[str, Any]) -> str:
    keys = tuple(row["key"] for row in record["rows"] if row["key"].startswith("growth."))
    return bench_peers.table(record, keys)


def insert(page: str, text: str, mark: str = _TREE) -> str:
    """The page with ``text`` between the two comments that name ``mark``."""
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(page):
        raise ValueError(f"the page has no {begin} ... {end}")
    return pattern.sub(lambda _: f"{begin}\n{text}\n{end}", page)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.readme", description=__doc__)
    parser.add_argument(
        "folder", type=Path, nargs="?", default=ROOT / "build/bench", help="where both wrote JSON"
    )
    parser.add_argument("--page", type=Path, default=ROOT / "README.md")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs" / "performance.md")
    options = parser.parse_args()
    peers = "peers.json"
    for page, name, mark, make in (
        (options.page, "bench.json", _TREE, text_of),
        (options.page, "autograd.json", _TRAINING, training_text_of),
        (options.page, "bench-dropin.json", _DROPIN, dropin_text_of),
        (options.page, peers, _PEERS, peers_text_of),
        (options.docs, peers, _ALL_PEERS, all_peers_text_of),
        (options.docs, peers, _GROWTH, growth_text_of),
    ):
        path = options.folder / name
        if path.is_file():
            text = make(json.loads(path.read_text()))
            page.write_text(insert(page.read_text(), text, mark))
        else:
            print(f"{path} is not there: the table {mark} stays as it was")
    if (path := options.folder / peers).is_file():
        try:
            plot.draw_growth(json.loads(path.read_text()), options.docs.with_name("growth.svg"))
        except ImportError as error:
            print(f"no plot: {error} (pip install '.[bench]')")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
