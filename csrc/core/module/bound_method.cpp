// SPDX-License-Identifier: BSD-3-Clause
#include "module/bound_method.h"

#include <structmember.h>

#include <cstddef>

#include "python/call.h"
#include "python/native_section.h"
#include "python/new_type.h"
#include "python/slot_guard.h"

namespace modtree {

namespace {

struct BoundMethod {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject *native;
  PyObject *function;  // the Python function that the class shows for it, or null
  PyObject *self;
  PyObject *weakrefs;
  std::uint64_t *calls;  // where they are counted, or null
};

PyTypeObject *bound_method_type = nullptr;

BoundMethod *as_bound(PyObject *value) { return reinterpret_cast<BoundMethod *>(value); }

PyObject *call_with_self(PyObject *function, PyObject *self, PyObject *const *args,
                         std::size_t flagged_count, PyObject *keyword_names) {
  const std::size_t count = static_cast<std::size_t>(PyVectorcall_NARGS(flagged_count));
  if (flagged_count & PY_VECTORCALL_ARGUMENTS_OFFSET) {
    PyObject **with_self = const_cast<PyObject **>(args) - 1;
    PyObject *before = with_self[0];
    with_self[0] = self;
    PyObject *result = PyObject_Vectorcall(function, with_self, count + 1, keyword_names);
    with_self[0] = before;
    return result;
  }
  const std::size_t named =
      keyword_names ? static_cast<std::size_t>(PyTuple_GET_SIZE(keyword_names)) : 0;
  const std::size_t total = count + named;
  constexpr std::size_t kSmall = 8;
  PyObject *small[kSmall + 1];
  PyObject **stack = total > kSmall ? PyMem_New(PyObject *, total + 1) : small;
  if (!stack) {
    return PyErr_NoMemory();
  }
  stack[0] = self;
  for (std::size_t i = 0; i < total; ++i) {
    stack[i + 1] = args[i];
  }
  PyObject *result = PyObject_Vectorcall(function, stack, count + 1, keyword_names);
  if (stack != small) {
    PyMem_Free(stack);
  }
  return result;
}

// Calls a method as CPython's own bound methods call it, without the checks of a descriptor: null
// without an error where it is another kind of method.
PyObject *call_directly(PyObject *native, PyObject *self, PyObject *const *args, Py_ssize_t count,
                        PyObject *keyword_names) {
  if (!Py_IS_TYPE(native, &PyMethodDescr_Type)) {
    return nullptr;
  }
  const PyMethodDef *definition = reinterpret_cast<PyMethodDescrObject *>(native)->d_method;
  const bool is_fast = definition->ml_flags == (METH_FASTCALL | METH_KEYWORDS);
  const bool is_plain = definition->ml_flags == METH_NOARGS && count == 0 && !keyword_names;
  if ((!is_fast && !is_plain) || Py_EnterRecursiveCall(" while calling a Python object")) {
    return nullptr;
  }
  const auto function = reinterpret_cast<void (*)()>(definition->ml_meth);
  PyObject *result = is_fast ? reinterpret_cast<_PyCFunctionFastWithKeywords>(function)(
                                   self, args, count, keyword_names)
                             : definition->ml_meth(self, nullptr);
  Py_LeaveRecursiveCall();
  return result;
}

PyObject *call_bound(PyObject *self_obj, PyObject *const *args, std::size_t flagged_count,
                     PyObject *keyword_names) {
  const BoundMethod *method = as_bound(self_obj);
  if (method->calls) {
    ++*method->calls;
  }
  // Owned: the call may drop the last reference to the bound method.
  PyObject *self = Py_NewRef(method->self);
  PyObject *native = Py_NewRef(method->native);
  PyObject *result =
      call_directly(native, self, args, PyVectorcall_NARGS(flagged_count), keyword_names);
  if (!result && !PyErr_Occurred()) {
    result = call_with_self(native, self, args, flagged_count, keyword_names);
  }
  Py_DECREF(native);
  Py_DECREF(self);
  return result;
}

// What the names, the help and the signature are from.
PyObject *shown(const BoundMethod *method) {
  return method->function ? method->function : method->native;
}

int bound_traverse(PyObject *self_obj, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(self_obj));
  Py_VISIT(as_bound(self_obj)->native);
  Py_VISIT(as_bound(self_obj)->function);
  Py_VISIT(as_bound(self_obj)->self);
  return 0;
}

// No tp_clear, as for CPython's bound methods: the parts are never null, and a cycle through `self`
// is broken there.
void bound_dealloc(PyObject *self_obj) {
  const NativeSection in_section;
  PyObject_GC_UnTrack(self_obj);
  PyTypeObject *type = Py_TYPE(self_obj);
  BoundMethod *method = as_bound(self_obj);
  if (method->weakrefs) {
    PyObject_ClearWeakRefs(self_obj);
  }
  Py_DECREF(method->native);
  Py_XDECREF(method->function);
  Py_DECREF(method->self);
  type->tp_free(self_obj);
  Py_DECREF(type);
}

// type(method)(function, object), as code does that takes bound methods apart: a bound method of
// CPython's, with its checks.
PyObject *bound_new(PyTypeObject *, PyObject *args, PyObject *keywords) {
  return PyMethod_Type.tp_new(&PyMethod_Type, args, keywords);
}

// Attributes that the type does not have are those of the function; so is the name of its module,
// which the type has for itself and native methods do not have.
PyObject *bound_getattro(PyObject *self_obj, PyObject *name) {
  if (!PyUnicode_Check(name) || PyUnicode_CompareWithASCIIString(name, "__module__") != 0) {
    PyObject *value = PyObject_GenericGetAttr(self_obj, name);
    if (value || !PyErr_ExceptionMatches(PyExc_AttributeError)) {
      return value;
    }
    PyErr_Clear();
  } else if (!as_bound(self_obj)->function) {
    Py_RETURN_NONE;
  }
  const auto function = py::reinterpret_borrow<py::object>(shown(as_bound(self_obj)));
  return PyObject_GetAttr(function.ptr(), name);
}

PyObject *bound_repr(PyObject *self_obj) {
  const auto name = get_attribute(shown(as_bound(self_obj)), "__qualname__");
  return name
             ? PyUnicode_FromFormat("<bound method %S of %R>", name.ptr(), as_bound(self_obj)->self)
             : nullptr;
}

// CPython's descriptors cannot be referred to weakly, as weakref.WeakMethod does: in their place is
// one object for the life of the process that does the same. New reference, or null with an error.
PyObject *bound_get_func(PyObject *self_obj, void *) {
  static PyObject *const functions = PyDict_New();
  const BoundMethod *method = as_bound(self_obj);
  if (method->function || !functions) {
    return Py_XNewRef(method->function);
  }
  if (PyObject *known = PyDict_GetItemWithError(functions, method->native)) {
    return Py_NewRef(known);
  }
  const py::object partial =
      PyErr_Occurred() ? py::object() : import_attribute("functools", "partial");
  const py::object made = partial ? call(partial, method->native) : py::object();
  return made ? Py_XNewRef(PyDict_SetDefault(functions, method->native, made.ptr())) : nullptr;
}

// As CPython's own bound method of the function has it, to which this one is equal.
Py_hash_t bound_hash(PyObject *self_obj) {
  const auto function = py::reinterpret_steal<py::object>(bound_get_func(self_obj, nullptr));
  const auto method = py::reinterpret_steal<py::object>(
      function ? PyMethod_New(function.ptr(), as_bound(self_obj)->self) : nullptr);
  return method ? PyObject_Hash(method.ptr()) : -1;
}

PyObject *bound_richcompare(PyObject *left, PyObject *right, int operation) {
  if (operation != Py_EQ && operation != Py_NE) {
    Py_RETURN_NOTIMPLEMENTED;
  }
  const BoundMethod *method = as_bound(left);
  bool equal;
  if (Py_IS_TYPE(right, bound_method_type)) {
    equal = method->self == as_bound(right)->self && method->native == as_bound(right)->native &&
            method->function == as_bound(right)->function;
  } else if (PyMethod_Check(right)) {
    const auto function = py::reinterpret_steal<py::object>(bound_get_func(left, nullptr));
    if (!function) {
      return nullptr;
    }
    equal =
        method->self == PyMethod_GET_SELF(right) && function.ptr() == PyMethod_GET_FUNCTION(right);
  } else {
    Py_RETURN_NOTIMPLEMENTED;
  }
  return PyBool_FromLong(equal == (operation == Py_EQ));
}

// isinstance() and inspect ask for it after the type itself.
PyObject *bound_get_class(PyObject *self_obj, void *) {
  PyTypeObject *type = as_bound(self_obj)->function ? &PyMethod_Type : &PyCFunction_Type;
  return Py_NewRef(reinterpret_cast<PyObject *>(type));
}

PyObject *bound_get_doc(PyObject *self_obj, void *) {
  return get_attribute(shown(as_bound(self_obj)), "__doc__").release().ptr();
}

// As a bound method is pickled and copied: the attribute of its object.
PyObject *bound_reduce(PyObject *self_obj, PyObject *) {
  return slot_guard<PyObject *>(nullptr, [&]() -> PyObject * {
    const py::object getattr = import_attribute("builtins", "getattr");
    const py::object name = get_attribute(shown(as_bound(self_obj)), "__name__");
    return getattr && name
               ? Py_BuildValue("O(OO)", getattr.ptr(), as_bound(self_obj)->self, name.ptr())
               : nullptr;
  });
}

PyMethodDef bound_methods[] = {
    {"__reduce__", entry<bound_reduce>, METH_NOARGS, "Helper for pickle."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef bound_getset[] = {
    {"__class__", entry<bound_get_class>, nullptr, nullptr, nullptr},
    {"__doc__", entry<bound_get_doc>, nullptr, nullptr, nullptr},
    {"__func__", entry<bound_get_func>, nullptr, "The function on the class.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMemberDef bound_members[] = {
    {"__self__", T_OBJECT, offsetof(BoundMethod, self), READONLY, "The module."},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(BoundMethod, vectorcall), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(BoundMethod, weakrefs), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot bound_slots[] = {
    {Py_tp_new, reinterpret_cast<void *>(entry<bound_new>)},
    {Py_tp_dealloc, reinterpret_cast<void *>(bound_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void *>(bound_traverse)},
    {Py_tp_call, reinterpret_cast<void *>(PyVectorcall_Call)},
    {Py_tp_getattro, reinterpret_cast<void *>(entry<bound_getattro>)},
    {Py_tp_repr, reinterpret_cast<void *>(entry<bound_repr>)},
    {Py_tp_hash, reinterpret_cast<void *>(entry<bound_hash>)},
    {Py_tp_richcompare, reinterpret_cast<void *>(entry<bound_richcompare>)},
    {Py_tp_methods, bound_methods},
    {Py_tp_members, bound_members},
    {Py_tp_getset, bound_getset},
    {0, nullptr},
};

PyType_Spec bound_spec = {
    "modtree._C.BoundMethod",
    sizeof(BoundMethod),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    bound_slots,
};

}  // namespace

void make_bound_method_type(py::handle m) {
  bound_method_type = new_type(m, "BoundMethod", &bound_spec);
}

PyObject *new_bound_method(PyObject *native, PyObject *self_obj, Face *face) {
  PyObject *made = bound_method_type->tp_alloc(bound_method_type, 0);
  if (!made) {
    return nullptr;
  }
  BoundMethod *method = as_bound(made);
  method->vectorcall = entry<call_bound>;
  method->native = Py_NewRef(native);
  method->function = face ? Py_NewRef(face->function) : nullptr;
  method->self = Py_NewRef(self_obj);
  method->calls = face ? &face->calls : nullptr;
  return made;
}

}  // namespace modtree
