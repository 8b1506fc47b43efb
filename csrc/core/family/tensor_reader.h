// SPDX-License-Identifier: BSD-3-Clause
// Reads tensors of a library that offers DLPack's table of C functions, without a Python name being
// looked up.
#pragma once

#include <pybind11/pytypes.h>

#include <array>
#include <vector>

#include "family/tensor_facts.h"
#include "family/tensor_grads.h"
#include "family/tensor_sizes.h"
#include "python/compat.h"
#include "python/dict_lookup.h"
#include "python/interned.h"

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
  // `description`: a modtree.core.family.TensorAccess, or None: nothing is known then. Throws
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

  // 1 if both have the same shape, 0 if not, -1 without an error if that is not known. *any_meta is
  // set if one has no values.
  int same_shape(PyObject *tensor, PyObject *other, bool *any_meta);

  // Asks for the memory in which the facts of any tensor, or other object, are.
  void prefetch(PyObject *tensor) const { sizes_.prefetch(tensor); }

  // True if the functions below may be called for this tensor now. They do what the library's C
  // functions do behind its attributes, which look for modes themselves.
  bool knows(PyObject *tensor) { return table_ && is_plain(tensor); }
  // getattr(tensor, name): new reference, null on error.
  PyObject *get(TensorAttribute attribute, PyObject *tensor) const {
    const Getter &getter = getters_[static_cast<std::size_t>(attribute)];
    return getter.function(tensor, getter.closure);
  }
  // tensor.grad: new reference, null on error.
  PyObject *grad(PyObject *tensor) {
    PyObject *grad = get(TensorAttribute::grad, tensor);
    if (grad && grads_.wants_comparison()) {
      compare_grad(tensor, grad == Py_None);
    }
    return grad;
  }
  // tensor.grad = grad; -1 on error.
  int set_grad(PyObject *tensor, PyObject *grad) const {
    return set_grad_.function(tensor, grad, set_grad_.closure);
  }
  // True only if `tensor.grad` is certainly None; takes any object. Runs no Python code.
  bool lacks_grad(PyObject *tensor) const {
    // compare_grad() makes grads_ trusted, where modes are counted.
    return grads_.is_trusted() && is_known_plain(tensor) && sizes_.has_known_layout(tensor) &&
           count_function_modes_() == 0 && grads_.lacks_grad(TensorSizes::tensor_of(tensor));
  }
  // Asks for the memory in which that looks, of any object, in two steps.
  void prefetch_grad(PyObject *tensor, bool again) const {
    if (sizes_.has_known_layout(tensor)) {
      grads_.prefetch(TensorSizes::tensor_of(tensor), again);
    }
  }
  // True if detach() may be called for this tensor now.
  bool knows_detach(PyObject *tensor) {
    return detach_ && is_plain(tensor) && lacks_own_attribute(tensor, names.detach);
  }
  // tensor.detach(): new reference, null on error.
  PyObject *detach(PyObject *tensor) const { return detach_(tensor, nullptr); }
  // True if requires_grad_(flag) would do nothing, and nobody would see the call.
  bool has_requires_grad(PyObject *tensor, bool flag) const;

private:
  struct Class {
    PyTypeObject *type = nullptr;
    TypeVersion version = 0;
    bool answer = false;
    bool is_known_plain = false;  // the answer, where `version` tells whether it holds
  };
  struct Getter {
    getter function = nullptr;
    void *closure = nullptr;
  };
  struct Setter {
    setter function = nullptr;
    void *closure = nullptr;
  };
  // A question to the library whether any mode is active on this thread: its C function, or null
  // and the function to be called.
  struct Mode {
    std::int64_t (*count)();
    py::object function;
  };

  // Whether all was found that the functions above call.
  bool find_attributes();
  // What the description has under a name, if it is a descriptor of this type for both classes;
  // null where it is not. Throws error_already_set.
  PyObject *descriptor(PyObject *name, PyTypeObject *type) const;
  void find_table(py::handle capsule);
  void find_modes(py::handle library, py::handle modes);

  // True for one of the two types, as long as they are unchanged.
  bool is_plain(PyObject *tensor) {
    for (Class &of : classes_) {
      if (Py_TYPE(tensor) == of.type) {
        return of.version != 0 && of.version == type_version(of.type) ? of.answer : look_at(&of);
      }
    }
    return false;
  }
  // The same where that is known already.
  bool is_known_plain(PyObject *tensor) const {
    for (const Class &of : classes_) {
      if (Py_TYPE(tensor) == of.type) {
        return of.is_known_plain && of.version == type_version(of.type);
      }
    }
    return false;
  }
  bool look_at(Class *of);
  void compare_grad(PyObject *tensor, bool gave_none);
  bool compare(PyTypeObject *type) const;
  // True only if it is certain that none is active.
  bool has_no_mode() const;
  // What the table says of the tensor, for which it may be asked. False where it says nothing.
  bool fill(PyObject *tensor, dlpack::Tensor *out);
  // True if the table may be asked about tensors of the two types at the moment.
  bool is_readable(PyObject *tensor);
  // 1 unless it is marked as negated or conjugated, -1 on error.
  int is_as_stored(PyObject *tensor, const TensorFacts &facts) const;
  // True if its dtype is what the table says: the table takes integers of a few bits for bytes.
  bool has_told_dtype(PyObject *tensor, const TensorFacts &facts) const;
  // 1 if all of it is within the storage, -1 on error.
  int is_within_storage(PyObject *tensor, const TensorFacts &facts) const;

  const dlpack::Table *table_ = nullptr;  // null: nothing is known of any tensor
  // The table said nothing of the last tensor that it was asked for, which takes it a C++
  // exception: the next is asked whether it is meta first.
  bool expects_meta_ = false;
  std::array<Class, 2> classes_;
  std::array<Getter, kTensorAttributes> getters_;
  Setter set_grad_;
  PyCFunction detach_ = nullptr;
  TensorSizes sizes_;
  TensorGrads grads_;
  // Of `modes_`: how many see the attributes of tensors; null: not known.
  std::int64_t (*count_function_modes_)() = nullptr;
  // Where the state of function transforms on this thread is kept; null: not known.
  const void *const *(*transforms_)() = nullptr;
  std::vector<Mode> modes_;
  // {name: what both types have under it}; a dict of our own.
  py::object attributes_;
  py::object int8_, uint8_, is_neg_, is_conj_, untyped_storage_, storage_nbytes_, storage_address_;
};

}  // namespace modtree
