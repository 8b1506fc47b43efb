# SPDX-License-Identifier: BSD-3-Clause
"""``find`` and ``find_parameters``: parts of a tree, to look at or to change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from modtree.core.families import family_of
from modtree.core.patterns import Machine, Patterns, texts_of
from modtree.editing import replacing, setting
from modtree.editing.grouping import ParamGroups, grouped
from modtree.editing.moving import remove
from modtree.editing.receipts import Receipt
from modtree.editing.reporting import why_no_instance, why_no_match
from modtree.editing.selected import Pairs, Selected
from modtree.editing.walking import (
    BUFFERS,
    PARAMETERS,
    below,
    check_model,
    joined,
    leaves_that_match,
    modules_that_match,
    registry,
)

_Where: TypeAlias = Callable[[str, Any], bool]
_KINDS = {"parameters": PARAMETERS, "buffers": BUFFERS, "all": PARAMETERS + BUFFERS}
_EVERY = ("", "**")


class Selection(Selected):
    """Modules of a tree, as :func:`find` found them.

    Each use searches again, so that a selection is of the tree as it is. ``&``, ``|`` and ``-``
    combine selections of one model. A change of an empty selection is a LookupError.
    """

    _what = "module"
    _note: Callable[[Receipt], Any] = staticmethod(lambda receipt: None)
    # The ids of the modules that were left out, with all below them.
    _barred: Callable[[], set[int]] = staticmethod(set)

    @property
    def modules(self) -> list[Any]:
        """The modules, in the order of the tree."""
        return [module for _, module in self._search()]

    def _order(self) -> Iterable[int]:
        return [id(module) for _, module in modules_that_match(self._model, Machine(_EVERY))]

    def _derived(self, search: Callable[[], Pairs], text: str, why: Callable[[], str]) -> Selection:
        made = super()._derived(search, text, why)
        made._note, made._barred = self._note, self._barred
        return made

    def _combined(self, other: Any, sign: str, search: Callable[[], Pairs]) -> Any:
        def barred() -> set[int]:
            left_out = self._barred() | (other._ids() if sign == "-" else other._barred())
            if sign == "|":  # what one of them left out, the other one may have
                left_out -= {id(module) for _, module in [*self._covered(), *other._covered()]}
            return left_out

        made = super()._combined(other, sign, search)
        if made is not NotImplemented:
            made._barred = barred
        return made

    def parents(self) -> Selection:
        """The modules that hold these directly."""

        def search() -> Pairs:
            wanted = self._ids()
            every = modules_that_match(self._model, Machine(_EVERY))
            return [
                (path, module)
                for path, module in every
                if any(id(child) in wanted for child in registry(module, "_modules").values())
            ]

        return self._derived(search, f"parents of {self._text}", self._why("nothing holds them"))

    def children(self) -> Selection:
        """The modules directly below these."""

        def search() -> Pairs:
            pairs = [
                (joined(path, name), child)
                for path, module in self._search()
                for name, child in registry(module, "_modules").items()
                if child is not None
            ]
            order = {key: i for i, key in enumerate(self._order())}
            first = {id(child): (path, child) for path, child in reversed(pairs)}
            return sorted(first.values(), key=lambda pair: order[id(pair[1])])

        return self._derived(search, f"children of {self._text}", self._why("nothing is in them"))

    def parameters(self) -> TensorSelection:
        """The parameters of these modules and of all below them, without those of modules that
        ``exclude`` or ``-`` left out.
        """
        return self._tensors("parameters")

    def buffers(self) -> TensorSelection:
        """The buffers of these modules and of all below them, in the same way."""
        return self._tensors("buffers")

    def _covered(self) -> Pairs:
        """These modules and all below them, without what was left out of the search."""
        return list(below(self._search(), self._barred()))

    def _tensors(self, kind: str) -> TensorSelection:
        def search() -> Pairs:
            found: dict[int, tuple[str, Any]] = {}
            for path, module in self._covered():
                for name, leaf in registry(module, f"_{kind}").items():
                    if leaf is not None:
                        found.setdefault(id(leaf), (joined(path, name), leaf))
            return list(found.values())

        text = f"{kind} of {self._text}"
        made = TensorSelection(self._model, search, text, self._why(f"no {kind} are in them"))
        made._missing_ok = self._missing_ok
        return made

    # -- changes -----------------------------------------------------------------------------------

    def replace(self, what: Any, *, like: bool = False) -> Receipt:
        """Puts other modules in place of these: all of them, or, if anything raises, none.

        A module that hangs at several places is replaced once, at all of them. Modules below other
        selected ones are replaced before those.

        Args:
            what: A function of path and module, which returns the new module, or the same one to
                leave it; a class, called without arguments; or a module, for one.
            like: Whether the new modules get the mode, the device and the hooks on calls of the old
                ones. ``handle.remove()`` of an old hook does not reach the copy.
        """
        members = self._found()
        return self._put("replace", replacing.maker_of(what, len(members)), members, like)

    def _put(self, kind: str, make: Any, members: Pairs, like: bool = False) -> Receipt:
        return self._noted(replacing.replace(self._model, members, make, like=like, kind=kind))

    def wrap(self, what: Callable[[Any], Any]) -> Receipt:
        """Puts ``what(module)`` in place of each module: a class, or a function of the module."""
        return self._put("wrap", lambda _, module: what(module), self._found())

    def unwrap(self, name: str | None = None) -> Receipt:
        """Puts the child of each module in its place: the only one, or the one of a name."""

        return self._put("unwrap", partial(replacing.only_child, name), self._found())

    def remove(self) -> Receipt:
        """Takes the modules out of the tree. The rest of a list or Sequential is renumbered."""
        return self._noted(remove(self._model, self._found()))

    # -- settings ----------------------------------------------------------------------------------

    def requires_grad_(self, requires_grad: bool = True) -> Receipt:
        """Switches the gradients of all :meth:`parameters` on or off."""
        return self._noted(self.parameters().requires_grad_(requires_grad))

    def train(self, mode: bool = True, *, frozen: bool = False) -> Receipt:
        """Sets the mode of these modules and of all below them, without modules that ``exclude`` or
        ``-`` left out.

        Args:
            mode: True for training, False for evaluation.
            frozen: Whether later calls of ``model.train()`` and ``model.eval()`` leave it, those of
                deep copies too. A pickle has the modes alone.
        """
        self._found()
        return self._noted(setting.set_training(self._model, self._covered(), mode, frozen=frozen))

    def init(self, fn: Callable[[Any], Any]) -> Selection:
        """Calls ``fn(parameter)``, such as a function of ``nn.init``, for each parameter of these
        modules and of all below them, without recording it. Returns the selection.
        """
        self.parameters().init(fn)
        return self

    def param_groups(self, **options: Any) -> ParamGroups:
        """One group for an optimizer, of the trainable parameters of these modules.

        Its ``left_over`` has the paths of all other trainable parameters of the model.
        """
        return self.parameters().param_groups(**options)

    def _noted(self, receipt: Receipt) -> Receipt:
        self._note(receipt)
        return receipt


class TensorSelection(Selected):
    """Parameters and buffers of a tree, as :func:`find_parameters` found them."""

    _what = "tensor"

    @property
    def tensors(self) -> list[Any]:
        """The tensors, in the order of the tree."""
        return [tensor for _, tensor in self._search()]

    def _order(self) -> Iterable[int]:
        every = leaves_that_match(self._model, Machine("**"), _KINDS["all"])
        return [id(tensor) for _, tensor in every]

    def requires_grad_(self, requires_grad: bool = True) -> Receipt:
        """Switches the gradients of these parameters on or off."""
        return setting.set_requires_grad(self._model, self._found(), requires_grad)

    def init(self, fn: Callable[[Any], Any]) -> TensorSelection:
        """Calls ``fn(tensor)`` for each one, without recording it, and returns the selection."""
        for _, tensor in self._found():
            family = family_of(tensor)
            context = None if family is None else family.no_grad()
            if context is None:
                fn(tensor)
            else:
                with context:
                    fn(tensor)
        return self

    def param_groups(self, **options: Any) -> ParamGroups:
        """One group for an optimizer, of those that are trainable.

        Its ``left_over`` has the paths of all other trainable parameters of the model.
        """
        every = leaves_that_match(self._model, Machine("**"))
        return grouped(every, [(self._text, self._found(), options)], None)


What: TypeAlias = "Patterns | type | Sequence[str | type] | Selection"


def find(
    model: Any,
    what: str | type | Iterable[str | type] = "**",
    *,
    within: Patterns | None = None,
    exclude: Patterns | None = None,
    where: _Where | None = None,
    missing_ok: bool = False,
) -> Selection:
    """Modules of a tree, by patterns on their paths or by class.

    In a pattern, ``*`` and ``?`` stay within a part of the path, and ``**`` is any number of parts.
    ``{q,k}`` is one of several texts, and ``layers[4:8]`` counts children. ``""`` is the model
    itself; ``"encoder.**"`` is all below the encoder.

    Args:
        model: A module of modtree or torch.
        what: A pattern, a class, or several of them.
        within: Patterns: only what matches one, and all that is below that.
        exclude: Patterns: nothing that matches one, nor what is below that.
        where: A function of path and module: those of which it returns True.
        missing_ok: Whether a change of what was found may find nothing, and then changes nothing;
            it is a LookupError else, which says what there is instead.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> mt.find(net, nn.Linear).paths
    ['0', '2']
    >>> mt.find(net, "[1:]")
    2 modules of Sequential: '[1:]'
      Sequential
        1: ReLU  <--
        2: Linear  <--
    """
    check_model(model)
    each: list[Any] = [what]
    if isinstance(what, Iterable) and not isinstance(what, (str, type)):
        each = list(what)
    within, exclude = _kept(within), _kept(exclude)
    classes = tuple(one for one in each if isinstance(one, type))
    patterns = texts_of(one for one in each if not isinstance(one, type))

    def matching(*filters: Patterns | None) -> Callable[[], Pairs]:
        named, every = Machine(patterns, *filters), Machine(_EVERY, *filters)

        def search() -> Pairs:
            found = modules_that_match(model, named) if patterns else []
            if classes:
                ids = {id(module) for _, module in found}
                pairs = modules_that_match(model, every)
                found = [p for p in pairs if isinstance(p[1], classes) or id(p[1]) in ids]
            return found

        return search

    def reason() -> str:
        reasons = [why_no_match(model, patterns)] if patterns else []
        return "; ".join(reasons + ([why_no_instance(model, classes)] if classes else []))

    def barred() -> set[int]:
        kept = modules_that_match(model, Machine(_EVERY, None, exclude))
        left = {id(module) for _, module in below([("", model)])}
        return left.difference(id(module) for _, module in kept)

    made = _searches(matching(within, exclude), matching(), where, "module", reason)
    found = Selection(model, made[0], _text(each, within, exclude, where), made[1])
    found._missing_ok = missing_ok
    if exclude is not None:
        found._barred = barred
    return found


def _searches(
    every: Callable[[], Pairs],
    unfiltered: Callable[[], Pairs],
    where: _Where | None,
    noun: str,
    reason: Callable[[], str],
) -> tuple[Callable[[], Pairs], Callable[[], str]]:
    """A search, and what says why it found nothing.

    Args:
        every: What matches, before ``where``.
        unfiltered: What would match without ``within`` and ``exclude``.
        where: Which of it is wanted.
        noun: What it is.
        reason: Says why nothing matches.
    """

    def search() -> Pairs:
        return every() if where is None else [pair for pair in every() if where(*pair)]

    def why_empty() -> str:
        for find_all, rest in (
            (every, "none of which where= accepts"),
            (unfiltered, "all left out by within= or exclude="),
        ):
            number = len(find_all())
            if number:
                return f"{number} {noun}{' was' if number == 1 else 's were'} found, {rest}"
        return reason()

    return search, why_empty


def _kept(patterns: Patterns | None) -> Patterns | None:
    """Patterns that can be read several times."""
    return patterns if patterns is None or isinstance(patterns, str) else texts_of(patterns)


def find_parameters(
    model: Any,
    what: Patterns = "**",
    *,
    kind: str = "parameters",
    within: Patterns | None = None,
    exclude: Patterns | None = None,
    where: _Where | None = None,
    missing_ok: bool = False,
) -> TensorSelection:
    """Parameters of a tree, by patterns on their paths, as :func:`find` has them.

    Args:
        model: A module of modtree or torch.
        what: A pattern, or several.
        kind: ``"parameters"``, ``"buffers"`` or ``"all"``.
        within: Patterns: only what matches one, and all that is below that.
        exclude: Patterns: nothing that matches one, nor what is below that.
        where: A function of path and tensor: those of which it returns True.
        missing_ok: As for :func:`find`.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> mt.find_parameters(net, "**.bias").paths
    ['0.bias', '2.bias']
    """
    check_model(model)
    if kind not in _KINDS:
        raise ValueError(f"kind: expected 'parameters', 'buffers' or 'all', got {kind!r}")
    patterns, within, exclude = texts_of(what), _kept(within), _kept(exclude)
    tables = _KINDS[kind]

    def matching(*filters: Patterns | None) -> Callable[[], Pairs]:
        return partial(leaves_that_match, model, Machine(patterns, *filters), tables)

    def reason() -> str:
        return why_no_match(model, patterns, tables)

    made = _searches(matching(within, exclude), matching(), where, "tensor", reason)
    found = TensorSelection(model, made[0], _text(patterns, within, exclude, where), made[1])
    found._missing_ok = missing_ok
    return found


def param_groups(
    model: Any,
    groups: Mapping[Any, Mapping[str, Any]],
    *,
    rest: Mapping[str, Any] | None = {},  # noqa: B006  # never changed
) -> ParamGroups:
    """Groups for an optimizer: each trainable parameter once, in the first group that has it.

    A group has a key ``name``, its pattern. The result's ``left_over`` lists what is in no group.

    Args:
        model: A module of modtree or torch.
        groups: The options of each group. A key is a pattern on the paths of parameters or
            modules, a selection, or a tuple of patterns.
        rest: The options of a last group with all other trainable parameters; None leaves them out.

    Raises:
        ValueError: Nothing matches a key.
        LookupError: A selection is empty.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> mt.param_groups(net, {"**.bias": dict(weight_decay=0.0), "2": dict(lr=0.01)})
    ParamGroups: 3 groups
      **.bias: 2 parameters (0.bias, 2.bias), weight_decay=0.0
      2: 1 parameter (2.weight), lr=0.01
      left over: 1 parameter (0.weight)
    """
    made = []
    for key, options in groups.items():
        if isinstance(key, Selection):
            leaves: TensorSelection = key.parameters()
        elif isinstance(key, TensorSelection):
            leaves = key
        else:
            leaves = find_parameters(model, "**", within=key)
            if not len(leaves):
                raise ValueError(
                    f"param_groups: no parameter matches {key!r}: "
                    f"{why_no_match(model, key, PARAMETERS)}"
                )
        name = key if isinstance(key, str) else leaves._text
        made.append((name, leaves._found(), options))
    every = leaves_that_match(check_model(model), Machine("**"))
    return grouped(every, made, rest)


def selected(model: Any, what: Any, **options: Any) -> Selection:
    """A selection of a model, made of what :func:`find` takes if it is not one already.

    Raises:
        ValueError: It is a selection of another model.
    """
    if not isinstance(what, Selection):
        return find(model, what, **options)
    if what._model is not model:
        raise ValueError("the selection is of another model")
    return what


def _text(what: Sequence[str | type], within: Any, exclude: Any, where: Any) -> str:
    names = [one.__name__ if isinstance(one, type) else repr(one) for one in what]
    more = [f"within={within!r}"] if within is not None else []
    more += [f"exclude={exclude!r}"] if exclude is not None else []
    more += [f"where={getattr(where, '__name__', '...')}"] if where is not None else []
    return ", ".join([" | ".join(names), *more])
