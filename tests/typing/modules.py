# SPDX-License-Identifier: BSD-3-Clause
"""A correct program: modules of one's own, hooks, optimizers."""

from collections import OrderedDict
from typing import Any

import modtree as mt
import modtree.nn.functional as F
from modtree import Tensor, nn, optim


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width)
        self.heads = heads

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            t.view(batch, length, self.heads, -1).transpose(1, 2)
            for t in self.qkv(x).chunk(3, dim=-1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        result: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return result


def report(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
    print(type(module).__name__, output.shape)


model = nn.Sequential(
    OrderedDict([("attention", Attention(8, 2)), ("norm", nn.LayerNorm(8)), ("act", nn.GELU())])
)
handle = model.register_forward_hook(report)
output = model(mt.randn(1, 3, 8))
handle.remove()
weight = model.attention.qkv.weight
model.apply(lambda m: None)


def initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def weights_of(layer: nn.Linear | nn.Conv2d | nn.BatchNorm2d | nn.GRUCell) -> list[Tensor]:
    """Parameters that a layer may lack: compared with None, or used where they are there."""
    if isinstance(layer, nn.GRUCell):
        return [layer.bias_ih.data, layer.weight_ih] if layer.bias_ih is not None else []
    if layer.bias is None:
        return [layer.weight]
    layer.bias.data.zero_()
    return [layer.weight, layer.bias]


nn.init.ones_(nn.LayerNorm(8).weight)
nn.Linear(2, 2).bias.requires_grad_(False)
model = model.apply(initialise)
optimizer = optim.SGD(
    [{"params": model.parameters(), "lr": 0.1}], lr=0.01, momentum=0.9, weight_decay=1e-4
)
state: dict[str, Any] = optimizer.state_dict()
optimizer.load_state_dict(state)
for group in optimizer.param_groups:
    group["lr"] *= 0.5
parameter = nn.Parameter(mt.zeros(2), requires_grad=False)
hook = mt.ones(2, requires_grad=True).register_hook(lambda grad: grad * 2)
hook.remove()
lstm = nn.LSTM(4, 8, num_layers=2, batch_first=True)
sequence, (h, c) = lstm(mt.randn(1, 5, 4))
pooled = F.max_pool2d(mt.randn(1, 1, 4, 4), 2)
both, where = F.max_pool2d(mt.randn(1, 1, 4, 4), 2, return_indices=True)
convolved = nn.Conv2d(1, 2, kernel_size=3, padding="same")(mt.randn(1, 1, 4, 4))
mt.save(model.state_dict(), "model.pt")
model.load_state_dict(mt.load("model.pt", map_location="cpu"))
changed = mt.compare(model, model.state_dict(), rtol=1e-3, rename={"module.": ""})
names: list[str] = changed.only_in_a
