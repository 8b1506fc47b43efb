// SPDX-License-Identifier: BSD-3-Clause
// The seam between the module tree and a tensor library. The tree asks only what is declared here.
#pragma once

#include <pybind11/pytypes.h>

#include <cstdint>

#include "family/tensor_facts.h"
#include "python/compat.h"
#include "python/type_cache.h"

namespace modtree {

namespace py = pybind11;

// How converted tensors take the place of the old ones (modtree.__future__).
enum class ConversionSwitch : std::uint8_t { overwrite, swap };

// One tensor library as the tree sees it; the C++ face of a modtree.core.family.TensorFamily.
//
// Contract of every function: a `PyObject *` result is a new reference, or null with a Python error
// set; an `int` result is 0/1 for a question and 0 for an action, or -1 with a Python error set.
// Arguments are borrowed. Any of them may run Python code. Unless a line says otherwise, the tensor
// arguments belong to this family.
class TensorFamily {
public:
  explicit TensorFamily(py::object python_family) : object(std::move(python_family)) {}
  TensorFamily(const TensorFamily &) = delete;
  TensorFamily &operator=(const TensorFamily &) = delete;
  virtual ~TensorFamily() = default;

  // True if all values of this type are parameters, whatever their own attributes are. Remembered
  // as long as the type does not change; false where only is_parameter() tells. Runs no Python
  // code.
  virtual bool are_parameters(PyTypeObject *) { return false; }

  // The family for values that are its tensors by their `__class__` alone: one that asks for names,
  // whatever the values are in memory.
  virtual TensorFamily *by_names() { return this; }

  // What kind of tensor it is.
  virtual int is_parameter(PyObject *tensor) = 0;      // isinstance(tensor, Parameter)
  virtual int is_buffer(PyObject *tensor) = 0;         // isinstance(tensor, Buffer)
  virtual int is_uninitialized(PyObject *tensor) = 0;  // lazy tensor without a shape
  virtual int is_meta(PyObject *tensor) = 0;
  virtual int is_floating_point(PyObject *tensor) = 0;
  virtual int is_complex(PyObject *tensor) = 0;
  virtual PyObject *shape(PyObject *tensor) = 0;  // tuple of int
  // True if a tensor without a mark can be a parameter, by being registered as one or by replacing
  // one.
  virtual bool has_bare_parameters() const { return false; }
  // True if the registry of parameters may hold it; -1 on error.
  int may_be_parameter(PyObject *tensor) {
    return has_bare_parameters() ? 1 : is_parameter(tensor);
  }
  // True if tensors are told apart by their addresses, whatever their classes say of == and hash().
  virtual bool is_told_by_address() const { return false; }
  // Equal shapes; `other` may belong to another family.
  virtual int same_shape(PyObject *tensor, PyObject *other) = 0;

  // What native code can read of a tensor in one go; unknown for a library that offers no such way,
  // and wherever only the questions above tell. Never `error`.
  virtual Read read(PyObject *, TensorFacts *) { return Read::unknown; }
  // The same for a tensor whose values are in main memory, stored plainly.
  virtual Read read_values(PyObject *, TensorFacts *) { return Read::unknown; }

  // Gradients.
  virtual int requires_grad(PyObject *tensor) = 0;
  virtual int set_requires_grad(PyObject *tensor, bool flag) = 0;  // tensor.requires_grad_(flag)
  // Does that where it neither runs Python code nor is an error; false: nothing was done.
  virtual bool set_requires_grad_quietly(PyObject *, bool) { return false; }
  virtual int has_grad_fn(PyObject *tensor) = 0;
  virtual PyObject *grad(PyObject *tensor) = 0;  // None when there is none
  // True only if it certainly has no gradient, where its contents are what `data` reaches. Runs no
  // Python code.
  virtual bool lacks_grad(PyObject *) { return false; }
  // How many bytes into an object of exactly this type the pointer to its gradient is, which is
  // null where it has none; 0 where that is not to be read there.
  virtual std::size_t grad_offset(PyTypeObject *) const { return 0; }
  // Asks for the memory in which lacks_grad looks, of any object: what leads there first, and when
  // that has come, the rest (`again`). Runs no Python code.
  virtual void prefetch_grad(PyObject *, bool /*again*/) {}
  virtual int set_grad(PyObject *tensor, PyObject *grad) = 0;
  // Module.zero_grad for one parameter (BEHAVIOUR 5.4): drop the gradient, or zero it in place.
  virtual int zero_grad(PyObject *tensor, bool set_to_none) = 0;
  // Stops recording on this thread; the result is for exit_no_grad. Use NoGradScopes.
  virtual PyObject *enter_no_grad() = 0;
  virtual int exit_no_grad(PyObject *scope) = 0;

  // Handles and storage.
  virtual PyObject *detach(PyObject *tensor) = 0;
  virtual PyObject *make_parameter(PyObject *data, bool requires_grad) = 0;
  // What `__deepcopy__` gives for a parameter that no memo has yet. Null without an error where
  // that method is to be called: the value is something else, or is not copied as the library has
  // it.
  virtual PyObject *copy_parameter(PyObject *) { return nullptr; }
  // The object that owns the memory of a tensor which copy_with_memory() copies: new reference.
  // Null without an error where `__deepcopy__` is to be called.
  virtual PyObject *memory_of(PyObject *) { return nullptr; }
  // What `__deepcopy__` gives for that tensor, if no memo has a copy of the memory yet. The memo is
  // to have `*copied` for the memory, and to keep `*shown`, which keeps the memory: new references,
  // with an error too unless they are null.
  virtual PyObject *copy_with_memory(PyObject *, PyObject **shown, PyObject **copied) {
    *shown = *copied = nullptr;
    return nullptr;
  }
  // 1 if `tensor.data = other` is allowed, which it is not between meta and real storage; `other`
  // may be any object.
  virtual int can_set_data(PyObject *tensor, PyObject *other) = 0;
  virtual int set_data(PyObject *tensor, PyObject *other) = 0;
  // 1 if a conversion to `other` exchanges the contents of the two, whatever modtree.__future__
  // says.
  virtual int must_swap_contents(PyObject *, PyObject *) { return 0; }
  // What the library's own switch says (torch.__future__), for its tensors; false where it has
  // none.
  virtual int conversion_switch(ConversionSwitch) { return 0; }
  // Does that where it is one copy of memory and cannot fail; false: nothing was done. Runs no
  // Python code.
  virtual bool copy_quickly(PyObject *, PyObject *) { return false; }
  // tensor.copy_(source) with conversion of dtype; `source` may belong to another family.
  virtual int copy_into(PyObject *tensor, PyObject *source) = 0;
  // True if tensors never change: what would change one in place puts another into the registries.
  virtual bool is_immutable() const { return false; }
  // Of an immutable tensor: one like it with the values of `source`, which may belong to another
  // family; `as_it_is`: of its dtype and on its device.
  virtual PyObject *filled(PyObject *tensor, PyObject *source, bool as_it_is);
  // What a module stores of `value` in the place of `tensor`: what is noted of that one goes on.
  virtual PyObject *in_place_of(PyObject *value, PyObject *) { return Py_NewRef(value); }
  // 1 if its values are read from something that is not a tensor (an array of another kind).
  virtual int takes_source(PyObject *) { return 0; }
  // True for the library's own tensor and parameter types, not for subclasses. Runs no Python code.
  virtual bool is_own_type(PyObject *) { return false; }
  // True only if both are tensors with values, of the library's own types and of the same shape, so
  // that tensor.copy_(source) needs no further checks.
  virtual bool is_copied_plainly(PyObject *, PyObject *) { return false; }
  // True if the questions read memory so far from a tensor's head that prefetch() pays off before
  // they are asked.
  virtual bool is_read_afar() const { return false; }
  // Asks for the memory that a copy of the tensor or into it reads, where the library says where
  // that is; `tensor` may be any object, whose head should be near already. Runs no Python code.
  virtual void prefetch(PyObject *) {}
  // The same one step further: what that memory points to.
  virtual void prefetch_values(PyObject *) {}
  // True if copy_all() could make the copy. Runs no Python code.
  virtual bool copies_in_batches(PyObject *, PyObject *) { return false; }
  // The copies of two lists of the same length, of different tensors, in order: 1; 0 when they must
  // be made one by one. After an error some may have been made.
  virtual int copy_all(PyObject *, PyObject *) { return 0; }

  // Conversions. `device`, `dtype`, `memory_format` may be None: leave as it is.
  virtual PyObject *to(PyObject *tensor, PyObject *device, PyObject *dtype, bool non_blocking,
                       PyObject *memory_format) = 0;
  virtual PyObject *empty_like(PyObject *tensor, PyObject *device) = 0;

  const py::object
      object;  // the Python family: for everything that is not asked per entry of a tree
};

// The family of values of this type, or null without an error for a type that is not a tensor type.
// Runs Python only the first time a type is met. Returns null with an error set when looking for
// the family failed: check PyErr_Occurred() after a null on first sight of a type; `family_of`
// below does that for you.
TensorFamily *family_of_type(PyTypeObject *type);

// 1 and *family set; 0 when `value` is not a tensor, neither by its type nor by its `__class__`,
// which isinstance() accepts too; -1 with an error set.
int family_of(PyObject *value, TensorFamily **family);

// family_of() for many values, most of which are of one of two types: parameters and buffers.
class FamilyMemo {
public:
  int find(PyObject *value, TensorFamily **family) {
    *family = remembered(value);
    return *family ? 1 : find_slowly(value, family);
  }

  // The family of a tensor that is compared by identity, where that is known without running Python
  // code; or null.
  TensorFamily *known(PyObject *value) {
    TensorFamily *family = remembered(value);
    return family ? family : known_slowly(value);
  }

  // True if a set of such tensors is a set of addresses.
  bool are_by_identity(PyObject *tensor) const;

  // That of one of the two types, or null.
  TensorFamily *last() const { return known_[0].family; }

private:
  struct Known {
    PyTypeObject *type = nullptr;  // borrowed: a version is never used twice
    TypeVersion version = 0;
    TensorFamily *family = nullptr;
  };

  TensorFamily *remembered(PyObject *value) const {
    for (const Known &known : known_) {
      if (known.version != 0 && Py_TYPE(value) == known.type &&
          type_version(known.type) == known.version) {
        return known.family;
      }
    }
    return nullptr;
  }
  void remember(PyTypeObject *type, TypeVersion version, TensorFamily *family) {
    known_[1] = known_[0];
    known_[0] = Known{type, version, family};
  }
  int find_slowly(PyObject *value, TensorFamily **family);
  TensorFamily *known_slowly(PyObject *value);

  Known known_[2];  // only of types that are compared by identity
};

// 1 if the type or the value itself has __torch_function__ (BEHAVIOUR T1, "tensor-like"), -1 on
// error.
int is_tensor_like(PyObject *value);

// 1 for a module of another library (torch), -1 on error.
int is_foreign_module(PyObject *value);

// What is remembered of a type; most have no family.
struct TypeFacts {
  TensorFamily *family = nullptr;
  bool are_parameters = false;  // see TensorFamily::are_parameters()
  bool is_foreign_module = false;
  // True if `value.__class__`, which isinstance() believes, may be another class than its own.
  bool may_claim_class = false;
  // For a tensor type: it hashes and compares as the library's own tensors do, so that a set of its
  // values is a set of addresses.
  bool by_identity = false;
};
extern TypeCache<TypeFacts> type_facts;
// The same for a type that the cache does not have. No family where an error is set.
TypeFacts find_type_facts(PyTypeObject *type);
inline TypeFacts facts_of_type(PyTypeObject *type) {
  TypeFacts facts;
  return type_facts.find(type, &facts) ? facts : find_type_facts(type);
}

// The tree's one question on every assignment, answered in one pass.
enum class ValueKind { other, tensor, buffer, parameter, foreign_module };
// -1 with an error set on failure. *family is null for a value that is not a tensor.
int value_kind(PyObject *value, ValueKind *kind, TensorFamily **family);
// The same when facts_of_type() of the value was asked already.
int value_kind_by(const TypeFacts &of_type, PyObject *value, ValueKind *kind,
                  TensorFamily **family);

// The switch of modtree.__future__, which holds for tensors of all families; -1 on error.
int own_switch(ConversionSwitch which);
// 1 if that is on, or the one of any library that was met; -1 on error.
int switch_anywhere(ConversionSwitch which);

// Makes `family` known for `type` (the NumPy family registers its exact types so that nothing is
// looked up). The family lives for ever.
void register_family(PyTypeObject *type, TensorFamily *family);

// Forgets which types have which family, or none: the next value of each type asks
// modtree.families.find again.
void forget_families();

// Creates the adapter that answers through the methods of the Python object.
TensorFamily *new_python_family(py::object python_family);

}  // namespace modtree
