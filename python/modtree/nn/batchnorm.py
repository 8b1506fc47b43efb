# SPDX-License-Identifier: BSD-3-Clause
"""Normalization of batches and instances, with running statistics."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

from modtree.core.families import family_of, functions_of
from modtree.nn import functional as F
from modtree.nn.normalization import _Affine
from modtree.numpy.tensor.creation import empty
from modtree.numpy.tensor.dtypes import long
from modtree.numpy.tensor.from_data import tensor
from modtree.numpy.tensor.tensor import Tensor

__all__ = [
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "SyncBatchNorm",
]


def replaces_statistics(module: Any) -> bool:
    """Whether there are statistics to move that cannot change in place."""
    if not module.track_running_stats or module.running_mean is None:
        return False
    family = family_of(module.running_mean)
    return family is not None and family.immutable


class _NormBase(_Affine):
    """Parameters and running statistics, one value per channel.

    Parameters: ``weight`` (ones) and ``bias`` (zeros), where ``affine``. Buffers: ``running_mean``,
    ``running_var`` and ``num_batches_tracked``, where ``track_running_stats``. Checkpoints of
    version 1 have no ``num_batches_tracked``; they load, it keeps its value.
    """

    _version = 2
    #: How many axes an input may have.
    _ranks: ClassVar[tuple[int, ...]] = ()

    num_features: int
    eps: float
    momentum: float | None
    affine: bool
    track_running_stats: bool
    running_mean: Any
    running_var: Any
    num_batches_tracked: Any

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        self._set_affine(num_features, affine, bias, device, dtype)
        tracked = self.track_running_stats
        for name in ("running_mean", "running_var"):
            self.register_buffer(
                name, empty(num_features, device=device, dtype=dtype) if tracked else None
            )
        self.register_buffer(
            "num_batches_tracked", tensor(0, dtype=long, device=device) if tracked else None
        )
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Mean 0, variance 1, no batches."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Back to ones and zeros; the running statistics too."""
        self.reset_running_stats()
        super().reset_parameters()

    def _check_input_dim(self, input: Tensor) -> None:
        if not self._ranks:
            raise NotImplementedError(f"{type(self).__name__} does not say which inputs it takes")
        if input.ndim not in self._ranks:
            names = " or ".join(f"{n}D" for n in self._ranks)
            raise ValueError(f"expected {names} input (got {input.ndim}D input)")

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        version = local_metadata.get("version", None)
        key = prefix + "num_batches_tracked"
        if (version is None or version < 2) and self.track_running_stats and key not in state_dict:
            own = self.num_batches_tracked
            known = own is not None and not own.is_meta
            state_dict[key] = own if known else tensor(0, dtype=long)
        super()._load_from_state_dict(
            state_dict,
            prefix,
            local_metadata,
            strict,
            missing_keys,
            unexpected_keys,
            error_msgs,
        )


class _BatchNorm(_NormBase):
    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        if not isinstance(input, Tensor) and self.training and replaces_statistics(self):
            return self._replace_statistics(input)
        factor = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # the mean over all batches
                factor = 1.0 / float(self.num_batches_tracked)
        use_batch = self.training or (self.running_mean is None and self.running_var is None)
        # While training without tracking, given buffers stay as they are.
        keep = not self.training or self.track_running_stats
        return F.batch_norm(
            input,
            self.running_mean if keep else None,
            self.running_var if keep else None,
            self.weight,
            self.bias,
            use_batch,
            factor,
            self.eps,
        )

    def _replace_statistics(self, input: Any) -> Any:
        """While training, of a library whose tensors cannot change: the buffers are new ones."""
        momentum = self.momentum
        if self.num_batches_tracked is not None:
            count = self.num_batches_tracked = self.num_batches_tracked + 1
            momentum = 1.0 / count if momentum is None else momentum
        y, self.running_mean, self.running_var = functions_of(self).batch_norm_and_statistics(
            input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            0.0 if momentum is None else momentum,
            self.eps,
        )
        return y


_BATCH_NORM = """Each channel of {shape} with mean 0 and variance 1 over the batch, then scaled and
    shifted (Ioffe and Szegedy, 2015).

    While training it uses mean and variance of the batch, and moves the running ones towards them;
    in ``eval()`` it uses the running ones.

    Args:
        num_features: C.
        eps: Added to the variance.
        momentum: How far the running values move; None makes them the mean over all batches.
        affine: False leaves ``weight`` and ``bias`` out (both None).
        track_running_stats: False leaves the buffers out; the batch's own values are used always
            then.
        device: Where parameters and buffers are made.
        dtype: Their dtype.
        bias: False leaves ``bias`` out.

    ValueError for inputs of another rank, and when training with one value per channel.

    Shape:
        - input and output: {shape}, the same.
    """


class BatchNorm1d(_BatchNorm):
    __doc__ = _BATCH_NORM.format(shape="(N, C) or (N, C, L)")
    _ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    __doc__ = _BATCH_NORM.format(shape="(N, C, H, W)")
    _ranks = (4,)


class BatchNorm3d(_BatchNorm):
    __doc__ = _BATCH_NORM.format(shape="(N, C, D, H, W)")
    _ranks = (5,)


class SyncBatchNorm(_BatchNorm):
    # The name that programs for several processes use. There is one here.
    __doc__ = _BATCH_NORM.format(shape="(N, C, ...)")

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise ValueError(f"expected at least 2D input (got {input.ndim}D input)")


class _InstanceNorm(_NormBase):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
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

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        # Checkpoints of version 1 hold statistics also of layers that track none.
        if local_metadata.get("version", None) is None and not self.track_running_stats:
            found = [n for n in ("running_mean", "running_var") if prefix + n in state_dict]
            names = [f'"{prefix}{n}"' for n in found]
            if found:
                error_msgs.append(
                    f"Unexpected running stats buffer(s) {' and '.join(names)} for "
                    f"{type(self).__name__} with track_running_stats=False. If state_dict is a "
                    "checkpoint saved before instance norm stopped tracking by default, delete "
                    "these keys, or make the layer with track_running_stats=True"
                )
                for name in found:
                    state_dict.pop(prefix + name)
        super()._load_from_state_dict(
            state_dict,
            prefix,
            local_metadata,
            strict,
            missing_keys,
            unexpected_keys,
            error_msgs,
        )

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        batched = input.ndim == self._ranks[1]
        channels = input.shape[1 if batched else 0]
        if channels != self.num_features:
            self._wrong_channels(channels, 1 if batched else 0)
        x = input if batched else input[None]
        if not isinstance(input, Tensor) and self.training and replaces_statistics(self):
            y = self._replace_statistics(x)
            return y if batched else y[0]
        y = F.instance_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            self.momentum if self.momentum is not None else 0.0,
            self.eps,
        )
        return y if batched else y.squeeze(0)

    def _replace_statistics(self, input: Any) -> Any:
        """As that of :class:`BatchNorm2d`."""
        y, self.running_mean, self.running_var = functions_of(self).instance_norm_and_statistics(
            input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            0.0 if self.momentum is None else self.momentum,
            self.eps,
        )
        return y

    def _wrong_channels(self, channels: int, axis: int) -> None:
        if self.affine:
            raise ValueError(
                f"expected input's size at dim={axis} to match num_features "
                f"({self.num_features}), but got: {channels}."
            )
        warnings.warn(
            f"input's size at dim={axis} does not match num_features. You can silence this warning "
            "by not passing in num_features, which is not used because affine=False",
            stacklevel=3,
        )


_INSTANCE_NORM = """Each channel of each sample of {shape} with mean 0 and variance 1 (Ulyanov
    et al., 2016).

    Args:
        num_features: C.
        eps: Added to the variance.
        momentum: How far the running values move.
        affine: Scale and shift each channel by ``weight`` and ``bias``.
        track_running_stats: Keep running statistics, and use them in ``eval()``.
        device: Where parameters and buffers are made.
        dtype: Their dtype.
        bias: False leaves ``bias`` out.

    Shape:
        - input and output: {shape}, the same.
    """


class InstanceNorm1d(_InstanceNorm):
    __doc__ = _INSTANCE_NORM.format(shape="(N, C, L) or (C, L)")
    _ranks = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    __doc__ = _INSTANCE_NORM.format(shape="(N, C, H, W) or (C, H, W)")
    _ranks = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    __doc__ = _INSTANCE_NORM.format(shape="(N, C, D, H, W) or (C, D, H, W)")
    _ranks = (4, 5)
