# SPDX-License-Identifier: BSD-3-Clause
"""Datasets, samplers, collating and the loader, on modtree and on torch."""

from __future__ import annotations

import collections
import importlib
import math
import warnings

import numpy as np
import pytest
from helpers.implementations import needs_torch

import modtree as mt

Point = collections.namedtuple("Point", "x y")


@pytest.fixture(params=["modtree", pytest.param("torch", marks=needs_torch)])
def lib(request):
    importlib.import_module(f"{request.param}.utils.data")
    return importlib.import_module(request.param)


@pytest.fixture
def data(lib):
    return lib.utils.data


def plain(value, lib):
    """Tensors as (dtype, list), containers kept."""
    if isinstance(value, lib.Tensor):
        return str(value.dtype).rpartition(".")[2], value.tolist()
    if isinstance(value, dict):
        return {k: plain(v, lib) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v, lib) for v in value]
    if isinstance(value, tuple):
        return tuple(plain(v, lib) for v in value)
    return value


class Squares:
    """A dataset that needs no base class."""

    def __init__(self, n=10):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if not 0 <= i < self.n:
            raise IndexError(i)
        return i * i


def stream_class(data):
    class Stream(data.IterableDataset):
        def __init__(self, n, said=None):
            self.n, self.said = n, said

        def __iter__(self):
            return iter(range(self.n))

        def __len__(self):
            return self.n if self.said is None else self.said

    return Stream


# -- datasets --------------------------------------------------------------------------------------


def test_tensor_dataset(lib, data):
    dataset = data.TensorDataset(lib.arange(4), lib.arange(8).reshape(4, 2))
    assert len(dataset) == 4
    assert plain(dataset[1], lib) == (("int64", 1), ("int64", [2, 3]))
    assert plain(dataset[1:3], lib)[0] == ("int64", [1, 2])
    with pytest.raises(AssertionError, match="Size mismatch between tensors"):
        data.TensorDataset(lib.zeros(3), lib.zeros(4))


def test_dataset_without_getitem(data):
    with pytest.raises(NotImplementedError):
        data.Dataset()[0]


def test_concat(data):
    class Letters(data.Dataset):
        def __init__(self, text):
            self.text = text

        def __len__(self):
            return len(self.text)

        def __getitem__(self, i):
            return self.text[i]

    joined = Letters("ab") + Letters("") + Letters("cde")
    assert isinstance(joined, data.ConcatDataset)
    assert len(joined) == 5
    assert [joined[i] for i in range(5)] == list("abcde")
    assert joined[-1] == "e" and joined[-5] == "a"
    with pytest.raises(ValueError, match="should not exceed dataset length"):
        joined[-6]
    with pytest.raises(IndexError):
        joined[5]
    assert data.ConcatDataset([Letters("ab"), Letters("c")]).cumulative_sizes == [2, 3]


def test_concat_errors(data):
    with pytest.raises(AssertionError, match="should not be an empty iterable"):
        data.ConcatDataset([])
    with pytest.raises(AssertionError, match="does not support IterableDataset"):
        data.ConcatDataset([stream_class(data)(2)])


def test_chain(data):
    Stream = stream_class(data)
    chained = Stream(2) + Stream(3)
    assert isinstance(chained, data.ChainDataset)
    assert list(chained) == [0, 1, 0, 1, 2] and len(chained) == 5
    with pytest.raises(AssertionError, match="only supports IterableDataset"):
        list(data.ChainDataset([Squares()]))


def test_subset(data):
    subset = data.Subset(Squares(), [5, 2, 7])
    assert len(subset) == 3
    assert [subset[i] for i in range(3)] == [25, 4, 49]
    assert subset.__getitems__([2, 0]) == [49, 25]

    class Half(data.Subset):
        def __getitem__(self, i):
            return super().__getitem__(i) / 2

    with pytest.raises(NotImplementedError, match="overrides __getitem__ but not __getitems__"):
        Half(Squares(), [1])


def test_subset_of_a_subset_fetches_in_one_call(data):
    class Together(Squares):
        calls = 0

        def __getitems__(self, indices):
            Together.calls += 1
            return [i * i for i in indices]

    subset = data.Subset(data.Subset(Together(), [9, 3, 5]), [2, 1])
    assert subset.__getitems__([0, 1]) == [25, 9]
    assert Together.calls == 1


def test_stack(data):
    pairs = data.StackDataset(Squares(4), range(4))
    assert pairs[3] == (9, 3) and len(pairs) == 4
    named = data.StackDataset(a=Squares(4), b=data.Subset(Squares(), [1, 2, 3, 4]))
    assert named[1] == {"a": 1, "b": 4}
    assert named.__getitems__([0, 2]) == [{"a": 0, "b": 1}, {"a": 4, "b": 9}]
    assert pairs.__getitems__([1]) == [(1, 1)]
    with pytest.raises(ValueError, match="both types are given"):
        data.StackDataset(Squares(), a=Squares())
    with pytest.raises(ValueError, match="At least one dataset"):
        data.StackDataset()
    with pytest.raises(ValueError, match="Size mismatch between datasets"):
        data.StackDataset(Squares(1), Squares(2))


def test_random_split(lib, data):
    lib.manual_seed(3)
    parts = data.random_split(Squares(10), [3, 7])
    assert [len(part) for part in parts] == [3, 7]
    together = [part[i] for part in parts for i in range(len(part))]
    assert sorted(together) == [i * i for i in range(10)]
    assert together != sorted(together)
    again = [
        data.random_split(Squares(10), [3, 7], generator=lib.Generator().manual_seed(5))[0].indices
        for _ in range(2)
    ]
    assert again[0] == again[1]


def test_random_split_by_fractions(data):
    parts = data.random_split(Squares(10), [0.25, 0.25, 0.5])
    assert [len(part) for part in parts] == [3, 2, 5]
    parts = data.random_split(Squares(11), [0.3, 0.3, 0.4])
    assert [len(part) for part in parts] == [4, 3, 4]
    with pytest.warns(UserWarning, match="Length of split at index 2 is 0"):
        data.random_split(Squares(2), [0.5, 0.5, 0.0])
    with pytest.raises(ValueError, match="Fraction at index 0 is not between 0 and 1"):
        data.random_split(Squares(2), [-0.5, 1.5])
    with pytest.raises(ValueError, match="Sum of input lengths does not equal"):
        data.random_split(Squares(4), [1, 2])


# -- samplers --------------------------------------------------------------------------------------


def test_sequential_sampler(data):
    sampler = data.SequentialSampler(Squares(4))
    assert list(sampler) == [0, 1, 2, 3] and len(sampler) == 4


def test_random_sampler(lib, data):
    lib.manual_seed(0)
    sampler = data.RandomSampler(Squares(50))
    first, second = list(sampler), list(sampler)
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second
    lib.manual_seed(0)
    assert list(sampler) == first
    assert len(sampler) == 50


def test_random_sampler_takes_one_number_of_the_default_stream(lib, data):
    """So that what a round draws does not depend on how large the dataset is."""
    draws = []
    for n in (5, 500):
        lib.manual_seed(1)
        list(data.RandomSampler(Squares(n)))
        draws.append(lib.rand(3).tolist())
    assert draws[0] == draws[1]


def test_random_sampler_counts(data):
    longer = list(data.RandomSampler(Squares(4), num_samples=10))
    assert len(longer) == 10 and sorted(longer[:4]) == [0, 1, 2, 3] == sorted(longer[4:8])
    replaced = list(data.RandomSampler(Squares(3), replacement=True, num_samples=2000))
    assert len(replaced) == 2000
    assert all(500 < replaced.count(i) < 850 for i in range(3))
    assert len(list(data.RandomSampler(Squares(4), num_samples=3))) == 3


def test_random_sampler_with_a_generator(lib, data):
    orders = []
    for _ in range(2):
        generator = lib.Generator().manual_seed(7)
        sampler = data.RandomSampler(Squares(20), generator=generator)
        orders.append([list(sampler), list(sampler)])
    assert orders[0] == orders[1] and orders[0][0] != orders[0][1]


def test_random_sampler_errors(data):
    with pytest.raises(TypeError, match="replacement should be a boolean"):
        data.RandomSampler(Squares(), replacement=1)
    with pytest.raises(ValueError, match="num_samples should be a positive integer"):
        data.RandomSampler(Squares(), num_samples=0)
    with pytest.raises(ValueError, match="num_samples should be a positive integer"):
        data.RandomSampler([])


def test_subset_random_sampler(data):
    sampler = data.SubsetRandomSampler([3, 5, 8])
    assert sorted(sampler) == [3, 5, 8] and len(sampler) == 3


def test_weighted_sampler(lib, data):
    lib.manual_seed(2)
    sampler = data.WeightedRandomSampler([0.0, 3.0, 1.0], 4000)
    drawn = list(sampler)
    assert len(drawn) == len(sampler) == 4000
    assert drawn.count(0) == 0 and 2800 < drawn.count(1) < 3200
    without = list(data.WeightedRandomSampler([1.0, 2.0, 3.0], 3, replacement=False))
    assert sorted(without) == [0, 1, 2]
    assert type(without[0]) is int
    with pytest.raises(ValueError, match="num_samples should be a positive integer"):
        data.WeightedRandomSampler([1.0], True)
    with pytest.raises(ValueError, match="replacement should be a boolean"):
        data.WeightedRandomSampler([1.0], 1, replacement=0)
    with pytest.raises(ValueError, match="weights should be a 1d sequence"):
        data.WeightedRandomSampler([[1.0]], 1)


def test_batch_sampler(data):
    sampler = data.BatchSampler(range(7), 3, False)
    assert list(sampler) == [[0, 1, 2], [3, 4, 5], [6]] and len(sampler) == 3
    sampler = data.BatchSampler(data.SequentialSampler(Squares(7)), 3, True)
    assert list(sampler) == [[0, 1, 2], [3, 4, 5]] and len(sampler) == 2
    with pytest.raises(ValueError, match="batch_size should be a positive integer"):
        data.BatchSampler(range(3), 0, False)
    with pytest.raises(ValueError, match="batch_size should be a positive integer"):
        data.BatchSampler(range(3), True, False)
    with pytest.raises(ValueError, match="drop_last should be a boolean"):
        data.BatchSampler(range(3), 1, 1)


def test_sampler_without_iter(data):
    with pytest.raises(NotImplementedError):
        iter(data.Sampler())


# -- collating -------------------------------------------------------------------------------------

BATCHES = {
    "floats": lambda lib: [1.0, 2.5],
    "ints": lambda lib: [1, 2],
    "bools": lambda lib: [True, False],
    "text": lambda lib: ["a", "b"],
    "bytes": lambda lib: [b"a", b"b"],
    "tensors": lambda lib: [lib.ones(2), lib.zeros(2)],
    "0-d tensors": lambda lib: [lib.tensor(1), lib.tensor(2)],
    "arrays": lambda lib: [np.ones((2, 1), np.float32), np.zeros((2, 1), np.float32)],
    "float64 arrays": lambda lib: [np.ones(2), np.zeros(2)],
    "scalars": lambda lib: [np.float32(1), np.float32(2)],
    "int scalars": lambda lib: [np.int16(1), np.int16(2)],
    "bool scalars": lambda lib: [np.bool_(True), np.bool_(False)],
    "tuples": lambda lib: [(1, lib.ones(1), "x"), (2, lib.zeros(1), "y")],
    "lists": lambda lib: [[1, 2.0], [3, 4.0]],
    "dicts": lambda lib: [{"a": 1, "b": [lib.ones(1)]}, {"a": 2, "b": [lib.zeros(1)]}],
    "ordered": lambda lib: [collections.OrderedDict(b=1, a=2), collections.OrderedDict(b=3, a=4)],
    "named tuples": lambda lib: [Point(1, 2.0), Point(3, 4.0)],
    "nested": lambda lib: [{"p": Point((1, 2), {"q": np.ones(1)})}] * 2,
    "ranges": lambda lib: [range(2), range(2)],
    "one": lambda lib: [(lib.ones(2, dtype=lib.float64),)],
}


@needs_torch
@pytest.mark.parametrize("kind", BATCHES)
@pytest.mark.parametrize("name", ["default_collate", "default_convert"])
def test_collating_as_torch(name, kind):
    import torch
    from torch.utils import data as torch_data

    results = []
    for lib, data in ((mt, mt.utils.data), (torch, torch_data)):
        result = getattr(data, name)(BATCHES[kind](lib))
        results.append((type(result).__name__, plain(result, lib)))
    assert results[0] == results[1]


def test_collate_errors(data):
    with pytest.raises(TypeError, match="batch must contain tensors, numpy arrays, numbers"):
        data.default_collate([object(), object()])
    with pytest.raises(TypeError, match="batch must contain tensors, numpy arrays, numbers"):
        data.default_collate([np.array(["a"]), np.array(["b"])])
    with pytest.raises(RuntimeError, match="should be of equal size"):
        data.default_collate([[1], [1, 2]])
    with pytest.raises(RuntimeError):
        data.default_collate([np.ones(2), np.ones(3)])


def test_convert_leaves_text_arrays(data):
    array = np.array(["a", "b"])
    assert data.default_convert(array) is array
    assert data.default_convert("text") == "text"


def test_own_kinds_of_leaves(lib):
    collate = importlib.import_module(
        "modtree.utils.data.collate" if lib is mt else "torch.utils.data._utils.collate"
    )

    class Name(str):
        pass

    table = {
        Name: lambda batch, *, collate_fn_map: "+".join(batch),
        **collate.default_collate_fn_map,
    }
    batch = [(Name("a"), "x", 1), (Name("b"), "y", 2)]
    result = collate.collate(batch, collate_fn_map=table)
    assert result[0] == "a+b" and list(result[1]) == ["x", "y"] and result[2].tolist() == [1, 2]


# -- the loader ------------------------------------------------------------------------------------


def test_batches(lib, data):
    loader = data.DataLoader(Squares(5), batch_size=2)
    assert [plain(b, lib) for b in loader] == [
        ("int64", [0, 1]),
        ("int64", [4, 9]),
        ("int64", [16]),
    ]
    assert len(loader) == 3
    loader = data.DataLoader(Squares(5), batch_size=2, drop_last=True)
    assert [b.tolist() for b in loader] == [[0, 1], [4, 9]] and len(loader) == 2
    assert [b.tolist() for b in data.DataLoader(Squares(2))] == [[0], [1]]


def test_batches_of_tensors(lib, data):
    dataset = data.TensorDataset(lib.arange(6).reshape(3, 2), lib.tensor([0, 1, 0]))
    x, y = next(iter(data.DataLoader(dataset, 2)))
    assert x.tolist() == [[0, 1], [2, 3]] and y.tolist() == [0, 1]


def test_batches_of_tensors_in_one_piece(lib, data):
    """The short way for parts of a TensorDataset gives what sample after sample does."""
    x, y = lib.arange(24.0).reshape(8, 3), lib.arange(8)
    part = data.Subset(data.Subset(data.TensorDataset(x, y), [7, 5, 3, 1]), [3, 0, 2])
    for dataset in (part, data.TensorDataset(x, y)):
        short = list(data.DataLoader(dataset, 2))
        long = list(data.DataLoader(dataset, 2, collate_fn=lambda b: data.default_collate(b)))
        assert plain(short, lib) == plain(long, lib)
        assert type(short[0]) is list
    with pytest.raises(IndexError):
        list(data.DataLoader(data.TensorDataset(x), sampler=[8]))
    with pytest.raises((TypeError, IndexError)):
        list(data.DataLoader(data.TensorDataset(x), sampler=["a"]))
    row = x.clone().requires_grad_()
    next(iter(data.DataLoader(data.TensorDataset(row), 2)))[0].sum().backward()
    assert row.grad.sum().item() == 6
    batch = next(iter(data.DataLoader(data.TensorDataset(x), 8)))[0]
    batch.zero_()
    assert x[0, 1].item() == 1


def test_subclasses_of_tensor_dataset_keep_their_samples(lib, data):
    class Doubled(data.TensorDataset):
        def __getitem__(self, i):
            return tuple(2 * t for t in super().__getitem__(i))

    (batch,) = next(iter(data.DataLoader(Doubled(lib.arange(3)), 3)))
    assert batch.tolist() == [0, 2, 4]


def test_arrays_in_a_tensor_dataset():
    loader = mt.utils.data.DataLoader(mt.utils.data.TensorDataset(np.arange(3), mt.arange(3)), 3)
    a, b = next(iter(loader))
    assert isinstance(a, mt.Tensor) and a.tolist() == b.tolist() == [0, 1, 2]


def test_shuffle(lib, data):
    loader = data.DataLoader(Squares(30), batch_size=30, shuffle=True)
    lib.manual_seed(0)
    first, second = (next(iter(loader)).tolist() for _ in range(2))
    assert first != second and sorted(first) == sorted(second) == [i * i for i in range(30)]
    generator = lib.Generator()
    loader = data.DataLoader(Squares(30), batch_size=30, shuffle=True, generator=generator)
    orders = []
    for _ in range(2):
        generator.manual_seed(4)
        orders.append(next(iter(loader)).tolist())
    assert orders[0] == orders[1]


def test_sampler_and_batch_sampler(data):
    loader = data.DataLoader(Squares(), batch_size=2, sampler=[3, 1, 2])
    assert [b.tolist() for b in loader] == [[9, 1], [4]]
    loader = data.DataLoader(Squares(), batch_sampler=[[5], [1, 2, 3]])
    assert [b.tolist() for b in loader] == [[25], [1, 4, 9]]
    assert len(loader) == 2 and loader.batch_size is None


def test_without_batches(lib, data):
    loader = data.DataLoader([np.ones(2), "text", (1, 2)], batch_size=None)
    assert [plain(x, lib) for x in loader] == [("float64", [1.0, 1.0]), "text", [1, 2]]
    assert len(loader) == 3
    assert loader.batch_sampler is None


def test_collate_fn(data):
    loader = data.DataLoader(Squares(3), batch_size=2, collate_fn=lambda batch: sum(batch))
    assert list(loader) == [1, 4]
    assert data.DataLoader(Squares()).collate_fn is data.default_collate
    assert data.DataLoader(Squares(), batch_size=None).collate_fn is data.default_convert


def test_fetches_in_one_call(data):
    class Together(Squares):
        def __getitems__(self, keys):
            return [("batch", len(keys))] * len(keys)

    batches = list(data.DataLoader(Together(3), batch_size=2, collate_fn=lambda b: b[0]))
    assert batches == [("batch", 2), ("batch", 1)]


def test_stream(data):
    Stream = stream_class(data)
    loader = data.DataLoader(Stream(5), batch_size=2)
    assert [b.tolist() for b in loader] == [[0, 1], [2, 3], [4]]
    assert [b.tolist() for b in loader] == [[0, 1], [2, 3], [4]]
    assert len(loader) == 3
    loader = data.DataLoader(Stream(5), batch_size=2, drop_last=True)
    assert [b.tolist() for b in loader] == [[0, 1], [2, 3]] and len(loader) == 2
    assert list(data.DataLoader(Stream(3), batch_size=None)) == [0, 1, 2]


def test_stream_longer_than_it_said(data):
    loader = data.DataLoader(stream_class(data)(3, said=2), batch_size=None)
    assert len(list(loader)) == 3
    assert len(loader) == 2
    with pytest.warns(UserWarning, match="was reported to be 2"):
        assert len(list(loader)) == 3


def test_two_rounds_at_once(data):
    loader = data.DataLoader(Squares(4), batch_size=2)
    assert [(a.tolist(), b.tolist()) for a in loader for b in loader][1] == ([0, 1], [4, 9])


def test_an_error_in_the_dataset_comes_through(data):
    class Broken(Squares):
        def __getitem__(self, i):
            raise KeyError("broken sample")

    with pytest.raises(KeyError, match="broken sample"):
        next(iter(data.DataLoader(Broken())))


BAD = [
    ("mutually exclusive with shuffle", {"sampler": [1], "shuffle": True}),
    ("batch_sampler option is mutually exclusive", {"batch_sampler": [[1]], "batch_size": 2}),
    ("batch_sampler option is mutually exclusive", {"batch_sampler": [[1]], "shuffle": True}),
    ("batch_sampler option is mutually exclusive", {"batch_sampler": [[1]], "drop_last": True}),
    ("disables auto-batching", {"batch_size": None, "drop_last": True}),
    ("num_workers option should be non-negative", {"num_workers": -1}),
    ("timeout option should be non-negative", {"timeout": -1}),
    ("prefetch_factor option could only be specified", {"prefetch_factor": 2}),
    ("persistent_workers option needs num_workers > 0", {"persistent_workers": True}),
    ("batch_size should be a positive integer", {"batch_size": 0}),
]


@pytest.mark.parametrize(("message", "options"), BAD)
def test_options_that_exclude_each_other(data, message, options):
    with pytest.raises(ValueError, match=message):
        data.DataLoader(Squares(), **options)


@pytest.mark.parametrize(
    "options",
    [{"shuffle": True}, {"sampler": [1]}, {"batch_sampler": [[1]]}],
    ids=lambda o: next(iter(o)),
)
def test_streams_have_their_order(data, options):
    with pytest.raises(ValueError, match="DataLoader with IterableDataset: expected unspecified"):
        data.DataLoader(stream_class(data)(3), **options)
    data.DataLoader(stream_class(data)(3), shuffle=False)


@pytest.mark.parametrize("name", ["batch_size", "batch_sampler", "sampler", "drop_last", "dataset"])
def test_what_is_fixed(data, name):
    loader = data.DataLoader(Squares())
    with pytest.raises(ValueError, match=f"{name} attribute should not be set after"):
        setattr(loader, name, None)
    loader.collate_fn = len
    assert next(iter(loader)) == 1


def test_a_program_that_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = mt.utils.data.DataLoader(Squares(3), pin_memory=True, num_workers=0)
        assert math.prod(len(b) for b in loader) == 1
