// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/parallel.h"

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#include <signal.h>
#define MODTREE_POSIX_THREADS 1
#endif
#if defined(__x86_64__) || defined(__i386__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace modtree::kernels {
namespace {

// No machine has use for more, and a wrong number is not to make thousands.
constexpr std::ptrdiff_t kMostHelpers = 255;
// Threads wait so long for more work, or for each other, before they sleep. Waking one up takes
// about as long as a small kernel.
constexpr std::chrono::microseconds kPatience{50};
// Pieces for each thread: one that the system interrupts leaves some to the others.
constexpr std::ptrdiff_t kPiecesEach = 4;

void relax() {
#if defined(__x86_64__) || defined(__i386__) || defined(_M_X64)
  _mm_pause();
#elif defined(__aarch64__) && (defined(__GNUC__) || defined(__clang__))
  __asm__ __volatile__("yield");
#else
  std::this_thread::yield();
#endif
}

// Waits actively for a while; says whether `done` became true.
template <class Done>
bool wait_actively(Done done) {
  const auto stop = std::chrono::steady_clock::now() + kPatience;
  do {
    for (int i = 0; i < 32; ++i) {
      if (done()) {
        return true;
      }
      relax();
    }
  } while (std::chrono::steady_clock::now() < stop);
  return done();
}

// Signals go to the threads of the program: one that arrived here would not interrupt the main
// thread's waiting (Ctrl-C in time.sleep).
class BlockSignals {
public:
#ifdef MODTREE_POSIX_THREADS
  BlockSignals() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) {
      sigdelset(&all, fault);
    }
    changed_ = pthread_sigmask(SIG_SETMASK, &all, &before_) == 0;
  }
  ~BlockSignals() {
    if (changed_) {
      pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
  }

private:
  sigset_t before_;
  bool changed_;
#endif
};

struct Job {
  void (*body)(void *, std::ptrdiff_t, std::ptrdiff_t);
  void *context;
  std::ptrdiff_t count, step;
  // How the caller rounds, and what it does with denormal numbers.
  std::fenv_t floats;
  std::atomic<std::ptrdiff_t> next{0};
  std::mutex error_mutex;
  std::exception_ptr error;

  void run() noexcept {
    while (true) {
      const std::ptrdiff_t first = next.fetch_add(step, std::memory_order_relaxed);
      if (first >= count) {
        return;
      }
      try {
        body(context, first, std::min(first + step, count));
      } catch (...) {
        next.store(count, std::memory_order_relaxed);
        const std::lock_guard<std::mutex> lock(error_mutex);
        if (!error) {
          error = std::current_exception();
        }
      }
    }
  }
};

// The threads that help. Never destroyed: at the end of the process they sleep in it.
//
// - `busy_`: a caller's job is shared out; taken and given back by callers, who do not wait for it.
// - `gate_`: the number of the present job, and how many more helpers may begin to work on it.
// - `job_`, `threads_`: the busy caller's; helpers read `job_` after they went through the gate.
// - `left_`: how many helpers have gone through the gate and are done with the job.
// - `asleep_`, `caller_asleep_`: which threads wait for a condition variable, whose mutex guards
//   nothing else. They are set before the last look at `gate_` or `left_`, and read after these
//   were changed, all in one order (seq_cst): either side sees the other.
class Pool {
public:
  // False where the job is the caller's alone.
  bool run(Job &job, std::ptrdiff_t helpers) {
    if (busy_.exchange(true, std::memory_order_acquire)) {
      return false;
    }
    helpers = std::min(helpers, add_threads(helpers));
    if (helpers > 0) {
      post(job, helpers);
      job.run();
      take_back(helpers);
    }
    busy_.store(false, std::memory_order_release);
    return helpers > 0;
  }

private:
  static constexpr std::uint64_t kNumber = std::uint64_t{1} << 16;

  static std::ptrdiff_t open(std::uint64_t gate) {
    return static_cast<std::ptrdiff_t>(gate % kNumber);
  }

  void post(Job &job, std::ptrdiff_t helpers) {
    job_ = &job;
    left_.store(0, std::memory_order_relaxed);
    const std::uint64_t gate = gate_.load(std::memory_order_relaxed);
    gate_.store((gate / kNumber + 1) * kNumber + static_cast<std::uint64_t>(helpers));
    wake_two();
  }

  // Who wakes up wakes others: to wake all of them would take the caller longer than small jobs.
  void wake_two() {
    const std::ptrdiff_t asleep = asleep_.load();
    if (asleep > 0 && open(gate_.load()) > 0) {
      // Whoever is about to sleep has either seen the gate or sleeps already.
      {
        const std::lock_guard<std::mutex> lock(mutex_);
      }
      wake_.notify_one();
      if (asleep > 1) {
        wake_.notify_one();
      }
    }
  }

  // Waits for the helpers that have begun; others will not.
  void take_back(std::ptrdiff_t helpers) {
    std::uint64_t gate = gate_.load();
    while (!gate_.compare_exchange_weak(gate, gate / kNumber * kNumber)) {
    }
    const std::ptrdiff_t begun = helpers - open(gate);
    const auto done = [&] { return left_.load() == begun; };
    if (wait_actively(done)) {
      return;
    }
    std::unique_lock<std::mutex> lock(mutex_);
    caller_asleep_.store(true);
    done_.wait(lock, done);
    caller_asleep_.store(false);
  }

  // As many threads as are wanted and can be made.
  std::ptrdiff_t add_threads(std::ptrdiff_t wanted) {
    if (threads_ >= wanted) {
      return threads_;
    }
    [[maybe_unused]] BlockSignals block;
    try {
      for (; threads_ < wanted; ++threads_) {
        std::thread([this] { help(); }).detach();
      }
    } catch (const std::system_error &) {
      return threads_;
    } catch (const std::bad_alloc &) {
      return threads_;
    }
    return threads_;
  }

  [[noreturn]] void help() {
    std::uint64_t seen = 0;
    while (true) {
      const auto posted = [&] { return gate_.load() / kNumber != seen; };
      if (!wait_actively(posted)) {
        {
          std::unique_lock<std::mutex> lock(mutex_);
          asleep_.fetch_add(1);
          wake_.wait(lock, posted);
          asleep_.fetch_sub(1);
        }
        wake_two();
      }
      std::uint64_t gate = gate_.load();
      while (open(gate) > 0 && !gate_.compare_exchange_weak(gate, gate - 1)) {
      }
      seen = gate / kNumber;
      if (open(gate) > 0) {
        std::fesetenv(&job_->floats);
        job_->run();
        left_.fetch_add(1);
        if (caller_asleep_.load()) {
          {
            const std::lock_guard<std::mutex> lock(mutex_);
          }
          done_.notify_one();
        }
      }
    }
  }

  std::atomic<bool> busy_{false};
  std::atomic<std::uint64_t> gate_{0};
  Job *job_ = nullptr;
  std::ptrdiff_t threads_ = 0;
  std::atomic<std::ptrdiff_t> left_{0};
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::atomic<std::ptrdiff_t> asleep_{0};
  std::atomic<bool> caller_asleep_{false};
};

std::atomic<Pool *> the_pool{nullptr};

// A child of fork() has none of the threads, and mutexes as they happened to be: it begins anew,
// and what the parent had is left as it is.
void forget_pool() { the_pool.store(nullptr, std::memory_order_relaxed); }

#ifdef MODTREE_POSIX_THREADS
const bool fork_is_safe = pthread_atfork(nullptr, nullptr, forget_pool) == 0;
#else
const bool fork_is_safe = true;
#endif

Pool *make_pool() {
  if (!fork_is_safe) {
    return nullptr;
  }
  Pool *made = new Pool;
  Pool *before = nullptr;
  if (!the_pool.compare_exchange_strong(before, made, std::memory_order_acq_rel)) {
    delete made;
    return before;
  }
  return made;
}

}  // namespace

void share_out(std::ptrdiff_t count, std::ptrdiff_t grain,
               void (*body)(void *, std::ptrdiff_t, std::ptrdiff_t), void *context) {
  const std::ptrdiff_t most = count / grain;
  const std::ptrdiff_t threads = std::min({thread_count(), most, kMostHelpers + 1});
  if (threads > 1) {
    Pool *pool = the_pool.load(std::memory_order_acquire);
    if (pool == nullptr) {
      pool = make_pool();
    }
    const std::ptrdiff_t pieces = std::min(most, threads * kPiecesEach);
    Job job;
    job.body = body;
    job.context = context;
    job.count = count;
    job.step = (count + pieces - 1) / pieces;
    std::fegetenv(&job.floats);
    if (pool != nullptr && pool->run(job, threads - 1)) {
      if (job.error) {
        std::rethrow_exception(job.error);
      }
      return;
    }
  }
  body(context, 0, count);
}

}  // namespace modtree::kernels
