# SPDX-License-Identifier: BSD-3-Clause
"""Helpers around modules: gradients in bounds, parameters as one vector, construction without
initialization, names in state dicts.
"""

from __future__ import annotations

from modtree import _imports
from modtree.nn.utils import parametrizations, parametrize, prune, rnn, stateless
from modtree.nn.utils.clip_grad import (
    clip_grad_norm,
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)
from modtree.nn.utils.fusion import (
    fuse_conv_bn_eval,
    fuse_conv_bn_weights,
    fuse_linear_bn_eval,
    fuse_linear_bn_weights,
)
from modtree.nn.utils.prefix import consume_prefix_in_state_dict_if_present
from modtree.nn.utils.skip_init import skip_init
from modtree.nn.utils.spectral_norm import remove_spectral_norm, spectral_norm
from modtree.nn.utils.vectors import parameters_to_vector, vector_to_parameters
from modtree.nn.utils.weight_norm import remove_weight_norm, weight_norm

__all__ = [
    "clip_grad_norm",
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "consume_prefix_in_state_dict_if_present",
    "fuse_conv_bn_eval",
    "fuse_conv_bn_weights",
    "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
    "get_total_norm",
    "parameters_to_vector",
    "parametrizations",
    "parametrize",
    "prune",
    "remove_spectral_norm",
    "remove_weight_norm",
    "rnn",
    "skip_init",
    "spectral_norm",
    "stateless",
    "vector_to_parameters",
    "weight_norm",
]

_imports.answer_for_missing(__name__)
