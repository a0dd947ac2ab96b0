// SPDX-License-Identifier: Apache-2.0
// Decoding speed of Transformers with random weights, the sizes and lengths of ../shared/peers/ct2_decode.py: sources and results of 24
// words.   decode_bench [--threads N] [--seconds S] [case ...]
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "models/search.h"
#include "models/transformer.h"
#include "tensor/context.h"
#include "tensor/format.h"
#include "tensor/random.h"

using namespace heed;

namespace {

constexpr Index kLength = 24;

struct Case {
  const char* name;
  Index vocabulary, width, inner, layers;
};
constexpr Case kCases[] = {{"small", 4000, 256, 1024, 3}, {"base", 8000, 512, 2048, 6}, {"base32k", 32000, 512, 2048, 6}};

double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void run(const Case& c, double seconds) {
  Parameters parameters(Seed{0});
  const TranslationModel model(parameters.root(), {.source_vocabulary = c.vocabulary,
                                                   .target_vocabulary = c.vocabulary,
                                                   .core = {.width = c.width, .heads = 8, .feed_forward = c.inner, .encoder_layers = c.layers, .decoder_layers = c.layers}});
  Random random(Key(Seed{1}));
  std::vector<std::vector<std::int32_t>> sentences(64);
  for (auto& sentence : sentences)
    for (Index i = 0; i < kLength; ++i) sentence.push_back(4 + std::int32_t(random.uniform() * double(c.vocabulary - 4)));
  for (const Index batch : {32, 1})
    for (const Index beam : {1, 4}) {
      const std::span sources(sentences.data(), batch > 1 ? sentences.size() : 4);
      const SearchOptions options{.beam = beam, .max_length = kLength, .min_length = kLength + 1, .forbid_unk = true, .batch = batch};
      search(model, sources, options);
      std::vector<double> times;
      for (const double begin = seconds_now(); seconds_now() - begin < seconds / 4 || times.size() < 2;) {
        const double start = seconds_now();
        search(model, sources, options);
        times.push_back(seconds_now() - start);
      }
      std::sort(times.begin(), times.end());
      fmt::print("{:8} beam {} batch {:2}: {:9.0f} target tokens/s\n", c.name, beam, batch, double(Index(sources.size()) * kLength) / times[times.size() / 2]);
      std::fflush(stdout);
    }
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
