# SPDX-License-Identifier: BSD-3-Clause
"""Whatever save takes, load gives back, or save names the entry that it refuses."""

from __future__ import annotations

import importlib
import io
import pickle

import numpy as np
import pytest
from helpers.implementations import HAS_TORCH, needs_torch

import modtree as mt

torch = importlib.import_module("torch") if HAS_TORCH else None


def through_file(value, format="modtree", **how):
    file = io.BytesIO()
    mt.save({"a": [value]}, file, format=format)
    file.seek(0)
    return mt.load(file, **how)["a"][0]


ARRAYS = {
    "records": np.array([(1, 2.0)], [("i", "i4"), ("f", "f8")]),
    "records with attributes": np.array([(1, 2.0)], [("i", "i4"), ("f", "f8")]).view(np.recarray),
    "objects": np.array([1, None, "a"], object),
    "bytes": np.zeros(2, "V5"),
    "a masked one": np.ma.array([1.0, 2.0], mask=[0, 1]),
    "times": np.array(["2020-01-01"], "M8[D]"),
    "text": np.array(["ab", "c"]),
    "of the other byte order": np.arange(3, dtype=">f4"),
    "a scalar": np.float16(1.5),
}


@pytest.mark.parametrize("case", ARRAYS)
def test_arrays_come_back_from_files_that_are_trusted(case):
    given = ARRAYS[case]
    back = through_file(given, weights_only=False)
    assert type(back) is type(given) and back.dtype == given.dtype and repr(back) == repr(given)


MADE_BY_TORCH = {
    "sparse": lambda: torch.eye(2).to_sparse(),
    "of a class": lambda: torch.ones(2).as_subclass(Special),
    "a generator": lambda: torch.Generator(),
    "a layout": lambda: torch.strided,
    "a storage": lambda: torch.ones(2).untyped_storage(),
    "eighths": lambda: torch.ones(2000).to(torch.float8_e5m2),
    "none of them": lambda: torch.ones(0).to(torch.float8_e5m2),
    "bits": lambda: torch.empty(2, dtype=torch.bits8),
}

if HAS_TORCH:

    class Special(torch.Tensor):
        pass


@needs_torch
@pytest.mark.parametrize("case", MADE_BY_TORCH)
def test_what_is_torchs_comes_back_from_files_that_are_trusted(case):
    """The form of a file is told by how it begins, not by a file in a pickle."""
    given = MADE_BY_TORCH[case]()
    back = through_file(given, weights_only=False)
    assert type(back) is type(given)
    assert getattr(back, "shape", None) == getattr(given, "shape", None)
    if isinstance(given, torch.Tensor):
        assert back.dtype == given.dtype and back.layout == given.layout


@needs_torch
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.empty(2, dtype=torch.bits8),
        lambda: torch.nn.Parameter(torch.empty(2, dtype=torch.bits8), requires_grad=False),
        lambda: torch.device("cuda", 1),
    ],
)
def test_a_file_of_torch_that_load_would_not_read_is_refused(make):
    with pytest.raises(TypeError, match=r"^obj\['a'\]\[0\] is .*modtree.load\(\) does not read"):
        through_file(make(), "torch")


def fails():
    class Local:
        def __reduce__(self):
            raise KeyError("no state")

    return Local()


CANNOT = {
    "a local function": (lambda: lambda: None, (pickle.PicklingError, AttributeError)),
    "a view of memory": (lambda: memoryview(b"x"), TypeError),
    "an object that raises": (fails, KeyError),
}


@pytest.mark.parametrize("case", CANNOT)
def test_the_entry_that_cannot_be_pickled_is_named(case, tmp_path):
    make, error = CANNOT[case]
    with pytest.raises(error) as caught:
        mt.save({"w": mt.ones(2), "steps": [(1, make())]}, tmp_path / "file")
    assert "obj['steps'][0][1]: " in caught.value.args[0]
    assert not list(tmp_path.iterdir())


def test_an_error_of_the_file_stays_what_it_is():
    class Full(io.BytesIO):
        def write(self, data):
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match=r"^\[Errno 28\] No space left on device$"):
        mt.save({"a": mt.ones(2)}, Full())


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (np.ma.array([1.0, 2.0], mask=[0, 1]), "have no masks"),
        ("\ud800", r"no text such as '\\ud800'"),
        ({"x": ["\ud800"]}, r"no text such as '\\ud800'"),
        ({"\ud800": 1}, r"no text such as '\\ud800'"),
        ([10**5000], "no number of 16,610 bits"),
    ],
)
def test_what_a_safetensors_file_would_not_give_back_is_refused(value, why, tmp_path):
    with pytest.raises(mt.CheckpointError, match=f"tensor 'an entry': .*{why}"):
        mt.save_file({"an entry": value}, tmp_path / "file")


@pytest.mark.parametrize("size", [None, 8])
def test_a_key_that_cannot_be_written_is_named(size, tmp_path):
    with pytest.raises(mt.CheckpointError, match=r"tensor 'a\\ud800'"):
        mt.save_file({"a\ud800": mt.ones(2), "b": mt.ones(2)}, tmp_path / "x", max_shard_size=size)
    assert not list(tmp_path.iterdir())
