// SPDX-License-Identifier: Apache-2.0
// Zeros, ties, infinities and empty tensors: value and gradient in f64, value in f32, on every SIMD
// target. The rows stand in golden/edges.json, with PyTorch's answer beside Heed's where they differ.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>

#include "autograd/ops.h"
#include "tensor/format.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/view.h"
#include "tests/close.h"
#include "tests/every_target.h"
#include "tests/golden.h"

using namespace heed;

namespace {

using In = std::span<const Variable>;
using Row = std::function<Variable(In)>;

Row one(Variable (*f)(const Variable&)) {
  return [f](In x) { return f(x[0]); };
}
Row two(Variable (*f)(const Variable&, const Variable&)) {
  return [f](In x) { return f(x[0], x[1]); };
}
Row value(std::function<Tensor(const Tensor&)> f) {  // of functions without a gradient
  return [f](In x) { return constant(f(x[0].value())); };
}

Tensor ids(std::initializer_list<Nested> values) { return tensor(Nested(values), DType::i64); }

const std::map<std::string, Row>& rows() {
  const Row softmax_row = [](In x) { return softmax(x[0]); };
  const Row log_softmax_row = [](In x) { return log_softmax(x[0]); };
  const Row logsumexp_row = [](In x) { return logsumexp(x[0], {-1}); };
  const Row sum_row = [](In x) { return sum(x[0]); };
  const Row prod_row = [](In x) { return prod(x[0]); };
  const Row clamp_row = [](In x) { return clamp(x[0], -1, 2); };
  const Row layer_norm_row = [](In x) { return layer_norm(x[0], x[1], x[2], 1e-5); };
  const auto power = [](double exponent) { return Row([exponent](In x) { return pow(x[0], exponent); }); };
  const auto positive = [](const Variable& x) { return greater(x.value(), 0); };
  static const std::map<std::string, Row> table = {
      {"softmax: row of -inf", softmax_row},
      {"softmax: some -inf", softmax_row},
      {"softmax: 1e308 apart", softmax_row},
      {"softmax: row of 0 elements", softmax_row},
      {"log_softmax: row of -inf", log_softmax_row},
      {"log_softmax: 1e4, -1e4", [](In x) { return select(log_softmax(x[0]), -1, 0); }},
      {"logsumexp: all -inf", logsumexp_row},
      {"logsumexp: inf, 1", logsumexp_row},
      {"logsumexp: large", logsumexp_row},
      {"attention: a query without any key",
       [](In x) {
         const auto lift = [](const Variable& v) { return reshape(v, {1, 1, v.size(0), v.size(1)}); };
         const Mask mask = Mask::allowed(tensor({{0, 0, 0}, {1, 0, 1}}, DType::u8));
         const Variable y = scaled_dot_product_attention(lift(x[0]), lift(x[1]), lift(x[2]), mask).output;
         return reshape(y, {y.size(-2), y.size(-1)});
       }},
      {"cross_entropy: every target ignored, mean",
       [](In x) {
         return cross_entropy(x[0], ids({0, 0}), {.ignore_index = 0});
       }},
      {"cross_entropy: every target ignored, sum",
       [](In x) {
         return cross_entropy(x[0], ids({0, 0}), {.ignore_index = 0}, Reduction::sum);
       }},
      {"cross_entropy: no rows, mean", [](In x) { return cross_entropy(x[0], empty({0}, DType::i64)); }},
      {"abs", one(abs)},
      {"relu", one(relu)},
      {"relu of nan", one(relu)},
      {"sqrt at 0", one(sqrt)},
      {"norm at 0", [](In x) { return norm(x[0]); }},
      {"std of constants", [](In x) { return stddev(x[0]); }},
      {"variance of one, unbiased", [](In x) { return var(x[0]); }},
      {"variance of one, biased", [](In x) { return var(x[0], {}, false); }},
      {"clamp at a bound", clamp_row},
      {"clamp of nan", clamp_row},
      {"pow", two(pow)},
      {"pow: constant exponent 0", power(0)},
      {"pow: constant exponent 2", power(2)},
      {"pow: constant exponent 0.5", power(0.5)},
      {"layer_norm: constant row", layer_norm_row},
      {"layer_norm: width 1", layer_norm_row},
      {"rms_norm: row of zeros", [](In x) { return rms_norm(x[0], x[1], 1e-5); }},
      {"max of all, ties", [](In x) { return max(x[0]); }},
      {"max with nan", [](In x) { return max(x[0]); }},
      {"min of all, ties", [](In x) { return min(x[0]); }},
      {"amax over a dim, ties", [](In x) { return max(x[0], {-1}); }},
      {"max over a dim, ties: value", [](In x) { return squeeze(topk(x[0], 1).values, -1); }},
      {"max over a dim, ties: index", [](In x) { return constant(squeeze(topk(x[0], 1).indices, -1)); }},
      {"argmax, ties", value([](const Tensor& x) { return argmax(x); })},
      {"argmax with nan", value([](const Tensor& x) { return argmax(x); })},
      {"maximum, ties", two(maximum)},
      {"minimum, ties", two(minimum)},
      {"maximum with nan", two(maximum)},
      {"minimum with nan", two(minimum)},
      {"sort, ties: order", [](In x) { return constant(sort(x[0]).indices); }},
      {"sum with nan", sum_row},
      {"sum of nothing", sum_row},
      {"mean of nothing", [](In x) { return mean(x[0]); }},
      {"sum over a dim of 0", [](In x) { return sum(x[0], {-1}); }},
      {"prod without zeros", prod_row},
      {"prod with one zero", prod_row},
      {"prod with two zeros", prod_row},
      {"prod of nothing", prod_row},
      {"atan2(0, 0)", two(atan2)},
      {"where(x > 0, sqrt(x), 0)", [=](In x) { return where(positive(x[0]), sqrt(x[0]), constant(zeros_like(x[0].value()))); }},
      {"where, twice",
       [=](In x) {
         const Variable one = constant(ones(x[0].shape(), x[0].dtype()));
         return where(positive(x[0]), sqrt(where(positive(x[0]), x[0], one)), constant(zeros_like(x[0].value())));
       }},
      {"matmul with inner size 0", two(matmul)},
      {"log", one(log)},
      {"log1p", one(log1p)},
      {"exp", one(exp)},
      {"tanh", one(tanh)},
      {"sigmoid", one(sigmoid)},
      {"softplus", one(softplus)},
      {"gelu", one(gelu)},
      {"divide by 0", two(divide)},
      {"float to i32", value([](const Tensor& x) { return to(x, DType::i32); })},
      {"u8 wraps", value([](const Tensor& x) { return add(x, ones(x.shape(), DType::u8)); })},
      {"scatter_add, the same place thrice",
       [](In x) {
         return scatter_add(constant(zeros({3}, x[0].dtype())), 0, ids({1, 1, 1}), x[0]);
       }},
      {"dropout, p = 1", [](In x) { return dropout(x[0], 1); }},
      {"bce_with_logits, targets 0, 1, 1",
       [](In x) {
         const Tensor targets = tensor({0, 1, 1}, x[0].dtype());
         return binary_cross_entropy_with_logits(x[0], targets, {}, {}, Reduction::none);
       }},
  };
  return table;
}
// How a non-finite gradient is clipped stands with the optimisers.
constexpr std::string_view kElsewhere = "clip by norm, gradient inf";

double number(const Json& x) { return x.is_string() ? std::stod(x.get<std::string>()) : x.get<double>(); }

std::vector<double> numbers(const Json& t) {
  std::vector<double> out;
  for (const auto& x : t["values"]) out.push_back(number(x));
  return out;
}

Tensor stored(const Json& t, DType floating) {
  Shape shape;
  for (const Index n : t["shape"]) shape.push_back(n);
  const Tensor x = tensor(numbers(t), shape);
  return to(x, t.value("dtype", "") == "u8" ? DType::u8 : floating);
}

bool fits_f32(const Json& row) {
  for (const auto& t : row["inputs"])
    for (const double x : numbers(t))
      if (std::isfinite(x) && x != 0 && (std::abs(x) > 3e38 || std::abs(x) < 1e-37)) return false;
  return true;
}

// Of the elements that are finite on both sides; others must be the same.
void check(const std::string& what, const Tensor& actual, const Json& expected) {
  INFO(what);
  Shape shape;
  for (const Index n : expected["shape"]) shape.push_back(n);
  REQUIRE(actual.defined());
  CHECK(actual.shape() == shape);
  const double bound = actual.dtype() == DType::f64 ? 1e-12 : actual.dtype() == DType::f32 ? 1e-5 : 0;
  CHECK_MESSAGE(worst(actual, numbers(expected), [](double e) { return std::max(1.0, std::abs(e)); }) <= bound,
                fmt::format("{} instead of {}", to_string(actual, 17), expected["values"].dump()));
}

}  // namespace

TEST_CASE("edge values: every row of the table, on every SIMD target") {
  const Json file = golden::json("edges");
  for_every_target([&] {
    for (const auto& item : file.items()) {
      const std::string& name = item.key();   // clang 14 captures no structured binding
      const Json& row = item.value();
      if (name == "versions" || name == kElsewhere) continue;
      const auto found = rows().find(name);
      REQUIRE_MESSAGE(found != rows().end(), name << ": no such row in this test");
      for (const DType dtype : {DType::f64, DType::f32}) {
        if (dtype == DType::f32 && !fits_f32(row)) continue;
        const bool differentiable = !row["gradients"].empty();
        std::vector<Variable> x;
        for (const auto& input : row["inputs"])
          x.push_back(differentiable ? variable(stored(input, dtype)) : constant(stored(input, dtype)));
        Tape tape(Key(std::uint64_t(1)));
        const Variable y = found->second(x);
        const std::string what = fmt::format("{} ({})", name, dtype);
        check(what, y.value(), row["output"]);
        if (!differentiable || dtype == DType::f32) continue;
        const Tensor dy = row.contains("upstream") ? stored(row["upstream"], dtype) : ones(y.shape(), dtype);
        tape.backward({&y, 1}, {&dy, 1});
        for (std::size_t i = 0; i < x.size(); ++i)
          check(fmt::format("{}, gradient {}", what, i), x[i].grad(), row["gradients"][i]);
      }
    }
  });
}
