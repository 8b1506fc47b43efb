# SPDX-License-Identifier: BSD-3-Clause
"""Conversions of a tree whose leaves are torch tensors of any kind."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 3)
        self.conv = nn.Conv2d(3, 2, 1)
        self.register_buffer("count", torch.tensor(3))
        self.register_buffer("scale", torch.ones(2))


def dtypes(net):
    return {name: tensor.dtype for name, tensor in net.state_dict().items()}


def test_to_a_dtype_leaves_whole_numbers():
    net = Net()
    weight = net.fc.weight
    net.fc.weight.grad = torch.ones(3, 2)
    assert net.to(torch.float64) is net
    assert net.fc.weight is weight
    assert dtypes(net)["fc.weight"] == weight.grad.dtype == torch.float64
    assert dtypes(net)["count"] == torch.int64
    assert dtypes(net)["scale"] == torch.float64


def test_to_a_tensor_and_a_device():
    net = Net().to(torch.zeros(1, dtype=torch.float16))
    assert dtypes(net)["fc.bias"] == torch.float16
    before = {id(tensor) for tensor in [*net.parameters(), *net.buffers()]}
    net.to("cpu", non_blocking=True)
    assert {id(tensor) for tensor in [*net.parameters(), *net.buffers()]} == before


def test_to_a_memory_format_is_for_images_only():
    net = Net().to(memory_format=torch.channels_last)
    assert net.conv.weight.is_contiguous(memory_format=torch.channels_last)
    assert net.fc.weight.is_contiguous()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((torch.int64,), "nn.Module.to only accepts floating point or complex dtypes"),
        (("nowhere",), "Expected one of cpu, cuda"),
    ],
)
def test_what_no_tree_is_converted_to(arguments, error):
    with pytest.raises((TypeError, RuntimeError), match=error):
        Net().to(*arguments)


def test_to_from_meta_says_what_to_do():
    net = Net().to("meta")
    with pytest.raises(NotImplementedError, match="Please use torch.nn.Module.to_empty"):
        net.to("cpu")


def test_modes_and_subclasses_see_the_conversion():
    seen = []

    class Seen(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(getattr(function, "__name__", ""))
            return function(*args, **(kwargs or {}))

    class Mine(torch.Tensor):
        def to(self, *args, **kwargs):
            seen.append(("Mine", args[1]))
            return super().to(*args, **kwargs)

    net = nn.Linear(2, 3)
    with Seen():
        net.to(torch.float64)
    assert seen.count("to") == 2
    seen.clear()
    net.register_buffer("mine", torch.ones(2).as_subclass(Mine))
    net.to(torch.float16)
    assert ("Mine", torch.float16) in seen
    assert type(net.mine) is Mine


def test_an_apply_of_the_program_gets_the_function():
    got = []

    class Watching(nn.Linear):
        def _apply(self, fn, recurse=True):
            got.append(fn(torch.ones(1)).dtype)
            return super()._apply(fn, recurse)

    nn.Sequential(Watching(2, 2)).to(torch.float64)
    assert got == [torch.float64]


def test_overwriting_makes_new_parameters():
    net = nn.Linear(2, 3)
    weight = net.weight
    old = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        net.to(torch.float64)
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(old)
    assert net.weight is not weight and type(net.weight) is nn.Parameter


def test_swapping_keeps_the_object():
    net = nn.Linear(2, 3)
    weight = net.weight
    weight.grad = torch.ones(3, 2)
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        net.to(torch.float64)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    assert net.weight is weight
    assert weight.dtype == weight.grad.dtype == torch.float64


def test_swapping_while_the_graph_of_the_loss_lives():
    net = nn.Linear(2, 3)
    loss = net(torch.ones(1, 2)).sum()
    loss.backward(retain_graph=True)
    weight, grad = net.weight, net.weight.grad
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        net.half()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    assert net.weight is weight and weight.grad is grad
    assert weight.dtype == grad.dtype == torch.float16


def test_fake_tensors_and_tensors_of_several_parts():
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
    from torch.testing._internal.two_tensor import TwoTensor

    with FakeTensorMode():
        net = nn.Linear(2, 3)
        assert isinstance(net.weight, FakeTensor)
        # Swapped, not given other memory; and the mode holds weak references to its tensors.
        with pytest.raises(RuntimeError, match="Couldn't swap Linear.weight"):
            net.to(torch.float64)
    net = nn.Linear(2, 3)
    ids = [id(p) for p in net.parameters()]
    net._apply(lambda t: TwoTensor(t.detach().clone(), t.detach().clone()))
    assert [id(p) for p in net.parameters()] == ids
    assert isinstance(net.weight.data, TwoTensor)
