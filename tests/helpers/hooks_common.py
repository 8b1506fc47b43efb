# SPDX-License-Identifier: BSD-3-Clause
"""Hooks that write down what they get, for the tests of hooks on tensors and nodes."""

from __future__ import annotations


def leaf(lib, *numbers):
    return lib.tensor(list(numbers), requires_grad=True)


def pair(lib, number=2.0):
    return lib.tensor([number, number])


class Notes(list):
    """Hooks that write down their name and what they got."""

    def hook(self, name, returns=None):
        def note(grad):
            self.append((name, None if grad is None else grad.tolist()))
            return None if returns is None else returns(grad)

        return note
