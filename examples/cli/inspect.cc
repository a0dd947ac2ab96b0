// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <filesystem>

#include "examples/cli/command.h"
#include "examples/cli/log.h"
#include "examples/cli/quality.h"
#include "models/drawing.h"
#include "models/run.h"
#include "models/text.h"
#include "nn/checkpoint.h"
#include "nn/summary.h"
#include "tensor/file.h"
#include "tensor/format.h"
#include "tensor/json.h"
#include "tensor/safetensors.h"

namespace heed::cli {
namespace fs = std::filesystem;
namespace {

struct Counts {
  Index nans = 0, infinities = 0;
};

Counts count(const Tensor& x) {
  Counts counts;
  if (!is_float(x.dtype()) && x.dtype() != DType::bf16) return counts;
  const Tensor values = to(x, x.dtype() == DType::f64 ? DType::f64 : DType::f32).contiguous();
  visit_float(values.dtype(), "inspect", [&]<class T>() {
    for (const T v : values.span<T>()) counts.nans += std::isnan(v), counts.infinities += std::isinf(v);
  });
  return counts;
}

std::string shortened(const std::string& text) {
  constexpr std::size_t kLongest = 300;
  const std::string clean = drawing::printable(text);
  return clean.size() <= kLongest ? clean : drawing::shorten(clean, int(kLongest)) + fmt::format(" ({} bytes)", text.size());
}

void inspect_file(const std::string& path, const Manner& manner) {
  const SafetensorsFile file = read_safetensors(path);
  Index elements = 0, nans = 0, infinities = 0, unread = 0;
  Json json{{"file", path}, {"bytes", file.header.file_bytes}, {"checksum", file.has_checksum ? "right" : "none"},
            {"metadata", file.metadata}, {"tensors", Json::array()}};
  std::size_t wide = 6, shape_wide = 5;
  const auto make_room = [&](const std::string& name, const Shape& shape) {
    wide = std::max(wide, name.size()), shape_wide = std::max(shape_wide, to_string(shape).size());
  };
  for (const auto& [name, value] : file.tensors) make_room(name, value.shape());
  for (const auto& [name, other] : file.others) make_room(name, other.shape);
  wide = std::min<std::size_t>(wide, 80);
  std::string lines;
  const auto add = [&](const std::string& name, std::string_view dtype, const Shape& shape, const std::optional<Counts>& seen,
                       std::string_view more) {
    const Counts counts = seen.value_or(Counts{});
    elements += shape.numel(), nans += counts.nans, infinities += counts.infinities, unread += !seen;
    std::string flaws;
    if (counts.nans) flaws += fmt::format("  {} NaN", counts.nans);
    if (counts.infinities) flaws += fmt::format("  {} Inf", counts.infinities);
    lines += fmt::format("{:<{}}  {:<5} {:<{}} {:>12}{}{}\n", drawing::printable(name), wide, dtype, to_string(shape), shape_wide,
                         shape.numel(), flaws, more);
    std::vector<Index> sizes;
    for (int i = 0; i < shape.rank(); ++i) sizes.push_back(shape[i]);
    json["tensors"].push_back({{"name", name}, {"dtype", dtype}, {"shape", sizes}, {"nan", seen ? Json(counts.nans) : nullptr},
                               {"inf", seen ? Json(counts.infinities) : nullptr}});
  };
  std::map<std::pair<const void*, Index>, std::string> names;
  for (const auto& [name, value] : file.tensors) {
    const auto [at, fresh] = names.try_emplace(
        {value.numel() ? value.contiguous().storage().data() : nullptr, value.numel() ? value.offset() : Index(names.size()) - 1}, name);
    if (fresh) add(name, heed::name(value.dtype()), value.shape(), count(value), "");
    else {
      lines += fmt::format("{:<{}}  the same as {}\n", drawing::printable(name), wide, drawing::printable(at->second));
      json["tensors"].push_back({{"name", name}, {"same_as", at->second}});
    }
  }
  for (const auto& [name, other] : file.others)
    add(name, other.stored_as, other.shape, std::nullopt, "  (a dtype that Heed does not compute with)");
  if (manner.json) {
    print(json_text(json) + "\n");
    return;
  }
  print(fmt::format("{}: {}, {}, {}; checksum {}\n", path, size_text(double(file.header.file_bytes)),
                    counted(Index(file.header.tensors.size()), "tensor"), counted(elements, "element"),
                    file.has_checksum ? "right" : "none in the file"));
  for (const auto& [key, value] : file.metadata) print(fmt::format("{}: {}\n", drawing::printable(key), shortened(value)));
  print(lines);
  print(nans + infinities > 0 ? fmt::format("NaN {}, infinite {}", nans, infinities)
        : unread > 0          ? "all values that were read are finite"
                              : "all values are finite");
  print(unread > 0 ? fmt::format("; not read: those of {}\n", counted(unread, "tensor")) : "\n");
}

// The last dev scores of the log, and its last line.
std::string last_scores(const std::string& path, const std::string& bleu) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return {};
  std::string dev, end;
  each_entry(path, [&](const Json& json) {
    if (!json.contains("event")) return;
    // null: not finite
    const auto number = [&](const char* key) { return json.contains(key) && json[key].is_number() ? json[key].get<double>() : NAN; };
    if (json["event"] == "dev")
      dev = fmt::format("last evaluation: update {}, dev loss {:.4f}, {} {:.2f}, exact {:.1f} %\n", number("step"), number("loss"), bleu,
                        number("bleu"), number("exact"));
    if (json["event"] == "end" && json.contains("reason") && json["reason"].is_string())
      end = fmt::format("finished: {} ({})\n", number("step"), json["reason"].get<std::string>());
  });
  return dev + end;
}

// Whether all files of weights are whole.
bool inspect_run(const std::string& path, const Manner& manner) {
  Run run = open_run(path);
  Parameters parameters(Seed{0});
  const auto model = make_model(run.config, parameters.root(), run.source.vocabulary, run.target.vocabulary);
  std::vector<Index> steps = checkpoint_steps(path);
  const std::optional<Index> best = best_step(run);
  std::vector<std::string> damaged;
  const auto is_whole = [&](auto&& read) {
    try {
      read();
      return true;
    } catch (const FileError& e) {
      if (e.error_number != ENOENT) damaged.push_back(e.what());   // else a training that runs has deleted it meanwhile
      return false;
    }
  };
  const auto load_weights = [&](const std::string& file) { load(parameters.select(), read_weights(file, &run)); };
  for (const Index step : steps) is_whole([&] { read_checkpoint(run, step), load_weights(checkpoint_path(path, step)); });
  std::erase_if(steps, [&](Index step) { return !fs::exists(checkpoint_path(path, step)); });
  const std::string best_file = (fs::path(path) / "best.safetensors").string();
  const std::string best_text = !fs::exists(best_file)                          ? "none"
                                : !is_whole([&] { load_weights(best_file); }) ? "damaged"
                                : best                                          ? fmt::format("of update {}", *best)
                                                                                : "of an unknown update";
  if (manner.json) {
    Json json{{"run", path}, {"config", parse_json(to_json(options(run.config)))}, {"source_words", run.source.vocabulary.size()},
              {"target_words", run.target.vocabulary.size()}, {"parameters", parameters.count()}, {"checkpoints", steps}};
    json["best"] = best ? Json(*best) : Json(nullptr);
    json["damaged"] = damaged;
    print(json_text(json) + "\n");
    return damaged.empty();
  }
  print(fmt::format("{}: {}, by options that differ from the defaults\n", path, run.config.model));
  RunConfig fresh = default_config(run.config.model, run.config.schedule, run.config.optimizer);
  const std::vector<Option> now = options(run.config), standard = options(fresh);
  for (std::size_t i = 0; i < now.size(); ++i)
    if (value_text(now[i]) != value_text(standard[i])) print(fmt::format("  --{} {}\n", now[i].name, value_text(now[i])));
  print(fmt::format("source: {0} {2}s, tokenizer {3}\ntarget: {1} {2}s, tokenizer {3}\n", run.source.vocabulary.size(),
                    run.target.vocabulary.size(), run.source.tokenizer.options().noun(), run.source.tokenizer.options().name));
  print(fmt::format("checkpoints: {}\n", steps.empty() ? "none" : fmt::format("{}", fmt::join(steps, ", "))));
  print(fmt::format("best.safetensors: {}\n", best_text));
  if (damaged.empty() && (!steps.empty() || fs::exists(best_file))) print("all files of weights are whole, their checksums right\n");
  for (const std::string& what : damaged) print(fmt::format("damaged: {}\n", drawing::printable(what)));
  print(last_scores((fs::path(path) / "metrics.jsonl").string(), bleu_name(run.config)));
  print("\n" + summary(parameters));
  return damaged.empty();
}

}  // namespace

int inspect(std::span<const std::string> words) {
  std::string path;
  Manner manner;
  const Syntax syntax{.command = "inspect",
                      .usage = "PATH     a run, a checkpoint, or any .safetensors",
                      .about = "Shows what a run or a file of weights holds, and verifies its checksum. In a run it verifies that of each checkpoint: the exit code is 1 where one is damaged.",
                      .example = "heed inspect phrases/best.safetensors",
                      .options = options(manner),
                      .words = {{"PATH", &path}}};
  if (!parse(syntax, words)) return 0;
  if (fs::is_directory(path)) return inspect_run(path, manner) ? 0 : 1;
  inspect_file(path, manner);
  return 0;
}

}  // namespace heed::cli
