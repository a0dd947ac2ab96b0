// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/attention.h"

#include <cmath>

#include "autograd/ops.h"
#include "autograd/ops/gradients.h"
#include "autograd/ops/samples.h"
#include "autograd/record.h"
#include "tensor/format.h"

namespace heed {

AttentionVariable scaled_dot_product_attention(const Variable& q, const Variable& k, const Variable& v, const Mask& mask,
                                               AttentionOptions options, const Variable& bias) {
  const std::optional<Key> key = dropout_key(options.dropout);
  if (key) options.key = *key;
  else options.dropout = 0;
  AttentionOutput out = scaled_dot_product_attention(q.value(), k.value(), v.value(), mask, options, bias.value());
  const auto rule = [&] {
    return [slots = std::array{q.slot(), k.slot(), v.slot(), bias.slot()}, q = saved(q), k = saved(k), v = saved(v), mask = saved(mask),
            options, bias = saved(bias), output = saved(out.output),
            log_sum_exp = saved(out.log_sum_exp)](const Tensor& doutput, const Tensor& dweights) {
      gradients(slots, [&](const auto& d) {
        scaled_dot_product_attention_grad(q, k, v, mask, options, {output, log_sum_exp, {}}, doutput, dweights, d[0], d[1], d[2], bias,
                                          d[3]);
      });
    };
  };
  const char* op = "scaled_dot_product_attention";
  if (!options.weights)
    return {record(op, out.output, {q, k, v, bias}, [&] { return [rule = rule()](const Tensor& doutput) { rule(doutput, {}); }; }), {}};
  auto [output, weights] = record(op, std::array{out.output, out.weights}, {q, k, v, bias},
                                  [&] { return [rule = rule()](const std::array<Tensor, 2>& d) { rule(d[0], d[1]); }; });
  return {std::move(output), std::move(weights)};
}

Variable with_heads(const Variable& x, Index heads) {
  if (x.rank() == 4 && x.size(1) == heads) return x;
  return record("with_heads", with_heads(x.value(), heads), {x},
                [dx = x.slot()](const Tensor& dy) { dx.gradient([&](Into out) { with_heads_grad(dy, out); }); });
}

AttentionVariable scaled_dot_product_attention_by_definition(const Variable& q, const Variable& k, const Variable& v, const Mask& mask,
                                                            AttentionOptions options, const Variable& bias) {
  check<Error>(!options.places.defined() && options.turned == 0,
               "scaled_dot_product_attention_by_definition: there is no gradient where keys and values are read by places or stand turned; "
               "gather_places and keys_in_rows first");
  const double scale = options.scale != 0 ? options.scale : 1 / std::sqrt(double(std::max<Index>(q.size(-1), 1)));
  const Variable z = matmul(q * scale, transpose(with_heads(k, q.size(1))));
  const Variable p = softmax(bias.defined() ? z + bias : z, -1, allowed_by(mask, bias.value()));       // [B, H, T, S]
  const std::optional<Key> key = dropout_key(options.dropout);
  const Variable kept = key ? p * constant(attention_dropout(p.shape(), p.dtype(), options.dropout, *key)) : p;
  return {matmul(kept, with_heads(v, q.size(1))), options.weights ? p : Variable()};
}

// ---- samples -----------------------------------------------------------------------------------------------------------------------

void attention_samples(SampleTable& table) {
  constexpr Index N = Sample::kAny;
  const SampleTable::Inputs heads{{{2, 2, 3, 4}}, {{2, 2, N, 4}}, {{2, 2, N, 5}}};
  table.both("scaled_dot_product_attention", [](auto x) { return scaled_dot_product_attention(x[0], x[1], x[2]).output; }, heads);
  table.both("scaled_dot_product_attention masked", [](auto x) {
    const Mask mask = Mask::causal(1) & Mask::lengths(tensor({2, 5}, DType::i32));
    return scaled_dot_product_attention(x[0], x[1], x[2], mask).output;
  }, heads);
  table.both("scaled_dot_product_attention sliding", [](auto x) {
    const Mask mask = Mask::sliding({.left = 1, .right = 1, .offset = 2, .dilation = tensor({1, 2}, DType::i32),
                                     .global = 1}) & Mask::lengths(tensor({2, 5}, DType::i32));
    return scaled_dot_product_attention(x[0], x[1], x[2], mask).output;
  }, heads);
  table.both("scaled_dot_product_attention bias", [](auto x) {
    return scaled_dot_product_attention(x[0], x[1], x[2], Mask::causal(1), {.scale = 0.7}, x[3]).output;
  }, {heads[0], heads[1], heads[2], {{2, 1, 3, N}}});
  table.both("scaled_dot_product_attention groups",
             [](auto x) { return scaled_dot_product_attention(x[0], x[1], x[2], Mask::causal(1)).output; },
             {{{2, 4, 3, 4}}, {{2, 2, N, 4}}, {{2, 2, N, 5}}});
  table.both("with_heads", [](auto x) { return with_heads(x[0], 6); }, {{{2, 3, 2, N}}});
  table.both("scaled_dot_product_attention weights", [](auto x) {
    return scaled_dot_product_attention(x[0], x[1], x[1], Mask::causal(1), {.weights = true}).weights;
  }, {heads[0], heads[1]});
}

}  // namespace heed
