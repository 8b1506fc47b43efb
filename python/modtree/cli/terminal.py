# SPDX-License-Identifier: BSD-3-Clause
"""What the terminal behind stdout can show, and the line that names a checkpoint."""

from __future__ import annotations

import os
import shutil
import sys

from modtree.files.checkpoint.base import Checkpoint
from modtree.inspection.phrases import entries_text, noun, printable

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class Screen:
    """Attributes:
    width: columns of the terminal; None where stdout is none, and nothing is shortened.
    colours: whether text is coloured: on a terminal that can, without NO_COLOR.
    """

    def __init__(self) -> None:
        is_terminal = sys.stdout.isatty()
        self.width = shutil.get_terminal_size().columns if is_terminal else None
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb"
        self.colours = is_terminal and not plain

    def paint(self, text: str, colour: str) -> str:
        """The text in a colour, or ``bold`` or ``dim``."""
        return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if self.colours and text else text

    def shortened(self, text: str, width: int | None = None) -> str:
        """The text with its middle left out where it is wider than the terminal, or than
        ``width`` there.
        """
        most = self.width if width is None else width
        if self.width is None or most is None or len(text) <= most:
            return text
        most = max(most, 5)
        front = (most - 3) // 2
        return f"{text[:front]}...{text[len(text) - (most - 3 - front) :]}"

    def bounded(self, text: str) -> str:
        """The text, no longer than three lines of the terminal."""
        return text if self.width is None else self.shortened(text, 3 * self.width)


def headline(checkpoint: Checkpoint, shown: int | None = None) -> str:
    """``last.ckpt: torch, 2 files, 8 of 24 entries in model``.

    Args:
        checkpoint: an open checkpoint.
        shown: how many of its entries are meant; None for all.
    """
    every = len(checkpoint.keys())
    entries = entries_text(every)
    if checkpoint.choices:
        entries = noun(len(checkpoint.choices), "state dict")
    if shown is not None and shown != every:
        entries = f"{shown:,} of {entries}"
    if checkpoint.left_out and not checkpoint.choices:
        entries += f" in {printable(checkpoint.found_under)}"
    entries_of = checkpoint.entries.values()
    files = len({entry.file for entry in entries_of}.union(*{entry.files for entry in entries_of}))
    parts = f", {files:,} files" if files > 1 else ""
    if checkpoint.part_of:
        parts += f", {checkpoint.part_of}"
    return f"{printable(str(checkpoint.path))}: {checkpoint.format}{parts}, {entries}"
