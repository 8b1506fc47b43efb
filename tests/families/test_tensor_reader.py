# SPDX-License-Identifier: BSD-3-Clause
"""What native code reads of torch's tensors is what their attributes say, and it leaves alone what
it cannot read.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import warnings

import pytest
from helpers.support import class_attribute

torch = pytest.importorskip("torch")

from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import modtree  # noqa: E402
from modtree import _C, families  # noqa: E402

family = families.find(torch.Tensor)
needs_table = pytest.mark.skipif(
    family.tensor_access is None, reason="this torch offers no table of C functions"
)
Parameter = torch.nn.Parameter


def read(tensor):
    return _C.read_tensors([tensor])[0]


def is_unknown(tensor):
    return read(tensor) is None


def expected(tensor):
    return (
        str(tensor.dtype).rpartition(".")[2],
        tuple(tensor.shape),
        tensor.data_ptr(),
        tensor.numel() * tensor.element_size(),
        tensor.is_contiguous(),
    )


class Subclass(torch.Tensor):
    pass


def _all_dtypes():
    found = {d for d in vars(torch).values() if isinstance(d, torch.dtype)}
    return sorted(found, key=str)


@needs_table
@pytest.mark.parametrize("dtype", _all_dtypes(), ids=str)
def test_every_dtype(dtype):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tensor = torch.empty(2, 3, dtype=dtype)
    except (RuntimeError, TypeError, NotImplementedError):
        pytest.skip(f"torch makes no tensor of {dtype}")
    found = read(tensor)
    assert found is None or found == expected(tensor)
    plain = {"float16", "float32", "float64", "bfloat16", "bool", "complex64", "complex128"}
    plain |= {f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
    if str(dtype).rpartition(".")[2] in plain | {"float8_e4m3fn", "float8_e5m2"}:
        assert found is not None


STRIDED = {
    "scalar": lambda: torch.tensor(3.0),
    "one": lambda: torch.ones(1),
    "matrix": lambda: torch.arange(6.0).reshape(2, 3),
    "transposed": lambda: torch.arange(6.0).reshape(2, 3).T,
    "row": lambda: torch.arange(6.0).reshape(2, 3)[1],
    "column": lambda: torch.arange(6.0).reshape(2, 3)[:, 1],
    "every second": lambda: torch.arange(10)[::2],
    "expanded": lambda: torch.ones(1, 3).expand(4, 3),
    "empty": lambda: torch.empty(0),
    "empty, of three": lambda: torch.empty(3, 0, 2),
    "empty, transposed": lambda: torch.empty(3, 0, 2).transpose(0, 2),
    "ones in between": lambda: torch.ones(2, 1, 3, 1).transpose(1, 3),
    "channels last": lambda: torch.ones(2, 3, 4, 4).to(memory_format=torch.channels_last),
    "eight dimensions": lambda: torch.ones(*[2] * 8),
    "parameter": lambda: Parameter(torch.ones(2, 3)),
    "frozen parameter": lambda: Parameter(torch.ones(2, 3), requires_grad=False),
    "result": lambda: Parameter(torch.ones(2)) * 2,
    "inference": lambda: _inference_tensor(),
    "view of another dtype": lambda: torch.ones(4).view(torch.int16),
}


def _inference_tensor():
    with torch.inference_mode():
        return torch.ones(2)


@needs_table
@pytest.mark.parametrize("make", STRIDED.values(), ids=STRIDED)
def test_strided_tensors(make):
    tensor = make()
    assert read(tensor) == expected(tensor)


@needs_table
def test_values_lie_at_the_address():
    tensor = torch.arange(7.0)
    name, shape, address, size, contiguous = read(tensor[2:])
    assert (name, shape, size, contiguous) == ("float32", (5,), 20, True)
    values = (ctypes.c_float * 5).from_address(address)
    assert list(values) == [2, 3, 4, 5, 6]


def _quantized():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)


def _shrunk():
    tensor = torch.ones(1000)
    tensor.untyped_storage().resize_(100)
    return tensor


def _without_storage():
    tensor = torch.ones(8)
    tensor.untyped_storage().resize_(0)
    return tensor


def _shrunk_behind_a_view():
    tensor = torch.ones(1000)
    view = tensor[900:]
    tensor.untyped_storage().resize_(3700)
    return view


def _fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode().from_tensor(torch.ones(2))


def _functional():
    return torch._to_functional_tensor(torch.ones(2))


def _nested():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


UNKNOWN = {
    "no tensor": lambda: 3,
    "none": lambda: None,
    "modtree's": lambda: modtree.ones(2),
    "subclass": lambda: torch.ones(2).as_subclass(Subclass),
    "uninitialized": lambda: torch.nn.UninitializedParameter(),
    "fake": _fake,
    "meta": lambda: torch.ones(2, device="meta"),
    "meta parameter": lambda: Parameter(torch.ones(2, device="meta")),
    "sparse": lambda: torch.eye(3).to_sparse(),
    "sparse rows": lambda: _sparse_rows(),
    "quantized": _quantized,
    "conjugated": lambda: torch.ones(2, dtype=torch.complex64).conj(),
    "negated": lambda: torch.ones(2, dtype=torch.complex64).conj().imag,
    "zeros without memory": lambda: torch._efficientzerotensor(3),
    "nine dimensions": lambda: torch.ones(*[1] * 9),
    "storage too small": _shrunk,
    "no storage": _without_storage,
    "storage too small for a view": _shrunk_behind_a_view,
    "functional": _functional,
    "nested": _nested,
}


def _sparse_rows():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.eye(3).to_sparse_csr()


@pytest.mark.parametrize("make", UNKNOWN.values(), ids=UNKNOWN)
def test_others_are_unknown(make):
    value = make()
    assert read(value) is None
    # In the middle of others too, and no error is left behind.
    assert [x is None for x in _C.read_tensors([value, value])] == [True, True]


def test_within_vmap_and_grad():
    seen = []

    def look(x):
        seen.append(read(x))
        return x * 2

    torch.vmap(look)(torch.ones(3, 2))
    torch.func.grad(lambda x: look(x).sum())(torch.ones(2))
    assert seen == [None, None]


@needs_table
def test_while_a_mode_is_active():
    class Function(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            calls.append(func)
            return func(*args, **(kwargs or {}))

    class Dispatch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            calls.append(func)
            return func(*args, **(kwargs or {}))

    calls = []
    tensor = torch.ones(2)
    assert read(tensor) is not None
    for mode in (Function(), Dispatch()):
        with mode:
            assert read(tensor) is None
        assert read(tensor) is not None
    assert not calls


@needs_table
@pytest.mark.parametrize("cls", [torch.Tensor, Parameter])
@pytest.mark.parametrize("name", ["shape", "requires_grad", "dtype", "__getattribute__"])
def test_a_class_that_was_changed(cls, name):
    def read_attribute(self, name):
        return object.__getattribute__(self, name)

    tensor, parameter = torch.ones(2), Parameter(torch.ones(2))
    new = read_attribute if name == "__getattribute__" else property(lambda self: None)
    for _ in range(3):
        with class_attribute(cls, name, new):
            assert is_unknown(parameter)
            assert is_unknown(tensor) == (cls is torch.Tensor)
        assert not is_unknown(parameter)
        assert not is_unknown(tensor)


@needs_table
def test_a_change_that_decides_nothing():
    with class_attribute(torch.Tensor, "_a_name_of_our_own", 1):
        assert not is_unknown(torch.ones(2))
        assert not is_unknown(Parameter(torch.ones(2)))


@needs_table
def test_an_attribute_of_an_instance_changes_nothing():
    tensor = torch.ones(2)
    vars(tensor)["shape"] = (5,)
    assert read(tensor) == expected(tensor)


def test_any_iterable_and_what_is_none():
    assert _C.read_tensors(()) == []
    assert _C.read_tensors(x for x in [1, 2]) == [None, None]
    with pytest.raises(TypeError):
        _C.read_tensors(3)


@needs_table
def test_a_list_that_is_emptied_meanwhile():
    tensors = [torch.ones(3) for _ in range(50)]

    class Emptied:
        def __iter__(self):
            while tensors:
                yield tensors.pop()

    assert len(_C.read_tensors(Emptied())) == 50


@needs_table
def test_the_collector_may_empty_the_list():
    class Cycle:
        def __init__(self, tensors):
            self.me, self.tensors = self, tensors

        def __del__(self):
            self.tensors.clear()

    old = gc.get_threshold()
    try:
        for allocations in range(1, 60):
            tensors = [torch.ones(3) for _ in range(20)]
            gc.set_threshold(0)
            Cycle(tensors)
            gc.set_threshold(allocations)
            found = _C.read_tensors(tensors)
            gc.set_threshold(0)
            assert len(found) <= 20
            assert all(x is not None for x in found)
    finally:
        gc.set_threshold(*old)


@needs_table
def test_no_references_are_kept():
    tensor = torch.ones(2)
    before = sys.getrefcount(tensor)
    for _ in range(100):
        read(tensor)
        read(tensor[:1])
    assert sys.getrefcount(tensor) == before


@needs_table
def test_bytes_of_an_expanded_tensor_are_counted_without_overflow():
    one = torch.ones(1)
    assert read(one.expand(1 << 31, 1 << 20))[3:] == (1 << 53, False)
    with pytest.raises(RuntimeError, match="integer multiplication overflow"):
        read(one.expand(1 << 31, 1 << 31))
    assert read(torch.ones(0, 3))[3:] == (0, True)
    assert read(torch.ones(3, 0).t())[3:] == (0, True)
