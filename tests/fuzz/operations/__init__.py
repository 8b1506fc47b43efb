# SPDX-License-Identifier: BSD-3-Clause
"""Single operations with random arguments on torch and on modtree: values, dtypes, shapes,
gradients, types of errors.

A *line* is one call: the name of an operation, its arguments as plain data (``values.py``). What
operations there are is found in both libraries, and their arguments in torch's schemas
(``catalog.py``); ``arguments.py`` draws a value for each by its type and name, ``shapes.py`` those
that must fit together.
"""
