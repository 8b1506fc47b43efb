// SPDX-License-Identifier: BSD-3-Clause
// The tensor function protocol: a class with `__torch_function__` takes part in every function and
// method that one of its instances is an argument of, and so do the function modes of a thread.
#pragma once

#include "tensor/object.h"

namespace modtree {

// What of the protocol is off in a thread.
enum class ProtocolState : unsigned char { on, no_subclasses, off };

ProtocolState protocol_state();
// Returns the old state.
ProtocolState set_protocol_state(ProtocolState state);

class ScopedProtocolState {
public:
  explicit ScopedProtocolState(ProtocolState state) : old_(set_protocol_state(state)) {}
  ScopedProtocolState(const ScopedProtocolState &) = delete;
  ScopedProtocolState &operator=(const ScopedProtocolState &) = delete;
  ~ScopedProtocolState() { set_protocol_state(old_); }

private:
  ProtocolState old_;
};

// Function modes that are active, of all threads together.
extern int active_modes;

// True for a type that never overrides, which most arguments have.
inline bool never_overrides(PyObject *arg) {
  PyTypeObject *type = Py_TYPE(arg);
  return type == tensor_type || type == plain_parameter_type || type == &PyLong_Type ||
         type == &PyFloat_Type || type == Py_TYPE(Py_None) || type == &PyBool_Type;
}

// 1 if the class defines `__torch_function__`, other than the disabled one, and is not a tensor
// class of another library; 0 if not; -1 with an error set. Remembered until the class changes.
int class_overrides(PyTypeObject *type);

// 1 for a tensor class of another library, 0 for others, -1 on error. Remembered as above.
int class_is_foreign(PyTypeObject *type);

// Forgets which classes are.
void forget_foreign_classes();

// True where the class of an argument overrides. Errors count as true.
bool any_class_overrides(PyObject *const *args, Py_ssize_t count);

// What call_override() and call_elsewhere() are to be asked about: an argument that is neither of
// the types above nor a sequence of them, or a mode. Errors count as true.
bool may_be_overridden(PyObject *const *args, Py_ssize_t count);

inline bool is_overridden(PyObject *const *args, Py_ssize_t count) {
  if (active_modes != 0) {
    return true;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!never_overrides(args[i])) {
      return may_be_overridden(args + i, count - i);
    }
  }
  return false;
}

// The same for one argument and for two, without a place in memory for them.
inline bool is_overridden(PyObject *arg) {
  return active_modes != 0 || (!never_overrides(arg) && may_be_overridden(&arg, 1));
}

inline bool is_overridden(PyObject *a, PyObject *b) {
  if (active_modes == 0 && never_overrides(a) && never_overrides(b)) {
    return false;
  }
  PyObject *both[2] = {a, b};
  return is_overridden(both, 2);
}

inline Py_ssize_t argument_count(Py_ssize_t nargs, PyObject *kwnames) {
  return nargs + (kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames));
}

// The call func(args...) as modes and the classes of its arguments define it; keyword values follow
// the positional ones. True and *result, null with an error set; false when nobody takes part. To
// be asked after is_overridden().
bool call_override(PyObject *func, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
                   PyObject **result);

// The call as the library of its arguments defines it, by its function of that name. True and
// *result, null with an error set; false when no argument is a tensor of another library, or when
// the function is to say itself what is wrong with tensors of several. To be asked after
// call_override().
bool call_elsewhere(PyObject *func, PyObject *name, PyObject *const *args, Py_ssize_t nargs,
                    PyObject *kwnames, PyObject **result);

// call_override() for a function that says itself whose classes are asked, of the tuple `relevant`.
// It is an error when nobody is.
PyObject *handle_override(PyObject *func, PyObject *relevant, PyObject *args, PyObject *kwargs);

// call_override() for a method of Tensor, which is looked up by its name.
bool call_method_override(const char *name, PyObject *const *args, Py_ssize_t nargs,
                          PyObject *kwnames, PyObject **result);

// The same for a slot: nothing is thrown.
bool call_operator_override(const char *name, PyObject *const *args, Py_ssize_t nargs,
                            PyObject **result);

// The same for reading (value null) or writing an attribute of Tensor; what it gets as the function
// is `Tensor.name.__get__` or `Tensor.name.__set__`.
bool call_attribute_override(const char *name, PyObject *self, PyObject *value, PyObject **result);

// func(*args, **kwargs) with what `__torch_function__` got: any iterable, and a dict or None. New
// reference; null with TypeError for other things.
PyObject *call_with_packed(PyObject *func, PyObject *args, PyObject *kwargs);

// The same without the classes of the arguments taking part, for a `__torch_function__`. A function
// of another library does not know that they do not, and would call it again and again: TypeError.
PyObject *call_without_classes(PyObject *func, PyObject *args, PyObject *kwargs);

// The types, functions and switches of the protocol in the extension module.
void add_protocol(py::handle m);

// The callable that makes a Python function take part in the protocol.
void make_overridable_type(py::handle m);

// The body of Tensor.__torch_function__.
PyObject *tensor_torch_function(PyObject *cls, PyObject *args, PyObject *kwargs);

}  // namespace modtree
