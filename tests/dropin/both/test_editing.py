# SPDX-License-Identifier: BSD-3-Clause
"""Changed and observed models of torch: compiled, exported, traced, scripted, parametrized, and
under wrappers for several processes.
"""

from __future__ import annotations

import copy
import importlib
import pickle
import warnings

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn
dynamo = pytest.importorskip("torch._dynamo")
CompileCounter = pytest.importorskip("torch._dynamo.testing").CompileCounter

import modtree as mt  # noqa: E402

functionalize = torch.func.functionalize

X = torch.arange(8.0).reshape(2, 4) / 8

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture(autouse=True)
def _start_anew():
    dynamo.reset()
    torch.manual_seed(0)
    yield
    dynamo.reset()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU())
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.body(x))


def same(left, right):
    return torch.equal(left, right)


# -- compiled --------------------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [True, False])
def test_compiled_code_sees_a_change_as_one_made_by_hand(whole):
    counts, outputs = [], []
    for by_hand in (True, False):
        torch.manual_seed(0)
        net, counter = Net(), CompileCounter()
        if whole:
            compiled, prefix = torch.compile(net, backend=counter), "_orig_mod."
        else:
            net.compile(backend=counter)
            compiled, prefix = net, ""
        results = [compiled(X)]
        if by_hand:
            old = net.body[1], net.body[3]
            net.body[1], net.body[3] = nn.GELU(), nn.GELU()
        else:
            receipt = mt.find(compiled, nn.ReLU).replace(nn.GELU)
            assert [change.path for change in receipt] == [prefix + "body.1", prefix + "body.3"]
        results += [compiled(X), compiled(X)]
        if by_hand:
            net.body[1], net.body[3] = old
        else:
            receipt.undo()
        results.append(compiled(X))
        assert same(results[0], results[3]) and not same(results[0], results[1])
        outputs.append(results)
        counts.append(counter.frame_count)
        dynamo.reset()
    assert counts[0] == counts[1] >= 2
    assert all(map(same, *outputs))


def test_hooks_run_on_a_compiled_model_and_its_code_is_used_again():
    net, counter = Net(), CompileCounter()
    compiled = torch.compile(net, backend=counter)
    y = compiled(X)
    with mt.capture(compiled, "**.body.1") as acts:
        assert same(compiled(X), y)
    assert same(acts["_orig_mod.body.1"], net.body[:2](X))
    with mt.intervene(net, {"head": lambda m, a, k, output: output * 0}):
        assert not compiled(X).any()
    with mt.intervene(net, {"body": None}):
        assert same(compiled(X), net.head(X))
    assert same(compiled(X), y) and counter.frame_count == 1


def test_the_module_inside_a_compiled_wrapper_cannot_be_replaced():
    compiled = torch.compile(Net(), backend="eager")
    with pytest.raises(ValueError, match="'_orig_mod' is the module that torch.compile was given"):
        mt.find(compiled, Net).replace(nn.Identity)
    with pytest.raises(ValueError, match="the model itself .* cannot be replaced"):
        mt.find(compiled, "").replace(nn.Identity)


def test_export_is_of_the_changed_tree():
    net = Net()
    with mt.find(net, nn.ReLU).replace(nn.Tanh):
        exported = torch.export.export(net, (X,))
        changed = net(X)
    assert same(exported.module()(X), changed) and not same(net(X), changed)
    targets = {str(node.target) for node in exported.graph.nodes}
    assert "aten.tanh.default" in targets and "aten.relu.default" not in targets
    assert same(torch.export.export(net, (X,)).module()(X), net(X))


# -- scripted and traced ---------------------------------------------------------------------------


def test_scripted_modules_are_found_and_not_changed():
    scripted = torch.jit.script(Net())
    assert mt.find(scripted, "body.*").paths == ["body.0", "body.1", "body.2", "body.3"]
    assert len(mt.find_parameters(scripted, "**.bias")) == 3
    with pytest.raises(TypeError, match="'body' is a scripted module .* change the model before"):
        mt.find(scripted, "body.1").replace(nn.Tanh)
    with pytest.raises(TypeError, match="the model itself is a scripted module"):
        mt.edit(scripted).rename("head", "tail")
    with pytest.raises(TypeError, match="'head' is a scripted module .* observe the model before"):
        with mt.capture(scripted, "head"):
            pass
    with pytest.raises(TypeError, match="'head' is a scripted module"):
        with mt.intervene(scripted, {"head": None}):
            pass


def test_scripting_in_a_block_is_refused():
    net = Net()
    blocks = [mt.capture(net, "body.1"), mt.intervene(net, {"head": None})]
    for block in blocks:
        with block, pytest.raises(AttributeError, match="takes no module on which capture.. or in"):
            torch.jit.script(net)
    mt.find(net, "head").train(False, frozen=True)
    assert same(torch.jit.script(net)(X), net(X))


def test_a_changed_model_scripts():
    net = Net()
    with mt.find(net, nn.ReLU).replace(nn.Tanh):
        assert torch.allclose(torch.jit.script(net)(X), net(X))


def test_graph_modules_take_replacements_and_keep_what_their_graph_calls():
    traced = torch.fx.symbolic_trace(Net())
    y = traced(X)
    with mt.find(traced, nn.ReLU).replace(nn.Tanh):
        traced.graph.lint()
        traced.recompile()
        assert not same(traced(X), y)
    assert same(traced(X), y)
    for change in (
        lambda: mt.find(traced, "body.1").remove(),
        lambda: mt.edit(traced).rename("head", "tail"),
        lambda: mt.edit(traced).rename("body", "trunk"),
        lambda: mt.edit(traced).move("head", "body.4"),
    ):
        with pytest.raises(ValueError, match="is used by the graph of the model itself, at the no"):
            change()
    traced.add_module("unused", nn.ReLU())
    mt.edit(traced).rename("unused", "spare")
    assert same(traced(X), y)


# -- modules that are more than their registries ---------------------------------------------------


def test_parametrized_modules():
    net = Net()
    nn.utils.parametrize.register_parametrization(net.head, "weight", nn.Identity())
    y, keys = net(X), list(net.state_dict())
    assert mt.find(net, nn.Linear).paths == ["body.0", "body.2", "head"]
    receipt = mt.find(net, nn.Linear, where=lambda p, m: p == "head").wrap(nn.Sequential)
    assert same(net(X), y)
    assert [receipt(key) for key in keys] == list(net.state_dict())
    receipt.undo()
    with mt.find(net, "head.parametrizations.weight.0").replace(nn.Tanh):
        assert same(net.head.weight, net.head.parametrizations.weight.original.tanh())
    assert same(net(X), y)
    twin = copy.deepcopy(net)
    assert same(twin(X), y)


def test_recurrent_layers_keep_their_flat_weights():
    net = nn.Sequential(nn.LSTM(4, 3), nn.Identity())
    mt.edit(net).share("0.bias_ih_l0", "0.bias_hh_l0")
    assert net[0]._flat_weights[3] is net[0].bias_ih_l0
    net[0](X)


def test_a_module_in_a_plain_list_is_reported_by_check():
    net = Net()
    net.kept = [net.body[1]]
    with mt.find(net, "body.1").replace(nn.GELU):
        assert any("kept" in str(finding) for finding in mt.check(net))


def test_hooks_are_called_in_the_order_in_which_they_came():
    net, order = Net(), []
    net.head.register_forward_hook(lambda *args: order.append("first"))
    with mt.capture(net, "head", reduce=lambda t: order.append("capture")):
        net.head.register_forward_hook(lambda *args: order.append("last"))
        net.head.register_forward_hook(lambda *args: order.append("front"), prepend=True)
        net(X)
    net(X)
    assert order == ["front", "first", "capture", "last", "front", "first", "last"]


def test_inference_tensors_are_captured():
    net = Net()
    with torch.inference_mode(), mt.capture(net, "head", inputs=True) as acts:
        y = net(X)
    assert same(acts["head"], y)


def in_inference_mode(function):
    with torch.inference_mode():
        return function(X)


@pytest.mark.parametrize(
    "run", [in_inference_mode, lambda f: torch.vmap(f)(X[None]), lambda f: functionalize(f)(X)]
)
@pytest.mark.parametrize("detach", [True, False])
def test_tensors_whose_changes_are_not_counted_are_copied(run, detach):
    """Those of inference mode, and those of some function transforms."""
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))

    def difference(x):
        before = net[0](x)
        with mt.capture(net, "*", inputs=True, detach=detach) as acts:
            net(x)
        return acts["0"] - before + acts.inputs["1"][0][0] - before

    assert (before := net[0](X)).lt(0).any() and not run(difference).any()
    assert same(net[0](X), before)


def test_gradients_under_checkpointing():
    from torch.utils.checkpoint import checkpoint

    grads = []
    for again in (False, True):
        net, x = copy.deepcopy(grads[0][0]) if grads else Net(), X.clone().requires_grad_()
        net.zero_grad()
        with mt.intervene(net, {"body.1": lambda m, a, k, output: output * 3}):
            y = checkpoint(net, x, use_reentrant=False) if again else net(x)
            y.sum().backward()
        grads.append((net, x.grad, net.body[0].weight.grad))
    assert same(grads[0][1], grads[1][1]) and same(grads[0][2], grads[1][2])


def test_graphs_and_files_that_are_made_in_a_block_are_the_models_own(tmp_path):
    net = Net()
    traced, y = torch.fx.symbolic_trace(net), net(X)
    with mt.capture(net, "**", inputs=True), mt.intervene(net, {"head": None}):
        torch.save(net, tmp_path / "net.pt")
    with mt.capture(traced, ["", "**"]), mt.intervene(traced, {"head": None}):
        copies = [copy.deepcopy(traced), pickle.loads(pickle.dumps(traced))]
        assert b"modtree.editing" not in pickle.dumps(traced)
    assert b"modtree" not in (tmp_path / "net.pt").read_bytes()
    copies.append(torch.load(tmp_path / "net.pt", weights_only=False))
    for each in copies:
        assert same(each(X), y) and same(each.head(X), net.head(X))
        assert not any(m._forward_hooks or "__reduce_ex__" in vars(m) for m in each.modules())


def test_uninitialized_parameters_are_tied_by_identity_alone():
    net = nn.Sequential(nn.LazyLinear(3), nn.LazyLinear(3))
    assert mt.edit(net).tie_report() == []
    net[1].weight = net[0].weight
    assert [str(tie) for tie in mt.edit(net).tie_report()] == ["parameter: 0.weight = 1.weight"]


def test_pickles_of_a_changed_model_name_nothing_of_modtree():
    net = Net()
    receipt = mt.find(net, nn.ReLU).replace(nn.GELU)
    mt.find(net, "head").requires_grad_(False)
    with mt.capture(net, "**"):
        net(X)
    data = pickle.dumps(net)
    receipt.undo()
    for name in (b"modtree.editing", b"Receipt", b"Hook"):
        assert name not in data and name not in pickle.dumps(net)


# -- several processes -----------------------------------------------------------------------------


@pytest.fixture
def one_process(tmp_path):
    dist = torch.distributed
    if not dist.is_available() or not dist.is_gloo_available():
        pytest.skip("needs gloo")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_under_distributed_data_parallel(one_process):
    net = Net()
    wrapped = nn.parallel.DistributedDataParallel(net)
    y = wrapped(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with mt.find(wrapped, nn.ReLU).replace(nn.Tanh) as receipt:
            assert [change.path for change in receipt] == ["module.body.1", "module.body.3"]
            assert not same(wrapped(X), y)
        with mt.capture(wrapped, "module.head", grads=True) as acts:
            wrapped(X).sum().backward()
    assert same(acts["module.head"], y) and same(acts.grads["module.head"], torch.ones(2, 2))
    with pytest.warns(UserWarning, match="the model itself is a DistributedDataParallel, which no"):
        mt.find(wrapped, "**.head").replace(lambda path, m: nn.Linear(4, 2)).undo()
    with pytest.warns(UserWarning, match="does not see those that 'module.head'"):
        mt.find(wrapped, "**.head").remove().undo()
    assert same(wrapped(X), y)


def test_under_fully_shard(one_process):
    fsdp = importlib.import_module("torch.distributed.fsdp")
    if not hasattr(fsdp, "fully_shard"):
        pytest.skip("has no fully_shard")
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
    net = fsdp.fully_shard(Net(), mesh=mesh)
    y = net(X)
    with mt.find(net, nn.ReLU).replace(nn.Tanh):
        assert not same(net(X), y)
    with mt.capture(net, "body.*") as acts:
        assert same(net(X), y)
    assert len(acts) == 4
    with pytest.warns(UserWarning, match="the model itself is a FSDPModule"):
        mt.find(net, "head").replace(lambda path, m: nn.Linear(4, 2)).undo()


@pytest.mark.filterwarnings("ignore:FSDP is switching to use `NO_SHARD`:UserWarning")
@pytest.mark.parametrize("original", [True, False])
def test_under_fully_sharded_data_parallel(one_process, original):
    fsdp = importlib.import_module("torch.distributed.fsdp")
    net = Net()
    expected, x = net(X), X.clone().requires_grad_()
    wrapped = fsdp.FullyShardedDataParallel(
        net, device_id=torch.device("cpu"), use_orig_params=original
    )
    y = wrapped(X)
    assert torch.allclose(y, expected)
    prefix = "_fsdp_wrapped_module."
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "error", message=".*which noted the parameters", category=UserWarning
        )
        with mt.find(wrapped, nn.ReLU).replace(nn.Tanh) as receipt:
            assert [change.path for change in receipt] == [f"{prefix}body.1", f"{prefix}body.3"]
            assert not same(wrapped(X), y)
        with mt.find(wrapped, "**.body").train(False, frozen=True):
            assert not wrapped.train().module.body.training
        with mt.find(wrapped, "**.head").wrap(nn.Sequential):
            pass
    with mt.capture(wrapped, "**.head", inputs=True, grads=True) as acts:
        wrapped(x).sum().backward()
    assert same(acts[f"{prefix}head"], y) and same(acts.grads[f"{prefix}head"], torch.ones(2, 2))
    with mt.intervene(wrapped, {"**.head": lambda m, a, k, output: output * 0}):
        assert not wrapped(X).any()
    with pytest.warns(UserWarning, match="the model itself is a FullyShardedDataParallel, which n"):
        mt.find(wrapped, "**.head").replace(lambda path, m: nn.Linear(4, 2)).undo()
    assert same(wrapped(X), y)
