# SPDX-License-Identifier: BSD-3-Clause
"""``python -m bench.bench_peers``: modtree and other module libraries on the same trees."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from .common import ROOT, machine, write_json
from .peers.environments import PEERS, Absent, Peer, interpreter, version

Values = dict[str, dict[str, list[float]]]  # of each row, of each peer, a value per round


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.bench_peers",
        description="Measure module libraries, each in an environment of its own that is made when "
        "it is missing, in processes that take turns.",
    )
    names = [p.name for p in PEERS]
    parser.add_argument("--only", action="append", choices=names, help="measure this library")
    parser.add_argument("--rounds", type=int, default=3, help="processes of each library")
    parser.add_argument("--seconds", type=float, default=0.1, help="of one row in one process")
    parser.add_argument(
        "--largest", type=int, default=1_000_000, help="entries to which trees grow; 0: no growth"
    )
    parser.add_argument("--limit", type=float, default=900, help="seconds that a process may take")
    parser.add_argument("--environments", type=Path, default=ROOT / "build" / "peers")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench")
    return parser.parse_args()


def _lines(peer: Peer, python: Path, largest: int, options: argparse.Namespace) -> list[Any]:
    """What a worker printed; a worker that fails or takes too long leaves what it had."""
    one_thread = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    paths = [str(ROOT)] if peer.environment else [str(ROOT / "python"), str(ROOT)]
    environment = os.environ | dict.fromkeys(one_thread, "1") | peer.variables
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    command = [str(python), "-m", "bench.peers.worker", peer.name]
    command += [str(options.seconds), str(largest)]
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        out, errors = process.communicate(timeout=options.limit)
    except subprocess.TimeoutExpired:
        process.kill()
        out, errors = process.communicate()
        errors += f"\nstopped after {options.limit:g} s"
    found = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    if process.returncode:
        last = (errors.strip() or "no message").splitlines()[-1]
        if not found:
            raise Absent(last)
        found.append({"key": "the rest", "per": "", "error": last})
    return found


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Rows, versions, what is absent and what failed."""
    wanted = [p for p in PEERS if not options.only or p.name in options.only]
    record: dict[str, Any] = {"machine": machine()}
    absent: dict[str, str] = {}
    pythons: dict[str, Path] = {}
    for peer in wanted:
        try:
            pythons[peer.name] = interpreter(peer, options.environments)
        except Absent as error:
            absent[peer.title] = str(error)
    values: Values = {}
    units: dict[str, str] = {}
    errors: dict[str, dict[str, str]] = {}
    expressions: dict[str, dict[str, str]] = {}
    for number in range(options.rounds):
        turn = [p for p in wanted if p.name in pythons]
        # Who comes first changes; trees grow in the first round only.
        for peer in turn if number % 2 == 0 else reversed(turn):
            print(f"round {number + 1}: {peer.title}", file=sys.stderr)
            try:
                found = _lines(peer, pythons[peer.name], 0 if number else options.largest, options)
            except Absent as error:
                absent[peer.title] = str(error)
                del pythons[peer.name]
                continue
            for line in found:
                if "expressions" in line:
                    expressions[peer.title] = line["expressions"]
                elif "error" in line:
                    errors.setdefault(peer.title, {})[line["key"]] = line["error"]
                else:
                    units[line["key"]] = line["per"]
                    row = values.setdefault(line["key"], {})
                    row.setdefault(peer.title, []).append(line["value"])
        peers = [
            {"title": p.title, "version": version(p, pythons[p.name]), "note": p.note}
            for p in wanted
            if p.name in pythons
        ]
        record |= {
            "peers": peers,
            "absent": absent,
            "errors": errors,
            "expressions": expressions,
            "rows": _rows(values, units),
        }
        write_json(options.out / "peers.json", record)  # what there is, if the next is cut off
    return record


def _rows(values: Values, units: dict[str, str]) -> list[dict[str, Any]]:
    """The least value of each library, and by how much the median is above it."""
    return [
        {
            "key": key,
            "per": units[key],
            "values": {peer: min(v) for peer, v in row.items()},
            "spread": {
                peer: round(statistics.median(v) / min(v) - 1, 3) if min(v) else 0.0
                for peer, v in row.items()
            },
        }
        for key, row in values.items()
    ]


def _number(value: float) -> str:
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def _cell(row: dict[str, Any], title: str, reference: str) -> str:
    """The value and how many times modtree's it is."""
    value, ours = row["values"].get(title), row["values"].get(reference)
    if value is None:
        return "-"
    ratio = f" ({value / ours:.1f})" if ours and title != reference else ""
    return _number(value) + ratio


def table(record: dict[str, Any], keys: tuple[str, ...] = (), reference: str = "modtree") -> str:
    """Markdown: a row per operation (``keys``, or all), a column per library."""
    titles = [p["title"] for p in record["peers"]]
    lines = [["operation", "per", *titles, "spread"]]
    lines.append(["---"] * 2 + ["---:"] * (len(titles) + 1))
    for row in record["rows"]:
        if keys and row["key"] not in keys:
            continue
        cells = [_cell(row, t, reference) for t in titles]
        spread = f"{max(row['spread'].values()):.0%}"
        lines.append([row["key"], row["per"], *cells, spread])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def notes(record: dict[str, Any]) -> str:
    """Versions and notes, what is absent and why, and what a library could not do."""
    lines = []
    for peer in record["peers"]:
        parts = [peer["version"], peer["note"]]
        for error, keys in _by_error(record["errors"].get(peer["title"], {})).items():
            parts.append(f"not measured: {', '.join(keys)} ({error})")
        lines.append(f"- **{peer['title']}** " + "; ".join(p for p in parts if p))
    lines += [f"- {title} is absent: {reason}" for title, reason in record["absent"].items()]
    return "\n".join(lines)


def _by_error(errors: dict[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, text in errors.items():
        found.setdefault(text.partition(":")[0], []).append(key)
    return found


def expressions(record: dict[str, Any]) -> str:
    """Markdown: what was run for each row of a tree, by library."""
    titles = [p["title"] for p in record["peers"]]
    keys = list(dict.fromkeys(k for said in record["expressions"].values() for k in said))
    lines = []
    for key in keys:
        by_text: dict[str, list[str]] = {}
        for title in titles:
            text = record["expressions"].get(title, {}).get(key)
            if text:
                by_text.setdefault(text, []).append(title)
        said = "; ".join(f"{text} ({', '.join(who)})" for text, who in by_text.items())
        lines.append(f"- **{key}**: {said}")
    return "\n".join(lines)


def main() -> int:
    options = _arguments()
    record = measure(options)
    for key, value in record["machine"].items():
        print(f"{key}: {value}")
    print(f"\n{table(record)}\n\n{notes(record)}\n\n{expressions(record)}")
    print(f"\nwrote {options.out / 'peers.json'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
