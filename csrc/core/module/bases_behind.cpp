// SPDX-License-Identifier: BSD-3-Clause
#include "module/bases_behind.h"

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

// super(Module, asked), where `asked` is a module or its class.
py::object next_after_module(PyObject *asked) {
  return call(reinterpret_cast<PyObject *>(&PySuper_Type),
              reinterpret_cast<PyObject *>(module_base_type), asked);
}

PyObject *get_handed(PyObject *self_obj, PyObject *module, PyObject *owner) {
  const auto *self = reinterpret_cast<HandedMethod *>(self_obj);
  PyObject *of = module ? reinterpret_cast<PyObject *>(Py_TYPE(module)) : owner;
  auto *type = reinterpret_cast<PyTypeObject *>(of);
  if (of && PyType_Check(of) && PyType_IsSubtype(type, module_base_type)) {
    // Finding the facts may run code that takes the type from its object.
    const auto keep = py::reinterpret_borrow<py::object>(of);
    if (class_info(type).overrides(self->method) && has_behind(type, self->method)) {
      const py::object next = next_after_module(module ? module : of);
      return next ? PyObject_GetAttr(next.ptr(), virtual_name(self->method)) : nullptr;
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

// True if the first class behind Module that was made by Python code has the name: `object` is
// behind every module.
bool found_behind(PyTypeObject *type, PyObject *name) {
  const py::object mro = mro_of(type);
  if (!mro) {
    PyErr_Clear();
    return false;
  }
  bool is_behind = false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mro.ptr()); ++i) {
    auto *base = reinterpret_cast<PyTypeObject *>(PyTuple_GET_ITEM(mro.ptr(), i));
    if (is_behind && PyType_HasFeature(base, Py_TPFLAGS_HEAPTYPE) &&
        class_dict_get(base, name)) {
      return true;
    }
    is_behind = is_behind || base == module_base_type;
  }
  return false;
}

}  // namespace

bool has_behind(PyTypeObject *type, Virtual method) {
  // Comparing odd keys in the dict of a class may run code that takes the type from its object.
  const auto keep = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject *>(type));
  return found_behind(type, virtual_name(method));
}

bool hands_writes_on(PyTypeObject *type) {
  // Finding the facts may run code that takes the type from its object, too.
  const auto keep = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject *>(type));
  return class_info(type).overrides(Virtual::setattr) &&
         (has_behind(type, Virtual::setattr) || has_behind(type, Virtual::delattr));
}

int hand_write_on(ModuleObject *module, PyObject *name, PyObject *value) {
  const py::object next = next_after_module(as_object(module));
  if (!next) {
    return -1;
  }
  const py::object done = value ? call_method(next, "__setattr__", name, value)
                                : call_method(next, "__delattr__", name);
  return done ? 0 : -1;
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
  if (PyDict_SetItem(module_base_type->tp_dict, virtual_name(Virtual::reduce_ex),
                     of_base(Virtual::reduce_ex).ptr()) < 0) {
    throw py::error_already_set();
  }
  PyType_Modified(module_base_type);
}

}  // namespace modtree
