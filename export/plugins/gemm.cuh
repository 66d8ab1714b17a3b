// A packed matrix times many tokens: y[t, n] = sum_k w[n, k] x[t, k] by tensor cores.
//
// A block has BLOCK_WARPS x 32 rows of the matrix and GEMM_TOKENS tokens. Each warp decodes its own two row
// tiles in registers, once for all tokens; the tokens' activations, bf16 in tile order (stream.cuh), go
// through shared memory a column tile at a time, STAGES - 1 ahead of their use.
//
// Block scales are multiplied into the weights: an e2m1 code times an e4m3 scale has at most six
// significant bits, so bf16 holds it exactly. An int4 code times its fp16 scale is rounded.
#pragma once

#include "stream.cuh"

constexpr int GEMM_TOKENS = 64, STAGES = 4, WARP_ROW_TILES = 2;
constexpr int CHUNKS = TILE_COLUMNS * 2 / 16;  // 16-byte words a token has of a column tile
constexpr int TOKEN_TILES = GEMM_TOKENS / 8;

// Two bf16 numbers times two others.
DEVICE uint32_t bf16x2_multiply(uint32_t a, uint32_t b) { return bf16x2_fma(a, b, 0x80008000u); }

template <int FORM, class Form>
DEVICE void decode_scaled(const typename Form::Tile& tile, int j, uint32_t a[4]) {
  Form::decode(tile, j, a);
  if (FORM == BF16) return;
  uint32_t low = 0x7B807B80u, high = low;  // 2^120: fp8
  if (Form::HAS_BLOCK_SCALES) {
    // nvfp4: block_scales is the scale x 2^-8 and the code x 2^-126; the product is to be x 2^-8.
    float by = FORM == NVFP4 ? 8.507059173023462e37f : 1.0f;  // 2^126
    float2 scale = Form::block_scales(tile, j);
    low = floats_to_bf16x2(scale.x * by, scale.x * by), high = floats_to_bf16x2(scale.y * by, scale.y * by);
  }
  a[0] = bf16x2_multiply(a[0], low), a[1] = bf16x2_multiply(a[1], high);
  a[2] = bf16x2_multiply(a[2], low), a[3] = bf16x2_multiply(a[3], high);
}

template <int FORM, int COLUMNS_A_SCALE, int BLOCK_WARPS>
struct Gemm {
  using Form = Weights<FORM, COLUMNS_A_SCALE>;
  static constexpr int THREADS = BLOCK_WARPS * 32, ROWS = BLOCK_WARPS * WARP_ROW_TILES * TILE_ROWS;
  static constexpr int COPIES = GEMM_TOKENS * CHUNKS / THREADS;  // a thread's share of a stage
  using Sum = float[WARP_ROW_TILES][TOKEN_TILES][4];

  // What the sum of products must be multiplied by, the matrix's fp32 scale apart.
  static DEVICE float restore() { return FORM == NVFP4 ? 256.0f : 1.0f; }

  // Which of the block's tokens the thread's i-th copy is for.
  static DEVICE int token(int i) { return threadIdx.x / CHUNKS + i * (THREADS / CHUNKS); }

  // The block's product. `rows[i]` is the row of activations of token(i), null for a token that is
  // none; `row_tile` the warp's first row tile of `row_tiles`; `first` the matrix's first tile.
  static DEVICE void run(const unsigned char* codes, const unsigned char* scales, int64_t first, int row_tile,
                         int row_tiles, int column_tiles, const uint4* const rows[COPIES], uint4* stages, Sum& sum) {
    int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4, chunk = threadIdx.x % CHUNKS;
    auto fetch = [&](int c) {
      if (c < column_tiles) {
        uint4* stage = stages + c % STAGES * GEMM_TOKENS * CHUNKS;
        UNROLL for (int i = 0; i < COPIES; ++i) {
          int t = token(i);  // odd tokens have pairs of words exchanged: reads meet in no bank
          const void* from = codes;  // a copy that is none needs an address too
          if (rows[i] != nullptr) from = rows[i] + c * CHUNKS + chunk;
          copy_async(stage + t * CHUNKS + (chunk ^ (t & 1)), from, rows[i] != nullptr);
        }
      }
      end_copies();
    };
    UNROLL for (int c = 0; c < STAGES - 1; ++c) fetch(c);
    typename Form::Tile tile[WARP_ROW_TILES];
    const unsigned char *own_codes[WARP_ROW_TILES], *own_scales[WARP_ROW_TILES];
    UNROLL for (int r = 0; r < WARP_ROW_TILES; ++r) {
      // Rows beyond the matrix repeat its last: nobody writes them.
      int64_t at = first + static_cast<int64_t>(min(row_tile + r, row_tiles - 1)) * column_tiles;
      own_codes[r] = codes + at * Form::TILE_BYTES + lane * 16;
      own_scales[r] = scales + at * Form::SCALE_BYTES + g * (Form::SCALE_BYTES / 8);
      tile[r] = Form::load(own_codes[r], own_scales[r]);
      UNROLL for (int n = 0; n < TOKEN_TILES; ++n)
        UNROLL for (int i = 0; i < 4; ++i) sum[r][n][i] = 0;
    }
    for (int c = 0; c < column_tiles; ++c) {
      wait_for_copies<STAGES - 2>();
      __syncthreads();
      fetch(c + STAGES - 1);
      const uint4* stage = stages + c % STAGES * GEMM_TOKENS * CHUNKS;
      typename Form::Tile next[WARP_ROW_TILES];
      int ahead = min(c + 1, column_tiles - 1);
      UNROLL for (int r = 0; r < WARP_ROW_TILES; ++r)
        next[r] = Form::load(own_codes[r] + ahead * Form::TILE_BYTES, own_scales[r] + ahead * Form::SCALE_BYTES);
      UNROLL for (int half = 0; half < 2; ++half) {
        uint32_t a[WARP_ROW_TILES][2][4];
        UNROLL for (int r = 0; r < WARP_ROW_TILES; ++r)
          UNROLL for (int j = 0; j < 2; ++j) decode_scaled<FORM, Form>(tile[r], 2 * half + j, a[r][j]);
        UNROLL for (int n = 0; n < TOKEN_TILES; ++n) {
          uint4 word = stage[(n * 8 + g) * CHUNKS + ((2 * q + half) ^ (g & 1))];
          uint32_t b[2][2] = {{word.x, word.y}, {word.z, word.w}};
          UNROLL for (int r = 0; r < WARP_ROW_TILES; ++r)
            UNROLL for (int j = 0; j < 2; ++j) mma_bf16(sum[r][n], a[r][j], b[j]);
        }
      }
      UNROLL for (int r = 0; r < WARP_ROW_TILES; ++r) tile[r] = next[r];
    }
    __syncthreads();  // the stages' memory is free
  }

  // Calls f(row of the block, token of the block, value) for each of the thread's sums.
  template <class F>
  static DEVICE void each(const Sum& sum, F f) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    UNROLL for (int r = 0; r < WARP_ROW_TILES; ++r)
      UNROLL for (int n = 0; n < TOKEN_TILES; ++n)
        UNROLL for (int i = 0; i < 4; ++i)
          f((warp * WARP_ROW_TILES + r) * TILE_ROWS + g + i / 2 * 8, n * 8 + 2 * q + i % 2, sum[r][n][i]);
  }

  // Copies the first `columns` (a multiple of 4) of each token's bf16 row of `staged` [GEMM_TOKENS][ROWS]
  // to `row(token)`, null for a token that is none.
  template <class F>
  static DEVICE void copy_out(const uint16_t* staged, int columns, F row) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int token = warp; token < GEMM_TOKENS; token += BLOCK_WARPS) {
      uint16_t* to = row(token);
      if (to == nullptr) continue;
      for (int u = lane; u < columns / 4; u += 32)
        reinterpret_cast<uint2*>(to)[u] = *reinterpret_cast<const uint2*>(staged + token * ROWS + 4 * u);
    }
  }
};
