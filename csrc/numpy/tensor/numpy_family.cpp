// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/numpy_family.h"

#include <cstring>
#include <utility>

#include "family/family.h"
#include "python/installed.h"
#include "python/interned.h"
#include "python/prefetch.h"
#include "tensor/grad_mode.h"
#include "tensor/override.h"
#include "tensor/parameter_copy.h"
#include "tensor/value_methods.h"

namespace modtree {

namespace {

PyTypeObject *parameter_type() { return reinterpret_cast<PyTypeObject *>(installed.Parameter); }
PyObject *g_is_param = nullptr;   // "_is_param"
PyObject *g_is_buffer = nullptr;  // "_is_buffer"

PyObject *as_bool_object(bool flag) { return flag ? Py_True : Py_False; }

// Truth of an attribute that only marks set: on a plain tensor it can only be in the instance dict.
int has_mark(PyObject *tensor, PyObject *name) {
  PyTypeObject *type = Py_TYPE(tensor);
  if (type == tensor_type || type == parameter_type()) {
    if (as_tensor(tensor)->dict == nullptr) {
      return 0;
    }
    // Owned: a key that is compared may replace the dict.
    const auto dict = py::reinterpret_borrow<py::object>(as_tensor(tensor)->dict);
    PyObject *value = dict_get(dict.ptr(), name);
    if (value == nullptr) {
      return PyErr_Occurred() ? -1 : 0;
    }
    py::object held = py::reinterpret_borrow<py::object>(value);
    return PyObject_IsTrue(value);
  }
  py::object value = py::reinterpret_steal<py::object>(PyObject_GetAttr(tensor, name));
  if (!value) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
      return -1;
    }
    PyErr_Clear();
    return 0;
  }
  return PyObject_IsTrue(value.ptr());
}

class NumpyFamily final : public TensorFamily {
public:
  using TensorFamily::TensorFamily;

  bool are_parameters(PyTypeObject *type) override {
    return PyType_IsSubtype(type, parameter_type()) != 0;
  }

  TensorFamily *by_names() override {
    static TensorFamily *by_names = new_python_family(object);  // lives for ever, as this one does
    return by_names;
  }

  int is_parameter(PyObject *tensor) override {
    PyTypeObject *type = Py_TYPE(tensor);
    if (type == parameter_type() || PyType_IsSubtype(type, parameter_type())) {
      return 1;
    }
    if (facts_of_type(type).may_claim_class) {
      const py::object answer = call("is_parameter", tensor);
      return answer ? PyObject_IsTrue(answer.ptr()) : -1;
    }
    return has_mark(tensor, g_is_param);
  }

  int is_buffer(PyObject *tensor) override { return has_mark(tensor, g_is_buffer); }

  int is_uninitialized(PyObject *tensor) override {
    PyTypeObject *type = Py_TYPE(tensor);
    if (type == tensor_type || type == parameter_type()) {
      return 0;
    }
    py::object answer = call("is_uninitialized", tensor);
    return answer ? PyObject_IsTrue(answer.ptr()) : -1;
  }

  int is_meta(PyObject *tensor) override { return as_tensor(tensor)->is_meta; }

  int is_floating_point(PyObject *tensor) override {
    const int num = PyArray_TYPE(as_tensor(tensor)->array);
    return PyTypeNum_ISFLOAT(num) || PyTypeNum_ISUSERDEF(num);
  }

  int is_complex(PyObject *tensor) override {
    return PyTypeNum_ISCOMPLEX(PyArray_TYPE(as_tensor(tensor)->array));
  }

  PyObject *shape(PyObject *tensor) override {
    return is_plain(tensor) ? size_of_array(as_tensor(tensor)->array)
                            : PyObject_GetAttrString(tensor, "shape");
  }

  int same_shape(PyObject *tensor, PyObject *other) override {
    if (is_plain(tensor) && is_tensor(other)) {
      return PyArray_SAMESHAPE(as_tensor(tensor)->array, as_tensor(other)->array);
    }
    py::object a = py::reinterpret_steal<py::object>(shape(tensor));
    if (!a) {
      return -1;
    }
    TensorFamily *other_family = this;
    const int found = family_of(other, &other_family);
    if (found < 0) {
      return -1;
    }
    py::object b = py::reinterpret_steal<py::object>(
        found ? other_family->shape(other) : PyObject_GetAttrString(other, "shape"));
    return b ? PyObject_RichCompareBool(a.ptr(), b.ptr(), Py_EQ) : -1;
  }

  int requires_grad(PyObject *tensor) override {
    if (inherits(tensor, names.requires_grad)) {
      return as_tensor(tensor)->requires_grad;
    }
    return shown_requires_grad(tensor);
  }

  int set_requires_grad(PyObject *tensor, bool flag) override {
    if (is_plain(tensor)) {
      return modtree::set_requires_grad(as_tensor(tensor), flag);
    }
    py::object done = py::reinterpret_steal<py::object>(
        PyObject_CallMethod(tensor, "requires_grad_", "O", as_bool_object(flag)));
    return done ? 0 : -1;
  }

  bool set_requires_grad_quietly(PyObject *tensor, bool flag) override {
    if (!is_plain(tensor) || (flag ? !is_floating_point(tensor) : !is_leaf(tensor))) {
      return false;
    }
    as_tensor(tensor)->requires_grad = flag;
    return true;
  }

  int has_grad_fn(PyObject *tensor) override {
    if (inherits(tensor, names.grad_fn)) {
      return as_tensor(tensor)->grad_fn != nullptr;
    }
    return has_shown_grad_fn(tensor);
  }

  PyObject *grad(PyObject *tensor) override {
    if (!inherits(tensor, names.grad)) {
      return PyObject_GetAttr(tensor, names.grad);
    }
    PyObject *grad = as_tensor(tensor)->grad;
    grad = grad == nullptr ? Py_None : grad;
    Py_INCREF(grad);
    return grad;
  }

  bool lacks_grad(PyObject *tensor) override {
    return is_plain(tensor) && as_tensor(tensor)->grad == nullptr;
  }
  std::size_t grad_offset(PyTypeObject *type) const override {
    return is_plain_type(type) ? offsetof(TensorObject, grad) : 0;
  }

  int set_grad(PyObject *tensor, PyObject *grad) override {
    return inherits(tensor, names.grad) ? assign_grad(as_tensor(tensor), grad)
                                        : PyObject_SetAttr(tensor, names.grad, grad);
  }

  int zero_grad(PyObject *tensor, bool set_to_none) override {
    if (!inherits(tensor, names.grad)) {
      return zero_shown_grad(tensor, set_to_none);
    }
    TensorObject *self = as_tensor(tensor);
    if (self->grad == nullptr) {
      return 0;
    }
    if (set_to_none) {
      release_later(std::exchange(self->grad, nullptr));
      return 0;
    }
    py::object grad = py::reinterpret_borrow<py::object>(self->grad);
    TensorObject *values = as_tensor(grad.ptr());
    release_later(std::exchange(values->grad_fn, nullptr));
    values->requires_grad = false;
    py::object done =
        py::reinterpret_steal<py::object>(PyObject_CallMethod(grad.ptr(), "zero_", nullptr));
    return done ? 0 : -1;
  }

  PyObject *enter_no_grad() override { return Py_NewRef(as_bool_object(set_grad_enabled(false))); }
  int exit_no_grad(PyObject *scope) override {
    set_grad_enabled(scope == Py_True);
    return 0;
  }

  PyObject *detach(PyObject *tensor) override {
    return is_plain(tensor) ? tensor_alias(as_tensor(tensor))
                            : PyObject_CallMethod(tensor, "detach", nullptr);
  }

  PyObject *make_parameter(PyObject *data, bool requires_grad) override {
    if (is_plain(data) && parameters_are_plain() &&
        (!requires_grad || is_floating_point(data) || is_complex(data))) {
      PyObject *parameter = make_alias(parameter_type(), as_tensor(data));
      if (parameter != nullptr) {
        as_tensor(parameter)->requires_grad = requires_grad;
      }
      return parameter;
    }
    return PyObject_CallFunction(installed.Parameter, "OO", data, as_bool_object(requires_grad));
  }

  PyObject *copy_parameter(PyObject *value) override {
    return is_plain_parameter(value) ? copy_plain_parameter(value) : nullptr;
  }

  PyObject *memory_of(PyObject *tensor) override { return plain_memory(tensor); }
  PyObject *copy_with_memory(PyObject *memory, PyObject **shown, PyObject **copied) override {
    return copy_plain_tensor(memory, shown, copied);
  }

  int can_set_data(PyObject *tensor, PyObject *other) override {
    return is_tensor(other) && as_tensor(tensor)->is_meta == as_tensor(other)->is_meta;
  }

  int set_data(PyObject *tensor, PyObject *other) override {
    return inherits(tensor, names.data) ? swap_array(as_tensor(tensor), other)
                                        : PyObject_SetAttr(tensor, names.data, other);
  }

  int copy_into(PyObject *tensor, PyObject *source) override {
    if (is_plain(tensor)) {
      return copy_values(as_tensor(tensor), source);
    }
    py::object done =
        py::reinterpret_steal<py::object>(PyObject_CallMethod(tensor, "copy_", "O", source));
    return done ? 0 : -1;
  }

  bool is_copied_plainly(PyObject *tensor, PyObject *source) override {
    return is_plain(tensor) && is_plain(source) && !as_tensor(tensor)->is_meta &&
           !as_tensor(source)->is_meta &&
           equal_shapes(as_tensor(tensor)->array, as_tensor(source)->array);
  }

  bool copy_quickly(PyObject *tensor, PyObject *source) override {
    return is_plain(tensor) && is_plain(source) &&
           copy_memory(as_tensor(tensor), as_tensor(source));
  }

  void prefetch(PyObject *tensor) override {
    if (is_plain(tensor)) {
      prefetch_head(as_tensor(tensor)->array, sizeof(PyArrayObject_fields));
    }
  }
  void prefetch_values(PyObject *tensor) override {
    if (is_plain(tensor)) {
      modtree::prefetch(PyArray_DIMS(as_tensor(tensor)->array));
      modtree::prefetch(PyArray_DATA(as_tensor(tensor)->array));
    }
  }

  PyObject *to(PyObject *tensor, PyObject *device, PyObject *dtype, bool,
               PyObject *memory_format) override {
    if (!is_plain(tensor)) {
      const int overrides = class_overrides(Py_TYPE(tensor));
      if (overrides != 0) {
        return overrides < 0 ? nullptr : convert_by_method(tensor, device, dtype, memory_format);
      }
    }
    if (memory_format != Py_None) {
      py::object made = call("to", tensor, device, dtype, Py_False, memory_format);
      return made.release().ptr();
    }
    TensorObject *self = as_tensor(tensor);
    DTypeObject *target = nullptr;
    if (dtype != Py_None && (target = dtype_from_object(dtype)) == nullptr) {
      return nullptr;
    }
    int to_meta = device == Py_None ? self->is_meta : device_is_meta(device);
    return to_meta < 0 ? nullptr : convert_tensor(self, target, to_meta == 1, false);
  }

  PyObject *empty_like(PyObject *tensor, PyObject *device) override {
    if (!is_plain(tensor)) {
      py::object made = call("empty_like", tensor, device);
      return made.release().ptr();
    }
    TensorObject *self = as_tensor(tensor);
    int to_meta = device == Py_None ? self->is_meta : device_is_meta(device);
    if (to_meta < 0) {
      return nullptr;
    }
    PyArrayObject *array = self->array;
    if (to_meta) {
      PyArrayObject *bare =
          meta_array(PyArray_NDIM(array), PyArray_DIMS(array), PyArray_DESCR(array));
      return bare == nullptr ? nullptr : wrap_array(bare, true);
    }
    PyObject *fresh =
        PyArray_SimpleNew(PyArray_NDIM(array), PyArray_DIMS(array), PyArray_TYPE(array));
    return fresh == nullptr ? nullptr : wrap_array(as_array(fresh));
  }

private:
  // tensor.to(), which the class of the tensor takes over.
  static PyObject *convert_by_method(PyObject *tensor, PyObject *device, PyObject *dtype,
                                     PyObject *memory_format) {
    const auto method = py::reinterpret_steal<py::object>(PyObject_GetAttrString(tensor, "to"));
    const auto none = py::reinterpret_steal<py::object>(PyTuple_New(0));
    const auto kwargs = py::reinterpret_steal<py::object>(PyDict_New());
    if (!method || !none || !kwargs) {
      return nullptr;
    }
    const struct {
      const char *name;
      PyObject *value;
    } kGiven[] = {{"device", device}, {"dtype", dtype}, {"memory_format", memory_format}};
    for (const auto &given : kGiven) {
      if (given.value != Py_None &&
          PyDict_SetItemString(kwargs.ptr(), given.name, given.value) < 0) {
        return nullptr;
      }
    }
    return PyObject_Call(method.ptr(), none.ptr(), kwargs.ptr());
  }

  // What a class of its own shows under these names. In functions of their own, so that the others
  // need no frame.
  [[gnu::noinline]] static int shown_requires_grad(PyObject *tensor) {
    const auto flag =
        py::reinterpret_steal<py::object>(PyObject_GetAttr(tensor, names.requires_grad));
    return flag ? PyObject_IsTrue(flag.ptr()) : -1;
  }

  [[gnu::noinline]] static int has_shown_grad_fn(PyObject *tensor) {
    const auto grad_fn = py::reinterpret_steal<py::object>(PyObject_GetAttr(tensor, names.grad_fn));
    return grad_fn ? !grad_fn.is_none() : -1;
  }

  // zero_grad() where the class has a `grad` of its own.
  [[gnu::noinline]] static int zero_shown_grad(PyObject *tensor, bool set_to_none) {
    const auto grad = py::reinterpret_steal<py::object>(PyObject_GetAttr(tensor, names.grad));
    if (!grad || grad.is_none()) {
      return grad ? 0 : -1;
    }
    if (set_to_none) {
      return PyObject_SetAttr(tensor, names.grad, Py_None);
    }
    const bool is_alone = !is_tensor(grad.ptr()) || as_tensor(grad.ptr())->grad_fn == nullptr;
    const auto ready = py::reinterpret_steal<py::object>(
        is_alone ? PyObject_CallMethod(grad.ptr(), "requires_grad_", "O", Py_False)
                 : PyObject_CallMethod(grad.ptr(), "detach_", nullptr));
    const auto done = py::reinterpret_steal<py::object>(
        ready ? PyObject_CallMethod(grad.ptr(), "zero_", nullptr) : nullptr);
    return done ? 0 : -1;
  }

  static bool is_leaf(PyObject *tensor) { return as_tensor(tensor)->grad_fn == nullptr; }

  // Of a class whose methods are ours: no need to call them through Python.
  static bool is_plain(PyObject *tensor) { return is_plain_type(Py_TYPE(tensor)); }
  static bool is_plain_type(PyTypeObject *type) {
    return type == parameter_type() || type == tensor_type;
  }

  // True if the class has the same attribute under this name as Tensor, so that native code may
  // read it from the object.
  static bool inherits(PyObject *tensor, PyObject *name) {
    return is_plain(tensor) || finds_the_same(Py_TYPE(tensor), name);
  }

  [[gnu::noinline]] static bool finds_the_same(PyTypeObject *type, PyObject *name) {
    return type_lookup(type, name).is(type_lookup(tensor_type, name));
  }

  template <typename... Args>
  py::object call(const char *method, Args... args) {
    return py::reinterpret_steal<py::object>(
        PyObject_CallMethodObjArgs(object.ptr(), py::str(method).ptr(), args..., nullptr));
  }
};

}  // namespace

void init_numpy_family() {
  g_is_param = PyUnicode_InternFromString("_is_param");
  g_is_buffer = PyUnicode_InternFromString("_is_buffer");
}

void adopt_parameter_class(PyTypeObject *parameter) {
  use_native_dealloc(parameter);
  plain_parameter_type = parameter;
  seal_parameter_class();
}

void adopt_numpy_family(const py::object &python_family) {
  forget_families();  // what they told of types was for the class that was Parameter before
  auto *family = new NumpyFamily(python_family);  // families live for ever
  register_family(tensor_type, family);
  register_family(parameter_type(), family);
}

}  // namespace modtree
