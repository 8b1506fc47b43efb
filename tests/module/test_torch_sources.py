# SPDX-License-Identifier: BSD-3-Clause
"""Python files of torch, read from where it is installed, run on modtree with their imports
changed: its parameters, and the call of a module as an override on a class of ours.
"""

from __future__ import annotations

import copy
import inspect
import pickle
import textwrap
import types
import warnings
from types import SimpleNamespace

import pytest

import modtree as mt
from modtree.core import module as module_globals
from modtree.utils.hooks import BackwardHook

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def source():
    """``torch/nn/parameter.py`` with modtree in torch's place."""
    text = inspect.getsource(torch.nn.parameter)
    text = text.replace("import torch\n", "import modtree as torch\n").replace(
        "from torch._C import", "from modtree._C import"
    )
    module = types.ModuleType("parameters_of_torch")
    exec(compile(text, "parameters_of_torch", "exec"), vars(module))
    return module


def test_parameters(source):
    data = mt.ones(2, 2)
    p = source.Parameter(data)
    assert type(p) is source.Parameter and p.requires_grad and p.is_leaf
    assert p.data_ptr() == data.data_ptr() and isinstance(p, source.Parameter)
    assert source.Parameter().numel() == 0 and not source.Parameter(data, False).requires_grad
    assert repr(p).startswith("Parameter containing:\nParameter([[1., 1.],")
    for result in (p + 1, p.clone(), p[0], p.data, mt.exp(p)):
        assert type(result) is mt.Tensor
    (p * 3).sum().backward()
    assert p.grad.tolist() == [[3.0, 3.0]] * 2


def test_parameters_of_a_class(source):
    class Custom(mt.Tensor):
        def some_custom_method(self):
            return "called"

    t = mt.Tensor._make_subclass(Custom, mt.ones(2), True)
    assert t.some_custom_method() == "called" and not isinstance(t, source.Parameter)
    p = source.Parameter(t)
    assert type(p) is Custom and isinstance(p, source.Parameter) and p._is_param
    m = mt.nn.Module()
    m.w = p
    assert list(m._parameters) == ["w"]


def test_copies(source):
    p = source.Parameter(mt.ones(2), requires_grad=False)
    memo: dict = {}
    twin = copy.deepcopy(p, memo)
    assert type(twin) is source.Parameter and not twin.requires_grad and memo[id(p)] is twin
    assert copy.deepcopy(p, memo) is twin
    again = pickle.loads(pickle.dumps(p))
    assert type(again) is mt.nn.Parameter and not again.requires_grad
    p.note = "kept"
    assert pickle.loads(pickle.dumps(p)).note == "kept"


def test_buffers(source):
    b = source.Buffer(mt.ones(2), persistent=False)
    assert type(b) is mt.Tensor and isinstance(b, source.Buffer) and not b.persistent


@pytest.mark.parametrize("name", ["UninitializedParameter", "UninitializedBuffer"])
def test_uninitialized(source, name):
    kind = getattr(source, name)
    t = kind()
    assert repr(t) == f"<{name}>" and tuple(t.size()) == (0,) and t.dtype is mt.float32
    assert source.is_lazy(t)
    for call in (
        lambda: t + 1, lambda: t.dim(), lambda: mt.exp(t), lambda: t.detach(), lambda: t[0],
    ):  # fmt: skip
        with pytest.raises(ValueError, match="Attempted to use an uninitialized parameter in"):
            call()
    with pytest.raises(RuntimeError, match="Can't access the shape"):
        _ = t.shape
    with pytest.raises(RuntimeError, match="Can't share memory"):
        t.share_memory_()
    t.materialize((2, 3))
    assert type(t) is kind.cls_to_become and tuple(t.shape) == (2, 3)


def test_the_metaclass(lib):
    assert type(lib.Tensor) is lib._C._TensorMeta and issubclass(lib._C._TensorMeta, type)


# -- the call of a module --------------------------------------------------------------------------

HOOKS = """register_forward_pre_hook register_forward_hook register_full_backward_hook
    register_full_backward_pre_hook""".split()


def with_call_of_torch(base):
    """A class whose ``_call_impl`` is torch's."""
    text = textwrap.dedent(inspect.getsource(torch.nn.Module._call_impl))
    names = {
        **{k: v for k, v in vars(module_globals).items() if k.startswith("_global_")},
        "torch": SimpleNamespace(
            Tensor=mt.Tensor, _C=mt._C, compiler=SimpleNamespace(is_compiling=lambda: False)
        ),
        "BackwardHook": BackwardHook,
        "_WrappedHook": mt.core.hooks.WrappedHook,
        "warnings": warnings,
    }
    exec(compile(text, "call_of_torch", "exec"), names)
    members = {"_call_impl": names["_call_impl"], "__call__": names["_call_impl"]}
    return type("Overrides", (base,), members)


def noted(module, log):
    """Hooks of each kind that note what they get, and change it."""
    tolist = lambda values: [None if v is None else v.tolist() for v in values]  # noqa: E731

    def pre(module, args):
        log.append(("pre", tolist(args)))
        return (args[0] * 2,)

    def post(module, args, output):
        log.append(("post", output.tolist()))
        return output + 1

    def backward(module, grad_input, grad_output):
        log.append(("backward", tolist(grad_input), tolist(grad_output)))
        return tuple(g * 2 for g in grad_input)

    def backward_pre(module, grad_output):
        log.append(("backward pre", tolist(grad_output)))
        return tuple(g * 5 for g in grad_output)

    for name, hook in zip(HOOKS, (pre, post, backward, backward_pre), strict=True):
        getattr(module, name)(hook)
    return module


def test_the_call_of_torch_on_our_modules():
    logs, gradients = [], []
    for cls in (mt.nn.Linear, with_call_of_torch(mt.nn.Linear)):
        mt.manual_seed(0)
        log: list = []
        layer = noted(cls(2, 3), log)
        x = mt.ones(1, 2, requires_grad=True)
        layer(x).sum().backward()
        logs.append(log)
        gradients.append([x.grad.tolist(), layer.weight.grad.tolist(), layer.bias.grad.tolist()])
    assert [entry[0] for entry in logs[0]] == ["pre", "post", "backward pre", "backward"]
    assert logs[0] == logs[1] and gradients[0] == gradients[1]


def test_legacy_hooks_through_the_call_of_torch():
    results = []
    for cls in (mt.nn.Linear, with_call_of_torch(mt.nn.Linear)):
        mt.manual_seed(0)
        log: list = []
        layer = cls(2, 3)
        layer.register_backward_hook(lambda m, gi, go, log=log: log.append(go[0].tolist()))
        with pytest.warns(FutureWarning, match="non-full backward hook"):
            layer(mt.ones(1, 2, requires_grad=True)).sum().backward()
        results.append(log)
    assert results[0] == results[1] == [[[1.0, 1.0, 1.0]]]


# -- BackwardHook on its own -----------------------------------------------------------------------


@pytest.fixture
def Called(impl):  # noqa: N802
    """A module whose call knows full backward hooks and nothing else."""
    hook_class = torch.utils.hooks.BackwardHook if impl.is_torch else BackwardHook

    class Called(impl.nn.Module):
        def __init__(self, forward, hooks=(), pre_hooks=()):
            super().__init__()
            self.function, self.hooks, self.pre_hooks = forward, hooks, pre_hooks

        def __call__(self, *args):
            hook = hook_class(self, self.hooks, self.pre_hooks)
            args = hook.setup_input_hook(args)
            return hook.setup_output_hook(self.function(*args))

    return Called


def test_backward_hook(impl, Called):  # noqa: N803
    log = []

    def hook(module, grad_input, grad_output):
        log.append((module, [None if g is None else g.tolist() for g in grad_input]))
        return tuple(None if g is None else g * 10 for g in grad_input)

    x = impl.lib.ones(2, requires_grad=True)
    m = Called(lambda a, n, b: (a * n, b), [hook])
    first, second = m(x, 3, impl.lib.ones(1))
    first.sum().backward()
    assert log == [(m, [[3.0, 3.0], None, [0.0]])] or log[0][1][:2] == [[3.0, 3.0], None]
    assert x.grad.tolist() == [30.0, 30.0] and second.tolist() == [1.0]


def test_backward_pre_hook(impl, Called):  # noqa: N803
    x = impl.lib.ones(2, requires_grad=True)
    Called(lambda a: a * 3, [], [lambda m, grads: (grads[0] * 7,)])(x).sum().backward()
    assert x.grad.tolist() == [21.0, 21.0]


def test_backward_hook_without_tensors(impl, Called):  # noqa: N803
    m = Called(lambda a: "text", [lambda *_: None])
    assert m(impl.lib.ones(1)) == "text"


def test_pre_hooks_need_not_be_given():
    hook = BackwardHook(mt.nn.Identity(), [])
    assert hook.setup_input_hook((1,)) == (1,) and hook.setup_output_hook(2) == 2
