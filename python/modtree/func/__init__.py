# SPDX-License-Identifier: BSD-3-Clause
"""Functions of functions: gradients, Jacobians, batches, and modules as functions of their
parameters.

They nest in any order: ``vmap(grad(f))`` gives a gradient for each sample.
"""

from __future__ import annotations

from modtree import _imports
from modtree._batching.vmap import vmap
from modtree.func.forward import jacfwd, jvp, linearize
from modtree.func.reverse import grad, grad_and_value, hessian, jacrev, vjp
from modtree.func.state import stack_module_state
from modtree.nn.utils.stateless import functional_call

__all__ = [
    "functional_call",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "stack_module_state",
    "vjp",
    "vmap",
]

_imports.answer_for_missing(__name__)
