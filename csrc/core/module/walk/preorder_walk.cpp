// SPDX-License-Identifier: BSD-3-Clause
#include "module/walk/preorder_walk.h"

#include <utility>

#include "module/name_cache.h"
#include "python/call.h"
#include "python/prefetch.h"

namespace modtree {

namespace {

constexpr std::size_t kSmallTree = 1000;  // modules; smaller ones fit into the cache

}  // namespace

PreorderWalk::PreorderWalk(PyObject *prefix, bool remove_duplicate, bool named, PyObject *memo)
    : prefix_(py::reinterpret_borrow<py::object>(prefix)),
      remove_duplicate_(remove_duplicate),
      named_(named),
      may_be_plain_(remove_duplicate && !memo && PyUnicode_Check(prefix)) {
  if (memo) {
    seen_.adopt(memo);
  } else {
    seen_.reserve();
  }
}

int unpack_pair(PyObject *pair, py::object *first, py::object *second) {
  if (PyTuple_CheckExact(pair) && PyTuple_GET_SIZE(pair) == 2) {
    *first = py::reinterpret_borrow<py::object>(PyTuple_GET_ITEM(pair, 0));
    *second = py::reinterpret_borrow<py::object>(PyTuple_GET_ITEM(pair, 1));
    return 0;
  }
  const auto parts = py::reinterpret_steal<py::object>(
      PySequence_Fast(pair, "expected (name, value) pairs from an override"));
  if (!parts) {
    return -1;
  }
  const Py_ssize_t size = PySequence_Fast_GET_SIZE(parts.ptr());
  if (size != 2) {
    PyErr_Format(
        PyExc_ValueError,
        "%s values to unpack (expected 2, got %zd): an override must give (name, value) pairs",
        size > 2 ? "too many" : "not enough", size);
    return -1;
  }
  *first = py::reinterpret_borrow<py::object>(PySequence_Fast_GET_ITEM(parts.ptr(), 0));
  *second = py::reinterpret_borrow<py::object>(PySequence_Fast_GET_ITEM(parts.ptr(), 1));
  return 0;
}

int Visit::unpack_item() {
  const py::object pair = std::move(item);
  item = py::object();
  return unpack_pair(pair.ptr(), &name, &module);
}

int PreorderWalk::start_with_pairs(PyObject *iterable) {
  Frame frame;
  frame.items = py::reinterpret_steal<py::object>(PyObject_GetIter(iterable));
  if (!frame.items) {
    return -1;
  }
  stack_.push_back(std::move(frame));
  return 0;
}

int PreorderWalk::next(Visit *visit) {
  settle();
  if (signals_.is_spent() && signals_.look() < 0) {
    return -1;
  }
  if (root_) {
    const py::object root = std::move(root_);
    root_ = py::object();
    const int entered = enter(root.ptr(), class_info(Py_TYPE(root.ptr())), nullptr, false, visit);
    if (entered != 0) {
      return entered;
    }
  }
  while (true) {
    if (const int plain = next_plain()) {
      visit->module = entered_.module;
      visit->name = entered_.prefix;
      return plain;
    }
    if (signals_.step() < 0) {
      return -1;
    }
    if (entered_.module) {
      if (open_entered() < 0) {
        return -1;
      }
      continue;
    }
    if (stack_.empty()) {
      return 0;
    }
    bool found = false;
    const int result = stack_.back().items ? next_item(visit, &found) : next_child(visit, &found);
    if (result < 0) {
      return -1;
    }
    if (found) {
      return 1;
    }
  }
}

// True if neither its class nor the instance overrides anything that walks ask for. False also for
// values that are not modules and for classes that were not met before.
inline bool PreorderWalk::is_plain(PyObject *module) {
  return plain_class_.has(module) && !may_override(as_module(module));
}

namespace {

// Puts another object into its place. The old one may run code at its end, after the store.
inline void replace(py::object &owner, PyObject *object) {
  PyObject *old = owner.release().ptr();
  owner = py::reinterpret_steal<py::object>(Py_NewRef(object));
  Py_XDECREF(old);
}

}  // namespace

// For next_plain(), when the module that was entered last has a registry of children: opens it, or
// drops an empty one that nobody else has. False when that is not a plain dict.
[[gnu::noinline]] bool PreorderWalk::open_plain(PyObject *children) {
  if (!PyDict_CheckExact(children)) {
    return false;
  }
  if (PyDict_GET_SIZE(children) != 0) {
    return push(std::move(entered_), children) == 0;
  }
  // A module that was unpickled has it. Without it, later walks are quicker.
  if (is_sole_reference(children)) {
    as_module(entered_.module.ptr())->state.modules = nullptr;
    Py_DECREF(children);
  }
  return true;
}

// For next_plain(), when the innermost open module gave no child: leaves it, if that was the end of
// a plain dict. False when it was not, or when no module is open any more.
[[gnu::noinline]] bool PreorderWalk::leave_plain() {
  if (!stack_.back().children.at_end()) {
    return false;
  }
  const Place last = std::move(entered_);  // its key may run code at its end: after pop()
  pop();
  return !stack_.empty();
}

// Makes the module that was entered last a member of seen_.
inline void PreorderWalk::settle() {
  if (is_sibling_) {
    seen_.add_new(entered_.module.ptr());
    is_sibling_ = false;
  }
}

int PreorderWalk::next_plain() {
  settle();
  if (!may_be_plain_ || signals_.is_due()) {
    return 0;
  }
  if (PyObject *last = entered_.module.ptr()) {
    const ModuleState &state = as_module(last)->state;
    if (!is_compact(state) || (state.modules && !open_plain(state.modules))) {
      return 0;
    }
  }
  if (stack_.empty()) {
    return 0;
  }
  Py_ssize_t position;
  PyObject *key, *child, *far;
  bool only_here;  // nothing but its parent holds it, so it was not met before
  while (true) {
    while (!stack_.back().children.peek(&position, &key, &child, kAhead, &far)) {
      if (!leave_plain()) {
        return 0;
      }
    }
    if (!is_plain(child)) {
      return 0;
    }
    only_here = is_sole_reference(child);
    if (only_here || seen_.visit(child, true, true, false) != 0) {
      break;
    }
    stack_.back().children.pass(position);
    if (signals_.is_due()) {
      return 0;
    }
  }
  RegistryItems &children = stack_.back().children;
  children.pass(position);
  if (far) {
    prefetch_head(far, kModuleHead);
  }
  if (ahead_ != Slot::modules && seen_.size() > kSmallTree) {
    look_ahead(children, Py_TYPE(child));
  }
  if (only_here && !named_ && ahead_ == Slot::modules) {
    const Py_ssize_t siblings = children.ready_entries();
    seen_.make_room(static_cast<std::size_t>(siblings) + 1);
    signals_.spend(static_cast<long>(siblings));  // which next_sibling() does not count
    is_sibling_ = true;
  } else if (only_here) {
    seen_.add_new(child);
  }
  replace(entered_.module, child);
  replace(entered_.key, key);
  if (named_) {
    entered_.prefix = full_name(key);
    return entered_.prefix ? 1 : -1;
  }
  return 1;
}

// Visits a module natively: 1 and *visit set, 0 when it was seen before, -1 on error. `only_here`:
// nothing but a registry holds it.
int PreorderWalk::enter(PyObject *module, ClassInfo info, PyObject *key, bool only_here,
                        Visit *visit) {
  const int is_new = seen_.visit(module, info.identity_hash(), remove_duplicate_, only_here);
  may_be_plain_ = may_be_plain_ && seen_.holds_addresses();
  if (is_new <= 0) {
    return is_new;
  }
  if (!remove_duplicate_ && !on_path_.insert(module)) {
    return raise_cycle(module, key);
  }
  entered_.module = py::reinterpret_borrow<py::object>(module);
  entered_.key = py::reinterpret_borrow<py::object>(key);
  if (named_) {
    entered_.prefix = full_name(key);
    if (!entered_.prefix) {
      return -1;
    }
    visit->name = entered_.prefix;
  }
  visit->module = entered_.module;
  return 1;
}

// Opens the module that was entered last, if it has children now.
int PreorderWalk::open_entered() {
  Place place = std::move(entered_);
  if (!may_have_entries(as_module(place.module.ptr()), Slot::modules)) {
    if (!remove_duplicate_) {
      on_path_.erase(place.module.ptr());
    }
    return 0;
  }
  PyObject *children;
  py::object keep;
  if (registry(as_module(place.module.ptr()), Slot::modules, &children, &keep) < 0) {
    return -1;
  }
  return push(std::move(place), children);
}

int PreorderWalk::push(Place &&place, PyObject *children) {
  if (stack_.empty()) {
    stack_.reserve(8);
  }
  Frame &frame = stack_.emplace_back(std::move(place));
  return frame.children.start(children);
}

// Lets Python walk a subtree: an overridden named_modules(), or a child that is not one of our
// modules.
int PreorderWalk::enter_foreign(PyObject *module, PyObject *key) {
  const py::object child_prefix = named_ ? full_name(key) : [&] {
    const py::object path = path_of_top();
    return path ? py::reinterpret_steal<py::object>(make_name(NameForm::dotted, path.ptr(), key))
                : py::object();
  }();
  may_be_plain_ = false;  // from here on seen_ is a set that others see too
  PyObject *memo = child_prefix ? seen_.as_set() : nullptr;
  if (!memo) {
    return -1;
  }
  const auto keep_memo = py::reinterpret_borrow<py::object>(memo);
  const auto items = py::reinterpret_steal<py::object>(
      PyObject_CallMethodObjArgs(module, names.named_modules, memo, child_prefix.ptr(),
                                 remove_duplicate_ ? Py_True : Py_False, nullptr));
  return items ? start_with_pairs(items.ptr()) : -1;
}

// The parameters or buffers of a child that comes some places later, or null.
PyObject *PreorderWalk::registry_ahead(const RegistryItems &children, int places,
                                       PyTypeObject *type) const {
  PyObject *child = children.ahead(places);
  // Of the type of a module that is known to be one.
  if (!child || Py_TYPE(child) != type) {
    return nullptr;
  }
  const ModuleState &state = as_module(child)->state;
  return ahead_ == Slot::parameters ? state.parameters : state.buffers;
}

// Brings near what will be looked at soon, each thing some children after what leads to it: the
// registries of children that are near, the entries of these, and the values in them.
void PreorderWalk::look_ahead(const RegistryItems &children, PyTypeObject *type) const {
  if (PyObject *registry = registry_ahead(children, 5, type)) {
    prefetch(registry);
  }
  if (PyObject *registry = registry_ahead(children, 3, type)) {
    prefetch_entries(registry);
  }
  if (PyObject *registry = registry_ahead(children, 1, type)) {
    for (int place = 0; place < 4; ++place) {
      if (PyObject *value = dict_value_ahead(registry, 0, place)) {
        prefetch(value);
      }
    }
  }
}

int PreorderWalk::next_child(Visit *visit, bool *found) {
  RegistryItems &children = stack_.back().children;
  PyObject *key, *child;
  const int more = children.next(&key, &child);
  if (more <= 0) {
    if (more == 0) {
      pop();
    }
    return more;
  }
  if (child == Py_None) {
    return 0;
  }
  // torch makes the name of a child before it asks whether the child was seen, and in walks that
  // give no names too.
  if (!PyUnicode_Check(key) || !PyUnicode_Check(prefix_.ptr())) {
    return raise_bad_name(key);
  }
  // Of the registry's reference, before there is one of ours.
  const bool only_here = is_sole_reference(child);
  ClassInfo info;
  if (class_cache.find(Py_TYPE(child), &info) && info.identity_hash() &&
      !info.overrides_any<Virtual::named_modules, Virtual::getattribute>() &&
      !may_override(as_module(child)) && seen_.holds_addresses()) {
    // No user code runs before the child is owned.
    const int entered = enter(child, info, key, only_here, visit);
    *found = entered > 0;
    return entered;
  }
  const auto keep_key = py::reinterpret_borrow<py::object>(key);
  const auto keep_child = py::reinterpret_borrow<py::object>(child);
  info = class_info_of(child);
  if (!info.is_module() || overrides(as_module(child), info, Virtual::named_modules)) {
    return PyErr_Occurred() ? -1 : enter_foreign(child, key);
  }
  // What ran since then may have put it elsewhere.
  const int entered = enter(child, info, key, false, visit);
  *found = entered > 0;
  return entered;
}

int PreorderWalk::next_item(Visit *visit, bool *found) {
  const py::object items = stack_.back().items;
  visit->item = py::reinterpret_steal<py::object>(next_of_nested(items.ptr()));
  if (!visit->item) {
    if (PyErr_Occurred()) {
      return -1;
    }
    pop();
    return 0;
  }
  *found = true;
  return 0;
}

void PreorderWalk::pop() {
  // What the frame owns dies after the stack is in order: its end may run user code.
  Frame &frame = stack_.back();
  const Place place = std::move(frame.place);
  const py::object items = std::move(frame.items);
  const RegistryItems::Owned children = frame.children.take();
  stack_.pop_back();
  if (!remove_duplicate_ && place.module) {
    on_path_.erase(place.module.ptr());
  }
}

py::object PreorderWalk::full_name(PyObject *key) {
  if (!key) {
    return prefix_;
  }
  return py::reinterpret_steal<py::object>(
      name_caches().modules.get(position_++, stack_.back().place.prefix.ptr(), key));
}

// The dotted name of the innermost open module; null with an error set on failure.
py::object PreorderWalk::path_of_top() {
  py::object path = prefix_;
  for (const Frame &frame : stack_) {
    if (frame.place.key) {
      path = py::reinterpret_steal<py::object>(
          make_name(NameForm::dotted, path.ptr(), frame.place.key.ptr()));
      if (!path) {
        return path;
      }
    }
  }
  return path;
}

// TypeError for a key or a prefix that is not a str.
int PreorderWalk::raise_bad_name(PyObject *key) {
  const auto keep_key = py::reinterpret_borrow<py::object>(key);
  const py::object path = path_of_top();
  if (path) {
    py::reinterpret_steal<py::object>(make_name(NameForm::dotted, path.ptr(), key));
  }
  return -1;
}

int PreorderWalk::raise_cycle(PyObject *module, PyObject *key) {
  const auto keep_key = py::reinterpret_borrow<py::object>(key);
  const py::object parent = path_of_top();
  const auto path =
      parent ? py::reinterpret_steal<py::object>(make_name(NameForm::dotted, parent.ptr(), key))
             : py::object();
  if (!path) {
    return -1;
  }
  py::object first = prefix_;
  for (const Frame &frame : stack_) {
    if (frame.place.key) {
      first = py::reinterpret_steal<py::object>(
          make_name(NameForm::dotted, first.ptr(), frame.place.key.ptr()));
    }
    if (!first) {
      return -1;
    }
    if (frame.place.module.ptr() == module) {
      break;
    }
  }
  PyErr_Format(PyExc_RecursionError,
               "the module tree contains itself: %R is the module at %R again, so there is no end "
               "of names without remove_duplicate",
               path.ptr(), first.ptr());
  return -1;
}

int PreorderWalk::Place::traverse(visitproc visit, void *arg) const {
  Py_VISIT(module.ptr());
  Py_VISIT(key.ptr());
  Py_VISIT(prefix.ptr());
  return 0;
}

int PreorderWalk::traverse(visitproc visit, void *arg) const {
  for (const Frame &frame : stack_) {
    if (const int result = frame.place.traverse(visit, arg)) {
      return result;
    }
    Py_VISIT(frame.items.ptr());
    if (const int result = frame.children.traverse(visit, arg)) {
      return result;
    }
  }
  Py_VISIT(root_.ptr());
  Py_VISIT(prefix_.ptr());
  if (const int result = entered_.traverse(visit, arg)) {
    return result;
  }
  return seen_.traverse(visit, arg);
}

}  // namespace modtree
