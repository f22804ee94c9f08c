/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves how messages name collective calls, what a request needs, and which
 * arguments a collective may have.
 */
#include "core/base/collective.h"

#include <xray/infer.h>

#include "core/base/infer_needs.h"
#include "tests/testing.h"

/* ---- names -------------------------------------------------------------- */

static void calls_are_named_with_what_matters(void **state)
{
    (void)state;
    static const struct {
        xr_collective call;
        const char *want;
    } cases[] = {
        { { XRAY_COMM_ALL_REDUCE, XRAY_F32, 64, 1, 2, 3 },
          "all_reduce of 64 bytes of f32" },
        { { XRAY_COMM_ALL_REDUCE_MAX, XRAY_BF16, 2, 1, 2, 3 },
          "all_reduce_max of 2 bytes of bf16" },
        { { XRAY_COMM_REDUCE_SCATTER, XRAY_F16, 8, 1, 2, 3 },
          "reduce_scatter of 8 bytes of f16" },
        { { XRAY_COMM_REDUCE_SCATTER, 4, 8, 1, 2, 3 },
          "reduce_scatter of 8 bytes" },
        { { XRAY_COMM_ALL_GATHER, XRAY_F32, 8, 1, 2, 3 },
          "all_gather of 8 bytes" },
        { { XRAY_COMM_ALL_TO_ALL, XRAY_F32, 8, 1, 2, 3 },
          "all_to_all of 8 bytes" },
        { { XRAY_COMM_BROADCAST, XRAY_F32, 8, 1, 2, 3 },
          "broadcast of 8 bytes from rank 1" },
        { { XRAY_COMM_RECV, XRAY_F32, 8, 1, 2, 3 },
          "recv of 8 bytes from rank 1" },
        { { XRAY_COMM_SEND, XRAY_F32, 8, 1, 2, 3 },
          "send of 8 bytes to rank 1" },
        { { XRAY_COMM_EXCHANGE, XRAY_F32, 8, 1, 2, 3 },
          "exchange of 8 bytes to rank 1 and 3 bytes from rank 2" },
        { { 0, 0, 0, 0, 0, 0 }, "no call of 0 bytes" },
        { { 1000, 0, 0, 0, 0, 0 }, "a call of 0 bytes" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[100] = "";
        xr_sentence s = { .text = text, .cap = sizeof(text) };
        xr_collective_print(&s, &cases[i].call);
        assert_string_equal(text, cases[i].want);
        assert_int_equal(s.used, strlen(text));
    }
}

static void sentences_end_with_their_buffer(void **state)
{
    (void)state;
    char text[9] = "12345678";
    xr_sentence s = { .text = text, .cap = 8 };
    xr_sentence_printf(&s, "%s", "abc");
    xr_sentence_printf(&s, "%d", 1234);
    assert_string_equal(text, "abc1234");
    assert_int_equal(s.used, 7);
    for (int i = 0; i < 2; i++) {
        xr_sentence_printf(&s, "too long");
        assert_string_equal(text, "abc1234");
        assert_int_equal(s.used, 7);
    }
    s.used = 5;
    xr_sentence_printf(&s, "too long");
    assert_string_equal(text, "abc12to");
}

static void needs_are_named_one_by_one(void **state)
{
    (void)state;
    static const struct {
        uint64_t bits;
        const char *name;
    } needs[] = {
        { XRAY_INFER_TRUNCATION, "top_p, min_p or top_k" },
        { XRAY_INFER_STREAM, "stream" },
        { XRAY_INFER_ABORT_SAMPLE, "the abort of one sample" },
        { XRAY_INFER_UPDATE_RUNNING, "an update under running requests" },
        { XRAY_INFER_STOP_LISTS, "stop_lists" },
        { XRAY_INFER_REPEATS, "repeat_size" },
        { XRAY_INFER_MIN_TOKENS, "min_tokens" },
        { XRAY_INFER_PENALTIES, "a penalty" },
        { XRAY_INFER_BIASES, "biases" },
        { XRAY_INFER_MASKS, "allowed_ids or banned_lists" },
        { XRAY_INFER_FORCED_IDS, "forced_ids" },
        { XRAY_INFER_TOP_LOGP, "top_count" },
        { XRAY_INFER_LOGP_IDS, "logp_ids" },
        { XRAY_INFER_PROMPT_LOGP, "prompt_logp" },
    };
    for (size_t i = 0; i < sizeof(needs) / sizeof(needs[0]); i++)
        assert_string_equal(xr_infer_need_name(needs[i].bits), needs[i].name);
    assert_null(xr_infer_need_name(0));
    assert_non_null(
        xr_infer_need_name(XRAY_INFER_BIASES | XRAY_INFER_PENALTIES));
}

static void kinds_of_devices_are_their_first_word(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t is_cuda;
    } cases[] = { { "cuda", 1 },  { "cuda:0", 1 }, { "cuda:", 1 },
                  { "cudas", 0 }, { "cud", 0 },    { "cpu", 0 },
                  { "", 0 },      { NULL, 0 },     { "xcuda", 0 } };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(xr_collective_is_kind(cases[i].name, "cuda"),
                         cases[i].is_cuda);
}

/* ---- arguments ---------------------------------------------------------- */

static char said[200];

static xray_status keep_failure(const xray_host *host, xray_status status,
                                const char *where, const char *text)
{
    (void)host;
    (void)snprintf(said, sizeof(said), "%s: %s", where, text);
    return status;
}

static const xray_host host = { .header = XRAY_HEADER(xray_host),
                                .fail = keep_failure };

static void expect_status(xray_status got, xray_status want, const char *says)
{
    assert_int_equal(got, want);
    assert_string_equal(said, says);
    said[0] = '\0';
}

static void calls_have_elements_and_buffers(void **state)
{
    (void)state;
    static float data[4];
    static const struct {
        uint32_t call;
        int in;
        int out;
        uint64_t count;
        uint32_t dtype;
        xray_status status;
        const char *says;
    } cases[] = {
        { XRAY_COMM_ALL_REDUCE, 0, 1, 4, XRAY_F32, XRAY_OK, "" },
        { XRAY_COMM_ALL_REDUCE_MAX, 0, 1, 4, XRAY_BF16, XRAY_OK, "" },
        { XRAY_COMM_ALL_REDUCE, 1, 0, 4, XRAY_F32, XRAY_E_ARG,
          "all_reduce: a pointer is NULL" },
        { XRAY_COMM_ALL_REDUCE, 0, 0, 0, XRAY_F32, XRAY_OK, "" },
        { XRAY_COMM_ALL_GATHER, 0, 1, 4, XRAY_F32, XRAY_E_ARG,
          "all_gather: a pointer is NULL" },
        { XRAY_COMM_ALL_GATHER, 1, 0, 4, XRAY_F32, XRAY_E_ARG,
          "all_gather: a pointer is NULL" },
        { XRAY_COMM_ALL_GATHER, 1, 1, 4, XRAY_F16, XRAY_OK, "" },
        { XRAY_COMM_ALL_REDUCE, 1, 1, 4, XRAY_F16, XRAY_E_UNSUPPORTED,
          "all_reduce: no call for elements of type 3" },
        { XRAY_COMM_ALL_REDUCE_MAX, 1, 1, 4, XRAY_F16, XRAY_E_UNSUPPORTED,
          "all_reduce_max: no call for elements of type 3" },
        { XRAY_COMM_REDUCE_SCATTER, 1, 1, 4, XRAY_F16, XRAY_E_UNSUPPORTED,
          "reduce_scatter: no call for elements of type 3" },
        { XRAY_COMM_BROADCAST, 1, 1, 4, 99, XRAY_E_UNSUPPORTED,
          "broadcast: no call for elements of type 99" },
        { XRAY_COMM_BROADCAST, 1, 1, 4, 0, XRAY_E_UNSUPPORTED,
          "broadcast: no call for elements of type 0" },
        { XRAY_COMM_ALL_GATHER, 1, 1, UINT64_MAX, XRAY_F32, XRAY_E_RANGE,
          "all_gather: 18446744073709551615 bytes are too many" },
        { XRAY_COMM_ALL_GATHER, 1, 1, UINT64_MAX / 16384 / 4 + 1, XRAY_F32,
          XRAY_E_RANGE, "all_gather: 1125899906842624 bytes are too many" },
        { XRAY_COMM_ALL_GATHER, 1, 1, UINT64_MAX / 16384 / 4, XRAY_F32, XRAY_OK,
          "" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        expect_status(xr_collective_check_call(&host, cases[i].call,
                                               cases[i].in ? data : NULL,
                                               cases[i].out ? data : NULL,
                                               cases[i].count, cases[i].dtype),
                      cases[i].status, cases[i].says);
    assert_int_equal(xr_collective_width(XRAY_F32), 4);
    assert_int_equal(xr_collective_width(XRAY_BF16), 2);
    assert_int_equal(xr_collective_width(XRAY_F16), 2);
    assert_int_equal(xr_collective_width(0), 0);
}

static void ranks_of_a_group_ascend(void **state)
{
    (void)state;
    static const struct {
        uint32_t ranks[3];
        uint32_t count;
        const char *says;
    } cases[] = {
        { { 0, 1, 3 }, 3, "" },
        { { 1 }, 1, "" },
        { { 1, 4 }, 2, "group: rank 4: ranks must ascend and be below 4" },
        { { 1, 1 }, 2, "group: rank 1: ranks must ascend and be below 4" },
        { { 2, 1 }, 2, "group: rank 1: ranks must ascend and be below 4" },
        { { 4, 1 }, 2, "group: rank 4: ranks must ascend and be below 4" },
        { { 0, 3 }, 2, "group: this rank, 1, is not among the group's" },
        { { 1 }, 0, "group: this rank, 1, is not among the group's" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        expect_status(xr_collective_check_ranks(&host, cases[i].ranks,
                                                cases[i].count, 1, 4),
                      *cases[i].says ? XRAY_E_ARG : XRAY_OK, cases[i].says);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_are_named_with_what_matters),
        cmocka_unit_test(sentences_end_with_their_buffer),
        cmocka_unit_test(needs_are_named_one_by_one),
        cmocka_unit_test(kinds_of_devices_are_their_first_word),
        cmocka_unit_test(calls_have_elements_and_buffers),
        cmocka_unit_test(ranks_of_a_group_ascend),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
