// SPDX-License-Identifier: BSD-3-Clause
#include "module/state/state_path.h"

#include <utility>

#include "module/name_cache.h"
#include "python/type_text.h"

namespace modtree {

namespace {

// Positions in the memos of names. Plain numbers, shared by a walk and the walks that overrides
// start inside it: a wrong one only makes a memo miss.
struct WalkPositions {
  std::size_t depth = 0;  // walks under way
  std::size_t prefixes = 0;
  std::size_t keys = 0;
};
WalkPositions positions;

// Frames that are compared one by one before a set of addresses is worth it.
constexpr std::size_t kScanned = 24;
// So many missing prefixes above a module are built one by one, to be remembered; more are not
// worth their memory.
constexpr std::size_t kShortGap = 64;
// Longer names are not remembered: the memo must not outweigh the trees.
constexpr Py_ssize_t kLongestRemembered = 512;

bool is_short(PyObject *text) {
  return PyUnicode_Check(text) && PyUnicode_GET_LENGTH(text) <= kLongestRemembered;
}

PyObject *make_prefix(std::size_t position, PyObject *parent, PyObject *name) {
  return is_short(parent) ? name_caches().state_prefixes.get(position, parent, name)
                          : make_name(NameForm::prefix, parent, name);
}

}  // namespace

StatePath::StatePath() {
  if (positions.depth++ == 0) {
    positions.prefixes = 0;
    positions.keys = 0;
  }
}

StatePath::~StatePath() {
  while (!frames_.empty()) {
    pop();
  }
  --positions.depth;
}

void StatePath::push_root(PyObject *module, PyObject *prefix) {
  StateFrame frame;
  frame.module = Py_NewRef(module);
  frame.prefix = Py_NewRef(prefix);
  frames_.push_back(std::move(frame));
}

std::size_t StatePath::take_position() { return positions.prefixes++; }

void StatePath::push(PyObject *module, PyObject *name, std::size_t position) {
  if (frames_.size() >= kScanned) {
    deep_.insert(module);
  }
  StateFrame frame;
  frame.module = Py_NewRef(module);
  frame.name = Py_NewRef(name);
  frame.position = position;
  frames_.push_back(std::move(frame));
}

void StatePath::pop() {
  // Out of the stack before anything dies: the end of a module may run user code.
  StateFrame frame = std::move(frames_.back());
  frames_.pop_back();
  if (frames_.size() >= kScanned) {
    deep_.erase(frame.module);
  }
  Py_XDECREF(frame.local_metadata);
  Py_XDECREF(frame.prefix);
  Py_XDECREF(frame.name);
  Py_XDECREF(frame.module);
}

int StatePath::check_cycle(PyObject *module, PyObject *name, const char *function) {
  const std::size_t scanned = frames_.size() < kScanned ? frames_.size() : kScanned;
  std::size_t found = 0;
  while (found < scanned && frames_[found].module != module) {
    ++found;
  }
  if (found == scanned) {
    if (frames_.size() <= kScanned || !deep_.count(module)) {
      return 0;
    }
    while (frames_[found].module != module) {
      ++found;
    }
  }
  const auto here = py::reinterpret_steal<py::object>(path());
  if (!here) {
    return -1;
  }
  py::object there = py::reinterpret_steal<py::object>(Py_NewRef(names.empty));
  for (std::size_t i = 1; i <= found; ++i) {
    there = py::reinterpret_steal<py::object>(
        make_name(NameForm::dotted, there.ptr(), frames_[i].name));
    if (!there) {
      return -1;
    }
  }
  const std::string type = short_type_text(module);
  PyErr_Format(PyExc_RecursionError,
               "%s: the module tree has a cycle: child %R of module '%U' is the %.100s at '%U' "
               "again, which contains it; "
               "keep one of the two references outside the tree, for example in a tuple",
               function, name, here.ptr(), type.c_str(), there.ptr());
  return -1;
}

PyObject *StatePath::make_own_prefix() {
  std::size_t known = frames_.size() - 1;
  while (!frames_[known].prefix) {
    --known;
  }
  return frames_.size() - known > kShortGap ? long_prefix(known) : made_one_by_one(known);
}

PyObject *StatePath::made_one_by_one(std::size_t known) {
  for (std::size_t i = known + 1; i < frames_.size(); ++i) {
    frames_[i].prefix = make_prefix(frames_[i].position, frames_[i - 1].prefix, frames_[i].name);
    if (!frames_[i].prefix) {
      return nullptr;
    }
  }
  return frames_.back().prefix;
}

PyObject *StatePath::long_prefix(std::size_t known) {
  const std::size_t last = frames_.size() - 1;
  for (std::size_t i = known; i <= last; ++i) {
    PyObject *part = i == known ? frames_[i].prefix : frames_[i].name;
    if (!PyUnicode_CheckExact(part)) {
      return made_one_by_one(known);
    }
  }
  const auto parts =
      py::reinterpret_steal<py::object>(PyList_New(static_cast<Py_ssize_t>(last - known + 1)));
  if (!parts) {
    return nullptr;
  }
  PyObject *first = make_name(NameForm::joined, frames_[known].prefix, frames_[known + 1].name);
  if (!first) {
    return nullptr;
  }
  PyList_SET_ITEM(parts.ptr(), 0, first);
  for (std::size_t i = known + 2; i <= last; ++i) {
    PyList_SET_ITEM(parts.ptr(), static_cast<Py_ssize_t>(i - known - 1),
                    Py_NewRef(frames_[i].name));
  }
  PyList_SET_ITEM(parts.ptr(), static_cast<Py_ssize_t>(last - known), Py_NewRef(names.empty));
  return frames_[last].prefix = PyUnicode_Join(names.dot, parts.ptr());
}

PyObject *StatePath::child_prefix(PyObject *name, std::size_t position) {
  PyObject *parent = prefix();
  return parent ? make_prefix(position, parent, name) : nullptr;
}

PyObject *StatePath::path() {
  const auto parts = py::reinterpret_steal<py::object>(PyList_New(0));
  if (!parts) {
    return nullptr;
  }
  for (const StateFrame &frame : frames_) {
    if (frame.name && PyList_Append(parts.ptr(), frame.name) < 0) {
      return nullptr;
    }
  }
  return PyUnicode_Join(names.dot, parts.ptr());
}

PyObject *state_key(PyObject *prefix, PyObject *name) {
  const std::size_t position = positions.keys++;
  return is_short(prefix) ? name_caches().state_keys.get(position, prefix, name)
                          : make_name(NameForm::joined, prefix, name);
}

PyObject *metadata_key(PyObject *prefix) {
  return make_name(NameForm::chopped, prefix, names.empty);
}

PyObject *extra_state_key(PyObject *prefix) { return state_key(prefix, names.extra_state); }

}  // namespace modtree
