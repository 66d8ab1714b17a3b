// Causal grouped-query attention of T new tokens to `length` cached ones and to each other, which are
// appended to the cache (edgekit/ops/attention.py).
//
// The query rows of one KV head, token by token, are cut into tiles of 16 for the tensor cores: with
// 16 query heads a KV head a tile is one token. Block (tile, KV head, split) takes a part of the keys,
// its warps every fourth 16 of them, with a running softmax (Dao et al. 2022, arXiv:2205.14135). With
// several splits the block that arrives last puts their partial results together.
//
// Keys of the new tokens are read where they were projected, so no block waits for the append.
//
// Fragments take 8 consecutive dimensions of a row where they lie, 16 bytes a lane: which dimensions
// share a step, and which values an output tile, is free as long as both sides agree.
//
// Defines: DIM (head_dim: 32, 64 or 128), SPLITS, WINDOW (keys that a token sees, 0 for all), SINKS 0 or 1,
// FP8 0 or 1 (the cache).
#include "kv.cuh"

constexpr int WARPS = 4, TILE = 16;
constexpr int STEPS = DIM / 16;        // of a product over the dimensions
constexpr int COLUMNS = DIM / 8;       // output tiles, and dimensions of a value row that a lane holds
constexpr int PARTIAL = DIM + 4;       // sums, then the largest score and the sum of weights

struct Shared {
  float sums[WARPS][TILE][DIM];
  float largest[WARPS][TILE], weight[WARPS][TILE];
  float share[TILE][SPLITS];  // what each split's sums are multiplied by
  int is_last;
};

DEVICE uint32_t low_halves(uint32_t a, uint32_t b) { return (a & 0xFFFFu) | b << 16; }
DEVICE uint32_t high_halves(uint32_t a, uint32_t b) { return a >> 16 | (b & 0xFFFF0000u); }

// Grid: query tiles, KV heads, SPLITS.
extern "C" __global__ void LAUNCH_BOUNDS(WARPS * 32, 1) attention(
    const uint16_t* qkv,        // [T, (heads + 2 kv_heads) DIM]
    const Cell* key_cache,      // [kv_heads, S, DIM], read below `length`
    const Cell* value_cache,
    const int* length_at,       // [1]
    const int*,                 // arrivals
#if SINKS
    const float* sinks,         // [heads] scores without values
#endif
    int T, int heads, int kv_heads, int S, int scale_bits,
#if FP8
    int key_scale_bits, int value_scale_bits,
#endif
    uint16_t* y,                // [T, heads DIM]
    Cell* key_out,              // the caches themselves, written from `length` on
    Cell* value_out,
    float* partials,            // [kv_heads, query tiles, SPLITS, TILE, PARTIAL]
    int* arrivals               // [kv_heads, query tiles] zeros, and zeros again afterwards
) {
  __shared__ __align__(16) Shared s;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  int group = heads / kv_heads, rows = T * group, width = (heads + 2 * kv_heads) * DIM;
  int first_row = blockIdx.x * TILE, kv = blockIdx.y, split = blockIdx.z;
  wait_for_previous();
  let_next_start();
  int length = *length_at;
  int64_t cache_at = static_cast<int64_t>(kv) * S * DIM;
#if FP8
  float key_scale = bits_to_float(key_scale_bits), value_scale = bits_to_float(value_scale_bits);
#else
  constexpr float key_scale = 1, value_scale = 1;
#endif

  if (blockIdx.x == 0 && split == 0)
    for (int i = threadIdx.x; i < T * (DIM / 8); i += WARPS * 32) {
      int t = i / (DIM / 8), part = i % (DIM / 8);
      const uint16_t* key = qkv + static_cast<int64_t>(t) * width + (heads + kv) * DIM + part * 8;
      int64_t at = cache_at + static_cast<int64_t>(length + t) * DIM + part * 8;
      store_cells(key_out + at, key, key_scale);
      store_cells(value_out + at, key + kv_heads * DIM, value_scale);
    }

  // Eight values from dimension d on of key number `key`; `offset` is the row's place in a new token's:
  // heads + kv for keys, heads + kv_heads + kv for values.
  auto eight_of = [&](const Cell* cache, int offset, int key, int d) {
    const Cell* cached = cache + cache_at + static_cast<int64_t>(key) * DIM + d;
    const uint16_t* fresh = qkv + static_cast<int64_t>(key - length) * width + offset * DIM + d;
#if FP8
    return key < length ? load_cells(cached) : *reinterpret_cast<const uint4*>(fresh);
#else
    return *reinterpret_cast<const uint4*>(key < length ? cached : fresh);
#endif
  };

  uint32_t query[STEPS][4];
  UNROLL for (int half = 0; half < 2; ++half) {
    int row = first_row + g + 8 * half;
    const uint16_t* from = qkv + static_cast<int64_t>(row / group) * width + (kv * group + row % group) * DIM + q * 8;
    UNROLL for (int j = 0; j < STEPS / 2; ++j) {
      uint4 words = make_uint4(0, 0, 0, 0);
      if (row < rows) words = *reinterpret_cast<const uint4*>(from + 32 * j);
      query[2 * j][half] = words.x, query[2 * j][2 + half] = words.y;
      query[2 * j + 1][half] = words.z, query[2 * j + 1][2 + half] = words.w;
    }
  }

  // The last key that each of the lane's two rows sees, and the last that any row of the tile does.
  int sees[2] = {length + (first_row + g) / group, length + (first_row + g + 8) / group};
  int total = length + min(T, (first_row + TILE - 1) / group + 1);
  int tiles = divide_up(total, TILE), begin = 0;
#if WINDOW
  begin = max(0, length + first_row / group - WINDOW + 1) / TILE;
#endif
  int share = divide_up(tiles - begin, SPLITS);
  int end = min(tiles, begin + (split + 1) * share);
  float scale = bits_to_float(scale_bits) * 1.4426950408889634f;  // exp(x) = 2^(x log2 e)

  float sum[COLUMNS][4], largest[2] = {-INFINITY, -INFINITY}, weight[2] = {0, 0};
  UNROLL for (int j = 0; j < COLUMNS; ++j)
    UNROLL for (int i = 0; i < 4; ++i) sum[j][i] = 0;

  for (int tile = begin + split * share + warp; tile < end; tile += WARPS) {
    int first = tile * TILE;
    float score[2][4];
    UNROLL for (int n = 0; n < 2; ++n) {
      int number = min(first + 8 * n + g, total - 1);
      uint4 words[STEPS / 2];
      UNROLL for (int j = 0; j < STEPS / 2; ++j) words[j] = eight_of(key_cache, heads + kv, number, q * 8 + 32 * j);
      UNROLL for (int j = 0; j < STEPS; ++j) {
        const uint4& four = words[j / 2];
        uint32_t b[2] = {j % 2 ? four.z : four.x, j % 2 ? four.w : four.y};
        j == 0 ? mma_bf16_zero(score[n], query[j], b) : mma_bf16(score[n], query[j], b);
      }
    }
    uint32_t value[4][COLUMNS / 2];  // keys 2q, 2q + 1, 2q + 8, 2q + 9, dimensions g COLUMNS and on
    UNROLL for (int k = 0; k < 4; ++k) {
      int number = min(first + 2 * q + k % 2 + k / 2 * 8, total - 1);
#if DIM >= 64
      UNROLL for (int i = 0; i < COLUMNS / 8; ++i) {
        uint4 words = eight_of(value_cache, heads + kv_heads + kv, number, g * COLUMNS + 8 * i);
        value[k][4 * i] = words.x, value[k][4 * i + 1] = words.y;
        value[k][4 * i + 2] = words.z, value[k][4 * i + 3] = words.w;
      }
#else
      uint4 words = eight_of(value_cache, heads + kv_heads + kv, number, g / 2 * 8);  // half of them are the lane's
      value[k][0] = g % 2 ? words.z : words.x, value[k][1] = g % 2 ? words.w : words.y;
#endif
    }
    UNROLL for (int half = 0; half < 2; ++half) {  // rows g and g + 8
      float top = largest[half];
      UNROLL for (int n = 0; n < 2; ++n)
        UNROLL for (int i = 0; i < 2; ++i) {
          float& one = score[n][2 * half + i];
          int key = first + 8 * n + 2 * q + i, behind = sees[half] - key;
          if (FP8 && key < length) one *= key_scale;
          one = behind >= 0 && (!WINDOW || behind < WINDOW) ? one * scale : -INFINITY;
          top = fmaxf(top, one);
        }
      top = fmaxf(top, shuffle_xor(top, 1));
      top = fmaxf(top, shuffle_xor(top, 2));
      // A tile may hide all its keys from a row; then everything stays as it is.
      float keep = top == -INFINITY ? 1.0f : fast_exp2(largest[half] - top);
      largest[half] = top;
      weight[half] *= keep;
      UNROLL for (int n = 0; n < 2; ++n)
        UNROLL for (int i = 0; i < 2; ++i) {
          float& one = score[n][2 * half + i];
          one = top == -INFINITY ? 0.0f : fast_exp2(one - top);
          weight[half] += one;
          if (FP8 && first + 8 * n + 2 * q + i < length) one *= value_scale;
        }
      UNROLL for (int j = 0; j < COLUMNS; ++j) sum[j][2 * half] *= keep, sum[j][2 * half + 1] *= keep;
    }
    uint32_t a[4] = {floats_to_bf16x2(score[0][0], score[0][1]), floats_to_bf16x2(score[0][2], score[0][3]),
                     floats_to_bf16x2(score[1][0], score[1][1]), floats_to_bf16x2(score[1][2], score[1][3])};
    UNROLL for (int j = 0; j < COLUMNS; ++j) {
      uint32_t b[2];
      UNROLL for (int k = 0; k < 2; ++k)
        b[k] = j % 2 ? high_halves(value[2 * k][j / 2], value[2 * k + 1][j / 2])
                     : low_halves(value[2 * k][j / 2], value[2 * k + 1][j / 2]);
      mma_bf16(sum[j], a, b);
    }
  }

  UNROLL for (int half = 0; half < 2; ++half) {
    int row = g + 8 * half;
    float all = weight[half];
    all += shuffle_xor(all, 1);
    all += shuffle_xor(all, 2);
    if (q == 0) s.largest[warp][row] = largest[half], s.weight[warp][row] = all;
    UNROLL for (int j = 0; j < COLUMNS; ++j)
      UNROLL for (int i = 0; i < 2; ++i) s.sums[warp][row][(2 * q + i) * COLUMNS + j] = sum[j][2 * half + i];
  }
  __syncthreads();

  // Row by row, the parts' sums: theirs times 2^(their largest score minus the largest of all).
  int64_t place = static_cast<int64_t>(kv) * gridDim.x + blockIdx.x;
  float* parts = partials + place * SPLITS * TILE * PARTIAL;
#if SINKS
  // The weight of a row's sink beside scores whose largest is `top`.
  auto sink = [&](int row, float top) {
    return fast_exp2(sinks[kv * group + (first_row + row) % group] * 1.4426950408889634f - top);
  };
#else
  auto sink = [](int, float) { return 0.0f; };
#endif
  auto write = [&](int row, int d, float value) {
    int number = first_row + row, t = number / group;
    if (number < rows) y[(static_cast<int64_t>(t) * heads + kv * group + number % group) * DIM + d] = float_to_bf16(value);
  };
  for (int i = threadIdx.x; i < TILE * DIM; i += WARPS * 32) {
    int row = i / DIM, d = i % DIM;
    float top = -INFINITY, total_sum = 0, total_weight = 0;
    UNROLL for (int w = 0; w < WARPS; ++w) top = fmaxf(top, s.largest[w][row]);
    UNROLL for (int w = 0; w < WARPS; ++w) {
      float by = top == -INFINITY ? 0.0f : fast_exp2(s.largest[w][row] - top);
      total_sum += by * s.sums[w][row][d], total_weight += by * s.weight[w][row];
    }
#if SPLITS == 1
    write(row, d, total_sum / (total_weight + sink(row, top)));
#else
    float* part = parts + (split * TILE + row) * PARTIAL;
    part[d] = total_sum;
    if (d == 0) part[DIM] = top, part[DIM + 1] = total_weight;
#endif
  }
#if SPLITS > 1
  if (!is_last_block(arrivals + place, SPLITS, s.is_last)) return;
  for (int row = warp; row < TILE; row += WARPS) {
    const float* part = parts + (min(lane, SPLITS - 1) * TILE + row) * PARTIAL + DIM;
    float top = warp_maximum(part[0]), by = fast_exp2(part[0] - top);
    float total = warp_sum(lane < SPLITS ? by * part[1] : 0.0f) + sink(row, top);
    if (lane < SPLITS) s.share[row][lane] = by / total;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < TILE * DIM / 4; i += WARPS * 32) {
    int row = i / (DIM / 4), d = i % (DIM / 4) * 4;
    float4 part[SPLITS];
    UNROLL for (int p = 0; p < SPLITS; ++p)
      part[p] = *reinterpret_cast<const float4*>(parts + (p * TILE + row) * PARTIAL + d);
    float sum[4] = {};
    UNROLL for (int p = 0; p < SPLITS; ++p) {
      float by = s.share[row][p];
      sum[0] += by * part[p].x, sum[1] += by * part[p].y, sum[2] += by * part[p].z, sum[3] += by * part[p].w;
    }
    UNROLL for (int k = 0; k < 4; ++k) write(row, d + k, sum[k]);
  }
#endif
}
