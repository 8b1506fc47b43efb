// SPDX-License-Identifier: BSD-3-Clause
#include "module/walk/match_paths.h"

#include <deque>
#include <unordered_set>
#include <utility>
#include <vector>

#include "module/attributes/registry_items.h"
#include "module/object.h"
#include "python/call.h"
#include "python/checked.h"
#include "python/interned.h"
#include "python/signals.h"

namespace modtree {

namespace {

constexpr Py_ssize_t kDead = -1;  // nothing at and below a path can match
constexpr Py_ssize_t kAsk = -2;   // the next state must be computed in Python

// The modules that were met in a state. One that a registry alone holds is at no other place, and
// is not noted.
class Met {
public:
  // `only_here`: the reference of the registry was the only one.
  bool is_new(py::handle module, bool only_here) {
    if (only_here) {
      return true;
    }
    if (!addresses_.insert(module.ptr()).second) {
      return false;
    }
    kept_.push_back(py::reinterpret_borrow<py::object>(module));
    return true;
  }

private:
  std::unordered_set<PyObject *> addresses_;
  std::vector<py::object> kept_;  // an address must not be used again meanwhile
};

// A row of Machine.states.
struct State {
  bool accepts, is_end;
  py::object known;  // a dict of names and indices of states, to which Python code may add
  Py_ssize_t fallback;
  Met met;
};

// A module whose children are being read.
struct Level {
  py::object name;    // null for the root
  py::object prefix;  // its path and a dot, from when it was needed
  RegistryItems children;
  Py_ssize_t state, count, position = 0;
};

class PathMatch {
public:
  PathMatch(py::handle states, py::handle ask, py::handle tables)
      : rows_(py::reinterpret_borrow<py::object>(states)),
        ask_(py::reinterpret_borrow<py::object>(ask)),
        found_(owned(PyList_New(0))),
        finds_modules_(tables.is_none()) {
    if (!PyList_Check(states.ptr()) || (!finds_modules_ && !PyTuple_Check(tables.ptr()))) {
      refuse();
    }
    for (Py_ssize_t i = 0; !finds_modules_ && i < PyTuple_GET_SIZE(tables.ptr()); ++i) {
      PyObject *table = PyTuple_GET_ITEM(tables.ptr(), i);
      if (!PyUnicode_Check(table)) {
        refuse();
      }
      tables_.push_back(py::reinterpret_borrow<py::object>(table));
    }
  }

  py::object run(py::handle root, Py_ssize_t start) {
    if (start != kDead) {
      enter(root, py::handle(), start, false);
    }
    while (!levels_.empty()) {
      step();
    }
    return std::move(found_);
  }

private:
  [[noreturn]] static void refuse() {
    PyErr_SetString(PyExc_TypeError, "_match_paths: expected the states of a Machine, and a tuple "
                                     "of names of registries or None");
    fail();
  }

  State &state_at(Py_ssize_t index) {
    while (index >= static_cast<Py_ssize_t>(states_.size())) {
      const auto next = static_cast<Py_ssize_t>(states_.size());
      PyObject *row =
          next < PyList_GET_SIZE(rows_.ptr()) ? PyList_GET_ITEM(rows_.ptr(), next) : nullptr;
      if (!row || !PyTuple_Check(row) || PyTuple_GET_SIZE(row) != 4 ||
          !PyDict_Check(PyTuple_GET_ITEM(row, 2)) || !PyLong_Check(PyTuple_GET_ITEM(row, 3))) {
        refuse();
      }
      const auto flag = [&](int i) { return PyTuple_GET_ITEM(row, i) == Py_True; };
      const Py_ssize_t fallback = PyLong_AsSsize_t(PyTuple_GET_ITEM(row, 3));
      if (fallback == -1 && PyErr_Occurred()) {
        fail();
      }
      states_.push_back({flag(0), flag(1),
                         py::reinterpret_borrow<py::object>(PyTuple_GET_ITEM(row, 2)), fallback,
                         Met()});
    }
    if (index < 0) {
      refuse();
    }
    return states_[static_cast<std::size_t>(index)];
  }

  // The state behind a name. May run user code: that of a name of a subclass of str, and `ask`.
  Py_ssize_t next_state(Py_ssize_t index, py::handle name, Py_ssize_t position, Py_ssize_t count) {
    const State &state = state_at(index);
    PyObject *known = PyUnicode_CheckExact(name.ptr())
                          ? dict_find_str(state.known.ptr(), name.ptr())
                          : dict_get(state.known.ptr(), name.ptr());
    if (!known && PyErr_Occurred()) {
      fail();
    }
    if (!known && state.fallback != kAsk) {
      return state.fallback;
    }
    py::object answer = py::reinterpret_borrow<py::object>(known);
    if (!answer) {
      const py::object numbers[] = {owned(PyLong_FromSsize_t(index)),
                                    owned(PyLong_FromSsize_t(position)),
                                    owned(PyLong_FromSsize_t(count))};
      answer = call(ask_, numbers[0], name, numbers[1], numbers[2]);
    }
    const Py_ssize_t next = answer ? PyLong_AsSsize_t(answer.ptr()) : -1;
    if (next == -1 && PyErr_Occurred()) {
      fail();
    }
    return next;
  }

  // A registry of a module, or null where it is empty or missing.
  static py::object registry_of(PyObject *module, PyObject *name) {
    if (is_module(module)) {
      Slot slot = Slot::modules;
      if (name != names.modules_) {
        const bool buffers = PyUnicode_CompareWithASCIIString(name, "_buffers") == 0;
        slot = buffers ? Slot::buffers : Slot::parameters;
      }
      PyObject *mapping = nullptr;
      py::object keep;
      if (registry(as_module(module), slot, &mapping, &keep) >= 0) {
        return py::reinterpret_borrow<py::object>(mapping);
      }
    } else if (PyObject *mapping = PyObject_GetAttr(module, name)) {
      auto found = py::reinterpret_steal<py::object>(mapping);
      return found.is_none() ? py::object() : found;
    }
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
      fail();
    }
    PyErr_Clear();
    return {};
  }

  static Py_ssize_t length(const py::object &mapping) {
    const Py_ssize_t count = PyObject_Size(mapping.ptr());
    check(count < 0 ? -1 : 0);
    return count;
  }

  // Reads the next child of the innermost level, or leaves that.
  void step() {
    check(signals_.step());
    Level &level = levels_.back();
    PyObject *key, *value;
    const int more = level.children.next(&key, &value);
    check(more);
    if (more == 0) {
      const Level left = std::move(level);  // its end may run user code
      levels_.pop_back();
      return;
    }
    const Py_ssize_t position = level.position++;
    if (value == Py_None) {
      return;
    }
    const bool only_here = is_sole_reference(value);
    const auto name = py::reinterpret_borrow<py::object>(key);
    const auto child = py::reinterpret_borrow<py::object>(value);
    const Py_ssize_t next = next_state(level.state, name, position, level.count);
    if (next != kDead) {
      enter(child, name, next, only_here);
    }
  }

  void enter(py::handle module, py::handle name, Py_ssize_t index, bool only_here) {
    State &state = state_at(index);
    if (!state.met.is_new(module, only_here)) {
      return;
    }
    if (!finds_modules_ && !state.is_end) {
      match_leaves(module, name, index);
    } else if (finds_modules_ && state.accepts) {
      add(path_of(name), module);
    }
    if (state.is_end) {
      return;
    }
    const py::object children = registry_of(module.ptr(), names.modules_);
    if (!children) {
      return;
    }
    Level level;
    level.name = py::reinterpret_borrow<py::object>(name);
    level.state = index;
    level.count = length(children);
    check(level.children.start(children.ptr()));
    levels_.push_back(std::move(level));
  }

  void match_leaves(py::handle module, py::handle name, Py_ssize_t index) {
    py::object path;
    for (const py::object &table : tables_) {
      const py::object leaves = registry_of(module.ptr(), table.ptr());
      RegistryItems items;
      const Py_ssize_t count = leaves ? length(leaves) : 0;
      check(items.start(leaves.ptr()));
      PyObject *key, *value;
      Py_ssize_t position = 0;
      int more;
      for (; (more = items.next(&key, &value)) > 0; ++position) {
        if (value == Py_None) {
          continue;
        }
        const auto leaf_name = py::reinterpret_borrow<py::object>(key);
        const auto leaf = py::reinterpret_borrow<py::object>(value);
        const Py_ssize_t next = next_state(index, leaf_name, position, count);
        if (next == kDead || !state_at(next).accepts) {
          continue;
        }
        if (!path) {
          path = path_of(name);
        }
        const bool at_root = PyUnicode_GET_LENGTH(path.ptr()) == 0;
        check_name(leaf_name);
        add(at_root ? leaf_name : owned(PyUnicode_FromFormat("%U.%U", path.ptr(), leaf_name.ptr())),
            leaf);
      }
      check(more);
    }
  }

  static void check_name(py::handle name) {
    if (!PyUnicode_Check(name.ptr())) {
      PyErr_Format(PyExc_TypeError, "a registry has the key %R, where names are str", name.ptr());
      fail();
    }
  }

  // The path of a child of the innermost level.
  py::object path_of(py::handle name) {
    if (!name) {
      return owned(PyUnicode_FromString(""));
    }
    check_name(name);
    return owned(PyUnicode_Concat(prefix().ptr(), name.ptr()));
  }

  // The path of the innermost level and a dot. Those of the levels above are made on the way.
  const py::object &prefix() {
    std::size_t made = levels_.size() - 1;
    while (made > 0 && !levels_[made].prefix) {
      --made;
    }
    if (made == 0 && !levels_[0].prefix) {
      levels_[0].prefix = owned(PyUnicode_FromString(""));
    }
    for (; made + 1 < levels_.size(); ++made) {
      Level &level = levels_[made + 1];
      check_name(level.name);
      level.prefix =
          owned(PyUnicode_FromFormat("%U%U.", levels_[made].prefix.ptr(), level.name.ptr()));
    }
    return levels_.back().prefix;
  }

  void add(const py::object &path, py::handle value) {
    const py::object pair = owned(PyTuple_Pack(2, path.ptr(), value.ptr()));
    check(PyList_Append(found_.ptr(), pair.ptr()));
  }

  std::deque<State> states_;
  std::vector<py::object> tables_;
  std::vector<Level> levels_;
  SignalCheck signals_;
  py::object rows_, ask_, found_;
  bool finds_modules_;
};

}  // namespace

py::object match_paths(py::handle root, py::handle states, Py_ssize_t start, py::handle ask,
                       py::handle tables) {
  return PathMatch(states, ask, tables).run(root, start);
}

}  // namespace modtree
