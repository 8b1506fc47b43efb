# SPDX-License-Identifier: BSD-3-Clause
"""A correct program: a model, a training loop, checkpoints."""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import modtree as mt
import modtree.nn.functional as F
from modtree import Tensor, nn, optim
from modtree.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    mean: Tensor

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first = nn.Linear(4, width)
        self.norm = nn.LayerNorm(width)
        self.second = nn.Linear(width, 3)
        self.scale = nn.Parameter(mt.ones(3))
        self.register_buffer("mean", mt.zeros(4))
        self.blocks = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.first(x - self.mean)))
        for block in self.blocks:
            x = x + block(x)
        logits: Tensor = self.second(x)
        return logits * self.scale


net = Net()
net = net.to("cpu").double().float().train()
optimizer = optim.Adam(net.parameters(), lr=1e-3, betas=(0.9, 0.99))
schedule = optim.lr_scheduler.StepLR(optimizer, step_size=2)
criterion = nn.CrossEntropyLoss()
data = TensorDataset(mt.randn(16, 4), mt.randint(0, 3, (16,)))
loader = DataLoader(data, batch_size=4, shuffle=True)

for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(net(x), y)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    value: float = loss.item()

net.eval()
with mt.no_grad():
    predicted = net(mt.randn(2, 4)).argmax(1)

state: OrderedDict[str, Any] = net.state_dict()
result = net.load_state_dict(state, strict=True)
missing: list[str] = result.missing_keys
named: Iterator[tuple[str, nn.Parameter]] = net.named_parameters()
total: int = sum(p.numel() for p in net.parameters())
for name, parameter in net.named_parameters():
    if parameter.grad is not None:
        square: Tensor = parameter.grad.square().sum()
        print(name, square.item())
child: nn.Module
for child in net.children():
    child.requires_grad_(False)
