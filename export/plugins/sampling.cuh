// What choosing a token is written in: logits as keys, and the best of them.
//
// Defines: SLICES, pieces that the vocabulary is cut into.
#pragma once
#include "common.cuh"

// Order as the logits do; NaN is the largest, and the two zeros are one.
DEVICE uint32_t key_of(float x) { return x != x ? 0xFFFFFFFFu : ordered_bits(x + 0.0f); }
DEVICE float logit_of(uint32_t key) { return bits_to_float(key & 0x80000000u ? key ^ 0x80000000u : ~key); }
DEVICE bool is_finite_key(uint32_t key) { return key > 0x007FFFFFu && key < 0xFF800000u; }

// The largest key, of equal ones that with the lowest id.
struct Best {
  uint32_t key = 0, id = ~0u;

  DEVICE void take(uint32_t other, uint32_t its_id) {
    if (other > key || (other == key && its_id < id)) key = other, id = its_id;
  }
  // Of all lanes, for every lane.
  DEVICE void of_warp() {
    uint32_t largest = warp_largest(key);
    id = warp_smallest(key == largest ? id : ~0u);
    key = largest;
  }
};
