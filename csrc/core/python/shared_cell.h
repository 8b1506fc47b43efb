// SPDX-License-Identifier: BSD-3-Clause
// Cells and flags of objects that other threads read outside of the native section, on a CPython
// without the GIL. With it, these are plain reads and writes.
#pragma once

#include <pybind11/pytypes.h>

#include <cstdint>
#include <utility>

namespace modtree {

#ifdef Py_GIL_DISABLED

template <class T>
T *load_cell(T *const *cell) {
  return static_cast<T *>(_Py_atomic_load_ptr(cell));
}
// Returns what the cell held.
template <class T>
T *exchange_cell(T **cell, T *fresh) {
  return static_cast<T *>(_Py_atomic_exchange_ptr(cell, fresh));
}
inline bool load_flag(const bool *flag) {
  return _Py_atomic_load_uint8(reinterpret_cast<const std::uint8_t *>(flag)) != 0;
}
inline void store_flag(bool *flag, bool value) {
  _Py_atomic_store_uint8(reinterpret_cast<std::uint8_t *>(flag), value);
}

#else

template <class T>
T *load_cell(T *const *cell) {
  return *cell;
}
template <class T>
T *exchange_cell(T **cell, T *fresh) {
  return std::exchange(*cell, fresh);
}
inline bool load_flag(const bool *flag) { return *flag; }
inline void store_flag(bool *flag, bool value) { *flag = value; }

#endif

}  // namespace modtree
