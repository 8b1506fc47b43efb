// SPDX-License-Identifier: BSD-3-Clause
#include "family/family.h"

#include <vector>

#include "python/call.h"
#include "python/installed.h"
#include "python/interned.h"

namespace modtree {

TypeCache<TypeFacts> type_facts;

namespace {

// Families live for ever: trees and caches hold plain pointers to them.
std::vector<TensorFamily *> known_families;

// Types of which the overwhelming majority of attribute values are, and which are never tensors.
bool is_common_plain_type(PyTypeObject *type) {
  return type == Py_TYPE(Py_None) || type == &PyLong_Type || type == &PyBool_Type ||
         type == &PyFloat_Type || type == &PyUnicode_Type || type == &PyTuple_Type ||
         type == &PyList_Type || type == &PyDict_Type || type == &PyFunction_Type;
}

// The native family for a Python family object; made on first sight.
TensorFamily *native_family(py::handle python_family) {
  for (TensorFamily *family : known_families) {
    if (family->object.is(python_family)) {
      return family;
    }
  }
  TensorFamily *family = new_python_family(py::reinterpret_borrow<py::object>(python_family));
  known_families.push_back(family);
  return family;
}

// The version tag of a type; a lookup makes CPython give it one, without which nothing is cached.
TypeVersion looked_up_version(PyTypeObject *type) {
  type_lookup(type, names.torch_function);
  return type_version(type);
}

// False for a subclass of the library's tensor type that hashes or compares itself. Types that only
// represent that type (abstract base classes) have always been told apart by their addresses.
bool is_by_identity(const TensorFamily &family, PyTypeObject *type) {
  const py::object own = get_attribute(family.object, "tensor_type");
  if (!own) {
    throw py::error_already_set();
  }
  if (!PyType_Check(own.ptr())) {
    return true;
  }
  auto *base = reinterpret_cast<PyTypeObject *>(own.ptr());
  if (!PyType_IsSubtype(type, base)) {
    return true;
  }
  // The library's own, where the family knows them: a program may have patched the type.
  const py::object known = get_attribute(family.object, "own_comparison");
  if (!known) {
    throw py::error_already_set();
  }
  const py::object hash = type_lookup(type, names.hash), eq = type_lookup(type, names.eq);
  if (PyTuple_Check(known.ptr()) && PyTuple_GET_SIZE(known.ptr()) == 2) {
    return hash.is(py::handle(PyTuple_GET_ITEM(known.ptr(), 0))) &&
           eq.is(py::handle(PyTuple_GET_ITEM(known.ptr(), 1)));
  }
  return hash.is(type_lookup(base, names.hash)) && eq.is(type_lookup(base, names.eq));
}

// False where object's own attributes answer for `__class__`. Mocks with a spec have a property
// there, and proxies a look-up of their own.
bool may_claim_class(PyTypeObject *type) {
  return !type_lookup(type, names.class_).is(type_lookup(&PyBaseObject_Type, names.class_)) ||
         !type_lookup(type, names.getattribute)
              .is(type_lookup(&PyBaseObject_Type, names.getattribute));
}

// Nothing is known where an error is set.
TypeFacts ask_for_facts(PyTypeObject *type) {
  TypeFacts facts;
  const auto keep = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject *>(type));
  // Before the search: code that it runs may change the type.
  const TypeVersion version = looked_up_version(type);
  const py::object found = call_installed(installed.find_family, keep);
  if (!found) {
    return facts;
  }
  // Who is registered with an abstract class becomes a tensor without a new version of its type.
  const bool may_change = found.is(py::handle(Py_NotImplemented));
  if (found.is_none() || may_change) {
    const py::object answer = call_installed(installed.is_foreign_module_class, keep);
    if (!answer) {
      return facts;
    }
    facts.is_foreign_module = answer.is(py::handle(Py_True));
  } else {
    facts.family = native_family(found);
    facts.are_parameters = facts.family->are_parameters(type);
    facts.by_identity = facts.family->is_told_by_address() || is_by_identity(*facts.family, type);
  }
  facts.may_claim_class = may_claim_class(type);
  if (!may_change) {
    type_facts.store(type, version, facts);
  }
  return facts;
}

// What the `__class__` of a value says that it is. -1 on error.
[[gnu::noinline]] int find_claimed_facts(PyObject *value, TypeFacts *facts) {
  PyObject *found;
  if (optional_attr(value, names.class_, &found) < 0) {
    return -1;
  }
  const auto claimed = py::reinterpret_steal<py::object>(found);
  if (!claimed || !PyType_Check(claimed.ptr())) {
    return 0;
  }
  const TypeFacts told = facts_of_type(reinterpret_cast<PyTypeObject *>(claimed.ptr()));
  if (!told.family && PyErr_Occurred()) {
    return -1;
  }
  facts->family = told.family ? told.family->by_names() : nullptr;
  facts->is_foreign_module = told.is_foreign_module;
  return 0;
}

// The facts that tell what a value is, by its type or by its `__class__`. -1 on error.
inline int find_facts(const TypeFacts &of_type, PyObject *value, TypeFacts *facts) {
  *facts = of_type;
  if (of_type.family) {
    return 0;
  }
  return of_type.may_claim_class ? find_claimed_facts(value, facts) : PyErr_Occurred() ? -1 : 0;
}

}  // namespace

PyObject *TensorFamily::filled(PyObject *, PyObject *, bool) {
  PyErr_SetString(PyExc_NotImplementedError, "only immutable tensors are replaced by filled ones");
  return nullptr;
}

TypeFacts find_type_facts(PyTypeObject *type) {
  if (is_common_plain_type(type)) {
    type_facts.store(type, looked_up_version(type), {});
    return {};
  }
  try {
    return ask_for_facts(type);
  } catch (py::error_already_set &error) {
    error.restore();
  } catch (const std::exception &error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return {};
}

TensorFamily *family_of_type(PyTypeObject *type) { return facts_of_type(type).family; }

int is_foreign_module(PyObject *value) {
  const TypeFacts facts = facts_of_type(Py_TYPE(value));
  return !facts.family && PyErr_Occurred() ? -1 : facts.is_foreign_module;
}

int FamilyMemo::find_slowly(PyObject *value, TensorFamily **family) {
  // Before the question, which may run code that changes the type.
  PyTypeObject *type = Py_TYPE(value);
  const auto keep = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject *>(type));
  const TypeVersion version = type_version(type);
  const int found = family_of(value, family);
  if (found > 0 && facts_of_type(type).by_identity) {
    remember(type, version, *family);
  }
  return found;
}

bool FamilyMemo::are_by_identity(PyObject *tensor) const {
  return remembered(tensor) || facts_of_type(Py_TYPE(tensor)).by_identity;
}

TensorFamily *FamilyMemo::known_slowly(PyObject *value) {
  TypeFacts facts;
  if (!type_facts.find(Py_TYPE(value), &facts) || !facts.family || !facts.by_identity) {
    return nullptr;
  }
  remember(Py_TYPE(value), type_version(Py_TYPE(value)), facts.family);
  return facts.family;
}

int family_of(PyObject *value, TensorFamily **family) {
  TypeFacts facts;
  const int found = find_facts(facts_of_type(Py_TYPE(value)), value, &facts);
  *family = facts.family;
  return found < 0 ? -1 : *family != nullptr;
}

int is_tensor_like(PyObject *value) {
  TensorFamily *family;
  const int is_tensor = family_of(value, &family);
  if (is_tensor != 0) {
    return is_tensor;
  }
  if (is_common_plain_type(Py_TYPE(value))) {
    return 0;
  }
  PyObject *found;
  const int has_function = optional_attr(value, names.torch_function, &found);
  Py_XDECREF(found);
  return has_function;
}

int value_kind(PyObject *value, ValueKind *kind, TensorFamily **family) {
  return value_kind_by(facts_of_type(Py_TYPE(value)), value, kind, family);
}

int value_kind_by(const TypeFacts &of_type, PyObject *value, ValueKind *kind,
                  TensorFamily **family) {
  TypeFacts facts;
  const int found = find_facts(of_type, value, &facts);
  *family = facts.family;
  if (found < 0 || !*family) {
    *kind = facts.is_foreign_module ? ValueKind::foreign_module : ValueKind::other;
    return found;
  }
  int answer = (*family)->is_parameter(value);
  if (answer < 0) {
    return -1;
  }
  if (answer) {
    *kind = ValueKind::parameter;
    return 0;
  }
  answer = (*family)->is_buffer(value);
  if (answer < 0) {
    return -1;
  }
  *kind = answer ? ValueKind::buffer : ValueKind::tensor;
  return 0;
}

void register_family(PyTypeObject *type, TensorFamily *family) {
  bool known = false;
  for (TensorFamily *other : known_families) {
    known = known || other == family;
  }
  if (!known) {
    known_families.push_back(family);
  }
  type_facts.store(type, looked_up_version(type),
                   {family, family->are_parameters(type), false, false, true});
}

int own_switch(ConversionSwitch which) {
  const py::object flag = call_installed(which == ConversionSwitch::swap
                                             ? installed.get_swap_module_params_on_conversion
                                             : installed.get_overwrite_module_params_on_conversion);
  return flag ? PyObject_IsTrue(flag.ptr()) : -1;
}

int switch_anywhere(ConversionSwitch which) {
  int is_on = own_switch(which);
  for (std::size_t i = 0; is_on == 0 && i < known_families.size(); ++i) {  // it may grow meanwhile
    is_on = known_families[i]->conversion_switch(which);
  }
  return is_on;
}

void forget_families() { type_facts.clear(); }

}  // namespace modtree
