# SPDX-License-Identifier: BSD-3-Clause
"""peft: adapters put into models, trained, merged, saved, loaded, switched and taken out."""

from __future__ import annotations

from typing import Any

import torch
from outcome import folder, report, seed, state, train, tree
from peft import (
    IA3Config,
    LoHaConfig,
    LoKrConfig,
    LoraConfig,
    PeftModel,
    PrefixTuningConfig,
    PromptTuningConfig,
    get_peft_model,
    get_peft_model_state_dict,
    inject_adapter_in_model,
)
from torch import nn
from transformers import AutoModelForCausalLM
from transformers_train import GPT2, LLAMA

ATTENTION = ["q_proj", "v_proj"]


def base(config: Any = LLAMA) -> Any:
    seed()
    return AutoModelForCausalLM.from_config(config)


def lora() -> dict[str, Any]:
    ids = torch.randint(1, 50, (2, 7))
    config = LoraConfig(
        r=4, lora_alpha=8, lora_dropout=0.1, target_modules=ATTENTION, task_type="CAUSAL_LM"
    )
    model = get_peft_model(base(), config)
    losses = train(model, lambda: model(input_ids=ids, labels=ids).loss)
    model.eval()
    facts: dict[str, Any] = {
        "trainable": list(model.get_nb_trainable_parameters()),
        "losses": losses,
        "adapter": get_peft_model_state_dict(model),
        "tree": tree(model),
    }
    with torch.no_grad():
        facts["out"] = model(input_ids=ids).logits
        with model.disable_adapter():
            facts["disabled"] = model(input_ids=ids).logits
        with folder() as place:
            model.save_pretrained(place)
            facts["files"] = sorted(p.name for p in place.iterdir())
            again = PeftModel.from_pretrained(base(), place).eval()
            again.load_adapter(str(place), adapter_name="second")
        facts["loaded"] = again(input_ids=ids).logits
        again.set_adapter("second")
        facts["second"] = again(input_ids=ids).logits
        again.add_weighted_adapter(
            ["default", "second"], [0.3, 0.5], "both", combination_type="linear"
        )
        again.set_adapter("both")
        facts["both"] = again(input_ids=ids).logits
        again.delete_adapter("second")
        model.merge_adapter()
        facts["merged"] = model(input_ids=ids).logits
        model.unmerge_adapter()
        facts["unmerged"] = model(input_ids=ids).logits
        whole = model.merge_and_unload()
        facts["unloaded"] = whole(input_ids=ids).logits
        facts["state"] = state(whole)
        facts["unloaded tree"] = tree(whole)
        facts["generated"] = again.generate(input_ids=ids, max_new_tokens=5, pad_token_id=0)
    return facts


def others() -> dict[str, Any]:
    ids = torch.randint(1, 50, (2, 7))
    ways = {
        "ia3": IA3Config(target_modules=ATTENTION, feedforward_modules=[]),
        "loha": LoHaConfig(r=2, target_modules=ATTENTION),
        "lokr": LoKrConfig(r=2, target_modules=ATTENTION),
        "saved": LoraConfig(r=2, target_modules=ATTENTION, modules_to_save=["lm_head"]),
        "dora": LoraConfig(r=2, target_modules=ATTENTION, use_dora=True),
        "prompt": PromptTuningConfig(num_virtual_tokens=3, task_type="CAUSAL_LM"),
        "prefix": PrefixTuningConfig(num_virtual_tokens=3, task_type="CAUSAL_LM"),
    }
    found = {}
    for name, config in ways.items():
        model = get_peft_model(base(GPT2) if name == "prefix" else base(), config)
        losses = train(model, lambda model=model: model(input_ids=ids, labels=ids).loss, steps=2)
        found[name] = {"losses": losses, "adapter": get_peft_model_state_dict(model)}
    return found


def injected() -> dict[str, Any]:
    """Into any module, in place."""
    seed()
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2), nn.Conv1d(1, 2, 1))
    inject_adapter_in_model(LoraConfig(r=2, target_modules=["0", "2", "3"]), module)
    x = torch.randn(5, 4)
    losses = train(module, lambda: module[:3](x).square().mean())
    return {"losses": losses, "state": state(module), "tree": tree(module)}


def main() -> dict[str, Any]:
    return {"lora": lora(), "others": others(), "injected": injected()}


if __name__ == "__main__":
    report(main())
