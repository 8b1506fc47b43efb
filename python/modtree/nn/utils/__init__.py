# SPDX-License-Identifier: BSD-3-Clause
"""Helpers around modules: gradients in bounds, parameters as one vector, construction without initialization, names in state dicts."""

from __future__ import annotations

from . import rnn, stateless
from .clip_grad import (
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)
from .prefix import consume_prefix_in_state_dict_if_present
from .skip_init import skip_init
from .spectral_norm import remove_spectral_norm, spectral_norm
from .vectors import parameters_to_vector, vector_to_parameters
from .weight_norm import remove_weight_norm, weight_norm

__all__ = [
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "consume_prefix_in_state_dict_if_present",
    "get_total_norm",
    "parameters_to_vector",
    "remove_spectral_norm",
    "remove_weight_norm",
    "rnn",
    "skip_init",
    "spectral_norm",
    "stateless",
    "vector_to_parameters",
    "weight_norm",
]
