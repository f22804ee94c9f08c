/* SPDX-License-Identifier: Apache-2.0
 *
 * GRPO and its relatives at their bounds: values that each option refuses and
 * the neighbouring values that pass, states, contexts, and incomplete batches.
 */
#include <math.h>

#include "tests/algo/grpo_rig.h"

#define near(got, want, tolerance) rig_near(got, want, tolerance, #got)

/* ---- options ------------------------------------------------------------ */

typedef struct combination {
    const char *keys[9];
    const char *says; /* NULL: it is taken */
} combination;

#define CLIP_C                                                         \
    "create: clip_ratio_c: expected -1 (by the preset), 0 (off) or a " \
    "number above 1"
#define IS_THRESHOLD                                                    \
    "create: rollout_is_threshold: expected HIGH or LOW_HIGH, numbers " \
    "above 0, as in 2.0 or 0.5_5.0"
#define RS_THRESHOLD                                                    \
    "create: rollout_rs_threshold: expected HIGH or LOW_HIGH, numbers " \
    "above 0, as in 0.999_1.001"
#define RS_ABOVE                                                   \
    "create: rollout_rs_threshold: expected a number above 1, or " \
    "LOW_HIGH with LOW below HIGH"
#define RS_ONE_BOUND                                                     \
    "create: rollout_rs_threshold: k2 and k3 have only an upper bound, " \
    "as in 0.01"
#define MAX_RESP_LEN                                              \
    "create: max_resp_len: overlong_buffer_len needs it and may " \
    "not exceed it; set it to data.max_response_length"
#define GDPO                                                             \
    "create: adv_estimator: gdpo reads the score of each reward "        \
    "separately, which use_kl_in_reward and overlong_buffer_len do not " \
    "change; remove the key (use_kl_loss also limits the KL)"
#define DEVIATION                                                            \
    "create: adv_deviation: the advantages are not divided by a deviation; " \
    "remove "                                                                \
    "the key, or set adv_estimator = grpo and norm_adv_by_std_in_grpo = "    \
    "true"
#define CLIP_C_MODE                                                \
    "create: clip_ratio_c: only loss_mode = vanilla, dppo_tv and " \
    "dppo_kl use it; remove the key or set one of them"
#define AGG                                                               \
    "create: loss_agg_mode: loss_mode = gspo, sapo and geo_mean average " \
    "over each row, then over rows; remove the key or set "               \
    "seq-mean-token-mean"

static const combination combinations[] = {
    { { "clip_ratio_low", "-0.5" },
      "create: clip_ratio_low: expected -1 (clip_ratio) or a number >= 0" },
    { { "clip_ratio_low", "0" }, NULL },
    { { "clip_ratio_high", "-0.5" },
      "create: clip_ratio_high: expected -1 (clip_ratio) or a number >= 0" },
    { { "clip_ratio_high", "0" }, NULL },
    { { "clip_ratio_c", "-0.5" }, CLIP_C },
    { { "clip_ratio_c", "1" }, CLIP_C },
    { { "clip_ratio_c", "1.001" }, NULL },
    { { "clip_ratio_c", "0" }, NULL },
    { { "loss_mode", "cispo", "clip_ratio_c", "3" }, CLIP_C_MODE },
    { { "loss_mode", "cispo", "clip_ratio_c", "0" }, NULL },
    { { "loss_mode", "dppo_tv", "clip_ratio_c", "3" }, NULL },
    { { "loss_mode", "dppo_kl", "clip_ratio_c", "3" }, NULL },
    { { "loss_mode", "dro" },
      "create: dro_beta: loss_mode = dro needs a number above 0; it has no "
      "default" },
    { { "loss_mode", "dro", "dro_beta", "0" },
      "create: dro_beta: loss_mode = dro needs a number above 0; it has no "
      "default" },
    { { "loss_mode", "dro", "dro_beta", "0.001" }, NULL },
    { { "dro_beta", "0" },
      "create: dro_beta: only loss_mode = dro uses it; remove the key or set "
      "that mode" },
    { { "adv_epsilon", "-0.5" },
      "create: adv_epsilon: expected -1 (by the preset) or a number >= 0" },
    { { "adv_epsilon", "0" }, NULL },
    { { "adv_estimator", "rloo", "norm_adv_by_std_in_grpo", "true" },
      "create: norm_adv_by_std_in_grpo: only adv_estimator = grpo, grpo_passk "
      "and gdpo divide by the deviation of the group; remove the key or set "
      "one of them" },
    { { "adv_estimator", "rloo", "norm_adv_by_std_in_grpo", "false" }, NULL },
    { { "adv_estimator", "grpo_passk", "norm_adv_by_std_in_grpo", "true" },
      NULL },
    { { "adv_estimator", "gdpo", "norm_adv_by_std_in_grpo", "true" }, NULL },
    { { "adv_estimator", "rloo", "adv_deviation", "population" }, DEVIATION },
    { { "norm_adv_by_std_in_grpo", "false", "adv_deviation", "population" },
      DEVIATION },
    { { "preset", "dr_grpo", "adv_deviation", "population" }, NULL },
    { { "adv_estimator", "gdpo", "use_kl_in_reward", "true" }, GDPO },
    { { "adv_estimator", "gdpo", "overlong_buffer_len", "2", "max_resp_len",
        "4" },
      GDPO },
    { { "adv_estimator", "gdpo", "use_kl_loss", "true" }, NULL },
    { { "gamma", "0.9" },
      "create: gamma: only adv_estimator = reinforce_plus_plus discounts; "
      "remove the key or set that estimator" },
    { { "adv_estimator", "reinforce_plus_plus", "gamma", "0.9" }, NULL },
    { { "loss_mode", "gspo", "loss_agg_mode", "token-mean" }, AGG },
    { { "loss_mode", "sapo", "loss_agg_mode", "token-sum" }, AGG },
    { { "loss_mode", "geo_mean", "loss_agg_mode", "seq-mean-token-sum" }, AGG },
    { { "loss_mode", "gspo", "loss_agg_mode", "seq-mean-token-mean" }, NULL },
    { { "loss_scale_factor", "3" },
      "create: loss_scale_factor: only loss_agg_mode = "
      "seq-mean-token-sum-norm uses it; remove the key or set that mode" },
    { { "loss_scale_factor", "3", "loss_agg_mode", "seq-mean-token-sum-norm" },
      NULL },
    { { "kl_loss_coef", "-0.5" },
      "create: kl_loss_coef: expected -1 (by the preset) or a number >= 0" },
    { { "kl_loss_coef", "0" }, NULL },
    { { "ppo_kl_coef", "-0.5" },
      "create: ppo_kl_coef: expected -1 (by the preset) or a number >= 0" },
    { { "ppo_kl_coef", "0" }, NULL },
    { { "kl_ctrl", "adaptive" },
      "create: kl_ctrl: adaptive changes the coefficient of the KL "
      "in the reward; set "
      "use_kl_in_reward = true or remove the key" },
    { { "kl_ctrl", "adaptive", "use_kl_in_reward", "true" }, NULL },
    { { "loss_mode", "clip_cov", "clip_cov_lb", "5", "clip_cov_ub", "5" },
      "create: clip_cov_lb: expected a number below clip_cov_ub" },
    { { "loss_mode", "clip_cov", "clip_cov_lb", "4.9", "clip_cov_ub", "5" },
      NULL },
    { { "clip_cov_lb", "6" }, NULL },
    { { "overlong_buffer_len", "4" }, MAX_RESP_LEN },
    { { "overlong_buffer_len", "4", "max_resp_len", "3.9" }, MAX_RESP_LEN },
    { { "overlong_buffer_len", "4", "max_resp_len", "4" }, NULL },
    { { "max_resp_len", "4" },
      "create: max_resp_len: only overlong_buffer_len uses it; remove the key "
      "or set that one" },
    { { "max_num_gen_batches", "1" },
      "create: max_num_gen_batches: only filter_groups uses it; remove the key "
      "or set filter_groups = true" },
    { { "max_num_gen_batches", "1", "filter_groups", "true" }, NULL },
    { { "rollout_is_threshold", "much" }, IS_THRESHOLD },
    { { "rollout_is_threshold", "0" }, IS_THRESHOLD },
    { { "rollout_is_threshold", "5_0.5" }, IS_THRESHOLD },
    { { "rollout_is_threshold", "-0.5_5" }, IS_THRESHOLD },
    { { "rollout_is_threshold", "0.5_" }, IS_THRESHOLD },
    { { "rollout_is_threshold", "0_5" }, NULL },
    { { "rollout_is_threshold", "2_2" }, NULL },
    { { "rollout_rs_threshold", "2" },
      "create: rollout_rs_threshold: only rollout_rs uses it; remove the key "
      "or set that one" },
    { { "rollout_rs", "token_k1" }, RS_THRESHOLD },
    { { "rollout_rs", "token_k1", "rollout_rs_threshold", "0" }, RS_THRESHOLD },
    { { "rollout_rs", "token_k1", "rollout_rs_threshold", "2_1" },
      RS_THRESHOLD },
    { { "rollout_rs", "token_k1", "rollout_rs_threshold", "1" }, RS_ABOVE },
    { { "rollout_rs", "token_k1", "rollout_rs_threshold", "1_1" }, RS_ABOVE },
    { { "rollout_rs", "token_k1", "rollout_rs_threshold", "1.001" }, NULL },
    { { "rollout_rs", "token_k1", "rollout_rs_threshold", "1_1.001" }, NULL },
    { { "rollout_rs", "token_k2", "rollout_rs_threshold", "0_1" },
      RS_ONE_BOUND },
    { { "rollout_rs", "seq_max_k3", "rollout_rs_threshold", "0.01" }, NULL },
};

static void each_combination_is_accepted_or_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(combinations) / sizeof(combinations[0]);
         i++) {
        const combination *c = &combinations[i];
        rig r;
        xray_status status = rig_try(&r, c->keys);
        if (status != (c->says ? XRAY_E_CONFIG : XRAY_OK) ||
            strcmp(r.host.reason, c->says ? c->says : "") != 0)
            fail_msg("%s = %s: \"%s\"", c->keys[0], c->keys[1], r.host.reason);
        if (status == XRAY_OK)
            rig_close(&r);
    }
}

/* A loss other than that of the preset does not inherit its clip. */
static void presets_clip_their_own_loss(void **state)
{
    rig r;
    rig_batch b;
    rig_sums sums;
    (void)state;
    /* verl's dual clip is 3; dppo has none unless it is set. */
    rig_open(&r, RIG_KEYS("loss_mode", "dppo_tv"));
    rig_batch_init(&b);
    (void)rig_row(&b, 1, 1, 0, 0);
    b.old_logp[1] = -20;
    b.logp[1] = -18; /* a ratio of 7, but almost no change of the probability */
    b.advantage[1] = -1;
    assert_int_equal(rig_loss(&r, &b, 1, 0, &sums), XRAY_OK);
    near((double)b.dlogp[1], exp(2), 1e-4);
    rig_close(&r);
}

/* ---- states ------------------------------------------------------------- */

/* Impossible coefficients are refused. A valid one is restored in an adaptive
 * run; a fixed run keeps its own. */
static void states_are_checked_before_use(void **state)
{
    static const struct {
        double value;
        xray_status status;
    } cases[] = {
        { 0, XRAY_OK },           { 0.25, XRAY_OK },     { 9.9e299, XRAY_OK },
        { 1e300, XRAY_E_ARG },    { -1e-9, XRAY_E_ARG }, { NAN, XRAY_E_ARG },
        { INFINITY, XRAY_E_ARG },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rig r;
        rig_batch b;
        rig_open(&r, RIG_KEYS("use_kl_in_reward", "true", "kl_coef", "0.5",
                              "kl_ctrl", "adaptive"));
        assert_int_equal(r.ops->load(r.self, &cases[i].value, sizeof(double)),
                         cases[i].status);
        if (cases[i].status != XRAY_OK)
            assert_string_equal(r.host.reason,
                                "load: the state was not saved by this plugin");
        rig_batch_init(&b);
        (void)rig_row(&b, 1, 2, 0, 1);
        assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
        near(rig_put(&r, "actor/reward_kl_penalty_coeff"),
             cases[i].status == XRAY_OK ? cases[i].value : 0.5, 0);
        rig_close(&r);
    }
    rig r;
    rig_batch b;
    const double other = 0.25;
    rig_open(&r, RIG_KEYS("use_kl_in_reward", "true", "kl_coef", "0.5"));
    assert_int_equal(r.ops->load(r.self, &other, sizeof(other)), XRAY_OK);
    rig_batch_init(&b);
    (void)rig_row(&b, 1, 2, 0, 1);
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    near(rig_put(&r, "actor/reward_kl_penalty_coeff"), 0.5, 0);
    rig_close(&r);
}

/* ---- batches ------------------------------------------------------------ */

/* Later batches may be larger, in rows and in tokens. */
static void workspaces_grow_with_the_batch(void **state)
{
    static const int32_t tokens[] = { 2, 20, 3, 30 };
    rig r;
    (void)state;
    rig_open(&r, RIG_KEYS("preset", "dr_grpo", "rollout_is", "token"));
    for (size_t i = 0; i < 4; i++) {
        rig_batch b;
        rig_batch_init(&b);
        for (int32_t k = 0; k < (int32_t)(2 + 4 * i); k++)
            (void)rig_row(&b, 1, tokens[i], k / 2, (float)(k % 2));
        assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
        for (uint32_t k = 0; k < b.b.rows; k++)
            near((double)rig_advantage(&b, k), k % 2 ? 0.5 : -0.5, 1e-6);
    }
    rig_close(&r);
}

/* Rewards of prompt tokens do not belong to the score of the response. */
static void rewards_of_prompts_do_not_count(void **state)
{
    rig r;
    rig_batch b;
    uint32_t keep[2] = { 7, 7 };
    (void)state;
    rig_open(&r, RIG_KEYS("preset", "dr_grpo", "filter_groups", "true"));
    rig_batch_init(&b);
    (void)rig_row(&b, 2, 2, 0, 1);
    (void)rig_row(&b, 2, 2, 0, 0);
    (void)rig_row(&b, 2, 2, 1, 1);
    (void)rig_row(&b, 2, 2, 1, 1);
    b.reward[0] = 40;
    b.reward[9] = 40;
    assert_int_equal(r.ops->accept(r.self, &b.b, 2, keep), XRAY_OK);
    assert_true(keep[0] == 1 && keep[1] == 0);
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    near((double)rig_advantage(&b, 0), 0.5, 1e-6);
    near((double)rig_advantage(&b, 2), 0, 0);
    near(rig_put(&r, "reward/frac_reward_zero_std"), 0.5, 0);
    rig_close(&r);
}

/* GDPO uses each reward separately, but the share of flat groups is that of
 * their sums. */
static void gdpo_reports_metrics_of_summed_rewards(void **state)
{
    rig r;
    rig_batch b;
    (void)state;
    rig_open(&r, RIG_KEYS("preset", "gdpo"));
    rig_batch_init(&b);
    for (int i = 0; i < 4; i++)
        (void)rig_row(&b, 1, 2, i / 2, i < 2 ? 1 : (float)i);
    b.b.score_count = 2;
    for (int i = 0; i < 4; i++) { /* the second reward is constant */
        b.scores[2 * i] = (float)(i % 2);
        b.scores[2 * i + 1] = 1;
    }
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    near(rig_put(&r, "reward/frac_reward_zero_std"), 0.5, 0);
    b.b.scores = NULL;
    assert_int_equal(rig_prepare(&r, &b), XRAY_E_ARG);
    b.b.scores = b.scores;
    b.b.score_weight = NULL;
    assert_int_equal(rig_prepare(&r, &b), XRAY_E_ARG);
    b.b.score_weight = b.score_weight;
    b.b.score_count = 0;
    assert_int_equal(rig_prepare(&r, &b), XRAY_E_ARG);
    assert_string_equal(r.host.reason,
                        "prepare: gdpo needs the score of every reward");
    b.b.score_count = 1;
    b.scores[1] = INFINITY;
    assert_int_equal(rig_prepare(&r, &b), XRAY_E_NUMERIC);
    assert_string_equal(r.host.reason,
                        "prepare: row 1000: its advantage is not finite");
    rig_close(&r);
}

/* A row with a NaN is named by its id. */
static void rows_with_a_nan_are_named(void **state)
{
    rig r;
    rig_batch b;
    (void)state;
    rig_open(&r, RIG_KEYS("use_kl_in_reward", "true", "kl_penalty", "kl"));
    rig_batch_init(&b);
    (void)rig_row(&b, 1, 2, 0, 1);
    (void)rig_row(&b, 1, 2, 0, 2);
    b.ref_logp[5] = -INFINITY;
    assert_int_equal(rig_prepare(&r, &b), XRAY_E_NUMERIC);
    assert_string_equal(
        r.host.reason,
        "prepare: row 1001: its KL to the reference is not finite");
    b.ref_logp[5] = 0;
    b.reward[5] = 2; /* the KL was subtracted from it */
    b.reward[2] = NAN;
    assert_int_equal(rig_prepare(&r, &b), XRAY_E_NUMERIC);
    assert_string_equal(r.host.reason,
                        "prepare: row 1000: its reward is not finite");
    b.reward[2] = 1;
    b.group[1] = 2;
    assert_int_equal(rig_prepare(&r, &b), XRAY_E_ARG);
    assert_string_equal(r.host.reason,
                        "prepare: row 1001: its group number is not below the "
                        "number of rows");
    b.group[1] = 0;
    b.b.row_id = NULL; /* then by its index */
    b.reward[5] = NAN;
    assert_int_equal(rig_prepare(&r, &b), XRAY_E_NUMERIC);
    assert_string_equal(r.host.reason,
                        "prepare: row 1: its reward is not finite");
    rig_close(&r);
    rig_open(&r, RIG_KEYS("preset", "maxrl", "adv_epsilon", "0"));
    rig_batch_init(&b);
    (void)rig_row(&b, 1, 2, 0, 1);
    assert_int_equal(rig_prepare(&r, &b), XRAY_E_NUMERIC);
    assert_string_equal(r.host.reason,
                        "prepare: row 1000: its advantage is beyond the range "
                        "of a float");
    rig_close(&r);
    for (int sign = -1; sign <= 1; sign += 2) { /* only the sum is too large */
        rig_open(&r, RIG_KEYS("preset", "reinforce_plus_plus"));
        rig_batch_init(&b);
        (void)rig_row(&b, 1, 2, 0, (float)sign * 3e38f);
        b.reward[1] = b.reward[2];
        assert_int_equal(rig_prepare(&r, &b), XRAY_E_NUMERIC);
        assert_string_equal(r.host.reason,
                            "prepare: row 1000: its advantage is not finite");
        rig_close(&r);
    }
}

/* Arrays that a rule reads must exist in every call that reads them. */
static void incomplete_batches_are_refused(void **state)
{
    rig r;
    rig_batch b;
    uint32_t keep[2];
    (void)state;
    rig_open(&r, RIG_KEYS("use_kl_in_reward", "true", "filter_groups", "true"));
    rig_batch_init(&b);
    (void)rig_row(&b, 1, 2, 0, 1);
    xray_batch complete = b.b;
    for (int i = 0; i < 6; i++) {
        b.b = complete;
        if (i == 0)
            b.b.reward = NULL;
        if (i == 1)
            b.b.prompt_len = NULL;
        if (i == 2)
            b.b.loss_mask = NULL;
        if (i < 3) {
            assert_int_equal(r.ops->accept(r.self, &b.b, 1, keep), XRAY_E_ARG);
            assert_string_equal(r.host.reason,
                                "accept: the batch lacks reward, prompt_len or "
                                "loss_mask");
        }
        if (i == 3)
            b.b.advantage = NULL;
        if (i == 4)
            b.b.old_logp = NULL;
        if (i == 5)
            b.b.ref_logp = NULL;
        assert_int_equal(rig_prepare(&r, &b), XRAY_E_ARG);
        assert_string_equal(
            r.host.reason,
            i < 4 ? "prepare: the batch lacks reward, advantage, loss_mask or "
                    "prompt_len"
                  : "prepare: use_kl_in_reward needs old_logp and ref_logp");
    }
    rig_close(&r);
}

/* ---- losses ------------------------------------------------------------- */

/* The divisor of the sum of a row is the option or the longest response. */
static void sums_are_divided_by_the_scale(void **state)
{
    static const struct {
        const char *factor;
        double scale;
    } cases[] = {
        { "0", RIG_RESPONSE }, { "0.5", 0.5 }, { "1", 1 }, { "8", 8 }
    };
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        rig r;
        rig_batch b;
        rig_sums sums;
        rig_open(&r, RIG_KEYS("preset", "dr_grpo", "loss_agg_mode",
                              "seq-mean-token-sum-norm", "loss_scale_factor",
                              cases[i].factor));
        rig_batch_init(&b);
        (void)rig_row(&b, 1, 1, 0, 0);
        (void)rig_row(&b, 1, 2, 0, 0);
        b.advantage[1] = 1;
        assert_int_equal(rig_loss(&r, &b, 1, 0, &sums), XRAY_OK);
        near((double)b.dlogp[1], -1 / cases[i].scale / 2, 1e-6);
        rig_close(&r);
    }
}

/* A mean over tokens of ones is exactly 1, although 49 * (1 / 49) is not. */
static void means_of_ones_are_one(void **state)
{
    rig r;
    rig_batch b;
    rig_sums sums;
    (void)state;
    rig_open(&r, RIG_KEYS("preset", "dapo"));
    rig_batch_init(&b);
    (void)rig_row(&b, 1, 25, 0, 0);
    (void)rig_row(&b, 1, 24, 0, 0);
    for (int i = 0; i < RIG_TOKENS; i++)
        b.entropy[i] = 1;
    assert_int_equal(rig_loss(&r, &b, 1, 1, &sums), XRAY_OK);
    assert_true(rig_metric(&r, &sums, "actor/entropy") == 1);
    rig_close(&r);
}

/* Calls the loss for rows [first, first + rows) of two rows. */
static xray_status call_rows(rig *r, const void *blob, uint64_t size,
                             const xray_loss_call *like, uint64_t count)
{
    double sum[RIG_METRICS] = { 0 };
    double weight[RIG_METRICS] = { 0 };
    xray_metric_sums sums = { .header = XRAY_HEADER(xray_metric_sums),
                              .sum = sum,
                              .weight = weight,
                              .count = count };
    return r->ops->loss(blob, size, like, &sums);
}

static uint64_t count_metrics(const rig *r)
{
    uint64_t count = 0;
    while (r->ops->metric_names(r->self)[count])
        count++;
    return count;
}

/* Marks belong to a mini-batch; rows outside of it have none. */
static void losses_stay_within_the_mini_batch(void **state)
{
    rig r;
    rig_batch b;
    char blob[4096];
    (void)state;
    rig_open(&r, RIG_KEYS("preset", "kl_cov"));
    rig_batch_init(&b);
    (void)rig_row(&b, 1, 2, 0, 1);
    (void)rig_row(&b, 1, 3, 0, 0);
    uint64_t size = rig_context(&r, &b, 0, 2, blob, sizeof(blob));
    uint64_t names = count_metrics(&r);
    uint32_t index[] = { 0, 1 };
    xray_batch one = b.b;
    one.rows = 1;
    one.tokens = 3;
    b.b.row_index = one.row_index = index;
    xray_loss_call like = { .header = XRAY_HEADER(xray_loss_call),
                            .batch = &b.b,
                            .logp = b.logp,
                            .dlogp = b.dlogp };
    assert_int_equal(call_rows(&r, blob + 1, size, &like, names), XRAY_OK);
    index[0] = 1;
    index[1] = 2;
    assert_int_equal(call_rows(&r, blob + 1, size, &like, names), XRAY_E_ARG);
    like.batch = &one;
    assert_int_equal(call_rows(&r, blob + 1, size, &like, names), XRAY_OK);
    index[0] = 2;
    assert_int_equal(call_rows(&r, blob + 1, size, &like, names), XRAY_E_ARG);
    index[0] = UINT32_MAX;
    assert_int_equal(call_rows(&r, blob + 1, size, &like, names), XRAY_E_ARG);
    one.row_index = NULL;
    assert_int_equal(call_rows(&r, blob + 1, size, &like, names), XRAY_E_ARG);
    one.row_index = index;
    index[0] = 0;
    assert_int_equal(call_rows(&r, blob + 1, size - 1, &like, names),
                     XRAY_E_ARG);
    assert_int_equal(call_rows(&r, blob + 1, 3, &like, names), XRAY_E_ARG);
    assert_int_equal(call_rows(&r, blob + 1, size, &like, names - 1),
                     XRAY_E_ARG);
    /* The same holds for its picked tokens. */
    assert_int_equal(r.ops->select(r.self, &b.b, b.logp, blob + 1, size),
                     XRAY_OK);
    assert_int_equal(r.ops->select(r.self, &one, b.logp, blob + 1, size),
                     XRAY_E_ARG);
    assert_string_equal(r.host.reason,
                        "select: the context belongs to another mini-batch");
    xray_batch bare = b.b;
    bare.old_logp = NULL;
    assert_int_equal(r.ops->select(r.self, &bare, b.logp, blob + 1, size),
                     XRAY_E_ARG);
    assert_int_equal(r.ops->select(r.self, &b.b, b.logp, blob + 1, size - 1),
                     XRAY_E_ARG);
    rig_close(&r);
}

/* A loss is refused without any one of the arrays that it reads. */
static void losses_need_their_arrays(void **state)
{
    rig r;
    rig_batch b;
    char blob[4096];
    (void)state;
    rig_open(&r, RIG_KEYS("use_kl_loss", "true", "entropy_coeff", "0.1",
                          "rollout_is", "token"));
    rig_batch_init(&b);
    (void)rig_row(&b, 1, 2, 0, 1);
    uint64_t size = rig_context(&r, &b, 0, 1, blob, sizeof(blob));
    for (int i = 0; i < 10; i++) {
        xray_batch batch = b.b;
        xray_loss_call like = { .header = XRAY_HEADER(xray_loss_call),
                                .batch = &batch,
                                .logp = b.logp,
                                .entropy = b.entropy,
                                .dlogp = b.dlogp,
                                .dentropy = b.dentropy };
        const void **fields[] = {
            (const void **)&batch.old_logp,     (const void **)&batch.advantage,
            (const void **)&batch.loss_mask,    (const void **)&batch.ref_logp,
            (const void **)&batch.rollout_logp, (const void **)&like.logp,
            (const void **)&like.dlogp,         (const void **)&like.entropy,
            (const void **)&like.dentropy
        };
        if (i < 9)
            *fields[i] = NULL;
        assert_int_equal(
            call_rows(&r, blob + 1, size, &like, count_metrics(&r)),
            i < 9 ? XRAY_E_ARG : XRAY_OK);
    }
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_combination_is_accepted_or_refused),
        cmocka_unit_test(presets_clip_their_own_loss),
        cmocka_unit_test(states_are_checked_before_use),
        cmocka_unit_test(workspaces_grow_with_the_batch),
        cmocka_unit_test(rewards_of_prompts_do_not_count),
        cmocka_unit_test(gdpo_reports_metrics_of_summed_rewards),
        cmocka_unit_test(rows_with_a_nan_are_named),
        cmocka_unit_test(incomplete_batches_are_refused),
        cmocka_unit_test(sums_are_divided_by_the_scale),
        cmocka_unit_test(means_of_ones_are_one),
        cmocka_unit_test(losses_stay_within_the_mini_batch),
        cmocka_unit_test(losses_need_their_arrays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
