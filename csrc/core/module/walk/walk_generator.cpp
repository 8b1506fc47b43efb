// SPDX-License-Identifier: BSD-3-Clause
#include "module/walk/walk_generator.h"

#include "python/installed.h"

namespace modtree {

namespace {

// A generator of CPython's own in the state of the walk. It answers what is asked too seldom to be
// worth code of ours that would have to follow CPython's. Null on error.
py::object twin_of(PyObject *self_obj) {
  const WalkStatus status = walk_status(self_obj);
  const auto name = py::reinterpret_steal<py::object>(PyUnicode_FromString(status.name));
  return name ? call_installed(installed.walk_twin, name, status.started ? Py_True : Py_False,
                               status.finished ? Py_True : Py_False)
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
  return PyUnicode_FromString(walk_status(self_obj).name);
}
PyObject *walk_get_qualname(PyObject *self_obj, void *) {
  return PyUnicode_FromFormat("Module.%s", walk_status(self_obj).name);
}
PyObject *walk_get_frame(PyObject *self_obj, void *) {
  return attribute_of_twin(self_obj, "gi_frame");
}
PyObject *walk_get_code(PyObject *self_obj, void *) {
  return attribute_of_twin(self_obj, "gi_code");
}
PyObject *walk_get_running(PyObject *self_obj, void *) {
  return PyBool_FromLong(walk_status(self_obj).running);
}
PyObject *walk_get_suspended(PyObject *self_obj, void *) {
  const WalkStatus status = walk_status(self_obj);
  return PyBool_FromLong(status.started && !status.running && !status.finished);
}
PyObject *walk_get_yieldfrom(PyObject *, void *) { Py_RETURN_NONE; }

}  // namespace

PyGetSetDef walk_getset[] = {
    {"__class__", walk_get_class, nullptr, nullptr, nullptr},
    {"__name__", walk_get_name, nullptr, "The method that started the walk.", nullptr},
    {"__qualname__", walk_get_qualname, nullptr,
     "The method that started the walk, with its class.", nullptr},
    {"gi_frame", walk_get_frame, nullptr, "A frame without locals; None at the end of the walk.",
     nullptr},
    {"gi_code", walk_get_code, nullptr, "An empty code object with the name of the method.",
     nullptr},
    {"gi_running", walk_get_running, nullptr, "Is the walk looking for its next item?", nullptr},
    {"gi_suspended", walk_get_suspended, nullptr, "Has the walk given an item and not ended?",
     nullptr},
    {"gi_yieldfrom", walk_get_yieldfrom, nullptr,
     "None: a walk does not say what it takes items from.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyObject *walk_tp_repr(PyObject *self_obj) {
  return PyUnicode_FromFormat("<generator object Module.%s at %p>", walk_status(self_obj).name,
                              self_obj);
}

PyObject *walk_send(PyObject *self_obj, PyObject *value) {
  const WalkStatus status = walk_status(self_obj);
  if (value != Py_None && !status.started && !status.finished) {
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
  if (walk_status(self_obj).running) {
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
    end_walk(self_obj);
  }
  return nullptr;
}

}  // namespace modtree
