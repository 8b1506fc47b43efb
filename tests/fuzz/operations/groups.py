# SPDX-License-Identifier: BSD-3-Clause
"""Operations by what they do; in-place forms belong to the group of their plain one."""

from __future__ import annotations

import fnmatch

GROUPS: dict[str, frozenset[str]] = {
    "pointwise": frozenset(
        "abs absolute acos acosh add addcdiv addcmul "
        "asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_not "
        "bitwise_or bitwise_right_shift bitwise_xor ceil clamp clamp_max clamp_min clip clone "
        "conj cos cosh div divide erf erfinv exp expm1 "
        "floor floor_divide fmod imag lerp lgamma log log10 "
        "log1p log2 logaddexp logical_and logical_not logical_or logical_xor logit mul "
        "multiply nan_to_num neg negative positive pow real reciprocal relu "
        "remainder round rsqrt sgn sigmoid sign sin sinh sqrt square sub "
        "subtract tan tanh true_divide trunc where masked_fill fill_ zero_ sigmoid "
        "celu selu threshold hardshrink "
        "operator.add operator.sub operator.mul operator.truediv operator.floordiv operator.mod "
        "operator.pow operator.and_ operator.or_ operator.xor operator.lshift operator.rshift "
        "operator.neg operator.pos operator.abs operator.invert operator.iadd operator.isub "
        "operator.imul operator.itruediv operator.ifloordiv operator.imod operator.ipow "
        "operator.iand operator.ior operator.ixor operator.ilshift operator.irshift".split()
    ),
    "comparison": frozenset(
        "allclose eq equal ge greater greater_equal gt isclose isfinite isinf isnan "
        "le less less_equal lt maximum minimum ne not_equal "
        "operator.lt operator.le operator.eq operator.ne operator.gt operator.ge "
        "operator.contains".split()
    ),
    "conversion": frozenset(
        "result_type promote_types item tolist size numel dim bool byte char short int long half "
        "float double cfloat cdouble type_as is_complex is_floating_point is_signed "
        "is_same_size full full_like scalar_tensor zeros ones zeros_like ones_like arange linspace "
        "eye new_full new_zeros new_ones builtin.int builtin.float builtin.complex "
        "builtin.bool builtin.len builtin.list builtin.reversed".split()
    ),
    "reduction": frozenset(
        "all amax amin any argmax argmin count_nonzero cumprod cumsum "
        "logcumsumexp max mean min prod std std_mean sum "
        " trace var var_mean".split()
    ),
    "order": frozenset(
        "argsort gather index_add index_copy index_fill "
        "index_put index_select masked_scatter masked_select nonzero "
        "scatter scatter_add scatter_reduce sort take_along_dim topk "
        "operator.getitem operator.setitem".split()
    ),
    "shape": frozenset(
        "broadcast_shapes broadcast_tensors "
        "broadcast_to cat chunk concat concatenate contiguous diag "
        "diag_embed diagonal expand expand_as "
        "flatten flip hstack meshgrid moveaxis movedim narrow "
        "permute ravel repeat repeat_interleave reshape reshape_as roll select "
        "split split_with_sizes squeeze stack swapaxes t "
        "tensor_split tile transpose tril triu unbind unflatten unfold "
        "unsqueeze view view_as view_as_complex view_as_real vstack".split()
    ),
    "products": frozenset(
        "addmm baddbmm bmm cross dot einsum "
        "matmul mm mv outer tensordot vdot operator.matmul "
        "linalg.multi_dot F.linear F.bilinear bilinear".split()
    ),
    "linalg": frozenset("det inverse matrix_exp matrix_power norm slogdet linalg.*".split()),
    "statistics": frozenset(
        "logsumexp cdist "
        "F.pairwise_distance "
        "pairwise_distance F.cosine_similarity cosine_similarity F.normalize".split()
    ),
    "special": frozenset("digamma complex polar".split()),
    "activation": frozenset(
        "log_softmax softmax prelu F.celu F.elu F.gelu F.glu F.hardshrink F.hardsigmoid "
        "F.hardswish F.hardtanh F.leaky_relu F.log_softmax F.logsigmoid F.mish F.prelu F.relu "
        "F.relu6 F.selu F.sigmoid F.silu F.softmax F.softmin F.softplus F.softshrink F.softsign "
        "F.tanh F.tanhshrink F.threshold".split()
    ),
    "losses": frozenset(("F.*_loss", "F.binary_cross_entropy*", "F.cross_entropy", "F.kl_div")),
    "normalization": frozenset(("F.*_norm", "*_norm")),
    "pooling": frozenset(("*_pool[123]d*", "F.*_pool[123]d*", "F.max_unpool*")),
    "convolution": frozenset(("conv*", "F.conv*")),
    "attention": frozenset(
        ("F.scaled_dot_product_attention", "F.embedding*", "embedding*", "F.one_hot")
    ),
    "recurrent": frozenset("RNN LSTM GRU RNNCell LSTMCell GRUCell".split()),
    "vision": frozenset(
        "F.affine_grid F.*channel_shuffle F.fold F.grid_sample F.interpolate F.pad F.pixel_* "
        "F.unfold *channel_shuffle pixel_*".split()
    ),
    "attributes": frozenset(
        "bfloat16 builtin.round copy_ detach element_size is_conj is_contiguous is_neg ndimension "
        "nelement operator.index resolve_conj resolve_neg sum_to_size to".split()
    ),
}


def group_of(name: str) -> str | None:
    """The group of an operation, by its full name."""
    whole = name.startswith(("F.", "linalg.", "operator.", "builtin."))
    bare = name if whole else name.rpartition(".")[2]
    names = {bare, bare.rstrip("_")}
    for group, patterns in GROUPS.items():
        if names & patterns:
            return group
    for group, patterns in GROUPS.items():
        if any(fnmatch.fnmatchcase(n, p) for n in names for p in patterns if "*" in p):
            return group
    return None
