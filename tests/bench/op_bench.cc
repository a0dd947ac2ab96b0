// SPDX-License-Identifier: Apache-2.0
// Operations of a training step beside those of the models' matrix products, one row each, through the tape as a user calls them;
// peers/torch_ops.py does the same by the same names. "and back" includes the gradients of all that has one.
#include <algorithm>
#include <array>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "autograd/ops.h"
#include "autograd/tape.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/linear.h"
#include "tensor/ops/random.h"
#include "tensor/ops/unary.h"
#include "tensor/ops/update.h"
#include "tensor/ops/view.h"
#include "tensor/packed.h"
#include "tests/bench/turns.h"

using namespace heed;

namespace {

Tensor random_tensor(const Shape& shape, std::uint64_t seed = 1) { return normal(Key(Seed{seed}), shape); }
Tensor random_ids(const Shape& shape, Index count) { return to(randint(Key(Seed{9}), shape, 0, count), DType::i32); }

// What it takes at least: operations of its products; bytes of operands and results, each read or written once.
struct Cost {
  double flop = 0, bytes = 0;
};

void add(const std::string& name, const Cost& cost, std::function<void()> run) {
  bench::add(name, [=](benchmark::State& state) {
    for (int i = 0; i < 2; ++i) run();
    for (auto _ : state) run();
    state.counters["flop"] = cost.flop;
    state.counters["bytes"] = cost.bytes;
  }, benchmark::kMicrosecond);
}

using Made = std::function<Variable(std::span<const Variable>)>;

// y = f(inputs) of leaves on a tape that trains, alone or played back from dy = 1.
void add_recorded(const std::string& name, const Cost& cost, std::vector<Tensor> inputs, const Made& f, bool back) {
  Tensor dy;
  {
    Tape tape(Key(Seed{3}));
    std::vector<Variable> leaves;
    for (const Tensor& x : inputs) leaves.push_back(variable(x));
    dy = ones(f(leaves).shape());
  }
  add(name + (back ? " and back" : ""), cost, [=] {
    Tape tape(Key(Seed{3}));
    std::vector<Variable> leaves;
    for (const Tensor& x : inputs) leaves.push_back(variable(x));
    const Variable y = f(leaves);
    if (back) tape.backward({&y, 1}, {&dy, 1});
  });
}
void add_both(const std::string& name, const Cost& forward, const Cost& both, const std::vector<Tensor>& inputs, const Made& f) {
  add_recorded(name, forward, inputs, f, false);
  add_recorded(name, both, inputs, f, true);
}

void add_losses() {
  constexpr double n = 1024, v = 4000, d = 256;
  const Tensor targets = random_ids({1024}, 4000);
  const CrossEntropyOptions smoothed{.label_smoothing = 0.1};
  add_recorded("cross-entropy 1024x4000", {.bytes = 8 * n * v}, {random_tensor({1024, 4000})},
               [=](auto x) { return cross_entropy(x[0], targets, smoothed); }, true);
  add_recorded("cross-entropy 1024x4000 of probabilities", {.bytes = 12 * n * v}, {random_tensor({1024, 4000})},
               [teacher = softmax(constant(random_tensor({1024, 4000}, 2)))](auto x) { return soft_cross_entropy(x[0], teacher); }, true);
  add_recorded("linear and cross-entropy 1024x4000x256", {.flop = 6 * n * v * d, .bytes = 4 * (2 * n * d + 2 * v * d)},
               {random_tensor({1024, 256}), multiply(random_tensor({4000, 256}, 2), 0.05), random_tensor({4000}, 3)},
               [=](auto x) { return linear_cross_entropy(x[0], x[1], x[2], targets, smoothed); }, true);
}

void add_rows() {
  constexpr double n = 1024 * 256;
  const Tensor x = random_tensor({1024, 256}), residual = random_tensor({1024, 256}, 2), weight = random_tensor({256}, 3),
               bias = random_tensor({256}, 4);
  add_both("dropout 1024x256", {.bytes = 8 * n}, {.bytes = 16 * n}, {x}, [](auto x) { return dropout(x[0], 0.1); });
  add_both("layer norm 1024x256", {.bytes = 8 * n}, {.bytes = 20 * n}, {x, weight, bias},
           [](auto x) { return layer_norm(x[0], x[1], x[2]); });
  add_both("add, dropout, layer norm 1024x256", {.bytes = 16 * n}, {.bytes = 32 * n}, {x, residual, weight, bias},
           [](auto x) { return add_dropout_norm(x[0], x[1], x[2], x[3], 0.1).y; });
  add_both("softmax 512x16x16", {.bytes = 8 * 131072}, {.bytes = 20 * 131072}, {random_tensor({512, 16, 16})},
           [](auto x) { return softmax(x[0]); });
  const Tensor ids = random_ids({64, 16}, 4000);
  add_recorded(
      "embedding 1024 of 4000x256", {.bytes = 4 * (3 * n + 4000 * 256)}, {random_tensor({4000, 256})},
      [=](auto x) { return embedding(x[0], ids, 16); }, true);
  for (const auto& [name, f] :
       {std::pair<const char*, Tensor (*)(const Tensor&)>{"exp", exp}, {"tanh", tanh}, {"sigmoid", sigmoid}, {"gelu", gelu}})
    add(std::string(name) + " 1024x256", {.bytes = 8 * n}, [x, f = f] { benchmark::DoNotOptimize(f(x)); });
}

void add_attention() {
  const auto made = [](const Mask& mask, double p) {
    return [=](std::span<const Variable> x) { return scaled_dot_product_attention(x[0], x[1], x[2], mask, {.dropout = p}).output; };
  };
  const auto inputs = [](Shape shape) {
    return std::vector<Tensor>{random_tensor(shape), random_tensor(shape, 2), random_tensor(shape, 3)};
  };
  constexpr double small = 512 * 16 * 16 * 32, small_bytes = 4 * 512 * 16 * 32;
  add_both("attention 64x8 of 16x16x32, dropout", {4 * small, 4 * small_bytes}, {14 * small, 8 * small_bytes}, inputs({64, 8, 16, 32}),
           made({}, 0.1));
  constexpr double large = 32.0 * 512 * 512 * 64 / 2, large_bytes = 4.0 * 32 * 512 * 64;
  add_both("attention 4x8 of 512x512x64, causal", {4 * large, 4 * large_bytes}, {14 * large, 8 * large_bytes}, inputs({4, 8, 512, 64}),
           made(Mask::causal(), 0));
  add_both("attention 1x8 of 2048x2048x64", {32.0 * 2048 * 2048 * 64, 16.0 * 8 * 2048 * 64},
           {112.0 * 2048 * 2048 * 64, 32.0 * 8 * 2048 * 64}, inputs({1, 8, 2048, 64}), made({}, 0));
  const auto biased = [](std::span<const Variable> x) { return scaled_dot_product_attention(x[0], x[1], x[2], {}, {}, x[3]).output; };
  const auto with_bias = [&](Shape shape) {
    std::vector<Tensor> all = inputs(shape);
    all.push_back(random_tensor({shape[1], shape[2], shape[2]}, 4));
    return all;
  };
  add_both("attention 64x8 of 16x16x32, bias", {4 * small, 4 * small_bytes}, {14 * small, 8 * small_bytes}, with_bias({64, 8, 16, 32}),
           biased);
  add_both("attention 4x8 of 512x512x64, bias", {8 * large, 4 * large_bytes}, {28 * large, 8 * large_bytes}, with_bias({4, 8, 512, 64}),
           biased);
  add_both("attention 4x8 of 512x512x64, 2 heads of keys", {8 * large, 2.5 * large_bytes}, {28 * large, 5 * large_bytes},
           {random_tensor({4, 8, 512, 64}), random_tensor({4, 2, 512, 64}, 2), random_tensor({4, 2, 512, 64}, 3)}, made({}, 0));
  const Rotations angles = rotations(16, 32, DType::f32, RotaryLayout::half);
  add_both("rotary 64x8 of 16x32", {.bytes = 2 * small_bytes}, {.bytes = 4 * small_bytes}, {random_tensor({64, 8, 16, 32})},
           [=](auto x) { return rotary(x[0], angles); });
  const Cost step{.bytes = 4.0 * (64 * 16 * (256 + 512) + 64 * (256 + 512))};
  add_both("additive attention step 64x16x256", step, {.bytes = 3 * step.bytes},
           {random_tensor({64, 1, 256}), random_tensor({64, 16, 256}, 2), random_tensor({256}, 3), random_tensor({64, 16, 512}, 4)},
           [](auto x) { return matmul(softmax(additive_score(x[0], x[1], x[2])), x[3]); });
}

void add_recurrent() {
  const auto weights = [](Index gates, Index n) {
    return std::vector<Tensor>{multiply(random_tensor({gates * n, n}, 4), 0.05), multiply(random_tensor({gates * n, n}, 5), 0.05),
                               random_tensor({gates * n}, 6), random_tensor({gates * n}, 7)};
  };
  const auto joined = [](std::vector<Tensor> a, const std::vector<Tensor>& b) { return a.insert(a.end(), b.begin(), b.end()), a; };
  const auto cost = [](double rows, double gates, double n, double times) {
    return Cost{times * rows * 4 * gates * n * n, times * 8 * gates * n * n};
  };
  add_both("GRU cell 64x256", cost(64, 3, 256, 1), cost(64, 3, 256, 3),
           joined({random_tensor({64, 256}), random_tensor({64, 256}, 2)}, weights(3, 256)), [](auto x) {
             return recurrent_cell(RecurrentUnit::gru_cudnn, linear(x[0], x[2], x[4]), {x[1], {}}, x[3], x[5]).h;
           });
  const auto layer = [](RecurrentUnit unit) {
    return [=](std::span<const Variable> x) { return recurrent_layer(unit, x[0], {}, {}, {x[1], x[2], x[3], x[4]}).outputs; };
  };
  add_both("GRU layer 64x16x256", cost(1024, 3, 256, 1), cost(1024, 3, 256, 3), joined({random_tensor({64, 16, 256})}, weights(3, 256)),
           layer(RecurrentUnit::gru_cudnn));
  add_both("LSTM layer 64x16x512", cost(1024, 4, 512, 1), cost(1024, 4, 512, 3), joined({random_tensor({64, 16, 512})}, weights(4, 512)),
           layer(RecurrentUnit::lstm));
}

// One matrix of 2048 x 4096, clipped by its norm.
void add_update() {
  const Tensor value = random_tensor({2048, 4096}), gradient = random_tensor({2048, 4096}, 2), mean = zeros({2048, 4096}),
               square = zeros({2048, 4096});
  add("clip and Adam 8.4 M", {.bytes = 32.0 * (8 << 20)}, [=] {
    const double scale = std::min(1.0, 1 / norm_of_all({&gradient, 1}));
    const UpdateItem item{
        Update::adam, value, gradient, {mean, square}, {.rate = 1e-4, .gradient_scale = scale, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}};
    update({&item, 1});
  });
}

// Operations of models of one's own: strided and broadcast operands, other dims than the last, ids, orders, many small products.
void add_everyday() {
  const Tensor x = random_tensor({1024, 256}), y = random_tensor({1024, 256}, 2), column = random_tensor({1024, 1}, 3),
               turned = random_tensor({256, 1024}, 4);
  constexpr double n = 4.0 * 1024 * 256, million = 1 << 20;
  const Tensor mask = to(bernoulli(Key(Seed{5}), {1024, 256}, 0.3), DType::u8);
  add_both("add column 1024x256", {.bytes = 2 * n}, {.bytes = 4 * n}, {x, column}, [](auto v) { return v[0] + v[1]; });
  add_both("add row 100000x3", {.bytes = 24e5}, {.bytes = 48e5}, {random_tensor({100000, 3}), random_tensor({3})},
           [](auto v) { return v[0] + v[1]; });
  add_both("scale flipped 1024x256", {.bytes = 2 * n}, {.bytes = 4 * n}, {x}, [](auto v) { return flip(v[0], {1}) * 2; });
  add_both("add transposed 1024x256", {.bytes = 3 * n}, {.bytes = 6 * n}, {x, turned}, [](auto v) { return v[0] + transpose(v[1]); });
  add_both("where 1024x256", {.bytes = 3 * n}, {.bytes = 6 * n}, {x, y}, [=](auto v) { return where(mask, v[0], v[1]); });
  add_both("sum 256x1024 over 0", {.bytes = n}, {.bytes = 2 * n}, {turned}, [](auto v) { return sum(v[0], {0}); });
  add_both("sum transposed 256x1024 over 1", {.bytes = n}, {.bytes = 2 * n}, {turned}, [](auto v) { return sum(transpose(v[0]), {1}); });
  add_both("max 1024x256 over 1", {.bytes = n}, {.bytes = 2 * n}, {x}, [](auto v) { return max(v[0], {1}); });
  add_both("max 2048x256x2 over 2", {.bytes = 6 * 1048576}, {.bytes = 18 * 1048576}, {random_tensor({2048, 256, 2})},
           [](auto v) { return max(v[0], {2}); });
  add_both("softmax 64x16x256 over 1", {.bytes = 2 * n}, {.bytes = 5 * n}, {random_tensor({64, 16, 256})},
           [](auto v) { return softmax(v[0], 1); });
  add_both("cumsum 1024x256 over 1", {.bytes = 2 * n}, {.bytes = 4 * n}, {x}, [](auto v) { return cumsum(v[0], 1); });
  add_both("standard deviation 1024x256 over 1", {.bytes = n}, {.bytes = 3 * n}, {x}, [](auto v) { return stddev(v[0], {1}); });
  add_both("repeat 256x256 4x", {.bytes = 1.25 * n}, {.bytes = 2.5 * n}, {random_tensor({256, 256})}, [](auto v) {
    return repeat(v[0], {4, 1});
  });
  add_both("sort 256x1000", {.bytes = 3 * 4e3 * 256}, {.bytes = 6 * 4e3 * 256}, {random_tensor({256, 1000})},
           [](auto v) { return sort(v[0]).values; });
  add_both("topk 10 of 128x32000", {.bytes = 128e3 * 128}, {.bytes = 256e3 * 128}, {random_tensor({128, 32000})},
           [](auto v) { return topk(v[0], 10).values; });
  const Tensor ids = random_ids({1024}, 4000), rows = expand(unsqueeze(ids, 1), {1024, 256});
  add_both("index_select 1024 of 256x4000 over 1", {.bytes = 2 * n}, {.bytes = 8e3 * 256}, {random_tensor({256, 4000})},
           [=](auto v) { return index_select(v[0], 1, ids); });
  add_both("scatter_add 1024x256 to 4000x256 over 0", {.bytes = n + 8e3 * 256}, {.bytes = 2 * n + 12e3 * 256},
           {random_tensor({4000, 256}), x}, [=](auto v) { return scatter_add(v[0], 0, rows, v[1]); });
  add_both("products 4096 of 4x4x4", {128.0 * 4096, 192.0 * 4096}, {384.0 * 4096, 384.0 * 4096},
           {random_tensor({4096, 4, 4}), random_tensor({4096, 4, 4}, 2)}, [](auto v) { return matmul(v[0], v[1]); });
  add_both("linear 1024x1x256", {2.0 * 1024 * 256, n}, {6.0 * 1024 * 256, 2 * n}, {x, random_tensor({1, 256}, 2), random_tensor({1}, 3)},
           [](auto v) { return linear(v[0], v[1], v[2]); });
  add_both("linear 128x10x784", {2.0 * 128 * 10 * 784, 4.0 * 138 * 784}, {6.0 * 128 * 10 * 784, 8.0 * 138 * 784},
           {random_tensor({128, 784}), random_tensor({10, 784}, 2), random_tensor({10}, 3)},
           [](auto v) { return linear(v[0], v[1], v[2]); });
  add_both("product of vectors of 100000", {2e5, 8e5}, {4e5, 16e5}, {random_tensor({100000}), random_tensor({100000}, 2)},
           [](auto v) { return matmul(v[0], v[1]); });
  add_both("cross-entropy 100000x8", {.bytes = 32e5}, {.bytes = 64e5}, {random_tensor({100000, 8})},
           [targets = random_ids({100000}, 8)](auto v) { return cross_entropy(v[0], targets); });
  add_both("cross-entropy 100000x8 of probabilities", {.bytes = 64e5}, {.bytes = 96e5}, {random_tensor({100000, 8})},
           [teacher = softmax(constant(random_tensor({100000, 8}, 2)))](auto v) { return soft_cross_entropy(v[0], teacher); });
  add_both("negative log-likelihood 1024x256", {.bytes = 4e3}, {.bytes = n}, {x},
           [targets = random_ids({1024}, 256)](auto v) { return nll_loss(v[0], targets); });
  const Tensor chances = uniform(Key(Seed{6}), {256, 4000}, 0, 1);
  for (const bool replacement : {true, false})
    add(replacement ? "multinomial 16 of 256x4000, with replacement" : "multinomial 16 of 256x4000", {.bytes = 16e3 * 256},
        [=] { benchmark::DoNotOptimize(multinomial(Key(Seed{1}), chances, 16, replacement)); });
  const Tensor square = random_tensor({1024, 1024});
  const Tensor counts = to(random_ids({1024, 256}, 100), DType::i64);
  add("less 1024x256", {.bytes = 2.25 * n}, [=] { benchmark::DoNotOptimize(less(x, y)); });
  add("add i64 1024x256", {.bytes = 6 * n}, [=] { benchmark::DoNotOptimize(counts + counts); });
  add("full 1024x1024", {.bytes = 4 * million}, [] { benchmark::DoNotOptimize(full({1024, 1024}, 0.5)); });
  add("copy transposed 1024x1024", {.bytes = 8 * million}, [=] { benchmark::DoNotOptimize(transpose(square).contiguous()); });
  add("f32 to bfloat16, 1 M", {.bytes = 6 * million}, [=] { benchmark::DoNotOptimize(to(square, DType::bf16)); });
  add("randint, 1 M", {.bytes = 8 * million}, [] { benchmark::DoNotOptimize(randint(Key(Seed{1}), {1024, 1024}, 0, 100)); });
  add("permutation, 100 k", {.bytes = 8e5}, [] { benchmark::DoNotOptimize(permutation(Key(Seed{1}), 100000)); });
}

void add_low_precision() {
  for (const auto& [m, n, k] : {std::array<Index, 3>{1024, 1024, 256}, {768, 2048, 512}, {128, 4000, 256}, {4, 4000, 256}})
    for (const auto& [precision, name] : {std::pair{Precision::bfloat16, "bfloat16"}, {Precision::int8, "int8"}}) {
      const auto packed = std::make_shared<PackedWeights>(precision);
      const Tensor x = random_tensor({m, k}), weight = random_tensor({n, k}, 2);
      const double bytes = precision == Precision::int8 ? 1 : 2;
      add("linear " + std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) + ", " + name,
          {2.0 * double(m * n * k), bytes * double(n * k) + 4.0 * double(m * (n + k))}, [=] {
            const PackedWeights::Use use(*packed);
            benchmark::DoNotOptimize(linear(x, weight, {}));
          });
    }
}

}  // namespace

int main(int argc, char** argv) {
  add_losses();
  add_rows();
  add_attention();
  add_recurrent();
  add_update();
  add_everyday();
  add_low_precision();
  return bench::run(argc, argv);
}
