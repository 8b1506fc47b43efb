# SPDX-License-Identifier: BSD-3-Clause
"""Files of objects with tensors in them: ``save``, and ``load``, which reads torch's files too."""

from __future__ import annotations

import collections
import os
import pickle
from typing import Any

from modtree import _imports
from modtree.core.families import family_of
from modtree.files.checkpoint.atomic import atomic_file
from modtree.files.checkpoint.other_files import HEAD, end_of, text_in, what_it_is
from modtree.files.checkpoint.reader import open_parts
from modtree.files.checkpoint.replacing import OfTensors, check_replaced
from modtree.files.pickled.tensors import TensorBuilder
from modtree.files.pickled.unpickle import Refused, UnpicklingError
from modtree.files.pickled.writing import dump
from modtree.files.sources.source import opened_as_it_is
from modtree.files.sources.stores import is_address, shown_name
from modtree.files.torch.load import TrustingUnpickler, count_tensors, form_of, load_object
from modtree.files.torch.writer import prepared
from modtree.numpy.argument_types import FileLike
from modtree.numpy.tensor.devices import as_device

__all__ = ["load", "save"]


def save(
    obj: Any,
    f: FileLike,
    pickle_module: Any = pickle,
    pickle_protocol: int = 5,
    *,
    format: str = "modtree",
    atomic: bool = True,
    overwrite: bool = False,
) -> None:
    """Writes an object, such as a dict of state dicts, with the tensors in it.

    A path holds the old file until the new one is complete: a save that fails, or is killed, leaves
    it as it was.

    With ``format="torch"`` the file is an archive that plain ``torch.load()`` reads, with
    ``weights_only=True`` and ``mmap=True`` too; torch need not be installed. Tensors that share
    memory go on sharing it, and of a storage only the part that they use is written. Besides
    tensors the object may hold what torch reads there: None, numbers, text, bytes, dtypes, sizes,
    devices, and lists, tuples, sets, dicts, OrderedDicts (state dicts, with their versions) and
    Counters of these. NumPy's numbers become Python's, its arrays tensors.

    Args:
        obj: With the default format, anything that can be pickled; tensors that share memory are
            written as tensors of their own.
        f: A path, or a file open for writing bytes.
        pickle_module: With the default format, the module whose ``dump`` writes.
        pickle_protocol: With the default format, the version of pickle's format.
        format: "modtree" for a pickle, or "torch".
        atomic: False writes into the file itself, for folders in which no file can be made or
            replaced. The file is damaged if that is interrupted.
        overwrite: Whether a file may be replaced in whose map some of the tensors are, and which
            holds more than is written.

    Raises:
        CheckpointError: Something would be lost of a file in which the tensors are.
        TypeError: With "torch": something in the object is of another type; its place is named. So
            it is in what pickle raises with the default format.
        ValueError: There is no such format; or a number, or the way in which tensors share memory,
            does not fit that of torch.
    """
    if format == "torch":
        write = prepared(obj).write
    elif format == "modtree":

        def write(file: Any) -> None:
            dump(obj, file, pickle_module, pickle_protocol)

    else:
        raise ValueError(
            f"save has the formats 'modtree' and 'torch', got {format!r}; modtree.save_file() "
            f"writes safetensors"
        )
    if isinstance(f, (str, os.PathLike)):
        check_replaced(f, OfTensors(obj), overwrite, atomic)
        with atomic_file(f, atomic) as file:
            write(file)
    else:
        write(f)


def load(
    f: FileLike | bytes,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    foreign: str | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Reads what :func:`save` wrote, or a file that torch.save() wrote, without torch.

    Tensors in a file of torch come as modtree's, bfloat16 ones as float32 where the package
    ml_dtypes is not installed. Tensors of torch in a file of :func:`save` come as torch's where it
    is installed, and else in the same way. Arrays of jax come as modtree's tensors; its keys of
    random numbers, and arrays of dtypes that modtree does not have, come as jax's.

    Args:
        f: A path, an address such as ``https://...``, a file open for reading bytes, or bytes. A
            file that can seek is read from where it is. Of a folder, such as one of
            ``torch.distributed.checkpoint``, all parts are put together.
        map_location: "meta" or "cpu"; tensors are in main memory anyway.
        pickle_module: With ``weights_only=False``, the module whose ``load`` reads.
        weights_only: Refuse everything but tensors, arrays of numbers or text, numbers, text and
            containers of them. The default is True: a file from anywhere can be read, in memory and
            time that its size bounds. With False, a file can run any code.
        mmap: Map a file of torch instead of reading it: its tensors take memory when they are used,
            and what is written to them does not reach the file, which must stay as it is.
            Checksums are not compared. Other files are read.
        foreign: "stand-in" puts a stand-in in the place of each object that is neither a tensor nor
            plain, such as an ``argparse.Namespace`` or a whole module: it has the name of its class
            as ``kind``, and what the file says of it as ``args``, ``state``, ``items`` and
            ``pairs``. Nothing of it is imported or executed. The default refuses such files.
        pickle_load_args: For the unpickler, ``encoding`` for example.

    Raises:
        pickle.UnpicklingError: With ``weights_only``: the file is damaged, or contains something
            else.
        CheckpointError: A folder is damaged, or not a checkpoint.
    """
    everything = weights_only is False
    if foreign not in (None, "stand-in"):
        raise ValueError(f"foreign is 'stand-in' or None, got {foreign!r}")
    if foreign and everything:
        raise ValueError("foreign='stand-in' runs nothing of a file: pass no weights_only=False")
    tolerant = foreign is not None
    is_path = isinstance(f, (str, os.PathLike)) and not (isinstance(f, str) and is_address(f))
    if mmap and not is_path:
        got = repr(shown_name(f)) if isinstance(f, str) else type(f).__name__
        raise ValueError(f"f must be a file path in order to use mmap=True, got {got}")
    if is_path and os.path.isdir(f):  # type: ignore[arg-type]
        result = _load_folder(f, tolerant)
    else:
        with open(f, "rb") if is_path else opened_as_it_is(f) as file:  # type: ignore[arg-type]
            result = _load_file(
                file, everything, pickle_module, pickle_load_args, tolerant, bool(mmap)
            )
    if map_location is None or callable(map_location) or isinstance(map_location, dict):
        return result
    device = as_device(map_location)
    if device.type == "cpu":
        return result
    try:
        return _moved(result, device, {})
    except RecursionError:
        raise UnpicklingError("the file has containers nested too deeply to move them") from None


def _load_folder(path: Any, tolerant: bool) -> Any:
    """Everything in a folder that is a checkpoint, put together where it is in several files."""
    with open_parts(path) as checkpoint:
        if checkpoint.foreign and not tolerant:
            raise UnpicklingError(
                f"Weights only load failed: the files name {checkpoint.foreign:,} classes or "
                f"functions that are not imported. The tensors can be read, and nothing is run: "
                f'pass foreign="stand-in"'
            )
        return checkpoint.contents()


def _load_file(
    file: Any,
    everything: bool,
    pickle_module: Any,
    options: Any,
    tolerant: bool,
    mapped: bool,
) -> Any:
    start = file.tell()
    head = file.read(HEAD)
    if not everything and form_of(head) == "pickle":
        if (other := what_it_is(head, end_of(file, head))) is not None:
            raise UnpicklingError(other)
    if (form := _form_of_load_file(head)) is not None:
        raise UnpicklingError(f"the file is {form}: read it with modtree.load_file(path)")
    file.seek(start)
    if everything and form_of(head) == "pickle":
        if pickle_module in (None, pickle):
            return TrustingUnpickler(file, **options).load()
        return pickle_module.load(file, **options)
    try:
        return load_object(file, TensorBuilder, options, everything, mapped, tolerant)
    except Refused as error:
        file.seek(start)
        raise UnpicklingError(f"{error}{_what_can_be_read(file, options)}") from None


def _form_of_load_file(head: bytes) -> str | None:
    """What a file is that begins so and is no pickle, but that load_file reads."""
    if head[4:9] == b"\0\0\0\0{":
        return "a safetensors file"
    if head.startswith(b"\x89HDF\r\n\x1a\n"):
        return "an HDF5 file"
    if head.lstrip()[:1] == b"{" and text_in(head) is not None:
        return "JSON, as the index of shards is"
    return "a GGUF file" if head.startswith(b"GGUF") else None


def _what_can_be_read(file: Any, options: Any) -> str:
    """How many tensors a file has that was refused, and how to get at them."""
    try:
        count = count_tensors(file, options)
    except (UnpicklingError, MemoryError):
        return ""
    them = "The tensor in it" if count == 1 else f"The {count:,} tensors in it"
    what = f"{them} can be read" if count else "It can be looked at"
    return f'. {what}, and nothing is run: pass foreign="stand-in"'


def _moved(value: Any, device: Any, memo: dict[int, Any]) -> Any:
    """What shares an object goes on sharing it."""
    known = memo.get(id(value))
    if known is not None:
        return known
    family = family_of(value)
    if family is not None:
        result = family.to(value, device, None, False, None)
    elif isinstance(value, (dict, collections.OrderedDict)):
        result = memo[id(value)] = type(value)()
        result.update((k, _moved(v, device, memo)) for k, v in value.items())
    elif type(value) is list:
        result = memo[id(value)] = []
        result.extend(_moved(v, device, memo) for v in value)
    elif type(value) is tuple:
        result = tuple([_moved(v, device, memo) for v in value])
    else:
        return value
    memo[id(value)] = result
    return result


_imports.answer_for_missing(__name__)
