# SPDX-License-Identifier: BSD-3-Clause
"""Transformers, under torch's path."""

from __future__ import annotations

from modtree.nn.transformer import Transformer, TransformerDecoder, TransformerEncoder
from modtree.nn.transformer import _causal_mask as _generate_square_subsequent_mask
from modtree.nn.transformer import _clones as _get_clones
from modtree.nn.transformer_layer import TransformerDecoderLayer, TransformerEncoderLayer
from modtree.nn.transformer_layer import activation_of as _get_activation_fn

__all__ = [
    "_generate_square_subsequent_mask",
    "_get_clones",
    "_get_activation_fn",
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]
