# SPDX-License-Identifier: BSD-3-Clause
"""The same random programs on modtree and on torch: results, exceptions, warnings, events and trees
must agree after each step.

A program is plain data (``program.py``): steps, each the name of an operation and its arguments.
The operations stand in ``tree.py``, ``whole.py``, ``state.py``, ``hooks.py``, ``copies.py`` and
``containers.py``; an argument is of a kind (``kinds.py``), which draws it on torch's side and finds
the object in each world (``world.py``). ``observe.py`` shows values and trees without their
implementation, ``outcomes.py`` compares, ``allowed.py`` lists what docs/compat.md allows to differ,
and ``minimise.py`` shrinks a program that differs. ``mixins.py`` has programs of its own,
of classes around Module. ``tests/package/test_fuzz.py`` runs some hundreds of programs;
``tools/fuzz_differential`` as many as asked for.
"""
