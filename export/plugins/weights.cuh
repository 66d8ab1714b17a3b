// Weights as the tensor cores want them: packed in tiles by pack.py, decoded in registers.
//
// A matrix [N, K] is tiles of 16 rows x 64 columns, [N/16][K/64], N and K padded with zeros. A lane
// (g = lane / 4, q = lane % 4) finds its values of rows g and g + 8 in whole 16-byte words:
//
//   packed[N/16][K/64][LOADS][32 lanes][16 bytes]     LOADS: nvfp4 1, int4 1, fp8 2, bf16 4
//
// Step j (0..3) of a tile covers columns 16j..16j+15, and of these the lane holds 4q..4q+3: a[0], a[1]
// are columns 4q, 4q+1 of rows g, g+8; a[2], a[3] are columns 4q+2, 4q+3. Which columns share a step
// is free as long as both operands agree, and this choice makes a lane's activations contiguous.
//
// Decoding moves bits, so it yields value x 2^WEIGHT_EXPONENT, exactly (bf16 subnormals included:
// tensor cores multiply them in full). Activations are scaled up by 2^ACTIVATION_EXPONENT to keep products
// in fp32's normal range; the sum is scaled back once at the end, by RESTORE.
//
// Scales: nvfp4 packed_scales[N/16][K/64][8 g][rows g, g+8][4 steps] e4m3, and one fp32 a matrix;
//         int4  packed_scales[N/16][K/64][8 g][rows g, g+8][SCALES] fp16, and one fp32 a matrix,
//               SCALES = 2 for groups of 32, else 1; fp8 one fp32 a matrix.
#pragma once

#include "common.cuh"

#define BF16 0
#define FP8 1
#define NVFP4 2
#define INT4 3

constexpr int TILE_ROWS = 16, TILE_COLUMNS = 64, TILE_STEPS = 4;

template <int FORM, int COLUMNS_A_SCALE = 64>
struct Weights {
  static constexpr int LOADS = FORM == BF16 ? 4 : FORM == FP8 ? 2 : 1;  // 16-byte words a lane and tile
  static constexpr int TILE_BYTES = LOADS * 32 * 16;
  // 0 for bf16 and int4, whose decoded values are the values (int4: the code minus 8).
  static constexpr int WEIGHT_EXPONENT = FORM == FP8 ? -120 : FORM == NVFP4 ? -126 : 0;
  static constexpr int ACTIVATION_EXPONENT = FORM == FP8 || FORM == NVFP4 ? 96 : 0;
  static constexpr bool HAS_BLOCK_SCALES = FORM == NVFP4 || FORM == INT4;
  static constexpr int SCALES = FORM == NVFP4 ? 4 : FORM == INT4 && COLUMNS_A_SCALE == 32 ? 2 : 1;  // a row and tile
  static constexpr int SCALE_BYTES = !HAS_BLOCK_SCALES ? 0 : TILE_ROWS * SCALES * (FORM == NVFP4 ? 1 : 2);

  // One lane's share of a tile, as it lies in memory.
  struct Tile {
    uint4 words[LOADS];
    uint2 scales;  // what HAS_BLOCK_SCALES needs of it
  };

  // What the sum of products must be multiplied by, the matrix's fp32 scale apart. Block scales come
  // out of e4m3_halves_2m8 a factor of 2^8 small.
  static DEVICE float restore() {
    constexpr int exponent = -WEIGHT_EXPONENT - ACTIVATION_EXPONENT + (FORM == NVFP4 ? 8 : 0);
    return bits_to_float(static_cast<uint32_t>(exponent + 127) << 23);
  }
  static DEVICE float activation_scale() {
    return bits_to_float(static_cast<uint32_t>(ACTIVATION_EXPONENT + 127) << 23);
  }

  // Reads a tile, given where the lane's parts of its codes and of its scales lie.
  static DEVICE Tile load(const unsigned char* codes, const unsigned char* scales) {
    Tile t;
    UNROLL for (int i = 0; i < LOADS; ++i) t.words[i] = load_stream(reinterpret_cast<const uint4*>(codes) + i * 32);
    t.scales = make_uint2(0, 0);
    if (SCALE_BYTES == 64) t.scales = load_stream(reinterpret_cast<const uint2*>(scales));
    if (SCALE_BYTES == 32) t.scales.x = *reinterpret_cast<const uint32_t*>(scales);
    return t;
  }

  // The A fragment of step j.
  static DEVICE void decode(const Tile& t, int j, uint32_t a[4]) {
    if (FORM == BF16) {
      a[0] = t.words[j].x, a[1] = t.words[j].y, a[2] = t.words[j].z, a[3] = t.words[j].w;
    } else if (FORM == FP8) {
      const uint4& four = t.words[j / 2];
      decode_fp8(j % 2 ? four.z : four.x, a[0], a[1]);
      decode_fp8(j % 2 ? four.w : four.y, a[2], a[3]);
    } else {
      const uint4& four = t.words[0];
      uint32_t word = j == 0 ? four.x : j == 1 ? four.y : j == 2 ? four.z : four.w;
      FORM == NVFP4 ? decode_nvfp4(word, a) : decode_int4(word, a);
    }
  }

  // The block scales of step j for rows g and g + 8.
  static DEVICE float2 block_scales(const Tile& t, int j) {
    if (FORM == NVFP4) {  // two steps' scales are decoded by the same two instructions
      uint32_t low = e4m3_halves_2m8(t.scales.x, j % 2), high = e4m3_halves_2m8(t.scales.y, j % 2);
      return make_float2(half_to_float(low >> j / 2 * 16), half_to_float(high >> j / 2 * 16));
    }
    if (SCALES == 1) return make_float2(half_to_float(t.scales.x), half_to_float(t.scales.x >> 16));
    int shift = j / 2 * 16;
    return make_float2(half_to_float(t.scales.x >> shift), half_to_float(t.scales.y >> shift));
  }

 private:
  // Each 16-bit half of a word holds four e2m1 codes (s e e m). In bf16 the sign is bit 15 and e e m are
  // bits 8..6; pack.py lays the codes so that the first is in place and the second one shift away:
  //   code 0: sign 15, magnitude 8..6   code 1: sign 12, magnitude 5..3 (both << 3)
  //   code 2: sign 14, magnitude 2..0   code 3: sign 13, magnitude 11..9
  static DEVICE void decode_nvfp4(uint32_t w, uint32_t a[4]) {
    a[0] = w & 0x81C081C0u;
    a[1] = w << 3 & 0x81C081C0u;
    a[2] = (w << 1 & 0x80008000u) | (w << 6 & 0x01C001C0u);
    a[3] = (w << 2 & 0x80008000u) | (w >> 3 & 0x01C001C0u);
  }
  // Each half holds two e4m3 codes (s eeee mmm). In bf16 the sign is bit 15 and eeee mmm are bits 10..4:
  //   code 0: sign 15, magnitude 10..4   code 1: sign 14, magnitude 13..11 (its high bits) and 3..0
  static DEVICE void decode_fp8(uint32_t w, uint32_t& first, uint32_t& second) {
    first = w & 0x87F087F0u;
    second = (w << 1 & 0x80008000u) | (w >> 3 & 0x07000700u) | (w << 4 & 0x00F000F0u);
  }
  // Code i of a half is bits 4i+3..4i: 128 + code is a bf16 with the code in its last mantissa bits.
  static DEVICE void decode_int4(uint32_t w, uint32_t a[4]) {
    UNROLL for (int i = 0; i < 4; ++i) {
      uint32_t biased = mask_or<0x000F000Fu, 0x43004300u>(w >> 4 * i);
      a[i] = bf16x2_fma(biased, 0x3F803F80u, 0xC308C308u);  // minus 136
    }
  }
};
