/* SPDX-License-Identifier: Apache-2.0
 *
 * The losses of PPO: gradients against finite differences of a second,
 * independent float64 implementation, and what must not change them.
 */
#include "tests/algo/ppo_rig.h"

#include <math.h>

#include "plugins/algo-ppo/rule.h"

#include "tests/algo/vectors.h"

static const char *const modes[] = { "token-mean", "token-sum",
                                     "seq-mean-token-sum",
                                     "seq-mean-token-sum-norm",
                                     "seq-mean-token-mean" };

/* ---- the second implementation ------------------------------------------- */

typedef struct oracle {
    int mode;
    int value_mode;
    double dual; /* 0: none */
    double value_clip;
    double vf_coef; /* 0: no value loss */
    double kl_coef; /* of k3; 0: none */
    double entropy_coef;
} oracle;

static double compute_loss(const oracle *o, const rig_batch *b,
                           const double *logp, const double *entropy,
                           const double *value)
{
    double policy[RIG_TOKENS] = { 0 };
    double squares[RIG_TOKENS] = { 0 };
    for (uint32_t i = 0; i < b->b.tokens; i++) {
        if (b->mask[i] == 0)
            continue;
        double a = (double)b->advantage[i];
        double ratio = exp(logp[i] - (double)b->old_logp[i]);
        policy[i] = fmax(-a * ratio, -a * rig_limit(ratio, 0.8, 1.3));
        if (o->dual > 0 && a < 0)
            policy[i] = fmin(policy[i], -a * o->dual);
        double d = (double)b->ref_logp[i] - logp[i];
        if (o->kl_coef > 0)
            policy[i] += o->kl_coef * (exp(d) - d - 1);
        policy[i] -= o->entropy_coef * entropy[i];
        double old = (double)b->value[i];
        double r = (double)b->returns[i];
        double kept =
            rig_limit(value[i], old - o->value_clip, old + o->value_clip);
        squares[i] = 0.5 * fmax(pow(value[i] - r, 2), pow(kept - r, 2));
    }
    return rig_aggregate(modes[o->mode], policy, b) +
           o->vf_coef * rig_aggregate(modes[o->value_mode], squares, b);
}

/* ---- fixtures ------------------------------------------------------------ */

static void make_rows(rig_batch *b)
{
    rig_batch_init(b);
    for (int i = 0; i < 6; i++)
        (void)ppo_row(b, 1 + i % 3, 3 + (5 * i) % 7, 0);
    b->mask[b->row_start[3] + 3] = 0; /* an observation */
    ppo_fill(b, 77);
    for (uint32_t i = 0; i < b->b.tokens; i++) {
        int k = (int)(i % 7);
        b->advantage[i] = 0.6f * (float)(k - 3) + 0.1f;
        b->returns[i] = 0.35f * (float)(k - 2);
    }
}

/* Converts to doubles, with 0 outside of the mask. */
static void widen_values(const rig_batch *b, const float *from, double *to)
{
    for (uint32_t i = 0; i < RIG_TOKENS; i++)
        to[i] = i < b->b.tokens && b->mask[i] != 0 ? (double)from[i] : 0;
}

#define STEP 1e-6
static void compare_gradients(const rig_batch *b, const oracle *o, int critic)
{
    double x[3][RIG_TOKENS];
    const float *got[] = { b->dlogp, b->dentropy, b->dvalue };
    widen_values(b, b->logp, x[0]);
    widen_values(b, b->entropy, x[1]);
    widen_values(b, b->value_now, x[2]);
    for (int k = critic ? 2 : 0; k < 3; k++)
        for (uint32_t i = 0; i < b->b.tokens; i++) {
            double at = x[k][i];
            x[k][i] = at + STEP;
            double high = compute_loss(o, b, x[0], x[1], x[2]);
            x[k][i] = at - STEP;
            double low = compute_loss(o, b, x[0], x[1], x[2]);
            x[k][i] = at;
            rig_near((double)got[k][i], (high - low) / (2 * STEP), 2e-6,
                     k == 2 ? "dvalue"
                     : k    ? "dentropy"
                            : "dlogp");
        }
}

/* Checks that the reported loss is the one whose gradient was returned. */
static void check_same_loss(const rig *r, const rig_batch *b, const oracle *o,
                            const rig_sums *sums)
{
    double x[3][RIG_TOKENS];
    widen_values(b, b->logp, x[0]);
    widen_values(b, b->entropy, x[1]);
    widen_values(b, b->value_now, x[2]);
    rig_near(rig_metric(r, sums, "actor/loss"),
             compute_loss(o, b, x[0], x[1], x[2]), 1e-6, "actor/loss");
}

/* ---- tests --------------------------------------------------------------- */

static void a_value_head_agrees_with_finite_differences(void **state)
{
    (void)state;
    for (int mode = 0; mode < 5; mode++) {
        rig r;
        rig_batch b;
        rig_sums sums;
        ppo_mini mini = { 0, 6, 0, 0 };
        oracle o = { mode, (mode + 1) % 5, mode % 2 ? 3 : 0, 0.3, 0.7, 0.05,
                     0.01 };
        rig_open(&r,
                 RIG_KEYS("value_model", "policy", "whiten_advantages", "none",
                          "safety_bounds", "false", "clip_ratio_c",
                          mode % 2 ? "3" : "0", "clip_ratio_high", "0.3",
                          "cliprange_value", "0.3", "vf_coef", "0.7",
                          "use_kl_loss", "true", "kl_loss_coef", "0.05",
                          "entropy_coeff", "0.01", "loss_agg_mode", modes[mode],
                          "critic_loss_agg_mode", modes[(mode + 1) % 5]));
        make_rows(&b);
        assert_int_equal(ppo_run_mini(&r, &b, &mini, &sums), XRAY_OK);
        compare_gradients(&b, &o, 0);
        check_same_loss(&r, &b, &o, &sums);
        assert_true(rig_metric(&r, &sums, "critic/vf_clipfrac") > 0);
        assert_true(rig_metric(&r, &sums, "critic/vf_clipfrac") < 1);
        assert_true(rig_metric(&r, &sums, "actor/pg_clipfrac") > 0);
        rig_close(&r);
    }
}

static void a_critic_agrees_with_finite_differences(void **state)
{
    (void)state;
    for (int mode = 0; mode < 5; mode++) {
        rig r;
        rig_batch b;
        rig_sums sums;
        ppo_mini mini = { 0, 6, 0, 1 };
        oracle o = { mode, mode, 0, 0.5, 1, 0, 0 };
        rig_open(&r, RIG_KEYS("loss_agg_mode", modes[mode]));
        make_rows(&b);
        assert_int_equal(ppo_run_mini(&r, &b, &mini, &sums), XRAY_OK);
        compare_gradients(&b, &o, 1);
        for (uint32_t i = 0; i < b.b.tokens; i++)
            assert_true(b.dlogp[i] == 0);
        assert_true(isnan(rig_metric(&r, &sums, "actor/pg_loss")));
        assert_true(rig_metric(&r, &sums, "critic/vf_loss") > 0);
        /* With a critic, the loss of the policy does not use values. */
        memset(b.dvalue, 0, sizeof(b.dvalue));
        mini.critic = 0;
        assert_int_equal(ppo_run_mini(&r, &b, &mini, &sums), XRAY_OK);
        for (uint32_t i = 0; i < b.b.tokens; i++)
            assert_true(b.dvalue[i] == 0);
        rig_close(&r);
    }
}

/* Whoever names a preset and no more gets its numbers, and for all other keys
 * those that docs/ppo.md names. */
static void presets_have_the_numbers_of_the_page(void **state)
{
    static const ppo_rule all[] = {
        { .gae = { .gamma = 1, .lam = 1 },
          .clip = { .low = 0.2, .high = 0.2, .dual = 3, .bound = 20 },
          .value_model = PPO_VALUE_CRITIC,
          .whiten = PPO_WHITEN_BATCH,
          .cliprange_value = 0.5,
          .control_update = PPO_CONTROL_STEP },
        { .gae = { .gamma = 1, .lam = 0.95 },
          .clip = { .low = 0.2, .high = 0.2, .dual = 0, .bound = 0 },
          .value_model = PPO_VALUE_POLICY,
          .whiten = PPO_WHITEN_PADDED,
          .cliprange_value = 0.2,
          .kl_reward = { .use = 1 },
          .control_update = PPO_CONTROL_EPOCH,
          .cliprange_reward = 10 },
    };
    (void)state;
    for (int i = 0; i < 2; i++) {
        const ppo_rule *want = &all[i];
        rig r;
        ppo_rule got;
        rig_open(&r, RIG_KEYS("preset", i ? "trlx" : "verl"));
        assert_int_equal(
            ppo_rule_resolve(&r.host.api, (const void *)r.config, &got),
            XRAY_OK);
        rig_near(got.gae.gamma, want->gae.gamma, 0, "gamma");
        rig_near(got.gae.lam, want->gae.lam, 0, "lam");
        rig_near(got.clip.low, want->clip.low, 0, "clip_ratio_low");
        rig_near(got.clip.high, want->clip.high, 0, "clip_ratio_high");
        rig_near(got.clip.dual, want->clip.dual, 0, "clip_ratio_c");
        rig_near(got.clip.bound, want->clip.bound, 0, "safety_bounds");
        assert_int_equal(got.value_model, want->value_model);
        assert_int_equal(got.whiten, want->whiten);
        rig_near(got.cliprange_value, want->cliprange_value, 0, "value clip");
        rig_near(got.cliprange_reward, want->cliprange_reward, 0, "scores");
        assert_int_equal(got.kl_reward.use, want->kl_reward.use);
        assert_int_equal(got.kl_reward.type, XM_RL_KL_K1);
        rig_near(got.kl_reward.coefficient, 0.001, 0, "kl_coef");
        assert_false(got.control.adaptive);
        rig_near(got.control.target, 0.1, 0, "target_kl");
        rig_near(got.control.horizon, 10000, 0, "horizon");
        assert_int_equal(got.control_update, want->control_update);
        assert_false(got.kl_loss.use);
        assert_int_equal(got.kl_loss.type, XM_RL_KL_K3);
        rig_near(got.kl_loss.coefficient, 0.001, 0, "kl_loss_coef");
        rig_near(got.entropy_coeff, 0, 0, "entropy_coeff");
        rig_near(got.vf_coef, 1, 0, "vf_coef");
        assert_int_equal(got.loss_agg_mode, XM_RL_TOKEN_MEAN);
        assert_int_equal(got.critic_loss_agg_mode, XM_RL_TOKEN_MEAN);
        assert_int_equal(got.scale_reward, PPO_SCALE_IGNORED);
        rig_near(got.ref_std, 0, 0, "ref_std");
        rig_close(&r);
    }
}

/* Without a bound of its own, each side has that of clip_ratio. */
static void bounds_are_those_of_their_keys(void **state)
{
    static const struct {
        const char *low;
        const char *high;
        double cut; /* the losses of ratios of 0.5 and of 1.5 */
        double raised;
    } cases[] = {
        { "-1", "-1", 0.9, -1.1 },
        { "0.3", "-1", 0.7, -1.1 },
        { "-1", "0.4", 0.9, -1.4 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rig r;
        rig_batch b;
        rig_sums sums;
        ppo_mini mini = { 0, 1, 0, 0 };
        rig_open(&r, RIG_KEYS("clip_ratio", "0.1", "clip_ratio_low",
                              cases[i].low, "clip_ratio_high", cases[i].high));
        rig_batch_init(&b);
        (void)ppo_row(&b, 1, 1, 0);
        b.advantage[1] = -1;
        b.logp[1] = (float)log(0.5);
        assert_int_equal(ppo_run_mini(&r, &b, &mini, &sums), XRAY_OK);
        rig_near(rig_metric(&r, &sums, "actor/pg_loss"), cases[i].cut, 1e-6,
                 "below");
        b.advantage[1] = 1;
        b.logp[1] = (float)log(1.5);
        assert_int_equal(ppo_run_mini(&r, &b, &mini, &sums), XRAY_OK);
        rig_near(rig_metric(&r, &sums, "actor/pg_loss"), cases[i].raised, 1e-6,
                 "above");
        rig_close(&r);
    }
}

/* The value loss that is reported is the aggregated one, and the share of
 * clipped values is one of tokens: in rows of one, one and two tokens, those of
 * the last row are clipped. */
static void value_metrics_are_aggregated(void **state)
{
    static const struct {
        const char *mode;
        const char *factor;
        double loss; /* of squares / 2 of 0.5, 2, 8 and 18 */
    } cases[] = {
        { "token-mean", "0", 28.5 / 4 },
        { "seq-mean-token-sum", "0", 28.5 / 3 },
        { "seq-mean-token-mean", "0", (0.5 + 2 + 13) / 3 },
        { "seq-mean-token-sum-norm", "0", 28.5 / 3 / RIG_RESPONSE },
        { "seq-mean-token-sum-norm", "5", 28.5 / 3 / 5 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        static const int at[] = { 1, 3, 5, 6 };
        static const float before[] = { -1, 2, -4.5f, 6.5f };
        static const float now[] = { -1, 2, -1, 1 };
        rig r;
        rig_batch b;
        rig_sums sums;
        ppo_mini mini = { 0, 3, 0, 1 };
        rig_open(&r, RIG_KEYS("critic_loss_agg_mode", cases[i].mode,
                              "loss_scale_factor", cases[i].factor));
        rig_batch_init(&b);
        for (int row = 0; row < 3; row++)
            (void)ppo_row(&b, 1, 1 + row / 2, 0);
        for (int t = 0; t < 4; t++) {
            b.value[at[t]] = before[t];
            b.value_now[at[t]] = now[t];
        }
        assert_int_equal(ppo_run_mini(&r, &b, &mini, &sums), XRAY_OK);
        rig_near(rig_metric(&r, &sums, "critic/vf_clipfrac"), 0.5, 1e-12,
                 "vf_clipfrac");
        rig_near(rig_metric(&r, &sums, "critic/vf_loss"), cases[i].loss, 1e-6,
                 cases[i].mode);
        rig_close(&r);
    }
}

static void the_published_dual_clip_is_met(void **state)
{
    (void)state;
    cJSON *all = vectors_open();
    const cJSON *in = vector_part(all, "ppo_dual_clip", "inputs");
    const cJSON *want = vector_part(all, "ppo_dual_clip", "expected");
    rig r;
    rig_batch b;
    rig_sums sums;
    ppo_mini mini = { 0, 1, 0, 0 };
    rig_open(&r, NULL);
    rig_batch_init(&b);
    (void)ppo_row(&b, 1, 3, 0);
    for (int i = 0; i < 3; i++) {
        b.advantage[1 + i] = (float)vector_at(in, "adv", i);
        b.old_logp[1 + i] = (float)vector_at(in, "old_lp", i);
        b.logp[1 + i] = (float)vector_at(in, "lp", i);
    }
    assert_int_equal(ppo_run_mini(&r, &b, &mini, &sums), XRAY_OK);
    rig_near(rig_metric(&r, &sums, "actor/pg_loss"),
             vector_number(want, "mean"), 1e-3, "dual clip");
    rig_close(&r);
    cJSON_Delete(all);
}

/* Gradients and metrics do not depend on how the rows are cut. */
static void any_cut_gives_the_same_bits(void **state)
{
    static const char *const trlx[] = {
        "preset", "trlx", "entropy_coeff", "0.01", "use_kl_loss", "true", NULL
    };
    static const char *const mini_batch[] = {
        "preset",     "trlx",          "whiten_advantages",
        "mini-batch", "loss_agg_mode", "seq-mean-token-mean",
        NULL
    };
    static const char *const verl[] = { "preset", "verl", "loss_agg_mode",
                                        "seq-mean-token-sum", NULL };
    const char *const *const sets[] = { trlx, mini_batch, verl };
    (void)state;
    for (int k = 0; k < 6; k++) {
        rig r;
        rig_batch uncut;
        rig_sums sums;
        ppo_mini mini = { 1, 5, 0, k >= 3 };
        rig_open(&r, sets[k % 3]);
        make_rows(&uncut);
        assert_int_equal(ppo_run_mini(&r, &uncut, &mini, &sums), XRAY_OK);
        for (uint32_t cut = 1; cut < 5; cut++) {
            rig_batch b;
            rig_sums again;
            make_rows(&b);
            mini.cut = cut;
            assert_int_equal(ppo_run_mini(&r, &b, &mini, &again), XRAY_OK);
            assert_memory_equal(b.dlogp, uncut.dlogp, sizeof(b.dlogp));
            assert_memory_equal(b.dentropy, uncut.dentropy, sizeof(b.dlogp));
            assert_memory_equal(b.dvalue, uncut.dvalue, sizeof(b.dvalue));
            assert_memory_equal(&again, &sums, sizeof(sums));
        }
        rig_close(&r);
    }
}

/* The context holds the whitening of its mini-batch; another mini-batch has
 * another one. */
static void whitening_belongs_to_the_mini_batch(void **state)
{
    rig r;
    rig_batch b;
    rig_sums sums;
    (void)state;
    rig_open(&r, RIG_KEYS("value_model", "policy", "whiten_advantages",
                          "mini-batch", "clip_ratio_c", "0"));
    make_rows(&b);
    for (uint32_t first = 0; first < 6; first += 3) {
        ppo_mini mini = { first, 3, 0, 0 };
        double n = 0;
        double mean = 0;
        double squares = 0;
        int32_t at = b.row_start[first];
        int32_t end = b.row_start[first + 3];
        memcpy(b.logp, b.old_logp, sizeof(b.logp)); /* ratio 1 */
        assert_int_equal(ppo_run_mini(&r, &b, &mini, &sums), XRAY_OK);
        for (int32_t i = at; i < end; i++)
            if (b.mask[i] != 0) {
                mean += (double)b.advantage[i];
                n++;
            }
        mean /= n;
        for (int32_t i = at; i < end; i++)
            if (b.mask[i] != 0)
                squares += pow((double)b.advantage[i] - mean, 2);
        for (int32_t i = at; i < end; i++)
            if (b.mask[i] != 0)
                rig_near((double)b.dlogp[i],
                         -((double)b.advantage[i] - mean) /
                             sqrt(squares / (n - 1) + 1e-8) / n,
                         1e-7, "whitened gradient");
    }
    rig_close(&r);
}

static void incomplete_calls_are_refused(void **state)
{
    rig r;
    rig_batch b;
    rig_sums sums;
    ppo_mini mini = { 0, 6, 0, 0 };
    (void)state;
    rig_open(&r, RIG_KEYS("preset", "trlx"));
    make_rows(&b);
    b.b.ref_logp = NULL; /* not read by the loss */
    assert_int_equal(ppo_run_mini(&r, &b, &mini, &sums), XRAY_OK);
    xray_metric_sums none = { .header = XRAY_HEADER(xray_metric_sums) };
    xray_loss_call call = { .header = XRAY_HEADER(xray_loss_call),
                            .batch = &b.b };
    char context[16] = { 0 };
    assert_int_equal(r.ops->loss(context, 16, &call, &none), XRAY_E_ARG);
    assert_int_equal(r.ops->critic_loss(context, 16, &call, &none), XRAY_E_ARG);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_head_agrees_with_finite_differences),
        cmocka_unit_test(a_critic_agrees_with_finite_differences),
        cmocka_unit_test(presets_have_the_numbers_of_the_page),
        cmocka_unit_test(bounds_are_those_of_their_keys),
        cmocka_unit_test(value_metrics_are_aggregated),
        cmocka_unit_test(the_published_dual_clip_is_met),
        cmocka_unit_test(any_cut_gives_the_same_bits),
        cmocka_unit_test(whitening_belongs_to_the_mini_batch),
        cmocka_unit_test(incomplete_calls_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
