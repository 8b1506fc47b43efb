# SPDX-License-Identifier: BSD-3-Clause
"""torchvision: networks, layers and transforms, a feature extractor made by fx."""

from __future__ import annotations

from typing import Any

import torch
import torchvision
from outcome import gradients, report, seed, state, tree
from torch import nn
from torchvision.models.feature_extraction import create_feature_extractor
from torchvision.ops import MLP, Conv2dNormActivation, SqueezeExcitation, StochasticDepth
from torchvision.transforms import v2


def step(model: nn.Module, x: torch.Tensor, result: Any = lambda y: y) -> dict[str, Any]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model.train()
    loss = result(model(x)).square().mean()
    loss.backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        return {
            "loss": loss.item(),
            "state": state(model),
            "gradients": gradients(model),
            "out": result(model(x)),
        }


def main() -> dict[str, Any]:
    facts: dict[str, Any] = {}
    x = torch.randn(2, 3, 32, 32)
    for name, options in {
        "resnet18": {},
        "mobilenet_v3_small": {},
        "shufflenet_v2_x0_5": {},
    }.items():
        seed()
        facts[name] = step(torchvision.models.get_model(name, num_classes=4, **options), x)
    seed()
    vit = torchvision.models.VisionTransformer(32, 16, 2, 2, 16, 32, num_classes=3)
    facts["vit"] = step(vit, x)
    seed()
    resnet = torchvision.models.resnet18().eval()
    extractor = create_feature_extractor(resnet, {"layer2": "middle", "avgpool": "end"})
    facts["extractor"] = [extractor(x), tree(extractor)]
    facts["scripted"] = torch.jit.script(resnet)(x)
    seed()
    parts = nn.Sequential(
        Conv2dNormActivation(3, 8), SqueezeExcitation(8, 4), StochasticDepth(0.5, "row"),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), MLP(8, [8, 2]),
    )  # fmt: skip
    facts["parts"] = [step(parts, x), str(parts)]
    transform = v2.Compose(
        [v2.RandomCrop(24), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True),
         v2.Normalize([0.5] * 3, [0.2] * 3)]
    )  # fmt: skip
    seed()
    facts["transformed"] = [transform(x), str(transform)]
    return facts


if __name__ == "__main__":
    report(main())
