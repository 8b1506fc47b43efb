# SPDX-License-Identifier: BSD-3-Clause
"""``capture``: what modules get and return in the calls of a ``with`` block."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

from modtree.core.families import family_of
from modtree.editing.hooking import attach, cloned, map_tensors, run_eagerly
from modtree.editing.selections import selected


class _Kept:
    """A nested value, and the versions that its tensors had when it was taken."""

    def __init__(self, value: Any, keep: Callable[[Any], Any]) -> None:
        self.nbytes = 0
        self._versions: list[tuple[Any, int]] = []
        self._was_changed = False
        self._keep = keep
        self.value = map_tensors(value, self._take)

    def _take(self, tensor: Any) -> Any:
        kept = self._keep(tensor)
        family = family_of(kept)
        self.nbytes += int(getattr(kept, "nbytes", 0))
        if family is not None and not family.immutable:
            version = _version(kept)
            if version is None:
                return cloned(kept)
            self._versions.append((kept, version))
        return kept

    def is_changed(self) -> bool:
        """True if a tensor was written to before the values were settled."""
        return self._was_changed or any(
            _version(tensor) != version for tensor, version in self._versions
        )

    def settle(self) -> None:
        """From here on, the values may be changed."""
        self._was_changed = self.is_changed()
        self._versions.clear()


def _version(tensor: Any) -> int | None:
    """The number of changes in place; None if they are not counted."""
    torch: Any = sys.modules.get("torch")
    tensors: Any = getattr(torch, "Tensor", ())
    if isinstance(tensor, tensors) and (
        tensor.is_inference() or torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    ):
        return None
    return getattr(tensor, "_version", None)


class _Grad:
    """The place of a gradient in a nested value."""

    value: Any = None


class Call:
    """One call of a module."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.nbytes = 0
        """The bytes of the tensors that are kept."""
        self._kept: dict[str, _Kept] = {}
        self._grads: Any = None
        self._handles: list[Any] = []

    @property
    def args(self) -> tuple[Any, ...]:
        """The positional arguments."""
        return self._value("inputs")[0]

    @property
    def kwargs(self) -> dict[str, Any]:
        """The keyword arguments."""
        return self._value("inputs")[1]

    @property
    def output(self) -> Any:
        """What it returned, nested as it was."""
        return self._value("outputs")

    @property
    def grad(self) -> Any:
        """The gradients of what it returned, nested in the same way; None where none came."""
        return map_tensors(self._grads, lambda _: None, _value_of)

    def _value(self, what: str) -> Any:
        kept = self._kept.get(what)
        if kept is None:
            raise KeyError(f"{what} of {self.path!r} were not captured: capture(..., {what}=True)")
        if kept.is_changed():
            raise RuntimeError(
                f"{what} of {self.path!r} were changed in place after the call, so the values are "
                f"gone: capture(..., reduce=lambda t: t.clone()) keeps copies"
            )
        return kept.value

    def _close(self) -> None:
        while self._handles:
            self._handles.pop().remove()
        for kept in self._kept.values():
            kept.settle()


def _value_of(leaf: Any) -> Any:
    return leaf.value if isinstance(leaf, _Grad) else None


class _Stop(BaseException):
    """Ends a forward. User code that catches every Exception lets it pass."""

    def __init__(self, owner: Capture) -> None:
        super().__init__("capture(stop_after=...) ends this forward")
        self.owner = owner


class Capture(Mapping[str, Any]):
    """What :func:`capture` took, by the paths of the modules that were called.

    ``acts[path]`` is the output of the last call, or its arguments if outputs are not captured.
    """

    def __init__(self, model: Any, what: Any, options: dict[str, Any], stop_after: Any) -> None:
        self._model, self._what = model, what
        self._options = options
        self._stop_after = stop_after
        found = selected(model, what)
        self._members = list(found)
        if not self._members and not found._missing_ok:
            raise LookupError(f"nothing to capture:\n{found!r}")
        self._calls: dict[str, list[Call]] = {}
        self._open: dict[str, list[Call]] = {}
        self._nbytes = 0
        self._thread = 0
        self._hooks = ExitStack()
        self.is_stopped = False

    # -- the block ---------------------------------------------------------------------------------

    def __enter__(self) -> Capture:
        if self._thread:
            raise RuntimeError("this capture is open already; make another one for a block in it")
        self._calls.clear()
        self._nbytes, self.is_stopped = 0, False
        with ExitStack() as stack:
            run_eagerly(stack)
            for path, module in self._members:
                if self._options["inputs"]:
                    attach(stack, path, module, self._before(path), before=True)
                if self._options["outputs"] or self._options["grads"]:
                    attach(stack, path, module, self._after(path))
            if self._stop_after is not None:
                for path, module in selected(self._model, self._stop_after)._found():
                    attach(stack, path, module, self._stop)
            self._hooks = stack.pop_all()
        self._thread = threading.get_ident()
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> bool:
        self._thread = 0
        self._hooks.close()
        self._open.clear()
        for calls in self._calls.values():
            for call in calls:
                call._close()
        return isinstance(value, _Stop) and value.owner is self

    def _is_ours(self) -> bool:
        return threading.get_ident() == self._thread

    def _before(self, path: str) -> Callable[..., None]:
        def before(module: Any, args: Any, kwargs: Any) -> None:
            if self._is_ours():
                call = Call(path)
                self._add(call, "inputs", (args, kwargs))
                if self._options["outputs"] or self._options["grads"]:
                    self._open.setdefault(path, []).append(call)

        return before

    def _after(self, path: str) -> Callable[..., None]:
        def after(module: Any, args: Any, kwargs: Any, output: Any) -> None:
            if self._is_ours():
                waiting = self._open.get(path)
                call = waiting.pop() if waiting else Call(path)
                if self._options["grads"]:
                    call._grads = self._listen(call, output)
                if self._options["outputs"]:
                    self._add(call, "outputs", output)
                elif not call._kept:
                    self._note(call)

        return after

    def _stop(self, module: Any, args: Any, kwargs: Any, output: Any) -> None:
        if self._is_ours():
            self.is_stopped = True
            raise _Stop(self)

    def _add(self, call: Call, what: str, value: Any) -> None:
        if not call._kept:
            self._note(call)
        call._kept[what] = kept = _Kept(value, self._keep)
        self._count(call, what, kept.nbytes)

    def _count(self, call: Call, what: str, nbytes: int) -> None:
        call.nbytes += nbytes
        self._nbytes += nbytes
        limit = self._options["max_bytes"]
        if limit is not None and self._nbytes > limit:
            raise RuntimeError(
                f"capture holds {self._nbytes:,} bytes with {what} of {call.path!r}, more than "
                f"max_bytes={limit:,}: keep='last', reduce= or fewer modules take less"
            )

    def _note(self, call: Call) -> None:
        calls = self._calls.setdefault(call.path, [])
        if self._options["keep"] == "last" and calls:
            self._nbytes -= calls[0].nbytes
            calls.pop()._close()
        calls.append(call)

    def _keep(self, tensor: Any) -> Any:
        family = family_of(tensor)
        if self._options["detach"] and family is not None:
            tensor = family.detach(tensor)
        if self._options["to"] is not None:
            tensor = tensor.to(self._options["to"])
        reduce = self._options["reduce"]
        return tensor if reduce is None else reduce(tensor)

    def _listen(self, call: Call, output: Any) -> Any:
        """Hooks on the gradients of what a module returned, and where they are put."""

        def place(tensor: Any) -> Any:
            found = _Grad()
            family = family_of(tensor)
            if family is not None and family.requires_grad(tensor):

                def take(grad: Any) -> None:
                    # Other hooks may change it in place through a tensor of their own.
                    found.value = self._keep(cloned(grad))
                    self._count(call, "grads", int(getattr(found.value, "nbytes", 0)))

                call._handles.append(tensor.register_hook(take))
            return found

        return map_tensors(output, place)

    # -- what was taken ----------------------------------------------------------------------------

    def calls(self, path: str) -> list[Call]:
        """All calls of a module that are kept, in their order.

        Raises:
            KeyError: The module was not called in the block, or is not selected.
        """
        if path in self._calls:
            return list(self._calls[path])
        if any(path == selected_path for selected_path, _ in self._members):
            raise KeyError(f"{path!r} was not called in the block")
        there = ", ".join(path for path, _ in self._members[:6])
        raise KeyError(f"{path!r} is not captured; the modules that are: {there}")

    @property
    def inputs(self) -> Mapping[str, Any]:
        """``(args, kwargs)`` of the last call of each module."""
        return _Last(self, lambda call: call._value("inputs"))

    @property
    def outputs(self) -> Mapping[str, Any]:
        """The output of the last call of each module."""
        return _Last(self, lambda call: call.output)

    @property
    def grads(self) -> Mapping[str, Any]:
        """The gradient of the output of the last call of each module."""
        return _Last(self, lambda call: call.grad)

    @property
    def nbytes(self) -> int:
        """The bytes of all tensors that are kept."""
        return self._nbytes

    def __getitem__(self, path: str) -> Any:
        if self._options["outputs"]:
            return self.outputs[path]
        return self.inputs[path] if self._options["inputs"] else self.grads[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._calls)

    def __len__(self) -> int:
        return len(self._calls)

    def __repr__(self) -> str:
        number = sum(len(calls) for calls in self._calls.values())
        text = f"{len(self)} of {len(self._members)} modules called, {number} calls"
        return f"Capture: {text}, {self.nbytes:,} bytes{', stopped' if self.is_stopped else ''}"


class _Last(Mapping[str, Any]):
    """Something of the last call of each module."""

    def __init__(self, owner: Capture, read: Callable[[Call], Any]) -> None:
        self._owner, self._read = owner, read

    def __getitem__(self, path: str) -> Any:
        return self._read(self._owner.calls(path)[-1])

    def __iter__(self) -> Iterator[str]:
        return iter(self._owner)

    def __len__(self) -> int:
        return len(self._owner)


def capture(
    model: Any,
    what: Any = "**",
    *,
    inputs: bool = False,
    outputs: bool = True,
    grads: bool = False,
    detach: bool = True,
    to: Any = None,
    reduce: Callable[[Any], Any] | None = None,
    keep: str = "all",
    max_bytes: int | None = None,
    stop_after: Any = None,
) -> Capture:
    """Takes what modules get and return, in the calls of this thread in a ``with`` block.

    The hooks are on the selected modules alone, behind those that are there, and are gone when the
    block ends. Code of ``torch.compile`` is not used meanwhile, since it does not run them.

    Args:
        model: A module of modtree or torch.
        what: The modules: what :func:`find` takes, or a selection.
        inputs: Whether to take the arguments, before ``forward`` runs.
        outputs: Whether to take what is returned.
        grads: Whether to take the gradients of what is returned, in a backward pass in the block.
        detach: Whether tensors are taken without their graph.
        to: The device that tensors are copied to, or their dtype.
        reduce: What is kept of a tensor: ``reduce(tensor)``.
        keep: ``"all"`` calls of a module, or the ``"last"`` one.
        max_bytes: The most bytes that may be kept; RuntimeError in the call that exceeds it.
        stop_after: A module, as ``what``, after which the forward ends; then so does the block.

    Raises:
        LookupError: Nothing matches.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> with mt.capture(net, "1") as acts:
    ...     _ = net(mt.ones(5, 3))
    >>> acts["1"].shape
    modtree.Size([5, 4])
    """
    if keep not in ("all", "last"):
        raise ValueError(f"keep: expected 'all' or 'last', got {keep!r}")
    if not (inputs or outputs or grads or stop_after is not None):
        raise ValueError("nothing to take: one of inputs=, outputs= and grads= must be true")
    options = {
        "inputs": inputs,
        "outputs": outputs,
        "grads": grads,
        "detach": detach,
        "to": to,
        "reduce": reduce,
        "keep": keep,
        "max_bytes": max_bytes,
    }
    return Capture(model, what, options, stop_after)
