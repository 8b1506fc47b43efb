# SPDX-License-Identifier: BSD-3-Clause
"""``python -m bench.readme``: writes the tables of the last runs into docs/performance.md, and six
of their rows into README.md.
"""

from __future__ import annotations

import argparse
import json
import re
import textwrap
from pathlib import Path
from typing import Any

from . import bench_dropin, growth
from .common import FLOOR, OURS, OURS_TORCH, ROOT, TORCH, TORCH_FLOOR, number, ratio_of

_FRONT, _TREE, _GROWTH, _DROPIN = "bench-front", "bench", "bench-growth", "bench-dropin"

_TREE_FILE, _DROPIN_FILE = "bench.json", "bench-dropin.json"

#: README's rows: what it says of them, the file they come from, and their key or name there.
_FRONT_ROWS = (
    ("read a parameter, `m.weight`", _TREE_FILE, "read.parameter"),
    ("call a module, `m(x)`", _TREE_FILE, "call"),
    ("walk, `list(m.named_parameters())`", _TREE_FILE, "experts.named_parameters.repeated"),
    ("load, `m.load_state_dict(sd)`", _TREE_FILE, "experts.load"),
    ("decode a token, small Llama", _DROPIN_FILE, "Llama: greedy decoding"),
    ("a training step, small Llama", _DROPIN_FILE, "Llama: training step"),
)

#: Of the whole-tree rows one model is enough.
_LEFT_OUT = ("ResNet-50: ", "expert tree: ")

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


def front_text_of(tree: dict[str, Any], dropin: dict[str, Any]) -> str:
    """README's paragraph and table: six rows on torch's class and on modtree's."""
    machine, other = tree["machine"], dropin["machine"]
    text = (
        f"CPU time on one thread of {machine['cpu']} ({machine['python']}, torch "
        f"{machine['torch']}). The first four rows use modules that hold torch tensors; walk and "
        "load use a tree of 15,862 modules and 47,092 tiny parameters "
        f"(`{machine['command']}`, commit {machine['commit']}). The last two are programs under "
        f"`modtree run` (`{other['command']}`, commit {other['commit']})."
    )
    lines = [
        textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False),
        "",
        "| what | per | torch | modtree | speedup |",
        "|---|---|---:|---:|---:|",
    ]
    rows = {(_TREE_FILE, row["key"]): row for row in tree["rows"]}
    rows |= {(_DROPIN_FILE, row["name"]): row for row in dropin["rows"]}
    for title, file, key in _FRONT_ROWS:
        row = rows[file, key]
        if file == _TREE_FILE:
            values = [row["values"][side] for side in (TORCH, OURS_TORCH)]
            cells = [f"{number(value)} ns" for value in values]
        else:
            values = [row[side] for side in bench_dropin.SIDES]
            cells = [bench_dropin.time_text(value) for value in values]
        times = values[0] / values[1]
        ratio = f"{times:.0f}" if times >= 10 else f"{times:.1f}"
        lines.append(f"| {title} | {row['per']} | {cells[0]} | {cells[1]} | {ratio} |")
    return "\n".join(lines)


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
        "least that torch needs; `bench/README.md` says how to read it."
    )
    lines = [
        textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False),
        "",
        "| operation | per | floor | modtree | modtree, torch leaves | torch | ratio to the floor "
        "(torch leaves) | torch / modtree |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
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
        lines.append(f"| {title} | {per} | {cells} | {floors[0]} ({floors[1]}) | {ratio} |")
    return "\n".join(lines)


def dropin_text_of(record: dict[str, Any]) -> str:
    """The same for the run of bench.bench_dropin."""
    machine = record["machine"]
    rows = [
        row
        for row in record["rows"]
        if row["per"] != "call" or not row["name"].startswith(_LEFT_OUT)
    ]
    text = (
        "CPU time of the same programs on torch's class and on modtree's, one thread of "
        f"{machine['cpu']} ({machine['python']}, torch {machine['torch']}, commit "
        f"{machine['commit']}), `{machine['command']}`. The models have the shapes of their names "
        "with many small layers."
    )
    return f"{textwrap.fill(text, 100)}\n\n{bench_dropin.table(rows)}"


def growth_text_of(record: dict[str, Any]) -> str:
    """The same for the part ``growth`` of a run of bench."""
    machine = record["machine"]
    text = (
        f"ns per entry, on one thread of {machine['cpu']} ({machine['python']}, torch "
        f"{machine['torch']}, commit {machine['commit']}), `{machine['command']}`:"
    )
    filled = textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)
    points = [point for point in record["growth"] if point["shape"] == "blocks of 64"]
    return f"{filled}\n\n{growth.table(points)}"


def insert(page: str, text: str, mark: str = _TREE) -> str:
    """The page with ``text`` between the two comments that name ``mark``."""
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(page):
        raise ValueError(f"the page has no {begin} ... {end}")
    return pattern.sub(lambda _: f"{begin}\n{text}\n{end}", page)


def _read(path: Path) -> dict[str, Any] | None:
    if path.is_file():
        return json.loads(path.read_text())
    print(f"{path} is not there: its tables stay as they are")
    return None


def _write(page: Path, mark: str, text: str) -> None:
    page.write_text(insert(page.read_text(), text, mark))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.readme", description=__doc__)
    parser.add_argument(
        "folder", type=Path, nargs="?", default=ROOT / "build/bench", help="where both wrote JSON"
    )
    parser.add_argument("--page", type=Path, default=ROOT / "README.md")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs" / "performance.md")
    options = parser.parse_args()
    tree, dropin = (_read(options.folder / name) for name in (_TREE_FILE, _DROPIN_FILE))
    if tree and dropin:
        _write(options.page, _FRONT, front_text_of(tree, dropin))
    if tree:
        _write(options.docs, _TREE, text_of(tree))
    if tree and "growth" in tree:
        _write(options.docs, _GROWTH, growth_text_of(tree))
    if dropin:
        _write(options.docs, _DROPIN, dropin_text_of(dropin))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
