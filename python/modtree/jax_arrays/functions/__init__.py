# SPDX-License-Identifier: BSD-3-Clause
"""Functions on jax arrays by torch's names and with torch's arguments: what ``modtree.nn`` and
``nn.functional`` run on where leaves or inputs are arrays of jax.

They can be called themselves, and then take ``key`` where numbers are drawn.
"""

from __future__ import annotations

from modtree.jax_arrays.functions.activation import *
from modtree.jax_arrays.functions.attention import *
from modtree.jax_arrays.functions.convolution import *
from modtree.jax_arrays.functions.drawing import *
from modtree.jax_arrays.functions.dropout import *
from modtree.jax_arrays.functions.keys import hold_key, keys
from modtree.jax_arrays.functions.linear import *
from modtree.jax_arrays.functions.loss import *
from modtree.jax_arrays.functions.margin_loss import *
from modtree.jax_arrays.functions.normalization import *
from modtree.jax_arrays.functions.pointwise import *
from modtree.jax_arrays.functions.pooling import *
from modtree.jax_arrays.functions.products import *
from modtree.jax_arrays.functions.recurrent import recurrence
from modtree.jax_arrays.functions.reductions import *
from modtree.jax_arrays.functions.sampling import *
from modtree.jax_arrays.functions.selection import *
from modtree.jax_arrays.functions.sequence_loss import *
from modtree.jax_arrays.functions.shapes import *
from modtree.jax_arrays.functions.vision import *

# Written out: checkers do not read a sum of the parts' lists.
# fmt: off
__all__ = [
    "abs", "acos", "acosh", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d",
    "adaptive_max_pool1d", "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d",
    "adaptive_max_pool2d_with_indices", "adaptive_max_pool3d", "adaptive_max_pool3d_with_indices",
    "add", "addcdiv", "addcmul", "addmm", "affine_grid", "all", "allclose", "alpha_dropout", "amax",
    "amin", "any", "arange", "argmax", "argmin", "argsort", "asarray", "asin", "asinh", "atan",
    "atan2", "atanh", "avg_pool1d", "avg_pool2d", "avg_pool3d", "baddbmm", "batch_norm",
    "batch_norm_and_statistics", "bernoulli", "bilinear", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "bitwise_and", "bitwise_left_shift", "bitwise_not",
    "bitwise_or", "bitwise_right_shift", "bitwise_xor", "bmm", "broadcast_tensors", "broadcast_to",
    "cat", "ceil", "celu", "celu_", "channel_shuffle", "chunk", "clamp", "clamp_max", "clamp_min",
    "clone", "conj", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "cos", "cosh", "cosine_embedding_loss", "cosine_similarity",
    "count_nonzero", "cross", "cross_entropy", "ctc_loss", "cumprod", "cumsum", "detach", "diag",
    "diagonal", "digamma", "div", "dot", "dropout", "dropout1d", "dropout2d", "dropout3d", "einsum",
    "elu", "elu_", "embedding", "embedding_bag", "empty_like", "eq", "equal", "erf", "erfinv",
    "exp", "expm1", "feature_alpha_dropout", "flatten", "flip", "floor", "floor_divide", "fmod",
    "fold", "full", "full_like", "gather", "gaussian_nll_loss", "ge", "gelu", "glu", "grid_sample",
    "group_norm", "gt", "gumbel_softmax", "hardshrink", "hardsigmoid", "hardswish", "hardtanh",
    "hardtanh_", "hinge_embedding_loss", "hold_key", "hstack", "huber_loss", "imag", "index_add",
    "index_select", "instance_norm", "instance_norm_and_statistics", "interpolate", "is_complex",
    "is_floating_point", "isclose", "isfinite", "isinf", "isnan", "keys", "kl_div", "l1_loss",
    "layer_norm", "le", "leaky_relu", "leaky_relu_", "lerp", "lgamma", "linear",
    "local_response_norm", "log", "log10", "log1p", "log2", "log_softmax", "logaddexp",
    "logcumsumexp", "logical_and", "logical_not", "logical_or", "logical_xor", "logit",
    "logsigmoid", "logsumexp", "lt", "margin_ranking_loss", "masked_fill", "masked_select",
    "matmul", "matrix_exp", "max", "max_pool1d", "max_pool1d_with_indices", "max_pool2d",
    "max_pool2d_with_indices", "max_pool3d", "max_pool3d_with_indices", "max_unpool1d",
    "max_unpool2d", "max_unpool3d", "maximum", "mean", "meshgrid", "min", "minimum", "mish", "mm",
    "movedim", "mse_loss", "mul", "multi_head_attention_forward", "multi_margin_loss",
    "multinomial", "mv", "nan_to_num", "narrow", "ne", "neg", "new_zeros", "nll_loss", "nonzero",
    "norm", "normalize", "numel", "one_hot", "ones", "ones_like", "outer", "pad",
    "pairwise_distance", "permute", "pixel_shuffle", "pixel_unshuffle", "poisson_nll_loss", "pow",
    "prelu", "prod", "rand_like", "randn_like", "ravel", "real", "reciprocal", "recurrence", "relu",
    "relu6", "relu_", "remainder", "repeat_interleave", "reshape", "rms_norm", "roll", "round",
    "rrelu", "rrelu_", "rsqrt", "scaled_dot_product_attention", "scatter", "scatter_add", "select",
    "selu", "selu_", "sgn", "sigmoid", "sign", "silu", "sin", "sinh", "smooth_l1_loss",
    "soft_margin_loss", "softmax", "softmin", "softplus", "softshrink", "softsign", "sort", "split",
    "sqrt", "square", "squeeze", "stack", "std", "std_mean", "sub", "sum", "swapaxes", "t",
    "take_along_dim", "tan", "tanh", "tanhshrink", "tensordot", "threshold", "threshold_", "tile",
    "topk", "trace", "transpose", "tril", "triplet_margin_loss",
    "triplet_margin_with_distance_loss", "triu", "true_divide", "trunc", "unbind", "unflatten",
    "unfold", "unsqueeze", "var", "var_mean", "vdot", "vstack", "where", "zeros", "zeros_like",
]
# fmt: on
