/* SPDX-License-Identifier: Apache-2.0
 *
 * The loss of GRPO: its gradient against finite differences of a second,
 * independent float64 implementation, and what must not change it.
 */
#include <math.h>

#include "tests/algo/grpo_rig.h"

/* ---- the second implementation: the whole mini-batch, row by row ----------
 */

typedef struct oracle {
    const char *agg;
    const char *kl; /* NULL: none */
    double clip_low;
    double clip_high;
    double dual; /* 0: off */
    int bounded;
    double kl_coef;
    double entropy_coef;
} oracle;

/* Each part of the loss, aggregated over the batch. */
typedef struct parts {
    double total;
    double policy;
    double kl;
    double entropy;
} parts;

static double compute_policy_loss(const oracle *o, double logp, double old,
                                  double a)
{
    double x = logp - old;
    if (o->bounded)
        x = rig_limit(x, -20, 20);
    double ratio = exp(x);
    double worst = fmax(
        -a * ratio, -a * rig_limit(ratio, 1 - o->clip_low, 1 + o->clip_high));
    return o->dual > 0 && a < 0 ? fmin(worst, -a * o->dual) : worst;
}

static double compute_kl_loss(const oracle *o, double logp, double ref)
{
    if (strcmp(o->kl, "k1") == 0)
        return logp - ref;
    if (strcmp(o->kl, "abs") == 0)
        return fabs(logp - ref);
    if (strcmp(o->kl, "k2") == 0)
        return 0.5 * (logp - ref) * (logp - ref);
    double d = o->bounded ? rig_limit(ref - logp, -20, 20) : ref - logp;
    double v = exp(d) - d - 1;
    return o->bounded ? rig_limit(v, -10, 10) : v;
}

static parts compute_oracle_loss(const oracle *o, const rig_batch *b,
                                 const double *logp, const double *entropy)
{
    double pg[RIG_TOKENS] = { 0 };
    double kl[RIG_TOKENS] = { 0 };
    for (uint32_t i = 0; i < b->b.tokens; i++) {
        if (b->mask[i] == 0)
            continue;
        pg[i] = compute_policy_loss(o, logp[i], (double)b->old_logp[i],
                                    (double)b->advantage[i]);
        if (o->kl)
            kl[i] = compute_kl_loss(o, logp[i], (double)b->ref_logp[i]);
    }
    parts p = { .policy = rig_aggregate(o->agg, pg, b),
                .kl = rig_aggregate(o->agg, kl, b),
                .entropy = rig_aggregate(o->agg, entropy, b) };
    p.total = p.policy + o->kl_coef * p.kl - o->entropy_coef * p.entropy;
    return p;
}

/* ---- finite differences ---------------------------------------------------
 */

/* Fills in every region of the loss with both signs of the advantage: inside
 * and outside of the clip, beyond the dual clip, and, with `far`, beyond the
 * bounds. */
static void fill_regions(rig_batch *b, int far)
{
    static const float x[] = { -25,  -1.5f, -0.3f, -0.1f, 0.05f,
                               0.1f, 0.3f,  1.5f,  25 };
    static const float a[] = { -2, -0.5f, 0, 0.7f, 1.3f };
    static const float d[] = { -3, -0.4f, 0.2f, 1, 2.2f, 4 };
    rig_batch_init(b);
    for (int i = 0; i < 5; i++)
        (void)rig_row(b, 2 + i, 9 + 2 * i, 0, 0);
    uint32_t k = 0;
    for (uint32_t i = 0; i < b->b.tokens; i++) {
        if (b->mask[i] == 0) {
            b->logp[i] = b->ref_logp[i] = b->old_logp[i] = (float)NAN;
            b->advantage[i] = b->entropy[i] = (float)NAN;
            continue;
        }
        float dx = far ? x[k % 9] : x[1 + k % 7];
        b->old_logp[i] = -1.7f - 0.01f * (float)k;
        b->logp[i] = b->old_logp[i] + dx;
        b->ref_logp[i] = b->logp[i] + d[(k / 3) % 6];
        if (far && k % 7 == 0)
            b->ref_logp[i] = b->logp[i] + (k % 2 ? 25.0f : -25.0f);
        b->advantage[i] = a[k % 5];
        b->entropy[i] = 0.1f * (float)(k % 11);
        k++;
    }
}

static void check_gradient(const oracle *o, const rig_batch *b)
{
    const double h = 1e-5;
    double logp[RIG_TOKENS];
    double entropy[RIG_TOKENS];
    for (uint32_t i = 0; i < b->b.tokens; i++) {
        logp[i] = (double)b->logp[i];
        entropy[i] = (double)b->entropy[i];
    }
    for (uint32_t i = 0; i < b->b.tokens; i++) {
        if (b->mask[i] == 0) {
            assert_true(b->dlogp[i] == 0 && b->dentropy[i] == 0);
            continue;
        }
        double kept = logp[i];
        logp[i] = kept + h;
        double up = compute_oracle_loss(o, b, logp, entropy).total;
        logp[i] = kept - h;
        double slope =
            (up - compute_oracle_loss(o, b, logp, entropy).total) / (2 * h);
        logp[i] = kept;
        rig_near((double)b->dlogp[i], slope, 1e-6 * (1 + fabs(slope)), "dlogp");
        kept = entropy[i];
        entropy[i] = kept + h;
        up = compute_oracle_loss(o, b, logp, entropy).total;
        entropy[i] = kept - h;
        slope = (up - compute_oracle_loss(o, b, logp, entropy).total) / (2 * h);
        entropy[i] = kept;
        rig_near((double)b->dentropy[i], slope, 1e-6, "dentropy");
    }
}

static void check_metrics(const oracle *o, const rig *r, const rig_batch *b,
                          const rig_sums *sums)
{
    double logp[RIG_TOKENS];
    double entropy[RIG_TOKENS];
    double clipped = 0;
    double lower = 0;
    double drift = 0;
    double tokens = 0;
    for (uint32_t i = 0; i < b->b.tokens; i++) {
        logp[i] = (double)b->logp[i];
        entropy[i] = (double)b->entropy[i];
        if (b->mask[i] == 0)
            continue;
        double a = (double)b->advantage[i];
        double x = logp[i] - (double)b->old_logp[i];
        double q = exp(x);
        double most =
            fmax(-a * q, -a * rig_limit(q, 1 - o->clip_low, 1 + o->clip_high));
        clipped += most != -a * q;
        lower += o->dual > 0 && a < 0 && most > -a * o->dual;
        drift -= o->bounded ? rig_limit(x, -20, 20) : x;
        tokens++;
    }
    parts p = compute_oracle_loss(o, b, logp, entropy);
    rig_near(rig_metric(r, sums, "actor/loss"), p.total,
             1e-9 * fabs(p.total) + 1e-9, "loss");
    rig_near(rig_metric(r, sums, "actor/pg_loss"), p.policy,
             1e-9 * fabs(p.policy) + 1e-9, "pg_loss");
    rig_near(rig_metric(r, sums, "actor/pg_clipfrac"), clipped / tokens, 1e-12,
             "pg_clipfrac");
    rig_near(rig_metric(r, sums, "actor/pg_clipfrac_lower"), lower / tokens,
             1e-12, "pg_clipfrac_lower");
    rig_near(rig_metric(r, sums, "actor/ppo_kl"), drift / tokens, 1e-9,
             "ppo_kl");
    rig_near(rig_metric(r, sums, "actor/entropy"), p.entropy, 1e-9, "entropy");
    if (o->kl) {
        rig_near(rig_metric(r, sums, "actor/kl_loss"), p.kl,
                 1e-9 * fabs(p.kl) + 1e-9, "kl_loss");
        rig_near(rig_metric(r, sums, "actor/kl_coef"), o->kl_coef, 1e-12,
                 "kl_coef");
    } else {
        assert_true(isnan(rig_metric(r, sums, "actor/kl_loss")));
    }
}

static void check_gradient_of(const char *preset, const char *agg,
                              const char *kl, const char *dual)
{
    rig r;
    rig_batch b;
    rig_sums sums;
    rig_open(&r, RIG_KEYS("preset", preset, "loss_agg_mode", agg, "use_kl_loss",
                          kl ? "true" : "false", "kl_loss_coef", "0.3",
                          "kl_loss_type", kl ? kl : "kl", "clip_ratio_low",
                          "0.15", "clip_ratio_high", "0.28", "clip_ratio_c",
                          dual, "entropy_coeff", "0.01"));
    oracle o = { .agg = agg,
                 .kl = kl,
                 .clip_low = 0.15,
                 .clip_high = 0.28,
                 .bounded = strcmp(preset, "verl") == 0,
                 .kl_coef = kl ? 0.3 : 0,
                 .entropy_coef = 0.01 };
    assert_int_equal(xr_parse_real(dual, &o.dual), 0);
    fill_regions(&b, o.bounded && o.dual > 0);
    assert_int_equal(rig_loss(&r, &b, 1, 1, &sums), XRAY_OK);
    for (uint32_t i = 0; i < b.b.tokens; i++)
        if (b.mask[i] == 0)
            b.entropy[i] = b.logp[i] = 0; /* the oracle does not include them */
    check_gradient(&o, &b);
    check_metrics(&o, &r, &b, &sums);
    rig_close(&r);
}

static void gradients_agree_with_finite_differences(void **state)
{
    (void)state;
    static const char *const presets[] = { "verl", "trl" };
    static const char *const aggs[] = { "token-mean", "token-sum",
                                        "seq-mean-token-sum",
                                        "seq-mean-token-sum-norm",
                                        "seq-mean-token-mean" };
    static const char *const kls[] = { NULL, "k1", "abs", "k2", "k3" };
    static const char *const duals[] = { "0", "3", "1.5" };
    for (int p = 0; p < 2; p++)
        for (int a = 0; a < 5; a++)
            for (int k = 0; k < 5; k++)
                for (int d = 0; d < 3; d++)
                    check_gradient_of(presets[p], aggs[a], kls[k], duals[d]);
}

/* ---- what must not matter --------------------------------------------------
 */

static void any_cut_gives_the_same_bits(void **state)
{
    (void)state;
    static const char *const aggs[] = { "token-mean", "seq-mean-token-mean",
                                        "seq-mean-token-sum-norm" };
    for (int a = 0; a < 3; a++) {
        rig r;
        rig_batch uncut;
        rig_batch cut;
        rig_sums want;
        rig_open(&r, RIG_KEYS("loss_agg_mode", aggs[a], "use_kl_loss", "true",
                              "entropy_coeff", "0.02"));
        rig_batch_init(&uncut);
        for (int i = 0; i < 13; i++)
            (void)rig_row(&uncut, 1 + i % 4, (5 * i) % 12, i / 4, 0);
        rig_fill(&uncut, 7);
        cut = uncut;
        assert_int_equal(rig_loss(&r, &uncut, 13, 1, &want), XRAY_OK);
        for (uint32_t rows = 0; rows < 13; rows++) {
            rig_sums got;
            assert_int_equal(rig_loss(&r, &cut, rows, 1, &got), XRAY_OK);
            assert_memory_equal(cut.dlogp, uncut.dlogp, sizeof(cut.dlogp));
            assert_memory_equal(cut.dentropy, uncut.dentropy,
                                sizeof(cut.dentropy));
            assert_memory_equal(&got, &want, sizeof(got));
        }
        rig_close(&r);
    }
}

static void rows_without_tokens_have_no_loss(void **state)
{
    (void)state;
    static const char *const aggs[] = { "token-mean", "token-sum",
                                        "seq-mean-token-sum",
                                        "seq-mean-token-sum-norm",
                                        "seq-mean-token-mean" };
    for (int a = 0; a < 5; a++) {
        rig r;
        rig_batch b;
        rig_sums sums;
        rig_open(&r, RIG_KEYS("loss_agg_mode", aggs[a]));
        rig_batch_init(&b);
        (void)rig_row(&b, 3, 4, 0, 0);
        (void)rig_row(&b, 3, 0, 0, 0);
        rig_fill(&b, 3);
        memset(b.mask, 0, sizeof(b.mask));
        assert_int_equal(rig_loss(&r, &b, 0, 1, &sums), XRAY_OK);
        for (uint32_t i = 0; i < b.b.tokens; i++)
            assert_true(b.dlogp[i] == 0 && b.dentropy[i] == 0);
        for (int i = 0; i < RIG_METRICS; i++)
            assert_true(sums.sum[i] == 0 && sums.weight[i] == 0);
        rig_batch_init(&b);
        assert_int_equal(rig_loss(&r, &b, 0, 0, &sums), XRAY_OK);
        rig_close(&r);
    }
}

/* On-policy, the ratio is exactly 1, nothing is clipped, and the gradient is -A
 * divided by the number of tokens. */
static void the_first_update_is_on_policy(void **state)
{
    (void)state;
    rig r;
    rig_batch b;
    rig_sums sums;
    static const char *const modes[] = { "vanilla", "cispo", "dppo_tv",
                                         "dppo_kl" };
    for (int m = 0; m < 4; m++) {
        rig_open(&r, RIG_KEYS("clip_ratio", "0", "loss_mode", modes[m]));
        rig_batch_init(&b);
        (void)rig_row(&b, 1, 4, 0, 0);
        rig_fill(&b, 9);
        memcpy(b.logp, b.old_logp, sizeof(b.logp));
        assert_int_equal(rig_loss(&r, &b, 1, 0, &sums), XRAY_OK);
        for (int i = 1; i < 5; i++)
            assert_true(b.dlogp[i] == -b.advantage[i] / 4);
        assert_true(rig_metric(&r, &sums, "actor/ppo_kl") == 0.0);
        assert_true(rig_metric(&r, &sums, "actor/pg_clipfrac") == 0.0);
        assert_true(isnan(rig_metric(&r, &sums, "actor/entropy")));
        rig_close(&r);
    }
}

/* Estimates of the KL at logp - ref = -0.3, and their slopes. */
static const struct estimate {
    const char *names; /* all that mean it */
    double value;
    double slope;
} estimates[] = {
    { "kl k1 k1_clamped", -0.3, 1 },
    { "abs", 0.3, -1 },
    { "mse k2 k2_clamped", 0.045, -0.3 },
    { "low_var_kl k3 k3_clamped", 0.049858808, -0.349858808 },
    { "kl+ k1+", -0.3, -0.3 },
    { "abs+", 0.3, -0.3 },
    { "mse+ k2+", 0.045, -0.3 },
    { "low_var_kl+ k3+", 0.049858808, -0.3 },
};

static void check_estimate(const char *name, const struct estimate *e)
{
    rig r;
    rig_batch b;
    rig_sums sums;
    rig_open(&r, RIG_KEYS("use_kl_loss", "true", "kl_loss_coef", "1",
                          "kl_loss_type", name, "use_kl_in_reward", "true",
                          "kl_coef", "1", "kl_penalty", name));
    rig_batch_init(&b);
    (void)rig_row(&b, 1, 1, 0, 0);
    b.logp[1] = b.old_logp[1] = -1.3f;
    b.ref_logp[1] = -1;
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    rig_near((double)b.reward[1], -e->value, 1e-6, name);
    b.advantage[1] = 0;
    assert_int_equal(rig_loss(&r, &b, 1, 0, &sums), XRAY_OK);
    rig_near(rig_metric(&r, &sums, "actor/kl_loss"), e->value, 1e-6, name);
    rig_near((double)b.dlogp[1], e->slope, 1e-6, name);
    rig_close(&r);
}

/* Both in the loss and in the reward, each name is the estimate of the page. */
static void names_of_the_kl_have_their_estimates(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(estimates) / sizeof(estimates[0]); i++)
        for (const char *at = estimates[i].names; *at;) {
            char name[16];
            size_t size = strcspn(at, " ");
            (void)snprintf(name, sizeof(name), "%.*s", (int)size, at);
            check_estimate(name, &estimates[i]);
            at += size + (at[size] == ' ');
        }
}

/* Setting only clip_ratio moves both bounds. */
static void clip_ratio_moves_both_bounds(void **state)
{
    (void)state;
    rig r;
    rig_batch b;
    rig_sums sums;
    rig_open(&r, RIG_KEYS("clip_ratio", "0.1"));
    rig_batch_init(&b);
    (void)rig_row(&b, 1, 2, 0, 0);
    b.advantage[1] = 1;
    b.logp[1] = 0.14f; /* ratio 1.15 */
    b.advantage[2] = -1;
    b.logp[2] = -0.16f; /* ratio 0.85 */
    assert_int_equal(rig_loss(&r, &b, 1, 0, &sums), XRAY_OK);
    assert_true(rig_metric(&r, &sums, "actor/pg_clipfrac") == 1.0);
    assert_true(b.dlogp[1] == 0 && b.dlogp[2] == 0);
    rig_close(&r);
}

/* Where clip_cov may pick every token, it picks those of the loss that the clip
 * leaves alone and whose covariance is within its bounds. */
static void clip_cov_leaves_out_what_is_clipped(void **state)
{
    (void)state;
    rig r;
    rig_batch b;
    rig_sums sums;
    unsigned char marks[RIG_TOKENS];
    uint32_t clipped = 0;
    uint32_t picked = 0;
    uint32_t tokens = 0;
    rig_batch_init(&b);
    for (int i = 0; i < 12; i++)
        (void)rig_row(&b, 1 + i % 3, (7 * i) % 11, i / 4, 0);
    rig_fill(&b, 3);
    b.mask[b.row_start[2] + 4] = 0;
    rig_open(&r, RIG_KEYS("preset", "clip_cov", "clip_cov_ratio", "1",
                          "clip_cov_lb", "-1000", "clip_cov_ub", "1000",
                          "clip_ratio_low", "0.2", "clip_ratio_high", "0.3"));
    (void)rig_marks(&r, &b, marks);
    for (uint32_t i = 0; i < b.b.tokens; i++) {
        double a = (double)b.advantage[i];
        double ratio = exp((double)b.logp[i] - (double)b.old_logp[i]);
        int cut = a > 0 ? ratio > 1.3 : a < 0 && ratio < 0.8;
        assert_int_equal(marks[i], b.mask[i] != 0 && !cut);
        clipped += b.mask[i] != 0 && cut;
        picked += marks[i];
        tokens += b.mask[i] != 0;
    }
    assert_true(clipped > 3 && picked > 3);
    assert_int_equal(rig_loss(&r, &b, 1, 0, &sums), XRAY_OK);
    rig_near(rig_metric(&r, &sums, "actor/pg_clipfrac"),
             (double)picked / tokens, 1e-12, "the share of picked tokens");
    rig_close(&r);
}

/* Both bounds of the covariance are outside: here two tokens have exactly 1. */
static void covariances_at_a_bound_are_not_picked(void **state)
{
    (void)state;
    static const struct {
        const char *low;
        const char *high;
        uint32_t picked;
    } cases[] = { { "1", "5", 0 }, { "-5", "1", 0 }, { "0.9", "1.1", 2 } };
    for (int i = 0; i < 3; i++) {
        rig r;
        rig_batch b;
        unsigned char marks[RIG_TOKENS];
        rig_open(&r, RIG_KEYS("preset", "clip_cov", "clip_cov_ratio", "1",
                              "clip_cov_lb", cases[i].low, "clip_cov_ub",
                              cases[i].high));
        rig_batch_init(&b);
        (void)rig_row(&b, 1, 2, 0, 0);
        b.advantage[1] = 1;
        b.advantage[2] = -1;
        b.logp[1] = b.old_logp[1] = -1;
        b.logp[2] = b.old_logp[2] = -3;
        assert_int_equal(rig_marks(&r, &b, marks), cases[i].picked);
        rig_close(&r);
    }
}

/* A choice at random depends on the row's id and the offset in it alone: rows
 * in another order have the same tokens picked. */
static void random_picks_follow_their_rows(void **state)
{
    (void)state;
    unsigned char marks[2][RIG_TOKENS];
    rig_batch b[2];
    rig r;
    uint32_t picked = 0;
    rig_open(&r, RIG_KEYS("preset", "clip_cov", "clip_cov_ratio", "0.3",
                          "clip_cov_lb", "-1000", "clip_cov_ub", "1000"));
    for (int k = 0; k < 2; k++) {
        rig_batch_init(&b[k]);
        for (int i = 0; i < 6; i++) {
            int row = k ? 5 - i : i;
            (void)rig_row(&b[k], 1 + row, 4 + row, 0, 0);
            b[k].row_id[i] = 70 + (uint64_t)row;
        }
        for (uint32_t i = 0; i < b[k].b.tokens; i++)
            b[k].advantage[i] = 1;
        picked = rig_marks(&r, &b[k], marks[k]);
        assert_int_equal(picked, 11); /* 0.3 x 39 */
    }
    for (int row = 0; row < 6; row++)
        for (int i = 0; i < 5 + 2 * row; i++)
            assert_int_equal(marks[0][b[0].row_start[row] + i],
                             marks[1][b[1].row_start[5 - row] + i]);
    rig_close(&r);
}

static void lacking_inputs_are_refused(void **state)
{
    (void)state;
    rig r;
    rig_batch b;
    rig_sums sums;
    rig_batch_init(&b);
    (void)rig_row(&b, 1, 2, 0, 0);
    rig_open(&r, RIG_KEYS("use_kl_loss", "true"));
    b.b.ref_logp = NULL;
    assert_int_equal(rig_loss(&r, &b, 1, 0, &sums), XRAY_E_ARG);
    rig_close(&r);
    rig_open(&r, RIG_KEYS("entropy_coeff", "0.1"));
    assert_int_equal(rig_loss(&r, &b, 1, 0, &sums), XRAY_E_ARG);
    char junk[64] = { 0 };
    assert_int_equal(r.ops->loss(junk, sizeof(junk), NULL, NULL), XRAY_E_ARG);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_agree_with_finite_differences),
        cmocka_unit_test(any_cut_gives_the_same_bits),
        cmocka_unit_test(rows_without_tokens_have_no_loss),
        cmocka_unit_test(the_first_update_is_on_policy),
        cmocka_unit_test(names_of_the_kl_have_their_estimates),
        cmocka_unit_test(clip_ratio_moves_both_bounds),
        cmocka_unit_test(clip_cov_leaves_out_what_is_clipped),
        cmocka_unit_test(covariances_at_a_bound_are_not_picked),
        cmocka_unit_test(random_picks_follow_their_rows),
        cmocka_unit_test(lacking_inputs_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
