// SPDX-License-Identifier: Apache-2.0
// Lesson 18: words that no vocabulary holds.
// A Transformer translates sentences with names, nearly each of which stands in one sentence alone;
// the same one with a gate between its vocabulary and the words it looks at learns to copy them.    See et al. 2017, arXiv 1704.04368, Eq. 8-9
#include "autograd/trace.h"
#include "models/batch.h"
#include "models/pointer_generator.h"
#include "models/search.h"
#include "models/train.h"
#include "models/transformer.h"
#include "tensor/format.h"
#include "tensor/ops/unary.h"

using namespace heed;

struct Line { std::string english, french; };

Line line(Random& random, Index frame) {
  std::string name;
  for (int i = 0; i < 5; ++i) name += i % 2 ? "aeiou"[random.below(5)] : "bdklmnrst"[random.below(9)];
  const Line frames[] = {{"my name is @", "je m'appelle @"},
                         {"@ sings well", "@ chante bien"},
                         {"do you know @ ?", "connais-tu @ ?"},
                         {"we saw @ yesterday", "hier nous avons vu @"}};
  Line chosen = frames[frame];
  for (std::string* text : {&chosen.english, &chosen.french}) text->replace(text->find('@'), 1, name);
  return chosen;
}

int main() {
  Random random{Key(Seed{1})};
  std::vector<Line> lines, unseen;
  for (int i = 0; i < 200; ++i) lines.push_back(line(random, random.below(4)));
  for (Index frame = 0; frame < 4; ++frame) unseen.push_back(line(random, frame));
  std::vector<std::string> english, french;
  for (const Line& one : lines) english.push_back(one.english), french.push_back(one.french);
  const Side source = build_side(english, {}, {.min_count = 4}), target = build_side(french, {}, {.min_count = 4});   // names are rarer
  const Index U = source.vocabulary.size(), V = target.vocabulary.size();
  fmt::print("{} English and {} French words, no name among them\n", U, V);

  for (const bool copies : {false, true}) {
    Parameters parameters(Seed{1});
    const TransformerOptions small{.width = 32, .heads = 4, .feed_forward = 64, .encoder_layers = 1, .decoder_layers = 1, .dropout = 0};
    std::unique_ptr<Seq2Seq> model = std::make_unique<TranslationModel>(
        parameters.root(), TranslationModel::Options{.source_vocabulary = U, .target_vocabulary = V, .core = small});
    if (copies)
      model = std::make_unique<PointerGenerator>(
          parameters.root(), std::move(model),
          PointerGenerator::Options{
              .source_vocabulary = U, .target_vocabulary = V, .shared = shared_words(source.vocabulary, target.vocabulary)});
    std::vector<Example> examples;
    for (const Line& one : lines) examples.push_back(encode_pair(source, target, one.english, one.french, copies));
    const Batch batch = make_batch(examples, target.vocabulary.pad, target.vocabulary.bos);
    Adam adam(parameters, {});
    Trainer trainer(*model, parameters, adam, Schedule({.peak = 3e-3}), {.loss = {.pad = target.vocabulary.pad}});
    for (int update = 0; update < 100; ++update) trainer.update({&batch, 1});

    fmt::print("\n{}\n", copies ? "copying" : "plain");
    for (const Line& one : unseen) {
      const Example example = encode_pair(source, target, one.english, "", copies);
      const Trace trace;                                             // of the gate at each word
      const Hypothesis found = search(*model, std::span(&example.source, 1), {})[0][0];
      fmt::print("{:<24}{}\n", one.english, fmt::join(target_pieces(target.vocabulary, found.ids, example.outside), " "));
      std::string shares;
      for (const Trace::Entry& entry : trace.entries())
        if (entry.name == "gate") shares += fmt::format(" {:.2f}", sigmoid(entry.value).item());
      if (copies) fmt::print("{:<24}{}\n", "", "vocabulary's share:" + shares);
    }
  }
}

/* Output:
16 English and 14 French words, no name among them

plain
my name is rasad        je m'appelle <unk>
bunim sings well        <unk> chante bien
do you know medun ?     connais-tu <unk> ?
we saw ritam yesterday  hier nous avons vu <unk>

copying
my name is rasad        je m'appelle rasad
                        vocabulary's share: 1.00 1.00 0.00 0.00
bunim sings well        bunim chante bien
                        vocabulary's share: 0.00 0.99 0.99 0.00
do you know medun ?     connais-tu medun ?
                        vocabulary's share: 0.99 0.00 0.00 0.01
we saw ritam yesterday  hier nous avons vu ritam
                        vocabulary's share: 1.00 1.00 0.99 1.00 0.00 0.00
*/
