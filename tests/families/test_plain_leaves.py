# SPDX-License-Identifier: BSD-3-Clause
"""Torch leaves of every kind, and torch under every switch: the module tree does with them what
torch.nn does, whether native code may read them or has to ask their attributes.
"""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
import warnings
import weakref

import pytest
from helpers.support import class_attribute

torch = pytest.importorskip("torch")

from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import modtree  # noqa: E402
from modtree.torch.facts import facts_of  # noqa: E402

Parameter = torch.nn.Parameter
NN = {"modtree": modtree.nn, "torch": torch.nn}


@pytest.fixture(params=sorted(NN))
def nn(request):
    return NN[request.param]


class Subclass(torch.Tensor):
    pass


class SubParameter(Parameter):
    pass


class Wrapper(torch.Tensor):
    """A tensor that sees each operation on it and says the shape of another."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        unwrap = lambda x: x.inner if isinstance(x, cls) else x  # noqa: E731
        out = func(*[unwrap(a) for a in args], **(kwargs or {}))
        return cls(out) if isinstance(out, torch.Tensor) else out


def _quantized():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8)


def _inference():
    with torch.inference_mode():
        return torch.ones(4)


KINDS = {
    "plain": lambda: torch.arange(4.0),
    "recorded leaf": lambda: torch.arange(4.0, requires_grad=True),
    "parameter": lambda: Parameter(torch.arange(4.0)),
    "frozen parameter": lambda: Parameter(torch.arange(4.0), requires_grad=False),
    "integers": lambda: torch.arange(4),
    "half": lambda: torch.arange(4).half(),
    "complex": lambda: torch.arange(4).cfloat(),
    "conjugated": lambda: (torch.arange(4) * 1j).conj(),
    "negated": lambda: (torch.arange(4) * 1j).conj().imag,
    "strided": lambda: torch.arange(8.0)[::2],
    "expanded": lambda: torch.ones(1).expand(4),
    "scalar": lambda: torch.tensor(2.0),
    "one": lambda: torch.ones(1),
    "empty": lambda: torch.empty(0),
    "matrix": lambda: torch.ones(2, 2),
    "transposed": lambda: torch.arange(6.0).reshape(2, 3).T,
    "nine dimensions": lambda: torch.ones(*[1] * 8, 4),
    "meta": lambda: torch.ones(4, device="meta"),
    "meta matrix": lambda: torch.ones(2, 2, device="meta"),
    "subclass": lambda: torch.arange(4.0).as_subclass(Subclass),
    "subclass of Parameter": lambda: SubParameter(torch.arange(4.0)),
    "wrapper": lambda: Wrapper(torch.arange(4.0)),
    "sparse": lambda: torch.arange(4.0).to_sparse(),
    "quantized": _quantized,
    "inference": _inference,
    "result": lambda: torch.arange(4.0, requires_grad=True) * 2,
    "number": lambda: 3.0,
}


def describe(value):
    if not isinstance(value, torch.Tensor):
        return repr(value)
    facts = [type(value).__name__, value.dtype, tuple(value.shape), value.device.type]
    facts += [value.requires_grad, value.is_leaf, value.layout]
    if isinstance(value, Wrapper):
        value = value.inner
    if not value.is_meta:
        facts.append(
            value.detach().to_dense().resolve_conj().tolist()
            if not value.is_quantized
            else value.dequantize().tolist()
        )
    return facts


def outcome(operation):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            result = operation()
        except Exception as error:
            result = type(error).__name__, str(error).split("\n")[0][:60]
    # Of these torch gives only the first in a process.
    kept = [w for w in seen if "discards the imaginary part" not in str(w.message)]
    return result, [w.category.__name__ for w in kept]


def module_of(nn, tensor):
    m = nn.Module()
    if isinstance(tensor, Parameter):
        m.register_parameter("p", tensor)
    else:
        m.register_buffer("p", tensor)
    return m


def on_both(operation):
    """The outcomes of an operation, with what the module holds then, on modtree and on torch."""
    return [operation(NN[name]) for name in ("modtree", "torch")]


TARGETS = [k for k in KINDS if k not in ("result", "number", "recorded leaf")]
if not facts_of(torch.nn.modules.module)["scalars_from_one"]:
    TARGETS.remove("scalar")  # torch before 2.10 takes the first element of any number


@pytest.mark.parametrize("assign", [False, True], ids=["copy", "assign"])
@pytest.mark.parametrize("source", KINDS)
def test_load(source, assign):
    for target in TARGETS:

        def run(nn, target=target):
            m, value = module_of(nn, KINDS[target]()), KINDS[source]()
            before = m.p

            def load():
                return repr(m.load_state_dict({"p": value}, assign=assign))

            found = outcome(load)
            return found, describe(m.p), m.p is before, m.p is value

        mine, theirs = on_both(run)
        if mine[0][0] != theirs[0][0] and isinstance(mine[0][0], tuple):
            assert mine[0][0][0] == theirs[0][0][0], target  # the kind of the error
        else:
            assert mine == theirs, target


@pytest.mark.parametrize("keep_vars", [False, True])
@pytest.mark.parametrize("kind", TARGETS)
def test_state_dict(kind, keep_vars):
    def run(nn):
        m = module_of(nn, KINDS[kind]())
        found, warned = outcome(lambda: m.state_dict(keep_vars=keep_vars)["p"])
        return describe(found), warned, found is m.p

    mine, theirs = on_both(run)
    assert mine == theirs


FUNCTIONS = {
    "identity": lambda t: t,
    "double": lambda t: t.double(),
    "clone": lambda t: t.clone(),
    "meta": lambda t: t.to("meta"),
    "detach": lambda t: t.detach(),
    "other": lambda t: torch.ones(3),
}


@pytest.mark.parametrize("swap", [False, True], ids=["", "swap"])
@pytest.mark.parametrize("overwrite", [False, True], ids=["", "overwrite"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_apply(function, overwrite, swap):
    for kind in TARGETS:

        def run(nn, kind=kind):
            m = module_of(nn, KINDS[kind]())
            before = m.p
            is_plain = type(before) is Parameter and before.requires_grad and not before.is_meta
            if is_plain:
                before.grad = torch.ones_like(before)
            with _switches(overwrite, swap):
                found, warned = outcome(lambda: m._apply(FUNCTIONS[function]) is m)
            grad = describe(m.p.grad) if is_plain else None
            return found, warned, describe(m.p), m.p is before, grad

        mine, theirs = on_both(run)
        if isinstance(mine[0], tuple) and isinstance(theirs[0], tuple):
            assert mine[0][0] == theirs[0][0], kind
        else:
            assert mine == theirs, kind


@contextlib.contextmanager
def _switches(overwrite, swap):
    homes = torch.__future__, modtree.__future__
    try:
        for home in homes:
            home.set_overwrite_module_params_on_conversion(overwrite)
            home.set_swap_module_params_on_conversion(swap)
        yield
    finally:
        for home in homes:
            home.set_overwrite_module_params_on_conversion(False)
            home.set_swap_module_params_on_conversion(False)


GRADS = {
    "none": lambda p: None,
    "plain": lambda p: torch.ones_like(p),
    "recorded": lambda p: torch.ones_like(p, requires_grad=True),
    "result": lambda p: torch.ones_like(p, requires_grad=True) * 2,
    "sparse": lambda p: torch.ones_like(p).to_sparse(),
    "subclass": lambda p: torch.ones_like(p).as_subclass(Subclass),
}


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("grad", GRADS)
def test_zero_grad(grad, set_to_none):
    def run(nn):
        m = nn.Module()
        m.plain = Parameter(torch.arange(4.0))
        m.sub = SubParameter(torch.arange(4.0))
        given = []
        for p in m.parameters():
            p.grad = GRADS[grad](p)
            given.append(p.grad)
        found = outcome(lambda: m.zero_grad(set_to_none=set_to_none))
        grads = [p.grad for p in m.parameters()]
        return (
            found,
            [describe(g) for g in grads],
            [g is h for g, h in zip(grads, given, strict=True)],
        )

    mine, theirs = on_both(run)
    assert mine == theirs


def _operations(nn):
    m = nn.Module()
    m.p = Parameter(torch.zeros(3))
    m.q = Parameter(torch.zeros(3))
    state = {"p": Parameter(torch.ones(3)), "q": Parameter(torch.ones(3))}
    yield "load", lambda: m.load_state_dict(state)
    yield "assign", lambda: m.load_state_dict(state, assign=True)
    yield "save", lambda: m.state_dict()
    yield "apply", lambda: m._apply(lambda t: t)
    yield "zero_grad", lambda: m.zero_grad()


@pytest.mark.parametrize("cls", [torch.Tensor, Parameter])
@pytest.mark.parametrize("name", ["grad", "requires_grad", "shape", "grad_fn", "is_meta"])
def test_patched_properties_are_asked(nn, cls, name):
    """A property that a program puts on torch's class answers, natively read or not."""
    asked = []
    original = getattr(torch._C.TensorBase, name)

    def get(self):
        asked.append(name)
        return original.__get__(self)

    def put(self, value):
        asked.append(f"set {name}")
        original.__set__(self, value)

    counts = {}
    for key, operation in _operations(nn):
        operation()
        with class_attribute(cls, name, property(get, put)):
            operation()
        counts[key] = len(asked)
        asked.clear()
        operation()
        assert not asked
    where = {
        "grad": {"apply", "zero_grad"},
        "requires_grad": {"assign"},
        "shape": {"load", "assign"},
        "grad_fn": {"assign"},
        "is_meta": {"load"},
    }
    assert all(counts[key] >= 2 for key in where[name]), counts


def test_patched_detach_is_called(nn):
    calls = []
    original = torch.Tensor.detach

    def detach(self):
        calls.append(1)
        return original(self)

    m = module_of(nn, Parameter(torch.ones(2)))
    m.state_dict()
    with class_attribute(torch.Tensor, "detach", detach):
        m.state_dict()
    assert calls == [1]
    m.state_dict()
    assert calls == [1]


class Seen(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(getattr(func, "__name__", "?"))
        return func(*args, **(kwargs or {}))


def test_function_modes_see_what_torch_asks(nn):
    """Modes see at least the reads of the attributes that decide."""
    needed = {
        "load": ["copy_"],
        "assign": ["requires_grad_"],
        "save": ["detach"],
    }
    for key, operation in _operations(nn):
        operation()
        with Seen() as mode:
            operation()
        for name in needed.get(key, []):
            assert any(name in seen for seen in mode.names), (key, mode.names)
        assert key == "load" or mode.names


class Counting(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_dispatch_modes_see_the_same(nn):
    for key, operation in _operations(nn):
        with Counting() as mode:
            operation()
        expected = {"load": ["aten.copy_.default"], "save": ["aten.detach.default"]}.get(key, [])
        each = len(mode.names) // 2  # in older torches a detach() is two operations
        assert mode.names == expected * 2 * each and each in ([1, 2] if expected else [0])


def test_requires_grad_within_a_transform(nn):
    """Within torch.func's transforms requires_grad_() is refused, also where it does nothing."""
    m = module_of(nn, Parameter(torch.ones(2)))
    state = {"p": Parameter(torch.zeros(2))}

    def run(x):
        m.load_state_dict(state, assign=True)
        return x.sum()

    with pytest.raises(RuntimeError):
        torch.func.grad(run)(torch.ones(2))
    m.load_state_dict(state, assign=True)
    assert m.p is state["p"]


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("kind", [Parameter, SubParameter])
def test_assigned_parameters_take_the_flag(nn, kind, given, flag):
    m = module_of(nn, Parameter(torch.ones(2), requires_grad=flag))
    value = kind(torch.zeros(2), requires_grad=given)
    m.load_state_dict({"p": value}, assign=True)
    assert m.p is value
    assert m.p.requires_grad is flag


def test_many_meta_targets_take_real_sources(nn):
    count = 40
    m = nn.Module()
    for i in range(count):
        device = "cpu" if i % 7 == 3 else "meta"
        m.register_parameter(f"p{i}", Parameter(torch.zeros(i % 4, 2, device=device)))
    state = {f"p{i}": torch.full((i % 4, 2), float(i)) for i in range(count)}
    m.load_state_dict(state, assign=True)
    assert all(p.device.type == "cpu" for p in m.parameters())
    assert [p.sum().item() for p in m.parameters()] == [2.0 * i * (i % 4) for i in range(count)]
    state["p5"] = torch.zeros(9)
    with pytest.raises(RuntimeError, match="size mismatch for p5"):
        m.load_state_dict(state, assign=True)


def test_replaced_parameters_die_with_their_entry():
    """Their end may run code that changes the module: the rest is loaded as it was planned."""
    m = modtree.nn.Module()
    died = []
    for i in range(5):
        p = Parameter(torch.zeros(2))
        weakref.finalize(p, died.append, i)
        if i == 0:
            weakref.finalize(p, m._parameters.pop, "p4")
        m.register_parameter(f"p{i}", p)
    del p
    state = {f"p{i}": Parameter(torch.full((2,), float(i))) for i in range(5)}
    m.load_state_dict(state, assign=True)
    gc.collect()
    assert sorted(died) == list(range(5))
    assert m.p0 is state["p0"]
    assert m.p4 is state["p4"]


def test_a_mode_entered_while_a_module_is_converted(nn):
    """The function switches a mode on half way: what comes after is seen by it."""
    m = nn.Module()
    for name in "abc":
        m.register_parameter(name, Parameter(torch.ones(2)))
    mode, calls = Seen(), []

    def function(tensor):
        if not calls:
            mode.__enter__()
        calls.append(tensor)
        return tensor

    try:
        m._apply(function)
    finally:
        mode.__exit__(None, None, None)
    assert len(calls) == 3
    assert mode.names


def test_methods_that_a_tensor_has_of_its_own(nn):
    """An entry of the instance's dict goes before the method of its class."""
    m = nn.Module()
    m.p = Parameter(torch.ones(2))
    m.p.detach = lambda: "mine"
    assert m.state_dict()["p"] == "mine"
    given, asked = Parameter(torch.zeros(2)), []
    given.requires_grad_ = asked.append
    m.load_state_dict({"p": given}, assign=True)
    assert m.p is given
    assert asked == [True]


PATCHED_FIRST = """
import torch

original, asked = torch.Tensor.shape, []
torch.Tensor.shape = property(lambda self: asked.append(1) or original.__get__(self))

import modtree
from modtree.torch.facts import facts_of
from modtree import _C, families

m = modtree.nn.Module()
m.p = torch.nn.Parameter(torch.zeros(3))
before = len(asked)
m.load_state_dict({"p": torch.ones(3)})
m.load_state_dict({"p": torch.nn.Parameter(torch.ones(3))}, assign=True)
assert len(asked) > before
assert families.find(torch.Tensor).tensor_access is None
assert _C.read_tensors([m.p]) == [None]
assert m._apply(lambda t: t).state_dict()["p"].tolist() == [1, 1, 1]
m.p.grad = torch.ones(3)
m.zero_grad()
assert m.p.grad is None
"""


def test_a_class_that_was_patched_before():
    """Where torch is not as it came, nothing is described, and everything is asked by name."""
    done = subprocess.run([sys.executable, "-c", PATCHED_FIRST], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
