/* SPDX-License-Identifier: Apache-2.0
 *
 * A tile of at most 16 queries over a cache, which is what decoding consists
 * of: the queries of one or a few tokens that read the same kv head.
 *
 * Such a tile has rows for one warp only, so the warps share each block of
 * keys: a warp computes the scores of its part of the keys, all warps fold all
 * scores, and a warp adds the values of its part of the columns. Which warp
 * adds a term changes neither its value nor its place in a sum.
 *
 * Decoding waits for device memory. While a block is folded the next one is in
 * flight, and so are the numbers of the cache blocks that hold the one after
 * it. At head dimension 64 four thread blocks share a multiprocessor, at 128
 * two: 64 KiB are in flight, where the latency needs 23 KiB. Each scheduler has
 * a warp of each thread block, which takes about 500 instructions for a block
 * of 16 KiB at head dimension 64; the memory needs 900 cycles for it.
 */
#ifndef CUDA_ATTENTION_DECODE_H
#define CUDA_ATTENTION_DECODE_H

#include "plugins/device-cuda/attention_fold.h"

#define DECODE_ROWS 16u
/* Floats from one row of scores to the next: rows that a warp accesses at once
 * are in different banks. */
#define DECODE_PITCH (ATTEND_BLOCK + 8u)
#define DECODE_RUN 16u /* keys that adjoin in every cache */
#define DECODE_RUNS (ATTEND_BLOCK / DECODE_RUN)

/* The shared memory of a tile. */
template <int DIM> struct decode_space {
    uint16_t keys[2][2][ATTEND_BLOCK * attend_pitch<DIM>::of]; /* and values */
    uint16_t queries[DECODE_ROWS * attend_pitch<DIM>::of];
    float scores[DECODE_ROWS * DECODE_PITCH];
    uint64_t places[DECODE_RUNS]; /* elements before the first key of a run */
};

/* The first block of keys at or after b whose split this thread block folds. */
CU_FN uint32_t own_block(uint32_t b)
{
    uint32_t away = (blockIdx.z + gridDim.z - b / PER % gridDim.z) % gridDim.z;
    return away ? (b / PER + away) * PER : b;
}

/* The one after block b. */
CU_FN uint32_t next_block(uint32_t b)
{
    return (b + 1) % PER ? b + 1 : b + 1 + (gridDim.z - 1) * PER;
}

/* Returns the place of this thread's run of block b, if it has one. */
CU_FN uint64_t find_run(const attend_args *a, const attend_tile *w, uint32_t b,
                        uint32_t last)
{
    uint32_t j = b * ATTEND_BLOCK + threadIdx.x * DECODE_RUN;
    if (threadIdx.x >= DECODE_RUNS || b > last || j >= w->pos + w->count)
        return 0;
    return attend_key<ATTEND_CACHE>(a, w, j, a->k_stride);
}

/* Loads block b of keys and of values, with 0 where no query of the tile sees.
 * Where a row of pieces divides the threads, a thread's rows are a fixed number
 * apart, so only their runs differ. */
template <int DIM, int WARPS>
CU_FN void load_runs(const attend_args *a, const attend_tile *w, uint32_t b,
                     const uint64_t *places,
                     uint16_t (*to)[ATTEND_BLOCK * attend_pitch<DIM>::of])
{
    const uint32_t pieces = DIM / 8;
    const uint32_t count = ATTEND_BLOCK * pieces / (WARPS * 32);
    const bool even = WARPS * 32 % pieces == 0;
    const uint32_t rows = WARPS * 32 / pieces; /* between a thread's */
    static_assert(count * WARPS * 32 == ATTEND_BLOCK * pieces, "whole turns");
    const uint16_t *k = static_cast<const uint16_t *>(a->k);
    const uint16_t *v = static_cast<const uint16_t *>(a->v);
    uint32_t last = w->pos + w->count - 1;
    uint32_t first = attend_first_key(w->pos, a->window);
#pragma unroll(count > 8 ? 4 : count)
    for (uint32_t n = 0; n < count; n++) {
        uint32_t i = threadIdx.x + n * (WARPS * 32);
        uint32_t r = even ? threadIdx.x / pieces + n * rows : i / pieces;
        uint32_t d = (even ? threadIdx.x : i) % pieces * 8;
        uint32_t j = b * ATTEND_BLOCK + r;
        int there = j >= first && j <= last && d < a->dim8;
        uint64_t at = places[r / DECODE_RUN] +
                      (r % DECODE_RUN * (uint32_t)a->k_stride + d);
        uint32_t into = r * attend_pitch<DIM>::of + d;
        at = there ? at : 0;
        cu_async16(to[0] + into, k + at, there ? 16 : 0);
        cu_async16(to[1] + into, v + at, there ? 16 : 0);
    }
    cu_async_commit();
}

/* Computes the scores of this warp's keys of block b. */
template <int DIM, int WARPS>
CU_FN void put_scores(const attend_args *a, const fold_rows *r,
                      decode_space<DIM> *space, const uint16_t *keys,
                      uint32_t b)
{
    const int n = ATTEND_BLOCK / WARPS / 8;
    uint32_t lane = threadIdx.x % 32;
    uint32_t first = threadIdx.x / 32 * (n * 8);
    float s[n][4];
    product_rows<DIM, n>(s, space->queries,
                         keys + first * attend_pitch<DIM>::of);
    mask_scores<n>(s, a, r, b * ATTEND_BLOCK + first, a->scale * LOG2E);
    float *to = space->scores + lane / 4 * DECODE_PITCH + first + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < n; i++)
#pragma unroll
        for (uint32_t h = 0; h < 2; h++)
            *reinterpret_cast<float2 *>(to + h * 8 * DECODE_PITCH + i * 8) =
                make_float2(s[i][2 * h], s[i][2 * h + 1]);
}

CU_FN void get_scores(float s[GROUPS][4], const float *scores)
{
    uint32_t lane = threadIdx.x % 32;
    const float *from = scores + lane / 4 * DECODE_PITCH + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < (int)GROUPS; i++)
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            float2 x = *reinterpret_cast<const float2 *>(
                from + h * 8 * DECODE_PITCH + i * 8);
            s[i][2 * h] = x.x;
            s[i][2 * h + 1] = x.y;
        }
}

/* Folds a block into the columns of this warp, sixteen of every 16 * WARPS. */
template <int DIM, int WARPS, int COLS>
CU_FN void fold_columns(fold<COLS> *f, const float *scores,
                        const uint16_t *values)
{
    float s[GROUPS][4];
    get_scores(s, scores);
    fold_scores<COLS>(f, s);
#pragma unroll
    for (int i = 0; i < COLS / 16; i++) {
        uint32_t first = (threadIdx.x / 32 + i * WARPS) * 16;
        if (first < DIM)
            product_columns<DIM, 16, GROUPS>(f->o + 2 * i, s, values, first);
    }
}

/* Joins a closed split to the total. */
template <int COLS>
CU_FN void join_total(fold<COLS> *total, const fold<COLS> *f)
{
    float by[2][2];
#pragma unroll
    for (int h = 0; h < 2; h++)
        join_weights(&total->max[h], &total->sum[h], f->max[h], f->sum[h],
                     by[h]);
#pragma unroll
    for (int i = 0; i < COLS / 2; i++) {
        const float *x = by[i % 4 / 2];
        float *o = &total->o[i / 4][i % 4];
        *o = fmaf(f->o[i / 4][i % 4], x[1], *o * x[0]);
    }
}

/* Attention of tile w, of which this thread block folds the splits from block b
 * on. `shared` is the start of the dynamic shared memory. */
template <int DIM, int WARPS>
CU_FN void decode_tile(const attend_args *a, const attend_tile *w, uint32_t b,
                       uint32_t last, void *shared)
{
    const int cols = (DIM / 16 + WARPS - 1) / WARPS * 16;
    decode_space<DIM> *space = static_cast<decode_space<DIM> *>(shared);
    uint32_t warp = threadIdx.x / 32;
    if (threadIdx.x < DECODE_RUNS)
        space->places[threadIdx.x] = find_run(a, w, b, last);
    load_tile_queries<DIM, WARPS * 32>(a, w, DECODE_ROWS, space->queries);
    __syncthreads();
    load_runs<DIM, WARPS>(a, w, b, space->places, space->keys[0]);
    uint64_t ahead = find_run(a, w, next_block(b), last);
    fold_rows r;
    lane_rows(a, w, 0, &r);
    fold<cols> f;
    fold<cols> total;
    fold_clear(&f);
    int first = 1;
    __syncthreads();
    if (threadIdx.x < DECODE_RUNS)
        space->places[threadIdx.x] = ahead;
    for (uint32_t turn = 0; b <= last; turn++) {
        uint16_t(*own)[ATTEND_BLOCK * attend_pitch<DIM>::of] =
            space->keys[turn % 2];
        uint32_t next = next_block(b);
        cu_async_wait<0>();
        /* All warps have left the turn before, whose buffers are free. */
        __syncthreads();
        if (next <= last) {
            load_runs<DIM, WARPS>(a, w, next, space->places,
                                  space->keys[(turn + 1) % 2]);
            ahead = find_run(a, w, next_block(next), last);
        }
        put_scores<DIM, WARPS>(a, &r, space, own[0], b);
        __syncthreads();
        if (threadIdx.x < DECODE_RUNS)
            space->places[threadIdx.x] = ahead;
        fold_columns<DIM, WARPS, cols>(&f, space->scores, own[1]);
        if (next > last || next / PER != b / PER) {
            fold_close(&f);
            if (gridDim.z > 1)
                store_rows<cols, WARPS>(a, w, &f, 0, warp, b / PER);
            else if (first)
                total = f;
            else
                join_total(&total, &f);
            fold_clear(&f);
            first = 0;
        }
        b = next;
    }
    if (gridDim.z == 1)
        store_rows<cols, WARPS>(a, w, &total, 0, warp, 0);
}

#endif
