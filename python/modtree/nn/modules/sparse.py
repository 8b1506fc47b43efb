# SPDX-License-Identifier: BSD-3-Clause
"""Embeddings, under torch's path."""

from __future__ import annotations

from modtree.nn.embedding import Embedding, EmbeddingBag

__all__ = ["Embedding", "EmbeddingBag"]
