# SPDX-License-Identifier: BSD-3-Clause
"""A value for an argument, by its name and type."""

from __future__ import annotations

from typing import Any, NamedTuple

from .values import DTYPES, Draw, Named, TensorValue

REQUIRED: Any = object()


class Argument(NamedTuple):
    name: str
    kind: str  # of torch's schemas: Tensor, number, int, List[int], bool, str, ...; "?" if optional
    default: Any = REQUIRED
    keyword: bool = False

    @property
    def optional(self) -> bool:
        return self.default is not REQUIRED


INTS = (0, 1, 2, 3, -1, 5)
FLOATS = (0.5, 1.0, 2.0, 0.0, -1.5, 3.25, 1e-5)
NUMBERS: tuple[Any, ...] = (
    (0, 1, 2, -1, 3, 0.5, 1.0, -1.5, 2.0, 0.0, True, False, True, False)
    + (float("nan"), float("inf"), float("-inf"), 1e300, 2**40, -(2**31) - 1, 300, 2**70)
    + (1j, 1.5 - 2j)
)
#: Numbers that most calls take.
PLAIN = (0, 1, 2, -1, 3, 0.5, 1.0, -1.5, 2.0, 0.0)

#: Names of arguments that count dimensions.
DIMENSIONS = {
    "dim", "dim0", "dim1", "dim2", "axis", "axis0", "axis1", "start_dim", "end_dim", "source",
    "destination", "dimension", "dims",
}  # fmt: skip
#: Strings by the name of the argument.
WORDS: dict[str, tuple[Any, ...]] = {
    "rounding_mode": (None, "floor", "trunc", "ceil"),
    "reduce": ("sum", "prod", "mean", "amax", "amin", "add", "multiply"),
    "reduction": ("mean", "sum", "none", "other"),
    "side": ("left", "right", "middle"),
    "mode": ("constant", "reflect", "replicate", "circular"),
    "approximate": ("none", "tanh", "other"),
    "indexing": ("ij", "xy", "yx"),
    "padding": ("valid", "same"),
    "interpolation": ("linear", "lower", "higher", "midpoint", "nearest", "other"),
    "compute_mode": ("use_mm_for_euclid_dist_if_necessary", "donot_use_mm_for_euclid_dist"),
    "equation": ("ij,jk->ik", "i,i", "ii", "...i->..."),
    "p": ("fro", "nuc"),
    "ord": ("fro", "nuc"),
}
#: Whole numbers by the name of the argument.
WHOLE: dict[str, tuple[int, ...]] = {
    "diagonal": (-2, -1, 0, 1, 2, 5),
    "offset": (-2, -1, 0, 1, 2),
    "n": (0, 1, 2, 3),
    "k": (0, 1, 2, 3),
    "bins": (1, 2, 5, 100, 0),
    "steps": (0, 1, 2, 5, -1),
    "repeats": (0, 1, 2, 3),
    "num_classes": (-1, 3, 5),
    "decimals": (0, 1, 2, -1),
    "groups": (1, 2),
}
#: Arguments that are never given: they say where, not what.
LEFT_OUT = {
    "out", "generator", "device", "layout", "pin_memory", "memory_format", "sparse_grad",
    "non_blocking", "names", "_stacklevel", "size_average",
}  # fmt: skip


def draw_argument(draw: Draw, argument: Argument) -> Any:
    """A value; mostly one that fits the argument's type and the arguments before it."""
    kind = argument.kind
    if kind.endswith("?"):
        if draw.chance(0.25):
            return None
        kind = kind[:-1]
    value = _drawers[kind](draw, argument.name)
    return value


def _tensor(draw: Draw, name: str) -> Any:
    rng = draw.rng
    if name in ("index", "indices"):
        return draw.index(draw.broadcast(), rng.choice((*draw.shape, 1)))
    if name in ("mask", "condition", "where"):
        return draw.tensor(dtype="bool" if draw.chance(0.9) else None)
    if name in ("self", "input"):
        shape = draw.shape if draw.chance(0.9) else None
        return draw.tensor(shape)
    return draw.tensor()


def _number(draw: Draw, name: str) -> Any:
    return draw.rng.choice(PLAIN if draw.chance(0.5) else NUMBERS)


def _dimension(draw: Draw) -> int:
    limit = max(draw.ndim, 1)
    if draw.chance(0.1):
        return draw.rng.choice((limit, -limit - 1, 5))
    return draw.rng.randint(-limit, limit - 1)


def _int(draw: Draw, name: str) -> Any:
    if name in DIMENSIONS:
        return _dimension(draw)
    return draw.rng.choice(WHOLE.get(name, INTS))


def _ints(draw: Draw, name: str) -> Any:
    rng = draw.rng
    if name in DIMENSIONS:
        if draw.chance(0.4):
            return _dimension(draw)
        if draw.chance(0.3):
            return tuple(rng.sample(range(draw.ndim), draw.ndim))
        return [_dimension(draw) for _ in range(rng.randint(0, max(draw.ndim, 1)))]
    if name in ("size", "shape", "sizes"):
        return _sizes(draw)
    if draw.chance(0.3):
        return rng.choice((1, 2, 3))
    return [rng.choice((0, 1, 1, 2, 2, 3, -1)) for _ in range(rng.randint(1, max(draw.ndim, 1)))]


def _sizes(draw: Draw) -> Any:
    """A shape, mostly of as many elements as the line's."""
    rng, shape = draw.rng, list(draw.shape)
    kind = rng.random()
    if kind < 0.4:
        rng.shuffle(shape)
        if shape and rng.random() < 0.5:
            shape[rng.randrange(len(shape))] = -1
        return tuple(shape)
    if kind < 0.6:
        return [rng.choice((1, 2, -1)), *shape]
    if kind < 0.7:
        return (-1,)
    return [rng.choice((0, 1, 2, 3, -1)) for _ in range(rng.randint(0, 3))]


def _tensors(draw: Draw, name: str) -> Any:
    rng = draw.rng
    if draw.chance(0.6):
        values = [draw.tensor(draw.shape) for _ in range(rng.randint(1, 3))]
    else:
        values = [draw.tensor() for _ in range(rng.randint(0, 3))]
    return values if draw.chance(0.7) else tuple(values)


def _optional_tensors(draw: Draw, name: str) -> Any:
    """What stands in an index: tensors of integers, or one mask."""
    if draw.chance(0.3):
        return (draw.tensor(draw.shape, "bool"),)
    shape = tuple(draw.rng.choice((1, 2, 3)) for _ in range(draw.rng.randint(0, 2)))
    count = draw.rng.randint(1, max(len(draw.shape), 1))
    return tuple(draw.index(shape, n) for n in draw.shape[:count])


def _subscript(draw: Draw, name: str) -> Any:
    """What stands between square brackets."""
    rng = draw.rng
    parts = []
    for n in draw.shape[: rng.randint(0, len(draw.shape) + (rng.random() < 0.1))]:
        kind = rng.random()
        if kind < 0.3:
            ends = (None, 0, 1, -1, n, n + 3, -n - 2)
            parts.append(slice(rng.choice(ends), rng.choice(ends), rng.choice((None, 1, 2, 3))))
        elif kind < 0.5:
            parts.append(rng.randint(-n - (rng.random() < 0.1), max(n - 1, 0)))
        elif kind < 0.65:
            parts.append(draw.index(rng.choice(((), (2,), (1,), (2, 1))), n))
        elif kind < 0.75:
            parts.append(TensorValue(draw.numbers((n,), "bool")))
        elif kind < 0.8:
            parts.append([rng.randint(-n, max(n - 1, 0)) for _ in range(rng.randint(0, 2))])
        else:
            parts.append(rng.choice((None, True, False, slice(None))))
    if rng.random() < 0.2:
        parts.insert(rng.randint(0, len(parts)), ...)
    if rng.random() < 0.15:
        return draw.tensor(draw.shape, "bool")
    return parts[0] if len(parts) == 1 and rng.random() < 0.7 else tuple(parts)


def _dtype(draw: Draw, name: str) -> Any:
    return Named(draw.rng.choice(("float32", "float64", "float64", *DTYPES)))


_drawers: dict[str, Any] = {
    "Tensor": _tensor,
    "number": _number,
    "real": _number,
    "options": lambda draw, name: {},
    "Tensor|number": lambda draw, name: (_tensor if draw.chance(0.6) else _number)(draw, name),
    "int": _int,
    "float": lambda draw, name: draw.rng.choice(FLOATS),
    "bool": lambda draw, name: draw.chance(0.5),
    "complex": lambda draw, name: draw.rng.choice((1j, 0.5, 2 - 1j)),
    "str": lambda draw, name: draw.rng.choice(WORDS.get(name, ("sum",))),
    "dtype": _dtype,
    "subscript": _subscript,
    "List[int]": _ints,
    "List[float]": lambda draw, name: [draw.rng.choice(FLOATS) for _ in range(2)],
    "List[bool]": lambda draw, name: [draw.chance(0.5) for _ in range(max(draw.ndim, 1))],
    "List[Tensor]": _tensors,
    "List[Optional[Tensor]]": _optional_tensors,
}
KINDS = frozenset(_drawers)


def is_tensor(value: Any) -> bool:
    return isinstance(value, TensorValue)
