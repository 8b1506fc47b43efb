// SPDX-License-Identifier: BSD-3-Clause
// NumPy's C API, imported once per extension: bind/bind_tensor.cpp defines MODTREE_IMPORT_ARRAY,
// every other file shares its table.
#pragma once

#include <pybind11/pytypes.h>

#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL modtree_numpy_api
#ifndef MODTREE_IMPORT_ARRAY
#define NO_IMPORT_ARRAY
#endif

#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#endif
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
