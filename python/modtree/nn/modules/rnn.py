# SPDX-License-Identifier: BSD-3-Clause
"""Recurrent layers, under torch's path."""

from __future__ import annotations

from modtree.nn.recurrent import GRU, LSTM, RNN, RNNBase
from modtree.nn.recurrent_cell import GRUCell, LSTMCell, RNNCell, RNNCellBase

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNBase", "RNNCell", "RNNCellBase"]
