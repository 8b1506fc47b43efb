# SPDX-License-Identifier: BSD-3-Clause
"""jax arrays as leaves of a module tree; imported when the first of them is met.

Arrays never change, so the registries of a module hold other arrays after a load or a conversion.
What a module knows of an array beyond its values (that it is a parameter, whether gradients are
wanted) is noted in attributes of the array object. Tracers, which stand for arrays while jax traces
a function, do not take attributes: those that are marked are listed here.
"""

from __future__ import annotations

import copy
import copyreg
import importlib
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from modtree._C import ModuleBase
from modtree.core import family as base
from modtree.core import pytree as _pytree
from modtree.core.families import family_of
from modtree.core.undo import plain_methods

_Array = jax.Array
_Tracer = jax.core.Tracer
# Not the class of an array made here: that would start jax's backends, and be a tracer's where the
# first array of a module comes while a function is traced.
_ArrayImpl = importlib.import_module("jax._src.array").ArrayImpl
_Shape = jax.ShapeDtypeStruct


def _class_of_keys() -> Any:
    """The class of arrays of keys, which has had two homes; None where it has another one."""
    for home in ("jax._src.random.prng", "jax._src.prng"):
        try:
            return importlib.import_module(home).PRNGKeyArray
        except (ImportError, AttributeError):
            continue
    return None


_KeyArray = _class_of_keys()

_MARKS = ("_is_param", "_is_buffer", "persistent", "requires_grad")


class ParameterShape(jax.ShapeDtypeStruct):
    """A parameter on the meta device: a shape and a dtype."""

    requires_grad: bool

    def __init__(self, shape: Any, dtype: Any, requires_grad: bool = True, **kwargs: Any) -> None:
        super().__init__(shape, dtype, **kwargs)
        self.requires_grad = requires_grad

    def __reduce__(self) -> tuple[Any, ...]:  # pickles and copies
        return type(self), (self.shape, self.dtype, self.requires_grad)


# -- marks -----------------------------------------------------------------------------------------


class _Marks:
    """What is noted of a tracer."""

    def __init__(self, tracer: Any) -> None:
        key = id(tracer)
        self.tracer = weakref.ref(tracer, lambda _: _marked_tracers.pop(key, None))


_marked_tracers: dict[int, _Marks] = {}


def _holder_of(tensor: Any) -> Any:
    """The object with the marks of a tensor, which has some or not."""
    if isinstance(tensor, _Tracer):
        marks = _marked_tracers.get(id(tensor))
        return marks if marks is not None and marks.tracer() is tensor else None
    return tensor


def mark(tensor: Any, **marks: Any) -> Any:
    """Notes marks of an array or tracer, which is returned."""
    holder = tensor
    if isinstance(tensor, _Tracer):
        holder = _holder_of(tensor) or _Marks(tensor)
        _marked_tracers[id(tensor)] = holder
    for name, value in marks.items():
        setattr(holder, name, value)
    return tensor


def marks_of(tensor: Any) -> dict[str, Any]:
    """The marks of a tensor."""
    holder = _holder_of(tensor)
    found = {name: getattr(holder, name, None) for name in _MARKS}
    return {name: value for name, value in found.items() if value is not None}


def _own_object(array: Any) -> Any:
    """Another object over the same memory, which can have marks of its own."""
    if type(array) is not _ArrayImpl:
        return array
    try:
        return _ArrayImpl(
            array.aval,
            array.sharding,
            array._arrays,
            committed=array._committed,
            _skip_checks=True,
        )
    except (AttributeError, TypeError):  # not a public constructor
        return array.__copy__()


def marked(array: Any, marks: dict[str, Any]) -> Any:
    """An object over the same memory with these marks, for a bare array: that of the caller is not
    a parameter elsewhere. It is the same one for each name that the array is given to, so that
    these are tied.
    """
    if not isinstance(array, _ArrayImpl) or not marks or marks_of(array):
        return array
    known = getattr(array, "_marked", None)
    made = known and known()
    if made is None or marks_of(made) != marks:
        made = mark(_own_object(array), **marks)
        array._marked = weakref.ref(made)
    return made


def _is_inexact(tensor: Any) -> bool:
    return jnp.issubdtype(tensor.dtype, jnp.inexact)


def _reduce(array: Any) -> tuple[Any, ...]:
    """As jax pickles arrays, with the marks of parameters."""
    reduced = array.__reduce__()
    if not getattr(array, "_is_param", False):
        return reduced
    return _rebuild, (marks_of(array), *reduced[:2])


def _rebuild(marks: dict[str, Any], function: Any, arguments: tuple[Any, ...]) -> Any:
    return mark(function(*arguments), **marks)


def _deepcopy(array: Any, memo: dict[int, Any]) -> Any:
    """As jax copies arrays, with their marks: the copy of a parameter is one."""
    return mark(array.__deepcopy__(memo), **marks_of(array))


_plain_copy = _ArrayImpl.__copy__


def _copy(array: Any) -> Any:
    """As jax copies arrays, with their marks."""
    return mark(_plain_copy(array), **marks_of(array))


def _reduce_key(key: Any) -> tuple[Any, ...]:
    """Keys of random numbers: the name of their algorithm, their numbers, and their marks."""
    algorithm = jax.random.key_impl(key)
    if not isinstance(algorithm, str):  # one that a program made
        return key.__reduce_ex__(2)
    return _rebuild_key, (algorithm, np.asarray(jax.random.key_data(key)), marks_of(key))


def _rebuild_key(algorithm: str, data: np.ndarray, marks: dict[str, Any]) -> Any:
    return mark(key_of(algorithm, data), **marks)


def key_of(algorithm: str, data: np.ndarray) -> Any:
    """The keys of random numbers with this data."""
    return jax.random.wrap_key_data(data, impl=algorithm)


def array_of_numpy(array: np.ndarray) -> Any:
    """An array with these values."""
    return jnp.asarray(array)


def _reduce_shape(shape: Any) -> tuple[Any, ...]:
    """Shape and dtype, where that is all."""
    plain = jax.ShapeDtypeStruct(shape.shape, shape.dtype)
    if shape != plain or not isinstance(shape.dtype, np.dtype):
        return shape.__reduce_ex__(2)
    return _rebuild_shape, (shape.shape, shape.dtype)


def _rebuild_shape(shape: tuple[int, ...], dtype: np.dtype) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


copyreg.pickle(_ArrayImpl, _reduce)
copyreg.pickle(_Shape, _reduce_shape)
if _KeyArray is not None:
    copyreg.pickle(_KeyArray, _reduce_key)
# Before `__copy__` and `__deepcopy__`, and for copies of modules that Python makes too.
if sys.version_info < (3, 14):
    copy._copy_dispatch[_ArrayImpl] = _copy  # type: ignore[attr-defined]
else:  # which has no such table
    _ArrayImpl.__copy__ = _copy
copy._deepcopy_dispatch[_ArrayImpl] = _deepcopy  # type: ignore[attr-defined]


# -- values of other kinds -------------------------------------------------------------------------


def as_jax(value: Any) -> Any:
    """A jax array with the values of a tensor of any family, or of a NumPy array."""
    family = family_of(value)
    if family is None:
        if isinstance(value, (np.ndarray, np.generic)):
            return _of_numpy(value)
        raise TypeError(
            f"cannot make a jax array of '{type(value).__name__}': expected a tensor of a library "
            f"with a registered family (modtree.families.register), or a NumPy array"
        )
    if family.name == "jax":
        return value
    if family.is_meta(value):
        return _Shape(tuple(family.shape(value)), as_jax_dtype(family.dtype_name(value)))
    return _of_numpy(np.asarray(family.to_numpy(value)))


def _of_numpy(array: Any) -> Any:
    # An array, and not a tracer, also while a function is traced.
    with jax.ensure_compile_time_eval():
        return jnp.asarray(array)


def as_jax_dtype(dtype: Any) -> np.dtype | None:
    """The dtype of that name: of a dtype of any library; None for None."""
    if dtype is None:
        return None
    try:
        return jnp.dtype(dtype)
    except TypeError:
        pass
    name = str(dtype).rpartition(".")[2]
    try:
        return jnp.dtype(name)
    except TypeError:
        raise TypeError(f"jax has no dtype named like {dtype!r}; pass one of jax.numpy") from None


def as_jax_device(device: Any) -> Any:
    """A device or sharding as ``jax.device_put`` takes it; ``"cpu"`` and ``"cpu:1"`` by name."""
    if device is None or isinstance(device, (jax.Device, jax.sharding.Sharding)):
        return device
    name, _, index = str(device).partition(":")
    if name == "meta":
        return "meta"
    if isinstance(device, int):
        name, index = jax.default_backend(), str(device)
    try:
        found = jax.devices({"cuda": "gpu"}.get(name, name))
    except RuntimeError as error:
        raise RuntimeError(
            f"jax has no device {str(device)!r}; it has {', '.join(map(str, jax.devices()))}"
        ) from error
    place = int(index or 0)
    if place >= len(found):
        raise RuntimeError(f"jax has {len(found)} devices of the kind {name!r}, not {device!r}")
    return found[place]


# -- the family ------------------------------------------------------------------------------------


class JaxFamily(base.TensorFamily):
    name = "jax"
    tensor_type = _Array
    parameter_type = ParameterShape
    bare_parameters = True
    immutable = True
    told_by_address = True
    functions = ("modtree.jax_arrays.functions",)

    def owns(self, cls: type) -> bool:
        return issubclass(cls, (_Array, _Tracer, _Shape))

    # -- what a tensor is --------------------------------------------------------------------------

    @staticmethod
    def is_parameter(tensor: Any) -> bool:
        return bool(getattr(_holder_of(tensor), "_is_param", False)) or isinstance(
            tensor, ParameterShape
        )

    @staticmethod
    def is_buffer(tensor: Any) -> bool:
        return bool(getattr(_holder_of(tensor), "_is_buffer", False))

    @staticmethod
    def is_meta(tensor: Any) -> bool:
        return isinstance(tensor, _Shape)

    @staticmethod
    def is_floating_point(tensor: Any) -> bool:
        return jnp.issubdtype(tensor.dtype, jnp.floating)

    @staticmethod
    def is_complex(tensor: Any) -> bool:
        return jnp.issubdtype(tensor.dtype, jnp.complexfloating)

    @staticmethod
    def shape(tensor: Any) -> tuple[int, ...]:
        return tensor.shape

    @staticmethod
    def dtype_name(tensor: Any) -> str:
        return str(tensor.dtype)

    @staticmethod
    def type_name(tensor: Any) -> str:
        kind = "jax.ShapeDtypeStruct" if isinstance(tensor, _Shape) else "jax.Array"
        return f"{kind} ({tensor.dtype})"

    # -- gradients ---------------------------------------------------------------------------------

    @staticmethod
    def requires_grad(tensor: Any) -> bool:
        noted = getattr(_holder_of(tensor), "requires_grad", None)
        return _is_inexact(tensor) if noted is None else noted

    @staticmethod
    def set_requires_grad(tensor: Any, flag: bool) -> None:
        if flag and not _is_inexact(tensor):
            raise RuntimeError(
                f"only Tensors of floating point dtype can require gradients, got {tensor.dtype}"
            )
        mark(tensor, requires_grad=bool(flag))

    @staticmethod
    def has_grad_fn(tensor: Any) -> bool:
        return False

    @staticmethod
    def grad(tensor: Any) -> None:
        return None

    @staticmethod
    def set_grad(tensor: Any, grad: Any) -> None:
        if grad is not None:
            _refuse_grad()

    @staticmethod
    def zero_grad(tensor: Any, set_to_none: bool) -> None:
        pass

    # -- handles and storage -----------------------------------------------------------------------

    @staticmethod
    def detach(tensor: Any) -> Any:
        """Without marks, and one object for each."""
        if not (getattr(tensor, "_is_param", False) or getattr(tensor, "_is_buffer", False)):
            return tensor
        found = getattr(tensor, "_detached", None)
        if found is None:
            found = tensor._detached = _own_object(tensor)
        return found

    def make_parameter(self, data: Any, requires_grad: bool) -> Any:
        if requires_grad and not _is_inexact(data):
            raise RuntimeError(
                f"only Tensors of floating point and complex dtype can require gradients, got "
                f"{data.dtype}: pass requires_grad=False"
            )
        if isinstance(data, _Shape):
            return ParameterShape(data.shape, data.dtype, requires_grad, sharding=data.sharding)
        return mark(_own_object(data), _is_param=True, requires_grad=bool(requires_grad))

    def make_buffer(self, data: Any, persistent: bool) -> Any:
        return mark(_own_object(data), _is_buffer=True, persistent=persistent)

    def can_set_data(self, tensor: Any, other: Any) -> bool:
        return False

    def set_data(self, tensor: Any, other: Any) -> NoReturn:
        raise TypeError("a jax array cannot be given other data: assign a new array to its name")

    def copy_into(self, tensor: Any, source: Any) -> NoReturn:
        raise TypeError("nothing can be copied into a jax array: assign a new array to its name")

    def filled(self, tensor: Any, source: Any, as_it_is: bool) -> Any:
        noted = marks_of(tensor)
        array = as_jax(source)
        if not as_it_is:
            if isinstance(tensor, _Shape):
                return tensor
            array = array if array.dtype == tensor.dtype else array.astype(tensor.dtype)
            if not isinstance(tensor, _Tracer) and not isinstance(array, (_Tracer, _Shape)):
                array = _placed_like(array, tensor)
        if isinstance(array, _Shape):
            if isinstance(tensor, ParameterShape) or noted.get("_is_param"):
                return self.make_parameter(array, self.requires_grad(tensor))
            return array
        if isinstance(tensor, ParameterShape):
            noted = {"_is_param": True, "requires_grad": tensor.requires_grad}
        return mark(_own_object(array), **noted)

    def in_place_of(self, value: Any, tensor: Any) -> Any:
        return marked(value, {"_is_param": True, "requires_grad": self.requires_grad(tensor)})

    def takes_source(self, value: Any) -> bool:
        return isinstance(value, (np.ndarray, np.generic))

    def to_numpy(self, tensor: Any) -> Any:
        return np.asarray(tensor)

    def converted(self, source: Any) -> Any:
        family = family_of(source)
        tensor = as_jax(source)
        if family is not None and family.is_parameter(source):
            return self.make_parameter(tensor, family.requires_grad(source))
        return tensor

    @staticmethod
    def from_dlpack(source: Any, family: base.TensorFamily) -> Any:
        name = family.dtype_name(source)
        kind = as_jax_dtype(name)
        narrow = jax.dtypes.canonicalize_dtype(kind)
        if narrow != kind and not jnp.issubdtype(kind, jnp.integer):
            raise TypeError(
                "jax has it only after jax.config.update('jax_enable_x64', True): do that, or "
                "convert the model with .float() first"
            )
        # Arrays of DLPack are committed to their device, so that jit compiles twice: for them, and
        # for its own results. NumPy's way, too, takes aligned memory of the CPU as it is.
        if (
            narrow == kind
            and family.name == "torch"
            and not (source.is_cpu and isinstance(kind, np.dtype) and kind.isbuiltin == 1)
        ):
            return jnp.from_dlpack(source.contiguous())
        array = np.asarray(family.to_numpy(source))
        if narrow != kind:
            limits = jnp.iinfo(narrow)
            if array.size and not limits.min <= array.min() <= array.max() <= limits.max:
                raise TypeError(f"its values are beyond those of {narrow}")
            return jnp.asarray(array.astype(narrow))
        return jax.device_put(array)

    # -- conversions -------------------------------------------------------------------------------

    def dtype_named(self, name: str) -> np.dtype | None:
        try:
            return jnp.dtype(name)
        except TypeError:
            return None

    def is_device(self, value: Any) -> bool:
        if isinstance(value, str):
            return value.partition(":")[0] in ("gpu", "tpu", "rocm")
        return isinstance(value, (jax.Device, jax.sharding.Sharding))

    def to(
        self, tensor: Any, device: Any, dtype: Any, non_blocking: bool, memory_format: Any
    ) -> Any:
        if memory_format is not None:
            raise TypeError("jax arrays do not have memory formats: leave memory_format out")
        place, kind = as_jax_device(device), as_jax_dtype(dtype)
        if isinstance(tensor, _Shape):
            if place not in (None, "meta"):
                raise NotImplementedError("Cannot copy out of meta tensor; no data!")
            return tensor if _is_of(tensor, kind) else _Shape(tensor.shape, kind)
        if place == "meta":
            return _Shape(tensor.shape, tensor.dtype if kind is None else kind)
        result = tensor if _is_of(tensor, kind) else tensor.astype(kind)
        return result if place is None or _is_at(result, place) else jax.device_put(result, place)

    def empty_like(self, tensor: Any, device: Any) -> Any:
        place = as_jax_device(device)
        if place == "meta" or (place is None and isinstance(tensor, _Shape)):
            return _Shape(tensor.shape, tensor.dtype)
        zeros = jnp.zeros(tensor.shape, tensor.dtype)
        if place is None:
            return _placed_like(zeros, tensor)
        return jax.device_put(zeros, place)

    def stack(self, tensors: Any) -> Any:
        return jnp.stack(list(tensors))

    def zeros(self, shape: tuple[int, ...], dtype: Any, like: Any) -> Any:
        kind = like.dtype if dtype is None else as_jax_dtype(dtype)
        if isinstance(like, _Shape):
            return _Shape(shape, kind)
        return _placed_like(jnp.zeros(shape, kind), like)

    def library(self, caller: str) -> NoReturn:
        raise TypeError(f"{caller} does not take jax arrays, {_LACKS}{_INSTEAD.get(caller, '')}")

    # -- calls -------------------------------------------------------------------------------------

    def backward_tap(
        self,
        module: Any,
        backward_hooks: Sequence[Callable[..., Any]],
        backward_pre_hooks: Sequence[Callable[..., Any]],
    ) -> NoReturn:
        raise RuntimeError(
            f"{type(module).__name__} has backward hooks, which are not called for jax arrays: jax "
            f"differentiates functions and does not record what modules do. Remove the hooks, and "
            f"look at gradients where modtree.jax.grad() returns them, or change them on their way "
            f"by a function with jax.custom_vjp in forward()"
        )

    def call_for_shapes(
        self, modules: Sequence[Any], call: Callable[..., Any], args: Any, kwargs: Any
    ) -> bool:
        leaves, structure = _pytree.flatten((args, kwargs))
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, (_Array, _Shape))]
        entries = [entry for module in modules for entry in _entries_of(module)]
        distinct = {id(tensor): tensor for _, _, tensor in entries}

        def traced(given: list[Any], held: dict[int, Any]) -> None:
            for place, value in zip(places, given, strict=True):
                leaves[place] = value
            for registry, name, tensor in entries:
                registry[name] = held[id(tensor)]
            new_args, new_kwargs = _pytree.unflatten(leaves, structure)
            call(*new_args, **new_kwargs)

        attributes = [(module, _plain_attributes(module)) for module in modules]
        try:
            jax.eval_shape(traced, [leaves[place] for place in places], distinct)
        except Exception as error:
            if isinstance(error.__cause__ or error, jax.errors.ConcretizationTypeError):
                return False
            raise
        finally:
            for registry, name, tensor in entries:
                registry[name] = tensor
            for module, before in attributes:
                _restore_tracers(module, before)
        return True


def _is_of(tensor: Any, dtype: np.dtype | None) -> bool:
    # None comes first: NumPy holds float64 for equal to it.
    return dtype is None or tensor.dtype == dtype


def _is_at(array: Any, place: Any) -> bool:
    """True if the array is where it is to be put. A tracer is wherever the traced function runs."""
    if isinstance(array, _Tracer):
        return False
    if isinstance(place, jax.Device):
        return array.devices() == {place}
    return array.sharding == place


def _placed_like(array: Any, tensor: Any) -> Any:
    """The array on the devices of another one, where that has been put there on purpose."""
    if tensor.committed and array.sharding != tensor.sharding:
        return jax.device_put(array, tensor.sharding)
    return array


def _entries_of(module: Any) -> Iterator[tuple[dict[str, Any], str, Any]]:
    """The arrays that a module holds: registry, name and array."""
    for registry in (module._parameters, module._buffers):
        for name, tensor in registry.items():
            if isinstance(tensor, (_Array, _Shape)) and not isinstance(tensor, _Tracer):
                yield registry, name, tensor


def _plain_attributes(module: Any) -> dict[str, Any]:
    return (
        ModuleBase.__getstate__(module) if isinstance(module, ModuleBase) else vars(module).copy()
    )


def _restore_tracers(module: Any, before: dict[str, Any]) -> None:
    """Takes tracers, which are of no use after their trace, out of the attributes of a module."""
    methods = plain_methods(module)
    for name, value in _plain_attributes(module).items():
        if isinstance(value, _Tracer):
            if name in before:
                methods.__setattr__(module, name, before[name])
            else:
                methods.__delattr__(module, name)


# What most callers of `library` lack, ...
_LACKS = "which never change and have no gradient of their own"
# ... and what to do instead.
_INSTEAD = {
    "clip_grad_norm_": ": use optax.clip_by_global_norm()",
    "clip_grads_with_norm_": ": use optax.clip_by_global_norm()",
    "clip_grad_value_": ": use optax.clip()",
    "get_total_norm": ": use optax.global_norm()",
    "parameters_to_vector": ": use jax.flatten_util.ravel_pytree(dict(module.named_parameters()))",
    "register_parametrization": ": compute what is to be parametrized in forward()",
    "AveragedModel": ": use optax.incremental_update()",
}


def _refuse_grad() -> NoReturn:
    raise AttributeError(
        "a jax array does not have a gradient: compute gradients with modtree.jax.grad() or "
        "value_and_grad(), which return them"
    )


family = JaxFamily()
