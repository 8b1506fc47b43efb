# SPDX-License-Identifier: BSD-3-Clause
"""The rows that :mod:`modtree.nn.functional` adds to the table of operations, one file per kind.

A file holds the function on arrays, its rule for tensors without values (``<name>_meta``: the same arguments, giving ``(shape, dtype)``), its
derivative, and the row made of them.
"""

from __future__ import annotations

from ...ops.table import ops
from .activation import (
    gelu,
    log_softmax,
    logsigmoid,
    mish,
    relu,
    sigmoid,
    silu,
    softmax,
    softplus,
    softsign,
)
from .attention import attention
from .batch_norm import batch_norm
from .convolution import conv_transpose, convolution
from .cross_entropy import cross_entropy, nll_loss
from .embedding import embedding
from .embedding_bag import embedding_bag
from .folding import fold, unfold
from .group_norm import group_norm
from .gru import gru
from .layer_norm import layer_norm
from .linear import linear
from .loss import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    huber_loss,
    kl_div,
    l1_loss,
    mse_loss,
    smooth_l1_loss,
)
from .lstm import lstm
from .piecewise import (
    elu,
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    leaky_relu,
    prelu,
    softshrink,
    threshold,
)
from .pooling import adaptive_max_pool, avg_pool, max_pool, max_pool_with_indices
from .recurrent import rnn
from .resampling import resample
from .rms_norm import rms_norm

pad = ops["pad"]

__all__ = [
    "adaptive_max_pool",
    "attention",
    "avg_pool",
    "batch_norm",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "conv_transpose",
    "convolution",
    "cross_entropy",
    "elu",
    "embedding",
    "embedding_bag",
    "fold",
    "gelu",
    "group_norm",
    "gru",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "linear",
    "log_softmax",
    "logsigmoid",
    "lstm",
    "max_pool",
    "max_pool_with_indices",
    "mish",
    "mse_loss",
    "nll_loss",
    "pad",
    "prelu",
    "relu",
    "resample",
    "rms_norm",
    "rnn",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "softmax",
    "softplus",
    "softshrink",
    "softsign",
    "threshold",
    "unfold",
]
