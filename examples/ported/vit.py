# SPDX-License-Identifier: BSD-3-Clause
"""A small vision transformer (Dosovitskiy et al., 2020)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class VisionTransformer(nn.Module):
    def __init__(
        self,
        image: int = 32,
        patch: int = 4,
        width: int = 192,
        layers: int = 6,
        heads: int = 3,
        num_classes: int = 10,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, kernel_size=patch, stride=patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.empty(1, 1 + (image // patch) ** 2, width))
        self.dropout = nn.Dropout(dropout)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(
            layer, layers, norm=nn.LayerNorm(width), enable_nested_tensor=False
        )
        self.head = nn.Linear(width, num_classes)
        nn.init.trunc_normal_(self.positions, std=0.02)
        nn.init.trunc_normal_(self.class_token, std=0.02)
        nn.init.xavier_uniform_(self.patches.weight)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, images: Tensor) -> Tensor:
        x = torch.transpose(torch.flatten(self.patches(images), 2), 1, 2)
        first = torch.broadcast_to(self.class_token, (x.shape[0], 1, x.shape[2]))
        x = torch.cat((first, x), dim=1)
        x = self.encoder(self.dropout(x + self.positions))
        return self.head(x[:, 0])


def build(**options) -> VisionTransformer:
    return VisionTransformer(**options)


def example(batch: int = 2, size: int = 32, classes: int = 10):
    """Random images and labels."""
    return torch.randn(batch, 3, size, size), torch.randint(0, classes, (batch,))


def loss(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(images), labels, label_smoothing=0.1)
