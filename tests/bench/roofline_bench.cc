// SPDX-License-Identifier: Apache-2.0
// The machine's limits as one line of JSON: rates in 1e9 a second, of one thread and of all.   roofline_bench [--threads N]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>
#include <set>

#include "tensor/format.h"
#include "tensor/json.h"
#include "tests/bench/roofline.h"
#include "tests/every_target.h"

int main(int argc, char** argv) {
  using namespace heed;
  CLI::App app("Peaks and bandwidths of this machine.");
  std::optional<int> asked;
  app.add_option("--threads", asked)->check(CLI::Range(1, 1024));
  CLI11_PARSE(app, argc, argv);
  const int count = asked.value_or(threads());
  const std::set<int> counts{1, count};

  Json peaks, bandwidths;
  for_every_target([&] {
    for (const int n : counts) peaks[instruction_set()][std::to_string(n)] = bench::multiply_add_peak(n) * 1e-9;
  });
  // Half of a cache, so that what else is in it stays. All threads share L3; of that of a big machine a guest may have a small part.
  const CacheSizes caches = cache_sizes();
  const std::size_t l3 = std::min(caches.l3, std::size_t{32} << 20);
  for (const int n : counts) {
    const std::pair<const char*, std::size_t> levels[] = {{"L1", caches.l1 / 2}, {"L2", caches.l2 / 2}, {"L3", l3 / 2 / std::size_t(n)},
        {"DRAM", std::clamp(4 * caches.l3, std::size_t{256} << 20, std::size_t{1} << 30) / std::size_t(n)}};
    for (const auto& [level, bytes] : levels) {
      if (bytes == 0) continue;
      const bench::Bandwidth found = bench::bandwidth(bytes, n);
      bandwidths[level][std::to_string(n)] = {{"bytes_a_thread", bytes}, {"read", found.read * 1e-9}, {"write", found.write * 1e-9}};
    }
  }
  const bench::FirstTouch touch = bench::first_touch();
  fmt::print("{}\n", json_text({{"context", describe_context()},
                                {"isa", instruction_set()},
                                {"clock", bench::clock_rate() * 1e-9},
                                {"peak", peaks},
                                {"bandwidth", bandwidths},
                                {"first_touch_us", {{"4 KiB", touch.page * 1e6}, {"2 MiB", touch.huge * 1e6}}}}));
}
