/* SPDX-License-Identifier: Apache-2.0
 *
 * Sampling of tokens on NVIDIA GPUs. The support is found by counting, never by
 * sorting the vocabulary; the token is the argmax of the logits with Gumbel
 * noise. The result equals the CPU's to the bit.
 */
#include <xray/numerics.h>

#include "plugins/device-cuda/lm_head.h"
#include "plugins/device-cuda/lm_head_rows.h"

#define BINS 2048u
#define BAND 4096u /* largest values that are sorted at a time */

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

/* The shared memory of a block. `logits.tile` holds a band during a sort. */
typedef struct sample_shared {
    logit_shared logits;
    uint32_t bins[BINS];
    uint32_t found[4];
    uint32_t taken;
} sample_shared;

static_assert(sizeof(float) * 4 * LM_HEAD_TILE >= 2 * BAND * sizeof(uint32_t),
              "a band and its exponentials fit the space of a tile");

/* A row, and the part of it whose keys are in [low, high]. */
typedef struct sample_row {
    logit_row row;
    float max;
    uint32_t low;
    uint32_t high;
} sample_row;

CU_FN uint32_t row_key(const sample_row *r, uint32_t i)
{
    return float_to_key(logit_value(&r->row, r->row.z[i]));
}

/* Counts the keys in [low, high] by their `bits` bits from `shift` on,
 * considering only keys that agree with `prefix` in the bits above. */
CU_FN void count_bins(sample_shared *s, const sample_row *r, uint32_t prefix,
                      uint32_t shift, uint32_t bits)
{
    __syncthreads();
    for (uint32_t b = threadIdx.x; b < BINS; b += blockDim.x)
        s->bins[b] = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < r->row.n; i += blockDim.x) {
        uint32_t k = row_key(r, i);
        uint32_t above = shift + bits;
        int in = k >= r->low && k <= r->high &&
                 (above == 32 || k >> above == prefix);
        if (in)
            atomicAdd(&s->bins[k >> shift & ((1u << bits) - 1)], 1u);
    }
    __syncthreads();
}

typedef struct found_bin {
    uint32_t bin;   /* bin of the k-th largest value; BINS if there are fewer */
    uint32_t above; /* values in higher bins */
    uint32_t count; /* values in this bin */
} found_bin;

/* Warp 0 counts from the top: each lane does sixty-four bins, in an order that
 * puts lanes in different banks. */
CU_FN found_bin find_bin(sample_shared *s, uint32_t k)
{
    uint32_t lane = threadIdx.x;
    if (lane < 32) {
        uint32_t own = 0;
        for (uint32_t j = 0; j < BINS / 32; j++)
            own += s->bins[lane * (BINS / 32) + (j + lane) % (BINS / 32)];
        uint32_t upto = own; /* values of this lane and the higher ones */
        for (uint32_t by = 1; by < 32; by *= 2) {
            uint32_t other = __shfl_down_sync(CU_FULL, upto, by);
            upto += lane + by < 32 ? other : 0;
        }
        if (lane == 0) {
            s->found[0] = BINS;
            s->found[1] = upto;
            s->found[2] = 0;
        }
        __syncwarp();
        uint32_t above = upto - own;
        if (above < k && k <= upto) {
            uint32_t b = (lane + 1) * (BINS / 32) - 1;
            while (above + s->bins[b] < k)
                above += s->bins[b--];
            s->found[0] = b;
            s->found[1] = above;
            s->found[2] = s->bins[b];
        }
    }
    __syncthreads();
    found_bin f = { s->found[0], s->found[1], s->found[2] };
    return f;
}

/* The key of the k-th largest value of the part, which has at least k
 * values. */
CU_FN uint32_t nth_largest(sample_shared *s, const sample_row *r, uint32_t k)
{
    count_bins(s, r, 0, 21, 11);
    found_bin f = find_bin(s, k);
    uint32_t prefix = f.bin;
    k -= f.above;
    count_bins(s, r, prefix, 10, 11);
    f = find_bin(s, k);
    prefix = prefix << 11 | f.bin;
    k -= f.above;
    count_bins(s, r, prefix, 0, 10);
    f = find_bin(s, k);
    return prefix << 10 | f.bin;
}

/* The largest values of the part: those with keys >= low, at most BAND of them
 * or, where more than that are equal, one value `count` times. count is 0 if
 * the part is empty. */
typedef struct sample_band {
    uint32_t low;
    uint32_t count;
    uint32_t equal;
} sample_band;

CU_FN sample_band find_band(sample_shared *s, const sample_row *r)
{
    const uint32_t shifts[3] = { 21, 10, 0 };
    const uint32_t bits[3] = { 11, 11, 10 };
    uint32_t prefix = 0;
    sample_band band = { 0, 0, 0 };
    for (int level = 0; level < 3; level++) {
        count_bins(s, r, prefix, shifts[level], bits[level]);
        found_bin f = find_bin(s, BAND + 1);
        uint32_t base = level == 0 ? 0 : prefix << bits[level];
        band.count = f.above;
        if (f.bin == BINS) {
            band.low = base << shifts[level];
            return band;
        }
        prefix = base | f.bin;
        band.low = (prefix + 1) << shifts[level];
        if (f.above > 0)
            return band;
        band.count = f.count;
    }
    band.low = prefix;
    band.equal = 1;
    return band;
}

/* Sorts the keys of the band in descending order with a bitonic network. */
CU_FN void sort_band(uint32_t *keys, uint32_t count)
{
    uint32_t size = 2;
    while (size < count)
        size *= 2;
    for (uint32_t i = count + threadIdx.x; i < size; i += blockDim.x)
        keys[i] = 0;
    for (uint32_t run = 2; run <= size; run *= 2)
        for (uint32_t by = run / 2; by > 0; by /= 2) {
            __syncthreads();
            for (uint32_t p = threadIdx.x; p < size / 2; p += blockDim.x) {
                uint32_t i = 2 * p - (p & (by - 1));
                uint32_t a = keys[i];
                uint32_t b = keys[i + by];
                if ((i & run) == 0 ? a < b : a > b) {
                    keys[i] = b;
                    keys[i + by] = a;
                }
            }
        }
    __syncthreads();
}

/* The state of a sum in descending order. */
typedef struct sample_sum {
    float sum;
    float wanted;
    float max;
} sample_sum;

/* Adds equal values. Returns the key at which the sum is reached, otherwise
 * 0. */
CU_FN uint32_t add_equal(sample_sum *t, const sample_band *band)
{
    float e = cu_exp(key_to_float(band->low) - t->max);
    for (uint32_t i = 0; i < band->count; i++) {
        t->sum = t->sum + e;
        if (t->sum >= t->wanted)
            return band->low;
    }
    return 0;
}

/* Adds the values of the band one by one; thread 0 does this while the others
 * wait. */
CU_FN uint32_t add_band(sample_shared *s, const sample_row *r, sample_sum *t,
                        const sample_band *band)
{
    uint32_t *keys = (uint32_t *)(void *)s->logits.tile;
    float *e = (float *)(void *)(keys + BAND);
    if (threadIdx.x == 0)
        s->taken = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < r->row.n; i += blockDim.x) {
        uint32_t k = row_key(r, i);
        if (k >= r->low && k <= r->high && k >= band->low)
            keys[atomicAdd(&s->taken, 1u)] = k;
    }
    __syncthreads();
    sort_band(keys, band->count);
    for (uint32_t i = threadIdx.x; i < band->count; i += blockDim.x)
        e[i] = cu_exp(key_to_float(keys[i]) - t->max);
    __syncthreads();
    if (threadIdx.x == 0) {
        uint32_t at = 0;
#pragma unroll 8
        for (uint32_t i = 0; i < band->count; i++) {
            t->sum = t->sum + e[i];
            if (t->sum >= t->wanted) {
                at = keys[i];
                break;
            }
        }
        s->found[3] = at;
        s->logits.sums[0] = t->sum;
    }
    __syncthreads();
    t->sum = s->logits.sums[0];
    uint32_t found = s->found[3];
    __syncthreads();
    return found;
}

/* The value at which the sum of exp(z - max) in descending order reaches
 * `wanted`, or `floor`. */
CU_FN float cut_top_p(sample_shared *s, sample_row r, float floor, float wanted)
{
    sample_sum t = { 0.0f, wanted, r.max };
    for (;;) {
        sample_band band = find_band(s, &r);
        if (band.count == 0)
            return floor;
        uint32_t found =
            band.equal ? add_equal(&t, &band) : add_band(s, &r, &t, &band);
        if (found)
            return key_to_float(found);
        if (band.low <= r.low)
            return floor;
        r.high = band.low - 1;
    }
}

CU_FN float cut_min_p(sample_shared *s, const sample_row *r, float min_p)
{
    uint32_t least = 0xffffffffu;
    for (uint32_t i = threadIdx.x; i < r->row.n; i += blockDim.x) {
        float z = logit_value(&r->row, r->row.z[i]);
        uint32_t k = float_to_key(z);
        if (cu_exp(z - r->max) >= min_p && k < least)
            least = k;
    }
    least = ~(uint32_t)block_largest(&s->logits, ~least);
    return least == 0xffffffffu ? cu_float(LM_HEAD_INF) : key_to_float(least);
}

/* The number of values that are not below `floor`. */
CU_FN uint32_t count_from(sample_shared *s, const sample_row *r)
{
    if (threadIdx.x == 0)
        s->taken = 0;
    __syncthreads();
    uint32_t own = 0;
    for (uint32_t i = threadIdx.x; i < r->row.n; i += blockDim.x)
        own += row_key(r, i) >= r->low;
    if (own)
        atomicAdd(&s->taken, own);
    __syncthreads();
    uint32_t count = s->taken;
    __syncthreads();
    return count;
}

/* The smallest value that stays; -inf where nothing is cut. `sum` is that of
 * the complete row, unless the row has segments, which the sum for top_p has
 * not. */
CU_FN float support_floor(sample_shared *s, sample_row r, const xray_draw *draw,
                          float sum)
{
    float floor = -cu_float(LM_HEAD_INF);
    int by_p = draw->top_p < 1.0f;
    uint32_t n = r.row.n;
    uint32_t top_k = draw->top_k > 0 ? (uint32_t)draw->top_k : n;
    if (draw->min_p > 0.0f)
        floor = cut_min_p(s, &r, draw->min_p);
    if (top_k >= n && !by_p)
        return floor;
    r.low = float_to_key(floor);
    if (top_k < n) {
        uint32_t count = draw->min_p > 0.0f ? count_from(s, &r) : n;
        if (top_k < count) {
            r.low = nth_largest(s, &r, top_k);
            floor = key_to_float(r.low);
        }
    }
    if (!by_p)
        return floor;
    if (floor > -cu_float(LM_HEAD_INF) || r.row.segment) {
        logit_sum h = { r.max, 0.0f, floor };
        r.row.segment = 0;
        float none;
        sum_logits<LM_HEAD_FROM>(&s->logits, &r.row, &h, &sum, &none);
    }
    return cut_top_p(s, r, floor, draw->top_p * sum);
}

CU_FN uint32_t argmax_row(sample_shared *s, const logit_row *r)
{
    float top = -cu_float(LM_HEAD_INF);
    uint64_t best = ranked(top, 0);
    for (uint32_t i = threadIdx.x; i < r->n; i += blockDim.x) {
        float z = logit_value(r, r->z[i]);
        if (z > top) {
            top = z;
            best = ranked(z, i);
        }
    }
    return ranked_index(block_largest(&s->logits, best));
}

/* argmax over z >= floor of z - log(-log u). One Philox call and eight
 * logarithms per four tokens that stay bound sampling without a cut. */
CU_FN uint32_t gumbel_row(sample_shared *s, const logit_row *r, float floor,
                          const xray_draw *draw)
{
    float top = -cu_float(LM_HEAD_INF);
    uint64_t best = ranked(top, 0);
    for (uint32_t i = threadIdx.x * 4; i < r->n; i += blockDim.x * 4) {
        float z[4];
        load_logits4(r, i, z);
        int any = 0;
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            z[j] = logit_value(r, z[j]);
            any |= i + j < r->n && z[j] >= floor;
        }
        if (!any)
            continue;
        xray_philox_out bits =
            xray_philox(draw->key, i / 4, draw->position, draw->sample, 0);
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            float g = cu_log(xray_unit(bits.w[j]));
            g = cu_log(-0.0f - g);
            float v = z[j] - g;
            if (i + j < r->n && z[j] >= floor && v > top) {
                top = v;
                best = ranked(v, i + j);
            }
        }
    }
    return ranked_index(block_largest(&s->logits, best));
}

/* Gets the item's logits into z, with the softcap, and returns the largest. */
CU_FN float prepare_row(sample_shared *s, const sample_out *o, uint64_t item,
                        float *z)
{
    logit_row r = { z, o->vocab, 0, o->softcap, 1.0f };
    if (o->softcap == 0.0f && !o->given)
        return logit_row_max(&s->logits, &r);
    float top = -cu_float(LM_HEAD_INF);
    const float *from = o->given ? o->given + item * o->stride : z;
    for (uint32_t i = threadIdx.x; i < o->vocab; i += blockDim.x) {
        float x = logit_value(&r, from[i]);
        z[i] = x;
        top = x > top ? x : top;
    }
    return block_max(&s->logits, top);
}

/* Draws from a row at the draw's temperature, whose sum is `sum` unless the row
 * is changed. Where all of a changed row is minus infinity, the token is the
 * most likely one of z. */
CU_FN uint32_t draw_token(sample_shared *s, const sample_out *o, uint64_t item,
                          sample_row r, const xray_draw *draw, float sum)
{
    logit_row z = { r.row.z, r.row.n, 0, 0.0f, 1.0f };
    if (o->changed) {
        r.row.z = o->changed + item * o->stride;
        r.max = logit_row_max(&s->logits, &r.row);
    }
    if (!(r.max > -cu_float(LM_HEAD_INF)))
        return argmax_row(s, &z);
    if (draw->temperature == 0.0f)
        return argmax_row(s, &r.row);
    if (o->changed)
        r.row.segment = 0;
    if (o->changed && draw->top_p < 1.0f) {
        logit_sum h = { r.max, 0.0f, -cu_float(LM_HEAD_INF) };
        float none;
        sum_logits<LM_HEAD_FROM>(&s->logits, &r.row, &h, &sum, &none);
    }
    float floor = support_floor(s, r, draw, sum);
    return gumbel_row(s, &r.row, floor, draw);
}

/* One block per item. A row without a cut is passed over three times, all but
 * the first from the L2 cache: for the maximum, the sums and the noise. */
__global__ void __launch_bounds__(LM_HEAD_THREADS) sample_rows(sample_out o)
{
    __shared__ sample_shared shared;
    uint64_t item = o.first + blockIdx.x;
    if (!lm_head_item_exists(o.live, item))
        return;
    const xray_draw draw =
        *(const xray_draw *)(const void *)(o.draws + item * o.draw_stride);
    float *z = o.z + blockIdx.x * o.row;
    float raw_max = prepare_row(&shared, &o, item, z);
    int tempered = draw.temperature != 1.0f && draw.temperature != 0.0f;
    sample_row r = { { z, o.vocab, o.segment, 0.0f,
                       tempered ? draw.temperature : 1.0f },
                     0.0f,
                     0,
                     0xffffffffu };
    /* The division rounds without changing the order. */
    r.max = tempered ? raw_max / draw.temperature : raw_max;
    logit_sum h = { r.max, raw_max, -cu_float(LM_HEAD_INF) };
    float raw_sum;
    float sum;
    if (tempered) {
        sum_logits<LM_HEAD_PAIR>(&shared.logits, &r.row, &h, &raw_sum, &sum);
    } else {
        sum_logits<LM_HEAD_FROM>(&shared.logits, &r.row, &h, &raw_sum, &sum);
        sum = raw_sum;
    }
    uint32_t token = draw_token(&shared, &o, item, r, &draw, sum);
    if (threadIdx.x != 0)
        return;
    o.token[item] = (int32_t)token;
    o.raw_logp[item] = (z[token] - raw_max) - cu_log(raw_sum);
    o.logp[item] = (logit_value(&r.row, z[token]) - r.max) - cu_log(sum);
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
