# SPDX-License-Identifier: BSD-3-Clause
"""The rows of ``python -m bench.bench_life``, measured in a process of ``dropin_worker``: the life
of a model of many modules, and what a compilation does to the modules of its process.
"""

from __future__ import annotations

import copy
import gc
import importlib
import importlib.util
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from . import dropin_models as models

_Row = tuple[str, str, float]


def _once(run: Callable[[], Any]) -> tuple[float, Any]:
    """CPU time of one run with the collector on, as programs have it."""
    gc.collect()
    start = time.process_time()
    result = run()
    return time.process_time() - start, result


def _library(name: str) -> Any:
    return importlib.import_module(name) if importlib.util.find_spec(name) else None


def _maker() -> Callable[[], nn.Module]:
    """A Qwen3-MoE of 4,159 modules with tiny widths, or the tree of experts of the benchmarks."""
    library = _library("transformers")
    if not hasattr(library, "Qwen3MoeForCausalLM"):
        return models.Experts
    library.logging.set_verbosity_error()
    library.utils.logging.disable_progress_bar()
    sizes = {"hidden_size": 8, "intermediate_size": 8, "moe_intermediate_size": 4, "head_dim": 4}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 24}
    config = library.Qwen3MoeConfig(vocab_size=64, num_experts=32, **sizes, **heads)
    return partial(library.Qwen3MoeForCausalLM, config)


def life() -> Iterator[_Row]:
    make = _maker()
    make()  # what the first one imports

    def on_meta() -> nn.Module:
        with torch.device("meta"):
            return make()

    seconds, model = _once(make)
    yield "build on cpu", "model", seconds
    state = model.state_dict()
    torch.empty(1, device="meta").normal_()  # torch imports its compiler for the first one
    yield "build on meta", "model", _once(on_meta)[0]
    skip = partial(nn.utils.skip_init, nn.Linear, 4, 4)
    yield "skip_init, 1,000 of Linear", "call", _once(lambda: [skip() for _ in range(1000)])[0]
    load = partial(nn.Module.load_state_dict, state_dict=state, assign=True)
    yield "build on meta, load(assign=True)", "model", _once(lambda: load(on_meta()))[0]
    steps: dict[str, Callable[[], Any]] = {
        "load_state_dict": lambda: model.load_state_dict(state),
        "to(bfloat16)": copy.deepcopy(model).bfloat16,
        "deepcopy": lambda: copy.deepcopy(model),
        "train() and eval()": lambda: (model.train(), model.eval()),
        "AveragedModel(model)": lambda: AveragedModel(model),
        "AdamW with two groups": lambda: torch.optim.AdamW(_groups(model)),
    }
    if accelerate := _library("accelerate"):

        def make_empty() -> nn.Module:
            with accelerate.init_empty_weights():
                return make()

        steps["accelerate.init_empty_weights"] = make_empty
    with tempfile.TemporaryDirectory() as folder:
        steps["torch.save(state_dict)"] = lambda: torch.save(model.state_dict(), f"{folder}/saved")
        if hasattr(model, "save_pretrained"):
            shard = sum(parameter.nbytes for parameter in model.parameters()) // 8 + 1
            save = partial(model.save_pretrained, folder, max_shard_size=shard)
            steps["save_pretrained, 8 shards"] = save
            steps["from_pretrained"] = lambda: type(model).from_pretrained(folder)
        for name, run in steps.items():
            yield name, "call", _once(run)[0]
    peft = _library("peft")
    if peft and hasattr(model, "save_pretrained"):
        config = peft.LoraConfig(r=2, target_modules="all-linear")
        seconds, wrapped = _once(lambda: peft.get_peft_model(model, config))
        yield "peft: get_peft_model, all linears", "call", seconds
        yield "peft: merge_and_unload", "call", _once(wrapped.merge_and_unload)[0]


def _groups(model: nn.Module) -> list[dict[str, Any]]:
    kinds: tuple[list[Any], list[Any]] = ([], [])
    for name, parameter in model.named_parameters():
        kinds["norm" in name].append(parameter)
    return [{"params": kind} for kind in kinds if kind]


class _Leaf(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2))


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.leaves = nn.ModuleList(_Leaf() for _ in range(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + sum(leaf.weight for leaf in self.leaves)


def compiled() -> Iterator[_Row]:
    """Of a tree of 10,400 modules: before a compilation, after one of something else, and after one
    of a block of it.
    """
    tree = nn.Sequential(*[_Block() for _ in range(160)])
    count = sum(1 for _ in tree.modules())
    x = torch.ones(2)
    compile_it = partial(torch.compile, backend="eager")

    def rows(when: str) -> Iterator[_Row]:
        state = tree.state_dict()
        leaf = tree[0].leaves[0]
        steps: dict[str, tuple[int, Callable[[], Any]]] = {
            "make": (10_000, lambda: [_Leaf() for _ in range(10_000)]),
            "read a parameter": (100_000, lambda: [leaf.weight for _ in range(100_000)]),
            "named_parameters()": (count, lambda: list(tree.named_parameters())),
            "train() and eval()": (2 * count, lambda: (tree.train(), tree.eval())),
            "load_state_dict()": (count, lambda: tree.load_state_dict(state)),
            "deepcopy": (count, lambda: copy.deepcopy(tree)),
        }
        for name, (items, run) in steps.items():
            yield f"{name}, {when}", "module", min(_once(run)[0] for _ in range(3)) / items
        tracemalloc.start()
        kept = [_Leaf() for _ in range(1000)]
        size = tracemalloc.get_traced_memory()[0] / len(kept)
        tracemalloc.stop()
        yield f"bytes of a module with a parameter, {when}", "module", size

    yield from rows("before")
    yield "first compilation", "process", _once(lambda: compile_it(lambda x: x + 1)(x))[0]
    yield from rows("after another")
    yield "compilation of a block", "process", _once(lambda: compile_it(tree[0])(x))[0]
    yield from rows("after its own")
