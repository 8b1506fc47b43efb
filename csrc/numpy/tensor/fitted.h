// SPDX-License-Identifier: BSD-3-Clause
// A number as an element of a dtype, as torch converts it where a value is stored: refused where it
// is beyond the dtype's range, or has an imaginary part that would be lost.
#pragma once

#include "tensor/object.h"

namespace modtree {

// The number (of Python, or a NumPy scalar) as one that NumPy stores in `dtype` as it is. New
// reference; null with an error set, RuntimeError where it does not fit. Anything but a number
// comes back as it is.
PyObject *fitted_number(PyObject *number, DTypeObject *dtype);

}  // namespace modtree
