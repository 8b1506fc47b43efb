# SPDX-License-Identifier: BSD-3-Clause
"""modtree: PyTorch's module system as a C++ extension, on NumPy, for any tensor library."""

from __future__ import annotations

from modtree.torch import launch as _launch

_launch.become_the_program()  # where this process is `modtree run`, in place of all that follows

from modtree import _imports
from modtree._C import __version__, _has_compatible_shallow_copy_type  # noqa: F401

# fmt: off
__all__ = [
    # modules
    "accelerator", "amp", "autograd", "backends", "checkpoints", "compiler", "cuda",
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
    "set_grad_enabled",
    # the device of what is made
    "get_default_device", "set_default_device",
    # random numbers
    "bernoulli", "default_generator", "get_rng_state", "initial_seed", "manual_seed",
    "multinomial", "normal", "poisson", "seed", "set_rng_state",
    # making tensors
    "arange", "as_tensor", "asarray", "complex", "empty", "empty_like", "empty_strided", "eye",
    "from_dlpack", "from_numpy", "frombuffer", "full", "full_like", "linspace", "ones",
    "ones_like", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like",
    "randperm", "scalar_tensor", "tensor", "zeros", "zeros_like",
    # settings and files
    "__version__", "are_deterministic_algorithms_enabled", "compile", "get_autocast_dtype",
    "get_autocast_gpu_dtype", "get_deterministic_debug_mode", "get_float32_matmul_precision",
    "get_num_interop_threads", "get_num_threads", "is_autocast_cache_enabled",
    "is_autocast_enabled", "is_deterministic_algorithms_warn_only_enabled",
    "is_warn_always_enabled", "load", "load_file", "save", "save_file", "set_default_tensor_type",
    "set_deterministic_debug_mode", "set_float32_matmul_precision", "set_flush_denormal",
    "set_num_interop_threads", "set_num_threads", "set_printoptions", "set_warn_always",
    "default_family", "from_torch", "to_family", "to_torch", "typename",
    "use_deterministic_algorithms",
    # going on with training
    "load_optimizer_state", "optimizer_state",
    # seeing a model
    "check", "compare", "summary", "to_dot", "to_mermaid", "to_svg",
    # changing and observing models
    "capture", "edit", "find", "find_parameters", "intervene", "param_groups",
    # operations
    "abs", "absolute", "acos", "acosh", "add", "addcdiv", "addcmul", "addmm", "all", "allclose",
    "amax", "amin", "any", "argmax", "argmin", "argsort", "as_strided", "asin", "asinh", "atan",
    "atan2", "atanh", "baddbmm", "bitwise_and", "bitwise_left_shift", "bitwise_not",
    "bitwise_or", "bitwise_right_shift", "bitwise_xor", "bmm", "broadcast_shapes",
    "broadcast_tensors", "broadcast_to", "cat", "cdist", "ceil", "chunk", "clamp", "clamp_max",
    "clamp_min", "clip", "clone", "concat", "concatenate", "conj", "cos", "cosh",
    "count_nonzero", "cross", "cumprod", "cumsum", "det", "detach", "diag", "diag_embed",
    "diagonal", "digamma", "div", "divide", "dot", "einsum", "eq", "equal", "erf", "erfinv",
    "exp", "expm1", "flatten", "flip", "floor", "floor_divide", "fmod", "gather", "ge", "geqrf",
    "get_device", "greater", "greater_equal", "gt", "hstack", "imag", "index_add", "index_copy",
    "index_fill", "index_put", "index_select", "inverse", "is_complex", "is_conj",
    "is_distributed", "is_floating_point", "is_neg", "is_same_size", "is_signed", "is_tensor",
    "isclose", "isfinite", "isinf", "isnan", "le", "lerp", "less", "less_equal", "lgamma",
    "log", "log10", "log1p", "log2", "log_softmax", "logaddexp", "logcumsumexp", "logical_and",
    "logical_not", "logical_or", "logical_xor", "logit", "logsumexp", "lt", "masked_fill",
    "masked_scatter", "masked_select", "matmul", "matrix_exp", "matrix_power", "max", "maximum",
    "mean", "meshgrid", "min", "minimum", "mm", "moveaxis", "movedim", "mul", "multiply", "mv",
    "nan_to_num", "narrow", "ne", "neg", "negative", "nonzero", "norm", "not_equal", "numel",
    "outer", "permute", "polar", "positive", "pow", "prod", "promote_types", "ravel", "real",
    "reciprocal", "relu", "relu_", "remainder", "repeat_interleave", "reshape", "resolve_conj",
    "resolve_neg", "result_type", "roll", "round", "rsqrt", "scatter", "scatter_add",
    "scatter_reduce", "select", "sgn", "sigmoid", "sign", "sin", "sinh", "slogdet", "softmax",
    "sort", "split", "split_with_sizes", "sqrt", "square", "squeeze", "stack", "std",
    "std_mean", "sub", "subtract", "sum", "swapaxes", "t", "take_along_dim", "tan", "tanh",
    "tensor_split", "tensordot", "tile", "topk", "trace", "transpose", "tril", "triu",
    "true_divide", "trunc", "unbind", "unflatten", "unsqueeze", "var", "var_mean", "vdot",
    "view_as_complex", "view_as_real", "vstack", "where",
    # operations of layers
    "adaptive_avg_pool1d", "adaptive_max_pool1d", "alpha_dropout", "avg_pool1d", "batch_norm",
    "bilinear", "celu", "celu_", "channel_shuffle", "conv1d", "conv2d", "conv3d",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cosine_similarity", "dropout",
    "embedding", "feature_alpha_dropout", "group_norm", "hardshrink", "instance_norm",
    "layer_norm", "max_pool1d", "max_pool2d", "max_pool3d", "pairwise_distance",
    "pixel_shuffle", "pixel_unshuffle", "prelu", "rms_norm", "rrelu", "selu", "selu_",
    "threshold",
]
# fmt: on

# Imported when they are first asked for: programs of torch, and the command line, use few of them.
_imports.answer_lazily(
    __name__,
    homes={
        "CheckpointError": "modtree.checkpoints",
        "LoadReport": "modtree.core.loading.report",
        "capture": "modtree.editing.observing",
        "check": "modtree.inspection.functions",
        "compare": "modtree.inspection.functions",
        "compile": "modtree.core.compiling",
        "default_family": "modtree.core.family_conversions",
        "edit": "modtree.editing.edits",
        "find": "modtree.editing.selections",
        "find_parameters": "modtree.editing.selections",
        "from_torch": "modtree.torch.state_dicts",
        "intervene": "modtree.editing.intervening",
        "load_file": "modtree.checkpoints",
        "load_optimizer_state": "modtree.core.resuming.optimizers",
        "optimizer_state": "modtree.core.resuming.optimizers",
        "param_groups": "modtree.editing.selections",
        "save_file": "modtree.checkpoints",
        "summary": "modtree.inspection.functions",
        "to_dot": "modtree.inspection.functions",
        "to_family": "modtree.core.family_conversions",
        "to_mermaid": "modtree.inspection.functions",
        "to_svg": "modtree.inspection.functions",
        "to_torch": "modtree.torch.state_dicts",
    },
    others="modtree.numpy.library",
)
_imports.register_tool("failed loads", "modtree.inspection.load_failures")
_imports.register_tool("trees in notebooks", "modtree.inspection.summary")
