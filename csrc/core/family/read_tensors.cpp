// SPDX-License-Identifier: BSD-3-Clause
#include "family/read_tensors.h"

#include <algorithm>
#include <limits>

#include "family/family.h"
#include "python/call.h"
#include "python/owned.h"
#include "python/signals.h"

namespace modtree {

namespace {

// As NumPy and torch call it; null for what neither has.
const char *dtype_name(dlpack::DataType dtype) {
  const auto pick = [&](const char *of8, const char *of16, const char *of32, const char *of64) {
    return dtype.bits == 8    ? of8
           : dtype.bits == 16 ? of16
           : dtype.bits == 32 ? of32
           : dtype.bits == 64 ? of64
                              : nullptr;
  };
  if (dtype.lanes != 1) {
    return nullptr;
  }
  switch (dtype.code) {
    case dlpack::kInt:
      return pick("int8", "int16", "int32", "int64");
    case dlpack::kUInt:
      return pick("uint8", "uint16", "uint32", "uint64");
    case dlpack::kFloat:
      return pick(nullptr, "float16", "float32", "float64");
    case dlpack::kBfloat:
      return pick(nullptr, "bfloat16", nullptr, nullptr);
    case dlpack::kComplex:
      return dtype.bits == 128 ? "complex128" : pick(nullptr, nullptr, "complex32", "complex64");
    case dlpack::kBool:
      return pick("bool", nullptr, nullptr, nullptr);
    case dlpack::kFloat8E4m3fn:
      return pick("float8_e4m3fn", nullptr, nullptr, nullptr);
    case dlpack::kFloat8E4m3fnuz:
      return pick("float8_e4m3fnuz", nullptr, nullptr, nullptr);
    case dlpack::kFloat8E5m2:
      return pick("float8_e5m2", nullptr, nullptr, nullptr);
    case dlpack::kFloat8E5m2fnuz:
      return pick("float8_e5m2fnuz", nullptr, nullptr, nullptr);
    case dlpack::kFloat8E8m0fnu:
      return pick("float8_e8m0fnu", nullptr, nullptr, nullptr);
    default:
      return nullptr;
  }
}

bool is_empty(const TensorFacts &facts) {
  return std::any_of(facts.shape, facts.shape + facts.ndim, [](auto size) { return size == 0; });
}

// The number of bytes of all elements; -1 where it does not fit: an expanded tensor has more of
// them than memory.
std::int64_t bytes_of(const TensorFacts &facts) {
  std::int64_t bytes = is_empty(facts) ? 0 : facts.dtype.bits / 8;
  for (int i = 0; bytes != 0 && i < facts.ndim; ++i) {
    if (bytes > std::numeric_limits<std::int64_t>::max() / facts.shape[i]) {
      return -1;
    }
    bytes *= facts.shape[i];
  }
  return bytes;
}

// True if the values follow each other in the order of their indices.
bool is_contiguous(const TensorFacts &facts) {
  if (is_empty(facts)) {
    return true;
  }
  std::int64_t expected = 1;
  for (int i = facts.ndim - 1; i >= 0; --i) {
    if (facts.shape[i] != 1 && facts.strides[i] != expected) {
      return false;
    }
    expected *= facts.shape[i];  // at most the elements in memory
  }
  return true;
}

Owned shape_tuple(const TensorFacts &facts) {
  Owned shape = steal(PyTuple_New(facts.ndim));
  for (int i = 0; shape && i < facts.ndim; ++i) {
    PyObject *length = PyLong_FromLongLong(facts.shape[i]);
    if (!length) {
      return Owned();
    }
    PyTuple_SET_ITEM(shape.ptr(), i, length);
  }
  return shape;
}

// New reference, null on error.
PyObject *read_tensor(PyObject *tensor) {
  TensorFamily *family;
  const int is_tensor = family_of(tensor, &family);
  TensorFacts facts;
  const Read read = is_tensor < 0   ? Read::error
                    : is_tensor > 0 ? family->read_values(tensor, &facts)
                                    : Read::unknown;
  const char *name = read == Read::done ? dtype_name(facts.dtype) : nullptr;
  if (!name) {
    return read == Read::error ? nullptr : Py_NewRef(Py_None);
  }
  const Owned shape = shape_tuple(facts);
  const std::int64_t bytes = bytes_of(facts);
  if (shape && bytes < 0) {
    PyErr_Format(
        PyExc_RuntimeError,
        "numel: integer multiplication overflow: a tensor of %s of shape %S has more bytes "
        "than a number of 64 bits can say. Read the tensor that it was expanded from",
        name, shape.ptr());
    return nullptr;
  }
  return shape ? Py_BuildValue("sOnnO", name, shape.ptr(), reinterpret_cast<Py_ssize_t>(facts.data),
                               static_cast<Py_ssize_t>(bytes),
                               is_contiguous(facts) ? Py_True : Py_False)
               : nullptr;
}

}  // namespace

py::object read_tensors(py::handle tensors) {
  // Through an iterator: reading a tensor, or making a list, may run code that changes a list.
  const Owned iterator = steal(PyObject_GetIter(tensors.ptr()));
  Owned found = iterator ? steal(PyList_New(0)) : Owned();
  SignalCheck signals;
  while (found && signals.step() == 0) {
    const Owned tensor = steal(PyIter_Next(iterator.ptr()));
    const Owned read = tensor ? steal(read_tensor(tensor.ptr())) : Owned();
    if (!read && !PyErr_Occurred()) {
      return found;
    }
    if (!read || PyList_Append(found.ptr(), read.ptr()) < 0) {
      break;
    }
  }
  throw py::error_already_set();
}

}  // namespace modtree
