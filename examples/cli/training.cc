// SPDX-License-Identifier: Apache-2.0
#include "examples/cli/training.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>
#include <utility>

#include "attention/multi_head.h"
#include "examples/cli/model.h"
#include "examples/cli/stop.h"
#include "models/recurrent_config.h"
#include "models/text.h"
#include "models/translate.h"
#include "nn/checkpoint.h"
#include "tensor/file.h"
#include "tensor/format.h"
#include "tensor/json.h"
#include "tensor/ops/unary.h"

namespace heed::cli {
namespace fs = std::filesystem;
namespace {

constexpr Index kReportEvery = 50;                 // updates to a line in the log
constexpr Index kMostSkipped = 20;                 // updates in a row whose loss or gradient is not finite
constexpr double kSaveEvery = 60;                  // seconds, at the latest
constexpr std::size_t kPictures = 3;               // dev sentences whose attention is drawn at each evaluation

// Elements of the matrices of a model, biases left out; a score with a matrix of each width is assumed.
double about_parameters(const RunConfig& given, double source_words, double target_words) {
  RunConfig c = given;
  const double d = double(c.width), layers = double(c.layers), upper = double(decoder_layers(c));
  if (!is_recurrent(c.model))
    return (4 * layers + 8 * upper) * d * d + (layers + upper) * (c.gated ? 3 : 2) * d * double(c.feed_forward) +
           d * (source_words + 2 * target_words);
  settle_recurrent(c);
  const double gates = c.model == "lstm" ? 4 : c.model == "gru" ? 3 : 1;
  if (is_bahdanau(c)) {
    const bool exact = c.decoder == "cho-exact";
    // W_ih and W_hh; W_ih reads E y and c; W_s, V_c, score, readout
    const double ways = c.one_direction || c.context == "every_step" ? 1 : 2, cells = c.decoder == "conditional" ? 2 : 1,
                 read = exact ? 1 : ways;
    return ((2 + (layers - 1) * (ways + 1)) * ways * gates + (1 + cells + read) * gates + 1 + (exact ? ways : 0) +
            (c.attention == "none" ? 0 : 1 + ways) + 2 + read) *
               d * d +
           d * (source_words + 1.5 * target_words);
  }
  return (2 * (layers + upper) * gates + (c.input_feeding ? gates : 0) + (c.attention == "none" ? 0 : 3)) * d * d +
         d * (source_words + 2 * target_words);
}

void check_memory(const Run& run) {
  const RunConfig& c = run.config;
  const double parameters = about_parameters(c, double(run.source.vocabulary.size()), double(run.target.vocabulary.size()));
  const double bytes = 16 * parameters, memory = double(::sysconf(_SC_PHYS_PAGES)) * double(::sysconf(_SC_PAGESIZE));
  if (bytes > memory)
    throw Mistake(fmt::format(
        "too large a model: --layers {}{} --width {}{}; its {:.3g} parameters need {:.0f} GiB to train, this machine has {:.0f} GiB",
        c.layers, c.decoder_layers ? fmt::format(" --decoder-layers {}", *c.decoder_layers) : "", c.width,
        is_recurrent(c.model) ? "" : fmt::format(" --feed-forward {}", c.feed_forward), parameters, bytes / 0x1p30, memory / 0x1p30));
}

constexpr std::string_view kCore = "core.";

// Weights of the core without its prefix, from a file that has it or not; empty where the file names other weights of the model, or none.
std::map<std::string, Tensor> core_alone(const std::map<std::string, Tensor>& file, const std::map<std::string, Tensor>& model) {
  std::map<std::string, Tensor> core;
  bool known = false;
  for (const auto& [name, value] : file) {
    const std::string own(name.starts_with(kCore) ? name.substr(kCore.size()) : name);
    if ((own == name && model.contains(name)) || !core.emplace(own, value).second) return {};
    known |= model.contains(std::string(kCore) + own);
  }
  return known ? core : std::map<std::string, Tensor>();
}

// A file without global tokens, its names with the core's prefix or not, starts a model with them.
void start_global_tokens(std::map<std::string, Tensor>& file, const std::map<std::string, Tensor>& model) {
  for (const auto& [name, value] : model)
    if (const std::size_t at = name.find("query_global.weight"); at != name.npos)
      for (const std::size_t begin : {std::size_t(0), kCore.size()}) add_global_projections(file, name.substr(begin, at - begin));
}

// How many of all ids on a side, its ends left out, are this one.
double percent_of(std::vector<std::int32_t> Example::*side, std::int32_t id, std::span<const Example> examples) {
  Index found = 0, all = 0;
  for (const Example& example : examples) {
    found += std::ranges::count(example.*side, id);
    all += Index((example.*side).size()) - 1;
  }
  return 100 * double(found) / double(std::max<Index>(all, 1));
}

// Sentences that make a good picture: the first of middling length, else the first of all.
std::vector<const Example*> for_pictures(std::span<const Example> examples) {
  std::vector<const Example*> chosen;
  for (const bool any : {false, true})
    for (const Example& example : examples) {
      const std::size_t longest = std::max(example.source.size(), example.target.size()),
                        shortest = std::min(example.source.size(), example.target.size());
      const bool good = shortest >= 5 && longest <= 14;
      if (chosen.size() < kPictures && (good || (any && longest <= 40)) && std::ranges::find(chosen, &example) == chosen.end())
        chosen.push_back(&example);
    }
  return chosen;
}

}  // namespace

Training::Training(Run run, Dataset data, Manner manner)
    : run_(std::move(run)),
      data_(std::move(data)),
      manner_(manner),
      examples_(make_examples(run_, data_)),
      parameters_((check_memory(run_), Seed{std::uint64_t(run_.config.seed)})),
      progress_(std::cerr, Progress::standard_error(manner.quiet)) {
  const RunConfig& c = run_.config;
  const Vocabulary& words = run_.target.vocabulary;
  dev_ = std::make_unique<DevPart>(run_, data_.dev, std::move(examples_.dev));
  sampler_ = std::make_unique<BatchSampler>(examples_.train,
                                            BatchOptions{.tokens = c.batch_tokens.value_or(1), .sentences = c.batch_sentences.value_or(0)},
                                            Key(Seed{std::uint64_t(c.seed)}));
  RunConfig& settled = run_.config;
  if (!c.schedule_steps && (c.schedule == "linear" || c.schedule == "cosine" || c.schedule == "step")) {
    if (!c.steps && !c.epochs)
      throw Mistake(fmt::format("where does the schedule end: --schedule {}; give --schedule-steps, --steps or --epochs", c.schedule));
    settled.schedule_steps = c.schedule == "step" ? std::max<Index>(1, planned_updates() / 5) : planned_updates();
  }
  check_config(c);
  model_ = make_model(c, parameters_.root(), run_.source.vocabulary, words);
  optimizer_ = make_optimizer(c, parameters_);
  trainer_ = std::make_unique<Trainer>(*model_, parameters_, *optimizer_, make_schedule(c),
                                       Trainer::Options{.loss = {.label_smoothing = c.label_smoothing, .pad = words.pad},
                                                        .clip = c.clip,
                                                        .guided_alignment = c.guided_alignment,
                                                        .coverage_loss = c.coverage_loss,
                                                        .average = c.average,
                                                        .precision = precision_named(c.precision),
                                                        .seed = std::uint64_t(c.seed)});
}

void Training::start_from_file() {
  if (run_.config.init.empty()) return;
  SafetensorsFile weights = read_weights(weights_file(run_.config.init), &run_);
  convert_floats(weights, parameters_.dtype());
  for (const auto& [name, value] : weights.tensors)
    if (!all_finite(value)) throw FileError(fmt::format("{}: weights that are not finite: {}", run_.config.init, name));
  const std::map<std::string, Tensor> model = heed::state(parameters_);
  start_global_tokens(weights.tensors, model);
  const std::map<std::string, Tensor> core = core_alone(weights.tensors, model);
  try {
    if (core.empty()) {
      load(parameters_.select(), weights);
      return;
    }
    load(parameters_.select("core.*"), core, weights.metadata, run_.config.init);
  } catch (const FileError& e) {
    const auto is_final_norm = [](const auto& item) { return item.first.ends_with("encoder.norm.weight"); };
    if (std::ranges::any_of(model, is_final_norm) || std::ranges::none_of(weights.tensors, is_final_norm)) throw;
    throw Mistake(fmt::format("{}; --final-norm always for final norms", e.what()));
  }
  std::vector<std::string> fresh;
  for (const auto& [name, value] : model)
    if (!name.starts_with(kCore)) fresh.push_back(name);
  progress_.note(fmt::format("{}: {} weights of the core taken, {} start fresh", run_.config.init, core.size(), first_ten(fresh, ", ")));
}

Index Training::updates_of_epoch() const {
  return (Index(sampler_->epoch(0).size()) + run_.config.accumulate - 1) / run_.config.accumulate;
}

Index Training::planned_updates() const {
  const RunConfig& c = run_.config;
  return std::min(c.steps.value_or(INT64_MAX), c.epochs ? *c.epochs * updates_of_epoch() : INT64_MAX);
}

void Training::begin() {
  start_from_file();
  lock_ = create_run(run_);
  keep_split_data(run_);
  log_ = Log(in_run("metrics.jsonl"), 0);
  log_data();
  check_schedule();
}

void Training::log_data() {
  for (const auto& [part, corpus] : {std::pair("train", &data_.train), std::pair("dev", &data_.dev)}) {
    const CorpusReport& r = corpus->report;
    log_.add(
        fmt::format("{{\"event\": \"data\", \"part\": \"{}\", \"lines\": {}, \"pairs\": {}, \"too_long\": {}, \"empty\": {}, "
                    "\"invalid_sequences\": {}, \"byte_order_marks\": {}, \"carriage_returns\": {}, \"further_columns\": {}}}",
                    part, r.text.lines, r.pairs, r.too_long, r.empty, r.text.invalid, r.text.byte_order_marks, r.text.carriage_returns,
                    r.further_columns));
    progress_.note(to_string(*corpus));
  }
  if (const Index shared = shared_sources(data_.train, data_.dev); shared > 0) {
    log_.add(fmt::format("{{\"event\": \"data\", \"shared_sources\": {}}}", shared));
    progress_.note(shared_warning(shared, data_.dev));
  }
  progress_.note(fmt::format("{} source and {}, {} parameters, {} an epoch", run_.source.vocabulary.size(),
                             counted(run_.target.vocabulary.size(), fmt::format("target {}", run_.target.tokenizer.options().noun())),
                             parameters_.count(), counted(updates_of_epoch(), "update")));
  if (!run_.config.vocabularies.empty())
    progress_.note(fmt::format("with the vocabularies of {}, to which {:.1f} % of the source and {:.1f} % of the target {}s are unknown",
                               run_.config.vocabularies, percent_of(&Example::source, run_.source.vocabulary.unk, examples_.train),
                               percent_of(&Example::target, run_.target.vocabulary.unk, examples_.train),
                               run_.target.tokenizer.options().noun()));
}

// ---- limits ---------------------------------------------------------------------------------------------------------

void Training::check_schedule() {
  const RunConfig& c = run_.config;
  if (c.warmup > std::max(step(), planned_updates()))
    progress_.warn(fmt::format("the warm-up of {} updates does not end in the {} planned", c.warmup, planned_updates()));
  if (c.schedule != "linear" && c.schedule != "cosine") return;
  if ((c.steps || c.epochs ? planned_updates() : step() + 1) > *c.schedule_steps)
    progress_.warn(
        fmt::format("nothing is learned after update {}, where --schedule {} ends with a learning rate of 0; --init {} with another --out "
                    "begins a new one",
                    *c.schedule_steps, c.schedule, in_run("best.safetensors")));
}

double Training::seconds() const {
  return seconds_before_ + (start_ == std::chrono::steady_clock::time_point()
                                ? 0
                                : std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count());
}

std::string_view Training::reached() const {
  const RunConfig& c = run_.config;
  if (c.steps && step() >= *c.steps) return "steps";
  if (c.epochs && state_.epoch >= *c.epochs) return "epochs";
  if (c.patience && state_.waited >= *c.patience) return "patience";
  if (c.minutes > 0 && seconds() >= 60 * c.minutes) return "minutes";
  return {};
}

double Training::fraction() const {
  const RunConfig& c = run_.config;
  double share = -1;
  if (c.steps) share = std::max(share, double(step()) / double(*c.steps));
  if (c.epochs)
    share = std::max(share,
                     (double(state_.epoch) + (batches_.empty() ? 0 : double(state_.batch) / double(batches_.size()))) / double(*c.epochs));
  if (c.minutes > 0) share = std::max(share, seconds() / (60 * c.minutes));
  return share;
}

bool Training::evaluation_due() const {
  if (state_.evaluated == step() || step() == 0) return false;
  const auto every = run_.config.evaluate_every;
  return every ? step() % *every == 0 : state_.batch == 0;
}

// ---- one update after another ---------------------------------------------------------------------------------------

int Training::run() {
  const StopSignals signals;
  start_ = std::chrono::steady_clock::now();
  saved_at_ = speed_from_ = seconds();
  const RunConfig& c = run_.config;
  for (;;) {
    if (evaluation_due()) {
      if (!evaluate()) return stopped();
      save();
    }
    if (stop_signal()) return stopped();
    if (!reached().empty()) break;
    update();
    if ((c.save_every && step() % *c.save_every == 0) || seconds() - saved_at_ >= kSaveEvery) save();
  }
  // What comes now is no part of what a longer training would have done: it goes on from this checkpoint.
  if (saved_ != step()) save();
  else written([&] { save_seconds(); });           // they may be the limit that is reached
  const std::string reason(reached());
  if (state_.evaluated != step() && !evaluate()) return stopped();
  end(reason);
  return 0;
}

void Training::update() {
  const double begin = seconds();
  if (batches_.empty()) batches_ = sampler_->epoch(state_.epoch);
  List<Batch> micro_batches;
  for (; Index(micro_batches.size()) < run_.config.accumulate && state_.batch < Index(batches_.size()); ++state_.batch) {
    const std::vector<Index>& rows = batches_[std::size_t(state_.batch)];
    micro_batches.push_back(make_batch(run_, examples_.train, rows));
    if (run_.config.guided_alignment > 0) add_links(micro_batches.back(), examples_.train, rows);
  }
  const Trainer::Report last = trainer_->update(micro_batches);
  if (state_.batch == Index(batches_.size())) {
    ++state_.epoch;
    state_.batch = 0;
    batches_.clear();
  }
  state_.skipped_in_a_row = last.skipped ? state_.skipped_in_a_row + 1 : 0;
  if (state_.skipped_in_a_row >= kMostSkipped)
    throw Diverged(fmt::format("no finite loss: {} updates in a row, the last number {}; a lower --learning-rate (now {})", kMostSkipped,
                               step(), run_.config.learning_rate));
  if (!last.skipped) {
    state_.loss_sum += last.loss * double(last.target_tokens);
    state_.tokens += last.target_tokens;
  }
  update_seconds_ += seconds() - begin, ++updates_timed_;
  speed_tokens_ += last.source_tokens + last.target_tokens;
  if (const double now = seconds(); now - speed_from_ > 1) {
    speed_ = double(speed_tokens_) / (now - speed_from_);
    speed_from_ = now;
    speed_tokens_ = 0;
  }
  if (!last.skipped) shown_loss_ = shown_loss_ ? 0.95 * *shown_loss_ + 0.05 * last.loss : last.loss;
  show();
  if (step() % kReportEvery == 0) report(last);
}

void Training::show() {
  ProgressNumbers numbers{.done = step(), .total = run_.config.steps.value_or(0), .fraction = fraction(), .loss = shown_loss_,
                          .bleu_name = bleu_name(run_.config)};
  const double batch = batches_.empty() ? 0 : double(state_.batch) / double(batches_.size());
  numbers.epoch = double(state_.epoch) + batch;
  if (speed_ > 0) numbers.tokens_per_second = speed_;
  if (last_score_) numbers.dev_bleu = last_score_->bleu;
  progress_.update(numbers);
}

double Training::speed() const {
  const double now = seconds();
  return speed_ > 0 || now <= speed_from_ ? speed_ : double(speed_tokens_) / (now - speed_from_);
}

double Training::take_update_milliseconds() {
  const double seconds = std::exchange(update_seconds_, 0);
  const Index updates = std::exchange(updates_timed_, 0);
  return updates > 0 ? 1000 * seconds / double(updates) : 0;
}

void Training::report(const Trainer::Report& last) {
  std::string on_attention;                        // losses beside `loss`
  if (run_.config.guided_alignment > 0) on_attention += fmt::format("\"alignment_loss\": {}, ", json_number(last.alignment_loss));
  if (run_.config.coverage_loss > 0) on_attention += fmt::format("\"coverage_loss\": {}, ", json_number(last.coverage_loss));
  log_.add(fmt::format(
      "{{\"event\": \"update\", \"step\": {}, \"epoch\": {}, \"loss\": {}, \"learning_rate\": {}, \"gradient_norm\": {}, {}\"tokens\": {}, "
      "\"skipped\": {}, "
      "\"timing\": {{\"seconds\": {:11.3f}, \"tokens_per_second\": {:9.0f}}}}}",
      step(), state_.epoch, json_number(state_.tokens > 0 ? state_.loss_sum / double(state_.tokens) : NAN), json_number(last.learning_rate),
      json_number(last.gradient_norm), on_attention, state_.tokens, trainer_->skipped(), seconds(), speed()));
  state_.loss_sum = 0;
  state_.tokens = 0;
}

bool Training::evaluate() {
  std::optional<WeightAverage::InPlace> averages;
  if (trainer_->average()) averages.emplace(*trainer_->average());
  const double begin = seconds();
  const auto score = dev_->score(run_, *model_, [] { return stop_signal() == 0; });
  if (!score) return false;
  if (!std::isfinite(score->loss) && (!last_score_ || std::isfinite(last_score_->loss)))
    progress_.warn(fmt::format("the dev loss is {}; a lower --learning-rate (now {})", score->loss, run_.config.learning_rate));
  last_score_ = score;
  const bool lower = score->loss < state_.best_loss || (std::isnan(state_.best_loss) && !std::isnan(score->loss));
  const bool higher = score->bleu > state_.best_bleu, by_loss = run_.config.best_by == "loss";
  const bool better = state_.best < 0 || (by_loss ? lower || (score->loss == state_.best_loss && higher)
                                                  : higher || (score->bleu == state_.best_bleu && lower));
  state_.evaluated = step();
  if (better) state_.best = step(), state_.best_bleu = score->bleu, state_.best_loss = score->loss, state_.waited = 0;
  else ++state_.waited;
  trainer_->observe(by_loss ? -score->loss : score->bleu);
  log_.add(
      fmt::format("{{\"event\": \"dev\", \"step\": {}, \"epoch\": {}, \"loss\": {}, \"perplexity\": {}, \"bleu\": {}, \"exact\": {}, "
                  "\"best\": {}, \"timing\": {{\"seconds\": {:11.3f}, \"evaluation\": {:9.3f}, \"update_ms\": {:9.3f}}}}}",
                  step(), state_.epoch, json_number(score->loss), json_number(std::exp(score->loss)), json_number(score->bleu),
                  json_number(score->exact), better, seconds(), seconds() - begin, take_update_milliseconds()));
  if (better) {
    copy_best();
    written([&] { save_best(); });
  }
  written([&] { draw_attention(); });
  written([&] { draw_curves(); });
  averages.reset();
  progress_.note(fmt::format("update {}, epoch {}: dev loss {:.4f}, {} {:.2f}, exact {:.1f} %{}", step(), state_.epoch, score->loss,
                             bleu_name(run_.config), score->bleu, score->exact, better ? "  (best)" : ""));
  show();
  speed_from_ += seconds() - begin;                // the tokens since are those of updates
  return true;
}

void Training::copy_best() {
  unsaved_best_.emplace();
  std::map<const std::byte*, Tensor> copies;       // one of what is tied
  for (const auto& [name, value] : state(parameters_)) {
    Tensor& copy = copies[value.storage().data() + value.offset() * Index(item_size(value.dtype()))];
    if (!copy.defined()) copy = value.clone();
    (*unsaved_best_)[name] = copy;
  }
}

void Training::draw_curves() const {
  const double smoothing = run_.config.label_smoothing;
  const std::string caption =
      smoothing > 0 && step() >= kReportEvery
          ? fmt::format("The train loss is that of targets smoothed by {} and of a model with dropout; the dev loss is without both.", smoothing)
          : "";
  log_.write_curves(in_run("curves.svg"), "dev " + bleu_name(run_.config),
                    fmt::format("Training of {}", fs::weakly_canonical(run_.path).filename().string()), caption);
}

void Training::draw_attention() {
  make_directory(in_run("attention"));
  int number = 0;
  for (const Example* example : for_pictures(dev_->examples())) {
    AttentionPicture picture = last_cross_attention(attention_picture(run_, *model_, *example));
    if (picture.maps.empty()) return;
    picture.title = fmt::format("After {}", counted(step(), "update"));
    write_file_atomically(in_run(fmt::format("attention/sentence-{}-step-{:06}.svg", ++number, step())), attention_svg(picture));
  }
  thin_pictures();
}

void Training::thin_pictures() const {
  std::map<Index, std::vector<fs::path>> pictures;                                          // by their update
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(in_run("attention"), ignored)) {
    const std::string name = entry.path().stem().string();
    const char *begin = name.data() + name.rfind('-') + 1, *end = name.data() + name.size();
    Index drawn_at = 0;
    if (name.starts_with("sentence-") && std::from_chars(begin, end, drawn_at).ptr == end && drawn_at <= step())
      pictures[drawn_at].push_back(entry.path());
  }
  Index kept = 0;
  for (const auto& [drawn_at, files] : pictures) {
    if (10 * drawn_at >= 11 * kept) kept = drawn_at;
    else if (drawn_at != state_.best && drawn_at != pictures.rbegin()->first)
      for (const fs::path& file : files) fs::remove(file, ignored);
  }
}

void take_over(RunConfig& stored, RunConfig asked, const std::function<bool(const Option&)>& is_asked, const std::string& run) {
  const std::vector<Option> now = options(asked), before = options(stored);
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (!is_asked(now[i])) continue;
    if (may_change(now[i].name)) copy_value(now[i], before[i]);
    else if (value_text(now[i]) != value_text(before[i]))
      throw Mistake(fmt::format("contradicts the run: --{} {}, stored in {} is {}; the stored value, or another --out", now[i].name,
                                value_text(now[i]), run, value_text(before[i])));
  }
}

int train_run(const RunConfig& config, const std::string& path, Dataset data, Manner manner) {
  if (!fs::exists(fs::path(path) / "config.json")) {
    Run run = make_run(path, config, data);
    Training training(std::move(run), std::move(data), manner);
    training.begin();
    return training.run();
  }
  Run run = open_run(path);
  take_over(run.config, config, [](const Option& option) { return option.name != "schedule-steps" || !is_absent(option); }, path);
  Training training(std::move(run), std::move(data), manner);
  return training.resume() ? training.run() : 0;
}

// ---- how it ends ----------------------------------------------------------------------------------------------------

int Training::stopped() {
  const int number = stop_signal();
  if (saved_ != step() && !save()) throw Fault(full_);
  progress_.finish();
  return 128 + number;
}

void Training::end(std::string_view reason) {
  const bool whole = saved_ == step();
  if (whole)
    log_.add(fmt::format(
        "{{\"event\": \"end\", \"step\": {}, \"reason\": \"{}\", \"timing\": {{\"seconds\": {:11.3f}, \"update_ms\": {:9.3f}}}}}", step(),
        reason, seconds(), take_update_milliseconds()));
  const bool kept = written([&] {
    save_best();
    log_.sync();                                   // its last line says that all is there
  });
  progress_.finish();
  if (!kept || !whole) throw Fault(full_);
}

void Training::result() const {
  if (manner_.json) {
    print(fmt::format("{{\"run\": {}, \"steps\": {}, \"seconds\": {:.1f}, \"best\": {{\"step\": {}, \"bleu\": {}, \"loss\": {}}}}}\n",
                      json_text(run_.path), step(), seconds(), state_.best, json_number(state_.best_bleu), json_number(state_.best_loss)));
  } else {
    print(fmt::format("{}: {} in {}, best dev {} {:.2f} (loss {:.4f}) after update {}\n", run_.path, counted(step(), "update"),
                      short_duration(seconds()), bleu_name(run_.config), state_.best_bleu, state_.best_loss, state_.best));
  }
}

}  // namespace heed::cli
