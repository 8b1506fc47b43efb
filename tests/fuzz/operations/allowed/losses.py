# SPDX-License-Identifier: BSD-3-Clause
"""What may differ: losses."""

from __future__ import annotations

from typing import Any

import numpy as np

from .failures import Allowed, arrays, bare, beyond, is_empty, message


def losses_of_several_dtypes(f: Any) -> bool:
    names = ("huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits")
    words = ("accepted", "backward accepted", "dtype", "value")
    differ = len({a.dtype for a in arrays(f)}) > 1
    return bare(f) in names and f.word in words and differ


def losses_with_more_gradients(f: Any) -> bool:
    text = "is not differentiable with respect to argument"
    names = ("soft_margin_loss", "multi_margin_loss")
    return bare(f) in names and f.word == "accepted" and text in message(f)


def exponential_that_overflows(f: Any) -> bool:
    if bare(f) != "soft_margin_loss" or f.word != "value":
        return False
    return bool(np.isinf(f.theirs.results[0]).any())


def target_without_mass(f: Any) -> bool:
    return bare(f) == "kl_div" and f.word == "gradient value" and not arrays(f)[-1].all()


def complex_targets(f: Any) -> bool:
    kinds = [a.dtype.kind for a in arrays(f)]
    return bare(f) == "binary_cross_entropy_with_logits" and f.word == "refused" and "c" in kinds


def stirling_of_nothing(f: Any) -> bool:
    """Of ``full=True``, where a target is not above 0."""
    full = f.line.keywords.get("full", f.line.values[3] if len(f.line.values) > 3 else False)
    target = f.line.tensors[1].array if len(f.line.tensors) > 1 else np.zeros(1)
    differs = f.word == "gradient value" and bare(f) == "poisson_nll_loss"
    return differs and bool(full) and not (target.real > 0).all()


def logits_of_ctc(f: Any) -> bool:
    return bare(f) == "ctc_loss" and f.word == "gradient value"


def enormous_log_probabilities(f: Any) -> bool:
    """-1e30 stands for the logarithm of 0."""
    return bare(f) == "ctc_loss" and f.word == "value" and beyond(arrays(f)[0], 1e29)


def uninitialized(f: Any) -> bool:
    return bare(f) == "multi_margin_loss" and is_empty(f)


ALLOWED = [
    Allowed("`huber_loss`, `binary_cross_entropy`", losses_of_several_dtypes),
    Allowed("gradients of `soft_margin_loss` in its", losses_with_more_gradients),
    Allowed("`soft_margin_loss` of values whose", exponential_that_overflows),
    Allowed("gradient of `kl_div` in a target of 0", target_without_mass),
    Allowed("`binary_cross_entropy_with_logits` with a complex", complex_targets),
    Allowed("gradient of `ctc_loss` in its log probabilities", logits_of_ctc),
    Allowed("layers, losses and products of infinite, NaN", enormous_log_probabilities),
    Allowed("gradient of `poisson_nll_loss(full=True)`", stirling_of_nothing),
    Allowed("`multi_margin_loss` of an empty batch", uninitialized),
]
