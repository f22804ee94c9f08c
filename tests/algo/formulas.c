/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the numbers of each function of model/rl, calls it and writes its
 * results. The comment above each function lists the numbers that it reads.
 */
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

static double next_number(formula_in *in)
{
    return in->at < in->count ? in->x[in->at++] : 0;
}

static int next_integer(formula_in *in)
{
    int n = (int)next_number(in);
    return n < 0 ? 0 : n > LONGEST ? LONGEST : n;
}

static void put_number(formula_out *out, double value)
{
    if (out->count < FORMULA_CAP)
        out->x[out->count++] = value;
}

static void read_floats(formula_in *in, int n, float *out)
{
    for (int i = 0; i < n; i++)
        out[i] = (float)next_number(in);
}

static void put_floats(formula_out *out, const float *x, int n)
{
    for (int i = 0; i < n; i++)
        put_number(out, (double)x[i]);
}

/* ---- tokens -------------------------------------------------------------- */

static void put_policy(formula_out *out, xm_rl_policy p)
{
    put_number(out, p.loss.value);
    put_number(out, p.clipped);
    put_number(out, p.clipped_lower);
}

/* low high dual bound, a parameter of the loss, logp old a */
static void eval_token(const char *name, formula_in *in, formula_out *out)
{
    xm_rl_clip clip = { next_number(in), next_number(in), 0, 0 };
    clip.dual = next_number(in);
    clip.bound = next_number(in);
    double p = next_number(in);
    double logp = next_number(in);
    double old = next_number(in);
    double a = next_number(in);
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
static void eval_sequence(const char *name, formula_in *in, formula_out *out)
{
    xm_rl_clip clip = { next_number(in), 0, 0, 0 };
    double logp[LONGEST];
    double old[LONGEST];
    double a[LONGEST];
    xm_rl_sequence row = { 0 };
    clip.high = next_number(in);
    int n = next_integer(in);
    for (int i = 0; i < n; i++) {
        logp[i] = next_number(in);
        old[i] = next_number(in);
        a[i] = next_number(in);
        xm_rl_sequence_add(&clip, logp[i], old[i], a[i], next_number(in), &row);
    }
    for (int i = 0; i < n; i++)
        put_policy(out, strcmp(name, "gspo") == 0
                            ? xm_rl_gspo(&clip, &row, logp[i], old[i], a[i])
                            : xm_rl_gmpo(&clip, &row, logp[i], old[i], a[i]));
}

/* type bounded logp ref */
static void eval_kl(formula_in *in, formula_out *out)
{
    int64_t type = (int64_t)next_number(in);
    int bounded = next_number(in) != 0;
    double logp = next_number(in);
    xm_rl_term term = xm_rl_kl(type, bounded, logp, next_number(in));
    put_number(out, term.value);
    put_number(out, term.slope);
}

/* mode rows tokens scale row_tokens */
static void eval_aggregate(formula_in *in, formula_out *out)
{
    int64_t mode = (int64_t)next_number(in);
    xm_rl_counts counts = { next_number(in), 0, 0 };
    counts.tokens = next_number(in);
    counts.scale = next_number(in);
    put_number(out, xm_rl_token_weight(mode, &counts, next_number(in)));
}

/* picks n, then n of a logp */
static uint64_t get_covariance_key(const void *ctx, uint64_t i)
{
    return xm_rl_key(((const double *)ctx)[i]);
}

static void eval_pick(formula_in *in, formula_out *out)
{
    double ratio = next_number(in);
    int n = next_integer(in);
    double a[LONGEST];
    double logp[LONGEST];
    uint8_t marks[LONGEST];
    xm_rl_covariance means = { 0 };
    for (int i = 0; i < n; i++) {
        a[i] = next_number(in);
        logp[i] = next_number(in);
        xm_rl_covariance_add(&means, a[i], logp[i]);
    }
    xm_rl_covariance_close(&means);
    uint64_t picks = xm_rl_covariance_picks(&means, ratio);
    for (int i = 0; i < n; i++)
        a[i] = xm_rl_covariance_at(&means, a[i], logp[i]);
    xm_rl_pick(get_covariance_key, a, (uint64_t)n, picks, marks);
    for (int i = 0; i < n; i++)
        put_number(out, marks[i]);
}

/* ---- rows and groups ----------------------------------------------------- */

/* type deviation epsilon rows nonzero n, then n of score length */
static void eval_advantage(formula_in *in, formula_out *out)
{
    xm_rl_estimator e = { (int64_t)next_number(in), 0, 0 };
    double score[LONGEST];
    xm_rl_group group = { 0 };
    e.deviation = (int64_t)next_number(in);
    e.epsilon = next_number(in);
    xm_rl_score_counts counts = { next_number(in), 0 };
    counts.nonzero = next_number(in);
    int n = next_integer(in);
    for (int i = 0; i < n; i++) {
        score[i] = next_number(in);
        xm_rl_group_add(&group, score[i], next_number(in), (uint64_t)i);
    }
    xm_rl_group_close(&group);
    for (int i = 0; i < n; i++)
        xm_rl_group_deviate(&group, score[i]);
    for (int i = 0; i < n; i++)
        put_number(out,
                   xm_rl_advantage(&e, &group, &counts, score[i], (uint64_t)i));
}

/* n, two weights, then n of two scores: rows of a token each, one group */
static void eval_gdpo(formula_in *in, formula_out *out)
{
    static const xm_rl_whiten_rule rule = { .unbiased = 1, .epsilon = 1e-8 };
    static const xm_rl_estimator e = { XM_RL_ADV_GDPO, XM_RL_STD_UNBIASED,
                                       1e-6 };
    double score[2][LONGEST] = { { 0 } };
    double sum[LONGEST] = { 0 };
    float a[LONGEST] = { 0 };
    double w[2];
    xm_rl_stats stats;
    int n = next_integer(in);
    w[0] = next_number(in);
    w[1] = next_number(in);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < 2; k++)
            score[k][i] = next_number(in);
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
static void eval_overlong(formula_in *in, formula_out *out)
{
    double length = next_number(in);
    double longest = next_number(in);
    double buffer = next_number(in);
    put_number(out, xm_rl_overlong(length, longest, buffer, next_number(in)));
}

/* Two rows, n0 n1, then each of return logp squares: baselines of tokens. */
static void eval_token_baseline(formula_in *in, formula_out *out)
{
    double x[2][3][LONGEST];
    uint64_t tokens[2];
    const double *g[2];
    const double *logp[2];
    const double *squares[2];
    tokens[0] = (uint64_t)next_integer(in);
    tokens[1] = (uint64_t)next_integer(in);
    for (int r = 0; r < 2; r++) {
        for (uint64_t i = 0; i < tokens[r]; i++)
            for (int k = 0; k < 3; k++)
                x[r][k][i] = next_number(in);
        g[r] = x[r][0];
        logp[r] = x[r][1];
        squares[r] = x[r][2];
    }
    xm_rl_otb group = { 2, tokens, g, logp, squares, NULL };
    uint64_t most = tokens[0] > tokens[1] ? tokens[0] : tokens[1];
    for (uint64_t t = 0; t < most; t++)
        put_number(out, xm_rl_otb_baseline(&group, t));
}

/* weight low high level kind rs_low rs_high n, then n of old rollout */
static void eval_drift(formula_in *in, formula_out *out)
{
    xm_rl_correction rule = { (int64_t)next_number(in), 0, 0, 0, 0, 0, 0 };
    double x[LONGEST];
    xm_rl_drift row = { 0 };
    rule.low = next_number(in);
    rule.high = next_number(in);
    rule.level = (int64_t)next_number(in);
    rule.kind = (int64_t)next_number(in);
    rule.rs_low = next_number(in);
    rule.rs_high = next_number(in);
    int n = next_integer(in);
    for (int i = 0; i < n; i++) {
        double old = next_number(in);
        x[i] = xm_rl_log_drift(old, next_number(in));
        xm_rl_drift_add(&rule, x[i], &row);
    }
    xm_rl_drift_close(&rule, &row);
    for (int i = 0; i < n; i++) {
        put_number(out, xm_rl_drift_weight(&rule, &row, x[i]));
        put_number(out, xm_rl_drift_keeps(&rule, &row, x[i]));
    }
}

/* ---- PPO ----------------------------------------------------------------- */

/* gamma lam through n, then rewards, values, mask */
static void eval_gae(formula_in *in, formula_out *out)
{
    xm_rl_gae_rule rule = { next_number(in), 0, 0 };
    float x[3][LONGEST];
    float a[LONGEST];
    float r[LONGEST];
    rule.lam = next_number(in);
    rule.through = next_number(in) != 0;
    int n = next_integer(in);
    for (int k = 0; k < 3; k++)
        read_floats(in, n, x[k]);
    xm_rl_gae(&rule, x[0], x[1], x[2], (uint64_t)n, a, r);
    put_floats(out, a, n);
    put_floats(out, r, n);
}

/* gamma n, then rewards, mask */
static void eval_returns(formula_in *in, formula_out *out)
{
    float x[2][LONGEST] = { { 0 } };
    float r[LONGEST];
    double gamma = next_number(in);
    int n = next_integer(in);
    read_floats(in, n, x[0]);
    read_floats(in, n, x[1]);
    xm_rl_returns(gamma, x[0], x[1], (uint64_t)n, r);
    put_floats(out, r, n);
}

/* unbiased keep_mean n, then x, mask: those in the mask, 0 elsewhere */
static void eval_whiten(formula_in *in, formula_out *out)
{
    xm_rl_whiten_rule rule = { next_number(in) != 0, 0, 1e-8 };
    float x[LONGEST] = { 0 };
    float mask[LONGEST] = { 0 };
    xm_rl_stats stats;
    rule.keep_mean = next_number(in) != 0;
    int n = next_integer(in);
    read_floats(in, n, x);
    read_floats(in, n, mask);
    xm_rl_masked_stats(x, mask, (uint64_t)n, &stats);
    xm_rl_whiten(&rule, &stats, mask, (uint64_t)n, x);
    for (int i = 0; i < n; i++)
        put_number(out, mask[i] != 0 ? (double)x[i] : 0);
}

/* clip value old returns */
static void eval_value_loss(formula_in *in, formula_out *out)
{
    double clip = next_number(in);
    double value = next_number(in);
    double old = next_number(in);
    xm_rl_value v = xm_rl_value_loss(clip, value, old, next_number(in));
    put_number(out, v.loss.value);
    put_number(out, v.clipped);
}

/* adaptive target horizon coefficient kl steps */
static void eval_kl_update(formula_in *in, formula_out *out)
{
    xm_rl_kl_control control = { next_number(in) != 0, 0, 0 };
    control.target = next_number(in);
    control.horizon = next_number(in);
    double coefficient = next_number(in);
    double observed = next_number(in);
    put_number(
        out, xm_rl_kl_update(&control, coefficient, observed, next_number(in)));
}

/* two chunks, each n and its scores */
static void eval_moments(formula_in *in, formula_out *out)
{
    xm_rl_moments m;
    xm_rl_moments_init(&m);
    for (int k = 0; k < 2; k++) {
        double x[LONGEST];
        double deviation = 0;
        int n = next_integer(in);
        for (int i = 0; i < n; i++)
            x[i] = next_number(in);
        xm_rl_moments_add(&m, x, (uint64_t)n, &deviation);
        put_number(out, deviation);
        put_number(out, m.mean);
        put_number(out, m.variance);
        put_number(out, m.deviation);
    }
}

/* n, then returns, values, mask */
static void eval_explained(formula_in *in, formula_out *out)
{
    float x[3][LONGEST];
    int n = next_integer(in);
    for (int k = 0; k < 3; k++)
        read_floats(in, n, x[k]);
    put_number(out, xm_rl_explained_variance(x[0], x[1], x[2], (uint64_t)n));
}

/* ---- by name ------------------------------------------------------------- */

typedef void (*by_itself)(formula_in *in, formula_out *out);
typedef void (*by_its_name)(const char *name, formula_in *in, formula_out *out);

static const struct {
    const char *name;
    by_itself own;
    by_its_name shared;
} table[] = {
    { "vanilla", NULL, eval_token },
    { "cispo", NULL, eval_token },
    { "gpg", NULL, eval_token },
    { "sapo", NULL, eval_token },
    { "clip_cov", NULL, eval_token },
    { "kl_cov", NULL, eval_token },
    { "dppo_tv", NULL, eval_token },
    { "dppo_kl", NULL, eval_token },
    { "dro", NULL, eval_token },
    { "gspo", NULL, eval_sequence },
    { "geo_mean", NULL, eval_sequence },
    { "kl", eval_kl, NULL },
    { "aggregate", eval_aggregate, NULL },
    { "pick", eval_pick, NULL },
    { "advantage", eval_advantage, NULL },
    { "overlong", eval_overlong, NULL },
    { "token_baseline", eval_token_baseline, NULL },
    { "drift", eval_drift, NULL },
    { "gae", eval_gae, NULL },
    { "returns", eval_returns, NULL },
    { "whiten", eval_whiten, NULL },
    { "value_loss", eval_value_loss, NULL },
    { "kl_update", eval_kl_update, NULL },
    { "moments", eval_moments, NULL },
    { "explained", eval_explained, NULL },
    { "gdpo", eval_gdpo, NULL },
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
