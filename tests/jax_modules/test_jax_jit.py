# SPDX-License-Identifier: BSD-3-Clause
"""modtree.jax.jit: what is traced, what is written back, and what is refused."""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from typing import Any

import pytest

pytest.importorskip("jax")

import jax
import jax.numpy as jnp
import numpy as np
from jax_nets import Counting, Layer, Net, assert_untouched, batch, loss, snapshot

import modtree.jax as mj
from modtree import nn


def counted(function: Any, **options: Any) -> tuple[Any, list[Any]]:
    """A jitted function, and a list that grows by one item for each trace."""
    traces: list[Any] = []

    def call(*args: Any, **kwargs: Any) -> Any:
        traces.append(1)
        return function(*args, **kwargs)

    return mj.jit(call, **options), traces


def test_result_and_buffers_are_those_of_the_module() -> None:
    model, x = Net(), batch()
    other = copy.deepcopy(model)
    call = mj.jit(lambda m, x: m(x))
    for _ in range(3):
        np.testing.assert_allclose(call(model, x), other(x), rtol=1e-6)
        np.testing.assert_allclose(model.norm.mean, other.norm.mean, rtol=1e-6)
        assert int(model.norm.count) == int(other.norm.count)
    assert isinstance(model.norm.mean, jax.Array)
    assert not isinstance(model.norm.mean, jax.core.Tracer)


def test_parameters_stay_the_very_arrays_where_nothing_changed_them() -> None:
    model = Net()
    before = dict(model.named_parameters())
    mj.jit(model)(batch())
    assert all(p is before[name] for name, p in model.named_parameters())


def test_one_trace_for_one_structure() -> None:
    call, traces = counted(lambda m, x: m(x))
    for model in (Net(), Net()):
        call(model, batch())
        call(model, batch())
    assert len(traces) == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda m: m.eval(), "'training': True became False"),
        (lambda m: setattr(m.layers[0], "size", 4), "'layers.0.size': 3 became 4"),
        (lambda m: setattr(m, "fresh", 1), "'fresh': a new attribute"),
        (lambda m: m.layers.append(Layer(3, 7)), "'layers.2': a new module (Layer)"),
        (lambda m: m.layers.pop(1), "'layers.1': the module is gone"),
        (lambda m: setattr(m, "norm", nn.Identity()), "'norm': Counting became Identity"),
        (lambda m: setattr(m.norm, "mean", None), "'norm.mean': became None"),
        (
            lambda m: setattr(m.layers[1], "w", m.layers[0].w),
            "arrays that several names share: layers.1.w",
        ),
        (
            lambda m: m.layers[0].w.__setattr__("requires_grad", False),
            "requires_grad changed: layers.0.w",
        ),
        (
            lambda m: setattr(m.layers[1], "b", nn.Parameter(jnp.zeros((1, 3)))),
            "'layers.1.b': float32[3] became float32[1,3]",
        ),
    ],
)
def test_change_retraces_and_says_why(change: Any, reason: str) -> None:
    reasons: list[str] = []
    call, traces = counted(lambda m, x: m.layers[0](x), explain=reasons.append)
    model, x = Net(), batch()
    call(model, x)
    change(model)
    call(model, x)
    call(model, x)
    assert len(traces) == 2
    (text,) = reasons
    assert reason in text


def test_explain_names_other_arguments_and_stderr_takes_it(capsys: Any) -> None:
    call = mj.jit(lambda m, x: m(x["a"]), explain=True)
    model = Layer()
    call(model, {"a": batch(2)})
    call(model, {"a": batch(5)})
    assert "['a']: float32[2,3] became float32[5,3]" in capsys.readouterr().err


def test_going_back_to_a_known_structure_does_not_retrace() -> None:
    call, traces = counted(lambda m, x: m(x))
    model = Net()
    for _ in range(3):
        call(model.train(), batch())
        call(model.eval(), batch())
    assert len(traces) == 2


def test_plain_containers_and_objects() -> None:
    call, traces = counted(lambda m, x: x * m.scales[0])
    model = Layer()
    model.scales = [2.0, "x"]
    assert float(call(model, 1.0)) == 2
    model.scales[0] = 3.0
    assert float(call(model, 1.0)) == 3
    model.scales = [3.0, "x"]
    call(model, 1.0)
    assert len(traces) == 2


def test_modules_at_any_depth_of_the_arguments() -> None:
    one, two = Net(), Net(1)

    def call(pair: Any, *, more: Any) -> Any:
        return pair["a"][0](more[1]) + pair["b"](more[1]), (pair["a"][1],)

    jitted = mj.jit(call)
    x = batch()
    result, (five,) = jitted({"a": (one, 5), "b": two}, more=[None, x])
    assert int(one.norm.count) == int(two.norm.count) == 1 and int(five) == 5
    assert result.shape == x.shape


def test_the_same_module_twice_and_ties_between_modules() -> None:
    model, other = Net(), Layer()
    other.w = model.layers[0].w
    seen = []

    def call(a: Any, b: Any, c: Any, x: Any) -> Any:
        seen.append((a is b, c.w is a.layers[0].w))
        c.w = c.w + 1
        return a(x)

    old = other.w
    mj.jit(call)(model, model, other, batch())
    assert seen == [(True, True)]
    assert model.layers[0].w is old and other.w is not old


def test_assignment_to_parameters_and_ties_are_written_back() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = Layer()
            self.b = Layer()
            self.b.w = self.a.w

        def forward(self) -> None:
            self.a.w = self.b.w = self.a.w + 1.0

    model = Tied()
    before = np.asarray(model.a.w)
    mj.jit(model)()
    assert model.a.w is model.b.w
    np.testing.assert_allclose(model.a.w, before + 1)
    mj.jit(model)()
    np.testing.assert_allclose(model.b.w, before + 2, rtol=1e-6)


def test_marks_of_parameters_stay() -> None:
    model = Net()
    model.layers[0].requires_grad_(False)

    def call(m: Any) -> None:
        for layer in m.layers:
            layer.w = layer.w * 2

    mj.jit(call)(model)
    assert [p.requires_grad for p in (model.layers[0].w, model.layers[1].w)] == [False, True]
    other = nn.Module()
    other.w = model.layers[1].w
    assert "w" in other._parameters


def test_none_and_arrays_take_turns() -> None:
    class Lazy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("last", None)

        def forward(self, x: Any) -> Any:
            before, self.last = self.last, x
            return x if before is None else x + before

    model = Lazy()
    call = mj.jit(model)
    assert float(call(1.0)) == 1 and float(call(2.0)) == 3 and float(call(3.0)) == 5
    assert float(model.last) == 3

    def clear(m: Any) -> None:
        m.last = None

    mj.jit(clear)(model)
    assert model.last is None


def test_modules_in_results_are_the_very_ones() -> None:
    model = Net()
    result = mj.jit(lambda m, x: {"m": m, "first": [m.layers[0]], "y": m(x)})(model, batch())
    assert result["m"] is model and result["first"][0] is model.layers[0]
    assert result["y"].shape == (4, 3)


def test_new_modules_in_results() -> None:
    make = mj.jit(lambda: Net())
    one, other = make(), make()
    assert type(one) is Net and one is not other and one.layers[0] is not other.layers[0]
    assert one.layers[0].w.requires_grad and isinstance(one.norm.mean, jax.Array)
    np.testing.assert_array_equal(one.layers[0].w, Net().layers[0].w)
    assert one.state_dict().keys() == Net().state_dict().keys()

    model = Net()
    wrapped = mj.jit(lambda m: nn.Sequential(m.layers[0], Layer()))(model)
    assert wrapped[0] is model.layers[0] and wrapped[1] is not model.layers[1]


def test_module_made_in_a_trace_can_be_used_there() -> None:
    def call(x: Any) -> Any:
        return mj.value_and_grad(loss)(Net(), x)

    value, gradients = mj.jit(call)(batch())
    np.testing.assert_allclose(value, loss(Net(), batch()), rtol=1e-6)
    assert list(gradients) == ["layers.0.w", "layers.0.b", "layers.1.w", "layers.1.b"]


class Escaping(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Layer()
        self.seen: Any = None
        self.cache: dict[str, Any] = {"old": [1]}
        self.hidden = [Counting()]

    def forward(self, x: Any, where: str) -> Any:
        self.w = self.w + 1
        if where == "attribute":
            self.inner.last = x
        elif where == "container":
            self.cache["old"].append((x,))
        elif where == "hidden":
            return self.hidden[0](x)
        elif where == "buffer":
            self.inner.register_buffer("late", x)
        elif where == "parameter":
            self.inner.late = nn.Parameter(x)
        elif where == "module":
            self.inner.late = Layer()
        elif where == "exchange":
            self.inner = Layer()
        elif where == "removed":
            del self.inner.b
        elif where == "mode":
            self.inner.eval()
        elif where == "counter":
            self.size += 1
        elif where == "deleted":
            del self.inner.size
        elif where == "hook":
            self.inner.register_forward_hook(lambda *_: None)
        elif where == "error":
            self.inner.new = x
            raise KeyError("own")
        return x


@pytest.mark.parametrize(
    ("where", "error", "text"),
    [
        ("attribute", jax.errors.UnexpectedTracerError, "inner.last: a tracer was stored"),
        ("container", jax.errors.UnexpectedTracerError, "cache: a tracer was stored"),
        ("hidden", jax.errors.UnexpectedTracerError, "hidden: a tracer was stored"),
        ("buffer", RuntimeError, "inner.late: a traced function cannot add buffers"),
        ("parameter", RuntimeError, "inner.late: a traced function cannot add parameters"),
        ("module", RuntimeError, "inner.late: a traced function cannot add modules"),
        ("exchange", RuntimeError, "inner: another module was put here"),
        ("removed", RuntimeError, "inner.b: the parameter was removed"),
        ("mode", RuntimeError, "inner.training: the mode was changed from True to False"),
        ("counter", RuntimeError, "size: the attribute was changed from 3 to 4"),
        ("deleted", RuntimeError, "inner.size: the attribute was deleted"),
        ("hook", RuntimeError, "inner.hooks: hooks were changed"),
        ("error", KeyError, "own"),
    ],
)
def test_what_cannot_leave_a_trace_is_an_error_and_all_is_restored(
    where: str, error: Any, text: str
) -> None:
    model = Escaping()
    before = snapshot(model)
    hidden = snapshot(model.hidden[0])
    keys = {path: dict(vars(module)) for path, module in model.named_modules()}
    inner = model.inner
    call = mj.jit(model, static_argnums=(1,))
    for _ in range(2):
        with pytest.raises(error, match=text):
            call(batch(), where)
    assert_untouched(model, before)
    assert_untouched(model.hidden[0], hidden)
    assert model.inner is inner and inner.training and not inner._forward_hooks
    assert model.cache == {"old": [1]} and model.size == 3
    for path, module in model.named_modules():
        assert vars(module).keys() == keys[path].keys()
    call(batch(), "nothing")
    assert model.w is not before["w"]


def test_error_names_the_argument_where_there_are_several_modules() -> None:
    def call(models: Any, x: Any) -> None:
        models["b"].last = x

    with pytest.raises(jax.errors.UnexpectedTracerError, match=r"last \(argument 0\['b'\]\)"):
        mj.jit(call)({"a": Layer(), "b": Layer()}, batch())


def test_leaves_of_other_libraries_are_named() -> None:
    model = nn.Sequential(nn.Linear(3, 3))
    with pytest.raises(TypeError, match=r"0\.weight: expected a jax array, got a modtree"):
        mj.jit(lambda m, x: x)(model, batch())
    meta = mj.eval_shape(lambda: Net())
    with pytest.raises(TypeError, match=r"layers\.0\.w: expected a jax array, got a shape without"):
        mj.jit(lambda m, x: x)(meta, batch())


def test_static_arguments() -> None:
    call, traces = counted(
        lambda m, n, x, *, kind: m(x) * n if kind == "a" else x,
        static_argnums=1,
        static_argnames="kind",
    )
    model, x = Layer(), batch()
    for n, kind in ((2, "a"), (3, "a"), (2, "b"), (2, "a")):
        result = call(model, n, x, kind=kind)
        np.testing.assert_allclose(result, model(x) * n if kind == "a" else x, rtol=1e-6)
    assert len(traces) == 3


def test_static_arguments_that_are_equal_but_not_the_same() -> None:
    call = mj.jit(lambda m, n: jnp.float32(1) / n if isinstance(n, float) else n, static_argnums=1)
    model = Layer()
    results = [call(model, n) for n in (1, True, 1.0, 0.0, -0.0)]
    assert [str(result) for result in results] == ["1", "True", "1.0", "inf", "-inf"]


@pytest.mark.parametrize("donate", [True, "layers.0.*", ["**.w", "norm.count"]])
def test_donated_leaves_are_written_back(donate: Any) -> None:
    model, x = Net(), batch()
    other = copy.deepcopy(model)
    call = mj.jit(lambda m, x: m(x), donate=donate)
    for _ in range(3):
        np.testing.assert_allclose(call(model, x), other(x), rtol=1e-6)
    for name, value in snapshot(other).items():
        np.testing.assert_allclose(snapshot(model)[name], value, rtol=1e-6)
    assert all(p.requires_grad for p in model.parameters())


def test_donated_arguments() -> None:
    call = mj.jit(lambda m, a, b: (a + 1, b + m.w), donate_argnums=(1,))
    a, b = jnp.ones(3), jnp.ones((3, 3))
    call(Layer(), a, b)
    assert not b.is_deleted()
    assert a.is_deleted() or jax.default_backend() == "cpu"


def test_methods_and_decorators() -> None:
    class Stepping(Net):
        @mj.jit
        def step(self, x: Any) -> Any:
            return self(x).sum()

    model, x = Stepping(), batch()
    model.step(x)
    assert int(model.norm.count) == 1
    mj.jit(model.forward)(x)
    assert int(model.norm.count) == 2

    @mj.jit(static_argnames="n")
    def call(m: Any, n: int = 1) -> Any:
        """Calls."""
        return m(batch()) * n

    assert call.__doc__ == "Calls." and call(model, n=2).shape == (4, 3)


def test_nested_jits_and_jit_of_jax_around() -> None:
    inner = mj.jit(lambda m, x: m(x))
    outer = mj.jit(lambda m, x: inner(m, inner(m, x)))
    model, other, x = Net(), Net(), batch()
    np.testing.assert_allclose(outer(model, x), other(other(x)), rtol=1e-5)
    assert int(model.norm.count) == 2
    np.testing.assert_allclose(model.norm.mean, other.norm.mean, rtol=1e-5)

    @jax.jit
    def plain(x: Any) -> Any:
        return inner(model.eval(), x)

    np.testing.assert_allclose(plain(x), model(x), rtol=1e-6)


def test_exception_in_a_nested_trace_restores_all_levels() -> None:
    model = Net()
    before = snapshot(model)

    def inner(m: Any, x: Any) -> Any:
        m(x)
        raise ValueError("inner")

    def outer(m: Any, x: Any) -> Any:
        m(x)
        try:
            mj.jit(inner)(m, x)
        except ValueError:
            return m(x)

    with pytest.raises(ValueError, match="inner"):
        mj.jit(lambda m, x: (m(x), mj.grad(inner)(m, x)))(model, batch())
    assert_untouched(model, before)
    mj.jit(outer)(model, batch())
    assert int(model.norm.count) == 2


def test_threads_trace_one_model() -> None:
    model, x = Net(3), batch()
    expected = Net(3).eval()(x)
    model.eval()
    calls = [mj.jit(lambda m, x, i=i: m(x) + 0 * i) for i in range(4)]
    errors: list[BaseException] = []
    barrier = threading.Barrier(8)

    def work(i: int) -> None:
        try:
            barrier.wait()
            for _ in range(5):
                np.testing.assert_allclose(calls[i % 4](model, x), expected, rtol=1e-5)
                mj.grad(loss)(model, x)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert not any(isinstance(p, jax.core.Tracer) for p in snapshot(model).values())


def test_a_module_that_another_thread_traces_is_refused_outside_of_jit() -> None:
    model, x = Net(), batch()
    traces, called = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    def call() -> None:
        traces.wait(30)
        try:
            model(x)
        except BaseException as error:
            failures.append(error)
        called.set()

    def slow(model: Any, x: Any) -> Any:
        traces.set()
        called.wait(30)
        return model(x)

    thread = threading.Thread(target=call)
    thread.start()
    mj.jit(slow)(model, x)
    thread.join()
    assert [type(error) for error in failures] == [jax.errors.UnexpectedTracerError]
    model(x)


def test_threads_write_back_all_or_none() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("a", jnp.zeros(()))
            self.register_buffer("b", jnp.zeros(()))

        def forward(self) -> Any:
            self.a = self.a + 1
            self.b = self.b + 1
            return self.a - self.b

    model = Two()
    call = mj.jit(model)
    differences: list[float] = []

    def work() -> None:
        for _ in range(50):
            differences.append(float(call()))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert differences == [0.0] * 200 and float(model.a) == float(model.b)


def test_jitted_function_does_not_keep_modules_alive() -> None:
    call = mj.jit(lambda m, x: m(x))
    model: Any = Net()
    model.parent = [model]
    model.act = model.forward
    call(model, batch())
    dies = weakref.ref(model)
    del model
    gc.collect()
    assert dies() is None
    call(Net(), batch())


def test_exchange_of_the_entry_while_the_call_runs_is_an_error() -> None:
    model = Counting()
    before = snapshot(model)

    def call(m: Any, x: Any) -> Any:
        jax.debug.callback(lambda: None)
        return m(x)

    jitted = mj.jit(call)
    jitted(model, batch())
    assert int(model.count) == 1 and before["count"] is not model.count
