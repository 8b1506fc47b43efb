# SPDX-License-Identifier: BSD-3-Clause
"""What programs ask before they use what is not there: processes, compilers, profilers, devices."""

from __future__ import annotations

import ast
import importlib
import inspect
import multiprocessing
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import modtree as mt
from modtree import _imports, _paths
from modtree.numpy import absent as _absent


@pytest.fixture
def settings(lib):
    """Puts the settings back that a test makes."""
    yield lib
    lib.use_deterministic_algorithms(False)
    lib.set_warn_always(False)


def test_one_process():
    dist = mt.distributed
    assert not dist.is_available() and not dist.is_initialized()
    assert (dist.get_rank(), dist.get_world_size()) == (0, 1)
    assert not dist.is_nccl_available() and not dist.is_torchelastic_launched()
    with pytest.raises(RuntimeError, match="one process.*is_available"):
        dist.init_process_group("gloo")


@pytest.mark.parametrize("name", ["all_reduce", "barrier", "broadcast", "all_gather", "new_group"])
def test_processes_are_not_joined(lib, name):
    arguments = [] if name == "barrier" else [lib.ones(1)]
    if name == "broadcast":
        arguments.append(0)
    elif name == "all_gather":
        arguments.insert(0, [lib.ones(1)])
    elif name == "new_group":
        arguments = [[0]]
    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        getattr(lib.distributed, name)(*arguments)


def test_jit_leaves_functions_alone(monkeypatch):
    monkeypatch.setattr(_absent, "_warned", False)  # the warning comes once
    jit = mt.jit

    def f(x):
        return x + 1

    with pytest.warns(UserWarning, match="gives the function or module itself"):
        assert jit.script(f) is f
    model = mt.nn.Linear(1, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert jit.script(model) is model
    assert jit.script_if_tracing(f) is f
    for call in (
        lambda: jit.trace(model, mt.ones(1, 1)),
        lambda: jit.save(model, "model.pt"),
        lambda: jit.load("model.pt"),
    ):
        with pytest.raises(RuntimeError, match="no compiled form"):
            call()


def test_jit_marks(lib):
    @lib.jit.ignore
    def f(x):
        return x

    @lib.jit.ignore(drop=False)
    def g(x):
        return x

    @lib.jit.unused
    def h(x):
        return x

    @lib.jit.export
    def k(x):
        return x

    assert [call(3) for call in (f, g, h, k)] == [3] * 4
    assert lib.jit.annotate(int, 5) == 5
    assert not lib.jit.is_scripting() and not lib.jit.is_tracing()
    assert not isinstance(lib.nn.Linear(1, 1), lib.jit.ScriptModule)


def test_nothing_is_compiled(lib):
    compiler = importlib.import_module(f"{lib.__name__}.compiler")
    assert not compiler.is_compiling() and not compiler.is_dynamo_compiling()
    assert not compiler.is_exporting()

    @compiler.disable
    def f(x):
        return x * 2

    @compiler.disable(recursive=False)
    def g(x):
        return x * 3

    assert (f(2), g(2)) == (4, 6)
    compiler.reset()


def test_parts_of_programs_may_be_named(lib):
    profiler = importlib.import_module(f"{lib.__name__}.autograd.profiler")
    with profiler.record_function("forward"), lib.profiler.record_function("part"):
        x = lib.ones(2) * 2

    @profiler.record_function("whole")
    def f():
        return x.sum().item()

    assert f() == 4


def test_deterministic_algorithms(settings):
    lib = settings
    assert not lib.are_deterministic_algorithms_enabled()
    lib.use_deterministic_algorithms(True, warn_only=True)
    assert lib.are_deterministic_algorithms_enabled()
    assert lib.is_deterministic_algorithms_warn_only_enabled()
    assert lib.get_deterministic_debug_mode() == 1
    lib.set_deterministic_debug_mode("error")
    assert lib.get_deterministic_debug_mode() == 2
    assert not lib.is_deterministic_algorithms_warn_only_enabled()
    lib.set_deterministic_debug_mode(0)
    assert not lib.are_deterministic_algorithms_enabled()
    for wrong, error in (("x", RuntimeError), (7, RuntimeError), (None, TypeError)):
        with pytest.raises(error, match="debug_mode"):
            lib.set_deterministic_debug_mode(wrong)


def test_names_of_types(lib):
    name = lib.__name__
    assert lib.typename(lib.ones(1)) == f"{name}.FloatTensor"
    assert lib.typename(lib.ones(1, dtype=lib.int64)) == f"{name}.LongTensor"
    assert lib.typename(3) == lib.typename(int) == "int"
    assert lib.typename(lib) == name and lib.typename(None) == "NoneType"
    assert lib.typename(lib.nn.Linear(1, 1)) == lib.typename(lib.nn.Linear)
    assert lib.typename(lib.nn.Linear).endswith(".Linear")


def test_mixed_precision_is_not_asked_for(settings):
    lib = settings
    assert not lib.is_autocast_enabled() and not lib.is_autocast_enabled("cpu")
    assert lib.is_warn_always_enabled() is False
    lib.set_warn_always(True)
    assert lib.is_warn_always_enabled() is True
    amp = importlib.import_module(f"{lib.__name__}.cuda.amp")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch tells of the newer path
        with amp.autocast(enabled=False):
            assert amp.GradScaler(enabled=False).get_scale() == 1.0


def test_dtypes_of_mixed_precision(lib):
    assert lib.get_autocast_dtype("cpu") == lib.bfloat16
    assert lib.get_autocast_dtype("cuda") == lib.float16
    assert issubclass(lib.OutOfMemoryError, RuntimeError)


def test_ways_of_attention_may_be_chosen(lib):
    attention = importlib.import_module(f"{lib.__name__}.nn.attention")
    q = lib.ones(1, 2, 3, 4)
    with attention.sdpa_kernel([attention.SDPBackend.MATH]):
        out = lib.nn.functional.scaled_dot_product_attention(q, q, q)
    assert out.tolist() == q.tolist()
    with pytest.raises(AssertionError, match="Backend must be an instance of SDPBackend"):
        with attention.sdpa_kernel(3):
            pass


def test_random_numbers_go_on_from_where_they_were(lib):
    lib.manual_seed(3)
    first = lib.rand(2).tolist()
    lib.manual_seed(3)
    with lib.random.fork_rng():
        lib.rand(5)
    assert lib.rand(2).tolist() == first
    with pytest.raises(ValueError, match="inside"):
        with lib.random.fork_rng():
            lib.rand(5)
            raise ValueError("inside")
    lib.manual_seed(3)
    with lib.random.fork_rng(enabled=False):
        assert lib.rand(2).tolist() == first
    assert lib.rand(2).tolist() != first


def test_mixed_precision_of_the_older_path_warns_where_it_is_used():
    with pytest.warns(UserWarning, match="autocast for 'cuda' is not available") as seen:
        mt.cuda.amp.autocast()
    assert seen[0].filename == __file__
    with pytest.warns(UserWarning, match="GradScaler for 'cuda' is not available") as seen:
        mt.cuda.amp.GradScaler()
    assert seen[0].filename == __file__
    assert mt.amp.custom_fwd(test_one_process) is test_one_process
    assert not mt.amp.is_autocast_available("cpu")


def test_functions_of_mixed_precision(lib):
    amp = importlib.import_module(f"{lib.__name__}.amp")

    class Double(lib.autograd.Function):
        @staticmethod
        @amp.custom_fwd(device_type="cuda")
        def forward(ctx, x):
            return x * 2

        @staticmethod
        @amp.custom_bwd(device_type="cuda")
        def backward(ctx, g):
            return g * 2

    x = lib.ones(2, requires_grad=True)
    Double.apply(x).sum().backward()
    assert x.grad.tolist() == [2, 2]


@pytest.mark.parametrize("name", ["cuda", "mps", "xpu", "accelerator"])
def test_no_accelerator(name):
    part = importlib.import_module(f"modtree.{name}")
    assert part.is_available() is False and part.device_count() == 0
    assert part.empty_cache() is None and part.synchronize() is None
    assert mt.accelerator.current_accelerator() is None


def test_no_cuda():
    cuda = mt.cuda
    cuda.manual_seed_all(1)
    cuda.reset_peak_memory_stats()
    assert cuda.memory_reserved() == cuda.max_memory_reserved() == 0
    assert cuda.get_rng_state_all() == []
    cuda.set_rng_state_all([])
    with cuda.device(0), cuda.stream(None):
        pass
    for call in (
        lambda: cuda.set_device(0),
        cuda.get_device_name,
        cuda.get_device_properties,
        cuda.get_device_capability,
        cuda.mem_get_info,
        cuda.current_stream,
        cuda.Stream,
        cuda.Event,
        cuda.get_rng_state,
        lambda: cuda.set_rng_state_all([1]),
    ):
        with pytest.raises(RuntimeError, match="no cuda device"):
            call()
    assert inspect.isclass(cuda.Stream) and inspect.isclass(cuda.Event)


def test_switches_keep_what_they_are_told(lib):
    cudnn = importlib.import_module(f"{lib.__name__}.backends.cudnn")
    assert lib.backends.cudnn is cudnn
    assert (cudnn.enabled, cudnn.benchmark, cudnn.deterministic) == (True, False, False)
    cudnn.benchmark = True
    assert lib.backends.cudnn.benchmark is True
    cudnn.benchmark = False
    lib.backends.cuda.matmul.allow_tf32 = True
    assert lib.backends.cuda.matmul.allow_tf32 is True
    lib.backends.cuda.matmul.allow_tf32 = False
    # torch has what it was built with.
    answers = (False,) if lib is mt else (False, True)
    assert lib.backends.mps.is_available() in answers and lib.backends.cuda.is_built() in answers
    assert cudnn.is_available() in answers


def test_downloads_are_refused():
    for name in ("load", "load_state_dict_from_url", "download_url_to_file", "get_dir"):
        with pytest.raises(RuntimeError, match=f"hub.{name}: modtree downloads nothing"):
            getattr(mt.hub, name)(*["x"] * (name != "get_dir"))
    with pytest.raises(RuntimeError, match="downloads nothing"):
        mt.utils.model_zoo.load_url("x")


# -- names that are not there ----------------------------------------------------------------------

PACKAGES = """modtree nn nn.functional nn.init nn.utils nn.utils.rnn nn.modules nn.parallel optim
    optim.lr_scheduler utils utils.data utils.checkpoint utils.hooks func linalg autograd
    autograd.functional autograd.graph cuda backends amp random serialization distributed jit
    compiler profiler hub mps xpu accelerator types version functional
    multiprocessing""".split()


@pytest.mark.parametrize("name", PACKAGES)
def test_a_missing_name_says_what_it_is(name):
    path = name if name == "modtree" else f"modtree.{name}"
    module = importlib.import_module(path)
    assert not hasattr(module, "NoSuchName") and getattr(module, "NoSuchName", 3) == 3
    page = re.escape("https://modtree.readthedocs.io/en/latest/missing.html")
    text = rf"^module '{path}' has no attribute 'NoSuchName'; .* {page}$"
    with pytest.raises(AttributeError, match=text) as found:
        module.NoSuchName  # noqa: B018
    assert found.value.name == "NoSuchName" and found.value.obj is module
    text = rf"^cannot import name 'NoSuchName' from '{path}' \(.*[.]py\); .* {page}$"
    with pytest.raises(ImportError, match=text) as refused:
        exec(f"from {path} import NoSuchName")
    assert refused.value.name == path and refused.value.path == module.__file__


def test_the_address_of_the_page_is_that_of_the_documentation():
    root = Path(__file__).parents[2]
    project = (root / "pyproject.toml").read_text(encoding="utf-8")
    address = re.search('^Documentation = "(.*)"$', project, re.MULTILINE)[1]
    assert _imports.PAGES == f"{address}/en/latest/"
    pages = re.findall(rf"{re.escape(_imports.PAGES)}(\w+)[.]html", _imports.LISTED)
    assert pages == ["missing"] and (root / "tools" / "list_missing").exists()


def test_no_message_names_a_file_of_the_documentation():
    """An installed package has none of them."""
    root = Path(mt.__file__).parent
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise | ast.JoinedStr):
                assert not re.search(r"docs/[\w/]+[.]md", ast.unparse(node)), path


def test_a_missing_submodule_is_not_found():
    with pytest.raises(ModuleNotFoundError, match="No module named 'modtree.nn.nothing'"):
        importlib.import_module("modtree.nn.nothing")


def test_star_imports_work():
    space = {}
    exec("from modtree.nn import *\nfrom modtree.optim import *", space)
    assert space["Linear"] is mt.nn.Linear and space["AdamW"] is mt.optim.AdamW
    exec("from modtree.nn.modules import *\nfrom modtree.multiprocessing import *", space)
    assert space["Linear"] is mt.nn.Linear and space["Process"] is multiprocessing.Process


# The drop-in has to come before torch.
@pytest.mark.parametrize("path", [path for path in _paths.ROWS if path != "modtree.dropin"])
def test_paths_of_the_table(path):
    """Each is a module like those in files: imported, reloaded, an attribute of its package."""
    module = importlib.import_module(path)
    package, _, name = path.rpartition(".")
    assert getattr(importlib.import_module(package), name) is module is sys.modules[path]
    assert importlib.reload(module) is module and module.__spec__.name == path
    assert all(hasattr(module, public) for public in module.__all__)
    assert module.__file__ == _paths.__file__ and "torch" in module.__doc__
    made = [v for v in vars(module).values() if inspect.isfunction(v) and v.__module__ == path]
    assert all(value.__doc__ for value in made if not value.__name__.startswith("_"))


def test_what_few_programs_need_is_imported_on_first_use():
    program = """
import sys, modtree
waiting = {"modtree." + n for n in ("jit", "compiler", "profiler", "hub", "nn.modules", "types",
           "utils.model_zoo", "backends.cudnn", "cuda.amp", "autograd.profiler", "mps", "xpu")}
assert not waiting & set(sys.modules), waiting & set(sys.modules)
for name in waiting:
    value = modtree
    for part in name.split(".")[1:]:
        value = getattr(value, part)
    assert value is sys.modules[name]
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
