# SPDX-License-Identifier: BSD-3-Clause
"""Functions on tensors that layers are made of, under torch's names and with torch's arguments.

They take :class:`modtree.Tensor` and run in NumPy and in small native kernels. Tensors of torch and
jax run in the functions of their library.
"""

from __future__ import annotations

from modtree import _imports
from modtree.nn.functional.activation import *
from modtree.nn.functional.basic import *
from modtree.nn.functional.convolution import *
from modtree.nn.functional.dropout import *
from modtree.nn.functional.loss import *
from modtree.nn.functional.margin_loss import *
from modtree.nn.functional.multi_head import multi_head_attention_forward
from modtree.nn.functional.normalization import *
from modtree.nn.functional.padding import *
from modtree.nn.functional.pooling import *
from modtree.nn.functional.sampling import *
from modtree.nn.functional.sequence_loss import *
from modtree.nn.functional.sparse import *
from modtree.nn.functional.unpooling import *
from modtree.nn.functional.vision import *
from modtree.numpy.ops.overridable import overridable_all

# Written out: checkers do not read a sum of the parts' lists.
# fmt: off
__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d", "adaptive_max_pool3d_with_indices", "affine_grid", "alpha_dropout",
    "avg_pool1d", "avg_pool2d", "avg_pool3d", "batch_norm", "bilinear", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "celu", "celu_", "channel_shuffle", "conv1d", "conv2d",
    "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cosine_embedding_loss",
    "cosine_similarity", "cross_entropy", "ctc_loss", "dropout", "dropout1d", "dropout2d",
    "dropout3d", "elu", "elu_", "embedding", "embedding_bag", "feature_alpha_dropout", "fold",
    "gaussian_nll_loss", "gelu", "glu", "grid_sample", "group_norm", "gumbel_softmax", "hardshrink",
    "hardsigmoid", "hardswish", "hardtanh", "hardtanh_", "hinge_embedding_loss", "huber_loss",
    "instance_norm", "interpolate", "kl_div", "l1_loss", "layer_norm", "leaky_relu", "leaky_relu_",
    "linear", "local_response_norm", "log_softmax", "logsigmoid", "margin_ranking_loss",
    "max_pool1d", "max_pool1d_with_indices", "max_pool2d", "max_pool2d_with_indices", "max_pool3d",
    "max_pool3d_with_indices", "max_unpool1d", "max_unpool2d", "max_unpool3d", "mish", "mse_loss",
    "multi_head_attention_forward", "multi_margin_loss", "nll_loss", "normalize", "one_hot", "pad",
    "pairwise_distance", "pixel_shuffle", "pixel_unshuffle", "poisson_nll_loss", "prelu", "relu",
    "relu6", "relu_", "rms_norm", "rrelu", "rrelu_", "scaled_dot_product_attention", "selu",
    "selu_", "sigmoid", "silu", "smooth_l1_loss", "soft_margin_loss", "softmax", "softmin",
    "softplus", "softshrink", "softsign", "tanh", "tanhshrink", "threshold", "threshold_",
    "triplet_margin_loss", "triplet_margin_with_distance_loss", "unfold",
]
# fmt: on
overridable_all(globals(), __all__, elsewhere="")

_imports.answer_for_missing(__name__)
