// SPDX-License-Identifier: Apache-2.0
#include "tensor/sha256.h"

#include <algorithm>
#include <bit>

namespace heed {
namespace {

// First 32 bits of the fractional parts of the cube roots of the first 64 primes (4.2.2).
constexpr std::uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

}  // namespace

void Sha256::block(const std::uint8_t* bytes) {
  std::uint32_t w[64];
  for (int t = 0; t < 16; ++t)
    w[t] = std::uint32_t(bytes[4 * t]) << 24 | std::uint32_t(bytes[4 * t + 1]) << 16 | std::uint32_t(bytes[4 * t + 2]) << 8 |
           bytes[4 * t + 3];
  for (int t = 16; t < 64; ++t) {
    const std::uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ (w[t - 15] >> 3);
    const std::uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ (w[t - 2] >> 10);
    w[t] = w[t - 16] + s0 + w[t - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (int t = 0; t < 64; ++t) {
    const std::uint32_t t1 = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) + K[t] + w[t];
    const std::uint32_t t2 = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const std::uint32_t add[8] = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < 8; ++i) state_[i] += add[i];
}

void Sha256::update(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t at = length_ % 64, n = std::min(bytes.size(), 64 - at);
    std::copy_n(bytes.begin(), n, pending_.begin() + std::ptrdiff_t(at));
    length_ += n;
    bytes.remove_prefix(n);
    if (at + n == 64) block(pending_.data());
  }
}

std::array<std::uint8_t, 32> Sha256::digest() const {
  Sha256 last = *this;
  const std::size_t padding = 1 + (119 - length_ % 64) % 64;         // 0x80, zeros up to 56 mod 64, then the length in bits
  std::string tail(padding + 8, '\0');
  tail[0] = char(0x80);
  for (std::size_t i = 0; i < 8; ++i) tail[padding + i] = char(length_ * 8 >> (56 - 8 * i));
  last.update(tail);
  std::array<std::uint8_t, 32> out;
  for (std::size_t i = 0; i < 32; ++i) out[i] = std::uint8_t(last.state_[i / 4] >> (24 - 8 * (i % 4)));
  return out;
}

std::string hexadecimal(const std::array<std::uint8_t, 32>& digest) {
  std::string text;
  for (std::uint8_t byte : digest) text += "0123456789abcdef"[byte >> 4], text += "0123456789abcdef"[byte & 15];
  return text;
}

std::string sha256(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hexadecimal(hash.digest());
}

}  // namespace heed
