# SPDX-License-Identifier: BSD-3-Clause
"""The colours of a drawing, by kind of layer. Every text has a contrast of 4.5 to what is behind it
(WCAG AA), in both themes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Tint:
    """The colours of one kind of layer."""

    fill: str
    line: str
    accent: str
    """Of the name of the class, and of the bar."""


@dataclass(frozen=True)
class Palette:
    """The colours of one theme."""

    page: str
    text: str
    muted: str
    line: str
    card: tuple[str, str]
    """Of boxes that hold boxes, in turn from level to level."""
    badge: str
    badge_text: str
    track: str
    """Behind a bar."""
    link: dict[str, str]
    tints: dict[str, Tint]


#: The kinds of layers, and by which words in the name of a class they are known; the first counts.
KINDS = {
    "attention": r"attention|attn",
    "dropout": r"drop",
    "norm": r"norm",
    "convolution": r"conv",
    "embedding": r"embed",
    "recurrent": r"lstm|gru|rnn",
    "pooling": r"pool|flatten|sampl|shuffle|pad\d|fold",
    "activation": r"(?:re|se|ce|ge|e|si|g)lu6?(?![a-z])|mish|swish|sigmoid|tanh|softm|softplus"
    r"|softsign|shrink|threshold|activation",
    "linear": r"linear|dense",
}
_KINDS = [(kind, re.compile(words)) for kind, words in KINDS.items()]


def kind_of_layer(type_name: str) -> str:
    """The kind of layer that the name of a class speaks of; "other" for most."""
    lower = type_name.lower()
    return next((kind for kind, words in _KINDS if words.search(lower)), "other")


LIGHT = Palette(
    page="#ffffff",
    text="#1f2328",
    muted="#4f5864",
    line="#c9d0d8",
    card=("#f6f8fa", "#ffffff"),
    badge="#3d4652",
    badge_text="#ffffff",
    track="#dfe3e8",
    link={"shared": "#8250df", "tied": "#bc4c00"},
    tints={
        "attention": Tint("#eee6fb", "#b096de", "#54269a"),
        "dropout": Tint("#f3efe9", "#c4b6a3", "#5f4c33"),
        "norm": Tint("#fbf1d6", "#d8b45c", "#6b4a00"),
        "convolution": Tint("#e3f2e6", "#7fb58b", "#1a5e2f"),
        "embedding": Tint("#fae5f1", "#dc94bf", "#851d5b"),
        "recurrent": Tint("#dff2f1", "#78bdb9", "#0d5653"),
        "pooling": Tint("#e9ebef", "#a6aebb", "#414b5a"),
        "activation": Tint("#fce6e4", "#e09a94", "#8f2019"),
        "linear": Tint("#e3edfb", "#86aede", "#17488f"),
        "other": Tint("#f4f5f7", "#bcc3cc", "#3d4652"),
    },
)

DARK = Palette(
    page="#0d1117",
    text="#e6edf3",
    muted="#a3b0bd",
    line="#3d4651",
    card=("#151b23", "#0d1117"),
    badge="#c9d1d9",
    badge_text="#0d1117",
    track="#2d343d",
    link={"shared": "#b392f0", "tied": "#f0883e"},
    tints={
        "attention": Tint("#2a1f42", "#6f55a8", "#c9b0fa"),
        "dropout": Tint("#2d2720", "#756550", "#d6c2a5"),
        "norm": Tint("#352a0e", "#8a6d24", "#ecc96b"),
        "convolution": Tint("#17301e", "#3f7a51", "#8fd6a4"),
        "embedding": Tint("#381a2b", "#95507a", "#f2a4d1"),
        "recurrent": Tint("#10302f", "#3a7f7b", "#84d6d1"),
        "pooling": Tint("#262b33", "#5a6473", "#b6c0cd"),
        "activation": Tint("#3a1b1a", "#99504a", "#f7a8a1"),
        "linear": Tint("#162a45", "#3f6da8", "#93c0fb"),
        "other": Tint("#22272e", "#545d68", "#b9c3ce"),
    },
)
