# SPDX-License-Identifier: BSD-3-Clause
"""Copies of torch leaves that load_state_dict makes in batches: they give what single copies
give.
"""

from __future__ import annotations

import random
import warnings

import pytest

torch = pytest.importorskip("torch")

import modtree  # noqa: E402
from modtree.families import family_of  # noqa: E402

# modtree with torch leaves, and torch.
MODULES = {"modtree": modtree.nn.Module, "torch": torch.nn.Module}


@pytest.fixture(params=sorted(MODULES))
def module_class(request):
    return MODULES[request.param]


def net(module_class, tensors):
    module = module_class()
    for i, tensor in enumerate(tensors):
        if isinstance(tensor, torch.nn.Parameter):
            module.register_parameter(f"p{i}", tensor)
        else:
            module.register_buffer(f"p{i}", tensor)
    return module


def test_batches_are_used(monkeypatch):
    sizes = []
    copy_all = torch._foreach_copy_

    def spy(tensors, sources):
        sizes.append(len(tensors))
        copy_all(tensors, sources)

    monkeypatch.setattr(torch, "_foreach_copy_", spy)
    module = net(modtree.nn.Module, [torch.nn.Parameter(torch.zeros(2)) for _ in range(300)])
    module.load_state_dict({name: torch.ones(2) for name in module.state_dict()})
    assert sizes == [128, 128, 44]
    assert all(bool((p == 1).all()) for p in module.parameters())


@pytest.mark.parametrize("seed", range(20))
def test_values_dtypes_and_aliasing(seed):
    """The same random modules and checkpoints, with views among the tensors, give the same."""
    results = []
    for module_class in MODULES.values():
        rng = random.Random(seed)
        generator = torch.Generator().manual_seed(seed)
        dtypes = [torch.float32, torch.float64, torch.float16, torch.int64, torch.bool]
        memory = torch.arange(40.0)
        tensors, sources = [], []
        for _ in range(rng.randrange(2, 12)):
            shape = rng.choice([(), (3,), (2, 3)])
            values = torch.randn(shape, generator=generator)
            kind = rng.randrange(4)
            if kind == 0:
                start = rng.randrange(30)
                tensors.append(memory[start : start + 3])
                values = torch.randn(3, generator=generator)
            elif kind == 1:
                tensors.append(torch.nn.Parameter(torch.zeros(shape)))
            else:
                tensors.append(torch.zeros(shape, dtype=rng.choice(dtypes)))
            sources.append(values.to(rng.choice(dtypes)))
            if rng.random() < 0.3:
                start = rng.randrange(30)
                tensors[-1] = torch.zeros(3)
                sources[-1] = memory[start : start + 3]
        module = net(module_class, tensors)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module.load_state_dict({f"p{i}": source for i, source in enumerate(sources)})
        results.append([*module.state_dict().values(), memory])
    for ours, theirs in zip(*results, strict=True):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)


def test_an_error_names_its_key_and_the_others_are_copied(module_class):
    module = net(module_class, [torch.zeros(2), torch.zeros(2), torch.zeros(2)])
    # An expanded tensor cannot be written to.
    module.p1 = torch.zeros(1).expand(2)
    with pytest.raises(RuntimeError, match='While copying the parameter named "p1"') as error:
        module.load_state_dict({f"p{i}": torch.arange(2.0) for i in range(3)})
    assert '"p0"' not in str(error.value)
    assert torch.equal(module.p0, torch.arange(2.0))
    assert torch.equal(module.p2, torch.arange(2.0))


def test_a_tensor_with_two_names_gets_the_later_value(module_class):
    shared = torch.nn.Parameter(torch.zeros(2))
    module = net(module_class, [shared, shared])
    module.load_state_dict({"p0": torch.ones(2), "p1": torch.full((2,), 2.0)})
    assert shared.tolist() == [2, 2]


def test_modes_see_each_copy(module_class):
    class Seen(torch.overrides.TorchFunctionMode):
        def __init__(self):
            super().__init__()
            self.copies = 0

        def __torch_function__(self, function, types, args=(), kwargs=None):
            self.copies += function is torch.Tensor.copy_
            return function(*args, **(kwargs or {}))

    module = net(module_class, [torch.zeros(2) for _ in range(3)])
    with Seen() as seen:
        module.load_state_dict({f"p{i}": torch.ones(2) for i in range(3)})
    assert seen.copies == 3


def test_a_method_in_the_place_of_torchs_is_called(module_class, monkeypatch):
    calls = []

    def copy_(self, source, non_blocking=False):
        calls.append(source)
        return self.set_(source)

    monkeypatch.setattr(torch.Tensor, "copy_", copy_, raising=False)
    module = net(module_class, [torch.zeros(2) for _ in range(3)])
    module.load_state_dict({f"p{i}": torch.ones(2) for i in range(3)})
    assert len(calls) == 3


def test_tensors_that_share_memory_are_apart_only_on_their_own():
    from modtree.torch.family import _are_apart

    memory = torch.zeros(4)
    assert _are_apart([memory, torch.zeros(2)], [torch.ones(4), torch.ones(2)])
    assert not _are_apart([memory[:2], memory[2:]], [torch.ones(2), torch.ones(2)])
    assert not _are_apart([memory[:2], torch.zeros(2)], [torch.ones(2), memory[2:]])


def test_nothing_is_recorded(module_class):
    module = net(module_class, [torch.nn.Parameter(torch.zeros(2)) for _ in range(3)])
    source = torch.ones(2, requires_grad=True)
    module.load_state_dict({f"p{i}": source for i in range(3)})
    assert all(p.grad_fn is None and p.requires_grad for p in module.parameters())
    assert family_of(module.p0) is family_of(source)
