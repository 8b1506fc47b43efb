// SPDX-License-Identifier: BSD-3-Clause
// What native code has in the place of the GIL on a CPython without one. With the GIL, the classes
// are empty.
//
// Native code runs in one critical section of the process (PyCriticalSection), which is left where
// a native function calls Python code, and by CPython itself whenever the thread waits: between two
// calls of Python code no other thread runs native code of ours, as with the GIL. Threads that read
// and write dicts, lists and classes in Python go on meanwhile. So a reference that native code
// would only borrow is owned until the function ends (borrow_owned), and what is replaced in a cell
// of ours lives until nobody reads it any more (release_later).
#pragma once

#include <pybind11/pytypes.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <thread>
#include <type_traits>
#include <vector>

#include "python/c_stack.h"
#include "python/release_later.h"

// Storage of a cache that is read outside of the section: then each thread has its own.
#ifdef Py_GIL_DISABLED
#define MODTREE_PER_THREAD thread_local
#else
#define MODTREE_PER_THREAD
#endif

namespace modtree {

#ifdef Py_GIL_DISABLED

// The object whose lock is that of the section. Made at import.
inline PyObject *native_section_object = nullptr;

// Called once, before any other function of ours. Throws error_already_set.
inline void init_native_section() {
  native_section_object = PyObject_CallNoArgs(reinterpret_cast<PyObject *>(&PyBaseObject_Type));
  if (!native_section_object) {
    throw pybind11::error_already_set();
  }
#ifndef _WIN32
  if (pthread_atfork(nullptr, nullptr, Reading::forget_others) != 0) {
    throw std::bad_alloc();
  }
#endif
}

class NativeSection {
public:
  NativeSection() : mark_(innermost_ ? borrowed_.size() : 0) {
    if (is_left()) {
      enter();
      outer_ = innermost_;
      innermost_ = this;
      entered_ = true;
    }
  }
  NativeSection(const NativeSection &) = delete;
  NativeSection &operator=(const NativeSection &) = delete;

  ~NativeSection() {
    if (entered_) {
      innermost_ = outer_;
      leave();
    }
    while (borrowed_.size() > mark_) {
      PyObject *last = borrowed_.back();
      borrowed_.pop_back();
      Py_DECREF(last);
    }
  }

  // Takes the reference (null: none) until the end of the innermost function that was entered; for
  // ever if memory for remembering it runs out.
  static PyObject *keep(PyObject *owned) noexcept {
    if (owned && !_Py_IsImmortal(owned)) {
      try {
        borrowed_.push_back(owned);
      } catch (const std::bad_alloc &) {
      }
    }
    return owned;
  }

  // Where CPython may let other threads in while it looks into a dict or a class. A build with
  // MODTREE_FORCE_WAITS always does, for tests of what has to hold across such a wait.
  static void let_others_in() {
#ifdef MODTREE_FORCE_WAITS
    if (!is_left()) {
      PyCriticalSection_End(&innermost_->section_);
      std::this_thread::yield();
      PyCriticalSection_Begin(&innermost_->section_, native_section_object);
    }
#endif
  }

private:
  friend class OutsideNativeSection;

  void enter() {
    // Who holds the lock mostly gives it back within a microsecond, and the mutex itself would soon
    // put this thread to sleep, which takes several.
    constexpr int kTries = 20;
    const std::uint8_t *bits = &native_section_object->ob_mutex._bits;
    for (int i = 0; i < kTries && (_Py_atomic_load_uint8_relaxed(bits) & 1) != 0; ++i) {
      std::this_thread::yield();
    }
    PyCriticalSection_Begin(&section_, native_section_object);
    reads_before_ = Reading::begin();
  }

  void leave() {
    Reading::end(reads_before_);
    if (Replaced::is_empty()) {
      PyCriticalSection_End(&section_);
      return;
    }
    const std::vector<Replaced::Item> replaced = Replaced::take();
    PyCriticalSection_End(&section_);
    for (const Replaced::Item &item : replaced) {
      item.release(item.what);
    }
  }

  // True unless the section is the innermost one that this thread is in.
  static bool is_left() {
    const std::uintptr_t innermost = PyThreadState_GetUnchecked()->critical_section;
    return (innermost & 3) != 0 || innermost == 0 ||
           reinterpret_cast<PyCriticalSection *>(innermost)->_cs_mutex !=
               &native_section_object->ob_mutex;
  }

  static inline thread_local NativeSection *innermost_ = nullptr;
  static inline thread_local std::vector<PyObject *> borrowed_;

  PyCriticalSection section_;
  Reading::Moment reads_before_ = 0;
  NativeSection *outer_ = nullptr;
  std::size_t mark_;
  bool entered_ = false;
};

// While one lives, the thread is not in the section: around calls of Python code.
class OutsideNativeSection {
public:
  OutsideNativeSection() : left_(NativeSection::is_left() ? nullptr : NativeSection::innermost_) {
    if (left_) {
      left_->leave();
    }
  }
  OutsideNativeSection(const OutsideNativeSection &) = delete;
  OutsideNativeSection &operator=(const OutsideNativeSection &) = delete;

  ~OutsideNativeSection() {
    if (left_) {
      left_->enter();
    }
  }

private:
  NativeSection *left_;
};

inline PyObject *borrow_owned(PyObject *owned) { return NativeSection::keep(owned); }

// Releases what a cell held (null: nothing) when no thread reads it any more.
inline void release_later(PyObject *replaced) noexcept {
  if (replaced && !_Py_IsImmortal(replaced)) {
    const NativeSection in_section;
    Replaced::add(replaced, [](void *what) { Py_DECREF(static_cast<PyObject *>(what)); });
  }
}
// The same for memory of CPython's allocator.
inline void free_later(void *replaced) noexcept {
  const NativeSection in_section;
  Replaced::add(replaced, PyMem_Free);
}

#else

inline void init_native_section() {}

inline void release_later(PyObject *replaced) { Py_XDECREF(replaced); }
inline void free_later(void *replaced) { PyMem_Free(replaced); }

struct NativeSection {
  NativeSection() {}
};

struct OutsideNativeSection {
  OutsideNativeSection() {}
};

#endif

template <auto kFunction>
struct Entry;

template <class Result, class... Args, Result (*kFunction)(Args...)>
struct Entry<kFunction> {
  static Result call(Args... args) {
    if (c_stack_ends()) {
      return error();
    }
    return call_always(args...);
  }

  static Result call_always(Args... args) {
    const NativeSection in_section;
    return kFunction(args...);
  }

private:
  static constexpr Result error() {
    if constexpr (std::is_pointer_v<Result>) {
      return nullptr;
    } else {
      return -1;
    }
  }
};

// The function as CPython is to call it.
template <auto kFunction>
inline constexpr auto entry = &Entry<kFunction>::call;
// The same for one that must not fail.
template <auto kFunction>
inline constexpr auto unfailing_entry = &Entry<kFunction>::call_always;

}  // namespace modtree
