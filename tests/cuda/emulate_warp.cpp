/* SPDX-License-Identifier: Apache-2.0
 *
 * The warp-wide operations of the emulator but products: shuffles, votes,
 * reductions and loads of matrices.
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

/* ---- matrices ------------------------------------------------------------ */

static emu_load *get_load(void *const args[32], unsigned lane)
{
    return static_cast<emu_load *>(args[lane]);
}

void emu_load_matrices(void *const args[32])
{
    EACH(i)
    {
        for (unsigned m = 0; m < 4; m++)
            memcpy(&get_load(args, i)->result[m],
                   get_load(args, m * 8 + i / 4)->row + i % 4 * 2, 4);
    }
}

void emu_load_transposed(void *const args[32])
{
    EACH(i)
    {
        for (unsigned m = 0; m < 4; m++) {
            unsigned row = m * 8 + i % 4 * 2;
            get_load(args, i)->result[m] =
                (uint32_t)get_load(args, row)->row[i / 4] |
                (uint32_t)get_load(args, row + 1)->row[i / 4] << 16;
        }
    }
}
