/* SPDX-License-Identifier: Apache-2.0
 *
 * The names of the choices of GRPO's keys: each means one rule.
 */
#include "plugins/algo-grpo/rule.h"
#include "tests/algo/grpo_rig.h"

enum {
    ESTIMATOR,
    DEVIATION,
    MODE,
    AVERAGE,
    KL_LOSS,
    KL_REWARD,
    WEIGHT,
    REJECT
};

static const char *const choice_keys[] = {
    [ESTIMATOR] = "adv_estimator", [DEVIATION] = "adv_deviation",
    [MODE] = "loss_mode",          [AVERAGE] = "loss_agg_mode",
    [KL_LOSS] = "kl_loss_type",    [KL_REWARD] = "kl_penalty",
    [WEIGHT] = "rollout_is",       [REJECT] = "rollout_rs",
};

static int64_t read_choice(const grpo_rule *rule, int key)
{
    const xm_rl_correction *correction = &rule->loss.correction;
    const int64_t values[] = {
        [ESTIMATOR] = rule->estimator.type,
        [DEVIATION] = rule->estimator.deviation,
        [MODE] = rule->loss.mode,
        [AVERAGE] = rule->loss.agg,
        [KL_LOSS] = rule->loss.kl_type,
        [KL_REWARD] = rule->kl_reward.type,
        [WEIGHT] = correction->weight,
        [REJECT] = 4 * correction->level + correction->kind,
    };
    return values[key];
}

static void expect_choice(int key, const char *name, int64_t want)
{
    rig r;
    grpo_rule rule;
    const char *keys[9] = { choice_keys[key], name };
    if (key == MODE && want == GRPO_DRO) {
        keys[2] = "dro_beta";
        keys[3] = "1";
    }
    if (key == REJECT && want) {
        keys[2] = "rollout_rs_threshold";
        keys[3] = "2";
    }
    rig_open(&r, keys);
    assert_int_equal(
        grpo_rule_resolve(&r.host.api, (const void *)r.config, &rule), XRAY_OK);
    if (read_choice(&rule, key) != want)
        fail_msg("%s = %s is %d, expected %d", choice_keys[key], name,
                 (int)read_choice(&rule, key), (int)want);
    rig_close(&r);
}

#define STRAIGHT(kind) (XM_RL_KL_##kind + XM_RL_KL_STRAIGHT)
#define CLAMPED(kind) (XM_RL_KL_##kind + XM_RL_KL_CLAMPED)

/* Presets set most of them; a user may name each one alone. */
static void each_name_means_its_rule(void **state)
{
    (void)state;
    static const struct {
        int key;
        const char *name;
        int64_t value;
    } all[] = {
        { ESTIMATOR, "grpo", XM_RL_ADV_GRPO },
        { ESTIMATOR, "rloo", XM_RL_ADV_RLOO },
        { ESTIMATOR, "rloo_vectorized", XM_RL_ADV_RLOO_VECTORIZED },
        { ESTIMATOR, "grpo_passk", XM_RL_ADV_PASSK },
        { ESTIMATOR, "opo", XM_RL_ADV_OPO },
        { ESTIMATOR, "gpg", XM_RL_ADV_GPG },
        { ESTIMATOR, "maxrl", XM_RL_ADV_MAXRL },
        { ESTIMATOR, "gdpo", XM_RL_ADV_GDPO },
        { ESTIMATOR, "reinforce_plus_plus", XM_RL_ADV_REINFORCE },
        { ESTIMATOR, "reinforce_plus_plus_baseline",
          XM_RL_ADV_REINFORCE_BASELINE },
        { ESTIMATOR, "remax", XM_RL_ADV_REMAX },
        { DEVIATION, "unbiased", XM_RL_STD_UNBIASED },
        { DEVIATION, "population", XM_RL_STD_POPULATION },
        { DEVIATION, "others", XM_RL_STD_OTHERS },
        { MODE, "vanilla", GRPO_VANILLA },
        { MODE, "gspo", GRPO_GSPO },
        { MODE, "cispo", GRPO_CISPO },
        { MODE, "gpg", GRPO_GPG },
        { MODE, "sapo", GRPO_SAPO },
        { MODE, "clip_cov", GRPO_CLIP_COV },
        { MODE, "kl_cov", GRPO_KL_COV },
        { MODE, "geo_mean", GRPO_GEO_MEAN },
        { MODE, "dppo_tv", GRPO_DPPO_TV },
        { MODE, "dppo_kl", GRPO_DPPO_KL },
        { MODE, "dro", GRPO_DRO },
        { AVERAGE, "token-mean", XM_RL_TOKEN_MEAN },
        { AVERAGE, "token-sum", XM_RL_TOKEN_SUM },
        { AVERAGE, "seq-mean-token-sum", XM_RL_SEQ_MEAN_TOKEN_SUM },
        { AVERAGE, "seq-mean-token-sum-norm", XM_RL_SEQ_MEAN_TOKEN_SUM_NORM },
        { AVERAGE, "seq-mean-token-mean", XM_RL_SEQ_MEAN_TOKEN_MEAN },
        { WEIGHT, "none", XM_RL_IS_NONE },
        { WEIGHT, "token", XM_RL_IS_TOKEN },
        { WEIGHT, "sequence", XM_RL_IS_SEQUENCE },
    };
    static const struct {
        const char *name;
        int64_t value;
    } kl[] = {
        { "low_var_kl", XM_RL_KL_K3 },   { "k3", XM_RL_KL_K3 },
        { "kl", XM_RL_KL_K1 },           { "k1", XM_RL_KL_K1 },
        { "mse", XM_RL_KL_K2 },          { "k2", XM_RL_KL_K2 },
        { "abs", XM_RL_KL_ABS },         { "k1_clamped", CLAMPED(K1) },
        { "k2_clamped", CLAMPED(K2) },   { "k3_clamped", CLAMPED(K3) },
        { "low_var_kl+", STRAIGHT(K3) }, { "k3+", STRAIGHT(K3) },
        { "kl+", STRAIGHT(K1) },         { "k1+", STRAIGHT(K1) },
        { "mse+", STRAIGHT(K2) },        { "k2+", STRAIGHT(K2) },
        { "abs+", STRAIGHT(ABS) },
    };
    static const char *const levels[] = { "token", "seq_sum", "seq_mean",
                                          "seq_max" };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        expect_choice(all[i].key, all[i].name, all[i].value);
    for (size_t i = 0; i < sizeof(kl) / sizeof(kl[0]); i++) {
        expect_choice(KL_LOSS, kl[i].name, kl[i].value);
        expect_choice(KL_REWARD, kl[i].name, kl[i].value);
    }
    expect_choice(REJECT, "none", 0);
    for (int level = XM_RL_RS_TOKEN; level <= XM_RL_RS_MAX; level++)
        for (int kind = XM_RL_RS_K1; kind <= XM_RL_RS_K3; kind++) {
            char name[24];
            (void)snprintf(name, sizeof(name), "%s_k%d", levels[level], kind);
            expect_choice(REJECT, name, 4 * level + kind);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_name_means_its_rule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
