# SPDX-License-Identifier: BSD-3-Clause
"""A subclass of Tensor made around the values of another tensor, as articles on
``torch.nn.parameter`` show it.
"""

from __future__ import annotations

import pytest


def test_a_subclass_around_the_values_of_a_tensor(lib):
    class Labelled(lib.Tensor):
        def label(self):
            return f"{type(self).__name__} of {self.numel()}"

    values = lib.tensor([1.0, 2.0, 3.0], requires_grad=True)
    made = lib.Tensor._make_subclass(Labelled, values, True)
    assert type(made) is Labelled
    assert made.label() == "Labelled of 3"
    assert made.requires_grad
    assert made.is_leaf
    assert made.data_ptr() == values.data_ptr()
    assert made.tolist() == [1, 2, 3]


def test_integers_have_no_gradients(lib):
    with pytest.raises(RuntimeError, match="floating point"):
        lib.tensor([1, 2, 3], requires_grad=True)
