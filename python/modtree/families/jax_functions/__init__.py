# SPDX-License-Identifier: BSD-3-Clause
"""Functions on jax arrays by torch's names and with torch's arguments: what ``modtree.nn`` and
``nn.functional`` run on where leaves or inputs are arrays of jax.

They can be called themselves, and then take ``key`` where numbers are drawn.
"""

from __future__ import annotations

from modtree.families.jax_functions.activation import *
from modtree.families.jax_functions.attention import *
from modtree.families.jax_functions.convolution import *
from modtree.families.jax_functions.dropout import *
from modtree.families.jax_functions.keys import hold_key, keys
from modtree.families.jax_functions.linear import *
from modtree.families.jax_functions.loss import *
from modtree.families.jax_functions.normalization import *
from modtree.families.jax_functions.pointwise import *
from modtree.families.jax_functions.pooling import *
from modtree.families.jax_functions.recurrent import recurrence
from modtree.families.jax_functions.shapes import *
from modtree.families.jax_functions.vision import *

# Written out: checkers do not read a sum of the parts' lists.
# fmt: off
__all__ = [
    "abs", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d",
    "adaptive_max_pool1d", "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d",
    "adaptive_max_pool2d_with_indices", "adaptive_max_pool3d",
    "adaptive_max_pool3d_with_indices", "add", "affine_grid", "alpha_dropout", "amax", "amin",
    "arange", "argmax", "argmin", "avg_pool1d", "avg_pool2d", "avg_pool3d", "batch_norm",
    "batch_norm_and_statistics", "bilinear", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "bmm", "broadcast_to", "cat", "ceil", "celu", "celu_",
    "channel_shuffle", "chunk", "clamp", "conv1d", "conv2d", "conv3d", "conv_tbc",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cos", "cosh",
    "cosine_embedding_loss", "cosine_similarity", "cross_entropy", "cumsum", "detach", "div",
    "dropout", "dropout1d", "dropout2d", "dropout3d", "einsum", "elu", "elu_", "embedding",
    "embedding_bag", "empty_like", "erf", "exp", "exp2", "expm1", "feature_alpha_dropout",
    "flatten", "flip", "floor", "fold", "full", "full_like", "gather", "gaussian_nll_loss",
    "gelu", "glu", "group_norm", "gumbel_softmax", "hardshrink", "hardsigmoid", "hardswish",
    "hardtanh", "hardtanh_", "hinge_embedding_loss", "hold_key", "huber_loss", "index_select",
    "instance_norm", "instance_norm_and_statistics", "interpolate", "isfinite", "isinf",
    "isnan", "keys", "kl_div", "l1_loss", "layer_norm", "leaky_relu", "leaky_relu_", "linear",
    "local_response_norm", "log", "log10", "log1p", "log2", "log_softmax", "logaddexp",
    "logical_and", "logical_not", "logical_or", "logical_xor", "logsigmoid", "logsumexp",
    "lp_pool1d", "lp_pool2d", "lp_pool3d", "margin_ranking_loss", "masked_fill", "matmul",
    "max", "max_pool1d", "max_pool1d_with_indices", "max_pool2d", "max_pool2d_with_indices",
    "max_pool3d", "max_pool3d_with_indices", "maximum", "mean", "min", "minimum", "mish",
    "movedim", "mse_loss", "mul", "multi_head_attention_forward", "multi_margin_loss",
    "multilabel_soft_margin_loss", "multinomial", "native_channel_shuffle", "neg", "new_zeros",
    "nll_loss", "norm", "normalize", "one_hot", "ones", "ones_like", "outer", "pad",
    "pairwise_distance", "permute", "pixel_shuffle", "pixel_unshuffle", "poisson_nll_loss",
    "pow", "prelu", "recurrence", "relu", "relu6", "relu_", "repeat_interleave", "reshape",
    "rms_norm", "roll", "rrelu", "rrelu_", "rsqrt", "scaled_dot_product_attention", "selu",
    "selu_", "sigmoid", "sign", "silu", "sin", "sinh", "smooth_l1_loss", "soft_margin_loss",
    "softmax", "softmin", "softplus", "softshrink", "softsign", "sort", "split", "sqrt",
    "square", "squeeze", "stack", "std", "sub", "sum", "swapaxes", "tan", "tanh", "tanhshrink",
    "threshold", "threshold_", "topk", "transpose", "tril", "triplet_margin_loss", "triu",
    "trunc", "unbind", "unflatten", "unfold", "unsqueeze", "var", "where", "zeros",
    "zeros_like",
]
# fmt: on
