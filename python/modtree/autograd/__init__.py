# SPDX-License-Identifier: BSD-3-Clause
"""Gradients: the backward pass, and functions with a derivative of one's own.

The graph and the engine that runs backward are native; what a gradient is stands
beside each operation in ``modtree.numpy.ops``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from modtree import _imports
from modtree.autograd import (
    functional,
    graph,
    views,  # noqa: F401  # hands itself over to native code
)
from modtree.autograd.anomaly_mode import detect_anomaly, set_detect_anomaly
from modtree.autograd.function import Function, once_differentiable
from modtree.autograd.gradcheck import gradcheck, gradgradcheck
from modtree.autograd.variable import Variable
from modtree.numpy.tensor.engine import backward, grad
from modtree.numpy.tensor.grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled

if TYPE_CHECKING:
    from modtree.autograd import grad_mode, profiler

__all__ = [
    "Function",
    "Variable",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "functional",
    "grad",
    "grad_mode",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "no_grad",
    "once_differentiable",
    "profiler",
    "set_detect_anomaly",
    "set_grad_enabled",
]

_imports.answer_for_missing(__name__)
