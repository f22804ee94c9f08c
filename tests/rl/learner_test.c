/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves what the learner refuses, what it keeps and in which order it calls
 * its plugins, which are made for the test.
 */
#include "tests/forward.h"
#include "tests/testing.h"

#include <math.h>

#include "core/rl/learner.h"
#include "tests/rl/fake_roles.h"

#define PROMPTS 4
#define N 2
#define ROWS (PROMPTS * N)
#define RESPONSE 3
#define VOCAB 8

/* ---- plugins ------------------------------------------------------------ */

static struct {
    float offset; /* difference of the trainer's log-probs from the rollout's */
    uint32_t skip; /* so many updates report a bad gradient */
    uint64_t version;
    uint64_t told;       /* version that the engine received */
    uint32_t batches;    /* micro-batches of the last forward_backward */
    uint32_t rows;       /* rows in these micro-batches */
    double tokens;       /* totals of the last context */
    uint32_t greedy;     /* 1: the algorithm received baselines */
    uint32_t values;     /* 1: ... and values */
    uint32_t updates[2]; /* updates of the policy, and of the critic */
    uint32_t shown[2];   /* rows in these updates */
    double rates[2];
    double norms[2];
    uint32_t bad_value; /* 1: the critic gives a NaN */
    uint32_t observed;
} fake;

/* Identifies a fake instance: the policy, or its critic. */
static int critic_self;

static xray_status forward_batch(void *self, const xray_batch *batch,
                                 uint32_t outputs, xray_outputs *out)
{
    if (self == &critic_self) {
        assert_int_equal(outputs, XRAY_OUTPUT_VALUE);
        for (uint32_t t = 0; t < batch->tokens; t++)
            out->value[t] = fake.bad_value ? (float)NAN : 0.5f;
        return XRAY_OK;
    }
    assert_int_equal(outputs, XRAY_OUTPUT_LOGP);
    for (uint32_t t = 0; t < batch->tokens; t++)
        out->logp[t] = batch->loss_mask[t] != 0
                           ? batch->rollout_logp[t] + fake.offset
                           : 0.0f;
    return XRAY_OK;
}

FORWARD_EACH(train_forward, forward_batch)

static xray_status train_gradients(void *self, const xray_batch *const *batches,
                                   uint32_t count, const xray_loss *loss)
{
    float zero[64] = { 0 };
    float out[64] = { 0 };
    int critic = self == &critic_self;
    assert_int_equal(loss->outputs,
                     critic ? XRAY_OUTPUT_VALUE
                            : XRAY_OUTPUT_LOGP | XRAY_OUTPUT_ENTROPY);
    fake.updates[critic]++;
    fake.batches = count;
    fake.rows = 0;
    for (uint32_t i = 0; i < count; i++) {
        xray_loss_call call = { .header = XRAY_HEADER(xray_loss_call),
                                .batch = batches[i],
                                .value = critic ? zero : NULL,
                                .dvalue = critic ? out : NULL };
        if (!critic) {
            call.logp = call.entropy = zero;
            call.dlogp = call.dentropy = out;
        }
        fake.rows += batches[i]->rows;
        fake.shown[critic] += batches[i]->rows;
        if (loss->fn(loss->ctx, &call) != XRAY_OK)
            return XRAY_E_BUG;
    }
    return XRAY_OK;
}

static xray_status train_step(void *self, double lr, double max_norm,
                              xray_step_result *out)
{
    int critic = self == &critic_self;
    fake.rates[critic] = lr;
    fake.norms[critic] = max_norm;
    int bad = !critic && fake.skip > 0;
    out->grad_norm = critic ? 3 : bad ? 9 : 2;
    out->skipped = (uint32_t)bad;
    out->bad_tensor = bad ? "model.norm.weight" : NULL;
    fake.skip -= (uint32_t)bad;
    fake.version += !critic && !bad;
    return XRAY_OK;
}

static uint64_t weights_version(void *owner)
{
    (void)owner;
    return fake.version;
}

static const xray_weights *train_weights(void *self)
{
    static const xray_weights weights = { .header = XRAY_HEADER(xray_weights),
                                          .version = weights_version };
    (void)self;
    return &weights;
}

static xray_status infer_update(void *self, const xray_weights *from,
                                uint64_t number)
{
    (void)self;
    assert_null(from);
    fake.told = number;
    return XRAY_OK;
}

static xray_status algo_prepare(void *self, xray_batch *batch,
                                const xray_metric_sink *metrics)
{
    (void)self;
    assert_null(batch->ref_logp); /* there is no reference */
    fake.greedy = batch->baseline != NULL;
    fake.values = batch->value != NULL;
    for (uint32_t t = 0; fake.values && t < batch->tokens; t++)
        assert_true(batch->value[t] == 0.5f);
    for (uint32_t r = 0; fake.greedy && r < batch->rows; r++)
        assert_true(batch->baseline[r] ==
                    (float)(batch->prompt_id[r] - 10) / 4);
    metrics->put(metrics->ctx, "fake/rows", batch->rows);
    return XRAY_OK;
}

static xray_status algo_context(void *self, const xray_batch *mini,
                                const xray_totals *totals, void *out,
                                uint64_t cap, uint64_t *out_size)
{
    (void)self;
    (void)mini;
    fake.tokens = totals->tokens;
    *out_size = 5000; /* more than the learner's first capacity */
    if (cap < *out_size)
        return XRAY_E_RANGE;
    memset(out, 7, 5000);
    return XRAY_OK;
}

static const char *const *algo_names(void *self)
{
    (void)self;
    static const char *const names[] = { "fake/tokens", "fake/values", NULL };
    return names;
}

static xray_status algo_loss(const void *context, uint64_t size,
                             const xray_loss_call *call, xray_metric_sums *sums)
{
    assert_int_equal(size, 5000);
    assert_int_equal(((const unsigned char *)context)[4999], 7);
    for (uint32_t t = 0; t < call->batch->tokens; t++) {
        sums->sum[0] += (double)call->batch->loss_mask[t];
        sums->weight[0] = 1;
    }
    return XRAY_OK;
}

static xray_status algo_critic_loss(const void *context, uint64_t size,
                                    const xray_loss_call *call,
                                    xray_metric_sums *sums)
{
    (void)context;
    assert_int_equal(size, 5000);
    assert_null(call->logp);
    for (uint32_t t = 0; t < call->batch->tokens; t++) {
        sums->sum[1] += (double)call->batch->loss_mask[t];
        sums->weight[1] = 1;
    }
    return XRAY_OK;
}

static xray_status algo_observe(void *self, const char *const *names,
                                const double *values, uint64_t count)
{
    (void)self;
    for (uint64_t i = 0; i < count; i++)
        fake.observed +=
            strcmp(names[i], "fake/rows") == 0 && values[i] == (double)ROWS;
    return XRAY_OK;
}

/* Keeps the groups whose first row scored 1. */
static xray_status algo_accept(void *self, const xray_batch *batch,
                               uint32_t groups, uint32_t *keep)
{
    (void)self;
    for (uint32_t g = 0; g < groups; g++)
        keep[g] = 0;
    for (uint32_t r = 0; r < batch->rows; r += N)
        keep[batch->group[r]] =
            batch->reward[batch->row_start[r + 1] - 1] == 1.0f;
    return XRAY_OK;
}

static const xray_train_ops train_ops = {
    .header = XRAY_HEADER(xray_train_ops),
    .weights = train_weights,
    .forward = train_forward,
    .forward_backward = train_gradients,
    .optimizer_step = train_step,
};
static const xray_infer_ops infer_ops = { .header = XRAY_HEADER(xray_infer_ops),
                                          .update = infer_update };
static const xray_algo_ops algo_ops = {
    .header = XRAY_HEADER(xray_algo_ops),
    .prepare = algo_prepare,
    .context = algo_context,
    .metric_names = algo_names,
    .loss = algo_loss,
    .accept = algo_accept,
    .observe = algo_observe,
    .critic_loss = algo_critic_loss,
};

/* ---- fixture ------------------------------------------------------------ */

typedef struct fixture {
    xr_run run;
    xr_roles roles;
    xr_metrics *metrics;
    xr_samples samples;
    xr_row data[PROMPTS];
    const xr_row *rows[PROMPTS];
    xr_learner learner;
} fixture;

static void put_part(xr_part *part, const void *ops, const char *name)
{
    *part = (xr_part){ .ops = ops, .host = xr_host_new(name, NULL) };
    assert_non_null(part->host);
    part->instance = name;
}

static int set_up(void **state)
{
    static const int32_t ids[] = { 1, 2 };
    xr_err err = { "" };
    fixture *f = calloc(1, sizeof(*f));
    memset(&fake, 0, sizeof(fake));
    xr_run_config *ini = &f->run.ini;
    ini->data.train_batch_size = PROMPTS;
    ini->data.max_prompt_length = 2;
    ini->data.max_response_length = RESPONSE;
    ini->rollout.n = N;
    ini->rollout.temperature = 1;
    ini->actor.ppo_mini_batch_size = 2;
    ini->actor.ppo_epochs = 1;
    ini->actor.recompute_old_logp = 1;
    f->run.exact = 1;
    f->run.actor.load.tokens = 12;
    put_part(&f->run.train, &train_ops, "train.fake");
    put_part(&f->run.infer, &infer_ops, "infer.fake");
    put_part(&f->run.algo, &algo_ops, "algo.fake");
    make_fake_roles(&f->run, &f->roles);
    f->metrics = xr_metrics_new();
    assert_int_equal(xr_samples_init(&f->samples, ROWS, RESPONSE, &err), 0);
    f->samples.count = ROWS;
    f->samples.n = N;
    for (uint32_t i = 0; i < ROWS; i++) {
        f->samples.sizes[i] = 1 + i % RESPONSE;
        f->samples.scores[i].score = (i / N) % 2;
        for (uint32_t t = 0; t < RESPONSE; t++) {
            f->samples.tokens[i * RESPONSE + t] = (int32_t)((i + t) % VOCAB);
            f->samples.logp[i * RESPONSE + t] = -0.25f * (float)(1 + i + t);
        }
    }
    for (uint32_t i = 0; i < PROMPTS; i++) {
        f->data[i] = (xr_row){
            .id = 10 + i, .ids = ids, .id_count = 2, .prompt_count = 2
        };
        f->rows[i] = &f->data[i];
    }
    assert_int_equal(xr_learner_init(&f->learner, &f->roles, f->metrics, &err),
                     0);
    assert_int_equal(xr_rows_init(&f->learner.ordered, ROWS, 64, &err), 0);
    assert_int_equal(
        xr_learner_pack(&f->learner, &f->samples, f->rows, 1, &err), 0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    xr_learner_free(&f->learner);
    xr_samples_free(&f->samples);
    xr_metrics_free(f->metrics);
    xr_host_free(f->run.train.host);
    xr_host_free(f->run.infer.host);
    xr_host_free(f->run.algo.host);
    free(f);
    return 0;
}

static const xr_rates rates = { 0.1, 0.2 };

/* Performs a step on the fresh rows. */
static void learn(fixture *f, uint64_t step)
{
    xr_err err = { "" };
    assert_int_equal(
        xr_learner_step(&f->learner, &f->learner.fresh, step, &rates, &err), 0);
    expect_values(f->metrics);
}

/* ---- tests -------------------------------------------------------------- */

static void a_step_updates_by_mini_batch_and_tells_the_engine(void **state)
{
    fixture *f = *state;
    learn(f, 1);
    /* 4 prompts in mini-batches of 2: two updates, each of 4 rows in
     * micro-batches of at most 12 tokens. */
    assert_int_equal(fake.version, 2);
    assert_int_equal(fake.told, 2);
    assert_int_equal(fake.rows, 4);
    assert_int_equal(fake.batches, 2);
    assert_true(fake.tokens == 2 + 3 + 1 + 2); /* rows 4 to 7 */
    assert_true(xr_metrics_get(f->metrics, "actor/grad_norm") == 2);
    assert_true(xr_metrics_get(f->metrics, "fake/rows") == ROWS);
    assert_true(xr_metrics_get(f->metrics, "fake/tokens") == 15);
    assert_true(xr_metrics_get(f->metrics, "training/rollout_probs_diff/max") ==
                0);
}

static void a_differing_bit_stops_an_exact_run(void **state)
{
    fixture *f = *state;
    xr_err err = { "" };
    fake.offset = 1e-6f;
    assert_int_equal(
        xr_learner_step(&f->learner, &f->learner.fresh, 1, &rates, &err),
        XRAY_E_NUMERIC);
    assert_non_null(strstr(err.text, "must be equal bit for bit"));
    assert_non_null(strstr(err.text, "row 8 token 2:"));
    assert_int_equal(fake.version, 0);
}

/* recompute_old_logp = k: every k-th step is compared, beginning with the
 * first. */
static void log_probs_are_compared_every_so_often(void **state)
{
    static const xray_status compared[] = { XRAY_E_NUMERIC, XRAY_OK, XRAY_OK,
                                            XRAY_E_NUMERIC, XRAY_OK };
    fixture *f = *state;
    f->run.ini.actor.recompute_old_logp = 3;
    fake.offset = 1e-6f;
    for (uint64_t step = 1; step <= 5; step++) {
        xr_err err = { "" };
        assert_int_equal(
            xr_learner_step(&f->learner, &f->learner.fresh, step, &rates, &err),
            compared[step - 1]);
    }
}

static void other_contracts_train_on_recomputed_log_probs(void **state)
{
    fixture *f = *state;
    f->run.exact = 0;
    f->run.ini.actor.rollout_probs_diff_max = 1;
    f->run.ini.actor.recompute_old_logp = 0;
    fake.offset = -0.5f;
    learn(f, 1);
    const xray_batch *b = &f->learner.fresh.batch;
    assert_true(b->old_logp[2] == b->rollout_logp[2] - 0.5f);
    assert_true(xr_metrics_get(f->metrics, "training/rollout_probs_diff/max") >
                0.1);
}

/* A bad gradient ends the run, unless the INI tells to continue. */
static void a_bad_gradient_stops_the_run(void **state)
{
    fixture *f = *state;
    xr_err err = { "" };
    fake.skip = 1;
    assert_int_equal(
        xr_learner_step(&f->learner, &f->learner.fresh, 1, &rates, &err),
        XRAY_E_NUMERIC);
    assert_string_equal(err.text, "train.fake gave the gradient norm 9, first "
                                  "in tensor model.norm.weight");
    assert_int_equal(f->roles.nonfinite, 1);
}

/* The norm is the mean over the updates that were made. */
static void skipped_updates_are_counted(void **state)
{
    fixture *f = *state;
    f->run.ini.trainer.on_nonfinite = XR_NONFINITE_SKIP;
    for (uint32_t n = 2; n > 0; n--) {
        fake.skip = n;
        xr_metrics_clear(f->metrics);
        learn(f, 1);
        assert_true(xr_metrics_get(f->metrics, "actor/skipped_updates") == n);
        assert_int_equal(fake.told, 2 - n);
    }
    assert_true(xr_metrics_get(f->metrics, "actor/grad_norm") == 2);
}

static void rejected_groups_are_dropped_and_refilled(void **state)
{
    fixture *f = *state;
    xr_err err = { "" };
    uint32_t groups = 0;
    assert_int_equal(xr_learner_accept(&f->learner, PROMPTS, &groups, &err), 0);
    assert_int_equal(groups, 2); /* groups 1 and 3 scored */
    assert_int_equal(xr_learner_accept(&f->learner, 3, &groups, &err), 0);
    assert_int_equal(groups, 3);
    const xray_batch *b = &f->learner.rows.batch;
    assert_int_equal(b->rows, 3 * N);
    const int32_t group[] = { 0, 0, 1, 1, 2, 2 };
    const uint64_t prompt[] = { 11, 11, 13, 13, 11, 11 };
    for (int r = 0; r < 3 * N; r++) {
        assert_int_equal(b->group[r], group[r]);
        assert_int_equal(b->prompt_id[r], prompt[r]);
    }
}

/* Every row has the baseline of its prompt, even after groups were filtered. */
static void baselines_stay_with_their_prompts(void **state)
{
    fixture *f = *state;
    xr_err err = { "" };
    uint32_t groups = 0;
    xr_learner *learner = &f->learner;
    assert_int_equal(xr_learner_step(learner, &learner->fresh, 1, &rates, &err),
                     0);
    assert_int_equal(fake.greedy, 0);
    learner->baseline = calloc(PROMPTS, sizeof(float));
    assert_non_null(learner->baseline);
    for (uint32_t i = 0; i < PROMPTS; i++)
        learner->baseline[i] = (float)i / 4;
    assert_int_equal(xr_learner_pack(learner, &f->samples, f->rows, 1, &err),
                     0);
    assert_int_equal(xr_learner_step(learner, &learner->fresh, 2, &rates, &err),
                     0);
    assert_int_equal(fake.greedy, 1);
    assert_int_equal(xr_learner_accept(learner, PROMPTS, &groups, &err), 0);
    assert_int_equal(groups, 2);
    assert_int_equal(xr_learner_step(learner, &learner->rows, 3, &rates, &err),
                     0);
}

static void add_critic(fixture *f)
{
    xr_run_config *ini = &f->run.ini;
    f->run.needs = XRAY_NEED_CRITIC;
    f->roles.named[XRAY_ROLE_CRITIC] = f->run.train;
    f->roles.named[XRAY_ROLE_CRITIC].instance = "critic";
    f->roles.critic.self = &critic_self;
    f->run.critic.load.tokens = 5;
    ini->critic.ppo_mini_batch_size = 1;
    ini->critic.ppo_epochs = 2;
    ini->critic.grad_clip = 7;
    ini->actor.grad_clip = 5;
}

/* Values are computed before prepare, and the critic is updated before the
 * policy, each with its own cut, rate and clipping. During the warm-up the
 * policy is not updated. */
static void a_critic_learns_beside_the_policy(void **state)
{
    fixture *f = *state;
    xr_err err = { "" };
    xr_learner *learner = &f->learner;
    add_critic(f);
    f->run.ini.trainer.critic_warmup = 2;
    learn(f, 1);
    assert_int_equal(fake.values, 1);
    assert_int_equal(fake.updates[0], 0);
    assert_int_equal(fake.updates[1], 2 * PROMPTS);
    assert_int_equal(fake.shown[1], 2 * ROWS);
    assert_int_equal(fake.batches, 2); /* of the last two rows, 5 tokens each */
    assert_true(isnan(xr_metrics_get(f->metrics, "actor/lr")));
    assert_true(xr_metrics_get(f->metrics, "fake/values") == 30);
    assert_true(isnan(xr_metrics_get(f->metrics, "fake/tokens")));
    f->run.ini.critic.shuffle = 1; /* the policy's rows stay in order */
    learn(f, 2);
    assert_int_equal(learner->ordered.batch.rows, ROWS);
    assert_int_equal(fake.updates[0], 2);
    assert_true(fake.rates[0] == 0.1 && fake.rates[1] == 0.2);
    assert_true(fake.norms[0] == 5 && fake.norms[1] == 7);
    assert_true(xr_metrics_get(f->metrics, "critic/grad_norm") == 3);
    assert_true(xr_metrics_get(f->metrics, "actor/grad_norm") == 2);
    assert_true(xr_metrics_get(f->metrics, "critic/lr") == 0.2);
    assert_int_equal(xr_learner_observe(learner, &err), 0);
    assert_int_equal(fake.observed, 1);
}

static void a_bad_value_is_named(void **state)
{
    fixture *f = *state;
    xr_err err = { "" };
    add_critic(f);
    fake.bad_value = 1;
    assert_int_equal(
        xr_learner_step(&f->learner, &f->learner.fresh, 1, &rates, &err),
        XRAY_E_NUMERIC);
    if (!strstr(err.text, "critic gave the value") ||
        !strstr(err.text, "token 2 of row 8"))
        fail_msg("%s", err.text);
    assert_int_equal(f->roles.nonfinite, 1);
    assert_int_equal(fake.updates[0] + fake.updates[1], 0);
}

static void shuffling_keeps_the_rows(void **state)
{
    fixture *f = *state;
    f->run.ini.actor.shuffle = 1;
    learn(f, 1);
    uint64_t seen = 0;
    int moved = 0;
    for (uint32_t r = 0; r < ROWS; r++) {
        uint64_t id = f->learner.ordered.row_id[r];
        seen |= 1ull << (id - ROWS);
        assert_int_equal(f->learner.ordered.group[r], (id - ROWS) / N);
        moved += id != ROWS + r;
    }
    assert_int_equal(seen, (1u << ROWS) - 1);
    assert_true(moved > 0);
    assert_true(xr_metrics_get(f->metrics, "fake/tokens") == 15);
}

/* Finds the order of the rows in the last of so many epochs of a step. */
static void find_order_after(fixture *f, int64_t epochs, uint64_t step,
                             uint64_t out[ROWS])
{
    f->run.ini.actor.ppo_epochs = epochs;
    learn(f, step);
    memcpy(out, f->learner.ordered.row_id, ROWS * sizeof(*out));
}

/* Every epoch of every step has its own order, the same in a rerun. */
static void every_epoch_is_shuffled_differently(void **state)
{
    fixture *f = *state;
    uint64_t order[3][ROWS];
    uint64_t again[ROWS];
    f->run.ini.actor.shuffle = 1;
    for (int i = 0; i < 3; i++)
        find_order_after(f, 1 + i % 2, 1 + (uint64_t)i / 2, order[i]);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < i; k++)
            assert_memory_not_equal(order[i], order[k], sizeof(order[i]));
    find_order_after(f, 1, 1, again);
    assert_memory_equal(again, order[0], sizeof(again));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            a_step_updates_by_mini_batch_and_tells_the_engine, set_up,
            tear_down),
        cmocka_unit_test_setup_teardown(a_differing_bit_stops_an_exact_run,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(log_probs_are_compared_every_so_often,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            other_contracts_train_on_recomputed_log_probs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_bad_gradient_stops_the_run, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(skipped_updates_are_counted, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(
            rejected_groups_are_dropped_and_refilled, set_up, tear_down),
        cmocka_unit_test_setup_teardown(baselines_stay_with_their_prompts,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_critic_learns_beside_the_policy,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_bad_value_is_named, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(shuffling_keeps_the_rows, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(every_epoch_is_shuffled_differently,
                                        set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
