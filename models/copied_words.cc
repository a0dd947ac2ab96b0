// SPDX-License-Identifier: Apache-2.0
#include "models/copied_words.h"

#include <algorithm>
#include <map>
#include <set>

namespace heed {

OutsideWords outside_words(const Vocabulary& target, std::span<const std::string> source_tokens) {
  OutsideWords outside;
  std::set<std::string_view> seen;
  for (std::size_t j = 0; j < source_tokens.size(); ++j)
    if (target.id(source_tokens[j]) == target.unk && seen.insert(source_tokens[j]).second) outside.push_back({Index(j), source_tokens[j]});
  return outside;
}

std::vector<std::int32_t> target_ids(const Vocabulary& target, std::span<const std::string> tokens, const OutsideWords& outside) {
  std::vector<std::int32_t> ids = target.ids(tokens);
  std::map<std::string_view, Index> places;
  for (const OutsideWord& word : outside) places.emplace(word.word, word.place);
  for (std::size_t t = 0; t < ids.size(); ++t) {
    if (ids[t] != target.unk) continue;
    if (const auto at = places.find(tokens[t]); at != places.end()) ids[t] = std::int32_t(target.size() + at->second);
  }
  return ids;
}

std::vector<std::int32_t> source_ids(const Vocabulary& source, const Vocabulary& target, std::span<const std::string> tokens,
                                     const OutsideWords& outside) {
  std::vector<std::int32_t> ids = source.ids(tokens);
  const std::vector<std::int32_t> written = target_ids(target, tokens, outside);
  for (std::size_t s = 0; s < ids.size(); ++s)
    if (ids[s] == source.unk) ids[s] = std::int32_t(source.size()) + written[s];
  return ids;
}

std::vector<std::string> target_pieces(const Vocabulary& target, std::span<const std::int32_t> ids, const OutsideWords& outside) {
  std::vector<std::string> pieces;
  for (const std::int32_t id : ids) {
    const auto at = std::ranges::find(outside, Index(id) - target.size(), &OutsideWord::place);
    pieces.push_back(at == outside.end() ? target.piece(id) : at->word);
  }
  return pieces;
}

std::vector<std::string> source_pieces(const Vocabulary& source, const Vocabulary& target, std::span<const std::int32_t> ids,
                                       const OutsideWords& outside) {
  std::vector<std::string> pieces;
  for (const std::int32_t id : ids) {
    const std::int32_t word = id - std::int32_t(source.size());
    pieces.push_back(word < 0 ? source.piece(id) : target_pieces(target, {&word, 1}, outside)[0]);
  }
  return pieces;
}

Tensor shared_words(const Vocabulary& source, const Vocabulary& target) {
  const Tensor words = empty({source.size()}, DType::i32);
  auto* const to = words.mutable_data<std::int32_t>();
  for (Index id = 0; id < source.size(); ++id) {
    const std::int32_t word = target.id(source.piece(id));
    to[id] = word == target.unk ? -1 : word;
  }
  to[source.eos] = target.eos;
  return words;
}

}  // namespace heed
