/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over a KV cache in blocks, on the CPU. Tasks are cut by kv head and
 * query, and no result depends on the cut.
 */
#include <string.h>

#include "plugins/device-cpu/attention.h"

/* Elements of K of a block, which holds K of all kv heads as
 * [kv_heads][block_tokens / 16][dim][16], then as much of V as
 * [kv_heads][block_tokens][dim]. */
static size_t count_part(const xray_kv *kv)
{
    return (size_t)kv->kv_heads * kv->block_tokens * kv->head_dim;
}

uint64_t cpu_plan_kv_block(const void *config, const xray_kv *kv)
{
    (void)config;
    if (!kv || kv->header.size < sizeof(*kv) || kv->dtype > XRAY_BF16 ||
        kv->block_tokens % 16 != 0)
        return 0;
    return 2 * count_part(kv) *
           (cpu_is_narrow(kv->dtype) ? sizeof(uint16_t) : sizeof(float));
}

uint64_t cpu_kv_block_bytes(void *self, const xray_kv *kv)
{
    uint64_t bytes = cpu_plan_kv_block(NULL, kv);
    if (!bytes)
        (void)cpu_fail(self, XRAY_E_UNSUPPORTED, "kv_block_bytes",
                       "blocks must hold F32 or BF16 and a multiple of 16 "
                       "positions");
    return bytes;
}

typedef struct kv_job {
    const cpu_device *d;
    const xray_attention_kv *op;
    int narrow;       /* 1: q, k, v and o are bf16 */
    int cache_narrow; /* 1: the cache is bf16 */
    float *scratch;
    size_t scratch_floats;
    size_t tokens;
    size_t task_tokens; /* tokens per task */
    size_t heads;       /* kv heads per task */
} kv_job;

static size_t block_number(const xray_kv *kv, size_t seq, size_t position)
{
    size_t at = seq * kv->table_stride + position / kv->block_tokens;
    return kv->table ? (size_t)(uint32_t)kv->table[at] : at;
}

/* Stores a key in its column of 16 keys. An fp32 cache widens keys of bf16; a
 * cache of bf16 has no others. */
static void store_key(const kv_job *job, void *to, const void *k, size_t dim)
{
    if (job->cache_narrow)
        for (size_t i = 0; i < dim; i++)
            ((uint16_t *)to)[i * 16] = ((const uint16_t *)k)[i];
    else if (job->narrow)
        for (size_t i = 0; i < dim; i++)
            ((float *)to)[i * 16] = cpu_from_bf16(((const uint16_t *)k)[i]);
    else
        for (size_t i = 0; i < dim; i++)
            ((float *)to)[i * 16] = ((const float *)k)[i];
}

static void store_value(const kv_job *job, void *to, const void *v, size_t dim)
{
    if (job->narrow && !job->cache_narrow)
        job->d->k->widen(to, v, dim);
    else
        memcpy(to, v, dim * (job->narrow ? sizeof(uint16_t) : sizeof(float)));
}

static void store_keys_range(void *ctx, size_t first, size_t last)
{
    const kv_job *job = ctx;
    const xray_attention_kv *op = job->op;
    const xray_kv *kv = op->kv;
    size_t dim = kv->head_dim;
    for (size_t t = first; t < last; t++) {
        size_t position = (size_t)op->positions[t];
        size_t inside = position % kv->block_tokens;
        size_t block =
            block_number(kv, (size_t)op->seq[t], position) * 2 * count_part(kv);
        for (size_t h = 0; h < kv->kv_heads; h++) {
            size_t to = block + h * kv->block_tokens * dim;
            size_t k = to + inside / 16 * 16 * dim + inside % 16;
            size_t v = to + count_part(kv) + inside * dim;
            store_key(
                job, cpu_output(kv->blocks, job->cache_narrow, k),
                cpu_element(op->k, job->narrow, t * op->k_stride + h * dim),
                dim);
            store_value(
                job, cpu_output(kv->blocks, job->cache_narrow, v),
                cpu_element(op->v, job->narrow, t * op->v_stride + h * dim),
                dim);
        }
    }
}

/* Counts the tokens from `t` on, at most `limit`, that follow one another in a
 * sequence and stay in one block of positions. */
static size_t count_run_tokens(const kv_job *job, size_t t, size_t limit)
{
    const xray_attention_kv *op = job->op;
    size_t block = (size_t)op->positions[t] / op->kv->block_tokens;
    size_t n = 1;
    while (n < limit && op->seq[t + n] == op->seq[t] &&
           op->positions[t + n] == op->positions[t] + (int32_t)n &&
           (size_t)op->positions[t + n] / op->kv->block_tokens == block)
        n++;
    return n;
}

/* Attends a run of tokens for the query heads of one kv head. A tile holds
 * tokens of one head or, for a single token, its heads. */
static void attend_run(const kv_job *job, cpu_attend *a, size_t t, size_t kv)
{
    const xray_attention_kv *op = job->op;
    size_t dim = op->kv->head_dim;
    size_t group = op->heads / op->kv->kv_heads;
    size_t tokens = a->rows;
    a->pos = (size_t)op->positions[t];
    a->step = tokens > 1;
    a->q_row = tokens > 1 ? op->q_stride : dim;
    a->o_row = tokens > 1 ? op->o_stride : dim;
    size_t tile = smaller(job->d->k->rows, CPU_QUERY_TILE);
    for (size_t h = 0; h < group;) {
        size_t head = kv * group + h;
        if (tokens == 1)
            a->rows = smaller(tile, group - h);
        a->q = cpu_element(op->q, job->narrow, t * op->q_stride + head * dim);
        a->o = cpu_output(op->o, job->narrow, t * op->o_stride + head * dim);
        job->d->k->attend(a);
        h += tokens == 1 ? a->rows : 1;
    }
}

/* Attends a single token for `heads` kv heads from `kv` on. */
static void attend_token(const kv_job *job, const cpu_attend *a, size_t t,
                         const size_t heads[2])
{
    const xray_attention_kv *op = job->op;
    size_t dim = op->kv->head_dim;
    size_t group = op->heads / op->kv->kv_heads;
    size_t query = heads[0] * group * dim;
    cpu_decode one = {
        .q = cpu_element(op->q, job->narrow, t * op->q_stride + query),
        .o = cpu_output(op->o, job->narrow, t * op->o_stride + query),
        .narrow = a->narrow,
        .heads = heads[1] - heads[0],
        .group = group,
        .dim = dim,
        .pos = (size_t)op->positions[t],
        .window = op->window,
        .scale = op->scale,
        .softcap = op->softcap,
        .k = a->k,
        .v = a->v,
        .kv_narrow = a->kv_narrow,
        .table = a->table,
        .first = a->first,
        .block = a->k_block,
        .head = op->kv->block_tokens * dim,
        .block_tokens = op->kv->block_tokens,
        .scores = a->scores,
        .score_row = a->score_row,
        .work = a->work
    };
    job->d->k->decode(&one);
}

/* Attends tokens first .. last - 1 for the query heads of one kv head. Single
 * tokens whose kernel can do several kv heads are done for all heads of the
 * task together with its first head. */
static void attend_kv_head(const kv_job *job, const size_t tokens[2],
                           const size_t heads[2], size_t head, float *scores)
{
    const xray_attention_kv *op = job->op;
    const xray_kv *kv = op->kv;
    size_t offset = head * kv->block_tokens * kv->head_dim;
    const void *k = cpu_element(kv->blocks, job->cache_narrow, offset);
    size_t tile = smaller(job->d->k->rows, CPU_QUERY_TILE);
    for (size_t t = tokens[0], run; t < tokens[1]; t += run) {
        size_t table = (size_t)op->seq[t] * kv->table_stride;
        run = count_run_tokens(job, t, smaller(tile, tokens[1] - t));
        cpu_attend a = { .narrow = job->narrow,
                         .rows = run,
                         .dim = kv->head_dim,
                         .window = op->window,
                         .scale = op->scale,
                         .softcap = op->softcap,
                         .k = k,
                         .v = cpu_element(k, job->cache_narrow, count_part(kv)),
                         .kv_narrow = job->cache_narrow,
                         .table = kv->table ? kv->table + table : NULL,
                         .first = table,
                         .k_block = 2 * count_part(kv),
                         .v_block = 2 * count_part(kv),
                         .v_row = kv->head_dim,
                         .block_tokens = kv->block_tokens,
                         .scores = scores,
                         .score_row = round16(op->position_bound) };
        a.work = scores + a.score_row * CPU_QUERY_TILE;
        if (run > 1 || kv->head_dim % 16)
            attend_run(job, &a, t, head);
        else if (head == heads[0])
            attend_token(job, &a, t, heads);
    }
}

static void run_kv_task(void *ctx, size_t task, size_t thread)
{
    const kv_job *job = ctx;
    size_t kv_heads = job->op->kv->kv_heads;
    size_t sets = (kv_heads + job->heads - 1) / job->heads;
    size_t first = task / sets * job->task_tokens;
    size_t head = task % sets * job->heads;
    const size_t tokens[2] = { first,
                               smaller(first + job->task_tokens, job->tokens) };
    const size_t heads[2] = { head, smaller(head + job->heads, kv_heads) };
    for (; head < heads[1]; head++)
        attend_kv_head(job, tokens, heads, head,
                       job->scratch + thread * job->scratch_floats);
}

static xray_status check_cache(const cpu_device *d, const xray_attention_kv *op)
{
    const xray_kv *kv = op->kv;
    if (kv->dtype > XRAY_BF16 || kv->block_tokens == 0 ||
        kv->block_tokens % 16 != 0)
        return cpu_fail(d, XRAY_E_UNSUPPORTED, "attention_kv",
                        "blocks must hold F32 or BF16 and a multiple of 16 "
                        "positions");
    if (cpu_is_narrow(kv->dtype) && !cpu_is_narrow(op->dtype))
        return cpu_fail(d, XRAY_E_UNSUPPORTED, "attention_kv",
                        "a cache of BF16 would round keys and values of F32; "
                        "they must be BF16, too");
    return XRAY_OK;
}

static xray_status check_kv(const cpu_device *d, const xray_attention_kv *op,
                            size_t tokens, double *out_cost)
{
    const xray_kv *kv = op->kv;
    xray_status status = cpu_check_heads(d, "attention_kv", op->heads,
                                         kv->kv_heads, kv->head_dim);
    if (status == XRAY_OK)
        status = check_cache(d, op);
    if (status != XRAY_OK)
        return status;
    uint64_t q = (uint64_t)op->heads * kv->head_dim;
    uint64_t width = (uint64_t)kv->kv_heads * kv->head_dim;
    if (op->q_stride < q || op->o_stride < q || op->k_stride < width ||
        op->v_stride < width)
        return cpu_fail(d, XRAY_E_ARG, "attention_kv",
                        "a stride is shorter than a token");
    double cost = 0;
    for (size_t t = 0; t < tokens; t++) {
        if (op->seq[t] < 0 || op->positions[t] < 0 ||
            (uint64_t)op->positions[t] >= op->position_bound)
            return cpu_fail(d, XRAY_E_RANGE, "attention_kv",
                            "token %zu has sequence %d and position %d of "
                            "%llu, which is not in range",
                            t, op->seq[t], op->positions[t],
                            (unsigned long long)op->position_bound);
        cost +=
            (double)visible_keys((uint64_t)op->positions[t] + 1, op->window) +
            16;
    }
    *out_cost = cost * op->heads * kv->head_dim / 8;
    return XRAY_OK;
}

/* Cuts the work by tokens, and by heads only where there are too few tokens.
 * Returns the number of tasks. */
static size_t cut_kv(const cpu_device *d, kv_job *job)
{
    size_t kv_heads = job->op->kv->kv_heads;
    size_t threads = cpu_pool_threads(d->pool);
    size_t parts = threads * 4;
    job->task_tokens = (job->tokens + parts - 1) / parts;
    job->task_tokens = (job->task_tokens + CPU_QUERY_TILE - 1) /
                       CPU_QUERY_TILE * CPU_QUERY_TILE;
    size_t chunks = (job->tokens + job->task_tokens - 1) / job->task_tokens;
    size_t sets = smaller((threads + chunks - 1) / chunks, kv_heads);
    job->heads = (kv_heads + sets - 1) / sets;
    return chunks * ((kv_heads + job->heads - 1) / job->heads);
}

xray_status cpu_attention_kv(void *self, xray_stream *stream,
                             const xray_attention_kv *op)
{
    cpu_device *d = self;
    (void)stream;
    CPU_CHECK(d, op, "attention_kv", op->kv, op->seq, op->positions, op->q,
              op->k, op->v, op->o);
    CPU_CHECK(d, op->kv, "attention_kv", op->kv->blocks);
    XR_CHECK_OPERANDS(d->host, "attention_kv", { "q", op->q, op->dtype });
    kv_job job = { .d = d,
                   .op = op,
                   .narrow = cpu_is_narrow(op->dtype),
                   .cache_narrow = cpu_is_narrow(op->kv->dtype),
                   .tokens = cpu_count(&op->tokens) };
    double cost = 0;
    xray_status status = check_kv(d, op, job.tokens, &cost);
    if (status != XRAY_OK || job.tokens == 0)
        return status;
    job.scratch_floats =
        cpu_attend_kv_floats(op->position_bound, op->kv->head_dim);
    status = cpu_thread_scratch(d, &job.scratch_floats, &job.scratch);
    if (status != XRAY_OK)
        return status;
    cpu_ranges(d, job.tokens, 1, (double)op->kv->kv_heads * op->kv->head_dim,
               store_keys_range, &job);
    size_t tasks = cut_kv(d, &job);
    cpu_parallel(d, tasks, cost, run_kv_task, &job);
    return XRAY_OK;
}
