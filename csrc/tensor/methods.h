// SPDX-License-Identifier: BSD-3-Clause
// The native methods and attributes of a tensor: what runs once per entry of a tree or once per
// layer.
#pragma once

#include "tensor/object.h"

namespace modtree {

PyMethodDef *tensor_methods();
PyGetSetDef *tensor_getset();

// tensor.copy_(source): values with conversion of dtype and broadcasting. `source` may be a tensor,
// an ndarray, or an object of another library with a family. The caller has checked that self may
// be changed. 0, or -1 with an error set.
int copy_values(TensorObject *self, PyObject *source);

// A tensor with this dtype (null: as it is) on meta or cpu. A new reference to self when nothing
// changes and copy is false. Recorded where gradients are.
PyObject *convert_tensor(TensorObject *self, DTypeObject *dtype, bool to_meta, bool copy);

// 1 for meta, 0 for cpu, -1 with an error set. None is not accepted.
int device_is_meta(PyObject *device);

// Begins to record that all values of `self` become `value` (a number or a 0-d tensor).
class InplaceRecord;
int begin_fill(InplaceRecord &recorded, TensorObject *self, PyObject *value = Py_None);

}  // namespace modtree
