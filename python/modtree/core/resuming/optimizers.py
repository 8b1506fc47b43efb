# SPDX-License-Identifier: BSD-3-Clause
"""``optimizer_state()`` and ``load_optimizer_state()``."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from modtree.core import families
from modtree.core.loading import failures
from modtree.core.loading.mismatch import KnownShape, Mismatch, Shape, shape_of
from modtree.core.loading.rename import Rename
from modtree.core.loading.report import LoadReport
from modtree.core.resuming.names import (
    OwnParameter,
    SavedParameter,
    may_be_of,
    names_by_group,
    own_parameters,
    saved_parameters,
    shapes_in,
)

#: How a step is computed, which is a matter of the machine and the version.
_IMPLEMENTATION = {"foreach", "fused", "capturable", "differentiable"}
#: What groups have beside the options of a kind of optimizer, or only in newer versions.
_NOT_TELLING = {*_IMPLEMENTATION, "maximize", "decoupled_weight_decay", "initial_lr"}
_OF_PARAMETERS = {"params", "param_names"}
#: A key of load_file(): the number of the parameter, and what is kept of it.
_FLAT = re.compile(r"state\.([0-9]+)\.([^.]+)$")
#: Options that need an entry of the state.
_NEEDED = {"amsgrad": "max_exp_avg_sq", "centered": "grad_avg"}


def optimizer_state(optimizer: Any, model: Any = None) -> dict[str, Any]:
    """``optimizer.state_dict()`` with the names of the parameters, by which
    :func:`load_optimizer_state` finds them again. Every optimizer of the same kind loads it too.

    Args:
        optimizer: An optimizer of modtree or torch.
        model: The model that it trains. Not needed where the optimizer was made of
            ``model.named_parameters()``.

    Raises:
        ValueError: A parameter of the optimizer is not in the model, or the model is needed.

    Example:
        >>> import modtree as mt
        >>> net = mt.nn.Linear(2, 1)
        >>> optimizer = mt.optim.Adam(net.parameters())
        >>> mt.optimizer_state(optimizer, net)["param_groups"][0]["param_names"]
        ['weight', 'bias']
    """
    names = names_by_group(optimizer, model)
    state_dict = optimizer.state_dict()
    groups = [
        {**group, "param_names": own}
        for group, own in zip(state_dict["param_groups"], names, strict=True)
    ]
    return {**state_dict, "param_groups": groups}


def load_optimizer_state(
    optimizer: Any,
    state_dict: Mapping[str, Any],
    *,
    model: Any = None,
    names: Any = None,
    rename: Rename | None = None,
    options: Iterable[str] = (),
    partial: bool = False,
    dry_run: bool = False,
) -> LoadReport:
    """Gives each parameter of an optimizer what was saved for the parameter of its name, wherever
    it is now: in another order, in another group, in a model with other modules.

    The optimizer keeps its groups and their options. Momenta and counters come from the state,
    whose tensors become the optimizer's own where dtype and device fit, as in
    ``optimizer.load_state_dict``.

    Args:
        optimizer: An optimizer of modtree or torch.
        state_dict: What ``optimizer.state_dict()`` or :func:`optimizer_state` gave; or what
            ``load_file(path, at="optimizer")`` read.
        model: The model that the optimizer trains. Not needed where the optimizer was made of
            ``model.named_parameters()``; tied parameters are then known under one name alone.
        names: For a state without names: the state dict of the model that was saved beside it, for
            an optimizer that got ``model.parameters()``; or a list of the names in their order. The
            state dict also tells the shapes that parameters had, which states may not tell.
        rename: What became of the names, as in ``load_state_dict``.
        options: The names of options whose values are taken from the saved group of a group's
            parameters, such as ``["lr"]``; "all" for all but those that say how a step is computed
            (``foreach``, ``fused``, ``capturable``, ``differentiable``).
        partial: Load what fits. Other parameters keep the state that they have.
        dry_run: Only return the report.

    Returns:
        A report: ``loaded`` has the names of the parameters that got what was saved for them,
        ``skipped`` says why other names of the state did not go anywhere, and ``missing_keys`` are
        the parameters for which it has nothing.

    Raises:
        ValueError: The state does not fit, is that of another kind of optimizer, or does not tell
            which parameter is which. The optimizer is unchanged.

    Example:
        >>> import modtree as mt
        >>> net = mt.nn.Linear(2, 1)
        >>> optimizer = mt.optim.SGD(net.named_parameters(), momentum=0.9)
        >>> state = mt.optimizer_state(optimizer)
        >>> wrapped = mt.nn.Sequential(net)
        >>> optimizer = mt.optim.SGD(wrapped.named_parameters(), momentum=0.9)
        >>> print(mt.load_optimizer_state(optimizer, state, rename={"": "0."}))
        2 of 2 entries fit
    """
    state_dict = _nested(state_dict)
    _check_form(state_dict)
    _check_kind(optimizer, state_dict)
    own = own_parameters(optimizer, model)
    saved = saved_parameters(state_dict, names, model, rename)
    match = _Match(optimizer, state_dict, own, saved)
    taken = match.options(options)
    report = match.report(taken)
    if not report.is_complete and not partial and not dry_run:
        raise ValueError(
            f"the state does not fit the optimizer, which is unchanged: {report}\n"
            f"{_advice(match, report)}"
        )
    if not dry_run:
        _load(optimizer, match, report, taken)
    return report


def _nested(state_dict: Any) -> Any:
    """The state dict of which ``load_file()`` has read the parts, each under a key of its own."""
    is_flat = isinstance(state_dict, Mapping) and "param_groups" in state_dict
    if not is_flat or "state" in state_dict:
        return state_dict
    state: dict[int, dict[str, Any]] = {}
    for key, value in state_dict.items():
        match = _FLAT.match(key) if isinstance(key, str) else None
        if match is not None:
            state.setdefault(int(match[1]), {})[match[2]] = value
        elif key != "param_groups":
            return state_dict
    return {"state": state, "param_groups": state_dict["param_groups"]}


def _check_form(state_dict: Any) -> None:
    if not isinstance(state_dict, Mapping):
        raise TypeError(
            f"expected the state dict of an optimizer, got {type(state_dict).__name__}: pass what "
            "optimizer.state_dict() gave"
        )
    if not all(name in state_dict for name in ("state", "param_groups")):
        inside = [
            name
            for name, value in state_dict.items()
            if isinstance(value, Mapping) and "param_groups" in value
        ]
        where = f"it has one under {inside[0]!r}" if inside else "is it that of a model?"
        raise ValueError(
            "expected the state dict of an optimizer, with 'state' and 'param_groups', got a "
            f"mapping with {', '.join(map(repr, list(state_dict)[:4])) or 'nothing'}: {where}"
        )


def _check_kind(optimizer: Any, state_dict: Mapping[str, Any]) -> None:
    if not state_dict["state"]:
        return
    own = set(getattr(optimizer, "defaults", None) or optimizer.param_groups[0])
    saved = {name for group in state_dict["param_groups"] for name in group}
    lacking = sorted(own - saved - _NOT_TELLING - _OF_PARAMETERS)
    foreign = sorted(saved - own - _NOT_TELLING - _OF_PARAMETERS)
    if lacking and foreign:
        raise ValueError(
            f"the state is that of another kind of optimizer than {type(optimizer).__name__}: its "
            f"groups have {', '.join(map(repr, foreign))} and do not have "
            f"{', '.join(map(repr, lacking))}"
        )


class _Match:
    """Which parameter of an optimizer gets what of a saved state."""

    def __init__(
        self,
        optimizer: Any,
        state_dict: Mapping[str, Any],
        own: dict[str, OwnParameter],
        saved: dict[str, SavedParameter],
    ) -> None:
        self.own = own
        self.saved = saved
        self.groups = optimizer.param_groups
        self.state_dict = state_dict
        #: Names of the optimizer, and the saved name of each.
        self.pairs: dict[str, str] = {}
        #: Saved names whose parameter has got the state of another.
        self.second: dict[str, str] = {}
        self._pair()

    def _pair(self) -> None:
        by_alias = {alias: name for name, one in self.own.items() for alias in one.aliases}
        self.pairs = {name: name for name in self.saved if name in self.own}
        for name in self.saved:
            target = by_alias.get(name)
            if name in self.pairs or target is None:
                continue
            if target in self.pairs:
                self.second[name] = target
            else:
                self.pairs[target] = name

    def entry(self, saved_name: str) -> Any:
        return self.state_dict["state"].get(self.saved[saved_name].key)

    def is_whole(self) -> bool:
        """True if one state is that of all parameters together, as LBFGS keeps it."""
        return any(
            isinstance(e, Mapping) and "func_evals" in e for e in map(self.entry, self.saved)
        )

    def report(self, taken: list[dict[str, Any]]) -> LoadReport:
        skipped = {}
        targets = {saved: name for name, saved in self.pairs.items()}
        whole = self._why_not_whole() if self.is_whole() else None
        for saved in self.saved:
            if saved in targets:
                why = whole or self._why_not(targets[saved], saved, taken)
            elif saved in self.second:
                why = (
                    f"it is one parameter with {self.second[saved]!r} now, which got the state of "
                    "that name"
                )
            else:
                why = "the optimizer has no parameter of this name"
            if why is not None:
                skipped[saved] = why
        return LoadReport(
            loaded=[n for n in self.own if n in self.pairs and self.pairs[n] not in skipped],
            skipped=skipped,
            missing_keys=[n for n in self.own if n not in self.pairs],
            unexpected_keys=[n for n in self.saved if n not in targets and n not in self.second],
        )

    def _why_not(self, name: str, saved_name: str, taken: list[dict[str, Any]]) -> str | None:
        """Why the state of a saved parameter does not fit one of the optimizer."""
        own, entry = self.own[name], self.entry(saved_name)
        shape = shape_of(own.tensor)
        saved_shape = self.saved[saved_name].shape
        if saved_shape is not None and saved_shape != shape:
            return f"its shape is {list(saved_shape)}, that of the parameter {list(shape or ())}"
        if not isinstance(entry, Mapping) or not entry:
            return None
        if saved_shape is None and not may_be_of(entry, shape):
            shapes = " and ".join(str(list(s)) for s in dict.fromkeys(shapes_in(entry)))
            return f"its state has the shape {shapes}, the parameter {list(shape or ())}"
        options = self.groups[own.group] | taken[own.group]
        for option, needed in _NEEDED.items():
            if options.get(option) and needed not in entry:
                return f"its state does not have {needed!r}, which {option}=True needs"
        if options.get("momentum") and "square_avg" in entry and "momentum_buffer" not in entry:
            return "its state does not have 'momentum_buffer', which momentum needs"
        return None

    def _why_not_whole(self) -> str | None:
        entries = [entry for entry in map(self.entry, self.saved) if isinstance(entry, Mapping)]
        total = sum(map(_numbers_in, (one.tensor for one in self.own.values())))
        sizes = {shape for entry in entries for shape in shapes_in(entry)}
        order = [name for name in self.own if name in self.pairs]
        if list(self.own) != order or [self.pairs[name] for name in order] != list(self.saved):
            return "the state is one for all parameters together, which are others or elsewhere now"
        if sizes - {(total,)}:
            return "the state is one for all parameters together, whose sizes are others now"
        return None

    def options(self, wanted: Iterable[str]) -> list[dict[str, Any]]:
        """What each group takes of the saved ones.

        Raises:
            ValueError: A saved group does not have an option, or several have it with different
                values.
        """
        wanted = wanted if isinstance(wanted, str) else list(wanted)
        taken: list[dict[str, Any]] = [{} for _ in self.groups]
        saved_groups = self.state_dict["param_groups"]
        for i, found in enumerate(taken):
            numbers = dict.fromkeys(
                self.saved[saved].group
                for name, saved in self.pairs.items()
                if self.own[name].group == i
            )
            sources = [saved_groups[number] for number in numbers]
            if not sources:
                continue
            for option in _asked(wanted, sources):
                absent = [n for n in numbers if option not in saved_groups[n]]
                if absent:
                    known = sorted(set(saved_groups[absent[0]]) - _OF_PARAMETERS)
                    raise ValueError(
                        f"group {absent[0]} of the saved state does not have the option {option!r}"
                        f", but {', '.join(map(repr, known))}"
                    )
                values = [source[option] for source in sources]
                if not all(_is_same(values[0], value) for value in values):
                    raise ValueError(
                        f"the parameters of group {i} were in several groups with different values "
                        f"of {option!r}: {', '.join(map(repr, values))}. Set it in the groups of "
                        "the optimizer"
                    )
                found[option] = values[0]
        return taken


def _numbers_in(tensor: Any) -> int:
    family = families.family_of(tensor)
    parts = 2 if family is not None and family.is_complex(tensor) else 1
    return parts * math.prod(shape_of(tensor) or ())


def _asked(wanted: Iterable[str], sources: list[Mapping[str, Any]]) -> list[str]:
    if isinstance(wanted, str):
        if wanted != "all":
            return [wanted]
        return [
            name
            for name in sources[0]
            if name not in _IMPLEMENTATION | _OF_PARAMETERS
            and all(name in source for source in sources)
        ]
    return [name for name in wanted if name not in _OF_PARAMETERS]


def _is_same(value: Any, other: Any) -> bool:
    return value is other or (type(value) is type(other) and bool(value == other))


def _advice(match: _Match, report: LoadReport) -> str:
    """What to try where names do not match, or not all of the state fits."""
    own: dict[str, Shape] = {name: shape_of(one.tensor) for name, one in match.own.items()}
    given = {name: KnownShape(_known_shape(match, name)) for name in match.saved}
    found = Mismatch(report.missing_keys, report.unexpected_keys, {}, given, own)
    advice = None
    if report.missing_keys and report.unexpected_keys:
        advice = failures.tool().explain_names(found)
    return advice or "To load what fits: partial=True. To say what became of names: rename="


def _known_shape(match: _Match, saved_name: str) -> Shape:
    entry, shape = match.entry(saved_name), match.saved[saved_name].shape
    if shape is not None or not isinstance(entry, Mapping):
        return shape
    shapes = set(shapes_in(entry))
    return shapes.pop() if len(shapes) == 1 else None


def _load(optimizer: Any, match: _Match, report: LoadReport, taken: list[dict[str, Any]]) -> None:
    """Loads what the report calls loaded. If that fails, the optimizer is as it was."""
    numbers = {id(one.tensor): one.number for one in match.own.values()}
    groups = []
    for group, new in zip(optimizer.param_groups, taken, strict=True):
        packed = {name: value for name, value in group.items() if name != "params"}
        groups.append(packed | new | {"params": [numbers[id(p)] for p in group["params"]]})
    state: dict[Any, Any] = {}
    for name in report.loaded:
        own, entry = match.own[name], match.entry(match.pairs[name])
        if entry is not None:
            state[own.number] = _of_library(entry, own.tensor)
    if report.is_complete:
        known = {one.key for one in match.saved.values()}
        state |= {
            key: value
            for key, value in match.state_dict["state"].items()
            if key not in known and isinstance(key, str)
        }
    loaded = set(report.loaded)
    others = [one.tensor for name, one in match.own.items() if name not in loaded]
    kept = [(p, optimizer.state[p]) for p in others if p in optimizer.state]
    before = dict(vars(optimizer))
    try:
        optimizer.load_state_dict({"state": state, "param_groups": groups})
        for p, own_state in kept:
            optimizer.state[p] = own_state
    except BaseException:
        vars(optimizer).clear()
        vars(optimizer).update(before)
        raise


def _of_library(value: Any, parameter: Any) -> Any:
    """The values of a state as tensors of the library of their parameter."""
    if isinstance(value, Mapping):
        return {name: _of_library(one, parameter) for name, one in value.items()}
    own, other = families.family_of(parameter), families.family_of(value)
    if own is None or other is None or own is other:
        return value
    return own.converted(value)
