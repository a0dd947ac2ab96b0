// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "autograd/samples.h"
#include "examples/cli/command.h"
#include "tensor/json.h"

namespace heed::cli {
namespace {

struct Row {
  std::string function;
  Index samples = 0;
  double error = 0;
  std::string worst;                               // sample and element
};

}  // namespace

int check_gradients(std::span<const std::string> words) {
  double tolerance = 1e-6;
  std::string only;
  Manner manner;
  const Syntax syntax{.command = "check-gradients",
                      .usage = "[options]",
                      .about = "Compares the gradient of every differentiable function with central differences in f64.",
                      .example = "heed check-gradients --only softmax",
                      .options = std::vector<Option>{
                          {.name = "only", .value = &only, .takes = "NAME", .help = "functions whose name contains this"},
                          {.name = "tolerance", .value = &tolerance, .takes = "X",
                           .help = "largest relative error allowed", .low = 0, .high = 1, .standard = "1e-06"}
                      } + options(manner)};
  if (!parse(syntax, words)) return 0;
  std::vector<Row> rows;
  for (const Sample& sample : samples()) {
    const std::string function = sample.function();
    if (function.find(only) == function.npos) continue;
    auto row = std::ranges::find(rows, function, &Row::function);
    if (row == rows.end()) row = rows.insert(rows.end(), Row{function, 0, 0, {}});
    const GradientReport report = check_gradient(sample.f, sample_inputs(sample));
    ++row->samples;
    if (report.error >= row->error) row->error = report.error, row->worst = sample.name + ": " + report.worst;
  }
  if (rows.empty()) throw Mistake(fmt::format("no such function: --only {}; `heed check-gradients` lists all", only));
  Index bad = 0;
  double largest = 0;
  std::size_t wide = 8;
  for (const Row& row : rows)
    bad += !(row.error <= tolerance), largest = std::max(largest, row.error), wide = std::max(wide, row.function.size());
  if (manner.json) {
    Json json{{"tolerance", tolerance}, {"largest", largest}, {"functions", Json::array()}};
    for (const Row& row : rows)
      json["functions"].push_back({{"name", row.function}, {"samples", row.samples}, {"error", row.error}, {"worst", row.worst}});
    print(json_text(json) + "\n");
  } else {
    print(fmt::format("{:<{}}  samples  largest relative error\n", "function", wide));
    for (const Row& row : rows)
      print(fmt::format("{:<{}}  {:>7}  {:.1e}{}\n", row.function, wide, row.samples, row.error,
                        row.error <= tolerance ? "" : "  TOO LARGE  " + row.worst));
    print(fmt::format("{} functions, largest error {:.1e}\n", rows.size(), largest));
  }
  flush();
  if (bad > 0)
    throw Fault(
        fmt::format("gradients of {} functions of {} differ from central differences by more than {}", bad, rows.size(), tolerance));
  return 0;
}

}  // namespace heed::cli
