// SPDX-License-Identifier: BSD-3-Clause
// NumPy arrays as C++ sees them.
#pragma once

#include "bind/functions.h"
#include "tensor/numpy_api.h"

#include <cstdint>
#include <string>
#include <type_traits>

namespace modtree {

bool is_array(PyObject *object);

class Array : public py::object {
public:
  PYBIND11_OBJECT_DEFAULT(Array, py::object, is_array)

  py::ssize_t ndim() const { return PyArray_NDIM(raw()); }
  // Throw IndexError for an axis that there is not.
  py::ssize_t shape(py::ssize_t axis) const { return PyArray_DIMS(raw())[checked(axis)]; }
  py::ssize_t strides(py::ssize_t axis) const { return PyArray_STRIDES(raw())[checked(axis)]; }
  py::ssize_t size() const { return PyArray_SIZE(raw()); }
  py::ssize_t itemsize() const { return PyArray_ITEMSIZE(raw()); }
  py::ssize_t nbytes() const { return PyArray_NBYTES(raw()); }

  Shape shape() const { return {PyArray_DIMS(raw()), PyArray_DIMS(raw()) + ndim()}; }
  Shape strides() const { return {PyArray_STRIDES(raw()), PyArray_STRIDES(raw()) + ndim()}; }

  int type_number() const { return PyArray_TYPE(raw()); }
  char kind() const { return PyArray_DESCR(raw())->kind; }
  bool same_dtype(const Array &other) const {
    return PyArray_EquivTypes(PyArray_DESCR(raw()), PyArray_DESCR(other.raw())) != 0;
  }
  std::string dtype_name() const;

  bool is_c_contiguous() const { return PyArray_CHKFLAGS(raw(), NPY_ARRAY_C_CONTIGUOUS) != 0; }
  bool is_aligned() const { return PyArray_CHKFLAGS(raw(), NPY_ARRAY_ALIGNED) != 0; }
  bool is_writeable() const { return PyArray_CHKFLAGS(raw(), NPY_ARRAY_WRITEABLE) != 0; }

  const void *data() const { return PyArray_DATA(raw()); }
  // Of an array that is known to be writeable.
  void *mutable_data() { return PyArray_DATA(raw()); }

protected:
  PyArrayObject *raw() const { return reinterpret_cast<PyArrayObject *>(ptr()); }

private:
  py::ssize_t checked(py::ssize_t axis) const {
    if (axis < 0 || axis >= ndim()) {
      throw py::index_error("an array of " + std::to_string(ndim()) + " axes has no axis " +
                            std::to_string(axis));
    }
    return axis;
  }
};

template <>
struct Parameter<Array> : ObjectParameter<Array, Kind::array> {};

// NumPy's numbers of the dtypes that kernels take.
template <class T>
struct TypeNumber;
template <>
struct TypeNumber<float> : std::integral_constant<int, NPY_FLOAT> {};
template <>
struct TypeNumber<double> : std::integral_constant<int, NPY_DOUBLE> {};
template <>
struct TypeNumber<std::int64_t> : std::integral_constant<int, NPY_INT64> {};
template <class T>
inline constexpr int kTypeNumber = TypeNumber<T>::value;

// "float32", for messages.
std::string dtype_name(int type_number);

// True for an array of this dtype in this machine's byte order.
bool is_array_of(PyObject *object, int type_number);

// New memory. Empty strides: in the order of C. Throw error_already_set.
Array new_array(int type_number, const Shape &shape, const Shape &strides = {});
Array new_array_like(const Array &dtype_of, const Shape &shape);

// The object as an array of this dtype in one block in the order of C, aligned and of no subclass:
// itself or a copy. Throws error_already_set.
Array contiguous(py::handle object, int type_number);

// True if the elements fill one block of memory without gaps or repetitions.
bool is_dense(const Array &x);

// True if the same indices lead to the same offsets in both.
bool same_layout(const Array &a, const Array &b);

// A copy in the order of memory of x: aligned, of x's dtype, and of no subclass, which could say
// otherwise (__array_finalize__).
Array dense_copy(const Array &x);

// Copies element by element, with conversion.
void copy_into(const Array &to, const Array &from);

template <class T>
bool is_array_of(PyObject *object) {
  return is_array_of(object, kTypeNumber<T>);
}

template <class T>
class ArrayOf : public Array {
public:
  PYBIND11_OBJECT_DEFAULT(ArrayOf, Array, is_array_of<T>)

  explicit ArrayOf(const Shape &shape, const Shape &strides = {})
      : Array(new_array(kTypeNumber<T>, shape, strides)) {}

  const T *data() const { return static_cast<const T *>(Array::data()); }
  T *mutable_data() { return static_cast<T *>(Array::mutable_data()); }
};

// One made by contiguous().
template <class T>
class Contiguous : public ArrayOf<T> {
public:
  Contiguous() = default;
  explicit Contiguous(py::handle object)
      : ArrayOf<T>(contiguous(object, kTypeNumber<T>).release(), py::object::stolen_t{}) {}
};

// While one lives, other threads may run Python code and this one may not.
class GilRelease {
public:
  GilRelease() : state_(PyEval_SaveThread()) {}
  GilRelease(const GilRelease &) = delete;
  GilRelease &operator=(const GilRelease &) = delete;
  ~GilRelease() { PyEval_RestoreThread(state_); }

private:
  PyThreadState *state_;
};

}  // namespace modtree
