// Linear for a prompt's tokens, in two launches:
//
//   norm_prefill    f(x) as bf16 in tile order, f a norm or nothing
//   linear_prefill  y = g(x W^T) + residual, g squared ReLU or nothing
//
// Defines: NORM_ROWS: INPUT_BF16; NORM 0 none, 1 over the row, 2 in groups. LINEAR: FORMAT, GROUP (of
// int4 scales), WARPS; RELU2; RESIDUAL (fp32, may be y itself); OUTPUT 0 fp32, 1 bf16, 2 bf16 in tile
// order with zeros up to a whole column tile.
#include "gemm.cuh"
#include "gemv.cuh"

#ifdef NORM_ROWS

#if INPUT_BF16
using X = uint16_t;
#else
using X = float;
#endif
constexpr int WARPS = 8;

// Grid: tokens.
extern "C" __global__ void LAUNCH_BOUNDS(WARPS * 32, 1) norm_prefill(
    const X* x,  // [T, K]
#if NORM
    const float* weight,  // [K]
#endif
    int K,
#if NORM == 2
    int groups,
#endif
#if NORM
    int epsilon,
#endif
    uint2* y) {  // [T, ceil64(K) / 4] in tile order
  __shared__ float squares[WARPS];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, stride = divide_up(K, TILE_COLUMNS) * TILE_COLUMNS / 4;
  wait_for_previous();
  const X* row = x + static_cast<int64_t>(blockIdx.x) * K;
  uint2* out = y + static_cast<int64_t>(blockIdx.x) * stride;
#if NORM == 2
  int size = K / groups / 4;
  for (int i = warp; i < groups; i += WARPS) {
    float sum = 0;
    for (int u = i * size + lane; u < (i + 1) * size; u += 32) sum += square_sum(read_four(row, u, K));
    float by = rsqrtf(warp_sum(sum) / (4 * size) + bits_to_float(epsilon));
    for (int u = i * size + lane; u < (i + 1) * size; u += 32)
      out[tile_unit(u)] = to_bf16(times(read_four(row, u, K), read_four(weight, u, K)), by);
  }
  for (int u = K / 4 + threadIdx.x; u < stride; u += WARPS * 32) out[tile_unit(u)] = make_uint2(0, 0);
#else
  float by = 1;
#if NORM
  float sum = 0;
  for (int u = threadIdx.x; u < stride; u += WARPS * 32) sum += square_sum(read_four(row, u, K));
  sum = warp_sum(sum);
  if (lane == 0) squares[warp] = sum;
  __syncthreads();
  by = reciprocal_rms(squares, 0, WARPS, K, bits_to_float(epsilon));
#endif
  for (int u = threadIdx.x; u < stride; u += WARPS * 32) {
    float4 v = read_four(row, u, K);
#if NORM
    v = times(v, read_four(weight, u, K));
#endif
    out[tile_unit(u)] = to_bf16(v, by);
  }
#endif
}

#endif
#ifdef LINEAR

using Product = Gemm<FORMAT, GROUP, WARPS>;

// Grid: tokens / GEMM_TOKENS, then rows / Product::ROWS.
extern "C" __global__ void LAUNCH_BOUNDS(Product::THREADS, 1) linear_prefill(
    const uint4* x,  // [T, ceil64(K)] bf16 in tile order
    const unsigned char* codes,
#if FORMAT == NVFP4 || FORMAT == INT4
    const unsigned char* scales,
#endif
    const float* scale,  // []
#if RESIDUAL
    const float* residual,  // [T, N]
#endif
    int T, int N, int K,
#if OUTPUT
    uint16_t* y
#else
    float* y
#endif
) {  // [T, N], or [T, ceil64(N)]
  DYNAMIC_SHARED(shared);
#if !(FORMAT == NVFP4 || FORMAT == INT4)
  const unsigned char* scales = nullptr;
#endif
  int column_tiles = divide_up(K, TILE_COLUMNS), row_tiles = divide_up(N, TILE_ROWS);
  int first_token = blockIdx.x * GEMM_TOKENS, first_row = blockIdx.y * Product::ROWS;
  wait_for_previous();
  const uint4* rows[Product::COPIES];
  UNROLL for (int i = 0; i < Product::COPIES; ++i) {
    int t = first_token + Product::token(i);
    rows[i] = t < T ? x + static_cast<int64_t>(t) * column_tiles * CHUNKS : nullptr;
  }
  Product::Sum sum;
  int row_tile = first_row / TILE_ROWS + threadIdx.x / 32 * WARP_ROW_TILES;
  Product::run(codes, scales, 0, row_tile, row_tiles, column_tiles, rows, reinterpret_cast<uint4*>(shared), sum);

  float by = Product::restore() * *scale;
#if OUTPUT
  uint16_t* staged = reinterpret_cast<uint16_t*>(shared);  // [GEMM_TOKENS][ROWS]
#endif
  Product::each(sum, [&](int row, int token, float value) {
    value *= by;
#if RELU2
    value = relu2(value);
#endif
#if OUTPUT == 2
    staged[token * Product::ROWS + tile_order(row)] = float_to_bf16(first_row + row < N ? value : 0.0f);
#elif OUTPUT
    staged[token * Product::ROWS + row] = float_to_bf16(value);
#else
    int t = first_token + token, n = first_row + row;
    if (t >= T || n >= N) return;
    int64_t at = static_cast<int64_t>(t) * N + n;
#if RESIDUAL
    value += residual[at];
#endif
    y[at] = value;
#endif
  });
#if OUTPUT
  __syncthreads();
  int width = OUTPUT == 2 ? divide_up(N, TILE_COLUMNS) * TILE_COLUMNS : N;
  Product::copy_out(staged, min(Product::ROWS, width - first_row), [&](int token) {
    int64_t t = first_token + token;
    return t < T ? y + t * width + first_row : nullptr;
  });
#endif
}

#endif
