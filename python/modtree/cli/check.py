# SPDX-License-Identifier: BSD-3-Clause
"""``modtree check`` lists likely mistakes in a model."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from modtree.cli.ending import DIFFERENT, SAME
from modtree.cli.factory import FACTORY_HELP, forward_trouble, model_from
from modtree.cli.options import add_input, add_output, describe, given_input
from modtree.files.checkpoint.progress import working
from modtree.inspection.functions import check
from modtree.inspection.inputs import arguments_of
from modtree.inspection.phrases import printable
from modtree.inspection.tree import read_tree

_DESCRIPTION = """\
Builds a model and lists likely mistakes in it: tensors and modules that the tree does not see,
wrong flags, NaN, shared memory, hooks left behind; with --input-shape also parameters that no
output depends on.
"""
_EXAMPLES = """\
    modtree check mypackage.models:build
    modtree check models.py:ResNet --input-shape 1,3,224,224
"""
_STATUS = "0: nothing found; 1: likely mistakes; 2: the model cannot be made, or refuses the input"


def fill(parser: argparse.ArgumentParser) -> None:
    """Gives the parser of this command its arguments and its help."""
    describe(parser, _DESCRIPTION, _EXAMPLES, _STATUS)
    parser.add_argument("factory", metavar="MODULE:FACTORY", help=FACTORY_HELP)
    add_input(parser, "look for unused parameters in a forward")
    add_output(parser)


def execute(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Shows what was found, and returns the exit status."""
    shapes, dtypes = given_input(options, parser)
    model = model_from(options.factory)
    with working(f"Checking {options.factory}"), forward_trouble():
        example = None
        if shapes is not None:
            example, _ = arguments_of(read_tree(model), shapes, dtypes=dtypes)
        found = check(model, example)
    if options.json:
        print(json.dumps([asdict(finding) for finding in found], indent=1))
    else:
        print("\n".join(map(printable, str(found).splitlines())))
    return DIFFERENT if found else SAME
