// SPDX-License-Identifier: BSD-3-Clause
// The walk along a structure that is known: a comparison of pointers, which owns nothing on its
// way, and collects the leaves.
#include "module/split/structure.h"
#include "module/walk/pointer_set.h"
#include "python/call.h"
#include "python/sequence_items.h"

namespace modtree {

namespace {

bool is_same_name(PyObject *one, PyObject *other) {
  return one == other || (PyUnicode_CheckExact(one) && PyUnicode_CheckExact(other) &&
                          PyUnicode_Compare(one, other) == 0);
}

class Match {
public:
  Match(const Structure &structure, SplitValues *values)
      : structure_(structure),
        values_(*values),
        attributes_(structure.values),
        leaves_(values->leaves.ptr()),
        others_(values->others.ptr()) {}

  bool run(PyObject *tree) {
    return match_node(tree) && node_ == structure_.nodes.size() && leaf_ == structure_.leaf_count;
  }

private:
  // A module whose children are being read. Borrowed: nothing runs that could take them away.
  struct Level {
    PyObject *children;
    Py_ssize_t position;
    int place, end;  // of Structure::children
  };

  bool match_node(PyObject *value) {
    if (node_ >= structure_.nodes.size()) {
      return false;
    }
    const TreeNode &node = structure_.nodes[node_++];
    switch (node.kind) {
      case TreeNode::Kind::other: {
        // Where it is nested too deeply, building the structure says so.
        if (search_.find_without_user_code(value) != 0) {
          return false;
        }
        PyList_SET_ITEM(others_, other_++, Py_NewRef(value));
        return true;
      }
      case TreeNode::Kind::module:
        return is_module(value) && match_root(value, node.index);
      case TreeNode::Kind::tuple: {
        const bool is_class = node.type
                                  ? reinterpret_cast<PyObject *>(Py_TYPE(value)) == node.type.ptr()
                                  : PyTuple_CheckExact(value);
        if (!is_class || PyTuple_GET_SIZE(value) != node.count) {
          return false;
        }
        for (Py_ssize_t i = 0; i < node.count; ++i) {
          if (!match_item(sequence_item(value, i))) {
            return false;
          }
        }
        return true;
      }
      case TreeNode::Kind::list:
        if (!PyList_CheckExact(value) || PyList_GET_SIZE(value) != node.count) {
          return false;
        }
        for (Py_ssize_t i = 0; i < node.count; ++i) {
          if (!match_item(sequence_item(value, i))) {
            return false;
          }
        }
        return true;
      case TreeNode::Kind::dict: {
        // The order of an OrderedDict is only known by building.
        if (!PyDict_CheckExact(value) || node.type || PyDict_GET_SIZE(value) != node.count) {
          return false;
        }
        Py_ssize_t position = 0;
        PyObject *key, *item;
        std::size_t i = 0;
        for (; i < node.keys.size() && dict_next_item(value, &position, &key, &item); ++i) {
          if (!is_same_name(node.keys[i].ptr(), key) || !match_node(item)) {
            return false;
          }
        }
        return i == node.keys.size();
      }
    }
    return false;
  }

  bool match_item(PyObject *item) { return item && match_node(item); }

  bool match_root(PyObject *module, int index) {
    const auto known = static_cast<std::size_t>(index);
    if (known < values_.modules.size()) {
      return values_.modules[known].ptr() == module;
    }
    if (known != values_.modules.size() || !met_.insert(module) || !match_module(module)) {
      return false;
    }
    while (!levels_.empty()) {
      Level &level = levels_.back();
      if (level.place == level.end) {
        levels_.pop_back();
        continue;
      }
      const ChildPlace &place = structure_.children[static_cast<std::size_t>(level.place++)];
      PyObject *key, *child;
      if (!dict_next(level.children, &level.position, &key, &child) ||
          !is_same_name(place.name.ptr(), key) || !match_child(place, child)) {
        return false;
      }
    }
    return true;
  }

  bool match_child(const ChildPlace &place, PyObject *child) {
    if (place.module < 0) {
      return child == Py_None;
    }
    const auto index = static_cast<std::size_t>(place.module);
    if (!place.is_first) {
      return values_.modules[index].ptr() == child;
    }
    // One that only this registry holds cannot have come before.
    return is_module(child) && index == values_.modules.size() &&
           (is_sole_reference(child) || met_.insert(child)) && match_module(child);
  }

  bool match_module(PyObject *value) {
    const std::size_t index = values_.modules.size();
    const ModuleRecord &record = structure_.modules[index];
    ModuleObject *module = as_module(value);
    // Looking for a name among keys of odd types could run user code.
    if (module->state.exposed && (!has_only_strs(module->dict) || class_hides_registries(module))) {
      return false;
    }
    if (reinterpret_cast<PyObject *>(Py_TYPE(value)) != record.type.ptr() ||
        peek(module, Slot::training) != record.training.ptr() || !has_slot(module, Slot::modules) ||
        !has_slot(module, Slot::parameters) || !has_slot(module, Slot::buffers)) {
      return false;
    }
    values_.modules.push_back(py::reinterpret_borrow<py::object>(value));
    PyObject *children = peek(module, Slot::modules);
    if (!match_leaves(peek(module, Slot::parameters), record.first_place, record.parameters) ||
        !match_leaves(peek(module, Slot::buffers), record.first_place + record.parameters,
                      record.buffers) ||
        !match_attributes(module, record) || !match_hooks(module, record) ||
        !has_size(children, record.children)) {
      return false;
    }
    if (record.children > 0) {
      levels_.push_back({children, 0, record.first_child, record.first_child + record.children});
    }
    return true;
  }

  static bool has_size(PyObject *table, int count) {
    return table ? PyDict_CheckExact(table) && PyDict_GET_SIZE(table) == count : count == 0;
  }

  bool match_leaves(PyObject *table, int first, int count) {
    if (!has_size(table, count)) {
      return false;
    }
    const LeafPlace *place = structure_.places.data() + first;
    Py_ssize_t position = 0;
    PyObject *key, *value;
    for (int i = 0; i < count; ++i, ++place) {
      if (!dict_next(table, &position, &key, &value) || !is_same_name(place->name.ptr(), key)) {
        return false;
      }
      if (place->leaf == leaf_ && value != Py_None) {
        if (!is_sole_reference(value) && !leaves_met_.insert(value)) {
          return false;
        }
        PyList_SET_ITEM(leaves_, leaf_++, Py_NewRef(value));
      } else if (place->leaf < 0
                     ? value != Py_None
                     : place->leaf >= leaf_ || PyList_GET_ITEM(leaves_, place->leaf) != value) {
        return false;
      }
    }
    return true;
  }

  bool match_attributes(ModuleObject *module, const ModuleRecord &record) {
    const bool exposed = module->state.exposed;
    if (!module->dict) {
      return record.attributes == 0;
    }
    if (!exposed && PyDict_GET_SIZE(module->dict) != record.attributes) {
      return false;
    }
    const StaticAttribute *attribute = structure_.attributes.data() + record.first_attribute;
    const StaticAttribute *end = attribute + record.attributes;
    Py_ssize_t position = 0;
    PyObject *key, *value;
    while (dict_next(module->dict, &position, &key, &value)) {
      if (exposed && PyUnicode_Check(key)) {
        const SpecialName *special = find_special_name(key);
        if (special && special->slot >= 0) {
          continue;
        }
      }
      if (attribute == end || !is_same_name(attribute->name.ptr(), key) ||
          !attributes_.is_unchanged(attribute->value, value)) {
        return false;
      }
      ++attribute;
    }
    return attribute == end;
  }

  bool match_hooks(ModuleObject *module, const ModuleRecord &record) {
    if (!record.hooks && !module->state.hooks && !module->state.exposed) {
      return true;
    }
    for (int i = 0; i < kHookSlots; ++i) {
      PyObject *value = hook_value(module, i);
      const StaticItem *known =
          record.hooks ? &(*record.hooks)[static_cast<std::size_t>(i)] : nullptr;
      if (!value ? known && known->kind != StaticItem::Kind::nothing
                 : !known || !attributes_.is_unchanged(*known, value)) {
        return false;
      }
    }
    return true;
  }

  const Structure &structure_;
  SplitValues &values_;
  StaticMatch attributes_;
  ModuleSearch search_;
  PyObject *leaves_, *others_;  // of values_
  std::size_t node_ = 0;
  int leaf_ = 0, other_ = 0;
  PointerSet met_, leaves_met_;
  std::vector<Level> levels_;
};

// True if the sets of names of buffers that are not saved are those of the structure. May run user
// code, for names of odd classes.
bool match_non_persistent(const Structure &structure, const SplitValues &values) {
  for (std::size_t i = 0; i < values.modules.size(); ++i) {
    PyObject *now = peek(as_module(values.modules[i].ptr()), Slot::non_persistent_buffers_set);
    const py::object &known = structure.modules[i].non_persistent;
    const bool has_names = now && PyAnySet_Check(now) && PySet_GET_SIZE(now) > 0;
    if (!has_names || !known) {
      if (has_names || known) {
        return false;
      }
      continue;
    }
    const auto keep = py::reinterpret_borrow<py::object>(now);
    const int equal = PyObject_RichCompareBool(known.ptr(), now, Py_EQ);
    if (equal < 0) {
      throw py::error_already_set();
    }
    if (!equal) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool match_structure(const Structure &structure, PyObject *tree, SplitValues *values) {
  // Before the walk: making them may run the collector.
  values->modules.reserve(structure.modules.size());
  values->leaves = py::reinterpret_steal<py::object>(PyList_New(structure.leaf_count));
  values->others = py::reinterpret_steal<py::object>(PyList_New(structure.other_count));
  if (!values->leaves || !values->others) {
    throw py::error_already_set();
  }
  {
    const WithoutCollector borrowing;
    if (!Match(structure, values).run(tree)) {
      return false;
    }
  }
  return match_non_persistent(structure, *values);
}

}  // namespace modtree
