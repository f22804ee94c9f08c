/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's half of GRPO and its relatives: every preset at the edges, and
 * the features that only some of them have.
 */
#include <math.h>

#include "tests/algo/grpo_rig.h"
#include "tests/algo/vectors.h"

#define near(got, want, tolerance) rig_near(got, want, tolerance, #got)

static const xray_algo_presets *get_table(void)
{
    const xray_plugin *plugin = xray_plugin_query_algo_grpo(XRAY_ABI);
    const xray_algo_ops *ops = plugin->components[0]->ops;
    assert_null(ops->extension(NULL, "xray.algo.other/0"));
    return ops->extension(NULL, XRAY_ALGO_PRESETS);
}

static const char *get_preset_name(uint32_t row)
{
    return get_table()->cells[row * get_table()->columns];
}

/* dro requires a value of dro_beta. */
static void open_preset(rig *r, uint32_t row)
{
    const char *name = get_preset_name(row);
    if (strcmp(name, "dro") == 0)
        rig_open(r, RIG_KEYS("preset", name, "dro_beta", "0.05"));
    else
        rig_open(r, RIG_KEYS("preset", name));
}

/* The table, the choices and the presets have the same names in the same
 * order. */
static void table_choices_and_presets_agree(void **state)
{
    (void)state;
    const xray_plugin *plugin = xray_plugin_query_algo_grpo(XRAY_ABI);
    const xray_option *preset = &plugin->components[0]->options[0];
    assert_string_equal(preset->name, "preset");
    uint32_t rows = 0;
    for (const xray_choice *c = preset->choices; c->name; c++, rows++) {
        assert_true(rows < get_table()->rows);
        assert_int_equal(c->value, rows);
        assert_string_equal(c->name, get_preset_name(rows));
        rig r;
        open_preset(&r, rows);
        rig_close(&r);
    }
    assert_int_equal(rows, get_table()->rows);
    for (uint32_t i = 0; i < rows * get_table()->columns; i++)
        assert_true(get_table()->cells[i] && *get_table()->cells[i]);
}

/* The numbers in the table are those of rewards 1 0 0 1 0 0 0 0. */
static void table_numbers_are_the_computed_ones(void **state)
{
    (void)state;
    static const float scores[] = { 1, 0, 0, 1, 0, 0, 0, 0 };
    uint32_t one = 0;
    while (strcmp(get_table()->titles[one], "A(1)") != 0)
        one++;
    uint32_t checked = 0;
    for (uint32_t p = 0; p < get_table()->rows; p++) {
        const char *const *cells =
            get_table()->cells + p * get_table()->columns;
        double want[2];
        if (xr_parse_real(cells[one], &want[1]) ||
            xr_parse_real(cells[one + 1], &want[0]))
            continue;
        rig r;
        rig_batch b;
        open_preset(&r, p);
        rig_batch_init(&b);
        for (int i = 0; i < 8; i++)
            (void)rig_row(&b, 2, 3, 0, scores[i]);
        assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
        for (uint32_t i = 0; i < 8; i++)
            near((double)rig_advantage(&b, i), want[scores[i] > 0], 1e-6);
        rig_close(&r);
        checked++;
    }
    assert_true(checked > 20);
}

static void maxrl_meets_its_vector(void **state)
{
    (void)state;
    cJSON *all = vectors_open();
    const cJSON *in = vector_part(all, "maxrl", "inputs");
    const cJSON *want = vector_part(all, "maxrl", "expected");
    rig r;
    rig_batch b;
    rig_open(&r, RIG_KEYS("preset", "maxrl"));
    rig_batch_init(&b);
    for (int i = 0; i < 4; i++)
        (void)rig_row(&b, 1, 2, (int32_t)vector_at(in, "group", i),
                      (float)vector_at(in, "scores", i));
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    for (int i = 0; i < 4; i++)
        near((double)rig_advantage(&b, (uint32_t)i), vector_at(want, "adv", i),
             1e-6);
    rig_close(&r);
    cJSON_Delete(all);
}

/* ---- edges of every preset ----------------------------------------------- */

/* Equal rewards give no advantage with any estimator; for remax, the greedy
 * sample must have the same score, too. */
static void equal_rewards_give_no_advantage(void **state)
{
    (void)state;
    for (uint32_t p = 0; p < get_table()->rows; p++) {
        rig r;
        rig_batch b;
        open_preset(&r, p);
        rig_batch_init(&b);
        for (int i = 0; i < 7; i++) {
            (void)rig_row(&b, 1, 2 + i, 0, 1);
            b.baseline[i] = 1;
        }
        assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
        for (uint32_t i = 0; i < b.b.tokens; i++)
            if (b.advantage[i] != 0)
                fail_msg("%s gives %g", get_preset_name(p),
                         (double)b.advantage[i]);
        rig_close(&r);
    }
}

static void check_finite(const rig_batch *b, const char *name)
{
    for (uint32_t i = 0; i < b->b.tokens; i++) {
        if (!isfinite(b->advantage[i]) || !isfinite(b->dlogp[i]))
            fail_msg("%s: token %u is not finite", name, i);
        if (b->mask[i] == 0 && (b->advantage[i] != 0 || b->dlogp[i] != 0))
            fail_msg("%s: masked token %u is touched", name, i);
    }
}

/* The batches have groups of one, rows without response, masked rows, no
 * tokens, and no rows. */
static void odd_batches_give_finite_numbers(void **state)
{
    (void)state;
    for (uint32_t p = 0; p < get_table()->rows; p++) {
        rig r;
        rig_batch b;
        rig_sums sums;
        open_preset(&r, p);
        rig_batch_init(&b);
        (void)rig_row(&b, 2, 3, 0, 2); /* alone */
        (void)rig_row(&b, 2, 0, 1, 5); /* empty */
        (void)rig_row(&b, 2, 4, 1, 1);
        (void)rig_row(&b, 1, 2, 2, 3); /* all masked */
        for (int32_t i = b.row_start[3]; i < b.row_start[4]; i++)
            b.mask[i] = 0;
        b.mask[3] = 0; /* an observation */
        rig_fill(&b, 11 + p);
        assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
        assert_int_equal(rig_loss(&r, &b, 1, 1, &sums), XRAY_OK);
        check_finite(&b, get_preset_name(p));
        memset(b.mask, 0, sizeof(b.mask)); /* zero tokens */
        assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
        assert_int_equal(rig_loss(&r, &b, 2, 1, &sums), XRAY_OK);
        check_finite(&b, get_preset_name(p));
        for (int i = 0; i < RIG_METRICS; i++)
            assert_true(sums.sum[i] == 0 && sums.weight[i] == 0);
        rig_batch_init(&b);
        assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
        rig_close(&r);
    }
}

static double compute_lone(const char *preset)
{
    rig r;
    rig_batch b;
    rig_open(&r, RIG_KEYS("preset", preset));
    rig_batch_init(&b);
    (void)rig_row(&b, 1, 3, 0, 3);
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    rig_close(&r);
    return (double)rig_advantage(&b, 0);
}

static void groups_of_one_get_their_own_rule(void **state)
{
    (void)state;
    near(compute_lone("openrlhf"), 3, 1e-6);
    near(compute_lone("open_instruct"), 3, 0);
    near(compute_lone("open_instruct_standard"), 0, 0);
    near(compute_lone("nemo_rl"), 0, 0);
    near(compute_lone("opo"), 3, 0);
    near(compute_lone("gpg"), 3, 0);
    near(compute_lone("grpo_passk"), 0, 0);
    near(compute_lone("maxrl"), 3e6, 1);
    /* Whitening three tokens of one value leaves 0. */
    near(compute_lone("reinforce_plus_plus_baseline"), 0, 0);
    near(compute_lone("reinforce_plus_plus"), 0, 0);
}

/* ---- single estimators --------------------------------------------------- */

static void prepare_two_rows(rig *r, rig_batch *b, const char *const *keys)
{
    rig_open(r, keys);
    rig_batch_init(b);
    (void)rig_row(b, 1, 2, 0, 1);
    (void)rig_row(b, 1, 4, 0, 3);
}

static void opo_weighs_by_length(void **state)
{
    (void)state;
    rig r;
    rig_batch b;
    prepare_two_rows(&r, &b, RIG_KEYS("preset", "opo"));
    b.mask[3 + 2] = 0; /* three tokens of the second are trained on */
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    double baseline = (2 * 1 + 3 * 3) / 5.0;
    near((double)rig_advantage(&b, 0), 1 - baseline, 1e-6);
    near((double)rig_advantage(&b, 1), 3 - baseline, 1e-6);
    rig_close(&r);
}

/* Returns skip an observation and are whitened over all tokens in the loss. */
static void reinforce_agrees_with_hand_calculation(void **state)
{
    (void)state;
    rig r;
    rig_batch b;
    prepare_two_rows(&r, &b,
                     RIG_KEYS("preset", "reinforce_plus_plus", "gamma", "0.5"));
    b.baseline[1] = 2; /* only remax subtracts it */
    b.mask[5] = 0;
    b.reward[5] = 9; /* on an observation: skipped, as verl does */
    static const double want[] = { 0.5, 1, 0.75, 1.5, 3 };
    double mean = 6.75 / 5;
    double squares = 0;
    for (int i = 0; i < 5; i++)
        squares += (want[i] - mean) * (want[i] - mean);
    double scale = 1 / sqrt(squares / 4 + 1e-8);
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    static const int at[] = { 1, 2, 4, 6, 7 };
    for (int i = 0; i < 5; i++) {
        near((double)b.returns[at[i]], want[i], 1e-6);
        near((double)b.advantage[at[i]], (want[i] - mean) * scale, 1e-6);
    }
    assert_true(b.advantage[5] == 0 && b.returns[5] == 0);
    assert_int_equal(rig_needs(&r), 0);
    rig_close(&r);
}

static void reinforce_baseline_agrees_with_hand_calculation(void **state)
{
    (void)state;
    rig r;
    rig_batch b;
    prepare_two_rows(&r, &b,
                     RIG_KEYS("preset", "reinforce_plus_plus_baseline"));
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    double mean = (2 * -1 + 4 * 1) / 6.0;
    double variance =
        (2 * (-1 - mean) * (-1 - mean) + 4 * (1 - mean) * (1 - mean)) / 5;
    near((double)rig_advantage(&b, 0), (-1 - mean) / sqrt(variance + 1e-8),
         1e-6);
    near((double)rig_advantage(&b, 1), (1 - mean) / sqrt(variance + 1e-8),
         1e-6);
    rig_close(&r);
}

static void remax_agrees_with_hand_calculation(void **state)
{
    (void)state;
    rig r;
    rig_batch b;
    prepare_two_rows(&r, &b, RIG_KEYS("preset", "remax"));
    b.reward[4] = 0.25f;
    b.baseline[0] = 0.5f;
    b.baseline[1] = 2;
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    near((double)b.advantage[1], 0.5, 1e-6);
    near((double)b.advantage[4], 1.25, 1e-6);
    near((double)b.advantage[7], 1, 1e-6);
    near((double)b.returns[4], 3.25, 1e-6);
    assert_int_equal(rig_needs(&r), XRAY_NEED_GREEDY);
    b.b.baseline = NULL;
    assert_int_equal(rig_prepare(&r, &b), XRAY_E_ARG);
    assert_non_null(strstr(r.host.reason, "greedy"));
    rig_close(&r);
}

static void passk_pays_only_the_best(void **state)
{
    (void)state;
    static const float scores[] = { 1, 4, 2, 0 };
    rig r;
    rig_batch b;
    rig_open(&r, RIG_KEYS("preset", "grpo_passk"));
    rig_batch_init(&b);
    for (int i = 0; i < 4; i++)
        (void)rig_row(&b, 1, 2, 0, scores[i]);
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    double deviation =
        sqrt((0.75 * 0.75 + 2.25 * 2.25 + 0.25 * 0.25 + 1.75 * 1.75) / 3);
    for (uint32_t i = 0; i < 4; i++)
        near((double)rig_advantage(&b, i), i == 1 ? 2 / (deviation + 1e-6) : 0,
             1e-6);
    rig_close(&r);
}

/* ---- dynamic sampling, shaping, controllers ------------------------------ */

static void flat_groups_are_dropped(void **state)
{
    (void)state;
    rig r;
    rig_batch b;
    uint32_t keep[4] = { 7, 7, 7, 7 };
    rig_open(&r, RIG_KEYS("preset", "dapo", "max_num_gen_batches", "2"));
    rig_batch_init(&b);
    (void)rig_row(&b, 1, 2, 0, 1);
    (void)rig_row(&b, 1, 3, 0, 1);
    (void)rig_row(&b, 1, 2, 1, 0);
    (void)rig_row(&b, 1, 2, 1, 1);
    (void)rig_row(&b, 1, 2, 2, 0);
    assert_int_equal(r.ops->accept(r.self, &b.b, 3, keep), XRAY_OK);
    assert_true(keep[0] == 0 && keep[1] == 1 && keep[2] == 1 && keep[3] == 7);
    assert_int_equal(r.ops->accept(r.self, &b.b, 3, keep), XRAY_OK);
    assert_true(keep[0] == 1); /* the second batch is the last */
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    assert_int_equal(r.ops->accept(r.self, &b.b, 3, keep), XRAY_OK);
    assert_true(keep[0] == 0);
    rig_close(&r);
    rig_open(&r, NULL);
    keep[0] = 0;
    assert_int_equal(r.ops->accept(r.self, &b.b, 3, keep), XRAY_OK);
    assert_true(keep[0] == 1 && keep[1] == 1);
    rig_close(&r);
}

static void overlong_responses_are_penalised(void **state)
{
    (void)state;
    rig r;
    rig_batch b;
    prepare_two_rows(&r, &b,
                     RIG_KEYS("preset", "dapo", "overlong_buffer_len", "2",
                              "overlong_penalty_factor", "0.5", "max_resp_len",
                              "4"));
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    near((double)b.reward[2], 1, 0);
    near((double)b.reward[7], 2.5, 1e-6);
    near(rig_put(&r, "reward/overlong_penalty"), -0.25, 1e-6);
    rig_close(&r);
}

/* The adaptive coefficient changes, is saved and is restored. */
static void adaptive_kl_coefficient_is_saved(void **state)
{
    (void)state;
    rig r;
    rig_batch b;
    const char *const *keys =
        RIG_KEYS("use_kl_in_reward", "true", "kl_coef", "0.5", "kl_ctrl",
                 "adaptive", "target_kl", "0.1", "horizon", "10");
    prepare_two_rows(&r, &b, keys);
    for (uint32_t i = 0; i < b.b.tokens; i++)
        b.ref_logp[i] = -1;
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    near(rig_put(&r, "actor/reward_kl_penalty"), 1, 1e-6);
    near(rig_put(&r, "actor/reward_kl_penalty_coeff"), 0.5, 0);
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    double next = 0.5 * (1 + 0.2 * 2 / 10);
    near(rig_put(&r, "actor/reward_kl_penalty_coeff"), next, 1e-15);
    unsigned char blob[64];
    uint64_t size = 0;
    assert_int_equal(r.ops->save(r.self, NULL, 0, &size), XRAY_E_RANGE);
    assert_true(size > 0 && size <= sizeof(blob));
    assert_int_equal(r.ops->save(r.self, blob, sizeof(blob), &size), XRAY_OK);
    rig_close(&r);
    rig_open(&r, keys);
    assert_int_equal(r.ops->load(r.self, blob, size - 1), XRAY_E_ARG);
    assert_int_equal(r.ops->load(r.self, blob, size), XRAY_OK);
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    near(rig_put(&r, "actor/reward_kl_penalty_coeff"),
         next * (1 + 0.2 * 2 / 10), 1e-15);
    rig_close(&r);
}

/* ---- rollout correction -------------------------------------------------- */

/* If all log-probabilities are equal, the metrics show no correction. */
static void equal_log_probs_are_not_corrected(void **state)
{
    (void)state;
    rig r;
    rig_batch b;
    rig_open(&r, RIG_KEYS("rollout_is", "token", "rollout_rs", "seq_mean_k1",
                          "rollout_rs_threshold", "0.999_1.001",
                          "rollout_is_batch_normalize", "true"));
    rig_batch_init(&b);
    for (int i = 0; i < 6; i++)
        (void)rig_row(&b, 1, 2 + i, i / 3, (float)(i % 2));
    rig_fill(&b, 5);
    memcpy(b.rollout_logp, b.old_logp, sizeof(b.old_logp));
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    near(rig_put(&r, "rollout_corr/exact"), 1, 0);
    near(rig_put(&r, "rollout_corr/kl"), 0, 0);
    near(rig_put(&r, "rollout_corr/k3_kl"), 0, 0);
    near(rig_put(&r, "rollout_corr/ppl_ratio"), 1, 0);
    near(rig_put(&r, "rollout_corr/rollout_is_mean"), 1, 0);
    near(rig_put(&r, "rollout_corr/rollout_is_std"), 0, 0);
    near(rig_put(&r, "rollout_corr/rollout_is_eff_sample_size"), 1, 0);
    near(rig_put(&r, "rollout_corr/rollout_rs_masked_fraction"), 0, 0);
    b.b.rollout_logp = NULL;
    assert_int_equal(rig_prepare(&r, &b), XRAY_E_ARG);
    assert_non_null(strstr(r.host.reason, "rollout_logp"));
    rig_close(&r);
}

/* A step that has more tokens than the one before, but less than twice as many,
 * is corrected like the first step of a run. */
static void longer_steps_are_corrected(void **state)
{
    (void)state;
    rig r;
    rig_batch b;
    rig_open(&r, RIG_KEYS("rollout_rs", "token_k1", "rollout_rs_threshold",
                          "0.8_1.2"));
    rig_batch_init(&b);
    for (int i = 0; i < 34; i++) {
        (void)rig_row(&b, 1, 14, i / 2, (float)(i % 2));
        rig_fill(&b, 5);
        memcpy(b.rollout_logp, b.old_logp, sizeof(b.old_logp));
        b.rollout_logp[1] += 0.5f;
        if (i != 17 && i != 33)
            continue;
        assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
        near(rig_put(&r, "rollout_corr/rollout_rs_masked_fraction"),
             1.0 / (14 * (i + 1)), 1e-9);
    }
    rig_close(&r);
}

/* One of two rows has other log-probabilities in the sampler: it gets no
 * advantage, and the numbers of the other row are those of a batch of one row.
 */
static void rejected_rows_get_no_advantage(void **state)
{
    (void)state;
    rig r;
    rig_batch b;
    rig_sums sums;
    prepare_two_rows(&r, &b,
                     RIG_KEYS("preset", "dr_grpo", "loss_agg_mode",
                              "token-mean", "rollout_rs", "seq_max_k1",
                              "rollout_rs_threshold", "1.1"));
    rig_fill(&b, 5);
    memcpy(b.rollout_logp, b.old_logp, sizeof(b.old_logp));
    b.rollout_logp[5] += 0.2f;
    b.reward[2] = 1;
    b.reward[7] = 3;
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    near(rig_put(&r, "rollout_corr/rollout_rs_masked_fraction"), 4.0 / 6, 1e-9);
    near(rig_put(&r, "rollout_corr/exact"), 5.0 / 6, 1e-9);
    near((double)b.advantage[1], -1, 1e-6);
    for (int i = 3; i < 8; i++)
        assert_true(b.advantage[i] == 0);
    memcpy(b.logp, b.old_logp, sizeof(b.logp));
    assert_int_equal(rig_loss(&r, &b, 1, 0, &sums), XRAY_OK);
    near((double)b.dlogp[1], 0.5, 1e-6); /* two tokens are left */
    for (int i = 3; i < 8; i++)
        assert_true(b.dlogp[i] == 0);
    rig_close(&r);
}

/* One of six tokens has the weight 1.5. After division by their mean, the
 * weights are 1 on average, in the metrics and in the loss. */
static void normalised_weights_are_1_on_average(void **state)
{
    (void)state;
    rig r;
    rig_batch b;
    rig_sums sums;
    const double scale = 6 / 6.5;
    prepare_two_rows(&r, &b,
                     RIG_KEYS("preset", "dr_grpo", "loss_agg_mode",
                              "token-mean", "rollout_is", "token",
                              "rollout_is_batch_normalize", "true"));
    rig_fill(&b, 5);
    memcpy(b.rollout_logp, b.old_logp, sizeof(b.old_logp));
    b.rollout_logp[5] -= (float)log(1.5);
    b.reward[2] = 1;
    b.reward[7] = 3;
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    near(rig_put(&r, "rollout_corr/rollout_is_mean"), 1, 1e-6);
    near(rig_put(&r, "rollout_corr/rollout_is_min"), scale, 1e-6);
    near(rig_put(&r, "rollout_corr/rollout_is_max"), 1.5 * scale, 1e-6);
    memcpy(b.logp, b.old_logp, sizeof(b.logp));
    assert_int_equal(rig_loss(&r, &b, 1, 0, &sums), XRAY_OK);
    near((double)b.dlogp[1], scale / 6, 1e-6);
    near((double)b.dlogp[4], -scale / 6, 1e-6);
    near((double)b.dlogp[5], -1.5 * scale / 6, 1e-6);
    rig_close(&r);
}

static void check_refusal(const char *const *keys, const char *word)
{
    rig r;
    assert_int_equal(rig_try(&r, keys), XRAY_E_CONFIG);
    if (!strstr(r.host.reason, word))
        fail_msg("'%s' does not name %s", r.host.reason, word);
}

static void combinations_that_do_not_work_are_refused(void **state)
{
    (void)state;
    check_refusal(RIG_KEYS("preset", "gspo", "loss_agg_mode", "token-mean"),
                  "loss_agg_mode");
    check_refusal(
        RIG_KEYS("loss_mode", "geo_mean", "loss_agg_mode", "token-sum"),
        "loss_agg_mode");
    check_refusal(RIG_KEYS("preset", "cispo", "clip_ratio_c", "3"),
                  "clip_ratio_c");
    check_refusal(RIG_KEYS("preset", "dro"), "dro_beta");
    check_refusal(RIG_KEYS("dro_beta", "0.1"), "dro_beta");
    check_refusal(RIG_KEYS("gamma", "0.9"), "gamma");
    check_refusal(RIG_KEYS("preset", "opo", "adv_deviation", "population"),
                  "adv_deviation");
    check_refusal(RIG_KEYS("kl_ctrl", "adaptive"), "kl_ctrl");
    check_refusal(RIG_KEYS("overlong_buffer_len", "4"), "max_resp_len");
    check_refusal(RIG_KEYS("max_resp_len", "4"), "max_resp_len");
    check_refusal(RIG_KEYS("max_num_gen_batches", "4"), "max_num_gen_batches");
    check_refusal(RIG_KEYS("rollout_is_threshold", "5_0.5"),
                  "rollout_is_threshold");
    check_refusal(RIG_KEYS("rollout_is_threshold", "much"),
                  "rollout_is_threshold");
    check_refusal(RIG_KEYS("rollout_rs_threshold", "2"),
                  "rollout_rs_threshold");
    check_refusal(
        RIG_KEYS("rollout_rs", "token_k3", "rollout_rs_threshold", "1_2"),
        "rollout_rs_threshold");
    check_refusal(RIG_KEYS("rollout_rs", "token_k1"), "rollout_rs_threshold");
    check_refusal(
        RIG_KEYS("rollout_rs", "token_k1", "rollout_rs_threshold", "0.5"),
        "rollout_rs_threshold");
    check_refusal(RIG_KEYS("preset", "clip_cov", "clip_cov_lb", "6"),
                  "clip_cov_lb");
    check_refusal(RIG_KEYS("kl_loss_coef", "-0.5"), "kl_loss_coef");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_choices_and_presets_agree),
        cmocka_unit_test(table_numbers_are_the_computed_ones),
        cmocka_unit_test(maxrl_meets_its_vector),
        cmocka_unit_test(equal_rewards_give_no_advantage),
        cmocka_unit_test(odd_batches_give_finite_numbers),
        cmocka_unit_test(groups_of_one_get_their_own_rule),
        cmocka_unit_test(opo_weighs_by_length),
        cmocka_unit_test(reinforce_agrees_with_hand_calculation),
        cmocka_unit_test(reinforce_baseline_agrees_with_hand_calculation),
        cmocka_unit_test(remax_agrees_with_hand_calculation),
        cmocka_unit_test(passk_pays_only_the_best),
        cmocka_unit_test(flat_groups_are_dropped),
        cmocka_unit_test(overlong_responses_are_penalised),
        cmocka_unit_test(adaptive_kl_coefficient_is_saved),
        cmocka_unit_test(equal_log_probs_are_not_corrected),
        cmocka_unit_test(longer_steps_are_corrected),
        cmocka_unit_test(rejected_rows_get_no_advantage),
        cmocka_unit_test(normalised_weights_are_1_on_average),
        cmocka_unit_test(combinations_that_do_not_work_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
