# SPDX-License-Identifier: BSD-3-Clause
"""Tensors of torch of which four ranks have parts, made in the process of one of them."""

from __future__ import annotations

__all__ = ["WHOLE", "distributed_tensors", "meshes"]

#: The shape of each of them; their values count from 0 on.
WHOLE = (7, 5)


def meshes(rank, folder):
    """A mesh of one dimension and one of two, after this rank has met the others."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    store = dist.FileStore(f"{folder}/store", 4)
    dist.init_process_group("gloo", rank=rank, world_size=4, store=store)
    line = init_device_mesh("cpu", (4,))
    return line, init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))


def distributed_tensors(line, grid):
    """The same tensor, with its parts in each of six ways, and as it is."""
    import torch
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    whole = torch.arange(float(WHOLE[0] * WHOLE[1])).reshape(WHOLE)
    return {
        "rows": distribute_tensor(whole, line, [Shard(0)]),
        "columns": distribute_tensor(whole, line, [Shard(1)]),
        "grid": distribute_tensor(whole, grid, [Shard(0), Shard(1)]),
        "twice": distribute_tensor(whole, grid, [Shard(0), Shard(0)]),
        "copies": distribute_tensor(whole, line, [Replicate()]),
        "mixed": distribute_tensor(whole, grid, [Replicate(), Shard(1)]),
        "plain": whole,
    }
