# SPDX-License-Identifier: BSD-3-Clause
"""Values of tensors as arrays, for a look that leaves the tensors as they were."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["values_of"]


def values_of(tensor: Any, family: Any) -> Any:
    """The values as an array. Of a torch tensor it is a copy: torch never resizes memory again that
    an array was made of, which observers of quantization do in their next forward.
    """
    if family.name == "torch":
        tensor = tensor.detach().clone()
    return np.asarray(family.to_numpy(tensor))
