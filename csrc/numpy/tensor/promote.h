// SPDX-License-Identifier: BSD-3-Clause
// torch's type promotion: three classes of operands (with dimensions, 0-d, Python numbers), four
// categories of dtypes.
#pragma once

#include "tensor/object.h"

namespace modtree {

// The dtype in which two dtypes of the same class of operand meet.
int promote_nums(int a, int b);

// Collects operands; result() is the number of the dtype they meet in, or -1 when there was none.
class ResultType {
public:
  void add_array(PyArrayObject *array) {
    int *slot = PyArray_NDIM(array) > 0 ? &dims_ : &zero_;
    int num = PyArray_TYPE(array);
    *slot = *slot < 0 ? num : promote_nums(*slot, num);
  }
  void add_number(DTypeCategory category);
  int result() const;

private:
  int dims_ = -1;
  int zero_ = -1;
  int number_ = -1;
};

// True for a Python or NumPy number, whose category it sets.
bool number_category(PyObject *obj, DTypeCategory *category);

// True if a result of type `from` may be written into a tensor of type `to`: not a float into an
// integer.
bool can_cast(int from, int to);

}  // namespace modtree
