# SPDX-License-Identifier: BSD-3-Clause
"""Models of sequences: a causal transformer that generates, attention over packed sequences, a
chain of labels.
"""

from __future__ import annotations

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence


class Layer(nn.Module):
    def __init__(self, width, heads, length, fused):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.merge = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.feed = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(approximate="tanh"), nn.Linear(2 * width, width)
        )
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        self.register_buffer("later", later, persistent=False)
        self.heads, self.fused = heads, fused

    def attend(self, x):
        batch, length, width = x.shape
        parts = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        if self.fused:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.mT / math.sqrt(q.size(-1))
            scores = scores.masked_fill(self.later[:length, :length], float("-inf"))
            mixed = torch.softmax(scores, dim=-1) @ v
        return self.merge(mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attend(self.norms[0](x))
        return x + self.feed(self.norms[1](x))


class Language(nn.Module):
    """A causal transformer whose head is its table of embeddings."""

    def __init__(self, vocabulary=11, width=8, length=9, fused=True):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.layers = nn.Sequential(*[Layer(width, 2, length, fused) for _ in range(2)])
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        self.length = length
        self.apply(self.initialize)

    @staticmethod
    def initialize(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.1)
        if getattr(module, "bias", None) is not None:
            nn.init.zeros_(module.bias)

    def forward(self, ids):
        places = torch.arange(ids.size(1), device=ids.device)
        return self.head(self.layers(self.tokens(ids) + self.places(places)[None]))

    @torch.no_grad()
    def generate(self, ids, count, keep):
        for _ in range(count):
            logits = self(ids[:, -self.length :])[:, -1]
            least = logits.topk(keep).values[:, -1:]
            logits[logits < least] = -torch.inf
            following = torch.multinomial(logits.softmax(-1), num_samples=1)
            ids = torch.cat((ids, following), dim=1)
        return ids


def language(t, fused=True):
    """Gradients added up over parts of a batch; decay for matrices only."""
    model = t.fill(Language(fused=fused))
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (step + 1) / 3)
    text = t.integers(11, 4, 10)
    inputs, targets = text[:, :-1], text[:, 1:].clone()
    targets[0, :2] = -1
    for _ in range(2):
        for x, y in zip(inputs.split(2), targets.split(2), strict=True):
            loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), ignore_index=-1) / 2
            loss.backward()
            t.log("loss", loss)
        t.log_gradients(model)
        t.log("norm", nn.utils.clip_grad_norm_(model.parameters(), 0.5))
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
    t.log("most likely", model.generate(text[:2, :3], 8, keep=1))
    drawn = model.generate(text[:2, :3], 4, keep=5)
    assert drawn.shape == (2, 7) and int(drawn.max()) < 11


def language_without_fused_attention(t):
    language(t, fused=False)


class Translation(nn.Module):
    """A recurrent reader of sentences of different lengths, and a writer that looks back at it."""

    def __init__(self, words=9, width=6):
        super().__init__()
        self.words = nn.Embedding(words, width, padding_idx=0)
        self.reader = nn.LSTM(width, width, bidirectional=True, batch_first=True)
        self.bridge = nn.Linear(2 * width, width)
        self.writer = nn.GRUCell(3 * width, width)
        self.query, self.out = nn.Linear(width, 2 * width), nn.Linear(3 * width, words)

    def forward(self, source, lengths, target):
        packed = pack_padded_sequence(
            self.words(source), lengths, batch_first=True, enforce_sorted=False
        )
        read, (last, _) = self.reader(packed)
        read, _ = pad_packed_sequence(read, batch_first=True)
        state = torch.tanh(self.bridge(torch.cat((last[-2], last[-1]), 1)))
        hidden = torch.arange(source.size(1)) >= lengths[:, None]
        logits = []
        for word in target[:, :-1].unbind(1):
            weights = torch.einsum("btd,bd->bt", read, self.query(state))
            weights = weights.masked_fill(hidden, -1e9).softmax(-1)
            seen = torch.bmm(weights.unsqueeze(1), read).squeeze(1)
            state = self.writer(torch.cat([self.words(word), seen], dim=-1), state)
            logits.append(self.out(torch.cat([state, seen], dim=-1)))
        return torch.stack(logits, dim=1)


def translation(t):
    model = t.fill(Translation())
    sentences = [t.integers(8, n) + 1 for n in (4, 6, 2)]
    source = pad_sequence(sentences, batch_first=True)
    lengths = torch.tensor([len(s) for s in sentences])
    target = t.integers(9, 3, 5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(2):
        logits = model(source, lengths, target)
        loss = F.cross_entropy(logits.mT, target[:, 1:], ignore_index=0, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        t.log("loss", loss)
        t.log_gradients(model)
        optimizer.step()


def chain_of_labels(t):
    """The likelihood of labels under all sequences of them, and the best sequence."""
    steps = nn.Parameter(t.normal(4, 4))
    scores, labels = t.normal(3, 5, 4).requires_grad_(), t.integers(4, 3, 5)
    lengths = torch.tensor([5, 3, 4])
    inside = torch.arange(5)[None] < lengths[:, None]
    total = best = scores[:, 0]
    back = []
    for i in range(1, 5):
        paths = total[:, :, None] + steps + scores[:, i, None]
        total = torch.where(inside[:, i, None], paths.logsumexp(1), total)
        with torch.no_grad():
            value, place = (best[:, :, None] + steps + scores[:, i, None]).max(dim=1)
            best = torch.where(inside[:, i, None], value, best)
            back.append(place)
    moves = steps[labels[:, :-1], labels[:, 1:]] * inside[:, 1:]
    own = (scores.gather(2, labels[..., None]).squeeze(2) * inside).sum(1) + moves.sum(1)
    loss = (total.logsumexp(1) - own).mean()
    loss.backward()
    t.log("loss", loss)
    t.log("gradients", steps.grad, scores.grad)
    for b, length in enumerate(lengths):
        path = [best[b].argmax().item()]
        for place in reversed(back[: length - 1]):
            path.append(place[b, path[-1]].item())
        t.log("path", torch.tensor(path[::-1]))
