// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/create.h"

#include <stdexcept>
#include <utility>

#include "tensor/slot_ops.h"

namespace modtree {

namespace {

void check_gradient_dtype(TensorObject *self) {
  if (!is_float_category(dtype_or_none(self->array)->category)) {
    PyErr_Format(PyExc_RuntimeError,
                 "Only Tensors of floating point and complex dtype can require gradients, got %S",
                 reinterpret_cast<PyObject *>(dtype_or_none(self->array)));
    throw py::error_already_set();
  }
}

// True if the size in bytes does not fit into 64 bits. NumPy leaves sizes of 0 out.
bool bytes_overflow(const PyArray_Dims &dims, npy_intp itemsize) {
  npy_intp bytes = itemsize;
  for (int i = 0; i < dims.len; ++i) {
    if (dims.ptr[i] > 0) {
      if (bytes > NPY_MAX_INTP / dims.ptr[i]) {
        return true;
      }
      bytes *= dims.ptr[i];
    }
  }
  return false;
}

py::object over_array(py::object array, bool requires_grad, bool is_own) {
  py::object result = py::reinterpret_steal<py::object>(
      tensor_from_array(tensor_type, array.release().ptr(), is_own));
  if (!result) {
    throw py::error_already_set();
  }
  if (requires_grad) {
    check_gradient_dtype(as_tensor(result.ptr()));
    as_tensor(result.ptr())->requires_grad = true;
  }
  return result;
}

}  // namespace

py::object from_array(py::object array, bool requires_grad) {
  return over_array(std::move(array), requires_grad, false);
}

py::object own_array(py::object array, bool requires_grad) {
  return over_array(std::move(array), requires_grad, true);
}

py::object empty_meta(py::object shape, py::object dtype, bool requires_grad) {
  PyArray_Dims dims{nullptr, 0};
  if (PyArray_IntpConverter(shape.ptr(), &dims) != NPY_SUCCEED) {
    throw py::error_already_set();
  }
  DTypeObject *type = dtype_from_object(dtype.ptr());
  PyArrayObject *bare = nullptr;
  if (type != nullptr && bytes_overflow(dims, PyDataType_ELSIZE(type->descr))) {
    PyErr_Format(PyExc_RuntimeError, "Storage size calculation overflowed with sizes=%S",
                 shape.ptr());
  } else if (type != nullptr) {
    bare = meta_array(dims.len, dims.ptr, type->descr);
  }
  PyDimMem_FREE(dims.ptr);
  py::object result =
      py::reinterpret_steal<py::object>(bare == nullptr ? nullptr : wrap_array(bare, true));
  if (!result) {
    throw py::error_already_set();
  }
  if (requires_grad) {
    check_gradient_dtype(as_tensor(result.ptr()));
    as_tensor(result.ptr())->requires_grad = true;
  }
  return result;
}

py::object make_subclass(py::type cls, py::object data, bool requires_grad) {
  auto *type = reinterpret_cast<PyTypeObject *>(cls.ptr());
  if (!PyType_IsSubtype(type, tensor_base_type) || !is_tensor(data.ptr())) {
    throw py::type_error("_make_subclass: expected a subclass of Tensor and a Tensor");
  }
  TensorObject *source = as_tensor(data.ptr());
  if (requires_grad) {
    check_gradient_dtype(source);
  }
  PyObject *obj = make_alias(type, source);
  if (obj == nullptr) {
    throw py::error_already_set();
  }
  as_tensor(obj)->requires_grad = requires_grad;
  return py::reinterpret_steal<py::object>(obj);
}

PyObject *as_subclass(PyObject *tensor, PyTypeObject *cls) {
  if (!is_tensor(tensor) || !PyType_IsSubtype(cls, tensor_base_type)) {
    PyErr_Format(PyExc_TypeError,
                 "as_subclass: expected a Tensor and a subclass of Tensor, got %.200s and %.200s",
                 Py_TYPE(tensor)->tp_name, cls->tp_name);
    return nullptr;
  }
  OpObject *op = slot_op(kAlias);
  const auto alias =
      py::reinterpret_steal<py::object>(op == nullptr ? nullptr : op_call(op, &tensor, 1, nullptr));
  if (!alias || cls == tensor_type) {
    return Py_XNewRef(alias.ptr());
  }
  const auto no_arguments = py::reinterpret_steal<py::object>(PyTuple_New(0));
  auto result = py::reinterpret_steal<py::object>(
      no_arguments ? tensor_base_type->tp_new(cls, no_arguments.ptr(), nullptr) : nullptr);
  if (result) {
    swap_contents(result, alias);  // nothing refers to the alias yet
  }
  return result.release().ptr();
}

void swap_contents(py::handle a, py::handle b) {
  if (!is_tensor(a.ptr()) || !is_tensor(b.ptr())) {
    throw py::type_error("swap_tensors: expected two Tensors");
  }
  TensorObject *left = as_tensor(a.ptr());
  TensorObject *right = as_tensor(b.ptr());
  if (left->weakrefs != nullptr || right->weakrefs != nullptr) {
    throw std::runtime_error("Cannot swap a tensor that has weakref(s) associated with it");
  }
  std::swap(left->array, right->array);
  std::swap(left->grad, right->grad);
  std::swap(left->grad_fn, right->grad_fn);
  std::swap(left->cell, right->cell);
  std::swap(left->dict, right->dict);
  std::swap(left->requires_grad, right->requires_grad);
  std::swap(left->is_meta, right->is_meta);
  std::swap(left->retains_grad, right->retains_grad);
  std::swap(left->base, right->base);
  std::swap(left->view_origin, right->view_origin);
  std::swap(left->output_nr, right->output_nr);
  std::swap(left->view_version, right->view_version);
}

}  // namespace modtree
