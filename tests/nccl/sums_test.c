/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests sums that NCCL forms itself, and calls that return before they are
 * complete: which bits each option promises, and that streams keep the order.
 */
#include "tests/nccl/parts.h"

#include "tests/testing.h"

#include <math.h>

#include <xray/numerics.h>

#include "core/base/collective.h"
#include "plugins/device-cpu/device.h"

#define COUNT 50001u

nccl_config parts_config = { .sums = NCCL_SUMS_NCCL,
                             .scratch = 50000,
                             .library = FAKE_NCCL,
                             .driver = FAKE_NCCL };

static float rank_value(uint32_t rank, uint64_t i)
{
    uint64_t bits = xray_mix64(xray_mix64(7, rank), i);
    float unit = (float)(bits >> 40) * 0x1p-24f - 0.5f;
    return ldexpf(unit, (int)(bits & 15) - 8);
}

/* Adds as the fake NCCL does: around the ring from rank 1 on, each partial sum
 * rounded to `type`. */
static float sum_around_ring(const ranks_env *e, uint64_t i, int bf16, int each)
{
    float sum = 0.0f;
    for (uint32_t k = 0; k < e->size; k++) {
        float x = rank_value((k + 1) % e->size, i);
        if (bf16)
            x = cpu_from_bf16(cpu_to_bf16(x));
        sum = k ? sum + x : x;
        if (each)
            sum = cpu_from_bf16(cpu_to_bf16(sum));
    }
    return bf16 ? cpu_from_bf16(cpu_to_bf16(sum)) : sum;
}

static void check_fp32_sums(ranks_env *e)
{
    float *a = ranks_alloc(e, 4 * COUNT);
    float *b = ranks_alloc(e, 4 * COUNT * e->size);
    for (uint64_t i = 0; i < COUNT; i++)
        a[i] = rank_value(e->rank, i);
    for (uint64_t i = 0; i < COUNT * e->size; i++)
        b[i] = rank_value(e->rank, i);
    CHECK_OK(e, e->comm->all_reduce(e->world, NULL, a, COUNT, XRAY_F32));
    CHECK_OK(e, e->comm->reduce_scatter(e->world, NULL, b, b + COUNT * e->rank,
                                        COUNT, XRAY_F32));
    CHECK_OK(e, e->dev->sync(e->dev_self, NULL));
    for (uint64_t i = 0; i < COUNT; i++) {
        CHECK(e, a[i] == sum_around_ring(e, i, 0, 0));
        CHECK(e, b[COUNT * e->rank + i] ==
                     sum_around_ring(e, COUNT * e->rank + i, 0, 0));
    }
}

static void check_bf16_sums(ranks_env *e)
{
    int each = parts_config.reduce_bf16 == NCCL_BF16_NCCL;
    uint16_t *a = ranks_alloc(e, 2 * COUNT);
    uint16_t *b = ranks_alloc(e, 2 * COUNT * e->size);
    uint16_t *out = ranks_alloc(e, 2 * COUNT);
    for (uint64_t i = 0; i < COUNT; i++)
        a[i] = cpu_to_bf16(rank_value(e->rank, i));
    for (uint64_t i = 0; i < COUNT * e->size; i++)
        b[i] = cpu_to_bf16(rank_value(e->rank, i));
    CHECK_OK(e, e->comm->all_reduce(e->world, NULL, a, COUNT, XRAY_BF16));
    CHECK_OK(e,
             e->comm->reduce_scatter(e->world, NULL, b, out, COUNT, XRAY_BF16));
    CHECK_OK(e, e->dev->sync(e->dev_self, NULL));
    uint64_t differ = 0;
    for (uint64_t i = 0; i < COUNT; i++) {
        CHECK(e, cpu_from_bf16(a[i]) == sum_around_ring(e, i, 1, each));
        CHECK(e, cpu_from_bf16(out[i]) ==
                     sum_around_ring(e, COUNT * e->rank + i, 1, each));
        differ += sum_around_ring(e, i, 1, 0) != sum_around_ring(e, i, 1, 1);
    }
    CHECK(e, differ > COUNT / 20); /* the two options differ */
}

/* Many calls without waiting, alternately on two streams of the caller, and
 * more than may be in progress at once. */
static void ordered_stream(ranks_env *e)
{
    float *a = ranks_alloc(e, 400);
    uint32_t all[MOST_RANKS] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    xray_comm_group *again;
    xray_stream *mine;
    CHECK_OK(e, e->comm->group(e->comm_self, all, e->size, &again));
    CHECK_OK(e, e->dev->stream_create(e->dev_self, &mine));
    for (int i = 0; i < 100; i++)
        a[i] = 1.0f;
    float want = 1.0f;
    for (int i = 0; i < 600; i++) {
        xray_axpby half = { .header = XRAY_HEADER(xray_axpby),
                            .count = 100,
                            .y = a,
                            .beta = 1.0f / (float)e->size };
        CHECK_OK(e, e->comm->all_reduce(i % 3 ? e->world : again, mine, a, 100,
                                        XRAY_F32));
        CHECK_OK(e, e->dev->axpby(e->dev_self, mine, &half));
        want = want * (float)e->size * (1.0f / (float)e->size);
    }
    CHECK_OK(e, e->dev->sync(e->dev_self, mine));
    for (int i = 0; i < 100; i++)
        CHECK(e, a[i] == want);
    CHECK_OK(e, ranks_barrier(e, e->world));
    const xray_comm_trace *trace = &e->all->traces[e->rank].own;
    for (int i = 0; xr_trace_get32(&trace->state) && i < 1000; i++)
        ranks_sleep_ms(1); /* in which the watcher sees that all is done */
    CHECK(e, xr_trace_get32(&trace->state) == 0);
    e->dev->stream_destroy(e->dev_self, mine);
}

/* A single rank needs nothing from NCCL, which need not even be installed. */
static void check_single_rank(ranks_env *e)
{
    float *a = ranks_alloc(e, 400);
    float *b = ranks_alloc(e, 400);
    for (int i = 0; i < 100; i++)
        a[i] = (float)i;
    CHECK_OK(e, e->comm->all_reduce(e->world, NULL, a, 100, XRAY_F32));
    CHECK_OK(e, e->comm->reduce_scatter(e->world, NULL, a, b, 100, XRAY_F32));
    CHECK_OK(e, ranks_barrier(e, e->world));
    CHECK_OK(e, e->dev->sync(e->dev_self, NULL));
    for (int i = 0; i < 100; i++)
        CHECK(e, a[i] == (float)i && b[i] == (float)i);
    CHECK(e, fake_live() == 0);
}

const scenario ranks_scenarios[] = {
    { "fp32", check_fp32_sums, 60000 },
    { "bf16", check_bf16_sums, 60000 },
    { "bf16_nccl", check_bf16_sums, 60000 },
    { "ordered_stream", ordered_stream, 60000 },
    { "without", check_single_rank, 60000 },
    { NULL, NULL, 0 },
};

static void nccl_sums_keep_their_promises(void **state)
{
    (void)state;
    ranks_run("fp32", 3, NULL);
    ranks_run("bf16", 3, NULL);
    ranks_run("bf16", 4, NULL);
    ranks_run("bf16_nccl", 4, NULL);
}

static void streams_keep_the_order(void **state)
{
    (void)state;
    ranks_run("ordered_stream", 2, NULL);
    ranks_run_threads("ordered_stream", 2);
    ranks_run("without", 1, NULL);
}

int main(int argc, char **argv)
{
    if (argc == 6 && strcmp(argv[2], "bf16_nccl") == 0)
        parts_config.reduce_bf16 = NCCL_BF16_NCCL;
    if (argc == 6 && strcmp(argv[2], "without") == 0)
        parts_config.library = parts_config.driver = "/nowhere";
    ranks_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nccl_sums_keep_their_promises),
        cmocka_unit_test(streams_keep_the_order),
    };
    return cmocka_run_group_tests_name("nccl.sums", tests, NULL, NULL);
}
