# SPDX-License-Identifier: BSD-3-Clause
"""Options that several commands have, and the form of their help."""

from __future__ import annotations

import argparse
import difflib
import itertools
import re
from collections.abc import Iterable
from typing import Any

from modtree._C import as_dtype
from modtree.core.patterns import Machine
from modtree.inspection.phrases import printable

CHECKPOINT_HELP = (
    "a checkpoint: a file (safetensors, torch.save, GGUF, npz, HDF5), an index of shards, "
    "a folder, or an address (https://, s3://)"
)
RULE_HELP = (
    "keys that begin with OLD begin with NEW instead; /PATTERN/=NEW replaces what the regular "
    "expression matches; may be given several times"
)


def describe(parser: argparse.ArgumentParser, description: str, examples: str, status: str) -> None:
    """Help with examples and exit statuses, in lines as they are written."""
    parser.description = description
    parser.epilog = f"examples:\n{examples}\nexit status:\n    {status}"
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.allow_abbrev = False


def add_at(parser: argparse.ArgumentParser) -> None:
    """``--at``."""
    parser.add_argument(
        "--at",
        metavar="PART",
        help="the part of a training checkpoint: ema, optimizer.state; by default the model",
    )


def add_join(parser: argparse.ArgumentParser) -> None:
    """``--join``."""
    parser.add_argument(
        "--join",
        action="append",
        type=join_rule,
        metavar="GLOB=DIM",
        help="how to join rank files that do not record it: '*.proj.weight=1', "
        "'*.qkv.weight=0/3' for three blocks, '*.norm.*=same'; may be given several times",
    )


def join_rules(options: argparse.Namespace) -> dict[str, Any] | None:
    """The rules of ``--join``."""
    return None if options.join is None else dict(options.join)


def join_rule(text: str) -> tuple[str, Any]:
    """``GLOB=DIM``, ``GLOB=DIM/BLOCKS`` or ``GLOB=same``, for argparse."""
    glob, equals, value = text.rpartition("=")
    match = re.fullmatch(r"(-?\d{1,3})(?:/([1-9]\d{0,5}))?", value)
    if not equals or not glob or (match is None and value != "same"):
        raise argparse.ArgumentTypeError(
            f"expected GLOB=DIM, GLOB=DIM/BLOCKS or GLOB=same, such as '*.weight=0', got {text!r}"
        )
    return glob, None if match is None else (int(match[1]), int(match[2] or 1))


def add_large_header(parser: argparse.ArgumentParser) -> None:
    """``--large-header``."""
    parser.add_argument(
        "--large-header",
        action="store_true",
        help="read headers of more than 100 MB too, which take several times as much memory",
    )


def add_inside(parser: argparse.ArgumentParser) -> None:
    """``--inside``."""
    parser.add_argument(
        "--inside", metavar="NAME", help="the checkpoint in a zip or tar archive with several"
    )


def add_output(parser: argparse.ArgumentParser, json: bool = True) -> None:
    """``--json`` where there is one, ``-q`` and ``--progress``."""
    if json:
        parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")
    parser.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        help="show on stderr how far the work is; unless given, from two seconds on, on a terminal",
    )


def add_input(parser: argparse.ArgumentParser, effect: str) -> None:
    """``--input-shape`` and ``--dtype``.

    Args:
        parser: That of the command.
        effect: What the command does with the input.
    """
    parser.add_argument(
        "--input-shape",
        action="append",
        type=_shape,
        metavar="SIZES",
        help=f"{effect} on zeros of this shape, such as 1,3,224,224; once for each input",
    )
    parser.add_argument(
        "--dtype",
        action="append",
        metavar="NAME",
        help="the dtype of the input, or of each one; by default that of the parameters",
    )


def given_input(
    options: argparse.Namespace, parser: argparse.ArgumentParser
) -> tuple[list[tuple[int, ...]] | None, Any]:
    """The shapes, and one dtype for all or one for each."""
    shapes, dtypes = options.input_shape, options.dtype
    if dtypes and shapes is None:
        parser.error("--dtype needs --input-shape: without it the model is not run")
    if dtypes and len(dtypes) not in (1, len(shapes)):
        parser.error(f"--dtype is given {len(dtypes)} times, and --input-shape {len(shapes)} times")
    for name in dtypes or ():
        try:
            as_dtype(name)
        except (TypeError, ValueError):
            parser.error(f"argument --dtype: expected a name such as int64, got {name!r}")
    return shapes, dtypes[0] if dtypes and len(dtypes) == 1 else dtypes


def _shape(text: str) -> tuple[int, ...]:
    sizes = [part.strip() for part in text.split(",")]
    if not all(size.isdecimal() for size in sizes):
        raise argparse.ArgumentTypeError(f"expected sizes such as 1,3,224,224, got {text!r}")
    return tuple(map(int, sizes))


def count(text: str) -> int:
    """A number from 1 on, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1 on, got {text!r}")
    return int(text)


_ALIKE = 0.75  # of the letters: float64 is not like float32
_DTYPES = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "half": "float16"}
_DTYPES |= {"bf16": "bfloat16", "double": "float64", "float": "float32", "fp8": "float8_e4m3fn"}


def near(wanted: Iterable[str], known: Iterable[str]) -> str:
    """Names that are like those that matched nothing, for the end of a message."""
    parts = {part for name in itertools.islice(known, 5000) for part in (name, *name.split("."))}
    found: dict[str, None] = {}
    for name in wanted:
        last = _DTYPES.get(name, re.split(r"[.*?/\[\]{},]+", name.rstrip(".*"))[-1])
        found |= dict.fromkeys(difflib.get_close_matches(last, parts, 3, _ALIKE))
    return f"; there is {printable(', '.join(list(found)[:5]))}" if found else ""


def pattern(text: str) -> str:
    """A pattern as :func:`modtree.find` takes it, for argparse."""
    try:
        Machine(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def tolerance(text: str) -> float:
    """A number of 0 or more, for argparse."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not number >= 0:
        raise argparse.ArgumentTypeError(f"expected a number of 0 or more, got {text!r}")
    return number


def rename_rule(text: str) -> tuple[Any, str]:
    """``OLD=NEW`` or ``/PATTERN/=NEW``, for argparse."""
    is_pattern = text.startswith("/") and "/=" in text[1:]
    old, equals, new = text.partition("=") if not is_pattern else text[1:].rpartition("/=")
    if not equals:
        raise argparse.ArgumentTypeError(
            f"expected OLD=NEW, such as module.= or encoder.=backbone., got {text!r}"
        )
    if not is_pattern:
        return old, new
    try:
        pattern = re.compile(old)
        pattern.sub(new, "")  # which reads NEW, with its references to groups
        return pattern, new
    except (re.error, IndexError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rule: {error}") from None
