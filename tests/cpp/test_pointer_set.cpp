// SPDX-License-Identifier: BSD-3-Clause
#include "module/walk/pointer_set.h"

#include <vector>

#include "check.h"

using modtree::PointerSet;

int main() {
  std::vector<long long> objects(20000);
  PointerSet set;
  for (auto &object : objects) {
    CHECK(!set.contains(&object));
    CHECK(set.insert(&object));
    CHECK(!set.insert(&object));
    CHECK(set.contains(&object));
  }
  CHECK(set.size() == objects.size());

  std::size_t visited = 0;
  set.for_each([&](const void *) { ++visited; });
  CHECK(visited == objects.size());

  // Erasing every second one keeps the others reachable through their probe runs.
  for (std::size_t i = 0; i < objects.size(); i += 2) {
    set.erase(&objects[i]);
  }
  for (std::size_t i = 0; i < objects.size(); ++i) {
    CHECK(set.contains(&objects[i]) == (i % 2 == 1));
  }
  set.erase(&objects[0]);
  CHECK(set.size() == objects.size() / 2);
  return 0;
}
