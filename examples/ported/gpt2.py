# SPDX-License-Identifier: BSD-3-Clause
"""GPT-2 (Radford et al., 2019): the head shares its weight with the embedding of tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.nn import functional as F


@dataclass
class Config:
    vocabulary: int = 50257
    context: int = 1024
    layers: int = 12
    heads: int = 12
    width: int = 768
    dropout: float = 0.1


class CausalSelfAttention(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads, self.dropout = config.heads, config.dropout
        self.c_attn = nn.Linear(config.width, 3 * config.width)
        self.c_proj = nn.Linear(config.width, config.width)
        self.resid_dropout = nn.Dropout(config.dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        B, T, C = x.shape
        q, k, v = (
            torch.transpose(part.reshape(B, T, self.heads, C // self.heads), 1, 2)
            for part in torch.split(self.c_attn(x), C, dim=2)
        )
        y = F.scaled_dot_product_attention(
            q, k, v, dropout_p=self.dropout if self.training else 0.0, is_causal=True
        )
        y = torch.transpose(y, 1, 2).reshape(B, T, C)
        return self.resid_dropout(self.c_proj(y))


class MLP(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.c_fc = nn.Linear(config.width, 4 * config.width)
        self.gelu = nn.GELU(approximate="tanh")
        self.c_proj = nn.Linear(4 * config.width, config.width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.c_proj(self.gelu(self.c_fc(x))))


class Block(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.width)
        self.attn = CausalSelfAttention(config)
        self.ln_2 = nn.LayerNorm(config.width)
        self.mlp = MLP(config)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(config.vocabulary, config.width),
                "wpe": nn.Embedding(config.context, config.width),
                "drop": nn.Dropout(config.dropout),
                "h": nn.ModuleList([Block(config) for _ in range(config.layers)]),
                "ln_f": nn.LayerNorm(config.width),
            }
        )
        self.lm_head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.lm_head.weight = self.transformer["wte"].weight
        self.apply(self._init_weights)
        for name, parameter in self.named_parameters():
            if name.endswith("c_proj.weight"):
                nn.init.normal_(parameter, mean=0.0, std=0.02 / math.sqrt(2 * config.layers))

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits for the token after each of (B, T) tokens."""
        T = tokens.shape[1]
        if T > self.config.context:
            raise ValueError(f"{T} tokens, but the context has {self.config.context}")
        x = self.transformer["wte"](tokens) + self.transformer["wpe"].weight[:T]
        x = self.transformer["drop"](x)
        for block in self.transformer["h"]:
            x = block(x)
        return self.lm_head(self.transformer["ln_f"](x))

    @torch.no_grad()
    def generate(self, tokens: torch.Tensor, count: int, top_k: int = 1) -> torch.Tensor:
        """Appends ``count`` tokens, each drawn from the ``top_k`` most likely."""
        for _ in range(count):
            logits = self(tokens[:, -self.config.context :])[:, -1]
            values, places = torch.topk(logits, top_k)
            chosen = torch.multinomial(F.softmax(values, dim=-1), 1)
            tokens = torch.cat((tokens, torch.gather(places, 1, chosen)), dim=1)
        return tokens


def build(**options) -> GPT2:
    return GPT2(Config(**options))


def example(batch: int = 2, length: int = 32, vocabulary: int = 50257):
    """Random texts."""
    return (torch.randint(0, vocabulary, (batch, length)),)


def loss(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    logits = model(tokens[:, :-1])
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))
