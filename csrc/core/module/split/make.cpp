// SPDX-License-Identifier: BSD-3-Clause
// The way back from a structure: new modules, and containers around modules.
#include "module/split/structure.h"
#include "module/type.h"
#include "python/call.h"
#include "python/checked.h"

namespace modtree {

namespace {

class Maker {
public:
  Maker(const Structure &structure, py::handle leaves, py::handle known)
      : structure_(structure),
        leaves_(owned(PySequence_Tuple(leaves.ptr()))),
        values_(structure.values, false),
        known_(known.is_none() ? py::object() : owned(PySequence_Tuple(known.ptr()))) {
    const auto count = static_cast<Py_ssize_t>(structure.modules.size());
    if (PyTuple_GET_SIZE(leaves_.ptr()) != structure.leaf_count ||
        (known_ && PyTuple_GET_SIZE(known_.ptr()) != count)) {
      PyErr_Format(PyExc_ValueError, "the structure has %d leaves and %zd modules, got %zd leaves",
                   structure.leaf_count, count, PyTuple_GET_SIZE(leaves_.ptr()));
      fail();
    }
  }

  std::vector<py::object> run() {
    for (std::size_t i = 0; i < structure_.modules.size(); ++i) {
      made_.push_back(make(i));
    }
    for (std::size_t i = 0; i < made_.size(); ++i) {
      if (!known(i)) {
        add_children(i);
      }
    }
    return std::move(made_);
  }

private:
  py::object known(std::size_t index) const {
    if (!known_) {
      return {};
    }
    PyObject *module = PyTuple_GET_ITEM(known_.ptr(), static_cast<Py_ssize_t>(index));
    if (module != Py_None && !is_module(module)) {
      PyErr_Format(PyExc_TypeError, "expected a module or None, got %.200s",
                   Py_TYPE(module)->tp_name);
      fail();
    }
    return py::reinterpret_borrow<py::object>(module == Py_None ? nullptr : module);
  }

  py::object make(std::size_t index) {
    if (py::object module = known(index)) {
      return module;
    }
    const ModuleRecord &record = structure_.modules[index];
    py::object made =
        owned(module_tp_new(reinterpret_cast<PyTypeObject *>(record.type.ptr()), nullptr, nullptr));
    if (!is_module(made.ptr())) {
      PyErr_Format(PyExc_TypeError, "%R does not make modules", record.type.ptr());
      fail();
    }
    ModuleObject *module = as_module(made.ptr());
    check(reset_state(module));
    check(store_slot(module, Slot::training, record.training.ptr()));
    add_leaves(module, Slot::parameters, record.first_place, record.parameters);
    add_leaves(module, Slot::buffers, record.first_place + record.parameters, record.buffers);
    if (record.non_persistent) {
      const py::object names_of = owned(PySet_New(record.non_persistent.ptr()));
      check(store_slot(module, Slot::non_persistent_buffers_set, names_of.ptr()));
    }
    add_hooks(module, record);
    add_attributes(module, index);
    return made;
  }

  void add_leaves(ModuleObject *module, Slot slot, int first, int count) {
    if (count == 0) {
      return;
    }
    const py::object table = owned(default_value(slot));
    for (int i = first; i < first + count; ++i) {
      const LeafPlace &place = structure_.places[static_cast<std::size_t>(i)];
      PyObject *leaf = place.leaf < 0 ? Py_None : PyTuple_GET_ITEM(leaves_.ptr(), place.leaf);
      check(PyDict_SetItem(table.ptr(), place.name.ptr(), leaf));
    }
    check(store_slot(module, slot, table.ptr()));
  }

  void add_children(std::size_t index) {
    const ModuleRecord &record = structure_.modules[index];
    if (record.children == 0) {
      return;
    }
    const py::object table = owned(default_value(Slot::modules));
    for (int i = record.first_child; i < record.first_child + record.children; ++i) {
      const ChildPlace &place = structure_.children[static_cast<std::size_t>(i)];
      PyObject *child =
          place.module < 0 ? Py_None : made_[static_cast<std::size_t>(place.module)].ptr();
      check(PyDict_SetItem(table.ptr(), place.name.ptr(), child));
    }
    check(store_slot(as_module(made_[index].ptr()), Slot::modules, table.ptr()));
  }

  void add_hooks(ModuleObject *module, const ModuleRecord &record) {
    for (int i = 0; record.hooks && i < kHookSlots; ++i) {
      const StaticItem &item = (*record.hooks)[static_cast<std::size_t>(i)];
      py::object value = values_.make(item);
      if (!value) {
        continue;
      }
      // A table of another class: of its own too, made by that class.
      if (item.kind != StaticItem::Kind::container && PyDict_Check(value.ptr())) {
        value = call_method(value, "copy");
      }
      check(value ? store_slot(module, static_cast<Slot>(kFirstHookSlot + i), value.ptr()) : -1);
    }
  }

  void add_attributes(ModuleObject *module, std::size_t index) {
    const ModuleRecord &record = structure_.modules[index];
    const StaticAttribute *attributes = structure_.attributes.data() + record.first_attribute;
    for (int i = 0; i < record.attributes; ++i) {
      const StaticAttribute &attribute = attributes[i];
      const py::object value = values_.make(attribute.value);
      if (!value) {
        const py::object path = structure_.path_of(static_cast<int>(index));
        PyErr_Format(PyExc_RuntimeError, "%R: the value of the attribute %R has died", path.ptr(),
                     attribute.name.ptr());
        fail();
      }
      const SpecialName *special = find_special_name(attribute.name.ptr());
      if (special && special->is_virtual) {
        module->state.instance_overrides = true;
      }
      check(store_attribute(module, attribute.name.ptr(), value.ptr()));
    }
  }

  const Structure &structure_;
  py::object leaves_;
  StaticMaker values_;
  py::object known_;
  std::vector<py::object> made_;
};

class Containers {
public:
  Containers(const Structure &structure, const std::vector<py::object> &modules, py::handle others)
      : structure_(structure),
        modules_(modules),
        others_(owned(PySequence_Tuple(others.ptr()))) {
    if (PyTuple_GET_SIZE(others_.ptr()) != structure.other_count ||
        modules.size() != structure.modules.size()) {
      PyErr_Format(PyExc_ValueError,
                   "the structure has %zd modules and %d other values, got %zd "
                   "and %zd",
                   static_cast<Py_ssize_t>(structure.modules.size()), structure.other_count,
                   static_cast<Py_ssize_t>(modules.size()), PyTuple_GET_SIZE(others_.ptr()));
      fail();
    }
  }

  py::object next() {
    const TreeNode &node = structure_.nodes[node_++];
    switch (node.kind) {
      case TreeNode::Kind::module:
        return modules_[static_cast<std::size_t>(node.index)];
      case TreeNode::Kind::other:
        return py::reinterpret_borrow<py::object>(PyTuple_GET_ITEM(others_.ptr(), other_++));
      case TreeNode::Kind::dict: {
        py::object dict = owned(node.type ? new_ordered_dict() : PyDict_New());
        for (const py::object &key : node.keys) {
          const py::object value = next();
          check(PyObject_SetItem(dict.ptr(), key.ptr(), value.ptr()));
        }
        return dict;
      }
      default:
        break;
    }
    py::object list = owned(PyList_New(0));
    for (int i = 0; i < node.count; ++i) {
      const py::object item = next();
      check(PyList_Append(list.ptr(), item.ptr()));
    }
    if (node.kind == TreeNode::Kind::list) {
      return list;
    }
    if (!node.type) {
      return owned(PyList_AsTuple(list.ptr()));
    }
    py::object named = call_method(node.type, "_make", list);
    if (!named) {
      fail();
    }
    return named;
  }

private:
  const Structure &structure_;
  const std::vector<py::object> &modules_;
  py::object others_;
  std::size_t node_ = 0;
  Py_ssize_t other_ = 0;
};

}  // namespace

std::vector<py::object> make_modules(const Structure &structure, py::handle leaves,
                                     py::handle known) {
  return Maker(structure, leaves, known).run();
}

py::object rebuild_containers(const Structure &structure, const std::vector<py::object> &modules,
                              py::handle others) {
  return Containers(structure, modules, others).next();
}

}  // namespace modtree
