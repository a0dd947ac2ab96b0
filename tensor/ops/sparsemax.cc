// SPDX-License-Identifier: Apache-2.0
// Rows are sorted, so this is scalar code, in double for both dtypes.
#include "tensor/ops/sparsemax.h"

#include <cmath>

#include "tensor/format.h"
#include "tensor/list.h"
#include "tensor/ops/kernel.h"
#include "tensor/ops/mask_rows.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/view.h"
#include "tensor/parallel.h"

namespace heed {
namespace {

enum class Family { sparsemax, entmax };

// τ for z sorted downwards with z[0] = 0: the largest k whose threshold lies below its smallest entry.
double threshold(Family family, const List<double>& z) {
  double sum = 0, squares = 0, tau = 0;
  for (std::size_t i = 0; i < z.size() && z[i] > -1; ++i) {      // p_0 <= 1, so τ >= -1
    const double k = double(i + 1);
    sum += z[i];
    squares += z[i] * z[i];
    const double mean = sum / k, spread = squares - sum * mean;                        // Σ (z - mean)²
    const double next = family == Family::sparsemax ? (sum - 1) / k : mean - std::sqrt(std::max(0.0, (1 - spread) / k));
    if (!(family == Family::sparsemax ? 1 + k * z[i] > sum : next <= z[i])) break;
    tau = next;
  }
  return tau;
}

template <class T> void row_of(Family family, const T* x, Index n, const RowMask& mask, List<double>& z, T* p) {
  const double scale = family == Family::entmax ? 0.5 : 1;
  const auto allowed = [&](Index i) { return i >= mask.first && i < mask.last && (!mask.allowed || mask.allowed[i]); };
  std::fill_n(p, n, T(0));
  z.clear();
  bool finite = true;
  for (Index i = mask.first; i < mask.last; ++i)
    if (allowed(i)) {
      z.push_back(double(x[i]) * scale);
      finite = finite && !std::isnan(x[i]);
    }
  if (z.empty()) return;
  if (finite) std::sort(z.begin(), z.end(), std::greater<>());
  const double most = z[0];
  finite = finite && std::isfinite(most);
  for (double& value : z) value -= most;
  const double tau = finite ? threshold(family, z) : std::nan("");
  for (Index i = mask.first; i < mask.last; ++i) {
    if (!allowed(i)) continue;
    const double above = double(x[i]) * scale - most - tau, kept = above > 0 || !finite ? above : 0;
    p[i] = T(!finite ? tau : family == Family::entmax ? kept * kept : kept);
  }
}

Tensor weights(const char* op, Family family, const Tensor& x, const Mask& mask) {
  check<ShapeError>(x.rank() > 0, "{}: needs at least 1 dimension: {}", op, x.shape());
  return visit_float(x.dtype(), op, [&]<class T>() {
    const Tensor from = x.contiguous(), p = empty(x.shape(), x.dtype());
    const MaskRows masks(op, mask, x.shape());
    const Index n = x.size(-1);
    const T* in = from.data<T>();
    T* out = p.mutable_data<T>();
    if (p.numel() > 0)
      parallel_for(p.numel() / n, row_grain(n * 16), [&](Index begin, Index end) {
        List<double> z;
        for (Index row = begin; row < end; ++row) row_of(family, in + row * n, n, masks.everything() ? RowMask{0, n} : masks(row), z, out + row * n);
      });
    return p;
  });
}

// dx = s ⊙ (dp - Σ s dp / Σ s)
void weights_grad(const char* op, Family family, const Tensor& p, const Tensor& dp, const Into& dx) {
  for (const Tensor& other : {dp, dx.tensor}) {
    check<ShapeError>(other.shape() == p.shape(), "{}: shapes differ: p {}, other {}", op, p.shape(), other.shape());
    check<DTypeError>(other.dtype() == p.dtype(), "{}: dtypes differ: p {}, other {}", op, p.dtype(), other.dtype());
  }
  visit_float(p.dtype(), op, [&]<class T>() {
    const Tensor ps = p.contiguous(), dps = dp.contiguous();
    const Destination out(dx);
    const Index n = p.rank() ? p.size(-1) : 1;
    const T *a = ps.data<T>(), *b = dps.data<T>();
    T* to = out.tensor().mutable_data<T>();
    const auto s = [family](T value) { return family == Family::entmax ? std::sqrt(double(value)) : value > 0 ? 1.0 : double(value); };   // NaN stays
    if (p.numel() > 0)
      parallel_for(p.numel() / n, row_grain(n * 4), [&](Index begin, Index end) {
        for (Index row = begin; row < end; ++row) {
          double total = 0, dot = 0;
          for (Index i = row * n; i < (row + 1) * n; ++i) {
            if (a[i] == 0) continue;                             // takes no part, whatever dp holds
            total += s(a[i]);
            dot += s(a[i]) * double(b[i]);
          }
          const double mean = total > 0 ? dot / total : 0;
          for (Index i = row * n; i < (row + 1) * n; ++i) {
            const T g = a[i] == 0 ? T(0) : T(s(a[i]) * (double(b[i]) - mean));
            to[i] = out.add() ? to[i] + g : g;
          }
        }
      });
    out.finish();
  });
}

}  // namespace

namespace {

constexpr double kLeast = 1.0001;

// α of each row of x, f64
List<double> of_rows(const char* op, const Tensor& x, const Tensor& alpha) {
  check<ShapeError>(x.rank() > 0, "{}: needs at least 1 dimension: {}", op, x.shape());
  check<DTypeError>(alpha.dtype() == x.dtype(), "{}: dtypes differ: x {}, alpha {}", op, x.dtype(), alpha.dtype());
  Shape rows = x.shape();
  rows.erase(x.rank() - 1);
  bool fits = alpha.rank() <= rows.rank();
  for (int axis = 1; axis <= alpha.rank() && fits; ++axis) fits = alpha.size(-axis) == 1 || alpha.size(-axis) == rows[rows.rank() - axis];
  check<ShapeError>(fits, "{}: alpha does not broadcast to the rows: x {}, alpha {}", op, x.shape(), alpha.shape());
  const Tensor every = to(expand(alpha, rows), DType::f64).contiguous();
  List<double> out;
  for (const double a : every.span<double>()) {
    check<Error>(!(a < 1) && !(a > 2), "{}: alpha must be in [1, 2]: {}", op, a);
    out.push_back(std::max(a, kLeast));
  }
  return out;
}

// τ for z with z_max = 0. Σ p falls with τ and is convex: Newton's steps from τ = -1, where it is at least 1, come from one side.
double threshold(double alpha, const List<double>& z) {
  double tau = -1;
  for (int step = 0; step < 100; ++step) {
    double total = 0, slope = 0;
    for (const double value : z) {
      if (value <= tau) continue;
      const double s = std::pow(value - tau, (2 - alpha) / (alpha - 1));
      total += s * (value - tau);
      slope += s;
    }
    const double next = tau + (total - 1) * (alpha - 1) / slope;
    if (!(next > tau)) break;
    tau = next;
  }
  return tau;
}

template <class T> void row_of(double alpha, const T* x, Index n, const RowMask& mask, List<double>& z, T* p) {
  const auto allowed = [&](Index i) { return i >= mask.first && i < mask.last && (!mask.allowed || mask.allowed[i]); };
  std::fill_n(p, n, T(0));
  z.clear();
  double most = -INFINITY;
  bool finite = true;
  for (Index i = mask.first; i < mask.last; ++i)
    if (allowed(i)) {
      z.push_back((alpha - 1) * double(x[i]));
      most = std::max(most, z[z.size() - 1]);
      finite = finite && !std::isnan(x[i]);
    }
  finite = finite && std::isfinite(most);                        // nor is α a NaN
  for (double& value : z) value -= most;
  const double tau = finite ? threshold(alpha, z) : std::nan("");
  double total = 0;
  for (double& value : z) total += value = !finite ? tau : value > tau ? std::pow(value - tau, 1 / (alpha - 1)) : 0;
  std::size_t at = 0;
  for (Index i = mask.first; i < mask.last; ++i)
    if (allowed(i)) p[i] = T(z[at++] / total);
}

}  // namespace

Tensor alpha_entmax(const Tensor& x, const Tensor& alpha, const Mask& mask) {
  const char* const op = "alpha_entmax";
  return visit_float(x.dtype(), op, [&]<class T>() {
    const List<double> alphas = of_rows(op, x, alpha);
    const Tensor from = x.contiguous(), p = empty(x.shape(), x.dtype());
    const MaskRows masks(op, mask, x.shape());
    const Index n = x.size(-1);
    const T* in = from.data<T>();
    T* out = p.mutable_data<T>();
    if (p.numel() > 0)
      parallel_for(p.numel() / n, row_grain(n * 200), [&](Index begin, Index end) {
        List<double> z;
        for (Index row = begin; row < end; ++row) row_of(alphas[std::size_t(row)], in + row * n, n, masks.everything() ? RowMask{0, n} : masks(row), z, out + row * n);
      });
    return p;
  });
}

void alpha_entmax_grad(const Tensor& p, const Tensor& alpha, const Tensor& dp, const Into* dx, const Into* dalpha) {
  const char* const op = "alpha_entmax_grad";
  check<ShapeError>(dp.shape() == p.shape(), "{}: shapes differ: p {}, dp {}", op, p.shape(), dp.shape());
  check<DTypeError>(dp.dtype() == p.dtype(), "{}: dtypes differ: p {}, dp {}", op, p.dtype(), dp.dtype());
  visit_float(p.dtype(), op, [&]<class T>() {
    const List<double> alphas = of_rows(op, p, alpha);
    Shape rows = p.shape();
    rows.erase(p.rank() - 1);
    const Tensor ps = p.contiguous(), dps = dp.contiguous(), of_alpha = zeros(rows, p.dtype()), of_x = empty(p.shape(), p.dtype());
    const Index n = p.size(-1);
    const T *a = ps.data<T>(), *b = dps.data<T>();
    T *const to_alpha = of_alpha.mutable_data<T>(), *const to_x = of_x.mutable_data<T>();
    if (p.numel() > 0)
      parallel_for(p.numel() / n, row_grain(n * 50), [&](Index begin, Index end) {
        List<double> s;
        for (Index row = begin; row < end; ++row) {
          const double order = alphas[std::size_t(row)], below = order - 1;
          const T *const pr = a + row * n, *const dr = b + row * n;
          double total = 0, dot = 0, entropy = 0, g = 0;
          s.clear();
          for (Index i = 0; i < n; ++i) {
            s.push_back(pr[i] == 0 ? 0.0 : std::pow(double(pr[i]), 2 - order));
            if (pr[i] == 0) continue;                            // takes no part, whatever dp holds
            total += s[std::size_t(i)];
            dot += s[std::size_t(i)] * double(dr[i]);
            entropy -= double(pr[i]) * std::log(double(pr[i]));
          }
          const double mean = total > 0 ? dot / total : 0;
          for (Index i = 0; i < n; ++i) {
            const double si = s[std::size_t(i)], pi = double(pr[i]);
            to_x[row * n + i] = pr[i] == 0 ? T(0) : T(si * (double(dr[i]) - mean));
            if (pr[i] != 0) g += double(dr[i]) * ((pi - si / total) / (below * below) + (-pi * std::log(pi) - si / total * entropy) / below);
          }
          to_alpha[row] = T(g);
        }
      });
    if (dx) add_into(of_x, *dx);
    if (dalpha) sum_to(of_alpha, *dalpha);
  });
}

Tensor sparsemax(const Tensor& x, const Mask& mask) { return weights("sparsemax", Family::sparsemax, x, mask); }
Tensor entmax(const Tensor& x, const Mask& mask) { return weights("entmax", Family::entmax, x, mask); }
void sparsemax_grad(const Tensor& p, const Tensor& dp, Into dx) { weights_grad("sparsemax_grad", Family::sparsemax, p, dp, dx); }
void entmax_grad(const Tensor& p, const Tensor& dp, Into dx) { weights_grad("entmax_grad", Family::entmax, p, dp, dx); }

}  // namespace heed
