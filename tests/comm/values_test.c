/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the results of every call with plain loops: any size, any offset,
 * both element types, in place, in parts of the world, among processes and
 * threads; and the same bits however the ranks are timed.
 */
#include "tests/comm/ranks.h"

#include "tests/comm/pairs.h"

#include <math.h>

#include <xray/numerics.h>

#include "core/base/hash.h"
#include "plugins/device-cpu/device.h"

#define GUARD 8 /* elements after a buffer that must not change */
#define GUARD_BYTE 0x5a

static const uint64_t sizes[] = { 0, 1, 15, 16, 33, 4099, 70001, 1000003 };
#define SIZES (sizeof(sizes) / sizeof(*sizes))

static uint64_t count_of_size(const ranks_env *e, size_t i)
{
    /* The largest size is for one number of ranks, not for each and each
     * variant; it is more than any piece into which a call is cut. */
    if (sizes[i] < 100000)
        return sizes[i];
    if (e->brief)
        return e->size == 2 ? 300001 : 17;
    return e->size == 2 ? sizes[i] : 200001;
}

/* Element i of a rank; the magnitudes differ, so that the order of a sum
 * shows. */
REFERENCE static float rank_value(uint32_t rank, uint64_t i, uint64_t seed)
{
    uint64_t bits = xray_mix64(seed + rank, i);
    float unit = (float)(bits >> 40) * 0x1p-24f - 0.5f;
    return unit * 0x1p-8f * (float)(1u << (bits & 15));
}

static uint64_t element_width(uint32_t dtype)
{
    return dtype == XRAY_F32 ? 4 : 2;
}

REFERENCE_OF_THREADS static void set_element(void *p, uint64_t i,
                                             uint32_t dtype, float v)
{
    if (dtype == XRAY_F32)
        ((float *)p)[i] = v;
    else
        ((uint16_t *)p)[i] = cpu_to_bf16(v);
}

REFERENCE_OF_THREADS static float get_element(const void *p, uint64_t i,
                                              uint32_t dtype)
{
    if (dtype == XRAY_F32)
        return ((const float *)p)[i];
    uint32_t u = (uint32_t)((const uint16_t *)p)[i] << 16;
    float v;
    memcpy(&v, &u, sizeof(v));
    return v;
}

/* Rounds a finite value to the nearest bf16, to even where two are as near. */
REFERENCE static float round_to_bf16(float v)
{
    uint32_t u;
    memcpy(&u, &v, sizeof(u));
    u = (u + 0x7fffu + (u >> 16 & 1u)) & 0xffff0000u;
    memcpy(&v, &u, sizeof(v));
    return v;
}

/* The value of a rank at i, rounded to the element type. */
REFERENCE static float held_value(uint32_t rank, uint64_t i, uint32_t dtype,
                                  uint64_t seed)
{
    float v = rank_value(rank, i, seed);
    return dtype == XRAY_F32 ? v : round_to_bf16(v);
}

REFERENCE_OF_THREADS static void fill_buffer(void *p, uint64_t count,
                                             uint32_t rank, uint32_t dtype,
                                             uint64_t seed)
{
    for (uint64_t i = 0; i < count; i++)
        set_element(p, i, dtype, rank_value(rank, i, seed));
}

/* Element i of a sum: added in fp32 and rounded once; it must also be within
 * the bound of a sum in double. */
REFERENCE static void check_sum(ranks_env *e, float got, uint64_t i,
                                uint32_t dtype, uint64_t seed)
{
    float v[MOST_RANKS] = { 0 };
    double exact = 0;
    double size = 0;
    for (uint32_t r = 0; r < e->size; r++) {
        v[r] = held_value(r, i, dtype, seed);
        exact += v[r];
        size += fabs((double)v[r]);
    }
    double eps = dtype == XRAY_F32 ? 0x1p-24 : 0x1p-8;
    float want = add_in_pairs(v, e->size);
    if (dtype == XRAY_BF16)
        want = round_to_bf16(want);
    CHECK(e, memcmp(&got, &want, sizeof(got)) == 0);
    CHECK(e, fabs(got - exact) <= e->size * eps * size);
}

/* Element i of a maximum: that of one of the ranks, none of which is larger. */
REFERENCE static void check_largest(ranks_env *e, float got, uint64_t i,
                                    uint32_t dtype, uint64_t seed)
{
    float want = held_value(0, i, dtype, seed);
    for (uint32_t r = 1; r < e->size; r++) {
        float other = held_value(r, i, dtype, seed);
        want = other > want ? other : want;
    }
    CHECK(e, got == want);
}

static void *alloc_buffer(ranks_env *e, uint64_t count, uint32_t dtype,
                          uint64_t offset, void **out_block)
{
    uint64_t bytes = (count + offset + GUARD) * element_width(dtype);
    *out_block = ranks_alloc(e, bytes);
    memset(*out_block, GUARD_BYTE, bytes);
    return (char *)*out_block + offset * element_width(dtype);
}

/* Nothing was written before or after the buffer. */
static void check_guard(ranks_env *e, void *block, const void *p,
                        uint64_t count, uint32_t dtype)
{
    const unsigned char *end =
        (const unsigned char *)p + count * element_width(dtype);
    for (const unsigned char *b = block; b < (const unsigned char *)p; b++)
        CHECK(e, *b == GUARD_BYTE);
    for (uint64_t i = 0; i < GUARD * element_width(dtype); i++)
        CHECK(e, end[i] == GUARD_BYTE);
    e->dev->free(e->dev_self, block);
}

REFERENCE_OF_THREADS static void check_all_reduce(ranks_env *e, uint64_t count,
                                                  uint32_t dtype,
                                                  uint64_t offset, int largest)
{
    void *block;
    void *buf = alloc_buffer(e, count, dtype, offset, &block);
    fill_buffer(buf, count, e->rank, dtype, count);
    CHECK_OK(e, (largest ? e->comm->all_reduce_max : e->comm->all_reduce)(
                    e->world, NULL, buf, count, dtype));
    for (uint64_t i = 0; i < count; i++)
        (largest ? check_largest : check_sum)(e, get_element(buf, i, dtype), i,
                                              dtype, count);
    check_guard(e, block, buf, count, dtype);
}

REFERENCE_OF_THREADS static void
check_reduce_scatter(ranks_env *e, uint64_t count, uint32_t dtype,
                     uint64_t offset, int in_place)
{
    void *blocks[2];
    uint64_t first = count * e->rank;
    void *in = alloc_buffer(e, count * e->size, dtype, offset, &blocks[0]);
    void *out = alloc_buffer(e, count, dtype, (offset * 3) % 7, &blocks[1]);
    fill_buffer(in, count * e->size, e->rank, dtype, count);
    void *to = in_place ? (char *)in + first * element_width(dtype) : out;
    CHECK_OK(e, e->comm->reduce_scatter(e->world, NULL, in, to, count, dtype));
    for (uint64_t i = 0; i < count; i++)
        check_sum(e, get_element(to, i, dtype), first + i, dtype, count);
    for (uint64_t i = 0; i < count * e->size; i++) {
        float mine = held_value(e->rank, i, dtype, count);
        if (!in_place || i < first || i >= first + count)
            CHECK(e,
                  memcmp(&mine, &(float){ get_element(in, i, dtype) }, 4) == 0);
    }
    check_guard(e, blocks[0], in, count * e->size, dtype);
    check_guard(e, blocks[1], out, in_place ? 0 : count, dtype);
}

REFERENCE_OF_THREADS static void check_all_gather(ranks_env *e, uint64_t count,
                                                  uint32_t dtype,
                                                  uint64_t offset, int in_place)
{
    void *blocks[2];
    void *out = alloc_buffer(e, count * e->size, dtype, offset, &blocks[0]);
    void *own = alloc_buffer(e, count, dtype, (offset * 3) % 7, &blocks[1]);
    void *in =
        in_place ? (char *)out + count * e->rank * element_width(dtype) : own;
    fill_buffer(in, count, e->rank, dtype, count);
    CHECK_OK(e, e->comm->all_gather(e->world, NULL, in, out, count, dtype));
    for (uint32_t r = 0; r < e->size; r++)
        for (uint64_t i = 0; i < count; i++) {
            float want = held_value(r, i, dtype, count);
            CHECK(e, get_element(out, r * count + i, dtype) == want);
        }
    check_guard(e, blocks[0], out, count * e->size, dtype);
    check_guard(e, blocks[1], own, in_place ? 0 : count, dtype);
}

REFERENCE_OF_THREADS static void check_broadcast(ranks_env *e, uint64_t count,
                                                 uint64_t offset, uint32_t root)
{
    void *block;
    uint64_t bytes = 2 * count + (count > 0);
    char *p = ranks_alloc(e, bytes + offset + GUARD);
    block = p;
    memset(p, GUARD_BYTE, bytes + offset + GUARD);
    p += offset;
    for (uint64_t i = 0; i < bytes; i++)
        p[i] = (char)xray_mix64(e->rank, i);
    CHECK_OK(e, e->comm->broadcast(e->world, NULL, p, bytes, root));
    for (uint64_t i = 0; i < bytes; i++)
        CHECK(e, p[i] == (char)xray_mix64(root, i));
    for (uint64_t i = 0; i < GUARD; i++)
        CHECK(e, p[bytes + i] == GUARD_BYTE);
    e->dev->free(e->dev_self, block);
}

/* Calls whose input or output is missing begin nothing. */
static void check_missing_pointers(ranks_env *e)
{
    float *p = ranks_alloc(e, 64 * sizeof(*p));
    const xray_comm_ops *c = e->comm;
    CHECK(e, c->all_reduce(e->world, NULL, NULL, 4, XRAY_F32) == XRAY_E_ARG);
    CHECK(e, c->broadcast(e->world, NULL, NULL, 4, 0) == XRAY_E_ARG);
    for (int i = 0; i < 2; i++) {
        float *in = i ? p : NULL;
        float *out = i ? NULL : p;
        CHECK(e, c->all_gather(e->world, NULL, in, out, 1, XRAY_F32) ==
                     XRAY_E_ARG);
        CHECK(e, c->reduce_scatter(e->world, NULL, in, out, 1, XRAY_F32) ==
                     XRAY_E_ARG);
    }
    CHECK_OK(e, ranks_barrier(e, e->world));
}

/* Calls of no bytes touch no memory, wherever it is. */
static void check_empty_calls(ranks_env *e)
{
    float own[2] = { 1, 2 }; /* no device's */
    const xray_comm_ops *c = e->comm;
    for (int i = 0; i < 2; i++) {
        float *p = i ? own : NULL;
        CHECK_OK(e, c->all_reduce(e->world, NULL, p, 0, XRAY_F32));
        CHECK_OK(e, c->reduce_scatter(e->world, NULL, p, p, 0, XRAY_BF16));
        CHECK_OK(e, c->all_gather(e->world, NULL, p, p, 0, XRAY_F32));
        CHECK_OK(e, c->broadcast(e->world, NULL, p, 0, e->size - 1));
        CHECK_OK(e, c->all_to_all(e->world, NULL, p, p, 0, XRAY_F32));
    }
    CHECK(e, own[0] == 1 && own[1] == 2);
    CHECK_OK(e, ranks_barrier(e, e->world));
}

static void check_all_values(ranks_env *e)
{
    check_missing_pointers(e);
    check_empty_calls(e);
    static const uint32_t types[] = { XRAY_F32, XRAY_BF16 };
    for (size_t i = 0; i < SIZES; i++) {
        uint64_t count = count_of_size(e, i);
        for (size_t t = 0; t < 2; t++) {
            uint64_t offset = (i * 5 + t + e->rank) % 17;
            check_all_reduce(e, count, types[t], offset, 0);
            check_all_reduce(e, count, types[t], 0, 0);
            check_all_reduce(e, count, types[t], offset, 1);
            check_reduce_scatter(e, count, types[t], offset, 0);
            check_reduce_scatter(e, count, types[t], 0, 1);
            check_all_gather(e, count, types[t], offset, 0);
            check_all_gather(e, count, types[t], 0, 1);
        }
        for (uint32_t root = 0; root < e->size; root++)
            check_broadcast(e, count, i + e->rank, root);
        CHECK_OK(e, ranks_barrier(e, e->world));
    }
    CHECK(e, e->all->traces[e->rank].own.state == 0);
    CHECK(e, e->size == 1 ||
                 e->all->traces[e->rank].own.call == XRAY_COMM_ALL_REDUCE);
    CHECK(e, e->all->traces[e->rank].rest[0] == 0);
    CHECK(e, e->comm->serves(e->serves) && !e->comm->serves(e->refuses));
}

/* Numbers of ranks whose trees have all shapes. */
static void check_sums(ranks_env *e)
{
    static const uint64_t counts[] = { 1, 31, 33, 4099, 40001 };
    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++)
        for (uint32_t dtype = XRAY_F32; dtype <= XRAY_BF16; dtype++) {
            check_all_reduce(e, counts[i], dtype, i, 0);
            check_all_reduce(e, counts[i], dtype, i, 1);
            check_reduce_scatter(e, counts[i], dtype, i, 0);
            check_reduce_scatter(e, counts[i], dtype, 0, 1);
        }
    CHECK_OK(e, ranks_barrier(e, e->world));
}

/* The sum over all ranks of sums over neighbours is the sum over all: here over
 * pairs, and over fours where there are eight. */
static void check_sums_of_segments(ranks_env *e)
{
    enum { COUNT = 5003 };
    float *all = ranks_alloc(e, COUNT * sizeof(float));
    float *parts = ranks_alloc(e, COUNT * sizeof(float));
    fill_buffer(all, COUNT, e->rank, XRAY_F32, 8);
    CHECK_OK(e, e->comm->all_reduce(e->world, NULL, all, COUNT, XRAY_F32));
    for (uint32_t width = 2; e->size % width == 0; width *= 2) {
        uint32_t near[MOST_RANKS];
        uint32_t apart[MOST_RANKS];
        xray_comm_group *inner;
        xray_comm_group *outer;
        for (uint32_t r = 0; r < width; r++)
            near[r] = e->rank / width * width + r;
        for (uint32_t r = 0; r < e->size / width; r++)
            apart[r] = e->rank % width + r * width;
        CHECK_OK(e, e->comm->group(e->comm_self, near, width, &inner));
        CHECK_OK(e,
                 e->comm->group(e->comm_self, apart, e->size / width, &outer));
        fill_buffer(parts, COUNT, e->rank, XRAY_F32, 8);
        CHECK_OK(e, e->comm->all_reduce(inner, NULL, parts, COUNT, XRAY_F32));
        CHECK_OK(e, e->comm->all_reduce(outer, NULL, parts, COUNT, XRAY_F32));
        CHECK_OK(e, e->dev->sync(e->dev_self, NULL));
        CHECK(e, memcmp(all, parts, COUNT * sizeof(float)) == 0);
    }
    CHECK_OK(e, ranks_barrier(e, e->world));
}

/* Calls that every comm cuts, whatever memory they go through: some of their
 * pieces are whole and the last ones are not. */
static void check_pieces(ranks_env *e)
{
    enum { WHOLE = 1100003, PART = 600011 };
    check_all_reduce(e, WHOLE, XRAY_F32, 0, 0);
    check_reduce_scatter(e, PART, XRAY_F32, 1, 0);
    check_all_gather(e, PART, XRAY_F32, 1, 0);
    check_broadcast(e, 2 * WHOLE, 1, 1);
    CHECK_OK(e, ranks_barrier(e, e->world));
}

/* Sums of special values. */
static void check_special_values(ranks_env *e)
{
    uint16_t *b = ranks_alloc(e, 128);
    float *f = ranks_alloc(e, 256);
    for (uint32_t i = 0; i < 40; i++) {
        b[i] = i % 3 == 0   ? (e->rank ? 0xff80 : 0x7f80) /* inf - inf */
               : i % 3 == 1 ? 0x7fc1                      /* NaN */
                            : 0x0001;                     /* subnormal */
        f[i] = e->rank ? -INFINITY : INFINITY;
    }
    CHECK_OK(e, e->comm->all_reduce(e->world, NULL, b, 40, XRAY_BF16));
    CHECK_OK(e, e->comm->all_reduce(e->world, NULL, f, 40, XRAY_F32));
    for (uint32_t i = 0; i < 40; i++) {
        if (i % 3 == 2)
            CHECK(e, b[i] == e->size);
        else
            CHECK(e, (b[i] & 0x7fff) > 0x7f80);
        CHECK(e, isnan(f[i]));
    }
}

/* A maximum ignores the NaN of a rank, and only where all have one is it
 * one. */
static void check_special_maxima(ranks_env *e)
{
    uint16_t *b = ranks_alloc(e, 128);
    float *f = ranks_alloc(e, 256);
    for (uint32_t i = 0; i < 40; i++) {
        f[i] = i % e->size == e->rank ? NAN : (float)e->rank - 1000.0f;
        if (i % 5 == 0)
            f[i] = NAN;
        else if (i % 5 == 1)
            f[i] = e->rank == i % e->size ? INFINITY : -INFINITY;
        else if (i % 5 == 2)
            f[i] = -INFINITY;
        b[i] = cpu_to_bf16(f[i]);
    }
    CHECK_OK(e, e->comm->all_reduce_max(e->world, NULL, b, 40, XRAY_BF16));
    CHECK_OK(e, e->comm->all_reduce_max(e->world, NULL, f, 40, XRAY_F32));
    CHECK_OK(e, e->dev->sync(e->dev_self, NULL));
    for (uint32_t i = 0; i < 40; i++) {
        uint32_t last = i % e->size == e->size - 1 ? e->size - 2 : e->size - 1;
        float want = i % 5 == 1   ? INFINITY
                     : i % 5 == 2 ? -INFINITY
                                  : (float)last - 1000.0f;
        CHECK(e, i % 5 == 0 ? isnan(f[i]) : f[i] == want);
        if (i % 5 == 0)
            CHECK(e, (b[i] & 0x7fff) > 0x7f80);
        else
            CHECK(e, b[i] == cpu_to_bf16(want));
    }
}

/* A sum is rounded once: 1 + 3 * 2^-9 would be lost if each partial sum were
 * rounded, and rounds up halfway at the end. */
static void check_single_rounding(ranks_env *e)
{
    uint16_t *b = ranks_alloc(e, 128);
    for (uint32_t i = 0; i < 48; i++)
        b[i] = cpu_to_bf16(e->rank == 0 ? 1.0f : 0x1p-9f);
    CHECK_OK(e, e->comm->all_reduce(e->world, NULL, b, 48, XRAY_BF16));
    float want = e->size == 4 ? 1.0f + 0x1p-7f : 1.0f;
    for (uint32_t i = 0; i < 48; i++)
        CHECK(e, cpu_from_bf16(b[i]) == want);
}

/* The bits are the same on every rank and in each of many repetitions, however
 * the ranks are timed. */
static void check_repeated_bits(ranks_env *e)
{
    enum { COUNT = 150001 };
    float *in = ranks_alloc(e, COUNT * sizeof(float));
    float *out = ranks_alloc(e, COUNT * sizeof(float));
    fill_buffer(in, COUNT, e->rank, XRAY_F32, 3);
    uint64_t first = 0;
    for (uint64_t turn = 0; turn < (e->brief ? 12 : 50); turn++) {
        memcpy(out, in, COUNT * sizeof(float));
        uint64_t delay = xray_mix64(turn, e->rank) % 7;
        if (delay < 4)
            ranks_sleep_ms(delay);
        CHECK_OK(e, e->comm->all_reduce(e->world, NULL, out, COUNT, XRAY_F32));
        uint64_t sum = xr_hash64(out, COUNT * sizeof(float), 0);
        first = turn ? first : sum;
        CHECK(e, sum == first);
    }
    atomic_store(&e->all->notes[e->rank][0], first);
    ranks_meet(e);
    for (uint32_t r = 0; r < e->size; r++)
        CHECK(e, atomic_load(&e->all->notes[r][0]) == first);
}

/* The sum of the ranks' numbers in a group, at an index that identifies the
 * group. */
static void sum_ranks(ranks_env *e, xray_comm_group *g, float want)
{
    float *buf = ranks_alloc(e, 400);
    for (int i = 0; i < 100; i++)
        buf[i] = (float)(e->rank + 1);
    CHECK_OK(e, e->comm->all_reduce(g, NULL, buf, 100, XRAY_F32));
    for (int i = 0; i < 100; i++)
        CHECK(e, buf[i] == want);
    e->dev->free(e->dev_self, buf);
}

/* Even and odd ranks work side by side; the same list of ranks twice makes two
 * groups. */
static void check_groups(ranks_env *e)
{
    const uint32_t half[2] = { e->rank % 2, e->rank % 2 + 2 };
    uint32_t given[2] = { half[0], half[1] };
    uint32_t mixed[3] = { 0, 1, 3 };
    xray_comm_group *mine;
    xray_comm_group *again;
    xray_comm_group *three = NULL;
    CHECK_OK(e, e->comm->group(e->comm_self, given, 2, &mine));
    if (e->rank != 2)
        CHECK_OK(e, e->comm->group(e->comm_self, mixed, 3, &three));
    CHECK_OK(e, e->comm->group(e->comm_self, given, 2, &again));
    memset(given, 0xff, sizeof(given)); /* no group reads its list again */
    memset(mixed, 0xff, sizeof(mixed));
    for (int turn = 0; turn < 20; turn++) {
        sum_ranks(e, mine, e->rank % 2 ? 6.0f : 4.0f);
        if (three)
            sum_ranks(e, three, 7.0f);
        sum_ranks(e, e->world, 10.0f);
        sum_ranks(e, again, e->rank % 2 ? 6.0f : 4.0f);
    }
    /* Descending, a rank twice, a rank outside the world, a list without this
     * rank. */
    uint32_t wrong[4][2] = { { 3, 1 },
                             { e->rank, e->rank },
                             { e->rank, 4 },
                             { half[0] ^ 1, half[1] ^ 1 } };
    for (int i = 0; i < 4; i++)
        CHECK(e,
              e->comm->group(e->comm_self, wrong[i], 2, &again) == XRAY_E_ARG);
    CHECK(e, e->comm->group(e->comm_self, half, 0, &again) == XRAY_E_ARG);
    CHECK(e, e->comm->group(e->comm_self, NULL, 2, &again) == XRAY_E_ARG);
}

const scenario ranks_scenarios[] = {
    { "values", check_all_values, 60000 },
    { "pieces", check_pieces, 60000 },
    { "repeat", check_repeated_bits, 60000 },
    { "specials", check_special_values, 60000 },
    { "maxima", check_special_maxima, 60000 },
    { "rounding", check_single_rounding, 60000 },
    { "groups", check_groups, 60000 },
    { "sums", check_sums, 60000 },
    { "segments", check_sums_of_segments, 60000 },
    { NULL, NULL, 0 },
};

static void one_rank_gets_its_own_values(void **state)
{
    (void)state;
    ranks_run("values", 1, NULL);
}

static void two_ranks_get_exact_values(void **state)
{
    (void)state;
    ranks_run("values", 2, NULL);
    ranks_run("pieces", 2, NULL);
    ranks_run("repeat", 2, NULL);
    ranks_run("specials", 2, NULL);
    ranks_run("maxima", 2, NULL);
    ranks_run("rounding", 2, NULL);
}

static void three_ranks_get_exact_values(void **state)
{
    (void)state;
    ranks_run("values", 3, NULL);
    ranks_run("repeat", 3, NULL);
    ranks_run("maxima", 3, NULL);
    ranks_run("rounding", 3, NULL);
}

static void four_ranks_get_exact_values(void **state)
{
    (void)state;
    ranks_run("values", 4, NULL);
    ranks_run("repeat", 4, NULL);
    ranks_run("rounding", 4, NULL);
    ranks_run("groups", 4, NULL);
}

static void sums_are_balanced_trees(void **state)
{
    (void)state;
    for (uint32_t size = 5; size <= 8; size++)
        ranks_run("sums", size, NULL);
    ranks_run("segments", 4, NULL);
    ranks_run("segments", 6, NULL);
    ranks_run("segments", 8, NULL);
}

static void values_are_the_same_among_threads(void **state)
{
    (void)state;
    ranks_run_threads("repeat", 3);
    ranks_run_threads("groups", 4);
    ranks_run_threads("specials", 2);
}

int main(int argc, char **argv)
{
    ranks_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_the_same_among_threads),
        cmocka_unit_test(one_rank_gets_its_own_values),
        cmocka_unit_test(two_ranks_get_exact_values),
        cmocka_unit_test(three_ranks_get_exact_values),
        cmocka_unit_test(four_ranks_get_exact_values),
        cmocka_unit_test(sums_are_balanced_trees),
    };
    const struct CMUnitTest threads[] = { tests[0], tests[1] };
    return SEES_THREADS_ONLY
               ? cmocka_run_group_tests_name("comm.values", threads, NULL, NULL)
               : cmocka_run_group_tests_name("comm.values", tests, NULL, NULL);
}
