// SPDX-License-Identifier: Apache-2.0
// Whole training steps on random words: forward, label-smoothed cross-entropy, backward, clipping by norm, Adam; dropout 0.1 in
// Transformers. The cases are those of the peers' scripts, any size can be another one.
//   train_bench [--threads N] [--precision bfloat16] [--seconds S] [--width D] [--json] ... [case ...]
#include <CLI/CLI.hpp>
#include <array>
#include <memory>
#include <optional>

#include "models/recurrent.h"
#include "models/train.h"
#include "models/transformer.h"
#include "tensor/context.h"
#include "tensor/format.h"
#include "tensor/json.h"
#include "tensor/ops/random.h"
#include "tests/bench/measure.h"

using namespace heed;

namespace {

struct Case {
  const char* name;
  std::unique_ptr<Seq2Seq> (*make)(Scope scope, const Case& c);
  double (*flop)(const Case& c);   // forward
  Index vocabulary, width, heads, inner, layers, batch, source, target;
};

std::unique_ptr<Seq2Seq> transformer(Scope scope, const Case& c) {
  return std::make_unique<TranslationModel>(scope, TranslationModel::Options{
      .source_vocabulary = c.vocabulary,
      .target_vocabulary = c.vocabulary,
      .core = {.width = c.width, .heads = c.heads, .feed_forward = c.inner, .encoder_layers = c.layers, .decoder_layers = c.layers,
               .attention_dropout = 0.1, .activation_dropout = 0.1, .final_norm = FinalNorm::always}});
}

// With the peer's biases, cell, and one tanh layer as the readout.
std::unique_ptr<Seq2Seq> bahdanau(Scope scope, const Case& c) {
  return std::make_unique<RecurrentModel>(scope, RecurrentModel::Options{
      .source_vocabulary = c.vocabulary,
      .target_vocabulary = c.vocabulary,
      .encoder = {.unit = RecurrentUnit::gru_cudnn, .width = c.width, .layers = c.layers},
      .decoder = BahdanauDecoder::Options{.unit = RecurrentUnit::gru_cudnn,
                                          .width = c.width,
                                          .score = {.query_width = 0, .memory_width = 0, .bias = true},
                                          .readout = Readout::tanh,
                                          .start_bias = true}});
}

std::unique_ptr<Seq2Seq> luong(Scope scope, const Case& c) {
  return std::make_unique<RecurrentModel>(scope, RecurrentModel::Options{
      .source_vocabulary = c.vocabulary,
      .target_vocabulary = c.vocabulary,
      .encoder = {.unit = RecurrentUnit::lstm, .width = c.width, .layers = c.layers, .bidirectional = false},
      .decoder = LuongDecoder::Options{.width = c.width, .layers = c.layers, .input_feeding = true}});
}

// Operations of the matrix products, 2 a multiply-add: encoder + decoder + attention + logits.
double transformer_flop(const Case& c) {
  const double d = double(c.width), f = double(c.inner), L = double(c.layers), V = double(c.vocabulary), S = double(c.source),
               T = double(c.target);
  const double sources = double(c.batch) * S, targets = double(c.batch) * T;
  return L * sources * (8 * d * d + 4 * d * f) + L * (targets * (12 * d * d + 4 * d * f) + sources * 4 * d * d) +
         L * d * (4 * S * sources + 4 * (S + T) * targets) + 2 * d * V * targets;
}

// A GRU costs 6H(E + H) a word, an LSTM 8H(E + H); here E = H.
double bahdanau_flop(const Case& c) {
  const double H = double(c.width), V = double(c.vocabulary), S = double(c.source);
  const double source = 2 * 6 * H * (2 * H + (double(c.layers) - 1) * 3 * H) + 4 * H * H;                       // both directions, keys
  const double target = 6 * H * 4 * H + 2 * H * H + S * 6 * H + 8 * H * H + 2 * H * V;   // cell, query, score and context, readout, logits
  return double(c.batch) * (S * source + double(c.target) * target);
}

double luong_flop(const Case& c) {
  const double H = double(c.width), V = double(c.vocabulary), S = double(c.source), L = double(c.layers);
  const double source = L * 16 * H * H + 2 * H * H;
  // cells, input feeding, score and context, W_c, logits
  const double target = L * 16 * H * H + 8 * H * H + S * 4 * H + 4 * H * H + 2 * H * V;
  return double(c.batch) * (S * source + double(c.target) * target);
}

constexpr Case kCases[] = {{"tiny", transformer, transformer_flop, 64, 128, 4, 256, 2, 64, 12, 12},
                           {"small", transformer, transformer_flop, 4000, 256, 8, 1024, 3, 64, 16, 16},
                           {"base", transformer, transformer_flop, 8000, 512, 8, 2048, 6, 32, 24, 24},
                           {"bahdanau", bahdanau, bahdanau_flop, 4000, 256, 0, 0, 1, 64, 16, 16},
                           {"luong", luong, luong_flop, 4000, 256, 0, 0, 2, 64, 16, 16}};

struct Options {
  double seconds = 5, since = 0;
  int steps = 0, where = 0;
  std::string precision = "float32";
  bool json = false;
};

Tensor random_ids(Key key, Index rows, Index length, Index vocabulary) {
  return to(randint(key, {rows, length}, 1, vocabulary), DType::i32);
}

void run(const Case& c, const Options& options) {
  const double start = bench::seconds_now();
  Parameters parameters(Seed{0});
  const std::unique_ptr<Seq2Seq> model = c.make(parameters.root(), c);
  Adam adam(parameters, {.learning_rate = 1e-4, .beta1 = 0.9, .beta2 = 0.98, .eps = 1e-9});
  Trainer trainer(*model, parameters, adam, Schedule({.peak = 1e-4}),
                  {.loss = {.label_smoothing = 0.1}, .clip = 1, .precision = precision_named(options.precision)});
  const Tensor target = random_ids(Key(Seed{2}), c.batch, c.target + 1, c.vocabulary);
  const Batch batch{.source = {random_ids(Key(Seed{1}), c.batch, c.source, c.vocabulary), full({c.batch}, double(c.source), DType::i32)},
                    .inputs = target(all, Slice{0, c.target}).contiguous(),
                    .targets = target(all, Slice{1, c.target + 1}).contiguous(),
                    .lengths = full({c.batch}, double(c.target), DType::i32),
                    .source_tokens = c.batch * c.source,
                    .target_tokens = c.batch * c.target};
  trainer.update({&batch, 1});
  const double first = bench::seconds_now();
  const double kernel = bench::kernel_seconds() / double(threads());
  for (int i = 0; i < 2; ++i) trainer.update({&batch, 1});

  std::vector<double> times, processor, mallocs, mmaps, faults;
  for (auto* list : {&times, &processor, &mallocs, &mmaps, &faults}) list->reserve(std::size_t(std::max(options.steps, 1 << 16)));
  const double begin = bench::seconds_now();
  while (options.steps ? times.size() < std::size_t(options.steps) : times.size() < 5 || bench::seconds_now() - begin < options.seconds) {
    const double processor_before = bench::processor_seconds();
    const bench::Calls before = bench::calls();
    if (times.empty()) bench::show_mallocs(options.where);
    const double step = bench::seconds_now();
    trainer.update({&batch, 1});
    times.push_back(bench::seconds_now() - step);
    bench::show_mallocs(0);
    const bench::Calls after = bench::calls();
    processor.push_back(bench::processor_seconds() - processor_before);
    mallocs.push_back(double(after.mallocs - before.mallocs));
    mmaps.push_back(double(after.mmaps - before.mmaps));
    faults.push_back(double(after.faults - before.faults));
  }

  const double seconds = bench::median(times), tokens = double(c.batch * (c.source + c.target)) / seconds;
  const double peak = bench::peak_memory();
  if (options.json) {
    fmt::print("{}\n", json_text({{"case", c.name},
                                  {"precision", options.precision},
                                  {"parameters", parameters.count()},
                                  {"steps", times.size()},
                                  {"step_seconds", seconds},
                                  {"tokens_a_second", tokens},
                                  {"flop_a_step", 3 * c.flop(c)},
                                  {"processor_seconds", bench::median(processor)},
                                  {"first_step_seconds", first - (options.since > 0 ? options.since : start)},
                                  {"first_step_kernel_seconds", kernel},
                                  {"peak_mib", peak},
                                  {"mallocs_a_step", bench::median(mallocs)},
                                  {"mmaps_a_step", bench::median(mmaps)},
                                  {"faults_a_step", bench::median(faults)}}));
  } else {
    fmt::print(
        "{:<10} params {:6.2f}M step {:8.2f} ms  tokens/s {:10.0f}  peak RSS {:6.0f} MiB  first step {:.3f} s  a step: mallocs {} mmaps {} "
        "faults {} processor {:.2f} ms\n",
        c.name, double(parameters.count()) / 1e6, seconds * 1e3, tokens, peak, first - start, bench::median(mallocs), bench::median(mmaps),
        bench::median(faults), bench::median(processor) * 1e3);
  }
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Time of whole training steps.");
  Options options;
  std::vector<std::string> names;
  std::optional<int> count;
  app.add_option("case", names, "tiny small base bahdanau luong; all if none is named")
      ->check(CLI::IsMember({"tiny", "small", "base", "bahdanau", "luong"}));
  app.add_option("--threads", count)->check(CLI::Range(1, 1024));
  app.add_option("--precision", options.precision, "float32 or bfloat16")->check(CLI::IsMember({"float32", "bfloat16"}));
  app.add_option("--seconds", options.seconds, "at least 5 steps")->check(CLI::NonNegativeNumber);
  app.add_option("--steps", options.steps, "so many instead")->check(CLI::PositiveNumber);
  app.add_option("--since", options.since, "the steady clock when the process was asked for");
  app.add_option("--where", options.where, "backtraces of so many mallocs of a steady step");
  app.add_flag("--json", options.json, "a line of JSON a case");
  const std::array<std::pair<const char*, Index Case::*>, 8> sizes{{{"--vocabulary", &Case::vocabulary},
                                                                    {"--width", &Case::width},
                                                                    {"--heads", &Case::heads},
                                                                    {"--feed-forward", &Case::inner},
                                                                    {"--layers", &Case::layers},
                                                                    {"--batch", &Case::batch},
                                                                    {"--source", &Case::source},
                                                                    {"--target", &Case::target}}};
  std::array<std::optional<Index>, 8> given;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    app.add_option(sizes[i].first, given[i], "instead of the case's own")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);

  try {
    if (count) set_threads(*count);
    if (!options.json) fmt::print("heed {}\n", describe_context());
    for (Case c : kCases) {
      if (!names.empty() && std::find(names.begin(), names.end(), c.name) == names.end()) continue;
      for (std::size_t i = 0; i < sizes.size(); ++i)
        if (given[i]) c.*sizes[i].second = *given[i];
      run(c, options);
    }
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
