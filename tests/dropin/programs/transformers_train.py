# SPDX-License-Identifier: BSD-3-Clause
"""transformers: small models of several families made from configurations, and trained."""

from __future__ import annotations

from typing import Any

import torch
from outcome import report, seed, state, train, tree
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    BertConfig,
    GPT2Config,
    LlamaConfig,
    MixtralConfig,
    T5Config,
    ViTConfig,
    ViTForImageClassification,
)

SMALL = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
}
LLAMA = LlamaConfig(**SMALL, num_key_value_heads=1, pad_token_id=0)
MIXTRAL = MixtralConfig(
    **SMALL, num_key_value_heads=1, num_local_experts=4, output_router_logits=True, pad_token_id=0
)
GPT2 = GPT2Config(vocab_size=50, n_embd=16, n_layer=2, n_head=2, n_positions=32)
BERT = BertConfig(**SMALL)
T5 = T5Config(
    vocab_size=50, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2,
    decoder_start_token_id=0,
)  # fmt: skip


def trained(model: Any, **inputs: torch.Tensor) -> dict[str, Any]:
    losses = train(model, lambda: model(**inputs).loss)
    model.eval()
    with torch.no_grad():
        outputs = model(**inputs, output_hidden_states=True)
    return {
        "losses": losses,
        "logits": outputs.logits,
        "state": state(model),
        "tree": tree(model),
        "parameters": model.num_parameters(),
    }


def main() -> dict[str, Any]:
    facts: dict[str, Any] = {}
    ids = torch.randint(1, 50, (2, 9))
    for name, config in (("gpt2", GPT2), ("llama", LLAMA), ("mixtral", MIXTRAL)):
        seed()
        model = AutoModelForCausalLM.from_config(config)
        facts[name] = trained(model, input_ids=ids, labels=ids)
    seed()
    saving = AutoModelForCausalLM.from_config(LLAMA)
    saving.gradient_checkpointing_enable()
    facts["checkpointing"] = trained(saving, input_ids=ids, labels=ids)
    seed()
    facts["t5"] = trained(AutoModelForSeq2SeqLM.from_config(T5), input_ids=ids, labels=ids.flip(1))
    seed()
    facts["bert"] = trained(AutoModelForMaskedLM.from_config(BERT), input_ids=ids, labels=ids)
    seed()
    classifier = AutoModelForSequenceClassification.from_config(BERT)
    classifier.bert.embeddings.requires_grad_(False)
    facts["classifier"] = trained(classifier, input_ids=ids, labels=torch.tensor([0, 1]))
    seed()
    small = {k: v for k, v in SMALL.items() if k not in ("vocab_size", "max_position_embeddings")}
    vit = ViTForImageClassification(ViTConfig(**small, image_size=8, patch_size=4, num_labels=3))
    facts["vit"] = trained(vit, pixel_values=torch.randn(2, 3, 8, 8), labels=torch.tensor([0, 2]))
    return facts


if __name__ == "__main__":
    report(main())
