// What the attention kernels keep in a cache: bfloat16, or e4m3 times one scale for all keys and one for
// all values. e4m3 is rounded to nearest even and saturates, in integer arithmetic: sm_87 has no other.
//
// Defines: FP8 0 or 1.
#pragma once
#include "common.cuh"

#if FP8

typedef uint8_t Cell;

DEVICE uint32_t float_to_e4m3(float x) {
  uint32_t bits = float_to_bits(x), sign = bits >> 24 & 0x80u;
  if (x != x) return sign | 0x7Fu;
  float size = fminf(bits_to_float(bits & 0x7FFFFFFFu), 448.0f);
  if (size < 0x1p-6f) return sign | static_cast<uint32_t>(rintf(size * 0x1p9f));
  uint32_t all = float_to_bits(size);
  return sign | (((all + 0x7FFFFu + (all >> 20 & 1u)) >> 20) - (120u << 3));
}

// The two bytes at the bottom as two bf16. Moved in place a byte is its value x 2^-120, a bf16 subnormal
// where it is an e4m3 one.
DEVICE uint32_t e4m3_pair(uint32_t two) {
  uint32_t apart = (two & 0xFFu) | (two & 0xFF00u) << 8;
  return bf16x2_fma((apart & 0x00800080u) << 8 | (apart & 0x007F007Fu) << 4, 0x7B807B80u, 0x80008000u);
}

// Eight values, not scaled yet.
DEVICE uint4 load_cells(const Cell* from) {
  uint2 words = *reinterpret_cast<const uint2*>(from);
  return make_uint4(e4m3_pair(words.x), e4m3_pair(words.x >> 16), e4m3_pair(words.y), e4m3_pair(words.y >> 16));
}

// Eight bf16 into the cache.
DEVICE void store_cells(Cell* to, const uint16_t* from, float scale) {
  uint32_t words[2] = {};
  UNROLL for (int i = 0; i < 8; ++i) words[i / 4] |= float_to_e4m3(bf16_to_float(from[i]) / scale) << i % 4 * 8;
  *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
}

#else

typedef uint16_t Cell;

DEVICE void store_cells(Cell* to, const uint16_t* from, float) {
  *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
}

#endif
