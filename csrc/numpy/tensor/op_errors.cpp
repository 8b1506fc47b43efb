// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/op_errors.h"

#include <string>
#include <string_view>

#include "family/family.h"
#include "python/call.h"
#include "python/once.h"
#include "python/slot_guard.h"

namespace modtree {

namespace {

std::string shape_string(int ndim, const npy_intp *shape) {
  std::string text = "[";
  for (int i = 0; i < ndim; ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  }
  return text + "]";
}

std::string shape_string(PyArrayObject *array) {
  return shape_string(PyArray_NDIM(array), PyArray_DIMS(array));
}

// The dimension at which two shapes do not broadcast; false when they do.
bool find_mismatch(PyArrayObject *a, PyArrayObject *b, npy_intp *size_a, npy_intp *size_b,
                   int *dim) {
  int na = PyArray_NDIM(a);
  int nb = PyArray_NDIM(b);
  int n = std::max(na, nb);
  for (int i = 1; i <= std::min(na, nb); ++i) {
    *size_a = PyArray_DIM(a, na - i);
    *size_b = PyArray_DIM(b, nb - i);
    if (*size_a != *size_b && *size_a != 1 && *size_b != 1) {
      *dim = n - i;
      return true;
    }
  }
  return false;
}

// "(float32[2, 3], float32[4])"
std::string describe(PyObject *const *args, Py_ssize_t nargs) {
  std::string text = "(";
  bool first = true;
  for (Py_ssize_t i = 0; i < nargs; ++i) {
    if (!PyArray_Check(args[i])) {
      continue;
    }
    DTypeObject *dtype = dtype_of(as_array(args[i]));
    const char *name = dtype == nullptr ? nullptr : PyUnicode_AsUTF8(dtype->name);
    text += first ? "" : ", ";
    text += name == nullptr ? "?" : name;
    text += shape_string(as_array(args[i]));
    first = false;
  }
  return text + ")";
}

bool translate_axis_error(py::object &value) {
  py::object axis = py::getattr(value, "axis", py::none());
  py::object ndim = py::getattr(value, "ndim", py::none());
  if (!PyLong_Check(axis.ptr()) || !PyLong_Check(ndim.ptr())) {
    return false;
  }
  long n = std::max(1L, PyLong_AsLong(ndim.ptr()));
  PyErr_Format(PyExc_IndexError,
               "Dimension out of range (expected to be in range of [%ld, %ld], but got %S)", -n,
               n - 1, axis.ptr());
  return true;
}

void translate_value_error(PyObject *op_name, PyObject *const *args, Py_ssize_t nargs,
                           PyArrayObject *target) {
  py::error_already_set error;  // takes the pending error
  py::object value = error.value();
  if (PyErr_GivenExceptionMatches(error.type().ptr(), PyExc_IndexError)) {
    if (translate_axis_error(value)) {
      return;
    }
    error.restore();
    return;
  }
  if (!error.type().is(py::handle(PyExc_ValueError))) {
    error.restore();  // UnicodeError and other subclasses have nothing to do with shapes
    return;
  }
  std::string details;
  if (nargs >= 2 && PyArray_Check(args[0]) && PyArray_Check(args[1])) {
    npy_intp size_a, size_b;
    int dim;
    std::string message = py::str(value);
    if (message.find("broadcast") != std::string::npos &&
        find_mismatch(as_array(args[0]), as_array(args[1]), &size_a, &size_b, &dim)) {
      PyErr_Format(PyExc_RuntimeError,
                   "The size of tensor a (%zd) must match the size of tensor b (%zd) at "
                   "non-singleton dimension %d (in %U, shapes %s and %s)",
                   size_a, size_b, dim, op_name, shape_string(as_array(args[0])).c_str(),
                   shape_string(as_array(args[1])).c_str());
      return;
    }
    if (target != nullptr && message.find("broadcast") != std::string::npos) {
      npy_intp shape[NPY_MAXDIMS];
      int ndim = 0;
      if (broadcast_into(as_array(args[0]), shape, &ndim) &&
          broadcast_into(as_array(args[1]), shape, &ndim)) {
        PyErr_Format(PyExc_RuntimeError,
                     "output with shape %s doesn't match the broadcast shape %s (in %U_)",
                     shape_string(target).c_str(), shape_string(ndim, shape).c_str(), op_name);
      }
      return;
    }
  }
  PyErr_Format(PyExc_RuntimeError, "%U%s: %S", op_name, describe(args, nargs).c_str(), value.ptr());
}

// A ufunc that has no loop for the dtypes, which torch reports as a missing kernel.
void translate_ufunc_error(PyObject *op_name, PyObject *const *args, Py_ssize_t nargs) {
  py::error_already_set error;  // takes the pending error
  const std::string message = py::str(error.value());
  if (message.rfind("ufunc '", 0) != 0) {
    error.restore();
    return;
  }
  PyErr_Format(PyExc_NotImplementedError, "\"%U\" not implemented for %s", op_name,
               describe(args, nargs).c_str());
}

}  // namespace

py::object type_text(PyTypeObject *type) {
  auto *object = reinterpret_cast<PyObject *>(type);
  const py::object module = get_attribute(object, "__module__");
  const py::object name = module ? get_attribute(object, "__qualname__") : py::object();
  const bool is_builtin = name && PyUnicode_Check(module.ptr()) &&
                          PyUnicode_CompareWithASCIIString(module.ptr(), "builtins") == 0;
  auto text = is_builtin ? name
              : name     ? py::reinterpret_steal<py::object>(
                           PyUnicode_FromFormat("%S.%S", module.ptr(), name.ptr()))
                     : py::object();
  if (!text) {
    PyErr_Clear();
    text = py::reinterpret_steal<py::object>(PyUnicode_FromString(type->tp_name));
  }
  return text;
}

bool is_foreign_tensor(PyObject *value) {
  if (is_tensor(value)) {
    return false;
  }
  const bool found = family_of_type(Py_TYPE(value)) != nullptr;
  PyErr_Clear();
  return found;
}

py::object advice_on(PyObject *value, bool both_ways) {
  const bool foreign = is_foreign_tensor(value);
  const py::object module =
      foreign ? get_attribute(reinterpret_cast<PyObject *>(Py_TYPE(value)), "__module__")
              : py::object();
  PyErr_Clear();
  const auto torch = py::reinterpret_steal<py::object>(PyUnicode_FromString("torch"));
  const bool is_torchs = module && torch && PyUnicode_Check(module.ptr()) &&
                         PyUnicode_Tailmatch(module.ptr(), torch.ptr(), 0, PY_SSIZE_T_MAX, -1) > 0;
  const char *advice = !foreign     ? ""
                       : !is_torchs ? "; modtree.tensor(array) makes one of the values"
                       : both_ways
                           ? "; modtree.from_torch(tensor) makes one of modtree's of torch's, "
                             "modtree.to_torch(tensor) one of torch's of modtree's"
                           : "; modtree.from_torch(tensor) makes one of torch's";
  return py::reinterpret_steal<py::object>(PyUnicode_FromString(advice));
}

void raise_not_tensor(PyObject *kind, const char *format, PyObject *value) {
  const auto held = py::reinterpret_borrow<py::object>(value);
  const py::object type = type_text(Py_TYPE(value));
  const py::object advice = type ? advice_on(value) : py::object();
  const auto text =
      advice ? py::reinterpret_steal<py::object>(PyUnicode_FromFormat(format, type.ptr()))
             : py::object();
  if (text) {
    PyErr_Format(kind, "%U%U", text.ptr(), advice.ptr());
  }
}

namespace {

// A tensor of another library, also within a tuple or list; empty when there is none.
py::object find_foreign(PyObject *const *args, Py_ssize_t count) {
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!PyTuple_CheckExact(args[i]) && !PyList_CheckExact(args[i])) {
      if (is_foreign_tensor(args[i])) {
        return py::reinterpret_borrow<py::object>(args[i]);
      }
      continue;
    }
    // By index, with the size read again each time: the look at a class may change a list.
    for (Py_ssize_t j = 0; j < PySequence_Fast_GET_SIZE(args[i]); ++j) {
      const auto item = py::reinterpret_borrow<py::object>(PySequence_Fast_GET_ITEM(args[i], j));
      if (is_foreign_tensor(item.ptr())) {
        return item;
      }
    }
  }
  return {};
}

// True if a reader would take the error for one about the values, since both libraries have a
// Tensor.
bool is_confusing(const py::error_already_set &error, PyTypeObject *foreign, bool any_error) {
  const py::object text = py::reinterpret_steal<py::object>(PyObject_Str(error.value().ptr()));
  const char *message = text ? PyUnicode_AsUTF8(text.ptr()) : nullptr;
  const py::object full = message ? type_text(foreign) : py::object();
  const char *name = full ? PyUnicode_AsUTF8(full.ptr()) : nullptr;
  if (!name) {
    PyErr_Clear();
    return false;
  }
  const std::string_view said(message);
  if (said.find(name) != std::string_view::npos) {
    return false;
  }
  const auto is = [&](PyObject *kind) { return error.matches(kind); };
  if (is(PyExc_AttributeError)) {
    return true;
  }
  if (any_error) {
    return is(PyExc_TypeError) || is(PyExc_RuntimeError) || is(PyExc_ValueError);
  }
  return is(PyExc_TypeError) && said.find(foreign->tp_name) != std::string_view::npos;
}

}  // namespace

void name_foreign_argument(PyObject *name, PyObject *const *args, Py_ssize_t count,
                           bool any_error) {
  if (!PyErr_ExceptionMatches(PyExc_Exception)) {
    return;
  }
  slot_guard(0, [&] {
    py::error_already_set error;  // takes the pending error
    const py::object foreign = find_foreign(args, count);
    if (!foreign || !is_confusing(error, Py_TYPE(foreign.ptr()), any_error)) {
      error.restore();
      return 0;
    }
    const py::object type = type_text(Py_TYPE(foreign.ptr()));
    const py::object advice = type ? advice_on(foreign.ptr()) : py::object();
    const auto text =
        advice ? py::reinterpret_steal<py::object>(PyUnicode_FromFormat(
                     "%S(): expected a modtree.Tensor, got a %U%U", name, type.ptr(), advice.ptr()))
               : py::object();
    const char *message = text ? PyUnicode_AsUTF8(text.ptr()) : nullptr;
    if (message) {
      py::raise_from(error, PyExc_TypeError, message);
    }
    return 0;
  });
}

PyObject *shape_text(PyArrayObject *array) {
  return PyUnicode_FromString(shape_string(array).c_str());
}

void translate_error(PyObject *op_name, PyObject *const *args, Py_ssize_t nargs,
                     PyArrayObject *target) {
  if (PyErr_ExceptionMatches(PyExc_TypeError)) {
    slot_guard(0, [&] {
      translate_ufunc_error(op_name, args, nargs);
      return 0;
    });
    return;
  }
  if (PyErr_ExceptionMatches(PyExc_ValueError)) {
    // Asking a foreign error for its text may fail in its turn.
    slot_guard(0, [&] {
      translate_value_error(op_name, args, nargs, target);
      return 0;
    });
  }
}

void raise_no_bool(PyObject *op_name) {
  PyErr_Format(PyExc_RuntimeError,
               "%U: the `-` operator, with a bool tensor or a bool is not supported. Use `^` or "
               "logical_xor() instead, and `~` or logical_not() for the negation",
               op_name);
}

void raise_dtype_mismatch(PyObject *op_name, int a, int b) {
  PyErr_Format(PyExc_RuntimeError,
               "%U: expected operands to have the same dtype, but got: %s and %s. Convert one "
               "with .to(dtype)",
               op_name, scalar_type_name(b), scalar_type_name(a));
}

void raise_output_shape(PyArrayObject *target, PyArrayObject *result) {
  PyErr_Format(PyExc_RuntimeError, "output with shape %s doesn't match the broadcast shape %s",
               shape_string(target).c_str(), shape_string(result).c_str());
}

void raise_output_dtype(PyObject *op_name, int result, int target) {
  PyErr_Format(PyExc_RuntimeError,
               "result type %s can't be cast to the desired output type %s (in %U_)",
               scalar_type_name(result), scalar_type_name(target), op_name);
}

bool broadcast_into(PyArrayObject *array, npy_intp *shape, int *ndim) {
  int n = PyArray_NDIM(array);
  if (n > *ndim) {  // shift what is there to the right
    int shift = n - *ndim;
    for (int i = *ndim - 1; i >= 0; --i) {
      shape[i + shift] = shape[i];
    }
    for (int i = 0; i < shift; ++i) {
      shape[i] = 1;
    }
    *ndim = n;
  }
  for (int i = 1; i <= n; ++i) {
    npy_intp size = PyArray_DIM(array, n - i);
    npy_intp &have = shape[*ndim - i];
    if (have == 1) {
      have = size;
    } else if (size != 1 && size != have) {
      PyErr_Format(PyExc_RuntimeError,
                   "The size of tensor a (%zd) must match the size of tensor b (%zd) at "
                   "non-singleton dimension %d",
                   have, size, *ndim - i);
      return false;
    }
  }
  return true;
}

PyObject *meta_from_spec(PyObject *spec) {
  if (PyList_CheckExact(spec)) {
    const NestedCall nested("reading the shapes of a result");
    if (!nested.entered()) {
      return nullptr;
    }
    py::object items = py::reinterpret_steal<py::object>(tuple_of_list(spec));
    if (!items) {
      return nullptr;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(items.ptr());
    py::object result = py::reinterpret_steal<py::object>(PyTuple_New(n));
    for (Py_ssize_t i = 0; result && i < n; ++i) {
      PyObject *item = meta_from_spec(PyTuple_GET_ITEM(items.ptr(), i));
      if (item == nullptr) {
        return nullptr;
      }
      PyTuple_SET_ITEM(result.ptr(), i, item);
    }
    return result.release().ptr();
  }
  PyObject *shape_obj, *dtype_obj;
  if (!PyArg_ParseTuple(spec, "OO:meta", &shape_obj, &dtype_obj)) {
    return nullptr;
  }
  PyArray_Dims dims{nullptr, 0};
  if (PyArray_IntpConverter(shape_obj, &dims) != NPY_SUCCEED) {
    return nullptr;
  }
  PyObject *result = nullptr;
  if (DTypeObject *dtype = dtype_from_object(dtype_obj)) {
    result = reinterpret_cast<PyObject *>(meta_array(dims.len, dims.ptr, dtype->descr));
  }
  PyDimMem_FREE(dims.ptr);
  return result;
}

}  // namespace modtree
