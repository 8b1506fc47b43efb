// SPDX-License-Identifier: BSD-3-Clause
// The memory of tensors that have died, kept for the next ones, as CPython keeps that of floats and
// tuples.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>

#include "tensor/object.h"

namespace modtree {

// For objects of one type, of which none has more than a TensorObject.
class FreeTensors {
public:
  void start(PyTypeObject *type) { type_ = type; }

  // What tp_alloc gives, or null without an error.
  PyObject *take(PyTypeObject *type) {
    if (type != type_ || count_ == 0) {
      return nullptr;
    }
    PyObject *object = kept_[--count_];
    std::memset(reinterpret_cast<char *>(object) + sizeof(PyObject), 0,
                sizeof(TensorObject) - sizeof(PyObject));
    PyObject_Init(object, type);
    PyObject_GC_Track(object);
    return object;
  }

  // Keeps the memory of a dead object that the collector does not know any more and that holds
  // nothing but its type. False where tp_free has to have it. What was finalized once is marked as
  // such for good.
  bool keep(PyObject *object) {
    if (Py_TYPE(object) != type_ || count_ == kept_.size() || PyObject_GC_IsFinalized(object)) {
      return false;
    }
    kept_[count_++] = object;
    return true;
  }

private:
  PyTypeObject *type_ = nullptr;
  std::size_t count_ = 0;
  std::array<PyObject *, 512> kept_{};  // of the order of what a state dict has
};

}  // namespace modtree
