// SPDX-License-Identifier: BSD-3-Clause
// Making tensors out of arrays: the native end of modtree.numpy.tensor.creation.
#pragma once

#include "tensor/object.h"

namespace modtree {

// These throw error_already_set.

// A tensor sharing memory with `array`, which is the caller's.
py::object from_array(py::object array, bool requires_grad);
// A tensor that holds `array` itself, which user code does not.
py::object own_array(py::object array, bool requires_grad);

py::object empty_meta(py::object shape, py::object dtype, bool requires_grad);

// A new object of class `cls` sharing memory and version with `data`: how Parameter and Buffer are
// made.
py::object make_subclass(py::type cls, py::object data, bool requires_grad);

// The tensor as an object of a class of tensors: shares memory, version and history. New reference,
// or null with an error set; throws nothing. Nobody is asked to override it.
PyObject *as_subclass(PyObject *tensor, PyTypeObject *cls);

// Exchanges everything but the identity (and weak references, which stay with the object).
void swap_contents(py::handle a, py::handle b);

}  // namespace modtree
