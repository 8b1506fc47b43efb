# SPDX-License-Identifier: BSD-3-Clause
"""Datasets, samplers, and the loader that makes batches of them."""

from __future__ import annotations

from modtree import _imports
from modtree.utils.data._workers import get_worker_info
from modtree.utils.data.collate import default_collate, default_convert
from modtree.utils.data.dataloader import DataLoader
from modtree.utils.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from modtree.utils.data.distributed import DistributedSampler
from modtree.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

__all__ = [
    "BatchSampler",
    "ChainDataset",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "IterableDataset",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "StackDataset",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "default_collate",
    "default_convert",
    "get_worker_info",
    "random_split",
]

_imports.answer_for_missing(__name__)
