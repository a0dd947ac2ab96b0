// SPDX-License-Identifier: Apache-2.0
// Training throughput on the models of ../shared/peers/torch_train.py: one full step is forward, label-smoothed cross-entropy,
// backward, clipping by norm, Adam.   train_bench [--threads N] [--seconds S] [case ...]
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "models/recurrent.h"
#include "models/train.h"
#include "models/transformer.h"
#include "tensor/context.h"
#include "tensor/format.h"
#include "tensor/ops/random.h"

using namespace heed;

namespace {

struct Case {
  const char* name;
  std::unique_ptr<Seq2Seq> (*make)(Scope scope, const Case& c);
  Index vocabulary, width, heads, inner, layers, batch, source, target;
};

std::unique_ptr<Seq2Seq> transformer(Scope scope, const Case& c) {
  return std::make_unique<TranslationModel>(scope, TranslationModel::Options{.source_vocabulary = c.vocabulary,
                                                                             .target_vocabulary = c.vocabulary,
                                                                             .core = {.width = c.width, .heads = c.heads, .feed_forward = c.inner, .encoder_layers = c.layers, .decoder_layers = c.layers,
                                                                                      .attention_dropout = 0.1, .activation_dropout = 0.1, .final_norm = FinalNorm::always}});
}

// With the peer's biases, cell, and one tanh layer as the readout.
std::unique_ptr<Seq2Seq> bahdanau(Scope scope, const Case& c) {
  return std::make_unique<RecurrentModel>(scope, RecurrentModel::Options{
      .source_vocabulary = c.vocabulary,
      .target_vocabulary = c.vocabulary,
      .encoder = {.unit = RecurrentUnit::gru_cudnn, .width = c.width},
      .decoder = BahdanauDecoder::Options{.unit = RecurrentUnit::gru_cudnn, .width = c.width, .score = {.query_width = 0, .memory_width = 0, .bias = true}, .readout = Readout::tanh, .start_bias = true}});
}

std::unique_ptr<Seq2Seq> luong(Scope scope, const Case& c) {
  return std::make_unique<RecurrentModel>(scope, RecurrentModel::Options{
      .source_vocabulary = c.vocabulary,
      .target_vocabulary = c.vocabulary,
      .encoder = {.unit = RecurrentUnit::lstm, .width = c.width, .layers = c.layers, .bidirectional = false},
      .decoder = LuongDecoder::Options{.width = c.width, .layers = c.layers, .input_feeding = true}});
}

constexpr Case kCases[] = {{"tiny", transformer, 64, 128, 4, 256, 2, 64, 12, 12},
                           {"small", transformer, 4000, 256, 8, 1024, 3, 64, 16, 16},
                           {"base", transformer, 8000, 512, 8, 2048, 6, 32, 24, 24},
                           {"bahdanau", bahdanau, 4000, 256, 0, 0, 1, 64, 16, 16},
                           {"luong", luong, 4000, 256, 0, 0, 2, 64, 16, 16}};

Tensor random_ids(Key key, Index rows, Index length, Index vocabulary) { return to(randint(key, {rows, length}, 1, vocabulary), DType::i32); }

double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

rusage used() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage;
}
long page_faults() { return used().ru_minflt; }
double processor_seconds() {
  const rusage usage = used();
  return double(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) + 1e-6 * double(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

void run(const Case& c, double seconds) {
  const double start = seconds_now();
  Parameters parameters(Seed{0});
  const std::unique_ptr<Seq2Seq> model = c.make(parameters.root(), c);
  Adam adam(parameters, {.learning_rate = 1e-4, .beta1 = 0.9, .beta2 = 0.98, .eps = 1e-9});
  Trainer trainer(*model, parameters, adam, Schedule({.peak = 1e-4}), {.loss = {.label_smoothing = 0.1}, .clip = 1});
  const Tensor target = random_ids(Key(Seed{2}), c.batch, c.target + 1, c.vocabulary);
  const Batch batch{.source = {random_ids(Key(Seed{1}), c.batch, c.source, c.vocabulary), full({c.batch}, double(c.source), DType::i32)},
                    .inputs = target(all, Slice{0, c.target}).contiguous(),
                    .targets = target(all, Slice{1, c.target + 1}).contiguous(),
                    .lengths = full({c.batch}, double(c.target), DType::i32),
                    .source_tokens = c.batch * c.source,
                    .target_tokens = c.batch * c.target};
  trainer.update({&batch, 1});
  const double first = seconds_now() - start;
  for (int i = 0; i < 2; ++i) trainer.update({&batch, 1});
  std::vector<double> times, processor;
  std::vector<long> faults;
  for (const double begin = seconds_now(); seconds_now() - begin < seconds || times.size() < 5;) {
    const double before = seconds_now();
    const double processor_before = processor_seconds();
    const long faults_before = page_faults();
    trainer.update({&batch, 1});
    times.push_back(seconds_now() - before);
    processor.push_back(processor_seconds() - processor_before);
    faults.push_back(page_faults() - faults_before);
  }
  std::sort(times.begin(), times.end());
  std::sort(faults.begin(), faults.end());
  std::sort(processor.begin(), processor.end());
  const double median = times[times.size() / 2];
  fmt::print("{:<10} params {:6.2f}M step {:8.2f} ms  tokens/s {:10.0f}  peak RSS {:6.0f} MiB  first step {:.3f} s  faults a step {}  processor ms a step {:.2f} (least {:.2f})\n", c.name,
             double(parameters.count()) / 1e6, median * 1e3, double(c.batch * (c.source + c.target)) / median, double(used().ru_maxrss) / 1024, first, faults[faults.size() / 2], processor[processor.size() / 2] * 1e3, processor[0] * 1e3);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 5;
  std::vector<const char*> names;
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--threads") && i + 1 < argc) set_threads(std::atoi(argv[++i]));
    else if (!std::strcmp(argv[i], "--seconds") && i + 1 < argc) seconds = std::atof(argv[++i]);
    else names.push_back(argv[i]);
  }
  fmt::print("heed {}\n", describe_context());
  for (const Case& c : kCases)
    if (names.empty() || std::any_of(names.begin(), names.end(), [&](const char* name) { return !std::strcmp(name, c.name); })) run(c, seconds);
}
