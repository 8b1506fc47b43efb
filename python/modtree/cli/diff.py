# SPDX-License-Identifier: BSD-3-Clause
"""``modtree diff`` compares two checkpoints."""

from __future__ import annotations

import argparse
import json
import shlex

from modtree.cli.ending import DIFFERENT, SAME, Trouble
from modtree.cli.options import (
    CHECKPOINT_HELP,
    RULE_HELP,
    add_inside,
    add_join,
    add_large_header,
    add_output,
    describe,
    join_rules,
    rename_rule,
    tolerance,
)
from modtree.cli.terminal import Screen
from modtree.files.checkpoint.base import CheckpointError
from modtree.files.checkpoint.progress import working
from modtree.files.sources.source import source_of
from modtree.inspection.comparison.result import Diff
from modtree.inspection.functions import compare
from modtree.inspection.phrases import printable

_DESCRIPTION = """\
Compares two checkpoints tensor by tensor: keys, shapes, dtypes and values, values that are not
tensors, and the versions of modules. Keys that differ in their numbers alone share a line.
"""
_EXAMPLES = """\
    modtree diff before.safetensors after.safetensors
    modtree diff model.pt model.safetensors --rtol 1e-3 --atol 1e-6
    modtree diff ddp.pt plain.pt --rename module.=
    modtree diff last.ckpt best.ckpt --at optimizer
    modtree diff a.safetensors b.safetensors --no-values --quiet && echo same keys
"""
_STATUS = "0: nothing differs; 1: something does; 2: a file cannot be read"


def fill(parser: argparse.ArgumentParser) -> None:
    """Gives the parser of this command its arguments and its help."""
    describe(parser, _DESCRIPTION, _EXAMPLES, _STATUS)
    parser.add_argument("a", metavar="A", help=CHECKPOINT_HELP)
    parser.add_argument("b", metavar="B", help="the other")
    parser.add_argument(
        "--rtol",
        type=tolerance,
        default=0.0,
        metavar="X",
        help="elements are equal if |a - b| <= atol + rtol * |b|; default 0",
    )
    parser.add_argument("--atol", type=tolerance, default=0.0, metavar="X", help="see --rtol")
    parser.add_argument(
        "--no-values", action="store_true", help="compare only keys, shapes and dtypes"
    )
    parser.add_argument(
        "--rename", action="append", type=rename_rule, metavar="OLD=NEW", help=f"of A: {RULE_HELP}"
    )
    parser.add_argument("--all", action="store_true", help="a line for each key")
    parser.add_argument(
        "--at",
        action="append",
        metavar="PART",
        help="the part of training checkpoints: ema, optimizer; by default the model. Given "
        "twice: the part of A and that of B, '' for the model",
    )
    add_join(parser)
    add_inside(parser)
    add_large_header(parser)
    add_output(parser)


def execute(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Compares, and returns the exit status."""
    try:
        with working("Comparing"):
            found = compare(
                source_of(options.a, options.large_header, options.inside),
                source_of(options.b, options.large_header, options.inside),
                rtol=options.rtol,
                atol=options.atol,
                values=not options.no_values,
                rename=options.rename,
                at=_parts(options.at),
                join=join_rules(options),
            )
    except CheckpointError as error:
        if options.at is None or len(options.at) > 1 or "no part" not in error.reason:
            raise
        part = shlex.quote(options.at[0])
        both = f"--at {part} --at ''" if error.file == options.b else f"--at '' --at {part}"
        raise Trouble(f"{error}; of A and of B: {both}, where '' is the model") from None
    except ValueError as error:  # of two keys that --rename makes one
        raise Trouble(str(error)) from None
    if options.json:
        print(json.dumps(found.to_dict(), indent=1))
    else:
        _show(found, fold=not options.all)
    return DIFFERENT if found else SAME


def _parts(given: list[str] | None) -> tuple[str | None, str | None] | None:
    """The part of each side."""
    if given is None:
        return None
    if len(given) > 2:
        raise Trouble("--at is given for A and for B at most")
    return given[0] or None, given[-1] or None


def _show(found: Diff, fold: bool) -> None:
    screen = Screen()
    for line in found.to_text(fold).splitlines():
        line = screen.bounded(line.partition(": rename={")[0])  # the words for it follow
        print(line if line.startswith("  ") else screen.paint(line, "bold"))
    if found.likely_rename:
        rules = [shlex.quote(f"{old}={new}") for old, new in found.likely_rename.items()]
        print(printable(" ".join(["try:", *(f"--rename {rule}" for rule in rules)])))
