# SPDX-License-Identifier: BSD-3-Clause
"""``modtree verify`` checks that a checkpoint is complete and fits a model."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace

from modtree.cli.ending import DIFFERENT, SAME
from modtree.cli.factory import FACTORY_HELP, model_from
from modtree.cli.options import (
    CHECKPOINT_HELP,
    add_at,
    add_inside,
    add_join,
    add_large_header,
    add_output,
    describe,
    join_rules,
)
from modtree.cli.terminal import Screen
from modtree.cli.words import in_command_words, rename_options
from modtree.files.checkpoint.progress import working
from modtree.files.checkpoint.verify import Problem, Problems, verify
from modtree.files.sources.source import source_of
from modtree.files.sources.stores import shown_name
from modtree.inspection.entries import folded
from modtree.inspection.phrases import entries_text, noun, printable

_DESCRIPTION = """\
Checks the header of a checkpoint, that every tensor is within its file, that checksums match, and
that an index agrees with its shards; with --model, that keys and shapes are those of the model.
"""
_EXAMPLES = """\
    modtree verify model.safetensors
    modtree verify folder_with_shards --finite
    modtree verify model.safetensors --model mypackage.models:build
"""
_STATUS = "0: no problem; 1: problems; 2: the file cannot be opened, or the model cannot be made"


def fill(parser: argparse.ArgumentParser) -> None:
    """Gives the parser of this command its arguments and its help."""
    describe(parser, _DESCRIPTION, _EXAMPLES, _STATUS)
    parser.add_argument("file", metavar="FILE", help=CHECKPOINT_HELP)
    parser.add_argument("--model", metavar="MODULE:FACTORY", help=FACTORY_HELP)
    parser.add_argument(
        "--finite", action="store_true", help="read all values, and name tensors with NaN or inf"
    )
    parser.add_argument("--all", action="store_true", help="a line for each problem")
    add_at(parser)
    add_join(parser)
    add_inside(parser)
    add_large_header(parser)
    add_output(parser)


def execute(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Checks the file, and returns the exit status."""
    rules = join_rules(options)
    model = None if options.model is None else model_from(options.model)
    with working(f"Checking {shown_name(options.file)}"):
        problems = verify(
            source_of(options.file, options.large_header, options.inside),
            model,
            finite=options.finite,
            at=options.at,
            join=rules,
        )
    if options.json:
        report = {
            "path": shown_name(options.file),
            "problems": list(map(vars, problems)),
            "causes": problems.causes,
            "doubts": problems.doubts,
            "notes": problems.notes,
        }
        print(json.dumps(report, indent=1))
    else:
        _show(shown_name(options.file), problems, fold=not options.all)
    return DIFFERENT if problems else SAME


def _show(file: str, problems: Problems, fold: bool) -> None:
    screen = Screen()
    for kind, text in _lines(problems, fold):
        print(f"{screen.paint(kind, 'red')}: {screen.bounded(printable(in_command_words(text)))}")
    heads = ("likely cause", "not clear", "note")
    for head, texts in zip(heads, (problems.causes, problems.doubts, problems.notes), strict=True):
        for text in texts:
            shown = screen.bounded(printable(_as_command(text, file)))
            print(f"{screen.paint(head, 'bold')}: {shown}")
    found = noun(len(problems), "problem") if problems else screen.paint("no problem", "green")
    print(f"{printable(file)}: {found}")


def _as_command(cause: str, file: str) -> str:
    """A cause with the command that mends the file in the place of the call that loads it."""
    words = rename_options(cause)
    if words is None:
        return cause
    found = cause.partition(". Try: ")[0]
    left = re.search(", (which leaves .*)", cause)
    command = f"modtree convert {shlex.quote(file)} NEW.safetensors {' '.join(words)}"
    return f"{found}. Try: {command}{f' ({left[1]})' if left else ''}"


def _lines(problems: list[Problem], fold: bool) -> Iterator[tuple[str, str]]:
    """The kind and the text of each problem, or of those that differ in numbers of keys alone."""
    alike: dict[Problem, list[str]] = {}
    for problem in problems:
        alike.setdefault(replace(problem, key=None), []).append(problem.key or "")
    for problem, keys in alike.items():
        for text, group in folded(keys, fold):
            times = f" ({entries_text(len(group))})" if len(group) > 1 else ""
            yield problem.kind, f"{replace(problem, key=text or None)}{times}"
