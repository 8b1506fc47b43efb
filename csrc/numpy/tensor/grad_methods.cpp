// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/grad_methods.h"

#include "tensor/autograd/history.h"

namespace modtree {

PyObject *get_requires_grad(PyObject *self, void *) {
  return PyBool_FromLong(needs_grad(as_tensor(self)));
}

int put_requires_grad(PyObject *self, PyObject *value, void *) {
  if (value == nullptr || !PyBool_Check(value)) {
    PyErr_SetString(PyExc_RuntimeError, "requires_grad must be a bool");
    return -1;
  }
  if (value == Py_True && as_tensor(self)->grad_fn != nullptr) {
    PyErr_SetString(PyExc_RuntimeError,
                    "you can only change requires_grad flags of leaf variables");
    return -1;
  }
  return set_requires_grad(as_tensor(self), value == Py_True);
}

PyObject *get_grad_fn(PyObject *self, void *) {
  bool error;
  NodeObject *node = current_grad_fn(as_tensor(self), &error);
  if (error) {
    return nullptr;
  }
  return node == nullptr ? Py_NewRef(Py_None) : named_node(node);
}

PyObject *get_is_leaf(PyObject *self, void *) {
  bool error;
  NodeObject *node = current_grad_fn(as_tensor(self), &error);
  if (error) {
    return nullptr;
  }
  Py_XDECREF(reinterpret_cast<PyObject *>(node));
  return PyBool_FromLong(node == nullptr);
}

PyObject *get_grad(PyObject *self, void *) {
  TensorObject *tensor = as_tensor(self);
  if (tensor->grad == nullptr && tensor->grad_fn != nullptr && !tensor->retains_grad &&
      PyErr_WarnEx(PyExc_UserWarning,
                   "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. "
                   "It is None: call "
                   "retain_grad() on this tensor before backward(), or look at the leaf",
                   1) < 0) {
    return nullptr;
  }
  return Py_NewRef(tensor->grad == nullptr ? Py_None : tensor->grad);
}

int put_grad(PyObject *self, PyObject *value, void *) {
  return assign_grad(as_tensor(self), value);
}

PyObject *get_output_nr(PyObject *self, void *) {
  return PyLong_FromUnsignedLong(as_tensor(self)->output_nr);
}

PyObject *get_retains_grad(PyObject *self, void *) {
  return PyBool_FromLong(as_tensor(self)->retains_grad);
}

PyObject *get_base(PyObject *self, void *) {
  PyObject *base = as_tensor(self)->base;
  return Py_NewRef(base == nullptr ? Py_None : base);
}

PyObject *tensor_is_view(PyObject *self, PyObject *) {
  return PyBool_FromLong(as_tensor(self)->base != nullptr);
}

PyObject *tensor_retain_grad(PyObject *self, PyObject *) {
  TensorObject *tensor = as_tensor(self);
  if (!needs_grad(tensor)) {
    PyErr_SetString(PyExc_RuntimeError, "can't retain_grad on Tensor that has requires_grad=False");
    return nullptr;
  }
  if (!tensor->retains_grad && retain_grad(tensor) < 0) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject *tensor_hook_table(PyObject *self, PyObject *) { return tensor_hooks(as_tensor(self)); }

PyObject *tensor_post_accumulate_table(PyObject *self, PyObject *) {
  return post_accumulate_hooks(as_tensor(self));
}

}  // namespace modtree
