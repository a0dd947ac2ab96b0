// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/cross_entropy.h"

#include <cmath>

#include "autograd/ops.h"
#include "autograd/ops/samples.h"
#include "autograd/record.h"
#include "tensor/ops/view.h"

namespace heed {

Variable cross_entropy(const Variable& logits, const Tensor& targets, const CrossEntropyOptions& options, Reduction reduction) {
  CrossEntropy out = cross_entropy(logits.value(), targets, options);
  const bool empty = reduction == Reduction::mean && out.count == 0;
  const double divisor = reduction == Reduction::mean && !empty ? out.weight : 1;
  Tensor y = out.losses;
  if (reduction != Reduction::none) {
    const bool nan = empty && options.empty == CrossEntropyOptions::Empty::nan;
    y = full({}, nan ? std::nan("") : out.total / divisor, logits.dtype());
  }
  return record("cross_entropy", y, {logits},
                [dx = logits.slot(), logits = saved(logits), targets = saved(targets), max = saved(out.log_sum_exp.max),
                 log_sum = saved(out.log_sum_exp.log_sum), weight = saved(options.weight), options, reduction, divisor](const Tensor& dy) {
                  weight.get();
                  const Tensor dlosses = reduction == Reduction::none ? dy : full(targets->shape(), dy.item() / divisor, dy.dtype());
                  dx.gradient([&](Into dlogits) { cross_entropy_grad(logits, targets, {max, log_sum}, dlosses, options, dlogits); });
                });
}

namespace {

// log_share, other, rest: undefined without a mixture
Variable fused(const char* op, const Variable& x, const Variable& weight, const Variable& bias, const Tensor& targets,
               const CrossEntropyOptions& options, const Variable& log_share, const Variable& other, const Variable& rest) {
  LinearCrossEntropyWants wants;
  if (Tape::current()) wants = {x.wants_gradient(), weight.wants_gradient(), bias.wants_gradient()};
  const LinearCrossEntropy out = linear_cross_entropy(x.value(), weight.value(), bias.value(), targets, options, wants,
                                                      {log_share.value(), other.value(), rest.value()});
  return record(op, full({}, out.total, x.dtype()), {x, weight, bias, log_share, other, rest},
                [to_x = x.slot(), to_weight = weight.slot(), to_bias = bias.slot(), to_share = log_share.slot(), to_other = other.slot(),
                 to_rest = rest.slot(), dx = out.dx, dweight = out.dweight, dbias = out.dbias, dshare = out.dlog_share, dother = out.dother,
                 drest = out.drest](const Tensor& dy) {
                  to_x.adopt(dx, dy.item());
                  to_weight.adopt(dweight, dy.item());
                  to_bias.adopt(dbias, dy.item());
                  to_share.adopt(dshare, dy.item());
                  to_other.adopt(dother, dy.item());
                  to_rest.adopt(drest, dy.item());
                });
}

}  // namespace

Variable linear_cross_entropy(const Variable& x, const Variable& weight, const Variable& bias, const Tensor& targets,
                              const CrossEntropyOptions& options) {
  return fused("linear_cross_entropy", x, weight, bias, targets, options, {}, {}, {});
}

Variable linear_cross_entropy_by_definition(const Variable& x, const Variable& weight, const Variable& bias, const Tensor& targets,
                                            const CrossEntropyOptions& options) {
  const Variable z = matmul(x, transpose(weight));                              // [N, V]
  return cross_entropy(bias.defined() ? z + bias : z, targets, options, Reduction::sum);
}

Variable linear_mixture_cross_entropy(const Variable& x, const Variable& weight, const Variable& bias, const Variable& log_share,
                                      const Variable& other, const Tensor& targets, const CrossEntropyOptions& options,
                                      const Variable& rest) {
  return fused("linear_mixture_cross_entropy", x, weight, bias, targets, options, log_share, other, rest);
}

Variable linear_mixture_cross_entropy_by_definition(const Variable& x, const Variable& weight, const Variable& bias,
                                                    const Variable& log_share, const Variable& other, const Tensor& targets,
                                                    const CrossEntropyOptions& options, const Variable& rest) {
  const Variable product = matmul(x, transpose(weight)), z = bias.defined() ? product + bias : product;        // [N, V]
  if (rest.defined()) {
    // log(p / (1 - p)) of the words' share p
    const Variable odds = logsumexp(z, -1) - rest;
    return linear_mixture_cross_entropy_by_definition(x, weight, bias, log_share + logsigmoid(odds), other * sigmoid(-odds), targets,
                                                      options);
  }
  CrossEntropyOptions plain = options;
  plain.label_smoothing = 0, plain.subtract_entropy = false, plain.weight = {};
  // [N]
  const Variable smoothed = cross_entropy(z, targets, options, Reduction::none),
                 surprise = cross_entropy(z, targets, plain, Reduction::none);
  const bool without_pad =
      options.pad >= 0 && (options.smoothing == Smoothing::uniform ? !options.smooth_pad : options.smoothing == Smoothing::others_not_pad);
  const double more = double(weight.size(0)) - 1 - without_pad;            // labels beside the row's own
  const double e = more > 0 ? options.label_smoothing : 0;
  const double others = options.smoothing == Smoothing::uniform || e == 0 ? 0 : e / more;
  Tensor part = full(targets.shape(), 1 - e - others, x.dtype());                                             // of the label's own loss
  for (Index i = 0; i < targets.numel(); ++i) {
    const Tensor one = reshape(part, {-1})[i];
    const Index label = Index(reshape(targets, {-1})[i].item());
    if (label == options.ignore_index || label == options.pad) fill_(one, 0);
    else if (options.weight.defined()) fill_(one, one.item() * options.weight[label].item());
  }
  return sum(smoothed + constant(part) * (-log(exp(log_share - surprise) + other) - surprise));
}

// ---- samples -----------------------------------------------------------------------------------------------------------------------

void cross_entropy_samples(SampleTable& table) {
  constexpr Index N = Sample::kAny;
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
  table.add("cross_entropy", [=](SampleTable::Variables x) { return cross_entropy(x[0], targets(x[0]), smooth, Reduction::none); },
                   [=](SampleTable::Tensors x) { return cross_entropy(x[0], targets(x[0]), smooth).losses; }, {{{2, 3, N}}});
  table.add("cross_entropy mean", [=](SampleTable::Variables x) { return cross_entropy(x[0], targets(x[0])); }, {}, {{{2, 3, N}}});
  const Tensor labels = tensor({0, 4, 2}, DType::i64);
  table.add(
      "linear_cross_entropy", [=](SampleTable::Variables x) { return linear_cross_entropy(x[0], x[1], x[2], labels); },
      [=](SampleTable::Tensors x) { return full({}, linear_cross_entropy(x[0], x[1], x[2], labels).total, x[0].dtype()); },
      {{{3, N}}, {{5, N}}, {{5}}});
  table.add(
      "linear_mixture_cross_entropy",
      [=](SampleTable::Variables x) { return linear_mixture_cross_entropy(x[0], x[1], x[2], x[3], x[4], labels); },
      [=](SampleTable::Tensors x) {
        return full({}, linear_cross_entropy(x[0], x[1], x[2], labels, {}, {}, {x[3], x[4]}).total, x[0].dtype());
      },
      {{{3, N}}, {{5, N}}, {{5}}, {{3}}, {{3}, 0.1, 0.9}});
  table.add(
      "linear_mixture_cross_entropy rest",
      [=](SampleTable::Variables x) { return linear_mixture_cross_entropy(x[0], x[1], x[2], x[3], x[4], labels, {}, x[5]); },
      [=](SampleTable::Tensors x) {
        return full({}, linear_cross_entropy(x[0], x[1], x[2], labels, {}, {}, {x[3], x[4], x[5]}).total, x[0].dtype());
      },
      {{{3, N}}, {{5, N}}, {{5}}, {{3}}, {{3}, 0.1, 0.9}, {{3}}});
}

}  // namespace heed
