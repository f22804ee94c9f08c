/* SPDX-License-Identifier: Apache-2.0
 *
 * Sampling of tokens on NVIDIA GPUs. The support is found by counting, never by
 * sorting the vocabulary; the token is the argmax of the logits with Gumbel
 * noise. The result equals the CPU's to the bit.
 */
#include "plugins/device-cuda/lm_head.h"
#include "plugins/device-cuda/noise.h"
#include "plugins/device-cuda/sample_support.h"

typedef struct sample_out {
    float *z;
    uint64_t row;
    uint64_t first;
    const int32_t *live;
    const char *draws;
    int32_t *token;
    float *raw_logp;
    float *logp;
    const float *given;   /* NULL: the logits are in z */
    const float *changed; /* NULL: the token is drawn from the logits */
    uint64_t stride;      /* of given and changed */
    uint32_t draw_stride;
    uint32_t vocab;
    uint32_t segment; /* as in logit_row */
    float softcap;
} sample_out;

/* The best entries of a row, ranked: by their values, and by their values with
 * noise. */
typedef struct row_best {
    uint64_t likely;
    uint64_t drawn;
} row_best;

/* A thread's part of a draw. Some entry of the row has the value `bound` with
 * its noise, so one that cannot reach it is not the token. One that may equal
 * it is drawn, as its id may be lower. */
typedef struct row_draw {
    const xray_draw *how;
    uint64_t best; /* ranked, with noise */
    float floor;
    float bound;
} row_draw;

/* Tells the block the key of this warp's best value, and returns the best one
 * that any warp has told. One lane does both by one atomic operation. Its order
 * with those of other warps is not fixed and changes no token, since an older
 * value is a bound, too. */
CU_FN float share_best(sample_shared *s, uint32_t key)
{
    key = __reduce_max_sync(CU_FULL, key);
    if (threadIdx.x % 32 == 0)
        key = max(key, atomicMax(&s->best, key));
    return key_to_float(__shfl_sync(CU_FULL, key, 0));
}

/* Whether a value may be the best one with the noise of any word. */
CU_FN int may_win(const row_draw *d, float value)
{
    return value >= d->floor && !(value + NOISE_MOST < d->bound);
}

/* Draws noise for four entries, unless it is clear without random words, or
 * without logarithms, that none of them reaches the bound. */
CU_FN void draw_entries(const logit_row *r, uint32_t i, row_draw *d)
{
    float z[4];
    load_logits4(r, i, z);
    const float most = temper_logit(r, most_of4(z));
    if (!may_win(d, most))
        return;
    const xray_philox_out bits =
        xray_philox(d->how->key, i / 4, d->how->position, d->how->sample, 0);
    const uint32_t *w = bits.w;
    if (most + noise_bound(max(max(w[0], w[1]), max(w[2], w[3]))) < d->bound)
        return;
#pragma unroll
    for (uint32_t j = 0; j < 4; j++) {
        float x = temper_logit(r, z[j]);
        x = x >= d->floor ? x : -cu_float(LM_HEAD_INF);
        uint64_t k = ranked(x - noise_below(w[j]), i + j);
        d->best = k > d->best ? k : d->best;
    }
}

/* The best one of the thread's entries of a stride, of which some have the
 * value `top` and the others less. */
CU_FN uint64_t rank_entries(const logit_row *r, uint32_t i, float top)
{
    uint64_t best = ranked(-cu_float(LM_HEAD_INF), 0);
#pragma unroll 1
    for (uint32_t h = 0; h < 2; h++) {
        uint32_t first = i + h * stride_half();
        float z[4];
        load_logits4(r, first, z);
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            uint64_t k = z[j] == top ? ranked(top, first + j) : 0;
            best = k > best ? k : best;
        }
    }
    return best;
}

/* Finds the best entries of a row, with noise only where `how` is given, and of
 * those that are not below `floor`. With a softcap the values are written to
 * `to`. An entry costs a thread seven instructions; random words for a warp's
 * entries cost each 25 more, and logarithms 60, where one of them may win.
 * Where few may, the pass is bound by memory. */
CU_FN row_best scan_row(sample_shared *s, const logit_row *from, float *to,
                        const xray_draw *how, float floor)
{
    const float none = -cu_float(LM_HEAD_INF);
    logit_row r = *from;
    if (r.softcap != 0.0f) {
        r.z = to;
        r.softcap = 0.0f;
    }
    row_draw d = { how, ranked(none, 0), floor, none };
    float top = none;
    uint32_t at = 4 * threadIdx.x;
    if (threadIdx.x == 0)
        s->best = float_to_key(none);
    __syncthreads();
    for (uint32_t c = count_strides(&r); c-- > 0;) {
        uint32_t i = stride_entry(c);
        float most = find_most8(from, i, to);
        if (most >= top) {
            top = most;
            at = i;
        }
        int may = how && may_win(&d, temper_logit(&r, most));
        if (!__any_sync(CU_FULL, may))
            continue;
        d.bound = share_best(s, (uint32_t)(d.best >> 32));
        draw_entries(&r, i, &d);
        draw_entries(&r, i + stride_half(), &d);
    }
    row_best best;
    best.likely = block_largest(&s->logits, rank_entries(&r, at, top));
    best.drawn = block_largest(&s->logits, d.best);
    return best;
}

/* Whether the draw leaves out none of n tokens. */
CU_FN int is_complete(const xray_draw *draw, uint32_t n)
{
    int by_k = draw->top_k > 0 && (uint32_t)draw->top_k < n;
    return !by_k && !(draw->top_p < 1.0f) && !(draw->min_p > 0.0f);
}

/* Draws from a row at the draw's temperature, whose sum is `sum` and which has
 * the entries `best`, unless it is changed. Where all of a changed row is minus
 * infinity, the token is the most likely one of the logits. */
CU_FN uint32_t draw_token(sample_shared *s, const sample_out *o, uint64_t item,
                          sample_row r, const xray_draw *draw,
                          const xray_draw *noise, float sum, row_best best)
{
    const float none = -cu_float(LM_HEAD_INF);
    const uint32_t likely = ranked_index(best.likely);
    if (o->changed) {
        r.row.z = o->changed + item * o->stride;
        r.row.segment = 0;
        best = scan_row(s, &r.row, NULL, noise, none);
        r.max = temper_logit(&r.row, ranked_value(best.likely));
    }
    if (!(r.max > none))
        return likely;
    if (draw->temperature == 0.0f)
        return ranked_index(best.likely);
    if (noise)
        return ranked_index(best.drawn);
    if (o->changed && draw->top_p < 1.0f) {
        logit_sum h = { r.max, 0.0f, none };
        float unused;
        sum_logits<LM_HEAD_FROM>(&s->logits, &r.row, &h, &sum, &unused);
    }
    float floor = support_floor(s, r, draw, sum);
    return ranked_index(scan_row(s, &r.row, NULL, draw, floor).drawn);
}

/* One block per item, and two on a multiprocessor. A row without a cut is read
 * twice, for its best entries and for the sums: 8 bytes a logit, with 7 and 26
 * instructions of a thread (53 for the sums at a temperature other than 1),
 * which takes about the time of the bytes. A cut by top_k, top_p or min_p takes
 * one to four passes more. */
__global__ void __launch_bounds__(LM_HEAD_THREADS, 2) sample_rows(sample_out o)
{
    __shared__ sample_shared shared;
    const float none = -cu_float(LM_HEAD_INF);
    uint64_t item = o.first + blockIdx.x;
    if (!lm_head_item_exists(o.live, item))
        return;
    const xray_draw *draw =
        (const xray_draw *)(const void *)(o.draws + item * o.draw_stride);
    const float temperature = draw->temperature;
    const int greedy = temperature == 0.0f;
    const xray_draw *noise =
        !greedy && is_complete(draw, o.vocab) ? draw : NULL;
    float *z = o.z + blockIdx.x * o.row;
    const logit_row from = { o.given ? o.given + item * o.stride : z, o.vocab,
                             o.segment, o.softcap,
                             greedy ? 1.0f : temperature };
    row_best best = scan_row(&shared, &from, z, o.changed ? NULL : noise, none);
    float raw_max = ranked_value(best.likely);
    sample_row r = { from, 0.0f, 0, 0xffffffffu };
    if (from.softcap != 0.0f) {
        r.row.z = z;
        r.row.softcap = 0.0f;
    }
    r.max = temper_logit(&r.row, raw_max);
    logit_sum h = { r.max, raw_max, none };
    float raw_sum;
    float sum;
    if (from.temperature != 1.0f) {
        sum_logits<LM_HEAD_PAIR>(&shared.logits, &r.row, &h, &raw_sum, &sum);
    } else {
        sum_logits<LM_HEAD_FROM>(&shared.logits, &r.row, &h, &raw_sum, &sum);
        sum = raw_sum;
    }
    uint32_t token = draw_token(&shared, &o, item, r, draw, noise, sum, best);
    if (threadIdx.x != 0)
        return;
    o.token[item] = (int32_t)token;
    o.raw_logp[item] = (r.row.z[token] - raw_max) - cu_log(raw_sum);
    o.logp[item] = (temper_logit(&r.row, r.row.z[token]) - r.max) - cu_log(sum);
}

static sample_out make_sample_args(const xray_sample *op,
                                   const lm_head_chunk *c)
{
    sample_out o = {};
    o.z = c->z;
    o.row = c->row;
    o.first = c->first;
    o.live = op->items.live;
    o.draws = (const char *)(const void *)op->draws;
    o.token = op->token;
    o.raw_logp = op->raw_logp;
    o.logp = op->logp;
    o.given = op->logits;
    o.changed = op->changed;
    o.stride = op->logits_stride;
    o.draw_stride = op->draw_stride;
    o.vocab = (uint32_t)c->vocab;
    o.segment = cut_row(c->vocab, op->segment);
    o.softcap = op->softcap;
    return o;
}

static xray_status check_sample(const cuda_device *d, const xray_sample *op)
{
    if (!op->weight == !op->logits || (op->weight && (!op->x || op->changed)))
        return cuda_fail(d, XRAY_E_ARG, "sample",
                         "either a weight and x or logits, and with logits "
                         "perhaps changed ones, must be given");
    if (op->draw_stride < sizeof(xray_draw) || op->draw_stride % 8 != 0)
        return cuda_fail(
            d, XRAY_E_ARG, "sample",
            "draw_stride is %u, which does not fit an array of draws",
            op->draw_stride);
    return op->weight
               ? XRAY_OK
               : cuda_check_logits(d, "sample", op->vocab, op->logits_stride);
}

xray_status cuda_sample(void *self, xray_stream *stream, const xray_sample *op)
{
    cuda_device *d = (cuda_device *)self;
    CUDA_CHECK(d, op, "sample", op->draws, op->token, op->raw_logp, op->logp);
    XR_CHECK_OPERANDS(d->host, "sample", XR_OPERAND(op, x));
    cudaStream_t s = cuda_stream(d, stream);
    lm_head_chunk c = {};
    c.where = "sample";
    c.weight = op->weight;
    c.x = op->x;
    c.x_dtype = product_type(op->x_dtype);
    c.live = op->items.live;
    xray_status status = check_sample(d, op);
    if (status == XRAY_OK) {
        c.vocab = op->weight ? op->weight->rows : op->vocab;
        status = cuda_check_segment(d, "sample", c.vocab, op->segment);
    }
    if (status == XRAY_OK)
        status = lm_head_reserve(d, &c, 0);
    while (status == XRAY_OK && lm_head_next_chunk(&c, op->items.bound)) {
        if (op->weight)
            status = lm_head_round_x(d, s, &c);
        if (op->weight && status == XRAY_OK)
            status = lm_head_logits(d, s, &c);
        if (status != XRAY_OK)
            break;
        CU_LAUNCH(sample_rows, dim3((unsigned)c.count),
                  count_row_threads(c.vocab), 0, s, make_sample_args(op, &c));
        status = cuda_launched(d, "sample");
    }
    return status;
}
