// SPDX-License-Identifier: Apache-2.0
// Inside of the task generators: what tasks.cc gives to each of them and takes back.
#pragma once
#include "examples/tasks/tasks.h"
#include "tensor/random.h"

namespace heed {

std::vector<std::string> split_words(std::string_view text);     // at single spaces
std::string join_words(std::span<const std::string> words);
bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words);

// Throws Error unless `count` distinct sources can be made of those that `exist`; `of_what` describes them.
void check_enough(std::string_view task, Index count, Index exist, std::string_view of_what);

// `count` pairs with distinct sources. Each checks what it needs of the options, and fills in defaults.
std::vector<TaskPair> make_dates(TaskOptions& options, Random random, Index count);
std::vector<TaskPair> make_numbers(TaskOptions& options, Random random, Index count);

// copy, reverse, sort: how a target is made of a source, symbols 1 .. n, and where each of its elements comes from.
struct Rearranged { std::vector<Index> target, from; };
Rearranged copied(std::span<const Index> source);
Rearranged reversed(std::span<const Index> source);
Rearranged sorted(std::span<const Index> source);               // stable
using Rearrange = Rearranged (*)(std::span<const Index>);
// Lengths uniform in shortest .. longest as far as distinct sources of a length last.
std::vector<TaskPair> make_sequences(Rearrange rearrange, Index symbols, Index shortest, Index longest, Random random,
                                     Index count);
// Distinct sources of these lengths, at most 2⁶⁰.
Index count_sequences(Index symbols, Index shortest, Index longest);

// Adjective-noun pairs held out (the seed chooses them) are in no phrase, or with `held_out` at least one is in every phrase.
std::vector<TaskPair> make_phrases(TaskOptions& options, Random random, Index count, bool held_out);

}  // namespace heed
