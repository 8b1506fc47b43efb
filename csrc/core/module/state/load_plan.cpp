// SPDX-License-Identifier: BSD-3-Clause
#include "module/state/load_plan.h"

#include <cstring>

#include "family/family.h"
#include "module/class_info.h"
#include "module/name_cache.h"
#include "module/state/saved_names.h"
#include "module/state/state_path.h"
#include "module/state/unexpected_keys.h"
#include "module/walk/look_ahead.h"
#include "python/owned.h"
#include "python/prefetch.h"
#include "python/signals.h"

namespace modtree {

namespace {

// Looks keys up in a dict that mostly has them in the order of the questions: then the next entry
// is the answer, without hashing.
class KeyCursor {
public:
  explicit KeyCursor(PyObject *dict) : dict_(dict) {}

  // 1 and *value set, 0 when absent, -1 on error.
  int find(PyObject *key, py::object *value) {
    PyObject *next_key, *next_value;
    Py_ssize_t at = at_;
    if (dict_next(dict_, &at, &next_key, &next_value) &&
        (next_key == key || is_equal(next_key, key))) {
      at_ = at;
      ++found_;
      *value = py::reinterpret_borrow<py::object>(next_value);
      return 1;
    }
    next_value = dict_get(dict_, key);
    if (!next_value) {
      return PyErr_Occurred() ? -1 : 0;
    }
    ++found_;
    *value = py::reinterpret_borrow<py::object>(next_value);
    return 1;
  }

  // Brings near what will be asked of the next entries, if they are tensors of that library. Runs
  // no user code.
  void look_ahead(TensorFamily *family) const {
    if (PyObject *value = dict_value_ahead(dict_, at_, 12)) {
      prefetch(value);
    }
    if (PyObject *value = dict_value_ahead(dict_, at_, 6)) {
      family->prefetch(value);
    }
  }

  // True if every entry was found, provided that no key was asked for twice.
  bool complete() const { return found_ == PyDict_GET_SIZE(dict_); }

private:
  static bool is_equal(PyObject *a, PyObject *b) {
    return PyUnicode_CheckExact(a) && PyUnicode_CheckExact(b) &&
           PyUnicode_GET_LENGTH(a) == PyUnicode_GET_LENGTH(b) &&
           PyUnicode_KIND(a) == PyUnicode_KIND(b) &&
           std::memcmp(PyUnicode_DATA(a), PyUnicode_DATA(b),
                       static_cast<std::size_t>(PyUnicode_GET_LENGTH(a)) *
                           static_cast<std::size_t>(PyUnicode_KIND(a))) == 0;
  }

  PyObject *dict_;
  Py_ssize_t at_ = 0;
  Py_ssize_t found_ = 0;
};

// Tells names without a dot, and remembers a few: the modules of a tree repeat them.
class DotlessNames {
public:
  bool has(PyObject *name) {
    const auto bits = reinterpret_cast<std::uintptr_t>(name);
    Owned &known = known_[(bits >> 4 ^ bits >> 9) % kRemembered];
    if (known.ptr() == name) {
      return true;
    }
    if (has_dot(name)) {
      return false;
    }
    if (PyUnicode_CheckExact(name)) {
      known = borrow(name);
    }
    return true;
  }

private:
  static constexpr std::size_t kRemembered = 16;

  static bool has_dot(PyObject *name) {
    if (PyUnicode_IS_COMPACT_ASCII(name)) {
      return std::memchr(PyUnicode_1BYTE_DATA(name), '.',
                         static_cast<std::size_t>(PyUnicode_GET_LENGTH(name))) != nullptr;
    }
    return PyUnicode_FindChar(name, '.', 0, PyUnicode_GET_LENGTH(name), 1) >= 0;
  }

  Owned known_[kRemembered];
};

// 1 if a dict has the extra state of the module with that prefix, -1 on error.
int finds_extra_state(PyObject *prefix, PyObject *dict) {
  const Owned key = steal(extra_state_key(prefix));
  return key ? PyDict_Contains(dict, key.ptr()) : -1;
}

class Planner {
public:
  Planner(LoadRegion &region, const LoadPlanOptions &options, LoadPlan *plan)
      : region_(region),
        options_(options),
        plan_(*plan),
        cursor_(region.dict.ptr()) {}

  int run(PyObject *root, bool root_is_done) {
    path_.push_root(root, plan_.prefix.ptr());
    // As many as there are at most: a vector that grows would copy them, on fresh pages of memory.
    plan_.steps.reserve(static_cast<std::size_t>(PyDict_GET_SIZE(region_.dict.ptr())));
    if (enter(0, root_is_done) < 0) {
      return -1;
    }
    while (!path_.empty()) {
      PyObject *name, *child;
      const int more = signals_.step() < 0 ? -1 : path_.top().children.next(&name, &child);
      if (more < 0) {
        return -1;
      }
      if (more == 0) {
        if (leave(root_is_done && path_.size() == 1) < 0) {
          return -1;
        }
        path_.pop();
      } else if (child != Py_None) {
        if (TensorFamily *family = families_.last(); family && family->is_read_afar()) {
          const RegistryItems &children = path_.top().children;
          ahead_.from([&](int places) { return children.ahead(places - 1); }, Py_TYPE(child),
                      family);
        }
        const Owned held_name = borrow(name), held_child = borrow(child);
        if (visit(name, child) < 0) {
          return -1;
        }
      }
    }
    const bool all_found =
        names_are_plain_ && !plan_.has_python && !root_is_done && cursor_.complete();
    return all_found ? 0 : find_unexpected_keys(region_, &plan_);
  }

private:
  std::uint32_t note_visit(PyObject *module, PyObject *name, std::uint32_t parent, bool judged) {
    const bool below =
        name && (plan_.visits[parent].below_extra_state || plan_.visits[parent].has_extra_state);
    plan_.visits.push_back(LoadPlan::Visit{Py_NewRef(module), Py_XNewRef(name), parent,
                                           static_cast<std::uint32_t>(plan_.steps.size()), judged,
                                           below, false, KeyIndex::kNone});
    plan_.may_change = plan_.may_change || below;
    return static_cast<std::uint32_t>(plan_.visits.size() - 1);
  }

  int visit(PyObject *name, PyObject *child) {
    if (!PyUnicode_Check(name)) {
      PyErr_Format(PyExc_TypeError, "names in a module's registries must be str, got %.200s: %R",
                   Py_TYPE(name)->tp_name, name);
      return -1;
    }
    const std::uint32_t parent = path_.top().record;
    const bool has_python = loads_through_python(child);
    Owned prefix;
    int is_step = 0;
    if (has_python || (options_.split && has_extra_state_setter(child))) {
      prefix = steal(path_.child_prefix(name));
      is_step = !prefix ? -1 : has_python ? 1 : finds_extra_state(prefix.ptr(), region_.dict.ptr());
    }
    if (is_step < 0) {
      return -1;
    }
    if (is_step) {
      const std::uint32_t number = note_visit(child, name, parent, false);
      plan_.has_python = true;
      plan_.steps.push_back(LoadPlan::Step{LoadPlan::Kind::python, number});
      return 0;
    }
    if (may_have_entries(as_module(child), Slot::modules) &&
        path_.check_cycle(child, name, "load_state_dict") < 0) {
      return -1;
    }
    names_are_plain_ = names_are_plain_ && dotless_.has(name);
    path_.push(child, name);
    return enter(parent, false);
  }

  int enter(std::uint32_t parent, bool is_done) {
    StateFrame &frame = path_.top();
    frame.record = note_visit(frame.module, frame.name, parent, !is_done);
    if (!is_done && (check_metadata() < 0 || plan_own() < 0)) {
      return -1;
    }
    PyObject *module = path_.top().module, *children;
    if (!class_info_of(module).is_module()) {
      // Something else with the attributes of a module, put into `_modules` directly.
      const Owned found = steal(PyObject_GetAttr(module, names.modules_));
      return found ? path_.top().children.start(found.ptr()) : -1;
    }
    Owned keep;
    const int has_children = registry(as_module(module), Slot::modules, &children, &keep);
    return has_children <= 0 ? has_children : path_.top().children.start(children);
  }

  int leave(bool is_done) {
    if (is_done) {
      return 0;
    }
    PyObject *hooks;
    Owned keep;
    const int found =
        registry(as_module(path_.top().module), Slot::load_state_dict_post_hooks, &hooks, &keep);
    if (found < 0 || !may_give_entries(hooks)) {
      return found < 0 ? -1 : 0;
    }
    plan_.has_post_hooks = true;
    plan_.steps.push_back(new_step(LoadPlan::Kind::post_hooks));
    return 0;
  }

  int check_metadata() {
    if (!options_.bad_metadata) {
      return 0;
    }
    PyObject *prefix = path_.prefix();
    const Owned key = prefix ? steal(metadata_key(prefix)) : Owned();
    const int bad = key ? PySet_Contains(options_.bad_metadata, key.ptr()) : -1;
    if (bad > 0) {
      PyErr_Format(PyExc_TypeError,
                   "the metadata of module '%U' (state_dict._metadata[%R]) must be a mapping such "
                   "as {'version': 1}",
                   key.ptr(), key.ptr());
    }
    return bad == 0 ? 0 : -1;
  }

  int plan_own() {
    ModuleObject *module = as_module(path_.top().module);
    const int has_parameters = plan_parameters(module);
    if (has_parameters < 0 || plan_buffers(module, has_parameters > 0) < 0) {
      return -1;
    }
    return has_extra_state_setter(path_.top().module) ? plan_extra_state() : 0;
  }

  // 1, 0 when there is none, -1 on error.
  int plan_parameters(ModuleObject *module) {
    PyObject *parameters, *name, *tensor;
    Owned keep;
    const int found = registry(module, Slot::parameters, &parameters, &keep);
    if (found <= 0) {
      return found;
    }
    const Owned held_parameters = borrow(parameters);
    const bool has_parameters = may_give_entries(parameters);
    RegistryItems items;
    if (items.start(parameters) < 0) {
      return -1;
    }
    const bool has_both = has_parameters && may_have_entries(module, Slot::buffers);
    int more;
    while ((more = items.next(&name, &tensor)) > 0) {
      if (tensor == Py_None) {
        continue;
      }
      Owned held_name = borrow(name), held_tensor = borrow(tensor), hidden_by;
      if (has_both && find_saved_buffer(module, name, &hidden_by) < 0) {
        return -1;
      }
      if (hidden_by) {
        held_tensor = std::move(hidden_by);
      }
      if (plan_entry(std::move(held_name), std::move(held_tensor), true) < 0) {
        return -1;
      }
    }
    return more < 0 ? -1 : has_parameters;
  }

  int plan_buffers(ModuleObject *module, bool has_parameters) {
    PyObject *buffers, *name, *tensor;
    Owned keep;
    const int found = registry(module, Slot::buffers, &buffers, &keep);
    if (found <= 0) {
      return found;
    }
    RegistryItems items;
    if (items.start(buffers) < 0) {
      return -1;
    }
    int more;
    while ((more = items.next(&name, &tensor)) > 0) {
      Owned held_name = borrow(name), held_tensor = borrow(tensor);
      // Of a buffer that is None too: without the set of these names, a load is an error.
      const int left_out = is_non_persistent(module, name);
      if (left_out < 0) {
        return -1;
      }
      if (left_out || tensor == Py_None) {
        continue;
      }
      const int twice = has_parameters ? has_parameter(module, name) : 0;
      if (twice < 0 ||
          (!twice && plan_entry(std::move(held_name), std::move(held_tensor), false) < 0)) {
        return -1;
      }
    }
    return more;
  }

  int plan_entry(Owned name, Owned tensor, bool in_parameters) {
    PyObject *prefix = signals_.step() < 0 ? nullptr : path_.prefix();
    Owned key = prefix ? steal(state_key(prefix, name.ptr())) : Owned();
    Owned source, message;
    const int found = key ? cursor_.find(key.ptr(), &source) : -1;
    if (found < 0) {
      return -1;
    }
    names_are_plain_ = names_are_plain_ && dotless_.has(name.ptr());
    if (found == 0) {
      report(plan_.missing, std::move(key));
      return 0;
    }
    LoadEntry entry{path_.top().module, name.ptr(), key.ptr(), tensor.ptr(), nullptr};
    if (families_.find(tensor.ptr(), &entry.family) < 0) {
      return -1;
    }
    if (plan_.steps.size() > kSmallPlan && entry.family && entry.family->is_read_afar()) {
      cursor_.look_ahead(entry.family);
    }
    // Nothing more is to be asked of most.
    const bool is_plain_copy = !options_.mode.assign && !options_.mode.swap && entry.family &&
                               entry.family->is_copied_plainly(tensor.ptr(), source.ptr());
    int good = is_plain_copy ? 1 : check_entry(entry, options_.mode, &source, &message);
    const bool may_be_tried = good > 0 && !is_plain_copy;
    if (const int at_once = may_be_tried ? is_tried(entry, source.ptr(), in_parameters) : 0) {
      good = at_once < 0 ? -1 : store_at_once(entry, source.ptr(), &message);
      if (good > 0) {
        return 0;
      }
    }
    if (good < 0) {
      return -1;
    }
    if (good == 0) {
      report(plan_.errors, std::move(message));
      return 0;
    }
    if (good > 1) {
      plan_.meta_keys.push_back(key);
    }
    LoadPlan::Step &step = plan_.steps.emplace_back(new_step(LoadPlan::Kind::entry));
    step.name = name.release().ptr();
    step.tensor = tensor.release().ptr();
    step.source = source.release().ptr();
    step.family = entry.family;
    return 0;
  }

  // Of the top frame's module.
  LoadPlan::Step new_step(LoadPlan::Kind kind) { return LoadPlan::Step{kind, path_.top().record}; }

  // Notes what is wrong with an entry of the top frame's module.
  void report(std::vector<LoadPlan::Report> &reports, Owned text) {
    const std::uint32_t visit = path_.top().record;
    reports.push_back(LoadPlan::Report{plan_.steps.size(), visit, std::move(text),
                                       plan_.visits[visit].below_extra_state});
  }

  // 1 if storing the entry is tried while the load is planned: it mostly fails, and only the
  // attempt tells how. -1 on error.
  int is_tried(const LoadEntry &entry, PyObject *source, bool in_parameters) const {
    if (!options_.mode.assign) {
      // A copy into a tensor without a shape: it cannot damage any values.
      return entry.family->is_uninitialized(entry.tensor);
    }
    const int swap = in_parameters ? swaps(entry, options_.mode) : 1;
    return swap != 0 ? (swap < 0 ? -1 : 0) : refuses_assignment(entry, source);
  }

  // 1 if the module will refuse what is assigned to an entry of its parameters: a tensor that
  // replaces another one, where neither is a Parameter. -1 on error.
  static int refuses_assignment(const LoadEntry &entry, PyObject *source) {
    const int has_parameter = entry.family->may_be_parameter(entry.tensor);
    if (has_parameter || overrides(as_module(entry.module), Virtual::setattr)) {
      return has_parameter < 0 || PyErr_Occurred() ? -1 : 0;
    }
    TensorFamily *family;
    const int is_tensor = family_of(source, &family);
    const int gets_parameter = is_tensor > 0 ? family->is_parameter(source) : is_tensor;
    return gets_parameter < 0 ? -1 : !gets_parameter;
  }

  int store_at_once(const LoadEntry &entry, PyObject *source, Owned *message) {
    NoGradScopes no_grad;
    const int stored =
        no_grad.enter(entry.family) < 0 ? -1 : store_entry(entry, options_.mode, source, message);
    return no_grad.exit() < 0 ? -1 : stored;
  }

  int plan_extra_state() {
    names_are_plain_ = false;  // a tensor of the same name would share the key
    PyObject *prefix = path_.prefix();
    Owned key = prefix ? steal(extra_state_key(prefix)) : Owned();
    Owned value;
    const int found = key ? cursor_.find(key.ptr(), &value) : -1;
    if (found < 0) {
      return -1;
    }
    if (found == 0) {
      report(plan_.missing, std::move(key));
      return 0;
    }
    plan_.visits[path_.top().record].has_extra_state = true;
    plan_.steps.emplace_back(new_step(LoadPlan::Kind::extra_state)).source = value.release().ptr();
    return 0;
  }

  static constexpr std::size_t kSmallPlan = 1024;  // steps; less than that is in the caches

  LoadRegion &region_;
  const LoadPlanOptions &options_;
  LoadPlan &plan_;
  KeyCursor cursor_;
  FamilyMemo families_;
  DotlessNames dotless_;
  StatePath path_;
  LookAhead<ReadsOf::shape> ahead_;
  SignalCheck signals_;
  // No name has a dot: then different modules ask for different keys.
  bool names_are_plain_ = true;
};

}  // namespace

LoadPlan::~LoadPlan() {
  for (const Step &step : steps) {
    Py_XDECREF(step.name);
    Py_XDECREF(step.tensor);
    Py_XDECREF(step.source);
  }
  for (const Visit &visit : visits) {
    Py_DECREF(visit.module);
    Py_XDECREF(visit.name);
  }
}

Owned LoadPlan::prefix_of(std::uint32_t visit) const {
  std::vector<PyObject *> names;
  for (; visits[visit].name; visit = visits[visit].parent) {
    names.push_back(visits[visit].name);
  }
  Owned text = prefix;
  while (text && !names.empty()) {
    text = steal(make_name(NameForm::prefix, text.ptr(), names.back()));
    names.pop_back();
  }
  return text;
}

Owned LoadPlan::key_of(const Step &entry) const {
  const Owned owner = prefix_of(entry.visit);
  return owner ? steal(make_name(NameForm::joined, owner.ptr(), entry.name)) : Owned();
}

bool loads_through_python(PyObject *module) {
  const ClassInfo info = class_info_of(module);
  if (!info.is_module() || overrides(as_module(module), info, Virtual::load_from_state_dict)) {
    return true;
  }
  return may_have_entries(as_module(module), Slot::load_state_dict_pre_hooks) ||
         has_odd_table(as_module(module));
}

int sets_extra_state(PyObject *module, PyObject *prefix, PyObject *dict) {
  return loads_through_python(module) || !has_extra_state_setter(module)
             ? 0
             : finds_extra_state(prefix, dict);
}

int build_load_plan(LoadRegion &region, PyObject *root, bool root_is_done,
                    const LoadPlanOptions &options, LoadPlan *plan) {
  return Planner(region, options, plan).run(root, root_is_done);
}

}  // namespace modtree
