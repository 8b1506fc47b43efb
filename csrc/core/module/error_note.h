// SPDX-License-Identifier: BSD-3-Clause
// The note of an exception that leaves a module (PEP 678): where in the tree it was raised.
//
// While the exception passes the calls of modules, each of them puts the name in front under which
// it holds the module that was left before. An exception has one such note. Nothing is kept but the
// note itself, so that threads, greenlets and exceptions that are raised again need no more.
#pragma once

#include <pybind11/pytypes.h>

#include <cstddef>

namespace modtree {

namespace py = pybind11;

// After a call of the module that failed: makes or extends the note of the error that is set, which
// stays. User code may run. `flagged_count` and `keyword_names` as in a vectorcall. Null.
[[gnu::cold]] PyObject *note_failed_call(PyObject *module, PyObject *const *args,
                                         std::size_t flagged_count, PyObject *keyword_names);
// The same for arguments in a tuple and a dict, which may be null.
[[gnu::cold]] PyObject *note_failed_call(PyObject *module, PyObject *args, PyObject *kwargs);

// The same after a method of `root`, such as "_apply", that failed at a module below it. -1.
int note_failure(PyObject *root, PyObject *module, const char *method);

// A function that calls the hook on gradients of a module, and notes that an error came from it.
// Calls of it are not in tracebacks. Null on error.
PyObject *noted_hook(PyObject *hook, PyObject *module);

// Makes the type of notes, unless MODTREE_NOTES=0 or exceptions have none (before 3.11). Throws
// error_already_set.
void make_note_type();

}  // namespace modtree
