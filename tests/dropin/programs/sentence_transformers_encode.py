# SPDX-License-Identifier: BSD-3-Clause
"""sentence-transformers: a model put together from modules, trained, saved, loaded, encoding."""

from __future__ import annotations

from typing import Any

import torch
from outcome import folder, report, seed, state, train, tree
from sentence_transformers import SentenceTransformer, util
from sentence_transformers.sentence_transformer import losses, modules
from transformers import BertModel, BertTokenizerFast
from transformers_train import BERT

TEXTS = ["a cat sat on a mat", "the dog ran", "a cat ran", "on the mat"]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "the", "cat", "dog", "sat", "ran", "on"]


def made(place: Any) -> SentenceTransformer:
    """A BERT with a vocabulary of a dozen words."""
    seed()
    (place / "vocab.txt").write_text("\n".join([*WORDS, "mat"]) + "\n")
    BertTokenizerFast(str(place / "vocab.txt")).save_pretrained(place / "bert")
    BertModel(BERT).save_pretrained(place / "bert")
    words = modules.Transformer(str(place / "bert"))
    width = 16
    return SentenceTransformer(
        modules=[
            words,
            modules.Pooling(width, pooling_mode="mean"),
            modules.Dense(width, 8),
            modules.Normalize(),
        ],
        device="cpu",
    )


def main() -> dict[str, Any]:
    with folder() as place:
        model = made(place)
        before = model.encode(TEXTS, show_progress_bar=False)
        features = [model.tokenize(TEXTS[:2]), model.tokenize(TEXTS[2:])]
        labels = torch.tensor([0.9, 0.1])
        loss = losses.CosineSimilarityLoss(model)
        values = train(model, lambda: loss([dict(f) for f in features], labels))
        model.eval()
        after = model.encode(TEXTS, convert_to_tensor=True, show_progress_bar=False)
        model.save(str(place / "saved"))
        files = sorted(p.relative_to(place / "saved").as_posix() for p in place.glob("saved/*"))
        loaded = SentenceTransformer(str(place / "saved"), device="cpu")
        again = loaded.encode(TEXTS, normalize_embeddings=True, show_progress_bar=False)
    return {
        "before": before,
        "losses": values,
        "after": after,
        "again": again,
        "files": files,
        "state": state(model),
        "loaded": state(loaded),
        "tree": tree(loaded),
        "near": util.cos_sim(after[:1], after),
        "names": [n for n, _ in loaded.named_children()],
    }


if __name__ == "__main__":
    report(main())
