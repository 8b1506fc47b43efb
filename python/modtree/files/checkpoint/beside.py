# SPDX-License-Identifier: BSD-3-Clause
"""The names of other files in a file from anywhere: they lead to no other folder."""

from __future__ import annotations

import os
from typing import Any

from modtree.files.checkpoint.base import CheckpointError, shortened

__all__ = ["file_beside", "plain_name"]


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
