// SPDX-License-Identifier: Apache-2.0
// Word alignments in the usual text form: "0-0 1-2 2-1", source-target, counted from 0.
#pragma once
#include <compare>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"

namespace heed {

struct Link {
  Index source, target;
  friend auto operator<=>(const Link&, const Link&) = default;
};

// Och & Ney 2003: sure links S; possible links P ⊇ S, of which `possible` holds those that are not sure.
struct Alignment {
  std::vector<Link> sure, possible;
};

// Pairs i<mark>j between spaces: mark '-' for sure links, '?' for possible ones. Error names a pair that is none.
std::vector<Link> parse_links(std::string_view text, char mark = '-');
std::string to_string(std::span<const Link> links, char mark = '-');

}  // namespace heed
