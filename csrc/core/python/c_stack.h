// SPDX-License-Identifier: BSD-3-Clause
// The end of the C stack. Python code that native code calls may come back to native code, and
// sys.setrecursionlimit() may allow that until the stack ends, which ends the process. So native
// functions ask on their way in, and raise a RecursionError while there is room for it.
#pragma once

#include <Python.h>

#include <cstdint>
#ifdef _MSC_VER
#include <intrin.h>
#endif

namespace modtree {

// Addresses in the stack of one thread.
struct CStack {
  std::uintptr_t limit = UINTPTR_MAX;  // native code goes no deeper; at first it is not yet known
  std::uintptr_t lowest = 0;
  std::uintptr_t top = 0;

  // Measures the stack again, as a program may raise the limit of its first thread. True with an
  // error set if `here` is too deep.
  [[gnu::cold, gnu::noinline]] bool is_exceeded_at(std::uintptr_t here);
};

// glibc keeps room for a few words of libraries that are loaded later, so no call looks for these:
// it would take three times the instructions of the check. Without the GIL, the caches of a thread
// are in the same block, which is too large for that room.
#if defined(__GLIBC__) && !defined(Py_GIL_DISABLED)
[[gnu::tls_model("initial-exec")]]
#endif
inline thread_local CStack c_stack;

// True with a RecursionError set near the end of the stack.
inline bool c_stack_ends() {
#ifdef _MSC_VER
  const auto here = reinterpret_cast<std::uintptr_t>(_AddressOfReturnAddress());
#else
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
#endif
  return here < c_stack.limit && c_stack.is_exceeded_at(here);
}

}  // namespace modtree
