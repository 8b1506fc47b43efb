# SPDX-License-Identifier: BSD-3-Clause
"""``modtree convert`` writes a checkpoint in another format, dtype or number of files."""

from __future__ import annotations

import argparse
import fnmatch
import json
from collections.abc import Callable

from modtree.cli.ending import DIFFERENT, SAME, Trouble
from modtree.cli.options import (
    CHECKPOINT_HELP,
    RULE_HELP,
    add_at,
    add_inside,
    add_join,
    add_large_header,
    add_output,
    describe,
    join_rules,
    near,
    pattern,
    rename_rule,
)
from modtree.cli.terminal import Screen, headline
from modtree.core.loading.rename import rename_function
from modtree.core.patterns import matching_paths
from modtree.files.checkpoint.base import Checkpoint, CheckpointError
from modtree.files.checkpoint.convert import Changes, convert
from modtree.files.checkpoint.progress import working
from modtree.files.checkpoint.reader import open_checkpoint
from modtree.files.sources.source import source_of
from modtree.files.sources.stores import shown_name
from modtree.inspection.phrases import bytes_text, noun, printable

_DESCRIPTION = """\
Rewrites a checkpoint tensor by tensor, so that it may be larger than memory: as safetensors or as a
torch file, in one file or in shards with an index, in another dtype, under other keys. New files
replace old ones once they are complete. A file that is being read is never replaced by less than it
contains.
"""
_EXAMPLES = """\
    modtree convert model.pt model.safetensors
    modtree convert model.safetensors model.pt --dtype float16
    modtree convert model.safetensors folder/model.safetensors --max-shard-size 5GB
    modtree convert run.ckpt ema.safetensors --at ema
    modtree convert ddp.pt plain.safetensors --rename module.= --match 'module.encoder.*'
    modtree convert model.safetensors backbone.safetensors --drop head --drop '**.lora_{A,B}'
"""
_FEW = 5
_STATUS = "0: written; 1: written, and values became infinite; 2: a file cannot be read or written"


def fill(parser: argparse.ArgumentParser) -> None:
    """Gives the parser of this command its arguments and its help."""
    describe(parser, _DESCRIPTION, _EXAMPLES, _STATUS)
    parser.add_argument("source", metavar="IN", help=CHECKPOINT_HELP)
    parser.add_argument("target", metavar="OUT", help="where it is written")
    parser.add_argument(
        "--format",
        choices=["safetensors", "torch"],
        help="the format of OUT; by default that of its ending: .safetensors, .pt, .pth, .bin",
    )
    parser.add_argument(
        "--dtype",
        choices=["float16", "bfloat16", "float32", "float64"],
        help="the dtype of floating-point tensors",
    )
    parser.add_argument(
        "--keep",
        action="append",
        type=pattern,
        metavar="PATTERN",
        help="what --dtype does not convert, at and below what matches: '**.norm'",
    )
    parser.add_argument(
        "--max-shard-size",
        metavar="SIZE",
        help="split into files of at most this size: 5GB, 500MiB",
    )
    parser.add_argument(
        "--rename", action="append", type=rename_rule, metavar="OLD=NEW", help=RULE_HELP
    )
    parser.add_argument(
        "--match", action="append", metavar="GLOB", help="only keys of IN that match"
    )
    parser.add_argument(
        "--only",
        action="append",
        type=pattern,
        metavar="PATTERN",
        help="only keys of IN at and below what matches: 'encoder', 'layers[:4].**.bias'",
    )
    parser.add_argument(
        "--drop",
        action="append",
        type=pattern,
        metavar="PATTERN",
        help="no keys of IN at and below what matches: 'head', '**.lora_{A,B}'",
    )
    parser.add_argument(
        "--in-place",
        action="store_true",
        help="write into OUT itself if its folder allows no new file; an interrupt damages it",
    )
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace the file that is read even if something is left out or changes its dtype",
    )
    add_at(parser)
    add_join(parser)
    add_inside(parser)
    add_large_header(parser)
    add_output(parser)


def execute(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Writes the files, and returns the exit status."""
    rules = join_rules(options)
    source = source_of(options.source, options.large_header, options.inside)
    with working(f"Converting {shown_name(options.source)}"):
        # Closed before the target is written, which may replace it.
        with open_checkpoint(source, options.at, rules) as checkpoint:
            rename = _rename(options, checkpoint)
        try:
            changes = convert(
                source,
                options.target,
                dtype=options.dtype,
                rename=rename,
                max_shard_size=options.max_shard_size,
                format=options.format,
                at=options.at,
                join=rules,
                atomic=not options.in_place,
                overwrite=options.overwrite,
                keep=options.keep,
            )
        except CheckpointError:
            raise
        except (TypeError, ValueError) as error:  # options that do not fit
            raise Trouble(str(error)) from error
    _say(options, changes)
    return DIFFERENT if changes.infinite else SAME


def _rename(
    options: argparse.Namespace, checkpoint: Checkpoint
) -> Callable[[str], str | None] | None:
    """The new key of each entry, None for those that do not match."""
    function = None if options.rename is None else rename_function(options.rename)
    if options.match is options.only is options.drop is None:
        return function
    keys = list(checkpoint.keys())
    only = {*keys} if options.only is None else matching_paths(options.only, keys)
    drop = set() if options.drop is None else matching_paths(options.drop, keys)
    kept = only - drop
    globs = ["*"] if options.match is None else options.match

    def matches(key: str) -> bool:
        return key in kept and any(fnmatch.fnmatchcase(key, glob) for glob in globs)

    def renamed(key: str) -> str | None:
        if not matches(key):
            return None
        return key if function is None else function(key)

    if not any(map(matches, checkpoint.keys())):
        wanted = [*(options.match or ()), *(options.only or ())]
        like = near(wanted, checkpoint.keys())
        raise Trouble(f"{checkpoint.path}: no key matches {_wanted(options)}{like}")
    return renamed


def _wanted(options: argparse.Namespace) -> str:
    wanted = " or ".join([*(options.match or ()), *(options.only or ())]) or "*"
    return wanted + (f", without {' or '.join(options.drop)}" if options.drop else "")


def _say(options: argparse.Namespace, changes: Changes) -> None:
    with open_checkpoint(options.target) as written:
        entries = written.entries.values()
        files = sorted({str(entry.file) for entry in entries})
        nbytes = sum(entry.nbytes for entry in entries)
        if options.json:
            answer = {
                "path": str(written.path),
                "format": written.format,
                "entries": len(written.keys()),
                "nbytes": nbytes,
                "files": files,
                "left_out": changes.left_out,
                "not_converted": changes.codes,
                "became_infinite": changes.infinite,
                "became_zero": changes.zero,
            }
            print(json.dumps(answer, indent=1))
        else:
            print(f"{headline(written)}, {bytes_text(nbytes)}")
            if changes.part_of:
                print(f"not the whole: {printable(options.source)} is {changes.part_of}")
            screen = Screen()
            for reason, keys in changes.left_out.items():
                print(screen.bounded(f"left out, {reason}: {_listed(keys)}"))
            if changes.codes:
                print(f"not converted, codes and what belongs to them: {_listed(changes.codes)}")
            for what, counts in (("infinite", changes.infinite), ("zero", changes.zero)):
                if counts:
                    total = noun(counts.total(), "value")
                    print(f"{total} became {what}, in {_listed([*counts])}")


def _listed(keys: list[str]) -> str:
    more = f" and {len(keys) - _FEW} more" if len(keys) > _FEW else ""
    return ", ".join(printable(key) for key in keys[:_FEW]) + more
