# SPDX-License-Identifier: BSD-3-Clause
"""An optimizer of optax with its state."""

from __future__ import annotations

from typing import Any

import jax

from modtree.core.module import Module
from modtree.jax._state import State, apply_updates, parameters


class Optimizer(Module):
    """An optimizer of optax and its state, for the trainable parameters of a model.

    The arrays of the state are its buffers: :func:`jit` puts back what a step changes in them, and
    ``state_dict`` has them::

        optimizer = mj.Optimizer(model, optax.adam(1e-2))

        @mj.jit
        def step(model, optimizer, x, y):
            loss, gradients = mj.value_and_grad(loss_of)(model, x, y)
            optimizer.update(model, gradients)
            return loss

    Args:
        model: The model. It is not kept.
        transformation: What optax makes: ``optax.adam(1e-2)``.
    """

    def __init__(self, model: Any, transformation: Any) -> None:
        super().__init__()
        self.transformation = transformation
        leaves, self._structure = jax.tree_util.tree_flatten(transformation.init(parameters(model)))
        for number, leaf in enumerate(leaves):
            self.register_buffer(f"state_{number}", jax.numpy.asarray(leaf))

    @property
    def state(self) -> Any:
        """The state as optax has it."""
        return jax.tree_util.tree_unflatten(self._structure, list(self._buffers.values()))

    def update(self, model: Any, gradients: Any, **more: Any) -> None:
        """Makes a step: changes the parameters of the model, and the state.

        Args:
            model: The model that the optimizer was made for, or one with the same parameters.
            gradients: What :func:`grad` gives for it.
            more: What else the transformation takes, such as ``value``.
        """
        now = parameters(model)
        gradients = State((path, gradients[path]) for path in now)
        updates, state = self.transformation.update(gradients, self.state, now, **more)
        apply_updates(model, updates)
        for number, leaf in enumerate(jax.tree_util.tree_leaves(state)):
            self._buffers[f"state_{number}"] = leaf
