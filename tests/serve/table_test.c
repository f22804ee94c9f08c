/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests what a request may wish of the logits, on the engine of the project
 * outside the tree, a table that offers all of it. Its rows are equal, so that
 * the right tokens can be found by hand: greedy sampling takes 1, then 2, 0, 3.
 */
#include "tests/growth.h"

#include <math.h>

#include "tests/out-of-tree/project/table.h"

enum { VOCAB = 4, MOST = 6 };

static const float logits[VOCAB] = { 1, 3, 2, -1 };
static const int32_t prompt[] = { 1, 2 };
static char said[200];

static xray_status host_fail(const xray_host *host, xray_status code,
                             const char *where, const char *msg)
{
    (void)host;
    (void)where;
    (void)snprintf(said, sizeof(said), "%s", msg);
    return code;
}

static const xray_host host = { .header = XRAY_HEADER(xray_host),
                                .fail = host_fail };

static int set_up(void **state)
{
    float values[VOCAB * VOCAB];
    for (int i = 0; i < VOCAB * VOCAB; i++)
        values[i] = logits[i % VOCAB];
    const xray_model model = { .header = XRAY_HEADER(xray_model),
                               .vocab_size = VOCAB,
                               .max_positions = 20,
                               .random_init = 1 };
    const xray_setup setup = { .header = XRAY_HEADER(xray_setup),
                               .host = &host,
                               .model = &model };
    const xray_workload load = { .header = XRAY_HEADER(xray_workload) };
    const xray_tensor tensor = { .name = "table",
                                 .dims = 2,
                                 .shape = { VOCAB, VOCAB },
                                 .extent = { VOCAB, VOCAB },
                                 .stride = { VOCAB, 1 },
                                 .data = values };
    const xray_weights table = { .header = XRAY_HEADER(xray_weights),
                                 .tensor_count = 1,
                                 .tensors = &tensor };
    assert_int_equal(table_infer_ops.create(&setup, NULL, &load, state),
                     XRAY_OK);
    assert_int_equal(table_infer_ops.update(*state, &table, 3), XRAY_OK);
    return 0;
}

static int tear_down(void **state)
{
    table_infer_ops.destroy(*state);
    return 0;
}

static xray_request make_request(void)
{
    return (xray_request){ .header = XRAY_HEADER(xray_request),
                           .ids = prompt,
                           .id_count = 2,
                           .count = 1,
                           .max_tokens = MOST,
                           .top_p = 1 };
}

/* The log-prob of an id, computed apart from the engine. */
static double logp_of(int32_t id)
{
    double sum = 0;
    for (int i = 0; i < VOCAB; i++)
        sum += exp((double)logits[i]);
    return (double)logits[id] - log(sum);
}

static void expect_near(float got, double want)
{
    assert_true(fabs((double)got - want) < 1e-6);
}

/* Runs a request; whatever it wishes, log-probs are those of the model. */
static xray_sample_out run_request(void *engine, const xray_request *q)
{
    xray_sample_out out = { .header = XRAY_HEADER(xray_sample_out) };
    assert_int_equal(table_infer_ops.submit(engine, q), XRAY_OK);
    assert_int_equal(table_infer_ops.poll(engine, &out), XRAY_AGAIN);
    assert_int_equal(table_infer_ops.step(engine), XRAY_END);
    assert_int_equal(table_infer_ops.poll(engine, &out), XRAY_OK);
    assert_int_equal(out.spans->version, 3);
    for (uint32_t i = 0; i < out.token_count; i++) {
        expect_near(out.raw_logp[i], logp_of(out.tokens[i]));
        expect_near(out.logp[i], logp_of(out.tokens[i]));
    }
    return out;
}

/* `want` holds a digit for each token. */
static void expect_tokens(void *engine, const xray_request *q, const char *want)
{
    char got[MOST + 1] = "";
    const xray_sample_out out = run_request(engine, q);
    for (uint32_t i = 0; i < out.token_count; i++)
        got[i] = (char)('0' + out.tokens[i]);
    assert_string_equal(got, want);
}

static void masks_and_biases(void **state)
{
    static const int32_t some[] = { 0, 3 };
    static const int32_t one[] = { 1, 1 };
    const xray_id_list lists[] = { { one, 2, 0 }, { one, 1, 0 } };
    const struct {
        xray_bias bias;
        uint64_t more; /* as in a later version */
    } biases[] = { { { 3, 5 }, 0 }, { { 1, -1.5f }, 0 } };
    xray_request q = make_request();
    expect_tokens(*state, &q, "111111");
    q.allowed_ids = some;
    q.allowed_count = 2;
    expect_tokens(*state, &q, "000000");
    q = make_request();
    q.banned_lists = lists;
    q.banned_list_stride = sizeof(lists[0]);
    q.banned_list_count = 1;
    expect_tokens(*state, &q, "121212");
    q.banned_list_count = 2;
    expect_tokens(*state, &q, "222222");
    q = make_request();
    q.biases = &biases[0].bias;
    q.bias_stride = sizeof(biases[0]);
    q.bias_count = 1;
    expect_tokens(*state, &q, "333333");
    q.biases = &biases[1].bias;
    expect_tokens(*state, &q, "222222");
}

static void ends_wait_for_min_tokens(void **state)
{
    static const int32_t stop[] = { 1 };
    xray_request q = make_request();
    q.stop_ids = stop;
    q.stop_count = 1;
    expect_tokens(*state, &q, "1");
    q.min_tokens = 2;
    expect_tokens(*state, &q, "221");
    q.min_tokens = 9;
    expect_tokens(*state, &q, "222222");
}

static void penalties(void **state)
{
    xray_request q = make_request();
    q.repetition_penalty = 1;
    expect_tokens(*state, &q, "111111");
    /* 1 and 2 are in the prompt: 0.75 and 0.5; then 0 has 0.25. */
    q.repetition_penalty = 4;
    expect_tokens(*state, &q, "011111");
    q = make_request();
    q.frequency_penalty = 0.6f;
    expect_tokens(*state, &q, "112121");
    q = make_request();
    q.presence_penalty = 1.5f;
    expect_tokens(*state, &q, "121111");
}

static void forced_ids_and_log_probs(void **state)
{
    static const int32_t forced[] = { 3, 0 };
    xray_request q = make_request();
    q.forced_ids = forced;
    q.forced_count = 2;
    expect_tokens(*state, &q, "301111");
    q.top_count = 3;
    q.logp_ids = forced;
    q.logp_id_count = 2;
    q.prompt_logp = 1;
    const xray_sample_out out = run_request(*state, &q);
    static const int32_t top[] = { 1, 2, 0 };
    assert_int_equal(out.top_count, 3);
    for (uint32_t i = 0; i < MOST; i++) {
        assert_memory_equal(out.top_ids + (size_t)i * 3, top, sizeof(top));
        expect_near(out.top_logp[i * 3 + 2], logp_of(0));
        expect_near(out.logp_of_ids[i * 2], logp_of(3));
        expect_near(out.logp_of_ids[i * 2 + 1], logp_of(0));
    }
    assert_int_equal(out.prompt_count, 2);
    expect_near(out.prompt_logp[0], 0);
    expect_near(out.prompt_logp[1], logp_of(2));
}

static void the_rest_is_refused(void **state)
{
    xray_request q = make_request();
    q.top_k = 2;
    assert_int_equal(table_infer_ops.submit(*state, &q), XRAY_E_UNSUPPORTED);
    assert_non_null(strstr(said, "a table knows no top_p"));
    q = make_request();
    q.stream = 1;
    assert_int_equal(table_infer_ops.submit(*state, &q), XRAY_E_UNSUPPORTED);
    assert_int_equal(table_infer_ops.abort(*state, 0, 1), XRAY_E_UNSUPPORTED);
    xray_sample_out out = { .header = XRAY_HEADER(xray_sample_out) };
    assert_int_equal(table_infer_ops.step(*state), XRAY_END);
    assert_int_equal(table_infer_ops.poll(*state, &out), XRAY_END);
}

/* A caller that was compiled against an older version. */
static void structs_of_older_callers_are_filled(void **state)
{
    const xray_model model = { .header = XRAY_HEADER(xray_model),
                               .config_json = "{\"model_type\": \"table\"}",
                               .vocab_size = VOCAB };
    const xray_world world = { .header = XRAY_HEADER(xray_world), .size = 1 };
    xray_sample_out out;
    xray_infer_stats stats;
    xray_plan plan;
    xray_request q = make_request();
    q.count = sizeof(out) / 8;
    assert_int_equal(table_infer_ops.submit(*state, &q), XRAY_OK);
    assert_int_equal(table_infer_ops.step(*state), XRAY_END);
    EXPECT_FILLED_IN_REACH(xray_sample_out, out, spans,
                           table_infer_ops.poll(*state, &out));
    assert_int_equal(table_infer_ops.poll(*state, &out), XRAY_END);
    EXPECT_FILLED_IN_REACH(xray_infer_stats, stats, generation_tokens,
                           table_infer_ops.stats(*state, &stats));
    EXPECT_FILLED_IN_REACH(
        xray_plan, plan, micro_multiple,
        table_infer_ops.plan(NULL, NULL, &model, &world, NULL, &plan));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(masks_and_biases),    TEST(ends_wait_for_min_tokens),
        TEST(penalties),           TEST(forced_ids_and_log_probs),
        TEST(the_rest_is_refused), TEST(structs_of_older_callers_are_filled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
