# SPDX-License-Identifier: BSD-3-Clause
"""The first moments of ``modtree run``: it reads its words and becomes the program's Python.

A program is run by python itself: ``os.execve`` replaces the Python that has read the words by one
with the options and the program that they name. All that the program sees of python (``__main__``,
``sys``, tracebacks, exit statuses) is python's own. The environment tells ``dropin/site`` to put
the native class under torch in it.

Only ``os`` and ``sys`` are used here, which every Python imports before anything else: the folder
that ``python -m`` puts on the path may hold files with the names of other modules.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import FrameType

#: The folder whose ``sitecustomize`` starts the drop-in in a process that finds it on its path.
SITE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "dropin", "site")

# Set for processes that are to have the drop-in, and for the one that reports at its end.
_DROPIN, _REPORT = "MODTREE_DROPIN", "MODTREE_DROPIN_REPORT"

_SWITCHES = ("--off", "--report", "--compare")
# Options of python: alone, with a value, and those that need no program. Python itself refuses what
# its version does not know.
_ALONE, _WITH_VALUE, _INSTEAD = "bBdEIJOPqRsStuvx", "XW", "iV"
_LONG_WITH_VALUE = ("--check-hash-based-pycs",)
_LONG_INSTEAD = ("--version", "--help-all", "--help-env", "--help-xoptions")


class UsageError(Exception):
    """The words do not say which program to run."""


class Words:
    """What the words after ``modtree run``, or after ``python``, ask for.

    Attributes:
        switches: Those of modtree (``--off`` and its kind).
        options: The words with options of python; ``-um module`` has ``-u``.
        letters: The options of one letter among them.
        kind: "-m", "-c", "script" (a file, a folder, or ``-``), or "" where no program is named.
        program: The module, the code or the path.
        arguments: Those of the program.
        as_given: All words but the switches.
        rounds: How often ``--compare`` runs the program on each side; 0 without ``--rounds``.
        wants_help: Whether they ask for help.
        needs_program: Whether python has something to do without one.
    """

    def __init__(self) -> None:
        self.switches: list[str] = []
        self.options: list[str] = []
        self.letters = ""
        self.kind = self.program = ""
        self.arguments: list[str] = []
        self.as_given: list[str] = []
        self.rounds = 0
        self.wants_help = False
        self.needs_program = True


def read(given: Sequence[str]) -> Words:
    """Reads words as python reads its own, with modtree's switches among the options.

    Raises:
        UsageError: An option that is neither python's nor modtree's, or one without its value.
    """
    words, rest = Words(), list(given)
    while rest and not words.kind:
        word = rest.pop(0)
        if word in _SWITCHES:
            words.switches.append(word)
            continue
        option, equals, value = word.partition("=")
        if option == "--rounds":
            words.rounds = _read_rounds(value if equals else rest.pop(0) if rest else "")
            continue
        words.as_given.append(word)
        if word == "--" and rest:
            word = rest.pop(0)
            words.as_given.append(word)
            _take_program(words, "script", word, rest)
        elif word == "-" or not word.startswith("-"):
            _take_program(words, "script", word, rest)
        elif word.startswith("--"):
            _read_long(words, word, rest)
        else:
            _read_letters(words, word, rest)
    return words


def _read_rounds(value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise UsageError(f"--rounds expects a number of runs, such as 3, and got {value!r}")
    return int(value)


def _take_program(words: Words, kind: str, program: str, arguments: list[str]) -> None:
    words.kind, words.program, words.arguments = kind, program, arguments
    words.as_given += arguments


def _value(words: Words, option: str, rest: list[str]) -> str:
    if not rest:
        raise UsageError(f"{option} expects a value")
    words.as_given.append(rest[0])
    return rest.pop(0)


def _read_long(words: Words, word: str, rest: list[str]) -> None:
    if word == "--help":
        words.wants_help = True
    elif word in _LONG_WITH_VALUE:
        words.options += [word, _value(words, word, rest)]
    elif word in _LONG_INSTEAD:
        words.options.append(word)
        words.needs_program = False
    elif word != "--":
        raise UsageError(f"unknown option {word}")


def _read_letters(words: Words, word: str, rest: list[str]) -> None:
    """``-u``, ``-Wignore``, ``-X dev``, ``-OO``, ``-um module``: options of one letter."""
    for index, letter in enumerate(word[1:], 1):
        option, glued = f"-{letter}", word[index + 1 :]
        if letter in "cm":
            if index > 1:
                words.options.append(word[:index])
            _take_program(words, option, glued or _value(words, option, rest), rest)
            return
        words.letters += letter
        if letter in _WITH_VALUE:
            words.options += [word] if glued else [word, _value(words, option, rest)]
            return
        if letter in "h?":
            words.wants_help = True
        elif letter in _INSTEAD:
            words.needs_program = False
        elif letter not in _ALONE:
            raise UsageError(f"unknown option {option}")
    words.options.append(word)


def check(words: Words) -> None:
    """Raises UsageError for words that name no program, or two."""
    switches = sorted(set(words.switches))
    if len(switches) > 1:
        raise UsageError(f"{' and '.join(switches)} exclude each other: give one of them")
    if words.rounds and "--compare" not in switches:
        raise UsageError("--rounds goes with --compare")
    if not words.kind and words.needs_program:
        raise UsageError("which program? give a script, -m module, -c code, or - for its input")
    if (words.kind, words.program) in (("-m", "-c"), ("-c", "-m")):
        raise UsageError("-m and -c are two programs: give one of them")


def is_missing(words: Words) -> bool:
    """Whether the program is a script that is not there."""
    return words.kind == "script" and words.program != "-" and not os.path.exists(words.program)


# -- the process of the program --------------------------------------------------------------------


def with_dropin(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a Python process that is to have the drop-in."""
    path = environ.get("PYTHONPATH", "")
    if SITE not in path.split(os.pathsep):
        path = SITE + (os.pathsep + path if path else "")
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return {**environ, "PYTHONPATH": path, _DROPIN: f"{sys.prefix}:{version}"}


def without_dropin(environ: Mapping[str, str]) -> dict[str, str]:
    """That of one that is not to have it, though this one's parent may have it."""
    changed = {key: value for key, value in environ.items() if key not in (_DROPIN, _REPORT)}
    path = changed.get("PYTHONPATH", "").split(os.pathsep)
    if SITE in path:
        del changed["PYTHONPATH"]
        if others := [entry for entry in path if entry != SITE]:
            changed["PYTHONPATH"] = os.pathsep.join(others)
    return changed


def _as_found(environ: Mapping[str, str]) -> dict[str, str]:
    """Without what this Python wrote there when it started: in the C locale python takes UTF-8 mode
    and sets LC_CTYPE to a locale in which the next Python would not.
    """
    is_coerced = environ.get("LC_CTYPE") in ("C.UTF-8", "C.utf8", "UTF-8")
    is_kept = environ.get("LC_ALL") or environ.get("PYTHONCOERCECLOCALE") == "0"
    if sys.flags.utf8_mode and is_coerced and not is_kept:
        return {**environ, "LC_CTYPE": "C"}
    return dict(environ)


def environment(words: Words) -> dict[str, str]:
    """The environment in which the program runs."""
    changed = without_dropin(_as_found(os.environ))
    if "--off" in words.switches:
        return changed
    return {**with_dropin(changed), **({_REPORT: "1"} if "--report" in words.switches else {})}


def command_line(words: Words) -> list[str]:
    """The words of the process that runs the program: this Python's options hold in it too."""
    before = read(sys.orig_argv[1:])
    python = sys.orig_argv[0]
    given = [*before.options, *words.as_given]
    letters = before.letters + words.letters
    has_site = not any(letter in letters for letter in "EIS")
    if "--off" in words.switches or has_site or not (words.kind or "i" in letters):
        return [python, *given]
    # PYTHONPATH or sitecustomize are out of use: a line of code starts the drop-in, and then does
    # what python's main does.
    line = f"__import__('sys').path.insert(0, {SITE!r}); __import__('_modtree_main').start()"
    kind = "-x" if words.kind == "script" and "x" in letters else words.kind
    program = [kind, words.program, str(len(words.arguments))]
    return [python, *before.options, *words.options, "-c", line, *program, *given]


def become(words: Words) -> None:
    """Runs the program in the place of this Python. Does not return."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    if os.name != "nt":
        os.execve(sys.executable, command_line(words), environment(words))
    # execve() of Windows starts a second process and ends this one, on which somebody waits.
    import signal
    import subprocess

    process = subprocess.Popen(
        command_line(words), executable=sys.executable, env=environment(words)
    )
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(process.wait())


def is_own_process(caller: FrameType) -> bool:
    """Whether this Python was started to run the command. Otherwise it belongs to what calls
    ``main()``: a debugger, a profiler, a program.

    Args:
        caller: The frame that calls ``main()``.
    """
    below = []
    frame = caller.f_back
    while frame is not None:
        below.append(frame.f_code.co_name)
        frame = frame.f_back
    is_bottom = below in ([], ["_run_code", "_run_module_as_main"])  # of a script; of -m, or a zip
    return is_bottom and caller.f_globals.get("__name__") == "__main__" and bool(sys.executable)


def become_the_program() -> None:
    """In a Python that was started as ``modtree run`` and asks for a program: become(), before the
    rest of modtree is imported. Returns in any other.
    """
    if getattr(sys, "argv", [])[1:2] != ["run"] or not sys.executable:
        return
    try:
        started = read(sys.orig_argv[1:])
        if not _is_command(started):
            return
        if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
            del sys.path[
                0
            ]  # the working folder, or that of the command: nothing is to come from it
        words = read(sys.argv[2:])
        check(words)
    except UsageError:  # which the command says in its own time
        return
    if not (words.wants_help or "--compare" in words.switches or is_missing(words)):
        _say_which_python_runs(started)
        become(words)


def _is_command(started: Words) -> bool:
    """True for ``python -m modtree run``, and for the script that pip writes."""
    if started.arguments != sys.argv[1:]:
        return False
    if started.kind == "-m":
        return started.program == "modtree"
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
    is_named = os.path.basename(started.program) == "modtree"
    return started.kind == "script" and is_named and "modtree.cli" in frame.f_code.co_names


def _say_which_python_runs(started: Words) -> None:
    """Where the shell has found the command outside of the active environment, one line."""
    active = os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX")
    if started.kind != "script" or not active or sys.stderr is None:
        return
    python = os.path.join(active, "bin", "python")
    if os.path.realpath(active) == os.path.realpath(sys.prefix) or not os.path.exists(python):
        return
    on_path = (os.path.join(p, "modtree") for p in os.environ.get("PATH", "").split(os.pathsep))
    found = next((path for path in on_path if os.path.isfile(path)), None)
    if found is not None and os.path.samefile(found, started.program):
        sys.stderr.write(
            f"modtree run: this runs {sys.executable}, the Python of {found}, and not that of the "
            f"active environment {active}: to run there, {python} -m pip install modtree\n"
        )
