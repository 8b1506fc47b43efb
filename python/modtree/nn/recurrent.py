# SPDX-License-Identifier: BSD-3-Clause
"""Recurrent layers over whole sequences."""

from __future__ import annotations

import warnings
from typing import Any

from modtree.nn import functional as F
from modtree.nn.functional._common import need_tensor
from modtree.nn.functional.recurrent import recurrence, zeros_of
from modtree.nn.recurrent_cell import _Recurrent
from modtree.nn.utils.rnn import PackedSequence, in_order, padded_steps, picked_steps
from modtree.numpy.ops.join import cat, stack
from modtree.numpy.tensor.creation import empty
from modtree.numpy.tensor.parameter import Parameter
from modtree.numpy.tensor.tensor import Tensor

__all__ = ["GRU", "LSTM", "RNN", "RNNBase"]

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


def _checked_size(name: str, value: Any) -> None:
    if not isinstance(value, int):
        raise TypeError(f"{name} should be of type int, got: {type(value).__name__}")
    if value <= 0:
        raise ValueError(f"{name} must be greater than zero")


class RNNBase(_Recurrent):
    """What :class:`RNN`, :class:`LSTM` and :class:`GRU` share: parameters, states, layers and
    directions.

    Args:
        mode: "LSTM", "GRU", "RNN_TANH" or "RNN_RELU".
        input_size: Width of the inputs.
        hidden_size: Width of the hidden state.
        num_layers: Number of layers, each over the outputs of the one before.
        bias: False leaves the biases out.
        batch_first: Sequences are (batch, time, width) instead of (time, batch, width). States are
            not affected.
        dropout: Probability of dropping a value of the outputs of all layers but the last, while
            training.
        bidirectional: Each layer runs also backwards in time; the outputs come side by side.
        proj_size: LSTM only: the hidden state is projected to this width.
        device: Where the parameters are made.
        dtype: Their dtype.

    Parameters, for each layer k (and again with the suffix ``_reverse``): ``weight_ih_l[k]``,
    ``weight_hh_l[k]``, ``bias_ih_l[k]``, ``bias_hh_l[k]`` and ``weight_hr_l[k]``, the gates one
    below the other; all uniform in plus or minus ``1 / sqrt(hidden_size)``.
    """

    mode: str
    input_size: int
    hidden_size: int
    num_layers: int
    bias: bool
    batch_first: bool
    dropout: float
    bidirectional: bool
    proj_size: int

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        if (
            isinstance(dropout, bool)
            or not isinstance(dropout, (int, float))
            or not 0 <= dropout <= 1
        ):
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an "
                f"element being zeroed, got {dropout!r}"
            )
        if dropout > 0 and num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero "
                f"dropout expects num_layers greater than 1, but got dropout={dropout} and "
                f"num_layers={num_layers}",
                stacklevel=3,
            )
        if not isinstance(bias, bool):
            raise TypeError(f"bias should be of type bool, got: {type(bias).__name__}")
        _checked_size("input_size", input_size)
        _checked_size("hidden_size", hidden_size)
        _checked_size("num_layers", num_layers)
        if proj_size < 0:
            raise ValueError(
                "proj_size should be a positive integer or zero to disable projections"
            )
        if proj_size >= hidden_size:
            raise ValueError("proj_size has to be smaller than hidden_size")
        if mode not in _GATES:
            raise ValueError(f"Unrecognized RNN mode: {mode}")
        self._flat_weights_names = []
        self._all_weights = []
        gates = _GATES[mode] * hidden_size
        width = proj_size or hidden_size
        directions = 2 if bidirectional else 1
        for layer in range(num_layers):
            below = input_size if layer == 0 else width * directions
            for suffix in ("", "_reverse")[:directions]:
                shapes: dict[str, tuple[int, ...]] = {
                    "weight_ih": (gates, below),
                    "weight_hh": (gates, width),
                }
                if bias:
                    shapes |= {"bias_ih": (gates,), "bias_hh": (gates,)}
                if proj_size:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                names = [f"{name}_l{layer}{suffix}" for name in shapes]
                for name, shape in zip(names, shapes.values(), strict=True):
                    setattr(self, name, Parameter(empty(shape, device=device, dtype=dtype)))
                self._flat_weights_names.extend(names)
                self._all_weights.append(names)
        self.reset_parameters()

    def flatten_parameters(self) -> None:
        """Does nothing: elsewhere it gathers the parameters in one block of a GPU's memory."""

    @property
    def _flat_weights(self) -> list[Any]:
        return [getattr(self, name, None) for name in self._flat_weights_names]

    @property
    def all_weights(self) -> list[list[Any]]:
        """The parameters, one list for each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.proj_size != 0:
            text += f", proj_size={self.proj_size}"
        if self.num_layers != 1:
            text += f", num_layers={self.num_layers}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        if self.batch_first is not False:
            text += f", batch_first={self.batch_first}"
        if self.dropout != 0:
            text += f", dropout={self.dropout}"
        if self.bidirectional is not False:
            text += f", bidirectional={self.bidirectional}"
        return text

    # -- running -----------------------------------------------------------------------------------

    def _layer(
        self, names: list[str], x: Tensor, states: list[Tensor], reverse: bool, sizes: Any
    ) -> tuple[Tensor, ...]:
        """One layer in one direction: the outputs and the last states."""
        weights = [getattr(self, name) for name in names]
        projection = weights.pop() if self.proj_size else None
        weights += [None] * (4 - len(weights))
        return recurrence(self.mode, x, states, weights, projection, reverse, sizes)

    def _layers(
        self, x: Tensor, states: list[Tensor] | None, sizes: Any
    ) -> tuple[Tensor, list[Tensor]]:
        """All layers over (time, batch, width); each of the states is (layers * directions, batch,
        width).
        """
        directions = 2 if self.bidirectional else 1
        batch = x.shape[1]
        if states is None:
            widths = [self.proj_size or self.hidden_size]
            widths += [self.hidden_size] if self.mode == "LSTM" else []
            start = [zeros_of(x, batch, n) for n in widths]
        last: list[tuple[Tensor, ...]] = []
        for k, names in enumerate(self._all_weights):
            direction = k % directions
            if direction == 0:
                if k and self.dropout and self.training:
                    x = F.dropout(x, self.dropout)
                outputs = []
            own = start if states is None else [s[k] for s in states]
            y, *ends = self._layer(names, x, own, direction == 1, sizes)
            outputs.append(y)
            last.append(tuple(ends))
            if direction == directions - 1:
                x = outputs[0] if directions == 1 else cat(outputs, 2)
        return x, [stack(list(ends)) for ends in zip(*last, strict=True)]

    def _check_states(self, states: list[Tensor], batch: int) -> None:
        count = self.num_layers * (2 if self.bidirectional else 1)
        widths = [self.proj_size or self.hidden_size, self.hidden_size]
        labels = ["hidden"] if len(states) == 1 else ["hidden[0]", "hidden[1]"]
        for label, state, width in zip(labels, states, widths, strict=False):
            if tuple(state.shape) != (count, batch, width):
                raise RuntimeError(
                    f"Expected {label} size {(count, batch, width)}, got {list(state.shape)}"
                )

    def _run(self, input: Any, states: list[Tensor] | None) -> tuple[Any, list[Tensor]]:
        if isinstance(input, PackedSequence):
            return self._run_packed(input, states)
        if input.ndim not in (2, 3):
            raise ValueError(
                f"{type(self).__name__}: Expected input to be 2D or 3D, got {input.ndim}D instead"
            )
        batched = input.ndim == 3
        self._check_input(input)
        if states is not None:
            dims = [s.ndim for s in states]
            if any(d != input.ndim for d in dims):
                names = "hx" if len(states) == 1 else "hx and cx"
                kind = f"{'' if batched else 'un'}batched {input.ndim}-D input"
                got = (
                    f"{dims[0]}-D tensor"
                    if len(states) == 1
                    else f"({dims[0]}-D, {dims[1]}-D) tensors"
                )
                raise RuntimeError(
                    f"For {kind}, {names} should also be {input.ndim}-D but got {got}"
                )
        if not batched:
            input = input[:, None]
            states = None if states is None else [s[:, None] for s in states]
        elif self.batch_first:
            input = input.swapaxes(0, 1)
        if states is not None:
            self._check_states(states, input.shape[1])
        output, last = self._layers(input, states, None)
        if not batched:
            return output.squeeze(1), [s.squeeze(1) for s in last]
        return (output.swapaxes(0, 1) if self.batch_first else output), last

    def _run_packed(
        self, input: PackedSequence, states: list[Tensor] | None
    ) -> tuple[PackedSequence, list[Tensor]]:
        self._check_input(input.data)
        sizes = tuple(input.batch_sizes.tolist())
        if states is not None:
            self._check_states(states, sizes[0])
            if input.sorted_indices is not None:
                states = [in_order(s, input.sorted_indices) for s in states]
        output, last = self._layers(padded_steps(input.data, sizes), states, sizes)
        if input.unsorted_indices is not None:
            last = [in_order(s, input.unsorted_indices) for s in last]
        packed = PackedSequence(
            picked_steps(output, sizes),
            input.batch_sizes,
            input.sorted_indices,
            input.unsorted_indices,
        )
        return packed, last

    def _check_input(self, x: Tensor) -> None:
        weight = getattr(self, self._flat_weights_names[0])
        if isinstance(weight, Tensor):
            need_tensor(type(self).__name__, x)
        if x.dtype is not weight.dtype and x.dtype != weight.dtype:
            raise ValueError(
                f"RNN input dtype ({x.dtype}) does not match weight dtype ({weight.dtype}). "
                f"Convert input: input.to({weight.dtype}), or convert model: model.to({x.dtype})"
            )
        if x.shape[-1] != self.input_size:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got "
                f"{x.shape[-1]}"
            )


class _OneState(RNNBase):
    """A layer whose state is one tensor."""

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        """Runs over a sequence.

        Args:
            input: (time, batch, input_size), or with ``batch_first`` (batch, time, input_size);
                (time, input_size) without a batch; or a
                :class:`~modtree.nn.utils.rnn.PackedSequence`.
            hx: The first hidden state of each layer and direction, (num_layers * directions, batch,
                hidden_size); zeros by default.

        Returns:
            The last layer's hidden states of all steps, shaped as the input, and the last states,
            shaped as ``hx``.
        """
        output, (last,) = self._run(input, None if hx is None else [hx])
        return output, last


class RNN(_OneState):
    """``h = tanh(W_ih x + b_ih + W_hh h + b_hh)`` step by step; ``nonlinearity="relu"`` for ReLU
    instead.

    Arguments: ``input_size, hidden_size, num_layers=1, nonlinearity="tanh", bias=True,
    batch_first=False, dropout=0.0, bidirectional=False``; see :class:`RNNBase`.

    Shape:
        - input: (T, N, input_size), with ``batch_first`` (N, T, input_size); without a batch
          (T, input_size); or packed.
        - hx: (num_layers * directions, N, hidden_size).
        - output: as the input, of width directions * hidden_size; and the last states, as
          ``hx``.
    """

    nonlinearity: str

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        if len(args) > 3:
            nonlinearity = args[3]
            args = args[:3] + args[4:]
        else:
            nonlinearity = kwargs.pop("nonlinearity", "tanh")
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(
                f"Unknown nonlinearity {nonlinearity!r}. Select from 'tanh' or 'relu'."
            )
        self.nonlinearity = nonlinearity
        super().__init__("RNN_" + nonlinearity.upper(), *args, **kwargs)


class LSTM(RNNBase):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997).

    Arguments: ``input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0,
    bidirectional=False, proj_size=0``; see :class:`RNNBase`. Gates come in the order input, forget,
    cell, output.

    Shape:
        - input: (T, N, input_size), with ``batch_first`` (N, T, input_size); without a batch
          (T, input_size); or packed.
        - hx: (num_layers * directions, N, proj_size or hidden_size) and (num_layers *
          directions, N, hidden_size).
        - output: as the input, of width directions * (proj_size or hidden_size); and the last
          states, as ``hx``.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)

    def forward(
        self, input: Any, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Any, tuple[Tensor, Tensor]]:
        """Runs over a sequence.

        Args:
            input: As :meth:`RNN.forward` takes it.
            hx: The first hidden and cell states, (num_layers * directions, batch, proj_size or
                hidden_size) and (num_layers * directions, batch, hidden_size); zeros by default.

        Returns:
            The last layer's hidden states of all steps, and the last hidden and cell states.
        """
        output, (h, c) = self._run(input, None if hx is None else list(hx))
        return output, (h, c)


class GRU(_OneState):
    """Gated recurrent units (Cho et al., 2014).

    Arguments: ``input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0,
    bidirectional=False``; see :class:`RNNBase`. Gates come in the order reset, update, new.

    Shape:
        - input: (T, N, input_size), with ``batch_first`` (N, T, input_size); without a batch
          (T, input_size); or packed.
        - hx: (num_layers * directions, N, hidden_size).
        - output: as the input, of width directions * hidden_size; and the last states, as
          ``hx``.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__("GRU", *args, **kwargs)
