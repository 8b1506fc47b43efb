# SPDX-License-Identifier: BSD-3-Clause
"""The import graph: the rooms of the picture, no ring, nothing imported inside functions."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import modtree

PACKAGE = Path(modtree.__file__).parent

#: A room of the package -> the rooms that its files may import, as docs/architecture.md draws them.
ROOMS: dict[str, set[str]] = {
    "_paths": set(),
    "_imports": {"_paths"},
    # the trunk
    "core": {"_imports"},
    # the three libraries
    "jax_arrays": {"core"},
    "numpy": {"_imports", "core"},
    "torch": {"core"},
    # torch's paths, on NumPy
    "autograd": {"_imports", "numpy"},
    "distributions": {"core", "nn", "numpy"},
    "func": {"_imports", "core", "nn", "numpy"},
    "linalg": {"_imports", "numpy"},
    "nn": {"_imports", "core", "numpy"},
    "optim": {"_imports", "core", "nn", "numpy"},
    "overrides": {"linalg", "nn", "numpy"},
    "random": {"_imports", "numpy"},
    "serialization": {"_imports", "core", "files", "numpy"},
    "utils": {"_imports", "autograd", "numpy"},
    # the tools
    "editing": {"core"},
    "files": {"_imports", "core"},
    "inspection": {"core", "editing", "files"},
    "jax": {"core", "editing", "files", "jax_arrays"},
    "cli": {"core", "editing", "files", "inspection", "torch"},
    "__main__": {"cli"},
    "": {"_imports", "torch"},
}

#: Files of tools that make modtree's own tensors, imported when somebody wants these.
MAKERS = {"files.checkpoint.load", "files.pickled.tensors"}

# (file, what it imports inside a function): the reason.
INSIDE_FUNCTIONS: dict[tuple[str, str], str] = {
    ("files.checkpoints", "files.checkpoint.convert"): "the import of modtree does not wait for it",
    ("files.checkpoints", "files.checkpoint.load"): "the same",
    ("files.checkpoints", "files.checkpoint.save"): "the same",
    ("files.checkpoints", "files.checkpoint.verify"): "the same",
    ("cli.run", "torch.dropin._report"): "importing it changes torch, which --off does not want",
    ("torch.dropin.site._modtree_start", "torch.dropin._report"): "the same",
}


def sources() -> dict[str, Path]:
    """Dotted names within the package, without its own; "" is the package's __init__."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


SOURCES = sources()


def targets(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Files of the package that a statement imports."""
    if isinstance(node, ast.Import):
        names = [a.name for a in node.names]
    else:
        full = [f"{node.module}.{a.name}" for a in node.names]
        names = [n if n.removeprefix("modtree.") in SOURCES else str(node.module) for n in full]
        names = [n for n, f in zip(names, full, strict=True) if f != "modtree._C"]
    for name in names:
        inside = "" if name == "modtree" else name.removeprefix("modtree.")
        if name.split(".")[0] == "modtree" and inside in SOURCES:
            yield inside


@functools.cache
def imports(name: str) -> tuple[set[str], set[str]]:
    """What a file imports when it is imported, and what inside functions."""
    outer: set[str] = set()
    inner: set[str] = set()

    def visit(node: ast.AST, in_function: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                continue
            if isinstance(child, ast.Import | ast.ImportFrom):
                (inner if in_function else outer).update(targets(child))
            nested = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            visit(child, in_function or nested)

    visit(ast.parse(SOURCES[name].read_text()), False)
    return outer - {name}, inner


@functools.cache
def graph() -> dict[str, set[str]]:
    """File -> the files that its import imports."""
    return {name: imports(name)[0] for name in SOURCES}


def test_no_file_is_imported_by_what_it_imports():
    done: set[str] = set()
    path: list[str] = []

    def visit(name: str) -> list[str] | None:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return None
        path.append(name)
        for target in sorted(graph()[name]):
            if ring := visit(target):
                return ring
        done.add(path.pop())
        return None

    for name in graph():
        assert (ring := visit(name)) is None, " -> ".join(ring)


def room(name: str) -> str:
    return name.partition(".")[0]


def test_rooms_import_what_the_picture_shows():
    wrong = [
        f"{name} imports {target}"
        for name, found in graph().items()
        for target in found
        if room(target) not in {room(name), *ROOMS[room(name)]}
        and not (name in MAKERS and room(target) == "numpy")
    ]
    assert sorted(wrong) == []


def test_the_picture_shows_no_more_than_there_is():
    arrows: dict[str, set[str]] = {name: set() for name in ROOMS}
    for name, found in graph().items():
        arrows[room(name)] |= {room(target) for target in found} - {room(name)}
    arrows["files"].discard("numpy")  # of the makers
    assert arrows == ROOMS


def test_imports_inside_functions_have_a_reason():
    found = {(name, target) for name in SOURCES for target in imports(name)[1]}
    assert found == set(INSIDE_FUNCTIONS)


def test_imports_are_absolute():
    wrong = [
        f"{name}: line {node.lineno}"
        for name, path in SOURCES.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert wrong == []


def named_in_calls(functions: set[str]) -> dict[str, set[str]]:
    """Operation -> the files that name it as the first argument of one of these functions."""
    found: dict[str, set[str]] = {}
    for name, path in SOURCES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            called = (
                node.func.id
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
                else ""
            )
            if called in functions:
                operations = node.args if called == "not_differentiable" else node.args[:1]
                for argument in operations:
                    if isinstance(argument, ast.Constant):
                        found.setdefault(argument.value, set()).add(name)
    return found


def test_an_operation_and_its_derivative_stand_in_one_file():
    defined = named_in_calls({"define"})
    derived = named_in_calls({"derive", "derive_jointly", "not_differentiable"})
    assert len(set(defined) & set(derived)) > 100
    assert {n: derived[n] for n in derived if n in defined and derived[n] != defined[n]} == {}
