// SPDX-License-Identifier: Apache-2.0
#include "models/bpe.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <unordered_map>

#include "models/text.h"
#include "models/vocabulary.h"
#include "tensor/format.h"
#include "tensor/sha256.h"

#ifdef HEED_SENTENCEPIECE
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>
#endif

namespace heed {
namespace {

// Normalisation tables of SentencePiece 0.1.97 and of 0.2.3: nmt_nfkc, nfkc, nmt_nfkc_cf, nfkc_cf.
constexpr std::string_view kKnownTables[] = {"51d3684747b35ef99cd4802f37cc1ee0c6bec4d060814f774efb1066d3c167f2",
                                             "557b5397b1133d8abb62f7923e5b53ee496d3e36b9f63fd42625077c33688a14",
                                             "6cec34e8016fd0d0a2da28b60b00e36b19a275df83786bf6b494bd033c708f83",
                                             "b30e4085ba1fad56d2401f4612419b6b3b42c5adc1e04f3aa1806399895d6bdd",
                                             "1e2c7b43d3ee9755ceaa2ac335e253d8703604e0249ee1e81156c92b46423844",
                                             "7e46d9e08af4b6a37991b04fb8388644c1595a0abcd0f26d6a5d575e2a3663ea",
                                             "2c03512e62f9ed965ec90d85314211b63b5b8aa0395311ea2147eec9ff738907",
                                             "d8dfef3d6db0eef0742f8b55a73aee7fce6c1e21d26a09b8d3d4b52c42a791cb"};

// One field of a protobuf message: `bytes` is the content of a length-delimited one, `whole` the field with its tag.
struct Field { std::uint64_t number; int type; std::string_view bytes, whole; };

class Message {
 public:
  Message(std::string_view bytes, std::size_t offset, const std::string& name) : bytes_(bytes), offset_(offset), name_(name) {}

  bool next(Field& field) {
    if (at_ == bytes_.size()) return false;
    const std::size_t start = at_;
    const std::uint64_t tag = varint();
    field = {tag >> 3, int(tag & 7), {}, {}};
    if (field.number == 0) malformed(start);
    if (field.type == 0) varint();
    else if (field.type == 1) skip(8);
    else if (field.type == 5) skip(4);
    else if (field.type == 2) field.bytes = skip(varint());
    else malformed(start);
    field.whole = bytes_.substr(start, at_ - start);
    return true;
  }
  std::size_t offset(const Field& field) const { return offset_ + std::size_t(field.bytes.data() - bytes_.data()); }

 private:
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == bytes_.size()) malformed(at_);
      const auto byte = std::uint8_t(bytes_[at_++]);
      value |= std::uint64_t(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    malformed(at_);
  }
  std::string_view skip(std::uint64_t size) {
    if (size > bytes_.size() - at_) malformed(at_);
    at_ += std::size_t(size);
    return bytes_.substr(at_ - std::size_t(size), std::size_t(size));
  }
  [[noreturn]] void malformed(std::size_t at) const {
    throw FileError(fmt::format("{}: not a SentencePiece model: malformed at byte {}", name_, offset_ + at));
  }

  std::string_view bytes_;
  std::size_t at_ = 0, offset_;
  const std::string& name_;
};

void append_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += char(value | 0x80);
  out += char(value);
}

// NormalizerSpec without a precompiled_charsmap (field 2) that is not known
std::string safe_normalizer(Message spec) {
  std::string out;
  for (Field field; spec.next(field);) {
    const bool table = field.number == 2 && field.type == 2 && !field.bytes.empty();
    if (!table || std::ranges::find(kKnownTables, sha256(field.bytes)) != std::end(kKnownTables)) out += field.whole;
  }
  return out;
}

}  // namespace

std::string scan_sentencepiece_model(std::string_view model, const std::string& name) {
  check<FileError>(model.size() <= kLargestModel, "{}: too large: {} bytes, at most {} allowed", name, model.size(),
                   kLargestModel);
  std::string out;
  out.reserve(model.size());
  std::size_t pieces = 0;
  Message proto(model, 0, name);  // ModelProto: 1 pieces, 2 trainer, 3 normalizer, 5 denormalizer
  for (Field field; proto.next(field);) {
    const std::size_t offset = field.type == 2 ? proto.offset(field) : 0;
    if (field.number == 1 && field.type == 2) {
      const auto rule = [&](bool holds, std::string_view what) {
        check<FileError>(holds, "{}: piece {} at byte {} {}", name, pieces, offset, what);
      };
      rule(pieces < kMostPieces, "is one more than the million allowed");
      Message message(field.bytes, offset, name);
      bool named = false;
      for (Field part; message.next(part);) {
        if (part.number != 1 || part.type != 2) continue;
        named = true;
        rule(!part.bytes.empty(), "is empty");
        rule(part.bytes.size() <= kLongestPiece, "has more than 1024 bytes");
        rule(part.bytes.find('\0') == part.bytes.npos, "contains a NUL");
        rule(is_utf8(part.bytes), "is not UTF-8");
      }
      rule(named, "has no text");
      ++pieces;
    }
    if ((field.number == 3 || field.number == 5) && field.type == 2) {
      const std::string spec = safe_normalizer(Message(field.bytes, offset, name));
      append_varint(out, field.number << 3 | 2);
      append_varint(out, spec.size());
      out += spec;
    } else {
      out += field.whole;
    }
  }
  check<FileError>(pieces > 0, "{}: not a SentencePiece model: no pieces in {} bytes", name, model.size());
  return out;
}

#ifdef HEED_SENTENCEPIECE

namespace { constexpr std::string_view kSpace = "\u2581"; }   // how pieces write a space

struct Bpe::Model {
  std::string bytes;
  sentencepiece::SentencePieceProcessor processor;
  bool prefixed = false, suffixed = false;   // a space goes in front of every line, or behind it
  bool byte_pieces = false;          // unknown characters are spelt in bytes: <0x41>
};

namespace {

struct Lines : sentencepiece::SentenceIterator {
  explicit Lines(std::span<const std::string> lines) : lines(lines) {}
  bool done() const override { return at == lines.size(); }
  void Next() override { ++at; }
  const std::string& value() const override { return lines[at]; }
  sentencepiece::util::Status status() const override { return {}; }
  std::span<const std::string> lines;
  std::size_t at = 0;
};

// Pieces of single bytes, and pieces that a model was given, may spell what is no line of text.
std::string as_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return repaired(text);
}

}  // namespace

bool has_sentencepiece() { return true; }

Bpe::Bpe(std::string_view model, const std::string& name) {
  auto loaded = std::make_shared<Model>();
  loaded->bytes = scan_sentencepiece_model(model, name);
  const auto status = loaded->processor.LoadFromSerializedProto(loaded->bytes);
  check<FileError>(status.ok(), "{}: refused by the library: {}", name, status.error_message());
  loaded->byte_pieces = loaded->processor.IsByte(loaded->processor.PieceToId("<0x00>"));
  model_ = loaded;
  const std::vector<std::string> pieces = tokens("x");
  loaded->prefixed = !pieces.empty() && pieces.front().starts_with(kSpace);
  loaded->suffixed = !pieces.empty() && pieces.back().ends_with(kSpace);
}

std::vector<std::string> Bpe::tokens(std::string_view line) const {
  std::vector<std::string> pieces;
  const auto status = model_->processor.Encode(absl::string_view(line.data(), line.size()), &pieces);
  check<Error>(status.ok(), "bpe: {}", status.error_message());
  return pieces;
}

// The library's Decode, but for "<unk>" and for text that reads like it, which stay as they are, for spaces behind lines, and for as_line.
std::string Bpe::text(std::span<const std::string> tokens) const {
  const auto& processor = model_->processor;
  std::string line;
  for (const std::string& token : tokens) {
    if (model_->byte_pieces && processor.IsByte(processor.PieceToId(token))) line += char(std::stoi(token.substr(3, 2), nullptr, 16));
    else line += token;
  }
  for (std::size_t at = 0; (at = line.find(kSpace, at)) != line.npos; ++at) line.replace(at, kSpace.size(), " ");
  const std::size_t before = model_->prefixed && line.starts_with(' '),
                    behind = model_->suffixed && line.size() > before && line.ends_with(' ');
  return as_line(line.substr(before, line.size() - before - behind));
}

const std::string& Bpe::model() const { return model_->bytes; }

std::vector<std::string> Bpe::pieces() const {
  const auto& processor = model_->processor;
  std::vector<std::string> pieces;
  for (int id = 0; id < processor.GetPieceSize(); ++id)
    if (!processor.IsUnknown(id) && !processor.IsControl(id) && !processor.IsUnused(id)) pieces.push_back(processor.IdToPiece(id));
  return pieces;
}

Bpe train_bpe(std::span<const std::string> lines, Index vocabulary_size) {
  constexpr Index kSpecial = 4;
  check<Error>(vocabulary_size > kSpecial && vocabulary_size <= Index(kMostPieces), "bpe: vocabulary size is not in [{}, {}]: {}",
               kSpecial + 1, kMostPieces, vocabulary_size);
  check<Error>(std::ranges::any_of(lines, [](const std::string& line) { return !is_blank(line); }), "bpe: no text to learn from: {} lines",
               lines.size());
  std::set<std::string> known{std::string(kSpace)};
  for (const std::string& line : lines)
    for (std::string& character : characters(line))
      if (character != " ") known.insert(std::move(character));
  const Index least = Index(known.size()) + kSpecial;
  check<Error>(vocabulary_size >= least, "bpe: vocabulary size {}: the text has {} different characters; {} or more", vocabulary_size,
               known.size(), least);
  // Two characters mean something else to the trainer: a border of pieces, and a line to be left out. They become pieces that never merge.
  const std::string border = "\t", left_out = "\u2585";
  std::vector<std::string> text(lines.begin(), lines.end());
  for (std::string& line : text)
    for (std::size_t at = 0; (at = line.find(left_out, at)) != line.npos;) line.replace(at, left_out.size(), border);
  std::string alone;
  for (const std::string& character : {border, left_out})
    if (known.contains(character)) alone += (alone.empty() ? "" : ",") + character;
  // No piece is made of text that reads like a special one, so that its characters are shown once more.
  for (const std::string& character : characters("<pad></s><unk>"))
    if (known.contains(character)) text.push_back(border + character);
  Lines iterator(text);
  std::string model;
  const std::unordered_map<std::string, std::string> options = {
      {"model_type", "bpe"},         {"vocab_size", std::to_string(vocabulary_size)},
      {"control_symbols", "<pad>"},  {"user_defined_symbols", alone},
      {"hard_vocab_limit", "false"}, {"max_sentence_length", std::to_string(kLongestLine)},
      {"character_coverage", "1.0"}, {"normalization_rule_name", "identity"}, {"remove_extra_whitespaces", "false"},
      {"num_threads", "1"},          {"minloglevel", "3"}};
  const auto status = sentencepiece::SentencePieceTrainer::Train(options, &iterator, &model);
  check<Error>(status.ok(), "bpe: training on {} lines for a vocabulary of {} failed: {}", lines.size(), vocabulary_size,
               status.error_message());
  return Bpe(model);
}

#else

struct Bpe::Model { std::string bytes; };

bool has_sentencepiece() { return false; }
Bpe::Bpe(std::string_view, const std::string&) {
  fail<Error>("tokenizer bpe: this build is without SentencePiece; install libsentencepiece-dev and build again");
}
std::vector<std::string> Bpe::tokens(std::string_view) const { return {}; }
std::string Bpe::text(std::span<const std::string>) const { return {}; }
const std::string& Bpe::model() const { return model_->bytes; }
std::vector<std::string> Bpe::pieces() const { return {}; }
Bpe train_bpe(std::span<const std::string>, Index) { return Bpe({}); }

#endif

}  // namespace heed
