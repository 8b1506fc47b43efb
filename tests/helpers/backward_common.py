# SPDX-License-Identifier: BSD-3-Clause
"""Small modules and notes of gradients for the tests of backward hooks."""

from __future__ import annotations


def lists(grads):
    return tuple(None if g is None else g.tolist() for g in grads)


def leaf_input(impl, *numbers):
    return impl.lib.tensor(list(numbers), requires_grad=True)


def tensor(impl, *numbers):
    return impl.lib.tensor(list(numbers))


def module_of(impl, forward, **parameters):
    """A module that computes ``forward(self, *args)``."""

    class Made(impl.nn.Module):
        def __init__(self):
            super().__init__()
            for name, value in parameters.items():
                setattr(self, name, impl.nn.Parameter(impl.lib.tensor(value)))

    Made.forward = forward
    return Made()


def doubles(impl):
    return module_of(impl, lambda self, x, *rest: x * 2)


def two_outputs(impl):
    return module_of(impl, lambda self, x: (x * 2, x * 3))


def noting(m, seen):
    """The module with hooks that note the gradients they see."""
    m.register_full_backward_pre_hook(lambda m, go: seen.append(("pre", lists(go))))
    m.register_full_backward_hook(lambda m, gi, go: seen.append(("full", lists(gi), lists(go))))
    return m


def gradient(impl, output, inputs, **options):
    return impl.lib.autograd.grad(output, inputs, **options)
