// SPDX-License-Identifier: BSD-3-Clause
#include "module/type.h"

#include <structmember.h>

#include <cstddef>

#include "module/adoption.h"
#include "module/attributes/assignment.h"
#include "module/attributes/plain_attributes.h"
#include "module/attributes/reading.h"
#include "module/bases_behind.h"
#include "module/call.h"
#include "module/class_info.h"
#include "module/copy.h"
#include "module/methods.h"
#include "module/uses.h"
#include "python/native_section.h"
#include "python/new_type.h"
#include "python/slot_guard.h"

namespace modtree {

namespace {

// TypeError for the first argument that Module.__init__ does not take (BEHAVIOUR 1.6).
int raise_unexpected_arguments(PyObject *self_obj, PyObject *args, PyObject *keywords) {
  const char *class_name = type_short_name(Py_TYPE(self_obj));
  Py_ssize_t position = 0;
  PyObject *key, *value;
  if (keywords && dict_next_item(keywords, &position, &key, &value)) {
    PyErr_Format(PyExc_TypeError, "%.200s.__init__() got an unexpected keyword argument '%U'",
                 class_name, key);
    return -1;
  }
  PyErr_Format(PyExc_TypeError, "%.200s.__init__() takes 1 positional argument but %zd were given",
               class_name, PyTuple_GET_SIZE(args) + 1);
  return -1;
}

// 1 when the class asks for cooperative construction.
int calls_super_init(PyObject *self_obj) {
  const py::object flag = type_lookup(Py_TYPE(self_obj), names.call_super_init);
  if (!flag || flag.ptr() == Py_False) {
    return 0;
  }
  const auto value =
      py::reinterpret_steal<py::object>(PyObject_GetAttr(self_obj, names.call_super_init));
  return value ? PyObject_IsTrue(value.ptr()) : -1;
}

// After reset_state(): each of the 17 is assigned through the class behind Module that takes part
// in that.
int assign_through_next_class(ModuleObject *module) {
  for (int i = 0; i < kSlotCount; ++i) {
    if (delete_slot(module, static_cast<Slot>(i)) < 0) {
      return -1;
    }
  }
  for (int i = 0; i < kSlotCount; ++i) {
    const Slot slot = static_cast<Slot>(i);
    const auto value = py::reinterpret_steal<py::object>(default_value(slot));
    if (!value || hand_write_on(module, slot_name(slot), value.ptr()) < 0) {
      return -1;
    }
  }
  return 0;
}

// After reset_state(): what the class takes by a property or slot of its own is assigned to it, and
// is not in `__dict__`.
int assign_to_class(ModuleObject *module) {
  if (hands_writes_on(Py_TYPE(module))) {
    return assign_through_next_class(module);
  }
  for (int i = 0; i < kSlotCount; ++i) {
    const Slot slot = static_cast<Slot>(i);
    py::object descriptor = type_lookup(Py_TYPE(module), slot_name(slot));
    if (!descriptor || !Py_TYPE(descriptor.ptr())->tp_descr_set) {
      continue;
    }
    const auto value = py::reinterpret_steal<py::object>(default_value(slot));
    if (!value || delete_slot(module, slot) < 0 ||
        set_through_descriptor(std::move(descriptor), module, slot_name(slot), value.ptr()) < 0) {
      return -1;
    }
  }
  return 0;
}

int module_tp_init(PyObject *self_obj, PyObject *args, PyObject *keywords) {
  const int cooperative = calls_super_init(self_obj);
  if (cooperative < 0) {
    return -1;
  }
  if (!cooperative && ((keywords && PyDict_GET_SIZE(keywords) > 0) || PyTuple_GET_SIZE(args) > 0)) {
    return raise_unexpected_arguments(self_obj, args, keywords);
  }
  if (reset_state(as_module(self_obj)) < 0) {
    return -1;
  }
  if (!class_info(Py_TYPE(self_obj)).keeps_slots() &&
      slot_guard(-1, [&] { return assign_to_class(as_module(self_obj)); }) < 0) {
    return -1;
  }
  if (!cooperative) {
    return 0;
  }
  return slot_guard(-1, [&] {
    const py::object super = py::reinterpret_steal<py::object>(PyObject_CallFunctionObjArgs(
        reinterpret_cast<PyObject *>(&PySuper_Type), reinterpret_cast<PyObject *>(module_base_type),
        self_obj, nullptr));
    if (!super) {
      return -1;
    }
    const py::object init = super.attr(py::handle(names.init));
    PyObject *result = PyObject_Call(init.ptr(), args, keywords);
    Py_XDECREF(result);
    return result ? 0 : -1;
  });
}

int module_tp_traverse(PyObject *self_obj, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(self_obj));
  ModuleObject *self = as_module(self_obj);
  Py_VISIT(self->dict);
  Py_VISIT(self->state.training);
  Py_VISIT(self->state.parameters);
  Py_VISIT(self->state.buffers);
  Py_VISIT(self->state.modules);
  Py_VISIT(self->state.non_persistent);
  if (self->state.hooks) {
    for (PyObject *value : self->state.hooks->values) {
      Py_VISIT(value);
    }
  }
  return 0;
}

int module_tp_clear(PyObject *self_obj) {
  ModuleObject *self = as_module(self_obj);
  // What dies here may still reach the module, which is then one before Module.__init__: not in
  // exposed mode without a dict.
  const ModuleState old = exchange_state(self, ModuleState{});
  PyObject *dict = exchange_cell<PyObject>(&self->dict, nullptr);
  release_state(old);
  Py_XDECREF(dict);
  return 0;
}

void module_tp_dealloc(PyObject *self_obj) {
  const NativeSection in_section;
  PyObject_GC_UnTrack(self_obj);
  Py_TRASHCAN_BEGIN(self_obj, module_tp_dealloc) ModuleObject *self = as_module(self_obj);
  PyTypeObject *type = Py_TYPE(self_obj);
  if (self->weakrefs) {
    PyObject_ClearWeakRefs(self_obj);
  }
  module_tp_clear(self_obj);
  type->tp_free(self_obj);
  Py_DECREF(type);
  Py_TRASHCAN_END
}

// --- __dict__

PyObject *module_get_dict(PyObject *self_obj, void *) {
  ModuleObject *self = as_module(self_obj);
  if (expose(self) < 0) {
    return nullptr;
  }
  return Py_NewRef(self->dict);
}

int module_set_dict(PyObject *self_obj, PyObject *value, void *) {
  ModuleObject *self = as_module(self_obj);
  if (value && !PyDict_Check(value)) {
    PyErr_Format(PyExc_TypeError, "__dict__ must be set to a dictionary, not a '%.200s'",
                 Py_TYPE(value)->tp_name);
    return -1;
  }
  PyObject *replacement = value ? Py_NewRef(value) : PyDict_New();
  if (!replacement) {
    return -1;
  }
  ModuleState exposed{};
  exposed.initialized = true;
  exposed.exposed = true;
  const ModuleState old = exchange_state(self, exposed);
  PyObject *old_dict = exchange_cell(&self->dict, replacement);
  release_state_later(old);
  release_later(old_dict);
  return 0;
}

// As a Python class has it. Tools that make classes with slots (attrs) look for the name in the
// dicts of the bases before they give a class such a slot.
PyObject *module_get_weakref(PyObject *self_obj, void *) {
  PyObject *first = as_module(self_obj)->weakrefs;
  return Py_NewRef(first ? first : Py_None);
}

PyGetSetDef module_getset[] = {
    {"__dict__", entry<module_get_dict>, entry<module_set_dict>,
     "The attributes of the module, with its 17 internal ones.", nullptr},
    {"__weakref__", entry<module_get_weakref>, nullptr, "A weak reference to the module, or None.",
     nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMemberDef module_members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(ModuleObject, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(ModuleObject, weakrefs), READONLY, nullptr},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(ModuleObject, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyCFunction as_method(PyObject *(*function)(PyObject *, PyObject *const *, Py_ssize_t,
                                            PyObject *)) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef module_methods[] = {
    {"__getattr__", entry<module_getattr>, METH_O,
     "__getattr__($self, name, /)\n--\n\nLooks a name up in the parameters, buffers and children."},
    {"_call_impl",
     reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(entry<module_call_impl>)),
     METH_VARARGS | METH_KEYWORDS,
     "_call_impl($self, /, *args, **kwargs)\n--\n\nRuns the hooks and `forward`."},
    {"register_parameter", as_method(entry<module_register_parameter>),
     METH_FASTCALL | METH_KEYWORDS,
     "register_parameter($self, name, param)\n--\n\nAdds a parameter, or reserves its place when "
     "`param` is None."},
    {"register_buffer", as_method(entry<module_register_buffer>), METH_FASTCALL | METH_KEYWORDS,
     "register_buffer($self, name, tensor, persistent=True)\n--\n\n"
     "Adds a buffer; one that is not persistent stays out of state_dict()."},
    {"add_module", as_method(entry<module_add_module>), METH_FASTCALL | METH_KEYWORDS,
     "add_module($self, name, module)\n--\n\nAdds a child module, or reserves its place when "
     "`module` is None."},
    {"parameters", as_method(entry<module_parameters>), METH_FASTCALL | METH_KEYWORDS,
     "parameters($self, recurse=True)\n--\n\nIterates over the parameters of the tree, each once."},
    {"named_parameters", as_method(entry<module_named_parameters>), METH_FASTCALL | METH_KEYWORDS,
     "named_parameters($self, prefix='', recurse=True, remove_duplicate=True)\n--\n\nIterates over "
     "(name, parameter)."},
    {"buffers", as_method(entry<module_buffers>), METH_FASTCALL | METH_KEYWORDS,
     "buffers($self, recurse=True)\n--\n\nIterates over the buffers of the tree, each once."},
    {"named_buffers", as_method(entry<module_named_buffers>), METH_FASTCALL | METH_KEYWORDS,
     "named_buffers($self, prefix='', recurse=True, remove_duplicate=True)\n--\n\nIterates over "
     "(name, buffer)."},
    {"modules", as_method(entry<module_modules>), METH_FASTCALL | METH_KEYWORDS,
     "modules($self, remove_duplicate=True)\n--\n\nIterates over the modules of the tree, this one "
     "first."},
    {"named_modules", as_method(entry<module_named_modules>), METH_FASTCALL | METH_KEYWORDS,
     "named_modules($self, memo=None, prefix='', remove_duplicate=True)\n--\n\nIterates over "
     "(name, module)."},
    {"_named_members", as_method(entry<module_named_members>), METH_FASTCALL | METH_KEYWORDS,
     "_named_members($self, get_members_fn, prefix='', recurse=True, "
     "remove_duplicate=True)\n--\n\nIterates over (name, member) with the members that "
     "`get_members_fn(module)` gives."},
    {"children", entry<module_children>, METH_NOARGS,
     "children($self)\n--\n\nIterates over the direct children."},
    {"named_children", entry<module_named_children>, METH_NOARGS,
     "named_children($self)\n--\n\nIterates over (name, child)."},
    {"apply", as_method(entry<module_apply>), METH_FASTCALL | METH_KEYWORDS,
     "apply($self, fn)\n--\n\nCalls `fn(module)` for every module, children first."},
    {"_apply", as_method(entry<module_apply_>), METH_FASTCALL | METH_KEYWORDS,
     "_apply($self, fn, recurse=True, *, preserve_ties=False)\n--\n\nReplaces every parameter, "
     "gradient and buffer by what `fn` makes of it."},
    {"train", as_method(entry<module_train>), METH_FASTCALL | METH_KEYWORDS,
     "train($self, mode=True)\n--\n\nSets training mode for the tree."},
    {"requires_grad_", as_method(entry<module_requires_grad_>), METH_FASTCALL | METH_KEYWORDS,
     "requires_grad_($self, requires_grad=True)\n--\n\nSets whether the parameters require "
     "gradients."},
    {"zero_grad", as_method(entry<module_zero_grad>), METH_FASTCALL | METH_KEYWORDS,
     "zero_grad($self, set_to_none=True)\n--\n\nDrops or zeroes the gradients of the parameters."},
    {"eval", entry<module_eval>, METH_NOARGS,
     "eval($self)\n--\n\nSets evaluation mode for the tree: train(False)."},
    {"state_dict", as_method(entry<module_state_dict>), METH_FASTCALL | METH_KEYWORDS,
     "state_dict($self, *args, destination=None, prefix='', keep_vars=False, clone=False)\n--\n\n"
     "The parameters, persistent buffers and extra states of the whole tree under their dotted "
     "names.\n\n"
     "Values share storage with the module.\n\n"
     "Args:\n"
     "    destination: the mapping to fill, instead of a new one.\n"
     "    prefix: what stands in front of every name.\n"
     "    keep_vars: store the tensors themselves instead of detached ones.\n"
     "    clone: store copies that later changes of the module do not reach."},
    {"_save_to_state_dict", as_method(entry<module_save_to_state_dict>),
     METH_FASTCALL | METH_KEYWORDS,
     "_save_to_state_dict($self, destination, prefix, keep_vars)\n--\n\n"
     "Stores the parameters, persistent buffers and the extra state of this module, without its "
     "children; override it to save more."},
    {"load_state_dict", as_method(entry<module_load_state_dict>), METH_FASTCALL | METH_KEYWORDS,
     "load_state_dict($self, state_dict, strict=True, assign=False, *, rename=None, "
     "partial=False, dry_run=False)\n--\n\n"
     "Copies the entries of a state dict into the parameters and buffers of the tree.\n\n"
     "Everything is checked before the first value is written; modules with a "
     "`_load_from_state_dict` or load hooks of their own do\n"
     "what these do.\n\n"
     "Args:\n"
     "    state_dict: a mapping such as another module's state_dict().\n"
     "    strict: raise when the two do not have the same keys.\n"
     "    assign: put the given tensors in place of the module's instead of copying their "
     "values.\n"
     "    rename: {old prefix: new one}, {compiled pattern: replacement}, pairs of these, or a "
     "function of a key.\n"
     "    partial: load what fits by name and shape, and return a report of what does not.\n"
     "    dry_run: change nothing; return the report of a partial load.\n\n"
     "Returns the missing and the unexpected keys; a LoadReport with `partial` or `dry_run`.\n\n"
     "Raises RuntimeError, with `missing_keys`, `unexpected_keys` and `error_messages`, when the "
     "load fails."},
    {"_load_from_state_dict", as_method(entry<module_load_from_state_dict>),
     METH_FASTCALL | METH_KEYWORDS,
     "_load_from_state_dict($self, state_dict, prefix, local_metadata, strict, missing_keys, "
     "unexpected_keys, error_msgs)\n--\n\n"
     "Loads the entries of this module, without its children; override it to read older "
     "checkpoints."},
    {"__getstate__", entry<module_getstate>, METH_NOARGS,
     "__getstate__($self)\n--\n\nA shallow copy of `__dict__`."},
    {"__setstate__", entry<module_setstate>, METH_O,
     "__setstate__($self, state, /)\n--\n\nRestores what `__getstate__` gave."},
    {"__reduce_ex__", entry<module_reduce_ex>, METH_O,
     "__reduce_ex__($self, protocol, /)\n--\n\nHelper for pickle."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot module_slots[] = {
    // Gives every class below without an __init__ of its own a signature for inspect.
    {Py_tp_doc,
     const_cast<char *>("ModuleBase(*args, **kwargs)\n--\n\nThe native part of Module.")},
    {Py_tp_new, reinterpret_cast<void *>(module_tp_new)},
    {Py_tp_init, reinterpret_cast<void *>(entry<module_tp_init>)},
    {Py_tp_dealloc, reinterpret_cast<void *>(module_tp_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void *>(module_tp_traverse)},
    {Py_tp_clear, reinterpret_cast<void *>(unfailing_entry<module_tp_clear>)},
    {Py_tp_call, reinterpret_cast<void *>(module_tp_call)},
    {Py_tp_getattro, reinterpret_cast<void *>(module_tp_getattro)},
    {Py_tp_setattro, reinterpret_cast<void *>(module_tp_setattro)},
    {Py_tp_methods, module_methods},
    {Py_tp_members, module_members},
    {Py_tp_getset, module_getset},
    {0, nullptr},
};

PyType_Spec module_spec = {
    "modtree._C.ModuleBase",
    sizeof(ModuleObject),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    module_slots,
};

}  // namespace

bool takes_slots_of_object(PyTypeObject *type) {
  if (type->tp_setattro == PyBaseObject_Type.tp_setattro) {
    return true;
  }
  if (type->tp_getattro == module_tp_getattro) {
    return false;
  }
  return type_lookup(type, names.getattribute)
      .is(type_lookup(&PyBaseObject_Type, names.getattribute));
}

PyObject *module_tp_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
  if (c_stack_ends()) {
    return nullptr;
  }
  const NativeSection in_section;
  if (type->tp_new != module_tp_new &&
      ((args && PyTuple_GET_SIZE(args) > 0) || (keywords && PyDict_GET_SIZE(keywords) > 0))) {
    // Called by a __new__ of the class; the arguments are for __init__ alone.
    PyErr_SetString(PyExc_TypeError,
                    "Module.__new__() takes exactly one argument (the type to instantiate)");
    return nullptr;
  }
  if (type->tp_getattro != module_tp_getattro ||
      (face_count &&
       (type->tp_call != module_tp_call || type->tp_setattro != module_tp_setattro))) {
    take_native_slots(type);
  }
  if (is_reporting && note_new_instance(type) < 0) {
    return nullptr;
  }
  if (PyType_HasFeature(type, Py_TPFLAGS_IS_ABSTRACT)) {
    // object.__new__ raises the TypeError that lists the abstract methods.
    const auto no_arguments = py::reinterpret_steal<py::object>(PyTuple_New(0));
    return no_arguments ? PyBaseObject_Type.tp_new(type, no_arguments.ptr(), nullptr) : nullptr;
  }
  // tp_alloc gives zeroed memory, which is the valid state "not initialized".
  PyObject *made = type->tp_alloc(type, 0);
  if (!made) {
    return nullptr;
  }
  take_vectorcall(type, as_module(made));
  if ((takes_slots_of_object(type) && expose(as_module(made)) < 0) || note_use(made, true) < 0) {
    Py_CLEAR(made);
  }
  return made;
}

void make_module_type(py::handle m) { module_base_type = new_type(m, "ModuleBase", &module_spec); }

}  // namespace modtree
