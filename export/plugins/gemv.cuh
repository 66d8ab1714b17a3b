// A packed matrix times up to eight tokens: what decoding one sequence is made of.
//
// A block owns TILES tiles of 16 rows and its warps share their columns: warp w takes column
// tiles w, w + SHARERS, ... and the warps' sums meet in shared memory at the end. Every weight is read
// once, in 512-byte runs, AHEAD tiles ahead of their use; the first AHEAD before the launch before
// this one has ended, since weights do not depend on it.
//
// Activations stand in shared memory as bf16, in the order the B fragments take them: of a column
// tile, lane (g, q) wants columns 4q..4q+3 of the four steps for token g, 32 bytes that lie together.
#pragma once

#include "stream.cuh"

// Where columns 4u..4u+3 of token t stand in a row of activations, in units of four values. Odd
// tokens have their 16-byte halves exchanged, so that two tokens' reads meet in no shared memory bank.
DEVICE int activation_unit(int t, int u) {
  return tile_unit(u) ^ (t & 1) << 1;
}

template <class Form, int TILES, int SHARERS, int AHEAD>
struct Gemv {
  float sum[TILES][4];
  typename Form::Tile ahead[AHEAD][TILES];

  const unsigned char *codes, *scales;
  int64_t first_tile;  // number of the first row tile's first column tile
  int column_tiles, row_tiles, warp, lane;

  // Starts reading. `row_tiles` says how many of TILES exist; the others repeat the last.
  DEVICE void start(const unsigned char* codes_, const unsigned char* scales_, int64_t row_tile, int row_tiles_,
                    int column_tiles_, int warp_, int lane_) {
    codes = codes_, scales = scales_, column_tiles = column_tiles_, row_tiles = row_tiles_;
    warp = warp_, lane = lane_;
    first_tile = row_tile * column_tiles;
    UNROLL for (int r = 0; r < TILES; ++r)
      UNROLL for (int i = 0; i < 4; ++i) sum[r][i] = 0;
    UNROLL for (int d = 0; d < AHEAD; ++d) read(d, warp + d * SHARERS);
  }

  // Adds W x for `tokens` activation rows of `stride` units; columns at or beyond 64 column_tiles are not read.
  DEVICE void run(const uint2* activations, int stride, int tokens) {
    int g = lane / 4, q = lane % 4;
    const uint4* own = reinterpret_cast<const uint4*>(activations + g * stride) + q * 2;
    for (int first = warp; first < column_tiles; first += SHARERS * AHEAD) {
      UNROLL for (int d = 0; d < AHEAD; ++d) {
        int c = first + d * SHARERS;
        if (c < column_tiles) {  // the same for the whole warp
          uint4 low = make_uint4(0, 0, 0, 0), high = low;
          if (g < tokens) {
            low = own[c * 8 + (g & 1)];
            high = own[c * 8 + 1 - (g & 1)];
          }
          uint32_t b[TILE_STEPS][2] = {{low.x, low.y}, {low.z, low.w}, {high.x, high.y}, {high.z, high.w}};
          UNROLL for (int r = 0; r < TILES; ++r) multiply_tile<Form>(ahead[d][r], b, sum[r]);
          read(d, c + AHEAD * SHARERS);
        }
      }
    }
  }

  // Adds the warps' sums: `partial` is [SHARERS][TILES * 16][MAX_TOKENS] floats of shared memory.
  DEVICE void share(float* partial) const {
    float* own = partial + warp * TILES * TILE_ROWS * MAX_TOKENS;
    UNROLL for (int r = 0; r < TILES; ++r) store_fragment(own + r * TILE_ROWS * MAX_TOKENS, sum[r], lane);
  }
  static DEVICE float collect(const float* partial, int row, int token) {
    float total = 0;
    UNROLL for (int w = 0; w < SHARERS; ++w)
      total += partial[(w * TILES * TILE_ROWS + row) * MAX_TOKENS + token];
    return total;
  }

 private:
  DEVICE void read(int slot, int column_tile) {
    if (column_tile < column_tiles) {
      UNROLL for (int r = 0; r < TILES; ++r) {
        int row = r < row_tiles ? r : row_tiles - 1;
        ahead[slot][r] = Form::load(codes, scales, first_tile + static_cast<int64_t>(row) * column_tiles + column_tile, lane);
      }
    }
  }
};

// -- activations into shared memory

// Reads columns 4u..4u+3 of a row of K values, zero beyond K (a multiple of 4).
DEVICE float4 read_four(const float* row, int u, int K) {
  return 4 * u < K ? reinterpret_cast<const float4*>(row)[u] : make_float4(0, 0, 0, 0);
}
DEVICE float4 read_four(const uint16_t* row, int u, int K) {
  if (4 * u >= K) return make_float4(0, 0, 0, 0);
  uint2 bits = reinterpret_cast<const uint2*>(row)[u];
  return make_float4(bf16_low(bits.x), bf16_high(bits.x), bf16_low(bits.y), bf16_high(bits.y));
}
DEVICE uint2 to_bf16(float4 v, float by) {
  return make_uint2(floats_to_bf16x2(v.x * by, v.y * by), floats_to_bf16x2(v.z * by, v.w * by));
}
DEVICE float square_sum(float4 v) { return v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w; }
DEVICE float4 times(float4 a, float4 b) { return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w); }

// x [T, K] times `by`, as it is.
template <class X>
DEVICE void stage(const X* x, int T, int K, float by, uint2* activations, int stride, int thread, int threads) {
  for (int t = 0; t < T; ++t)
    for (int u = thread; u < stride; u += threads)
      activations[t * stride + activation_unit(t, u)] = to_bf16(read_four(x + static_cast<int64_t>(t) * K, u, K), by);
}

// x times the norm's weight. The token's own factor is left to the end of the product, where it is
// `reciprocal_rms` [T] in shared memory, valid after the next __syncthreads: one warp a token finds it.
template <class X>
DEVICE void stage_normed(const X* x, const float* weight, int T, int K, float epsilon, float by, uint2* activations,
                         int stride, float* reciprocal_rms, int warp, int warps, int lane) {
  int threads = warps * 32, thread = warp * 32 + lane;
  for (int t = 0; t < T; ++t)
    for (int u = thread; u < stride; u += threads) {
      float4 v = read_four(x + static_cast<int64_t>(t) * K, u, K);
      activations[t * stride + activation_unit(t, u)] = to_bf16(times(v, read_four(weight, u, K)), by);
    }
  for (int t = warp; t < T; t += warps) {
    float squares = 0;
    for (int u = lane; u < stride; u += 32) squares += square_sum(read_four(x + static_cast<int64_t>(t) * K, u, K));
    squares = warp_sum(squares);
    if (lane == 0) reciprocal_rms[t] = rsqrtf(squares / K + epsilon);
  }
}

// x normalised in groups of K / groups columns (a multiple of 4) and times the norm's weight: one warp
// a group and token.
template <class X>
DEVICE void stage_group_normed(const X* x, const float* weight, int T, int K, int groups, float epsilon, float by,
                               uint2* activations, int stride, int warp, int warps, int lane) {
  int size = K / groups;
  for (int i = warp; i < T * groups; i += warps) {
    int t = i / groups, first = i % groups * (size / 4);
    const X* row = x + static_cast<int64_t>(t) * K;
    float squares = 0;
    for (int u = lane; u < size / 4; u += 32) squares += square_sum(read_four(row, first + u, K));
    float factor = rsqrtf(warp_sum(squares) / size + epsilon) * by;
    for (int u = first + lane; u < first + size / 4; u += 32)
      activations[t * stride + activation_unit(t, u)] = to_bf16(times(read_four(row, u, K), read_four(weight, u, K)), factor);
  }
  for (int t = 0; t < T; ++t)
    for (int u = K / 4 + warp * 32 + lane; u < stride; u += warps * 32)
      activations[t * stride + activation_unit(t, u)] = make_uint2(0, 0);
}
