// SPDX-License-Identifier: BSD-3-Clause
// Functions of shared libraries that the process has loaded already.
#pragma once

namespace modtree {

// The address of a symbol of the library with this path, or of one that it needs. Null where the
// library is not loaded or has no such symbol, and on Windows.
void *find_in_loaded_library(const char *library, const char *symbol);

}  // namespace modtree
