# SPDX-License-Identifier: BSD-3-Clause
"""transformers: Trainer with evaluation and checkpoints, resumed from the middle."""

from __future__ import annotations

from typing import Any

import torch
from outcome import folder, report, seed, state
from torch.utils.data import Dataset
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments
from transformers_train import BERT


class Pairs(Dataset):
    def __init__(self, count: int) -> None:
        draw = torch.Generator().manual_seed(count)
        self.ids = torch.randint(1, 50, (count, 7), generator=draw)
        self.labels = self.ids.sum(1) % 2

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.ids[index], "labels": self.labels[index]}


def right(prediction: Any) -> dict[str, float]:
    return {"right": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def trainer(place: Any, **options: Any) -> Trainer:
    seed()
    return Trainer(
        model=AutoModelForSequenceClassification.from_config(BERT),
        args=TrainingArguments(
            output_dir=str(place), per_device_train_batch_size=4, per_device_eval_batch_size=8,
            learning_rate=1e-3, logging_steps=2, save_steps=4, eval_steps=4, eval_strategy="steps",
            max_steps=8, use_cpu=True, report_to=[], seed=3, disable_tqdm=True, max_grad_norm=0.5,
            gradient_accumulation_steps=2, **options,
        ),
        train_dataset=Pairs(24),
        eval_dataset=Pairs(8),
        compute_metrics=right,
    )  # fmt: skip


def history(done: Trainer) -> list[dict[str, Any]]:
    times = ("runtime", "per_second", "total_flos")
    return [
        {k: v for k, v in entry.items() if not any(t in k for t in times)}
        for entry in done.state.log_history
    ]


def main() -> dict[str, Any]:
    with folder() as place:
        first = trainer(place)
        first.train()
        checkpoints = sorted(p.name for p in place.iterdir())
        files = sorted(p.name for p in (place / checkpoints[0]).iterdir())
        second = trainer(place)
        second.train(resume_from_checkpoint=str(place / "checkpoint-4"))
        predictions = second.predict(Pairs(8)).predictions
    return {
        "history": history(first),
        "resumed": history(second),
        "checkpoints": checkpoints,
        "files": files,
        "state": state(first.model),
        "resumed state": state(second.model),
        "predictions": predictions,
    }


if __name__ == "__main__":
    report(main())
