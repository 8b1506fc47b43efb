# SPDX-License-Identifier: BSD-3-Clause
"""torchmetrics: metrics as modules, alone, in collections and inside of networks."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import torch
from outcome import error_of, report, seed, state, tree
from torch import nn
from torchmetrics import Accuracy, F1Score, MeanMetric, Metric, MetricCollection, MetricTracker
from torchmetrics.wrappers import BootStrapper, ClasswiseWrapper


class Largest(Metric):
    full_state_update = False

    def __init__(self) -> None:
        super().__init__()
        self.add_state("value", default=torch.tensor(-1.0), dist_reduce_fx="max")
        self.add_state("seen", default=[], dist_reduce_fx="cat")

    def update(self, x: torch.Tensor) -> None:
        self.value = torch.maximum(self.value, x.max())
        self.seen.append(x.flatten())

    def compute(self) -> torch.Tensor:
        return self.value + len(self.seen)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.metrics = MetricCollection(
            {
                "accuracy": Accuracy(task="multiclass", num_classes=3),
                "f1": F1Score(task="multiclass", num_classes=3, average="macro"),
            },
            prefix="train/",
        )
        self.loss = MeanMetric()
        self.largest = Largest()

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.layer(x)
        self.loss.update(nn.functional.cross_entropy(logits, y).detach())
        self.largest(logits.detach())
        return self.metrics(logits.softmax(-1), y)


def main() -> dict[str, Any]:
    seed()
    net = Net()
    net.loss.persistent(True)
    net.metrics.persistent(True)
    batches = [(torch.randn(6, 4), torch.randint(3, (6,))) for _ in range(3)]
    each = [net(*batch) for batch in batches]
    kept = state(net)
    other = Net()
    other.loss.persistent(True)
    other.metrics.persistent(True)
    loaded = str(other.load_state_dict(net.state_dict()))
    copied, pickled = copy.deepcopy(net), pickle.loads(pickle.dumps(net))
    facts = {
        "each": each,
        "computed": [net.metrics.compute(), net.loss.compute(), net.largest.compute()],
        "state": kept,
        "loaded": [loaded, other.metrics.compute(), other.loss.compute()],
        "copied": [copied.metrics.compute(), copied.largest.compute()],
        "pickled": [pickled.metrics.compute(), pickled.largest.compute()],
        "tree": tree(net),
        "hashes": [
            len({hash(m) for m in net.metrics.values()}),
            str(net.largest == copied.largest),
        ],
        "sum": (net.loss + net.largest).compute(),
        "frozen": error_of(lambda: setattr(net.largest, "is_differentiable", True)),
    }
    net.double().half()
    facts["dtype"] = str(net.largest.value.dtype)
    net.largest.set_dtype(torch.double)
    facts["set dtype"] = str(net.largest.value.dtype)
    net.metrics.reset()
    net.largest.reset()
    facts["reset"] = [net.largest.value, len(net.largest.seen), net.largest.update_count]
    tracker = MetricTracker(Accuracy(task="multiclass", num_classes=3))
    for x, y in batches:
        tracker.increment()
        tracker.update(net.layer.float()(x), y)
    facts["tracked"] = [tracker.compute_all(), tracker.best_metric(), tree(tracker)]
    wrapped = ClasswiseWrapper(Accuracy(task="multiclass", num_classes=3, average=None))
    facts["by class"] = wrapped(net.layer(batches[0][0]), batches[0][1])
    seed()
    boot = BootStrapper(Accuracy(task="multiclass", num_classes=3), num_bootstraps=3)
    boot.update(net.layer(batches[1][0]).argmax(-1), batches[1][1])
    facts["boot"] = boot.compute()
    return facts


if __name__ == "__main__":
    report(main())
