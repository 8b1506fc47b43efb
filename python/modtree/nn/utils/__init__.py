# SPDX-License-Identifier: BSD-3-Clause
"""Helpers around modules: parameters as one vector, construction without initialization, names in state dicts."""

from __future__ import annotations

from .prefix import consume_prefix_in_state_dict_if_present
from .skip_init import skip_init
from .vectors import parameters_to_vector, vector_to_parameters

__all__ = [
    "consume_prefix_in_state_dict_if_present",
    "parameters_to_vector",
    "skip_init",
    "vector_to_parameters",
]
