# SPDX-License-Identifier: BSD-3-Clause
"""What the programs of this folder share: fixed seeds, and a result that two runs can compare.

A program ends with ``report(main())``: what ``main`` found goes to the runner
(``tests/helpers/dropin_programs.py``). Tensors become digests of their bits, so equal reports mean
equal bits.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch


def seed(value: int = 0) -> None:
    random.seed(value)
    np.random.seed(value)
    torch.manual_seed(value)


def prepare() -> None:
    """One thread, fixed seeds and algorithms: what torch computes is then the same in every run."""
    torch.set_num_threads(1)
    device = os.environ.get("MODTREE_PROGRAM_DEVICE", "cpu")
    if device != "cpu":
        torch.set_default_device(device)
        torch.use_deterministic_algorithms(True, warn_only=True)
    seed()


def digest(tensor: torch.Tensor) -> str:
    """The tensor's dtype, shape, the hash of its bits, and its sum for a human's eye."""
    whole = getattr(tensor, "full_tensor", None)
    tensor = (whole() if whole is not None else tensor).detach()
    label = f"{str(tensor.dtype).rpartition('.')[2]}{list(tensor.shape)}"
    if tensor.is_meta:
        return f"{label} meta"
    if tensor.is_quantized:
        return f"{label} {digest(tensor.int_repr())} {digest(tensor.dequantize())}"
    dense = tensor.cpu().contiguous()
    bits = hashlib.sha256(dense.flatten().view(torch.uint8).numpy().tobytes()).hexdigest()[:12]
    total = "" if dense.is_complex() else f" sum {dense.double().sum().item():.6g}"
    return f"{label} {bits}{total}"


def plain(value: Any) -> Any:
    """``value`` as JSON has it, tensors as digests; anything else by its text."""
    if isinstance(value, torch.Tensor):
        return digest(value)
    if isinstance(value, np.ndarray | np.generic):
        return digest(torch.from_numpy(np.array(value)))
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, set | frozenset):
        return sorted(plain(v) for v in value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value.hex()
    raise TypeError(f"an outcome holds tensors, numbers, texts and containers, not {value!r}")


def part(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What the function gives. Where the runner asks for it (older versions of torch cannot do all
    that the programs do), an error is a result too, by its kind and its first line.
    """
    if "MODTREE_OUTCOME_OF_ERRORS" not in os.environ:
        return function(*args, **kwargs)
    try:
        return plain(function(*args, **kwargs))
    except Exception as error:
        lines = str(error).splitlines()
        return {"error": f"{type(error).__name__}: {lines[0] if lines else ''}"}


def state(module: torch.nn.Module) -> dict[str, Any]:
    """Every entry of the state dict, in order of its keys."""
    entries = module.state_dict()
    return {"keys": list(entries), **plain(entries)}


def gradients(module: torch.nn.Module) -> dict[str, Any]:
    return {name: plain(p.grad) for name, p in module.named_parameters()}


def tree(module: torch.nn.Module) -> list[str]:
    """Name and class of every module."""
    return [f"{name}: {type(m).__name__}" for name, m in module.named_modules()]


def train(
    module: torch.nn.Module,
    loss: Callable[[], torch.Tensor],
    steps: int = 3,
    **options: Any,
) -> list[float]:
    """AdamW steps on ``loss()``; the losses."""
    optimizer = torch.optim.AdamW(
        [p for p in module.parameters() if p.requires_grad], **{"lr": 1e-2, **options}
    )
    module.train()
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses


def error_of(function: Callable[[], Any]) -> str:
    """Type and first line of what ``function`` raises."""
    try:
        function()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return "no error"


def same_copy(module: torch.nn.Module) -> bool:
    """Whether a deep copy has the same state."""
    return state(copy.deepcopy(module)) == state(module)


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    path = tempfile.mkdtemp(prefix="modtree-program-")
    try:
        yield Path(path)
    finally:
        shutil.rmtree(path, ignore_errors=True)


def is_native() -> bool:
    """Whether torch.nn.Module is modtree's native class in this process."""
    native = sys.modules.get("modtree._C")
    return native is not None and issubclass(torch.nn.Module, native.ModuleBase)


def report(facts: Mapping[str, Any]) -> None:
    """Leave the result where the runner looks for it, or print it."""
    line = json.dumps({"native": is_native(), "facts": plain(facts)})
    where = os.environ.get("MODTREE_OUTCOME")
    if where:
        Path(f"{where}.{os.environ.get('RANK', '0')}").write_text(line)
    else:
        print(line)


prepare()
