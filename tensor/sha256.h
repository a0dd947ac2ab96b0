// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4): names content that must be the same everywhere.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace heed {

class Sha256 {
 public:
  void update(std::string_view bytes);
  std::array<std::uint8_t, 32> digest() const;                     // of everything so far

 private:
  void block(const std::uint8_t* bytes);
  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::uint8_t, 64> pending_{};
  std::uint64_t length_ = 0;
};

// 64 hexadecimal digits, lower case
std::string sha256(std::string_view bytes);
std::string hexadecimal(const std::array<std::uint8_t, 32>& digest);

}  // namespace heed
