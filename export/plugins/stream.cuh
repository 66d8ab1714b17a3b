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

// Adds columns [64 begin, 64 end) of one row tile times the activations to `sum`.
//   first_tile  number of the row tile's first column tile
//   own         the lane's activations: its token's row plus 4 (lane % 4) units; null for no token
template <class Form, int AHEAD>
DEVICE void stream_tiles(const unsigned char* codes, const unsigned char* scales, int64_t first_tile, int begin,
                         int end, const uint2* own, int lane, float sum[4]) {
  struct Ahead {
    typename Form::Tile tile;
    uint4 low, high;
  } ahead[AHEAD];
  auto read = [&](Ahead& into, int c) {
    into.tile = Form::load(codes, scales, first_tile + c, lane);
    into.low = into.high = make_uint4(0, 0, 0, 0);
    if (own != nullptr) {
      const uint4* both = reinterpret_cast<const uint4*>(own + c * 16);
      into.low = both[0], into.high = both[1];
    }
  };
  UNROLL for (int d = 0; d < AHEAD; ++d)
    if (begin + d < end) read(ahead[d], begin + d);
  for (int first = begin; first < end; first += AHEAD) {
    UNROLL for (int d = 0; d < AHEAD; ++d) {
      int c = first + d;
      if (c < end) {  // the same for the whole warp
        const uint4 low = ahead[d].low, high = ahead[d].high;
        uint32_t b[TILE_STEPS][2] = {{low.x, low.y}, {low.z, low.w}, {high.x, high.y}, {high.z, high.w}};
        multiply_tile<Form>(ahead[d].tile, b, sum);
        if (c + AHEAD < end) read(ahead[d], c + AHEAD);
      }
    }
  }
}

// Writes a warp's fragment to `partial` [16 rows][MAX_TOKENS] of shared memory.
DEVICE void store_fragment(float* partial, const float sum[4], int lane) {
  int g = lane / 4, q = lane % 4;
  UNROLL for (int half = 0; half < 2; ++half)
    *reinterpret_cast<float2*>(partial + (g + 8 * half) * MAX_TOKENS + 2 * q) =
        make_float2(sum[2 * half], sum[2 * half + 1]);
}
