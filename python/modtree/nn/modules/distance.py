# SPDX-License-Identifier: BSD-3-Clause
"""Distances, under torch's path."""

from __future__ import annotations

from modtree.nn.distance import CosineSimilarity, PairwiseDistance

__all__ = ["CosineSimilarity", "PairwiseDistance"]
