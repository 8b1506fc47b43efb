// SPDX-License-Identifier: BSD-3-Clause
// What native code has in the place of the GIL on a CPython without one. With the GIL, all of this
// is nothing: entry<f> is f, and the classes are empty.
//
// Native code runs in one critical section of the process (PyCriticalSection), which is left where
// a native function calls Python code, and by CPython itself whenever the thread waits: between two
// calls of Python code no other thread runs native code of ours, as with the GIL. Threads that read
// and write dicts, lists and classes in Python go on meanwhile. So a reference that native code
// would only borrow is owned until the function ends (borrow_owned).
#pragma once

#include <pybind11/pytypes.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

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
}

class NativeSection {
public:
  NativeSection() : mark_(innermost_ ? borrowed_.size() : 0) {
    if (is_left()) {
      PyCriticalSection_Begin(&section_, native_section_object);
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
      PyCriticalSection_End(&section_);
    }
    while (borrowed_.size() > mark_) {
      PyObject *last = borrowed_.back();
      borrowed_.pop_back();
      Py_DECREF(last);
    }
  }

  // Takes the reference (null: none) until the end of the innermost function that was entered; for
  // ever where there is no memory to remember it.
  static PyObject *keep(PyObject *owned) noexcept {
    if (owned && !_Py_IsImmortal(owned)) {
      try {
        borrowed_.push_back(owned);
      } catch (const std::bad_alloc &) {
      }
    }
    return owned;
  }

private:
  friend class OutsideNativeSection;

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
  NativeSection *outer_ = nullptr;
  std::size_t mark_;
  bool entered_ = false;
};

// While one lives, the thread is not in the section: around calls of Python code.
class OutsideNativeSection {
public:
  OutsideNativeSection() : left_(NativeSection::is_left() ? nullptr : NativeSection::innermost_) {
    if (left_) {
      PyCriticalSection_End(&left_->section_);
    }
  }
  OutsideNativeSection(const OutsideNativeSection &) = delete;
  OutsideNativeSection &operator=(const OutsideNativeSection &) = delete;

  ~OutsideNativeSection() {
    if (left_) {
      PyCriticalSection_Begin(&left_->section_, native_section_object);
    }
  }

private:
  NativeSection *left_;
};

inline PyObject *borrow_owned(PyObject *owned) { return NativeSection::keep(owned); }

template <auto kFunction>
struct Entry;

template <class Result, class... Args, Result (*kFunction)(Args...)>
struct Entry<kFunction> {
  static Result call(Args... args) {
    const NativeSection in_section;
    return kFunction(args...);
  }
};

// The function as CPython is to call it.
template <auto kFunction>
inline constexpr auto entry = &Entry<kFunction>::call;

#else

inline void init_native_section() {}

struct NativeSection {
  NativeSection() {}
};

struct OutsideNativeSection {
  OutsideNativeSection() {}
};

template <auto kFunction>
inline constexpr auto entry = kFunction;

#endif

}  // namespace modtree
