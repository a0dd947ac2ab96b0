// SPDX-License-Identifier: Apache-2.0
// What a training keeps in its run, and how it goes on from there.
#include "examples/cli/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "models/text.h"
#include "nn/checkpoint.h"
#include "tensor/file.h"
#include "tensor/format.h"
#include "tensor/json.h"

namespace heed::cli {
namespace fs = std::filesystem;
namespace {

// JSON has no infinity.
Json number_or_text(double x) { return std::isfinite(x) ? Json(x) : Json(fmt::format("{}", x)); }

bool is_full(int error) { return error == ENOSPC || error == EDQUOT; }

// Options whose change would make another training: those that are stored in each checkpoint and must not differ.
bool is_identity(std::string_view name) {
  return !may_change(name) && name != "init";
}

// The checkpoint is whole, the log beside it is not.
struct LogError : FileError { using FileError::FileError; };

Log read_log(const std::string& path, Index bytes, const std::string& checkpoint) {
  try {
    return Log(path, bytes);
  } catch (const FileError& e) {
    if (e.error_number != 0 && e.error_number != ENOENT) throw;
    throw LogError(fmt::format("{}: its log {}", checkpoint, e.what()), e.error_number);
  }
}

// Gives a file a free name beside its own: NAME.old, NAME.old.old, .. Returns it.
std::string set_aside(const std::string& file) {
  std::string kept = file + ".old";
  while (fs::exists(kept)) kept += ".old";
  fs::rename(file, kept);
  return kept;
}

// Stands beside the checkpoints, whose bits do not depend on the clock; of the log the last line may be many updates old.
std::string seconds_file(const std::string& run) { return (fs::path(run) / "seconds.json").string(); }

// Seconds of training up to the checkpoint of this step, at least; 0 where only later ones are known.
double seconds_until(const std::string& run, Index step) try {
  const Json json = parse_json(read_file(seconds_file(run), 1000));
  const bool holds = json.is_object() && json.contains("step") && json["step"].is_number_integer() && json.contains("seconds") &&
                     json["seconds"].is_number();
  return holds && json["step"].get<Index>() <= step ? json["seconds"].get<double>() : 0;
} catch (const FileError&) {                       // missing or broken, it says nothing
  return 0;
}

}  // namespace

std::string Training::in_run(std::string_view name) const { return (fs::path(run_.path) / name).string(); }

// ---- saving ---------------------------------------------------------------------------------------------------------

bool Training::written(const std::function<void()>& f) {
  try {
    f();
    return true;
  } catch (const FileError& e) {
    if (!is_full(e.error_number) || run_.config.if_full == "stop") throw Fault(e.what());
    full_ = e.what();
    progress_.warn(fmt::format("{}; going on, the next save tries again", full_));
    return false;
  }
}

void Training::save_best() {
  if (!unsaved_best_) return;
  write_best(run_, *unsaved_best_, gru_forms(parameters_.select()), state_.best);
  unsaved_best_.reset();
}

bool Training::save() {
  saved_at_ = seconds();
  return written([&] {
    log_.sync();
    save_best();
    Checkpoint checkpoint{step(), trainer_->tensors(), state_json(), gru_forms(parameters_.select())};
    for (const auto& [name, value] : state(parameters_)) checkpoint.tensors[std::string(kModelPrefix) + name] = value;
    write_checkpoint(run_, checkpoint);
    saved_ = step();
    remove_old_checkpoints(run_.path, step(), run_.config.keep, state_.best);
    save_seconds();
  });
}

void Training::save_seconds() const {
  write_file_atomically(seconds_file(run_.path), fmt::format("{{\"step\": {}, \"seconds\": {}}}\n", step(), seconds()));
}

// ---- going on -------------------------------------------------------------------------------------------------------

std::string Training::state_json() const {
  Json json{{"epoch", state_.epoch},
            {"batch", state_.batch},
            {"evaluated", state_.evaluated},
            {"best", state_.best},
            {"waited", state_.waited},
            {"best_bleu", number_or_text(state_.best_bleu)},
            {"best_loss", number_or_text(state_.best_loss)},
            {"skipped_in_a_row", state_.skipped_in_a_row},
            {"loss_sum", number_or_text(state_.loss_sum)},
            {"tokens", state_.tokens},
            {"log_bytes", log_.bytes()},
            {"data", examples_.checksum},
            {"trainer", trainer_->scalars()}};
  RunConfig config = run_.config;
  for (const Option& option : options(config))
    if (is_identity(option.name)) json["config"][std::string(option.name)] = value_text(option);
  return json_text(json);
}

void Training::restore(const Checkpoint& checkpoint, const std::string& file, bool new_log) {
  const auto json = parse_json(checkpoint.state);
  const auto need = [&](bool holds, std::string_view what) {
    if (!holds) throw FileError(fmt::format("{}: state of the training: {}", file, what));
  };
  need(json.is_object(), "no JSON object");
  constexpr Index kMost = Index{1} << 53;
  const auto count = [&](const char* key, Index& to, Index least) {
    need(json.contains(key) && json[key].is_number_integer(), fmt::format("no whole number \"{}\"", key));
    const bool beyond = json[key].is_number_unsigned() && json[key].get<std::uint64_t>() > std::uint64_t(kMost);
    to = beyond ? kMost + 1 : json[key].get<Index>();
    need(to >= least && !beyond,
         fmt::format("\"{}\" is {}, {} expected", key, json_text(json[key]), beyond ? "at most 2^53" : fmt::format("at least {}", least)));
  };
  const auto number = [&](const char* key, double& to) {
    need(json.contains(key) && (json[key].is_number() || json[key].is_string()), fmt::format("no number \"{}\"", key));
    const std::string text = json[key].is_string() ? json[key].get<std::string>() : json_text(json[key]);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), to);
    need(error == std::errc() && end == text.data() + text.size(), fmt::format("no number \"{}\"", key));
  };
  need(json.contains("data") && json["data"].is_string() && json.contains("trainer") && json["trainer"].is_object() &&
           json.contains("config") && json["config"].is_object(),
       "entries are missing");
  State state;
  Index log_bytes = 0;
  count("epoch", state.epoch, 0), count("batch", state.batch, 0), count("evaluated", state.evaluated, -1), count("best", state.best, -1);
  count("waited", state.waited, 0), count("skipped_in_a_row", state.skipped_in_a_row, 0), count("tokens", state.tokens, 0),
      count("log_bytes", log_bytes, 0);
  number("best_bleu", state.best_bleu), number("best_loss", state.best_loss), number("loss_sum", state.loss_sum);
  if (json["data"] != examples_.checksum)
    throw Mistake(fmt::format("the data has changed since {} was written: {} or {}; the data that the training began with", file,
                              data_.train.name, data_.dev.name));
  const auto batches = Index(sampler_->epoch(state.epoch).size());
  need(state.batch < std::max<Index>(batches, 1), fmt::format("\"batch\" is {}, the epoch has {}", state.batch, batches));
  RunConfig config = run_.config;
  for (const Option& option : options(config)) {
    if (!is_identity(option.name)) continue;
    const auto stored = json["config"].find(std::string(option.name));
    if (stored != json["config"].end() && stored->is_string() && *stored != value_text(option))
      throw Mistake(fmt::format("{}: \"{}\" has changed: {}, {} when {} was written; a resumed run goes on as it began",
                                in_run("config.json"), option.name, value_text(option), stored->get<std::string>(), file));
  }
  std::map<std::string, std::string> scalars;
  for (const auto& [key, value] : json["trainer"].items())
    if (value.is_string()) scalars[key] = value.get<std::string>();
  need(scalars["step"] == fmt::format("{}", checkpoint.step) && checkpoint.step <= kMost,
       fmt::format("of the trainer: step \"{}\"", scalars["step"].substr(0, 80)));
  Log read = read_log(in_run("metrics.jsonl"), new_log ? 0 : log_bytes, file);
  load(parameters_.select(), under(checkpoint.tensors, kModelPrefix), checkpoint.gru_forms, file);
  trainer_->restore(checkpoint.tensors, scalars);
  state_ = state;
  log_ = std::move(read);
}

// Other limits than it began with.
void Training::store_config() {
  const std::string file = in_run("config.json"), text = to_json(options(run_.config));
  if (read_file(file) != text) write_file_atomically(file, text);
}

std::optional<Index> Training::restore_newest(const std::vector<Index>& steps) {
  Index without_log = -1;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const auto pass_over = [&](const FileError& e) {
      if (step + 1 == steps.rend() && without_log < 0) throw;
      progress_.warn(fmt::format("passed over: {}", e.what()));
    };
    try {
      restore(read_checkpoint(run_, *step), checkpoint_path(run_.path, *step), false);
      saved_ = *step;
      return *step;
    } catch (const LogError& e) {
      without_log = std::max(without_log, *step);
      pass_over(e);
    } catch (const FileError& e) {
      pass_over(e);
    }
  }
  if (without_log < 0) return {};
  restore(read_checkpoint(run_, without_log), checkpoint_path(run_.path, without_log), true);
  const std::string log = in_run("metrics.jsonl");
  progress_.warn(fmt::format("no checkpoint has a whole log: a new one begins after update {}{}", without_log,
                             fs::exists(log) ? fmt::format(", the old one is {}", set_aside(log)) : ""));
  log_data();
  saved_ = -1;                                     // no checkpoint goes with this log
  return without_log;
}

void Training::take_end(std::string_view lines) {
  for (; !lines.empty(); lines.remove_prefix(lines.find('\n') + 1)) {
    const Json json = parse_json(lines.substr(0, lines.find('\n')));
    const auto number = [&](const char* key) { return json.at(key).is_number() ? json.at(key).get<double>() : NAN; };
    try {
      seconds_before_ = json.at("timing").at("seconds").get<double>();
      if (json.at("event") == "dev" && json.at("best") == true)
        state_.best = json.at("step").get<Index>(), state_.best_bleu = number("bleu"), state_.best_loss = number("loss");
    } catch (const Json::exception&) {
      throw FileError(fmt::format("{}: not as it was written: {}", in_run("metrics.jsonl"), quote(lines.substr(0, lines.find('\n')))));
    }
  }
}

// What was best at the end of a shorter training may be no evaluation of a longer one: it is set aside. A better model found after the
// checkpoint that was restored is not yet found; one that was lost is made of its checkpoint.
void Training::restore_best() {
  const std::optional<Index> there = best_step(run_);
  if (there.value_or(-1) == state_.best) return;
  const bool comes_again = there == step() && evaluation_due();   // killed between the evaluation and its checkpoint
  if (there && *there <= step() && !comes_again)
    progress_.warn(fmt::format("the best model was that of update {}, evaluated only because the training before ended there; this one goes "
                               "on as if it had not, by its own evaluations: that model is kept as {}",
                               *there, set_aside(in_run("best.safetensors"))));
  const std::string best = checkpoint_path(run_.path, state_.best);
  if (state_.best < 0) fs::remove(in_run("best.safetensors"));
  else if (fs::exists(best)) {
    const SafetensorsFile weights = read_weights(best, &run_);
    write_best(run_, weights.tensors, weights.metadata, state_.best);
  }
}

bool Training::resume() {
  lock_ = std::make_unique<RunLock>(run_.path);
  const std::vector<Index> steps = checkpoint_steps(run_.path);
  log_ = Log(in_run("metrics.jsonl"), 0);
  if (const std::optional<Index> step = restore_newest(steps)) {
    seconds_before_ = std::max(log_.seconds(), seconds_until(run_.path, *step));
    if (const std::string end = end_after(in_run("metrics.jsonl"), log_.bytes()); !reached().empty() && !end.empty()) {
      take_end(end);
      if (state_.best >= 0) restore_best();
      progress_.note(fmt::format("{} is finished: {} ({})", run_.path, counted(*step, "update"), reached()));
      return false;
    }
    store_config();
    log_.cut();
    restore_best();
    progress_.note(fmt::format("going on after update {}", *step));
    check_schedule();
    return true;
  }
  if (const std::string log = in_run("metrics.jsonl"), best = in_run("best.safetensors"); fs::exists(best) && goes_beyond_evaluation(log)) {
    const std::string kept = set_aside(best);      // first: while it stands there, what the log says protects it
    progress_.warn(fmt::format("its checkpoints are gone: what there is of the training before is now {} and {}", kept, set_aside(log)));
  }
  progress_.note(fmt::format("{} has no checkpoint yet: starting from 0", run_.path));
  make_directory(in_run("checkpoints"));
  store_config();
  start_from_file();
  log_.cut();
  log_data();
  check_schedule();
  return true;
}

void check_within(const RunConfig& limits, const std::string& path) {
  if (!fs::exists(fs::path(path) / "config.json")) return;
  const Run run = open_run(path);
  const std::vector<Index> steps = checkpoint_steps(path);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    Index epochs = 0;
    double minutes = 0;
    try {
      const Json state = parse_json(read_checkpoint(run, *step).state);
      const auto count = [&](const char* key) { return std::clamp<Index>(state.at(key).get<Index>(), 0, Index{1} << 53); };
      epochs = count("epoch") + (count("batch") > 0);
      minutes = std::max(Log((fs::path(path) / "metrics.jsonl").string(), count("log_bytes")).seconds(), seconds_until(path, *step)) / 60;
    } catch (const FileError&) {                   // passed over, as by Training::resume
      continue;
    } catch (const Json::exception&) {
      continue;
    }
    const auto check = [&](bool beyond, std::string_view limit, auto asked, auto reached) {
      if (beyond)
        throw Mistake(fmt::format("trained beyond the limit: {} has {}: --{} {}; --{} {}, or another --out", path, counted(*step, "update"),
                                  limit, asked, limit, reached));
    };
    constexpr Index kEndless = 1000000000;         // the most that --patience takes
    const Index patience = run.config.patience.value_or(kEndless);
    check(limits.steps && *step > *limits.steps, "steps", limits.steps.value_or(0), *step);
    check(limits.epochs && epochs > *limits.epochs, "epochs", limits.epochs.value_or(0), epochs);
    check(limits.patience && *limits.patience < patience, "patience", limits.patience.value_or(0), patience);   // it may have waited longer
    check(limits.minutes > 0 && limits.minutes != run.config.minutes && minutes > limits.minutes, "minutes", limits.minutes,
          std::ceil(minutes));
    return;
  }
}

}  // namespace heed::cli
