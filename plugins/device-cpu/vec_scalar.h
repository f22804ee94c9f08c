/* SPDX-License-Identifier: Apache-2.0
 *
 * Sixteen lanes of float32 as an array: the definition that the vector versions
 * are tested against.
 */
#ifndef CPU_VEC_SCALAR_H
#define CPU_VEC_SCALAR_H

#include <math.h>
#include <string.h>

#define VEC_ROWS 4
#define VEC_WIDE 1
#define VEC_DOUBLES 1

typedef struct v16 {
    float f[16];
} v16;

typedef struct i16 {
    int32_t i[16];
} i16;

typedef i16 m16; /* -1 where set, else 0 */

/* Functions of lanes alone: nothing in them can fail that AddressSanitizer or
 * UBSan would find, which would take most of their time. */
#define VFN_LANES VFN __attribute__((no_sanitize("address", "undefined")))

#define EACH(i) for (int i = 0; i < 16; i++)
#define V16_MAP(name, expr)                \
    VFN_LANES v16 v16_##name(v16 x, v16 y) \
    {                                      \
        v16 r;                             \
        EACH(i) r.f[i] = expr;             \
        return r;                          \
    }
V16_MAP(add, x.f[i] + y.f[i])
V16_MAP(sub, x.f[i] - y.f[i])
V16_MAP(mul, x.f[i] * y.f[i])
V16_MAP(div, x.f[i] / y.f[i])
V16_MAP(max, x.f[i] > y.f[i] ? x.f[i] : y.f[i])
V16_MAP(min, x.f[i] < y.f[i] ? x.f[i] : y.f[i])

#define I16_MAP(name, expr)                \
    VFN_LANES i16 i16_##name(i16 x, i16 y) \
    {                                      \
        i16 r;                             \
        EACH(i) r.i[i] = (int32_t)(expr);  \
        return r;                          \
    }
I16_MAP(add, (uint32_t)x.i[i] + (uint32_t)y.i[i])
I16_MAP(sub, (uint32_t)x.i[i] - (uint32_t)y.i[i])
I16_MAP(and, (uint32_t)x.i[i] & (uint32_t)y.i[i])
I16_MAP(or, (uint32_t)x.i[i] | (uint32_t)y.i[i])
I16_MAP(xor, (uint32_t)x.i[i] ^ (uint32_t)y.i[i])

/* For each pair of lanes: the 64-bit product of its first lanes, as a pair. */
VFN i16 i16_mul_first(i16 x, i16 y)
{
    i16 r;
    for (int i = 0; i < 16; i += 2) {
        uint64_t product = (uint64_t)(uint32_t)x.i[i] * (uint32_t)y.i[i];
        r.i[i] = (int32_t)(uint32_t)product;
        r.i[i + 1] = (int32_t)(uint32_t)(product >> 32);
    }
    return r;
}

/* For each pair: its second lane, then 0. */
VFN i16 i16_second(i16 x)
{
    i16 r;
    EACH(i) r.i[i] = i % 2 ? 0 : x.i[i + 1];
    return r;
}

/* For each pair: the first lane of x, then the first lane of y. */
VFN i16 i16_firsts(i16 x, i16 y)
{
    i16 r;
    EACH(i) r.i[i] = i % 2 ? y.i[i - 1] : x.i[i];
    return r;
}

VFN_LANES v16 v16_set(float x)
{
    v16 r;
    EACH(i) r.f[i] = x;
    return r;
}

VFN v16 v16_loadn(const float *p, size_t n)
{
    v16 r;
    EACH(i) r.f[i] = (size_t)i < n ? p[i] : 0.0f;
    return r;
}

VFN v16 v16_load(const float *p)
{
    v16 r;
    memcpy(&r, p, sizeof(r));
    return r;
}

VFN void v16_storen(float *p, v16 x, size_t n)
{
    for (size_t i = 0; i < n && i < 16; i++)
        p[i] = x.f[i];
}

/* bf16 values are the upper halves of floats. */
VFN v16 v16_widenn(const uint16_t *p, size_t n)
{
    v16 y;
    for (size_t i = 0; i < 16; i++) {
        uint32_t bits = i < n ? (uint32_t)p[i] << 16 : 0;
        memcpy(&y.f[i], &bits, sizeof(bits));
    }
    return y;
}

VFN v16 v16_widen(const uint16_t *p)
{
    return v16_widenn(p, 16);
}

VFN void v16_store(float *p, v16 x)
{
    memcpy(p, &x, sizeof(x));
}

VFN_LANES v16 v16_fma(v16 x, v16 y, v16 z)
{
    v16 r;
    EACH(i) r.f[i] = fmaf(x.f[i], y.f[i], z.f[i]);
    return r;
}

VFN v16 v16_sqrt(v16 x)
{
    v16 r;
    EACH(i) r.f[i] = sqrtf(x.f[i]);
    return r;
}

VFN m16 v16_lt(v16 x, v16 y)
{
    m16 r;
    EACH(i) r.i[i] = x.f[i] < y.f[i] ? -1 : 0;
    return r;
}

VFN m16 m16_range(size_t first, size_t last)
{
    m16 r;
    EACH(i) r.i[i] = (size_t)i >= first && (size_t)i < last ? -1 : 0;
    return r;
}

VFN int m16_all(m16 m)
{
    int all = 1;
    EACH(i) all = all && m.i[i];
    return all;
}

VFN v16 v16_pick(m16 m, v16 yes, v16 no)
{
    v16 r;
    EACH(i) r.f[i] = m.i[i] ? yes.f[i] : no.f[i];
    return r;
}

VFN i16 i16_pick(m16 m, i16 yes, i16 no)
{
    i16 r;
    EACH(i) r.i[i] = m.i[i] ? yes.i[i] : no.i[i];
    return r;
}

VFN i16 i16_set(int32_t x)
{
    i16 r;
    EACH(i) r.i[i] = x;
    return r;
}

VFN i16 i16_iota(int32_t first)
{
    i16 r;
    EACH(i) r.i[i] = first + i;
    return r;
}

VFN void i16_store(int32_t *p, i16 x)
{
    memcpy(p, &x, sizeof(x));
}

/* The bits of x as bf16, rounded to nearest even; NaN stays NaN. */
VFN i16 v16_half(v16 x)
{
    i16 r;
    for (int i = 0; i < 16; i++) {
        uint32_t bits;
        memcpy(&bits, &x.f[i], sizeof(bits));
        if (x.f[i] != x.f[i])
            bits |= 0x400000u;
        else
            bits += 0x7FFFu + (bits >> 16 & 1u);
        r.i[i] = (int32_t)(bits >> 16);
    }
    return r;
}

/* Stores the lower halves of lanes 0 to n - 1. */
VFN void i16_halven(uint16_t *p, i16 x, size_t n)
{
    for (size_t i = 0; i < n && i < 16; i++)
        p[i] = (uint16_t)x.i[i];
}

VFN i16 i16_sll(i16 x, int n)
{
    i16 r;
    EACH(i) r.i[i] = (int32_t)((uint32_t)x.i[i] << n);
    return r;
}

VFN i16 i16_srl(i16 x, int n)
{
    i16 r;
    EACH(i) r.i[i] = (int32_t)((uint32_t)x.i[i] >> n);
    return r;
}

VFN i16 i16_sra(i16 x, int n)
{
    i16 r;
    EACH(i) r.i[i] = x.i[i] >> n;
    return r;
}

VFN i16 v16_bits(v16 x)
{
    i16 r;
    memcpy(&r, &x, sizeof(r));
    return r;
}

VFN v16 i16_float(i16 x)
{
    v16 r;
    memcpy(&r, &x, sizeof(r));
    return r;
}

VFN v16 i16_convert(i16 x)
{
    v16 r;
    EACH(i) r.f[i] = (float)x.i[i];
    return r;
}

VFN void v16_split(const float *p, v16 *even, v16 *odd)
{
    EACH(i)
    {
        even->f[i] = p[2 * i];
        odd->f[i] = p[2 * i + 1];
    }
}

/* Interleaves the lanes of a and b: lanes 0 to 7 of both, then 8 to 15. */
VFN void i16_zip(i16 a, i16 b, i16 out[2])
{
    EACH(i)
    {
        out[i / 8].i[i % 8 * 2] = a.i[i];
        out[i / 8].i[i % 8 * 2 + 1] = b.i[i];
    }
}

/* Lanes 0 to 7, twice. */
VFN v16 v16_twice(v16 x)
{
    v16 r;
    EACH(i) r.f[i] = x.f[i % 8];
    return r;
}

/* Lanes 8 to 15, then 0 to 7. */
VFN v16 v16_swap(v16 x)
{
    v16 r;
    EACH(i) r.f[i] = x.f[(i + 8) % 16];
    return r;
}

#endif
