# SPDX-License-Identifier: BSD-3-Clause
"""Multi-head attention."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator
from typing import Any

from modtree.core.module import Module
from modtree.nn import functional as F
from modtree.nn import init
from modtree.nn.linear import NonDynamicallyQuantizableLinear
from modtree.numpy.tensor.creation import empty
from modtree.numpy.tensor.parameter import OptionalParameter, Parameter
from modtree.numpy.tensor.tensor import Tensor

__all__ = ["MultiheadAttention", "SDPBackend", "sdpa_kernel"]


class SDPBackend(enum.IntEnum):
    """The ways in which torch computes attention; here there is one."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextlib.contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[None]:
    """A context that changes nothing: attention is computed in one way.

    Args:
        backends: A SDPBackend, or a list of them.
        set_priority: Accepted.
    """
    if not isinstance(backends, (list, SDPBackend)):
        raise AssertionError(
            f"Backend must be an instance of SDPBackend or a list of SDPBackend instances, got "
            f"{type(backends).__name__}"
        )
    yield


class MultiheadAttention(Module):
    """Attention in several heads at once, with projections before and after (Vaswani et al., 2017).

    Args:
        embed_dim: Width of queries and of the output; divided among the heads.
        num_heads: Number of heads.
        dropout: Probability of dropping an attention weight while training.
        bias: False leaves the biases of the projections out.
        add_bias_kv: Append a learned key and value to every sequence.
        add_zero_attn: Append a key and value of zeros.
        kdim: Width of keys when it is not ``embed_dim``.
        vdim: Width of values when it is not ``embed_dim``.
        batch_first: Sequences are (batch, length, width) instead of (length, batch, width).
        device: Where the parameters are made.
        dtype: Their dtype.

    Example:
        >>> attention = nn.MultiheadAttention(64, 4, batch_first=True)
        >>> x = mt.randn(2, 5, 64)
        >>> output, weights = attention(x, x, x)
        >>> output.shape, weights.shape
        (modtree.Size([2, 5, 64]), modtree.Size([2, 5, 5]))

    Shape:
        - query: (L, N, embed_dim), with ``batch_first`` (N, L, embed_dim); without a batch (L,
          embed_dim).
        - key and value: (S, N, kdim) and (S, N, vdim), likewise.
        - output: as the query, and the weights (N, L, S) or None; see :meth:`forward`.
    """

    in_proj_weight: OptionalParameter
    in_proj_bias: OptionalParameter
    q_proj_weight: OptionalParameter
    k_proj_weight: OptionalParameter
    v_proj_weight: OptionalParameter
    bias_k: OptionalParameter
    bias_v: OptionalParameter

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                "embed_dim and num_heads must be greater than 0, got "
                f"embed_dim={embed_dim} and num_heads={num_heads} instead"
            )
        super().__init__()
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        if self.head_dim * num_heads != embed_dim:
            raise AssertionError(
                f"embed_dim must be divisible by num_heads, got {embed_dim} and {num_heads}"
            )

        def parameter(*shape: int) -> Parameter:
            return Parameter(empty(shape, device=device, dtype=dtype))

        if self._qkv_same_embed_dim:
            self.in_proj_weight = parameter(3 * embed_dim, embed_dim)
            for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight"):
                self.register_parameter(name, None)
        else:
            self.q_proj_weight = parameter(embed_dim, embed_dim)
            self.k_proj_weight = parameter(embed_dim, self.kdim)
            self.v_proj_weight = parameter(embed_dim, self.vdim)
            self.register_parameter("in_proj_weight", None)
        self.register_parameter("in_proj_bias", parameter(3 * embed_dim) if bias else None)
        self.out_proj = NonDynamicallyQuantizableLinear(
            embed_dim, embed_dim, bias=bias, device=device, dtype=dtype
        )
        if add_bias_kv:
            self.bias_k = parameter(1, 1, embed_dim)
            self.bias_v = parameter(1, 1, embed_dim)
        else:
            self.bias_k = self.bias_v = None
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        if self._qkv_same_embed_dim:
            init.xavier_uniform_(self.in_proj_weight)
        else:
            init.xavier_uniform_(self.q_proj_weight)
            init.xavier_uniform_(self.k_proj_weight)
            init.xavier_uniform_(self.v_proj_weight)
        if self.in_proj_bias is not None:
            init.constant_(self.in_proj_bias, 0.0)
            init.constant_(self.out_proj.bias, 0.0)
        if self.bias_k is not None:
            init.xavier_normal_(self.bias_k)
        if self.bias_v is not None:
            init.xavier_normal_(self.bias_v)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attends from ``query`` to ``key`` and ``value``.

        Args:
            query: (L, N, E), with ``batch_first`` (N, L, E); without a batch (L, E).
            key: (S, N, kdim), likewise.
            value: (S, N, vdim), likewise.
            key_padding_mask: (N, S) or (S); True, or -inf, for keys to leave out.
            need_weights: Return the attention weights too. False is faster.
            attn_mask: (L, S) or (N * num_heads, L, S); True, or -inf, for pairs to leave out.
            average_attn_weights: Return the mean over the heads instead of one matrix per head.
            is_causal: ``attn_mask`` is the causal mask.

        Returns:
            The output, shaped as the query, and the weights or None.
        """
        swap = self.batch_first and query.ndim == 3
        if swap:
            if query is key and key is value:
                query = key = value = query.swapaxes(0, 1)
            else:
                query, key, value = (x.swapaxes(0, 1) for x in (query, key, value))
        output, weights = F.multi_head_attention_forward(
            query,
            key,
            value,
            self.embed_dim,
            self.num_heads,
            self.in_proj_weight,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout,
            self.out_proj.weight,
            self.out_proj.bias,
            training=self.training,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            use_separate_proj_weight=not self._qkv_same_embed_dim,
            q_proj_weight=self.q_proj_weight,
            k_proj_weight=self.k_proj_weight,
            v_proj_weight=self.v_proj_weight,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        return (output.swapaxes(0, 1) if swap else output), weights
