// The likeliest token of each row of logits: the lowest of the largest logits' ids, -1 where the largest is
// not finite (NaN counts as the largest, as NumPy has it). Also every slice's largest, from which sampling
// starts.
#include "sampling.cuh"

constexpr int THREADS = 256;

// Grid: SLICES, rows.
extern "C" __global__ void LAUNCH_BOUNDS(THREADS, 1) argmax(
    const float* logits,  // [R, V]
    const int*,           // arrivals
    int V,
    int* best,            // [R]
    uint32_t* slices,     // [R, SLICES, 2]: a slice's largest logit as a key, and the lowest id that has it
    int* arrivals         // [R] zeros, and zeros again afterwards
) {
  __shared__ uint32_t keys[THREADS / 32], ids[THREADS / 32];
  __shared__ int is_last;
  int row = blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  wait_for_previous();
  let_next_start();

  const float* x = logits + static_cast<int64_t>(row) * V;
  int share = divide_up(V, SLICES), first = blockIdx.x * share, end = min(first + share, V);
  Best found;
  UNROLL for (int i = first + threadIdx.x; i < end; i += THREADS) found.take(key_of(x[i]), i);
  found.of_warp();
  if (lane == 0) keys[warp] = found.key, ids[warp] = found.id;
  __syncthreads();
  if (warp == 0) {
    found = Best();
    if (lane < THREADS / 32) found.take(keys[lane], ids[lane]);
    found.of_warp();
    if (lane == 0) {
      uint32_t* slice = slices + (row * SLICES + blockIdx.x) * 2;
      slice[0] = found.key, slice[1] = found.id;
    }
  }
  if (!is_last_block(arrivals + row, SLICES, is_last) || warp != 0) return;
  const uint32_t* all = slices + row * SLICES * 2;
  found = Best();
  for (int i = lane; i < SLICES; i += 32) found.take(all[2 * i], all[2 * i + 1]);
  found.of_warp();
  if (lane == 0) best[row] = is_finite_key(found.key) ? static_cast<int>(found.id) : -1;
}
