# SPDX-License-Identifier: BSD-3-Clause
"""``out=``: functions that write their result into tensors of the user's.

An operation computes as always, and its result is copied: what it saves is what it saves the
caller, a tensor of a dtype of his choice in a place of his. Operations strip the argument natively,
so that calls without it cost nothing, and so does what stands in front of other functions.
"""

from __future__ import annotations

import inspect
import os
import sys
import warnings
from typing import Any

from modtree import _C
from modtree._C import Op, TensorBase
from modtree.core.type_names import no_tensor
from modtree.numpy.ops.overridable import overridable

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep

# -- which functions, and what dtypes they write ---------------------------------------------------

_CAST = """
    acos acosh add addcdiv addcmul asin asinh atan atan2 atanh bitwise_and bitwise_left_shift
    bitwise_or bitwise_right_shift bitwise_xor cat concat concatenate cos cosh digamma div divide eq
    erf erfinv exp expm1 floor_divide fmod ge greater greater_equal gt hstack le lerp less
    less_equal lgamma log log10 log1p log2 logaddexp logical_and logical_not logical_or logical_xor
    logit logsumexp lt maximum minimum mul multiply ne not_equal outer pow reciprocal remainder
    rsqrt sigmoid sin sinh sqrt square stack std sub subtract tan tanh true_divide var vstack
"""
_SAME = """
    abs absolute addmm all amax amin any argmax argmin baddbmm bitwise_not bmm ceil clamp clamp_max
    clamp_min clip cross diag dot floor gather index_add index_copy index_select inverse log_softmax
    logcumsumexp masked_select matmul matrix_power max min mm mv nan_to_num neg negative nonzero
    norm polar round scatter scatter_add scatter_reduce sgn sign slogdet softmax sort take_along_dim
    tensordot topk tril triu trunc vdot where
"""
_CAST_LINALG = "pinv"
_SAME_LINALG = """
    cholesky det eigh inv matrix_norm matrix_power multi_dot norm qr slogdet solve svd vector_norm
"""
_FOLLOW = "cumprod cumsum mean prod sum"

#: Function -> what dtype its `out` may have: "cast" one that the result can be cast to, "same" that
#: of the result, "follow" any: the result is computed in it.
FUNCTIONS = {
    **dict.fromkeys(_CAST.split(), "cast"),
    **dict.fromkeys(_SAME.split(), "same"),
    **dict.fromkeys(_FOLLOW.split(), "follow"),
}
#: The same for modtree.linalg.
LINALG = {
    **dict.fromkeys(_CAST_LINALG.split(), "cast"),
    **dict.fromkeys(_SAME_LINALG.split(), "same"),
}


def _can_cast(source: Any, target: Any) -> bool:
    """Not from complex to real numbers, from those to whole ones, or from any to bools."""
    order = "biufc"
    kinds = [order.index("i" if d.dtype.kind == "u" else d.dtype.kind) for d in (source, target)]
    return kinds[0] <= kinds[1]


def _check_dtype(name: str, rule: str, result: Any, out: Any) -> None:
    have, want = out.dtype, result.dtype
    if rule == "cast":
        if not _can_cast(want, have) and not want.dtype.kind == "b":
            raise RuntimeError(
                f"{name}(): result type {want} can't be cast to the desired output type {have}"
            )
    elif have is not want:
        raise RuntimeError(
            f"{name}(): Expected out tensor to have dtype {want}, but got {have} instead"
        )


# -- writing ---------------------------------------------------------------------------------------


def _check_is_tensor(name: str, out: Any) -> None:
    if not isinstance(out, TensorBase):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {no_tensor(out)}")


def _depth_of_user() -> int:
    """The stacklevel of a warning that the caller of this function gives about a call in a
    program: how many frames lie in the package.
    """
    depth, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        depth, frame = depth + 1, frame.f_back
    return depth


def _fit(out: Any, shape: Any) -> None:
    """Gives the tensor the shape of the result."""
    if out.shape == shape:
        return
    if out.numel():
        warnings.warn(
            f"An output with one or more elements was resized since it had shape "
            f"{list(out.shape)}, which does not match the required output shape {list(shape)}. "
            f"Outputs without elements may have any shape: t.resize_(0) makes t one.",
            UserWarning,
            stacklevel=_depth_of_user(),
        )
    out.resize_(shape)


def _check(name: str, rule: str, result: Any, out: Any) -> None:
    if result.requires_grad or (out.requires_grad and _C.is_grad_enabled()):
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, "
            f"but one of the arguments requires grad: leave out= away, or call it under no_grad()"
        )
    if result.device.type != out.device.type:
        raise RuntimeError(
            f"{name}(): Expected out tensor to have device {result.device}, but got {out.device} "
            f"instead"
        )
    _check_dtype(name, rule, result, out)


def _put(result: Any, out: Any) -> None:
    _fit(out, result.shape)
    out.copy_(result)


def write(name: str, rule: str, result: Any, out: Any) -> Any:
    """Copies a result, or several, into `out`, which it returns; a result of several tensors comes
    back as what it was, with those of the user in it.

    Args:
        name: The function, for messages.
        rule: What dtypes fit: "cast" or "same".
        result: A tensor or a tuple of them.
        out: A tensor or a tuple of as many.
    """
    if not isinstance(result, tuple):
        _check_is_tensor(name, out)
        _check(name, rule, result, out)
        _put(result, out)
        return out
    if not isinstance(out, (tuple, list)):
        raise TypeError(
            f"{name}(): argument 'out' must be a tuple of {len(result)} Tensors, not "
            f"{type(out).__name__}"
        )
    if len(out) != len(result):
        raise TypeError(f"{name}(): expected tuple of {len(result)} elements but got {len(out)}")
    for target in out:
        _check_is_tensor(name, target)
    for part, target in zip(result, out, strict=True):
        _check(name, rule, part, target)
    for part, target in zip(result, out, strict=True):
        _put(part, target)
    make = getattr(result, "_make", None)
    return tuple(out) if make is None else make(out)


# -- functions -------------------------------------------------------------------------------------


def _signature(function: Any) -> inspect.Signature:
    """The signature with `out` behind the other parameters."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    kinds = {"Tensor": "Tensor | None", "Any": "Tensor | Tensors | None"}
    kind = kinds.get(signature.return_annotation, "Tensors | None")
    own = inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
    last = parameters[-1:] if parameters[-1:] and parameters[-1].kind is own.VAR_KEYWORD else []
    first = parameters[: len(parameters) - len(last)]
    return signature.replace(parameters=[*first, own, *last])


_OUT_HELP = "    out: Where the result is written, a tensor; several results into a tuple of them."


def _help(text: str | None) -> str:
    """The docstring with `out` among the arguments."""
    text = inspect.cleandoc(text or "")
    start = text.find("Args:\n")
    if start < 0:
        summary, section, rest = text.partition("\n\nShape:\n")
        return f"{summary}\n\nArgs:\n{_OUT_HELP}\n{section[1:]}{rest}"
    end = text.find("\n\n", start)
    end = len(text) if end < 0 else end
    return f"{text[:end].rstrip()}\n{_OUT_HELP}{text[end:]}"


def taking_out(function: Any, rule: str) -> Any:
    """The function, which from now on takes ``out=``; as a method of tensors too.

    Args:
        function: An operation or a function on top of one.
        rule: A value of FUNCTIONS.
    """
    if isinstance(function, Op):
        if function._out_rule is None:
            function._take_out(rule, _help(function.__doc__))
            parameters = (function.__text_signature__ or "()")[:-1]
            star = "" if "*" in parameters else "*, "
            function.__text_signature__ = f"{parameters}, {star}out=None)"
        return function
    function = overridable(function)
    if function._out_rule is None:
        function._take_out(rule)
        function.__doc__ = _help(function.__doc__)
        function.__signature__ = _signature(function)
    return function


def _call_by_name(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of a function with ``out``, or of an operation with operands by their names."""
    out = kwargs.pop("out", None)
    if isinstance(op, Op):
        args = _in_order(op, args, kwargs)
    if out is None:
        return op(*args, **kwargs)
    rule = op._out_rule or ""
    if rule == "follow":
        rule = "same"
        if kwargs.get("dtype") is None and isinstance(out, TensorBase):
            kwargs["dtype"] = out.dtype
    return write(op.__name__, rule, op(*args, **kwargs), out)


def _in_order(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The positional arguments, with the operands that were given by their names."""
    positional = (op.__text_signature__ or "()")[1:].partition(", /")[0].split(", ")
    for name in positional[len(args) :]:
        if name not in ("input", "other") or name not in kwargs:
            break
        args = (*args, kwargs.pop(name))
    for name in ("input", "other"):
        if name in kwargs:
            problem = "multiple values for" if name in positional else "an unexpected keyword"
            raise TypeError(f"{op.__name__}() got {problem} argument {name!r}")
    return args


_C._install(call_by_name=_call_by_name)
