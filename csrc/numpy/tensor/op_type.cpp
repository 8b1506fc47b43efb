// SPDX-License-Identifier: BSD-3-Clause
// The Python type of an operation.
#include "python/installed.h"
#include "python/native_section.h"
#include "python/new_type.h"
#include "python/slot_guard.h"
#include "tensor/op.h"
#include "tensor/op_errors.h"
#include "tensor/override.h"
#include "tensor/slot_ops.h"

#include <structmember.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace modtree {

PyTypeObject *op_type = nullptr;

namespace {

OpObject *as_op(PyObject *obj) { return reinterpret_cast<OpObject *>(obj); }

[[gnu::noinline]] bool call_op_override(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                                        PyObject *kwnames, PyObject **result) {
  *result = nullptr;
  return slot_guard(true, [&] {
    return call_override(self, args, nargs, kwnames, result) ||
           call_elsewhere(self, as_op(self)->name, args, nargs, kwnames, result);
  });
}

// True if there is a keyword that forward functions do not know: an operand by its name, or `out`.
bool names_operand_or_out(OpObject *op, PyObject *kwnames) {
  return has_keyword(kwnames, "input") || has_keyword(kwnames, "other") ||
         (op->out_rule != nullptr && has_keyword(kwnames, "out"));
}

PyObject *op_tp_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf,
                           PyObject *kwnames) {
  const Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
  PyObject *result;
  if (is_overridden(args, argument_count(nargs, kwnames)) &&
      call_op_override(self, args, nargs, kwnames, &result)) {
    return result;
  }
  if (kwnames != nullptr && names_operand_or_out(as_op(self), kwnames)) {
    return call_by_name(self, args, nargs, kwnames);
  }
  result = op_call(as_op(self), args, nargs, kwnames);
  if (result == nullptr) {
    name_foreign_argument(as_op(self)->name, args, argument_count(nargs, kwnames), true);
  }
  return result;
}

PyObject *op_tp_descr_get(PyObject *self, PyObject *obj, PyObject *) {
  if (obj == nullptr || obj == Py_None) {
    Py_INCREF(self);
    return self;
  }
  return PyMethod_New(self, obj);
}

PyObject *op_inplace_method(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                            PyObject *kwnames) {
  if (nargs < 1 || !is_tensor(args[0])) {
    PyErr_Format(PyExc_TypeError, "%U_: the first argument must be a Tensor", as_op(self)->name);
    return nullptr;
  }
  if (op_inplace(as_op(self), as_tensor(args[0]), args + 1, nargs - 1, kwnames) < 0) {
    return nullptr;
  }
  Py_INCREF(args[0]);
  return args[0];
}

PyObject *op_tp_repr(PyObject *self) {
  return PyUnicode_FromFormat("<modtree operation %U>", as_op(self)->name);
}

int op_tp_traverse(PyObject *self, visitproc visit, void *arg) {
  OpObject *op = as_op(self);
  Py_VISIT(Py_TYPE(self));
  for (PyObject *owned : {op->name, op->forward, op->meta, op->doc, op->dict, op->joint, op->record,
                          op->backward_name, op->out_rule}) {
    Py_VISIT(owned);
  }
  for (PyObject *function : op->functions) {
    Py_VISIT(function);
  }
  return 0;
}

int op_tp_clear(PyObject *self) {
  Py_CLEAR(as_op(self)->dict);
  return 0;  // the functions stay: whoever still holds the operation may call it
}

void op_tp_dealloc(PyObject *self) {
  const NativeSection in_section;
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  OpObject *op = as_op(self);
  Py_XDECREF(op->name);
  Py_XDECREF(op->forward);
  Py_XDECREF(op->meta);
  Py_XDECREF(op->doc);
  Py_XDECREF(op->dict);
  Py_XDECREF(op->joint);
  Py_XDECREF(op->record);
  Py_XDECREF(op->backward_name);
  Py_XDECREF(op->out_rule);
  for (PyObject *function : op->functions) {
    Py_XDECREF(function);
  }
  type->tp_free(self);
  Py_DECREF(type);
}

bool parse_promotion(const char *text, Promotion *promotion) {
  static const struct {
    const char *name;
    Promotion value;
  } kNames[] = {
      {"none", Promotion::none},         {"arith", Promotion::arith},
      {"floating", Promotion::floating}, {"compare", Promotion::compare},
      {"logical", Promotion::logical},   {"bitwise", Promotion::bitwise},
      {"same", Promotion::same},
  };
  for (const auto &entry : kNames) {
    if (std::strcmp(entry.name, text) == 0) {
      *promotion = entry.value;
      return true;
    }
  }
  PyErr_Format(PyExc_ValueError, "unknown promotion '%s'", text);
  return false;
}

PyObject *op_tp_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static const char *kKeywords[] = {
      "name", "forward", "promote",    "first",       "operands",     "view",        "meta",
      "doc",  "no_bool", "check_zero", "strict_view", "number_edges", "writes_into", nullptr};
  PyObject *name, *forward, *meta = Py_None, *doc = Py_None;
  const char *promote_text = "none";
  int first = 0, operands = 0, view = 0, no_bool = 0, check_zero = 0, strict_view = 0,
      number_edges = 0, writes_into = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "UO|siipOOpppip:Op",
                                   const_cast<char **>(kKeywords), &name, &forward, &promote_text,
                                   &first, &operands, &view, &meta, &doc, &no_bool, &check_zero,
                                   &strict_view, &number_edges, &writes_into)) {
    return nullptr;
  }
  Promotion promotion;
  if (!parse_promotion(promote_text, &promotion)) {
    return nullptr;
  }
  if (!PyCallable_Check(forward) || first < 0 || operands < -1) {
    PyErr_SetString(PyExc_ValueError, "Op: forward must be callable, first >= 0, operands >= -1");
    return nullptr;
  }
  const py::object ufunc_type = import_attribute("numpy", "ufunc");
  int is_ufunc = ufunc_type ? PyObject_IsInstance(forward, ufunc_type.ptr()) : -1;
  PyObject *self = is_ufunc < 0 ? nullptr : type->tp_alloc(type, 0);
  if (self == nullptr) {
    return nullptr;
  }
  OpObject *op = as_op(self);
  op->vectorcall = entry<op_tp_vectorcall>;
  Py_INCREF(name);
  op->name = name;
  Py_INCREF(forward);
  op->forward = forward;
  if (meta != Py_None) {
    Py_INCREF(meta);
    op->meta = meta;
  }
  if (doc != Py_None) {
    Py_INCREF(doc);
    op->doc = doc;
  }
  op->first = first;
  op->operands = operands;
  op->promotion = promotion;
  op->is_view = view != 0;
  op->is_strict_view = strict_view != 0;
  op->is_ufunc = is_ufunc != 0;
  op->no_bool = no_bool != 0;
  op->check_zero = check_zero != 0;
  op->writes_into = writes_into != 0;
  op->number_edges = static_cast<unsigned char>(number_edges);
  keep_if_slot_op(op);
  return self;
}

PyObject *op_get_doc(PyObject *self, void *) {
  PyObject *doc = as_op(self)->doc == nullptr ? Py_None : as_op(self)->doc;
  Py_INCREF(doc);
  return doc;
}

PyObject *op_reduce(PyObject *self, PyObject *) {
  PyObject *find = need_installed(installed.find_operation);
  return find ? Py_BuildValue("O(O)", find, as_op(self)->name) : nullptr;
}

bool parse_keep(PyObject *masks, OpObject::Keep *keep) {
  unsigned arrays, shapes;
  int result;
  if (!PyArg_ParseTuple(masks, "IIp", &arrays, &shapes, &result)) {
    return false;
  }
  *keep = {arrays, shapes, result != 0};
  return true;
}

// _set_derivative(name, functions, keep, joint, record, on_tensors): see
// modtree.numpy.ops.registry. Once per operation.
PyObject *op_set_derivative(PyObject *self, PyObject *args) {
  PyObject *name, *functions, *keep, *joint, *record;
  int on_tensors;
  if (!PyArg_ParseTuple(args, "UO!O!OOp", &name, &PyTuple_Type, &functions, &PyTuple_Type, &keep,
                        &joint, &record, &on_tensors)) {
    return nullptr;
  }
  OpObject *op = as_op(self);
  const Py_ssize_t count = PyTuple_GET_SIZE(functions);
  if (op->derivative != OpObject::Derivative::unknown || count > kMaxArgs ||
      PyTuple_GET_SIZE(keep) != (joint == Py_None ? count : 1)) {
    PyErr_Format(PyExc_ValueError, "%U: not a derivative for this operation, or its second one",
                 op->name);
    return nullptr;
  }
  OpObject::Keep masks[kMaxArgs] = {};
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keep); ++i) {
    if (!parse_keep(PyTuple_GET_ITEM(keep, i), &masks[i])) {
      return nullptr;
    }
  }
  std::copy(masks, masks + kMaxArgs, op->keep);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject *function = PyTuple_GET_ITEM(functions, i);
    op->functions[i] = function == Py_None ? nullptr : Py_NewRef(function);
  }
  op->n_functions = static_cast<int>(count);
  op->joint = joint == Py_None ? nullptr : Py_NewRef(joint);
  op->record = record == Py_None ? nullptr : Py_NewRef(record);
  op->backward_name = Py_NewRef(name);
  op->runs_on_tensors = on_tensors != 0;
  op->derivative =
      count == 0 && joint == Py_None ? OpObject::Derivative::none : OpObject::Derivative::known;
  Py_RETURN_NONE;
}

// _take_out(rule, doc): from now on the operation takes out=. Once per operation.
PyObject *op_take_out(PyObject *self, PyObject *args) {
  PyObject *rule, *doc;
  if (!PyArg_ParseTuple(args, "UU", &rule, &doc)) {
    return nullptr;
  }
  OpObject *op = as_op(self);
  if (op->out_rule != nullptr) {
    PyErr_Format(PyExc_ValueError, "%U takes out= already", op->name);
    return nullptr;
  }
  op->out_rule = Py_NewRef(rule);
  PyObject *old = op->doc;
  op->doc = Py_NewRef(doc);
  Py_XDECREF(old);
  Py_RETURN_NONE;
}

// _limit(missing, refused, tensors_only, fitting): what the operation refuses.
PyObject *op_limit(PyObject *self, PyObject *args) {
  OpObject *op = as_op(self);
  int tensors_only, fitting;
  if (!parse_unfit(args, &op->unfit, &tensors_only, &fitting)) {
    return nullptr;
  }
  op->tensors_only = tensors_only != 0;
  op->fitting = static_cast<unsigned char>(fitting);
  Py_RETURN_NONE;
}

PyMethodDef kOpMethods[] = {
    {"_limit", entry<op_limit>, METH_VARARGS, nullptr},
    {"_take_out", entry<op_take_out>, METH_VARARGS, nullptr},
    {"_set_derivative", entry<op_set_derivative>, METH_VARARGS, nullptr},
    {"inplace",
     reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(entry<op_inplace_method>)),
     METH_FASTCALL | METH_KEYWORDS, "inplace($self, tensor, *args)\n--\n\nWrites into tensor."},
    {"__reduce__", entry<op_reduce>, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef kOpMembers[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(OpObject, vectorcall), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(OpObject, dict), READONLY, nullptr},
    {"__name__", T_OBJECT, offsetof(OpObject, name), READONLY, nullptr},
    {"forward", T_OBJECT, offsetof(OpObject, forward), READONLY, "The function on arrays."},
    {"_out_rule", T_OBJECT, offsetof(OpObject, out_rule), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef kOpGetSet[] = {
    {"__doc__", entry<op_get_doc>, nullptr, nullptr, nullptr},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot kOpSlots[] = {
    {Py_tp_new, reinterpret_cast<void *>(entry<op_tp_new>)},
    {Py_tp_call, reinterpret_cast<void *>(PyVectorcall_Call)},
    {Py_tp_descr_get, reinterpret_cast<void *>(entry<op_tp_descr_get>)},
    {Py_tp_repr, reinterpret_cast<void *>(entry<op_tp_repr>)},
    {Py_tp_traverse, reinterpret_cast<void *>(op_tp_traverse)},
    {Py_tp_clear, reinterpret_cast<void *>(unfailing_entry<op_tp_clear>)},
    {Py_tp_dealloc, reinterpret_cast<void *>(op_tp_dealloc)},
    {Py_tp_methods, kOpMethods},
    {Py_tp_members, kOpMembers},
    {Py_tp_getset, kOpGetSet},
    {0, nullptr},
};

PyType_Spec kOpSpec = {"modtree._C.Op", sizeof(OpObject), 0,
                       Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                           Py_TPFLAGS_METHOD_DESCRIPTOR,
                       kOpSlots};

}  // namespace

bool parse_unfit(PyObject *args, UnfitDtypes *unfit, int *tensors_only, int *fitting) {
  unsigned missing, refused;
  if (!PyArg_ParseTuple(args, "IIpi", &missing, &refused, tensors_only, fitting)) {
    return false;
  }
  *unfit = {missing, refused};
  return true;
}

void raise_unfit(PyObject *name, const UnfitDtypes &unfit, int num) {
  const bool missing = (unfit.missing >> num & 1) != 0;
  PyErr_Format(missing ? PyExc_NotImplementedError : PyExc_RuntimeError,
               "\"%U\" not implemented for '%s': convert with .to(dtype) first", name,
               scalar_type_name(num));
}

PyObject *call_by_name(PyObject *callable, PyObject *const *args, Py_ssize_t nargs,
                       PyObject *kwnames) {
  py::object given, keywords;
  if (pack_arguments(args, nargs, kwnames, &given, &keywords) < 0) {
    return nullptr;
  }
  return call_installed(installed.call_by_name, callable, given, keywords).release().ptr();
}

void make_op_type(py::handle m) { op_type = new_type(m, "Op", &kOpSpec); }

}  // namespace modtree
