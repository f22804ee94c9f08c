/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that batches, prompts and samples arrive in another process as they
 * were sent, and that regions which claim too much are refused.
 */
#include "core/roles/wire.h"
#include "tests/testing.h"

static union {
    uint64_t align;
    unsigned char bytes[1 << 16];
} region;

/* A batch of two rows of four tokens with values in every array; returns its
 * bytes. */
static uint64_t fill_region(xr_wire *out)
{
    const xr_wire_header shape = { .row_cap = 3,
                                   .token_cap = 12,
                                   .names = 2,
                                   .context_size = 5,
                                   .spans = 3,
                                   .views = 4,
                                   .outputs = 6,
                                   .loss = 1,
                                   .prompts = 2 };
    int32_t ids[] = { 1, 2, 3, 4 };
    float logp[] = { -1, -2 };
    const xray_span spans[] = { { .first = 2, .last = 3, .version = 5 },
                                { .first = 3, .last = 4, .version = 6 } };
    xr_row_in in = { .prompt = ids,
                     .prompt_count = 2,
                     .response = ids + 2,
                     .response_count = 2,
                     .logp = logp,
                     .row_id = 77,
                     .temperature = 1 };
    uint64_t size = xr_wire_bytes(&shape);
    xr_err err = { "" };
    assert_true(size <= sizeof(region.bytes));
    memset(region.bytes, 0xff, sizeof(region.bytes));
    xr_wire_begin(region.bytes, &shape, out);
    assert_int_equal(xr_rows_add(&out->rows, &in, &err), XRAY_OK);
    in.spans = spans;
    in.span_count = 2;
    assert_int_equal(xr_rows_add(&out->rows, &in, &err), XRAY_OK);
    out->sums[1] = 3;
    out->weights[1] = 4;
    out->index[2] = 9;
    memcpy(out->context, "abcd", 5);
    for (int i = 0; i < 3; i++)
        out->out[i][11] = (float)i;
    xr_wire_close(out);
    return size;
}

/* A Workhorse reads what was written for it. */
static void batches_arrive_as_they_were_sent(void **state)
{
    (void)state;
    xr_err err = { "" };
    xr_wire a;
    xr_wire b;
    uint64_t size = fill_region(&a);
    assert_int_equal(xr_wire_map(region.bytes, size, &err, &b), XRAY_OK);
    assert_int_equal(b.header->rows, 2);
    assert_int_equal(b.header->tokens, 8);
    assert_int_equal(b.header->views, 4);
    assert_int_equal(b.header->outputs, 6);
    assert_int_equal(b.header->loss, 1);
    assert_int_equal(b.header->prompts, 2);
    assert_int_equal(b.rows.batch.rows, 2);
    assert_int_equal(b.rows.batch.tokens, 8);
    assert_int_equal(b.rows.batch.span_count, 3);
    assert_int_equal(xr_rows_find_span(&b.rows.batch, 1), 1);
    assert_int_equal(b.rows.batch.spans[2].first, 3);
    assert_int_equal(b.rows.batch.spans[2].version, 6);
    assert_int_equal(b.rows.batch.ids[5], 2);
    assert_int_equal(b.rows.batch.row_start[2], 8);
    assert_int_equal(b.rows.batch.row_id[1], 77);
    assert_true(b.sums[1] == 3 && b.weights[1] == 4 && b.index[2] == 9);
    assert_memory_equal(b.context, "abcd", 5);
    for (int i = 0; i < 3; i++)
        assert_true(b.out[i][11] == (float)i);
    /* Every array has its own bytes. */
    assert_ptr_not_equal(b.sums, b.weights);
    assert_true(b.context >= (unsigned char *)(b.index + 3));
    assert_true(b.out[1] >= b.out[0] + 12 && b.out[2] >= b.out[1] + 12);
}

/* A rank that does not answer has results of its own, which start at 0 and
 * leave those of the region as they are. */
static void results_aside_leave_the_region_alone(void **state)
{
    (void)state;
    static union {
        uint64_t align;
        unsigned char bytes[1 << 12];
    } own, before;
    xr_wire wire;
    uint64_t size = fill_region(&wire);
    uint64_t aside = xr_wire_aside(&wire, NULL);
    assert_true(wire.sums[1] == 3); /* it only counts */
    assert_true(aside <= sizeof(own.bytes) && size <= sizeof(before.bytes));
    memset(own.bytes, 0xff, sizeof(own.bytes));
    memcpy(before.bytes, region.bytes, size);
    assert_int_equal(xr_wire_aside(&wire, own.bytes), aside);
    assert_true(wire.sums[1] == 0 && wire.weights[1] == 0);
    for (int i = 0; i < 3; i++) {
        assert_true(wire.out[i][11] == 0);
        wire.out[i][11] = 5;
    }
    wire.sums[0] = wire.weights[0] = 5;
    assert_memory_equal(region.bytes, before.bytes, size);
    assert_int_equal(own.bytes[aside], 0xff);
    assert_true(wire.out[1] >= wire.out[0] + 12);
}

static void samples_aside_leave_the_region_alone(void **state)
{
    (void)state;
    const xr_wire_rollout_header shape = { .prompts = 2,
                                           .ids = 3,
                                           .how = { .n = 2, .max_tokens = 4 } };
    static union {
        uint64_t align;
        unsigned char bytes[1 << 12];
    } own, before;
    xr_wire_rollout wire;
    uint64_t size = xr_wire_rollout_bytes(&shape);
    assert_true(size <= sizeof(before.bytes));
    memset(region.bytes, 0, sizeof(region.bytes));
    xr_wire_rollout_begin(region.bytes, &shape, &wire);
    wire.prompt[2] = 7;
    memcpy(before.bytes, region.bytes, size);
    uint64_t aside = xr_wire_rollout_aside(&wire, NULL);
    assert_true(aside <= sizeof(own.bytes));
    memset(own.bytes, 0xff, sizeof(own.bytes));
    assert_int_equal(xr_wire_rollout_aside(&wire, own.bytes), aside);
    for (int i = 0; i < 4; i++) {
        wire.sizes[i] = wire.finish[i] = 3;
        wire.versions[i] = 9;
        for (int t = 0; t < 4; t++) {
            wire.tokens[4 * i + t] = 6;
            wire.logp[4 * i + t] = 6;
        }
    }
    assert_memory_equal(region.bytes, before.bytes, size);
    assert_int_equal(own.bytes[aside], 0xff);
    assert_int_equal(wire.prompt[2], 7); /* the prompts are the region's */
    assert_true(wire.sizes[3] == 3 && wire.versions[3] == 9);
}

/* A header that claims more than its region is refused. */
static void headers_that_claim_too_much_are_refused(void **state)
{
    (void)state;
    xr_err err = { "" };
    xr_wire a;
    xr_wire b;
    uint64_t size = fill_region(&a);
    assert_int_equal(xr_wire_map(region.bytes, size - 1, &err, &b), XRAY_E_BUG);
    char want[100];
    (void)snprintf(want, sizeof(want),
                   "a batch of 2 rows and 8 tokens is not in its %llu bytes",
                   (unsigned long long)size - 1);
    assert_string_equal(err.text, want);
    assert_int_equal(
        xr_wire_map(region.bytes, sizeof(xr_wire_header) - 1, &err, &b),
        XRAY_E_BUG);
    assert_non_null(strstr(err.text, " bytes has no head"));
    xr_wire_header *head = a.header;
    const xr_wire_header whole = *head;
    for (int i = 0; i < 7; i++) {
        *head = whole;
        if (i == 0)
            head->rows = 4;
        else if (i == 1)
            head->tokens = 13;
        else if (i == 2)
            head->names = UINT64_MAX / 8 + 1;
        else if (i == 3)
            head->context_size = UINT64_MAX - 63;
        else if (i == 4)
            head->row_cap = INT32_MAX;
        else if (i == 5)
            head->spans = UINT32_MAX;
        else
            head->token_cap = UINT32_MAX;
        assert_int_equal(xr_wire_map(region.bytes, size, &err, &b), XRAY_E_BUG);
    }
}

static void prompts_arrive_as_they_were_sent(void **state)
{
    (void)state;
    const xr_wire_rollout_header shape = {
        .prompts = 2,
        .ids = 5,
        .how = { .n = 3, .max_tokens = 4, .seed = 8, .step = 6 }
    };
    uint64_t size = xr_wire_rollout_bytes(&shape);
    xr_err err = { "" };
    xr_wire_rollout a;
    xr_wire_rollout b;
    assert_true(size <= sizeof(region.bytes));
    memset(region.bytes, 0xff, sizeof(region.bytes));
    xr_wire_rollout_begin(region.bytes, &shape, &a);
    a.prompt_start[1] = 2;
    a.prompt_start[2] = 5;
    a.prompt_id[1] = 12;
    a.prompt[4] = 44;
    for (int i = 0; i < 6; i++) {
        a.versions[i] = (uint64_t)i;
        a.sizes[i] = (uint32_t)(10 + i);
        a.finish[i] = (uint32_t)(20 + i);
    }
    a.tokens[23] = 230;
    a.logp[23] = -23;
    assert_int_equal(xr_wire_rollout_map(region.bytes, size, &err, &b),
                     XRAY_OK);
    assert_int_equal(b.header->how.step, 6);
    assert_int_equal(b.prompt_start[0], 0);
    assert_true(b.prompt_id[1] == 12 && b.prompt[4] == 44);
    assert_true(b.versions[5] == 5 && b.sizes[5] == 15 && b.finish[5] == 25);
    assert_true(b.tokens[23] == 230 && b.logp[23] == -23);
}

static void prompts_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    const xr_wire_rollout_header shape = {
        .prompts = 2,
        .ids = 5,
        .how = { .n = 3, .max_tokens = 4, .seed = 8, .step = 6 }
    };
    uint64_t size = xr_wire_rollout_bytes(&shape);
    xr_err err = { "" };
    xr_wire_rollout a;
    xr_wire_rollout b;
    memset(region.bytes, 0xff, sizeof(region.bytes));
    xr_wire_rollout_begin(region.bytes, &shape, &a);
    a.prompt_start[1] = 2;
    a.prompt_start[2] = 5;
    assert_int_equal(xr_wire_rollout_map(region.bytes, size - 1, &err, &b),
                     XRAY_E_BUG);
    char want[100];
    (void)snprintf(want, sizeof(want), "2 prompts are not in their %llu bytes",
                   (unsigned long long)size - 1);
    assert_string_equal(err.text, want);
    assert_int_equal(xr_wire_rollout_map(region.bytes,
                                         sizeof(xr_wire_rollout_header) - 1,
                                         &err, &b),
                     XRAY_E_BUG);
    assert_non_null(strstr(err.text, " bytes have no header"));
    a.prompt_start[2] = 6;
    assert_int_equal(xr_wire_rollout_map(region.bytes, size, &err, &b),
                     XRAY_E_BUG);
    assert_string_equal(err.text, "prompt 1 ends outside of them");
    a.prompt_start[2] = 1;
    assert_int_equal(xr_wire_rollout_map(region.bytes, size, &err, &b),
                     XRAY_E_BUG);
    a.prompt_start[2] = 2; /* an empty prompt */
    assert_int_equal(xr_wire_rollout_map(region.bytes, size, &err, &b),
                     XRAY_OK);
    /* The end of the last prompt has an offset of its own. */
    const xr_wire_rollout_header many = {
        .prompts = 16, .ids = 16, .how = { .n = 16, .max_tokens = 16 }
    };
    assert_true(xr_wire_rollout_bytes(&many) <= sizeof(region.bytes));
    xr_wire_rollout_begin(region.bytes, &many, &b);
    assert_true((char *)b.prompt >= (char *)(b.prompt_start + 17));
    assert_true((char *)b.versions >= (char *)(b.prompt_id + 16));
    assert_true((char *)b.tokens >= (char *)(b.finish + 256));
    assert_true((char *)b.finish >= (char *)(b.sizes + 256));
    assert_true((char *)b.logp >= (char *)(b.tokens + 4096));
    assert_true((char *)(b.logp + 4096) <=
                (char *)region.bytes + xr_wire_rollout_bytes(&many));
    xr_wire_rollout_begin(region.bytes, &shape, &a);
    a.prompt_start[1] = a.prompt_start[2] = 2;
    const xr_wire_rollout_header whole = *a.header;
    for (int i = 0; i < 4; i++) {
        *a.header = whole;
        if (i == 0)
            a.header->prompts = UINT32_MAX;
        else if (i == 1)
            a.header->ids = UINT32_MAX;
        else if (i == 2)
            a.header->how.n = UINT32_MAX;
        else
            a.header->how.max_tokens = UINT32_MAX;
        assert_int_equal(xr_wire_rollout_map(region.bytes, size, &err, &b),
                         XRAY_E_BUG);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_arrive_as_they_were_sent),
        cmocka_unit_test(results_aside_leave_the_region_alone),
        cmocka_unit_test(samples_aside_leave_the_region_alone),
        cmocka_unit_test(headers_that_claim_too_much_are_refused),
        cmocka_unit_test(prompts_arrive_as_they_were_sent),
        cmocka_unit_test(prompts_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
