# SPDX-License-Identifier: BSD-3-Clause
"""Stacks of transformer layers, and the whole transformer."""

from __future__ import annotations

import copy
from typing import Any

from modtree.core.containers import ModuleList
from modtree.core.module import Module
from modtree.nn import functional as F
from modtree.nn import init
from modtree.nn.normalization import LayerNorm
from modtree.nn.transformer_layer import (
    Activation,
    TransformerDecoderLayer,
    TransformerEncoderLayer,
)
from modtree.numpy.tensor.creation import full
from modtree.numpy.tensor.tensor import Tensor

__all__ = ["Transformer", "TransformerDecoder", "TransformerEncoder"]


def _causal_mask(size: int, device: Any = None, dtype: Any = None) -> Tensor:
    """(size, size): -inf above the diagonal, else 0."""
    return full((size, size), float("-inf"), device=device, dtype=dtype).triu(1)


def _is_causal(mask: Tensor | None, given: bool | None, size: int) -> bool:
    """Is the mask the causal one? What the caller says counts; told nothing, look."""
    if given is not None or mask is None or not isinstance(mask, Tensor) or mask.is_meta:
        return given is True
    if tuple(mask.shape[-2:]) != (size, size):
        return False
    if not mask.is_floating_point():
        return False
    return bool((mask == _causal_mask(size, mask.device, mask.dtype)).all())


def _length(x: Tensor, batch_first: bool) -> int:
    return x.shape[1 if x.ndim == 3 and batch_first else 0]


def _clones(layer: Module, count: int) -> ModuleList:
    return ModuleList([copy.deepcopy(layer) for _ in range(count)])


class TransformerEncoder(Module):
    """Copies of an encoder layer, one after the other.

    Args:
        encoder_layer: The layer; its copies start with the same values.
        num_layers: Number of copies.
        norm: Applied to the output, or None.
        enable_nested_tensor: Accepted for compatibility; padding is computed, and masked.
        mask_check: Accepted for compatibility.

    Shape:
        - src and output: (S, N, d_model), with ``batch_first`` (N, S, d_model); without a batch
          (S, d_model).
    """

    def __init__(
        self,
        encoder_layer: TransformerEncoderLayer,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = _clones(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm
        self.enable_nested_tensor = enable_nested_tensor
        self.use_nested_tensor = False
        self.mask_check = mask_check

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """Transforms a sequence. ``is_causal`` says whether ``mask`` is the causal one; by default
        that is looked up.
        """
        first = self.layers[0].self_attn.batch_first if len(self.layers) else False
        causal = _is_causal(mask, is_causal, _length(src, first))
        output = src
        for layer in self.layers:
            output = layer(
                output,
                src_mask=mask,
                is_causal=causal,
                src_key_padding_mask=src_key_padding_mask,
            )
        return output if self.norm is None else self.norm(output)


class TransformerDecoder(Module):
    """Copies of a decoder layer, one after the other; arguments as
    :class:`TransformerEncoder`'s.

    Args:
        decoder_layer: The layer; its copies start with the same values.
        num_layers: Number of copies.
        norm: Applied to the output, or None.

    Shape:
        - tgt and output: (T, N, d_model), with ``batch_first`` (N, T, d_model); without a batch
          (T, d_model).
        - memory: (S, N, d_model), likewise.
    """

    def __init__(
        self,
        decoder_layer: TransformerDecoderLayer,
        num_layers: int,
        norm: Module | None = None,
    ) -> None:
        super().__init__()
        self.layers = _clones(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Transforms ``tgt`` with a look at ``memory``, the encoder's output."""
        first = self.layers[0].self_attn.batch_first if len(self.layers) else False
        causal = _is_causal(tgt_mask, tgt_is_causal, _length(tgt, first))
        output = tgt
        for layer in self.layers:
            output = layer(
                output,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=causal,
                memory_is_causal=memory_is_causal,
            )
        return output if self.norm is None else self.norm(output)


class Transformer(Module):
    """Encoder and decoder (Vaswani et al., 2017).

    Args:
        d_model: Width of the sequences.
        nhead: Number of heads.
        num_encoder_layers: Number of encoder layers.
        num_decoder_layers: Number of decoder layers.
        dim_feedforward: Width between the linear layers.
        dropout: Probability of dropping a value, while training.
        activation: "relu", "gelu" or a function.
        custom_encoder: Takes the encoder's place.
        custom_decoder: Takes the decoder's place.
        layer_norm_eps: The eps of the layer norms.
        batch_first: Sequences are (batch, length, width) instead of (length, batch, width).
        norm_first: Normalize before attention and linear layers, instead of after the sums.
        bias: False leaves all biases out.
        device: Where the parameters are made.
        dtype: Their dtype.

    Shape:
        - src: (S, N, d_model), with ``batch_first`` (N, S, d_model); without a batch (S,
          d_model).
        - tgt and output: (T, N, d_model), likewise.
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Activation = F.relu,
        custom_encoder: Any = None,
        custom_decoder: Any = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        where: dict[str, Any] = {"bias": bias, "device": device, "dtype": dtype}
        super().__init__()
        options = (dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first)
        if custom_encoder is not None:
            self.encoder = custom_encoder
        else:
            self.encoder = TransformerEncoder(
                TransformerEncoderLayer(d_model, nhead, *options, **where),
                num_encoder_layers,
                LayerNorm(d_model, eps=layer_norm_eps, **where),
            )
        if custom_decoder is not None:
            self.decoder = custom_decoder
        else:
            self.decoder = TransformerDecoder(
                TransformerDecoderLayer(d_model, nhead, *options, **where),
                num_decoder_layers,
                LayerNorm(d_model, eps=layer_norm_eps, **where),
            )
        self._reset_parameters()
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Encodes ``src``, and decodes ``tgt`` with a look at it.

        Args:
            src: (S, N, E), with ``batch_first`` (N, S, E); without a batch (S, E).
            tgt: (T, N, E), likewise.
            src_mask: (S, S) or (N * nhead, S, S); True, or -inf, for pairs to leave out.
            tgt_mask: (T, T) or (N * nhead, T, T).
            memory_mask: (T, S).
            src_key_padding_mask: (N, S) or (S); True, or -inf, for positions to leave out.
            tgt_key_padding_mask: (N, T) or (T).
            memory_key_padding_mask: (N, S) or (S).
            src_is_causal: ``src_mask`` is the causal mask; by default that is looked up.
            tgt_is_causal: Likewise.
            memory_is_causal: ``memory_mask`` is the causal mask.
        """
        batch = 0 if self.batch_first else 1
        if src.ndim == 3 and src.shape[batch] != tgt.shape[batch]:
            raise RuntimeError("the batch number of src and tgt must be equal")
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise RuntimeError("the feature number of src and tgt must be equal to d_model")
        memory = self.encoder(
            src,
            mask=src_mask,
            src_key_padding_mask=src_key_padding_mask,
            is_causal=src_is_causal,
        )
        return self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """The causal mask: (sz, sz) with -inf above the diagonal, else 0."""
        return _causal_mask(sz, device, dtype)

    def _reset_parameters(self) -> None:
        for weight in self.parameters():
            if weight.dim() > 1:
                init.xavier_uniform_(weight)
