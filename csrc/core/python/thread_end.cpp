// SPDX-License-Identifier: BSD-3-Clause
// Daemon threads that are in native code while the process exits.
//
// Before 3.14, CPython ends such a thread with pthread_exit() when it asks for the GIL, which glibc
// does by unwinding its stack: destructors would drop references without the GIL, and a `catch
// (...)` would end in std::terminate(). The linker puts this function in front of the one that the
// unwinder asks about every C++ frame (see csrc/CMakeLists.txt); the thread sleeps here instead, as
// in 3.14, until the process is gone.
#ifdef MODTREE_LINKER_WRAPS
#include <unistd.h>
#include <unwind.h>

#include "python/compat.h"

// NOLINTBEGIN(bugprone-reserved-identifier): names that the linker makes of the wrapped one
extern "C" {

_Unwind_Reason_Code __real___gxx_personality_v0(int version, _Unwind_Action actions,
                                                _Unwind_Exception_Class exception_class,
                                                _Unwind_Exception *exception,
                                                _Unwind_Context *context);

_Unwind_Reason_Code __wrap___gxx_personality_v0(int version, _Unwind_Action actions,
                                                _Unwind_Exception_Class exception_class,
                                                _Unwind_Exception *exception,
                                                _Unwind_Context *context) {
  if ((actions & _UA_FORCE_UNWIND) != 0 && modtree::is_finalizing()) {
    for (;;) {
      pause();
    }
  }
  return __real___gxx_personality_v0(version, actions, exception_class, exception, context);
}
}
// NOLINTEND(bugprone-reserved-identifier)

#endif
