# SPDX-License-Identifier: BSD-3-Clause
"""Plots of a run: ns per item of each operation, and how they grow with a tree."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from .common import FLOOR, OURS, OURS_TORCH, TORCH

_COLORS = {FLOOR: "0.6", OURS: "tab:blue", OURS_TORCH: "tab:cyan", TORCH: "tab:red"}
_OTHERS = ("tab:orange", "tab:green", "tab:purple", "tab:brown", "tab:pink", "tab:olive", "0.4")
_GROWTH = (("named_parameters", "names and parameters"), ("load", "loading a state dict"))


def draw(record: dict[str, Any], path: Path) -> None:
    """Writes the PNG; ImportError when matplotlib is missing."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [
        r
        for r in record["rows"]
        if "." not in r["key"] or not r["key"].startswith(("resnet50", "calls", "chain900"))
    ]
    rows = [r for r in rows if r["unit"] == "ns" and OURS in r["values"]]
    figure, axes = pyplot.subplots(1, 2, figsize=(15, 8), width_ratios=(3, 2))
    left, right = axes
    for i, row in enumerate(reversed(rows)):
        for side, color in _COLORS.items():
            if side in row["values"]:
                left.plot(max(row["values"][side], 0.5), i, "o", color=color, markersize=7)
    left.set_yticks(range(len(rows)), [r["title"].replace("`", "") for r in reversed(rows)])
    left.set_xscale("log")
    left.set_xlabel("ns per item (less is better)")
    left.grid(axis="x", alpha=0.3)
    for side, color in _COLORS.items():
        left.plot([], [], "o", color=color, label=side)
    left.legend(loc="upper center", bbox_to_anchor=(0.5, 1.06), ncols=4, frameon=False)

    for operation, style in (("load_state_dict", "-"), ("named_parameters", "--")):
        for side, color in _COLORS.items():
            points = [
                p
                for p in record.get("growth", ())
                if p["side"] == side
                and p["operation"] == operation
                and p["shape"] == "one flat list"
            ]
            if points:
                label = f"{operation}, {side}"
                right.plot(
                    [p["entries"] for p in points],
                    [p["ns"] for p in points],
                    style + "o",
                    color=color,
                    label=label,
                )
    right.set_xscale("log")
    right.set_yscale("log")
    right.set_xlabel("entries of one flat list of experts")
    right.set_ylabel("ns per entry")
    right.grid(alpha=0.3)
    if right.lines:
        right.legend()
    else:
        right.set_visible(False)
    machine = record["machine"]
    figure.suptitle(
        f"{machine['cpu']}, {machine['python']}, torch {machine['torch']}, modtree "
        f"{machine['commit']}"
    )
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def draw_growth(record: dict[str, Any], path: Path) -> None:
    """The libraries of a run of bench.bench_peers on growing trees, as SVG; ImportError when
    matplotlib is missing.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    # Text stays text, and the same values give the same file.
    with pyplot.rc_context({"svg.fonttype": "none", "svg.hashsalt": "growth", "font.size": 9}):
        figure, axes = pyplot.subplots(1, 2, figsize=(10, 4.4), sharey=True)
        peers = [p["title"] for p in record["peers"]]
        others = [title for title in peers if title not in _COLORS]
        colors = _COLORS | dict(zip(others, itertools.cycle(_OTHERS), strict=False))
        for panel, (operation, title) in zip(axes, _GROWTH, strict=True):
            for peer in peers:
                points = _growth_of(record, operation, peer)
                if points:
                    ours = peer in (OURS, OURS_TORCH)
                    panel.plot(
                        *zip(*points, strict=True),
                        "o-",
                        color=colors[peer],
                        label=peer,
                        linewidth=2.2 if ours else 1,
                        markersize=5 if ours else 3.5,
                    )
            panel.set(title=title, xscale="log", yscale="log", xlabel="entries of the tree")
            panel.grid(alpha=0.3)
        axes[0].set_ylabel("ns per entry (less is better)")
        lines = {line.get_label(): line for panel in axes for line in panel.lines}
        figure.legend(handles=lines.values(), loc="lower center", ncols=5, frameon=False)
        figure.tight_layout(rect=(0, 0.12, 1, 1))
        figure.savefig(path, metadata={"Date": None, "Creator": None})
        pyplot.close(figure)


def _growth_of(record: dict[str, Any], operation: str, peer: str) -> list[tuple[int, float]]:
    """(entries, ns per entry) of each tree that the library was measured on."""
    prefix = f"growth.{operation}."
    return [
        (int(row["key"].removeprefix(prefix)), row["values"][peer])
        for row in record["rows"]
        if row["key"].startswith(prefix) and row["values"].get(peer) is not None
    ]
