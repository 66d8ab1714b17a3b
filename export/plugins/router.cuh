// The choice of experts from their scores.
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
