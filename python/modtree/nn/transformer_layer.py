# SPDX-License-Identifier: BSD-3-Clause
"""One layer of a transformer's encoder, one of its decoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from modtree.core.module import Module
from modtree.nn import functional as F
from modtree.nn.activation import GELU, ReLU
from modtree.nn.attention import MultiheadAttention
from modtree.nn.dropout import Dropout
from modtree.nn.linear import Linear
from modtree.nn.normalization import LayerNorm
from modtree.numpy.tensor.tensor import Tensor

__all__ = ["TransformerDecoderLayer", "TransformerEncoderLayer"]

Activation = Callable[[Tensor], Tensor]


def activation_of(value: str | Activation) -> Activation:
    if not isinstance(value, str):
        return value
    if value not in ("relu", "gelu"):
        raise RuntimeError(f"activation should be relu/gelu, not {value}")
    return F.relu if value == "relu" else F.gelu


class _TransformerLayer(Module):
    """Attentions, then two linear layers with an activation between; each of these blocks has a
    layer norm and a dropout, which are numbered.
    """

    _attentions: ClassVar[tuple[str, ...]] = ("self_attn",)

    norm_first: bool
    self_attn: MultiheadAttention
    norm1: LayerNorm
    norm2: LayerNorm
    dropout1: Dropout
    dropout2: Dropout

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Activation = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        where: dict[str, Any] = {"bias": bias, "device": device, "dtype": dtype}
        super().__init__()
        for name in self._attentions:
            attention = MultiheadAttention(
                d_model, nhead, dropout=dropout, batch_first=batch_first, **where
            )
            setattr(self, name, attention)
        self.linear1 = Linear(d_model, dim_feedforward, **where)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, **where)
        self.norm_first = norm_first
        blocks = range(1, len(self._attentions) + 2)
        for i in blocks:
            setattr(self, f"norm{i}", LayerNorm(d_model, eps=layer_norm_eps, **where))
        for i in blocks:
            setattr(self, f"dropout{i}", Dropout(dropout))
        self._set_activation(activation_of(activation))

    def _set_activation(self, activation: Activation) -> None:
        self.activation = activation

    def _sa_block(
        self,
        x: Tensor,
        attn_mask: Tensor | None,
        key_padding_mask: Tensor | None,
        is_causal: bool = False,
    ) -> Tensor:
        x = self.self_attn(
            x,
            x,
            x,
            attn_mask=attn_mask,
            key_padding_mask=key_padding_mask,
            need_weights=False,
            is_causal=is_causal,
        )[0]
        return self.dropout1(x)


class TransformerEncoderLayer(_TransformerLayer):
    """Self attention, then two linear layers with an activation between; each with dropout, a
    residual sum and a layer norm.

    Args:
        d_model: Width of the sequence.
        nhead: Number of heads.
        dim_feedforward: Width between the linear layers.
        dropout: Probability of dropping a value, while training.
        activation: "relu", "gelu" or a function.
        layer_norm_eps: The eps of the layer norms.
        batch_first: Sequences are (batch, length, width) instead of (length, batch, width).
        norm_first: Normalize before attention and linear layers, instead of after the sums.
        bias: False leaves all biases out.
        device: Where the parameters are made.
        dtype: Their dtype.

    Shape:
        - src and output: (S, N, d_model), with ``batch_first`` (N, S, d_model); without a batch
          (S, d_model).
    """

    def _set_activation(self, activation: Activation) -> None:
        self.activation_relu_or_gelu = 0
        if activation is F.relu or isinstance(activation, ReLU):
            self.activation_relu_or_gelu = 1
        elif activation is F.gelu or isinstance(activation, GELU):
            self.activation_relu_or_gelu = 2
        super()._set_activation(activation)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """The sequence, transformed. Masks are as :meth:`MultiheadAttention.forward` takes them;
        ``is_causal``: ``src_mask`` is causal.
        """
        x = src
        masks = (src_mask, src_key_padding_mask, is_causal)
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), *masks)
            return x + self._ff_block(self.norm2(x))
        x = self.norm1(x + self._sa_block(x, *masks))
        return self.norm2(x + self._ff_block(x))

    def _ff_block(self, x: Tensor) -> Tensor:
        x = self.linear2(self.dropout(self.activation(self.linear1(x))))
        return self.dropout2(x)


class TransformerDecoderLayer(_TransformerLayer):
    """Self attention, attention to the encoder's output, then two linear layers; arguments as
    :class:`TransformerEncoderLayer`'s.

    Args:
        d_model: Width of the sequences.
        nhead: Number of heads.
        dim_feedforward: Width between the linear layers.
        dropout: Probability of dropping a value, while training.
        activation: "relu", "gelu" or a function.
        layer_norm_eps: The eps of the layer norms.
        batch_first: Sequences are (batch, length, width) instead of (length, batch, width).
        norm_first: Normalize before attention and linear layers, instead of after the sums.
        bias: False leaves all biases out.
        device: Where the parameters are made.
        dtype: Their dtype.

    Shape:
        - tgt and output: (T, N, d_model), with ``batch_first`` (N, T, d_model); without a batch
          (T, d_model).
        - memory: (S, N, d_model), likewise.
    """

    _attentions = ("self_attn", "multihead_attn")

    multihead_attn: MultiheadAttention
    norm3: LayerNorm
    dropout3: Dropout

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """The sequence ``tgt``, transformed with a look at ``memory``, the encoder's output."""
        x = tgt
        own = (tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        other = (memory, memory_mask, memory_key_padding_mask, memory_is_causal)
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), *own)
            x = x + self._mha_block(self.norm2(x), *other)
            return x + self._ff_block(self.norm3(x))
        x = self.norm1(x + self._sa_block(x, *own))
        x = self.norm2(x + self._mha_block(x, *other))
        return self.norm3(x + self._ff_block(x))

    def _mha_block(
        self,
        x: Tensor,
        mem: Tensor,
        attn_mask: Tensor | None,
        key_padding_mask: Tensor | None,
        is_causal: bool = False,
    ) -> Tensor:
        x = self.multihead_attn(
            x,
            mem,
            mem,
            attn_mask=attn_mask,
            key_padding_mask=key_padding_mask,
            is_causal=is_causal,
            need_weights=False,
        )[0]
        return self.dropout2(x)

    def _ff_block(self, x: Tensor) -> Tensor:
        x = self.linear2(self.dropout(self.activation(self.linear1(x))))
        return self.dropout3(x)
