// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/promote.h"

namespace modtree {

namespace {

using C = DTypeCategory;

C category_of(int num) {
  DTypeObject *dtype = dtype_of_num(num);
  return dtype == nullptr ? C::floating : dtype->category;
}

int to_complex(int num) { return num == NPY_FLOAT64 ? NPY_COMPLEX128 : NPY_COMPLEX64; }

int item_size(int num) {
  DTypeObject *dtype = dtype_of_num(num);
  return dtype == nullptr ? 8 : static_cast<int>(PyDataType_ELSIZE(dtype->descr));
}

// Operands of a higher class decide unless the lower class has the higher category.
int combine(int higher, int lower) {
  if (higher < 0) {
    return lower;
  }
  if (lower < 0) {
    return higher;
  }
  C high = category_of(higher);
  C low = category_of(lower);
  if (high == C::complex) {
    return higher;
  }
  if (high == C::floating) {
    return low == C::complex ? to_complex(higher) : higher;
  }
  if (high == C::boolean || is_float_category(low)) {
    return promote_nums(higher, lower);
  }
  return higher;
}

int signed_of_size(int size) {
  switch (size) {
    case 1:
      return NPY_INT8;
    case 2:
      return NPY_INT16;
    case 4:
      return NPY_INT32;
    default:
      return NPY_INT64;
  }
}

}  // namespace

int promote_nums(int a, int b) {
  if (a == b) {
    return a;
  }
  C ca = category_of(a);
  C cb = category_of(b);
  if (ca < cb) {
    std::swap(a, b);
    std::swap(ca, cb);
  }
  if (ca == C::complex) {
    bool wide = a == NPY_COMPLEX128 || b == NPY_COMPLEX128 || b == NPY_FLOAT64;
    return wide ? NPY_COMPLEX128 : NPY_COMPLEX64;
  }
  if (ca != cb) {
    return a;  // float beats int whatever the sizes; everything beats bool
  }
  int size = std::max(item_size(a), item_size(b));
  if (ca == C::floating) {
    if (item_size(a) == item_size(b)) {  // bfloat16 with float16: neither holds the other
      return NPY_FLOAT32;
    }
    return item_size(a) == size ? a : b;
  }
  bool signed_a = dtype_of_num(a)->is_signed;
  bool signed_b = dtype_of_num(b)->is_signed;
  if (signed_a == signed_b) {
    return item_size(a) == size ? a : b;
  }
  // Signed with unsigned: the signed type that holds both, int64 at most.
  int unsigned_size = item_size(signed_a ? b : a);
  int signed_size = item_size(signed_a ? a : b);
  return signed_of_size(signed_size > unsigned_size ? signed_size : 2 * unsigned_size);
}

void ResultType::add_number(DTypeCategory category) {
  int num = NPY_BOOL;
  switch (category) {
    case C::boolean:
      break;
    case C::integral:
      num = NPY_INT64;
      break;
    case C::floating:
      num = default_float_num();
      break;
    case C::complex:
      num = default_complex_num();
      break;
  }
  number_ = number_ < 0 ? num : promote_nums(number_, num);
}

int ResultType::result() const { return combine(dims_, combine(zero_, number_)); }

bool number_category(PyObject *obj, DTypeCategory *category) {
  if (PyBool_Check(obj)) {
    *category = C::boolean;
  } else if (PyLong_Check(obj)) {
    *category = C::integral;
  } else if (PyFloat_Check(obj)) {
    *category = C::floating;
  } else if (PyComplex_Check(obj)) {
    *category = C::complex;
  } else if (PyArray_IsScalar(obj, Bool)) {
    *category = C::boolean;
  } else if (PyArray_IsScalar(obj, Integer)) {
    *category = C::integral;
  } else if (PyArray_IsScalar(obj, Floating)) {
    *category = C::floating;
  } else if (PyArray_IsScalar(obj, ComplexFloating)) {
    *category = C::complex;
  } else {
    return false;
  }
  return true;
}

bool can_cast(int from, int to) {
  C cf = category_of(from);
  C ct = category_of(to);
  if (cf == C::complex && ct != C::complex) {
    return false;
  }
  if (cf == C::floating && !is_float_category(ct)) {
    return false;
  }
  return !(cf != C::boolean && ct == C::boolean);
}

}  // namespace modtree
