// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/override.h"

#include <vector>

#include "family/family.h"
#include "python/call.h"
#include "python/installed.h"
#include "python/interned.h"
#include "python/native_section.h"
#include "python/once.h"
#include "python/slot_guard.h"
#include "python/type_cache.h"
#include "python/type_text.h"
#include "tensor/create.h"
#include "tensor/protocol_modes.h"

namespace modtree {

namespace {

thread_local ProtocolState t_state = ProtocolState::on;

// How the arguments of a class take part in a call.
enum class Part : unsigned char {
  none,
  overrides,  // by its `__torch_function__`
  foreign,    // as a tensor of another library, which has functions of its own
};
TypeCache<Part> g_parts;

// Sequences are looked into one level deep: the tensors of cat(), the parts of an index.
bool is_sequence(PyObject *arg) { return PyTuple_CheckExact(arg) || PyList_CheckExact(arg); }

// False with an error set.
bool find_part(PyTypeObject *type, Part *part) {
  if (g_parts.find(type, part)) {
    return true;
  }
  const auto held = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject *>(type));
  type_lookup(type, names.torch_function);  // gives the class a version
  const TypeVersion version = type_version(type);
  const py::object function = type_lookup(type, names.torch_function);
  const bool has_function = function && function.ptr() != disabled_implementation();
  *part = has_function ? Part::overrides : Part::none;
  if (!PyType_IsSubtype(type, tensor_base_type)) {
    // The tensors of another library have the protocol of that library.
    if (family_of_type(type) != nullptr) {
      *part = Part::foreign;
    } else if (PyErr_Occurred()) {
      return false;
    }
  }
  g_parts.store(type, version, *part);
  return true;
}

int argument_overrides(PyObject *arg) {
  return never_overrides(arg) ? 0 : class_overrides(Py_TYPE(arg));
}

// True too where an error is set.
bool takes_part(PyObject *arg) {
  if (never_overrides(arg)) {
    return false;
  }
  Part part;
  if (!find_part(Py_TYPE(arg), &part)) {
    return true;
  }
  return part == Part::foreign || (part == Part::overrides && t_state == ProtocolState::on);
}

// Calls visit(argument) for each, those in sequences too, until it returns true. By index, with the
// size read again each time: the look at a class may change a list.
template <class Visit>
bool any_argument(PyObject *const *args, Py_ssize_t count, Visit visit) {
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!is_sequence(args[i])) {
      if (visit(args[i])) {
        return true;
      }
      continue;
    }
    for (Py_ssize_t j = 0; j < PySequence_Fast_GET_SIZE(args[i]); ++j) {
      if (visit(PySequence_Fast_GET_ITEM(args[i], j))) {
        return true;
      }
    }
  }
  return false;
}

// The arguments that take part, one of each class, in the order in which they are asked: from left
// to right, but subclasses before their bases.
class Overriders {
public:
  // False with an error set.
  bool add_all(PyObject *const *args, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; ++i) {
      if (is_sequence(args[i]) ? !add_items(args[i]) : !add(args[i])) {
        return false;
      }
    }
    return true;
  }

  const std::vector<py::object> &found() const { return found_; }

  py::object types() const {
    auto result =
        py::reinterpret_steal<py::object>(PyTuple_New(static_cast<Py_ssize_t>(found_.size())));
    for (std::size_t i = 0; result && i < found_.size(); ++i) {
      PyTuple_SET_ITEM(result.ptr(), static_cast<Py_ssize_t>(i),
                       Py_NewRef(reinterpret_cast<PyObject *>(Py_TYPE(found_[i].ptr()))));
    }
    return result;
  }

private:
  // Looking for an override may run code that changes a list.
  bool add_items(PyObject *sequence) {
    const auto items = py::reinterpret_steal<py::object>(tuple_of_items(sequence));
    if (!items) {
      return false;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.ptr()); ++i) {
      if (!add(PyTuple_GET_ITEM(items.ptr(), i))) {
        return false;
      }
    }
    return true;
  }

  bool add(PyObject *arg) {
    const int overrides = argument_overrides(arg);
    if (overrides <= 0) {
      return overrides == 0;
    }
    PyTypeObject *type = Py_TYPE(arg);
    auto place = found_.end();
    for (auto it = found_.begin(); it != found_.end(); ++it) {
      PyTypeObject *other = Py_TYPE(it->ptr());
      if (other == type) {
        return true;
      }
      if (place == found_.end() && PyType_IsSubtype(type, other)) {
        place = it;
      }
    }
    found_.insert(place, py::reinterpret_borrow<py::object>(arg));
    return true;
  }

  std::vector<py::object> found_;
};

// The arguments of a call as `__torch_function__` gets them.
struct PackedCall {
  py::object args;
  py::object kwargs;

  bool pack(PyObject *const *values, Py_ssize_t nargs, PyObject *kwnames) {
    if (pack_arguments(values, nargs, kwnames, &args, &kwargs) < 0) {
      return false;
    }
    if (!kwargs) {
      kwargs = py::reinterpret_steal<py::object>(PyDict_New());
    }
    return static_cast<bool>(kwargs);
  }
};

void raise_nobody(PyObject *func, const py::object &types, const py::object &mode) {
  py::object name = py::reinterpret_steal<py::object>(PyObject_GetAttrString(func, "__name__"));
  if (!name) {
    PyErr_Clear();
    name = py::reinterpret_borrow<py::object>(func);
  }
  const std::string mode_type = mode ? " and of the mode " + type_text(mode.ptr()) : "";
  PyErr_Format(PyExc_TypeError,
               "Multiple dispatch failed for '%S'; all __torch_function__ handlers returned "
               "NotImplemented: those of %S%s. No implementation found",
               name.ptr(), types.ptr(), mode_type.c_str());
}

// What one of those that take part answers; NotImplemented hands over to the next.
py::object ask(const py::object &who, PyObject *func, const py::object &types,
               const PackedCall &packed) {
  const auto method =
      py::reinterpret_steal<py::object>(PyObject_GetAttr(who.ptr(), names.torch_function));
  return method ? call(method, func, types, packed.args, packed.kwargs) : py::object();
}

PyObject *answer(PyObject *func, const Overriders &overriders, const PackedCall &packed) {
  const py::object types = overriders.types();
  if (!types) {
    return nullptr;
  }
  py::object mode;
  if (t_state != ProtocolState::off && mode_count() > 0) {
    SuspendedMode suspended;  // what the mode itself calls goes to the one below it
    mode = suspended.mode();
    py::object result = ask(mode, func, types, packed);
    if (!result || result.ptr() != Py_NotImplemented) {
      return result.release().ptr();
    }
  }
  for (const py::object &overrider : overriders.found()) {
    py::object result = ask(overrider, func, types, packed);
    if (!result || result.ptr() != Py_NotImplemented) {
      return result.release().ptr();
    }
  }
  raise_nobody(func, types, mode);
  return nullptr;
}

py::object tensor_attribute(const char *name) {
  return py::reinterpret_steal<py::object>(
      PyObject_GetAttrString(reinterpret_cast<PyObject *>(tensor_type), name));
}

}  // namespace

int active_modes = 0;

ProtocolState protocol_state() { return t_state; }

ProtocolState set_protocol_state(ProtocolState state) {
  const ProtocolState old = t_state;
  t_state = state;
  return old;
}

int class_overrides(PyTypeObject *type) {
  Part part;
  return find_part(type, &part) ? part == Part::overrides : -1;
}

int class_is_foreign(PyTypeObject *type) {
  Part part;
  return find_part(type, &part) ? part == Part::foreign : -1;
}

bool may_be_overridden(PyObject *const *args, Py_ssize_t count) {
  return any_argument(args, count, takes_part);
}

bool any_class_overrides(PyObject *const *args, Py_ssize_t count) {
  return t_state == ProtocolState::on &&
         any_argument(args, count, [](PyObject *arg) { return argument_overrides(arg) != 0; });
}

void forget_foreign_classes() { g_parts.clear(); }

bool call_override(PyObject *func, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
                   PyObject **result) {
  *result = nullptr;
  if (PyErr_Occurred()) {
    return true;  // of the search
  }
  if (t_state == ProtocolState::off || (t_state != ProtocolState::on && mode_count() == 0)) {
    return false;
  }
  Overriders overriders;
  if (t_state == ProtocolState::on && !overriders.add_all(args, argument_count(nargs, kwnames))) {
    return true;
  }
  if (overriders.found().empty() && mode_count() == 0) {
    return false;
  }
  PackedCall packed;
  if (packed.pack(args, nargs, kwnames)) {
    *result = answer(func, overriders, packed);
  }
  return true;
}

PyObject *handle_override(PyObject *func, PyObject *relevant, PyObject *args, PyObject *kwargs) {
  Overriders overriders;
  if (t_state == ProtocolState::on && !overriders.add_all(&relevant, 1)) {
    return nullptr;
  }
  const PackedCall packed{py::reinterpret_borrow<py::object>(args),
                          py::reinterpret_borrow<py::object>(kwargs)};
  return answer(func, overriders, packed);
}

bool call_method_override(const char *name, PyObject *const *args, Py_ssize_t nargs,
                          PyObject *kwnames, PyObject **result) {
  *result = nullptr;
  if (PyErr_Occurred()) {
    return true;
  }
  const py::object func = tensor_attribute(name);
  return !func || call_override(func.ptr(), args, nargs, kwnames, result);
}

bool call_operator_override(const char *name, PyObject *const *args, Py_ssize_t nargs,
                            PyObject **result) {
  *result = nullptr;
  return slot_guard(true, [&] { return call_method_override(name, args, nargs, nullptr, result); });
}

bool call_attribute_override(const char *name, PyObject *self, PyObject *value, PyObject **result) {
  *result = nullptr;
  if (PyErr_Occurred()) {
    return true;
  }
  const py::object descriptor = tensor_attribute(name);
  const py::object func = descriptor
                              ? get_attribute(descriptor, value == nullptr ? "__get__" : "__set__")
                              : py::object();
  PyObject *args[2] = {self, value};
  return !func || call_override(func.ptr(), args, value == nullptr ? 1 : 2, nullptr, result);
}

// --- Tensor.__torch_function__

namespace {

// Attributes that give the tensor that was stored there, whatever its class.
bool keeps_class(PyObject *func) {
  for (const char *name : {"grad", "_base"}) {
    const py::object descriptor = tensor_attribute(name);
    const py::object getter = descriptor ? get_attribute(descriptor, "__get__") : py::object();
    const int same = getter ? PyObject_RichCompareBool(func, getter.ptr(), Py_EQ) : -1;
    if (same < 0) {
      PyErr_Clear();
    }
    if (same > 0) {
      return true;
    }
  }
  return false;
}

py::object in_class(const py::object &result, PyTypeObject *cls);

// The sequence with each item in the class; named tuples are made of one iterable or of the items.
py::object items_in_class(const py::object &sequence, PyTypeObject *cls) {
  const NestedCall nested("converting a result");
  if (!nested.entered()) {
    return {};
  }
  auto items = py::reinterpret_steal<py::object>(PySequence_List(sequence.ptr()));
  for (Py_ssize_t i = 0; items && i < PyList_GET_SIZE(items.ptr()); ++i) {
    const auto item = py::reinterpret_borrow<py::object>(PyList_GET_ITEM(items.ptr(), i));
    py::object converted = in_class(item, cls);
    if (!converted) {
      return converted;
    }
    PyObject *old = PyList_GET_ITEM(items.ptr(), i);
    PyList_SET_ITEM(items.ptr(), i, converted.release().ptr());
    Py_DECREF(old);
  }
  if (!items || PyList_CheckExact(sequence.ptr())) {
    return items;
  }
  if (PyTuple_CheckExact(sequence.ptr())) {
    return py::reinterpret_steal<py::object>(PyList_AsTuple(items.ptr()));
  }
  auto *type = reinterpret_cast<PyObject *>(Py_TYPE(sequence.ptr()));
  const bool is_named = PyObject_HasAttrString(type, "_make") != 0;
  return is_named ? call_method(type, "_make", items) : call(py::handle(type), items);
}

// The result of an operation as an object of the class that it was called for.
py::object in_class(const py::object &result, PyTypeObject *cls) {
  if (is_tensor(result.ptr())) {
    return PyObject_TypeCheck(result.ptr(), cls)
               ? result
               : py::reinterpret_steal<py::object>(as_subclass(result.ptr(), cls));
  }
  if (PyTuple_Check(result.ptr()) || PyList_Check(result.ptr())) {
    const bool is_size = reinterpret_cast<PyObject *>(Py_TYPE(result.ptr())) == installed.Size;
    return is_size ? result : items_in_class(result, cls);
  }
  return result;
}

// 1 if the class is a subclass of all classes that take part, -1 on error.
int is_subclass_of_all(PyObject *cls, PyObject *types) {
  const auto all = py::reinterpret_steal<py::object>(tuple_of_items(types));
  if (!all) {
    return -1;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(all.ptr()); ++i) {
    const int is_subclass = PyObject_IsSubclass(cls, PyTuple_GET_ITEM(all.ptr(), i));
    if (is_subclass <= 0) {
      return is_subclass;
    }
  }
  return 1;
}

void raise_foreign_function(PyObject *func) {
  auto name = py::reinterpret_steal<py::object>(PyObject_GetAttrString(func, "__name__"));
  if (!name) {
    PyErr_Clear();
    name = py::reinterpret_borrow<py::object>(func);
  }
  PyErr_Format(PyExc_TypeError,
               "%S(): a function of another library was called with a modtree.Tensor, which it "
               "cannot compute with. Convert the arguments first: modtree.to_torch(tensor) for "
               "torch, tensor.numpy() for others",
               name.ptr());
}

// True if the classes that take part in a call are those that modtree and another library made for
// their tensors, so that none of them could answer. Leaves no error set.
bool are_of_two_libraries(PyObject *types) {
  bool is_mixed = false;
  const auto all = py::reinterpret_steal<py::object>(tuple_of_items(types));
  for (Py_ssize_t i = 0; all && i < PyTuple_GET_SIZE(all.ptr()); ++i) {
    PyObject *type = PyTuple_GET_ITEM(all.ptr(), i);
    if (!PyType_Check(type) ||
        PyType_IsSubtype(reinterpret_cast<PyTypeObject *>(type), tensor_base_type)) {
      continue;
    }
    TensorFamily *family = family_of_type(reinterpret_cast<PyTypeObject *>(type));
    const py::object own = family ? get_attribute(family->object, "tensor_type") : py::object();
    const py::object parameter =
        own ? get_attribute(family->object, "parameter_type") : py::object();
    if (!parameter || (own.ptr() != type && parameter.ptr() != type)) {
      PyErr_Clear();
      return false;
    }
    is_mixed = true;
  }
  PyErr_Clear();
  return is_mixed;
}

// A function of another library asks its arguments whenever it is called and does not know the
// state of ours: torch.exp(tensor) would call Tensor.__torch_function__ until the stack ends.
// Functions of modtree, and modes on top of each other, never come near this depth.
constexpr int kDeepestChain = 64;
thread_local int t_chain = 0;

class ScopedChain {
public:
  ScopedChain() : length_(t_chain) { t_chain = t_state == ProtocolState::on ? 0 : length_ + 1; }
  ScopedChain(const ScopedChain &) = delete;
  ScopedChain &operator=(const ScopedChain &) = delete;
  ~ScopedChain() { t_chain = length_; }

  // False with an error set.
  bool check(PyObject *func) const {
    if (t_chain <= kDeepestChain) {
      return true;
    }
    raise_foreign_function(func);
    return false;
  }

private:
  int length_;
};

PyObject *run_for_class(PyTypeObject *cls, PyObject *func, PyObject *args, PyObject *kwargs) {
  auto result = py::reinterpret_steal<py::object>(call_without_classes(func, args, kwargs));
  if (!result || cls == tensor_type || cls == plain_parameter_type || keeps_class(func)) {
    return result.release().ptr();
  }
  return in_class(result, cls).release().ptr();
}

}  // namespace

PyObject *call_with_packed(PyObject *func, PyObject *args, PyObject *kwargs) {
  if (kwargs != Py_None && !PyDict_Check(kwargs)) {
    PyErr_Format(PyExc_TypeError, "__torch_function__: kwargs must be a dict or None, got '%.200s'",
                 Py_TYPE(kwargs)->tp_name);
    return nullptr;
  }
  const auto positional = py::reinterpret_steal<py::object>(tuple_of_items(args));
  const OutsideNativeSection outside;
  return positional ? PyObject_Call(func, positional.ptr(), kwargs == Py_None ? nullptr : kwargs)
                    : nullptr;
}

PyObject *call_without_classes(PyObject *func, PyObject *args, PyObject *kwargs) {
  const ScopedChain chain;
  if (!chain.check(func)) {
    return nullptr;
  }
  ScopedProtocolState without(t_state == ProtocolState::off ? ProtocolState::off
                                                            : ProtocolState::no_subclasses);
  return call_with_packed(func, args, kwargs);
}

PyObject *tensor_torch_function(PyObject *cls, PyObject *args, PyObject *kwargs) {
  return slot_guard(static_cast<PyObject *>(nullptr), [&]() -> PyObject * {
    static const char *kKeywords[] = {"func", "types", "args", "kwargs", nullptr};
    const auto none = py::reinterpret_steal<py::object>(PyTuple_New(0));
    PyObject *func, *types, *positional = none.ptr(), *keywords = Py_None;
    if (!none || !PyArg_ParseTupleAndKeywords(args, kwargs, "OO|OO:__torch_function__",
                                              const_cast<char **>(kKeywords), &func, &types,
                                              &positional, &keywords)) {
      return nullptr;
    }
    const int fits = is_subclass_of_all(cls, types);
    if (fits == 0 && are_of_two_libraries(types)) {
      raise_foreign_function(func);
      return nullptr;
    }
    if (fits <= 0) {
      return fits < 0 ? nullptr : Py_NewRef(Py_NotImplemented);
    }
    return run_for_class(reinterpret_cast<PyTypeObject *>(cls), func, positional, keywords);
  });
}

}  // namespace modtree
