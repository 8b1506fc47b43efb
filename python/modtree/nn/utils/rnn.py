# SPDX-License-Identifier: BSD-3-Clause
"""Sequences of different lengths: padded to one length, or packed without padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from modtree import _imports
from modtree._C import from_array
from modtree.core.families import functions_of
from modtree.numpy.ops.functions import cat, index_select, masked_fill, stack, transpose
from modtree.numpy.tensor.tensor import Tensor

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]


class _Fields(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(_Fields):
    """Sequences one step after the other, the longest sequence first in each step. Made by the
    functions of this module. Sizes and orders are tensors of modtree, whatever library the data are
    of: in a function that jax traces, pack there, with lengths that are numbers.

    Attributes:
        data: The first step of all sequences, then the second of those that have one, ...: (sum of
            the lengths, ...).
        batch_sizes: How many sequences have each step.
        sorted_indices: The order in which the sequences were brought, longest first; or None.
        unsorted_indices: The inverse.
    """

    __slots__ = ()

    def __new__(
        cls,
        data: Tensor,
        batch_sizes: Tensor | None = None,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> PackedSequence:
        if batch_sizes is None:  # torch's older form: one pair
            data, batch_sizes = data
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same sequences with ``data.to(...)``."""
        data = self.data.to(*args, **kwargs)
        return self if data is self.data else self._replace(data=data)

    def cpu(self) -> PackedSequence:
        return self.to("cpu")

    def float(self) -> PackedSequence:
        return self.to(self.data.float().dtype)

    def double(self) -> PackedSequence:
        return self.to(self.data.double().dtype)

    def half(self) -> PackedSequence:
        return self.to(self.data.half().dtype)

    @property
    def is_cuda(self) -> bool:
        return False


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes one; None for None."""
    return None if permutation is None else from_array(np.argsort(permutation._array))


def _beside(x: Tensor, array: np.ndarray) -> Tensor:
    """An array as a tensor of the library of x."""
    if isinstance(x, Tensor):
        return from_array(array)
    return functions_of(x).asarray(array)


def in_order(x: Tensor, order: Tensor) -> Tensor:
    """The sequences of (time, batch, ...) in another order."""
    return index_select(x, 1, _beside(x, order._array))


def _starts(sizes: Sequence[int]) -> Any:
    return np.cumsum([0, *sizes[:-1]])


def padded_steps(data: Tensor, sizes: Sequence[int]) -> Tensor:
    """Packed data as (time, batch, ...). What pads it is arbitrary."""
    step = np.arange(sizes[0])
    taken = step < np.asarray(sizes)[:, None]
    return data[_beside(data, np.where(taken, _starts(sizes)[:, None] + step, 0))]


def picked_steps(padded: Tensor, sizes: Sequence[int]) -> Tensor:
    """The inverse of :func:`padded_steps`."""
    time, batch = np.nonzero(np.arange(padded.shape[1]) < np.asarray(sizes)[:, None])
    return padded[_beside(padded, time), _beside(padded, batch)]


def _lengths(sizes: Sequence[int]) -> Any:
    return (np.arange(sizes[0])[:, None] < np.asarray(sizes)).sum(1)


def pack_padded_sequence(
    input: Tensor,
    lengths: Tensor | Sequence[int],
    batch_first: bool = False,
    enforce_sorted: bool = True,
) -> PackedSequence:
    """Packs padded sequences.

    Args:
        input: (time, batch, ...), or with ``batch_first`` (batch, time, ...).
        lengths: The length of each sequence, at least 1.
        batch_first: See above.
        enforce_sorted: The sequences must come longest first. False sorts them, and remembers how.
    """
    plain = np.asarray(lengths.tolist() if hasattr(lengths, "tolist") else list(lengths), np.int64)
    x = transpose(input, 0, 1) if batch_first else input
    steps, batch = x.shape[:2]
    if plain.shape != (batch,):
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {plain.size} "
            f"(batch_size={batch})"
        )
    if (plain <= 0).any():
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' "
            "that is <= 0"
        )
    if plain.max() > steps:
        raise RuntimeError(
            f"pack_padded_sequence: a length of {plain.max()} is longer than the padded "
            f"sequences, which have {steps} steps"
        )
    order = None
    if not enforce_sorted:
        order = np.argsort(-plain, kind="stable")
        plain = plain[order]
        x = in_order(x, from_array(order))
    elif (np.diff(plain) > 0).any():
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You "
            "can pass `enforce_sorted=False` to have the sequences sorted"
        )
    sizes = (np.arange(plain[0])[:, None] < plain).sum(1)
    data = picked_steps(x[: len(sizes)], sizes)
    return PackedSequence(
        data, from_array(sizes), None if order is None else from_array(order), None
    )


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The inverse of :func:`pack_padded_sequence`.

    Returns:
        (time, batch, ...), or with ``batch_first`` (batch, time, ...), and the lengths. There are
        ``total_length`` steps, by default as many as the longest sequence has.
    """
    sizes = sequence.batch_sizes.tolist()
    lengths = _lengths(sizes)
    if total_length is not None:
        if total_length < len(sizes):
            raise ValueError(
                "Expected total_length to be at least the length of the longest sequence in input, "
                f"but got total_length={total_length} and max sequence length being {len(sizes)}"
            )
        sizes = sizes + [0] * (total_length - len(sizes))
    padded = padded_steps(sequence.data, sizes)
    empty = np.arange(sizes[0]) >= np.asarray(sizes)[:, None]
    empty = empty.reshape(empty.shape + (1,) * (padded.ndim - 2))
    padded = masked_fill(padded, _beside(padded, empty), padding_value)
    if sequence.unsorted_indices is not None:
        padded = in_order(padded, sequence.unsorted_indices)
        lengths = lengths[sequence.unsorted_indices._array]
    return (transpose(padded, 0, 1) if batch_first else padded), from_array(lengths)


def pad_sequence(
    sequences: Sequence[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Sequences (length, ...) as one tensor (time, batch, ...), or with ``batch_first`` (batch,
    time, ...).

    ``padding_side`` "left" puts the padding before the sequences.
    """
    if padding_side not in ("left", "right"):
        raise RuntimeError(
            f"pad_sequence: padding_side must be one of 'left' or 'right', got {padding_side!r}"
        )
    sequences = list(sequences)
    if not sequences:
        raise RuntimeError("pad_sequence: received an empty list of sequences")
    longest = max(s.shape[0] for s in sequences)
    padded = []
    for s in sequences:
        missing = longest - s.shape[0]
        if missing:
            extra = functions_of(s).full(
                (missing, *s.shape[1:]), padding_value, dtype=s.dtype, device=s.device
            )
            s = cat([s, extra] if padding_side == "right" else [extra, s], 0)
        padded.append(s)
    return stack(padded, 0 if batch_first else 1)


def unpad_sequence(
    padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False
) -> list[Tensor]:
    """The sequences without their padding."""
    if not batch_first:
        padded_sequences = transpose(padded_sequences, 0, 1)
    return [padded_sequences[i, :n] for i, n in enumerate(lengths.tolist())]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Packs sequences (length, ...) of different lengths."""
    lengths = [s.shape[0] for s in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The inverse of :func:`pack_sequence`."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


_imports.answer_for_missing(__name__)
