# SPDX-License-Identifier: BSD-3-Clause
"""Generative models: noise with learned parameters, a critic whose gradient is penalized, a flow,
upsampling with skips.
"""

from __future__ import annotations

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import autograd, optim


def variational(t):
    """Samples with the derivative going through mean and deviation."""
    encode = t.fill(nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 6)))
    decode = t.fill(nn.Sequential(nn.Linear(3, 8), nn.Softplus(), nn.Linear(8, 12)))
    images = t.uniform(5, 3, 4).flatten(1)
    optimizer = optim.Adam([*encode.parameters(), *decode.parameters()], lr=0.01)
    for _ in range(3):
        mean, log_var = encode(images).chunk(2, dim=-1)
        noise = torch.randn_like(mean).copy_(t.normal(5, 3))
        code = noise.mul(log_var.mul(0.5).exp()).add_(mean)
        fit = F.binary_cross_entropy_with_logits(decode(code), images, reduction="sum")
        apart = 0.5 * (mean.square() + log_var.exp() - log_var - 1).sum()
        optimizer.zero_grad()
        (fit + apart).backward()
        optimizer.step()
        t.log("loss", fit, apart)
    t.log_gradients(encode)
    t.log_gradients(decode)


def gradient_penalty(t):
    """The norm of a gradient is part of the loss."""
    layers = [nn.Conv2d(1, 4, 3, 2, 1), nn.LeakyReLU(0.2), nn.GroupNorm(2, 4), nn.SiLU()]
    layers += [nn.Flatten(), nn.Linear(36, 8), nn.LayerNorm(8), nn.ELU(), nn.Linear(8, 1)]
    critic = t.fill(nn.Sequential(*layers))
    real, made = t.normal(3, 1, 6, 6), t.normal(3, 1, 6, 6)
    optimizer = optim.RMSprop(critic.parameters(), lr=1e-3)
    for _ in range(2):
        share = t.uniform(3, 1, 1, 1)
        between = torch.lerp(real, made, share).requires_grad_()
        (slope,) = autograd.grad(critic(between).sum(), between, create_graph=True)
        penalty = (slope.flatten(1).norm(2, dim=1) - 1).pow(2).mean()
        loss = critic(made).mean() - critic(real).mean() + 10 * penalty
        critic.zero_grad(set_to_none=True)
        loss.backward()
        t.log("loss", loss, penalty)
        t.log_gradients(critic)
        optimizer.step()


class Coupling(nn.Module):
    """Half of the features moves and scales the other half."""

    def __init__(self, width, flip):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width // 2, 6), nn.Tanh(), nn.Linear(6, width))
        self.flip = flip

    def forward(self, x):
        a, b = torch.tensor_split(x.flip(-1) if self.flip else x, 2, dim=-1)
        scale, move = self.net(a).chunk(2, -1)
        return torch.cat((a, b * scale.exp() + move), -1), scale.sum(-1)


class Mixing(nn.Module):
    """A linear map of triangular factors."""

    def __init__(self, width):
        super().__init__()
        self.lower = nn.Parameter(torch.zeros(width, width))
        self.upper = nn.Parameter(torch.zeros(width, width))
        self.register_buffer("one", torch.eye(width))

    def forward(self, x):
        matrix = (self.lower.tril(-1) + self.one) @ (self.upper.triu() + 2 * self.one)
        return F.linear(x, matrix), torch.linalg.slogdet(matrix).logabsdet


def flow(t):
    """Maximum likelihood through a chain of invertible maps."""
    chain = t.fill(nn.ModuleList([Coupling(4, False), Mixing(4), Coupling(4, True), Mixing(4)]))
    x = t.normal(6, 4)
    optimizer = optim.SGD(chain.parameters(), lr=0.05, momentum=0.8, nesterov=True)
    for _ in range(3):
        z, volume = x, torch.zeros(6)
        for layer in chain:
            z, change = layer(z)
            volume = volume + change
        loss = (0.5 * z.square().sum(-1) + 2 * math.log(2 * math.pi) - volume).mean()
        optimizer.zero_grad()
        loss.backward()
        t.log("loss", loss)
        t.log_gradients(chain)
        optimizer.step()


class Hourglass(nn.Module):
    """Down, up again, and a skip in between; sizes need not divide."""

    def __init__(self):
        super().__init__()
        self.down = self.block(1, 4)
        self.low = self.block(4, 8)
        self.up = nn.ConvTranspose2d(8, 4, kernel_size=2, stride=2)
        self.out = nn.Conv2d(12, 2, 1)

    @staticmethod
    def block(inputs, outputs):
        conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))

    def forward(self, x):
        fine = self.down(x)
        low = self.low(F.max_pool2d(fine, 2))
        up = self.up(low)
        up = F.pad(up, (0, fine.size(-1) - up.size(-1), 0, fine.size(-2) - up.size(-2)))
        smooth = F.interpolate(
            low[:, :4], size=fine.shape[-2:], mode="bilinear", align_corners=False
        )
        return self.out(torch.cat([fine, up, smooth], dim=1))


def segmentation(t):
    """Classes of pixels, with a weighted and an overlap loss."""
    model = t.fill(Hourglass())
    x, target = t.normal(2, 1, 7, 6), t.integers(2, 2, 7, 6)
    optimizer = optim.AdamW(model.parameters(), lr=0.01)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=3)
    for _ in range(3):
        logits = model(x)
        one_hot = F.one_hot(target, 2).movedim(-1, 1).type_as(logits)
        shares = logits.softmax(1)
        both = (shares * one_hot).sum((-2, -1))
        overlap = 1 - ((2 * both + 1) / (shares.sum((-2, -1)) + one_hot.sum((-2, -1)) + 1)).mean()
        loss = F.cross_entropy(logits, target, weight=torch.tensor([0.3, 0.7]).to(x)) + overlap
        optimizer.zero_grad()
        loss.backward()
        t.log("loss", loss)
        t.log_gradients(model)
        nn.utils.clip_grad_value_(model.parameters(), 0.1)
        optimizer.step()
        schedule.step()
    t.log_state(model)
    model.eval()
    with torch.no_grad():
        t.log("labels", model(x).argmax(1))
