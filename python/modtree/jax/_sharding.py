# SPDX-License-Identifier: BSD-3-Clause
"""Modules on several devices and in several processes."""

from __future__ import annotations

import errno
import importlib
import os
import shutil
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from modtree import _C
from modtree.core.patterns import matching_paths
from modtree.editing.reporting import why_no_match
from modtree.files.checkpoint.atomic import folder_lock
from modtree.files.checkpoint.base import CheckpointError
from modtree.files.checkpoint.reader import folder_format
from modtree.files.checkpoint.replacing import OfTensors, check_replaced
from modtree.files.checkpoint.save import publish_shards, replaced_with
from modtree.files.checkpoint.shards import shard_names
from modtree.files.checkpoints import load_file, save_file
from modtree.jax._state import State, first_places, state, update, write
from modtree.jax._tracing import lock
from modtree.jax_arrays import family as arrays


def shard(
    model: Any, mesh: Mesh, rules: Mapping[str, PartitionSpec] | None = None, *, strict: bool = True
) -> Any:
    """Puts the parameters and buffers of a module on the devices of a mesh.

    Of the rules, the first whose pattern matches an array says how it is divided; what none matches
    is on each device as a whole. In several processes each of them has the same values, and keeps
    its part. Inside a traced function, this is a constraint for the compiler.

    Args:
        model: The module; its arrays are replaced, all or none.
        mesh: The devices.
        rules: Patterns of paths (those of ``find``) -> how an array is divided.
        strict: A rule that matches nothing is an error.

    Returns:
        The module.

    Raises:
        ValueError: A rule matches nothing, or does not fit the shape of an array.
    """
    with lock:
        split = _C._split_modules(model, None, True)
    places = first_places(split.structure)
    paths = {leaf: path for leaf, (_, path, _) in places.items()}
    all_paths: dict[str, int] = {}
    for _, path, leaf, _ in split.structure.places:
        if leaf >= 0:
            all_paths[path] = leaf
    specs: dict[int, PartitionSpec] = {}
    for pattern, spec in (rules or {}).items():
        chosen = matching_paths(pattern, all_paths)
        if strict and not chosen:
            reason = why_no_match(model, pattern, ("_parameters", "_buffers"))
            raise ValueError(f"shard: no parameter or buffer matches {reason}")
        for path in chosen:
            specs.setdefault(all_paths[path], spec)
    values = [
        _placed(leaf, paths[i], NamedSharding(mesh, specs.get(i, PartitionSpec())))
        for i, leaf in enumerate(split.leaves)
    ]
    entries = [(i, place[2]) for i, place in enumerate(split.structure.places) if place[2] >= 0]
    with lock:
        write(split, tuple(i for i, _ in entries), tuple(leaf for _, leaf in entries), values)
    return model


def _placed(value: Any, path: str, sharding: NamedSharding) -> Any:
    """The array on the devices of a sharding."""
    if len(sharding.spec) > len(value.shape):
        raise ValueError(
            f"shard: {path}: {sharding.spec} does not fit the shape {list(value.shape)}: it has "
            f"more dimensions"
        )
    try:
        sharding.shard_shape(tuple(value.shape))
    except ValueError as error:
        raise ValueError(
            f"shard: {path}: {sharding.spec} does not fit the shape {list(value.shape)} on a mesh "
            f"of {dict(sharding.mesh.shape)}: {error}"
        ) from error
    if isinstance(value, jax.core.Tracer):
        is_explicit = jax.sharding.AxisType.Explicit in sharding.mesh.axis_types
        put = jax.sharding.reshard if is_explicit else jax.lax.with_sharding_constraint
        return put(value, sharding)
    if isinstance(value, arrays.ParameterShape):
        return arrays.ParameterShape(
            value.shape, value.dtype, value.requires_grad, sharding=sharding
        )
    if isinstance(value, jax.ShapeDtypeStruct):
        return jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=sharding)
    if sharding.is_fully_addressable or not value.is_fully_addressable:
        return jax.device_put(value, sharding)
    own = np.asarray(value)
    return jax.make_array_from_callback(value.shape, sharding, lambda index: own[index])


# -- checkpoints -----------------------------------------------------------------------------------


def save_sharded(
    model: Any, folder: Any, *, format: str = "safetensors", overwrite: bool = False
) -> None:
    """Writes a module's state dict from all processes into one folder. All of them call it.

    ``"safetensors"``: each process writes a file with some of the tensors, and the first one an
    index, which all readers of safetensors know; a tensor of which each process has a part is put
    together by the one that writes it. ``"orbax"``: orbax writes the folder, where each process
    writes its parts. With one process, :func:`modtree.save_file` does as well.

    Args:
        model: The module.
        folder: The folder, which all processes see.
        format: ``"safetensors"`` or ``"orbax"``.
        overwrite: Whether a folder may be replaced that orbax did not write, and files in whose
            maps some of the arrays are, and which hold more than is written.

    Raises:
        CheckpointError: Something would be lost.
    """
    path = os.path.abspath(os.fsdecode(os.fspath(folder)))
    if format == "orbax":
        _save_with_orbax(dict(state(model)), path, overwrite)
        return
    if format != "safetensors":
        raise ValueError(f"expected the format 'safetensors' or 'orbax', got {format!r}")
    os.makedirs(path, exist_ok=True)
    entries = model.state_dict()
    file = os.path.join(path, "model.safetensors")
    check_replaced(file, OfTensors(entries), overwrite, others=replaced_with(file, True))
    count, index = jax.process_count(), jax.process_index()
    owners = _owners(entries, count)
    names = shard_names(file, count, _token())
    whole: dict[int, Any] = {}
    own: dict[str, Any] = {}
    for key, value in entries.items():
        if id(value) not in whole:
            # Where processes hold parts, all of them take part in joining these.
            whole[id(value)] = _gathered(value, owners[key] == index)
        if owners[key] == index:
            own[key] = whole[id(value)]
    save_file(own, os.path.join(path, names[index]))
    _wait("modtree.jax.save_sharded: files")
    if index == 0:
        total = sum(
            int(np.prod(value.shape)) * value.dtype.itemsize
            for value in {id(v): v for v in entries.values() if hasattr(v, "dtype")}.values()
        )
        with folder_lock(path):
            publish_shards(file, names, owners, {"total_size": total})
    _wait("modtree.jax.save_sharded: index")


def _token() -> bytes:
    """Four random bytes, the same in all processes."""
    token = np.frombuffer(os.urandom(4), np.uint8)
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        token = np.asarray(multihost_utils.broadcast_one_to_all(token))
    return token.tobytes()


def _save_with_orbax(values: dict[str, Any], path: str, overwrite: bool) -> None:
    """Has orbax write a folder beside, which takes the place of the old one: orbax itself removes
    that first, whatever it holds.
    """
    if os.path.isfile(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    is_there = os.path.isdir(path) and bool(os.listdir(path))
    form = folder_format(path) if is_there else None
    if is_there and not overwrite and (form is None or form.reader != "OrbaxCheckpoint"):
        raise CheckpointError(
            "the folder holds other files than those of orbax, which would be removed: name "
            "another one, or pass overwrite=True",
            path,
        )
    target = os.path.realpath(path)
    new, old = (f"{target}.{_token().hex()}.{what}" for what in ("new", "old"))
    with _orbax().StandardCheckpointer() as checkpointer:
        checkpointer.save(new, values)
        checkpointer.wait_until_finished()
    _wait("modtree.jax.save_sharded: orbax")
    if jax.process_index() == 0:
        if os.path.exists(target):
            os.rename(target, old)
        os.rename(new, target)
        shutil.rmtree(old, ignore_errors=True)
    _wait("modtree.jax.save_sharded: folder")


def _owners(entries: Mapping[str, Any], count: int) -> dict[str, int]:
    """The process that writes each entry, so that all write about as much; ties have one."""
    load = [0] * count
    by_object: dict[int, int] = {}
    owners: dict[str, int] = {}
    for key, value in entries.items():
        if id(value) not in by_object:
            process = load.index(min(load))
            by_object[id(value)] = process
            load[process] += int(getattr(value, "nbytes", 0) or 0)
        owners[key] = by_object[id(value)]
    return owners


def _gathered(value: Any, is_wanted: bool) -> Any:
    if not isinstance(value, jax.Array):
        return value
    if value.is_fully_addressable or value.is_fully_replicated:
        return value if is_wanted else None
    from jax.experimental import multihost_utils

    joined = multihost_utils.process_allgather(value, tiled=True)
    return jax.numpy.asarray(joined) if is_wanted else None


def _wait(name: str) -> None:
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices(name)


def load_sharded(model: Any, folder: Any) -> Any:
    """Reads what :func:`save_sharded` wrote into a module, whose arrays stay on their devices.

    Args:
        model: A module of the same paths and shapes, which may be divided in another way.
        folder: The folder.

    Returns:
        What ``load_state_dict`` returns, or None for a folder of orbax.
    """
    path = os.path.abspath(os.fsdecode(os.fspath(folder)))
    if not os.path.exists(os.path.join(path, "_METADATA")):
        return model.load_state_dict(load_file(path))
    wanted = state(model)
    shapes = {
        key: jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=value.sharding)
        for key, value in wanted.items()
    }
    with _orbax().StandardCheckpointer() as checkpointer:
        restored = checkpointer.restore(path, shapes)
    update(model, State((key, restored[key]) for key in wanted))
    return None


def _orbax() -> Any:
    try:
        return importlib.import_module("orbax.checkpoint")
    except ImportError as error:
        raise ImportError(
            "a folder of orbax needs the package orbax-checkpoint: pip install orbax-checkpoint"
        ) from error
