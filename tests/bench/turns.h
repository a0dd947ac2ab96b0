// SPDX-License-Identifier: Apache-2.0
// Google Benchmark, also for a program that measures in turns with others.
#pragma once
#include <benchmark/benchmark.h>

#include <functional>
#include <string>

namespace heed::bench {

// Registers a measurement by wall time.
void add(const std::string& name, std::function<void(benchmark::State&)> measure, benchmark::TimeUnit unit = benchmark::kNanosecond);

// What main() returns. Runs what was added; with --turns writes a line of JSON, all names, and then answers each line read, a name,
// by a line of what it measured: {"seconds": of one call, "flop": ..., ...}. --benchmark_min_time=S says how long a turn is.
int run(int argc, char** argv);

}  // namespace heed::bench
