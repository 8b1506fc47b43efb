// SPDX-License-Identifier: BSD-3-Clause
// One kernel body, compiled for several instruction sets, chosen at run time: fast wheels without
// -march=native.
//
// GCC's target_clones would do the same with less text, but it takes one feature per clone (AVX2
// without FMA), matches "arch=haswell" on that CPU model only (not on AMD), and needs ifunc (not on
// musl or macOS, and not under ASan).
#pragma once

#include <cstddef>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define MODTREE_KERNELS_X86 1
#define MODTREE_TARGET_AVX512 __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,avx2,fma")))
#define MODTREE_TARGET_AVX2 __attribute__((target("avx2,fma")))
#endif

#if defined(__GNUC__) || defined(__clang__)
#define MODTREE_ALWAYS_INLINE inline __attribute__((always_inline))
#elif defined(_MSC_VER)
#define MODTREE_ALWAYS_INLINE __forceinline
#else
#define MODTREE_ALWAYS_INLINE inline
#endif

namespace modtree::kernels {

enum class Isa { baseline, avx2, avx512 };

inline Isa detect_isa() {
#ifdef MODTREE_KERNELS_X86
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
    return Isa::baseline;
  }
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
  return avx512 ? Isa::avx512 : Isa::avx2;
#else
  return Isa::baseline;
#endif
}

inline Isa isa() {
  static const Isa detected = detect_isa();
  return detected;
}

// `pointer + offset`, or null where it is null.
template <class T>
MODTREE_ALWAYS_INLINE T *moved(T *pointer, std::ptrdiff_t offset) {
  return pointer == nullptr ? nullptr : pointer + offset;
}

}  // namespace modtree::kernels

// Defines `void name params`, which calls the always-inline `body args`, built once for each
// instruction set.
#ifdef MODTREE_KERNELS_X86
#define MODTREE_DEFINE_KERNEL_OF(name, params, body, args)                                         \
  MODTREE_TARGET_AVX512 static void name##_avx512 params { body args; }                            \
  MODTREE_TARGET_AVX2 static void name##_avx2 params { body args; }                                \
  static void name##_baseline params { body args; }                                                \
  void name params {                                                                               \
    switch (isa()) {                                                                               \
      case Isa::avx512:                                                                            \
        return name##_avx512 args;                                                                 \
      case Isa::avx2:                                                                              \
        return name##_avx2 args;                                                                   \
      case Isa::baseline:                                                                          \
        break;                                                                                     \
    }                                                                                              \
    name##_baseline args;                                                                          \
  }
#else
#define MODTREE_DEFINE_KERNEL_OF(name, params, body, args)                                         \
  void name params { body args; }
#endif

// The same for each dtype that there are kernels for; `params` is a macro that makes the parameters
// of the type it gets.
#define MODTREE_DEFINE_KERNEL(name, params, body, args)                                            \
  MODTREE_DEFINE_KERNEL_OF(name, params(float), body, args)                                        \
  MODTREE_DEFINE_KERNEL_OF(name, params(double), body, args)

// The same for `void name(const Arguments<T> &)`.
#define MODTREE_DEFINE_STRUCT_KERNEL(name, Arguments, body)                                        \
  MODTREE_DEFINE_KERNEL_OF(name, (const Arguments<float> &a), body, (a))                           \
  MODTREE_DEFINE_KERNEL_OF(name, (const Arguments<double> &a), body, (a))
