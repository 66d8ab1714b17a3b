// Rows of the embedding table as float32: the residual stream's beginning.
#include "common.cuh"

constexpr int THREADS = 256;

// Grid: tokens.
extern "C" __global__ void LAUNCH_BOUNDS(THREADS, 1) embed(
    const int* tokens,      // [T]
    const uint16_t* table,  // [vocabulary, H] bf16
    int H,
    float* h                // [T, H]
) {
  wait_for_previous();
  let_next_start();
  // A drafted token is -1 where a draft's logits are NaN; the target then refuses it.
  int64_t from = static_cast<int64_t>(max(tokens[blockIdx.x], 0)) * H, to = static_cast<int64_t>(blockIdx.x) * H;
  for (int i = threadIdx.x; i < H; i += THREADS) h[to + i] = bf16_to_float(table[from + i]);
}
