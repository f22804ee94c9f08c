/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws of tokens: the support by counting, never by sorting the vocabulary,
 * and the largest of logits with Gumbel noise. Equal to the CPU's to the bit.
 */
#include <xray/numerics.h>

#include "plugins/device-cuda/lm_head.h"
#include "plugins/device-cuda/lm_head_rows.h"

#define BINS 2048u
#define BAND 4096u /* largest values that are put in order at a time */

typedef struct sample_out {
    float *z;
    uint64_t row;
    uint64_t first;
    const int32_t *live;
    const char *draws;
    int32_t *token;
    float *raw_logp;
    float *logp;
    float *logits;
    uint32_t draw_stride;
    uint32_t vocab;
    float softcap;
    uint32_t reserved;
} sample_out;

/* Shared memory of a block. `head.tile` holds a band while there is one. */
typedef struct sample_shared {
    head_shared head;
    uint32_t bins[BINS];
    uint32_t found[4];
    uint32_t taken;
} sample_shared;

static_assert(sizeof(float) * 4 * HEAD_TILE >= 2 * BAND * sizeof(uint32_t),
              "a band and its exponentials fit where tiles lie");

/* A row, and the part of it whose keys are in [low, high]. */
typedef struct sample_row {
    head_row row;
    float max;
    uint32_t low;
    uint32_t high;
} sample_row;

CU_FN uint32_t row_key(const sample_row *r, uint32_t i)
{
    return head_key(head_value(&r->row, r->row.z[i]));
}

/* Counts keys in [low, high], those alone that agree with `prefix` above
 * `shift` + `bits`, by their `bits` bits from `shift` on. */
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
    uint32_t bin;   /* that holds the k-th value from the top; BINS: too few */
    uint32_t above; /* values in higher bins */
    uint32_t count; /* in this one */
} found_bin;

/* Warp 0 counts from the top: sixty-four bins a lane, read so that lanes fall
 * into different banks. */
CU_FN found_bin find_bin(sample_shared *s, uint32_t k)
{
    uint32_t lane = threadIdx.x;
    if (lane < 32) {
        uint32_t own = 0;
        for (uint32_t j = 0; j < BINS / 32; j++)
            own += s->bins[lane * (BINS / 32) + (j + lane) % (BINS / 32)];
        uint32_t upto = own; /* of this lane and the higher ones */
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

/* Key of the k-th largest value of the part; there are as many. */
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

/* The largest values of the part: those with keys >= low, at most BAND of them,
 * or, where that many are equal, one value `count` times. count 0: the part is
 * empty. */
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

/* Keys of the band in falling order, by a network of exchanges. */
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

/* Where a sum in falling order stands. */
typedef struct sample_sum {
    float sum;
    float wanted;
    float max;
} sample_sum;

/* Adds equal values. The key where the sum is reached, else 0. */
CU_FN uint32_t add_equal(sample_sum *t, const sample_band *band)
{
    float e = cu_exp(head_unkey(band->low) - t->max);
    for (uint32_t i = 0; i < band->count; i++) {
        t->sum = t->sum + e;
        if (t->sum >= t->wanted)
            return band->low;
    }
    return 0;
}

/* Adds the band's values one by one: thread 0, the others wait. */
CU_FN uint32_t add_band(sample_shared *s, const sample_row *r, sample_sum *t,
                        const sample_band *band)
{
    uint32_t *keys = (uint32_t *)(void *)s->head.tile;
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
        e[i] = cu_exp(head_unkey(keys[i]) - t->max);
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
        s->head.sums[0] = t->sum;
    }
    __syncthreads();
    t->sum = s->head.sums[0];
    uint32_t found = s->found[3];
    __syncthreads();
    return found;
}

/* The value at which the sum of exp(z - max) in falling order reaches `wanted`,
 * or `floor`. */
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
            return head_unkey(found);
        if (band.low <= r.low)
            return floor;
        r.high = band.low - 1;
    }
}

CU_FN float cut_min_p(sample_shared *s, const sample_row *r, float min_p)
{
    uint32_t least = 0xffffffffu;
    for (uint32_t i = threadIdx.x; i < r->row.n; i += blockDim.x) {
        float z = head_value(&r->row, r->row.z[i]);
        uint32_t k = head_key(z);
        if (cu_exp(z - r->max) >= min_p && k < least)
            least = k;
    }
    least = ~(uint32_t)head_largest(&s->head, ~least);
    return least == 0xffffffffu ? cu_float(HEAD_INF) : head_unkey(least);
}

/* How many values are not below `floor`. */
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
 * the whole row. */
CU_FN float support_floor(sample_shared *s, sample_row r, const xray_draw *draw,
                          float sum)
{
    float floor = -cu_float(HEAD_INF);
    int by_p = draw->top_p < 1.0f;
    uint32_t n = r.row.n;
    uint32_t top_k = draw->top_k > 0 ? (uint32_t)draw->top_k : n;
    if (draw->min_p > 0.0f)
        floor = cut_min_p(s, &r, draw->min_p);
    if (top_k >= n && !by_p)
        return floor;
    r.low = head_key(floor);
    if (top_k < n) {
        uint32_t count = draw->min_p > 0.0f ? count_from(s, &r) : n;
        if (top_k < count) {
            r.low = nth_largest(s, &r, top_k);
            floor = head_unkey(r.low);
        }
    }
    if (!by_p)
        return floor;
    if (floor > -cu_float(HEAD_INF)) {
        head_sum h = { r.max, 0.0f, floor };
        float none;
        head_sums<HEAD_FROM>(&s->head, &r.row, &h, &sum, &none);
    }
    return cut_top_p(s, r, floor, draw->top_p * sum);
}

/* Value and index as one number: the larger value first, then the lower index.
 */
CU_FN uint64_t ranked(float v, uint32_t i)
{
    return (uint64_t)head_key(v) << 32 | ~i;
}

CU_FN uint32_t ranked_index(uint64_t r)
{
    return ~(uint32_t)r;
}

CU_FN uint32_t argmax_row(sample_shared *s, const head_row *r)
{
    float top = -cu_float(HEAD_INF);
    uint64_t best = ranked(top, 0);
    for (uint32_t i = threadIdx.x; i < r->n; i += blockDim.x) {
        float z = head_value(r, r->z[i]);
        if (z > top) {
            top = z;
            best = ranked(z, i);
        }
    }
    return ranked_index(head_largest(&s->head, best));
}

/* argmax over z >= floor of z - log(-log u): a Philox call and eight logarithms
 * for every four words that stay, which bounds draws without a cut. */
CU_FN uint32_t gumbel_row(sample_shared *s, const head_row *r, float floor,
                          const xray_draw *draw)
{
    float top = -cu_float(HEAD_INF);
    uint64_t best = ranked(top, 0);
    for (uint32_t i = threadIdx.x * 4; i < r->n; i += blockDim.x * 4) {
        float4 q = *(const float4 *)(const void *)(r->z + i);
        float z[4] = { q.x, q.y, q.z, q.w };
        int any = 0;
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            z[j] = head_value(r, z[j]);
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
    return ranked_index(head_largest(&s->head, best));
}

/* Softcaps the row in place, keeps it if asked, and gives its largest value. */
CU_FN float prepare_row(sample_shared *s, const sample_out *o, uint64_t item,
                        float *z)
{
    head_row r = { z, o->vocab, o->softcap, 1.0f };
    if (o->softcap == 0.0f && !o->logits)
        return head_row_max(&s->head, &r);
    float top = -cu_float(HEAD_INF);
    float *to = o->logits ? o->logits + item * o->vocab : NULL;
    for (uint32_t i = threadIdx.x; i < o->vocab; i += blockDim.x) {
        float x = head_value(&r, z[i]);
        if (o->softcap != 0.0f)
            z[i] = x;
        if (to)
            to[i] = x;
        top = x > top ? x : top;
    }
    return head_max(&s->head, top);
}

/* A block an item. Three passes over a row that nothing cuts, from the L2 cache
 * but for the first: the maximum, the sums, the noise. */
__global__ void __launch_bounds__(HEAD_THREADS) sample_rows(sample_out o)
{
    __shared__ sample_shared shared;
    uint64_t item = o.first + blockIdx.x;
    if (!head_there(o.live, item))
        return;
    const xray_draw draw =
        *(const xray_draw *)(const void *)(o.draws + item * o.draw_stride);
    float *z = o.z + blockIdx.x * o.row;
    float raw_max = prepare_row(&shared, &o, item, z);
    int tempered = draw.temperature != 1.0f && draw.temperature != 0.0f;
    sample_row r = { { z, o.vocab, 0.0f, tempered ? draw.temperature : 1.0f },
                     0.0f,
                     0,
                     0xffffffffu };
    /* Division rounds without changing the order. */
    r.max = tempered ? raw_max / draw.temperature : raw_max;
    head_sum h = { r.max, raw_max, -cu_float(HEAD_INF) };
    float raw_sum;
    float sum;
    if (tempered) {
        head_sums<HEAD_PAIR>(&shared.head, &r.row, &h, &raw_sum, &sum);
    } else {
        head_sums<HEAD_FROM>(&shared.head, &r.row, &h, &raw_sum, &sum);
        sum = raw_sum;
    }
    uint32_t token;
    if (draw.temperature == 0.0f) {
        token = argmax_row(&shared, &r.row);
    } else {
        float floor = support_floor(&shared, r, &draw, sum);
        token = gumbel_row(&shared, &r.row, floor, &draw);
    }
    if (threadIdx.x != 0)
        return;
    o.token[item] = (int32_t)token;
    o.raw_logp[item] = (z[token] - raw_max) - cu_log(raw_sum);
    o.logp[item] = (head_value(&r.row, z[token]) - r.max) - cu_log(sum);
}

xray_status cuda_sample(void *self, xray_stream *stream, const xray_sample *op)
{
    cuda_device *d = (cuda_device *)self;
    CUDA_CHECK(d, op, "sample", op->weight, op->x, op->draws, op->token,
               op->raw_logp, op->logp);
    if (op->draw_stride < sizeof(xray_draw) || op->draw_stride % 8 != 0)
        return cuda_fail(d, XRAY_E_ARG, "sample", "draw_stride is %u",
                         op->draw_stride);
    cudaStream_t s = cuda_stream(d, stream);
    head_chunk c = {};
    c.where = "sample";
    c.weight = op->weight;
    c.x = op->x;
    c.live = op->items.live;
    xray_status status = head_begin(d, &c, 0);
    while (status == XRAY_OK && head_next(&c, op->items.bound)) {
        status = head_round(d, s, &c);
        if (status == XRAY_OK)
            status = head_logits(d, s, &c);
        if (status != XRAY_OK)
            break;
        sample_out o = {};
        o.z = c.z;
        o.row = c.row;
        o.first = c.first;
        o.live = op->items.live;
        o.draws = (const char *)(const void *)op->draws;
        o.token = op->token;
        o.raw_logp = op->raw_logp;
        o.logp = op->logp;
        o.logits = op->logits;
        o.draw_stride = op->draw_stride;
        o.vocab = (uint32_t)op->weight->rows;
        o.softcap = op->softcap;
        CU_LAUNCH(sample_rows, dim3((unsigned)c.count), head_threads(o.vocab),
                  0, s, o);
        status = cuda_launched(d, "sample");
    }
    return status;
}
