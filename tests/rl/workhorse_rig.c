/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements a process, a trainer, an engine and a device around a Workhorse.
 */
#include "tests/rl/workhorse_rig.h"
#include "tests/forward.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

#include "core/actor/actor.h"

/* ---- the process around a Workhorse ------------------------------------- */

workhorse_process around;

xr_run run;
xr_roles roles;
xray_comm_trace traces[RANK + 2];

uint32_t __wrap_xr_actor_index(const xr_actor_context *context);
uint32_t __wrap_xr_actor_index(const xr_actor_context *context)
{
    (void)context;
    return RANK;
}

uint32_t __wrap_xr_actor_count(const xr_actor_context *context);
uint32_t __wrap_xr_actor_count(const xr_actor_context *context)
{
    (void)context;
    return RANK + 2;
}

void *__wrap_xr_actor_extra(const xr_actor_context *context);
void *__wrap_xr_actor_extra(const xr_actor_context *context)
{
    (void)context;
    return &traces[RANK];
}

const void *__wrap_xr_actor_extras(const xr_actor_context *context,
                                   uint64_t *out_stride);
const void *__wrap_xr_actor_extras(const xr_actor_context *context,
                                   uint64_t *out_stride)
{
    (void)context;
    *out_stride = sizeof(traces[0]);
    return traces;
}

void __wrap_xr_actor_phase(const xr_actor_context *context, const char *phase);
void __wrap_xr_actor_phase(const xr_actor_context *context, const char *phase)
{
    (void)context;
    (void)snprintf(around.phase, sizeof(around.phase), "%s", phase);
}

xr_run *__wrap_xr_run_new(xr_config *config, const char *plugin_path,
                          uint32_t with, xr_errors *errors);
xr_run *__wrap_xr_run_new(xr_config *config, const char *plugin_path,
                          uint32_t with, xr_errors *errors)
{
    const char *seed = xr_config_get(config, "run", "seed");
    (void)snprintf(around.folders, sizeof(around.folders), "%s",
                   plugin_path ? plugin_path : "none");
    (void)snprintf(around.seed, sizeof(around.seed), "%s", seed ? seed : "");
    around.with = with;
    if (!around.refused)
        return &run;
    xr_errors_add(errors, "the first fault");
    xr_errors_add(errors, "the second fault");
    return NULL;
}

void __wrap_xr_run_free(xr_run *one);
void __wrap_xr_run_free(xr_run *one)
{
    around.freed += one != NULL;
}

xray_status __wrap_xr_roles_start_rank(xr_run *one, const xr_rank_link *link,
                                       xr_err *err, xr_roles **out);
xray_status __wrap_xr_roles_start_rank(xr_run *one, const xr_rank_link *link,
                                       xr_err *err, xr_roles **out)
{
    uint32_t all[RANK + 2];
    assert_ptr_equal(one, &run);
    around.link = *link;
    if (around.gather != XRAY_OK)
        assert_int_equal(
            link->gather(link->gather_ctx, &link->rank, sizeof(all[0]), all),
            around.gather);
    if (around.start != XRAY_OK)
        return xr_fail(err, around.start, "no device");
    *out = &roles;
    return XRAY_OK;
}

void __wrap_xr_roles_free(xr_roles *one);
void __wrap_xr_roles_free(xr_roles *one)
{
    around.closed += one != NULL;
}

xray_status __wrap_xr_actor_gather(const xr_actor_context *context,
                                   const void *mine, uint64_t bytes,
                                   uint64_t timeout_ms, void *all, xr_err *err);
xray_status __wrap_xr_actor_gather(const xr_actor_context *context,
                                   const void *mine, uint64_t bytes,
                                   uint64_t timeout_ms, void *all, xr_err *err)
{
    (void)context;
    (void)mine;
    (void)all;
    assert_int_equal(timeout_ms, 1500);
    assert_int_equal(bytes, sizeof(uint32_t));
    return around.gather == XRAY_OK
               ? XRAY_OK
               : xr_fail(err, around.gather, "rank 1 did not arrive");
}

xray_status __wrap_xr_publish(xr_roles *one, xr_err *err);
xray_status __wrap_xr_publish(xr_roles *one, xr_err *err)
{
    assert_ptr_equal(one, &roles);
    one->published.bytes += 41;
    return around.publish == XRAY_OK
               ? XRAY_OK
               : xr_fail(err, around.publish, "not published");
}

/* ---- a trainer, an engine and a device ---------------------------------- */

workhorse_plugins fake;

static void note_call(const char *fmt, ...)
{
    size_t used = strlen(fake.log);
    va_list list;
    va_start(list, fmt);
    (void)vsnprintf(fake.log + used, sizeof(fake.log) - used, fmt, list);
    va_end(list);
}

void expect_log(const char *want)
{
    assert_string_equal(fake.log, want);
    fake.log[0] = '\0';
}

/* Output k of a token is 100 k + 10 row_id + its index in the row. */
static xray_status forward_batch(void *self, const xray_batch *b,
                                 uint32_t outputs, xray_outputs *out)
{
    float *const to[] = { out->logp, out->entropy, out->value };
    note_call("%s forward %u:", (const char *)self, outputs);
    for (uint32_t r = 0; r < b->rows; r++) {
        note_call(" %u", (unsigned)b->row_id[r]);
        for (int32_t t = b->row_start[r]; t < b->row_start[r + 1]; t++)
            for (uint32_t k = 0; k < 3; k++)
                if (to[k])
                    to[k][t] = (float)(100 * k + 10 * (uint32_t)b->row_id[r] +
                                       (uint32_t)(t - b->row_start[r]));
    }
    note_call("; ");
    return fake.status;
}

FORWARD_EACH(train_forward, forward_batch)

static xray_status train_gradients(void *self, const xray_batch *const *batches,
                                   uint32_t count, const xray_loss *loss)
{
    float logp[16];
    float zero[16] = { 0 };
    float out[3][16];
    note_call("%s gradients %u:", (const char *)self, loss->outputs);
    for (uint32_t i = 0; i < count; i++) {
        const xray_batch *b = batches[i];
        const xray_loss_call call = { .header = XRAY_HEADER(xray_loss_call),
                                      .batch = b,
                                      .logp = logp,
                                      .entropy = zero,
                                      .value = zero,
                                      .dlogp = out[0],
                                      .dentropy = out[1],
                                      .dvalue = out[2] };
        memset(out, 0, sizeof(out));
        for (uint32_t r = 0; r < b->rows; r++)
            for (int32_t t = b->row_start[r]; t < b->row_start[r + 1]; t++)
                logp[t] = (int)b->row_id[r] == fake.bad_row ? (float)NAN : -1;
        note_call(" (%u rows", b->rows);
        assert_int_equal(loss->fn(loss->ctx, &call), XRAY_OK);
        note_call(")");
    }
    note_call("; ");
    return fake.status;
}

static xray_status train_step(void *self, double lr, double max_norm,
                              xray_step_result *out)
{
    note_call("%s step %g %g; ", (const char *)self, lr, max_norm);
    *out = fake.step;
    return fake.status;
}

static xray_status train_discard(void *self)
{
    note_call("%s discard; ", (const char *)self);
    return fake.status;
}

static xray_status train_save(void *self, const char *dir)
{
    note_call("%s save %s; ", (const char *)self, dir);
    return fake.status;
}

static xray_status train_load(void *self, const char *dir)
{
    note_call("%s load %s; ", (const char *)self, dir);
    return fake.status;
}

static uint64_t weights_version(void *owner)
{
    (void)owner;
    return 41;
}

static const xray_weights *train_weights(void *self)
{
    static const xray_weights table = { .header = XRAY_HEADER(xray_weights),
                                        .version = weights_version };
    (void)self;
    return &table;
}

static const xray_train_ops train_ops = {
    .header = XRAY_HEADER(xray_train_ops),
    .weights = train_weights,
    .forward = train_forward,
    .forward_backward = train_gradients,
    .optimizer_step = train_step,
    .save = train_save,
    .load = train_load,
    .discard = train_discard,
};

static const char *const *algo_names(void *self)
{
    (void)self;
    static const char *const names[] = { "loss/a", "loss/b", NULL };
    return names;
}

static xray_status algo_loss(const void *context, uint64_t size,
                             const xray_loss_call *call, xray_metric_sums *sums)
{
    for (uint32_t r = 0; r < call->batch->rows; r++)
        note_call(" %u at %u", (unsigned)call->batch->row_id[r],
                  call->batch->row_index[r]);
    assert_int_equal(size, 3);
    assert_string_equal(context, "ab");
    assert_int_equal(sums->count, 2);
    sums->sum[1] += 10;
    sums->weight[1] += 1;
    return XRAY_OK;
}

static const xray_algo_ops algo_ops = { .header = XRAY_HEADER(xray_algo_ops),
                                        .metric_names = algo_names,
                                        .loss = algo_loss };

static xray_status engine_submit(void *self, const xray_request *request)
{
    (void)self;
    fake.asked[fake.requests++] = *request;
    return fake.status;
}

static xray_status engine_step(void *self)
{
    (void)self;
    return XRAY_OK;
}

/* Sample k of request i has one token, 10 i + k, of version 41 + i. */
static xray_status engine_poll(void *self, xray_sample_out *out)
{
    static int32_t token;
    static float logp;
    static xray_span span;
    (void)self;
    if (!fake.requests || fake.given == 2 * fake.requests)
        return XRAY_END;
    out->id = fake.given / 2;
    out->sample = fake.given % 2;
    token = (int32_t)(10 * out->id + out->sample);
    logp = -(float)(1 + fake.given);
    span.version = 41 + out->id;
    fake.given++;
    out->tokens = &token;
    out->logp = &logp;
    out->token_count = 1;
    out->finish = XRAY_FINISH_LENGTH;
    out->spans = &span;
    out->span_count = 1;
    out->span_stride = sizeof(span);
    return XRAY_OK;
}

static xray_status engine_abort(void *self, uint64_t id, uint32_t sample)
{
    (void)self;
    (void)id;
    (void)sample;
    return XRAY_OK;
}

static xray_status engine_stats(void *self, xray_infer_stats *out)
{
    (void)self;
    (void)out;
    return XRAY_OK;
}

static const xray_infer_ops infer_ops = { .header = XRAY_HEADER(xray_infer_ops),
                                          .submit = engine_submit,
                                          .step = engine_step,
                                          .poll = engine_poll,
                                          .abort = engine_abort,
                                          .stats = engine_stats };

static xray_status device_memory(void *self, xray_memory_stats *out)
{
    (void)self;
    out->live[XRAY_TAG_WEIGHTS] = 3u << 19;
    out->live[XRAY_TAG_KV] = 10u << 20;
    out->high[XRAY_TAG_GRADS] = 1u << 20; /* given back since */
    return fake.status;
}

static const xray_device_ops device_ops = { .header =
                                                XRAY_HEADER(xray_device_ops),
                                            .memory = device_memory };

/* ---- calls of its methods ----------------------------------------------- */

void *horse;
xr_err horse_err;

xr_actor_fn find_method(const char *name)
{
    for (size_t i = 0; i < xr_workhorse_class.method_count; i++)
        if (strcmp(xr_workhorse_class.methods[i].name, name) == 0)
            return xr_workhorse_class.methods[i].call;
    fail_msg("a Workhorse has no %s", name);
    return NULL;
}

xray_status create_horse(const char *text)
{
    horse_err.text[0] = '\0';
    horse = NULL;
    return xr_workhorse_class.create(NULL, text, &horse_err, &horse);
}

static void put_part(xr_part *part, const void *ops, const char *name)
{
    *part = (xr_part){ .ops = ops,
                       .instance = name,
                       .host = xr_host_new(name, NULL) };
}

int begin_test(void **state)
{
    (void)state;
    memset(&around, 0, sizeof(around));
    memset(&fake, 0, sizeof(fake));
    fake.bad_row = -1;
    run = (xr_run){ .needs = 0 };
    put_part(&run.train, &train_ops, "train.fake");
    put_part(&run.infer, &infer_ops, "infer.fake");
    put_part(&run.algo, &algo_ops, "algo.fake");
    put_part(&run.device, &device_ops, "device.fake");
    run.ini.data.train_batch_size = 2;
    run.ini.rollout.n = MOST_ROWS / 2;
    run.ini.run.comm_timeout = 1500000000;
    run.actor.load.tokens = 6;
    run.actor.model.vocab_size = 100;
    make_fake_roles(&run, &roles);
    roles.rank = RANK;
    roles.actor.self = (void *)"actor";
    roles.engine.self = &fake;
    run.placement.actor = run.placement.rollout = (xr_ranks){ .count = 1 };
    assert_int_equal(create_horse(TEXT), XRAY_OK);
    return 0;
}

int end_test(void **state)
{
    (void)state;
    xr_workhorse_class.destroy(horse);
    xr_padding_free(&roles.padding); /* of roles that are not freed */
    xr_host_free(run.train.host);
    xr_host_free(run.infer.host);
    xr_host_free(run.algo.host);
    xr_host_free(run.device.host);
    return 0;
}
