// SPDX-License-Identifier: BSD-3-Clause
#include "python/c_stack.h"

#include <pybind11/pytypes.h>

#include <algorithm>
#ifdef _WIN32
#include <windows.h>
#else
#include <pthread.h>
#endif

namespace modtree {

namespace {

// Sets both ends; false where the system does not tell them. musl counts only the pages of the
// first thread that were used so far.
bool measure(CStack &stack) {
#if defined(_WIN32)
  ULONG_PTR low, high;
  GetCurrentThreadStackLimits(&low, &high);
  stack.lowest = low;
  stack.top = high;
  return true;
#elif defined(__APPLE__)
  stack.top = reinterpret_cast<std::uintptr_t>(pthread_get_stackaddr_np(pthread_self()));
  stack.lowest = stack.top - pthread_get_stacksize_np(pthread_self());
  return true;
#elif defined(__GLIBC__)
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) {
    return false;
  }
  void *lowest = nullptr;
  std::size_t size = 0;
  const bool is_known = pthread_attr_getstack(&attributes, &lowest, &size) == 0;
  pthread_attr_destroy(&attributes);
  stack.lowest = reinterpret_cast<std::uintptr_t>(lowest);
  stack.top = stack.lowest + size;
  return is_known;
#else
  (void)stack;
  return false;
#endif
}

}  // namespace

bool CStack::is_exceeded_at(std::uintptr_t here) {
  // Beyond both ends it is a stack that the program has made itself, as libraries of coroutines do.
  if (top != 0 && (here < lowest || here >= top)) {
    return false;
  }
  if (!measure(*this)) {
    limit = 0;
    return false;
  }
  // The reserve is for what runs before the next native function asks: a tensor library, the making
  // of an error.
  constexpr std::uintptr_t kMostReserve = std::uintptr_t{1} << 20;
  limit = lowest + std::min((top - lowest) / 16, kMostReserve);
  if (here < lowest || here >= limit) {
    return false;
  }
  PyErr_Format(PyExc_RecursionError,
               "calls are nested too deeply for the C stack of this thread (%zu KiB), below the "
               "limit of sys.setrecursionlimit(): nest them less, or use a thread with a larger "
               "threading.stack_size()",
               static_cast<std::size_t>((top - lowest) >> 10));
  return true;
}

}  // namespace modtree
