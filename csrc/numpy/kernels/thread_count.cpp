// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/thread_count.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>

#if defined(__linux__)
#include <sched.h>

#include <cstdio>
#include <set>
#include <string>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace modtree::kernels {
namespace {

// 0 until it is known.
std::atomic<std::ptrdiff_t> current{0};

#if defined(__linux__)

// The number of the first thread of the core that `cpu` belongs to, as text: "0", "0,64" or "0-1".
std::string core_of(int cpu) {
  const std::string path =
      "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list";
  std::string text;
  if (std::FILE *file = std::fopen(path.c_str(), "re")) {
    char line[256];
    if (std::fgets(line, sizeof line, file) != nullptr) {
      text = line;
    }
    std::fclose(file);
  }
  return text.empty() ? "cpu " + std::to_string(cpu) : text;
}

std::ptrdiff_t system_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) {
    return 0;  // more processors than the set has room for
  }
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) {
      cores.insert(core_of(cpu));
    }
  }
  return static_cast<std::ptrdiff_t>(cores.size());
}

#elif defined(__APPLE__)

// The fast cores, where there are slow ones too.
std::ptrdiff_t system_cores() {
  for (const char *name : {"hw.perflevel0.physicalcpu", "hw.physicalcpu"}) {
    int count = 0;
    std::size_t size = sizeof count;
    if (sysctlbyname(name, &count, &size, nullptr, 0) == 0 && count > 0) {
      return count;
    }
  }
  return 0;
}

#else

std::ptrdiff_t system_cores() { return 0; }

#endif

std::ptrdiff_t default_count() {
  const std::ptrdiff_t cores = core_count();
  const char *mkl = std::getenv("MKL_NUM_THREADS");
  return threads_from(mkl != nullptr ? mkl : std::getenv("OMP_NUM_THREADS"), cores);
}

}  // namespace

std::ptrdiff_t core_count() {
  const std::ptrdiff_t found = system_cores();
  return std::max<std::ptrdiff_t>(found > 0 ? found : std::thread::hardware_concurrency(), 1);
}

std::ptrdiff_t threads_from(const char *text, std::ptrdiff_t cores) {
  if (text == nullptr) {
    return cores;
  }
  char *end = nullptr;
  const long asked = std::strtol(text, &end, 10);
  // OMP_NUM_THREADS may be a list, one number for each level of nesting.
  const bool number = end != text && (*end == '\0' || *end == ',' || *end == ' ');
  return number && asked > 0 ? std::min<std::ptrdiff_t>(asked, cores) : cores;
}

std::ptrdiff_t thread_count() {
  std::ptrdiff_t count = current.load(std::memory_order_relaxed);
  if (count == 0) {
    count = default_count();
    std::ptrdiff_t unknown = 0;
    if (!current.compare_exchange_strong(unknown, count)) {
      count = unknown;
    }
  }
  return count;
}

void set_thread_count(std::ptrdiff_t count) { current.store(std::max<std::ptrdiff_t>(count, 1)); }

}  // namespace modtree::kernels
