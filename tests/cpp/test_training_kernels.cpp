// SPDX-License-Identifier: BSD-3-Clause
// The kernels of training against plain loops in double precision. Their gradients are compared
// with differences, by the tests in Python.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "check.h"
#include "kernels/activation.h"
#include "kernels/batch_norm.h"
#include "kernels/cross_entropy.h"
#include "kernels/gelu.h"
#include "kernels/layer_norm.h"
#include "kernels/max_pool.h"
#include "kernels/optimizer.h"
#include "kernels/recurrent.h"
#include "kernels/scatter.h"
#include "kernels/softmax.h"
#include "samples.h"

namespace {

using namespace modtree::kernels;
using Index = std::ptrdiff_t;

// Around the vector widths, and more than one block of a sum.
const Index kSizes[] = {1, 3, 15, 16, 17, 33, 100, 1025};

template <class T>
double tolerance() {
  return sizeof(T) == 4 ? 3e-6 : 1e-12;
}

double sigmoid_of(double x) { return 1.0 / (1.0 + std::exp(-x)); }

template <class T>
double at(const std::vector<T> &v, Index i) {
  return static_cast<double>(v[static_cast<std::size_t>(i)]);
}

// The central difference of f at x.
template <class F>
double slope(F f, double x) {
  const double h = 1e-5;
  return (f(x + h) - f(x - h)) / (2 * h);
}

template <class T, class Kernel, class F>
void check_slope(Kernel kernel, F f, bool from_result) {
  for (Index n : kSizes) {
    const auto x = values<T>(n, 1, 4.0);
    const auto g = values<T>(n, 2);
    auto saved = x;
    for (auto &v : saved) {
      v = from_result ? static_cast<T>(f(static_cast<double>(v))) : v;
    }
    std::vector<T> out(x.size());
    kernel(g.data(), saved.data(), out.data(), n);
    for (Index i = 0; i < n; ++i) {
      const double expected = at(g, i) * slope(f, at(x, i));
      CHECK(std::fabs(at(out, i) - expected) <= (sizeof(T) == 4 ? 5e-6 : 1e-8));
    }
    auto in_place = g;
    kernel(in_place.data(), saved.data(), in_place.data(), n);
    CHECK(in_place == out);
  }
}

template <class T>
void check_activations() {
  using Slope = void (*)(const T *, const T *, T *, Index);
  for (Index n : kSizes) {
    const auto x = values<T>(n, 1, 8.0);
    std::vector<T> out(x.size());
    sigmoid(x.data(), out.data(), n);
    for (Index i = 0; i < n; ++i) {
      CHECK(close(out[static_cast<std::size_t>(i)], sigmoid_of(at(x, i))));
    }
    silu(x.data(), out.data(), n);
    for (Index i = 0; i < n; ++i) {
      CHECK(close(out[static_cast<std::size_t>(i)], at(x, i) * sigmoid_of(at(x, i))));
    }
  }
  const auto gelu_of = [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); };
  const auto gelu_tanh_of = [](double x) {
    return 0.5 * x *
           (1.0 + std::tanh(std::sqrt(2.0 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
  };
  check_slope<T>(Slope(sigmoid_backward), sigmoid_of, true);
  check_slope<T>(Slope(tanh_backward), [](double x) { return std::tanh(x); }, true);
  check_slope<T>(Slope(silu_backward), [](double x) { return x * sigmoid_of(x); }, false);
  check_slope<T>(Slope(relu_backward), [](double x) { return x > 0 ? x : 0.0; }, false);
  check_slope<T>(Slope(gelu_backward), gelu_of, false);
  check_slope<T>(Slope(gelu_tanh_backward), gelu_tanh_of, false);
}

template <class T>
void check_softmax_gradients() {
  for (Index n : kSizes) {
    const auto g = values<T>(2 * n, 1), y = values<T>(2 * n, 2);
    std::vector<T> out(g.size());
    for (int log = 0; log < 2; ++log) {
      (log ? log_softmax_backward(g.data(), y.data(), out.data(), 2, n)
           : softmax_backward(g.data(), y.data(), out.data(), 2, n));
      for (Index row = 0; row < 2; ++row) {
        double sum = 0.0;
        for (Index i = row * n; i < (row + 1) * n; ++i) {
          sum += log ? at(g, i) : at(g, i) * at(y, i);
        }
        for (Index i = row * n; i < (row + 1) * n; ++i) {
          const double expected =
              log ? at(g, i) - std::exp(at(y, i)) * sum : at(y, i) * (at(g, i) - sum);
          CHECK(std::fabs(at(out, i) - expected) <= tolerance<T>() * (1.0 + std::fabs(sum)));
        }
      }
    }
  }
}

template <class T>
void check_norms() {
  for (Index n : kSizes) {
    const Index rows = 70;  // more than are added before the sums go to doubles
    const auto g = values<T>(rows * n, 1), x = values<T>(rows * n, 2), weight = values<T>(n, 3);
    const auto mean = values<T>(rows, 4), rstd = values<T>(rows, 5);
    std::vector<T> dx(x.size()), dweight(weight.size()), dbias(weight.size());
    layer_norm_backward(LayerNormBackward<T>{g.data(), x.data(), mean.data(), rstd.data(),
                                             weight.data(), dx.data(), dweight.data(), dbias.data(),
                                             rows, n});
    std::vector<double> sum_g(weight.size()), sum_gh(weight.size());
    for (Index row = 0; row < rows; ++row) {
      const double m = at(mean, row), r = at(rstd, row);
      double mean_u = 0.0, mean_uh = 0.0;
      for (Index i = 0; i < n; ++i) {
        const double h = (at(x, row * n + i) - m) * r, u = at(g, row * n + i) * at(weight, i);
        mean_u += u / static_cast<double>(n);
        mean_uh += u * h / static_cast<double>(n);
        sum_g[static_cast<std::size_t>(i)] += at(g, row * n + i);
        sum_gh[static_cast<std::size_t>(i)] += at(g, row * n + i) * h;
      }
      for (Index i = 0; i < n; ++i) {
        const double h = (at(x, row * n + i) - m) * r, u = at(g, row * n + i) * at(weight, i);
        CHECK(close(dx[static_cast<std::size_t>(row * n + i)], r * (u - mean_u - h * mean_uh)));
      }
    }
    for (std::size_t i = 0; i < sum_g.size(); ++i) {
      CHECK(close(dweight[i], sum_gh[i]));
      CHECK(close(dbias[i], sum_g[i]));
    }
    // The same array as a batch of `rows` images with one channel, and as a matrix of `n` channels.
    for (Index channels : {Index{1}, n}) {
      const Index positions = n / channels, count = rows * positions;
      const auto size = static_cast<std::size_t>(channels);
      std::vector<T> out(x.size()), centre(size), var(size), scale(size);
      batch_norm(BatchNorm<T>{x.data(), nullptr, nullptr, out.data(), centre.data(), var.data(),
                              scale.data(), rows, channels, positions, 1e-3, true});
      double m = 0.0, v = 0.0;
      for (Index k = 0; k < count; ++k) {
        m += at(x, (k / positions) * n + k % positions) / static_cast<double>(count);
      }
      for (Index k = 0; k < count; ++k) {
        const double d = at(x, (k / positions) * n + k % positions) - m;
        v += d * d / static_cast<double>(count);
      }
      CHECK(close(centre[0], m));
      CHECK(close(var[0], v));
      CHECK(close(scale[0], 1.0 / std::sqrt(v + 1e-3)));
      CHECK(close(out[0], (at(x, 0) - m) / std::sqrt(v + 1e-3)));
      std::vector<T> again(x.size());
      batch_norm(BatchNorm<T>{x.data(), nullptr, nullptr, again.data(), centre.data(), var.data(),
                              scale.data(), rows, channels, positions, 1e-3, false});
      for (std::size_t i = 0; i < again.size(); ++i) {
        CHECK(close(again[i], static_cast<double>(out[i])));
      }
      std::vector<T> dw(size), db(size);
      batch_norm_backward(BatchNormBackward<T>{g.data(), x.data(), centre.data(), scale.data(),
                                               nullptr, dx.data(), dw.data(), db.data(), rows,
                                               channels, positions, true});
      // What is left of the gradient neither shifts nor scales the channel.
      double along_one = 0.0, along_x = 0.0;
      for (Index k = 0; k < count; ++k) {
        const Index i = (k / positions) * n + k % positions;
        along_one += at(dx, i) / static_cast<double>(count);
        along_x += at(dx, i) * (at(x, i) - m) / static_cast<double>(count);
      }
      CHECK(std::fabs(along_one) <= tolerance<T>());
      CHECK(std::fabs(along_x) <= 1e-2);  // eps in the deviation leaves a little
    }
  }
}

template <class T>
void check_cross_entropy() {
  for (Index n : kSizes) {
    const auto x = values<T>(3 * n, 1, 5.0);
    const std::vector<std::int64_t> targets{n - 1, -100, 0};
    const auto g = values<T>(3, 2);
    std::vector<T> loss(3), sums(3), dx(x.size());
    Inside inside{true};
    cross_entropy(CrossEntropy<T>{x.data(), targets.data(), nullptr, loss.data(), sums.data(), 3, n,
                                  -100, 0.0, &inside});
    cross_entropy_backward(CrossEntropyBackward<T>{g.data(), x.data(), targets.data(), nullptr,
                                                   sums.data(), dx.data(), 3, n, -100, 0.0,
                                                   &inside});
    CHECK(inside);
    for (Index row = 0; row < 3; ++row) {
      double sum = 0.0;
      for (Index i = 0; i < n; ++i) {
        sum += std::exp(at(x, row * n + i));
      }
      const std::int64_t target = targets[static_cast<std::size_t>(row)];
      CHECK(close(loss[static_cast<std::size_t>(row)],
                  target < 0 ? 0.0 : std::log(sum) - at(x, row * n + target)));
      for (Index i = 0; i < n; ++i) {
        const double p = std::exp(at(x, row * n + i)) / sum;
        const double expected = target < 0 ? 0.0 : at(g, row) * (p - (i == target ? 1.0 : 0.0));
        CHECK(close(dx[static_cast<std::size_t>(row * n + i)], expected));
      }
    }
  }
}

// What another thread may write after the caller has looked: nothing is read or written there.
template <class T>
void check_indices_out_of_range() {
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  for (const std::int64_t wrong : {std::int64_t{3}, std::int64_t{-1}, kHuge, kLeast}) {
    const auto x = values<T>(6, 1), g = values<T>(6, 2);
    const std::vector<std::int64_t> indices{wrong, 2};
    std::vector<T> loss(2), sums(2), dx(6), w(3, T(1));
    for (const double smoothing : {0.0, 0.1}) {
      Inside inside{true};
      cross_entropy(CrossEntropy<T>{x.data(), indices.data(), w.data(), loss.data(), sums.data(), 2,
                                    3, -100, smoothing, &inside});
      CHECK(!inside && loss[0] == 0 && loss[1] != 0);
      inside = true;
      cross_entropy_backward(CrossEntropyBackward<T>{g.data(), x.data(), indices.data(), w.data(),
                                                     sums.data(), dx.data(), 2, 3, -100, smoothing,
                                                     &inside});
      CHECK(!inside && dx[0] == 0 && dx[3] != 0);
    }
    Inside inside{true};
    std::vector<T> out(9);
    scatter_add_rows(indices.data(), g.data(), out.data(), 2, 3, nullptr, 3, &inside);
    CHECK(!inside && out[0] == 0 && out[6] == g[3]);
    inside = true;
    std::vector<T> plane(3);
    max_pool_backward(MaxPoolBackward<T>{g.data(), indices.data(), plane.data(), 1, 2, 3, &inside});
    CHECK(!inside && plane[0] == 0 && plane[2] == g[1]);
  }
}

template <class T>
void check_scatter() {
  for (Index width : kSizes) {
    const std::vector<std::int64_t> indices{2, 0, 2, 1, 2};
    const std::int64_t skipped = 1;
    const auto g = values<T>(5 * width, 1);
    std::vector<T> out(static_cast<std::size_t>(3 * width));
    Inside inside{true};
    scatter_add_rows(indices.data(), g.data(), out.data(), 5, width, &skipped, 3, &inside);
    CHECK(inside);
    for (Index i = 0; i < width; ++i) {
      CHECK(at(out, i) == at(g, width + i));
      CHECK(at(out, width + i) == 0.0);
      CHECK(close(out[static_cast<std::size_t>(2 * width + i)],
                  at(g, i) + at(g, 2 * width + i) + at(g, 4 * width + i)));
    }
  }
}

template <class T>
void check_optimizers() {
  for (Index n : kSizes) {
    const auto start = values<T>(n, 1), grad = values<T>(n, 2);
    auto param = start, mean = values<T>(n, 3), square = values<T>(n, 4);
    for (auto &v : square) {
      v = std::fabs(v);
    }
    const auto mean_before = mean, square_before = square;
    adam_step(AdamStep<T>{param.data(), grad.data(), mean.data(), square.data(), nullptr, n, 0.1,
                          0.9, 0.99, 1e-8, 0.0, 0.19, 0.0199, false, false});
    for (Index i = 0; i < n; ++i) {
      const double m = 0.9 * at(mean_before, i) + 0.1 * at(grad, i);
      const double s = 0.99 * at(square_before, i) + 0.01 * at(grad, i) * at(grad, i);
      CHECK(close(mean[static_cast<std::size_t>(i)], m));
      CHECK(close(square[static_cast<std::size_t>(i)], s));
      const double step = 0.1 * (m / 0.19) / (std::sqrt(s / 0.0199) + 1e-8);
      CHECK(std::fabs(at(param, i) - (at(start, i) - step)) <=
            tolerance<T>() * (1.0 + 10.0 * std::fabs(step)));
    }
    param = start;
    auto buffer = mean_before;
    sgd_step(SgdStep<T>{param.data(), grad.data(), buffer.data(), n, 0.1, 0.9, 0.0, 0.01, false,
                        false, false});
    for (Index i = 0; i < n; ++i) {
      const double b = 0.9 * at(mean_before, i) + at(grad, i) + 0.01 * at(start, i);
      CHECK(close(buffer[static_cast<std::size_t>(i)], b));
      CHECK(close(param[static_cast<std::size_t>(i)], at(start, i) - 0.1 * b));
    }
    param = start;
    square = square_before;
    rmsprop_step(RmspropStep<T>{param.data(), grad.data(), square.data(), nullptr, nullptr, n, 0.1,
                                0.9, 1e-3, 0.0, 0.0, false});
    for (Index i = 0; i < n; ++i) {
      const double s = 0.9 * at(square_before, i) + 0.1 * at(grad, i) * at(grad, i);
      CHECK(close(param[static_cast<std::size_t>(i)],
                  at(start, i) - 0.1 * at(grad, i) / (std::sqrt(s) + 1e-3)));
    }
  }
}

template <class T>
void check_cells() {
  for (Index n : kSizes) {
    const Index batch = 2;
    const auto x = values<T>(batch * 4 * n, 1, 3.0), y = values<T>(batch * 4 * n, 2, 3.0),
               before = values<T>(batch * n, 3);
    std::vector<T> h(before.size()), c(before.size()), gates(x.size());
    lstm_cell(
        LstmCell<T>{x.data(), y.data(), before.data(), h.data(), c.data(), gates.data(), batch, n});
    for (Index row = 0; row < batch; ++row) {
      for (Index i = 0; i < n; ++i) {
        const auto gate = [&](Index k) {
          return at(x, (4 * row + k) * n + i) + at(y, (4 * row + k) * n + i);
        };
        const double state = sigmoid_of(gate(1)) * at(before, row * n + i) +
                             sigmoid_of(gate(0)) * std::tanh(gate(2));
        CHECK(close(c[static_cast<std::size_t>(row * n + i)], state));
        CHECK(close(h[static_cast<std::size_t>(row * n + i)],
                    sigmoid_of(gate(3)) * std::tanh(state)));
      }
    }
    auto sums = x;  // the gates may take the place of the inputs
    lstm_cell(LstmCell<T>{sums.data(), y.data(), before.data(), h.data(), c.data(), sums.data(),
                          batch, n});
    CHECK(sums == gates);
    const auto dh = values<T>(batch * n, 4);
    std::vector<T> dgates(x.size()), dbefore(before.size());
    lstm_cell_backward(LstmCellBackward<T>{dh.data(), nullptr, gates.data(), before.data(),
                                           c.data(), dgates.data(), dbefore.data(), batch, n});
    for (Index i = 0; i < n; ++i) {
      const double squashed = std::tanh(at(c, i));
      const double state = at(dh, i) * at(gates, 3 * n + i) * (1.0 - squashed * squashed);
      CHECK(close(dbefore[static_cast<std::size_t>(i)], state * at(gates, n + i)));
      CHECK(close(dgates[static_cast<std::size_t>(3 * n + i)],
                  at(dh, i) * squashed * at(gates, 3 * n + i) * (1.0 - at(gates, 3 * n + i))));
    }
    gru_cell(GruCell<T>{x.data(), y.data(), before.data(), h.data(), gates.data(), batch, n});
    for (Index row = 0; row < batch; ++row) {
      for (Index i = 0; i < n; ++i) {
        const auto of_x = [&](Index k) { return at(x, (3 * row + k) * n + i); };
        const auto of_y = [&](Index k) { return at(y, (3 * row + k) * n + i); };
        const double update = sigmoid_of(of_x(1) + of_y(1));
        const double fresh = std::tanh(of_x(2) + sigmoid_of(of_x(0) + of_y(0)) * of_y(2));
        CHECK(close(h[static_cast<std::size_t>(row * n + i)],
                    (1.0 - update) * fresh + update * at(before, row * n + i)));
      }
    }
    std::vector<T> dx(static_cast<std::size_t>(batch * 3 * n)), dy(dx.size());
    gru_cell_backward(GruCellBackward<T>{dh.data(), gates.data(), y.data(), before.data(),
                                         dx.data(), dy.data(), dbefore.data(), batch, n});
    for (Index i = 0; i < n; ++i) {
      CHECK(close(dbefore[static_cast<std::size_t>(i)], at(dh, i) * at(gates, n + i)));
      CHECK(close(dy[static_cast<std::size_t>(2 * n + i)], at(dx, 2 * n + i) * at(gates, i)));
    }
  }
}

template <class T>
void check_all() {
  check_activations<T>();
  check_softmax_gradients<T>();
  check_norms<T>();
  check_cross_entropy<T>();
  check_indices_out_of_range<T>();
  check_scatter<T>();
  check_optimizers<T>();
  check_cells<T>();
}

}  // namespace

int main() {
  check_all<float>();
  check_all<double>();
  return 0;
}
