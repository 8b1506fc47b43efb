// SPDX-License-Identifier: BSD-3-Clause
#include "module/call.h"

#include <cstddef>
#include <cstring>

#include "module/adoption.h"
#include "module/class_info.h"
#include "module/error_note.h"
#include "module/forward.h"
#include "module/globals.h"
#include "module/hooked_call.h"
#include "module/uses.h"
#include "python/call.h"
#include "python/function_call.h"
#include "python/native_section.h"

namespace modtree {

namespace {

// Without a branch: nearly every call asks all four.
Py_ssize_t global_hook_count() {
  return PyDict_GET_SIZE(global_hooks.forward_pre) | PyDict_GET_SIZE(global_hooks.forward) |
         PyDict_GET_SIZE(global_hooks.backward) | PyDict_GET_SIZE(global_hooks.backward_pre);
}
bool has_global_hooks() { return global_hook_count() != 0; }

#ifdef Py_GIL_DISABLED

// True if nothing on the module itself is to be heeded by a call. Takes no lock: the hooks are read
// first, as a module that is being exposed loses them last.
bool is_bare(const ModuleObject *module) {
  const ModuleState &state = module->state;
  return !load_cell(&state.hooks) && load_flag(&state.initialized) && !load_flag(&state.exposed) &&
         !load_flag(&state.instance_overrides);
}

#else

// True if the instance dict of a module in exposed mode has four empty hook tables and nothing in
// place of the methods that a call runs; false also where only user code could tell.
[[gnu::noinline]] bool has_bare_dict(const ModuleObject *module) {
  PyObject *dict = module->dict;
  const auto has_no_hooks = [dict](PyObject *name) {
    PyObject *table = dict_peek_str(dict, name);
    return table && !may_give_entries(table);
  };
  return dict_lacks_str(dict, names.forward) && dict_lacks_str(dict, names.call_impl) &&
         dict_lacks_str(dict, names.compiled_call_impl) && has_no_hooks(names.backward_hooks) &&
         has_no_hooks(names.backward_pre_hooks) && has_no_hooks(names.forward_hooks) &&
         has_no_hooks(names.forward_pre_hooks);
}

// True if nothing on the module itself has to be heeded by a call.
inline bool is_bare(const ModuleObject *module) {
  const ModuleState &state = module->state;
  static_assert(offsetof(ModuleState, instance_overrides) == 2);
  constexpr bool kBare[] = {true, false, false, false};  // initialized; compared as one word
  constexpr std::uint8_t kMask[] = {0xff, 0xff, 0xff, 0};
  std::uint32_t flags, bare, mask;
  std::memcpy(&flags, &state, sizeof flags);
  std::memcpy(&bare, kBare, sizeof bare);
  std::memcpy(&mask, kMask, sizeof mask);
  return !state.hooks && ((flags & mask) == bare || (state.exposed && has_bare_dict(module)));
}

#endif

// The class's function that a call runs with nothing around it, as nearly every call does, or null
// when that takes a longer look. Borrowed. Runs no user code.
[[gnu::always_inline]] inline PyObject *bare_forward(const ModuleObject *module) {
  ClassInfo info;
  const bool found = class_cache.find(Py_TYPE(module), &info) &&
                     !info.overrides_any<Virtual::compiled_call_impl, Virtual::call_impl,
                                         Virtual::getattribute>() &&
                     (global_hook_count() | reinterpret_cast<Py_ssize_t>(shown_call)) == 0 &&
                     knows_not_tracing() && is_bare(module);
  return found ? info.forward() : nullptr;
}

// The number of entries of a hook table in compact mode, where it is plain.
template <Slot slot>
Py_ssize_t own_hook_count(ModuleObject *module) {
  PyObject *table = peek(module, slot);
  return table ? PyDict_GET_SIZE(table) : 0;
}

// 1 when a call must go through the hooks, 0 when not, -1 with AttributeError before
// Module.__init__.
int has_call_hooks(ModuleObject *module) {
  if (has_global_hooks()) {
    return 1;
  }
  if (!module->state.exposed && module->state.initialized) {
    if (!module->state.hooks) {
      return 0;
    }
    if (own_hook_count<Slot::backward_hooks>(module) ||
        own_hook_count<Slot::backward_pre_hooks>(module) ||
        own_hook_count<Slot::forward_hooks>(module) ||
        own_hook_count<Slot::forward_pre_hooks>(module)) {
      return 1;
    }
    forget_empty_hooks(module->state);
    return 0;
  }
  for (const Slot slot : {Slot::backward_hooks, Slot::backward_pre_hooks, Slot::forward_hooks,
                          Slot::forward_pre_hooks}) {
    PyObject *table;
    py::object keep;
    if (registry(module, slot, &table, &keep) < 0) {
      return -1;
    }
    if (const int has_hooks = table_has_hooks(table)) {
      return has_hooks;
    }
  }
  return 0;
}

// What a call runs. `callable` is null where hooks do (they look for forward themselves).
struct Plan {
  py::object callable;
  bool unbound = false;  // a plain function of the class: self goes in front
};

// Module._call_impl: hooks, or forward alone. -1 on error.
int plan_forward(ModuleObject *module, Plan *plan) {
  const int hooked = has_call_hooks(module);
  if (hooked != 0) {
    return hooked > 0 ? 0 : -1;
  }
  // Owned: a patch of the class during the call must not free the function that runs.
  plan->callable = find_forward(module, &plan->unbound);
  return plan->callable ? 0 : -1;
}

// torch's own function where a profiler is to see it; else the compiled implementation of the
// instance or class, an overridden _call_impl, or the native one. -1 on error.
int plan_call(ModuleObject *module, Plan *plan) {
  if (PyObject *function = call_to_show()) {
    plan->callable = py::reinterpret_borrow<py::object>(function);
    plan->unbound = true;
    return 0;
  }
  if (overrides_any<Virtual::compiled_call_impl, Virtual::call_impl>(module,
                                                                     class_info(Py_TYPE(module)))) {
    if (PyErr_Occurred()) {
      return -1;
    }
    if (overrides(module, Virtual::compiled_call_impl)) {
      plan->callable = py::reinterpret_steal<py::object>(
          PyObject_GetAttr(as_object(module), names.compiled_call_impl));
      if (!plan->callable || !plan->callable.is_none()) {
        return plan->callable ? 0 : -1;
      }
      plan->callable = py::object();
    }
    if (overrides(module, Virtual::call_impl)) {
      plan->callable =
          py::reinterpret_steal<py::object>(PyObject_GetAttr(as_object(module), names.call_impl));
      return plan->callable ? 0 : -1;
    }
  }
  return plan_forward(module, plan);
}

PyObject *run(const Plan &plan, PyObject *self_obj, PyObject *args, PyObject *kwargs) {
  if (!plan.callable) {
    return call_with_hooks(self_obj, args, kwargs);
  }
  const OutsideNativeSection outside;
  return plan.unbound ? call_unbound(plan.callable.ptr(), self_obj, args, kwargs)
                      : PyObject_Call(plan.callable.ptr(), args, kwargs);
}

// The call with a tuple and a dict: through the hooks, or what the class has as `tp_call`.
PyObject *call_packed(ternaryfunc call, PyObject *self_obj, PyObject *const *args,
                      std::size_t flagged_count, PyObject *names_of_keywords) {
  py::object tuple, keywords;
  if (pack_arguments(args, PyVectorcall_NARGS(flagged_count), names_of_keywords, &tuple,
                     &keywords) < 0) {
    return nullptr;
  }
  return call == module_tp_call ? call_with_hooks(self_obj, tuple.ptr(), keywords.ptr())
                                : call(self_obj, tuple.ptr(), keywords.ptr());
}

// A call that takes more than a look at flags. Kept out of line, so that the others need not save
// registers for it.
[[gnu::noinline]] PyObject *call_by_plan(ternaryfunc call, PyObject *self_obj,
                                         PyObject *const *args, std::size_t flagged_count,
                                         PyObject *names_of_keywords) {
  Plan plan;
  if (call == module_tp_call) {
    if (plan_call(as_module(self_obj), &plan) < 0) {
      return note_failed_call(self_obj, args, flagged_count, names_of_keywords);
    }
    if (plan.unbound) {
      PyObject *result =
          call_with_first(plan.callable.ptr(), self_obj, args, flagged_count, names_of_keywords);
      return result ? result : note_failed_call(self_obj, args, flagged_count, names_of_keywords);
    }
  }
  // The interpreter counts no calls by vectorcall, and what is called may be a module again: this
  // one, where it is its own `forward`.
  if (Py_EnterRecursiveCall(" while calling a module") != 0) {
    return nullptr;
  }
  PyObject *result;
  if (plan.callable) {
    const OutsideNativeSection outside;
    result = PyObject_Vectorcall(plan.callable.ptr(), args, flagged_count, names_of_keywords);
    if (!result) {
      note_failed_call(self_obj, args, flagged_count, names_of_keywords);
    }
  } else {
    result = call_packed(call, self_obj, args, flagged_count, names_of_keywords);
  }
  Py_LeaveRecursiveCall();
  return result;
}

// A module that several threads call is freed by the collector: otherwise each call would write the
// module's count, and the threads wait for one another. Not at once: a copy that another thread
// calls a few times is to end with its last reference.
inline void note_foreign_call([[maybe_unused]] ModuleObject *module) {
#ifdef Py_GIL_DISABLED
  constexpr std::uint8_t kMany = 100;
  if (_Py_IsOwnedByCurrentThread(as_object(module))) {
    return;
  }
  std::uint8_t *calls = &module->state.foreign_calls;
  const std::uint8_t before = _Py_atomic_load_uint8_relaxed(calls);
  if (before < kMany) {
    _Py_atomic_store_uint8_relaxed(calls, before + 1);
  } else if (before == kMany) {
    _Py_atomic_store_uint8_relaxed(calls, kMany + 1);
    leave_to_collector(as_object(module));
  }
#endif
}

// Out of line, so that calls that do not fail take no instruction for it but the look at the
// result.
[[gnu::cold, gnu::noinline]] PyObject *end_failed_call(PyObject *forward, PyObject *self_obj,
                                                       PyObject *const *args,
                                                       std::size_t flagged_count,
                                                       PyObject *names_of_keywords) {
  note_failed_call(self_obj, args, flagged_count, names_of_keywords);
  Py_DECREF(forward);
  return nullptr;
}

}  // namespace

PyObject *module_call_impl(PyObject *self_obj, PyObject *args, PyObject *kwargs) {
  Plan plan;
  PyObject *result =
      plan_forward(as_module(self_obj), &plan) < 0 ? nullptr : run(plan, self_obj, args, kwargs);
  return result ? result : note_failed_call(self_obj, args, kwargs);
}

PyObject *module_tp_call(PyObject *self_obj, PyObject *args, PyObject *kwargs) {
  if (c_stack_ends() || note_use(self_obj) < 0) {
    return nullptr;
  }
  const NativeSection in_section;
  native_counts.calls.add();
  Plan plan;
  int planned = 0;
  if (PyObject *forward = bare_forward(as_module(self_obj))) {
    plan.callable = py::reinterpret_borrow<py::object>(forward);
    plan.unbound = true;
  } else {
    planned = plan_call(as_module(self_obj), &plan);
  }
  PyObject *result = planned < 0 ? nullptr : run(plan, self_obj, args, kwargs);
  return result ? result : note_failed_call(self_obj, args, kwargs);
}

PyObject *module_vectorcall(PyObject *self_obj, PyObject *const *args, std::size_t flagged_count,
                            PyObject *names_of_keywords) {
  if (c_stack_ends() || note_use(self_obj) < 0) {
    return nullptr;
  }
  // Before 3.12 a class keeps the flag of vectorcall when its __call__ is replaced.
  const ternaryfunc call = Py_TYPE(self_obj)->tp_call;
  PyObject *forward = nullptr;
  if (call == module_tp_call) {
    native_counts.calls.add();
    forward = bare_forward(as_module(self_obj));
  }
  if (!forward) {
    const NativeSection in_section;
    return call_by_plan(call, self_obj, args, flagged_count, names_of_keywords);
  }
  note_foreign_call(as_module(self_obj));
  if (kRunsWithoutGil && !names_of_keywords) {
    PyObject *result = call_with_first(forward, self_obj, args, flagged_count, nullptr);
    return result ? result : note_failed_call(self_obj, args, flagged_count, nullptr);
  }
  // Owned: a patch of the class during the call must not free the function that runs.
  Py_INCREF(forward);
  PyObject *result = call_with_first(forward, self_obj, args, flagged_count, names_of_keywords);
  if (!result) {
    return end_failed_call(forward, self_obj, args, flagged_count, names_of_keywords);
  }
#ifdef __GNUC__
  __asm__("" : "+r"(forward));  // or gcc writes the count to the stack too, where nobody reads it
#endif
  Py_DECREF(forward);
  return result;
}

void take_vectorcall(PyTypeObject *type, ModuleObject *module) {
  module->vectorcall = module_vectorcall;
  // Before 3.12 classes written in Python do not inherit the flag.
  if (type->tp_call == module_tp_call && !PyType_HasFeature(type, Py_TPFLAGS_HAVE_VECTORCALL)) {
    type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
  }
}

}  // namespace modtree
