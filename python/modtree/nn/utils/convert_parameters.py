# SPDX-License-Identifier: BSD-3-Clause
"""Parameters as one vector, under torch's path."""

from __future__ import annotations

from modtree.nn.utils.vectors import parameters_to_vector, vector_to_parameters

__all__ = ["parameters_to_vector", "vector_to_parameters"]
