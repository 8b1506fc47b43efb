# SPDX-License-Identifier: BSD-3-Clause
"""What a failed load says below torch's message, and ``load_state_dict(rename=, partial=,
dry_run=)``.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections import OrderedDict

import pytest
from helpers.needs import needs
from helpers.support import raises, values
from helpers.util import buffer, param, tensor


@pytest.fixture
def layers(ours):
    """A function that makes a tree of equal layers under a name."""

    def make(name="features", count=12, shape=(2, 3)):
        root = ours.nn.Module()
        setattr(root, name, ours.nn.ModuleList([ours.nn.Module() for _ in range(count)]))
        for layer in getattr(root, name):
            layer.weight = ours.nn.Parameter(ours.lib.ones(*shape))
            layer.bias = ours.nn.Parameter(ours.lib.zeros(shape[0]))
        root.head = ours.nn.Module()
        root.head.weight = ours.nn.Parameter(ours.lib.ones(1, shape[0]))
        return root

    return make


def explanation(module, state_dict, **options):
    with pytest.raises(RuntimeError) as info:
        module.load_state_dict(state_dict, **options)
    torchs, _, added = str(info.value).partition("\n\n")
    assert torchs.startswith("Error(s) in loading state_dict for ")
    return added


def suggested(text):
    """The rename= that the text suggests."""
    rules = re.search(r"rename=(\{.*?\})\)", text)[1]
    return eval(rules, {"re": re})  # as a user would paste it


# -- causes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "model.", "a.b."])
def test_a_prefix_in_the_checkpoint(layers, prefix):
    saved = {prefix + key: value for key, value in layers().state_dict().items()}
    text = explanation(layers(), saved)
    assert f"the keys of the state dict begin with {prefix!r}" in text
    assert "25 of the 25 keys of the model are missing" in text
    model = layers()
    assert model.load_state_dict(saved, rename=suggested(text)) == ([], [])


def test_a_prefix_in_the_model(ours, layers):
    wrapper = ours.nn.Module()
    wrapper.module = layers()
    text = explanation(wrapper, layers().state_dict())
    assert "the keys of the model begin with 'module.'" in text
    assert wrapper.load_state_dict(layers().state_dict(), rename=suggested(text)) == ([], [])


def test_a_renamed_child(layers):
    text = explanation(layers(), layers("backbone").state_dict())
    assert "'backbone' is 'features' now" in text
    assert "features.* (weight, bias) x 12" in text
    assert layers().load_state_dict(layers("backbone").state_dict(), rename=suggested(text))


def test_renamed_entries(layers):
    saved = {re.sub("weight$", "gamma", k): v for k, v in layers().state_dict().items()}
    text = explanation(layers(), saved)
    assert "entries called 'gamma' are called 'weight' now" in text
    assert layers().load_state_dict(saved, rename=suggested(text)) == ([], [])


def test_a_mapping_around_the_state_dict(layers):
    text = explanation(layers(), {"epoch": 3, "model_state_dict": layers().state_dict()})
    assert "model.load_state_dict(state_dict['model_state_dict'])" in text


def test_transposed_entries(layers):
    saved = layers().state_dict()
    saved["features.3.weight"] = saved["features.3.weight"].T
    text = explanation(layers(), saved)
    assert "transposed entries (1 of 1 of the wrong shape), 'features.3.weight' first" in text
    assert "transposed" in explanation(layers(), saved, strict=False)


def test_other_sizes(layers):
    text = explanation(layers(shape=(2, 4)), layers().state_dict())
    assert "3 in the checkpoint is 4 in the model, in 12 entries" in text


@pytest.mark.parametrize("reverse", [False, True])
def test_a_parametrization(ours, reverse):
    plain, parametrized = ours.nn.Module(), ours.nn.Module()
    plain.fc = ours.nn.Module()
    plain.fc.weight = param(ours, 1.0)
    parametrized.fc = ours.nn.Module()
    parametrized.fc.parametrizations = ours.nn.Module()
    parametrized.fc.parametrizations.weight = ours.nn.Module()
    parametrized.fc.parametrizations.weight.original = param(ours, 1.0)
    model, saved = (plain, parametrized) if reverse else (parametrized, plain)
    text = explanation(model, saved.state_dict())
    assert ("was parametrized when it was saved" if reverse else "is parametrized in the") in text


def test_an_older_version(ours):
    class Counts(ours.nn.Module):
        _version = 2

        def __init__(self):
            super().__init__()
            self.count = buffer(ours, 1.0)

    old = OrderedDict()
    old._metadata = {"": {"version": 1}}
    assert "saved in version 1 of its class, which is at version 2 now" in explanation(
        Counts(), old
    )


def test_near_matches(ours):
    model = ours.nn.Module()
    model.tokens = ours.nn.Module()
    model.tokens.embedding = param(ours, 1.0)
    text = explanation(model, {"token.embeddings": tensor(ours, 1.0)})
    assert "'tokens.embedding' is perhaps 'token.embeddings'" in text and "partial=True" in text


def test_few_keys_without_a_cause_get_torchs_message_alone(ours):
    model = ours.nn.Module()
    model.a = param(ours, 1.0)
    assert explanation(model, {}) == ""


def test_the_keys_stand_at_the_exception(layers):
    saved = layers("other").state_dict()
    saved["head.weight"] = saved["head.weight"].T
    with pytest.raises(RuntimeError) as info:
        layers().load_state_dict(saved)
    assert info.value.missing_keys[:2] == ["features.0.weight", "features.0.bias"]
    assert info.value.unexpected_keys[0] == "other.0.weight"
    assert len(info.value.error_messages) == 1


def test_an_explanation_asks_no_overrides(ours):
    class Odd(ours.nn.Module):
        def never(self, *args, **kwargs):
            raise KeyboardInterrupt

        named_parameters = parameters = named_buffers = named_modules = get_submodule = never
        named_children = children = modules = never

    model = Odd()
    model.a = param(ours, 1.0)
    assert "20 of the 20 keys" in explanation(model, {str(i): 1 for i in range(20)})


def test_an_explanation_that_fails_changes_nothing(ours):
    class Odd(dict):
        def get(self, *args):
            raise ValueError("no versions")

    model = ours.nn.Module()
    model.a = param(ours, 1.0)
    saved = OrderedDict((str(i), 1) for i in range(20))
    assert "20 of the 20 keys" in explanation(model, saved)
    saved._metadata = Odd()
    assert explanation(model, saved) == ""


def test_only_tensors_are_asked_for_their_shape(ours):
    class Odd:
        @property
        def shape(self):
            raise KeyboardInterrupt

    model = ours.nn.Module()
    model.a = param(ours, 1.0)
    assert "20 of the 20 keys" in explanation(model, {str(i): Odd() for i in range(20)})


# -- rename ----------------------------------------------------------------------------------------


def test_forms_of_rules(ours):
    model = ours.nn.Module()
    model.child = ours.nn.Module()
    model.child.weight = param(ours, 1.0)
    saved = {"old.gamma": tensor(ours, 5.0), "junk": 1}
    rules = {"old.": "child.", re.compile("gamma$"): "weight", "junk": "child.weight.x"}
    with raises(RuntimeError, 'Unexpected key(s) in state_dict: "child.weight.x"'):
        model.load_state_dict(saved, rename=rules)
    function = {"old.gamma": "child.weight"}.get  # None for others: left out
    for rename in (function, list(rules.items())[:2]):
        model.child.weight = param(ours, 1.0)
        model.load_state_dict(saved, strict=rename is function, rename=rename)
        assert values(model.child.weight) == [5.0]
    assert list(saved) == ["old.gamma", "junk"]


def test_versions_are_renamed_too(ours):
    seen = []

    class Versioned(ours.nn.Module):
        _version = 3

        def _load_from_state_dict(self, state_dict, prefix, local_metadata, *args):
            seen.append((prefix, local_metadata.get("version")))
            super()._load_from_state_dict(state_dict, prefix, local_metadata, *args)

    def make(wrapped):
        inner = ours.nn.Module()
        inner.empty = ours.nn.Module()
        inner.empty.leaf = Versioned()
        inner.leaf = Versioned()
        inner.leaf.weight = param(ours, 1.0)
        if not wrapped:
            return inner
        outer = ours.nn.Module()
        outer.module = inner
        return outer

    make(False).load_state_dict(make(True).state_dict(), rename={"module.": ""})
    assert seen == [("empty.leaf.", 3), ("leaf.", 3)]


@pytest.mark.parametrize(
    ("rename", "error", "words"),
    [
        ("module.", TypeError, "{'module.': ''}"),
        ({1: "a"}, TypeError, "a rule of rename replaces a str or a compiled pattern"),
        ({"a": 1}, TypeError, "a rule of rename replaces a str or a compiled pattern"),
        (5, TypeError, "rename takes a mapping of prefixes or patterns"),
        (["ab", "c"], TypeError, "rename takes a mapping of prefixes or patterns"),
        (lambda key: 3, TypeError, "rename gave 3 for the key 'a'"),
        (lambda key: "x", ValueError, "rename gives 'a' and 'b' the same key 'x'"),
    ],
)
def test_wrong_rules(ours, rename, error, words):
    model = ours.nn.Module()
    model.a = param(ours, 1.0)
    model.b = param(ours, 2.0)
    with raises(error, words):
        model.load_state_dict(model.state_dict(), rename=rename)


def test_options_are_keywords_only(ours):
    with raises(TypeError, "positional"):
        ours.nn.Module().load_state_dict({}, True, False, {})


# -- partial and dry_run ---------------------------------------------------------------------------


def damaged(layers):
    saved = layers().state_dict()
    for value in saved.values():
        value.fill_(7)
    saved["head.weight"] = saved["head.weight"].T
    saved["extra"] = 1
    del saved["features.3.bias"]
    return saved


def test_what_fits_is_loaded(layers):
    model, saved = layers(), damaged(layers)
    report = model.load_state_dict(saved, partial=True)
    assert report.loaded == [k for k in saved if k not in ("head.weight", "extra")]
    assert report.skipped == {
        "head.weight": "its shape is [2, 1], that of the model [1, 2]",
        "extra": "the model has no such entry",
    }
    assert report.missing_keys == ["features.3.bias"] and report.unexpected_keys == ["extra"]
    assert not report.is_complete
    assert "23 of 25 entries fit" in str(report) and "features.3 (bias)" in str(report)
    assert values(model.features[0].bias) == [7.0, 7.0]
    assert values(model.features[3].bias) == [0.0, 0.0]
    assert values(model.head.weight) == [[1.0, 1.0]]


def test_a_dry_run_changes_nothing(layers):
    model, saved = layers(), damaged(layers)
    before = {key: (id(value), values(value)) for key, value in model.named_parameters()}
    report = model.load_state_dict(saved, dry_run=True)
    assert report == model.load_state_dict(saved, dry_run=True, partial=True)
    assert {k: (id(v), values(v)) for k, v in model.named_parameters()} == before
    assert report == model.load_state_dict(saved, partial=True)


@pytest.mark.parametrize("assign", [False, True])
def test_a_dry_run_of_what_fits(layers, assign):
    model, saved = layers(), layers().state_dict()
    report = model.load_state_dict(saved, dry_run=True, assign=assign)
    assert (
        report.is_complete
        and report.loaded == list(saved)
        and str(report) == ("25 of 25 entries fit")
    )


def test_partial_with_rename_and_assign(layers):
    model, saved = layers(), damaged(layers)
    saved = {"module." + key: value for key, value in saved.items()}
    report = model.load_state_dict(saved, rename={"module.": ""}, partial=True, assign=True)
    assert len(report.loaded) == 23 and values(model.features[0].bias) == [7.0, 7.0]


def test_hooks_of_a_load_count_for_the_report(ours):
    class Renames(ours.nn.Module):
        def _load_from_state_dict(self, state_dict, prefix, *args):
            if prefix + "old" in state_dict:
                state_dict[prefix + "weight"] = state_dict.pop(prefix + "old")
            super()._load_from_state_dict(state_dict, prefix, *args)

    model = Renames()
    model.weight = param(ours, 1.0)
    saved = {"old": tensor(ours, 5.0)}
    assert model.load_state_dict(saved, dry_run=True).is_complete
    assert values(model.weight) == values(param(ours, 1.0))
    assert model.load_state_dict(saved, partial=True).loaded == ["old"]
    assert values(model.weight) == [5.0]


def test_ties_and_gradients_stay(ours):
    model = ours.nn.Module()
    model.a = model.b = param(ours, 1.0)
    model.a.grad = tensor(ours, 1.0)
    saved = {"a": tensor(ours, 5.0), "b": tensor(ours, 5.0)}
    assert model.load_state_dict(saved, partial=True).is_complete
    assert model.a is model.b and values(model.a.grad) == [1.0]


def test_a_module_that_cannot_be_copied(ours):
    model = ours.nn.Module()
    model.stream = stream = (i for i in range(3))
    model.a = param(ours, 1.0)
    assert model.load_state_dict({"a": tensor(ours, 5.0)}, dry_run=True).is_complete
    assert values(model.a) == [1.0] and model.stream is stream
    assert model.load_state_dict({"a": tensor(ours, 5.0)}, partial=True).is_complete
    assert values(model.a) == [5.0]


def test_a_module_with_a_tensor_that_is_computed(ours):
    """As weight_norm keeps one, which deepcopy refuses."""
    model = ours.nn.Module()
    model.a = param(ours, 1.0)
    model.computed = computed = model.a * 2
    assert model.load_state_dict({"a": tensor(ours, 5.0)}, partial=True).is_complete
    assert values(model.a) == [5.0] and model.computed is computed


def test_other_names_of_tensors_and_modules_are_those_of_the_stand_in(ours):
    """A plain attribute in front leads to what is registered behind: neither is copied twice."""
    seen = []

    class Holder(ours.nn.Module):
        def _load_from_state_dict(self, *args):
            super()._load_from_state_dict(*args)
            seen.append([self.first[0] is self.child, self.first[1] is self.child.a])
            seen.append(self.first[1].is_meta)

    model = Holder()
    child = ours.nn.Module()
    child.a = param(ours, 1.0)
    model.first = [child, child.a]
    model.child = child
    assert model.load_state_dict({"child.a": tensor(ours, 5.0)}, dry_run=True).is_complete
    assert seen == [[True, True], True] and values(child.a) == [1.0]


def test_a_class_that_has_one_instance_alone(ours):
    """The load is not tried on that instance."""

    class Single(ours.nn.Module):
        found = None

        def __new__(cls):
            if cls.found is None:
                cls.found = super().__new__(cls)
            return cls.found

    model = Single()
    model.a = param(ours, 1.0)
    assert model.load_state_dict({"a": tensor(ours, 5.0)}, dry_run=True).is_complete
    assert values(model.a) == [1.0]


def test_a_dry_run_leaves_what_a_load_sets_besides_tensors(ours):
    class Counts(ours.nn.Module):
        __slots__ = ("kept",)

        def __init__(self):
            super().__init__()
            self.seen, self.kept = [], [1]

        def set_extra_state(self, state):
            self.seen.append(state)
            self.kept.append(state)

    model = ours.nn.Module()
    model.child = Counts()
    assert model.load_state_dict({"child._extra_state": 3}, dry_run=True).is_complete
    assert model.child.seen == [] and model.child.kept == [1]


def test_what_a_load_passes_over_is_not_called_loaded(ours):
    model = ours.nn.Module()
    model.a = param(ours, 1.0)
    model.register_module("gone", None)
    model.register_parameter("bias", None)
    model.register_buffer("table", tensor(ours, 1.0), persistent=False)
    state = {name: tensor(ours, 5.0) for name in ("a", "gone.x.y", "bias", "table")}
    report = model.load_state_dict(state, dry_run=True)
    assert report.loaded == ["a"] and report.ignored_keys == ["gone.x.y"]
    assert report.unexpected_keys == ["bias", "table"] and not report.is_complete
    assert list(report.skipped) == ["gone.x.y", "bias", "table"]
    assert "'gone' is None in the model" in report.skipped["gone.x.y"]
    assert "it is None in the model" in report.skipped["bias"]
    assert "not persistent" in report.skipped["table"]
    assert report == model.load_state_dict(state, partial=True)
    assert values(model.a) == [5.0]
    fits = {name: state[name] for name in ("a", "gone.x.y")}
    assert model.load_state_dict(fits) == ([], [])
    assert model.load_state_dict(fits, dry_run=True).is_complete


def test_what_stays_on_meta_is_said(ours):
    def make():
        model = ours.nn.Module()
        for name in ("a", "b"):
            setattr(model, name, ours.nn.Parameter(ours.lib.ones(1, device="meta")))
        model.register_buffer("table", ours.lib.ones(1, device="meta"), persistent=False)
        return model

    state = {"a": tensor(ours, 5.0)}
    for options in ({"dry_run": True}, {"partial": True}):
        report = make().load_state_dict(state, assign=True, **options)
        assert report.meta_keys == ["b", "table"]
        assert "left on meta (2):" in str(report)
    model = make()
    assert model.load_state_dict(state, dry_run=True).meta_keys == ["a", "b", "table"]
    model.load_state_dict(state, partial=True, assign=True)
    on_meta = [name for name, tensor in (*model.named_parameters(), *model.named_buffers())
               if tensor.is_meta]  # fmt: skip
    assert on_meta == report.meta_keys


def test_counts_are_those_of_the_model(ours):
    """A checkpoint has more for a model with a child that is None than the model has keys."""
    model = ours.nn.Module()
    for i in range(12):
        setattr(model, f"p{i}", param(ours, 1.0))
    model.register_module("none", None)
    state = {f"none.x{i}": tensor(ours, 1.0) for i in range(6)}
    assert "12 of the 12 keys of the model are missing." in explanation(model, state)
    one = ours.nn.Module()
    one.weight = param(ours, 1.0)
    text = explanation(one, {"weight": ours.lib.ones(2), **{str(i): 1 for i in range(9)}})
    assert "9 of the 10 keys of the state dict were not expected, 1 has another shape." in text


#: Each took minutes, or gigabytes.
LONG_KEYS = """
import random, resource
import modtree as mt
resource.setrlimit(resource.RLIMIT_CPU, (40, 40))

def refused(names, keys):
    model = mt.nn.Module()
    for name in names:
        model.register_parameter(name, mt.nn.Parameter(mt.ones(1)))
    state = {key: mt.ones(1) for key in keys}
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        assert f"{len(keys)} of the {len(keys)} keys of the state dict" in str(error)
    else:
        raise SystemExit("no error")

rng = random.Random(1)
names = ["".join(rng.choices([chr(0x4E00 + i) for i in range(150)], k=20_000)) for _ in range(20)]
refused(names, ["".join(rng.sample(name, len(name))) for name in names])
refused(["weight"], [f"{i}." + "a." * 10_000 + "weight" for i in range(300)])
refused(["w"], [f"{i}." + "parametrizations." * 3000 + "x.originalx" for i in range(50)])
print("clear errors")
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="limits of POSIX")
def test_keys_of_any_length_are_explained_in_bounded_time():
    result = subprocess.run([sys.executable, "-c", LONG_KEYS], capture_output=True, text=True)
    assert result.stdout == "clear errors\n", result.stderr


def test_a_deep_rename_is_found(ours):
    deep = ".".join(f"block{i}" for i in range(30))
    model = parent = ours.nn.Module()
    for name in [*deep.split("."), "new"]:
        parent.add_module(name, ours.nn.Module())
        parent = getattr(parent, name)
    parent.weight, parent.bias = (ours.nn.Parameter(ours.lib.ones(n)) for n in (2, 3))
    state = {key.replace(".new.", ".encoder."): v for key, v in model.state_dict().items()}
    assert f"'{deep}.encoder' is '{deep}.new' now" in explanation(model, state)


# -- what is not a state dict ----------------------------------------------------------------------


def small(ours, *names):
    model = ours.nn.Module()
    for i, name in enumerate(names or ("weight", "bias")):
        setattr(model, name, ours.nn.Parameter(ours.lib.ones(2, 2 + i) * i))
    return model


def explanation_of_given(model, given):
    with pytest.raises(TypeError) as info:
        model.load_state_dict(given)
    first, _, added = str(info.value).partition("\n\n")
    assert first == f"Expected state_dict to be dict-like, got {type(given)}."
    return added


def follow_given(ours, text, model, given):
    call = text.partition("Try: ")[2].removesuffix(".")
    library = {"torch": ours.lib, "modtree": ours.lib}
    assert eval(call, {"model": model, "state_dict": given, **library}) == ([], [])


GIVEN = {
    "a model": lambda model: model,
    "pairs": lambda model: list(model.state_dict().items()),
    "a view of pairs": lambda model: model.state_dict().items(),
    "a view of pairs of a dict": lambda model: dict(model.state_dict()).items(),
    "a state dict in a list": lambda model: ["epoch", model.state_dict(), {"lr": 1}],
    "a state dict in a tuple": lambda model: (dict(model.state_dict()), None),
    "values": lambda model: list(model.state_dict().values()),
    "a view of values": lambda model: model.state_dict().values(),
    "parameters": lambda model: list(model.parameters()),
}


@pytest.mark.parametrize("kind", GIVEN)
def test_what_is_given_in_place_of_a_state_dict(ours, kind):
    source, model = small(ours), small(ours)
    for p in source.parameters():
        p.data.fill_(5)
    given = GIVEN[kind](source)
    follow_given(ours, explanation_of_given(model, given), model, given)
    assert [values(p) for p in model.parameters()] == [values(p) for p in source.parameters()]


@pytest.mark.parametrize("kind", GIVEN)
def test_what_is_given_does_not_fit(ours, kind):
    text = explanation_of_given(small(ours), GIVEN[kind](small(ours, "weight", "scale", "bias")))
    assert "Try: " not in text
    assert bool(text) is (kind == "a model")


def test_two_state_dicts_in_a_list_are_not_told_apart(ours):
    model = small(ours)
    assert explanation_of_given(model, [model.state_dict(), dict(model.state_dict())]) == ""


def test_an_explanation_of_what_is_given_that_fails_adds_nothing(ours):
    class Odd(str):
        def __fspath__(self):
            raise ValueError

    class Path(os.PathLike):
        def __fspath__(self):
            raise ValueError

    assert explanation_of_given(small(ours), Path()) == ""
    assert explanation_of_given(small(ours), "text" * 1000) == ""
    assert "there is no file" in explanation_of_given(small(ours), "missing.pt")
    assert "there is no file" in explanation_of_given(small(ours), Odd("missing.pt"))


@pytest.mark.parametrize("ending", ["pt", pytest.param("safetensors", marks=needs("safetensors"))])
def test_a_path(ours, ending, tmp_path):
    import modtree

    source, model = small(ours), small(ours)
    source.weight.data.fill_(5)
    path = tmp_path / f"model.{ending}"
    if ending == "safetensors":
        modtree.save_file(source, path)
    else:
        ours.lib.save(source.state_dict(), path)
    for given in (path, str(path)):
        text = explanation_of_given(model, given)
        call = text.partition("Try: ")[2].removesuffix(".")
        if "safetensors" in call:
            safetensors = importlib.import_module("safetensors.torch")
            assert call == "model.load_state_dict(safetensors.torch.load_file(state_dict))"
            assert model.load_state_dict(safetensors.load_file(given)) == ([], [])
        else:
            follow_given(ours, text, model, given)
        assert values(model.weight) == values(source.weight)
