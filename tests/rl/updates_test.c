/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves a step as the plugins see it: each call of trainer, reference, critic
 * and algorithm in its order, with its arguments and results.
 */
#include "tests/growth.h"
#include "tests/rl/step_rig.h"

#include <math.h>

/* Returns the metrics except times as `name value, ...`. */
static const char *metrics_text(const xr_metrics *m)
{
    static char text[1024];
    text[0] = '\0';
    for (size_t i = 0; i < xr_metrics_count(m); i++) {
        size_t used = strlen(text);
        if (strncmp(xr_metrics_name(m, i), "timing_s/", 9) != 0)
            (void)snprintf(text + used, sizeof(text) - used, "%s%s %g",
                           used ? ", " : "", xr_metrics_name(m, i),
                           xr_metrics_value(m, i));
    }
    return text;
}

/* ---- cases -------------------------------------------------------------- */

/* Samples become rows: token scores on their tokens, the sample's score on the
 * last, everything else in its array. */
static void samples_become_rows(void **state)
{
    static const float reward[] = { 0, 0,     0.25f,       /* 0 */
                                    0, 0,     0.25f, 0.5f, /* 1 */
                                    0, 1.25f,              /* 2 */
                                    0, 0.25f, 1.5f,        /* 3 */
                                    0, 0,     2.25f,       /* 4 */
                                    0, 0,     0.25f, 2.5f };
    fixture *f = *state;
    begin_learner(f);
    const xray_batch *b = &f->learner.fresh.batch;
    assert_int_equal(b->rows, ROWS);
    assert_int_equal(b->tokens, 19);
    assert_memory_equal(b->reward, reward, sizeof(reward));
    for (uint32_t r = 0; r < ROWS; r++) {
        assert_int_equal(b->row_id[r], 4 * ROWS + r);
        assert_int_equal(b->prompt_id[r], 10 + r / N);
        assert_int_equal(b->group[r], r / N);
        assert_int_equal(b->prompt_len[r], r / N == 1 ? 1 : 2);
        assert_true(b->temperature[r] == 0.5f && b->baseline[r] == 0);
        assert_int_equal(b->spans[r].version, 30 + r);
        int32_t at = b->row_start[r] + b->prompt_len[r];
        assert_int_equal(b->ids[at], 10 * r);
        assert_true(b->rollout_logp[at] == -(float)(10 * r + 1));
    }
    /* Greedy rows have a temperature of 1, as the ABI demands; an empty
     * response has no token for its score. */
    xr_err err = { "" };
    f->run.ini.rollout.temperature = 0;
    f->samples.sizes[0] = 0;
    assert_int_equal(xr_learner_pack(&f->learner, &f->samples, rows, 4, &err),
                     XRAY_OK);
    assert_true(b->temperature[0] == 1.0f);
    assert_int_equal(b->tokens, 18);
    assert_true(b->reward[0] == 0 && b->reward[1] == 0);
}

/* Reference, critic, baselines and a choice of tokens: everything that a step
 * can have. 6 rows of 3 4 2 3 3 4 tokens, of which 1 2 1 2 1 2 are in the loss.
 */
static void a_step_calls_in_order(void **state)
{
    fixture *f = *state;
    xr_run *run = &f->run;
    xr_err err = { "" };
    add_model(f, XRAY_ROLE_REFERENCE);
    add_model(f, XRAY_ROLE_CRITIC);
    run->ini.critic.share_prompts = 1;
    run->needs = XRAY_NEED_CRITIC | XRAY_NEED_GREEDY | XRAY_NEED_MINI_FORWARD;
    begin_learner(f);
    assert_int_equal(run_step(f, 4, &err), XRAY_OK);
    assert_string_equal(
        said, "actor forward 1: shared 24 25\n"
              "actor forward 1: shared 26 27\n"
              "actor forward 1: shared 28 29\n"
              "ref forward 1: shared 24 25\n"
              "ref forward 1: shared 26 27\n"
              "ref forward 1: shared 28 29\n"
              "critic forward 4: shared 24 25 26 27 28 29\n"
              "prepare: scores 0 -1 1 -2 2 -3 3 -4 4 -5 5 -6 weights 1 0.5 "
              "ref 0 0 -1 0 values 24 24 24 24 baseline 0.5 0.5 1 1 1.5 1.5\n"
              "context of 24 25 26 27 28 29: 9 tokens, 6 rows, at most 2\n"
              "critic gradients 4: shared (24 25 26 27 28 29)\n"
              "critic step: lr 0.125 clip 7\n"
              "context of 24 25 26 27: 6 tokens, 4 rows, at most 2\n"
              "actor forward 1: 24 25\n"
              "actor forward 1: 26 27\n"
              "select 24 25 26 27: -1 -32, 4\n"
              "actor gradients 3: (24 25) (26 27)\n"
              "loss of 2 rows from 0, context c..s\n"
              "loss of 2 rows from 2, context c..s\n"
              "actor step: lr 0.25 clip 5\n"
              "context of 28 29: 3 tokens, 2 rows, at most 2\n"
              "actor forward 1: 28 29\n"
              "select 28 29: -41 -52, 4\n"
              "actor gradients 3: (28 29)\n"
              "loss of 2 rows from 0, context c..s\n"
              "actor step: lr 0.25 clip 5\n"
              "engine update 1\n");
    assert_string_equal(
        metrics_text(f->metrics),
        "training/rollout_probs_diff/mean 0, training/rollout_probs_diff/max "
        "0, training/rollout_probs_diff/min 0, algo/metric 7, critic/grad_norm "
        "4, critic/lr 0.125, actor/grad_norm 1.5, actor/lr 0.25, loss/a 3, "
        "loss/b 5");
    static const char *const times[] = { "old_log_prob",  "ref",
                                         "values",        "adv",
                                         "update_critic", "update_actor" };
    for (size_t i = 0; i < 6; i++) {
        char name[64];
        (void)snprintf(name, sizeof(name), "timing_s/%s", times[i]);
        assert_true(xr_metrics_get(f->metrics, name) >= 0);
    }
    /* Sums are those of this step only. */
    assert_int_equal(run_step(f, 5, &err), XRAY_OK);
    assert_true(xr_metrics_get(f->metrics, "loss/a") == 3);
    assert_true(xr_metrics_get(f->metrics, "actor/grad_norm") == 1.5);
    assert_true(xr_metrics_get(f->metrics, "critic/grad_norm") == 4);
}

/* A model with a value head of its own: its loss reads values, and the policy
 * computes them. */
static void a_value_head_of_the_policy_gives_values(void **state)
{
    fixture *f = *state;
    xr_err err = { "" };
    f->run.needs = XRAY_NEED_VALUE_HEAD;
    f->run.ini.actor.recompute_old_logp = 0;
    f->run.ini.actor.ppo_mini_batch_size = 0; /* all prompts */
    f->run.ini.actor.ppo_epochs = 2;
    f->run.ini.actor.share_prompts = 1;
    begin_learner(f);
    assert_int_equal(run_step(f, 1, &err), XRAY_OK);
#define EPOCH                                                           \
    "context of 24 25 26 27 28 29: 9 tokens, 6 rows, at most 2\n"       \
    "actor gradients 7: shared (24 25) shared (26 27) shared (28 29)\n" \
    "loss of 2 rows from 0, context c..c\n"                             \
    "loss of 2 rows from 2, context c..c\n"                             \
    "loss of 2 rows from 4, context c..c\n"                             \
    "actor step: lr 0.25 clip 5\n"
    assert_string_equal(
        said, "actor forward 4: shared 24 25\n"
              "actor forward 4: shared 26 27\n"
              "actor forward 4: shared 28 29\n"
              "prepare: scores 0 -1 1 -2 2 -3 3 -4 4 -5 5 -6 weights 1 0.5 "
              "values 24 24 24 24\n" EPOCH EPOCH "engine update 1\n");
    assert_true(xr_metrics_get(f->metrics, "timing_s/ref") !=
                xr_metrics_get(f->metrics, "timing_s/ref")); /* not measured */
}

/* If the contracts differ, the trainer's log-probs are the old ones, and the
 * difference of the probabilities is reported. */
static void differing_contracts_are_measured(void **state)
{
    static const float logp[] = { 1, 11, 12, 21, 31, 32, 41, 51, 52 };
    fixture *f = *state;
    xr_err err = { "" };
    double sum = 0;
    f->run.exact = 0;
    f->run.ini.actor.rollout_probs_diff_max = 1;
    offset = -0.5f;
    begin_learner(f);
    assert_int_equal(run_step(f, 1, &err), XRAY_OK);
    for (size_t i = 0; i < 9; i++)
        sum += exp(-(double)logp[i]) * (1 - exp(-0.5));
    const xr_metrics *m = f->metrics;
    assert_true(fabs(xr_metrics_get(m, "training/rollout_probs_diff/mean") -
                     sum / 9) < 1e-7);
    assert_true(fabs(xr_metrics_get(m, "training/rollout_probs_diff/max") -
                     exp(-1) * (1 - exp(-0.5))) < 1e-7);
    const xray_batch *b = &f->learner.fresh.batch;
    assert_true(b->old_logp[2] == -1.5f && b->rollout_logp[2] == -1);
    /* With the same kernels a difference is a fault, which names its token. */
    f->run.exact = 1;
    assert_int_equal(run_step(f, 1, &err), XRAY_E_NUMERIC);
    assert_string_equal(err.text,
                        "row 24 token 2: the trainer's log-prob is -1.5, the "
                        "rollout's -1; they must be equal bit for bit");
}

/* Contracts that differ may have a bound, which then stops the run. */
static void probabilities_stay_within_the_users_bound(void **state)
{
    fixture *f = *state;
    xr_err err = { "" };
    f->run.exact = 0;
    f->run.ini.actor.rollout_probs_diff_max = 0.1;
    offset = -0.5f;
    begin_learner(f);
    assert_int_equal(run_step(f, 1, &err), XRAY_E_NUMERIC);
    assert_non_null(strstr(err.text, "[actor] rollout_probs_diff_max is 0.1, "
                                     "but the trainer gives token 2 of row "));
    f->run.ini.actor.rollout_probs_diff_max = 0.5;
    assert_int_equal(run_step(f, 1, &err), XRAY_OK);
    offset = 0; /* the most that is allowed is 0 */
    f->run.ini.actor.rollout_probs_diff_max = 0;
    assert_int_equal(run_step(f, 1, &err), XRAY_OK);
}

static char logged[512];

static void note_log(void *ctx, uint32_t level, const char *instance,
                     const char *text)
{
    (void)ctx;
    (void)instance;
    if (level == XRAY_LOG_INFO)
        (void)snprintf(logged, sizeof(logged), "%s", text);
}

/* The log says at the start which comparison holds. */
static void the_log_names_the_comparison(void **state)
{
    static const xray_component other = { .header = XRAY_HEADER(xray_component),
                                          .name = "other",
                                          .numerics = "mine/3" };
    static const struct {
        int exact;
        int64_t every;
        const char *text;
    } cases[] = {
        { 1, 0, "log-probs are the same bits and are not compared" },
        { 1, 4, "log-probs are compared bit for bit every 4 steps" },
        { 0, 4, "probabilities may differ by at most 0.25" },
    };
    fixture *f = *state;
    f->run.sink = (xr_log_sink){ .write = note_log, .level = XRAY_LOG_INFO };
    f->run.ini.actor.rollout_probs_diff_max = 0.25;
    f->run.infer.component = &other;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        f->run.exact = cases[i].exact;
        f->run.ini.actor.recompute_old_logp = cases[i].every;
        if (i)
            xr_learner_free(&f->learner);
        begin_learner(f);
        assert_non_null(strstr(logged, cases[i].text));
        assert_non_null(strstr(logged, "keeps mine/3: "));
    }
}

/* A row with an empty response is part of the mini-batch, but has no loss. */
static void empty_responses_are_not_counted(void **state)
{
    fixture *f = *state;
    xr_err err = { "" };
    f->run.ini.actor.ppo_mini_batch_size = 3;
    f->samples.sizes[0] = 0;
    begin_learner(f);
    assert_int_equal(run_step(f, 1, &err), XRAY_OK);
    assert_non_null(strstr(
        said, "context of 24 25 26 27 28 29: 8 tokens, 5 rows, at most 2\n"));
}

/* Reads the rows after `call` in the log: 24 25 ... as 0 1 ... */
static void read_order(const char *call, uint32_t out[ROWS])
{
    const char *at = strstr(said, call);
    uint32_t seen = 0;
    assert_non_null(at);
    at += strlen(call);
    for (uint32_t i = 0; i < ROWS; i++) {
        at += strcspn(at, "0123456789");
        out[i] = (uint32_t)strtoul(at, (char **)(uintptr_t)&at, 10) - 24;
        seen |= 1u << out[i];
    }
    assert_int_equal(seen, (1u << ROWS) - 1);
}

/* Every order of rows can occur, including rows that stay in place. The
 * critic's order is another one, and the seed decides. */
static void shuffles_reach_every_order(void **state)
{
    uint32_t at[ROWS][ROWS] = { { 0 } };
    uint32_t order[3][ROWS];
    uint32_t other = 0;
    uint32_t reseeded = 0;
    fixture *f = *state;
    xr_err err = { "" };
    add_model(f, XRAY_ROLE_CRITIC);
    f->run.ini.actor.shuffle = 1;
    f->run.ini.critic.shuffle = 1;
    f->run.ini.actor.ppo_mini_batch_size = 0;
    begin_learner(f);
    for (uint64_t number = 1; number <= 60; number++) {
        f->run.ini.run.seed = 2;
        assert_int_equal(run_step(f, number, &err), XRAY_OK);
        read_order("\nactor gradients 3:", order[2]);
        f->run.ini.run.seed = 1;
        assert_int_equal(run_step(f, number, &err), XRAY_OK);
        read_order("\nactor gradients 3:", order[0]);
        read_order("\ncritic gradients 4:", order[1]);
        other += memcmp(order[0], order[1], sizeof(order[0])) != 0;
        reseeded += memcmp(order[0], order[2], sizeof(order[0])) != 0;
        for (uint32_t i = 0; i < ROWS; i++)
            at[i][order[0][i]]++;
    }
    assert_true(other > 50 && reseeded > 50);
    for (uint32_t i = 0; i < ROWS; i++) /* 10 of each are expected */
        for (uint32_t r = 0; r < ROWS; r++)
            assert_in_range(at[i][r], 2, 22);
}

/* During its warm-up the critic learns alone, and no longer. */
static void a_warm_up_leaves_the_policy_alone(void **state)
{
    fixture *f = *state;
    xr_err err = { "" };
    add_model(f, XRAY_ROLE_CRITIC);
    f->run.ini.trainer.critic_warmup = 3;
    begin_learner(f);
    for (uint64_t number = 2; number <= 3; number++) {
        assert_int_equal(run_step(f, number, &err), XRAY_OK);
        assert_non_null(strstr(said, "critic step"));
        assert_int_equal(strstr(said, "actor step") != NULL, number == 3);
        assert_int_equal(strstr(said, "engine update") != NULL, number == 3);
    }
}

/* Updates that were left out are counted by the model that they were of. */
static void skipped_updates_are_counted_by_model(void **state)
{
    static const char *const models[] = { "actor", "critic" };
    fixture *f = *state;
    xr_err err = { "" };
    add_model(f, XRAY_ROLE_CRITIC);
    f->run.ini.trainer.on_nonfinite = XR_NONFINITE_SKIP;
    begin_learner(f);
    for (int i = 0; i < 2; i++) {
        skipped = models[i];
        assert_int_equal(run_step(f, 4, &err), XRAY_OK);
        assert_true(xr_metrics_get(f->metrics, i ? "critic/skipped_updates"
                                                 : "actor/skipped_updates") ==
                    (i ? 1 : 2));
        assert_true(
            isnan(xr_metrics_get(f->metrics, i ? "actor/skipped_updates"
                                               : "critic/skipped_updates")));
        assert_true(isnan(xr_metrics_get(f->metrics, i ? "critic/grad_norm"
                                                       : "actor/grad_norm")));
    }
}

/* A context that needs more memory gets it once, and the next one has it
 * already. */
static void contexts_get_the_space_they_need(void **state)
{
    fixture *f = *state;
    xr_err err = { "" };
    f->run.ini.actor.ppo_mini_batch_size = 0;
    begin_learner(f);
    context_size = 4096;
    assert_int_equal(run_step(f, 1, &err), XRAY_OK);
    assert_int_equal(contexts, 1);
    context_size = 4097;
    assert_int_equal(run_step(f, 2, &err), XRAY_OK);
    assert_int_equal(contexts, 3);
    assert_int_equal(f->learner.context_cap, 4097);
    assert_int_equal(run_step(f, 3, &err), XRAY_OK);
    assert_int_equal(contexts, 4);
}

/* Each call that fails ends the step, and the error names it. */
static void failures_end_the_step(void **state)
{
    static const struct {
        const char *call;
        const char *says;
        const char *last; /* the last call in the log */
    } cases[] = {
        { "actor", "actor: actor: forward failed with status -101",
          "actor forward 1: shared 24 25\n" },
        { "ref", "reference: ref: forward failed with status -101",
          "ref forward 1: shared 24 25\n" },
        { "critic", "critic: critic: forward failed with status -101",
          "critic forward 4: shared 24 25 26 27 28 29\n" },
        { "prepare", "algo: prepare failed with status -101", NULL },
        { "context", "algo: context failed with status -101",
          "context of 24 25 26 27 28 29: 9 tokens, 6 rows, at most 2\n" },
        { "select", "algo: select failed with status -101",
          "select 24 25 26 27: -1 -32, 4\n" },
        { "loss", "actor: algo: loss failed with status -101",
          "loss of 2 rows from 0, context c..s\n" },
        { "gradients",
          "critic: critic: forward_backward failed with status "
          "-101",
          "critic gradients 4: (24 25 26 27 28 29)\n" },
        { "step", "critic: critic: optimizer_step failed with status -101",
          "critic step: lr 0.125 clip 7\n" },
    };
    fixture *f = *state;
    xr_run *run = &f->run;
    add_model(f, XRAY_ROLE_REFERENCE);
    add_model(f, XRAY_ROLE_CRITIC);
    run->needs = XRAY_NEED_CRITIC | XRAY_NEED_MINI_FORWARD;
    begin_learner(f);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        xr_err err = { "" };
        failing = cases[i].call;
        assert_int_equal(run_step(f, 1, &err), XRAY_E_RANGE);
        if (strncmp(err.text, cases[i].says, strlen(cases[i].says)) != 0)
            fail_msg("%s: %s", failing, err.text);
        size_t size = strlen(said);
        size_t tail = cases[i].last ? strlen(cases[i].last) : 0;
        assert_string_equal(said + size - tail,
                            cases[i].last ? cases[i].last : "");
    }
}

/* Tokens are chosen by log-probabilities that are checked. */
static void no_tokens_are_chosen_by_bad_values(void **state)
{
    fixture *f = *state;
    xr_err err = { "" };
    f->run.exact = 1; /* so that no other pass comes before */
    f->run.ini.actor.recompute_old_logp = 0;
    f->run.needs = XRAY_NEED_MINI_FORWARD;
    begin_learner(f);
    offset = NAN;
    assert_int_equal(run_step(f, 1, &err), XRAY_E_NUMERIC);
    assert_non_null(strstr(err.text, "actor gave the log-prob nan"));
    assert_int_equal(f->roles.nonfinite, 1);
    assert_non_null(strstr(said, "context of"));
    assert_null(strstr(said, "select"));
}

/* The results of `prepare` are checked where they are trained on. */
static void prepared_values_are_checked(void **state)
{
    static const struct {
        const char *spoilt;
        xray_status status;
        int bad;
        const char *says;
    } cases[] = {
        { "advantage", XRAY_E_NUMERIC, 1,
          "algo gave the advantage inf for token 3 of row 25 (prompt 10), "
          "expected a finite number" },
        { "return", XRAY_OK, 0, "" }, /* without values nothing reads them */
        { "metric", XRAY_E_BUG, 0,
          "algo: prepare put a metric without a "
          "name" },
        { "return", XRAY_E_NUMERIC, 1,
          "algo gave the return inf for token 3 of row 25 (prompt 10), "
          "expected a finite number" },
    };
    fixture *f = *state;
    begin_learner(f);
    for (size_t i = 0; i < 4; i++) {
        xr_err err = { "" };
        spoilt = cases[i].spoilt;
        f->roles.nonfinite = 0;
        if (i == 3)
            add_model(f, XRAY_ROLE_CRITIC);
        xray_status status = run_step(f, 1, &err);
        if (*spoilt == 'm')
            assert_int_equal(status, XRAY_E_BUG);
        assert_string_equal(err.text, cases[i].says);
        assert_int_equal(status, cases[i].status);
        assert_int_equal(f->roles.nonfinite, cases[i].bad);
        assert_int_equal(strstr(said, "context") != NULL, status == XRAY_OK);
    }
}

/* Kept groups keep the scores of each reward. At first all are kept, and those
 * beyond the wanted number are dropped. */
static void kept_groups_keep_their_scores(void **state)
{
    fixture *f = *state;
    xr_err err = { "" };
    const xr_rates rates = { 1, 1 };
    uint32_t groups = 0;
    begin_learner(f);
    assert_int_equal(xr_learner_accept(&f->learner, 3, &groups, &err), XRAY_OK);
    assert_string_equal(said, "accept 6 of 3 groups 1 1 1\n");
    assert_int_equal(groups, 2);
    assert_int_equal(xr_learner_accept(&f->learner, 3, &groups, &err), XRAY_OK);
    assert_int_equal(groups, 3);
    said[0] = '\0';
    assert_int_equal(
        xr_learner_step(&f->learner, &f->learner.rows, 1, &rates, &err),
        XRAY_OK);
    assert_non_null(strstr(said, "scores 2 -3 3 -4 4 -5 5 -6 2 -3 3 -4 "
                                 "weights 1 0.5\n"));
    failing = "accept";
    assert_int_equal(xr_learner_accept(&f->learner, 3, &groups, &err),
                     XRAY_E_RANGE);
    assert_string_equal(err.text, "algo: accept failed with status -101 (size "
                                  "or value out of range)");
}

/* All metrics are passed on, however many there are. */
static void metrics_are_all_observed(void **state)
{
    fixture *f = *state;
    xr_err err = { "" };
    begin_learner(f);
    for (int i = 0; i < 300; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "m/%d", i);
        xr_metrics_put(f->metrics, name, i);
        if (i != 0 && i != 66 && i != 299)
            continue;
        char want[80];
        (void)snprintf(want, sizeof(want), "observe m/0 0 .. m/%d %d of %d\n",
                       i, i, i + 1);
        said[0] = '\0';
        assert_int_equal(xr_learner_observe(&f->learner, &err), XRAY_OK);
        assert_string_equal(said, want);
    }
    const void *ops = f->run.algo.ops;
    for (int way = 0; way < LACK_WAYS; way++) {
        xray_algo_ops blind;
        memcpy(&blind, ops, sizeof(blind));
        LACK_MEMBER(xray_algo_ops, blind, observe, way);
        f->run.algo.ops = &blind;
        said[0] = '\0';
        assert_int_equal(xr_learner_observe(&f->learner, &err), XRAY_OK);
        assert_string_equal(said, "");
    }
    f->run.algo.ops = ops;
    failing = "observe";
    assert_int_equal(xr_learner_observe(&f->learner, &err), XRAY_E_RANGE);
    assert_string_equal(err.text, "algo: observe failed with status -101 (size "
                                  "or value out of range)");
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(samples_become_rows),
        CASE(a_step_calls_in_order),
        CASE(a_value_head_of_the_policy_gives_values),
        CASE(differing_contracts_are_measured),
        CASE(probabilities_stay_within_the_users_bound),
        CASE(the_log_names_the_comparison),
        CASE(empty_responses_are_not_counted),
        CASE(shuffles_reach_every_order),
        CASE(a_warm_up_leaves_the_policy_alone),
        CASE(skipped_updates_are_counted_by_model),
        CASE(contexts_get_the_space_they_need),
        CASE(failures_end_the_step),
        CASE(no_tokens_are_chosen_by_bad_values),
        CASE(prepared_values_are_checked),
        CASE(kept_groups_keep_their_scores),
        CASE(metrics_are_all_observed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
