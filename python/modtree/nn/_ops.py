# SPDX-License-Identifier: BSD-3-Clause
"""The rows that :mod:`modtree.nn.functional` adds to the table of operations, and those it uses from there."""

from __future__ import annotations

from ..ops.table import define, ops
from . import _arrays as a

linear = define("linear", a.linear, meta=a.linear_meta)
embedding = define("embedding", a.embedding, meta=a.embedding_meta)
layer_norm = define("layer_norm", a.layer_norm, meta=a.layer_norm_meta)
gelu = define("gelu", a.gelu, meta=a.same_meta)
silu = define("silu", a.silu, meta=a.same_meta)
attention = define("scaled_dot_product_attention", a.attention, meta=a.attention_meta)

relu = ops["relu"]
sigmoid = ops["sigmoid"]
softmax = ops["softmax"]
log_softmax = ops["log_softmax"]
