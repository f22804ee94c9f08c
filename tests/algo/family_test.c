/* SPDX-License-Identifier: Apache-2.0
 *
 * The losses of GRPO's relatives: gradients against finite differences, tokens
 * picked across the mini-batch, and equal bits for any cut.
 */
#include <math.h>

#include "model/rl/policy.h"
#include "tests/algo/grpo_rig.h"
#include "tests/algo/vectors.h"

/* ---- the second implementation ------------------------------------------- */

typedef struct oracle {
    const char *mode;
    const char *is; /* rollout_is */
    double low;
    double high;
    double dual;
    double beta;
    double is_high;
    const unsigned char *marks;
} oracle;

static double clamp_value(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

static int is_mode(const oracle *o, const char *mode)
{
    return strcmp(o->mode, mode) == 0;
}

static double clipped_loss(const oracle *o, double ratio, double a)
{
    return fmax(-a * ratio, -a * clamp_value(ratio, 1 - o->low, 1 + o->high));
}

static int may_move(const oracle *o, double logp, double old, double a)
{
    double p = exp(logp);
    double q = exp(old);
    if (is_mode(o, "dppo_tv"))
        return a > 0 ? p - q <= o->high : p - q >= -o->low;
    double kl =
        q * (old - logp) + (1 - q) * log((1 - q + 1e-8) / (1 - p + 1e-8));
    return a > 0 ? kl <= o->high || p <= q : kl <= o->low || p >= q;
}

/* The loss of a token; detached terms use the log-probability `frozen`. */
static double token_loss(const oracle *o, const rig_batch *b, uint32_t i,
                         double logp, double frozen)
{
    double old = (double)b->old_logp[i];
    double a = (double)b->advantage[i];
    double x = clamp_value(logp - old, -20, 20);
    double held = exp(clamp_value(frozen - old, -20, 20));
    if (is_mode(o, "cispo"))
        return -clamp_value(held, 1 - o->low, 1 + o->high) * a * logp;
    if (is_mode(o, "gpg"))
        return -a * logp;
    if (is_mode(o, "sapo")) {
        double tau = a > 0 ? 1.0 : 1.05;
        return -a * 4 / tau / (1 + exp(-tau * (exp(x) - 1)));
    }
    if (is_mode(o, "clip_cov"))
        return o->marks[i] ? 0 : clipped_loss(o, exp(x), a);
    if (is_mode(o, "kl_cov"))
        return -a * exp(x) + (o->marks[i] ? 0.1 * fabs(x) : 0);
    if (is_mode(o, "dppo_tv") || is_mode(o, "dppo_kl"))
        return may_move(o, frozen, old, a) ? -a * fmin(held, o->dual) * logp
                                           : 0;
    if (is_mode(o, "dro"))
        return -(a * logp - 0.5 * o->beta * (logp - old) * (logp - old));
    double worst = clipped_loss(o, exp(x), a);
    return o->dual > 0 && a < 0 ? fmin(worst, -a * o->dual) : worst;
}

/* Computes the loss of a row for modes that use one ratio per row. */
static double row_loss(const oracle *o, const rig_batch *b, uint32_t r,
                       const double *logp)
{
    double n = 0;
    double x = 0;
    double held = 0;
    double a = 0;
    for (int32_t i = b->row_start[r]; i < b->row_start[r + 1]; i++) {
        if (b->mask[i] == 0)
            continue;
        double d = logp[i] - (double)b->old_logp[i];
        double s = (b->advantage[i] > 0) - (b->advantage[i] < 0);
        n++;
        x += d;
        held += s * fmin(s * d, s * clamp_value(d, -o->low, o->high));
        a += (double)b->advantage[i];
    }
    if (n == 0)
        return 0;
    if (is_mode(o, "gspo"))
        return clipped_loss(o, exp(fmin(x / n, 10)), a / n) * n / (n + 1e-8);
    return -a / (n + 1e-8) * exp(held / (n + 1e-8));
}

static double token_weight(const oracle *o, const rig_batch *b, uint32_t r,
                           int32_t at)
{
    double sum = 0;
    double own = (double)b->old_logp[at] - (double)b->rollout_logp[at];
    if (!o->is)
        return 1;
    if (strcmp(o->is, "token") == 0)
        return fmin(exp(own), o->is_high);
    for (int32_t i = b->row_start[r]; i < b->row_start[r + 1]; i++)
        if (b->mask[i] != 0)
            sum += (double)b->old_logp[i] - (double)b->rollout_logp[i];
    return fmin(exp(clamp_value(sum, -20, 20)), o->is_high);
}

/* Computes the correction weight of a row for modes with one loss per row: gspo
 * uses the weight of the row, GMPO the geometric mean over its tokens. */
static double row_weight(const oracle *o, const rig_batch *b, uint32_t r)
{
    double sum = 0;
    double n = 0;
    for (int32_t i = b->row_start[r]; i < b->row_start[r + 1]; i++)
        if (b->mask[i] != 0) {
            sum += log(token_weight(o, b, r, i));
            n++;
        }
    return n == 0 ? 1 : exp(sum / (is_mode(o, "gspo") ? n : n + 1e-8));
}

static double total_loss(const oracle *o, const rig_batch *b,
                         const double *logp, const double *frozen)
{
    double sum = 0;
    double tokens = 0;
    double rows = 0;
    int by_ratio = is_mode(o, "gspo") || is_mode(o, "geo_mean");
    int by_row = by_ratio || is_mode(o, "sapo");
    for (uint32_t r = 0; r < b->b.rows; r++) {
        double row = 0;
        double n = 0;
        for (int32_t i = b->row_start[r]; i < b->row_start[r + 1]; i++) {
            if (b->mask[i] == 0)
                continue;
            n++;
            if (!by_ratio)
                row += token_weight(o, b, r, i) *
                       token_loss(o, b, (uint32_t)i, logp[i], frozen[i]);
        }
        if (by_ratio)
            row = row_loss(o, b, r, logp) * row_weight(o, b, r);
        else if (by_row)
            row /= n + 1e-8;
        sum += row;
        tokens += n;
        rows += n > 0;
    }
    return sum / (by_row ? rows : tokens);
}

/* ---- gradients ----------------------------------------------------------- */

/* Fills in log-ratios inside and outside of every clip, and advantages of both
 * signs and 0, which are equal on all tokens of a row. */
static void fill_rows(rig_batch *b, uint32_t seed)
{
    rig_batch_init(b);
    for (int i = 0; i < 12; i++)
        (void)rig_row(b, 1 + i % 3, (7 * i) % 11, i / 4, 0);
    rig_fill(b, seed);
    for (uint32_t r = 0; r < b->b.rows; r++) {
        float a = (float)((int)r % 5 - 2) * 0.6f;
        for (int32_t i = b->row_start[r]; i < b->row_start[r + 1]; i++)
            b->advantage[i] = a;
    }
    for (uint32_t i = 0; i < b->b.tokens; i++)
        if (b->mask[i] == 0)
            b->logp[i] = b->old_logp[i] = b->advantage[i] = NAN;
}

static void check_mode(const oracle *o, const char *const *keys)
{
    rig r;
    rig_batch b;
    rig_sums sums;
    unsigned char marks[RIG_TOKENS];
    double logp[RIG_TOKENS];
    double frozen[RIG_TOKENS];
    oracle full = *o;
    rig_open(&r, keys);
    fill_rows(&b, 23);
    if (is_mode(o, "clip_cov") || is_mode(o, "kl_cov")) {
        assert_true(rig_marks(&r, &b, marks) > 3);
        full.marks = marks;
    }
    for (uint32_t i = 0; i < b.b.tokens; i++)
        logp[i] = frozen[i] = (double)b.logp[i];
    assert_int_equal(rig_loss(&r, &b, 2, 0, &sums), XRAY_OK);
    double loss = total_loss(&full, &b, logp, frozen);
    rig_near(rig_metric(&r, &sums, "actor/pg_loss"), loss,
             1e-7 * (1 + fabs(loss)), o->mode);
    const double h = 1e-5;
    for (uint32_t i = 0; i < b.b.tokens; i++) {
        if (b.mask[i] == 0) {
            assert_true(b.dlogp[i] == 0);
            continue;
        }
        logp[i] = frozen[i] + h;
        double up = total_loss(&full, &b, logp, frozen);
        logp[i] = frozen[i] - h;
        double slope = (up - total_loss(&full, &b, logp, frozen)) / (2 * h);
        logp[i] = frozen[i];
        rig_near((double)b.dlogp[i], slope, 1e-6 * (1 + fabs(slope)), o->mode);
    }
    rig_close(&r);
}

static void gradients_agree_with_finite_differences(void **state)
{
    (void)state;
    oracle base = { .low = 0.2, .high = 0.2, .is_high = 1.1 };
    static const char *const modes[] = { "vanilla", "cispo", "gpg",     "sapo",
                                         "dppo_tv", "gspo",  "geo_mean" };
    static const char *const weights[] = { NULL, "token", "sequence" };
    for (int m = 0; m < 7; m++)
        for (int w = 0; w < 3; w++) {
            oracle o = base;
            o.mode = modes[m];
            o.is = weights[w];
            o.dual = m == 0 || m == 4 ? 3 : 0;
            /* Token weights are not part of the row's ratio, so this needs
             * equal weights on all tokens of a row. */
            if (m == 5 && w == 1)
                continue;
            check_mode(&o, RIG_KEYS("loss_mode", modes[m], "rollout_is",
                                    w ? weights[w] : "none",
                                    "rollout_is_threshold", "1.1"));
        }
    oracle o = base;
    o.mode = "dppo_kl";
    o.dual = 1.1;
    o.low = o.high = 0.005;
    check_mode(&o, RIG_KEYS("loss_mode", "dppo_kl", "clip_ratio", "0.005",
                            "clip_ratio_c", "1.1"));
    o = base;
    o.mode = "dro";
    o.beta = 0.3;
    check_mode(&o, RIG_KEYS("loss_mode", "dro", "dro_beta", "0.3"));
    o = base;
    o.mode = "clip_cov";
    check_mode(&o, RIG_KEYS("loss_mode", "clip_cov", "clip_cov_ratio", "0.15",
                            "clip_cov_lb", "0.01"));
    o.mode = "kl_cov";
    check_mode(&o, RIG_KEYS("loss_mode", "kl_cov", "kl_cov_ratio", "0.15"));
}

static void straight_through_kl_has_the_gradient_of_k2(void **state)
{
    (void)state;
    static const char *const kinds[] = { "kl", "abs", "low_var_kl" };
    for (int k = 0; k < 3; k++) {
        char plus[32];
        rig r;
        rig_batch b;
        rig_sums value;
        rig_sums sums;
        double want[RIG_TOKENS];
        (void)snprintf(plus, sizeof(plus), "%s+", kinds[k]);
        fill_rows(&b, 4);
        rig_open(&r, RIG_KEYS("use_kl_loss", "true", "kl_loss_coef", "1",
                              "kl_loss_type", "mse"));
        assert_int_equal(rig_loss(&r, &b, 3, 0, &sums), XRAY_OK);
        for (uint32_t i = 0; i < b.b.tokens; i++)
            want[i] = (double)b.dlogp[i];
        rig_close(&r);
        rig_open(&r, RIG_KEYS("use_kl_loss", "true", "kl_loss_coef", "1",
                              "kl_loss_type", kinds[k]));
        assert_int_equal(rig_loss(&r, &b, 3, 0, &value), XRAY_OK);
        rig_close(&r);
        rig_open(&r, RIG_KEYS("use_kl_loss", "true", "kl_loss_coef", "1",
                              "kl_loss_type", plus));
        assert_int_equal(rig_loss(&r, &b, 3, 0, &sums), XRAY_OK);
        rig_near(rig_metric(&r, &sums, "actor/kl_loss"),
                 rig_metric(&r, &value, "actor/kl_loss"), 0, plus);
        for (uint32_t i = 0; i < b.b.tokens; i++)
            rig_near((double)b.dlogp[i], want[i], 0, plus);
        rig_close(&r);
    }
}

/* ---- published vectors --------------------------------------------------- */

static void cispo_meets_its_vector(void **state)
{
    (void)state;
    cJSON *all = vectors_open();
    const cJSON *in = vector_part(all, "cispo_sum", "inputs");
    const cJSON *want = vector_part(all, "cispo_sum", "expected");
    xm_rl_clip clip = { .low = vector_number(in, "clip_low"),
                        .high = vector_number(in, "clip_high"),
                        .bound = 20 };
    double sum = 0;
    for (int i = 0; i < 3; i++) {
        xm_rl_policy p =
            xm_rl_cispo(&clip, vector_at(in, "lp", i),
                        vector_at(in, "old_lp", i), vector_at(in, "adv", i));
        rig_near(p.loss.value, vector_at(want, "per_token", i), 1e-4, "cispo");
        sum += p.loss.value;
    }
    rig_near(sum, vector_number(want, "sum"), 1e-3, "cispo");
    cJSON_Delete(all);
}

static void dro_meets_its_vector(void **state)
{
    (void)state;
    cJSON *all = vectors_open();
    const cJSON *in = vector_part(all, "dro", "inputs");
    const cJSON *want = vector_part(all, "dro", "expected");
    rig r;
    rig_batch b;
    rig_sums sums;
    rig_open(&r, RIG_KEYS("preset", "dro", "dro_beta", "0.05"));
    rig_near(vector_number(in, "beta"), 0.05, 0, "beta");
    rig_batch_init(&b);
    (void)rig_row(&b, 1, 3, 0, 0);
    for (int i = 0; i < 3; i++) {
        b.old_logp[1 + i] = (float)vector_at(in, "old_lp", i);
        b.logp[1 + i] = (float)vector_at(in, "lp", i);
        b.advantage[1 + i] = (float)vector_at(in, "adv", i);
        b.mask[1 + i] = (float)vector_at(in, "mask", i);
    }
    assert_int_equal(rig_loss(&r, &b, 1, 0, &sums), XRAY_OK);
    rig_near(rig_metric(&r, &sums, "actor/pg_loss"),
             vector_number(want, "loss"), 1e-6, "dro");
    rig_close(&r);
    cJSON_Delete(all);
}

/* ---- picks --------------------------------------------------------------- */

/* kl_cov picks exactly the k largest covariances of the mini-batch. */
static void kl_cov_picks_the_largest_covariances(void **state)
{
    (void)state;
    rig r;
    rig_batch b;
    unsigned char marks[RIG_TOKENS];
    double a = 0;
    double logp = 0;
    double n = 0;
    rig_open(&r, RIG_KEYS("preset", "kl_cov", "kl_cov_ratio", "0.2"));
    fill_rows(&b, 3);
    for (uint32_t i = 0; i < b.b.tokens; i++)
        if (b.mask[i] != 0) {
            a += (double)b.advantage[i];
            logp += (double)b.logp[i];
            n++;
        }
    uint32_t picked = rig_marks(&r, &b, marks);
    assert_int_equal(picked, (int)(0.2 * n));
    double least = INFINITY;
    double most = -INFINITY;
    for (uint32_t i = 0; i < b.b.tokens; i++) {
        double cov =
            ((double)b.advantage[i] - a / n) * ((double)b.logp[i] - logp / n);
        if (b.mask[i] == 0)
            assert_int_equal(marks[i], 0);
        else if (marks[i])
            least = fmin(least, cov);
        else
            most = fmax(most, cov);
    }
    assert_true(least >= most);
    rig_close(&r);
    /* At least one token is picked, and none if there are no tokens. */
    rig_open(&r, RIG_KEYS("preset", "kl_cov"));
    assert_int_equal(rig_marks(&r, &b, marks), 1);
    memset(b.mask, 0, sizeof(b.mask));
    assert_int_equal(rig_marks(&r, &b, marks), 0);
    rig_close(&r);
}

/* clip_cov picks the requested number of candidates, others for other rows. */
static void clip_cov_picks_candidates_at_random(void **state)
{
    (void)state;
    rig r;
    rig_batch b;
    unsigned char one[RIG_TOKENS];
    unsigned char two[RIG_TOKENS];
    const char *const *keys =
        RIG_KEYS("preset", "clip_cov", "clip_cov_ratio", "0.08", "clip_cov_lb",
                 "-0.3", "clip_cov_ub", "0.5", "clip_ratio_low", "0.3",
                 "clip_ratio_high", "0.3");
    rig_open(&r, keys);
    fill_rows(&b, 3);
    double n = 0;
    for (uint32_t i = 0; i < b.b.tokens; i++)
        n += (double)b.mask[i];
    assert_int_equal(rig_marks(&r, &b, one), (int)(0.08 * n));
    for (uint32_t i = 0; i < b.b.tokens; i++) {
        if (!one[i])
            continue;
        oracle o = { .low = 0.3, .high = 0.3 };
        double ratio = exp((double)b.logp[i] - (double)b.old_logp[i]);
        double a = (double)b.advantage[i];
        assert_true(b.mask[i] != 0);
        assert_true(clipped_loss(&o, ratio, a) == -a * ratio);
    }
    for (uint32_t k = 0; k < b.b.rows; k++)
        b.row_id[k] += 12345;
    assert_int_equal(rig_marks(&r, &b, two), (int)(0.08 * n));
    assert_memory_not_equal(one, two, b.b.tokens);
    rig_close(&r);
}

/* ---- rejected rows ------------------------------------------------------- */

/* Fills nine rows. Every third one has other log-probabilities in the sampler;
 * `without` leaves these out. */
static void fill_rejected_rows(rig_batch *b, int without)
{
    rig_batch all;
    rig_batch_init(&all);
    for (int i = 0; i < 9; i++)
        (void)rig_row(&all, 1 + i % 2, 2 + (3 * i) % 7, i / 3, 0);
    rig_fill(&all, 31);
    rig_batch_init(b);
    for (uint32_t r = 0; r < all.b.rows; r++) {
        int32_t at = all.row_start[r];
        int32_t count = all.row_start[r + 1] - at;
        int other = r % 3 == 1;
        if (other && without)
            continue;
        uint32_t own = rig_row(b, all.prompt_len[r], count - all.prompt_len[r],
                               all.group[r], 0);
        for (int32_t i = 0; i < count; i++) {
            int32_t to = b->row_start[own] + i;
            b->old_logp[to] = all.old_logp[at + i];
            b->logp[to] = all.logp[at + i];
            b->entropy[to] = all.entropy[at + i];
            b->advantage[to] = all.advantage[at + i];
            b->rollout_logp[to] = all.old_logp[at + i] - (other ? 1.0f : 0);
        }
    }
}

/* A completely rejected row is in no denominator: in every mode, the others
 * have the gradient of a mini-batch without it, bit for bit. */
static void rejected_rows_are_not_counted(void **state)
{
    (void)state;
    static const char *const aggs[] = { "token-mean", "seq-mean-token-sum",
                                        "seq-mean-token-sum-norm",
                                        "seq-mean-token-mean" };
    static const char *const kinds[] = { "seq_mean_k1", "token_k1" };
    for (int k = 0; k < 8; k++) {
        rig r;
        rig_batch b;
        rig_batch left;
        rig_sums sums;
        rig_sums want;
        rig_open(&r, RIG_KEYS("loss_agg_mode", aggs[k % 4], "rollout_rs",
                              kinds[k / 4], "rollout_rs_threshold", "0.8_1.25",
                              "entropy_coeff", "0.02"));
        fill_rejected_rows(&b, 0);
        fill_rejected_rows(&left, 1);
        assert_int_equal(rig_loss(&r, &b, 2, 1, &sums), XRAY_OK);
        assert_int_equal(rig_loss(&r, &left, 2, 1, &want), XRAY_OK);
        rig_near(rig_metric(&r, &sums, "actor/pg_loss"),
                 rig_metric(&r, &want, "actor/pg_loss"), 1e-12, aggs[k % 4]);
        int32_t at = 0;
        for (uint32_t row = 0; row < b.b.rows; row++)
            for (int32_t i = b.row_start[row]; i < b.row_start[row + 1]; i++) {
                int kept = row % 3 != 1;
                rig_near((double)b.dlogp[i],
                         kept ? (double)left.dlogp[at] : 0.0, 0, aggs[k % 4]);
                rig_near((double)b.dentropy[i],
                         kept ? (double)left.dentropy[at] : 0.0, 0,
                         aggs[k % 4]);
                at += kept;
            }
        rig_close(&r);
    }
}

/* ---- invariance ---------------------------------------------------------- */

static void check_same_bits(rig *r, rig_batch *by_ratio, uint32_t rows,
                            const char *what)
{
    rig_batch cut = *by_ratio;
    rig_batch back = *by_ratio;
    rig_sums want;
    rig_sums got;
    cut.b = by_ratio->b;
    assert_int_equal(rig_loss(r, by_ratio, rows, 1, &want), XRAY_OK);
    for (uint32_t k = 1; k < rows; k++) {
        rig_batch_init(&cut);
        cut = *by_ratio;
        assert_int_equal(rig_loss(r, &cut, k, 1, &got), XRAY_OK);
        if (memcmp(cut.dlogp, by_ratio->dlogp, sizeof(cut.dlogp)) != 0 ||
            memcmp(&got, &want, sizeof(got)) != 0)
            fail_msg("%s: micro-batches of %u rows differ", what, k);
        /* For any order and ranks, gradients keep their bits; sums of metrics
         * are sums of parts and agree within 1e-13 of their size. */
        r->reverse = 1;
        r->ranks = k % 4 + 1;
        assert_int_equal(rig_loss(r, &back, k, 1, &got), XRAY_OK);
        r->reverse = 0;
        r->ranks = 0;
        if (memcmp(back.dlogp, by_ratio->dlogp, sizeof(back.dlogp)) != 0 ||
            memcmp(back.dentropy, by_ratio->dentropy, sizeof(back.dentropy)) !=
                0)
            fail_msg("%s: order or ranks change the gradient", what);
        for (int i = 0; i < RIG_METRICS; i++) {
            rig_near(got.sum[i], want.sum[i], 1e-13 * (100 + fabs(want.sum[i])),
                     what);
            rig_near(got.weight[i], want.weight[i], 0, what);
        }
    }
}

static void any_cut_gives_the_same_bits(void **state)
{
    (void)state;
    static const char *const modes[] = {
        "vanilla", "gspo",    "cispo",    "gpg",     "sapo", "clip_cov",
        "kl_cov",  "dppo_tv", "geo_mean", "dppo_kl", "dro",
    };
    static const char *const rejects[] = { "none", "token_k1", "seq_mean_k3" };
    for (int m = 0; m < 11; m++)
        for (int k = 0; k < 3; k++) {
            rig r;
            rig_batch b;
            int dro = strcmp(modes[m], "dro") == 0;
            rig_open(&r,
                     RIG_KEYS("loss_mode", modes[m], "use_kl_loss", "true",
                              "entropy_coeff", "0.02", "clip_cov_ratio", "0.1",
                              "clip_cov_lb", "-1", "kl_cov_ratio", "0.1",
                              "rollout_is", k ? "sequence" : "none",
                              "rollout_rs", rejects[k], "rollout_rs_threshold",
                              k == 0   ? ""
                              : k == 1 ? "0.9_1.2"
                                       : "0.02",
                              "dro_beta", dro ? "0.1" : "-1"));
            rig_batch_init(&b);
            for (int i = 0; i < 13; i++)
                (void)rig_row(&b, 1 + i % 4, (5 * i) % 12, i / 4, 0);
            rig_fill(&b, 7);
            check_same_bits(&r, &b, 13, modes[m]);
            rig_close(&r);
        }
}

/* NeMo-RL's clamped kinds equal the plain ones where no limit applies. */
static void clamped_kinds_equal_the_plain_ones_within_limits(void **state)
{
    static const char *const kinds[] = { "k1", "k2", "k3" };
    (void)state;
    for (int k = 0; k < 3; k++) {
        char name[16];
        rig r;
        rig_batch b;
        rig_sums plain;
        rig_sums clamped;
        (void)snprintf(name, sizeof(name), "%s_clamped", kinds[k]);
        fill_rows(&b, 4);
        rig_open(&r, RIG_KEYS("use_kl_loss", "true", "kl_loss_coef", "1",
                              "kl_loss_type", kinds[k]));
        assert_int_equal(rig_loss(&r, &b, 3, 0, &plain), XRAY_OK);
        rig_close(&r);
        rig_open(&r, RIG_KEYS("use_kl_loss", "true", "kl_loss_coef", "1",
                              "kl_loss_type", name));
        assert_int_equal(rig_loss(&r, &b, 3, 0, &clamped), XRAY_OK);
        rig_near(rig_metric(&r, &clamped, "actor/kl_loss"),
                 rig_metric(&r, &plain, "actor/kl_loss"), 0, name);
        rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_agree_with_finite_differences),
        cmocka_unit_test(straight_through_kl_has_the_gradient_of_k2),
        cmocka_unit_test(cispo_meets_its_vector),
        cmocka_unit_test(dro_meets_its_vector),
        cmocka_unit_test(kl_cov_picks_the_largest_covariances),
        cmocka_unit_test(clip_cov_picks_candidates_at_random),
        cmocka_unit_test(rejected_rows_are_not_counted),
        cmocka_unit_test(any_cut_gives_the_same_bits),
        cmocka_unit_test(clamped_kinds_equal_the_plain_ones_within_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
