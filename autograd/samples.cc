// SPDX-License-Identifier: Apache-2.0
// One row a function; several where shapes, dims or masks make a different kernel or rule run.
#include "autograd/samples.h"

#include <algorithm>
#include <cmath>

#include "autograd/ops.h"
#include "tensor/ops/attention.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/einsum.h"
#include "tensor/ops/index.h"
#include "tensor/ops/linear.h"
#include "tensor/ops/loss.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/norm.h"
#include "tensor/ops/random.h"
#include "tensor/ops/recurrent.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/score.h"
#include "tensor/ops/softmax.h"
#include "tensor/ops/sparsemax.h"
#include "tensor/ops/unary.h"
#include "tensor/ops/view.h"

namespace heed {
namespace {

constexpr Index N = Sample::kAny;
using Inputs = std::vector<Sample::Input>;
using Variables = std::span<const Variable>;
using Tensors = std::span<const Tensor>;
using TensorFunction = std::function<Tensor(Tensors)>;

void append(std::vector<Sample>& table, std::string name, DifferentiableFunction f, TensorFunction tensor, Inputs inputs) {
  table.push_back({std::move(name), std::move(f), std::move(tensor), std::move(inputs)});
}

// f serves Variables and Tensors alike.
template <class F> void both(std::vector<Sample>& table, std::string name, F f, Inputs inputs) { append(table, std::move(name), f, f, std::move(inputs)); }

// An element-wise function of one tensor.
template <class F> void each(std::vector<Sample>& table, std::string name, F f, double low, double high, std::vector<double> kinks = {}) {
  both(table, std::move(name), [f](auto x) { return f(x[0]); }, {{{3, N}, low, high, std::move(kinks)}});
}

void add_unary(std::vector<Sample>& table) {
  each(table, "negative", [](auto& x) { return negative(x); }, -2, 2);
  each(table, "operator-", [](auto& x) { return -x; }, -2, 2);
  each(table, "abs", [](auto& x) { return abs(x); }, -2, 2, {0});
  each(table, "exp", [](auto& x) { return exp(x); }, -3, 3);
  each(table, "log", [](auto& x) { return log(x); }, 0.1, 4);
  each(table, "log1p", [](auto& x) { return log1p(x); }, -0.8, 3);
  each(table, "sqrt", [](auto& x) { return sqrt(x); }, 0.1, 4);
  each(table, "square", [](auto& x) { return square(x); }, -2, 2);
  each(table, "reciprocal", [](auto& x) { return reciprocal(x); }, 0.5, 2);
  each(table, "sin", [](auto& x) { return sin(x); }, -10, 10);
  each(table, "cos", [](auto& x) { return cos(x); }, -10, 10);
  each(table, "tanh", [](auto& x) { return tanh(x); }, -4, 4);
  each(table, "sigmoid", [](auto& x) { return sigmoid(x); }, -6, 6);
  each(table, "relu", [](auto& x) { return relu(x); }, -2, 2, {0});
  each(table, "gelu", [](auto& x) { return gelu(x); }, -4, 4);
  each(table, "gelu_tanh", [](auto& x) { return gelu_tanh(x); }, -4, 4);
  each(table, "silu", [](auto& x) { return silu(x); }, -6, 6);
  each(table, "softplus", [](auto& x) { return softplus(x); }, -6, 6);
  each(table, "erf", [](auto& x) { return erf(x); }, -3, 3);
  each(table, "floor", [](auto& x) { return floor(x); }, -2, 2, {-2, -1, 0, 1, 2});
  each(table, "ceil", [](auto& x) { return ceil(x); }, -2, 2, {-2, -1, 0, 1, 2});
  each(table, "round", [](auto& x) { return round(x); }, -2, 2, {-1.5, -0.5, 0.5, 1.5});
  each(table, "sign", [](auto& x) { return sign(x); }, -2, 2, {0});
  each(table, "elu", [](auto& x) { return elu(x, 0.7); }, -3, 2, {0});
  each(table, "leaky_relu", [](auto& x) { return leaky_relu(x, 0.1); }, -2, 2, {0});
  each(table, "clamp", [](auto& x) { return clamp(x, -1, 0.5); }, -2, 2, {-1, 0.5});
  each(table, "pow to 2.5", [](auto& x) { return pow(x, 2.5); }, 0.2, 2);
  each(table, "pow to -1", [](auto& x) { return pow(x, -1); }, 0.5, 2);
  each(table, "pow to 3", [](auto& x) { return pow(x, 3); }, -2, 2);
}

void add_binary(std::vector<Sample>& table) {
  const auto two = [&](std::string name, auto f, double low, double high) {
    both(table, name, [f](auto x) { return f(x[0], x[1]); }, {{{3, N}, low, high}, {{3, N}, low, high}});
    both(table, name + " row", [f](auto x) { return f(x[0], x[1]); }, {{{2, 3, N}, low, high}, {{N}, low, high}});
    both(table, name + " column", [f](auto x) { return f(x[0], x[1]); }, {{{3, 1}, low, high}, {{2, 1, N}, low, high}});
  };
  two("add", [](auto& a, auto& b) { return add(a, b); }, -2, 2);
  two("operator+", [](auto& a, auto& b) { return a + b; }, -2, 2);
  two("subtract", [](auto& a, auto& b) { return subtract(a, b); }, -2, 2);
  two("operator-", [](auto& a, auto& b) { return a - b; }, -2, 2);
  two("multiply", [](auto& a, auto& b) { return multiply(a, b); }, -2, 2);
  two("operator*", [](auto& a, auto& b) { return a * b; }, -2, 2);
  two("divide", [](auto& a, auto& b) { return divide(a, b); }, 0.5, 2);
  two("operator/", [](auto& a, auto& b) { return a / b; }, 0.5, 2);
  two("maximum", [](auto& a, auto& b) { return maximum(a, b); }, -2, 2);
  two("minimum", [](auto& a, auto& b) { return minimum(a, b); }, -2, 2);
  two("pow", [](auto& a, auto& b) { return pow(a, b); }, 0.3, 2);
  two("atan2", [](auto& a, auto& b) { return atan2(a, b); }, 0.3, 2);
  const auto condition = [](const auto& x) {
    const Tensor bits = uniform(Key(9), x.shape(), 0, 1);
    return less(bits, 0.5);
  };
  both(table, "where", [condition](auto x) { return where(condition(x[0]), x[0], x[1]); }, {{{3, N}}, {{N}}});
  each(table, "add number", [](auto& x) { return add(x, 1.5); }, -2, 2);
  each(table, "add to number", [](auto& x) { return add(1.5, x); }, -2, 2);
  each(table, "subtract number", [](auto& x) { return subtract(x, 1.5); }, -2, 2);
  each(table, "subtract from number", [](auto& x) { return subtract(1.5, x); }, -2, 2);
  each(table, "multiply number", [](auto& x) { return multiply(x, 1.5); }, -2, 2);
  each(table, "multiply by number", [](auto& x) { return multiply(1.5, x); }, -2, 2);
  each(table, "divide by number", [](auto& x) { return divide(x, 1.5); }, -2, 2);
  each(table, "divide number", [](auto& x) { return divide(1.5, x); }, 0.5, 2);
  each(table, "maximum number", [](auto& x) { return maximum(x, 0.5); }, -2, 2, {0.5});
  each(table, "maximum of number", [](auto& x) { return maximum(0.5, x); }, -2, 2, {0.5});
  each(table, "minimum number", [](auto& x) { return minimum(x, 0.5); }, -2, 2, {0.5});
  each(table, "minimum of number", [](auto& x) { return minimum(0.5, x); }, -2, 2, {0.5});
  each(table, "pow of number", [](auto& x) { return pow(1.5, x); }, -2, 2);
}

void add_reduce(std::vector<Sample>& table) {
  const auto three = [&](std::string name, auto f, double low, double high) {
    both(table, name, [f](auto x) { return f(x[0], Dims(), false); }, {{{2, 3, N}, low, high}});
    both(table, name + " last", [f](auto x) { return f(x[0], Dims(-1), false); }, {{{2, 3, N}, low, high}});
    both(table, name + " middle", [f](auto x) { return f(x[0], Dims(1), true); }, {{{2, 3, N}, low, high}});
    both(table, name + " outer", [f](auto x) { return f(x[0], Dims{0, 2}, false); }, {{{2, 3, N}, low, high}});
  };
  three("sum", [](auto& x, const Dims& dims, bool keep) { return sum(x, dims, keep); }, -2, 2);
  three("mean", [](auto& x, const Dims& dims, bool keep) { return mean(x, dims, keep); }, -2, 2);
  three("prod", [](auto& x, const Dims& dims, bool keep) { return prod(x, dims, keep); }, 0.9, 1.1);
  three("max", [](auto& x, const Dims& dims, bool keep) { return max(x, dims, keep); }, -2, 2);
  three("min", [](auto& x, const Dims& dims, bool keep) { return min(x, dims, keep); }, -2, 2);
  three("norm", [](auto& x, const Dims& dims, bool keep) { return norm(x, dims, keep); }, 0.5, 2);
  three("var", [](auto& x, const Dims& dims, bool keep) { return var(x, dims, false, keep); }, -2, 2);
  both(table, "var unbiased", [](auto x) { return var(x[0], 0); }, {{{3, N}}});
  both(table, "cumsum", [](auto x) { return cumsum(x[0], -1); }, {{{3, N}}});
  both(table, "cumsum dim 0", [](auto x) { return cumsum(x[0], 0); }, {{{3, N}}});
  both(table, "sum_to", [](auto x) { return sum_to(x[0], {3, 1}); }, {{{2, 3, N}}});
}

void add_matmul(std::vector<Sample>& table) {
  const auto product = [](auto x) { return matmul(x[0], x[1]); };
  both(table, "matmul", product, {{{3, N}}, {{N, 4}}});
  both(table, "matmul wide", product, {{{3, 4}}, {{4, N}}});
  both(table, "matmul tall", product, {{{N, 2}}, {{2, 3}}});
  both(table, "matmul batch", product, {{{2, 1, 3, N}}, {{3, N, 2}}});
  both(table, "matmul vector", product, {{{N}}, {{N, 2}}});
  both(table, "matmul dot", product, {{{N}}, {{N}}});
}

void add_einsum(std::vector<Sample>& table) {
  both(table, "einsum", [](auto x) { return einsum("bik,bkj->bij", {x[0], x[1]}); }, {{{2, 3, N}}, {{2, N, 4}}});
  both(table, "einsum heads", [](auto x) { return einsum("bthd,bshd->bhts", {x[0], x[1]}); }, {{{2, 3, 2, N}}, {{2, 4, 2, N}}});
}

void add_linear(std::vector<Sample>& table) {
  const Inputs deep{{{2, 3, N}}, {{5, N}}, {{5}}, {{2, 3, 5}}}, wide{{{3, 4}}, {{N, 4}}, {{N}}, {{3, N}}};
  const auto plain = [&](std::string name, const Inputs& inputs) {
    append(table, std::move(name), [](Variables x) { return linear(x[0], x[1], x[2]); }, [](Tensors x) { return linear(x[0], x[1], x[2]).y; },
                     {inputs[0], inputs[1], inputs[2]});
  };
  const auto fused = [&](std::string name, const Inputs& inputs) {
    append(table, std::move(name), [](Variables x) { return linear(x[0], x[1], x[2], {.activation = Activation::gelu, .residual = x[3]}); },
                     [](Tensors x) { return linear(x[0], x[1], x[2], {.activation = Activation::gelu, .residual = x[3]}).y; }, inputs);
  };
  plain("linear", deep);
  plain("linear wide", wide);
  fused("linear gelu", deep);
  fused("linear gelu wide", wide);
}

void add_softmax(std::vector<Sample>& table) {
  both(table, "softmax", [](auto x) { return softmax(x[0]); }, {{{2, 3, N}}});
  both(table, "softmax dim 1", [](auto x) { return softmax(x[0], 1); }, {{{2, 3, N}}});
  both(table, "softmax masked", [](auto x) { return softmax(x[0], -1, Mask::causal()); }, {{{2, 3, N}}});
  both(table, "log_softmax", [](auto x) { return log_softmax(x[0]); }, {{{2, 3, N}}});
  both(table, "log_softmax dim 0", [](auto x) { return log_softmax(x[0], 0); }, {{{2, 3, N}}});
  both(table, "logsumexp", [](auto x) { return logsumexp(x[0]); }, {{{2, 3, N}}});
  both(table, "logsumexp outer", [](auto x) { return logsumexp(x[0], {0, 2}, true); }, {{{2, 3, N}}});
}

void add_sparsemax(std::vector<Sample>& table) {
  both(table, "sparsemax", [](auto x) { return sparsemax(x[0]); }, {{{2, 3, N}}});
  both(table, "sparsemax masked", [](auto x) { return sparsemax(x[0], Mask::causal()); }, {{{2, 3, N}}});
  both(table, "entmax", [](auto x) { return entmax(x[0]); }, {{{2, 3, N}}});
  both(table, "entmax masked", [](auto x) { return entmax(x[0], Mask::causal()); }, {{{2, 3, N}}});
}

void add_score(std::vector<Sample>& table) {
  const auto limits = [] { return Mask::lengths(tensor({4, 2}, DType::i32)); };
  both(table, "additive_score", [](auto x) { return additive_score(x[0], x[1], x[2]); }, {{{2, 3, N}}, {{2, 4, N}}, {{N}}});
  both(table, "additive_score long", [](auto x) { return additive_score(x[0], x[1], x[2]); }, {{{2, 1, 5}}, {{2, N, 5}}, {{5}}});
  both(table, "additive_score masked", [limits](auto x) { return additive_score(x[0], x[1], x[2], limits() & Mask::causal(1)); },
                       {{{2, 3, N}}, {{2, 4, N}}, {{N}}});
}

void add_norm(std::vector<Sample>& table) {
  const Inputs rows{{{2, 3, N}}, {{N}, 0.5, 1.5}, {{N}}};
  append(table, "layer_norm", [](Variables x) { return layer_norm(x[0], x[1], x[2]); }, [](Tensors x) { return layer_norm(x[0], x[1], x[2]).y; }, rows);
  append(table, "rms_norm", [](Variables x) { return rms_norm(x[0], x[1]); }, [](Tensors x) { return rms_norm(x[0], x[1]).y; }, {rows[0], rows[1]});
  both(table, "add_dropout_norm", [](auto x) { return add_dropout_norm(x[0], x[1], x[2], x[3]).y; }, {rows[0], rows[0], rows[1], rows[2]});
  both(table, "add_dropout_norm both", [](auto x) { auto r = add_dropout_norm(x[0], x[1], x[2], x[3]); return r.y * r.sum; },
                       {rows[0], rows[0], rows[1], rows[2]});
}

void add_view(std::vector<Sample>& table) {
  const Inputs cube{{{2, 3, N}}};
  both(table, "reshape", [](auto x) { return reshape(x[0], {3, -1, 2}); }, {{{2, 3, 4}}});
  both(table, "flatten", [](auto x) { return flatten(x[0], 0, 1); }, cube);
  both(table, "transpose", [](auto x) { return transpose(x[0], 0, 2); }, cube);
  both(table, "permute", [](auto x) { return permute(x[0], {2, 0, 1}); }, cube);
  both(table, "squeeze", [](auto x) { return squeeze(x[0], 1); }, {{{3, 1, N}}});
  both(table, "unsqueeze", [](auto x) { return unsqueeze(x[0], 1); }, cube);
  both(table, "flip", [](auto x) { return flip(x[0], {0, 2}); }, cube);
  both(table, "slice", [](auto x) { return slice(x[0], 1, 2, Slice::kFromStart, -2); }, cube);
  both(table, "select", [](auto x) { return select(x[0], 1, -1); }, cube);
  const auto turned = [](auto parts) { return decltype(parts)(parts.rbegin(), parts.rend()); };
  both(table, "expand", [](auto x) { return expand(x[0], {2, 3, 4, -1}); }, {{{3, 1, N}}});
  both(table, "split", [turned](auto x) { return concat(turned(split(x[0], 3, 1)), 1); }, cube);
  both(table, "split sizes", [turned](auto x) { return concat(turned(split(x[0], std::vector<Index>{1, 2}, 1)), 1); }, cube);
  both(table, "unbind", [turned](auto x) { return stack(turned(unbind(x[0], 1))); }, cube);
  both(table, "concat", [](auto x) { return concat({x[0], x[1], x[0]}, 1); }, {{{2, 3, N}}, {{2, 1, N}}});
  both(table, "stack", [](auto x) { return stack({x[0], x[1]}, 1); }, {{{2, N}}, {{2, N}}});
  both(table, "pad", [](auto x) { return pad(x[0], -1, 2, 1, 5); }, cube);
  both(table, "tril", [](auto x) { return tril(x[0], 1); }, cube);
  both(table, "triu", [](auto x) { return triu(x[0], -1); }, cube);
}

void add_index(std::vector<Sample>& table) {
  const Tensor ids = tensor({{2, 0, 2}, {1, 3, 2}}, DType::i64), list = tensor({2, 0, 2, 1}, DType::i64), column = tensor({{1}, {0}, {1}}, DType::i64);
  both(table, "embedding", [ids](auto x) { return embedding(x[0], ids, 2); }, {{{4, N}}});
  both(table, "index_select", [list](auto x) { return index_select(x[0], 0, list); }, {{{3, N}}});
  both(table, "gather", [column](auto x) { return gather(x[0], 1, column); }, {{{3, 2}}});
  both(table, "scatter_add", [column](auto x) { return scatter_add(x[0], 1, column, x[1]); }, {{{3, 2}}, {{3, 1}}});
  both(table, "masked_fill", [](auto x) { return masked_fill(x[0], tensor({{1}, {0}, {1}}, DType::u8), -3); }, {{{3, N}}});
  both(table, "sort", [](auto x) { return sort(x[0], -1).values; }, {{{3, N}}});
  both(table, "topk", [](auto x) { return topk(x[0], 2, 0).values; }, {{{3, N}}});
}

void add_loss(std::vector<Sample>& table) {
  // targets 0, 1, ... modulo V for logits [..., V]
  const auto targets = [](const auto& logits) {
    Shape shape = logits.shape();
    const Index labels = shape.rank() > 0 ? std::max<Index>(1, shape[shape.rank() - 1]) : 1;
    if (shape.rank() > 0) shape.erase(shape.rank() - 1);
    const Tensor ids = empty(shape, DType::i64);
    for (Index i = 0; Index& id : ids.mutable_span<Index>()) id = i++ % labels;
    return ids;
  };
  const CrossEntropyOptions smooth{.label_smoothing = 0.1};
  append(table, "cross_entropy", [=](Variables x) { return cross_entropy(x[0], targets(x[0]), smooth, Reduction::none); },
                   [=](Tensors x) { return cross_entropy(x[0], targets(x[0]), smooth).losses; }, {{{2, 3, N}}});
  append(table, "cross_entropy mean", [=](Variables x) { return cross_entropy(x[0], targets(x[0])); }, {}, {{{2, 3, N}}});
  append(table, "linear_cross_entropy", [](Variables x) { return linear_cross_entropy(x[0], x[1], x[2], tensor({0, 4, 2}, DType::i64)); },
                   [](Tensors x) { return full({}, linear_cross_entropy(x[0], x[1], x[2], tensor({0, 4, 2}, DType::i64)).total, x[0].dtype()); },
                   {{{3, N}}, {{5, N}}, {{5}}});
  both(table, "mse_loss", [](auto x) { return mse_loss(x[0], x[1]); }, {{{3, N}}, {{3, N}}});
  both(table, "mse_loss each", [](auto x) { return mse_loss(x[0], x[1], Reduction::none); }, {{{3, N}}, {{3, N}}});
  both(table, "binary_cross_entropy_with_logits", [](auto x) {
    return binary_cross_entropy_with_logits(x[0], to(uniform(Key(5), x[0].shape()), x[0].dtype()), {}, {}, Reduction::none);
  }, {{{3, N}, -4, 4}});
}

void add_attention(std::vector<Sample>& table) {
  const Inputs heads{{{2, 2, 3, 4}}, {{2, 2, N, 4}}, {{2, 2, N, 5}}};
  both(table, "scaled_dot_product_attention", [](auto x) { return scaled_dot_product_attention(x[0], x[1], x[2]).output; }, heads);
  both(table, "scaled_dot_product_attention masked", [](auto x) {
    const Mask mask = Mask::causal(1) & Mask::lengths(tensor({2, 5}, DType::i32));
    return scaled_dot_product_attention(x[0], x[1], x[2], mask).output;
  }, heads);
}

void add_random(std::vector<Sample>& table) {
  append(table, "dropout", [](Variables x) { return dropout(x[0], 0.5); }, {}, {{{3, N}}});   // the identity where nothing trains
}

void add_recurrent(std::vector<Sample>& table) {
  struct Form { const char* name; RecurrentUnit unit; Index gates; };
  using enum RecurrentUnit;
  for (const Form& form : {Form{"tanh", tanh, 1}, Form{"relu", relu, 1}, Form{"lstm", lstm, 4}, Form{"gru_bahdanau", gru_bahdanau, 3},
                           Form{"gru_cho", gru_cho, 3}, Form{"gru_cudnn", gru_cudnn, 3}}) {
    const auto [name, unit, gates] = form;
    const bool two_states = unit == lstm, two_biases = !resets_before(unit);
    const Index n = 3, rows = gates * n;
    // gates, h, weight_hh, c, bias_hh
    Inputs cell{{{N, rows}}, {{N, n}}, {{rows, n}, -1, 1}};
    if (two_states) cell.push_back({{N, n}});
    if (two_biases) cell.push_back({{rows}, -1, 1});
    const auto rest = [=](auto x, std::size_t from) {   // c and bias_hh, where the unit has them
      using V = std::remove_cvref_t<decltype(x[0])>;
      return std::pair<V, V>{two_states ? x[from] : V(), two_biases ? x[from + (two_states ? 1 : 0)] : V()};
    };
    const RecurrentUnit kind = unit;
    append(table, std::string("recurrent_cell ") + name, [=](Variables x) {
      const auto [c, bias] = rest(x, 3);
      const RecurrentState y = recurrent_cell(kind, x[0], {x[1], c}, x[2], bias);
      return two_states ? y.h + 2 * y.c : y.h;
    }, {}, cell);
    // x, h, weight_ih, weight_hh, bias_ih, c, bias_hh
    Inputs layer{{{3, 4, N}}, {{3, n}}, {{rows, N}, -1, 1}, {{rows, n}, -1, 1}, {{rows}, -1, 1}};
    if (two_states) layer.push_back({{3, n}});
    if (two_biases) layer.push_back({{rows}, -1, 1});
    for (const bool reverse : {false, true})
      append(table, std::string("recurrent_layer ") + name + (reverse ? " reverse" : ""), [=](Variables x) {
        const auto [c, bias] = rest(x, 5);
        const RecurrentSequence y = recurrent_layer(kind, x[0], reverse ? tensor({2, 4, 0}, DType::i32) : Tensor(), {x[1], c}, {x[2], x[3], x[4], bias}, reverse);
        const Variable last = two_states ? y.last.h + 2 * y.last.c : y.last.h;
        return y.outputs + unsqueeze(last, 1);
      }, {}, layer);
  }
}

}  // namespace

const std::vector<Sample>& samples() {
  static const std::vector<Sample> table = [] {
    std::vector<Sample> all;
    for (auto add : {add_unary, add_binary, add_reduce, add_matmul, add_einsum, add_linear, add_softmax, add_sparsemax, add_norm, add_view, add_index, add_loss, add_attention, add_score, add_random, add_recurrent}) add(all);
    return all;
  }();
  return table;
}

std::vector<Tensor> sample_inputs(const Sample& sample, Index any, DType dtype) {
  constexpr double kDistance = 0.002;
  std::vector<Tensor> inputs;
  for (const Sample::Input& input : sample.inputs) {
    Shape shape = input.shape;
    for (int axis = 0; axis < shape.rank(); ++axis)
      if (shape[axis] == Sample::kAny) shape[axis] = any;
    const Tensor x = to(uniform(Key(Seed{1}) / sample.name / inputs.size(), shape, input.low, input.high), DType::f64);
    for (double& value : x.mutable_span<double>())
      for (double kink : input.kinks)
        if (std::abs(value - kink) < kDistance) value = double(float(kink + 2 * kDistance));
    inputs.push_back(to(x, dtype));
  }
  return inputs;
}

}  // namespace heed
