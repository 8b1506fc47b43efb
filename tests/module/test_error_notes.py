# SPDX-License-Identifier: BSD-3-Clause
"""The note of an exception that leaves a module: where in the tree it was raised."""

from __future__ import annotations

import asyncio
import builtins
import copy
import gc
import importlib
import os
import pickle
import subprocess
import sys
import threading
import traceback
import warnings
import weakref

import pytest
from helpers.implementations import needs_torch
from helpers.limits import HANGS_AFTER

import modtree as mt
from modtree import nn

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes")


def notes_of(action, *args, kind=Exception):
    """The notes of what the action raises."""
    with pytest.raises(kind) as caught:
        action(*args)
    return getattr(caught.value, "__notes__", None)


def raiser(impl, error="ValueError('bad')"):
    """A module whose forward raises what the text makes."""

    class Bad(impl.nn.Module):
        def forward(self, *args, **kwargs):
            raise eval(error) if type(error) is str else error

    return Bad()


def caller(impl, call=None):
    """A module that calls its child ``inner``, or does what it is given."""

    class Outer(impl.nn.Module):
        def __init__(self, inner=None):
            super().__init__()
            self.inner = inner

        def forward(self, *args):
            return call(self, *args) if call else self.inner(*args)

    return Outer


# -- what it says ----------------------------------------------------------------------------------


def test_note_has_the_path_the_class_and_the_arguments(impl):
    blocks = impl.nn.ModuleList([impl.nn.Sequential(raiser(impl)) for _ in range(3)])
    model = caller(impl, lambda self, x: self.inner[2](x))(blocks)
    x = impl.lib.zeros((2, 4))
    found = notes_of(model, x)
    if impl.is_torch:
        assert found is None
        return
    dtype = str(x.dtype).removeprefix("torch.").removeprefix("modtree.")
    assert found == [f"in inner.2.0 (Bad), called with (2, 4) {dtype}"]


def test_error_is_as_without_the_note(impl):
    model = impl.nn.Sequential(raiser(impl, "ValueError('bad', 3)"))
    with pytest.raises(ValueError) as caught:
        model(1)
    error = caught.value
    assert (str(error), error.args, error.__cause__, error.__context__) == (
        "('bad', 3)",
        ("bad", 3),
        None,
        None,
    )
    assert traceback.extract_tb(error.__traceback__)[-1].name == "forward"
    frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert frames.count("forward") == 2


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        ((), {}, "no arguments"),
        ((1, 2.5, None, True), {"mode": "same"}, "1, 2.5, None, True, mode='same'"),
        (([1, (2,)], {"a": 1}), {}, "[1, (2)], {'a': 1}"),
        ((list(range(9)),), {}, "[0, 1, 2, 3, 5 more]"),
        (range(10), {}, "0, 1, 2, 3, 4, 5, 6, 7, 2 more"),
        ((object(),), {"x": set()}, "object, x=set"),
        (("a" * 100,), {}, repr("a" * 100)[:60] + "..."),
    ],
)
def test_arguments(ours, args, kwargs, said):
    assert notes_of(lambda: raiser(ours)(*args, **kwargs)) == [f"in Bad, called with {said}"]


def test_arguments_that_hold_themselves_or_do_not_show_themselves(ours):
    class Hostile(str):
        def __repr__(self):
            raise ValueError("no text")

    loop = []
    loop.append(loop)
    assert notes_of(raiser(ours), loop) == ["in Bad, called with [[[list]]]"]
    assert notes_of(raiser(ours), Hostile("x")) == ["in Bad"]


def test_interrupt_while_arguments_are_shown_is_not_lost(ours):
    class Interrupted(str):
        def __repr__(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        raiser(ours)(Interrupted("x"))


# -- how the path grows ----------------------------------------------------------------------------


def test_the_outermost_call_begins_the_path(ours):
    model = ours.nn.Sequential(ours.nn.Sequential(raiser(ours)))
    assert notes_of(model[0][0]) == ["in Bad, called with no arguments"]
    assert notes_of(model[0], 1) == ["in 0 (Bad), called with 1"]
    assert notes_of(model, 1) == ["in 0.0 (Bad), called with 1"]


def test_error_that_is_caught_and_raised_again_keeps_its_place(ours):
    def call(self, x):
        try:
            self.inner(x)
        except ValueError as error:
            error.add_note("seen")
            raise

    model = ours.nn.Sequential(caller(ours, call)(raiser(ours)))
    assert notes_of(model, 1) == ["in 0.inner (Bad), called with 1", "seen"]


def test_another_error_in_its_place_has_a_note_of_its_own(ours):
    def call(self, x):
        try:
            self.inner(x)
        except ValueError as error:
            raise KeyError("other") from error

    with pytest.raises(KeyError) as caught:
        ours.nn.Sequential(caller(ours, call)(raiser(ours)))(1)
    assert caught.value.__notes__ == ["in 0 (Outer), called with 1"]
    assert caught.value.__cause__.__notes__ == ["in Bad, called with 1"]


def test_an_error_that_is_raised_twice_has_the_note_of_the_second_time(ours):
    error = ValueError("one object")
    first = ours.nn.Sequential(ours.nn.Sequential(raiser(ours, error)))
    assert notes_of(first, 1) == ["in 0.0 (Bad), called with 1"]
    assert notes_of(raiser(ours, error), 2) == ["in Bad, called with 2"]
    again = raiser(ours, error)
    assert notes_of(again, 3) == ["in Bad, called with 3"]
    assert notes_of(again, 4) == ["in Bad, called with 4"]


def test_error_of_another_thread_keeps_its_place(ours):
    def call(self, x):
        errors = []

        def work():
            try:
                self.inner(x)
            except ValueError as error:
                errors.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        raise errors[0]

    assert notes_of(caller(ours, call)(raiser(ours)), 1) == ["in inner (Bad), called with 1"]


def test_group_of_errors_has_one_note(ours):
    def call(self, x):
        errors = []
        for _ in range(2):
            try:
                self.inner(x)
            except ValueError as error:
                errors.append(error)
        raise builtins.ExceptionGroup("both", errors)

    model = ours.nn.Sequential(caller(ours, call)(raiser(ours)))
    with pytest.raises(builtins.ExceptionGroup) as caught:
        model(1)
    assert caught.value.__notes__ == ["in 0 (Outer), called with 1"]
    assert [e.__notes__ for e in caught.value.exceptions] == [["in Bad, called with 1"]] * 2


def test_shared_module_has_the_first_of_its_names(ours):
    bad = raiser(ours)
    model = ours.nn.Sequential(ours.nn.Identity(), bad, bad)
    assert notes_of(model, 1) == ["in 1 (Bad), called with 1"]


def test_module_that_calls_itself(ours):
    def call(self, n):
        return self(n - 1) if n else self.inner("deep")

    model = caller(ours, call)(raiser(ours))
    assert notes_of(model, 3) == ["in inner (Bad), called with 'deep'"]


def test_cycle(ours):
    def call(self, n):
        return self.inner(n - 1)

    one, two = (caller(ours, call)() for _ in range(2))
    one.inner, two.inner = two, one
    two.forward = lambda n: one(n) if n > 0 else [][1]
    assert notes_of(one, 3) == ["in inner.inner.inner.inner.inner (Outer), called with 0"]


def test_module_that_no_registry_holds_is_not_named(ours):
    hidden = [raiser(ours)]
    model = ours.nn.Sequential(caller(ours, lambda self, x: hidden[0](x))())
    assert notes_of(model, 1) == ["in 0 (Outer), called with 1"]


def test_hooks_lazy_modules_and_calls_in_python_belong_to_their_module(ours):
    def hook(module, *args):
        raise ValueError

    before, after = ours.nn.Identity(), ours.nn.Identity()
    before.register_forward_pre_hook(hook)
    after.register_forward_hook(hook)
    assert notes_of(ours.nn.Sequential(before), 1) == ["in 0 (Identity), called with 1"]
    assert notes_of(ours.nn.Sequential(after), 1) == ["in 0 (Identity), called with 1"]

    class Called(type(raiser(ours))):
        def __call__(self, x):
            return super().__call__(x, 2)

    assert notes_of(ours.nn.Sequential(Called()), 1) == ["in 0 (Called), called with 1, 2"]


def test_lazy_module():
    model = nn.Sequential(nn.LazyLinear(3))
    assert notes_of(model, "x") == ["in 0 (LazyLinear), called with 'x'"]


def test_coroutine_and_generator_have_left_the_call(ours):
    class Async(ours.nn.Module):
        async def forward(self):
            raise ValueError

    class Generator(ours.nn.Module):
        def forward(self):
            raise ValueError
            yield

    assert notes_of(lambda: asyncio.run(Async()())) is None
    assert notes_of(lambda: next(Generator()())) is None
    outer = caller(ours, lambda self: list(Generator()()))()
    assert notes_of(outer) == ["in Outer, called with no arguments"]


# -- what has no note ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [StopIteration, StopAsyncIteration, GeneratorExit, KeyboardInterrupt, SystemExit]
)
def test_what_is_no_error_passes_untouched(impl, kind):
    assert notes_of(impl.nn.Sequential(raiser(impl, kind())), 1, kind=kind) is None


@needs_torch
def test_what_steers_torch_passes_untouched(ours):
    checkpoint = importlib.import_module("torch.utils.checkpoint")
    assert notes_of(raiser(ours, checkpoint._StopRecomputationError())) is None

    class Own(importlib.import_module("torch._dynamo.exc").Unsupported):
        pass

    assert notes_of(raiser(ours, Own("x"))) is None


def test_stop_after_passes_untouched():
    model = mt.nn.Sequential(mt.nn.Identity(), mt.nn.Identity())
    with mt.capture(model, "0", stop_after="0") as kept:
        model(mt.zeros(2))
    assert list(kept) == ["0"]


def test_switch():
    text = (
        "from modtree import nn\n"
        "try: nn.Linear(2, 2)(3)\n"
        "except Exception as error: print(hasattr(error, '__notes__'))"
    )
    for value, found in (("0", "False"), ("1", "True"), ("", "True")):
        said = subprocess.run(
            [sys.executable, "-c", text],
            env={**os.environ, "MODTREE_NOTES": value},
            capture_output=True,
            text=True,
            timeout=HANGS_AFTER,
        )
        assert said.stdout.strip() == found, said.stderr


# -- odd exceptions --------------------------------------------------------------------------------


def odd_exceptions():
    class Frozen(Exception):
        def __setattr__(self, name, value):
            raise AttributeError("frozen")

    class Slots(Exception):
        __slots__ = ("x",)

    class Asks(Exception):
        def __getattribute__(self, name):
            raise TypeError("asked")

    class Adds(Exception):
        def add_note(self, note):
            raise KeyError(note)

    class Liar(Exception):
        __class__ = int

    return [Frozen(), Slots(), Asks(), Adds(), Liar()]


@pytest.mark.parametrize("number", range(5))
def test_exceptions_with_attributes_of_their_own(ours, number):
    error = odd_exceptions()[number]
    try:
        ours.nn.Sequential(raiser(ours, error))(1)
    except BaseException as caught:
        same = caught is error
    assert same
    notes = object.__getattribute__(error, "__dict__")["__notes__"]
    assert notes == ["in 0 (Bad), called with 1"]


def test_notes_that_cannot_be_kept_are_left_out(ours):
    class Refuses(Exception):
        @property
        def __notes__(self):
            raise ValueError("no notes")

    error = ValueError()
    error.__notes__ = ("a tuple",)
    assert notes_of(ours.nn.Sequential(raiser(ours, error)), 1) == ("a tuple",)
    with pytest.raises(Refuses) as caught:
        raiser(ours, Refuses())(1)
    assert "__notes__" not in vars(caught.value)


def test_note_is_a_str_and_becomes_one_in_copies(ours):
    with pytest.raises(ValueError) as caught:
        ours.nn.Sequential(raiser(ours))(1)
    (note,) = caught.value.__notes__
    assert isinstance(note, str)
    assert note in traceback.format_exception(caught.value)[-1]
    for same in (pickle.loads(pickle.dumps(note)), copy.deepcopy(note)):
        assert type(same) is str
        assert same == note
    made = type(note)("in a text of a program")
    error = ValueError()
    error.__notes__ = [made]
    assert notes_of(raiser(ours, error)) == [made, "in Bad, called with no arguments"]


def test_note_keeps_no_module_alive(ours):
    model = ours.nn.Sequential(raiser(ours))
    with pytest.raises(ValueError) as caught:
        model(1)
    error = caught.value
    caught = None
    error.__traceback__ = None
    watched = weakref.ref(model)
    del model
    gc.collect()
    assert watched() is None
    assert notes_of(raiser(ours, error), 2) == ["in Bad, called with 2"]


def test_names_of_str_classes_and_odd_tables(ours):
    class Name(str):
        def __eq__(self, other):
            raise ValueError("compared")

        __hash__ = str.__hash__

    model = ours.nn.Module()
    model._modules[Name("odd")] = bad = raiser(ours)
    model._modules[3] = bad
    assert model.__dict__  # from now on its entries are there
    model.forward = lambda x: bad(x)
    assert notes_of(model, 1) in (["in odd (Bad), called with 1"], ["in Module, called with 1"])


# -- bounds ----------------------------------------------------------------------------------------


def test_long_path_leaves_names_out_in_the_middle(ours):
    model = raiser(ours)
    for _ in range(100):
        model = ours.nn.Sequential(model)
    (note,) = notes_of(model, 1)
    assert note == f"in {'0.' * 20}[60 more]{'.0' * 20} (Bad), called with 1"


DEEP = """
import sys, threading
from modtree import nn

class Bad(nn.Module):
    def forward(self, x):
        raise ValueError

depth, model = int(sys.argv[1]), Bad()
for _ in range(depth):
    model = nn.Sequential(model)

def work():
    try:
        model(1)
    except ValueError as error:
        print(error.__notes__[0])
        error.__traceback__ = None

sys.setrecursionlimit(10 * depth)
threading.stack_size(1 << 30)
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


@pytest.mark.parametrize("depth", [5_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_deep_calls(depth):
    if depth > 5_000 and (3, 12) <= sys.version_info < (3, 14):
        pytest.skip("calls in C have a limit of their own")
    command = [sys.executable, "-c", DEEP, str(depth)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_AFTER)
    names = f"{'0.' * 20}[{depth - 40:d} more]{'.0' * 20}"
    assert said.stdout == f"in {names} (Bad), called with 1\n", said.stderr


def test_endless_recursion_ends_with_a_note(ours):
    model = caller(ours, lambda self, x: self(x))()
    assert notes_of(model, 1, kind=RecursionError) == ["in Outer, called with 1"]


def test_calls_of_many_threads_at_once(ours):
    model = ours.nn.Sequential(ours.nn.Sequential(raiser(ours)))
    found = []

    def work(number):
        for _ in range(50):
            found.append((notes_of(model, number), number))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(notes == [f"in 0.0 (Bad), called with {number}"] for notes, number in found)


# -- not in a call ---------------------------------------------------------------------------------


def test_conversion(ours):
    model = ours.nn.Sequential(ours.nn.Sequential(ours.nn.Identity()))
    model[0][0].weight = ours.nn.Parameter(ours.lib.zeros(2))

    def fails(tensor):
        raise ValueError

    assert notes_of(model._apply, fails) == ["in 0.0 (Identity), in _apply"]

    class Own(type(model)):
        def _apply(self, fn):
            return super()._apply(fn)

    model = ours.nn.Sequential(Own(*model))
    assert notes_of(model._apply, fails) == ["in 0.0.0 (Identity), in _apply"]


def test_load(ours):
    class State(ours.nn.Module):
        def get_extra_state(self):
            return 1

        def set_extra_state(self, state):
            raise ValueError

    class Load(ours.nn.Module):
        def _load_from_state_dict(self, *args):
            raise ValueError

    for inner in (State(), Load()):
        model = ours.nn.Sequential(ours.nn.Sequential(inner))
        assert notes_of(model.load_state_dict, model.state_dict()) == [
            f"in 0.0 ({type(inner).__name__}), in load_state_dict"
        ]


def test_backward_hook(ours):
    class Named(ours.nn.Module):
        def extra_repr(self):
            return "size=3"

        def forward(self, x):
            return x * 2

    def fails(*args):
        raise ValueError

    x = ours.lib.ones(2, requires_grad=True)
    for name in ("register_full_backward_hook", "register_full_backward_pre_hook"):
        module = Named()
        getattr(module, name)(fails)
        found = notes_of(ours.nn.Sequential(module)(x).sum().backward)
        assert found == ["in Named(size=3), in a backward hook"]


def test_graph_does_not_keep_the_module_of_a_legacy_hook(ours):
    module = type("Twice", (ours.nn.Module,), {"forward": lambda self, x: x * 2})()
    module.register_backward_hook(lambda *args: None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = module(ours.lib.ones(2, requires_grad=True))
    watched = weakref.ref(module)
    del module
    gc.collect()
    assert watched() is None
    assert y.grad_fn is not None
