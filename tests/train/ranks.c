/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements the ranks of a test run: each opens a device and an instance,
 * trains on its rows, and stores its results.
 */
#include <xray/box.h>

#include "tests/train/ranks.h"

#include <math.h>
#include <pthread.h>

#include "model/hf/param_slots.h"
#include "model/train/trainer.h"

/* Kinds of sub-groups. */
enum { REPLICA, DATA, SAME_KV, SLICES, CONTEXT, STAGES, KINDS };

static const char *const names[KINDS] = {
    XRAY_AXIS_REPLICA, XRAY_AXIS_DATA,    "kv",
    XRAY_AXIS_TENSOR,  XRAY_AXIS_CONTEXT, XRAY_AXIS_PIPELINE
};

typedef struct rank_job {
    xray_host host;
    ranks_run *run;
    thread_comm *m;
    thread_comm *in[KINDS]; /* its groups; NULL: of one rank */
    pthread_mutex_t *mutex;
    uint32_t rank;
    rig_device device;
    rig rig;
    xray_status status;
    char *error;
    rows whole;
    rows mine;
    float logp[ROWS_TOKENS_MAX];
    float value[ROWS_TOKENS_MAX];
    double nll[RANKS_STEPS];
    snapshot *after; /* [steps] the weights, of all ranks; NULL: not watched */
    const xray_comm_ops *comm;
    void *comm_self;
    uint32_t cuts;
    uint32_t left_out; /* micro-batches of each call */
} rank_job;

const xray_plugin *xray_plugin_query_comm_shm(uint32_t host_abi);

static void job_log(const xray_host *host, uint32_t level, const char *msg)
{
    (void)host;
    (void)level;
    (void)msg;
}

static xray_status job_fail(const xray_host *host, xray_status code,
                            const char *where, const char *msg)
{
    rank_job *job = host->host_data;
    (void)snprintf(job->error, 512, "%s: %s", where, msg);
    return code;
}

static const void *job_service(const xray_host *host, const char *id)
{
    (void)host;
    (void)id;
    return NULL;
}

static void store_table(rank_job *job, snapshot *s, const xray_weights *table)
{
    (void)pthread_mutex_lock(job->mutex);
    snapshot_store(s, table);
    (void)pthread_mutex_unlock(job->mutex);
}

/* ---- a rank ------------------------------------------------------------- */

static uint32_t tensor_of(const ranks_run *run)
{
    return run->spec.tensor ? run->spec.tensor : 1;
}

static uint32_t context_of(const ranks_run *run)
{
    return run->spec.context ? run->spec.context : 1;
}

static uint32_t stages_of(const ranks_run *run)
{
    return run->spec.stages ? run->spec.stages : 1;
}

static uint32_t width_of(const ranks_run *run)
{
    return tensor_of(run) * context_of(run) * stages_of(run);
}

/* The rank of a replica that answers: the first one of the last stage. */
static uint32_t answers_of(const ranks_run *run)
{
    return width_of(run) - tensor_of(run) * context_of(run);
}

/* `count` ranks from `first` on, `step` apart. */
typedef struct line {
    uint32_t first;
    uint32_t step;
    uint32_t count;
} line;

/* The ranks of a kind of group that has this rank. */
static line line_of(const ranks_run *run, uint32_t kind, uint32_t rank)
{
    uint32_t tensor = tensor_of(run);
    uint32_t context = context_of(run);
    uint32_t stage = tensor * context;
    uint32_t width = width_of(run);
    uint32_t kv = run->kv_ranks ? run->kv_ranks : 1;
    switch (kind) {
    case REPLICA:
        return (line){ rank - rank % width, 1, width };
    case DATA:
        return (line){ rank % width, width, run->ranks / width };
    case SAME_KV:
        return (line){ rank - rank % kv, 1, kv };
    case SLICES: /* those of "kv" are another axis */
        return (line){ rank - rank % tensor + rank % kv, kv, tensor / kv };
    case CONTEXT:
        return (line){ rank - rank % stage + rank % tensor, tensor, context };
    default:
        return (line){ rank - rank % width + rank % stage, stage,
                       stages_of(run) };
    }
}

/* Returns the traffic of this rank in its group of a kind. */
static thread_comm_traffic made_in(const rank_job *job, uint32_t kind)
{
    line at = line_of(job->run, kind, job->rank);
    return thread_comm_made(job->in[kind], (job->rank - at.first) / at.step);
}

/* The bytes that this rank has received from all ranks and from those that
 * divide its buckets. */
static uint64_t count_received(const rank_job *job)
{
    uint64_t all = thread_comm_received(job->m, job->rank);
    return job->in[DATA]
               ? all + thread_comm_received(job->in[DATA],
                                            job->rank / width_of(job->run))
               : all;
}

/* The first row of a replica. */
static uint32_t first_row(const ranks_run *run, uint32_t replica)
{
    return (run->rows ? run->rows : 16) * replica /
           (run->ranks / width_of(run));
}

static xray_status fail_in_loss(void *ctx, const xray_loss_call *call)
{
    (void)ctx;
    (void)call;
    return XRAY_E_NUMERIC;
}

/* Offloads all tags and onloads those in `tags` (bits). */
static xray_status offload_and_onload(rank_job *job, uint32_t tags)
{
    const xray_train_ops *ops = job->rig.ops;
    xray_memory_stats stats = { .header = XRAY_HEADER(xray_memory_stats) };
    xray_status status = XRAY_OK;
    if (!job->run->turns)
        return XRAY_OK;
    for (uint32_t tag = 0; status == XRAY_OK && tag < XRAY_TAG_KV; tag++)
        status = ops->offload(job->rig.self, tag);
    if (status == XRAY_OK)
        status = job->device.ops->memory(job->device.self, &stats);
    for (uint32_t tag = 0; status == XRAY_OK && tag < XRAY_TAG_KV; tag++)
        if (stats.live[tag] > (tag == XRAY_TAG_OPTIMIZER ? 192 : 0))
            return XRAY_E_BUG; /* except for scalars and the norm's words */
    for (uint32_t tag = 0; status == XRAY_OK && tag < XRAY_TAG_KV; tag++)
        if (tags >> tag & 1)
            status = ops->onload(job->rig.self, tag);
    return status;
}

#define TAGS_FORWARD (1u << XRAY_TAG_WEIGHTS | 1u << XRAY_TAG_ACTIVATIONS)
#define TAGS_GRADIENTS (TAGS_FORWARD | 1u << XRAY_TAG_GRADS)
#define TAGS_STEP \
    (1u << XRAY_TAG_WEIGHTS | 1u << XRAY_TAG_GRADS | 1u << XRAY_TAG_OPTIMIZER)

/* Takes the rows of a replica, and cuts them. */
static void take_own_rows(rank_job *job, uint32_t replica)
{
    ranks_run *run = job->run;
    uint32_t replicas = run->ranks / width_of(run);
    if (run->spec.segments) {
        const rows_deal deal = { run->spec.segments,
                                 replicas,
                                 replica,
                                 replicas > 1 && !run->spec.tensor &&
                                     run->spec.stage_1 > 2,
                                 run->cuts,
                                 run->hollow };
        job->cuts = rows_take_segments(&job->mine, &job->whole, &deal);
        return;
    }
    rows_take(&job->mine, &job->whole, first_row(run, replica),
              first_row(run, replica + 1));
    if (run->share)
        rows_begin_alike(&job->mine, 1);
    rows_cut(&job->mine, job->cuts);
}

static void count_work(const rank_job *job, const xray_batch *batch,
                       ranks_work *work)
{
    uint32_t tensor = tensor_of(job->run);
    uint32_t context = context_of(job->run);
    uint64_t items = 0;
    uint64_t all = rows_inputs(batch, &items);
    uint64_t own =
        context == 1
            ? all
            : rows_part(batch, context, job->rank / tensor % context, &items);
    work->passes += all > 0;
    work->inputs += own;
    work->parts += (own + tensor - 1) / tensor;
    work->context += (all + context - 1) / context;
    work->items += items;
    work->most += rows_most_items(batch, context);
}

/* Draws the step's rows, and makes a loss of this rank's. */
static xray_loss take_step_rows(rank_job *job, uint32_t i, rows_loss *ctx)
{
    ranks_run *run = job->run;
    uint32_t replica = job->rank / width_of(run);
    rows_draw(&job->whole, run->rows ? run->rows : 16, 24, 37,
              100 + run->first_step + i);
    (void)rows_loss_of(ctx, &job->whole);
    double tokens = ctx->tokens;
    take_own_rows(job, replica);
    xray_loss loss = rows_loss_of(ctx, &job->mine);
    ctx->tokens = tokens;
    for (uint32_t p = 0; p < job->cuts; p++)
        count_work(job, &job->mine.parts[p], &run->work[job->rank][i]);
    if (run->fail_loss && job->rank + 1 == run->ranks && i == 0)
        loss.fn = fail_in_loss;
    return loss;
}

/* Sums the step's gradients, in two calls if gradients are read in between. */
static xray_status sum_gradients(rank_job *job, const xray_loss *loss)
{
    ranks_run *run = job->run;
    const xray_train_ops *ops = job->rig.ops;
    uint32_t first = run->twice ? job->cuts / 2 : 0;
    xray_status status = offload_and_onload(job, TAGS_GRADIENTS);
    if (status == XRAY_OK && first) {
        status = ops->forward_backward(job->rig.self, job->mine.pointers, first,
                                       loss);
        if (!rig_debug(&job->rig)->gradients(job->rig.self))
            return XRAY_E_BUG;
        if (status == XRAY_OK)
            status = offload_and_onload(job, TAGS_GRADIENTS);
    }
    return status == XRAY_OK
               ? ops->forward_backward(job->rig.self,
                                       job->mine.pointers + first,
                                       job->cuts - first - job->left_out, loss)
               : status;
}

static void poison_gradient(const xray_weights *grads)
{
    for (uint32_t t = 0; t < grads->tensor_count; t++)
        if (strstr(grads->tensors[t].name, "layers.1.mlp.down_proj") &&
            xray_box_count(&grads->tensors[t]))
            ((float *)grads->tensors[t].data)[0] = NAN;
}

static xray_status update_weights(rank_job *job, uint32_t i)
{
    ranks_run *run = job->run;
    const xray_train_ops *ops = job->rig.ops;
    xray_step_result result = { .header = XRAY_HEADER(xray_step_result) };
    xray_status status = offload_and_onload(job, TAGS_STEP);
    if (status == XRAY_OK)
        status = ops->optimizer_step(job->rig.self, 1e-2, 0.5, &result);
    if (status == XRAY_OK && job->after)
        store_table(job, &job->after[i], ops->weights(job->rig.self));
    run->norm[job->rank][i] = result.grad_norm;
    run->skipped[job->rank] += result.skipped;
    if (result.bad_tensor)
        (void)snprintf(run->bad[job->rank], sizeof(run->bad[0]), "%s",
                       result.bad_tensor);
    return status;
}

static xray_status train_one_step(rank_job *job, uint32_t i)
{
    ranks_run *run = job->run;
    const uint32_t slices = width_of(run) == tensor_of(run) ? REPLICA : SLICES;
    rows_loss ctx = { .entropy_weight = 0.02,
                      .value_weight = 0.1,
                      .critic = run->spec.outputs == XRAY_OUTPUT_VALUE };
    xray_loss loss = take_step_rows(job, i, &ctx);
    uint64_t before = count_received(job);
    thread_comm_traffic joins = made_in(job, slices);
    thread_comm_traffic sums = made_in(job, DATA);
    thread_comm_traffic keys = made_in(job, CONTEXT);
    thread_comm_traffic passed = made_in(job, STAGES);
    xray_status status = sum_gradients(job, &loss);
    if (status != XRAY_OK || run->one_call)
        return status;
    if (run->ranks > 1)
        run->received[job->rank][i] = count_received(job) - before;
    const xray_weights *grads = rig_debug(&job->rig)->gradients(job->rig.self);
    if (run->poison && job->rank + 1 == run->ranks && i == 0)
        poison_gradient(grads);
    if (i + 1 == run->steps)
        store_table(job, &run->grads, grads);
    status = update_weights(job, i);
    run->joins[job->rank][i] = thread_comm_since(made_in(job, slices), joins);
    run->sums[job->rank][i] = thread_comm_since(made_in(job, DATA), sums);
    run->keys[job->rank][i] = thread_comm_since(made_in(job, CONTEXT), keys);
    run->passed[job->rank][i] = thread_comm_since(made_in(job, STAGES), passed);
    job->nll[i] = ctx.nll;
    return status;
}

/* Computes this rank's part of the log-probabilities and values of all rows. */
static xray_status score_rows(rank_job *job)
{
    ranks_run *run = job->run;
    uint32_t total = run->rows ? run->rows : 16;
    uint32_t replica = job->rank / width_of(run);
    uint32_t first = first_row(run, replica);
    rows_draw(&job->whole, total, 24, 37, 55);
    rows_take(&job->mine, &job->whole, first, first_row(run, replica + 1));
    uint32_t outputs =
        run->spec.outputs & (XRAY_OUTPUT_LOGP | XRAY_OUTPUT_VALUE);
    xray_outputs out = { .header = XRAY_HEADER(xray_outputs),
                         .logp = job->logp,
                         .value = job->value };
    xray_status status = offload_and_onload(job, TAGS_FORWARD);
    if (status == XRAY_OK)
        status = job->rig.ops->forward(
            job->rig.self, (const xray_batch *const[]){ &job->mine.batch },
            1 - job->left_out, outputs, &out);
    if (job->rank % width_of(run) != answers_of(run))
        return status;
    memcpy(run->logp + job->whole.row_start[first], job->logp,
           job->mine.batch.tokens * sizeof(float));
    memcpy(run->value + job->whole.row_start[first], job->value,
           job->mine.batch.tokens * sizeof(float));
    return status;
}

/* Stores the weights after the last step: those that an export hands out, or,
 * of a backend without exports, the boxes of all ranks. */
static xray_status store_weights(rank_job *job)
{
    const xray_train_ops *ops = job->rig.ops;
    const xray_weights *part = NULL;
    ranks_run *run = job->run;
    uint64_t *first = &run->first_part[job->rank];
    uint64_t before = count_received(job);
    if (!XRAY_HAS(xray_train_ops, ops, export_begin)) {
        store_table(job, &run->weights, ops->weights(job->rig.self));
        return XRAY_OK;
    }
    xray_status status = ops->export_begin(job->rig.self);
    while (status == XRAY_OK) {
        status = ops->export_next(job->rig.self, &part);
        if (run->ranks > 1 && !*first)
            *first = count_received(job) - before;
        if (status == XRAY_OK && job->rank == 0)
            store_table(job, &run->weights, part);
    }
    ops->export_end(job->rig.self);
    return status == XRAY_END ? XRAY_OK : status;
}

/* The floats of the buckets that are trained. */
static uint64_t count_trained(const rank_job *job)
{
    const xm_trainer *trainer = job->rig.self;
    uint64_t count = 0;
    for (uint32_t b = trainer->layout->frozen;
         b < trainer->layout->bucket_count; b++)
        count += xm_bucket_capacity(trainer->layout, b);
    return count;
}

static uint64_t count_embedding(const rank_job *job)
{
    const xm_trainer *trainer = job->rig.self;
    const xm_param *embed = xm_layout_at(trainer->layout, 0, XM_EMBED);
    return embed ? embed->count : 0;
}

static xray_status run_job(rank_job *job)
{
    ranks_run *run = job->run;
    run->trained[job->rank] = count_trained(job);
    run->embedding[job->rank] = count_embedding(job);
    const xray_train_ops *ops = job->rig.ops;
    xray_status status = XRAY_OK;
    if (run->load_dir)
        status = ops->load(job->rig.self, run->load_dir);
    if (status == XRAY_OK && run->score)
        status = score_rows(job);
    for (uint32_t i = 0; status == XRAY_OK && i < run->steps; i++)
        status = train_one_step(job, i);
    run->memory[job->rank].header = (xray_header)XRAY_HEADER(xray_memory_stats);
    (void)job->device.ops->memory(job->device.self, &run->memory[job->rank]);
    if (status == XRAY_OK)
        status = offload_and_onload(job, 1u << XRAY_TAG_WEIGHTS);
    if (status == XRAY_OK && !run->one_call)
        status = store_weights(job);
    if (status == XRAY_OK)
        status = offload_and_onload(job, TAGS_STEP);
    if (status == XRAY_OK && run->save_dir)
        status = ops->save(job->rig.self, run->save_dir);
    return status;
}

static xray_subgroup form_group(rank_job *job, thread_comm *m, const char *name,
                                line at)
{
    uint32_t ranks[THREAD_COMM_MAX];
    xray_subgroup group = { .name = name,
                            .rank = (job->rank - at.first) / at.step,
                            .size = at.count };
    if (!m || job->status != XRAY_OK)
        return group;
    for (uint32_t i = 0; i < at.count; i++)
        ranks[i] = at.first + i * at.step;
    if (job->run->shm)
        job->status =
            job->comm->group(job->comm_self, ranks, at.count, &group.group);
    else
        group.group = thread_comm_group(m, group.rank);
    return group;
}

static xray_status open_comm(rank_job *job)
{
    void *self = thread_comm_self(job->m, job->rank);
    job->comm = thread_comm_ops();
    job->comm_self = self;
    if (!job->run->shm)
        return XRAY_OK;
    job->comm = xray_plugin_query_comm_shm(XRAY_ABI)->components[0]->ops;
    xray_comm_setup setup = { .header = XRAY_HEADER(xray_comm_setup),
                              .host = &job->host,
                              .device = job->device.ops,
                              .device_self = job->device.self,
                              .rank = job->rank,
                              .size = job->run->ranks,
                              .timeout_ms = 30000,
                              .gather_ctx = self,
                              .gather = thread_comm_gather };
    job->comm_self = NULL;
    return job->comm->create(&setup, NULL, &job->comm_self);
}

/* Creates this rank's instance and runs it. */
static void run_instance(rank_job *job, const rig_spec *spec,
                         const xray_world *world)
{
    rig_request r = rig_request_of(spec);
    xray_setup setup = { .header = XRAY_HEADER(xray_setup),
                         .host = &job->host,
                         .device = job->device.ops,
                         .device_self = job->device.self,
                         .model = &r.model,
                         .world = world,
                         .role = XRAY_ROLE_ACTOR,
                         .trainable = !spec->frozen,
                         .trainable_from_layer = spec->from_layer };
    job->rig.ops = rig_component_of(spec)->ops;
    if (job->status == XRAY_OK)
        job->status =
            job->rig.ops->create(&setup, r.config, &r.load, &job->rig.self);
    if (job->status == XRAY_OK) {
        job->status = run_job(job);
        rig_close(&job->rig);
    }
    rig_request_free(&r);
}

static void *rank_main(void *ptr)
{
    rank_job *job = ptr;
    ranks_run *run = job->run;
    int last = job->rank + 1 == run->ranks;
    xray_world world = { .header = XRAY_HEADER(xray_world),
                         .rank = job->rank,
                         .size = run->ranks };
    if (run->ranks > 1) {
        job->status = open_comm(job);
        world.comm = job->comm;
        world.comm_self = job->comm_self;
        world.group =
            form_group(job, job->m, "", (line){ 0, 1, run->ranks }).group;
    }
    xray_subgroup groups[KINDS][2] = { 0 }; /* longer, as in a later version */
    for (uint32_t k = 0; k < KINDS; k++)
        groups[k][0] =
            form_group(job, job->in[k], names[k], line_of(run, k, job->rank));
    if (run->spec.tensor) {
        world.subgroups = groups[0];
        world.subgroup_count = KINDS;
        world.subgroup_stride = sizeof(groups[0]);
    }
    run_instance(job, run->odd && last ? run->odd : &run->spec, &world);
    if (run->shm)
        job->comm->destroy(job->comm_self);
    return NULL;
}

void ranks_go(ranks_run *run)
{
    pthread_t threads[THREAD_COMM_MAX];
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    rank_job *jobs = calloc(run->ranks, sizeof(*jobs));
    thread_comm *m = thread_comm_open(run->ranks);
    thread_comm *groups[KINDS][THREAD_COMM_MAX] = { { NULL } };
    uint32_t width = width_of(run);
    snapshot *after = run->watch ? calloc(run->steps, sizeof(*after)) : NULL;
    assert_non_null(jobs);
    assert_non_null(m);
    assert_true(run->steps <= RANKS_STEPS);
    for (uint32_t i = 0; i < KINDS * run->ranks; i++) {
        line at = line_of(run, i % KINDS, i / KINDS);
        if (at.first == i / KINDS && at.count > 1)
            groups[i % KINDS][i / KINDS] = thread_comm_open(at.count);
    }
    for (uint32_t r = 0; r < run->ranks; r++) {
        jobs[r] = (rank_job){ .host = { .header = XRAY_HEADER(xray_host),
                                        .version = "test",
                                        .host_data = &jobs[r],
                                        .log = job_log,
                                        .fail = job_fail,
                                        .service = job_service },
                              .run = run,
                              .m = m,
                              .mutex = &mutex,
                              .after = after,
                              .rank = r,
                              .cuts = run->cuts,
                              .left_out = run->cut_short == r + 1,
                              .device = rig_device_open(1),
                              .error = run->error[r] };
        for (uint32_t k = 0; k < KINDS; k++)
            jobs[r].in[k] = groups[k][line_of(run, k, r).first];
        assert_int_equal(pthread_create(&threads[r], NULL, rank_main, &jobs[r]),
                         0);
    }
    for (uint32_t r = 0; r < run->ranks; r++) {
        (void)pthread_join(threads[r], NULL);
        run->status[r] = jobs[r].status;
        rig_device_close(&jobs[r].device);
        for (uint32_t i = 0; i < run->steps && r % width == answers_of(run);
             i++)
            run->nll[i] += jobs[r].nll[i];
    }
    for (uint32_t i = 0; after && i < run->steps; i++) {
        run->clashes[i] = after[i].clashes;
        snapshot_free(&after[i]);
    }
    free(after);
    for (uint32_t i = 0; i < KINDS * THREAD_COMM_MAX; i++)
        if (groups[i % KINDS][i / KINDS])
            thread_comm_close(groups[i % KINDS][i / KINDS]);
    thread_comm_close(m);
    free(jobs);
    for (uint32_t r = 0; r < run->ranks && !run->may_fail; r++)
        if (run->status[r] != XRAY_OK)
            fail_msg("rank %u: %d, %s", r, run->status[r], run->error[r]);
}
