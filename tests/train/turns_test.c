/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that ranks take the memory that the formulas of docs/zero3.md state,
 * that offloaded tags come back with the same bits, and that gathering works
 * without prefetch.
 */
#include <math.h>

#include "model/nn/layout.h"
#include "tests/growth.h"
#include "tests/train/ranks.h"

static ranks_run make_run(const char *json, uint32_t ranks, uint32_t stage)
{
    ranks_run run = ranks_of(json, ranks, stage);
    run.spec.outputs = XRAY_OUTPUT_LOGP | XRAY_OUTPUT_ENTROPY;
    run.steps = 2;
    run.cuts = 2;
    return run;
}

static void expect_same_run(const ranks_run *a, const ranks_run *b,
                            const char *what)
{
    ranks_same(a, b, what);
    assert_memory_equal(a->norm, b->norm, sizeof(a->norm));
    assert_memory_equal(a->logp, b->logp, sizeof(a->logp));
}

/* ---- offload between calls
 * -------------------------------------------------- */

/* Between all calls, even within a mini-batch, everything is offloaded and
 * comes back with the same bits. */
static void offload_between_calls_keeps_the_bits(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 2 * 5 * 2; k++) {
        uint32_t stage = k / 2 % 5 > 3 ? 3 : k / 2 % 5;
        char what[96];
        ranks_run run =
            make_run(k / 10 ? rig_tiny_tied : rig_tiny, 1 + k % 2, stage);
        (void)snprintf(what, sizeof(what), "turns, %u ranks, stage %u%s",
                       run.ranks, stage, k / 2 % 5 > 3 ? ", offloaded" : "");
        run.spec.offload_param = run.spec.offload_optimizer = k / 2 % 5 > 3;
        run.twice = 1;
        run.score = 1;
        run.shm = run.ranks > 1 && stage == 3;
        ranks_run turns = run;
        turns.turns = 1;
        ranks_go(&run);
        ranks_go(&turns);
        expect_same_run(&run, &turns, what);
        ranks_free(&run);
        ranks_free(&turns);
    }
}

/* A call that needs an offloaded tag names it. */
static void calls_name_what_is_offloaded(void **state)
{
    (void)state;
    rig_device device = rig_device_open(1);
    rig_spec spec = { .outputs = XRAY_OUTPUT_LOGP };
    rig r;
    rows batch;
    float logp[64];
    xray_step_result step = { .header = XRAY_HEADER(xray_step_result) };
    xray_outputs out = { .header = XRAY_HEADER(xray_outputs), .logp = logp };
    static const int32_t ids[] = { 1, 5, 7, 2 };
    rows_one(&batch, ids, 4);
    assert_int_equal(rig_open(&device, &spec, &r), XRAY_OK);
    assert_int_equal(r.ops->offload(r.self, XRAY_TAG_KV), XRAY_E_UNSUPPORTED);
    assert_int_equal(r.ops->offload(r.self, XRAY_TAG_ACTIVATIONS), XRAY_OK);
    assert_int_equal(r.ops->offload(r.self, XRAY_TAG_ACTIVATIONS), XRAY_OK);
    assert_int_equal(
        forward_one(r.ops, r.self, &batch.batch, XRAY_OUTPUT_LOGP, &out),
        XRAY_E_STATE);
    assert_non_null(strstr(rig_error(), "activations are offloaded"));
    assert_int_equal(r.ops->onload(r.self, XRAY_TAG_ACTIVATIONS), XRAY_OK);
    assert_int_equal(
        forward_one(r.ops, r.self, &batch.batch, XRAY_OUTPUT_LOGP, &out),
        XRAY_OK);
    assert_int_equal(r.ops->offload(r.self, XRAY_TAG_OPTIMIZER), XRAY_OK);
    assert_int_equal(r.ops->optimizer_step(r.self, 1e-3, 1, &step),
                     XRAY_E_STATE);
    assert_non_null(strstr(rig_error(), "moments are offloaded"));
    assert_int_equal(r.ops->offload(r.self, XRAY_TAG_GRADS), XRAY_OK);
    assert_null(rig_debug(&r)->gradients(r.self));
    assert_int_equal(r.ops->discard(r.self), XRAY_E_STATE);
    /* A lease keeps the weights on the device. */
    const xray_weights *weights = r.ops->weights(r.self);
    assert_int_equal(weights->lease(weights->owner), XRAY_OK);
    assert_int_equal(r.ops->offload(r.self, XRAY_TAG_WEIGHTS), XRAY_E_STATE);
    weights->release(weights->owner);
    assert_int_equal(r.ops->offload(r.self, XRAY_TAG_WEIGHTS), XRAY_OK);
    assert_int_equal(r.ops->save(r.self, "/nowhere"), XRAY_E_STATE);
    assert_int_equal(r.ops->export_begin(r.self), XRAY_E_STATE);
    r.ops->export_end(r.self);
    rig_close(&r); /* while everything is offloaded */
    rig_device_close(&device);
}

/* A trainer moves nothing off a device that cannot take memory back. */
static void a_device_may_keep_its_memory(void **state)
{
    (void)state;
    rig_device device = rig_device_open(1);
    const xray_device_ops *all = device.ops;
    xray_device_ops part = *all;
    rig_spec spec = { .outputs = XRAY_OUTPUT_LOGP };
    rig r;
    device.ops = &part;
    assert_int_equal(rig_open(&device, &spec, &r), XRAY_OK);
    for (int i = 0; i < LACK_EVICTIONS; i++) {
        part = *all;
        LACK_EVICTION(part, i);
        assert_int_equal(r.ops->offload(r.self, XRAY_TAG_GRADS),
                         XRAY_E_UNSUPPORTED);
        assert_non_null(strstr(rig_error(), "the device cannot evict memory"));
    }
    part = *all;
    assert_int_equal(r.ops->offload(r.self, XRAY_TAG_GRADS), XRAY_OK);
    rig_close(&r);
    rig_device_close(&device);
}

/* ---- prefetch ----------------------------------------------------------- */

static void prefetch_changes_no_bits(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 4; k++) {
        ranks_run run =
            make_run(k % 2 ? ranks_deep : rig_tiny_tied, k < 2 ? 2 : 3, 3);
        run.spec.checkpointing = k == 1;
        run.spec.from_layer = k == 3 ? 2 : 0;
        run.spec.offload_param = k == 2;
        run.score = 1;
        ranks_run off = run;
        off.spec.no_prefetch = 1;
        ranks_go(&run);
        ranks_go(&off);
        expect_same_run(&run, &off, "without prefetch");
        assert_memory_equal(run.received, off.received, sizeof(run.received));
        /* With prefetch the second part is gathered together with the first,
         * otherwise it is not. */
        assert_true(off.first_part[0] > 0 &&
                    off.first_part[0] < run.first_part[0]);
        ranks_free(&run);
        ranks_free(&off);
    }
}

/* ---- formulas ----------------------------------------------------------- */

typedef struct sizes {
    uint64_t all;       /* N: number of elements with padding */
    uint64_t block;     /* B */
    uint64_t outer;     /* E: the larger of embedding and head */
    uint64_t packed[2]; /* bytes: of all matrices, of those in slots */
} sizes;

static uint64_t packed_bytes_of(const xm_layout *layout, uint32_t bucket)
{
    uint64_t bytes = 0;
    for (uint32_t m = 0; m < layout->matrix_count; m++) {
        const xm_matrix *x = &layout->matrices[m];
        uint64_t high = (x->rows + 15) / 16 * 16;
        uint64_t wide = (x->cols + 15) / 16 * 16;
        if (x->bucket == bucket)
            bytes += 4 * (high * x->cols + wide * x->rows);
    }
    return bytes;
}

static sizes layout_sizes(const char *json, uint32_t ranks)
{
    xr_err err = { "" };
    xm_config config;
    xm_layout *layout = NULL;
    sizes s = { 0 };
    assert_int_equal(xm_config_parse(json, "test", &err, &config), XRAY_OK);
    assert_int_equal(xm_layout_create(&config, 0, &err, &layout), XRAY_OK);
    layout->ranks = ranks;
    uint32_t last = layout->bucket_count - 1;
    for (uint32_t b = 0; b <= last; b++) {
        s.all += xm_bucket_capacity(layout, b);
        s.packed[0] += packed_bytes_of(layout, b);
    }
    s.block = xm_bucket_capacity(layout, 1);
    s.outer = xm_bucket_capacity(layout, 0) > xm_bucket_capacity(layout, last)
                  ? xm_bucket_capacity(layout, 0)
                  : xm_bucket_capacity(layout, last);
    s.packed[1] =
        2 * packed_bytes_of(layout, 1) + packed_bytes_of(layout, last);
    xm_layout_destroy(layout);
    return s;
}

static void expect_within_one_percent(uint64_t high, uint64_t said,
                                      const char *what, const ranks_run *run)
{
    double a = (double)high;
    double b = (double)said;
    if (!(fabs(a - b) <= 0.01 * b))
        fail_msg("%u ranks, stage %u, %s: %.0f bytes, the formula says %.0f",
                 run->ranks, run->spec.stage_1 - 1, what, a, b);
}

/* The table of docs/zero3.md. It is the usual table of static bytes for fp32
 * weights that are their own master copy: 4, 4 and 8 bytes per element instead
 * of 2, g and 12. */
static void memory_follows_the_documented_formulas(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 8; k++) {
        uint32_t stage = k % 4;
        uint32_t ranks = k < 4 ? 2 : 4;
        ranks_run run = make_run(ranks_deep, ranks, stage);
        sizes s = layout_sizes(ranks_deep, ranks);
        uint64_t slots = 4 * (2 * s.block + s.outer);
        uint64_t larger = s.block > s.outer ? s.block : s.outer;
        run.steps = 1;
        ranks_go(&run);
        for (uint32_t r = 0; r < ranks; r++) {
            const uint64_t *high = run.memory[r].high;
            expect_within_one_percent(high[XRAY_TAG_WEIGHTS],
                                      stage < 3 ? 4 * s.all + s.packed[0]
                                                : 4 * s.all / ranks + slots +
                                                      s.packed[1],
                                      "weights", &run);
            expect_within_one_percent(high[XRAY_TAG_GRADS],
                                      stage < 2 ? 4 * s.all
                                                : 4 * s.all / ranks + slots +
                                                      4 * larger / ranks,
                                      "gradients", &run);
            expect_within_one_percent(high[XRAY_TAG_OPTIMIZER],
                                      8 * s.all / (stage ? ranks : 1),
                                      "moments", &run);
        }
        ranks_free(&run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(offload_between_calls_keeps_the_bits),
        cmocka_unit_test(calls_name_what_is_offloaded),
        cmocka_unit_test(a_device_may_keep_its_memory),
        cmocka_unit_test(prefetch_changes_no_bits),
        cmocka_unit_test(memory_follows_the_documented_formulas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
