# SPDX-License-Identifier: BSD-3-Clause
"""A correct program: what tensors can be asked."""

from typing import Any

import numpy as np
from typing_extensions import assert_type

import modtree as mt
from modtree import Size, Tensor

x = mt.randn(2, 3, requires_grad=True)
y = mt.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=mt.float64).to(x.dtype)
assert_type(x, Tensor)
assert_type(x + y, Tensor)
assert_type(1 - x * 2, Tensor)
assert_type(x @ y.T, Tensor)
assert_type(x == y, Tensor)
assert_type(-x, Tensor)
assert_type(x[0, ..., None], Tensor)
assert_type(x[x > 0], Tensor)
assert_type(x.shape, Size)
assert_type(x.shape[0], int)
assert_type(x.size(), Size)
assert_type(x.size(-1), int)
assert_type(x.grad, Tensor | None)
assert_type(x.ndim, int)
assert_type(x.dtype, mt.dtype)
assert_type(x.device, mt.device)
assert_type(x.requires_grad, bool)
array: np.ndarray[Any, Any] = x.detach().numpy()
assert_type(x.sum(), Tensor)
assert_type(x.sum(dim=(0, 1), keepdim=True), Tensor)
assert_type(x.max(), Tensor)
assert_type(x.max(dim=1).indices, Tensor)
assert_type(mt.max(x, y), Tensor)
assert_type(mt.exp(x), Tensor)
assert_type(mt.cat([x, y], dim=1), Tensor)
assert_type(mt.stack((x, y)), Tensor)
assert_type(mt.where(x > 0, x, 0.0), Tensor)
assert_type(mt.where(x > 0), tuple[Tensor, ...])
assert_type(x.split(1), tuple[Tensor, ...])
assert_type(x.reshape(3, 2), Tensor)
assert_type(x.view(-1), Tensor)
assert_type(x.permute(1, 0).transpose(0, 1), Tensor)
assert_type(mt.equal(x, y), bool)
assert_type(mt.zeros(2, 3, dtype=mt.int64, device="meta"), Tensor)
assert_type(mt.zeros((2, 3)), Tensor)
assert_type(mt.arange(0, 10, 2), Tensor)
assert_type(x.numel(), int)
assert_type(bool((x > 0).all()), bool)
assert_type(len(x), int)
assert_type(mt.einsum("ij,kj->ik", x, y), Tensor)
assert_type(x.detach().add_(1).mul_(2.0), Tensor)
assert_type(x.clamp(min=0).pow(2).mean(), Tensor)
values, indices = x.topk(2)
assert_type(values, Tensor)
for row in x:
    assert_type(row, Tensor)
a, b = x.unbind(0)
with mt.no_grad():
    x[0] = 1.0
    x[:, 1] = y[:, 1]
x.sum().backward()
(gradient,) = mt.autograd.grad((x * y).sum(), [x])


@mt.no_grad()
def frozen(t: Tensor, scale: float = 1.0) -> Tensor:
    return t * scale


assert_type(frozen(x), Tensor)
assert_type(x.sum().item(), int | float | bool)
loss: float = x.mean().item()
assert_type(mt.as_dtype("float32"), mt.dtype)
assert_type(mt.promote_types(mt.int8, mt.float32), mt.dtype)
assert_type(y.new_zeros(2), Tensor)
assert_type(y.stride(), tuple[int, ...])
assert_type(y.stride(0), int)
assert_type(mt.nn.functional.adaptive_max_pool1d(y, 2), Tensor)
limit: float = mt.finfo(mt.float32).eps
