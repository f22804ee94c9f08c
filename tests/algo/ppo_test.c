/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's half of PPO: scores, KL, controllers, advantages, whitening and
 * state, against published vectors and against the flows of verl and trlX
 * worked out step by step in float64.
 */
#include "tests/algo/ppo_rig.h"

#include <math.h>

#include "tests/algo/vectors.h"

/* ---- published vectors --------------------------------------------------- */

static double read_matrix_entry(const cJSON *object, const char *key, int i)
{
    const cJSON *rows = cJSON_GetObjectItem(object, key);
    return cJSON_GetArrayItem(cJSON_GetArrayItem(rows, 0), i)->valuedouble;
}

static void published_returns_are_met(void **state)
{
    static const struct {
        const char *name;
        const char *gamma;
        const char *lam;
    } cases[] = { { "gae_return_gamma1_lam1", "1", "1" },
                  { "gae_return_gamma0.5", "0.5", "1" },
                  { "gae_return_lam0.5", "1", "0.5" } };
    (void)state;
    cJSON *all = vectors_open();
    for (int c = 0; c < 3; c++) {
        const cJSON *in = vector_part(all, cases[c].name, "inputs");
        const cJSON *want = vector_part(all, cases[c].name, "expected");
        rig r;
        rig_batch b;
        rig_open(&r, RIG_KEYS("gamma", cases[c].gamma, "lam", cases[c].lam,
                              "whiten_advantages", "none"));
        rig_batch_init(&b);
        (void)ppo_row(&b, 2, 3, 0);
        for (int i = 0; i < 3; i++) {
            b.reward[2 + i] = (float)read_matrix_entry(in, "rewards", i);
            b.value[2 + i] = (float)read_matrix_entry(in, "values", i);
        }
        assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
        for (int i = 0; i < 3; i++) {
            rig_near((double)b.returns[2 + i],
                     read_matrix_entry(want, "returns", i), 1e-4,
                     cases[c].name);
            rig_near((double)b.advantage[2 + i],
                     read_matrix_entry(want, "returns", i) -
                         read_matrix_entry(in, "values", i),
                     1e-4, "advantage");
        }
        assert_true(b.advantage[0] == 0 && b.returns[1] == 0);
        rig_close(&r);
    }
    cJSON_Delete(all);
}

/* As in verl, values of observation tokens change nothing. */
static void observations_carry_credit(void **state)
{
    static const char *const gammas[] = { "1", "0.9", "0" };
    static const int on[] = { 2, 3, 4, 7, 8 };
    (void)state;
    cJSON *all = vectors_open();
    const cJSON *in = vector_part(all, "multi_turn_gae", "inputs");
    for (int g = 0; g < 3; g++) {
        rig r;
        rig_batch b[2];
        rig_open(&r, RIG_KEYS("gamma", gammas[g], "lam", "0.7"));
        for (int k = 0; k < 2; k++) {
            rig_batch_init(&b[k]);
            (void)ppo_row(&b[k], 1, 11, 0);
            for (int i = 0; i < 11; i++) {
                b[k].reward[1 + i] = (float)read_matrix_entry(in, "rewards", i);
                b[k].mask[1 + i] = (float)read_matrix_entry(in, "mask", i);
                b[k].value[1 + i] = k ? 1e6f : -7;
            }
            for (int i = 0; i < 5; i++)
                b[k].value[1 + on[i]] =
                    (float)vector_at(in, "values_on_mask", i);
            assert_int_equal(rig_prepare(&r, &b[k]), XRAY_OK);
        }
        for (int i = 0; i < 12; i++) {
            assert_true(b[0].advantage[i] == b[1].advantage[i]);
            assert_true(b[0].returns[i] == b[1].returns[i]);
        }
        rig_close(&r);
    }
    cJSON_Delete(all);
}

/* ---- flows in float64, over padded matrices ------------------------------ */

#define ROWS 8
#define LONGEST 6

typedef struct flow {
    double gamma;
    double lam;
    double coefficient; /* of the KL */
    double clip_score;  /* 0: none */
    int count;          /* running moments, one score at a time */
    double sum;
    double squares;
} flow;

typedef struct padded {
    double reward[ROWS][LONGEST];
    double value[ROWS][LONGEST];
    double advantage[ROWS][LONGEST];
    double returns[ROWS][LONGEST];
    double mask[ROWS][LONGEST];
    double row_kl_sum[ROWS];  /* of exp(l) - 1 - l */
    double row_kl_mean[ROWS]; /* of l */
} padded;

static void make_rows(rig_batch *b, uint32_t seed)
{
    static const float scores[] = { 1, 0, -3, 12, 0.5f, 1, -14, 2 };
    rig_batch_init(b);
    for (uint32_t i = 0; i < ROWS; i++)
        (void)ppo_row(b, 2 + (int32_t)(i % 3), 1 + (int32_t)((i * 5) % LONGEST),
                      scores[(i + seed) % ROWS]);
    ppo_fill(b, seed);
}

static double clamp_value(double x, double limit)
{
    if (limit <= 0)
        return x;
    return x > limit ? limit : x < -limit ? -limit : x;
}

static double compute_running_deviation(const flow *f)
{
    double mean = f->sum / f->count;
    return sqrt((f->squares - f->count * mean * mean) / (f->count - 1));
}

/* Turns scores into rewards, subtracts KL, and runs GAE over zero padding. */
static void work_out_rewards(flow *f, const rig_batch *b, int scaled, padded *p)
{
    memset(p, 0, sizeof(*p));
    for (int r = 0; r < ROWS; r++) {
        int32_t end = b->row_start[r + 1];
        double score = clamp_value((double)b->reward[end - 1], f->clip_score);
        f->count++;
        f->sum += score;
        f->squares += score * score;
    }
    double by = scaled ? compute_running_deviation(f) : 1;
    for (int r = 0; r < ROWS; r++) {
        int32_t first = b->row_start[r] + b->prompt_len[r];
        int32_t size = b->row_start[r + 1] - first;
        for (int t = 0; t < size; t++) {
            double l =
                (double)b->old_logp[first + t] - (double)b->ref_logp[first + t];
            p->mask[r][t] = 1;
            p->value[r][t] = (double)b->value[first + t];
            p->reward[r][t] = -f->coefficient * l;
            p->row_kl_sum[r] += exp(l) - 1 - l;
            p->row_kl_mean[r] += l / size;
        }
        p->reward[r][size - 1] +=
            clamp_value((double)b->reward[b->row_start[r + 1] - 1],
                        f->clip_score) /
            by;
        double next = 0;
        for (int t = LONGEST - 1; t >= 0; t--) {
            double v = t + 1 < LONGEST ? p->value[r][t + 1] : 0;
            next = p->reward[r][t] + f->gamma * v - p->value[r][t] +
                   f->gamma * f->lam * next;
            p->advantage[r][t] = next;
            p->returns[r][t] = next + p->value[r][t];
        }
    }
}

static void check_same_estimates(const rig_batch *b, const padded *p)
{
    for (uint32_t i = 0; i < b->b.tokens; i++)
        if (b->mask[i] == 0) /* prompts, whitened or not */
            assert_true(b->advantage[i] == 0 && b->returns[i] == 0);
    for (int r = 0; r < ROWS; r++) {
        int32_t first = b->row_start[r] + b->prompt_len[r];
        for (int t = 0; first + t < b->row_start[r + 1]; t++) {
            rig_near((double)b->reward[first + t], p->reward[r][t], 2e-6,
                     "reward");
            rig_near((double)b->advantage[first + t], p->advantage[r][t], 5e-6,
                     "advantage");
            rig_near((double)b->returns[first + t], p->returns[r][t], 5e-6,
                     "returns");
        }
    }
}

/* Computes the mean of row sums, which trlX's controller uses. */
static double compute_kl(const padded *p, const double *rows)
{
    double sum = 0;
    (void)p;
    for (int r = 0; r < ROWS; r++)
        sum += rows[r] / ROWS;
    return sum;
}

/* Computes trlX's loss of rows [first, first + rows) and its policy part. */
static double compute_trlx_loss(const rig_batch *b, const padded *p, int first,
                                int rows, double *out_policy)
{
    double n = 0;
    double mean = 0;
    double squares = 0;
    double policy = 0;
    double value = 0;
    int longest = 0;
    for (int r = first; r < first + rows; r++)
        for (int t = 0; t < LONGEST; t++)
            if (p->mask[r][t] > 0 && t >= longest)
                longest = t + 1;
    for (int r = first; r < first + rows; r++)
        for (int t = 0; t < longest; t++)
            mean += p->advantage[r][t] / (rows * longest);
    for (int r = first; r < first + rows; r++)
        for (int t = 0; t < longest; t++)
            squares += pow(p->advantage[r][t] - mean, 2);
    double scale = 1 / sqrt(squares / (rows * longest - 1) + 1e-8);
    for (int r = first; r < first + rows; r++) {
        int32_t at = b->row_start[r] + b->prompt_len[r];
        for (int t = 0; t < LONGEST; t++) {
            if (p->mask[r][t] == 0)
                continue;
            double a = (p->advantage[r][t] - mean) * scale;
            double ratio =
                exp((double)b->logp[at + t] - (double)b->old_logp[at + t]);
            double v = (double)b->value_now[at + t];
            double old = p->value[r][t];
            double near_old = fmin(fmax(v, old - 0.2), old + 0.2);
            policy += fmax(-a * ratio, -a * fmin(fmax(ratio, 0.8), 1.2));
            value += 0.5 * fmax(pow(v - p->returns[r][t], 2),
                                pow(near_old - p->returns[r][t], 2));
            n++;
        }
    }
    *out_policy = policy / n;
    return policy / n + value / n;
}

/* Runs three steps of trlX: scores are clipped at 10 and divided by their
 * running deviation, there are 4 epochs of mini-batches of 4 rows, and an
 * adaptive controller is updated after each epoch. */
static void trlx_flow_worked_out(void **state)
{
    rig r;
    flow f = {
        .gamma = 0.97, .lam = 0.95, .coefficient = 0.05, .clip_score = 10
    };
    (void)state;
    rig_open(&r, RIG_KEYS("preset", "trlx", "gamma", "0.97", "kl_coef", "0.05",
                          "kl_ctrl", "adaptive", "target_kl", "6", "horizon",
                          "100", "scale_reward", "running"));
    assert_int_equal(rig_needs(&r), XRAY_NEED_VALUE_HEAD | XRAY_NEED_REFERENCE);
    for (uint32_t step = 0; step < 3; step++) {
        rig_batch b;
        padded p;
        make_rows(&b, step + 1);
        work_out_rewards(&f, &b, 1, &p);
        assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
        check_same_estimates(&b, &p);
        rig_near(rig_put(&r, "actor/reward_kl_penalty_coeff"), f.coefficient,
                 1e-12, "coefficient");
        double kl = compute_kl(&p, p.row_kl_sum);
        rig_near(rig_put(&r, "actor/reward_kl_penalty"), kl, 1e-5, "KL");
        rig_near(rig_put(&r, "rollout_scores/running_mean"), f.sum / f.count,
                 1e-12, "running mean");
        rig_near(rig_put(&r, "rollout_scores/running_std"),
                 compute_running_deviation(&f), 1e-10, "running deviation");
        for (int epoch = 0; epoch < 4; epoch++) {
            for (uint32_t first = 0; first < ROWS; first += 4) {
                rig_sums sums;
                double policy = 0;
                ppo_mini mini = { first, 4, 0, 0 };
                double total =
                    compute_trlx_loss(&b, &p, (int)first, 4, &policy);
                assert_int_equal(ppo_run_mini(&r, &b, &mini, &sums), XRAY_OK);
                rig_near(rig_metric(&r, &sums, "actor/pg_loss"), policy, 1e-5,
                         "policy loss");
                rig_near(rig_metric(&r, &sums, "actor/loss"), total, 2e-5,
                         "loss");
            }
            double e = fmin(fmax(kl / 6 - 1, -0.2), 0.2);
            f.coefficient *= 1 + e * 4 / 100;
        }
        assert_int_equal(ppo_observe(&r), XRAY_OK);
    }
    assert_true(f.coefficient != 0.05);
    rig_close(&r);
}

/* In verl, KL is in the reward, the controller is updated at once by the rows
 * of the step, and advantages are whitened over all tokens with the unbiased
 * variance. */
static void verl_flow_worked_out(void **state)
{
    rig r;
    flow f = { .gamma = 1, .lam = 1, .coefficient = 0.02 };
    (void)state;
    rig_open(&r, RIG_KEYS("use_kl_in_reward", "true", "kl_coef", "0.02",
                          "kl_ctrl", "adaptive", "horizon", "50"));
    assert_int_equal(rig_needs(&r), XRAY_NEED_CRITIC | XRAY_NEED_REFERENCE);
    for (uint32_t step = 0; step < 2; step++) {
        rig_batch b;
        padded p;
        double n = 0;
        double mean = 0;
        double squares = 0;
        make_rows(&b, step + 5);
        work_out_rewards(&f, &b, 0, &p);
        for (int k = 0; k < ROWS * LONGEST; k++) {
            n += (&p.mask[0][0])[k];
            mean += (&p.mask[0][0])[k] * (&p.advantage[0][0])[k];
        }
        mean /= n;
        for (int k = 0; k < ROWS * LONGEST; k++)
            squares +=
                (&p.mask[0][0])[k] * pow((&p.advantage[0][0])[k] - mean, 2);
        for (int k = 0; k < ROWS * LONGEST; k++)
            (&p.advantage[0][0])[k] = ((&p.advantage[0][0])[k] - mean) /
                                      sqrt(squares / (n - 1) + 1e-8);
        assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
        check_same_estimates(&b, &p);
        rig_near(rig_put(&r, "actor/reward_kl_penalty_coeff"), f.coefficient,
                 1e-12, "coefficient");
        double kl = compute_kl(&p, p.row_kl_mean);
        rig_near(rig_put(&r, "actor/reward_kl_penalty"), kl, 1e-6, "KL");
        f.coefficient *= 1 + fmin(fmax(kl / 0.1 - 1, -0.2), 0.2) * ROWS / 50;
        assert_int_equal(ppo_observe(&r), XRAY_OK);
    }
    assert_true(f.coefficient != 0.02);
    rig_close(&r);
}

/* ---- state --------------------------------------------------------------- */

/* An instance that loaded the state of another one continues bit for bit. */
static void state_goes_into_a_checkpoint(void **state)
{
    const char *const *keys = RIG_KEYS("preset", "trlx", "kl_ctrl", "adaptive",
                                       "horizon", "30", "scale_reward", "ref");
    rig r[2];
    rig_batch b[2];
    unsigned char blob[256] = { 0 };
    uint64_t size = 0;
    (void)state;
    rig_open(&r[0], keys);
    rig_open(&r[1], keys);
    for (uint32_t step = 0; step < 2; step++) {
        rig_sums sums;
        ppo_mini mini = { 0, ROWS, 0, 0 };
        make_rows(&b[0], step + 1);
        assert_int_equal(rig_prepare(&r[0], &b[0]), XRAY_OK);
        assert_int_equal(ppo_run_mini(&r[0], &b[0], &mini, &sums), XRAY_OK);
        assert_int_equal(ppo_observe(&r[0]), XRAY_OK);
    }
    assert_int_equal(r[0].ops->save(r[0].self, NULL, 0, &size), XRAY_E_RANGE);
    assert_true(size > 0 && size < sizeof(blob));
    assert_int_equal(r[0].ops->save(r[0].self, blob, sizeof(blob), &size), 0);
    assert_int_equal(r[1].ops->load(r[1].self, blob, size - 1), XRAY_E_IO);
    assert_non_null(strstr(r[1].host.reason, "load: the state has"));
    unsigned char spoiled[256];
    memcpy(spoiled, blob, sizeof(spoiled));
    memset(spoiled + size - 8, 0xff, 8); /* a NaN */
    assert_int_equal(r[1].ops->load(r[1].self, spoiled, size), XRAY_E_IO);
    memcpy(spoiled, blob, sizeof(spoiled));
    spoiled[0] ^= 0x55;
    assert_int_equal(r[1].ops->load(r[1].self, spoiled, size), XRAY_E_IO);
    assert_int_equal(r[1].ops->load(r[1].self, blob, size), XRAY_OK);
    for (int k = 0; k < 2; k++) {
        make_rows(&b[k], 9);
        assert_int_equal(rig_prepare(&r[k], &b[k]), XRAY_OK);
    }
    assert_memory_equal(b[0].advantage, b[1].advantage, sizeof(b[0].advantage));
    assert_memory_equal(b[0].returns, b[1].returns, sizeof(b[0].returns));
    assert_true(rig_put(&r[1], "actor/reward_kl_penalty_coeff") != 0.001);
    assert_int_equal(r[0].puts, r[1].puts);
    assert_memory_equal(r[0].put, r[1].put, sizeof(r[0].put));
    rig_close(&r[0]);
    rig_close(&r[1]);
    /* A fixed coefficient comes from the current INI. */
    rig_open(&r[0], RIG_KEYS("preset", "trlx", "kl_coef", "0.5"));
    assert_int_equal(r[0].ops->load(r[0].self, blob, size), XRAY_OK);
    make_rows(&b[0], 3);
    assert_int_equal(rig_prepare(&r[0], &b[0]), XRAY_OK);
    assert_true(rig_put(&r[0], "actor/reward_kl_penalty_coeff") == 0.5);
    rig_close(&r[0]);
}

/* ---- corners ------------------------------------------------------------- */

static void empty_rows_and_equal_scores(void **state)
{
    static const char *const scales[] = { "ignored", "running", "ref" };
    (void)state;
    for (int k = 0; k < 3; k++) {
        rig r;
        rig_batch b;
        rig_sums sums;
        ppo_mini mini = { 0, 3, 1, 0 };
        rig_open(&r, RIG_KEYS("preset", "trlx", "scale_reward", scales[k]));
        rig_batch_init(&b);
        assert_int_equal(rig_prepare(&r, &b), XRAY_OK); /* no rows */
        (void)ppo_row(&b, 3, 0, 0);                     /* no response */
        (void)ppo_row(&b, 2, 4, 1);
        (void)ppo_row(&b, 2, 2, 1);
        b.mask[10] = 0; /* all of the last row is observed */
        b.mask[11] = 0;
        ppo_fill(&b, 3);
        b.reward[8] = b.reward[11] = 0;
        assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
        assert_int_equal(ppo_run_mini(&r, &b, &mini, &sums), XRAY_OK);
        for (uint32_t i = 0; i < b.b.tokens; i++) {
            assert_true(isfinite(b.advantage[i]) && isfinite(b.dlogp[i]));
            assert_true(isfinite(b.dvalue[i]));
            assert_true(b.mask[i] != 0 || b.dlogp[i] == 0);
        }
        rig_close(&r);
    }
}

static void values_that_are_not_finite_are_named(void **state)
{
    rig r;
    rig_batch b;
    (void)state;
    rig_open(&r, RIG_KEYS("preset", "trlx"));
    make_rows(&b, 1);
    b.reward[b.row_start[2] - 1] = (float)INFINITY;
    assert_int_equal(rig_prepare(&r, &b), XRAY_E_NUMERIC);
    assert_non_null(strstr(r.host.reason, "row 1001: its reward"));
    make_rows(&b, 1);
    b.ref_logp[b.row_start[3] - 1] = (float)NAN;
    assert_int_equal(rig_prepare(&r, &b), XRAY_E_NUMERIC);
    assert_non_null(strstr(r.host.reason, "row 1002: its KL"));
    make_rows(&b, 1);
    b.value[b.row_start[4] - 1] = (float)NAN;
    assert_int_equal(rig_prepare(&r, &b), XRAY_E_NUMERIC);
    assert_non_null(strstr(r.host.reason, "row 1003: its advantage"));
    make_rows(&b, 1);
    b.b.value = NULL;
    assert_int_equal(rig_prepare(&r, &b), XRAY_E_ARG);
    assert_non_null(strstr(r.host.reason, "lacks the values"));
    /* Steps that failed did not change the moments. */
    make_rows(&b, 1);
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    flow f = { .clip_score = 10 };
    padded p;
    make_rows(&b, 1);
    work_out_rewards(&f, &b, 0, &p);
    rig_near(rig_put(&r, "rollout_scores/running_mean"), f.sum / f.count, 1e-12,
             "running mean");
    rig_close(&r);
}

static void options_that_cannot_work_are_refused(void **state)
{
    static const struct {
        const char *keys[9];
        const char *says;
    } cases[] = {
        { { "lam", "-0.5" }, "lam: expected" },
        { { "clip_ratio_c", "0.5" }, "clip_ratio_c: expected" },
        { { "clip_ratio_low", "-0.5" }, "clip_ratio_low: expected" },
        { { "clip_ratio_high", "-0.5" }, "clip_ratio_high: expected" },
        { { "cliprange_value", "-0.5" }, "cliprange_value: expected" },
        { { "cliprange_reward", "-0.5" }, "cliprange_reward: expected" },
        { { "loss_scale_factor", "8" }, "loss_scale_factor: only" },
        { { "vf_coef", "0.5" }, "vf_coef: a critic" },
        { { "kl_ctrl", "adaptive" }, "kl_ctrl: adaptive needs" },
        { { "kl_ctrl", "adaptive", "use_kl_in_reward", "true", "target_kl",
            "0" },
          "target_kl: expected" },
        { { "kl_ctrl", "adaptive", "use_kl_in_reward", "true", "horizon", "0" },
          "horizon: expected" },
        { { "kl_ctrl", "adaptive", "use_kl_in_reward", "true", "kl_ctrl_update",
            "epoch" },
          "kl_ctrl_update: epoch needs" },
        { { "ref_std", "2" }, "ref_std: only" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rig r;
        assert_int_equal(rig_try(&r, cases[i].keys), XRAY_E_CONFIG);
        assert_null(r.self);
        if (!strstr(r.host.reason, cases[i].says))
            fail_msg("%s, expected %s", r.host.reason, cases[i].says);
    }
}

static void needs_follow_the_options(void **state)
{
    rig r;
    (void)state;
    rig_open(&r, NULL);
    assert_int_equal(rig_needs(&r), XRAY_NEED_CRITIC);
    rig_close(&r);
    rig_open(&r, RIG_KEYS("value_model", "policy", "entropy_coeff", "0.01"));
    assert_int_equal(rig_needs(&r), XRAY_NEED_VALUE_HEAD | XRAY_NEED_ENTROPY);
    rig_close(&r);
    rig_open(&r, RIG_KEYS("use_kl_loss", "true"));
    assert_int_equal(rig_needs(&r), XRAY_NEED_CRITIC | XRAY_NEED_REFERENCE);
    rig_close(&r);
}

/* The table of `xray algo list` names every preset. */
static void presets_are_listed(void **state)
{
    rig r;
    (void)state;
    rig_open(&r, NULL);
    const xray_algo_presets *table = r.ops->extension(NULL, XRAY_ALGO_PRESETS);
    assert_non_null(table);
    assert_null(r.ops->extension(r.self, "xray.other/0"));
    assert_int_equal(table->rows, 2);
    rig_close(&r);
    for (uint32_t i = 0; i < table->rows; i++) {
        for (uint32_t c = 0; c < table->columns; c++)
            assert_true(*table->titles[c] &&
                        *table->cells[i * table->columns + c]);
        rig_open(&r, RIG_KEYS("preset", table->cells[i * table->columns]));
        rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_returns_are_met),
        cmocka_unit_test(observations_carry_credit),
        cmocka_unit_test(trlx_flow_worked_out),
        cmocka_unit_test(verl_flow_worked_out),
        cmocka_unit_test(state_goes_into_a_checkpoint),
        cmocka_unit_test(empty_rows_and_equal_scores),
        cmocka_unit_test(values_that_are_not_finite_are_named),
        cmocka_unit_test(options_that_cannot_work_are_refused),
        cmocka_unit_test(needs_follow_the_options),
        cmocka_unit_test(presets_are_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
