// What every kernel is written in: numbers, warp operations, tensor-core tiles.
//
// Kernels use these names and no intrinsic of their own, so the same source compiles for sm_87 to
// sm_121 with nvcc or NVRTC, and as plain C++ for the emulator of tests/tools, which runs it on a CPU.
//
// Rules the emulator and TensorRT's ahead-of-time plugins set:
//   - a kernel is `extern "C" __global__`; its arguments are pointers and 32-bit integers only,
//     inputs first, then integers, then outputs; a float travels as the bits of an integer;
//   - warp operations are called by all 32 lanes, __syncthreads by all threads: no early return before;
//   - dynamic shared memory is declared with DYNAMIC_SHARED and is 16-byte aligned.
#pragma once

#ifdef EDGEKIT_EMULATOR
#include "emulator.h"
#else

#ifdef __CUDACC_RTC__  // NVRTC has no standard headers
typedef unsigned char uint8_t;
typedef signed char int8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef long long int64_t;
#define INFINITY __int_as_float(0x7F800000)
#else
#include <cstdint>
#endif

#define DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#define LAUNCH_BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)
#define UNROLL _Pragma("unroll")

// -- conversions. bf16 and fp16 are handled as their bits.

__device__ __forceinline__ float bits_to_float(uint32_t bits) { return __uint_as_float(bits); }
__device__ __forceinline__ uint32_t float_to_bits(float value) { return __float_as_uint(value); }

__device__ __forceinline__ uint16_t float_to_bf16(float value) {
  uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
__device__ __forceinline__ uint32_t floats_to_bf16x2(float low, float high) {
  uint32_t bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}
__device__ __forceinline__ float half_to_float(uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

// -- two 16-bit values in one register

// a b + c on two bf16 values.
__device__ __forceinline__ uint32_t bf16x2_fma(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

// (a & MASK) | BITS in one instruction.
template <uint32_t MASK, uint32_t BITS>
__device__ __forceinline__ uint32_t mask_or(uint32_t a) {
  uint32_t r;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(r) : "r"(a), "n"(MASK), "n"(BITS));
  return r;
}

// -- functions

__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float fast_exp(float x) { return fast_exp2(x * 1.4426950408889634f); }

// a / b within two units in the last place, and without a branch; b is below 2^126 or a / b is 0.
__device__ __forceinline__ float fast_divide(float a, float b) { return __fdividef(a, b); }

// -- memory

// Weights are read once: past L1, first to leave L2.
__device__ __forceinline__ uint4 load_stream(const uint4* address) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address));
  return v;
}
__device__ __forceinline__ uint2 load_stream(const uint2* address) {
  uint2 v;
  asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
               : "=r"(v.x), "=r"(v.y)
               : "l"(address));
  return v;
}

// Copies 16 bytes into shared memory while the thread goes on; zeros instead unless `valid`.
__device__ __forceinline__ void copy_async(void* shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(shared))), "l"(global), "r"(valid ? 16 : 0)
               : "memory");
}
// Ends a group of the thread's copies.
__device__ __forceinline__ void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// All of the thread's groups but the YOUNGEST last ones are there; of other threads' after a barrier.
template <int YOUNGEST>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" : : "n"(YOUNGEST) : "memory");
}

// -- programmatic dependent launch (sm_90 and later; elsewhere a launch simply follows the last)
//
// Kernels call let_next_start behind wait_for_previous. So when a launch starts, all launches but the one
// just before it have ended: what those wrote (weights, another step's state) may be read early.

// Everything the launch before wrote is visible after this.
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// The next launch may start its blocks; it still waits for this one's end before it reads.
__device__ __forceinline__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// -- warps

__device__ __forceinline__ float shuffle(float value, int lane) { return __shfl_sync(~0u, value, lane); }
__device__ __forceinline__ uint32_t shuffle(uint32_t value, int lane) { return __shfl_sync(~0u, value, lane); }
__device__ __forceinline__ int shuffle(int value, int lane) { return __shfl_sync(~0u, value, lane); }
__device__ __forceinline__ float shuffle_xor(float value, int mask) { return __shfl_xor_sync(~0u, value, mask); }
__device__ __forceinline__ uint32_t shuffle_xor(uint32_t value, int mask) { return __shfl_xor_sync(~0u, value, mask); }
__device__ __forceinline__ int shuffle_xor(int value, int mask) { return __shfl_xor_sync(~0u, value, mask); }
__device__ __forceinline__ uint32_t vote(bool predicate) { return __ballot_sync(~0u, predicate); }
// The largest and the smallest of the warp's values, for every lane.
__device__ __forceinline__ uint32_t warp_largest(uint32_t value) { return __reduce_max_sync(~0u, value); }
__device__ __forceinline__ uint32_t warp_smallest(uint32_t value) { return __reduce_min_sync(~0u, value); }
__device__ __forceinline__ void sync_warp() { __syncwarp(); }

// -- tensor cores: D[16, 8] = A[16, 16] B[16, 8] + D, fp32 accumulation. With g = lane / 4 and
// q = lane % 4 a lane holds, two values a register, low half first:
//   a[0] A[g, 2q..2q+1]   a[1] A[g+8, 2q..]   a[2] A[g, 2q+8..]   a[3] A[g+8, 2q+8..]
//   b[0] B[2q..2q+1, g]   b[1] B[2q+8.., g]
//   d[0], d[1] D[g, 2q..2q+1]   d[2], d[3] D[g+8, 2q..2q+1]

__device__ __forceinline__ void mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// D = A B: the accumulator starts at zero.
__device__ __forceinline__ void mma_bf16_zero(float d[4], const uint32_t a[4], const uint32_t b[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(0.0f));
}

// Four 8 x 8 matrices of 16-bit values from shared memory: lane 8 i + r gives the address of row r of
// matrix i, 16 bytes. A lane gets m[i] = matrix i[g, 2q..2q+1], or of its transpose, [2q..2q+1, g].
__device__ __forceinline__ void load_matrices(uint32_t m[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}
__device__ __forceinline__ void load_transposed(uint32_t m[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}

#endif  // EDGEKIT_EMULATOR

// -- the same on both

#define DEVICE __device__ __forceinline__

DEVICE float bf16_to_float(uint16_t bits) { return bits_to_float(static_cast<uint32_t>(bits) << 16); }
DEVICE float bf16_low(uint32_t pair) { return bits_to_float(pair << 16); }
DEVICE float bf16_high(uint32_t pair) { return bits_to_float(pair & 0xFFFF0000u); }

// Bytes 0 and 2 (or 1 and 3) of four positive e4m3 values, x 2^-8 as two fp16: what scales cost to decode.
DEVICE uint32_t e4m3_halves_2m8(uint32_t four, int odd) {
  return odd ? four >> 1 & 0x7F807F80u : four << 7 & 0x7F807F80u;
}

DEVICE float relu2(float x) { return fmaxf(x, 0.0f) * fmaxf(x, 0.0f); }
DEVICE float sigmoid(float x) { return 1.0f / (1.0f + fast_exp(-x)); }
DEVICE float silu(float x) { return fast_divide(x, 1.0f + fast_exp(-x)); }
// log(1 + exp(x)); above 20 it is x in fp32.
DEVICE float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

DEVICE float warp_sum(float value) {
  UNROLL for (int mask = 16; mask > 0; mask >>= 1) value += shuffle_xor(value, mask);
  return value;
}
DEVICE float warp_maximum(float value) {
  UNROLL for (int mask = 16; mask > 0; mask >>= 1) value = fmaxf(value, shuffle_xor(value, mask));
  return value;
}
// Bits that order as the floats do.
DEVICE uint32_t ordered_bits(float value) {
  uint32_t bits = float_to_bits(value);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
DEVICE int divide_up(int a, int b) { return (a + b - 1) / b; }

// Whether the block is the last of `blocks` to come here, for all its threads: then what the others wrote
// before is visible. `counter` is zero before and after; `flag` is shared memory.
DEVICE bool is_last_block(int* counter, int blocks, int& flag) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    flag = atomicAdd(counter, 1) == blocks - 1;
    if (flag) *counter = 0;
  }
  __syncthreads();
  if (flag) __threadfence();
  return flag;
}
