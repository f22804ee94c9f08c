/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests packing: which inputs and items a batch becomes, and how outputs and
 * gradients find their tokens again.
 */
#include "model/train/pack.h"

#include <math.h>

#include "tests/growth.h"
#include "tests/train/rig.h"

static const xm_pack_limits limits = {
    .tokens = 64, .rows = 8, .row_tokens = 12, .vocab = 50
};

typedef struct fixture {
    rig_device device;
    xm_packer *packer;
} fixture;

static void open_fixture(fixture *f, rig_device device)
{
    xr_err err;
    f->device = device;
    assert_int_equal(xm_packer_create(&limits, device.ops, device.self, "test",
                                      &err, &f->packer),
                     XRAY_OK);
}

/* Reads an array from the device, whether or not the host can access it. */
static void fetch_array(const fixture *f, const void *from, void *to,
                        size_t count)
{
    assert_int_equal(f->device.ops->copy(f->device.self, NULL, to, from,
                                         count * 4, XRAY_COPY_TO_HOST),
                     XRAY_OK);
}

static void check_three_rows(fixture *f)
{
    /* Row 0 wants tokens 2 and 3 of 5, row 1 nothing, row 2 its last token. */
    const int32_t ids[] = { 10, 11, 12, 13, 14, 20, 21, 30, 31, 32 };
    const float mask[] = { 1, 0, 1, 1, 0, 1, 0, 0, 0, 0.5f };
    const int32_t start[] = { 0, 5, 7, 10 };
    const float temperature[] = { 1, 2, 0.5f };
    xray_batch batch = { .header = XRAY_HEADER(xray_batch),
                         .rows = 3,
                         .tokens = 10,
                         .ids = ids,
                         .row_start = start,
                         .loss_mask = mask,
                         .temperature = temperature };
    xm_packed p;
    xr_err err;
    assert_int_equal(xm_packer_fill(f->packer, &batch, 1, &err, &p), XRAY_OK);
    assert_int_equal(p.pack.rows, 2);
    assert_int_equal(p.pack.tokens, 5); /* 10 11 12 | 30 31 */
    assert_int_equal(p.pack.row_bound, 3);
    assert_int_equal(p.items.count, 3);
    assert_int_equal(p.items.value, 1);

    int32_t got[8];
    float heat[8];
    fetch_array(f, p.pack.ids, got, 5);
    assert_memory_equal(got, ((int32_t[]){ 10, 11, 12, 30, 31 }), 20);
    fetch_array(f, p.pack.positions, got, 5);
    assert_memory_equal(got, ((int32_t[]){ 0, 1, 2, 0, 1 }), 20);
    fetch_array(f, p.pack.row_start, got, 3);
    assert_memory_equal(got, ((int32_t[]){ 0, 3, 5 }), 12);
    fetch_array(f, p.items.index, got, 3);
    assert_memory_equal(got, ((int32_t[]){ 1, 2, 4 }), 12);
    fetch_array(f, p.items.target, got, 3);
    assert_memory_equal(got, ((int32_t[]){ 12, 13, 32 }), 12);
    fetch_array(f, p.items.temperature, heat, 3);
    assert_memory_equal(heat, ((float[]){ 1, 1, 0.5f }), 12);
    assert_memory_equal(p.token, ((int32_t[]){ 2, 3, 9 }), 12);

    float per_token[10] = { 0, 0, 5, 6, 0, 0, 0, 0, 0, 7 };
    float back[10] = { 0 };
    const float *items = NULL;
    assert_int_equal(
        xm_packer_spread(f->packer, per_token, 2, "x", &err, &items), XRAY_OK);
    fetch_array(f, items, heat, 3);
    assert_memory_equal(heat, ((float[]){ 5, 6, 7 }), 12);
    assert_int_equal(xm_packer_collect(f->packer, items, back, &err), XRAY_OK);
    assert_memory_equal(back, per_token, sizeof(back));

    per_token[9] = INFINITY;
    assert_int_equal(
        xm_packer_spread(f->packer, per_token, 0, "dL/dlogp", &err, &items),
        XRAY_E_NUMERIC);
    assert_non_null(strstr(err.text, "dL/dlogp = inf for row 2, token 2"));
}

static void three_rows_are_packed(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, rig_device_open(1));
    check_three_rows(&f);
    xm_packer_destroy(f.packer);
    rig_device_close(&f.device);
}

static void three_rows_are_packed_through_copies(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, plain_device_open());
    check_three_rows(&f);
    xm_packer_destroy(f.packer);
}

/* Batches are packed one after the other without a wait for results. The plain
 * device proves that what it copies stays until it has been read. */
static void copies_are_read_before_they_change(void **state)
{
    (void)state;
    fixture f;
    float per_token[64];
    open_fixture(&f, plain_device_open());
    for (int32_t round = 0; round < 6; round++) {
        int32_t ids[24];
        const int32_t start[] = { 0, 12 - round, 24 - 2 * round };
        const float temperature[] = { 1, 0.5f + (float)round };
        for (int32_t t = 0; t < 24; t++)
            ids[t] = (7 * round + t) % 50;
        const xray_batch batch = { .header = XRAY_HEADER(xray_batch),
                                   .rows = 2,
                                   .tokens = (uint32_t)start[2],
                                   .ids = ids,
                                   .row_start = start,
                                   .temperature = temperature };
        const float *items = NULL;
        xm_packed p;
        xr_err err;
        assert_int_equal(xm_packer_fill(f.packer, &batch, 1, &err, &p),
                         XRAY_OK);
        uint32_t uses = round % 2 ? 0 : XM_PACK_SLOTS + 2;
        for (uint32_t slot = 0; slot < uses; slot++) {
            for (int32_t t = 0; t < 64; t++)
                per_token[t] = (float)(64 * round + t + (int32_t)slot * 1000);
            assert_int_equal(xm_packer_spread(f.packer, per_token,
                                              slot % XM_PACK_SLOTS, "x", &err,
                                              &items),
                             XRAY_OK);
        }
    }
    assert_int_equal(f.device.ops->sync(f.device.self, NULL), XRAY_OK);
    xm_packer_destroy(f.packer);
}

/* Rows 0, 1, 3 and 4 of group 7 share the prompt "1 2 3". Row 2 has nothing
 * after it, row 5 has another prompt, row 6 belongs to another group, and row 7
 * wants a token of its prompt. */
/* clang-format off */
static const int32_t family_ids[] = {
    1, 2, 3, 4, 5,  1, 2, 3, 6,  1, 2, 3, 7,  1, 2, 3, 8, 9,
    1, 2, 3, 4,     1, 2, 4, 4,  1, 2, 4, 5,  1, 2, 4, 5,
};
static const float family_mask[] = {
    0, 0, 0, 1, 1,  0, 0, 0, 1,  0, 0, 0, 0,  0, 0, 0, 1, 1,
    0, 0, 0, 1,     0, 0, 0, 1,  0, 0, 0, 1,  0, 0, 1, 1,
};
/* clang-format on */
static const int32_t family_start[] = { 0, 5, 9, 13, 18, 22, 26, 30, 34 };
static const int32_t family_prompt[] = { 3, 3, 3, 3, 3, 3, 3, 3 };
static const int32_t family_group[] = { 7, 7, 7, 7, 7, 7, 8, 8 };

static xray_batch family_batch(void)
{
    return (xray_batch){ .header = XRAY_HEADER(xray_batch),
                         .rows = 8,
                         .tokens = 34,
                         .ids = family_ids,
                         .row_start = family_start,
                         .prompt_len = family_prompt,
                         .loss_mask = family_mask,
                         .group = family_group,
                         .share_prompts = 1 };
}

static void check_families(fixture *f)
{
    xray_batch batch = family_batch();
    xm_packed p;
    xr_err err;
    int32_t got[40];
    assert_int_equal(xm_packer_fill(f->packer, &batch, 0, &err, &p), XRAY_OK);
    /* 1 2 | 3 4 | 3 || 1 2 | 3 8 | 3 || 1 2 4 || 1 2 4 || 1 2 4 */
    assert_int_equal(p.pack.rows, 9);
    assert_int_equal(p.pack.tokens, 19);
    assert_int_equal(p.pack.row_bound, 4);
    fetch_array(f, p.pack.row_start, got, 10);
    assert_memory_equal(got, ((int32_t[]){ 0, 2, 4, 5, 7, 9, 10, 13, 16, 19 }),
                        40);
    fetch_array(f, p.pack.parent, got, 9);
    assert_memory_equal(got, ((int32_t[]){ -1, 0, 0, -1, 3, 3, -1, -1, -1 }),
                        36);
    fetch_array(f, p.pack.ids, got, 10);
    assert_memory_equal(got, ((int32_t[]){ 1, 2, 3, 4, 3, 1, 2, 3, 8, 3 }), 40);
    fetch_array(f, p.pack.positions, got, 10);
    assert_memory_equal(got, ((int32_t[]){ 0, 1, 2, 3, 2, 0, 1, 2, 3, 2 }), 40);
    assert_int_equal(p.items.count, 10);
    fetch_array(f, p.items.index, got, 10);
    assert_memory_equal(got, ((int32_t[]){ 2, 3, 4, 7, 8, 9, 12, 15, 17, 18 }),
                        40);
    fetch_array(f, p.items.target, got, 10);
    assert_memory_equal(got, ((int32_t[]){ 4, 5, 6, 8, 9, 4, 4, 5, 4, 5 }), 40);
    assert_memory_equal(
        p.token, ((int32_t[]){ 3, 4, 8, 16, 17, 21, 25, 29, 32, 33 }), 40);

    /* Without share_prompts every row is packed by itself. */
    batch.share_prompts = 0;
    assert_int_equal(xm_packer_fill(f->packer, &batch, 0, &err, &p), XRAY_OK);
    assert_int_equal(p.pack.rows, 7);
    assert_null(p.pack.parent);
    batch.share_prompts = 1; /* behind the end of an older batch */
    LACK_MEMBER(xray_batch, batch, share_prompts, LACK_ENDS);
    assert_int_equal(xm_packer_fill(f->packer, &batch, 0, &err, &p), XRAY_OK);
    assert_int_equal(p.pack.rows, 7);
    assert_null(p.pack.parent);
}

static void rows_that_share_a_prompt_have_a_parent(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, rig_device_open(1));
    check_families(&f);
    xm_packer_destroy(f.packer);
    rig_device_close(&f.device);
}

/* A device that does not support parent rows gets none. */
static void parents_are_packed_through_copies(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, plain_device_open());
    xray_batch batch = family_batch();
    xm_packed p;
    xr_err err;
    assert_int_equal(xm_packer_fill(f.packer, &batch, 0, &err, &p), XRAY_OK);
    assert_int_equal(p.pack.rows, 7);
    assert_null(p.pack.parent);
    xm_packer_destroy(f.packer);
}

static void no_mask_wants_all(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, rig_device_open(1));
    const int32_t ids[] = { 1, 2, 3, 4 };
    const int32_t start[] = { 0, 1, 4 };
    xray_batch batch = { .header = XRAY_HEADER(xray_batch),
                         .rows = 2,
                         .tokens = 4,
                         .ids = ids,
                         .row_start = start };
    xm_packed p;
    xr_err err;
    assert_int_equal(xm_packer_fill(f.packer, &batch, 0, &err, &p), XRAY_OK);
    assert_int_equal(p.pack.rows, 1); /* a single token predicts nothing */
    assert_int_equal(p.pack.tokens, 2);
    assert_int_equal(p.items.count, 2);
    assert_null(p.items.temperature);

    batch.rows = 0;
    batch.tokens = 0;
    assert_int_equal(xm_packer_fill(f.packer, &batch, 0, &err, &p), XRAY_OK);
    assert_int_equal(p.pack.rows, 0);
    assert_int_equal(p.items.count, 0);
    xm_packer_destroy(f.packer);
    rig_device_close(&f.device);
}

static void expect_refused(const fixture *f, const xray_batch *batch,
                           xray_status status, const char *part)
{
    xm_packed p;
    xr_err err = { "" };
    assert_int_equal(xm_packer_fill(f->packer, batch, 0, &err, &p), status);
    if (!strstr(err.text, part))
        fail_msg("\"%s\" does not say \"%s\"", err.text, part);
}

/* Tests which prompts are shared, down to the shortest, and what is packed
 * then. */
static void check_shared(fixture *f)
{
    static const struct {
        int32_t prompt;
        int32_t length; /* of each of the two rows */
        uint32_t tokens;
        uint32_t rows; /* two tokens: nothing is shared */
    } cases[] = {
        { 1, 3, 4, 2 }, { 2, 3, 3, 3 }, { 2, 4, 5, 3 },
        { 4, 5, 5, 3 }, { 4, 6, 7, 3 }, { 4, 4, 0, 0 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int32_t n = cases[i].length;
        int32_t ids[12];
        float mask[12];
        const int32_t start[] = { 0, n, 2 * n };
        const int32_t lengths[] = { cases[i].prompt, cases[i].prompt };
        const int32_t group[] = { 5, 5 };
        for (int32_t t = 0; t < 2 * n; t++) {
            ids[t] = t % n;
            mask[t] = t % n >= cases[i].prompt;
        }
        xray_batch batch = { .header = XRAY_HEADER(xray_batch),
                             .rows = 2,
                             .tokens = (uint32_t)(2 * n),
                             .ids = ids,
                             .row_start = start,
                             .loss_mask = mask,
                             .prompt_len = lengths,
                             .group = group,
                             .share_prompts = 1 };
        int32_t parents[3];
        xm_packed p;
        xr_err err;
        assert_int_equal(xm_packer_fill(f->packer, &batch, 0, &err, &p),
                         XRAY_OK);
        assert_int_equal(p.pack.tokens, cases[i].tokens);
        assert_int_equal(p.pack.rows, cases[i].rows);
        assert_int_equal(p.pack.parent != NULL, cases[i].rows == 3);
        if (!p.pack.parent)
            continue;
        fetch_array(f, p.pack.parent, parents, 3);
        for (int r = 0; r < 3; r++)
            assert_int_equal(parents[r], r ? 0 : -1);
    }
}

static void prompts_are_shared_only_where_wanted(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, rig_device_open(1));
    check_shared(&f);
    xm_packer_destroy(f.packer);
    rig_device_close(&f.device);
    /* The largest number of packed rows: every pair of rows shares a prompt. */
    static const uint64_t most[] = { 0, 1, 3, 4, 6, 7, 9, 10, 12 };
    for (uint64_t n = 0; n < 9; n++)
        assert_int_equal(xm_packed_rows(n), most[n]);
}

static void invalid_batches_are_refused(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, rig_device_open(1));
    int32_t ids[80] = { 0 };
    int32_t start[] = { 0, 10, 20 };
    float temperature[] = { 1, 1 };
    xray_batch batch = { .header = XRAY_HEADER(xray_batch),
                         .rows = 2,
                         .tokens = 20,
                         .ids = ids,
                         .row_start = start,
                         .temperature = temperature };
    xray_batch bad = batch;
    bad.tokens = 65;
    expect_refused(&f, &bad, XRAY_E_RANGE, "65 tokens in 2 rows");
    bad = batch;
    bad.rows = 9;
    expect_refused(&f, &bad, XRAY_E_RANGE, "for 64 tokens in 8 rows");
    start[1] = 13;
    expect_refused(&f, &batch, XRAY_E_RANGE, "row 0 has 13 tokens");
    start[1] = 10;
    start[2] = 19;
    expect_refused(&f, &batch, XRAY_E_ARG, "expected 0 to 20");
    start[2] = 20;
    start[1] = 21;
    expect_refused(&f, &batch, XRAY_E_ARG,
                   "row 0: row_start goes from 0 to 21");
    start[1] = 10;
    ids[14] = 50;
    expect_refused(&f, &batch, XRAY_E_RANGE,
                   "row 1, token 4: id 50 is outside");
    ids[14] = -1;
    expect_refused(&f, &batch, XRAY_E_RANGE, "id -1");
    ids[14] = 0;
    temperature[1] = 0;
    expect_refused(&f, &batch, XRAY_E_ARG, "row 1: temperature 0");
    temperature[1] = NAN;
    expect_refused(&f, &batch, XRAY_E_ARG, "row 1: temperature");
    xm_packer_destroy(f.packer);
    rig_device_close(&f.device);
}

/* A batch as large as the limits and a row as long as the limit are packed;
 * without their arrays they are refused. */
static void batches_at_the_limits_are_packed(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, rig_device_open(1));
    int32_t ids[64] = { 0 };
    int32_t start[9] = { 0, 12, 24, 36, 48, 60, 61, 62, 64 };
    ids[3] = 49; /* the last id of the vocabulary */
    xray_batch batch = { .header = XRAY_HEADER(xray_batch),
                         .rows = 8,
                         .tokens = 64,
                         .ids = ids,
                         .row_start = start };
    xm_packed packed;
    xr_err err = { "" };
    if (xm_packer_fill(f.packer, &batch, 0, &err, &packed) != XRAY_OK)
        fail_msg("%s", err.text);
    assert_int_equal(packed.pack.tokens, 5 * 11 + 1);
    assert_int_equal(packed.items.count, 5 * 11 + 1);
    xray_batch bare = batch;
    bare.ids = NULL;
    expect_refused(&f, &bare, XRAY_E_ARG,
                   "the batch has no ids or no row_start");
    bare = batch;
    bare.row_start = NULL;
    expect_refused(&f, &bare, XRAY_E_ARG,
                   "the batch has no ids or no row_start");
    bare.rows = bare.tokens = 0;
    assert_int_equal(xm_packer_fill(f.packer, &bare, 0, &err, &packed),
                     XRAY_OK);
    assert_int_equal(packed.pack.rows, 0);
    xm_packer_destroy(f.packer);
    for (int i = 0; i < 2; i++) {
        const xm_pack_limits large = { i ? 8 : (uint64_t)INT32_MAX + 1,
                                       i ? (uint64_t)INT32_MAX + 1 : 8, 12,
                                       50 };
        assert_int_equal(xm_packer_create(&large, f.device.ops, f.device.self,
                                          "test", &err, &f.packer),
                         XRAY_E_RANGE);
        assert_string_equal(
            err.text, i ? "test: a micro-batch of 8 tokens and 2147483648 rows "
                          "is larger than 2^31 - 1"
                        : "test: a micro-batch of 2147483648 tokens and 8 rows "
                          "is larger than 2^31 - 1");
    }
    rig_device_close(&f.device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_rows_are_packed),
        cmocka_unit_test(three_rows_are_packed_through_copies),
        cmocka_unit_test(copies_are_read_before_they_change),
        cmocka_unit_test(rows_that_share_a_prompt_have_a_parent),
        cmocka_unit_test(parents_are_packed_through_copies),
        cmocka_unit_test(no_mask_wants_all),
        cmocka_unit_test(prompts_are_shared_only_where_wanted),
        cmocka_unit_test(invalid_batches_are_refused),
        cmocka_unit_test(batches_at_the_limits_are_packed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
