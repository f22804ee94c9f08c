/* SPDX-License-Identifier: Apache-2.0
 *
 * PPO at its bounds: values that each option refuses and the neighbouring
 * values that pass, states, divisors of scores, and the controller of an
 * epoch.
 */
#include <math.h>

#include "plugins/algo-ppo/prepare.h"
#include "tests/algo/ppo_rig.h"

/* ---- options ------------------------------------------------------------ */

#define ADAPTIVE "kl_ctrl", "adaptive", "use_kl_in_reward", "true"
#define CLIP_C                                                         \
    "create: clip_ratio_c: expected -1 (by the preset), 0 (off) or a " \
    "number above 1"

static const struct {
    const char *keys[9];
    const char *says; /* NULL: it is taken */
} combinations[] = {
    { { "lam", "-0.5" },
      "create: lam: expected -1 (by the preset) or a number from 0 to 1" },
    { { "lam", "0" }, NULL },
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
    { { "cliprange_value", "-0.5" },
      "create: cliprange_value: expected -1 (by the preset), 0 (off) or a "
      "number above 0" },
    { { "cliprange_value", "0" }, NULL },
    { { "cliprange_reward", "-0.5" },
      "create: cliprange_reward: expected -1 (by the preset), 0 (off) or a "
      "number above 0" },
    { { "cliprange_reward", "0" }, NULL },
    { { "loss_scale_factor", "8" },
      "create: loss_scale_factor: only loss_agg_mode = "
      "seq-mean-token-sum-norm uses it; remove the key or set that mode" },
    { { "loss_scale_factor", "8", "loss_agg_mode", "seq-mean-token-sum-norm" },
      NULL },
    { { "loss_scale_factor", "8", "critic_loss_agg_mode",
        "seq-mean-token-sum-norm" },
      NULL },
    { { "vf_coef", "0.5" },
      "create: vf_coef: a critic has a separate loss, which [critic.optim] lr "
      "scales; "
      "remove the key or set value_model = policy" },
    { { "vf_coef", "0.5", "value_model", "policy" }, NULL },
    { { "kl_ctrl", "adaptive" },
      "create: kl_ctrl: adaptive needs use_kl_in_reward = true" },
    { { ADAPTIVE }, NULL },
    { { ADAPTIVE, "target_kl", "0" },
      "create: target_kl: expected a number above 0" },
    { { "target_kl", "0" }, NULL },
    { { ADAPTIVE, "horizon", "0" },
      "create: horizon: expected a number above 0" },
    { { "horizon", "0" }, NULL },
    { { ADAPTIVE, "kl_ctrl_update", "epoch" },
      "create: kl_ctrl_update: epoch needs value_model = policy; with a critic "
      "set step" },
    { { ADAPTIVE, "kl_ctrl_update", "epoch", "value_model", "policy" }, NULL },
    { { "kl_ctrl_update", "epoch" }, NULL },
    { { "ref_std", "2" },
      "create: ref_std: only scale_reward = ref uses it; remove the key or "
      "set that choice" },
    { { "ref_std", "2", "scale_reward", "running" },
      "create: ref_std: only scale_reward = ref uses it; remove the key or "
      "set that choice" },
    { { "ref_std", "2", "scale_reward", "ref" }, NULL },
};

static void each_combination_is_accepted_or_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(combinations) / sizeof(combinations[0]);
         i++) {
        const char *says = combinations[i].says;
        rig r;
        xray_status status = rig_try(&r, combinations[i].keys);
        if (status != (says ? XRAY_E_CONFIG : XRAY_OK) ||
            strcmp(r.host.reason, says ? says : "") != 0)
            fail_msg("%s = %s: \"%s\"", combinations[i].keys[0],
                     combinations[i].keys[1], r.host.reason);
        if (status == XRAY_OK)
            rig_close(&r);
    }
}

/* Zero is a number like any other; only -1 stands for the preset's. */
static void zero_replaces_the_preset(void **state)
{
    static const struct {
        const char *lam;
        double want; /* the return of the first of two tokens */
    } cases[] = {
        { "0", 0.75 },
        { "0.5", 0.875 },
        { "1", 1 },
        { "-1", 1 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rig r;
        rig_batch b;
        rig_open(&r, RIG_KEYS("lam", cases[i].lam));
        rig_batch_init(&b);
        (void)ppo_row(&b, 1, 2, 0);
        b.reward[1] = 0.75f;
        b.reward[2] = 0.25f;
        assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
        rig_near((double)b.returns[1], cases[i].want, 1e-6, cases[i].lam);
        rig_close(&r);
    }
}

/* ---- states ------------------------------------------------------------- */

/* A state with any impossible number is refused. */
static void states_are_checked_before_use(void **state)
{
    rig r;
    ppo_state good;
    uint64_t size = 0;
    (void)state;
    rig_open(&r, NULL);
    assert_int_equal(r.ops->save(r.self, &good, sizeof(good), &size), XRAY_OK);
    assert_int_equal(size, sizeof(good));
    good.moments.mean = -3; /* a mean may be negative */
    assert_int_equal(r.ops->load(r.self, &good, size), XRAY_OK);
    for (int i = 0; i < 11; i++) {
        ppo_state bad = good;
        double *numbers[] = { &bad.kl_coef,           &bad.ref_std,
                              &bad.moments.count,     &bad.moments.variance,
                              &bad.moments.deviation, &bad.moments.mean };
        *numbers[i % 6] = i < 6 ? INFINITY : -1;
        if (i == 11)
            break;
        assert_int_equal(r.ops->load(r.self, &bad, size), XRAY_E_IO);
        assert_string_equal(r.host.reason,
                            "load: the state holds an impossible number");
    }
    good.version++;
    assert_int_equal(r.ops->load(r.self, &good, size), XRAY_E_IO);
    assert_string_equal(r.host.reason,
                        "load: the state belongs to another version");
    char want[128];
    (void)snprintf(want, sizeof(want),
                   "load: the state has 3 bytes, expected %zu: it belongs to "
                   "another algorithm or version",
                   sizeof(good));
    assert_int_equal(r.ops->load(r.self, &good, 3), XRAY_E_IO);
    assert_string_equal(r.host.reason, want);
    rig_close(&r);
}

/* ---- scores ------------------------------------------------------------- */

/* Fills two rows whose scores, 1 and 3, are spread over all their tokens. */
static void fill_rows(rig_batch *b, float times)
{
    rig_batch_init(b);
    (void)ppo_row(b, 1, 2, 0);
    (void)ppo_row(b, 1, 2, 0);
    b->reward[1] = 0.75f * times;
    b->reward[2] = 0.25f * times;
    b->reward[4] = 1 * times;
    b->reward[5] = 2 * times;
}

/* Fills rows of one token, each with a score of 1. */
static void fill_equal_rows(rig_batch *b, uint32_t rows)
{
    rig_batch_init(b);
    for (uint32_t i = 0; i < rows; i++) {
        (void)ppo_row(b, 1, 1, 0);
        b->reward[2 * i + 1] = 1;
    }
}

/* Scores of 1 and 3 have a deviation of sqrt(2). The reference deviation is
 * that of the first step or the option, the running one is that of all steps.
 * The mean is not subtracted. */
static void scores_are_divided(void **state)
{
    static const struct {
        const char *keys[5];
        double first;
        double second; /* of scores ten times as large */
    } cases[] = {
        { { "scale_reward", "ignored" }, 1, 1 },
        { { "scale_reward", "ref" }, 1.41421356, 1.41421356 },
        { { "scale_reward", "ref", "ref_std", "0.5" }, 0.5, 0.5 },
        /* 1 3 10 30 have a mean of 11 and a variance of 526 / 3. */
        { { "scale_reward", "running" }, 1.41421356, 13.2413494 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rig r;
        rig_batch b;
        rig_open(&r, cases[i].keys);
        fill_rows(&b, 1);
        assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
        rig_near((double)b.reward[1], 0.75 / cases[i].first, 1e-6, "first");
        rig_near((double)b.reward[5], 2 / cases[i].first, 1e-6, "first");
        rig_near(rig_put(&r, "rollout_scores/running_mean"), 2, 1e-9, "mean");
        fill_rows(&b, 10);
        assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
        rig_near((double)b.reward[1], 7.5 / cases[i].second, 1e-5, "second");
        rig_near((double)b.reward[5], 20 / cases[i].second, 1e-5, "second");
        rig_near(rig_put(&r, "rollout_scores/running_mean"), 11, 1e-9, "mean");
        rig_near(rig_put(&r, "rollout_scores/running_std"), 13.2413494, 1e-6,
                 "deviation");
        fill_equal_rows(&b, 16); /* more rows than any step before */
        assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
        rig_near(rig_put(&r, "rollout_scores/running_mean"), 3, 1e-9, "mean");
        rig_close(&r);
    }
}

/* Equal scores are not divided, whichever divisor is set. */
static void equal_scores_are_not_divided(void **state)
{
    static const char *const scales[] = { "running", "ref" };
    (void)state;
    for (int i = 0; i < 2; i++) {
        rig r;
        rig_batch b;
        rig_open(&r, RIG_KEYS("scale_reward", scales[i]));
        rig_batch_init(&b);
        (void)ppo_row(&b, 1, 2, 0.5f);
        (void)ppo_row(&b, 1, 3, 0.5f);
        assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
        assert_true(b.reward[2] == 0.5f && b.reward[6] == 0.5f);
        rig_close(&r);
    }
}

/* Scores are clipped token by token before they are measured. */
static void scores_are_clipped_first(void **state)
{
    rig r;
    rig_batch b;
    (void)state;
    rig_open(&r, RIG_KEYS("cliprange_reward", "1.5", "gamma", "0.5"));
    fill_rows(&b, 1);
    b.reward[4] = -4;
    b.reward[3] = 7; /* on a prompt, so not part of a score */
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    assert_true(b.reward[5] == 1.5f && b.reward[4] == -1.5f);
    assert_true(b.reward[1] == 0.75f && b.reward[3] == 7);
    rig_near(rig_put(&r, "rollout_scores/running_mean"), 0.5, 1e-9, "mean");
    rig_near((double)b.returns[4], -1.5 + 0.5 * 1.5, 1e-6, "return");
    assert_true(b.returns[3] == 0 && b.advantage[3] == 0);
    rig_close(&r);
}

/* The k3 of a reference that is far away is limited to 10, in the loss and in
 * the reward, and a log-ratio to 20, where bounds are asked for, as verl does
 * and trlX does not. */
static void safety_bounds_limit_kl_and_ratio(void **state)
{
    static const struct {
        const char *preset, *bounds;
        int bounded;
    } cases[] = { { "verl", "true", 1 },
                  { "verl", "false", 0 },
                  { "verl", "auto", 1 },
                  { "trlx", "auto", 0 },
                  { "trlx", "true", 1 } };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rig r;
        rig_batch b;
        rig_sums sums;
        ppo_mini mini = { 0, 1, 0, 0 };
        const int bounded = cases[i].bounded;
        rig_open(&r,
                 RIG_KEYS("use_kl_loss", "true", "use_kl_in_reward", "true",
                          "kl_penalty", "low_var_kl", "kl_ctrl_update", "step",
                          "value_model", "critic", "preset", cases[i].preset,
                          "safety_bounds", cases[i].bounds));
        rig_batch_init(&b);
        (void)ppo_row(&b, 1, 1, 0);
        b.old_logp[1] = b.logp[1] = -5;
        b.ref_logp[1] = -1;
        assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
        rig_near(rig_put(&r, "actor/reward_kl_penalty"),
                 bounded ? 10 : exp(4) - 4 - 1, 1e-5, "reward_kl_penalty");
        assert_int_equal(ppo_run_mini(&r, &b, &mini, &sums), XRAY_OK);
        rig_near(rig_metric(&r, &sums, "actor/kl_loss"),
                 bounded ? 10 : exp(4) - 4 - 1, 1e-5, "kl_loss");
        b.logp[1] = -30;
        assert_int_equal(ppo_run_mini(&r, &b, &mini, &sums), XRAY_OK);
        rig_near(rig_metric(&r, &sums, "actor/ppo_kl"), bounded ? 20 : 25, 1e-5,
                 "ppo_kl");
        rig_close(&r);
    }
}

/* The KL in the reward has the estimate of its key; here l is -8. */
static void rewards_have_the_kl_of_the_key(void **state)
{
    static const struct {
        const char *type;
        double kl;
    } cases[] = {
        { "kl", -8 }, { "abs", 8 }, { "mse", 32 }, { "k3", 2971.957987 }
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rig r;
        rig_batch b;
        rig_open(&r, RIG_KEYS("use_kl_in_reward", "true", "kl_penalty",
                              cases[i].type, "safety_bounds", "false"));
        rig_batch_init(&b);
        (void)ppo_row(&b, 1, 1, 0);
        b.old_logp[1] = -9;
        b.ref_logp[1] = -1;
        assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
        rig_near((double)b.reward[1], -0.001 * cases[i].kl, 1e-5,
                 cases[i].type);
        rig_close(&r);
    }
}

/* ---- the controller ----------------------------------------------------- */

/* trlX updates its controller once per epoch, by the rows of the first
 * mini-batch, even if the last one is smaller. */
static void epochs_move_the_controller(void **state)
{
    static const ppo_mini minis[] = { { 0, 2, 0, 0 },
                                      { 2, 1, 0, 0 },
                                      { 0, 2, 0, 0 },
                                      { 2, 1, 0, 0 },
                                      { 0, 2, 0, 0 } };
    rig r;
    rig_batch b;
    rig_sums sums;
    double beta = 0.5;
    (void)state;
    rig_open(&r, RIG_KEYS("preset", "trlx", "kl_ctrl", "adaptive", "kl_coef",
                          "0.5", "target_kl", "0.1", "horizon", "10"));
    for (int step = 0; step < 2; step++) {
        rig_batch_init(&b);
        for (int i = 0; i < 3; i++)
            (void)ppo_row(&b, 1, 2, 1);
        for (uint32_t i = 0; i < b.b.tokens; i++)
            b.ref_logp[i] = -1;
        assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
        rig_near(rig_put(&r, "actor/reward_kl_penalty_coeff"), beta, 1e-12,
                 "coefficient");
        /* The row's sum is twice exp(l) - 1 - l at l = 1. */
        rig_near(rig_put(&r, "actor/reward_kl_penalty"), 2 * (exp(1) - 2), 1e-6,
                 "KL");
        /* There are two epochs. In the second step one more ended early, which
         * does not count. */
        for (int i = 0; i < 4 + step; i++)
            assert_int_equal(ppo_run_mini(&r, &b, &minis[i], &sums), XRAY_OK);
        assert_int_equal(ppo_observe(&r), XRAY_OK);
        beta *= (1 + 0.2 * 2 / 10) * (1 + 0.2 * 2 / 10);
    }
    /* A step without an update does not change the controller. */
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    assert_int_equal(ppo_observe(&r), XRAY_OK);
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    rig_near(rig_put(&r, "actor/reward_kl_penalty_coeff"), beta, 1e-12,
             "coefficient");
    rig_close(&r);
}

static void incomplete_batches_are_refused(void **state)
{
    rig r;
    rig_batch b;
    (void)state;
    rig_open(&r, RIG_KEYS("use_kl_in_reward", "true"));
    fill_rows(&b, 1);
    xray_batch complete = b.b;
    for (int i = 0; i < 8; i++) {
        b.b = complete;
        const void **fields[] = {
            (const void **)&b.b.reward,     (const void **)&b.b.advantage,
            (const void **)&b.b.returns,    (const void **)&b.b.loss_mask,
            (const void **)&b.b.prompt_len, (const void **)&b.b.value,
            (const void **)&b.b.old_logp,   (const void **)&b.b.ref_logp
        };
        *fields[i] = NULL;
        assert_int_equal(rig_prepare(&r, &b), XRAY_E_ARG);
        assert_string_equal(
            r.host.reason,
            i < 5    ? "prepare: the batch lacks reward, advantage, returns, "
                       "loss_mask or prompt_len"
            : i == 5 ? "prepare: the batch lacks the values of its tokens"
                     : "prepare: use_kl_in_reward needs old_logp and ref_logp");
    }
    rig_close(&r);
}

/* ---- what a step leaves ---------------------------------------------------
 */

/* A prepare that fails changes neither the controller nor the moments, in the
 * same step and at its end. */
static void a_failed_step_leaves_the_state(void **state)
{
    static const char *const updates[] = { "step", "epoch" };
    (void)state;
    for (int k = 0; k < 2; k++) {
        rig r;
        rig_batch b;
        ppo_state before;
        ppo_state after;
        uint64_t size = 0;
        rig_open(&r, RIG_KEYS("use_kl_in_reward", "true", "kl_ctrl", "adaptive",
                              "kl_coef", "0.5", "target_kl", "0.1", "horizon",
                              "10", "value_model", "policy", "kl_ctrl_update",
                              updates[k]));
        assert_int_equal(r.ops->save(r.self, &before, sizeof(before), &size),
                         XRAY_OK);
        assert_true(before.kl_coef == 0.5 && before.moments.deviation == 1);
        for (int i = 0; i < 3; i++) {
            fill_rows(&b, 1);
            for (uint32_t t = 0; t < b.b.tokens; t++)
                b.ref_logp[t] = -1;
            float *bad[] = { &b.reward[5], &b.ref_logp[5], &b.value[5] };
            *bad[i] = (float)NAN;
            assert_int_equal(rig_prepare(&r, &b), XRAY_E_NUMERIC);
            assert_int_equal(ppo_observe(&r), XRAY_OK);
            assert_int_equal(r.ops->save(r.self, &after, sizeof(after), &size),
                             XRAY_OK);
            assert_memory_equal(&before, &after, sizeof(after));
        }
        rig_close(&r);
    }
}

/* Prompts have no advantage and no return, whatever was there, and nothing
 * after the last token is written. */
static void only_the_tokens_of_a_batch_are_written(void **state)
{
    rig r;
    rig_batch b;
    (void)state;
    rig_open(&r, RIG_KEYS("scale_reward", "running", "cliprange_reward", "1.5",
                          "use_kl_in_reward", "true", "kl_coef", "0.5"));
    fill_rows(&b, 1);
    for (uint32_t i = 0; i < b.b.tokens + 4; i++) {
        b.advantage[i] = b.returns[i] = 9;
        b.mask[i] = i >= b.b.tokens ? 1 : b.mask[i];
        b.ref_logp[i] = -1;
    }
    for (uint32_t i = b.b.tokens; i < b.b.tokens + 4; i++)
        b.reward[i] = 9;
    b.reward[0] = b.reward[3] = 9;
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    for (int i = 0; i < 6; i += 3) {
        assert_true(b.reward[i] == 9);
        assert_true(b.advantage[i] == 0 && b.returns[i] == 0);
    }
    for (uint32_t i = b.b.tokens; i < b.b.tokens + 4; i++)
        assert_true(b.reward[i] == 9 && b.advantage[i] == 9 &&
                    b.returns[i] == 9);
    rig_close(&r);
}

/* ---- the loss ------------------------------------------------------------ */

#define LOSS_KEYS                                                            \
    RIG_KEYS("value_model", "policy", "use_kl_loss", "true", "kl_loss_type", \
             "kl", "kl_loss_coef", "0.5", "entropy_coeff", "0.25")

/* A call that lacks anything that its loss reads or writes is refused. */
static void a_loss_needs_all_that_it_reads(void **state)
{
    rig r;
    rig_batch b;
    rig_sums out;
    char context[1024];
    (void)state;
    rig_open(&r, LOSS_KEYS);
    fill_rows(&b, 1);
    ppo_fill(&b, 5);
    uint64_t size = rig_context(&r, &b, 0, 2, context, sizeof(context));
    for (int i = 0; i < 12; i++) {
        xray_batch batch = b.b;
        xray_metric_sums sums = rig_sums_open(&r, &out);
        xray_loss_call call = { .header = XRAY_HEADER(xray_loss_call),
                                .batch = &batch,
                                .logp = b.logp,
                                .entropy = b.entropy,
                                .value = b.value_now,
                                .dlogp = b.dlogp,
                                .dentropy = b.dentropy,
                                .dvalue = b.dvalue };
        const void **fields[] = {
            (const void **)&call.value,      (const void **)&call.dvalue,
            (const void **)&batch.value,     (const void **)&batch.returns,
            (const void **)&batch.loss_mask, (const void **)&call.logp,
            (const void **)&call.dlogp,      (const void **)&call.entropy,
            (const void **)&call.dentropy,   (const void **)&batch.old_logp,
            (const void **)&batch.advantage, (const void **)&batch.ref_logp,
        };
        assert_int_equal(r.ops->loss(context + 1, size, &call, &sums), XRAY_OK);
        *fields[i] = NULL;
        if (r.ops->loss(context + 1, size, &call, &sums) != XRAY_E_ARG)
            fail_msg("field %d", i);
        xray_status critic =
            r.ops->critic_loss(context + 1, size, &call, &sums);
        assert_int_equal(critic, i < 5 ? XRAY_E_ARG : XRAY_OK);
    }
    rig_close(&r);
}

/* The metrics are means over the tokens in the loss, worked out by hand. */
static void metrics_are_means_over_tokens(void **state)
{
    rig r;
    rig_batch b;
    rig_sums sums;
    const ppo_mini mini = { 0, 2, 1, 0 };
    static const float now[] = { 0, -1.5f, -0.75f, 0, -1, -2 };
    (void)state;
    rig_open(&r, LOSS_KEYS);
    fill_rows(&b, 1);
    for (uint32_t i = 0; i < b.b.tokens; i++) {
        b.old_logp[i] = -1;
        b.ref_logp[i] = -1.25f;
        b.logp[i] = now[i];
        b.entropy[i] = (float)i;
        b.value_now[i] = 0.5f * (float)i;
        b.value[i] = b.returns[i] = b.advantage[i] = 0;
    }
    b.mask[5] = 0;
    assert_int_equal(ppo_run_mini(&r, &b, &mini, &sums), XRAY_OK);
    rig_near(rig_metric(&r, &sums, "actor/ppo_kl"), (0.5 - 0.25 + 0) / 3, 1e-9,
             "ppo_kl");
    rig_near(rig_metric(&r, &sums, "actor/kl_loss"), (-0.25 + 0.5 + 0.25) / 3,
             1e-9, "kl_loss");
    rig_near(rig_metric(&r, &sums, "actor/kl_coef"), 0.5, 1e-12, "kl_coef");
    rig_near(rig_metric(&r, &sums, "actor/entropy"), (1.0 + 2 + 4) / 3, 1e-9,
             "entropy");
    rig_near(rig_metric(&r, &sums, "critic/vpred_mean"), (0.5 + 1 + 2) / 3,
             1e-9, "vpred_mean");
    rig_near(rig_metric(&r, &sums, "actor/pg_loss"), 0, 1e-12, "pg_loss");
    rig_close(&r);
}

/* A row of which nothing is trained counts as a row without KL. */
static void a_row_without_tokens_has_no_kl(void **state)
{
    (void)state;
    rig r;
    rig_batch b;
    rig_open(&r, RIG_KEYS("use_kl_in_reward", "true"));
    rig_batch_init(&b);
    (void)ppo_row(&b, 1, 2, 1);
    (void)ppo_row(&b, 1, 2, 1);
    for (int i = 0; i < 6; i++) {
        b.old_logp[i] = -1;
        b.ref_logp[i] = i % 3 == 1 ? -2 : -1.5f;
    }
    b.mask[4] = b.mask[5] = 0;
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    rig_near(rig_put(&r, "actor/reward_kl_penalty"), (1 + 0.5) / 2 / 2, 1e-6,
             "KL");
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_combination_is_accepted_or_refused),
        cmocka_unit_test(zero_replaces_the_preset),
        cmocka_unit_test(states_are_checked_before_use),
        cmocka_unit_test(scores_are_divided),
        cmocka_unit_test(equal_scores_are_not_divided),
        cmocka_unit_test(scores_are_clipped_first),
        cmocka_unit_test(safety_bounds_limit_kl_and_ratio),
        cmocka_unit_test(rewards_have_the_kl_of_the_key),
        cmocka_unit_test(epochs_move_the_controller),
        cmocka_unit_test(incomplete_batches_are_refused),
        cmocka_unit_test(a_failed_step_leaves_the_state),
        cmocka_unit_test(only_the_tokens_of_a_batch_are_written),
        cmocka_unit_test(a_loss_needs_all_that_it_reads),
        cmocka_unit_test(metrics_are_means_over_tokens),
        cmocka_unit_test(a_row_without_tokens_has_no_kl),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
