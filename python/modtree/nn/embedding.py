# SPDX-License-Identifier: BSD-3-Clause
"""Tables of vectors looked up by integers, one by one or in bags."""

from __future__ import annotations

from typing import Any

from modtree.core.module import Module
from modtree.nn import functional as F
from modtree.nn import init
from modtree.numpy.tensor.creation import empty
from modtree.numpy.tensor.grad_mode import no_grad
from modtree.numpy.tensor.parameter import Parameter
from modtree.numpy.tensor.tensor import Tensor

__all__ = ["Embedding", "EmbeddingBag"]


class _Table(Module):
    """A table of vectors, one row of which may be for padding."""

    num_embeddings: int
    embedding_dim: int
    padding_idx: int | None
    weight: Tensor

    def _set_padding_idx(self, padding_idx: int | None, words: str) -> None:
        rows = self.num_embeddings
        if padding_idx is not None:
            if not -rows <= padding_idx < rows:
                raise AssertionError(
                    f"{words} must be within num_embeddings: got {padding_idx} for {rows} rows"
                )
            padding_idx %= rows
        self.padding_idx = padding_idx

    def _set_table(
        self, weight: Tensor | None, device: Any, dtype: Any, requires_grad: bool = True
    ) -> None:
        shape = (self.num_embeddings, self.embedding_dim)
        if weight is None:
            table = empty(shape, device=device, dtype=dtype)
            self.weight = Parameter(table, requires_grad=requires_grad)
            self.reset_parameters()
            return
        if tuple(weight.shape) != shape:
            raise AssertionError(
                "Shape of weight does not match num_embeddings and embedding_dim: got "
                f"{tuple(weight.shape)}, expected {shape}"
            )
        self.weight = Parameter(weight, requires_grad=requires_grad)

    def reset_parameters(self) -> None:
        """Draws the table anew; the padding row becomes zeros."""
        init.normal_(self.weight)
        self._fill_padding_idx_with_zero()

    def _fill_padding_idx_with_zero(self) -> None:
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx].fill_(0)


def _rows_and_width(embeddings: Tensor) -> tuple[int, int]:
    if embeddings.dim() != 2:
        raise AssertionError(
            f"Embeddings parameter is expected to be 2-dimensional, got {embeddings.dim()}-D"
        )
    rows, width = embeddings.shape
    return rows, width


class Embedding(_Table):
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

    Shape:
        - input: integers of any shape (*).
        - output: (*, embedding_dim).
    """

    max_norm: float | None
    norm_type: float
    scale_grad_by_freq: bool
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
        self._set_padding_idx(padding_idx, "Padding_idx")
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self._set_table(_weight, device, dtype, requires_grad=not _freeze)
        self.sparse = sparse

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
        rows, width = _rows_and_width(embeddings)
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


class EmbeddingBag(_Table):
    """Sums, means or maxima of rows of a table over bags of indices.

    Args:
        num_embeddings: Number of rows.
        embedding_dim: Width of a row.
        max_norm: Rows with a larger norm are scaled down to it when they are looked up.
        norm_type: The p of that norm.
        scale_grad_by_freq: Divide gradients by how often the row occurs in the batch; not for
            "max".
        mode: "sum", "mean" or "max".
        sparse: Accepted for compatibility; gradients are dense.
        include_last_offset: The last offset is the end of the last bag.
        padding_idx: Indices of this value do not count; the row starts as zeros; may count from the
            end.
        device: Where the table is made.
        dtype: Its dtype.

    Parameter: ``weight`` (num_embeddings, embedding_dim), drawn from the standard normal
    distribution.

    Shape:
        - input: (B, N), or (n) with offsets (B).
        - output: (B, embedding_dim).
    """

    max_norm: float | None
    norm_type: float
    scale_grad_by_freq: bool
    mode: str
    sparse: bool
    include_last_offset: bool

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self._set_padding_idx(padding_idx, "padding_idx")
        self._set_table(_weight, device, dtype)
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset

    def forward(
        self,
        input: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        """One row per bag.

        Args:
            input: (B, N), B bags of N indices; or (n), all bags one after the other.
            offsets: Where each bag starts in a 1-D input.
            per_sample_weights: A factor for each index; for mode "sum" only.
        """
        return F.embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.max_norm is not None:
            text += f", max_norm={self.max_norm}"
        if self.norm_type != 2:
            text += f", norm_type={self.norm_type}"
        if self.scale_grad_by_freq:
            text += f", scale_grad_by_freq={self.scale_grad_by_freq}"
        text += f", mode={self.mode!r}"
        if self.padding_idx is not None:
            text += f", padding_idx={self.padding_idx}"
        return text

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> EmbeddingBag:
        """A bag over the given table; frozen (no gradients) unless told otherwise."""
        rows, width = _rows_and_width(embeddings)
        bag = cls(
            num_embeddings=rows,
            embedding_dim=width,
            _weight=embeddings,
            max_norm=max_norm,
            norm_type=norm_type,
            scale_grad_by_freq=scale_grad_by_freq,
            mode=mode,
            sparse=sparse,
            include_last_offset=include_last_offset,
            padding_idx=padding_idx,
        )
        bag.weight.requires_grad = not freeze
        return bag
