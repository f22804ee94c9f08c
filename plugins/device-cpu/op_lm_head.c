/* SPDX-License-Identifier: Apache-2.0
 *
 * The LM head on the CPU: log-probabilities of tokens from hidden states, their
 * gradient, and sampling. Logits exist for one chunk of items at a time. The
 * trainer and the engine compute them with the same function.
 */
#include <math.h>
#include <string.h>

#include "plugins/device-cpu/device.h"
#include "plugins/device-cpu/support.h"

typedef struct lm_head_job {
    const cpu_device *d;
    const xray_lm_head_logp *op;
    const xray_lm_head_grad *grad;
    const xray_sample *sample;
    float *z; /* [chunk, row] */
    size_t row;
    size_t vocab;
    size_t first;   /* the item in z's first row */
    float *scratch; /* sample: CPU_SUPPORT_ROWS rows per thread */
    size_t scratch_floats;
    size_t task_items; /* sample: items per task */
    size_t count;
} lm_head_job;

/* Gets scratch for the logits of a chunk of items, unless the caller gave
 * memory for all of them. */
static xray_status reserve_logits(cpu_device *d, lm_head_job *job, size_t vocab,
                                  size_t *out_chunk)
{
    job->d = d;
    job->vocab = vocab;
    job->row = (vocab + 15) / 16 * 16;
    size_t chunk = cpu_logits_chunk(job->row);
    *out_chunk = chunk;
    if (job->op && job->op->logits)
        return XRAY_OK;
    /* Enough for any number of items, so that a later call never needs more.
     * Pages that no item reaches take no memory. */
    return cpu_scratch(d, CPU_SCRATCH_LOGITS, chunk * job->row, &job->z);
}

/* Advances to the next items of n, at most a chunk. */
static void next_chunk(lm_head_job *job, size_t n, size_t chunk)
{
    job->count = n - job->first < chunk ? n - job->first : chunk;
    if (job->op && job->op->logits)
        job->z = job->op->logits + job->first * job->row;
}

static xray_status compute_logits(cpu_device *d, lm_head_job *job,
                                  const char *where, const xray_weight *w,
                                  const void *x, uint32_t x_dtype)
{
    int narrow = cpu_is_narrow(x_dtype);
    cpu_product p = { .weight = w,
                      .x = cpu_element(x, narrow, job->first * w->cols),
                      .x_narrow = narrow,
                      .y = job->z,
                      .x_row = w->cols,
                      .y_row = job->row,
                      .tokens = job->count,
                      .kind = XRAY_NT };
    return cpu_product_run(d, where, &p);
}

/* Writes z / temperature to `to`. At temperature 1 nothing is written. */
static const float *scale_logits(const lm_head_job *job, const float *z,
                                 float *to, float temperature)
{
    if (temperature == 1.0f)
        return z;
    job->d->k->divide(to, z, temperature, job->vocab);
    return to;
}

static float token_logp(const lm_head_job *job, float z, const cpu_lse *l)
{
    return (z - l->max) - job->d->k->log(l->sum);
}

/* ---- log-probabilities -------------------------------------------------- */

/* Logits with the softcap applied, for the sums. Logits that the caller keeps
 * stay without it, because the gradient derives the slope of the softcap from
 * them. */
static float *softcap_logits(const lm_head_job *job, float *z, float *scratch)
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

static void score_item(const lm_head_job *job, size_t r, float *scratch)
{
    const xray_lm_head_logp *op = job->op;
    size_t i = job->first + r;
    float *raw = softcap_logits(job, job->z + r * job->row, scratch);
    float temperature = op->temperature ? op->temperature[i] : 1.0f;
    const float *z =
        scale_logits(job, raw, op->logits ? scratch : raw, temperature);
    cpu_lse l;
    job->d->k->lse(z, job->vocab, op->segment, op->top ? op->top + i : NULL,
                   &l);
    uint64_t at = (uint64_t)op->targets[i] - op->vocab_first;
    if (op->partial) {
        float *to = op->partial + 4 * i;
        to[0] = l.max;
        to[1] = l.sum;
        to[2] = l.moment;
        to[3] = at < job->vocab ? z[at] : 0.0f;
        return;
    }
    op->logp[i] = token_logp(job, z[at], &l);
    float log_sum = job->d->k->log(l.sum);
    if (op->entropy)
        op->entropy[i] = log_sum - l.moment / l.sum;
    if (op->lse)
        op->lse[i] = l.max + log_sum;
}

static void score_items_task(void *ctx, size_t task, size_t thread)
{
    const lm_head_job *job = ctx;
    size_t first = task * job->task_items;
    for (size_t r = first; r < first + job->task_items && r < job->count; r++)
        score_item(job, r, job->scratch + thread * job->scratch_floats);
}

/* The number of items per task: a few tasks per thread. */
static size_t items_per_task(const cpu_device *d, size_t count)
{
    size_t parts = (size_t)cpu_pool_threads(d->pool) * 4;
    return (count + parts - 1) / parts;
}

static xray_status check_lm_head(const cpu_device *d, const char *where,
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
    return cpu_check_segment(d, where, op->weight->rows, op->segment);
}

xray_status cpu_lm_head_logp(void *self, xray_stream *stream,
                             const xray_lm_head_logp *op)
{
    cpu_device *d = self;
    (void)stream;
    CPU_CHECK(d, op, "lm_head_logp", op->weight, op->kept ? op->logits : op->x,
              op->targets, op->partial ? op->partial : op->logp);
    XR_CHECK_OPERANDS(d->host, "lm_head_logp", XR_OPERAND(op, x));
    size_t n = cpu_count(&op->items);
    lm_head_job job = { .op = op };
    size_t chunk;
    xray_status status = check_lm_head(d, "lm_head_logp", op, n);
    if (status != XRAY_OK)
        return status;
    status = reserve_logits(d, &job, op->weight->rows, &chunk);
    if (status != XRAY_OK)
        return status;
    if (op->logits)
        job.scratch_floats = job.row;
    status = cpu_thread_scratch(d, &job.scratch_floats, &job.scratch);
    if (status != XRAY_OK)
        return status;
    for (; job.first < n; job.first += chunk) {
        next_chunk(&job, n, chunk);
        job.task_items = items_per_task(d, job.count);
        if (!op->kept)
            status = compute_logits(d, &job, "lm_head_logp", op->weight, op->x,
                                    op->x_dtype);
        if (status != XRAY_OK)
            return status;
        cpu_parallel(d, (job.count + job.task_items - 1) / job.task_items,
                     (double)job.count * (double)job.vocab * 3,
                     score_items_task, &job);
    }
    return XRAY_OK;
}

/* ---- gradient ----------------------------------------------------------- */

static void logit_grad_range(void *ctx, size_t first, size_t last)
{
    const lm_head_job *job = ctx;
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
        job->d->k->lm_head_dz(job->z + r * job->row, job->vocab, &dz);
    }
}

/* Computes dx and dweight of the chunk whose dz is in place. */
static xray_status add_chunk_grads(cpu_device *d, const lm_head_job *job)
{
    const xray_lm_head_grad *op = job->grad;
    const xray_weight *w = op->forward->weight;
    const size_t segment =
        op->forward->segment ? op->forward->segment : w->rows;
    cpu_product p = { .weight = w,
                      .x = job->z,
                      .y = op->dx + job->first * w->cols,
                      .x_row = job->row,
                      .y_row = w->cols,
                      .tokens = job->count,
                      .kind = XRAY_NN,
                      .segments = (uint32_t)((w->rows - 1) / segment + 1),
                      .piece = { segment } };
    xray_status status = cpu_product_run(d, "lm_head_grad", &p);
    if (status != XRAY_OK || !op->dweight)
        return status;
    const xray_lm_head_logp *f = op->forward;
    const int narrow = cpu_is_narrow(f->x_dtype);
    xray_matmul_grad fold = { .dy = job->z,
                              .x = cpu_element(f->x, narrow,
                                               job->first * w->cols),
                              .x_dtype = f->x_dtype,
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
    XR_CHECK_OPERANDS(d->host, "lm_head_grad", XR_OPERAND(f, x));
    if (op->dweight && !(f->weight->uses & XRAY_USE_TN))
        return cpu_fail(d, XRAY_E_STATE, "lm_head_grad",
                        "dweight needs a weight with XRAY_USE_TN among its "
                        "uses");
    if (op->dentropy && !f->entropy)
        return cpu_fail(d, XRAY_E_ARG, "lm_head_grad",
                        "dentropy is given, but the forward call did not keep "
                        "entropy");
    size_t n = cpu_count(&f->items);
    lm_head_job job = { .op = f, .grad = op };
    size_t chunk;
    xray_status status = check_lm_head(d, "lm_head_grad", f, n);
    if (status != XRAY_OK)
        return status;
    status = reserve_logits(d, &job, f->weight->rows, &chunk);
    if (status != XRAY_OK)
        return status;
    for (; job.first < n; job.first += chunk) {
        next_chunk(&job, n, chunk);
        if (!f->logits)
            status = compute_logits(d, &job, "lm_head_grad", f->weight, f->x,
                                    f->x_dtype);
        if (status != XRAY_OK)
            return status;
        cpu_ranges(d, job.count, 1, (double)job.vocab * 3, logit_grad_range,
                   &job);
        status = add_chunk_grads(d, &job);
        if (status != XRAY_OK)
            return status;
    }
    return XRAY_OK;
}

/* ---- sampling ----------------------------------------------------------- */

static const xray_draw *item_draw(const xray_sample *op, size_t i)
{
    const char *draws = (const char *)op->draws;
    return (const xray_draw *)(const void *)(draws + i * op->draw_stride);
}

/* Draws from logits at the draw's temperature, of which `max` is the largest.
 * Where all of them are minus infinity, the token is the most likely one of
 * z. */
static size_t draw_token(const lm_head_job *job, const float *drawn, float max,
                         const xray_draw *draw, const float *z, float *scratch)
{
    const cpu_kernels *k = job->d->k;
    if (!(max > -INFINITY))
        return k->argmax(z, job->vocab);
    if (draw->temperature == 0.0f)
        return k->argmax(drawn, job->vocab);
    float floor = cpu_support_floor(k, drawn, job->vocab, draw, max, scratch);
    return k->gumbel(drawn, job->vocab, floor, draw);
}

static void sample_item(const lm_head_job *job, size_t r, float *scratch)
{
    const xray_sample *op = job->sample;
    const cpu_kernels *k = job->d->k;
    size_t i = job->first + r;
    float *z = job->z + r * job->row;
    const xray_draw *draw = item_draw(op, i);
    float temperature = draw->temperature == 0.0f ? 1.0f : draw->temperature;
    cpu_lse raw;
    cpu_lse l;
    if (op->logits)
        memcpy(z, op->logits + i * op->logits_stride,
               job->vocab * sizeof(float));
    if (op->softcap != 0.0f)
        k->softcap(z, op->softcap, job->vocab);
    k->lse(z, job->vocab, op->segment, NULL, &raw);
    l = raw;
    const float *drawn = scale_logits(job, z, scratch, temperature);
    if (drawn != z)
        k->lse(drawn, job->vocab, op->segment, NULL, &l);
    float max = l.max;
    if (op->changed) {
        drawn = op->changed + i * op->logits_stride;
        if (temperature != 1.0f) {
            k->divide(scratch, drawn, temperature, job->vocab);
            drawn = scratch;
        }
        max = drawn[k->argmax(drawn, job->vocab)];
    }
    size_t token = draw_token(job, drawn, max, draw, z, scratch + job->row);
    op->token[i] = (int32_t)token;
    op->raw_logp[i] = token_logp(job, z[token], &raw);
    op->logp[i] = token_logp(job, z[token] / temperature, &l);
}

static void sample_items_task(void *ctx, size_t task, size_t thread)
{
    const lm_head_job *job = ctx;
    size_t first = task * job->task_items;
    for (size_t r = first; r < first + job->task_items && r < job->count; r++)
        sample_item(job, r, job->scratch + thread * job->scratch_floats);
}

static xray_status check_sample(const cpu_device *d, const xray_sample *op,
                                size_t n)
{
    if (!op->weight == !op->logits || (op->weight && (!op->x || op->changed)))
        return cpu_fail(d, XRAY_E_ARG, "sample",
                        "either a weight and x or logits, and with logits "
                        "perhaps changed ones, must be given");
    if (op->draw_stride < sizeof(xray_draw))
        return cpu_fail(
            d, XRAY_E_ARG, "sample",
            "draw_stride is %u, which does not fit an array of draws",
            op->draw_stride);
    for (size_t i = 0; i < n; i++) {
        const xray_draw *draw = item_draw(op, i);
        if (!(draw->temperature >= 0.0f) || draw->top_k < 0 ||
            !(draw->top_p >= 0.0f) || !(draw->min_p <= 1.0f))
            return cpu_fail(d, XRAY_E_RANGE, "sample",
                            "item %zu has a draw out of range: temperature %g, "
                            "top_p %g, min_p %g, top_k %d",
                            i, (double)draw->temperature, (double)draw->top_p,
                            (double)draw->min_p, draw->top_k);
    }
    return XRAY_OK;
}

xray_status cpu_sample(void *self, xray_stream *stream, const xray_sample *op)
{
    cpu_device *d = self;
    (void)stream;
    CPU_CHECK(d, op, "sample", op->draws, op->token, op->raw_logp, op->logp);
    XR_CHECK_OPERANDS(d->host, "sample", XR_OPERAND(op, x));
    size_t n = cpu_count(&op->items);
    lm_head_job job = { .sample = op };
    size_t chunk;
    xray_status status = check_sample(d, op, n);
    if (status == XRAY_OK && op->logits)
        status = cpu_check_logits(d, "sample", op->vocab, op->logits_stride);
    size_t vocab = op->weight ? op->weight->rows : op->vocab;
    if (status == XRAY_OK)
        status = cpu_check_segment(d, "sample", vocab, op->segment);
    if (status == XRAY_OK)
        status = reserve_logits(d, &job, vocab, &chunk);
    if (status != XRAY_OK)
        return status;
    job.scratch_floats = job.row * (1 + CPU_SUPPORT_ROWS);
    status = cpu_thread_scratch(d, &job.scratch_floats, &job.scratch);
    if (status != XRAY_OK)
        return status;
    for (; job.first < n; job.first += chunk) {
        next_chunk(&job, n, chunk);
        job.task_items = items_per_task(d, job.count);
        if (op->weight)
            status = compute_logits(d, &job, "sample", op->weight, op->x,
                                    op->x_dtype);
        if (status != XRAY_OK)
            return status;
        cpu_parallel(d, (job.count + job.task_items - 1) / job.task_items,
                     (double)job.count * (double)job.vocab * 8,
                     sample_items_task, &job);
    }
    return XRAY_OK;
}
