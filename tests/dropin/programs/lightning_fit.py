# SPDX-License-Identifier: BSD-3-Clause
"""lightning: Trainer.fit with validation, callbacks and checkpoints, resumed and loaded."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import lightning as L
import torch
from lightning.fabric import Fabric
from lightning.pytorch.callbacks import (
    BackboneFinetuning,
    Callback,
    EarlyStopping,
    ModelCheckpoint,
    StochasticWeightAveraging,
)
from outcome import folder, report, seed, state
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MeanSquaredError


class Regression(L.LightningModule):
    def __init__(self, width: int = 8, lr: float = 1e-2) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.backbone = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.BatchNorm1d(width))
        self.head = nn.Linear(width, 1)
        self.error = MeanSquaredError()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.backbone(x))

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        x, y = batch
        loss = nn.functional.mse_loss(self(x), y)
        self.log("train", loss, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        x, y = batch
        self.error(self(x), y)
        self.log("valid", self.error, on_epoch=True)

    def configure_optimizers(self) -> Any:
        params = filter(lambda p: p.requires_grad, self.parameters())
        return torch.optim.Adam(params, lr=self.hparams.lr)


class Log(Callback):
    def __init__(self) -> None:
        self.metrics: list[dict[str, float]] = []
        self.modes: list[bool] = []

    def on_validation_epoch_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self.modes.append(module.head.training)

    def on_validation_epoch_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self.metrics.append({k: v.item() for k, v in trainer.callback_metrics.items()})


def loaders() -> tuple[DataLoader, DataLoader]:
    x = torch.randn(32, 3, generator=torch.Generator().manual_seed(1))
    data = TensorDataset(x, x.sum(1, keepdim=True))
    return DataLoader(data, batch_size=8, shuffle=True), DataLoader(data, batch_size=16)


def trainer(place: Any, epochs: int, *callbacks: Callback, **options: Any) -> L.Trainer:
    return L.Trainer(
        accelerator="cpu", devices=1, max_epochs=epochs, default_root_dir=str(place), logger=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=list(callbacks),
        deterministic=True, **options,
    )  # fmt: skip


def fitted(place: Any) -> dict[str, Any]:
    L.seed_everything(2, verbose=False)
    log = Log()
    best = ModelCheckpoint(str(place), filename="{epoch}", monitor="valid", save_top_k=2)
    first = trainer(place, 3, log, best, EarlyStopping("valid"), gradient_clip_val=0.5)
    module = Regression()
    first.fit(module, *loaders())
    loaded = Regression.load_from_checkpoint(best.best_model_path, weights_only=False)
    again = Regression()
    second = trainer(place, 5, StochasticWeightAveraging(1e-3, swa_epoch_start=0.8))
    second.fit(again, *loaders(), ckpt_path=best.last_model_path or best.best_model_path,
               weights_only=False)  # fmt: skip
    predictions = second.predict(again, DataLoader(torch.ones(4, 3), batch_size=2))
    return {
        "metrics": log.metrics,
        "modes": log.modes,
        "state": state(module),
        "loaded": state(loaded),
        "hparams": dict(loaded.hparams),
        "files": sorted(p.name for p in place.glob("*.ckpt")),
        "again": state(again),
        "predictions": list(predictions),
    }


def tuned(place: Any) -> dict[str, Any]:
    """The backbone is frozen for an epoch."""
    L.seed_everything(3, verbose=False)
    module = Regression()
    trainer(place, 3, BackboneFinetuning(1, verbose=False), enable_checkpointing=False).fit(
        module, loaders()[0]
    )
    return {"state": state(module), "grad": [p.requires_grad for p in module.parameters()]}


def fabric() -> dict[str, Any]:
    seed()
    lightning = Fabric(accelerator="cpu", devices=1, precision="bf16-mixed")
    with lightning.init_module():
        model = Regression()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wrapped, optimizer = lightning.setup(model, optimizer)
    x = torch.randn(4, 3)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = wrapped(x).square().mean()
        lightning.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "keys": list(wrapped.state_dict()), "state": state(model)}


def main() -> dict[str, Any]:
    warnings.simplefilter("ignore")
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with folder() as place:
        return {"fit": fitted(place), "tuned": tuned(place), "fabric": fabric()}


if __name__ == "__main__":
    report(main())
