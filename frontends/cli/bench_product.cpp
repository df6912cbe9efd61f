// SPDX-License-Identifier: MIT
// A matrix product as a row of the bench, and a few of its elements by the exact tier.
#include <algorithm>
#include <cmath>
#include <vector>

#include "attest/base/widened.h"
#include "attest/lab/exact_sum.h"
#include "attest/linalg/gemm.h"
#include "frontends/cli/bench_run.h"
#include "frontends/cli/bench_tensors.h"

namespace attest::cli {
namespace {

template <class T>
class ProductOf final : public BenchCall {
 public:
  ProductOf(const BenchRow& row, Isa isa, int threads)
      : pool_(threads),
        a_(random_tensor<T>({row.queries, row.width}, 1)),
        b_(random_tensor<T>({row.width, row.keys}, 2)),
        c_({row.queries, row.keys}),
        execution_{.threads = &pool_, .isa = isa} {}

  void run() override {
    gemm(c_.template view<2>(), std::as_const(a_).template view<2>(),
         std::as_const(b_).template view<2>(), {}, execution_);
  }

  /// Over √K, as if the variance of C were 1.
  Result<double> max_error() override {
    run();
    constexpr std::int64_t count = 64;
    double worst = 0;
    for (std::int64_t n = 0; n < count; ++n) {
      const std::int64_t i = n * (c_.extent(0) - 1) / (count - 1);
      const std::int64_t j = n * 29 % c_.extent(1);
      const double error =
          std::abs(widened(c_(i, j)) - exact(i, j)) / std::sqrt(static_cast<double>(a_.extent(1)));
      if (!(error <= worst)) worst = error;  // a NaN stays
    }
    return worst;
  }

 private:
  double exact(std::int64_t i, std::int64_t j) const {
    std::vector<double> row;
    std::vector<double> column;
    for (std::int64_t k = 0; k < a_.extent(1); ++k) {
      row.push_back(widened(a_(i, k)));
      column.push_back(widened(b_(k, j)));
    }
    return lab::exact_dot({row.data(), 1}, {column.data(), 1}, a_.extent(1));
  }

  ThreadPool pool_;
  Tensor<T> a_, b_, c_;
  Execution execution_;
};

}  // namespace

std::unique_ptr<BenchCall> make_product(const BenchRow& row, Isa isa, int threads) {
  if (row.dtype == DType::bf16) return std::make_unique<ProductOf<BFloat16>>(row, isa, threads);
  return std::make_unique<ProductOf<float>>(row, isa, threads);
}

}  // namespace attest::cli
