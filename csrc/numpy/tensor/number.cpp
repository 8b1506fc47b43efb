// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/number.h"

#include "family/family.h"
#include "python/native_section.h"
#include "tensor/autograd/record.h"
#include "tensor/fitted.h"
#include "tensor/op_errors.h"
#include "tensor/override.h"
#include "tensor/slot_ops.h"
#include "tensor/subscript.h"

namespace modtree {

namespace {

// The methods that an operator calls, as `__torch_function__` gets them.
struct OperatorNames {
  const char *forward;
  const char *inplace;
  const char *reflected;  // called on the right operand; null: `forward` is
};

constexpr OperatorNames operator_names(int index) {
  switch (index) {
    case kAdd:
      return {"add", "add_", "add"};
    case kSub:
      return {"sub", "sub_", "__rsub__"};
    case kMul:
      return {"mul", "mul_", "mul"};
    case kTrueDiv:
      return {"div", "div_", "__rtruediv__"};
    case kFloorDiv:
      return {"__floordiv__", "floor_divide_", "__rfloordiv__"};
    case kRemainder:
      return {"remainder", "remainder_", "__rmod__"};
    case kPow:
      return {"__pow__", "__ipow__", "__rpow__"};
    case kMatmul:
      return {"matmul", "matmul", "__rmatmul__"};
    case kAnd:
      return {"__and__", "__iand__", "bitwise_and"};
    case kOr:
      return {"__or__", "__ior__", "bitwise_or"};
    case kXor:
      return {"__xor__", "__ixor__", "bitwise_xor"};
    case kLShift:
      return {"__lshift__", "__ilshift__", "__rlshift__"};
    case kRShift:
      return {"__rshift__", "__irshift__", "__rrshift__"};
    case kLt:
      return {"lt", "", "gt"};
    case kLe:
      return {"le", "", "ge"};
    case kEq:
      return {"__eq__", "", "__eq__"};
    case kNe:
      return {"ne", "", "ne"};
    case kGt:
      return {"gt", "", "lt"};
    case kGe:
      return {"ge", "", "le"};
    case kNeg:
      return {"neg", "", ""};
    case kAbs:
      return {"abs", "", ""};
    default:
      return {"__invert__", "", ""};
  }
}

template <int kIndex>
[[gnu::noinline]] bool binary_override(PyObject *a, PyObject *b, PyObject **result) {
  constexpr OperatorNames kNames = operator_names(kIndex);
  PyObject *forward[2] = {a, b};
  PyObject *reflected[2] = {b, a};
  return is_tensor(a) ? call_operator_override(kNames.forward, forward, 2, result)
                      : call_operator_override(kNames.reflected, reflected, 2, result);
}

template <int kIndex>
[[gnu::noinline]] bool inplace_override(PyObject *a, PyObject *b, PyObject **result) {
  PyObject *operands[2] = {a, b};
  return call_operator_override(operator_names(kIndex).inplace, operands, 2, result);
}

constexpr const char *operator_sign(int index) {
  constexpr const char *kSigns[] = {"+", "-",  "*",  "/", "//", "%",  "**", "@", "&", "|",
                                    "^", "<<", ">>", "<", "<=", "==", "!=", ">", ">="};
  return kSigns[index];
}

// NotImplemented, so that the other operand is asked; but two libraries, of which neither computes
// with the tensors of the other, both call theirs Tensor: a TypeError that says whose. A class
// below one of theirs may have a way.
[[gnu::noinline]] PyObject *no_operand(const char *sign, PyObject *a, PyObject *b) {
  PyObject *foreign = is_tensor(a) ? b : a;
  TensorFamily *family = family_of_type(Py_TYPE(foreign));
  if (family == nullptr || is_tensor(foreign) || !family->is_own_type(foreign)) {
    return PyErr_Occurred() ? nullptr : Py_NewRef(Py_NotImplemented);
  }
  const py::object left = type_text(Py_TYPE(a));
  const py::object right = left ? type_text(Py_TYPE(b)) : py::object();
  const py::object advice = right ? advice_on(foreign, true) : py::object();
  if (advice) {
    PyErr_Format(PyExc_TypeError, "unsupported operand types for %s: '%U' and '%U'%U", sign,
                 left.ptr(), right.ptr(), advice.ptr());
  }
  return nullptr;
}

template <int kIndex>
PyObject *binary(PyObject *a, PyObject *b) {
  PyObject *result;
  if (is_overridden(a, b) && binary_override<kIndex>(a, b, &result)) {
    return result;
  }
  if (!is_operand(a) || !is_operand(b)) {
    return no_operand(operator_sign(kIndex), a, b);
  }
  PyObject *args[2] = {a, b};
  return call_slot(kIndex, args, 2);
}

template <int kIndex>
PyObject *inplace(PyObject *a, PyObject *b) {
  PyObject *result;
  if (is_overridden(a, b) && inplace_override<kIndex>(a, b, &result)) {
    return result;
  }
  if (!is_tensor(a) || !is_operand(b)) {
    Py_RETURN_NOTIMPLEMENTED;
  }
  OpObject *op = slot_op(kIndex);
  if (op == nullptr || op_inplace(op, as_tensor(a), &b, 1, nullptr) < 0) {
    return nullptr;
  }
  Py_INCREF(a);
  return a;
}

// A method of one argument, or the override of it.
template <typename Call>
PyObject *unary_or_override(const char *name, PyObject *a, Call call) {
  PyObject *result;
  return is_overridden(a) && call_operator_override(name, &a, 1, &result) ? result : call();
}

template <int kIndex>
PyObject *unary_plain(PyObject *a) {
  if (kIndex == kInvert && is_float_category(dtype_of(as_tensor(a)->array)->category)) {
    PyErr_Format(PyExc_TypeError,
                 "~ (operator.invert) is only implemented on integer and Boolean-type tensors, got "
                 "one of %s",
                 scalar_type_name(PyArray_TYPE(as_tensor(a)->array)));
    return nullptr;
  }
  return call_slot(kIndex, &a, 1);
}

template <int kIndex>
PyObject *unary(PyObject *a) {
  return unary_or_override(operator_names(kIndex).forward, a,
                           [a] { return unary_plain<kIndex>(a); });
}

PyObject *power(PyObject *a, PyObject *b, PyObject *modulus) {
  PyObject *result;
  if (modulus == Py_None && is_overridden(a, b) && binary_override<kPow>(a, b, &result)) {
    return result;
  }
  if (modulus != Py_None || !is_operand(a) || !is_operand(b)) {
    return modulus != Py_None ? Py_NewRef(Py_NotImplemented)
                              : no_operand(operator_sign(kPow), a, b);
  }
  PyObject *args[2] = {a, b};
  return call_slot(kPow, args, 2);
}

PyObject *inplace_power(PyObject *a, PyObject *b, PyObject *modulus) {
  if (modulus != Py_None) {
    Py_RETURN_NOTIMPLEMENTED;
  }
  return inplace<kPow>(a, b);
}

PyObject *positive(PyObject *a) {
  return unary_or_override("positive", a, [a]() -> PyObject * {
    if (PyArray_TYPE(as_tensor(a)->array) == NPY_BOOL) {
      PyErr_SetString(PyExc_RuntimeError, "The `+` operator, on a bool tensor is not supported.");
      return nullptr;
    }
    return Py_NewRef(a);
  });
}

[[gnu::noinline]] bool compare_override(int op, PyObject *a, PyObject *b, PyObject **result) {
  PyObject *args[2] = {a, b};
  return call_operator_override(operator_names(kLt + op).forward, args, 2, result);
}

PyObject *richcompare(PyObject *a, PyObject *b, int op) {
  PyObject *result;
  if (is_overridden(a, b) && compare_override(op, a, b, &result)) {
    return result;
  }
  if (!is_operand(b)) {
    // Whether two objects are equal can be asked of any two.
    return op == Py_EQ || op == Py_NE ? Py_NewRef(Py_NotImplemented)
                                      : no_operand(operator_sign(kLt + op), a, b);
  }
  static_assert(Py_LT == 0 && Py_LE == 1 && Py_EQ == 2 && Py_NE == 3 && Py_GT == 4 && Py_GE == 5,
                "the comparison slots follow Python's numbering");
  PyObject *args[2] = {a, b};
  return call_slot(kLt + op, args, 2);
}

// The single element as a Python object; null with ValueError when there is not exactly one.
PyObject *single_item(PyObject *obj, const char *what) {
  TensorObject *self = as_tensor(obj);
  if (self->is_meta) {
    PyErr_Format(PyExc_RuntimeError, "%s: a tensor on 'meta' has no values", what);
    return nullptr;
  }
  if (PyArray_SIZE(self->array) != 1) {
    PyErr_Format(PyExc_ValueError,
                 "only one element tensors can be converted to Python scalars: %s of one with %zd",
                 what, PyArray_SIZE(self->array));
    return nullptr;
  }
  return PyArray_GETITEM(self->array, PyArray_BYTES(self->array));
}

int plain_bool(PyObject *obj) {
  TensorObject *self = as_tensor(obj);
  npy_intp size = PyArray_SIZE(self->array);
  if (size != 1) {
    PyErr_Format(PyExc_RuntimeError, "Boolean value of Tensor with %s value%s is ambiguous",
                 size == 0 ? "no" : "more than one", size == 0 ? "s" : "");
    return -1;
  }
  PyObject *item = single_item(obj, "bool()");
  int result = item == nullptr ? -1 : PyObject_IsTrue(item);
  Py_XDECREF(item);
  return result;
}

// The single element, where it is complex as the number of the dtype `num`, which it must fit.
py::object real_item(PyObject *obj, const char *what, int num) {
  py::object item = py::reinterpret_steal<py::object>(single_item(obj, what));
  if (item && PyComplex_Check(item.ptr())) {
    item = py::reinterpret_steal<py::object>(fitted_number(item.ptr(), dtype_of_num(num)));
  }
  return item;
}

PyObject *plain_int(PyObject *obj) {
  py::object item = real_item(obj, "int()", NPY_INT64);
  return item ? PyNumber_Long(item.ptr()) : nullptr;
}

PyObject *plain_float(PyObject *obj) {
  py::object item = real_item(obj, "float()", NPY_FLOAT64);
  return item ? PyNumber_Float(item.ptr()) : nullptr;
}

PyObject *plain_index(PyObject *obj) {
  TensorObject *self = as_tensor(obj);
  bool integral = !is_float_category(dtype_or_none(self->array)->category);
  if (!integral || PyArray_SIZE(self->array) != 1) {
    PyErr_SetString(PyExc_TypeError,
                    "only integer tensors of a single element can be converted to an index");
    return nullptr;
  }
  return plain_int(obj);
}

Py_ssize_t plain_length(PyObject *obj) {
  PyArrayObject *array = as_tensor(obj)->array;
  if (PyArray_NDIM(array) == 0) {
    PyErr_SetString(PyExc_TypeError, "len() of a 0-d tensor");
    return -1;
  }
  return PyArray_DIM(array, 0);
}

int nb_bool(PyObject *obj) {
  PyObject *answer;
  if (!is_overridden(obj) || !call_operator_override("__bool__", &obj, 1, &answer)) {
    return plain_bool(obj);
  }
  const auto held = py::reinterpret_steal<py::object>(answer);
  return held ? PyObject_IsTrue(held.ptr()) : -1;
}

PyObject *nb_int(PyObject *obj) {
  return unary_or_override("__int__", obj, [obj] { return plain_int(obj); });
}

PyObject *nb_float(PyObject *obj) {
  return unary_or_override("__float__", obj, [obj] { return plain_float(obj); });
}

PyObject *nb_index(PyObject *obj) {
  return unary_or_override("__index__", obj, [obj] { return plain_index(obj); });
}

Py_ssize_t mp_length(PyObject *obj) {
  PyObject *answer;
  if (!is_overridden(obj) || !call_operator_override("__len__", &obj, 1, &answer)) {
    return plain_length(obj);
  }
  const auto held = py::reinterpret_steal<py::object>(answer);
  return held ? PyNumber_AsSsize_t(held.ptr(), PyExc_OverflowError) : -1;
}

template <typename F>
PyType_Slot slot(int id, F function) {
  return {id, reinterpret_cast<void *>(function)};
}

}  // namespace

void add_number_slots(std::vector<PyType_Slot> &slots) {
  const PyType_Slot kAll[] = {
      slot(Py_nb_add, entry<binary<kAdd>>),
      slot(Py_nb_subtract, entry<binary<kSub>>),
      slot(Py_nb_multiply, entry<binary<kMul>>),
      slot(Py_nb_true_divide, entry<binary<kTrueDiv>>),
      slot(Py_nb_floor_divide, entry<binary<kFloorDiv>>),
      slot(Py_nb_remainder, entry<binary<kRemainder>>),
      slot(Py_nb_matrix_multiply, entry<binary<kMatmul>>),
      slot(Py_nb_and, entry<binary<kAnd>>),
      slot(Py_nb_or, entry<binary<kOr>>),
      slot(Py_nb_xor, entry<binary<kXor>>),
      slot(Py_nb_lshift, entry<binary<kLShift>>),
      slot(Py_nb_rshift, entry<binary<kRShift>>),
      slot(Py_nb_power, entry<power>),
      slot(Py_nb_inplace_add, entry<inplace<kAdd>>),
      slot(Py_nb_inplace_subtract, entry<inplace<kSub>>),
      slot(Py_nb_inplace_multiply, entry<inplace<kMul>>),
      slot(Py_nb_inplace_true_divide, entry<inplace<kTrueDiv>>),
      slot(Py_nb_inplace_floor_divide, entry<inplace<kFloorDiv>>),
      slot(Py_nb_inplace_remainder, entry<inplace<kRemainder>>),
      slot(Py_nb_inplace_and, entry<inplace<kAnd>>),
      slot(Py_nb_inplace_or, entry<inplace<kOr>>),
      slot(Py_nb_inplace_xor, entry<inplace<kXor>>),
      slot(Py_nb_inplace_lshift, entry<inplace<kLShift>>),
      slot(Py_nb_inplace_rshift, entry<inplace<kRShift>>),
      slot(Py_nb_inplace_power, entry<inplace_power>),
      slot(Py_nb_negative, entry<unary<kNeg>>),
      slot(Py_nb_positive, entry<positive>),
      slot(Py_nb_absolute, entry<unary<kAbs>>),
      slot(Py_nb_invert, entry<unary<kInvert>>),
      slot(Py_nb_bool, entry<nb_bool>),
      slot(Py_nb_int, entry<nb_int>),
      slot(Py_nb_float, entry<nb_float>),
      slot(Py_nb_index, entry<nb_index>),
      slot(Py_tp_richcompare, entry<richcompare>),
      slot(Py_mp_length, entry<mp_length>),
      slot(Py_mp_subscript, entry<mp_subscript>),
      slot(Py_mp_ass_subscript, entry<mp_ass_subscript>),
  };
  slots.insert(slots.end(), std::begin(kAll), std::end(kAll));
}

}  // namespace modtree
