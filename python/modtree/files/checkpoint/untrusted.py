# SPDX-License-Identifier: BSD-3-Clause
"""What files from anywhere say: JSON, and the names of other files."""

from __future__ import annotations

import os
from typing import Any, NoReturn

from modtree.files.checkpoint.base import CheckpointError, shortened
from modtree.files.checkpoint.mapped import open_regular

_LONGEST = 100_000_000  # bytes of a file that is nothing but JSON


def parsed_json(data: bytes, what: str, path: str) -> dict[str, Any]:
    """The object that a text says, in which no name stands twice.

    Args:
        data: The text, in UTF-8.
        what: What it is, for errors: "header".
        path: The file that it is from, for errors.

    Raises:
        CheckpointError: It is something else.
    """
    import json  # takes a while, and few programs need it

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise CheckpointError(f"the {what} names it twice", path, _first_repeated(pairs))
        return found

    def refuse(name: str) -> NoReturn:
        raise ValueError(f"{name} is no number of JSON")

    try:
        text = data.decode("utf-8")
        content = json.loads(text, parse_constant=refuse)
        if not _names_nothing_twice(text, content):
            content = json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
    except CheckpointError:
        raise
    except RecursionError:
        raise CheckpointError(f"the {what} is damaged: nested too deeply", path) from None
    except ValueError as error:  # no UTF-8, no JSON, numbers of 5,000 digits
        raise CheckpointError(f"the {what} is damaged: {str(error)[:200]}", path) from None
    if type(content) is not dict:
        raise CheckpointError(f"the {what} is damaged: it is no JSON object", path)
    return content


def as_text(value: Any) -> str:
    """A value of metadata as text that UTF-8 has, whole: lists and dicts as JSON."""
    import json

    if isinstance(value, (list, tuple, dict)):
        value = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_one_as_text)
    return _one_as_text(value).encode("utf-8", "backslashreplace").decode()


def _one_as_text(value: Any) -> str:
    return value.decode("utf-8", "backslashreplace") if type(value) is bytes else str(value)


def json_in(file: str) -> dict[str, Any]:
    """The object that a file says.

    Raises:
        CheckpointError: It is something else, or cannot be read.
    """
    try:
        with open_regular(file) as opened:
            size = os.fstat(opened.fileno()).st_size
            if size > _LONGEST:
                raise CheckpointError(f"{size:,} bytes of JSON", file)
            return parsed_json(opened.read(size), "file", file)
    except OSError as error:
        raise CheckpointError(f"cannot be read: {error.strerror}", file) from None


def _names_nothing_twice(text: str, content: Any) -> bool:
    """False if an object may have a name twice, of which ``content`` has one: what calls a function
    for each object finds out, and takes twice the time.

    Each pair has a colon, and so there are no more pairs in the text than ``content`` has if it has
    one for each colon that is not in a string.
    """
    if type(content) is not dict or "\\u003" in text:  # a colon that is escaped
        return False
    inner = [value for value in content.values() if type(value) is dict]
    count = len(content) + sum(map(len, inner))
    in_strings = "".join(content).count(":")
    metadata = content.get("__metadata__")
    for texts in (metadata, metadata.values()) if type(metadata) is dict else ():
        in_strings += sum(part.count(":") for part in texts if type(part) is str)
    return text.count(":") - in_strings == count


def _first_repeated(pairs: list[tuple[str, Any]]) -> str:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            return name
        seen.add(name)
    raise AssertionError("no name is repeated")


# -- names of files --------------------------------------------------------------------------------


def file_beside(name: Any, path: str, what: str, key: str | None = None) -> str:
    """The path of a file that another file names, and which is beside it: a file from anywhere says
    nothing about other folders. Where they are links, as in caches of downloads, what one leads to
    is beside what the other leads to.

    Args:
        name: The name.
        path: The file that has it.
        what: What that file is, for errors: "the index".
        key: The key of the tensor that is to be in it, for errors.

    Raises:
        CheckpointError: It is not the name of a file there.
    """
    plain_name(name, path, what, key)
    folder = os.path.dirname(path)
    file = os.path.join(folder, name)
    if os.path.realpath(file) == os.path.realpath(path):
        raise CheckpointError(f"{what} names itself", path, key)
    target = os.path.dirname(os.path.realpath(file))
    if target not in (os.path.realpath(folder), os.path.dirname(os.path.realpath(path))):
        raise CheckpointError(
            f"the shard {shortened(name)} is a link that leads out of the folder", path, key
        )
    return file


def plain_name(name: Any, path: str, what: str, key: str | None = None) -> str:
    """A name that another file gives, which leads to no other folder.

    Raises:
        CheckpointError: It is not the name of a file.
    """
    if type(name) is not str:
        raise CheckpointError(f"{what} names the file {shortened(name)}", path, key)
    is_plain = name not in ("", ".", "..") and not set(name) & {"/", "\\", "\0", ":"}
    if not is_plain:
        raise CheckpointError(
            f"{what} names the file {shortened(name)}, which is no name of a file beside it",
            path,
            key,
        )
    return name
