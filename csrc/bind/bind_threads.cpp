// SPDX-License-Identifier: BSD-3-Clause
#include "bind/bind_threads.h"

#include "kernels/thread_count.h"

namespace modtree {

namespace {

std::int64_t thread_count() { return kernels::thread_count(); }

void set_thread_count(std::int64_t count) {
  kernels::set_thread_count(static_cast<std::ptrdiff_t>(count));
}

}  // namespace

void bind_threads(Functions &functions) {
  functions.def<thread_count>("_thread_count()", "How many threads kernels use.");
  functions.def<set_thread_count>("_set_thread_count(count)",
                                  "Lets kernels use so many threads; at least one.");
}

}  // namespace modtree
