// SPDX-License-Identifier: Apache-2.0
#include "tensor/checksum.h"

#include <bit>
#include <cstring>

namespace heed {
namespace {

constexpr std::uint64_t kP1 = 0x9E3779B185EBCA87u, kP2 = 0xC2B2AE3D27D4EB4Fu, kP3 = 0x165667B19E3779F9u, kP4 = 0x85EBCA77C2B2AE63u,
                        kP5 = 0x27D4EB2F165667C5u;

template <class T> std::uint64_t read(const unsigned char* p) {
  T word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

std::uint64_t round(std::uint64_t lane, std::uint64_t word) { return std::rotl(lane + word * kP2, 31) * kP1; }

void add_block(std::array<std::uint64_t, 4>& lanes, const unsigned char* p) {
  for (std::size_t i = 0; i < 4; ++i) lanes[i] = round(lanes[i], read<std::uint64_t>(p + 8 * i));
}

}  // namespace

void Checksum::add(const void* bytes, std::size_t size) {
  auto p = static_cast<const unsigned char*>(bytes);
  const std::size_t held = size_ % 32;
  size_ += size;
  if (held + size < 32) {
    if (size > 0) std::memcpy(block_.data() + held, p, size);
    return;
  }
  if (held > 0) {
    std::memcpy(block_.data() + held, p, 32 - held);
    add_block(lanes_, block_.data());
    p += 32 - held;
    size -= 32 - held;
  }
  auto lanes = lanes_;                                // in registers
  for (; size >= 32; p += 32, size -= 32) add_block(lanes, p);
  lanes_ = lanes;
  if (size > 0) std::memcpy(block_.data(), p, size);
}

std::uint64_t Checksum::value() const {
  std::uint64_t h = kP5;
  if (size_ >= 32) {
    h = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) + std::rotl(lanes_[3], 18);
    for (std::uint64_t lane : lanes_) h = (h ^ round(0, lane)) * kP1 + kP4;
  }
  h += size_;
  const unsigned char *p = block_.data(), *end = p + size_ % 32;
  for (; p + 8 <= end; p += 8) h = std::rotl(h ^ round(0, read<std::uint64_t>(p)), 27) * kP1 + kP4;
  if (p + 4 <= end) {
    h = std::rotl(h ^ read<std::uint32_t>(p) * kP1, 23) * kP2 + kP3;
    p += 4;
  }
  for (; p < end; ++p) h = std::rotl(h ^ *p * kP5, 11) * kP1;
  h = (h ^ (h >> 33)) * kP2;
  h = (h ^ (h >> 29)) * kP3;
  return h ^ (h >> 32);
}

}  // namespace heed
