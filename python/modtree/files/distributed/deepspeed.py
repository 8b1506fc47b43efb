# SPDX-License-Identifier: BSD-3-Clause
"""Reading a folder of DeepSpeed: the 32-bit weights that ZeRO's ranks have parts of."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from modtree.files.checkpoint.base import CheckpointError, closed_on_error, shortened
from modtree.files.checkpoint.dtypes import DTYPES
from modtree.files.checkpoint.other_files import not_damaged, of_rules
from modtree.files.checkpoint.reader import holdings
from modtree.files.distributed.deepspeed_files import (
    Files,
    Parameter,
    UniversalRules,
    Vector,
    files_in,
    layers_in,
    of_groups,
    of_ranks,
    step_folder,
)
from modtree.files.distributed.ranks import HOW_TO_JOIN, Joins, Merging
from modtree.files.pickled.plain import check_sizes
from modtree.files.pickled.stand_in import StandIn
from modtree.files.pickled.unpickle import UnpicklingError
from modtree.files.torch.files import AssembledCheckpoint
from modtree.files.torch.load import Contents
from modtree.files.torch.records import TensorRecord, record_of_source
from modtree.files.torch.sources import Assembled

#: What the files say of the partitions themselves, which is of no use to anybody else.
_INTERNAL = frozenset(
    (
        "buffer_names",
        "param_shapes",
        "frozen_param_shapes",
        "frozen_param_fragments",
        "shared_params",
        "sparse_tensor_module_names",
        "module",
        "model",
    )
)
_MOST_RANKS = 100_000


class _Rank:
    """A file of states that was read."""

    def __init__(self, contents: Contents, path: str) -> None:
        if not isinstance(contents.obj, dict):
            raise CheckpointError("it is not a file of DeepSpeed's states: no dict is in it", path)
        self.contents, self.path = contents, path
        self.state: dict[Any, Any] = contents.obj


class DeepSpeedCheckpoint(AssembledCheckpoint):
    """A folder of DeepSpeed, or of one of its steps: ``model`` has the 32-bit weights, put together
    of the partitions of all ranks, ``module`` the weights of the first rank as they were used.

    Args:
        path: The folder.
        at: The part to read; None for the 32-bit weights.
        join: How the parts of model-parallel ranks are put together, as :class:`Joins` takes it;
            None for what the files say.
    """

    format = "deepspeed"

    def __init__(self, path: str, at: str | None = None, join: Any = None) -> None:
        joins = None if join is None else Joins(join)
        super().__init__(path)
        with closed_on_error(self):
            self._folder = step_folder(path)
            files = files_in(self._folder)
            states = {rank: self._state_of(own) for rank, own in files.items()}
            if len(states) > 1:
                rules = UniversalRules(states[min(states)], joins, self._folder)
                self._object = self._joined(states, rules)
            elif joins is not None:
                text = "join= puts model-parallel ranks together, and it has one"
                raise of_rules(CheckpointError(text, self._folder))
            else:
                (self._object,) = states.values()
            if at is None and not self._object["model"]:
                self._check_no_layers()
            self._enter(at)
        if self._folder != path:
            last = f"{os.path.basename(self._folder)}/"
            self.passed_over = [name for name in holdings(path) if name != last]

    def _check_no_layers(self) -> None:
        """A model that is nowhere else may be in files of layers, which are not put together."""
        if layers := layers_in(self._folder):
            error = CheckpointError(
                f"its model is that of a pipeline, whose layers are in {len(layers)} files of "
                f"their own: open each by itself, such as {layers[0]}",
                self._folder,
            )
            raise not_damaged(error)

    def _state_of(self, files: Files) -> dict[str, Any]:
        """What the files of one model-parallel rank hold, by parts."""
        models = {rank: self._rank(file) for rank, file in files.model.items()}
        optimizers = {rank: self._rank(file) for rank, file in files.optimizer.items()}
        state = self._bound(models[min(models)])
        module = state.get("module")
        module = module if isinstance(module, dict) else {}
        found: dict[str, Any] = {"model": module}
        if optimizers:
            found = {"model": self._weights(models, optimizers, module), "module": module}
        if not _has_weights(module, state.get("buffer_names")):
            found.pop("module", None)  # stage 3 leaves empty tensors there
        if optimizers:
            found["optimizer"] = {
                f"rank_{rank}": self._bound(optimizers[rank]).get("optimizer_state_dict")
                for rank in sorted(optimizers)
            }
        for name, value in state.items():
            if type(name) is str and name not in _INTERNAL and name not in found:
                found[name] = value
        return found

    def _joined(self, states: dict[int, dict[str, Any]], rules: UniversalRules) -> dict[str, Any]:
        """The parts of all model-parallel ranks: weights as one, the states of optimizers beside
        each other, and of the rest that of the first rank.
        """
        if not rules.are_there:
            raise CheckpointError(
                f"its model is split over {len(states)} model-parallel ranks, and the files do "
                f"not say how: {HOW_TO_JOIN}, or open one mp_rank_*_model_states.pt",
                self._folder,
            )
        work = Merging(self._folder, list(states), rules)
        whole = dict(states[min(states)])
        for name in ("model", "module"):
            if all(name in state for state in states.values()):
                whole[name] = work.merged([state[name] for state in states.values()], name)
        if "optimizer" in whole:
            whole["optimizer"] = {
                f"mp_rank_{rank:02}": state.get("optimizer") for rank, state in states.items()
            }
        self._broken += work.unclear
        return whole

    def _rank(self, file: str) -> _Rank:
        contents = self._files_of_torch.contents(file, keep=True)
        self.foreign += contents.foreign
        return _Rank(contents, file)

    def _bound(self, rank: _Rank) -> dict[Any, Any]:
        bound: dict[Any, Any] = self._files_of_torch.bound(rank.contents, rank.path)
        return bound

    def _weights(
        self, models: dict[int, _Rank], optimizers: dict[int, _Rank], module: dict[Any, Any]
    ) -> dict[str, Any]:
        """The 32-bit weights, in the order of the module, with buffers and what is shared."""
        first = models[min(models)]
        states = {rank: self._optimizer_of(found) for rank, found in optimizers.items()}
        one = states[min(states)]
        stage, count = one.get("zero_stage"), one.get("partition_count")
        if type(stage) is StandIn and stage.args:  # a member of an enumeration
            stage = stage.args[0]
        if isinstance(count, (list, tuple)):
            numbers = [n for n in count if type(n) is int]
            count = max(numbers, default=None)
        if type(stage) is not int or not 1 <= stage <= 3:
            raise CheckpointError(f"the stage of ZeRO is {shortened(stage)}", self._folder)
        if type(count) is not int or not 1 <= count <= _MOST_RANKS:
            raise CheckpointError(f"the number of ranks is {shortened(count)}", self._folder)
        self._check_ranks(optimizers, count, "optim_states")
        name = "fp32_flat_groups" if stage == 3 else "single_partition_of_fp32_groups"
        vectors = [
            list(self._vectors(optimizers[rank], states[rank].get(name), name))
            for rank in range(count)
        ]
        groups = self._groups(first)
        if stage == 3:
            shapes = {key: shape for group in groups for key, shape in group.items()}
            parameters = list(of_ranks(shapes, vectors, self._folder))
        else:
            if any(len(found) != len(groups) for found in vectors):
                raise CheckpointError(
                    f"it has {len(groups)} groups of parameters, and its ranks have vectors for "
                    f"{sorted({len(found) for found in vectors})}",
                    self._folder,
                )
            paddings = self._paddings(one.get("param_alignment_paddings"), groups)
            parameters = list(of_groups(groups, vectors, paddings, self._folder))
        weights = {p.name: self._record(p, "float32") for p in parameters}
        weights.update(self._frozen(models, first, stage, count))
        buffers = first.state.get("buffer_names")
        for key in buffers if isinstance(buffers, (list, tuple)) else ():
            if type(key) is str and type(module.get(key)) is TensorRecord:
                weights[key] = module[key]
        shared = first.state.get("shared_params")
        for key, kept in shared.items() if isinstance(shared, dict) else ():
            if type(key) is str and type(kept) is str and kept in weights:
                weights[key] = weights[kept]
        if stage < 3:  # what is not trained is nowhere else in files of stage 1
            for key, value in module.items():
                if type(key) is str and type(value) is TensorRecord:
                    weights.setdefault(key, value)
        order = [key for key in module if key in weights]
        return {key: weights[key] for key in dict.fromkeys((*order, *weights))}

    def _optimizer_of(self, rank: _Rank) -> dict[Any, Any]:
        state = rank.state.get("optimizer_state_dict")
        if not isinstance(state, dict):
            raise CheckpointError("it has no optimizer_state_dict", rank.path)
        return state

    def _check_ranks(self, found: dict[int, Any], count: int, kind: str) -> None:
        missing = [rank for rank in range(count) if rank not in found]
        if missing:
            more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
            raise CheckpointError(
                f"it is of {count} ranks, and the {kind} of rank "
                f"{', '.join(map(str, missing[:5]))}{more} are missing",
                self._folder,
            )

    def _vectors(self, rank: _Rank, value: Any, name: str) -> Iterator[Vector]:
        if not isinstance(value, (list, tuple)):
            raise CheckpointError(f"it has no {name}", rank.path)
        for record in value:
            if type(record) is not TensorRecord or len(record.shape) != 1:
                raise CheckpointError(f"its {name} are not flat tensors", rank.path)
            yield self._vector(rank, record, record.shape[0])

    def _vector(self, rank: _Rank, record: TensorRecord, length: int) -> Vector:
        def read() -> np.ndarray:
            return self._files_of_torch.array(rank.contents, record, rank.path).reshape(-1)

        return Vector(length, read, rank.path)

    def _groups(self, rank: _Rank) -> list[dict[str, tuple[int, ...]]]:
        value = rank.state.get("param_shapes")
        groups = value if isinstance(value, (list, tuple)) else [value]
        return [self._shapes(rank, group, "param_shapes") for group in groups]

    def _shapes(self, rank: _Rank, value: Any, name: str) -> dict[str, tuple[int, ...]]:
        if not isinstance(value, dict):
            raise CheckpointError(f"its {name} are {shortened(value)}", rank.path)
        for key, shape in value.items():
            try:
                check_sizes(shape, 16)
            except UnpicklingError as error:
                raise CheckpointError(str(error), rank.path, str(key)[:200]) from None
            if type(key) is not str or len(shape) > 64:
                raise CheckpointError(f"its {name} name {shortened(key)}", rank.path)
        return {key: tuple(shape) for key, shape in value.items()}

    def _paddings(
        self, value: Any, groups: list[dict[str, tuple[int, ...]]]
    ) -> list[list[int]] | None:
        if value is None:
            return None
        fits = isinstance(value, (list, tuple)) and len(value) == len(groups)
        for own, shapes in zip(value, groups, strict=False) if fits else ():
            fits = fits and isinstance(own, (list, tuple)) and len(own) == len(shapes)
            fits = fits and all(type(n) is int and 0 <= n < 1 << 40 for n in own)
        if not fits:
            raise CheckpointError("its param_alignment_paddings fit no parameters", self._folder)
        return [list(own) for own in value]

    def _frozen(
        self, models: dict[int, _Rank], first: _Rank, stage: int, count: int
    ) -> Iterator[tuple[str, TensorRecord]]:
        """Parameters that are not trained, which the files of the model have."""
        if not first.state.get("frozen_param_shapes"):
            return
        shapes = self._shapes(first, first.state["frozen_param_shapes"], "frozen_param_shapes")
        ranks = [first]
        if stage == 3:
            self._check_ranks(models, count, "model_states")
            ranks = [models[rank] for rank in range(count)]
        for key, shape in shapes.items():
            vectors, dtype = [], "float32"
            for rank in ranks:
                fragments = rank.state.get("frozen_param_fragments")
                record = fragments.get(key) if isinstance(fragments, dict) else None
                if type(record) is not TensorRecord or record.source is None:
                    raise CheckpointError("its fragment is missing", rank.path, key)
                length = record.nbytes // record.dtype.itemsize
                vectors.append([self._vector(rank, record, length)])
                dtype = record.dtype.name
            (parameter,) = of_ranks({key: shape}, vectors, self._folder)
            yield key, self._record(parameter, dtype)

    def _record(self, parameter: Parameter, dtype: str) -> TensorRecord:
        name, shape, pieces = parameter
        flat = (int(np.prod(shape, dtype=object)),)
        source = Assembled(shape, dtype, pieces, self._folder, name, flat)
        return record_of_source(source, DTYPES[dtype], shape)


def _has_weights(module: dict[Any, Any], buffers: Any) -> bool:
    """Whether a module has values beside its buffers."""
    known = buffers if isinstance(buffers, (list, tuple)) else ()
    return any(
        type(value) is TensorRecord and value.nbytes
        for key, value in module.items()
        if key not in known
    )
