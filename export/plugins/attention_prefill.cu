// Causal grouped-query attention of a prompt's T tokens to `length` cached ones and to each other, which
// are appended to the cache (edgekit/ops/attention.py; attention.cu does the same for up to eight).
//
// The query rows of one KV head, token by token, are cut into tiles of 64, 16 a warp: with 16 query
// heads a KV head a tile is four tokens. A block walks over the keys that its tile sees, KEYS at a time
// with the next KEYS on their way, with a running softmax (Dao et al. 2022, arXiv:2205.14135).
//
// Keys of the new tokens are read where they were projected, so no block waits for the append.
//
// Defines: DIM (head_dim: 32, 64 or 128), KEYS (64 or 32), WINDOW (keys that a token sees, 0 for all),
// SINKS 0 or 1, FP8 0 or 1 (the cache, whose tiles are then decoded on their way instead of copied).
#include "kv.cuh"

constexpr int WARPS = 4, ROWS = 16 * WARPS;
constexpr int STEPS = DIM / 16;    // of a product over the dimensions
constexpr int COLUMNS = DIM / 8;   // output tiles
constexpr int CHUNKS = DIM / 8;    // 16-byte words of a row
constexpr int STEP_ROWS = WARPS * 32 / CHUNKS;  // rows that the block copies at once
constexpr int PITCH = DIM + 8;     // of a row in shared memory: eight rows' words meet in no bank

struct Stage {
  uint16_t keys[KEYS][PITCH], values[KEYS][PITCH];
};

// Grid: query tiles, KV heads. Shared memory: two stages.
extern "C" __global__ void LAUNCH_BOUNDS(WARPS * 32, 2) attention_prefill(
    const uint16_t* qkv,        // [T, (heads + 2 kv_heads) DIM]
    const Cell* key_cache,      // [kv_heads, S, DIM], read below `length`
    const Cell* value_cache,
    const int* length_at,       // [1]
#if SINKS
    const float* sinks,         // [heads] scores without values
#endif
    int T, int heads, int kv_heads, int S, int scale_bits,
#if FP8
    int key_scale_bits, int value_scale_bits,
#endif
    uint16_t* y,                // [T, heads DIM]
    Cell* key_out,              // the caches themselves, written from `length` on
    Cell* value_out) {
  DYNAMIC_SHARED(shared);
  Stage* stages = reinterpret_cast<Stage*>(shared);
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  int group = heads / kv_heads, rows = T * group, width = (heads + 2 * kv_heads) * DIM;
  // Tiles that see the most keys start first.
  int first_row = (gridDim.x - 1 - blockIdx.x) * ROWS, kv = blockIdx.y;
  wait_for_previous();
  let_next_start();
  int length = *length_at;
  int64_t cache_at = static_cast<int64_t>(kv) * S * DIM;
#if FP8
  float key_scale = bits_to_float(key_scale_bits), value_scale = bits_to_float(value_scale_bits);
#else
  constexpr float key_scale = 1, value_scale = 1;
#endif

  // Tokens whose first row is in this tile go to the cache.
  int from_token = divide_up(first_row, group), tokens = divide_up(min(first_row + ROWS, rows), group) - from_token;
  for (int i = threadIdx.x; i < tokens * CHUNKS; i += WARPS * 32) {
    int t = from_token + i / CHUNKS, part = i % CHUNKS;
    const uint16_t* key = qkv + static_cast<int64_t>(t) * width + (heads + kv) * DIM + part * 8;
    int64_t at = cache_at + static_cast<int64_t>(length + t) * DIM + part * 8;
    store_cells(key_out + at, key, key_scale);
    store_cells(value_out + at, key + kv_heads * DIM, value_scale);
  }

  // New keys that some row of the tile sees, and all keys that all its rows see. Cached keys and new ones
  // are in tiles of their own, so that a tile's rows lie at one distance.
  int new_keys = (min(first_row + ROWS, rows) - 1) / group + 1, seen_by_all = length + first_row / group + 1;
  int cached_tiles = divide_up(length, KEYS), tiles = cached_tiles + divide_up(new_keys, KEYS);
  int begin = 0;
#if WINDOW
  int oldest = max(0, seen_by_all - WINDOW);  // the first key that any row sees
  begin = oldest < length ? oldest / KEYS : cached_tiles + (oldest - length) / KEYS;
#endif
  auto fetch = [&](int tile) {
    if (tile < tiles) {
      Stage& stage = stages[tile % 2];
      bool cached = tile < cached_tiles;
      int first = (cached ? tile : tile - cached_tiles) * KEYS, row = threadIdx.x / CHUNKS, part = threadIdx.x % CHUNKS;
      int count = (cached ? length : new_keys) - first;  // keys beyond the last are zeros
#if FP8
      if (cached) {
        int64_t at = cache_at + static_cast<int64_t>(first + row) * DIM + part * 8;
        UNROLL for (int i = 0; i < KEYS; i += STEP_ROWS, at += STEP_ROWS * DIM) {
          uint4 key = make_uint4(0, 0, 0, 0), value = key;
          if (row + i < count) key = load_cells(key_cache + at), value = load_cells(value_cache + at);
          *reinterpret_cast<uint4*>(&stage.keys[row + i][part * 8]) = key;
          *reinterpret_cast<uint4*>(&stage.values[row + i][part * 8]) = value;
        }
        return;
      }
      int64_t pitch = width;
      const uint16_t *key = qkv + (heads + kv) * DIM, *value = key + kv_heads * DIM;
#else
      int64_t pitch = cached ? DIM : width;
      const uint16_t* key = cached ? key_cache + cache_at : qkv + (heads + kv) * DIM;
      const uint16_t* value = cached ? value_cache + cache_at : key + kv_heads * DIM;
#endif
      int64_t at = (first + row) * pitch + part * 8;
      UNROLL for (int i = 0; i < KEYS; i += STEP_ROWS, at += STEP_ROWS * pitch) {
        copy_async(&stage.keys[row + i][part * 8], key + at, row + i < count);
        copy_async(&stage.values[row + i][part * 8], value + at, row + i < count);
      }
    }
    end_copies();
  };
  fetch(begin);

  uint32_t query[STEPS][4];
  int sees[2];  // the last key that each of the lane's two rows sees
  UNROLL for (int half = 0; half < 2; ++half) {
    int row = first_row + warp * 16 + g + 8 * half, t = row / group;
    sees[half] = length + t;
    const uint32_t* from = reinterpret_cast<const uint32_t*>(
        qkv + static_cast<int64_t>(row < rows ? t : 0) * width + (kv * group + row % group) * DIM + 2 * q);
    UNROLL for (int j = 0; j < STEPS; ++j) {
      query[j][half] = row < rows ? from[8 * j] : 0;
      query[j][2 + half] = row < rows ? from[8 * j + 4] : 0;
    }
  }
  float scale = bits_to_float(scale_bits) * 1.4426950408889634f;  // exp(x) = 2^(x log2 e)

  float sum[COLUMNS][4], largest[2] = {-INFINITY, -INFINITY}, weight[2] = {0, 0};
  UNROLL for (int j = 0; j < COLUMNS; ++j)
    UNROLL for (int i = 0; i < 4; ++i) sum[j][i] = 0;

  for (int tile = begin; tile < tiles; ++tile) {
    wait_for_copies<0>();
    __syncthreads();
    fetch(tile + 1);  // where the tile before was, which all warps are done with
    const Stage& stage = stages[tile % 2];
    float score[KEYS / 8][4];
    UNROLL for (int j = 0; j < STEPS; ++j)
      UNROLL for (int n = 0; n < KEYS / 16; ++n) {
        uint32_t b[4];
        load_matrices(b, &stage.keys[16 * n + lane / 16 * 8 + lane % 8][16 * j + lane / 8 % 2 * 8]);
        j == 0 ? mma_bf16_zero(score[2 * n], query[j], b) : mma_bf16(score[2 * n], query[j], b);
        j == 0 ? mma_bf16_zero(score[2 * n + 1], query[j], b + 2) : mma_bf16(score[2 * n + 1], query[j], b + 2);
      }
    bool cached = tile < cached_tiles;
    float by = FP8 && cached ? scale * key_scale : scale;
    int first = cached ? tile * KEYS : length + (tile - cached_tiles) * KEYS, end = cached ? length : seen_by_all;
    if (first + KEYS > end || (WINDOW && first < length + new_keys - WINDOW)) {
      int last[2] = {cached ? length - 1 : sees[0], cached ? length - 1 : sees[1]};
      UNROLL for (int n = 0; n < KEYS / 8; ++n)
        UNROLL for (int i = 0; i < 4; ++i) {
          int key = first + 8 * n + 2 * q + i % 2;
          if (key > last[i / 2] || (WINDOW && key <= sees[i / 2] - WINDOW)) score[n][i] = -INFINITY;
        }
    }
    UNROLL for (int half = 0; half < 2; ++half) {  // rows g and g + 8
      float top = largest[half];
      UNROLL for (int n = 0; n < KEYS / 8; ++n)
        top = fmaxf(top, fmaxf(score[n][2 * half], score[n][2 * half + 1]) * by);
      top = fmaxf(top, shuffle_xor(top, 1));
      top = fmaxf(top, shuffle_xor(top, 2));
      // Without a window every row sees the first tile's first key: from then on `top` is finite.
      float before = largest[half];
      largest[half] = top;
      if (WINDOW && top == -INFINITY) top = 0;
      float keep = fast_exp2(before - top);
      weight[half] *= keep;
      UNROLL for (int n = 0; n < KEYS / 8; ++n)
        UNROLL for (int i = 2 * half; i < 2 * half + 2; ++i) {
          score[n][i] = fast_exp2(score[n][i] * by - top);
          weight[half] += score[n][i];
          if (FP8 && cached) score[n][i] *= value_scale;
        }
      UNROLL for (int j = 0; j < COLUMNS; ++j) sum[j][2 * half] *= keep, sum[j][2 * half + 1] *= keep;
    }
    UNROLL for (int n = 0; n < KEYS / 16; ++n) {
      const float *low = score[2 * n], *high = score[2 * n + 1];
      uint32_t a[4] = {floats_to_bf16x2(low[0], low[1]), floats_to_bf16x2(low[2], low[3]),
                       floats_to_bf16x2(high[0], high[1]), floats_to_bf16x2(high[2], high[3])};
      UNROLL for (int j = 0; j < COLUMNS / 2; ++j) {
        uint32_t b[4];
        load_transposed(b, &stage.values[16 * n + lane % 16][16 * j + lane / 16 * 8]);
        mma_bf16(sum[2 * j], a, b);
        mma_bf16(sum[2 * j + 1], a, b + 2);
      }
    }
  }

  UNROLL for (int half = 0; half < 2; ++half) {
    int row = first_row + warp * 16 + g + 8 * half;
    float all = weight[half];
    all += shuffle_xor(all, 1);
    all += shuffle_xor(all, 2);
#if SINKS
    all += fast_exp2(sinks[kv * group + row % group] * 1.4426950408889634f - largest[half]);
#endif
    float by = 1.0f / all;
    uint32_t* to = reinterpret_cast<uint32_t*>(
        y + (static_cast<int64_t>(row / group) * heads + kv * group + row % group) * DIM + 2 * q);
    if (row < rows)
      UNROLL for (int j = 0; j < COLUMNS; ++j)
        to[4 * j] = floats_to_bf16x2(sum[j][2 * half] * by, sum[j][2 * half + 1] * by);
  }
}
