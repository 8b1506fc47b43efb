# SPDX-License-Identifier: BSD-3-Clause
"""The Kullback-Leibler divergence of two distributions, by formulas for pairs of classes.

The formulas are in files of their own: those within one family, and those across families.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from modtree.distributions.distribution import Distribution

__all__ = ["kl_divergence", "register_kl"]

#: (class of p, class of q) -> formula.
_formulas: dict[tuple[type, type], Callable[[Any, Any], Any]] = {}
#: The formulas that were found for pairs of classes.
_found: dict[tuple[type, type], Callable[[Any, Any], Any] | None] = {}


def register_kl(type_p: Any, type_q: Any) -> Callable[[Any], Any]:
    """Decorates a formula ``f(p, q)`` of the divergence for two classes and their subclasses.

    Of several that fit, the one of the most derived class is used, that of p first.

    Args:
        type_p: The class of p.
        type_q: The class of q.
    """
    for name, cls in (("type_p", type_p), ("type_q", type_q)):
        if not (isinstance(cls, type) and issubclass(cls, Distribution)):
            raise TypeError(f"Expected {name} to be a Distribution subclass but got {cls}")

    def decorate(function: Any) -> Any:
        _formulas[type_p, type_q] = function
        _found.clear()
        return function

    return decorate


def _distance(cls: type, base: type) -> int:
    return cls.__mro__.index(base)


def _find(type_p: type, type_q: type) -> Callable[[Any, Any], Any] | None:
    fitting = [(p, q) for p, q in _formulas if issubclass(type_p, p) and issubclass(type_q, q)]
    if not fitting:
        return None

    def by_p(pair: tuple[type, type]) -> tuple[int, int]:
        return _distance(type_p, pair[0]), _distance(type_q, pair[1])

    def by_q(pair: tuple[type, type]) -> tuple[int, int]:
        return _distance(type_q, pair[1]), _distance(type_p, pair[0])

    first, second = min(fitting, key=by_p), min(fitting, key=by_q)
    if _formulas[first] is not _formulas[second]:
        left, right = (f"{p.__name__}, {q.__name__}" for p, q in (first, second))
        warnings.warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). Please "
            f"register_kl({first[0].__name__}, {second[1].__name__}): both ({left}) and ({right}) "
            f"fit",
            RuntimeWarning,
            stacklevel=4,
        )
    return _formulas[first]


def kl_divergence(p: Any, q: Any) -> Any:
    """The Kullback-Leibler divergence of p from q: the mean of log(p(x) / q(x)) over samples of p.

    Args:
        p: A distribution.
        q: Another.

    Raises:
        NotImplementedError: There is no formula for their classes.
    """
    pair = type(p), type(q)
    if pair not in _found:
        _found[pair] = _find(*pair)
    formula = _found[pair]
    if formula is None:
        raise NotImplementedError(
            f"No KL(p || q) is implemented for p type {pair[0].__name__} and q type "
            f"{pair[1].__name__}: register_kl() adds one"
        )
    return formula(p, q)
