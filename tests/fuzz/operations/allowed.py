# SPDX-License-Identifier: BSD-3-Clause
"""What may differ: each entry names its row of docs/compat.md by the beginning of the row's first
column.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .values import Named, TensorValue


class Allowed(NamedTuple):
    row: str
    applies: Callable[[Any], bool]  # to a Failure


class Avoided(NamedTuple):
    """Lines that stop the process in torch."""

    names: tuple[str, ...]
    row: str
    applies: Callable[[Any], bool]  # to a Line


def bare(failure: Any) -> str:
    return failure.line.operation.name.rpartition(".")[2].rstrip("_")


def message(failure: Any) -> str:
    """What torch says."""
    error = failure.theirs.error or failure.theirs.backward_error
    return "" if error is None else error[1]


def beyond(array: Any, limit: float) -> bool:
    """Has it elements beyond a limit? NaN are none."""
    return bool((np.abs(array.astype(complex if array.dtype.kind == "c" else float)) > limit).any())


def is_empty(failure: Any) -> bool:
    return any(t.array.size == 0 for t in failure.line.tensors)


def arrays(failure: Any) -> list[Any]:
    return [t.array for t in failure.line.tensors]


def given(f: Any) -> list[Any]:
    """The numbers of a line."""
    numbers = [*f.line.values, *f.line.keywords.values()]
    return [v for v in numbers if isinstance(v, (int, float, complex))]


def wrong_kind(f: Any) -> bool:
    complex_for_real = (
        f.word == "error type"
        and any(isinstance(v, complex) for v in given(f))
        and "cannot be converted" in message(f)
        and f.ours.error[0] is TypeError
    )
    words = ("accepted", "error type", "refused", "structure")
    return complex_for_real or (f.line.misfit and f.word in words)


def losses_of_several_dtypes(f: Any) -> bool:
    names = ("huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits")
    words = ("accepted", "backward accepted", "dtype", "value")
    differ = len({a.dtype for a in arrays(f)}) > 1
    return bare(f) in names and f.word in words and differ


def losses_with_more_gradients(f: Any) -> bool:
    text = "is not differentiable with respect to argument"
    names = ("soft_margin_loss", "multi_margin_loss")
    return bare(f) in names and f.word == "accepted" and text in message(f)


def exponential_that_overflows(f: Any) -> bool:
    infinite = f.word == "value" and bool(np.isinf(f.theirs.results[0]).any())
    return bare(f) == "soft_margin_loss" and infinite


def target_without_mass(f: Any) -> bool:
    return bare(f) == "kl_div" and f.word == "gradient value" and not arrays(f)[-1].all()


def complex_targets(f: Any) -> bool:
    kinds = [a.dtype.kind for a in arrays(f)]
    return bare(f) == "binary_cross_entropy_with_logits" and f.word == "refused" and "c" in kinds


def half_beside_complex(f: Any) -> bool:
    kinds = {a.dtype.str[1:] for a in arrays(f)}
    if "'ComplexHalf'" in message(f) and f.word in ("accepted", "backward accepted"):
        return True
    return f.word == "dtype" and "f2" in kinds and bool(kinds & {"c8", "c16"})


def stirling_of_nothing(f: Any) -> bool:
    return bare(f) == "poisson_nll_loss" and f.word == "gradient value"


def derives_more(f: Any) -> bool:
    """A derivative that torch does not have."""
    text = message(f)
    return f.word == "backward accepted" and (
        "is not implemented" in text or "not differentiable" in text
    )


def inplace_logic(f: Any) -> bool:
    return bare(f).startswith("logical_") and f.word in ("gradient is None", "requires_grad")


def dimension_of_nothing(f: Any) -> bool:
    names = ("cummax", "cummin", "roll", "cat", "concat", "concatenate", "index_fill")
    return (
        bare(f) in names
        and is_empty(f)
        and f.word == "refused"
        and ("out of range" in f.ours.error[1])
    )


def cancelling_terms(f: Any) -> bool:
    names = ("cumsum", "mean", "nanmean", "nansum", "sum")
    return bare(f) in names and f.word == "value" and any(beyond(a, 1e9) for a in arrays(f))


def index_into_nothing(f: Any) -> bool:
    """An index array beside what chooses nothing."""
    results = [a for a in f.theirs.results if isinstance(a, np.ndarray)]
    nothing = is_empty(f) or bare(f) == "setitem" or any(a.size == 0 for a in results)
    names = ("index_put", "getitem", "setitem")
    return (
        bare(f) in names
        and f.word == "refused"
        and nothing
        and ("out of bounds" in f.ours.error[1])
    )


def not_viewable(f: Any) -> bool:
    if bare(f) == "isin" and f.word == "value" and f.line.keywords.get("assume_unique"):
        return True  # and they are not
    names = ("isin", "take_along_dim")
    return bare(f) in names and f.word == "accepted" and "view size is not" in message(f)


def fused_product(f: Any) -> bool:
    """A product that overflows beside an infinity."""
    return (
        bare(f) in ("addcmul", "add", "sub")
        and f.word == "value"
        and (
            any(np.isinf(a).any() for a in arrays(f) if a.dtype.kind in "fc")
            and any(beyond(a, 1e18) for a in arrays(f))
        )
    )


def overflowing_quotient(f: Any) -> bool:
    return (
        bare(f) in ("remainder", "mod", "imod", "fmod")
        and f.word == "value"
        and (any(beyond(a, 1e18) for a in arrays(f)))
    )


def infinite_as_integer(f: Any) -> bool:
    dtypes = [v.name for v in f.line.keywords.values() if isinstance(v, Named)]
    return (
        bare(f) == "nansum"
        and f.word == "value"
        and any("int" in n for n in dtypes)
        and any(np.isinf(a).any() for a in arrays(f) if a.dtype.kind == "f")
    )


def bytes_of_nothing(f: Any) -> bool:
    one = any(a.ndim and (a.shape[-1] == 1 or 1 in a.shape and a.ndim > 1) for a in arrays(f))
    return (
        bare(f) == "view"
        and f.word == "accepted"
        and "stride" in message(f)
        and (one or is_empty(f))
    )


def unordered_kernel(f: Any) -> bool:
    """torch asks for a kernel only where there is something to compute."""
    nothing = [a.size == 0 for a in f.theirs.results if isinstance(a, np.ndarray)]
    return (
        (is_empty(f) or all(a.ndim == 0 for a in arrays(f)) or (bool(nothing) and all(nothing)))
        and f.word == "refused"
        and f.ours.error[0]
        in (
            NotImplementedError,
            RuntimeError,
        )
    )


def no_half_kernel(f: Any) -> bool:
    """Of complex results too."""
    return f.word in ("accepted", "backward accepted") and any(
        f"not implemented for '{kind}'" in message(f) for kind in ("Half", "ComplexHalf")
    )


def equal_elements(f: Any) -> bool:
    """Which of several equal elements an index names."""
    if bare(f) == "quantile" and f.word == "gradient value":
        return True
    names = ("kthvalue", "mode", "median", "nanmedian", "sort", "argsort", "topk", "max", "min")
    return (bare(f) in names and f.word == "value") or (
        bare(f) in (*names, "put") and f.word.startswith("gradient value")
    )


def same_place_twice(f: Any) -> bool:
    names = ("put", "index_copy", "scatter", "index_put", "setitem", "max_unpool")
    return bare(f).startswith(names) and f.word in (
        "value",
        "gradient value",
        "argument afterwards",
    )


def beyond_the_dtype(f: Any) -> bool:
    numbers = [v for v in f.line.values if isinstance(v, (int, float)) and abs(v) > 100]
    if bare(f) == "hinge_embedding_loss" and f.word == "value":
        return any(a.dtype == np.uint8 for a in arrays(f))
    negative = [v for v in f.line.values if isinstance(v, (int, float)) and v < 0]
    return f.word == "value" and bool(numbers or negative) and bare(f) in COMPARISONS


COMPARISONS = ("lt le gt ge eq ne less less_equal greater greater_equal not_equal").split()


def complex_at_infinity(f: Any) -> bool:
    def odd(a: Any) -> bool:
        with np.errstate(all="ignore"):
            return a.dtype.kind == "c" and not (np.abs(a) < 1e18).all()

    results = [a for a in f.theirs.results if isinstance(a, np.ndarray)]
    return f.word in ("value", "gradient value") and any(odd(a) for a in [*arrays(f), *results])


def corner_of_activation(f: Any) -> bool:
    names = ("elu", "selu", "celu", "hardswish", "hardshrink", "softshrink", "hardtanh", "relu6")
    return (
        bare(f) in (*names, "softsign", "threshold")
        and f.word == "gradient value"
        and any(not np.isfinite(a).all() for a in arrays(f))
    )


def rounded_to_narrow(f: Any) -> bool:
    """Values of float16, and what becomes of them and of float32 beside wider ones."""
    if f.word not in ("value", "gradient value"):
        return False
    given = f.line.keywords.get("dtype") or next(
        (v for v in f.line.values if hasattr(v, "name")), None
    )
    kinds = {np.dtype(a.dtype) if a.dtype.kind in "fc" else np.dtype("f") for a in arrays(f)}
    if given is not None and given.name in ("float16", "float32"):
        kinds.add(np.dtype(given.name))
    if np.dtype(np.float16) in kinds:
        steps = bare(f).startswith(("RNN", "LSTM", "GRU"))  # each of which rounds
        near = 1e-2 if f.word == "value" else 5e-2
        if steps and f.word != "value":
            return True
    elif bare(f).startswith(("RNN", "LSTM", "GRU")) and np.dtype("f") in kinds:
        near = 1e-3  # gates saturate
    elif len(kinds) > 1 and kinds & {np.dtype("f"), np.dtype("F")}:
        near = 1e-5
    else:
        return False
    what = "results" if f.word == "value" else "gradients"
    for a, b in zip(getattr(f.theirs, what), getattr(f.ours, what), strict=True):
        if isinstance(a, np.ndarray) and a.size and a.dtype.kind in "fc":
            with np.errstate(all="ignore"):
                a, b = a.astype(complex), b.astype(complex)
                largest = np.abs(a[np.isfinite(a)]).max(initial=0.0)
            if not np.allclose(a, b, near, near * largest, equal_nan=True):
                return False
    return True


def large_moments(f: Any) -> bool:
    with np.errstate(all="ignore"):
        return bare(f) in ("var", "std", "var_mean", "std_mean") and any(
            not (np.abs(a) < 1e15).all() for a in arrays(f)
        )


def several_dtypes(f: Any) -> bool:
    """torch computes some gradients in the dtype of one operand, where integers wrap around."""
    kinds = {a.dtype for a in arrays(f)}
    given = f.line.keywords.get("dtype") is not None
    return f.word == "gradient value" and (len(kinds) > 1 or given)


def of_number_too_large(f: Any) -> bool:
    parts = ("int too big", "Overflow when unpacking")
    return f.word in ("accepted", "error type") and any(part in message(f) for part in parts)


def whole_dtype_of_a_gradient(f: Any) -> bool:
    text = message(f)
    return f.word == "accepted" and (
        "Autograd not support dtype" in text or "automatic differentiation for outputs" in text
    )


def complex_alone(f: Any) -> bool:
    return f.word in ("backward accepted", "requires_grad") and (
        "isFloatingType(grad" in message(f) or "isDifferentiableType" in message(f)
    )


def odd_numbers(f: Any) -> bool:
    """NaN, infinite and enormous numbers as parameters: limits, factors, corrections."""
    # Times the largest values that are drawn, they overflow.
    kinds = [str(a.dtype) for a in arrays(f)]
    kinds += [v.name for v in f.line.keywords.values() if isinstance(v, Named)]
    limit, least = 6e4 if "float16" in kinds else 1e9, 0.0
    if any(part in bare(f) for part in ("norm", "dist", "triplet")):
        limit, least = 100, 1e-3  # powers of it are taken
    odd = [v for v in given(f) if not (v == 0 or least < abs(v) < limit)]
    if odd and f.word in ("accepted", "error type") and "without overflow" in message(f):
        return True
    if odd and f.word == "refused" and "does not fit" in f.ours.error[1]:
        return True
    fraction = bare(f) == "logit"  # of which the limit is a fraction
    if f.word == "accepted":
        return bool(odd) and "without overflow" in message(f)
    if f.word == "backward accepted":
        return bool(odd)
    half = limit < 1e9 and f.word == "refused" and "without overflow" in f.ours.error[1]
    return half or f.word in ("value", "gradient value") and bool(odd or fraction and given(f))


def largest_integers(f: Any) -> bool:
    return bare(f) in ("gcd", "lcm", "softsign") and f.word == "value"


def negative_factor_in_place(f: Any) -> bool:
    names = ("leaky_relu", "elu", "celu")
    text = "" if f.ours.error is None else f.ours.error[1]
    return bare(f) in names and f.word == "refused" and "in place with a negative" in text


def gelu_of_infinity(f: Any) -> bool:
    return bare(f) == "gelu" and f.word == "value" and any(np.isinf(a).any() for a in arrays(f))


def sixth(f: Any) -> bool:
    return (
        bare(f) == "hardsigmoid" and f.word == "gradient value" and arrays(f)[0].dtype.char == "d"
    )


def other_order_of_batch_norm(f: Any) -> bool:
    turned = any(t.turned for t in f.line.tensors)
    return bare(f) == "batch_norm" and f.word == "gradient value" and turned


def statistics_of_another_dtype(f: Any) -> bool:
    differ = len({a.dtype for a in arrays(f)}) > 1
    words = ("accepted", "refused", "argument afterwards")
    shaped = any(a.ndim != 1 for a in arrays(f)[1:])  # a matrix for a vector
    names = ("batch_norm", "instance_norm", "layer_norm", "group_norm")
    return bare(f) in names and f.word in (*words, "error type") and (differ or shaped)


def parts_that_cancel(f: Any) -> bool:
    """Results that are 0 but for rounding."""
    others = ("cond", "normalize")
    if not (bare(f).endswith("_norm") or bare(f) in others) or not f.word.endswith("value"):
        return False
    what = "results" if f.word == "value" else "gradients"
    least = {"e": 1e-2, "f": 1e-4, "d": 1e-12}
    for a, b in zip(getattr(f.theirs, what), getattr(f.ours, what), strict=True):
        if a is not None:
            near = least.get(a.dtype.char, 0.0)
            if not np.allclose(a, b, near, near, equal_nan=True):
                return False
    return True


def unsorted_boundaries(f: Any) -> bool:
    if bare(f) not in ("bucketize", "searchsorted"):
        return False
    given = {**dict(enumerate(f.line.values)), **f.line.keywords}
    keys = (1, "boundaries") if bare(f) == "bucketize" else (0, "sorted_sequence")
    boundaries = next((given[key] for key in keys if key in given), None)
    if not isinstance(boundaries, TensorValue) or boundaries.array.ndim == 0:
        return False
    a = boundaries.array
    return not np.array_equal(np.sort(a, -1), a) or (
        a.dtype.kind in "fc" and bool(np.isnan(a).any())
    )


def nan_among_limits(f: Any) -> bool:
    return bare(f) in (
        "logit",
        "prod",
        "cumprod",
        "scatter_reduce",
        "pow",
        "ipow",
        "float_power",
        "ldexp",
        "nan_to_num",
    ) and (f.word == "gradient value" and any(not np.isfinite(a).all() for a in arrays(f)))


def unique_nan(f: Any) -> bool:
    return bare(f) in ("unique", "unique_consecutive", "isin") and any(
        np.isnan(a).any() for a in arrays(f) if a.dtype.kind in "fc"
    )


def trapezoids(f: Any) -> bool:
    words = ("value", "dtype", "shape", "requires_grad", "gradient is None")
    broadcast = f.word == "accepted" and is_empty(f) and "must match the size" in message(f)
    return "trap" in bare(f) and (broadcast or f.word in words)


def moments_over_no_dimension(f: Any) -> bool:
    return bare(f) in ("var", "std", "var_mean", "std_mean") and [] in [
        *f.line.values,
        *f.line.keywords.values(),
    ]


def same_dtype_view(f: Any) -> bool:
    return bare(f) == "view" and f.word == "requires_grad"


def accident(f: Any) -> bool:
    """What torch's code runs into, but does not check."""
    words = ("accepted", "backward accepted", "refused", "error type")
    return f.word in words and any(
        part in message(f)
        for part in (
            "INTERNAL ASSERT",
            "cannot create std::vector",
            "not enough values to unpack",
            "too many values to unpack",
            "tuple index out of range",
            "'int' has no len()",
            "len() of a 0-d tensor",
            "iteration over a 0-d tensor",
            "must be Tensor, not tuple",
            "must be Tensor, not list",
            "step must be nonzero",
            "used in an in-place operation",
            "tensor does not have a device",
            "select(): index",
            "select() cannot be applied",
            "grad_input must be contiguous",
            "undefined Tensor",
            "nullptr (uninitialized)",
            "modified by an inplace operation",
            "returned an invalid gradient",
            "can't be cast to the desired output type",
            "must have the same dtype, but got",
            "with a bool tensor is not supported",
            "on a bool tensor is not supported",
            "two bool tensors is not supported",
            "doesn't match the broadcast shape",
            "at least one index must be provided",
        )
    )


def gradient_in_another_dtype(f: Any) -> bool:
    return f.word == "backward accepted" and "expected scalar type" in message(f)


def index_out_of_range(f: Any) -> bool:
    return f.word in ("error type", "backward error type") and any(
        part in message(f)
        for part in (
            "out of DATA bounds",
            "out of bounds",
            "out of range in self",
            "setStorage",
            "should be positive",
            "ZeroDivisionError",
            "codec can't decode",
        )
    )


def bytes_as_a_mask(f: Any) -> bool:
    return f.word == "accepted" and "only supports boolean masks" in message(f)


def wraps_around(f: Any) -> bool:
    return bare(f) == "take_along_dim" and f.word == "refused"


def nothing_times_a_vector(f: Any) -> bool:
    return bare(f) == "addmv" and f.word == "shape" and is_empty(f)


def whole_powers(f: Any) -> bool:
    text = "" if f.ours.error is None else f.ours.error[1]
    return bare(f) in ("pow", "ipow") and (
        (f.word == "refused" and "negative integer powers" in text)
        or (f.word == "accepted" and "'Bool'" in message(f))
    )


def powers_of_nothing(f: Any) -> bool:
    return (
        bare(f) in ("pow", "ipow", "float_power")
        and f.word in ("value", "gradient value")
        and (any(a.dtype.kind == "c" for a in arrays(f)))
    )


def roots_of_infinity(f: Any) -> bool:
    values = [*f.line.values, *f.line.keywords.values()]
    return (
        bare(f) in ("pow", "ipow", "float_power")
        and f.word == "value"
        and any(isinstance(v, TensorValue) and v.array.size == 1 for v in values[1:])
        and np.isneginf(arrays(f)[0].real).any()
    )


def false_as_an_exponent(f: Any) -> bool:
    return (
        bare(f) in ("pow", "ipow")
        and f.word == "gradient value"
        and any(v is False for v in given(f))
    )


def number_by_tensor(f: Any) -> bool:
    return f.word == "gradient value" and (
        bare(f) in ("truediv", "itruediv") and isinstance(f.line.values[0], (int, float))
    )


def whole_exponents(f: Any) -> bool:
    return bare(f) == "ldexp" and f.word in ("value", "gradient value")


def order_of_factors(f: Any) -> bool:
    return (
        bare(f) == "prod"
        and f.word == "value"
        and (
            any(not np.isfinite(a).all() for a in arrays(f))
            or any(getattr(v, "name", "") == "float16" for v in f.line.keywords.values())
        )
    )


def negative_in_place(f: Any) -> bool:
    return f.line.operation.name.rpartition(".")[2] in ("celu_", "elu_") and f.word == "refused"


#: What messages of errors are about.
FAULTS = {
    "dimension": ("Dimension ", "too many indices", "non-zero size", "for scalar but got"),
    "twice": ("appears multiple times", "repeated axis"),
    "dtype": (
        "not implemented for",
        "same dtype",
        "same scalar type",
        "self.dtype to be equal",
        "dtypes match",
        "should match",
        "long()",
        "infer output dtype",
        "only support floating",
        "must be int32 or int64",
        "to have dtype of long",
        "Expected dtype",
        "bool input",
        "tensors used as indices",
    ),
    "number": ("without overflow", "dx as a real number", "can not be negative"),
    "size": (
        "non-negative",
        "non-empty",
        "same dimension as",
        "0-dimensional value",
        "reduce argument",
    ),
    "index": ("out of bounds", "out of range for", "out of range in"),
    "shape": (
        "shape mismatch",
        "vector",
        "slice shapes",
        "shape of the mask",
        "could not be broadcast together",
        "Index to scalar",
        "dimensionality must match",
        "number of dimensions",
        "does not match",
        "Number of indices",
        "should have one element",
    ),
}


def two_faults(f: Any) -> bool:
    """The errors are about two things, as a dimension out of range beside a dtype."""
    if f.word != "error type":
        return False
    theirs, ours = (
        {kind for kind, parts in FAULTS.items() if any(part in text for part in parts)}
        for text in (message(f), f.ours.error[1])
    )
    if theirs and ours and not theirs & ours:
        return True
    ours, dtypes = f.ours.error[1], ("not implemented for", "same dtype", "should match", "long()")
    dtypes += ("dtype should be", "must agree")
    if "negative integer powers" in message(f):
        return f.ours.error[0] is IndexError
    if "Dimension " in message(f) and ("inconsistent" in ours or "mismatch" in ours):
        return True
    if "argument 'dtype' must be" in message(f) and "device" in ours:
        return True
    if "divisor must be not zero" in message(f):
        return f.ours.error[0] is IndexError
    dims = ("Dimension ", "too many indices", "tensors used as indices")
    if "not implemented for" in message(f) and ("same dtype" in ours or "one dtype" in ours):
        return True
    if "valid value for reduction" in message(f) or "valid value for reduction" in ours:
        return True
    refused = (ValueError, RuntimeError, IndexError, OverflowError)
    if "not implemented for" in message(f) and f.ours.error[0] in refused:
        return True  # a dtype, and a size or a number
    if "is not differentiable with respect" in ours:
        return True
    if "unpool" in bare(f) and f.theirs.error[0] is ValueError and "size" in message(f):
        return True
    if "Only 3D, 4D" in ours or "input, but" in ours:
        return f.theirs.error[0] is ValueError
    if "should be either floating point" in message(f) and f.ours.error[0] is IndexError:
        return True
    if "out of range" in message(f) and "per_sample_weights was not None" in ours:
        return True
    if "differentia" in message(f) and f.ours.error[0] is ValueError:
        return True
    if "not implemented for" in ours and f.theirs.error[0] is ValueError:
        return True
    if "It is expected" in ours and "Dimension " in message(f):
        return True
    if "cannot be multiplied" in ours and "Dimension " in message(f):
        return True
    if "could not infer output dtype" in message(f) and f.ours.error[0] is IndexError:
        return True
    if "not supported for complex" in message(f) and f.ours.error[0] is RuntimeError:
        return True
    if "argument 'dtype' must be" in message(f):
        return True
    if "multiple times" in message(f) and "Dimension " in ours:
        return True
    return any(p in message(f) for p in dims) and any(p in ours for p in dtypes)


def triangle_that_is_not_read(f: Any) -> bool:
    names = ("cholesky_solve", "cholesky_inverse")
    return bare(f) in names and f.word in ("gradient value", "value")


def phases_of_vectors(f: Any) -> bool:
    if bare(f) == "eigvals" and f.word == "value":
        sort = [np.sort_complex(o.results[0]) for o in (f.theirs, f.ours)]
        return bool(np.allclose(*sort, rtol=1e-3, atol=1e-3))
    return bare(f) in ("eig", "eigh", "svd", "qr") and f.word in ("value", "gradient value")


def gradient_that_cancels(f: Any) -> bool:
    if bare(f) == "corrcoef" and f.word == "gradient value":
        sizes = [np.abs(g).max() for o in (f.theirs, f.ours) for g in o.gradients if g is not None]
        return max(sizes) < 1e-5 and any(a.dtype == np.float32 for a in arrays(f))
    halves = any(a.dtype == np.float16 for a in arrays(f))
    names = ("renorm", "corrcoef", "cosine_similarity")
    return bare(f) in names and f.word == "gradient value" and halves


def batch_of_vectors(f: Any) -> bool:
    first, *others = arrays(f) or [np.zeros(0)]
    words = ("shape", "accepted")
    return bare(f) == "lstsq" and f.word in words and others[0].ndim == first.ndim - 1


def gradient_of_nothing(f: Any) -> bool:
    if bare(f) == "scaled_dot_product_attention" and f.word == "gradient is None":
        return is_empty(f)
    if bare(f) == "group_norm" and is_empty(f) and f.word == "gradient value":
        return True
    return bare(f) == "householder_product" and f.word == "gradient is None" and is_empty(f)


def near_to_singular(f: Any) -> bool:
    """Within what rounding the elements may change."""
    names = "inv inverse det logdet slogdet solve lstsq pinv pinverse cond tensorinv tensorsolve"
    first = arrays(f)[0] if arrays(f) else np.zeros(0)
    if bare(f) == "householder_product" and f.word == "gradient value":
        for a, b in zip(f.theirs.gradients, f.ours.gradients, strict=True):
            if a is not None and not np.allclose(a, b, 1e-3, 1e-3 * np.abs(a).max(initial=0)):
                return False
        return True
    if bare(f) not in names.split() or not f.word.endswith("value") or first.ndim < 2:
        return False
    if not first.size or first.shape[-1] != first.shape[-2] or first.dtype.kind not in "fc":
        return False
    return bool((np.linalg.cond(first) > 1e-2 / np.finfo(first.dtype).eps ** 0.5).any())


def rank_by_columns(f: Any) -> bool:
    names = [*f.line.values[2:3], f.line.keywords.get("rcond")]
    given = [v for v in names if isinstance(v, (int, float))]
    return bare(f) == "lstsq" and f.word.endswith("value") and bool(given) and given[0] > 1e-3


def exponential_of_halves(f: Any) -> bool:
    halves = any(a.dtype == np.float16 for a in arrays(f))
    return bare(f) == "matrix_exp" and f.word.endswith("value") and halves


def uninitialized(f: Any) -> bool:
    return bare(f) in ("multi_margin_loss", "multilabel_margin_loss") and is_empty(f)


#: What multiplies matrices, in an order of its own.
PRODUCTS = ("mm", "mv", "addr", "matmul", "multi_dot", "einsum", "cross", "tensordot", "inner")


def memory_of_factors(f: Any) -> bool:
    if bare(f) == "tensordot":
        bools = all(a.dtype == bool for a in arrays(f))
        return bools and f.word == "refused"
    return (
        bare(f) in ("kron", "matrix_exp", "conv_tbc")
        and f.word == "accepted"
        and "view size" in message(f)
    )


def width_of_nothing(f: Any) -> bool:
    text = "cannot reshape tensor of 0 elements"
    return bare(f) == "bilinear" and f.word == "accepted" and text in message(f)


def without_channels(f: Any) -> bool:
    if not bare(f).startswith("conv") or f.word not in ("shape", "refused"):
        return False
    return bool(arrays(f)) and 0 in arrays(f)[0].shape


def transposed_to_nothing(f: Any) -> bool:
    ours = "" if f.ours.error is None else f.ours.error[1]
    small = "Output size is too small" in ours
    return bare(f).startswith("conv_transpose") and f.word == "refused" and small


def parts_of_none(f: Any) -> bool:
    text = "Expected grad_output to have non-zero size"
    return f.word == "backward accepted" and text in message(f)


def unshuffled_nothing(f: Any) -> bool:
    return bare(f) == "pixel_unshuffle" and f.word == "shape" and is_empty(f)


def groups_of_nothing(f: Any) -> bool:
    return f.word == "backward accepted" and "Number of groups to divide" in message(f)


def negative_circles(f: Any) -> bool:
    given = [v for v in f.line.values if isinstance(v, (list, tuple))]
    words = ("value", "gradient value", "refused")
    return bare(f) == "pad" and f.word in words and bool(given) and min(given[0]) < 0


def nearest_of_one_size(f: Any) -> bool:
    names = ("interpolate", "upsample", "upsample_nearest")
    return bare(f) in names and f.word == "gradient value"


def odd_bias(f: Any) -> bool:
    if bare(f) == "conv_tbc" and f.word == "refused":
        return True
    if not bare(f).startswith(("linear", "conv", "LSTM", "GRU", "RNN")) or f.word not in (
        "accepted",
        "refused",
        "value",
        "gradient value",
    ):
        return False
    if not arrays(f):
        return False
    x, *others = arrays(f)
    bias = others[-1] if others else x
    if bare(f)[:3] in ("LST", "GRU", "RNN"):
        return len({a.dtype for a in arrays(f)}) > 1
    return bias.ndim > 1 or bias.dtype != x.dtype


def not_finite_in_a_layer(f: Any) -> bool:
    """Layers whose kernels meet NaN and infinities in another order, or in what is padded."""
    part = (
        "conv",
        "norm",
        "loss",
        "attention",
        "interpolate",
        "upsample",
        "grid_sample",
        "dist",
        "kl_div",
        "entropy",
        "softplus",
        "_pool",
        "RNN",
        "LSTM",
        "GRU",
        "embedding",
        "similarity",
        "normalize",
        "linear",
        *PRODUCTS,
    )
    given = list(arrays(f))
    if f.word == "gradient value":
        found = (*f.theirs.results, *f.theirs.gradients)
        given += [a for a in found if isinstance(a, np.ndarray)]

    def odd(a: Any) -> bool:
        with np.errstate(all="ignore"):
            size = np.abs(a.astype(float)) if a.dtype.kind in "iu" else np.abs(a)
            tiny = a.dtype.kind == "f" and ((size > 0) & (size < 1e-18)).any()
            return bool(tiny) or not (size < 1e9).all()

    return (
        (f.word.endswith("value") or f.word == "argument afterwards")
        and any(p in bare(f) for p in part)
        and any(odd(a) for a in given if a.dtype.kind in "fciu")
    )


def changes_its_argument(f: Any) -> bool:
    alone = bool(arrays(f)) and arrays(f)[0].shape[-1:] in ((), (1,))
    return bare(f) == "cov" and alone and f.word in ("argument afterwards", "value")


def over_no_dimension(f: Any) -> bool:
    return bare(f) == "logsumexp" and f.word == "accepted" and "broadcast shape" in message(f)


def at_poles(f: Any) -> bool:
    """torch takes the sine of a multiple of pi, and the series of an infinite number is NaN."""
    names = ("digamma", "lgamma", "mvlgamma", "polygamma")
    with np.errstate(all="ignore"):
        return (
            bare(f) in names
            and f.word in ("value", "gradient value")
            and any((np.isinf(a) | ((a < 0) & (a == np.floor(a)))).any() for a in arrays(f))
        )


def sizes_that_are_not_positive(f: Any) -> bool:
    return (
        bare(f) == "polar"
        and f.word == "gradient value"
        and not ((arrays(f)[0] > 0) & np.isfinite(arrays(f)[0])).all()
    )


ALLOWED: list[Allowed] = [
    Allowed("`polygamma`, and with it", at_poles),
    Allowed("gradient of `polar`", sizes_that_are_not_positive),
    Allowed("lines that torch's code stops by accident", accident),
    Allowed("lines that torch's code stops by accident", gradient_in_another_dtype),
    Allowed("an index out of range", index_out_of_range),
    Allowed("a number assigned by a mask of uint8", bytes_as_a_mask),
    Allowed("`take_along_dim` with an index beyond", wraps_around),
    Allowed("`addmv` of a matrix without elements", nothing_times_a_vector),
    Allowed("powers of integers and bools by a tensor without dimensions", whole_powers),
    Allowed("powers with complex exponents", powers_of_nothing),
    Allowed("powers of -infinity by a tensor", roots_of_infinity),
    Allowed("the gradient of `0 ** False`", false_as_an_exponent),
    Allowed("the gradient of a number divided by a tensor", number_by_tensor),
    Allowed("`ldexp` of several dtypes", whole_exponents),
    Allowed("`prod` of infinite values", order_of_factors),
    Allowed("`celu_` with a negative factor", negative_in_place),
    Allowed("a line with two faults", two_faults),
    Allowed("a dimension, or an index, out of range of", dimension_of_nothing),
    Allowed("a dimension, or an index, out of range of", index_into_nothing),
    Allowed("`isin(assume_unique=True)`", not_viewable),
    Allowed("sums of large terms that cancel", cancelling_terms),
    Allowed("`addcmul` whose product overflows", fused_product),
    Allowed("remainders of quotients that overflow", overflowing_quotient),
    Allowed("`nansum` of infinite values as integers", infinite_as_integer),
    Allowed("`view(dtype)` of a tensor without elements", bytes_of_nothing),
    Allowed("gradients of `cholesky_solve` and `cholesky_inverse`", triangle_that_is_not_read),
    Allowed("signs and phases of vectors (", phases_of_vectors),
    Allowed("`multi_margin_loss`, `multilabel_margin_loss` of an empty batch", uninitialized),
    Allowed("layers, losses and products of infinite, NaN", not_finite_in_a_layer),
    Allowed(
        "gradients of `householder_product`, `group_norm` and attention of no", gradient_of_nothing
    ),
    Allowed("inverses, determinants and solutions of matrices near", near_to_singular),
    Allowed("gradients of `renorm`, `corrcoef` and", gradient_that_cancels),
    Allowed("`logsumexp` over an empty list", over_no_dimension),
    Allowed("`huber_loss`, `binary_cross_entropy`", losses_of_several_dtypes),
    Allowed("gradients of `soft_margin_loss` in its", losses_with_more_gradients),
    Allowed("gradient of `poisson_nll_loss(full=True)`", stirling_of_nothing),
    Allowed("gradient of `kl_div` in a target of 0", target_without_mass),
    Allowed("`binary_cross_entropy_with_logits` with a complex", complex_targets),
    Allowed("`soft_margin_loss` of values whose", exponential_that_overflows),
    Allowed("`leaky_relu`, `elu`, `celu` in place", negative_factor_in_place),
    Allowed("`gelu` of +inf", gelu_of_infinity),
    Allowed("derivative of `hardsigmoid`", sixth),
    Allowed("gradient of `batch_norm` of memory", other_order_of_batch_norm),
    Allowed("running statistics and weights of `batch_norm` and", statistics_of_another_dtype),
    Allowed("normalizations and condition numbers whose parts cancel", parts_that_cancel),
    Allowed("float16 beside complex numbers", half_beside_complex),
    Allowed("`lstsq` of batches with one right-hand side", batch_of_vectors),
    Allowed("`lstsq` with an `rcond`", rank_by_columns),
    Allowed("`matrix_exp` of float16", exponential_of_halves),
    Allowed(
        "`kron`, `matrix_exp`, `conv_tbc` (and `tensordot` of bools) of tensors whose memory",
        memory_of_factors,
    ),
    Allowed("gradients of `pixel_shuffle` and", width_of_nothing),
    Allowed("`linear` with a bias of several", odd_bias),
    Allowed("gradient of `adaptive_avg_pool1d`", parts_of_none),
    Allowed("`pixel_unshuffle` of nothing", unshuffled_nothing),
    Allowed("gradients of `pixel_shuffle` and", groups_of_nothing),
    Allowed("`pad` in circles and reflections by", negative_circles),
    Allowed("gradient of `interpolate` by the nearest", nearest_of_one_size),
    Allowed("a convolution of 0 channels", without_channels),
    Allowed("a transposed convolution to a size of 0", transposed_to_nothing),
    Allowed("`cov` of one observation with weights", changes_its_argument),
    Allowed("`view(dtype)` to the dtype that a tensor has", same_dtype_view),
    Allowed("`trapezoid` of integers", trapezoids),
    Allowed("gradient of `var` and `std` over an empty list", moments_over_no_dimension),
    Allowed("gradients where operands of several dtypes meet", several_dtypes),
    Allowed("an int beyond 64 bits", of_number_too_large),
    Allowed("results of integers of what needs a gradient", whole_dtype_of_a_gradient),
    Allowed("the gradient of a real operand", complex_alone),
    Allowed("NaN, infinite and enormous numbers as parameters", odd_numbers),
    Allowed("`gcd`, `lcm`, `softsign` that overflow", largest_integers),
    Allowed("`bucketize`, `searchsorted` with boundaries", unsorted_boundaries),
    Allowed("gradients of products and powers at NaN", nan_among_limits),
    Allowed("`unique` of several NaN", unique_nan),
    Allowed("an argument of another kind than documented", wrong_kind),
    Allowed("derivatives that torch does not have", derives_more),
    Allowed("`logical_and_`, `logical_or_`", inplace_logic),
    Allowed("an operation without a kernel for a dtype, of a tensor", unordered_kernel),
    Allowed("an operation whose kernel torch lacks for float16", no_half_kernel),
    Allowed("which of several equal elements", equal_elements),
    Allowed("several values for one place", same_place_twice),
    Allowed("comparisons with a number beyond the range", beyond_the_dtype),
    Allowed("complex numbers with infinite or NaN parts", complex_at_infinity),
    Allowed("gradients of activations at NaN", corner_of_activation),
    Allowed("values of float16, alone and beside", rounded_to_narrow),
    Allowed("`var`, `std`, `var_mean`, `std_mean` of infinite", large_moments),
]


def has_no_rows(line: Any) -> bool:
    return any(t.array.size == 0 for t in line.tensors)


def not_finite(line: Any) -> bool:
    kinds = [t.array for t in line.tensors if t.array.dtype.kind in "fc"]
    with np.errstate(all="ignore"):
        return any(not (np.abs(a) < 1e6).all() for a in kinds)


#: Names of what divides integers, without "_" at the end.
QUOTIENTS = tuple(
    "div divide floor_divide fmod remainder Tensor.div Tensor.divide Tensor.floor_divide "
    "Tensor.fmod Tensor.remainder operator.floordiv operator.mod operator.ifloordiv "
    "operator.imod".split()
)


def smallest_integer(line: Any) -> bool:
    arrays = [t.array for t in line.tensors if t.array.dtype.kind == "i" and t.array.size]
    return any((a == np.iinfo(a.dtype).min).any() for a in arrays)


def half_in_another_order(line: Any) -> bool:
    halves = any(t.array.dtype == np.float16 for t in line.tensors)
    return halves and any(t.turned for t in line.tensors)


def dilated_into_the_padding(line: Any) -> bool:
    """A window of pooling may lie in the padding as a whole where it is dilated."""
    given = [*line.values[2:], *line.keywords.values()]
    numbers = [n for v in given for n in (v if isinstance(v, (list, tuple)) else [v])]
    wide = any(isinstance(n, int) and n > 1 for n in numbers)
    sizes = [n for t in line.tensors for n in t.shape[1:]]
    return wide and bool(sizes) and min(sizes) < 3


CONVOLUTIONS = tuple(
    f"{where}{name}{n}d"
    for where in ("", "F.")
    for name in ("conv", "conv_transpose")
    for n in "123"
)
MAX_POOLS = tuple(
    f"{where}max_pool{n}d{end}"
    for where in ("", "F.", "F.adaptive_")
    for n in "123"
    for end in ("", "_with_indices")
)

AVOIDED: list[Avoided] = [
    Avoided(CONVOLUTIONS, "convolutions of float16", half_in_another_order),
    Avoided(MAX_POOLS, "`max_pool` with a dilated window", dilated_into_the_padding),
    Avoided(("pdist", "F.pdist"), "gradient of `pdist` of no rows", has_no_rows),
    Avoided(("F.grid_sample",), "`grid_sample` at NaN, infinite and enormous places", not_finite),
    Avoided(QUOTIENTS, "quotients of the smallest integer by -1", smallest_integer),
]


def is_avoided(line: Any) -> bool:
    name = line.operation.name.rstrip("_")
    given = [*line.values, *line.keywords.values()]
    if name in ("arange", "tensor_split", "Tensor.tensor_split") and any(
        isinstance(v, (int, float)) and abs(v) > 1e6 for v in given
    ):
        return True  # more numbers, or pieces, than memory
    if name.startswith("operator.") and not line.tensors:
        return True  # Python's numbers
    return any(name in entry.names and entry.applies(line) for entry in AVOIDED)


def allowed_by(failure: Any) -> str | None:
    """The row that allows it."""
    return next((entry.row for entry in ALLOWED if entry.applies(failure)), None)
