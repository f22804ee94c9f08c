/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the smallest value of a row that min_p, top_k and top_p leave to be
 * drawn. It is found by counting; few values at a time are sorted.
 */
#ifndef CUDA_SAMPLE_SUPPORT_H
#define CUDA_SAMPLE_SUPPORT_H

#include "plugins/device-cuda/lm_head_rows.h"

#define BINS 2048u
#define BAND 3584u   /* largest values that are sorted at a time */
#define SORTED 4096u /* a power of two */

/* The shared memory of a block. `logits.tile` holds a band during a sort. */
typedef struct sample_shared {
    logit_shared logits;
    uint32_t bins[BINS];
    uint32_t found[4];
    uint32_t taken;
    uint32_t best; /* key of a value with noise that an entry of the row has */
} sample_shared;

static_assert(sizeof(float4) * 4 * LM_HEAD_MAKERS >=
                  (SORTED + BAND) * sizeof(uint32_t),
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
#pragma unroll 8
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

/* Gets the keys of the part that are >= low, of which there are `count`, in
 * descending order. */
CU_FN const uint32_t *sort_part(sample_shared *s, const sample_row *r,
                                uint32_t low, uint32_t count)
{
    uint32_t *keys = (uint32_t *)(void *)s->logits.tile;
    if (threadIdx.x == 0)
        s->taken = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < r->row.n; i += blockDim.x) {
        uint32_t k = row_key(r, i);
        if (k >= r->low && k <= r->high && k >= low)
            keys[atomicAdd(&s->taken, 1u)] = k;
    }
    __syncthreads();
    sort_band(keys, count);
    return keys;
}

/* The key of the k-th largest value of the part; r->low if it has less than k
 * values. Where a bin has few values they are sorted, which saves passes. */
CU_FN uint32_t nth_largest(sample_shared *s, const sample_row *r, uint32_t k)
{
    const uint32_t shifts[3] = { 21, 10, 0 };
    const uint32_t bits[3] = { 11, 11, 10 };
    uint32_t prefix = 0;
    for (int level = 0; level < 3; level++) {
        count_bins(s, r, prefix, shifts[level], bits[level]);
        found_bin f = find_bin(s, k);
        if (f.bin == BINS)
            return r->low;
        k -= f.above;
        prefix = level == 0 ? f.bin : prefix << bits[level] | f.bin;
        if (level < 2 && f.count <= BAND) {
            sample_row bin = *r;
            bin.low = max(r->low, prefix << shifts[level]);
            bin.high = min(r->high, ((prefix + 1) << shifts[level]) - 1);
            uint32_t key = sort_part(s, &bin, bin.low, f.count)[k - 1];
            __syncthreads();
            return key;
        }
    }
    return prefix;
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
    float e = cu_exp_below(key_to_float(band->low) - t->max);
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
    const uint32_t *keys = sort_part(s, r, band->low, band->count);
    float *e = (float *)(void *)s->logits.tile + SORTED;
    for (uint32_t i = threadIdx.x; i < band->count; i += blockDim.x)
        e[i] = cu_exp_below(key_to_float(keys[i]) - t->max);
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
        if (cu_exp_below(z - r->max) >= min_p && k < least)
            least = k;
    }
    least = ~(uint32_t)block_largest(&s->logits, ~least);
    return least == 0xffffffffu ? cu_float(LM_HEAD_INF) : key_to_float(least);
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
        r.low = nth_largest(s, &r, top_k);
        floor = key_to_float(r.low);
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

#endif
