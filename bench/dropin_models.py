# SPDX-License-Identifier: BSD-3-Clause
"""Models of known shapes in plain torch, with many small layers: what eager mode spends its time on
is then the machinery around the operations. Made after ``torch`` was imported on one side or the
other.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["GPT2", "Experts", "Llama", "Mixtral", "ResNet50", "ViT"]

_Cache = tuple[Tensor, Tensor] | None


class RMSNorm(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.variance_epsilon = 1e-6

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.variance_epsilon)


class Attention(nn.Module):
    """Causal attention with a cache of keys and values."""

    def __init__(self, dim: int, heads: int, bias: bool) -> None:
        super().__init__()
        self.heads = heads
        self.q_proj = nn.Linear(dim, dim, bias=bias)
        self.k_proj = nn.Linear(dim, dim, bias=bias)
        self.v_proj = nn.Linear(dim, dim, bias=bias)
        self.o_proj = nn.Linear(dim, dim, bias=bias)
        self.dropout = nn.Dropout(0.0)

    def _split(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)

    def forward(self, x: Tensor, cache: _Cache = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        query = self._split(self.q_proj(x))
        key, value = self._split(self.k_proj(x)), self._split(self.v_proj(x))
        if cache is not None:
            key, value = torch.cat([cache[0], key], 2), torch.cat([cache[1], value], 2)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=x.shape[1] > 1)
        out = self.o_proj(seen.transpose(1, 2).reshape(x.shape))
        return self.dropout(out), (key, value)


class GatedMLP(nn.Module):
    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(dim, hidden, bias=False)
        self.up_proj = nn.Linear(dim, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, dim, bias=False)
        self.act_fn = nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class PlainMLP(nn.Sequential):
    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim), nn.Dropout(0.0))


class SparseMLP(nn.Module):
    """Of several experts each token takes the two that the router scores highest."""

    def __init__(self, dim: int, hidden: int, experts: int) -> None:
        super().__init__()
        self.gate = nn.Linear(dim, experts, bias=False)
        self.experts = nn.ModuleList(GatedMLP(dim, hidden) for _ in range(experts))

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        weights, chosen = self.gate(flat).softmax(-1).topk(2)
        out = torch.zeros_like(flat)
        for number in chosen.unique().tolist():
            rows, place = (chosen == number).nonzero(as_tuple=True)
            part = self.experts[number](flat[rows]) * weights[rows, place, None]
            out = out.index_add(0, rows, part)
        return out.view(x.shape)


class Block(nn.Module):
    def __init__(self, dim: int, attention: nn.Module, mlp: nn.Module, norm: Any) -> None:
        super().__init__()
        self.self_attn = attention
        self.mlp = mlp
        self.input_layernorm = norm(dim)
        self.post_attention_layernorm = norm(dim)

    def forward(self, x: Tensor, cache: _Cache = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        seen, cache = self.self_attn(self.input_layernorm(x), cache)
        x = x + seen
        return x + self.mlp(self.post_attention_layernorm(x)), cache


class Decoder(nn.Module):
    def __init__(self, blocks: list[nn.Module], dim: int, vocabulary: int, norm: Any) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(vocabulary, dim)
        self.layers = nn.ModuleList(blocks)
        self.norm = norm(dim)
        self.lm_head = nn.Linear(dim, vocabulary, bias=False)

    def forward(self, tokens: Tensor, caches: list[Any] | None = None) -> tuple[Tensor, list[Any]]:
        x = self.embed_tokens(tokens)
        new = []
        for layer, cache in zip(self.layers, caches or [None] * len(self.layers), strict=True):
            x, cache = layer(x, cache)
            new.append(cache)
        return self.lm_head(self.norm(x)), new

    @torch.no_grad()
    def generate(self, tokens: Tensor, count: int) -> Tensor:
        """Greedy decoding."""
        logits, caches = self(tokens)
        for _ in range(count):
            last = logits[:, -1:].argmax(-1)
            tokens = torch.cat([tokens, last], 1)
            logits, caches = self(last, caches)
        return tokens


class Llama(Decoder):
    def __init__(self, layers: int = 24, dim: int = 64, vocabulary: int = 1000) -> None:
        blocks: list[nn.Module] = [
            Block(dim, Attention(dim, 4, False), GatedMLP(dim, 2 * dim), RMSNorm)
            for _ in range(layers)
        ]
        super().__init__(blocks, dim, vocabulary, RMSNorm)


class Mixtral(Decoder):
    def __init__(self, layers: int = 12, dim: int = 64, vocabulary: int = 1000) -> None:
        blocks: list[nn.Module] = [
            Block(dim, Attention(dim, 4, False), SparseMLP(dim, 2 * dim, 8), RMSNorm)
            for _ in range(layers)
        ]
        super().__init__(blocks, dim, vocabulary, RMSNorm)


class GPT2(Decoder):
    def __init__(self, layers: int = 24, dim: int = 64, vocabulary: int = 1000) -> None:
        blocks: list[nn.Module] = [
            Block(dim, Attention(dim, 4, True), PlainMLP(dim, 4 * dim), nn.LayerNorm)
            for _ in range(layers)
        ]
        super().__init__(blocks, dim, vocabulary, nn.LayerNorm)


class ViT(nn.Module):
    def __init__(self, layers: int = 12, dim: int = 96, classes: int = 100) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, dim, 16, 16)
        self.position = nn.Parameter(torch.zeros(1, 16, dim))
        self.layers = nn.ModuleList(
            Block(dim, Attention(dim, 4, True), PlainMLP(dim, 4 * dim), nn.LayerNorm)
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2) + self.position
        for layer in self.layers:
            x, _ = layer(x)
        return self.head(self.norm(x).mean(1))


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


class ResNet50(nn.Module):
    """The layers of ResNet-50, a quarter as wide."""

    def __init__(self, width: int = 16, classes: int = 100) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        stages, inputs = [], width
        for number, depth in enumerate((3, 4, 6, 3)):
            inner = width * 2**number
            blocks = []
            for i in range(depth):
                stride = 2 if i == 0 and number > 0 else 1
                blocks.append(Bottleneck(inputs, inner, 4 * inner, stride))
                inputs = 4 * inner
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inputs, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(self.pool(self.stages(self.stem(images))).flatten(1))


class Experts(nn.Module):
    """A tree of many tiny modules: 15 layers of 88 experts."""

    def __init__(self, layers: int = 15, experts: int = 88) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.ModuleList(GatedMLP(2, 2) for _ in range(experts)) for _ in range(layers)
        )
