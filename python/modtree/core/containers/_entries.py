# SPDX-License-Identifier: BSD-3-Clause
"""What ParameterList and ParameterDict share: wrapping a tensor, and one line of the repr."""

from __future__ import annotations

from typing import Any

from modtree.core import families


def as_entry(value: Any) -> Any:
    """``value`` as it is stored: a tensor that is not a parameter becomes one, all else stays."""
    family = families.family_of(value)
    if family is None or family.is_parameter(value):
        return value
    return family.make_parameter(value, True)


def is_tensor(value: Any) -> bool:
    """True for a tensor of any library."""
    return families.family_of(value) is not None


def describe(label: str, value: Any, *, by_type_name: bool) -> str:
    """The line of one entry: kind, dtype (or the name of the tensor type) and size."""
    family = families.family_of(value)
    if family is None:
        return f"  ({label}): Object of type: {type(value).__name__}"
    kind = "Parameter" if family.is_parameter(value) else "Tensor"
    dtype = family.type_name(value) if by_type_name else value.dtype
    if family.is_uninitialized(value):
        return f"  ({label}): {kind} containing: [{dtype} of unknown size]"
    size = "x".join(map(str, family.shape(value)))
    device = getattr(value.device, "type", value.device)
    where = "" if device in ("cpu", "meta") else f" ({value.device})"
    return f"  ({label}): {kind} containing: [{dtype} of size {size}{where}]"
