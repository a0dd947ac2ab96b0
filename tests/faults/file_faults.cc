// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <filesystem>

#include "models/bpe.h"
#include "models/corpus.h"
#include "models/vocabulary.h"
#include "tensor/file.h"
#include "tensor/safetensors.h"
#include "tests/close.h"
#include "tests/faults/faults.h"
#include "tests/temporary_folder.h"

using namespace heed;
namespace fs = std::filesystem;

namespace {

std::string header(std::string_view json, std::string_view data = "") {
  const std::uint64_t n = json.size();
  return std::string(reinterpret_cast<const char*>(&n), 8).append(json).append(data);
}

// What a reader says of a file with these bytes.
template <class F> std::string reading(const std::string& name, const std::string& bytes, F&& read) {
  const TemporaryFolder folder;
  const std::string path = folder.write(name, bytes);
  return thrown([&] { read(path); });
}
std::string weights(const std::string& name, const std::string& bytes) {
  return reading(name, bytes, [](const std::string& path) { read_safetensors(path); });
}
std::string tensors(const std::string& json, const std::string& data = "") { return weights("a.safetensors", header(json, data)); }

std::string a_file() {
  const TemporaryFolder folder;
  write_safetensors(folder / "a.safetensors", {{"weight", ones({4, 4})}});
  return read_file(folder / "a.safetensors");
}

std::string flipped() {
  const std::string good = a_file();
  const TemporaryFolder folder;
  Cases noticed;
  for (std::size_t i = good.size() - 64; i < good.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[i] = char(bad[i] ^ (1 << bit));
      const std::string path = folder.write("a.safetensors", bad);
      noticed.add(thrown([&] { read_safetensors(path); }).find("checksum differs") != std::string::npos);
    }
  return noticed.say("FileError each time: the checksum differs");
}

std::string strange_names() {
  const TemporaryFolder folder;
  const std::string path = folder / "a.safetensors";
  write_safetensors(path, {{"", ones({1})}, {"../x", full({1}, 2)}});
  const SafetensorsFile file = read_safetensors(path);
  Cases right;
  right.add(file.at("").item() == 1 && file.at("../x").item() == 2);
  right.add(std::distance(fs::directory_iterator(folder.path()), {}) == 1);
  return right.say("read and written as they are: a name is a key, never a path");
}

std::string saved_over() {
  const TemporaryFolder folder;
  const std::string path = folder / "a.safetensors";
  const Tensor x = ones({100, 100});
  write_safetensors(path, {{"weight", x}});
  const SafetensorsFile file = read_safetensors(path);
  write_safetensors(path, {{"weight", full({3}, 7)}});
  Cases right;
  right.add(equal_bits(file.at("weight"), x));
  right.add(read_safetensors(path).at("weight").shape() == Shape{3});
  return right.say("what was read stays as it was, the file is the new one");
}

mode_t mode_of(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? status.st_mode & 07777 : 0;
}

std::string modes_and_links() {
  const TemporaryFolder folder;
  Cases right;
  const mode_t mask = ::umask(022);
  write_file_atomically(folder / "new", "x");
  ::umask(mask);
  right.add(mode_of(folder / "new") == 0644);
  ::chmod((folder / "new").c_str(), 0640);
  fs::create_symlink("new", folder / "link");
  write_file_atomically(folder / "link", "y");
  right.add(mode_of(folder / "new") == 0640 && fs::is_symlink(folder / "link") && read_file(folder / "new") == "y");
  return right.say("a new file gets the umask's mode, an old one keeps its own, a link leads to the new content");
}

std::string corpus(const std::string& text) {
  const TemporaryFolder folder;
  const std::string path = folder.write("pairs.tsv", text);
  std::string said;
  const std::string wrong = thrown([&] { said = to_string(read_tsv(path)); });
  return wrong == "nothing thrown" ? said : wrong;
}

std::string unequal_files() {
  const TemporaryFolder folder;
  const std::string a = folder.write("a", "1\n2\n3\n"), b = folder.write("b", "1\n2\n");
  return thrown([&] { read_parallel(a, b); });
}

std::string vocabulary(const std::string& pieces) {
  return reading("target.vocabulary", pieces, [](const std::string& path) { load_vocabulary(path); });
}

std::string vocabulary_text() {
  const TemporaryFolder folder;
  save_vocabulary(folder / "v", Vocabulary({"<pad>", "<unk>", "<s>", "</s>", "dog", "cat"}));
  return read_file(folder / "v");
}

// A message of fields 1 (piece: text and score), as SentencePiece writes them.
std::string piece(const std::string& text) {
  const auto varint = [](std::size_t n) {
    std::string out;
    for (; n > 127; n >>= 7) out += char(0x80 | (n & 127));
    return out + char(n);
  };
  const std::string inner = "\x0a" + varint(text.size()) + text;
  return "\x0a" + varint(inner.size()) + inner;
}

std::string scanned(const std::string& model) { return thrown([&] { scan_sentencepiece_model(model, "de.model"); }); }

}  // namespace

std::vector<Fault> file_faults() {
  const auto entry = [](const char* dtype, const char* shape, const char* offsets) {
    return std::string("{\"a\":{\"dtype\":\"") + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}}";
  };
  const std::string data(16, 'x');
  return {
      {14, "a header of 2^63 bytes", [] { return weights("a.safetensors", std::string("\0\0\0\0\0\0\0\x80{}", 10)); }},
      {14, "50,000 brackets deep", [] { return tensors("{\"a\":" + std::string(50'000, '[') + "}"); }},
      {14, "a tensor that is there twice",
       [] {
         return tensors(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})");
       }},
      {14, "an unknown dtype", [=] { return tensors(entry("F33", "[4]", "[0,16]"), data); }},
      {14, "a shape of 2^64 elements and no bytes", [=] { return tensors(entry("F32", "[4294967296,4294967296]", "[0,0]")); }},
      {14, "a size that is negative", [=] { return tensors(entry("F32", "[-4]", "[0,16]"), data); }},
      {14, "a shape that needs fewer bytes than there are", [=] { return tensors(entry("F32", "[3]", "[0,16]"), data); }},
      {14, "offsets that end before they begin", [=] { return tensors(entry("F32", "[4]", "[16,0]"), data); }},
      {14, "two tensors in the same bytes",
       [=] {
         return tensors(R"({"k":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"v":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})",
                        data);
       }},
      {14, "bytes behind the last tensor", [=] { return tensors(entry("F32", "[4]", "[0,16]"), data + "zip"); }},
      {14, "tensors named \"\" and \"../x\"", strange_names},
      {14, "each bit of a weight flipped", flipped},
      {15, "a file cut off in its data", [] { return weights("a.safetensors", a_file().substr(0, a_file().size() - 20)); }},
      {15, "a file cut off in its header", [] { return weights("a.safetensors", a_file().substr(0, 40)); }},
      {15, "an empty file", [] { return weights("a.safetensors", ""); }},
      {16, "other weights written to a file whose tensors are in use", saved_over},
      {17, "weights from a .npy file", [] { return weights("a.npy", "\x93NUMPY\x01" + std::string(100, ' ')); }},
      {17, "weights from a .npz file", [] { return weights("a.npz", "PK\x03\x04" + std::string(100, 'x')); }},
      {18, "weights from a .pt file", [] { return weights("a.pt", "PK\x03\x04" + std::string(100, 'x')); }},
      {18, "weights from an old .pt file, a pickle",
       [] { return weights("a.pt", "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9" + std::string(100, 'x')); }},
      {19, "weights from a GGUF file", [] { return weights("a.gguf", "GGUF\x03" + std::string(100, '\xff')); }},
      {19, "a vocabulary with a piece twice", [] { return vocabulary(vocabulary_text() + "dog\n"); }},
      {19, "a vocabulary without </s>",
       [] {
         std::string text = vocabulary_text();
         return vocabulary(text.erase(text.find("</s>"), 5));
       }},
      {19, "a vocabulary with an empty piece", [] { return vocabulary(vocabulary_text() + "\n"); }},
      {20, "a piece of 100 KB", [] { return scanned(piece(std::string(100'000, 'a'))); }},
      {20, "a piece with a NUL", [] { return scanned(piece(std::string("a\0b", 3))); }},
      {20, "a message whose length runs beyond its end",
       [] {
         return scanned(
             "\x0a\x7f"
             "abc");
       }},
      {20, "bytes that are no protobuf message", [] { return scanned(std::string(100, '\xff')); }},
      {21, "invalid UTF-8, overlong forms, surrogates, NUL",
       [] { return corpus(std::string("a\xff\tb\n\xc0\xaf\t\xed\xa0\x80\nx\0y\tz\n", 18)); }},
      {21, "a byte order mark, CRLF, no end of the last line, U+2028 inside",
       [] {
         return corpus(
             "\xef\xbb\xbf"
             "a\tb\r\nc\xe2\x80\xa8"
             "d\te");
       }},
      {21, "a line of no-break spaces, an empty side", [] { return corpus("\xc2\xa0\t\xc2\xa0\na\t\nb\tc\n"); }},
      {21, "further columns", [] { return corpus("a\tb\t0-0\t\tcomment\n"); }},
      {21, "one column", [] { return corpus("a\tb\nonly\n"); }},
      {21, "a line of 2 MiB", [] { return corpus("a\tb\n" + std::string(2 << 20, 'x') + "\ty\n"); }},
      {21, "no pair at all", [] { return corpus("\t\n"); }},
      {21, "bytes that are no text", [] { return corpus(std::string(5000, '\0')); }},
      {21, "3 lines beside 2", unequal_files},
      {26, "a file replaced: new, with a mode of its own, behind a symbolic link", modes_and_links},
  };
}
