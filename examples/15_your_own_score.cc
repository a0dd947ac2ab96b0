// SPDX-License-Identifier: Apache-2.0
// Lesson 15: a score of one's own, written outside of the library: checked, named, combined, trained, drawn, and known to the whole
// command line. With arguments this program is `heed` and knows one attention more:
//   15_your_own_score train --data DIR --out RUN --attention nearness
#include "attention/attend.h"
#include "autograd/check.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "examples/cli/cli.h"
#include "models/picture.h"
#include "nn/linear.h"
#include "nn/optimizer.h"
#include "tensor/format.h"
#include "tensor/ops/random.h"

using namespace heed;

// e_ts = -‖W q_t - h_s‖² = 2 (W q_t)·h_s - ‖h_s‖² - ‖W q_t‖²: near states get the weight. The last term is the same for all s.
struct Nearness {
  Nearness(Scope scope, const ScoreOptions& options) : W(scope / "query_proj", {.in = options.query_width, .out = options.memory_width, .bias = false}) {}
  Variable operator()(const Variable& query, const Memory& memory, const AttentionState&) const {
    return 2 * matmul(W(query), transpose(memory.keys)) - unsqueeze(sum(square(memory.keys), -1), 1);   // [B, T, S]
  }
  Linear W;
};
static_assert(Score<Nearness>);

int main(int argc, char** argv) {
  if (argc > 1) return heed::main(argc, argv, {named_score<Nearness>("nearness")});

  const ExtraScores known({named_score<Nearness>("nearness")});        // what heed::main does with them
  fmt::print("gradient check, in double:\n");
  for (const char* name : {"nearness", "nearness-sparsemax", "local-p-nearness"}) {
    Parameters parameters(Seed{1}, DType::f64);
    const Attention attention = make_attention(name, parameters.root(), {.query_width = 3, .memory_width = 4, .window = 2});
    const auto f = [&](std::span<const Variable> x) { return attention(x[0], attention.prepare(x[1], {})).context; };
    const GradientReport report = check_gradient(f, {normal(Key(1), {2, 3, 3}, 0, 1, DType::f64), normal(Key(2), {2, 5, 4}, 0, 1, DType::f64)});
    fmt::print("  {:<20} {}\n", name, report.holds(1e-7) ? "right" : report.worst);
  }

  // Five states, and queries that are the same states backwards in another basis: W must learn to turn them.
  Parameters parameters(Seed{1});
  const Attention attention = make_attention("nearness", parameters.root(), {.query_width = 4, .memory_width = 4});
  const Tensor turn = tensor({{0, 1, 0, 0}, {-1, 0, 0, 0}, {0, 0, 0, -1}, {0, 0, 1, 0}});
  const auto query = [&](const Variable& h) { return matmul(flip(h, 1), constant(turn)); };
  Adam adam(parameters, {.learning_rate = 0.05});
  for (int step = 0; step <= 200; ++step) {
    Tape tape(Key{1, step});
    const Variable h = constant(normal(Key(2) / step, {8, 5, 4}));
    const Variable loss = mse_loss(attention(query(h), attention.prepare(h, {})).context, flip(h, 1));
    if (step % 100 == 0) fmt::print("step {:3}  loss {:.2f}\n", step, loss.value().item());
    tape.backward(loss);
    adam.step();
  }
  const Variable h = constant(normal(Key(3), {1, 5, 4}));
  const Tensor weights = attention(query(h), attention.prepare(h, {}), Want::weights).weights;
  fmt::print("{}", attention_text({.source = {"one", "two", "three", "four", "five"}, .target = {"five", "four", "three", "two", "one"},
                                   .maps = {{.weights = weights.to_vector<float>(), .label = "nearness"}}, .caption = "rows look at columns"}, 60));
}

/* Output:
gradient check, in double:
  nearness             right
  nearness-sparsemax   right
  local-p-nearness     right
step   0  loss 0.96
step 100  loss 0.00
step 200  loss 0.01
nearness
      ┌ one
      │ ┌ two
      │ │ ┌ three
      │ │ │ ┌ four
      │ │ │ │ ┌ five
 five · · · ░░▓▓
 four · · · ▓▓░░
three · · ██· ·
  two · ▓▓░░· ·
  one ██· · · ·

weight  · < 0.125  ░░ < 0.375  ▒▒ < 0.625  ▓▓ < 0.875  ██ to
1
rows look at columns
*/
