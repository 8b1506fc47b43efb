// SPDX-License-Identifier: BSD-3-Clause
// Values to compute with, and what counts as equal.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

// From -scale to scale.
template <class T>
std::vector<T> values(std::ptrdiff_t n, std::uint32_t seed, double scale = 1.0) {
  std::vector<T> out(static_cast<std::size_t>(n));
  std::uint32_t state = seed * 7919u + 12345u;
  for (auto &v : out) {
    state = state * 1664525u + 1013904223u;
    v = static_cast<T>(scale * (static_cast<double>(state >> 8) / 8388608.0 - 1.0));
  }
  return out;
}

template <class T>
bool close(T got, double expected) {
  const double tolerance = sizeof(T) == 4 ? 3e-6 : 1e-12;
  return std::fabs(static_cast<double>(got) - expected) <= tolerance * (1.0 + std::fabs(expected));
}
