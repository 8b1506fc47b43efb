# SPDX-License-Identifier: BSD-3-Clause
"""Training steps while the garbage collector is off: nothing may be left that only a collection
would free.
"""

from __future__ import annotations

import gc
import sys

import modtree as mt
from modtree import nn

WARM_UP, STEPS = 20, 200


def training(model, optimizer, loss, x, y):
    def step():
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()

    return step


def perceptron():
    model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 10))
    x, y = mt.randn(8, 16), mt.randint(0, 10, (8,))
    return training(model, mt.optim.Adam(model.parameters()), nn.CrossEntropyLoss(), x, y)


def convolutions():
    layers = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    model = nn.Sequential(*layers, nn.Linear(36, 10))
    optimizer = mt.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return training(
        model, optimizer, nn.CrossEntropyLoss(), mt.randn(4, 1, 8, 8), mt.randint(0, 10, (4,))
    )


def recurrence():
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(5, 7, 2, batch_first=True)
            self.out = nn.Linear(7, 3)

        def forward(self, x):
            return self.out(self.rnn(x)[0][:, -1])

    model = Last()
    return training(
        model, mt.optim.AdamW(model.parameters()), nn.MSELoss(), mt.randn(4, 6, 5), mt.randn(4, 3)
    )


def views_and_hooks():
    weight = mt.randn(4, 4, requires_grad=True)
    weight.register_hook(lambda gradient: gradient * 2)

    def step():
        y = weight * 2
        y[0] += 1
        y[:, 1].mul_(3)
        y.retain_grad()
        y.tanh().sum().backward()
        weight.grad = None

    return step


def second_derivatives():
    weight = mt.randn(4, 4, requires_grad=True)

    def step():
        (gradient,) = mt.autograd.grad((weight * 2).tanh().sum(), weight, create_graph=True)
        gradient.square().sum().backward()
        weight.grad = None

    return step


def left_after(step):
    """(objects that a collection might free, blocks of memory that it does not) after so many steps
    with the collector off.
    """
    gc.collect()
    gc.disable()
    objects, blocks = len(gc.get_objects()), sys.getallocatedblocks()
    for _ in range(STEPS):
        step()
    objects = len(gc.get_objects()) - objects
    gc.enable()
    gc.collect()  # empties CPython's caches of tuples, which would count as blocks
    return objects, sys.getallocatedblocks() - blocks


def main() -> int:
    left = {}
    for make in (perceptron, convolutions, recurrence, views_and_hooks, second_derivatives):
        step = make()
        for _ in range(WARM_UP):
            step()
        for _ in range(4):  # NumPy's caches fill up, ever more slowly; a leak goes on
            grown = left_after(step)
            if max(grown) < STEPS // 2:
                break
        else:
            left[make.__name__] = grown
    if left:
        print(f"left after {STEPS} steps (objects, blocks): {left}", file=sys.stderr)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
