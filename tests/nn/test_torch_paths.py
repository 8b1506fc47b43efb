# SPDX-License-Identifier: BSD-3-Clause
"""The paths under which torch has layers, and the private bases that programs subclass."""

from __future__ import annotations

import importlib
import inspect
import pickle
import pkgutil

import pytest
from helpers.implementations import needs_torch

import modtree as mt
from modtree import nn


def torch_files():
    torch = importlib.import_module("torch")
    return [info.name for info in pkgutil.iter_modules(torch.nn.modules.__path__)]


def test_layers_are_where_torch_has_them(torch):
    """A layer that is new in modtree.nn belongs into its row of the table of paths, too."""
    missing = []
    for name in torch_files():
        theirs = importlib.import_module(f"torch.nn.modules.{name}")
        for key, value in vars(theirs).items():
            is_layer = inspect.isclass(value) and getattr(torch.nn, key, None) is value
            if is_layer and value.__module__ == theirs.__name__ and hasattr(nn, key):
                ours = importlib.import_module(f"modtree.nn.modules.{name}")
                if getattr(ours, key, None) is not getattr(nn, key):
                    missing.append(f"{name}.{key}")
    assert missing == []


PRIVATE = {
    "batchnorm": ("_BatchNorm", "_NormBase"),
    "conv": ("_ConvNd", "_ConvTransposeNd"),
    "dropout": ("_DropoutNd",),
    "instancenorm": ("_InstanceNorm",),
    "loss": ("_Loss", "_WeightedLoss"),
    "padding": ("_CircularPadNd", "_ConstantPadNd", "_ReflectionPadNd", "_ReplicationPadNd"),
    "pooling": ("_AdaptiveAvgPoolNd", "_AdaptiveMaxPoolNd", "_AvgPoolNd", "_MaxPoolNd"),
    "rnn": ("RNNBase", "RNNCellBase"),
}


@needs_torch
@pytest.mark.parametrize(("file", "base"), [(f, b) for f in PRIVATE for b in PRIVATE[f]])
def test_layers_have_the_bases_of_torch(file, base):
    torch = importlib.import_module("torch")
    theirs = getattr(importlib.import_module(f"torch.nn.modules.{file}"), base)
    ours = getattr(importlib.import_module(f"modtree.nn.modules.{file}"), base)
    shared = [n for n in nn.__all__ if inspect.isclass(getattr(nn, n)) and hasattr(torch.nn, n)]
    below = {n for n in shared if issubclass(getattr(torch.nn, n), theirs)}
    assert below == {n for n in shared if issubclass(getattr(nn, n), ours)} and below


def test_private_bases_can_be_subclassed(lib):
    batchnorm = importlib.import_module(f"{lib.__name__}.nn.modules.batchnorm")
    conv = importlib.import_module(f"{lib.__name__}.nn.modules.conv")
    loss = importlib.import_module(f"{lib.__name__}.nn.modules.loss")
    padding = importlib.import_module(f"{lib.__name__}.nn.modules.padding")

    class AnyNorm(batchnorm._BatchNorm):
        def _check_input_dim(self, input):
            pass

    class Standardized(conv._ConvNd):
        def __init__(self, *args):
            super().__init__(*args)

        def forward(self, x):
            weight = self.weight - self.weight.mean()
            return lib.nn.functional.conv1d(x, weight, self.bias, self.stride, self.padding)

    class Up(conv._ConvTransposeNd):
        def forward(self, x):
            more = self._output_padding(x, None, self.stride, self.padding, self.kernel_size, 1)
            conv = lib.nn.functional.conv_transpose1d
            return conv(x, self.weight, None, self.stride, self.padding, more)

    class Mirror(padding._ReflectionPadNd):
        def __init__(self, left):
            super().__init__()
            self.padding = (left, 0)

    class Fives(padding._ConstantPadNd):
        def __init__(self):
            super().__init__(5.0)
            self.padding = (1, 1)

    class Own(loss._Loss):
        def forward(self, a, b):
            return (a - b).abs().mean() if self.reduction == "mean" else (a - b).abs().sum()

    norm = AnyNorm(3)
    assert norm(lib.ones(2, 3, 1, 1, 1, 1)).shape == (2, 3, 1, 1, 1, 1)
    assert norm.num_batches_tracked.item() == 1
    layer = Standardized(2, 4, (3,), (1,), (0,), (1,), False, (0,), 1, True, "zeros", None, None)
    assert layer.weight.shape == (4, 2, 3) and layer(lib.ones(1, 2, 9)).shape == (1, 4, 7)
    assert "kernel_size=(3,), stride=(1,)" in repr(layer)
    up = Up(2, 4, (3,), (2,), (0,), (1,), True, (0,), 1, False, "zeros")
    assert up(lib.ones(1, 2, 4)).shape == (1, 4, 9)
    with pytest.raises(ValueError, match="padding mode is supported"):
        Up(2, 4, (3,), (2,), (0,), (1,), True, (0,), 1, False, "reflect")
    assert Mirror(2)(lib.arange(4.0)[None]).tolist() == [[2, 1, 0, 1, 2, 3]]
    assert Fives()(lib.ones(1)).tolist() == [5, 1, 5]
    assert Own(reduction="sum")(lib.ones(3), lib.zeros(3)).item() == 3


def test_numbers_as_tuples(lib):
    utils = importlib.import_module(f"{lib.__name__}.nn.modules.utils")
    assert utils._single(3) == (3,) and utils._pair((1, 2)) == (1, 2)
    assert utils._triple([1, 2, 3]) == (1, 2, 3) and utils._quadruple(0) == (0, 0, 0, 0)
    assert utils._ntuple(5)("ab") == ("a", "b") and utils._pair.__name__ == "_pair"
    assert utils._reverse_repeat_tuple((1, 2, 3), 2) == (3, 3, 2, 2, 1, 1)
    assert utils._list_with_default(3, [4, 5]) == 3
    assert utils._list_with_default([None, 3], [4, 5, 6]) == [5, 3]
    with pytest.raises(ValueError, match="at least 3"):
        utils._list_with_default([None, 3], [5, 6])


def test_global_hooks_are_where_torch_has_them(lib):
    module = importlib.import_module(f"{lib.__name__}.nn.modules.module")
    seen = []
    handle = module.register_module_forward_hook(lambda m, args, out: seen.append(type(m)))
    assert len(module._global_forward_hooks) == 1 and module._has_any_global_hook()
    lib.nn.Identity()(lib.ones(1))
    handle.remove()
    assert seen == [lib.nn.Identity] and module._global_is_full_backward_hook is None
    assert module._addindent("a\nb", 2) == "a\n  b"
    assert not hasattr(module, "_no_such_name")


def test_other_private_helpers(lib):
    transformer = importlib.import_module(f"{lib.__name__}.nn.modules.transformer")
    clones = transformer._get_clones(lib.nn.Linear(2, 2), 3)
    assert len(clones) == 3 and clones[0].weight is not clones[1].weight
    assert transformer._get_activation_fn("relu")(lib.tensor([-1.0])).item() == 0
    types = importlib.import_module(f"{lib.__name__}.nn.common_types")
    assert types._size_2_t is not None and types._ratio_any_t is not None
    flat = importlib.import_module(f"{lib.__name__}._utils")
    parts = [lib.ones(2, 2), lib.zeros(3)]
    joined = flat._flatten_dense_tensors(parts)
    assert joined.shape == (7,)
    back = flat._unflatten_dense_tensors(joined, parts)
    assert [tuple(p.shape) for p in back] == [(2, 2), (3,)] and back[0].sum().item() == 4


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("nn.modules.linear", "Linear"),
        ("nn.modules.container", "Sequential"),
        ("nn.modules.batchnorm", "BatchNorm2d"),
        ("nn.modules", "ReLU"),
        ("nn.parameter", "Parameter"),
        ("_tensor", "Tensor"),
        ("optim.adamw", "AdamW"),
        ("optim.adam", "Adam"),
        ("optim.adadelta", "Adadelta"),
        ("optim.adamax", "Adamax"),
        ("optim.nadam", "NAdam"),
        ("optim.radam", "RAdam"),
        ("optim.sgd", "SGD"),
        ("optim.optimizer", "Optimizer"),
        ("utils.data.dataloader", "DataLoader"),
        ("utils.data.dataset", "Dataset"),
        ("utils.data.sampler", "Sampler"),
        ("utils.data.distributed", "DistributedSampler"),
        ("utils.data._utils.collate", "default_collate"),
        ("types", "Device"),
        ("types", "Number"),
        ("version", "cuda"),
        ("version", "__version__"),
        ("cuda.amp", "autocast"),
        ("nn.modules.conv", "_pair"),
        ("nn.modules.pooling", "_triple"),
        ("nn.utils.convert_parameters", "parameters_to_vector"),
        ("nn.attention", "sdpa_kernel"),
        ("autograd.grad_mode", "no_grad"),
        ("functional", "einsum"),
        ("distributed", "ReduceOp"),
        ("distributed", "ProcessGroup"),
        ("multiprocessing", "Process"),
        ("multiprocessing", "set_sharing_strategy"),
        ("cuda", "OutOfMemoryError"),
    ],
)
def test_paths(lib, path, name):
    assert hasattr(importlib.import_module(f"{lib.__name__}.{path}"), name)


def test_pickles_that_name_paths_of_torch_load():
    text = pickle.dumps(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)), 0)
    for own, torchs in (
        (b"modtree.nn\nSequential", b"modtree.nn.modules.container\nSequential"),
        (b"modtree.nn.linear\n", b"modtree.nn.modules.linear\n"),
        (b"modtree.nn.batchnorm\n", b"modtree.nn.modules.batchnorm\n"),
    ):
        assert own in text
        text = text.replace(own, torchs)
    back = pickle.loads(text)
    assert type(back) is nn.Sequential and type(back[1]) is nn.BatchNorm1d
    assert back(mt.ones(4, 2)).shape == (4, 3)
