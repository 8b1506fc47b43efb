# SPDX-License-Identifier: BSD-3-Clause
"""Kernels of CUDA, which is not used here: their switches keep what they are told."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

__all__ = [
    "cudnn_sdp_enabled",
    "enable_cudnn_sdp",
    "enable_flash_sdp",
    "enable_math_sdp",
    "enable_mem_efficient_sdp",
    "flash_sdp_enabled",
    "is_built",
    "is_flash_attention_available",
    "math_sdp_enabled",
    "matmul",
    "mem_efficient_sdp_enabled",
    "sdp_kernel",
]


class _Switches:
    """Keeps what it is told, and does nothing."""

    allow_tf32 = False
    allow_fp16_reduced_precision_reduction = True
    allow_bf16_reduced_precision_reduction = True
    allow_fp16_accumulation = False
    fp32_precision = "none"


matmul = _Switches()
_kernels = {"flash": False, "mem_efficient": False, "math": True, "cudnn": False}


def is_built() -> bool:
    """False."""
    return False


def is_flash_attention_available() -> bool:
    """False."""
    return False


def enable_flash_sdp(enabled: bool) -> None:
    """Keeps what it is told: attention is computed in one way."""
    _kernels["flash"] = bool(enabled)


def flash_sdp_enabled() -> bool:
    """What was set; False at first."""
    return _kernels["flash"]


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Keeps what it is told: attention is computed in one way."""
    _kernels["mem_efficient"] = bool(enabled)


def mem_efficient_sdp_enabled() -> bool:
    """What was set; False at first."""
    return _kernels["mem_efficient"]


def enable_math_sdp(enabled: bool) -> None:
    """Keeps what it is told: attention is computed in one way."""
    _kernels["math"] = bool(enabled)


def math_sdp_enabled() -> bool:
    """What was set; True at first."""
    return _kernels["math"]


def enable_cudnn_sdp(enabled: bool) -> None:
    """Keeps what it is told: attention is computed in one way."""
    _kernels["cudnn"] = bool(enabled)


def cudnn_sdp_enabled() -> bool:
    """What was set; False at first."""
    return _kernels["cudnn"]


@contextlib.contextmanager
def sdp_kernel(
    enable_flash: bool = True,
    enable_math: bool = True,
    enable_mem_efficient: bool = True,
    enable_cudnn: bool = True,
) -> Iterator[None]:
    """A context in which the switches of attention have other values.

    Args:
        enable_flash: For :func:`enable_flash_sdp`.
        enable_math: For :func:`enable_math_sdp`.
        enable_mem_efficient: For :func:`enable_mem_efficient_sdp`.
        enable_cudnn: For :func:`enable_cudnn_sdp`.
    """
    before = dict(_kernels)
    _kernels.update(
        flash=enable_flash,
        math=enable_math,
        mem_efficient=enable_mem_efficient,
        cudnn=enable_cudnn,
    )
    try:
        yield
    finally:
        _kernels.update(before)
