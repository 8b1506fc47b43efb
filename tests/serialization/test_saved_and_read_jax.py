# SPDX-License-Identifier: BSD-3-Clause
"""Whatever save takes of jax, load gives back, or save names the entry that it refuses."""

from __future__ import annotations

import copy
import io
import pickle
import sys

import numpy as np
import pytest

import modtree as mt
from modtree import nn
from modtree.checkpoints import convert, open_checkpoint, verify

jax = pytest.importorskip("jax")
jnp = jax.numpy

#: Dtypes that tensors of modtree do not have.
NARROW = [
    name
    for name in (
        *("int2", "int4", "uint2", "uint4", "float4_e2m1fn"),
        *("float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz"),
    )
    if hasattr(jnp, name)
]
ALGORITHMS = ["threefry2x32", "rbg", "unsafe_rbg"]


def through_file(value, **how):
    file = io.BytesIO()
    mt.save({"a": [value]}, file)
    file.seek(0)
    return mt.load(file, **how)["a"][0]


@pytest.mark.parametrize("weights_only", [None, False])
@pytest.mark.parametrize("dtype", NARROW)
def test_arrays_of_dtypes_that_tensors_do_not_have(dtype, weights_only):
    given = jnp.asarray([[0, 1], [1, 0]], getattr(jnp, dtype))
    for value in (given, np.asarray(given), np.asarray(given)[0, 1]):
        back = through_file(value, weights_only=weights_only)
        assert type(back) is type(value) and back.dtype == value.dtype
        assert back.tolist() == value.tolist()


@pytest.mark.parametrize("weights_only", [None, False])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_keys_of_random_numbers(algorithm, weights_only):
    one = jax.random.key(3, impl=algorithm)
    for keys in (one, jax.random.split(one, 3)):
        back = through_file(keys, weights_only=weights_only)
        assert back.dtype == keys.dtype and back.shape == keys.shape
        assert jnp.array_equal(jax.random.key_data(back), jax.random.key_data(keys))
    assert jax.random.normal(through_file(one)) == jax.random.normal(one)


def test_keys_as_buffers():
    net = nn.Module()
    net.register_buffer("rng", jax.random.key(5))
    other = nn.Module()
    other.register_buffer("rng", jax.random.key(0))
    other.load_state_dict(through_file(net.state_dict()))
    for made in (other, pickle.loads(pickle.dumps(net)), copy.deepcopy(net)):
        assert list(dict(made.named_buffers())) == ["rng"]
        assert jax.random.key_data(made.rng).tolist() == [0, 5]


def test_shapes_without_values_come_as_tensors_on_meta():
    shape = jax.ShapeDtypeStruct((2, 3), jnp.bfloat16)
    back = through_file(shape)
    assert back.is_meta and back.shape == (2, 3) and back.dtype == mt.bfloat16
    assert through_file(shape, weights_only=False) == shape
    net = nn.Module()
    net.w = nn.Parameter(jnp.ones(3))
    (back,) = through_file(list(net.to("meta").state_dict().values()))
    assert back.is_meta and back.shape == (3,)


def tracer():
    found = []
    jax.make_jaxpr(lambda x: found.append(x) or x)(jnp.ones(3))
    return found[0]


def deleted():
    array = jnp.ones(3)
    array.delete()
    return array


REFUSED = {
    "a tracer": tracer,
    "a deleted array": deleted,
    "float0": lambda: np.zeros(3, jax.dtypes.float0),
    "a gradient of integers": lambda: jax.grad(lambda x: 1.0, allow_int=True)(3),
    "a reference": lambda: jax.new_ref(jnp.ones(3)),
}
WAYS = {
    "save": mt.save,
    "save of torch's form": lambda obj, path: mt.save(obj, path, format="torch"),
    "save_file": mt.save_file,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", REFUSED)
def test_the_entry_that_is_refused_is_named(case, way, tmp_path):
    if case == "a reference" and not hasattr(jax, "new_ref"):
        pytest.skip("this jax has no references")
    with pytest.raises(Exception, match=r"obj\['an entry'\]|tensor 'an entry'"):
        WAYS[way]({"w": jnp.ones(2), "an entry": REFUSED[case]()}, tmp_path / "file")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("way", ["save_file", "save of torch's form"])
@pytest.mark.parametrize("case", ["a key", *NARROW])
def test_formats_without_a_place_for_it_name_the_entry(case, way, tmp_path):
    value = jax.random.key(0) if case == "a key" else jnp.ones(2, getattr(jnp, case))
    with pytest.raises((TypeError, mt.CheckpointError), match="an entry"):
        WAYS[way]({"an entry": value}, tmp_path / "file")


def test_such_a_file_is_shown_and_converted(tmp_path):
    path = tmp_path / "file.pt"
    mt.save({"w": jnp.ones(2), "rng": jax.random.key(0), "q": jnp.ones(3, jnp.int4)}, path)
    with open_checkpoint(path) as checkpoint:
        assert list(checkpoint.entries) == ["w"]
        texts = [str(value) for value in checkpoint.raw_values.values()]
    assert texts == ["‹keys of threefry2x32 []›", "‹array of int4 [3]›"]
    assert verify(path) == []
    convert(path, tmp_path / "out.safetensors")
    assert list(mt.load_file(tmp_path / "out.safetensors")) == ["w"]


def test_a_file_of_jax_where_that_is_not_installed(tmp_path, monkeypatch):
    mt.save({"rng": jax.random.key(0)}, tmp_path / "file.pt")
    monkeypatch.setitem(sys.modules, "modtree.jax_arrays.family", None)
    with pytest.raises(pickle.UnpicklingError, match="arrays of jax, which is not installed"):
        mt.load(tmp_path / "file.pt")


@pytest.mark.parametrize(
    "arguments", [("no such", np.zeros(2, np.uint32)), ("rbg", np.zeros(3, np.float32))]
)
def test_keys_that_there_are_not(arguments):
    from modtree.jax_arrays import family

    class Key:
        def __reduce__(self):
            return family._rebuild_key, (*arguments, {})

    file = io.BytesIO(pickle.dumps(Key()))
    with pytest.raises(pickle.UnpicklingError, match="damaged: an array of jax"):
        mt.load(file)
