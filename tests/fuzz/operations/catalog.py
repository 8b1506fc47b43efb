# SPDX-License-Identifier: BSD-3-Clause
"""Which operations there are, and the forms of their arguments: what modtree and torch both have,
with torch's schemas of it, or else with our signatures.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import torch

import modtree

from .arguments import KINDS, LEFT_OUT, REQUIRED, Argument

Form = tuple[Argument, ...]


class Operation(NamedTuple):
    name: str  # "add", "Tensor.add", "F.relu", "linalg.inv", "operator.add", "builtin.int"
    forms: tuple[Form, ...]

    def function(self, mt: Any) -> Callable[..., Any]:
        where, _, name = self.name.rpartition(".")
        if where in PYTHON:
            return PYTHON[where][name]
        if where == "nn":
            return partial(_layer, mt, name)
        found = getattr(spaces(mt)[where], name)
        return found

    @property
    def inplace(self) -> bool:
        """Does it change its first argument?"""
        name = self.name.rpartition(".")[2]
        return (name.endswith("_") and not name.endswith("__")) or name in INPLACE


def spaces(mt: Any) -> dict[str, Any]:
    return {"": mt, "Tensor": mt.Tensor, "F": mt.nn.functional, "linalg": mt.linalg}


#: Layers that are called with parameters of the line.
LAYERS = ("RNN", "LSTM", "GRU", "RNNCell", "LSTMCell", "GRUCell")


def _layer(
    mt: Any, name: str, input: Any, states: Any, parameters: Any, sizes: Any, options: Any
) -> Any:
    layer = getattr(mt.nn, name)(*sizes, **options)
    names = [name for name, _ in layer.named_parameters()]
    given = dict(zip(names, parameters, strict=True))
    start = () if states is None else (states if name.startswith("LSTM") else states[0],)
    return mt.func.functional_call(layer, given, (input, *start))


def _assign(x: Any, index: Any, value: Any) -> Any:
    x[index] = value
    return x


#: What Python's syntax and its builtin functions do with tensors.
PYTHON: dict[str, dict[str, Callable[..., Any]]] = {
    "operator": {
        name: getattr(operator, name)
        for name in (
            "add sub mul truediv floordiv mod pow and_ or_ xor lshift rshift matmul lt le eq ne gt "
            "ge neg pos abs invert iadd isub imul itruediv ifloordiv imod ipow iand ior ixor "
            "ilshift irshift getitem contains index"
        ).split()
    }
    | {"setitem": _assign},
    "builtin": {f.__name__: f for f in (int, float, complex, bool, len, round, list, reversed)},
}
INPLACE = {"setitem", "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand"}
INPLACE |= {"ior", "ixor", "ilshift", "irshift"}

#: Names that are passed over, and why.
PASSED_OVER: dict[str, frozenset[str]] = {
    "draw random numbers": frozenset(
        "alpha_dropout alpha_dropout_ bernoulli bernoulli_ dropout dropout_ "
        "dropout1d dropout2d dropout3d exponential_ feature_alpha_dropout gumbel_softmax "
        "multinomial normal normal_ poisson rand "
        "rand_like randint randint_like randn randn_like random_ randperm rrelu rrelu_ "
        "uniform_".split()
    ),
    "leave memory as it is": frozenset(
        "empty empty_like empty_strided new new_empty new_empty_strided resize_ set_ "
        "as_strided as_strided_ geqrf".split()
    ),
    "are no computation": frozenset(
        "are_deterministic_algorithms_enabled asarray as_subclass backward compile cpu cuda "
        "data_ptr from_dlpack from_numpy frombuffer get_device initial_seed is_distributed "
        "is_inference_mode_enabled is_pinned is_shared load manual_seed apply_ numpy "
        "pin_memory register_hook register_post_accumulate_grad_hook retain_grad save seed "
        "set_anomaly_enabled share_memory_ typename get_autocast_dtype is_autocast_enabled "
        "get_num_threads set_num_threads multi_head_attention_forward requires_grad_ detach_ "
        "type to_dense triplet_margin_with_distance_loss is_tensor get_autocast_gpu_dtype "
        "is_autocast_cache_enabled get_rng_state storage_offset stride get_default_dtype "
        "get_default_device get_float32_matmul_precision get_deterministic_debug_mode "
        "get_num_interop_threads is_anomaly_enabled is_anomaly_check_nan_enabled "
        "is_warn_always_enabled is_deterministic_algorithms_warn_only_enabled "
        "is_grad_enabled new_tensor as_tensor tensor".split()
    ),
}
_SKIPPED = frozenset().union(*PASSED_OVER.values())

#: Forms of what no schema describes.
_x = Argument("input", "Tensor")
_other = Argument("other", "Tensor|number")
_number = Argument("input", "number")
_BINARY = ((_x, _other), (_x, Argument("other", "Tensor")), (_number, Argument("other", "Tensor")))
_unique = (
    Argument("return_inverse", "bool", False, True),
    Argument("return_counts", "bool", False, True),
    Argument("dim", "int?", None, True),
)
_BY_HAND: dict[str, tuple[Form, ...]] = {
    "broadcast_shapes": ((Argument("a", "List[int]"), Argument("b", "List[int]")),),
    "result_type": _BINARY,
    "promote_types": ((Argument("type1", "dtype"), Argument("type2", "dtype")),),
    "operator.index": ((_x,),),
    "operator.getitem": ((_x, Argument("index", "subscript")),),
    "operator.setitem": ((_x, Argument("index", "subscript"), _other),),
    "cdist": (
        (
            Argument("x1", "Tensor"),
            Argument("x2", "Tensor"),
            Argument("p", "real", 2.0),
            Argument("compute_mode", "str", "use_mm_for_euclid_dist_if_necessary"),
        ),
    ),
    "einsum": ((Argument("equation", "str"), Argument("tensors", "List[Tensor]")),),
    "tensordot": (
        (Argument("self", "Tensor"), Argument("other", "Tensor"), Argument("dims", "int", 2)),
    ),
}
_LAYER = (
    Argument("input", "Tensor"),
    Argument("states", "List[Tensor]?"),
    Argument("parameters", "List[Tensor]"),
    Argument("sizes", "List[int]"),
    Argument("options", "options"),
)
#: Methods without arguments that no schema describes.
_BARE_METHODS = frozenset(
    "bfloat16 bool byte cdouble cfloat char double float half int long short ndimension nelement "
    "tolist".split()
)
_UNARY = {"neg", "pos", "abs", "invert", "index"}


@cache
def operations() -> dict[str, Operation]:
    """All of them, by name."""
    found = dict(_find())
    return dict(sorted(found.items()))


def _find() -> Iterator[tuple[str, Operation]]:
    theirs, ours = spaces(torch), spaces(modtree)
    for where, space in ours.items():
        for name in dir(space):
            value = getattr(space, name)
            if (
                name.startswith("_")
                or name in _SKIPPED
                or name.startswith(("set_", "is_autocast"))
                or inspect.isclass(value)
                or not callable(value)
                or not callable(getattr(theirs[where], name, None))
            ):
                continue
            full = f"{where}.{name}" if where else name
            forms = tuple(forms_of(where, name, value))
            if forms:
                yield full, Operation(full, forms)
    for name in LAYERS:
        yield f"nn.{name}", Operation(f"nn.{name}", (_LAYER,))
    for where, functions in PYTHON.items():
        for name in functions:
            full = f"{where}.{name}"
            one = where == "builtin" or name in _UNARY
            yield full, Operation(full, _BY_HAND.get(full, ((_x,),) if one else _BINARY))


def forms_of(where: str, name: str, value: Any) -> Iterator[Form]:
    if where == "Tensor" and name in _BARE_METHODS:
        yield (Argument("self", "Tensor"),)
    elif name in _BY_HAND:
        yield from _BY_HAND[name]
    elif where == "F":
        yield from _by_signature(name, value)
    else:
        prefix = "linalg_" if where == "linalg" else ""
        yield from _by_schemas(f"aten::{prefix}{name}", where == "Tensor")


def _by_schemas(name: str, method: bool) -> Iterator[Form]:
    schemas = torch._C._jit_get_schemas_for_operator(name)
    forms = [f for f in map(_form_of_schema, schemas) if f is not None]
    takes_tensors = [f for f in forms if any("Tensor" in a.kind for a in f)]
    if method:
        yield from (f for f in forms if f and f[0].kind == "Tensor")
    else:
        yield from takes_tensors or forms


def _form_of_schema(schema: Any) -> Form | None:
    """None for overloads that Python does not see: results that are given, names of dimensions."""
    form = []
    if schema.overload_name.startswith("prim_"):
        return None  # of TorchScript
    for a in schema.arguments:
        if a.name == "out_dtype":  # of products on accelerators alone
            return None
        if a.name in LEFT_OUT and (a.kwarg_only or a.has_default_value()) and a.name != "out":
            continue
        kind = str(a.type)
        optional = kind.startswith("Optional[")
        kind = kind[len("Optional[") : -1] if optional else kind
        kind = "dtype" if a.name == "dtype" else kind
        words = kind == "str" and a.name in ("dim", "dim0", "dim1", "start_dim", "out_dim")
        if kind not in KINDS or words or (a.kwarg_only and "Tensor" in kind):
            return None
        default = a.default_value if a.has_default_value() else REQUIRED
        keyword = a.kwarg_only or a.name in KEYWORDS
        form.append(Argument(a.name, kind + ("?" if optional else ""), default, keyword))
    return tuple(form)


#: Given by name, as torch documents them; by position some overloads of torch take them too.
KEYWORDS = {"alpha", "beta", "value"}

_ANNOTATIONS = {
    "Tensor": "Tensor",
    "Any": "Tensor",
    "bool": "bool",
    "int": "int",
    "float": "real",
    "Ints": "List[int]",
    "Sequence[int]": "List[int]",
    "str | Ints": "List[int]",
    "str": "str",
    "Tensor | float": "Tensor|number",
}


#: Names of arguments that are a whole number, or one for each axis.
SIZES = frozenset("kernel_size output_size size stride padding dilation scale_factor".split())


def _by_signature(name: str, value: Any) -> Iterator[Form]:
    form, passed_over = [], False
    for p in inspect.signature(value).parameters.values():
        if p.name in LEFT_OUT or p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL):
            passed_over = True
            continue
        written = str(p.annotation).strip("'")
        optional = written.endswith(" | None")
        kind = _ANNOTATIONS.get(written.removesuffix(" | None"), "Tensor")
        if p.name == "dtype":
            kind = "dtype"
        elif kind == "Tensor" and p.name in SIZES:
            kind = "List[int]"
        elif isinstance(p.default, (bool, int, float, str)) and kind == "Tensor":
            kind = {bool: "bool", int: "int", float: "real", str: "str"}[type(p.default)]
        default = REQUIRED if p.default is p.empty else p.default
        keyword = p.kind is p.KEYWORD_ONLY or passed_over
        form.append(Argument(p.name, kind + ("?" if optional else ""), default, keyword))
    yield tuple(form)
