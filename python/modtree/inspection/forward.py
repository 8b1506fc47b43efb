# SPDX-License-Identifier: BSD-3-Clause
"""What happens in a forward: which modules are called, what they return, how long they take."""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np

from modtree.core import module as module_file
from modtree.core.families import family_of
from modtree.inspection.phrases import shape_text

# People do not look for shapes that are nested deeper in a result.
_DEEPEST = 4


@dataclass(slots=True)
class Call:
    """The calls of one module in one forward."""

    module: Any
    input: Any = None
    """Shapes of the arguments of its first call."""
    output: Any = None
    """Shapes of what its first call returned."""
    count: int = 0
    seconds: float = 0.0
    multiply_adds: int = 0
    """Of all calls, where somebody counts them; without what is computed below it."""
    nbytes: int = 0
    """Of the tensors that its calls returned, where somebody counts them."""


class Recorder:
    """Notes the calls of all modules in this thread while it is :meth:`attached`.

    It listens by hooks for all modules, so that no module is changed, and modules that the tree
    does not know are seen too.

    Args:
        on_call: Called with each module before its ``forward``.
        on_return: Called with the calls of a module, arguments and the result after its forward.
    """

    def __init__(
        self,
        on_call: Callable[[Any], None] | None = None,
        on_return: Callable[[Call, Any, Any], None] | None = None,
    ) -> None:
        self.calls: dict[int, Call] = {}
        self._on_call = on_call
        self._on_return = on_return
        self._open: list[tuple[Any, Any, float]] = []
        self._thread = threading.get_ident()
        self._wait = _synchronizer()

    @contextlib.contextmanager
    def attached(self) -> Iterator[Recorder]:
        handles = []
        try:
            for file in _hook_files():
                handles.append((file, file.register_module_forward_pre_hook(self._before)))
                handle = file.register_module_forward_hook(self._after, with_kwargs=True)
                handles.append((file, handle))
            yield self
        finally:
            for file, handle in handles:
                handle.remove()
                # Where torch leaves an entry for a hook that is gone.
                file._global_forward_hooks_with_kwargs.pop(handle.id, None)

    def where_it_stopped(self, error: BaseException) -> tuple[Any, Any] | None:
        """The module in whose forward an error was raised, and its positional arguments; None where
        no module was called.
        """
        if not self._open:
            return None
        innermost = self._open[-1]
        called = {id(entry[0]): entry for entry in self._open}
        frames = list(traceback.walk_tb(error.__traceback__))
        owners = [called.get(id(_first_argument(frame))) for frame, _ in frames]
        running = next((entry for entry in reversed(owners) if entry is not None), innermost)
        # A wrong number of arguments is found before there is a frame. Everything else above the
        # running module has raised as well, but somebody caught that.
        stopped = innermost if isinstance(error, TypeError) and owners[-1] else running
        return stopped[0], stopped[1]

    def _before(self, module: Any, args: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        if self._on_call is not None:
            self._on_call(module)
        self._wait()
        self._open.append((module, args, time.perf_counter()))

    def _after(self, module: Any, args: Any, kwargs: Any, output: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        self._wait()
        now = time.perf_counter()
        # Modules that raised, where somebody caught it, are still open above this one.
        while self._open:
            opened, _, start = self._open.pop()
            if opened is module:
                break
        else:
            return
        call = self.calls.setdefault(id(module), Call(module))
        given = (*args, *kwargs.values())
        if not call.count:
            call.input, call.output = describe(given), describe(output)
        call.count += 1
        call.seconds += now - start
        if self._on_return is not None:
            self._on_return(call, given, output)


def _first_argument(frame: FrameType) -> Any:
    code = frame.f_code
    return frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None


def _hook_files() -> list[Any]:
    """The files that hold hooks for all modules: modtree's, and torch's where it has its own."""
    files = [module_file]
    torch_file: Any = sys.modules.get("torch.nn.modules.module")
    # Under the drop-in torch's tables are modtree's.
    if torch_file is not None and (
        getattr(torch_file, "_global_forward_hooks", None) is not module_file._global_forward_hooks
    ):
        files.append(torch_file)
    return files


def _synchronizer() -> Callable[[], Any]:
    """Waits until a device has done what was asked of it."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return torch.cuda.synchronize
    return lambda: None


def describe(value: Any, depth: int = 0) -> Any:
    """The shapes in a result: a tuple for a tensor, also for one alone in a tuple, a list for
    several, a dict for named ones; None for what holds no tensor.
    """
    family = family_of(value)
    if family is not None:
        return tuple(family.shape(value))
    if depth == _DEEPEST:
        return None
    if isinstance(value, Mapping):
        named = {str(key): describe(part, depth + 1) for key, part in value.items()}
        return {key: part for key, part in named.items() if part is not None} or None
    if isinstance(value, (list, tuple)):
        parts = [describe(part, depth + 1) for part in value]
        parts = [part for part in parts if part is not None]
        return parts if len(parts) > 1 else next(iter(parts), None)
    return None


def tensors_of(value: Any, depth: int = 0) -> Iterator[Any]:
    """The tensors in a result, also those in lists, tuples and dicts."""
    if family_of(value) is not None:
        yield value
    elif depth < _DEEPEST and isinstance(value, (list, tuple, Mapping)):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from tensors_of(part, depth + 1)


def bytes_of(tensor: Any) -> int:
    """The bytes of the elements of a tensor."""
    family = family_of(tensor)
    assert family is not None
    itemsize = getattr(tensor.dtype, "itemsize", None)
    if itemsize is None:
        itemsize = np.dtype(family.dtype_name(tensor)).itemsize
    return math.prod(family.shape(tensor)) * int(itemsize)


def arguments_text(args: Any, kwargs: Any = None) -> str:
    """The shapes of arguments, as a message names them."""
    parts = [_argument_text(arg) for arg in args]
    parts += [f"{name}={_argument_text(arg)}" for name, arg in (kwargs or {}).items()]
    return ", ".join(parts) or "no arguments"


def _argument_text(arg: Any) -> str:
    spec = describe(arg)
    return type(arg).__name__ if spec is None else shape_text(spec)
