// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/op.h"

#include <structmember.h>

#include <cstddef>
#include <cstring>

#include "py/slot_guard.h"
#include "tensor/float_errors.h"
#include "tensor/op_errors.h"

namespace modtree {

PyTypeObject *op_type = nullptr;

namespace {

constexpr Py_ssize_t kMaxArgs = 14;

OpObject *as_op(PyObject *obj) { return reinterpret_cast<OpObject *>(obj); }

// The arguments of one call with arrays in place of tensors.
class Arguments {
public:
  Arguments() = default;
  Arguments(const Arguments &) = delete;
  Arguments &operator=(const Arguments &) = delete;
  ~Arguments() {
    for (Py_ssize_t i = 0; i < total; ++i) {
      Py_DECREF(slot(i));
    }
  }

  bool load(OpObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
    Py_ssize_t count = nargs + (kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames));
    if (count > kMaxArgs) {
      PyErr_Format(PyExc_TypeError, "%U() takes at most %zd arguments", op->name, kMaxArgs);
      return false;
    }
    positional = nargs;
    for (Py_ssize_t i = 0; i < count; ++i) {
      PyObject *value = convert(args[i]);
      if (value == nullptr) {
        return false;
      }
      slots_[1 + total++] = value;
    }
    if (any_meta && any_cpu) {
      PyErr_Format(PyExc_RuntimeError,
                   "%U: Expected all tensors to be on the same device, but found at least two "
                   "devices, cpu and meta!",
                   op->name);
      return false;
    }
    return true;
  }

  PyObject *&slot(Py_ssize_t i) { return slots_[1 + i]; }
  void replace(Py_ssize_t i, PyObject *fresh) {
    PyObject *old = slot(i);
    slot(i) = fresh;
    Py_DECREF(old);
  }
  PyObject *call(PyObject *function, PyObject *kwnames) {
    return PyObject_Vectorcall(function, slots_ + 1,
                               static_cast<size_t>(positional) | PY_VECTORCALL_ARGUMENTS_OFFSET,
                               kwnames);
  }

  Py_ssize_t total = 0;
  Py_ssize_t positional = 0;
  bool any_meta = false;
  bool any_cpu = false;  // a cpu tensor with dimensions

private:
  PyObject *unwrap(TensorObject *tensor) {
    any_meta |= tensor->is_meta;
    any_cpu |= !tensor->is_meta && PyArray_NDIM(tensor->array) > 0;
    Py_INCREF(tensor->array);
    return as_object(tensor->array);
  }

  PyObject *convert(PyObject *arg) {
    if (is_tensor(arg)) {
      return unwrap(as_tensor(arg));
    }
    bool is_list = PyList_CheckExact(arg);
    if (is_list || PyTuple_CheckExact(arg)) {
      Py_ssize_t n = Py_SIZE(arg);
      bool found = false;
      for (Py_ssize_t i = 0; i < n && !found; ++i) {
        found = is_tensor(is_list ? PyList_GET_ITEM(arg, i) : PyTuple_GET_ITEM(arg, i));
      }
      if (found) {
        PyObject *copy = is_list ? PyList_New(n) : PyTuple_New(n);
        for (Py_ssize_t i = 0; copy != nullptr && i < n; ++i) {
          PyObject *item = is_list ? PyList_GET_ITEM(arg, i) : PyTuple_GET_ITEM(arg, i);
          PyObject *value = item;
          if (is_tensor(item)) {
            value = unwrap(as_tensor(item));
          } else {
            Py_INCREF(value);
          }
          if (is_list) {
            PyList_SET_ITEM(copy, i, value);
          } else {
            PyTuple_SET_ITEM(copy, i, value);
          }
        }
        return copy;
      }
    }
    Py_INCREF(arg);
    return arg;
  }

  PyObject *slots_[kMaxArgs + 1];
};

// Visits each operand slot: fn(borrowed object) -> new object, null for "keep", or *error set.
template <typename Fn>
bool for_operands(OpObject *op, Arguments &args, const Fn &fn) {
  if (op->operands < 0) {
    if (op->first >= args.positional) {
      return true;
    }
    py::object items = py::reinterpret_steal<py::object>(PySequence_List(args.slot(op->first)));
    if (!items) {
      return false;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.ptr()); ++i) {
      PyObject *fresh = nullptr;
      if (!fn(PyList_GET_ITEM(items.ptr(), i), &fresh)) {
        return false;
      }
      if (fresh != nullptr && PyList_SetItem(items.ptr(), i, fresh) < 0) {
        return false;
      }
    }
    args.replace(op->first, items.release().ptr());
    return true;
  }
  for (Py_ssize_t i = op->first; i < op->first + op->operands && i < args.positional; ++i) {
    PyObject *fresh = nullptr;
    if (!fn(args.slot(i), &fresh)) {
      return false;
    }
    if (fresh != nullptr) {
      args.replace(i, fresh);
    }
  }
  return true;
}

// A number that NumPy will treat as a weak Python scalar of dtype `num`; null: keep the object. False with an error set.
bool convert_number(PyObject *number, int num, bool is_compare, PyObject **fresh) {
  PyObject *plain = number;
  py::object held;
  if (PyArray_CheckScalar(number)) {
    held = py::reinterpret_steal<py::object>(PyObject_CallMethod(number, "item", nullptr));
    if (!held) {
      return false;
    }
    plain = held.ptr();
  }
  DTypeObject *dtype = dtype_of_num(num);
  if (PyLong_Check(plain) && dtype->category == DTypeCategory::integral && !is_compare) {
    int overflow = 0;
    long long value = PyLong_AsLongLongAndOverflow(plain, &overflow);
    Py_ssize_t bits = 8 * PyDataType_ELSIZE(dtype->descr) - (dtype->is_signed ? 1 : 0);
    bool fits = overflow == 0 && (value >= 0 || dtype->is_signed) &&
                (bits >= 63 || (value < (1LL << bits) && value >= -(1LL << bits)));
    if (!fits && overflow == 0) {  // wraps around, as a cast from int64 does
      PyObject *wide = PyArray_FromAny(plain, PyArray_DescrFromType(NPY_INT64), 0, 0, 0, nullptr);
      if (wide == nullptr) {
        return false;
      }
      *fresh = PyArray_CastToType(as_array(wide), (Py_INCREF(dtype->descr), dtype->descr), 0);
      Py_DECREF(wide);
      return *fresh != nullptr;
    }
  }
  if (held) {
    *fresh = held.release().ptr();
  }
  return true;
}

// Casts the operands to the dtype in which they meet; *num is that dtype, -1 when there is none.
bool promote(OpObject *op, Arguments &args, int *num) {
  *num = -1;
  if (op->promotion == Promotion::none || op->promotion == Promotion::logical) {
    return true;
  }
  ResultType type;
  bool ok = for_operands(op, args, [&](PyObject *value, PyObject **) {
    DTypeCategory category;
    if (PyArray_Check(value)) {
      if (dtype_of(as_array(value)) == nullptr) {
        PyErr_Format(PyExc_TypeError, "%U: unsupported dtype %S of an operand", op->name,
                     reinterpret_cast<PyObject *>(PyArray_DESCR(as_array(value))));
        return false;
      }
      type.add_array(as_array(value));
    } else if (number_category(value, &category)) {
      type.add_number(category);
    } else if (value != Py_None) {
      PyErr_Format(PyExc_TypeError, "%U(): expected a Tensor or a number, got %s", op->name,
                   Py_TYPE(value)->tp_name);
      return false;
    }
    return true;
  });
  int result = type.result();
  if (!ok || result < 0) {
    return ok;
  }
  DTypeCategory category = dtype_of_num(result)->category;
  if (op->promotion == Promotion::floating && !is_float_category(category)) {
    result = default_float_num();
  }
  if (op->promotion == Promotion::bitwise && is_float_category(category)) {
    PyErr_Format(PyExc_NotImplementedError, "\"%U\" not implemented for '%s'", op->name,
                 scalar_type_name(result));
    return false;
  }
  if (op->no_bool && result == NPY_BOOL) {
    raise_no_bool(op->name);
    return false;
  }
  *num = result;
  PyArray_Descr *descr = dtype_of_num(result)->descr;
  bool is_compare = op->promotion == Promotion::compare;
  return for_operands(op, args, [&](PyObject *value, PyObject **fresh) {
    if (PyArray_Check(value)) {
      PyArrayObject *array = as_array(value);
      if (PyArray_TYPE(array) == result) {
        return true;
      }
      if (op->promotion == Promotion::same) {
        raise_dtype_mismatch(op->name, PyArray_TYPE(array), result);
        return false;
      }
      if (args.any_meta) {
        *fresh = as_object(meta_array(PyArray_NDIM(array), PyArray_DIMS(array), descr));
      } else {
        Py_INCREF(descr);
        *fresh = PyArray_CastToType(array, descr, 0);
      }
      return *fresh != nullptr;
    }
    if (value == Py_None) {
      return true;
    }
    if (!convert_number(value, result, is_compare, fresh)) {
      return false;
    }
    if (!op->is_ufunc && (*fresh == nullptr || !PyArray_Check(*fresh))) {
      // Only ufuncs know weak Python numbers: everything else gets a 0-d array.
      PyObject *number = *fresh == nullptr ? value : *fresh;
      Py_INCREF(descr);
      PyObject *array = PyArray_FromAny(number, descr, 0, 0, NPY_ARRAY_FORCECAST, nullptr);
      Py_XDECREF(*fresh);
      *fresh = array;
      return array != nullptr;
    }
    return true;
  });
}

bool divisor_is_valid(OpObject *op, Arguments &args, int num) {
  if (!op->check_zero || num < 0 || is_float_category(dtype_of_num(num)->category) ||
      args.positional < 2 || args.any_meta) {
    return true;
  }
  PyObject *divisor = args.slot(1);
  bool zero;
  if (PyArray_Check(divisor)) {
    npy_intp nonzero = PyArray_CountNonzero(as_array(divisor));
    if (nonzero < 0) {
      return false;
    }
    zero = nonzero != PyArray_SIZE(as_array(divisor));
  } else {
    int truth = PyObject_IsTrue(divisor);
    if (truth < 0) {
      return false;
    }
    zero = truth == 0;
  }
  if (zero) {
    PyErr_SetString(PyExc_RuntimeError, "ZeroDivisionError: integer division by zero");
  }
  return !zero;
}

// The result of an operation on meta tensors: shape and dtype only.
PyObject *call_on_meta(OpObject *op, Arguments &args, PyObject *kwnames, int num) {
  if (op->is_view) {
    return args.call(op->forward, kwnames);
  }
  if (op->meta != nullptr) {
    py::object spec = py::reinterpret_steal<py::object>(args.call(op->meta, kwnames));
    return spec ? meta_from_spec(spec.ptr()) : nullptr;
  }
  if (op->promotion != Promotion::none && op->promotion != Promotion::same && op->operands > 0) {
    npy_intp shape[NPY_MAXDIMS];
    int ndim = 0;
    for (Py_ssize_t i = 0; i < args.positional; ++i) {
      if (PyArray_Check(args.slot(i)) &&
          !broadcast_into(as_array(args.slot(i)), shape, &ndim)) {
        return nullptr;
      }
    }
    bool is_bool = op->promotion == Promotion::compare || op->promotion == Promotion::logical;
    DTypeObject *dtype = dtype_of_num(is_bool || num < 0 ? NPY_BOOL : num);
    return as_object(meta_array(ndim, shape, dtype->descr));
  }
  PyErr_Format(PyExc_NotImplementedError,
               "%U is not available for meta tensors: they have a shape and a dtype but no "
               "values. Move the module off 'meta' first with to_empty(device='cpu')",
               op->name);
  return nullptr;
}

// Wraps each array of a result of a meta operation.
PyObject *wrap_meta(TensorObject *base, PyObject *result) {
  if (PyArray_Check(result)) {
    PyArrayObject *array = as_array(result);
    if (base != nullptr && storage_owner(array) == storage_owner(base->array)) {
      return wrap_view(base, array);
    }
    // Something was allocated (advanced indexing): keep only its shape.
    PyArrayObject *bare = meta_array(PyArray_NDIM(array), PyArray_DIMS(array), PyArray_DESCR(array));
    Py_DECREF(array);
    return bare == nullptr ? nullptr : wrap_array(bare, true);
  }
  if (PyTuple_CheckExact(result) || PyList_CheckExact(result)) {
    py::object items = py::reinterpret_steal<py::object>(PySequence_Tuple(result));
    Py_DECREF(result);
    if (!items) {
      return nullptr;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(items.ptr());
    py::object wrapped = py::reinterpret_steal<py::object>(PyTuple_New(n));
    for (Py_ssize_t i = 0; wrapped && i < n; ++i) {
      PyObject *item = PyTuple_GET_ITEM(items.ptr(), i);
      Py_INCREF(item);
      PyObject *value = wrap_meta(base, item);
      if (value == nullptr) {
        return nullptr;
      }
      PyTuple_SET_ITEM(wrapped.ptr(), i, value);
    }
    return wrapped.release().ptr();
  }
  return result;
}

// A result that had to be copied, of an operation that promises a view.
bool is_copy(TensorObject *base, PyObject *result) {
  return PyArray_Check(result) && PyArray_SIZE(as_array(result)) != 0 &&
         storage_owner(as_array(result)) != storage_owner(base->array);
}

PyObject *wrap_views(TensorObject *base, PyObject *result) {
  if (PyArray_CheckExact(result)) {
    return wrap_view(base, as_array(result));
  }
  if (PyList_CheckExact(result) || PyTuple_CheckExact(result)) {
    py::object items = py::reinterpret_steal<py::object>(PySequence_Tuple(result));
    Py_DECREF(result);
    if (!items) {
      return nullptr;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(items.ptr());
    py::object wrapped = py::reinterpret_steal<py::object>(PyTuple_New(n));
    for (Py_ssize_t i = 0; wrapped && i < n; ++i) {
      PyObject *item = PyTuple_GET_ITEM(items.ptr(), i);
      Py_INCREF(item);
      PyObject *value = wrap_views(base, item);
      if (value == nullptr) {
        return nullptr;
      }
      PyTuple_SET_ITEM(wrapped.ptr(), i, value);
    }
    return wrapped.release().ptr();
  }
  return wrap_result(result);
}

PyObject *run(OpObject *op, Arguments &args, PyObject *kwnames) {
  if (op->is_view) {
    return args.call(op->forward, kwnames);
  }
  SilenceFloatErrors silence(op->is_ufunc ? SilenceFloatErrors::Work::native
                                          : SilenceFloatErrors::Work::python);
  return args.call(op->forward, kwnames);
}

// Two cpu tensors of one dtype that needs no promotion: the case worth a path of its own. False: not that case.
bool call_fast(OpObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject **result) {
  if (!op->is_ufunc || nargs != 2 || op->operands != 2 || op->promotion == Promotion::none ||
      op->promotion == Promotion::logical || !is_tensor(args[0]) || !is_tensor(args[1])) {
    return false;
  }
  TensorObject *a = as_tensor(args[0]);
  TensorObject *b = as_tensor(args[1]);
  int num = PyArray_TYPE(a->array);
  bool ready = PyTypeNum_ISFLOAT(num) ? op->promotion != Promotion::bitwise
                                      : PyTypeNum_ISINTEGER(num) && !op->check_zero &&
                                            op->promotion != Promotion::floating;
  if (num != PyArray_TYPE(b->array) || a->is_meta || b->is_meta || !ready) {
    return false;
  }
  // The tensors might be given other arrays by another thread while NumPy works without the GIL.
  PyArrayObject *array_a = a->array;
  PyArrayObject *array_b = b->array;
  Py_INCREF(array_a);
  Py_INCREF(array_b);
  PyObject *stack[3] = {nullptr, as_object(array_a), as_object(array_b)};
  {
    SilenceFloatErrors silence(SilenceFloatErrors::Work::native);
    *result = PyObject_Vectorcall(op->forward, stack + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET,
                                  nullptr);
  }
  if (*result == nullptr) {
    translate_error(op->name, stack + 1, 2);
  } else if (PyArray_CheckExact(*result)) {
    *result = wrap_array(as_array(*result));
  } else {
    *result = wrap_result(*result);
  }
  Py_DECREF(array_a);
  Py_DECREF(array_b);
  return true;
}

PyObject *op_tp_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf,
                           PyObject *kwnames) {
  return op_call(as_op(self), args, PyVectorcall_NARGS(nargsf), kwnames);
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
  Py_VISIT(op->forward);
  Py_VISIT(op->meta);
  Py_VISIT(op->dict);
  return 0;
}

int op_tp_clear(PyObject *self) {
  Py_CLEAR(as_op(self)->dict);
  return 0;  // forward stays: whoever still holds the operation may call it
}

void op_tp_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  OpObject *op = as_op(self);
  Py_XDECREF(op->name);
  Py_XDECREF(op->forward);
  Py_XDECREF(op->meta);
  Py_XDECREF(op->doc);
  Py_XDECREF(op->dict);
  type->tp_free(self);
  Py_DECREF(type);
}

bool parse_promotion(const char *text, Promotion *promotion) {
  static const struct {
    const char *name;
    Promotion value;
  } kNames[] = {
      {"none", Promotion::none},       {"arith", Promotion::arith},
      {"floating", Promotion::floating}, {"compare", Promotion::compare},
      {"logical", Promotion::logical}, {"bitwise", Promotion::bitwise},
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
  static const char *kKeywords[] = {"name", "forward", "promote", "first",      "operands", "view",
                                    "meta", "doc",     "no_bool", "check_zero", "strict_view", nullptr};
  PyObject *name, *forward, *meta = Py_None, *doc = Py_None;
  const char *promote_text = "none";
  int first = 0, operands = 0, view = 0, no_bool = 0, check_zero = 0, strict_view = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "UO|siipOOppp:Op", const_cast<char **>(kKeywords),
                                   &name, &forward, &promote_text, &first, &operands, &view, &meta,
                                   &doc, &no_bool, &check_zero, &strict_view)) {
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
  py::object ufunc_type;
  try {
    ufunc_type = py::module_::import("numpy").attr("ufunc");
  } catch (py::error_already_set &e) {
    e.restore();
    return nullptr;
  }
  int is_ufunc = PyObject_IsInstance(forward, ufunc_type.ptr());
  PyObject *self = is_ufunc < 0 ? nullptr : type->tp_alloc(type, 0);
  if (self == nullptr) {
    return nullptr;
  }
  OpObject *op = as_op(self);
  op->vectorcall = op_tp_vectorcall;
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
  return self;
}

PyObject *op_get_doc(PyObject *self, void *) {
  PyObject *doc = as_op(self)->doc == nullptr ? Py_None : as_op(self)->doc;
  Py_INCREF(doc);
  return doc;
}

PyObject *op_reduce(PyObject *self, PyObject *) {
  return slot_guard<PyObject *>(nullptr, [&] {
    py::object find = py::module_::import("modtree.ops.table").attr("find");
    return Py_BuildValue("O(O)", find.ptr(), as_op(self)->name);
  });
}

PyMethodDef kMethods[] = {
    {"inplace",
     reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(op_inplace_method)),
     METH_FASTCALL | METH_KEYWORDS, "inplace($self, tensor, *args)\n--\n\nWrites into tensor."},
    {"__reduce__", op_reduce, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef kMembers[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(OpObject, vectorcall), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(OpObject, dict), READONLY, nullptr},
    {"__name__", T_OBJECT, offsetof(OpObject, name), READONLY, nullptr},
    {"forward", T_OBJECT, offsetof(OpObject, forward), READONLY, "The function on arrays."},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef kGetSet[] = {
    {"__doc__", op_get_doc, nullptr, nullptr, nullptr},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot kSlots[] = {
    {Py_tp_new, reinterpret_cast<void *>(op_tp_new)},
    {Py_tp_call, reinterpret_cast<void *>(PyVectorcall_Call)},
    {Py_tp_descr_get, reinterpret_cast<void *>(op_tp_descr_get)},
    {Py_tp_repr, reinterpret_cast<void *>(op_tp_repr)},
    {Py_tp_traverse, reinterpret_cast<void *>(op_tp_traverse)},
    {Py_tp_clear, reinterpret_cast<void *>(op_tp_clear)},
    {Py_tp_dealloc, reinterpret_cast<void *>(op_tp_dealloc)},
    {Py_tp_methods, kMethods},
    {Py_tp_members, kMembers},
    {Py_tp_getset, kGetSet},
    {0, nullptr},
};

PyType_Spec kSpec = {"modtree._C.Op", sizeof(OpObject), 0,
                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                         Py_TPFLAGS_METHOD_DESCRIPTOR,
                     kSlots};

}  // namespace

PyObject *wrap_result(PyObject *result) {
  if (PyArray_Check(result)) {
    return wrap_array(as_array(result));
  }
  if (PyArray_CheckScalar(result)) {
    PyObject *array = PyArray_FromScalar(result, nullptr);
    Py_DECREF(result);
    return array == nullptr ? nullptr : wrap_array(as_array(array));
  }
  if (PyTuple_CheckExact(result) || PyList_CheckExact(result)) {
    py::object items = py::reinterpret_steal<py::object>(PySequence_Tuple(result));
    Py_DECREF(result);
    if (!items) {
      return nullptr;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(items.ptr());
    py::object wrapped = py::reinterpret_steal<py::object>(PyTuple_New(n));
    for (Py_ssize_t i = 0; wrapped && i < n; ++i) {
      PyObject *item = PyTuple_GET_ITEM(items.ptr(), i);
      Py_INCREF(item);
      PyObject *value = wrap_result(item);
      if (value == nullptr) {
        return nullptr;
      }
      PyTuple_SET_ITEM(wrapped.ptr(), i, value);
    }
    return wrapped.release().ptr();
  }
  return result;
}

PyObject *op_call(OpObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  PyObject *result;
  if (kwnames == nullptr && call_fast(op, args, nargs, &result)) {
    return result;
  }
  Arguments arguments;
  int num;
  if (!arguments.load(op, args, nargs, kwnames) || !promote(op, arguments, &num) ||
      !divisor_is_valid(op, arguments, num)) {
    return nullptr;
  }
  TensorObject *base = nargs > 0 && is_tensor(args[0]) ? as_tensor(args[0]) : nullptr;
  result = arguments.any_meta ? call_on_meta(op, arguments, kwnames, num)
                              : run(op, arguments, kwnames);
  if (result == nullptr) {
    translate_error(op->name, &arguments.slot(0), arguments.positional);
    return nullptr;
  }
  if (arguments.any_meta) {
    return wrap_meta(op->is_view ? base : nullptr, result);
  }
  if (op->is_strict_view && base != nullptr && is_copy(base, result)) {
    Py_DECREF(result);
    PyErr_Format(PyExc_RuntimeError,
                 "%U size is not compatible with input tensor's size and stride (at least one "
                 "dimension spans across two contiguous subspaces). Use .reshape(...) instead.",
                 op->name);
    return nullptr;
  }
  return op->is_view && base != nullptr ? wrap_views(base, result) : wrap_result(result);
}

int op_inplace(OpObject *op, TensorObject *self, PyObject *const *args, Py_ssize_t nargs,
               PyObject *kwnames) {
  if (check_inplace(self) < 0) {
    return -1;
  }
  Py_ssize_t extra = nargs + (kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames));
  if (extra + 2 > kMaxArgs) {
    PyErr_Format(PyExc_TypeError, "%U_: too many arguments", op->name);
    return -1;
  }
  PyObject *stack[kMaxArgs + 1];
  stack[0] = reinterpret_cast<PyObject *>(self);
  for (Py_ssize_t i = 0; i < extra; ++i) {
    stack[1 + i] = args[i];
  }
  Arguments arguments;
  int num;
  if (!arguments.load(op, stack, nargs + 1, kwnames) || !promote(op, arguments, &num) ||
      !divisor_is_valid(op, arguments, num)) {
    return -1;
  }
  int own = PyArray_TYPE(self->array);
  if (num >= 0 && op->promotion != Promotion::compare && !can_cast(num, own)) {
    PyErr_Format(PyExc_RuntimeError,
                 "result type %s can't be cast to the desired output type %s (in %U_)",
                 scalar_type_name(num), scalar_type_name(own), op->name);
    return -1;
  }
  PyArrayObject *target = self->array;
  py::object held = py::reinterpret_borrow<py::object>(as_object(target));
  py::object result;
  if (arguments.any_meta && !self->is_meta) {
    PyErr_Format(PyExc_RuntimeError, "%U_: a meta tensor cannot be written into a cpu tensor",
                 op->name);
    return -1;
  }
  if (self->is_meta) {
    result = py::reinterpret_steal<py::object>(call_on_meta(op, arguments, kwnames, num));
  } else if (op->is_ufunc && num == own && kwnames == nullptr &&
             (op->promotion == Promotion::arith || op->promotion == Promotion::floating ||
              op->promotion == Promotion::bitwise)) {
    // Straight into our memory; NumPy copies first where the operands overlap. A ufunc's outputs follow its inputs.
    PyObject *direct[kMaxArgs + 1];
    for (Py_ssize_t i = 0; i < arguments.positional; ++i) {
      direct[i] = arguments.slot(i);
    }
    direct[arguments.positional] = as_object(target);
    SilenceFloatErrors silence(SilenceFloatErrors::Work::native);
    result = py::reinterpret_steal<py::object>(PyObject_Vectorcall(
        op->forward, direct, static_cast<size_t>(arguments.positional) + 1, nullptr));
  } else {
    result = py::reinterpret_steal<py::object>(run(op, arguments, kwnames));
    if (result && result.ptr() != as_object(target)) {
      py::object array = py::reinterpret_steal<py::object>(
          PyArray_FromAny(result.ptr(), nullptr, 0, 0, 0, nullptr));
      if (!array) {
        return -1;
      }
      if (!PyArray_SAMESHAPE(as_array(array.ptr()), target)) {
        raise_output_shape(target, as_array(array.ptr()));
        return -1;
      }
      SilenceFloatErrors silence(SilenceFloatErrors::Work::native);
      if (PyArray_CopyInto(target, as_array(array.ptr())) < 0) {
        return -1;
      }
    }
  }
  if (!result) {
    translate_error(op->name, &arguments.slot(0), arguments.positional, target);
    return -1;
  }
  if (self->is_meta && PyArray_Check(result.ptr()) &&
      !PyArray_SAMESHAPE(as_array(result.ptr()), target)) {
    raise_output_shape(target, as_array(result.ptr()));
    return -1;
  }
  return bump_version(self);
}

void bind_op(py::module_ &m) {
  op_type = reinterpret_cast<PyTypeObject *>(PyType_FromModuleAndSpec(m.ptr(), &kSpec, nullptr));
  if (op_type == nullptr) {
    throw py::error_already_set();
  }
  m.add_object("Op",
               py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject *>(op_type)));
}

}  // namespace modtree
