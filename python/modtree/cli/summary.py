# SPDX-License-Identifier: BSD-3-Clause
"""``modtree summary`` shows the tree of a model."""

from __future__ import annotations

import argparse
import json
from typing import Any

from modtree.cli.ending import DIFFERENT, SAME
from modtree.cli.factory import FACTORY_HELP, forward_trouble, model_from
from modtree.cli.options import add_input, add_output, count, describe, given_input, pattern
from modtree.editing.selections import find
from modtree.files.checkpoint.progress import working
from modtree.inspection.functions import summary
from modtree.inspection.summary.table import COLUMNS

_DESCRIPTION = """\
Builds a model and shows its tree: classes, parameters and bytes, and with --input-shape the shapes
and multiply-adds of a forward. Equal blocks are shown once.
"""
_EXAMPLES = """\
    modtree summary mypackage.models:build
    modtree summary models.py:ResNet --input-shape 1,3,224,224
    modtree summary mypackage.models:build --depth 2 --json
    modtree summary mypackage.models:build --find 'layers.*.attn.{q,k}_proj'
"""
_STATUS = "0: shown; 1: nothing found; 2: the model cannot be made, or refuses the input"


def fill(parser: argparse.ArgumentParser) -> None:
    """Gives the parser of this command its arguments and its help."""
    describe(parser, _DESCRIPTION, _EXAMPLES, _STATUS)
    parser.add_argument("factory", metavar="MODULE:FACTORY", help=FACTORY_HELP)
    add_input(parser, "run the model")
    parser.add_argument("--depth", type=count, metavar="N", help="at most N levels")
    parser.add_argument("--times", action="store_true", help="the time that each module takes")
    parser.add_argument(
        "--columns",
        metavar="NAMES",
        help="the columns: 'all', or names from " + ", ".join(COLUMNS),
    )
    parser.add_argument("--all", action="store_true", help="each block, equal ones too")
    parser.add_argument(
        "--find",
        action="append",
        type=pattern,
        metavar="PATTERN",
        help="the modules that match instead: 'layers.*.mlp', '**.{q,k}_proj', 'layers[4:8].**'",
    )
    add_output(parser)


def execute(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Shows the model, and returns the exit status."""
    shapes, dtypes = given_input(options, parser)
    if shapes is None and options.times:
        parser.error("--times needs --input-shape: without it the model is not run")
    model = model_from(options.factory)
    if options.find is not None:
        return _find(model, options)
    given: dict[str, Any] = {"depth": options.depth, "fold": not options.all}
    if options.columns is not None:
        names = [name.strip() for name in options.columns.split(",")]
        given["columns"] = "all" if names == ["all"] else names
    if shapes is not None:
        given.update(times=options.times, dtypes=dtypes)
    with working(f"Running {options.factory}"), forward_trouble():
        found = summary(model, shapes, **given)
    if options.json:
        print(json.dumps(found.to_dict(), indent=1))
    else:
        found.show()
    return SAME


def _find(model: Any, options: argparse.Namespace) -> int:
    """Shows what matches patterns."""
    found = find(model, options.find)
    if options.json:
        answer = [{"path": path, "class": type(module).__name__} for path, module in found]
        print(json.dumps(answer, indent=1))
    else:
        print(repr(found))
    return SAME if len(found) else DIFFERENT
