// The choice of experts from their scores, and the table of slots that the step kernels read.
//
// Defines: EXPERTS, TOP_K, N_GROUP, TOPK_GROUP, NORM_TOPK, SCALING_BITS.
#pragma once

#include "common.cuh"

// One warp chooses the experts of token t: `chosen` and `weight` [TOP_K], best first, ties to the
// lower index. Scores take part with the correction bias, weights without it.
DEVICE void choose(const float* scores, const float* bias, int* chosen, float* weight, int lane) {
  constexpr int OWN = (EXPERTS + 31) / 32;
  uint32_t keys[OWN];  // 0 is below every score
#if N_GROUP > 1
  // The groups with the highest sums of their two best scores take part.
  constexpr int SIZE = EXPERTS / N_GROUP;
  float first = -INFINITY, second = -INFINITY;
  if (lane < N_GROUP)
    for (int i = 0; i < SIZE; ++i) {
      float score = scores[lane * SIZE + i] + bias[lane * SIZE + i];
      second = fmaxf(second, fminf(first, score));
      first = fmaxf(first, score);
    }
  float sum = first + second;
  int better = 0;
  for (int other = 0; other < N_GROUP; ++other) {
    float theirs = shuffle(sum, other);
    better += theirs > sum || (theirs == sum && other < lane);
  }
  uint32_t groups = vote(lane < N_GROUP && better < TOPK_GROUP);
#endif
  float own[OWN];  // the lane's scores
  UNROLL for (int i = 0; i < OWN; ++i) {
    int e = i * 32 + lane;
    own[i] = e < EXPERTS ? scores[e] : 0.0f;
    keys[i] = e < EXPERTS ? ordered_bits(own[i] + bias[e]) : 0;
#if N_GROUP > 1
    if (e < EXPERTS && !(groups >> e / SIZE & 1)) keys[i] = 0;
#endif
  }
  float total = 0;  // of the chosen ones that are the lane's
  for (int k = 0; k < TOP_K; ++k) {
    uint32_t best = 0;
    UNROLL for (int i = 0; i < OWN; ++i) best = keys[i] > best ? keys[i] : best;
    best = warp_largest(best);
    uint32_t at = ~0u;
    UNROLL for (int i = OWN - 1; i >= 0; --i)
      if (keys[i] == best) at = i * 32 + lane;
    at = warp_smallest(at);
    UNROLL for (int i = 0; i < OWN; ++i)
      if (at == i * 32 + lane) keys[i] = 0, chosen[k] = at, weight[k] = own[i], total += own[i];
  }
  total = warp_sum(total);
  sync_warp();
#if NORM_TOPK
  float by = bits_to_float(SCALING_BITS) / (total + 1e-20f);
#else
  float by = bits_to_float(SCALING_BITS);
#endif
  if (lane < TOP_K) weight[lane] *= by;
}

// Lists the distinct experts of T tokens, in ascending order, by all threads of a block. `slots` [1 + T
// TOP_K]: how many there are, which, then -1; `shares` [T TOP_K, MAX_TOKENS]: each token's weight of a
// slot's expert, 0 for one that is not its own. `counts` [BLOCK_WARPS] is shared memory.
template <int BLOCK_WARPS, int MAX_TOKENS>
DEVICE void list_slots(const int* chosen, const float* weight, int T, int* counts, int* slots, float* shares) {
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, found = 0;
  for (int first = 0; first < EXPERTS; first += BLOCK_WARPS * 32) {
    int e = first + threadIdx.x;
    float share[MAX_TOKENS] = {};
    bool used = false;
    UNROLL for (int t = 0; t < MAX_TOKENS; ++t)
      if (t < T)
        UNROLL for (int k = 0; k < TOP_K; ++k)
          if (chosen[t * TOP_K + k] == e) used = true, share[t] = weight[t * TOP_K + k];
    uint32_t users = vote(used);
    if (lane == 0) counts[warp] = __popc(users);
    __syncthreads();
    int slot = found + __popc(users & ((1u << lane) - 1));
    for (int w = 0; w < BLOCK_WARPS; ++w) {
      if (w < warp) slot += counts[w];
      found += counts[w];
    }
    if (used) {
      slots[1 + slot] = e;
      UNROLL for (int t = 0; t < MAX_TOKENS; ++t) shares[slot * MAX_TOKENS + t] = share[t];
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) slots[0] = found;
  for (int i = found + threadIdx.x; i < T * TOP_K; i += BLOCK_WARPS * 32) {
    slots[1 + i] = -1;
    UNROLL for (int t = 0; t < MAX_TOKENS; ++t) shares[i * MAX_TOKENS + t] = 0;
  }
}
