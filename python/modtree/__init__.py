# SPDX-License-Identifier: BSD-3-Clause
"""modtree: PyTorch's module system as a C++ extension, on NumPy, for any tensor library."""

from __future__ import annotations

from modtree import _imports  # isort: skip  # first: a second import gets the modules of the first

from modtree._C import __version__
from modtree._C import _promote_types as promote_types
from modtree._C import _result_type as result_type
from modtree.amp import GradScaler, autocast
from modtree.creation import *  # noqa: F403
from modtree.devices import device
from modtree.dtypes import *  # noqa: F403
from modtree.grad_mode import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from modtree.layouts import *  # noqa: F403
from modtree.ops.functions import *  # noqa: F403
from modtree.random import (
    Generator,
    default_generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)
from modtree.sampling import *  # noqa: F403
from modtree.serialization import load, save
from modtree.settings import *  # noqa: F403
from modtree.tensor import Size, Tensor, is_tensor
from modtree.typed import *  # noqa: F403
from modtree.windows import *  # noqa: F403

from modtree import derivatives as _derivatives  # noqa: F401  # isort: skip  # fills the table's second half
from modtree import amp, autograd, backends, cuda, func, linalg, nn, optim, utils  # isort: skip
from modtree.families import numpy as _numpy_family  # noqa: F401  # isort: skip  # announces the native family

from modtree.layer_functions import *  # noqa: F403  # isort: skip

# The submodule of the same name has taken the function's place when it was imported.
from modtree.creation import tensor  # isort: skip

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
    "result_type",
    "save",
    "seed",
    "set_grad_enabled",
    "set_rng_state",
    "tensor",
    "utils",
]
