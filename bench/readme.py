# SPDX-License-Identifier: BSD-3-Clause
"""``python -m bench.readme bench.json``: puts the table of a run into README.md."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

from .common import FLOOR, OURS, OURS_TORCH, ROOT, TORCH, number

_BEGIN, _END = "<!-- bench: begin -->", "<!-- bench: end -->"

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


def insert(page: str, text: str) -> str:
    """The page with ``text`` between its two marks."""
    pattern = re.compile(re.escape(_BEGIN) + ".*?" + re.escape(_END), re.DOTALL)
    if not pattern.search(page):
        raise ValueError(f"the page has no {_BEGIN} ... {_END}")
    return pattern.sub(lambda _: f"{_BEGIN}\n{text}\n{_END}", page)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.readme", description=__doc__)
    parser.add_argument("record", type=Path, nargs="?", default=ROOT / "build/bench/bench.json")
    parser.add_argument("--page", type=Path, default=ROOT / "README.md")
    options = parser.parse_args()
    record = json.loads(options.record.read_text())
    options.page.write_text(insert(options.page.read_text(), text_of(record)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
