/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA's arithmetic functions on the host, included by emulate.h. Functions
 * that a GPU rounds in its own way are rejected at compile time.
 */
#ifndef CUDA_EMULATE_MATH_H
#define CUDA_EMULATE_MATH_H

float rsqrtf(float) = delete;
double rsqrt(double) = delete;
#define __expf(x) rejected_on_the_device(x)
#define __logf(x) rejected_on_the_device(x)
float __fdividef(float, float) = delete;

/* libm's, without a call. */
static inline float emu_larger(float a, float b)
{
    return b != b || a > b ? a : b;
}
#define fmaxf emu_larger

template <typename To, typename From> static inline To emu_bits(From v)
{
    static_assert(sizeof(To) == sizeof(From), "sizes differ");
    To r;
    memcpy(&r, &v, sizeof(r));
    return r;
}

static inline unsigned __float_as_uint(float x)
{
    return emu_bits<unsigned>(x);
}

static inline float __uint_as_float(unsigned x)
{
    return emu_bits<float>(x);
}

static inline int __float_as_int(float x)
{
    return emu_bits<int>(x);
}

static inline float __int_as_float(int x)
{
    return emu_bits<float>(x);
}

static inline long long __double_as_longlong(double x)
{
    return emu_bits<long long>(x);
}

static inline double __longlong_as_double(long long x)
{
    return emu_bits<double>(x);
}

static inline uint32_t cu_bits(float x)
{
    return emu_bits<uint32_t>(x);
}

static inline float cu_float(uint32_t x)
{
    return emu_bits<float>(x);
}

static inline float __fadd_rn(float a, float b)
{
    return a + b;
}

static inline float __fsub_rn(float a, float b)
{
    return a - b;
}

static inline float __fmul_rn(float a, float b)
{
    return a * b;
}

static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}

static inline float __fsqrt_rn(float a)
{
    return sqrtf(a);
}

static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}

static inline double __dadd_rn(double a, double b)
{
    return a + b;
}

static inline double __dmul_rn(double a, double b)
{
    return a * b;
}

static inline double __fma_rn(double a, double b, double c)
{
    return fma(a, b, c);
}

static inline int __float2int_rn(float a)
{
    return (int)rintf(a);
}

static inline int __float2int_rz(float a)
{
    return (int)a;
}

static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}

static inline unsigned long long __umul64hi(unsigned long long a,
                                            unsigned long long b)
{
    __extension__ typedef unsigned __int128 wide;
    return (unsigned long long)((wide)a * b >> 64);
}

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

static inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}

static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

static inline int __ffsll(long long x)
{
    return __builtin_ffsll(x);
}

static inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}

static inline int __clzll(long long x)
{
    return x ? __builtin_clzll((unsigned long long)x) : 64;
}

static inline unsigned __brev(unsigned x)
{
    unsigned r = 0;
    for (int i = 0; i < 32; i++)
        r |= (x >> i & 1u) << (31 - i);
    return r;
}

static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by)
{
    by &= 31u;
    return by ? high << by | low >> (32u - by) : high;
}

static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by)
{
    by &= 31u;
    return by ? low >> by | high << (32u - by) : low;
}

template <typename T> static inline T __ldg(const T *p)
{
    return *p;
}

template <typename T> static inline T __ldcs(const T *p)
{
    return *p;
}

template <typename T> static inline T __ldcg(const T *p)
{
    return *p;
}

template <typename T> static inline void __stcs(T *p, T v)
{
    *p = v;
}

template <typename T> static inline void __stcg(T *p, T v)
{
    *p = v;
}

#define EMU_MIN_MAX(type)                  \
    static inline type min(type a, type b) \
    {                                      \
        return b < a ? b : a;              \
    }                                      \
    static inline type max(type a, type b) \
    {                                      \
        return a < b ? b : a;              \
    }
EMU_MIN_MAX(int)
EMU_MIN_MAX(unsigned)
EMU_MIN_MAX(long)
EMU_MIN_MAX(unsigned long)
EMU_MIN_MAX(long long)
EMU_MIN_MAX(unsigned long long)

static inline float min(float a, float b)
{
    return fminf(a, b);
}

static inline float max(float a, float b)
{
    return fmaxf(a, b);
}

static inline double min(double a, double b)
{
    return fmin(a, b);
}

static inline double max(double a, double b)
{
    return fmax(a, b);
}

/* Integers only: a sum of floats in the order of arrival has no fixed bits. */
#define EMU_ATOMIC(name, type, now)           \
    static inline type name(type *at, type v) \
    {                                         \
        type old = *at;                       \
        *at = (now);                          \
        return old;                           \
    }
#define EMU_ATOMICS(type)                                   \
    EMU_ATOMIC(atomicMax, type, old < v ? v : old)          \
    EMU_ATOMIC(atomicMin, type, v < old ? v : old)          \
    EMU_ATOMIC(atomicExch, type, v)                         \
    EMU_ATOMIC(atomicAnd, type, old &v)                     \
    EMU_ATOMIC(atomicOr, type, old | v)                     \
    static inline type atomicCAS(type *at, type is, type v) \
    {                                                       \
        type old = *at;                                     \
        if (old == is)                                      \
            *at = v;                                        \
        return old;                                         \
    }
EMU_ATOMICS(int)
EMU_ATOMICS(unsigned)
EMU_ATOMICS(unsigned long long)
EMU_ATOMIC(atomicAdd, unsigned, old + v)
EMU_ATOMIC(atomicAdd, unsigned long long, old + v)
EMU_ATOMIC(atomicAdd, int, (int)((unsigned)old + (unsigned)v))

#endif
