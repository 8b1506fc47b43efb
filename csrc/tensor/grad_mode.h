// SPDX-License-Identifier: BSD-3-Clause
// The thread's switches: are operations recorded?
#pragma once

#include <pybind11/pybind11.h>

namespace modtree {

namespace py = pybind11;

bool grad_enabled();
bool set_grad_enabled(bool flag);  // returns the old value

void bind_grad_mode(py::module_ &m);

}  // namespace modtree
