# SPDX-License-Identifier: BSD-3-Clause
"""The device of what is made: `with device(...):` and set_default_device()."""

from __future__ import annotations

import functools
import importlib
import threading

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def _no_device_left(lib):
    yield
    lib.set_default_device(None)
    assert lib.get_default_device().type == "cpu"
    assert lib.zeros(1).device.type == "cpu"


FACTORIES = {
    "arange": lambda lib, t: lib.arange(3),
    "as_tensor": lambda lib, t: lib.as_tensor([1.0]),
    "as_tensor of a tensor": lambda lib, t: lib.as_tensor(t),
    "as_tensor of an array": lambda lib, t: lib.as_tensor(np.ones(2)),
    "asarray": lambda lib, t: lib.asarray(np.ones(2)),
    "asarray, copied": lambda lib, t: lib.asarray(np.ones(2), copy=True),
    "Buffer": lambda lib, t: lib.nn.Buffer(),
    "empty": lambda lib, t: lib.empty(2, 3),
    "empty, sizes in a tuple": lambda lib, t: lib.empty((2, 3)),
    "empty in a format": lambda lib, t: lib.empty(1, 2, 3, 4, memory_format=lib.contiguous_format),
    "empty_strided": lambda lib, t: lib.empty_strided((2, 2), (1, 2)),
    "eye": lambda lib, t: lib.eye(2),
    "full": lambda lib, t: lib.full((2,), 7.0),
    "linspace": lambda lib, t: lib.linspace(0, 1, 3),
    "none": lambda lib, t: lib.zeros(2, device=None),
    "ones": lambda lib, t: lib.ones(2),
    "Parameter": lambda lib, t: lib.nn.Parameter(),
    "rand": lambda lib, t: lib.rand(2),
    "randint": lambda lib, t: lib.randint(3, (2,)),
    "randn": lambda lib, t: lib.randn(2),
    "randn with a generator": lambda lib, t: lib.randn(2, generator=lib.Generator()),
    "randperm": lambda lib, t: lib.randperm(3),
    "scalar_tensor": lambda lib, t: lib.scalar_tensor(1.0),
    "tensor": lambda lib, t: lib.tensor([1.0]),
    "tensor of a number": lambda lib, t: lib.tensor(1),
    "zeros": lambda lib, t: lib.zeros(2),
}
OTHERS = {
    "a computation": lambda lib, t: t + 1,
    "bernoulli": lambda lib, t: lib.bernoulli(t),
    "dropout": lambda lib, t: lib.nn.functional.dropout(t),
    "explicit": lambda lib, t: lib.zeros(2, device="cpu"),
    "frombuffer": lambda lib, t: lib.frombuffer(bytearray(8), dtype=lib.float32),
    "from_numpy": lambda lib, t: lib.from_numpy(np.ones(2)),
    "multinomial": lambda lib, t: lib.multinomial(t, 1),
    "new": lambda lib, t: t.new(2),
    "new of values": lambda lib, t: t.new([2.0]),
    "new, empty": lambda lib, t: t.new(),
    "new_tensor": lambda lib, t: t.new_tensor([1]),
    "new_zeros": lambda lib, t: t.new_zeros(2),
    "normal": lambda lib, t: lib.normal(0.0, 1.0, (2,)),
    "one_hot": lambda lib, t: lib.nn.functional.one_hot(t.long(), 2),
    "Tensor": lambda lib, t: lib.Tensor(2, 3),
    "Tensor of nothing": lambda lib, t: lib.Tensor(),
    "Tensor of values": lambda lib, t: lib.Tensor([1.0]),
    "FloatTensor": lambda lib, t: lib.FloatTensor(2),
    "zeros_like": lambda lib, t: lib.zeros_like(t),
}


@pytest.mark.parametrize("name", FACTORIES)
def test_factories_make_on_the_device_in_force(lib, name):
    given = lib.ones(2)
    on_cpu = FACTORIES[name](lib, given)
    with lib.device("meta"):
        made = FACTORIES[name](lib, given)
    assert made.device == lib.device("meta")
    assert (made.shape, made.dtype) == (on_cpu.shape, on_cpu.dtype)
    assert FACTORIES[name](lib, given).device == lib.device("cpu")


@pytest.mark.parametrize("name", OTHERS)
def test_what_has_a_device_of_its_own_keeps_it(lib, name):
    given = lib.ones(2)
    with lib.device("meta"):
        made = OTHERS[name](lib, given)
    assert made.device == lib.device("cpu")


def clipped(lib):
    p = lib.nn.Parameter(lib.ones(2, device="cpu"))
    p.grad = lib.ones(2, device="cpu")
    return lib.nn.utils.clip_grad_norm_([p], 1.0)


def stepped(lib):
    p = lib.nn.Parameter(lib.ones(2, device="cpu"))
    (p * 2).sum().backward()
    optimizer = lib.optim.Adam([p], lr=0.1)
    optimizer.step()
    return optimizer.state[p]["exp_avg"]


# What makes tensors on its way, from layers and data on the CPU.
COMPUTATIONS = {
    "attention": lambda lib, x: (
        lambda: lib.nn.MultiheadAttention(4, 2, add_zero_attn=True, add_bias_kv=True, device="cpu")(
            x, x, x
        )[0]
    ),
    "batch norm": lambda lib, x: lambda: lib.nn.BatchNorm1d(3, device="cpu")(x),
    "clip_grad_norm_": lambda lib, x: lambda: clipped(lib),
    "ctc_loss": lambda lib, x: functools.partial(
        lib.nn.functional.ctc_loss,
        x.log_softmax(-1),
        lib.tensor([[1], [2], [3]]),
        lib.tensor([2, 2, 2]),
        lib.tensor([1, 1, 1]),
    ),
    "embedding_bag": lambda lib, x: functools.partial(
        lib.nn.functional.embedding_bag, lib.tensor([[0, 1]]), x[0]
    ),
    "interpolate": lambda lib, x: lambda: lib.nn.functional.interpolate(x, size=7),
    "LSTM": lambda lib, x: lambda: lib.nn.LSTM(4, 3, device="cpu")(x)[0],
    "one_hot": lambda lib, x: functools.partial(lib.nn.functional.one_hot, lib.tensor([2])),
    "optimizer": lambda lib, x: lambda: stepped(lib),
}


@pytest.mark.parametrize("name", COMPUTATIONS)
def test_computations_stay_with_their_data(lib, name):
    compute = COMPUTATIONS[name](lib, lib.rand(2, 3, 4))
    with lib.device("meta"):
        result = compute()
    assert result.device == lib.device("cpu")
    assert bool(result.isfinite().all())


def test_new_tensors_are_where_the_old_one_is(lib):
    meta = lib.empty(2, device="meta")
    assert [t.device.type for t in (meta.new(), meta.new(2, 3), meta.new(meta.shape))] == [
        "meta"
    ] * 3


def test_no_random_number_is_drawn_on_meta(lib):
    lib.manual_seed(0)
    expected = lib.rand(3).tolist()
    lib.manual_seed(0)
    with lib.device("meta"):
        lib.rand(3)
        lib.nn.Linear(3, 4)
    assert lib.rand(3).tolist() == expected


def test_out_decides_against_the_device_in_force(lib):
    out = lib.ones(2)
    with lib.device("meta"), pytest.raises(RuntimeError, match="does not match device"):
        lib.zeros(2, out=out)


def test_the_block_gives_the_device(lib):
    place = lib.device("meta")
    with place as given:
        assert given is place
        assert lib.get_default_device() == place
    assert place.__enter__() is place
    assert place.__exit__(None, None, None) is None


def test_blocks_nest(lib):
    meta = lib.device("meta")
    with meta:
        with lib.device("cpu"):
            assert lib.zeros(1).device.type == "cpu"
            with meta, meta:
                assert lib.zeros(1).device.type == "meta"
            assert lib.get_default_device().type == "cpu"
        assert lib.zeros(1).device.type == "meta"


def test_an_exception_ends_the_block(lib):
    with pytest.raises(ZeroDivisionError), lib.device("meta"):
        1 / 0  # noqa: B018
    assert lib.zeros(1).device.type == "cpu"


def test_a_block_that_nobody_entered_cannot_end(lib):
    with pytest.raises(RuntimeError):
        lib.device("cpu").__exit__(None, None, None)


def test_set_default_device(lib):
    lib.set_default_device("meta")
    assert lib.get_default_device() == lib.device("meta")
    assert lib.nn.Linear(2, 3).weight.is_meta
    with lib.device("cpu"):
        assert lib.zeros(1).device.type == "cpu"
    lib.set_default_device(lib.device("cpu"))
    assert lib.zeros(1).device.type == "cpu"
    lib.set_default_device("meta")
    lib.set_default_device(None)
    assert lib.zeros(1).device.type == "cpu"


def test_a_default_that_is_set_in_a_block_holds_at_once(lib):
    with lib.device("meta"):
        lib.set_default_device("cpu")
        assert lib.get_default_device().type == "cpu"
        assert lib.zeros(1).device.type == "cpu"
        with lib.device("meta"):
            assert lib.zeros(1).device.type == "meta"
        lib.set_default_device(None)
        assert lib.zeros(1).device.type == "meta"


@pytest.mark.parametrize("bad", ["nope", 1.5, [1]], ids=repr)
def test_a_bad_default_changes_nothing(lib, bad):
    with pytest.raises((RuntimeError, TypeError)):
        lib.set_default_device(bad)
    assert lib.get_default_device() == lib.device("cpu")


def test_devices_are_in_force_in_one_thread(lib):
    found = []

    def look() -> None:
        found.append(lib.zeros(1).device.type)
        found.append(lib.get_default_device().type)
        with lib.device("meta"):
            found.append(lib.zeros(1).device.type)

    lib.set_default_device("meta")
    with lib.device("meta"):
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert found == ["cpu", "cpu", "meta"]


def decorators(lib):
    return importlib.import_module(f"{lib.__name__}.utils._device")


def test_decorated_functions(lib):
    @decorators(lib).set_device("meta")
    def make(n, scale=1):
        """Makes."""
        return lib.zeros(n * scale)

    assert make.__name__ == "make"
    assert make.__doc__ == "Makes."
    assert make(2, scale=3).device.type == "meta"
    assert make(2, scale=3).shape == (6,)
    with pytest.raises(TypeError):
        make()
    assert lib.zeros(1).device.type == "cpu"


@pytest.mark.filterwarnings("ignore:the .type, exc, tb. signature of throw:DeprecationWarning")
def test_decorated_generators(lib):  # of torch's decorator, from CPython 3.12 on
    def where():
        return lib.zeros(1).device.type

    @decorators(lib).set_device("meta")
    def make():
        try:
            got = yield where()
            assert where() == "meta"
            try:
                yield got
            except KeyError:
                yield "caught on " + where()
            return "end on " + where()
        finally:
            ends.append(where())

    ends: list[str] = []
    steps = make()
    assert next(steps) == "meta"
    assert where() == "cpu"
    assert steps.send("sent") == "sent"
    assert steps.throw(KeyError()) == "caught on meta"
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value == "end on meta"
    steps = make()
    next(steps)
    steps.close()
    assert ends == ["meta", "meta"]
    assert where() == "cpu"


def test_classes_are_not_decorated(lib):
    with pytest.raises(RuntimeError, match="Cannot decorate classes"):
        decorators(lib).set_device("meta")(lib.nn.Linear)


def test_a_default_outlives_the_block_that_it_was_set_in(lib):
    found = []

    def look() -> None:
        with lib.device("cpu"):
            lib.set_default_device("meta")
        found.append(lib.zeros(1).device.type)
        found.append(lib.get_default_device().type)

    # A thread of its own: torch cannot put its device back.
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == ["cpu" if lib.__name__ == "torch" else "meta"] * 2
