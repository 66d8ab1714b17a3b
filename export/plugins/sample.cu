// Draws a token from each row of logits: temperature, top-k, top-p, min-p, as runtime/sampling.py
// defines them. What is kept is what lies at or above a threshold, so tokens of equal weight stay or
// go together.
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

// 64 random bits that belong to a position of a sequence.
DEVICE uint64_t philox(uint32_t position, uint32_t seed_low, uint32_t seed_high) {
  uint32_t counter[4] = {position, 0, 0, 0};
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

// Grid: rows.
extern "C" __global__ void LAUNCH_BOUNDS(THREADS, 1) sample(
    const float* logits,        // [R, V]
    const int* best,            // [R] and
    const uint32_t* slices,     // [R, SLICES, 2], both of argmax
    const uint32_t* settings,   // [4] Settings
    const uint32_t* random,     // [R, 2] uniform 64-bit numbers, low half first; with PHILOX seed and position [3]
    int V,
    int* token,                 // [R]; -1 where there is no largest logit
    float* scratch              // [R, V]
) {
  __shared__ Shared s;
  int row = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  wait_for_previous();
  let_next_start();

  Settings set{bits_to_float(settings[0]), static_cast<int>(settings[1]), settings[2], bits_to_float(settings[3])};
  const float* x = logits + static_cast<int64_t>(row) * V;
  float* candidates = scratch + static_cast<int64_t>(row) * V;
  if (best[row] < 0 || set.by == INFINITY) {
    if (threadIdx.x == 0) token[row] = best[row];
    return;
  }
  Weigh weigh{x[best[row]], set.by};
  uint32_t high = key_of(weigh.largest) + 1, lowest = 0;
  if (set.top_k > 0 && set.top_k < V) {
    // So many slices' largest logits are at or above the smallest of these.
    if (set.top_k <= SLICES) {
      lowest = ~0u;
      for (int i = lane; i < SLICES; i += 32) {
        uint32_t key = slices[(row * SLICES + i) * 2];
        lowest = key < lowest ? key : lowest;
      }
      lowest = warp_smallest(lowest);
    }
    lowest = select<false>(s, x, V, candidates, lowest, high, set.top_k, weigh);
  }
  float threshold = set.min_p;
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
    threshold = fmaxf(threshold, weigh(logit_of(last)));
  }

  // Where the sum of the kept weights passes a uniform share of all of them: the row, then a part of
  // it, and so on, each cut into one piece a warp.
  uint64_t target = 0;
  int begin = 0, width = V;
  for (bool is_first = true; width > 1 || is_first; is_first = false) {
    int piece = divide_up(width, WARPS), from = begin + warp * piece, end = min(from + piece, begin + width);
    uint64_t mass = 0;
    UNROLL for (int i = from + lane; i < end; i += 32) {
      float weight = weigh(x[i]);
      if (key_of(x[i]) >= lowest && weight >= threshold) mass += as_integer(weight);
    }
    mass = warp_sum(mass);
    __syncthreads();
    if (lane == 0) s.sums[warp] = mass;
    __syncthreads();
    if (is_first) {
#if PHILOX
      uint64_t share = philox(random[2] + row, random[0], random[1]);
#else
      uint64_t share = random[2 * row] | static_cast<uint64_t>(random[2 * row + 1]) << 32;
#endif
      target = multiply_high(warp_sum(s.sums[lane]), share);
    }
    int chosen = 0;
    while (target >= s.sums[chosen]) target -= s.sums[chosen++];
    begin += chosen * piece, width = min(piece, width - chosen * piece);
  }
  if (threadIdx.x == 0) token[row] = begin;
}
