// SPDX-License-Identifier: BSD-3-Clause
// The walk that notes a structure, and owns what it looks at.
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "module/split/structure.h"
#include "python/call.h"
#include "python/checked.h"
#include "python/sequence_items.h"
#include "python/signals.h"

namespace modtree {

namespace {

// Of nodes: some 60 MB. Lists that share lists have more than any memory would hold.
constexpr std::size_t kMostNodes = std::size_t{1} << 20;

class Builder {
public:
  Builder(Keep keep, PyObject *hints, Structure *structure, SplitValues *values)
      : structure_(*structure),
        values_(*values),
        hints_(hints),
        attributes_(&structure->values, keep) {
    values_.leaves = owned(PyList_New(0));
    values_.others = owned(PyList_New(0));
  }

  void run(py::handle tree, int levels) {
    add_node(tree, levels);
    structure_.leaf_count = static_cast<int>(PyList_GET_SIZE(values_.leaves.ptr()));
    structure_.other_count = static_cast<int>(PyList_GET_SIZE(values_.others.ptr()));
    structure_.compute_hash();
  }

private:
  // A module whose children are being read.
  struct Level {
    int module;
    int next_child;
    std::vector<py::object> children;
  };

  void add_node(py::handle value, int levels) {
    const NestedCall nested("looking for modules in containers");
    if (!nested.entered()) {
      fail();
    }
    check(signals_.step());
    const std::size_t place = structure_.nodes.size();
    if (place == kMostNodes) {
      PyErr_Format(PyExc_ValueError,
                   "the containers around modules have more than %zd items: pass what has no "
                   "module in it as an argument of its own",
                   static_cast<Py_ssize_t>(kMostNodes));
      fail();
    }
    if (is_module(value.ptr())) {
      structure_.nodes.push_back({TreeNode::Kind::module, 0, 0, {}, {}});
      structure_.nodes[place].index = add_root(value);
      return;
    }
    const bool is_expanded =
        levels > 0 && (PyTuple_CheckExact(value.ptr()) || PyDict_CheckExact(value.ptr()) ||
                       PyList_CheckExact(value.ptr()));
    const int holds = is_expanded ? 1 : search_.find(value.ptr());
    check(holds);
    if (!holds) {
      structure_.nodes.push_back({TreeNode::Kind::other, 0, 0, {}, {}});
      append(values_.others, value);
      return;
    }
    add_container(value, levels - 1);
  }

  void add_container(py::handle value, int levels) {
    std::vector<std::pair<py::object, py::object>> items;
    TreeNode node{TreeNode::Kind::list, 0, 0, {}, {}};
    if (is_plain_table(value.ptr())) {
      node.kind = TreeNode::Kind::dict;
      if (!PyDict_CheckExact(value.ptr())) {
        node.type = class_of(value);
      }
      const py::object pairs = owned(PySequence_Tuple(owned(items_at_once(value.ptr())).ptr()));
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(pairs.ptr()); ++i) {
        PyObject *pair = PyTuple_GET_ITEM(pairs.ptr(), i);
        node.keys.push_back(py::reinterpret_borrow<py::object>(PyTuple_GET_ITEM(pair, 0)));
        items.emplace_back(node.keys.back(),
                           py::reinterpret_borrow<py::object>(PyTuple_GET_ITEM(pair, 1)));
      }
    } else {
      const py::object copy = owned(PySequence_Tuple(value.ptr()));
      if (!PyList_CheckExact(value.ptr())) {
        node.kind = TreeNode::Kind::tuple;
        if (!PyTuple_CheckExact(value.ptr())) {
          node.type = class_of(value);
        }
      }
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(copy.ptr()); ++i) {
        items.emplace_back(owned(PyLong_FromSsize_t(i)),
                           py::reinterpret_borrow<py::object>(PyTuple_GET_ITEM(copy.ptr(), i)));
      }
    }
    node.count = static_cast<int>(items.size());
    structure_.nodes.push_back(std::move(node));
    for (const auto &[key, item] : items) {
      way_.push_back(key);
      add_node(item, levels);
      way_.pop_back();
    }
  }

  int add_root(py::handle module) {
    if (const auto known = met_.find(module.ptr()); known != met_.end()) {
      return known->second;
    }
    py::object way = owned(PyTuple_New(static_cast<Py_ssize_t>(way_.size())));
    for (std::size_t i = 0; i < way_.size(); ++i) {
      PyTuple_SET_ITEM(way.ptr(), static_cast<Py_ssize_t>(i), Py_NewRef(way_[i].ptr()));
    }
    structure_.roots.push_back(std::move(way));
    const int index = add_module(module, -1, {});
    while (!levels_.empty()) {
      check(signals_.step());
      step();
    }
    return index;
  }

  void step() {
    Level &level = levels_.back();
    if (level.children.empty()) {
      levels_.pop_back();
      return;
    }
    const py::object child = std::move(level.children.back());
    level.children.pop_back();
    ChildPlace &place = structure_.children[static_cast<std::size_t>(level.next_child++)];
    if (child.is_none()) {
      return;
    }
    if (const auto known = met_.find(child.ptr()); known != met_.end()) {
      place.module = known->second;
      return;
    }
    place.is_first = true;
    place.module = static_cast<int>(structure_.modules.size());
    const py::object name = place.name;  // its list grows
    add_module(child, level.module, name);
  }

  // Notes all of one module but what its children are, and puts it on the stack.
  int add_module(py::handle value, int parent, const py::object &name) {
    const int index = static_cast<int>(structure_.modules.size());
    ModuleObject *module = as_module(value.ptr());
    values_.modules.push_back(py::reinterpret_borrow<py::object>(value));
    met_.emplace(value.ptr(), index);
    ModuleRecord &record = structure_.modules.emplace_back();
    record.type = class_of(value);
    record.parent = parent;
    record.root = static_cast<int>(structure_.roots.size()) - 1;
    record.name = name;
    if (!has_slot(module, Slot::training)) {
      raise_missing_slot(module, Slot::training);
      fail();
    }
    record.training = py::reinterpret_borrow<py::object>(peek(module, Slot::training));
    record.first_place = static_cast<int>(structure_.places.size());
    record.parameters = add_leaves(module, index, Slot::parameters);
    record.buffers = add_leaves(module, index, Slot::buffers);
    PyObject *names_of = peek(module, Slot::non_persistent_buffers_set);
    if (names_of && PyAnySet_Check(names_of) && PySet_GET_SIZE(names_of) > 0) {
      record.non_persistent = owned(PyFrozenSet_New(names_of));
    }
    add_hooks(module, &record);
    record.first_attribute = static_cast<int>(structure_.attributes.size());
    record.attributes = add_attributes(module);
    record.first_child = static_cast<int>(structure_.children.size());
    Level level{index, record.first_child, {}};
    record.children = add_children(module, index, &level);
    levels_.push_back(std::move(level));
    return index;
  }

  template <class Add>
  int for_each_entry(ModuleObject *module, int index, Slot slot, Add add) {
    PyObject *mapping = nullptr;
    py::object keep;
    if (registry(module, slot, &mapping, &keep) < 0) {
      fail();
    }
    RegistryItems items;
    check(items.start(mapping));
    PyObject *key, *value;
    int more, count = 0;
    for (; (more = items.next(&key, &value)) > 0; ++count) {
      if (!PyUnicode_Check(key)) {
        const py::object path = structure_.path_of(index);
        PyErr_Format(PyExc_TypeError, "%R: a registry has the key %R, where names are str",
                     path.ptr(), key);
        fail();
      }
      add(py::reinterpret_borrow<py::object>(key), py::reinterpret_borrow<py::object>(value));
    }
    check(more);
    return count;
  }

  // {name: (value, leaf)} of a module that the hints have; null for others.
  PyObject *hints_of(ModuleObject *module) {
    if (!hints_ || PyDict_GET_SIZE(hints_) == 0) {
      return nullptr;
    }
    const py::object key = owned(PyLong_FromVoidPtr(module));
    PyObject *entry = dict_get(hints_, key.ptr());
    if (!entry || !PyTuple_Check(entry) || PyTuple_GET_SIZE(entry) != 2 ||
        !PyWeakref_CheckRef(PyTuple_GET_ITEM(entry, 0)) ||
        !is_referent(PyTuple_GET_ITEM(entry, 0), as_object(module)) ||
        !PyDict_Check(PyTuple_GET_ITEM(entry, 1))) {
      PyErr_Clear();
      return nullptr;
    }
    held_hints_.push_back(py::reinterpret_borrow<py::object>(PyTuple_GET_ITEM(entry, 1)));
    return held_hints_.back().ptr();
  }

  // What tells the leaf of an entry from others, or null for None: the value, where no hint is.
  static PyObject *leaf_key(PyObject *hints, const py::object &name, const py::object &value) {
    PyObject *hint = hints ? dict_get(hints, name.ptr()) : nullptr;
    if (hint && PyTuple_Check(hint) && PyTuple_GET_SIZE(hint) == 2 &&
        PyTuple_GET_ITEM(hint, 0) == value.ptr()) {
      return PyTuple_GET_ITEM(hint, 1);
    }
    PyErr_Clear();
    return value.is_none() ? nullptr : value.ptr();
  }

  int add_leaves(ModuleObject *module, int index, Slot slot) {
    PyObject *hints = hints_of(module);
    return for_each_entry(module, index, slot, [&](py::object name, const py::object &value) {
      PyObject *key = leaf_key(hints, name, value);
      const int leaf = key ? leaf_index(key, value) : -1;
      structure_.places.push_back({std::move(name), index, leaf, slot == Slot::parameters});
    });
  }

  int leaf_index(PyObject *key, const py::object &value) {
    const auto next = static_cast<int>(PyList_GET_SIZE(values_.leaves.ptr()));
    const auto [known, is_new] = leaf_indices_.emplace(key, next);
    if (is_new) {
      append(values_.leaves, value);
    }
    return known->second;
  }

  int add_children(ModuleObject *module, int index, Level *level) {
    const int count =
        for_each_entry(module, index, Slot::modules, [&](const py::object &name, py::object child) {
          if (!child.is_none() && !is_module(child.ptr())) {
            const py::object path = structure_.path_of(index);
            PyErr_Format(PyExc_TypeError, "%R: the child %R is a %.200s, not a modtree module",
                         path.ptr(), name.ptr(), Py_TYPE(child.ptr())->tp_name);
            fail();
          }
          structure_.children.push_back({name, -1, false});
          level->children.push_back(std::move(child));
        });
    std::reverse(level->children.begin(), level->children.end());
    return count;
  }

  void add_hooks(ModuleObject *module, ModuleRecord *record) {
    std::unique_ptr<HookValues> hooks;
    for (int i = 0; i < kHookSlots; ++i) {
      if (PyObject *value = hook_value(module, i)) {
        const auto keep = py::reinterpret_borrow<py::object>(value);
        if (!hooks) {
          hooks = std::make_unique<HookValues>();
        }
        (*hooks)[static_cast<std::size_t>(i)] = attributes_.add(value);
      }
    }
    record->hooks = std::move(hooks);
  }

  int add_attributes(ModuleObject *module) {
    if (!module->dict) {
      return 0;
    }
    const py::object copy = owned(PyDict_Copy(module->dict));
    const bool exposed = module->state.exposed;
    Py_ssize_t position = 0;
    PyObject *key, *value;
    int count = 0;
    while (dict_next_item(copy.ptr(), &position, &key, &value)) {
      if (!PyUnicode_Check(key)) {
        continue;
      }
      const SpecialName *special = exposed ? find_special_name(key) : nullptr;
      if (special && special->slot >= 0) {
        continue;
      }
      structure_.attributes.push_back(
          {py::reinterpret_borrow<py::object>(key), attributes_.add(value)});
      ++count;
    }
    return count;
  }

  static py::object class_of(py::handle value) {
    return py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject *>(Py_TYPE(value.ptr())));
  }

  static void append(const py::object &list, py::handle value) {
    check(PyList_Append(list.ptr(), value.ptr()));
  }

  Structure &structure_;
  SplitValues &values_;
  std::unordered_map<PyObject *, int> met_;           // owned by values_.modules
  std::unordered_map<PyObject *, int> leaf_indices_;  // owned by values_.leaves or held_hints_
  PyObject *hints_;
  std::vector<py::object> held_hints_;
  StaticBuilder attributes_;
  ModuleSearch search_;
  std::vector<Level> levels_;
  std::vector<py::object> way_;
  SignalCheck signals_;
};

}  // namespace

bool is_plain_tuple(PyObject *value) {
  return PyTuple_CheckExact(value) ||
         (PyTuple_Check(value) && Py_TYPE(value)->tp_iter == PyTuple_Type.tp_iter);
}

int ModuleSearch::find(PyObject *value) {
  runs_user_code_ = true;
  return search(value);
}

int ModuleSearch::find_without_user_code(PyObject *value) {
  const int holds = search(value);
  PyErr_Clear();
  return holds;
}

int ModuleSearch::search(PyObject *value) {
  if (is_module(value)) {
    return 1;
  }
  if (!PyList_CheckExact(value) && !is_plain_table(value) && !is_plain_tuple(value)) {
    return 0;
  }
  if (const auto known = known_.find(value); known != known_.end()) {
    return known->second;
  }
  const NestedCall nested("looking for modules in containers");
  if (!nested.entered()) {
    return -1;
  }
  if (runs_user_code_) {
    held_.push_back(py::reinterpret_borrow<py::object>(value));
  }
  const int holds = search_items(value);
  if (holds >= 0) {
    known_.emplace(value, holds > 0);
  }
  return holds;
}

int ModuleSearch::search_items(PyObject *value) {
  const auto search_one = [&](PyObject *item) {
    const auto held = py::reinterpret_borrow<py::object>(item);
    const bool may_go_on =
        runs_user_code_ ? signals_.step() >= 0 : ++steps_ <= kStepsWithoutReferences;
    return may_go_on ? search(item) : -1;
  };
  int holds = 0;
  if (is_plain_table(value)) {
    Py_ssize_t position = 0;
    PyObject *key, *item;
    while (holds == 0 && dict_next_item(value, &position, &key, &item)) {
      holds = search_one(item);
    }
    return holds;
  }
  for (Py_ssize_t i = 0; holds == 0; ++i) {
    PyObject *item = sequence_item(value, i);
    if (!item) {
      break;
    }
    holds = search_one(item);
  }
  return holds;
}

PyObject *hook_value(ModuleObject *module, int index) {
  if (!module->state.exposed && !module->state.hooks) {
    return nullptr;
  }
  PyObject *value = peek(module, static_cast<Slot>(kFirstHookSlot + index));
  const bool is_default =
      !value || value == Py_None || (is_plain_table(value) && PyDict_GET_SIZE(value) == 0);
  return is_default ? nullptr : value;
}

void build_structure(py::handle tree, Keep keep, int levels, PyObject *hints, Structure *structure,
                     SplitValues *values) {
  Builder(keep, hints, structure, values).run(tree, levels);
}

}  // namespace modtree
