# SPDX-License-Identifier: BSD-3-Clause
"""Objects of a file whose classes are not looked for: what the file says of each. The unpickler
here reads a pickle whole whatever it names, with such stand-ins for objects that are not plain.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from modtree.files.pickled.unpickle import Refused, Unfinished, Unpickler

_LONGEST = 160  # letters of an object
_MOST = 6  # parts that are shown
_DEEPEST = 3
#: Types of what may have stand-ins in it, besides dicts.
_HOLDERS = (list, tuple, set, frozenset)
#: The attributes by which a pickled module of torch is known.
_OF_MODULES = ("_parameters", "_buffers", "_modules")
_OF_PYTHON_2 = ("__builtin__", "exceptions")
#: What a pickle calls to make an object of the class that is the first argument.
_CONSTRUCTORS = frozenset(
    f"{module}.{name}"
    for module in ("copyreg", "copy_reg")
    for name in ("_reconstructor", "__newobj__", "__newobj_ex__")
)


class StandIn:
    """Stands for an object whose class is not imported: a name of a file, or what calling it made.
    Nothing of it is executed.

    Attributes:
        kind: The full name of the class or function, such as "argparse.Namespace".
        is_called: False for the name itself.
        args: The arguments of the call.
        state: What the file gives the object as its state, a dict of attributes as a rule.
        items: What the file appends or adds to it.
        pairs: What the file sets as its items.
        text: What it is in words, where that is known; else "".
    """

    __slots__ = ("args", "is_called", "items", "kind", "pairs", "state", "text")
    is_stand_in = True

    def __init__(self, kind: str, args: tuple[Any, ...] | None = None) -> None:
        home, dot, name = kind.partition(".")
        self.kind = f"builtins.{name}" if dot and home in _OF_PYTHON_2 else kind
        self.is_called = args is not None
        self.args = args or ()
        self.state: Any = None
        self.items: list[Any] = []
        self.pairs: dict[Any, Any] = {}
        self.text = ""

    def described(self, kind: str, text: str, parts: dict[str, Any]) -> StandIn:
        """The same in words, with names for its parts."""
        self.kind, self.text, self.args, self.state = kind, text, (), parts
        return self

    def called(self, args: tuple[Any, ...]) -> StandIn:
        """What a call of this name makes."""
        if self.is_called:
            return StandIn(f"{self.kind}(...)"[:_LONGEST], args)
        first = args[0] if args else None
        if self.kind in _CONSTRUCTORS and type(first) is StandIn and not first.is_called:
            return StandIn(first.kind, args[1:])
        return StandIn(self.kind, args)

    def set_state(self, state: Any) -> None:
        """The state; of slots too, which a file gives beside the attributes."""
        if type(state) is tuple and len(state) == 2:
            parts = [part for part in state if part is not None]
            if parts and all(type(part) is dict for part in parts):
                state = parts[0] if len(parts) == 1 else {**parts[0], **parts[1]}
        self.state = state

    @property
    def attributes(self) -> dict[Any, Any]:
        """The state, where that is attributes."""
        return self.state if isinstance(self.state, dict) else {}

    @property
    def is_module(self) -> bool:
        """Whether it is a module of torch or modtree, with its registries."""
        attributes = self.attributes
        return all(isinstance(attributes.get(name), dict) for name in _OF_MODULES)

    @property
    def is_script(self) -> bool:
        """Whether it is a module of a TorchScript archive."""
        return self.kind.startswith("__torch__.") and isinstance(self.state, dict)

    @property
    def content(self) -> Any:
        """What a value of OmegaConf holds; of others, the stand-in itself."""
        named = self.attributes if self.kind.startswith("omegaconf.") else {}
        return named.get("_content", named.get("_val", self))

    def parts(self) -> Iterator[tuple[Any, Any]]:
        """Everything in it, by name or number."""
        content = self.content
        if isinstance(content, (dict, list)):
            yield from content.items() if isinstance(content, dict) else enumerate(content)
            return
        yield from self.attributes.items()
        if self.state is not None and not isinstance(self.state, dict):
            yield "state", self.state
        yield from enumerate(self.args)
        yield from enumerate(self.items, len(self.args))
        yield from self.pairs.items()

    def __repr__(self) -> str:
        text = _shown(self, _DEEPEST)
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]}...›"


def in_words(kind: str, text: str, parts: dict[str, Any] | None = None) -> StandIn:
    """What stands for an object that is not made: its kind, what it is in words, and its parts."""
    return StandIn(kind, ()).described(kind, text, parts or {})


def short_text(value: Any, most: int = 1000) -> str:
    """A value from a file in one line: its repr, or what it is where that would be long."""
    if type(value) is StandIn or not _is_small(value, most):
        return _shown(value, _DEEPEST)
    return " ".join(repr(value).split())


def _is_small(value: Any, most: int) -> bool:
    """Whether it has at most so many parts, counted as often as repr shows them."""
    waiting = [value]
    count = 0
    while waiting:
        value = waiting.pop()
        count += 1
        if isinstance(value, (str, bytes, bytearray)):
            count += len(value) // 40
        elif isinstance(value, dict):
            waiting += itertools.islice(value, most)
            waiting += itertools.islice(value.values(), most)
        elif isinstance(value, (list, tuple, set, frozenset)):
            waiting += itertools.islice(value, most)
        elif type(value) is int and value.bit_length() > 1 << 10:
            return False
        if count + len(waiting) > most:
            return False
    return True


def holds_stand_in(value: Any) -> bool:
    """Whether it, or anything in it, is a stand-in."""
    waiting, seen = [value], {id(value)}
    while waiting:
        value = waiting.pop()
        if getattr(type(value), "is_stand_in", False):
            return True
        inside: Any = ()
        if isinstance(value, dict):
            inside = itertools.chain(value, value.values())
        elif isinstance(value, _HOLDERS):
            inside = value
        for item in inside:
            if isinstance(item, (StandIn, dict, *_HOLDERS)):
                if id(item) not in seen:
                    seen.add(id(item))
                    waiting.append(item)
    return False


def _shown(value: Any, depth: int) -> str:
    """A value in few words, however large it is."""
    kind = type(value)
    if kind is StandIn:
        if value.content is not value:  # as deep as it is, however often it leads back
            return _shown(value.content, depth - 1) if depth > -_DEEPEST else "..."
        return _of_stand_in(value, depth)
    if kind is str or kind is bytes:
        return repr(value[:40]) + ("..." if len(value) > 40 else "")
    if kind in (list, tuple, set, frozenset) or isinstance(value, dict):
        return _of_container(value, depth)
    if kind is int and value.bit_length() > 256:
        return f"an int of {value.bit_length()} bits"
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if isinstance(shape, tuple) and shape and not isinstance(value, type):
        name = str(getattr(dtype, "name", dtype)).rpartition(".")[2]
        return f"{_words_of(kind)} of {name} {list(shape)}"
    try:
        return " ".join(repr(value)[:200].split())[:80]
    except Exception:
        return f"a {kind.__name__}"


def _words_of(kind: type) -> str:
    return {"TensorRecord": "tensor", "ndarray": "array"}.get(kind.__name__, kind.__name__.lower())


def _of_stand_in(value: StandIn, depth: int) -> str:
    if not value.is_called:
        return f"‹{value.kind}›"
    if value.text:
        return f"‹{value.text}›"
    if value.is_module:
        return f"‹module {value.kind}›"
    if (date := _date(value)) is not None:
        return f"‹{value.kind} {date}›"
    words = [value.kind]
    if depth > 0:
        args = itertools.islice(value.args, _MOST + 1)
        plain = [arg for arg in args if not (type(arg) is StandIn and not arg.is_called)]
        words += [_shown(arg, depth - 1) for arg in plain[:_MOST] if arg is not None]
        named = itertools.chain(value.attributes.items(), value.pairs.items())
        parts = tuple(itertools.islice(named, _MOST + 1))
        words += [f"{_name(key)}={_shown(part, depth - 1)}" for key, part in parts[:_MOST]]
        if value.items:
            words.append(f"{len(value.items)} items")
        if value.state is not None and not isinstance(value.state, dict):
            words.append(_shown(value.state, depth - 1))
        if len(parts) > _MOST or len(plain) > _MOST:
            words.append("...")
    return f"‹{' '.join(words)}›"


def _name(key: Any) -> str:
    return key[:40] if type(key) is str else _shown(key, 0)


def _of_container(value: Any, depth: int) -> str:
    name = "dict" if isinstance(value, dict) else type(value).__name__
    if not value:
        return {"list": "[]", "tuple": "()", "dict": "{}"}.get(name, f"{name}()")
    if depth <= 0 or len(value) > _MOST:
        return f"a {name} of {len(value)}"
    if isinstance(value, dict):
        pairs = (f"{_shown(k, 0)}: {_shown(part, depth - 1)}" for k, part in value.items())
        return f"{{{', '.join(pairs)}}}"
    inner = ", ".join(_shown(part, depth - 1) for part in value)
    return f"({inner})" if name == "tuple" else f"[{inner}]"


def _date(value: StandIn) -> str | None:
    """A date or time as text: a pickle has its fields as bytes."""
    data = value.args[0] if value.args else None
    if type(data) is not bytes:
        return None
    try:
        if value.kind == "datetime.date" and len(data) == 4:
            return datetime.date(data[0] * 256 + data[1], *data[2:]).isoformat()
        if value.kind == "datetime.datetime" and len(data) == 10:
            year, month = data[0] * 256 + data[1], data[2] & 127
            moment = datetime.datetime(year, month, data[3], data[4], data[5], data[6])
            microsecond = int.from_bytes(data[7:], "big")
            return moment.replace(microsecond=microsecond).isoformat(" ")
    except ValueError:
        pass
    return None


# -- reading whatever a file names -----------------------------------------------------------------


class TolerantUnpickler(Unpickler):
    """An unpickler that refuses nothing but damage.

    Args:
        takes: May this function be called with stand-ins? For every other one, a call with a
            stand-in makes a stand-in.
        describe: Says in words what a stand-in is, where it knows.
        args: As for an unpickler.
        kwargs: The same.

    Attributes:
        foreign: How many names it met that stand-ins are made of.
        packages: The packages that it met.
    """

    def __init__(
        self,
        *args: Any,
        takes: Callable[[Any], bool] = lambda _: False,
        describe: Callable[[StandIn], StandIn] = lambda made: made,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._takes = takes
        self._describe = describe
        self.foreign = 0
        self.packages: set[str] = set()
        self._known: dict[tuple[str, str], StandIn] = {}
        self._paths: dict[int, str] | None = None

    def _stand_in(self, kind: str, args: tuple[Any, ...] | None = None) -> StandIn:
        self.foreign += 1
        made = StandIn(kind[:300], args)
        return made if args is None else self._describe(made)

    def _name(self, module: Any, name: Any) -> Any:
        try:
            found = super()._name(module, name)
            self.packages.add(module.partition(".")[0])
            return found
        except Refused:
            known = self._known.get((module, name))
            if known is None:
                known = self._known[module, name] = self._stand_in(f"{module}.{name}")
            return known

    def _path_of(self, function: Any) -> str:
        """Under which name a file finds this function."""
        if self._paths is None:
            self._paths = {}
            for (module, name), value in self._names.items():
                self._paths.setdefault(id(value), f"{module}.{name}")
        return self._paths.get(id(function), getattr(function, "__name__", "?"))

    def _call(self, function: Any, arguments: Any) -> None:
        if type(arguments) is not tuple:
            super()._call(function, arguments)  # which says so
        elif type(function) is StandIn:
            self._count_copy(arguments)
            self._stack.append(function.called(arguments))
        elif self.foreign and self._is_foreign(arguments) and not self._takes(function):
            self._stack.append(self._stand_in(self._path_of(function), arguments))
        else:
            try:
                super()._call(function, arguments)
                self.foreign += type(self._stack[-1]) is StandIn
            except Refused:
                self._stack.append(self._stand_in(self._path_of(function), arguments))

    def _new(self, has_keywords: bool) -> None:
        keywords = self._stack.pop() if has_keywords else None
        if not keywords or type(keywords) is not dict:
            self._reduce()
            return
        arguments, function = self._stack.pop(), self._stack.pop()
        if type(arguments) is not tuple:
            super()._call(function, arguments)  # which says so
        known = type(function) is StandIn
        made = function if known else self._stand_in(self._path_of(function))
        self._count_copy(arguments)
        self._count_copy(keywords)
        made = made.called(arguments)
        made.pairs.update(keywords)
        self._stack.append(made)

    def _build(self) -> None:
        state, target = self._stack[-1], self._stack[-2]
        if type(target) is StandIn:
            self._stack.pop()
            for part in state if type(state) is tuple else ():
                self._count_copy(part)
            target.set_state(state)
            return
        if type(target) is Unfinished and self._is_foreign(state):
            self._stack.pop()
            parts = state if type(state) is tuple else (state,)
            self._finish(target, _array_of(self._stand_in("numpy.ndarray", parts)))
            return
        try:
            super()._build()
        except Refused:  # attributes that such an object does not take
            self.foreign += 1
            if type(self._stack[-1]) is Unfinished:
                self._finish(target, self._stand_in("numpy.ndarray", ()))

    def _persistent(self) -> None:
        pid = self._stack[-1]
        if type(pid) is tuple and pid[:1] == ("module",) and len(pid) == 4:
            self._stack[-1] = pid[1]  # a class, with its source, in files before 1.6
            return
        if self._persistent_load is None or self._is_foreign(pid):
            self._stack[-1] = self._stand_in("a persistent id", (pid,))
            return
        super()._persistent()

    def _line_of_persistent_id(self) -> None:
        self._stack.append(self._stand_in("a persistent id", (self._line(),)))

    def _set_items(self, target: Any, items: list[Any]) -> None:
        if type(target) is StandIn:
            super()._set_items(target.pairs, items)
        else:
            super()._set_items(target, items)

    def _append(self, items: list[Any]) -> None:
        if type(self._stack[-1]) is StandIn:
            self._stack[-1].items.extend(items)
        else:
            super()._append(items)

    def _add_items(self) -> None:
        if self._marks and self._marks[-1] and type(self._marks[-1][-1]) is StandIn:
            items = self._since_mark()
            self._stack[-1].items.extend(items)
        else:
            super()._add_items()

    def _extension(self, code: int) -> None:
        self._stack.append(self._stand_in(f"extension {code}"))

    def _is_foreign(self, value: Any, depth: int = 3) -> bool:
        """Is it, or has a tuple, a stand-in? As deep as names of classes stand in arguments. What
        is looked at counts as copied, since a file may give one tuple again and again.
        """
        if type(value) is StandIn:
            return True
        if type(value) is not tuple or not depth:
            return False
        self._count_copy(value)
        return any([self._is_foreign(part, depth - 1) for part in value])


def _array_of(made: StandIn) -> StandIn:
    """An array of objects or records, in words."""
    if len(made.args) == 5 and type(made.args[1]) is tuple and type(made.args[2]) is StandIn:
        code, shape = made.args[2].args[:1], made.args[1][:64]
        made.text = f"array of dtype {code[0] if code else '?'!r:.20} {list(shape)!r:.80}"
    return made
