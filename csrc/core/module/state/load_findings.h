// SPDX-License-Identifier: BSD-3-Clause
// What a load found wrong, and the error that says so (BEHAVIOUR 8.10, 8.12).
#pragma once

#include "module/object.h"

namespace modtree {

// The three lists of a load. Hooks get them and may change them: they count as they are at the end.
class LoadFindings {
public:
  // -1 on error.
  int start();

  PyObject *missing() const { return missing_.ptr(); }
  PyObject *unexpected() const { return unexpected_.ptr(); }
  PyObject *errors() const { return errors_.ptr(); }

  // The named tuple of missing and unexpected keys: new reference, null on error.
  PyObject *incompatible_keys() const;

  // The same for the caller of the load, of modtree's own class: it knows the model.
  PyObject *result(PyObject *root) const;

  // True if they make the load fail.
  bool fail(bool strict) const;

  // Raises the RuntimeError that lists them all; -1.
  int raise(PyObject *root, PyObject *state_dict, bool strict) const;

private:
  // What is said below torch's message on the likely cause; null on error.
  py::object explain(PyObject *root, PyObject *state_dict, bool strict) const;

  py::object missing_, unexpected_, errors_;
};

// Raises the TypeError of a load that was given something else than a mapping.
void refuse_given(PyObject *root, PyObject *given);

}  // namespace modtree
