# SPDX-License-Identifier: BSD-3-Clause
"""Schedules of learning rates. Call ``scheduler.step()`` after ``optimizer.step()``, once per epoch
(or batch).
"""

from __future__ import annotations

from modtree import _imports
from modtree.optim.lr_scheduler._base import LRScheduler, _LRScheduler
from modtree.optim.lr_scheduler._combined import ChainedScheduler, SequentialLR
from modtree.optim.lr_scheduler._cyclic import CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR
from modtree.optim.lr_scheduler._plateau import ReduceLROnPlateau
from modtree.optim.lr_scheduler._simple import (
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)

__all__ = [
    "_LRScheduler",
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]

_imports.answer_for_missing(__name__)
