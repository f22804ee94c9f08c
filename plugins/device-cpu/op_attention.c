/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over packed rows, its gradient, and attention over a KV cache. Work
 * is cut by row, kv head and query, which no result depends on.
 */
#include <string.h>

#include "plugins/device-cpu/device.h"

static size_t round16(size_t n)
{
    return (n + 15) / 16 * 16;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Keys that a query with `n` before and at it sees. */
static uint64_t seen_of(uint64_t n, uint32_t window)
{
    return window && window < n ? window : n;
}

static xray_status check_heads(const cpu_device *d, const char *where,
                               uint32_t heads, uint32_t kv_heads,
                               uint32_t head_dim)
{
    if (heads == 0 || kv_heads == 0 || head_dim == 0 || heads % kv_heads != 0)
        return cpu_fail(d, XRAY_E_ARG, where,
                        "%u heads over %u kv heads of dimension %u", heads,
                        kv_heads, head_dim);
    return XRAY_OK;
}

/* ---- packed rows -------------------------------------------------------- */

typedef struct row_job {
    const cpu_device *d;
    const xray_attention *op;
    const xray_attention_grad *grad;
    float *scratch;
    size_t scratch_floats;
    size_t parts; /* query ranges a (row, kv head) is cut into */
} row_job;

static xray_status check_rows(const cpu_device *d, const char *where,
                              const xray_attention *op, double *out_cost)
{
    xray_status status =
        check_heads(d, where, op->heads, op->kv_heads, op->head_dim);
    if (status != XRAY_OK)
        return status;
    uint64_t q = (uint64_t)op->heads * op->head_dim;
    uint64_t kv = (uint64_t)op->kv_heads * op->head_dim;
    if (op->q_stride < q || op->o_stride < q || op->k_stride < kv ||
        op->v_stride < kv)
        return cpu_fail(d, XRAY_E_ARG, where, "a stride is below a token");
    double cost = 0;
    for (uint64_t r = 0; r < op->rows; r++) {
        int64_t n = (int64_t)op->row_start[r + 1] - op->row_start[r];
        if (op->row_start[r] < 0 || n < 0 || (uint64_t)n > op->row_bound ||
            (uint64_t)op->row_start[r + 1] > op->tokens.bound)
            return cpu_fail(d, XRAY_E_RANGE, where,
                            "row %llu is tokens [%d, %d): no row is longer "
                            "than %llu or ends past %llu",
                            (unsigned long long)r, op->row_start[r],
                            op->row_start[r + 1],
                            (unsigned long long)op->row_bound,
                            (unsigned long long)op->tokens.bound);
        cost += (double)n * (double)(seen_of((uint64_t)n, op->window) + 16);
    }
    *out_cost = cost * op->heads * op->head_dim / 8;
    return XRAY_OK;
}

static void attend_row_task(void *ctx, size_t task, size_t thread)
{
    const row_job *job = ctx;
    const xray_attention *op = job->op;
    size_t part = task % job->parts;
    size_t kv = task / job->parts % op->kv_heads;
    size_t row = task / job->parts / op->kv_heads;
    size_t start = (size_t)op->row_start[row];
    size_t n = (size_t)op->row_start[row + 1] - start;
    size_t dim = op->head_dim;
    size_t first = n * part / job->parts;
    size_t last = n * (part + 1) / job->parts;
    size_t tile = smaller(job->d->k->rows, CPU_QUERY_TILE);
    size_t group = op->heads / op->kv_heads;
    float *kt = job->scratch + thread * job->scratch_floats;
    const float *k = op->k + start * op->k_stride + kv * dim;
    size_t seen = seen_of(first + 1, op->window);
    for (size_t j = (first + 1 - seen) / 16 * 16; j < last; j += 16)
        cpu_transpose16(kt + j * dim, k + j * op->k_stride, op->k_stride,
                        smaller(16, n - j), dim);
    cpu_attend a = { .q_row = op->q_stride,
                     .o_row = op->o_stride,
                     .lse_row = op->heads,
                     .dim = dim,
                     .step = 1,
                     .window = op->window,
                     .scale = op->scale,
                     .softcap = op->softcap,
                     .k = kt,
                     .v = op->v + start * op->v_stride + kv * dim,
                     .v_row = op->v_stride,
                     .block_tokens = (size_t)1 << 40,
                     .scores = kt + round16(op->row_bound) * dim,
                     .score_row = round16(op->row_bound) };
    for (size_t h = kv * group; h < (kv + 1) * group; h++)
        for (size_t i = first; i < last; i += a.rows) {
            /* Near equal tiles: a narrow one would wait for its own sums. */
            size_t tiles = (last - i + tile - 1) / tile;
            a.rows = (last - i + tiles - 1) / tiles;
            a.pos = i;
            a.q = op->q + (start + i) * op->q_stride + h * dim;
            a.o = op->o + (start + i) * op->o_stride + h * dim;
            a.lse = op->lse ? op->lse + (start + i) * op->heads + h : NULL;
            job->d->k->attend(&a);
        }
}

xray_status cpu_attention(void *self, xray_stream *stream,
                          const xray_attention *op)
{
    cpu_device *d = self;
    (void)stream;
    CPU_CHECK(d, op, "attention", op->row_start, op->q, op->k, op->v, op->o);
    double cost = 0;
    xray_status status = check_rows(d, "attention", op, &cost);
    if (status != XRAY_OK)
        return status;
    row_job job = { .d = d, .op = op, .parts = 1 };
    size_t items = op->rows * op->kv_heads;
    size_t threads = cpu_pool_threads(d->pool);
    if (items < 4 * threads && cost > 1e6)
        job.parts = 4 * threads;
    job.scratch_floats =
        round16(op->row_bound) * (op->head_dim + (size_t)CPU_QUERY_TILE);
    status = cpu_thread_scratch(d, &job.scratch_floats, &job.scratch);
    if (status != XRAY_OK)
        return status;
    cpu_parallel(d, items * job.parts, cost, attend_row_task, &job);
    return XRAY_OK;
}

static void grad_row_task(void *ctx, size_t task, size_t thread)
{
    const row_job *job = ctx;
    const xray_attention *op = job->op;
    const xray_attention_grad *g = job->grad;
    size_t kv = task % op->kv_heads;
    size_t row = task / op->kv_heads;
    size_t start = (size_t)op->row_start[row];
    size_t n = (size_t)op->row_start[row + 1] - start;
    if (n == 0)
        return;
    size_t dim = op->head_dim;
    size_t group = op->heads / op->kv_heads;
    size_t head = kv * group;
    float *kt = job->scratch + thread * job->scratch_floats;
    float *vt = kt + round16(n) * dim;
    cpu_attend_grad a = {
        .q = op->q + start * op->q_stride + head * dim,
        .k = op->k + start * op->k_stride + kv * dim,
        .v = op->v + start * op->v_stride + kv * dim,
        .o = op->o + start * op->o_stride + head * dim,
        .d_o = g->d_o + start * op->o_stride + head * dim,
        .lse = op->lse + start * op->heads + head,
        .dq = g->dq + start * g->dq_stride + head * dim,
        .dk = g->dk + start * g->dk_stride + kv * dim,
        .dv = g->dv + start * g->dv_stride + kv * dim,
        .q_row = op->q_stride,
        .k_row = op->k_stride,
        .v_row = op->v_stride,
        .o_row = op->o_stride,
        .lse_row = op->heads,
        .dq_row = g->dq_stride,
        .dk_row = g->dk_stride,
        .dv_row = g->dv_stride,
        .n = n,
        .heads = group,
        .dim = dim,
        .window = op->window,
        .scale = op->scale,
        .softcap = op->softcap,
        .kt = kt,
        .vt = vt,
        .work = vt + round16(n) * dim,
    };
    for (size_t j = 0; j < n; j += 16) {
        size_t rows = smaller(16, n - j);
        cpu_transpose16(kt + j * dim, a.k + j * a.k_row, a.k_row, rows, dim);
        cpu_transpose16(vt + j * dim, a.v + j * a.v_row, a.v_row, rows, dim);
    }
    job->d->k->attend_grad(&a);
}

xray_status cpu_attention_grad(void *self, xray_stream *stream,
                               const xray_attention_grad *op)
{
    cpu_device *d = self;
    (void)stream;
    CPU_CHECK(d, op, "attention_grad", op->forward, op->d_o, op->dq, op->dk,
              op->dv);
    const xray_attention *f = op->forward;
    CPU_CHECK(d, f, "attention_grad", f->row_start, f->q, f->k, f->v, f->o,
              f->lse);
    double cost = 0;
    xray_status status = check_rows(d, "attention_grad", f, &cost);
    if (status != XRAY_OK)
        return status;
    uint64_t kv = (uint64_t)f->kv_heads * f->head_dim;
    if (op->dq_stride < (uint64_t)f->heads * f->head_dim ||
        op->dk_stride < kv || op->dv_stride < kv)
        return cpu_fail(d, XRAY_E_ARG, "attention_grad",
                        "a stride is below a token");
    row_job job = { .d = d, .op = f, .grad = op };
    size_t wide = round16(f->row_bound);
    job.scratch_floats =
        2 * wide * f->head_dim + cpu_attend_grad_work(wide, f->head_dim);
    status = cpu_thread_scratch(d, &job.scratch_floats, &job.scratch);
    if (status != XRAY_OK)
        return status;
    cpu_parallel(d, f->rows * f->kv_heads, cost * 3, grad_row_task, &job);
    return XRAY_OK;
}

/* ---- KV cache ----------------------------------------------------------- */

/* A block: K of all kv heads, [kv_heads][block_tokens / 16][dim][16], then V,
 * [kv_heads][block_tokens][dim]. */
static size_t part_floats(const xray_kv *kv)
{
    return (size_t)kv->kv_heads * kv->block_tokens * kv->head_dim;
}

uint64_t cpu_kv_block_bytes(void *self, const xray_kv *kv)
{
    if (!kv || kv->dtype != XRAY_F32 || kv->block_tokens % 16 != 0) {
        (void)cpu_fail(self, XRAY_E_UNSUPPORTED, "kv_block_bytes",
                       "blocks hold F32 and a multiple of 16 positions");
        return 0;
    }
    return 2 * part_floats(kv) * sizeof(float);
}

typedef struct kv_job {
    const cpu_device *d;
    const xray_attention_kv *op;
    float *scratch;
    size_t scratch_floats;
    size_t tokens;
    size_t step;  /* tokens of a task */
    size_t heads; /* kv heads of a task */
} kv_job;

static size_t block_number(const xray_kv *kv, size_t seq, size_t position)
{
    size_t at = seq * kv->table_stride + position / kv->block_tokens;
    return kv->table ? (size_t)(uint32_t)kv->table[at] : at;
}

static void store_range(void *ctx, size_t first, size_t last)
{
    const kv_job *job = ctx;
    const xray_attention_kv *op = job->op;
    const xray_kv *kv = op->kv;
    size_t dim = kv->head_dim;
    for (size_t t = first; t < last; t++) {
        size_t position = (size_t)op->positions[t];
        size_t inside = position % kv->block_tokens;
        float *block = (float *)kv->blocks +
                       block_number(kv, (size_t)op->seq[t], position) * 2 *
                           part_floats(kv);
        const float *k = op->k + t * op->k_stride;
        const float *v = op->v + t * op->v_stride;
        for (size_t h = 0; h < kv->kv_heads; h++) {
            size_t head = h * kv->block_tokens * dim;
            float *to = block + head + inside / 16 * 16 * dim + inside % 16;
            for (size_t i = 0; i < dim; i++)
                to[i * 16] = k[h * dim + i];
            memcpy(block + part_floats(kv) + head + inside * dim, v + h * dim,
                   dim * sizeof(float));
        }
    }
}

/* Tokens from `t` on, at most `limit`, that follow one another in a sequence
 * and stay in one block of positions. */
static size_t run_length(const kv_job *job, size_t t, size_t limit)
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

/* A run of tokens for the heads of one kv head: tiles are tokens of one head,
 * or, for a single token, its heads. */
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
        a->q = op->q + t * op->q_stride + head * dim;
        a->o = op->o + t * op->o_stride + head * dim;
        job->d->k->attend(a);
        h += tokens == 1 ? a->rows : 1;
    }
}

/* One token by itself, for `heads` kv heads from `kv` on. */
static void attend_token(const kv_job *job, const cpu_attend *a, size_t t,
                         const size_t heads[2])
{
    const xray_attention_kv *op = job->op;
    size_t dim = op->kv->head_dim;
    size_t group = op->heads / op->kv->kv_heads;
    size_t query = heads[0] * group * dim;
    cpu_decode one = { .q = op->q + t * op->q_stride + query,
                       .o = op->o + t * op->o_stride + query,
                       .heads = heads[1] - heads[0],
                       .group = group,
                       .dim = dim,
                       .pos = (size_t)op->positions[t],
                       .window = op->window,
                       .scale = op->scale,
                       .softcap = op->softcap,
                       .k = a->k,
                       .v = a->v,
                       .table = a->table,
                       .first = a->first,
                       .block = a->k_block,
                       .head = op->kv->block_tokens * dim,
                       .block_tokens = op->kv->block_tokens,
                       .scores = a->scores,
                       .score_row = a->score_row };
    job->d->k->decode(&one);
}

/* Tokens first .. last - 1 for the heads of one kv head; single tokens, where
 * their kernel can, for all heads of the task with the first of them. */
static void attend_kv_head(const kv_job *job, const size_t tokens[2],
                           const size_t heads[2], size_t head, float *scores)
{
    const xray_attention_kv *op = job->op;
    const xray_kv *kv = op->kv;
    size_t offset = head * kv->block_tokens * kv->head_dim;
    const float *blocks = kv->blocks;
    size_t tile = smaller(job->d->k->rows, CPU_QUERY_TILE);
    for (size_t t = tokens[0], run; t < tokens[1]; t += run) {
        size_t table = (size_t)op->seq[t] * kv->table_stride;
        run = run_length(job, t, smaller(tile, tokens[1] - t));
        cpu_attend a = { .rows = run,
                         .dim = kv->head_dim,
                         .window = op->window,
                         .scale = op->scale,
                         .softcap = op->softcap,
                         .k = blocks + offset,
                         .v = blocks + part_floats(kv) + offset,
                         .table = kv->table ? kv->table + table : NULL,
                         .first = table,
                         .k_block = 2 * part_floats(kv),
                         .v_block = 2 * part_floats(kv),
                         .v_row = kv->head_dim,
                         .block_tokens = kv->block_tokens,
                         .scores = scores,
                         .score_row = round16(op->position_bound) };
        if (run > 1 || kv->head_dim % 16)
            attend_run(job, &a, t, head);
        else if (head == heads[0])
            attend_token(job, &a, t, heads);
    }
}

static void attend_kv_task(void *ctx, size_t task, size_t thread)
{
    const kv_job *job = ctx;
    size_t kv_heads = job->op->kv->kv_heads;
    size_t sets = (kv_heads + job->heads - 1) / job->heads;
    size_t first = task / sets * job->step;
    size_t head = task % sets * job->heads;
    const size_t tokens[2] = { first, smaller(first + job->step, job->tokens) };
    const size_t heads[2] = { head, smaller(head + job->heads, kv_heads) };
    for (; head < heads[1]; head++)
        attend_kv_head(job, tokens, heads, head,
                       job->scratch + thread * job->scratch_floats);
}

static xray_status check_kv(const cpu_device *d, const xray_attention_kv *op,
                            size_t tokens, double *out_cost)
{
    const xray_kv *kv = op->kv;
    xray_status status =
        check_heads(d, "attention_kv", op->heads, kv->kv_heads, kv->head_dim);
    if (status != XRAY_OK)
        return status;
    if (kv->dtype != XRAY_F32 || kv->block_tokens == 0 ||
        kv->block_tokens % 16 != 0)
        return cpu_fail(d, XRAY_E_UNSUPPORTED, "attention_kv",
                        "blocks hold F32 and a multiple of 16 positions");
    uint64_t q = (uint64_t)op->heads * kv->head_dim;
    uint64_t width = (uint64_t)kv->kv_heads * kv->head_dim;
    if (op->q_stride < q || op->o_stride < q || op->k_stride < width ||
        op->v_stride < width)
        return cpu_fail(d, XRAY_E_ARG, "attention_kv",
                        "a stride is below a token");
    double cost = 0;
    for (size_t t = 0; t < tokens; t++) {
        if (op->seq[t] < 0 || op->positions[t] < 0 ||
            (uint64_t)op->positions[t] >= op->position_bound)
            return cpu_fail(d, XRAY_E_RANGE, "attention_kv",
                            "token %zu: sequence %d, position %d of %llu", t,
                            op->seq[t], op->positions[t],
                            (unsigned long long)op->position_bound);
        cost +=
            (double)seen_of((uint64_t)op->positions[t] + 1, op->window) + 16;
    }
    *out_cost = cost * op->heads * kv->head_dim / 8;
    return XRAY_OK;
}

/* Cuts tokens, and heads only where there are too few of those. Returns the
 * number of tasks. */
static size_t cut_kv(const cpu_device *d, kv_job *job)
{
    size_t kv_heads = job->op->kv->kv_heads;
    size_t threads = cpu_pool_threads(d->pool);
    size_t parts = threads * 4;
    job->step = (job->tokens + parts - 1) / parts;
    job->step =
        (job->step + CPU_QUERY_TILE - 1) / CPU_QUERY_TILE * CPU_QUERY_TILE;
    size_t chunks = (job->tokens + job->step - 1) / job->step;
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
    kv_job job = { .d = d, .op = op, .tokens = cpu_count(&op->tokens) };
    double cost = 0;
    xray_status status = check_kv(d, op, job.tokens, &cost);
    if (status != XRAY_OK || job.tokens == 0)
        return status;
    job.scratch_floats = round16(op->position_bound) * (size_t)CPU_QUERY_TILE;
    status = cpu_thread_scratch(d, &job.scratch_floats, &job.scratch);
    if (status != XRAY_OK)
        return status;
    cpu_ranges(d, job.tokens, 1, (double)op->kv->kv_heads * op->kv->head_dim,
               store_range, &job);
    size_t tasks = cut_kv(d, &job);
    cpu_parallel(d, tasks, cost, attend_kv_task, &job);
    return XRAY_OK;
}
