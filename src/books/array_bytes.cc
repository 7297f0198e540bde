// SPDX-License-Identifier: Apache-2.0
#include "books/array_bytes.h"

#include <algorithm>

namespace gpushare::books {
namespace {

constexpr uint64_t kTooMuch = UINT64_MAX;
constexpr uint64_t kAlignment = 512;

uint64_t Times(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  return a == kTooMuch || b == kTooMuch || __builtin_mul_overflow(a, b, &product) ? kTooMuch
                                                                                  : product;
}

uint64_t Rounded(uint64_t bytes) {
  return bytes > kTooMuch - kAlignment ? kTooMuch
                                       : (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Some formats store elements in square blocks.
struct Format {
  uint64_t bytes;
  unsigned log2_side;
};

Format FormatOf(unsigned format, unsigned channels) {
  constexpr unsigned kHalf = 0x10, kNv12 = 0xb0, kFirstBlock = 0x91, kLastBlock = 0x9e;
  constexpr unsigned kFirstNormalised = 0xc0, kLastNormalised = 0xcb;
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return {channels, 0};
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case kHalf:
      return {uint64_t{2} * channels, 0};
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return {uint64_t{4} * channels, 0};
    case kNv12:  // one plane with a byte per element, and one with two bytes per four elements
      return {6, 1};
    default:
      break;
  }
  if (format >= kFirstNormalised && format <= kLastNormalised) {
    // 1, 2 and 4 channels of 8 bits, of 16 bits, and the same signed.
    const unsigned which = format - kFirstNormalised;
    return {(uint64_t{1} << which % 3) * (which / 3 % 2 == 0 ? 1 : 2), 0};
  }
  if (format >= kFirstBlock && format <= kLastBlock) {
    const bool half = format <= 0x92 || format == 0x97 || format == 0x98;  // BC1 and BC4
    return {half ? 8u : 16u, 2};
  }
  return {16, 0};
}

uint64_t Level(uint64_t extent, unsigned level) {
  return std::max<uint64_t>(level < 64 ? extent >> level : 0, 1);
}

// A fast path for nearly every array, in a third of the time. It needs extents whose products cannot overflow, a format
// without blocks, and a depth that shrinks with the level.
constexpr uint64_t kPlainExtent = uint64_t{1} << 17;
uint64_t PlainBytes(uint64_t element, const CUDA_ARRAY3D_DESCRIPTOR& d, unsigned levels) {
  uint64_t width = d.Width, height = d.Height, depth = d.Depth;
  uint64_t total = 0;
  for (unsigned level = 0;;) {
    const uint64_t bytes = element * std::max<uint64_t>(width, 1) * std::max<uint64_t>(height, 1) *
                           std::max<uint64_t>(depth, 1);
    total += (bytes + kAlignment - 1) & ~(kAlignment - 1);
    width >>= 1;
    height >>= 1;
    depth >>= 1;
    if (++level >= levels || (width | height | depth) == 0) return total;
  }
}

}  // namespace

uint64_t ArrayBytes(const CUDA_ARRAY3D_DESCRIPTOR& d, unsigned levels) {
  constexpr unsigned kSparse = 0x40, kDeferred = 0x80;  // newer than the oldest header
  if ((d.Flags & (kSparse | kDeferred)) != 0) return 0;
  const Format format = FormatOf(static_cast<unsigned>(d.Format), d.NumChannels);
  const bool layers = (d.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
  if (!layers && format.log2_side == 0 && format.bytes <= 64 &&
      (d.Width | d.Height | d.Depth) < kPlainExtent) {
    return PlainBytes(format.bytes, d, levels);
  }
  const uint64_t longest = std::max({d.Width, d.Height, layers ? 0 : d.Depth, size_t{1}});
  const auto blocks = [&](uint64_t extent) {
    const uint64_t whole = extent >> format.log2_side;
    return whole + (whole << format.log2_side != extent ? 1 : 0);
  };
  uint64_t total = 0;
  for (unsigned level = 0; level < std::max(levels, 1u); ++level) {
    if (level > 0 && (level >= 64 || longest >> level == 0)) break;  // the driver clamps the levels
    const uint64_t slices = layers ? std::max<uint64_t>(d.Depth, 1) : Level(d.Depth, level);
    const uint64_t rows = d.Height == 0 ? 1 : blocks(Level(d.Height, level));
    const uint64_t bytes =
        Rounded(Times(Times(Times(format.bytes, blocks(Level(d.Width, level))), rows), slices));
    if (__builtin_add_overflow(total, bytes, &total) || total == kTooMuch) return kTooMuch;
  }
  return total;
}

}  // namespace gpushare::books
