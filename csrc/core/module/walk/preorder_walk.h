// SPDX-License-Identifier: BSD-3-Clause
// Pre-order walk over the modules of a tree, one module at a time and without recursion.
#pragma once

#include <utility>
#include <vector>

#include "module/walk/plain_class.h"
#include "module/walk/seen.h"
#include "python/prefetch.h"
#include "python/signals.h"

namespace modtree {

// What the walk has reached: a module with its name (null when the walk makes no names), or an item
// that an override gave, as it came.
struct Visit {
  py::object name;
  py::object module;
  py::object item;

  // True if the module was reached natively; then it is one of ours.
  bool is_native() const { return !item; }
  // Makes sure that `name` and `module` are there; -1 when the item is not a pair.
  int unpack() { return item ? unpack_item() : 0; }

private:
  int unpack_item();
};

// Two owned values out of a pair given by user code, with Python's errors of unpacking. -1 on
// error.
int unpack_pair(PyObject *pair, py::object *first, py::object *second);

class PreorderWalk {
public:
  // `memo` (may be null) is the caller's set. Names are made only when `named`.
  PreorderWalk(PyObject *prefix, bool remove_duplicate, bool named, PyObject *memo);
  PreorderWalk(const PreorderWalk &) = delete;
  PreorderWalk &operator=(const PreorderWalk &) = delete;

  // Brings the parameters or buffers of the modules near as well: the caller looks at them.
  void read_ahead(Slot registry) { ahead_ = registry; }

  // Starts at a module, natively.
  void start(PyObject *root) { root_ = py::reinterpret_borrow<py::object>(root); }
  // Starts with (name, module) pairs from elsewhere: the result of an overridden named_modules().
  int start_with_pairs(PyObject *iterable);

  // 1 and *visit set, 0 at the end, -1 on error. May run user code (overrides, __eq__ and __hash__
  // of modules).
  int next(Visit *visit);

  // next() for the most common case: a module that overrides nothing. 1: entered_module() and
  // entered_name() have it; 0: not so, or signals are due, and next() goes on from there; -1 on
  // error. May be tried first at any time.
  int next_plain();

  // The next module for the most common case of a walk without names: after a plain module without
  // children comes another one in the same dict. New reference; null: not so, and next() goes on
  // from there. Runs no user code.
  PyObject *next_sibling() noexcept;

  PyObject *entered_module() const { return entered_.module.ptr(); }
  PyObject *entered_name() const { return entered_.prefix.ptr(); }

  int traverse(visitproc visit, void *arg) const;

private:
  static constexpr int kAhead = 16;  // children that are asked for before their turn

  // A module with its place in the tree.
  struct Place {
    py::object module;
    py::object key;     // the name under which the parent holds the module
    py::object prefix;  // full name; null when not made

    int traverse(visitproc visit, void *arg) const;
  };
  // One open module: its children are being visited. Or, with `items`, one subtree that Python
  // walks.
  struct Frame {
    Frame() = default;
    explicit Frame(Place &&at) : place(std::move(at)) {}

    Place place;
    RegistryItems children;
    py::object items;
  };

  bool is_of_known_class(PyObject *child) noexcept;
  void settle();
  int enter(PyObject *module, ClassInfo info, PyObject *key, bool only_here, Visit *visit);
  int enter_foreign(PyObject *module, PyObject *key);
  int open_entered();
  bool open_plain(PyObject *children);
  bool leave_plain();
  int push(Place &&place, PyObject *children);
  int next_child(Visit *visit, bool *found);
  int next_item(Visit *visit, bool *found);
  bool is_plain(PyObject *module);
  void look_ahead(const RegistryItems &children, PyTypeObject *type) const;
  PyObject *registry_ahead(const RegistryItems &children, int places, PyTypeObject *type) const;
  void pop();
  py::object full_name(PyObject *key);
  py::object path_of_top();
  int raise_bad_name(PyObject *key);
  int raise_cycle(PyObject *module, PyObject *key);

  Place entered_;  // reached last; its children are looked at when the next one is wanted, so that
                   // those added meanwhile are seen
  std::vector<Frame> stack_;
  SeenSet seen_;
  PointerSet on_path_;  // only without de-duplication, which would walk a cycle for ever
  py::object root_;
  py::object prefix_;
  bool remove_duplicate_;
  bool named_;
  bool may_be_plain_;  // names are str, and seen_ is a set of addresses that begins here
  // The module that was entered last is plain, and next_sibling() may be tried: no names are made,
  // nothing is looked at ahead, and seen_ has room for the module itself, which it does not own
  // yet, and for all that are left in its dict.
  bool is_sibling_ = false;
  // The class of the last sibling, which plain_class_ remembers.
  PyTypeObject *sibling_type_ = nullptr;
  TypeVersion sibling_version_ = 0;
  Slot ahead_ = Slot::modules;  // of read_ahead()
  PlainClass<Virtual::named_modules, Virtual::getattribute> plain_class_;
  std::size_t position_ = 0;
  SignalCheck signals_;
};

inline bool PreorderWalk::is_of_known_class(PyObject *child) noexcept {
  PyTypeObject *type = Py_TYPE(child);
  const TypeVersion version = type_version(type);
  if (type == sibling_type_ && version == sibling_version_) {
    return true;
  }
  if (!plain_class_.remembers(child)) {
    return false;
  }
  sibling_type_ = type;
  sibling_version_ = version;
  return true;
}

inline PyObject *PreorderWalk::next_sibling() noexcept {
  if (!is_sibling_) {
    return nullptr;
  }
  PyObject *last = entered_.module.ptr(), *last_key = entered_.key.ptr();
  RegistryItems &children = stack_.back().children;
  PyObject *key, *child, *far;
  if (!is_compact(as_module(last)->state) || as_module(last)->state.modules ||
      !children.peek_entry(&key, &child, kAhead, &far) || !is_sole_reference(child) ||
      !is_of_known_class(child) || may_override(as_module(child)) || is_sole_reference(last_key)) {
    return nullptr;
  }
  prefetch(far);
  children.pass_entry();
  Py_INCREF(child);
  Py_INCREF(child);
  Py_INCREF(key);
  release_one_of_several(last_key);
  entered_.module.release();
  entered_.module = py::reinterpret_steal<py::object>(child);
  entered_.key.release();
  entered_.key = py::reinterpret_steal<py::object>(key);
  seen_.take_new(last);
  return child;
}

}  // namespace modtree
