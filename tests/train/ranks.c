/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements the ranks of a test run: each opens a device and an instance,
 * trains on its rows, and stores its results.
 */
#include <xray/box.h>

#include "tests/train/ranks.h"

#include <math.h>
#include <pthread.h>

typedef struct rank_job {
    xray_host host;
    ranks_run *run;
    thread_comm *m;
    thread_comm *replica; /* NULL: it is one rank */
    thread_comm *data;    /* NULL: there is one replica */
    thread_comm *kv;      /* NULL: no rank has the same KV heads */
    pthread_mutex_t *mutex;
    uint32_t rank;
    rig_device device;
    rig rig;
    xray_status status;
    char *error;
    rows whole;
    rows mine;
    float logp[ROWS_TOKENS_MAX];
    const xray_comm_ops *comm;
    void *comm_self;
    xray_comm_group *group;
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

const char ranks_deep[] =
    "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],"
    "\"hidden_act\":\"silu\",\"hidden_size\":64,\"num_hidden_layers\":6,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,"
    "\"intermediate_size\":160,\"vocab_size\":512,"
    "\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5,"
    "\"rope_theta\":10000.0,\"initializer_range\":0.08,"
    "\"tie_word_embeddings\":false,\"bos_token_id\":1,\"eos_token_id\":2}";

ranks_run ranks_of(const char *json, uint32_t ranks, uint32_t stage)
{
    return (ranks_run){ .spec = { .config_json = json,
                                  .tokens = 400,
                                  .row_tokens = 24,
                                  .outputs = XRAY_OUTPUT_LOGP |
                                             XRAY_OUTPUT_ENTROPY |
                                             XRAY_OUTPUT_VALUE,
                                  .seed = 4,
                                  .stage_1 = stage + 1 },
                        .ranks = ranks,
                        .steps = 3,
                        .cuts = 1 };
}

/* ---- snapshots ---------------------------------------------------------- */

static void store_tensor(snapshot *s, const xray_tensor *t)
{
    uint32_t i = 0;
    uint64_t whole = t->shape[0] * (t->dims > 1 ? t->shape[1] : 1);
    while (i < s->count && strcmp(s->tensors[i].name, t->name) != 0)
        i++;
    if (i == s->count) {
        (void)snprintf(s->tensors[i].name, sizeof(s->tensors[i].name), "%s",
                       t->name);
        s->tensors[i].count = whole;
        s->tensors[i].data = calloc(whole, sizeof(float));
        s->count++;
    }
    uint64_t cols = t->dims > 1 ? t->extent[1] : t->extent[0];
    uint64_t at = t->dims > 1 ? t->lo[0] * t->shape[1] + t->lo[1] : t->lo[0];
    for (uint64_t r = 0; t->data && r < xray_box_count(t) / cols; r++) {
        const float *from = (const float *)t->data + r * t->stride[0];
        float *to = s->tensors[i].data + at + r * t->shape[1];
        for (uint64_t c = 0; c < cols; c++)
            s->clashes +=
                to[c] != 0 && memcmp(to + c, from + c, sizeof(*to)) != 0;
        memcpy(to, from, cols * sizeof(float));
    }
    s->tensors[i].filled += xray_box_count(t);
}

static void store_table(rank_job *job, snapshot *s, const xray_weights *table)
{
    (void)pthread_mutex_lock(job->mutex);
    for (uint32_t i = 0; table && i < table->tensor_count; i++)
        store_tensor(s, &table->tensors[i]);
    (void)pthread_mutex_unlock(job->mutex);
}

int snapshot_differ(const snapshot *a, const snapshot *b)
{
    assert_int_equal(a->count, b->count);
    for (uint32_t i = 0; i < a->count; i++) {
        uint32_t k = 0;
        while (k < b->count &&
               strcmp(a->tensors[i].name, b->tensors[k].name) != 0)
            k++;
        assert_true(k < b->count);
        assert_int_equal(a->tensors[i].count, b->tensors[k].count);
        if (memcmp(a->tensors[i].data, b->tensors[k].data,
                   a->tensors[i].count * sizeof(float)) != 0) {
            print_message("first difference in %s\n", a->tensors[i].name);
            return 1;
        }
    }
    return 0;
}

void ranks_same(const ranks_run *a, const ranks_run *b, const char *what)
{
    if (snapshot_differ(&a->grads, &b->grads))
        fail_msg("%s: other gradients", what);
    if (snapshot_differ(&a->weights, &b->weights))
        fail_msg("%s: other weights", what);
    assert_memory_equal(a->norm[0], b->norm[0], sizeof(a->norm[0]));
}

double snapshot_distance(const snapshot *a, const snapshot *b)
{
    double most = 0;
    assert_int_equal(a->count, b->count);
    for (uint32_t i = 0; i < a->count; i++) {
        uint32_t k = 0;
        double scale = 1e-30;
        double far = 0;
        while (strcmp(a->tensors[i].name, b->tensors[k].name) != 0)
            k++;
        for (uint64_t n = 0; n < a->tensors[i].count; n++) {
            double x = (double)a->tensors[i].data[n];
            double y = (double)b->tensors[k].data[n];
            scale = fmax(scale, fabs(x));
            far = fmax(far, fabs(x - y));
        }
        most = fmax(most, far / scale);
    }
    return most;
}

static void snapshot_free(snapshot *s)
{
    for (uint32_t i = 0; i < s->count; i++)
        free(s->tensors[i].data);
    *s = (snapshot){ 0 };
}

void ranks_free(ranks_run *run)
{
    snapshot_free(&run->grads);
    snapshot_free(&run->weights);
}

/* ---- a rank ------------------------------------------------------------- */

static uint32_t width_of(const ranks_run *run)
{
    return run->spec.tensor ? run->spec.tensor : 1;
}

static uint32_t kv_of(const ranks_run *run)
{
    return run->kv_ranks ? run->kv_ranks : 1;
}

/* The collectives that this rank's replica has made. */
static uint64_t count_joins(const rank_job *job)
{
    return job->replica
               ? thread_comm_calls(job->replica, job->rank % width_of(job->run))
               : 0;
}

/* The bytes that this rank has received from all ranks and from those that
 * divide its buckets. */
static uint64_t count_received(const rank_job *job)
{
    uint64_t all = thread_comm_received(job->m, job->rank);
    return job->data ? all + thread_comm_received(
                                 job->data, job->rank / width_of(job->run))
                     : all;
}

/* The first row of a replica. */
static uint32_t first_row(const ranks_run *run, uint32_t replica)
{
    return (run->rows ? run->rows : 16) * replica /
           (run->ranks / width_of(run));
}

/* Makes a batch of the rows [first, last) of `from`. */
static void take_rows(rows *to, const rows *from, uint32_t first, uint32_t last)
{
    int32_t token = from->row_start[first];
    memset(to, 0, sizeof(*to));
    for (int32_t t = token; t < from->row_start[last]; t++) {
        to->ids[t - token] = from->ids[t];
        to->mask[t - token] = from->mask[t];
    }
    for (uint32_t r = first; r <= last; r++) {
        to->row_start[r - first] = from->row_start[r] - token;
        to->temperature[r - first] = from->temperature[r];
    }
    to->batch = from->batch;
    to->batch.rows = last - first;
    to->batch.tokens = (uint32_t)to->row_start[last - first];
    to->batch.ids = to->ids;
    to->batch.row_start = to->row_start;
    to->batch.loss_mask = to->mask;
    to->batch.temperature = to->temperature;
}

/* Gives every second row of a micro-batch the beginning of the row before it as
 * its prompt. */
static void share_beginnings(rows *r, uint32_t cuts)
{
    for (uint32_t p = 0; p < cuts; p++) {
        xray_batch *part = &r->parts[p];
        int32_t *ids = r->ids + (part->ids - r->ids);
        for (uint32_t i = 0; i < part->rows; i++) {
            const int32_t *start = part->row_start;
            uint32_t other = i ^ 1u;
            int32_t own = start[i + 1] - start[i];
            int32_t its =
                other < part->rows ? start[other + 1] - start[other] : 1;
            int32_t *prompt = &r->prompt_len[p][i];
            *prompt = (own < its ? own : its) / 2;
            *prompt += *prompt == 0;
            r->group[p][i] = (int32_t)(i / 2);
            if (i % 2)
                memcpy(ids + start[i], ids + start[other],
                       (size_t)*prompt * sizeof(int32_t));
        }
        part->prompt_len = r->prompt_len[p];
        part->group = r->group[p];
        part->share_prompts = 1;
    }
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

static xray_status train_one_step(rank_job *job, uint32_t i)
{
    ranks_run *run = job->run;
    uint32_t total = run->rows ? run->rows : 16;
    uint32_t replica = job->rank / width_of(run);
    const xray_train_ops *ops = job->rig.ops;
    rows_loss ctx = { .entropy_weight = 0.02, .value_weight = 0.1 };
    rows_draw(&job->whole, total, 24, 37, 100 + run->first_step + i);
    xray_loss loss = rows_loss_of(&ctx, &job->whole);
    double tokens = ctx.tokens;
    take_rows(&job->mine, &job->whole, first_row(run, replica),
              first_row(run, replica + 1));
    rows_cut(&job->mine, run->cuts);
    if (run->share)
        share_beginnings(&job->mine, run->cuts);
    loss = rows_loss_of(&ctx, &job->mine);
    ctx.tokens = tokens;
    if (run->fail_loss && job->rank + 1 == run->ranks && i == 0)
        loss.fn = fail_in_loss;
    uint64_t before = count_received(job);
    uint64_t joins = count_joins(job);
    uint32_t first = run->twice ? run->cuts / 2 : 0;
    xray_status status = offload_and_onload(job, TAGS_GRADIENTS);
    if (status == XRAY_OK && first) {
        status = ops->forward_backward(job->rig.self, job->mine.pointers, first,
                                       &loss);
        if (!rig_debug(&job->rig)->gradients(job->rig.self))
            return XRAY_E_BUG;
        if (status == XRAY_OK)
            status = offload_and_onload(job, TAGS_GRADIENTS);
    }
    if (status == XRAY_OK)
        status =
            ops->forward_backward(job->rig.self, job->mine.pointers + first,
                                  run->cuts - first, &loss);
    run->joins[job->rank][i] = count_joins(job) - joins;
    if (status != XRAY_OK || run->one_call)
        return status;
    if (run->ranks > 1)
        run->received[job->rank][i] = count_received(job) - before;
    const xray_weights *grads = rig_debug(&job->rig)->gradients(job->rig.self);
    if (run->poison && job->rank + 1 == run->ranks && i == 0)
        for (uint32_t t = 0; t < grads->tensor_count; t++)
            if (strstr(grads->tensors[t].name, "layers.1.mlp.down_proj") &&
                xray_box_count(&grads->tensors[t]))
                ((float *)grads->tensors[t].data)[0] = NAN;
    if (i + 1 == run->steps)
        store_table(job, &run->grads, grads);
    xray_step_result result = { .header = XRAY_HEADER(xray_step_result) };
    status = offload_and_onload(job, TAGS_STEP);
    if (status == XRAY_OK)
        status = ops->optimizer_step(job->rig.self, 1e-2, 0.5, &result);
    run->norm[job->rank][i] = result.grad_norm;
    run->skipped[job->rank] += result.skipped;
    if (result.bad_tensor)
        (void)snprintf(run->bad[job->rank], sizeof(run->bad[0]), "%s",
                       result.bad_tensor);
    (void)pthread_mutex_lock(job->mutex);
    run->nll[i] += job->rank % width_of(run) ? 0 : ctx.nll;
    (void)pthread_mutex_unlock(job->mutex);
    return status;
}

/* Computes this rank's part of the log-probabilities of all rows. */
static xray_status score_rows(rank_job *job)
{
    ranks_run *run = job->run;
    uint32_t total = run->rows ? run->rows : 16;
    uint32_t replica = job->rank / width_of(run);
    uint32_t first = first_row(run, replica);
    rows_draw(&job->whole, total, 24, 37, 55);
    take_rows(&job->mine, &job->whole, first, first_row(run, replica + 1));
    xray_outputs out = { .header = XRAY_HEADER(xray_outputs),
                         .logp = job->logp };
    xray_status status = offload_and_onload(job, TAGS_FORWARD);
    if (status == XRAY_OK)
        status = forward_one(job->rig.ops, job->rig.self, &job->mine.batch,
                             XRAY_OUTPUT_LOGP, &out);
    if (job->rank % width_of(run) == 0)
        memcpy(run->logp + job->whole.row_start[first], job->logp,
               job->mine.batch.tokens * sizeof(float));
    return status;
}

static xray_status export_all(rank_job *job)
{
    const xray_train_ops *ops = job->rig.ops;
    const xray_weights *part = NULL;
    ranks_run *run = job->run;
    uint64_t *first = &run->first_part[job->rank];
    uint64_t before = count_received(job);
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

static xray_status run_job(rank_job *job)
{
    ranks_run *run = job->run;
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
        status = export_all(job);
    if (status == XRAY_OK)
        status = offload_and_onload(job, TAGS_STEP);
    if (status == XRAY_OK && run->save_dir)
        status = ops->save(job->rig.self, run->save_dir);
    return status;
}

static xray_status open_comm(rank_job *job)
{
    uint32_t ranks[THREAD_COMM_MAX];
    void *self = thread_comm_self(job->m, job->rank);
    job->comm = thread_comm_ops();
    job->comm_self = self;
    job->group = thread_comm_group(job->m, job->rank);
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
    for (uint32_t r = 0; r < job->run->ranks; r++)
        ranks[r] = r;
    xray_status status = job->comm->create(&setup, NULL, &job->comm_self);
    if (status != XRAY_OK)
        return status;
    return job->comm->group(job->comm_self, ranks, job->run->ranks,
                            &job->group);
}

static void *rank_main(void *ptr)
{
    rank_job *job = ptr;
    ranks_run *run = job->run;
    uint32_t width = width_of(run);
    rig_request r = rig_request_of(&run->spec);
    xray_world world = { .header = XRAY_HEADER(xray_world),
                         .rank = job->rank,
                         .size = run->ranks };
    if (run->ranks > 1) {
        job->status = open_comm(job);
        world.comm = job->comm;
        world.comm_self = job->comm_self;
        world.group = job->group;
    }
    const xray_subgroup groups[] = {
        { XRAY_AXIS_REPLICA,
          job->replica ? thread_comm_group(job->replica, job->rank % width)
                       : NULL,
          job->rank % width, width },
        { XRAY_AXIS_DATA,
          job->data ? thread_comm_group(job->data, job->rank / width) : NULL,
          job->rank / width, run->ranks / width },
        { "kv",
          job->kv ? thread_comm_group(job->kv, job->rank % kv_of(run)) : NULL,
          job->rank % kv_of(run), kv_of(run) },
    };
    if (run->spec.tensor) {
        world.subgroups = groups;
        world.subgroup_count = 3;
        world.subgroup_stride = sizeof(groups[0]);
    }
    xray_setup setup = { .header = XRAY_HEADER(xray_setup),
                         .host = &job->host,
                         .device = job->device.ops,
                         .device_self = job->device.self,
                         .model = &r.model,
                         .world = &world,
                         .role = XRAY_ROLE_ACTOR,
                         .trainable = !run->spec.frozen,
                         .trainable_from_layer = run->spec.from_layer };
    job->rig.ops = rig_component_of(&run->spec)->ops;
    if (job->status == XRAY_OK)
        job->status =
            job->rig.ops->create(&setup, r.config, &r.load, &job->rig.self);
    if (job->status == XRAY_OK) {
        job->status = run_job(job);
        rig_close(&job->rig);
    }
    if (run->shm)
        job->comm->destroy(job->comm_self);
    rig_request_free(&r);
    return NULL;
}

void ranks_go(ranks_run *run)
{
    pthread_t threads[THREAD_COMM_MAX];
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    rank_job *jobs = calloc(run->ranks, sizeof(*jobs));
    thread_comm *m = thread_comm_open(run->ranks);
    thread_comm *groups[3][THREAD_COMM_MAX] = { { NULL } };
    uint32_t width = width_of(run);
    uint32_t replicas = run->ranks / width;
    assert_non_null(jobs);
    assert_non_null(m);
    for (uint32_t r = 0; r < replicas && width > 1; r++)
        groups[0][r] = thread_comm_open(width);
    for (uint32_t r = 0; r < width && run->spec.tensor && replicas > 1; r++)
        groups[1][r] = thread_comm_open(replicas);
    for (uint32_t r = 0; r < run->ranks / kv_of(run) && kv_of(run) > 1; r++)
        groups[2][r] = thread_comm_open(kv_of(run));
    for (uint32_t r = 0; r < run->ranks; r++) {
        jobs[r] = (rank_job){ .host = { .header = XRAY_HEADER(xray_host),
                                        .version = "test",
                                        .host_data = &jobs[r],
                                        .log = job_log,
                                        .fail = job_fail,
                                        .service = job_service },
                              .run = run,
                              .m = m,
                              .replica = groups[0][r / width],
                              .data = groups[1][r % width],
                              .kv = groups[2][r / kv_of(run)],
                              .mutex = &mutex,
                              .rank = r,
                              .device = rig_device_open(1),
                              .error = run->error[r] };
        assert_int_equal(pthread_create(&threads[r], NULL, rank_main, &jobs[r]),
                         0);
    }
    for (uint32_t r = 0; r < run->ranks; r++) {
        (void)pthread_join(threads[r], NULL);
        run->status[r] = jobs[r].status;
        rig_device_close(&jobs[r].device);
    }
    for (uint32_t i = 0; i < 3 * THREAD_COMM_MAX; i++)
        if (groups[i % 3][i / 3])
            thread_comm_close(groups[i % 3][i / 3]);
    thread_comm_close(m);
    free(jobs);
    for (uint32_t r = 0; r < run->ranks && !run->fail_loss; r++)
        if (run->status[r] != XRAY_OK)
            fail_msg("rank %u: %d, %s", r, run->status[r], run->error[r]);
}
