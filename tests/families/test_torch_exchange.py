# SPDX-License-Identifier: BSD-3-Clause
"""``to_torch`` and ``from_torch``: one memory for tensors of both libraries."""

from __future__ import annotations

import collections
import importlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.implementations import HAS_TORCH, needs_torch
from helpers.needs import needs

import modtree as mt
from modtree import nn

torch = importlib.import_module("torch") if HAS_TORCH else None
needs_ml_dtypes = needs("ml_dtypes")
_OURS = SimpleNamespace(lib=mt, other="torch", convert=mt.to_torch)
_THEIRS = SimpleNamespace(lib=torch, other="modtree", convert=mt.from_torch)


@pytest.fixture(params=["to_torch", "from_torch"])
def way(request):
    """The library a test converts from, and the function."""
    if not HAS_TORCH:
        pytest.skip("needs torch")
    return _OURS if request.param == "to_torch" else _THEIRS


def other(way):
    return torch if way is _OURS else mt


def shares(a, b):
    """Do two tensors of floats share memory? What is written to one is seen in the other."""
    before = a.detach().tolist()
    with mt.no_grad(), torch.no_grad():
        a.detach().mul_(2)
        seen = b.detach().tolist() == a.detach().tolist() != before
        a.detach().div_(2)
    return seen


def test_tensors_share_memory(way):
    base = way.lib.arange(1.0, 13.0)
    for tensor in (base, base.reshape(3, 4).t(), base[3:10:2], base[5], base[:1].expand(3)):
        new = way.convert(tensor)
        assert type(new) is other(way).Tensor and tuple(new.shape) == tuple(tensor.shape)
        assert new.stride() == tuple(tensor.stride())
        assert new.tolist() == tensor.tolist()
        if tensor.ndim and tensor.shape[0] != 3:
            assert shares(tensor, new) and shares(new, tensor)


@pytest.mark.parametrize(
    "name",
    ["bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"]
    + ["float16", "float32", "float64", "complex64", "complex128"],
)
def test_dtypes(way, name):
    tensor = way.lib.zeros(3, dtype=getattr(way.lib, name))
    new = way.convert(tensor)
    assert new.dtype == getattr(other(way), name)
    new[1] = 1
    assert tensor.tolist() == new.tolist() and tensor[1].item() == 1


@needs_ml_dtypes
@pytest.mark.parametrize(
    "name", ["bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]
)
def test_stored_dtypes(way, name):
    tensor = way.lib.ones(4, 3).to(getattr(way.lib, name)).t()[:, 1:]
    new = way.convert(tensor)
    assert new.dtype == getattr(other(way), name) and new.stride() == tuple(tensor.stride())
    new.copy_(other(way).tensor(2.0).to(new.dtype).expand(3, 3))
    assert tensor.float().tolist() == [[2.0] * 3] * 3


def test_empty_tensors_and_meta(way):
    for tensor in (way.lib.zeros(0, 3), way.lib.zeros(2, 3, device="meta")):
        new = way.convert(tensor)
        assert tuple(new.shape) == tuple(tensor.shape) and new.is_meta == tensor.is_meta
        assert new.dtype == other(way).float32


def test_parameters_and_flags(way):
    kind = (nn if way is _OURS else torch.nn).Parameter
    new_kind = (torch.nn if way is _OURS else nn).Parameter
    learned, frozen = kind(way.lib.ones(2)), kind(way.lib.ones(2), requires_grad=False)
    leaf = way.lib.ones(2).requires_grad_()
    for tensor in (learned, frozen):
        new = way.convert(tensor)
        assert type(new) is new_kind and new.requires_grad == tensor.requires_grad
        assert shares(tensor, new)
    new = way.convert(leaf)
    assert type(new) is other(way).Tensor and new.requires_grad and new.is_leaf
    result = way.convert(leaf * 2)
    assert result.requires_grad and result.is_leaf and result.tolist() == [2, 2]


def test_attributes_stay(way):
    parameter = (nn if way is _OURS else torch.nn).Parameter(way.lib.ones(2))
    parameter.is_expert = True
    parameter.main = way.lib.zeros(1)
    new = way.convert([parameter])[0]
    assert new.is_expert is True and isinstance(new.main, other(way).Tensor)


def test_state_dicts(way):
    layers = nn if way is _OURS else torch.nn
    model = layers.Sequential(layers.Linear(2, 3), layers.BatchNorm1d(3), layers.Linear(2, 3))
    model[2].weight = model[0].weight
    state = model.state_dict()
    new = way.convert(state)
    assert type(new) is collections.OrderedDict and list(new) == list(state)
    assert new._metadata == state._metadata
    assert shares(new["0.weight"], new["2.weight"]) and shares(state["0.weight"], new["2.weight"])
    others = torch.nn if way is _OURS else nn
    target = others.Sequential(others.Linear(2, 3), others.BatchNorm1d(3), others.Linear(2, 3))
    target.load_state_dict(new, assign=True)
    assert shares(model[0].bias, target[0].bias)


Point = collections.namedtuple("Point", "x y")


def test_containers_keep_their_kind_and_their_ties(way):
    tied, text = way.lib.ones(2), ["a"]
    counts = collections.defaultdict(list, a=[tied])
    value = {
        "list": [tied, 1, None],
        "tuple": (tied, "x"),
        "point": Point(tied, 2),
        "counts": counts,
        3: text,
        "array": np.ones(2),
        "untouched": (1, 2),
        "there": other(way).ones(1),
    }
    value["itself"] = value
    new = way.convert(value)
    assert new is not value and new["itself"] is new
    assert new["list"][0] is new["tuple"][0] is new["point"].x is new["counts"]["a"][0]
    assert type(new["point"]) is Point and new["counts"].default_factory is list
    assert new["array"] is value["array"] and new["untouched"] is value["untouched"]
    assert new["there"] is value["there"] and value["list"][0] is tied
    assert way.convert(5) == 5 and way.convert(None) is None


def test_there_and_back_is_the_same_memory(way):
    back = mt.from_torch if way is _OURS else mt.to_torch
    tensor = way.lib.arange(1.0, 7.0).reshape(2, 3)[:, 1:]
    new = back(way.convert({"a": [tensor]}))["a"][0]
    assert type(new) is type(tensor) and shares(new, tensor)


# -- what cannot be shared -------------------------------------------------------------------------


@needs_torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: torch.eye(2).to_sparse(), ValueError, r"layout torch.sparse_coo.*to_dense\(\)"),
        (lambda: torch.tensor([1j]).conj(), ValueError, r"conjugated.*resolve_conj\(\)"),
        (lambda: torch._neg_view(torch.ones(1)), ValueError, r"negated.*resolve_neg\(\)"),
        (
            lambda: torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8),
            ValueError,
            r"is quantized.*dequantize\(\)",
        ),
        (torch.nn.UninitializedParameter if HAS_TORCH else None, TypeError, "no shape yet"),
        (lambda: torch.zeros(1, dtype=torch.complex32), TypeError, "torch.complex32"),
        (
            lambda: torch.ones(1).as_subclass(type("Marked", (torch.Tensor,), {})),
            TypeError,
            "of the class .*Marked",
        ),
    ],
)
def test_tensors_of_torch_that_numpy_cannot_read(make, error, message):
    with pytest.raises(error, match=r"from_torch: x\['a'\]\[1\] .*" + message):
        mt.from_torch({"a": [1, make()]})


def read_only():
    return mt.from_numpy(np.frombuffer(b"\0" * 16, np.float32))


def backwards():
    return importlib.import_module("modtree._C").from_array(np.arange(3.0)[::-1])


@needs_torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (read_only, ValueError, r"may not be written to.*clone\(\)"),
        (backwards, ValueError, r"strides \(-8,\).*clone\(\)"),
        (lambda: nn.LazyLinear(2).weight, TypeError, "no shape yet"),
        (
            lambda: mt.ones(1).as_subclass(type("Marked", (mt.Tensor,), {})),
            TypeError,
            "of the class .*Marked",
        ),
    ],
)
def test_tensors_of_modtree_that_torch_cannot_have(make, error, message):
    with pytest.raises(error, match=r"to_torch: x\['a'\]\[1\] .*" + message):
        mt.to_torch({"a": [1, make()]})


def test_modules_are_refused(way):
    module = (nn if way is _OURS else torch.nn).Linear(1, 1)
    with pytest.raises(TypeError, match=r"got the module Linear: pass its state_dict\(\)"):
        way.convert(module)


@pytest.mark.parametrize("name", ["to_torch", "from_torch"])
def test_without_torch(name):
    script = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "import modtree as mt\n"
        "try:\n"
        f"    mt.{name}(mt.ones(1))\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    root = str(Path(mt.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
    )
    assert "need torch (pip install torch)" in done.stdout
