# SPDX-License-Identifier: BSD-3-Clause
"""What is written in the boxes of a drawing in any format: names made harmless, numbers short, and
how wide a text is without a font at hand. The pictures use a monospaced one, where every letter has
one width.
"""

from __future__ import annotations

import re
import unicodedata

from modtree.inspection.drawing.outline import Box, Link
from modtree.inspection.phrases import bytes_text
from modtree.inspection.tree import Leaf, Node

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
    label = shorten(clean(box.label), length)
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
        lines.append(bytes_text(node.nbytes))
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
        f"{kind}, {shape_text(leaf)} {clean(leaf.dtype)}, {bytes_text(leaf.nbytes)}",
    ]
    if leaf.first_path is not None:
        lines.append(f"tied to {shorten(clean(leaf.first_path), _TOOLTIP_TEXT)}")
    return lines


# -- widths ----------------------------------------------------------------------------------------

# In parts of the font size. Monospaced fonts have 0.55 (Consolas) to 0.602 (DejaVu, Menlo).
_ADVANCE = 0.605
# Characters that these fonts lack come from others: CJK ones are square, emoji wider than that.
_WIDE, _EMOJI = 1.0, 1.3

# What all of them have: ASCII, and the signs that the drawings write themselves.
_CERTAIN = re.compile(r"[ -~×·…\N{NO-BREAK SPACE}]*\Z")


def text_width(text: str, size: float) -> float:
    """The width of a line of text in pixels."""
    if _CERTAIN.match(text):
        return len(text) * _ADVANCE * size
    return sum(map(_advance, text)) * size


def _advance(char: str) -> float:
    if _CERTAIN.match(char):
        return _ADVANCE
    category = unicodedata.category(char)
    if category in ("Mn", "Me", "Cf"):
        return 0.0
    if unicodedata.east_asian_width(char) in "WF":
        return _EMOJI if category in ("So", "Sk", "Cn") else _WIDE
    return _EMOJI if category in ("So", "Cn") else _ADVANCE


def is_certain(text: str) -> bool:
    """True if every monospaced font has all of it, so that the width holds whatever the font."""
    return _CERTAIN.match(text) is not None


def ellipsis(text: str, room: float, size: float) -> str:
    """As much of the text as fits into so many pixels, with an ellipsis where that is not all."""
    if text_width(text, size) <= room:
        return text
    left = room - _ADVANCE * size
    kept = 0
    for kept, char in enumerate(text):  # noqa: B007  # what was kept is wanted behind the loop
        left -= _advance(char) * size
        if left < 0:
            break
    while kept and _advance(text[kept - 1]) == 0:  # a joiner or an accent without what it is for
        kept -= 1
    return f"{text[:kept].rstrip()}…"
