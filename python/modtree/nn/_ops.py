# SPDX-License-Identifier: BSD-3-Clause
"""The rows that :mod:`modtree.nn.functional` adds to the operations of tensors: each call passes their dispatch point."""

from __future__ import annotations

from .._C import Op
from . import _arrays as a

linear = Op("linear", a.linear, meta=a.linear_meta)
embedding = Op("embedding", a.embedding, meta=a.embedding_meta)
layer_norm = Op("layer_norm", a.layer_norm, meta=a.layer_norm_meta)
gelu = Op("gelu", a.gelu, meta=a.same_meta)
relu = Op("relu", a.relu, meta=a.same_meta)
silu = Op("silu", a.silu, meta=a.same_meta)
sigmoid = Op("sigmoid", a.sigmoid, promote="floating", operands=1, meta=a.same_meta)
softmax = Op("softmax", a.softmax, meta=a.same_meta)
log_softmax = Op("log_softmax", a.log_softmax, meta=a.same_meta)
attention = Op("scaled_dot_product_attention", a.attention, meta=a.attention_meta)
vector_norm = Op("vector_norm", a.vector_norm, meta=a.vector_norm_meta)
