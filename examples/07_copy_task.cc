// SPDX-License-Identifier: Apache-2.0
// Lesson 7: a Transformer learns to copy. Source: random letters; target: the same letters. Lesson 22 opens its layers.
#include "models/batch.h"
#include "models/search.h"
#include "models/train.h"
#include "models/transformer.h"
#include "tensor/format.h"

using namespace heed;

// Ids as models/vocabulary.h has them: 0 <pad>, 1 <unk>, 2 <s>, 3 </s>, then words.
constexpr std::int32_t kPad = 0, kStart = 2, kEnd = 3, kFirstLetter = 4, kLetters = 8;
using Ids = std::vector<std::int32_t>;

Ids letters(Random& random) {
  Ids out(std::size_t(random.below(6) + 1));
  for (std::int32_t& letter : out) letter = kFirstLetter + std::int32_t(random.below(kLetters));
  return out;
}

Batch batch(Random& random, std::size_t size) {
  std::vector<Example> pairs(size);
  for (Example& pair : pairs) {
    pair.source = letters(random);
    pair.source.push_back(kEnd);
    pair.target = pair.source;
  }
  return make_batch(pairs, kPad, kStart);
}

std::string spelled(const Ids& ids) {
  std::string text;
  for (std::int32_t id : ids) text += id == kEnd ? '.' : char('a' + id - kFirstLetter);
  return text;
}

int main() {
  Parameters parameters(Seed{1});
  const TransformerOptions small{.width = 32, .heads = 4, .feed_forward = 64, .encoder_layers = 1, .decoder_layers = 1, .dropout = 0};
  const TranslationModel model(parameters.root(), {.source_vocabulary = 12, .target_vocabulary = 12, .core = small});
  Adam adam(parameters, {.beta1 = 0.9, .beta2 = 0.98, .eps = 1e-9});
  Trainer trainer(model, parameters, adam, Schedule({.kind = Schedule::Kind::inverse_sqrt, .peak = 3e-3, .warmup = 50}),
                  {.loss = {.pad = kPad}});

  Random random{Key(Seed{1})};
  for (int step = 1; step <= 300; ++step) {
    const Batch one = batch(random, 32);
    const auto report = trainer.update({&one, 1});
    if (step % 100 == 0) fmt::print("step {}  loss {:.2f}\n", step, report.loss);
  }

  std::vector<Ids> sources;
  for (int i = 0; i < 4; ++i) {
    sources.push_back(letters(random));
    sources.back().push_back(kEnd);
  }
  const auto answers = search(model, sources, {.pad = kPad, .start = kStart, .eos = kEnd});
  for (std::size_t i = 0; i < sources.size(); ++i) fmt::print("{} -> {}\n", spelled(sources[i]), spelled(answers[i][0].ids));
}

/* Output:
step 100  loss 0.48
step 200  loss 0.06
step 300  loss 0.01
hgead. -> hgead
ga. -> ga
ead. -> ead
ef. -> ef
*/
