# SPDX-License-Identifier: BSD-3-Clause
"""``python -m bench.readme``: puts the tables of the last runs of bench and bench.bench_autograd
into README.md.
"""

from __future__ import annotations

import argparse
import json
import re
import textwrap
from pathlib import Path
from typing import Any

from . import bench_dropin
from .common import FLOOR, OURS, OURS_TORCH, ROOT, TORCH, number

_TREE, _TRAINING, _DROPIN = "bench", "bench-autograd", "bench-dropin"

#: Of the whole-tree rows one model is enough.
_NOT_IN_README = ("ResNet-50: ", "expert tree: ")

_ROWS = (
    "read.parameter",
    "write.parameter",
    "call",
    "call.hook",
    "construct.empty",
    "bytes.empty",
    "experts.parameters.repeated",
    "experts.named_parameters.first",
    "experts.named_parameters.repeated",
    "experts.state_dict",
    "experts.load",
    "experts.load.assign",
    "experts.train",
    "experts.apply",
    "experts.to",
    "experts.deepcopy",
    "experts.dumps",
)


def text_of(record: dict[str, Any]) -> str:
    """The paragraph and the table."""
    machine = record["machine"]
    rows = {row["key"]: row for row in record["rows"]}
    lines = [
        f"ns per item on one thread of {machine['cpu']} ({machine['python']}, "
        f"NumPy {machine['numpy']}, torch {machine['torch']}, commit {machine['commit']}), "
        f"measured with `{machine['command']}`. Most rows are of a mixture-of-experts tree with",
        "15,862 modules and 47,092 tiny parameters. The floor is the least that CPython and NumPy "
        "need for the same result; [bench/README.md](bench/README.md) says how to read it.",
        "",
        "| operation | per | floor | modtree | modtree, torch leaves | torch | torch / modtree |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for key in _ROWS:
        if key not in rows:
            continue
        row = rows[key]
        values = [row["values"].get(side) for side in (FLOOR, OURS, OURS_TORCH, TORCH)]
        ours, torch = values[1], values[3]
        ratio = f"{torch / ours:.1f}" if ours and torch else "-"
        per = row["per"] if row["unit"] == "ns" else f"{row['per']}, {row['unit']}"
        cells = " | ".join(number(v) for v in values)
        lines.append(f"| {row['title']} | {per} | {cells} | {ratio} |")
    return "\n".join(lines)


def training_text_of(record: dict[str, Any]) -> str:
    """The same for the run of bench.bench_autograd: all its rows."""
    machine = record["machine"]
    lines = [
        f"The same machine and versions, commit {machine['commit']}, `{machine['command']}`. The "
        f"floor is NumPy on bare "
        "arrays, for convolutions the matrix products alone.",
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
    options = parser.parse_args()
    page = options.page.read_text()
    for name, mark, make in (
        ("bench.json", _TREE, text_of),
        ("autograd.json", _TRAINING, training_text_of),
        ("bench-dropin.json", _DROPIN, dropin_text_of),
    ):
        path = options.folder / name
        if path.is_file():
            page = insert(page, make(json.loads(path.read_text())), mark)
        else:
            print(f"{path} is not there: its table stays as it was")
    options.page.write_text(page)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
