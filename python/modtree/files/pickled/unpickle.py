# SPDX-License-Identifier: BSD-3-Clause
"""Reads pickles from anywhere: an interpreter of pickle's opcodes that makes tensors, arrays,
numbers, text and containers, and nothing else.

The unpicklers of the standard library trust their input: they call what they find with the
arguments they find, set attributes of anything, allocate what a file announces and hash keys of any
depth. Here names lead only to functions that check their arguments, memory and time are bounded by
the size of the file, and every fault of a file is an UnpicklingError.
"""

from __future__ import annotations

import codecs
import collections
import os
import struct
from collections.abc import Callable
from pickle import UnpicklingError as UnpicklingError
from typing import Any

import numpy as np

from modtree.files.pickled.keys import Keys, length_of
from modtree.files.sources.stores import RemoteError

_DIGITS = 4300  # as many as CPython converts
_DICTS = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)


class Refused(UnpicklingError):
    """The file is as its writer left it, but contains what may not be made."""


def refused(what: str) -> Refused:
    """The error for a name that is not on the list."""
    is_script = what.startswith("__torch__.")
    call = "it with torch.jit.load(path)" if is_script else "it with weights_only=False"
    return Refused(
        f"Weights only load failed: the file contains {what}, which is neither a tensor nor a "
        f"plain container. Only if you trust where the file comes from, load {call}: it can run "
        f"any code"
    )


class Unfinished:
    """Stands for an object that a pickle makes in two steps, until the second one (BUILD) has come
    with ``finish``'s argument.
    """

    __slots__ = ("finish", "places")

    def __init__(self, finish: Callable[[Any], Any]) -> None:
        self.finish = finish
        self.places: list[int] = []  # where the memo has it


class Unpickler:
    """One pickle in a file.

    Args:
        file: Has ``read``, ``readline``, ``seek`` and ``tell``.
        names: What the file may name: (module, name) -> object.
        makers: What it may call: object of ``names`` -> function that checks its arguments.
        builders: What may be given attributes: type -> function(object, state).
        persistent_load: Answers persistent ids; without it they are refused.
        encoding, errors, fix_imports: As for ``pickle.Unpickler``; names of Python 2 are always
            understood.
    """

    def __init__(
        self,
        file: Any,
        names: Any,
        makers: Any,
        builders: Any,
        persistent_load: Callable[[Any], Any] | None = None,
        *,
        encoding: str = "ASCII",
        errors: str = "strict",
        fix_imports: bool = True,
    ) -> None:
        self._file = file
        self._names = names
        self._makers = makers.copy()
        self._makers[set] = lambda items=(): self._as_set(set, items)
        self._makers[frozenset] = lambda items=(): self._as_set(frozenset, items)
        self._makers[collections.OrderedDict] = self._ordered
        self._builders = builders
        self._persistent_load = persistent_load
        self._encoding = encoding
        self._errors = errors
        self._stack: list[Any] = []
        self._marks: list[list[Any]] = []
        self._memo: dict[int, Any] = {}
        self._unfinished = 0
        self._keys = Keys()

    def load(self) -> Any:
        """The object.

        Raises:
            UnpicklingError: The file is damaged, or contains what is not allowed.
        """
        start = self._file.tell()
        self._file.seek(0, os.SEEK_END)
        self._end = self._file.tell()
        self._file.seek(start)
        # What calls copy was written out before, at least a byte each, and is copied at most three
        # times on its way into a tensor.
        self._copies_left = 4 * (self._end - start) + 65536
        try:
            return self._run()
        except (UnpicklingError, MemoryError, RemoteError):
            raise
        except Exception as error:
            raise UnpicklingError(
                f"the file is damaged: {type(error).__name__}: {error}"
            ) from error

    def _run(self) -> Any:
        read = self._file.read
        while True:
            code = read(1)
            if code == b".":
                break
            step = _STEPS.get(code)
            if step is None:
                raise self._bad_code(code)
            step(self)
        if self._unfinished:
            raise UnpicklingError("the file is damaged: an array or dtype in it is not complete")
        if len(self._stack) != 1 or self._marks:
            raise UnpicklingError("the file is damaged: it does not end with one value")
        return self._stack.pop()

    def _protocol(self, version: int) -> None:
        if version > 5:
            raise UnpicklingError(f"the file has pickle's protocol {version}; the last known is 5")

    def _bad_code(self, code: bytes) -> UnpicklingError:
        if not code:
            return UnpicklingError("the file is truncated")
        if code in (b"\x97", b"\x98"):
            return refused("a buffer that lies outside the file")
        return UnpicklingError(f"the file is not a pickle, or damaged: unknown opcode {code!r}")

    # -- bytes -------------------------------------------------------------------------------------

    def _read(self, count: int) -> bytes:
        if count > 4096:
            self._check_room(count)
        data = self._file.read(count)
        while len(data) < count:  # a file without a buffer may give less
            more = self._file.read(count - len(data))
            if not more:
                raise UnpicklingError("the file is truncated")
            data += more
        return data

    def _check_room(self, count: int) -> None:
        left = self._end - self._file.tell()
        if count > left:
            raise UnpicklingError(
                f"the file is truncated: {count} bytes are announced, {left} are left"
            )

    def _line(self, limit: int | None = None) -> bytes:
        limit = self._end + 1 if limit is None else limit
        line = self._file.readline(limit)
        if not line.endswith(b"\n"):
            raise UnpicklingError(
                "the file is truncated" if len(line) < limit else "the file is damaged: a long line"
            )
        return line[:-1]

    def _number(self, form: struct.Struct) -> Any:
        data = self._file.read(form.size)
        if len(data) != form.size:
            data += self._read(form.size - len(data))
        return form.unpack(data)[0]

    # -- stack and memo ----------------------------------------------------------------------------

    def _mark(self) -> None:
        self._marks.append(self._stack)
        self._stack = []

    def _since_mark(self) -> list[Any]:
        items, self._stack = self._stack, self._marks.pop()
        return items

    def _pop(self) -> None:
        if self._stack:
            self._stack.pop()
        else:
            self._since_mark()

    def _duplicate(self) -> None:
        self._stack.append(_whole(self._stack[-1]))

    def _put(self, place: int) -> None:
        value = self._stack[-1]
        if type(value) is Unfinished:
            value.places.append(place)
        self._memo[place] = value

    def _get(self, place: int) -> None:
        self._stack.append(_whole(self._memo[place]))

    def _set_items(self, target: Any, items: list[Any]) -> None:
        if type(target) not in _DICTS or len(items) % 2:
            raise UnpicklingError(f"the file sets items of {type(target).__name__}")
        for i in range(0, len(items), 2):
            self._keys.check(items[i])
            target[items[i]] = items[i + 1]

    def _as_set(self, kind: Any, items: Any) -> Any:
        if type(items) not in (list, tuple):
            raise UnpicklingError(f"the file makes a set of {type(items).__name__}")
        for item in items:
            self._keys.check(item)
        return kind(items)

    def _frozen_set(self) -> None:
        items = self._since_mark()
        self._stack.append(self._as_set(frozenset, items))

    def _ordered(self, pairs: Any = ()) -> Any:
        if type(pairs) not in (list, tuple):
            raise UnpicklingError(f"the file makes an OrderedDict of {type(pairs).__name__}")
        result: collections.OrderedDict[Any, Any] = collections.OrderedDict()
        for pair in pairs:
            if type(pair) not in (list, tuple) or len(pair) != 2:
                raise UnpicklingError("the file makes an OrderedDict of what are not pairs")
            self._set_items(result, list(pair))
        return result

    # -- containers --------------------------------------------------------------------------------

    def _append(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) not in (list, collections.deque):
            raise UnpicklingError(f"the file appends to {type(target).__name__}")
        target.extend(items)

    def _add_items(self) -> None:
        items = self._since_mark()
        target = self._stack[-1]
        if type(target) is not set:
            raise UnpicklingError(f"the file adds to {type(target).__name__}")
        target |= self._as_set(set, items)

    def _dict(self) -> None:
        result: dict[Any, Any] = {}
        self._set_items(result, self._since_mark())
        self._stack.append(result)

    def _set_item(self) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._set_items(self._stack[-1], [key, value])

    def _set_all_items(self) -> None:
        items = self._since_mark()
        self._set_items(self._stack[-1], items)

    def _tuple(self, count: int) -> None:
        if len(self._stack) < count:
            raise UnpicklingError("the file is damaged: a tuple of more than there is")
        self._stack[-count:] = [tuple(self._stack[-count:])]

    # -- numbers and text --------------------------------------------------------------------------

    def _int_line(self) -> None:
        line = self._line(_DIGITS)
        truth = {b"00": False, b"01": True}
        self._stack.append(truth[line] if line in truth else int(line, 0))

    def _long_line(self) -> None:
        self._stack.append(int(self._line(_DIGITS).rstrip(b"L"), 0))

    def _long(self, count: int) -> None:
        self._stack.append(int.from_bytes(self._read(length_of(count)), "little", signed=True))

    def _old_text(self, data: bytes) -> None:
        self._stack.append(
            data if self._encoding == "bytes" else data.decode(self._encoding, self._errors)
        )

    def _old_text_line(self) -> None:
        line = self._line()
        if len(line) < 2 or line[0] != line[-1] or line[:1] not in (b"'", b'"'):
            raise UnpicklingError("the file is damaged: text without quotes")
        self._old_text(codecs.escape_decode(line[1:-1])[0])

    def _text(self, count: int) -> None:
        self._stack.append(str(self._read(length_of(count)), "utf-8", "surrogatepass"))

    def _bytes(self, count: int) -> None:
        self._stack.append(self._read(length_of(count)))

    def _bytearray(self) -> None:
        count = self._number(_QWORD)
        self._check_room(count)
        data = bytearray(count)
        place = memoryview(data)
        into = getattr(self._file, "readinto", None)
        while place:
            if into is None:
                chunk = self._read(len(place))
                place[:] = chunk
                done = len(chunk)
            else:
                done = into(place)
            if not done:
                raise UnpicklingError("the file is truncated")
            place = place[done:]
        self._stack.append(data)

    # -- names and calls ---------------------------------------------------------------------------

    def _name(self, module: Any, name: Any) -> Any:
        if type(module) is not str or type(name) is not str:
            raise UnpicklingError("the file is damaged: a name that is not text")
        try:
            return self._names[module, name]
        except KeyError:
            raise refused(f"{module}.{name}"[:300]) from None

    def _name_of_lines(self) -> Any:
        return self._name(self._line(1000).decode(), self._line(1000).decode())

    def _name_of_stack(self) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        self._stack.append(self._name(module, name))

    def _call(self, function: Any, arguments: Any) -> None:
        try:
            make = self._makers[function]
        except (KeyError, TypeError):
            name = getattr(function, "__name__", type(function).__name__)
            raise refused(f"a call of {name}") from None
        if type(arguments) is not tuple:
            raise UnpicklingError("the file is damaged: a call whose arguments are no tuple")
        for argument in arguments:
            self._count_copy(argument)
        result = make(*arguments)
        self._unfinished += type(result) is Unfinished
        self._stack.append(result)

    def _count_copy(self, value: Any) -> None:
        if type(value) is np.ndarray:
            self._copies_left -= value.nbytes
        elif isinstance(value, (bytes, bytearray, str, tuple, list, dict)):
            self._copies_left -= len(value)
        if self._copies_left < 0:
            raise UnpicklingError("the file is damaged: it copies more than it holds")

    def _build(self) -> None:
        state = self._stack.pop()
        target = self._stack[-1]
        if type(target) is Unfinished:
            for part in state if type(state) is tuple else ():
                self._count_copy(part)
            self._finish(target, target.finish(state))
            return
        build = self._builders.get(type(target))
        if build is None:
            raise refused(f"a state for {type(target).__name__}")
        build(target, state)

    def _finish(self, target: Unfinished, value: Any) -> None:
        """Puts a value in the place of what stood for it."""
        self._stack[-1] = value
        self._unfinished -= 1
        for place in target.places:
            if self._memo[place] is target:
                self._memo[place] = value

    def _instance(self) -> None:
        """INST and OBJ, protocol 0's and 1's way to write a call of a class."""
        arguments = self._since_mark()
        self._call(self._name_of_lines(), tuple(arguments))

    def _instance_of_stack(self) -> None:
        first, *arguments = self._since_mark()
        self._call(first, tuple(arguments))

    def _reduce(self) -> None:
        arguments, function = self._stack.pop(), self._stack.pop()
        self._call(function, arguments)

    def _new(self, has_keywords: bool) -> None:
        if has_keywords and self._stack.pop() != {}:
            raise refused("a call with keywords")
        self._reduce()

    def _extension(self, code: int) -> None:
        raise refused("a name of the extension registry")

    def _line_of_persistent_id(self) -> None:
        raise refused("a persistent id")

    def _persistent(self) -> None:
        if self._persistent_load is None:
            raise refused("a persistent id")
        self._stack.append(self._persistent_load(self._stack.pop()))


def _whole(value: Any) -> Any:
    """Only BUILD may take what is unfinished: nothing else would learn of its final value."""
    if type(value) is Unfinished:
        raise UnpicklingError("the file uses an array or dtype before it is complete")
    return value


_BYTE, _WORD, _DWORD, _QWORD = map(struct.Struct, ("<B", "<H", "<I", "<Q"))
_INT, _DOUBLE = struct.Struct("<i"), struct.Struct(">d")


def _push(value: Any) -> Callable[[Unpickler], None]:
    return lambda self: self._stack.append(value)


def _push_number(form: struct.Struct) -> Callable[[Unpickler], None]:
    return lambda self: self._stack.append(self._number(form))


def _counted(step: Any, form: struct.Struct) -> Callable[[Unpickler], None]:
    return lambda self: step(self, self._number(form))


def _collected(kind: Any) -> Callable[[Unpickler], None]:
    def step(self: Unpickler) -> None:
        items = self._since_mark()
        self._stack.append(kind(items))

    return step


#: opcode -> step; pickletools.opcodes has their names and meaning.
_STEPS: dict[bytes, Callable[[Unpickler], Any]] = {
    b"\x80": lambda self: self._protocol(self._number(_BYTE)),
    b"\x95": lambda self: self._check_room(self._number(_QWORD)),
    b"(": Unpickler._mark,
    b"0": Unpickler._pop,
    b"1": lambda self: self._since_mark(),
    b"2": Unpickler._duplicate,
    # numbers
    b"N": _push(None),
    b"\x88": _push(True),
    b"\x89": _push(False),
    b"I": Unpickler._int_line,
    b"L": Unpickler._long_line,
    b"F": lambda self: self._stack.append(float(self._line(_DIGITS))),
    b"J": _push_number(_INT),
    b"K": _push_number(_BYTE),
    b"M": _push_number(_WORD),
    b"G": _push_number(_DOUBLE),
    b"\x8a": _counted(Unpickler._long, _BYTE),
    b"\x8b": _counted(Unpickler._long, _INT),
    # text and bytes
    b"S": Unpickler._old_text_line,
    b"T": lambda self: self._old_text(self._read(length_of(self._number(_INT)))),
    b"U": lambda self: self._old_text(self._read(self._number(_BYTE))),
    b"V": lambda self: self._stack.append(str(self._line(), "raw-unicode-escape")),
    b"X": _counted(Unpickler._text, _DWORD),
    b"\x8c": _counted(Unpickler._text, _BYTE),
    b"\x8d": _counted(Unpickler._text, _QWORD),
    b"B": _counted(Unpickler._bytes, _DWORD),
    b"C": _counted(Unpickler._bytes, _BYTE),
    b"\x8e": _counted(Unpickler._bytes, _QWORD),
    b"\x96": Unpickler._bytearray,
    # containers
    b")": _push(()),
    b"\x85": lambda self: self._tuple(1),
    b"\x86": lambda self: self._tuple(2),
    b"\x87": lambda self: self._tuple(3),
    b"t": _collected(tuple),
    b"]": lambda self: self._stack.append([]),
    b"l": _collected(list),
    b"a": lambda self: self._append([self._stack.pop()]),
    b"e": lambda self: self._append(self._since_mark()),
    b"}": lambda self: self._stack.append({}),
    b"d": Unpickler._dict,
    b"s": Unpickler._set_item,
    b"u": Unpickler._set_all_items,
    b"\x8f": lambda self: self._stack.append(set()),
    b"\x90": lambda self: self._add_items(),
    b"\x91": Unpickler._frozen_set,
    # the memo
    b"p": lambda self: self._put(int(self._line(20))),
    b"q": lambda self: self._put(self._number(_BYTE)),
    b"r": lambda self: self._put(self._number(_DWORD)),
    b"\x94": lambda self: self._put(len(self._memo)),
    b"g": lambda self: self._get(int(self._line(20))),
    b"h": lambda self: self._get(self._number(_BYTE)),
    b"j": lambda self: self._get(self._number(_DWORD)),
    # names and calls
    b"c": lambda self: self._stack.append(self._name_of_lines()),
    b"\x93": Unpickler._name_of_stack,
    b"i": Unpickler._instance,
    b"o": Unpickler._instance_of_stack,
    b"R": Unpickler._reduce,
    b"\x81": lambda self: self._new(False),
    b"\x92": lambda self: self._new(True),
    b"b": lambda self: self._build(),
    b"P": lambda self: self._line_of_persistent_id(),
    b"Q": lambda self: self._persistent(),
    b"\x82": lambda self: self._extension(self._number(_BYTE)),
    b"\x83": lambda self: self._extension(self._number(_WORD)),
    b"\x84": lambda self: self._extension(self._number(_INT)),
}
