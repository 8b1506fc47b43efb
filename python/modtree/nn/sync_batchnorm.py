# SPDX-License-Identifier: BSD-3-Clause
"""Batch normalization across processes, of which there is one."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from modtree._tensor.tensor import Tensor
from modtree.core.module import Module
from modtree.core.undo import undone_on_error
from modtree.nn.batchnorm import _BatchNorm

__all__ = ["SyncBatchNorm"]


class SyncBatchNorm(_BatchNorm):
    """Batch normalization of (N, C, ...) over the batches of all processes. In one process, which
    is what there is, it does what :class:`BatchNorm2d` does.

    Args:
        num_features: Number of channels C.
        eps: Added to the variance.
        momentum: Share of the new batch in the running statistics; None for the mean of all.
        affine: Scale and shift by parameters.
        track_running_stats: Keep running statistics, for eval mode.
        process_group: Kept, without effect.
        device: Where parameters and buffers are made.
        dtype: Their dtype.
        bias: Whether there is a shift.

    Shape:
        - input and output: (N, C, ...), the same.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features,
            eps,
            momentum,
            affine,
            track_running_stats,
            device=device,
            dtype=dtype,
            bias=bias,
        )
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise ValueError(f"expected at least 2D input (got {input.ndim}D input)")
        if input.shape[1] == 0:
            raise ValueError("SyncBatchNorm number of input channels should be non-zero")

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """The module with each batch normalization in it replaced by one of this class that has the
        same parameters and buffers.

        Args:
            module: A tree of modules; changed in place, but for its root.
            process_group: Kept, without effect.
        """
        with ExitStack() as undo:
            for each in module.modules():
                undo.enter_context(undone_on_error(each, *each._modules))
            return cls._converted(module, process_group)

    @classmethod
    def _converted(cls, module: Module, process_group: Any) -> Module:
        result: Module = module
        if isinstance(module, _BatchNorm):
            result = cls._like(module, process_group)
        for name, child in module.named_children():
            result.add_module(name, cls._converted(child, process_group))
        return result

    @classmethod
    def _like(cls, module: _BatchNorm, process_group: Any) -> SyncBatchNorm:
        result = cls(
            module.num_features,
            module.eps,
            module.momentum,
            module.affine,
            module.track_running_stats,
            process_group,
        )
        result.weight, result.bias = module.weight, module.bias
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            setattr(result, name, getattr(module, name))
        result.training = module.training
        if hasattr(module, "qconfig"):
            result.qconfig = module.qconfig  # type: ignore[attr-defined]
        return result
