/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves the parts of a step that need no model: batches, their cuts and
 * statistics, dealing of rows, learning rates, gradients, and what ranks need
 * of a runtime.
 */
#include "tests/forward.h"
#include "tests/testing.h"

#include <math.h>

#include "core/actor/actor.h"
#include "core/actor/local.h"
#include "core/rl/learner.h"
#include "core/rl/schedule.h"
#include "core/roles/balance.h"
#include "core/roles/losses.h"
#include "core/roles/role_calls.h"
#include "core/roles/whole.h"
#include "core/run/rows.h"
#include "core/run/run.h"
#include "tests/rl/fake_roles.h"

static void add_row(xr_rows *rows, int32_t first, uint32_t prompt,
                    uint32_t response, int32_t group)
{
    int32_t ids[64];
    float logp[64];
    xr_err err = { "" };
    for (int32_t i = 0; i < 64; i++) {
        ids[i] = first + i;
        logp[i] = (float)(-first - i);
    }
    xr_row_in in = { .prompt = ids,
                     .prompt_count = prompt,
                     .response = ids + prompt,
                     .response_count = response,
                     .logp = logp,
                     .row_id = (uint64_t)first,
                     .prompt_id = (uint64_t)group,
                     .group = group,
                     .temperature = 0.5f };
    assert_int_equal(xr_rows_add(rows, &in, &err), XRAY_OK);
}

static void rows_keep_prompt_and_response_apart(void **state)
{
    xr_rows rows;
    xr_err err = { "" };
    (void)state;
    assert_int_equal(xr_rows_init(&rows, 4, 40, &err), XRAY_OK);
    add_row(&rows, 100, 3, 2, 0);
    add_row(&rows, 200, 1, 4, 0);
    const xray_batch *b = &rows.batch;
    assert_int_equal(b->rows, 2);
    assert_int_equal(b->tokens, 10);
    assert_int_equal(b->row_start[1], 5);
    assert_int_equal(b->ids[3], 103);
    const float mask[] = { 0, 0, 0, 1, 1, 0, 1, 1, 1, 1 };
    for (int i = 0; i < 10; i++)
        assert_true(b->loss_mask[i] == mask[i]);
    assert_true(b->old_logp[3] == -100 && b->old_logp[2] == 0);
    assert_int_equal(b->spans[1].first, 1);
    assert_int_equal(b->spans[1].last, 5);
    xr_rows_free(&rows);
}

static void a_full_batch_refuses_more(void **state)
{
    xr_rows rows;
    xr_err err = { "" };
    int32_t ids[8] = { 0 };
    xr_row_in in = { .prompt = ids, .prompt_count = 8, .temperature = 1 };
    (void)state;
    assert_int_equal(xr_rows_init(&rows, 2, 10, &err), XRAY_OK);
    assert_int_equal(xr_rows_add(&rows, &in, &err), XRAY_OK);
    assert_int_equal(xr_rows_add(&rows, &in, &err), XRAY_E_BUG);
    assert_int_equal(rows.batch.rows, 1);
    xr_rows_free(&rows);
}

static void views_are_consecutive(void **state)
{
    xr_rows rows;
    xr_views views;
    xr_err err = { "" };
    uint32_t sizes[] = { 5, 9, 3, 3, 20, 1 };
    (void)state;
    assert_int_equal(xr_rows_init(&rows, 6, 41, &err), XRAY_OK);
    assert_int_equal(xr_views_init(&views, 6, &err), XRAY_OK);
    for (int32_t i = 0; i < 6; i++)
        add_row(&rows, i * 100, 1, sizes[i] - 1, i);
    const xr_cut cut = { .first = 1, .count = 5, .budget = 15 };
    assert_int_equal(xr_views_cut(&views, &rows, &cut, &err), XRAY_OK);
    assert_int_equal(views.count, 3); /* 9+3+3 | 20, over the budget | 1 */
    assert_int_equal(views.batches[0].rows, 3);
    assert_int_equal(views.batches[0].tokens, 15);
    assert_int_equal(views.batches[1].tokens, 20);
    assert_int_equal(views.batches[2].tokens, 1);
    assert_int_equal(views.batches[2].row_index[0], 4);
    assert_int_equal(views.batches[0].row_start[0], 0);
    assert_int_equal(views.batches[0].row_start[2], 12);
    assert_int_equal(views.batches[1].ids[0], 400);
    assert_int_equal(views.batches[1].row_start[1], 20);
    assert_int_equal(views.batches[0].row_id[1], 200);
    const xr_cut none = { .budget = 15 };
    assert_int_equal(xr_views_cut(&views, &rows, &none, &err), XRAY_OK);
    assert_int_equal(views.count, 0);
    xr_views_free(&views);
    xr_rows_free(&rows);
}

/* Groups 0 0 | 1 1 1 | 2 of rows of 5 tokens. */
static void groups_that_share_prompts_are_not_divided(void **state)
{
    static const int32_t group[] = { 0, 0, 1, 1, 1, 2 };
    xr_rows rows;
    xr_views views;
    xr_err err = { "" };
    (void)state;
    assert_int_equal(xr_rows_init(&rows, 6, 30, &err), XRAY_OK);
    assert_int_equal(xr_views_init(&views, 6, &err), XRAY_OK);
    for (int32_t i = 0; i < 6; i++)
        add_row(&rows, i * 100, 2, 3, group[i]);
    xr_cut cut = { .count = 6, .budget = 20, .prompts = XR_PROMPTS_PER_GROUP };
    assert_int_equal(xr_views_cut(&views, &rows, &cut, &err), XRAY_OK);
    assert_int_equal(views.count, 2); /* 10 | 15 + 5 */
    assert_int_equal(views.batches[0].rows, 2);
    assert_int_equal(views.batches[1].rows, 4);
    assert_int_equal(views.batches[1].row_index[0], 2);
    assert_int_equal(views.batches[0].share_prompts, 1);
    cut.budget = 12; /* a group over the budget is a view of its own */
    assert_int_equal(xr_views_cut(&views, &rows, &cut, &err), XRAY_OK);
    assert_int_equal(views.count, 3);
    cut.first = 1;
    cut.count = 3;
    assert_int_equal(xr_views_cut(&views, &rows, &cut, &err), XRAY_OK);
    assert_int_equal(views.count, 2); /* 0 | 1 1 */
    assert_int_equal(views.batches[1].rows, 2);
    cut.prompts = XR_PROMPTS_SHARED;
    cut.budget = 11;
    assert_int_equal(xr_views_cut(&views, &rows, &cut, &err), XRAY_OK);
    assert_int_equal(views.batches[0].rows, 2);
    assert_int_equal(views.batches[1].share_prompts, 1);
    cut.prompts = XR_PROMPTS_APART;
    assert_int_equal(xr_views_cut(&views, &rows, &cut, &err), XRAY_OK);
    assert_int_equal(views.batches[0].share_prompts, 0);
    xr_views_free(&views);
    xr_rows_free(&rows);
}

static void rows_can_be_copied_in_another_order(void **state)
{
    xr_rows rows;
    xr_rows other;
    xr_err err = { "" };
    (void)state;
    assert_int_equal(xr_rows_init(&rows, 3, 30, &err), XRAY_OK);
    assert_int_equal(xr_rows_init(&other, 3, 30, &err), XRAY_OK);
    add_row(&rows, 100, 2, 3, 0);
    add_row(&rows, 200, 2, 5, 1);
    rows.batch.advantage[6] = 2.5f;
    assert_int_equal(xr_rows_copy(&other, &rows, 1, 0, &err), XRAY_OK);
    assert_int_equal(xr_rows_copy(&other, &rows, 0, 1, &err), XRAY_OK);
    assert_int_equal(other.batch.ids[0], 200);
    assert_int_equal(other.batch.ids[7], 100);
    assert_true(other.batch.advantage[1] == 2.5f);
    assert_int_equal(other.batch.group[0], 0);
    assert_int_equal(other.batch.spans[1].row, 1);
    xr_rows_free(&rows);
    xr_rows_free(&other);
}

static void schedules_follow_their_formulas(void **state)
{
    xr_optim_section o = { .lr = 2,
                           .lr_scheduler_type = XR_SCHEDULE_CONSTANT,
                           .lr_warmup_steps = 4,
                           .num_cycles = 0.5 };
    (void)state;
    assert_true(xr_schedule(&o, 0, 100) == 0);
    assert_true(fabs(xr_schedule(&o, 1, 100) - 0.5) < 1e-12);
    assert_true(xr_schedule(&o, 4, 100) == 2);
    assert_true(xr_schedule(&o, 99, 100) == 2);
    o.lr_scheduler_type = XR_SCHEDULE_LINEAR;
    o.min_lr_ratio = 0.1;
    assert_true(fabs(xr_schedule(&o, 52, 100) - 2 * 0.55) < 1e-12);
    assert_true(fabs(xr_schedule(&o, 100, 100) - 0.2) < 1e-12);
    o.lr_scheduler_type = XR_SCHEDULE_COSINE;
    assert_true(fabs(xr_schedule(&o, 52, 100) - 2 * 0.55) < 1e-12);
    assert_true(fabs(xr_schedule(&o, 28, 100) -
                     2 * (cos(3.14159265358979323846 / 4) * 0.45 + 0.55)) <
                1e-12);
    o.num_cycles = 1.5; /* down, up and down again */
    assert_true(fabs(xr_schedule(&o, 4 + 32, 100) - 0.2) < 1e-12);
    assert_true(fabs(xr_schedule(&o, 4 + 64, 100) - 2) < 1e-12);
    assert_true(fabs(xr_schedule(&o, 100, 100) - 0.2) < 1e-12);
    o.lr_warmup_steps = 0; /* no warm-up, whatever the ratio */
    o.lr_warmup_steps_ratio = 0.5;
    assert_true(xr_schedule(&o, 0, 100) == 2);
    o.lr_warmup_steps = -1;
    o.lr_warmup_steps_ratio = 0.1;
    assert_true(fabs(xr_schedule(&o, 5, 100) - 1) < 1e-12);
}

/* Without a warm-up, which is the default, the first step has the full rate.
 * With one the rate grows linearly and is full in the step after it. */
static void warm_up_ends_at_its_last_step(void **state)
{
    static const int64_t kinds[] = { XR_SCHEDULE_CONSTANT, XR_SCHEDULE_LINEAR,
                                     XR_SCHEDULE_COSINE };
    (void)state;
    for (size_t k = 0; k < 3; k++) {
        xr_optim_section o = { .lr = 3,
                               .lr_scheduler_type = kinds[k],
                               .lr_warmup_steps = -1,
                               .num_cycles = 0.5 };
        assert_true(xr_schedule(&o, 0, 50) == 3);
        o.lr_warmup_steps = 0;
        assert_true(xr_schedule(&o, 0, 50) == 3);
        assert_true(k == 0 ? xr_schedule(&o, 1, 50) == 3
                           : xr_schedule(&o, 1, 50) < 3);
        o.lr_warmup_steps = 1;
        assert_true(xr_schedule(&o, 0, 50) == 0);
        assert_true(xr_schedule(&o, 1, 50) == 3);
        o.lr_warmup_steps = 3;
        for (uint64_t step = 0; step <= 3; step++)
            assert_true(fabs(xr_schedule(&o, step, 50) - (double)step) < 1e-12);
        /* A warm-up ratio is rounded down to complete steps: 0.05 of 50 is 2.
         */
        o.lr_warmup_steps = -1;
        o.lr_warmup_steps_ratio = 0.05;
        assert_true(xr_schedule(&o, 1, 50) == 1.5);
        assert_true(xr_schedule(&o, 2, 50) == 3);
        /* A run of one step has a rate, and a step after the last has the
         * lowest rate. */
        o.lr_warmup_steps = 0;
        o.min_lr_ratio = 0.1;
        assert_true(xr_schedule(&o, 0, 1) == 3);
        assert_true(fabs(xr_schedule(&o, 70, 50) - (k ? 0.3 : 3)) < 1e-12);
    }
}

/* ---- dealing ------------------------------------------------------------ */

/* Returns the difference of the most and the least expensive part; expects that
 * every item is dealt once. */
static double measure_imbalance(xr_balance *b, const double *cost,
                                uint32_t count, uint32_t parts)
{
    uint32_t part[64];
    double sum[8] = { 0 };
    double most = 0;
    uint32_t given = 0;
    xr_balance_deal(b, cost, count, parts, part);
    for (uint32_t i = 0; i < count; i++) {
        assert_true(part[i] <= given && part[i] < parts);
        given += part[i] == given; /* numbered by their first item */
        sum[part[i]] += cost[i];
    }
    double least = sum[0];
    for (uint32_t p = 0; p < parts; p++) {
        most = sum[p] > most ? sum[p] : most;
        least = sum[p] < least ? sum[p] : least;
    }
    return most - least;
}

/* Ranks wait for the slowest of them, so they are dealt about the same cost. */
static void rows_are_dealt_evenly(void **state)
{
    /* The example of Karmarkar and Karp's method: 16 and 14. */
    static const double five[] = { 8, 7, 6, 5, 4 };
    static const double one[] = { 5, 0, 0 };
    double equal[12];
    double rising[64];
    xr_balance b;
    xr_err err = { "" };
    (void)state;
    assert_int_equal(xr_balance_init(&b, 64, 4, &err), XRAY_OK);
    assert_true(measure_imbalance(&b, five, 5, 2) == 2);
    assert_true(measure_imbalance(&b, one, 3, 2) == 5);
    for (int i = 0; i < 12; i++)
        equal[i] = 3;
    for (uint32_t parts = 1; parts <= 4; parts++)
        assert_true(measure_imbalance(&b, equal, 12, parts) == 0);
    for (uint32_t i = 0; i < 64; i++)
        rising[i] = xr_balance_cost(10 + i, 100);
    for (uint32_t parts = 2; parts <= 4; parts++)
        assert_true(measure_imbalance(&b, rising, 64, parts) < rising[0]);
    xr_balance_free(&b);
}

/* ---- metrics of a batch ------------------------------------------------- */

/* Prompts of 3 and 5 tokens, responses of 1, 4, 4 and 2 where 4 is the most. */
static void statistics_of_a_batch_are_put(void **state)
{
    static const uint32_t prompt[] = { 3, 5, 3, 5 };
    static const uint32_t response[] = { 1, 4, 4, 2 };
    static const struct {
        const char *name;
        double value;
    } want[] = {
        { "response_length/mean", 2.75 },     { "response_length/max", 4 },
        { "response_length/min", 1 },         { "prompt_length/mean", 4 },
        { "prompt_length/max", 5 },           { "prompt_length/min", 3 },
        { "response_length/clip_ratio", .5 }, { "response/aborted_ratio", .25 },
        { "critic/score/mean", 1.5 },         { "critic/score/max", 3 },
        { "critic/rewards/min", -4 },         { "critic/rewards/max", -1 },
    };
    float scratch[64];
    xr_rows rows;
    xr_samples samples;
    xr_err err = { "" };
    xr_run run = { .reward_count = 0 };
    xr_roles roles;
    xr_learner l = { .roles = &roles,
                     .metrics = xr_metrics_new(),
                     .scratch = scratch };
    (void)state;
    assert_non_null(l.metrics);
    make_fake_roles(&run, &roles);
    run.ini.data.max_response_length = 4;
    assert_int_equal(xr_rows_init(&rows, 4, 40, &err), XRAY_OK);
    assert_int_equal(xr_samples_init(&samples, 4, 4, &err), XRAY_OK);
    samples.count = 4;
    for (int32_t i = 0; i < 4; i++) {
        add_row(&rows, i * 100, prompt[i], response[i], i);
        samples.scores[i].score = i;
        samples.finish[i] = i == 2 ? XRAY_FINISH_ABORT : XRAY_FINISH_STOP;
    }
    for (uint32_t t = 0; t < rows.batch.tokens; t++)
        rows.batch.reward[t] = rows.batch.loss_mask[t] != 0 ? -1.0f : 0.0f;
    xr_learner_stats(&l, &rows, &samples);
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++)
        if (xr_metrics_get(l.metrics, want[i].name) != want[i].value)
            fail_msg("%s is %g, expected %g", want[i].name,
                     xr_metrics_get(l.metrics, want[i].name), want[i].value);
    xr_metrics_free(l.metrics);
    xr_samples_free(&samples);
    xr_rows_free(&rows);
}

/* ---- losses ------------------------------------------------------------- */

/* The gradient that is not finite. */
static const char *spoilt;

static xray_status spoilt_loss(const void *context, uint64_t size,
                               const xray_loss_call *call,
                               xray_metric_sums *sums)
{
    (void)context;
    (void)size;
    (void)sums;
    float *given = strcmp(spoilt, "log-prob") == 0  ? call->dlogp
                   : strcmp(spoilt, "entropy") == 0 ? call->dentropy
                                                    : call->dvalue;
    given[call->batch->row_start[2] - 1] = NAN;
    return XRAY_OK;
}

/* Each gradient of an algorithm is checked before a backend receives it. */
static void bad_gradients_are_named(void **state)
{
    static const char *const all[] = { "log-prob", "entropy", "value" };
    static const xray_algo_ops ops = { .header = XRAY_HEADER(xray_algo_ops),
                                       .loss = spoilt_loss,
                                       .critic_loss = spoilt_loss };
    xr_rows rows;
    xr_err err = { "" };
    float outputs[64] = { 0 };
    xr_run of = { .algo = { .ops = &ops,
                            .instance = "algo.fake",
                            .host = xr_host_new("algo.fake", NULL) } };
    xr_roles roles;
    make_fake_roles(&of, &roles);
    (void)state;
    assert_non_null(of.algo.host);
    assert_int_equal(xr_rows_init(&rows, 4, 40, &err), XRAY_OK);
    add_row(&rows, 100, 3, 2, 0);
    add_row(&rows, 200, 1, 4, 0);
    for (int i = 0; i < 4; i++) {
        int critic = i == 3; /* a critic has no log-probs */
        float given[3][64] = { { 0 } };
        char sentence[160];
        spoilt = all[critic ? 2 : i];
        xr_loss_spec spec = { .kind = critic ? XR_LOSS_CRITIC : XR_LOSS_POLICY,
                              .outputs = XRAY_OUTPUT_VALUE };
        xr_loss_run run = { .roles = &roles,
                            .who = "train.fake",
                            .spec = &spec };
        xray_loss_call call = { .header = XRAY_HEADER(xray_loss_call),
                                .batch = &rows.batch,
                                .value = outputs,
                                .dvalue = given[2] };
        if (!critic) {
            call.logp = call.entropy = outputs;
            call.dlogp = given[0];
            call.dentropy = given[1];
        }
        assert_int_not_equal(xr_loss_call(&run, &call), XRAY_OK);
        (void)snprintf(sentence, sizeof(sentence),
                       "algo.fake gave the gradient of the %s nan for token 4 "
                       "of row 200 (prompt 0), expected a finite number",
                       spoilt);
        assert_string_equal(run.fault.text, sentence);
    }
    xr_rows_free(&rows);
    xr_host_free(of.algo.host);
}

/* ---- models ------------------------------------------------------------- */

/* Each output of a token is 1000 times its kind plus the token's id. */
static xray_status number_batch(void *self, const xray_batch *batch,
                                uint32_t outputs, xray_outputs *out)
{
    (void)self;
    for (uint32_t t = 0; t < batch->tokens; t++) {
        if (outputs & XRAY_OUTPUT_LOGP)
            out->logp[t] = (float)(1000 + batch->ids[t]);
        if (outputs & XRAY_OUTPUT_ENTROPY)
            out->entropy[t] = (float)(2000 + batch->ids[t]);
        if (outputs & XRAY_OUTPUT_VALUE)
            out->value[t] = (float)(3000 + batch->ids[t]);
    }
    return XRAY_OK;
}

FORWARD_EACH(number_tokens, number_batch)

/* The outputs of micro-batches are stored where the micro-batches were cut
 * from, and an engine that sleeps meanwhile needs the weights again. */
static void outputs_are_stored_token_by_token(void **state)
{
    static const xray_train_ops ops = { .header = XRAY_HEADER(xray_train_ops),
                                        .forward = number_tokens };
    float got[3][16];
    xr_rows rows;
    xr_views views;
    xr_err err = { "" };
    xr_run run = { .train = { .ops = &ops, .instance = "train.fake" } };
    xr_roles roles;
    const xray_outputs all = { .header = XRAY_HEADER(xray_outputs),
                               .logp = got[0],
                               .entropy = got[1],
                               .value = got[2] };
    (void)state;
    assert_int_equal(xr_rows_init(&rows, 3, 16, &err), XRAY_OK);
    assert_int_equal(xr_views_init(&views, 3, &err), XRAY_OK);
    for (int32_t i = 0; i < 3; i++)
        add_row(&rows, 100 * i, 2, 1 + (uint32_t)i, i);
    const xr_cut cut = { .count = 3, .budget = 5 };
    assert_int_equal(xr_views_cut(&views, &rows, &cut, &err), XRAY_OK);
    assert_int_equal(views.count, 3);
    make_fake_roles(&run, &roles);
    roles.actor.self = &err;
    assert_int_equal(xr_role_forward(&roles, XRAY_ROLE_ACTOR, &views,
                                     XRAY_OUTPUT_LOGP | XRAY_OUTPUT_ENTROPY |
                                         XRAY_OUTPUT_VALUE,
                                     &all, &err),
                     XRAY_OK);
    assert_int_equal(rows.batch.tokens, 12);
    for (int k = 0; k < 3; k++)
        for (int t = 0; t < 12; t++)
            assert_true(got[k][t] ==
                        (float)(1000 * (k + 1) + rows.batch.ids[t]));
    assert_int_equal(roles.published.due, 0);
    run.ini.rollout.free_cache_engine = 1;
    assert_int_equal(xr_role_forward(&roles, XRAY_ROLE_ACTOR, &views,
                                     XRAY_OUTPUT_LOGP, &all, &err),
                     XRAY_OK);
    assert_int_equal(roles.published.due, 1);
    xr_views_free(&views);
    xr_rows_free(&rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_keep_prompt_and_response_apart),
        cmocka_unit_test(a_full_batch_refuses_more),
        cmocka_unit_test(views_are_consecutive),
        cmocka_unit_test(groups_that_share_prompts_are_not_divided),
        cmocka_unit_test(rows_can_be_copied_in_another_order),
        cmocka_unit_test(schedules_follow_their_formulas),
        cmocka_unit_test(warm_up_ends_at_its_last_step),
        cmocka_unit_test(rows_are_dealt_evenly),
        cmocka_unit_test(statistics_of_a_batch_are_put),
        cmocka_unit_test(bad_gradients_are_named),
        cmocka_unit_test(outputs_are_stored_token_by_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
