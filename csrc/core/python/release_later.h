// SPDX-License-Identifier: BSD-3-Clause
// Letting go of what a cell held, where another thread may have read the cell a moment before.
//
// With the GIL nobody has: what was replaced is released at once. Without it, a thread in native
// code may be between the read of a cell and the use of what it held, for instance where NumPy
// waits for a lock. So what is replaced lives until every thread that was in native code at that
// moment has left it, or has called Python code, across which nothing is borrowed (epoch-based
// reclamation, K. Fraser, "Practical lock-freedom", 2004).
#pragma once

#include <pybind11/pytypes.h>

#ifdef Py_GIL_DISABLED
#include <atomic>
#include <cstdint>
#include <deque>
#include <limits>
#include <new>
#include <vector>
#ifndef _WIN32
#include <pthread.h>
#endif
#endif

namespace modtree {

#ifdef Py_GIL_DISABLED

// Whether a thread reads cells of ours, and since when.
class Reading {
public:
  using Moment = std::uint64_t;

  // Returns what end() is to be given. Reads that have begun already go on.
  static Moment begin() {
    Record &record = own();
    const Moment before = record.since.load(std::memory_order_relaxed);
    if (before == 0) {
      // Before all reads by load_cell() that follow, in the order that oldest() sees.
      record.since.store(now_.load());
    }
    return before;
  }
  static void end(Moment before) { own().since.store(before, std::memory_order_release); }

  // For a thread that has replaced something and holds the lock of the native section.
  static Moment next_moment() { return now_.fetch_add(1); }
  // Moments before this one are over for every thread.
  static Moment oldest() {
    Moment oldest = std::numeric_limits<Moment>::max();
    for (const Record *record = records_.load(); record; record = record->next) {
      const Moment since = record->since.load();
      if (since != 0 && since < oldest) {
        oldest = since;
      }
    }
    return oldest;
  }

  // In a child of fork(), which has none of the other threads.
  static void forget_others() {
    for (Record *record = records_.load(); record; record = record->next) {
      if (record != record_) {
        record->since = 0;
        record->is_taken = false;
      }
    }
  }

private:
  // One for each thread that runs at the same time; never freed.
  struct Record {
    std::atomic<Moment> since{0};  // 0: it reads nothing
    std::atomic<bool> is_taken{true};
    Record *next = nullptr;
  };
  // Gives a thread's record back at its end.
  struct Holder {
    ~Holder() {
      if (record_) {
        record_->is_taken = false;
        record_ = nullptr;
      }
    }
  };

  static Record &own() { return record_ ? *record_ : take_record(); }
  static Record &take_record() {
    static thread_local Holder holder;
    for (Record *record = records_.load(); record && !record_; record = record->next) {
      bool is_taken = false;
      if (record->is_taken.compare_exchange_strong(is_taken, true)) {
        record_ = record;
      }
    }
    if (!record_) {
      record_ = new Record();
      record_->next = records_.load();
      while (!records_.compare_exchange_weak(record_->next, record_)) {
      }
    }
    return *record_;
  }

  static inline std::atomic<Moment> now_{1};
  static inline std::atomic<Record *> records_{nullptr};
  static inline thread_local Record *record_ = nullptr;
};

// What was replaced, until nobody reads it any more. Changed in the native section only.
class Replaced {
public:
  struct Item {
    Reading::Moment at;
    void *what;
    void (*release)(void *);
  };

  static void add(void *what, void (*release)(void *)) noexcept {
    try {
      items_.push_back({Reading::next_moment(), what, release});
    } catch (const std::bad_alloc &) {  // it lives for ever
    }
  }

  static bool is_empty() { return items_.empty(); }

  // Takes out what nobody reads any more, for the caller to release outside of the section.
  static std::vector<Item> take() noexcept {
    std::vector<Item> taken;
    try {
      for (const Reading::Moment oldest = Reading::oldest();
           !items_.empty() && items_.front().at < oldest; items_.pop_front()) {
        taken.push_back(items_.front());
      }
    } catch (const std::bad_alloc &) {  // the next one takes it
    }
    return taken;
  }

private:
  static inline std::deque<Item> items_;
};

#endif

}  // namespace modtree
