// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/parameter_pickle.h"

#include <cstring>

#include "python/compat.h"
#include "python/installed.h"
#include "python/native_section.h"
#include "python/owned.h"
#include "python/slot_guard.h"
#include "tensor/array_view.h"
#include "tensor/parameter_copy.h"

namespace modtree {

namespace {

// Up to this size the bytes of a pickle are copied into an array, which costs less than one over
// them.
constexpr Py_ssize_t kCopied = 4096;

PyObject *parameter_of_bytes = nullptr;  // strong
PyObject *dtypes_by_name = nullptr;      // strong

// True if the memory of the array, from its first byte to the last, is what a pickle is to contain.
// Pickles have the byte order of nearly every machine.
bool has_plain_values(PyArrayObject *array) {
  const bool is_number = PyArray_ISNUMBER(array) || PyArray_ISBOOL(array);
  return !PY_BIG_ENDIAN && is_number && PyArray_ISCARRAY(array);
}

// (function, (bytes, dtype, shape, requires_grad)): new reference, null on error. Protocol 5 can
// leave the bytes where they are.
PyObject *reduction_to_bytes(TensorObject *self, bool as_buffer) {
  const bool requires_grad = needs_grad(self);
  // Owned: an allocation may run code that assigns to `data`.
  const auto held = py::reinterpret_borrow<Owned>(as_object(self->array));
  PyArrayObject *array = as_array(held.ptr());
  // A buffer shows what it is of, which must not be the array.
  const auto shown = as_buffer ? steal(shown_bytes(array)) : held;
  const auto bytes =
      !shown
          ? Owned()
          : steal(as_buffer
                      ? PyPickleBuffer_FromObject(shown.ptr())
                      : PyBytes_FromStringAndSize(static_cast<const char *>(PyArray_DATA(array)),
                                                  static_cast<Py_ssize_t>(PyArray_NBYTES(array))));
  const auto shape =
      bytes ? steal(PyArray_IntTupleFromIntp(PyArray_NDIM(array), PyArray_DIMS(array))) : Owned();
  const auto arguments = shape
                             ? steal(PyTuple_Pack(4, bytes.ptr(), dtype_or_none(array)->name,
                                                  shape.ptr(), requires_grad ? Py_True : Py_False))
                             : Owned();
  return arguments ? PyTuple_Pack(2, parameter_of_bytes, arguments.ptr()) : nullptr;
}

// 5 or more, 3 or 4, 0 for one that cannot hold bytes (or is not a protocol), -1 on error.
int kind_of_protocol(PyObject *protocol) {
  if (!PyLong_CheckExact(protocol)) {
    return 0;
  }
  const long number = PyLong_AsLong(protocol);
  if (number == -1 && PyErr_Occurred()) {
    return -1;
  }
  return number >= 5 ? 5 : number >= 3 ? 3 : 0;
}

int refuse(const char *what, PyObject *got) {
  PyErr_Format(PyExc_ValueError, "the pickled parameter is damaged: %s, got %R", what, got);
  return -1;
}

// What a pickle says of a parameter, after a look at it.
struct Description {
  DTypeObject *dtype = nullptr;  // immortal
  int dimensions = 0;
  npy_intp shape[NPY_MAXDIMS];
  Py_ssize_t bytes = 0;
  bool requires_grad = false;

  // -1 with an error set for what is none.
  int read(PyObject *name, PyObject *sizes, PyObject *flag) {
    PyObject *found = PyUnicode_CheckExact(name) ? dict_get_str(dtypes_by_name, name) : nullptr;
    dtype = reinterpret_cast<DTypeObject *>(found);
    if (found == nullptr || dtype->descr == nullptr) {
      return refuse("its dtype must be the name of one", name);
    }
    if (!PyBool_Check(flag)) {
      return refuse("requires_grad must be a bool", flag);
    }
    requires_grad = flag == Py_True;
    return read_shape(sizes);
  }

private:
  int read_shape(PyObject *sizes) {
    if (!PyTuple_CheckExact(sizes) || PyTuple_GET_SIZE(sizes) > NPY_MAXDIMS) {
      return refuse("its shape must be a tuple of sizes", sizes);
    }
    dimensions = static_cast<int>(PyTuple_GET_SIZE(sizes));
    bytes = PyDataType_ELSIZE(dtype->descr);
    for (int i = 0; i < dimensions; ++i) {
      PyObject *size = PyTuple_GET_ITEM(sizes, i);
      shape[i] = PyLong_CheckExact(size) ? PyLong_AsSsize_t(size) : -1;
      if (shape[i] < 0 || (shape[i] > 0 && bytes > PY_SSIZE_T_MAX / shape[i])) {
        PyErr_Clear();
        return refuse("its shape must be a tuple of sizes", sizes);
      }
      bytes *= shape[i];
    }
    return 0;
  }
};

// A new array with the bytes. New reference, null on error.
PyObject *array_with(const Description &is, const void *bytes) {
  Py_INCREF(is.dtype->descr);
  PyObject *array = PyArray_NewFromDescr(&PyArray_Type, is.dtype->descr, is.dimensions, is.shape,
                                         nullptr, nullptr, 0, nullptr);
  if (array != nullptr && is.bytes > 0) {  // an empty buffer may have no memory
    std::memcpy(PyArray_DATA(as_array(array)), bytes, static_cast<std::size_t>(is.bytes));
  }
  return array;
}

// An array over the memory of `data`. New reference, null on error.
PyObject *array_over(const Description &is, PyObject *data) {
  Py_INCREF(is.dtype->descr);
  const auto flat = steal(PyArray_FromBuffer(data, is.dtype->descr, -1, 0));
  PyArray_Dims shape = {const_cast<npy_intp *>(is.shape), is.dimensions};
  return flat ? PyArray_Newshape(as_array(flat.ptr()), &shape, NPY_CORDER) : nullptr;
}

PyObject *array_of(const Description &is, PyObject *data) {
  Py_buffer view;
  if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) {
    return nullptr;
  }
  const Py_ssize_t size = view.len;
  // bytes never change, and an array over them could not be written to.
  const bool copies = size == is.bytes && (PyBytes_CheckExact(data) || size == 0 ||
                                           (PyByteArray_CheckExact(data) && size <= kCopied));
  PyObject *array = copies ? array_with(is, view.buf) : nullptr;
  PyBuffer_Release(&view);
  if (copies) {
    return array;
  }
  if (size != is.bytes) {
    PyErr_Format(PyExc_ValueError,
                 "the pickled parameter is damaged: its shape needs %zd bytes of %U, got %zd",
                 is.bytes, is.dtype->name, size);
    return nullptr;
  }
  return array_over(is, data);
}

// _parameter_of_bytes(data, dtype, shape, requires_grad)
PyObject *make_parameter_of_bytes(PyObject *, PyObject *const *args, Py_ssize_t count) {
  if (count != 4) {
    PyErr_Format(PyExc_TypeError, "_parameter_of_bytes takes 4 arguments, got %zd", count);
    return nullptr;
  }
  Description is;
  if (is.read(args[1], args[2], args[3]) < 0) {
    return nullptr;
  }
  auto array = steal(array_of(is, args[0]));
  if (!array) {
    return nullptr;
  }
  if (PY_BIG_ENDIAN) {
    array = steal(PyArray_Byteswap(as_array(array.ptr()), 0));
    if (!array) {
      return nullptr;
    }
  }
  if (!parameters_are_plain() || (is.requires_grad && !is_float_category(is.dtype->category))) {
    const auto data = steal(tensor_from_array(tensor_type, array.release().ptr(), true));
    return data ? PyObject_CallFunctionObjArgs(installed.Parameter, data.ptr(), args[3], nullptr)
                : nullptr;
  }
  PyObject *parameter = tensor_from_array(plain_parameter_type, array.release().ptr(), true);
  if (parameter != nullptr) {
    as_tensor(parameter)->requires_grad = is.requires_grad;
  }
  return parameter;
}

PyMethodDef of_bytes_method = {
    "_parameter_of_bytes",
    reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(entry<make_parameter_of_bytes>)),
    METH_FASTCALL, nullptr};

}  // namespace

PyObject *tensor_reduce_parameter(PyObject *self, PyObject *protocol) {
  return slot_guard<PyObject *>(nullptr, [&]() -> PyObject * {
    const int kind = kind_of_protocol(protocol);
    if (kind < 0) {
      return nullptr;
    }
    PyObject *attributes = as_tensor(self)->dict;
    if (kind != 0 && (attributes == nullptr || PyDict_GET_SIZE(attributes) == 0) &&
        is_plain_parameter(self) && has_plain_values(as_tensor(self)->array)) {
      return reduction_to_bytes(as_tensor(self), kind == 5);
    }
    return call_installed(installed.reduce_parameter, self, protocol).release().ptr();
  });
}

void add_parameter_pickling(py::handle m) {
  // Pickles name the file of the class.
  const py::str home("modtree.numpy.tensor.parameter");
  parameter_of_bytes = PyCFunction_NewEx(&of_bytes_method, nullptr, home.ptr());
  dtypes_by_name = py::dict(m.attr("_dtypes")).release().ptr();
  if (parameter_of_bytes == nullptr) {
    throw py::error_already_set();
  }
  m.attr("_parameter_of_bytes") = py::handle(parameter_of_bytes);
}

}  // namespace modtree
