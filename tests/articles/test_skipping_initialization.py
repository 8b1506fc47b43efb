# SPDX-License-Identifier: BSD-3-Clause
"""What torch's tutorial on skipping initialization does, with nothing changed but imports."""

from __future__ import annotations

import math

import pytest

import modtree
from modtree import nn
from modtree.nn.utils import skip_init


def is_orthogonal(weight):
    product = weight @ weight.T if weight.shape[0] < weight.shape[1] else weight.T @ weight
    return modtree.allclose(product, modtree.eye(product.shape[0]), atol=1e-5)


def test_other_values_after_construction():
    # Initializes weight from the default distribution: uniform(-1/sqrt(10), 1/sqrt(10)).
    m = nn.Linear(10, 5)
    assert m.weight.abs().max().item() <= 1 / math.sqrt(10)

    # Re-initialize weight from a different distribution.
    nn.init.orthogonal_(m.weight)
    assert is_orthogonal(m.weight)


def test_nothing_drawn_at_construction():
    m = skip_init(nn.Linear, 10, 5)

    # Example: Do custom, non-default parameter initialization.
    nn.init.orthogonal_(m.weight)
    assert is_orthogonal(m.weight)
    assert tuple(m.bias.shape) == (5,)
    assert m.weight.requires_grad


def test_two_steps():
    # 1. Initialize module on the meta device; all torch.nn.init ops have
    # no-op behavior on the meta device.
    m = nn.Linear(10, 5, device="meta")
    assert m.weight.is_meta
    assert nn.init.orthogonal_(m.weight) is m.weight

    # 2. Materialize an uninitialized (empty) form of the module on the CPU device.
    # The result of this is a module instance with uninitialized parameters.
    assert m.to_empty(device="cpu") is m
    assert not m.weight.is_meta


def my_module(torch, nn, parts):
    """The tutorial's module; with leaves of torch its layers are ones of modtree without
    parameters, as modtree's own compute on its own tensors.
    """

    class MyModule(nn.Module):
        def __init__(self, foo, bar, device=None):
            super().__init__()

            # ==== Case 1: Module creates parameters directly. ====
            # Pass device along to any created parameters.
            self.param1 = nn.Parameter(torch.empty((foo, bar), device=device))
            self.register_parameter("param2", nn.Parameter(torch.empty(bar, device=device)))

            # To ensure support for the meta device, avoid using ops except those in
            # torch.nn.init on parameters in your module's constructor.
            with torch.no_grad():
                nn.init.kaiming_uniform_(self.param1)
                nn.init.uniform_(self.param2)

            # ==== Case 2: Module creates submodules. ====
            # Pass device along recursively. All submodules will need to support
            # them as well; this is the case for all torch.nn provided modules.
            self.fc = parts.Linear(bar, 5, device=device)

            # This also works with containers.
            self.linears = nn.Sequential(
                parts.Linear(5, 5, device=device), parts.Linear(5, 1, device=device)
            )

            # ==== Case 3: Module creates buffers. ====
            # Pass device along during buffer tensor creation.
            self.register_buffer("some_buffer", torch.ones(7, device=device))

        def forward(self, x):
            return self.linears(self.fc(x * self.param2))

    return MyModule


def test_a_module_that_passes_its_device_on(impl):
    torch = impl.lib

    class Linear(impl.nn.Module):
        def __init__(self, n, m, device=None):
            super().__init__()
            self.weight = impl.nn.Parameter(torch.empty((m, n), device=device))
            impl.nn.init.uniform_(self.weight)

        def forward(self, x):
            return x @ self.weight.T

    parts = impl.nn if impl.name != "modtree-torch" else type("parts", (), {"Linear": Linear})
    MyModule = my_module(torch, impl.nn, parts)  # noqa: N806
    torch.manual_seed(0)
    before = torch.rand(1).item()
    torch.manual_seed(0)
    m = impl.nn.utils.skip_init(MyModule, 3, 4)
    assert torch.rand(1).item() == before
    tensors = [*m.parameters(), *m.buffers()]
    assert not any(t.is_meta for t in tensors)
    assert tuple(m.param1.shape) == (3, 4)
    assert tuple(m.some_buffer.shape) == (7,)

    real = MyModule(3, 4)
    assert 0 <= real.param2.min().item() <= real.param2.max().item() <= 1
    m.load_state_dict(real.state_dict())
    x = torch.ones(2, 4)
    assert m(x).tolist() == real(x).tolist()
    assert m.some_buffer.tolist() == [1.0] * 7

    on_meta = impl.nn.utils.skip_init(MyModule, 3, 4, device="meta")
    assert all(t.is_meta for t in on_meta.parameters())


def test_a_module_that_does_not(impl):
    class WithoutDevice(impl.nn.Module):
        pass

    with pytest.raises(RuntimeError, match="Module must support a 'device' arg"):
        impl.nn.utils.skip_init(WithoutDevice)
