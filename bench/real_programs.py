# SPDX-License-Identifier: BSD-3-Clause
"""Eight programs as people write them, small enough for valgrind. Made after ``torch`` was imported
on one side or the other.

Each maker gives a step, and the optimizers whose steps are counted apart.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from . import dropin_models as models

__all__ = ["PROGRAMS", "Program"]


@dataclass
class Program:
    """What is counted.

    Attributes:
        step: Does the work once.
        optimizers: Those whose steps are a part of their own.
        per: What one step is.
        count: How many steps are counted.
    """

    step: Callable[[], Any]
    optimizers: list[torch.optim.Optimizer] = field(default_factory=list)
    per: str = "training step"
    count: int = 2


def _llama(layers: int) -> nn.Module:
    """That of transformers where it is installed, and bench's own otherwise."""
    if importlib.util.find_spec("transformers") is None:
        return models.Llama(layers)
    import transformers

    heads = {"num_attention_heads": 4, "num_key_value_heads": 4}
    sizes = {"hidden_size": 64, "intermediate_size": 128, "vocab_size": 1000}
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(num_hidden_layers=layers, **heads, **sizes)
    )


def _logits(output: Any) -> Tensor:
    return output[0] if isinstance(output, tuple) else output.logits


def llama_decoding() -> Program:
    """Greedy decoding of one token after another, with a cache."""
    model = _llama(12).eval()
    prompt = torch.arange(8)[None]
    is_own = isinstance(model, models.Llama)

    def step() -> None:
        if is_own:
            model.generate(prompt, 8)  # type: ignore[operator]
        else:
            mask = torch.ones_like(prompt)
            lengths = {"max_new_tokens": 8, "min_new_tokens": 8}
            model.generate(  # type: ignore[operator]
                prompt, attention_mask=mask, do_sample=False, pad_token_id=0, **lengths
            )

    return Program(step, per="8 tokens", count=1)


def llama_training() -> Program:
    """AdamW, with gradients clipped, on two texts of 32 tokens."""
    model = _llama(8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(1000, (2, 32))

    def step() -> None:
        optimizer.zero_grad()
        logits = _logits(model(tokens))
        F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return Program(step, [optimizer])


def vit_with_average() -> Program:
    """A ViT and an exponential average of its weights."""
    model = models.ViT(layers=8, dim=64)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99), use_buffers=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    images, labels = torch.randn(2, 3, 64, 64), torch.randint(100, (2,))

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        average.update_parameters(model)

    return Program(step, [optimizer])


class _LoRA(nn.Module):
    """A frozen layer and a trained correction of low rank."""

    def __init__(self, base: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        self.dropout = nn.Dropout(0.0)
        self.scale = 2.0
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.scale * self.up(self.down(self.dropout(x)))


def lora() -> Program:
    """The adapters of a GPT-2, in each of its attentions."""
    model = models.GPT2(layers=8)
    model.requires_grad_(False)
    for module in list(model.modules()):
        if isinstance(module, models.Attention):
            for name in ("q_proj", "v_proj"):
                setattr(module, name, _LoRA(getattr(module, name)))
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3)
    tokens = torch.randint(1000, (2, 32))

    def step() -> None:
        optimizer.zero_grad()
        logits, _ = model(tokens)
        F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()

    return Program(step, [optimizer])


def gan() -> Program:
    """A DCGAN of 32 x 32 pixels: a step of the discriminator, then one of the generator."""
    width, noise = 8, 16
    sizes = [noise, 4 * width, 2 * width, width]
    layers: list[nn.Module] = []
    for i, (a, b) in enumerate(zip(sizes, sizes[1:], strict=False)):
        shape = (4, 1, 0) if i == 0 else (4, 2, 1)
        layers += [nn.ConvTranspose2d(a, b, *shape, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
    generator = nn.Sequential(*layers, nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh())
    layers = []
    for a, b in ((3, width), (width, 2 * width), (2 * width, 4 * width)):
        layers += [nn.Conv2d(a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b), nn.LeakyReLU(0.2)]
    discriminator = nn.Sequential(*layers, nn.Conv2d(4 * width, 1, 4), nn.Flatten())
    for_generator = torch.optim.Adam(generator.parameters(), lr=2e-4)
    for_discriminator = torch.optim.Adam(discriminator.parameters(), lr=2e-4)
    real, ones, zeros = torch.randn(4, 3, 32, 32), torch.ones(4, 1), torch.zeros(4, 1)
    loss = nn.BCEWithLogitsLoss()

    def step() -> None:
        made = generator(torch.randn(4, noise, 1, 1))
        discriminator.zero_grad()
        loss(discriminator(real), ones).backward()
        loss(discriminator(made.detach()), zeros).backward()
        for_discriminator.step()
        generator.zero_grad()
        loss(discriminator(made), ones).backward()
        for_generator.step()

    return Program(step, [for_generator, for_discriminator])


def rl_actor() -> Program:
    """An actor-critic that acts in an environment written in Python, one observation at a time."""

    class Policy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
            self.actor = nn.Linear(64, 2)
            self.critic = nn.Linear(64, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            features = self.body(x)
            return self.actor(features), self.critic(features)

    policy = Policy()
    state = [0.0, 0.0, 0.02, 0.0]

    def environment(action: int) -> float:
        """A pole on a cart."""
        place, speed, angle, turning = state
        push = (10.0 if action else -10.0) + 0.05 * turning**2 * math.sin(angle)
        turn = (9.8 * math.sin(angle) - math.cos(angle) * push / 1.1) / 0.65
        state[:] = [place + 0.02 * speed, speed + 0.02 * push, angle + 0.02 * turning, turning]
        state[3] += 0.02 * turn
        if abs(state[2]) > 0.2 or abs(state[0]) > 2.4:
            state[:] = [0.0, 0.0, 0.02, 0.0]
        return 1.0

    @torch.no_grad()
    def step() -> None:
        for _ in range(16):
            logits, _ = policy(torch.tensor([state]))
            chosen = torch.multinomial(logits.softmax(-1), 1)
            environment(int(chosen.item()))

    return Program(step, per="16 actions")


def cnn() -> Program:
    """A ResNet-50 of an eighth of its width."""
    model = models.ResNet50(width=8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    images, labels = torch.randn(2, 3, 32, 32), torch.randint(100, (2,))
    loss = nn.CrossEntropyLoss()

    def step() -> None:
        optimizer.zero_grad()
        loss(model(images), labels).backward()
        optimizer.step()

    return Program(step, [optimizer], count=1)


class _Messages(nn.Module):
    """A layer of a network on a graph: messages along edges, summed at their ends."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.message = nn.Sequential(nn.Linear(2 * dim, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.update = nn.GRUCell(dim, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        sent = self.message(torch.cat([nodes[edges[0]], nodes[edges[1]]], -1))
        received = torch.zeros_like(nodes).index_add(0, edges[1], sent)
        return self.norm(self.update(received, nodes))


def gnn() -> Program:
    """Six layers of messages on a graph of 50 nodes and 200 edges."""

    class Network(nn.Module):
        def __init__(self, dim: int = 32) -> None:
            super().__init__()
            self.embed = nn.Embedding(10, dim)
            self.layers = nn.ModuleList(_Messages(dim) for _ in range(6))
            self.head = nn.Linear(dim, 3)

        def forward(self, kinds: Tensor, edges: Tensor) -> Tensor:
            nodes = self.embed(kinds)
            for layer in self.layers:
                nodes = layer(nodes, edges)
            return self.head(nodes.mean(0, keepdim=True))

    model = Network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    kinds, edges = torch.randint(10, (50,)), torch.randint(50, (2, 200))
    label = torch.tensor([1])

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(kinds, edges), label).backward()
        optimizer.step()

    return Program(step, [optimizer])


#: What the table says -> what makes it.
PROGRAMS: dict[str, Callable[[], Program]] = {
    "Llama, decoding": llama_decoding,
    "Llama, training": llama_training,
    "ViT with an average of its weights": vit_with_average,
    "LoRA on a GPT-2": lora,
    "GAN": gan,
    "RL actor": rl_actor,
    "CNN": cnn,
    "GNN": gnn,
}
