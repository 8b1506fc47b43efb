// SPDX-License-Identifier: BSD-3-Clause
#include "python/ordered_dict.h"

#include <cstring>
#include <utility>
#include <vector>

#include "python/internals.h"
#include "python/owned.h"

namespace modtree {

#if MODTREE_KNOWS_DICT_TABLES

namespace {

namespace py = pybind11;

// One entry, in the list that keeps the order; owns its key.
struct OrderNode {
  PyObject *key;
  Py_hash_t hash;
  OrderNode *next;
  OrderNode *previous;
};

// An OrderedDict: a dict, the list of its entries, and where in the list each place of the dict's
// table is. That map is for the table `mapped`, and as long as the table has places for indices.
struct OrderedDict {
  PyDictObject dict;
  OrderNode *first;
  OrderNode *last;
  OrderNode **map;
  Py_ssize_t map_size;
  const void *mapped;
  std::size_t changes;
  PyObject *attributes;
  PyObject *weakrefs;
};

// True if CPython's object has this layout; checked at import.
bool ordered_dicts_are_known = false;

const DictTable *table_of(const OrderedDict *dict) {
  return reinterpret_cast<const DictTable *>(dict->dict.ma_keys);
}

const OrderedDict *as_ordered(PyObject *dict) {
  return reinterpret_cast<const OrderedDict *>(dict);
}
OrderedDict *as_writable(PyObject *dict) { return reinterpret_cast<OrderedDict *>(dict); }

Py_ssize_t size_of(const DictTable *table) { return Py_ssize_t{1} << table->log2_size; }

bool is_mapped(const OrderedDict *dict) {
  return dict->mapped == table_of(dict) && dict->map_size == size_of(table_of(dict));
}

// Makes the map for a table that has grown by its last entry, which has no node yet. False, and
// nothing is changed, if entries were removed before or memory runs out: CPython does it then.
bool map_anew(OrderedDict *dict, const DictEntry *entries, Py_ssize_t count) {
  const DictTable *table = table_of(dict);
  const Py_ssize_t size = size_of(table);
  if (dict->dict.ma_used != count) {
    return false;
  }
  auto **map =
      static_cast<OrderNode **>(PyMem_Malloc(static_cast<std::size_t>(size) * sizeof(OrderNode *)));
  if (!map) {
    return false;
  }
  // The entries of the old table come first in the new one, in their order.
  Py_ssize_t known = 0;
  bool agrees = true;
  for (Py_ssize_t i = 0; agrees && i < dict->map_size; ++i) {
    if (OrderNode *node = dict->map[i]) {
      agrees = known < count && entries[known].key == node->key;
      if (agrees) {
        map[known++] = node;
      }
    }
  }
  if (!agrees || known != count - 1) {
    PyMem_Free(map);
    return false;
  }
  std::memset(map + known, 0, static_cast<std::size_t>(size - known) * sizeof(OrderNode *));
  PyMem_Free(dict->map);
  dict->map = map;
  dict->map_size = size;
  dict->mapped = table;
  return true;
}

// Gives the last entry of the dict, which has just come, its node. False, and nothing is changed,
// where CPython has to.
bool append_node(OrderedDict *dict, PyObject *key, Py_hash_t hash) {
  Py_ssize_t count = 0;
  const DictEntry *entries = entries_of(reinterpret_cast<PyObject *>(dict), &count);
  if (!entries || count == 0 || entries[count - 1].key != key || !entries[count - 1].value ||
      (!is_mapped(dict) && !map_anew(dict, entries, count)) || dict->map[count - 1]) {
    return false;
  }
  auto *node = static_cast<OrderNode *>(PyMem_Malloc(sizeof(OrderNode)));
  if (!node) {
    return false;
  }
  *node = OrderNode{Py_NewRef(key), hash, nullptr, dict->last};
  (dict->last ? dict->last->next : dict->first) = node;
  dict->last = node;
  dict->map[count - 1] = node;
  ++dict->changes;
  return true;
}

// --- all entries at once

// True if the dict has these keys and no others.
bool has_keys_of(PyObject *dict, const DictEntry *entries, Py_ssize_t count) {
  Py_ssize_t known = 0;
  const DictEntry *own = entries_of(dict, &known);
  if (!own || known != count || PyDict_GET_SIZE(dict) != count) {
    return false;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (own[i].key != entries[i].key) {
      return false;
    }
  }
  return true;
}

bool is_empty(const OrderedDict *dict) {
  return PyDict_GET_SIZE(&dict->dict) == 0 && !dict->dict.ma_values && !dict->first;
}

// The list of the entries with the map of their places, which belong to no dict yet.
struct Order {
  OrderNode **map;
  OrderNode *first;
  OrderNode *last;
};

// Takes over the references of the keys; false, without doing so, when out of memory.
bool make_order(const DictEntry *entries, Py_ssize_t count, Py_ssize_t size, Order *made) {
  auto **map =
      static_cast<OrderNode **>(PyMem_Calloc(static_cast<std::size_t>(size), sizeof(OrderNode *)));
  OrderNode *previous = nullptr;
  Py_ssize_t place = 0;
  for (; map && place < count; ++place) {
    auto *node = static_cast<OrderNode *>(PyMem_Malloc(sizeof(OrderNode)));
    if (!node) {
      break;
    }
    PyObject *key = entries[place].key;
    *node = OrderNode{key, reinterpret_cast<PyASCIIObject *>(key)->hash, nullptr, previous};
    if (previous) {
      previous->next = node;
    }
    previous = map[place] = node;
  }
  if (!map || place < count) {
    while (place > 0) {
      PyMem_Free(map[--place]);
    }
    PyMem_Free(map);
    return false;
  }
  *made = {map, map[0], previous};
  return true;
}

// --- what is compared at import

// True if the dict, which CPython has filled in the order of its entries, looks as it should.
bool looks_right(PyObject *object) {
  const OrderedDict *dict = as_ordered(object);
  Py_ssize_t count = 0;
  const DictEntry *entries = entries_of(object, &count);
  if (!entries || count != dict->dict.ma_used || !is_mapped(dict)) {
    return false;
  }
  const OrderNode *node = dict->first, *previous = nullptr;
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!node || node != dict->map[i] || node->previous != previous ||
        node->key != entries[i].key || node->hash != PyObject_Hash(node->key)) {
      return false;
    }
    previous = node;
    node = node->next;
  }
  for (Py_ssize_t i = count; i < dict->map_size; ++i) {
    if (dict->map[i]) {
      return false;
    }
  }
  return !node && dict->last == previous;
}

Owned numbered_key(int number) {
  Owned key = steal(PyUnicode_FromFormat("name%d", number));
  if (!key) {
    throw py::error_already_set();
  }
  return key;
}

// The same keys in the same order, also backwards.
bool have_one_order(PyObject *dict, PyObject *other) {
  for (const char *method : {"__iter__", "__reversed__"}) {
    const Owned mine = steal(PyObject_CallMethod(dict, method, nullptr));
    const Owned theirs = steal(PyObject_CallMethod(other, method, nullptr));
    const Owned list = steal(mine ? PySequence_List(mine.ptr()) : nullptr);
    const Owned expected = steal(theirs ? PySequence_List(theirs.ptr()) : nullptr);
    const int equal =
        list && expected ? PyObject_RichCompareBool(list.ptr(), expected.ptr(), Py_EQ) : -1;
    if (equal < 0) {
      throw py::error_already_set();
    }
    if (!equal) {
      return false;
    }
  }
  return true;
}

void change_order(PyObject *dict, int number) {
  const Owned key = numbered_key(number);
  const Owned moved = steal(PyObject_CallMethod(dict, "move_to_end", "O", key.ptr()));
  if (!moved || PyObject_DelItem(dict, numbered_key(number + 1).ptr()) < 0) {
    throw py::error_already_set();
  }
}

// An OrderedDict filled at once with what is in another, or null where that does not work.
Owned filled_like(PyObject *other) {
  const Owned keys = steal(PyDict_New());
  Owned filled = steal(PyODict_New());
  std::vector<DictEntry> entries;
  if (!keys || !filled || PyDict_Update(keys.ptr(), other) < 0) {
    throw py::error_already_set();
  }
  Py_ssize_t count = 0;
  if (const DictEntry *given = entries_of(keys.ptr(), &count)) {
    entries.assign(given, given + count);
  }
  for (const DictEntry &entry : entries) {
    Py_INCREF(entry.key);
    Py_INCREF(entry.value);
  }
  if (!fill_ordered_dict(filled.ptr(), keys.ptr(), entries.data(), count)) {
    for (const DictEntry &entry : entries) {
      Py_DECREF(entry.key);
      Py_DECREF(entry.value);
    }
    return Owned();
  }
  return filled;
}

bool layout_is_known() {
  constexpr int kNames = 200;
  const Owned theirs = steal(PyODict_New()), ours = steal(PyODict_New());
  if (!theirs || !ours) {
    throw py::error_already_set();
  }
  for (int number = 0; number < kNames; ++number) {
    const Owned key = numbered_key(number);
    const std::size_t changes = as_ordered(theirs.ptr())->changes;
    if (PyODict_SetItem(theirs.ptr(), key.ptr(), Py_None) < 0) {
      throw py::error_already_set();
    }
    if (!looks_right(theirs.ptr()) || as_ordered(theirs.ptr())->changes != changes + 1) {
      return false;
    }
  }
  // What is ours is changed by CPython, and goes on as it does.
  ordered_dicts_are_known = true;
  for (int number = 0; number < kNames; ++number) {
    if (ordered_dict_set(ours.ptr(), numbered_key(number).ptr(), Py_None) < 0) {
      throw py::error_already_set();
    }
  }
  const Owned filled = filled_like(theirs.ptr());
  bool agrees = looks_right(ours.ptr()) && filled && looks_right(filled.ptr());
  for (int number = 0; agrees && number < kNames; number += 40) {
    change_order(theirs.ptr(), number);
    change_order(ours.ptr(), number);
    change_order(filled.ptr(), number);
    agrees = have_one_order(ours.ptr(), theirs.ptr()) && have_one_order(filled.ptr(), theirs.ptr());
  }
  return agrees;
}

}  // namespace

int ordered_dict_set(PyObject *dict, PyObject *key, PyObject *value) {
  const auto *table = table_of(as_ordered(dict));
  if (!ordered_dicts_are_known || !PyUnicode_CheckExact(key) || table->kind != kOnlyStrKeys) {
    return PyODict_SetItem(dict, key, value);
  }
  // With plain strs alone no comparison runs user code, and where the dict grows no value is
  // released: nothing else has run then.
  const Py_ssize_t size = PyDict_GET_SIZE(dict);
  if (PyDict_SetItem(dict, key, value) < 0) {
    return -1;
  }
  if (PyDict_GET_SIZE(dict) <= size) {
    return 0;  // a value was replaced: the entry keeps its place, if the old value's end left it
               // one
  }
  const Py_hash_t hash = reinterpret_cast<PyASCIIObject *>(key)->hash;
  return append_node(as_writable(dict), key, hash) ? 0 : PyODict_SetItem(dict, key, value);
}

bool can_fill_ordered_dicts() { return ordered_dicts_are_known; }

bool can_fill_ordered_dict(PyObject *dict) {
  return ordered_dicts_are_known && is_empty(as_ordered(dict));
}

bool fill_ordered_dict(PyObject *object, PyObject *keys, const DictEntry *entries,
                       Py_ssize_t count) {
  if (count == 0 || !can_fill_ordered_dict(object) || !has_keys_of(keys, entries, count)) {
    return false;
  }
  const Owned copy = steal(PyDict_Copy(keys));
  if (!copy) {
    PyErr_Clear();
    return false;
  }
  // Making the copy may have run the collector, which may have run anything.
  auto *dict = as_writable(object);
  auto *filled = reinterpret_cast<PyDictObject *>(copy.ptr());
  Order order;
  if (!is_empty(dict) || filled->ma_values || !has_keys_of(copy.ptr(), entries, count) ||
      !make_order(entries, count, size_of(reinterpret_cast<const DictTable *>(filled->ma_keys)),
                  &order)) {
    return false;
  }
  auto *places = const_cast<DictEntry *>(entries_of(copy.ptr(), &count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    Py_SETREF(places[i].value, entries[i].value);  // releases None
  }
  std::swap(dict->dict.ma_keys, filled->ma_keys);
  std::swap(dict->dict.ma_used, filled->ma_used);
  PyMem_Free(dict->map);
  dict->map = order.map;
  dict->map_size = size_of(table_of(dict));
  dict->mapped = table_of(dict);
  dict->first = order.first;
  dict->last = order.last;
  dict->changes += static_cast<std::size_t>(count);
  return true;
}

void init_ordered_dict() {
  ordered_dicts_are_known = false;
  ordered_dicts_are_known = may_know_internals("ordered_dict") && dict_tables_are_known &&
                            PyODict_Type.tp_basicsize == sizeof(OrderedDict) && layout_is_known();
}

#else

int ordered_dict_set(PyObject *dict, PyObject *key, PyObject *value) {
  return PyODict_SetItem(dict, key, value);
}

bool fill_ordered_dict(PyObject *, PyObject *, const DictEntry *, Py_ssize_t) { return false; }

bool can_fill_ordered_dicts() { return false; }

bool can_fill_ordered_dict(PyObject *) { return false; }

void init_ordered_dict() {}

#endif

}  // namespace modtree
