# SPDX-License-Identifier: BSD-3-Clause
"""``load_state_dict(assign=True)`` with tensors of another library than the module's: the module
keeps its library, and the memory is that of the state dict where both can use it.
"""

from __future__ import annotations

import numpy as np
import pytest
from helpers.needs import needs

import modtree as mt
from modtree import nn
from modtree.families import family_of

torch = pytest.importorskip("torch")

needs_ml_dtypes = needs("ml_dtypes")
LIBRARIES = {"modtree": mt, "torch": torch}


def module_of(library, device="cpu"):
    module = nn.Module()
    make = mt.nn.Parameter if library is mt else torch.nn.Parameter
    module.weight = make(library.zeros(2, 3, device=device))
    module.frozen = make(library.zeros(2, device=device), requires_grad=False)
    module.register_buffer("seen", library.zeros(2, device=device))
    module.child = nn.Module()
    module.child.register_buffer("count", library.zeros((), dtype=library.int64, device=device))
    return module


def state_of(library, as_parameters=False):
    state = {
        "weight": library.arange(6.0).reshape(2, 3),
        "frozen": library.ones(2),
        "seen": library.ones(2, dtype=library.float64),
        "child.count": library.tensor(3),
    }
    if as_parameters:
        make = mt.nn.Parameter if library is mt else torch.nn.Parameter
        for key, requires_grad in (("weight", False), ("frozen", True)):
            state[key] = make(state[key], requires_grad=requires_grad)
    return state


def assert_all_of(module, library):
    tensors = [*module.parameters(), *module.buffers()]
    assert len(tensors) == 4
    for tensor in tensors:
        assert isinstance(tensor, library.Tensor), type(tensor)
    for parameter in module.parameters():
        assert isinstance(parameter, library.nn.Parameter)
    assert list(module._buffers) == ["seen"]
    assert module.weight.requires_grad and not module.frozen.requires_grad


PAIRS = pytest.mark.parametrize(
    ("own", "other"), [("modtree", "torch"), ("torch", "modtree")], ids="modtree torch".split()
)


@PAIRS
@pytest.mark.parametrize("as_parameters", [False, True], ids=["tensors", "parameters"])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_the_module_keeps_its_library(own, other, as_parameters, device):
    own, other = LIBRARIES[own], LIBRARIES[other]
    module, state = module_of(own, device), state_of(other, as_parameters)
    assert str(module.load_state_dict(state, assign=True)) == "<All keys matched successfully>"
    assert_all_of(module, own)
    assert module.weight.tolist() == [[0, 1, 2], [3, 4, 5]] and module.child.count.item() == 3
    assert module.seen.dtype == own.float64  # that of the state dict
    result = module.weight.sum()
    result.backward()
    assert module.weight.grad.tolist() == [[1, 1, 1]] * 2


@PAIRS
def test_the_memory_is_shared(own, other):
    own, other = LIBRARIES[own], LIBRARIES[other]
    module, state = module_of(own), state_of(other)
    module.load_state_dict(state, assign=True)
    for key, value in state.items():
        value.fill_(7)
        assert set(np.unique(module.state_dict()[key].numpy())) == {7}, key


@PAIRS
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=needs_ml_dtypes) for n in ("bfloat16", "float8_e5m2")]
)
def test_dtypes_that_numpy_has_not(own, other, name):
    own, other = LIBRARIES[own], LIBRARIES[other]
    module, values = module_of(own), other.arange(6.0).reshape(2, 3).to(getattr(other, name))
    state = state_of(other) | {"weight": values}
    module.load_state_dict(state, assign=True)
    assert module.weight.dtype == getattr(own, name)
    assert module.weight.float().tolist() == [[0, 1, 2], [3, 4, 5]]


@PAIRS
def test_tensors_on_meta(own, other):
    own, other = LIBRARIES[own], LIBRARIES[other]
    state = {key: value.to("meta") for key, value in state_of(other).items()}
    module = module_of(own)
    module.load_state_dict(state, assign=True)
    assert_all_of(module, own)
    assert module.weight.is_meta and module.seen.dtype == own.float64


@PAIRS
def test_what_cannot_be_shared_is_copied(own, other):
    own, other = LIBRARIES[own], LIBRARIES[other]
    if other is mt:
        array = np.arange(6.0, dtype=np.float32).reshape(2, 3)
        array.flags.writeable = False
        value = mt._C.from_array(array)
    else:
        value = torch.complex(torch.arange(6.0), torch.arange(6.0)).reshape(2, 3).conj()
    module = module_of(own)
    module.load_state_dict(state_of(other) | {"weight": value}, assign=True)
    assert_all_of(module, own)
    assert np.array_equal(module.weight.detach().numpy(), np.asarray(value.resolve_conj()))


@PAIRS
def test_what_does_not_fit_is_an_error_that_names_its_key(own, other):
    own, other = LIBRARIES[own], LIBRARIES[other]
    module, state = module_of(own), state_of(other) | {"weight": other.ones(2, 4)}
    with pytest.raises(RuntimeError, match="size mismatch for weight"):
        module.load_state_dict(state, assign=True)
    integers = state_of(other) | {"weight": other.ones(2, 3, dtype=other.int64)}
    with pytest.raises(RuntimeError, match='the parameter named "weight"'):
        module.load_state_dict(integers, assign=True)


def test_a_sparse_tensor_is_an_error_that_names_its_key():
    state = state_of(torch) | {"weight": torch.eye(2, 3).to_sparse()}
    module = module_of(mt)
    with pytest.raises(RuntimeError, match='the parameter named "weight"'):
        module.load_state_dict(state, assign=True)


@PAIRS
def test_partial_and_dry_run(own, other):
    own, other = LIBRARIES[own], LIBRARIES[other]
    module, state = module_of(own), state_of(other)
    before = dict(module.named_parameters())
    report = module.load_state_dict(state, assign=True, dry_run=True)
    assert report.is_complete and dict(module.named_parameters()) == before
    state["more"] = other.ones(1)
    report = module.load_state_dict(state, assign=True, partial=True)
    assert list(report.skipped) == ["more"]
    assert_all_of(module, own)


@PAIRS
def test_swapped_contents(own, other, monkeypatch):
    own, other = LIBRARIES[own], LIBRARIES[other]
    module, state = module_of(own), state_of(other)
    weight = module.weight
    mt.__future__.set_swap_module_params_on_conversion(True)
    try:
        module.load_state_dict(state, assign=True)
    finally:
        mt.__future__.set_swap_module_params_on_conversion(False)
    assert module.weight is weight and weight.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert_all_of(module, own)


@PAIRS
def test_a_family_that_says_nothing_gets_what_there_is(own, other, monkeypatch):
    own, other = LIBRARIES[own], LIBRARIES[other]
    module, state = module_of(own), state_of(other)
    family = family_of(module.weight)
    monkeypatch.setattr(type(family), "converted", mt.families.TensorFamily.converted)
    module.load_state_dict(state, assign=True)
    assert isinstance(module.weight, other.nn.Parameter) and module.weight.requires_grad


@PAIRS
@pytest.mark.parametrize("ending", [pytest.param("safetensors", marks=needs("safetensors")), "pt"])
def test_files(own, other, ending, tmp_path):
    own, other = LIBRARIES[own], LIBRARIES[other]
    if ending == "safetensors":
        mt.save_file(state_of(other), tmp_path / "a.safetensors")
    else:
        mt.save(state_of(other), tmp_path / "a.pt", format="torch")
    module = module_of(own, "meta")
    module.load_state_dict(mt.load_file(tmp_path / f"a.{ending}"), assign=True)
    assert_all_of(module, own)
    (module.weight.sum() * 2).backward()
    with own.no_grad():
        module.weight.sub_(module.weight.grad)
    assert module.weight.tolist() == [[-2, -1, 0], [1, 2, 3]]


@pytest.mark.parametrize("raises", [ValueError, KeyboardInterrupt])
def test_a_conversion_that_fails(raises, monkeypatch):
    def fail(*arguments):
        raise raises("no")

    module = module_of(mt)
    monkeypatch.setattr(type(family_of(module.weight)), "converted", fail)
    expected = RuntimeError if raises is ValueError else raises
    with pytest.raises(expected, match="no"):
        module.load_state_dict(state_of(torch), assign=True)
    assert_all_of(module, mt)
