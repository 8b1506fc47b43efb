# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints of several kinds, larger than what is read at once of a header."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from helpers.needs import needs

import modtree as mt

LARGE = 300_000  # elements: more than what is read at once of a header


def state_of(seed=0):
    rng = np.random.default_rng(seed)
    names = [f"layers.{i}.weight" for i in range(4)]
    state = {name: mt.from_numpy(rng.random(LARGE, np.float32)) for name in names}
    return state | {"layers.0.mask": mt.ones(3, dtype=mt.bool), "step": mt.tensor(3)}


def file_of(kind, state, tmp_path):
    path = tmp_path / f"file.{kind}"
    if kind == "safetensors":
        mt.save_file(state, path)
    elif kind == "pt":
        mt.save(state, path, format="torch")
    elif kind == "old.pt":
        torch = importlib.import_module("torch")
        plain = {key: torch.from_numpy(value.numpy()) for key, value in state.items()}
        torch.save(plain, path, _use_new_zipfile_serialization=False)
    else:
        mt.save(state, path)
    return path.read_bytes()


def assert_same(read, state):
    assert read.keys() == state.keys()
    for key, value in state.items():
        assert read[key].dtype == value.dtype and np.array_equal(read[key].numpy(), value.numpy())


KINDS = ["safetensors", "pt", pytest.param("old.pt", marks=needs("torch")), "pickle"]


def busy(handler, *_):
    handler.reply(503, b"", {"Retry-After": "0"})
