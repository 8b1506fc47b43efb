# SPDX-License-Identifier: BSD-3-Clause
"""Functions of functions: gradients, and modules as functions of their parameters.

They nest: ``grad(grad(f))`` gives second derivatives.
"""

from __future__ import annotations

from modtree import _imports
from modtree.func.gradients import grad, grad_and_value, vjp
from modtree.func.state import stack_module_state
from modtree.nn.utils.stateless import functional_call

__all__ = ["functional_call", "grad", "grad_and_value", "stack_module_state", "vjp"]

_imports.answer_for_missing(__name__)
