// SPDX-License-Identifier: BSD-3-Clause
// Which of Module's virtual methods a class (or an instance) overrides.
#pragma once

#include "module/object.h"
#include "python/type_cache.h"

namespace modtree {

// X(enumerator, member of Names)
#define MODTREE_VIRTUALS(X)                                                                        \
  X(forward, forward)                                                                              \
  X(call, call)                                                                                    \
  X(call_impl, call_impl)                                                                          \
  X(compiled_call_impl, compiled_call_impl)                                                        \
  X(named_modules, named_modules)                                                                  \
  X(named_children, named_children)                                                                \
  X(children, children)                                                                            \
  X(modules, modules)                                                                              \
  X(named_parameters, named_parameters)                                                            \
  X(parameters, parameters)                                                                        \
  X(named_buffers, named_buffers)                                                                  \
  X(buffers, buffers)                                                                              \
  X(named_members, named_members)                                                                  \
  X(train, train)                                                                                  \
  X(training, training)                                                                            \
  X(eval, eval)                                                                                    \
  X(apply, apply)                                                                                  \
  X(apply_, apply_)                                                                                \
  X(requires_grad_, requires_grad_)                                                                \
  X(zero_grad, zero_grad)                                                                          \
  X(state_dict, state_dict)                                                                        \
  X(load_state_dict, load_state_dict)                                                              \
  X(save_to_state_dict, save_to_state_dict)                                                        \
  X(load_from_state_dict, load_from_state_dict)                                                    \
  X(get_extra_state, get_extra_state)                                                              \
  X(set_extra_state, set_extra_state)                                                              \
  X(register_parameter, register_parameter)                                                        \
  X(register_buffer, register_buffer)                                                              \
  X(add_module, add_module)                                                                        \
  X(get_name, get_name)                                                                            \
  X(extra_repr, extra_repr)                                                                        \
  X(repr, repr)                                                                                    \
  X(version, version_)                                                                             \
  X(parameters_, parameters_)                                                                      \
  X(buffers_, buffers_)                                                                            \
  X(modules_, modules_)                                                                            \
  X(setattr, setattr)                                                                              \
  X(delattr, delattr)                                                                              \
  X(getattr, getattr)                                                                              \
  X(getattribute, getattribute)                                                                    \
  X(getstate, getstate)                                                                            \
  X(setstate, setstate)                                                                            \
  X(reduce, reduce)                                                                                \
  X(reduce_ex, reduce_ex)                                                                          \
  X(getnewargs, getnewargs)                                                                        \
  X(getnewargs_ex, getnewargs_ex)                                                                  \
  X(copy, copy)                                                                                    \
  X(deepcopy, deepcopy)

enum class Virtual : std::uint8_t {
#define MODTREE_ENUMERATOR(enumerator, member) enumerator,
  MODTREE_VIRTUALS(MODTREE_ENUMERATOR)
#undef MODTREE_ENUMERATOR
      count
};
constexpr int kVirtualCount = static_cast<int>(Virtual::count);

PyObject *virtual_name(Virtual method);  // borrowed, interned

// Facts about a Module class as they were when it was asked, by value: two words, so that they
// travel in registers.
class ClassInfo {
public:
  // True if the attribute of the class is not Module's own, or if a class behind Module takes part
  // in it (bases_behind.h).
  bool overrides(Virtual method) const { return bits_ & bit_of(method); }
  template <Virtual... methods>
  bool overrides_any() const {
    return bits_ & (... | bit_of(methods));
  }
  // True if it inherits all that copy.deepcopy and pickle look up on a class and its instances. The
  // entries for it in their dispatch tables are not facts about the class.
  bool inherits_copying() const { return bits_ & kInheritsCopying; }
  // True if the `__dict__` of its instances is Module's, not a property of the class.
  bool inherits_dict() const { return bits_ & kInheritsDict; }
  // True if Module.__init__ need not assign the internal attributes one by one: the class lacks
  // properties and slots under their names, and none of its bases takes part in all writes.
  bool keeps_slots() const { return bits_ & kKeepsSlots; }
  // It has no __eq__ or __hash__ of its own: a set of its instances is a set of addresses.
  bool identity_hash() const { return bits_ & kIdentityHash; }
  // False in what class_info_of() gives for a value that is not a module.
  bool is_module() const { return bits_ & kModule; }
  // The class's `forward` when that is a plain Python function, or null. Borrowed from the class:
  // valid until user code runs.
  PyObject *forward() const { return forward_; }

  static ClassInfo compute(PyTypeObject *type);

private:
  static constexpr std::uint64_t bit_of(Virtual method) {
    return std::uint64_t{1} << static_cast<int>(method);
  }

  static constexpr std::uint64_t kKeepsSlots = std::uint64_t{1} << 59;
  static constexpr std::uint64_t kInheritsDict = std::uint64_t{1} << 60;
  static constexpr std::uint64_t kInheritsCopying = std::uint64_t{1} << 61;
  static constexpr std::uint64_t kIdentityHash = std::uint64_t{1} << 62;
  static constexpr std::uint64_t kModule = std::uint64_t{1} << 63;
  static_assert(kVirtualCount <= 59, "each virtual has a bit of its own below the flags");

  std::uint64_t bits_ = 0;
  PyObject *forward_ = nullptr;
};

inline MODTREE_PER_THREAD TypeCache<ClassInfo> class_cache;  // holds Module classes only
ClassInfo compute_class_info(PyTypeObject *type);

// Facts about a Module class. Runs user code only the first time a class is met that has keys of
// odd types in its `__dict__`.
inline ClassInfo class_info(PyTypeObject *type) {
  ClassInfo info;
  return class_cache.find(type, &info) ? info : compute_class_info(type);
}

// The facts about the class of any value; without is_module() when the value is not a module.
// Quicker than asking that first.
inline ClassInfo class_info_of(PyObject *value) {
  ClassInfo info;
  return class_cache.find(Py_TYPE(value), &info) || !is_module(value)
             ? info
             : compute_class_info(Py_TYPE(value));
}

// True if the instance dict may hold an attribute with the name of a virtual method.
inline bool may_override(const ModuleObject *module) {
  const ModuleState &state = module->state;
  static_assert(offsetof(ModuleState, instance_overrides) == offsetof(ModuleState, exposed) + 1);
  constexpr bool kNeither[] = {false, false};  // compared as one word
  return std::memcmp(&state.exposed, kNeither, sizeof kNeither) != 0;
}

// True if the instance dict holds an attribute of that name. True with an error set where a key of
// the dict raised when it was compared: a caller that finds an override has to check for one. The
// look-up stays out of line: walks ask this for every module, and hardly any module needs it.
bool instance_dict_overrides(ModuleObject *module, Virtual method);
inline bool instance_overrides(ModuleObject *module, Virtual method) {
  return may_override(module) && instance_dict_overrides(module, method);
}

// True if the instance dict has one of the methods.
template <Virtual... methods>
bool overrides_any_in_instance(ModuleObject *module) {
  return may_override(module) && (... || instance_dict_overrides(module, methods));
}

// True if looking up the method on this module would find something other than Module's own.
inline bool overrides(ModuleObject *module, ClassInfo info, Virtual method) {
  // A __getattribute__ in Python may answer anything for any name.
  return info.overrides(method) || info.overrides(Virtual::getattribute) ||
         instance_overrides(module, method);
}
// The same for any of several methods.
template <Virtual... methods>
bool overrides_any(ModuleObject *module, ClassInfo info) {
  return info.overrides_any<methods..., Virtual::getattribute>() ||
         overrides_any_in_instance<methods...>(module);
}
inline bool overrides(ModuleObject *module, Virtual method) {
  return overrides(module, class_info(Py_TYPE(module)), method);
}

// True for what the class Module has under the name now, whether its own or a patch.
bool is_of_module_class(PyObject *attribute, Virtual method);

// Declares the Python class whose attributes count as Module's own; called once, when
// modtree.core.module has defined it.
void seal_module_class(PyTypeObject *module_class);

// The class of the type's MRO that takes the place of torch's Module: the sealed one, or the native
// base.
PyTypeObject *module_class_of(PyTypeObject *type);

// Declares a second class whose attributes do not count as overrides (adoption.h).
void seal_adopted_class(PyTypeObject *module_class);

// The name without a module path, as `type(x).__name__` gives it.
const char *type_short_name(PyTypeObject *type);

}  // namespace modtree
