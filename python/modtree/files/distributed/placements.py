# SPDX-License-Identifier: BSD-3-Clause
"""What the file of a rank says of its part of a tensor: a DTensor by its placements on a mesh of
ranks, a ShardedTensor by the places of its shards.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from modtree import _C
from modtree.files.checkpoint.dtypes import MOST_DIMENSIONS
from modtree.files.checkpoint.other_files import not_damaged
from modtree.files.pickled.stand_in import StandIn
from modtree.files.torch.records import TensorRecord

_DTENSOR = ".DTensor"
_SHARDED = ".ShardedTensor"
_LARGEST = 2**62


class NoPlacement(Exception):
    """It is not said how a part belongs to the whole; the text says what is missing."""


class LocalPart(NamedTuple):
    """A box of a global tensor.

    Attributes:
        shape: Of the global tensor.
        dtype: Of the global tensor.
        offsets: Where the box begins.
        record: Its values.
        ranks: How many ranks the tensor is on.
    """

    shape: tuple[int, ...]
    dtype: Any
    offsets: tuple[int, ...]
    record: TensorRecord
    ranks: int


def is_part(value: Any) -> bool:
    """Whether each rank has a part of the tensor."""
    return type(value) is StandIn and value.is_called and value.kind.endswith((_DTENSOR, _SHARDED))


def parts_of_rank(value: StandIn) -> Iterator[LocalPart]:
    """The boxes that a rank has.

    Raises:
        NoPlacement: The file does not say where they are.
    """
    if value.kind.endswith(_DTENSOR):
        yield _of_dtensor(value)
    else:
        yield from _of_sharded(value)


def _sizes(value: Any, what: str) -> tuple[int, ...]:
    fits = isinstance(value, (tuple, list)) and len(value) <= MOST_DIMENSIONS
    if not fits or not all(type(n) is int and 0 <= n <= _LARGEST for n in value):
        raise NoPlacement(f"{what} is not known")
    return tuple(value)


def _attributes(value: Any, what: str) -> dict[Any, Any]:
    if type(value) is not StandIn or not value.attributes:
        raise NoPlacement(f"{what} is not known")
    return value.attributes


def _record(value: Any) -> TensorRecord:
    if type(value) is not TensorRecord or value.source is None:
        raise NoPlacement("the values of this rank are not a plain tensor")
    return value


# -- DTensor ---------------------------------------------------------------------------------------


def _of_dtensor(value: StandIn) -> LocalPart:
    parts = _attributes(value, "its layout")
    record = _record(parts.get("_local_tensor"))
    spec = _attributes(parts.get("_spec"), "its layout")
    meta = spec.get("tensor_meta")
    given = meta.args if type(meta) is StandIn else ()
    shape = _sizes(given[0] if given else (value.args[2:3] or (None,))[0], "its global shape")
    dtype = given[2] if len(given) > 2 and type(given[2]) is _C.dtype else record.dtype
    mesh = _attributes(spec.get("mesh"), "the mesh of ranks")
    at = mesh.get("_coordinate_on_dim")
    coordinate = _sizes(list(at) if isinstance(at, (list, tuple)) else None, "the place of a rank")
    sizes = _mesh_sizes(mesh)
    placements = spec.get("placements")
    if not isinstance(placements, (tuple, list)):
        raise NoPlacement("its placements are not known")
    if not len(placements) == len(coordinate) == len(sizes):
        raise NoPlacement(f"{len(placements)} placements are on a mesh of {len(sizes)} dimensions")
    if spec.get("use_strided_shard_as_shard_order") is True or not _in_order(spec, placements):
        raise not_damaged(
            NoPlacement("its dimensions are split in an order that is not that of the mesh")
        )
    begins, lengths = [0] * len(shape), list(shape)
    for placement, index, size in zip(placements, coordinate, sizes, strict=True):
        dim = _split_dimension(placement, len(shape))
        if dim is None:
            continue
        if index >= size:
            raise NoPlacement(f"rank {index} is on a mesh of {size}")
        each = -(-lengths[dim] // size)
        first = min(index * each, lengths[dim])
        begins[dim] += first
        lengths[dim] = min(each, lengths[dim] - first)
    if record.shape != tuple(lengths):
        raise NoPlacement(
            f"this rank is to have the shape {lengths} of {list(shape)}, and has "
            f"{list(record.shape)}"
        )
    ranks = 1
    for size in sizes:
        ranks *= size
    return LocalPart(shape, dtype, tuple(begins), record, ranks)


def _split_dimension(placement: Any, dims: int) -> int | None:
    """The dimension that a placement splits; None for copies."""
    kind = placement.kind.rpartition(".")[2] if type(placement) is StandIn else ""
    if kind == "Replicate":
        return None
    if kind != "Shard":
        words = {"Partial": "partial sums", "_StridedShard": "shards in strides"}
        reason = f"ranks have {words.get(kind, f'a placement {kind!r:.40}')} of it"
        raise not_damaged(NoPlacement(reason)) if kind in words else NoPlacement(reason)
    named = {**placement.attributes, **placement.pairs}
    dim = named.get("dim", placement.args[0] if placement.args else None)
    if type(dim) is not int or not -dims <= dim < dims:
        raise NoPlacement(f"the dimension {dim!r:.40} is split")
    return dim % dims


def _in_order(spec: dict[Any, Any], placements: Any) -> bool:
    """Whether a dimension that several dimensions of the mesh split is split in their order."""
    order = spec.get("shard_order")
    for entry in order if isinstance(order, (tuple, list)) else ():
        args = entry.args if type(entry) is StandIn else ()
        dims = args[1] if len(args) > 1 and isinstance(args[1], (tuple, list)) else ()
        if not all(type(n) is int for n in dims) or list(dims) != sorted(dims):
            return False
    return True


def _mesh_sizes(mesh: dict[Any, Any]) -> tuple[int, ...]:
    """How many ranks each dimension of a mesh has; versions of torch say it differently."""
    tensor = mesh.get("mesh", mesh.get("_mesh"))
    if type(tensor) is TensorRecord:
        return tensor.shape
    layout = mesh.get("_layout")
    named = layout.attributes if type(layout) is StandIn else {}
    if "axes" in named:
        axes = named["axes"]
        shapes = [
            axis.attributes.get("shape", axis.args[0] if axis.args else None)
            if type(axis) is StandIn
            else None
            for axis in (axes if isinstance(axes, (tuple, list)) else ())
        ]
    else:
        shape = named.get("shape")
        shapes = list(shape) if isinstance(shape, (tuple, list)) else [shape]
    return _sizes([_product(shape) for shape in shapes], "the size of the mesh")


def _product(shape: Any) -> Any:
    """The ranks of a dimension, which may be made of several."""
    if isinstance(shape, (tuple, list)):
        count = 1
        for n in shape[:MOST_DIMENSIONS]:
            count *= n if type(n) is int else 0
        return count
    return shape


# -- ShardedTensor ---------------------------------------------------------------------------------


def _of_sharded(value: StandIn) -> Iterator[LocalPart]:
    state = value.state if isinstance(value.state, tuple) else ()
    if len(state) < 2 or not isinstance(state[0], list):
        raise NoPlacement("its shards are not known")
    facts = _attributes(state[1], "its layout")
    shape = _sizes(facts.get("size", (value.args[2:3] or (None,))[0]), "its global shape")
    all_shards = facts.get("shards_metadata")
    count = len(all_shards) if isinstance(all_shards, list) else 0
    for shard in state[0]:
        parts = _attributes(shard, "a shard")
        place = _attributes(parts.get("metadata"), "the place of a shard")
        record = _record(parts.get("tensor"))
        offsets = _sizes(place.get("shard_offsets"), "the place of a shard")
        yield LocalPart(shape, record.dtype, offsets, record, count)
