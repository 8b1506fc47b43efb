# SPDX-License-Identifier: BSD-3-Clause
"""A language model of LSTM layers (Zaremba et al., 2014)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class LanguageModel(nn.Module):
    def __init__(
        self,
        vocabulary: int = 1000,
        embedding: int = 128,
        hidden: int = 128,
        layers: int = 2,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(vocabulary, embedding)
        self.rnn = nn.LSTM(embedding, hidden, layers, dropout=dropout)
        self.decoder = nn.Linear(hidden, vocabulary)
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)
        nn.init.uniform_(self.decoder.weight, -0.1, 0.1)

    def forward(self, tokens: torch.Tensor, state: tuple[torch.Tensor, torch.Tensor] | None = None):
        """Logits for the token after each of (T, B) tokens, and the state to go on with; a text
        begins with None.
        """
        output, state = self.rnn(self.drop(self.encoder(tokens)), state)
        return self.decoder(self.drop(output)), state


def detached(state):
    """Cuts the graph between two pieces of a long text."""
    return None if state is None else tuple(torch.detach(part) for part in state)


def build(**options) -> LanguageModel:
    return LanguageModel(**options)


def example(batch: int = 4, length: int = 21, vocabulary: int = 1000):
    """A random text for each of the batch."""
    return (torch.randint(0, vocabulary, (length, batch)),)


def loss(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """The mean over two halves of the text; gradients stay inside of a half."""
    inputs, targets = tokens[:-1], tokens[1:]
    half = len(inputs) // 2
    state, total = None, 0
    for piece, wanted in ((inputs[:half], targets[:half]), (inputs[half:], targets[half:])):
        logits, state = model(piece, detached(state))
        total = total + F.cross_entropy(logits.reshape(-1, logits.shape[-1]), wanted.reshape(-1))
    return total / 2
