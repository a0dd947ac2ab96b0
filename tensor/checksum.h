// SPDX-License-Identifier: Apache-2.0
// XXH64 (Collet, xxHash specification 0.1.1, seed 0): notices flipped bits, is no defence against intent.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace heed {

class Checksum {
 public:
  void add(const void* bytes, std::size_t size);
  void add(std::string_view text) { add(text.data(), text.size()); }
  std::uint64_t value() const;                        // of everything added so far

 private:
  std::array<std::uint64_t, 4> lanes_ = {0x60EA27EEADC0B5D6u, 0xC2B2AE3D27D4EB4Fu, 0, 0x61C8864E7A143579u};
  std::array<unsigned char, 32> block_{};             // not yet a whole one
  std::uint64_t size_ = 0;
};

}  // namespace heed
