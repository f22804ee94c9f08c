/* SPDX-License-Identifier: Apache-2.0
 *
 * Logits between the LM head and the draw on the CPU: edits, log-probabilities
 * of several ids of an item, and the results of vocabulary slices joined.
 */
#include <math.h>
#include <string.h>

#include <xray/comm.h>

#include "plugins/device-cpu/device.h"

xray_status cpu_check_logits(const cpu_device *d, const char *where,
                             uint64_t vocab, uint64_t stride)
{
    if (vocab == 0 || vocab > INT32_MAX || stride < vocab)
        return cpu_fail(d, XRAY_E_ARG, where,
                        "a vocabulary of %llu must have 1 to 2147483647 ids "
                        "and fit a stride of %llu",
                        (unsigned long long)vocab, (unsigned long long)stride);
    return XRAY_OK;
}

xray_status cpu_check_segment(const cpu_device *d, const char *where,
                              uint64_t vocab, uint64_t segment)
{
    if (segment && (vocab - 1) / segment >= XRAY_SEGMENTS)
        return cpu_fail(d, XRAY_E_ARG, where,
                        "segment is %llu, but a vocabulary of %llu must have "
                        "at most %u segments",
                        (unsigned long long)segment, (unsigned long long)vocab,
                        XRAY_SEGMENTS);
    return XRAY_OK;
}

/* ---- edits -------------------------------------------------------------- */

typedef struct edit_job {
    const cpu_device *d;
    const xray_edit_logits *op;
} edit_job;

static void apply_edits(const xray_edit_logits *op, size_t i, float *z)
{
    const char *edits = (const char *)op->edits;
    for (int32_t n = op->edit_start[i]; n < op->edit_start[i + 1]; n++) {
        const xray_logit_edit *e =
            (const void *)(edits + (size_t)n * op->edit_stride);
        if (e->id < 0 || (uint64_t)e->id >= op->vocab)
            continue;
        float x = z[e->id];
        if (e->penalty != 0.0f && e->penalty != 1.0f)
            x = x > 0.0f ? x / e->penalty : x * e->penalty;
        z[e->id] = x + e->add;
    }
}

static void exclude_ids(float *z, size_t vocab, const uint32_t *allowed)
{
    for (size_t j = 0; j < vocab; j++)
        if (!(allowed[j / 32] >> j % 32 & 1))
            z[j] = -INFINITY;
}

static void edit_range(void *ctx, size_t first, size_t last)
{
    const edit_job *job = ctx;
    const xray_edit_logits *op = job->op;
    for (size_t i = first; i < last; i++) {
        float *z = op->changed + i * op->stride;
        if (op->changed != op->logits)
            memcpy(z, op->logits + i * op->stride, op->vocab * sizeof(float));
        if (op->softcap != 0.0f)
            job->d->k->softcap(z, op->softcap, op->vocab);
        if (op->edits)
            apply_edits(op, i, z);
        if (op->allowed && op->allowed_set[i] >= 0)
            exclude_ids(z, op->vocab,
                        op->allowed + (size_t)op->allowed_set[i] *
                                          ((op->vocab + 31) / 32));
    }
}

static xray_status check_edits(const cpu_device *d, const xray_edit_logits *op,
                               size_t n)
{
    if (!op->edit_start != !op->edits || !op->allowed != !op->allowed_set)
        return cpu_fail(d, XRAY_E_ARG, "edit_logits",
                        "edits need edit_start, allowed needs allowed_set, and "
                        "the other way round");
    if (op->edits && (op->edit_stride < sizeof(xray_logit_edit) ||
                      op->edit_stride % sizeof(float) != 0))
        return cpu_fail(
            d, XRAY_E_ARG, "edit_logits",
            "edit_stride is %u, which does not fit an array of edits",
            op->edit_stride);
    for (size_t i = 0; op->edits && i < n; i++)
        if (op->edit_start[i] < 0 || op->edit_start[i + 1] < op->edit_start[i])
            return cpu_fail(d, XRAY_E_RANGE, "edit_logits",
                            "item %zu has edits %d to %d", i, op->edit_start[i],
                            op->edit_start[i + 1]);
    return cpu_check_logits(d, "edit_logits", op->vocab, op->stride);
}

xray_status cpu_edit_logits(void *self, xray_stream *stream,
                            const xray_edit_logits *op)
{
    cpu_device *d = self;
    (void)stream;
    CPU_CHECK(d, op, "edit_logits", op->logits, op->changed);
    size_t n = cpu_count(&op->items);
    edit_job job = { d, op };
    xray_status status = check_edits(d, op, n);
    if (status == XRAY_OK)
        cpu_ranges(d, n, 1, (double)op->vocab * 2, edit_range, &job);
    return status;
}

/* ---- log-probabilities of several ids ----------------------------------- */

typedef struct pick_job {
    const cpu_device *d;
    const xray_pick_logp *op;
    float *scratch; /* a row per thread, for the softcap */
    size_t row;
} pick_job;

/* Whether id a comes behind id b. */
static int is_less_likely(const float *z, int32_t a, int32_t b)
{
    return z[a] < z[b] || (z[a] == z[b] && a > b);
}

/* Moves the first of n ids down a heap whose first id is the least likely. */
static void sift_id(const float *z, int32_t *ids, size_t n, size_t at)
{
    int32_t moved = ids[at];
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && is_less_likely(z, ids[child + 1], ids[child]))
            child++;
        if (!is_less_likely(z, ids[child], moved))
            break;
        ids[at] = ids[child];
    }
    ids[at] = moved;
}

/* Finds the most likely ids in descending order. A heap of the best ones so far
 * makes it one pass over the vocabulary, however large. */
static void find_likeliest(const float *z, size_t vocab, int32_t *ids,
                           size_t count)
{
    for (size_t j = 0; j < count; j++)
        ids[j] = (int32_t)j;
    for (size_t j = count / 2; j-- > 0;)
        sift_id(z, ids, count, j);
    for (size_t j = count; j < vocab; j++)
        if (z[j] > z[ids[0]]) {
            ids[0] = (int32_t)j;
            sift_id(z, ids, count, 0);
        }
    for (size_t left = count; left-- > 1;) {
        int32_t least = ids[0];
        ids[0] = ids[left];
        ids[left] = least;
        sift_id(z, ids, left, 0);
    }
}

static void pick_item_task(void *ctx, size_t i, size_t thread)
{
    const pick_job *job = ctx;
    const xray_pick_logp *op = job->op;
    const cpu_kernels *k = job->d->k;
    const float *z = op->logits + i * op->stride;
    if (op->softcap != 0.0f) {
        float *capped = job->scratch + thread * job->row;
        memcpy(capped, z, op->vocab * sizeof(float));
        k->softcap(capped, op->softcap, op->vocab);
        z = capped;
    }
    cpu_lse l;
    k->lse(z, op->vocab, op->segment, NULL, &l);
    float log_sum = k->log(l.sum);
    int32_t *ids = op->ids + i * op->count;
    if (!op->given)
        find_likeliest(z, op->vocab, ids, op->count);
    for (size_t c = 0; c < op->count; c++)
        op->logp[i * op->count + c] =
            ids[c] >= 0 && (uint64_t)ids[c] < op->vocab
                ? (z[ids[c]] - l.max) - log_sum
                : NAN;
}

xray_status cpu_pick_logp(void *self, xray_stream *stream,
                          const xray_pick_logp *op)
{
    cpu_device *d = self;
    (void)stream;
    CPU_CHECK(d, op, "pick_logp", op->logits, op->ids, op->logp);
    xray_status status =
        cpu_check_logits(d, "pick_logp", op->vocab, op->stride);
    if (status != XRAY_OK)
        return status;
    if (op->count == 0 || (!op->given && op->count > op->vocab))
        return cpu_fail(d, XRAY_E_ARG, "pick_logp",
                        "count is %u, not 1 to the vocabulary's %llu",
                        op->count, (unsigned long long)op->vocab);
    status = cpu_check_segment(d, "pick_logp", op->vocab, op->segment);
    pick_job job = { .d = d, .op = op, .row = op->vocab };
    if (status == XRAY_OK && op->softcap != 0.0f)
        status = cpu_thread_scratch(d, &job.row, &job.scratch);
    size_t n = cpu_count(&op->items);
    if (status == XRAY_OK)
        cpu_parallel(d, n, (double)n * (double)op->vocab * 4, pick_item_task,
                     &job);
    return status;
}

/* ---- slices of the vocabulary ------------------------------------------- */

typedef struct join_job {
    const cpu_device *d;
    const xray_lm_head_join *op;
} join_job;

/* The sums of slices of an item, scaled to its largest logit. */
typedef struct slice_sums {
    float sum;
    float moment;
    float target;
} slice_sums;

static slice_sums add_slices(const join_job *job, const float *at, float max,
                             uint32_t slices)
{
    const cpu_kernels *k = job->d->k;
    if (slices > 1) {
        uint32_t left = xray_comm_left(slices);
        slice_sums a = add_slices(job, at, max, left);
        slice_sums b = add_slices(job, at + left * job->op->slice_stride, max,
                                  slices - left);
        return (slice_sums){ a.sum + b.sum, a.moment + b.moment,
                             a.target + b.target };
    }
    float scale;
    k->exp_row(&scale, at, max, 1);
    return (slice_sums){ at[1] * scale, fmaf(at[0] - max, at[1], at[2]) * scale,
                         at[3] };
}

static void join_range(void *ctx, size_t first, size_t last)
{
    const join_job *job = ctx;
    const xray_lm_head_join *op = job->op;
    for (size_t i = first; i < last; i++) {
        const float *at = op->partials + 4 * i;
        float max = -INFINITY;
        for (uint32_t s = 0; s < op->slices; s++)
            max =
                at[s * op->slice_stride] > max ? at[s * op->slice_stride] : max;
        slice_sums l = add_slices(job, at, max, op->slices);
        float log_sum = job->d->k->log(l.sum);
        op->logp[i] = (l.target - max) - log_sum;
        if (op->entropy)
            op->entropy[i] = log_sum - l.moment / l.sum;
        if (op->lse)
            op->lse[i] = max + log_sum;
    }
}

xray_status cpu_lm_head_join(void *self, xray_stream *stream,
                             const xray_lm_head_join *op)
{
    cpu_device *d = self;
    (void)stream;
    CPU_CHECK(d, op, "lm_head_join", op->partials, op->logp);
    if (op->slices == 0 || op->slice_stride < 4 * op->items.bound)
        return cpu_fail(d, XRAY_E_ARG, "lm_head_join",
                        "%u slices of %llu items do not fit stride %llu",
                        op->slices, (unsigned long long)op->items.bound,
                        (unsigned long long)op->slice_stride);
    join_job job = { d, op };
    cpu_ranges(d, cpu_count(&op->items), 1, (double)op->slices * 64, join_range,
               &job);
    return XRAY_OK;
}
