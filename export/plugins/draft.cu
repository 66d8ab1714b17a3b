// What a DSpark draft has and its target has not (edgekit/ops/draft.py): heads that are normed and rotated,
// and SwiGLU.
//
//   norm_rope      queries and keys of a block, for attention
//   context_rows   keys and values of committed tokens into the caches of all layers
//   swiglu         silu(gate) x up
//
// Defines: DIM (head_dim, a multiple of 32), for the first two.
#include "common.cuh"

#ifdef DIM
constexpr int HALF = DIM / 2;
constexpr int PAIRS = (HALF + 31) / 32;  // of dimensions i and i + DIM / 2, a lane

// One warp: RMS norm of a head times `weight`, then each pair turned by its angle.
DEVICE void norm_and_turn(const uint16_t* x, const float* weight, const float* cos, const float* sin, float epsilon,
                          uint16_t* y) {
  int lane = threadIdx.x % 32;
  float a[PAIRS], b[PAIRS], squares = 0;
  UNROLL for (int p = 0; p < PAIRS; ++p) {
    int i = lane + 32 * p;
    a[p] = i < HALF ? bf16_to_float(x[i]) : 0;
    b[p] = i < HALF ? bf16_to_float(x[i + HALF]) : 0;
    squares += a[p] * a[p] + b[p] * b[p];
  }
  float factor = rsqrtf(warp_sum(squares) / DIM + epsilon);
  UNROLL for (int p = 0; p < PAIRS; ++p) {
    int i = lane + 32 * p;
    if (i >= HALF) continue;
    float u = a[p] * factor * weight[i], v = b[p] * factor * weight[i + HALF], c = cos[i], s = sin[i];
    y[i] = float_to_bf16(u * c - v * s);
    y[i + HALF] = float_to_bf16(v * c + u * s);
  }
}

DEVICE void copy_head(const uint16_t* x, uint16_t* y) {
  for (int i = threadIdx.x % 32; i < DIM; i += 32) y[i] = x[i];
}

// Grid: heads + 2 kv_heads, tokens. One warp.
extern "C" __global__ void LAUNCH_BOUNDS(32, 1) norm_rope(
    const uint16_t* qkv,     // [T, (heads + 2 kv_heads) DIM] bf16
    const float* query_norm, // [DIM]
    const float* key_norm,   // [DIM]
    const float* cos,        // [T, DIM / 2]
    const float* sin,        // [T, DIM / 2]
    int heads, int kv_heads, int epsilon_bits,
    uint16_t* turned         // as qkv; values are copied
) {
  wait_for_previous();
  let_next_start();
  int head = blockIdx.x, t = blockIdx.y;
  int64_t at = (static_cast<int64_t>(t) * (heads + 2 * kv_heads) + head) * DIM;
  if (head < heads + kv_heads)
    norm_and_turn(qkv + at, head < heads ? query_norm : key_norm, cos + t * HALF, sin + t * HALF,
                  bits_to_float(epsilon_bits), turned + at);
  else
    copy_head(qkv + at, turned + at);
}

// Grid: layers x 2 kv_heads, tokens. One warp.
extern "C" __global__ void LAUNCH_BOUNDS(32, 1) context_rows(
    const uint16_t* rows,    // [T, layers, key then value, kv_heads, DIM] bf16
    const float* key_norms,  // [layers, DIM]
    const float* cos,        // [T, DIM / 2]
    const float* sin,        // [T, DIM / 2]
    const int* length_at,    // [1] rows that are in the caches
    const uint16_t*,         // the caches
    const uint16_t*,
    int layers, int kv_heads, int S, int epsilon_bits,
    uint16_t* key_cache,     // [layers, kv_heads, S, DIM] bf16, written from `length` on
    uint16_t* value_cache
) {
  wait_for_previous();
  let_next_start();
  int t = blockIdx.y, kv = blockIdx.x % kv_heads, part = blockIdx.x / kv_heads, layer = part / 2;
  const uint16_t* from = rows + (static_cast<int64_t>(t) * layers * 2 * kv_heads + blockIdx.x) * DIM;
  int64_t to = (static_cast<int64_t>(layer * kv_heads + kv) * S + *length_at + t) * DIM;
  if (part % 2 == 0)
    norm_and_turn(from, key_norms + layer * DIM, cos + t * HALF, sin + t * HALF, bits_to_float(epsilon_bits),
                  key_cache + to);
  else
    copy_head(from, value_cache + to);
}

#else

constexpr int THREADS = 256;

// Grid: columns / THREADS, tokens.
extern "C" __global__ void LAUNCH_BOUNDS(THREADS, 1) swiglu(
    const uint16_t* gate,  // [T, F] bf16
    const uint16_t* up,    // [T, F] bf16
    int F,
    uint16_t* y            // [T, F] bf16
) {
  wait_for_previous();
  let_next_start();
  int column = blockIdx.x * THREADS + threadIdx.x;
  if (column >= F) return;
  int64_t at = static_cast<int64_t>(blockIdx.y) * F + column;
  float g = bf16_to_float(gate[at]);
  y[at] = float_to_bf16(fast_divide(g, 1 + fast_exp(-g)) * bf16_to_float(up[at]));
}
#endif
