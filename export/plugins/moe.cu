// A mixture-of-experts layer for up to eight tokens, in three launches:
//
//   moe_route_step  scores of all experts, and of the last block to score the choice, as a table of slots
//                   (router.cuh); norm(h) in tile order for the next launch; the shared expert's hidden
//                   values, whose weights need not wait for the choice
//   moe_up_step     the chosen experts' hidden values
//   moe_down_step   all experts' part in 16 rows of the output, plus the residual
//
// hidden = relu(up x)^2 is kept as bf16 in tile order (stream.cuh), already times the next matrix's
// activation scale. Each distinct expert of the tokens is read once: a tile multiplies up to eight tokens.
//
// Defines: UP_FORMAT, UP_GROUP, DOWN_FORMAT, DOWN_GROUP; SHARED: there is a shared expert, in
// SHARED_UP_FORMAT... of its own; TOP_K; WARPS of a block and the tiles that each reads ahead, DEPTH; BLOCKS of a
// multiprocessor, for which registers are to suffice; for UP the SHARERS of a row tile and those of router.cuh.
#include "gemv.cuh"
#include "router.cuh"

using Up = Weights<UP_FORMAT, UP_GROUP>;
using Down = Weights<DOWN_FORMAT, DOWN_GROUP>;
#if SHARED
using SharedUp = Weights<SHARED_UP_FORMAT, SHARED_UP_GROUP>;
using SharedDown = Weights<SHARED_DOWN_FORMAT, SHARED_DOWN_GROUP>;
#endif

constexpr int SLOTS = MAX_TOKENS * TOP_K;  // most distinct experts of the tokens

#ifdef ROUTE

// Blocks 0..E-1 score one expert each; with a shared expert, the blocks after them are its row tiles.
extern "C" __global__ void LAUNCH_BOUNDS(WARPS * 32, BLOCKS) moe_route_step(
    const float* h,              // [T, H]
    const float* norm_weight,    // [H]
    const float* gate,           // [E, H]
    const float* bias,           // [E]
#if SHARED
    const unsigned char* codes, const unsigned char* scales, const float* scale,  // [Is, H]
#endif
    const int*,                  // arrivals
    int T, int H,
#if SHARED
    int Is,
#endif
    int epsilon_bits,
    float* scores,   // [T, E], sigmoid
    int* slots, float* shares,
    uint2* normed,   // [T, ceil64(H) / 4] in tile order
#if SHARED
    uint16_t* shared_hidden,  // [T, ceil64(Is)] in tile order
#endif
    int* arrivals    // [1] zero, and zero again afterwards
) {
  DYNAMIC_SHARED(shared);
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int column_tiles = divide_up(H, TILE_COLUMNS), stride = column_tiles * TILE_COLUMNS / 4;
  float epsilon = bits_to_float(epsilon_bits);
#if SHARED
  if (blockIdx.x >= EXPERTS) {
    uint2* activations = reinterpret_cast<uint2*>(shared);
    float* partial = reinterpret_cast<float*>(activations + T * stride);
    float* squares = partial + WARPS * TILE_ROWS * MAX_TOKENS;
    int row_tile = blockIdx.x - EXPERTS, begin = column_tiles * warp / WARPS, end = column_tiles * (warp + 1) / WARPS;
    Stream<SharedUp, DEPTH> stream(codes, scales, static_cast<int64_t>(row_tile) * column_tiles + begin, end - begin,
                                   lane);
    stream.start();
    wait_for_previous();
    let_next_start();
    stage_normed(h, norm_weight, T, H, SharedUp::activation_scale(), activations, stride, squares, warp, WARPS, lane);
    __syncthreads();
    float sum[4] = {0, 0, 0, 0};
    stream.run(FromShared(activations, stride, T, begin, lane), sum);
    store_fragment(partial + warp * TILE_ROWS * MAX_TOKENS, sum, lane);
    __syncthreads();
    int padded = divide_up(Is, TILE_COLUMNS) * TILE_COLUMNS, first = row_tile * TILE_ROWS;
    // The last block also clears the columns up to a whole tile, which the next launch reads.
    int rows = first + TILE_ROWS >= Is ? padded - first : TILE_ROWS;
    float by = SharedUp::restore() * *scale;
    for (int i = threadIdx.x; i < rows * T; i += WARPS * 32) {
      int t = i / rows, row = i % rows;
      float value = row >= TILE_ROWS ? 0.0f
                                     : collect(partial, 0, WARPS, row, t) * by *
                                           reciprocal_rms(squares, t, WARPS, H, epsilon);
      shared_hidden[t * padded + tile_order(first + row)] =
          float_to_bf16(relu2(value) * SharedDown::activation_scale());
    }
    return;
  }
#endif
  wait_for_previous();
  let_next_start();
  float* sums = reinterpret_cast<float*>(shared);  // [2 MAX_TOKENS][WARPS]: products, then squares
  int e = blockIdx.x;
  for (int t = 0; t < T; ++t) {
    float product = 0, squares = 0;
    for (int u = threadIdx.x; u < stride; u += WARPS * 32) {
      float4 x = read_four(h + t * H, u, H);
      float4 weighted = times(times(x, read_four(norm_weight, u, H)), read_four(gate + static_cast<int64_t>(e) * H, u, H));
      product += (weighted.x + weighted.y) + (weighted.z + weighted.w);
      squares += square_sum(x);
    }
    product = warp_sum(product), squares = warp_sum(squares);
    if (lane == 0) sums[t * WARPS + warp] = product, sums[(MAX_TOKENS + t) * WARPS + warp] = squares;
  }
  __syncthreads();
  if (threadIdx.x < T) {
    int t = threadIdx.x;
    float product = 0, squares = 0;
    for (int w = 0; w < WARPS; ++w) product += sums[t * WARPS + w], squares += sums[(MAX_TOKENS + t) * WARPS + w];
    scores[t * EXPERTS + e] = sigmoid(product * rsqrtf(squares / H + epsilon));
  }
  for (int t = e; t < T; t += EXPERTS) {
    float squares = 0;
    for (int w = 0; w < WARPS; ++w) squares += sums[(MAX_TOKENS + t) * WARPS + w];
    float by = rsqrtf(squares / H + epsilon) * Up::activation_scale();
    for (int u = threadIdx.x; u < stride; u += WARPS * 32)
      normed[t * stride + tile_unit(u)] = to_bf16(times(read_four(h + t * H, u, H), read_four(norm_weight, u, H)), by);
  }

  __shared__ int chosen[SLOTS], counts[WARPS], flag;
  __shared__ float weight[SLOTS];
  if (!is_last_block(arrivals, EXPERTS, flag)) return;
  for (int t = warp; t < T; t += WARPS) choose(scores + t * EXPERTS, bias, chosen + t * TOP_K, weight + t * TOP_K, lane);
  __syncthreads();
  list_slots<WARPS, MAX_TOKENS>(chosen, weight, T, counts, slots, shares);
}

#endif
#ifdef UP

constexpr int BLOCK_TILES = WARPS / SHARERS;

// Grid: row tiles / BLOCK_TILES, then slots.
extern "C" __global__ void LAUNCH_BOUNDS(WARPS * 32, BLOCKS) moe_up_step(
    const uint2* normed,          // [T, ceil64(H) / 4] in tile order
    const int* slots, const float* shares,
    const unsigned char* codes,   // [E] matrices [I, H]
    const unsigned char* scales,  // the same, or anything where the format has none
    const float* scale,           // [E]
    int T, int H, int I,
    uint16_t* hidden  // [T TOP_K, T, ceil64(I)] in tile order: of a slot, the rows of the tokens that have a share
) {
  __shared__ __align__(16) float partial[WARPS][TILE_ROWS * MAX_TOKENS];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, slot = blockIdx.y;
  wait_for_previous();
  let_next_start();
  int e = slots[1 + slot];
  if (e < 0) return;  // fewer distinct experts than slots; all threads alike
  int column_tiles = divide_up(H, TILE_COLUMNS), row_tiles = divide_up(I, TILE_ROWS);
  int row_tile = blockIdx.x * BLOCK_TILES + warp / SHARERS;
  float sum[4] = {0, 0, 0, 0};
  if (row_tile < row_tiles) {
    int part = warp % SHARERS, begin = column_tiles * part / SHARERS, end = column_tiles * (part + 1) / SHARERS;
    int64_t tile = (static_cast<int64_t>(e) * row_tiles + row_tile) * column_tiles + begin;
    Stream<Up, DEPTH> stream(codes, scales, tile, end - begin, lane);
    stream.start();
    stream.run(FromMemory(g < T ? normed + (g * column_tiles + begin) * 16 : nullptr, lane), sum);
  }
  store_fragment(partial[warp], sum, lane);
  __syncthreads();
  int padded = divide_up(I, TILE_COLUMNS) * TILE_COLUMNS, first = blockIdx.x * BLOCK_TILES * TILE_ROWS;
  int rows = min(BLOCK_TILES * TILE_ROWS, padded - first);
  float by = Up::restore() * scale[e];
  const float* own = shares + slot * MAX_TOKENS;
  for (int i = threadIdx.x; i < rows * T; i += WARPS * 32) {
    int t = i / rows, row = i % rows, tile = row / TILE_ROWS;
    if (own[t] == 0) continue;
    float value = collect(partial[0], tile * SHARERS, SHARERS, row % TILE_ROWS, t);
    hidden[(slot * T + t) * padded + tile_order(first + row)] =
        float_to_bf16(relu2(value * by) * Down::activation_scale());
  }
}

#endif
#ifdef DOWN

// Grid: row tiles, then SPLITS. The warps of all splits share the columns of all experts, end to end; the
// last split of a row tile adds up.
extern "C" __global__ void LAUNCH_BOUNDS(WARPS * 32, BLOCKS) moe_down_step(
    const uint16_t* hidden, const int* slots, const float* shares,  // see moe_up_step
    const unsigned char* codes,   // [E] matrices [H, I]
    const unsigned char* scales,  // the same, or anything where the format has none
    const float* scale,           // [E]
#if SHARED
    const uint16_t* shared_hidden,  // [T, ceil64(Is)] in tile order
    const unsigned char* shared_codes, const unsigned char* shared_scales, const float* shared_scale,  // [H, Is]
#endif
    const float* residual,        // [T, H]
    const int*,                   // arrivals
    int T, int H, int I,
#if SHARED
    int Is,
#endif
    float* y,                     // [T, H]; may be the residual
    float* sums,                  // [row tiles, SPLITS, MAX_TOKENS, TILE_ROWS]
    int* arrivals                 // [row tiles] zeros, and zeros again afterwards
) {
  __shared__ int distinct[1 + SLOTS];
  __shared__ float share[SLOTS][MAX_TOKENS];
  __shared__ int flag;
  __shared__ __align__(16) float partial[WARPS][TILE_ROWS * MAX_TOKENS];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  wait_for_previous();
  let_next_start();
  for (int i = threadIdx.x; i < 1 + T * TOP_K; i += WARPS * 32) distinct[i] = slots[i];
  for (int i = threadIdx.x; i < T * TOP_K * MAX_TOKENS; i += WARPS * 32) share[i / MAX_TOKENS][i % MAX_TOKENS] = shares[i];
  // The value that the thread writes in the end: 16 rows of up to 8 tokens are at most 128.
  int own_t = threadIdx.x / TILE_ROWS, own_row = blockIdx.x * TILE_ROWS + threadIdx.x % TILE_ROWS;
  bool writes = own_t < T && own_row < H;
  float before = writes ? residual[own_t * H + own_row] : 0.0f;
  __syncthreads();
  int count = distinct[0];

  int expert_tiles = divide_up(I, TILE_COLUMNS), row_tiles = divide_up(H, TILE_ROWS);
  int64_t matrix_tiles = static_cast<int64_t>(row_tiles) * expert_tiles;
  int routed = count * expert_tiles;
#if SHARED
  int shared_tiles = divide_up(Is, TILE_COLUMNS), all = routed + shared_tiles;
#else
  int all = routed;
#endif
  int part = blockIdx.y * WARPS + warp, begin = all * part / (SPLITS * WARPS), end = all * (part + 1) / (SPLITS * WARPS);
  float total[4] = {0, 0, 0, 0};
  for (int s = begin / expert_tiles; s < count && s * expert_tiles < end; ++s) {
    int from = max(begin - s * expert_tiles, 0), to = min(end - s * expert_tiles, expert_tiles);
    float sum[4] = {0, 0, 0, 0};
    const uint2* own = nullptr;
    if (g < T && share[s][g] != 0)
      own = reinterpret_cast<const uint2*>(hidden) + ((s * T + g) * expert_tiles + from) * 16;
    int e = distinct[1 + s];
    float by = scale[e] * Down::restore();
    int64_t tile = e * matrix_tiles + static_cast<int64_t>(blockIdx.x) * expert_tiles + from;
    Stream<Down, DEPTH> stream(codes, scales, tile, to - from, lane);
    stream.start();
    stream.run(FromMemory(own, lane), sum);
    UNROLL for (int i = 0; i < 4; ++i) {
      total[i] += share[s][2 * q + i % 2] * by * sum[i];
    }
  }
#if SHARED
  if (end > routed) {
    float sum[4] = {0, 0, 0, 0};
    int from = max(begin - routed, 0);
    const uint2* own = g < T ? reinterpret_cast<const uint2*>(shared_hidden) + (g * shared_tiles + from) * 16 : nullptr;
    Stream<SharedDown, DEPTH> stream(shared_codes, shared_scales, static_cast<int64_t>(blockIdx.x) * shared_tiles + from,
                                     end - routed - from, lane);
    stream.start();
    stream.run(FromMemory(own, lane), sum);
    float by = SharedDown::restore() * *shared_scale;
    UNROLL for (int i = 0; i < 4; ++i) total[i] += by * sum[i];
  }
#endif
  store_fragment(partial[warp], total, lane);
  __syncthreads();
  float sum = own_t < T ? collect(partial[0], 0, WARPS, threadIdx.x % TILE_ROWS, own_t) : 0.0f;
#if SPLITS > 1
  constexpr int SUMS = MAX_TOKENS * TILE_ROWS;
  float* own = sums + blockIdx.x * SPLITS * SUMS + threadIdx.x;
  if (own_t < T) own[blockIdx.y * SUMS] = sum;
  if (!is_last_block(arrivals + blockIdx.x, SPLITS, flag)) return;
  sum = 0;
  UNROLL for (int p = 0; p < SPLITS; ++p) sum += own_t < T ? own[p * SUMS] : 0.0f;
#endif
  if (writes) y[own_t * H + own_row] = before + sum;
}

#endif
