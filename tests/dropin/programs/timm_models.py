# SPDX-License-Identifier: BSD-3-Clause
"""timm: networks built by name, trained with an average of their weights, taken apart."""

from __future__ import annotations

import io
from typing import Any

import timm
import torch
from outcome import folder, plain, report, seed, state, tree
from timm.loss import LabelSmoothingCrossEntropy
from timm.optim import create_optimizer_v2
from timm.utils import ModelEmaV3, freeze, reparameterize_model, unfreeze
from timm.utils.checkpoint_saver import CheckpointSaver

VIT = {"img_size": 16, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2}


def trained(model: Any, x: torch.Tensor) -> dict[str, Any]:
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
    ema = ModelEmaV3(model, decay=0.9)
    criterion = LabelSmoothingCrossEntropy()
    labels = torch.arange(len(x)) % 3
    model.train()
    losses = []
    for step in range(2):
        optimizer.zero_grad()
        loss = criterion(model(x), labels)
        loss.backward()
        optimizer.step()
        ema.update(model, step=step)
        losses.append(loss.item())
    with folder() as place:
        saver = CheckpointSaver(
            model, optimizer, args=None, model_ema=ema, checkpoint_dir=str(place),
            recovery_dir=str(place),
        )  # fmt: skip
        saver.save_checkpoint(0, metric=1.0)
        entries = torch.load(place / "last.pth.tar", weights_only=True)
    return {
        "losses": losses,
        "state": state(model),
        "ema": state(ema.module),
        "groups": [len(g["params"]) for g in optimizer.param_groups],
        "saved": [sorted(entries), len(entries["state_dict"])],
    }


def main() -> dict[str, Any]:
    facts: dict[str, Any] = {}
    x = torch.randn(2, 3, 32, 32)
    seed()
    resnet = timm.create_model("resnet18", num_classes=3, drop_path_rate=0.1)
    facts["resnet18"] = trained(resnet, x)
    seed()
    vit = timm.create_model("vit_tiny_patch16_224", num_classes=3, **VIT)
    facts["vit"] = trained(vit, x[..., :16, :16])
    vit.set_grad_checkpointing(True)
    facts["vit checkpointed"] = trained(vit, x[..., :16, :16])
    seed()
    features = timm.create_model("resnet18", features_only=True, out_indices=(1, 3)).eval()
    facts["features"] = [features(x), features.feature_info.channels(), tree(features)]
    resnet.eval()
    facts["reset"] = []
    for classes, pool in ((5, "max"), (0, "")):
        resnet.reset_classifier(classes, pool)
        facts["reset"].append(plain(resnet(x)))
    freeze(resnet, ["layer1", "layer2.0.bn1"])
    facts["frozen"] = tree(resnet), [n for n, p in resnet.named_parameters() if p.requires_grad]
    unfreeze(resnet)
    facts["unfrozen"] = tree(resnet), [n for n, p in resnet.named_parameters() if p.requires_grad]
    file = io.BytesIO()
    torch.save(vit, file)
    file.seek(0)
    facts["loaded"] = state(torch.load(file, weights_only=False))
    seed()
    rep = timm.create_model("repvgg_a0", num_classes=2, width_factor=0.25).eval()
    facts["rep"] = [rep(x), tree(reparameterize_model(rep))]
    facts["listed"] = len(timm.list_models("resnet1*")) > 0
    return facts


if __name__ == "__main__":
    report(main())
