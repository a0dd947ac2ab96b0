// SPDX-License-Identifier: Apache-2.0
#include "examples/cli/comparison.h"

#include <algorithm>
#include <filesystem>

#include "models/chart.h"
#include "models/drawing.h"
#include "models/text.h"
#include "tensor/file.h"
#include "tensor/format.h"

namespace heed::cli {
namespace {

using Result = ComparedResult;
using Group = ComparedGroup;

}  // namespace

Json to_json(const Result& r) {
  Json json{{"name", r.name},
            {"seed", r.seed},
            {"width", r.width},
            {"parameters", r.parameters},
            {"best_step", r.steps},
            {"multiply_adds_per_word", r.multiply_adds},
            {"step_ms", r.step_ms},
            {"train_loss", r.train_loss},
            {"dev_loss", r.dev_loss},
            {"bleu", r.bleu},
            {"exact", r.exact},
            {"aer_predicted", r.alignment.error_predicted},
            {"aer_input", r.alignment.error_input},
            {"entropy", r.alignment.entropy},
            {"bleu_by_length", Json::array()}};
  for (const Result::Bucket& b : r.buckets)
    json["bleu_by_length"].push_back({{"above", b.above}, {"up_to", b.up_to}, {"sentences", b.sentences}, {"bleu", b.bleu}});
  return json;
}

std::optional<Result> compared_result(const Json& json) {
  try {
    const auto real = [&](const char* name) { return json.at(name).is_null() ? NAN : json.at(name).get<double>(); };
    Result r{.name = json.at("name"),
             .seed = json.at("seed"),
             .width = json.at("width"),
             .parameters = json.at("parameters"),
             .steps = json.at("best_step"),
             .multiply_adds = real("multiply_adds_per_word"),
             .step_ms = real("step_ms"),
             .train_loss = real("train_loss"),
             .dev_loss = real("dev_loss"),
             .bleu = real("bleu"),
             .exact = real("exact"),
             .alignment = {.error_predicted = real("aer_predicted"), .error_input = real("aer_input"), .entropy = real("entropy")},
             .buckets = {}};
    for (const Json& b : json.at("bleu_by_length"))
      r.buckets.push_back({b.at("above"), b.at("up_to"), b.at("sentences"), b.at("bleu").is_null() ? NAN : b.at("bleu").get<double>()});
    return r;
  } catch (const Json::exception&) {
    return {};
  }
}

namespace {

struct Column {
  std::string_view title, csv;
  double (*value)(const Result&);
  int digits;
};
constexpr Column kColumns[] = {
    {"parameters", "parameters", [](const Result& r) { return double(r.parameters); }, -1},
    {"width", "width", [](const Result& r) { return double(r.width); }, -1},
    {"mult-adds/word", "multiply_adds_per_word", [](const Result& r) { return r.multiply_adds; }, -1},
    {"ms/step", "step_ms", [](const Result& r) { return r.step_ms; }, 1},
    {"train loss", "train_loss", [](const Result& r) { return r.train_loss; }, 4},
    {"dev loss", "dev_loss", [](const Result& r) { return r.dev_loss; }, 4},
    {"BLEU", "bleu", [](const Result& r) { return r.bleu; }, 2},
    {"exact %", "exact", [](const Result& r) { return r.exact; }, 1},
    {"AER predicted", "aer_predicted", [](const Result& r) { return r.alignment.error_predicted; }, 3},
    {"AER input", "aer_input", [](const Result& r) { return r.alignment.error_input; }, 3},
    {"entropy", "entropy", [](const Result& r) { return r.alignment.entropy; }, 3},
};

double mean(const Group& group, auto&& value) {
  double sum = 0;
  for (const Result& r : group.results) sum += value(r);
  return sum / double(group.results.size());
}

// Standard deviation of the seeds, 0 for one.
double spread(const Group& group, auto&& value) {
  const double m = mean(group, value);
  double sum = 0;
  for (const Result& r : group.results) sum += (value(r) - m) * (value(r) - m);
  return group.results.size() > 1 ? std::sqrt(sum / double(group.results.size() - 1)) : 0;
}

// Those of a model that translates, as all have them.
const std::vector<Result::Bucket>& buckets_of(std::span<const Group> groups) {
  for (const Group& group : groups)
    for (const Result& r : group.results)
      if (!r.buckets.empty()) return r.buckets;
  return groups[0].results[0].buckets;
}

// The BLEU of a result over the sentences of this length.
auto in_bucket(const Result::Bucket& which) {
  return [&which](const Result& r) {
    for (const Result::Bucket& b : r.buckets)
      if (b.above == which.above) return b.bleu;
    return double(NAN);
  };
}

std::string cell(double value, double spread, int digits) {
  if (!std::isfinite(value)) return "-";
  if (digits < 0) return with_commas(fmt::format("{:.0f}", std::round(value)));
  return spread > 0 ? fmt::format("{:.{}f} ±{:.{}f}", value, digits, spread, digits) : fmt::format("{:.{}f}", value, digits);
}

std::string aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<int> wide;
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) {
      wide.resize(std::max(wide.size(), row.size()));
      wide[i] = std::max(wide[i], drawing::columns(row[i]));
    }
  std::string out;
  for (const auto& row : rows) {
    std::string line = row[0] + std::string(std::size_t(wide[0] - drawing::columns(row[0])), ' ');
    for (std::size_t i = 1; i < row.size(); ++i) line += "  " + drawing::pad_left(row[i], wide[i]);
    out += line + "\n";
  }
  return out;
}

std::string csv_table(std::span<const Group> groups) {
  std::string out = "attention,seed";
  for (const Column& column : kColumns) out += fmt::format(",{}", column.csv);
  const std::vector<Result::Bucket>& buckets = buckets_of(groups);
  for (const auto& b : buckets) out += fmt::format(",bleu_{}_to_{}", b.above + 1, b.up_to);
  out += "\n";
  for (const Group& group : groups)
    for (const Result& r : group.results) {
      out += fmt::format("{},{}", r.name, r.seed);
      for (const Column& column : kColumns) out += "," + (std::isfinite(column.value(r)) ? fmt::format("{}", column.value(r)) : "");
      for (const auto& b : buckets) out += "," + (std::isfinite(in_bucket(b)(r)) ? fmt::format("{}", in_bucket(b)(r)) : "");
      out += "\n";
    }
  return out;
}

// Whether widths could make the models alike.
std::string sizes(std::span<const Group> groups) {
  std::vector<double> all;
  for (const Group& group : groups) all.push_back(double(group.results[0].parameters));
  const auto [low, high] = std::ranges::minmax(all);
  if (high <= 1.1 * low) return "widths chosen so that all have nearly as many parameters.";
  return fmt::format("widths chosen so that numbers of parameters are as near as widths allow: {} to {}.", drawing::number(low),
                     drawing::number(high));
}

}  // namespace

std::string text_table(std::span<const Group> groups, const ComparisonStyle& style) {
  std::vector<std::vector<std::string>> rows{{"attention"}}, lengths{{"attention"}};
  for (const Column& column : kColumns)
    rows[0].push_back(column.csv == "bleu"                     ? style.bleu
                      : column.csv == "multiply_adds_per_word" ? fmt::format("mult-adds/{}", style.noun)
                                                               : std::string(column.title));
  const std::vector<Result::Bucket>& buckets = buckets_of(groups);
  for (const auto& b : buckets) lengths[0].push_back(fmt::format("{} to {} ({})", b.above + 1, b.up_to, b.sentences));
  for (const Group& group : groups) {
    rows.push_back({group.name});
    for (const auto& [title, csv, value, digits] : kColumns) rows.back().push_back(cell(mean(group, value), spread(group, value), digits));
    lengths.push_back({group.name});
    for (const auto& b : buckets) lengths.back().push_back(cell(mean(group, in_bucket(b)), 0, 2));
  }
  return aligned(rows) + fmt::format("\n{} by source {}s (sentences), {}\n", style.bleu, style.noun, style.split) + aligned(lengths);
}

void write_tables(const std::string& folder, std::span<const Group> groups, const ComparisonStyle& style) {
  const auto path = [&](const char* name) { return (std::filesystem::path(folder) / name).string(); };
  write_file_atomically(path("table.txt"), text_table(groups, style));
  write_file_atomically(path("table.csv"), csv_table(groups));
  const std::string seeds =
      style.seeds > 1 ? fmt::format(" Means of {} seeds; whiskers: one standard deviation to each side.", style.seeds) : "";
  std::vector<std::string> names;
  for (const Group& group : groups) names.push_back(group.name);
  const auto series = [&](std::string name, auto value) {
    Bars::Series made{.name = std::move(name)};
    for (const Group& group : groups) made.values.push_back(mean(group, value)), made.spread.push_back(spread(group, value));
    if (style.seeds == 1) made.spread.clear();
    return made;
  };
  write_file_atomically(path("bleu.svg"), bars_svg({.title = style.bleu + " by attention",
                                                    .caption = "The same data, order of data and budget; " + sizes(groups) + seeds,
                                                    .value_title = style.bleu + " on " + style.split,
                                                    .groups = names,
                                                    .series = {series("", [](const Result& r) { return r.bleu; })}}));
  std::error_code ignored;
  if (std::ranges::none_of(groups, [](const Group& g) { return std::isfinite(g.results[0].alignment.error_predicted); }))
    std::filesystem::remove(path("alignment.svg"), ignored);          // of a table before
  else
    write_file_atomically(
        path("alignment.svg"),
        bars_svg({.title = "Alignment error rate by attention",
                  .caption = "One link a target word, the largest weight of its row: of the row that predicts the word, or of the row "
                             "after it, which has read it. Lower is better." +
                             seeds,
                  .value_title = "alignment error rate",
                  .groups = names,
                  .series = {series("row that predicts the word", [](const Result& r) { return r.alignment.error_predicted; }),
                             series("row that has read it", [](const Result& r) { return r.alignment.error_input; })}}));
  Curves::Panel panel{.title = style.bleu + " on " + style.split};
  for (const Group& group : groups) {
    Curves::Series line{.name = group.name};
    for (const auto& b : buckets_of(groups)) {
      line.x.push_back(double(b.above + b.up_to + 1) / 2);
      line.y.push_back(mean(group, in_bucket(b)));
      if (style.seeds > 1) line.spread.push_back(spread(group, in_bucket(b)));
    }
    panel.series.push_back(std::move(line));
  }
  write_file_atomically(path("length.svg"),
                        curves_svg({.title = style.bleu + " by the length of the source",
                                    .caption = fmt::format("Buckets of {}; each point stands at the middle of its bucket.",
                                                           counted(style.bucket, style.noun)) +
                                               seeds,
                                    .x_title = fmt::format("source {}s", style.noun),
                                    .panels = {panel}}));
}

}  // namespace heed::cli
