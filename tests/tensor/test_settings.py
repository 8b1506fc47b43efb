# SPDX-License-Identifier: BSD-3-Clause
"""What programs ask and set at their start, and how tensors are printed."""

from __future__ import annotations

import importlib

import pytest
from helpers.implementations import needs_torch

import modtree as mt

KINDS = ["modtree", pytest.param("torch", marks=needs_torch)]


@pytest.fixture(params=KINDS)
def lib(request):
    lib = importlib.import_module(request.param)
    yield lib
    lib.set_printoptions(profile="default")


VALUES = [
    [0.5, 1.25],
    [1234.5, 0.001],
    [1.0, 2.0],
    [[1e-7, 1.0], [3.0, float("nan")]],
    [float(i) for i in range(30)],
]
OPTIONS = [
    {"precision": 2},
    {"threshold": 10, "edgeitems": 2},
    {"linewidth": 40},
    {"sci_mode": True},
    {"sci_mode": False},
    {"profile": "short"},
    {"profile": "full", "precision": 6},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@needs_torch
def test_text_of_tensors(options):
    torch = importlib.import_module("torch")
    texts = []
    for lib in (mt, torch):
        lib.set_printoptions(**options)
        texts.append([repr(lib.tensor(v)) for v in VALUES])
        lib.set_printoptions(profile="default")
        texts.append([repr(lib.tensor(v)) for v in VALUES])
    assert texts[0] == texts[2]
    assert texts[1] == texts[3]
    assert texts[0] != texts[1] or "threshold" in options


def test_precision_of_products(lib):
    before = lib.get_float32_matmul_precision()
    lib.set_float32_matmul_precision("high")
    assert lib.get_float32_matmul_precision() == "high"
    lib.set_float32_matmul_precision(before)
    with pytest.raises(RuntimeError, match="'highest', 'high' or 'medium'"):
        mt.set_float32_matmul_precision("low")


def test_choice_of_device():
    device = mt.device("cuda" if mt.cuda.is_available() else "cpu")
    assert mt.ones(2, device=device).device == device
    assert mt.cuda.device_count() == 0
    mt.cuda.manual_seed_all(1)
    mt.cuda.empty_cache()
    mt.cuda.synchronize()
    mt.backends.cudnn.benchmark = True
    mt.backends.cudnn.deterministic = True
    assert not mt.backends.mps.is_available()
    with pytest.raises(RuntimeError, match="no cuda device"):
        mt.cuda.current_device()


def test_compile_gives_the_function_itself():
    module = mt.nn.Linear(1, 1)
    assert mt.compile(module, mode="max-autotune") is module

    @mt.compile
    def f(x):
        return x * 2

    @mt.compile(dynamic=True)
    def g(x):
        return x * 3

    assert (f(mt.ones(1)).item(), g(mt.ones(1)).item()) == (2, 3)


def test_constants(lib):
    assert lib.pi == pytest.approx(3.14159265) and lib.inf > 1e300 and lib.nan != lib.nan
    x = lib.zeros(1, 2, 3, 4).to(memory_format=lib.channels_last)
    assert x.contiguous(memory_format=lib.contiguous_format).is_contiguous()
    assert lib.zeros(2, layout=lib.strided).layout is lib.strided
    assert x[lib.newaxis].shape[0] == 1
    assert repr(lib.preserve_format) == f"{lib.__name__}.preserve_format"
