// Mamba-2 between its projections: causal convolution, selective scan, gate (edgekit/ops/mamba2.py).
//
//   mamba2_scan     T rows of z | x B C | dt to y silu(z), not yet normalised. With COMMITS the states
//                   after them replace the states before, in place.
//   mamba2_commit   replays the first n rows that a verify step kept, for all layers in one launch
//
// A block owns ROWS rows (of head_dim) of one head's state, in registers, and recomputes the convolution
// of its group's B and C. Rows are worked through eight tokens at a time, so T may be anything.
//
// Defines: STATE (ssm_state_size), CONV_KERNEL, and COMMITS 0 or 1, or REPLAY for mamba2_commit.
#include "mamba2.cuh"

#ifdef REPLAY
#define COMMITS 1
#endif

constexpr int WARPS = 4, WARP_ROWS = 4, ROWS = WARPS * WARP_ROWS;
constexpr int TOKENS = 8;                // of a pass
constexpr int OWN = (STATE + 31) / 32;   // state elements of a row that a lane holds: n = lane + 32 i
constexpr int CHANNELS = Part<ROWS>::CHANNELS;

struct Shared {
  float mixed[TOKENS][CHANNELS];  // x of the block's rows, then B, then C, after the convolution
  float y[TOKENS][ROWS];
  float delta[TOKENS], decay[TOKENS];
  int is_last;
};

// `n`, where there is one, says how many tokens there are instead of T.
DEVICE void scan(Shared& s, const uint16_t* projected, const float* conv_weight, const float* conv_bias, float A_log,
                 float D, float dt_bias, const float* conv_state, const float* ssm_state, const int* n, int T, const Sizes& z,
                 uint16_t* y, float* conv_out, float* ssm_out, int* arrivals) {
  Part<ROWS> part(z);
  int head = part.head, first_row = part.first_row, rows = part.rows;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  float state[WARP_ROWS][OWN];
  UNROLL for (int r = 0; r < WARP_ROWS; ++r) {
    int row = first_row + warp * WARP_ROWS + r;
    UNROLL for (int i = 0; i < OWN; ++i) {
      int n = lane + 32 * i;
      state[r][i] = row < z.head_dim && n < STATE ? ssm_state[(head * z.head_dim + row) * STATE + n] : 0.0f;
    }
  }

  wait_for_previous();
  let_next_start();
  if (n != nullptr) T = *n;
  for (int first = 0; first < T; first += TOKENS) {
    int tokens = min(TOKENS, T - first);
    for (int c = threadIdx.x; c < CHANNELS; c += WARPS * 32) {
      if (c < ROWS && c >= rows) continue;
      int channel = part.channel(z, c);
      const uint16_t* column = projected + z.inner + channel;
      float window[CONV_KERNEL], weight[CONV_KERNEL];
      UNROLL for (int k = 0; k < CONV_KERNEL; ++k) weight[k] = conv_weight[channel * CONV_KERNEL + k];
      float bias = conv_bias[channel];
      UNROLL for (int k = 0; k < CONV_KERNEL - 1; ++k) {
        int row = first - (CONV_KERNEL - 1) + k;
        window[k] = row >= 0 ? bf16_to_float(column[static_cast<int64_t>(row) * z.width])
                             : conv_state[channel * (CONV_KERNEL - 1) + row + CONV_KERNEL - 1];
      }
      for (int t = 0; t < tokens; ++t) {
        window[CONV_KERNEL - 1] = bf16_to_float(column[static_cast<int64_t>(first + t) * z.width]);
        float sum = bias;
        UNROLL for (int k = 0; k < CONV_KERNEL; ++k) sum += weight[k] * window[k];
        s.mixed[t][c] = silu(sum);
        UNROLL for (int k = 0; k < CONV_KERNEL - 1; ++k) window[k] = window[k + 1];
      }
    }
    if (threadIdx.x < tokens) {
      int t = threadIdx.x;
      const uint16_t* row = projected + static_cast<int64_t>(first + t) * z.width;
      float delta = softplus(bf16_to_float(row[z.inner + z.conv_dim + head]) + dt_bias);
      s.delta[t] = delta, s.decay[t] = expf(-delta * expf(A_log));
    }
    __syncthreads();
    for (int t = 0; t < tokens; ++t) {
      const float *B = s.mixed[t] + ROWS, *C = B + STATE;
      float sum[WARP_ROWS], step[WARP_ROWS];
      UNROLL for (int r = 0; r < WARP_ROWS; ++r) {
        int row = warp * WARP_ROWS + r;
        step[r] = row < rows ? s.delta[t] * s.mixed[t][row] : 0.0f, sum[r] = 0.0f;
      }
      UNROLL for (int i = 0; i < OWN; ++i) {
        int n = lane + 32 * i;
        float b = n < STATE ? B[n] : 0.0f;
        float c = n < STATE ? C[n] : 0.0f;
        UNROLL for (int r = 0; r < WARP_ROWS; ++r) {
          state[r][i] = s.decay[t] * state[r][i] + step[r] * b;
          sum[r] += state[r][i] * c;
        }
      }
#ifndef REPLAY
      UNROLL for (int r = 0; r < WARP_ROWS; ++r) {
        float total = warp_sum(sum[r]);
        if (lane == 0) s.y[t][warp * WARP_ROWS + r] = total;
      }
#endif
    }
    __syncthreads();
#ifndef REPLAY
    for (int i = threadIdx.x; i < tokens * ROWS; i += WARPS * 32) {
      int t = i / ROWS, r = i % ROWS;
      if (r >= rows) continue;
      int at = head * z.head_dim + first_row + r;
      float gate = bf16_to_float(projected[static_cast<int64_t>(first + t) * z.width + at]);
      float value = s.y[t][r] + D * s.mixed[t][r];
      y[static_cast<int64_t>(first + t) * z.inner + at] = float_to_bf16(value * silu(gate));
    }
    __syncthreads();
#endif
  }

#if COMMITS
  UNROLL for (int r = 0; r < WARP_ROWS; ++r) {
    int row = first_row + warp * WARP_ROWS + r;
    UNROLL for (int i = 0; i < OWN; ++i) {
      int n = lane + 32 * i;
      if (row < z.head_dim && n < STATE) ssm_out[(head * z.head_dim + row) * STATE + n] = state[r][i];
    }
  }
  leave_conv_state<ROWS, WARPS * 32>(part, z, projected, T, conv_state, conv_out, arrivals, s.is_last);
#endif
}

#ifdef REPLAY

// Grid: blocks of a layer, layers. Everything is stacked over layers.
extern "C" __global__ void LAUNCH_BOUNDS(WARPS * 32, 1) mamba2_commit(
    const uint16_t* stash,     // [layers, stash_rows, width]
    const float* conv_weight,  // [layers, conv_dim, CONV_KERNEL]
    const float* conv_bias,    // [layers, conv_dim]
    const float* A_log, const float* dt_bias,  // [layers, heads]
    const int* n,              // [1]
    const float* conv_state,   // [layers, conv_dim, CONV_KERNEL - 1]
    const float* ssm_state,    // [layers, heads, head_dim, STATE]
    const int*,                // arrivals
    int stash_rows, int heads, int head_dim, int groups,
    float* conv_out, float* ssm_out,  // the states themselves
    int* arrivals              // [layers, groups] zeros, and zeros again afterwards
) {
  __shared__ Shared s;
  Sizes z(heads, head_dim, groups);
  int layer = blockIdx.y;
  int64_t conv_at = static_cast<int64_t>(layer) * z.conv_dim * (CONV_KERNEL - 1);
  int64_t ssm_at = static_cast<int64_t>(layer) * z.inner * STATE;
  int head = blockIdx.x / divide_up(head_dim, ROWS);
  scan(s, stash + static_cast<int64_t>(layer) * stash_rows * z.width, conv_weight + layer * z.conv_dim * CONV_KERNEL,
       conv_bias + layer * z.conv_dim, A_log[layer * heads + head], 0.0f, dt_bias[layer * heads + head],
       conv_state + conv_at, ssm_state + ssm_at, n, 0, z, nullptr, conv_out + conv_at, ssm_out + ssm_at,
       arrivals + layer * groups);
}

#else

// Grid: heads x the blocks that share a head's rows.
extern "C" __global__ void LAUNCH_BOUNDS(WARPS * 32, 1) mamba2_scan(
    const uint16_t* projected,  // [T, width]: z | x B C | dt
    const float* conv_weight,   // [conv_dim, CONV_KERNEL]
    const float* conv_bias,     // [conv_dim]
    const float* A_log, const float* D, const float* dt_bias,  // [heads]
    const float* conv_state,    // [conv_dim, CONV_KERNEL - 1]
    const float* ssm_state,     // [heads, head_dim, STATE]
#if COMMITS
    const int*,                 // arrivals
#endif
    int T, int heads, int head_dim, int groups,
    uint16_t* y                 // [T, heads * head_dim]
#if COMMITS
    ,
    float* conv_out, float* ssm_out,  // the states themselves
    int* arrivals               // [groups] zeros, and zeros again afterwards
#endif
) {
  __shared__ Shared s;
  Sizes z(heads, head_dim, groups);
  int head = blockIdx.x / divide_up(head_dim, ROWS);
#if !COMMITS
  float *conv_out = nullptr, *ssm_out = nullptr;
  int* arrivals = nullptr;
#endif
  scan(s, projected, conv_weight, conv_bias, A_log[head], D[head], dt_bias[head], conv_state, ssm_state, nullptr, T, z, y,
       conv_out, ssm_out, arrivals);
}

#endif
