// SPDX-License-Identifier: Apache-2.0
// Lesson 19: a language model, GPT-2's shape: decoder layers that look at nothing but the words before. It learns a rhyme and goes on
// from a beginning, each word once through the layers, for their keys and values are kept. It learns the words first, and only later
// that the second number is one less than the first. Radford et al. 2019
#include <iterator>
#include <map>
#include <sstream>

#include "autograd/tape.h"
#include "models/transformer.h"
#include "nn/init.h"
#include "nn/optimizer.h"
#include "tensor/format.h"
#include "tensor/ops/reduce.h"

using namespace heed;

constexpr Index kContext = 40;                                     // words that are seen at once

std::vector<std::string> rhyme() {
  const char* numbers[] = {"no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"};
  std::stringstream text;
  for (int n = 10; n > 0; --n)
    text << fmt::format(
        "{} green bottles hanging on the wall and if one green bottle should fall there will be {} green bottles on the wall ", numbers[n],
        numbers[n - 1]);
  return {std::istream_iterator<std::string>(text), {}};
}

struct LanguageModel {
  LanguageModel(Scope scope, Index vocabulary)
      : embedding(scope / "embedding", {.vocabulary = vocabulary, .width = 32, .init = normal_init(0, 0.02)}),
        positions(scope / "positions", {.kind = Positions::learned, .width = 32, .length = kContext}),
        decoder(scope / "decoder", {.width = 32, .heads = 4, .feed_forward = 128, .decoder_layers = 2, .dropout = 0,
                                    .activation = Activation::gelu_tanh, .norm = NormAt::before}, false) {}

  // Logits of the word after each one, [B, T, V]; the words' own vectors are the output's.
  Variable operator()(const Tensor& ids) const { return logits(decoder(embedding(ids) + positions.rows(0, ids.size(1)), {})); }
  // The same for one word a row, which stands after those in the caches.
  Variable next(const Tensor& ids, std::span<KeyValueCache> caches) const {
    return logits(decoder.next(embedding(ids) + positions.rows(caches[0].length(), 1), {}, caches));
  }
  std::vector<KeyValueCache> caches() const {
    std::vector<KeyValueCache> all;
    for (const TransformerDecoderLayer& layer : decoder.layers) all.push_back(layer.self_attn.cache(1, kContext));
    return all;
  }

  Embedding embedding;
  PositionTable positions;
  TransformerDecoder decoder;

 private:
  Variable logits(const Variable& x) const { return matmul(x, transpose(embedding.weight)); }
};

// The likeliest words after the first ones, each read from the caches of those before it.
std::string continued(const LanguageModel& model, std::vector<std::int32_t> said, const std::vector<std::string>& names) {
  const Tensor whole = model(tensor(said, {1, Index(said.size())})).value();
  std::vector<KeyValueCache> caches = model.caches();
  Tensor logits;
  for (const std::int32_t word : said) logits = model.next(full({1, 1}, word, DType::i32), caches).value();
  if (!equal_bits(logits(0, 0), whole(0, -1))) return "word by word other bits than all at once";
  while (Index(said.size()) < kContext - 12) {
    const Tensor next = argmax(logits(0), -1, true);
    said.push_back(std::int32_t(next.item()));
    logits = model.next(next, caches).value();
  }
  std::string text;
  for (const std::int32_t word : said) text += (text.empty() ? "" : " ") + names[std::size_t(word)];
  return text;
}

int main() {
  std::map<std::string, std::int32_t> numbers;
  std::vector<std::string> names;
  std::vector<std::int32_t> ids;
  for (const std::string& word : rhyme()) {
    const auto [known, fresh] = numbers.emplace(word, std::int32_t(names.size()));
    if (fresh) names.push_back(word);
    ids.push_back(known->second);
  }
  const Tensor text = tensor(ids, {Index(ids.size())}), pieces = empty({16, kContext + 1}, DType::i32);

  Parameters parameters(Seed{1});
  const LanguageModel model(parameters.root(), Index(names.size()));
  Adam adam(parameters, {.learning_rate = 3e-3});
  Random random{Key(Seed{1})};
  for (int step = 1; step <= 600; ++step) {
    for (const Tensor& piece : pieces) {
      const Index at = random.below(text.size(0) - kContext);
      copy_into(piece, text(Slice{at, at + kContext + 1}));
    }
    Tape tape;
    const Variable loss = cross_entropy(model(pieces(all, Slice{0, -1})), pieces(all, Slice{1}));   // at each word the next
    tape.backward(loss);
    adam.step();
    if (step != 1 && step != 300 && step != 600) continue;
    fmt::print("step {}, loss {:.2f} a word\n", step, loss.value().item());
    for (const char* number : {"three", "seven"})
      fmt::print("  {}\n", continued(model, {numbers[number], numbers["green"], numbers["bottles"], numbers["hanging"]}, names));
  }
}

/* Output:
step 1, loss 3.22 a word
  three green bottles hanging bottles bottles bottles wall on on wall wall on wall wall wall wall green wall wall wall wall wall wall wall wall wall wall
  seven green bottles hanging bottles bottles bottles wall on on wall wall on wall wall wall wall on wall wall wall wall wall wall wall wall wall wall
step 300, loss 0.19 a word
  three green bottles hanging on the wall and if one green bottle should fall there will be two green bottles on the wall two green bottles hanging on
  seven green bottles hanging on the wall and if one green bottle should fall there will be three green bottles on the wall two green bottles hanging on
step 600, loss 0.07 a word
  three green bottles hanging on the wall and if one green bottle should fall there will be two green bottles on the wall two green bottles hanging on
  seven green bottles hanging on the wall and if one green bottle should fall there will be six green bottles on the wall six green bottles hanging on
*/
