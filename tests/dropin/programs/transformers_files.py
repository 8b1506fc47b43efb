# SPDX-License-Identifier: BSD-3-Clause
"""transformers: models saved in parts and loaded in every way that from_pretrained has."""

from __future__ import annotations

import copy
from typing import Any

import torch
from outcome import folder, plain, report, seed, state
from transformers import AutoModel, AutoModelForCausalLM, BertModel
from transformers_train import BERT, GPT2, LLAMA, MIXTRAL


def texts(value: Any) -> Any:
    """Loading information, in an order."""
    if isinstance(value, dict):
        return {str(k): texts(v) for k, v in value.items()}
    if isinstance(value, set | list | tuple):
        return sorted(str(v) for v in value)
    return str(value)


def through_files(config: Any) -> dict[str, Any]:
    seed()
    model = AutoModelForCausalLM.from_config(config)
    ids = torch.randint(1, 50, (2, 5))
    with folder() as place:
        model.save_pretrained(place, max_shard_size="20KB")
        files = sorted(p.name for p in place.iterdir())
        loaded, info = AutoModelForCausalLM.from_pretrained(place, output_loading_info=True)
        half = AutoModelForCausalLM.from_pretrained(place, dtype=torch.bfloat16)
        mapped = AutoModelForCausalLM.from_pretrained(place, device_map="cpu")
        base, base_info = AutoModel.from_pretrained(place, output_loading_info=True)
    with torch.no_grad():
        outs = {"out": model.eval()(ids).logits, "loaded": loaded(ids).logits}
        outs["half"], outs["mapped"] = half(ids).logits, mapped(ids).logits
    return {
        **outs,
        "files": files,
        "info": texts(info),
        "base info": texts(base_info),
        "same": state(loaded) == state(model),
        "half state": state(half),
        "base": state(base),
        "training": sorted({m.training for m in loaded.modules()}),
    }


def changed() -> dict[str, Any]:
    """What users do to a loaded model."""
    seed()
    model = AutoModelForCausalLM.from_config(GPT2)
    tied = model.lm_head.weight is model.transformer.wte.weight
    model.resize_token_embeddings(60, mean_resizing=False)
    still = model.lm_head.weight is model.transformer.wte.weight
    bert = BertModel(BERT)
    copied = copy.deepcopy(bert)
    bert.set_input_embeddings(torch.nn.Embedding(70, 16))
    seen: list[str] = []
    handle = bert.encoder.layer[0].register_forward_hook(
        lambda m, args, out: seen.append(type(m).__name__)
    )
    bert.eval()(torch.ones(1, 3, dtype=torch.long))
    handle.remove()
    with torch.device("meta"):
        meta = AutoModelForCausalLM.from_config(LLAMA)
    return {
        "tied": [tied, still],
        "resized": plain(model.lm_head.weight),
        "copied": state(copied),
        "bert": state(bert),
        "seen": seen,
        "meta": state(meta),
        "devices": sorted({str(p.device) for p in meta.parameters()}),
        "names": [n for n, _ in bert.named_modules()],
    }


def main() -> dict[str, Any]:
    return {
        "gpt2": through_files(GPT2),
        "llama": through_files(LLAMA),
        "mixtral": through_files(MIXTRAL),
        "changed": changed(),
    }


if __name__ == "__main__":
    report(main())
