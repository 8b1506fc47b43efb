// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/op_arguments.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "family/family.h"
#include "python/call.h"
#include "python/once.h"
#include "tensor/fitted.h"
#include "tensor/op_errors.h"

namespace modtree {

namespace {

void raise_unknown_operand(OpObject *op, PyObject *operand) {
  const py::object format = py::reinterpret_steal<py::object>(PyUnicode_FromFormat(
      is_foreign_tensor(operand) ? "%U(): expected a modtree.Tensor or a number, got a tensor of "
                                   "another library, %%S"
                                 : "%U(): expected a Tensor or a number, got %%S",
      op->name));
  const char *text = format ? PyUnicode_AsUTF8(format.ptr()) : nullptr;
  if (text) {
    raise_not_tensor(PyExc_TypeError, text, operand);
  }
}

// Visits each operand slot: fn(borrowed object) -> new object, null for "keep", or *error set.
template <typename Fn>
bool for_operands(OpObject *op, Arguments &args, const Fn &fn) {
  if (op->operands < 0) {
    if (op->first >= args.positional) {
      return true;
    }
    py::object items = py::reinterpret_steal<py::object>(PySequence_List(args.slot(op->first)));
    if (!items) {
      return false;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.ptr()); ++i) {
      PyObject *fresh = nullptr;
      if (!fn(PyList_GET_ITEM(items.ptr(), i), &fresh)) {
        return false;
      }
      if (fresh != nullptr && PyList_SetItem(items.ptr(), i, fresh) < 0) {
        return false;
      }
    }
    args.replace(op->first, items.release().ptr());
    return true;
  }
  for (Py_ssize_t i = op->first; i < op->first + op->operands && i < args.positional; ++i) {
    PyObject *fresh = nullptr;
    if (!fn(args.slot(i), &fresh)) {
      return false;
    }
    if (fresh != nullptr) {
      args.replace(i, fresh);
    }
  }
  return true;
}

// A number that NumPy will treat as a weak Python scalar of dtype `num`; null: keep the object.
// False with an error set.
bool convert_number(PyObject *number, int num, bool is_compare, PyObject **fresh) {
  PyObject *plain = number;
  py::object held;
  if (PyArray_CheckScalar(number)) {
    held = py::reinterpret_steal<py::object>(PyObject_CallMethod(number, "item", nullptr));
    if (!held) {
      return false;
    }
    plain = held.ptr();
  }
  DTypeObject *dtype = dtype_of_num(num);
  if (PyBool_Check(plain) && dtype->category != DTypeCategory::boolean) {
    // Derivatives compute with it as with any other number.
    *fresh = PyLong_FromLong(plain == Py_True);
    return *fresh != nullptr;
  }
  if (PyLong_Check(plain) && !PyBool_Check(plain)) {
    int overflow = 0;
    PyLong_AsLongLongAndOverflow(plain, &overflow);
    if (overflow < 0 || (overflow > 0 && PyLong_AsUnsignedLongLong(plain) == ~0ULL &&
                         PyErr_Occurred() != nullptr)) {
      PyErr_SetString(PyExc_OverflowError, "int too big to convert");
      return false;
    }
  }
  if (PyLong_Check(plain) && dtype->category == DTypeCategory::integral && !is_compare) {
    int overflow = 0;
    long long value = PyLong_AsLongLongAndOverflow(plain, &overflow);
    Py_ssize_t bits = 8 * PyDataType_ELSIZE(dtype->descr) - (dtype->is_signed ? 1 : 0);
    bool fits = overflow == 0 && (value >= 0 || dtype->is_signed) &&
                (bits >= 63 || (value < (1LL << bits) && value >= -(1LL << bits)));
    if (!fits) {  // wraps around, as a cast from 64 bits does
      const int wide_num = overflow == 0 ? NPY_INT64 : NPY_UINT64;
      PyObject *wide = PyArray_FromAny(plain, PyArray_DescrFromType(wide_num), 0, 0, 0, nullptr);
      if (wide == nullptr) {
        return false;
      }
      *fresh = PyArray_CastToType(as_array(wide), (Py_INCREF(dtype->descr), dtype->descr), 0);
      Py_DECREF(wide);
      return *fresh != nullptr;
    }
  }
  if (held) {
    *fresh = held.release().ptr();
  }
  return true;
}

// True if bases of dtype `num` may have the number as exponent; else false, with an error set.
bool exponent_fits(PyObject *number, int num) {
  DTypeObject *dtype = dtype_of_num(num);
  const bool whole = dtype->category == DTypeCategory::integral;
  if (!whole && num != NPY_HALF) {
    return true;
  }
  if (whole && PyLong_Check(number)) {
    const double value = PyLong_AsDouble(number);
    if (value == -1.0 && PyErr_Occurred()) {
      return false;
    }
    if (value < 0) {
      PyErr_SetString(PyExc_RuntimeError, "Integers to negative integer powers are not allowed.");
      return false;
    }
  }
  return static_cast<bool>(py::reinterpret_steal<py::object>(fitted_number(number, dtype)));
}

// True for a float or an int that float16 cannot represent.
bool is_inexact_half(PyObject *number) {
  const double value = PyFloat_Check(number)  ? PyFloat_AS_DOUBLE(number)
                       : PyLong_Check(number) ? PyLong_AsDouble(number)
                                              : 0.0;
  if (value == -1.0) {
    PyErr_Clear();  // an int beyond double, which is refused elsewhere
    return false;
  }
  if (!std::isfinite(value)) {
    return false;
  }
  // It has eleven digits, and steps of 2 ** -24 at least.
  int exponent;
  const double digits = std::ldexp(std::frexp(value, &exponent), 11);
  const double steps = std::ldexp(value, 24);
  return digits != std::floor(digits) || steps != std::floor(steps) || std::fabs(value) > 65504;
}

// A number as an array of float32 without dimensions. New reference, null on error.
PyObject *single_of(PyObject *number) {
  const double value = PyFloat_AsDouble(number);
  if (value == -1.0 && PyErr_Occurred()) {
    return nullptr;
  }
  PyObject *array = PyArray_SimpleNew(0, nullptr, NPY_FLOAT);
  if (array != nullptr) {
    *static_cast<float *>(PyArray_DATA(as_array(array))) = static_cast<float>(value);
  }
  return array;
}

bool is_stored(PyObject *value) {
  return PyArray_Check(value) && PyTypeNum_ISUSERDEF(PyArray_TYPE(as_array(value)));
}

// Tensors of dtypes that NumPy knows only by the package ml_dtypes (bfloat16, float8) are for
// storing: views, copies, parts, joining and comparisons with their own kind. False with an error
// set for what would compute with them.
bool only_stores(OpObject *op, Arguments &args) {
  PyObject *stored = nullptr;
  for (Py_ssize_t i = 0; i < args.positional && stored == nullptr; ++i) {
    PyObject *value = args.slot(i);
    if (is_stored(value)) {
      stored = value;
    } else if (PyList_CheckExact(value) && PyList_GET_SIZE(value) > 0 &&
               is_stored(PyList_GET_ITEM(value, 0))) {
      stored = PyList_GET_ITEM(value, 0);
    }
  }
  if (stored == nullptr || op->is_view) {
    return true;
  }
  static constexpr const char *kAllowed[] = {"cat",  "clone",        "contiguous", "detach",
                                             "flip", "index_select", "roll",       "stack"};
  bool allowed = op->promotion == Promotion::compare;
  for (const char *name : kAllowed) {
    allowed = allowed || PyUnicode_CompareWithASCIIString(op->name, name) == 0;
  }
  const int num = PyArray_TYPE(as_array(stored));
  if (allowed) {
    bool same = true;
    for_operands(op, args, [&](PyObject *value, PyObject **) {
      same = same && (!PyArray_Check(value) || PyArray_TYPE(as_array(value)) == num);
      return true;
    });
    allowed = same;
  }
  if (!allowed) {
    PyErr_Format(PyExc_NotImplementedError,
                 "\"%U\" not implemented for '%s': tensors of this dtype are for storing here. "
                 "Compute with .float() of them, and convert the result back with .to(...)",
                 op->name, scalar_type_name(num));
  }
  return allowed;
}

}  // namespace

PyObject *Arguments::convert_list(PyObject *const *args, Py_ssize_t count, Py_ssize_t place) {
  py::object items = py::reinterpret_steal<py::object>(tuple_of_list(args[place]));
  if (!items) {
    return nullptr;
  }
  const Py_ssize_t n = PyTuple_GET_SIZE(items.ptr());
  PyObject *list = PyList_New(n);
  bool found = false;
  for (Py_ssize_t i = 0; list != nullptr && i < n; ++i) {
    PyObject *item = PyTuple_GET_ITEM(items.ptr(), i);
    found |= is_tensor(item);
    PyList_SET_ITEM(list, i, unwrap_item(item));
  }
  if (found) {
    if (originals_ != copied_originals_) {
      std::copy(args, args + count, copied_originals_);
      originals_ = copied_originals_;
    }
    copied_originals_[place] = items.release().ptr();
    owned_originals_ |= std::uint32_t{1} << place;
  }
  return list;
}

namespace {

// An array object of our own over the memory of the caller's, of the same class. New reference,
// null on error.
PyObject *own_view(PyObject *array) {
  return PyArray_CheckExact(array) ? taken_view(as_array(array))
                                   : PyArray_View(as_array(array), nullptr, nullptr);
}

// A value of a call with views in place of its arrays; `original` is what it was made of. New
// reference, null on error.
PyObject *with_views(PyObject *value, PyObject *original) {
  if (PyArray_Check(value)) {
    return is_tensor(original) ? Py_NewRef(value) : own_view(value);
  }
  const bool is_list = PyList_CheckExact(value);
  if (!is_list && !PyTuple_CheckExact(value)) {
    return Py_NewRef(value);
  }
  const auto items = py::reinterpret_steal<py::object>(tuple_of_items(value));
  auto viewed = py::reinterpret_steal<py::object>(items ? PySequence_List(items.ptr()) : nullptr);
  for (Py_ssize_t i = 0; viewed && i < PyTuple_GET_SIZE(items.ptr()); ++i) {
    // A list without tensors is still the caller's: none of its items is one.
    const bool has_original = PyTuple_CheckExact(original) && i < PyTuple_GET_SIZE(original);
    PyObject *item = PyTuple_GET_ITEM(items.ptr(), i);
    if (!PyArray_Check(item) || (has_original && is_tensor(PyTuple_GET_ITEM(original, i)))) {
      continue;
    }
    PyObject *view = own_view(item);
    if (view == nullptr || PyList_SetItem(viewed.ptr(), i, view) < 0) {
      return nullptr;
    }
  }
  return is_list || !viewed ? viewed.release().ptr() : PyList_AsTuple(viewed.ptr());
}

}  // namespace

bool Arguments::take_views() {
  for (Py_ssize_t i = 0; i < total; ++i) {
    PyObject *viewed = with_views(slot(i), originals_[i]);
    if (viewed == nullptr) {
      return false;
    }
    replace(i, viewed);
  }
  return true;
}

bool promote(OpObject *op, Arguments &args, int *num) {
  *num = -1;
  if (any_stored_dtype && !only_stores(op, args)) {
    return false;
  }
  if (op->promotion == Promotion::none || op->promotion == Promotion::logical) {
    PyObject *own = args.positional > op->first ? args.slot(op->first) : nullptr;
    const bool unfit =
        own != nullptr && PyArray_Check(own) && op->unfit.has(PyArray_TYPE(as_array(own)));
    if (unfit) {
      raise_unfit(op->name, op->unfit, PyArray_TYPE(as_array(own)));
    }
    return !unfit;
  }
  ResultType type;
  bool any_bool = false;
  bool any_array = false;
  bool ok = for_operands(op, args, [&](PyObject *value, PyObject **) {
    DTypeCategory category;
    if (PyArray_Check(value)) {
      if (dtype_of(as_array(value)) == nullptr) {
        PyErr_Format(PyExc_TypeError, "%U: unsupported dtype %S of an operand", op->name,
                     reinterpret_cast<PyObject *>(PyArray_DESCR(as_array(value))));
        return false;
      }
      type.add_array(as_array(value));
      any_array = true;
      any_bool = any_bool || PyArray_TYPE(as_array(value)) == NPY_BOOL;
    } else if (number_category(value, &category)) {
      if (op->tensors_only || op->operands == 1) {
        PyErr_Format(PyExc_TypeError,
                     "%U(): expected a Tensor in every place, got %s: wrap it with "
                     "modtree.tensor(...)",
                     op->name, Py_TYPE(value)->tp_name);
        return false;
      }
      any_bool = any_bool || category == DTypeCategory::boolean;
      type.add_number(category);
    } else if (value != Py_None) {
      raise_unknown_operand(op, value);
      return false;
    }
    return true;
  });
  int result = type.result();
  if (!ok || result < 0) {
    return ok;
  }
  if (op->unfit.has(result)) {
    raise_unfit(op->name, op->unfit, result);
    return false;
  }
  DTypeCategory category = dtype_of_num(result)->category;
  if (op->promotion == Promotion::floating && !is_float_category(category)) {
    result = default_float_num();
  }
  if (op->promotion == Promotion::bitwise && is_float_category(category)) {
    PyErr_Format(PyExc_NotImplementedError, "\"%U\" not implemented for '%s'", op->name,
                 scalar_type_name(result));
    return false;
  }
  if (op->no_bool && any_bool) {
    raise_no_bool(op->name);
    return false;
  }
  *num = result;
  PyArray_Descr *descr = dtype_of_num(result)->descr;
  bool is_compare = op->promotion == Promotion::compare;
  return for_operands(op, args, [&](PyObject *value, PyObject **fresh) {
    if (PyArray_Check(value)) {
      PyArrayObject *array = as_array(value);
      if (PyArray_TYPE(array) == result) {
        return true;
      }
      if (op->promotion == Promotion::same) {
        raise_dtype_mismatch(op->name, PyArray_TYPE(array), result);
        return false;
      }
      if (args.any_meta) {
        *fresh = as_object(meta_array(PyArray_NDIM(array), PyArray_DIMS(array), descr));
      } else {
        Py_INCREF(descr);
        *fresh = PyArray_CastToType(array, descr, 0);
      }
      return *fresh != nullptr;
    }
    if (value == Py_None) {
      return true;
    }
    if (op->fitting == kFittingExponent && value != args.slot(op->first) &&
        !exponent_fits(value, result)) {
      return false;
    }
    if (result == NPY_HALF && op->fitting == kFittingSingle && is_inexact_half(value)) {
      *fresh = single_of(value);
      return *fresh != nullptr;
    }
    if (op->fitting == kFittingAll
            ? (*fresh = fitted_number(value, dtype_of_num(result))) == nullptr
            : !convert_number(value, result, is_compare, fresh)) {
      return false;
    }
    if ((!op->is_ufunc || !any_array) && (*fresh == nullptr || !PyArray_Check(*fresh))) {
      // Only ufuncs know weak Python numbers, beside an array: everything else gets a 0-d array.
      PyObject *number = *fresh == nullptr ? value : *fresh;
      Py_INCREF(descr);
      PyObject *array = PyArray_FromAny(number, descr, 0, 0, NPY_ARRAY_FORCECAST, nullptr);
      Py_XDECREF(*fresh);
      *fresh = array;
      return array != nullptr;
    }
    return true;
  });
}

bool divisor_is_valid(OpObject *op, Arguments &args, int num) {
  if (!op->check_zero || num < 0 || is_float_category(dtype_of_num(num)->category) ||
      args.positional < 2 || args.any_meta) {
    return true;
  }
  PyObject *dividend = args.slot(0);
  if (PyArray_Check(dividend) && PyArray_SIZE(as_array(dividend)) == 0) {
    return true;  // nothing is divided
  }
  PyObject *divisor = args.slot(1);
  bool zero;
  if (PyArray_Check(divisor)) {
    npy_intp nonzero = PyArray_CountNonzero(as_array(divisor));
    if (nonzero < 0) {
      return false;
    }
    zero = nonzero != PyArray_SIZE(as_array(divisor));
  } else {
    int truth = PyObject_IsTrue(divisor);
    if (truth < 0) {
      return false;
    }
    zero = truth == 0;
  }
  if (zero) {
    PyErr_SetString(PyExc_RuntimeError, "ZeroDivisionError: integer division by zero");
  }
  return !zero;
}

}  // namespace modtree
