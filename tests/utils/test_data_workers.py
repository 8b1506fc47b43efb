# SPDX-License-Identifier: BSD-3-Clause
"""Loaders with worker processes, on modtree and on torch: batches, order, seeds, rounds."""

from __future__ import annotations

import importlib
import multiprocessing
import os

import numpy as np
import pytest
from helpers.implementations import needs_torch
from helpers.needs import needs
from helpers.worker_data import Late, Squares, Workers, same, sum_of_squares

import modtree as mt

# CPython 3.12 and later warn of a fork in a process with threads, such as those of NumPy's BLAS.
pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="forks"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
]

METHODS = [
    m for m in ("fork", "spawn", "forkserver") if m in multiprocessing.get_all_start_methods()
]


@pytest.fixture(params=["modtree", pytest.param("torch", marks=needs_torch)])
def lib(request):
    importlib.import_module(f"{request.param}.utils.data")
    return importlib.import_module(request.param)


@pytest.fixture
def data(lib):
    return lib.utils.data


@pytest.fixture
def children():
    """The processes that were started since the test began."""
    before = {child.pid for child in multiprocessing.active_children()}
    return lambda: [c for c in multiprocessing.active_children() if c.pid not in before]


def loader_of(data, dataset, *args, **kwargs):
    """Two forked workers."""
    kwargs = {"num_workers": 2, "multiprocessing_context": "fork", **kwargs}
    return data.DataLoader(dataset, *args, **kwargs)


def plain(value):
    if hasattr(value, "tolist"):
        return str(value.dtype).rpartition(".")[2], value.tolist()
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def stream_class(data):
    class Stream(data.IterableDataset):
        def __init__(self, n, share=True):
            self.n, self.share = n, share

        def __iter__(self):
            info = data.get_worker_info()
            if info is None or not self.share:
                return iter(range(self.n))
            return iter(range(info.id, self.n, info.num_workers))

        def __len__(self):
            return self.n

    return Stream


# -- the same batches as in process ----------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 5},
        {"batch_size": 5, "drop_last": True},
        {"batch_size": None},
        {"batch_size": 4, "shuffle": True},
        {"batch_sampler": [[3, 1], [], [2] * 7] * 3},
        {"sampler": [5, 2, 9]},
        {"batch_size": 2, "prefetch_factor": 1},
        {"batch_size": 1, "num_workers": 3, "prefetch_factor": 8},
        {"batch_size": 5, "persistent_workers": True},
        {"batch_size": 5, "pin_memory": False},
    ],
    ids=str,
)
def test_batches_are_those_of_this_process(lib, data, options):
    options = {"collate_fn": same, **options} if "batch_sampler" in options else dict(options)
    lib.manual_seed(11)
    workers = loader_of(data, Squares(), **options)
    got = [[plain(b) for b in workers] for _ in range(1 if workers.persistent_workers else 2)]
    for name in ("prefetch_factor", "persistent_workers", "num_workers"):
        options.pop(name, None)
    lib.manual_seed(11)
    here = data.DataLoader(Squares(), **options)
    assert got == [[plain(b) for b in here] for _ in got]
    assert len(workers) == len(here) and len(iter(here)) == len(here)


@pytest.mark.parametrize("method", METHODS)
def test_every_start_method(method):
    loader = loader_of(mt.utils.data, Squares(), 4, multiprocessing_context=method)
    expected = [plain(b) for b in mt.utils.data.DataLoader(Squares(), 4)]
    assert [plain(b) for b in loader] == expected
    context = multiprocessing.get_context(method)
    loader = loader_of(
        mt.utils.data, Squares(), 4, collate_fn=sum_of_squares, multiprocessing_context=context
    )
    assert list(loader) == [14, 126, 366]


def test_batches_come_in_order_though_the_first_is_late(data):
    assert [b.tolist() for b in loader_of(data, Late(6, sets=2), 2)] == [[0, 1], [2, 3], [4, 5]]


def test_batches_are_in_order_in_any_case():
    loader = loader_of(mt.utils.data, Late(6, sets=2), 2, in_order=False)
    assert [b.tolist() for b in loader] == [[0, 1], [2, 3], [4, 5]]


def test_keys_and_batches_larger_than_a_pipe(data):
    """Neither side waits for the other to read."""
    loader = loader_of(data, range(400_000), batch_size=100_000, collate_fn=same)
    assert [(len(b), b[-1]) for b in loader] == [
        (100_000, last) for last in (99_999, 199_999, 299_999, 399_999)
    ]


def test_what_comes_may_be_written(data):
    for shape in ((2, 2), (200, 200)):
        for batch in loader_of(data, Squares(4, shape), 2):
            batch["plane"] += 1
            batch["plane"][0, 0, 0] = 7
            assert batch["plane"][0, 0].tolist()[:2] == [7, batch["plane"][0, 1, 0].item()]


def test_two_iterators_at_once(data):
    loader = loader_of(data, Squares(6), 2, collate_fn=sum_of_squares)
    assert list(zip(loader, loader, strict=True)) == [(1, 1), (13, 13), (41, 41)]


def test_a_loop_that_is_left_early(data, children):
    loader = loader_of(data, Squares(100, (100, 100)), 2)
    for _ in range(2):
        for batch in loader:
            assert batch["square"].tolist() == [0, 1]
            break
    del batch
    assert not children()


def test_no_batches_at_all(data):
    assert list(loader_of(data, [], 2)) == []
    assert list(loader_of(data, Squares(), batch_sampler=[])) == []


def test_after_the_last_batch(data):
    iterator = iter(loader_of(data, Squares(2), 2))
    next(iterator)
    for _ in range(2):
        with pytest.raises(StopIteration):
            next(iterator)


# -- workers and their seeds -----------------------------------------------------------------------


def infos(loader):
    return [sample for batch in loader for sample in batch]


def test_worker_info(lib, data):
    assert data.get_worker_info() is None
    got = infos(loader_of(data, Workers(data, lib), 2, collate_fn=same))
    assert [i for _, i, *_ in got] == [0, 0, 1, 1, 0, 0, 1, 1]
    assert {n for _, _, n, *_ in got} == {2}
    pids = {pid for pid, *_ in got}
    assert len(pids) == 2 and os.getpid() not in pids
    seeds = {i: seed for _, i, _, seed, *_ in got}
    assert seeds[1] == seeds[0] + 1
    assert all(is_its_dataset for *_, is_its_dataset in got)


def test_random_numbers_of_workers(lib, data):
    """They differ between workers and rounds, and follow the seed."""
    rounds = []
    for seed in (3, 3, 4):
        lib.manual_seed(seed)
        loader = loader_of(data, Workers(data, lib), 2, collate_fn=same)
        rounds += [[sample[4] for sample in infos(loader)] for _ in range(2)]
    assert rounds[:2] == rounds[2:4]
    drawn = [numbers for some in (rounds[0], rounds[1], rounds[4]) for numbers in some]
    for column in zip(*drawn, strict=True):
        assert len(set(column)) == len(column)


def test_the_generator_gives_the_seed(lib, data):
    seeds = []
    for _ in range(2):
        generator = lib.Generator().manual_seed(9)
        loader = loader_of(data, Workers(data, lib), 4, collate_fn=same, generator=generator)
        lib.rand(1)
        seeds.append([sample[3] for sample in infos(loader)])
    assert seeds[0] == seeds[1]


@needs_torch
def test_numpy_is_seeded_as_in_torch():
    from torch.utils.data._utils.worker import _generate_state

    class First(Squares):
        def __getitem__(self, i):
            return mt.utils.data.get_worker_info().seed - i, float(np.random.rand())

    (base, first), (same_base, second) = loader_of(
        mt.utils.data, First(2), 1, collate_fn=lambda b: b[0]
    )
    assert base == same_base
    for worker, number in enumerate((first, second)):
        assert np.random.RandomState(_generate_state(base, worker)).rand() == number


def test_a_round_takes_one_number_more_than_its_sampler(lib, data):
    """The seed of the workers is drawn without workers too."""
    left = []
    for workers in (0, 2):
        lib.manual_seed(1)
        context = "fork" if workers else None
        options = {"num_workers": workers, "multiprocessing_context": context}
        orders = [
            [b.tolist() for b in data.DataLoader(range(20), 5, shuffle=True, **options)]
            for _ in range(2)
        ]
        left.append((orders, lib.rand(3).tolist()))
    assert left[0] == left[1]


def test_worker_init_fn(data):
    def begin(worker):
        info = data.get_worker_info()
        info.dataset.n = (worker, info.id, info.seed is not None)

    class Told(Squares):
        def __getitem__(self, i):
            return self.n

        def __len__(self):
            return 4

    loader = loader_of(data, Told(), 1, worker_init_fn=begin, collate_fn=lambda b: b[0])
    assert list(loader) == [(0, 0, True), (1, 1, True)] * 2


# -- streams ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 2, 3, 10, 11])
@pytest.mark.parametrize(
    "options",
    [{"batch_size": 2}, {"batch_size": 2, "drop_last": True}, {"batch_size": None}],
    ids=str,
)
@needs("torch")
def test_streams_that_are_shared(n, options):
    results = []
    for name in ("modtree", "torch"):
        data = importlib.import_module(f"{name}.utils.data")
        loader = loader_of(data, stream_class(data)(n), num_workers=3, **options)
        results.append([plain(b) for b in loader])
    assert results[0] == results[1]


def test_a_stream_that_is_not_shared_comes_from_each_worker(data):
    loader = loader_of(data, stream_class(data)(3, share=False), batch_size=2)
    assert [b.tolist() for b in loader] == [[0, 1], [0, 1], [2], [2]]
    assert len(loader) == 2
    with pytest.warns(UserWarning, match="was reported to be 3.*4 samples have been fetched"):
        list(loader)


def test_workers_of_unequal_streams(data):
    class Uneven(data.IterableDataset):
        def __iter__(self):
            worker = data.get_worker_info().id
            return iter([f"{worker}{i}" for i in range((1, 5, 3)[worker])])

    loader = loader_of(data, Uneven(), batch_size=None, num_workers=3)
    assert list(loader) == ["00", "10", "20", "11", "21", "12", "22", "13", "14"]


# -- workers that stay -----------------------------------------------------------------------------


def test_persistent_workers(lib, data):
    loader = loader_of(data, Workers(data, lib), 2, collate_fn=same, persistent_workers=True)
    rounds = [infos(loader) for _ in range(3)]
    assert len({pid for some in rounds for pid, *_ in some}) == 2
    assert iter(loader) is iter(loader)
    assert len({sample[4] for some in rounds for sample in some}) == 24


def test_a_round_of_persistent_workers_that_is_left_early(data):
    loader = loader_of(data, Squares(20), 2, collate_fn=sum_of_squares, persistent_workers=True)
    expected = list(data.DataLoader(Squares(20), 2, collate_fn=sum_of_squares))
    for taken in (1, 3, 0):
        iterator = iter(loader)
        assert [next(iterator) for _ in range(taken)] == expected[:taken]
    assert list(loader) == list(loader) == expected


def test_persistent_workers_begin_their_streams_again(data):
    loader = loader_of(data, stream_class(data)(5), batch_size=2, persistent_workers=True)
    rounds = [[b.tolist() for b in loader] for _ in range(3)]
    assert rounds == [[[0, 2], [1, 3], [4]]] * 3


def test_persistent_workers_end_with_their_loader(data, children):
    loader = loader_of(data, Squares(), 2, persistent_workers=True)
    next(iter(loader))
    assert len(children()) == 2
    del loader
    assert not children()


# -- options ---------------------------------------------------------------------------------------


def test_context_of_the_loader(data):
    context = multiprocessing.get_context("fork")
    loader = data.DataLoader(Squares(), num_workers=1, multiprocessing_context=context)
    assert loader.multiprocessing_context is context
    assert loader.prefetch_factor == 2
    loader.multiprocessing_context = "spawn"
    assert loader.multiprocessing_context.get_start_method() == "spawn"
    assert data.DataLoader(Squares()).multiprocessing_context is None
    assert data.DataLoader(Squares()).prefetch_factor is None


@pytest.mark.parametrize(
    ("kind", "message", "options"),
    [
        (ValueError, "should specify a valid start method in", {"multiprocessing_context": "x"}),
        (TypeError, "should be a valid context object or a string", {"multiprocessing_context": 1}),
        (
            ValueError,
            "multiprocessing_context can only be used with multi-process loading",
            {"multiprocessing_context": "spawn", "num_workers": 0},
        ),
        (ValueError, "prefetch_factor option should be non-negative", {"prefetch_factor": -1}),
    ],
    ids=lambda v: str(v)[:20],
)
def test_wrong_options(data, kind, message, options):
    with pytest.raises(kind, match=message):
        data.DataLoader(Squares(), **{"num_workers": 2, **options})


@pytest.mark.filterwarnings("default:This DataLoader will create:UserWarning")
def test_more_workers_than_cores(data):
    with pytest.warns(UserWarning, match="This DataLoader will create 5000 worker processes"):
        data.DataLoader(Squares(), num_workers=5000)


def test_iterators_are_not_pickled(data):
    iterator = iter(loader_of(data, Squares(), 2))
    with pytest.raises(NotImplementedError):
        iterator.__getstate__()


def test_a_prefetch_factor_of_0():
    """As in torch, whose half-made iterator then complains while it is deleted."""
    with pytest.raises(AssertionError, match="prefetch_factor must be greater than 0"):
        iter(loader_of(mt.utils.data, Squares(6), prefetch_factor=0))
