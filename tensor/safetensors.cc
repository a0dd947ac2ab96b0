// SPDX-License-Identifier: Apache-2.0
// Rules and their order follow the reference (huggingface/safetensors, tensor.rs), with those of its format description that it
// does not check: first byte '{', no duplicate keys.
#include "tensor/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <tuple>

#include "tensor/checksum.h"
#include "tensor/file.h"
#include "tensor/format.h"
#include "tensor/json.h"

namespace heed {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

constexpr std::uint64_t kMaxHeader = 100'000'000;
// bytes between two texts; of a text read at once
constexpr std::size_t kMaxTensors = 100'000, kMaxName = 4096, kMaxGap = std::size_t(1) << 20, kPiece = std::size_t(1) << 16;
constexpr std::string_view kMetadata = "__metadata__", kChecksum = "heed.checksum", kAlias = "heed.alias.";

// In the order of the reference's enum; tensors are stored from the last to the first.
struct Kind {
  std::string_view name;
  unsigned bits;
  std::optional<DType> dtype = {};
};
constexpr Kind kKinds[] = {
    {"BOOL", 8},       {"F4", 4},          {"F6_E2M3", 6},     {"F6_E3M2", 6},          {"U8", 8, DType::u8},
    {"I8", 8},         {"F8_E5M2", 8},     {"F8_E4M3", 8},     {"F8_E8M0", 8},          {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},       {"U16", 16},        {"F16", 16},             {"BF16", 16, DType::bf16},
    {"I32", 32, DType::i32}, {"U32", 32},  {"F32", 32, DType::f32}, {"C64", 64},        {"F64", 64, DType::f64},
    {"I64", 64, DType::i64}, {"U64", 64},
};

const Kind& kind_of(DType dtype) {
  return *std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& kind) { return kind.dtype == dtype; });
}

using Metadata = std::map<std::string, std::string>;

// A text of a header that is read apart from it.
struct LongText {
  std::size_t number;                                      // of the header's texts, from 1
  std::size_t end, bytes;                                  // where what is left of it ends, what was taken
  std::string text;
};

[[noreturn]] void not_json(const std::string& path, const Json::exception& error, std::size_t byte) {
  const bool text = std::string_view(error.what()).find("UTF-8") != std::string_view::npos;
  fail<FileError>("{}: header is not {} at byte {}", path, text ? "UTF-8" : "JSON", byte);
}

// Builds the entries from the events of the parser; refuses whatever the format does not allow where it appears.
class HeaderReader {
 public:
  using number_integer_t = Json::number_integer_t;
  using number_unsigned_t = Json::number_unsigned_t;
  using number_float_t = Json::number_float_t;
  using string_t = Json::string_t;
  using binary_t = Json::binary_t;

  HeaderReader(const std::string& path, std::vector<LongText> long_texts, SafetensorsHeader& header)
      : path_(path), header_(header), long_texts_(std::move(long_texts)) {}

  bool key(string_t& key) {
    put_back(key);
    key_ = key;
    if (depth_ == 1) {
      no_text_beyond_limits(key);
      if (key == kMetadata) {
        require(!seen_metadata_, "is there twice");
        seen_metadata_ = true;
      } else {
        check<FileError>(header_.tensors.size() < kMaxTensors, "{}: more than {} tensors", path_, kMaxTensors);
        name_ = key;
      }
    } else if (!in_metadata_) {
      const unsigned bit = key == "dtype" ? 1 : key == "shape" ? 2 : key == "data_offsets" ? 4 : 0;
      if (bit == 0) refuse(fmt::format("has an unknown key {}", quote(key)));
      if (seen_keys_ & bit) refuse(fmt::format("has the key {} twice", quote(key)));
      seen_keys_ |= bit;
    }
    return true;
  }

  bool start_object(std::size_t) {
    if (depth_ == 1) {
      in_metadata_ = key_ == kMetadata;
      if (!in_metadata_) {
        header_.tensors.push_back({.name = name_, .stored_as = {}, .dtype = {}, .shape = {}, .begin = 0, .end = 0});
        seen_keys_ = 0;
      }
    } else {
      require(depth_ == 0, "holds an object where a value belongs");
    }
    ++depth_;
    return true;
  }

  bool end_object() {
    if (--depth_ == 1 && !std::exchange(in_metadata_, false)) require(seen_keys_ == 7, "needs dtype, shape and data_offsets");
    return true;
  }

  bool start_array(std::size_t) {
    require(depth_ == 2 && !in_metadata_ && key_ != "dtype", "holds an array where none belongs");
    ++depth_;
    numbers_ = 0;
    return true;
  }

  bool end_array() {
    --depth_;
    require(key_ == "shape" || numbers_ == 2, "needs two data_offsets");
    return true;
  }

  bool number_unsigned(number_unsigned_t number) {
    require(depth_ == 3, "holds a number where none belongs");
    StoredTensor& tensor = header_.tensors.back();
    if (key_ == "shape") {
      require(numbers_ < kMaxRank, "has more than 8 axes");
      require(number <= std::uint64_t(INT64_MAX), "has a size beyond 63 bits");
      tensor.shape.push_back(Index(number));
    } else {
      require(numbers_ < 2, "needs two data_offsets");
      (numbers_ == 0 ? tensor.begin : tensor.end) = number;
    }
    ++numbers_;
    return true;
  }

  bool string(string_t& text) {
    put_back(text);
    if (in_metadata_) {
      check<FileError>(header_.metadata.size() < kMaxTensors, "{}: more than {} metadata entries", path_, kMaxTensors);
      const bool added = header_.metadata.emplace(key_, std::move(text)).second;
      check<FileError>(added, "{}: metadata key {} is there twice", path_, quote(key_));
      return true;
    }
    require(depth_ == 2 && key_ == "dtype", "holds a text where none belongs");
    const auto* kind = std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& k) { return k.name == text; });
    if (kind == std::end(kKinds)) refuse(fmt::format("has the unknown dtype {}", quote(text)));
    header_.tensors.back().stored_as = kind->name;
    header_.tensors.back().dtype = kind->dtype;
    return true;
  }

  bool null() { refuse("holds null where no such thing belongs"); }
  bool boolean(bool) { refuse("holds true or false where no such thing belongs"); }
  bool number_integer(number_integer_t) { refuse("holds a number with a sign"); }
  bool number_float(number_float_t, const string_t& text) {
    refuse(fmt::format("holds {}, which is no unsigned 64-bit integer", quote(text)));
  }
  bool binary(binary_t&) { refuse("holds binary data"); }

  bool parse_error(std::size_t position, const std::string&, const Json::exception& error) {
    for (const LongText& taken : long_texts_)
      if (taken.end < position) position += taken.bytes;
    not_json(path_, error, 8 + position - 1);
  }

 private:
  void put_back(std::string& text) {
    ++texts_;
    if (next_long_ < long_texts_.size() && long_texts_[next_long_].number == texts_) text = std::move(long_texts_[next_long_++].text);
  }
  [[noreturn]] void refuse(std::string_view what) const {
    if (depth_ == 0) fail<FileError>("{}: header {}", path_, what);
    if (in_metadata_ || key_ == kMetadata) fail<FileError>("{}: metadata {} {}", path_, quote(key_), what);
    fail<FileError>("{}: tensor {} {}", path_, quote(name_), what);
  }
  void require(bool holds, std::string_view what) const {
    if (!holds) refuse(what);
  }
  void no_text_beyond_limits(const std::string& name) const {
    check<FileError>(name.size() <= kMaxName, "{}: tensor name {} has {} bytes, at most {} allowed", path_, quote(name),
                     name.size(), kMaxName);
    check<FileError>(name.find('\0') == std::string::npos, "{}: tensor name {} contains a NUL", path_, quote(name));
  }

  const std::string& path_;
  SafetensorsHeader& header_;
  std::vector<LongText> long_texts_;
  std::size_t texts_ = 0, next_long_ = 0;
  std::string key_, name_;
  int depth_ = 0, numbers_ = 0;
  unsigned seen_keys_ = 0;
  bool in_metadata_ = false, seen_metadata_ = false;
};

// The text that stands as `quoted` between two quotes from byte `at` on, a piece after the other: the parser keeps several copies of what
// it reads at once. A piece ends before no byte that continues a character and no second half of a surrogate pair.
std::string text_of(const std::string& path, std::string_view quoted, std::size_t at) {
  std::string text;
  text.reserve(quoted.size());                             // what stands for a character is never shorter than it
  for (std::size_t begin = 0, end = 0; begin < quoted.size(); begin = end) {
    const auto goes_on = [&] {
      const std::string_view rest = quoted.substr(end, 4);
      return end - begin < kPiece || (rest[0] & 0xC0) == 0x80 ||
             ((rest.starts_with("\\uD") || rest.starts_with("\\ud")) && rest.size() == 4 && (rest[3] | 0x20) >= 'c');
    };
    while (end < quoted.size() && goes_on()) end += quoted[end] != '\\' ? 1 : quoted.substr(end, 2) == "\\u" ? 6 : 2;
    end = std::min(end, quoted.size());
    try {
      text += Json::parse(fmt::format("\"{}\"", quoted.substr(begin, end - begin))).get_ref<const std::string&>();
    } catch (const Json::parse_error& error) {
      not_json(path, error, at + begin + error.byte - 2);
    }
  }
  return text;
}

// Takes the texts beyond kPiece out of a header; what is left of each is an empty one. Counts the header's entries.
std::vector<LongText> take_long_texts(const std::string& path, std::string& json, std::size_t& entries) {
  std::vector<LongText> taken;
  std::size_t begin = 0, kept = 0, texts = 0;              // begin: of a text, or of what stands between two
  int depth = 0;
  bool text = false;
  const auto end_at = [&](std::size_t end) {
    if (text && end - begin > kPiece) {
      taken.push_back({texts, kept, end - begin, text_of(path, std::string_view(json).substr(begin, end - begin), 8 + begin)});
      return;
    }
    check<FileError>(end - begin <= kMaxGap, "{}: header has {} bytes without a quote at byte {}, at most {} allowed", path, end - begin,
                     8 + begin, kMaxGap);
    std::memmove(json.data() + kept, json.data() + begin, end - begin);
    kept += end - begin;
  };
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (text && c == '\\') {
      ++i;
    } else if (c == '"') {
      end_at(i);
      json[kept++] = c, begin = i + 1, text = !text, texts += text;
    } else if (!text && c == '{') {
      entries += ++depth == 2;
    } else if (!text && c == '}') {
      --depth;
    }
  }
  text = false;                                            // one that does not end is none
  end_at(json.size());
  json.resize(kept);
  return taken;
}

// Bytes of a tensor, Π shape x bits / 8. Sizes of zero do not stop the product from being checked.
std::uint64_t bytes_of(const std::string& path, const StoredTensor& tensor) {
  const auto* kind =
      std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& k) { return k.name == tensor.stored_as; });
  std::uint64_t bits = kind->bits;
  bool fits = true, empty = false;
  for (Index size : tensor.shape) {
    fits = fits && !__builtin_mul_overflow(bits, std::max<std::uint64_t>(std::uint64_t(size), 1), &bits);
    empty |= size == 0;
  }
  check<FileError>(fits && bits <= std::uint64_t(INT64_MAX) && bits / kind->bits < std::uint64_t{1} << 59,
                   "{}: tensor {} has too many elements: {}", path, quote(tensor.name), tensor.shape);
  check<FileError>(empty || bits % 8 == 0, "{}: tensor {} does not fill whole bytes: {} of {}", path, quote(tensor.name),
                   tensor.shape, tensor.stored_as);
  return empty ? 0 : bits / 8;
}

// What else a file that begins with these bytes is.
std::string_view other_kind(std::uint64_t first_bytes) {
  constexpr std::pair<std::string_view, std::string_view> kinds[] = {
      {"PK\3\4",
       "; it is a zip archive, as .pt and .npz files are; in Python safetensors.torch.save_file({k: v.clone().contiguous() for k, v in "
       "torch.load(OLD).items()}, NEW) converts a .pt"},
      {"\x80\2",
       "; it is a pickle, as old .pt files are; in Python safetensors.torch.save_file({k: v.clone().contiguous() for k, v in "
       "torch.load(OLD).items()}, NEW) converts it"},
      {"\x93NUMPY", "; it is a .npy file"},
      {"GGUF", "; it is a GGUF file"},
      {"\x89HDF", "; it is an HDF5 file"}};
  const std::string_view bytes(reinterpret_cast<const char*>(&first_bytes), sizeof first_bytes);
  for (const auto& [begins, says] : kinds)
    if (bytes.starts_with(begins)) return says;
  return {};
}

SafetensorsHeader read_header(InputFile& file, const std::string& path) {
  SafetensorsHeader header;
  header.file_bytes = file.size();
  check<FileError>(file.size() >= 8, "{}: no safetensors file: has {} bytes, at least 8 expected", path, file.size());
  std::uint64_t n = 0;
  file.read(&n, 8);
  check<FileError>(n <= kMaxHeader, "{}: no safetensors file: header declares {} bytes, at most {} allowed{}", path, n,
                   kMaxHeader, other_kind(n));
  check<FileError>(n <= file.size() - 8, "{}: header declares {} bytes, file has {}", path, n, file.size());
  std::string json(n, '\0');
  file.read(json.data(), n);
  check<FileError>(n > 0 && json[0] == '{', "{}: header does not begin with '{{' at byte 8", path);
  json.resize(json.find_last_not_of(' ') + 1);
  check<FileError>(json.back() == '}', "{}: header does not end with '}}' and spaces at byte {}", path, 8 + json.size() - 1);
  std::size_t entries = 0;
  std::vector<LongText> long_texts = take_long_texts(path, json, entries);
  check<FileError>(entries <= kMaxTensors + 1, "{}: more than {} tensors", path, kMaxTensors);
  header.tensors.reserve(std::min(entries, kMaxTensors));
  HeaderReader reader(path, std::move(long_texts), header);
  Json::sax_parse(json, &reader);

  const std::uint64_t start = 8 + n, room = file.size() - start;
  auto& tensors = header.tensors;
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  for (std::size_t i = 1; i < tensors.size(); ++i)
    check<FileError>(tensors[i - 1].name != tensors[i].name, "{}: tensor {} is there twice", path, quote(tensors[i].name));
  std::sort(tensors.begin(), tensors.end(),
            [](const auto& a, const auto& b) { return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name); });
  std::uint64_t position = 0;
  for (StoredTensor& tensor : tensors) {
    const std::uint64_t bytes = bytes_of(path, tensor);
    check<FileError>(tensor.begin <= tensor.end, "{}: tensor {} ends before it begins: data_offsets {} and {}", path,
                     quote(tensor.name), tensor.begin, tensor.end);
    check<FileError>(tensor.begin == position, "{}: tensor {} begins at data byte {}, the one before ends at {}", path,
                     quote(tensor.name), tensor.begin, position);
    check<FileError>(tensor.end - tensor.begin == bytes, "{}: tensor {} takes {} bytes, {} of {} needs {}", path,
                     quote(tensor.name), tensor.end - tensor.begin, tensor.shape, tensor.stored_as, bytes);
    check<FileError>(tensor.end <= room, "{}: tensor {} ends at byte {}, the file has {} bytes", path, quote(tensor.name),
                     start + bytes + tensor.begin, file.size());
    position = tensor.end;
    tensor.begin += start;
    tensor.end += start;
  }
  check<FileError>(position == room, "{}: {} bytes behind the last tensor, which ends at byte {} of {}", path, room - position,
                   start + position, file.size());
  return header;
}

// Compact JSON of the header; offsets count from `start`.
std::string header_json(const std::vector<const StoredTensor*>& tensors, const Metadata& metadata, std::uint64_t start) {
  const auto text = [](std::string_view raw) { return Json(raw).dump(); };
  std::string json = "{";
  if (!metadata.empty()) {
    json += text(kMetadata) + ":{";
    for (const auto& [key, value] : metadata) json += (json.back() == '{' ? "" : ",") + text(key) + ":" + text(value);
    json += "}";
  }
  for (const StoredTensor* tensor : tensors)
    json += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", json.size() > 1 ? "," : "",
                        text(tensor->name), tensor->stored_as, fmt::join(tensor->shape, ","), tensor->begin - start,
                        tensor->end - start);
  return json + "}";
}

// The header's part of the checksum: entries by name, metadata without the checksum itself.
Checksum header_checksum(const std::vector<StoredTensor>& tensors, Metadata metadata, std::uint64_t start) {
  metadata.erase(std::string(kChecksum));
  std::vector<const StoredTensor*> by_name;
  for (const StoredTensor& tensor : tensors) by_name.push_back(&tensor);
  std::sort(by_name.begin(), by_name.end(), [](const auto* a, const auto* b) { return a->name < b->name; });
  Checksum sum;
  sum.add(header_json(by_name, metadata, start));
  return sum;
}

std::string checksum_text(const Checksum& sum) { return fmt::format("xxh64:{:016x}", sum.value()); }

bool same_memory(const Tensor& a, const Tensor& b) {
  return a.storage() == b.storage() && a.offset() == b.offset() && a.dtype() == b.dtype() && a.shape() == b.shape() &&
         a.strides() == b.strides();
}

}  // namespace

SafetensorsHeader read_safetensors_header(const std::string& path) {
  InputFile file(path);
  return read_header(file, path);
}

SafetensorsFile read_safetensors(const std::string& path) {
  InputFile input(path);
  SafetensorsFile file{
      .tensors = {}, .others = {}, .metadata = {}, .header = read_header(input, path), .path = path, .has_checksum = false};
  const auto& header = file.header;
  const auto given = header.metadata.find(std::string(kChecksum));
  file.has_checksum = given != header.metadata.end();
  const std::uint64_t start = header.tensors.empty() ? header.file_bytes : header.tensors.front().begin;
  Checksum sum;
  if (file.has_checksum) sum = header_checksum(header.tensors, header.metadata, start);
  for (const StoredTensor& stored : header.tensors) {
    const auto bytes = std::size_t(stored.end - stored.begin);
    const Tensor x = stored.dtype ? empty(stored.shape, *stored.dtype) : empty({Index(bytes)}, DType::u8);
    input.read(x.storage().data(), bytes);
    if (file.has_checksum) sum.add(x.storage().data(), bytes);
    if (stored.dtype) file.tensors.emplace(stored.name, x);
    else file.others.emplace(stored.name, OtherTensor{stored.stored_as, stored.shape, x});
  }
  if (file.has_checksum)
    check<FileError>(given->second == checksum_text(sum), "{}: checksum differs: the file says {}, its content gives {}", path,
                     quote(given->second), checksum_text(sum));
  std::map<std::string_view, const StoredTensor*> by_name;
  for (const StoredTensor& stored : header.tensors) by_name.emplace(stored.name, &stored);
  for (const auto& [key, value] : header.metadata) {
    if (key == kChecksum) continue;
    if (!key.starts_with(kAlias)) {
      file.metadata.emplace(key, value);
      continue;
    }
    const std::string name = key.substr(kAlias.size());
    const auto stored = by_name.find(value);
    check<FileError>(stored != by_name.end(), "{}: {} stands for tensor {}, which the file does not hold", path, quote(name),
                     quote(value));
    check<FileError>(!by_name.contains(name), "{}: {} is a tensor and stands for tensor {}", path, quote(name), quote(value));
    if (stored->second->dtype) file.tensors.emplace(name, file.tensors.at(value));
  }
  return file;
}

const Tensor& SafetensorsFile::at(const std::string& name) const {
  const auto found = tensors.find(name);
  if (found != tensors.end()) return found->second;
  for (const StoredTensor& stored : header.tensors)
    check<FileError>(stored.name != name, "{}: tensor {} has dtype {}, with which Heed does not compute", path, quote(name),
                     stored.stored_as);
  fail<FileError>("{}: holds no tensor {}", path, quote(name));
}

namespace {

// IEEE 754 binary16: 1 bit of sign, 5 of exponent, 10 of mantissa
float half(std::uint16_t bits) {
  const std::uint32_t sign = std::uint32_t(bits & 0x8000u) << 16, rest = bits & 0x7fffu;
  // inf and NaN stay
  const float size =
      rest < 0x400 ? float(rest) * 0x1p-24f : std::bit_cast<float>((rest << 13) + (rest >= 0x7c00 ? 0x70000000u : 0x38000000u));
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(size) | sign);
}

}  // namespace

void convert_floats(SafetensorsFile& file, DType dtype) {
  if (!is_float(dtype)) throw_not_float("convert_floats", dtype);
  for (auto& [name, x] : file.tensors)
    if (is_float(x.dtype()) || x.dtype() == DType::bf16) x = to(x, dtype);
  for (auto at = file.others.begin(); at != file.others.end();) {
    const auto& [name, other] = *at;
    if (other.stored_as != "F16") {
      ++at;
      continue;
    }
    const Tensor x = empty(other.shape);
    for (Index i = 0; float& value : x.mutable_span<float>()) {
      std::uint16_t bits;
      std::memcpy(&bits, other.bytes.data<std::uint8_t>() + 2 * i++, sizeof bits);
      value = half(bits);
    }
    file.tensors.emplace(name, to(x, dtype));
    at = file.others.erase(at);
  }
}

void write_safetensors(const std::string& path, const std::map<std::string, Tensor>& tensors, const Metadata& metadata,
                       SafetensorsOptions options) {
  Metadata kept = metadata;
  std::vector<std::pair<StoredTensor, Tensor>> order;
  order.reserve(tensors.size());
  const auto check_text = [&](std::string_view what, const std::string& text) {
    try {
      (void)Json(text).dump();
    } catch (const Json::exception&) {
      fail<Error>("write_safetensors: {} is not UTF-8: {}: {}", what, quote(text), path);
    }
  };
  for (const auto& [key, value] : metadata) {
    check_text("a metadata key", key);
    check_text("a metadata value", value);
    check<Error>(key != kChecksum && !key.starts_with(kAlias), "write_safetensors: metadata key {} is Heed's own: {}",
                 quote(key), path);
  }
  std::map<const void*, std::vector<const std::pair<StoredTensor, Tensor>*>> by_memory;
  for (const auto& [name, tensor] : tensors) {
    const Tensor& x = tensor;
    check<Error>(x.defined(), "write_safetensors: tensor {} is empty (default constructed): {}", quote(name), path);
    check<Error>(name.size() <= kMaxName && name.find('\0') == std::string::npos && name != kMetadata,
                 "write_safetensors: {} cannot be the name of a tensor: {}", quote(name), path);
    check_text("a tensor's name", name);
    auto& neighbours = by_memory[x.storage().data()];
    const auto twin =
        std::find_if(neighbours.begin(), neighbours.end(), [&](const auto* other) { return same_memory(other->second, x); });
    if (twin != neighbours.end()) {
      kept.emplace(std::string(kAlias) + name, (*twin)->first.name);
      continue;
    }
    order.push_back(
        {{.name = name, .stored_as = kind_of(x.dtype()).name, .dtype = x.dtype(), .shape = x.shape(), .begin = 0, .end = 0},
         x});
    neighbours.push_back(&order.back());
  }
  check<Error>(order.size() <= kMaxTensors && kept.size() < kMaxTensors, "write_safetensors: more than {} tensors: {}",
               kMaxTensors, path);

  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    const Kind *ka = &kind_of(a.second.dtype()), *kb = &kind_of(b.second.dtype());
    return ka != kb ? ka > kb : a.first.name < b.first.name;
  });
  std::uint64_t position = 0;
  std::vector<StoredTensor> stored;
  std::vector<const StoredTensor*> pointers;
  for (auto& [entry, x] : order) {
    entry.begin = position;
    entry.end = position += std::uint64_t(x.numel()) * item_size(x.dtype());
    stored.push_back(entry);
  }
  for (const StoredTensor& entry : stored) pointers.push_back(&entry);
  const auto bytes = [](const Tensor& x) {
    return std::span(x.storage().data() + x.offset() * Index(item_size(x.dtype())),
                     std::size_t(x.numel()) * item_size(x.dtype()));
  };
  if (options.checksum) {
    Checksum sum = header_checksum(stored, kept, 0);
    for (const auto& [entry, x] : order) {
      const Tensor dense = x.contiguous();
      sum.add(bytes(dense).data(), bytes(dense).size());
    }
    kept.emplace(kChecksum, checksum_text(sum));
  }
  std::string json = header_json(pointers, kept, 0);
  json.append((8 - json.size() % 8) % 8, ' ');
  check<Error>(json.size() <= kMaxHeader, "write_safetensors: header of {} bytes, at most {} allowed: {}", json.size(),
               kMaxHeader, path);

  AtomicFile file(path);
  const std::uint64_t n = json.size();
  file.write(std::string_view(reinterpret_cast<const char*>(&n), 8));
  file.write(json);
  for (const auto& [entry, x] : order) {
    const Tensor dense = x.contiguous();
    file.write(bytes(dense));
  }
  file.commit();
}

}  // namespace heed
