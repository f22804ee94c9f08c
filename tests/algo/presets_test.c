/* SPDX-License-Identifier: Apache-2.0
 *
 * The numbers of the presets: one token beyond every bound that the code or
 * scripts of a project set. docs/algorithms.md names the file in which each
 * number was read.
 */
#include <math.h>
#include <stdlib.h>

#include "plugins/algo-grpo/rule.h"
#include "tests/algo/grpo_rig.h"
#include "tests/growth.h"

#define near(got, want, tolerance) rig_near(got, want, tolerance, #got)

typedef struct number {
    const char *preset;
    double old;   /* old log-probability */
    double ratio; /* ratio of the policy to the old one */
    double advantage;
    double loss;
} number;

static double compute_gate(double tau, double ratio)
{
    return 4 / tau / (1 + exp(-tau * (ratio - 1)));
}

static void check_number(const number *n)
{
    rig r;
    rig_batch b;
    rig_sums sums;
    unsigned char marks[RIG_TOKENS];
    rig_open(&r, RIG_KEYS("preset", n->preset, "use_kl_loss", "false"));
    rig_batch_init(&b);
    (void)rig_row(&b, 1, 1, 0, 0);
    b.old_logp[1] = (float)n->old;
    b.logp[1] = (float)(n->old + log(n->ratio));
    b.advantage[1] = (float)n->advantage;
    (void)rig_marks(&r, &b, marks);
    assert_int_equal(rig_loss(&r, &b, 1, 0, &sums), XRAY_OK);
    double got = rig_metric(&r, &sums, "actor/pg_loss");
    if (!(fabs(got - n->loss) <= 2e-6 * (1 + fabs(n->loss))))
        fail_msg("%s at a ratio of %g: got %.9g, want %.9g", n->preset,
                 n->ratio, got, n->loss);
    rig_close(&r);
}

static void clips_have_the_published_bounds(void **state)
{
    (void)state;
    static const number all[] = {
        { "verl", -2, 1.5, 1, -1.2 },
        { "verl", -2, 0.5, -1, 0.8 },
        { "verl", -2, 4, -1, 3 },
        { "none", -2, 4, -1, 4 },
        { "trl", -2, 4, -1, 4 },
        { "openrlhf", -2, 1.5, 1, -1.2 },
        { "open_instruct", -2, 1.5, 1, -1.272 },
        { "open_instruct", -2, 0.5, -1, 0.8 },
        { "nemo_rl", -2, 1.5, 1, -1.2 },
        { "dapo", -2, 1.5, 1, -1.28 },
        { "dapo", -2, 0.5, -1, 0.8 },
        { "dapo", -4, 9, -1, 9 },
        { "dapo", -4, 12, -1, 10 },
        { "gspo", -2, 1.01, 1, -1.0004 },
        { "gspo", -2, 0.99, -1, 0.9997 },
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        check_number(&all[i]);
}

/* The loss is -w A logp with the new log-probability; the weight w is clipped.
 */
static void clipped_weights_have_the_published_bounds(void **state)
{
    (void)state;
    static const struct {
        const char *preset;
        double old;
        double ratio;
        double weight;
    } all[] = {
        { "cispo", -2, 1.5, 1.2 },
        { "cispo", -2, 0.1, 0.1 },
        { "cispo_trl", -4, 4.5, 4.5 },
        { "cispo_trl", -4, 7, 5 },
        { "cispo_trl", -2, 0.1, 0.1 },
        { "cispo_open_instruct", -2, 1.5, 1.272 },
        { "gpg", -2, 1.5, 1 },
        { "cispo_open_instruct", -2, 0.1, 0.1 },
        { "dppo_tv", -3, 3.9, 3.9 },
        { "dppo_tv", -2, 2, 2 },
        { "dppo_tv", -2, 2.2, 0 },
        { "dppo_kl", -2, 1.9, 1.9 },
        { "dppo_kl", -2, 2.1, 0 },
        { "dppo_tv", -9, 50, 50 },
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        number n = { all[i].preset, all[i].old, all[i].ratio, 1, 0 };
        n.loss = -all[i].weight * (n.old + log(n.ratio));
        check_number(&n);
    }
}

static void other_losses_have_the_published_numbers(void **state)
{
    (void)state;
    const number all[] = {
        { "gmpo", -2, exp(0.6), 1, -exp(0.4) },
        { "gmpo", -2, exp(-0.6), -1, exp(-0.4) },
        { "sapo", -2, 1.5, 1, -compute_gate(1, 1.5) },
        { "sapo", -2, 1.5, -1, compute_gate(1.05, 1.5) },
        /* A single token always has the largest covariance. */
        { "kl_cov", -2, 1.5, 1, -1.5 + log(1.5) },
        { "clip_cov", -2, 1.9, 1, -1.9 },
        { "clip_cov", -4, 2.5, 1, -2 },
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        check_number(&all[i]);
}

/* Both modes pick among the tokens in the loss, even where that is fewer than
 * they may pick. */
static void picks_are_tokens_of_the_loss(void **state)
{
    (void)state;
    static const char *const keys[2][5] = {
        { "preset", "kl_cov", "kl_cov_ratio", "1" },
        { "preset", "clip_cov", "clip_cov_ratio", "1" }
    };
    for (int k = 0; k < 2; k++) {
        rig r;
        rig_batch b;
        unsigned char marks[RIG_TOKENS];
        rig_open(&r, keys[k]);
        rig_batch_init(&b);
        for (int row = 0; row < 3; row++)
            (void)rig_row(&b, 2, 6, 0, 0);
        for (uint32_t i = 0; i < b.b.tokens; i++) {
            b.logp[i] = b.old_logp[i] = -1 - (float)(i % 5);
            b.advantage[i] = i % 2 ? 2 : 1.0f - 0.5f * (float)(i % 3);
            if (i % 4 == 3)
                b.mask[i] = 0;
        }
        assert_true(rig_marks(&r, &b, marks) > 0);
        for (uint32_t i = 0; i < b.b.tokens; i++)
            if (b.mask[i] == 0)
                assert_int_equal(marks[i], 0);
        rig_close(&r);
    }
}

/* The default of verl's key differs from the number in verl's script for the
 * same loss. */
static void a_loss_mode_alone_has_the_defaults_of_the_keys(void **state)
{
    (void)state;
    rig r;
    rig_batch b;
    rig_sums sums;
    unsigned char marks[RIG_TOKENS];
    rig_open(&r, RIG_KEYS("loss_mode", "kl_cov"));
    rig_batch_init(&b);
    (void)rig_row(&b, 1, 1, 0, 0);
    b.old_logp[1] = -2;
    b.logp[1] = -1;
    b.advantage[1] = 1;
    assert_int_equal(rig_marks(&r, &b, marks), 1);
    assert_int_equal(rig_loss(&r, &b, 1, 0, &sums), XRAY_OK);
    double got = rig_metric(&r, &sums, "actor/pg_loss");
    assert_true(fabs(got - (0.1 - exp(1))) < 1e-6);
    rig_close(&r);
}

/* The clip of a preset is that of its own loss: another loss has the bounds of
 * clip_ratio, unless it is given its own. */
static void another_loss_has_the_bounds_of_the_keys(void **state)
{
    (void)state;
    static const struct {
        const char *preset;
        const char *mode;
        const char *high;
        double ratio;
        double advantage;
        double loss;
    } all[] = {
        { "gspo", "vanilla", "-1", 1.5, 1, -1.2 },
        { "gspo", "vanilla", "-1", 0.5, -1, 0.8 },
        { "gspo", "vanilla", "0.3", 1.5, 1, -1.3 },
        { "cispo", "gspo", "-1", 0.5, -1, 0.8 },
        { "dapo", "gspo", "-1", 1.5, 1, -1.2 },
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        rig r;
        rig_batch b;
        rig_sums sums;
        rig_open(&r, RIG_KEYS("preset", all[i].preset, "loss_mode", all[i].mode,
                              "clip_ratio_high", all[i].high));
        rig_batch_init(&b);
        (void)rig_row(&b, 1, 1, 0, 0);
        b.logp[1] = (float)log(all[i].ratio);
        b.advantage[1] = (float)all[i].advantage;
        assert_int_equal(rig_loss(&r, &b, 1, 0, &sums), XRAY_OK);
        rig_near(rig_metric(&r, &sums, "actor/pg_loss"), all[i].loss, 1e-6,
                 all[i].preset);
        rig_close(&r);
    }
}

/* ---- gdpo ---------------------------------------------------------------- */

/* Two groups of two rows with two rewards of very different size, by hand:
 * within a group each reward contributes +-1/sqrt(2), independent of its size;
 * the sums are w0 +- w1 times that and are whitened over the batch. */
static void gdpo_normalises_each_reward_separately(void **state)
{
    (void)state;
    static const float scores[4][2] = {
        { 1, 300 }, { 0, 100 }, { 1, 7 }, { 0, 7.5f }
    };
    rig r;
    rig_batch b;
    rig_open(&r, RIG_KEYS("preset", "gdpo"));
    rig_batch_init(&b);
    for (int i = 0; i < 4; i++)
        (void)rig_row(&b, 1, 1, i / 2, scores[i][0] + scores[i][1]);
    b.b.score_count = 2;
    b.score_weight[1] = 0.5f;
    for (uint32_t i = 0; i < 4; i++) /* a step of other scores comes before */
        memcpy(b.scores + 2 * i, scores[3 - i], sizeof(scores[0]));
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    memcpy(b.scores, scores, sizeof(scores));
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    static const double part[4] = { 1.5, -1.5, 0.5, -0.5 };
    double deviation = sqrt((2 * 2.25 + 2 * 0.25) / 3);
    for (uint32_t i = 0; i < 4; i++)
        assert_true(fabs((double)rig_advantage(&b, i) - part[i] / deviation) <
                    1e-5);
    assert_true(rig_put(&r, "reward/frac_reward_zero_std") == 0);
    b.b.scores = NULL;
    assert_int_equal(rig_prepare(&r, &b), XRAY_E_ARG);
    assert_non_null(strstr(r.host.reason, "gdpo needs the score of every"));
    b.b.scores = b.scores; /* behind the end of an older batch */
    LACK_MEMBER(xray_batch, b.b, scores, LACK_ENDS);
    assert_int_equal(rig_prepare(&r, &b), XRAY_E_ARG);
    rig_close(&r);
    assert_int_equal(
        rig_try(&r, RIG_KEYS("preset", "gdpo", "use_kl_in_reward", "true")),
        XRAY_E_CONFIG);
    assert_non_null(strstr(r.host.reason, "use_kl_in_reward"));
}

/* k3 of a token five nats below the reference is exp(5) - 6. */
static void the_preset_chooses_the_kl_estimate(void **state)
{
    (void)state;
    static const struct {
        const char *preset;
        const char *type;
        double kl;
    } all[] = {
        { "none", "auto", 142.413159 },  { "nemo_rl", "auto", 10 },
        { "nemo_rl", "k3", 142.413159 }, { "none", "k3_clamped", 10 },
        { "verl", "auto", 10 },          { "nemo_rl", "k1", -5 },
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        rig r;
        rig_batch b;
        rig_sums sums;
        unsigned char marks[RIG_TOKENS];
        rig_open(&r, RIG_KEYS("preset", all[i].preset, "use_kl_loss", "true",
                              "kl_loss_type", all[i].type));
        rig_batch_init(&b);
        (void)rig_row(&b, 1, 1, 0, 0);
        b.old_logp[1] = b.logp[1] = -7;
        b.ref_logp[1] = -2;
        (void)rig_marks(&r, &b, marks);
        assert_int_equal(rig_loss(&r, &b, 1, 0, &sums), XRAY_OK);
        rig_near(rig_metric(&r, &sums, "actor/kl_loss"), all[i].kl, 1e-4,
                 all[i].preset);
        rig_close(&r);
    }
}

/* ---- the table of differences -------------------------------------------- */

/* Returns the column of a title. */
static uint32_t find_column(const char *title)
{
    uint32_t at = 0;
    while (strcmp(grpo_preset_table.titles[at], title) != 0)
        at++;
    return at;
}

/* Returns the number that a text begins with. */
static double read_number(const char *text)
{
    char *end;
    double read = strtod(text, &end);
    assert_ptr_not_equal(end, text);
    return read;
}

/* Reads the bounds of a cell: "0.2 / 0.28", "TV 0.15 / 0.15", "none / 0.2". 1
 * below means no lower bound, and "at 5" an upper bound on the ratio itself. */
static void read_bounds(const char *cell, double *low, double *high)
{
    const char *slash = strchr(cell, '/');
    const char *digit = strpbrk(cell, "0123456789");
    *low = digit && digit < slash ? read_number(digit) : 1;
    *high = read_number(strpbrk(slash, "0123456789"));
    if (strstr(slash, "at "))
        *high -= 1;
}

static void check_clip(const grpo_preset *preset, const char *cell)
{
    double low = -1;
    double high = -1;
    if (strchr(cell, '/')) {
        read_bounds(cell, &low, &high);
        /* clip_ratio is 0.2 unless the user sets it. */
        near(preset->clip_low < 0 ? 0.2 : preset->clip_low, low, 1e-12);
        near(preset->clip_high < 0 ? 0.2 : preset->clip_high, high, 1e-12);
        return;
    }
    assert_string_equal(cell, "none");
    near(preset->clip_low, -1, 0);
    near(preset->clip_high, -1, 0);
}

static int64_t find_average(const char *cell)
{
    static const struct {
        const char *cell;
        int64_t mode;
    } all[] = { { "tokens", XM_RL_TOKEN_MEAN },
                { "rows", XM_RL_SEQ_MEAN_TOKEN_MEAN },
                { "rows / length", XM_RL_SEQ_MEAN_TOKEN_SUM_NORM } };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (strcmp(cell, all[i].cell) == 0)
            return all[i].mode;
    fail_msg("the average \"%s\" has no meaning", cell);
    return -1;
}

/* Returns the loss that a cell names; the cell of the clip tells the two losses
 * of DPPO apart. */
static int64_t find_loss(const char *cell, const char *clip)
{
    static const struct {
        const char *cell;
        int64_t mode;
    } all[] = { { "PPO", GRPO_VANILLA },
                { "row ratio", GRPO_GSPO },
                { "-sg(clip) A logp", GRPO_CISPO },
                { "-A logp", GRPO_GPG },
                { "soft gate 1 / 1.05", GRPO_SAPO },
                { "PPO, picked = 0", GRPO_CLIP_COV },
                { "-A ratio, picked + |x|", GRPO_KL_COV },
                { "geometric mean", GRPO_GEO_MEAN },
                { "-A logp + beta/2 x^2", GRPO_DRO } };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (strcmp(cell, all[i].cell) == 0)
            return all[i].mode;
    assert_string_equal(cell, "-sg(min(ratio, c)) A logp");
    return *clip == 'T' ? GRPO_DPPO_TV : GRPO_DPPO_KL;
}

/* verl and SkyRL limit the log-ratio of a token to +-20; the ratios of rows,
 * which gspo and gmpo have, are limited by their clip alone. */
static int has_bounds(const grpo_preset *preset, const char *project)
{
    return (strcmp(project, "verl") == 0 || strcmp(project, "SkyRL") == 0) &&
           preset->loss_mode != GRPO_GSPO && preset->loss_mode != GRPO_GEO_MEAN;
}

/* Whoever names a preset and no more than it asks for gets its numbers; a
 * preset that leaves one open has the key's default. */
static void check_rule(const grpo_preset *preset)
{
    rig r;
    grpo_rule rule;
    rig_open(&r, preset->loss_mode == GRPO_DRO
                     ? RIG_KEYS("preset", preset->name, "dro_beta", "1")
                     : RIG_KEYS("preset", preset->name));
    assert_int_equal(
        grpo_rule_resolve(&r.host.api, (const void *)r.config, &rule), XRAY_OK);
    assert_int_equal(rule.estimator.type, preset->adv_estimator);
    assert_int_equal(rule.estimator.deviation, preset->deviation);
    near(rule.estimator.epsilon, preset->adv_epsilon, 0);
    assert_int_equal(rule.loss.mode, preset->loss_mode);
    near(rule.loss.clip.low, preset->clip_low < 0 ? 0.2 : preset->clip_low, 0);
    near(rule.loss.clip.high, preset->clip_high < 0 ? 0.2 : preset->clip_high,
         0);
    near(rule.loss.clip.dual, preset->clip_ratio_c, 0);
    near(rule.loss.clip.bound, preset->safety_bounds ? 20 : 0, 0);
    assert_int_equal(rule.loss.kl_bounded, preset->safety_bounds);
    assert_int_equal(rule.loss.agg, preset->loss_agg_mode);
    assert_int_equal(rule.loss.use_kl, preset->kl_loss_coef >= 0);
    near(rule.loss.kl_coefficient,
         preset->kl_loss_coef < 0 ? 0.001 : preset->kl_loss_coef, 0);
    assert_int_equal(rule.loss.kl_type, preset->kl_clamped
                                            ? XM_RL_KL_K3 + XM_RL_KL_CLAMPED
                                            : XM_RL_KL_K3);
    near(rule.loss.ppo_kl_coef,
         preset->ppo_kl_coef > 0 ? preset->ppo_kl_coef : 0.1, 0);
    assert_int_equal(rule.filter_groups, preset->filter_groups);
    rig_close(&r);
}

/* The defaults of docs/algorithms.md for keys that no preset sets. */
static void other_keys_have_the_defaults_of_the_page(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        rig r;
        grpo_rule rule;
        rig_open(&r, RIG_KEYS("loss_mode", k ? "clip_cov" : "kl_cov"));
        assert_int_equal(
            grpo_rule_resolve(&r.host.api, (const void *)r.config, &rule),
            XRAY_OK);
        near(rule.gamma, 1, 0);
        near(rule.loss.tau[0], 1, 0);
        near(rule.loss.tau[1], 1.05, 0);
        near(rule.loss.cov_ratio, 2e-4, 0);
        near(rule.loss.cov_low, 1, 0);
        near(rule.loss.cov_high, 5, 0);
        near(rule.loss.entropy_coeff, 0, 0);
        near(rule.loss_scale_factor, 0, 0);
        assert_false(rule.kl_reward.use);
        assert_int_equal(rule.kl_reward.type, XM_RL_KL_K1);
        near(rule.kl_reward.coefficient, 0.001, 0);
        assert_false(rule.kl_control.adaptive);
        near(rule.kl_control.target, 0.1, 0);
        near(rule.kl_control.horizon, 10000, 0);
        assert_int_equal(rule.max_rounds, 0);
        near(rule.overlong_buffer, 0, 0);
        near(rule.overlong_factor, 1, 0);
        near(rule.longest, 0, 0);
        assert_int_equal(rule.loss.correction.weight, XM_RL_IS_NONE);
        assert_int_equal(rule.loss.correction.kind, XM_RL_RS_NONE);
        near(rule.loss.correction.low, -1, 0);
        near(rule.loss.correction.high, 2, 0);
        assert_false(rule.normalise_weights);
        rig_close(&r);
    }
}

/* A user chooses a preset by the table that `xray algo list` prints. */
static void cells_are_the_numbers_in_force(void **state)
{
    (void)state;
    for (uint32_t p = 0; p < grpo_preset_count; p++) {
        const grpo_preset *preset = &grpo_presets[p];
        const char *const *cells =
            grpo_preset_table.cells + p * grpo_preset_table.columns;
        const char *dual = cells[find_column("dual clip")];
        const char *kl = cells[find_column("KL")];
        assert_string_equal(cells[0], preset->name);
        check_rule(preset);
        check_clip(preset, cells[find_column("clip")]);
        near(preset->clip_ratio_c,
             strcmp(dual, "off") == 0 ? 0 : read_number(dual), 0);
        assert_int_equal(preset->loss_agg_mode,
                         find_average(cells[find_column("average")]));
        near(preset->kl_loss_coef,
             strcmp(kl, "off") == 0 ? -1 : read_number(kl), 0);
        assert_int_equal(preset->kl_clamped, strstr(kl, "k3_clamped") != NULL);
        assert_int_equal(preset->loss_mode,
                         find_loss(cells[find_column("policy loss")],
                                   cells[find_column("clip")]));
        assert_int_equal(preset->safety_bounds,
                         has_bounds(preset, cells[find_column("project")]));
        assert_int_equal(preset->filter_groups,
                         strcmp(preset->name, "dapo") == 0);
        near(preset->ppo_kl_coef, strcmp(preset->name, "kl_cov") == 0, 0);
    }
}

/* Returns the row of a preset in the page's table, whose first cell may name
 * two. */
static const char *find_page_row(const char *page, const char *name)
{
    char quoted[40];
    const char *row = strstr(page, "| preset | source | advantage |");
    (void)snprintf(quoted, sizeof(quoted), "`%s`", name);
    assert_non_null(row);
    for (; *row == '|'; row = strchr(row, '\n') + 1) {
        const char *at = strstr(row, quoted);
        if (at && at < strchr(row + 1, '|'))
            return row;
    }
    fail_msg("the page lacks %s", name);
    return NULL;
}

/* Checks cell number `n` of a row. */
static void expect_page_cell(const char *row, int n, const char *want)
{
    char cell[80] = "";
    while (n-- > 0)
        row = strchr(row + 1, '|');
    (void)sscanf(row + 1, " %79[^|]", cell);
    for (size_t size = strlen(cell); size && cell[size - 1] == ' ';)
        cell[--size] = '\0';
    assert_string_equal(cell, want);
}

/* docs/algorithms.md has the advantages and the averages that `xray algo list`
 * prints. */
static void the_page_has_the_numbers_of_the_list(void **state)
{
    static char page[1 << 16];
    char path[4096];
    const char *source = getenv("XRAY_SOURCE");
    (void)state;
    assert_non_null(source);
    (void)snprintf(path, sizeof(path), "%s/docs/algorithms.md", source);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_true(fread(page, 1, sizeof(page) - 1, file) > 1000);
    assert_int_equal(fclose(file), 0);
    for (uint32_t p = 0; p < grpo_preset_count; p++) {
        const char *const *cells =
            grpo_preset_table.cells + p * grpo_preset_table.columns;
        const char *one = cells[find_column("A(1)")];
        const char *zero = cells[find_column("A(0)")];
        const char *average = cells[find_column("average")];
        const char *row = find_page_row(page, cells[0]);
        expect_page_cell(row, 4, strcmp(one, "batch") == 0 ? "" : one);
        expect_page_cell(row, 5, strcmp(zero, "batch") == 0 ? "" : zero);
        expect_page_cell(row, 8,
                         strcmp(average, "rows / length") == 0
                             ? "rows, over a constant"
                             : average);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_preset_chooses_the_kl_estimate),
        cmocka_unit_test(clips_have_the_published_bounds),
        cmocka_unit_test(clipped_weights_have_the_published_bounds),
        cmocka_unit_test(other_losses_have_the_published_numbers),
        cmocka_unit_test(picks_are_tokens_of_the_loss),
        cmocka_unit_test(a_loss_mode_alone_has_the_defaults_of_the_keys),
        cmocka_unit_test(another_loss_has_the_bounds_of_the_keys),
        cmocka_unit_test(gdpo_normalises_each_reward_separately),
        cmocka_unit_test(other_keys_have_the_defaults_of_the_page),
        cmocka_unit_test(cells_are_the_numbers_in_force),
        cmocka_unit_test(the_page_has_the_numbers_of_the_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
