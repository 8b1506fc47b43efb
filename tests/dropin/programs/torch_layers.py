# SPDX-License-Identifier: BSD-3-Clause
"""Every layer of torch.nn: built, called, trained a step, saved, loaded, copied, pickled, compiled
and converted.
"""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import torch
from outcome import gradients, plain, report, seed, state
from torch import nn

#: (layer, arguments, keyword arguments, how the inputs are made)
_Case = tuple[str, tuple[Any, ...], dict[str, Any], Callable[[], tuple[Any, ...]]]


def real(*shapes: tuple[int, ...]) -> Callable[[], tuple[Any, ...]]:
    return lambda: tuple(torch.randn(shape) for shape in shapes)


def signals(dims: int, channels: int = 4, size: int = 6) -> Callable[[], tuple[Any, ...]]:
    return real((2, channels, *[size] * dims))


def classes(*shape: int) -> Callable[[], tuple[Any, ...]]:
    return lambda: (
        torch.randn(shape).log_softmax(1),
        torch.randint(shape[1], (shape[0], *shape[2:])),
    )


def numbers(*shape: int) -> Callable[[], tuple[Any, ...]]:
    return lambda: (torch.randint(5, shape),)


def cases() -> list[_Case]:
    found: list[_Case] = []
    for name in (
        "CELU ELU GELU GLU Hardshrink Hardsigmoid Hardswish Hardtanh Identity LeakyReLU LogSigmoid "
        "LogSoftmax Mish PReLU RReLU ReLU ReLU6 SELU SiLU Sigmoid Softmax Softmin Softplus "
        "Softshrink Softsign Tanh Tanhshrink"
    ).split():
        options = {"dim": 1} if name in ("LogSoftmax", "Softmax", "Softmin") else {}
        found.append((name, (), options, real((2, 4))))
    found += [
        ("Threshold", (0.1, 2.0), {}, real((2, 4))),
        ("Softmax2d", (), {}, signals(2)),
        ("Linear", (4, 3), {}, real((2, 4))),
        ("Linear", (4, 3), {"bias": False}, real((2, 4))),
        ("LazyLinear", (3,), {}, real((2, 4))),
        ("Bilinear", (3, 4, 2), {}, real((2, 3), (2, 4))),
        ("Flatten", (), {}, signals(2)),
        ("Unflatten", (1, (2, 2)), {}, real((2, 4))),
        ("Embedding", (5, 3), {"padding_idx": 1}, numbers(2, 3)),
        ("EmbeddingBag", (5, 3), {"mode": "sum"}, numbers(2, 3)),
        ("LayerNorm", (4,), {}, real((2, 4))),
        ("RMSNorm", (4,), {}, real((2, 4))),
        ("GroupNorm", (2, 4), {}, signals(1)),
        ("LocalResponseNorm", (2,), {}, signals(2)),
        ("CrossMapLRN2d", (2,), {}, signals(2)),
        ("PixelShuffle", (2,), {}, signals(2)),
        ("PixelUnshuffle", (2,), {}, signals(2)),
        ("ChannelShuffle", (2,), {}, signals(2)),
        ("Upsample", (), {"scale_factor": 2}, signals(2)),
        ("UpsamplingNearest2d", (), {"scale_factor": 2}, signals(2)),
        ("UpsamplingBilinear2d", (), {"scale_factor": 2}, signals(2)),
        ("Fold", ((4, 4), 2), {}, real((2, 4, 9))),
        ("Unfold", (2,), {}, signals(2)),
        ("CosineSimilarity", (), {}, real((2, 4), (2, 4))),
        ("PairwiseDistance", (), {}, real((2, 4), (2, 4))),
        ("Dropout", (0.5,), {}, real((2, 4))),
        ("AlphaDropout", (0.5,), {}, real((2, 4))),
        ("FeatureAlphaDropout", (0.5,), {}, signals(1)),
        ("FractionalMaxPool2d", (2,), {"output_size": 3}, signals(2)),
        ("FractionalMaxPool3d", (2,), {"output_size": 3}, signals(3)),
        ("RNN", (4, 3), {"num_layers": 2}, real((5, 2, 4))),
        ("LSTM", (4, 3), {"bidirectional": True}, real((5, 2, 4))),
        ("GRU", (4, 3), {"batch_first": True}, real((5, 2, 4))),
        ("RNNCell", (4, 3), {}, real((2, 4))),
        ("LSTMCell", (4, 3), {}, real((2, 4))),
        ("GRUCell", (4, 3), {}, real((2, 4))),
        ("MultiheadAttention", (4, 2), {}, real((5, 2, 4), (5, 2, 4), (5, 2, 4))),
        ("TransformerEncoderLayer", (4, 2, 8), {}, real((5, 2, 4))),
        ("TransformerDecoderLayer", (4, 2, 8), {}, real((5, 2, 4), (3, 2, 4))),
        ("Transformer", (4, 2, 1, 1, 8), {}, real((5, 2, 4), (3, 2, 4))),
    ]
    for dims in (1, 2, 3):
        found += [
            (f"Conv{dims}d", (4, 3, 3), {"padding": 1}, signals(dims)),
            (f"LazyConv{dims}d", (3, 3), {}, signals(dims)),
            (f"ConvTranspose{dims}d", (4, 3, 3), {"stride": 2}, signals(dims)),
            (f"LazyConvTranspose{dims}d", (3, 3), {}, signals(dims)),
            (f"BatchNorm{dims}d", (4,), {}, signals(dims)),
            (f"LazyBatchNorm{dims}d", (), {}, signals(dims)),
            (f"InstanceNorm{dims}d", (4,), {"affine": True}, signals(dims)),
            (f"LazyInstanceNorm{dims}d", (), {"affine": True}, signals(dims)),
            (f"MaxPool{dims}d", (2,), {}, signals(dims)),
            (f"AvgPool{dims}d", (2,), {}, signals(dims)),
            (f"LPPool{dims}d", (2, 2), {}, signals(dims)),
            (f"AdaptiveAvgPool{dims}d", (2,), {}, signals(dims)),
            (f"AdaptiveMaxPool{dims}d", (2,), {}, signals(dims)),
            (f"Dropout{dims}d", (0.5,), {}, signals(dims)),
        ]
        for padding in ("Constant", "Circular", "Reflection", "Replication", "Zero"):
            values = (1, 0.5) if padding == "Constant" else (1,)
            found.append((f"{padding}Pad{dims}d", values, {}, signals(dims)))
    pairs = real((2, 4), (2, 4))
    for name in (
        "L1Loss MSELoss SmoothL1Loss HuberLoss PoissonNLLLoss KLDivLoss SoftMarginLoss "
        "BCEWithLogitsLoss MultiLabelSoftMarginLoss"
    ).split():
        options = {"reduction": "batchmean"} if name == "KLDivLoss" else {}
        found.append((name, (), options, pairs))
    labels = torch.tensor([1, -1])
    found += [
        ("BCELoss", (), {}, lambda: (torch.rand(2, 4), torch.rand(2, 4))),
        ("CrossEntropyLoss", (), {"label_smoothing": 0.1}, classes(4, 3)),
        ("NLLLoss", (), {}, classes(4, 3)),
        ("NLLLoss2d", (), {}, classes(2, 3, 2, 2)),
        ("MultiMarginLoss", (), {}, classes(4, 3)),
        (
            "MultiLabelMarginLoss",
            (),
            {},
            lambda: (torch.randn(2, 3), torch.tensor([[0, -1, 1]] * 2)),
        ),
        ("HingeEmbeddingLoss", (), {}, lambda: (torch.randn(2), labels)),
        ("CosineEmbeddingLoss", (), {}, lambda: (*real((2, 4), (2, 4))(), labels)),
        ("MarginRankingLoss", (), {}, lambda: (*real((2,), (2,))(), labels)),
        ("TripletMarginLoss", (), {}, real((2, 4), (2, 4), (2, 4))),
        ("TripletMarginWithDistanceLoss", (), {}, real((2, 4), (2, 4), (2, 4))),
        ("GaussianNLLLoss", (), {}, lambda: (*real((2, 4), (2, 4))(), torch.rand(2, 4) + 0.1)),
        (
            "CTCLoss",
            (),
            {},
            lambda: (
                torch.randn(6, 2, 4).log_softmax(2),
                torch.randint(1, 4, (2, 3)),
                torch.tensor([6, 5]),
                torch.tensor([3, 2]),
            ),
        ),
        (
            "AdaptiveLogSoftmaxWithLoss",
            (4, 6, [2, 4]),
            {},
            lambda: (torch.randn(3, 4), torch.arange(3)),
        ),
    ]
    return found


def leaves(value: Any) -> list[torch.Tensor]:
    found = torch.utils._pytree.tree_leaves(value)
    return [leaf for leaf in found if isinstance(leaf, torch.Tensor)]


def life(layer: str, args: tuple[Any, ...], kwargs: dict[str, Any], inputs: Any) -> dict[str, Any]:
    """What becomes of one layer."""
    seed(1)
    values = inputs()
    cls = getattr(nn, layer)
    module = cls(*args, **kwargs)
    facts: dict[str, Any] = {"new": repr(module), "uninitialized": list(module.state_dict())}

    def call(module: nn.Module) -> Any:
        seed(2)
        return leaves(module(*values))

    facts["called"] = call(module)
    facts["called by"] = repr(module)
    optimizer = None
    if list(module.parameters()):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        sum(out.float().sum() for out in call(module) if out.requires_grad).backward()
        facts["gradients"] = gradients(module)
        optimizer.step()
    facts["state"] = state(module)
    facts["metadata"] = {k: dict(v) for k, v in module.state_dict()._metadata.items()}
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    other = copy.deepcopy(module)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    facts["loaded"] = str(other.load_state_dict(torch.load(file)))
    facts["after loading"] = state(other)
    pickled = pickle.loads(pickle.dumps(module))
    facts["pickled"] = [state(pickled), sorted(vars(pickled)), plain(call(pickled))]
    facts["attributes"] = sorted(vars(module))
    module.eval()
    facts["evaluated"] = call(module)
    torch.compiler.reset()
    facts["compiled"] = call(torch.compile(module, backend="eager"))
    facts["double"] = state(other.double())
    facts["meta"] = [str(t.device) for t in other.to("meta").state_dict().values()]
    other.to_empty(device="cpu")
    facts["assigned"] = str(other.load_state_dict(module.state_dict(), assign=True))
    facts["after assigning"] = state(other)
    return facts


def main() -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for number, case in enumerate(cases()):
        name = f"{number} {case[0]}"
        try:
            facts[name] = life(*case)
        except Exception as error:
            facts[name] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    tested = {case[0] for case in cases()}
    facts["not tested"] = sorted(
        name
        for name, cls in vars(nn).items()
        if isinstance(cls, type) and issubclass(cls, nn.Module) and name not in tested
    )
    return facts


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    report(main())
