# SPDX-License-Identifier: BSD-3-Clause
"""What ``modtree run --report`` prints at the end."""

from __future__ import annotations

import sys
from typing import Any, TextIO

from modtree import _C
from modtree.dropin._adopt import adopted

__all__ = ["print_report", "start_report"]

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


def start_report() -> None:
    """Notes from now on what the report is about."""
    _C._start_report()


def print_report(file: TextIO | None = None) -> None:
    """Prints what native code did, and which classes went through Python code of their own."""
    file = sys.stderr if file is None else file
    if adopted() is None:
        print("modtree run: the program did not import torch.nn", file=file)
        return
    report: dict[str, Any] = _C._native_report()
    lines = [("calls", report["calls"]), ("reads", report["reads"]), ("writes", report["writes"])]
    for group, methods in _GROUPS.items():
        lines.append((group, sum(report["methods"].get(name, 0) for name in methods)))
    print("modtree run: done natively", file=file)
    for what, count in lines:
        print(f"  {count:>12,}  {what}", file=file)
    print("modtree run: classes with Python code of their own in its place", file=file)
    # Several classes may have one name, as those that fx makes.
    fallbacks = {(_path(cls), tuple(names)) for cls, names in report["classes"] if names}
    for path, names in sorted(fallbacks):
        print(f"  {path}: {_reasons(names)}", file=file)
    if not fallbacks:
        print("  none", file=file)
    for line in sorted({line for cls, _ in report["classes"] for line in _halves(cls)}):
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
