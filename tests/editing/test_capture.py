# SPDX-License-Identifier: BSD-3-Clause
"""``capture``: what is taken, for how long, and what is left behind."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import pickle
import threading
from collections import UserDict, deque, namedtuple
from types import MappingProxyType

import pytest
from helpers.edited_models import inputs, stacked
from helpers.implementations import needs_torch
from helpers.small_modules import array, linear

import modtree as mt
from modtree.editing.hooking import map_tensors


def hooks_of(model):
    return [
        (path, name, len(getattr(module, name)))
        for path, module in model.named_modules()
        for name in vars(module)
        if "hooks" in name and hasattr(getattr(module, name), "__len__") and getattr(module, name)
    ]


def test_outputs_by_path(impl):
    model, x = stacked(impl), inputs(impl)
    with mt.capture(model, "layers.*.{act,down}") as acts:
        y = model(x)
    assert list(acts) == [f"layers.{i}.{name}" for i in range(4) for name in ("act", "down")]
    expected = x
    for i, layer in enumerate(model.layers):
        act = layer.act(layer.up(expected))
        assert (array(acts[f"layers.{i}.act"]) == array(act)).all()
        assert not acts[f"layers.{i}.act"].requires_grad
        expected = layer(expected)
    assert (array(y) == array(model.head(expected))).all()
    assert hooks_of(model) == [] and len(acts) == 8 and acts.nbytes == 4 * (5 * 4 + 5 * 3) * 8
    assert repr(acts) == "Capture: 8 of 8 modules called, 8 calls, 1,120 bytes"


def test_hooks_are_on_the_selected_modules_alone(impl):
    model = stacked(impl)
    with mt.capture(model, "layers.1.act"):
        assert {path for path, _, _ in hooks_of(model)} == {"layers.1.act"}
    with mt.capture(model, "head", inputs=True, outputs=False):
        assert {name for _, name, _ in hooks_of(model)} == {
            "_forward_pre_hooks",
            "_forward_pre_hooks_with_kwargs",
        }
    assert hooks_of(model) == []


def test_all_calls_of_a_module_are_kept_or_the_last(impl):
    shared = linear(impl, 3, 3)
    model, x = impl.nn.Sequential(shared, impl.nn.Identity(), shared), inputs(impl)
    with mt.capture(model, "0", inputs=True) as acts:
        model(x)
        model(x * 2)
    calls = acts.calls("0")
    assert len(calls) == 4 and (array(calls[0].args[0]) == array(x)).all()
    assert (array(calls[1].args[0]) == array(calls[0].output)).all()
    assert (array(acts["0"]) == array(calls[3].output)).all() and calls[0].kwargs == {}
    with mt.capture(model, "0", keep="last", max_bytes=5 * 3 * 8) as acts:
        model(x)
    assert len(acts.calls("0")) == 1 and acts.nbytes == 5 * 3 * 8
    with pytest.raises(RuntimeError, match="capture holds 240 bytes .* more than max_bytes=200"):
        with mt.capture(model, "0", max_bytes=200):
            model(x)
    assert hooks_of(model) == []
    with pytest.raises(ValueError, match="keep: expected 'all' or 'last', got 'first'"):
        mt.capture(model, "0", keep="first")
    with pytest.raises(ValueError, match="nothing to take: one of inputs="):
        mt.capture(model, "0", outputs=False)


Pair = namedtuple("Pair", "left right")


def test_nested_outputs_keep_their_form(impl):
    class Nested(impl.nn.Module):
        def forward(self, x, *, scale):
            return {"pair": Pair(x * scale, [x, None]), "n": 3, "t": (x,)}

    model, x = impl.nn.Sequential(Nested()), inputs(impl).requires_grad_()
    with mt.capture(model, "0", inputs=True) as acts:
        model[0](x, scale=2)
    found = acts["0"]
    assert type(found) is dict and type(found["pair"]) is Pair and found["n"] == 3
    assert type(found["pair"].right) is list and found["pair"].right[1] is None
    assert (array(found["pair"].left) == array(x) * 2).all() and type(found["t"]) is tuple
    assert not found["t"][0].requires_grad and acts.calls("0")[0].kwargs == {"scale": 2}
    with mt.capture(model, "0", outputs=True, detach=False) as acts:
        output = model[0](x, scale=2)
    assert acts["0"]["pair"].left is output["pair"].left


class Named(namedtuple("Named", "left right")):
    """Made of one argument."""

    __slots__ = ()

    def __new__(cls, left):
        return super().__new__(cls, left, [left])


@pytest.mark.parametrize(
    "make",
    [
        Named,
        lambda x: MappingProxyType({"x": x}),
        lambda x: deque([x], maxlen=3),
        lambda x: UserDict(x=x),
        lambda x: Output(x),
        lambda x: x.max(0),
    ],
)
def test_outputs_of_many_kinds(impl, make):
    class Made(impl.nn.Module):
        def forward(self, x):
            return make(x * 1)

    model, x = impl.nn.Sequential(Made()), inputs(impl).requires_grad_()
    with mt.capture(model, "0", grads=True, inputs=True) as acts:
        output = model(x)
        tensors = []
        map_tensors(output, tensors.append)
        sum(tensor.sum() for tensor in tensors if tensor.requires_grad).backward()
    kind = dict if type(output) is MappingProxyType else type(output)
    assert type(acts["0"]) is type(acts.grads["0"]) is kind
    kept = []
    map_tensors(acts["0"], kept.append)
    assert len(kept) == len(tensors) and not any(tensor.requires_grad for tensor in kept)
    map_tensors(acts.grads["0"], lambda tensor: kept.remove(kept[0]))
    assert len(kept) < len(tensors)


def test_reduce_and_to(impl):
    model, x = stacked(impl), inputs(impl)
    seen = []
    with mt.capture(model, "head", to=impl.lib.float32, reduce=lambda t: seen.append(t) or 7) as a:
        model(x)
    assert a["head"] == 7 and str(seen[0].dtype).endswith("float32") and a.nbytes == 0


def test_gradients_of_outputs(impl):
    model, x = stacked(impl, 2), inputs(impl)
    with mt.capture(model, ["layers.*", "head"], grads=True) as acts:
        y = model(x)
        (y * y).sum().backward()
    assert (array(acts.grads["head"]) == 2 * array(y)).all()
    expected = 2 * array(y) * array(model.head.scale) @ array(model.head.weight)
    assert abs(array(acts.grads["layers.1"]) - expected).max() < 1e-9
    with mt.capture(model, "head", outputs=False, grads=True) as acts:
        y = model(x)
    y.sum().backward()  # behind the block
    assert acts["head"] is None


def test_gradients_count_and_go_with_their_calls(impl):
    model, x = stacked(impl, 1), inputs(impl)
    size = 5 * 2 * 8
    with mt.capture(model, "head", grads=True, keep="last", max_bytes=3 * size) as acts:
        for _ in range(9):
            model(x).sum().backward()
        assert acts.nbytes == acts.calls("head")[0].nbytes == 2 * size
        old, _ = model(x), model(x)
        old.sum().backward()  # of a call that is not kept
        assert acts.nbytes == size and acts.grads["head"] is None
    with pytest.raises(RuntimeError, match="160 bytes with grads of 'head', more than max_bytes=1"):
        with mt.capture(model, "head", grads=True, max_bytes=100):
            model(x).sum().backward()


def test_stop_after_ends_the_forward_and_the_block(impl):
    model, x = stacked(impl), inputs(impl)
    called, after = [], []
    model.layers[2].register_forward_pre_hook(lambda module, args: called.append(module))
    with mt.capture(model, "layers.*", stop_after="layers.1") as acts:
        model(x)
        after.append(1)
    assert list(acts) == ["layers.0", "layers.1"] and acts.is_stopped
    assert called == after == []
    assert (array(acts["layers.1"]) == array(model.layers[1](model.layers[0](x)))).all()
    model(x)
    assert called == [model.layers[2]]
    with pytest.raises(LookupError, match="nothing there matches 'layrs'"):
        with mt.capture(model, "layers.*", stop_after="layrs.1"):
            pass
    assert {path for path, _, _ in hooks_of(model)} == {"layers.2"}


@dataclasses.dataclass
class Output:
    value: object
    name: str = "out"


def test_gradients_are_nested_as_the_outputs(impl):
    class Nested(impl.nn.Module):
        def forward(self, x):
            return Pair(x * 2, {"list": [x + 1, None, "text"], "data": Output(x * 3)})

    model = impl.nn.Sequential(Nested())
    x = inputs(impl).requires_grad_()
    with mt.capture(model, "0", grads=True) as acts:
        y = model(x)
        (y.left.sum() + y.right["list"][0].sum() * 4).backward()
    grads = acts.grads["0"]
    assert type(grads) is Pair and (array(grads.left) == 1).all()
    first, *others = grads.right["list"]
    assert (array(first) == 4).all() and others == [None, None]
    assert type(grads.right["data"]) is Output and grads.right["data"].value is None


def test_hooks_are_gone_whatever_happens(impl):
    model, x = stacked(impl), inputs(impl)

    def fail(tensor):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), mt.capture(model, "**", reduce=fail):
        model(x)
    with pytest.raises(TypeError), mt.capture(model, "**", inputs=True, grads=True):
        model()
    with pytest.raises(KeyboardInterrupt), mt.capture(model, "**"):
        raise KeyboardInterrupt
    assert hooks_of(model) == []


def test_captures_nest_and_their_order_is_that_of_the_blocks(impl):
    model, x = stacked(impl), inputs(impl)
    order = []
    model.head.register_forward_hook(lambda *args: order.append("own"))
    with mt.capture(model, "head", reduce=lambda t: order.append("outer")):
        with mt.capture(model, "head", stop_after="head", reduce=lambda t: order.append("inner")):
            model(x)
    assert order == ["own", "outer", "inner"]


def test_a_capture_is_open_once_and_can_be_used_again(impl):
    model, x = stacked(impl), inputs(impl)
    acts = mt.capture(model, "head")
    with acts:
        model(x)
        with pytest.raises(RuntimeError, match="this capture is open already"):
            acts.__enter__()
    with acts:
        pass
    assert len(acts) == 0


def test_calls_of_other_threads_are_not_taken(impl):
    model, x = stacked(impl), inputs(impl)
    with mt.capture(model, "head", stop_after="head") as acts:
        done = []
        thread = threading.Thread(target=lambda: done.append(model(x)))
        thread.start()
        thread.join()
    assert len(acts) == 0 and len(done) == 1


def test_a_call_in_another_thread_that_outlasts_the_block(impl):
    model, x = stacked(impl), inputs(impl)
    inside, leave = threading.Event(), threading.Event()

    def wait(module, args, output):
        inside.set()
        assert leave.wait(30)

    model.head.register_forward_hook(wait)
    seen = []
    thread = threading.Thread(target=lambda: model(x))
    with mt.intervene(model, {"head": lambda *args: seen.append(args)}):
        thread.start()
        assert inside.wait(30)
    leave.set()
    thread.join()
    assert seen == []


def test_values_that_were_changed_in_place_are_refused(impl):
    class InPlace(impl.nn.Module):
        def forward(self, x):
            return x.mul_(2)

    model, x = impl.nn.Sequential(impl.nn.Identity(), InPlace()), inputs(impl)
    with mt.capture(model, "*", inputs=True) as acts:
        model(x)
    with pytest.raises(RuntimeError, match="outputs of '0' were changed in place after the call"):
        acts["0"]
    with pytest.raises(RuntimeError, match="inputs of '1' were changed in place"):
        acts.inputs["1"]
    acts["1"].add_(1)  # the caller may
    assert acts["1"] is acts.calls("1")[0].output
    with mt.capture(model, "0", reduce=lambda t: t.clone()) as acts:
        before = array(inputs(impl))
        model(inputs(impl))
    assert (array(acts["0"]) == before).all()


def test_gradients_are_those_that_came(impl):
    model, x = stacked(impl), inputs(impl)
    with mt.capture(model, "head", grads=True) as acts:
        y = model(x)
        y.register_hook(lambda grad: grad.mul_(2))
        (y * y).sum().backward()
    assert (array(acts.grads["head"]) == array(y.detach()) * 2).all()


def test_paths_that_were_not_called_or_not_selected(impl):
    model, x = stacked(impl), inputs(impl)
    with mt.capture(model, ["layers", "head"]) as acts:
        model(x)
    with pytest.raises(KeyError, match="'layers' was not called in the block"):
        acts["layers"]
    with pytest.raises(KeyError, match="'haed' is not captured; the modules that are: layers, hea"):
        acts["haed"]
    with pytest.raises(KeyError, match=r"inputs of 'head' were not captured: capture.*inputs=True"):
        print(acts.calls("head")[0].args)
    with pytest.raises(LookupError, match="nothing to capture:\n0 modules of Stacked: 'haed'"):
        mt.capture(model, "haed")


def test_a_copy_made_in_the_block_is_not_observed(impl):
    model, x = stacked(impl, 1), inputs(impl)
    with mt.capture(model, "**", inputs=True) as acts:
        twin = copy.deepcopy(model)
        twin(x)
    assert len(acts) == 0
    assert hooks_of(twin.layers[0]) == hooks_of(twin.head) == [] == hooks_of(model)


@pytest.mark.parametrize("kind", ["modtree", pytest.param("torch", marks=needs_torch)])
def test_a_pickle_made_in_the_block_is_not_observed(kind):
    lib = importlib.import_module(kind)
    net = lib.nn.Sequential(lib.nn.Linear(2, 2), lib.nn.ReLU())
    before, x = pickle.dumps(net), lib.ones(1, 2)
    with mt.capture(net, "**", inputs=True) as acts, mt.intervene(net, {"1": None}):
        data = pickle.dumps(net)
        assert b"editing" not in data and (kind == "modtree" or data == before)
        twin = pickle.loads(data)
        assert hooks_of(twin) == [] and "forward" not in vars(twin[1])
        assert (twin(x) >= 0).all()
    assert len(acts) == 0 and pickle.dumps(net) == before


def test_what_is_on_a_module_goes_with_its_last_block(impl):
    model, x = stacked(impl, 1), inputs(impl)
    outer, inner = mt.capture(model, "head"), mt.intervene(model, {"head": None})
    outer.__enter__()
    inner.__enter__()
    outer.__exit__(None, None, None)
    twin = copy.deepcopy(model)
    assert array(twin(x)).shape == (5, 2) and array(model(x)).shape == (5, 3)
    inner.__exit__(None, None, None)
    assert not {"forward", "__reduce_ex__"} & {*vars(model.head)}


class KeepsAll:
    """Of a class that copies its attributes itself."""

    def __deepcopy__(self, memo):
        twin = type(self).__new__(type(self))
        twin.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return twin


def test_a_class_that_copies_its_attributes_itself(impl):
    class Twice(KeepsAll, impl.nn.Module):
        def forward(self, x):
            return x * 2

    model, x = impl.nn.Sequential(Twice()), inputs(impl)
    with mt.capture(model, "0") as acts, mt.intervene(model, {"0": None}):
        twin = copy.deepcopy(model)
        assert (array(twin(x)) == array(x) * 2).all() and len(acts) == 0
    assert (array(twin(x)) == array(x) * 2).all()


def test_a_shallow_copy_shares_the_hooks_of_the_block(impl):
    model, x = stacked(impl, 1), inputs(impl)
    with mt.capture(model, "head") as acts:
        twin = copy.copy(model.head)
        twin(x)
    assert len(acts) == 1 and "__reduce_ex__" not in vars(twin)
    assert hooks_of(twin) == [] and twin._forward_hooks is model.head._forward_hooks
