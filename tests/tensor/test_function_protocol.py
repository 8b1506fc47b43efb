# SPDX-License-Identifier: BSD-3-Clause
"""``__torch_function__`` of tensor subclasses and of classes that are no tensors."""

from __future__ import annotations

import contextlib
import importlib
import operator

import numpy as np
import pytest

import modtree as mt


def logging(lib):
    """A subclass of Tensor that notes what it is asked for."""

    class Logging(lib.Tensor):
        log = []

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            Logging.log.append((func, types, args, kwargs or {}))
            return super().__torch_function__(func, types, args, kwargs or {})

    return Logging


class Duck:
    """Not a tensor, but with something to say."""

    def __init__(self, answer="duck"):
        self.answer = answer

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return ("duck", func, types, args, kwargs or {})


class Refusing:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return NotImplemented


BINARY = {
    "add": ("add", "add"),
    "sub": ("sub", "__rsub__"),
    "mul": ("mul", "mul"),
    "truediv": ("div", "__rtruediv__"),
    "floordiv": ("__floordiv__", "__rfloordiv__"),
    "mod": ("remainder", "__rmod__"),
    "pow": ("__pow__", "__rpow__"),
    "matmul": ("matmul", "__rmatmul__"),
    "lt": ("lt", "gt"),
    "le": ("le", "ge"),
    "eq": ("__eq__", "__eq__"),
    "ne": ("ne", "ne"),
    "gt": ("gt", "lt"),
    "ge": ("ge", "le"),
}


@pytest.mark.parametrize("name", BINARY)
def test_what_operators_announce(lib, name):
    cls = logging(lib)
    x, y = lib.ones(2, 2).as_subclass(cls), lib.ones(2, 2)
    operation = getattr(operator, name)
    forward, reflected = BINARY[name]
    result = operation(x, y)
    assert type(result) is cls
    ((func, types, args, kwargs),) = cls.log
    assert func == getattr(lib.Tensor, forward) and types[0] is cls and kwargs == {}
    assert args[0] is x and args[1] is y
    cls.log.clear()
    operation(y, x)
    ((func, types, args, kwargs),) = cls.log
    swapped = name in ("lt", "le", "eq", "ne", "gt", "ge")
    assert func == getattr(lib.Tensor, reflected if swapped else forward)
    assert args[0] is (x if swapped else y)
    if name == "matmul":
        return
    cls.log.clear()
    operation(2.0, x)
    ((func, types, args, kwargs),) = cls.log
    assert func == getattr(lib.Tensor, reflected) and args[0] is x and args[1] == 2.0


@pytest.mark.parametrize(
    "name,forward,reflected",
    [
        ("and_", "__and__", "bitwise_and"),
        ("or_", "__or__", "bitwise_or"),
        ("xor", "__xor__", "bitwise_xor"),
        ("lshift", "__lshift__", "__rlshift__"),
        ("rshift", "__rshift__", "__rrshift__"),
    ],
)
def test_what_operators_on_integers_announce(lib, name, forward, reflected):
    cls = logging(lib)
    x = lib.tensor([1, 2]).as_subclass(cls)
    getattr(operator, name)(x, x)
    getattr(operator, name)(2, x)
    assert [call[0] for call in cls.log] == [
        getattr(lib.Tensor, forward),
        getattr(lib.Tensor, reflected),
    ]


@pytest.mark.parametrize(
    "name,method",
    [
        ("iadd", "add_"), ("isub", "sub_"), ("imul", "mul_"), ("itruediv", "div_"),
        ("ifloordiv", "floor_divide_"), ("imod", "remainder_"), ("ipow", "__ipow__"),
    ],
)  # fmt: skip
def test_what_operators_in_place_announce(lib, name, method):
    cls = logging(lib)
    x = lib.ones(2).as_subclass(cls)
    result = getattr(operator, name)(x, lib.ones(2))
    ((func, _, args, _),) = cls.log
    assert func == getattr(lib.Tensor, method) and args[0] is x and result is x
    y = lib.ones(2)
    cls.log.clear()
    result = getattr(operator, name)(y, x)
    assert cls.log[0][0] == getattr(lib.Tensor, method) and cls.log[0][2][0] is y


@pytest.mark.parametrize(
    "call,method",
    [
        (operator.neg, "neg"), (operator.pos, "positive"), (abs, "abs"),
        (lambda x: x[0], "__getitem__"), (lambda x: operator.setitem(x, 0, 1), "__setitem__"),
        (len, "__len__"), (repr, "__repr__"), (format, "__format__"),
        (lambda x: 1.0 in x, "__contains__"), (lambda x: x.add(1), "add"),
        (lambda x: x.sum(), "sum"), (lambda x: x.max(0), "max"), (lambda x: x.clone(), "clone"),
        (lambda x: x.detach(), "detach"), (lambda x: x.size(), "size"), (lambda x: x.dim(), "dim"),
        (lambda x: x.numel(), "numel"), (lambda x: x.double(), "double"),
        (lambda x: x.to("cpu"), "to"), (lambda x: x.tolist(), "tolist"),
        (lambda x: x.numpy(), "numpy"), (np.asarray, "__array__"),
        (lambda x: x.requires_grad_(), "requires_grad_"), (lambda x: x.zero_(), "zero_"),
        (lambda x: x.copy_(x.data_), "copy_"), (lambda x: x.unbind(), "unbind"),
        (lambda x: x.new_zeros(2), "new_zeros"), (lambda x: x.stride(), "stride"),
        (lambda x: x.is_floating_point(), "is_floating_point"), (lambda x: x.add_(1), "add_"),
        (lambda x: x.is_contiguous(), "is_contiguous"), (lambda x: x.split(1), "split"),
    ],
)  # fmt: skip
def test_what_methods_announce(lib, call, method):
    cls = logging(lib)
    x = lib.ones(2).as_subclass(cls)
    x.data_ = lib.ones(2)
    call(x)
    assert cls.log[0][0] == getattr(lib.Tensor, method) and cls.log[0][2][0] is x
    assert len(cls.log) == 1  # what the method itself calls is not announced


@pytest.mark.parametrize(
    "name",
    """shape dtype device ndim is_meta requires_grad is_leaf grad grad_fn output_nr _base data
    _version T mT layout itemsize nbytes real is_cpu is_sparse retains_grad""".split(),
)
def test_what_attributes_announce(lib, name):
    cls = logging(lib)
    x = lib.ones(2, 2).as_subclass(cls)
    getattr(x, name)
    assert [call[0] for call in cls.log] == [getattr(lib.Tensor, name).__get__]
    assert cls.log[0][0].__name__ == "__get__" and cls.log[0][2][0] is x


def test_what_setting_attributes_announces(lib):
    cls = logging(lib)
    x = lib.ones(2).as_subclass(cls)
    x.requires_grad = True
    x.grad = None
    assert [c[0] for c in cls.log] == [lib.Tensor.requires_grad.__set__, lib.Tensor.grad.__set__]
    assert cls.log[0][2] == (x, True) or cls.log[0][2][1] is True


FUNCTIONS = {
    "add": lambda lib, x: lib.add(x, 1, alpha=2),
    "exp": lambda lib, x: lib.exp(x),
    "sum": lambda lib, x: lib.sum(x),
    "cat": lambda lib, x: lib.cat([lib.ones(2), x]),
    "stack": lambda lib, x: lib.stack((lib.ones(2), x)),
    "where": lambda lib, x: lib.where(lib.ones(2) > 0, x, 0.0),
    "zeros_like": lambda lib, x: lib.zeros_like(x),
    "einsum": lambda lib, x: lib.einsum("i,i->", x, x),
    "numel": lambda lib, x: lib.numel(x),
    "is_floating_point": lambda lib, x: lib.is_floating_point(x),
    "nn.functional.relu": lambda lib, x: lib.nn.functional.relu(x),
    "nn.functional.linear": lambda lib, x: lib.nn.functional.linear(lib.ones(2), x),
    "nn.functional.mse_loss": lambda lib, x: lib.nn.functional.mse_loss(x, lib.ones(2)),
    "nn.functional.softmax": lambda lib, x: lib.nn.functional.softmax(x, dim=0),
    "nn.functional.dropout": lambda lib, x: lib.nn.functional.dropout(x),
    "nn.init.uniform_": lambda lib, x: lib.nn.init.uniform_(x),
    "linalg.norm": lambda lib, x: lib.linalg.norm(x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_functions_announce(lib, name):
    cls = logging(lib)
    x = lib.ones(2).as_subclass(cls)
    FUNCTIONS[name](lib, x)
    assert [call[0] for call in cls.log] == [operator.attrgetter(name)(lib)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_ducks_take_functions_over(lib, name):
    result = FUNCTIONS[name](lib, Duck())
    assert result[0] == "duck" and result[1] == operator.attrgetter(name)(lib)
    assert Duck in result[2]


def test_ducks_as_operands(lib):
    x, duck = lib.ones(2), Duck()
    for result, method, args in (
        (x + duck, "add", (x, duck)),
        (duck + x, "add", (x, duck)),
        (duck - x, "__rsub__", (x, duck)),
        (x @ duck, "matmul", (x, duck)),
        (x != duck, "ne", (x, duck)),
        (x.add(duck), "add", (x, duck)),
        (x[duck], "__getitem__", (x, duck)),
        (x.mul_(duck), "mul_", (x, duck)),
    ):
        assert result[0] == "duck" and result[1] == getattr(lib.Tensor, method)
        assert all(a is b for a, b in zip(result[3], args, strict=True))


def test_keywords_arrive(lib):
    duck, x = Duck(), lib.ones(2)
    _, func, types, args, kwargs = lib.add(input=x, other=duck)
    assert func == lib.add and types == (Duck,) and args == ()
    assert kwargs["input"] is x and kwargs["other"] is duck


# -- who is asked, and in which order --------------------------------------------------------------


def ordered(log):
    class A:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            log.append((cls, types))
            return NotImplemented

    class B(A):
        pass

    class C:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            log.append((cls, types))
            return "C"

    return A, B, C


def test_subclasses_are_asked_first(lib):
    log = []
    A, B, C = ordered(log)  # noqa: N806
    assert lib.cat([A(), B(), A(), lib.ones(1), C()]) == "C"
    assert [cls for cls, _ in log] == [B, A, C]
    assert all(types == (B, A, C) for _, types in log)


def test_nobody_answers(lib):
    with pytest.raises(TypeError, match=r"Multiple dispatch failed for .*add(.|\n)*Refusing"):
        lib.add(lib.ones(1), Refusing())
    with pytest.raises(TypeError):
        lib.ones(1) + Refusing()


def test_the_next_one_is_asked(lib):
    assert lib.add(Refusing(), Duck())[2] == (Refusing, Duck)


def test_unrelated_subclasses(lib):
    one, other = logging(lib), logging(lib)
    x, y = lib.ones(1).as_subclass(one), lib.ones(1).as_subclass(other)
    with pytest.raises(TypeError):
        x + y
    child = type("Child", (one,), {})
    assert type(x + lib.ones(1).as_subclass(child)) is child


def test_errors_come_through(lib):
    class Failing:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            raise KeyError("mine")

    x = lib.ones(2)
    for call in (
        lambda: x + Failing(), lambda: lib.exp(Failing()), lambda: x.add_(Failing()),
        lambda: lib.nn.functional.relu(Failing()), lambda: x == Failing(), lambda: x[Failing()],
        lambda: lib.cat([Failing()]), lambda: operator.setitem(x, 0, Failing()),
    ):  # fmt: skip
        with pytest.raises(KeyError, match="mine"):
            call()


def test_a_class_that_changes(lib):
    class Late:
        pass

    with pytest.raises(TypeError):
        lib.exp(Late())
    Late.__torch_function__ = classmethod(lambda cls, func, types, args=(), kwargs=None: "now")
    assert lib.exp(Late()) == "now"
    del Late.__torch_function__
    with pytest.raises(TypeError):
        lib.exp(Late())


def test_disabled_classes(lib):
    class Plain(lib.Tensor):
        __torch_function__ = lib._C._disabled_torch_function_impl

    x = lib.ones(2).as_subclass(Plain)
    assert type(x) is Plain
    for result in (x + 1, x.exp(), x[0], x.detach(), x.mul(2), x.data, lib.exp(x), -x):
        assert type(result) is lib.Tensor


def test_the_disabled_implementation(lib):
    cls = logging(lib)
    x = lib.ones(2).as_subclass(cls)
    result = lib._C._disabled_torch_function_impl(lib.Tensor.add, (cls,), (x, 1), {})
    assert type(result) is lib.Tensor and not cls.log


def test_switches(lib):
    cls = logging(lib)
    x = lib.ones(2).as_subclass(cls)
    assert lib._C._is_torch_function_enabled()
    for switch in (lib._C.DisableTorchFunctionSubclass, lib._C.DisableTorchFunction):
        with switch():
            assert type(x + 1) is lib.Tensor and type(x.exp()) is lib.Tensor
            assert x.shape == (2,) and type(lib.nn.functional.relu(x)) is lib.Tensor
            assert not lib._C._is_torch_function_enabled()
            with switch():
                pass
            assert not lib._C._is_torch_function_enabled()
        assert lib._C._is_torch_function_enabled() and not cls.log
    with pytest.raises(ValueError, match="inside"), lib._C.DisableTorchFunctionSubclass():
        raise ValueError("inside")
    assert lib._C._is_torch_function_enabled() and type(x + 1) is cls


# -- modtree.overrides -----------------------------------------------------------------------------


@pytest.fixture
def overrides(lib):
    return importlib.import_module(f"{lib.__name__}.overrides")


def test_has_torch_function(lib, overrides):
    x, duck = lib.ones(1), Duck()
    assert overrides.has_torch_function((x, duck)) and not overrides.has_torch_function((x, 1))
    assert overrides.has_torch_function_unary(duck) and not overrides.has_torch_function_unary(x)
    assert overrides.has_torch_function_variadic(x, duck)
    assert not overrides.has_torch_function_variadic(x, x, 1, "text", None)
    assert not overrides.has_torch_function_unary(lib.nn.Parameter(x))


def test_handle_torch_function(lib, overrides):
    def mine(a, b=1):
        if overrides.has_torch_function((a,)):
            return overrides.handle_torch_function(mine, (a,), a, b=b)
        return a * b

    duck = Duck()
    assert mine(duck) == ("duck", mine, (Duck,), (duck,), {"b": 1})
    assert mine(3, 2) == 6
    cls = logging(lib)
    result = mine(lib.ones(1).as_subclass(cls), b=2)
    assert type(result) is cls and result.tolist() == [2.0] and cls.log[0][0] is mine
    with pytest.raises(
        TypeError, match="(Multiple dispatch failed|no implementation found) for .*mine"
    ):
        mine(Refusing())


def test_wrap_torch_function(lib, overrides):
    @overrides.wrap_torch_function(lambda a, b=0: (a,))
    def mine(a, b=0):
        """Doc."""
        return a + b

    assert mine(1, b=2) == 3 and mine.__doc__ == "Doc." and mine.__name__ == "mine"
    assert mine(Duck())[1] is mine


def test_is_tensor_like(lib, overrides):
    assert overrides.is_tensor_like(lib.ones(1)) and overrides.is_tensor_like(Duck())
    assert not overrides.is_tensor_like(1) and not overrides.is_tensor_like("text")


def test_names(lib, overrides):
    name = lib.__name__
    assert overrides.resolve_name(lib.nn.functional.linear) == f"{name}.nn.functional.linear"
    assert overrides.resolve_name(lib.Tensor.shape.__get__) == f"{name}.Tensor.shape.__get__"
    assert overrides.resolve_name(lib.Tensor.__getitem__) == f"{name}.Tensor.__getitem__"
    assert overrides.resolve_name(lib.cat) == f"{name}.cat"
    assert overrides.resolve_name(len) is None
    assert overrides.is_tensor_method_or_property(lib.Tensor.add_)
    assert overrides.is_tensor_method_or_property(lib.Tensor.shape.__get__)
    assert not overrides.is_tensor_method_or_property(lib.cat)


def test_lists_of_functions(lib, overrides):
    functions = overrides.get_overridable_functions()
    assert lib.cat in functions[lib] and lib.Tensor.add in functions[lib.Tensor]
    assert lib.nn.functional.relu in functions[lib.nn.functional]
    assert lib.is_tensor in overrides.get_ignored_functions()
    assert lib.Tensor.grad.__get__ in overrides.get_default_nowrap_functions()


def test_every_function_is_there_to_be_overridden():
    """What the lists say is what a class is asked for."""
    functions = mt.overrides.get_overridable_functions()
    for space in (mt, mt.linalg, mt.nn.functional):
        for function in functions[space]:
            if getattr(function, "__module__", "").endswith("functional.at_top"):
                continue
            result = function(Duck())
            assert result[0] == "duck" and result[1] is function


# -- where torch differs (docs/compat.md) ----------------------------------------------------------


def test_functions_and_methods_are_one_object():
    assert mt.add is mt.Tensor.add and mt.Tensor.sum is mt.sum


def test_arguments_arrive_as_written():
    duck = Duck()
    _, _, _, args, kwargs = mt.nn.functional.softmax(duck, -1)
    assert args == (duck, -1) and kwargs == {}
    _, _, _, args, kwargs = mt.nn.functional.relu(input=duck, inplace=False)
    assert args == () and kwargs == {"input": duck, "inplace": False}


def test_types_are_those_that_take_part():
    assert mt.nn.functional.mse_loss(mt.ones(1), Duck())[2] == (Duck,)
    assert mt.ones(1).__pow__(Duck())[2] == (Duck,)


def test_the_metaclass_is_type():
    assert type(mt.Tensor) is mt._C._TensorMeta is type


# -- what must not change --------------------------------------------------------------------------


def test_tensors_of_another_library_are_not_asked(torch):
    with pytest.raises(TypeError):
        mt.add(mt.ones(2), torch.ones(2))
    theirs = torch.zeros(2).as_subclass(type("Sub", (torch.Tensor,), {}))
    # torch asks them where the call has come to it.
    assert type(mt.exp(theirs)) is type(theirs)


def test_a_list_that_changes_while_classes_are_asked():
    items = [mt.ones(1)]

    class Meta(type):
        def mro(cls):
            items.clear()
            return super().mro()

    class Odd(metaclass=Meta):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            items.clear()
            return "odd"

    items.extend([Odd(), mt.ones(1), Odd()])
    assert mt.cat(items) == "odd" and items == []


@pytest.mark.parametrize("call", ["method", "disabled"])
def test_keywords_that_are_no_dict(call):
    functions = {
        "method": mt.Tensor.__torch_function__,
        "disabled": mt._C._disabled_torch_function_impl,
    }
    with pytest.raises(TypeError, match="kwargs must be a dict or None, got 'list'"):
        functions[call](mt.exp, (), (mt.ones(1),), [1])


@pytest.mark.parametrize(
    "function",
    [
        lambda torch, a, b: torch.add(a, b),
        lambda torch, a, b: torch.add(b, a),
        lambda torch, a, b: torch.exp(a),
        lambda torch, a, b: torch.nn.functional.relu(a),
        lambda torch, a, b: torch.cat([b, a]),
    ],
)
def test_functions_of_torch_refuse_tensors_of_modtree(function, torch):
    with pytest.raises(TypeError, match=r"another library was called with a modtree\.Tensor"):
        function(torch, mt.ones(2), torch.ones(2))
    assert mt.ones(2).add(1).tolist() == [2, 2]  # and nothing is left behind


def test_operations_and_operators_refuse_tensors_of_torch(torch):
    for a, b in ((mt.ones(2), torch.ones(2)), (torch.ones(2), mt.ones(2))):
        with pytest.raises(TypeError, match=r"unsupported operand type.* for \*"):
            a * b
    with pytest.raises(TypeError, match=r"add\(\): .*another library, torch\.Tensor; "):
        mt.add(mt.ones(2), torch.ones(2))
    with pytest.raises(TypeError, match=r"add\(\): expected a Tensor or a number, got str"):
        mt.add(mt.ones(2), "a")


def test_modes_may_stand_on_each_other_higher_than_a_chain_of_calls():
    class Through(mt.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with contextlib.ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(Through())
        assert mt.exp(mt.zeros(1)).item() == 1
