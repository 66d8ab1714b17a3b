// What the kernels of Mamba-2 share: columns of a projected row, a block's part of them, and the state
// that the convolution leaves.
//
// Defines: STATE (ssm_state_size), CONV_KERNEL.
#pragma once

#include "common.cuh"

struct Sizes {
  int heads, head_dim, groups, inner, conv_dim, width;
  DEVICE Sizes(int heads_, int head_dim_, int groups_) : heads(heads_), head_dim(head_dim_), groups(groups_) {
    inner = heads * head_dim;
    conv_dim = inner + 2 * groups * STATE;
    width = inner + conv_dim + heads;
  }
};

// What block blockIdx.x works on: up to ROWS rows (of head_dim) of one head.
template <int ROWS>
struct Part {
  static constexpr int CHANNELS = ROWS + 2 * STATE;
  int head, first_row, rows, group, sharers;  // `sharers` blocks read the group's B and C
  DEVICE Part(const Sizes& z) {
    int splits = divide_up(z.head_dim, ROWS);
    head = blockIdx.x / splits, first_row = blockIdx.x % splits * ROWS;
    rows = min(ROWS, z.head_dim - first_row);
    group = head / (z.heads / z.groups), sharers = z.heads / z.groups * splits;
  }
  // Its c-th channel among the conv_dim: its rows of x, then its group's B, then C.
  DEVICE int channel(const Sizes& z, int c) const {
    if (c < ROWS) return head * z.head_dim + first_row + c;
    c -= ROWS;
    return z.inner + (c < STATE ? 0 : z.groups * STATE) + group * STATE + c % STATE;
  }
};

// The new convolution state of one channel: the last CONV_KERNEL - 1 of its old state and its rows.
// In ascending order, old elements are read before they are overwritten.
DEVICE void shift(const float* before, float* after, const uint16_t* column, int width, int T) {
  for (int j = 0; j < CONV_KERNEL - 1; ++j) {
    int row = T - (CONV_KERNEL - 1) + j;
    after[j] = row >= 0 ? bf16_to_float(column[static_cast<int64_t>(row) * width]) : before[T + j];
  }
}

// Writes the convolution's state in place once all threads have read the old one. x is read by one
// block, B and C by all blocks of a group: the one that arrives last writes those.
template <int ROWS, int THREADS>
DEVICE void leave_conv_state(const Part<ROWS>& part, const Sizes& z, const uint16_t* projected, int T,
                             const float* conv_state, float* conv_out, int* arrivals, int& is_last) {
  auto write = [&](int c) {
    int channel = part.channel(z, c), at = channel * (CONV_KERNEL - 1);
    shift(conv_state + at, conv_out + at, projected + z.inner + channel, z.width, T);
  };
  if (threadIdx.x < part.rows) write(threadIdx.x);
  if (is_last_block(arrivals + part.group, part.sharers, is_last))
    for (int c = ROWS + threadIdx.x; c < Part<ROWS>::CHANNELS; c += THREADS) write(c);
}
