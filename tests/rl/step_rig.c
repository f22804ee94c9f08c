/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements trainer, reference, critic, engine and algorithm made for tests of
 * a learner.
 */
#include "tests/rl/step_rig.h"
#include "tests/forward.h"

#include <math.h>

/* ---- plugins ------------------------------------------------------------ */

char said[8192];
const char *failing;
const char *skipped;
const char *spoilt;
uint64_t context_size;
uint32_t contexts;
float offset;

static void note_call(const char *fmt, ...)
{
    size_t used = strlen(said);
    va_list list;
    va_start(list, fmt);
    (void)vsnprintf(said + used, sizeof(said) - used, fmt, list);
    va_end(list);
}

static xray_status end_call(const char *call)
{
    note_call("\n");
    return failing && strcmp(failing, call) == 0 ? XRAY_E_RANGE : XRAY_OK;
}

static void note_rows(const xray_batch *b)
{
    for (uint32_t r = 0; r < b->rows; r++)
        note_call("%s%u", r ? " " : "", (unsigned)b->row_id[r]);
}

static xray_status forward_batch(void *self, const xray_batch *b,
                                 uint32_t outputs, xray_outputs *out)
{
    note_call("%s forward %u:%s ", (const char *)self, outputs,
              b->share_prompts ? " shared" : "");
    note_rows(b);
    for (uint32_t t = 0; t < b->tokens; t++)
        if (out->value)
            out->value[t] = (float)b->row_id[0];
        else
            out->logp[t] = b->rollout_logp[t] + offset;
    return end_call((const char *)self);
}

FORWARD_EACH(train_forward, forward_batch)

static xray_status train_gradients(void *self, const xray_batch *const *batches,
                                   uint32_t count, const xray_loss *loss)
{
    static float zero[64];
    float out[64] = { 0 };
    note_call("%s gradients %u:", (const char *)self, loss->outputs);
    for (uint32_t i = 0; i < count; i++) {
        note_call("%s", batches[i]->share_prompts ? " shared (" : " (");
        note_rows(batches[i]);
        note_call(")");
    }
    note_call("\n");
    for (uint32_t i = 0; i < count; i++) {
        const xray_loss_call call = { .header = XRAY_HEADER(xray_loss_call),
                                      .batch = batches[i],
                                      .logp = zero,
                                      .entropy = zero,
                                      .value = zero,
                                      .dlogp = out,
                                      .dentropy = out,
                                      .dvalue = out };
        xray_status status = loss->fn(loss->ctx, &call);
        if (status != XRAY_OK)
            return status;
    }
    return failing && strcmp(failing, "gradients") == 0 ? XRAY_E_RANGE
                                                        : XRAY_OK;
}

static xray_status train_step(void *self, double lr, double max_norm,
                              xray_step_result *out)
{
    static int steps;
    note_call("%s step: lr %g clip %g", (const char *)self, lr, max_norm);
    out->grad_norm = *(const char *)self == 'a' ? 1 + steps++ % 2 : 4;
    out->skipped = skipped && strcmp(self, skipped) == 0;
    return end_call("step");
}

static uint64_t weights_version(void *owner)
{
    (void)owner;
    return 1;
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
    (void)from;
    note_call("engine update %u", (unsigned)number);
    return end_call("update");
}

static void note_floats(const char *what, const float *values, uint32_t count)
{
    if (values)
        note_call(" %s", what);
    for (uint32_t i = 0; values && i < count; i++)
        note_call(" %g", (double)values[i]);
}

static xray_status algo_prepare(void *self, xray_batch *b,
                                const xray_metric_sink *metrics)
{
    (void)self;
    note_call("prepare:");
    note_floats("scores", b->scores, b->rows * b->score_count);
    note_floats("weights", b->score_weight, b->score_count);
    note_floats("ref", b->ref_logp, 4);
    note_floats("values", b->value, 4);
    note_floats("baseline", b->baseline, b->rows);
    for (uint32_t t = 0; t < b->tokens; t++) {
        b->advantage[t] = b->loss_mask[t] == 0 ? (float)NAN : 1;
        b->returns[t] = b->advantage[t];
    }
    if (spoilt)
        (*spoilt == 'r' ? b->returns : b->advantage)[b->row_start[2] - 1] =
            INFINITY;
    metrics->put(metrics->ctx, "algo/metric", 7);
    if (spoilt && *spoilt == 'm')
        metrics->put(metrics->ctx, "", 7);
    return end_call("prepare");
}

static xray_status algo_context(void *self, const xray_batch *mini,
                                const xray_totals *totals, void *out,
                                uint64_t cap, uint64_t *out_size)
{
    (void)self;
    note_call("context of ");
    note_rows(mini);
    note_call(": %g tokens, %g rows, at most %u", totals->tokens,
              (double)totals->rows, (unsigned)totals->max_response);
    *out_size = context_size;
    contexts++;
    if (context_size > cap) {
        note_call(" (no room)\n");
        return XRAY_E_RANGE;
    }
    memset(out, 'c', context_size);
    return end_call("context");
}

static xray_status algo_select(void *self, const xray_batch *mini,
                               const float *logp, void *context, uint64_t size)
{
    (void)self;
    note_call("select ");
    note_rows(mini);
    note_call(": %g %g, %u", (double)logp[2], (double)logp[mini->tokens - 1],
              (unsigned)size);
    ((char *)context)[size - 1] = 's';
    return end_call("select");
}

static const char *const *algo_names(void *self)
{
    (void)self;
    static const char *const names[] = { "loss/a", "loss/b", "loss/none",
                                         NULL };
    return names;
}

static xray_status algo_loss(const void *context, uint64_t size,
                             const xray_loss_call *call, xray_metric_sums *sums)
{
    note_call("loss of %u rows from %u, context %c..%c", call->batch->rows,
              call->batch->row_index[0], *(const char *)context,
              ((const char *)context)[size - 1]);
    sums->sum[0] += 6;
    sums->weight[0] += 2;
    return end_call("loss");
}

static xray_status algo_critic_loss(const void *context, uint64_t size,
                                    const xray_loss_call *call,
                                    xray_metric_sums *sums)
{
    (void)context;
    (void)size;
    (void)call;
    sums->sum[1] += 5;
    sums->weight[1] += 1;
    return XRAY_OK;
}

static xray_status algo_accept(void *self, const xray_batch *b, uint32_t groups,
                               uint32_t *keep)
{
    (void)self;
    note_call("accept %u of %u groups", b->rows, groups);
    for (uint32_t g = 0; g < groups; g++)
        note_call(" %u", keep[g]);
    keep[0] = 0;
    return end_call("accept");
}

static xray_status algo_observe(void *self, const char *const *names,
                                const double *values, uint64_t count)
{
    (void)self;
    note_call("observe %s %g .. %s %g of %u", names[0], values[0],
              names[count - 1], values[count - 1], (unsigned)count);
    return end_call("observe");
}

const xray_train_ops train_ops = {
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
    .select = algo_select,
    .observe = algo_observe,
    .critic_loss = algo_critic_loss,
};

/* ---- fixture ------------------------------------------------------------ */

static const int32_t ids[] = { 1, 2 };
static const xr_row data[PROMPTS] = {
    { .id = 10, .ids = ids, .id_count = 2, .prompt_count = 2 },
    { .id = 11, .ids = ids, .id_count = 1, .prompt_count = 1 },
    { .id = 12, .ids = ids, .id_count = 2, .prompt_count = 2 },
};
const xr_row *const rows[PROMPTS] = { &data[0], &data[1], &data[2] };

void put_part(xr_part *part, const void *ops, const char *name)
{
    *part = (xr_part){ .ops = ops,
                       .host = xr_host_new(name, NULL),
                       .instance = name };
}

void add_model(fixture *f, uint32_t role)
{
    static char selves[][8] = { "ref", "critic" };
    char *name = selves[role == XRAY_ROLE_CRITIC];
    put_part(&f->roles.named[role], &train_ops, name);
    xr_roles_at(&f->roles, role)->self = name;
}

static void configure(xr_run_config *ini)
{
    ini->data.train_batch_size = PROMPTS;
    ini->data.max_prompt_length = 3;
    ini->data.max_response_length = RESPONSE;
    ini->rollout.n = N;
    ini->rollout.temperature = 0.5;
    ini->actor.ppo_mini_batch_size = 2;
    ini->actor.ppo_epochs = 1;
    ini->actor.grad_clip = 5;
    ini->actor.recompute_old_logp = 1;
    ini->critic.ppo_epochs = 1;
    ini->critic.grad_clip = 7;
}

/* Sample i scores i by the first reward and -1 - i by the second, and a quarter
 * on its first token; it has 1 + i % 2 tokens. */
static void fill_samples(xr_samples *samples)
{
    xr_err err = { "" };
    assert_int_equal(xr_samples_init(samples, ROWS, RESPONSE, &err), XRAY_OK);
    samples->count = ROWS;
    samples->n = N;
    for (uint32_t i = 0; i < ROWS; i++) {
        samples->sizes[i] = 1 + i % 2;
        samples->versions[i] = 30 + i;
        samples->scores[i] = (xr_score){ 0.5 * i, { i, -1.0 - i } };
        samples->score_rows[i][0] = 0.25f;
        for (uint32_t t = 0; t < RESPONSE; t++) {
            samples->tokens[i * RESPONSE + t] = (int32_t)(10 * i + t);
            samples->logp[i * RESPONSE + t] = -(float)(10 * i + t + 1);
        }
    }
}

int set_up(void **state)
{
    fixture *f = calloc(1, sizeof(*f));
    static char actor[] = "actor";
    xr_run *run = &f->run;
    said[0] = '\0';
    failing = skipped = spoilt = NULL;
    context_size = 4;
    contexts = 0;
    offset = 0;
    configure(&run->ini);
    run->exact = 1;
    run->actor.load.tokens = 7;
    run->critic.load.tokens = 100;
    put_part(&run->train, &train_ops, actor);
    put_part(&run->infer, &infer_ops, "engine");
    put_part(&run->algo, &algo_ops, "algo");
    run->reward_count = 2;
    run->rewards[0].weight = 1;
    run->rewards[1].weight = 0.5;
    make_fake_roles(run, &f->roles);
    f->roles.actor.self = actor;
    f->metrics = xr_metrics_new();
    fill_samples(&f->samples);
    *state = f;
    return 0;
}

void begin_learner(fixture *f)
{
    xr_err err = { "" };
    assert_int_equal(xr_learner_init(&f->learner, &f->roles, f->metrics, &err),
                     XRAY_OK);
    if (f->learner.baseline)
        for (uint32_t i = 0; i < PROMPTS; i++)
            f->learner.baseline[i] = (float)(i + 1) / 2;
    assert_int_equal(xr_learner_pack(&f->learner, &f->samples, rows, 4, &err),
                     XRAY_OK);
}

int tear_down(void **state)
{
    fixture *f = *state;
    xr_learner_free(&f->learner);
    xr_samples_free(&f->samples);
    xr_metrics_free(f->metrics);
    xr_part *parts[] = { &f->run.train, &f->run.infer, &f->run.algo,
                         &f->roles.named[XRAY_ROLE_REFERENCE],
                         &f->roles.named[XRAY_ROLE_CRITIC] };
    for (size_t i = 0; i < 5; i++)
        xr_host_free(parts[i]->host);
    free(f);
    return 0;
}

xray_status run_step(fixture *f, uint64_t number, xr_err *err)
{
    const xr_rates rates = { 0.25, 0.125 };
    xr_metrics_clear(f->metrics);
    said[0] = '\0';
    xray_status status =
        xr_learner_step(&f->learner, &f->learner.fresh, number, &rates, err);
    expect_values(f->metrics);
    return status;
}
