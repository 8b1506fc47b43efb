# SPDX-License-Identifier: BSD-3-Clause
"""ParameterList and ParameterDict: every operation, on torch too; then what is deliberately
different.
"""

from __future__ import annotations

import pickle
from collections import OrderedDict

import pytest
from helpers.containers_common import tagger
from helpers.support import dtype, raises, storage_shared, values


def param(impl, n=1):
    return impl.nn.Parameter(impl.lib.zeros(n))


def plist(impl, n=2):
    return impl.nn.ParameterList([param(impl, i + 1) for i in range(n)])


def pdict(impl, names="ba"):
    return impl.nn.ParameterDict(OrderedDict((k, param(impl, i + 1)) for i, k in enumerate(names)))


def sizes(container):
    """The lengths of the (1-d) entries, in order."""
    held = container.values() if hasattr(container, "values") else container
    return [v.shape[0] for v in held]


def integer(impl):
    return impl.lib.zeros(1, dtype=impl.lib.int64)


# -- ParameterList ---------------------------------------------------------------------------------


def test_list_holds_parameters(impl):
    p = param(impl)
    entries = impl.nn.ParameterList([p, param(impl, 2)])
    assert len(entries) == 2
    assert entries[0] is p
    assert [name for name, _ in entries.named_parameters()] == ["0", "1"]
    assert list(entries.state_dict()) == ["0", "1"]
    assert [a is b for a, b in zip(entries, entries._parameters.values(), strict=True)] == [
        True
    ] * 2
    assert p in entries._parameters.values()
    assert not [name for name in dir(entries) if name.isdigit()]


def test_list_construction(impl):
    assert len(impl.nn.ParameterList()) == len(impl.nn.ParameterList(None)) == 0
    assert sizes(impl.nn.ParameterList(values=(param(impl, n) for n in (3, 4)))) == [3, 4]


def test_list_wraps_tensors(impl):
    tensor = impl.lib.ones(2)
    entries = impl.nn.ParameterList([tensor])
    assert isinstance(entries[0], impl.nn.Parameter)
    assert entries[0].requires_grad
    assert storage_shared(entries[0], tensor)
    entries.append(impl.nn.Buffer(impl.lib.ones(3)))
    assert isinstance(entries[1], impl.nn.Parameter)
    assert list(entries._parameters) == ["0", "1"]
    assert not entries._buffers


def test_list_keeps_other_objects(impl):
    module = tagger(impl)(0)
    entries = impl.nn.ParameterList([3, "text", None, module, param(impl)])
    assert list(entries)[:4] == [3, "text", None, module]
    assert list(entries.state_dict()) == ["4"]
    assert list(entries._modules) == ["3"]
    assert entries.__dict__["0"] == 3
    assert list(impl.nn.ParameterList({"a": 1, "b": 2})) == ["a", "b"]


@pytest.mark.parametrize("index, size", [(0, 1), (-1, 2), (-2, 1), (True, 2)])
def test_list_index(impl, index, size):
    entries = plist(impl)
    assert entries[index].shape[0] == size
    entries[index] = new = param(impl, 7)
    assert entries[index] is new
    assert len(entries) == 2


@pytest.mark.parametrize("index", [2, -3])
def test_list_index_out_of_range(impl, index):
    entries = plist(impl)
    with raises(IndexError, f"index {index} is out of range"):
        entries[index]
    with raises(IndexError, f"index {index} is out of range"):
        entries[index] = param(impl)


@pytest.mark.parametrize("index", ["0", 1.0, None])
def test_list_index_of_a_wrong_type(impl, index):
    with raises(TypeError):
        plist(impl)[index]
    with raises(TypeError):
        plist(impl)[index] = param(impl)


def test_list_slice(impl):
    class Mine(impl.nn.ParameterList):
        pass

    entries = Mine([param(impl, n) for n in (1, 2, 3)])
    part = entries[1:]
    assert type(part) is Mine
    assert part[0] is entries[1]
    assert sizes(part) == [2, 3]
    assert sizes(entries[::-1]) == [3, 2, 1]
    assert len(entries[5:]) == 0
    with raises(TypeError):
        entries[0:1] = [param(impl)]


def test_list_set(impl):
    entries = plist(impl)
    entries[0] = impl.lib.zeros(5)
    assert isinstance(entries[0], impl.nn.Parameter)
    entries[1] = None
    assert list(entries._parameters) == ["0", "1"]
    assert entries[1] is None
    with raises(TypeError, "cannot assign"):
        entries[0] = 3
    assert entries[0].shape[0] == 5


def test_list_append_and_extend(impl):
    entries = same = plist(impl)
    assert entries.append(param(impl, 3)) is entries
    assert entries.extend(param(impl, n) for n in (4, 5)) is entries
    entries += [param(impl, 6)]
    assert entries is same
    assert sizes(entries) == [1, 2, 3, 4, 5, 6]
    assert list(entries._parameters) == [str(i) for i in range(6)]


def test_list_extends_itself(impl):
    entries = plist(impl)
    entries.extend(entries)
    assert sizes(entries) == [1, 2, 1, 2]
    assert entries[0] is entries[2]


def test_a_module_that_became_a_list_takes_nothing(impl):
    """It has no entries, and no number of them."""
    m = impl.nn.Module()
    m.__class__ = impl.nn.ParameterList
    assert m.extend([]) is m
    with raises(AttributeError, "_size"):
        m.extend([3])
    with raises(TypeError, "cannot be interpreted as an integer"):
        m["0"]


def test_list_extend_needs_an_iterable(impl):
    message = "ParameterList.extend should be called with an iterable, but got"
    for value in (3, None, impl.lib.zeros(2), param(impl, 2)):
        text = f"{message} {type(value).__name__}"
        entries = plist(impl)
        with raises(TypeError, text):
            entries.extend(value)
        with raises(TypeError, text):
            entries += value
        assert len(entries) == 2
        if value is not None:
            with raises(TypeError, text):
                impl.nn.ParameterList(value)


def test_list_refuses_integer_tensors(impl):
    with raises(RuntimeError):
        impl.nn.ParameterList([integer(impl)])
    with raises(RuntimeError):
        plist(impl)[0] = integer(impl)


def test_list_is_not_called(impl):
    with raises(RuntimeError, "ParameterList should not be called."):
        plist(impl)(1)


def test_what_a_list_has_and_this_has_not(impl):
    missing = ("pop", "insert", "__delitem__", "__add__", "__contains__", "__reversed__", "index")
    assert not [name for name in missing if hasattr(plist(impl), name)]


def test_list_survives_pickle_and_state_dict(impl):
    entries = impl.nn.ParameterList([impl.lib.ones(2), "text"])
    copy = pickle.loads(pickle.dumps(entries))
    assert len(copy) == 2
    assert copy[1] == "text"
    assert copy[0].shape[0] == 2
    other = impl.nn.ParameterList([impl.lib.zeros(2), "text"])
    other.load_state_dict(entries.state_dict())
    assert values(other[0]) == [1.0, 1.0]


# -- repr ------------------------------------------------------------------------------------------


def test_list_repr(impl):
    lib = impl.lib
    tensor = lib.zeros(2, 3, dtype=lib.float64)
    entries = impl.nn.ParameterList([param(impl), tensor, lib.tensor(1.0), tagger(impl)("m"), None])
    assert repr(entries).splitlines() == [
        "ParameterList(",
        f"    (0): Parameter containing: [{lib.float32} of size 1]",
        f"    (1): Parameter containing: [{lib.float64} of size 2x3]",
        f"    (2): Parameter containing: [{lib.float32} of size ]",
        "    (3): Object of type: Tag",
        "    (4): Object of type: NoneType",
        "  (3): <m>",
        ")",
    ]
    assert dtype(tensor) == "float64"
    assert repr(impl.nn.ParameterList()) == "ParameterList()"


def test_list_repr_of_one_entry_is_one_line(impl):
    expected = f"ParameterList(  (0): Parameter containing: [{impl.lib.float32} of size 1])"
    assert repr(impl.nn.ParameterList([param(impl)])) == expected


def test_list_repr_of_a_plain_tensor_and_of_meta(impl):
    entries = impl.nn.ParameterList([3, impl.lib.zeros(2, device="meta")])
    entries.__dict__["0"] = impl.lib.zeros(2)
    assert repr(entries).splitlines()[1:3] == [
        f"    (0): Tensor containing: [{impl.lib.float32} of size 2]",
        f"    (1): Parameter containing: [{impl.lib.float32} of size 2]",
    ]


def test_dict_repr(impl):
    lib = impl.lib
    doubles = lib.zeros(2, 3, dtype=lib.float64)
    d = impl.nn.ParameterDict(OrderedDict(b=param(impl), a=doubles, text="x", m=tagger(impl)("m")))
    float_name, double_name = param_type_names(impl)
    assert repr(d).splitlines() == [
        "ParameterDict(",
        f"    (b): Parameter containing: [{float_name} of size 1]",
        f"    (a): Parameter containing: [{double_name} of size 2x3]",
        "    (text): Object of type: str",
        "    (m): Object of type: Tag",
        "  (m): <m>",
        ")",
    ]
    on_meta = impl.nn.ParameterDict({"a": lib.zeros(2, device="meta")})
    library = float_name.partition(".")[0]
    assert f"[{library}.meta.FloatTensor of size 2]" in repr(on_meta)
    one = impl.nn.ParameterDict({"a": param(impl)})
    assert repr(one) == f"ParameterDict(  (a): Parameter containing: [{float_name} of size 1])"
    assert repr(impl.nn.ParameterDict()) == "ParameterDict()"


def param_type_names(impl):
    if impl.leaves == "torch":
        return "torch.FloatTensor", "torch.DoubleTensor"
    from modtree import families

    family = families.find(impl.lib.Tensor)
    lib = impl.lib
    return tuple(family.type_name(lib.zeros(1, dtype=t)) for t in (lib.float32, lib.float64))


# -- ParameterDict ---------------------------------------------------------------------------------


def test_dict_holds_parameters(impl):
    d = pdict(impl)
    assert len(d) == 2
    assert list(d) == list(d.keys()) == ["b", "a"]
    assert list(reversed(d)) == ["a", "b"]
    assert d["a"] is d.a
    assert "a" in d
    assert "zz" not in d
    assert 3 not in d
    assert [name for name, _ in d.named_parameters()] == ["b", "a"]
    assert list(d.state_dict()) == ["b", "a"]


@pytest.mark.parametrize(
    "kind, order",
    [(OrderedDict, "cab"), (list, "cab"), (iter, "cab"), (dict, "abc")],
    ids=["OrderedDict", "list", "iterator", "plain dict is sorted"],
)
def test_dict_order(impl, kind, order):
    pairs = [(name, param(impl)) for name in "cab"]
    assert "".join(impl.nn.ParameterDict(kind(pairs))) == order
    assert list(impl.nn.ParameterDict(parameters=kind(pairs))._parameters) == list(order)
    d = impl.nn.ParameterDict()
    d.update(kind(pairs))
    assert "".join(d) == order


def test_dict_from_another_keeps_the_order(impl):
    d = pdict(impl)
    other = impl.nn.ParameterDict(d)
    assert list(other) == ["b", "a"]
    assert other["a"] is d["a"]


def test_dict_wraps_tensors_and_keeps_other_objects(impl):
    module = tagger(impl)(0)
    d = impl.nn.ParameterDict(
        OrderedDict(
            t=impl.lib.ones(2), b=impl.nn.Buffer(impl.lib.ones(1)), x="text", m=module, n=None
        )
    )
    assert isinstance(d["t"], impl.nn.Parameter)
    assert isinstance(d["b"], impl.nn.Parameter)
    assert d["x"] == "text"
    assert d["m"] is module
    assert d["n"] is None
    assert list(d) == ["t", "b", "x", "m", "n"]
    assert list(d.state_dict()) == ["t", "b"]
    assert list(d._modules) == ["m"]


def test_dict_set(impl):
    d = pdict(impl)
    d["a"] = new = param(impl, 9)
    d["c"] = impl.lib.zeros(4)
    assert d["a"] is new
    assert list(d) == ["b", "a", "c"]
    with raises(TypeError, "cannot assign"):
        d["a"] = 3
    d["a"] = None
    assert "a" in d
    assert list(d._parameters) == ["b", "a", "c"]
    assert d["a"] is None


def test_dict_attribute_is_no_member(impl):
    d = pdict(impl)
    d.x = p = param(impl)
    assert "x" not in d
    assert len(d) == 2
    assert d["x"] is p
    assert [name for name, _ in d.named_parameters()] == ["b", "a", "x"]


def test_dict_reads_any_attribute(impl):
    d = pdict(impl)
    assert d["training"] is True
    assert d.get("training") is None
    assert "training" not in d


def test_dict_delete_pop_clear(impl):
    d = pdict(impl, "bacd")
    a = d["a"]
    del d["b"]
    assert d.pop("a") is a
    assert list(d) == list(d._parameters) == ["c", "d"]
    key, value = d.popitem()
    assert key == "d"
    assert value.shape[0] == 4
    assert d.clear() is None
    assert len(d) == 0
    assert not d._parameters


def test_dict_missing_key(impl):
    d = pdict(impl)
    with pytest.raises(AttributeError, match="'ParameterDict' object has no attribute 'zz'"):
        d["zz"]
    with pytest.raises(AttributeError):
        d.pop("zz")
    with pytest.raises(KeyError) as info:
        del d["zz"]
    assert type(info.value) is KeyError
    assert info.value.args[0] == "zz"
    with raises(KeyError, "dictionary is empty"):
        impl.nn.ParameterDict().popitem()
    with raises(KeyError):
        d.pop("training")
    with raises(TypeError):
        d.pop("zz", None)
    assert d.get("zz") is None
    assert d.get("zz", 7) == 7
    assert d.get("b", 7) is d.b


def test_dict_missing_key_of_one_without_keys(impl):
    d = impl.nn.ParameterDict()
    del d._keys
    for read in (d.__getitem__, d.pop):
        with pytest.raises(AttributeError, match="'ParameterDict' object has no attribute 'zz'"):
            read("zz")
    with raises(AttributeError, "'_keys'"):
        d["zz"] = impl.nn.Parameter(impl.lib.ones(1))
    assert not hasattr(d, "zz")


def test_dict_setdefault(impl):
    d = pdict(impl)
    p = param(impl)
    assert d.setdefault("b", p) is d["b"] is not p
    assert d.setdefault("c", p) is p
    assert d.setdefault("d") is None
    assert list(d) == ["b", "a", "c", "d"]


def test_dict_fromkeys_and_copy(impl):
    class Mine(impl.nn.ParameterDict):
        pass

    d = Mine(pdict(impl))
    p = param(impl)
    made = d.fromkeys(["y", "x"], p)
    assert type(made) is impl.nn.ParameterDict
    assert list(made) == ["y", "x"]
    assert made["y"] is made["x"] is p
    assert list(d.fromkeys("z").items()) == [("z", None)]
    copy = d.copy()
    assert type(copy) is impl.nn.ParameterDict
    assert list(copy) == ["b", "a"]
    assert copy["a"] is d["a"]
    del copy["a"]
    assert "a" in d


def test_dict_views(impl):
    d = pdict(impl)
    names = d.keys()
    d["c"] = param(impl, 3)
    assert list(names) == ["b", "a", "c"]
    assert [(k, v.shape[0]) for k, v in d.items()] == [("b", 1), ("a", 2), ("c", 3)]
    assert sizes(d) == [1, 2, 3]
    assert next(d.items())[0] == "b"
    assert next(d.values()) is d.b


def test_dict_union(impl):
    d = pdict(impl)
    other = pdict(impl, "zy")
    both = d | other
    assert type(both) is impl.nn.ParameterDict
    assert list(both) == ["b", "a", "z", "y"]
    assert both["z"] is other["z"]
    assert list(d) == ["b", "a"]
    assert list(d | {"z": param(impl), "y": 3}) == ["b", "a", "y", "z"]
    assert list(d | [("z", param(impl)), ("y", 3)]) == ["b", "a", "z", "y"]
    merged = {"z": 1, "a": 2} | d
    assert type(merged) is dict
    assert list(merged) == ["z", "a", "b"]
    assert merged["a"] is d["a"]
    same = d
    d |= other
    assert d is same
    assert list(d) == ["b", "a", "z", "y"]


@pytest.mark.parametrize(
    "value, kind, text",
    [
        (3, TypeError, ".update should be called with an iterable of key/value pairs, but got int"),
        ([3], TypeError, "#0 should be Iterable"),
        ([("a",)], ValueError, "#0 has length 1; 2 is required"),
        (["abc"], ValueError, "#0 has length 3; 2 is required"),
        ({3: 1}, TypeError, "cannot be used as a key as it is not a string"),
        ([(3, 1)], TypeError, "cannot be used as a key as it is not a string"),
    ],
    ids=["int", "no pair", "too short", "too long", "key in a dict", "key in a pair"],
)
def test_dict_update_with_nonsense(impl, value, kind, text):
    with raises(kind, text):
        pdict(impl).update(value)
    with raises(kind, text):
        impl.nn.ParameterDict(value)


@pytest.mark.parametrize("name", ["keys", "a.b", ""])
def test_dict_refuses_names_that_no_parameter_may_have(impl, name):
    with raises(KeyError):
        pdict(impl)[name] = param(impl)


def test_dict_key_must_be_a_string(impl):
    d = pdict(impl)
    for act in (
        lambda: d[3],
        lambda: d.pop(3),
        lambda: pdict(impl).__setitem__(3, 1),
        lambda: impl.nn.ParameterDict().setdefault(3),
    ):
        with raises(TypeError, "cannot be used as a key as it is not a string"):
            act()
    assert d.get(3) is None


def test_dict_is_not_called(impl):
    with raises(RuntimeError, "ParameterDict should not be called."):
        pdict(impl)(1)


def test_dict_survives_pickle(impl):
    d = impl.nn.ParameterDict(OrderedDict(b=impl.lib.ones(2), x="text"))
    copy = pickle.loads(pickle.dumps(d))
    assert list(copy) == ["b", "x"]
    assert copy["x"] == "text"


# -- what torch does differently -------------------------------------------------------------------


def test_list_append_is_atomic(ours):
    entries = plist(ours)
    with raises(RuntimeError):
        entries.append(integer(ours))
    assert len(entries) == 2
    assert sizes(entries) == [1, 2]
    entries.append(param(ours, 3))
    assert sizes(entries) == [1, 2, 3]


def test_list_extend_is_all_or_nothing(ours):
    entries = plist(ours)
    with raises(RuntimeError):
        entries.extend([param(ours, 3), "text", tagger(ours)(0), integer(ours)])
    assert sizes(entries) == [1, 2]
    assert list(entries._parameters) == ["0", "1"]
    assert not entries._modules
    assert not hasattr(entries, "3")


def test_repr_of_an_uninitialized_parameter(ours):
    if not hasattr(ours.lib, "nn") or not hasattr(ours.lib.nn, "UninitializedParameter"):
        pytest.skip("this library has no uninitialized tensors yet")
    lazy = ours.lib.nn.UninitializedParameter()
    entries = ours.nn.ParameterList([lazy])
    assert f"Parameter containing: [{ours.lib.float32} of unknown size]" in repr(entries)
    assert "Parameter containing: [" in repr(ours.nn.ParameterDict({"a": lazy}))
    assert "of unknown size]" in repr(ours.nn.ParameterDict({"a": lazy}))


@pytest.mark.parametrize("name", [3, "keys", "a.b", ""])
def test_dict_set_is_atomic(ours, name):
    d = pdict(ours)
    with pytest.raises((KeyError, TypeError)):
        d[name] = param(ours)
    with pytest.raises((KeyError, TypeError)):
        d.setdefault(name, param(ours))
    assert list(d) == ["b", "a"]
    assert sizes(d) == [1, 2]


def test_dict_set_of_a_bad_value_is_atomic(ours):
    d = pdict(ours)
    with raises(RuntimeError):
        d["c"] = integer(ours)
    with raises(TypeError, "cannot assign"):
        d["a"] = 3
    assert list(d) == ["b", "a"]
    assert sizes(d) == [1, 2]


def test_dict_update_keeps_what_came_before_an_error(ours):
    d = pdict(ours)
    with raises(RuntimeError):
        d.update([("c", param(ours, 3)), ("d", integer(ours)), ("e", param(ours))])
    assert list(d) == ["b", "a", "c"]
    assert sizes(d) == [1, 2, 3]


def test_dict_missing_key_is_a_key_error_too(ours):
    d = pdict(ours)
    for read in (d.__getitem__, d.pop):
        with pytest.raises(KeyError) as info:
            read("zz")
        error = info.value
        assert isinstance(error, AttributeError)
        assert error.args[0] == error.name == "zz"
        assert str(error) == (
            "'ParameterDict' object has no attribute 'zz': it is not one of its 2 keys"
        )
        assert error.__context__ is None
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy), copy.args) == (type(error), str(error), error.args)


def test_dict_property_that_fails_keeps_its_error(ours):
    class Mine(ours.nn.ParameterDict):
        @property
        def broken(self):
            return self.missing_inside

    with raises(AttributeError, "missing_inside"):
        Mine()["broken"]
