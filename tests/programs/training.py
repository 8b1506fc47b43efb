# SPDX-License-Identifier: BSD-3-Clause
"""Ways of training: steps that are derived, target networks, averages of weights, adapters,
functions with a derivative of their own, hooks.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.autograd import Function
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint


def learning_to_learn(t):
    """The gradient of what a model is after two steps of its own."""
    model = t.fill(nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1)))
    optimizer = optim.Adam(model.parameters(), lr=0.01)
    for _ in range(2):
        optimizer.zero_grad()
        for task in range(2):
            x = t.normal(5, 1)
            y = torch.sin(x + task)
            weights = dict(model.named_parameters())
            for _ in range(2):
                loss = F.mse_loss(functional_call(model, weights, x), y)
                slopes = torch.autograd.grad(loss, tuple(weights.values()), create_graph=True)
                weights = {
                    name: w - 0.1 * g for (name, w), g in zip(weights.items(), slopes, strict=True)
                }
            after = F.mse_loss(functional_call(model, weights, (x,)), y)
            after.backward()
            t.log("loss", after)
        t.log_gradients(model)
        optimizer.step()


def target_network(t):
    """Values learned from a copy that follows slowly."""
    values = t.fill(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))
    slow = copy.deepcopy(values).requires_grad_(False)
    optimizer = optim.Adam(values.parameters(), lr=0.01, amsgrad=True)
    for _ in range(3):
        state, following, action = t.normal(6, 4), t.normal(6, 4), t.integers(3, 6, 1)
        ends = t.integers(2, 6).bool()
        future = torch.zeros(6, dtype=torch.float64)
        with torch.no_grad():
            choice = values(following[~ends]).argmax(1, keepdim=True)
            future[~ends] = slow(following[~ends]).gather(1, choice).squeeze(1)
        guess = values(state).gather(1, action).squeeze(1)
        loss = F.smooth_l1_loss(guess, state.sum(1) + 0.9 * future)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for p, q in zip(slow.parameters(), values.parameters(), strict=True):
                p.mul_(0.9).add_(q, alpha=0.1)
        t.log("loss", loss)
        t.log_gradients(values)
        t.log_state(slow)
    slow.load_state_dict(values.state_dict())
    t.log_state(slow)


def average_of_weights(t):
    """An average of all the steps, buffers included, and training that goes on from a
    checkpoint.
    """
    model = t.fill(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)))
    average = copy.deepcopy(model).eval()
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)

    def step(model, optimizer, x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        t.log("loss", loss)

    for _ in range(4):
        step(model, optimizer, t.normal(5, 3), t.integers(2, 5))
        schedule.step()
        kept, now = average.state_dict(), model.state_dict()
        for name, value in kept.items():
            value.copy_(0.8 * value + 0.2 * now[name])
        t.log("rate", torch.tensor(optimizer.param_groups[0]["lr"]))
    t.log_state(average)
    saved = copy.deepcopy({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    x, y = t.normal(5, 3), t.integers(2, 5)
    step(model, optimizer, x, y)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step(model, optimizer, x, y)
    t.log_state(model)


class Adapted(nn.Module):
    """A frozen layer and a product of two small matrices beside it."""

    def __init__(self, layer, rank=2):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Parameter(layer.weight.new_zeros(rank, layer.in_features))
        self.up = nn.Parameter(layer.weight.new_zeros(layer.out_features, rank))
        nn.init.kaiming_uniform_(self.down, a=5**0.5)

    def forward(self, x):
        return self.layer(x) + x @ self.down.T @ self.up.T


def adapters(t):
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Sequential(nn.Linear(6, 3)))
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear) and not isinstance(parent, Adapted):
                setattr(parent, name, Adapted(child))
    t.fill(model)
    optimizer = optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.05)
    x, y = t.normal(5, 4), t.integers(3, 5)
    for _ in range(3):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        t.log("loss", loss)
        t.log_gradients(model)
    result = model.load_state_dict({"0.up": torch.zeros(6, 2)}, strict=False)
    t.log("missing", *(torch.tensor(len(key)) for key in result.missing_keys))
    t.log_state(model)


class Rounded(Function):
    """Rounds to levels; the gradient passes inside of the range."""

    @staticmethod
    def forward(ctx, x, step, levels):
        ctx.save_for_backward(x, step)
        ctx.levels = levels
        return (x / step).round().clamp(-levels, levels) * step

    @staticmethod
    def backward(ctx, g):
        x, step = ctx.saved_tensors
        outside = (x / step).abs() > ctx.levels
        return g.masked_fill(outside, 0), (g * x.sign() * ctx.levels * outside).sum(), None


def functions_and_recomputation(t):
    layers = t.fill(nn.ModuleList(nn.Linear(4, 4) for _ in range(3)))
    step = nn.Parameter(torch.tensor(0.05, dtype=torch.float64))
    x = t.normal(5, 4).requires_grad_()
    h = x
    for layer in layers:
        weight = Rounded.apply(layer.weight, step, 7)
        h = checkpoint(
            lambda h, w, b: F.gelu(F.linear(h, w, b)), h, weight, layer.bias, use_reentrant=False
        )
        h = h + ((h * 8).round() / 8 - h).detach()
    h.pow(2).sum().backward()
    t.log("out", h, x.grad, step.grad)
    t.log_gradients(layers)


def attention_to_pixels(t):
    """What a class score depends on, by hooks; then a step against the input."""
    features = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 5, 3))
    model = nn.Sequential(features, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 4))
    t.fill(model)
    seen = {}
    handles = [
        features.register_forward_hook(lambda m, args, out: seen.update(out=out.detach())),
        features.register_full_backward_hook(lambda m, gi, go: seen.update(slope=go[0])),
    ]
    x = t.normal(2, 3, 6, 6).requires_grad_()
    scores = model(x)
    labels = scores.argmax(dim=1)
    scores.gather(1, labels[:, None]).sum().backward()
    for handle in handles:
        handle.remove()
    weights = seen["slope"].mean((2, 3), keepdim=True)
    map_ = F.relu((weights * seen["out"]).sum(1, keepdim=True))
    map_ = F.interpolate(map_, scale_factor=2, mode="bilinear", align_corners=True)
    map_ -= map_.amin(dim=(1, 2, 3), keepdim=True)
    map_ /= map_.flatten(1).amax(1).view(-1, 1, 1, 1) + 1e-8
    t.log("map", map_, x.grad)
    moved = (x + 0.1 * x.grad.sign()).detach().clamp_(-1, 1).requires_grad_()
    (slope,) = torch.autograd.grad(F.cross_entropy(model(moved), labels), moved)
    t.log("slope", slope)
