# SPDX-License-Identifier: BSD-3-Clause
"""modtree: PyTorch's module system as a C++ extension, on NumPy, for any tensor library."""

from __future__ import annotations

from modtree import _imports, amp, autograd, backends, cuda, func, linalg, nn, optim, random, utils
from modtree._C import __version__
from modtree._C import _promote_types as promote_types
from modtree._C import _result_type as result_type
from modtree._ops.functions import *  # noqa: F403
from modtree._tensor.creation import *  # noqa: F403
from modtree._tensor.creation import tensor
from modtree._tensor.devices import device
from modtree._tensor.dtypes import *  # noqa: F403
from modtree._tensor.grad_mode import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from modtree._tensor.layouts import *  # noqa: F403
from modtree._tensor.random import (
    Generator,
    default_generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)
from modtree._tensor.sampling import *  # noqa: F403
from modtree._tensor.settings import *  # noqa: F403
from modtree._tensor.tensor import Size, Tensor, is_tensor
from modtree._tensor.typed import *  # noqa: F403
from modtree._tensor.windows import *  # noqa: F403
from modtree.amp import GradScaler, autocast
from modtree.families import numpy as _numpy_family  # noqa: F401  # announces the native family
from modtree.nn.functional.at_top import *  # noqa: F403
from modtree.serialization import load, save

_imports.remember()

__all__ = [
    "Generator",
    "GradScaler",
    "Size",
    "Tensor",
    "__version__",
    "amp",
    "autocast",
    "autograd",
    "backends",
    "cuda",
    "default_generator",
    "device",
    "enable_grad",
    "func",
    "get_rng_state",
    "inference_mode",
    "initial_seed",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "is_tensor",
    "linalg",
    "load",
    "manual_seed",
    "nn",
    "no_grad",
    "optim",
    "promote_types",
    "random",
    "result_type",
    "save",
    "seed",
    "set_grad_enabled",
    "set_rng_state",
    "tensor",
    "utils",
]
