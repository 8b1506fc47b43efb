// SPDX-License-Identifier: BSD-3-Clause
#include "python/internals.h"

#include <cstdlib>
#include <string_view>

namespace modtree {

bool may_know_internals(const std::string &part) {
#ifdef MODTREE_NO_INTERNALS
  (void)part;
  return false;
#else
  const char *variable = std::getenv("MODTREE_NO_INTERNALS");
  std::string_view left(variable ? variable : "");
  while (!left.empty()) {
    const std::string_view named = left.substr(0, left.find(','));
    if (named == part || named == "all") {
      return false;
    }
    left.remove_prefix(named.size() < left.size() ? named.size() + 1 : left.size());
  }
  return true;
#endif
}

}  // namespace modtree
