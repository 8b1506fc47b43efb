# SPDX-License-Identifier: BSD-3-Clause
"""The command line ``modtree``: one file for each command, imported when it is asked for.

The file of a command has ``fill(parser)``, which gives its parser the arguments and the help, and
``execute(options, parser)``, which does the work and returns the exit status. ``run``, whose words
are partly python's, has ``start()`` instead.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import shlex
import sys
from collections.abc import Container, Sequence
from typing import Any

from modtree._C import __version__
from modtree.cli.ending import ended_well
from modtree.cli.words import Parser

__all__ = ["COMMANDS", "main", "make_parser"]

#: Each command, which is the name of its file, and its line in the help.
COMMANDS = {
    "run": "run a torch program on modtree's Module",
    "inspect": "show what a checkpoint contains",
    "diff": "compare two checkpoints",
    "convert": "write a checkpoint in another format, dtype or number of files",
    "verify": "check that a checkpoint is complete and fits a model",
    "summary": "show the tree of a model, its parameters and what its layers compute",
    "check": "list likely mistakes in a model",
    "draw": "draw the tree of a model",
}

_EPILOG = "modtree COMMAND --help shows the options of a command, with examples."


def main(arguments: Sequence[str] | None = None) -> int:
    """Does what the arguments (those of the process by default) ask for.

    Returns the exit status.
    """
    if "_ARGCOMPLETE" in os.environ:  # a shell asks what the command may go on with
        typed = os.environ.get("COMP_LINE", "").split()
        importlib.import_module("argcomplete").autocomplete(make_parser(typed[1:2]))
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = make_parser(given[:1])
    if given[:1] == ["run"]:  # the words, the errors and the output are the program's own
        caller = sys._getframe(1) if arguments is None else None
        return _file_of("run").start(given[1:], parser.parse_args(given[:1]).parser, caller)
    if given[:1] and given[0] not in COMMANDS and os.path.exists(given[0]):
        parser.error(
            f"{given[0]!r} is a file, and a command is expected before it: modtree inspect "
            f"{shlex.quote(given[0])}"
        )
    options, unknown = parser.parse_known_args(given)
    if options.command is None:
        parser.refuse(unknown) if unknown else parser.print_help()
        return 0
    if unknown:
        options.parser.refuse(unknown)
    return ended_well(_file_of(options.command).execute, options)


def make_parser(filled: Container[str] = COMMANDS) -> Parser:
    """The parser of all commands.

    Args:
        filled: The commands whose files are imported, for their arguments.
    """
    parser = Parser(
        prog="modtree",
        description="Shows, compares, converts and checks checkpoints and models, and runs torch\n"
        "programs on modtree's Module.",
        epilog=_EPILOG,
        formatter_class=functools.partial(argparse.HelpFormatter, max_help_position=30),
    )
    parser.add_argument("--version", action="version", version=f"modtree {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    for name, line in COMMANDS.items():
        own = commands.add_parser(name, help=line)
        own.set_defaults(parser=own)
        if name in filled:
            _file_of(name).fill(own)
    return parser


def _file_of(command: str) -> Any:
    return importlib.import_module(f"modtree.cli.{command}")
