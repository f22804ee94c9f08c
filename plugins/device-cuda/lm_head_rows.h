/* SPDX-License-Identifier: Apache-2.0
 *
 * Reductions over one row of logits by one thread block, for log-probabilities
 * and for sampling. One warp adds, in the order of docs/numerics.md, the terms
 * that the other warps compute, so the order of the sums is fixed and the
 * expensive terms are still computed in parallel.
 */
#ifndef CUDA_LM_HEAD_ROWS_H
#define CUDA_LM_HEAD_ROWS_H

#include "plugins/device-cuda/cu.h"
#include "plugins/device-cuda/device.h"
#include "plugins/device-cuda/fmath.h"
#include "plugins/device-cuda/segments.h"

/* One warp adds, and the others compute four logits per thread. A block has no
 * more threads than a row can use. */
#define LM_HEAD_MAKERS 512
#define LM_HEAD_THREADS (LM_HEAD_MAKERS + 32)
#define LM_HEAD_TILE (LM_HEAD_MAKERS * 4)

static inline unsigned count_row_threads(uint64_t vocab)
{
    uint64_t makers = (vocab + 127) / 128 * 32;
    return 32 + (unsigned)(makers < LM_HEAD_MAKERS ? makers : LM_HEAD_MAKERS);
}

#define LM_HEAD_INF 0x7f800000u /* bits */

typedef struct logit_row {
    const float *z;
    uint32_t n;
    uint32_t segment;  /* entries of a segment of its sums; 0: all of them */
    float softcap;     /* 0: none */
    float temperature; /* 1: no division */
} logit_row;

/* Returns logit_row's segment of the operators' `segment`, which may be above
 * 2^32. */
static inline uint32_t cut_row(uint64_t vocab, uint64_t segment)
{
    return segment < vocab ? (uint32_t)segment : 0;
}

/* The shared memory of a block. */
typedef struct logit_shared {
    alignas(16) float tile[2][2][LM_HEAD_TILE]; /* read as float4 */
    uint64_t reduced[LM_HEAD_THREADS / 32];
    float sums[2];
} logit_shared;

CU_FN float logit_value(const logit_row *r, float z)
{
    if (r->softcap != 0.0f)
        z = r->softcap * cu_tanh(z / r->softcap);
    return r->temperature != 1.0f ? z / r->temperature : z;
}

/* Maps floats to integers in the same order, where -0 equals 0. */
CU_FN uint32_t float_to_key(float z)
{
    uint32_t u = cu_bits(z + 0.0f);
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

CU_FN float key_to_float(uint32_t k)
{
    return cu_float(k & 0x80000000u ? k & 0x7fffffffu : ~k);
}

/* The largest `v` of the block's threads, given to all of them. Every thread
 * must call it. */
CU_FN uint64_t block_largest(logit_shared *s, uint64_t v)
{
#pragma unroll
    for (int by = 16; by > 0; by /= 2) {
        uint64_t other =
            (uint64_t)__shfl_xor_sync(CU_FULL, (unsigned long long)v, by);
        v = other > v ? other : v;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        s->reduced[threadIdx.x / 32] = v;
    __syncthreads();
    v = s->reduced[0];
    for (unsigned w = 1; w < blockDim.x / 32; w++)
        v = s->reduced[w] > v ? s->reduced[w] : v;
    return v;
}

CU_FN float block_max(logit_shared *s, float v)
{
    return key_to_float((uint32_t)block_largest(s, float_to_key(v)));
}

/* Packs a value and its index into one number that orders by larger value
 * first, then by lower index. */
CU_FN uint64_t ranked(float v, uint32_t i)
{
    return (uint64_t)float_to_key(v) << 32 | ~i;
}

CU_FN uint32_t ranked_index(uint64_t r)
{
    return ~(uint32_t)r;
}

/* Loads four entries of a row from i on, a multiple of 4; 0 past its end. Rows
 * of a caller may have any alignment. */
CU_FN void load_logits4(const logit_row *r, uint32_t i, float z[4])
{
    if (i + 4 <= r->n && (uintptr_t)r->z % 16 == 0) {
        float4 q = *(const float4 *)(const void *)(r->z + i);
        z[0] = q.x;
        z[1] = q.y;
        z[2] = q.z;
        z[3] = q.w;
        return;
    }
#pragma unroll
    for (uint32_t j = 0; j < 4; j++)
        z[j] = i + j < r->n ? r->z[i + j] : 0.0f;
}

/* The largest value of a row. */
CU_FN float logit_row_max(logit_shared *s, const logit_row *r)
{
    float top = -cu_float(LM_HEAD_INF);
    for (uint32_t i = threadIdx.x * 4; i < r->n; i += blockDim.x * 4) {
        float v[4];
        load_logits4(r, i, v);
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            float x = logit_value(r, v[j]);
            if (i + j < r->n && x > top)
                top = x;
        }
    }
    return block_max(s, top);
}

#define LM_HEAD_MOMENT 0 /* sum of e, and of e (z - max) */
/* Sum of e at temperature 1, and at the row's temperature. */
#define LM_HEAD_PAIR 1
#define LM_HEAD_FROM 2 /* sum of e where z >= floor */

/* The parameters of the sums of a row. */
typedef struct logit_sum {
    float max;
    float raw_max; /* LM_HEAD_PAIR: the maximum at temperature 1 */
    float floor;   /* LM_HEAD_FROM */
} logit_sum;

template <int MODE>
CU_FN void make_terms(const logit_row *r, const logit_sum *h, uint32_t first,
                      float *u, float *v)
{
    uint32_t at = (threadIdx.x - 32) * 4;
    float a[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
    float b[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
    uint32_t i = first + at;
    if (i < r->n) {
        float z[4];
        load_logits4(r, i, z);
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            if (i + j >= r->n)
                continue;
            float x = logit_value(r, z[j]);
            float d = x - h->max;
            float e = cu_exp(d);
            if (MODE == LM_HEAD_MOMENT) {
                a[j] = e;
                b[j] = 0.0f < e ? d : 0.0f;
            } else if (MODE == LM_HEAD_PAIR) {
                a[j] = cu_exp(z[j] - h->raw_max);
                b[j] = e;
            } else {
                a[j] = x < h->floor ? 0.0f : e;
            }
        }
    }
    *(float4 *)(void *)(u + at) = make_float4(a[0], a[1], a[2], a[3]);
    if (MODE != LM_HEAD_FROM)
        *(float4 *)(void *)(v + at) = make_float4(b[0], b[1], b[2], b[3]);
}

/* Adds entries [first, last) of u to sixteen partial sums in the lower lanes,
 * and those of v or of u v in the upper lanes. Entry `first` belongs to partial
 * `partial`. Each is one chain, whose length over all tiles bounds the kernel:
 * about 7 cycles per sixteen logits. */
template <int MODE>
CU_FN float add_terms(float s, const float *u, const float *v, uint32_t first,
                      uint32_t last, uint32_t partial)
{
    uint32_t lane = threadIdx.x % 32;
    int high = lane >= 16;
    const float *x = MODE == LM_HEAD_PAIR && high ? v : u;
#pragma unroll 16
    for (uint32_t i = first + (lane - partial) % 16; i < last; i += 16) {
        if (MODE == LM_HEAD_MOMENT)
            s = fmaf(x[i], high ? v[i] : 1.0f, s);
        else
            s = s + x[i];
    }
    return s;
}

/* The sums of a row in the adding warp: the sixteen partial sums of a segment,
 * of which lane l has number l % 16, and the sums of the segments before it. */
typedef struct logit_sums {
    float partial;
    float open[SEGMENT_LEVELS][1];
    uint32_t ended;
} logit_sums;

/* Adds the terms of a tile, whose first entry is `at`, segment by segment. */
template <int MODE>
CU_FN void add_tile(logit_sums *s, const logit_row *r, const float *u,
                    const float *v, uint32_t at, uint32_t count)
{
    uint32_t segment = r->segment ? r->segment : r->n;
    uint32_t segments = (r->n - 1) / segment + 1;
    for (uint32_t i = 0; i < count;) {
        uint32_t begin = s->ended * segment;
        uint32_t left = r->n - begin < segment ? r->n - begin : segment;
        uint32_t end = begin + left - at;
        uint32_t last = end < count ? end : count;
        s->partial =
            add_terms<MODE>(s->partial, u, v, i, last, (at + i - begin) % 16);
        i = last;
        if (last == end) {
            s->partial = cu_half_tree16(s->partial);
            end_segment<1>(s->open, &s->partial, ++s->ended, segments);
        }
    }
}

/* The sums of a row, given to all threads. LM_HEAD_PAIR requires a row without
 * a softcap. Every thread of the block must call it. */
template <int MODE>
CU_FN void sum_logits(logit_shared *shared, const logit_row *r,
                      const logit_sum *h, float *out_first, float *out_second)
{
    uint32_t tile = (blockDim.x - 32) * 4;
    uint32_t tiles = (r->n + tile - 1) / tile;
    logit_sums s;
    s.partial = 0.0f;
    s.ended = 0;
    __syncthreads();
    for (uint32_t t = 0; t <= tiles; t++) {
        if (threadIdx.x >= 32) {
            if (t < tiles)
                make_terms<MODE>(r, h, t * tile, shared->tile[t % 2][0],
                                 shared->tile[t % 2][1]);
        } else if (t > 0) {
            uint32_t at = (t - 1) * tile;
            add_tile<MODE>(&s, r, shared->tile[(t - 1) % 2][0],
                           shared->tile[(t - 1) % 2][1], at,
                           r->n - at < tile ? r->n - at : tile);
        }
        __syncthreads();
    }
    if (threadIdx.x < 32 && threadIdx.x % 16 == 0)
        shared->sums[threadIdx.x / 16] = s.partial;
    __syncthreads();
    *out_first = shared->sums[0];
    *out_second = shared->sums[1];
}

/* Whether the item exists. */
CU_FN int lm_head_item_exists(const int32_t *live, uint64_t item)
{
    return !live || (int64_t)item < (int64_t)*live;
}

#endif
