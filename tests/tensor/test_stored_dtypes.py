# SPDX-License-Identifier: BSD-3-Clause
"""bfloat16 and float8: dtypes to name, compare and store, not to compute with."""

from __future__ import annotations

import copy
import importlib
import io
import pickle
import subprocess
import sys

import numpy as np
import pytest
from helpers.implementations import needs_torch
from helpers.needs import needs

import modtree as mt

NAMES = [
    "bfloat16",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
]
needs_ml_dtypes = needs("ml_dtypes")


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


def test_names_and_facts(lib, name):
    dtype = getattr(lib, name)
    assert isinstance(dtype, lib.dtype) and str(dtype) == f"{lib.__name__}.{name}"
    assert dtype == dtype and dtype != lib.float32 and len({dtype, lib.float16, dtype}) == 2
    assert dtype.itemsize == (2 if name == "bfloat16" else 1)
    assert dtype.is_floating_point and not dtype.is_complex
    assert dtype.is_signed == (name != "float8_e8m0fnu")
    assert pickle.loads(pickle.dumps(dtype)) is dtype is copy.deepcopy(dtype)


def test_limits(lib, name):
    limits = lib.finfo(getattr(lib, name))
    assert limits.dtype == name and limits.max > 0
    with pytest.raises(TypeError):
        lib.iinfo(getattr(lib, name))


@needs_torch
def test_limits_are_those_of_torch(name):
    torch = importlib.import_module("torch")
    ours, theirs = mt.finfo(getattr(mt, name)), torch.finfo(getattr(torch, name))
    for what in ("bits", "min", "max", "tiny", "smallest_normal", "resolution"):
        assert getattr(ours, what) == getattr(theirs, what), what
    if name != "float8_e5m2fnuz":
        assert ours.eps == theirs.eps and repr(ours) == repr(theirs)


def test_two_bits_of_a_mantissa():
    """torch says 0.125 of this dtype, which has as many bits as float8_e5m2."""
    assert mt.finfo(mt.float8_e5m2fnuz).eps == mt.finfo(mt.float8_e5m2).eps == 0.25


def test_without_the_package_the_names_are_there():
    program = """
import sys
sys.modules["ml_dtypes"] = None
import modtree as mt
assert mt.bfloat16 != mt.float32 and mt.finfo(mt.bfloat16).bits == 16 and hash(mt.bfloat16)
for use in (
    lambda: mt.ones(2).bfloat16(),
    lambda: mt.zeros(2, dtype=mt.bfloat16),
    lambda: mt.zeros(2, dtype="float8_e5m2"),
    lambda: mt.nn.Linear(1, 1).bfloat16(),
    lambda: mt.bfloat16.dtype,
    lambda: mt.as_dtype("bfloat16"),
):
    try:
        use()
    except TypeError as error:
        assert "is not available" in str(error) and "pip install ml_dtypes" in str(error), error
    else:
        raise AssertionError("worked")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@needs_ml_dtypes
def test_the_package_is_imported_on_first_use():
    program = """
import sys, modtree as mt
mt.bfloat16 == mt.float32, mt.finfo(mt.bfloat16), repr(mt.bfloat16)
assert "ml_dtypes" not in sys.modules
mt.ones(2).bfloat16()
assert "ml_dtypes" in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@needs_ml_dtypes
def test_values_are_rounded_as_in_torch(lib):
    values = np.array([1.0, -2.25, 3.14159274, 1e-40, 65519.0, np.inf, -0.0, 1 + 2**-8])
    t = lib.from_numpy(values).float().to(lib.bfloat16)
    assert t.dtype == lib.bfloat16 and t.shape == (8,) and t.element_size() == 2
    expected = [1.0, -2.25, 3.140625, 9.183549615799121e-41, 65536.0, np.inf, -0.0, 1.0]
    assert t.tolist() == expected
    assert t.float().dtype == lib.float32 and t.float().tolist() == expected
    assert t.double()[2].item() == 3.140625 and t.int()[1].item() == -2
    assert t[2].item() == 3.140625 and float(t[1]) == -2.25 and type(t[1].item()) is float
    assert t.type() == f"{lib.__name__}.BFloat16Tensor"
    assert lib.tensor([1.5, 2]).bfloat16().type(lib.float32).tolist() == [1.5, 2]


@needs_ml_dtypes
def test_text(lib):
    t = lib.tensor([[1.0, 2.5], [3.125, -4.0]]).bfloat16()
    kind = f"dtype={lib.__name__}.bfloat16"
    assert repr(t) == f"tensor([[ 1.0000,  2.5000],\n        [ 3.1250, -4.0000]], {kind})"
    assert repr(t[0, 1]) == f"tensor(2.5000, {kind})"


@needs_ml_dtypes
def test_what_needs_no_arithmetic_works(lib):
    t = lib.arange(6.0).to(lib.bfloat16).reshape(2, 3)
    assert t.t()[1].tolist() == [1, 4] and t[:, None].shape == (2, 1, 3)
    assert t.clone().dtype == t.detach().dtype == t.contiguous().dtype == lib.bfloat16
    assert lib.cat([t, t]).shape == (4, 3) and lib.stack([t, t]).dtype == lib.bfloat16
    assert (t == t).all() and lib.equal(t, t.clone()) and (t > 2).sum().item() == 3
    assert t.flip(0)[0].tolist() == [3, 4, 5]
    z = lib.zeros(3, dtype=lib.bfloat16)
    z[1] = 2.5
    z.copy_(z.float() * 2)
    assert z.tolist() == [0, 5, 0] and lib.full((2,), 1.5, dtype=lib.bfloat16)[0].item() == 1.5
    assert lib.ones_like(z).dtype == lib.bfloat16 and z.fill_(3).tolist() == [3, 3, 3]
    m = lib.zeros(2, dtype=lib.bfloat16, device="meta")
    assert m.dtype == lib.bfloat16 and m.is_meta
    t.requires_grad_()
    (t.float() * 2).sum().backward()
    assert t.grad.dtype == lib.bfloat16 and t.grad.tolist() == [[2, 2, 2], [2, 2, 2]]


@needs_ml_dtypes
def test_views_of_all_kinds(lib, name):
    t = lib.tensor([[1.0, 2.0, 4.0]]).to(getattr(lib, name))
    for view in (
        t.expand(2, 3),
        t.as_strided((2, 2), (1, 1)),
        t[..., ::2],
        t.view(-1),
        t.squeeze(0).unsqueeze(1),
        t.permute(1, 0),
        t.split(2, dim=1)[0],
    ):
        assert view.dtype == t.dtype and view.data_ptr() == t.data_ptr()
    assert t.expand(2, 3).float().tolist() == [[1, 2, 4]] * 2
    assert t.as_strided((2, 2), (1, 1)).float().tolist() == [[1, 2], [2, 4]]


@needs_ml_dtypes
@pytest.mark.parametrize(
    "compute",
    [
        lambda t: t + t,
        lambda t: t * 2,
        lambda t: t @ t.t(),
        lambda t: t.exp(),
        lambda t: t.sum(),
        lambda t: t + mt.ones(2, 2),
        lambda t: mt.ones(2, 2) * t,
        lambda t: mt.nn.functional.relu(t),
        lambda t: mt.nn.functional.linear(mt.ones(3, 2), t),
        lambda t: t.add_(1),
        lambda t: t.sort(),
        lambda t: mt.where(t > 0, t, t),
        lambda t: mt.cat([t, mt.ones(2, 2)]),
        lambda t: mt.linalg.inv(t),
        lambda t: t.softmax(0),
        lambda t: t.mean(0),
        lambda t: np.exp(t),
    ],
)
def test_computing_is_refused(compute):
    t = mt.ones(2, 2).bfloat16()
    with pytest.raises(NotImplementedError, match=r"BFloat16.*for storing.*\.float\(\)"):
        compute(t)
    assert t.tolist() == [[1, 1], [1, 1]]


@needs_ml_dtypes
@pytest.mark.parametrize(
    ("other", "both"),
    [
        ("bfloat16", "bfloat16"),
        ("float16", "float32"),
        ("float32", "float32"),
        ("float64", "float64"),
        ("complex64", "complex64"),
        ("int64", "bfloat16"),
        ("bool", "bfloat16"),
    ],
)
def test_promotion(lib, other, both):
    a, b = lib.bfloat16, getattr(lib, other)
    assert lib.promote_types(a, b) == lib.promote_types(b, a) == getattr(lib, both)


@needs_ml_dtypes
def test_promotion_of_float8():
    """torch refuses all of them; here they meet in the wider one."""
    assert mt.promote_types(mt.float8_e5m2, mt.float32) == mt.float32
    assert mt.promote_types(mt.float8_e5m2, mt.bfloat16) == mt.bfloat16


@needs_ml_dtypes
@pytest.mark.parametrize("kind", ["Linear", "LayerNorm", "Embedding", "GRU"])
def test_layers_are_made_in_it(lib, kind):
    for place in ("cpu", "meta"):
        sizes = (4,) if kind == "LayerNorm" else (4, 4)
        layer = getattr(lib.nn, kind)(*sizes, dtype=lib.bfloat16, device=place)
        assert {p.dtype for p in layer.parameters()} == {lib.bfloat16}
    assert layer.to_empty(device="cpu").float().state_dict()


@needs_ml_dtypes
def test_it_is_no_default():
    with pytest.raises(TypeError, match="default"):
        mt.set_default_dtype(mt.bfloat16)
    assert mt.get_default_dtype() == mt.float32


@needs_ml_dtypes
def test_dtypes_of_the_package_and_of_torch(name):
    ml_dtypes = importlib.import_module("ml_dtypes")
    theirs = np.dtype(getattr(ml_dtypes, name))
    ours = getattr(mt, name)
    assert ours == theirs and theirs == ours and ours != np.dtype(np.float32)
    assert mt.as_dtype(theirs) is mt.as_dtype(getattr(ml_dtypes, name)) is ours
    assert mt.as_dtype(name) is ours
    t = mt.from_numpy(np.ones(3, theirs))
    assert t.dtype is ours and t.numpy().dtype == theirs and t.float().tolist() == [1, 1, 1]
    assert np.zeros(2, dtype=ours).dtype == theirs


@needs_ml_dtypes
def test_modules_are_stored():
    net = mt.nn.Sequential(mt.nn.Linear(2, 3), mt.nn.BatchNorm1d(3)).bfloat16()
    assert {str(v.dtype) for v in net.state_dict().values()} == {
        "modtree.bfloat16",
        "modtree.int64",
    }
    with pytest.raises(NotImplementedError, match="BFloat16"):
        net(mt.ones(4, 2).bfloat16())
    values = net[0].weight.tolist()
    assert copy.deepcopy(net)[0].weight.dtype == mt.bfloat16
    other = mt.nn.Sequential(mt.nn.Linear(2, 3), mt.nn.BatchNorm1d(3))
    other.load_state_dict(net.state_dict())
    assert other[0].weight.dtype == mt.float32 and other[0].weight.tolist() == values
    net.load_state_dict(other.state_dict())
    assert net[0].weight.dtype == mt.bfloat16 and net.float()[0].weight.tolist() == values
    assert net(mt.ones(4, 2)).shape == (4, 3)


@needs_ml_dtypes
@pytest.mark.parametrize("weights_only", [True, False])
def test_files(name, weights_only):
    dtype = getattr(mt, name)
    value = {"t": mt.tensor([1.0, 2, 4]).to(dtype), "s": mt.tensor(2.0).to(dtype), "d": dtype}
    file = io.BytesIO()
    mt.save(value, file)
    file.seek(0)
    back = mt.load(file, weights_only=weights_only)
    assert back["d"] is dtype and back["t"].dtype is dtype and back["t"].tolist() == [1, 2, 4]
    assert back["s"].item() == 2 and back["s"].shape == ()


@needs_torch
@needs_ml_dtypes
def test_files_of_torch_keep_it():
    torch = importlib.import_module("torch")
    file = io.BytesIO()
    t = torch.tensor([[1.5, -2.25], [3.0, 4.0]], dtype=torch.bfloat16)
    torch.save({"t": t.t(), "d": torch.bfloat16, "p": torch.nn.Parameter(t)}, file)
    file.seek(0)
    back = mt.load(file)
    assert back["t"].dtype is mt.bfloat16 and back["d"] is mt.bfloat16
    assert back["t"].tolist() == t.t().tolist() and back["p"].requires_grad


@needs_torch
@needs_ml_dtypes
def test_files_of_torch_with_other_dtypes(name):
    """torch writes dtypes that have no storage of their own as bytes with a dtype beside them."""
    torch = importlib.import_module("torch")
    t = torch.tensor([[1.0, 2.0], [4.0, 0.5]]).to(getattr(torch, name))
    value = {"t": t.t()[1:], "u": torch.tensor([1, 2], dtype=torch.uint16), "empty": t[:0]}
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    back = mt.load(file)
    assert back["t"].dtype is getattr(mt, name) and back["t"].tolist() == [[2.0, 0.5]]
    assert back["u"].dtype is mt.uint16 and back["u"].tolist() == [1, 2]
    assert back["empty"].shape == (0, 2)


@needs_torch
def test_files_of_torch_without_the_package():
    torch = importlib.import_module("torch")
    program = """
import io, sys
sys.modules["ml_dtypes"] = None
import modtree as mt
data, half = sys.stdin.buffer.read(), int(sys.argv[1])
t = mt.load(io.BytesIO(data[:half]))
assert t.dtype is mt.float32 and t.tolist() == [1.5, -2.25], t
try:
    mt.load(io.BytesIO(data[half:]))
except Exception as error:
    assert type(error).__name__ == "UnpicklingError" and "pip install ml_dtypes" in str(error)
else:
    raise AssertionError("loaded")
"""
    files = []
    for dtype in (torch.bfloat16, torch.float8_e5m2):
        file = io.BytesIO()
        torch.save(torch.tensor([1.5, -2.25]).to(dtype), file)
        files.append(file.getvalue())
    command = [sys.executable, "-c", program, str(len(files[0]))]
    done = subprocess.run(command, input=b"".join(files), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


@needs("ml_dtypes", "safetensors")
def test_files_of_safetensors(tmp_path):
    files = importlib.import_module("safetensors.numpy")
    values = mt.tensor([1.5, -2.25]).bfloat16()
    files.save_file({"w": values.numpy()}, tmp_path / "a.safetensors")
    back = mt.from_numpy(files.load_file(tmp_path / "a.safetensors")["w"])
    assert back.dtype is mt.bfloat16 and back.tolist() == [1.5, -2.25]


@needs_torch
@needs_ml_dtypes
def test_exchange_with_leaves_of_torch(name):
    torch = importlib.import_module("torch")
    theirs = torch.tensor([1.0, 2.0]).to(getattr(torch, name))
    m = mt.nn.Module()
    m.register_buffer("w", mt.ones(2).to(getattr(mt, name)))
    m.load_state_dict({"w": theirs})
    assert m.w.dtype is getattr(mt, name) and m.w.tolist() == [1, 2]
    m.register_buffer("w", torch.zeros(2).to(getattr(torch, name)))
    m.load_state_dict({"w": mt.tensor([1.0, 4.0]).to(getattr(mt, name))})
    assert m.w.float().tolist() == [1, 4] and m.w.dtype == getattr(torch, name)
