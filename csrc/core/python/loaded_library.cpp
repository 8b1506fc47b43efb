// SPDX-License-Identifier: BSD-3-Clause
#include "python/loaded_library.h"

#ifndef _WIN32
#include <dlfcn.h>
#endif

namespace modtree {

void *find_in_loaded_library(const char *library, const char *symbol) {
#ifdef _WIN32
  (void)library;
  (void)symbol;
  return nullptr;
#else
  void *loaded = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  if (!loaded) {
    return nullptr;
  }
  // Counted: the caller keeps what is found for ever, so the library stays.
  return dlsym(loaded, symbol);
#endif
}

}  // namespace modtree
