// One warp times one row tile: tiles are read AHEAD of their use, activations lie in memory in the
// order of B fragments ("tile order"), so nothing is staged and no other thread is waited for.
//
// Tile order of a row: columns 4u..4u+3 stand at unit tile_unit(u), four values of bf16 each.
#pragma once

#include "weights.cuh"

constexpr int MAX_TOKENS = 8;  // the N of an mma tile

DEVICE int tile_unit(int u) { return u / 16 * 16 + u % 4 * 4 + u % 16 / 4; }
DEVICE int tile_order(int column) { return tile_unit(column / 4) * 4 + column % 4; }

// Adds the product of one tile and its columns' activations (b[step]) to the fragment `sum`.
template <class Form>
DEVICE void multiply_tile(const typename Form::Tile& tile, const uint32_t b[TILE_STEPS][2], float sum[4]) {
  if (!Form::HAS_BLOCK_SCALES) {
    UNROLL for (int j = 0; j < TILE_STEPS; ++j) {
      uint32_t a[4];
      Form::decode(tile, j, a);
      mma_bf16(sum, a, b[j]);
    }
    return;
  }
  constexpr int STEPS_A_SCALE = TILE_STEPS / Form::SCALES;
  UNROLL for (int s = 0; s < Form::SCALES; ++s) {
    float product[4];
    UNROLL for (int i = 0; i < STEPS_A_SCALE; ++i) {
      uint32_t a[4];
      Form::decode(tile, s * STEPS_A_SCALE + i, a);
      i == 0 ? mma_bf16_zero(product, a, b[s * STEPS_A_SCALE]) : mma_bf16(product, a, b[s * STEPS_A_SCALE + i]);
    }
    float2 scale = Form::block_scales(tile, s * STEPS_A_SCALE);
    sum[0] += scale.x * product[0], sum[1] += scale.x * product[1];
    sum[2] += scale.y * product[2], sum[3] += scale.y * product[3];
  }
}

// One lane's way through consecutive tiles of one row tile, AHEAD tiles ahead of their use.
//
// `Activations` gives the lane its B fragments: `Early read(int tile)` NEAR tiles ahead of its use, and
// `void fragments(int tile, Early, uint32_t b[4][2])` when they are used. They come from a near memory, so
// NEAR is small: what is read early takes registers.
template <class Form, int AHEAD>
struct Stream {
  static constexpr int NEAR = AHEAD % 2 ? 1 : 2;  // divides AHEAD
  typename Form::Tile ahead[AHEAD];
  const unsigned char *codes, *scales;  // where the lane's part of tile 0 lies
  int count;

  // Tiles `first`, first + 1, ... of a packed matrix. Reads nothing yet.
  DEVICE Stream(const unsigned char* matrix, const unsigned char* matrix_scales, int64_t first, int count_, int lane)
      : codes(matrix + first * Form::TILE_BYTES + lane * 16),
        scales(matrix_scales + first * Form::SCALE_BYTES + lane / 4 * (Form::SCALE_BYTES / 8)),
        count(count_) {}

  // Reads the first tiles, which may be long before `run`.
  DEVICE void start() {
    UNROLL for (int d = 0; d < AHEAD; ++d)
      if (d < count) ahead[d] = Form::load(codes + d * Form::TILE_BYTES, scales + d * Form::SCALE_BYTES);
  }

  // Adds the product with the activations to the fragment `sum`.
  template <class Activations>
  DEVICE void run(const Activations& activations, float sum[4]) {
    typename Activations::Early early[NEAR];
    UNROLL for (int d = 0; d < NEAR; ++d)
      if (d < count) early[d] = activations.read(d);
    int c = 0;
    for (; c + 2 * AHEAD <= count; c += AHEAD) {  // all that is read here exists
      codes += AHEAD * Form::TILE_BYTES, scales += AHEAD * Form::SCALE_BYTES;
      UNROLL for (int d = 0; d < AHEAD; ++d) {
        uint32_t b[TILE_STEPS][2];
        activations.fragments(c + d, early[d % NEAR], b);
        early[d % NEAR] = activations.read(c + NEAR + d);
        multiply_tile<Form>(ahead[d], b, sum);
        ahead[d] = Form::load(codes + d * Form::TILE_BYTES, scales + d * Form::SCALE_BYTES);
      }
    }
    for (; c < count; c += AHEAD) {
      codes += AHEAD * Form::TILE_BYTES, scales += AHEAD * Form::SCALE_BYTES;
      UNROLL for (int d = 0; d < AHEAD; ++d) {
        if (c + d < count) {  // the same for the whole warp
          uint32_t b[TILE_STEPS][2];
          activations.fragments(c + d, early[d % NEAR], b);
          if (c + NEAR + d < count) early[d % NEAR] = activations.read(c + NEAR + d);
          multiply_tile<Form>(ahead[d], b, sum);
          if (c + AHEAD + d < count)
            ahead[d] = Form::load(codes + d * Form::TILE_BYTES, scales + d * Form::SCALE_BYTES);
        }
      }
    }
  }
};

// A lane's 32 bytes of a tile's activations as B fragments.
DEVICE void unpack_fragments(uint4 low, uint4 high, uint32_t b[TILE_STEPS][2]) {
  b[0][0] = low.x, b[0][1] = low.y, b[1][0] = low.z, b[1][1] = low.w;
  b[2][0] = high.x, b[2][1] = high.y, b[3][0] = high.z, b[3][1] = high.w;
}

// Activations in memory, in tile order: read as early as the weights.
struct FromMemory {
  struct Early {
    uint4 low, high;
  };
  const uint4* own;  // the lane's part of tile 0; null for a token that is none

  // `row`: the lane's token's values from the first tile on.
  DEVICE FromMemory(const uint2* row, int lane) : own(row ? reinterpret_cast<const uint4*>(row) + lane % 4 * 2 : nullptr) {}
  DEVICE Early read(int tile) const {
    if (own == nullptr) return {make_uint4(0, 0, 0, 0), make_uint4(0, 0, 0, 0)};
    return {own[tile * 8], own[tile * 8 + 1]};
  }
  DEVICE void fragments(int tile, const Early& early, uint32_t b[TILE_STEPS][2]) const {
    unpack_fragments(early.low, early.high, b);
  }
};

// Writes a warp's fragment to `partial` [16 rows][MAX_TOKENS] of shared memory.
DEVICE void store_fragment(float* partial, const float sum[4], int lane) {
  int g = lane / 4, q = lane % 4;
  UNROLL for (int half = 0; half < 2; ++half)
    *reinterpret_cast<float2*>(partial + (g + 8 * half) * MAX_TOKENS + 2 * q) =
        make_float2(sum[2 * half], sum[2 * half + 1]);
}
