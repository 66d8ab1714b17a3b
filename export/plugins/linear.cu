// Linear for up to eight tokens: y = f(norm(x) W^T) + residual.
//
// Defines: FORMAT, GROUP (of int4 scales); INPUT_BF16, OUTPUT_BF16; NORM 0 none, 1 over the row, 2 in
// groups; RELU2; RESIDUAL (fp32, may be y itself). SHARERS warps take the columns of one row tile between
// them; a block has WARPS, and so WARPS / SHARERS row tiles. DEPTH: tiles a warp reads ahead.
// BLOCKS: of a multiprocessor, for which registers are to suffice.
#include "gemv.cuh"

using Form = Weights<FORMAT, GROUP>;
constexpr int ROW_TILES = WARPS / SHARERS;
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

extern "C" __global__ void LAUNCH_BOUNDS(WARPS * 32, BLOCKS) linear_step(
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
  float* squares = partial + WARPS * TILE_ROWS * MAX_TOKENS;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int first_row_tile = blockIdx.x * ROW_TILES, row_tile = first_row_tile + warp / SHARERS, part = warp % SHARERS;
  int begin = column_tiles * part / SHARERS, end = column_tiles * (part + 1) / SHARERS;
  if (row_tile >= divide_up(N, TILE_ROWS)) end = begin;

  // Weights do not depend on the launch before this one: their reading begins while that one ends.
  Stream<Form, DEPTH> stream(codes, scales, static_cast<int64_t>(row_tile) * column_tiles + begin, end - begin, lane);
  stream.start();
  wait_for_previous();
  let_next_start();
#if NORM == 0
  stage(x, T, K, Form::activation_scale(), activations, stride, threadIdx.x, WARPS * 32);
#elif NORM == 1
  stage_normed(x, norm_weight, T, K, Form::activation_scale(), activations, stride, squares, warp, WARPS, lane);
#else
  stage_group_normed(x, norm_weight, T, K, groups, bits_to_float(epsilon), Form::activation_scale(), activations,
                     stride, warp, WARPS, lane);
#endif
  __syncthreads();
  float sum[4] = {0, 0, 0, 0};
  stream.run(FromShared(activations, stride, T, begin, lane), sum);
  store_fragment(partial + warp * TILE_ROWS * MAX_TOKENS, sum, lane);
  __syncthreads();

  float by = Form::restore() * *scale;
  int rows = min(ROW_TILES * TILE_ROWS, N - first_row_tile * TILE_ROWS);
  for (int i = threadIdx.x; i < rows * T; i += WARPS * 32) {
    int t = i / rows, row = i % rows, n = first_row_tile * TILE_ROWS + row;
    float value = collect(partial, row / TILE_ROWS * SHARERS, SHARERS, row % TILE_ROWS, t) * by;
#if NORM == 1
    value *= reciprocal_rms(squares, t, WARPS, K, bits_to_float(epsilon));
#endif
#if RELU2
    value = relu2(value);
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
