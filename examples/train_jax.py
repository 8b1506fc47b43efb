#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Trains the digits network or a small GPT on jax with optax, and goes on with any library.

    pip install 'modtree[jax]' optax scikit-learn tqdm
    python examples/train_jax.py digits                          # 10 epochs, jitted, on jax
    python examples/train_jax.py digits --epochs 12 --resume     # two more
    python examples/train_jax.py digits --epochs 14 --resume --library numpy    # or torch
    python examples/train_jax.py gpt --epochs 3

The models are those of the other examples (train_digits.py, ported/gpt2.py). A checkpoint is one
safetensors file with the parameters and buffers and, by the same names, both averages of Adam, so
that each library goes on where another has stopped. The GPT learns the characters of this folder's
own files.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import modtree as mt
import modtree.nn.functional as F
from modtree import nn

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER / "ported")]

import run  # noqa: E402
import train_digits  # noqa: E402

DECAY, SMALLEST = 0.01, 1e-8

Arrays = tuple[np.ndarray, ...]


# -- the tasks -------------------------------------------------------------------------------------


class Digits:
    """Images of handwritten digits."""

    def __init__(self) -> None:
        data = train_digits.load_digits()
        self.inputs, self.targets = data.train_images, data.train_labels

    def build(self) -> nn.Module:
        return train_digits.build_model(nn)

    @staticmethod
    def loss(model: nn.Module, images: Any, labels: Any) -> Any:
        return F.cross_entropy(model(images), labels)


class Text:
    """Pieces of a text, character by character."""

    def __init__(self, length: int = 64) -> None:
        text = "".join(path.read_text() for path in sorted(FOLDER.glob("*.py")))
        letters = {letter: i for i, letter in enumerate(sorted(set(text)))}
        codes = np.array([letters[letter] for letter in text])
        pieces = codes[: len(codes) // (length + 1) * (length + 1)].reshape(-1, length + 1)
        self.inputs, self.targets, self.count = pieces[:, :-1], pieces[:, 1:], len(letters)
        self.length = length

    def build(self) -> nn.Module:
        return run.load("gpt2").build(
            vocabulary=self.count, context=self.length, layers=2, heads=4, width=64, dropout=0.1
        )

    @staticmethod
    def loss(model: nn.Module, tokens: Any, following: Any) -> Any:
        logits = model(tokens)
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), following.reshape(-1))


TASKS: dict[str, Callable[[], Any]] = {"digits": Digits, "gpt": Text}


# -- a step, on jax and on the others --------------------------------------------------------------


class JaxStep:
    """Optax's AdamW and the gradients of jax, as one jitted function."""

    def __init__(self, model: nn.Module, loss: Callable[..., Any], options: Any) -> None:
        import jax
        import optax

        import modtree.jax
        from modtree.jax_arrays.functions import keys

        adam = optax.scale_by_adam(eps=SMALLEST)
        self.optimizer = optax.chain(
            adam, optax.add_decayed_weights(DECAY), optax.scale_by_learning_rate(options.lr)
        )
        self.model, self.jax = model, jax
        self.state = self.optimizer.init(modtree.jax.parameters(model))
        self.key = jax.random.key(options.seed)

        def step(model: nn.Module, state: Any, key: Any, inputs: Any, targets: Any) -> Any:
            with keys(key):
                value, grads = modtree.jax.value_and_grad(loss)(model, inputs, targets)
            updates, state = self.optimizer.update(grads, state, modtree.jax.parameters(model))
            modtree.jax.apply_updates(model, updates)
            return value, state

        self.jitted = modtree.jax.jit(step)

    def __call__(self, number: int, inputs: np.ndarray, targets: np.ndarray) -> float:
        key = self.jax.random.fold_in(self.key, number)
        value, self.state = self.jitted(self.model, self.state, key, inputs, targets)
        return float(value)

    def averages(self) -> dict[str, dict[str, Any]]:
        """Adam's averages of gradients and of their squares, by the names of parameters."""
        adam = self.state[0]
        return {"mean": dict(adam.mu), "square": dict(adam.nu)}

    def set_averages(self, averages: dict[str, dict[str, Any]], count: int) -> None:
        as_jax = self.jax.numpy.asarray
        adam = self.state[0]
        new = {
            kind: type(old)({name: as_jax(averages[kind][name].numpy()) for name in old})
            for kind, old in (("mean", adam.mu), ("square", adam.nu))
        }
        adam = adam._replace(count=as_jax(count, "int32"), mu=new["mean"], nu=new["square"])
        self.state = (adam, *self.state[1:])


class EagerStep:
    """AdamW and backward of modtree or torch."""

    def __init__(self, model: nn.Module, loss: Callable[..., Any], options: Any) -> None:
        import importlib

        self.library = importlib.import_module("modtree" if options.library == "numpy" else "torch")
        self.model, self.loss = model, loss
        self.optimizer = self.library.optim.AdamW(
            model.parameters(), lr=options.lr, eps=SMALLEST, weight_decay=DECAY
        )
        self.library.manual_seed(options.seed)

    def __call__(self, number: int, inputs: np.ndarray, targets: np.ndarray) -> float:
        loss = self.loss(self.model, *map(self.library.from_numpy, (inputs, targets)))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def averages(self) -> dict[str, dict[str, Any]]:
        state = self.optimizer.state
        names = dict(self.model.named_parameters())
        return {
            kind: {name: state[p][key] for name, p in names.items()}
            for kind, key in (("mean", "exp_avg"), ("square", "exp_avg_sq"))
        }

    def set_averages(self, averages: dict[str, dict[str, Any]], count: int) -> None:
        def own(tensor: Any) -> Any:
            return self.library.from_numpy(tensor.numpy().copy())

        state = self.optimizer.state_dict()
        state["state"] = {
            number: {
                "step": self.library.tensor(float(count)),
                "exp_avg": own(averages["mean"][name]),
                "exp_avg_sq": own(averages["square"][name]),
            }
            for number, (name, _) in enumerate(self.model.named_parameters())
        }
        self.optimizer.load_state_dict(state)


# -- training --------------------------------------------------------------------------------------


class Training:
    def __init__(self, task: Any, options: argparse.Namespace) -> None:
        self.task, self.options = task, options
        mt.manual_seed(options.seed)
        with mt.default_family(options.library):
            self.model = task.build()
        kind = JaxStep if options.library == "jax" else EagerStep
        self.step = kind(self.model, task.loss, options)
        self.epoch = self.count = 0
        self.losses: list[float] = []

    def batches(self) -> Iterator[Arrays]:
        """Whole batches, in an order of the epoch alone."""
        size, inputs, targets = self.options.batch_size, self.task.inputs, self.task.targets
        order = np.random.default_rng([self.options.seed, self.epoch]).permutation(len(inputs))
        for start in range(0, len(order) - size + 1, size):
            chosen = order[start : start + size]
            yield inputs[chosen], targets[chosen]

    def run_epoch(self, bar: Any) -> None:
        self.model.train()
        values = []
        for inputs, targets in self.batches():
            values.append(self.step(self.count, inputs, targets))
            self.count += 1
            bar.update(1)
        self.epoch += 1
        self.losses.append(float(np.mean(values)))
        bar.set_postfix(epoch=self.epoch, loss=f"{self.losses[-1]:.4f}")

    def save(self, path: Path) -> None:
        tensors = {f"model.{name}": t for name, t in self.model.state_dict().items()}
        for kind, averages in self.step.averages().items():
            tensors |= {f"{kind}.{name}": t for name, t in averages.items()}
        tensors["progress"] = mt.tensor([self.epoch, self.count])
        path.parent.mkdir(parents=True, exist_ok=True)
        mt.save_file(tensors, path)

    def resume(self, path: Path) -> None:
        """Goes on from a checkpoint of any library."""
        found: dict[str, dict[str, Any]] = {"model": {}, "mean": {}, "square": {}}
        for key, tensor in mt.load_file(path).items():
            kind, _, name = key.partition(".")
            if kind == "progress":
                self.epoch, self.count = tensor.tolist()
            else:
                found[kind][name] = tensor
        self.model.load_state_dict(found.pop("model"))
        self.step.set_averages(found, self.count)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--library", choices=("jax", "numpy", "torch"), default="jax")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("build/jax"), help="for checkpoints")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in --out")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    try:
        training = Training(TASKS[options.task](), options)
        tqdm = train_digits.need("tqdm")
    except (train_digits.Missing, ImportError) as error:
        print(error, file=sys.stderr)
        return 2
    path = options.out / f"{options.task}.safetensors"
    if options.resume:
        training.resume(path)
        print(f"resumed after {training.epoch} epochs")
    begin = time.perf_counter()
    total = len(training.task.inputs) // options.batch_size * (options.epochs - training.epoch)
    with tqdm.tqdm(total=total, unit="batch", disable=options.quiet) as bar:
        while training.epoch < options.epochs:
            training.run_epoch(bar)
            training.save(path)
    if training.losses:
        print(
            f"{options.library}: loss {training.losses[-1]:.4f} after {training.epoch} epochs, "
            f"{time.perf_counter() - begin:.1f} s"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
