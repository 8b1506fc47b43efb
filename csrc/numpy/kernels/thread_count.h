// SPDX-License-Identifier: BSD-3-Clause
// The number of threads that kernels share their work out to.
#pragma once

#include <cstddef>

namespace modtree::kernels {

// What was set; else the default: MKL_NUM_THREADS or OMP_NUM_THREADS, as far as there are cores,
// else the number of cores.
std::ptrdiff_t thread_count();

// From now on `count` >= 1.
void set_thread_count(std::ptrdiff_t count);

// The cores that this process may use, two threads of one core counted once where the system tells.
std::ptrdiff_t core_count();

// What the environment variable of this text asks for (null: none): a positive number up to
// `cores`, else `cores`.
std::ptrdiff_t threads_from(const char *text, std::ptrdiff_t cores);

}  // namespace modtree::kernels
