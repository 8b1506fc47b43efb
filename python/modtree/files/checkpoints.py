# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints as safetensors files: written whole or not at all, read without copies.

What the functions stand on is imported when the first of them is called.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from modtree.files.checkpoint.base import Checkpoint, CheckpointError, Entry
from modtree.files.checkpoint.reader import open_checkpoint
from modtree.files.sources.source import source_of

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "Entry",
    "convert",
    "load_file",
    "open_checkpoint",
    "save_file",
    "verify",
]


def save_file(
    model_or_state_dict: Any,
    path: Any,
    metadata: Mapping[str, str] | None = None,
    *,
    max_shard_size: int | str | None = None,
    progress: bool | None = None,
    atomic: bool = True,
    overwrite: bool = False,
) -> None:
    """Writes a model or a state dict as a safetensors file, which holds nothing that could run.

    Tensors of modtree and torch, and arrays, may stand side by side. Tensors that are one, such as
    tied weights, are written once, and are one again when the file is read; so are tensors that lie
    in the memory of another. What ``get_extra_state`` returned is written as JSON in the metadata,
    and so are the versions of modules. Programs that know nothing of this read the rest.

    The file is there whole or not at all: killed at any moment, or on a full disk, the old file or
    the new one is there. That holds for shards too.

    Args:
        model_or_state_dict: A module, or a mapping of keys to tensors.
        path: The file, or a folder that is there, which gets a ``model.safetensors``.
        metadata: Text to stand beside the tensors. ``format`` is ``pt`` unless it is given, since
            other programs ask for it.
        max_shard_size: The most bytes of tensors in one file, such as ``"5GB"`` (5 * 10**9) or
            ``"500MiB"`` (500 * 2**20). More than that is written as
            ``model-00001-of-00003.safetensors`` and so on, with an index
            ``model.safetensors.index.json``; a tensor larger than that has a file of its own.
            :func:`load_file` takes the same path.
        progress: Whether to show progress on stderr, with tqdm if it is installed; None shows it on
            a terminal when the work takes more than two seconds.
        atomic: False writes into the file itself, for folders in which no file can be made or
            replaced. The file is damaged if that is interrupted. It is a single file.
        overwrite: Whether files may be replaced in whose maps some of the tensors are, and which
            hold more than is written.

    Raises:
        CheckpointError: An entry cannot be written: a dtype that the format has not, a tensor
            without values, a value that JSON cannot say. Or something would be lost of a file in
            which the tensors are.
        OSError: The file cannot be written; what was there is there still.
    """
    from modtree.files.checkpoint.save import save_state

    save_state(model_or_state_dict, path, metadata, max_shard_size, progress, atomic, overwrite)


def load_file(
    path: Any,
    *,
    device: Any = None,
    at: str | None = None,
    join: Any = None,
    progress: bool | None = None,
    large_header: bool = False,
    inside: str | None = None,
) -> dict[str, Any]:
    """Reads a checkpoint as a state dict: a safetensors file, the index of a sharded one, a folder
    with one of them, or a file of ``torch.save``: of a whole module the parameters and buffers, of
    a training checkpoint the model. Folders of ``torch.distributed.checkpoint``, of DeepSpeed and
    of several ranks are put together; GGUF files and NumPy's archives are read as well.

    Nothing of a file is executed. What is neither a tensor nor plain comes as a stand-in, as
    ``load(path, foreign="stand-in")`` makes them.

    Tensors lie in a map of the file, so that a model takes them without a copy:
    ``model.load_state_dict(load_file(path), assign=True)``. What is written to them stays in this
    process. The file may be removed, or replaced by a rename, as :func:`save_file` does it; a
    program that shortens it in place takes the tensors' values away, and this process with them.

    Args:
        path: The file, the index or the folder. Of a sharded checkpoint, its name without
            ``.index.json`` will do. An address, such as ``https://...``, is read in ranges; a file
            object that is open for reading bytes, from its beginning; and bytes as they are.
        device: "meta" for tensors without values, else the CPU.
        at: The part of a training checkpoint to read, such as "ema"; None for the model.
        join: How files of several ranks are put together that do not say it, as
            :func:`open_checkpoint` takes it.
        progress: Whether to show progress on stderr, with tqdm if it is installed; None shows it on
            a terminal when the work takes more than two seconds.
        large_header: Whether a safetensors header of more than 100 MB is read, which takes several
            times as much memory.
        inside: The name of the checkpoint in a zip or tar archive with several.

    Raises:
        CheckpointError: The file is damaged, or no checkpoint; the message names file, tensor and
            reason.
        OSError: A file cannot be opened.
    """
    from modtree.files.checkpoint.load import load_state

    return load_state(source_of(path, large_header, inside), device, at, join, progress)


def convert(
    source: Any,
    target: Any,
    *,
    dtype: Any = None,
    rename: Any = None,
    max_shard_size: int | str | None = None,
    format: str | None = None,
    at: str | None = None,
    join: Any = None,
    progress: bool | None = None,
    atomic: bool = True,
    large_header: bool = False,
    overwrite: bool = False,
    keep: Any = None,
    inside: str | None = None,
) -> None:
    """Writes a checkpoint again, tensor by tensor: it may be larger than memory. What is neither a
    tensor nor plain is left out.

    Codes of quantized weights, their scales and tables keep their dtype, as no cast keeps them
    right. A warning says how many values became infinite in another dtype.

    Args:
        source: The checkpoint, as :func:`load_file` takes it.
        target: Where to write: a file, or a folder that is there.
        dtype: The dtype that floating tensors get: a dtype or its name.
        rename: What becomes of keys, as in ``load_state_dict``.
        max_shard_size: The most bytes of tensors in a file, as in :func:`save_file`.
        format: "safetensors" or "torch"; the ending of the target says it otherwise.
        at: The part of a training checkpoint to write, such as "ema"; None for the model.
        join: How files of several ranks are put together, as in :func:`load_file`.
        progress: Whether to show a progress bar, as in :func:`save_file`.
        atomic: False writes into the file itself, as in :func:`save_file`.
        large_header: Whether a large safetensors header is read, as in :func:`load_file`.
        overwrite: Whether files of the source may be replaced by less than they hold: without some
            entries or parts, or in another dtype.
        keep: A pattern or several, as :func:`modtree.find` takes them: what matches, and what is
            below it, keeps its dtype.
        inside: The name of the checkpoint in an archive, as in :func:`load_file`.

    Raises:
        CheckpointError: The source is damaged, the format has no place for what it holds, or
            something of it would be lost.
        OSError: A file cannot be opened or written.
    """
    from modtree.files.checkpoint.convert import convert as write_again

    changes = write_again(
        source_of(source, large_header, inside),
        target,
        dtype=dtype,
        rename=rename,
        max_shard_size=max_shard_size,
        format=format,
        at=at,
        join=join,
        progress=progress,
        atomic=atomic,
        overwrite=overwrite,
        keep=keep,
    )
    if changes.infinite:
        warnings.warn(
            f"{changes.infinite.total():,} values became infinite, the first in "
            f"{next(iter(changes.infinite))!r}: keep= keeps the dtype of entries",
            stacklevel=2,
        )


def verify(
    path: Any,
    model: Any = None,
    *,
    finite: bool = False,
    at: str | None = None,
    join: Any = None,
    progress: bool | None = None,
    large_header: bool = False,
    inside: str | None = None,
) -> list[Any]:
    """Checks headers, offsets, sizes and checksums, and that an index and its shards agree. What it
    calls whole, :func:`modtree.load` reads; with ``foreign="stand-in"`` where ``notes`` of the
    result say that the file has objects which are neither tensors nor plain.

    Returns a list of all that is wrong. Each problem has a ``kind`` ("damaged", "missing",
    "unexpected", "shape", "index", "not finite", "not checked"), a ``message``, and the ``file``
    and the ``key`` that it is about, or None.

    Args:
        path: The checkpoint, as :func:`load_file` takes it.
        model: A module or a state dict, whose keys and shapes are to be those of the checkpoint.
        finite: Whether to read all values and count what is infinite or NaN.
        at: The part of a training checkpoint to compare with the model, such as "ema".
        join: How files of several ranks are put together, as in :func:`load_file`.
        progress: Whether to show a progress bar while they are read.
        large_header: Whether a large safetensors header is read, as in :func:`load_file`.
        inside: The name of the checkpoint in an archive, as in :func:`load_file`.

    Raises:
        OSError: There is no such file.
        CheckpointError: ``join`` is given, and these are no files of ranks that take rules.
    """
    from modtree.files.checkpoint.verify import verify as check

    source = source_of(path, large_header, inside)
    return check(source, model, finite=finite, at=at, join=join, progress=progress)
