# SPDX-License-Identifier: BSD-3-Clause
"""What is written in the boxes of a drawing in any format: names made harmless, numbers short."""

from __future__ import annotations

import re
import unicodedata

from modtree.inspection.drawing.outline import Box, Link
from modtree.inspection.tree import Leaf, Node

__all__ = [
    "clean",
    "detail",
    "hidden",
    "lines_of_text",
    "link_text",
    "short_count",
    "shorten",
    "size",
    "tooltip",
]

# What a picture never has as it is: controls, lone surrogates, what changes the direction of the
# text behind it, line separators, and codes that are not characters.
_UNSEEN = ("Cc", "Cs", "Cf", "Co", "Zl", "Zp")
_JOINERS = "\u200c\u200d"  # of Persian words and of emoji
_PLAIN = re.compile(r"[ -~]*\Z")

_TOOLTIP_TENSORS = 8
_TOOLTIP_TEXT = 200


def clean(text: str) -> str:
    """The text with escapes in place of what is not to be seen, or not allowed in XML."""
    if _PLAIN.match(text):
        return text
    return "".join(c if _is_seen(c) else _escape(c) for c in text)


def _is_seen(char: str) -> bool:
    is_no_character = (ord(char) & 0xFFFE) == 0xFFFE or 0xFDD0 <= ord(char) <= 0xFDEF
    return char in _JOINERS or not (is_no_character or unicodedata.category(char) in _UNSEEN)


def _escape(char: str) -> str:
    code = ord(char)
    return (
        f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"
    )


def shorten(text: str, length: int) -> str:
    """At most so many characters, the last an ellipsis where there were more."""
    if len(text) <= length:
        return text
    kept = text[: length - 1]
    while kept and (kept[-1] in _JOINERS or unicodedata.combining(kept[-1])):
        kept = kept[:-1]
    return f"{kept.rstrip()}…"


def short_count(count: int) -> str:
    """Three digits: 9.41K, 25.6M, 7.24B."""
    if count < 1000:
        return str(count)
    value, unit = float(count), ""
    for unit in "KMBT":  # noqa: B007  # the last one counts
        value /= 1000
        if value < 999.5:
            break
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f}{unit}"


def short_bytes(count: int) -> str:
    """Powers of 1024: 97.8 MiB."""
    if count < 1024:
        return f"{count} B"
    value, unit = float(count), ""
    for unit in ("KiB", "MiB", "GiB", "TiB"):  # noqa: B007  # the last one counts
        value /= 1024
        if value < 1000:
            break
    return f"{value:.1f} {unit}"


def shape_text(leaf: Leaf) -> str:
    """``64×3×7×7``; a question mark while it is not known."""
    if leaf.shape is None:
        return "?"
    return "×".join(map(str, leaf.shape)) if leaf.shape else "scalar"


def detail(box: Box, shapes: bool) -> list[str]:
    """What is said of a box beside its name, class and size, in pieces that stay whole: its
    parameters with their shapes, or else its ``extra_repr``.
    """
    if box.kind in ("parameter", "buffer"):
        leaf = box.leaf
        assert leaf is not None
        is_frozen = leaf.kind == "parameter" and not leaf.requires_grad
        remark = "buffer" if leaf.kind == "buffer" else "frozen" if is_frozen else ""
        return [shape_text(leaf), clean(leaf.dtype), *filter(None, [remark])]
    if box.kind == "shared":
        assert box.node is not None
        return ["same module as", clean(box.node.first_path or "the whole model")]
    if box.node is None:
        return []
    parameters = [leaf for leaf in box.node.leaves if leaf.kind == "parameter"]
    if shapes and parameters and not box.tensors:
        texts = [f"{clean(leaf.name)} {shape_text(leaf)}" for leaf in parameters]
        return [f"{text}," for text in texts[:-1]] + texts[-1:]
    return clean(box.node.extra).split(" ") if box.node.extra else []


def size(box: Box) -> str:
    """The number of parameters; "" where there are none."""
    parameters = box.parameters
    if box.kind in ("shared", "more") or not parameters:
        return ""
    return f"{short_count(parameters)} each" if box.count > 1 else short_count(parameters)


def hidden(box: Box) -> str:
    """What is below a box and is not drawn; "" where all is."""
    counts = ((box.hidden, "module"), (box.hidden_tensors, "tensor"))
    texts = [f"{count:,} {what}{'s' * (count > 1)}" for count, what in counts if count]
    return f"… {', '.join(texts)}" if texts else ""


def lines_of_text(box: Box, shapes: bool, length: int) -> list[str]:
    """A box in a few lines of at most so many characters, for formats that lay out themselves."""
    if box.kind == "more":
        return [hidden(box)]
    label = _left_to_right(shorten(clean(box.label), length))
    times = f" × {box.count:,}" if box.count > 1 else ""
    if box.node is None:
        first = label
    elif label:
        first = f"{label}: {shorten(clean(box.node.type_name), length)}"
    else:
        first = shorten(clean(box.node.type_name), length)
    lines = [first + times, shorten(" ".join(detail(box, shapes)), length), hidden(box)]
    number = size(box) if box.leaf is None else ""
    if number:
        what = "parameter" if number.partition(" ")[0] == "1" else "parameters"
        lines.append(number.replace(" each", f" {what} each") if times else f"{number} {what}")
    return [line for line in lines if line]


def link_text(link: Link) -> str:
    """What two boxes have in common."""
    if link.kind == "shared":
        return "the same module"
    return shorten(f"tied: {', '.join(map(clean, link.names))}", _TOOLTIP_TEXT)


def _left_to_right(text: str) -> str:
    """Hebrew and Arabic between marks, so that what follows stays behind them."""
    if any(unicodedata.bidirectional(char) in ("R", "AL") for char in text):
        return f"\N{LEFT-TO-RIGHT MARK}{text}\N{LEFT-TO-RIGHT MARK}"
    return text


def tooltip(box: Box) -> list[str]:
    """All that is known of a box, in lines."""
    if box.kind == "more":
        return [hidden(box)]
    if box.leaf is not None:
        return _leaf_lines(box.leaf)
    if box.node is None:
        return [f"{clean(box.label)}: {len(box.children)} modules, {box.count:,} times"]
    return _node_lines(box.node, box)


def _node_lines(node: Node, box: Box) -> list[str]:
    what = f"{clean(node.type_name)}({shorten(clean(node.extra), _TOOLTIP_TEXT)})"
    lines = [shorten(clean(node.path), _TOOLTIP_TEXT) or "the whole model", what]
    if box.count > 1:
        last = box.last_path or node.path
        lines[0] += f" to {shorten(clean(last), _TOOLTIP_TEXT)}, {box.count:,} modules built alike"
    if box.kind == "shared":
        return [*lines, " ".join(detail(box, False))]
    if node.parameters:
        frozen = node.parameters - node.trainable
        lines.append(f"{node.parameters:,} parameters" + (f", {frozen:,} frozen" * bool(frozen)))
    if node.buffers:
        lines.append(f"{node.buffers:,} elements in buffers")
    if node.nbytes:
        lines.append(short_bytes(node.nbytes))
    for leaf in node.leaves[:_TOOLTIP_TENSORS]:
        tie = f", tied to {clean(leaf.first_path)}" if leaf.first_path is not None else ""
        name = shorten(clean(leaf.name), _TOOLTIP_TEXT)
        lines.append(f"{leaf.kind} {name}: {shape_text(leaf)} {clean(leaf.dtype)}{tie}")
    if len(node.leaves) > _TOOLTIP_TENSORS:
        lines.append(f"… {len(node.leaves) - _TOOLTIP_TENSORS} more tensors")
    return lines


def _leaf_lines(leaf: Leaf) -> list[str]:
    kind = leaf.kind
    if leaf.kind == "parameter" and not leaf.requires_grad:
        kind = "frozen parameter"
    if leaf.kind == "buffer" and not leaf.persistent:
        kind = "buffer that is not saved"
    lines = [
        shorten(clean(leaf.path), _TOOLTIP_TEXT),
        f"{kind}, {shape_text(leaf)} {clean(leaf.dtype)}, {short_bytes(leaf.nbytes)}",
    ]
    if leaf.first_path is not None:
        lines.append(f"tied to {shorten(clean(leaf.first_path), _TOOLTIP_TEXT)}")
    return lines
