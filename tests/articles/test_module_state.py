# SPDX-License-Identifier: BSD-3-Clause
"""Loading of state dicts, as an article prints it from torch's file of 2020, MMCV and MMDetection:
the code runs as overrides in a class of a user's.
"""

# ruff: noqa: UP008, UP032, SIM118, N806
from __future__ import annotations

import itertools
import logging
from collections import OrderedDict, namedtuple

import pytest
from helpers.article_names import names_of
from helpers.support import raises

_IncompatibleKeys = namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])


def with_load_of_2020(impl):
    names = names_of(impl)
    torch, Module = names.torch, names.Module

    class Written(Module):
        def _load_from_state_dict(
            self,
            state_dict,
            prefix,
            local_metadata,
            strict,
            missing_keys,
            unexpected_keys,
            error_msgs,
        ):
            for hook in self._load_state_dict_pre_hooks.values():
                hook(
                    state_dict,
                    prefix,
                    local_metadata,
                    strict,
                    missing_keys,
                    unexpected_keys,
                    error_msgs,
                )

            persistent_buffers = {
                k: v for k, v in self._buffers.items() if k not in self._non_persistent_buffers_set
            }
            local_name_params = itertools.chain(
                self._parameters.items(), persistent_buffers.items()
            )
            local_state = {k: v for k, v in local_name_params if v is not None}

            for name, param in local_state.items():
                key = prefix + name
                if key in state_dict:
                    input_param = state_dict[key]

                    # Backward compatibility: loading 1-dim tensor from 0.3.* to version 0.4+
                    if len(param.shape) == 0 and len(input_param.shape) == 1:
                        input_param = input_param[0]

                    if input_param.shape != param.shape:
                        # local shape should match the one in checkpoint
                        error_msgs.append(
                            "size mismatch for {}: copying a param with shape {} from "
                            "checkpoint, the shape in current model is {}.".format(
                                key, input_param.shape, param.shape
                            )
                        )
                        continue
                    try:
                        with torch.no_grad():
                            param.copy_(input_param)
                    except Exception as ex:
                        error_msgs.append(
                            'While copying the parameter named "{}", '
                            "whose dimensions in the model are {} and "
                            "whose dimensions in the checkpoint are {}, "
                            "an exception occurred : {}.".format(
                                key, param.size(), input_param.size(), ex.args
                            )
                        )
                elif strict:
                    missing_keys.append(key)

            if strict:
                for key in state_dict.keys():
                    if key.startswith(prefix):
                        input_name = key[len(prefix) :]
                        # get the name of param/buffer/child
                        input_name = input_name.split(".", 1)[0]
                        if input_name not in self._modules and input_name not in local_state:
                            unexpected_keys.append(key)

    return Written


def with_whole_load_of_2020(impl):
    class Written(with_load_of_2020(impl)):
        def load_state_dict(self, state_dict, strict: bool = True):
            missing_keys = []
            unexpected_keys = []
            error_msgs = []

            # copy state_dict so _load_from_state_dict can modify it
            metadata = getattr(state_dict, "_metadata", None)
            state_dict = state_dict.copy()
            if metadata is not None:
                state_dict._metadata = metadata

            def load(module, prefix=""):
                local_metadata = {} if metadata is None else metadata.get(prefix[:-1], {})
                module._load_from_state_dict(
                    state_dict,
                    prefix,
                    local_metadata,
                    True,
                    missing_keys,
                    unexpected_keys,
                    error_msgs,
                )
                for name, child in module._modules.items():
                    if child is not None:
                        load(child, prefix + name + ".")

            load(self)
            load = None  # break load->load reference cycle

            if strict:
                if len(unexpected_keys) > 0:
                    error_msgs.insert(
                        0,
                        "Unexpected key(s) in state_dict: {}. ".format(
                            ", ".join('"{}"'.format(k) for k in unexpected_keys)
                        ),
                    )
                if len(missing_keys) > 0:
                    error_msgs.insert(
                        0,
                        "Missing key(s) in state_dict: {}. ".format(
                            ", ".join('"{}"'.format(k) for k in missing_keys)
                        ),
                    )

            if len(error_msgs) > 0:
                raise RuntimeError(
                    "Error(s) in loading state_dict for {}:\n\t{}".format(
                        self.__class__.__name__, "\n\t".join(error_msgs)
                    )
                )
            return _IncompatibleKeys(missing_keys, unexpected_keys)

    return Written


def model(base, impl, value=0.0):
    lib, nn = impl.lib, impl.nn
    root = base()
    root.scale = nn.Parameter(lib.full((), value))
    root.child = base()
    root.child.weight = nn.Parameter(lib.full((2, 3), value))
    root.child.register_buffer("mean", lib.full((2,), value))
    root.child.register_buffer("hidden", lib.full((2,), value), persistent=False)
    root.child.last = nn.Module()
    root.child.last.bias = nn.Parameter(lib.full((4,), value))
    root.nothing = None
    return root


WRITTEN = [with_load_of_2020, with_whole_load_of_2020]


@pytest.mark.parametrize("written", WRITTEN, ids=["one module", "all"])
def test_loading_as_written(impl, written):
    source = model(impl.nn.Module, impl, 1.0)
    m = model(written(impl), impl)
    result = m.load_state_dict(source.state_dict())
    assert tuple(result) == ([], [])
    assert [t.sum().item() for t in m.state_dict().values()] == [1, 6, 2, 4]
    assert m.child.hidden.tolist() == [0, 0]
    # A number that was saved as a list of one.
    state = dict(source.state_dict(), scale=impl.lib.full((1,), 5.0))
    m.load_state_dict(OrderedDict(state))
    assert m.scale.item() == 5


@pytest.mark.parametrize("written", WRITTEN, ids=["one module", "all"])
def test_errors_of_loading_as_written(impl, written):
    state = model(impl.nn.Module, impl, 1.0).state_dict()
    del state["child.mean"]
    state["child.weight"] = impl.lib.ones(5)
    state["child.other"] = state["other.x"] = impl.lib.ones(1)
    m = model(written(impl), impl)
    with raises(
        RuntimeError,
        "Error(s) in loading state_dict for Written:",
        'Missing key(s) in state_dict: "child.mean". ',
        'Unexpected key(s) in state_dict: "other.x", "child.other". ',
        "size mismatch for child.weight",
    ):
        m.load_state_dict(state)
    state["child.weight"] = impl.lib.ones(2, 3)
    keys = m.load_state_dict(state, strict=False)
    assert (keys.missing_keys, keys.unexpected_keys) == (
        ["child.mean"],
        ["other.x", "child.other"],
    )


def test_hooks_of_loading_as_written(impl):
    m = model(with_load_of_2020(impl), impl)

    def rename(state_dict, prefix, *rest):
        state_dict[prefix + "weight"] = state_dict.pop(prefix + "kernel")

    m.child._register_load_state_dict_pre_hook(rename)
    state = model(impl.nn.Module, impl, 1.0).state_dict()
    state["child.kernel"] = state.pop("child.weight")
    m.load_state_dict(state)
    assert m.child.weight.sum().item() == 6


# -- what one can do with it -----------------------------------------------------------------------


def norm_class(impl):
    names = names_of(impl)
    torch, Module = names.torch, names.Module

    class _NormBase(Module):
        _version = 2

        def __init__(self, track_running_stats=True):
            super().__init__()
            self.track_running_stats = track_running_stats
            self.register_buffer("num_batches_tracked", torch.tensor(7))

        def _load_from_state_dict(
            self,
            state_dict,
            prefix,
            local_metadata,
            strict,
            missing_keys,
            unexpected_keys,
            error_msgs,
        ):
            version = local_metadata.get("version", None)

            if (version is None or version < 2) and self.track_running_stats:
                # at version 2: added num_batches_tracked buffer
                #               this should have a default value of 0
                num_batches_tracked_key = prefix + "num_batches_tracked"
                if num_batches_tracked_key not in state_dict:
                    state_dict[num_batches_tracked_key] = torch.tensor(0, dtype=torch.long)

            super(_NormBase, self)._load_from_state_dict(
                state_dict,
                prefix,
                local_metadata,
                strict,
                missing_keys,
                unexpected_keys,
                error_msgs,
            )

    return _NormBase


def test_checkpoints_from_before_a_buffer(impl):
    model = impl.nn.Sequential(norm_class(impl)())
    state = OrderedDict()
    model.load_state_dict(state)
    assert model[0].num_batches_tracked.item() == 0
    assert not state

    state._metadata = {"0": {"version": 2}}
    with raises(RuntimeError, 'Missing key(s) in state_dict: "0.num_batches_tracked"'):
        model.load_state_dict(state)
    state._metadata = {"0": {"version": 1}}
    model[0].num_batches_tracked.fill_(3)
    model.load_state_dict(state)
    assert model[0].num_batches_tracked.item() == 0
    assert model.state_dict()._metadata["0"] == {"version": 2}


def test_names_that_a_version_changed(impl, caplog):
    names = names_of(impl)
    lib, nn, Module = impl.lib, names.nn, names.Module

    def print_log(msg, logger=None):
        logging.getLogger(logger).warning(msg)

    class DeformConv2dPack(Module):
        _version = 2

        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(lib.zeros(1))
            self.conv_offset = nn.Module()
            self.conv_offset.weight = nn.Parameter(lib.zeros(2))
            self.conv_offset.bias = nn.Parameter(lib.zeros(3))

        def _load_from_state_dict(
            self,
            state_dict,
            prefix,
            local_metadata,
            strict,
            missing_keys,
            unexpected_keys,
            error_msgs,
        ):
            version = local_metadata.get("version", None)

            if version is None or version < 2:
                # the key is different in early versions
                # In version < 2, DeformConvPack loads previous benchmark models.
                if (
                    prefix + "conv_offset.weight" not in state_dict
                    and prefix[:-1] + "_offset.weight" in state_dict
                ):
                    state_dict[prefix + "conv_offset.weight"] = state_dict.pop(
                        prefix[:-1] + "_offset.weight"
                    )
                if (
                    prefix + "conv_offset.bias" not in state_dict
                    and prefix[:-1] + "_offset.bias" in state_dict
                ):
                    state_dict[prefix + "conv_offset.bias"] = state_dict.pop(
                        prefix[:-1] + "_offset.bias"
                    )

            if version is not None and version > 1:
                print_log(
                    f"DeformConv2dPack {prefix.rstrip('.')} is upgraded to version 2.",
                    logger="root",
                )

            super()._load_from_state_dict(
                state_dict,
                prefix,
                local_metadata,
                strict,
                missing_keys,
                unexpected_keys,
                error_msgs,
            )

    model = nn.Sequential(OrderedDict(conv=DeformConv2dPack()))
    state = model.state_dict()
    with caplog.at_level(logging.WARNING):
        model.load_state_dict(state)
    assert caplog.messages == ["DeformConv2dPack conv is upgraded to version 2."]

    # A module sees the keys below it, so the old ones are renamed where it is the root's own.
    old = OrderedDict((k, v + 1) for k, v in model.conv.state_dict().items())
    for name in ("weight", "bias"):
        old[f"_offset.{name}"] = old.pop(f"conv_offset.{name}")
    model.conv.load_state_dict(old)
    assert [t.tolist() for t in model.conv.parameters()] == [[1], [1, 1], [1, 1, 1]]
    assert "_offset.weight" in old


def test_the_checkpoint_of_another_detector(impl, caplog):
    names = names_of(impl)
    lib, nn, Module = impl.lib, names.nn, names.Module

    def get_root_logger():
        return "mmdet3d"

    def print_log(msg, logger=None):
        logging.getLogger(logger).warning(msg)

    class MultiModalDetector(Module):
        def __init__(self):
            super().__init__()
            for name in ("img_backbone", "img_neck", "img_rpn_head", "img_roi_head", "fusion"):
                part = nn.Module()
                part.weight = nn.Parameter(lib.zeros(1))
                self.add_module(name, part)

        def _load_from_state_dict(
            self,
            state_dict,
            prefix,
            local_metadata,
            strict,
            missing_keys,
            unexpected_keys,
            error_msgs,
        ):
            # override the _load_from_state_dict function
            # convert the backbone weights pre-trained in Mask R-CNN
            # use list(state_dict.keys()) to avoid
            # RuntimeError: OrderedDict mutated during iteration
            for key_name in list(state_dict.keys()):
                key_changed = True
                if key_name.startswith("backbone."):
                    new_key_name = f"img_backbone{key_name[8:]}"
                elif key_name.startswith("neck."):
                    new_key_name = f"img_neck{key_name[4:]}"
                elif key_name.startswith("rpn_head."):
                    new_key_name = f"img_rpn_head{key_name[8:]}"
                elif key_name.startswith("roi_head."):
                    new_key_name = f"img_roi_head{key_name[8:]}"
                else:
                    key_changed = False
                if key_changed:
                    logger = get_root_logger()
                    print_log(f"{key_name} renamed to be {new_key_name}", logger=logger)
                    state_dict[new_key_name] = state_dict.pop(key_name)
            super()._load_from_state_dict(
                state_dict,
                prefix,
                local_metadata,
                strict,
                missing_keys,
                unexpected_keys,
                error_msgs,
            )

    trained = OrderedDict(
        (f"{part}.weight", lib.full((1,), float(i + 1)))
        for i, part in enumerate(("backbone", "neck", "rpn_head", "roi_head"))
    )
    detector = MultiModalDetector()
    with raises(RuntimeError, 'Missing key(s) in state_dict: "fusion.weight"'):
        detector.load_state_dict(trained)
    with caplog.at_level(logging.WARNING):
        keys = detector.load_state_dict(trained, strict=False)
    assert keys.missing_keys == ["fusion.weight"]
    assert [p.item() for p in detector.parameters()] == [1, 2, 3, 4, 0]
    assert "neck.weight renamed to be img_neck.weight" in caplog.messages
    assert list(trained) == ["backbone.weight", "neck.weight", "rpn_head.weight", "roi_head.weight"]
