// SPDX-License-Identifier: Apache-2.0
// Files that want much memory or time for few bytes:
// refused in a second, within 16 MB beside their own size, which the longest texts take twice.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "models/vocabulary.h"
#include "tensor/file.h"
#include "tensor/format.h"
#include "tensor/safetensors.h"
#include "tests/temporary_folder.h"

using namespace heed;

namespace {

struct Cost {
  int code;
  double seconds, megabytes;
};

// f in a process of its own; exit code 0: an Error, 1: none, else something worse.
Cost cost_of(const std::function<void()>& f) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      f();
    } catch (const Error&) {
      ::_exit(0);
    } catch (...) {
      ::_exit(2);
    }
    ::_exit(1);
  }
  int status = -1;
  struct rusage use {};
  REQUIRE(::wait4(child, &status, 0, &use) == child);
  const auto seconds = [](const timeval& t) { return double(t.tv_sec) + 1e-6 * double(t.tv_usec); };
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, seconds(use.ru_utime) + seconds(use.ru_stime), double(use.ru_maxrss) / 1024};
}

std::string with_length(const std::string& json, const std::string& data = {}) {
  const std::uint64_t n = json.size();
  return std::string(reinterpret_cast<const char*>(&n), 8) + json + data;
}

std::string repeated(std::string_view piece, std::size_t size) {
  std::string out;
  out.reserve(size + piece.size());
  while (out.size() < size) out += piece;
  return out;
}

std::string entries(int count, const char* shape, const char* offsets) {
  std::string json;
  for (int i = 0; i < count; ++i)
    json += fmt::format("{}\"{}\":{{\"dtype\":\"U8\",\"shape\":{},\"data_offsets\":{}}}", i ? "," : "", i, shape, offsets);
  return json;
}

}  // namespace

TEST_CASE("attack files are refused in a second, within 16 MB beside their own size") {
  const TemporaryFolder folder;
  const std::string path = folder / "f";
  const auto refused = [&](const char* name, std::string bytes, const std::function<void(const std::string&)>& read,
                           [[maybe_unused]] double sizes = 1) {
    INFO(std::string(name));
    write_file_atomically(path, bytes);
    [[maybe_unused]] const double size = double(bytes.size()) / 0x1p20;
    bytes = {};
    [[maybe_unused]] const double before = cost_of([] {}).megabytes;        // of what this process holds
    const Cost cost = cost_of([&] { read(path); });
    CHECK(cost.code == 0);
#ifndef __SANITIZE_ADDRESS__                       // which takes time and memory
    CHECK(cost.seconds < 1);
    CHECK(cost.megabytes - before < sizes * size + 16);
#endif
  };
  const auto weights = [](const std::string& file) { (void)read_safetensors(file); };
  const std::size_t large = 4 << 20;
  refused("length of the header: 2^63", std::string("\0\0\0\0\0\0\0\x80", 8) + "{}", weights);
  refused("length of the header: 100 MB, which are not there", std::string("\0\xe1\xf5\x05\0\0\0\0", 8) + "{}", weights);
  refused("lists in lists", with_length("{\"a\":" + repeated("[", large) + "}"), weights);
  refused("objects in objects", with_length("{" + repeated("\"a\":{", large) + "}"), weights);
  refused("a name that does not end", with_length("{\"" + repeated("a", large) + "}"), weights);
  refused("a text that is whole, and nothing behind it", with_length("{\"__metadata__\":{\"a\":\"" + repeated("a", 4 * large) + "\"}"),
          weights, 2);
  refused("spaces", with_length("{" + repeated(" ", large) + "x}"), weights);
  refused("very many tensors", with_length("{" + entries(120'000, "[0]", "[0,0]") + "}"), weights);
  refused("very many tensors of the same bytes", with_length("{" + entries(100'000, "[1]", "[0,1]") + "}", "x"), weights);
  refused("very many axes",
          with_length("{\"a\":{\"dtype\":\"U8\",\"shape\":[" + repeated("1,", large) + "1],\"data_offsets\":[0,1]}}", "x"), weights);
  refused("a tensor of 2^62 bytes", with_length("{" + entries(1, "[4611686018427387904]", "[0,4611686018427387904]") + "}"), weights);
  refused("a tensor of 2^40 bytes that are not there", with_length("{" + entries(1, "[1099511627776]", "[0,1099511627776]") + "}"),
          weights);
  const auto words = [](const std::string& file) { (void)load_vocabulary(file); };
  refused("a vocabulary of one long line", "heed-vocabulary 1\n" + repeated("a", large), words);
  refused("a vocabulary of backslashes", "heed-vocabulary 1\n" + repeated("\\", large), words);
}
