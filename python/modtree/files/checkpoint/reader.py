# SPDX-License-Identifier: BSD-3-Clause
"""Opening a checkpoint: which format a path holds, found in the content of a file, or in the names
of a folder.
"""

from __future__ import annotations

import errno
import importlib
import itertools
import os
import re
import stat
from collections.abc import Callable
from typing import Any, NamedTuple

from modtree.files.checkpoint.base import Checkpoint, CheckpointError, shortened
from modtree.files.checkpoint.other_files import (
    HEAD,
    begins_as_pickle,
    end_of,
    is_half,
    not_damaged,
    of_rules,
    text_in,
    unknown,
    what_it_is,
)
from modtree.files.distributed.rank_files import has_rank_files
from modtree.files.sources import archives
from modtree.files.sources.source import AddressSource, PathSource, Source, source_of
from modtree.files.sources.stores import missing

# -- folders that are checkpoints as a whole -------------------------------------------------------

#: What is added to the name of a checkpoint to name the index of its shards.
INDEX_ENDING = ".index.json"
_SHARD_NAME = re.compile(r"-\d{5}-of-\d{5}\.\w+$")
_OF_RANK = re.compile(r"shard-\d{5}-model-\d{5}-of-\d{5}\.safetensors")
_NUMBERED = re.compile(r"(.+)-(\d{5})-of-(\d{5})(\.\w+)")
_MOST_READ = 200_000  # names of a folder that are read
_MOST_NAMED = 12  # parts that a message names


#: The names of weights in a folder, those of adapters apart; the first that is there counts.
WEIGHTS_IN_ORDER = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
WEIGHTS = frozenset(WEIGHTS_IN_ORDER)
_ADAPTERS = frozenset(("adapter_model.safetensors", "adapter_model.bin"))


_STEP = re.compile(r"global_step\d+")
_STATES = re.compile(r"(?:\w+_)?mp_rank_\d+_(?:model|optim)_states\.pt")


class Folder(NamedTuple):
    """What is in a folder of a format, who reads it, and whether that takes rules by which ranks
    are put together.
    """

    has: Callable[[frozenset[str]], bool]
    module: str
    reader: str
    takes_rules: bool = False


def _is_distributed(names: frozenset[str]) -> bool:
    has_chunks = any(name.endswith(".distcp") for name in names)
    return has_chunks or (".metadata" in names and WEIGHTS.isdisjoint(names))


def _is_adapter(names: frozenset[str]) -> bool:
    has_files = "adapter_config.json" in names and not _ADAPTERS.isdisjoint(names)
    return has_files and WEIGHTS.isdisjoint(names)


def _is_of_deepspeed(names: frozenset[str]) -> bool:
    has_steps = "latest" in names and any(map(_STEP.fullmatch, names))
    has_states = has_steps or any(map(_STATES.fullmatch, names))
    return has_states and WEIGHTS.isdisjoint(names)


def _is_of_ranks(names: frozenset[str]) -> bool:
    has_weights = any(name.endswith(".safetensors") for name in names)
    return not has_weights and WEIGHTS.isdisjoint(names) and has_rank_files(names)


#: In the order in which they are asked. A module is imported when a folder of its format is opened.
_FOLDERS = (
    Folder(_is_distributed, "modtree.files.distributed.chunks", "DistributedCheckpoint"),
    Folder(
        lambda names: "trainer_state.json" in names,
        "modtree.files.hugging_face",
        "TrainerCheckpoint",
    ),
    Folder(_is_adapter, "modtree.files.hugging_face", "AdapterCheckpoint"),
    Folder(
        lambda names: "_CHECKPOINT_METADATA" in names or names >= {"_METADATA", "_sharding"},
        "modtree.files.libraries",
        "OrbaxCheckpoint",
    ),
    Folder(
        lambda names: any(map(is_of_ranks, names)) and WEIGHTS.isdisjoint(names),
        "modtree.files.distributed.chunks",
        "OffsetsCheckpoint",
    ),
    Folder(
        _is_of_deepspeed,
        "modtree.files.distributed.deepspeed",
        "DeepSpeedCheckpoint",
        takes_rules=True,
    ),
    Folder(_is_of_ranks, "modtree.files.distributed.ranks", "RanksCheckpoint", takes_rules=True),
)


#: A folder in which several files are parts.
_PARTS = Folder(lambda _: False, "modtree.files.hugging_face", "PartsCheckpoint")
_HOLDING = tuple(
    ".safetensors .bin .pt .pth .ckpt .pkl .pickle .gguf .npz .npy .h5 .hdf5 .onnx .msgpack .nemo "
    ".keras .index.json".split()
)
_MOST_FOLDERS = 1000  # that are looked into
_LEVELS = 3  # below a folder in which is looked for checkpoints


def holdings(path: str) -> list[str]:
    """The names of files in a folder that may have tensors, and of folders with such, which end in
    a slash. Of shards with an index, that of the index.
    """
    with os.scandir(path) as entries:
        found = sorted(itertools.islice(entries, _MOST_READ), key=lambda entry: entry.name)
    names = [entry.name for entry in found if entry.name.endswith(_HOLDING)]
    stems = [name.removesuffix(INDEX_ENDING) for name in names if name.endswith(INDEX_ENDING)]
    stems = [os.path.splitext(stem)[0] for stem in stems]
    names = [n for n in names if not any(map(_SHARD_NAME.sub("", n).__eq__, stems))]
    names = list(dict.fromkeys(whole_name(name) for name in names))
    left = [_MOST_FOLDERS]
    return names + [
        f"{e.name}/" for e in found if os.path.isdir(e.path) and _holds(e.path, _LEVELS, left)
    ]


def whole_name(name: str) -> str:
    """The name of the whole of which a numbered shard is a part; of others, the same."""
    match = _NUMBERED.fullmatch(name)
    return name if match is None or is_of_ranks(name) else f"{match[1]}{match[4]}"


def is_of_ranks(name: str) -> bool:
    """Whether a file has parts of tensors, as torch.distributed.checkpoint names those of ranks."""
    return _OF_RANK.fullmatch(name) is not None


def numbered_shards(path: str) -> list[str]:
    """The paths of the shards that are there of a file that is not, in their order.

    Raises:
        CheckpointError: One is missing, or there are several sets.
    """
    folder, name = os.path.split(path)
    if os.path.exists(path) or not os.path.isdir(folder or "."):
        return []
    there: dict[int, dict[int, str]] = {}
    for found in os.listdir(folder or "."):
        match = _NUMBERED.fullmatch(found)
        if match is not None and f"{match[1]}{match[4]}" == name:
            there.setdefault(int(match[3]), {})[int(match[2])] = os.path.join(folder, found)
    if not there:
        return []
    if len(there) > 1:
        raise CheckpointError(f"there are shards of {' and of '.join(map(str, there))}", path)
    ((count, shards),) = there.items()
    missing = [number for number in range(1, count + 1) if number not in shards]
    if missing:
        numbers = ", ".join(map(str, missing[:_MOST_NAMED]))
        raise CheckpointError(f"of its {count} parts, those of number {numbers} are missing", path)
    return [shards[number] for number in range(1, count + 1)]


def _part_text(checkpoint: Checkpoint) -> str:
    """What a file is that is one of several and was opened alone."""
    if "DCP_SHARDING_INFO" in checkpoint.metadata:
        return "the part of one rank"
    match = _NUMBERED.fullmatch(os.path.basename(checkpoint.path))
    is_part = match is not None and int(match[3]) > 1
    return f"part {int(match[2])} of {int(match[3])}" if match and is_part else ""


def _holds(path: str, levels: int, left: list[int]) -> bool:
    """Whether a folder, or one in it, has a file that may have tensors."""
    left[0] -= 1
    if left[0] < 0:
        return False
    try:
        with os.scandir(path) as entries:
            found = list(itertools.islice(entries, _MOST_READ))
    except OSError:
        return False
    if folder_format(path) or any(entry.name.endswith(_HOLDING) for entry in found):
        return True
    return levels > 1 and any(
        entry.is_dir() and _holds(entry.path, levels - 1, left) for entry in found
    )


def in_cache(path: str) -> str:
    """The folder of the last snapshot of a model in the cache of a hub; of others, itself."""
    snapshots = os.path.join(path, "snapshots")
    if not os.path.isdir(snapshots) or not os.path.isdir(os.path.join(path, "refs")):
        return path
    try:
        with open(os.path.join(path, "refs", "main")) as file:
            names = [file.read(100).strip()]
    except OSError:
        names = []
    names += sorted(os.listdir(snapshots))
    there = (os.path.join(snapshots, name) for name in names if name and os.sep not in name)
    return next(filter(os.path.isdir, there), path)


def folder_format(path: str) -> Folder | None:
    """The format of a folder; None where it is not a checkpoint as a whole, but may hold one."""
    try:
        with os.scandir(path) as entries:
            names = frozenset(e.name for e in itertools.islice(entries, _MOST_READ))
    except OSError:
        return None
    return next((form for form in _FOLDERS if form.has(names)), None)


# -- files -----------------------------------------------------------------------------------------


def _is_safetensors(head: bytes) -> bool:
    # Of the eight bytes of the header's length, which JSON and archives fill with text.
    return head[8:9] == b"{" and head[4:8] == b"\0\0\0\0"


def _is_archive(head: bytes) -> bool:
    return head.startswith(b"PK\x03\x04")


def _is_npz(head: bytes) -> bool:
    """Whether the first entry of an archive is an array of NumPy."""
    length = int.from_bytes(head[26:28], "little")
    return _is_archive(head) and head[30 : 30 + length].endswith(b".npy")


def _is_gguf(head: bytes) -> bool:
    return head.startswith(b"GGUF")


def _is_hdf5(head: bytes) -> bool:
    return head.startswith(_HDF5)


def _is_index(head: bytes) -> bool:
    return head.lstrip()[:1] == b"{"


class _Format(NamedTuple):
    """How a file of a format begins, how its name ends, who reads it, whether it has parts, and
    whether it is read by its path alone.
    """

    begins_so: Callable[[bytes], bool]
    endings: tuple[str, ...]
    module: str
    reader: str
    has_parts: bool = False
    takes_path: bool = False


#: In the order in which they are asked. A module is imported when a file of its format is opened.
_FORMATS = (
    _Format(
        _is_safetensors,
        (".safetensors",),
        "modtree.files.safetensors",
        "SafetensorsCheckpoint",
    ),
    _Format(_is_gguf, (".gguf",), "modtree.files.gguf", "GgufCheckpoint"),
    _Format(_is_npz, (".npz",), "modtree.files.npz", "NpzCheckpoint"),
    _Format(
        _is_archive,
        (".pt", ".pth", ".bin"),
        "modtree.files.torch.checkpoint",
        "TorchCheckpoint",
        has_parts=True,
    ),
    _Format(
        _is_hdf5,
        (".h5", ".hdf5"),
        "modtree.files.libraries",
        "Hdf5Checkpoint",
    ),
    _Format(_is_index, (".json",), "modtree.files.checkpoint.shards", "open_shards"),
    # As a model of ONNX begins, much else does: the name of the file counts.
    _Format(
        lambda _: False,
        (".onnx",),
        "modtree.files.libraries",
        "OnnxCheckpoint",
        takes_path=True,
    ),
    _Format(
        begins_as_pickle, (), "modtree.files.torch.checkpoint", "TorchCheckpoint", has_parts=True
    ),
)
#: Of files that describe the folder in which they are.
_METADATA = _Format(
    lambda _: True,
    (),
    "modtree.files.distributed.chunks",
    "DistributedCheckpoint",
    has_parts=True,
    takes_path=True,
)
_OF_SHARDS = ("SafetensorsCheckpoint", "GgufCheckpoint", "TorchCheckpoint")
_FORMATS_OF_SHARDS = tuple(form for form in _FORMATS if form.reader in _OF_SHARDS)


def open_checkpoint(
    path: Any,
    at: str | None = None,
    join: Any = None,
    *,
    large_header: bool = False,
    inside: str | None = None,
) -> Checkpoint:
    """Opens a file, the index of a sharded checkpoint, or a folder that is a checkpoint or holds
    one.

    Args:
        path: Where it is; of a sharded checkpoint its name without ``.index.json`` will do. The
            name of a file decides only where its content does not. An address, such as
            ``https://...``, is read in ranges. A file object that is open for reading bytes is read
            from its beginning and stays open; bytes are read as they are.
        at: Which part of a file with several to open, such as "ema" or "optimizer.state"; None for
            the model. Keys and numbers on the way are joined by dots.
        join: How the tensors in files of several ranks are put together, where those do not say it:
            patterns of keys, and for each the dimension in which the parts follow each other.
            ``(0, 2)`` is dimension 0 of two blocks, each put together by itself, and None is for
            tensors that all ranks have. ``{"*.qkv.weight": (0, 3), "*.proj.weight": 1}``
        large_header: Whether a safetensors header of more than 100 MB is read, which takes several
            times as much memory.
        inside: The name of the checkpoint in a zip or tar archive with several.

    Raises:
        OSError: It cannot be opened.
        CheckpointError: It is damaged, no checkpoint, or has no such part; or it holds several
            state dicts, and ``at`` names none of them.
    """
    checkpoint = open_parts(source_of(path, large_header, inside), at, join)
    if not checkpoint.choices:
        return checkpoint
    checkpoint.close()
    names = ", ".join(shortened(name)[1:-1] for name in checkpoint.choices[:_MOST_NAMED])
    more = len(checkpoint.choices) - _MOST_NAMED
    raise not_damaged(
        CheckpointError(
            f"it holds several state dicts, {names}{f' and {more} more' if more > 0 else ''}: name "
            f"one with at= or --at",
            checkpoint.path,
        )
    )


def open_parts(path: Any, at: str | None = None, join: Any = None) -> Checkpoint:
    """The same, and what holds several state dicts as well: it has ``choices`` and no entries."""
    given = source_of(path)
    if not isinstance(given, PathSource) or not os.path.isdir(given.name):
        _check_no_rules(join, given.name)
        checkpoint = _opened(locate(given), _FORMATS, at)
        checkpoint.part_of = _part_text(checkpoint)
        return checkpoint
    place = in_cache(given.name)
    folder = folder_format(place)
    if at is not None and any(_fits(at, name, folder) for name in holdings(place)):
        folder = _PARTS
    source = given if folder else locate(given)
    if folder is None and os.path.isdir(source.name):
        folder = _PARTS
    if folder is None:
        _check_no_rules(join, place)
        checkpoint = _opened(source, _FORMATS, at)
    elif folder.takes_rules:
        checkpoint = _reader(folder)(place, at, join)
    else:
        _check_no_rules(join, place)
        checkpoint = _reader(folder)(place, at)
    if folder is not _PARTS and (folder is None or not folder.takes_rules):
        checkpoint.passed_over = [
            name for name in holdings(place) if not is_used(name, place, checkpoint)
        ]
    return checkpoint


def _fits(at: str, name: str, folder: Folder | None) -> bool:
    """Whether a part is named by what is in the folder: of folders with parts, a folder in it."""
    names = [name.rstrip("/")] if folder else [name.rstrip("/"), os.path.splitext(name)[0]]
    return (folder is None or name.endswith("/")) and any(
        f"{at}.".startswith(f"{known}.") for known in names
    )


def is_used(name: str, folder: str, checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint is, or has parts, of a file or folder beside others."""
    begin = os.path.join(folder, name)
    files = {checkpoint.path, *checkpoint.members}
    for entry in checkpoint.entries.values():
        files.update(entry.files or (entry.file,))
    return any(file == begin or (name[-1] == "/" and file.startswith(begin)) for file in files)


def _reader(folder: Folder) -> Any:
    return getattr(importlib.import_module(folder.module), folder.reader)


def _folder_of(source: Source) -> Folder | None:
    is_folder = isinstance(source, PathSource) and os.path.isdir(source.name)
    return folder_format(source.name) if is_folder else None


def takes_rules(given: Any) -> bool:
    """True for what is put together of the files of several ranks, by rules."""
    source = source_of(given)
    folder = _folder_of(locate(source)) if isinstance(source, PathSource) else None
    return folder is not None and folder.takes_rules


def _check_no_rules(join: Any, place: str) -> None:
    if join is not None:
        raise of_rules(
            CheckpointError(
                "join= puts files of several ranks together, and this is one checkpoint already",
                place,
            )
        )


def locate(given: Any) -> Source:
    """The file or index that a path, an address or an object stands for, or the folder that is a
    checkpoint as a whole, or whose files are parts.

    Raises:
        FileNotFoundError: There is nothing.
        CheckpointError: The path is a folder that holds none.
    """
    source = source_of(given)
    if isinstance(source, AddressSource):
        return source_of(_located_address(source), source.large_header, source.member)
    if isinstance(source, PathSource):
        return source_of(PathSource(_located_path(source.name)), source.large_header, source.member)
    return source


def _located_address(source: AddressSource) -> AddressSource:
    if source.names_a_folder:
        return _in_remote_folder(source)
    try:
        source.open()
    except IsADirectoryError:
        return _in_remote_folder(source)
    except FileNotFoundError:
        index = source.ending(INDEX_ENDING)
        try:
            index.open()
        except OSError:
            raise missing(source.name) from None
        return index
    return source


def _in_remote_folder(folder: AddressSource) -> AddressSource:
    for name in WEIGHTS_IN_ORDER:
        source = folder.inside(name)
        try:
            source.open()
        except FileNotFoundError:
            continue
        return source
    raise CheckpointError(
        f"found none of {', '.join(WEIGHTS_IN_ORDER)} there: give the address of a file",
        folder.name,
    )


def _located_path(file: str) -> str:
    try:
        is_folder = stat.S_ISDIR(os.stat(file).st_mode)
    except FileNotFoundError:
        if os.path.exists(file + INDEX_ENDING):
            return file + INDEX_ENDING
        # Or a save has put it in the place of the index meanwhile.
        if os.path.exists(file) or numbered_shards(file):
            return file
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), file) from None
    except (OSError, ValueError):
        return file  # whoever opens it is told
    if not is_folder:
        # The parts of a GGUF file say themselves that they are such, and the first has the whole's
        # settings.
        whole = os.path.join(os.path.dirname(file), whole_name(os.path.basename(file)))
        is_first = file.endswith(".gguf") and _parts_of(whole)[:1] == [file]
        return whole if is_first else file
    file = in_cache(file)
    return file if folder_format(file) is not None else _in_folder(file)


def _parts_of(whole: str) -> list[str]:
    """The shards of a file that is not there; none where some are missing."""
    try:
        return numbered_shards(whole)
    except CheckpointError:
        return []


def is_index(source: Source) -> bool:
    """Whether a file begins as the index of shards does."""
    if isinstance(source, PathSource) and not os.path.isfile(source.name):
        return False
    with source.open() as file:
        head = file.read(HEAD)
    if what_it_is(head) is not None:
        return False
    return next((form.reader == "open_shards" for form in _FORMATS if form.begins_so(head)), False)


def open_shard(source: Source) -> Checkpoint:
    """Opens a file that an index names, which is no other index.

    Raises:
        FileNotFoundError: It is not there.
        CheckpointError: It cannot be opened, is damaged, or no checkpoint.
    """
    try:
        return _opened(source, _FORMATS_OF_SHARDS)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise CheckpointError(f"the index names it, and {error.strerror}", source.name) from error


def _opened(source: Source, formats: tuple[_Format, ...], at: str | None = None) -> Checkpoint:
    file = source.name
    if isinstance(source, PathSource) and (shards := numbered_shards(file)):
        if at is not None:
            raise _no_parts(at, file)
        home = importlib.import_module("modtree.files.checkpoint.shards")
        numbered: Checkpoint = home.open_numbered(source, [PathSource(path) for path in shards])
        return numbered
    with source.open() as opened:
        head = opened.read(HEAD)
        # What begins with zeros may be a file of HDF5, whose own bytes begin further behind.
        head, end = _behind_zeros(opened, head)
    members = {} if _is_of_torch(head) else archives.members_of(source, head)
    if members and not any(map(_IS_PICKLED, members)):
        if any(name.endswith("/model_weights_config.json") for name in members):
            exported: Checkpoint = _reader(_EXPORT)(source, members)
            return exported
        if (inner := _inside(source, members)) is not None:
            checkpoint = _opened(inner[0], formats, at)
            checkpoint.source, checkpoint.passed_over = inner
            return checkpoint
    if source.member is not None:
        raise not_damaged(CheckpointError("it is not an archive around a checkpoint", file))
    if (other := what_it_is(head, end)) is not None:
        error = CheckpointError(other, file)
        raise error if is_half(head, end) else not_damaged(error)
    found = [_METADATA] if os.path.basename(file) == ".metadata" else []
    found += [form for form in formats if form.begins_so(head)]
    if found or text_in(head) is None:
        found += [form for form in formats if file.removesuffix("?...").endswith(form.endings)]
    if not found:
        raise not_damaged(CheckpointError(unknown(head), file))
    reader = getattr(importlib.import_module(found[0].module), found[0].reader)
    given = _path_of(source) if found[0].takes_path else source
    if at is None:
        return reader(given)
    if not found[0].has_parts:
        raise _no_parts(at, file)
    return reader(given, at)


_HDF5 = b"\x89HDF\r\n\x1a\n"
#: Names of the pickle that an archive of torch has.
_IS_PICKLED = re.compile(r"[^/]+/data\.pkl").fullmatch
_EXPORT = Folder(lambda _: False, "modtree.files.libraries", "ExportCheckpoint")
#: Names of models in archives, besides those in folders.
_USUAL_INSIDE = WEIGHTS | {"model_weights.ckpt", "model.weights.h5", "serialized_state_dict.pt"}


def _behind_zeros(file: Any, head: bytes) -> tuple[bytes, bytes]:
    """The beginning of a file, or of the HDF5 file behind zeros in it, and its last bytes."""
    for place in () if any(head[:64]) else (512, 1024, 2048, 4096):
        file.seek(place)
        if (found := file.read(HEAD)).startswith(_HDF5):
            return found, b""
    return head, end_of(file, head)


def _is_of_torch(head: bytes) -> bool:
    """Whether the first entry of an archive is the pickle of torch.save(), or an array."""
    length = int.from_bytes(head[26:28], "little")
    name = head[30 : 30 + length]
    return _is_archive(head) and name.endswith((b"/data.pkl", b".npy"))


def _inside(source: Source, members: dict[str, Any]) -> tuple[Source, list[str]] | None:
    """The checkpoint in an archive, and the names of others in it."""
    usual = _USUAL_INSIDE.__contains__
    name, others = archives.chosen(members, source.member, source.name, _HOLDING, usual)
    return None if name is None else (archives.InsideSource(source, members, name), others)


def _no_parts(at: str, file: str) -> CheckpointError:
    error = CheckpointError(f"it holds one state dict, and no part {at!r:.100}", file)
    not_damaged(error)
    return error


def _path_of(source: Source) -> str:
    if not isinstance(source, PathSource):
        raise CheckpointError(
            "files of this format are read from this machine: get it, and give its path",
            source.name,
        )
    return source.name


def weights_in(folder: str) -> str | None:
    """The file or index with one of the usual names in a folder, or None."""
    paths = (os.path.join(folder, name) for name in WEIGHTS_IN_ORDER)
    return next((path for path in paths if os.path.exists(path)), None)


def _in_folder(folder: str) -> str:
    if (weights := weights_in(folder)) is not None:
        return weights
    names = sorted(os.listdir(folder))
    for ending in (".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json"):
        found = [n for n in names if n.endswith(ending) and not _SHARD_NAME.search(n)]
        if len(found) == 1:
            return os.path.join(folder, found[0])
        if found:
            return folder
    whole = holdings(folder)
    if len(whole) == 1 and _parts_of(file := os.path.join(folder, whole[0])):
        return file
    if whole:
        return folder
    raise CheckpointError(
        "the folder holds no checkpoint: expected model.safetensors or "
        "model.safetensors.index.json, pytorch_model.bin or pytorch_model.bin.index.json",
        folder,
    )
