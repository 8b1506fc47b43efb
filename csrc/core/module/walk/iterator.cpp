// SPDX-License-Identifier: BSD-3-Clause
#include "module/walk/iterator.h"

#include <utility>

#include "module/walk/iterator_steps.h"
#include "python/installed.h"
#include "python/native_section.h"
#include "python/new_type.h"
#include "python/slot_guard.h"

namespace modtree {

namespace {

struct WalkObject {
  PyObject_HEAD Walk walk;
};

PyTypeObject *walk_type = nullptr;

Walk &walk_of(PyObject *self_obj) { return reinterpret_cast<WalkObject *>(self_obj)->walk; }

// The method of Module that asked for it.
const char *name_of(const Request &request) {
  switch (request.kind) {
    case WalkKind::modules:
      return request.named ? "named_modules" : "modules";
    case WalkKind::children:
      return request.named ? "named_children" : "children";
    case WalkKind::parameters:
      return request.named ? "named_parameters" : "parameters";
    case WalkKind::buffers:
      return request.named ? "named_buffers" : "buffers";
    case WalkKind::members:
      return "_named_members";
  }
  return "modules";
}

// Lets go of everything; the walk is at its end.
void finish(Walk &walk) {
  walk.finished = true;
  walk.gives_modules = false;
  Request request;
  std::swap(request, walk.request);
  walk.request.kind = request.kind;  // its name outlives it
  walk.request.named = request.named;
  const std::unique_ptr<PreorderWalk> modules = std::move(walk.modules);
  RegistryItems entries;
  std::swap(entries, walk.entries);
  const py::object pairs = std::move(walk.pairs);
  const py::object members = std::move(walk.members);
  const py::object owner = std::move(walk.owner);
  const py::object current = std::move(walk.current);
  walk.seen.clear();
}

[[gnu::noinline]] PyObject *next_item(Walk &walk) {
  if (walk.finished || walk.running) {
    if (!walk.finished) {
      PyErr_SetString(PyExc_ValueError, "generator already executing");
    }
    return nullptr;
  }
  walk.running = true;
  PyObject *item = slot_guard<PyObject *>(nullptr, [&] { return walk.next(); });
  walk.running = false;
  if (!item) {
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    finish(walk);
    PyErr_Restore(type, error, traceback);
  }
  return item;
}

PyObject *walk_tp_iternext(PyObject *self_obj) {
  Walk &walk = walk_of(self_obj);
  PyObject *sibling = walk.next_sibling();
  return sibling ? sibling : next_item(walk);
}

PyObject *walk_close(PyObject *self_obj, PyObject *) {
  Walk &walk = walk_of(self_obj);
  if (walk.running) {
    PyErr_SetString(PyExc_ValueError, "generator already executing");
    return nullptr;
  }
  finish(walk);
  Py_RETURN_NONE;
}

int walk_tp_traverse(PyObject *self_obj, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(self_obj));
  const Walk &walk = walk_of(self_obj);
  Py_VISIT(walk.request.root.ptr());
  Py_VISIT(walk.request.prefix.ptr());
  Py_VISIT(walk.request.memo.ptr());
  Py_VISIT(walk.request.get_members_fn.ptr());
  Py_VISIT(walk.pairs.ptr());
  Py_VISIT(walk.members.ptr());
  Py_VISIT(walk.owner.ptr());
  Py_VISIT(walk.current.ptr());
  if (const int result = walk.entries.traverse(visit, arg)) {
    return result;
  }
  if (walk.modules) {
    if (const int result = walk.modules->traverse(visit, arg)) {
      return result;
    }
  }
  return walk.seen.traverse(visit, arg);
}

int walk_tp_clear(PyObject *self_obj) {
  finish(walk_of(self_obj));
  return 0;
}

void walk_tp_dealloc(PyObject *self_obj) {
  const NativeSection in_section;
  PyObject_GC_UnTrack(self_obj);
  PyTypeObject *type = Py_TYPE(self_obj);
  walk_of(self_obj).~Walk();
  type->tp_free(self_obj);
  Py_DECREF(type);
}

// --- what makes a walk answer as a generator: send, throw, the gi_ attributes

// A generator of CPython's own in the state of the walk. It answers what is asked too seldom to be
// worth code of ours that would have to follow CPython's. Null on error.
py::object twin_of(PyObject *self_obj) {
  const Walk &walk = walk_of(self_obj);
  const auto name = py::reinterpret_steal<py::object>(PyUnicode_FromString(name_of(walk.request)));
  return name ? call_installed(installed.walk_twin, name, walk.started ? Py_True : Py_False,
                               walk.finished ? Py_True : Py_False)
              : py::object();
}

PyObject *attribute_of_twin(PyObject *self_obj, const char *name) {
  const py::object twin = twin_of(self_obj);
  return twin ? get_attribute(twin, name).release().ptr() : nullptr;
}

// inspect.isgenerator() and isinstance() ask for it after the type itself.
PyObject *walk_get_class(PyObject *, void *) {
  return import_attribute("types", "GeneratorType").release().ptr();
}

PyObject *walk_get_name(PyObject *self_obj, void *) {
  return PyUnicode_FromString(name_of(walk_of(self_obj).request));
}
PyObject *walk_get_qualname(PyObject *self_obj, void *) {
  return PyUnicode_FromFormat("Module.%s", name_of(walk_of(self_obj).request));
}
PyObject *walk_get_frame(PyObject *self_obj, void *) {
  return attribute_of_twin(self_obj, "gi_frame");
}
PyObject *walk_get_code(PyObject *self_obj, void *) {
  return attribute_of_twin(self_obj, "gi_code");
}
PyObject *walk_get_running(PyObject *self_obj, void *) {
  return PyBool_FromLong(walk_of(self_obj).running);
}
PyObject *walk_get_suspended(PyObject *self_obj, void *) {
  const Walk &walk = walk_of(self_obj);
  return PyBool_FromLong(walk.started && !walk.running && !walk.finished);
}
PyObject *walk_get_yieldfrom(PyObject *, void *) { Py_RETURN_NONE; }

PyGetSetDef walk_getset[] = {
    {"__class__", entry<walk_get_class>, nullptr, nullptr, nullptr},
    {"__name__", entry<walk_get_name>, nullptr, "The method that started the walk.", nullptr},
    {"__qualname__", entry<walk_get_qualname>, nullptr,
     "The method that started the walk, with its class.", nullptr},
    {"gi_frame", entry<walk_get_frame>, nullptr,
     "A frame without locals; None at the end of the walk.", nullptr},
    {"gi_code", entry<walk_get_code>, nullptr, "An empty code object with the name of the method.",
     nullptr},
    {"gi_running", entry<walk_get_running>, nullptr, "True while the walk looks for its next item.",
     nullptr},
    {"gi_suspended", entry<walk_get_suspended>, nullptr,
     "True if the walk has given an item and not ended.", nullptr},
    {"gi_yieldfrom", entry<walk_get_yieldfrom>, nullptr,
     "None: a walk does not say what it takes items from.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyObject *walk_tp_repr(PyObject *self_obj) {
  return PyUnicode_FromFormat("<generator object Module.%s at %p>",
                              name_of(walk_of(self_obj).request), self_obj);
}

PyObject *walk_send(PyObject *self_obj, PyObject *value) {
  const Walk &walk = walk_of(self_obj);
  if (value != Py_None && !walk.started && !walk.finished) {
    PyErr_SetString(PyExc_TypeError, "can't send non-None value to a just-started generator");
    return nullptr;
  }
  PyObject *item = Py_TYPE(self_obj)->tp_iternext(self_obj);
  if (!item && !PyErr_Occurred()) {
    PyErr_SetNone(PyExc_StopIteration);
  }
  return item;
}

// throw(type[, value[, traceback]]): a walk never catches, so it ends and the error comes back.
// Arguments that are refused do not end it.
PyObject *walk_throw(PyObject *self_obj, PyObject *args) {
  if (walk_of(self_obj).running) {
    PyErr_SetString(PyExc_ValueError, "generator already executing");
    return nullptr;
  }
  const py::object twin = twin_of(self_obj);
  const py::object method = twin ? get_attribute(twin, "throw") : py::object();
  if (!method) {
    return nullptr;
  }
  const auto result = py::reinterpret_steal<py::object>(PyObject_Call(method.ptr(), args, nullptr));
  const py::error_scope thrown;
  const py::object frame = get_attribute(twin, "gi_frame");
  if (result || (frame && frame.is_none())) {
    finish(walk_of(self_obj));
  }
  return nullptr;
}

// --- the type

PyMethodDef walk_methods[] = {
    {"close", entry<walk_close>, METH_NOARGS, "close($self, /)\n--\n\nEnds the walk."},
    {"send", entry<walk_send>, METH_O,
     "send($self, value, /)\n--\n\nThe next item; there is nothing that could take the value."},
    {"throw", entry<walk_throw>, METH_VARARGS,
     "throw($self, type, value=None, traceback=None, /)\n--\n\nEnds the walk and raises."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot walk_slots[] = {
    {Py_tp_doc, const_cast<char *>("A lazy walk over a module tree; behaves as a generator.")},
    {Py_tp_iter, reinterpret_cast<void *>(PyObject_SelfIter)},
    {Py_tp_iternext, reinterpret_cast<void *>(entry<walk_tp_iternext>)},
    {Py_tp_traverse, reinterpret_cast<void *>(walk_tp_traverse)},
    {Py_tp_clear, reinterpret_cast<void *>(unfailing_entry<walk_tp_clear>)},
    {Py_tp_dealloc, reinterpret_cast<void *>(walk_tp_dealloc)},
    {Py_tp_repr, reinterpret_cast<void *>(entry<walk_tp_repr>)},
    {Py_tp_methods, walk_methods},
    {Py_tp_getset, walk_getset},
    {0, nullptr},
};

PyType_Spec walk_spec = {
    "modtree._C.Walk",
    sizeof(WalkObject),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    walk_slots,
};

}  // namespace

PyObject *new_walk(Request request) {
  PyObject *self_obj = walk_type->tp_alloc(walk_type, 0);
  if (!self_obj) {
    return nullptr;
  }
  Walk *walk = new (&walk_of(self_obj)) Walk();
  walk->request = std::move(request);
  return self_obj;
}

void make_walk_type(py::handle m) { walk_type = new_type(m, "Walk", &walk_spec); }

}  // namespace modtree
