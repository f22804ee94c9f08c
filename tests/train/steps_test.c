/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that updates have the same bits however the work is divided, and that
 * an update refuses what it must.
 */
#include <math.h>

#include "tests/train/rig.h"

/* Performs `steps` updates on the same few rows, divided into `cuts`
 * micro-batches. */
static void train_steps(const rig *r, uint32_t steps, uint32_t cuts)
{
    rows batch;
    for (uint32_t i = 0; i < steps; i++) {
        rows_loss ctx = { .entropy_weight = 0.02, .value_weight = 0.1 };
        xray_step_result result = { .header = XRAY_HEADER(xray_step_result) };
        rows_draw(&batch, 17, 24, 37, 100 + i);
        batch.batch.temperature = batch.temperature;
        rows_cut(&batch, cuts);
        xray_loss loss = rows_loss_of(&ctx, &batch);
        assert_int_equal(
            r->ops->forward_backward(r->self, batch.pointers, cuts, &loss),
            XRAY_OK);
        assert_int_equal(ctx.calls, cuts);
        assert_int_equal(r->ops->optimizer_step(r->self, 1e-2, 0.5, &result),
                         XRAY_OK);
        assert_int_equal(result.skipped, 0);
        assert_null(result.bad_tensor);
        assert_int_equal(result.version, i + 1);
        assert_true(result.grad_norm > 0);
    }
}

typedef struct variant {
    uint32_t threads;
    uint32_t cuts;
    uint32_t checkpointing;
    uint32_t logits;
} variant;

/* Trains one instance per variant and compares all weights with the first. */
static void expect_same_weights(rig_spec spec, const variant *variants,
                                size_t count)
{
    rig_device first_device = rig_device_open(variants[0].threads);
    rig first;
    spec.checkpointing = variants[0].checkpointing;
    assert_int_equal(rig_open(&first_device, &spec, &first), XRAY_OK);
    train_steps(&first, 3, variants[0].cuts);
    for (size_t i = 1; i < count; i++) {
        rig_device device = rig_device_open(variants[i].threads);
        rig r;
        spec.checkpointing = variants[i].checkpointing;
        spec.head_logits = variants[i].logits;
        assert_int_equal(rig_open(&device, &spec, &r), XRAY_OK);
        train_steps(&r, 3, variants[i].cuts);
        if (rig_weights_differ(first.ops->weights(first.self),
                               r.ops->weights(r.self)))
            fail_msg("%u threads, %u micro-batches, checkpointing %u, logits "
                     "%u: other bits",
                     variants[i].threads, variants[i].cuts,
                     variants[i].checkpointing, variants[i].logits);
        rig_close(&r);
        rig_device_close(&device);
    }
    rig_close(&first);
    rig_device_close(&first_device);
}

/* 17 rows in 16 parts give one part of two rows and fifteen of one. */
static const variant variants[] = {
    { 1, 1, 0, 0 }, { 1, 3, 0, 0 }, { 1, 7, 0, 0 },  { 1, 16, 0, 0 },
    { 2, 1, 0, 2 }, { 1, 1, 1, 0 }, { 2, 16, 1, 1 }, { 1, 3, 0, 2 },
};

static void any_cut_gives_the_same_bits(void **state)
{
    (void)state;
    rig_spec spec = { .tokens = 400, .row_tokens = 24, .seed = 4 };
    expect_same_weights(spec, variants, sizeof(variants) / sizeof(variants[0]));
}

static void any_cut_gives_the_same_bits_when_tied(void **state)
{
    (void)state;
    rig_spec spec = { .config_json = rig_tiny_tied,
                      .tokens = 400,
                      .row_tokens = 24,
                      .outputs = XRAY_OUTPUT_LOGP | XRAY_OUTPUT_ENTROPY |
                                 XRAY_OUTPUT_VALUE,
                      .seed = 5 };
    expect_same_weights(spec, variants, sizeof(variants) / sizeof(variants[0]));
}

/* Empty micro-batches at both ends and in between change nothing. */
static void empty_micro_batches_change_nothing(void **state)
{
    (void)state;
    rig_device device = rig_device_open(1);
    rig_spec spec = { .seed = 6 };
    rig a;
    rig b;
    rows batch;
    assert_int_equal(rig_open(&device, &spec, &a), XRAY_OK);
    assert_int_equal(rig_open(&device, &spec, &b), XRAY_OK);
    xray_step_result result = { .header = XRAY_HEADER(xray_step_result) };
    for (int i = 0; i < 2; i++) {
        const rig *r = i ? &b : &a;
        uint32_t cuts = i ? 11 : 1;
        rows_loss ctx = { 0 };
        rows_draw(&batch, 5, 20, 40, 8);
        rows_cut(&batch, cuts);
        xray_loss loss = rows_loss_of(&ctx, &batch);
        assert_int_equal(
            r->ops->forward_backward(r->self, batch.pointers, cuts, &loss),
            XRAY_OK);
        assert_int_equal(r->ops->optimizer_step(r->self, 1e-2, 0, &result),
                         XRAY_OK);
    }
    rig_same_weights(&a, &b);
    rig_close(&a);
    rig_close(&b);
    rig_device_close(&device);
}

/* A row's outputs do not depend on the rows around it. */
static void forward_of_one_row(void **state)
{
    (void)state;
    rig_device device = rig_device_open(2);
    rig_spec spec = { .config_json = rig_tiny_tied,
                      .outputs = XRAY_OUTPUT_LOGP | XRAY_OUTPUT_ENTROPY |
                                 XRAY_OUTPUT_VALUE,
                      .seed = 2 };
    rig r;
    rows batch;
    float whole[3][ROWS_TOKENS_MAX];
    float part[3][ROWS_TOKENS_MAX];
    uint32_t outputs =
        XRAY_OUTPUT_LOGP | XRAY_OUTPUT_ENTROPY | XRAY_OUTPUT_VALUE;
    assert_int_equal(rig_open(&device, &spec, &r), XRAY_OK);
    train_steps(&r, 1, 1);
    rows_draw(&batch, 12, 20, 37, 3);
    batch.batch.temperature = batch.temperature;
    xray_outputs out = { XRAY_HEADER(xray_outputs), whole[0], whole[1],
                         whole[2] };
    assert_int_equal(forward_one(r.ops, r.self, &batch.batch, outputs, &out),
                     XRAY_OK);
    rows_cut(&batch, 12);
    uint32_t token = 0;
    double seen = 0;
    for (uint32_t i = 0; i < 12; i++) {
        out = (xray_outputs){ XRAY_HEADER(xray_outputs), part[0] + token,
                              part[1] + token, part[2] + token };
        assert_int_equal(
            forward_one(r.ops, r.self, batch.pointers[i], outputs, &out),
            XRAY_OK);
        token += batch.parts[i].tokens;
    }
    /* Values are the same if only values are requested. */
    float alone[ROWS_TOKENS_MAX];
    out = (xray_outputs){ XRAY_HEADER(xray_outputs), NULL, NULL, alone };
    assert_int_equal(
        forward_one(r.ops, r.self, &batch.batch, XRAY_OUTPUT_VALUE, &out),
        XRAY_OK);
    assert_memory_equal(alone, whole[2], token * sizeof(float));
    for (int k = 0; k < 3; k++) {
        assert_memory_equal(whole[k], part[k], token * sizeof(float));
        for (uint32_t t = 0; t < token; t++)
            seen += fabs((double)whole[k][t]);
    }
    assert_true(seen > 1);
    rig_close(&r);
    rig_device_close(&device);
}

static void training_lowers_the_loss(void **state)
{
    (void)state;
    rig_device device = rig_device_open(2);
    rig_spec spec = { .seed = 1 };
    rig r;
    rows batch;
    double first = 0;
    double last = 0;
    assert_int_equal(rig_open(&device, &spec, &r), XRAY_OK);
    rows_draw(&batch, 8, 20, 40, 5);
    rows_cut(&batch, 2);
    for (int i = 0; i < 40; i++) {
        rows_loss ctx = { 0 };
        xray_step_result result = { .header = XRAY_HEADER(xray_step_result) };
        xray_loss loss = rows_loss_of(&ctx, &batch);
        assert_int_equal(
            r.ops->forward_backward(r.self, batch.pointers, 2, &loss), XRAY_OK);
        assert_int_equal(r.ops->optimizer_step(r.self, 1e-2, 1, &result),
                         XRAY_OK);
        if (i == 0)
            first = ctx.nll;
        last = ctx.nll;
    }
    if (!(first > 3 && last < 0.5 * first))
        fail_msg("loss went from %g to %g", first, last);
    rig_close(&r);
    rig_device_close(&device);
}

static void lease_blocks_the_update(void **state)
{
    (void)state;
    rig_device device = rig_device_open(1);
    rig_spec spec = { .seed = 1 };
    rig r;
    assert_int_equal(rig_open(&device, &spec, &r), XRAY_OK);
    const xray_weights *w = r.ops->weights(r.self);
    xray_step_result result = { .header = XRAY_HEADER(xray_step_result) };
    assert_int_equal(w->lease(w->owner), XRAY_OK);
    assert_int_equal(w->lease(w->owner), XRAY_OK);
    w->release(w->owner);
    assert_int_equal(r.ops->optimizer_step(r.self, 1e-3, 1, &result),
                     XRAY_E_STATE);
    assert_non_null(strstr(rig_error(), "lease"));
    assert_int_equal(w->version(w->owner), 0);
    w->release(w->owner);
    assert_int_equal(r.ops->optimizer_step(r.self, 1e-3, 1, &result), XRAY_OK);
    assert_int_equal(w->version(w->owner), 1);
    rig_close(&r);
    rig_device_close(&device);
}

/* A gradient that is not finite changes nothing, its tensor is named, and the
 * next update is that of an instance that never saw it. */
static void step_with_nan_gradient_is_skipped(void **state)
{
    (void)state;
    rig_device device = rig_device_open(1);
    rig_spec spec = { .seed = 9 };
    rig a;
    rig b;
    assert_int_equal(rig_open(&device, &spec, &a), XRAY_OK);
    assert_int_equal(rig_open(&device, &spec, &b), XRAY_OK);
    rows batch;
    rows_loss ctx = { 0 };
    rows_draw(&batch, 6, 20, 40, 5);
    xray_loss loss = rows_loss_of(&ctx, &batch);
    assert_int_equal(a.ops->forward_backward(a.self, batch.pointers, 1, &loss),
                     XRAY_OK);
    const char *name = "model.layers.1.mlp.down_proj.weight";
    const xray_tensor *bad = rig_tensor(rig_debug(&a)->gradients(a.self), name);
    ((float *)bad->data)[7] = NAN;
    xray_step_result result = { .header = XRAY_HEADER(xray_step_result) };
    assert_int_equal(a.ops->optimizer_step(a.self, 1e-3, 1, &result), XRAY_OK);
    assert_int_equal(result.skipped, 1);
    assert_string_equal(result.bad_tensor, name);
    assert_true(isfinite(result.grad_norm) == 0);
    assert_int_equal(result.version, 0);
    assert_non_null(strstr(rig_log(), name));
    assert_non_null(strstr(rig_log(), "; 1 skipped so far"));
    rig_same_weights(&a, &b);
    ((float *)rig_tensor(rig_debug(&a)->gradients(a.self), name)->data)[7] =
        INFINITY;
    assert_int_equal(a.ops->optimizer_step(a.self, 1e-3, 1, &result), XRAY_OK);
    assert_int_equal(result.skipped, 1);
    assert_non_null(strstr(rig_log(), "; 2 skipped so far"));
    rig_same_weights(&a, &b);
    train_steps(&a, 2, 1);
    train_steps(&b, 2, 1);
    rig_same_weights(&a, &b);
    rig_close(&a);
    rig_close(&b);
    rig_device_close(&device);
}

/* A loss that fails after a given number of micro-batches. */
typedef struct failing {
    xray_loss inner;
    uint32_t left;
} failing;

static xray_status fail_after_some_calls(void *ctx, const xray_loss_call *call)
{
    failing *f = ctx;
    return f->left-- ? f->inner.fn(f->inner.ctx, call) : XRAY_E_ARG;
}

/* If the last part of a mini-batch fails, none of it gets into the next
 * update. */
static void failed_mini_batch_leaves_no_gradients(void **state)
{
    (void)state;
    rig_device device = rig_device_open(1);
    for (uint32_t stage = 0; stage <= 3; stage++) {
        rig_spec spec = { .seed = 9, .stage_1 = stage + 1 };
        rig a;
        rig b;
        assert_int_equal(rig_open(&device, &spec, &a), XRAY_OK);
        assert_int_equal(rig_open(&device, &spec, &b), XRAY_OK);
        rows batch;
        rows_loss ctx = { 0 };
        rows_draw(&batch, 6, 20, 40, 5);
        rows_cut(&batch, 3);
        failing f = { rows_loss_of(&ctx, &batch), 2 };
        xray_loss loss = f.inner;
        loss.ctx = &f;
        loss.fn = fail_after_some_calls;
        assert_int_equal(
            a.ops->forward_backward(a.self, batch.pointers, 3, &loss),
            XRAY_E_ARG);
        rig_same_weights(&a, &b);
        train_steps(&a, 2, 1);
        train_steps(&b, 2, 1);
        rig_same_weights(&a, &b);
        rig_close(&a);
        rig_close(&b);
    }
    rig_device_close(&device);
}

static void invalid_calls_are_refused(void **state)
{
    (void)state;
    rig_device device = rig_device_open(1);
    rig_spec spec = { .tokens = 64, .rows = 8, .row_tokens = 20 };
    rig r;
    rows batch;
    rows_loss ctx = { 0 };
    assert_int_equal(rig_open(&device, &spec, &r), XRAY_OK);
    xray_step_result result = { .header = XRAY_HEADER(xray_step_result) };

    rows_draw(&batch, 8, 20, 40, 5);
    xray_loss loss = rows_loss_of(&ctx, &batch);
    ctx.poison_token = batch.row_start[1] + 2;
    batch.mask[ctx.poison_token] = 1;
    assert_int_equal(r.ops->forward_backward(r.self, batch.pointers, 1, &loss),
                     batch.batch.tokens > 64 ? XRAY_E_RANGE : XRAY_E_NUMERIC);
    if (batch.batch.tokens <= 64)
        assert_non_null(strstr(rig_error(), "row 1, token 2"));

    rows_draw(&batch, 9, 4, 40, 5);
    xray_outputs out = { .header = XRAY_HEADER(xray_outputs) };
    float logp[256];
    out.logp = logp;
    assert_int_equal(
        forward_one(r.ops, r.self, &batch.batch, XRAY_OUTPUT_LOGP, &out),
        XRAY_E_RANGE);
    assert_non_null(strstr(rig_error(), "9 rows"));
    batch.batch.rows = 0;
    batch.batch.tokens = 0;
    assert_int_equal(
        forward_one(r.ops, r.self, &batch.batch, XRAY_OUTPUT_VALUE, &out),
        XRAY_E_ARG);
    assert_non_null(strstr(rig_error(), "value head"));
    assert_int_equal(
        forward_one(r.ops, r.self, &batch.batch, XRAY_OUTPUT_LOGP, &out),
        XRAY_OK);
    static const double rates[] = { NAN, INFINITY, -1e-9 };
    for (int i = 0; i < 3; i++)
        assert_int_equal(r.ops->optimizer_step(r.self, rates[i], 1, &result),
                         XRAY_E_ARG);
    assert_int_equal(r.ops->optimizer_step(r.self, 0, 1, &result), XRAY_OK);
    rig_close(&r);

    spec.frozen = 1;
    assert_int_equal(rig_open(&device, &spec, &r), XRAY_OK);
    rows_draw(&batch, 2, 4, 40, 5);
    loss = rows_loss_of(&ctx, &batch);
    assert_int_equal(r.ops->forward_backward(r.self, batch.pointers, 1, &loss),
                     XRAY_E_STATE);
    assert_int_equal(r.ops->optimizer_step(r.self, 1, 1, &result),
                     XRAY_E_STATE);
    assert_null(rig_debug(&r)->gradients(r.self));
    rig_close(&r);
    rig_device_close(&device);
}

/* After warm-up, a step takes no device memory. */
static void steps_allocate_nothing(void **state)
{
    (void)state;
    rig_device device = rig_device_open(2);
    rig_spec spec = { .tokens = 400, .row_tokens = 24 };
    rig r;
    xray_memory_stats before = { .header = XRAY_HEADER(xray_memory_stats) };
    xray_memory_stats after = { .header = XRAY_HEADER(xray_memory_stats) };
    assert_int_equal(rig_open(&device, &spec, &r), XRAY_OK);
    train_steps(&r, 1, 1);
    assert_int_equal(device.ops->memory(device.self, &before), XRAY_OK);
    rows batch;
    rows_loss ctx = { 0 };
    rows_draw(&batch, 17, 24, 37, 100);
    xray_loss loss = rows_loss_of(&ctx, &batch);
    xray_step_result result = { .header = XRAY_HEADER(xray_step_result) };
    assert_int_equal(r.ops->forward_backward(r.self, batch.pointers, 1, &loss),
                     XRAY_OK);
    assert_int_equal(r.ops->optimizer_step(r.self, 1e-3, 1, &result), XRAY_OK);
    assert_int_equal(device.ops->memory(device.self, &after), XRAY_OK);
    assert_memory_equal(before.high, after.high, sizeof(before.high));
    assert_memory_equal(before.live, after.live, sizeof(before.live));
    rig_close(&r);
    rig_device_close(&device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_cut_gives_the_same_bits),
        cmocka_unit_test(any_cut_gives_the_same_bits_when_tied),
        cmocka_unit_test(empty_micro_batches_change_nothing),
        cmocka_unit_test(forward_of_one_row),
        cmocka_unit_test(training_lowers_the_loss),
        cmocka_unit_test(lease_blocks_the_update),
        cmocka_unit_test(step_with_nan_gradient_is_skipped),
        cmocka_unit_test(failed_mini_batch_leaves_no_gradients),
        cmocka_unit_test(invalid_calls_are_refused),
        cmocka_unit_test(steps_allocate_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
