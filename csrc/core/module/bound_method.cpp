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
  Face *face;          // lives for ever
  PyObject *function;  // the face's, which the class shows
  PyObject *self;
  PyObject *weakrefs;
};

PyTypeObject *bound_method_type = nullptr;

BoundMethod *as_bound(PyObject *value) { return reinterpret_cast<BoundMethod *>(value); }

PyObject *call_bound(PyObject *self_obj, PyObject *const *args, std::size_t flagged_count,
                     PyObject *keyword_names) {
  BoundMethod *method = as_bound(self_obj);
  PyObject *native = method->face->native;
  ++method->face->calls;
  // Owned: the call may drop the last reference to the bound method.
  PyObject *self = Py_NewRef(method->self);
  const std::size_t count = static_cast<std::size_t>(PyVectorcall_NARGS(flagged_count));
  PyObject *result;
  if (flagged_count & PY_VECTORCALL_ARGUMENTS_OFFSET) {
    PyObject **with_self = const_cast<PyObject **>(args) - 1;
    PyObject *before = with_self[0];
    with_self[0] = self;
    result = PyObject_Vectorcall(native, with_self, count + 1, keyword_names);
    with_self[0] = before;
  } else {
    const std::size_t named =
        keyword_names ? static_cast<std::size_t>(PyTuple_GET_SIZE(keyword_names)) : 0;
    const std::size_t total = count + named;
    constexpr std::size_t kSmall = 8;
    PyObject *small[kSmall + 1];
    PyObject **stack = total > kSmall ? PyMem_New(PyObject *, total + 1) : small;
    if (stack) {
      stack[0] = self;
      for (std::size_t i = 0; i < total; ++i) {
        stack[i + 1] = args[i];
      }
      result = PyObject_Vectorcall(native, stack, count + 1, keyword_names);
    } else {
      result = PyErr_NoMemory();
    }
    if (stack != small) {
      PyMem_Free(stack);
    }
  }
  Py_DECREF(self);
  return result;
}

int bound_traverse(PyObject *self_obj, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(self_obj));
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
  Py_DECREF(method->function);
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
// which the type has for itself.
PyObject *bound_getattro(PyObject *self_obj, PyObject *name) {
  if (!PyUnicode_Check(name) || PyUnicode_CompareWithASCIIString(name, "__module__") != 0) {
    PyObject *value = PyObject_GenericGetAttr(self_obj, name);
    if (value || !PyErr_ExceptionMatches(PyExc_AttributeError)) {
      return value;
    }
    PyErr_Clear();
  }
  const auto function = py::reinterpret_borrow<py::object>(as_bound(self_obj)->function);
  return PyObject_GetAttr(function.ptr(), name);
}

PyObject *bound_repr(PyObject *self_obj) {
  const auto name = get_attribute(as_bound(self_obj)->function, "__qualname__");
  return name
             ? PyUnicode_FromFormat("<bound method %S of %R>", name.ptr(), as_bound(self_obj)->self)
             : nullptr;
}

// As CPython's own bound method of the function has it, to which this one is equal.
Py_hash_t bound_hash(PyObject *self_obj) {
  const auto method = py::reinterpret_steal<py::object>(
      PyMethod_New(as_bound(self_obj)->function, as_bound(self_obj)->self));
  return method ? PyObject_Hash(method.ptr()) : -1;
}

PyObject *bound_richcompare(PyObject *left, PyObject *right, int operation) {
  if (operation != Py_EQ && operation != Py_NE) {
    Py_RETURN_NOTIMPLEMENTED;
  }
  const BoundMethod *method = as_bound(left);
  bool equal;
  if (Py_IS_TYPE(right, bound_method_type)) {
    equal = method->self == as_bound(right)->self && method->function == as_bound(right)->function;
  } else if (PyMethod_Check(right)) {
    equal = method->self == PyMethod_GET_SELF(right) &&
            method->function == PyMethod_GET_FUNCTION(right);
  } else {
    Py_RETURN_NOTIMPLEMENTED;
  }
  return PyBool_FromLong(equal == (operation == Py_EQ));
}

// isinstance(method, types.MethodType) and inspect.ismethod() ask for it after the type itself.
PyObject *bound_get_class(PyObject *, void *) {
  return Py_NewRef(reinterpret_cast<PyObject *>(&PyMethod_Type));
}

PyObject *bound_get_doc(PyObject *self_obj, void *) {
  return get_attribute(as_bound(self_obj)->function, "__doc__").release().ptr();
}

// As a bound method is pickled and copied: the attribute of its object.
PyObject *bound_reduce(PyObject *self_obj, PyObject *) {
  return slot_guard<PyObject *>(nullptr, [&]() -> PyObject * {
    const py::object getattr = import_attribute("builtins", "getattr");
    const py::object name = get_attribute(as_bound(self_obj)->function, "__name__");
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
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMemberDef bound_members[] = {
    {"__func__", T_OBJECT, offsetof(BoundMethod, function), READONLY, "The function on the class."},
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

PyObject *new_bound_method(Face *face, PyObject *self_obj) {
  PyObject *made = bound_method_type->tp_alloc(bound_method_type, 0);
  if (!made) {
    return nullptr;
  }
  BoundMethod *method = as_bound(made);
  method->vectorcall = entry<call_bound>;
  method->face = face;
  method->function = Py_NewRef(face->function);
  method->self = Py_NewRef(self_obj);
  return made;
}

}  // namespace modtree
