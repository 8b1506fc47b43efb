# SPDX-License-Identifier: BSD-3-Clause
"""What a person typed and what the functions say, in the words of the command line."""

from __future__ import annotations

import argparse
import ast
import difflib
import re
import shlex
from collections.abc import Iterable, Iterator
from typing import NoReturn

#: Arguments of functions -> the options that give them.
_OPTIONS = {
    r"rename gives": "--rename gives",
    r"\w+=\S+ \((--[a-z-]+)\)": r"\1",
    r"modtree\.load_file\(.*\) or (--join)\b": r"\1",
    r"at= or (--at)\b": r"\1",
    r"atomic=False": "--in-place",
    r"\bjoin=": "--join",
    r"\binput_shape\b": "--input-shape",
    r"\bdtypes\b": "--dtype",
}


def in_command_words(text: str) -> str:
    """A message of a function, with options in the place of its arguments."""
    for argument, option in _OPTIONS.items():
        text = re.sub(argument, option, text)
    return text


def rename_options(advice: str) -> list[str] | None:
    """The words for a shell that do what ``rename={...}`` in a text does; None without one."""
    start = advice.find("rename={")
    if start < 0:
        return None
    text = advice[start + len("rename=") :]
    for end in (match.end() for match in re.finditer("}", text)):
        try:
            rules = ast.parse(text[:end], mode="eval").body
        except SyntaxError:  # a brace in a name
            continue
        assert isinstance(rules, ast.Dict)
        return [word for rule in _rules(rules) for word in ("--rename", shlex.quote(rule))]
    return None


def _rules(rules: ast.Dict) -> Iterator[str]:
    for old, new in zip(rules.keys, rules.values, strict=True):
        if isinstance(old, ast.Call):  # re.compile("...")
            yield f"/{ast.literal_eval(old.args[0])}/={ast.literal_eval(new)}"
        else:
            assert old is not None
            yield f"{ast.literal_eval(old)}={ast.literal_eval(new)}"


def near_name(name: str, names: Iterable[str]) -> str:
    """``; did you mean inspect?``, or nothing where no name is near."""
    near = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {near[0]}?" if near else ""


class Parser(argparse.ArgumentParser):
    """A parser that names a command or an option that is nearly what was typed."""

    def error(self, message: str) -> NoReturn:
        """Ends with a message, which argparse would fill with the names of all commands."""
        wrong = re.match(r"argument command: invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if wrong is not None:
            names = re.findall(r"[\w-]+", wrong[2])
            message = f"there is no command {wrong[1]!r}{near_name(wrong[1], names)}"
        super().error(message)

    def refuse(self, words: list[str]) -> NoReturn:
        """Ends with an error about words that no argument takes."""
        names = {name for action in self._actions for name in action.option_strings}
        near = [near_name(word.partition("=")[0], names) for word in words if word[:1] == "-"]
        self.error(f"unrecognized arguments: {' '.join(words)}{''.join(near)}")
