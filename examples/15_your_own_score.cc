// SPDX-License-Identifier: Apache-2.0
// Lesson 15: a score of one's own, written outside of the library: gradients checked, trained in a model that spells words backwards,
// searched with, drawn. With arguments this program is `heed` and knows one attention more:
//   15_your_own_score train --data DIR --out RUN --model gru --attention nearness
#include "attention/attend.h"
#include "autograd/check.h"
#include "autograd/ops.h"
#include "examples/cli/cli.h"
#include "models/batch.h"
#include "models/picture.h"
#include "models/recurrent.h"
#include "models/search.h"
#include "models/train.h"
#include "tensor/format.h"
#include "tensor/ops/random.h"

using namespace heed;
using Ids = std::vector<std::int32_t>;

// e_ts = -‖W q_t - h_s‖² = 2 (W q_t)·h_s - ‖h_s‖² - ‖W q_t‖²: near states get the weight. The last term is the same for all s.
struct Nearness {
  Nearness(Scope scope, const ScoreOptions& options)
      : W(scope / "query_proj", {.in = options.query_width, .out = options.memory_width, .bias = false}) {}
  Variable operator()(const Variable& query, const Memory& memory, const AttentionState&) const {
    return 2 * matmul(W(query), transpose(memory.keys)) - unsqueeze(sum(square(memory.keys), -1), 1);   // [B, T, S]
  }
  Linear W;
};

// 32 words of 4 letters, and the same backwards: ids from 4 on, ended by 3, opened by 2.
Batch words(Random& random) {
  std::vector<Example> pairs(32, {.source = Ids(5, 3), .target = Ids(5, 3)});
  for (Example& pair : pairs)
    for (std::size_t i = 0; i < 4; ++i) pair.source[i] = pair.target[3 - i] = 4 + std::int32_t(random.below(8));
  return make_batch(pairs, 0, 2);
}

int main(int argc, char** argv) {
  if (argc > 1) return heed::main(argc, argv, {named_score<Nearness>("nearness")});

  const ExtraScores known({named_score<Nearness>("nearness")});        // what heed::main does with them
  Parameters small(Seed{1}, DType::f64);
  const Attention attention =
      make_attention("local-p-nearness-sparsemax", small.root(), {.query_width = 3, .memory_width = 4, .window = 2});
  const auto f = [&](std::span<const Variable> x) { return attention(x[0], attention.prepare(x[1], {})).context; };
  const GradientReport report =
      check_gradient(f, {normal(Key(1), {2, 3, 3}, 0, 1, DType::f64), normal(Key(2), {2, 5, 4}, 0, 1, DType::f64)});
  fmt::print("gradients: {}\n", report.holds(1e-7) ? "right" : report.worst);

  Parameters parameters(Seed{1});
  const RecurrentModel model(parameters.root(), {.source_vocabulary = 12, .target_vocabulary = 12, .encoder = {.width = 24},
                                                 .decoder = BahdanauDecoder::Options{.width = 24, .attention = "nearness"}});
  Adam adam(parameters, {});
  Trainer trainer(model, parameters, adam, Schedule({.kind = Schedule::Kind::constant, .peak = 5e-3}), {.loss = {.pad = 0}});
  Random random{Key(Seed{1})};
  for (int step = 0; step <= 100; ++step) {
    const Batch batch = words(random);
    const double loss = trainer.update({&batch, 1}).loss;
    if (step % 100 == 0) fmt::print("step {:3}  loss {:.1f}\n", step, loss);
  }

  const Hypothesis found = search(model, std::vector<Ids>{{7, 4, 8, 6, 3}}, {.pad = 0, .beam = 4, .attention = true})[0][0];
  AttentionPicture picture{.source = {"d", "a", "e", "c", "."}, .maps = {{.label = "nearness"}}};
  for (const std::int32_t id : found.ids) picture.target.push_back(std::string(1, "    abcdefgh"[id]));
  picture.target.push_back(".");
  for (const auto& row : found.attention) picture.maps[0].weights.insert(picture.maps[0].weights.end(), row.begin(), row.end());
  fmt::print("{}", attention_text(picture, 60));
}

/* Output:
gradients: right
step   0  loss 2.5
step 100  loss 0.0
nearness
  ┌ d
  │ ┌ a
  │ │ ┌ e
  │ │ │ ┌ c
  │ │ │ │ ┌ .
c · · · ██·
e · · ██· ·
a · ██· · ·
d ██· · · ·
. ██· · · ·

weight  · < 0.125  ░░ < 0.375  ▒▒ < 0.625  ▓▓ < 0.875  ██ to
1
Nearness. Row: the target word being written. Column: the
source word looked at.
*/
