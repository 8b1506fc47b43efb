# SPDX-License-Identifier: BSD-3-Clause
"""One process of ``tools/gpu_check``: measures programs on a device, eager and compiled, on torch's
Module or with ``--dropin`` on the native one. Prints as JSON the rows and what was computed.
"""

from __future__ import annotations

import sys

if "--dropin" in sys.argv:
    import modtree.dropin  # noqa: F401

import argparse
import gc
import importlib.util
import json
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench import dropin_models as models

#: (name of the row, what it is measured per, seconds)
_Row = tuple[str, str, float]

VOCABULARY = 1000


class Bench:
    """Where the rows are measured, and what the measured programs computed."""

    def __init__(self, device: str, rounds: int) -> None:
        self.device = device
        self.rounds = rounds
        self.computed: dict[str, list[float]] = {}

    def wait(self) -> None:
        if self.device != "cpu":
            torch.cuda.synchronize()

    def seconds(self, run: Callable[[], Any], at_least: float = 0.2) -> float:
        """Wall time of one run until the device is done: the least of several rounds."""
        count = 1
        for _ in range(3):
            count = max(1, int(at_least / self._round(run, 1)))
        return min(self._round(run, count) for _ in range(self.rounds))

    def _round(self, run: Callable[[], Any], count: int) -> float:
        gc.collect()
        gc.disable()
        self.wait()
        start = time.perf_counter()
        for _ in range(count):
            run()
        self.wait()
        taken = time.perf_counter() - start
        gc.enable()
        return taken / count

    def model(self, cls: Callable[..., nn.Module], **options: Any) -> nn.Module:
        torch.manual_seed(0)
        return cls(**options).to(self.device)

    def tokens(self, batch: int, length: int) -> Tensor:
        return torch.arange(batch * length, device=self.device).view(batch, length) % VOCABULARY

    def trained(self, name: str, model: nn.Module, loss: Callable[[], Tensor]) -> _Row:
        """A row for a whole step: forward, backward, AdamW, zero_grad."""
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

        def step() -> Tensor:
            value = loss()
            value.backward()
            optimizer.step()
            optimizer.zero_grad()
            return value.detach()

        self.computed[name] = [step().item() for _ in range(3)]
        return name, "step", self.seconds(step)


def loss_of_tokens(model: nn.Module, tokens: Tensor) -> Tensor:
    logits, _ = model(tokens)
    return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())


def loss_of_images(model: nn.Module, images: Tensor) -> Tensor:
    return model(images).square().mean()


def decoding(bench: Bench) -> Iterator[_Row]:
    for name, cls in (("Llama", models.Llama), ("Mixtral", models.Mixtral), ("GPT-2", models.GPT2)):
        model = bench.model(cls).eval()
        prompt = bench.tokens(1, 8)
        bench.computed[f"{name}: tokens"] = model.generate(prompt, 16).flatten().tolist()
        with torch.no_grad():
            _, caches = model(prompt)
            token = partial(model, prompt[:, -1:], caches)
            yield f"{name}: forward of a token", "token", bench.seconds(token)
        run = partial(model.generate, prompt, 16)
        yield f"{name}: greedy decoding", "token", bench.seconds(run) / 17


def training(bench: Bench) -> Iterator[_Row]:
    for name, cls in (("Llama", models.Llama), ("GPT-2", models.GPT2)):
        model = bench.model(cls)
        loss = partial(loss_of_tokens, model, bench.tokens(4, 64))
        yield bench.trained(f"{name}: training step", model, loss)
    wide = bench.model(models.Llama, layers=8, dim=1024).bfloat16()
    loss = partial(loss_of_tokens, wide, bench.tokens(8, 512))
    yield bench.trained("Llama of 8 wide layers, bfloat16: training step", wide, loss)
    for name, cls in (("ResNet-50", models.ResNet50), ("ViT", models.ViT)):
        model = bench.model(cls)
        loss = partial(loss_of_images, model, torch.ones(16, 3, 64, 64, device=bench.device))
        yield bench.trained(f"{name}: training step", model, loss)


def trees(bench: Bench) -> Iterator[_Row]:
    model = bench.model(models.Llama)
    state = {key: value.clone() for key, value in model.state_dict().items()}

    def there_and_back() -> None:
        model.cpu()
        model.to(bench.device)

    def cast() -> None:
        model.half()
        model.float()

    runs: dict[str, Callable[[], Any]] = {
        "state_dict()": model.state_dict,
        "load_state_dict()": lambda: model.load_state_dict(state),
        "zero_grad()": model.zero_grad,
        "to(device), where it is": lambda: model.to(bench.device),
        "half() and float()": cast,
        "cpu() and back": there_and_back,
    }
    for what, run in runs.items():
        yield f"Llama: {what}", "call", bench.seconds(run, 0.1)


def compiled(bench: Bench) -> Iterator[_Row]:
    """``torch.compile`` with CUDA graphs, where the device has them."""
    mode = "default" if bench.device == "cpu" else "reduce-overhead"
    model = bench.model(models.Llama).eval()
    prompt = bench.tokens(1, 8)
    with torch.no_grad():
        forward = torch.compile(lambda tokens: model(tokens)[0], mode=mode)
        start = time.perf_counter()
        bench.computed["compiled forward"] = forward(prompt)[0, -1, :8].tolist()
        bench.wait()
        yield "Llama, compiled: the first forward", "process", time.perf_counter() - start
        yield "Llama, compiled: forward", "call", bench.seconds(partial(forward, prompt))
    model = bench.model(models.Llama)
    step = torch.compile(partial(loss_of_tokens, model), mode=mode)
    loss = partial(step, bench.tokens(4, 64))
    yield bench.trained("Llama, compiled: training step", model, loss)
    model = bench.model(models.Llama)
    model.compile(mode=mode)
    loss = partial(loss_of_tokens, model, bench.tokens(4, 64))
    yield bench.trained("Llama, module.compile(): training step", model, loss)


def graphs(bench: Bench) -> Iterator[_Row]:
    """A CUDA graph of the forward: the modules run while it is captured alone."""
    if bench.device == "cpu":
        return
    model = bench.model(models.Llama).eval()
    prompt = bench.tokens(1, 8)
    with torch.no_grad():
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            model(prompt)
        bench.wait()
        graph = torch.cuda.CUDAGraph()
        start = time.perf_counter()
        with torch.cuda.graph(graph):
            logits, _ = model(prompt)
        yield "Llama: capture of a CUDA graph", "graph", time.perf_counter() - start
        graph.replay()
        bench.computed["graph"] = logits[0, -1, :8].tolist()
        yield "Llama: replay of a CUDA graph", "call", bench.seconds(graph.replay)


def transformers(bench: Bench) -> Iterator[_Row]:
    """The library's own Llama, where it is installed."""
    if importlib.util.find_spec("transformers") is None:
        return
    import transformers as library

    library.logging.set_verbosity_error()
    config = library.LlamaConfig(
        num_hidden_layers=24,
        hidden_size=64,
        intermediate_size=128,
        num_attention_heads=4,
        num_key_value_heads=4,
        vocab_size=VOCABULARY,
    )
    model = bench.model(library.LlamaForCausalLM, config=config).eval()
    prompt = bench.tokens(1, 8)
    generate = partial(
        model.generate,
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=32,
        min_new_tokens=32,
        do_sample=False,
        pad_token_id=0,
    )
    bench.computed["transformers: tokens"] = generate().flatten().tolist()
    yield "transformers Llama: generate", "token", bench.seconds(generate) / 32
    model.train()
    tokens = bench.tokens(4, 64)
    loss = lambda: model(tokens, labels=tokens).loss  # noqa: E731
    yield bench.trained("transformers Llama: training step", model, loss)


PARTS: dict[str, Callable[[Bench], Iterator[_Row]]] = {
    "decoding": decoding,
    "training": training,
    "trees": trees,
    "compiled": compiled,
    "graphs": graphs,
    "transformers": transformers,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dropin", action="store_true", help="seen at the start of the file")
    options = parser.parse_args()
    torch.use_deterministic_algorithms(True, warn_only=True)
    warnings.simplefilter("ignore")  # of what has no such algorithm
    bench = Bench(options.device, options.rounds)
    rows = [row for part in options.parts or PARTS for row in PARTS[part](bench)]
    computed = {name: [float(v).hex() for v in values] for name, values in bench.computed.items()}
    json.dump({"rows": rows, "computed": computed}, sys.stdout)


if __name__ == "__main__":
    main()
