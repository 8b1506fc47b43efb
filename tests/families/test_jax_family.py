# SPDX-License-Identifier: BSD-3-Clause
"""jax arrays as leaves: what differs from tensors that can change."""

from __future__ import annotations

import copy
import importlib
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest
from helpers.implementations import needs_torch, not_under_a_sanitizer
from helpers.support import raises

import modtree as mt
from modtree import nn

jax = pytest.importorskip("jax")
jnp = jax.numpy


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(jnp.ones((3, 2)))
        self.b = nn.Parameter(jnp.zeros(3), requires_grad=False)
        self.register_buffer("mean", jnp.arange(3.0))
        self.seen = nn.Buffer(jnp.zeros(()), persistent=False)

    def forward(self, x):
        return x @ self.w.T + self.b - self.mean


class Pair(nn.Module):
    """Two of them with one array of weights."""

    def __init__(self):
        super().__init__()
        self.first, self.second = Scale(), Scale()
        self.second.w = self.first.w

    def forward(self, x):
        return self.first(x) + self.second(x)


def is_tied(pair):
    return pair.first.w is pair.second.w


# -- what is a parameter ---------------------------------------------------------------------------


def test_registries_hold_arrays():
    m = Scale()
    assert [name for name, _ in m.named_parameters()] == ["w", "b"]
    assert [name for name, _ in m.named_buffers()] == ["mean", "seen"]
    assert list(m.state_dict()) == ["w", "b", "mean"]
    assert all(isinstance(t, jax.Array) for t in (m.w, m.b, m.mean, m.seen))
    assert isinstance(m.w, nn.Parameter) and isinstance(m.seen, nn.Buffer)
    assert m.w.requires_grad and not m.b.requires_grad


def test_parameter_marks_an_object_of_its_own():
    data = jnp.ones(3)
    p = nn.Parameter(data)
    assert p is not data and p.unsafe_buffer_pointer() == data.unsafe_buffer_pointer()
    assert not isinstance(data, nn.Parameter)
    m = nn.Module()
    m.p = p
    m.plain = data
    assert m.p is p and list(m._parameters) == ["p"] and m.plain is data


def test_bare_arrays_under_a_new_name_are_plain_attributes():
    m = nn.Module()
    m.cache = jnp.ones(2)
    assert not m._parameters and m.cache.shape == (2,)


def test_bare_arrays_take_the_place_of_a_parameter():
    m = Scale()
    m.w = m.w * 2
    m.b = m.b + 1
    assert list(m._parameters) == ["w", "b"]
    assert isinstance(m.w, nn.Parameter) and m.w.requires_grad and not m.b.requires_grad
    m.register_parameter("c", jnp.ones(2))
    m.register_parameter("d", None)
    m.d = jnp.ones(1)
    assert list(m._parameters) == ["w", "b", "c", "d"]


def test_an_array_that_takes_the_place_of_a_parameter_is_not_one_elsewhere():
    m, other, array = Scale(), nn.Module(), jnp.ones(2)
    m.w = array
    other.x = array
    assert not other._parameters and not vars(array).get("_is_param")
    m.register_parameter("again", nn.Parameter(jnp.zeros(2)))
    m.again = array
    assert m.again is m.w and m.w is not array
    m.b = array  # frozen, as what was there
    assert m.w.requires_grad and not m.b.requires_grad
    np.testing.assert_array_equal(m.w, array)


def test_bare_arrays_take_the_place_of_a_buffer():
    m = Scale()
    m.mean = m.mean + 1
    assert list(m._buffers) == ["mean", "seen"] and not isinstance(m.mean, nn.Parameter)


def test_other_values_do_not():
    m = Scale()
    for value in (np.ones(3), 1.0, mt.ones(3)):
        with raises(TypeError, "as parameter 'w' (torch.nn.Parameter or None expected)"):
            m.w = value
    m.array = np.ones(3)
    assert "array" not in m._parameters and "array" not in m._buffers


@pytest.mark.parametrize("transform", ["jit", "grad", "vmap"])
def test_tracers_take_the_place_of_arrays(transform):
    m = Scale()
    before = m.w, m.mean

    def run(w, mean):
        m.w, m.mean = w, mean
        try:
            assert isinstance(m.w, jax.core.Tracer) and list(m._parameters) == ["w", "b"]
            return m(jnp.ones((1, 2))).sum()
        finally:
            m.w, m.mean = before

    if transform == "vmap":
        result = jax.vmap(run)(jnp.stack([m.w] * 4), jnp.stack([m.mean] * 4))
        assert result.tolist() == [3.0] * 4
    else:
        function = {"jit": jax.jit, "grad": jax.grad}[transform]
        assert function(run)(m.w, m.mean).shape == (() if transform == "jit" else (3, 2))
    assert m.w is before[0] and m.mean is before[1]


def test_modules_are_made_while_a_function_is_traced():
    def make(key):
        m = nn.Module()
        m.w = nn.Parameter(jax.random.normal(key, (2,)))
        m.frozen = nn.Parameter(m.w * 2, requires_grad=False)
        assert list(m._parameters) == ["w", "frozen"]
        assert [p is m.w for p in m.parameters()] == [True, False]
        return dict(m.named_parameters())

    shapes = jax.eval_shape(make, jax.random.key(0))
    assert {name: s.shape for name, s in shapes.items()} == {"w": (2,), "frozen": (2,)}


def test_integers_do_not_require_gradients():
    with raises(RuntimeError, "can require gradients, got int32: pass requires_grad=False"):
        nn.Parameter(jnp.arange(3))
    m = nn.Module()
    m.p = nn.Parameter(jnp.arange(3), requires_grad=False)
    with raises(RuntimeError, "can require gradients, got int32"):
        m.requires_grad_()


# -- state dicts -----------------------------------------------------------------------------------

_SOURCES = {
    "numpy": lambda t: np.full(t.shape, 2.0),
    "modtree": lambda t: mt.full(tuple(t.shape), 2.0, dtype=mt.float64),
    "jax": lambda t: jnp.full(t.shape, 2, jnp.int32),
    "torch": lambda t: importlib.import_module("torch").full(tuple(t.shape), 2.0),
}


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("source", _SOURCES)
def test_loads_replace_entries_and_keep_ties(source, assign):
    m = Pair()
    old = m.first.w
    sd = {name: _SOURCES[source](t) for name, t in m.state_dict().items()}
    m.load_state_dict(sd, assign=assign)
    assert m.first.w is not old and old[0, 0] == 1 and is_tied(m)
    for tensor in m.state_dict().values():
        assert isinstance(tensor, jax.Array) and (tensor == 2).all()
        assert assign or tensor.dtype == jnp.float32
    assert m.first.w.requires_grad and not m.first.b.requires_grad
    assert isinstance(m.first.w, nn.Parameter)


def test_the_last_value_of_a_tie_counts_under_all_names():
    m = Pair()
    sd = m.state_dict()
    sd["first.w"], sd["second.w"] = jnp.full((3, 2), 5.0), jnp.full((3, 2), 6.0)
    m.load_state_dict(sd)
    assert is_tied(m) and (m.first.w == 6).all()


@pytest.mark.parametrize("key", ["first.w", "second.w"])
def test_one_name_of_a_tie_is_enough(key):
    m = Pair()
    m.load_state_dict({key: jnp.full((3, 2), 5.0)}, strict=False)
    assert is_tied(m) and (m.first.w == 5).all()


def test_ties_are_kept_across_modules_that_load_themselves():
    class Own(Scale):
        def _load_from_state_dict(self, *args):
            super()._load_from_state_dict(*args)
            assert (self.w == 7).all()

    m = Pair()
    m.second = Own()
    m.second.w = m.first.w
    m.load_state_dict({name: np.full(t.shape, 7.0) for name, t in m.state_dict().items()})
    assert is_tied(m) and (m.first.w == 7).all()


@not_under_a_sanitizer
def test_ties_are_kept_by_loads_that_take_turns(greenlet):
    class Own(Scale):
        def _load_from_state_dict(self, *args):
            greenlet.getcurrent().parent.switch()
            super()._load_from_state_dict(*args)

    def load(depth):
        if depth:  # another place of the stack
            return [*map(load, [depth - 1])]
        m = nn.Sequential(Own(), Own(), Own())
        m[1].w = m[2].w = m[0].w
        value = jnp.full((3, 2), 5.0)
        m.load_state_dict({f"{i}.w": value for i in range(3)}, strict=False)
        loaded.append(m)
        return None

    loaded = []
    running = [greenlet.greenlet(load) for _ in range(4)]
    for each, depth in zip(running, (0, 3, 1, 7), strict=True):
        each.switch(depth)
    while running := [each for each in running if not each.dead]:
        for each in running:
            each.switch()
    assert len(loaded) == 4
    assert all(m[0].w is m[1].w is m[2].w and (m[0].w == 5).all() for m in loaded)


def test_exchanged_arrays_do_not_chase_each_other():
    m = nn.Module()
    m.a, m.b = nn.Parameter(jnp.zeros(1)), nn.Parameter(jnp.ones(1))
    m.load_state_dict({"a": m.b, "b": m.a}, assign=True)
    assert (float(m.a[0]), float(m.b[0])) == (1.0, 0.0)


def test_a_load_that_fails_leaves_all_as_it_was():
    m = Pair()
    before = dict(m.named_parameters(remove_duplicate=False))
    sd = {**m.state_dict(), "second.b": jnp.ones(4)}
    with raises(RuntimeError, "size mismatch for second.b", "(4,)", "(3,)"):
        m.load_state_dict(sd)
    after = dict(m.named_parameters(remove_duplicate=False))
    assert all(after[name] is tensor for name, tensor in before.items())


def test_a_source_that_cannot_be_copied_is_named():
    m = Scale()
    family = mt.families.family_of(m.w)
    with raises(TypeError, "cannot make a jax array of 'list'"):
        family.filled(m.w, [1.0], False)


def test_state_dicts_hold_arrays_without_marks():
    m = Pair()
    sd = m.state_dict()
    assert sd["first.w"] is sd["second.w"] and sd["first.w"] is m.state_dict()["first.w"]
    assert not isinstance(sd["first.w"], nn.Parameter)
    assert m.state_dict(keep_vars=True)["first.w"] is m.first.w


# -- conversions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("convert", "dtype"),
    [
        (lambda m: m.half(), "float16"),
        (lambda m: m.bfloat16(), "bfloat16"),
        (lambda m: m.to(jnp.bfloat16), "bfloat16"),
        (lambda m: m.to("bfloat16"), "bfloat16"),
        (lambda m: m.to(dtype="float16"), "float16"),
        (lambda m: m.to("cpu", jnp.float16), "float16"),
        (lambda m: m.to(np.float16), "float16"),
        (lambda m: m.to(mt.float16), "float16"),
        (lambda m: m.to(jnp.ones(1, jnp.bfloat16)), "bfloat16"),
        (lambda m: m.type(jnp.float16), "float16"),
        (lambda m: m.half().float(), "float32"),
    ],
)
def test_conversions_keep_ties_and_marks(convert, dtype):
    m = Pair()
    assert convert(m) is m
    assert {str(t.dtype) for t in m.state_dict().values()} == {dtype}
    assert is_tied(m) and isinstance(m.first.w, nn.Parameter)
    assert m.first.w.requires_grad and not m.first.b.requires_grad


def test_double_is_for_jax_to_allow():
    with pytest.warns(UserWarning, match="jax_enable_x64"):
        Scale().double()
    with jax.enable_x64(True):
        assert Scale().double().w.dtype == jnp.float64


@pytest.mark.parametrize("place", ["cpu", "cpu:0", jax.devices("cpu")[0]])
def test_moving_to_where_an_array_is_changes_nothing(place):
    m = Scale()
    before = m.w
    assert m.to(place).w is before


def test_shardings_are_places():
    m = Pair()
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("x",))
    place = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    m.to(place)
    assert m.first.w.sharding == place and is_tied(m)
    m.load_state_dict({name: np.ones(t.shape) for name, t in m.state_dict().items()})
    assert m.first.w.sharding == place


def test_devices_that_there_are_not():
    for place in ("cpu:99", "tpu", "cuda"):
        with raises(RuntimeError, "jax has"):
            Scale().to(place)


def test_swapping_and_overwriting_do_not_concern_arrays():
    future = mt.__future__
    for switch in ("swap", "overwrite"):
        set_ = getattr(future, f"set_{switch}_module_params_on_conversion")
        set_(True)
        try:
            m = Pair().half()
            m.load_state_dict(m.state_dict())
        finally:
            set_(False)
        assert is_tied(m) and m.first.w.dtype == jnp.float16


# -- the meta device -------------------------------------------------------------------------------


def test_shapes_stand_for_arrays_on_meta():
    m = Pair().to("meta")
    assert isinstance(m.first.w, jax.ShapeDtypeStruct) and is_tied(m)
    assert isinstance(m.first.w, nn.Parameter) and not m.first.b.requires_grad
    assert [name for name, _ in m.named_parameters()] == ["first.w", "first.b", "second.b"]
    with raises(NotImplementedError, "to_empty()"):
        m.to("cpu")
    copied = pickle.loads(pickle.dumps(copy.deepcopy(m)))
    assert is_tied(copied) and not copied.first.b.requires_grad
    real = Pair()
    m.load_state_dict(real.state_dict(), assign=True)
    assert is_tied(m) and (m.first.w == 1).all() and not m.first.b.requires_grad
    assert isinstance(m.first.mean, jax.Array)


def test_to_empty_makes_arrays():
    m = Pair().to("meta").to_empty(device="cpu")
    assert isinstance(m.first.w, jax.Array) and m.first.w.shape == (3, 2) and is_tied(m)
    assert isinstance(Pair().to_empty(device="meta").first.w, jax.ShapeDtypeStruct)


# -- copies and files ------------------------------------------------------------------------------


@pytest.mark.parametrize("look", [False, True])
@pytest.mark.parametrize("make", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_keep_ties_and_marks(make, look):
    m = Pair()
    if look:
        vars(m.first)  # takes the module out of its compact form
    made = make(m)
    assert is_tied(made) and made.first.w is not m.first.w
    assert isinstance(made.first.w, nn.Parameter) and not made.first.b.requires_grad
    assert (made.first.mean == m.first.mean).all() and "seen" not in made.first.state_dict()


def test_copies_have_memory_of_their_own():
    m = Scale()
    made = copy.deepcopy(m)
    assert made.w.unsafe_buffer_pointer() != m.w.unsafe_buffer_pointer()


@pytest.mark.parametrize("form", ["safetensors", "modtree", "torch"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_files_are_read_by_other_libraries(tmp_path, form, dtype):
    m = Pair().to(dtype)
    path = str(tmp_path / f"m.{form}")
    if form == "safetensors":
        mt.save_file(m.state_dict(), path)
        found = mt.load_file(path)
    else:
        mt.save(m.state_dict(), path, format=form)
        found = mt.load(path)
    assert {type(t) for t in found.values()} == {mt.Tensor}
    other = Pair().half().to(dtype)
    other.load_state_dict(found)
    assert is_tied(other) and (other.first.w == m.first.w).all()
    if form == "torch":
        assert found["first.w"] is found["second.w"]


def test_pickled_parameters_are_read_without_running_code(tmp_path):
    path = str(tmp_path / "p.pt")
    mt.save({"p": Scale().b, "q": Scale().w}, path)
    found = mt.load(path)
    assert isinstance(found["p"], mt.nn.Parameter) and not found["p"].requires_grad
    assert found["q"].requires_grad and found["q"].tolist() == [[1.0, 1.0]] * 3


# -- calls -----------------------------------------------------------------------------------------


def test_forward_hooks_run():
    m, log = Scale(), []
    m.register_forward_pre_hook(lambda module, args: log.append("before"))
    m.register_forward_hook(lambda module, args, out: out * 2)
    assert m(jnp.ones((1, 2))).tolist() == [[4.0, 2.0, 0.0]]
    assert jax.jit(m)(jnp.ones((1, 2))).tolist() == [[4.0, 2.0, 0.0]]
    assert log == ["before", "before"]


@pytest.mark.parametrize("kind", ["full_backward_hook", "full_backward_pre_hook", "backward_hook"])
def test_backward_hooks_are_refused(kind):
    m = Scale()
    handle = getattr(m, f"register_{kind}")(lambda *args: None)
    with raises(RuntimeError, "Scale has backward hooks", "jax.custom_vjp"):
        m(jnp.ones((1, 2)))
    handle.remove()
    m(jnp.ones((1, 2)))


def test_gradients_are_answered_plainly():
    m = Scale()
    m.zero_grad()
    m.requires_grad_(False)
    assert not any(p.requires_grad for p in m.parameters())
    family = mt.families.family_of(m.w)
    assert family.grad(m.w) is None
    with raises(AttributeError, "modtree.jax.grad()"):
        family.set_grad(m.w, m.w)


def test_helpers_say_what_to_do_instead():
    m = Scale()
    for call, text in {
        lambda: nn.utils.clip_grad_norm_(m.parameters(), 1.0): "optax.clip_by_global_norm",
        lambda: nn.utils.clip_grad_value_(m.parameters(), 1.0): "optax.clip",
        lambda: nn.utils.parameters_to_vector(m.parameters()): "ravel_pytree",
        lambda: mt.optim.swa_utils.AveragedModel(m): "optax.incremental_update",
        lambda: mt.optim.SGD(m.parameters(), 0.1): "optax",
        lambda: nn.utils.parametrizations.weight_norm(m, "w"): "forward()",
        lambda: nn.utils.prune.l1_unstructured(m, "w", 1): "jax arrays",
    }.items():
        with raises(TypeError, "jax", text):
            call()
    with raises(NotImplementedError, "jax tensors cannot be moved to shared memory"):
        m.share_memory()


def test_states_of_models_are_stacked():
    models = [Scale() for _ in range(4)]
    parameters, buffers = mt.func.stack_module_state(models)
    assert parameters["w"].shape == (4, 3, 2) and buffers["mean"].shape == (4, 3)
    assert parameters["w"].requires_grad and not parameters["b"].requires_grad


# -- modules without shapes ------------------------------------------------------------------------


class LazyScale(nn.modules.lazy.LazyModuleMixin, nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.b = nn.UninitializedParameter(), nn.UninitializedBuffer()

    def initialize_parameters(self, x):
        if self.has_uninitialized_params():
            self.w.materialize((x.shape[-1],))
            self.b.materialize((2,))
            nn.init.ones_(self.w)

    def forward(self, x):
        return x * self.w


@pytest.mark.parametrize("call", [lambda m, x: m(x), lambda m, x: jax.jit(m)(x)])
def test_lazy_modules_take_the_library_of_their_input(call):
    m = LazyScale()
    assert call(m, jnp.ones((2, 3))).tolist() == [[1.0] * 3] * 2
    for tensor in (m.w, m.b):
        assert isinstance(tensor, jax.Array) and not isinstance(tensor, jax.core.Tracer)
    assert isinstance(m.w, nn.Parameter) and m.w.requires_grad


def test_lazy_modules_take_the_library_of_what_is_loaded():
    m = LazyScale()
    m.load_state_dict({"w": jnp.full(3, 2.0), "b": jnp.ones(2)})
    assert isinstance(m.w, jax.Array) and m.w.tolist() == [2.0] * 3
    assert m(jnp.ones(3)).tolist() == [2.0] * 3


# -- inspection ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "example", [jnp.ones((5, 2)), jax.ShapeDtypeStruct((5, 2), jnp.float32)], ids=["array", "shape"]
)
@pytest.mark.parametrize("place", [None, "meta"])
def test_summaries_find_shapes_without_values(example, place):
    class Keeping(Scale):
        def forward(self, x):
            self.last = super().forward(x)
            self.mean = self.mean + 1
            return self.last

    m = Keeping()
    m.to(place)
    before = m.w, m.mean
    text = str(mt.summary(m, example=example))
    assert "(5, 3)" in text and "67%" in text
    assert (m.w, m.mean) == before if place else m.w is before[0] and m.mean is before[1]
    assert not hasattr(m, "last")


def test_summaries_of_functions_that_ask_for_values():
    class Branching(Scale):
        def forward(self, x):
            return super().forward(x) if x.sum() > 0 else x

    assert "(5, 3)" in str(mt.summary(Branching(), example=jnp.ones((5, 2))))
    assert "(5, 2)" in str(mt.summary(Branching(), input_shape=(5, 2)))  # of zeros


def test_checks_and_comparisons():
    m = Pair()
    assert "tied (1)" in str(mt.check(m))
    assert not mt.check(Scale(), example=jnp.ones((1, 2)))
    other = copy.deepcopy(m)
    other.first.b = other.first.b + 1
    assert "first.b" in str(mt.compare(m, other)) and "mean" not in str(mt.compare(m, other))
    assert [path for path, _ in mt.find(m, "**").parameters()][:1] == ["first.w"]


# -- the rest --------------------------------------------------------------------------------------


def test_random_keys_are_buffers():
    m = nn.Module()
    m.register_buffer("key", jax.random.key(0))
    m.half()
    copied = copy.deepcopy(m)
    copied.load_state_dict({"key": jax.random.key(7)})
    assert jax.random.key_data(copied.key).tolist() == [0, 7] and list(m.state_dict()) == ["key"]
    with raises(RuntimeError, "can require gradients"):
        nn.Parameter(jax.random.key(0))


def test_containers_of_parameters():
    values = nn.ParameterList([jnp.ones(2), None, nn.Parameter(jnp.ones(3))])
    assert [name for name, _ in values.named_parameters()] == ["0", "2"]
    named = nn.ParameterDict({"a": jnp.ones(2)})
    assert list(named.parameters())[0].requires_grad


@needs_torch
def test_one_model_holds_arrays_of_several_libraries():
    import torch

    m = nn.Module()
    m.j, m.t = nn.Parameter(jnp.ones(2)), nn.Parameter(torch.ones(2))
    m.n = nn.Parameter(mt.ones(2))
    m.load_state_dict({"j": torch.zeros(2), "t": jnp.zeros(2), "n": jnp.zeros(2)})
    assert not np.asarray(m.j).any() and not m.t.detach().any() and not m.n.detach().any()
    assert isinstance(m.j, jax.Array) and isinstance(m.t, torch.Tensor)
    m.half()
    assert {str(p.dtype).rpartition(".")[2] for p in m.parameters()} == {"float16"}


def test_threads_load_and_convert_models_of_their_own():
    failed = []

    def work(number):
        try:
            for _ in range(20):
                m = Pair()
                m.load_state_dict({k: np.full(t.shape, number) for k, t in m.state_dict().items()})
                m.half()
                assert is_tied(m) and (m.first.w == number).all()
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_nothing_imports_jax_before_the_first_array():
    code = """
import sys
import modtree as mt
from modtree import nn
nn.Linear(2, 2).half().to("cpu")
assert "jax" not in sys.modules
import jax.numpy as jnp
assert "modtree.jax_arrays.family" not in sys.modules
nn.Module().x = jnp.ones(1)
assert "modtree.jax_arrays.family" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_family_is_imported_while_a_function_is_traced():
    code = """
import pickle
import jax, jax.numpy as jnp
from modtree import nn

def make(x):
    nn.Parameter(x)
    return x

jax.jit(make)(jnp.ones(2))
m = nn.Module()
m.w = nn.Parameter(jnp.ones(2), requires_grad=False)
assert not pickle.loads(pickle.dumps(m)).w.requires_grad
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_import_starts_no_backend():
    code = """
import jax
from jax._src import xla_bridge
import modtree.jax_arrays.family
assert not xla_bridge._backends
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_copy_of_a_marked_array_keeps_its_marks():
    parameter = nn.Parameter(jnp.ones(2), requires_grad=False)
    copied = copy.copy(parameter)
    assert copied is not parameter and copied._is_param and not copied.requires_grad
    assert copy.copy(nn.Buffer(jnp.ones(2), persistent=False)).persistent is False
    plain = copy.copy(jnp.ones(2))
    assert not hasattr(plain, "_is_param") and plain.tolist() == [1, 1]


def test_to_torch_converts_arrays(torch):
    parameter = nn.Parameter(jnp.ones(2), requires_grad=False)
    array = jnp.arange(3)
    given = mt.to_torch({"p": parameter, "tied": parameter, "list": [array, "text"]})
    assert isinstance(given["p"], torch.nn.Parameter) and not given["p"].requires_grad
    assert given["tied"] is given["p"]
    assert type(given["list"][0]) is torch.Tensor and given["list"][0].tolist() == [0, 1, 2]
    assert given["list"][1] == "text"
    assert mt.to_torch(jnp.ones(2, jnp.bfloat16)).dtype == torch.bfloat16
    with pytest.raises(TypeError, match=r"to_torch: x\['p'\]: jax's int4 cannot become"):
        mt.to_torch({"p": jnp.ones(2, "int4")})
