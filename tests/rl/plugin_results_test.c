/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves, at the bounds, what is accepted from plugins and other processes, and
 * the sentence on what is not.
 */
#include <math.h>

#include "core/roles/nonfinite.h"
#include "core/roles/plugin_results.h"
#include "core/roles/wire.h"
#include "tests/rl/fake_roles.h"
#include "tests/testing.h"

static const xray_algo_ops no_select = { .header = XRAY_HEADER(xray_algo_ops) };
static xr_part part = { .instance = "x.fake", .ops = &no_select };

/* ---- bytes and names ---------------------------------------------------- */

static void sizes_that_plugins_want_are_bounded(void **state)
{
    (void)state;
    xr_err err = { "" };
    const uint64_t most = UINT64_C(1) << 30;
    assert_int_equal(xr_check_wanted_size(&part, "save", most, &err), XRAY_OK);
    assert_int_equal(xr_check_wanted_size(&part, "save", 0, &err), XRAY_OK);
    assert_int_equal(xr_check_wanted_size(&part, "save", most + 1, &err),
                     XRAY_E_BUG);
    assert_string_equal(err.text, "x.fake: save asks for 1073741825 bytes, at "
                                  "most 1073741824 are allowed");
    assert_int_equal(xr_check_written_size(&part, "load", 7, 7, &err), XRAY_OK);
    assert_int_equal(xr_check_written_size(&part, "load", 8, 7, &err),
                     XRAY_E_BUG);
    assert_string_equal(err.text, "x.fake: load says that it wrote 8 bytes "
                                  "where 7 fit");
}

static void lists_of_names_must_end(void **state)
{
    (void)state;
    static const char *names[1027];
    xr_err err = { "" };
    uint64_t count = 99;
    assert_int_equal(xr_check_metric_names(&part, NULL, &err, &count),
                     XRAY_E_BUG);
    assert_string_equal(err.text, "x.fake: metric_names gave no list");
    assert_int_equal(xr_check_metric_names(&part, names, &err, &count),
                     XRAY_OK);
    assert_int_equal(count, 0);
    for (size_t i = 0; i < 1024; i++)
        names[i] = "n";
    assert_int_equal(xr_check_metric_names(&part, names, &err, &count),
                     XRAY_OK);
    assert_int_equal(count, 1024);
    names[1024] = names[1025] = "n";
    assert_int_equal(xr_check_metric_names(&part, names, &err, &count),
                     XRAY_E_BUG);
    assert_string_equal(err.text, "x.fake: metric_names gave a list without an "
                                  "end within 1024 names");
    assert_int_equal(count, 1024);
}

static xray_status select_rows(void *self, const xray_batch *mini,
                               const float *logp, void *context, uint64_t size)
{
    (void)self;
    (void)mini;
    (void)logp;
    (void)context;
    (void)size;
    return XRAY_OK;
}

static void unknown_needs_are_refused(void **state)
{
    (void)state;
    static const xray_algo_ops selects = { .header = XRAY_HEADER(xray_algo_ops),
                                           .select = select_rows };
    static const uint32_t all[] = {
        XRAY_NEED_CRITIC,       XRAY_NEED_REFERENCE, XRAY_NEED_GREEDY,
        XRAY_NEED_GROUPS,       XRAY_NEED_ENTROPY,   XRAY_NEED_VALUE_HEAD,
        XRAY_NEED_MINI_FORWARD,
    };
    xr_part able = { .instance = "x.fake", .ops = &selects };
    xr_err err = { "" };
    uint32_t known = 0;
    for (size_t i = 0; i < 7; i++) {
        known |= all[i];
        assert_int_equal(xr_check_needs(&able, all[i], &err), XRAY_OK);
        assert_int_equal(xr_check_needs(&part, all[i], &err),
                         i == 6 ? XRAY_E_ABI : XRAY_OK);
    }
    assert_string_equal(err.text, "x.fake: needs XRAY_NEED_MINI_FORWARD, and "
                                  "has no select that would read it");
    uint32_t next = 1;
    while (next & known)
        next <<= 1;
    char want[100];
    assert_int_equal(xr_check_needs(&able, known | next, &err), XRAY_E_ABI);
    (void)snprintf(want, sizeof(want),
                   "x.fake: needs has the bits 0x%x, which this xray does not "
                   "know",
                   next);
    assert_string_equal(err.text, want);
}

/* ---- weights ------------------------------------------------------------ */

static uint64_t table_version(void *owner)
{
    (void)owner;
    return 1;
}

static float values[4];
static xray_tensor tensors[2];
static xray_weights table;

static void fill_table(void)
{
    static const xray_device_ops device;
    for (size_t i = 0; i < 2; i++)
        tensors[i] = (xray_tensor){ .name = i ? "second" : "first",
                                    .dims = 2,
                                    .shape = { 2, 3 },
                                    .first = 2,
                                    .count = 4,
                                    .data = values };
    table = (xray_weights){ .header = XRAY_HEADER(xray_weights),
                            .tensor_count = 2,
                            .tensor_stride = sizeof(xray_tensor),
                            .tensors = tensors,
                            .device = &device,
                            .version = table_version };
}

static void expect_table(const char *want)
{
    xr_err err = { "" };
    assert_int_equal(xr_check_weights_table(&part, &table, &err),
                     *want ? XRAY_E_BUG : XRAY_OK);
    assert_string_equal(err.text, want);
    fill_table();
}

static void tables_of_weights_are_checked(void **state)
{
    (void)state;
    xr_err err = { "" };
    char want[200];
    fill_table();
    assert_int_equal(xr_check_weights_table(&part, NULL, &err), XRAY_E_BUG);
    assert_string_equal(err.text, "x.fake gave no table of weights");
    expect_table("");
#define HEADLESS \
    "x.fake gave a table of weights without header, device or version"
    table.version = NULL;
    expect_table(HEADLESS);
    table.device = NULL;
    expect_table(HEADLESS);
    table.header.size = 16;
    expect_table(HEADLESS);
    table.tensor_count = 0;
    table.tensors = NULL;
    table.tensor_stride = 0;
    expect_table("");
    table.tensors = NULL;
    (void)snprintf(want, sizeof(want),
                   "x.fake gave a table of 2 tensors of %zu bytes, up to "
                   "1048576 of at least %zu are expected",
                   sizeof(xray_tensor), sizeof(xray_tensor));
    expect_table(want);
    for (int wrong = 0; wrong < 2; wrong++) {
        table.tensor_stride =
            (uint32_t)sizeof(xray_tensor) + (wrong ? 4 : 0) - (wrong ? 0 : 8);
        (void)snprintf(want, sizeof(want),
                       "x.fake gave a table of 2 tensors of %u bytes, up to "
                       "1048576 of at least %zu are expected",
                       table.tensor_stride, sizeof(xray_tensor));
        expect_table(want);
    }
    table.tensor_count = (1u << 20) + 1;
    xr_err text = { "" };
    assert_int_equal(xr_check_weights_table(&part, &table, &text), XRAY_E_BUG);
    assert_non_null(strstr(text.text, "a table of 1048577 tensors"));
    fill_table();
}

#define WRONG(i, name) \
    "x.fake gave a table of weights whose tensor " #i " (" name ") is wrong: "

static void tensors_of_a_table_are_checked(void **state)
{
    (void)state;
    fill_table();
    tensors[1].name = NULL;
    expect_table(WRONG(1, "") "it has no name");
    tensors[0].name = "";
    expect_table(WRONG(0, "") "it has no name");
    tensors[1].dims = 5;
    expect_table(WRONG(1, "second") "it has more dimensions than its shape "
                                    "holds");
    tensors[1].dims = 4;
    tensors[1].shape[2] = tensors[1].shape[3] = 1;
    expect_table("");
    tensors[0].shape[0] = UINT64_C(1) << 62;
    tensors[0].shape[1] = 1;
    expect_table(WRONG(0, "first") "its shape has more elements than can be");
    tensors[0].shape[0] = UINT64_C(1) << 40;
    tensors[0].shape[1] = UINT64_C(1) << 40;
    expect_table(WRONG(0, "first") "its shape has more elements than can be");
    tensors[0].shape[0] = (UINT64_C(1) << 62) - 1;
    tensors[0].shape[1] = 1;
    expect_table("");
    tensors[1].first = 3;
    expect_table(WRONG(1, "second") "its shard ends behind the tensor");
    tensors[1].first = 7;
    tensors[1].count = 0;
    expect_table(WRONG(1, "second") "its shard ends behind the tensor");
    tensors[1].count = UINT64_MAX;
    expect_table(WRONG(1, "second") "its shard ends behind the tensor");
    tensors[1].data = NULL;
    expect_table(WRONG(1, "second") "it has elements and no data");
    tensors[1].data = NULL;
    tensors[1].count = 0;
    tensors[1].first = 6; /* a rank may hold none of it */
    expect_table("");
    tensors[0].dims = 0; /* a scalar */
    tensors[0].first = 0;
    tensors[0].count = 1;
    expect_table("");
}

/* ---- samples ------------------------------------------------------------ */

static const int32_t tokens[] = { 0, 9, 3 };
static const int32_t high[] = { 0, 10, 3 };
static const int32_t low[] = { 0, 9, -1 };
static const float finite[] = { -1, 0, -2 };

static void samples_of_an_engine_are_checked(void **state)
{
    (void)state;
    const float bad[] = { -1, 0, (float)NAN };
    const float big[] = { -INFINITY, 0, 0 };
    static const struct xray_span span;
    const xray_sample_out good = { .tokens = tokens,
                                   .token_count = 3,
                                   .finish = XRAY_FINISH_STOP };
    xr_run run = { .infer.instance = "infer.fake",
                   .actor.model.vocab_size = 10 };
    xr_roles s;
    make_fake_roles(&run, &s);
    struct {
        xray_sample_out sample;
        const float *logp;
        xray_status status;
        const char *want;
    } cases[16];
    size_t n = 0;
#define ADD(lp, st, sentence, ...)    \
    do {                              \
        cases[n].sample = good;       \
        __VA_ARGS__;                  \
        cases[n].logp = (lp);         \
        cases[n].status = (st);       \
        cases[n++].want = (sentence); \
    } while (0)
#define SAMPLE cases[n].sample
    ADD(finite, XRAY_OK, "", (void)0);
    ADD(finite, XRAY_OK, "", SAMPLE.finish = XRAY_FINISH_ABORT);
    ADD(NULL, XRAY_OK, "", SAMPLE.token_count = 0; SAMPLE.tokens = NULL);
    ADD(finite, XRAY_OK, "", SAMPLE.span_count = 4; SAMPLE.spans = &span);
    ADD(finite, XRAY_E_BUG, "infer.fake gave sample 5 with 5 spans of 3 tokens",
        SAMPLE.span_count = 5;
        SAMPLE.spans = &span);
    ADD(finite, XRAY_E_BUG,
        "infer.fake gave sample 5 with 1 spans, but no array of them",
        SAMPLE.span_count = 1);
    ADD(finite, XRAY_E_BUG,
        "infer.fake gave sample 5 with 4 tokens, at most 3 were asked for",
        SAMPLE.token_count = 4);
    ADD(NULL, XRAY_E_BUG,
        "infer.fake gave sample 5 without tokens or log-probs", (void)0);
    ADD(finite, XRAY_E_BUG,
        "infer.fake gave sample 5 without tokens or log-probs",
        SAMPLE.tokens = NULL);
    ADD(finite, XRAY_E_BUG,
        "infer.fake gave sample 5 with finish 0, which is not a known reason",
        SAMPLE.finish = XRAY_FINISH_STOP - 1);
    ADD(finite, XRAY_E_BUG,
        "infer.fake gave sample 5 with finish 4, which is not a known reason",
        SAMPLE.finish = XRAY_FINISH_ABORT + 1);
    ADD(finite, XRAY_E_BUG,
        "infer.fake gave the id 10 for token 1 of sample 5, which is outside "
        "the vocabulary of 10",
        SAMPLE.tokens = high);
    ADD(finite, XRAY_E_BUG,
        "infer.fake gave the id -1 for token 2 of sample 5, which is outside "
        "the vocabulary of 10",
        SAMPLE.tokens = low);
    ADD(bad, XRAY_E_NUMERIC,
        "infer.fake gave the log-prob nan for token 2 of sample 5, expected a "
        "finite number",
        (void)0);
    ADD(big, XRAY_E_NUMERIC,
        "infer.fake gave the log-prob -inf for token 0 of sample 5, expected "
        "a finite number",
        (void)0);
    for (size_t i = 0; i < n; i++) {
        xr_err err = { "" };
        s.nonfinite = 0;
        assert_int_equal(
            xr_check_sample(&s, &cases[i].sample, cases[i].logp, 5, 3, &err),
            cases[i].status);
        assert_string_equal(err.text, cases[i].want);
        assert_int_equal(s.nonfinite, cases[i].status == XRAY_E_NUMERIC);
    }
}

/* ---- between processes -------------------------------------------------- */

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
                                   .views = 4,
                                   .outputs = 6,
                                   .loss = 1,
                                   .prompts = 2,
                                   .fault = "old" };
    int32_t ids[] = { 1, 2, 3, 4 };
    float logp[] = { -1, -2 };
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
    for (int i = 0; i < 2; i++)
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
    assert_string_equal(b.header->fault, "");
    assert_int_equal(b.rows.batch.rows, 2);
    assert_int_equal(b.rows.batch.tokens, 8);
    assert_int_equal(b.rows.batch.span_count, 2);
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
    for (int i = 0; i < 6; i++) {
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
        cmocka_unit_test(sizes_that_plugins_want_are_bounded),
        cmocka_unit_test(lists_of_names_must_end),
        cmocka_unit_test(unknown_needs_are_refused),
        cmocka_unit_test(tables_of_weights_are_checked),
        cmocka_unit_test(tensors_of_a_table_are_checked),
        cmocka_unit_test(samples_of_an_engine_are_checked),
        cmocka_unit_test(batches_arrive_as_they_were_sent),
        cmocka_unit_test(headers_that_claim_too_much_are_refused),
        cmocka_unit_test(prompts_arrive_as_they_were_sent),
        cmocka_unit_test(prompts_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests_name("rl.plugin_results", tests, NULL, NULL);
}
