# SPDX-License-Identifier: BSD-3-Clause
"""One process of ``python -m bench.bench_dropin``: measures the rows on torch's Module, or with
``--dropin`` on the native one, and prints them as JSON.
"""

from __future__ import annotations

import sys

if "--dropin" in sys.argv:
    import modtree.dropin  # noqa: F401

import copy
import gc
import importlib.util
import json
import pickle
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from . import dropin_models as models
from . import life_rows

#: (name of the row, what it is measured per, seconds or bytes)
_Row = tuple[str, str, float]


def seconds(run: Callable[[], Any], repeats: int = 7, at_least: float = 0.02) -> float:
    """CPU time of one run: the least of several rounds, each of as many runs as fill the time."""
    run()
    start = time.process_time()
    run()
    once = max(time.process_time() - start, 1e-7)
    count = max(1, int(at_least / once))
    least = float("inf")
    for _ in range(repeats):
        gc.collect()
        gc.disable()
        start = time.process_time()
        for _ in range(count):
            run()
        least = min(least, (time.process_time() - start) / count)
        gc.enable()
    return least


def decoders() -> Iterator[_Row]:
    for name, cls in (("Llama", models.Llama), ("Mixtral", models.Mixtral), ("GPT-2", models.GPT2)):
        torch.manual_seed(0)
        model = cls().eval()
        prompt = torch.arange(8)[None]
        token = torch.zeros(1, 1, dtype=torch.long)
        with torch.no_grad():
            _, caches = model(prompt)
            yield f"{name}: forward of a token", "token", seconds(partial(model, token, caches))
        run = seconds(partial(model.generate, prompt, 16), 5, 0)
        yield f"{name}: greedy decoding", "token", run / 17
        yield f"{name}: training step", "step", seconds(partial(_train, model, prompt), 5, 0)


def _train(model: Any, tokens: torch.Tensor) -> None:
    logits, _ = model(tokens)
    F.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
    model.zero_grad()


def vision() -> Iterator[_Row]:
    images = torch.zeros(1, 3, 64, 64)
    for name, cls in (("ResNet-50", models.ResNet50), ("ViT", models.ViT)):
        torch.manual_seed(0)
        model = cls().eval()
        with torch.no_grad():
            yield f"{name}: forward, batch of 1", "image", seconds(lambda m=model: m(images))

        def step(model: Any = model) -> None:
            model(images).square().mean().backward()
            model.zero_grad()

        yield f"{name}: training step", "step", seconds(step, 5, 0)


def trees() -> Iterator[_Row]:
    for name, cls in (("Llama", models.Llama), ("ResNet-50", models.ResNet50)):
        yield f"{name}: build", "model", seconds(cls, 5, 0)
        with torch.device("meta"):
            yield f"{name}: build on meta", "model", seconds(cls, 5, 0)
        yield from _tree(name, cls())
    yield from _tree("expert tree", models.Experts())


def _tree(name: str, model: Any) -> Iterator[_Row]:
    state = {key: value.clone() for key, value in model.state_dict().items()}
    other = copy.deepcopy(model)
    pickled = pickle.dumps(model)

    def cast() -> None:
        other.double()
        other.float()

    runs: dict[str, Callable[[], Any]] = {
        "list(named_parameters())": lambda: list(model.named_parameters()),
        "state_dict()": model.state_dict,
        "load_state_dict()": lambda: model.load_state_dict(state),
        "load_state_dict(assign=True)": lambda: other.load_state_dict(state, assign=True),
        "train() and eval()": lambda: (model.train(), model.eval()),
        "zero_grad()": model.zero_grad,
        "to(dtype) and back": cast,
        "to(device), where it is": lambda: model.to("cpu"),
        "deepcopy": lambda: copy.deepcopy(model),
        "pickle.dumps": lambda: pickle.dumps(model),
        "pickle.loads": lambda: pickle.loads(pickled),
    }
    for what, run in runs.items():
        yield f"{name}: {what}", "call", seconds(run, 5, 0.005)


def memory() -> Iterator[_Row]:
    """Bytes per module of the tree alone: its parameters are made before, and shared."""
    import tracemalloc

    class Leaf(torch.nn.Module):
        pass

    count = 10_000
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = [Leaf() for _ in range(count)]
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    yield "memory of an empty module, bytes", "module", (after - before) / len(kept)


def transformers() -> Iterator[_Row]:
    """The same of the library itself, where it is installed."""
    if importlib.util.find_spec("transformers") is None:
        return
    import transformers as library

    library.logging.set_verbosity_error()
    common = {"num_hidden_layers": 24, "hidden_size": 64, "vocab_size": 1000}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 128}
    configs = {
        "LlamaForCausalLM": library.LlamaConfig(**common, **heads),
        "GPT2LMHeadModel": library.GPT2Config(n_layer=24, n_embd=64, n_head=4, vocab_size=1000),
    }
    for name, config in configs.items():
        torch.manual_seed(0)
        cls = getattr(library, name)
        model = cls(config).eval()
        prompt = torch.arange(8)[None]
        mask = torch.ones_like(prompt)

        def generate(model: Any = model, prompt: Any = prompt, mask: Any = mask) -> None:
            model.generate(
                prompt,
                attention_mask=mask,
                max_new_tokens=17,
                min_new_tokens=17,
                do_sample=False,
                pad_token_id=0,
            )

        yield f"transformers {name}: generate", "token", seconds(generate, 5, 0) / 17
        build = seconds(lambda c=cls, k=config: c(k), 3, 0)
        yield f"transformers {name}: build", "model", build
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(Path(folder))
            load = seconds(lambda c=cls, f=folder: c.from_pretrained(f), 3, 0)
        yield f"transformers {name}: from_pretrained", "model", load


PARTS: dict[str, Callable[[], Iterator[_Row]]] = {
    "decoders": decoders,
    "vision": vision,
    "trees": trees,
    "memory": memory,
    "transformers": transformers,
    "life": life_rows.life,
    "compiled": life_rows.compiled,
}


def main() -> None:
    torch.set_num_threads(1)
    wanted = [name for name in sys.argv[1:] if name in PARTS]
    rows = [row for name in wanted for row in PARTS[name]()]
    json.dump(rows, sys.stdout)


if __name__ == "__main__":
    main()
