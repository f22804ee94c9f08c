/* SPDX-License-Identifier: Apache-2.0
 *
 * From hidden states to log-probabilities, their gradient, and draws. Logits
 * exist for a chunk of items; trainer and engine get theirs from one function.
 */
#include <math.h>
#include <string.h>

#include "plugins/device-cpu/device.h"
#include "plugins/device-cpu/support.h"

#define CHUNK_FLOATS ((size_t)4 << 20) /* 16 MiB of logits */
#define CHUNK_MIN 16
#define CHUNK_MAX 1024

typedef struct head_job {
    const cpu_device *d;
    const xray_lm_head_logp *op;
    const xray_lm_head_grad *grad;
    const xray_sample *sample;
    float *z; /* [chunk, row] */
    size_t row;
    size_t vocab;
    size_t first;   /* item of z's first row */
    float *scratch; /* sample: CPU_SUPPORT_ROWS rows for each thread */
    size_t scratch_floats;
    size_t step; /* sample: items of a task */
    size_t count;
} head_job;

/* Room for the logits of a chunk of items, unless there is some for all. */
static xray_status head_begin(cpu_device *d, head_job *job,
                              const xray_weight *w, size_t *out_chunk)
{
    job->d = d;
    job->vocab = w->rows;
    job->row = (w->rows + 15) / 16 * 16;
    size_t chunk = CHUNK_FLOATS / job->row;
    chunk = chunk < CHUNK_MIN ? CHUNK_MIN : chunk;
    chunk = chunk > CHUNK_MAX ? CHUNK_MAX : chunk;
    *out_chunk = chunk;
    if (job->op && job->op->logits)
        return XRAY_OK;
    /* Of any number of items, so that a later step never takes more; pages
     * that no item reaches stay untouched. */
    return cpu_scratch(d, CPU_SCRATCH_HEAD, chunk * job->row, &job->z);
}

/* The next items of n, at most a chunk. */
static void head_next(head_job *job, size_t n, size_t chunk)
{
    job->count = n - job->first < chunk ? n - job->first : chunk;
    if (job->op && job->op->logits)
        job->z = job->op->logits + job->first * job->row;
}

static xray_status head_logits(cpu_device *d, head_job *job, const char *where,
                               const xray_weight *w, const float *x)
{
    cpu_product p = { .weight = w,
                      .x = x + job->first * w->cols,
                      .y = job->z,
                      .x_row = w->cols,
                      .y_row = job->row,
                      .tokens = job->count,
                      .kind = XRAY_NT };
    return cpu_product_run(d, where, &p);
}

/* z / temperature into `to`, and its sums. No operation at temperature 1. */
static const float *tempered(const head_job *job, const float *z, float *to,
                             float temperature, cpu_lse *out)
{
    if (temperature != 1.0f) {
        job->d->k->divide(to, z, temperature, job->vocab);
        z = to;
    }
    job->d->k->lse(z, job->vocab, out);
    return z;
}

static float log_prob(const head_job *job, float z, const cpu_lse *l)
{
    return (z - l->max) - job->d->k->log(l->sum);
}

/* ---- log-probabilities -------------------------------------------------- */

/* Logits as the sums want them. Those that are kept stay as they came: from
 * them the gradient takes the slope of the softcap. */
static float *capped(const head_job *job, float *z, float *scratch)
{
    if (job->op->softcap == 0.0f)
        return z;
    if (job->op->logits) {
        memcpy(scratch, z, job->vocab * sizeof(float));
        z = scratch;
    }
    job->d->k->softcap(z, job->op->softcap, job->vocab);
    return z;
}

static void head_item(const head_job *job, size_t r, float *scratch)
{
    const xray_lm_head_logp *op = job->op;
    size_t i = job->first + r;
    float *raw = capped(job, job->z + r * job->row, scratch);
    float temperature = op->temperature ? op->temperature[i] : 1.0f;
    cpu_lse l;
    const float *z =
        tempered(job, raw, op->logits ? scratch : raw, temperature, &l);
    uint64_t at = (uint64_t)op->targets[i] - op->vocab_first;
    if (op->partial) {
        float *to = op->partial + 4 * i;
        to[0] = l.max;
        to[1] = l.sum;
        to[2] = fmaf(l.max, l.sum, l.moment);
        to[3] = at < job->vocab ? z[at] : 0.0f;
        return;
    }
    op->logp[i] = log_prob(job, z[at], &l);
    float log_sum = job->d->k->log(l.sum);
    if (op->entropy)
        op->entropy[i] = log_sum - l.moment / l.sum;
    if (op->lse)
        op->lse[i] = l.max + log_sum;
}

static void head_task(void *ctx, size_t task, size_t thread)
{
    const head_job *job = ctx;
    size_t first = task * job->step;
    for (size_t r = first; r < first + job->step && r < job->count; r++)
        head_item(job, r, job->scratch + thread * job->scratch_floats);
}

/* Items of a task: a few tasks for each thread. */
static size_t head_step(const cpu_device *d, size_t count)
{
    size_t parts = (size_t)cpu_pool_threads(d->pool) * 4;
    return (count + parts - 1) / parts;
}

static xray_status check_head(const cpu_device *d, const char *where,
                              const xray_lm_head_logp *op, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t at = (uint64_t)op->targets[i] - op->vocab_first;
        if (op->targets[i] < 0 || (!op->partial && at >= op->weight->rows))
            return cpu_fail(
                d, XRAY_E_RANGE, where,
                "target %d of item %zu is not in [%llu, %llu)", op->targets[i],
                i, (unsigned long long)op->vocab_first,
                (unsigned long long)(op->vocab_first + op->weight->rows));
        if (op->temperature && !(op->temperature[i] > 0.0f))
            return cpu_fail(d, XRAY_E_RANGE, where,
                            "temperature %g of item %zu is not above 0",
                            (double)op->temperature[i], i);
    }
    return XRAY_OK;
}

xray_status cpu_lm_head_logp(void *self, xray_stream *stream,
                             const xray_lm_head_logp *op)
{
    cpu_device *d = self;
    (void)stream;
    CPU_CHECK(d, op, "lm_head_logp", op->weight, op->x, op->targets,
              op->partial ? op->partial : op->logp);
    size_t n = cpu_count(&op->items);
    head_job job = { .op = op };
    size_t chunk;
    xray_status status = check_head(d, "lm_head_logp", op, n);
    if (status == XRAY_OK)
        status = head_begin(d, &job, op->weight, &chunk);
    if (op->logits)
        job.scratch_floats = job.row;
    if (status == XRAY_OK)
        status = cpu_thread_scratch(d, &job.scratch_floats, &job.scratch);
    for (; status == XRAY_OK && job.first < n; job.first += chunk) {
        head_next(&job, n, chunk);
        job.step = head_step(d, job.count);
        status = head_logits(d, &job, "lm_head_logp", op->weight, op->x);
        if (status == XRAY_OK)
            cpu_parallel(d, (job.count + job.step - 1) / job.step,
                         (double)job.count * (double)job.vocab * 3, head_task,
                         &job);
    }
    return status;
}

/* ---- gradient ----------------------------------------------------------- */

static void head_grad_rows(void *ctx, size_t first, size_t last)
{
    const head_job *job = ctx;
    const xray_lm_head_grad *op = job->grad;
    const xray_lm_head_logp *f = op->forward;
    for (size_t r = first; r < last; r++) {
        size_t i = job->first + r;
        cpu_dz dz = { .dlogp = op->dlogp[i],
                      .dentropy = op->dentropy ? op->dentropy[i] : 0.0f,
                      .lse = f->lse[i],
                      .entropy = f->entropy ? f->entropy[i] : 0.0f,
                      .temperature = f->temperature ? f->temperature[i] : 1.0f,
                      .softcap = f->softcap,
                      .target =
                          (int64_t)f->targets[i] - (int64_t)f->vocab_first };
        job->d->k->head_dz(job->z + r * job->row, job->vocab, &dz);
    }
}

/* dx and dweight of the chunk whose dz is in place. */
static xray_status head_grad_chunk(cpu_device *d, const head_job *job)
{
    const xray_lm_head_grad *op = job->grad;
    const xray_weight *w = op->forward->weight;
    cpu_product p = { .weight = w,
                      .x = job->z,
                      .y = op->dx + job->first * w->cols,
                      .x_row = job->row,
                      .y_row = w->cols,
                      .tokens = job->count,
                      .kind = XRAY_NN };
    xray_status status = cpu_product_run(d, "lm_head_grad", &p);
    if (status != XRAY_OK || !op->dweight)
        return status;
    xray_matmul_grad fold = { .dy = job->z,
                              .x = op->forward->x + job->first * w->cols,
                              .dy_stride = job->row,
                              .x_stride = w->cols,
                              .rows = w->rows,
                              .cols = w->cols,
                              .dw = op->dweight };
    return cpu_fold(d, &fold, job->count);
}

xray_status cpu_lm_head_grad(void *self, xray_stream *stream,
                             const xray_lm_head_grad *op)
{
    cpu_device *d = self;
    (void)stream;
    CPU_CHECK(d, op, "lm_head_grad", op->forward, op->dlogp, op->dx);
    const xray_lm_head_logp *f = op->forward;
    CPU_CHECK(d, f, "lm_head_grad", f->weight, f->x, f->targets, f->lse);
    if (op->dentropy && !f->entropy)
        return cpu_fail(d, XRAY_E_ARG, "lm_head_grad",
                        "dentropy is given, but the forward call kept no "
                        "entropy");
    size_t n = cpu_count(&f->items);
    head_job job = { .op = f, .grad = op };
    size_t chunk;
    xray_status status = check_head(d, "lm_head_grad", f, n);
    if (status == XRAY_OK)
        status = head_begin(d, &job, f->weight, &chunk);
    for (; status == XRAY_OK && job.first < n; job.first += chunk) {
        head_next(&job, n, chunk);
        if (!f->logits)
            status = head_logits(d, &job, "lm_head_grad", f->weight, f->x);
        if (status != XRAY_OK)
            break;
        cpu_ranges(d, job.count, 1, (double)job.vocab * 3, head_grad_rows,
                   &job);
        status = head_grad_chunk(d, &job);
    }
    return status;
}

/* ---- draws -------------------------------------------------------------- */

static const xray_draw *draw_at(const xray_sample *op, size_t i)
{
    const char *draws = (const char *)op->draws;
    return (const xray_draw *)(const void *)(draws + i * op->draw_stride);
}

static void sample_item(const head_job *job, size_t r, float *scratch)
{
    const xray_sample *op = job->sample;
    const cpu_kernels *k = job->d->k;
    size_t i = job->first + r;
    float *z = job->z + r * job->row;
    const xray_draw *draw = draw_at(op, i);
    cpu_lse raw;
    if (op->softcap != 0.0f)
        k->softcap(z, op->softcap, job->vocab);
    if (op->logits)
        memcpy(op->logits + i * job->vocab, z, job->vocab * sizeof(float));
    k->lse(z, job->vocab, &raw);
    if (draw->temperature == 0.0f) {
        size_t token = k->argmax(z, job->vocab);
        op->token[i] = (int32_t)token;
        op->raw_logp[i] = log_prob(job, z[token], &raw);
        op->logp[i] = op->raw_logp[i];
        return;
    }
    cpu_lse l = raw;
    const float *zt = z;
    if (draw->temperature != 1.0f)
        zt = tempered(job, z, scratch, draw->temperature, &l);
    float floor =
        cpu_support_floor(k, zt, job->vocab, draw, l.max, scratch + job->row);
    size_t token = k->gumbel(zt, job->vocab, floor, draw);
    op->token[i] = (int32_t)token;
    op->raw_logp[i] = log_prob(job, z[token], &raw);
    op->logp[i] = log_prob(job, zt[token], &l);
}

static void sample_task(void *ctx, size_t task, size_t thread)
{
    const head_job *job = ctx;
    size_t first = task * job->step;
    for (size_t r = first; r < first + job->step && r < job->count; r++)
        sample_item(job, r, job->scratch + thread * job->scratch_floats);
}

static xray_status check_sample(const cpu_device *d, const xray_sample *op,
                                size_t n)
{
    if (op->draw_stride < sizeof(xray_draw))
        return cpu_fail(d, XRAY_E_ARG, "sample", "draw_stride is %u",
                        op->draw_stride);
    for (size_t i = 0; i < n; i++) {
        const xray_draw *draw = draw_at(op, i);
        if (!(draw->temperature >= 0.0f) || draw->top_k < 0 ||
            !(draw->top_p >= 0.0f) || !(draw->min_p <= 1.0f))
            return cpu_fail(d, XRAY_E_RANGE, "sample",
                            "item %zu: temperature %g, top_p %g, min_p %g, "
                            "top_k %d",
                            i, (double)draw->temperature, (double)draw->top_p,
                            (double)draw->min_p, draw->top_k);
    }
    return XRAY_OK;
}

xray_status cpu_sample(void *self, xray_stream *stream, const xray_sample *op)
{
    cpu_device *d = self;
    (void)stream;
    CPU_CHECK(d, op, "sample", op->weight, op->x, op->draws, op->token,
              op->raw_logp, op->logp);
    size_t n = cpu_count(&op->items);
    head_job job = { .sample = op };
    size_t chunk;
    xray_status status = check_sample(d, op, n);
    if (status == XRAY_OK)
        status = head_begin(d, &job, op->weight, &chunk);
    job.scratch_floats = job.row * (1 + CPU_SUPPORT_ROWS);
    if (status == XRAY_OK)
        status = cpu_thread_scratch(d, &job.scratch_floats, &job.scratch);
    for (; status == XRAY_OK && job.first < n; job.first += chunk) {
        head_next(&job, n, chunk);
        job.step = head_step(d, job.count);
        status = head_logits(d, &job, "sample", op->weight, op->x);
        if (status == XRAY_OK)
            cpu_parallel(d, (job.count + job.step - 1) / job.step,
                         (double)job.count * (double)job.vocab * 8, sample_task,
                         &job);
    }
    return status;
}
