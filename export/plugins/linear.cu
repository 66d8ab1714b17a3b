// Linear for up to eight tokens: y = f(norm(x) W^T) + residual.
//
// Defines: FORMAT, GROUP (of int4 scales); INPUT_BF16, OUTPUT_BF16; NORM 0 none, 1 over the row, 2 in
// groups; RELU2; RESIDUAL (fp32, may be y itself); ROW_TILES, WARPS, DEPTH (TILES, SHARERS, AHEAD in gemv.cuh).
#include "gemv.cuh"

using Form = Weights<FORMAT, GROUP>;
using Product = Gemv<Form, ROW_TILES, WARPS, DEPTH>;
#if INPUT_BF16
using X = uint16_t;
#else
using X = float;
#endif
#if OUTPUT_BF16
using Y = uint16_t;
#else
using Y = float;
#endif

extern "C" __global__ void LAUNCH_BOUNDS(WARPS * 32, 1) linear_step(
    const X* x,  // [T, K]
#if NORM
    const float* norm_weight,  // [K]
#endif
    const unsigned char* codes,
#if FORMAT == NVFP4 || FORMAT == INT4
    const unsigned char* scales,
#endif
    const float* scale,  // []
#if RESIDUAL
    const float* residual,  // [T, N]
#endif
    int T, int N, int K,
#if NORM == 2
    int groups,
#endif
#if NORM
    int epsilon,
#endif
    Y* y) {  // [T, N]
  DYNAMIC_SHARED(shared);
#if !(FORMAT == NVFP4 || FORMAT == INT4)
  const unsigned char* scales = nullptr;
#endif
  int column_tiles = divide_up(K, TILE_COLUMNS), stride = column_tiles * TILE_COLUMNS / 4;
  uint2* activations = reinterpret_cast<uint2*>(shared);
  float* partial = reinterpret_cast<float*>(activations + T * stride);
  float* reciprocal_rms = partial + WARPS * ROW_TILES * TILE_ROWS * MAX_TOKENS;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int row_tile = blockIdx.x * ROW_TILES;
  int row_tiles = min(ROW_TILES, divide_up(N, TILE_ROWS) - row_tile);

  Product product;
  product.start(codes, scales, row_tile, row_tiles, column_tiles, warp, lane);
  let_next_start();
  wait_for_previous();
#if NORM == 0
  stage(x, T, K, Form::activation_scale(), activations, stride, threadIdx.x, WARPS * 32);
#elif NORM == 1
  stage_normed(x, norm_weight, T, K, bits_to_float(epsilon), Form::activation_scale(), activations, stride,
               reciprocal_rms, warp, WARPS, lane);
#else
  stage_group_normed(x, norm_weight, T, K, groups, bits_to_float(epsilon), Form::activation_scale(), activations,
                     stride, warp, WARPS, lane);
#endif
  __syncthreads();
  product.run(activations, stride, T);
  product.share(partial);
  __syncthreads();

  float by = Form::restore() * *scale;
  for (int i = threadIdx.x; i < row_tiles * TILE_ROWS * T; i += WARPS * 32) {
    int t = i / (row_tiles * TILE_ROWS), row = i % (row_tiles * TILE_ROWS), n = row_tile * TILE_ROWS + row;
    if (n >= N) continue;
    float value = Product::collect(partial, row, t) * by;
#if NORM == 1
    value *= reciprocal_rms[t];
#endif
#if RELU2
    value = fmaxf(value, 0.0f) * fmaxf(value, 0.0f);
#endif
    int64_t at = static_cast<int64_t>(t) * N + n;
#if RESIDUAL
    value += residual[at];
#endif
#if OUTPUT_BF16
    y[at] = float_to_bf16(value);
#else
    y[at] = value;
#endif
  }
}
