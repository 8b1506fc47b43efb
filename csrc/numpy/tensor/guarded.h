// SPDX-License-Identifier: BSD-3-Clause
// Native methods and attributes of a tensor that ask the tensor function protocol first: what the
// tables of a type have in place of the plain function.
#pragma once

#include <vector>

#include "python/native_section.h"
#include "python/slot_guard.h"
#include "tensor/override.h"

namespace modtree {

// The name that a function has in a table.
inline const char *name_in(const PyMethodDef *table, PyCFunction function) {
  while (table->ml_name != nullptr && table->ml_meth != function) {
    ++table;
  }
  return table->ml_name == nullptr ? "" : table->ml_name;
}

template <typename F>
PyCFunction as_method(F function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

// self.name(args...), as the protocol has it. False when nobody takes part.
inline bool call_native_override(const char *name, PyObject *self, PyObject *const *args,
                                 Py_ssize_t nargs, PyObject *kwnames, PyObject **result) {
  *result = nullptr;
  return slot_guard(true, [&] {
    std::vector<PyObject *> all{self};
    all.insert(all.end(), args, args + argument_count(nargs, kwnames));
    return call_method_override(name, all.data(), nargs + 1, kwnames, result);
  });
}

// kAlias tells methods apart that share a function.
template <const PyMethodDef *(*kTable)(), PyCFunction kMethod, int kAlias = 0>
PyObject *guarded(PyObject *self, PyObject *unused) {
  if (c_stack_ends()) {
    return nullptr;
  }
  const NativeSection in_section;
  PyObject *result;
  if (is_overridden(self) &&
      call_native_override(name_in(kTable(), guarded<kTable, kMethod, kAlias>), self, nullptr, 0,
                           nullptr, &result)) {
    return result;
  }
  return kMethod(self, unused);
}

using FastMethod = PyObject *(*)(PyObject *, PyObject *const *, Py_ssize_t);

template <const PyMethodDef *(*kTable)(), FastMethod kMethod>
PyObject *guarded_fast(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
  if (c_stack_ends()) {
    return nullptr;
  }
  const NativeSection in_section;
  PyObject *result;
  if ((is_overridden(self) || is_overridden(args, nargs)) &&
      call_native_override(name_in(kTable(), as_method(guarded_fast<kTable, kMethod>)), self, args,
                           nargs, nullptr, &result)) {
    return result;
  }
  return kMethod(self, args, nargs);
}

using KeywordMethod = PyObject *(*)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);

template <const PyMethodDef *(*kTable)(), KeywordMethod kMethod>
PyObject *guarded_keywords(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                           PyObject *kwnames) {
  if (c_stack_ends()) {
    return nullptr;
  }
  const NativeSection in_section;
  PyObject *result;
  if ((is_overridden(self) || is_overridden(args, argument_count(nargs, kwnames))) &&
      call_native_override(name_in(kTable(), as_method(guarded_keywords<kTable, kMethod>)), self,
                           args, nargs, kwnames, &result)) {
    return result;
  }
  return kMethod(self, args, nargs, kwnames);
}

// The closure of a guarded attribute is its name.
template <getter kGet>
PyObject *guarded_get(PyObject *self, void *closure) {
  if (c_stack_ends()) {
    return nullptr;
  }
  const NativeSection in_section;
  PyObject *result = nullptr;
  if (is_overridden(self) && slot_guard(true, [&] {
        return call_attribute_override(static_cast<const char *>(closure), self, nullptr, &result);
      })) {
    return result;
  }
  return kGet(self, nullptr);
}

template <setter kSet>
int guarded_set(PyObject *self, PyObject *value, void *closure) {
  if (c_stack_ends()) {
    return -1;
  }
  const NativeSection in_section;
  PyObject *result = nullptr;
  if (value != nullptr && is_overridden(self) && slot_guard(true, [&] {
        return call_attribute_override(static_cast<const char *>(closure), self, value, &result);
      })) {
    Py_XDECREF(result);
    return result == nullptr ? -1 : 0;
  }
  return kSet(self, value, nullptr);
}

template <getter kGet>
constexpr PyGetSetDef guarded_attribute(const char *name, const char *doc) {
  return {name, guarded_get<kGet>, nullptr, doc, const_cast<char *>(name)};
}

template <getter kGet, setter kSet>
constexpr PyGetSetDef guarded_attribute(const char *name, const char *doc) {
  return {name, guarded_get<kGet>, guarded_set<kSet>, doc, const_cast<char *>(name)};
}

}  // namespace modtree
