# SPDX-License-Identifier: BSD-3-Clause
"""Optimizers and learning-rate schedules."""

from __future__ import annotations

from modtree import _imports
from modtree.optim import lr_scheduler, swa_utils
from modtree.optim._adafactor import Adafactor
from modtree.optim._muon import Muon
from modtree.optim.adagrad import Adadelta, Adagrad
from modtree.optim.adam import Adam, AdamW
from modtree.optim.adam_variants import Adamax, NAdam, RAdam
from modtree.optim.asgd import ASGD
from modtree.optim.lbfgs import LBFGS
from modtree.optim.optimizer import Optimizer
from modtree.optim.rmsprop import RMSprop
from modtree.optim.rprop import Rprop
from modtree.optim.sgd import SGD
from modtree.optim.sparse_adam import SparseAdam

__all__ = [
    "ASGD",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SparseAdam",
    "lr_scheduler",
    "swa_utils",
]

_imports.answer_for_missing(__name__)
