# SPDX-License-Identifier: BSD-3-Clause
"""Recurrent layers for one step."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from modtree.core.module import Module
from modtree.nn import init
from modtree.nn.functional.recurrent import recurrence, zeros_of
from modtree.numpy.tensor.creation import empty
from modtree.numpy.tensor.parameter import OptionalParameter, Parameter
from modtree.numpy.tensor.tensor import Tensor

__all__ = ["GRUCell", "LSTMCell", "RNNCell", "RNNCellBase"]


class _Recurrent(Module):
    """Parameters that all start uniform in plus or minus ``1 / sqrt(hidden_size)``."""

    hidden_size: int

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)


class RNNCellBase(_Recurrent):
    """What the cells share.

    Args:
        input_size: Width of the input.
        hidden_size: Width of the hidden state.
        bias: False leaves the biases out.
        num_chunks: Number of gates.
        device: Where the parameters are made.
        dtype: Their dtype.

    Parameters: ``weight_ih`` (gates * hidden_size, input_size), ``weight_hh`` (gates * hidden_size,
    hidden_size), ``bias_ih`` and ``bias_hh`` (gates * hidden_size), all uniform in plus or minus
    ``1 / sqrt(hidden_size)``.
    """

    input_size: int
    hidden_size: int
    bias: bool
    bias_ih: OptionalParameter
    bias_hh: OptionalParameter

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        gates = num_chunks * hidden_size
        self.weight_ih = Parameter(empty((gates, input_size), device=device, dtype=dtype))
        self.weight_hh = Parameter(empty((gates, hidden_size), device=device, dtype=dtype))
        if bias:
            self.bias_ih = Parameter(empty(gates, device=device, dtype=dtype))
            self.bias_hh = Parameter(empty(gates, device=device, dtype=dtype))
        else:
            self.register_parameter("bias_ih", None)
            self.register_parameter("bias_hh", None)
        self.reset_parameters()

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        nonlinearity = getattr(self, "nonlinearity", "tanh")
        return text if nonlinearity == "tanh" else f"{text}, nonlinearity={nonlinearity}"

    def _prepared(
        self, input: Tensor, states: list[Tensor] | None, count: int
    ) -> tuple[Tensor, list[Tensor]]:
        """The input as one step of a batch, (1, batch, width), and the states as (batch, width)."""
        name = type(self).__name__
        if input.ndim not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.ndim}D instead")
        if input.shape[-1] != self.input_size:
            raise RuntimeError(
                f"input has inconsistent input_size: got {input.shape[-1]} expected "
                f"{self.input_size}"
            )
        batch = input.shape[0] if input.ndim == 2 else 1
        if states is None:
            states = [zeros_of(input, batch, self.hidden_size)] * count
        for i, state in enumerate(states):
            if state.ndim not in (1, 2):
                which = "hidden" if count == 1 else f"hx[{i}]"
                raise ValueError(
                    f"{name}: Expected {which} to be 1D or 2D, got {state.ndim}D instead"
                )
            if state.shape[-1] != self.hidden_size:
                raise RuntimeError(
                    f"hidden{i} has inconsistent hidden_size: got {state.shape[-1]}, expected "
                    f"{self.hidden_size}"
                )
            if (state.shape[0] if state.ndim == 2 else 1) != batch:
                raise RuntimeError(
                    f"Input batch size {batch} doesn't match hidden{i} batch size "
                    f"{state.shape[0] if state.ndim == 2 else 1}"
                )
        return (
            input.reshape(1, batch, self.input_size),
            [s if s.ndim == 2 else s[None] for s in states],
        )

    def _weights(self) -> tuple[Any, ...]:
        return self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh


class RNNCell(RNNCellBase):
    """``tanh(W_ih x + b_ih + W_hh h + b_hh)``; ``nonlinearity="relu"`` for ReLU instead. See
    :class:`RNNCellBase`.

    Args:
        input_size: Width of the input.
        hidden_size: Width of the hidden state.
        bias: False leaves the biases out.
        nonlinearity: ``"tanh"`` or ``"relu"``.
        device: Where the parameters are made.
        dtype: Their dtype.

    Shape:
        - input: (N, input_size) or (input_size).
        - hx and output: (N, hidden_size) or (hidden_size).
    """

    nonlinearity: str

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The next hidden state of (batch, input_size) or (input_size); ``hx`` (batch, hidden_size)
        or (hidden_size) is zeros by default.
        """
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        x, (h,) = self._prepared(input, None if hx is None else [hx], 1)
        _, h = recurrence("RNN_" + self.nonlinearity.upper(), x, [h], self._weights())
        return h if input.ndim == 2 else h.squeeze(0)


class _GatedCell(RNNCellBase):
    _gates: ClassVar[int]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, self._gates, device, dtype)


class LSTMCell(_GatedCell):
    """One step of an LSTM; gates in the order input, forget, cell, output. See
    :class:`RNNCellBase`.

    Args:
        input_size: Width of the input.
        hidden_size: Width of the hidden state.
        bias: False leaves the biases out.
        device: Where the parameters are made.
        dtype: Their dtype.

    Shape:
        - input: (N, input_size) or (input_size).
        - hx and output: two tensors (N, hidden_size) or (hidden_size): hidden and cell state.
    """

    _gates = 4

    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """The next hidden and cell state; ``hx`` is the pair before, zeros by default."""
        x, (h, c) = self._prepared(input, None if hx is None else list(hx), 2)
        _, h, c = recurrence("LSTM", x, [h, c], self._weights())
        return (h, c) if input.ndim == 2 else (h.squeeze(0), c.squeeze(0))


class GRUCell(_GatedCell):
    """One step of gated recurrent units; gates in the order reset, update, new. See
    :class:`RNNCellBase`.

    Args:
        input_size: Width of the input.
        hidden_size: Width of the hidden state.
        bias: False leaves the biases out.
        device: Where the parameters are made.
        dtype: Their dtype.

    Shape:
        - input: (N, input_size) or (input_size).
        - hx and output: (N, hidden_size) or (hidden_size).
    """

    _gates = 3

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The next hidden state, as :meth:`RNNCell.forward` gives it."""
        x, (h,) = self._prepared(input, None if hx is None else [hx], 1)
        _, h = recurrence("GRU", x, [h], self._weights())
        return h if input.ndim == 2 else h.squeeze(0)
