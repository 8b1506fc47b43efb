// SPDX-License-Identifier: BSD-3-Clause
// Values of a table as objects.
#include "module/object.h"
#include "module/split/static_values.h"
#include "python/checked.h"

namespace modtree {

using Kind = StaticContainer::Kind;

py::object StaticMaker::make(const StaticItem &item) {
  if (item.kind != StaticItem::Kind::container) {
    py::object value = item.object();
    return value || !dead_is_none_ ? value : py::none();
  }
  if (made_.empty()) {
    make_all();
  }
  return made_[static_cast<std::size_t>(item.container)];
}

// Mutable containers are there before anything is in them, so that they may be anywhere, in
// themselves too.
void StaticMaker::make_all() {
  const auto count = static_cast<int>(values_.containers.size());
  made_.resize(values_.containers.size());
  for (int i = 0; i < count; ++i) {
    py::object &made = made_[static_cast<std::size_t>(i)];
    switch (values_.containers[static_cast<std::size_t>(i)].kind) {
      case Kind::list:
        made = owned(PyList_New(0));
        break;
      case Kind::dict:
        made = owned(PyDict_New());
        break;
      case Kind::ordered_dict:
        made = owned(new_ordered_dict());
        break;
      case Kind::set:
        made = owned(PySet_New(nullptr));
        break;
      default:
        break;
    }
  }
  for (int i = 0; i < count; ++i) {
    make_immutable(i);
  }
  for (int i = 0; i < count; ++i) {
    fill(i);
  }
}

py::object StaticMaker::item(std::size_t index) const {
  const StaticItem &item = values_.items[index];
  if (item.kind == StaticItem::Kind::container) {
    return made_[static_cast<std::size_t>(item.container)];
  }
  py::object value = item.object();
  if (!value) {
    if (!dead_is_none_) {
      PyErr_SetString(PyExc_RuntimeError, "a value in a plain attribute has died");
      fail();
    }
    value = py::none();
  }
  return value;
}

// With the tuples in it first.
void StaticMaker::make_immutable(int container) {
  struct Level {
    int container;
    std::size_t next;
  };
  std::vector<Level> levels{{container, 0}};
  while (!levels.empty()) {
    if (levels.size() > values_.containers.size()) {
      PyErr_SetString(PyExc_ValueError, "a tuple in a plain attribute is in itself");
      fail();
    }
    Level &level = levels.back();
    const auto place = static_cast<std::size_t>(level.container);
    const StaticContainer &known = values_.containers[place];
    if (!made_[place] && level.next < known.count) {
      const StaticItem &inner = values_.items[known.first + level.next++];
      if (inner.kind == StaticItem::Kind::container &&
          !made_[static_cast<std::size_t>(inner.container)]) {
        levels.push_back({inner.container, 0});
      }
      continue;
    }
    levels.pop_back();
    if (made_[place]) {
      continue;
    }
    const py::object list = owned(PyList_New(0));
    for (std::size_t i = 0; i < known.count; ++i) {
      const py::object value = item(known.first + i);
      check(PyList_Append(list.ptr(), value.ptr()));
    }
    if (known.kind == Kind::frozenset) {
      made_[place] = owned(PyFrozenSet_New(list.ptr()));
    } else if (!known.type) {
      made_[place] = owned(PyList_AsTuple(list.ptr()));
    } else {
      const py::object args = owned(PyTuple_Pack(1, list.ptr()));
      made_[place] = owned(PyTuple_Type.tp_new(reinterpret_cast<PyTypeObject *>(known.type.ptr()),
                                               args.ptr(), nullptr));
    }
  }
}

void StaticMaker::fill(int container) {
  const StaticContainer &known = values_.containers[static_cast<std::size_t>(container)];
  const py::object made = made_[static_cast<std::size_t>(container)];
  for (std::size_t i = 0; i < known.count; ++i) {
    const py::object value = item(known.first + i);
    switch (known.kind) {
      case Kind::list:
        check(PyList_Append(made.ptr(), value.ptr()));
        break;
      case Kind::set:
        check(PySet_Add(made.ptr(), value.ptr()));
        break;
      case Kind::dict:
      case Kind::ordered_dict: {
        const py::object inner = item(known.first + ++i);
        check(PyObject_SetItem(made.ptr(), value.ptr(), inner.ptr()));
        break;
      }
      default:
        return;
    }
  }
}

}  // namespace modtree
