// A mixture-of-experts layer for a prompt's tokens. A pair is a token and one of its experts: number
// t TOP_K + k. Pairs are sorted by expert into tiles of GEMM_TOKENS, so that each tile multiplies with one
// expert's matrix (the shared expert is an ordinary product).
//
//   moe_route_prefill  the experts of each token, and their weights
//   moe_sort_prefill   which pairs a tile holds, and which expert it is for
//   moe_up_prefill     relu(up x)^2 of all pairs, sorted
//   moe_down_prefill   each pair's weighted part of the output
//   moe_sum_prefill    a token's parts, plus the residual
//
// Defines: TOP_K, EXPERTS; ROUTE: those of router.cuh; UP, DOWN: FORMAT, GROUP, WARPS; SORT; SUM.
#include "gemm.cuh"
#include "gemv.cuh"

#ifdef ROUTE
#include "router.cuh"

constexpr int WARPS = 8, ROUTE_TOKENS = 16, COLUMNS = 32, ROW = COLUMNS + 4;  // floats of a row in shared memory
constexpr int PASS = 128;                                                    // experts at once

// Scores in fp32 of 16 tokens a block, then one warp a token chooses.
extern "C" __global__ void LAUNCH_BOUNDS(WARPS * 32, 1) moe_route_prefill(
    const float* h,            // [T, H]
    const float* norm_weight,  // [H]
    const float* gate,         // [E, H]
    const float* bias,         // [E]
    int T, int H, int epsilon,
    int* experts,     // [T, TOP_K]
    float* weights) {  // [T, TOP_K]
  DYNAMIC_SHARED(shared);
  float* g = reinterpret_cast<float*>(shared);  // [2][PASS][ROW] of the gate
  __shared__ __align__(16) float x[2][ROUTE_TOKENS * ROW];
  __shared__ float factor[ROUTE_TOKENS];
#if EXPERTS <= 128
  // One pass: the gate has been read when its scores are written, and all together stay below 48 KiB.
  float(*scores)[EXPERTS] = reinterpret_cast<float(*)[EXPERTS]>(shared);
#else
  __shared__ float scores[ROUTE_TOKENS][EXPERTS];
#endif
  int thread = threadIdx.x, first = blockIdx.x * ROUTE_TOKENS, pieces = divide_up(H, COLUMNS);
  wait_for_previous();
  // The thread's float4 of a piece of x: threads 0..127 have one.
  int t = thread / 8, u = thread % 8;
  bool loads = t < ROUTE_TOKENS;
  float squares = 0;
  auto read = [&](int piece) {
    if (!loads || first + t >= T || piece >= pieces) return make_float4(0, 0, 0, 0);
    return read_four(h + static_cast<int64_t>(first + t) * H, piece * 8 + u, H);
  };
  auto store = [&](int piece, float4 v) {
    if (!loads) return;
    squares += square_sum(v);
    *reinterpret_cast<float4*>(x[piece % 2] + t * ROW + 4 * u) =
        times(v, piece < pieces ? read_four(norm_weight, piece * 8 + u, H) : v);
  };
  for (int pass = 0; pass < EXPERTS; pass += PASS) {
    auto fetch = [&](int piece) {
      for (int i = thread; i < PASS * 8; i += WARPS * 32) {
        int e = pass + i / 8, column = piece * COLUMNS + i % 8 * 4;
        bool valid = e < EXPERTS && column < H;
        copy_async(g + (piece % 2 * PASS + i / 8) * ROW + i % 8 * 4, valid ? gate + static_cast<int64_t>(e) * H + column : gate, valid);
      }
      end_copies();
    };
    // Experts thread % 64 and 64 more, tokens 4 (thread / 64) to 3 more.
    float sum[2][4] = {};
    squares = 0;
    fetch(0);
    store(0, read(0));
    for (int p = 0; p < pieces; ++p) {
      wait_for_copies<0>();
      __syncthreads();
      if (p + 1 < pieces) fetch(p + 1);
      float4 next = read(p + 1);
      UNROLL for (int k = 0; k < COLUMNS; k += 4) {
        float4 own[2];
        UNROLL for (int i = 0; i < 2; ++i)
          own[i] = *reinterpret_cast<const float4*>(g + (p % 2 * PASS + thread % 64 + 64 * i) * ROW + k);
        UNROLL for (int j = 0; j < 4; ++j) {
          float4 v = *reinterpret_cast<const float4*>(x[p % 2] + (thread / 64 * 4 + j) * ROW + k);
          UNROLL for (int i = 0; i < 2; ++i)
            sum[i][j] += v.x * own[i].x + v.y * own[i].y + v.z * own[i].z + v.w * own[i].w;
        }
      }
      store(p + 1, next);
    }
    for (int mask = 1; mask < 8; mask *= 2) squares += shuffle_xor(squares, mask);
    if (loads && u == 0) factor[t] = rsqrtf(squares / H + bits_to_float(epsilon));
    __syncthreads();
    UNROLL for (int i = 0; i < 2; ++i) {
      int e = pass + thread % 64 + 64 * i;
      if (e >= EXPERTS) continue;
      UNROLL for (int j = 0; j < 4; ++j) {
        int token = thread / 64 * 4 + j;
        scores[token][e] = sigmoid(sum[i][j] * factor[token]);
      }
    }
    __syncthreads();
  }
  for (int token = thread / 32; token < ROUTE_TOKENS && first + token < T; token += WARPS) {
    int64_t at = static_cast<int64_t>(first + token) * TOP_K;
    choose(scores[token], bias, experts + at, weights + at, thread % 32);
  }
}

#endif
#ifdef SORT

constexpr int WARPS = 8;

// One block an expert. An expert's pairs keep their order, so the result is the same on every run.
extern "C" __global__ void LAUNCH_BOUNDS(WARPS * 32, 1) moe_sort_prefill(
    const int* experts,  // [T, TOP_K]
    int T,
    int* order,        // [tiles, GEMM_TOKENS] pairs; -1 is none
    int* tile_expert) {  // [tiles]; -1 for a tile that holds nothing
  __shared__ int counts[EXPERTS];
  __shared__ int before, found[WARPS];
  int thread = threadIdx.x, warp = thread / 32, lane = thread % 32, e = blockIdx.x, pairs = T * TOP_K;
  wait_for_previous();
  for (int i = thread; i < EXPERTS; i += WARPS * 32) counts[i] = 0;
  if (thread == 0) before = 0;
  __syncthreads();
  for (int i = thread; i < pairs; i += WARPS * 32) atomicAdd(&counts[experts[i]], 1);
  __syncthreads();
  for (int i = thread; i < e; i += WARPS * 32) atomicAdd(&before, divide_up(counts[i], GEMM_TOKENS));
  __syncthreads();
  int first = before, tiles = divide_up(counts[e], GEMM_TOKENS), placed = 0;
  for (int base = 0; base < pairs; base += WARPS * 32) {
    int i = base + thread;
    bool own = i < pairs && experts[i] == e;
    uint32_t mask = vote(own);
    if (lane == 0) found[warp] = __popc(mask);
    __syncthreads();
    int at = placed + __popc(mask & ((1u << lane) - 1));
    for (int w = 0; w < WARPS; ++w) {
      if (w < warp) at += found[w];
      placed += found[w];
    }
    if (own) order[first * GEMM_TOKENS + at] = i;
    __syncthreads();
  }
  for (int at = placed + thread; at < tiles * GEMM_TOKENS; at += WARPS * 32) order[first * GEMM_TOKENS + at] = -1;
  for (int i = thread; i < tiles; i += WARPS * 32) tile_expert[first + i] = e;
  if (e == EXPERTS - 1)
    for (int i = first + tiles + thread; i < divide_up(pairs, GEMM_TOKENS) + EXPERTS; i += WARPS * 32) tile_expert[i] = -1;
}

#endif
#ifdef UP

using Product = Gemm<FORMAT, GROUP, WARPS>;

// Grid: rows / Product::ROWS, then tiles.
extern "C" __global__ void LAUNCH_BOUNDS(Product::THREADS, 1) moe_up_prefill(
    const uint4* normed,  // [T, ceil64(H)] bf16 in tile order
    const int* order, const int* tile_expert,
    const unsigned char* codes,   // [E] matrices [I, H]
    const unsigned char* scales,  // the same, or anything where the format has none
    const float* scale,           // [E]
    int H, int I,
    uint16_t* hidden) {  // [tiles GEMM_TOKENS, ceil64(I)] in tile order
  DYNAMIC_SHARED(shared);
  wait_for_previous();
  int e = tile_expert[blockIdx.y];
  if (e < 0) return;
  int column_tiles = divide_up(H, TILE_COLUMNS), row_tiles = divide_up(I, TILE_ROWS);
  int64_t first_pair = static_cast<int64_t>(blockIdx.y) * GEMM_TOKENS;
  const uint4* rows[Product::COPIES];
  UNROLL for (int i = 0; i < Product::COPIES; ++i) {
    int pair = order[first_pair + Product::token(i)];
    rows[i] = pair < 0 ? nullptr : normed + static_cast<int64_t>(pair / TOP_K) * column_tiles * CHUNKS;
  }
  Product::Sum sum;
  int first_row = blockIdx.x * Product::ROWS, row_tile = first_row / TILE_ROWS + threadIdx.x / 32 * WARP_ROW_TILES;
  Product::run(codes, scales, static_cast<int64_t>(e) * row_tiles * column_tiles, row_tile, row_tiles, column_tiles, rows,
               reinterpret_cast<uint4*>(shared), sum);
  float by = Product::restore() * scale[e];
  uint16_t* staged = reinterpret_cast<uint16_t*>(shared);
  Product::each(sum, [&](int row, int token, float value) {
    staged[token * Product::ROWS + tile_order(row)] = float_to_bf16(first_row + row < I ? relu2(value * by) : 0.0f);
  });
  __syncthreads();
  int width = divide_up(I, TILE_COLUMNS) * TILE_COLUMNS;
  Product::copy_out(staged, min(Product::ROWS, width - first_row),
                    [&](int token) { return hidden + (first_pair + token) * width + first_row; });
}

#endif
#ifdef DOWN

using Product = Gemm<FORMAT, GROUP, WARPS>;

// Grid: rows / Product::ROWS, then tiles.
extern "C" __global__ void LAUNCH_BOUNDS(Product::THREADS, 1) moe_down_prefill(
    const uint4* hidden,  // [tiles GEMM_TOKENS, ceil64(I)] bf16 in tile order
    const int* order, const int* tile_expert,
    const float* weights,         // [T, TOP_K]
    const unsigned char* codes,   // [E] matrices [H, I]
    const unsigned char* scales,  // the same, or anything where the format has none
    const float* scale,           // [E]
    int H, int I,
    uint16_t* parts) {  // [T, TOP_K, H]
  DYNAMIC_SHARED(shared);
  __shared__ int pairs[GEMM_TOKENS];
  __shared__ float factor[GEMM_TOKENS];
  wait_for_previous();
  int e = tile_expert[blockIdx.y];
  if (e < 0) return;
  int column_tiles = divide_up(I, TILE_COLUMNS), row_tiles = divide_up(H, TILE_ROWS);
  int64_t first_pair = static_cast<int64_t>(blockIdx.y) * GEMM_TOKENS;
  if (threadIdx.x < GEMM_TOKENS) {
    int pair = pairs[threadIdx.x] = order[first_pair + threadIdx.x];
    factor[threadIdx.x] = pair < 0 ? 0.0f : Product::restore() * scale[e] * weights[pair];
  }
  const uint4* rows[Product::COPIES];
  UNROLL for (int i = 0; i < Product::COPIES; ++i)
    rows[i] = hidden + (first_pair + Product::token(i)) * column_tiles * CHUNKS;
  Product::Sum sum;
  int first_row = blockIdx.x * Product::ROWS, row_tile = first_row / TILE_ROWS + threadIdx.x / 32 * WARP_ROW_TILES;
  Product::run(codes, scales, static_cast<int64_t>(e) * row_tiles * column_tiles, row_tile, row_tiles, column_tiles, rows,
               reinterpret_cast<uint4*>(shared), sum);
  uint16_t* staged = reinterpret_cast<uint16_t*>(shared);
  Product::each(sum, [&](int row, int token, float value) {
    staged[token * Product::ROWS + row] = float_to_bf16(value * factor[token]);
  });
  __syncthreads();
  Product::copy_out(staged, min(Product::ROWS, H - first_row), [&](int token) {
    return pairs[token] < 0 ? nullptr : parts + static_cast<int64_t>(pairs[token]) * H + first_row;
  });
}

#endif
#ifdef SUM

// Grid: tokens.
extern "C" __global__ void LAUNCH_BOUNDS(256, 1) moe_sum_prefill(
    const uint16_t* parts,  // [T, TOP_K, H]
    const float* residual,  // [T, H]
    int H,
    float* y) {  // [T, H]; may be the residual
  wait_for_previous();
  int64_t t = blockIdx.x;
  for (int u = threadIdx.x; u < H / 4; u += 256) {
    float4 sum = read_four(residual + t * H, u, H);
    UNROLL for (int k = 0; k < TOP_K; ++k) {
      float4 part = read_four(parts + (t * TOP_K + k) * H, u, H);
      sum = make_float4(sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w);
    }
    reinterpret_cast<float4*>(y + t * H)[u] = sum;
  }
}

#endif
