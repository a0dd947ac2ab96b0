// SPDX-License-Identifier: Apache-2.0
// Every error of the library that a wrong argument can provoke: its type, what rule failed, both sides. The answers stand in
// tests/errors.md. What files and the command line provoke stands in tests/faults, tests/tensor/safetensors_test.cc,
// tests/cli/mistakes_test.cc.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <deque>
#include <functional>
#include <regex>
#include <set>

#include "attention/attend.h"
#include "attention/differential.h"
#include "attention/linear_attention.h"
#include "attention/multi_head.h"
#include "attention/random_features.h"
#include "attention/relative.h"
#include "autograd/check.h"
#include "autograd/ops.h"
#include "autograd/record.h"
#include "autograd/tape.h"
#include "models/alignment_metrics.h"
#include "models/ensemble.h"
#include "models/metrics.h"
#include "models/picture.h"
#include "models/pointer_generator.h"
#include "models/recurrent.h"
#include "models/search.h"
#include "models/train.h"
#include "models/transformer.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/feed_forward.h"
#include "nn/init.h"
#include "nn/norm.h"
#include "nn/recurrent.h"
#include "nn/residual.h"
#include "tensor/context.h"
#include "tensor/file.h"
#include "tensor/gemm_bfloat16.h"
#include "tensor/low_precision.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/causal_product.h"
#include "tensor/ops/einsum.h"
#include "tensor/ops/index.h"
#include "tensor/ops/linear.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/norm.h"
#include "tensor/ops/random.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/score.h"
#include "tensor/ops/soft_cross_entropy.h"
#include "tensor/ops/softmax.h"
#include "tensor/ops/sort.h"
#include "tensor/ops/sparsemax.h"
#include "tensor/ops/unary.h"
#include "tensor/ops/update.h"
#include "tensor/ops/view.h"
#include "tensor/safetensors.h"
#include "tests/bfloat16.h"
#include "tests/every_model.h"
#include "tests/models/pairs.h"
#include "tests/page.h"
#include "tests/thrown.h"

using namespace heed;

namespace {

struct Row {
  std::string call;
  std::function<void()> run;
};
// Of a call that is broken behind a bracket or before a point nothing is left to be seen.
std::string on_one_line(std::string_view code) {
  std::string out;
  for (const char c : code)
    if (c == '.' && out.ends_with(") ")) out.back() = c;
    else if (c != ' ' || !out.ends_with('(')) out += c;
  return out;
}
#define CALL(...) {on_one_line(#__VA_ARGS__), [] { (void)(__VA_ARGS__); }}

constexpr DType f64 = DType::f64, i32 = DType::i32, i64 = DType::i64, u8 = DType::u8, bf16 = DType::bf16;

Scope scope() {
  static std::deque<Parameters> all;
  return all.emplace_back(Seed{1}).root();
}
Into into(const Shape& shape, DType dtype = DType::f32) { return {zeros(shape, dtype)}; }
Tensor ids(std::initializer_list<Nested> values, DType dtype = DType::i64) { return tensor(Nested(values), dtype); }
Variable leaf(const Shape& shape, DType dtype = DType::f64) { return variable(ones(shape, dtype)); }

AnyScore dot_again(Scope scope, const ScoreOptions& options) { return make_score("dot", scope, options); }

const SmallModel& transformer() {
  static const SmallModel model("--layers 1 --heads 2");
  return model;
}
const SmallModel& gru() {
  static const SmallModel model("--model gru --attention additive");
  return model;
}
const SmallModel& copying() {
  static const SmallModel model("--model gru --copy");
  return model;
}
const SmallModel& cho() {
  static const SmallModel model("--model gru --attention none --decoder cho");
  return model;
}
void searched(const SearchOptions& options, std::size_t prefixes = 0, const std::vector<std::int32_t>& prefix = {}) {
  const std::vector<std::vector<std::int32_t>> sources{{4, 5, 3}};
  search(*transformer().model, sources, options, std::vector<std::vector<std::int32_t>>(prefixes, prefix));
}
Parameters& with_nan_gradient() {
  static Parameters parameters(Seed{1});
  static const Linear layer(parameters.root(), {.in = 2, .out = 1});
  Tape tape;
  tape.backward(sum(layer(constant(full({1, 2}, NAN)))));
  return parameters;
}
void stepped(const SmallModel& net, Index tokens) {
  const auto state = net.model->start(pad_sequences(std::vector<std::vector<std::int32_t>>{{4, 5, 3}}, 0));
  net.model->step(zeros({tokens}, i32), *state);
}
// One of two words, said to be so long.
Sequences sentence(std::int32_t length) {
  return {tensor(std::vector<std::int32_t>{4, 3}, {1, 2}), tensor(std::vector<std::int32_t>{length}, {1})};
}
const TransformerOptions kTwoLayers{.width = 4, .heads = 2, .feed_forward = 4, .encoder_layers = 2, .decoder_layers = 2};
void reordered(const SmallModel& net, std::span<const Index> rows, Index per_sentence) {
  net.model->start(pad_sequences(std::vector<std::vector<std::int32_t>>{{4, 3}, {4, 3}}, 0))->reorder(rows, per_sentence);
}
void trained(Trainer::Options options) {
  static SmallModel net("--layers 1 --heads 2");
  static Adam adam(*net.parameters, {});
  Trainer(*net.model, *net.parameters, adam, Schedule({}), options);
}
// A pair of one word each, with these links.
Batch linked(std::vector<Link> links, std::span<const Index> rows = std::array<Index, 1>{0}) {
  const std::vector<Example> one{{.source = {4, 3}, .target = {4, 3}, .links = {std::move(links), {}}}};
  Batch batch = make_batch(one, 0, 2);
  add_links(batch, one, rows);
  return batch;
}
void restored(const std::map<std::string, std::string>& scalars, double average = 0) {
  static SmallModel net("--layers 1 --heads 2");
  static Adam adam(*net.parameters, {});
  Trainer(*net.model, *net.parameters, adam, Schedule({}), {.average = average}).restore({}, scalars);
}
// What a processor without AVX512-BF16 answers.
template <class F> void elsewhere(F&& f) {
  const test::WithoutBFloat16 here;
  f();
}
// A tape under which something is asked.
template <class F> void under_tape(F&& f) {
  Tape tape;
  f(tape);
}
void map_of(std::size_t rows, std::size_t weights, std::size_t windows = 0) {
  AttentionPicture picture{.source = {"a", "b"}, .target = std::vector<std::string>(rows, "x")};
  picture.maps.push_back({.weights = std::vector<float>(weights), .windows = std::vector<AttentionPicture::Window>(windows)});
  attention_svg(picture);
}

const std::vector<Row>& tensor_rows() {
  static const std::vector<Row> rows{
      // context, shapes, tensors
      CALL(set_threads(0)),
      CALL(set_threads(kMostThreads + 1)),
      CALL(Dims({0, 1, 2, 3, 4, 5, 6, 7, 8})),
      CALL(zeros({1, 1, 1, 1, 1, 1, 1, 1, 1})),
      CALL(Shape({1, 2}).insert(3, 1)),
      CALL(Shape({1, 2}).erase(2)),
      CALL(zeros({2, -3})),
      CALL(zeros({2, 3})[2]),
      CALL(zeros({2, 3})[0][1][0]),
      CALL(zeros({2, 3})(0, 5)),
      CALL(zeros({2, 3}).size(2)),
      CALL(zeros({2, 3})(Slice{0, 2, 0})),
      CALL(zeros({2, 3}).data<double>()),
      CALL(transpose(zeros({2, 3})).span<float>()),
      CALL(zeros({2, 3}).item()),
      CALL(zeros({1}).item<double>()),
      CALL(tensor({{1, 2}, {3}})),
      CALL(tensor({300}, u8)),
      CALL(tensor(std::vector<float>{1, 2, 3}, {2, 2})),
      CALL(copy_into(zeros({2}), zeros({3}))),
      CALL(copy_into(zeros({2}), zeros({2}, f64))),
      CALL(fill_(Tensor(), 1)),
      CALL(Tensor().clone()),
      CALL(Tensor()[0]),
      CALL(fill_(zeros({2}, i64), 0.5)),
      CALL(full({2}, 300, u8)),
      CALL(to(Tensor(), f64)),
      CALL(arange(0, 1, 0)),
      CALL(arange(0, 1e18, 1e-3)),
      CALL(arange(0, 1, 0.1)),
      CALL(linspace(0, INFINITY, 3)),
      CALL(linspace(0, 1, -1)),
      CALL(linspace(0, 1, 3, i64)),
      CALL(normal_quantile(1.5)),
      // masks
      CALL(Mask::lengths(zeros({2, 2}, i32))),
      CALL(Mask::lengths(zeros({2}, i64))),
      CALL(Mask::window(-1, 0)),
      CALL(Mask::allowed(zeros({2, 2}))),
      CALL(Mask::allowed(Tensor())),
      CALL(Mask::lengths(zeros({2}, i32)) & Mask::lengths(zeros({2}, i32))),
      CALL(Mask::sliding({1, 1, 0, {}, -1})),
      CALL(Mask::sliding({1, 1, 0, zeros({2, 2}, i32)})),
      CALL(Mask::sliding({1, 1, 0, zeros({2}, i64)})),
      CALL(Mask::sliding({1, 1, 0, zeros({2}, i32)})),
      CALL(Mask::sliding({1, 1, 0, {}, 1}) & Mask::sliding({1, 1, 0, {}, 1})),
      CALL(Mask::sliding({1, 1, 0, {}, 1}) & Mask::window(1, 1)),
      CALL(softmax(zeros({2, 3, 3}), -1, Mask::sliding({1, 1, 0, {}, 1}))),
      CALL(softmax(zeros({2, 3, 3, 3}), -1, Mask::sliding({1, 1, 0, tensor({2, 2}, i32)}))),
      CALL(softmax(zeros({3}), -1, Mask::causal())),
      CALL(softmax(zeros({2, 3}), -1, Mask::lengths(zeros({4}, i32)))),
      CALL(softmax(zeros({2, 3}), -1, Mask::allowed(zeros({5, 3}, u8)))),
      // views
      CALL(reshape(zeros({6}), {4, -1})),
      CALL(reshape(zeros({0}), {0, -1})),
      CALL(reshape(zeros({6}), {-1, -1})),
      CALL(permute(zeros({2, 3}), {0, 0})),
      CALL(squeeze(zeros({2, 3}), 0)),
      CALL(expand(zeros({2, 3}), {2, 4})),
      CALL(expand(zeros({3}), {2, -1, 3})),
      CALL(toeplitz(zeros({3}), 5)),
      CALL(split(zeros({5}), 2)),
      CALL(split(zeros({5}), std::vector<Index>{2, 2})),
      CALL(concat(std::vector<Tensor>{zeros({2, 3}), zeros({2, 4})}, 0)),
      CALL(concat(std::vector<Tensor>{zeros({2}), zeros({2}, f64)})),
      CALL(concat(std::vector<Tensor>{})),
      CALL(stack(std::vector<Tensor>{zeros({2}), zeros({3})})),
      CALL(repeat(zeros({2, 3}), {2})),
      CALL(repeat(zeros({2, 3}), {2, -1})),
      CALL(repeat(zeros({2, 3}), {1, Index{1} << 62})),
      CALL(pad(zeros({2}), 0, -1, 0)),
      CALL(pad(zeros({2}, i64), 0, 1, 0, 0.5)),
      CALL(flip(zeros({2, 3}), {1, -1})),
      CALL(tril(zeros({2}))),
      CALL(select(zeros({2, 3}), 1, 3)),
      // element by element
      CALL(exp(zeros({2}, i64))),
      CALL(exp(Tensor())),
      CALL(unary_grad(Unary::exp, zeros({2}), zeros({2}, f64), into({2}))),
      CALL(unary_grad(Unary::exp, zeros({2}), zeros({3}), into({2}))),
      CALL(unary_grad(Unary::exp, zeros({8}), zeros({8}), {expand(zeros({1}), {8})})),
      CALL(clamp_(expand(zeros({1}), {8}), 1, 2)),
      CALL([] {
        const Into da = into({8});
        binary_grad(Binary::multiply, zeros({8}), zeros({2}), Tensor(), zeros({8}), &da, nullptr);
      }()),
      CALL(linear_grad(zeros({2}), zeros({2, 3}), {.activation = Activation::relu})),
      CALL(binary(Binary::add, zeros({8}), zeros({8}), {expand(zeros({1}), {8})})),
      CALL([] {
        const Into shared{expand(zeros({1}), {8})};
        binary_grad(Binary::multiply, zeros({8}), zeros({8}), Tensor(), zeros({8}), &shared, nullptr);
      }()),
      CALL(add(zeros({2, 3}), zeros({4, 3}))),
      CALL(add(zeros({2}), zeros({2}, f64))),
      CALL(add(zeros({2}, bf16), zeros({2}, bf16))),
      CALL(add(Tensor(), zeros({2}))),
      CALL(divide(ones({2}, i64), zeros({2}, i64))),
      CALL(where(zeros({2}), zeros({2}), zeros({2}))),
      CALL(where(zeros({3}, u8), zeros({2}), zeros({2}))),
      CALL(logical_and(zeros({2}), zeros({2}))),
      // reductions
      CALL(sum(zeros({2, 3}), {0, 0})),
      CALL(sum(zeros({2, 3}), 2)),
      CALL(max(zeros({0}))),
      CALL(argmax(zeros({0}))),
      CALL(mean(zeros({2}, i64))),
      CALL(cumsum(Tensor(), 0)),
      CALL(cumsum(zeros({2}, bf16), 0)),
      CALL(sum_to(zeros({2, 3}), {4})),
      CALL(cumsum_grad(zeros({16}), 0, into({2}))),
      CALL(prod_grad(zeros({16}), zeros({}), {0}, into({2}))),
      CALL(prod_grad(zeros({8}), zeros({}), {0}, {expand(zeros({1}), {8})})),
      CALL(max_grad(zeros({2, 8}), zeros({2}), zeros({2}), {1}, into({2, 7}))),
      CALL(max_grad(zeros({2, 8}), zeros({2}), zeros({3}), {1}, into({2, 8}))),
      CALL([] {
        const Into dq = into({1, 1, 2, 2});
        causal_product_grad(zeros({1, 1, 2, 3}), zeros({1, 1, 2, 3}), zeros({1, 1, 2, 3}), zeros({1, 1, 2, 3}), &dq, nullptr, nullptr);
      }()),
      CALL(sum_to(Tensor(), {1})),
      CALL(add_into(zeros({1, 3}), into({4, 3}))),
      CALL(add_into(ones({1000}), {expand(zeros({1}), {1000}), true})),
      CALL(sum_to(zeros({2, 3}), into({3}, f64))),
      CALL(logsumexp(zeros({2, 3}), {1, 1})),
      CALL(logsumexp_grad(zeros({2, 3}), zeros({3}), zeros({2}), 1, into({2, 3}))),
      // products
      CALL(matmul(zeros({2, 3}), zeros({4, 5}))),
      CALL(matmul(zeros({2, 3}), zeros({3, 2}, f64))),
      CALL(matmul(zeros({2, 2, 3}), zeros({5, 3, 2}))),
      CALL(matmul(zeros({}), zeros({2}))),
      CALL(matmul(zeros({2, 3}, i64), zeros({3, 2}, i64))),
      CALL(matmul(zeros({2, 3}), zeros({3, 4}), into({2, 5}))),
      CALL(matmul(zeros({2, 3}), zeros({3, 4}), into({2, 4}, f64))),
      CALL(matmul(zeros({2, 3}), zeros({3, 4}), Into{expand(zeros({1, 4}), {2, 4})})),
      CALL(einsum("ij,jk", {zeros({2, 3}), zeros({4, 5})})),
      CALL(einsum("ij,jk->iz", {zeros({2, 3}), zeros({3, 5})})),
      CALL(einsum("ij", {zeros({2, 3}), zeros({3, 5})})),
      CALL(einsum("i?", {zeros({2, 3})})),
      CALL(einsum("abcdefghi", {zeros({2})})),
      CALL(einsum("i\n", {zeros({2})})),
      CALL(linear(zeros({2, 3}), zeros({4, 5}), Tensor())),
      CALL(linear(zeros({2, 3}), zeros({3}), Tensor())),
      CALL(linear(zeros({2, 3}), zeros({4, 3}, f64), Tensor())),
      CALL(linear(zeros({2, 3}), zeros({4, 3}), zeros({5}))),
      CALL(linear(zeros({2, 3}), zeros({4, 3}), zeros({4}, f64))),
      CALL(linear(zeros({2, 3}), zeros({4, 3}), zeros({4}), {.residual = zeros({2, 3})})),
      CALL(linear(zeros({2, 3}), zeros({4, 3}), zeros({4}), {.dropout = 2})),
      // indexing
      CALL(embedding(zeros({3, 2}), ids({0, 5}))),
      CALL(embedding(zeros({3, 2}), ids({-1}))),
      CALL(embedding(zeros({3}), ids({0}))),
      CALL(embedding(zeros({3, 2}), zeros({2}))),
      CALL(embedding(leaf({3, 2}), ids({0}), 1, 3)),
      CALL(index_select(zeros({3, 2}), 0, ids({3}))),
      CALL(index_select_grad(ids({0, 1}), zeros({3, 2}), 0, into({3, 2}))),
      CALL(gather(zeros({3, 2}), 1, ids({0, 1}))),
      CALL(gather(zeros({3, 2}), 1, zeros({3, 2}))),
      CALL(gather_grad(zeros({2, 2}, i64), zeros({3, 2}), 0, into({3, 2}))),
      CALL(scatter_add(zeros({3}), 0, ids({4}), ones({1}))),
      CALL(scatter_add(zeros({3}, bf16), 0, ids({1}), ones({1}, bf16))),
      CALL(masked_fill(zeros({3}), zeros({4}, u8), 1)),
      CALL(masked_fill(zeros({3}), zeros({3}), 1)),
      CALL(masked_fill(zeros({3}, i64), zeros({3}, u8), 0.5)),
      CALL(masked_fill_grad(zeros({3}, u8), zeros({3}), into({4}))),
      CALL(masked_select(zeros({3}), zeros({3}))),
      CALL(masked_select(zeros({3}), zeros({2}, u8))),
      CALL(one_hot(ids({3}), 3)),
      CALL(one_hot(ids({3}), -1)),
      CALL(topk(zeros({3}), 4)),
      CALL(topk(zeros({}), 5)),
      // softmax and its kin, norms
      CALL(softmax(zeros({2, 3}), 2)),
      CALL(softmax(zeros({2, 3}, i64))),
      CALL(softmax_grad(zeros({2, 3}), zeros({3, 2}), -1, into({2, 3}))),
      CALL(sparsemax(zeros({}))),
      CALL(sparsemax_grad(zeros({2, 3}), zeros({3, 2}), into({2, 3}))),
      CALL(sparsemax_grad(zeros({2, 3}), zeros({2, 3}, f64), into({2, 3}))),
      CALL(layer_norm(zeros({}), Tensor(), Tensor())),
      CALL(layer_norm(zeros({2, 3}), zeros({4}), zeros({3}))),
      CALL(layer_norm(zeros({2, 3}), zeros({3}, f64), zeros({3}))),
      CALL(layer_norm(zeros({2, 3}), zeros({3}), zeros({3}), -1)),
      CALL(rms_norm(zeros({2, 3}), zeros({2}))),
      CALL(add_dropout_norm(zeros({2, 3}), zeros({2, 4}), zeros({3}), zeros({3}))),
      CALL(add_dropout_norm(zeros({2, 3}), Tensor(), zeros({3}), zeros({3}))),
      CALL(layer_norm_grad(zeros({2, 3}), zeros({1}), zeros({2}), zeros({3}), zeros({2, 3}), nullptr, nullptr, nullptr)),
      CALL(layer_norm_grad(zeros({2, 3}), zeros({2}), zeros({3}), zeros({3}), zeros({2, 3}), nullptr, nullptr, nullptr)),
      // attention
      CALL(scaled_dot_product_attention(zeros({2, 3, 4}), zeros({2, 3, 4}), zeros({2, 3, 4}))),
      CALL(scaled_dot_product_attention(zeros({1, 2, 3, 4}), zeros({1, 2, 3, 5}), zeros({1, 2, 3, 5}))),
      CALL(scaled_dot_product_attention(zeros({1, 2, 3, 4}), zeros({1, 3, 3, 4}), zeros({1, 3, 3, 4}))),
      CALL(scaled_dot_product_attention(zeros({1, 2, 3, 4}), zeros({1, 2, 3, 4}), zeros({1, 2, 5, 4}))),
      CALL(scaled_dot_product_attention(zeros({1, 2, 3, 4}), zeros({1, 2, 3, 4}), zeros({1, 2, 3, 4}, f64))),
      CALL(scaled_dot_product_attention(zeros({1, 2, 3, 4}), zeros({1, 2, 3, 4}), zeros({1, 2, 3, 4}), {}, {}, zeros({2, 3}))),
      CALL(scaled_dot_product_attention(zeros({2, 2, 3, 4}), zeros({2, 2, 3, 4}), zeros({2, 2, 3, 4}),
                                        Mask::allowed(ones({2, 3, 3}, u8)))),
      CALL(scaled_dot_product_attention(zeros({1, 2, 3, 4}), zeros({1, 2, 3, 4}), zeros({1, 2, 3, 4}), {}, {}, zeros({3}, f64))),
      CALL(rotary(zeros({3, 4}), rotations(2, 4))),
      CALL(rotary(zeros({2, 4}, f64), rotations(2, 4))),
      CALL(rotations(2, 3)),
      CALL(rotations(2, 4, i64)),
      CALL(rotary(zeros({2, 4}), {rotations(2, 4).cosines, zeros({2, 3})})),
      CALL(with_heads(zeros({1, 0, 3, 2}), 4)),
      CALL(with_heads(zeros({1, 2, 3, 2}), 3)),
      CALL(t5_bucket(5, false, 0)),
      CALL(scaled_dot_product_attention(zeros({1, 2, 3, 4}), zeros({1, 2, 3, 4}), zeros({1, 2, 3, 4}), {}, {.dropout = -1})),
      CALL(scaled_dot_product_attention(zeros({1, 2, 3, 4}), zeros({5, 2, 3, 4}), zeros({5, 2, 3, 4}), {}, {.places = zeros({1, 2}, i64)})),
      CALL(scaled_dot_product_attention(zeros({1, 2, 3, 4}), zeros({5, 2, 3, 4}), zeros({5, 2, 3, 4}), {}, {.places = zeros({1, 3})})),
      CALL(scaled_dot_product_attention(zeros({1, 2, 3, 4}), zeros({5, 2, 3, 4}), zeros({5, 2, 3, 4}), {},
                                        {.places = full({1, 3}, 5, i64)})),
      CALL(sum_over_rows(zeros({3, 4}), 5, {zeros({3})})),
      CALL(attention_dropout({3, 4, 4}, DType::f32, 0.1, Key(1))),
      CALL(scaled_dot_product_attention(zeros({1, 2, 3, 4}), zeros({1, 2, 40, 4}), zeros({1, 2, 40, 4}), {}, {.turned = 20})),
      CALL(turn_keys_(transpose(zeros({1, 2, 4, 40})), 0, 16)),
      CALL(scaled_dot_product_attention_grad(zeros({1, 2, 3, 4}), zeros({1, 2, 3, 4}), zeros({1, 2, 3, 4}), {},
                                             {.places = zeros({1, 3}, i64)}, {}, zeros({1, 2, 3, 4}), {}, nullptr, nullptr, nullptr)),
      CALL(additive_score(zeros({1, 2, 3}), zeros({1, 4, 3}), zeros({3, 1}))),
      CALL(additive_score(zeros({1, 2, 3}), zeros({1, 4, 5}), zeros({3}))),
      CALL(additive_score(zeros({1, 2, 3}), zeros({1, 4, 3}, f64), zeros({3}))),
      // losses
      CALL(cross_entropy(zeros({2, 3}), ids({0, 3}))),
      CALL(cross_entropy(zeros({2, 3}), ids({0, -1}))),
      CALL(cross_entropy(zeros({2, 3}), ids({0, 1, 2}))),
      CALL(cross_entropy(zeros({2, 3}), zeros({2}))),
      CALL(cross_entropy(zeros({}), zeros({}, i64))),
      CALL(cross_entropy(zeros({2, 3}), ids({0, 1}), {.label_smoothing = 1.5})),
      CALL(cross_entropy(zeros({2, 3}), ids({0, 1}), {.weight = ones({2})})),
      CALL(cross_entropy(zeros({2, 3}), ids({0, 1}), {.weight = ones({3}, f64)})),
      CALL(cross_entropy(zeros({2, 3}), ids({0, 1}), {.subtract_entropy = true, .weight = ones({3})})),
      CALL(cross_entropy_grad(zeros({2, 3}), ids({0, 1}), {zeros({2}), zeros({2})}, zeros({3}), {}, into({2, 3}))),
      CALL(cross_entropy_grad(zeros({2, 3}), ids({0, 1}), {zeros({2}), zeros({2})}, zeros({2}), {}, into({2, 4}))),
      CALL(soft_cross_entropy(zeros({2, 3}), zeros({2, 4}))),
      CALL(soft_cross_entropy(zeros({2, 3}), zeros({2, 3}, f64))),
      CALL(soft_cross_entropy_grad(zeros({2, 3}), zeros({2, 3}), {zeros({2}), zeros({2})}, zeros({3}), nullptr, nullptr)),
      CALL(linear_cross_entropy(zeros({2, 3}), zeros({5, 4}), Tensor(), ids({0, 1}))),
      CALL(linear_cross_entropy(zeros({2, 3}), zeros({5, 3}), zeros({4}), ids({0, 1}))),
      CALL(linear_cross_entropy(zeros({2, 3}), zeros({5, 3}), Tensor(), ids({0, 1}), {}, {}, {zeros({2}), zeros({3})})),
      CALL(linear_cross_entropy(zeros({2, 3}), zeros({5, 3}), Tensor(), ids({0, 1}), {}, {}, {zeros({2}), Tensor()})),
      CALL(linear_cross_entropy(zeros({2, 3}), zeros({5, 3}), Tensor(), ids({0, 1}), {}, {}, {zeros({2}), zeros({2}, f64)})),
      CALL(mse_loss(zeros({2}), zeros({3}))),
      CALL(pair_loss_grad(PairLoss::mse_loss, zeros({2}), zeros({2}), Reduction::none, 0, zeros({3}), nullptr, nullptr)),
      CALL(pair_loss_grad(PairLoss::mse_loss, zeros({2}), zeros({2}), Reduction::none, 0, zeros({2}, f64), nullptr, nullptr)),
      CALL(l1_loss(zeros({2}), zeros({2}, f64))),
      CALL(smooth_l1_loss(zeros({2}), zeros({2}), Reduction::mean, -1)),
      CALL(huber_loss(zeros({2}), zeros({2}), Reduction::mean, 0)),
      CALL(kl_div(zeros({2}, DType::i32), zeros({2}, DType::i32))),
      CALL(binary_cross_entropy_with_logits(zeros({2}), zeros({3}))),
      CALL(nll_loss(zeros({}), zeros({}, i64))),
      CALL(nll_loss(zeros({2, 3}), ids({0, 3}))),
      CALL(nll_loss(zeros({2, 3}), ids({0, 1, 2}))),
      CALL(nll_loss(zeros({2, 3}), zeros({2, 3}))),
      CALL(nll_loss(zeros({2, 3}), ids({0, 1}), ones({2}))),
      CALL(nll_loss_grad(ids({0, 1}), Tensor(), -100, Reduction::none, zeros({}), into({2, 3}))),
      // recurrent layers
      CALL(recurrent_cell(RecurrentUnit::tanh, zeros({2, 3}), zeros({2, 4}), Tensor(), zeros({3, 3}), Tensor())),
      CALL(recurrent_cell(RecurrentUnit::tanh, zeros({2, 3}), zeros({2, 3}), zeros({2, 3}), zeros({3, 3}), Tensor())),
      CALL(recurrent_cell(RecurrentUnit::gru_cudnn, zeros({2, 9}), Tensor(), Tensor(), zeros({9, 3}), zeros({3, 9}))),
      CALL(recurrent_layer(RecurrentUnit::tanh, zeros({2, 4, 5}), Tensor(), zeros({2, 3}), Tensor(), zeros({3, 6}), zeros({3, 3}), Tensor(),
                           Tensor())),
      CALL(recurrent_layer(RecurrentUnit::tanh, zeros({2, 4, 5}), Tensor(), zeros({2, 3}), Tensor(), zeros({3, 5}), zeros({3, 3}),
                           zeros({4}), Tensor())),
      CALL(recurrent_layer(RecurrentUnit::tanh, zeros({2, 4, 5}), zeros({2}), zeros({2, 3}), Tensor(), zeros({3, 5}), zeros({3, 3}),
                           Tensor(), Tensor())),
      CALL(recurrent_layer(RecurrentUnit::tanh, zeros({2, 4, 5}), ids({4, 5}, i32), zeros({2, 3}), Tensor(), zeros({3, 5}), zeros({3, 3}),
                           Tensor(), Tensor())),
      // random numbers, updates
      CALL(normal(Key(1), {2}, 0, -1)),
      CALL(bernoulli(Key(1), {2}, 2)),
      CALL(randint(Key(1), {2}, 3, 3)),
      CALL(multinomial(Key(1), zeros({}), 1)),
      CALL(multinomial(Key(1), ones({3}), -1)),
      CALL(multinomial(Key(1), tensor({{1, 2}, {3, -4}}), 1)),
      CALL(multinomial(Key(1), zeros({2, 3}), 1)),
      CALL(multinomial(Key(1), ones({2, 3}), 4)),
      CALL(multinomial(Key(1), ones({2, 3}, i64), 1)),
      CALL(uniform(Key(1), {2}, 1, 0)),
      CALL(uniform(Key(1), {2}, -1.5e308, 1.5e308, f64)),
      CALL(uniform(Key(1), {2}, 1 - 1e-12, 1)),
      CALL(dropout(zeros({2}), 1.5, Key(1))),
      CALL(dropout_grad(zeros({2}), 0.5, Key(1), into({3}))),
      CALL(dropout_grad(zeros({2}), 0.5, Key(1), into({2}, f64))),
      CALL(Random(Key(1)).below(0)),
      CALL(update(std::vector<UpdateItem>{{Update::sgd, zeros({2}), zeros({3}), {}, {}}})),
      CALL(update(std::vector<UpdateItem>{{Update::sgd, zeros({2}), zeros({2}, f64), {}, {}}})),
      CALL(update(std::vector<UpdateItem>{{Update::sgd, zeros({2}, i64), zeros({2}, i64), {}, {}}})),
      CALL(update(std::vector<UpdateItem>{{Update::sgd, transpose(zeros({2, 3})), zeros({3, 2}), {}, {}}})),
      // files
      CALL(write_safetensors("/dev/null", {{"a", Tensor()}})),
      CALL(read_safetensors("/nowhere/a.safetensors")),
      CALL(read_file("/nowhere/a")),
      CALL(read_file(std::string("/nowhere/a\0b", 12))),
  };
  return rows;
}

const std::vector<Row>& model_rows() {
  static const std::vector<Row> rows{
      // tapes
      CALL(variable(zeros({2}, i64))),
      CALL(under_tape([](Tape& tape) { tape.backward(leaf({2}) * leaf({2})); })),
      CALL(under_tape([](Tape& tape) { tape.backward(constant(ones({}, f64))); })),
      CALL(under_tape([](Tape& tape) {
        const Variable y = sum(leaf({2}) * leaf({2}));
        tape.backward(y);
        tape.backward(y);
      })),
      CALL(under_tape([](Tape& tape) {
        const Variable y = sum(leaf({2}) * leaf({2}));
        Tape inner;
        tape.backward(y);
      })),
      CALL(under_tape([](Tape&) {
        const Variable y = sum(leaf({2}) * leaf({2}));
        Tape inner;
        inner.backward(y);
      })),
      CALL(under_tape([](Tape& tape) {
        const Variable y = leaf({2}) * leaf({2});
        tape.backward({&y, 1}, std::array{ones({3}, f64)});
      })),
      CALL(under_tape([](Tape& tape) {
        const Variable y = leaf({2}) * leaf({2});
        tape.backward({&y, 1}, {});
      })),
      CALL(under_tape([](Tape& tape) {
        const Variable y = leaf({2}) * leaf({2});
        tape.backward({&y, 1}, std::array{ones({2})});
      })),
      CALL(under_tape(
          [](Tape& tape) { tape.backward(sum(gradient_hook(leaf({2}), [](const Tensor&) { return std::optional(ones({2})); }))); })),
      CALL(under_tape([](Tape& tape) {
        const Variable x = leaf({2});
        tape.backward(sum(record("mine", ones({2}, f64), {x}, [x = x.slot()](const Tensor&) { x.adopt(ones({3}, f64)); })));
      })),
      CALL(under_tape([](Tape& tape) {
        const Variable x = leaf({2});
        tape.backward(sum(record("mine", ones({2}, f64), {x}, [x = x.slot()](const Tensor&) { x.adopt(ones({2})); })));
      })),
      CALL(under_tape([](Tape&) { (leaf({2}) * leaf({2})).grad(); })),
      CALL(under_tape([](Tape&) { dropout(leaf({2}), 0.5); })),
      CALL(under_tape([](Tape&) { dropout(leaf({2}), 1.5); })),
      CALL(check_gradient([](std::span<const Variable> x) { return log(x[0]); }, {zeros({2}, f64)})),
      CALL(check_gradient([](std::span<const Variable> x) { return log(x[0]); }, {ones({2})})),
      CALL(check_gradient([](std::span<const Variable>) { return Variable(); }, {ones({2}, f64)})),
      CALL(check_gradient([](std::span<const Variable>) { return leaf({2}, DType::f32); }, {ones({2}, f64)})),
      CALL(check_gradient([] { return leaf({2}); }, {constant(ones({2}, f64))})),
      CALL(check_gradient([] { return leaf({2}); }, {leaf({2}), Variable()})),
      CALL(check_gradient([] { return leaf({2}); }, {variable(transpose(ones({2, 3}, f64)))})),
      CALL([x = leaf({2})] { check_gradient([&] { return x; }, {x, x}); }()),
      CALL([x = leaf({2})] {
        const Tape tape(Key{1});
        check_gradient([&] { return x; }, {x});
      }()),
      CALL(gradient_hook(leaf({2}), {})),
      CALL(recompute(std::function<Variable(const Variable&)>(), leaf({2}))),
      // parameters
      CALL(Linear(scope() / "line", {.in = 2, .out = 2, .bias = false}).bias.path()),
      CALL(Parameters(Seed{1}, i64)),
      CALL([] {
        const Scope s = scope();
        s.parameter("weight", {2}, constant_init(0));
        s.parameter("weight", {2}, constant_init(0));
      }()),
      CALL(scope().parameter("weight", {2}, {})),
      CALL([] {
        const Scope s = scope();
        s.alias("b", s.parameter("a", {2}, constant_init(0)), {3});
      }()),
      CALL([] {
        const Scope s = scope();
        s.alias("a", s.parameter("a", {2}, constant_init(0)), {2});
      }()),
      CALL([] {
        const Scope s = scope();
        s.parameter("encoder", {2}, constant_init(0));
        s.select("decoder*");
      }()),
      CALL(scope().alias("weight", scope().parameter("w", {2}, constant_init(0)), {2})),
      CALL(scope().parameter("weight", {2}, xavier_uniform())),
      CALL(scope().parameter("weight", {5, 2}, stacked(3, xavier_uniform()))),
      CALL(scope().parameter("weight", {5, 0}, constant_init(0))),
      CALL(scope().alias("weight", {}, {2})),
      CALL(stacked(0, xavier_uniform())),
      CALL(stacked(3, {})),
      CALL(zero_row(0, {})),
      // layers
      CALL(Embedding(scope(), {.vocabulary = 3, .width = 2, .padding = 3})),
      CALL(Linear(scope() / "proj", {.in = 3, .out = 2})(constant(zeros({2, 4})))),
      CALL(Linear(scope() / "proj", {.in = 0, .out = 2})),
      CALL(LayerNorm(scope() / "norm", {.width = 3})(constant(zeros({2, 4})))),
      CALL(LayerNorm(scope() / "norm", {.width = 3, .eps = -1})),
      CALL(RMSNorm(scope() / "norm", {.width = 3, .eps = NAN})),
      CALL(Dropout(scope() / "dropout", 1.5)),
      CALL(Residual(scope() / "norm1", {.width = 3, .dropout = -0.1})),
      CALL(FeedForward(scope() / "layers", {.width = 3, .inner = 4, .dropout = NAN})),
      CALL(MultiHeadAttention(scope() / "self_attn", {.width = 8, .dropout = 2})),
      CALL(MultiHeadAttention(scope() / "self_attn", {.width = 10, .heads = 4})),
      CALL(MultiHeadAttention(scope() / "self_attn", {.width = 8, .heads = 4, .key_value_heads = 3})),
      CALL(MultiHeadAttention(scope() / "self_attn", {.width = 8, .heads = 4, .key_width = 6, .key_value_heads = 2})
               .self(constant(zeros({1, 2, 8})), {})),
      CALL(MultiHeadAttention(scope() / "self_attn", {.width = 8}).self(constant(zeros({2, 8})), {})),
      CALL(MultiHeadAttention(scope() / "self_attn", {.width = 8, .heads = 4, .key_width = 6}).self(constant(zeros({1, 2, 8})), {})),
      CALL([] {
        KeyValueCache cache;
        MultiHeadAttention(scope() / "self_attn", {.width = 8, .heads = 4, .key_width = 6}).next(constant(zeros({1, 2, 8})), cache);
      }()),
      CALL(under_tape([](Tape&) {
        KeyValueCache cache;
        MultiHeadAttention(scope() / "self_attn", {.width = 8}).next(constant(zeros({1, 2, 8})), cache);
      })),
      CALL(Lstm(scope() / "rnn", {.in = 0, .width = 2})),
      CALL(Lstm(scope() / "rnn", {.in = 2, .width = 2, .layers = 0})),
      CALL(Lstm(scope() / "rnn", {.in = 2, .width = 2, .dropout = 1.5})),
      CALL(Lstm(scope() / "rnn", {.in = 2, .width = 2, .dropout = 0.5})),
      CALL(Lstm(scope() / "rnn", {.in = 2, .width = 2, .bias = false, .forget_bias = 1})),
      CALL(Lstm(scope() / "rnn", {.in = 2, .width = 2})(constant(zeros({1, 3, 2})), {}, {RecurrentState{}, RecurrentState{}})),
      CALL(positions_named("cosine")),
      CALL(sinusoids(-1, 4)),
      CALL(sinusoids(2, 4, i64)),
      CALL(sinusoids(2, 4, DType::f32, {.first = Index{1} << 60})),
      CALL(PositionTable(scope() / "positions", {.kind = Positions::learned, .width = 4, .length = 3}).rows(2, 2)),
      CALL(PositionTable(scope() / "positions", {.width = 4}).rows(-1, 2)),
      CALL(RelativePositions(scope() / "self_attn", {.kind = Positions::rope, .heads = 2, .head_width = 3})),
      CALL(RelativePositions(scope() / "self_attn", {.kind = Positions::t5, .heads = 2, .head_width = 4, .buckets = 5})),
      CALL(RelativePositions(scope() / "self_attn", {.kind = Positions::shaw, .heads = 2, .head_width = 4, .clip = 0})),
      CALL(RelativePositions(scope() / "self_attn", {.kind = Positions::learned, .heads = 2, .head_width = 4})),
      CALL(MultiHeadAttention(scope() / "self_attn", {.width = 8,
                                                      .heads = 4,
                                                      .positions = RelativePositions(
                                                          scope() / "self_attn", {.kind = Positions::alibi, .heads = 1, .head_width = 2})})),
      CALL(MultiHeadAttention(scope() / "self_attn", {.width = 8,
                                                      .heads = 4,
                                                      .positions = RelativePositions(
                                                          scope() / "self_attn", {.kind = Positions::rope, .heads = 4, .head_width = 4})})),
      CALL(alibi_slopes(0)),
      CALL(query_key_named("l3")),
      CALL(QueryKeyNorm(scope() / "self_attn", {.kind = QueryKey::l2, .head_width = 4, .length = 1})),
      CALL(MultiHeadAttention(scope() / "self_attn", {.width = 8, .heads = 4, .sliding_window = -1})),
      CALL(MultiHeadAttention(scope() / "self_attn", {.width = 8, .heads = 4, .sliding_window = 1, .dilation = {1, 2}})),
      CALL(MultiHeadAttention(scope() / "self_attn", {.width = 8, .heads = 4, .sliding_window = 1, .dilation = {0}})),
      CALL(MultiHeadAttention(scope() / "self_attn", {.width = 8, .heads = 4, .dilation = {2}})),
      CALL(MultiHeadAttention(scope() / "self_attn", {.width = 8, .heads = 4, .global_tokens = 2})),
      CALL(MultiHeadAttention(scope() / "self_attn", {.width = 8, .heads = 4, .sliding_window = 1, .global_tokens = -1})),
      CALL(MultiHeadAttention(scope() / "self_attn", {.width = 8, .heads = 4, .key_width = 6, .sliding_window = 1, .global_tokens = 2})),
      CALL([] {
        const MultiHeadAttention a(scope() / "self_attn", {.width = 8, .heads = 4, .sliding_window = 1, .global_tokens = 2});
        KeyValueCache cache = a.cache(1, 4);
        a.next(constant(zeros({1, 1, 8})), cache);
      }()),
      CALL(MultiHeadAttention(scope() / "self_attn", {.width = 8, .heads = 4, .normalise = "max"})),
      CALL(MultiHeadAttention(scope() / "self_attn", {.width = 9, .heads = 3, .differential = true})),
      CALL(MultiHeadAttention(scope() / "self_attn", {.width = 8, .heads = 4, .key_value_heads = 1, .differential = true})),
      CALL(MultiHeadAttention(scope() / "self_attn", {.width = 8,
                                                      .heads = 4,
                                                      .positions = RelativePositions(
                                                          scope() / "self_attn", {.kind = Positions::shaw, .heads = 4, .head_width = 2}),
                                                      .differential = true})),
      CALL(DifferentialHeads(scope() / "self_attn", {.heads = 2, .head_width = 4, .layer = 0})),
      CALL(MultiHeadAttention(scope() / "self_attn", {.width = 8, .heads = 4, .dropout = 0.1, .linear_attention = true})),
      CALL(linear_sums(constant(zeros({2, 3})), constant(zeros({})))),
      CALL(MultiHeadAttention(scope() / "self_attn", {.width = 8, .heads = 4, .random_features = 16})),
      CALL(MultiHeadAttention(scope() / "self_attn", {.width = 8, .heads = 4, .linear_attention = true, .random_features = -1})),
      CALL(RandomFeatures({.number = 8, .head_width = 4, .scale = -2})),
      CALL([] {
        KeyValueCache plain(1, {2, 4}, {2, 4}, 4, DType::f32);
        MultiHeadAttention(scope() / "self_attn", {.width = 8, .heads = 2, .linear_attention = true})
            .next(constant(zeros({1, 1, 8})), plain);
      }()),
      CALL([] {
        KeyValueCache none;
        MultiHeadAttention(scope() / "self_attn", {.width = 8}).next(constant(zeros({1, 2, 8})), none);
      }()),
      CALL(identity_init()(zeros({2}), Key(1))),
      CALL(gru().parameters->select().initialise(nullptr)),
      // attentions
      CALL(make_attention("dott", scope(), {.query_width = 2, .memory_width = 2})),
      CALL(make_attention("-hard", scope(), {.query_width = 2, .memory_width = 2})),
      CALL(make_score("dott", scope(), {.query_width = 2, .memory_width = 2})),
      CALL(normalise_named("max")),
      CALL(normalise_named("top-0")),
      CALL(normalise_named("learned-entmax")),
      CALL(Normalise()(constant(zeros({2})), {})),
      CALL(top_k(constant(zeros({2})), 0, {})),
      CALL(make_attention("dot", scope() / "attention", {.query_width = 2, .memory_width = 3})),
      CALL(make_attention("local-m", scope() / "attention", {.query_width = 2, .memory_width = 2, .window = -1})),
      CALL(make_attention("cosine", scope() / "attention", {.query_width = 2, .memory_width = 2, .sharpness = -1})),
      CALL(make_attention("location", scope() / "attention", {.query_width = 2, .memory_width = 2, .longest = 0})),
      CALL(make_attention("general", scope() / "attention", {.query_width = 2, .memory_width = 2, .truncate_after_softmax = true})),
      CALL(KeyValueCache(2, {1, 4}, {1, 4}, 3, f64).append(zeros({1, 1, 1, 4}, f64), zeros({1, 1, 1, 4}, f64))),
      CALL(KeyValueCache(2, {1, 4}, {1, 4}, 3, f64).append(zeros({2, 1, 1, 4}), zeros({2, 1, 1, 4}))),
      CALL(make_attention("dot", scope() / "attention", {.query_width = 2, .memory_width = 2}).prepare(constant(zeros({2, 2})), {})),
      CALL([] {
        const Attention a = make_attention("dot", scope() / "attention", {.query_width = 2, .memory_width = 2});
        a(constant(zeros({3, 1, 2})), a.prepare(constant(zeros({1, 3, 2})), {}));
      }()),
      CALL([] {
        const Attention a = make_attention("coverage", scope() / "attention", {.query_width = 2, .memory_width = 2});
        a(constant(zeros({1, 2, 2})), a.prepare(constant(zeros({1, 3, 2})), {}));
      }()),
      CALL([] {
        const Attention a = make_attention("coverage", scope() / "attention", {.query_width = 2, .memory_width = 2});
        AttentionState state{.advance = 0};
        const Memory m = a.prepare(constant(zeros({1, 3, 2})), {});
        a(constant(zeros({1, 1, 2})), m, state);
        a(constant(zeros({1, 4, 2})), m, state);
      }()),
      CALL(make_attention("additive-normed", scope() / "attention", {.query_width = 2, .memory_width = 2, .v_init = constant_init(0)})),
      CALL([] {
        const Attention a = make_attention("local-p", scope() / "attention", {.query_width = 2, .memory_width = 2});
        a(constant(zeros({3, 1, 2})), a.prepare(constant(zeros({3, 4, 2})), Mask::lengths(tensor({2}, DType::i32))));
      }()),
      CALL([] {
        const Attention a = make_attention("local-m", scope() / "attention", {.query_width = 2, .memory_width = 2, .clamp_position = true});
        a(constant(zeros({3, 1, 2})), a.prepare(constant(zeros({3, 4, 2})), Mask::lengths(tensor({2}, DType::i32))));
      }()),
      CALL(AttentionState().reorder(std::array<Index, 2>{0, 1}, 0)),
      // optimisers, schedules, training
      CALL(Adam(*transformer().parameters, {.learning_rate = -1})),
      CALL(Adam(*transformer().parameters, {}).set_learning_rate(NAN)),
      CALL(Adam(*transformer().parameters, {}).set_factors(transformer().parameters->select(), {.learning_rate = -1})),
      CALL(Adam(transformer().parameters->select("*weight"), {})
               .set_factors(transformer().parameters->select("*out_proj.bias"), {.weight_decay = 0})),
      CALL(SGD(*transformer().parameters, {.dampening = NAN})),
      CALL(Adagrad(*transformer().parameters, {.eps = -1})),
      CALL(Adadelta(*transformer().parameters, {.eps = -1})),
      CALL(RMSprop(*transformer().parameters, {.eps = NAN})),
      CALL(Adam(*transformer().parameters, {.beta1 = 1.5})),
      CALL(WeightAverage(*transformer().parameters, 1)),
      CALL(SGD(*transformer().parameters, {.nesterov = true})),
      CALL(clip_gradient_norm(*transformer().parameters, -1)),
      CALL(clip_gradient_norm(with_nan_gradient(), 1, true)),
      CALL(clip_gradient_value(*transformer().parameters, -1)),
      CALL(Schedule::kind("cosin")),
      CALL(Schedule({.peak = -1})),
      CALL(Schedule({.warmup = -1})),
      CALL(Schedule({.start = NAN})),
      CALL(Schedule({.start = -3})),
      CALL(Schedule({.end = NAN})),
      CALL(Schedule({.end = -1})),
      CALL(Schedule({.factor = NAN})),
      CALL(Schedule({.factor = -1})),
      CALL(Schedule({.after = -10})),
      CALL(Schedule({.patience = -3})),
      CALL(Schedule({.kind = Schedule::Kind::noam, .warmup = 1, .width = 0})),
      CALL(Schedule({.kind = Schedule::Kind::step, .every = 0})),
      CALL(LstmCell(scope() / "cell", {.in = 3, .width = 2})(constant(zeros({3})), {})),
      CALL(ExtraScores({NamedScore{"", {}}})),
      CALL(ExtraScores({NamedScore{"local-p", dot_again}})),
      CALL(ExtraScores({NamedScore{"dot-hard", dot_again}})),
      CALL(ExtraScores({NamedScore{"auto", dot_again}})),
      CALL(ExtraScores({NamedScore{"near-", dot_again}})),
      CALL(make_attention("local-m", scope() / "attention", {.query_width = 3, .memory_width = 3, .window = -1})),
      CALL(Schedule({.kind = Schedule::Kind::cosine, .warmup = 5, .total = 5})),
      CALL(Schedule({.kind = Schedule::Kind::inverse_sqrt, .warmup = 0})),
      CALL(trained({.clip = -1})),
      CALL(trained({.average = 1})),
      CALL(trained({.guided_alignment = -1})),
      CALL(trained({.coverage_loss = -1})),
      CALL(trained({.precision = Precision::int8})),
      CALL(elsewhere([] { ProductPrecision use(Precision::bfloat16); })),
      CALL(elsewhere([] { multiply_bfloat16({}); })),
      CALL(restored({})),
      CALL(restored({{"schedule.best", "much"}})),
      CALL(restored({{"step", "3"}, {"skipped", "0"}}, 0.9)),
      CALL(mean_weights({})),
      CALL(mean_weights(std::vector<std::map<std::string, Tensor>>{{{"a", zeros({2})}}, {{"b", zeros({2})}}})),
      CALL(mean_weights(std::vector<std::map<std::string, Tensor>>{{{"a", zeros({2})}}, {{"a", zeros({3})}}})),
      // models and search
      CALL(stepped(transformer(), 2)),
      CALL(stepped(gru(), 2)),
      CALL(transformer().model->step(zeros({1}, i32), *gru().model->start(sentence(2)))),
      CALL(gru().model->step(zeros({1}, i32), *transformer().model->start(sentence(2)))),
      CALL(transformer().model->start(sentence(3))),
      CALL(gru().model->start(sentence(-1))),
      CALL(transformer().model->start({zeros({2}, i32), zeros({2}, i32)})),
      CALL(transformer().model->loss({sentence(2), zeros({1, 2}, i32), zeros({2, 1}, i32), {}}, {})),
      CALL(gru().model->loss({sentence(2), zeros({1, 2}, i32), zeros({2, 1}, i32), {}}, {})),
      CALL(gru().model->loss({sentence(2), zeros({2}, i32), zeros({2}, i32), {}}, {})),
      CALL(gru().model->loss({sentence(2), zeros({1, 2}, i32), zeros({1, 2}, i32), {}}, {})),
      CALL(gru().model->token_losses({sentence(2), zeros({1, 2}, i32), zeros({2, 1}, i32), {}}, 0)),
      CALL(copying().model->loss({sentence(2), ids({{2}}, i32), ids({{5000}}, i32), {}, 2, 1}, {})),
      CALL(copying().model->loss({sentence(2), ids({{5000}}, i32), ids({{3}}, i32), {}, 2, 1}, {})),
      CALL(copying().model->step(ids({5000}, i32), *copying().model->start(sentence(2)))),
      CALL(copying().model->step(ids({2}), *copying().model->start(sentence(2)))),
      CALL(mean_over_heads({AttentionMap::Kind::cross, 0, constant(zeros({1, 4}))})),
      CALL(linked({{2, 0}})),
      CALL(linked({}, std::vector<Index>{0, 0})),
      CALL(linked({}, std::vector<Index>{1})),
      CALL(coverage_loss({AttentionMap::Kind::cross, 0, constant(zeros({1, 4, 2}))}, linked({}))),
      CALL(alignment_loss({AttentionMap::Kind::cross, 0, constant(zeros({1, 4, 2, 3}))}, linked({{0, 0}}))),
      CALL([] {
        DecoderState state;
        LuongDecoder(scope() / "net", {.embedding = 2, .width = 2, .encoder_width = 2, .memory_width = 2})(constant(zeros({1, 1, 2})),
                                                                                                           state);
      }()),
      CALL(TransformerEncoder(scope() / "encoder", {.width = 4, .heads = 2, .encoder_layers = 0})),
      CALL(TransformerDecoder(scope() / "decoder", {.width = 4, .heads = 2, .decoder_layers = -1})),
      CALL(TransformerDecoder(scope() / "decoder", kTwoLayers)(constant(zeros({1, 2, 4})), {})),
      CALL(TransformerDecoder(scope() / "decoder", kTwoLayers, false).prepare(constant(zeros({1, 2, 4})), {})),
      CALL(TransformerDecoder(scope() / "decoder", kTwoLayers, false).next(constant(zeros({1, 1, 4})), {}, {})),
      CALL(TransformerDecoderLayer(scope() / "decoder", kTwoLayers)(constant(zeros({1, 2, 4})), nullptr, {})),
      CALL(RecurrentModel(scope() / "model", {.source_vocabulary = 4,
                                              .target_vocabulary = 4,
                                              .encoder = {.width = 2},
                                              .decoder = BahdanauDecoder::Options{.width = 2},
                                              .dropout = 1.5})),
      CALL(reordered(transformer(), std::array<Index, 3>{0, 0, 1}, 2)),
      CALL(reordered(gru(), std::array<Index, 2>{0, 1}, 2)),
      CALL(reordered(gru(), std::array<Index, 1>{2}, 1)),
      CALL(DecoderState().reorder(std::array<Index, 1>{0}, 1)),
      CALL(transformer().model->features(test::batch_of({{4, 9, 3}}, {{4, 3}}))),
      CALL(copying().model->start({tensor(std::vector<std::int32_t>{99, 3}, {1, 2}), tensor(std::vector<std::int32_t>{2}, {1})})),
      CALL(PointerGenerator(scope() / "gate", make_model(default_config("gru"), scope() / "net", 5, 5),
                            {.source_vocabulary = 5, .target_vocabulary = 5, .shared = zeros({4}, i32)})),
      CALL(PointerGenerator(scope() / "gate", nullptr, {.source_vocabulary = 5, .target_vocabulary = 5})),
      CALL(Ensemble({})),
      CALL(Ensemble({nullptr})),
      CALL(Ensemble({transformer().model.get(), copying().model.get()})
               .step(zeros({1}, i32), *Ensemble({transformer().model.get(), copying().model.get()}).start(sentence(2)))),
      CALL(ensemble_mean_named("median")),
      CALL(length_penalty_named("long")),
      CALL(stop_named("late")),
      CALL(precision_named("int4")),
      CALL(LowPrecisionWeight(zeros({2, 3}), Precision::float32)),
      CALL(LowPrecisionWeight(zeros({2, 3, 4}), Precision::int8)),
      CALL(LowPrecisionWeight(zeros({2, 3}, DType::f64), Precision::int8)),
      CALL(LowPrecisionWeight(zeros({1, 65537}), Precision::int8)),
      CALL(searched({.beam = 0})),
      CALL(searched({.beam = 2, .nbest = 3})),
      CALL(searched({.batch = 0})),
      CALL(searched({.pad = 3})),
      CALL(searched({.eos = 99})),
      CALL(searched({.alpha = NAN})),
      CALL(searched({.alpha = -1, .stop = Stop::bound})),
      CALL(searched({.coverage = -1})),
      CALL(searched({.max_length = -1})),
      CALL(searched({.min_length = -1})),
      CALL(searched({.no_repeat_ngram = -1})),
      CALL(searched({.extra_length = 1000000001})),
      CALL(searched({.beam = 4, .sampling = Sampling{}})),
      CALL(searched({}, 2)),
      CALL(searched({.max_length = 3, .min_length = 4})),
      CALL(searched({.max_length = 1}, 1, {4, 5})),
      CALL(searched({}, 1, {4, 3})),
      CALL(searched({}, 1, {-1})),
      CALL(search(*cho().model, std::vector<std::vector<std::int32_t>>{{4, 3}}, {.attention = true})),
      CALL(search(*cho().model, std::vector<std::vector<std::int32_t>>{{4, 3}}, {.coverage = 0.2})),
      CALL(searched({.sampling = Sampling{.temperature = -1}})),
      CALL(searched({.sampling = Sampling{.top_p = 0}})),
      CALL(BatchSampler({}, {.tokens = 0}, Key(1))),
      // scores of text, pictures
      CALL(bleu(std::vector<std::string>{"a"}, References{})),
      CALL(bleu(std::vector<std::string>{"a"}, References{{}})),
      CALL(bleu(std::vector<std::string>{}, References{})),
      CALL(alignment_score(std::vector<std::vector<Link>>(1), std::vector<Alignment>(2))),
      CALL(attention_links(zeros({3}))),
      CALL(mean_map({})),
      CALL(map_of(2, 3)),
      CALL(map_of(2, 4, 1)),
  };
  return rows;
}

}  // namespace

TEST_CASE("errors: every wrong argument throws what tests/errors.md says") {
  static const std::set<std::string> types{"Error", "ShapeError", "DTypeError", "IndexError", "FileError", "NumericError"};
  std::vector<PageRow> answers;
  for (const auto* rows : {&tensor_rows(), &model_rows()})
    for (const Row& row : *rows) {
      CAPTURE(row.call);
      const std::string says = thrown(row.run);
      CHECK_MESSAGE(types.contains(says.substr(0, says.find(':'))), says);
      CHECK_MESSAGE(says.find('\n') == says.npos, says);
      // What was given: shapes, numbers, dtypes.
      static const std::regex side(R"(\[[^\]]*\]?|-?[0-9.]+|\b(f32|f64|bf16|i32|i64|u8)\b)");
      const auto sides = std::distance(std::sregex_iterator(says.begin(), says.end(), side), {});
      if (says.starts_with("ShapeError") || says.starts_with("IndexError") || says.starts_with("DTypeError"))
        CHECK_MESSAGE(sides >= 1, says);
      answers.push_back({"`" + std::string(row.call) + "`", says});
    }
  check_page("tests/errors.md",
             "# Errors\n\n"
             "What a wrong argument gets. The test \"errors\" asks all of this and compares; `HEED_WRITE_PAGES=1 build/tests/heed-tests "
             "-tc='errors*'` writes this page. "
             "Files and the command line: tests/faults/faults.md.\n\n"
             "| call | what it throws |\n|---|---|\n",
             answers);
}
