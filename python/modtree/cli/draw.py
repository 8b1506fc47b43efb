# SPDX-License-Identifier: BSD-3-Clause
"""``modtree draw`` draws the tree of a model."""

from __future__ import annotations

import argparse
import os

from modtree.cli.ending import SAME, Trouble
from modtree.cli.factory import FACTORY_HELP, model_from
from modtree.cli.options import add_output, count, describe
from modtree.files.checkpoint.progress import working
from modtree.inspection.functions import to_dot, to_mermaid, to_svg

_DESCRIPTION = """\
Builds a model and draws its tree: as SVG for pages, as DOT for Graphviz, or as a Mermaid block for
Markdown. Equal neighbours are one box.
"""
_EXAMPLES = """\
    modtree draw mypackage.models:build model.svg
    modtree draw models.py:ResNet --format mermaid --depth 2 >> README.md
    modtree draw models.py:ResNet --format dot | dot -Tpdf -o model.pdf
"""
_STATUS = "0: drawn; 2: the model cannot be made, or the file cannot be written"
_FORMATS = {"svg": to_svg, "dot": to_dot, "mermaid": to_mermaid}
_ENDINGS = {".gv": "dot", ".mmd": "mermaid", ".dot": "dot"}


def fill(parser: argparse.ArgumentParser) -> None:
    """Gives the parser of this command its arguments and its help."""
    describe(parser, _DESCRIPTION, _EXAMPLES, _STATUS)
    parser.add_argument("factory", metavar="MODULE:FACTORY", help=FACTORY_HELP)
    parser.add_argument("target", nargs="?", metavar="OUT", help="a file; stdout unless given")
    parser.add_argument(
        "--format",
        choices=[*_FORMATS],
        help="by default what the ending of OUT says (.svg, .dot, .gv, .mmd), and otherwise svg",
    )
    parser.add_argument("--depth", type=count, metavar="N", help="at most N levels")
    parser.add_argument("--all", action="store_true", help="each block, equal ones too")
    parser.add_argument("--leaves", action="store_true", help="parameters and buffers too")
    parser.add_argument("--max-boxes", type=count, default=300, metavar="N", help="default 300")
    parser.add_argument("--direction", choices=["LR", "TB"], default="LR")
    parser.add_argument("--theme", choices=["auto", "light", "dark"], default="auto")
    add_output(parser, json=False)


def execute(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Draws the model, and returns the exit status."""
    ending = os.path.splitext(options.target or "")[1].lower()
    draw = _FORMATS[options.format or _ENDINGS.get(ending, "svg")]
    model = model_from(options.factory)
    with working(f"Drawing {options.factory}"):
        try:
            text = draw(
                model,
                options.target,
                depth=options.depth,
                fold=not options.all,
                leaves=options.leaves,
                max_boxes=options.max_boxes,
                direction=options.direction,
                theme=options.theme,
            )
        except (TypeError, ValueError) as error:  # a broken tree, or a file that is no picture
            raise Trouble(str(error)) from error
    if options.target is None:
        print(text)
    return SAME
