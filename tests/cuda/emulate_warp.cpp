/* SPDX-License-Identifier: Apache-2.0
 *
 * The warp-wide operations of the emulator: shuffles, votes, reductions and
 * tensor-core products.
 */
#include "emulate.h"

#define EACH(i) for (unsigned i = 0; i < 32; i++)

/* ---- shuffles ------------------------------------------------------------ */

static emu_shuffle *get_shuffle(void *const args[32], unsigned lane)
{
    return static_cast<emu_shuffle *>(args[lane]);
}

static void read_lane(void *const args[32], emu_shuffle *s, unsigned from)
{
    const emu_shuffle *other = from < 32 ? get_shuffle(args, from) : nullptr;
    if (!other)
        emu_die("a shuffle: lane %u reads lane %u, which is not in the mask",
                s->lane, from);
    s->result = other->value;
}

static unsigned segment_start(const emu_shuffle *s)
{
    if (s->width < 1 || s->width > 32 || (s->width & (s->width - 1)))
        emu_die("a shuffle of width %d", s->width);
    return s->lane & ~((unsigned)s->width - 1u);
}

void emu_shuffle_index(void *const args[32])
{
    EACH(i)
    {
        emu_shuffle *s = get_shuffle(args, i);
        if (s)
            read_lane(args, s,
                      segment_start(s) |
                          ((unsigned)s->by & ((unsigned)s->width - 1u)));
    }
}

void emu_shuffle_up(void *const args[32])
{
    EACH(i)
    {
        emu_shuffle *s = get_shuffle(args, i);
        if (!s)
            continue;
        unsigned by = (unsigned)s->by;
        read_lane(args, s, i < by || i - by < segment_start(s) ? i : i - by);
    }
}

void emu_shuffle_down(void *const args[32])
{
    EACH(i)
    {
        emu_shuffle *s = get_shuffle(args, i);
        if (!s)
            continue;
        unsigned to = i + (unsigned)s->by;
        read_lane(args, s,
                  to >= segment_start(s) + (unsigned)s->width ? i : to);
    }
}

void emu_shuffle_xor(void *const args[32])
{
    EACH(i)
    {
        emu_shuffle *s = get_shuffle(args, i);
        if (!s)
            continue;
        unsigned to = i ^ (unsigned)s->by;
        read_lane(args, s,
                  to >= segment_start(s) + (unsigned)s->width ? i : to);
    }
}

/* ---- votes and sums ------------------------------------------------------ */

struct vote {
    uint32_t value;
    uint32_t result;
};

static void finish_ballot(void *const args[32])
{
    uint32_t bits = 0;
    EACH(i)
    {
        if (args[i] && static_cast<vote *>(args[i])->value)
            bits |= 1u << i;
    }
    EACH(i)
    {
        if (args[i])
            static_cast<vote *>(args[i])->result = bits;
    }
}

static unsigned collect_votes(uint32_t mask, int value, const char *name)
{
    vote v = { value != 0, 0 };
    emu_collective(mask, name, finish_ballot, &v);
    return v.result;
}

unsigned __ballot_sync(uint32_t mask, int value)
{
    return collect_votes(mask, value, "__ballot_sync");
}

int __any_sync(uint32_t mask, int value)
{
    return collect_votes(mask, value, "__any_sync") != 0;
}

int __all_sync(uint32_t mask, int value)
{
    return collect_votes(mask, value, "__all_sync") == mask;
}

void __syncwarp(uint32_t mask)
{
    emu_collective(mask, "__syncwarp", nullptr, &mask);
}

static void reduce_lanes(void *const args[32],
                         uint32_t (*pair)(uint32_t, uint32_t))
{
    uint32_t sum = 0;
    bool any = false;
    EACH(i)
    {
        if (!args[i])
            continue;
        uint32_t v = static_cast<vote *>(args[i])->value;
        sum = any ? pair(sum, v) : v;
        any = true;
    }
    EACH(i)
    {
        if (args[i])
            static_cast<vote *>(args[i])->result = sum;
    }
}

#define REDUCE(name, type, expression)                                        \
    static uint32_t pair_##name##_##type(uint32_t ua, uint32_t ub)            \
    {                                                                         \
        type a = (type)ua, b = (type)ub;                                      \
        return (uint32_t)(expression);                                        \
    }                                                                         \
    static void fold_##name##_##type(void *const args[32])                    \
    {                                                                         \
        reduce_lanes(args, pair_##name##_##type);                             \
    }                                                                         \
    type __reduce_##name##_sync(uint32_t mask, type value)                    \
    {                                                                         \
        vote v = { (uint32_t)value, 0 };                                      \
        emu_collective(mask, "__reduce_" #name "_sync", fold_##name##_##type, \
                       &v);                                                   \
        return (type)v.result;                                                \
    }

REDUCE(add, unsigned, a + b)
REDUCE(max, unsigned, a < b ? b : a)
REDUCE(min, unsigned, a < b ? a : b)
REDUCE(add, int, (unsigned)a + (unsigned)b)
REDUCE(max, int, a < b ? b : a)
REDUCE(min, int, a < b ? a : b)

/* ---- tensor cores -------------------------------------------------------- */

struct product {
    float *d;
    const uint32_t *a;
    const uint32_t *b;
};

/* Products are the innermost loop of all tests in bfloat16, which sanitizers
 * would make ten times as slow. */
#if defined(__GNUC__) && !defined(__clang__)
#define INNERMOST                  \
    __attribute__((optimize("O3"), \
                   no_sanitize("address", "undefined", "thread")))
#else
#define INNERMOST
#endif

/* A 16 x 16 or 16 x 8 operand, taken apart. A zero has the exponent NONE. */
enum { NONE = -100000 };

template <unsigned ROWS, unsigned COLS> struct operand {
    uint32_t m[ROWS][COLS]; /* significand, 8 bits */
    int32_t e[ROWS][COLS];  /* exponent */
    uint32_t minus[ROWS][COLS];
    float value[ROWS][COLS];
    bool finite;

    INNERMOST void put(unsigned row, unsigned col, uint32_t half)
    {
        uint32_t e8 = half >> 7 & 0xffu;
        uint32_t bits = (half & 0x7fu) | (e8 ? 0x80u : 0u);
        m[row][col] = bits;
        e[row][col] = bits ? (int32_t)(e8 ? e8 : 1u) - 127 : NONE;
        minus[row][col] = half >> 15 & 1u;
        value[row][col] = cu_float(half << 16);
        finite = finite && e8 != 0xffu;
    }
};

typedef operand<16, 16> left;
typedef operand<16, 8> right;

/* Cuts x 2^unit toward zero to fp32. */
INNERMOST static float cut_to_float(int64_t x, int32_t unit)
{
    uint64_t magnitude = x < 0 ? 0 - (uint64_t)x : (uint64_t)x;
    if (magnitude == 0)
        return 0.0f;
    int32_t last = 63 - __builtin_clzll(magnitude) + unit - 23;
    last = last < -149 ? -149 : last;
    int32_t cut = last - unit;
    uint64_t kept = cut <= 0 ? magnitude << -cut : magnitude >> cut;
    uint64_t bits = ((uint64_t)(last + 149) << 23) + kept;
    bits = bits > 0x7f800000u ? 0x7f800000u : bits;
    return cu_float((uint32_t)bits | (x < 0 ? 0x80000000u : 0u));
}

/* Adds sixteen products to each accumulator of a row as Hopper does
 * (docs/numerics.md): all are aligned to the largest exponent and cut toward
 * zero 25 bits below it, and so is their sum to fp32. Below its exponent a
 * product has 14 bits of its own, an accumulator 23. */
enum { KEPT = 25, OF_PRODUCT = 14, OF_SUM = 23 };

INNERMOST static void add_row(const left *a, const right *b, unsigned row,
                              float c[8])
{
    int32_t top[8];
    uint32_t sums[2][8] = {}; /* of positive and of negative terms */
    for (unsigned n = 0; n < 8; n++)
        top[n] = NONE;
    for (unsigned k = 0; k < 16; k++)
        for (unsigned n = 0; n < 8; n++) {
            int32_t e = a->e[row][k] + b->e[k][n];
            top[n] = e > top[n] ? e : top[n];
        }
    for (unsigned n = 0; n < 8; n++) {
        uint32_t u = cu_bits(c[n]);
        int32_t e8 = (int32_t)(u >> 23 & 0xffu);
        uint32_t m = (u & 0x7fffffu) | (e8 ? 0x800000u : 0u);
        int32_t e = (e8 ? e8 : 1) - 127;
        top[n] = m && e > top[n] ? e : top[n];
        int32_t down = top[n] - e - (KEPT - OF_SUM);
        sums[u >> 31][n] = m == 0 || down > 31 ? 0
                           : down <= 0         ? m << -down
                                               : m >> down;
    }
    for (unsigned k = 0; k < 16; k++)
        for (unsigned n = 0; n < 8; n++) {
            int32_t down =
                top[n] - a->e[row][k] - b->e[k][n] - (KEPT - OF_PRODUCT);
            uint32_t m = a->m[row][k] * b->m[k][n];
            uint32_t up = (uint32_t)(down < 0 ? -down : 0) & 31u;
            uint32_t by = (uint32_t)(down > 31 ? 31 : down > 0 ? down : 0);
            uint32_t x = m << up >> by;
            uint32_t negative = a->minus[row][k] ^ b->minus[k][n];
            sums[0][n] += negative ? 0 : x;
            sums[1][n] += negative ? x : 0;
        }
    for (unsigned n = 0; n < 8; n++)
        if (top[n] > NONE / 2)
            c[n] = cut_to_float((int64_t)sums[0][n] - (int64_t)sums[1][n],
                                top[n] - KEPT);
}

/* The same where a value is not finite. */
static void add_infinite(const left *a, const right *b, unsigned row,
                         float c[8])
{
    for (unsigned n = 0; n < 8; n++) {
        double sum = c[n];
        for (unsigned k = 0; k < 16; k++)
            sum += (double)a->value[row][k] * (double)b->value[k][n];
        c[n] = (float)sum;
    }
}

INNERMOST static void finish_mma(void *const args[32])
{
    static thread_local left a;
    static thread_local right b;
    a.finite = b.finite = true;
    float c[16][8];
    EACH(i)
    {
        product *p = static_cast<product *>(args[i]);
        unsigned g = i / 4, t = i % 4 * 2;
        for (unsigned r = 0; r < 4; r++) {
            a.put(g + r % 2 * 8, t + r / 2 * 8, p->a[r] & 0xffffu);
            a.put(g + r % 2 * 8, t + r / 2 * 8 + 1, p->a[r] >> 16);
            c[g + r / 2 * 8][t + r % 2] = p->d[r];
        }
        for (unsigned r = 0; r < 2; r++) {
            b.put(t + r * 8, g, p->b[r] & 0xffffu);
            b.put(t + r * 8 + 1, g, p->b[r] >> 16);
        }
    }
    for (unsigned row = 0; row < 16; row++) {
        bool finite = a.finite && b.finite;
        for (unsigned n = 0; n < 8; n++)
            finite = finite && isfinite(c[row][n]);
        (finite ? add_row : add_infinite)(&a, &b, row, c[row]);
    }
    EACH(i)
    {
        product *p = static_cast<product *>(args[i]);
        for (unsigned r = 0; r < 4; r++)
            p->d[r] = c[i / 4 + r / 2 * 8][i % 4 * 2 + r % 2];
    }
}

void cu_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    product p = { d, a, b };
    emu_collective(0xffffffffu, "cu_mma_bf16", finish_mma, &p);
}

struct load {
    uint32_t *r;
    const void *row;
};

static const uint16_t *get_matrix_row(void *const args[32], unsigned matrix,
                                      unsigned row)
{
    return static_cast<const uint16_t *>(
        static_cast<load *>(args[matrix * 8 + row])->row);
}

static void finish_load(void *const args[32])
{
    EACH(i)
    {
        for (unsigned m = 0; m < 4; m++)
            memcpy(&static_cast<load *>(args[i])->r[m],
                   get_matrix_row(args, m, i / 4) + i % 4 * 2, 4);
    }
}

static void finish_load_t(void *const args[32])
{
    EACH(i)
    {
        for (unsigned m = 0; m < 4; m++)
            static_cast<load *>(args[i])->r[m] =
                (uint32_t)get_matrix_row(args, m, i % 4 * 2)[i / 4] |
                (uint32_t)get_matrix_row(args, m, i % 4 * 2 + 1)[i / 4] << 16;
    }
}

static void load_matrices(uint32_t r[4], const void *row, const char *name,
                          emu_together finish)
{
    if ((uintptr_t)row % 16u)
        emu_die("%s from %p, which must be a multiple of 16", name, row);
    load l = { r, row };
    emu_collective(0xffffffffu, name, finish, &l);
}

void cu_ldmatrix4(uint32_t r[4], const void *row)
{
    load_matrices(r, row, "cu_ldmatrix4", finish_load);
}

void cu_ldmatrix4_t(uint32_t r[4], const void *row)
{
    load_matrices(r, row, "cu_ldmatrix4_t", finish_load_t);
}
