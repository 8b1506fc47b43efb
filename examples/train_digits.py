#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Trains a small convolutional network on scikit-learn's handwritten digits.

    pip install '.[examples]'
    python examples/train_digits.py                    # trains, writes checkpoint and plot
    python examples/train_digits.py --resume           # goes on from the checkpoint
    python examples/train_digits.py --library torch    # the same model in torch, then in modtree;
    prints both times

The data comes inside of scikit-learn: 1797 images of 8 x 8 pixels. A fifth of them is held out. The
network, the loop and the checkpoints are written once for both libraries, which start from the same
weights and see the same batches. Set OMP_NUM_THREADS=1 to compare them on one thread.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

INSTALL_EXTRA = "pip install '.[examples]'"


class Missing(Exception):
    """Something has to be installed first; the message says how."""


def need(name: str, install: str = INSTALL_EXTRA) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Missing(
            f"The package {name.partition('.')[0]!r} is needed. In the project's folder, run\n\n "
            f"   {install}\n"
        ) from error


# -- data ------------------------------------------------------------------------------------------


@dataclass
class Digits:
    """Images as (N, 1, 8, 8) in [0, 1] and labels, divided once and for all."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def load_digits() -> Digits:
    bunch = need("sklearn.datasets").load_digits()
    images = (bunch.images / 16).astype(np.float32)[:, None]
    labels = bunch.target.astype(np.int64)
    order = np.random.default_rng(0).permutation(len(images))
    test, train = np.split(order, [len(order) // 5])
    return Digits(images[train], labels[train], images[test], labels[test])


# -- the model, for either library -----------------------------------------------------------------


def build_model(nn: Any) -> Any:
    """Two blocks of convolutions, 4 x 4 and 2 x 2 after their pooling, and a linear classifier."""

    def block(inputs: int, outputs: int) -> Any:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
        )

    class DigitNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features = nn.Sequential(
                block(1, 16), block(16, 32), nn.MaxPool2d(2), block(32, 64), nn.MaxPool2d(2)
            )
            self.classifier = nn.Linear(64 * 2 * 2, 10)

        def forward(self, x: Any) -> Any:
            return self.classifier(self.features(x).reshape(len(x), -1))

    return DigitNet()


def initial_weights(seed: int) -> dict[str, np.ndarray]:
    """The weights both libraries start from."""
    import modtree

    modtree.manual_seed(seed)
    return {name: np.array(t.numpy()) for name, t in build_model(modtree.nn).state_dict().items()}


# -- training --------------------------------------------------------------------------------------


@dataclass
class History:
    """What happened so far: one entry for each epoch."""

    loss: list[float] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


class Trainer:
    """Model, optimizer and schedule of one library, and what a checkpoint needs to go on with
    them.
    """

    def __init__(self, library: str, data: Digits, options: argparse.Namespace) -> None:
        self.name = library
        self.library = lib = need(library, f"pip install {library}")
        importlib.import_module(f"{library}.utils.data")
        self.options = options
        self.history = History()
        self.model = build_model(lib.nn)
        self.model.load_state_dict(
            {k: lib.from_numpy(np.array(v)) for k, v in initial_weights(options.seed).items()}
        )
        self.optimizer = lib.optim.AdamW(self.model.parameters(), lr=options.lr, weight_decay=0.02)
        self.schedule = lib.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, options.epochs)
        tensors = {k: lib.from_numpy(v) for k, v in vars(data).items()}
        self.train_set = lib.utils.data.TensorDataset(
            tensors["train_images"], tensors["train_labels"]
        )
        self.test_images, self.test_labels = tensors["test_images"], tensors["test_labels"]

    @property
    def epoch(self) -> int:
        return len(self.history.loss)

    def run_epoch(self, bar: Any) -> None:
        """One round over the training images, and the accuracy on the others afterwards."""
        lib = self.library
        # Of the epoch alone, so that a resumed run sees the same batches.
        order = np.random.default_rng([self.options.seed, self.epoch]).permutation(
            len(self.train_set)
        )
        loader = lib.utils.data.DataLoader(
            self.train_set, self.options.batch_size, sampler=order.tolist()
        )
        start = time.perf_counter()
        self.model.train()
        total = 0.0
        for images, labels in loader:
            loss = lib.nn.functional.cross_entropy(self.model(images), labels, label_smoothing=0.05)
            self.optimizer.zero_grad()
            loss.backward()
            lib.nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
            self.optimizer.step()
            total += loss.item() * len(labels)
            bar.update(1)
        self.schedule.step()
        self.history.seconds.append(time.perf_counter() - start)
        self.history.loss.append(total / len(self.train_set))
        self.history.accuracy.append(self.accuracy())
        bar.set_postfix(
            loss=f"{self.history.loss[-1]:.4f}", held_out=f"{self.history.accuracy[-1]:.2%}"
        )

    def accuracy(self) -> float:
        """The share of held-out images that are recognized."""
        self.model.eval()
        with self.library.no_grad():
            guesses = self.model(self.test_images).argmax(1)
        return float((guesses == self.test_labels).sum().item()) / len(self.test_labels)

    def train(self, checkpoint: Path) -> None:
        """Trains up to ``--epochs``, with a checkpoint after every epoch."""
        tqdm = need("tqdm")
        batches = -(-len(self.train_set) // self.options.batch_size)
        with tqdm.tqdm(
            total=self.options.epochs * batches,
            initial=self.epoch * batches,
            desc=self.name,
            unit="batch",
            disable=self.options.quiet,
        ) as bar:
            while self.epoch < self.options.epochs:
                self.run_epoch(bar)
                self.save(checkpoint)

    # -- checkpoints: tensors and JSON in one safetensors file, readable by either library ---------

    def save(self, path: Path) -> None:
        """Writes model, optimizer, schedule and history; a crash while writing leaves the last
        checkpoint.
        """
        arrays = {f"model.{name}": t for name, t in self.model.state_dict().items()}
        optimizer = self.optimizer.state_dict()
        for number, state in optimizer["state"].items():
            arrays |= {f"optimizer.{number}.{name}": t for name, t in state.items()}
        meta = {
            "param_groups": optimizer["param_groups"],
            "schedule": self.schedule.state_dict(),
            "history": asdict(self.history),
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".part")
        need("safetensors.numpy").save_file(
            {name: np.array(t.detach().numpy(), order="C") for name, t in arrays.items()},
            unfinished,
            {"training": json.dumps(meta)},
        )
        unfinished.replace(path)

    def resume(self, path: Path) -> None:
        """Goes on where the checkpoint was written."""
        model, states = {}, {}
        with need("safetensors").safe_open(path, framework="numpy") as file:
            meta = json.loads(file.metadata()["training"])
            for key in file.keys():
                kind, _, name = key.partition(".")
                # A copy, and of 0-d arrays too: from_numpy shares memory.
                tensor = self.library.from_numpy(np.array(file.get_tensor(key)))
                if kind == "model":
                    model[name] = tensor
                else:
                    number, _, name = name.partition(".")
                    states.setdefault(int(number), {})[name] = tensor
        self.model.load_state_dict(model)
        self.optimizer.load_state_dict({"state": states, "param_groups": meta["param_groups"]})
        self.schedule.load_state_dict(meta["schedule"])
        self.history = History(**meta["history"])


# -- the program -----------------------------------------------------------------------------------


def plot(histories: dict[str, History], path: Path) -> None:
    """Loss and accuracy over the epochs, as a PNG."""
    need("matplotlib").use("Agg")
    plt = need("matplotlib.pyplot")
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    # The curves of the two libraries lie on each other: dashes let the first show through.
    for (name, history), style in zip(histories.items(), ("-", "--"), strict=False):
        epochs = range(1, len(history.loss) + 1)
        left.plot(epochs, history.loss, style, label=name)
        right.plot(epochs, [100 * a for a in history.accuracy], style, label=name)
    left.set(xlabel="epoch", ylabel="training loss")
    right.set(xlabel="epoch", ylabel="recognized of the held-out digits [%]")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--library", choices=("modtree", "torch"), default="modtree")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--out", type=Path, default=Path("build/digits"), help="for checkpoints and the plot"
    )
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in --out")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    try:
        data = load_digits()
        trainers = []
        for library in dict.fromkeys((options.library, "modtree")):
            trainer = Trainer(library, data, options)
            checkpoint = options.out / f"{library}.safetensors"
            if options.resume:
                if not checkpoint.exists():
                    raise Missing(
                        f"There is no checkpoint {checkpoint}: run without --resume first"
                    )
                trainer.resume(checkpoint)
                print(f"{library}: resumed after {trainer.epoch} epochs")
            trainer.train(checkpoint)
            trainers.append(trainer)
    except Missing as error:
        print(error, file=sys.stderr)
        return 2
    plot({t.name: t.history for t in trainers}, options.out / "digits.png")
    for trainer in trainers:
        history = trainer.history
        print(
            f"{trainer.name}: {history.accuracy[-1]:.2%} of {len(data.test_labels)} held-out "
            f"digits recognized, "
            f"loss {history.loss[-1]:.4f}, {trainer.epoch} epochs in {sum(history.seconds):.1f} s"
        )
    print(f"checkpoints and digits.png are in {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
