/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA's kernel language on the host, for tests. The threads of a block are
 * fibers of the calling thread, and blocks run one after the other.
 *
 * Behaviour that the hardware leaves undefined is made visible: dynamic shared
 * memory starts as NaNs, the target of a cu_async16 is NaN until it is waited
 * for, every second block runs its threads from the last to the first, and a
 * barrier that some thread never reaches ends the process with a sentence that
 * names the kernel.
 */
#ifndef CUDA_EMULATE_H
#define CUDA_EMULATE_H

#include "emulate_runtime.h"

#ifdef __cplusplus

#include <functional>
#include <math.h>
#include <string.h>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__ static
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#ifndef __restrict__
#define __restrict__ __restrict
#endif

#define CU_FN static inline __attribute__((unused))

/* ---- vectors ------------------------------------------------------------- */

#define EMU_VECTOR2(name, type, bytes)             \
    struct __attribute__((aligned(bytes))) name {  \
        type x, y;                                 \
    };                                             \
    static inline name make_##name(type x, type y) \
    {                                              \
        name v = { x, y };                         \
        return v;                                  \
    }
#define EMU_VECTOR4(name, type, bytes)                             \
    struct __attribute__((aligned(bytes))) name {                  \
        type x, y, z, w;                                           \
    };                                                             \
    static inline name make_##name(type x, type y, type z, type w) \
    {                                                              \
        name v = { x, y, z, w };                                   \
        return v;                                                  \
    }

EMU_VECTOR2(float2, float, 8)
EMU_VECTOR4(float4, float, 16)
EMU_VECTOR2(double2, double, 16)
EMU_VECTOR2(int2, int, 8)
EMU_VECTOR4(int4, int, 16)
EMU_VECTOR2(uint2, unsigned, 8)
EMU_VECTOR4(uint4, unsigned, 16)
EMU_VECTOR2(ushort2, unsigned short, 4)
EMU_VECTOR4(ushort4, unsigned short, 8)
EMU_VECTOR4(uchar4, unsigned char, 4)
EMU_VECTOR2(ulonglong2, unsigned long long, 16)

struct uint3 {
    unsigned x, y, z;
};

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned vx = 1, unsigned vy = 1, unsigned vz = 1)
        : x(vx), y(vy), z(vz)
    {
    }
};

/* ---- threads ------------------------------------------------------------- */

struct emu_fiber;

struct emu_state {
    uint3 thread;
    unsigned lane;
    uint3 block;
    dim3 block_dim;
    dim3 grid_dim;
    void *dynamic;
};

extern emu_state emu_now; /* of the running thread */

#define threadIdx (emu_now.thread)
#define blockIdx (emu_now.block)
#define blockDim (emu_now.block_dim)
#define gridDim (emu_now.grid_dim)
#define warpSize 32

/* Ends the process with a sentence about the running kernel. */
[[noreturn]] void emu_die(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));

void emu_launch(const char *name, const void *function, dim3 grid, dim3 block,
                size_t shared, cudaStream_t stream, std::function<void()> call);

template <typename T> struct emu_same {
    typedef T type;
};

template <typename... P>
void emu_start(const char *name, dim3 grid, dim3 block, size_t shared,
               cudaStream_t stream, void (*kernel)(P...),
               typename emu_same<P>::type... args)
{
    emu_launch(name, reinterpret_cast<const void *>(kernel), grid, block,
               shared, stream, [kernel, args...]() { kernel(args...); });
}

#define CU_LAUNCH(kernel, grid, block, shared, stream, ...)                   \
    emu_start(#kernel, (grid), (block), (size_t)(shared), (stream), (kernel), \
              __VA_ARGS__)

#define CU_DYNAMIC(type, name) \
    type *name = reinterpret_cast<type *>(emu_now.dynamic)

cudaError_t emu_function_shared(const void *function, int bytes);

template <typename... P>
cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute what,
                                 int value)
{
    (void)what;
    return emu_function_shared(reinterpret_cast<const void *>(kernel), value);
}

/* ---- barriers and warps -------------------------------------------------- */

#define EMU_PLAIN 0
#define EMU_OR 1
#define EMU_AND 2
#define EMU_COUNT 3

int emu_barrier(const char *file, int line, int kind, int value);

#define __syncthreads() ((void)emu_barrier(__FILE__, __LINE__, EMU_PLAIN, 0))
#define __syncthreads_or(v) emu_barrier(__FILE__, __LINE__, EMU_OR, (v))
#define __syncthreads_and(v) emu_barrier(__FILE__, __LINE__, EMU_AND, (v))
#define __syncthreads_count(v) emu_barrier(__FILE__, __LINE__, EMU_COUNT, (v))

void emu_meet(unsigned number, unsigned threads);

template <int Threads> static inline void cu_meet(uint32_t number)
{
    static_assert(Threads > 0 && Threads % 32 == 0, "complete warps");
    emu_meet(number, Threads);
}

/* An operation of the lanes of `mask`: each lane brings its own argument, and
 * the last to arrive runs `finish` over all. args[lane] is NULL for lanes that
 * are not in the mask. */
typedef void (*emu_together)(void *const args[32]);
void emu_collective(uint32_t mask, const char *name, emu_together finish,
                    void *arg);

struct emu_shuffle {
    uint64_t value;
    uint64_t result;
    unsigned lane;
    int by;
    int width;
};

void emu_shuffle_index(void *const args[32]);
void emu_shuffle_up(void *const args[32]);
void emu_shuffle_down(void *const args[32]);
void emu_shuffle_xor(void *const args[32]);

template <typename T>
T emu_shuffled(uint32_t mask, T v, int by, int width, const char *name,
               emu_together how)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "32 or 64 bits");
    emu_shuffle s = { 0, 0, emu_now.lane, by, width };
    memcpy(&s.value, &v, sizeof(T));
    emu_collective(mask, name, how, &s);
    memcpy(&v, &s.result, sizeof(T));
    return v;
}

template <typename T>
T __shfl_sync(uint32_t mask, T v, int lane, int width = 32)
{
    return emu_shuffled(mask, v, lane, width, "__shfl_sync", emu_shuffle_index);
}

template <typename T>
T __shfl_up_sync(uint32_t mask, T v, unsigned by, int width = 32)
{
    return emu_shuffled(mask, v, (int)by, width, "__shfl_up_sync",
                        emu_shuffle_up);
}

template <typename T>
T __shfl_down_sync(uint32_t mask, T v, unsigned by, int width = 32)
{
    return emu_shuffled(mask, v, (int)by, width, "__shfl_down_sync",
                        emu_shuffle_down);
}

template <typename T>
T __shfl_xor_sync(uint32_t mask, T v, int by, int width = 32)
{
    return emu_shuffled(mask, v, by, width, "__shfl_xor_sync", emu_shuffle_xor);
}

void __syncwarp(uint32_t mask = 0xffffffffu);
unsigned __ballot_sync(uint32_t mask, int value);
int __any_sync(uint32_t mask, int value);
int __all_sync(uint32_t mask, int value);
unsigned __reduce_add_sync(uint32_t mask, unsigned value);
unsigned __reduce_max_sync(uint32_t mask, unsigned value);
unsigned __reduce_min_sync(uint32_t mask, unsigned value);
int __reduce_add_sync(uint32_t mask, int value);
int __reduce_max_sync(uint32_t mask, int value);
int __reduce_min_sync(uint32_t mask, int value);

static inline void __threadfence(void)
{
}

static inline void __threadfence_block(void)
{
}

/* ---- tensor cores, asynchronous copies ----------------------------------- */

/* Functions that touch a kernel's memory are compiled with the kernel, for its
 * sanitizer to see; the rest of the emulator is compiled without one. */

struct emu_product {
    float d[4];
    uint32_t a[4];
    uint32_t b[2];
};

struct emu_load {
    uint32_t result[4];
    alignas(16) uint16_t row[8];
};

void emu_multiply(void *const args[32]);
void emu_load_matrices(void *const args[32]);
void emu_load_transposed(void *const args[32]);
void emu_async16(void *to, const uint8_t bytes[16]);
void cu_async_commit(void);
void emu_async_wait(int left);

CU_FN void cu_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    emu_product p;
    memcpy(p.d, d, sizeof(p.d));
    memcpy(p.a, a, sizeof(p.a));
    memcpy(p.b, b, sizeof(p.b));
    emu_collective(0xffffffffu, "cu_mma_bf16", emu_multiply, &p);
    memcpy(d, p.d, sizeof(p.d));
}

CU_FN void emu_loaded(uint32_t r[4], const void *row, const char *name,
                      emu_together how)
{
    if ((uintptr_t)row % 16u)
        emu_die("%s from %p, which must be a multiple of 16", name, row);
    emu_load l;
    memcpy(l.row, row, sizeof(l.row));
    emu_collective(0xffffffffu, name, how, &l);
    memcpy(r, l.result, sizeof(l.result));
}

CU_FN void cu_ldmatrix4(uint32_t r[4], const void *row)
{
    emu_loaded(r, row, "cu_ldmatrix4", emu_load_matrices);
}

CU_FN void cu_ldmatrix4_t(uint32_t r[4], const void *row)
{
    emu_loaded(r, row, "cu_ldmatrix4_t", emu_load_transposed);
}

CU_FN void cu_async16(void *to, const void *from, uint32_t bytes)
{
    uint8_t copy[16] = { 0 };
    if ((uintptr_t)to % 16u || (uintptr_t)from % 16u || bytes > 16u)
        emu_die("cu_async16 of %u bytes from %p to %p, which 16 must divide",
                bytes, from, to);
    if (bytes == 16u)
        memcpy(copy, from, 16);
    else
        memcpy(copy, from, bytes);
    memset(to, 0xff, 16);
    emu_async16(to, copy);
}

template <int Left> static inline void cu_async_wait(void)
{
    emu_async_wait(Left);
}

#include "emulate_math.h"

/* The C library's exp2f differs between machines in the last bit; the double,
 * rounded, does not. */
static inline float emulate_exp2f(float x)
{
    return (float)exp2((double)x);
}
#define exp2f emulate_exp2f

#endif /* __cplusplus */

#endif
