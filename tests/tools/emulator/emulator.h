// Runs a kernel of export/plugins on a CPU: each thread of a block is a fiber, warp operations and
// barriers are points where fibers wait for each other, blocks run one after another.
//
// It computes what the GPU computes (fp32 accumulation order inside a tensor-core tile apart) and
// stops with a message where a GPU would hang: a barrier or a warp operation that some thread never
// reaches. Between two barriers either all warps go on together, in a random order, or one after
// another, each as far as it can; an asynchronous copy arrives at once or when it is waited for. So a
// missing barrier shows as a wrong result. It knows nothing of speed and of memory outside the arrays
// given.
#pragma once

#include <cmath>
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include <ucontext.h>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __shared__ static
#define __constant__ static
#define __restrict__
#define __align__(bytes) __attribute__((aligned(bytes)))
#define DYNAMIC_SHARED(name) unsigned char* name = emulator::dynamic_shared
#define LAUNCH_BOUNDS(threads, blocks)
#define UNROLL

struct dim3 { unsigned x = 1, y = 1, z = 1; };
struct __align__(8) uint2 { uint32_t x, y; };
struct __align__(16) uint4 { uint32_t x, y, z, w; };
struct __align__(8) float2 { float x, y; };
struct __align__(16) float4 { float x, y, z, w; };
struct __align__(16) int4 { int x, y, z, w; };
struct __align__(8) int2 { int x, y; };
inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }

namespace emulator {

struct Copy {
  void* to;
  const void* from;
  bool valid;
};

enum class Wait { nothing, block, warp, done };

struct Fiber {
  ucontext_t context;
  std::jmp_buf place;  // where it goes on; switching by ucontext would cost two system calls
  bool started;
  Wait wait;
  unsigned warp_generation;
  std::vector<std::vector<Copy>> copies;  // groups not waited for yet; the last is still open
};
struct Warp {
  // Two generations: a lane is never more than one warp operation ahead of another.
  uint64_t words[2][32][8];
};

inline dim3 thread_index, block_index, block_size, grid_size;
inline unsigned char* dynamic_shared;
inline std::vector<Fiber> fibers;
inline std::vector<Warp> warps;
inline std::jmp_buf scheduler;
inline int current;
inline uint64_t (*kernel_arguments);
inline std::mt19937 dice;

inline void pause(Wait reason) {
  fibers[current].wait = reason;
  if (!_setjmp(fibers[current].place)) _longjmp(scheduler, 1);
}

// Runs a fiber until it pauses.
__attribute__((noinline)) inline void go_on(Fiber& fiber) {
  if (_setjmp(scheduler)) return;
  if (fiber.started) _longjmp(fiber.place, 1);
  fiber.started = true;
  setcontext(&fiber.context);
}

// Gives `count` words to the warp and waits; the result holds every lane's words.
inline uint64_t (*exchange(const uint64_t* words, int count))[8] {
  Fiber& fiber = fibers[current];
  Warp& warp = warps[current / 32];
  auto* slots = warp.words[fiber.warp_generation++ & 1];
  std::memcpy(slots[current % 32], words, count * sizeof(uint64_t));
  pause(Wait::warp);
  return slots;
}

template <class T>
T exchange_one(T value, int lane) {
  uint64_t word = 0;
  std::memcpy(&word, &value, sizeof(T));
  auto* slots = exchange(&word, 1);
  T result;
  std::memcpy(&result, &slots[lane & 31][0], sizeof(T));
  return result;
}

inline int lane() { return current % 32; }

using Kernel = void (*)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                        uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                        uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                        uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
inline Kernel kernel;

inline void enter() {
  // Pointers and integers fill whole slots of the calling convention, so one type fits all kernels.
  uint64_t* a = kernel_arguments;
  for (;;) {  // a fiber takes part in one block after another
    kernel(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15], a[16],
           a[17], a[18], a[19], a[20], a[21], a[22], a[23], a[24], a[25], a[26], a[27], a[28], a[29], a[30], a[31]);
    pause(Wait::done);
  }
}

inline int fail(const char* what) {
  std::fprintf(stderr, "emulator: block (%u, %u, %u): %s\n", block_index.x, block_index.y, block_index.z, what);
  return 1;
}

// Lets a warp's lanes go on if all wait for each other; whether the warp can go on.
inline bool release_warp(int warp) {
  Fiber* lanes = &fibers[32 * warp];
  int waiting = 0, ready = 0;
  for (int i = 0; i < 32; ++i) waiting += lanes[i].wait == Wait::warp, ready += lanes[i].wait == Wait::nothing;
  if (waiting == 32)
    for (int i = 0; i < 32; ++i) lanes[i].wait = Wait::nothing;
  return waiting == 32 || ready > 0;
}

inline void make_fibers(char* stacks, size_t stack) {
  for (size_t i = 0; i < fibers.size(); ++i) {
    Fiber& fiber = fibers[i];
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = stacks + i * stack;
    fiber.context.uc_stack.ss_size = stack;
    fiber.context.uc_link = nullptr;
    fiber.started = false;
    makecontext(&fiber.context, enter, 0);
  }
}

inline int run_block() {
  int threads = static_cast<int>(fibers.size()), alone = -1;  // the warp that runs alone, if one does
  bool together = true;
  for (Fiber& fiber : fibers) {
    fiber.wait = Wait::nothing;
    fiber.warp_generation = 0;
    fiber.copies.assign(1, {});
  }
  for (;;) {
    unsigned start = dice();  // warps in a rotated order, lanes backwards every other time
    int first = alone < 0 ? 0 : 32 * alone, count = alone < 0 ? threads : 32;
    for (int n = 0; n < count; ++n) {
      int i = static_cast<int>((n + start) % count);
      if (start & 0x10000) i = count - 1 - i;
      if (fibers[first + i].wait != Wait::nothing) continue;
      current = first + i;
      thread_index.x = current;
      go_on(fibers[current]);
    }
    if (alone >= 0 && release_warp(alone)) continue;
    // All warps go on, or another one does alone.
    bool waiting = true;
    for (int warp = 0; warp < threads / 32; ++warp) waiting = !release_warp(warp) && waiting;
    if (waiting) {
      int done = 0, at_block = 0;
      for (Fiber& fiber : fibers) done += fiber.wait == Wait::done, at_block += fiber.wait == Wait::block;
      if (done == threads) return 0;
      if (at_block < threads)
        return fail("some threads wait at a barrier or warp operation that others never reach");
      for (Fiber& fiber : fibers) fiber.wait = Wait::nothing;
      together = dice() & 1;
    }
    alone = together ? -1 : static_cast<int>(dice() % (threads / 32));
  }
}

}  // namespace emulator

#define threadIdx (emulator::thread_index)
#define blockIdx (emulator::block_index)
#define blockDim (emulator::block_size)
#define gridDim (emulator::grid_size)

extern "C" inline __attribute__((used, visibility("default"))) int emulator_launch(
    emulator::Kernel kernel, int count, const uint64_t* arguments, int grid_x, int grid_y, int grid_z, int threads,
    int shared_bytes, unsigned seed) {
  using namespace emulator;
  if (threads % 32 != 0 || threads > 1024) return fail("a block is 32 to 1024 threads, whole warps");
  if (count > 32) return fail("more than 32 arguments");
  uint64_t padded[32] = {};
  std::memcpy(padded, arguments, count * sizeof(uint64_t));
  kernel_arguments = padded;
  emulator::kernel = kernel;
  constexpr size_t stack = 64 * 1024;
  std::unique_ptr<char[]> stacks(new char[threads * stack]);  // not written: most of it is never touched
  void* memory = std::aligned_alloc(128, (shared_bytes + 128) / 128 * 128);
  dynamic_shared = static_cast<unsigned char*>(memory);
  fibers.assign(threads, {});
  warps.assign(threads / 32, {});
  make_fibers(stacks.get(), stack);
  dice.seed(seed);
  block_size = {unsigned(threads), 1, 1};
  grid_size = {unsigned(grid_x), unsigned(grid_y), unsigned(grid_z)};
  int status = 0;
  for (int z = 0; z < grid_z && !status; ++z)
    for (int y = 0; y < grid_y && !status; ++y)
      for (int x = 0; x < grid_x && !status; ++x) {
        block_index = {unsigned(x), unsigned(y), unsigned(z)};
        std::memset(memory, 0xFF, shared_bytes);  // NaN in every format
        status = run_block();
      }
  std::free(memory);
  return status;
}

// -- what common.cuh offers on a GPU

inline float bits_to_float(uint32_t bits) { float f; std::memcpy(&f, &bits, 4); return f; }
inline uint32_t float_to_bits(float f) { uint32_t bits; std::memcpy(&bits, &f, 4); return bits; }

inline uint16_t float_to_bf16(float value) {
  uint32_t bits = float_to_bits(value);
  if (std::isnan(value)) return 0x7FFF;
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
inline uint32_t floats_to_bf16x2(float low, float high) {
  return float_to_bf16(low) | static_cast<uint32_t>(float_to_bf16(high)) << 16;
}
inline float half_to_float(uint16_t bits) {
  int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  float magnitude = exponent == 31 ? (mantissa ? NAN : INFINITY)
                    : exponent     ? std::ldexp(1024.0f + mantissa, exponent - 25)
                                   : std::ldexp(static_cast<float>(mantissa), -24);
  return bits & 0x8000 ? -magnitude : magnitude;
}
inline uint32_t bf16x2_fma(uint32_t a, uint32_t b, uint32_t c) {
  auto one = [](uint32_t a, uint32_t b, uint32_t c) {
    return std::fma(bits_to_float(a << 16), bits_to_float(b << 16), bits_to_float(c << 16));
  };
  return floats_to_bf16x2(one(a, b, c), one(a >> 16, b >> 16, c >> 16));
}
template <uint32_t MASK, uint32_t BITS>
uint32_t mask_or(uint32_t a) { return (a & MASK) | BITS; }

inline float fast_exp(float x) { return std::exp(x); }
inline float fast_exp2(float x) { return std::exp2(x); }
inline float fast_divide(float a, float b) { return a / b; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline int __popc(uint32_t x) { return __builtin_popcount(x); }
inline int __ffs(uint32_t x) { return __builtin_ffs(static_cast<int>(x)); }
inline int __clz(uint32_t x) { return x ? __builtin_clz(x) : 32; }

inline uint4 load_stream(const uint4* address) { return *address; }
inline uint2 load_stream(const uint2* address) { return *address; }
inline void arrive(const emulator::Copy& copy) {
  if (copy.valid) std::memcpy(copy.to, copy.from, 16);
  else std::memset(copy.to, 0, 16);
}
inline void copy_async(void* to, const void* from, bool valid) {
  emulator::Copy copy{to, from, valid};
  if (emulator::dice() & 1) arrive(copy);
  else emulator::fibers[emulator::current].copies.back().push_back(copy);
}
inline void end_copies() { emulator::fibers[emulator::current].copies.emplace_back(); }
template <int YOUNGEST>
void wait_for_copies() {
  auto& groups = emulator::fibers[emulator::current].copies;
  while (static_cast<int>(groups.size()) > YOUNGEST + 1) {
    for (const emulator::Copy& copy : groups.front()) arrive(copy);
    groups.erase(groups.begin());
  }
}
inline void wait_for_previous() {}
inline void let_next_start() {}

inline void __syncthreads() { emulator::pause(emulator::Wait::block); }
inline void sync_warp() { emulator::exchange_one(0, 0); }
inline void __threadfence() {}
inline float atomicAdd(float* address, float value) { float old = *address; *address += value; return old; }
inline int atomicAdd(int* address, int value) { int old = *address; *address += value; return old; }
inline uint32_t atomicAdd(uint32_t* address, uint32_t value) { uint32_t old = *address; *address += value; return old; }
inline int atomicMax(int* address, int value) { int old = *address; if (value > old) *address = value; return old; }
inline uint64_t atomicMax(uint64_t* address, uint64_t value) {
  uint64_t old = *address;
  if (value > old) *address = value;
  return old;
}
inline unsigned long long atomicMax(unsigned long long* address, unsigned long long value) {
  unsigned long long old = *address;
  if (value > old) *address = value;
  return old;
}

inline float shuffle(float value, int lane) { return emulator::exchange_one(value, lane); }
inline uint32_t shuffle(uint32_t value, int lane) { return emulator::exchange_one(value, lane); }
inline int shuffle(int value, int lane) { return emulator::exchange_one(value, lane); }
inline float shuffle_xor(float value, int mask) { return emulator::exchange_one(value, emulator::lane() ^ mask); }
inline uint32_t shuffle_xor(uint32_t value, int mask) { return emulator::exchange_one(value, emulator::lane() ^ mask); }
inline int shuffle_xor(int value, int mask) { return emulator::exchange_one(value, emulator::lane() ^ mask); }
inline uint32_t warp_largest(uint32_t value) {
  uint64_t word = value;
  auto* slots = emulator::exchange(&word, 1);
  for (int lane = 0; lane < 32; ++lane) word = slots[lane][0] > word ? slots[lane][0] : word;
  return static_cast<uint32_t>(word);
}
inline uint32_t warp_smallest(uint32_t value) { return ~warp_largest(~value); }
inline uint32_t vote(bool predicate) {
  uint64_t word = predicate;
  auto* slots = emulator::exchange(&word, 1);
  uint32_t mask = 0;
  for (int lane = 0; lane < 32; ++lane) mask |= static_cast<uint32_t>(slots[lane][0] != 0) << lane;
  return mask;
}

namespace emulator {

template <float (*VALUE)(uint16_t)>
void mma(float d[4], const uint32_t a[4], const uint32_t b[2]) {
  uint64_t words[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
  auto* slots = exchange(words, 6);
  int g = lane() / 4, q = lane() % 4;
  auto part = [](uint64_t word, int k) { return VALUE(static_cast<uint16_t>(word >> 16 * (k & 1))); };
  for (int i = 0; i < 4; ++i) {
    int row = g + 8 * (i / 2), column = 2 * q + i % 2;
    double sum = 0;  // the order of a tile's sixteen terms is the hardware's own
    for (int k = 0; k < 16; ++k) {
      auto& a_lane = slots[row % 8 * 4 + k % 8 / 2];
      auto& b_lane = slots[column * 4 + k % 8 / 2];
      sum += static_cast<double>(part(a_lane[row / 8 + k / 8 * 2], k)) * part(b_lane[4 + k / 8], k);
    }
    d[i] = static_cast<float>(d[i] + sum);
  }
}
inline float bf16_value(uint16_t bits) { return bits_to_float(static_cast<uint32_t>(bits) << 16); }

}  // namespace emulator

inline void mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2]) {
  emulator::mma<emulator::bf16_value>(d, a, b);
}
inline void mma_bf16_zero(float d[4], const uint32_t a[4], const uint32_t b[2]) {
  d[0] = d[1] = d[2] = d[3] = 0;
  mma_bf16(d, a, b);
}

inline void load_matrices(uint32_t m[4], const void* row) {
  if (reinterpret_cast<uintptr_t>(row) % 16) std::abort();
  uint64_t words[2];
  std::memcpy(words, row, 16);
  auto* slots = emulator::exchange(words, 2);
  int lane = emulator::lane();
  for (int i = 0; i < 4; ++i)
    m[i] = static_cast<uint32_t>(slots[8 * i + lane / 4][lane % 4 / 2] >> 32 * (lane % 2));
}
inline void load_transposed(uint32_t m[4], const void* row) {
  if (reinterpret_cast<uintptr_t>(row) % 16) std::abort();
  uint64_t words[2];
  std::memcpy(words, row, 16);
  auto* slots = emulator::exchange(words, 2);
  int g = emulator::lane() / 4, q = emulator::lane() % 4;
  auto element = [&](int i, int r) { return static_cast<uint16_t>(slots[8 * i + r][g / 4] >> 16 * (g % 4)); };
  for (int i = 0; i < 4; ++i) m[i] = element(i, 2 * q) | static_cast<uint32_t>(element(i, 2 * q + 1)) << 16;
}
