// SPDX-License-Identifier: Apache-2.0
// Search by Transformers with random weights: sources and results of 24 words, the sizes of the peer's script.
//   decode_bench [--threads N] [--seconds S] [--beam K ...] [--batch B ...] [--precision NAME] [--json] [case ...]
#include <CLI/CLI.hpp>
#include <optional>

#include "models/search.h"
#include "models/transformer.h"
#include "tensor/context.h"
#include "tensor/format.h"
#include "tensor/json.h"
#include "tensor/packed.h"
#include "tests/bench/measure.h"

using namespace heed;

namespace {

struct Case {
  const char* name;
  Index vocabulary, width, inner, layers;
};
constexpr Case kCases[] = {{"small", 4000, 256, 1024, 3}, {"base", 8000, 512, 2048, 6}, {"base32k", 32000, 512, 2048, 6}};

struct Options {
  std::vector<Index> beams{1, 4}, batches{32, 1};
  Index length = 24, sentences = 0;
  double seconds = 5;
  std::string precision = "float32";
  bool json = false;
};

void run(const Case& c, const Options& options) {
  Parameters parameters(Seed{0});
  const TranslationModel model(parameters.root(), {.source_vocabulary = c.vocabulary,
                                                   .target_vocabulary = c.vocabulary,
                                                   .core = {.width = c.width,
                                                            .heads = 8,
                                                            .feed_forward = c.inner,
                                                            .encoder_layers = c.layers,
                                                            .decoder_layers = c.layers}});
  Random random(Key(Seed{1}));
  std::vector<std::vector<std::int32_t>> sentences(
      std::size_t(std::max({Index{64}, options.sentences, *std::max_element(options.batches.begin(), options.batches.end())})));
  for (auto& sentence : sentences)
    for (Index i = 0; i < options.length; ++i) sentence.push_back(4 + std::int32_t(random.uniform() * double(c.vocabulary - 4)));
  // Weights that one step of the decoder reads; keys and values of the source are there already.
  const double weights = double(c.layers * (6 * c.width * c.width + 2 * c.width * c.inner) + c.width * c.vocabulary);
  for (const Index batch : options.batches)
    for (const Index beam : options.beams) {
      const std::span sources(sentences.data(), options.sentences ? std::size_t(options.sentences) : batch > 1 ? sentences.size() : 4);
      const SearchOptions how{.beam = beam, .max_length = options.length, .min_length = options.length, .forbid_unk = true, .batch = batch};
      PackedWeights packed(precision_named(options.precision));
      const PackedWeights::Use use(packed);
      search(model, sources, how);
      std::vector<double> times;
      for (const double begin = bench::seconds_now(); bench::seconds_now() - begin < options.seconds || times.size() < 2;) {
        const double start = bench::seconds_now();
        search(model, sources, how);
        times.push_back(bench::seconds_now() - start);
      }
      // Encoder, keys and values of its words for the decoder, and for each hypothesis a step of the decoder with attention and logits.
      const double d = double(c.width), f = double(c.inner), L = double(c.layers), n = double(options.length);
      const double flop = L * (8 * d * d + 4 * d * f + 4 * d * n) + L * 4 * d * d + double(beam) * (2 * weights + L * 4 * d * 1.5 * n);
      const double tokens = double(Index(sources.size()) * options.length) / bench::median(times);
      if (options.json) {
        fmt::print("{}\n", json_text({{"case", c.name}, {"precision", options.precision}, {"beam", beam}, {"batch", batch},
                                      {"length", options.length}, {"tokens_a_second", tokens}, {"flop_a_token", flop},
                                      {"weights", weights}, {"peak_mib", bench::peak_memory()}}));
      } else {
        fmt::print("{:8} beam {} batch {:2}: {:9.0f} target tokens/s\n", c.name, beam, batch, tokens);
      }
      std::fflush(stdout);
    }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Speed of search.");
  Options options;
  std::vector<std::string> names;
  std::optional<int> count;
  app.add_option("case", names, "small base base32k; all if none is named")->check(CLI::IsMember({"small", "base", "base32k"}));
  app.add_option("--threads", count)->check(CLI::Range(1, 1024));
  app.add_option("--seconds", options.seconds, "each; at least 2 times")->check(CLI::NonNegativeNumber);
  app.add_option("--beam", options.beams)->delimiter(',')->check(CLI::PositiveNumber);
  app.add_option("--batch", options.batches)->delimiter(',')->check(CLI::PositiveNumber);
  app.add_option("--sentences", options.sentences, "instead of 64 and more, of 4 in batches of 1")->check(CLI::PositiveNumber);
  app.add_option("--length", options.length, "words of a source and of its translation")->check(CLI::Range(1, 1000));
  app.add_option("--precision", options.precision, "of the weights")->check(CLI::IsMember({"float32", "bfloat16", "int8"}));
  app.add_flag("--json", options.json, "a line of JSON each");
  CLI11_PARSE(app, argc, argv);

  try {
    if (count) set_threads(*count);
    if (!options.json) fmt::print("heed {}\n", describe_context());
    for (const Case& c : kCases)
      if (names.empty() || std::find(names.begin(), names.end(), c.name) != names.end()) run(c, options);
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
