// SPDX-License-Identifier: BSD-3-Clause
// CHECK(condition) for the C++ tests: prints the failing line and makes the program exit with 1.
#pragma once

#include <cstdio>
#include <cstdlib>

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      std::fprintf(stderr, "%s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #condition);           \
      std::exit(1);                                                                                \
    }                                                                                              \
  } while (false)
