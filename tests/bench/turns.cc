// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/turns.h"

#include <algorithm>
#include <iostream>
#include <string_view>
#include <vector>

#include "tensor/context.h"
#include "tensor/json.h"

namespace heed::bench {

namespace {

std::vector<std::string>& names() {
  static std::vector<std::string> all;
  return all;
}

class Answer : public benchmark::BenchmarkReporter {
 public:
  Json measured;

  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      measured["seconds"] = run.real_accumulated_time / double(run.iterations);
      for (const auto& [name, counter] : run.counters) measured[name] = counter.value;
    }
  }
};

std::string exactly(const std::string& name) {   // as a regular expression
  std::string pattern = "^";
  for (const char c : name) {
    if (std::string_view("\\^$.|?*+()[]{}").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern + "/real_time$";
}

}  // namespace

void add(const std::string& name, std::function<void(benchmark::State&)> measure, benchmark::TimeUnit unit) {
  benchmark::RegisterBenchmark(name.c_str(), std::move(measure))->UseRealTime()->Unit(unit);
  names().push_back(name);
}

int run(int argc, char** argv) {
  const auto asked = std::find(argv, argv + argc, std::string_view("--turns"));
  const bool turns = asked != argv + argc;
  if (turns) argc = int(std::remove(asked, argv + argc, *asked) - argv);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::AddCustomContext("machine", describe_context());
  if (!turns) {
    benchmark::RunSpecifiedBenchmarks();
    return 0;
  }
  std::cout << json_text(Json(names())) << std::endl;
  for (std::string name; std::getline(std::cin, name);) {
    Answer answer;
    benchmark::RunSpecifiedBenchmarks(&answer, exactly(name));
    std::cout << json_text(answer.measured) << std::endl;
  }
  return 0;
}

}  // namespace heed::bench
