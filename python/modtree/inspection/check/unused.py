# SPDX-License-Identifier: BSD-3-Clause
"""Parameters that a forward does not touch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from modtree.core.families import family_of
from modtree.editing.walking import registry
from modtree.editing.wrappers import calls_unseen, is_sharded
from modtree.inspection.check.hidden import modules_in_attributes
from modtree.inspection.check.look import Finding, Held, Look, topmost
from modtree.inspection.dry_run import call_model
from modtree.inspection.forward import Recorder, tensors_of
from modtree.inspection.phrases import noun
from modtree.inspection.tree import Node, every_node
from modtree.inspection.unchanged import Modes, keeps_buffers, keeps_random_states, libraries

# Steps of a graph at which gradients end although values go on: a checkpoint that runs a backward
# of its own inside, which only `backward()` of the whole would start (that would write gradients,
# and run hooks that take optimizer steps), and operations without a derivative.
_ENDS = ("CheckpointFunctionBackward", "WarnNotImplemented", "NotImplemented")

_UNUSED_HINT = (
    "use it in forward or remove it; this is expected if other inputs take another path, as in a "
    "mixture of experts"
)


def unused(look: Look, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Finding]:
    """Findings ``unused-parameter`` and ``made-in-forward``.

    A parameter is used when a gradient of the outputs reaches it. Where that cannot be asked, of
    frozen or sharded parameters for instance, it is when its module or the module around that is
    called, or one around it that calls what is below in its own way.

    Args:
        look: The model.
        args: Positional arguments of its forward.
        kwargs: Arguments by name.
    """
    seen = _Seen(look)
    seen.run(args, kwargs, training=False)
    if seen.missing() and getattr(look.tree.module, "training", False):
        # What works in training only, such as a second head, is used as well.
        seen.run(args, kwargs, training=True)
    missing = {id(held.tensor) for held in seen.missing()}
    yield from _by_module(look, missing, seen)
    yield from _strangers(look, seen)


class _Seen:
    """What the forwards so far have used."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._parents = {id(c.module): n for n in look.nodes for c in n.children}
        parameters = [h for h in look.held if h.leaf.kind == "parameter"]
        self._unseen = [n for n in look.nodes if calls_unseen(n.module)]
        sharded = {
            id(below.module)
            for node in look.nodes
            if is_sharded(node.module)
            for below in every_node(node)
        }
        self._trainable: list[Any] = []
        self._doubtful: list[Any] = []
        for held in parameters:
            is_asked = held.leaf.requires_grad and id(held.node.module) not in sharded
            (self._trainable if is_asked else self._doubtful).append(held)
        self._reached: set[int] = set()
        self._has_gradients = False
        self.called: dict[int, Any] = {}
        self.hidden = modules_in_attributes(look)

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any], training: bool) -> None:
        """One forward, and where its gradients go."""
        modes = Modes()
        try:
            with keeps_random_states(), keeps_buffers(self._modules()):
                if not training:
                    for module in self._modules():
                        modes.evaluate(module)
                recorder, output = self._call(args, kwargs, None if training else modes)
                self.called |= {key: call.module for key, call in recorder.calls.items()}
                self._follow(list(tensors_of(output)))
        except RuntimeError:
            if not training:
                raise
        finally:
            modes.restore()

    def _modules(self) -> list[Any]:
        """Those of the tree, and those in attributes, whose buffers a forward may write too."""
        in_tree = {id(node.module): node.module for node in self._look.nodes}
        return list((self.hidden | in_tree).values())

    def _call(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], modes: Modes | None
    ) -> tuple[Recorder, Any]:
        with contextlib.ExitStack() as contexts:
            for library in libraries().values():
                contexts.enter_context(library.enable_grad())
            return call_model(self._look.tree, args, kwargs, modes)

    def _follow(self, outputs: list[Any]) -> None:
        """Notes the parameters to which gradients of the outputs go."""
        for name, library in libraries().items():
            ends = [tensor for tensor in outputs if _is_derived(name, tensor)]
            starts = [held.tensor for held in self._trainable if held.family.name == name]
            if ends and starts and not _have_other_ends(ends):
                ones = [library.ones_like(end) for end in ends]
                grads = library.autograd.grad(ends, starts, ones, allow_unused=True)
                self._has_gradients = True
                reached = zip(starts, grads, strict=True)
                self._reached |= {id(start) for start, found in reached if found is not None}

    def missing(self) -> list[Held]:
        """The parameters that nothing has used."""
        doubtful = self._doubtful if self._has_gradients else self._doubtful + self._trainable
        found = [held for held in doubtful if not self._may_be_used(held)]
        if self._has_gradients:
            found += [held for held in self._trainable if id(held.tensor) not in self._reached]
        return found

    def _may_be_used(self, held: Held) -> bool:
        parent = self._parents.get(id(held.node.module))
        around = [] if parent is None else [parent]
        path = held.node.path
        around += [n for n in self._unseen if not n.path or f"{path}.".startswith(f"{n.path}.")]
        return any(id(node.module) in self.called for node in (held.node, *around))


def _have_other_ends(ends: list[Any]) -> bool:
    """True if gradients end at a step although values go on."""
    waiting, seen = [end.grad_fn for end in ends], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node.name().rpartition("::")[2] in _ENDS:
            return True
        waiting += [function for function, _ in node.next_functions]
    return False


def _is_derived(name: str, tensor: Any) -> bool:
    family: Any = family_of(tensor)
    return family.name == name and family.has_grad_fn(tensor)


def _by_module(look: Look, missing: set[int], seen: _Seen) -> Iterator[Finding]:
    """Findings for whole modules where that is possible, else for single parameters."""

    def own(node: Node) -> list[tuple[str, bool]]:
        table = registry(node.module, "_parameters")
        leaves = [leaf for leaf in node.leaves if leaf.kind == "parameter"]
        return [(leaf.path, id(table.get(leaf.name)) in missing) for leaf in leaves]

    whole = [
        node
        for node in topmost(look.tree, lambda node: all(is_missing for _, is_missing in own(node)))
        if any(own(below) for below in every_node(node))
    ]
    for node in whole:
        count = sum(len(own(below)) for below in every_node(node))
        was_called = id(node.module) in seen.called
        yield Finding(
            node.path,
            "unused-parameter",
            f"no output of this example depends on {noun(count, 'parameter')} of this "
            f"{node.type_name}" + ("" if was_called else ", which is not called"),
            _UNUSED_HINT,
        )
    done = {id(below) for node in whole for below in every_node(node)}
    for node in look.nodes:
        for path, is_missing in own(node) if id(node) not in done else ():
            if is_missing:
                yield Finding(
                    path,
                    "unused-parameter",
                    f"no output of this example depends on this parameter of {node.type_name}",
                    _UNUSED_HINT,
                )


def _strangers(look: Look, seen: _Seen) -> Iterator[Finding]:
    """Modules with parameters that were called but are neither in the tree nor in an attribute."""
    known = look.modules_in_tree | seen.hidden.keys()
    names = {
        type(module).__name__
        for key, module in seen.called.items()
        if key not in known and len(registry(module, "_parameters"))
    }
    for name in sorted(names):
        yield Finding(
            "",
            "made-in-forward",
            f"forward calls a {name} with parameters of its own that is in no attribute of the "
            f"model: a new one at each call has new random values, and is never trained",
            "make it in the constructor, and assign it to an attribute",
        )
