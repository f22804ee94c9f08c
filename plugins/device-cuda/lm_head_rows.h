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

/* One warp adds, and the others make the terms of four logits per thread. A
 * block has no more threads than a row can use; sixteen warps leave room for
 * two blocks on a multiprocessor at 64 registers a thread. */
#define LM_HEAD_MAKERS 480
#define LM_HEAD_THREADS (LM_HEAD_MAKERS + 32)

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
    float4 tile[2][2][LM_HEAD_MAKERS]; /* the terms, and their factors */
    uint64_t reduced[LM_HEAD_THREADS / 32];
    float open[32][SEGMENT_LEVELS][1]; /* of each lane of the adding warp */
    float sums[2];
} logit_shared;

CU_FN float cap_logit(const logit_row *r, float z)
{
    return r->softcap != 0.0f ? r->softcap * cu_tanh(z / r->softcap) : z;
}

CU_FN float temper_logit(const logit_row *r, float z)
{
    return r->temperature != 1.0f ? z / r->temperature : z;
}

CU_FN float logit_value(const logit_row *r, float z)
{
    return temper_logit(r, cap_logit(r, z));
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

CU_FN float ranked_value(uint64_t r)
{
    return key_to_float((uint32_t)(r >> 32));
}

CU_FN uint32_t ranked_index(uint64_t r)
{
    return ~(uint32_t)r;
}

/* Loads four entries of a row from i on, a multiple of 4; minus infinity past
 * its end. Rows of a caller may have any alignment. */
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
        z[j] = i + j < r->n ? r->z[i + j] : -cu_float(LM_HEAD_INF);
}

/* A pass that is bound by memory takes strides of eight entries per thread, as
 * four and four, so that enough loads are in flight. It begins at the end of
 * the row, which was written last, and ends at the beginning, which the sums
 * read first: both are likely to be in the L2 cache. */
CU_FN uint32_t count_strides(const logit_row *r)
{
    return (r->n - 1) / (8 * blockDim.x) + 1;
}

/* The thread's first four entries of a stride; the others are this many behind
 * them. */
CU_FN uint32_t stride_entry(uint32_t stride)
{
    return 8 * blockDim.x * stride + 4 * threadIdx.x;
}

CU_FN uint32_t stride_half(void)
{
    return 4 * blockDim.x;
}

CU_FN float most_of4(const float z[4])
{
    return fmaxf(fmaxf(z[0], z[1]), fmaxf(z[2], z[3]));
}

/* Applies the softcap to four entries, and writes them to `to` unless that is
 * NULL. */
CU_FN void cap_logits4(const logit_row *r, uint32_t i, float z[4], float *to)
{
#pragma unroll
    for (uint32_t j = 0; j < 4; j++) {
        if (i + j >= r->n)
            continue;
        z[j] = cap_logit(r, z[j]);
        if (to)
            to[i + j] = z[j];
    }
}

/* The largest of the thread's entries of a stride, the first of which is i,
 * with the softcap; NaN is ignored. Unless `to` is NULL, values that the
 * softcap changes are written to it. */
CU_FN float find_most8(const logit_row *r, uint32_t i, float *to)
{
    float a[4];
    float b[4];
    load_logits4(r, i, a);
    load_logits4(r, i + stride_half(), b);
    if (r->softcap != 0.0f) {
        cap_logits4(r, i, a, to);
        cap_logits4(r, i + stride_half(), b, to);
    }
    return fmaxf(most_of4(a), most_of4(b));
}

/* The largest value of a row. The division by a temperature rounds without
 * changing the order. */
CU_FN float logit_row_max(logit_shared *s, const logit_row *r)
{
    float top = -cu_float(LM_HEAD_INF);
    for (uint32_t c = count_strides(r); c-- > 0;)
        top = fmaxf(top, find_most8(r, stride_entry(c), NULL));
    return temper_logit(r, block_max(s, top));
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

/* The entries of a row that are added at a time: some of one segment. */
typedef struct logit_tile {
    uint32_t first; /* behind the last tile: the row's number of entries */
    uint32_t end;   /* of its segment */
} logit_tile;

CU_FN uint32_t segment_size(const logit_row *r)
{
    return r->segment ? r->segment : r->n;
}

/* The entries of a tile, of which there are at most four for each maker. */
CU_FN uint32_t tile_count(const logit_tile *t)
{
    uint32_t most = (blockDim.x - 32) * 4;
    return t->end - t->first < most ? t->end - t->first : most;
}

CU_FN void go_to_next_tile(const logit_row *r, logit_tile *t)
{
    t->first += tile_count(t);
    if (t->first == t->end)
        t->end = min(t->end + segment_size(r), r->n);
}

/* Loads a maker's quad of a tile. Quad q has the entries q / 16 * 64 + q % 16 +
 * 16 k, so the terms that a lane adds one after the other lie together. */
CU_FN void load_quad(const logit_row *r, const logit_tile *t, float z[4])
{
    uint32_t quad = threadIdx.x - 32;
    uint32_t i = t->first + quad / 16 * 64 + quad % 16;
    int32_t left = (int32_t)(t->end - i);
    const float *from = r->z + i;
#pragma unroll
    for (int32_t k = 0; k < 4; k++)
        z[k] = 16 * k < left ? from[16 * k] : 0.0f;
}

template <int MODE>
CU_FN void make_quad(const logit_row *r, const logit_sum *h, const float z[4],
                     float4 *u, float4 *v)
{
    float x[4] = { z[0], z[1], z[2], z[3] };
    float a[4];
    float b[4];
    if (r->softcap != 0.0f) {
#pragma unroll
        for (uint32_t k = 0; k < 4; k++)
            x[k] = cap_logit(r, x[k]);
    }
    if (r->temperature != 1.0f) {
#pragma unroll
        for (uint32_t k = 0; k < 4; k++)
            x[k] = temper_logit(r, x[k]);
    }
#pragma unroll
    for (uint32_t k = 0; k < 4; k++) {
        float d = x[k] - h->max;
        float e = cu_exp_below(d);
        if (MODE == LM_HEAD_MOMENT) {
            a[k] = e;
            b[k] = 0.0f < e ? d : 0.0f;
        } else if (MODE == LM_HEAD_PAIR) {
            a[k] = cu_exp_below(z[k] - h->raw_max);
            b[k] = e;
        } else {
            a[k] = x[k] < h->floor ? 0.0f : e;
        }
    }
    u[threadIdx.x - 32] = make_float4(a[0], a[1], a[2], a[3]);
    if (MODE != LM_HEAD_FROM)
        v[threadIdx.x - 32] = make_float4(b[0], b[1], b[2], b[3]);
}

/* The sums of a row in the adding warp: the sixteen partial sums of a segment,
 * of which lane l has number l % 16, and the number of segments before it. The
 * lower lanes add u, the upper lanes v or u v. */
typedef struct logit_sums {
    float partial;
    uint32_t ended;
} logit_sums;

/* A lane adds x, or x y, quad by quad. */
typedef struct logit_terms {
    const float4 *x;
    const float4 *y;
    int product;
} logit_terms;

template <int MODE>
CU_FN logit_terms get_terms(const float4 *u, const float4 *v)
{
    int high = threadIdx.x >= 16;
    uint32_t lane = threadIdx.x % 16;
    logit_terms t = { (MODE == LM_HEAD_PAIR && high ? v : u) + lane, v + lane,
                      MODE == LM_HEAD_MOMENT && high };
    return t;
}

CU_FN float4 load_factors(const logit_terms *t, uint32_t quad)
{
    return t->product ? t->y[16 * quad] : make_float4(1.0f, 1.0f, 1.0f, 1.0f);
}

template <int MODE> CU_FN float add_term(float s, float x, float y)
{
    return MODE == LM_HEAD_MOMENT ? fmaf(x, y, s) : s + x;
}

template <int MODE> CU_FN float add_quad(float s, float4 x, float4 y)
{
    s = add_term<MODE>(s, x.x, y.x);
    s = add_term<MODE>(s, x.y, y.y);
    s = add_term<MODE>(s, x.z, y.z);
    return add_term<MODE>(s, x.w, y.w);
}

/* The same with the entries of a tile that are below `count`. */
template <int MODE>
CU_FN float add_last_quad(float s, const logit_terms *t, uint32_t quad,
                          uint32_t count)
{
    const float4 x = t->x[16 * quad];
    const float4 y = load_factors(t, quad);
    const uint32_t i = 64 * quad + threadIdx.x % 16;
    s = i < count ? add_term<MODE>(s, x.x, y.x) : s;
    s = i + 16 < count ? add_term<MODE>(s, x.y, y.y) : s;
    s = i + 32 < count ? add_term<MODE>(s, x.z, y.z) : s;
    return i + 48 < count ? add_term<MODE>(s, x.w, y.w) : s;
}

/* Adds `count` entries of a tile. RING quads are in flight, so that the chain
 * waits for its own additions, four cycles per sixteen entries, and hardly for
 * loads. A full tile is whole rings. */
template <int MODE>
CU_FN float add_tile(float s, const logit_terms *t, uint32_t count)
{
    constexpr uint32_t RING = MODE == LM_HEAD_MOMENT ? 3 : 5;
    static_assert(LM_HEAD_MAKERS / 16 % RING == 0, "whole rings");
    const uint32_t quads = count / 64 / RING * RING;
    float4 x[RING];
    float4 y[RING];
#pragma unroll
    for (uint32_t k = 0; k < RING; k++) {
        x[k] = t->x[16 * k];
        y[k] = load_factors(t, k);
    }
#pragma unroll 1
    for (uint32_t q = 0; q < quads; q += RING) {
        const uint32_t next = q + RING < quads ? q + RING : 0;
#pragma unroll
        for (uint32_t k = 0; k < RING; k++) {
            s = add_quad<MODE>(s, x[k], y[k]);
            x[k] = t->x[16 * (next + k)];
            y[k] = load_factors(t, next + k);
        }
    }
#pragma unroll 1
    for (uint32_t q = quads; 64 * q < count; q++)
        s = add_last_quad<MODE>(s, t, q, count);
    return s;
}

/* The adding warp's turn with a tile. */
template <int MODE>
CU_FN void take_tile(logit_shared *shared, const logit_row *r,
                     const logit_tile *t, uint32_t b, logit_sums *s)
{
    const logit_terms terms =
        get_terms<MODE>(shared->tile[b][0], shared->tile[b][1]);
    const uint32_t count = tile_count(t);
    s->partial = add_tile<MODE>(s->partial, &terms, count);
    if (count < t->end - t->first)
        return;
    s->partial = cu_half_tree16(s->partial);
    end_segment<1>(shared->open[threadIdx.x], &s->partial, ++s->ended,
                   (r->n - 1) / segment_size(r) + 1);
}

/* The sums of a row, given to all threads. LM_HEAD_PAIR requires a row without
 * a softcap, and no value may be above h->max. In each turn the makers make a
 * tile from logits that were loaded two turns before, and the adding warp adds
 * the tile before it. Every thread of the block must call it. */
template <int MODE>
CU_FN void sum_logits(logit_shared *shared, const logit_row *r,
                      const logit_sum *h, float *out_first, float *out_second)
{
    const int maker = threadIdx.x >= 32;
    logit_sums s = { 0.0f, 0 };
    logit_tile ahead = { 0, segment_size(r) };
    logit_tile added = ahead;
    float z[2][4];
#pragma unroll
    for (int a = 0; a < 2; a++) {
        if (maker)
            load_quad(r, &ahead, z[a]);
        go_to_next_tile(r, &ahead);
    }
    __syncthreads();
#pragma unroll 2
    for (uint32_t turn = 0; added.first < r->n; turn++) {
        const uint32_t b = turn % 2;
        if (maker) {
            make_quad<MODE>(r, h, z[b], shared->tile[b][0], shared->tile[b][1]);
            load_quad(r, &ahead, z[b]);
        } else if (turn > 0) {
            take_tile<MODE>(shared, r, &added, 1 - b, &s);
        }
        go_to_next_tile(r, &ahead);
        if (turn > 0)
            go_to_next_tile(r, &added);
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
