# SPDX-License-Identifier: BSD-3-Clause
"""A class of tensors that an article on ``torch.nn.parameter`` makes."""

from __future__ import annotations

import pytest


def test_a_custom_tensor(lib, capsys):
    torch = lib

    class NewCustomTensor(torch.Tensor):
        def some_custom_method(self):
            print("This is some custom method.")

    # The article asks for gradients of integers, which no library gives.
    with pytest.raises(RuntimeError, match="floating point"):
        torch.tensor([1, 2, 3], requires_grad=True)

    data = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    custom_tensor = torch.Tensor._make_subclass(NewCustomTensor, data, True)
    assert type(custom_tensor) is NewCustomTensor
    custom_tensor.some_custom_method()
    assert capsys.readouterr().out == "This is some custom method.\n"
    assert custom_tensor.requires_grad
    assert custom_tensor.is_leaf
    assert custom_tensor.data_ptr() == data.data_ptr()
    assert custom_tensor.tolist() == [1, 2, 3]
