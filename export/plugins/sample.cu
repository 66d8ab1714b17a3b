// Draws a token from each row of logits: temperature, top-k, top-p, min-p, as runtime/sampling.py
// defines them. What is kept is what lies at or above a threshold, so tokens of equal weight stay or
// go together. `judge` does so for rows behind drafted tokens, as runtime/speculate/accept.py defines it.
//
// A block has one row. Thresholds are found by bisection over the logits' bits; each pass copies what is
// still between the bounds, so all passes but the first few are over few candidates. Weights,
// exp((x - largest) / temperature), are summed as integers: whatever the order, the sum is the same, and
// so is the token.
//
// Defines: SLICES; PHILOX, 1 where random numbers are made here (Salmon et al. 2011, Philox4x32-10).
#include "sampling.cuh"

constexpr int THREADS = 1024, WARPS = THREADS / 32;
constexpr int EACH = 4;            // logits of a thread that are on their way together
constexpr float ONE = 0x1p44f;     // the integer weight of the likeliest token; 2^19 of them fit

struct Settings {
  float by;         // 1 / temperature; infinity takes the likeliest token
  int top_k;        // 0 is off
  uint32_t top_p;   // x 2^32; 0 is off
  float min_p;
};

struct Shared {
  uint64_t sums[WARPS];
  int kept;
};

DEVICE uint64_t warp_sum(uint64_t value) {
  UNROLL for (int mask = 16; mask > 0; mask >>= 1) {
    uint32_t low = shuffle_xor(static_cast<uint32_t>(value), mask);
    uint32_t high = shuffle_xor(static_cast<uint32_t>(value >> 32), mask);
    value += low | static_cast<uint64_t>(high) << 32;
  }
  return value;
}

// Of all threads, for every thread.
DEVICE uint64_t block_sum(Shared& s, uint64_t value) {
  value = warp_sum(value);
  __syncthreads();  // an earlier sum has been read
  if (threadIdx.x % 32 == 0) s.sums[threadIdx.x / 32] = value;
  __syncthreads();
  return warp_sum(s.sums[threadIdx.x % 32]);
}

// The upper half of a product.
DEVICE uint64_t multiply_high(uint64_t a, uint64_t b) {
  uint64_t a0 = a & 0xFFFFFFFFu, a1 = a >> 32, b0 = b & 0xFFFFFFFFu, b1 = b >> 32;
  uint64_t middle = a1 * b0 + (a0 * b0 >> 32);
  return a1 * b1 + (middle >> 32) + ((middle & 0xFFFFFFFFu) + a0 * b1 >> 32);
}

// 64 random bits that belong to a position of a sequence and to one of its purposes.
DEVICE uint64_t philox(uint32_t position, uint32_t purpose, uint32_t seed_low, uint32_t seed_high) {
  uint32_t counter[4] = {position, purpose, 0, 0};
  UNROLL for (int round = 0; round < 10; ++round) {
    uint64_t a = static_cast<uint64_t>(counter[0]) * 0xD2511F53u, b = static_cast<uint64_t>(counter[2]) * 0xCD9E8D57u;
    uint32_t one = counter[1] ^ seed_low, three = counter[3] ^ seed_high;
    counter[0] = static_cast<uint32_t>(b >> 32) ^ one, counter[1] = static_cast<uint32_t>(b);
    counter[2] = static_cast<uint32_t>(a >> 32) ^ three, counter[3] = static_cast<uint32_t>(a);
    seed_low += 0x9E3779B9u, seed_high += 0xBB67AE85u;
  }
  return counter[0] | static_cast<uint64_t>(counter[1]) << 32;
}

struct Weigh {
  float largest, by;

  DEVICE float operator()(float x) const { return expf((x - largest) * by); }
};

DEVICE uint64_t as_integer(float weight) { return static_cast<uint64_t>(weight * ONE); }

// The largest key such that what lies at or above it, counted or weighed, reaches `wanted`. What lies at
// or above `low` does, what lies at or above `high` does not; `above` is how much that is.
template <bool WEIGHED>
DEVICE uint32_t select(Shared& s, const float* from, int count, float* candidates, uint32_t low, uint32_t high,
                       uint64_t wanted, const Weigh& weigh) {
  uint64_t above = 0;
  int lane = threadIdx.x % 32;
  while (high - low > 1) {
    uint32_t pivot = low + (high - low) / 2;
    uint64_t upper = 0;
    __syncthreads();
    if (threadIdx.x == 0) s.kept = 0;
    for (int first = 0; first < count; first += THREADS * EACH) {
      float x[EACH];
      UNROLL for (int i = 0; i < EACH; ++i) {
        int at = first + i * THREADS + threadIdx.x;
        x[i] = at < count ? from[at] : -INFINITY;
      }
      __syncthreads();  // all of the batch are read before its candidates, no more, are written over it
      UNROLL for (int i = 0; i < EACH; ++i) {
        uint32_t key = key_of(x[i]);
        bool stays = key >= low && key < high && first + i * THREADS + static_cast<int>(threadIdx.x) < count;
        if (stays && key >= pivot) upper += WEIGHED ? as_integer(weigh(x[i])) : 1;
        uint32_t lanes = vote(stays);
        int place = 0;
        if (lane == 0 && lanes) place = atomicAdd(&s.kept, __popc(lanes));
        place = shuffle(place, 0) + __popc(lanes & ((1u << lane) - 1));
        if (stays) candidates[place] = x[i];
      }
    }
    upper = block_sum(s, upper);
    if (above + upper >= wanted) low = pivot;
    else high = pivot, above += upper;
    from = candidates, count = s.kept;
    if (count == 1) return key_of(candidates[0]);
  }
  return low;
}

// What temperature and filters leave of a row.
struct Kept {
  const float* x;  // [V]
  Weigh weigh;
  uint32_t lowest;   // key
  float threshold;   // weight

  // Of token i; 1 for the likeliest.
  DEVICE float weight(int i) const {
    float w = weigh(x[i]);
    return key_of(x[i]) >= lowest && w >= threshold ? w : 0.0f;
  }
};

DEVICE Kept filter(Shared& s, const float* x, int V, int best, const uint32_t* slices, const Settings& set,
                   float* candidates) {
  Kept kept{x, {x[best], set.by}, 0, set.min_p};
  const Weigh& weigh = kept.weigh;
  uint32_t high = key_of(weigh.largest) + 1, lowest = 0;
  if (set.top_k > 0 && set.top_k < V) {
    // So many slices' largest logits are at or above the smallest of these.
    if (set.top_k <= SLICES) {
      lowest = ~0u;
      for (int i = threadIdx.x % 32; i < SLICES; i += 32) {
        uint32_t key = slices[2 * i];
        lowest = key < lowest ? key : lowest;
      }
      lowest = warp_smallest(lowest);
    }
    lowest = select<false>(s, x, V, candidates, lowest, high, set.top_k, weigh);
  }
  kept.lowest = lowest;
  if (set.top_p != 0) {
    uint64_t total = 0;
    UNROLL for (int i = threadIdx.x; i < V; i += THREADS)
      if (key_of(x[i]) >= lowest) total += as_integer(weigh(x[i]));
    total = block_sum(s, total);
    uint64_t share = static_cast<uint64_t>(set.top_p) << 32;
    uint64_t wanted = multiply_high(total - 1, share) + 1;  // rounded up
    // V weights below (1 - top_p) / V, of a total of at least 1, are not needed to have top_p of it; half
    // of that for rounding.
    float others = static_cast<float>(0u - set.top_p) * 0x1p-32f;
    uint32_t floor = key_of(weigh.largest + logf(0.5f * others / static_cast<float>(V)) / set.by);
    uint32_t low = floor > lowest ? floor : lowest;
    uint32_t last = select<true>(s, x, V, candidates, low, high, wanted, weigh);
    kept.threshold = fmaxf(kept.threshold, weigh(logit_of(last)));
  }
  return kept;
}

// The sum of weights, as integers, of tokens begin..end.
template <class Weight>
DEVICE uint64_t warp_mass(const Weight& weight, int begin, int end) {
  uint64_t mass = 0;
  UNROLL for (int i = begin + threadIdx.x % 32; i < end; i += 32) mass += as_integer(weight(i));
  return warp_sum(mass);
}

// The token where the sum of the weights passes a share of all of them, -1 if all are zero. The row, then a
// part of it, and so on, is cut into one piece a warp.
template <class Weight>
DEVICE int draw(Shared& s, int V, const Weight& weight, uint64_t share) {
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  uint64_t target = 0;
  int begin = 0, width = V;
  for (bool is_first = true; width > 1 || is_first; is_first = false) {
    int piece = divide_up(width, WARPS), from = begin + warp * piece, end = min(from + piece, begin + width);
    uint64_t mass = warp_mass(weight, from, end);
    __syncthreads();
    if (lane == 0) s.sums[warp] = mass;
    __syncthreads();
    if (is_first) {
      uint64_t total = warp_sum(s.sums[lane]);
      if (total == 0) return -1;
      target = multiply_high(total, share);
    }
    int chosen = 0;
    while (target >= s.sums[chosen]) target -= s.sums[chosen++];
    begin += chosen * piece, width = min(piece, width - chosen * piece);
  }
  return begin;
}

DEVICE Settings read_settings(const uint32_t* words) {
  return {bits_to_float(words[0]), static_cast<int>(words[1]), words[2], bits_to_float(words[3])};
}

// Number i of the `each` that a row takes.
DEVICE uint64_t random_of(const uint32_t* random, int row, int i, int each) {
#if PHILOX
  return philox(random[2] + row, random[3] + i, random[0], random[1]);
#else
  const uint32_t* words = random + 2 * (row * each + i);
  return words[0] | static_cast<uint64_t>(words[1]) << 32;
#endif
}

// Grid: rows.
extern "C" __global__ void LAUNCH_BOUNDS(THREADS, 1) sample(
    const float* logits,        // [R, V]
    const int* best,            // [R] and
    const uint32_t* slices,     // [R, SLICES, 2], both of argmax
    const uint32_t* settings,   // [4] Settings
    const uint32_t* random,     // [R, 2] uniform 64-bit numbers, low half first; with PHILOX seed, position and
                                // purpose [4]
    int V,
    int* token,                 // [R]; -1 where there is no largest logit
    float* scratch              // [R, V]
) {
  __shared__ Shared s;
  int row = blockIdx.x;
  wait_for_previous();
  let_next_start();

  Settings set = read_settings(settings);
  int64_t at = static_cast<int64_t>(row) * V;
  int found = best[row];
  if (found >= 0 && set.by != INFINITY) {
    Kept p = filter(s, logits + at, V, found, slices + row * SLICES * 2, set, scratch + at);
    found = draw(s, V, [&](int i) { return p.weight(i); }, random_of(random, row, 0, 1));
  }
  if (threadIdx.x == 0) token[row] = found;
}

// What stands behind drafted token i, and behind the last one: a token x drawn from q stays with probability
// min(1, p(x) / q(x)), else one is drawn from max(p - q, 0) (Leviathan et al. 2023, arXiv:2211.17192).
// Settings other than the likeliest token.
//
// Grid: rows.
extern "C" __global__ void LAUNCH_BOUNDS(THREADS, 1) judge(
    const float* logits,          // [R, V] of the target
    const int* best,              // [R] and
    const uint32_t* slices,       // [R, SLICES, 2], both of argmax
    const float* draft,           // [R, V] the draft's, the last row unused
    const int* draft_best,        // [R]
    const uint32_t* draft_slices, // [R, SLICES, 2]
    const int* tokens,            // [R]: the token before row 0, and drafted ones
    const uint32_t* settings,     // [4] Settings
    const uint32_t* random,       // [R, 2, 2] uniform 64-bit numbers: for the draw, for keeping; with PHILOX
                                  // seed, position and purpose [4]
    int V,
    int* token,                   // [R]; -1 where there is no largest logit
    float* scratch                // [R, V]
) {
  __shared__ Shared s;
  int row = blockIdx.x;
  wait_for_previous();
  let_next_start();

  Settings set = read_settings(settings);
  int64_t at = static_cast<int64_t>(row) * V;
  int found = best[row];
  if (found >= 0) {
    Kept p = filter(s, logits + at, V, found, slices + row * SLICES * 2, set, scratch + at);
    auto of_p = [&](int i) { return p.weight(i); };
    uint64_t share = random_of(random, row, 0, 2);
    int drafted = row + 1 < gridDim.x ? tokens[row + 1] : -1;
    if (drafted < 0 || draft_best[row] < 0) {
      found = draw(s, V, of_p, share);
    } else {
      __syncthreads();  // the candidates of p have been read
      Kept q = filter(s, draft + at, V, draft_best[row], draft_slices + row * SLICES * 2, set, scratch + at);
      uint64_t of_target = 0, of_draft = 0;
      for (int i = threadIdx.x; i < V; i += THREADS)
        of_target += as_integer(p.weight(i)), of_draft += as_integer(q.weight(i));
      of_target = block_sum(s, of_target), of_draft = block_sum(s, of_draft);
      float by_p = ONE / static_cast<float>(of_target), by_q = ONE / static_cast<float>(of_draft);
      float uniform = static_cast<float>(random_of(random, row, 1, 2) >> 40) * 0x1p-24f;
      found = drafted;
      if (uniform * (q.weight(drafted) * by_q) >= p.weight(drafted) * by_p) {
        found = draw(s, V, [&](int i) { return fmaxf(p.weight(i) * by_p - q.weight(i) * by_q, 0.0f); }, share);
        if (found < 0) found = draw(s, V, of_p, share);  // p is q, to rounding
      }
    }
  }
  if (threadIdx.x == 0) token[row] = found;
}
