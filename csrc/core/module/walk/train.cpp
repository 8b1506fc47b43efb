// SPDX-License-Identifier: BSD-3-Clause
#include "module/methods.h"

#include <cstring>
#include <vector>

#include "module/attributes/assignment.h"
#include "module/class_info.h"
#include "module/walk/last_roots.h"
#include "module/walk/pointer_set.h"
#include "module/walk/tree_visit.h"
#include "python/arguments.h"
#include "python/dict_lookup.h"
#include "python/prefetch.h"
#include "python/signals.h"
#include "python/slot_guard.h"
#include "python/type_text.h"

namespace modtree {

namespace {

// --- modules whose mode is written in place

// True if the class and the object have only Module's own methods for setting the mode of a module
// below the root of the walk. A class that was not met before counts as one that does not.
bool has_plain_class(PyObject *module) {
  ClassInfo info;
  return class_cache.find(Py_TYPE(module), &info) && info.identity_hash() &&
         !info.overrides_any<Virtual::train, Virtual::children, Virtual::named_children,
                             Virtual::setattr, Virtual::training, Virtual::getattribute>();
}

// The same for the root, whose own train() has called us.
bool has_plain_class_as_root(PyObject *module) {
  return !class_info(Py_TYPE(module))
              .overrides_any<Virtual::children, Virtual::named_children, Virtual::setattr,
                             Virtual::training, Virtual::getattribute>();
}

// True if the four flags are those of an ordinary module after Module.__init__ that is known to
// have no entry `training` in its registries. Compared as one word.
bool has_plain_flags(const ModuleState &state) {
  static_assert(offsetof(ModuleState, initialized) == 0 && offsetof(ModuleState, exposed) == 1 &&
                offsetof(ModuleState, instance_overrides) == 2 &&
                offsetof(ModuleState, lacks_training) == 3);
  constexpr bool kPlain[] = {true, false, false, true};
  return std::memcmp(&state, kPlain, sizeof kPlain) == 0;
}

// True if setting the mode of a module with a plain class only replaces one bool by another.
bool has_plain_state(PyObject *module) {
  ModuleState &state = as_module(module)->state;
  const auto is_simple = [&] { return state.initialized && !may_override(as_module(module)); };
  // Asked again: without the GIL others may change the module while its registries are looked at.
  return (has_plain_flags(state) || (is_simple() && note_lacks_training(state) && is_simple())) &&
         (state.training == Py_True || state.training == Py_False);
}

// The registry of children of a module with a plain state; null when it is empty.
PyObject *plain_children(PyObject *module) {
  PyObject *children = as_module(module)->state.modules;
  return children && PyDict_GET_SIZE(children) != 0 ? children : nullptr;
}

// Of a module with a plain state.
void set_mode(PyObject *module, PyObject *mode) {
  PyObject *&training = as_module(module)->state.training;
  if (training != mode) {
    Py_SETREF(training, Py_NewRef(mode));  // a bool: without the GIL these have no count
  }
}

// Where the modules of a walk were, so that the next walk of the same tree prefetches their memory.
// Below one another, each is found by reads that wait for one another. These are the modules with
// children, in the order of a walk. Their addresses are compared and prefetched and never read
// from: it does not matter what has become of them.
class PrefetchTrail {
public:
  // The trail of the last walk from this root, where it is among the last few roots; one to be made
  // anew otherwise.
  static PrefetchTrail &of(PyObject *root) {
    static LastRoots<PrefetchTrail> trails;
    PrefetchTrail *known = trails.find(root);
    PrefetchTrail &trail = known ? *known : trails.remember(root);
    trail.next_ = 0;
    return trail;
  }

  // The walk comes to a module of which `children` is the registry.
  void pass(PyObject *module, PyObject *children) {
    if (next_ + kAhead < places_.size()) {
      const Place &ahead = places_[next_ + kAhead];
      prefetch_head(ahead.module, kModuleHead);
      prefetch_head(ahead.children, sizeof(PyDictObject));
      prefetch_head(ahead.table, kTableHead);
    }
    if (next_ == places_.size()) {
      if (next_ == kLongest) {
        return;
      }
      places_.push_back({});
    }
    // Written only where it is new: the next reads would wait for the write.
    Place &here = places_[next_++];
    if (here.module != module || here.children != children) {
      here = {module, children, reinterpret_cast<PyDictObject *>(children)->ma_keys};
    }
  }

private:
  struct Place {
    const void *module, *children, *table;
  };
  static constexpr std::size_t kAhead = 6;
  static constexpr std::size_t kLongest = 4096;
  static constexpr std::size_t kTableHead = 64;  // as far as the first entry of a small table

  std::size_t next_ = 0;
  std::vector<Place> places_;
};

// Sets the modes of a tree as long as every module is plain. Nothing there runs user code, so
// nothing is owned: all pointers are into a tree that does not change.
class PlainWalk {
public:
  explicit PlainWalk(PyObject *mode) : mode_(mode) {}

  // `root` is plain. True: the whole tree is done. False: the walk that asks must go on at path().
  bool run(PyObject *root) {
    set_mode(root, mode_);
    // Not on the path but in registers: a chain is as slow as the longest row of reads that wait
    // for each other, and what has just been written would be one of them.
    TreePlace here{root, nullptr, plain_children(root), 0};
    TreePlace below{};
    if (!here.children) {
      return true;
    }
    PrefetchTrail &trail = PrefetchTrail::of(root);
    long left = kStepsAtOnce;
    while (true) {
      const Reached reached = visit_children(here, below);
      if (reached == Reached::end) {
        if (!go_up(&here)) {
          return true;
        }
        continue;
      }
      path_.push_back(here);
      if (reached == Reached::not_plain) {
        return false;
      }
      here = below;
      trail.pass(here.module, here.children);
      left -= static_cast<long>(PyDict_GET_SIZE(here.children));
      if (left < 0) {
        path_.push_back(here);
        if (must_end(kStepsAtOnce - left)) {
          return false;
        }
        path_.pop_back();
        left = kStepsAtOnce;
      }
    }
  }

  const std::vector<TreePlace> &path() const { return path_; }

private:
  enum class Reached { end, module_with_children, not_plain };

  static constexpr Py_ssize_t kMostCompared = 64;
  static constexpr int kAhead = 16;
  static constexpr long kStepsAtOnce = 4096;
  // A position beyond every entry. On the way back no dict is read only to find that it has ended.
  static constexpr Py_ssize_t kAtEnd = PY_SSIZE_T_MAX / 2;

  // Goes on with the children of a module to their end, until one has children itself, which is
  // `below` then, or until one is not plain, which counts as not visited.
  Reached visit_children(TreePlace &here, TreePlace &below) {
    const UnchangedDict siblings(here.children);
    PyObject *key, *child;
    for (Py_ssize_t before = here.position, next = before; siblings.next(&next, &key, &child);
         before = next) {
      if (PyObject *far = siblings.ahead(next, kAhead)) {
        prefetch_head(far, kModuleHead);
      }
      if (child == Py_None) {
        continue;
      }
      // No code runs in this walk that could change a class.
      if (Py_TYPE(child) != plain_type_) {
        if (!has_plain_class(child)) {
          here.position = before;
          return Reached::not_plain;
        }
        plain_type_ = Py_TYPE(child);
      }
      const ModuleState &state = as_module(child)->state;
      if (state.training == mode_ && has_plain_flags(state) && !state.modules) {
        continue;  // as most often
      }
      if (!has_plain_state(child)) {
        here.position = before;
        return Reached::not_plain;
      }
      set_mode(child, mode_);
      PyObject *children = plain_children(child);
      // One without children may come twice, which changes nothing.
      if (!children) {
        continue;
      }
      if (!is_sole_reference(child)) {
        if (before > kMostCompared) {
          here.position = before;
          return Reached::not_plain;
        }
        if (is_among(child, siblings, before)) {
          continue;
        }
      }
      here.position = siblings.ends_at(next) ? kAtEnd : next;
      below = {child, key, children, 0};
      return Reached::module_with_children;
    }
    return Reached::end;
  }

  // To the next module above that has children left. False when there is none.
  bool go_up(TreePlace *here) {
    while (!path_.empty()) {
      *here = path_.back();
      path_.pop_back();
      if (here->position != kAtEnd) {
        return true;
      }
    }
    return false;
  }

  // True if the tree is so large that signals have to be checked, or contains itself. Asked only
  // now and then, so that the way from one module to the next stays short.
  [[gnu::noinline]] bool must_end(long steps) {
    steps_ += steps;
    if (steps_ > kStepsWithoutReferences) {
      return true;
    }
    if (path_.size() < next_check_) {
      return false;
    }
    // What goes down for ever repeats itself.
    next_check_ = 2 * path_.size();
    PointerSet met;
    for (const TreePlace &place : path_) {
      if (!met.insert(place.module)) {
        return true;
      }
    }
    return false;
  }

  // True if the child is among those before `position`.
  static bool is_among(PyObject *child, const UnchangedDict &siblings, Py_ssize_t position) {
    PyObject *key, *sibling;
    Py_ssize_t place = 0;
    while (siblings.next(&place, &key, &sibling) && place <= position) {
      if (sibling == child) {
        return true;
      }
    }
    return false;
  }

  PyObject *mode_;
  PyTypeObject *plain_type_ = nullptr;  // of the last child
  std::vector<TreePlace> path_;         // to the module whose children are visited, without it
  std::size_t next_check_ = 2;          // of the path, at this length
  long steps_ = 0;                      // that must_end() knows of
};

// --- any tree

struct TrainVisitor {
  static constexpr Virtual kMethod = Virtual::train;

  PyObject *mode;

  int before_user_code() { return 0; }

  bool visit_leaf(PyObject *child) {
    if (!has_plain_class(child) || !has_plain_state(child) || plain_children(child)) {
      return false;
    }
    set_mode(child, mode);
    return true;
  }

  int enter(PyObject *module_obj, ClassInfo info) {
    ModuleObject *module = as_module(module_obj);
    if (info.overrides_any<Virtual::setattr, Virtual::training>()) {
      return PyObject_SetAttr(module_obj, names.training, mode) < 0 ? -1 : 0;
    }
    // The registries first: comparing names may run code that looks at the module's __dict__.
    if (is_registered(module) || !module->state.initialized || module->state.exposed) {
      return assign(module, names.training, mode);
    }
    if (module->state.training != mode) {
      release_later(exchange_cell(&module->state.training, Py_NewRef(mode)));
    }
    return 0;
  }

  // True if somebody has put a parameter, buffer or child named `training` into the module.
  static bool is_registered(ModuleObject *module) {
    return has_training<Slot::parameters>(module) || has_training<Slot::buffers>(module) ||
           has_training<Slot::modules>(module);
  }

  // The mapping is not read before its turn: comparing names may run code that replaces it.
  template <Slot slot>
  static bool has_training(ModuleObject *module) {
    PyObject *mapping = peek(module, slot);
    return mapping && is_plain_table(mapping) && !dict_lacks_str(mapping, names.training) &&
           dict_contains_str(mapping, names.training) != 0;  // assign() meets the error
  }

  int leave(PyObject *) { return 0; }

  int call_override(PyObject *child) {
    PyObject *result = PyObject_CallMethodOneArg(child, names.train, mode);
    Py_XDECREF(result);
    return result ? 0 : -1;
  }
};

int set_modes(PyObject *root, PyObject *mode) {
  TrainVisitor visitor{mode};
  TreeVisit<TrainVisitor> walk(visitor);
  if (!has_plain_class_as_root(root) || !has_plain_state(root)) {
    return walk.run(root);
  }
  PlainWalk plain(mode);
  return plain.run(root) ? 0 : walk.go_on(plain.path());
}

PyObject *train(PyObject *self_obj, PyObject *mode) {
  const int done = slot_guard(-1, [&] { return set_modes(self_obj, mode); });
  return done < 0 ? nullptr : Py_NewRef(self_obj);
}

}  // namespace

PyObject *module_train(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                       PyObject *keywords) {
  static const ArgumentNames kNames = {"train", {"mode"}};
  PyObject *values[1] = {};
  if (parse_arguments(kNames, args, count, keywords, values) < 0) {
    return nullptr;
  }
  PyObject *mode = values[0] ? values[0] : Py_True;
  if (!PyBool_Check(mode)) {
    const std::string type = type_text(mode);
    PyErr_Format(PyExc_ValueError,
                 "training mode is expected to be boolean (True or False), got %R of type %.200s",
                 mode, type.c_str());
    return nullptr;
  }
  return train(self_obj, mode);
}

PyObject *module_eval(PyObject *self_obj, PyObject *) {
  if (overrides(as_module(self_obj), Virtual::train)) {
    return PyErr_Occurred() ? nullptr : PyObject_CallMethodOneArg(self_obj, names.train, Py_False);
  }
  return train(self_obj, Py_False);
}

}  // namespace modtree
