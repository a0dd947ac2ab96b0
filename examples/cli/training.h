// SPDX-License-Identifier: Apache-2.0
// The training of a run: updates, evaluations, the log, pictures, checkpoints from which it goes on as if nothing had happened.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "examples/cli/command.h"
#include "examples/cli/dataset.h"
#include "examples/cli/log.h"
#include "examples/cli/progress.h"
#include "examples/cli/quality.h"
#include "models/run.h"
#include "models/train.h"

namespace heed::cli {

class Training {
 public:
  // Everything but the directory: a mistake that shows here leaves nothing behind.
  Training(Run run, Dataset data, Manner manner);

  void begin();                                    // makes the directory
  bool resume();                                   // from the newest checkpoint that is whole; false: the training is finished
  int run();                                       // the exit code: 0, or 128 + the signal that stopped it
  void result() const;                             // a line on standard output
  Index step() const { return trainer_->step(); }

 private:
  // What decides how the training goes on, beside weights and trainer; in every checkpoint.
  struct State {
    Index epoch = 0, batch = 0;                    // the next batch: which of the epoch's
    Index evaluated = -1;                          // update of the last evaluation
    Index best = -1, waited = 0;                   // update of the best one, evaluations since
    double best_bleu = 0, best_loss = 0;
    Index skipped_in_a_row = 0;
    double loss_sum = 0;                           // since the last line in the log
    Index tokens = 0;
  };
  void start_from_file();                          // --init
  Index updates_of_epoch() const, planned_updates() const;   // INT64_MAX: as many as come
  std::string state_json() const;
  void restore(const Checkpoint& checkpoint, const std::string& file, bool new_log);   // all of it or, by FileError, nothing
  void take_end(std::string_view lines);           // of a finished training's log: what no checkpoint has. FileError
  void restore_best();
  // From the newest checkpoint that is whole: its update; nothing where there are no checkpoints. FileError
  std::optional<Index> restore_newest(const std::vector<Index>& steps);

  void store_config();
  std::string_view reached() const;                // the limit that is reached, or nothing
  double fraction() const;                         // of the way to it
  void check_schedule();                           // warns where its warm-up does not end, and of updates beyond its end
  double seconds() const;
  bool evaluation_due() const;
  void update();
  double speed() const;                            // tokens a second, lately
  double take_update_milliseconds();               // mean since the last call; 0 without updates
  bool evaluate();                                 // false: stopped by a signal
  void copy_best();                                // the weights that are there now, for save_best
  void draw_curves() const;
  void draw_attention();
  // Leaves those of evaluations a tenth later than the last that kept its own, of the newest and of the best.
  void thin_pictures() const;
  void report(const Trainer::Report& last);
  void log_data();
  bool save();                                     // false: the disk is full and the policy is to go on
  void save_best();
  void save_seconds() const;                       // FileError
  void show();
  int stopped();
  void end(std::string_view reason);
  bool written(const std::function<void()>& f);    // false: the disk is full and the policy is to go on
  std::string in_run(std::string_view name) const;   // its path

  Run run_;
  Dataset data_;
  Manner manner_;
  Examples examples_;
  std::unique_ptr<DevPart> dev_;
  std::unique_ptr<RunLock> lock_;
  Parameters parameters_;
  std::unique_ptr<Seq2Seq> model_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<BatchSampler> sampler_;
  std::vector<std::vector<Index>> batches_;        // of the epoch
  Log log_;
  Progress progress_;
  State state_;
  std::optional<DevScore> last_score_;
  std::optional<std::map<std::string, Tensor>> unsaved_best_;
  Index saved_ = -1;
  std::string full_;                               // why the last save failed
  double seconds_before_ = 0, saved_at_ = 0, speed_from_ = 0;
  Index speed_tokens_ = 0;
  double update_seconds_ = 0;                      // of the updates since the last line of the log that told
  Index updates_timed_ = 0;
  std::optional<double> shown_loss_;
  double speed_ = 0;
  std::chrono::steady_clock::time_point start_;
};

// Options of which one replaces the others.
inline constexpr std::string_view kLimits[] = {"steps", "epochs", "minutes"}, kBatches[] = {"batch-tokens", "batch-sentences"};

// Takes over what may change among the options that were asked for; Mistake where another is not what is stored.
void take_over(RunConfig& stored, RunConfig asked, const std::function<bool(const Option&)>& is_asked, const std::string& run);
// Mistake where the run in this directory, if there is one, went beyond the limits.
void check_within(const RunConfig& limits, const std::string& path);
// Trains the run of this config in a directory, or goes on with what is there; 0 where it is finished. Mistake where another is there.
int train_run(const RunConfig& config, const std::string& path, Dataset data, Manner manner);

}  // namespace heed::cli
