/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves every metric of xr_learner_stats against values computed by hand, and
 * how rows are dealt to replicas.
 */
#include "tests/testing.h"

#include <math.h>

#include "core/rl/learner.h"
#include "core/roles/balance.h"
#include "core/roles/plugin_metrics.h"
#include "tests/rl/fake_roles.h"

/* ---- statistics of a batch ---------------------------------------------- */

/* Prompts of 1, 2 and 1 tokens, responses of 3, 1 and 2 where 3 is the most. */
static const uint32_t prompt_size[] = { 1, 2, 1 };
static const uint32_t response_size[] = { 3, 1, 2 };
#define TOKENS 10

typedef struct fixture {
    float scratch[16];
    xr_rows rows;
    xr_samples samples;
    xr_run run;
    xr_roles roles;
    xr_learner learner;
} fixture;

static int set_up(void **state)
{
    /* For responses 7 8 9 | 4 | 5 6; values of tokens outside the loss are far
     * off. */
    static const float advantage[] = { 99, 1, -2, 3, 99, 99, 5, 99, -3, 2 };
    static const float returns[] = { -99, 2, 4, 6, -99, -99, 4, -99, 8, 0 };
    static const float value[] = { 50, 1, 4, 5, 50, 50, 5, 50, 6, 3 };
    static const float reward[] = { 0, 0.5f, 0, 1, 0, 0, -2, 0, 0.25f, 0.5f };
    static const int32_t ids[] = { 1, 2, 3, 4, 5 };
    fixture *f = calloc(1, sizeof(*f));
    xr_err err = { "" };
    f->run.ini.data.max_response_length = 3;
    assert_int_equal(xr_rows_init(&f->rows, 3, TOKENS, &err), XRAY_OK);
    assert_int_equal(xr_samples_init(&f->samples, 4, 4, &err), XRAY_OK);
    for (uint32_t r = 0; r < 3; r++) {
        xr_row_in in = { .prompt = ids,
                         .prompt_count = prompt_size[r],
                         .response = ids,
                         .response_count = response_size[r],
                         .temperature = 1 };
        assert_int_equal(xr_rows_add(&f->rows, &in, &err), XRAY_OK);
    }
    memcpy(f->rows.batch.advantage, advantage, sizeof(advantage));
    memcpy(f->rows.batch.returns, returns, sizeof(returns));
    memcpy(f->rows.batch.value, value, sizeof(value));
    memcpy(f->rows.batch.reward, reward, sizeof(reward));
    /* Four samples were generated, and three of them kept. */
    f->samples.count = 4;
    for (uint32_t i = 0; i < 4; i++) {
        f->samples.scores[i].score = (double)i - 1;
        f->samples.finish[i] =
            i == 1 ? XRAY_FINISH_ABORT : (i ? XRAY_FINISH_STOP : 0);
    }
    make_fake_roles(&f->run, &f->roles);
    f->learner = (xr_learner){ .roles = &f->roles,
                               .metrics = xr_metrics_new(),
                               .scratch = f->scratch };
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    xr_rows_free(&f->rows);
    xr_samples_free(&f->samples);
    xr_metrics_free(f->learner.metrics);
    free(f);
    return 0;
}

typedef struct metric {
    const char *name;
    double value;
} metric;

/* Expects these metrics in this order and no others. */
static void expect_metrics(const xr_metrics *m, const metric *want,
                           size_t count)
{
    for (size_t i = 0; i < count && i < xr_metrics_count(m); i++) {
        assert_string_equal(xr_metrics_name(m, i), want[i].name);
        if (fabs(xr_metrics_value(m, i) - want[i].value) > 1e-6)
            fail_msg("%s is %.9g, expected %.9g", want[i].name,
                     xr_metrics_value(m, i), want[i].value);
    }
    assert_int_equal(xr_metrics_count(m), count);
}

static const metric all[] = {
    { "critic/score/mean", 0.5 },
    { "critic/score/max", 2 },
    { "critic/score/min", -1 },
    { "critic/rewards/mean", 0.25 / 3 },
    { "critic/rewards/max", 1.5 },
    { "critic/rewards/min", -2 },
    { "critic/advantages/mean", 1 },
    { "critic/advantages/max", 5 },
    { "critic/advantages/min", -3 },
    { "critic/returns/mean", 4 },
    { "critic/returns/max", 8 },
    { "critic/returns/min", 0 },
    { "critic/values/mean", 4 },
    { "critic/values/max", 6 },
    { "critic/values/min", 1 },
    /* R - V is 1 0 1 -1 2 -3: 16 / 5; R - 4 is -2 0 2 0 4 -4: 40 / 5. */
    { "critic/vf_explained_var", 1 - 3.2 / (8 + 1e-5) },
    { "response_length/mean", 2 },
    { "response_length/max", 3 },
    { "response_length/min", 1 },
    { "response_length/clip_ratio", 1.0 / 3 },
    { "prompt_length/mean", 4.0 / 3 },
    { "prompt_length/max", 2 },
    { "prompt_length/min", 1 },
    { "response/aborted_ratio", 0.25 },
};
#define VALUES 12 /* index of the first of the four metrics of values */

static void a_batch_has_all_metrics(void **state)
{
    fixture *f = *state;
    f->learner.has_values = 1;
    xr_learner_stats(&f->learner, &f->rows, &f->samples);
    expect_metrics(f->learner.metrics, all, sizeof(all) / sizeof(all[0]));
}

static void value_metrics_need_values(void **state)
{
    fixture *f = *state;
    metric want[sizeof(all) / sizeof(all[0])];
    size_t count = sizeof(all) / sizeof(all[0]) - 4;
    memcpy(want, all, sizeof(want));
    memmove(want + VALUES, all + VALUES + 4,
            (count - VALUES) * sizeof(want[0]));
    xr_learner_stats(&f->learner, &f->rows, &f->samples);
    expect_metrics(f->learner.metrics, want, count);
}

/* Without rows, or without samples, nothing is divided by zero. */
static void an_empty_batch_has_no_ratios(void **state)
{
    static const metric want[] = { { "response_length/clip_ratio", 0 },
                                   { "response/aborted_ratio", 0 } };
    static const metric with_values[] = { { "critic/vf_explained_var", 1 },
                                          { "response_length/clip_ratio", 0 },
                                          { "response/aborted_ratio", 0 } };
    fixture *f = *state;
    f->samples.count = 0;
    xr_rows_clear(&f->rows);
    xr_learner_stats(&f->learner, &f->rows, &f->samples);
    expect_metrics(f->learner.metrics, want, 2);
    xr_metrics_free(f->learner.metrics);
    f->learner.metrics = xr_metrics_new();
    f->learner.has_values = 1;
    xr_learner_stats(&f->learner, &f->rows, &f->samples);
    expect_metrics(f->learner.metrics, with_values, 3);
}

/* Variances are those of a sample (n - 1). The difference shows if they are
 * about as small as the constant added to the divisor: 8 / 512^2. */
static void small_returns_are_explained_in_part(void **state)
{
    fixture *f = *state;
    double var = 8.0 / 512 / 512;
    f->learner.has_values = 1;
    for (uint32_t t = 0; t < TOKENS; t++) {
        f->rows.batch.returns[t] /= 512;
        f->rows.batch.value[t] /= 512;
    }
    xr_learner_stats(&f->learner, &f->rows, &f->samples);
    assert_true(
        fabs(xr_metrics_get(f->learner.metrics, "critic/vf_explained_var") -
             (1 - 0.4 * var / (var + 1e-5))) < 1e-9);
}

/* Two tokens have one: residuals of 1 and 2, and returns of 2 and 6. */
static void two_tokens_have_a_variance(void **state)
{
    fixture *f = *state;
    f->learner.has_values = 1;
    for (uint32_t t = 0; t < TOKENS; t++)
        f->rows.loss_mask[t] = t == 3 || t == 8;
    f->rows.batch.returns[3] = 2;
    f->rows.batch.value[3] = 1;
    f->rows.batch.returns[8] = 6;
    f->rows.batch.value[8] = 4;
    xr_learner_stats(&f->learner, &f->rows, &f->samples);
    assert_true(
        fabs(xr_metrics_get(f->learner.metrics, "critic/vf_explained_var") -
             (1 - 0.5 / (8 + 1e-5))) < 1e-9);
}

/* A single token has no variance to explain. */
static void one_token_explains_nothing(void **state)
{
    fixture *f = *state;
    f->learner.has_values = 1;
    f->rows.batch.rows = 1;
    f->rows.batch.tokens = 2;
    xr_learner_stats(&f->learner, &f->rows, &f->samples);
    assert_true(xr_metrics_get(f->learner.metrics, "critic/vf_explained_var") ==
                1);
    assert_true(xr_metrics_get(f->learner.metrics, "critic/returns/mean") == 2);
}

/* ---- metrics of plugins ------------------------------------------------- */

static xr_host *put_metric(const char *instance)
{
    xr_host *host = xr_host_new(instance, NULL);
    const xray_host *api = xr_host_api(host);
    const xray_metrics_service *m = api->service(api, XRAY_SERVICE_METRICS);
    assert_int_equal(m->put(m, "x", 1), XRAY_OK);
    return host;
}

static void add_name(void *ctx, const char *name, double value)
{
    assert_true(value == 1);
    xr_str_printf(ctx, "%s ", name);
}

/* Whatever a plugin does for a run, its metrics are logged. */
static void every_plugin_may_give_metrics(void **state)
{
    static xr_run run;
    static xr_roles roles;
    xr_str out = { 0 };
    (void)state;
    make_fake_roles(&run, &roles);
    run.reward_count = run.tracker_count = 2;
    const struct {
        xr_host **host;
        const char *instance;
    } parts[] = {
        { &run.device.host, "device" },
        { &run.comm.host, "comm" },
        { &run.runtime.host, "runtime" },
        { &run.launcher.host, "launcher" },
        { &run.train.host, "train" },
        { &run.infer.host, "infer" },
        { &run.algo.host, "algo" },
        { &roles.named[XRAY_ROLE_REFERENCE].host, "reference" },
        { &roles.named[XRAY_ROLE_CRITIC].host, "critic" },
        { &roles.named[XRAY_ROLE_REWARD].host, "reward_model" },
        { &run.rewards[0].host, "reward.a" },
        { &run.rewards[1].host, "reward.b" },
        { &run.trackers[0].host, "tracker.a" },
        { &run.trackers[1].host, "tracker.b" },
    };
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        *parts[i].host = put_metric(parts[i].instance);
    xr_plugin_metrics_here(&roles, add_name, &out);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        char want[64];
        (void)snprintf(want, sizeof(want), "perf/%s/x ", parts[i].instance);
        if (!strstr(xr_str_text(&out), want))
            fail_msg("no %s in %s", want, xr_str_text(&out));
        xr_host_free(*parts[i].host);
    }
    xr_str_free(&out);
}

/* ---- dealing ------------------------------------------------------------ */

/* The differencing method by hand. Among equal spreads the earlier tuple comes
 * first, and parts are numbered by their first item. */
static void rows_are_dealt_as_the_method_says(void **state)
{
    static const struct {
        uint32_t parts;
        uint32_t count;
        double cost[6];
        uint32_t want[6];
    } cases[] = {
        /* 8-7 and 6-5 first, then 4 to 7: {8, 6} and {7, 5, 4}. */
        { 2, 5, { 8, 7, 6, 5, 4 }, { 0, 1, 0, 1, 1 } },
        /* The order of the rows only changes the numbers of the parts. */
        { 2, 5, { 4, 5, 6, 7, 8 }, { 0, 0, 1, 0, 1 } },
        /* 7 | 6 | 5 after joining the widest two, then 4 goes to the lightest.
         */
        { 3, 4, { 7, 6, 5, 4 }, { 0, 1, 2, 2 } },
        /* As many parts as rows, and more: empty ones come last. */
        { 3, 3, { 1, 1, 1 }, { 0, 1, 2 } },
        { 4, 2, { 3, 9 }, { 0, 1 } },
        { 1, 3, { 3, 9, 1 }, { 0, 0, 0 } },
        { 2, 1, { 3 }, { 0 } },
        /* Two pairs without a spread, the first with the last. */
        { 2, 4, { 5, 5, 5, 5 }, { 0, 1, 1, 0 } },
        /* Among equal ones the first two are joined first. */
        { 2, 3, { 1, 1, 1 }, { 0, 1, 1 } },
        { 3, 4, { 1, 1, 1, 1 }, { 0, 1, 2, 2 } },
        { 2, 6, { 9, 1, 1, 1, 1, 1 }, { 0, 1, 1, 1, 1, 1 } },
    };
    xr_balance b;
    xr_err err = { "" };
    (void)state;
    assert_int_equal(xr_balance_init(&b, 6, 4, &err), XRAY_OK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint32_t part[6] = { 9, 9, 9, 9, 9, 9 };
        xr_balance_deal(&b, cases[i].cost, cases[i].count, cases[i].parts,
                        part);
        for (uint32_t k = 0; k < 6; k++)
            if (part[k] != (k < cases[i].count ? cases[i].want[k] : 9))
                fail_msg("case %zu: item %u is in part %u", i, k, part[k]);
    }
    uint32_t untouched = 9;
    xr_balance_deal(&b, NULL, 0, 2, &untouched);
    assert_int_equal(untouched, 9);
    xr_balance_free(&b);
    /* Attention costs pairs of tokens, everything else costs tokens. */
    assert_true(xr_balance_cost(10, 7) == 170);
    assert_true(xr_balance_cost(0, 7) == 0);
    assert_true(xr_balance_cost(100000, 1) == 1e10 + 1e5);
}

static void zero_parts_are_refused(void **state)
{
    xr_balance b;
    xr_err err = { "" };
    (void)state;
    assert_int_equal(xr_balance_init(&b, 5, 0, &err), XRAY_E_BUG);
    assert_string_equal(err.text, "5 rows for 0 replicas");
    assert_int_equal(xr_balance_init(&b, UINT32_MAX, 1, &err), XRAY_E_BUG);
    assert_int_equal(xr_balance_init(&b, 1, UINT32_MAX, &err), XRAY_E_BUG);
    assert_int_equal(xr_balance_init(&b, 0, 1, &err), XRAY_OK);
    xr_balance_free(&b);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_batch_has_all_metrics),
        CASE(value_metrics_need_values),
        CASE(an_empty_batch_has_no_ratios),
        CASE(small_returns_are_explained_in_part),
        CASE(two_tokens_have_a_variance),
        CASE(one_token_explains_nothing),
        cmocka_unit_test(every_plugin_may_give_metrics),
        cmocka_unit_test(rows_are_dealt_as_the_method_says),
        cmocka_unit_test(zero_parts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
