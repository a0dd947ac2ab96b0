// SPDX-License-Identifier: Apache-2.0
// How tests compare tensors with numbers and with each other.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "tensor/tensor.h"

inline std::vector<double> doubles(const heed::Tensor& x) { return heed::to(x, heed::DType::f64).contiguous().to_vector<double>(); }

// Largest |x - y| (equal infinities count 0, a NaN on one side counts infinity), also divided by `scale` of each element.
template <class F> double worst(const heed::Tensor& x, const std::vector<double>& y, F&& scale) {
  const std::vector<double> values = doubles(x);
  if (values.size() != y.size()) return INFINITY;
  double most = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    if (values[i] == y[i] || (std::isnan(values[i]) && std::isnan(y[i]))) continue;
    const double difference = std::abs(values[i] - y[i]) / scale(y[i]);
    most = std::isnan(difference) ? INFINITY : std::max(most, difference);
  }
  return most;
}
inline double worst_absolute(const heed::Tensor& x, const std::vector<double>& y) { return worst(x, y, [](double) { return 1.0; }); }
inline double worst_relative(const heed::Tensor& x, const std::vector<double>& y) {
  return worst(x, y, [](double v) { return std::abs(v); });
}
inline double worst_absolute(const heed::Tensor& x, const heed::Tensor& y) { return worst_absolute(x, doubles(y)); }

// Largest finite |x|, for doctest::Approx, which allows epsilon (scale + |x|): its scale of 1 hides what small numbers are.
inline double largest_of(const std::vector<double>& x) {
  double most = 1e-300;
  for (const double v : x)
    if (std::isfinite(v)) most = std::max(most, std::abs(v));
  return most;
}

inline bool all_nan(const heed::Tensor& x) {
  const auto values = doubles(x);
  return std::all_of(values.begin(), values.end(), [](double v) { return std::isnan(v); });
}
