// SPDX-License-Identifier: BSD-3-Clause
// The states of a sample are blank, first label, blank, second label, ..., blank. Everything is the
// log of a probability, in double.
#include "kernels/ctc.h"

#include <limits>
#include <vector>

#include "kernels/parallel_kernel.h"
#include "kernels/strict_math.h"

namespace modtree::kernels {
namespace {

// The log of probability 0: finite, so that differences are numbers.
constexpr double kNever = -1e30;

// log(exp(a) + exp(b) + exp(c)); NaN where one is.
template <class T>
MODTREE_ALWAYS_INLINE double log_sum(double a, double b, double c) {
  const double ab = a > b ? a : b;
  const double most = ab > c ? ab : c;
  const double da = most - a, db = most - b, dc = most - c;
  const double sum = exp_minus<T>(da < 745.0 ? da : 745.0, 0.0) +
                     exp_minus<T>(db < 745.0 ? db : 745.0, 0.0) +
                     exp_minus<T>(dc < 745.0 ? dc : 745.0, 0.0);
  return most + log_of(sum) + 0.0 * (a + b + c);
}

// The memory for some samples, as the longest of all needs it. Rows of states have two impossible
// ones in front, and two behind.
struct Work {
  std::vector<double> alpha, beta, next, chances;
  std::vector<double> jump;  // 0 where a state can be reached over the blank before it, else kNever
  std::vector<std::int64_t> classes;
};

template <class T>
MODTREE_ALWAYS_INLINE void pick_chances(const Ctc<T> &a, std::ptrdiff_t sample, std::ptrdiff_t t,
                                        std::ptrdiff_t width, Work &work) {
  const T *from = a.log_probs + (t * a.batch + sample) * a.classes;
  for (std::ptrdiff_t s = 0; s < width; ++s) {
    const auto chance = static_cast<double>(from[work.classes[static_cast<std::size_t>(s)]]);
    work.chances[static_cast<std::size_t>(s)] = chance < kNever ? kNever : chance;
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void next_alpha(const double *__restrict before, double *__restrict after,
                                      const double *__restrict chances,
                                      const double *__restrict jump, std::ptrdiff_t width) {
  for (std::ptrdiff_t s = 0; s < width; ++s) {
    const double value = log_sum<T>(before[s], before[s - 1], before[s - 2] + jump[s]) + chances[s];
    after[s] = value < kNever ? kNever : value;
  }
}

// For each state at a step, of what comes after it.
template <class T>
MODTREE_ALWAYS_INLINE void next_beta(const double *__restrict after, double *__restrict before,
                                     const double *__restrict jump, std::ptrdiff_t width) {
  for (std::ptrdiff_t s = 0; s < width; ++s) {
    const double value = log_sum<T>(after[s], after[s + 1], after[s + 2] + jump[s + 2]);
    before[s] = value < kNever ? kNever : value;
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void prepare(const Ctc<T> &a, std::ptrdiff_t sample, std::ptrdiff_t width,
                                   Work &work) {
  const std::int64_t *labels = a.labels + a.starts[sample];
  for (std::ptrdiff_t s = 0; s < width; ++s) {
    work.classes[static_cast<std::size_t>(s)] = s % 2 ? labels[s / 2] : a.blank;
  }
  for (std::ptrdiff_t s = 0; s < width + 2; ++s) {
    const bool can = s >= 3 && s < width && s % 2 && labels[s / 2] != labels[s / 2 - 1];
    work.jump[static_cast<std::size_t>(s)] = can && labels[s / 2] != a.blank ? 0.0 : kNever;
  }
}

// Fills alpha and returns the log probability.
template <class T>
MODTREE_ALWAYS_INLINE double forward_pass(const Ctc<T> &a, std::ptrdiff_t sample,
                                          std::ptrdiff_t width, std::ptrdiff_t stride, Work &work) {
  const std::ptrdiff_t used = a.used[sample];
  double *alpha = work.alpha.data() + 2;
  pick_chances(a, sample, 0, width, work);
  for (std::ptrdiff_t s = 0; s < width; ++s) {
    alpha[s] = s < 2 ? work.chances[static_cast<std::size_t>(s)] : kNever;
  }
  for (std::ptrdiff_t t = 1; t < used; ++t) {
    pick_chances(a, sample, t, width, work);
    next_alpha<T>(alpha + (t - 1) * stride, alpha + t * stride, work.chances.data(),
                  work.jump.data(), width);
  }
  const double *last = alpha + (used - 1) * stride + width;
  return log_sum<T>(last[-1], width > 1 ? last[-2] : kNever, kNever);
}

template <class T>
MODTREE_ALWAYS_INLINE void backward_pass(const Ctc<T> &a, std::ptrdiff_t sample,
                                         std::ptrdiff_t width, std::ptrdiff_t stride,
                                         double log_likelihood, Work &work) {
  const std::ptrdiff_t used = a.used[sample];
  const double *alpha = work.alpha.data() + 2;
  double *beta = work.beta.data(), *next = work.next.data();
  const auto g = static_cast<double>(a.g[sample]);
  for (std::ptrdiff_t s = 0; s < width + 2; ++s) {
    beta[s] = s < width && s >= width - 2 ? 0.0 : kNever;
    next[s] = kNever;
  }
  for (std::ptrdiff_t t = used - 1; t >= 0; --t) {
    T *to = a.gradient + (t * a.batch + sample) * a.classes;
    const double *own = alpha + t * stride;
    for (std::ptrdiff_t s = 0; s < width; ++s) {
      const double rest = log_likelihood - own[s] - beta[s];
      const double low = rest < 745.0 ? rest : 745.0;
      // Rounding may leave less than 0.
      const double share = (low > 0.0 ? exp_minus<T>(low, 0.0) : 1.0 - low) + 0.0 * rest;
      to[work.classes[static_cast<std::size_t>(s)]] -= static_cast<T>(g * share);
    }
    pick_chances(a, sample, t, width, work);
    for (std::ptrdiff_t s = 0; s < width; ++s) {
      next[s] = beta[s] + work.chances[static_cast<std::size_t>(s)];
    }
    next_beta<T>(next, beta, work.jump.data(), width);
  }
}

template <class T>
double sample_work(const Ctc<T> &a) {
  return 100.0 * static_cast<double>(a.steps) * static_cast<double>(2 * a.longest + 1);
}

template <class T>
MODTREE_ALWAYS_INLINE void ctc_samples(const Ctc<T> &a, std::ptrdiff_t first, std::ptrdiff_t last) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const auto widest = static_cast<std::size_t>(2 * a.longest + 1);
  const auto stride = static_cast<std::ptrdiff_t>(widest + 2);
  Work work;
  work.alpha.assign((static_cast<std::size_t>(a.steps) + 1) * static_cast<std::size_t>(stride),
                    kNever);
  work.beta.resize(widest + 2);
  work.next.resize(widest + 2);
  work.chances.resize(widest);
  work.jump.resize(widest + 2);
  work.classes.resize(widest);
  for (std::ptrdiff_t sample = first; sample < last; ++sample) {
    if (a.used[sample] == 0) {
      a.losses[sample] = static_cast<T>(a.lengths[sample] == 0 ? 0.0 : kInf);
      continue;
    }
    const std::ptrdiff_t width = 2 * a.lengths[sample] + 1;
    prepare(a, sample, width, work);
    const double log_likelihood = forward_pass(a, sample, width, stride, work);
    const bool possible = !(log_likelihood < kNever / 2);
    a.losses[sample] = static_cast<T>(possible ? -log_likelihood : kInf);
    if (a.gradient != nullptr && possible) {
      backward_pass(a, sample, width, stride, log_likelihood, work);
    }
  }
}

}  // namespace

MODTREE_DEFINE_PARTS_KERNEL(ctc, Ctc, ctc_samples, a.batch, sample_work(a))

}  // namespace modtree::kernels
