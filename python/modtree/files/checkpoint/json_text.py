# SPDX-License-Identifier: BSD-3-Clause
"""JSON of files from anywhere."""

from __future__ import annotations

from typing import Any, NoReturn

from modtree.files.checkpoint.base import CheckpointError

__all__ = ["parsed_json"]


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
