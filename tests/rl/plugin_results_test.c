/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves, at the bounds, what is accepted from plugins, and the sentence on
 * what is not.
 */
#include <math.h>

#include "core/roles/nonfinite.h"
#include "core/roles/plugin_results.h"
#include "tests/growth.h"
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
    xray_algo_ops older = selects;
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
    const char *lacks = "x.fake: needs XRAY_NEED_MINI_FORWARD, and has no "
                        "select that would read it";
    assert_string_equal(err.text, lacks);
    LACK_MEMBER(xray_algo_ops, older, select, LACK_ENDS);
    xr_part short_of_it = { .instance = "x.fake", .ops = &older };
    err.text[0] = '\0';
    assert_int_equal(xr_check_needs(&short_of_it, all[6], &err), XRAY_E_ABI);
    assert_string_equal(err.text, lacks);
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
                                    .lo = { 0, 1 },
                                    .extent = { 2, 2 },
                                    .stride = { 2, 1 },
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
    tensors[1].extent[2] = tensors[1].extent[3] = 1;
    expect_table("");
    tensors[0].shape[0] = UINT64_C(1) << 62;
    tensors[0].shape[1] = 1;
    expect_table(WRONG(0, "first") "its shape has more elements than can be");
    tensors[0].shape[0] = UINT64_C(1) << 40;
    tensors[0].shape[1] = UINT64_C(1) << 40;
    expect_table(WRONG(0, "first") "its shape has more elements than can be");
    tensors[0].shape[0] = (UINT64_C(1) << 62) - 1;
    tensors[0].shape[1] = 1;
    tensors[0].lo[1] = 0;
    tensors[0].extent[1] = 1;
    expect_table("");
    tensors[1].data = NULL;
    expect_table(WRONG(1, "second") "it has elements and no data");
    tensors[1].data = NULL;
    tensors[1].extent[0] = 0; /* a rank may hold none of it */
    expect_table("");
    tensors[0].dims = 0; /* a scalar */
    expect_table("");
}

#define OUTSIDE "its box reaches outside of its shape"

static void boxes_of_a_table_are_checked(void **state)
{
    (void)state;
    fill_table();
    tensors[1].lo[1] = 2;
    expect_table(WRONG(1, "second") OUTSIDE);
    tensors[1].lo[0] = 3;
    tensors[1].extent[0] = 0;
    expect_table(WRONG(1, "second") OUTSIDE);
    tensors[1].extent[0] = UINT64_MAX;
    expect_table(WRONG(1, "second") OUTSIDE);
    tensors[0].stride[1] = 2;
    expect_table(WRONG(0, "first") "the stride of its last axis is not 1");
    tensors[0].stride[0] = 1;
    expect_table(WRONG(0, "first") "a stride is shorter than what it steps "
                                   "over");
    tensors[0].stride[0] = UINT64_C(1) << 62;
    expect_table(WRONG(0, "first") "its strides reach further than can be");
    tensors[0].stride[0] = 100; /* storage may be larger than the shape */
    expect_table("");
    /* An axis of one index may have any stride. */
    tensors[0].extent[1] = 1;
    tensors[0].stride[1] = 0;
    expect_table("");
    /* Several boxes of one tensor. */
    tensors[1].name = tensors[0].name;
    expect_table(WRONG(1, "first") "it has elements that a box before it has, "
                                   "too");
    tensors[1].name = tensors[0].name;
    tensors[1].lo[0] = tensors[1].extent[0] = 1; /* one in common: (1, 1) */
    tensors[1].lo[1] = 0;
    expect_table(WRONG(1, "first") "it has elements that a box before it has, "
                                   "too");
    tensors[1].name = tensors[0].name;
    tensors[1].lo[1] = 0;
    tensors[1].extent[1] = 1;
    expect_table("");
    tensors[1].name = tensors[0].name;
    tensors[1].dtype = XRAY_BF16;
    expect_table(WRONG(1, "first") "its type or shape is not that of its box "
                                   "before");
    for (uint32_t d = 0; d < 2; d++) {
        tensors[1].name = tensors[0].name;
        tensors[1].shape[d] = 9;
        expect_table(WRONG(1, "first") "its type or shape is not that of its "
                                       "box before");
    }
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
    ADD(finite, XRAY_OK, "", SAMPLE.span_count = 4; SAMPLE.spans = &span;
        SAMPLE.span_stride = sizeof(span));
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
        "infer.fake gave sample 5 with finish 5, which is not a known reason",
        SAMPLE.finish = XRAY_FINISH_REPEAT + 1);
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

static void expect_part_refused(xr_roles *s, const xray_sample_out *piece,
                                uint32_t given, const char *want)
{
    xr_err err = { "" };
    assert_int_equal(xr_check_sample_part(s, piece, finite, 5, given, 5, &err),
                     XRAY_E_BUG);
    assert_string_equal(err.text, want);
}

/* Only a streamed sample comes in parts, and spans are read by their stride. */
static void parts_and_spans_of_a_sample(void **state)
{
    (void)state;
    static const struct xray_span span;
    xray_sample_out sample = { .tokens = tokens,
                               .token_count = 3,
                               .finish = XRAY_FINISH_REPEAT,
                               .spans = &span,
                               .span_count = 1,
                               .span_stride = 16 };
    xr_run run = { .infer.instance = "infer.fake",
                   .actor.model.vocab_size = 10 };
    xr_roles s;
    xr_err err = { "" };
    make_fake_roles(&run, &s);
    assert_int_equal(xr_check_sample(&s, &sample, finite, 5, 3, &err),
                     XRAY_E_BUG);
    assert_string_equal(err.text, "infer.fake gave sample 5 with spans of 16 "
                                  "bytes, expected at least 24");
    sample.span_stride = 24;
    assert_int_equal(xr_check_sample(&s, &sample, finite, 5, 3, &err), XRAY_OK);
    sample.first = 2;
    assert_int_equal(xr_check_sample(&s, &sample, finite, 5, 3, &err),
                     XRAY_E_BUG);
    assert_string_equal(err.text, "infer.fake gave sample 5 from token 2 on, "
                                  "after 0 tokens of it");
    for (uint32_t finish = 0; finish <= XRAY_FINISH_REPEAT; finish++) {
        sample.finish = finish;
        assert_int_equal(
            xr_check_sample_part(&s, &sample, finite, 5, 2, 5, &err), XRAY_OK);
    }
    expect_part_refused(&s, &sample, 1,
                        "infer.fake gave sample 5 from token 2 on, after 1 "
                        "tokens of it");
    sample.token_count = 4;
    expect_part_refused(&s, &sample, 2,
                        "infer.fake gave sample 5 with 6 tokens, at most 5 "
                        "were asked for");
    sample.token_count = 0;
    assert_int_equal(xr_check_sample_part(&s, &sample, finite, 5, 2, 5, &err),
                     XRAY_OK);
    sample.finish = XRAY_FINISH_NONE;
    expect_part_refused(&s, &sample, 2,
                        "infer.fake gave a part of sample 5 that has no token "
                        "and is not its end");
    sample.finish = 5;
    expect_part_refused(&s, &sample, 2,
                        "infer.fake gave sample 5 with finish 5, which is not "
                        "a known reason");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_that_plugins_want_are_bounded),
        cmocka_unit_test(lists_of_names_must_end),
        cmocka_unit_test(unknown_needs_are_refused),
        cmocka_unit_test(tables_of_weights_are_checked),
        cmocka_unit_test(tensors_of_a_table_are_checked),
        cmocka_unit_test(boxes_of_a_table_are_checked),
        cmocka_unit_test(samples_of_an_engine_are_checked),
        cmocka_unit_test(parts_and_spans_of_a_sample),
    };
    return cmocka_run_group_tests_name("rl.plugin_results", tests, NULL, NULL);
}
