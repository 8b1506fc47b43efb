# SPDX-License-Identifier: BSD-3-Clause
"""Calls every method, slot and attribute of every native type, and every native function, with a
wrong ``self`` and wrong arguments.

Each entry point has a process of its own (a fork), so that a crash names it. Prints one line for
each finding: a crash, a SystemError, or a wrong ``self`` that is not refused with a TypeError.
``python tests/isolated/entry_points.py NAME`` runs the entry points whose name has NAME in it.
"""

from __future__ import annotations

import faulthandler
import gc
import itertools
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import modtree
from modtree import _C, nn

HUGE = 1 << 80
WRAPPERS = (type(object.__init__), type(str.join), type(dict.__dict__["fromkeys"]))
ATTRIBUTES = (type(type.__dict__["__dict__"]), type(slice.start))
# Errors that bad arguments have. SystemError is a RuntimeError's neighbour, not its subclass: it is
# a finding.
FINE = (
    TypeError,
    ValueError,
    RuntimeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    MemoryError,
    StopIteration,
    ImportError,
    NotImplementedError,
    AssertionError,
)


class Odd:
    """Refuses whatever it is asked."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def refuse(self, *args: Any) -> Any:
        raise ValueError("refused")

    __index__ = __float__ = __bool__ = __len__ = __iter__ = __array__ = __call__ = refuse
    __eq__ = refuse  # type: ignore[assignment]
    __hash__ = object.__hash__


def native_types() -> list[type]:
    """The types of the extension, also those that only instances show."""
    found, stack = [], [object]
    seen: dict[int, type] = {}  # by id: a metaclass may refuse to be hashed
    while stack:
        for kind in type.__subclasses__(stack.pop()):
            if id(kind) not in seen:
                seen[id(kind)] = kind
                stack.append(kind)
                if str(getattr(kind, "__module__", "")).startswith("modtree._C"):
                    found.append(kind)
    return sorted(found, key=lambda kind: kind.__name__)


class Forward(nn.Module):
    def forward(self, x: Any) -> Any:
        return x


def small_module() -> Any:
    m = Forward()
    m.p, m.c = nn.Parameter(modtree.ones(2)), nn.Linear(2, 2)
    m.register_buffer("b", modtree.ones(2), persistent=False)
    return m


def instances(kind: type) -> Iterator[Any]:
    """Good ones, and one that only ``__new__`` has seen."""
    leaf = modtree.ones(2, 2, requires_grad=True)
    result = (leaf * 2).exp()
    module = small_module()
    made = (
        leaf,
        result,
        result.view(4),
        modtree.tensor(1),
        modtree.ones(2).to("meta"),
        result.grad_fn,
        result.grad_fn.next_functions[0][0],
        module,
        module.named_parameters(),
        module.modules(),
        modtree.float32,
        modtree.Tensor.exp,
        _C.KeepTies(lambda t: t),
        next((x for x in gc.get_objects() if type(x).__name__ == "Conversion"), None),
    )
    for value in made:
        if isinstance(value, kind):
            yield value
    for subclass in (kind, *kind.__subclasses__()):
        try:
            yield subclass.__new__(subclass)
        except Exception:
            continue


def wrong_selves() -> list[Any]:
    return [
        3,
        None,
        object(),
        "self",
        np.ones(2),
        Odd(),
        int,
        modtree.ones(2),
        small_module(),
        modtree.float32,
        modtree.Tensor.exp,
        (modtree.ones(1, requires_grad=True) * 2).grad_fn,
        small_module().modules(),
    ]


def junk() -> list[Any]:
    return [
        None,
        -1,
        0,
        HUGE,
        -HUGE,
        1.5,
        float("nan"),
        "x",
        "\udcff",
        b"x",
        (),
        [],
        {},
        set(),
        (1, "a"),
        [None, 3],
        {"a": 1},
        slice(None),
        Ellipsis,
        Odd(),
        object(),
        int,
        lambda *a, **k: None,
        np.ones((2, 2)),
        np.array([None, 1], dtype=object),
        np.ones(0),
        np.ones(()),
        np.ones(2, ">f4"),
        np.ones((4, 4), np.float32)[::2, ::-1],
        np.zeros(2, "M8[s]"),
        np.zeros(2, [("a", "f4")]),
        modtree.ones(2, requires_grad=True),
        modtree.ones(2).to("meta"),
        modtree.Tensor.__new__(modtree.Tensor),
        small_module(),
        nn.Module.__new__(nn.Module),
        modtree.float32,
        modtree.Tensor.exp,
        (modtree.ones(1, requires_grad=True) * 2).grad_fn,
    ]


def argument_lists() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    values = junk()
    yield (), {}
    for value in values:
        for count in (1, 2, 3, 5, 7):
            yield (value,) * count, {}
    for i, value in enumerate(values):
        other = values[(7 * i + 3) % len(values)]
        yield (value, other), {}
        yield (other, value, other), {}
        yield (modtree.ones(2), value), {}
        yield ((value,), (other,)), {}
        yield ((modtree.ones(1),), (value,), None, False, False, True, True), {}
        yield (value, (modtree.ones(1),), (modtree.ones(1),), value), {}
    yield (None,) * 40, {}
    for name in ("nope", "", "\udcff", "self", "out", "dim", "fn", "prefix", "dtype"):
        yield (), {name: None}
        yield (3,), {name: 3, "also": 3}


def entry_points() -> Iterator[tuple[str, Callable[[], Iterator[tuple[Callable[..., Any], bool]]]]]:
    """(name, calls): ``calls()`` gives (function of arguments, must it be a TypeError whatever they
    are?).
    """
    for kind in native_types():
        for name, value in sorted(vars(kind).items()):
            if isinstance(value, WRAPPERS):
                yield f"{kind.__name__}.{name}", lambda k=kind, v=value: method_calls(k, v)
            elif isinstance(value, ATTRIBUTES):
                yield f"{kind.__name__}.{name}", lambda k=kind, v=value: attribute_calls(k, v)
        yield f"{kind.__name__}()", lambda k=kind: iter([(k, False), (k.__new__, False)])
        yield (
            f"{kind.__name__}.__new__",
            lambda k=kind: iter([(lambda *a, k=k, **kw: k.__new__(k, *a, **kw), False)]),
        )
    for owner in (_C, _C.kernels):
        for name, value in sorted(vars(owner).items()):
            if callable(value) and not isinstance(value, type):
                yield f"{owner.__name__}.{name}", lambda v=value: iter([(v, False)])
    for name in _C._installed():
        yield f"{_C.__name__}._install({name})", lambda n=name: installs(n)


def installs(name: str) -> Iterator[tuple[Callable[..., Any], bool]]:
    """Whatever native code takes for its own is used like what was there; then that is put back."""
    there = _C._installed()[name]

    def install(*values: Any, **_: Any) -> None:
        if len(values) == 1:
            _C._install(**{name: values[0]})
            try:
                use_everything()
            finally:
                _C._install(**{name: there})

    yield install, False
    if isinstance(there, type):
        # Classes that fit, as far as native code can see.
        for base in {there, *there.__mro__[1:-1]}:
            yield lambda *_, b=base, **__: install(type("Odd", (b,), {})), False


def method_calls(kind: type, method: Any) -> Iterator[tuple[Callable[..., Any], bool]]:
    for wrong in wrong_selves():
        if not isinstance(wrong, kind) and method.__name__ != "__new__":
            yield lambda *a, w=wrong, **k: method(w, *a, **k), True
    yield method, False
    for good in instances(kind):
        yield lambda *a, g=good, **k: method(g, *a, **k), False


def attribute_calls(kind: type, descriptor: Any) -> Iterator[tuple[Callable[..., Any], bool]]:
    for wrong in wrong_selves():
        if not isinstance(wrong, kind):
            for name in ("__get__", "__set__", "__delete__"):
                method = getattr(descriptor, name)
                if name != "__get__" or wrong is not None:  # __get__(None, ...) asks the class
                    yield lambda *a, m=method, w=wrong, **k: m(w, *a, **k), True
    for good in instances(kind):
        yield lambda *a, g=good: descriptor.__set__(g, *a), False
        yield lambda *a, g=good: descriptor.__get__(g), False
        yield lambda *a, g=good: descriptor.__delete__(g), False


def try_all(calls: Iterator[tuple[Callable[..., Any], bool]], progress: int) -> list[str]:
    findings = []
    for number, (function, must_refuse) in enumerate(calls):
        # Before its arguments a wrong self is looked at: some of the lists will do.
        for args, keywords in itertools.islice(argument_lists(), 0, None, 9 if must_refuse else 1):
            os.ftruncate(progress, 0)
            text = f"call {number} with {[type(a).__name__ for a in args]} {list(keywords)}"
            os.pwrite(progress, text.encode(errors="replace"), 0)
            try:
                result = function(*args, **keywords)
                if hasattr(result, "__next__"):
                    for _, _ in zip(range(5), result, strict=False):
                        pass
            except FINE as error:
                if must_refuse and not isinstance(error, TypeError):
                    findings.append(f"{text}: a wrong self gives {error!r:.200}")
            except Exception as error:
                findings.append(f"{text}: {error!r:.200}")
            else:
                if must_refuse and result is not NotImplemented:
                    findings.append(f"{text}: a wrong self is accepted")
    # The junk may have left something behind that the next use stumbles over.
    try:
        use_everything()
    except FINE:
        pass
    except Exception as error:
        findings.append(f"afterwards: {error!r:.200}")
    return findings


def use_everything() -> None:
    m = small_module()
    m.state_dict(), list(m.named_parameters()), repr(m), m.double(), m.train()
    x = modtree.ones(2, requires_grad=True)
    (x * 2).sum().backward()
    gc.collect()


def in_a_process_of_its_own(
    calls: Callable[[], Any],
    progress: int,
    report: int,
    attempt: Callable[[Any, int], list[str]] = try_all,
) -> str | None:
    """None, or how it ended."""
    pid = os.fork()
    if pid == 0:
        try:
            for finding in dict.fromkeys(attempt(calls(), progress)):
                os.write(report, finding.encode(errors="replace") + b"\n")
            os._exit(0)
        except BaseException as error:
            os.write(2, f"{error!r}\n".encode(errors="replace"))
            os._exit(3)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code == 0:
        return None
    where = os.pread(progress, 1000, 0).decode(errors="replace")
    return f"{f'signal {-code}' if code < 0 else f'exit status {code}'} in {where}"


def main() -> int:
    warnings.simplefilter("ignore")
    faulthandler.enable()
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    small_module().to(modtree.float64)
    progress = (
        os.memfd_create("progress") if hasattr(os, "memfd_create") else os.open(os.devnull, 2)
    )
    found = count = 0
    for name, calls in entry_points():
        if wanted not in name:
            continue
        count += 1
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        ended = in_a_process_of_its_own(calls, progress, writer)
        os.close(writer)
        with os.fdopen(reader, errors="replace") as lines:
            findings = [*lines.read().splitlines()[:5], *([ended] if ended else [])]
        for finding in findings:
            found += 1
            print(f"{name}: {finding}", flush=True)
    print(f"{count} entry points, {found} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
