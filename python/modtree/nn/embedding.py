# SPDX-License-Identifier: BSD-3-Clause
"""A table of vectors looked up by integers."""

from __future__ import annotations

from typing import Any

from modtree._module.module import Module
from modtree._module.parameter import Parameter
from modtree._tensor.creation import empty
from modtree._tensor.grad_mode import no_grad
from modtree._tensor.tensor import Tensor
from modtree.nn import functional as F
from modtree.nn import init

__all__ = ["Embedding"]


class Embedding(Module):
    """Looks rows up in a table of ``num_embeddings`` vectors of ``embedding_dim`` values.

    Args:
        num_embeddings: Number of rows.
        embedding_dim: Width of a row.
        padding_idx: This row starts as zeros and gets no gradient; may count from the end.
        max_norm: Rows with a larger norm are scaled down to it when they are looked up.
        norm_type: The p of that norm.
        scale_grad_by_freq: Divide gradients by how often the row occurs in the batch.
        sparse: Accepted for compatibility; gradients are dense.
        device: Where the table is made.
        dtype: Its dtype.

    Parameter: ``weight`` (num_embeddings, embedding_dim), drawn from the standard normal
    distribution.
    """

    num_embeddings: int
    embedding_dim: int
    padding_idx: int | None
    max_norm: float | None
    norm_type: float
    scale_grad_by_freq: bool
    weight: Tensor
    sparse: bool

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise AssertionError(
                    f"Padding_idx must be within num_embeddings: got {padding_idx} for "
                    f"{num_embeddings} rows"
                )
            padding_idx %= num_embeddings
        self.padding_idx = padding_idx
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        if _weight is None:
            table = empty((num_embeddings, embedding_dim), device=device, dtype=dtype)
            self.weight = Parameter(table, requires_grad=not _freeze)
            self.reset_parameters()
        else:
            if tuple(_weight.shape) != (num_embeddings, embedding_dim):
                raise AssertionError(
                    "Shape of weight does not match num_embeddings and embedding_dim: got "
                    f"{tuple(_weight.shape)}, expected {(num_embeddings, embedding_dim)}"
                )
            self.weight = Parameter(_weight, requires_grad=not _freeze)
        self.sparse = sparse

    def reset_parameters(self) -> None:
        """Draws the table anew; the padding row becomes zeros."""
        init.normal_(self.weight)
        self._fill_padding_idx_with_zero()

    def _fill_padding_idx_with_zero(self) -> None:
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx].fill_(0)

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(
            input,
            self.weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.padding_idx is not None:
            text += f", padding_idx={self.padding_idx}"
        if self.max_norm is not None:
            text += f", max_norm={self.max_norm}"
        if self.norm_type != 2:
            text += f", norm_type={self.norm_type}"
        if self.scale_grad_by_freq:
            text += f", scale_grad_by_freq={self.scale_grad_by_freq}"
        if self.sparse:
            text += ", sparse=True"
        return text

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:
        """An embedding over the given table; frozen (no gradients) unless told otherwise."""
        if embeddings.dim() != 2:
            raise AssertionError(
                f"Embeddings parameter is expected to be 2-dimensional, got {embeddings.dim()}-D"
            )
        rows, width = embeddings.shape
        return cls(
            num_embeddings=rows,
            embedding_dim=width,
            _weight=embeddings,
            _freeze=freeze,
            padding_idx=padding_idx,
            max_norm=max_norm,
            norm_type=norm_type,
            scale_grad_by_freq=scale_grad_by_freq,
            sparse=sparse,
        )
