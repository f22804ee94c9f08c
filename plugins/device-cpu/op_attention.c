/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over packed rows and its gradient, on the CPU.
 *
 * A row that continues another one is computed over a copy of both rows' keys
 * and values, joined in order, and one of bf16 over a widened copy. Tasks are
 * cut by row, kv head and query range, and no result depends on the cut. In the
 * gradient a parent and its children form one task, because their sums go to
 * the same keys.
 */
#include <string.h>

#include "plugins/device-cpu/attention.h"

typedef struct row_job {
    const cpu_device *d;
    const xray_attention *op;
    const xray_attention_grad *grad;
    const int32_t *parent; /* or NULL */
    int narrow;            /* 1: q, k, v and o are bf16 */
    float *scratch;
    size_t scratch_floats;
    size_t parts; /* query ranges that each (row, kv head) is cut into */
} row_job;

/* A row with the keys it sees: `before` keys of its parent, then its own, `n`
 * in total. Its queries stand at the positions first to end - 1. */
typedef struct joined_row {
    size_t start; /* first own token */
    size_t parent_start;
    size_t before;
    size_t n;
    size_t query; /* token of the first query */
    size_t first;
    size_t end;
} joined_row;

static joined_row join_row(const row_job *job, size_t row)
{
    const xray_attention *op = job->op;
    const int32_t *start = op->row_start;
    joined_row j = { .start = (size_t)start[row] };
    if (job->parent && job->parent[row] >= 0) {
        size_t p = (size_t)job->parent[row];
        j.parent_start = (size_t)start[p];
        j.before = (size_t)(start[p + 1] - start[p]);
    }
    j.n = j.before + (size_t)(start[row + 1] - start[row]);
    j.query = j.start;
    j.first = j.before;
    j.end = j.n;
    if (op->query_start) {
        j.query = (size_t)op->query_start[row];
        j.first = (size_t)op->query_first[row];
        j.end = j.first + (size_t)op->query_start[row + 1] - j.query;
    }
    return j;
}

/* The keys or the values of one head. */
typedef struct head_keys {
    const void *x; /* those of token 0 */
    size_t stride;
} head_keys;

static head_keys find_keys(const row_job *job, size_t kv)
{
    const xray_attention *op = job->op;
    size_t head = kv * op->head_dim;
    return (head_keys){ cpu_element(op->k, job->narrow, head), op->k_stride };
}

static head_keys find_values(const row_job *job, size_t kv)
{
    const xray_attention *op = job->op;
    size_t head = kv * op->head_dim;
    return (head_keys){ cpu_element(op->v, job->narrow, head), op->v_stride };
}

/* Copies keys first <= i < last to `out`, widened. */
static void join_keys(const row_job *job, const joined_row *j,
                      const head_keys *from, size_t first, size_t last,
                      float *out)
{
    size_t dim = job->op->head_dim;
    for (size_t i = first; i < last; i++, out += dim) {
        size_t token =
            i < j->before ? j->parent_start + i : j->start + i - j->before;
        const void *x = cpu_element(from->x, job->narrow, token * from->stride);
        if (job->narrow)
            job->d->k->widen(out, x, dim);
        else
            memcpy(out, x, dim * sizeof(*out));
    }
}

/* Copies keys first <= i < last, `first` a multiple of 16, in groups of 16.
 * Those that are not read where they are go through `rows`: each group through
 * its start or, if they are kept, key i through row i. */
static void group_keys(const row_job *job, const joined_row *j,
                       const head_keys *from, size_t first, size_t last,
                       float *to, float *rows, int keep)
{
    size_t dim = job->op->head_dim;
    for (size_t i = first; i < last; i += 16) {
        size_t n = smaller(16, last - i);
        const float *x = from->x;
        if (rows) {
            float *copy = keep ? rows + i * dim : rows;
            join_keys(job, j, from, i, i + n, copy);
            cpu_transpose16(to + i * dim, copy, dim, n, dim);
        } else {
            cpu_transpose16(to + i * dim, x + (j->start + i) * from->stride,
                            from->stride, n, dim);
        }
    }
}

/* ---- checks ------------------------------------------------------------- */

/* A parent stands before its children, with only its children between, and has
 * no parent itself: *at is the last row without a parent. */
static xray_status check_parent(const cpu_device *d, const char *where,
                                const int32_t *parent, uint64_t row,
                                int64_t *at)
{
    if (!parent || parent[row] == -1) {
        *at = (int64_t)row;
        return XRAY_OK;
    }
    if (parent[row] != *at)
        return cpu_fail(d, XRAY_E_ARG, where,
                        "row %llu continues row %d, expected -1 or %lld, "
                        "the last row before it that has no parent",
                        (unsigned long long)row, parent[row], (long long)*at);
    return XRAY_OK;
}

static xray_status check_length(const row_job *job, const char *where,
                                uint64_t r)
{
    const xray_attention *op = job->op;
    const int32_t *start = op->row_start;
    if (start[r] < 0 || start[r + 1] < start[r] ||
        join_row(job, r).n > op->row_bound ||
        (uint64_t)start[r + 1] > op->tokens.bound)
        return cpu_fail(job->d, XRAY_E_RANGE, where,
                        "row %llu is tokens [%d, %d): no row is longer than "
                        "%llu or ends past %llu",
                        (unsigned long long)r, start[r], start[r + 1],
                        (unsigned long long)op->row_bound,
                        (unsigned long long)op->tokens.bound);
    return XRAY_OK;
}

static xray_status check_queries(const row_job *job, const char *where,
                                 uint64_t r)
{
    const xray_attention *op = job->op;
    if (!op->query_start)
        return XRAY_OK;
    const int32_t *start = op->query_start;
    int32_t first = op->query_first[r];
    int64_t length = op->row_start[r + 1] - op->row_start[r];
    if (start[r] < 0 || start[r + 1] < start[r] || first < 0 ||
        first + (int64_t)start[r + 1] - start[r] > length ||
        (uint64_t)start[r + 1] > op->queries.bound)
        return cpu_fail(job->d, XRAY_E_RANGE, where,
                        "row %llu has queries [%d, %d) from position %d on: "
                        "they must stand in its %lld tokens and among %llu "
                        "queries",
                        (unsigned long long)r, start[r], start[r + 1], first,
                        (long long)length,
                        (unsigned long long)op->queries.bound);
    return XRAY_OK;
}

static xray_status check_query_arrays(const row_job *job, const char *where)
{
    const xray_attention *op = job->op;
    if (op->query_start && job->parent)
        return cpu_fail(job->d, XRAY_E_ARG, where,
                        "query_start and parent are both given, but only rows "
                        "without a parent may have fewer queries than keys");
    if (op->query_start && !op->query_first)
        return cpu_fail(job->d, XRAY_E_ARG, where,
                        "query_first is NULL, but query_start is given");
    return XRAY_OK;
}

static xray_status check_rows(const row_job *job, const char *where,
                              double *out_cost)
{
    const cpu_device *d = job->d;
    const xray_attention *op = job->op;
    xray_status status =
        cpu_check_heads(d, where, op->heads, op->kv_heads, op->head_dim);
    if (status != XRAY_OK)
        return status;
    uint64_t q = (uint64_t)op->heads * op->head_dim;
    uint64_t kv = (uint64_t)op->kv_heads * op->head_dim;
    if (op->q_stride < q || op->o_stride < q || op->k_stride < kv ||
        op->v_stride < kv)
        return cpu_fail(d, XRAY_E_ARG, where,
                        "a stride is shorter than a token");
    status = check_query_arrays(job, where);
    double cost = 0;
    int64_t at = -1;
    for (uint64_t r = 0; r < op->rows && status == XRAY_OK; r++) {
        status = check_parent(d, where, job->parent, r, &at);
        if (status == XRAY_OK)
            status = check_length(job, where, r);
        if (status == XRAY_OK)
            status = check_queries(job, where, r);
        if (status != XRAY_OK)
            return status;
        joined_row j = join_row(job, r);
        cost += (double)(j.end - j.first) *
                (double)(visible_keys(j.end, op->window) + 16);
    }
    *out_cost = cost * op->heads * op->head_dim / 8;
    return status;
}

static row_job make_row_job(const cpu_device *d, const xray_attention *op)
{
    return (row_job){
        .d = d,
        .op = op,
        .parent = op->parent,
        .narrow = cpu_is_narrow(op->dtype),
        .parts = 1,
    };
}

/* ---- forward ------------------------------------------------------------ */

/* Gathers keys and values of a row as the queries from `first` on read them, in
 * the thread's scratch after the scores. */
static void gather_keys(const row_job *job, const joined_row *j, size_t kv,
                        size_t first, size_t last, cpu_attend *a)
{
    const xray_attention *op = job->op;
    size_t dim = op->head_dim;
    size_t wide = round16(op->row_bound);
    float *kt = a->scores + wide * CPU_QUERY_TILE;
    const head_keys k = find_keys(job, kv);
    const head_keys v = find_values(job, kv);
    size_t seen = visible_keys(first + 1, op->window);
    size_t from = (first + 1 - seen) / 16 * 16;
    a->k = kt;
    if (!j->before && !job->narrow) {
        a->v = (const float *)v.x + j->start * v.stride;
        a->v_row = v.stride;
        group_keys(job, j, &k, from, last, kt, NULL, 0);
        return;
    }
    float *rows = kt + wide * dim;
    group_keys(job, j, &k, from, last, kt, rows, 0);
    join_keys(job, j, &v, from, last, rows + from * dim);
    a->v = rows;
    a->v_row = dim;
    a->work = rows + wide * dim;
}

static void run_attention_task(void *ctx, size_t task, size_t thread)
{
    const row_job *job = ctx;
    const xray_attention *op = job->op;
    size_t part = task % job->parts;
    size_t kv = task / job->parts % op->kv_heads;
    joined_row j = join_row(job, task / job->parts / op->kv_heads);
    size_t dim = op->head_dim;
    size_t queries = j.end - j.first;
    size_t first = queries * part / job->parts;
    size_t last = queries * (part + 1) / job->parts;
    size_t tile = smaller(job->d->k->rows, CPU_QUERY_TILE);
    size_t group = op->heads / op->kv_heads;
    if (first == last)
        return;
    cpu_attend a = { .q_row = op->q_stride,
                     .o_row = op->o_stride,
                     .narrow = job->narrow,
                     .lse_row = op->heads,
                     .dim = dim,
                     .step = 1,
                     .window = op->window,
                     .scale = op->scale,
                     .softcap = op->softcap,
                     .block_tokens = (size_t)1 << 40,
                     .scores = job->scratch + thread * job->scratch_floats,
                     .score_row = round16(op->row_bound) };
    gather_keys(job, &j, kv, j.first + first, j.first + last, &a);
    for (size_t h = kv * group; h < (kv + 1) * group; h++)
        for (size_t i = first; i < last; i += a.rows) {
            /* The tiles have nearly equal heights: a low one would wait for its
             * own sums. */
            size_t tiles = (last - i + tile - 1) / tile;
            size_t token = j.query + i;
            a.rows = (last - i + tiles - 1) / tiles;
            a.pos = j.first + i;
            a.q =
                cpu_element(op->q, job->narrow, token * op->q_stride + h * dim);
            a.o =
                cpu_output(op->o, job->narrow, token * op->o_stride + h * dim);
            a.lse = op->lse ? op->lse + token * op->heads + h : NULL;
            job->d->k->attend(&a);
        }
}

xray_status cpu_attention(void *self, xray_stream *stream,
                          const xray_attention *op)
{
    cpu_device *d = self;
    (void)stream;
    CPU_CHECK(d, op, "attention", op->row_start, op->q, op->k, op->v, op->o);
    XR_CHECK_OPERANDS(d->host, "attention", { "q", op->q, op->dtype });
    double cost = 0;
    row_job job = make_row_job(d, op);
    xray_status status = check_rows(&job, "attention", &cost);
    if (status != XRAY_OK)
        return status;
    size_t items = op->rows * op->kv_heads;
    size_t threads = cpu_pool_threads(d->pool);
    if (items < 4 * threads && cost > 1e6)
        job.parts = 4 * threads;
    job.scratch_floats = cpu_attend_floats(op->row_bound, op->head_dim,
                                           job.parent != NULL, job.narrow);
    status = cpu_thread_scratch(d, &job.scratch_floats, &job.scratch);
    if (status != XRAY_OK)
        return status;
    cpu_parallel(d, items * job.parts, cost, run_attention_task, &job);
    return XRAY_OK;
}

/* ---- gradient ----------------------------------------------------------- */

/* The parts of a thread's scratch. */
typedef struct grad_scratch {
    float *kt; /* keys and values in groups of 16 */
    float *vt;
    float *k; /* keys of a parent and a child, joined, or widened keys */
    float *work;
} grad_scratch;

static grad_scratch split_grad_scratch(const row_job *job, size_t thread)
{
    size_t step = round16(job->op->row_bound) * job->op->head_dim;
    grad_scratch r = { .kt = job->scratch + thread * job->scratch_floats };
    r.vt = r.kt + step;
    r.k = r.vt + step;
    r.work = job->parent || job->narrow ? r.k + step : r.k;
    return r;
}

/* Gathers keys and values of a row; for a child only those that its parent has
 * not left in the scratch. */
static void gather_grad_keys(const row_job *job, const joined_row *j, size_t kv,
                             int family, const grad_scratch *scratch,
                             cpu_attend_grad *a)
{
    const head_keys k = find_keys(job, kv);
    const head_keys v = find_values(job, kv);
    size_t complete = j->before / 16 * 16;
    if (!family && !job->narrow) {
        a->k = (const float *)k.x + j->start * k.stride;
        a->k_row = k.stride;
        group_keys(job, j, &k, 0, j->n, scratch->kt, NULL, 0);
        group_keys(job, j, &v, 0, j->n, scratch->vt, NULL, 0);
        return;
    }
    a->k = scratch->k;
    a->k_row = job->op->head_dim;
    /* Rows of values are not read any more once they are in groups; those of
     * earlier keys stay as they are. */
    group_keys(job, j, &v, complete, j->n, scratch->vt,
               scratch->k + complete * a->k_row, 0);
    group_keys(job, j, &k, complete, j->n, scratch->kt, scratch->k, 1);
}

/* Adds the sums of keys [first, last) to the tokens from `token` on. */
static void add_key_sums(const row_job *job, size_t kv, const float *sums,
                         const size_t keys[2], size_t token)
{
    const xray_attention_grad *g = job->grad;
    size_t dim = job->op->head_dim;
    const float *dk = sums;
    const float *dv = sums + round16(job->op->row_bound) * dim;
    for (size_t j = keys[0]; j < keys[1]; j++, token++) {
        job->d->k->scaled(g->dk + token * g->dk_stride + kv * dim, dk + j * dim,
                          job->op->scale, dim);
        memcpy(g->dv + token * g->dv_stride + kv * dim, dv + j * dim,
               dim * sizeof(*dv));
    }
}

/* Does the gradient of one kv head over one row. */
static void grad_row(const row_job *job, const joined_row *j, size_t kv,
                     int family, const grad_scratch *scratch)
{
    const xray_attention *op = job->op;
    const xray_attention_grad *g = job->grad;
    size_t dim = op->head_dim;
    size_t group = op->heads / op->kv_heads;
    size_t head = kv * group;
    cpu_attend_grad a = {
        .q = cpu_element(op->q, job->narrow,
                         j->query * op->q_stride + head * dim),
        .o = cpu_element(op->o, job->narrow,
                         j->query * op->o_stride + head * dim),
        .narrow = job->narrow,
        .d_o = g->d_o + j->query * op->o_stride + head * dim,
        .lse = op->lse + j->query * op->heads + head,
        .dq = g->dq + j->query * g->dq_stride + head * dim,
        .q_row = op->q_stride,
        .o_row = op->o_stride,
        .lse_row = op->heads,
        .dq_row = g->dq_stride,
        .own = j->before,
        .first = j->first,
        .end = j->end,
        .n = j->n,
        .bound = round16(op->row_bound),
        .heads = group,
        .dim = dim,
        .window = op->window,
        .scale = op->scale,
        .softcap = op->softcap,
        .kt = scratch->kt,
        .vt = scratch->vt,
        .work = scratch->work,
    };
    gather_grad_keys(job, j, kv, family, scratch, &a);
    job->d->k->attend_grad(&a);
}

/* Does a row without a parent, then its children; the sums of its keys continue
 * from row to row. */
static void run_grad_task(void *ctx, size_t task, size_t thread)
{
    const row_job *job = ctx;
    const xray_attention *op = job->op;
    size_t kv = task % op->kv_heads;
    size_t row = task / op->kv_heads;
    grad_scratch scratch = split_grad_scratch(job, thread);
    if (job->parent && job->parent[row] >= 0)
        return; /* was done together with its parent */
    joined_row parent = join_row(job, row);
    int family = job->parent && row + 1 < op->rows && job->parent[row + 1] >= 0;
    if (parent.n)
        grad_row(job, &parent, kv, family, &scratch);
    for (row++; family && row < op->rows && job->parent[row] >= 0; row++) {
        joined_row child = join_row(job, row);
        const size_t own[2] = { child.before, child.n };
        grad_row(job, &child, kv, 1, &scratch);
        add_key_sums(job, kv, scratch.work, own, child.start);
    }
    const size_t all[2] = { 0, parent.n };
    add_key_sums(job, kv, scratch.work, all, parent.start);
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
    XR_CHECK_OPERANDS(d->host, "attention_grad", { "q", f->q, f->dtype });
    double cost = 0;
    row_job job = make_row_job(d, f);
    xray_status status = check_rows(&job, "attention_grad", &cost);
    if (status != XRAY_OK)
        return status;
    uint64_t kv = (uint64_t)f->kv_heads * f->head_dim;
    if (op->dq_stride < (uint64_t)f->heads * f->head_dim ||
        op->dk_stride < kv || op->dv_stride < kv)
        return cpu_fail(d, XRAY_E_ARG, "attention_grad",
                        "a stride is shorter than a token");
    job.grad = op;
    job.scratch_floats = cpu_attend_grad_floats(f->row_bound, f->head_dim,
                                                job.parent != NULL, job.narrow);
    status = cpu_thread_scratch(d, &job.scratch_floats, &job.scratch);
    if (status != XRAY_OK)
        return status;
    cpu_parallel(d, f->rows * f->kv_heads, cost * 3, run_grad_task, &job);
    return XRAY_OK;
}
