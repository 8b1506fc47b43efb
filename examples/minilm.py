# SPDX-License-Identifier: BSD-3-Clause
"""A BERT encoder in modtree, and what turns it into a sentence embedder.

The names of modules and parameters are those of Hugging Face's ``BertModel``, so that its
checkpoints load with ``load_state_dict(strict=True)``. The encoder runs on tensors of modtree,
torch and jax, whichever its leaves are.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path

import modtree as mt
import modtree.nn.functional as F
from modtree import nn


@dataclass(frozen=True)
class BertConfig:
    """The fields of a checkpoint's ``config.json`` that the encoder needs."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    pad_token_id: int = 0
    layer_norm_eps: float = 1e-12
    hidden_act: str = "gelu"
    position_embedding_type: str = "absolute"

    @classmethod
    def from_file(cls, path: Path) -> BertConfig:
        values = json.loads(path.read_text(encoding="utf-8"))
        known = {field.name for field in fields(cls)}
        return cls(**{key: value for key, value in values.items() if key in known})

    def __post_init__(self) -> None:
        if self.hidden_act != "gelu" or self.position_embedding_type != "absolute":
            raise ValueError(
                "this encoder has exact GELU and absolute positions only, the configuration asks "
                f"for {self.hidden_act!r} and {self.position_embedding_type!r}"
            )


class Embeddings(nn.Module):
    """The sum of word, position and segment vectors, normalized."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.word_embeddings = nn.Embedding(
            config.vocab_size, size, padding_idx=config.pad_token_id
        )
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, size)
        self.LayerNorm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        # A persistent buffer, as in the library that wrote the checkpoint: its key is in the file.
        positions = mt.arange(config.max_position_embeddings).unsqueeze(0)
        self.register_buffer("position_ids", positions)

    def forward(self, input_ids: mt.Tensor, token_type_ids: mt.Tensor) -> mt.Tensor:
        positions = self.position_ids[:, : input_ids.shape[1]]
        x = self.word_embeddings(input_ids) + self.token_type_embeddings(token_type_ids)
        return self.LayerNorm(x + self.position_embeddings(positions))


class SelfAttention(nn.Module):
    """Attention of every token to every token that is not padding."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.heads = config.num_attention_heads
        self.query = nn.Linear(size, size)
        self.key = nn.Linear(size, size)
        self.value = nn.Linear(size, size)

    def forward(self, x: mt.Tensor, mask: mt.Tensor | None) -> mt.Tensor:
        batch, length, size = x.shape

        def split(y: mt.Tensor) -> mt.Tensor:
            return mt.transpose(y.reshape(batch, length, self.heads, -1), 1, 2)

        y = F.scaled_dot_product_attention(
            split(self.query(x)), split(self.key(x)), split(self.value(x)), attn_mask=mask
        )
        return mt.transpose(y, 1, 2).reshape(batch, length, size)


class AddAndNorm(nn.Module):
    """A linear layer whose output is added to ``residual`` and normalized."""

    def __init__(self, in_features: int, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(in_features, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, x: mt.Tensor, residual: mt.Tensor) -> mt.Tensor:
        return self.LayerNorm(self.dense(x) + residual)


class Attention(nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.self = SelfAttention(config)
        self.output = AddAndNorm(config.hidden_size, config)

    def forward(self, x: mt.Tensor, mask: mt.Tensor | None) -> mt.Tensor:
        return self.output(self.self(x, mask), x)


class Intermediate(nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size)

    def forward(self, x: mt.Tensor) -> mt.Tensor:
        return F.gelu(self.dense(x))


class Layer(nn.Module):
    """One transformer layer: attention, then two linear layers with GELU between."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.intermediate = Intermediate(config)
        self.output = AddAndNorm(config.intermediate_size, config)

    def forward(self, x: mt.Tensor, mask: mt.Tensor | None) -> mt.Tensor:
        x = self.attention(x, mask)
        return self.output(self.intermediate(x), x)


class Encoder(nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.layer = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))

    def forward(self, x: mt.Tensor, mask: mt.Tensor | None) -> mt.Tensor:
        for layer in self.layer:
            x = layer(x, mask)
        return x


class Pooler(nn.Module):
    """BERT's own summary of a text. Sentence embeddings do not use it, but it is in the
    checkpoint.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, x: mt.Tensor) -> mt.Tensor:
        return F.tanh(self.dense(x[:, 0]))


class BertModel(nn.Module):
    """Token vectors of texts.

    ``forward`` takes token ids (batch, length) and, where texts were padded, ``attention_mask``: 1
    for tokens, 0 for padding. It returns the last layer's vectors (batch, length, hidden size).
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.embeddings = Embeddings(config)
        self.encoder = Encoder(config)
        self.pooler = Pooler(config)

    def forward(
        self,
        input_ids: mt.Tensor,
        attention_mask: mt.Tensor | None = None,
        token_type_ids: mt.Tensor | None = None,
    ) -> mt.Tensor:
        if token_type_ids is None:
            token_type_ids = mt.zeros_like(input_ids)
        mask = None
        if attention_mask is not None:
            mask = (attention_mask != 0).reshape(len(attention_mask), 1, 1, -1)
        return self.encoder(self.embeddings(input_ids, token_type_ids), mask)


def mean_pool(vectors: mt.Tensor, attention_mask: mt.Tensor) -> mt.Tensor:
    """The mean of each text's token vectors, padding left out, scaled to length 1."""
    weight = mt.where(attention_mask != 0, 1.0, 0.0)[..., None]
    mean = mt.sum(vectors * weight, dim=1) / mt.clamp(mt.sum(weight, dim=1), min=1e-9)
    return F.normalize(mean, p=2, dim=1)
