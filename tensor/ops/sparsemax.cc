// SPDX-License-Identifier: Apache-2.0
// Rows are sorted or searched, so this is scalar code, in double for both dtypes.
#include "tensor/ops/sparsemax.h"

#include <cmath>
#include <optional>

#include "tensor/format.h"
#include "tensor/list.h"
#include "tensor/ops/axes.h"
#include "tensor/ops/kernel.h"
#include "tensor/ops/mask_rows.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/view.h"
#include "tensor/parallel.h"

namespace heed {
namespace {

enum class Family { sparsemax, entmax, alpha };

constexpr double kLeast = 1.0001;                                // α

// What the rows of x are to become.
struct Kind {
  const char* op;
  Family family;
  List<double> alphas = {};                                      // of Family::alpha, one a row
  double alpha(Index row) const { return family == Family::sparsemax ? 2 : family == Family::entmax ? 1.5 : alphas[std::size_t(row)]; }
};

Kind kind_of(const char* op, const Tensor& x, const Tensor& alpha) {
  check<ShapeError>(x.rank() > 0, "{}: needs at least 1 dimension: {}", op, x.shape());
  check<DTypeError>(alpha.dtype() == x.dtype(), "{}: dtypes differ: x {}, alpha {}", op, x.dtype(), alpha.dtype());
  const Shape rows = without_last(x.shape());
  check<ShapeError>(broadcasts_to(alpha.shape(), rows), "{}: alpha does not broadcast to the rows: x {}, alpha {}", op, x.shape(), alpha.shape());
  const Tensor every = to(expand(alpha, rows), DType::f64).contiguous();
  Kind kind{op, Family::alpha};
  for (const double a : every.span<double>()) {
    check<Error>(!(a < 1) && !(a > 2), "{}: alpha must be in [1, 2]: {}", op, a);
    kind.alphas.push_back(std::max(a, kLeast));
  }
  return kind;
}

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

// τ for any α and order of z, whose largest is 0. Σ p falls with τ and is convex: Newton's steps from τ = -1, where it is at least 1, come
// from one side.
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

template <class T> void row_of(Family family, double alpha, const T* x, Index n, const RowMask& mask, List<double>& z, T* p) {
  const double scale = alpha - 1;
  const auto allowed = [&](Index i) { return !mask.allowed || mask.allowed[i]; };
  std::fill_n(p, n, T(0));
  z.clear();
  bool finite = !std::isnan(alpha);
  for (Index i = mask.first; i < mask.last; ++i)
    if (allowed(i)) {
      z.push_back(double(x[i]) * scale);
      finite = finite && !std::isnan(x[i]);
    }
  if (z.empty()) return;
  const double most = *std::max_element(z.begin(), z.end());
  finite = finite && std::isfinite(most);
  if (finite && family != Family::alpha) std::sort(z.begin(), z.end(), std::greater<>());
  for (double& value : z) value -= most;
  const double tau = !finite ? std::nan("") : family == Family::alpha ? threshold(alpha, z) : threshold(family, z);
  double total = 0;
  std::size_t at = 0;
  for (Index i = mask.first; i < mask.last; ++i) {
    if (!allowed(i)) continue;
    const double above = double(x[i]) * scale - most - tau, kept = above > 0 ? above : 0;
    z[at] = !finite ? tau : family == Family::alpha ? std::pow(kept, 1 / scale) : family == Family::entmax ? kept * kept : kept;
    total += z[at++];
  }
  at = 0;
  for (Index i = mask.first; i < mask.last; ++i)
    if (allowed(i)) p[i] = T(family == Family::alpha ? z[at++] / total : z[at++]);
}

Tensor weights(const Kind& kind, const Tensor& x, const Mask& mask) {
  check<ShapeError>(x.rank() > 0, "{}: needs at least 1 dimension: {}", kind.op, x.shape());
  return visit_float(x.dtype(), kind.op, [&]<class T>() {
    const Tensor from = x.contiguous(), p = empty(x.shape(), x.dtype());
    const MaskRows masks(kind.op, mask, x.shape());
    const Index n = x.size(-1);
    const T* in = from.data<T>();
    T* out = p.mutable_data<T>();
    if (p.numel() > 0)
      parallel_for(p.numel() / n, row_grain(n * (kind.family == Family::alpha ? 200 : 16)), [&](Index begin, Index end) {
        List<double> z;
        for (Index row = begin; row < end; ++row)
          row_of(kind.family, kind.alpha(row), in + row * n, n, masks(row), z, out + row * n);
      });
    return p;
  });
}

// dx = s ⊙ (dp - Σ s dp / Σ s);  of_rows: dα of each row, where it is wanted
void weights_grad(const Kind& kind, const Tensor& p, const Tensor& dp, const Into* dx, const Tensor& of_rows = {}) {
  for (const Tensor& other : {dp, dx ? dx->tensor : dp}) {
    check<ShapeError>(other.shape() == p.shape(), "{}: shapes differ: p {}, other {}", kind.op, p.shape(), other.shape());
    check<DTypeError>(other.dtype() == p.dtype(), "{}: dtypes differ: p {}, other {}", kind.op, p.dtype(), other.dtype());
  }
  visit_float(p.dtype(), kind.op, [&]<class T>() {
    const Tensor ps = p.contiguous(), dps = dp.contiguous();
    std::optional<Destination> out;
    if (dx) out.emplace(*dx);
    const Index n = p.rank() ? p.size(-1) : 1;
    const T *a = ps.data<T>(), *b = dps.data<T>();
    T* const to = out ? out->tensor().mutable_data<T>() : nullptr;
    T* const of_alpha = mutable_data_or_null<T>(of_rows);
    const auto s_of = [&](double alpha, double value) {          // NaN stays
      if (kind.family == Family::alpha) return std::pow(value, 2 - alpha);
      return kind.family == Family::entmax ? std::sqrt(value) : value > 0 ? 1.0 : value;
    };
    if (p.numel() > 0)
      parallel_for(p.numel() / n, row_grain(n * (kind.family == Family::alpha ? 50 : 4)), [&](Index begin, Index end) {
        List<double> s;
        for (Index row = begin; row < end; ++row) {
          const T *const pr = a + row * n, *const dr = b + row * n;
          const double alpha = kind.alpha(row), scale = alpha - 1;
          double total = 0, dot = 0, entropy = 0, g = 0;
          s.clear();
          for (Index i = 0; i < n; ++i) {
            s.push_back(pr[i] == 0 ? 0.0 : s_of(alpha, double(pr[i])));
            if (pr[i] == 0) continue;                            // takes no part, whatever dp holds
            total += s[std::size_t(i)];
            dot += s[std::size_t(i)] * double(dr[i]);
            if (of_alpha) entropy -= double(pr[i]) * std::log(double(pr[i]));
          }
          const double mean = total > 0 ? dot / total : 0;
          for (Index i = 0; i < n; ++i) {
            const double si = s[std::size_t(i)], pi = double(pr[i]);
            const T of_x = pr[i] == 0 ? T(0) : T(si * (double(dr[i]) - mean));
            if (to) to[row * n + i] = out->add() ? to[row * n + i] + of_x : of_x;
            if (of_alpha && pr[i] != 0)
              g += double(dr[i]) * ((pi - si / total) / (scale * scale) + (-pi * std::log(pi) - si / total * entropy) / scale);
          }
          if (of_alpha) of_alpha[row] = T(g);
        }
      });
    if (out) out->finish();
  });
}

}  // namespace

Tensor sparsemax(const Tensor& x, const Mask& mask) { return weights({"sparsemax", Family::sparsemax}, x, mask); }
Tensor entmax(const Tensor& x, const Mask& mask) { return weights({"entmax", Family::entmax}, x, mask); }
Tensor alpha_entmax(const Tensor& x, const Tensor& alpha, const Mask& mask) { return weights(kind_of("alpha_entmax", x, alpha), x, mask); }

void sparsemax_grad(const Tensor& p, const Tensor& dp, Into dx) { weights_grad({"sparsemax_grad", Family::sparsemax}, p, dp, &dx); }
void entmax_grad(const Tensor& p, const Tensor& dp, Into dx) { weights_grad({"entmax_grad", Family::entmax}, p, dp, &dx); }
void alpha_entmax_grad(const Tensor& p, const Tensor& alpha, const Tensor& dp, const Into* dx, const Into* dalpha) {
  const Kind kind = kind_of("alpha_entmax_grad", p, alpha);
  const Tensor of_rows = dalpha ? zeros(without_last(p.shape()), p.dtype()) : Tensor();
  weights_grad(kind, p, dp, dx, of_rows);
  if (dalpha) sum_to(of_rows, *dalpha);
}

}  // namespace heed
