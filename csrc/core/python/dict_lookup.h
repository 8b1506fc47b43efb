// SPDX-License-Identifier: BSD-3-Clause
// Finds a str in a dict, and goes through its items, without a call: where the layout of CPython's
// tables is known, and through its own functions elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "python/compat.h"
#include "python/prefetch.h"

namespace modtree {

enum class Lookup { found, missing, unsure };

struct DictEntry {
  PyObject *key;
  PyObject *value;
};

#if MODTREE_KNOWS_DICT_TABLES

// The head of a dict's table, as it has been from 3.11 on: `indices` follow, 1 << log2_size of
// them, then the entries.
struct DictTable {
  Py_ssize_t refcnt;
  std::uint8_t log2_size;
  std::uint8_t log2_index_bytes;
  std::uint8_t kind;
  std::uint32_t version;
  Py_ssize_t usable;
  Py_ssize_t entry_count;
};
constexpr std::uint8_t kOnlyStrKeys = 1;  // each of the type str itself; values beside the keys

// True if the layout is as described; checked at import, before the first look-up.
inline bool dict_tables_are_known = false;

// The entries of the dict's table, or null where they are stored otherwise: beside keys of other
// types, or keys that instances share, whose values are elsewhere. Valid until the dict changes.
inline const DictEntry *entries_of(PyObject *dict, Py_ssize_t *count) {
  const auto *object = reinterpret_cast<PyDictObject *>(dict);
  const auto *table = reinterpret_cast<const DictTable *>(object->ma_keys);
  if (table->kind != kOnlyStrKeys) {
    return nullptr;
  }
  *count = table->entry_count;
  const auto *indices = reinterpret_cast<const char *>(table + 1);
  // Up to eight places, as nearly every registry has: by a branch, which is predicted, the address
  // of the entries does not wait for the read of the table.
  if (table->log2_index_bytes == 3) {
    return reinterpret_cast<const DictEntry *>(indices + 8);
  }
  return reinterpret_cast<const DictEntry *>(indices + (std::size_t{1} << table->log2_index_bytes));
}

// Looks for `key`, an exact str with a hash, by identity, and by hash as a sign that an equal one
// may be there. Runs no user code. `*value` is borrowed.
inline Lookup look_up_hashed(PyObject *dict, PyObject *key, PyObject **value) {
  const auto *object = reinterpret_cast<PyDictObject *>(dict);
  const auto *table = reinterpret_cast<const DictTable *>(object->ma_keys);
  const auto hash = static_cast<std::size_t>(reinterpret_cast<PyASCIIObject *>(key)->hash);
  // Only keys that instances share have values elsewhere. Tables above 128 places have wider
  // indices: not those of a module.
  if (table->kind != kOnlyStrKeys || table->log2_size >= 8) {
    return Lookup::unsure;
  }
  const auto *indices = reinterpret_cast<const std::int8_t *>(table + 1);
  const std::size_t mask = (std::size_t{1} << table->log2_size) - 1;
  const auto *entries = reinterpret_cast<const DictEntry *>(indices + mask + 1);
  std::size_t perturb = hash;
  for (std::size_t place = hash & mask;;) {
    const int index = indices[place];
    if (index >= 0) {
      PyObject *found = entries[index].key;
      if (found == key) {
        *value = entries[index].value;
        return Lookup::found;
      }
      if (static_cast<std::size_t>(reinterpret_cast<PyASCIIObject *>(found)->hash) == hash) {
        return Lookup::unsure;
      }
    } else if (index == -1) {
      return Lookup::missing;
    }
    perturb >>= 5;
    place = (place * 5 + perturb + 1) & mask;
  }
}

// The same for any str.
inline Lookup look_up_str(PyObject *dict, PyObject *key, PyObject **value) {
  return has_hash(key) && PyUnicode_CheckExact(key) ? look_up_hashed(dict, key, value)
                                                    : Lookup::unsure;
}

// The same for an interned str, which has a hash, and any mapping: unsure for one that is not a
// dict.
inline Lookup look_up_interned(PyObject *mapping, PyObject *key, PyObject **value) {
  return dict_tables_are_known && PyDict_Check(mapping) ? look_up_hashed(mapping, key, value)
                                                        : Lookup::unsure;
}

// True if the dict certainly has only exact strs as keys, so that no search for one runs user code.
inline bool has_only_strs(PyObject *dict) {
  Py_ssize_t count;
  return dict_tables_are_known && entries_of(dict, &count) != nullptr;
}

// As dict_get_str(), which see.
inline PyObject *dict_find_str(PyObject *dict, PyObject *key) {
  if (dict_tables_are_known) {
    PyObject *value = nullptr;
    const Lookup looked_up = look_up_str(dict, key, &value);
    if (looked_up != Lookup::unsure) {
      return value;
    }
  }
  return dict_get_str(dict, key);
}

// 1 if the dict has the key, -1 with an error set.
inline int dict_contains_str(PyObject *dict, PyObject *key) {
  if (dict_tables_are_known) {
    PyObject *value = nullptr;
    const Lookup looked_up = look_up_str(dict, key, &value);
    if (looked_up != Lookup::unsure) {
      return looked_up == Lookup::found;
    }
  }
  return dict_get_str(dict, key) ? 1 : PyErr_Occurred() ? -1 : 0;
}

// True only when the dict has no key that equals the str. Runs no user code.
inline bool dict_lacks_str(PyObject *dict, PyObject *key) {
  PyObject *value;
  return PyDict_GET_SIZE(dict) == 0 ||
         (dict_tables_are_known && look_up_str(dict, key, &value) == Lookup::missing);
}

// What PyDict_Next() gives from `position` on; without a value at the end. Out of line and by
// value, so that the loops that hardly ever need it keep theirs in registers.
struct DictItem {
  Py_ssize_t position;
  PyObject *key;
  PyObject *value;
};
DictItem dict_item_by_call(PyObject *dict, Py_ssize_t position);
inline bool next_by_call(PyObject *dict, Py_ssize_t *position, PyObject **key, PyObject **value) {
  const DictItem item = dict_item_by_call(dict, *position);
  *position = item.position;
  *key = item.key;
  *value = item.value;
  return item.value != nullptr;
}

// The same where the entries are known.
inline bool next_entry(const DictEntry *entries, Py_ssize_t count, Py_ssize_t *position,
                       PyObject **key, PyObject **value) {
  for (Py_ssize_t place = *position; place < count; ++place) {
    if (PyObject *found = entries[place].value) {
      *position = place + 1;
      *key = entries[place].key;
      *value = found;
      return true;
    }
  }
  return false;
}

// As PyDict_Next(), which see: `*position` means the same. For an exact dict.
inline bool dict_next(PyObject *dict, Py_ssize_t *position, PyObject **key, PyObject **value) {
  Py_ssize_t count;
  const DictEntry *entries = dict_tables_are_known ? entries_of(dict, &count) : nullptr;
  return entries ? next_entry(entries, count, position, key, value)
                 : next_by_call(dict, position, key, value);
}

// The same where every key is of the type str itself; false where that is not known, too. `*far`:
// the value some places later, or null, for prefetching.
inline bool dict_next_str(PyObject *dict, Py_ssize_t *position, PyObject **key, PyObject **value,
                          int places, PyObject **far) {
  Py_ssize_t count;
  const DictEntry *entries = dict_tables_are_known ? entries_of(dict, &count) : nullptr;
  *far = nullptr;
  if (!entries) {
    return next_by_call(dict, position, key, value) && PyUnicode_CheckExact(*key);
  }
  if (!next_entry(entries, count, position, key, value)) {
    return false;
  }
  if (const Py_ssize_t place = *position - 1 + places; place < count) {
    *far = entries[place].value;
  }
  return true;
}

// Finds the entries of a dict again in a few instructions, for a caller that reads one after the
// other while the dict may change: what was asked of its table holds for every table with the same
// two bytes.
class DictEntries {
public:
  DictEntries() = default;
  explicit DictEntries(PyObject *dict) {
    Py_ssize_t count;
    if (const DictEntry *entries = dict_tables_are_known ? entries_of(dict, &count) : nullptr) {
      const DictTable *table = table_of(dict);
      offset_ = static_cast<std::uint32_t>(reinterpret_cast<const char *>(entries) -
                                           reinterpret_cast<const char *>(table));
      std::memcpy(shape_, &table->log2_index_bytes, sizeof shape_);
    }
  }

  // Null where they are stored otherwise now. There are as many as the dict has ever had since its
  // table was made, so at least as many as it has items.
  const DictEntry *of(PyObject *dict) const {
    const DictTable *table = table_of(dict);
    return std::memcmp(&table->log2_index_bytes, shape_, sizeof shape_) == 0
               ? reinterpret_cast<const DictEntry *>(reinterpret_cast<const char *>(table) +
                                                     offset_)
               : nullptr;
  }

private:
  static const DictTable *table_of(PyObject *dict) {
    return reinterpret_cast<const DictTable *>(reinterpret_cast<PyDictObject *>(dict)->ma_keys);
  }
  static_assert(offsetof(DictTable, kind) == offsetof(DictTable, log2_index_bytes) + 1);

  std::uint32_t offset_ = 0;
  std::uint8_t shape_[2] = {0xFF, 0xFF};  // log2_index_bytes and kind; no table has these
};

// The value that dict_next() comes to some places after `position`, or null where nobody knows:
// for prefetching. Borrowed.
inline PyObject *dict_value_ahead(PyObject *dict, Py_ssize_t position, int places) {
  Py_ssize_t count;
  const DictEntry *entries = dict_tables_are_known ? entries_of(dict, &count) : nullptr;
  return entries && position + places < count ? entries[position + places].value : nullptr;
}

// Asks for what dict_next() will read of this dict first: the head of its table and the entries
// after it, which begin in one line of the cache and may end in the second behind. The dict itself
// should be near already.
inline void prefetch_entries(PyObject *dict) {
  const auto *table =
      reinterpret_cast<const char *>(reinterpret_cast<PyDictObject *>(dict)->ma_keys);
  prefetch(table);
  prefetch(table + 64);
  prefetch(table + 127);
}

// dict_next() in a loop during which the dict does not change at all, so that the place of its
// entries is asked for once.
class UnchangedDict {
public:
  explicit UnchangedDict(PyObject *dict)
      : dict_(dict),
        entries_(dict_tables_are_known ? entries_of(dict, &count_) : nullptr) {}

  bool next(Py_ssize_t *position, PyObject **key, PyObject **value) const {
    return entries_ ? next_entry(entries_, count_, position, key, value)
                    : next_by_call(dict_, position, key, value);
  }

  // True only if there is certainly no entry from this position on.
  bool ends_at(Py_ssize_t position) const { return entries_ && position >= count_; }

  // As dict_value_ahead().
  PyObject *ahead(Py_ssize_t position, int places) const {
    return entries_ && position + places < count_ ? entries_[position + places].value : nullptr;
  }

private:
  PyObject *dict_;
  Py_ssize_t count_ = 0;
  const DictEntry *entries_;
};

// Borrowed value of the str, or null without an error: where there is none, and where finding it
// could run user code.
inline PyObject *dict_peek_str(PyObject *dict, PyObject *key) {
  PyObject *value = nullptr;
  return dict_tables_are_known && look_up_str(dict, key, &value) == Lookup::found ? value : nullptr;
}

#else

inline bool dict_next(PyObject *dict, Py_ssize_t *position, PyObject **key, PyObject **value) {
  return dict_next_item(dict, position, key, value);
}

inline bool dict_next_str(PyObject *dict, Py_ssize_t *position, PyObject **key, PyObject **value,
                          int, PyObject **far) {
  *far = nullptr;
  return dict_next_item(dict, position, key, value) && PyUnicode_CheckExact(*key);
}

class DictEntries {
public:
  DictEntries() = default;
  explicit DictEntries(PyObject *) {}
  const DictEntry *of(PyObject *) const { return nullptr; }
};

inline bool has_only_strs(PyObject *) { return false; }

inline Lookup look_up_interned(PyObject *, PyObject *, PyObject **) { return Lookup::unsure; }

inline PyObject *dict_value_ahead(PyObject *, Py_ssize_t, int) { return nullptr; }

inline void prefetch_entries(PyObject *) {}

class UnchangedDict {
public:
  explicit UnchangedDict(PyObject *dict) : dict_(dict) {}
  bool next(Py_ssize_t *position, PyObject **key, PyObject **value) const {
    return dict_next_item(dict_, position, key, value);
  }
  bool ends_at(Py_ssize_t) const { return false; }
  PyObject *ahead(Py_ssize_t, int) const { return nullptr; }

private:
  PyObject *dict_;
};

inline bool dict_lacks_str(PyObject *dict, PyObject *) { return PyDict_GET_SIZE(dict) == 0; }

inline PyObject *dict_peek_str(PyObject *, PyObject *) { return nullptr; }

inline PyObject *dict_find_str(PyObject *dict, PyObject *key) { return dict_get_str(dict, key); }

inline int dict_contains_str(PyObject *dict, PyObject *key) {
  return dict_get_str(dict, key) ? 1 : PyErr_Occurred() ? -1 : 0;
}

#endif

// True if an object's own attributes are where peek_own_dict() looks for them; checked at import.
inline bool own_dicts_are_known = false;

// True only if the object itself certainly has nothing under the name. Its class must keep
// attributes as object does. Runs no user code.
inline bool lacks_own_attribute(PyObject *object, PyObject *name) {
  PyObject *dict;
  return own_dicts_are_known && peek_own_dict(object, &dict) &&
         (!dict || dict_lacks_str(dict, name));
}

// Compares look-ups and loops in dicts of many sizes with CPython's own, and lets the functions
// above go without them only when all agree. Called once at import. Throws error_already_set.
void init_dict_lookup();

}  // namespace modtree
