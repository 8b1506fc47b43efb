# SPDX-License-Identifier: BSD-3-Clause
"""What ``modtree run --report`` prints at the end, for the process that it started and for those
that this one starts.

The environment tells them the process that prints, and a folder in which the others leave what they
did when they end.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections import Counter
from multiprocessing import util
from pathlib import Path
from typing import Any, TextIO

from modtree import _C
from modtree.torch.dropin._adopt import adopted

#: ``PID:FOLDER``, or "1" for a process that is to print and has not begun.
_VARIABLE = "MODTREE_DROPIN_REPORT"

_GROUPS = {
    "walks": (
        "parameters named_parameters buffers named_buffers modules named_modules children "
        "named_children _named_members"
    ).split(),
    "state dicts": ["state_dict", "_save_to_state_dict"],
    "loads": ["load_state_dict", "_load_from_state_dict"],
    "conversions": ["_apply"],
    "changes of mode": ["train", "eval"],
    "registrations": ["register_parameter", "register_buffer", "add_module"],
    "other whole-tree calls": ["apply", "requires_grad_", "zero_grad"],
}

#: What a class may override -> what then goes through its Python code.
_WHY = {
    "__getattr__": "reads of names that are no plain attributes",
    "__getattribute__": "all reads",
    "__setattr__": "writes",
    "__delattr__": "writes and deletions",
    "__call__": "calls",
    "_call_impl": "calls",
}

#: Methods that belong together: one without the other is seldom meant.
_PAIRS = (
    ("get_extra_state", "set_extra_state"),
    ("__getstate__", "__setstate__"),
    ("_save_to_state_dict", "_load_from_state_dict"),
    ("state_dict", "load_state_dict"),
)


# What a process that was forked had done before, which its parent counts.
_before_fork: Counter[str] = Counter()


def start_report() -> None:
    """Notes from now on what the report is about, also in processes that are forked."""
    _C._start_report()
    if os.environ.get(_VARIABLE, "1") == "1":
        os.environ[_VARIABLE] = f"{os.getpid()}:{tempfile.mkdtemp(prefix='modtree-report-')}"
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_begin_anew)
    # Processes that multiprocessing forks end without atexit.
    if multiprocessing.parent_process() is not None:
        _end_with_report()
    util.register_after_fork(end_report, _end_with_report)


def _end_with_report(_: Any = None) -> None:
    util.Finalize(None, end_report, exitpriority=0)


def _begin_anew() -> None:
    _before_fork.clear()
    _before_fork.update(_counts())


def _counts() -> dict[str, int]:
    report: dict[str, Any] = _C._native_report()
    counts = {what: report[what] for what in ("calls", "reads", "writes")}
    for group, methods in _GROUPS.items():
        counts[group] = sum(report["methods"].get(name, 0) for name in methods)
    return counts


def _own_report() -> dict[str, Any]:
    """What this process did, in the form in which it is left for the one that prints."""
    classes = _C._native_report()["classes"]
    # Several classes may have one name, as those that fx makes.
    fallbacks = {f"{_path(cls)}: {_reasons(tuple(names))}" for cls, names in classes if names}
    return {
        "counts": {what: n - _before_fork[what] for what, n in _counts().items()},
        "fallbacks": sorted(fallbacks),
        "halves": sorted({line for cls, _ in classes for line in _halves(cls)}),
    }


def end_report() -> None:
    """At the end of a process: prints, or leaves its part for the process that does."""
    pid, _, folder = os.environ.get(_VARIABLE, "").partition(":")
    if not folder or pid == str(os.getpid()):
        try:
            print_report(folder=folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    elif adopted() is not None:
        # The one that prints may have ended, and its folder with it.
        with contextlib.suppress(OSError):
            part = Path(folder, f"{os.getpid()}.part")
            part.write_text(json.dumps(_own_report()))
            part.replace(part.with_suffix(".json"))  # whole, or not there


def print_report(file: TextIO | None = None, folder: str = "") -> None:
    """Prints what native code did, and which classes went through Python code of their own.

    Args:
        file: ``sys.stderr`` if not given.
        folder: What other processes have left.
    """
    file = sys.stderr if file is None else file
    left = sorted(Path(folder).glob("*.json")) if folder else []
    reports = [json.loads(path.read_text()) for path in left]
    others = len(reports)
    if adopted() is not None:
        reports.append(_own_report())
    if not reports:
        print("modtree run: the program did not import torch.nn", file=file)
        return
    among = f", {others} other process{'es' if others > 1 else ''} included" if others else ""
    print(f"modtree run: done natively{among}", file=file)
    for what in reports[0]["counts"]:
        print(f"  {sum(report['counts'][what] for report in reports):>12,}  {what}", file=file)
    print("modtree run: classes with Python code of their own in its place", file=file)
    fallbacks = {line for report in reports for line in report["fallbacks"]}
    for line in sorted(fallbacks) or ["none"]:
        print(f"  {line}", file=file)
    for line in sorted({line for report in reports for line in report["halves"]}):
        print(f"modtree run: {line}", file=file)


def _halves(cls: type) -> list[str]:
    """One line for each pair of which a class of the program itself has only one half."""
    if cls.__module__.partition(".")[0] == "torch":
        return []
    return [
        f"{_path(cls)} overrides {name} but not {other}"
        for pair in _PAIRS
        for name, other in (pair, pair[::-1])
        if name in vars(cls) and _is_modules_own(cls, other)
    ]


def _is_modules_own(cls: type, name: str) -> bool:
    return getattr(cls, name, None) is vars(_C.ModuleBase).get(name)


def _path(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _reasons(names: tuple[str, ...]) -> str:
    return "; ".join(f"{name} ({_WHY.get(name, 'where it is called')})" for name in names)
