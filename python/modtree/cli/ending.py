# SPDX-License-Identifier: BSD-3-Clause
"""How a command ends: with its status, or with one line that says what is wrong."""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import os
import sys
import warnings
from collections.abc import Callable

from modtree.cli.words import in_command_words
from modtree.files.checkpoint.base import CheckpointError
from modtree.files.checkpoint.progress import shows_progress
from modtree.inspection.phrases import printable

SAME, DIFFERENT, TROUBLE = 0, 1, 2  # as diff(1) has them
_INTERRUPTED, _NO_READER = 130, 141  # as a shell reports the two signals


class Trouble(Exception):
    """What the user gave cannot be used: the command ends with this text and status 2."""


def ended_well(
    execute: Callable[[argparse.Namespace, argparse.ArgumentParser], int],
    options: argparse.Namespace,
) -> int:
    """The exit status of a command. Input that cannot be read is one line on stderr; a reader
    that went away, as ``head`` does, ends the output without a word.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name that the encoding lacks is not a reason
            stream.reconfigure(errors="backslashreplace")
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())
            warnings.showwarning = functools.partial(_show_warning, options.command)
            stack.enter_context(shows_progress(False if options.quiet else options.progress))
            if options.quiet:
                nowhere = stack.enter_context(open(os.devnull, "w"))
                stack.enter_context(contextlib.redirect_stdout(nowhere))
            status = execute(options, options.parser)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        _discard_output()
        return _NO_READER
    except KeyboardInterrupt:
        return _INTERRUPTED
    except (Trouble, CheckpointError) as error:
        text = in_command_words(str(error))
    except MemoryError:
        text = "there is not enough memory"
    except OSError as error:
        reason = error.strerror or str(error)
        text = reason if error.filename is None else f"{error.filename}: {reason}"
        if error.filename is None:  # of stdout itself: its disk is full
            _discard_output()
    print(f"modtree {options.command}: {printable(' '.join(text.splitlines()))}", file=sys.stderr)
    return TROUBLE


def _show_warning(command: str, warning: Warning | str, *_where: object) -> None:
    print(f"modtree {command}: {printable(str(warning))}", file=sys.stderr, flush=True)


def _discard_output() -> None:
    """Points stdout nowhere: Python flushes it once more when it ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
