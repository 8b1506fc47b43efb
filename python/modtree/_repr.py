# SPDX-License-Identifier: BSD-3-Clause
"""How a tree of modules is printed: one line per module, without recursion."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

# A chain of n modules prints n lines, each indented deeper: beyond this many characters the text is of use to nobody.
_MAX_CHARACTERS = 200_000_000


def module_repr(self: Any) -> str:
    """The class name, the lines of ``extra_repr``, and the children indented below."""
    lines: list[tuple[int, str]] = []
    total = 0
    for depth, text in _lines(self):
        lines.append((depth, text))
        total += 2 * depth + len(text) + 1
        if total > _MAX_CHARACTERS:
            raise RecursionError(
                f"the repr of {type(self).__name__} would be longer than {_MAX_CHARACTERS} characters: "
                f"it is nested {max(d for d, _ in lines)} modules deep; print a submodule instead"
            )
    return "\n".join("  " * depth + text for depth, text in lines)


def _lines(root: Any) -> Iterator[tuple[int, str]]:
    """The lines of a repr as (depth, text without the indentation of that depth)."""
    stack: list[tuple[Iterator[tuple[str, Any]], Any]] = []
    path = {id(root)}
    head, children = _open(root)
    yield from _opening(0, "", head, children)
    if children:
        stack.append((iter(children), root))
    while stack:
        depth = len(stack)
        key, child = next(stack[-1][0], (None, None))
        if key is None:
            _, module = stack.pop()
            path.discard(id(module))
            yield depth - 1, ")"
            continue
        if not _prints_natively(child):
            yield from _foreign(depth, f"({key}): ", repr(child))
            continue
        if id(child) in path:
            raise RecursionError(
                f"the module tree contains itself: child {key!r} of {type(stack[-1][1]).__name__} "
                f"is {type(child).__name__}, one of the modules around it"
            )
        head, children = _open(child)
        yield from _opening(depth, f"({key}): ", head, children)
        if children:
            path.add(id(child))
            stack.append((iter(children), child))


def _prints_natively(child: Any) -> bool:
    return type(child).__repr__ is module_repr


def _open(module: Any) -> tuple[list[str], list[tuple[str, Any]]]:
    extra = module.extra_repr()
    return [module._get_name(), *(extra.split("\n") if extra else ())], list(module._modules.items())


def _opening(
    depth: int, label: str, head: list[str], children: list[tuple[str, Any]]
) -> Iterator[tuple[int, str]]:
    """The lines of a module before its children; all of its lines when it has none."""
    name, *extra = head
    if not children and len(extra) <= 1:
        yield depth, f"{label}{name}({extra[0] if extra else ''})"
        return
    yield depth, f"{label}{name}("
    for line in extra:
        # A blank line of a nested module is printed empty.
        yield (depth + 1, line) if line.strip() or depth == 0 else (0, "")
    if not children:
        yield depth, ")"


def _foreign(depth: int, label: str, text: str) -> Iterator[tuple[int, str]]:
    first, *rest = text.split("\n")
    yield depth, label + first
    for line in rest:
        yield (depth, line) if line.strip() else (0, "")
