# SPDX-License-Identifier: BSD-3-Clause
"""Arguments and small objects around tensors: limits of dtypes, devices, keywords of factories,
memory formats, meta tensors.
"""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import modtree as mt

FLOATS = ("float16", "float32", "float64", "complex64", "complex128")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


# -- finfo and iinfo -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FLOATS)
def test_limits_of_floats(lib, name):
    limits = lib.finfo(getattr(lib, name))
    real = {"complex64": "float32", "complex128": "float64"}.get(name, name)
    expected = np.finfo(real)
    assert type(limits.bits) is int and limits.bits == expected.bits
    assert type(limits.dtype) is str and limits.dtype == real
    for attribute in ("min", "max", "eps", "tiny", "smallest_normal", "resolution"):
        number = getattr(limits, attribute)
        assert type(number) is float, attribute
        if attribute != "resolution":
            assert number == float(getattr(expected, attribute)), attribute
    assert limits.resolution == float(str(expected.resolution))
    assert isinstance(limits, lib.finfo)


@pytest.mark.parametrize("name", INTEGERS)
def test_limits_of_integers(lib, name):
    limits = lib.iinfo(getattr(lib, name))
    expected = np.iinfo(name)
    for attribute in ("bits", "min", "max"):
        number = getattr(limits, attribute)
        assert type(number) is int and number == getattr(expected, attribute), attribute
    assert type(limits.dtype) is str and limits.dtype == name
    assert isinstance(limits, lib.iinfo)


def test_limits_as_text(lib):
    assert (
        repr(lib.finfo(lib.float32))
        == str(lib.finfo(lib.float32))
        == (
            "finfo(resolution=1e-06, min=-3.40282e+38, max=3.40282e+38, eps=1.19209e-07, "
            "smallest_normal=1.17549e-38, "
            "tiny=1.17549e-38, dtype=float32)"
        )
    )
    assert repr(lib.finfo(lib.float16)).startswith("finfo(resolution=0.001, min=-65504, max=65504,")
    assert repr(lib.iinfo(lib.int8)) == "iinfo(min=-128, max=127, dtype=int8)"
    assert repr(lib.iinfo(lib.int64)) == "iinfo(min=-9.22337e+18, max=9.22337e+18, dtype=int64)"


def test_limits_as_objects(lib):
    assert lib.finfo() == lib.finfo(lib.float32) == lib.finfo(type=lib.complex64)
    assert lib.finfo(lib.float32) != lib.finfo(lib.float64)
    assert lib.iinfo(lib.int8) == lib.iinfo(lib.int8) and lib.iinfo(lib.int8) != lib.iinfo(
        lib.uint8
    )
    with pytest.raises(TypeError):
        hash(lib.finfo(lib.float32))
    with pytest.raises(AttributeError):
        lib.finfo(lib.float32).max = 1.0
    for wrong in (lib.int32, lib.bool):
        with pytest.raises(TypeError, match="floating point"):
            lib.finfo(wrong)
    for wrong in (lib.float32, lib.bool, lib.complex64):
        with pytest.raises(TypeError, match="iinfo"):
            lib.iinfo(wrong)
    with pytest.raises(TypeError):
        lib.iinfo()


# -- devices ---------------------------------------------------------------------------------------


def test_a_device_is_no_text(lib):
    cpu = lib.device("cpu")
    assert not cpu == "cpu" and cpu != "cpu" and "cpu" not in {cpu: 1}
    assert lib.ones(1).device != "cpu" and lib.ones(1).device == cpu
    assert cpu == lib.device("cpu") and hash(cpu) == hash(lib.device("cpu"))
    assert cpu != lib.device("cpu:0") and lib.device("cpu:0") == lib.device("cpu", 0)
    assert cpu != lib.device("meta") and cpu is not None and cpu != 0
    with pytest.raises(TypeError):
        assert cpu < lib.device("meta")


def test_devices_and_their_indices(lib):
    assert lib.device("cpu:1").index == 1 == lib.device("cpu", 1).index
    assert lib.device("cpu").index is None and lib.device("cpu", None) == lib.device("cpu")
    assert lib.device(type="cpu", index=1) == lib.device("cpu:1") == lib.device(lib.device("cpu:1"))
    assert lib.device(device="cpu") == lib.device("cpu")
    assert (
        repr(lib.device("cpu:1")) == "device(type='cpu', index=1)"
        and str(lib.device("cpu:1")) == "cpu:1"
    )
    assert lib.ones(1, device="cpu:0").device == lib.device("cpu")
    for device in (lib.device("cpu:1"), lib.device("meta")):
        assert pickle.loads(pickle.dumps(device)) == device == copy.deepcopy(device)
    with pytest.raises(AttributeError):
        lib.device("cpu").index = 3


DEVICES = {
    **{
        name: (RuntimeError, (name,))
        for name in ("bad", "", "CPU", "cpu:", "cpu:x", "cpu:-1", "cpu:01", "cpu:0:0")
    },
    "a number": (RuntimeError, (0,)),
    "nothing": (TypeError, ()),
    "None": (TypeError, (None,)),
    "a float": (TypeError, (1.5,)),
    "a list": (TypeError, ([],)),
    "a negative index": (RuntimeError, ("cpu", -1)),
    "two indices": (RuntimeError, ("cpu:0", 0)),
    "an index that is text": (TypeError, ("cpu", "0")),
    "an index that is a float": (TypeError, ("cpu", 1.0)),
    "an index that is a truth": (TypeError, ("cpu", True)),
    "three arguments": (TypeError, ("cpu", 0, 0)),
}


@pytest.mark.parametrize("case", DEVICES)
def test_what_is_no_device(lib, case):
    error, arguments = DEVICES[case]
    if case == "a number" and lib.backends.cuda.is_built():
        pytest.skip("a torch built with CUDA takes it for the index of a GPU")
    with pytest.raises(error):
        lib.device(*arguments)


def test_a_device_with_an_index_takes_no_other(lib):
    with pytest.raises(TypeError):
        lib.device(lib.device("cpu"), 1)
    with pytest.raises(TypeError):
        lib.device(index=0)


def test_large_indices_of_devices():
    assert mt.device("cpu", 300).index == 300 == mt.device("cpu:300").index


# -- factories -------------------------------------------------------------------------------------

FACTORIES = {
    "zeros": (2,),
    "ones": (2,),
    "empty": (2,),
    "rand": (2,),
    "randn": (2,),
    "full": ((2,), 1.0),
    "zeros_like": ("T",),
    "ones_like": ("T",),
    "empty_like": ("T",),
    "rand_like": ("T",),
    "randn_like": ("T",),
    "full_like": ("T", 1.0),
    "randint_like": ("T", 3),
    "empty_strided": ((2,), (1,)),
    "tensor": ([1.0],),
    "as_tensor": ([1.0],),
    "asarray": ([1.0],),
    "scalar_tensor": (1.0,),
    "arange": (3.0,),
    "linspace": (0, 1, 3),
    "eye": (2,),
    "randint": (0, 3, (2,)),
    "randperm": (3,),
    "T.new_zeros": (2,),
    "T.new_ones": (2,),
    "T.new_empty": (2,),
    "T.new_full": ((2,), 1.0),
    "T.new_tensor": ([1.0],),
    "T.new_empty_strided": ((2,), (1,)),
}
KEYWORDS = {
    "out": lambda lib: {"out": lib.empty(0)},
    "out that is no tensor": lambda lib: {"out": 3},
    "out that needs gradients": lambda lib: {"out": lib.empty(2, requires_grad=True)},
    "out of another dtype": lambda lib: {"out": lib.empty(0), "dtype": lib.float64},
    "layout": lambda lib: {"layout": lib.strided},
    "layout None": lambda lib: {"layout": None},
    "layout by name": lambda lib: {"layout": "strided"},
    "layout 3": lambda lib: {"layout": 3},
    "device": lambda lib: {"device": "cpu"},
    "device meta": lambda lib: {"device": "meta"},
    "device None": lambda lib: {"device": None},
    "device that is none": lambda lib: {"device": "bad"},
    "device 1.5": lambda lib: {"device": 1.5},
    "dtype": lambda lib: {"dtype": lib.float32},
    "dtype None": lambda lib: {"dtype": None},
    "dtype 3": lambda lib: {"dtype": 3},
    "requires_grad": lambda lib: {"requires_grad": True},
    "requires_grad None": lambda lib: {"requires_grad": None},
    "requires_grad 1": lambda lib: {"requires_grad": 1},
    "pin_memory": lambda lib: {"pin_memory": True},
    "pin_memory False": lambda lib: {"pin_memory": False},
    "pin_memory by name": lambda lib: {"pin_memory": "x"},
    "memory_format": lambda lib: {"memory_format": lib.contiguous_format},
    "memory_format preserved": lambda lib: {"memory_format": lib.preserve_format},
    "memory_format of images": lambda lib: {"memory_format": lib.channels_last},
    "memory_format by name": lambda lib: {"memory_format": "x"},
    "generator": lambda lib: {"generator": lib.Generator()},
    "generator None": lambda lib: {"generator": None},
    "generator 3": lambda lib: {"generator": 3},
    "names": lambda lib: {"names": ("a",)},
    "names None": lambda lib: {"names": None},
    "copy": lambda lib: {"copy": True},
    "an unknown one": lambda lib: {"bogus": 1},
}


def outcome(lib, name, keyword):
    """What a factory does with a keyword: the kind of error, or the facts of its result."""
    kwargs = KEYWORDS[keyword](lib)
    args = [lib.ones(2) if isinstance(a, str) else a for a in FACTORIES[name]]
    function = getattr(lib.ones(2) if name.startswith("T.") else lib, name.removeprefix("T."))
    try:
        result = function(*args, **kwargs)
    except Exception as error:
        return type(error).__name__
    facts = str(result.dtype).partition(".")[2], tuple(result.shape), result.requires_grad
    return *facts, str(result.device), result.stride()


@pytest.mark.parametrize("keyword", KEYWORDS)
@pytest.mark.parametrize("name", FACTORIES)
def test_keywords_of_factories_as_in_torch(name, keyword, torch):
    assert outcome(mt, name, keyword) == outcome(torch, name, keyword)


def test_names_of_dimensions_are_refused(lib):
    for make in (lib.zeros, lib.ones, lib.empty, lib.rand, lib.randn):
        with pytest.raises(TypeError, match="names"):
            make(2, names=("a",))


def test_a_result_is_written_where_it_is_wanted(lib):
    out = lib.empty(2, dtype=lib.int32)
    assert lib.ones(2, out=out) is out and out.tolist() == [1, 1]
    lib.full((3,), 5, out=out)
    assert out.tolist() == [5, 5, 5] and out.dtype == lib.int32
    with pytest.warns(UserWarning, match="The number of elements in the out tensor of shape"):
        assert lib.arange(2, out=lib.empty(7)).tolist() == [0, 1]
    assert lib.arange(4, out=lib.empty(0)).tolist() == [0, 1, 2, 3]
    assert lib.eye(2, out=lib.empty(0)).tolist() == [[1, 0], [0, 1]]
    with pytest.raises(RuntimeError, match="does not match dtype of out parameter"):
        lib.zeros(3, out=out, dtype=lib.float32)
    leaf = lib.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError):
        lib.zeros(2, out=leaf)
    with lib.no_grad():
        assert lib.zeros(2, out=leaf) is leaf and leaf.tolist() == [0, 0]


def test_dtypes_by_other_names():
    assert mt.zeros(2, dtype="float64").dtype is mt.float64 is mt.ones(1).to(np.float64).dtype
    assert mt.zeros(2, dtype=np.int8).dtype is mt.int8 and mt.finfo("float64") == mt.finfo(
        np.float64
    )


# -- to() ------------------------------------------------------------------------------------------

TO_ERRORS = {
    "a name": (RuntimeError, lambda lib: (("bad",), {})),
    "a dtype's name": (RuntimeError, lambda lib: (("float64",), {})),
    "a list": (TypeError, lambda lib: (([],), {})),
    "a device behind a dtype": (TypeError, lambda lib: ((lib.float64, "cpu"), {})),
    "a device beside a dtype": (TypeError, lambda lib: ((lib.float64,), {"device": "cpu"})),
    "a dtype behind a tensor": (TypeError, lambda lib: ((lib.ones(1), lib.float64), {})),
    "a device beside a tensor": (TypeError, lambda lib: ((lib.ones(1),), {"device": "cpu"})),
    "a truth as a dtype": (TypeError, lambda lib: (("cpu", True), {})),
    "a flag that is none": (TypeError, lambda lib: ((), {"non_blocking": None})),
    "a copy that is none": (TypeError, lambda lib: ((), {"copy": 1})),
    "another tensor": (TypeError, lambda lib: ((), {"other": lib.ones(1)})),
    "too many": (TypeError, lambda lib: (("cpu", lib.float64, True, True, 1), {})),
    "a format's name": (TypeError, lambda lib: ((), {"memory_format": "x"})),
    "no such keyword": (TypeError, lambda lib: ((), {"bogus": 1})),
}


@pytest.mark.parametrize("case", TO_ERRORS)
def test_wrong_arguments_of_to(lib, case):
    error, arguments = TO_ERRORS[case]
    args, kwargs = arguments(lib)
    with pytest.raises(error):
        lib.ones(2).to(*args, **kwargs)


def test_forms_of_to(lib):
    t = lib.ones(2)
    double = lib.ones(1).double()
    for args in [
        (lib.float64,),
        ("cpu", lib.float64),
        (None, lib.float64, True),
        (double,),
        (double, True),
    ]:
        assert t.to(*args).dtype == lib.float64
    assert t.to("cpu") is t and t.to(lib.float32, False) is t and t.to("cpu", None) is t
    assert t.to(lib.float32, False, True) is not t and t.to(t, copy=True) is not t
    assert t.to("cpu", lib.float32, False, True) is not t and t.to() is t


def test_numbers_are_no_dtypes():
    for number in (1.5, True):
        with pytest.raises(TypeError):
            mt.ones(1).to(number)
        with pytest.raises(TypeError):
            mt.nn.Module().to(number)


def test_copy_drops_no_dimensions(lib):
    for shape in [(1,), (1, 1, 2)]:
        target = lib.zeros(shape[-1]) if len(shape) > 1 else lib.zeros(())
        with pytest.raises(RuntimeError, match="shape"):
            target.copy_(lib.ones(shape))
        assert not target.any()
    target = lib.zeros(2)
    target[...] = lib.ones(1, 2)  # as an assignment does
    assert target.tolist() == [1, 1]


@pytest.mark.parametrize("index", [0, (slice(None), 0), slice(1, None), [0, 1], (0, 0)])
def test_a_wrong_index_is_seen_before_a_tensor_that_must_not_be_written(lib, index):
    leaf = lib.ones((), requires_grad=True)
    with pytest.raises(IndexError):
        leaf[index] = 2.0
    part = lib.ones(2, 1).requires_grad_().unbind(0)[0].unbind(0)[0]
    with pytest.raises(IndexError):
        part[index] = 2.0
    whole = lib.ones(3, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        whole[index] = 2.0


@pytest.mark.parametrize("name", ["clone", "copy_", "float", "double", "long", "bool"])
def test_rare_arguments_of_native_methods(lib, name):
    t = lib.ones(2)
    first = (lib.zeros(2),) if name == "copy_" else ()
    with pytest.raises(TypeError):
        getattr(t, name)(*first, bogus=1)
    with pytest.raises(TypeError):
        getattr(t, name)(*first, "x")
    assert t.copy_(lib.zeros(2), True) is t and t.copy_(lib.zeros(2), non_blocking=False) is t
    assert t.copy_(other=lib.ones(2)).tolist() == [1, 1]


# -- meta tensors ----------------------------------------------------------------------------------

META = {
    "numpy": (TypeError, lambda t: t.numpy()),
    "numpy of what needs a gradient": (TypeError, lambda t: t.requires_grad_().numpy()),
    "numpy by force": (NotImplementedError, lambda t: t.numpy(force=True)),
    "asarray": (TypeError, np.asarray),
    "array": (TypeError, np.array),
    "asarray of a dtype": (TypeError, lambda t: np.asarray(t, dtype=int)),
    "item": (RuntimeError, lambda t: t[0].item()),
    "tolist": (NotImplementedError, lambda t: t.tolist()),
    "bool": (RuntimeError, lambda t: bool(t[0])),
    "float": (RuntimeError, lambda t: float(t[0])),
    "int": (RuntimeError, lambda t: int(t[0])),
    "complex": (RuntimeError, lambda t: complex(t[0])),
    "cpu": (NotImplementedError, lambda t: t.cpu()),
    "dlpack": (BufferError, lambda t: t.__dlpack__()),
    "dlpack's device": (ValueError, lambda t: t.__dlpack_device__()),
    "equal": (NotImplementedError, lambda t: t.equal(t)),
    "a mask": (NotImplementedError, lambda t: t[t > 0]),
}


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize("case", META)
def test_meta_tensors_have_no_values(lib, case):
    error, use = META[case]
    with pytest.raises(error):
        use(lib.ones(2, device="meta"))


def test_meta_tensors_choose_nothing():
    chosen, t = mt.zeros(2, device="meta").long(), mt.ones(3)
    for use in (
        lambda: t[chosen],
        lambda: t[0:2][chosen, None],
        lambda: t.__setitem__(chosen, 2.0),
    ):
        with pytest.raises(NotImplementedError, match="no index"):
            use()
    assert t.tolist() == [1, 1, 1] and mt.ones(3, 4, device="meta")[chosen].shape == (2, 4)


@pytest.mark.filterwarnings("ignore:To copy construct from a tensor:UserWarning")
def test_a_tensor_of_a_meta_tensor(lib):
    t = lib.tensor(lib.ones(2, device="meta"), dtype=lib.float64)
    assert t.is_meta and t.dtype == lib.float64 and t.shape == (2,)


def test_numpy_of_what_needs_a_gradient(lib):
    with pytest.raises(RuntimeError, match="requires grad"):
        lib.ones(1, requires_grad=True).numpy()


def test_arrays_that_say_their_byte_order(lib):
    array = np.arange(3, dtype=np.dtype("i4").newbyteorder("<"))
    if array.dtype.isnative:
        assert lib.from_numpy(array).tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="byte order"):
        lib.from_numpy(np.arange(3, dtype=np.dtype("i4").newbyteorder("S")))
