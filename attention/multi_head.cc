// SPDX-License-Identifier: Apache-2.0
#include "attention/multi_head.h"

#include <algorithm>
#include <cmath>

#include "attention/linear_attention.h"
#include "autograd/tape.h"
#include "nn/dropout.h"
#include "nn/init.h"
#include "tensor/format.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/view.h"

namespace heed {
namespace {

const MultiHeadAttention::Options& checked(const Scope& scope, const MultiHeadAttention::Options& options) {
  const Inside inside(scope.path());
  check<ShapeError>(options.heads >= 1 && options.width >= 1, "multi-head attention: width {} and heads {} must be at least 1",
                    options.width, options.heads);
  check<ShapeError>(options.width % options.heads == 0, "multi-head attention: width {} is not a multiple of heads {}; use a width of {}",
                    options.width, options.heads, nearest_multiples(options.width, options.heads));
  check<ShapeError>(options.key_value_heads == 0 || (options.key_value_heads > 0 && options.heads % options.key_value_heads == 0),
                    "multi-head attention: heads {} are not a multiple of key_value_heads {}", options.heads, options.key_value_heads);
  check<Error>(options.sliding_window.value_or(0) >= 0, "multi-head attention: sliding_window must not be negative: {}",
               options.sliding_window.value_or(0));
  const std::size_t gaps = options.dilation.size();
  check<Error>(gaps <= 1 || gaps == std::size_t(options.heads),
               "multi-head attention: dilation has {} gaps for {} heads; one for each, or one for all", gaps, options.heads);
  for (const Index gap : options.dilation)
    check<Error>(gap >= 1 && gap < Index{1} << 31, "multi-head attention: dilation must be at least 1, which is no gap: {}", gap);
  check<Error>(options.global_tokens >= 0, "multi-head attention: global_tokens must not be negative: {}", options.global_tokens);
  check<Error>(options.sliding_window || (gaps == 0 && options.global_tokens == 0),
               "multi-head attention: no sliding_window: dilation [{}], global_tokens {}; both are of one",
               fmt::join(options.dilation, ", "), options.global_tokens);
  check<Error>(options.global_tokens == 0 || options.key_width == 0 || options.key_width == options.width,
               "multi-head attention: global_tokens are of self-attention, which needs key_width = width: key_width {}, width {}",
               options.key_width, options.width);
  return options;
}

// Rows of queries, keys or values in a packed projection
Tensor third(const Tensor& packed, Index block) { return split(packed, 3, 0)[std::size_t(block)]; }

// i32 [heads]
Tensor dilation_of(const MultiHeadAttention::Options& options) {
  if (options.dilation.empty()) return {};
  std::vector<std::int32_t> gaps(options.dilation.begin(), options.dilation.end());
  gaps.resize(std::size_t(options.heads), gaps.back());
  return tensor(gaps, {options.heads});
}

}  // namespace

MultiHeadAttention::MultiHeadAttention(Scope scope, Options options)
    : out_proj(scope / "out_proj", {.in = checked(scope, options).width,
                                    .out = options.width,
                                    .bias = options.bias,
                                    .init = options.init ? options.init : linear_uniform(options.width)}),
      width(options.width),
      heads(options.heads),
      key_value_heads(options.key_value_heads ? options.key_value_heads : options.heads),
      dropout(checked_dropout(scope.path(), options.dropout)),
      scale(options.scale != 0 ? options.scale : options.query_key == QueryKey::l2 ? 1 : options.positions.scale()),
      positions(std::move(options.positions)),
      norm(scope, {.kind = options.query_key, .head_width = options.width / options.heads, .scale = scale, .length = options.long_sentence,
                   .bias = options.bias}),
      normalise(make_normalise(options.normalise, scope, heads)),
      sliding_window(options.sliding_window),
      dilation(dilation_of(options)),
      global_tokens(options.global_tokens),
      linear_attention(options.linear_attention),
      path(scope.path()) {
  const Inside inside(scope.path());
  positions.check_fits(heads, width / heads);
  check<Error>(!linear_attention || (normalise.is_softmax && !options.talking_heads && !options.differential && !sliding_window &&
                                     dropout == 0 && positions.kind() == Positions::none),
               "linear attention: has no scores: no positions inside it, normalise, talking_heads, differential, sliding_window, dropout");
  check<Error>(options.random_features == 0 || linear_attention, "random features: are of linear attention: random_features {}",
               options.random_features);
  if (options.random_features != 0)
    features.emplace(RandomFeatures::Options{.number = options.random_features,
                                             .head_width = width / heads,
                                             .scale = factor(),
                                             .orthogonal = options.orthogonal_features,
                                             .draw = options.layer,
                                             .dtype = scope.dtype()});
  if (options.talking_heads) talking.emplace(scope, heads);
  if (options.differential) {
    check<ShapeError>(key_value_heads % 2 == 0, "differential attention: needs pairs of key_value_heads: {}", key_value_heads);
    check<Error>(!positions.reads_values(),
                 "differential attention: the values of pairs of heads have no place in Shaw's tables, one a head; other positions");
    differential.emplace(scope, DifferentialHeads::Options{.heads = heads, .head_width = width / heads, .layer = options.layer});
  }
  project_inputs(scope, options);
  if (global_tokens > 0) project_globally(scope, options.bias);
}

void MultiHeadAttention::project_inputs(Scope scope, const Options& options) {
  const Index d = options.width, key_width = options.key_width ? options.key_width : d;
  const auto with_smaller_queries = [&](Initializer init) -> Initializer {
    if (scale == 0 || !norm.plain()) return init;
    return [init = std::move(init), d, factor = 1 / (scale * std::sqrt(double(d / heads)))](const Tensor& into, Key key) {
      init(into, key);
      const Tensor queries = into(Slice{0, d});
      copy_into(queries, queries * factor);
    };
  };
  if (key_value_heads != heads) {
    const Initializer init = options.init ? options.init : xavier_uniform();
    const Index shared = d / heads * key_value_heads;
    q_proj.emplace(scope / "q_proj", Linear::Options{.in = d, .out = d, .bias = options.bias, .init = with_smaller_queries(init)});
    k_proj.emplace(scope / "k_proj", Linear::Options{.in = key_width, .out = shared, .bias = options.bias, .init = init});
    v_proj.emplace(scope / "v_proj", Linear::Options{.in = key_width, .out = shared, .bias = options.bias, .init = init});
  } else if (key_width == d) {
    const Initializer init = !options.init ? xavier_uniform() : options.packed_init ? options.init : stacked(3, options.init);
    in_proj_weight = scope.parameter("in_proj_weight", {3 * d, d}, with_smaller_queries(init));
  } else {
    const Initializer init = options.init ? options.init : xavier_uniform();
    q_proj_weight = scope.parameter("q_proj_weight", {d, d}, with_smaller_queries(init));
    k_proj_weight = scope.parameter("k_proj_weight", {d, key_width}, init);
    v_proj_weight = scope.parameter("v_proj_weight", {d, key_width}, init);
  }
  if (options.bias && !q_proj) in_proj_bias = scope.parameter("in_proj_bias", {3 * d}, constant_init(0));
}

void MultiHeadAttention::project_globally(Scope scope, bool bias) {
  global_path = (scope / "global").path();
  const auto copy_of = [&](std::string_view name, const std::optional<Linear>& own, Index block) {
    const Tensor weight = own ? own->weight.value() : third(in_proj_weight.value(), block);
    const auto init = [weight](const Tensor& into, Key) { copy_into(into, weight); };
    return Linear(scope / name, {.in = width, .out = weight.size(0), .bias = bias, .init = init});
  };
  query_global.emplace(copy_of("query_global", q_proj, 0));
  key_global.emplace(copy_of("key_global", k_proj, 1));
  value_global.emplace(copy_of("value_global", v_proj, 2));
}

void add_global_projections(std::map<std::string, Tensor>& weights, const std::string& prefix) {
  const std::pair<const char*, const char*> names[] = {
      {"query_global.", "q_proj."}, {"key_global.", "k_proj."}, {"value_global.", "v_proj."}};
  for (Index block = 0; block < 3; ++block)
    for (const std::string part : {"weight", "bias"}) {
      const auto& [global, own] = names[block];
      const auto apart = weights.find(prefix + own + part), packed = weights.find(prefix + "in_proj_" + part);
      if (apart != weights.end()) weights.emplace(prefix + global + part, apart->second);
      else if (packed != weights.end() && packed->second.rank() > 0 && packed->second.size(0) % 3 == 0)
        weights.emplace(prefix + global + part, third(packed->second, block));
    }
}

double MultiHeadAttention::factor() const { return scale != 0 ? scale : 1 / std::sqrt(double(width / heads)); }

Variable MultiHeadAttention::in_bias(Index first, Index end) const {
  return in_proj_bias.defined() ? slice(in_proj_bias, 0, first * width, end * width) : Variable();
}

Variable MultiHeadAttention::split_heads(const Variable& x, Index of) const {
  check<ShapeError>(x.rank() == 3, "multi-head attention: needs 3 dimensions [B, T, d]: {}", x.shape());
  return permute(reshape(x, {x.size(0), x.size(1), x.size(2) / of, of}), {0, 2, 1, 3});   // [B, H', T, of]
}

Variable MultiHeadAttention::queries(const Variable& x) const {
  const Variable q = norm.queries(split_heads(x, width / heads));
  return features ? features->queries(q) : linear_attention ? linear_features(q) : q;
}
Variable MultiHeadAttention::keys(const Variable& x, const Mask& mask) const {
  const Variable k = norm.keys(split_heads(x, width / heads));
  return features ? features->keys(k, mask) : linear_attention ? without_padding(linear_features(k), mask) : k;
}
Variable MultiHeadAttention::values(const Variable& x) const { return split_heads(x, width / value_heads()); }

double MultiHeadAttention::least() const { return features ? RandomFeatures::kLeast : kLeastDenominator; }

bool MultiHeadAttention::fused(bool biased) const {
  return normalise.is_softmax && !talking && !differential && !(biased && positions.reads_values());
}

// α = normalise(e);  c = dropout(α) V, and Shaw's + Σ_j dropout(α)_ij a^V_r
AttentionVariable MultiHeadAttention::by_weights(const Variable& q, const Reads& reads, const Variable& bias, const Mask& mask,
                                                 double p) const {
  const Trace::Axes over{.columns = reads.along, .heads = true}, each{.rows = reads.along, .heads = true}, of_head{.heads = true};
  const auto gathered = [&](const Variable& x) { return reads.places.defined() ? constant(gather_places(x.value(), reads.places)) : x; };
  const Variable k = with_heads(gathered(reads.turned > 0 ? constant(keys_in_rows(reads.k.value(), reads.turned)) : reads.k), heads),
                 v = with_heads(gathered(reads.v), value_heads());
  const bool offsets = bias.defined() && positions.reads_values();
  const std::string_view dot = scale == 1 || linear_attention ? "q·k_j" : scale == 0 ? "q·k_j / √(d/H)" : "scale q·k_j";
  const std::string e = Trace::current() ? fmt::format("e_j = {}{}", dot, bias.defined() ? " + b_j" : "") : std::string();
  const Variable query = trace("query", formula("q = x", "Q", reads.first >= 0), q, of_head);
  Variable scores = matmul(linear_attention ? query : query * factor(), transpose(k));                                    // [B, H, T, S]
  if (bias.defined()) scores = scores + trace("bias", positions.formula(factor()), expand(bias, scores.shape()), over);
  scores = trace("scores", e, scores, over);
  if (talking) scores = trace("mixed_scores", "e_j becomes Σ_b L_ab e_j of head b, a this head", talking->scores(scores), over);
  Variable weights = linear_attention
                         ? trace("weights", "α_j = e_j / Σ e over the words that may be seen", linear_weights(scores, mask, least()), over)
                         : trace("weights", normalise.formula, normalise(scores, mask), over);
  if (talking) weights = trace("mixed_weights", "α_j becomes Σ_b W_ab α_j of head b", talking->weights(weights), over);
  if (differential)
    weights = trace("differences", "a_j = α_j of the pair's first head - λ α_j of its second", differential->weights(weights), over);
  const Variable kept = heed::dropout(weights, p), read = matmul(kept, v);
  Variable context = offsets ? read + positions.value_sum(kept, reads.first) : read;                            // [B, H, T, d/H]
  if (Trace::current()) {
    const std::string_view weight = differential ? "a_j" : "α_j";
    const std::string value = fmt::format("{} {}", weight, offsets ? "(v_j + a_(j - i))" : "v_j");
    const Variable values = offsets ? unsqueeze(v, 2) + positions.value_offsets(reads.first, q.size(2), k.size(2)) : unsqueeze(v, 2);
    // [B, H, T, S, d/H]
    const Variable weighted = trace("weighted", offsets ? value + ", a = rel_v" : value, unsqueeze(kept, -1) * values, each);
    context = trace("context", "c = Σ_j " + value, with_value(sum(weighted, {3}), context.value()), of_head);
  }
  if (differential) context = trace("normed", "c' = (1 - λ_init) γ ⊙ c/√(mean c² + ε)", differential->context(context), of_head);
  return {context, weights};
}

Attended MultiHeadAttention::heads_of(const Variable& q, const Reads& reads, const Mask& given, Want want) const {
  const bool slides = reads.first >= 0 && sliding_window && !reads.global;
  const Mask mask = slides ? given & Mask::sliding({*sliding_window, *sliding_window, reads.first, dilation, global_tokens}) : given;
  const Variable bias = reads.first >= 0 ? positions.bias(q, reads.first, reads.k.size(2), factor()) : Variable();
  const AttentionOptions options{
      .scale = scale, .dropout = dropout, .weights = want == Want::weights, .places = reads.places, .turned = reads.turned};
  const bool at_once = linear_attention ? reads.context.defined() : fused(bias.defined());
  AttentionVariable read = !at_once ? by_weights(q, reads, bias, mask, dropout)
                           : linear_attention ? AttentionVariable{reads.context, {}}
                                              : scaled_dot_product_attention(q, reads.k, reads.v, mask, options, bias);
  if (at_once && (Trace::current() || (linear_attention && options.weights))) {
    const AttentionVariable steps = by_weights(q, reads, bias, mask, 0);
    if (linear_attention) read.weights = steps.weights;
    // gradients are those of the scores
    if (Trace::current() && !dropout_acts(dropout)) read.output = with_value(steps.output, read.output.value());
  }
  // [B, T, d]
  return {reshape(permute(read.output, {0, 2, 1, 3}), {q.size(0), q.size(2), width}), options.weights ? read.weights : Variable()};
}

Attended MultiHeadAttention::joined(Attended read) const {
  const std::string_view formula =
      out_proj.bias.defined() ? "y = [c of head 1; ..; c of head H] W_O + b_O" : "y = [c of head 1; ..; c of head H] W_O";
  return {trace("", formula, out_proj(read.context)), std::move(read.weights)};
}

Attended MultiHeadAttention::global_rows(const Variable& x, const Mask& mask, Want want, Along among) const {
  const Inside inside(global_path);
  const Index rows = std::min(global_tokens, x.size(1));
  const Variable q = positions.turned(queries((*query_global)(slice(x, 1, 0, rows))), 0),
                 k = positions.turned(keys((*key_global)(x), mask), 0);
  return heads_of(q, {.k = k, .v = values((*value_global)(x)), .along = among, .first = 0, .global = true}, mask.of_first_rows(rows), want);
}

// "k_j = x_j W_K + b_K, one a head, as γ ⊙ k_j/√(mean k_j² + ε), turned by its place"
std::string MultiHeadAttention::formula(std::string_view begins, std::string_view which, bool own) const {
  if (!Trace::current()) return {};
  const std::string bias = biased() ? fmt::format(" + b_{}", which) : "";
  return fmt::format("{} W_{}{}, one a {}{}{}{}", begins, which, bias, differential && which == "V" ? "pair of heads" : "head",
                     which == "V" ? "" : norm.formula(which == "Q"),
                     own && which != "V" && positions.turns() ? ", turned by its place" : "",
                     which == "V" ? "" : features ? features->formula(which == "Q", own) : linear_attention ? ", through elu(x) + 1" : "");
}

Memory MultiHeadAttention::prepare(const Variable& states, Mask mask) const {
  const Inside inside(path);
  const Index d = width;
  const Trace::Axes rows{.rows = Along::source, .heads = true};
  const auto shown = [&](const Variable& x, Index number) { return Trace::current() ? with_heads(x, number) : x; };
  const auto read = [&](const Variable& k, const Variable& v) {
    const Variable own_keys = trace("keys", formula("k_j = h_j", "K", false), shown(keys(k, mask), heads), rows);
    const Variable own_values = trace("values", formula("v_j = h_j", "V", false), shown(values(v), value_heads()), rows);
    return Memory{own_keys, own_values, mask, linear_attention && mask.only_lengths() ? linear_sums(own_keys, own_values) : Variable()};
  };
  if (k_proj) return read((*k_proj)(states), (*v_proj)(states));
  if (in_proj_weight.defined()) {
    const auto kv = split(linear(states, slice(in_proj_weight, 0, d, 3 * d), in_bias(1, 3)), 2, -1);   // [B, S, d] twice
    return read(kv[0], kv[1]);
  }
  return read(linear(states, k_proj_weight, in_bias(1, 2)), linear(states, v_proj_weight, in_bias(2, 3)));
}

Attended MultiHeadAttention::operator()(const Variable& query, const Memory& memory, Want want) const {
  const Inside inside(path);
  const auto read = [&](const Variable& q) {
    const Variable context = memory.sums.defined() ? linear_context(q, with_heads(memory.sums, heads), least()) : Variable();
    return attend(q, {.k = memory.keys, .v = memory.values, .along = Along::source, .context = context}, memory.mask, want);
  };
  if (q_proj) return read(queries((*q_proj)(query)));
  const Variable weight = in_proj_weight.defined() ? slice(in_proj_weight, 0, 0, width) : q_proj_weight.variable();
  return read(queries(linear(query, weight, in_bias(0, 1))));
}

List<Variable> MultiHeadAttention::projected(const Variable& x) const {
  check<Error>(!q_proj_weight.defined() && (!k_proj || k_proj->weight.shape()[1] == width),
               "multi-head attention: self-attention needs key_width = width: {}", width);
  if (q_proj) return {(*q_proj)(x), (*k_proj)(x), (*v_proj)(x)};
  return split(linear(x, in_proj_weight, in_proj_bias), 3, -1);
}

Attended MultiHeadAttention::self(const Variable& x, const Mask& mask, Want want, Along among) const {
  const Inside inside(path);
  const auto qkv = projected(x);
  const Variable q = positions.turned(queries(qkv[0]), 0), k = positions.turned(keys(qkv[1], mask), 0), v = values(qkv[2]);
  Variable context;
  if (linear_attention && mask.only_lengths()) context = linear_context(q, with_heads(linear_sums(k, v), heads), least());
  if (linear_attention && mask.only_causal()) context = causal_linear_context(q, with_heads(k, heads), with_heads(v, heads), least());
  Attended read = heads_of(q, {.k = k, .v = v, .along = among, .first = 0, .context = context}, mask, want);
  if (global_tokens > 0) {
    const Attended first = global_rows(x, mask, want, among);
    const Index rows = first.context.size(1);
    read.context = concat({first.context, slice(read.context, 1, rows)}, 1);
    if (read.weights.defined()) read.weights = concat({first.weights, slice(read.weights, 2, rows)}, 2);
  }
  return joined(std::move(read));
}

KeyValueCache MultiHeadAttention::cache(Index rows, Index capacity) const {
  const Index of_key = features ? features->number() : width / heads, of_value = width / value_heads();
  return {rows, {key_value_heads, of_key}, {key_value_heads * (width / heads) / of_value, of_value}, capacity,
          out_proj.weight.value().dtype(), linear_attention ? heads : 0, linear_attention || !fused(true)};
}

Attended MultiHeadAttention::next(const Variable& x, KeyValueCache& cache, Want want) const {
  const Inside inside(path);
  check<Error>(global_tokens == 0,
               "multi-head attention: next has no global tokens, of which each sees all positions: {}; self(x, mask) has them",
               global_tokens);
  check<Error>(!linear_attention || cache.sums().defined(),
               "linear attention: the cache keeps no sums; cache(rows, capacity) of this layer makes one that does");
  const Index before = cache.length();
  const auto qkv = projected(x);
  const Variable q = positions.turned(queries(qkv[0]), before), own_keys = positions.turned(keys(qkv[1], Mask::causal(before)), before),
                 own_values = values(qkv[2]);
  check<Error>(
      Trace::current() || !(own_keys.wants_gradient() || own_values.wants_gradient()),
      "multi-head attention: next keeps keys and values without their gradients: x {} under a tape; self(x, Mask::causal()) has them",
      x.shape());
  const Appending appending(cache);
  cache.append(own_keys.value(), own_values.value());
  const Variable context = linear_attention
                               ? constant(causal_linear_context_next(q.value(), with_heads(own_keys.value(), heads),
                                                                     with_heads(own_values.value(), heads), cache.sums(), least()))
                               : Variable();
  if (Trace::current()) {
    // The new positions' own keys and values go on with their graphs, those before are constants.
    const auto all_of = [&](const Tensor& cached, const Variable& own, Index number) {
      return with_heads(with_value(concat({constant(slice(cached, 2, 0, before)), own}, 2), cached), number);
    };
    const Trace::Axes rows{.rows = Along::target, .heads = true};
    const Variable k = trace("keys", formula("k_j = x_j", "K", true), all_of(cache.keys(), own_keys, heads), rows);
    const Variable v = trace("values", formula("v_j = x_j", "V", true), all_of(cache.values(), own_values, value_heads()), rows);
    return attend(q, {.k = k, .v = v, .along = Along::target, .first = before, .context = context}, Mask::causal(before), want);
  }
  return attend(
      q, {constant(cache.stored_keys()), constant(cache.stored_values()), Along::target, before, cache.places(), cache.turned(), context},
      Mask::causal(before), want);
}

}  // namespace heed
