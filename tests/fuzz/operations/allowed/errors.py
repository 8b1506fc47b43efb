# SPDX-License-Identifier: BSD-3-Clause
"""What may differ: which error comes, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np

from .failures import Allowed, arrays, bare, given, is_empty, message, our_message
from .two_faults import has_two_faults

CONVOLUTIONS = tuple(f"{name}{n}d" for name in ("conv", "conv_transpose") for n in "123")

#: What torch says of an argument of another kind than documented.
KINDS = (
    "argument '",
    "must be ",
    "invalid combination of arguments",
    "has no attribute",
    "unsupported operand",
    "not supported between",
    "not iterable",
    "not subscriptable",
    "has no len()",
    "does not support len",
    "len() of a 0-d tensor",
    "iteration over a 0-d tensor",
    "object cannot be interpreted",
    "cannot be converted",
    "only integer tensors",
    "bad operand type",
    "not callable",
    "Expected a proper Tensor",
    "Boolean value of Tensor",
    "not an integer",
    "expected Tensor as element",
    "doesn't apply to",
    "isIntegral",
    "valid value for",
    "argument alpha must not",
    "Boolean alpha only",
    "invalid literal",
    "of a 0-dim tensor",
    "Dimension out of range",  # of a tensor that counts as a dimension
    "expected a modtree.Tensor",
    "Input dimension should be at least",  # of a string as a size
)


def wrong_kind(f: Any) -> bool:
    """torch names the kind; ours takes what can be taken, or names something else."""
    complex_for_real = any(isinstance(v, complex) for v in given(f))
    words = ("accepted", "error type")
    if f.word in ("refused", "structure") and f.line.misfit:
        # A number for a tensor, or a tensor without dimensions for a number.
        loose = any(a.ndim == 0 for a in arrays(f)[1:]) and f.word == "structure"
        return loose or any(part in our_message(f) for part in KINDS)
    if not (f.line.misfit or complex_for_real) or f.word not in words:
        return False
    named = any(part in message(f) for part in KINDS)
    return named or (f.word == "error type" and any(part in our_message(f) for part in KINDS))


#: What torch's code runs into, but does not check, and in which operations. () stands for all that
#: get a list for a tensor.
ACCIDENTS: dict[str, tuple[str, ...]] = {
    "INTERNAL ASSERT": (
        *("pow", "ipow", "eye"),
        *("channel_shuffle", "conv_transpose1d", "conv_transpose3d", "embedding", "index_put"),
        "interpolate",
    ),
    "nullptr (uninitialized)": ("index_put",),
    "undefined Tensor": ("dist", "index_put"),
    "at least one index must be provided": ("index_put",),
    "can't be cast to the desired output type": (
        *("addmm", "baddbmm"),
        *("binary_cross_entropy", "binary_cross_entropy_with_logits"),
        *("RNN", "LSTM", "GRU", "RNNCell", "LSTMCell", "GRUCell"),
        *("gaussian_nll_loss", "huber_loss", "cumprod", "addcdiv", "square", "pow", "ipow"),
    ),
    "doesn't match the broadcast shape": (
        *("binary_cross_entropy_with_logits", "logsumexp", "clamp", "clip"),
    ),
    "value cannot be converted to type": ("addcdiv", "addcmul"),
    "grad_input must be contiguous": ("nll_loss", "cross_entropy"),
    "tuple index out of range": ("max_unpool1d", "max_unpool2d", "max_unpool3d"),
    "'int' has no len()": ("max_unpool1d", "max_unpool2d", "max_unpool3d"),
    "on a bool tensor is not supported": ("soft_margin_loss", "atan2"),
    "with a bool tensor is not supported": (
        *("binary_cross_entropy_with_logits", "gaussian_nll_loss"),
        *("smooth_l1_loss", "logaddexp", "pow", "ipow"),
    ),
    "two bool tensors is not supported": ("logaddexp", "huber_loss", "lerp"),
    "returned an invalid gradient": (
        *("index_put", "pixel_shuffle", "pixel_unshuffle", "scatter", "scatter_add"),
        *("scatter_reduce", "addcdiv", "clamp", "clip"),
    ),
    "select(): index": (
        *("batch_norm", "instance_norm", "conv1d", "conv2d", "conv3d"),
        *("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
    ),
    "step must be nonzero": ("embedding_bag",),
    "tensor does not have a device": ("group_norm",),
    "must match the size of tensor b": ("scatter_reduce",),
    "Index to scalar can have only 1 value": ("index_copy", "index_add"),
    "used in an in-place operation": ("celu", "elu", "leaky_relu"),
}


def accident(f: Any) -> bool:
    words = ("accepted", "backward accepted", "refused", "error type")
    if bare(f).startswith("max_unpool") and "sizes of a window" in our_message(f):
        return f.word == "error type"  # torch does not count them
    return f.word in words and any(
        part in message(f) and bare(f) in names for part, names in ACCIDENTS.items()
    )


def number_as_a_dtype(f: Any) -> bool:
    parts = ("to() received an invalid argument", "is an accelerator's number")
    return bare(f) == "to" and f.word == "refused" and any(p in our_message(f) for p in parts)


def two_faults(f: Any) -> bool:
    # Several are bools there, of which one at a time is replaced.
    bools = bare(f) in ("baddbmm") and "for 'Bool'" in our_message(f)
    return f.word == "error type" and (bools or has_two_faults(f))


#: How torch says that an index is out of range, and of which operations.
BEYOND: dict[str, tuple[str, ...]] = {
    "ZeroDivisionError": ("take_along_dim",),
    "out of DATA bounds": (
        *("embedding", "index_add", "index_copy", "index_fill", "index_select"),
    ),
    "out of bounds": (
        *("index_copy", "index_fill", "index_put", "setitem"),
        *("max_unpool1d", "max_unpool2d", "max_unpool3d"),
    ),
    "out of range in self": ("index_add",),
    "setStorage": ("index_copy", "index_fill"),
    "should be positive": ("index_add", "index_copy", "index_fill", "index_select", "embedding"),
}


def index_out_of_range(f: Any) -> bool:
    if bare(f) == "index_fill" and f.word == "backward accepted":  # counted from the end
        return any(p in message(f) for p in ("out of DATA bounds", "index out of range in self"))
    return f.word in ("error type", "backward error type") and any(
        part in message(f) and bare(f) in names for part, names in BEYOND.items()
    )


def of_number_too_large(f: Any) -> bool:
    parts = ("int too big", "Overflow when unpacking")
    return f.word in ("accepted", "error type") and any(part in message(f) for part in parts)


def unordered_kernel(f: Any) -> bool:
    """torch asks for a kernel only where there is something to compute."""
    parts = ("not implemented for", "floating", "Low precision dtypes")
    results = [a for a in f.theirs.results if isinstance(a, np.ndarray)]
    nothing = is_empty(f) or all(a.ndim == 0 for a in arrays(f)) or all(a.size < 2 for a in results)
    return (
        f.word == "refused"
        and nothing
        and f.ours.error[0] is NotImplementedError
        and any(part in our_message(f) for part in parts)
    )


#: What torch does not compare, look at or fit where there is nothing to compute.
UNSEEN: dict[str, tuple[str, ...]] = {
    "same dtype": ("bmm", "baddbmm", "addmm", "linear", "matmul"),
    "of one dtype": ("einsum",),
    "should be the same": CONVOLUTIONS,
    "output padding must be smaller": CONVOLUTIONS,
    "should be greater than zero": CONVOLUTIONS,
    "non-positive dilation": CONVOLUTIONS,
    "negative padding": CONVOLUTIONS,
    "square matrices": ("cholesky",),
    "at least 2 dimensions": ("cholesky",),
    "driver": ("svd",),
    "Invalid output_size": ("repeat_interleave",),
    "repeats can not be negative": ("repeat_interleave",),
    "both of one dtype": ("cdist",),
    "must agree in their last axis": ("scaled_dot_product_attention",),
    "enable_gqa needs": ("scaled_dot_product_attention",),
}


def unseen(f: Any) -> bool:
    return (
        f.word == "refused"
        and is_empty(f)
        and any(part in our_message(f) and bare(f) in names for part, names in UNSEEN.items())
    )


def kernel_of_nothing(f: Any) -> bool:
    """torch asks for some kernels even so."""
    names = ("grid_sample", "scatter_reduce")
    missing = bare(f) in names and "not implemented for" in message(f)
    bytes_as_classes = bare(f) in ("nll_loss", "cross_entropy") and "found Byte" in message(f)
    return f.word == "accepted" and is_empty(f) and (missing or bytes_as_classes)


def no_half_kernel(f: Any) -> bool:
    """Of complex results too."""
    names = ("affine_grid", "avg_pool3d", "cdist", "ctc_loss", "local_response_norm")
    names += ("polar", "interpolate")
    return (
        bare(f) in names
        and f.word in ("accepted", "backward accepted")
        and any(f"not implemented for '{kind}'" in message(f) for kind in ("Half", "ComplexHalf"))
    )


def whole_dtype_of_a_gradient(f: Any) -> bool:
    text = message(f)
    return f.word == "accepted" and (
        "Autograd not support dtype" in text or "automatic differentiation for outputs" in text
    )


def derives_more(f: Any) -> bool:
    """A derivative that torch does not have."""
    names = ("scatter", "asinh", "acosh", "atanh")
    names += (
        "remainder",
        "mod",
        "imod",
        "floor_divide",
        "ifloordiv",
        "floordiv",
    )
    text = message(f)
    return (
        bare(f) in names
        and f.word == "backward accepted"
        and ("is not implemented" in text or "not differentiable" in text)
    )


def gradient_in_another_dtype(f: Any) -> bool:
    return f.word == "backward accepted" and "expected scalar type" in message(f)


def complex_alone(f: Any) -> bool:
    return f.word in ("backward accepted", "requires_grad") and (
        "isFloatingType(grad" in message(f) or "isDifferentiableType" in message(f)
    )


def negative_factor_in_place(f: Any) -> bool:
    names = ("leaky_relu", "elu", "celu")
    text = "" if f.ours.error is None else f.ours.error[1]
    return bare(f) in names and f.word == "refused" and "in place with a negative" in text


def negative_in_place(f: Any) -> bool:
    return f.line.operation.name.rpartition(".")[2] in ("celu_", "elu_") and f.word == "refused"


def inplace_logic(f: Any) -> bool:
    return bare(f).startswith("logical_") and f.word in ("gradient is None", "requires_grad")


ALLOWED = [
    Allowed("`to(1.5)`, `to(True)`", number_as_a_dtype),
    Allowed("an argument of another kind than documented", wrong_kind),
    Allowed("lines that torch's code stops by accident", accident),
    Allowed("a line with two faults", two_faults),
    Allowed("an index out of range", index_out_of_range),
    Allowed("an int beyond 64 bits", of_number_too_large),
    Allowed("an operation without a kernel for a dtype, of a tensor", unordered_kernel),
    Allowed("what torch does not look at where there is nothing to compute", unseen),
    Allowed("what torch does not look at where there is nothing to compute", kernel_of_nothing),
    Allowed("an operation whose kernel torch lacks for float16", no_half_kernel),
    Allowed("results of integers of what needs a gradient", whole_dtype_of_a_gradient),
    Allowed("derivatives that torch does not have", derives_more),
    Allowed("lines that torch's code stops by accident", gradient_in_another_dtype),
    Allowed("the gradient of a real operand", complex_alone),
    Allowed("`leaky_relu`, `elu`, `celu` in place", negative_factor_in_place),
    Allowed("`celu_` with a negative factor", negative_in_place),
    Allowed("`logical_and_`, `logical_or_`", inplace_logic),
]
