// SPDX-License-Identifier: BSD-3-Clause
// The native class in the place of another library's Module (docs/dropin.md): Python functions are
// on the class, for what reads or traces them, and instances answer with the native methods.
#pragma once

#include <cstdint>
#include <string>
#ifdef Py_GIL_DISABLED
#include <atomic>
#endif

#include "module/object.h"

namespace modtree {

// Puts the attributes of the other Module on the native base, in place of its own. Functions with
// the name of a native method become its face: what the class shows, while instances give the
// native method, unless they are among the names `left`, a set. `sealed` is modtree's own Module,
// which keeps what it inherited until now. Once per process; throws error_already_set.
void adopt_module_class(const py::dict &attributes, py::handle sealed, py::handle left);

// Puts `_module_setattr` and `_module_delattr` on `_C`: what the faces of `__setattr__` and
// `__delattr__` call. Throws error_already_set.
void add_attribute_methods(py::handle m);

// Says what the loaded torch has: a bool by the name of each member of TorchFacts, and
// `torch_warning` or None. Throws KeyError for another name, and for one that is missing.
void set_torch_facts(const py::dict &facts, py::handle warning);

// How many faces there are: 0 until a class was adopted.
extern int face_count;

// A number that native code adds to. Without the GIL only where a class was adopted: several
// threads that write one number slow each other down.
class NativeCount {
public:
#ifdef Py_GIL_DISABLED
  void add(bool counts = true) {
    if (counts && face_count) {
      value_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  std::uint64_t value() const { return value_; }

private:
  std::atomic<std::uint64_t> value_{0};
#else
  void add(bool counts = true) { value_ += counts; }
  std::uint64_t value() const { return value_; }

private:
  std::uint64_t value_ = 0;
#endif
};

// How often native code answered since the class was adopted.
struct NativeCounts {
  NativeCount reads, writes, calls;
};
extern NativeCounts native_counts;

// From now on notes, as instances are made, which classes go through Python code of their own.
void start_report();

// {"reads": n, ..., "methods": {name: n}, "classes": [(class, names of what it overrides)]}. Throws
// error_already_set.
py::dict native_report();

// Notes the class of a new instance while a report is made.
extern bool is_reporting;
int note_new_instance(PyTypeObject *type);  // -1 on error

// A function on the class and the native method that instances give in its place. For `_call_impl`
// both are the function: it is met on the way of a call that missed the native slot.
struct Face {
  PyObject *function;
  PyObject *native;
  std::uint64_t calls;
};

// Null when the function is not a face; for the life of the process.
Face *find_face(PyObject *function);

// Gives a class the native slots for what it does not override. CPython gives a new class slots
// that call the Python functions, and a patch of a base does the same to all classes below, so that
// the patch is seen; where it was taken back, the native slots return here.
void take_native_slots(PyTypeObject *type);

// Replaces one of the process-wide hook tables, as a program does that assigns to `_global_*` of
// torch's file. Throws for a name that is not that of a table and a value that is not a dict.
void rebind_global_hooks(const std::string &name, py::handle table);

// --- tracing

// libtorch's own function behind `torch._C._get_tracing_state`: a reference to a shared pointer.
// Null where it is not known; then its Python form is called.
using TracingState = const void *const *(*)();
extern TracingState tracing_state;
extern PyObject *tracing_function;  // null: torch is not there
int ask_tracing_function();

// 1 while torch.jit.trace is active in this thread, so that calls go to `_slow_forward`; -1 on
// error.
inline int is_tracing() {
  return tracing_state      ? *tracing_state() != nullptr
         : tracing_function ? ask_tracing_function()
                            : 0;
}

// True if it is known, without running Python code, that torch.jit.trace is not active.
inline bool knows_not_tracing() {
  return tracing_state ? *tracing_state() == nullptr : !tracing_function;
}

// What a call of a module runs while torch's profiler is at work, to be seen by it: torch's own
// `Module.__call__`, of which its tracer knows the code. Null while no such profiler is set.
extern PyObject *shown_call;
void show_calls(py::handle function);  // None ends it

// Borrowed; null in a thread that nothing profiles.
PyObject *call_to_show();

// Finds the former in a library that is loaded already; takes the latter, a callable, in any case.
void set_tracing_probe(const std::string &library, py::handle function);

}  // namespace modtree
