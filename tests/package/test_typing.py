# SPDX-License-Identifier: BSD-3-Clause
"""What editors and type checkers see: signatures, help, stubs."""

import inspect
import pydoc

import pytest

import modtree
import modtree.nn.functional as F
from modtree._ops import registry, signatures

# Methods that read their arguments by type, as torch's do (the stubs have overloads for them), and
# one whose keyword `from` no parameter can have.
BY_TYPE = {"Tensor.to", "Tensor.cuda", "Tensor.new", "Tensor.uniform_"}


def public_callables():
    for name in modtree.__all__:
        value = getattr(modtree, name)
        if callable(value) and not name.startswith("_") and not isinstance(value, type):
            yield f"modtree.{name}", value
    for name in dir(modtree.Tensor):
        value = inspect.getattr_static(modtree.Tensor, name)
        if callable(value) and not name.startswith("_"):
            yield f"Tensor.{name}", value
    for name in F.__all__:
        yield f"nn.functional.{name}", getattr(F, name)


PUBLIC = dict(public_callables())


def test_public_callables_are_many():
    assert len(PUBLIC) > 700


@pytest.mark.parametrize("path", PUBLIC)
def test_each_has_a_signature_and_a_docstring(path):
    value = PUBLIC[path]
    if isinstance(value, modtree._tensor.typed.Typed):
        pytest.skip("a type by another name")
    parameters = inspect.signature(value).parameters
    vague = {"args", "kwargs", "_", "__"} & set(parameters)
    assert not vague or path in BY_TYPE
    assert inspect.getdoc(value)
    assert value.__name__ != "<lambda>"


@pytest.mark.parametrize("name", [n for n in registry.ops if signatures.documented(n)[0]])
def test_an_operation_takes_what_its_signature_says(name):
    op = registry.ops[name]
    count = len(inspect.signature(op).parameters)

    def call(number):
        makers = {
            "dot": lambda: modtree.ones(2, dtype=number),
            "outer": lambda: modtree.ones(2, dtype=number),
        }
        arguments = [makers.get(name, lambda: modtree.ones(2, 2, dtype=number))()] * count
        if name == "masked_select":
            arguments[1] = arguments[1].bool()
        elif name == "take":
            arguments[1] = arguments[1].long()
        return op(*arguments)

    integers = name.startswith("bitwise_") or name in ("gcd", "lcm")
    assert isinstance(call(modtree.int64 if integers else modtree.float32), modtree.Tensor)


def test_documented_operations_are_there():
    for table in (signatures._ONE, signatures._TWO):
        assert not set(table) - set(registry.ops)


def test_help_of_an_operation():
    text = pydoc.plain(pydoc.render_doc(modtree.exp))
    assert "exp(input, /)" in text
    assert "e to the power of each element." in text
    assert "mul_(self, other, /)" in pydoc.plain(pydoc.render_doc(modtree.Tensor.mul_))


def test_an_inplace_method_has_the_signature_of_its_operation():
    assert list(inspect.signature(modtree.Tensor.pow_).parameters) == ["self", "exponent"]
    assert list(inspect.signature(modtree.Tensor.exp_).parameters) == ["self"]
    assert list(inspect.signature(modtree.ones(2).addmv_).parameters)[:2] == ["mat", "vec"]
    assert "pin_memory" in inspect.signature(modtree.zeros).parameters
    assert "generator" not in inspect.signature(modtree.zeros).parameters
