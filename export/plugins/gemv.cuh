// A block's activations in shared memory, for the linear layers whose input the block itself prepares.
//
// They stand there as bf16 in the order the B fragments take them (tile order, stream.cuh), but for one
// thing: odd tokens have the two 16-byte halves of a lane's part exchanged, so that two tokens' reads
// meet in no shared memory bank.
#pragma once

#include "stream.cuh"

// Where columns 4u..4u+3 of token t stand in its row, in units of four values.
DEVICE int activation_unit(int t, int u) { return tile_unit(u) ^ (t & 1) << 1; }

struct FromShared {
  struct Early {};
  const uint4* own;  // the lane's part of tile 0; null for a token that is none
  int odd;

  // Tiles from `first` on of activations [tokens][stride units].
  DEVICE FromShared(const uint2* activations, int stride, int tokens, int first, int lane)
      : own(lane / 4 < tokens
                ? reinterpret_cast<const uint4*>(activations + lane / 4 * stride + first * 16) + lane % 4 * 2
                : nullptr),
        odd(lane / 4 & 1) {}
  DEVICE Early read(int tile) const { return {}; }
  DEVICE void fragments(int tile, Early, uint32_t b[TILE_STEPS][2]) const {
    uint4 low = make_uint4(0, 0, 0, 0), high = low;
    if (own != nullptr) low = own[tile * 8 + odd], high = own[tile * 8 + 1 - odd];
    unpack_fragments(low, high, b);
  }
};

// The sum over `sharers` warps of their fragments, from `partial` [warps][16][MAX_TOKENS] (store_fragment).
DEVICE float collect(const float* partial, int first_warp, int sharers, int row, int token) {
  float total = 0;
  for (int w = 0; w < sharers; ++w) total += partial[((first_warp + w) * TILE_ROWS + row) * MAX_TOKENS + token];
  return total;
}

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

// x times the norm's weight. The token's own factor is left to the end of the product: `squares`
// [T][warps] in shared memory are the warps' sums of x^2, for reciprocal_rms after a __syncthreads.
template <class X>
DEVICE void stage_normed(const X* x, const float* weight, int T, int K, float by, uint2* activations, int stride,
                         float* squares, int warp, int warps, int lane) {
  for (int t = 0; t < T; ++t) {
    float sum = 0;
    for (int u = warp * 32 + lane; u < stride; u += warps * 32) {
      float4 v = read_four(x + static_cast<int64_t>(t) * K, u, K);
      sum += square_sum(v);
      activations[t * stride + activation_unit(t, u)] = to_bf16(times(v, read_four(weight, u, K)), by);
    }
    sum = warp_sum(sum);
    if (lane == 0) squares[t * warps + warp] = sum;
  }
}
DEVICE float reciprocal_rms(const float* squares, int t, int warps, int K, float epsilon) {
  float sum = 0;
  for (int w = 0; w < warps; ++w) sum += squares[t * warps + w];
  return rsqrtf(sum / K + epsilon);
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
