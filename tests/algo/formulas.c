/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/algo/formulas.h"

#include <stdint.h>
#include <string.h>

#include "model/rl/advantage.h"
#include "model/rl/aggregate.h"
#include "model/rl/kl.h"
#include "model/rl/policy.h"
#include "model/rl/ppo.h"
#include "model/rl/rollout_correction.h"

enum { LONGEST = 12 };

static double next(formula_in *in)
{
    return in->at < in->count ? in->x[in->at++] : 0;
}

static int whole(formula_in *in)
{
    int n = (int)next(in);
    return n < 0 ? 0 : n > LONGEST ? LONGEST : n;
}

static void put(formula_out *out, double value)
{
    if (out->count < FORMULA_CAP)
        out->x[out->count++] = value;
}

static void floats(formula_in *in, int n, float *out)
{
    for (int i = 0; i < n; i++)
        out[i] = (float)next(in);
}

static void put_floats(formula_out *out, const float *x, int n)
{
    for (int i = 0; i < n; i++)
        put(out, (double)x[i]);
}

/* ---- tokens -------------------------------------------------------------- */

static void put_policy(formula_out *out, xm_rl_policy p)
{
    put(out, p.loss.value);
    put(out, p.clipped);
    put(out, p.clipped_lower);
}

/* low high dual bound, a parameter of the loss, logp old a */
static void token(const char *name, formula_in *in, formula_out *out)
{
    xm_rl_clip clip = { next(in), next(in), 0, 0 };
    clip.dual = next(in);
    clip.bound = next(in);
    double p = next(in);
    double logp = next(in);
    double old = next(in);
    double a = next(in);
    const double tau[2] = { p, p + 0.05 };
    if (strcmp(name, "vanilla") == 0)
        put_policy(out, xm_rl_vanilla(&clip, logp, old, a));
    else if (strcmp(name, "cispo") == 0)
        put_policy(out, xm_rl_cispo(&clip, logp, old, a));
    else if (strcmp(name, "gpg") == 0)
        put_policy(out, xm_rl_gpg(&clip, logp, old, a));
    else if (strcmp(name, "sapo") == 0)
        put_policy(out, xm_rl_sapo(&clip, tau, logp, old, a));
    else if (strcmp(name, "clip_cov") == 0)
        put_policy(out, xm_rl_clip_cov(&clip, p > 1.2, logp, old, a));
    else if (strcmp(name, "kl_cov") == 0)
        put_policy(out, xm_rl_kl_cov(&clip, p > 1.2 ? 0.1 : 0, logp, old, a));
    else if (strcmp(name, "dppo_tv") == 0)
        put_policy(out, xm_rl_dppo(&clip, 0, logp, old, a));
    else if (strcmp(name, "dppo_kl") == 0)
        put_policy(out, xm_rl_dppo(&clip, 1, logp, old, a));
    else
        put_policy(out, xm_rl_dro(&clip, p, logp, old, a));
}

/* low high n, then n of logp old a w */
static void sequence(const char *name, formula_in *in, formula_out *out)
{
    xm_rl_clip clip = { next(in), 0, 0, 0 };
    double logp[LONGEST];
    double old[LONGEST];
    double a[LONGEST];
    xm_rl_sequence row = { 0 };
    clip.high = next(in);
    int n = whole(in);
    for (int i = 0; i < n; i++) {
        logp[i] = next(in);
        old[i] = next(in);
        a[i] = next(in);
        xm_rl_sequence_add(&clip, logp[i], old[i], a[i], next(in), &row);
    }
    for (int i = 0; i < n; i++)
        put_policy(out, strcmp(name, "gspo") == 0
                            ? xm_rl_gspo(&clip, &row, logp[i], old[i], a[i])
                            : xm_rl_gmpo(&clip, &row, logp[i], old[i], a[i]));
}

/* type bounded logp ref */
static void kl(formula_in *in, formula_out *out)
{
    int64_t type = (int64_t)next(in);
    int bounded = next(in) != 0;
    double logp = next(in);
    xm_rl_term term = xm_rl_kl(type, bounded, logp, next(in));
    put(out, term.value);
    put(out, term.slope);
}

/* mode rows tokens scale row_tokens */
static void aggregate(formula_in *in, formula_out *out)
{
    int64_t mode = (int64_t)next(in);
    xm_rl_counts counts = { next(in), 0, 0 };
    counts.tokens = next(in);
    counts.scale = next(in);
    put(out, xm_rl_token_weight(mode, &counts, next(in)));
}

/* picks n, then n of a logp */
static uint64_t cov_key(const void *ctx, uint64_t i)
{
    return xm_rl_key(((const double *)ctx)[i]);
}

static void pick(formula_in *in, formula_out *out)
{
    double ratio = next(in);
    int n = whole(in);
    double a[LONGEST];
    double logp[LONGEST];
    uint8_t marks[LONGEST];
    xm_rl_covariance means = { 0 };
    for (int i = 0; i < n; i++) {
        a[i] = next(in);
        logp[i] = next(in);
        xm_rl_covariance_add(&means, a[i], logp[i]);
    }
    xm_rl_covariance_close(&means);
    uint64_t picks = xm_rl_covariance_picks(&means, ratio);
    for (int i = 0; i < n; i++)
        a[i] = xm_rl_covariance_at(&means, a[i], logp[i]);
    xm_rl_pick(cov_key, a, (uint64_t)n, picks, marks);
    for (int i = 0; i < n; i++)
        put(out, marks[i]);
}

/* ---- rows and groups ----------------------------------------------------- */

/* type deviation epsilon rows nonzero n, then n of score length */
static void advantage(formula_in *in, formula_out *out)
{
    xm_rl_estimator e = { (int64_t)next(in), 0, 0 };
    double score[LONGEST];
    xm_rl_group group = { 0 };
    e.deviation = (int64_t)next(in);
    e.epsilon = next(in);
    xm_rl_score_counts counts = { next(in), 0 };
    counts.nonzero = next(in);
    int n = whole(in);
    for (int i = 0; i < n; i++) {
        score[i] = next(in);
        xm_rl_group_add(&group, score[i], next(in), (uint64_t)i);
    }
    xm_rl_group_close(&group);
    for (int i = 0; i < n; i++)
        xm_rl_group_deviate(&group, score[i]);
    for (int i = 0; i < n; i++)
        put(out, xm_rl_advantage(&e, &group, &counts, score[i], (uint64_t)i));
}

/* n, two weights, then n of two scores: rows of a token each, one group */
static void gdpo(formula_in *in, formula_out *out)
{
    static const xm_rl_whiten_rule rule = { .unbiased = 1, .epsilon = 1e-8 };
    static const xm_rl_estimator e = { XM_RL_ADV_GDPO, XM_RL_STD_UNBIASED,
                                       1e-6 };
    double score[2][LONGEST] = { { 0 } };
    double sum[LONGEST] = { 0 };
    float a[LONGEST] = { 0 };
    double w[2];
    xm_rl_stats stats;
    int n = whole(in);
    w[0] = next(in);
    w[1] = next(in);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < 2; k++)
            score[k][i] = next(in);
    for (int k = 0; k < 2; k++) {
        xm_rl_group group = { 0 };
        for (int i = 0; i < n; i++)
            xm_rl_group_add(&group, score[k][i], 1, (uint64_t)i);
        xm_rl_group_close(&group);
        for (int i = 0; i < n; i++)
            xm_rl_group_deviate(&group, score[k][i]);
        for (int i = 0; i < n; i++)
            sum[i] += w[k] * xm_rl_advantage(&e, &group, NULL, score[k][i],
                                             (uint64_t)i);
    }
    for (int i = 0; i < n; i++)
        a[i] = (float)sum[i];
    xm_rl_masked_stats(a, NULL, (uint64_t)n, &stats);
    xm_rl_whiten(&rule, &stats, NULL, (uint64_t)n, a);
    put_floats(out, a, n);
}

/* length longest buffer factor */
static void overlong(formula_in *in, formula_out *out)
{
    double length = next(in);
    double longest = next(in);
    double buffer = next(in);
    put(out, xm_rl_overlong(length, longest, buffer, next(in)));
}

/* Two rows, n0 n1, then each of return logp squares: baselines of tokens. */
static void token_baseline(formula_in *in, formula_out *out)
{
    double x[2][3][LONGEST];
    uint64_t tokens[2];
    const double *g[2];
    const double *logp[2];
    const double *squares[2];
    tokens[0] = (uint64_t)whole(in);
    tokens[1] = (uint64_t)whole(in);
    for (int r = 0; r < 2; r++) {
        for (uint64_t i = 0; i < tokens[r]; i++)
            for (int k = 0; k < 3; k++)
                x[r][k][i] = next(in);
        g[r] = x[r][0];
        logp[r] = x[r][1];
        squares[r] = x[r][2];
    }
    xm_rl_otb group = { 2, tokens, g, logp, squares, NULL };
    uint64_t most = tokens[0] > tokens[1] ? tokens[0] : tokens[1];
    for (uint64_t t = 0; t < most; t++)
        put(out, xm_rl_otb_baseline(&group, t));
}

/* weight low high level kind rs_low rs_high n, then n of old rollout */
static void drift(formula_in *in, formula_out *out)
{
    xm_rl_correction rule = { (int64_t)next(in), 0, 0, 0, 0, 0, 0 };
    double x[LONGEST];
    xm_rl_drift row = { 0 };
    rule.low = next(in);
    rule.high = next(in);
    rule.level = (int64_t)next(in);
    rule.kind = (int64_t)next(in);
    rule.rs_low = next(in);
    rule.rs_high = next(in);
    int n = whole(in);
    for (int i = 0; i < n; i++) {
        double old = next(in);
        x[i] = xm_rl_log_drift(old, next(in));
        xm_rl_drift_add(&rule, x[i], &row);
    }
    xm_rl_drift_close(&rule, &row);
    for (int i = 0; i < n; i++) {
        put(out, xm_rl_drift_weight(&rule, &row, x[i]));
        put(out, xm_rl_drift_keeps(&rule, &row, x[i]));
    }
}

/* ---- PPO ----------------------------------------------------------------- */

/* gamma lam through n, then rewards, values, mask */
static void gae(formula_in *in, formula_out *out)
{
    xm_rl_gae_rule rule = { next(in), 0, 0 };
    float x[3][LONGEST];
    float a[LONGEST];
    float r[LONGEST];
    rule.lam = next(in);
    rule.through = next(in) != 0;
    int n = whole(in);
    for (int k = 0; k < 3; k++)
        floats(in, n, x[k]);
    xm_rl_gae(&rule, x[0], x[1], x[2], (uint64_t)n, a, r);
    put_floats(out, a, n);
    put_floats(out, r, n);
}

/* gamma n, then rewards, mask */
static void returns(formula_in *in, formula_out *out)
{
    float x[2][LONGEST] = { { 0 } };
    float r[LONGEST];
    double gamma = next(in);
    int n = whole(in);
    floats(in, n, x[0]);
    floats(in, n, x[1]);
    xm_rl_returns(gamma, x[0], x[1], (uint64_t)n, r);
    put_floats(out, r, n);
}

/* unbiased keep_mean n, then x, mask: those in the mask, 0 elsewhere */
static void whiten(formula_in *in, formula_out *out)
{
    xm_rl_whiten_rule rule = { next(in) != 0, 0, 1e-8 };
    float x[LONGEST] = { 0 };
    float mask[LONGEST] = { 0 };
    xm_rl_stats stats;
    rule.keep_mean = next(in) != 0;
    int n = whole(in);
    floats(in, n, x);
    floats(in, n, mask);
    xm_rl_masked_stats(x, mask, (uint64_t)n, &stats);
    xm_rl_whiten(&rule, &stats, mask, (uint64_t)n, x);
    for (int i = 0; i < n; i++)
        put(out, mask[i] != 0 ? (double)x[i] : 0);
}

/* clip value old returns */
static void value_loss(formula_in *in, formula_out *out)
{
    double clip = next(in);
    double value = next(in);
    double old = next(in);
    xm_rl_value v = xm_rl_value_loss(clip, value, old, next(in));
    put(out, v.loss.value);
    put(out, v.clipped);
}

/* adaptive target horizon coefficient kl steps */
static void kl_update(formula_in *in, formula_out *out)
{
    xm_rl_kl_control control = { next(in) != 0, 0, 0 };
    control.target = next(in);
    control.horizon = next(in);
    double coefficient = next(in);
    double observed = next(in);
    put(out, xm_rl_kl_update(&control, coefficient, observed, next(in)));
}

/* two chunks, each n and its scores */
static void moments(formula_in *in, formula_out *out)
{
    xm_rl_moments m;
    xm_rl_moments_init(&m);
    for (int k = 0; k < 2; k++) {
        double x[LONGEST];
        double deviation = 0;
        int n = whole(in);
        for (int i = 0; i < n; i++)
            x[i] = next(in);
        xm_rl_moments_add(&m, x, (uint64_t)n, &deviation);
        put(out, deviation);
        put(out, m.mean);
        put(out, m.variance);
        put(out, m.deviation);
    }
}

/* n, then returns, values, mask */
static void explained(formula_in *in, formula_out *out)
{
    float x[3][LONGEST];
    int n = whole(in);
    for (int k = 0; k < 3; k++)
        floats(in, n, x[k]);
    put(out, xm_rl_explained_variance(x[0], x[1], x[2], (uint64_t)n));
}

/* ---- by name ------------------------------------------------------------- */

typedef void (*by_itself)(formula_in *in, formula_out *out);
typedef void (*by_its_name)(const char *name, formula_in *in, formula_out *out);

static const struct {
    const char *name;
    by_itself own;
    by_its_name shared;
} table[] = {
    { "vanilla", NULL, token },
    { "cispo", NULL, token },
    { "gpg", NULL, token },
    { "sapo", NULL, token },
    { "clip_cov", NULL, token },
    { "kl_cov", NULL, token },
    { "dppo_tv", NULL, token },
    { "dppo_kl", NULL, token },
    { "dro", NULL, token },
    { "gspo", NULL, sequence },
    { "geo_mean", NULL, sequence },
    { "kl", kl, NULL },
    { "aggregate", aggregate, NULL },
    { "pick", pick, NULL },
    { "advantage", advantage, NULL },
    { "overlong", overlong, NULL },
    { "token_baseline", token_baseline, NULL },
    { "drift", drift, NULL },
    { "gae", gae, NULL },
    { "returns", returns, NULL },
    { "whiten", whiten, NULL },
    { "value_loss", value_loss, NULL },
    { "kl_update", kl_update, NULL },
    { "moments", moments, NULL },
    { "explained", explained, NULL },
    { "gdpo", gdpo, NULL },
};
enum { TABLE = sizeof(table) / sizeof(table[0]) };

int formula_eval(const char *name, formula_in in, formula_out *out)
{
    out->count = 0;
    for (int i = 0; i < TABLE; i++) {
        if (strcmp(table[i].name, name) != 0)
            continue;
        if (table[i].own)
            table[i].own(&in, out);
        else
            table[i].shared(name, &in, out);
        return 0;
    }
    return -1;
}
