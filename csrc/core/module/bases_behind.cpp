// SPDX-License-Identifier: BSD-3-Clause
#include "module/bases_behind.h"

#include "module/attributes/plain_attributes.h"
#include "python/call.h"
#include "python/dict_lookup.h"
#include "python/native_section.h"
#include "python/new_type.h"

namespace modtree {

namespace {

struct HandedMethod {
  PyObject_HEAD Virtual method;
  PyObject *native;
};

PyTypeObject *handed_type = nullptr;

// What the first class behind Module that Python code made has under the name, or null: `object` is
// behind every module. Modtree's own Module is a class apart from the native base, and there may be
// other classes between them.
py::object find_behind(PyTypeObject *type, PyObject *name) {
  // Comparing odd keys in the dict of a class may run code that takes the type from its object.
  const auto keep = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject *>(type));
  const py::object mro = mro_of(type);
  if (!mro) {
    PyErr_Clear();
    return py::object();
  }
  const PyTypeObject *module_class = module_class_of(type);
  bool is_behind = false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mro.ptr()); ++i) {
    auto *base = reinterpret_cast<PyTypeObject *>(PyTuple_GET_ITEM(mro.ptr(), i));
    if (is_behind && base != module_base_type && PyType_HasFeature(base, Py_TPFLAGS_HEAPTYPE)) {
      if (PyObject *found = class_dict_get(base, name)) {
        return py::reinterpret_borrow<py::object>(found);
      }
    }
    is_behind = is_behind || base == module_class;
  }
  return py::object();
}

// What super(Module, module) makes of it; of the class where `module` is null. New reference.
PyObject *bind(const py::object &found, PyObject *module, PyTypeObject *type) {
  const descrgetfunc get = Py_TYPE(found.ptr())->tp_descr_get;
  return get ? get(found.ptr(), module, reinterpret_cast<PyObject *>(type))
             : Py_NewRef(found.ptr());
}

PyObject *get_handed(PyObject *self_obj, PyObject *module, PyObject *owner) {
  const auto *self = reinterpret_cast<HandedMethod *>(self_obj);
  PyObject *of = module ? reinterpret_cast<PyObject *>(Py_TYPE(module)) : owner;
  auto *type = reinterpret_cast<PyTypeObject *>(of);
  if (of && PyType_Check(of) && PyType_IsSubtype(type, module_base_type)) {
    // Finding the facts may run code that takes the type from its object.
    const auto keep = py::reinterpret_borrow<py::object>(of);
    if (class_info(type).overrides(self->method)) {
      if (const py::object found = find_behind(type, virtual_name(self->method))) {
        return bind(found, module, type);
      }
    }
  }
  return Py_TYPE(self->native)->tp_descr_get(self->native, module, owner);
}

PyType_Slot handed_slots[] = {
    {Py_tp_descr_get, reinterpret_cast<void *>(entry<get_handed>)},
    {0, nullptr},
};

PyType_Spec handed_spec = {
    "modtree._C.HandedMethod",
    sizeof(HandedMethod),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    handed_slots,
};

}  // namespace

bool has_behind(PyTypeObject *type, Virtual method) {
  return static_cast<bool>(find_behind(type, virtual_name(method)));
}

bool hands_writes_on(PyTypeObject *type) {
  // Finding the facts may run code that takes the type from its object, too.
  const auto keep = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject *>(type));
  return class_info(type).overrides(Virtual::setattr) &&
         (has_behind(type, Virtual::setattr) || has_behind(type, Virtual::delattr));
}

int hand_write_on(ModuleObject *module, PyObject *name, PyObject *value) {
  PyTypeObject *type = Py_TYPE(module);
  const auto keep = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject *>(type));
  const py::object found = find_behind(type, value ? names.setattr : names.delattr);
  if (!found) {
    return value ? assign_plain(module, name, value) : delete_plain(module, name);
  }
  const auto method = py::reinterpret_steal<py::object>(bind(found, as_object(module), type));
  if (!method) {
    return -1;
  }
  return (value ? call(method, name, value) : call(method, name)) ? 0 : -1;
}

py::object handed_method(Virtual method, const py::object &native) {
  auto made = py::reinterpret_steal<py::object>(handed_type->tp_alloc(handed_type, 0));
  if (!native || !made) {
    throw py::error_already_set();
  }
  auto *handed = reinterpret_cast<HandedMethod *>(made.ptr());
  handed->method = method;
  handed->native = native.inc_ref().ptr();  // for the life of the process, as the classes are
  return made;
}

void make_handed_methods(py::handle m) {
  handed_type = new_type(m, "HandedMethod", &handed_spec);
  const auto of_base = [](Virtual method) {
    return handed_method(method, type_lookup(module_base_type, virtual_name(method)));
  };
  m.attr("_module_getattribute") = of_base(Virtual::getattribute);
  m.attr("_module_reduce_ex") = of_base(Virtual::reduce_ex);
}

}  // namespace modtree
