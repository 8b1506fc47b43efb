// SPDX-License-Identifier: BSD-3-Clause
#include "bind/bind_threads.h"

#include "kernels/thread_count.h"

namespace modtree {

namespace py = pybind11;

void bind_threads(py::module_ &m) {
  m.def("_thread_count", &kernels::thread_count, "How many threads kernels use.");
  m.def("_set_thread_count", &kernels::set_thread_count, py::arg("count"),
        "Lets kernels use so many threads; at least one.");
}

}  // namespace modtree
