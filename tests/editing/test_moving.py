# SPDX-License-Identifier: BSD-3-Clause
"""``insert``, ``remove``, ``rename``, ``move``, ``share``, batches of them, and their keys."""

from __future__ import annotations

import random

import pytest
from helpers.edited_models import inputs, random_tree, registries, stacked
from helpers.small_modules import array, linear

import modtree as mt


def names(model):
    return [name for name, _ in model.named_modules() if name]


def flat(impl):
    """Children as attributes, a list, and a tensor of each kind."""
    model = impl.nn.Module()
    model.a, model.b, model.c = linear(impl), impl.nn.Identity(), linear(impl)
    model.list = impl.nn.ModuleList([linear(impl), impl.nn.Identity(), linear(impl)])
    model.register_buffer("scratch", impl.lib.ones(2), persistent=False)
    model.register_buffer("mean", impl.lib.ones(2))
    return model


def test_insert_registers_at_the_end_or_before_a_sibling(impl):
    model = flat(impl)
    before = registries(model)
    one = mt.edit(model).insert("d", impl.nn.Identity())
    two = mt.edit(model).insert("e", impl.nn.Identity(), before="b")
    assert list(model._modules) == ["a", "e", "b", "c", "list", "d"]
    two.undo()
    one.undo()
    assert registries(model) == before


def test_insert_into_a_list_renumbers_what_follows(impl):
    model = flat(impl)
    before, old, keys = registries(model), list(model.list), list(model.state_dict())
    receipt = mt.edit(model).insert("list.1", linear(impl))
    assert [*model.list][:1] + [*model.list][2:] == old
    assert receipt("list.1.x") == "list.2.x" and receipt("list.2.weight") == "list.3.weight"
    assert receipt.inverse("list.1.weight") is None and receipt("list.0.bias") == "list.0.bias"
    assert all(receipt.inverse(receipt(key)) == key for key in keys)
    mt.edit(model).insert("list.4", impl.nn.Identity()).undo()
    receipt.undo()
    assert registries(model) == before
    with pytest.raises(ValueError, match="'list.5': expected a number up to 3, the length of 'lis"):
        mt.edit(model).insert("list.5", impl.nn.Identity())


def test_insert_where_none_is_registered(impl):
    model = flat(impl)
    model.b = None
    new, before = impl.nn.Identity(), registries(model)
    with mt.edit(model).insert("b", new):
        assert model.b is new and list(model._modules) == ["a", "b", "c", "list"]
    assert registries(model) == before
    with mt.edit(model).insert("b", new, before="a"):
        assert model.b is new and list(model._modules) == ["b", "a", "c", "list"]
    assert registries(model) == before


@pytest.mark.parametrize("change", ["insert", "remove"])
def test_undo_does_not_leave_a_list_with_a_gap(impl, change):
    model = impl.nn.Sequential(*(linear(impl) for _ in range(3)))
    edit, old = mt.edit(model), registries(model)
    receipt = edit.insert("1", linear(impl)) if change == "insert" else edit.remove("1")
    model.append(linear(impl))
    before = registries(model)
    if change == "insert":
        with pytest.raises(RuntimeError, match="'4' was added since this change; undo the later"):
            receipt.undo()
    else:
        with pytest.raises(RuntimeError, match="'2' was changed since this change"):
            receipt.undo()
    assert registries(model) == before and not receipt.is_undone
    del model[-1]
    receipt.undo()
    assert registries(model) == old


def test_a_sequential_with_an_inserted_module_runs(impl):
    model, x = impl.nn.Sequential(linear(impl, 3, 3), linear(impl, 3, 3)), inputs(impl)
    with mt.edit(model).insert("1", linear(impl, 3, 3)):
        assert len(model) == 3
        y = model[2](model[1](model[0](x)))
        assert (array(model(x)) == array(y)).all()
    assert len(model) == 2


def test_insert_refuses_what_does_not_fit(impl):
    model = flat(impl)
    before = registries(model)
    edit = mt.edit(model)
    cases = [
        ("a", impl.nn.Identity(), ValueError, "has an attribute 'a' already"),
        ("training", impl.nn.Identity(), ValueError, "has an attribute 'training' already"),
        ("x.y", impl.nn.Identity(), AttributeError, "'x': the model itself .* has no child 'x'"),
        ("d", 3, TypeError, "'d': expected a module to put there, got 3"),
        ("a.model", model, ValueError, "'a.model': the module that is put there holds 'a'"),
        ("", impl.nn.Identity(), ValueError, "got '', the model itself"),
        ("list.-1", impl.nn.Identity(), ValueError, "'list.-1': expected a number up to 3"),
        (3, impl.nn.Identity(), TypeError, "expected a path such as 'layers.3', got 3"),
    ]
    for path, module, error, message in cases:
        with pytest.raises(error, match=message):
            edit.insert(path, module)
    with pytest.raises(ValueError, match="before: the model itself has no child 'zz'"):
        edit.insert("d", impl.nn.Identity(), before="zz")
    assert registries(model) == before and edit.receipt.changes == []


def test_modules_of_the_other_library_are_refused(torch):
    with pytest.raises(TypeError, match="is a module of modtree, whose children cannot be modules"):
        mt.edit(mt.nn.Sequential()).insert("0", torch.nn.ReLU())
    with pytest.raises(TypeError, match="is a module of torch, whose children cannot be modules"):
        mt.edit(torch.nn.Sequential()).insert("0", mt.nn.ReLU())
    model = mt.nn.Sequential(mt.nn.ReLU())
    with pytest.raises(TypeError, match="'0': Sequential is a module of modtree, whose children"):
        mt.find(model, "0").replace(torch.nn.ReLU)
    assert type(model[0]) is mt.nn.ReLU


def test_remove_takes_modules_out_of_all_their_places(impl):
    model = flat(impl)
    model.list.append(model.list[0])
    before, keys = registries(model), list(model.state_dict())
    receipt = mt.find(model, ["list.0", "b"]).remove()
    assert names(model) == ["a", "c", "list", "list.0", "list.1"]
    assert [(c.kind, c.path) for c in receipt] == [
        ("remove", "b"),
        ("remove", "list.0"),
        ("remove", "list.3"),
    ]
    assert receipt("list.2.weight") == "list.1.weight" and receipt("list.0.weight") is None
    assert [receipt(k) for k in keys if receipt(k)] == list(model.state_dict())
    receipt.undo()
    assert registries(model) == before
    with pytest.raises(ValueError, match="cannot be removed from itself"):
        mt.find(model, "").remove()
    with pytest.raises(LookupError, match="nothing is selected"):
        mt.edit(model).remove("nothing.here")


def test_remove_of_all_in_a_list(impl):
    model = impl.nn.Sequential(*(linear(impl) for _ in range(6)))
    before = registries(model)
    with mt.find(model, "[1:5]").remove():
        assert len(model) == 2 and list(model._modules) == ["0", "1"]
    assert registries(model) == before


def test_rename_keeps_the_place_among_siblings(impl):
    model = flat(impl)
    before, keys = registries(model), list(model.state_dict())
    edit = mt.edit(model)
    edit.rename("b", "bb")
    edit.rename("a.weight", "kernel")
    edit.rename("scratch", "temporary")
    edit.rename("list", "layers")
    assert list(model._modules) == ["a", "bb", "c", "layers"]
    assert list(model.a._parameters) == ["kernel", "bias"]
    assert model._non_persistent_buffers_set == {"temporary"}
    assert list(model._buffers) == ["temporary", "mean"]
    receipt = edit.receipt
    assert [receipt(key) for key in keys] == list(model.state_dict())
    assert [receipt.inverse(key) for key in model.state_dict()] == keys
    edit.undo()
    assert registries(model) == before
    for name in ("c", "forward", "", "x.y", 3):
        with pytest.raises(ValueError, match="already|expected a name without dots"):
            edit.rename("a", name)
    with pytest.raises(ValueError, match="in a list, whose children are numbered"):
        edit.rename("list.0", "first")
    with pytest.raises(AttributeError, match=r"has no module, parameter or buffer 'zz'; it has a,"):
        edit.rename("zz", "first")
    assert registries(model) == before


def test_move_of_modules_and_tensors(impl):
    model = flat(impl)
    before, keys = registries(model), list(model.state_dict())
    a, first, scratch, weight = model.a, model.list[0], model.scratch, model.c.weight
    edit = mt.edit(model)
    edit.move("a", "list.1")
    assert model.list[1] is a and not hasattr(model, "a")
    edit.move("list.0", "list.3")
    assert model.list[3] is first and model.list[0] is a
    edit.move("scratch", "c.kept")
    assert model.c.kept is scratch and "kept" in model.c._non_persistent_buffers_set
    edit.move("c.weight", "list.0.second")
    assert a.second is weight and "weight" not in model.c._parameters
    receipt = edit.receipt
    assert sorted(map(receipt, keys)) == sorted(model.state_dict())
    assert all(receipt.inverse(receipt(key)) == key for key in keys)
    edit.undo()
    assert registries(model) == before
    with pytest.raises(ValueError, match="the module that is put there holds 'list.0'"):
        edit.move("list", "list.0.x")
    with pytest.raises(ValueError, match="has an attribute 'c' already"):
        edit.move("a.weight", "c")
    assert registries(model) == before


def test_share_ties_modules_and_tensors(impl):
    model = flat(impl)
    before, keys = registries(model), list(model.state_dict())
    edit = mt.edit(model)
    edit.share("a.weight", "c.weight")
    edit.share("list.0", "list.2")
    edit.share("a.scale", "c.scale")
    assert model.c.weight is model.a.weight and model.list[2] is model.list[0]
    assert [edit.receipt(key) for key in keys] == keys == list(model.state_dict())
    assert [str(tie) for tie in edit.tie_report()] == [
        "parameter: a.weight = c.weight",
        "buffer: a.scale = c.scale",
        "module: list.0 = list.2",
    ]
    edit.undo()
    assert registries(model) == before
    with pytest.raises(ValueError, match="'a.weight' has the shape .*, and 'a.bias' "):
        edit.share("a.weight", "a.bias")
    with pytest.raises(ValueError, match="'a.weight' is a parameter, and 'b' is a module"):
        edit.share("a.weight", "b")
    with pytest.raises(ValueError, match="'list' holds 'list'"):
        edit.share("list", "list.0")


def test_tie_report_finds_views_of_one_memory(impl):
    model = impl.nn.Module()
    model.a = impl.nn.Parameter(impl.lib.ones(3))
    model.b = impl.nn.Parameter(model.a.detach())
    model.c = impl.nn.Parameter(impl.lib.ones(3))
    assert [tuple(tie) for tie in mt.edit(model).tie_report()] == [("memory", ("a", "b"))]


def test_tie_report_finds_all_that_meets_in_memory(impl):
    base = impl.lib.ones(4, 3)
    model = impl.nn.Module()
    model.whole, model.rows = impl.nn.Parameter(base), impl.nn.Parameter(base[1:3])
    model.inner = impl.nn.Module()
    model.inner.register_buffer("turned", base.T)
    model.first, model.second = (impl.nn.Parameter(impl.lib.ones(4, 2)[:, i]) for i in range(2))
    model.inner._buffers["rows"] = model.rows  # one object as parameter and buffer
    assert [tuple(tie) for tie in mt.edit(model).tie_report()] == [
        ("parameter", ("rows", "inner.rows")),
        ("memory", ("whole", "rows", "inner.turned")),
    ]


def with_shared_parts(impl):
    model = impl.nn.Module()
    model.a = impl.nn.Sequential(linear(impl), impl.nn.Identity())
    model.b, model.head = model.a, linear(impl)
    model.head.weight = model.a[0].weight
    return model


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda m: mt.edit(m).insert("b.2", type(m.a)()), ["insert b.2", "insert a.2"]),
        (lambda m: mt.edit(m).remove("b.1"), ["remove a.1", "remove b.1"]),
        (lambda m: mt.edit(m).rename("a.0.bias", "c"), ["rename a.0.bias", "rename b.0.bias"]),
        (
            lambda m: mt.edit(m).move("head.bias", "b.bias"),
            ["move head.bias: Parameter -> b.bias", "move head.bias: Parameter -> a.bias"],
        ),
        (lambda m: mt.find(m, "b.0").wrap(type(m.a)), ["wrap a.0", "wrap b.0"]),
        (lambda m: mt.edit(m).share("head.bias", "a.0.bias"), ["share a.0.bias", "share b.0.bias"]),
        (
            lambda m: mt.find_parameters(m, "head.weight").requires_grad_(False),
            [f"requires_grad_ {path}.weight" for path in ("head", "a.0", "b.0")],
        ),
        (lambda m: mt.find(m, "b.1").train(False), ["train b.1", "train a.1"]),
    ],
)
def test_a_receipt_tells_all_places(impl, change, expected):
    model = with_shared_parts(impl)
    before, keys = registries(model), list(model.state_dict())
    receipt = change(model)
    found = [str(each) for each in receipt]
    assert len(found) == len(expected)
    assert all(text.startswith(start) for text, start in zip(found, expected, strict=True))
    if not expected[0].startswith("move"):  # whose key is another one
        new = {receipt(key) for key in keys} - {None}
        assert new <= model.state_dict().keys()
    receipt.undo()
    assert registries(model) == before


def test_a_receipt_tells_which_ties_came_and_went(impl):
    def tied_to(module):
        made = linear(impl)
        made.weight = module.weight
        return made

    for change, expected in [
        (lambda m: mt.find(m, "a").replace(lambda p, old: linear(impl)), ["untie head.weight: a."]),
        (lambda m: mt.find(m, "a").wrap(impl.nn.Sequential), []),
        (lambda m: mt.find(m, "a").remove(), ["untie a.weight: head."]),
        (lambda m: mt.edit(m).rename("a", "z"), []),
        (lambda m: mt.edit(m).move("a", "inner.a"), []),
        (lambda m: mt.edit(m).share("free.weight", "a.weight"), ["untie head.weight: a."]),
        (lambda m: mt.edit(m).share("head.weight", "free.weight"), []),
        (lambda m: mt.find(m, "free").replace(tied_to(m.a)), ["tie free.weight: a."]),
        (lambda m: mt.find(m, "free").replace(m.head), ["tie free: head"]),
    ]:
        model = impl.nn.Module()
        model.a, model.head, model.free = linear(impl), linear(impl), linear(impl)
        model.head.weight, model.inner = model.a.weight, impl.nn.Module()
        receipt = change(model)
        found = [str(each) for each in receipt if "tie" in each.kind]
        assert len(found) == len(expected) == len(receipt) - 1, receipt
        assert all(map(str.startswith, found, expected))


def test_paths_that_double_with_each_level_and_cycles_end(impl):
    model = at = impl.nn.Module()
    for _ in range(40):
        at.left = at.right = impl.nn.Module()
        at = at.left
    at.last = linear(impl)
    assert len(mt.find(model, "**.last").requires_grad_(False)) >= 2000
    loop = impl.nn.Module()
    loop.a, loop.b = linear(impl), impl.nn.Module()
    loop.b.a, loop.b.up = loop.a, loop
    paths = [change.path for change in mt.find(loop, "a").train(False)]
    assert paths == ["a", "b.a"]


def test_a_batch_is_made_whole_or_not_at_all(impl):
    model = stacked(impl)
    before, keys = registries(model), list(model.state_dict())
    with mt.edit(model) as edit:
        edit.replace("**.act", impl.nn.Identity)
        edit.find("layers[1:3]").remove()
        edit.rename("head", "classifier")
        edit.move("classifier", "layers.0.out")
    assert names(model)[:5] == [
        "layers",
        "layers.0",
        "layers.0.up",
        "layers.0.act",
        "layers.0.down",
    ]
    receipt = edit.receipt
    assert [change.kind for change in receipt] == ["replace"] * 4 + ["remove"] * 2 + [
        "rename",
        "move",
    ]
    assert receipt("head.bias") == "layers.0.out.bias"
    assert receipt("layers.3.up.weight") == "layers.1.up.weight"
    assert receipt("layers.1.up.weight") is None
    assert all(receipt.inverse(receipt(key)) == key for key in keys if receipt(key))
    edit.undo()
    assert registries(model) == before
    with pytest.raises(AttributeError), mt.edit(model) as edit:
        edit.replace("**.act", impl.nn.Identity)
        edit.find("layers[1:3]").remove()
        edit.rename("haed", "classifier")
    assert registries(model) == before and edit.receipt.changes == []


def test_checkpoints_load_across_a_change_in_both_directions(impl):
    model, x = stacked(impl), inputs(impl)
    old, y = model.state_dict(), array(model(x))
    renamed = {}

    class Adapter(impl.nn.Module):
        def __init__(self, base):
            super().__init__()
            self.base = base
            self.delta = impl.nn.Parameter(impl.lib.zeros(1, dtype=impl.lib.float64))

        def forward(self, x):
            return self.base(x) + self.delta

    receipt = mt.find(model, "**.{up,down}").wrap(Adapter)
    for key, value in old.items():
        renamed[receipt(key)] = value
    missing, unexpected = model.load_state_dict(renamed, strict=False)
    assert sorted(missing) == sorted(k for k in model.state_dict() if k.endswith("delta"))
    assert unexpected == [] and (array(model(x)) == y).all()
    new = model.state_dict()
    back = {receipt.inverse(k): v for k, v in new.items() if receipt.inverse(k) is not None}
    receipt.undo()
    model.load_state_dict(back)
    assert list(back) == list(old)


def test_a_receipt_is_a_rename_of_load_state_dict():
    net = mt.nn.Sequential(mt.nn.Linear(3, 4), mt.nn.ReLU(), mt.nn.BatchNorm1d(4))
    old = net.state_dict()
    receipt = mt.find(net, "[0]").wrap(mt.nn.Sequential)
    report = net.load_state_dict(old, rename=receipt)
    assert not report.missing_keys and not report.unexpected_keys
    new = net.state_dict()
    receipt.undo()
    assert not net.load_state_dict(new, rename=receipt.inverse).missing_keys


def test_keys_of_a_replaced_module_that_is_smaller_or_larger(impl):
    model = impl.nn.Sequential(linear(impl), linear(impl))

    class Scale(impl.nn.Module):
        def __init__(self, scale):
            super().__init__()
            self.register_buffer("scale", scale)
            self.gain = impl.nn.Parameter(impl.lib.ones(1))

    receipt = mt.find(model, "1").replace(lambda path, m: Scale(m.scale))
    assert receipt("1.scale") == "1.scale" and receipt("1.weight") is None
    assert receipt.inverse("1.gain") is None and receipt.inverse("1.scale") == "1.scale"
    assert receipt("0.weight") == receipt.inverse("0.weight") == "0.weight"


def test_keys_under_all_paths_of_a_shared_module(impl):
    model = stacked(impl, 2)
    model.layers[1] = model.layers[0]
    model.again = model.layers
    keys = list(model.state_dict())
    edit = mt.edit(model)
    for change in (
        lambda: edit.wrap("**.up", lambda module: impl.nn.Sequential(module)),
        lambda: edit.rename("layers.0.down", "out"),
        lambda: edit.insert("layers.0.more", linear(impl)),
        lambda: edit.remove("layers.0.act"),
    ):
        receipt = change()
        new = list(model.state_dict())
        assert [receipt(key) for key in keys] == [k for k in new if receipt.inverse(k) is not None]
        assert [receipt.inverse(receipt(key)) for key in keys] == keys
        receipt.undo()
        assert list(model.state_dict()) == keys


@pytest.mark.parametrize("seed", range(25))
def test_random_edits_are_undone_exactly(impl, seed):
    rng = random.Random(seed)
    model = random_tree(impl, rng)
    for i, module in enumerate(model.modules()):
        if i % 3 == 0:
            module.w = impl.nn.Parameter(impl.lib.ones(1))
            module.register_buffer("b", impl.lib.ones(1), persistent=i % 2 == 0)
    history = []
    edit = mt.edit(model)
    for i in range(12):
        history.append(registries(model))
        paths = [path for path, _ in model.named_modules() if path]
        tensors = mt.find_parameters(model, "**", kind="all").paths
        one, other = rng.choice([*paths, *tensors]), rng.choice([*paths, *tensors])
        ways = [
            lambda one=one, i=i: edit.insert(f"{one}.n{i}", impl.nn.Module()),
            lambda one=one: edit.insert(f"{one}.0", impl.nn.Module()),
            lambda one=one: edit.remove(one),
            lambda one=one, i=i: edit.rename(one, f"r{i}"),
            lambda one=one, to=f"{other}.m{i}": edit.move(one, to),
            lambda one=one, other=other: edit.share(other, one),
            lambda one=one: edit.wrap(one, lambda m: impl.nn.Sequential(m)),
        ]
        done = len(edit.receipt)
        try:
            rng.choice(ways)()
        except (ValueError, AttributeError, LookupError, KeyError):
            assert registries(model) == history.pop() and len(edit.receipt) == done
    for receipt, before in zip(reversed(edit._receipts), reversed(history), strict=True):
        receipt.undo()
        assert registries(model) == before
