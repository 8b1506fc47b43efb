# SPDX-License-Identifier: BSD-3-Clause
"""What both kinds of folders share: their files are parts of one object."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from modtree.files.checkpoint.base import Checkpoint, CheckpointError, shortened
from modtree.files.checkpoint.json_text import parsed_json
from modtree.files.checkpoint.mapped import open_regular
from modtree.files.checkpoint.reader import locate, open_checkpoint
from modtree.files.pickled.stand_in import StandIn
from modtree.files.torch.contents import Part
from modtree.files.torch.files import AssembledCheckpoint
from modtree.files.torch.inner import state_of

__all__ = ["PartsFolder", "words_of"]

_LONGEST_JSON = 100_000_000


class PartsFolder(AssembledCheckpoint):
    """A folder whose files are parts of one checkpoint.

    Args:
        path: The folder.

    Attributes:
        members: The files of weights, which are checkpoints themselves.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._inner: list[Checkpoint] = []
        self._words: dict[str, str] = {}
        self._broken: list[CheckpointError] = []
        self.members: list[str] = []
        self._object: dict[str, Any] = {}
        self.foreign = 0

    def add_weights(self, name: str, path: str) -> None:
        """A checkpoint as a part."""
        source = locate(path)
        checkpoint = open_checkpoint(source)
        self._inner.append(checkpoint)
        self.members.append(source.name)
        self.foreign += checkpoint.foreign
        if not self.metadata:
            self.metadata = dict(checkpoint.metadata)
        self._object[name] = state_of(checkpoint)

    def add_torch(self, name: str, file: str) -> None:
        """A file of torch as a part."""
        try:
            contents = self._files_of_torch.contents(file, keep=True)
            self._object[name] = self._files_of_torch.bound(contents, file)
            self.foreign += contents.foreign
        except CheckpointError as error:
            self._note_broken(name, error)

    def add_json(self, name: str, file: str, words: Callable[[dict[str, Any]], str]) -> None:
        """A file of JSON as a part, and what to say of it."""
        try:
            content = _json_in(file)
            self._words[name] = words(content)
            self._object[name] = content
        except CheckpointError as error:
            self._note_broken(name, error)

    def _note_broken(self, name: str, error: CheckpointError) -> None:
        """A part that cannot be read does not keep anybody from the others."""
        self._broken.append(error)
        made = StandIn("damaged", ())
        self._object[name] = made.described("damaged", f"cannot be read: {error.reason:.200}", {})

    def parts(self) -> list[Part]:
        return [
            part._replace(text=self._words.get(part.name, part.text)) for part in super().parts()
        ]

    def compare_checksums(self) -> None:
        super().compare_checksums()
        for checkpoint in self._inner:
            checkpoint.compare_checksums()

    def damages(self, advance: Callable[[int], Any]) -> Iterator[CheckpointError]:
        yield from self._broken
        yield from super().damages(advance)
        for checkpoint in self._inner:
            yield from checkpoint.damages(advance)

    def let_go(self) -> None:
        super().let_go()
        for checkpoint in self._inner:
            checkpoint.let_go()

    def close(self) -> None:
        super().close()
        for checkpoint in self._inner:
            checkpoint.close()


def _json_in(file: str) -> dict[str, Any]:
    try:
        with open_regular(file) as opened:
            size = os.fstat(opened.fileno()).st_size
            if size > _LONGEST_JSON:
                raise CheckpointError(f"{size:,} bytes of JSON", file)
            return parsed_json(opened.read(size), "file", file)
    except OSError as error:
        raise CheckpointError(f"cannot be read: {error.strerror}", file) from None


def words_of(content: dict[str, Any], named: dict[str, str]) -> list[str]:
    """What some settings say, each with a word in front of it; those that are not there, not."""
    found = []
    for name, word in named.items():
        value = content.get(name)
        if value is None or value == []:
            continue
        if isinstance(value, list):
            more = f" and {len(value) - 6} more" if len(value) > 6 else ""
            text = ", ".join(shortened(item, 40).strip("'") for item in value[:6]) + more
        else:
            text = shortened(value, 80).strip("'")
        found.append(f"{word} {text}".strip())
    return found
