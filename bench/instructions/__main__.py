# SPDX-License-Identifier: BSD-3-Clause
"""``python -m bench.instructions``: counts, prints, writes JSON; with ``--against`` compares."""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.common import OURS, OURS_TORCH, ROOT, machine, write_json

from . import callgrind
from .compare import LIMIT, report


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.instructions",
        description="Count the instructions of modtree's operations with valgrind's callgrind.",
    )
    parser.add_argument("--rows", default="", help="count rows whose key contains this text")
    parser.add_argument(
        "--against",
        metavar="REF",
        help="build this commit in a temporary folder, count it too, and compare; exit status 1 "
        "where something rose by more than the limit",
    )
    parser.add_argument("--limit", type=float, default=LIMIT, help="the rise that is allowed")
    parser.add_argument("--without-torch", action="store_true", help="leave out torch leaves")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build" / "bench" / "instructions.json", help="JSON file"
    )
    return parser.parse_args()


def _count(package: Path, options: argparse.Namespace) -> dict[str, Any]:
    sides = [OURS]
    if not options.without_torch and importlib.util.find_spec("torch"):
        sides.append(OURS_TORCH)
    begin = time.monotonic()
    rows = callgrind.count(package, sides, options.rows)
    print(f"counted {len(rows)} rows in {time.monotonic() - begin:.0f} s", file=sys.stderr)
    return {"machine": machine(), "rows": rows}


def _build(ref: str, folder: Path) -> Path:
    """The commit's files in ``folder``, built in place; where its package is."""
    commit = subprocess.check_output(
        ["git", "rev-parse", "--verify", f"{ref}^{{commit}}"], cwd=ROOT, text=True
    ).strip()
    archive = subprocess.Popen(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "-C", folder], stdin=archive.stdout, check=True)
    if archive.wait():
        raise callgrind.Unavailable(f"git archive {commit} failed")
    # The programs beside this interpreter first: cmake, ninja and the python to build for.
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["tools/dev_build"],
        cwd=folder,
        env=os.environ | {"PATH": search},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        print(done.stdout[-4000:], file=sys.stderr)
        raise callgrind.Unavailable(f"{ref} could not be built")
    return folder / "python"


def _table(rows: list[dict[str, Any]]) -> str:
    lines = ["| row | operation | per | instructions |", "|---|---|---|---:|"]
    for row in rows:
        value = f"{row['instructions']:,.1f}" if "instructions" in row else row["error"]
        lines.append(f"| {row['key']} | {row['title']} | {row['per']} | {value} |")
    return "\n".join(lines)


def _run(options: argparse.Namespace) -> int:
    record = _count(ROOT / "python", options)
    write_json(options.out, record)
    if options.against is None:
        print(f"{_table(record['rows'])}\n\nwrote {options.out}")
        failed = [row["key"] for row in record["rows"] if "error" in row]
        if failed:
            print(f"could not be counted: {', '.join(failed)}")
        return 1 if failed else 0
    with tempfile.TemporaryDirectory(prefix="modtree-before-") as folder:
        before = _count(_build(options.against, Path(folder)), options)
    write_json(options.out.with_name("instructions-before.json"), before)
    print(f"before: {options.against}\nafter: {record['machine']['commit']}\n")
    return report(before, record, options.limit)


def main() -> int:
    options = _arguments()
    try:
        return _run(options)
    except callgrind.Unavailable as error:
        print(error, file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:
        print(f"{' '.join(map(str, error.cmd))} failed with {error.returncode}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    raise SystemExit(main())
