# SPDX-License-Identifier: BSD-3-Clause
"""Functions and generators that run inside of a context."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any


def decorate(make: Callable[[], Any], function: Any) -> Any:
    """A function (or generator function) that runs inside a fresh context, of ``make()``."""
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generator(*args: Any, **kwargs: Any) -> Any:
            with make():
                iterator = function(*args, **kwargs)
            # The context holds while the generator runs, not while its consumer does.
            resume: Callable[[], Any] = functools.partial(next, iterator)
            while True:
                try:
                    with make():
                        item = resume()
                except StopIteration as stop:
                    return stop.value
                try:
                    resume = functools.partial(iterator.send, (yield item))
                except GeneratorExit:
                    with make():
                        iterator.close()
                    raise
                except BaseException as error:
                    resume = functools.partial(iterator.throw, error)

        return generator

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with make():
            return function(*args, **kwargs)

    return wrapper
