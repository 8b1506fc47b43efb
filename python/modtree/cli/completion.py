# SPDX-License-Identifier: BSD-3-Clause
"""``modtree completion`` prints a script that completes the commands in a shell."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from modtree import cli
from modtree.cli.ending import SAME
from modtree.cli.options import describe

__all__ = ["execute", "fill"]

_DESCRIPTION = """\
Prints a script for a shell that completes the commands of modtree and their options.
"""
_EXAMPLES = """\
    eval "$(modtree completion bash)"                                        # in ~/.bashrc
    eval "$(modtree completion zsh)"                                         # in ~/.zshrc
    modtree completion fish > ~/.config/fish/completions/modtree.fish
"""
_STATUS = "0: printed"


def fill(parser: argparse.ArgumentParser) -> None:
    """Gives the parser of this command its arguments and its help."""
    describe(parser, _DESCRIPTION, _EXAMPLES, _STATUS)
    parser.add_argument("shell", choices=list(_SCRIPTS), help="for which shell")


def execute(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Prints the script, and returns the exit status."""
    print("\n".join(_SCRIPTS[options.shell](_commands())))
    return SAME


class _Option(NamedTuple):
    names: list[str]
    help: str
    has_value: bool
    choices: list[str]


class _Command(NamedTuple):
    name: str
    help: str
    options: list[_Option]
    words: list[str]  # what a positional argument may be, where that is no file


def _commands() -> list[_Command]:
    parser = cli.make_parser()
    found = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, own in action.choices.items():
                options = [_option(a) for a in own._actions if a.option_strings]
                places = [a for a in own._actions if not a.option_strings]
                words = [str(w) for a in places for w in a.choices or ()]
                found.append(_Command(name, cli.COMMANDS[name], options, words))
    return found


def _option(action: argparse.Action) -> _Option:
    choices = [str(choice) for choice in action.choices or ()]
    return _Option(list(action.option_strings), action.help or "", action.nargs != 0, choices)


def _bash(commands: list[_Command]) -> Iterator[str]:
    names = " ".join(command.name for command in commands)
    yield "_modtree() {"
    yield '    local current="${COMP_WORDS[COMP_CWORD]}" words='
    yield '    local before="${COMP_WORDS[COMP_CWORD-1]}"'
    yield "    if ((COMP_CWORD == 1)); then"
    yield f'        words="{names} --help --version"'
    yield "    else"
    yield '        case "${COMP_WORDS[1]} $before" in'
    for command in commands:
        for option in command.options:
            if option.choices:
                pattern = "|".join(shlex.quote(f"{command.name} {n}") for n in option.names)
                yield f'            {pattern}) words="{" ".join(option.choices)}" ;;'
    yield '            *) case "${COMP_WORDS[1]}" in'
    for command in commands:
        options = " ".join(name for option in command.options for name in option.names)
        words = f' || words="{" ".join(command.words)}"' if command.words else ""
        yield f'                {command.name}) [[ $current == -* ]] && words="{options}"{words} ;;'
    yield "            esac ;;"
    yield "        esac"
    yield "    fi"
    yield '    COMPREPLY=($(compgen -W "$words" -- "$current"))'
    yield "}"
    yield "complete -o default -F _modtree modtree"  # files where no word is offered


def _zsh(commands: list[_Command]) -> Iterator[str]:
    yield "#compdef modtree"
    yield "_modtree() {"
    yield "    local -a commands"
    yield "    commands=("
    for command in commands:
        yield f"        {shlex.quote(f'{command.name}:{command.help}')}"
    yield "    )"
    yield "    if ((CURRENT == 2)); then"
    yield "        _describe command commands"
    yield "        return"
    yield "    fi"
    yield "    shift words"
    yield "    ((CURRENT--))"
    yield "    case $words[1] in"
    for command in commands:
        specs = [_zsh_option(name, o) for o in command.options for name in o.names]
        specs.append(
            f"*:argument:({' '.join(command.words)})" if command.words else "*:file:_files"
        )
        yield f"        {command.name}) _arguments {' '.join(map(shlex.quote, specs))} ;;"
    yield "    esac"
    yield "}"
    yield "compdef _modtree modtree"


def _zsh_option(name: str, option: _Option) -> str:
    text = "".join(f"\\{c}" if c in "[]:\\" else c for c in option.help)
    offered = f"({' '.join(option.choices)})" if option.choices else ""
    return f"*{name}[{text}]" + (f":value:{offered}" if option.has_value else "")


def _fish(commands: list[_Command]) -> Iterator[str]:
    for command in commands:
        text = _fish_quoted(command.help)
        yield f"complete -c modtree -f -n __fish_use_subcommand -a {command.name} -d {text}"
    for command in commands:
        where = f"complete -c modtree -n '__fish_seen_subcommand_from {command.name}'"
        for option in command.options:
            names = " ".join(
                f"-l {n[2:]}" if n[:2] == "--" else f"-s {n[1:]}" for n in option.names
            )
            values = f" -x -a {_fish_quoted(' '.join(option.choices))}" if option.choices else " -r"
            value = values if option.has_value else ""
            yield f"{where} {names}{value} -d {_fish_quoted(option.help)}"
        if command.words:
            yield f"{where} -f -a {_fish_quoted(' '.join(command.words))}"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
