# SPDX-License-Identifier: BSD-3-Clause
"""Each tool that looks at models or changes them, on each wrapper of torch, around and inside."""

from __future__ import annotations

import importlib

import pytest
from helpers.needs import is_installed

torch = pytest.importorskip("torch")
nn = torch.nn
dynamo = pytest.importorskip("torch._dynamo")

import modtree as mt  # noqa: E402

X = torch.arange(15.0).reshape(5, 3) / 7 - 1

pytestmark = pytest.mark.filterwarnings("ignore:(?!.*global hooks)")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4))
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.norm(self.body(x)))


class Stubs(nn.Module):
    """What turns values into integers and back."""

    def __init__(self, inner):
        super().__init__()
        self.before, self.after = quantization.QuantStub(), quantization.DeQuantStub()
        self.inner = inner

    def forward(self, x):
        return self.after(self.inner(self.before(x)))


# -- wrappers --------------------------------------------------------------------------------------

quantization = pytest.importorskip("torch.ao.quantization")


def part(path, name):
    home = importlib.import_module(path) if is_installed(path) else None
    found = getattr(home, name, None)
    if found is None:
        pytest.skip(f"{path} has no {name}")
    return found


def compiled_in_place(model):
    model.compile(backend="eager")
    return model


def mesh():
    return part("torch.distributed.device_mesh", "init_device_mesh")("cpu", (1,))


def flattened(model, original=False):
    wrap = part("torch.distributed.fsdp", "FullyShardedDataParallel")
    return wrap(model, device_id=torch.device("cpu"), use_orig_params=original)


def observed(model):
    model.eval().qconfig = quantization.get_default_qconfig("fbgemm")
    return quantization.prepare(model)


def of_integers(model):
    """The linear layers as a whole; torch has no such batch norm alone."""
    wrapped = Stubs(model.body if isinstance(model, Net) else model).eval()
    wrapped.qconfig = quantization.get_default_qconfig("fbgemm")
    prepared = quantization.prepare(wrapped)
    prepared(X)
    return quantization.convert(prepared)


def trained_for_integers(model):
    model.train().qconfig = quantization.get_default_qat_qconfig("fbgemm")
    return quantization.prepare_qat(model)


def graph_of_integers(model):
    home = importlib.import_module("torch.ao.quantization.quantize_fx")
    settings = quantization.get_default_qconfig_mapping("fbgemm")
    prepared = home.prepare_fx(model.eval(), settings, (X,))
    prepared(X)
    return home.convert_fx(prepared)


def tensor_parallel(model):
    home = importlib.import_module("torch.distributed.tensor.parallel")
    plan = {
        name: home.ColwiseParallel()
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear)
    }
    return home.parallelize_module(model, mesh(), plan)


def checkpointed(model):
    path = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper"
    return part(path, "checkpoint_wrapper")(model)


def frozen_script(model):
    return torch.jit.freeze(torch.jit.script(model.eval()))


SCRIPTED = {
    "traced": lambda m: torch.jit.trace(m.eval(), X),
    "traced without gradients": lambda m: torch.jit.trace(m.eval().requires_grad_(False), X),
    "scripted": torch.jit.script,
    "frozen": frozen_script,
}
WRAPPERS = {
    "compiled": lambda m: torch.compile(m, backend="eager"),
    "compiled in place": compiled_in_place,
    **SCRIPTED,
    "fx": lambda m: torch.fx.symbolic_trace(m),
    "exported": lambda m: torch.export.export(m.eval(), (X,)).module(),
    "exported without gradients": lambda m: torch.export.export(
        m.eval().requires_grad_(False), (X,)
    ).module(),
    "data parallel": nn.DataParallel,
    "distributed data parallel": lambda m: nn.parallel.DistributedDataParallel(m),
    "fully sharded": flattened,
    "fully sharded, original": lambda m: flattened(m, original=True),
    "fully_shard": lambda m: part("torch.distributed.fsdp", "fully_shard")(m, mesh=mesh()),
    "tensor parallel": tensor_parallel,
    "dynamic integers": lambda m: quantization.quantize_dynamic(m.eval(), {nn.Linear}),
    "observed": observed,
    "integers": of_integers,
    "trained for integers": trained_for_integers,
    "graph of integers": graph_of_integers,
    "checkpointed": checkpointed,
    "averaged": lambda m: part("torch.optim.swa_utils", "AveragedModel")(m),
}


@pytest.fixture(scope="module", autouse=True)
def _one_process(tmp_path_factory):
    dist = torch.distributed
    if not dist.is_available() or not dist.is_gloo_available():
        pytest.skip("needs gloo")
    store = tmp_path_factory.mktemp("store") / "store"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def made(wrapper, where):
    torch.manual_seed(0)
    model = Net()
    if where == "around":
        return WRAPPERS[wrapper](model)
    model.body = WRAPPERS[wrapper](model.body)
    return model


def state(model):
    """The flags of a model, and its values as text, which takes NaN for the same as NaN."""
    values = {key: str(value) for key, value in model.state_dict().items()}
    modes = [getattr(module, "training", None) for module in model.modules()]
    return values, modes, [p.requires_grad for p in model.parameters()]


# -- tools -----------------------------------------------------------------------------------------


def captures(model):
    with mt.capture(model, ["", "**"], inputs=True) as acts:
        y = model(X)
    assert torch.equal(acts[""], y) and len(acts) > 1


def intervenes(model):
    with mt.intervene(model, {"": lambda module, args, kwargs, output: output * 0}):
        assert not model(X).any()


def replaces(model):
    """What has no parameters, so that no wrapper has to know."""
    made = mt.find(model, nn.ReLU, missing_ok=True)
    number = len(made)
    with made.replace(nn.Tanh) as receipt:
        assert len(receipt) == number == len(mt.find(model, nn.Tanh))


def summaries(model):
    for options in ({}, {"input_shape": (5, 3)}, {"input_shape": (5, 3), "times": 1}):
        found = mt.summary(model, **options).to_dict()
        assert not options or found["modules"][0]["output"] in [(5, 2), (5, 4)]


def drawings(model):
    for draw in (mt.to_svg, mt.to_dot, mt.to_mermaid):
        assert draw(model, leaves=True)


def settings(model):
    before = state(model)
    with mt.find_parameters(model, missing_ok=True).requires_grad_(False):
        assert not any(p.requires_grad for p in model.parameters())
    assert state(model) == before
    for frozen in (False, True):
        with mt.find(model, ["", "**"]).train(False, frozen=frozen):
            assert not any(module.training for module in model.modules())
        assert state(model) == before


def groups(model):
    found = mt.param_groups(model, {mt.find_parameters(model, "**", missing_ok=True): {}})
    wanted = [p for p in model.parameters() if p.requires_grad]
    assert sum(len(group["params"]) for group in found) == len(wanted)


#: The tools after which a model is what it was.
LEAVE_IT = {
    "check": lambda m: check(m),
    "check of an example": lambda m: check(m, X),
    "summary": summaries,
    "compare": lambda m: mt.compare(m, m) and pytest.fail("a model differs from itself"),
    "drawings": drawings,
    "find": lambda m: repr(mt.find(m, ["", "**"])),
    "find_parameters": lambda m: repr(mt.find_parameters(m)),
    "param_groups": groups,
    "settings": settings,
    "tie_report": lambda m: mt.edit(m).tie_report() == [] or pytest.fail("ties"),
    "replace": replaces,
}


def check(model, *example):
    assert mt.check(model, *example) == []


def refuses_hooks(model, path):
    for block in (mt.capture(model, ["", path]), mt.intervene(model, {path: None})):
        with pytest.raises(TypeError, match="is a scripted module .* whose calls do not run hooks"):
            block.__enter__()


@pytest.mark.slow(keep=8)
@pytest.mark.parametrize("where", ["around", "inside"])
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_tools_on_a_wrapper(wrapper, where):
    dynamo.reset()
    model = made(wrapper, where)
    before = state(model)
    for use in LEAVE_IT.values():
        use(model)
        assert state(model) == before, use
    if wrapper in SCRIPTED:
        refuses_hooks(model, "" if where == "around" else "body")
    else:
        captures(model)
        intervenes(model)
