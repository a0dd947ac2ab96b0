// SPDX-License-Identifier: Apache-2.0
#include "tensor/safetensors.h"

#include <doctest/doctest.h>
#include <rapidcheck.h>
#include <sys/stat.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "tensor/checksum.h"
#include "tensor/file.h"
#include "tensor/format.h"
#include "tensor/ops/view.h"
#include "tests/temporary_folder.h"

using namespace heed;

namespace {

std::string with_length(std::string_view json, std::string_view data = "") {
  const std::uint64_t n = json.size();
  std::string file(reinterpret_cast<const char*>(&n), 8);
  return file.append(json).append(data);
}

std::string entry(std::string_view name, std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return fmt::format("\"{}\":{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":{}}}", name, dtype, shape, offsets);
}

std::string one(std::string_view shape, std::string_view offsets, std::string_view dtype = "F32") {
  return "{" + entry("a", dtype, shape, offsets) + "}";
}

std::string length_only(std::uint64_t n, std::string_view rest) {
  return std::string(reinterpret_cast<const char*>(&n), 8) + std::string(rest);
}

void write(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), std::streamsize(bytes.size()));
}

// The message with which the bytes are refused, without the path; "" if they are a good file.
std::string refusal(const TemporaryFolder& folder, std::string_view bytes) {
  const std::string path = folder / "attack.safetensors";
  write(path, bytes);
  std::string text;
  try {
    (void)read_safetensors_header(path);
  } catch (const FileError& error) {
    text = error.what();
    CHECK(text.starts_with(path + ": "));
    CHECK(text.find('\n') == std::string::npos);
    text = text.substr(path.size() + 2);
  }
  // Reading the whole file refuses for the same reason.
  if (!text.empty()) CHECK_THROWS_WITH_AS((void)read_safetensors(path), (path + ": " + text).c_str(), FileError);
  return text;
}

std::map<std::string, Tensor> samples() {
  return {{"encoder.weight", tensor({{1, 2, 3}, {4, 5, NAN}})},
          {"encoder.bias", tensor({0.1, -2, INFINITY}, DType::f64)},
          {"ids", tensor({-1, 2}, DType::i32)},
          {"long", tensor({1, -9}, DType::i64)},
          {"half", tensor({1.5, -2.25, 3}, DType::bf16)},
          {"bytes", tensor({1, 2, 255}, DType::u8)},
          {"scalar", tensor(7)},
          {"empty", zeros({0, 3})},
          {"", zeros({1})},
          {"../name", ones({2})},
          {"ü \"quoted\"", ones({1})},
          {"view", transpose(tensor({{1, 2, 3}, {4, 5, 6}}))}};
}

}  // namespace

TEST_CASE("XXH64 gives the numbers of its specification") {
  const auto hash = [](std::string_view text, size_t piece) {
    Checksum sum;
    for (size_t i = 0; i < text.size(); i += piece) sum.add(text.substr(i, piece));
    return sum.value();
  };
  const std::string text = "Nobody inspects the spammish repetition";
  for (size_t piece : {1, 3, 31, 32, 33, 100}) {
    CHECK(hash("", piece) == 0xEF46DB3751D8E999u);
    CHECK(hash("a", piece) == 0xD24EC4F1A98C6E5Bu);
    CHECK(hash("abc", piece) == 0x44BC2CF5AD770999u);
    CHECK(hash(text, piece) == 0xFBCEA83C8A378BF1u);
  }
}

TEST_CASE("save, load, save: same tensors, same bytes") {
  const TemporaryFolder folder;
  const std::string first = folder / "first.safetensors", second = folder / "second.safetensors";
  const std::map<std::string, std::string> metadata{{"format", "pt"}, {"config", R"({"width": 8, "ü": "\n"})"}};
  for (const bool checksum : {true, false}) {
    write_safetensors(first, samples(), metadata, {.checksum = checksum});
    const SafetensorsFile file = read_safetensors(first);
    CHECK(file.has_checksum == checksum);
    CHECK(file.metadata == metadata);
    CHECK(file.tensors.size() == samples().size());
    for (const auto& sample : samples()) CHECK_MESSAGE(equal_bits(file.at(sample.first), sample.second), sample.first);
    write_safetensors(second, file.tensors, file.metadata, {.checksum = checksum});
    CHECK(read_file(first) == read_file(second));
    write_safetensors(second, samples(), metadata, {.checksum = checksum});
    CHECK(read_file(first) == read_file(second));
  }
}

TEST_CASE("the bytes written are those of the reference") {
  const TemporaryFolder folder;
  write_safetensors(
      folder / "a",
      {{"b", tensor({1})}, {"a", tensor({2}, DType::u8)}, {"c", tensor({1, 2}, DType::i64)}, {"A", tensor({{3}})}},
      {{"format", "pt"}}, {.checksum = false});
  const std::string bytes = read_file(folder / "a");
  const std::string json =
      R"({"__metadata__":{"format":"pt"},"c":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},"A":{"dtype":"F32","shape":[1,1],"data_offsets":[16,20]},)"
      R"("b":{"dtype":"F32","shape":[1],"data_offsets":[20,24]},"a":{"dtype":"U8","shape":[1],"data_offsets":[24,25]}})";
  CHECK(bytes.substr(8, json.size()) == json);
  std::uint64_t n = 0;
  std::memcpy(&n, bytes.data(), 8);
  CHECK(n % 8 == 0);
  CHECK(n - json.size() < 8);
  CHECK(bytes.size() == 8 + n + 25);
}

TEST_CASE("a file that PyTorch wrote is written again byte by byte") {
  const TemporaryFolder folder;
  for (const char* name : {"transformer_state_f32.safetensors", "transformer_state_f64.safetensors"}) {
    const std::string path = std::string(HEED_SOURCE_DIR) + "/tests/golden/" + name;
    const SafetensorsFile file = read_safetensors(path);
    CHECK_FALSE(file.has_checksum);
    CHECK(file.tensors.size() > 40);
    write_safetensors(folder / name, file.tensors, file.metadata, {.checksum = false});
    CHECK(read_file(path) == read_file(folder / name));
  }
}

TEST_CASE("one memory under several names is stored once") {
  const TemporaryFolder folder;
  const Tensor shared = tensor({{1, 2}, {3, 4}});
  write_safetensors(folder / "tied", {{"output.weight", shared}, {"embedding.weight", shared}, {"half", shared[0]}},
                    {{"a", "b"}});
  const SafetensorsFile file = read_safetensors(folder / "tied");
  CHECK(file.header.tensors.size() == 2);
  CHECK(file.at("output.weight").storage() == file.at("embedding.weight").storage());
  CHECK(file.metadata == std::map<std::string, std::string>{{"a", "b"}});
  CHECK(equal_bits(file.at("half"), shared[0]));
  write_safetensors(folder / "again", file.tensors, file.metadata);
  CHECK(read_file(folder / "tied") == read_file(folder / "again"));
}

TEST_CASE("a changed bit, a cut or longer file is noticed at every byte") {
  const TemporaryFolder folder;
  const std::string path = folder / "good";
  write_safetensors(path, {{"w", tensor({1, 2, 3})}, {"tied", tensor({5}, DType::i64)}}, {{"step", "12"}});
  const std::string good = read_file(path);
  CHECK(refusal(folder, good) == "");
  for (size_t size = 0; size < good.size(); ++size) CHECK(refusal(folder, good.substr(0, size)) != "");
  CHECK(refusal(folder, good + "x") ==
        fmt::format("1 bytes behind the last tensor, which ends at byte {0} of {1}", good.size(), good.size() + 1));
  for (size_t i = 0; i < good.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[i] = char(bad[i] ^ (1 << bit));
      write(path, bad);
      try {
        const SafetensorsFile file = read_safetensors(path);
        // What goes unnoticed must be a name of the checksum itself (the file then has none) or a space of the padding.
        CHECK_FALSE(file.has_checksum);
      } catch (const FileError&) {
      }
    }
}

TEST_CASE("attacks are refused with what was found and expected") {
  const TemporaryFolder folder;
  const std::string data(16, 'x');
  const std::string good = "{" + entry("a", "F32", "[2,2]", "[0,16]") + "}";
  REQUIRE(refusal(folder, with_length(good, data)) == "");
  REQUIRE(refusal(folder, with_length(good + "   ", data)) == "");
  REQUIRE(refusal(folder, with_length("{}")) == "");
  const auto check = [&](std::string_view bytes, std::string_view text) { CHECK(refusal(folder, bytes) == text); };

  // 1: size and N
  for (size_t size = 0; size < 8; ++size)
    check(std::string(size, '\0'), fmt::format("no safetensors file: has {} bytes, at least 8 expected", size));
  check(length_only(0, ""), "header does not begin with '{' at byte 8");
  check(length_only(1, "{"), "header does not end with '}' and spaces at byte 8");
  check(length_only(3, "{}"), "header declares 3 bytes, file has 10");
  check(length_only(2, "{} "), "1 bytes behind the last tensor, which ends at byte 10 of 11");
  check(length_only(100'000'001, "{}"), "no safetensors file: header declares 100000001 bytes, at most 100000000 allowed");
  check(length_only(std::uint64_t{1} << 63, "{}"),
        "no safetensors file: header declares 9223372036854775808 bytes, at most 100000000 allowed");
  check(length_only(UINT64_MAX, "{}"),
        "no safetensors file: header declares 18446744073709551615 bytes, at most 100000000 allowed");
  // 2: text
  check(with_length("{\"a\xff\":1}"), "header is not UTF-8 at byte 11");
  check(with_length("{\"\xed\xa0\x80\":1}"), "header is not UTF-8 at byte 11");
  check(with_length("{\"a\":}"), "header is not JSON at byte 13");
  check(with_length(" {}"), "header does not begin with '{' at byte 8");
  check(with_length("\xef\xbb\xbf{}"), "header does not begin with '{' at byte 8");
  check(with_length("[]"), "header does not begin with '{' at byte 8");
  check(with_length("{}\n"), "header does not end with '}' and spaces at byte 10");
  check(with_length(std::string_view("{}\0", 3)), "header does not end with '}' and spaces at byte 10");
  check(with_length("{}{}"), "header is not JSON at byte 10");
  check(with_length("{'a':1}"), "header is not JSON at byte 9");
  // 3: structure
  check(with_length("{\"a\":" + std::string(50'000, '[') + "}"), "tensor \"a\" holds an array where none belongs");
  check(with_length("{\"a\":" + std::string(50'000, '{') + "}"), "header is not JSON at byte 14");
  check(with_length("{\"a\":{\"shape\":[[1]]}}"), "tensor \"a\" holds an array where none belongs");
  check(with_length("{\"a\":{\"shape\":{}}}"), "tensor \"a\" holds an object where a value belongs");
  check(with_length("{" + entry("a", "F32", "[2]", "[0,8]") + "," + entry("a", "F32", "[2]", "[8,16]") + "}", data),
        "tensor \"a\" is there twice");
  check(with_length("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", data),
        "tensor \"a\" has the key \"dtype\" twice");
  check(with_length("{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16],\"x\":1}}", data),
        "tensor \"a\" has an unknown key \"x\"");
  check(with_length("{\"a\":{\"dtype\":\"F32\",\"shape\":[4]}}"), "tensor \"a\" needs dtype, shape and data_offsets");
  check(with_length("{\"a\":{}}"), "tensor \"a\" needs dtype, shape and data_offsets");
  check(with_length("{\"a\":1}"), "tensor \"a\" holds a number where none belongs");
  check(with_length("{\"a\":null}"), "tensor \"a\" holds null where no such thing belongs");
  check(with_length("{\"a\":true}"), "tensor \"a\" holds true or false where no such thing belongs");
  check(with_length("{\"a\":\"F32\"}"), "tensor \"a\" holds a text where none belongs");
  check(with_length("{\"a\":{\"dtype\":[1]}}"), "tensor \"a\" holds an array where none belongs");
  check(with_length("{\"a\":{\"dtype\":1}}"), "tensor \"a\" holds a number where none belongs");
  check(with_length("{\"a\":{\"shape\":\"[4]\"}}"), "tensor \"a\" holds a text where none belongs");
  check(with_length(one("[4]", "[]")), "tensor \"a\" needs two data_offsets");
  check(with_length(one("[4]", "[0]")), "tensor \"a\" needs two data_offsets");
  check(with_length(one("[4]", "[0,16,16]"), data), "tensor \"a\" needs two data_offsets");
  check(with_length(one("[-4]", "[0,16]"), data), "tensor \"a\" holds a number with a sign");
  check(with_length(one("[4]", "[-0,16]"), data), "tensor \"a\" holds a number with a sign");
  check(with_length(one("[4]", "[0,-16]"), data), "tensor \"a\" holds a number with a sign");
  check(with_length(one("[4.0]", "[0,16]"), data), "tensor \"a\" holds \"4.0\", which is no unsigned 64-bit integer");
  check(with_length(one("[4]", "[0,1.6e1]"), data), "tensor \"a\" holds \"1.6e1\", which is no unsigned 64-bit integer");
  check(with_length(one("[4]", "[0,18446744073709551616]"), data),
        "tensor \"a\" holds \"18446744073709551616\", which is no unsigned 64-bit integer");
  check(with_length(one("[1,1,1,1,1,1,1,1,4]", "[0,16]"), data), "tensor \"a\" has more than 8 axes");
  check(with_length(one("[18446744073709551615]", "[0,16]"), data), "tensor \"a\" has a size beyond 63 bits");
  check(with_length("{" + entry("a\\u0000b", "F32", "[4]", "[0,16]") + "}", data), "tensor name \"a\\u0000b\" contains a NUL");
  check(with_length("{" + entry(std::string(1'000'000, 'n'), "F32", "[4]", "[0,16]") + "}", data),
        "tensor name \"" + std::string(80, 'n') + "...\" has 1000000 bytes, at most 4096 allowed");
  // metadata
  check(with_length("{\"__metadata__\":{\"a\":1}}"), "metadata \"a\" holds a number where none belongs");
  check(with_length("{\"__metadata__\":{\"a\":{}}}"), "metadata \"a\" holds an object where a value belongs");
  check(with_length("{\"__metadata__\":{\"a\":[]}}"), "metadata \"a\" holds an array where none belongs");
  check(with_length("{\"__metadata__\":\"a\"}"), "metadata \"__metadata__\" holds a text where none belongs");
  check(with_length("{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}"), "metadata key \"a\" is there twice");
  check(with_length("{\"__metadata__\":{},\"__metadata__\":{}}"), "metadata \"__metadata__\" is there twice");
  // 4: dtype
  check(with_length(one("[4]", "[0,16]", "F33"), data), "tensor \"a\" has the unknown dtype \"F33\"");
  check(with_length(one("[4]", "[0,16]", "f32"), data), "tensor \"a\" has the unknown dtype \"f32\"");
  check(with_length(one("[3]", "[0,1]", "F4"), "x"), "tensor \"a\" does not fill whole bytes: [3] of F4");
  CHECK(refusal(folder, with_length(one("[4]", "[0,2]", "F4"), "xx")) == "");
  // 5: size
  check(with_length(one("[4294967296,4294967296]", "[0,0]")), "tensor \"a\" has too many elements: [4294967296, 4294967296]");
  check(with_length(one("[0,4294967296,4294967296]", "[0,0]")),
        "tensor \"a\" has too many elements: [0, 4294967296, 4294967296]");
  check(with_length(one("[0,576460752303423488]", "[0,0]", "U8")), "tensor \"a\" has too many elements: [0, 576460752303423488]");
  check(with_length(one("[4611686018427387905,4]", "[0,16]"), data),
        "tensor \"a\" has too many elements: [4611686018427387905, 4]");
  check(with_length(one("[3]", "[0,16]"), data), "tensor \"a\" takes 16 bytes, [3] of F32 needs 12");
  check(with_length(one("[]", "[0,16]"), data), "tensor \"a\" takes 16 bytes, [] of F32 needs 4");
  // 6: places
  check(with_length(one("[4]", "[16,0]"), data), "tensor \"a\" ends before it begins: data_offsets 16 and 0");
  check(with_length(one("[3]", "[4,16]"), data), "tensor \"a\" begins at data byte 4, the one before ends at 0");
  check(with_length(one("[4]", "[0,16]"), data.substr(1)), "tensor \"a\" ends at byte 79, the file has 78 bytes");
  check(with_length(one("[4]", "[0,16]"), data + "zip"), "3 bytes behind the last tensor, which ends at byte 79 of 82");
  check(with_length(one("[144115188075855872]", "[0,576460752303423488]"), data),
        "tensor \"a\" ends at byte 576460752303423584, the file has 112 bytes");
  check(with_length("{" + entry("a", "F32", "[2]", "[0,8]") + "," + entry("b", "F32", "[2]", "[4,12]") + "}", data.substr(4)),
        "tensor \"b\" begins at data byte 4, the one before ends at 8");
  check(with_length("{" + entry("a", "F32", "[1]", "[0,4]") + "," + entry("b", "F32", "[2]", "[8,16]") + "}", data),
        "tensor \"b\" begins at data byte 8, the one before ends at 4");
  check(with_length("{" + entry("k", "F32", "[4]", "[0,16]") + "," + entry("v", "F32", "[4]", "[0,16]") + "}", data),
        "tensor \"v\" begins at data byte 0, the one before ends at 16");
}

TEST_CASE("very many tensors or metadata entries are refused") {
  const TemporaryFolder folder;
  std::string json = "{";
  for (int i = 0; i <= 100'000; ++i) json += (i ? "," : "") + entry(std::to_string(i), "U8", "[0]", "[0,0]");
  CHECK(refusal(folder, with_length(json + "}")) == "more than 100000 tensors");
  json = "{";
  for (int i = 0; i < 100'000; ++i) json += (i ? "," : "") + entry(std::to_string(i), "U8", "[1]", "[0,1]");
  CHECK(refusal(folder, with_length(json + "}", "x")) == "tensor \"1\" begins at data byte 0, the one before ends at 1");
  json = "{\"__metadata__\":{";
  for (int i = 0; i <= 100'000; ++i) json += fmt::format("{}\"{}\":\"\"", i ? "," : "", i);
  CHECK(refusal(folder, with_length(json + "}}")) == "more than 100000 metadata entries");
}

TEST_CASE("metadata may be as long as the format allows") {
  const TemporaryFolder folder;
  const std::string path = folder / "f.safetensors";
  constexpr std::size_t kPiece = std::size_t(1) << 16;                            // read at once
  const std::string unit = "a\"\\\n\x01é漢😀/";
  for (std::size_t shift = 0; shift < 2 * unit.size(); ++shift) {
    std::string text(kPiece - shift, 'x');
    for (int i = 0; i < 9; ++i) text += unit;
    const std::map<std::string, std::string> metadata{{"a", ""},          {"b", text}, {"c", "short"},
                                                      {"d", text + text}, {"e", ""},   {std::string(2 * kPiece, 'k'), text}};
    write_safetensors(path, {{"w", ones({2})}}, metadata);
    const SafetensorsFile file = read_safetensors(path);
    CHECK(file.has_checksum);
    CHECK((file.metadata == metadata));
    CHECK(file.at("w").to_vector<float>() == std::vector<float>{1, 1});
  }
  // Escaped as others may: a pair of surrogates stays whole wherever a piece would end.
  for (std::size_t shift = 0; shift < 12; ++shift) {
    const std::string begin(kPiece - 6 - shift, 'x');
    CHECK(refusal(folder, with_length("{\"__metadata__\":{\"a\":\"" + begin + "\\u00e9\\ud83d\\ude00\\/\"}}")).empty());
    CHECK(read_safetensors_header(folder / "attack.safetensors").metadata.at("a") == begin + "é😀/");
  }
  const std::string lengthy(kPiece + 7, 'x'), opened = "{\"__metadata__\":{\"a\":\"";
  write(path, with_length(opened + std::string(100'000'000 - opened.size() - 3, 'x') + "\"}}"));
  CHECK(read_safetensors_header(path).metadata.at("a").size() == 100'000'000 - opened.size() - 3);
  const auto at = [&](std::size_t byte) { return fmt::format("at byte {}", 8 + opened.size() + lengthy.size() + byte); };
  CHECK(refusal(folder, with_length(opened + lengthy + "\xff\"}}")) == "header is not UTF-8 " + at(0));
  CHECK(refusal(folder, with_length(opened + lengthy + "\n\"}}")) == "header is not JSON " + at(0));
  CHECK(refusal(folder, with_length(opened + lengthy + "\\u00\"}}")) == "header is not JSON " + at(4));
  CHECK(refusal(folder, with_length(opened + lengthy + "\",\"b\":x}}")) == "header is not JSON " + at(6));
  CHECK(refusal(folder, with_length(opened + lengthy + "\",\"a\":\"\"}}")) == "metadata key \"a\" is there twice");
  const std::string open_end(std::size_t(1) << 20, 'x');
  CHECK(refusal(folder, with_length(opened + open_end + "}}")) ==
        fmt::format("header has 1048578 bytes without a quote at byte {}, at most 1048576 allowed", 8 + opened.size()));
  CHECK(refusal(folder, with_length("{" + entry(lengthy, "F32", "[0]", "[0,0]") + "}")).ends_with("has 65543 bytes, at most 4096 allowed"));
  CHECK(refusal(folder, with_length("{" + entry("a", lengthy, "[0]", "[0,0]") + "}"))
            .starts_with("tensor \"a\" has the unknown dtype \"xxx"));
  CHECK(refusal(folder, with_length("{\"a\":{\"" + lengthy + "\":[0]}}")).starts_with("tensor \"a\" has an unknown key \"xxx"));
}

TEST_CASE("names are keys, never paths; dtypes Heed does not compute with are listed") {
  const TemporaryFolder folder;
  const std::string path = folder / "f";
  write(path, with_length("{" + entry("", "F32", "[1]", "[0,4]") + "," + entry("../../x", "F16", "[2]", "[4,8]") + "}",
                          std::string(8, 'x')));
  const SafetensorsFile file = read_safetensors(path);
  CHECK(file.tensors.size() == 1);
  CHECK(file.header.tensors[1].stored_as == "F16");
  CHECK(file.others.at("../../x").bytes.to_vector<std::uint8_t>() == std::vector<std::uint8_t>(4, 'x'));
  CHECK(file.header.tensors[1].end == file.header.file_bytes);
  CHECK_THROWS_WITH_AS((void)file.at("../../x"),
                       (path + ": tensor \"../../x\" has dtype F16, with which Heed does not compute").c_str(), FileError);
  CHECK_THROWS_WITH_AS((void)file.at("y"), (path + ": holds no tensor \"y\"").c_str(), FileError);
}

TEST_CASE("files that are no regular files, or not there") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH_AS((void)read_safetensors(folder / "none"), doctest::Contains("cannot open: No such file or directory"),
                       FileError);
  CHECK_THROWS_WITH_AS((void)read_safetensors(folder.path()), doctest::Contains("cannot read: Is a directory"), FileError);
  CHECK_THROWS_WITH_AS((void)read_safetensors("/dev/null"), "/dev/null: not a regular file", FileError);
  const std::string pipe = folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_THROWS_WITH_AS((void)read_safetensors(pipe), (pipe + ": not a regular file").c_str(), FileError);
}

TEST_CASE("tied names that do not fit are refused") {
  const TemporaryFolder folder;
  const std::string tensors = entry("a", "U8", "[1]", "[0,1]") + "," + entry("b", "U8", "[1]", "[1,2]");
  const auto with_metadata = [&](std::string_view metadata) {
    return with_length(fmt::format("{{\"__metadata__\":{{{}}},{}}}", metadata, tensors), "xy");
  };
  const auto reads = [&](std::string_view metadata) {
    write(folder / "f", with_metadata(metadata));
    return read_safetensors(folder / "f");
  };
  CHECK(reads("\"heed.alias.c\":\"a\"").tensors.size() == 3);
  CHECK_THROWS_WITH_AS((void)reads("\"heed.alias.c\":\"d\""),
                       doctest::Contains("\"c\" stands for tensor \"d\", which the file does not hold"), FileError);
  CHECK_THROWS_WITH_AS((void)reads("\"heed.alias.b\":\"a\""),
                       doctest::Contains("\"b\" is a tensor and stands for tensor \"a\""), FileError);
  CHECK_THROWS_WITH_AS((void)reads("\"heed.checksum\":\"xxh64:00\""),
                       doctest::Contains("checksum differs: the file says \"xxh64:00\""), FileError);
}

TEST_CASE("what cannot be written is refused, and the old file stays") {
  const TemporaryFolder folder;
  const std::string path = folder / "f";
  write_safetensors(path, {{"a", ones({2})}});
  const std::string before = read_file(path);
  const auto refuses = [&](const std::map<std::string, Tensor>& tensors, const std::map<std::string, std::string>& metadata,
                           const char* text) {
    CHECK_THROWS_WITH_AS(write_safetensors(path, tensors, metadata), doctest::Contains(text), Error);
    CHECK(read_file(path) == before);
  };
  refuses({{"a", Tensor()}}, {}, "tensor \"a\" is empty");
  refuses({{"__metadata__", ones({2})}}, {}, "\"__metadata__\" cannot be the name of a tensor");
  refuses({{std::string("a\0b", 3), ones({2})}}, {}, "\"a\\u0000b\" cannot be the name of a tensor");
  refuses({{std::string(5000, 'a'), ones({2})}}, {}, "cannot be the name of a tensor");
  refuses({{"\xff", ones({2})}}, {}, "a tensor's name is not UTF-8");
  refuses({}, {{"a", "\xff"}}, "a metadata value is not UTF-8");
  refuses({}, {{"heed.checksum", "x"}}, "metadata key \"heed.checksum\" is Heed's own");
  CHECK_THROWS_AS(write_safetensors(folder / "no/folder", samples()), FileError);
}

TEST_CASE("random headers are loaded or refused, nothing else") {
  const TemporaryFolder folder;
  const std::string path = folder / "f";
  CHECK(rc::check("mutated files", [&] {
    const std::string json = "{\"__metadata__\":{\"format\":\"pt\"}," + entry("a", "F32", "[2,1]", "[0,8]") + "," +
                             entry("b", "I64", "[1]", "[8,16]") + "}";
    std::string bytes = with_length(json, std::string(16, 'x'));
    for (int i = *rc::gen::inRange(1, 4); i > 0; --i) {
      const auto at = *rc::gen::inRange<size_t>(8, bytes.size());
      switch (*rc::gen::inRange(0, 3)) {
        case 0:
          bytes[at] = *rc::gen::element('0', '9', '[', ']', '{', '}', '"', ',', ':', '-', '\0', '\xff', 'F', ' ');
          break;
        case 1:
          bytes.erase(at, *rc::gen::inRange<size_t>(1, 9));
          break;
        default:
          bytes.insert(at, bytes.substr(*rc::gen::inRange<size_t>(8, bytes.size()), *rc::gen::inRange<size_t>(1, 40)));
      }
    }
    if (*rc::gen::inRange(0, 8) != 0) {                          // repair N, so that more than the first rule is met
      const auto close = bytes.rfind('}');
      const std::uint64_t n = close == std::string::npos || close < 8 ? 0 : close - 7;
      std::memcpy(bytes.data(), &n, 8);
    }
    write(path, bytes);
    try {
      const SafetensorsFile file = read_safetensors(path);
      std::uint64_t bytes_held = 0;
      for (const auto& [name, x] : file.tensors) bytes_held += std::uint64_t(x.numel()) * item_size(x.dtype());
      RC_ASSERT(bytes_held <= file.header.file_bytes);
    } catch (const FileError&) {
    }
  }));
}
