# SPDX-License-Identifier: BSD-3-Clause
"""What is beside a file: the files that it names, and the checkpoints that an error names when the
one that is meant is not there.
"""

from __future__ import annotations

import difflib
import itertools
import os
from typing import Any

from modtree.files.checkpoint.base import CheckpointError, shortened

__all__ = ["checkpoints_in", "file_beside", "plain_name", "what_is_there"]

_ENDINGS = (".safetensors", ".index.json", ".pt", ".pth", ".bin", ".ckpt")
#: Of which one is in most folders that are checkpoints.
_USUAL = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "adapter_config.json",
    "trainer_state.json",
    ".metadata",
    "_CHECKPOINT_METADATA",
    "latest",
)
_FEW = 5
_MOST_READ = 2000  # names of a folder that are read
_MOST_FOLDERS = 100  # that are looked into


def checkpoints_in(folder: str) -> list[str]:
    """The names of files that end as checkpoints do, and of folders with a usual one; in the order
    of their names.
    """
    found = []
    folders = 0
    try:
        with os.scandir(folder or ".") as entries:
            for entry in itertools.islice(entries, _MOST_READ):
                if entry.name.startswith("."):
                    continue
                if entry.name.endswith(_ENDINGS):
                    found.append(entry.name)
                elif folders < _MOST_FOLDERS and entry.is_dir():
                    folders += 1
                    if any(os.path.isfile(os.path.join(entry.path, name)) for name in _USUAL):
                        found.append(f"{entry.name}{os.sep}")
    except OSError:
        pass  # it is not there itself, or may not be read
    return sorted(found)


def what_is_there(folder: str, wanted: str = "") -> str:
    """Words about the checkpoints of a folder, those first that are called much as ``wanted`` is;
    "" where there are none.
    """
    names = checkpoints_in(folder)
    alike = difflib.get_close_matches(wanted[:200], names, n=_FEW, cutoff=0.5) if wanted else []
    names = list(dict.fromkeys((*alike, *names)))
    if not names:
        return ""
    more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
    return f"{', '.join(shortened(name)[1:-1] for name in names[:_FEW])}{more}"


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
