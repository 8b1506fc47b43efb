# SPDX-License-Identifier: BSD-3-Clause
"""diffusers: a U-Net trained to take noise away, an average of it, pipelines and their files."""

from __future__ import annotations

from typing import Any

import torch
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    DDPMPipeline,
    DDPMScheduler,
    UNet2DConditionModel,
    UNet2DModel,
)
from diffusers.training_utils import EMAModel
from diffusers.utils import logging
from outcome import folder, report, seed, state, tree
from torch import nn

UNET = {
    "sample_size": 8,
    "block_out_channels": (8, 16),
    "norm_num_groups": 4,
    "layers_per_block": 1,
    "attention_head_dim": 4,
}


def unet() -> UNet2DModel:
    seed()
    return UNet2DModel(
        in_channels=3,
        out_channels=3,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        **UNET,
    )


def trained() -> dict[str, Any]:
    model = unet()
    model.enable_gradient_checkpointing()
    ema = EMAModel(model.parameters(), decay=0.9)
    schedule = DDPMScheduler(num_train_timesteps=20)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    images = torch.randn(2, 3, 8, 8)
    losses = []
    model.train()
    for _ in range(2):
        noise = torch.randn_like(images)
        when = torch.randint(20, (2,))
        guess = model(schedule.add_noise(images, noise, when), when).sample
        loss = nn.functional.mse_loss(guess, noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.step(model.parameters())
        losses.append(loss.item())
    ema.copy_to(model.parameters())
    with folder() as place:
        DDPMPipeline(model, schedule).save_pretrained(place)
        files = sorted(p.relative_to(place).as_posix() for p in place.rglob("*.*"))
        pipeline = DDPMPipeline.from_pretrained(place)
        alone = UNet2DModel.from_pretrained(place / "unet", torch_dtype=torch.bfloat16)
        pipeline.scheduler = DDIMScheduler.from_config(pipeline.scheduler.config)
        pipeline.set_progress_bar_config(disable=True)
        made = pipeline(
            batch_size=1, num_inference_steps=2, output_type="np",
            generator=torch.Generator().manual_seed(1),
        ).images  # fmt: skip
    return {
        "losses": losses,
        "state": state(pipeline.unet),
        "half": state(alone),
        "files": files,
        "made": made,
        "tree": tree(model),
        "components": sorted(pipeline.components),
    }


def conditioned() -> dict[str, Any]:
    seed()
    model = UNet2DConditionModel(
        in_channels=4, out_channels=4, cross_attention_dim=8,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), **UNET,
    ).eval()  # fmt: skip
    images, text = torch.randn(1, 4, 8, 8), torch.randn(1, 3, 8)
    with torch.no_grad():
        outs = [model(images, 3, text).sample]
        model.set_attention_slice(2)
        outs.append(model(images, 3, text).sample)
        model.set_default_attn_processor()
        outs.append(model(images, 3, text).sample)
        autoencoder = AutoencoderKL(block_out_channels=(8,), norm_num_groups=4, sample_size=8)
        latent = autoencoder.encode(torch.randn(1, 3, 8, 8)).latent_dist.mode()
        outs.append(autoencoder.decode(latent).sample)
    return {
        "outs": outs,
        "processors": sorted(model.attn_processors),
        "size": model.num_parameters(),
    }


def main() -> dict[str, Any]:
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    return {"trained": trained(), "conditioned": conditioned()}


if __name__ == "__main__":
    report(main())
