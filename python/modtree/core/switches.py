# SPDX-License-Identifier: BSD-3-Clause
"""Switches of how ``Module.to()`` and its relatives put converted tensors in place; off by
default.
"""

from modtree import _C

_overwrite_module_params_on_conversion = False
_swap_module_params_on_conversion = False


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """True: a conversion stores new parameters. False: parameters keep their identity and get a new
    storage where possible.
    """
    global _overwrite_module_params_on_conversion
    _overwrite_module_params_on_conversion = value


def get_overwrite_module_params_on_conversion() -> bool:
    return _overwrite_module_params_on_conversion


def set_swap_module_params_on_conversion(value: bool) -> None:
    """True: conversions and ``load_state_dict`` exchange the contents of the old and the new
    tensor.
    """
    global _swap_module_params_on_conversion
    _swap_module_params_on_conversion = value


def get_swap_module_params_on_conversion() -> bool:
    return _swap_module_params_on_conversion


_C._install(
    get_overwrite_module_params_on_conversion=get_overwrite_module_params_on_conversion,
    get_swap_module_params_on_conversion=get_swap_module_params_on_conversion,
)
