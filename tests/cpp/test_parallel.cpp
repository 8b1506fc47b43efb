// SPDX-License-Identifier: BSD-3-Clause
#include <atomic>
#include <cfenv>
#include <cstddef>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "kernels/parallel.h"
#include "kernels/softmax.h"
#include "samples.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MODTREE_TEST_UNDER_TSAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define MODTREE_TEST_UNDER_TSAN 1
#endif
// ThreadSanitizer ends a process that forks and then makes threads.
#if (defined(__unix__) || defined(__APPLE__)) && !defined(MODTREE_TEST_UNDER_TSAN)
#include <sys/wait.h>
#include <unistd.h>
#define MODTREE_TEST_FORKS 1
#endif

using namespace modtree::kernels;

namespace {

// So much work for each part that each may become a piece.
constexpr double kMuch = 1 << 17;

std::vector<int> visits(std::ptrdiff_t count, double work) {
  std::vector<int> seen(static_cast<std::size_t>(count));
  parallel_for(count, work, [&](std::ptrdiff_t first, std::ptrdiff_t last) {
    CHECK(0 <= first && first < last && last <= count);
    for (std::ptrdiff_t i = first; i < last; ++i) {
      ++seen[static_cast<std::size_t>(i)];
    }
  });
  return seen;
}

void check_each_part_is_done_once() {
  for (const std::ptrdiff_t threads : {1, 2, 3, 5, 16}) {
    set_thread_count(threads);
    for (const std::ptrdiff_t count : {1, 2, 3, 7, 64, 1000, 4097}) {
      for (const double work : {0.0, 1.0, 1000.0, kMuch, 1e30}) {
        CHECK(visits(count, work) == std::vector<int>(static_cast<std::size_t>(count), 1));
      }
    }
    parallel_for(0, kMuch, [](std::ptrdiff_t, std::ptrdiff_t) { CHECK(false); });
  }
}

void check_values_begin_at_blocks() {
  set_thread_count(3);
  for (const std::ptrdiff_t n : {1, 1023, 1024, 1025, 100000}) {
    std::atomic<std::ptrdiff_t> total{0};
    parallel_values(n, kMuch, [&](std::ptrdiff_t first, std::ptrdiff_t last) {
      CHECK(first % kValueBlock == 0 && (last == n || last % kValueBlock == 0));
      total += last - first;
    });
    CHECK(total == n);
  }
}

void check_little_work_stays_here() {
  set_thread_count(4);
  const auto here = std::this_thread::get_id();
  parallel_for(100, 1.0, [&](std::ptrdiff_t first, std::ptrdiff_t last) {
    CHECK(first == 0 && last == 100 && std::this_thread::get_id() == here);
  });
}

void check_others_take_part() {
  set_thread_count(2);
  // Each of two pieces waits until the other has begun.
  std::atomic<int> begun{0};
  parallel_for(2, kMuch, [&](std::ptrdiff_t first, std::ptrdiff_t last) {
    CHECK(last - first == 1);
    ++begun;
    while (begun < 2) {
      std::this_thread::yield();
    }
  });
  CHECK(begun == 2);
}

template <class Error>
void check_error_arrives(const Error &error) {
  for (int i = 0; i < 200; ++i) {
    bool caught = false;
    try {
      parallel_for(64, kMuch, [&](std::ptrdiff_t first, std::ptrdiff_t) {
        if (first >= 32) {
          throw error;
        }
      });
    } catch (const Error &) {
      caught = true;
    }
    CHECK(caught);
  }
  CHECK(visits(64, kMuch) == std::vector<int>(64, 1));
}

void check_work_inside_work() {
  set_thread_count(4);
  std::atomic<int> total{0};
  parallel_for(8, kMuch, [&](std::ptrdiff_t first, std::ptrdiff_t last) {
    for (std::ptrdiff_t i = first; i < last; ++i) {
      parallel_for(8, kMuch, [&](std::ptrdiff_t inner_first, std::ptrdiff_t inner_last) {
        total += static_cast<int>(inner_last - inner_first);
      });
    }
  });
  CHECK(total == 64);
}

void check_many_callers() {
  set_thread_count(3);
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 6; ++caller) {
    callers.emplace_back([] {
      for (int i = 0; i < 300; ++i) {
        CHECK(visits(50, kMuch) == std::vector<int>(50, 1));
      }
    });
  }
  for (std::thread &caller : callers) {
    caller.join();
  }
}

void check_number_may_change() {
  set_thread_count(2);
  std::atomic<bool> stop{false};
  std::thread changer([&] {
    for (std::ptrdiff_t count = 1; !stop; count = count % 6 + 1) {
      set_thread_count(count);
    }
  });
  for (int i = 0; i < 1000; ++i) {
    CHECK(visits(50, kMuch) == std::vector<int>(50, 1));
  }
  stop = true;
  changer.join();
}

void check_rounding_is_the_callers() {
  set_thread_count(4);
  std::fesetround(FE_UPWARD);
  std::atomic<int> other{0};
  for (int i = 0; i < 100; ++i) {
    parallel_for(16, kMuch, [&](std::ptrdiff_t, std::ptrdiff_t) {
      other += std::fegetround() != FE_UPWARD;
      std::this_thread::yield();
    });
  }
  std::fesetround(FE_TONEAREST);
  CHECK(other == 0);
}

void check_fork() {
#ifdef MODTREE_TEST_FORKS
  set_thread_count(3);
  visits(50, kMuch);  // the threads are there
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      const bool right = visits(50, kMuch) == std::vector<int>(50, 1);
      check_others_take_part();
      _exit(right ? 0 : 1);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    visits(50, kMuch);
  }
#endif
}

void check_environment() {
  CHECK(threads_from(nullptr, 8) == 8);
  CHECK(threads_from("3", 8) == 3);
  CHECK(threads_from("3,2", 8) == 3);
  CHECK(threads_from(" 3 ", 8) == 3);
  CHECK(threads_from("12", 8) == 8);
  for (const char *text : {"", "0", "-1", "x", "3x", "99999999999999999999999"}) {
    CHECK(threads_from(text, 8) == 8);
  }
  CHECK(core_count() >= 1);
}

void check_bits() {
  const std::ptrdiff_t rows = 301, n = 1003;
  const auto x = values<float>(rows * n, 1, 8.0);
  std::vector<float> expected(x.size()), got(x.size());
  set_thread_count(1);
  softmax(x.data(), expected.data(), rows, n);
  for (const std::ptrdiff_t threads : {2, 3, 5}) {
    set_thread_count(threads);
    softmax(x.data(), got.data(), rows, n);
    CHECK(got == expected);
  }
}

}  // namespace

int main() {
  check_environment();
  check_each_part_is_done_once();
  check_values_begin_at_blocks();
  check_little_work_stays_here();
  check_others_take_part();
  check_error_arrives(std::bad_alloc());
  check_error_arrives(std::runtime_error("of a piece"));
  check_work_inside_work();
  check_many_callers();
  check_number_may_change();
  check_rounding_is_the_callers();
  check_fork();
  check_bits();
  return 0;
}
