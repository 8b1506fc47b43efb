// SPDX-License-Identifier: BSD-3-Clause
// Kernels with sums of several threads' values: the same bits with any number of threads, each of
// which ThreadSanitizer can follow.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "check.h"
#include "kernels/along.h"
#include "kernels/batch_norm.h"
#include "kernels/ctc.h"
#include "kernels/distance.h"
#include "kernels/layer_norm.h"
#include "kernels/thread_count.h"
#include "samples.h"

namespace {

using namespace modtree::kernels;
using Index = std::ptrdiff_t;

template <class T>
std::vector<T> zeros(Index n) {
  return std::vector<T>(static_cast<std::size_t>(n));
}

// `run()` returns all that was computed.
template <class Run>
void check_same(Run run) {
  set_thread_count(1);
  const auto expected = run();
  for (const Index threads : {2, 3, 5}) {
    set_thread_count(threads);
    CHECK(run() == expected);
  }
  set_thread_count(1);
}

std::vector<std::int64_t> indices(Index n, std::int64_t below, std::uint32_t seed) {
  std::vector<std::int64_t> out;
  for (const double v : values<double>(n, seed, 0.5)) {
    out.push_back(static_cast<std::int64_t>((v + 0.5) * static_cast<double>(below)) % below);
  }
  return out;
}

template <class T>
void check_layer_norm() {
  for (const Index rows : {3, 200, 3000}) {
    const Index n = 600000 / rows % 1000 + 37;
    const auto g = values<T>(rows * n, 1), x = values<T>(rows * n, 2), weight = values<T>(n, 3);
    const auto mean = values<T>(rows, 4), rstd = values<T>(rows, 5);
    check_same([&] {
      auto dx = zeros<T>(rows * n), dweight = zeros<T>(n), dbias = zeros<T>(n);
      layer_norm_backward(LayerNormBackward<T>{g.data(), x.data(), mean.data(), rstd.data(),
                                               weight.data(), dx.data(), dweight.data(),
                                               dbias.data(), rows, n});
      dx.insert(dx.end(), dweight.begin(), dweight.end());
      dx.insert(dx.end(), dbias.begin(), dbias.end());
      return dx;
    });
  }
}

template <class T>
void check_batch_norm() {
  const Index images = 400, channels = 700;
  const auto x = values<T>(images * channels, 1), g = values<T>(images * channels, 2);
  const auto weight = values<T>(channels, 3);
  for (const bool training : {false, true}) {
    check_same([&] {
      auto mean = zeros<T>(channels), var = zeros<T>(channels), rstd = zeros<T>(channels);
      auto out = zeros<T>(images * channels), dx = zeros<T>(images * channels);
      auto dweight = zeros<T>(channels), dbias = zeros<T>(channels);
      BatchNorm<T> a{};
      a.x = x.data();
      a.weight = weight.data();
      a.out = out.data();
      a.mean = mean.data();
      a.var = var.data();
      a.rstd = rstd.data();
      a.images = images;
      a.channels = channels;
      a.positions = 1;
      a.training = training;
      a.eps = 1e-5;
      batch_norm(a);
      BatchNormBackward<T> b{};
      b.g = g.data();
      b.x = x.data();
      b.mean = mean.data();
      b.rstd = rstd.data();
      b.weight = weight.data();
      b.dx = dx.data();
      b.dweight = dweight.data();
      b.dbias = dbias.data();
      b.images = images;
      b.channels = channels;
      b.positions = 1;
      b.training = training;
      batch_norm_backward(b);
      for (const auto *more : {&mean, &var, &rstd, &dx, &dweight, &dbias}) {
        out.insert(out.end(), more->begin(), more->end());
      }
      return out;
    });
  }
}

template <class T>
void check_distances() {
  const Index rows = 61, columns = 131, width = 70;
  const auto g = values<T>(rows * columns, 1), x = values<T>(rows * width, 2);
  const auto yt = values<T>(width * columns, 3);
  for (const Norm norm : {Norm::one, Norm::two, Norm::infinity, Norm::other}) {
    auto distances = zeros<T>(rows * columns);
    distance(Distance<T>{x.data(), yt.data(), distances.data(), rows, columns, width, norm, 3.0});
    check_same([&] {
      auto dx = zeros<T>(rows * width), dyt = zeros<T>(width * columns);
      distance_backward(DistanceBackward<T>{g.data(), distances.data(), x.data(), yt.data(),
                                            dx.data(), dyt.data(), rows, columns, width, norm,
                                            3.0});
      dx.insert(dx.end(), dyt.begin(), dyt.end());
      return dx;
    });
  }
}

template <class T>
void check_ctc() {
  const Index steps = 30, batch = 17, classes = 9, longest = 12;
  const auto scores = values<T>(steps * batch * classes, 1, 3.0), g = values<T>(batch, 2);
  const auto labels = indices(batch * longest, classes, 3);
  std::vector<std::int64_t> starts, lengths, used;
  for (Index i = 0; i < batch; ++i) {
    starts.push_back(i * longest);
    lengths.push_back(i % (longest + 1));
    used.push_back(i == 5 ? 0 : steps - i % 4);
  }
  check_same([&] {
    auto losses = zeros<T>(batch), gradient = zeros<T>(steps * batch * classes);
    ctc(Ctc<T>{scores.data(), labels.data(), starts.data(), lengths.data(), used.data(),
               losses.data(), g.data(), gradient.data(), steps, batch, classes, longest, 0});
    gradient.insert(gradient.end(), losses.begin(), losses.end());
    return gradient;
  });
}

template <class T>
void check_scatter() {
  const Index height = 300, width = 401;
  const auto x = values<T>(height * width, 1), source = values<T>(height * width, 2);
  for (const int axis : {0, 1}) {
    const Index size = axis == 0 ? height : width;
    const auto index = indices(height * width, size, 3);
    Along a{};
    a.ndim = 2;
    a.shape[0] = height;
    a.shape[1] = width;
    for (Index *strides : {a.index_strides, a.other_strides, a.outer_strides}) {
      strides[0] = width;
      strides[1] = 1;
    }
    a.outer_strides[axis] = 0;
    a.axis_stride = axis == 0 ? width : 1;
    a.axis_size = size;
    a.index = index.data();
    for (const ScatterMode mode :
         {ScatterMode::assign, ScatterMode::add, ScatterMode::multiply, ScatterMode::largest}) {
      auto expected = x;
      for (Index i = 0; i < height * width && mode == ScatterMode::add; ++i) {
        const auto at = static_cast<Index>(index[static_cast<std::size_t>(i)]);
        const Index place = axis == 0 ? at * width + i % width : i / width * width + at;
        expected[static_cast<std::size_t>(place)] += source[static_cast<std::size_t>(i)];
      }
      check_same([&] {
        auto out = x;
        CHECK(scatter(a, mode, source.data(), out.data()));
        CHECK(mode != ScatterMode::add || out == expected);
        return out;
      });
    }
    auto wrong = index;
    wrong.back() = size;
    a.index = wrong.data();
    for (const Index threads : {1, 3}) {
      set_thread_count(threads);
      auto out = x;
      CHECK(!scatter(a, ScatterMode::add, source.data(), out.data()));
    }
  }
}

template <class T>
void check_all() {
  check_layer_norm<T>();
  check_batch_norm<T>();
  check_distances<T>();
  check_ctc<T>();
  check_scatter<T>();
}

}  // namespace

int main() {
  check_all<float>();
  check_all<double>();
  return 0;
}
