// SPDX-License-Identifier: BSD-3-Clause
// Reads tensors of a library that offers DLPack's table of C functions, without a Python name being
// looked up.
#pragma once

#include <pybind11/pytypes.h>

#include <array>
#include <vector>

#include "family/tensor_facts.h"
#include "python/compat.h"

namespace modtree {

namespace py = pybind11;

// Attributes that are read through the getters of the library's own C code.
enum class TensorAttribute : std::uint8_t { shape, is_meta, requires_grad, grad, grad_fn, dtype };
constexpr std::size_t kTensorAttributes = 6;

// Answers only for tensors of the library's own two types, and only as long as these have under the
// names that decide what they had when the library was described: where a program replaces one of
// them, everything is "unknown", and Python's way is taken.
class TensorReader {
public:
  // `description`: a modtree.families.base.TensorAccess, or None: nothing is known then. Throws
  // error_already_set.
  TensorReader(py::handle tensor_type, py::handle parameter_type, py::handle description);

  // All of these may run Python code, if only where one of the two classes was changed. Arguments
  // are borrowed, and live as long as the call.

  // The facts; never `error`. Unknown where the tensor has no strided memory of its own (meta,
  // sparse, quantized, wrappers), has too many dimensions, or a mode of the library is active that
  // wants to see what is asked of tensors.
  Read read(PyObject *tensor, TensorFacts *facts);

  // The facts of a tensor in main memory whose values are there as they are (not noted as negated
  // or conjugated), all within the storage.
  Read read_values(PyObject *tensor, TensorFacts *facts);

  // Have both the same shape? 1, 0, or -1: not known, without an error.
  int same_shape(PyObject *tensor, PyObject *other);

  // Like getattr(tensor, name): new reference, or null with an error set. Null without an error
  // where the attribute is to be read by its name.
  PyObject *get(TensorAttribute attribute, PyObject *tensor);

private:
  struct Class {
    PyTypeObject *type = nullptr;
    TypeVersion version = 0;
    bool answer = false;
  };
  struct Getter {
    getter function = nullptr;
    void *closure = nullptr;
  };
  // A question to the library whether any mode is active on this thread: its C function, or null
  // and the function to be called.
  struct Mode {
    std::int64_t (*count)();
    py::object function;
  };

  void find_table(py::handle capsule);
  void find_getters();
  void find_modes(py::handle library, py::handle modes);

  // Is it of one of the two types, which are as they were?
  bool is_plain(PyObject *tensor);
  bool is_unchanged(Class *of);
  bool compare(PyTypeObject *type) const;
  // Is none active? False where that cannot be told.
  bool has_no_mode() const;
  // Of a tensor of one of the two types: new reference, or null with or without an error.
  PyObject *get_plain(TensorAttribute attribute, PyObject *tensor) const {
    const Getter &getter = getters_[static_cast<std::size_t>(attribute)];
    return getter.function ? getter.function(tensor, getter.closure) : nullptr;
  }
  // What the table says of the tensor, for which it may be asked. False where it says nothing.
  bool fill(PyObject *tensor, dlpack::Tensor *out) const;
  // May the table be asked of tensors of one of the two types at the moment?
  bool is_readable(PyObject *tensor);
  // Is it not noted as negated or conjugated? -1 on error.
  int is_as_stored(PyObject *tensor, const TensorFacts &facts) const;
  // Has it the dtype that the table says? Narrow integers of a few bits it takes for bytes.
  bool has_told_dtype(PyObject *tensor, const TensorFacts &facts) const;
  // Lies all of it within the storage? -1 on error.
  int is_within_storage(PyObject *tensor, const TensorFacts &facts) const;

  const dlpack::Table *table_ = nullptr;
  std::array<Class, 2> classes_;
  std::array<Getter, kTensorAttributes> getters_;
  std::vector<Mode> modes_;
  // {name: what both types have under it}; a dict of our own.
  py::object attributes_;
  py::object int8_, uint8_, is_neg_, is_conj_, untyped_storage_, storage_nbytes_, storage_address_;
};

}  // namespace modtree
