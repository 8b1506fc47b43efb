# SPDX-License-Identifier: BSD-3-Clause
"""Initializers on meta, where there is nothing to fill.

For ``uniform_`` and ``normal_`` torch's kernel for meta makes other tensors on meta, operation by
operation, and copies their values that do not exist. What comes before a kernel (modes, subclasses,
transforms, the version counter, leaves that need a gradient) stays torch's.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

#: The kernels live as long as the library that has them.
_libraries: list[Any] = []


def let_initializers_return(file: ModuleType) -> None:
    """Registers kernels in front of those of ``torch._meta_registrations``, once that was executed.
    They answer for what torch's would return unchanged, and ask torch's for everything else.
    """
    torch: Any = sys.modules["torch"]
    library = torch._C._dispatch_library("IMPL", "aten", "Meta", __file__, 0)
    operations = torch.ops.aten.uniform_.default, torch.ops.aten.normal_.default
    for operation, make in zip(operations, (_uniform, _normal), strict=True):
        kernel = operation.py_kernels.get(torch._C.DispatchKey.Meta)
        if kernel is not None:
            kernel = functools.wraps(kernel)(make(kernel, _test_for(torch)))
            library.impl(operation.name(), "Meta", kernel)
    _libraries.append(library)


_Kernel = Callable[..., Any]
_Test = Callable[[Any], bool]


def _test_for(torch: Any) -> _Test:
    """What is true of a tensor in which torch's kernels find nothing to refuse, while no mode looks
    at the operations that they consist of.
    """
    floats = frozenset((torch.float32, torch.bfloat16, torch.float16, torch.float64))
    function_modes = torch._C._len_torch_function_stack
    dispatch_modes = torch._C._len_torch_dispatch_stack
    return lambda tensor: tensor.dtype in floats and not function_modes() and not dispatch_modes()


def _uniform(kernel: _Kernel, may_return: _Test) -> _Kernel:
    def uniform_(self: Any, low: Any = 0.0, high: Any = 1.0, generator: Any = None) -> Any:
        if generator is None and type(low) is type(high) is float and may_return(self):
            return self
        return kernel(self, low, high, generator)

    return uniform_


def _normal(kernel: _Kernel, may_return: _Test) -> _Kernel:
    def normal_(self: Any, mean: Any = 0.0, std: Any = 1.0, *, generator: Any = None) -> Any:
        if generator is None and type(mean) is type(std) is float and std >= 0:
            if may_return(self):
                return self
        return kernel(self, mean, std, generator=generator)

    return normal_
