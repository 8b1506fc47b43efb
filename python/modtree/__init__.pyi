# SPDX-License-Identifier: BSD-3-Clause
# Written by tools/make_stubs; do not edit.

from builtins import bool as _bool
from builtins import complex as _complex
from builtins import float as _float
from builtins import int as _int
from builtins import str as _str
from builtins import type as _type
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, overload

import numpy as np

from modtree import accelerator as accelerator
from modtree import amp as amp
from modtree import autograd as autograd
from modtree import backends as backends
from modtree import checkpoints as checkpoints
from modtree import compiler as compiler
from modtree import cpu as cpu
from modtree import cuda as cuda
from modtree import distributed as distributed
from modtree import distributions as distributions
from modtree import families as families
from modtree import func as func
from modtree import functional as functional
from modtree import hub as hub
from modtree import jit as jit
from modtree import linalg as linalg
from modtree import mps as mps
from modtree import multiprocessing as multiprocessing
from modtree import nn as nn
from modtree import optim as optim
from modtree import overrides as overrides
from modtree import profiler as profiler
from modtree import random as random
from modtree import serialization as serialization
from modtree import types as types
from modtree import utils as utils
from modtree import version as version
from modtree import xpu as xpu
from modtree._C import __version__ as __version__
from modtree._C import dtype as _dtype
from modtree._diff import diff as diff
from modtree._ops.functions import abs as abs
from modtree._ops.functions import abs_ as abs_
from modtree._ops.functions import absolute as absolute
from modtree._ops.functions import acos as acos
from modtree._ops.functions import acos_ as acos_
from modtree._ops.functions import acosh as acosh
from modtree._ops.functions import acosh_ as acosh_
from modtree._ops.functions import add as add
from modtree._ops.functions import addbmm as addbmm
from modtree._ops.functions import addcdiv as addcdiv
from modtree._ops.functions import addcmul as addcmul
from modtree._ops.functions import addmm as addmm
from modtree._ops.functions import addmv as addmv
from modtree._ops.functions import addr as addr
from modtree._ops.functions import adjoint as adjoint
from modtree._ops.functions import all as all
from modtree._ops.functions import allclose as allclose
from modtree._ops.functions import amax as amax
from modtree._ops.functions import amin as amin
from modtree._ops.functions import aminmax as aminmax
from modtree._ops.functions import angle as angle
from modtree._ops.functions import any as any
from modtree._ops.functions import arccos as arccos
from modtree._ops.functions import arccosh as arccosh
from modtree._ops.functions import arcsin as arcsin
from modtree._ops.functions import arcsinh as arcsinh
from modtree._ops.functions import arctan as arctan
from modtree._ops.functions import arctan2 as arctan2
from modtree._ops.functions import arctanh as arctanh
from modtree._ops.functions import argmax as argmax
from modtree._ops.functions import argmin as argmin
from modtree._ops.functions import argsort as argsort
from modtree._ops.functions import argwhere as argwhere
from modtree._ops.functions import as_strided as as_strided
from modtree._ops.functions import as_strided_ as as_strided_
from modtree._ops.functions import asin as asin
from modtree._ops.functions import asin_ as asin_
from modtree._ops.functions import asinh as asinh
from modtree._ops.functions import asinh_ as asinh_
from modtree._ops.functions import atan as atan
from modtree._ops.functions import atan2 as atan2
from modtree._ops.functions import atan2_ as atan2_
from modtree._ops.functions import atan_ as atan_
from modtree._ops.functions import atanh as atanh
from modtree._ops.functions import atanh_ as atanh_
from modtree._ops.functions import atleast_1d as atleast_1d
from modtree._ops.functions import atleast_2d as atleast_2d
from modtree._ops.functions import atleast_3d as atleast_3d
from modtree._ops.functions import baddbmm as baddbmm
from modtree._ops.functions import bincount as bincount
from modtree._ops.functions import bitwise_and as bitwise_and
from modtree._ops.functions import bitwise_and_ as bitwise_and_
from modtree._ops.functions import bitwise_left_shift as bitwise_left_shift
from modtree._ops.functions import bitwise_left_shift_ as bitwise_left_shift_
from modtree._ops.functions import bitwise_not as bitwise_not
from modtree._ops.functions import bitwise_not_ as bitwise_not_
from modtree._ops.functions import bitwise_or as bitwise_or
from modtree._ops.functions import bitwise_or_ as bitwise_or_
from modtree._ops.functions import bitwise_right_shift as bitwise_right_shift
from modtree._ops.functions import bitwise_right_shift_ as bitwise_right_shift_
from modtree._ops.functions import bitwise_xor as bitwise_xor
from modtree._ops.functions import bitwise_xor_ as bitwise_xor_
from modtree._ops.functions import block_diag as block_diag
from modtree._ops.functions import bmm as bmm
from modtree._ops.functions import broadcast_shapes as broadcast_shapes
from modtree._ops.functions import broadcast_tensors as broadcast_tensors
from modtree._ops.functions import broadcast_to as broadcast_to
from modtree._ops.functions import bucketize as bucketize
from modtree._ops.functions import cartesian_prod as cartesian_prod
from modtree._ops.functions import cat as cat
from modtree._ops.functions import cdist as cdist
from modtree._ops.functions import ceil as ceil
from modtree._ops.functions import ceil_ as ceil_
from modtree._ops.functions import chain_matmul as chain_matmul
from modtree._ops.functions import cholesky as cholesky
from modtree._ops.functions import cholesky_inverse as cholesky_inverse
from modtree._ops.functions import cholesky_solve as cholesky_solve
from modtree._ops.functions import chunk as chunk
from modtree._ops.functions import clamp as clamp
from modtree._ops.functions import clamp_max as clamp_max
from modtree._ops.functions import clamp_min as clamp_min
from modtree._ops.functions import clip as clip
from modtree._ops.functions import clone as clone
from modtree._ops.functions import column_stack as column_stack
from modtree._ops.functions import concat as concat
from modtree._ops.functions import concatenate as concatenate
from modtree._ops.functions import conj as conj
from modtree._ops.functions import conj_ as conj_
from modtree._ops.functions import copysign as copysign
from modtree._ops.functions import copysign_ as copysign_
from modtree._ops.functions import corrcoef as corrcoef
from modtree._ops.functions import cos as cos
from modtree._ops.functions import cos_ as cos_
from modtree._ops.functions import cosh as cosh
from modtree._ops.functions import cosh_ as cosh_
from modtree._ops.functions import count_nonzero as count_nonzero
from modtree._ops.functions import cov as cov
from modtree._ops.functions import cross as cross
from modtree._ops.functions import cummax as cummax
from modtree._ops.functions import cummin as cummin
from modtree._ops.functions import cumprod as cumprod
from modtree._ops.functions import cumsum as cumsum
from modtree._ops.functions import cumulative_trapezoid as cumulative_trapezoid
from modtree._ops.functions import deg2rad as deg2rad
from modtree._ops.functions import deg2rad_ as deg2rad_
from modtree._ops.functions import det as det
from modtree._ops.functions import detach as detach
from modtree._ops.functions import diag as diag
from modtree._ops.functions import diag_embed as diag_embed
from modtree._ops.functions import diagflat as diagflat
from modtree._ops.functions import diagonal as diagonal
from modtree._ops.functions import diagonal_scatter as diagonal_scatter
from modtree._ops.functions import digamma as digamma
from modtree._ops.functions import dist as dist
from modtree._ops.functions import div as div
from modtree._ops.functions import divide as divide
from modtree._ops.functions import dot as dot
from modtree._ops.functions import dsplit as dsplit
from modtree._ops.functions import dstack as dstack
from modtree._ops.functions import einsum as einsum
from modtree._ops.functions import eq as eq
from modtree._ops.functions import eq_ as eq_
from modtree._ops.functions import equal as equal
from modtree._ops.functions import erf as erf
from modtree._ops.functions import erf_ as erf_
from modtree._ops.functions import erfc as erfc
from modtree._ops.functions import erfc_ as erfc_
from modtree._ops.functions import erfinv as erfinv
from modtree._ops.functions import erfinv_ as erfinv_
from modtree._ops.functions import exp as exp
from modtree._ops.functions import exp2 as exp2
from modtree._ops.functions import exp2_ as exp2_
from modtree._ops.functions import exp_ as exp_
from modtree._ops.functions import expm1 as expm1
from modtree._ops.functions import expm1_ as expm1_
from modtree._ops.functions import fix as fix
from modtree._ops.functions import flatten as flatten
from modtree._ops.functions import flip as flip
from modtree._ops.functions import fliplr as fliplr
from modtree._ops.functions import flipud as flipud
from modtree._ops.functions import float_power as float_power
from modtree._ops.functions import floor as floor
from modtree._ops.functions import floor_ as floor_
from modtree._ops.functions import floor_divide as floor_divide
from modtree._ops.functions import floor_divide_ as floor_divide_
from modtree._ops.functions import fmax as fmax
from modtree._ops.functions import fmax_ as fmax_
from modtree._ops.functions import fmin as fmin
from modtree._ops.functions import fmin_ as fmin_
from modtree._ops.functions import fmod as fmod
from modtree._ops.functions import fmod_ as fmod_
from modtree._ops.functions import frac as frac
from modtree._ops.functions import frac_ as frac_
from modtree._ops.functions import gather as gather
from modtree._ops.functions import gcd as gcd
from modtree._ops.functions import ge as ge
from modtree._ops.functions import ge_ as ge_
from modtree._ops.functions import geqrf as geqrf
from modtree._ops.functions import ger as ger
from modtree._ops.functions import get_device as get_device
from modtree._ops.functions import greater as greater
from modtree._ops.functions import greater_equal as greater_equal
from modtree._ops.functions import gt as gt
from modtree._ops.functions import gt_ as gt_
from modtree._ops.functions import heaviside as heaviside
from modtree._ops.functions import histc as histc
from modtree._ops.functions import hsplit as hsplit
from modtree._ops.functions import hstack as hstack
from modtree._ops.functions import hypot as hypot
from modtree._ops.functions import hypot_ as hypot_
from modtree._ops.functions import igamma as igamma
from modtree._ops.functions import igammac as igammac
from modtree._ops.functions import imag as imag
from modtree._ops.functions import index_add as index_add
from modtree._ops.functions import index_copy as index_copy
from modtree._ops.functions import index_fill as index_fill
from modtree._ops.functions import index_put as index_put
from modtree._ops.functions import index_select as index_select
from modtree._ops.functions import inner as inner
from modtree._ops.functions import inverse as inverse
from modtree._ops.functions import is_complex as is_complex
from modtree._ops.functions import is_conj as is_conj
from modtree._ops.functions import is_distributed as is_distributed
from modtree._ops.functions import is_floating_point as is_floating_point
from modtree._ops.functions import is_neg as is_neg
from modtree._ops.functions import is_nonzero as is_nonzero
from modtree._ops.functions import is_same_size as is_same_size
from modtree._ops.functions import is_signed as is_signed
from modtree._ops.functions import isclose as isclose
from modtree._ops.functions import isfinite as isfinite
from modtree._ops.functions import isin as isin
from modtree._ops.functions import isinf as isinf
from modtree._ops.functions import isnan as isnan
from modtree._ops.functions import isneginf as isneginf
from modtree._ops.functions import isposinf as isposinf
from modtree._ops.functions import isreal as isreal
from modtree._ops.functions import kron as kron
from modtree._ops.functions import kthvalue as kthvalue
from modtree._ops.functions import lcm as lcm
from modtree._ops.functions import ldexp as ldexp
from modtree._ops.functions import le as le
from modtree._ops.functions import le_ as le_
from modtree._ops.functions import lerp as lerp
from modtree._ops.functions import less as less
from modtree._ops.functions import less_equal as less_equal
from modtree._ops.functions import lgamma as lgamma
from modtree._ops.functions import lgamma_ as lgamma_
from modtree._ops.functions import log as log
from modtree._ops.functions import log1p as log1p
from modtree._ops.functions import log1p_ as log1p_
from modtree._ops.functions import log2 as log2
from modtree._ops.functions import log2_ as log2_
from modtree._ops.functions import log10 as log10
from modtree._ops.functions import log10_ as log10_
from modtree._ops.functions import log_ as log_
from modtree._ops.functions import log_softmax as log_softmax
from modtree._ops.functions import logaddexp as logaddexp
from modtree._ops.functions import logaddexp2 as logaddexp2
from modtree._ops.functions import logaddexp_ as logaddexp_
from modtree._ops.functions import logcumsumexp as logcumsumexp
from modtree._ops.functions import logdet as logdet
from modtree._ops.functions import logical_and as logical_and
from modtree._ops.functions import logical_and_ as logical_and_
from modtree._ops.functions import logical_not as logical_not
from modtree._ops.functions import logical_not_ as logical_not_
from modtree._ops.functions import logical_or as logical_or
from modtree._ops.functions import logical_or_ as logical_or_
from modtree._ops.functions import logical_xor as logical_xor
from modtree._ops.functions import logical_xor_ as logical_xor_
from modtree._ops.functions import logit as logit
from modtree._ops.functions import logsumexp as logsumexp
from modtree._ops.functions import lt as lt
from modtree._ops.functions import lt_ as lt_
from modtree._ops.functions import masked_fill as masked_fill
from modtree._ops.functions import masked_scatter as masked_scatter
from modtree._ops.functions import masked_select as masked_select
from modtree._ops.functions import matmul as matmul
from modtree._ops.functions import matrix_exp as matrix_exp
from modtree._ops.functions import matrix_power as matrix_power
from modtree._ops.functions import max as max
from modtree._ops.functions import maximum as maximum
from modtree._ops.functions import maximum_ as maximum_
from modtree._ops.functions import mean as mean
from modtree._ops.functions import median as median
from modtree._ops.functions import meshgrid as meshgrid
from modtree._ops.functions import min as min
from modtree._ops.functions import minimum as minimum
from modtree._ops.functions import minimum_ as minimum_
from modtree._ops.functions import mm as mm
from modtree._ops.functions import mode as mode
from modtree._ops.functions import moveaxis as moveaxis
from modtree._ops.functions import movedim as movedim
from modtree._ops.functions import msort as msort
from modtree._ops.functions import mul as mul
from modtree._ops.functions import mul_ as mul_
from modtree._ops.functions import multiply as multiply
from modtree._ops.functions import mv as mv
from modtree._ops.functions import mvlgamma as mvlgamma
from modtree._ops.functions import nan_to_num as nan_to_num
from modtree._ops.functions import nanmean as nanmean
from modtree._ops.functions import nanmedian as nanmedian
from modtree._ops.functions import nansum as nansum
from modtree._ops.functions import narrow as narrow
from modtree._ops.functions import ne as ne
from modtree._ops.functions import ne_ as ne_
from modtree._ops.functions import neg as neg
from modtree._ops.functions import neg_ as neg_
from modtree._ops.functions import negative as negative
from modtree._ops.functions import nextafter as nextafter
from modtree._ops.functions import nextafter_ as nextafter_
from modtree._ops.functions import nonzero as nonzero
from modtree._ops.functions import norm as norm
from modtree._ops.functions import not_equal as not_equal
from modtree._ops.functions import numel as numel
from modtree._ops.functions import orgqr as orgqr
from modtree._ops.functions import outer as outer
from modtree._ops.functions import pdist as pdist
from modtree._ops.functions import permute as permute
from modtree._ops.functions import pinverse as pinverse
from modtree._ops.functions import polar as polar
from modtree._ops.functions import polygamma as polygamma
from modtree._ops.functions import positive as positive
from modtree._ops.functions import pow as pow
from modtree._ops.functions import pow_ as pow_
from modtree._ops.functions import prod as prod
from modtree._ops.functions import put as put
from modtree._ops.functions import qr as qr
from modtree._ops.functions import quantile as quantile
from modtree._ops.functions import rad2deg as rad2deg
from modtree._ops.functions import rad2deg_ as rad2deg_
from modtree._ops.functions import ravel as ravel
from modtree._ops.functions import real as real
from modtree._ops.functions import reciprocal as reciprocal
from modtree._ops.functions import reciprocal_ as reciprocal_
from modtree._ops.functions import relu as relu
from modtree._ops.functions import relu_ as relu_
from modtree._ops.functions import remainder as remainder
from modtree._ops.functions import remainder_ as remainder_
from modtree._ops.functions import renorm as renorm
from modtree._ops.functions import repeat_interleave as repeat_interleave
from modtree._ops.functions import reshape as reshape
from modtree._ops.functions import resolve_conj as resolve_conj
from modtree._ops.functions import resolve_neg as resolve_neg
from modtree._ops.functions import roll as roll
from modtree._ops.functions import rot90 as rot90
from modtree._ops.functions import round as round
from modtree._ops.functions import round_ as round_
from modtree._ops.functions import row_stack as row_stack
from modtree._ops.functions import rsqrt as rsqrt
from modtree._ops.functions import rsqrt_ as rsqrt_
from modtree._ops.functions import rsub as rsub
from modtree._ops.functions import scatter as scatter
from modtree._ops.functions import scatter_add as scatter_add
from modtree._ops.functions import scatter_reduce as scatter_reduce
from modtree._ops.functions import searchsorted as searchsorted
from modtree._ops.functions import select as select
from modtree._ops.functions import select_scatter as select_scatter
from modtree._ops.functions import sgn as sgn
from modtree._ops.functions import sigmoid as sigmoid
from modtree._ops.functions import sigmoid_ as sigmoid_
from modtree._ops.functions import sign as sign
from modtree._ops.functions import sign_ as sign_
from modtree._ops.functions import signbit as signbit
from modtree._ops.functions import sin as sin
from modtree._ops.functions import sin_ as sin_
from modtree._ops.functions import sinc as sinc
from modtree._ops.functions import sinh as sinh
from modtree._ops.functions import sinh_ as sinh_
from modtree._ops.functions import slice_scatter as slice_scatter
from modtree._ops.functions import slogdet as slogdet
from modtree._ops.functions import softmax as softmax
from modtree._ops.functions import sort as sort
from modtree._ops.functions import split as split
from modtree._ops.functions import split_with_sizes as split_with_sizes
from modtree._ops.functions import sqrt as sqrt
from modtree._ops.functions import sqrt_ as sqrt_
from modtree._ops.functions import square as square
from modtree._ops.functions import square_ as square_
from modtree._ops.functions import squeeze as squeeze
from modtree._ops.functions import stack as stack
from modtree._ops.functions import std as std
from modtree._ops.functions import std_mean as std_mean
from modtree._ops.functions import sub as sub
from modtree._ops.functions import subtract as subtract
from modtree._ops.functions import sum as sum
from modtree._ops.functions import svd as svd
from modtree._ops.functions import swapaxes as swapaxes
from modtree._ops.functions import swapdims as swapdims
from modtree._ops.functions import t as t
from modtree._ops.functions import take as take
from modtree._ops.functions import take_along_dim as take_along_dim
from modtree._ops.functions import tan as tan
from modtree._ops.functions import tan_ as tan_
from modtree._ops.functions import tanh as tanh
from modtree._ops.functions import tanh_ as tanh_
from modtree._ops.functions import tensor_split as tensor_split
from modtree._ops.functions import tensordot as tensordot
from modtree._ops.functions import tile as tile
from modtree._ops.functions import topk as topk
from modtree._ops.functions import trace as trace
from modtree._ops.functions import transpose as transpose
from modtree._ops.functions import trapezoid as trapezoid
from modtree._ops.functions import trapz as trapz
from modtree._ops.functions import tril as tril
from modtree._ops.functions import triu as triu
from modtree._ops.functions import true_divide as true_divide
from modtree._ops.functions import true_divide_ as true_divide_
from modtree._ops.functions import trunc as trunc
from modtree._ops.functions import trunc_ as trunc_
from modtree._ops.functions import unbind as unbind
from modtree._ops.functions import unflatten as unflatten
from modtree._ops.functions import unique as unique
from modtree._ops.functions import unique_consecutive as unique_consecutive
from modtree._ops.functions import unsqueeze as unsqueeze
from modtree._ops.functions import var as var
from modtree._ops.functions import var_mean as var_mean
from modtree._ops.functions import vdot as vdot
from modtree._ops.functions import view_as_complex as view_as_complex
from modtree._ops.functions import view_as_real as view_as_real
from modtree._ops.functions import vsplit as vsplit
from modtree._ops.functions import vstack as vstack
from modtree._ops.functions import where as where
from modtree._ops.functions import xlogy as xlogy
from modtree._tensor.devices import device as _device
from modtree._tensor.devices import device as device
from modtree._tensor.dtypes import dtype as dtype
from modtree._tensor.dtypes import finfo as finfo
from modtree._tensor.dtypes import iinfo as iinfo
from modtree._tensor.grad_mode import enable_grad as enable_grad
from modtree._tensor.grad_mode import inference_mode as inference_mode
from modtree._tensor.grad_mode import no_grad as no_grad
from modtree._tensor.grad_mode import set_grad_enabled as set_grad_enabled
from modtree._tensor.layouts import layout as _layout
from modtree._tensor.layouts import layout as layout
from modtree._tensor.layouts import memory_format as _memory_format
from modtree._tensor.layouts import memory_format as memory_format
from modtree._tensor.random import Generator as Generator
from modtree._tensor.tensor import Size as Size
from modtree._tensor.tensor import Tensor as Tensor
from modtree.amp import GradScaler as GradScaler
from modtree.amp import autocast as autocast
from modtree.checkpoints import CheckpointError as CheckpointError
from modtree.checkpoints import load_file as load_file
from modtree.checkpoints import save_file as save_file
from modtree.core.loading.report import LoadReport as LoadReport
from modtree.cuda import OutOfMemoryError as OutOfMemoryError
from modtree.families.exchange import from_torch as from_torch
from modtree.families.exchange import to_torch as to_torch
from modtree.inspection.drawing import to_dot as to_dot
from modtree.inspection.drawing import to_mermaid as to_mermaid
from modtree.inspection.drawing import to_svg as to_svg
from modtree.inspection.functions import check as check
from modtree.inspection.functions import compare as compare
from modtree.inspection.functions import summary as summary

_Number: TypeAlias = _int | _float | _complex | _bool | np.number[Any] | np.bool_
_Operand: TypeAlias = Tensor | _Number | np.ndarray[Any, Any]
_Sizes: TypeAlias = Sequence[_int]
_Ints: TypeAlias = _int | Sequence[_int]
_Tensors: TypeAlias = Sequence[Tensor]
_DType: TypeAlias = _dtype | np.dtype[Any] | _type[Any] | _str
_Device: TypeAlias = _device | _str

bfloat16: _dtype
bool: _dtype
cdouble: _dtype
cfloat: _dtype
channels_last: _memory_format
channels_last_3d: _memory_format
complex128: _dtype
complex64: _dtype
contiguous_format: _memory_format
double: _dtype
e: _float
float: _dtype
float16: _dtype
float32: _dtype
float64: _dtype
float8_e4m3fn: _dtype
float8_e4m3fnuz: _dtype
float8_e5m2: _dtype
float8_e5m2fnuz: _dtype
float8_e8m0fnu: _dtype
half: _dtype
inf: _float
int: _dtype
int16: _dtype
int32: _dtype
int64: _dtype
int8: _dtype
long: _dtype
nan: _float
newaxis: None
pi: _float
preserve_format: _memory_format
short: _dtype
strided: _layout
uint16: _dtype
uint32: _dtype
uint64: _dtype
uint8: _dtype
BoolTensor: _type[Tensor]
ByteTensor: _type[Tensor]
CharTensor: _type[Tensor]
ComplexDoubleTensor: _type[Tensor]
ComplexFloatTensor: _type[Tensor]
DoubleTensor: _type[Tensor]
FloatTensor: _type[Tensor]
HalfTensor: _type[Tensor]
IntTensor: _type[Tensor]
LongTensor: _type[Tensor]
ShortTensor: _type[Tensor]
UInt16Tensor: _type[Tensor]
UInt32Tensor: _type[Tensor]
UInt64Tensor: _type[Tensor]
default_generator: Generator

def as_dtype(value: _DType, /) -> _dtype: ...
def get_default_dtype() -> _dtype: ...
def set_default_dtype(d: _DType, /) -> None: ...
def is_anomaly_check_nan_enabled() -> _bool: ...
def is_anomaly_enabled() -> _bool: ...
def is_grad_enabled() -> _bool: ...
def is_inference_mode_enabled() -> _bool: ...
def set_anomaly_enabled(mode: _bool, check_nan: _bool = True) -> None: ...
def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: _str = "error",
    *,
    chunk_size: _int | None = None,
) -> Callable[..., Any]: ...
def get_default_device() -> _device: ...
def set_default_device(device: _Device | None) -> None: ...
def bernoulli(
    input: Tensor,
    p: _float | None = None,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
) -> Tensor: ...
def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor: ...
def get_rng_state() -> dict[_str, Any]: ...
def initial_seed() -> _int: ...
def manual_seed(seed: _int) -> Generator: ...
def multinomial(
    input: Tensor,
    num_samples: _int,
    replacement: _bool = False,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
) -> Tensor: ...
def normal(
    mean: Tensor | _float,
    std: Tensor | _float = 1.0,
    size: _Sizes | None = None,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: _DType | None = None,
    device: _Device | None = None,
    requires_grad: _bool = False,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
def poisson(input: Tensor, generator: Generator | None = None) -> Tensor: ...
def seed() -> _int: ...
def set_rng_state(state: dict[_str, Any]) -> None: ...
def arange(
    start: _Number,
    end: _Number | None = None,
    step: _Number = 1,
    *,
    dtype: _DType | None = None,
    device: _Device | None = None,
    requires_grad: _bool = False,
    out: Tensor | None = None,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
def as_tensor(data: Any, dtype: _DType | None = None, device: _Device | None = None) -> Tensor: ...
def asarray(
    obj: Any,
    *,
    dtype: _DType | None = None,
    device: _Device | None = None,
    copy: _bool | None = None,
    requires_grad: _bool = False,
) -> Tensor: ...
def bartlett_window(
    window_length: _int,
    periodic: _bool = True,
    *,
    dtype: _DType | None = None,
    device: _Device | None = None,
    requires_grad: _bool = False,
) -> Tensor: ...
def blackman_window(
    window_length: _int,
    periodic: _bool = True,
    *,
    dtype: _DType | None = None,
    device: _Device | None = None,
    requires_grad: _bool = False,
) -> Tensor: ...
def combinations(input: Tensor, r: _int = 2, with_replacement: _bool = False) -> Tensor: ...
def complex(real: Tensor, imag: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def empty(
    *size: _int | _Sizes,
    dtype: _DType | None = None,
    device: _Device | None = None,
    memory_format: _memory_format | None = None,
    out: Tensor | None = None,
    layout: _layout | None = None,
    requires_grad: _bool = False,
    pin_memory: _bool = False,
) -> Tensor: ...
def empty_like(
    input: Tensor,
    *,
    memory_format: _memory_format | None = None,
    dtype: _DType | None = None,
    layout: _layout | None = None,
    device: _Device | None = None,
    requires_grad: _bool = False,
    pin_memory: _bool = False,
) -> Tensor: ...
def empty_strided(
    size: _Sizes,
    stride: _Sizes,
    *,
    dtype: _DType | None = None,
    device: _Device | None = None,
    requires_grad: _bool = False,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
def eye(
    n: _int,
    m: _int | None = None,
    *,
    dtype: _DType | None = None,
    device: _Device | None = None,
    requires_grad: _bool = False,
    out: Tensor | None = None,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
def from_dlpack(ext_tensor: Any) -> Tensor: ...
def from_numpy(array: np.ndarray[Any, Any]) -> Tensor: ...
def frombuffer(
    buffer: Any, *, dtype: _DType, count: _int = -1, offset: _int = 0, requires_grad: _bool = False
) -> Tensor: ...
def full(
    size: _int | _Sizes,
    fill_value: Tensor | _Number,
    *,
    dtype: _DType | None = None,
    device: _Device | None = None,
    requires_grad: _bool = False,
    out: Tensor | None = None,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
def full_like(
    input: Tensor,
    fill_value: _Number,
    *,
    memory_format: _memory_format | None = None,
    dtype: _DType | None = None,
    layout: _layout | None = None,
    device: _Device | None = None,
    requires_grad: _bool = False,
    pin_memory: _bool = False,
) -> Tensor: ...
def hamming_window(
    window_length: _int,
    periodic: _bool = True,
    alpha: _float = 0.54,
    beta: _float = 0.46,
    *,
    dtype: _DType | None = None,
    device: _Device | None = None,
    requires_grad: _bool = False,
) -> Tensor: ...
def hann_window(
    window_length: _int,
    periodic: _bool = True,
    *,
    dtype: _DType | None = None,
    device: _Device | None = None,
    requires_grad: _bool = False,
) -> Tensor: ...
def kaiser_window(
    window_length: _int,
    periodic: _bool = True,
    beta: _float = 12.0,
    *,
    dtype: _DType | None = None,
    device: _Device | None = None,
    requires_grad: _bool = False,
) -> Tensor: ...
def linspace(
    start: _Number,
    end: _Number,
    steps: _int,
    *,
    dtype: _DType | None = None,
    device: _Device | None = None,
    requires_grad: _bool = False,
    out: Tensor | None = None,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
def logspace(
    start: _Number,
    end: _Number,
    steps: _int,
    base: _float = 10.0,
    *,
    dtype: _DType | None = None,
    device: _Device | None = None,
    requires_grad: _bool = False,
    out: Tensor | None = None,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
def ones(
    *sizes: _int | _Sizes,
    size: _Sizes | None = None,
    dtype: _DType | None = None,
    device: _Device | None = None,
    requires_grad: _bool = False,
    out: Tensor | None = None,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
def ones_like(
    input: Tensor,
    *,
    memory_format: _memory_format | None = None,
    dtype: _DType | None = None,
    layout: _layout | None = None,
    device: _Device | None = None,
    requires_grad: _bool = False,
    pin_memory: _bool = False,
) -> Tensor: ...
def rand(
    *sizes: _int | _Sizes,
    size: _Sizes | None = None,
    dtype: _DType | None = None,
    device: _Device | None = None,
    requires_grad: _bool = False,
    generator: Generator | None = None,
    out: Tensor | None = None,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
def rand_like(
    input: Tensor,
    *,
    memory_format: _memory_format | None = None,
    dtype: _DType | None = None,
    layout: _layout | None = None,
    device: _Device | None = None,
    requires_grad: _bool = False,
    pin_memory: _bool = False,
    generator: Generator | None = None,
) -> Tensor: ...
def randint(
    low: _int,
    high: Any = None,
    size: _Sizes | None = None,
    *,
    generator: Generator | None = None,
    dtype: _DType | None = None,
    device: _Device | None = None,
    requires_grad: _bool = False,
    out: Tensor | None = None,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
def randint_like(
    input: Tensor,
    low: _int,
    high: _int | None = None,
    *,
    memory_format: _memory_format | None = None,
    dtype: _DType | None = None,
    layout: _layout | None = None,
    device: _Device | None = None,
    requires_grad: _bool = False,
    pin_memory: _bool = False,
    generator: Generator | None = None,
) -> Tensor: ...
def randn(
    *sizes: _int | _Sizes,
    size: _Sizes | None = None,
    dtype: _DType | None = None,
    device: _Device | None = None,
    requires_grad: _bool = False,
    generator: Generator | None = None,
    out: Tensor | None = None,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
def randn_like(
    input: Tensor,
    *,
    memory_format: _memory_format | None = None,
    dtype: _DType | None = None,
    layout: _layout | None = None,
    device: _Device | None = None,
    requires_grad: _bool = False,
    pin_memory: _bool = False,
    generator: Generator | None = None,
) -> Tensor: ...
def randperm(
    n: _int,
    *,
    generator: Generator | None = None,
    dtype: _DType | None = None,
    device: _Device | None = None,
    requires_grad: _bool = False,
    out: Tensor | None = None,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
def scalar_tensor(
    value: _Number,
    *,
    dtype: _DType | None = None,
    device: _Device | None = None,
    requires_grad: _bool = False,
    s: Any = None,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
def tensor(
    data: Any,
    *,
    dtype: _DType | None = None,
    device: _Device | None = None,
    requires_grad: _bool = False,
    pin_memory: _bool = False,
) -> Tensor: ...
def tril_indices(
    row: _int,
    col: _int,
    offset: _int = 0,
    *,
    dtype: _DType | None = None,
    device: _Device | None = None,
    requires_grad: _bool = False,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
def triu_indices(
    row: _int,
    col: _int,
    offset: _int = 0,
    *,
    dtype: _DType | None = None,
    device: _Device | None = None,
    requires_grad: _bool = False,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
def unravel_index(indices: Tensor, shape: _int | _Sizes) -> tuple[Tensor, ...]: ...
def vander(x: Tensor, N: _int | None = None, increasing: _bool = False) -> Tensor: ...
def zeros(
    *sizes: _int | _Sizes,
    size: _Sizes | None = None,
    dtype: _DType | None = None,
    device: _Device | None = None,
    requires_grad: _bool = False,
    out: Tensor | None = None,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
def zeros_like(
    input: Tensor,
    *,
    memory_format: _memory_format | None = None,
    dtype: _DType | None = None,
    layout: _layout | None = None,
    device: _Device | None = None,
    requires_grad: _bool = False,
    pin_memory: _bool = False,
) -> Tensor: ...
def are_deterministic_algorithms_enabled() -> _bool: ...
def compile(
    model: Callable[..., Any] | None = None,
    *,
    fullgraph: _bool = False,
    dynamic: _bool | None = None,
    backend: _str | Callable[..., Any] | None = None,
    mode: _str | None = None,
    options: dict[_str, Any] | None = None,
    name: _str | None = None,
    disable: _bool = False,
    recompile_limit: _int | None = None,
    isolate_recompiles: _bool = False,
    shapes_spec: Any = None,
) -> Any: ...
def get_autocast_dtype(device_type: _str) -> _dtype: ...
def get_autocast_gpu_dtype() -> _dtype: ...
def get_deterministic_debug_mode() -> _int: ...
def get_float32_matmul_precision() -> _str: ...
def get_num_interop_threads() -> _int: ...
def get_num_threads() -> _int: ...
def is_autocast_cache_enabled() -> _bool: ...
def is_autocast_enabled(device_type: _str | None = None) -> _bool: ...
def is_deterministic_algorithms_warn_only_enabled() -> _bool: ...
def is_warn_always_enabled() -> _bool: ...
def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: _bool | None = None,
    mmap: _bool | None = None,
    **pickle_load_args: Any,
) -> Any: ...
def save(
    obj: Any,
    f: Any,
    pickle_module: Any = ...,
    pickle_protocol: _int = 5,
    *,
    format: _str = "modtree",
) -> None: ...
def set_default_tensor_type(kind: Any) -> None: ...
def set_deterministic_debug_mode(debug_mode: _int | _str) -> None: ...
def set_float32_matmul_precision(precision: _str) -> None: ...
def set_flush_denormal(mode: _bool) -> _bool: ...
def set_num_interop_threads(num: _int, /) -> None: ...
def set_num_threads(num: _int, /) -> None: ...
def set_printoptions(
    precision: _int | None = None,
    threshold: _float | None = None,
    edgeitems: _int | None = None,
    linewidth: _int | None = None,
    profile: _str | None = None,
    sci_mode: _bool | None = None,
) -> None: ...
def set_warn_always(b: _bool) -> None: ...
def typename(obj: Any, /) -> _str: ...
def use_deterministic_algorithms(mode: _bool, *, warn_only: _bool = False) -> None: ...
def is_tensor(obj: Any) -> _bool: ...
def promote_types(type1: _DType, type2: _DType, /) -> _dtype: ...
def result_type(*tensors: Tensor | _Number) -> _dtype: ...
def adaptive_avg_pool1d(input: Tensor, output_size: _Ints) -> Tensor: ...
def adaptive_max_pool1d(
    input: Tensor, output_size: _Ints, return_indices: _bool = False
) -> tuple[Tensor, Tensor]: ...
def alpha_dropout(
    input: Tensor, p: _float = 0.5, training: _bool = False, inplace: _bool = False
) -> Tensor: ...
def avg_pool1d(
    input: Tensor,
    kernel_size: _Ints,
    stride: _Ints | None = None,
    padding: _Ints = 0,
    ceil_mode: _bool = False,
    count_include_pad: _bool = True,
) -> Tensor: ...
def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    training: _bool,
    momentum: _float,
    eps: _float,
    cudnn_enabled: _bool = False,
) -> Tensor: ...
def bilinear(
    input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor: ...
def celu(input: Tensor, alpha: _float = 1.0, inplace: _bool = False) -> Tensor: ...
def celu_(input: Tensor, alpha: _float = 1.0) -> Tensor: ...
def channel_shuffle(input: Tensor, groups: _int) -> Tensor: ...
def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: _Ints = 1,
    padding: _str | _Ints = 0,
    dilation: _Ints = 1,
    groups: _int = 1,
) -> Tensor: ...
def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: _Ints = 1,
    padding: _str | _Ints = 0,
    dilation: _Ints = 1,
    groups: _int = 1,
) -> Tensor: ...
def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: _Ints = 1,
    padding: _str | _Ints = 0,
    dilation: _Ints = 1,
    groups: _int = 1,
) -> Tensor: ...
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: _int = 0) -> Tensor: ...
def native_channel_shuffle(input: Tensor, groups: _int) -> Tensor: ...
def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: _Ints = 1,
    padding: _Ints = 0,
    output_padding: _Ints = 0,
    groups: _int = 1,
    dilation: _Ints = 1,
) -> Tensor: ...
def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: _Ints = 1,
    padding: _Ints = 0,
    output_padding: _Ints = 0,
    groups: _int = 1,
    dilation: _Ints = 1,
) -> Tensor: ...
def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: _Ints = 1,
    padding: _Ints = 0,
    output_padding: _Ints = 0,
    groups: _int = 1,
    dilation: _Ints = 1,
) -> Tensor: ...
def cosine_similarity(x1: Tensor, x2: Tensor, dim: _int = 1, eps: _float = 1e-08) -> Tensor: ...
def dropout(
    input: Tensor, p: _float = 0.5, training: _bool = True, inplace: _bool = False
) -> Tensor: ...
def embedding(
    weight: Tensor | None,
    indices: Tensor,
    padding_idx: _int = -1,
    scale_grad_by_freq: _bool = False,
    sparse: _bool = False,
) -> Tensor: ...
def feature_alpha_dropout(
    input: Tensor, p: _float = 0.5, training: _bool = False, inplace: _bool = False
) -> Tensor: ...
def group_norm(
    input: Tensor,
    num_groups: _int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: _float = 1e-05,
    cudnn_enabled: _bool = False,
) -> Tensor: ...
def hardshrink(input: Tensor, lambd: _float = 0.5) -> Tensor: ...
def instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    use_input_stats: _bool,
    momentum: _float,
    eps: _float,
    cudnn_enabled: _bool = False,
) -> Tensor: ...
def layer_norm(
    input: Tensor,
    normalized_shape: _Sizes,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: _float = 1e-05,
    cudnn_enable: _bool = False,
) -> Tensor: ...
@overload
def max_pool1d(
    input: Tensor,
    kernel_size: _Ints,
    stride: _Ints | None = None,
    padding: _Ints = 0,
    dilation: _Ints = 1,
    ceil_mode: _bool = False,
    return_indices: Literal[False] = False,
) -> Tensor: ...
@overload
def max_pool1d(
    input: Tensor,
    kernel_size: _Ints,
    stride: _Ints | None = None,
    padding: _Ints = 0,
    dilation: _Ints = 1,
    ceil_mode: _bool = False,
    *,
    return_indices: Literal[True],
) -> tuple[Tensor, Tensor]: ...
@overload
def max_pool1d(
    input: Tensor,
    kernel_size: _Ints,
    stride: _Ints | None = None,
    padding: _Ints = 0,
    dilation: _Ints = 1,
    ceil_mode: _bool = False,
    *,
    return_indices: _bool,
) -> Any: ...
@overload
def max_pool2d(
    input: Tensor,
    kernel_size: _Ints,
    stride: _Ints | None = None,
    padding: _Ints = 0,
    dilation: _Ints = 1,
    ceil_mode: _bool = False,
    return_indices: Literal[False] = False,
) -> Tensor: ...
@overload
def max_pool2d(
    input: Tensor,
    kernel_size: _Ints,
    stride: _Ints | None = None,
    padding: _Ints = 0,
    dilation: _Ints = 1,
    ceil_mode: _bool = False,
    *,
    return_indices: Literal[True],
) -> tuple[Tensor, Tensor]: ...
@overload
def max_pool2d(
    input: Tensor,
    kernel_size: _Ints,
    stride: _Ints | None = None,
    padding: _Ints = 0,
    dilation: _Ints = 1,
    ceil_mode: _bool = False,
    *,
    return_indices: _bool,
) -> Any: ...
@overload
def max_pool3d(
    input: Tensor,
    kernel_size: _Ints,
    stride: _Ints | None = None,
    padding: _Ints = 0,
    dilation: _Ints = 1,
    ceil_mode: _bool = False,
    return_indices: Literal[False] = False,
) -> Tensor: ...
@overload
def max_pool3d(
    input: Tensor,
    kernel_size: _Ints,
    stride: _Ints | None = None,
    padding: _Ints = 0,
    dilation: _Ints = 1,
    ceil_mode: _bool = False,
    *,
    return_indices: Literal[True],
) -> tuple[Tensor, Tensor]: ...
@overload
def max_pool3d(
    input: Tensor,
    kernel_size: _Ints,
    stride: _Ints | None = None,
    padding: _Ints = 0,
    dilation: _Ints = 1,
    ceil_mode: _bool = False,
    *,
    return_indices: _bool,
) -> Any: ...
def pairwise_distance(
    x1: Tensor, x2: Tensor, p: _float = 2.0, eps: _float = 1e-06, keepdim: _bool = False
) -> Tensor: ...
def pixel_shuffle(input: Tensor, upscale_factor: _int) -> Tensor: ...
def pixel_unshuffle(input: Tensor, downscale_factor: _int) -> Tensor: ...
def prelu(input: Tensor, weight: Tensor) -> Tensor: ...
def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[_int],
    weight: Tensor | None = None,
    eps: _float | None = None,
) -> Tensor: ...
def rrelu(
    input: Tensor,
    lower: _float = 0.125,
    upper: _float = 0.3333333333333333,
    training: _bool = False,
    inplace: _bool = False,
) -> Tensor: ...
def selu(input: Tensor, inplace: _bool = False) -> Tensor: ...
def selu_(input: Tensor) -> Tensor: ...
def threshold(
    input: Tensor, threshold: _float, value: _float, inplace: _bool = False
) -> Tensor: ...

# fmt: off
__all__ = [
    # modules
    "accelerator", "amp", "autograd", "backends", "checkpoints", "compiler", "cpu", "cuda",
    "distributed", "distributions", "families", "func", "functional", "hub", "jit", "linalg",
    "mps", "multiprocessing", "nn", "optim", "overrides", "profiler", "random", "serialization",
    "types", "utils", "version", "xpu",
    # classes
    "CheckpointError", "Generator", "GradScaler", "LoadReport", "OutOfMemoryError", "Size",
    "Tensor", "autocast", "device",
    # dtypes, layouts, constants
    "as_dtype", "bfloat16", "bool", "cdouble", "cfloat", "channels_last", "channels_last_3d",
    "complex128", "complex64", "contiguous_format", "double", "dtype", "e", "finfo", "float",
    "float16", "float32", "float64", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
    "float8_e5m2fnuz", "float8_e8m0fnu", "get_default_dtype", "half", "iinfo", "inf", "int",
    "int16", "int32", "int64", "int8", "layout", "long", "memory_format", "nan", "newaxis", "pi",
    "preserve_format", "set_default_dtype", "short", "strided", "uint16", "uint32", "uint64",
    "uint8",
    # tensors by the name of their dtype
    "BoolTensor", "ByteTensor", "CharTensor", "ComplexDoubleTensor", "ComplexFloatTensor",
    "DoubleTensor", "FloatTensor", "HalfTensor", "IntTensor", "LongTensor", "ShortTensor",
    "UInt16Tensor", "UInt32Tensor", "UInt64Tensor",
    # recording of gradients
    "enable_grad", "inference_mode", "is_anomaly_check_nan_enabled", "is_anomaly_enabled",
    "is_grad_enabled", "is_inference_mode_enabled", "no_grad", "set_anomaly_enabled",
    "set_grad_enabled", "vmap",
    # the device of what is made
    "get_default_device", "set_default_device",
    # random numbers
    "bernoulli", "binomial", "default_generator", "get_rng_state", "initial_seed",
    "manual_seed", "multinomial", "normal", "poisson", "seed", "set_rng_state",
    # making tensors
    "arange", "as_tensor", "asarray", "bartlett_window", "blackman_window", "combinations",
    "complex", "empty", "empty_like", "empty_strided", "eye", "from_dlpack", "from_numpy",
    "frombuffer", "full", "full_like", "hamming_window", "hann_window", "kaiser_window",
    "linspace", "logspace", "ones", "ones_like", "rand", "rand_like", "randint", "randint_like",
    "randn", "randn_like", "randperm", "scalar_tensor", "tensor", "tril_indices",
    "triu_indices", "unravel_index", "vander", "zeros", "zeros_like",
    # settings and files
    "__version__", "are_deterministic_algorithms_enabled", "compile", "get_autocast_dtype",
    "get_autocast_gpu_dtype", "get_deterministic_debug_mode", "get_float32_matmul_precision",
    "get_num_interop_threads", "get_num_threads", "is_autocast_cache_enabled",
    "is_autocast_enabled", "is_deterministic_algorithms_warn_only_enabled",
    "is_warn_always_enabled", "load", "load_file", "save", "save_file", "set_default_tensor_type",
    "set_deterministic_debug_mode", "set_float32_matmul_precision", "set_flush_denormal",
    "set_num_interop_threads", "set_num_threads", "set_printoptions", "set_warn_always",
    "from_torch", "to_torch", "typename", "use_deterministic_algorithms",
    # seeing a model
    "check", "compare", "summary", "to_dot", "to_mermaid", "to_svg",
    # operations
    "abs", "abs_", "absolute", "acos", "acos_", "acosh", "acosh_", "add", "addbmm", "addcdiv",
    "addcmul", "addmm", "addmv", "addr", "adjoint", "all", "allclose", "amax", "amin",
    "aminmax", "angle", "any", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2",
    "arctanh", "argmax", "argmin", "argsort", "argwhere", "as_strided", "as_strided_", "asin",
    "asin_", "asinh", "asinh_", "atan", "atan2", "atan2_", "atan_", "atanh", "atanh_",
    "atleast_1d", "atleast_2d", "atleast_3d", "baddbmm", "bincount", "bitwise_and",
    "bitwise_and_", "bitwise_left_shift", "bitwise_left_shift_", "bitwise_not", "bitwise_not_",
    "bitwise_or", "bitwise_or_", "bitwise_right_shift", "bitwise_right_shift_", "bitwise_xor",
    "bitwise_xor_", "block_diag", "bmm", "broadcast_shapes", "broadcast_tensors",
    "broadcast_to", "bucketize", "cartesian_prod", "cat", "cdist", "ceil", "ceil_", "pdist",
    "chain_matmul", "cholesky", "cholesky_inverse", "cholesky_solve", "chunk", "clamp",
    "clamp_max", "clamp_min", "clip", "clone", "column_stack", "concat", "concatenate", "conj",
    "conj_", "copysign", "copysign_", "corrcoef", "cos", "cos_", "cosh", "cosh_",
    "count_nonzero", "cov", "cross", "cummax", "cummin", "cumprod", "cumsum",
    "cumulative_trapezoid", "deg2rad", "deg2rad_", "det", "detach", "diag", "diag_embed",
    "diagflat", "diagonal", "diagonal_scatter", "diff", "digamma", "dist", "div", "divide",
    "dot", "dsplit", "dstack", "einsum", "eq", "eq_", "equal", "erf", "erf_", "erfc", "erfc_",
    "erfinv", "erfinv_", "exp", "exp2", "exp2_", "exp_", "expm1", "expm1_", "fix", "flatten",
    "flip", "fliplr", "flipud", "float_power", "floor", "floor_", "floor_divide",
    "floor_divide_", "fmax", "fmax_", "fmin", "fmin_", "fmod", "fmod_", "frac", "frac_",
    "gather", "gcd", "ge", "ge_", "geqrf", "ger", "get_device", "greater", "greater_equal", "gt",
    "gt_", "heaviside", "histc", "hsplit", "hstack", "hypot", "hypot_", "igamma", "igammac",
    "imag", "index_add",
    "index_copy", "index_fill", "index_put", "index_select", "inner", "inverse", "is_complex",
    "is_conj", "is_distributed", "is_floating_point", "is_neg", "is_nonzero", "is_same_size",
    "is_signed", "is_tensor", "isclose", "isfinite", "isin", "isinf", "isnan", "isneginf",
    "isposinf", "isreal", "kron", "kthvalue", "lcm", "ldexp", "le", "le_", "lerp", "less",
    "less_equal", "lgamma", "lgamma_", "log", "log10", "log10_", "log1p", "log1p_", "log2",
    "log2_", "log_", "log_softmax", "logaddexp", "logaddexp2", "logaddexp_", "logcumsumexp",
    "logdet", "logical_and", "logical_and_", "logical_not", "logical_not_", "logical_or",
    "logical_or_", "logical_xor", "logical_xor_", "logit", "logsumexp", "lt", "lt_",
    "masked_fill", "masked_scatter", "masked_select", "matmul", "matrix_exp", "matrix_power",
    "max", "maximum", "maximum_", "mean", "median", "meshgrid", "min", "minimum", "minimum_",
    "mm", "mode", "moveaxis", "movedim", "msort", "mul", "mul_", "multiply", "mv", "mvlgamma",
    "nan_to_num", "nanmean", "nanmedian", "nansum", "narrow", "ne", "ne_", "neg", "neg_",
    "negative", "nextafter", "nextafter_", "nonzero", "norm", "not_equal", "numel", "orgqr",
    "outer", "permute", "pinverse", "polar", "polygamma", "positive", "pow", "pow_", "prod",
    "promote_types", "put", "qr", "quantile", "rad2deg", "rad2deg_", "ravel", "real",
    "reciprocal", "reciprocal_", "relu", "relu_", "remainder", "remainder_", "renorm",
    "repeat_interleave", "reshape", "resolve_conj", "resolve_neg", "result_type", "roll",
    "rot90", "round", "round_", "row_stack", "rsqrt", "rsqrt_", "rsub", "scatter",
    "scatter_add", "scatter_reduce", "searchsorted", "select", "select_scatter", "sgn",
    "sigmoid", "sigmoid_", "sign", "sign_", "signbit", "sin", "sin_", "sinc", "sinh", "sinh_",
    "slice_scatter", "slogdet", "softmax", "sort", "split", "split_with_sizes", "sqrt", "sqrt_",
    "square", "square_", "squeeze", "stack", "std", "std_mean", "sub", "subtract", "sum", "svd",
    "swapaxes", "swapdims", "t", "take", "take_along_dim", "tan", "tan_", "tanh", "tanh_",
    "tensor_split", "tensordot", "tile", "topk", "trace", "transpose", "trapezoid", "trapz",
    "tril", "triu", "true_divide", "true_divide_", "trunc", "trunc_", "unbind", "unflatten",
    "unique", "unique_consecutive", "unsqueeze", "var", "var_mean", "vdot", "view_as_complex",
    "view_as_real", "vsplit", "vstack", "where", "xlogy",
    # operations of layers
    "adaptive_avg_pool1d", "adaptive_max_pool1d", "alpha_dropout", "avg_pool1d", "batch_norm",
    "bilinear", "celu", "celu_", "channel_shuffle", "conv1d", "conv2d", "conv3d",
    "conv_tbc", "native_channel_shuffle",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cosine_similarity", "dropout",
    "embedding", "feature_alpha_dropout", "group_norm", "hardshrink", "instance_norm",
    "layer_norm", "max_pool1d", "max_pool2d", "max_pool3d", "pairwise_distance",
    "pixel_shuffle", "pixel_unshuffle", "prelu", "rms_norm", "rrelu", "selu", "selu_",
    "threshold",
]
# fmt: on
