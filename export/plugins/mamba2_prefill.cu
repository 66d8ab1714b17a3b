// Mamba-2 between its projections for a prompt's tokens: what mamba2_scan computes (mamba2.cu), 64
// tokens at a time on tensor cores (Dao and Gu 2024, arXiv:2405.21060, section 6).
//
// With s_t the sum of the log decays of a chunk up to and including token t, S the state before it:
//
//   y_t = exp(s_t) S C_t + sum_{j<=t} (C_t . B_j) exp(s_t - s_j) delta_j x_j + D x_t
//   S'  = exp(s_last) S + sum_j exp(s_last - s_j) delta_j x_j (outer) B_j
//
// No exponent is positive. x, B, C and, for y only, S enter the tensor cores as bf16; sums, decays and
// the state that is carried on are fp32.
//
// A block owns ROWS rows (of head_dim) of one head, their state in registers, and recomputes the
// convolution of its group's B and C. It convolves a chunk into one of two places, then multiplies:
// one barrier a chunk, so warps that still multiply run beside warps that convolve the next. The rows
// of the next chunk are on their way into registers meanwhile.
//
// Channels are read in pairs: heads and head_dim are even. STATE is a multiple of 16.
//
// Defines: STATE (ssm_state_size), CONV_KERNEL.
#include "mamba2.cuh"

constexpr int WARPS = 8, THREADS = WARPS * 32, ROWS = 32, CHUNK = 64;
constexpr int PITCH = STATE + 8, X_PITCH = ROWS + 8;  // eight rows' 16-byte words meet in no bank
constexpr int STATE_TILES = STATE / 16;               // pairs of tensor-core tiles
constexpr int OWN_TILES = (STATE_TILES + 3) / 4;      // a warp's: 16 rows of the state, a quarter of its columns
constexpr float LOG2_E = 1.4426950408889634f;

struct Chunk {
  uint16_t B[CHUNK][PITCH], C[CHUNK][PITCH], x[CHUNK][X_PITCH];
  float decay[CHUNK];  // s_t / log 2
  float delta[CHUNK];
  float into[CHUNK];   // exp(s_last - s_j) delta_j
};

struct Shared {
  Chunk chunks[2];
  uint16_t state[2][ROWS][PITCH];
  int is_last;
};

// The convolution of a chunk's PAIRS pairs of channels. A task is TOKENS tokens of one pair.
template <int PAIRS, int TOKENS>
struct Convolution {
  static constexpr int PAST = CONV_KERNEL - 1, TASKS = (PAIRS * (CHUNK / TOKENS) + THREADS - 1) / THREADS;
  int channel[TASKS];  // the pair's first among the conv_dim; below 0: no task
  float weight[TASKS][2][CONV_KERNEL], bias[TASKS][2];
  uint32_t rows[TASKS][PAST + TOKENS] = {};

  static DEVICE int pair(int i) { return (threadIdx.x + i * THREADS) % PAIRS; }
  static DEVICE int token(int i) { return (threadIdx.x + i * THREADS) / PAIRS * TOKENS; }

  // Its pairs are those of the part's channels from `first` on, of which `channels` exist.
  DEVICE Convolution(const Part<ROWS>& part, const Sizes& z, int first, int channels, const float* conv_weight,
                     const float* conv_bias) {
    UNROLL for (int i = 0; i < TASKS; ++i) {
      channel[i] = token(i) < CHUNK && 2 * pair(i) < channels ? part.channel(z, first + 2 * pair(i)) : -1;
      if (channel[i] < 0) continue;
      UNROLL for (int c = 0; c < 2; ++c) {
        bias[i][c] = conv_bias[channel[i] + c];
        UNROLL for (int k = 0; k < CONV_KERNEL; ++k)
          weight[i][c][k] = conv_weight[(channel[i] + c) * CONV_KERNEL + k];
      }
    }
  }

  // Starts to read the chunk that begins with token `first`.
  DEVICE void fetch(const uint16_t* projected, const Sizes& z, int first, int T) {
    UNROLL for (int i = 0; i < TASKS; ++i) {
      if (channel[i] < 0) continue;
      int row = first + token(i) - PAST, valid = T - row;
      const uint16_t* column = projected + z.inner + channel[i] + static_cast<int64_t>(row) * z.width;
      UNROLL for (int t = 0; t < PAST + TOKENS; ++t, column += z.width)
        if (t < valid && (t >= PAST || row + t >= 0)) rows[i][t] = *reinterpret_cast<const uint32_t*>(column);
    }
  }

  // What was fetched, convolved: store(pair, token of the chunk, two bf16). After the last token that is
  // some number, which no weight lets through.
  template <class F>
  DEVICE void apply(const float* conv_state, int first, F store) {
    UNROLL for (int i = 0; i < TASKS; ++i) {
      if (channel[i] < 0) continue;
      int row = first + token(i);
      float window[2][CONV_KERNEL];
      UNROLL for (int k = 0; k < PAST; ++k) {
        window[0][k] = bf16_low(rows[i][k]), window[1][k] = bf16_high(rows[i][k]);
        int before = row - PAST + k;
        if (before < 0)
          UNROLL for (int c = 0; c < 2; ++c) window[c][k] = conv_state[(channel[i] + c) * PAST + before + PAST];
      }
      UNROLL for (int t = 0; t < TOKENS; ++t) {
        window[0][PAST] = bf16_low(rows[i][PAST + t]), window[1][PAST] = bf16_high(rows[i][PAST + t]);
        float mixed[2];
        UNROLL for (int c = 0; c < 2; ++c) {
          float sum = bias[i][c];
          UNROLL for (int k = 0; k < CONV_KERNEL; ++k) sum += weight[i][c][k] * window[c][k];
          mixed[c] = silu(sum);
          UNROLL for (int k = 0; k < PAST; ++k) window[c][k] = window[c][k + 1];
        }
        store(pair(i), token(i) + t, floats_to_bf16x2(mixed[0], mixed[1]));
      }
    }
  }
};

// One warp: delta and decays of a chunk from the raw dt of tokens 2 lane and 2 lane + 1.
DEVICE void decays(Chunk& chunk, const uint16_t dt[2], float dt_bias, float A, int tokens) {
  int lane = threadIdx.x % 32;
  float delta[2], log_decay[2];
  UNROLL for (int i = 0; i < 2; ++i) {
    delta[i] = 2 * lane + i < tokens ? softplus(bf16_to_float(dt[i]) + dt_bias) : 0.0f;
    log_decay[i] = delta[i] * A * LOG2_E;
  }
  float sum = log_decay[0] + log_decay[1];
  UNROLL for (int d = 1; d < 32; d *= 2) {
    float before = shuffle(sum, max(lane - d, 0));
    if (lane >= d) sum += before;
  }
  float before = shuffle(sum, max(lane - 1, 0)), last = shuffle(sum, 31);
  float s[2] = {(lane ? before : 0.0f) + log_decay[0], sum};
  UNROLL for (int i = 0; i < 2; ++i) {
    chunk.decay[2 * lane + i] = s[i], chunk.delta[2 * lane + i] = delta[i];
    chunk.into[2 * lane + i] = fast_exp2(last - s[i]) * delta[i];
  }
}

// Grid: heads x the blocks that share a head's rows. Shared memory: Shared.
extern "C" __global__ void LAUNCH_BOUNDS(THREADS, 1) mamba2_prefill(
    const uint16_t* projected,  // [T, width]: z | x B C | dt
    const float* conv_weight,   // [conv_dim, CONV_KERNEL]
    const float* conv_bias,     // [conv_dim]
    const float* A_log, const float* D, const float* dt_bias,  // [heads]
    const float* conv_state,    // [conv_dim, CONV_KERNEL - 1]
    const float* ssm_state,     // [heads, head_dim, STATE]
    const int*,                 // arrivals
    int T, int heads, int head_dim, int groups,
    uint16_t* y,                // [T, heads * head_dim]
    float* conv_out, float* ssm_out,  // the states themselves
    int* arrivals               // [groups] zeros, and zeros again afterwards
) {
  DYNAMIC_SHARED(shared);
  Shared& s = *reinterpret_cast<Shared*>(shared);
  Sizes z(heads, head_dim, groups);
  Part<ROWS> part(z);
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  float A = -expf(A_log[part.head]), D_head = D[part.head], bias = dt_bias[part.head];
  Convolution<ROWS / 2, 4> x_part(part, z, 0, part.rows, conv_weight, conv_bias);
  Convolution<STATE, 32> BC_part(part, z, ROWS, 2 * STATE, conv_weight, conv_bias);
  wait_for_previous();
  let_next_start();

  uint16_t dt[2];
  auto fetch = [&](int first) {
    x_part.fetch(projected, z, first, T);
    BC_part.fetch(projected, z, first, T);
    if (warp == 0)
      UNROLL for (int i = 0; i < 2; ++i) {
        int row = min(first + 2 * lane + i, T - 1);
        dt[i] = projected[static_cast<int64_t>(row) * z.width + z.inner + z.conv_dim + part.head];
      }
  };

  // The warp's part of the state: rows row0 + g and row0 + g + 8, columns 16 (tile0 + i) + 8 n + 2q, and + 1.
  int row0 = warp % 2 * 16, tile0 = warp / 2 * OWN_TILES;
  float state[OWN_TILES][2][4];
  auto each_of_state = [&](auto f) {
    UNROLL for (int i = 0; i < OWN_TILES; ++i)
      if (tile0 + i < STATE_TILES)
        UNROLL for (int n = 0; n < 2; ++n)
          UNROLL for (int half = 0; half < 2; ++half)
            f(row0 + g + 8 * half, 16 * (tile0 + i) + 8 * n + 2 * q, state[i][n][2 * half], state[i][n][2 * half + 1]);
  };
  auto share_state = [&](int place) {
    each_of_state([&](int row, int n, float& a, float& b) {
      *reinterpret_cast<uint32_t*>(&s.state[place][row][n]) = floats_to_bf16x2(a, b);
    });
  };
  int64_t state_at = (static_cast<int64_t>(part.head) * head_dim + part.first_row) * STATE;
  each_of_state([&](int row, int n, float& a, float& b) {
    const float2* from = reinterpret_cast<const float2*>(ssm_state + state_at + row * STATE + n);
    float2 two = row < part.rows ? *from : make_float2(0, 0);
    a = two.x, b = two.y;
  });
  share_state(0);

  // The warp's part of y: 16 tokens, 16 rows. Warps on one scheduler (w and w + 4) have equal work together.
  int tile = warp < 4 ? warp : 7 - warp, column0 = warp / 4 * 16;
  fetch(0);
  for (int first = 0, place = 0; first < T; first += CHUNK, place ^= 1) {
    Chunk& chunk = s.chunks[place];
    x_part.apply(conv_state, first, [&](int pair, int t, uint32_t two) {
      *reinterpret_cast<uint32_t*>(&chunk.x[t][2 * pair]) = two;
    });
    BC_part.apply(conv_state, first, [&](int pair, int t, uint32_t two) {
      uint16_t* row = pair < STATE / 2 ? &chunk.B[t][2 * pair] : &chunk.C[t][2 * pair - STATE];
      *reinterpret_cast<uint32_t*>(row) = two;
    });
    if (warp == 0) decays(chunk, dt, bias, A, T - first);
    fetch(first + CHUNK);
    __syncthreads();

    int own[2] = {16 * tile + g, 16 * tile + g + 8};  // the lane's tokens of the chunk
    uint32_t gate[2][2];
    UNROLL for (int n = 0; n < 2; ++n)
      UNROLL for (int half = 0; half < 2; ++half) {
        int row = column0 + 8 * n + 2 * q;
        bool exists = first + own[half] < T && row < part.rows;
        const uint16_t* from = projected + static_cast<int64_t>(first + own[half]) * z.width + part.head * head_dim;
        gate[n][half] = exists ? *reinterpret_cast<const uint32_t*>(from + part.first_row + row) : 0;
      }

    // y: what the state before the chunk gives, then the chunk's own tokens, 16 at a time.
    uint32_t C[STATE_TILES][4];
    float sum[2][4] = {};
    UNROLL for (int k = 0; k < STATE_TILES; ++k) {
      uint32_t b[4];
      load_matrices(C[k], &chunk.C[16 * tile + lane % 16][16 * k + lane / 16 * 8]);
      load_matrices(b, &s.state[place][column0 + lane / 16 * 8 + lane % 8][16 * k + lane / 8 % 2 * 8]);
      mma_bf16(sum[0], C[k], b);
      mma_bf16(sum[1], C[k], b + 2);
    }
    float decay[2] = {chunk.decay[own[0]], chunk.decay[own[1]]};
    UNROLL for (int n = 0; n < 2; ++n)
      UNROLL for (int i = 0; i < 4; ++i) sum[n][i] *= fast_exp2(decay[i / 2]);
    for (int j = 0; j <= tile; ++j) {
      float score[2][2][4] = {};  // even and odd steps apart: four chains of products
      UNROLL for (int k = 0; k < STATE_TILES; ++k) {
        uint32_t b[4];
        load_matrices(b, &chunk.B[16 * j + lane / 16 * 8 + lane % 8][16 * k + lane / 8 % 2 * 8]);
        mma_bf16(score[k % 2][0], C[k], b);
        mma_bf16(score[k % 2][1], C[k], b + 2);
      }
      uint32_t a[4];
      UNROLL for (int n = 0; n < 2; ++n)
        UNROLL for (int half = 0; half < 2; ++half) {
          float weight[2];
          UNROLL for (int i = 0; i < 2; ++i) {
            int other = 16 * j + 8 * n + 2 * q + i, at = 2 * half + i;
            float by = fast_exp2(decay[half] - chunk.decay[other]) * chunk.delta[other];
            weight[i] = other <= own[half] ? (score[0][n][at] + score[1][n][at]) * by : 0.0f;
            if (other == own[half]) weight[i] += D_head;
          }
          a[2 * n + half] = floats_to_bf16x2(weight[0], weight[1]);
        }
      uint32_t b[4];
      load_transposed(b, &chunk.x[16 * j + lane % 16][column0 + lane / 16 * 8]);
      mma_bf16(sum[0], a, b);
      mma_bf16(sum[1], a, b + 2);
    }
    UNROLL for (int n = 0; n < 2; ++n)
      UNROLL for (int half = 0; half < 2; ++half) {
        int row = column0 + 8 * n + 2 * q;
        uint32_t two = floats_to_bf16x2(sum[n][2 * half] * silu(bf16_low(gate[n][half])),
                                        sum[n][2 * half + 1] * silu(bf16_high(gate[n][half])));
        uint16_t* to = y + static_cast<int64_t>(first + own[half]) * z.inner + part.head * head_dim + part.first_row;
        if (first + own[half] < T && row < part.rows) *reinterpret_cast<uint32_t*>(to + row) = two;
      }

    float carry = fast_exp2(chunk.decay[CHUNK - 1]);
    UNROLL for (int i = 0; i < OWN_TILES; ++i)
      UNROLL for (int n = 0; n < 2; ++n)
        UNROLL for (int e = 0; e < 4; ++e) state[i][n][e] *= carry;
    UNROLL for (int k = 0; k < CHUNK / 16; ++k) {
      uint32_t a[4];
      load_transposed(a, &chunk.x[16 * k + lane / 16 * 8 + lane % 8][row0 + lane / 8 % 2 * 8]);
      UNROLL for (int half = 0; half < 2; ++half) {
        float2 by = *reinterpret_cast<const float2*>(&chunk.into[16 * k + 8 * half + 2 * q]);
        UNROLL for (int i = 2 * half; i < 2 * half + 2; ++i)
          a[i] = floats_to_bf16x2(bf16_low(a[i]) * by.x, bf16_high(a[i]) * by.y);
      }
      UNROLL for (int i = 0; i < OWN_TILES; ++i)
        if (tile0 + i < STATE_TILES) {
          uint32_t b[4];
          load_transposed(b, &chunk.B[16 * k + lane % 16][16 * (tile0 + i) + lane / 16 * 8]);
          mma_bf16(state[i][0], a, b);
          mma_bf16(state[i][1], a, b + 2);
        }
    }
    share_state(place ^ 1);
  }

  each_of_state([&](int row, int n, float& a, float& b) {
    if (row < part.rows) *reinterpret_cast<float2*>(ssm_out + state_at + row * STATE + n) = make_float2(a, b);
  });
  leave_conv_state<ROWS, THREADS>(part, z, projected, T, conv_state, conv_out, arrivals, s.is_last);
}
