// SPDX-License-Identifier: BSD-3-Clause
// A Python function on tensors that takes part in the tensor function protocol: calls ask the
// classes of the arguments and the function modes first. In everything else it is the function.
#include "tensor/override.h"

#include <structmember.h>

#include <cstddef>
#include <string>

#include "python/call.h"
#include "python/native_section.h"
#include "python/new_type.h"
#include "python/slot_guard.h"
#include "python/type_text.h"
#include "tensor/op.h"
#include "tensor/op_errors.h"

namespace modtree {

namespace {

struct OverridableObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject *function;   // owned
  PyObject *announced;  // owned: what `__torch_function__` gets in its place, or null
  PyObject *elsewhere;  // owned: its name in other libraries, which compute with theirs; or null
  PyObject *out_rule;  // owned: what dtypes `out` may have (modtree/numpy/ops/out.py); null: no out
  PyObject *weakrefs;
  UnfitDtypes unfit;  // dtypes of the first argument that are refused
};

OverridableObject *as_overridable(PyObject *obj) {
  return reinterpret_cast<OverridableObject *>(obj);
}

[[gnu::noinline]] void name_failed_call(PyObject *function, PyObject *const *args,
                                        Py_ssize_t count) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  py::object name = get_attribute(function, "__name__");
  PyErr_Clear();
  PyErr_Restore(type, value, traceback);
  if (name) {
    name_foreign_argument(name.ptr(), args, count, false);
  }
}

// An argument that is asked for an attribute of tensors is not a tensor: the pending AttributeError
// becomes a TypeError that names its place.
void name_what_is_no_tensor(PyObject *function, PyObject *const *args, Py_ssize_t nargs) {
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
    return;
  }
  slot_guard(0, [&] {
    py::error_already_set error;  // takes the pending error
    const py::object asked = py::getattr(error.value(), "obj", py::none());
    for (Py_ssize_t i = 0; i < nargs; ++i) {
      // Operations get a list of their own in place of a list of tensors.
      const bool list = PyList_Check(asked.ptr()) && PySequence_Check(args[i]);
      if ((args[i] == asked.ptr() || list) && !is_tensor(args[i]) && !asked.is_none()) {
        const py::object name = get_attribute(function, "__name__");
        if (name) {
          const std::string type = type_text(args[i]);
          PyErr_Format(PyExc_TypeError, "%S(): argument %zd must be Tensor, not %s", name.ptr(),
                       i + 1, type.c_str());
        }
        return 0;
      }
    }
    error.restore();
    return 0;
  });
}

PyObject *overridable_tp_vectorcall(PyObject *obj, PyObject *const *args, size_t nargsf,
                                    PyObject *kwnames) {
  OverridableObject *self = as_overridable(obj);
  const Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
  if (is_overridden(args, argument_count(nargs, kwnames))) {
    PyObject *result = nullptr;
    const bool taken = slot_guard(true, [&] {
      PyObject *func = self->announced == nullptr ? obj : self->announced;
      // Owned, because what is asked may rename the function.
      const auto name = py::reinterpret_borrow<py::object>(self->elsewhere);
      return call_override(func, args, nargs, kwnames, &result) ||
             (name && call_elsewhere(obj, name.ptr(), args, nargs, kwnames, &result));
    });
    if (taken) {
      return result;
    }
  }
  if (nargs > 0 && (self->unfit.missing | self->unfit.refused) != 0 && is_tensor(args[0])) {
    const int num = PyArray_TYPE(as_tensor(args[0])->array);
    if (self->unfit.has(num)) {
      py::object name = get_attribute(obj, "__name__");
      if (name) {
        raise_unfit(name.ptr(), self->unfit, num);
      }
      return nullptr;
    }
  }
  if (self->out_rule != nullptr && has_keyword(kwnames, "out")) {
    return call_by_name(obj, args, nargs, kwnames);
  }
  PyObject *result;
  {
    const OutsideNativeSection outside;
    result = PyObject_Vectorcall(self->function, args, nargsf, kwnames);
  }
  if (result == nullptr) {
    name_failed_call(self->function, args, argument_count(nargs, kwnames));
    name_what_is_no_tensor(self->function, args, nargs);
  }
  return result;
}

PyObject *overridable_tp_descr_get(PyObject *self, PyObject *obj, PyObject *) {
  return obj == nullptr || obj == Py_None ? Py_NewRef(self) : PyMethod_New(self, obj);
}

// The function's own answer, where that of every object of the type would hide it.
bool is_of_function(PyObject *name) {
  for (const char *known : {"__doc__", "__module__", "__name__", "__qualname__", "__dict__"}) {
    if (PyUnicode_CompareWithASCIIString(name, known) == 0) {
      return true;
    }
  }
  return false;
}

PyObject *overridable_tp_getattro(PyObject *obj, PyObject *name) {
  PyObject *function = as_overridable(obj)->function;
  if (PyUnicode_Check(name) && is_of_function(name)) {
    return PyObject_GetAttr(function, name);
  }
  PyObject *found = PyObject_GenericGetAttr(obj, name);
  if (found != nullptr || !PyErr_ExceptionMatches(PyExc_AttributeError)) {
    return found;
  }
  PyErr_Clear();
  return PyObject_GetAttr(function, name);
}

int overridable_tp_setattro(PyObject *obj, PyObject *name, PyObject *value) {
  return PyObject_SetAttr(as_overridable(obj)->function, name, value);
}

PyObject *overridable_tp_repr(PyObject *obj) {
  return PyObject_Repr(as_overridable(obj)->function);
}

int overridable_tp_traverse(PyObject *obj, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(obj));
  Py_VISIT(as_overridable(obj)->function);
  Py_VISIT(as_overridable(obj)->announced);
  Py_VISIT(as_overridable(obj)->elsewhere);
  Py_VISIT(as_overridable(obj)->out_rule);
  return 0;
}

// The function stays: whoever still holds the object may call it.
int overridable_tp_clear(PyObject *obj) {
  Py_CLEAR(as_overridable(obj)->announced);
  return 0;
}

void overridable_tp_dealloc(PyObject *obj) {
  const NativeSection in_section;
  PyTypeObject *type = Py_TYPE(obj);
  PyObject_GC_UnTrack(obj);
  if (as_overridable(obj)->weakrefs != nullptr) {
    PyObject_ClearWeakRefs(obj);
  }
  Py_XDECREF(as_overridable(obj)->function);
  Py_XDECREF(as_overridable(obj)->announced);
  Py_XDECREF(as_overridable(obj)->elsewhere);
  Py_XDECREF(as_overridable(obj)->out_rule);
  type->tp_free(obj);
  Py_DECREF(type);
}

PyObject *overridable_tp_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static const char *kKeywords[] = {"function", "announced", nullptr};
  PyObject *function, *announced = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:Overridable", const_cast<char **>(kKeywords),
                                   &function, &announced)) {
    return nullptr;
  }
  if (!PyCallable_Check(function)) {
    PyErr_Format(PyExc_TypeError, "Overridable() takes a function, got %.200s",
                 Py_TYPE(function)->tp_name);
    return nullptr;
  }
  PyObject *obj = type->tp_alloc(type, 0);
  if (obj == nullptr) {
    return nullptr;
  }
  OverridableObject *self = as_overridable(obj);
  self->vectorcall = entry<overridable_tp_vectorcall>;
  self->function = Py_NewRef(function);
  self->announced = announced == Py_None ? nullptr : Py_NewRef(announced);
  return obj;
}

// By the name of the function, which must lead to this object.
PyObject *overridable_reduce(PyObject *self, PyObject *) {
  return PyObject_GetAttrString(self, "__qualname__");
}

PyObject *overridable_announce(PyObject *obj, PyObject *announced) {
  OverridableObject *self = as_overridable(obj);
  PyObject *old = self->announced;
  self->announced = Py_NewRef(announced);
  Py_XDECREF(old);
  Py_RETURN_NONE;
}

PyObject *set_text(PyObject **cell, PyObject *text) {
  if (!PyUnicode_Check(text)) {
    PyErr_Format(PyExc_TypeError, "expected a str, got %.200s", Py_TYPE(text)->tp_name);
    return nullptr;
  }
  PyObject *old = *cell;
  *cell = Py_NewRef(text);
  Py_XDECREF(old);
  Py_RETURN_NONE;
}

PyObject *overridable_take_out(PyObject *obj, PyObject *rule) {
  return set_text(&as_overridable(obj)->out_rule, rule);
}

PyObject *overridable_run_elsewhere(PyObject *obj, PyObject *name) {
  return set_text(&as_overridable(obj)->elsewhere, name);
}

// _limit(missing, refused, tensors_only, fitting): the dtypes that the function refuses.
PyObject *overridable_limit(PyObject *obj, PyObject *args) {
  int tensors_only, fitting;
  if (!parse_unfit(args, &as_overridable(obj)->unfit, &tensors_only, &fitting)) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyMethodDef kOverridableMethods[] = {
    {"_limit", entry<overridable_limit>, METH_VARARGS, nullptr},
    {"_take_out", entry<overridable_take_out>, METH_O,
     "_take_out($self, rule, /)\n--\n\nFrom now on out= is taken."},
    {"_run_elsewhere", entry<overridable_run_elsewhere>, METH_O,
     "_run_elsewhere($self, name, /)\n--\n\nFrom now on other libraries compute with their "
     "tensors, "
     "by their function of that name."},
    {"__reduce__", entry<overridable_reduce>, METH_NOARGS, nullptr},
    {"_announce", entry<overridable_announce>, METH_O,
     "_announce($self, function, /)\n--\n\nWhat __torch_function__ gets in place of this object."},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef kOverridableMembers[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(OverridableObject, vectorcall), READONLY,
     nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(OverridableObject, weakrefs), READONLY, nullptr},
    {"_elsewhere", T_OBJECT, offsetof(OverridableObject, elsewhere), READONLY, nullptr},
    {"_out_rule", T_OBJECT, offsetof(OverridableObject, out_rule), READONLY, nullptr},
    {"__wrapped__", T_OBJECT, offsetof(OverridableObject, function), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot kOverridableSlots[] = {
    {Py_tp_new, reinterpret_cast<void *>(entry<overridable_tp_new>)},
    {Py_tp_call, reinterpret_cast<void *>(PyVectorcall_Call)},
    {Py_tp_descr_get, reinterpret_cast<void *>(entry<overridable_tp_descr_get>)},
    {Py_tp_getattro, reinterpret_cast<void *>(entry<overridable_tp_getattro>)},
    {Py_tp_setattro, reinterpret_cast<void *>(entry<overridable_tp_setattro>)},
    {Py_tp_repr, reinterpret_cast<void *>(entry<overridable_tp_repr>)},
    {Py_tp_traverse, reinterpret_cast<void *>(overridable_tp_traverse)},
    {Py_tp_clear, reinterpret_cast<void *>(unfailing_entry<overridable_tp_clear>)},
    {Py_tp_dealloc, reinterpret_cast<void *>(overridable_tp_dealloc)},
    {Py_tp_methods, kOverridableMethods},
    {Py_tp_members, kOverridableMembers},
    {0, nullptr},
};

PyType_Spec kOverridableSpec = {"modtree._C.Overridable", sizeof(OverridableObject), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
                                    Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
                                kOverridableSlots};

}  // namespace

void make_overridable_type(py::handle m) { new_type(m, "Overridable", &kOverridableSpec); }

}  // namespace modtree
