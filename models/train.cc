// SPDX-License-Identifier: Apache-2.0
#include "models/train.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "autograd/tape.h"
#include "nn/checkpoint.h"
#include "tensor/format.h"
#include "tensor/gemm_bfloat16.h"

namespace heed {
namespace {

template <class T> T number(const std::map<std::string, std::string>& scalars, const std::string& key) {
  const auto at = scalars.find(key);
  check<FileError>(at != scalars.end(), "trainer state: no entry {}", quote(key));
  T value{};
  const char* end = at->second.data() + at->second.size();
  const auto result = std::from_chars(at->second.data(), end, value);
  check<FileError>(result.ec == std::errc() && result.ptr == end, "trainer state: entry {} is no number: {}", quote(key),
                   quote(at->second));
  return value;
}

}  // namespace

Trainer::Trainer(const Seq2Seq& model, Parameters& parameters, Optimizer& optimizer, Schedule schedule, Options options)
    : model_(model), parameters_(parameters), optimizer_(optimizer), schedule_(schedule), options_(options) {
  check<Error>(options.clip >= 0 && std::isfinite(options.clip), "trainer: clip must be finite and not negative: {}", options.clip);
  check<Error>(options.average >= 0 && options.average < 1, "trainer: average must be in [0, 1): {}", options.average);
  check<Error>(options.guided_alignment >= 0 && std::isfinite(options.guided_alignment),
               "trainer: guided_alignment must be finite and not negative: {}", options.guided_alignment);
  check<Error>(options.coverage_loss >= 0 && std::isfinite(options.coverage_loss),
               "trainer: coverage_loss must be finite and not negative: {}", options.coverage_loss);
  const ProductPrecision usable(options.precision);
  if (options.average > 0) average_ = std::make_unique<WeightAverage>(parameters, options.average);
}

// Over the micro-batches of an update, and what they are divided by.
struct Trainer::Sums { double tokens, linked, loss = 0, alignment = 0, coverage = 0; };

Variable Trainer::loss(const Batch& batch, Sums& sums) {
  const bool guided = options_.guided_alignment > 0 && batch.linked_tokens > 0, covers = options_.coverage_loss > 0;
  List<AttentionMap> maps;
  Variable loss = model_.loss(batch, options_.loss, guided || covers ? &maps : nullptr).sum;
  sums.loss += loss.value().item();
  if (!guided && !covers) return loss;
  const AttentionMap* const last = last_cross_attention(maps);
  check<Error>(last, "trainer: guided_alignment, coverage_loss: the model looks at no source word");
  const AttentionMap& map = *last;
  if (guided) {
    const Variable alignment = alignment_loss(map, batch);
    sums.alignment += alignment.value().item();
    loss = loss + alignment * (options_.guided_alignment * sums.tokens / sums.linked);
  }
  if (covers) {
    const Variable coverage = coverage_loss(map, batch);
    sums.coverage += coverage.value().item();
    loss = loss + coverage * options_.coverage_loss;
  }
  return loss;
}

Trainer::Report Trainer::update(std::span<const Batch> micro_batches) {
  Report report;
  Index linked_tokens = 0;
  for (const Batch& batch : micro_batches) {
    linked_tokens += batch.linked_tokens;
    report.source_tokens += batch.source_tokens;
    report.target_tokens += target_tokens(batch);
  }
  Sums sums{.tokens = double(std::max<Index>(report.target_tokens, 1)), .linked = double(std::max<Index>(linked_tokens, 1))};
  const std::int64_t step = step_ + 1;
  report.learning_rate = schedule_.rate(step);
  try {
    const ProductPrecision use(options_.precision);
    for (std::size_t m = 0; m < micro_batches.size(); ++m) {
      Tape tape(Key(options_.seed, step, m));
      const Variable loss = this->loss(micro_batches[m], sums);
      tape.backward({&loss, 1}, std::array{full(loss.shape(), 1 / sums.tokens, loss.dtype())});
    }
    report.loss = sums.loss / sums.tokens;
    report.alignment_loss = sums.alignment / sums.linked;
    report.coverage_loss = sums.coverage / sums.tokens;
    report.gradient_norm = clip_gradient_norm(parameters_, options_.clip > 0 ? options_.clip : HUGE_VAL);
    if (!std::isfinite(report.loss) || !std::isfinite(report.gradient_norm)) {
      report.skipped = true;
      step_ = step;
      ++skipped_;
      parameters_.forget_gradients();
      return report;
    }
    if (average_) average_->reserve();                       // all memory is there before a weight changes
    optimizer_.set_learning_rate(report.learning_rate);
    optimizer_.step();
    parameters_.forget_gradients();                          // also those of parameters that the optimiser does not have
    step_ = step;
    if (average_) average_->update();
  } catch (const NumericError& e) {                          // of DetectAnomaly
    parameters_.forget_gradients();
    throw NumericError(fmt::format("update {}: {}", step, e.what()));
  } catch (...) {
    parameters_.forget_gradients();
    throw;
  }
  return report;
}

std::map<std::string, Tensor> Trainer::tensors() const {
  std::map<std::string, Tensor> out;
  for (auto& [name, value] : optimizer_.state()) out[std::string(kOptimizerPrefix) + name] = value;
  if (!average_) return out;
  const std::map<std::string, Tensor> averages = average_->state();
  for (const auto& [name, value] : averages) out[std::string(kAveragePrefix) + name] = value;
  for (const auto& [alias, path] : parameters_.aliases())        // as the weights of a model: tied ones by all their names
    if (averages.contains(path)) out[std::string(kAveragePrefix) + alias] = averages.at(path);
  return out;
}

std::map<std::string, std::string> Trainer::scalars() const {
  const Schedule::State& s = schedule_.state();
  return {{"step", fmt::format("{}", step_)},
          {"skipped", fmt::format("{}", skipped_)},
          {"schedule.best", fmt::format("{}", s.best)},
          {"schedule.waited", fmt::format("{}", s.waited)},
          {"schedule.falls", fmt::format("{}", s.falls)},
          {"schedule.seen", fmt::format("{}", int(s.seen))}};
}

void Trainer::restore(const std::map<std::string, Tensor>& tensors, const std::map<std::string, std::string>& scalars) {
  const std::map<std::string, Tensor> optimizer = under(tensors, kOptimizerPrefix), averages = under(tensors, kAveragePrefix);
  const Schedule::State schedule{.best = number<double>(scalars, "schedule.best"),
                                 .waited = number<int>(scalars, "schedule.waited"),
                                 .falls = number<int>(scalars, "schedule.falls"),
                                 .seen = number<int>(scalars, "schedule.seen") != 0};
  const auto step = number<std::int64_t>(scalars, "step"), skipped = number<std::int64_t>(scalars, "skipped");
  check<FileError>(skipped >= 0 && skipped <= step && schedule.waited >= 0 && schedule.falls >= 0 &&
                       std::max(schedule.waited, schedule.falls) <= 1 << 30,
                   "trainer state: step {}, skipped {}, schedule.waited {}, schedule.falls {}; none below 0, skipped at most step, the "
                   "schedule's at most 2^30",
                   step, skipped, schedule.waited, schedule.falls);
  check<Error>(!average_ || !average_->in_place(), "trainer: restore() while the averages are in place of the weights");
  auto average = average_ ? std::make_unique<WeightAverage>(parameters_, options_.average) : nullptr;
  if (average) average->load_state(averages, step - skipped);
  optimizer_.load_state(optimizer);
  schedule_.restore(schedule);
  step_ = step;
  skipped_ = skipped;
  average_ = std::move(average);
}

std::map<std::string, Tensor> mean_weights(std::span<const std::map<std::string, Tensor>> checkpoints) {
  check<Error>(!checkpoints.empty(), "mean_weights: no checkpoints");
  std::map<std::string, Tensor> out;
  for (const auto& [name, first] : checkpoints[0]) {
    std::vector<double> sum(std::size_t(first.numel()));
    for (const auto& checkpoint : checkpoints) {
      const auto at = checkpoint.find(name);
      check<FileError>(at != checkpoint.end() && checkpoint.size() == checkpoints[0].size(),
                       "mean_weights: the checkpoints have different keys: {}", name);
      check<ShapeError>(at->second.shape() == first.shape(), "mean_weights: {} differs in shape: {} and {}", name, first.shape(),
                        at->second.shape());
      const Tensor values = to(at->second, DType::f64).contiguous();
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values.span<double>()[i];
    }
    for (double& value : sum) value /= double(checkpoints.size());
    out[name] = to(tensor(sum, first.shape()), first.dtype());
  }
  return out;
}

}  // namespace heed
