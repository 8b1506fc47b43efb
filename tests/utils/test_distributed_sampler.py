# SPDX-License-Identifier: BSD-3-Clause
"""Shares of a dataset for several processes."""

from __future__ import annotations

import pytest

import modtree as mt


def shares(lib, count, parts, **options):
    """Each process's samples."""
    kind = lib.utils.data.distributed.DistributedSampler
    samplers = [kind(range(count), parts, rank, **options) for rank in range(parts)]
    assert all(len(list(s)) == len(s) == s.num_samples for s in samplers)
    return [list(s) for s in samplers]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(("count", "parts"), [(8, 2), (10, 3), (11, 4), (2, 5), (1, 4), (7, 1)])
def test_shares_in_order(count, parts, drop_last, torch):
    options = {"shuffle": False, "drop_last": drop_last}
    ours = shares(mt, count, parts, **options)
    assert ours == shares(torch, count, parts, **options)


@pytest.mark.parametrize("drop_last", [False, True])
def test_shares_are_disjoint(lib, drop_last):
    found = shares(lib, 12, 3, shuffle=True, seed=5, drop_last=drop_last)
    assert sorted(i for share in found for i in share) == list(range(12))
    assert found[0] != list(range(0, 12, 3))


def test_every_epoch_has_an_order_of_its_own(lib):
    sampler = lib.utils.data.DistributedSampler(range(50), num_replicas=2, rank=1)
    first = list(sampler)
    assert list(sampler) == first
    sampler.set_epoch(1)
    assert list(sampler) != first
    sampler.set_epoch(0)
    assert list(sampler) == first


@pytest.mark.parametrize("rank", [-1, 2])
def test_rank_within_the_processes(lib, rank):
    with pytest.raises(ValueError, match=rf"Invalid rank {rank}, .*\[0, 1\]"):
        lib.utils.data.DistributedSampler(range(4), num_replicas=2, rank=rank)


def test_in_a_loader(lib):
    data = lib.utils.data.TensorDataset(lib.arange(7))
    sampler = lib.utils.data.DistributedSampler(data, num_replicas=2, rank=0, shuffle=False)
    loader = lib.utils.data.DataLoader(data, batch_size=2, sampler=sampler)
    assert [batch[0].tolist() for batch in loader] == [[0, 2], [4, 6]]


def test_without_processes_there_is_one():
    sampler = mt.utils.data.DistributedSampler(range(5), shuffle=False)
    assert (sampler.num_replicas, sampler.rank) == (1, 0)
    assert list(sampler) == [0, 1, 2, 3, 4]
    sampler = mt.utils.data.DistributedSampler([], shuffle=False)
    assert list(sampler) == [] and len(sampler) == 0
