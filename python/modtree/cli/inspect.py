# SPDX-License-Identifier: BSD-3-Clause
"""``modtree inspect`` shows what a checkpoint holds."""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import functools
import json
import math
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from modtree.cli.ending import DIFFERENT, SAME
from modtree.cli.options import (
    CHECKPOINT_HELP,
    add_at,
    add_inside,
    add_join,
    add_large_header,
    add_output,
    count,
    describe,
    join_rules,
    near,
    pattern,
)
from modtree.cli.terminal import Screen, headline
from modtree.core.patterns import matching_paths
from modtree.files.checkpoint.base import Checkpoint, Entry, without_collections
from modtree.files.checkpoint.progress import working
from modtree.files.checkpoint.reader import open_parts
from modtree.files.pickled.stand_in import short_text
from modtree.files.sources.source import source_of
from modtree.files.sources.stores import shown_name
from modtree.inspection.entries import Branch, entry_tree
from modtree.inspection.phrases import bytes_text, entries_text, noun, printable

_DESCRIPTION = """\
Shows the tree of a checkpoint: shapes, dtypes and bytes, without reading the values. Equal blocks
are shown once. Of a training checkpoint, it lists the parts and shows the tree of the model, or of
the part that --at names. Nothing in a file is executed.
"""
_EXAMPLES = """\
    modtree inspect model.safetensors
    modtree inspect checkpoint_folder --depth 3 --sort size
    modtree inspect model.pt --match '*.bias' --dtype float32,float16 --all
    modtree inspect last.ckpt --at optimizer
    modtree inspect model.safetensors --json | jq '.[0].entries[].key'
"""
_STATUS = "0: shown; 1: no entry matches; 2: a file cannot be read"
_LONGEST_NOTE = 200
_WIDEST_NAME = 100
_MOST_DICTS = 64
_MOST_NAMES = 12
_WIDEST = 40  # letters of a shape that has a column


def fill(parser: argparse.ArgumentParser) -> None:
    """Gives the parser of this command its arguments and its help."""
    describe(parser, _DESCRIPTION, _EXAMPLES, _STATUS)
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help=CHECKPOINT_HELP,
    )
    parser.add_argument(
        "--match", action="append", metavar="GLOB", help="only keys that match, such as '*.bias'"
    )
    parser.add_argument(
        "--find",
        action="append",
        type=pattern,
        metavar="PATTERN",
        help="only keys at and below what matches: 'layers.*.mlp', 'layers[4:8].**.{q,k}_proj'",
    )
    parser.add_argument(
        "--dtype", action="append", metavar="NAME", help="only these dtypes: float32,bfloat16"
    )
    parser.add_argument("--depth", type=count, metavar="N", help="at most N levels")
    parser.add_argument("--sort", choices=["size", "name"], help="sort rows by size or name")
    parser.add_argument("--all", action="store_true", help="each entry, equal blocks too")
    parser.add_argument("--metadata", action="store_true", help="show metadata too")
    parser.add_argument("--full", action="store_true", help="values and metadata whole, not cut")
    add_at(parser)
    add_join(parser)
    add_inside(parser)
    add_large_header(parser)
    add_output(parser)


def execute(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Shows the files, and returns the exit status."""
    status, answers = SAME, []
    rules = join_rules(options)
    for number, file in enumerate(options.files):
        source = source_of(file, options.large_header, options.inside)
        with contextlib.ExitStack() as stack:
            with working(f"Reading {shown_name(file)}"):
                stack.enter_context(without_collections())
                checkpoint = stack.enter_context(open_parts(source, options.at, rules))
                options.found = options.find and matching_paths(options.find, checkpoint.keys())
                entries = _matching(checkpoint, options)
                notes = _notes(checkpoint, options)
            if checkpoint.keys() and not entries and not notes:
                status = DIFFERENT
            if options.json:
                answers.append(_for_json(checkpoint, entries, notes))
            else:
                print("\n" * (number > 0), end="")
                _show(checkpoint, entries, notes, options)
    if options.json:
        print(json.dumps(answers, indent=1))
    return status


# -- what is shown ---------------------------------------------------------------------------------


def _matches(key: str, options: argparse.Namespace) -> bool:
    globs = options.match
    if options.found is not None and key not in options.found:
        return False
    return globs is None or any(fnmatch.fnmatchcase(key, glob) for glob in globs)


def _dtypes(options: argparse.Namespace) -> set[str] | None:
    if options.dtype is None:
        return None
    return {name.strip() for names in options.dtype for name in names.split(",")}


def _matching(checkpoint: Checkpoint, options: argparse.Namespace) -> list[Entry]:
    dtypes = _dtypes(options)
    if options.match is options.found is dtypes is None:
        return list(checkpoint.entries.values())
    return [
        entry
        for key, entry in checkpoint.entries.items()
        if _matches(key, options) and (dtypes is None or entry.dtype in dtypes)
    ]


def _notes(checkpoint: Checkpoint, options: argparse.Namespace) -> list[tuple[str, str]]:
    """What does not have a tensor of its own: ties, views, and values that are not tensors."""
    dtypes = _dtypes(options)
    notes = [
        (key, printable(_note(made)))
        for key, made in checkpoint.in_parts.items()
        if key and dtypes is None and _matches(key, options)
    ]
    if not (checkpoint.ties or checkpoint.views or checkpoint.raw_values):
        return notes
    for key in filter(functools.partial(_matches, options=options), checkpoint.keys()):
        if key in checkpoint.raw_values:
            if dtypes is None:
                rows = _rows_of_value(key, checkpoint.raw_values[key])
                notes += [(k, printable(_note(value, options.full))) for k, value in rows]
        elif key not in checkpoint.entries:
            view = checkpoint.views.get(key)
            kept = checkpoint.ties[key] if view is None else view.of
            if dtypes is None or checkpoint.entries[kept].dtype in dtypes:
                text = f"= {kept}" if view is None else f"{list(view.shape)} in {kept}"
                notes.append((key, printable(text)))
    return notes


def _rows_of_value(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """A value, or each entry of the dicts in a list, such as the groups of an optimizer."""
    is_list = type(value) in (list, tuple) and 0 < len(value) <= _MOST_DICTS
    if not is_list or not all(isinstance(item, dict) and item for item in value):
        yield key, value
        return
    for number, item in enumerate(value):
        for name, inner in item.items():
            yield f"{key}.{number}.{name}", inner


def _note(value: Any, is_full: bool = False) -> str:
    return short_text(value, 1_000_000) if is_full else _cut(short_text(value))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_NOTE else f"{text[:_LONGEST_NOTE]}..."


def _for_json(
    checkpoint: Checkpoint, entries: list[Entry], notes: list[tuple[str, str]]
) -> dict[str, Any]:
    return {
        "path": str(checkpoint.path),
        "format": checkpoint.format,
        "metadata": dict(checkpoint.metadata),
        "entries": [
            {
                "key": entry.key,
                "shape": list(entry.shape),
                "dtype": entry.dtype,
                "nbytes": entry.nbytes,
                "file": str(entry.file),
                **({"files": list(entry.files)} if entry.files else {}),
            }
            for entry in entries
        ],
        "others": dict(notes),
        "parts": [
            {"name": part.name, "text": part.text, "tensors": part.tensors, "nbytes": part.nbytes}
            for part in checkpoint.parts()
        ],
        "choices": list(checkpoint.choices),
        "passed_over": list(checkpoint.passed_over),
        "nbytes": sum(entry.nbytes for entry in entries),
    }


# -- as text ---------------------------------------------------------------------------------------


@functools.lru_cache(512)  # most tensors are as large as others
def _shape_text(shape: tuple[int, ...]) -> str:
    return str(list(shape))


_size_text = functools.lru_cache(512)(bytes_text)


class _Row(NamedTuple):
    name: str
    shape: str
    dtype: str
    size: str
    is_branch: bool = False
    where: str = ""


def _show(
    checkpoint: Checkpoint,
    entries: list[Entry],
    notes: list[tuple[str, str]],
    options: argparse.Namespace,
) -> None:
    screen = Screen()
    root = entry_tree(entries, notes)
    print(screen.paint(headline(checkpoint, _count(checkpoint, entries, notes)), "bold"))
    if options.metadata:
        for key, text in checkpoint.metadata.items():
            text = text if options.full else _cut(text)
            line = f"  {printable(key)}: {printable(text)}"
            print(line if options.full else screen.shortened(line))
    if checkpoint.passed_over:
        more = len(checkpoint.passed_over) - _MOST_NAMES
        names = ", ".join(map(printable, checkpoint.passed_over[:_MOST_NAMES]))
        is_inside = ":" in checkpoint.path and not os.path.exists(checkpoint.path)
        option = "--inside" if is_inside else "--at"
        rest = f" and {more} more" if more > 0 else ""
        print(screen.bounded(f"passed over: {names}{rest}; {option} shows one"))
    _print_parts(checkpoint, screen)
    if checkpoint.choices:
        names = printable(", ".join(checkpoint.choices))
        print(screen.bounded(f"state dicts: {names}; --at shows one of them"))
        return
    if not entries and not notes:
        dtypes = {entry.dtype for entry in checkpoint.entries.values()}
        wanted = [*(options.match or ()), *(options.find or ())]
        like = near(wanted, checkpoint.keys()) or near(_dtypes(options) or (), dtypes)
        print(f"  no entry matches{like}" if checkpoint.keys() else "  no entries")
        return
    _print_rows(list(_rows(root, 0, options)), screen, options)
    if entries:
        _print_totals(entries, screen)
    stored, used = checkpoint.storage_sizes()
    if stored > 2 * used:
        print(
            f"the file has {bytes_text(stored)} of storage, of which tensors use "
            f"{bytes_text(used)}: they are views of larger ones, and clones would not be"
        )


def _count(checkpoint: Checkpoint, entries: list[Entry], notes: list[tuple[str, str]]) -> int:
    """How many entries are shown; a value may have several rows."""
    rows = [key for key, _ in notes if key not in checkpoint.in_parts]
    known = {*checkpoint.keys()} if rows else set()
    return len(entries) + len({_holder(key, known) for key in rows})


def _holder(key: str, known: set[str]) -> str:
    while key not in known and "." in key:
        key = key.rpartition(".")[0]
    return key


def _print_parts(checkpoint: Checkpoint, screen: Screen) -> None:
    """The parts of a file that holds more than what is shown."""
    if not checkpoint.left_out and checkpoint.format != "folder":
        return
    parts = checkpoint.parts()
    if not checkpoint.found_under and not checkpoint.choices:
        parts = [part for part in parts if part.name in checkpoint.left_out]
    names = [printable(part.name) for part in parts]
    width = min(max(map(len, names), default=0), 30)
    shown = f"{checkpoint.found_under}."
    for name, part in zip(names, parts, strict=True):
        text = printable(part.text)
        if part.tensors:
            text += f", {noun(part.tensors, 'tensor')}, {bytes_text(part.nbytes)}"
        is_shown = not checkpoint.choices and shown.startswith(f"{part.name}.")
        mark = "*" if is_shown else " "
        line = f"{mark} {screen.shortened(name, width).ljust(width)}  {text}"
        print(screen.shortened(line))
    if checkpoint.found_under and not checkpoint.choices:
        print(screen.paint(f"* {printable(checkpoint.found_under)}:", "bold"))


def _rows(branch: Branch, level: int, options: argparse.Namespace) -> Iterator[_Row]:
    for group in branch.groups(not options.all, options.sort):
        label, inner = group.label, group.first
        if group.count == 1:  # a.b.c on one line
            label, inner = inner.chain()
        name = "  " * (level + 1) + printable(label)
        name += f"  x {group.count:,}" if group.count > 1 else ""
        if inner.entry is not None:
            _, shape, dtype, size, *_ = inner.entry
            if not inner.keys:
                size *= group.count
            where = "" if group.count > 1 else _where(inner.entry)
            yield _Row(name, _shape_text(shape), dtype, _size_text(size), where=where)
        elif inner.note and not inner.keys:
            yield _Row(name, inner.note, "", "")
        if inner.keys:
            yield from _below(name, inner, group.count, level, options)


def _where(entry: Entry) -> str:
    """The files that hold parts of a tensor, where they are several."""
    if not entry.files:
        return ""
    names = ", ".join(printable(os.path.basename(file)) for file in entry.files)
    return f"in {names}" if len(names) <= _WIDEST else f"in {len(entry.files):,} files"


def _below(
    name: str, branch: Branch, count: int, level: int, options: argparse.Namespace
) -> Iterator[_Row]:
    is_cut = options.depth is not None and level + 1 >= options.depth
    nbytes = branch.nbytes
    each = f"{count:,} x {bytes_text(nbytes)}" if count > 1 else ""
    note = branch.note if len(branch.note) <= _WIDEST else f"{branch.note[: _WIDEST - 3]}..."
    about = entries_text(count * branch.entries) if is_cut else each or note
    yield _Row(name, about, "", bytes_text(count * nbytes), is_branch=True)
    if not is_cut:
        yield from _rows(branch, level + 1, options)


def _print_rows(rows: list[_Row], screen: Screen, options: argparse.Namespace) -> None:
    # What is longer takes its line for itself: it does not move the columns of the others.
    facts = [row for row in rows if (row.dtype or row.size) and len(row.shape) <= _WIDEST]
    shape_width = max((len(row.shape) for row in facts), default=0)
    dtype_width = max((len(row.dtype) for row in rows), default=0)
    size_width = max((len(row.size) for row in rows), default=0)
    room = _WIDEST_NAME
    if screen.width is not None:
        room = min(room, max(screen.width - shape_width - dtype_width - size_width - 6, 20))
    name_width = max((len(row.name) for row in rows if len(row.name) <= room), default=room)
    lines = []
    for row in rows:
        name = row.name if screen.width is None else screen.shortened(row.name, room)
        padding = " " * (name_width - len(name))
        line = (screen.paint(name, "bold") if row.is_branch else name) + padding
        most = None if screen.width is None or row.size else screen.width - len(name + padding) - 2
        most = None if options.full else most
        line += "  " + screen.shortened(row.shape, most).ljust(shape_width)
        line += "  " + screen.paint(row.dtype, "cyan") + " " * (dtype_width - len(row.dtype))
        line += "  " + row.size.rjust(size_width) + (f"  {row.where}" if row.where else "")
        lines.append(line.rstrip())
    print("\n".join(lines))


def _print_totals(entries: list[Entry], screen: Screen) -> None:
    sizes: Counter[str] = Counter()
    elements: Counter[str] = Counter()
    alike = Counter((entry.dtype, entry.shape, entry.nbytes) for entry in entries)
    for (dtype, shape, nbytes), times in alike.items():
        sizes[dtype] += times * nbytes
        elements[dtype] += times * math.prod(shape)
    each = "; ".join(
        f"{dtype}: {noun(elements[dtype], 'element')}, {bytes_text(nbytes)}"
        for dtype, nbytes in sizes.most_common()
    )
    every = noun(sum(elements.values()), "element")
    total = f"total: {every}, {bytes_text(sum(sizes.values()))}"
    print(screen.paint(total, "bold") + (f" ({each})" if len(sizes) > 1 else ""))
