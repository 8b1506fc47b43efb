// SPDX-License-Identifier: BSD-3-Clause
// Owned references, made of what the C API returns; null stays null.
#pragma once

#include <pybind11/pytypes.h>

namespace modtree {

using Owned = pybind11::object;

inline Owned steal(PyObject *object) { return pybind11::reinterpret_steal<Owned>(object); }
inline Owned borrow(PyObject *object) { return pybind11::reinterpret_borrow<Owned>(object); }

}  // namespace modtree
