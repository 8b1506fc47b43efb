# SPDX-License-Identifier: BSD-3-Clause
"""Linear algebra, joins and lookups beyond the common ones, against torch: values, dtypes, errors,
and shapes on meta.
"""

from __future__ import annotations

import numpy as np
import pytest
import test_tensor_ops as expressions

import modtree as mt

torch = pytest.importorskip("torch")

MATRICES = {
    "a": np.array([[3, 0.5, -0.25], [0.75, 2, 0.5], [-0.5, 0.25, 4]], np.float32),
    "b": np.random.default_rng(3).uniform(-1, 2, (3, 4)).astype(np.float32),
    "c": np.linspace(-1, 1.3, 18, dtype=np.float32).reshape(2, 3, 3)
    + 2 * np.eye(3, dtype=np.float32),
    "v": np.array([0.5, -1, 2], np.float32),
    "i": np.arange(9).reshape(3, 3),
    "z": np.array([[2, 1j], [-1j, 3]], np.complex64),
}

LINALG = [
    "m.linalg.inv(a)",
    "m.linalg.inv(c)",
    "m.linalg.inv(b)",
    "m.linalg.inv(i)",
    "m.linalg.inv(v)",
    "m.linalg.inv(a.half())",
    "a.inverse()",
    "a.det()",
    "m.linalg.det(c)",
    "m.linalg.det(b)",
    "m.linalg.det(a[:0, :0])",
    "m.linalg.slogdet(-c)",
    "m.geqrf(b)",
    "m.geqrf(b.mT)",
    "m.geqrf(c)",
    "m.geqrf(b[:0])",
    "m.geqrf(v)",
    "m.linalg.householder_product(b.mT, v)",
    "m.linalg.householder_product(b.mT, v[:2])",
    "m.linalg.householder_product(a, v[:0])",
    "m.linalg.householder_product(c, m.stack([v, v]))",
    "m.linalg.householder_product(c, v)",
    "m.linalg.householder_product(b, v)",
    "m.linalg.householder_product(v, v)",
    "m.linalg.householder_product(a, v.double())",
    "m.linalg.householder_product(*m.geqrf(z))",
    "m.linalg.solve(a, v)",
    "m.linalg.solve(a, b)",
    "m.linalg.solve(c, b)",
    "m.linalg.solve(c, c[0])",
    "m.linalg.solve(a, b.mT, left=False)",
    "m.linalg.solve(a, v[:2])",
    "m.linalg.solve(a, v.double())",
    "m.linalg.cholesky(a @ a.mT)",
    "m.linalg.cholesky(z)",
    "m.linalg.cholesky(z, upper=True)",
    "m.linalg.qr(b)[1].abs()",
    "m.linalg.qr(b.mT)[0].abs()",
    "m.linalg.qr(b.mT, mode='complete')[0].shape",
    "m.linalg.qr(b, mode='r').R.abs()",
    "m.linalg.qr(b, mode='r').Q",
    "m.linalg.qr(b, mode='full')",
    "m.linalg.svd(b).S",
    "m.linalg.svd(b).Vh.shape",
    "m.linalg.svd(b, full_matrices=False).Vh.abs()",
    "m.linalg.eigh(a + a.mT).eigenvalues",
    "m.linalg.eigh(z).eigenvectors.abs()",
    "m.linalg.pinv(b)",
    "m.linalg.pinv(c, rtol=0.5)",
    "m.linalg.pinv(b * 0)",
    "m.linalg.matrix_power(a, 3)",
    "m.linalg.matrix_power(c, 0)",
    "m.linalg.matrix_power(a, -2)",
    "m.linalg.matrix_power(b, 2)",
    "a.matrix_power(2)",
    "m.linalg.matrix_exp(c)",
    "m.matrix_exp(a * 5)",
    "m.matrix_exp(a * 0)",
    "m.linalg.multi_dot([v, a, b])",
    "m.linalg.multi_dot([a])",
    "m.linalg.norm(a)",
    "m.linalg.norm(a, 2)",
    "m.linalg.norm(c, 1)",
    "m.linalg.norm(c, 'nuc', (1, 2))",
    "m.linalg.norm(v, 3)",
    "m.linalg.norm(i)",
    "m.linalg.matrix_norm(c, ord=float('-inf'), keepdim=True)",
    "m.linalg.matrix_norm(a, ord='x')",
    "m.linalg.matrix_norm(v)",
    "m.linalg.vector_norm(c, 1, (0, 2))",
    "m.linalg.vector_norm(a, dtype=m.float64)",
    "m.cross(c, c, dim=1)",
    "m.einsum('ij,jk', a, b)",
    "m.einsum('ij,jk->ki', a, b.double())",
    "m.einsum('ij,jk->il', a, b)",
    "m.einsum('ij,jk->ikk', a, b)",
    "m.einsum('ijk', a)",
    "m.einsum('ij,ij', a, b)",
    "m.einsum('i,j', a)",
    "m.einsum('i+,j', v, v)",
    "m.einsum('...i->...', c)",
    "m.einsum('...i,...i', c, a)",
    "m.einsum('ij->...', a)",
    "m.einsum('ij', i)",
    "m.einsum('ij,jk', i, i)",
    "m.einsum('bij,bjk,bkl->bil', c, c, c)",
    "m.tensordot(a, b, 1)",
    "m.tensordot(c, c, ([1, 2], [2, 1]))",
    "m.tensordot(a, b, 2)",
    "m.tensordot(a, b, ([0, 1], [0]))",
    "m.outer(v, v)",
    "m.outer(a, v)",
    "m.dot(v, v.double())",
    "m.trace(a)",
    "m.trace(i)",
    "m.trace(c)",
    "m.addmm(a * float('nan'), a, a, beta=0)",
    "a.mH",
    "z.mH",
    "v.mH",
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("expression", LINALG)
def test_linear_algebra(expression):
    expressions._check(expression, MATRICES)


X = {"x": np.linspace(-2, 3, 24, dtype=np.float32).reshape(2, 3, 4)}

SHAPES = [
    "m.vstack([x[0, 0], x[0]])",
    "m.hstack([x, x[:, :1]])",
    "m.hstack([x[0, 0], x[0, 0, :0]])",
    "m.diag_embed(x)",
    "m.diag_embed(x, -2, 0, 1)",
    "m.diag_embed(x, 0, 1, 1)",
    "m.diag(x)",
    "x.tensor_split(2, -1)",
    "x.tensor_split((1, -1), 2)",
    "x.tensor_split(0)",
    "m.meshgrid(x[0, 0], x[0, 1], indexing='xy')",
    "m.meshgrid(x[0, 0], x[0], indexing='ij')",
    "m.meshgrid(x[0, 0], m.arange(2), indexing='ij')",
    "x.flip(0, 0)",
    "x.flip(-1)",
    "x[0, 0, 0].flip(0)",
    "x[0, 0, 0].unfold(0, 1, 1)",
    "x[0, 0, 0].unfold(0, 2, 1)",
    "x.gather(2, m.tensor([[[9]]]))",
    "x.gather(1, m.tensor([[[-1]]]))",
    "x.gather(0, m.tensor([1]))",
    "x.gather(0, m.tensor([[[0.0]]]))",
    "x.gather(2, m.zeros(3, 1, 1).long())",
    "x.index_select(0, m.tensor([5]))",
    "x.index_select(0, m.tensor([[0]]))",
    "x[0, 0, 0].index_select(0, m.tensor([0]))",
    "m.take_along_dim(x, m.tensor([3, 1]))",
    "m.take_along_dim(x, m.tensor([[[3, 1]]]), 2)",
    "x.scatter(0, m.tensor([[[1, 0]]]), m.ones(1, 1, 2))",
    "x.scatter(0, m.tensor([[[2]]]), m.ones(1, 1, 1))",
    "x.scatter(0, m.tensor([[[1]]]), m.ones(1, 1, 1).double())",
    "x.scatter(1, m.tensor([[[1, 1]]]), m.full((1, 1, 2), 3.0), reduce='add')",
    "x.scatter(1, m.tensor([[[1, 1]]]), m.full((1, 1, 2), 3.0), reduce='multiply')",
    "x.scatter_add(2, m.tensor([[[3, 3, 0]]]), m.ones(1, 1, 3))",
    "m.arange(5).scatter_add(0, m.tensor([1, 1, 4]), m.tensor([2**53, 1, 1]))",
    "x.index_add(2, m.tensor([3, 3]), m.ones(2, 3, 2), alpha=2)",
    "x.index_add(2, m.tensor([3, 3]), m.ones(2, 3, 3))",
    "x.index_add(2, m.tensor([4]), m.ones(2, 3, 1))",
    "m.arange(5).index_add(0, m.tensor([1, 1]), m.tensor([2**53 + 1, 1]))",
    "x.index_copy(1, m.tensor([2]), m.zeros(2, 1, 4))",
    "x.index_copy(1, m.tensor([3]), m.zeros(2, 1, 4))",
    "x.index_fill(0, m.tensor([1]), 7)",
    "x.index_put((m.tensor([0, 1]), m.tensor([2, 2])), m.tensor(5.0))",
    "x.index_put((m.tensor([0, 0]),), m.ones(4), accumulate=True)",
    "x.clone().index_put_((x > 0,), m.tensor(0.0))",
    "x.masked_scatter(x > 0, m.arange(24.0))",
    "x.masked_scatter(x[0] > 0, m.arange(24.0))",
    "x.masked_scatter(x > 0, m.arange(2.0))",
    "x.masked_scatter(x > 0, m.arange(24))",
    "x.clone().masked_scatter_(x > 0, m.arange(24.0))",
    "x.masked_select(x[0] > 0)",
    "x.masked_select(m.tensor([1, 0, 1, 0]))",
    "x.repeat_interleave(m.tensor([1, 0, 2]), 1)",
    "m.broadcast_shapes((2, 1), (3,), 1) == (2, 3)",
    "m.broadcast_shapes((2,), (3,))",
    "m.view_as_real(x)",
    "m.view_as_complex(x)",
    "m.view_as_complex(x[..., :2].contiguous())",
    "x.scatter_reduce(0, m.zeros(1, 3, 4).long(), x, 'amax')",
    "x.scatter_reduce(0, m.zeros(1, 3).long(), x, 'sum')",
    "m.arange(3).scatter_reduce(0, m.tensor([0, 0, 1]), m.tensor([5, 8, 1]), 'mean')",
    "m.arange(3).scatter_reduce(0, m.tensor([0, 0, 1]), m.tensor([5, 8, 1]), 'amin', "
    "include_self=False)",
    "x[:, :, :3].clone().baddbmm_(x, x.mT)",
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("expression", SHAPES)
def test_joins_and_lookups(expression):
    expressions._check(expression, X)


# What needs values, or makes tensors of its own that are not on meta.
NOT_ON_META = (
    "eig m.tensor( x> x[0]> rank lstsq m.ones m.zeros m.arange m.full matrix_power(c,0) "
    "unitriangular view_as"
).split()


def _is_for_meta(expression):
    return not any(word in expression.replace(" ", "") for word in NOT_ON_META)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("expression", list(filter(_is_for_meta, LINALG + SHAPES)))
def test_shapes_on_meta_are_those_on_the_cpu(expression):
    arrays = {**MATRICES, **X}
    there = expressions._run(expression, mt, arrays)
    if isinstance(there, Exception):
        return  # the tests above compare errors
    names = {"m": mt, **{k: mt.from_numpy(v).to("meta") for k, v in arrays.items()}}
    result = eval(expression, names)  # noqa: S307

    def compare(meta, values):
        if isinstance(values, tuple) and not isinstance(values, mt.Size):
            assert len(meta) == len(values)
            for pair in zip(meta, values, strict=True):
                compare(*pair)
        elif isinstance(values, mt.Tensor):
            assert meta.is_meta and meta.shape == values.shape and meta.dtype is values.dtype
        else:
            assert meta == values

    compare(result, there)
