// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/parameter_copy.h"

#include <array>

#include "python/compat.h"
#include "tensor/array_view.h"
#include "tensor/dtype.h"
#include "tensor/override.h"

namespace modtree {

namespace {

// What the Python code of a copy or a pickle looks up on either class.
constexpr std::array kDeciding = {
    "__deepcopy__", "__reduce_ex__", "__new__",        "__init__", "__getattribute__",
    "__getattr__",  "__dict__",      "_make_subclass", "data",     "requires_grad",
    "is_meta",      "clone",         "_array",         "is_leaf",  "grad",
};

// Strong, also the names; a value is null where the class has none.
struct Deciding {
  PyObject *name = nullptr;
  PyObject *of_parameter = nullptr;
  PyObject *of_tensor = nullptr;
};
std::array<Deciding, kDeciding.size()> sealed;

// The version of Parameter that the answer is about: it changes with Tensor's, its base.
TypeVersion known_version = 0;
bool known_answer = false;

bool is_patched() {
  for (const Deciding &each : sealed) {
    if (type_lookup(plain_parameter_type, each.name).ptr() != each.of_parameter ||
        type_lookup(tensor_type, each.name).ptr() != each.of_tensor) {
      return true;
    }
  }
  return Py_TYPE(plain_parameter_type)->tp_call != PyType_Type.tp_call;
}

}  // namespace

bool parameters_are_plain() {
  TypeVersion version = type_version(plain_parameter_type);
  if (version != 0 && version == known_version) {
    return known_answer;
  }
  // A lookup gives the class a version. It is read before the rest, as user code may run there.
  type_lookup(plain_parameter_type, sealed[0].name);
  version = type_version(plain_parameter_type);
  const bool answer = sealed[0].name != nullptr && !is_patched();
  known_version = version;
  known_answer = answer;
  return answer;
}

void seal_parameter_class() {
  for (std::size_t i = 0; i < sealed.size(); ++i) {
    PyObject *name = PyUnicode_InternFromString(kDeciding[i]);
    if (name == nullptr) {
      throw py::error_already_set();
    }
    sealed[i] = Deciding{name, type_lookup(plain_parameter_type, name).release().ptr(),
                         type_lookup(tensor_type, name).release().ptr()};
  }
}

bool is_plain_parameter(PyObject *value) {
  return Py_TYPE(value) == plain_parameter_type && active_modes == 0 &&
         !as_tensor(value)->is_meta && parameters_are_plain();
}

PyObject *copy_plain_parameter(PyObject *parameter) {
  TensorObject *self = as_tensor(parameter);
  const bool requires_grad = needs_grad(self);
  const DTypeObject *dtype = dtype_of(self->array);
  if (dtype == nullptr || (requires_grad && !is_float_category(dtype->category))) {
    return nullptr;  // refused in Python
  }
  // Owned: NumPy works without the GIL, and `data` may be assigned to meanwhile.
  const auto array = py::reinterpret_borrow<py::object>(as_object(self->array));
  PyObject *values = PyArray_NewCopy(as_array(array.ptr()), NPY_KEEPORDER);
  PyObject *copy =
      values == nullptr ? nullptr : tensor_from_array(plain_parameter_type, values, true);
  if (copy != nullptr) {
    as_tensor(copy)->requires_grad = requires_grad;
  }
  return copy;
}

PyObject *plain_memory(PyObject *tensor) {
  if (Py_TYPE(tensor) != tensor_type || active_modes != 0 || !parameters_are_plain()) {
    return nullptr;
  }
  const TensorObject *self = as_tensor(tensor);
  if (self->is_meta || self->requires_grad || self->grad != nullptr || self->grad_fn != nullptr ||
      self->base != nullptr || (self->dict != nullptr && PyDict_GET_SIZE(self->dict) != 0)) {
    return nullptr;
  }
  const bool is_owner = owner_of_memory(self->array) == self->array;
  return is_owner ? Py_NewRef(as_object(self->array)) : nullptr;
}

PyObject *copy_plain_tensor(PyObject *memory, PyObject **shown, PyObject **copied) {
  *copied = nullptr;
  *shown = shown_view(as_array(memory));
  PyObject *copy = *shown == nullptr ? nullptr : PyArray_NewCopy(as_array(memory), NPY_KEEPORDER);
  if (copy == nullptr) {
    return nullptr;
  }
  *copied = shown_view(as_array(copy));
  if (*copied == nullptr) {
    Py_DECREF(copy);
    return nullptr;
  }
  return tensor_from_array(tensor_type, copy, true);
}

}  // namespace modtree
