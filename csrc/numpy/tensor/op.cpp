// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/op.h"

#include <algorithm>

#include "python/call.h"
#include "python/interned.h"
#include "python/native_section.h"
#include "python/once.h"
#include "tensor/autograd/history.h"
#include "tensor/autograd/record.h"
#include "tensor/float_errors.h"
#include "tensor/op_arguments.h"
#include "tensor/op_errors.h"

namespace modtree {

namespace {

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
      if (PyArray_Check(args.slot(i)) && !broadcast_into(as_array(args.slot(i)), shape, &ndim)) {
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

// A tuple of what `wrap` makes of each item of a tuple or list. Steals `sequence`; `wrap` steals
// the item.
template <typename Wrap>
PyObject *wrap_items(PyObject *sequence, Wrap wrap) {
  const NestedCall nested("wrapping a result");
  if (!nested.entered()) {
    Py_DECREF(sequence);
    return nullptr;
  }
  py::object items = py::reinterpret_steal<py::object>(tuple_of_items(sequence));
  Py_DECREF(sequence);
  if (!items) {
    return nullptr;
  }
  const Py_ssize_t n = PyTuple_GET_SIZE(items.ptr());
  py::object wrapped = py::reinterpret_steal<py::object>(PyTuple_New(n));
  for (Py_ssize_t i = 0; wrapped && i < n; ++i) {
    PyObject *value = wrap(Py_NewRef(PyTuple_GET_ITEM(items.ptr(), i)));
    if (value == nullptr) {
      return nullptr;
    }
    PyTuple_SET_ITEM(wrapped.ptr(), i, value);
  }
  return wrapped.release().ptr();
}

// Wraps each array of a result of a meta operation.
PyObject *wrap_meta(TensorObject *base, PyObject *result) {
  if (PyArray_Check(result)) {
    PyArrayObject *array = as_array(result);
    if (base != nullptr && storage_owner(array) == storage_owner(base->array)) {
      return wrap_view(base, array);
    }
    // Something was allocated (advanced indexing): keep only its shape.
    PyArrayObject *bare =
        meta_array(PyArray_NDIM(array), PyArray_DIMS(array), PyArray_DESCR(array));
    Py_DECREF(array);
    return bare == nullptr ? nullptr : wrap_array(bare, true);
  }
  if (PyTuple_CheckExact(result) || PyList_CheckExact(result)) {
    return wrap_items(result, [base](PyObject *item) { return wrap_meta(base, item); });
  }
  return result;
}

// A result that had to be copied, of an operation that promises a view.
bool is_copy(TensorObject *base, PyObject *result) {
  return PyArray_Check(result) && PyArray_SIZE(as_array(result)) != 0 &&
         storage_owner(as_array(result)) != storage_owner(base->array);
}

PyObject *wrap_views(TensorObject *base, PyObject *result, bool one_of_many = false) {
  if (PyArray_CheckExact(result)) {
    PyObject *view = wrap_view(base, as_array(result));
    if (view != nullptr && base->cell != nullptr && as_tensor(view)->cell == base->cell) {
      set_base(as_tensor(view), base, one_of_many ? ViewOrigin::one_of_many : ViewOrigin::single);
    }
    return view;
  }
  if (PyList_CheckExact(result) || PyTuple_CheckExact(result)) {
    return wrap_items(result, [base](PyObject *item) { return wrap_views(base, item, true); });
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

// Runs the forward function that also says what to save for the derivative.
PyObject *run_recording(OpObject *op, Arguments &args, PyObject *kwnames, py::object &saved) {
  SilenceFloatErrors silence(SilenceFloatErrors::Work::python);
  py::object both = py::reinterpret_steal<py::object>(args.call(op->record, kwnames));
  if (!both) {
    return nullptr;
  }
  if (!PyTuple_CheckExact(both.ptr()) || PyTuple_GET_SIZE(both.ptr()) != 2) {
    PyErr_Format(PyExc_TypeError, "%U: its recording function must return (result, saved)",
                 op->name);
    return nullptr;
  }
  saved = py::reinterpret_borrow<py::object>(PyTuple_GET_ITEM(both.ptr(), 1));
  return Py_NewRef(PyTuple_GET_ITEM(both.ptr(), 0));
}

// Two cpu tensors of one dtype that needs no promotion: the case worth a path of its own. False:
// not that case.
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
  if (num != PyArray_TYPE(b->array) || a->is_meta || b->is_meta || !ready || op->unfit.has(num)) {
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
    const OutsideNativeSection outside;
    *result =
        PyObject_Vectorcall(op->forward, stack + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  }
  if (*result == nullptr) {
    translate_error(op->name, stack + 1, 2);
  } else if (PyArray_CheckExact(*result)) {
    *result = wrap_array(as_array(*result));
  } else {
    *result = wrap_result(*result);
  }
  if (*result != nullptr && (needs_grad(a) || needs_grad(b)) && grad_enabled() &&
      record_call(op, args, stack + 1, 2, 2, nullptr, *result) < 0) {
    Py_CLEAR(*result);
  }
  Py_DECREF(array_a);
  Py_DECREF(array_b);
  return true;
}

// The derivative may want the values that are about to be overwritten: it gets a copy of them.
int begin_inplace(InplaceRecord &recorded, OpObject *op, TensorObject *self, Arguments &arguments,
                  PyObject *kwnames) {
  bool wants_self = false;
  for (int i = 0; i < kMaxArgs; ++i) {
    wants_self |= (op->keep[i].arrays & 1u) != 0;
  }
  PyObject *own = arguments.slot(0);
  py::object copy = py::reinterpret_borrow<py::object>(own);
  if (wants_self && grad_enabled() && !self->is_meta && own == as_object(self->array)) {
    copy = py::reinterpret_steal<py::object>(PyArray_NewCopy(self->array, NPY_KEEPORDER));
    if (!copy) {
      return -1;
    }
  }
  arguments.slot(0) = copy.ptr();
  const int status = recorded.begin(op, self, arguments.originals(), arguments.values(),
                                    arguments.positional, arguments.total, kwnames);
  arguments.slot(0) = own;
  return status;
}

// True if forward(..., out=target) may be called with an array that is the operation's first
// argument and receives its result, of dtype `num` (-1: that of the argument).
bool can_write_into(const OpObject *op, Arguments &arguments, PyArrayObject *target, int num,
                    PyObject *kwnames) {
  return op->writes_into && kwnames == nullptr && arguments.slot(0) == as_object(target) &&
         (num < 0 || num == PyArray_TYPE(target)) && PyArray_IS_C_CONTIGUOUS(target) &&
         PyArray_ISBEHAVED(target);
}

PyObject *run_into(OpObject *op, Arguments &arguments, PyArrayObject *target) {
  PyObject *stack[kMaxArgs + 1];
  std::copy_n(arguments.values(), arguments.positional, stack);
  stack[arguments.positional] = as_object(target);
  py::object keywords = py::reinterpret_steal<py::object>(PyTuple_Pack(1, names.out));
  if (!keywords) {
    return nullptr;
  }
  SilenceFloatErrors silence(SilenceFloatErrors::Work::python);
  const OutsideNativeSection outside;
  return PyObject_Vectorcall(op->forward, stack, static_cast<size_t>(arguments.positional),
                             keywords.ptr());
}

}  // namespace

PyObject *wrap_result(PyObject *result, bool shared) {
  if (PyArray_Check(result)) {
    return shared ? tensor_from_array(tensor_type, result, false) : wrap_array(as_array(result));
  }
  if (PyArray_CheckScalar(result)) {
    PyObject *array = PyArray_FromScalar(result, nullptr);
    Py_DECREF(result);
    return array == nullptr ? nullptr : wrap_array(as_array(array));
  }
  if (PyTuple_CheckExact(result) || PyList_CheckExact(result)) {
    return wrap_items(result, [shared](PyObject *item) { return wrap_result(item, shared); });
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
  const bool records = arguments.any_needs_grad && grad_enabled();
  TensorObject *base = nargs > 0 && is_tensor(args[0]) ? as_tensor(args[0]) : nullptr;
  py::object saved;
  if (arguments.any_meta) {
    result = call_on_meta(op, arguments, kwnames, num);
  } else if (records && op->record != nullptr) {
    result = run_recording(op, arguments, kwnames, saved);
  } else {
    result = run(op, arguments, kwnames);
  }
  if (result == nullptr) {
    translate_error(op->name, &arguments.slot(0), arguments.positional);
    return nullptr;
  }
  if (num == NPY_HALF && op->fitting == kFittingSingle && !arguments.any_meta) {
    // A number that float16 has not made float32 of the result.
    SilenceFloatErrors silence(SilenceFloatErrors::Work::native);
    PyArray_Descr *half = PyArray_DescrFromType(NPY_HALF);
    PyObject *narrow = PyArray_FromAny(result, half, 0, 0, NPY_ARRAY_FORCECAST, nullptr);
    Py_DECREF(result);
    if (narrow == nullptr) {
      return nullptr;
    }
    result = narrow;
  }
  if (!arguments.any_meta && op->is_strict_view && base != nullptr && is_copy(base, result)) {
    Py_DECREF(result);
    PyErr_Format(PyExc_RuntimeError,
                 "%U size is not compatible with input tensor's size and stride (at least one "
                 "dimension spans across two contiguous subspaces). Use .reshape(...) instead.",
                 op->name);
    return nullptr;
  }
  if (arguments.any_meta) {
    result = wrap_meta(op->is_view ? base : nullptr, result);
  } else {
    result = op->is_view && base != nullptr ? wrap_views(base, result) : wrap_result(result);
  }
  if (result != nullptr && records &&
      record_call(op, arguments.originals(), arguments.values(), nargs, arguments.total, kwnames,
                  result, saved.ptr()) < 0) {
    Py_CLEAR(result);
  }
  return result;
}

int op_inplace(OpObject *op, TensorObject *self, PyObject *const *args, Py_ssize_t nargs,
               PyObject *kwnames) {
  if (check_inplace(self, grad_enabled() && any_needs_grad(args, nargs)) < 0 ||
      check_overlap(self) < 0) {
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
    raise_output_dtype(op->name, num, own);
    return -1;
  }
  PyArrayObject *target = self->array;
  py::object held = py::reinterpret_borrow<py::object>(as_object(target));
  py::object result;
  InplaceRecord recorded;
  if (arguments.any_needs_grad && begin_inplace(recorded, op, self, arguments, kwnames) < 0) {
    return -1;
  }
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
    // Straight into our memory; NumPy copies first where the operands overlap. A ufunc's outputs
    // follow its inputs.
    PyObject *direct[kMaxArgs + 1];
    for (Py_ssize_t i = 0; i < arguments.positional; ++i) {
      direct[i] = arguments.slot(i);
    }
    direct[arguments.positional] = as_object(target);
    SilenceFloatErrors silence(SilenceFloatErrors::Work::native);
    const OutsideNativeSection outside;
    result = py::reinterpret_steal<py::object>(PyObject_Vectorcall(
        op->forward, direct, static_cast<size_t>(arguments.positional) + 1, nullptr));
  } else {
    // A function that cannot use the memory returns an array of its own.
    result = py::reinterpret_steal<py::object>(can_write_into(op, arguments, target, num, kwnames)
                                                   ? run_into(op, arguments, target)
                                                   : run(op, arguments, kwnames));
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
      // Functions that count bools as numbers give a wider dtype than the operands have.
      const int given = PyArray_TYPE(as_array(array.ptr()));
      if (own == NPY_BOOL && op->promotion == Promotion::arith && !can_cast(given, own)) {
        raise_output_dtype(op->name, given, own);
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
  return recorded.finish(self);
}

}  // namespace modtree
