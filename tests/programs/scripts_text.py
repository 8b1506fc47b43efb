# SPDX-License-Identifier: BSD-3-Clause
"""Scripts as people keep them, for sequences, graphs and control."""

from __future__ import annotations

import argparse
import math
import string
from collections import namedtuple
from itertools import count
from typing import Optional

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor, optim
from torch.nn import Parameter
from torch.nn.modules.module import Module
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.optim.adamw import AdamW
from torch.optim.lr_scheduler import ReduceLROnPlateau

LETTERS = string.ascii_letters[:8]
Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))
SavedAction = namedtuple("SavedAction", ["log_prob", "value"])


def _line_to_tensor(line):
    tensor = torch.zeros(len(line), 1, len(LETTERS), dtype=torch.float64)
    for li, letter in enumerate(line):
        tensor[li][0][LETTERS.find(letter)] = 1
    return tensor


class CharRNN(nn.Module):
    def __init__(self, input_size, hidden_size, output_size):
        super().__init__()
        self.hidden_size = hidden_size
        self.i2h = nn.Linear(input_size, hidden_size)
        self.h2h = nn.Linear(hidden_size, hidden_size)
        self.h2o = nn.Linear(hidden_size, output_size)
        self.softmax = nn.LogSoftmax(dim=1)

    def forward(self, input, hidden):
        hidden = F.tanh(self.i2h(input) + self.h2h(hidden))
        return self.softmax(self.h2o(hidden)), hidden

    def initHidden(self):
        return torch.zeros(1, self.hidden_size, dtype=torch.float64)


def names(t):
    """A recurrent net over letters, trained by hand."""
    rnn = t.fill(CharRNN(len(LETTERS), 6, 3))
    criterion = nn.NLLLoss()
    learning_rate = 0.05
    for line, category in (("abca", 0), ("hgf", 2), ("dead", 1)):
        target = torch.tensor([category], dtype=torch.long)
        hidden = rnn.initHidden()
        rnn.zero_grad()
        for letter in _line_to_tensor(line):
            output, hidden = rnn(letter, hidden)
        loss = criterion(output, target)
        loss.backward()
        for p in rnn.parameters():
            p.data.add_(p.grad.data, alpha=-learning_rate)
        top_v, top_i = output.data.topk(1)
        t.log("guess", loss, top_v, top_i[0])
    t.log_gradients(rnn)


class WordModel(nn.Module):
    """An encoder, a recurrent net, a decoder that shares the encoder's weight."""

    def __init__(self, rnn_type, ntoken, ninp, nhid, nlayers, dropout=0.0, tie_weights=False):
        super().__init__()
        self.ntoken = ntoken
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntoken, ninp)
        if rnn_type in ["LSTM", "GRU"]:
            self.rnn = getattr(nn, rnn_type)(ninp, nhid, nlayers, dropout=dropout)
        else:
            self.rnn = nn.RNN(ninp, nhid, nlayers, nonlinearity="relu", dropout=dropout)
        self.decoder = nn.Linear(nhid, ntoken)
        if tie_weights:
            self.decoder.weight = self.encoder.weight
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)
        self.rnn_type, self.nhid, self.nlayers = rnn_type, nhid, nlayers

    def forward(self, input, hidden):
        emb = self.drop(self.encoder(input))
        output, hidden = self.rnn(emb, hidden)
        decoded = self.decoder(self.drop(output)).view(-1, self.ntoken)
        return F.log_softmax(decoded, dim=1), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        if self.rnn_type == "LSTM":
            return tuple(weight.new_zeros(self.nlayers, bsz, self.nhid) for _ in range(2))
        return weight.new_zeros(self.nlayers, bsz, self.nhid)


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=20):
        super().__init__()
        pe = torch.zeros(max_len, d_model, dtype=torch.double)
        position = torch.arange(0, max_len, dtype=torch.double).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2).double() * (-math.log(10000.0) / d_model))
        pe[:, 0::2] = torch.sin(position * div_term)
        pe[:, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe.unsqueeze(0).transpose(0, 1))

    def forward(self, x):
        return x + self.pe[: x.size(0), :]


class TransformerModel(nn.Transformer):
    def __init__(self, ntoken, ninp, nhead, nhid, nlayers):
        super().__init__(
            d_model=ninp, nhead=nhead, dim_feedforward=nhid, num_encoder_layers=nlayers, dropout=0.0
        )
        self.src_mask = None
        self.pos_encoder = PositionalEncoding(ninp)
        self.input_emb = nn.Embedding(ntoken, ninp)
        self.ninp = ninp
        self.decoder = nn.Linear(ninp, ntoken)

    def _generate_square_subsequent_mask(self, sz):
        return torch.log(torch.tril(torch.ones(sz, sz, dtype=torch.float64)))

    def forward(self, src, has_mask=True):
        if has_mask:
            if self.src_mask is None or self.src_mask.size(0) != len(src):
                self.src_mask = self._generate_square_subsequent_mask(len(src)).to(src.device)
        else:
            self.src_mask = None
        src = self.pos_encoder(self.input_emb(src) * math.sqrt(self.ninp))
        output = self.encoder(src, mask=self.src_mask)
        return F.log_softmax(self.decoder(output), dim=-1)


def _repackage_hidden(h):
    if isinstance(h, torch.Tensor):
        return h.detach()
    return tuple(_repackage_hidden(v) for v in h)


def word_language_model(t):
    """Words after words, with each kind of recurrent net and with a transformer."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--emsize", type=int, default=6)
    parser.add_argument("--clip", type=float, default=0.25)
    parser.add_argument("--lr", type=float, default=0.5)
    parser.add_argument("--bptt", type=int, default=4)
    parser.add_argument("--tied", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    args = parser.parse_args(["--tied"])
    ids = t.integers(9, 27)
    data = ids.narrow(0, 0, ids.size(0) // 3 * 3).view(3, -1).t().contiguous()
    criterion = nn.NLLLoss()
    for kind in ("LSTM", "GRU", "RNN_RELU", "Transformer"):
        if kind == "Transformer":
            model = t.fill(TransformerModel(9, args.emsize, 2, 8, 1))
        else:
            model = t.fill(WordModel(kind, 9, args.emsize, args.emsize, 2, 0.0, args.tied))
            hidden = model.init_hidden(3)
        model.train()
        for i in range(0, data.size(0) - 1, args.bptt):
            seq_len = min(args.bptt, len(data) - 1 - i)
            source, targets = data[i : i + seq_len], data[i + 1 : i + 1 + seq_len].view(-1)
            model.zero_grad()
            if kind == "Transformer":
                output = model(source).view(-1, 9)
            else:
                hidden = _repackage_hidden(hidden)
                output, hidden = model(source, hidden)
            loss = criterion(output, targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            for p in model.parameters():
                if p.grad is not None:
                    p.data.add_(p.grad, alpha=-args.lr)
            t.log(kind, loss)
        t.log_gradients(model)
        with torch.no_grad():
            weights = output[-1].squeeze().div(0.8).exp()
            assert 0 <= torch.multinomial(weights, 1)[0].item() < 9


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(4, 8)
        self.action_head = nn.Linear(8, 2)
        self.value_head = nn.Linear(8, 1)
        self.saved_actions = []
        self.rewards = []

    def forward(self, x):
        x = F.relu(self.affine1(x))
        return F.softmax(self.action_head(x), dim=-1), self.value_head(x)


def actor_critic(t):
    """Actions by a policy, with values that are learned beside it."""
    model = t.fill(Policy())
    optimizer = optim.Adam(model.parameters(), lr=3e-2)
    eps = torch.finfo(torch.float64).eps
    running_reward = 10
    for _ in count(1):
        for _ in range(5):
            probs, state_value = model(t.normal(4))
            action = t.integers(2, 1)[0]
            model.saved_actions.append(SavedAction(probs[action].log(), state_value))
            model.rewards.append(float(action))
        R, policy_losses, value_losses, returns = 0, [], [], []
        for r in model.rewards[::-1]:
            R = r + 0.99 * R
            returns.insert(0, R)
        returns = torch.tensor(returns, dtype=torch.float64)
        returns = (returns - returns.mean()) / (returns.std() + eps)
        for (log_prob, value), R in zip(model.saved_actions, returns):  # noqa: B905
            advantage = R - value.item()
            policy_losses.append(-log_prob * advantage)
            value_losses.append(F.smooth_l1_loss(value, torch.tensor([R], dtype=torch.float64)))
        optimizer.zero_grad()
        loss = torch.stack(policy_losses).sum() + torch.stack(value_losses).sum()
        loss.backward()
        optimizer.step()
        t.log("loss", loss)
        running_reward = 0.05 * sum(model.rewards) + 0.95 * running_reward
        del model.rewards[:]
        del model.saved_actions[:]
        if running_reward < 9.5:
            break
    t.log_gradients(model)


def replayed(t):
    """Steps kept in a memory, drawn in batches; some have no following state."""
    policy, target = (t.fill(nn.Sequential(nn.Linear(3, 8), nn.Mish(), nn.Linear(8, 2)))
                      for _ in range(2))  # fmt: skip
    target.load_state_dict(policy.state_dict())
    optimizer = AdamW(policy.parameters(), lr=1e-2, amsgrad=True)
    device = next(policy.parameters()).device
    memory = []
    for i in range(6):
        following = None if i % 3 == 2 else t.normal(1, 3)
        action = t.integers(2, 1, 1)
        memory.append(Transition(t.normal(1, 3), action, following, t.normal(1)))
    for _ in range(2):
        batch = Transition(*zip(*memory))  # noqa: B905
        non_final_mask = torch.tensor(
            tuple(s is not None for s in batch.next_state), device=device, dtype=torch.bool
        )
        non_final = torch.cat([s for s in batch.next_state if s is not None])
        state_action_values = policy(torch.cat(batch.state)).gather(1, torch.cat(batch.action))
        next_values = torch.zeros(len(memory), device=device, dtype=torch.float64)
        with torch.no_grad():
            next_values[non_final_mask] = target(non_final).max(1).values
        expected = next_values * 0.99 + torch.cat(batch.reward)
        loss = nn.SmoothL1Loss()(state_action_values, expected.unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_value_(policy.parameters(), 100)
        optimizer.step()
        ours, theirs = policy.state_dict(), target.state_dict()
        for key in ours:
            theirs[key] = ours[key] * 0.005 + theirs[key] * (1 - 0.005)
        target.load_state_dict(theirs)
        t.log("loss", loss)
    t.log_gradients(policy)
    t.log_state(target)


class Waves(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm1 = nn.LSTMCell(1, 6)
        self.lstm2 = nn.LSTMCell(6, 6)
        self.linear = nn.Linear(6, 1)

    def forward(self, input, future=0):
        outputs = []
        h_t = torch.zeros(input.size(0), 6, dtype=torch.double)
        c_t = torch.zeros(input.size(0), 6, dtype=torch.double)
        h_t2, c_t2 = torch.zeros_like(h_t), torch.zeros_like(c_t)
        for input_t in input.split(1, dim=1):
            h_t, c_t = self.lstm1(input_t, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        for _ in range(future):
            h_t, c_t = self.lstm1(output, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        return torch.cat(outputs, dim=1)


def time_series(t):
    """What comes next of a wave, fitted by LBFGS."""
    seq = t.fill(Waves()).double()
    criterion = nn.MSELoss()
    data = torch.sin(t.uniform(3, 1) * 4 + torch.arange(8, dtype=torch.float64) / 2)
    input, target = data[:, :-1], data[:, 1:]
    optimizer = optim.LBFGS(seq.parameters(), lr=0.3, max_iter=3)
    for _ in range(2):

        def closure():
            optimizer.zero_grad()
            loss = criterion(seq(input), target)
            loss.backward()
            return loss

        t.log("loss", optimizer.step(closure))
        with torch.no_grad():
            pred = seq(input, future=3)
            t.log("prediction", pred, criterion(pred[:, :-3], target))
    t.log_gradients(seq)


class GraphConvolution(Module):
    """A layer that averages over neighbours, in the style of the first papers."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(torch.FloatTensor(in_features, out_features))
        if bias:
            self.bias = Parameter(torch.FloatTensor(out_features))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        stdv = 1.0 / math.sqrt(self.weight.size(1))
        self.weight.data.uniform_(-stdv, stdv)
        if self.bias is not None:
            self.bias.data.uniform_(-stdv, stdv)

    def forward(self, input: Tensor, adj: Tensor) -> Tensor:
        output = torch.mm(adj, torch.mm(input, self.weight))
        return output if self.bias is None else output + self.bias

    def __repr__(self):
        return f"{self.__class__.__name__} ({self.in_features} -> {self.out_features})"


class GCN(nn.Module):
    def __init__(self, nfeat, nhid, nclass):
        super().__init__()
        self.gc1 = GraphConvolution(nfeat, nhid)
        self.gc2 = GraphConvolution(nhid, nclass, bias=False)

    def forward(self, x, adj):
        x = F.dropout(F.relu(self.gc1(x, adj)), 0.5, training=False)
        return F.log_softmax(self.gc2(x, adj), dim=1)


def graph(t):
    """Classes of the nodes of a graph of which some are known."""
    adj = (t.uniform(7, 7) > 0.6).double()
    adj = torch.maximum(adj, adj.T) + torch.eye(7, dtype=torch.float64)
    adj = adj / adj.sum(1, keepdim=True).clamp(min=1)
    features, labels = t.normal(7, 5), t.integers(3, 7)
    idx_train = torch.LongTensor(range(4))
    model = t.fill(GCN(5, 6, 3))
    optimizer = optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    plateau = ReduceLROnPlateau(optimizer, mode="min", factor=0.5, patience=0)
    for _ in range(3):
        optimizer.zero_grad()
        output = model(features, adj)
        loss = F.nll_loss(output[idx_train], labels[idx_train])
        loss.backward()
        optimizer.step()
        plateau.step(loss.item() * -1)
        right = output.max(1)[1].type_as(labels).eq(labels).double().sum()
        t.log("loss", loss, right, torch.tensor(optimizer.param_groups[0]["lr"]))
    assert repr(model.gc1) == "GraphConvolution (5 -> 6)"
    t.log_gradients(model)


class Tagger(nn.Module):
    def __init__(self, vocab, tags, width):
        super().__init__()
        self.embeddings = nn.Embedding(vocab, width, padding_idx=0)
        self.lstm = nn.LSTM(width, width, bidirectional=True, batch_first=True)
        self.tag = nn.Linear(2 * width, tags)

    def forward(self, x: Tensor, lengths: Tensor, mask: Optional[Tensor] = None):  # noqa: UP045
        packed = pack_padded_sequence(
            self.embeddings(x), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        out, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        scores = self.tag(out)
        return scores if mask is None else scores.masked_fill(~mask.unsqueeze(-1), -1e4)


def tagger(t):
    """Tags of words in sentences of different lengths."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    sentences = [t.integers(9, n) + 1 for n in (4, 2, 5)]
    lengths = torch.tensor([len(s) for s in sentences])
    x = pad_sequence(sentences, batch_first=True)
    y = pad_sequence([s % 3 for s in sentences], batch_first=True, padding_value=-100)
    mask = torch.arange(x.size(1))[None, :] < lengths[:, None]
    model = t.fill(Tagger(10, 3, 4))
    with torch.no_grad():
        model.embeddings.weight[0].zero_()
    model = torch.jit.script(model) if torch.jit.is_scripting() else model
    decay = [p for n, p in model.named_parameters() if p.dim() > 1]
    rest = [p for n, p in model.named_parameters() if p.dim() <= 1]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    optimizer = AdamW(groups, lr=1e-2)
    scaler = torch.amp.GradScaler("cuda", enabled=False)
    for _ in range(2):
        with torch.autocast("cpu", enabled=False), torch.autograd.profiler.record_function("step"):
            logits = model(x, lengths, mask)
            loss = F.cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=-100)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        t.log("loss", loss, logits.argmax(-1)[mask])
    torch.use_deterministic_algorithms(False)
    t.log_gradients(model)
