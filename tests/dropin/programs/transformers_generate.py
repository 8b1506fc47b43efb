# SPDX-License-Identifier: BSD-3-Clause
"""transformers: text written by small random models, greedily, sampled, by beams, with caches."""

from __future__ import annotations

from typing import Any

import torch
from outcome import plain, report, seed
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, GenerationConfig
from transformers_train import GPT2, LLAMA, MIXTRAL, T5

WAYS = {
    "greedy": {},
    "without a cache": {"use_cache": False},
    "sampled": {"do_sample": True, "top_k": 10, "temperature": 0.8},
    "beams": {"num_beams": 3, "num_return_sequences": 2},
    "static": {"cache_implementation": "static"},
}


def written(model: Any, ids: torch.Tensor, ways: Any = WAYS) -> dict[str, Any]:
    model.eval()
    mask = torch.ones_like(ids)
    found = {}
    for name, options in ways.items():
        seed(5)
        # The compiled cache would compile its decoding step, which takes minutes here.
        out = model.generate(
            ids,
            attention_mask=mask,
            generation_config=GenerationConfig(
                max_new_tokens=12, pad_token_id=0, eos_token_id=49, disable_compile=True,
                decoder_start_token_id=0, **options,
            ),
        )  # fmt: skip
        found[name] = out.tolist()
    return found


def main() -> dict[str, Any]:
    facts: dict[str, Any] = {}
    ids = torch.randint(1, 49, (2, 6))
    for name, config in (("gpt2", GPT2), ("llama", LLAMA), ("mixtral", MIXTRAL)):
        seed()
        model = AutoModelForCausalLM.from_config(config)
        model.config.output_router_logits = False
        facts[name] = written(model, ids)
    seed()
    without_static = {k: v for k, v in WAYS.items() if k != "static"}
    facts["t5"] = written(AutoModelForSeq2SeqLM.from_config(T5), ids, without_static)
    seed()
    model = AutoModelForCausalLM.from_config(LLAMA).to(torch.bfloat16).eval()
    with torch.no_grad():
        first = model(ids, use_cache=True)
        second = model(ids[:, :1], past_key_values=first.past_key_values)
    facts["by hand"] = [plain(first.logits), plain(second.logits)]
    return facts


if __name__ == "__main__":
    report(main())
