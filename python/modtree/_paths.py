# SPDX-License-Identifier: BSD-3-Clause
"""Paths of torch that have no file here, as one table: what each offers, and where that comes from.

Programs import from ``torch.nn.modules.batchnorm`` and ask ``torch.cuda.is_available()``.
``modtree._imports`` makes a module of a row when one is first asked for, and
``tools/make_stubs`` writes a stub of it for type checkers.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["ROWS", "Answers", "Names", "Refusals", "Values"]

#: What a path offers: public name -> value.
Contents = Mapping[str, Any]


class Names:
    """Names of another module; ``public=own`` renames one, and ``*`` stands for its ``__all__``."""

    def __init__(self, home: str, names: str) -> None:
        self.home = home
        self.names = names

    def pairs(self) -> list[tuple[str, str]]:
        """(name on the path, name in the module where it is)."""
        listed = self.names.split()
        if listed == ["*"]:
            listed = importlib.import_module(self.home).__all__
        return [(pair[0], pair[-1]) for pair in (name.split("=") for name in listed)]

    def contents(self, path: str) -> Contents:
        home = importlib.import_module(self.home)
        return {public: getattr(home, own) for public, own in self.pairs()}


class Values:
    """Plain values, which programs may set: nothing depends on them."""

    def __init__(self, **values: Any) -> None:
        self.values = values

    def contents(self, path: str) -> Contents:
        return self.values


class Answers:
    """Functions that take any arguments and give one answer, or None for nothing to do."""

    def __init__(self, value: Any, names: str) -> None:
        self.value = value
        self.names = names.split()

    def contents(self, path: str) -> Contents:
        return {name: self._function(path, name) for name in self.names}

    def _function(self, path: str, name: str) -> Callable[..., Any]:
        def answer(*args: Any, **kwargs: Any) -> Any:
            return self.value

        nothing = "Nothing: there is nothing to do."
        return _named(answer, path, name, nothing if self.value is None else f"{self.value!r}.")


class Refusals:
    """Functions that raise an error, whose message begins with the function's path."""

    def __init__(self, error: type[Exception], why: str, names: str) -> None:
        self.error = error
        self.why = why
        self.names = names.split()

    def contents(self, path: str) -> Contents:
        return {name: self._function(path, name) for name in self.names}

    def _function(self, path: str, name: str) -> Callable[..., Any]:
        def refuse(*args: Any, **kwargs: Any) -> Any:
            raise self.error(f"{path}.{name}: {self.why}")

        return _named(refuse, path, name, f"Raises {self.error.__name__}: {self.why}.")


def _named(function: Any, path: str, name: str, doc: str) -> Callable[..., Any]:
    function.__module__, function.__doc__ = path, doc
    function.__name__ = function.__qualname__ = name
    return function


Row = tuple[Names | Values | Answers | Refusals, ...]

# -- what torch has and modtree does not -----------------------------------------------------------

_ABSENT = "modtree.numpy.absent"
_MEMORY = "memory_allocated max_memory_allocated memory_reserved max_memory_reserved"
_NO_DEVICE = "NumPy tensors live in main memory only: there is no cuda device"
_ONE_PROCESS = (
    "Default process group has not been initialized, and cannot be: modtree runs in one process; "
    "ask modtree.distributed.is_initialized() before"
)
_NO_DOWNLOADS = (
    "modtree downloads nothing; fetch the file by other means and give its path to modtree.load(), "
    "which reads files of torch too"
)

_SHELLS: dict[str, Row] = {
    "accelerator": (
        Answers(False, "is_available"),
        Answers(0, f"device_count {_MEMORY}"),
        Answers(None, "current_accelerator empty_cache reset_peak_memory_stats synchronize"),
    ),
    "amp": (
        Answers(False, "is_autocast_available"),
        Names(_ABSENT, "GradScaler autocast custom_bwd custom_fwd"),
    ),
    "backends": (),
    "backends.cuda": (
        Answers(False, "is_built"),
        Names(_ABSENT, "matmul"),
    ),
    "backends.cudnn": (
        Answers(False, "is_available"),
        Answers(None, "version"),
        Values(enabled=True, benchmark=False, deterministic=False, allow_tf32=True),
    ),
    "backends.mps": (Answers(False, "is_available is_built"),),
    "compiler": (
        Answers(False, "is_compiling is_dynamo_compiling is_exporting"),
        Answers(None, "reset"),
        Names(_ABSENT, "disable"),
        Names("modtree.core.compiling", "compile"),
    ),
    "cuda": (
        Answers(False, "is_available is_bf16_supported is_initialized"),
        Answers(0, f"device_count {_MEMORY}"),
        Answers(None, "manual_seed manual_seed_all seed seed_all"),
        Answers(None, "empty_cache reset_peak_memory_stats synchronize"),
        Refusals(RuntimeError, _NO_DEVICE, "current_device current_stream set_device"),
        Refusals(RuntimeError, _NO_DEVICE, "get_device_capability get_device_name"),
        Refusals(RuntimeError, _NO_DEVICE, "get_device_properties mem_get_info"),
        Refusals(RuntimeError, _NO_DEVICE, "get_rng_state set_rng_state"),
        Names(_ABSENT, "Event OutOfMemoryError Stream device stream"),
        Names(_ABSENT, "get_rng_state_all set_rng_state_all"),
    ),
    "cuda.amp": (
        Names(_ABSENT, "GradScaler=CudaGradScaler autocast=CudaAutocast custom_bwd custom_fwd"),
    ),
    "distributed": (
        Answers(False, "is_available is_initialized is_torchelastic_launched"),
        Answers(False, "is_gloo_available is_mpi_available is_nccl_available"),
        Answers(0, "get_rank"),
        Answers(1, "get_world_size"),
        Refusals(
            RuntimeError,
            "modtree runs in one process; ask modtree.distributed.is_available() before, or train "
            "torch's tensors under modtree.dropin",
            "init_process_group",
        ),
        Refusals(ValueError, _ONE_PROCESS, "all_gather all_gather_object all_reduce barrier"),
        Refusals(ValueError, _ONE_PROCESS, "broadcast broadcast_object_list gather new_group"),
        Refusals(ValueError, _ONE_PROCESS, "destroy_process_group reduce reduce_scatter scatter"),
        Names(_ABSENT, "ProcessGroup ReduceOp"),
    ),
    "hub": (
        Refusals(RuntimeError, _NO_DOWNLOADS, "download_url_to_file get_dir load"),
        Refusals(RuntimeError, _NO_DOWNLOADS, "load_state_dict_from_url"),
    ),
    "jit": (
        Answers(False, "is_scripting is_tracing"),
        Names(_ABSENT, "ScriptModule annotate export=itself ignore script"),
        Names(_ABSENT, "script_if_tracing=itself unused=itself"),
        Names("typing", "Final"),
        Refusals(
            RuntimeError,
            "there is no compiled form of a model; modtree.save(model.state_dict(), path) writes "
            "its state, and modtree.load(path) reads state dicts, those of torch too",
            "load save trace",
        ),
    ),
    "mps": (
        Answers(False, "is_available"),
        Answers(0, "device_count"),
        Answers(None, "empty_cache manual_seed synchronize"),
    ),
    "multiprocessing": (
        Names("multiprocessing", "*"),
        Answers(None, "set_sharing_strategy"),
    ),
    "nn.parallel": (),
    "profiler": (Names(_ABSENT, "record_function"),),
    "utils.model_zoo": (Refusals(RuntimeError, _NO_DOWNLOADS, "load_url"),),
    "version": (
        Names("modtree._C", "__version__"),
        Values(cuda=None, debug=False, git_version="unknown", hip=None),
    ),
    "xpu": (
        Answers(False, "is_available"),
        Answers(0, f"device_count {_MEMORY}"),
        Answers(None, "empty_cache manual_seed manual_seed_all reset_peak_memory_stats"),
        Answers(None, "synchronize"),
    ),
}

# -- what is elsewhere here ------------------------------------------------------------------------

_HELPERS = "modtree.nn.helpers"
_LAYER_FILES: dict[str, Row] = {
    "activation": (
        Names("modtree.nn", "CELU ELU GELU GLU Hardshrink Hardsigmoid Hardswish Hardtanh"),
        Names("modtree.nn", "LeakyReLU LogSigmoid LogSoftmax Mish MultiheadAttention PReLU RReLU"),
        Names("modtree.nn", "ReLU ReLU6 SELU SiLU Sigmoid Softmax Softmax2d Softmin Softplus"),
        Names("modtree.nn", "Softshrink Softsign Tanh Tanhshrink Threshold"),
    ),
    "batchnorm": (
        Names("modtree.nn", "BatchNorm1d BatchNorm2d BatchNorm3d LazyBatchNorm1d LazyBatchNorm2d"),
        Names("modtree.nn", "LazyBatchNorm3d SyncBatchNorm"),
        Names("modtree.nn.batchnorm", "_BatchNorm _NormBase"),
    ),
    "channelshuffle": (Names("modtree.nn", "ChannelShuffle"),),
    "container": (
        Names("modtree.nn", "Container ModuleDict ModuleList ParameterDict ParameterList"),
        Names("modtree.nn", "Sequential"),
        Names(_HELPERS, "_addindent"),
    ),
    "conv": (
        Names("modtree.nn", "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d"),
        Names("modtree.nn", "LazyConv1d LazyConv2d LazyConv3d LazyConvTranspose1d"),
        Names("modtree.nn", "LazyConvTranspose2d LazyConvTranspose3d"),
        Names("modtree.nn.convolution", "_ConvNd _ConvTransposeNd"),
        Names(_HELPERS, "_pair _single _triple"),
    ),
    "distance": (Names("modtree.nn", "CosineSimilarity PairwiseDistance"),),
    "dropout": (
        Names("modtree.nn", "AlphaDropout Dropout Dropout1d Dropout2d Dropout3d"),
        Names("modtree.nn", "FeatureAlphaDropout"),
        Names("modtree.nn.dropout", "_DropoutNd"),
    ),
    "flatten": (Names("modtree.nn", "Flatten Unflatten"),),
    "fold": (Names("modtree.nn", "Fold Unfold"),),
    "instancenorm": (
        Names("modtree.nn", "InstanceNorm1d InstanceNorm2d InstanceNorm3d LazyInstanceNorm1d"),
        Names("modtree.nn", "LazyInstanceNorm2d LazyInstanceNorm3d"),
        Names("modtree.nn.batchnorm", "_InstanceNorm"),
    ),
    "lazy": (Names("modtree.core.lazy", "LazyModuleMixin"),),
    "linear": (
        Names("modtree.nn", "Bilinear Identity LazyLinear Linear"),
        Names("modtree.nn.linear", "NonDynamicallyQuantizableLinear"),
    ),
    "loss": (
        Names("modtree.nn", "BCELoss BCEWithLogitsLoss CTCLoss CosineEmbeddingLoss"),
        Names("modtree.nn", "CrossEntropyLoss GaussianNLLLoss HingeEmbeddingLoss HuberLoss"),
        Names("modtree.nn", "KLDivLoss L1Loss MSELoss MarginRankingLoss"),
        Names("modtree.nn", "MultiMarginLoss"),
        Names("modtree.nn", "NLLLoss PoissonNLLLoss SmoothL1Loss SoftMarginLoss"),
        Names("modtree.nn", "TripletMarginLoss TripletMarginWithDistanceLoss"),
        Names("modtree.nn.loss", "_Loss _WeightedLoss"),
    ),
    "module": (
        Names("modtree.nn", "Module"),
        Names("modtree.core.module", "_forward_unimplemented _has_any_global_hook"),
        Names("modtree.core.module", "register_module_backward_hook"),
        Names("modtree.core.module", "register_module_buffer_registration_hook"),
        Names("modtree.core.module", "register_module_forward_hook"),
        Names("modtree.core.module", "register_module_forward_pre_hook"),
        Names("modtree.core.module", "register_module_full_backward_hook"),
        Names("modtree.core.module", "register_module_full_backward_pre_hook"),
        Names("modtree.core.module", "register_module_module_registration_hook"),
        Names("modtree.core.module", "register_module_parameter_registration_hook"),
        Names("modtree.core.state_dict", "_IncompatibleKeys"),
        Names(_HELPERS, "_addindent __getattr__=global_table"),
    ),
    "normalization": (Names("modtree.nn", "GroupNorm LayerNorm LocalResponseNorm RMSNorm"),),
    "padding": (
        Names("modtree.nn", "CircularPad1d CircularPad2d CircularPad3d ConstantPad1d"),
        Names("modtree.nn", "ConstantPad2d ConstantPad3d ReflectionPad1d ReflectionPad2d"),
        Names("modtree.nn", "ReflectionPad3d ReplicationPad1d ReplicationPad2d ReplicationPad3d"),
        Names("modtree.nn", "ZeroPad1d ZeroPad2d ZeroPad3d"),
        Names("modtree.nn.padding", "_CircularPadNd _ConstantPadNd _ReflectionPadNd"),
        Names("modtree.nn.padding", "_ReplicationPadNd"),
    ),
    "pixelshuffle": (Names("modtree.nn", "PixelShuffle PixelUnshuffle"),),
    "pooling": (
        Names("modtree.nn", "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d"),
        Names("modtree.nn", "AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d AvgPool1d"),
        Names("modtree.nn", "AvgPool2d AvgPool3d"),
        Names("modtree.nn", "MaxPool1d MaxPool2d MaxPool3d MaxUnpool1d"),
        Names("modtree.nn", "MaxUnpool2d MaxUnpool3d"),
        Names(_HELPERS, "_pair _single _triple"),
        Names("modtree.nn.pooling", "_AdaptiveAvgPoolNd _AdaptiveMaxPoolNd _AvgPoolNd _MaxPoolNd"),
    ),
    "rnn": (Names("modtree.nn", "GRU GRUCell LSTM LSTMCell RNN RNNBase RNNCell RNNCellBase"),),
    "sparse": (Names("modtree.nn", "Embedding EmbeddingBag"),),
    "transformer": (
        Names("modtree.nn", "Transformer TransformerDecoder TransformerDecoderLayer"),
        Names("modtree.nn", "TransformerEncoder TransformerEncoderLayer"),
        Names("modtree.nn.transformer", "_generate_square_subsequent_mask=_causal_mask"),
        Names("modtree.nn.transformer", "_get_clones=_clones"),
        Names("modtree.nn.transformer_layer", "_get_activation_fn=activation_of"),
    ),
    "upsampling": (Names("modtree.nn", "Upsample UpsamplingBilinear2d UpsamplingNearest2d"),),
    "utils": (
        Names(_HELPERS, "_list_with_default _ntuple _pair _quadruple _reverse_repeat_tuple"),
        Names(_HELPERS, "_single _triple"),
        Names("modtree.nn.utils", "consume_prefix_in_state_dict_if_present"),
    ),
}

_LAYERS = " ".join(
    group.names
    for row in _LAYER_FILES.values()
    for group in row
    if isinstance(group, Names) and group.home == "modtree.nn"
)

ROWS: dict[str, Row] = {
    f"modtree.{path}": row
    for path, row in {
        **_SHELLS,
        "__future__": (
            Names("modtree.core.switches", "get_overwrite_module_params_on_conversion"),
            Names("modtree.core.switches", "get_swap_module_params_on_conversion"),
            Names("modtree.core.switches", "set_overwrite_module_params_on_conversion"),
            Names("modtree.core.switches", "set_swap_module_params_on_conversion"),
        ),
        "autograd.grad_mode": (
            Names("modtree.autograd", "enable_grad inference_mode no_grad set_grad_enabled"),
        ),
        "autograd.profiler": (Names(_ABSENT, "record_function"),),
        "_tensor": (Names("modtree.numpy.tensor.tensor", "Tensor"),),
        "_utils": (
            Names("modtree.numpy.torch_utils", "_flatten_dense_tensors _get_obj_state"),
            Names("modtree.numpy.torch_utils", "_rebuild_parameter _rebuild_parameter_with_state"),
            Names("modtree.numpy.torch_utils", "_unflatten_dense_tensors"),
        ),
        "checkpoints": (Names("modtree.files.checkpoints", "*"),),
        "dropin": (Names("modtree.torch.dropin", "install is_active is_installed"),),
        "families": (
            Names("modtree.core.families", "TensorFamily family_of find functions_of register"),
        ),
        "functional": (
            Names("modtree", "broadcast_shapes broadcast_tensors cdist einsum meshgrid norm split"),
            Names("modtree", "tensordot"),
        ),
        "nn.modules": (Names("modtree.nn", _LAYERS),),
        **{f"nn.modules.{file}": row for file, row in _LAYER_FILES.items()},
        "optim.adadelta": (Names("modtree.optim", "Adadelta"),),
        "optim.adamax": (Names("modtree.optim", "Adamax"),),
        "optim.adamw": (Names("modtree.optim", "AdamW"),),
        "optim.nadam": (Names("modtree.optim", "NAdam"),),
        "optim.radam": (Names("modtree.optim", "RAdam"),),
        "types": (
            Names("modtree.numpy.argument_types", "Device FileLike Number Size Tensor"),
            Names("modtree.numpy.argument_types", "_device=device _dtype=dtype _size=Sizes"),
        ),
        "utils.data._utils": (),
        "utils.data._utils.collate": (
            Names("modtree.utils.data.collate", "collate default_collate default_collate_fn_map"),
            Names("modtree.utils.data.collate", "default_convert"),
        ),
        "utils.hooks": (Names("modtree.core.hooks", "BackwardHook RemovableHandle"),),
    }.items()
}
