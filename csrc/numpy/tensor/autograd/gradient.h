// SPDX-License-Identifier: BSD-3-Clause
// Arithmetic on gradients. A gradient is an ndarray; while backward itself is recorded
// (create_graph) it is a Tensor.
#pragma once

#include "tensor/autograd/node.h"

namespace modtree {

// Makes what a derivative returned fit: summed to the shape of `spec` where it was broadcast, cast
// to its dtype. Steals `value`; null with an error set, which names `node`.
PyObject *fit_gradient(PyObject *value, OutputSpec &spec, NodeObject *node, bool on_tensors);

// a + b. `owns_a`: a is an array that nobody else sees. Steals a.
PyObject *add_gradients(PyObject *a, bool owns_a, PyObject *b, bool on_tensors);

// a += b on arrays. 0, or -1 with an error set.
int add_in_place(PyObject *a, PyObject *b);

// The gradient of a base from that of its view (zero elsewhere).
PyObject *scatter_view(const ViewGeometry &geometry, PyObject *gradient);

PyObject *scatter_view_on_tensors(const ViewGeometry &geometry, PyObject *gradient);

// (dims of the base, its strides, dims of the view, its strides, offset, bytes of an element): how
// Python gets a geometry. New reference.
PyObject *geometry_tuple(const ViewGeometry &geometry);

// The parts of a base's gradient: a copy of it as *whole, and the view's part of that copy. Arrays
// only.
PyObject *part_of_base(const ViewGeometry &geometry, PyObject *gradient, PyObject **whole);

// An array of zeros for a meta gradient, or of ones.
PyObject *meta_gradient(OutputSpec &spec);

// A gradient as a Tensor (None for null), and back. New references; null with an error set.
PyObject *gradient_to_tensor(PyObject *gradient, bool is_meta);
PyObject *gradient_from_tensor(PyObject *tensor, bool on_tensors);

// The gradient to start backward with at root i, from what the user gave (None: 1). New reference,
// null with an error set.
PyObject *first_gradient(Py_ssize_t i, TensorObject *root, PyObject *given, bool on_tensors);

bool same_shape(PyArrayObject *array, OutputSpec &spec);

// Looks up what gradients are added with.
void init_gradient();

}  // namespace modtree
