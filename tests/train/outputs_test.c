/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests what a pass gives, for each set of outputs that may be asked for, and
 * what a loss is given and gives back.
 */
#include <math.h>

#include "tests/train/rig.h"

enum {
    ALL_OUTPUTS = XRAY_OUTPUT_LOGP | XRAY_OUTPUT_ENTROPY | XRAY_OUTPUT_VALUE
};

/* The gradients of a loss: its slopes by logp, entropy and value. */
static xray_status set_slopes(void *ctx, const xray_loss_call *call)
{
    const float *slope = ctx;
    for (uint32_t row = 0; row < call->batch->rows; row++)
        for (int32_t t = call->batch->row_start[row] + 1;
             t < call->batch->row_start[row + 1]; t++) {
            if (call->batch->loss_mask[t] == 0)
                continue;
            call->dlogp[t] = slope[0];
            call->dentropy[t] = slope[1];
            call->dvalue[t] = slope[2];
        }
    return XRAY_OK;
}

/* Writes all gradients of a loss with the given slopes; returns how many. */
static size_t find_gradients(const rig_device *device, float slope[3],
                             float *out, size_t cap)
{
    rig_spec spec = { .outputs = ALL_OUTPUTS };
    const xray_loss loss = { .header = XRAY_HEADER(xray_loss),
                             .ctx = slope,
                             .fn = set_slopes,
                             .outputs = ALL_OUTPUTS };
    rig r;
    rows batch;
    size_t count = 0;
    assert_int_equal(rig_open(device, &spec, &r), XRAY_OK);
    rows_draw(&batch, 6, 20, 37, 9);
    rows_cut(&batch, 2);
    assert_int_equal(r.ops->forward_backward(r.self, batch.pointers, 2, &loss),
                     XRAY_OK);
    const xray_weights *grads = rig_debug(&r)->gradients(r.self);
    for (uint32_t i = 0; i < grads->tensor_count; i++) {
        const xray_tensor *t = &grads->tensors[i];
        size_t n = (size_t)(t->shape[0] * (t->dims > 1 ? t->shape[1] : 1));
        assert_true(count + n <= cap);
        memcpy(out + count, t->data, n * sizeof(*out));
        count += n;
    }
    rig_close(&r);
    return count;
}

/* A loss of all outputs has the sum of the gradients of its parts, none of
 * which is zero. */
static void gradients_of_the_outputs_add_up(void **state)
{
    enum { CAP = 1 << 18 };
    static float slopes[4][3] = {
        { 0.5f, 0, 0 }, { 0, -0.7f, 0 }, { 0, 0, 0.3f }, { 0.5f, -0.7f, 0.3f }
    };
    (void)state;
    rig_device device = rig_device_open(1);
    float *grads[4];
    double most[4] = { 0 };
    size_t count = 0;
    for (int i = 0; i < 4; i++) {
        grads[i] = calloc(CAP, sizeof(float));
        assert_non_null(grads[i]);
        count = find_gradients(&device, slopes[i], grads[i], CAP);
        for (size_t k = 0; k < count; k++)
            most[i] = fmax(most[i], fabs((double)grads[i][k]));
        assert_true(most[i] > 1e-3);
    }
    for (size_t k = 0; k < count; k++) {
        double sum =
            (double)grads[0][k] + (double)grads[1][k] + (double)grads[2][k];
        assert_true(fabs(sum - (double)grads[3][k]) < 1e-5 * most[3]);
    }
    for (int i = 0; i < 4; i++)
        free(grads[i]);
    rig_device_close(&device);
}

/* Each output that is asked for needs its own array, and values a head. */
static void outputs_need_their_arrays(void **state)
{
    static const uint32_t outputs[] = { XRAY_OUTPUT_LOGP, XRAY_OUTPUT_ENTROPY,
                                        XRAY_OUTPUT_VALUE };
    (void)state;
    rig_device device = rig_device_open(1);
    rig_spec spec = {
        .tokens = 64,
        .rows = 8,
        .row_tokens = 20,
        .outputs = ALL_OUTPUTS,
    };
    rig r;
    rows batch;
    float room[3][64];
    assert_int_equal(rig_open(&device, &spec, &r), XRAY_OK);
    rows_draw(&batch, 2, 4, 40, 5);
    for (uint32_t missing = 0; missing < 4; missing++) {
        xray_outputs out = { .header = XRAY_HEADER(xray_outputs),
                             .logp = missing == 0 ? NULL : room[0],
                             .entropy = missing == 1 ? NULL : room[1],
                             .value = missing == 2 ? NULL : room[2] };
        for (uint32_t all = 0; all < 2; all++)
            for (uint32_t i = 0; i < 3; i++) {
                uint32_t wanted = all ? XRAY_OUTPUT_LOGP | XRAY_OUTPUT_ENTROPY |
                                            XRAY_OUTPUT_VALUE
                                      : outputs[i];
                int lacks = missing < 3 && (all || missing == i);
                assert_int_equal(
                    forward_one(r.ops, r.self, &batch.batch, wanted, &out),
                    lacks ? XRAY_E_ARG : XRAY_OK);
                if (lacks)
                    assert_non_null(
                        strstr(rig_error(), "a requested output has no array"));
            }
    }
    rig_close(&r);
    rig_device_close(&device);
}

/* Micro-batches of any sizes follow one another in the arrays. */
static void outputs_of_micro_batches_follow_one_another(void **state)
{
    enum { TOKENS = 400, ROWS = 9 };
    (void)state;
    rig_device device = rig_device_open(1);
    rig_spec spec = { .tokens = TOKENS, .outputs = ALL_OUTPUTS };
    rig r;
    rows batch;
    static float whole[3][TOKENS], parts[3][TOKENS];
    const xray_outputs to[2] = {
        { XRAY_HEADER(xray_outputs), whole[0], whole[1], whole[2] },
        { XRAY_HEADER(xray_outputs), parts[0], parts[1], parts[2] }
    };
    assert_int_equal(rig_open(&device, &spec, &r), XRAY_OK);
    rows_draw(&batch, ROWS, 30, 37, 4);
    assert_true(batch.batch.tokens <= TOKENS);
    for (uint32_t cuts = 2; cuts <= 5; cuts++) {
        xray_outputs one = to[0], several = to[1];
        rows_cut(&batch, cuts);
        assert_int_equal(
            forward_one(r.ops, r.self, &batch.batch, ALL_OUTPUTS, &one),
            XRAY_OK);
        memset(parts, 0xff, sizeof(parts));
        assert_int_equal(
            r.ops->forward(r.self, batch.pointers, cuts, ALL_OUTPUTS, &several),
            XRAY_OK);
        for (int i = 0; i < 3; i++)
            assert_memory_equal(whole[i], parts[i],
                                batch.batch.tokens * sizeof(float));
    }
    rig_close(&r);
    rig_device_close(&device);
}

typedef struct asked {
    uint32_t outputs;
    uint32_t calls;
} asked;

/* Expects what was asked for, and gradients that are 0. */
static xray_status expect_call(void *ctx, const xray_loss_call *call)
{
    asked *a = ctx;
    int entropy = (a->outputs & XRAY_OUTPUT_ENTROPY) != 0;
    assert_true(!call->entropy == !entropy);
    assert_true(!call->dentropy == !entropy);
    assert_true(call->logp && call->dlogp && call->value && call->dvalue);
    for (uint32_t t = 0; t < call->batch->tokens; t++) {
        assert_true(call->dlogp[t] == 0 && call->dvalue[t] == 0);
        assert_true(!entropy || call->dentropy[t] == 0);
        call->dlogp[t] = call->dvalue[t] = 1;
        if (entropy)
            call->dentropy[t] = 1;
    }
    a->calls++;
    return XRAY_OK;
}

static void a_loss_has_what_it_asked_for(void **state)
{
    static const uint32_t outputs[] = { XRAY_OUTPUT_LOGP,
                                        XRAY_OUTPUT_LOGP | XRAY_OUTPUT_ENTROPY,
                                        XRAY_OUTPUT_ENTROPY, ALL_OUTPUTS };
    (void)state;
    rig_device device = rig_device_open(1);
    rig_spec spec = { .outputs = ALL_OUTPUTS };
    rig r;
    rows batch;
    assert_int_equal(rig_open(&device, &spec, &r), XRAY_OK);
    rows_draw(&batch, 6, 20, 37, 9);
    rows_cut(&batch, 3);
    for (size_t i = 0; i < sizeof(outputs) / sizeof(outputs[0]); i++) {
        asked a = { .outputs = outputs[i] };
        const xray_loss loss = { .header = XRAY_HEADER(xray_loss),
                                 .ctx = &a,
                                 .fn = expect_call,
                                 .outputs = outputs[i] };
        assert_int_equal(
            r.ops->forward_backward(r.self, batch.pointers, 3, &loss), XRAY_OK);
        assert_int_equal(a.calls, 3);
    }
    rig_close(&r);
    rig_device_close(&device);
}

static xray_status fail_at_last(void *ctx, const xray_loss_call *call)
{
    uint32_t *left = ctx;
    (void)call;
    return --*left ? XRAY_OK : XRAY_E_NUMERIC;
}

/* A loss that fails ends the pass with its status, and is told with the first
 * row of its micro-batch. */
static void a_failed_loss_is_told_with_its_row(void **state)
{
    enum { CUTS = 3 };
    (void)state;
    rig_device device = rig_device_open(1);
    rig_spec spec = { .outputs = ALL_OUTPUTS };
    rig r;
    rows batch;
    assert_int_equal(rig_open(&device, &spec, &r), XRAY_OK);
    rows_draw(&batch, 7, 20, 37, 9);
    rows_cut(&batch, CUTS);
    for (uint32_t at = 0; at < CUTS; at++) {
        uint32_t left = at + 1;
        char want[80];
        const xray_loss loss = { .header = XRAY_HEADER(xray_loss),
                                 .ctx = &left,
                                 .fn = fail_at_last,
                                 .outputs = ALL_OUTPUTS };
        (void)snprintf(want, sizeof(want),
                       "the loss failed on the micro-batch from row %u",
                       batch.pointers[at]->row_index[0]);
        assert_int_equal(
            r.ops->forward_backward(r.self, batch.pointers, CUTS, &loss),
            XRAY_E_NUMERIC);
        assert_string_equal(rig_error(), want);
        assert_int_equal(left, 0);
    }
    rig_close(&r);
    rig_device_close(&device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_of_the_outputs_add_up),
        cmocka_unit_test(outputs_need_their_arrays),
        cmocka_unit_test(outputs_of_micro_batches_follow_one_another),
        cmocka_unit_test(a_loss_has_what_it_asked_for),
        cmocka_unit_test(a_failed_loss_is_told_with_its_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
