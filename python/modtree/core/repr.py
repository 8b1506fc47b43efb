# SPDX-License-Identifier: BSD-3-Clause
"""How a tree of modules is printed: one line per module, without recursion."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator
from typing import Any

from modtree._imports import find_tool

# A chain of n modules prints n lines, each indented deeper: beyond this many characters the text is
# of use to nobody.
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
                f"the repr of {type(self).__name__} would be longer than {_MAX_CHARACTERS} "
                f"characters: it is nested {max(d for d, _ in lines)} modules deep; print a "
                f"submodule instead"
            )
    return "\n".join("  " * depth + text for depth, text in lines)


def module_html(self: Any) -> str | None:
    """What a notebook shows: the tree as a summary that opens and closes; nothing for a tree that
    cannot be read, whose text is shown instead.
    """
    try:
        summary: str = find_tool("trees in notebooks").summary_html(self)
    except TypeError:
        return None
    return summary


def _lines(root: Any) -> Iterator[tuple[int, str]]:
    """The lines of a repr as (depth, text without the indentation of that depth)."""
    open_modules: dict[int, str] = {}  # id -> the name under which its parent holds it
    stack: list[tuple[Iterator[tuple[str, Any]], Any]] = []

    def enter(depth: int, key: str | None, module: Any) -> Iterator[tuple[int, str]]:
        head, children = _open(module)
        yield from _opening(depth, "" if key is None else "(" + key + "): ", head, children)
        if children:
            open_modules[id(module)] = key or ""
            stack.append((iter(children), module))

    yield from enter(0, None, root)
    while stack:
        children, module = stack[-1]
        item = next(children, None)
        if item is None:
            stack.pop()
            del open_modules[id(module)]
            yield len(stack), ")"
            continue
        key, child = item
        label = "(" + key + "): "  # of the class of the key, where that adds in its own way
        if type(label) is not str or not _prints_natively(child):
            yield from _foreign(len(stack), label, repr(child))
        elif id(child) in open_modules:
            names = list(open_modules.values())[1:]
            first = names[: list(open_modules).index(id(child))]
            raise RecursionError(
                f"the module tree contains itself: {'.'.join([*names, key])!r} is the module at "
                f"{'.'.join(first)!r} again, so its repr has no end"
            )
        else:
            yield from enter(len(stack), key, child)


def _prints_natively(child: Any) -> bool:
    return type(child).__repr__ is module_repr


def _open(module: Any) -> tuple[list[str], Collection[tuple[str, Any]]]:
    extra = module.extra_repr()
    try:
        table = module._modules
    except AttributeError as error:
        raise AttributeError(f"{error}; was super().__init__() called?") from None
    children = table.items()
    if type(table) is not dict and type(table) is not OrderedDict:
        children = list(children)  # what the loop gives, whatever the table says of its length
    return [module._get_name(), *(extra.split("\n") if extra else ())], children


def _opening(
    depth: int, label: str, head: list[str], children: Collection[Any]
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
    first, *rest = (label + text).split("\n")
    yield depth, first
    for line in rest:
        yield (depth, line) if line.strip() else (0, "")
