# SPDX-License-Identifier: BSD-3-Clause
"""Classes behind Module in the MRO: what they define that Module does not, and writes, which
Module's own methods hand on with super().
"""

from __future__ import annotations

import copy
import pickle

import pytest
from helpers.support import raises
from helpers.util import INTERNAL_KEYS, param, tensor


def logging(log):
    """A mixin that notes each write that reaches it."""

    class Writes:
        def __setattr__(self, name, value):
            log.append(name)
            super().__setattr__(name, value)

        def __delattr__(self, name):
            log.append(f"del {name}")
            super().__delattr__(name)

    return Writes


def test_plain_writes_reach_the_next_class(impl):
    log = []
    m = type("M", (impl.nn.Module, logging(log)), {})()
    assert tuple(log) == tuple(m.__dict__) == INTERNAL_KEYS
    log.clear()
    m.flag = 1
    m.flag = 2
    m.weight = param(impl)
    m.child = impl.nn.ReLU()
    m.register_buffer("mean", None)
    m.mean = tensor(impl)
    m.plain = plain = tensor(impl)
    del m.flag, m.weight, m.child
    assert log == ["flag", "flag", "plain", "del flag"]
    assert m.plain is plain and list(m._buffers) == ["mean"]
    assert not m._parameters and not m._modules


def read(m):
    assert not hasattr(m, "x")


def write(m):
    m.x = 1


def write_plainly(m):
    object.__setattr__(m, "x", 1)
    del m.x


def register(m):
    m.register_buffer("x", None)
    del m.x


def assign_child(m):
    m.x = type(m)()
    del m.x


def load(m):
    m.__setstate__({"x": 1})


LEARNERS = [read, write, write_plainly, register, assign_child, load]


@pytest.mark.parametrize("others", LEARNERS)
@pytest.mark.parametrize("learner", LEARNERS)
def test_whoever_met_the_name_first(impl, learner, others):
    """What is remembered of a class and a name holds for all who ask."""
    log = []

    class Plain(impl.nn.Module):
        pass

    class M(impl.nn.Module, logging(log)):
        pass

    for cls, expected in ((Plain, []), (M, ["x", "x", "del x"])):
        m = cls()
        learner(m)
        others(cls())
        log.clear()
        m.x = 2
        m.x = 3
        assert m.x == 3
        del m.x
        assert log == expected and not hasattr(m, "x")


def test_a_name_that_a_container_met_first(impl):
    log = []
    m = type("M", (impl.nn.ModuleList, logging(log)), {})([impl.nn.ReLU()])
    m.append(impl.nn.ReLU())
    del m[1]
    log.clear()
    setattr(m, "1", 5)
    setattr(m, "1", 6)
    assert log == ["1", "1"] and list(m._modules) == ["0"]


def test_the_mode_reaches_the_next_class(impl):
    log = []
    m = type("M", (impl.nn.Module, logging(log)), {})()
    root = impl.nn.Sequential(impl.nn.ReLU(), m)
    log.clear()
    root.eval()
    root.train()
    assert log == ["training", "training"] and m.training is True


def test_the_next_class_may_refuse(impl):
    class ReadOnly:
        def __setattr__(self, name, value):
            if name == "frozen":
                raise AttributeError(f"{name} is read-only")
            super().__setattr__(name, value)

        def __delattr__(self, name):
            raise AttributeError("nothing is deleted")

    class M(impl.nn.Module, ReadOnly):
        pass

    m = M()
    m.other = 1
    m.frozen = impl.nn.ReLU()  # a child is no plain attribute
    del m.frozen
    with raises(AttributeError, "frozen is read-only"):
        m.frozen = 3
    with raises(AttributeError, "nothing is deleted"):
        del m.other
    assert m.other == 1 and not hasattr(m, "frozen")


def test_the_next_class_may_store_elsewhere(impl):
    class Renames:
        def __setattr__(self, name, value):
            object.__setattr__(self, f"own_{name}" if name == "x" else name, value)

    class M(impl.nn.Module, Renames):
        pass

    m = M()
    m.x = 3
    assert m.own_x == 3 and not hasattr(m, "x")


def test_the_class_itself_comes_before(impl):
    log = []

    class M(impl.nn.Module, logging(log)):
        def __setattr__(self, name, value):
            log.append(f"M {name}")
            super().__setattr__(name, value)

    m = M()
    log.clear()
    m.flag = 1
    m.child = impl.nn.ReLU()
    m.eval()
    assert log == ["M flag", "flag", "M child", "M training", "training"]


def test_a_class_may_begin_to_take_part(impl):
    class Later:
        pass

    class M(impl.nn.Module, Later):
        pass

    m, log = M(), []
    m.x = 1
    Later.__setattr__ = logging(log).__setattr__
    with pytest.raises(TypeError, match="super"):
        m.x = 2
    assert log == ["x"] and m.x == 1
    del Later.__setattr__
    m.x = 3
    assert log == ["x"] and m.x == 3


def test_a_module_that_hands_on_is_whole(impl):
    class M(impl.nn.Module, logging([])):
        def __init__(self):
            super().__init__()
            self.child = impl.nn.Module()
            self.child.weight = param(impl)
            self.flag = 1

        def forward(self, x):
            return self.child.weight * x

    m = M()
    assert list(m.state_dict()) == ["child.weight"]
    assert m(tensor(impl)).shape == (1,)
    twin = copy.deepcopy(m)
    assert twin.flag == 1 and twin.child is not m.child
    twin.load_state_dict(m.state_dict())
    assert twin.eval().training is twin.child.training is False


def test_reads_go_through_the_next_class(impl):
    log = []

    class Reads:
        def __getattribute__(self, name):
            if name in ("child", "forward", "train"):
                log.append(name)
            return super().__getattribute__(name)

    class M(impl.nn.Module, Reads):
        def __init__(self):
            super().__init__()
            self.child = impl.nn.ReLU()

        def forward(self, x):
            return self.child(x)

    m = M()
    m(tensor(impl))
    assert m.child is m._modules["child"]
    m.train()
    assert log == ["forward", "child", "child", "train"]

    class Deeper(M):
        pass

    log.clear()
    assert isinstance(Deeper().child, impl.nn.ReLU)
    assert log == ["child"]


class Reduced:
    def __reduce_ex__(self, protocol):
        return int, (protocol,)


class Reads:
    """Notes what is read of the names below."""

    log: list = []

    def __getattribute__(self, name):
        if name in ("x", "child"):
            Reads.log.append(name)
        return super().__getattribute__(name)


def test_nothing_is_written_into_the_class(impl):
    class A(impl.nn.Module, Reads, Reduced):
        pass

    before = dict(vars(A))
    a = A()
    a.x = a.x = 1
    assert a.x == 1 and dict(vars(A)) == before
    assert A.__getattribute__ is Reads.__getattribute__
    assert A.__reduce_ex__ is Reduced.__reduce_ex__
    assert copy.copy(a) == 4


def test_a_class_below_may_put_another_one_behind_module(impl):
    class A(impl.nn.Module, Reads):
        pass

    class More(Reads):
        def __getattribute__(self, name):
            return 5 if name == "five" else super().__getattribute__(name)

        def __reduce_ex__(self, protocol):
            return int, (protocol,)

    A().x = 1  # the class has been met

    class B(A, More):
        pass

    b = B()
    b.x = 1
    Reads.log.clear()
    assert (b.five, b.x, Reads.log) == (5, 1, ["x"])
    assert copy.copy(b) == 4


def test_a_class_in_front_reaches_the_one_behind(impl):
    class M(impl.nn.Module, Reads):
        def __getattribute__(self, name):
            if name == "x":
                Reads.log.append("M")
            return super().__getattribute__(name)

        def __reduce_ex__(self, protocol):
            return super().__reduce_ex__(protocol)

    m = M()
    m.x = 1
    Reads.log.clear()
    assert m.x == 1 and Reads.log == ["M", "x"]
    assert copy.copy(m).x == 1


def test_a_class_behind_may_call_modules_own(impl):
    """Module is asked by its name, and does not come back to the class behind it."""

    class Calls:
        def __getattribute__(self, name):
            return impl.nn.Module.__getattribute__(self, name)

        def __reduce_ex__(self, protocol):
            return impl.nn.Module.__reduce_ex__(self, protocol)

    class M(impl.nn.Module, Calls):
        pass

    m = M()
    m.x, m.child = 1, impl.nn.ReLU()
    assert m.x == 1 and m.child is m._modules["child"]
    assert copy.copy(m).child is m.child


def put(cls, name, function):
    setattr(cls, name, function)


def put_by_bases(cls, name, function):
    """By another base in the place of a class behind Module."""
    user = cls.__subclasses__()[0]
    user.__bases__ = (user.__bases__[0], type("Other", (), {name: function}))


@pytest.mark.parametrize("change", [put, put_by_bases])
def test_reads_and_copies_of_a_class_that_changes(impl, change):
    class Later:
        pass

    class M(impl.nn.Module, Later):
        pass

    class Deeper(M):
        pass

    modules = [M(), Deeper()]
    for m in modules:
        m.x, m.child = 1, impl.nn.ReLU()
        assert (m.x, copy.copy(m).x) == (1, 1)

    def reads(m, name):
        log.append(name)
        return object.__getattribute__(m, name)

    bases, log = M.__bases__, []
    change(Later, "__getattribute__", reads)
    for m in modules:
        log.clear()
        assert (m.x, m.training, isinstance(m.child, impl.nn.ReLU)) == (1, True, True)
        assert [k for k in log if k in ("x", "training", "child")] == ["x", "training", "child"]
    M.__bases__ = bases
    change(Later, "__reduce_ex__", lambda m, protocol: (int, (protocol,)))
    assert [copy.copy(m) for m in modules] == [4, 4]
    M.__bases__ = bases
    for name in ("__getattribute__", "__reduce_ex__"):
        if name in vars(Later):
            delattr(Later, name)
    log.clear()
    assert [(m.x, copy.copy(m).x) for m in modules] == [(1, 1)] * 2 and not log


def test_a_class_behind_of_which_one_below_is_in_front(impl):
    """It stands right behind Module, in front of what Module is derived from."""
    log = []

    class Behind(logging(log), Reduced):
        def __getattribute__(self, name):
            if name in ("x", "child"):
                log.append(f"get {name}")
            return super().__getattribute__(name)

        def eval(self):
            raise AssertionError("Module has one")

    class Front(Behind):
        def __reduce_ex__(self, protocol):
            return super().__reduce_ex__(protocol)

    class M(Front, impl.nn.Module, Behind):
        pass

    m = M()
    log.clear()
    m.x, m.child = 1, impl.nn.ReLU()
    assert m.x == 1 and copy.copy(m) == 4 and not m.eval().training
    assert log == ["x", "get x", "training"]


def test_an_object_gets_a_class_with_others_behind(impl):
    log = []

    class Plain(impl.nn.Module):
        pass

    class M(impl.nn.Module, Reads, logging(log)):
        pass

    class OfObject(impl.nn.Module):
        __getattribute__ = object.__getattribute__
        __setattr__ = object.__setattr__

    m = Plain()
    m.x = 1
    m.__class__ = M
    Reads.log.clear()
    m.x = 2
    assert (m.x, Reads.log, log) == (2, ["x"], ["x"])
    m.__class__ = OfObject
    m.training = False
    assert m.training is False and m.__dict__["training"] is False
    m.__class__ = Plain
    m.x = 3
    assert (m.x, Reads.log, log) == (3, ["x"], ["x", "__class__"])


def test_a_class_that_takes_the_reads_of_object_later(impl):
    class M(impl.nn.Module):
        pass

    m = M()
    m.child = child = impl.nn.ReLU()
    M.__getattribute__ = object.__getattribute__
    assert m.training is True and m.child is child and list(m._modules) == ["child"]
    with raises(AttributeError, "'M' object has no attribute 'other'"):
        m.other  # noqa: B018


def test_a_metaclass_that_refuses_attributes(impl):
    class Closed(type):
        def __setattr__(cls, name, value):
            raise AttributeError("the class is closed")

    class Reads:
        def __getattribute__(self, name):
            return 5 if name == "five" else super().__getattribute__(name)

    class M(impl.nn.Module, Reads, metaclass=Closed):
        pass

    assert M().five == 5


def test_copies_and_pickles_ask_the_next_class(impl):
    class M(impl.nn.Module, Reduced):
        pass

    assert copy.copy(M()) == copy.deepcopy(M()) == 4
    assert pickle.loads(pickle.dumps(M(), 2)) == 2


def test_a_new_behind_module(impl):
    class Single:
        made = None

        def __new__(cls):
            if Single.made is None:
                Single.made = super().__new__(cls)
            return Single.made

    class M(impl.nn.Module, Single):
        pass

    # A native class has a __new__ of its own.
    assert (M() is M()) is impl.is_torch
