// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <new>

#include "autograd/ops.h"
#include "autograd/tape.h"
#include "models/search.h"
#include "models/train.h"
#include "nn/checkpoint.h"
#include "nn/linear.h"
#include "tensor/ops/unary.h"
#include "tensor/test_hooks.h"
#include "tests/close.h"
#include "tests/every_model.h"
#include "tests/faults/faults.h"
#include "tests/models/pairs.h"
#include "tests/temporary_folder.h"

using namespace heed;
using namespace heed::test;

namespace {

thread_local std::int64_t news_allowed = -1;       // of this thread, before one throws; negative: none does

}  // namespace

void* operator new(std::size_t bytes) {
  if (news_allowed >= 0 && news_allowed-- == 0) throw std::bad_alloc();
  if (void* p = std::malloc(bytes ? bytes : 1)) return p;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace {

using Refuse = std::int64_t (*)(std::int64_t);     // after so many; says what was left

std::int64_t refuse_news_after(std::int64_t allowed) { return std::exchange(news_allowed, allowed); }

Rows words(Index seed, int count) {
  Random random(Key(Seed{std::uint64_t(seed)}));
  Rows rows = random_rows(Key(Seed{std::uint64_t(seed)}), count, 5);
  for (auto& row : rows)
    for (auto& id : row)
      if (id != kEnd) id = std::int32_t(4 + random.below(4));
  return rows;
}

struct Trained : SmallModel {
  explicit Trained(const std::string& flags, double average = 0.9)
      : SmallModel(flags),
        adam(*parameters, {}),
        trainer(*model, *parameters, adam, Schedule({.kind = Schedule::Kind::constant, .peak = 0.01}),
                {.loss = {.pad = kPad}, .average = average}) {}
  std::vector<Tensor> weights() {
    std::vector<Tensor> out;
    for (const auto& item : parameters->items()) out.push_back(item->variable.value().clone());
    if (trainer.average())
      for (const auto& [name, value] : trainer.average()->state()) out.push_back(value.clone());
    return out;
  }
  Adam adam;
  Trainer trainer;
};

bool same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  bool equal = a.size() == b.size();
  for (std::size_t i = 0; equal && i < a.size(); ++i) equal = equal_bits(a[i], b[i]);
  return equal;
}

#ifdef HEED_STD_THREADS
constexpr bool kThreadsByNew = true;   // a thread whose `new` is refused is done without
#else
constexpr bool kThreadsByNew = false;
#endif

// Two updates, in each of them one allocation after another refused until none is left to refuse.
std::string refused(Refuse refuse, std::int64_t stride, const std::string& flags) {
  const Batch batch = batch_of(words(1, 3), words(2, 3));
  Trained calm(flags);
  std::vector<std::vector<Tensor>> want;
  for (int step = 0; step < 2; ++step) calm.trainer.update({&batch, 1}), want.push_back(calm.weights());
  Cases right;
  const std::size_t in_use = memory_use().in_use;
  {
    Trained hit(flags);
    for (int step = 0; step < 2; ++step) {
      const std::vector<Tensor> before = hit.weights();
      bool done = false;
      for (std::int64_t n = 0; !done; n += stride) {
        bool thrown = false;
        refuse(n);
        try {
          hit.trainer.update({&batch, 1});
          done = true;
        } catch (const std::bad_alloc&) {
          thrown = true;
        }
        const bool fired = refuse(-1) < 0;
        right.add(thrown == fired || (kThreadsByNew && fired));
        if (thrown) right.add(same(hit.weights(), before));
      }
      right.add(same(hit.weights(), want[std::size_t(step)]));
    }
  }
  right.add(memory_use().in_use == in_use);
  return right.say("bad_alloc each time, no weight changed, nothing leaked; then the bits of an undisturbed training");
}

std::string update_with_nan() {
  Trained net("--layers 1 --heads 2");
  const Batch batch = batch_of(words(1, 3), words(2, 3));
  const Tensor weight = net.parameters->find("core.encoder.layers.0.linear1.weight")->variable.value();
  fill_(weight[0], NAN);
  const auto before = net.weights();
  const Trainer::Report report = net.trainer.update({&batch, 1});
  Cases right;
  right.add(report.skipped && net.trainer.skipped() == 1);
  right.add(same(net.weights(), before));
  return right.say("the update is skipped and counted, no weight changed");
}

std::string searched_with_nan() {
  Cases right;
  for (const std::string& flags : every_model()) {
    const SmallModel net(flags);
    for (const auto& item : net.parameters->items()) fill_(item->variable.value(), NAN);
    const std::vector<std::vector<std::int32_t>> sources{{4, 5, kEnd}, {6, kEnd}};
    for (const SearchOptions& options : {SearchOptions{}, SearchOptions{.beam = 3, .nbest = 2}, SearchOptions{.sampling = Sampling{}}})
      right.add(thrown([&] { search(*net.model, sources, options); }) ==
                "NumericError: search: the words' probabilities are NaN: step 1, source of 3 tokens");
  }
  return right.say("NumericError: search: the words' probabilities are NaN, by greedy search, beam and sampling");
}

std::string nothing_to_see() {
  Cases right;
  for (const std::string& flags : every_model()) {
    const SmallModel net(flags);
    for (const Rows& source : {Rows{{}, {4, 5, 6, 7, 4, 5, 6, kEnd}, {5}}, Rows{{}, {}, {}}}) {
      const Rows target{{kEnd}, {4, 4, 5, 6, kEnd}, {5, kEnd}};
      const Batch batch = batch_of(source, target);
      net.parameters->forget_gradients();
      Tape tape(evaluating);
      const Loss loss = net.model->loss(batch, {.ignore_index = kPad});
      tape.backward(loss.sum);
      right.add(std::isfinite(loss.sum.value().item()));
      for (const auto& item : net.parameters->items())
        if (item->gradient->written()) right.add(all_finite(item->gradient->value()));
      const Tensor features = net.model->features(batch).value();
      for (Index b = 0; b < 3; ++b) {
        const Tensor alone = net.model->features(batch_of({source[std::size_t(b)]}, {target[std::size_t(b)]})).value();
        right.add(worst_absolute(features(Slice{b, b + 1}, Slice{0, alone.size(1)}), alone) <= 1e-6);
      }
    }
  }
  return right.say("finite losses and gradients, each sentence as if it were alone (within 1e-6), in every kind of model");
}

std::string tied() {
  const TemporaryFolder folder;
  const SmallModel one("--layers 1 --heads 4 --norm pre --positions learned --tie all"),
      other("--layers 1 --heads 4 --norm pre --positions learned --tie all");
  const std::string file = folder / "tied.safetensors";
  for (const auto& item : one.parameters->items()) fill_(item->variable.value(), 0.5);
  save(*one.parameters, file);
  load(*other.parameters, file);
  Cases right;
  const SafetensorsFile read = read_safetensors(file);
  right.add(read.tensors.size() == one.parameters->items().size() + one.parameters->aliases().size());
  right.add(read.header.tensors.size() == one.parameters->items().size());
  for (const auto& item : other.parameters->items())
    right.add(doubles(item->variable.value()) == std::vector<double>(std::size_t(item->variable.numel()), 0.5));
  return right.say("stored once, listed under each name, loaded strictly");
}

std::string unused_and_frozen() {
  Parameters parameters(Seed{1});
  const Linear used(parameters.root() / "used", {.in = 2, .out = 2}), unused(parameters.root() / "unused", {.in = 2, .out = 2}),
      frozen(parameters.root() / "frozen", {.in = 2, .out = 2});
  parameters.select("frozen.*").freeze();
  Adam adam(parameters, {.learning_rate = 0.1, .weight_decay = 0.1});
  const Tensor first = used.weight.value().clone(), second = unused.weight.value().clone(), third = frozen.weight.value().clone();
  {
    Tape tape;
    const Variable x = used(constant(ones({1, 2})));
    tape.backward(sum(frozen(x + used(x))));       // used twice
  }
  adam.step();
  Cases right;
  right.add(!equal_bits(used.weight.value(), first));
  right.add(equal_bits(unused.weight.value(), second) && equal_bits(frozen.weight.value(), third));
  return right.say("neither is touched, weight decay included; gradients of the others flow through them");
}

std::string other_state() {
  Parameters small(Seed{1}), large(Seed{1});
  const Linear a(small.root() / "layer", {.in = 2, .out = 2}), b(large.root() / "layer", {.in = 3, .out = 2}),
      c(large.root() / "more", {.in = 2, .out = 1, .bias = false});
  Adam from(large, {}), to(small, {});
  {
    Tape tape;
    tape.backward(sum(b(constant(ones({1, 3})))) + sum(c(constant(ones({1, 2})))));
  }
  from.step();
  return thrown([&] { to.load_state(from.state()); });
}

std::string accumulated() {
  Cases near;
  const Rows source = words(5, 7), target = words(6, 7);
  Trained once("--layers 1 --heads 2 --dropout 0", 0), parts("--layers 1 --heads 2 --dropout 0", 0);
  const Batch whole = batch_of(source, target);
  std::vector<Batch> micro;
  for (const auto& [begin, end] : {std::pair(0, 1), std::pair(1, 5), std::pair(5, 7)})
    micro.push_back(batch_of(Rows(source.begin() + begin, source.begin() + end), Rows(target.begin() + begin, target.begin() + end)));
  const Trainer::Report a = once.trainer.update({&whole, 1}), b = parts.trainer.update(micro);
  near.add(std::abs(a.loss - b.loss) <= 1e-6 * a.loss);
  near.add(std::abs(a.gradient_norm - b.gradient_norm) <= 1e-6 * a.gradient_norm);
  return near.say("loss and gradient of their sum within 1e-6");
}

std::ptrdiff_t open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return std::distance(begin(files), end(files));
}

std::string long_training() {
  Trained net("--layers 1 --heads 2");
  const Batch batch = batch_of(words(1, 3), words(2, 3));
  for (int step = 0; step < 300; ++step) net.trainer.update({&batch, 1});
  const MemoryUse before = memory_use();
  const std::ptrdiff_t files = open_files();
  for (int step = 0; step < 1000; ++step) net.trainer.update({&batch, 1});
  const MemoryUse after = memory_use();
  Cases flat;
  flat.add(after.system_calls == before.system_calls && after.in_use == before.in_use);
  flat.add(open_files() == files);
  return flat.say(
      "not one request for memory to the system, no more in use, no file left open (the test \"soak\": 100,000 updates and a million translations)");
}

}  // namespace

std::vector<Fault> model_faults() {
  const std::string transformer = "--layers 1 --heads 2 --dropout 0.2", gru = "--model gru --attention additive";
  return {
      {5, "every allocation of tensor memory in two updates of a Transformer refused, one after another",
       [=] { return refused(refuse_memory_after, 1, transformer); }},
      {5, "the same in an attentional GRU", [=] { return refused(refuse_memory_after, 1, gru); }},
      {5, "every eleventh `operator new` in two updates of a Transformer", [=] { return refused(refuse_news_after, 11, transformer); }},
      {7, "a NaN in a weight, then an update", update_with_nan},
      {7, "a search with weights that are all NaN", searched_with_nan},
      {8, "sources of length 0 beside longer ones, nothing but sources of length 0, targets of length 1", nothing_to_see},
      {12, "one table for source, target and output, saved and loaded", tied},
      {12, "a layer that nothing uses, a layer that is frozen, a layer used twice", unused_and_frozen},
      {13, "the state of an optimiser of other shapes and more layers", other_state},
      {28, "three micro-batches of unequal sizes instead of one batch", accumulated},
      {33, "1,000 updates after 300", long_training},
  };
}
