# SPDX-License-Identifier: BSD-3-Clause
"""Gradients of views, joins and copies of whole tensors, against torch's."""

from __future__ import annotations

import pytest
from helpers.gradients import Case, imaginary, suite

import modtree as mt

torch = pytest.importorskip("torch")

ANY = [((),), ((0,),), ((5,),), ((2, 3),), ((2, 0, 3),), ((2, 3, 4),)]
CUBE = [((2, 3, 4),), ((2, 0, 4),)]
MATRIX = [((2, 3),), ((3, 3),), ((4, 2),), ((0, 3),)]
VECTOR = [((5,),)]


def _cases(shapes, **functions):
    return [Case(name.replace("_", " "), f, shapes) for name, f in functions.items()]


VIEWS = [
    *_cases(
        ANY,
        reshape_to_one_dimension=lambda lib, x: x.reshape(-1) if x.numel() else x.reshape(0),
        ravel=lambda lib, x: x.ravel(),
        flatten=lambda lib, x: lib.flatten(x),
        unsqueeze_first=lambda lib, x: x.unsqueeze(0),
        unsqueeze_last=lambda lib, x: lib.unsqueeze(x, -1),
        view_as_itself=lambda lib, x: x.view_as(x) * x,
        expand_in_front=lambda lib, x: x.expand(3, *x.shape),
        broadcast_to_nothing=lambda lib, x: x.broadcast_to((0, *x.shape)),
        ellipsis=lambda lib, x: x[...] * x,
        new_axes=lambda lib, x: x[None, ..., None],
        contiguous=lambda lib, x: (x.T if x.ndim < 3 else x.mT).contiguous(),
        real_of_a_real_tensor=lambda lib, x: x.real * 2,
    ),
    *_cases(
        CUBE,
        permute=lambda lib, x: x.permute(2, 0, 1),
        permute_with_negative_dims=lambda lib, x: lib.permute(x, (-1, 0, -2)),
        transpose=lambda lib, x: x.transpose(0, -1),
        swapaxes=lambda lib, x: lib.swapaxes(x, 1, 2),
        movedim=lambda lib, x: x.movedim(0, -1),
        movedim_of_two=lambda lib, x: lib.movedim(x, (0, 1), (2, 0)),
        mT=lambda lib, x: x.mT,
        T_of_a_matrix=lambda lib, x: x[0].T,
        unflatten=lambda lib, x: x.unflatten(-1, (2, 2)),
        narrow=lambda lib, x: x.narrow(2, 1, 2),
        select=lambda lib, x: x.select(-1, 2),
        select_negative=lambda lib, x: x.select(2, -1),
        diagonal=lambda lib, x: x.diagonal(1, 0, 2),
        diagonal_below=lambda lib, x: lib.diagonal(x, -1, -1, 1),
        unfold=lambda lib, x: x.unfold(2, 3, 1),
        unfold_apart=lambda lib, x: x.unfold(-1, 1, 2),
        chunk=lambda lib, x: x.chunk(3, -1),
        split=lambda lib, x: x.split(3, -1),
        split_into_one=lambda lib, x: lib.split(x, 4, 2),
        split_sizes=lambda lib, x: x.split([1, 0, 3], 2),
        one_piece_of_split=lambda lib, x: x.split([1, 2, 1], 2)[1] * 2,
        tensor_split=lambda lib, x: lib.tensor_split(x, 3, -1),
        tensor_split_at=lambda lib, x: lib.tensor_split(x, (1, 3, 9), -1),
        unbind=lambda lib, x: x.unbind(2),
        unbind_of_one=lambda lib, x: x[..., :1].unbind(-1),
        two_of_unbind=lambda lib, x: x.unbind(-1)[1] * x.unbind(-1)[3],
        iteration=lambda lib, x: tuple(x),
        slices=lambda lib, x: x[1:, ..., ::2],
        negative_slices=lambda lib, x: x[:, :, -3:-1],
        integers=lambda lib, x: x[..., 1][1],
        empty_slice=lambda lib, x: x[:, :, 2:2],
    ),
    Case("squeeze", lambda lib, x: x.squeeze(), [((),), ((1, 3, 1),), ((1,),), ((2, 1, 0),)]),
    Case("squeeze one", lambda lib, x: x.squeeze(-1), [((),), ((1, 3, 1),), ((1, 2),)]),
    Case("squeeze two", lambda lib, x: x.squeeze((0, 2)), [((1, 3, 1),), ((2, 1, 1),)]),
    Case("expand", lambda lib, x: x.expand(4, 3, -1), [((3, 1),), ((1, 2),), ((1, 1),)]),
    Case("expand_as", lambda lib, x, y: x.expand_as(y) * y, [((3, 1), (2, 3, 4))]),
    Case("unfold a number", lambda lib, x: x.unfold(0, 1, 1), [((),)]),
    Case("overlapping unfold", lambda lib, x: x.unfold(0, 4, 2), [((9,),), ((10, 2),)]),
    Case("real", lambda lib, x: x.real, [((2, 3),), ((),)], imaginary, twice=False),
    Case("imag", lambda lib, x: x.imag, [((2, 3),), ((),)], imaginary, twice=False),
    Case("H", lambda lib, x: x.H * 1j, [((2, 3),)], imaginary, twice=False),
    Case(
        "view_as_real",
        lambda lib, x: lib.view_as_real(x),
        [((2, 3),), ((),)],
        imaginary,
        twice=False,
    ),
    Case(
        "view_as_complex",
        lambda lib, x: lib.view_as_complex(x) * 1j,
        [((2, 3, 2),), ((2,),)],
        twice=False,
        layouts=False,
    ),
    Case("split_with_sizes", lambda lib, x: x.split_with_sizes([1, 2], 1), [((2, 3),)]),
    Case("broadcast_tensors", lambda lib, x, y: lib.broadcast_tensors(x, y), [((3, 1), (1, 4))]),
    Case(
        "meshgrid", lambda lib, x, y: lib.meshgrid(x, y, indexing="ij"), [((3,), (2,))], mixed=False
    ),
    Case(
        "meshgrid xy",
        lambda lib, x, y: lib.meshgrid(x, y, indexing="xy"),
        [((3,), (2,))],
        mixed=False,
    ),
]
test_gradients_of_views = suite(VIEWS)

PAIRS = [((2, 3), (2, 3)), ((0, 3), (2, 3)), ((2, 3), (4, 3))]
JOINS = [
    Case("cat", lambda lib, x, y: lib.cat([x, y]), PAIRS),
    Case("cat along the last", lambda lib, x, y: lib.cat([x, y, x], -1), [((2, 3), (2, 1))]),
    Case("cat with an empty vector", lambda lib, x, y: lib.cat([x, y], 1), [((0,), (2, 3))]),
    Case("cat of vectors", lambda lib, x, y: lib.concat((x, y)), [((0,), (3,)), ((2,), (3,))]),
    Case("cat of one", lambda lib, x: lib.cat([x]), [((2, 3),)]),
    Case("stack", lambda lib, x, y: lib.stack([x, y]), [((), ()), ((2, 3), (2, 3)), ((0,), (0,))]),
    Case("stack last", lambda lib, x, y: lib.stack((x, y, x), -1), [((2, 3), (2, 3))]),
    Case("hstack", lambda lib, x, y: lib.hstack([x, y]), [((), (3,)), ((2, 3), (2, 1))]),
    Case("vstack", lambda lib, x, y: lib.vstack([x, y]), [((3,), (2, 3)), ((3,), (3,))]),
]
test_gradients_of_joins = suite(JOINS)

COPIES = [
    *_cases(
        ANY,
        repeat=lambda lib, x: x.repeat(*([2, 3, 1][: x.ndim + 1] if x.ndim < 3 else [2, 1, 3])),
        tile=lambda lib, x: x.tile((2,)),
        repeat_interleave=lambda lib, x: lib.repeat_interleave(x, 3),
        roll=lambda lib, x: lib.roll(x, 2),
    ),
    *_cases(
        CUBE,
        repeat_interleave_along=lambda lib, x: x.repeat_interleave(2, -1),
        repeat_interleave_by_each=lambda lib, x: x.repeat_interleave(lib.tensor([2, 0, 1, 3]), 2),
        roll_along=lambda lib, x: x.roll(-1, 2),
        roll_two=lambda lib, x: x.roll((1, -2), (0, 2)),
        flip=lambda lib, x: x.flip(0, -1),
        flip_none=lambda lib, x: lib.flip(x, ()),
        tril=lambda lib, x: x.tril(1),
        triu=lambda lib, x: lib.triu(x, -1),
        diag_embed=lambda lib, x: lib.diag_embed(x),
        diag_embed_elsewhere=lambda lib, x: lib.diag_embed(x, 1, 0, 2),
    ),
    Case("diag of a matrix", lambda lib, x: lib.diag(x), [((2, 3),), ((3, 3),)]),
    Case("diag beside", lambda lib, x: x.diag(-1), [((3, 4),), ((4, 2),), ((3,),)]),
    Case("tril of matrices", lambda lib, x: x.tril(), MATRIX),
    Case("trace", lambda lib, x: x.trace(), MATRIX[:3]),
    Case("repeat zero times", lambda lib, x: x.repeat(0, 2), [((2, 3),), ((4,),)], twice=False),
    Case("clone", lambda lib, x: x.clone(), ANY),
]
test_gradients_of_copies = suite(COPIES)


@pytest.mark.parametrize(
    "mode,shape,widths",
    [
        ("constant", (2, 3), (1, 2)),
        ("constant", (2, 3), (0, 0, 2, 1)),
        ("constant", (0, 3), (1, 1)),
        ("constant", (), ()),
        ("reflect", (2, 3, 4), (3, 2)),
        ("reflect", (2, 2, 3, 4), (3, 2, 1, 2)),
        ("replicate", (2, 3, 4), (5, 0)),
        ("replicate", (2, 2, 3, 4), (1, 2, 0, 3)),
        ("circular", (2, 3, 4), (2, 4)),
        ("circular", (2, 2, 3, 4), (0, 1, 3, 1)),
    ],
)
def test_gradients_of_pad(mode, shape, widths):
    from helpers.gradients import check

    pairs = [(0, 0)] * (len(shape) - len(widths) // 2)
    pairs += [widths[i : i + 2] for i in reversed(range(0, len(widths), 2))]

    def pad(lib, x):
        if lib is mt:
            return mt.numpy.ops.registry.ops["pad"](x, tuple(pairs), mode)
        return torch.nn.functional.pad(x, widths, mode)

    values = torch.randn(shape, dtype=torch.float64).numpy()
    check(pad, values)
    check(pad, values, twice=True)


def test_a_view_of_another_dtype_needs_no_gradient():
    x = mt.ones(2, 4, requires_grad=True)
    assert not x.view(mt.int32).requires_grad


def test_pieces_of_one_split_may_go_unused():
    x = mt.arange(6.0).requires_grad_()
    first, _, last = x.split(2)
    (last * 3).sum().backward()
    assert x.grad.tolist() == [0, 0, 0, 0, 3, 3]
    assert first.requires_grad
