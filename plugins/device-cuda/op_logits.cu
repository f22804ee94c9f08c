/* SPDX-License-Identifier: Apache-2.0
 *
 * Logits between the LM head and the draw on NVIDIA GPUs: edits,
 * log-probabilities of several ids of an item, and the results of vocabulary
 * slices joined. The results equal the CPU's to the bit.
 */
#include "plugins/device-cuda/lm_head.h"
#include "plugins/device-cuda/lm_head_rows.h"

xray_status cuda_check_logits(const cuda_device *d, const char *where,
                              uint64_t vocab, uint64_t stride)
{
    if (vocab == 0 || vocab > INT32_MAX || stride < vocab)
        return cuda_fail(d, XRAY_E_ARG, where,
                         "a vocabulary of %llu must have 1 to 2147483647 ids "
                         "and fit a stride of %llu",
                         (unsigned long long)vocab, (unsigned long long)stride);
    return XRAY_OK;
}

xray_status cuda_check_segment(const cuda_device *d, const char *where,
                               uint64_t vocab, uint64_t segment)
{
    if (segment && (vocab - 1) / segment >= XRAY_SEGMENTS)
        return cuda_fail(d, XRAY_E_ARG, where,
                         "segment is %llu, but a vocabulary of %llu must have "
                         "at most %u segments",
                         (unsigned long long)segment, (unsigned long long)vocab,
                         XRAY_SEGMENTS);
    return XRAY_OK;
}

/* ---- edits --------------------------------------------------------------- */

#define EDIT_THREADS 256u
#define EDIT_IDS 4096u /* of a block */

/* The ids of a block that belong to this thread. Only it touches their logits,
 * so edits of the same id stay in order without a barrier. */
__global__ void __launch_bounds__(EDIT_THREADS)
    edit_logits_kernel(xray_edit_logits op)
{
    uint64_t item = blockIdx.x;
    if (!lm_head_item_exists(op.items.live, item))
        return;
    uint32_t first = blockIdx.y * EDIT_IDS;
    uint32_t left = (uint32_t)op.vocab - first;
    uint32_t last = first + (left < EDIT_IDS ? left : EDIT_IDS);
    uint32_t own = first + threadIdx.x;
    const float *from = op.logits + item * op.stride;
    float *to = op.changed + item * op.stride;
    logit_row r = { from, last, 0, op.softcap, 1.0f };
    for (uint32_t i = own; i < last; i += EDIT_THREADS)
        to[i] = logit_value(&r, from[i]);
    const char *edits = (const char *)(const void *)op.edits;
    for (int32_t n = edits ? op.edit_start[item] : 0;
         edits && n < op.edit_start[item + 1]; n++) {
        const xray_logit_edit *e =
            (const xray_logit_edit *)(const void *)(edits + (uint64_t)n *
                                                                op.edit_stride);
        uint32_t id = (uint32_t)e->id;
        if (id < own || id >= last || (id - own) % EDIT_THREADS != 0)
            continue;
        float x = to[id];
        if (e->penalty != 0.0f && e->penalty != 1.0f)
            x = x > 0.0f ? x / e->penalty : x * e->penalty;
        to[id] = x + e->add;
    }
    int32_t set = op.allowed ? op.allowed_set[item] : -1;
    if (set < 0)
        return;
    const uint32_t *allowed = op.allowed + set * ((op.vocab + 31) / 32);
    for (uint32_t i = own; i < last; i += EDIT_THREADS)
        if (!(allowed[i / 32] >> i % 32 & 1))
            to[i] = -cu_float(LM_HEAD_INF);
}

xray_status cuda_edit_logits(void *self, xray_stream *stream,
                             const xray_edit_logits *op)
{
    cuda_device *d = (cuda_device *)self;
    CUDA_CHECK(d, op, "edit_logits", op->logits, op->changed);
    if (!op->edit_start != !op->edits || !op->allowed != !op->allowed_set)
        return cuda_fail(d, XRAY_E_ARG, "edit_logits",
                         "edits need edit_start, allowed needs allowed_set, "
                         "and the other way round");
    if (op->edits && (op->edit_stride < sizeof(xray_logit_edit) ||
                      op->edit_stride % sizeof(float) != 0))
        return cuda_fail(
            d, XRAY_E_ARG, "edit_logits",
            "edit_stride is %u, which does not fit an array of edits",
            op->edit_stride);
    xray_status status =
        cuda_check_logits(d, "edit_logits", op->vocab, op->stride);
    if (status != XRAY_OK || op->items.bound == 0)
        return status;
    unsigned across = (unsigned)((op->vocab + EDIT_IDS - 1) / EDIT_IDS);
    CU_LAUNCH(edit_logits_kernel, dim3((unsigned)op->items.bound, across),
              EDIT_THREADS, 0, cuda_stream(d, stream), *op);
    return cuda_launched(d, "edit_logits");
}

/* ---- log-probabilities of several ids ------------------------------------ */

/* The first in rank of this thread's ids that come behind `taken`; 0 if there
 * is none. */
CU_FN uint64_t find_next(const logit_row *r, uint64_t taken)
{
    uint64_t best = 0;
    for (uint32_t i = threadIdx.x; i < r->n; i += blockDim.x) {
        uint64_t k = ranked(logit_value(r, r->z[i]), i);
        best = k < taken && k > best ? k : best;
    }
    return best;
}

/* One block per item. Each thread keeps the best of its own ids that was not
 * taken, so for each result only one thread reads its part of the row again. */
__global__ void __launch_bounds__(LM_HEAD_THREADS, 2)
    pick_logp_kernel(xray_pick_logp op)
{
    __shared__ logit_shared shared;
    uint64_t item = blockIdx.x;
    if (!lm_head_item_exists(op.items.live, item))
        return;
    logit_row r = { op.logits + item * op.stride, (uint32_t)op.vocab,
                    (uint32_t)op.segment, op.softcap, 1.0f };
    logit_sum h = { logit_row_max(&shared, &r), 0.0f, -cu_float(LM_HEAD_INF) };
    float sum;
    float none;
    sum_logits<LM_HEAD_FROM>(&shared, &r, &h, &sum, &none);
    float log_sum = cu_log(sum);
    int32_t *ids = op.ids + item * op.count;
    float *logp = op.logp + item * op.count;
    if (op.given) {
        for (uint32_t c = threadIdx.x; c < op.count; c += blockDim.x)
            logp[c] = (uint32_t)ids[c] < r.n
                          ? (logit_value(&r, r.z[ids[c]]) - h.max) - log_sum
                          : cu_float(0x7fc00000u);
        return;
    }
    uint64_t own = find_next(&r, ~(uint64_t)0);
    for (uint32_t c = 0; c < op.count; c++) {
        uint64_t best = block_largest(&shared, own);
        uint32_t id = ranked_index(best);
        if (threadIdx.x == 0) {
            ids[c] = (int32_t)id;
            logp[c] = (logit_value(&r, r.z[id]) - h.max) - log_sum;
        }
        if (own == best)
            own = find_next(&r, best);
    }
}

xray_status cuda_pick_logp(void *self, xray_stream *stream,
                           const xray_pick_logp *op)
{
    cuda_device *d = (cuda_device *)self;
    CUDA_CHECK(d, op, "pick_logp", op->logits, op->ids, op->logp);
    xray_status status =
        cuda_check_logits(d, "pick_logp", op->vocab, op->stride);
    if (status != XRAY_OK)
        return status;
    if (op->count == 0 || (!op->given && op->count > op->vocab))
        return cuda_fail(d, XRAY_E_ARG, "pick_logp",
                         "count is %u, not 1 to the vocabulary's %llu",
                         op->count, (unsigned long long)op->vocab);
    status = cuda_check_segment(d, "pick_logp", op->vocab, op->segment);
    if (status != XRAY_OK || op->items.bound == 0)
        return status;
    xray_pick_logp own = *op;
    own.segment = cut_row(op->vocab, op->segment);
    CU_LAUNCH(pick_logp_kernel, dim3((unsigned)op->items.bound),
              count_row_threads(op->vocab), 0, cuda_stream(d, stream), own);
    return cuda_launched(d, "pick_logp");
}

/* ---- slices of the vocabulary -------------------------------------------- */

#define JOIN_THREADS 128u

/* The sums of slices of an item, scaled to its largest logit. */
typedef struct slice_sums {
    float sum;
    float moment;
    float target;
} slice_sums;

CU_FN slice_sums add_sums(slice_sums a, slice_sums b)
{
    slice_sums c = { a.sum + b.sum, a.moment + b.moment, a.target + b.target };
    return c;
}

CU_FN slice_sums scale_slice(const float *at, float max)
{
    float scale = cu_exp(at[0] - max);
    slice_sums s = { at[1] * scale, fmaf(at[0] - max, at[1], at[2]) * scale,
                     at[3] };
    return s;
}

/* One thread per item. The tree's left parts are complete, so slice s finishes
 * as many of them as s ends in ones in binary, and the sums that are still open
 * fit one place for each bit. */
__global__ void __launch_bounds__(JOIN_THREADS)
    lm_head_join_kernel(xray_lm_head_join op)
{
    uint64_t item = (uint64_t)blockIdx.x * JOIN_THREADS + threadIdx.x;
    if (item >= cu_count(op.items.bound, op.items.live))
        return;
    const float *at = op.partials + 4 * item;
    float max = -cu_float(LM_HEAD_INF);
    for (uint32_t s = 0; s < op.slices; s++) {
        float m = at[s * op.slice_stride];
        max = m > max ? m : max;
    }
    slice_sums open[32];
    uint32_t count = 0;
    for (uint32_t s = 0; s < op.slices; s++) {
        slice_sums l = scale_slice(at + s * op.slice_stride, max);
        for (uint32_t b = s; b & 1; b /= 2)
            l = add_sums(open[--count], l);
        open[count++] = l;
    }
    slice_sums l = open[--count];
    while (count > 0)
        l = add_sums(open[--count], l);
    float log_sum = cu_log(l.sum);
    op.logp[item] = (l.target - max) - log_sum;
    if (op.entropy)
        op.entropy[item] = log_sum - l.moment / l.sum;
    if (op.lse)
        op.lse[item] = max + log_sum;
}

xray_status cuda_lm_head_join(void *self, xray_stream *stream,
                              const xray_lm_head_join *op)
{
    cuda_device *d = (cuda_device *)self;
    CUDA_CHECK(d, op, "lm_head_join", op->partials, op->logp);
    if (op->slices == 0 || op->slice_stride < 4 * op->items.bound)
        return cuda_fail(d, XRAY_E_ARG, "lm_head_join",
                         "%u slices of %llu items do not fit stride %llu",
                         op->slices, (unsigned long long)op->items.bound,
                         (unsigned long long)op->slice_stride);
    if (op->items.bound == 0)
        return XRAY_OK;
    unsigned blocks =
        (unsigned)((op->items.bound + JOIN_THREADS - 1) / JOIN_THREADS);
    CU_LAUNCH(lm_head_join_kernel, dim3(blocks), JOIN_THREADS, 0,
              cuda_stream(d, stream), *op);
    return cuda_launched(d, "lm_head_join");
}
