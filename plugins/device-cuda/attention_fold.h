/* SPDX-License-Identifier: Apache-2.0
 *
 * How attention forward in bfloat16 folds blocks of keys into a query's sums
 * (docs/numerics.md, xray.cuda-bf16/4), for every kernel that does.
 */
#ifndef CUDA_ATTENTION_FOLD_H
#define CUDA_ATTENTION_FOLD_H

#include "plugins/device-cuda/attention_bf16.h"

#define PER (ATTEND_SPLIT / ATTEND_BLOCK)
#define GROUPS (ATTEND_BLOCK / 8)

/* The state of the two rows, l / 4 and l / 4 + 8, that lane l holds of its
 * warp's 16, with the columns of o that the warp has. `sum` is the lane's own
 * partial sum until fold_close. */
template <int COLS> struct fold {
    float o[COLS / 8][4];
    float max[2];
    float sum[2];
};

struct fold_rows {
    uint32_t pos[2];
    uint32_t from[2];
    uint32_t low;  /* first key that any row of the warp sees */
    uint32_t high; /* last key that any row of the warp sees */
    /* Last key that all rows see, if they also see key `firm`. */
    uint32_t solid;
    uint32_t firm; /* first key that all rows see */
};

template <int COLS> CU_FN void fold_clear(fold<COLS> *f)
{
#pragma unroll
    for (int n = 0; n < COLS / 8; n++)
        f->o[n][0] = f->o[n][1] = f->o[n][2] = f->o[n][3] = 0.0f;
    f->max[0] = f->max[1] = NEG_INF;
    f->sum[0] = f->sum[1] = 0.0f;
}

/* exp2f(x - max), where the maximum over nothing counts as 0. */
CU_FN float relative(float x, float max)
{
    return exp2f(x - (max == NEG_INF ? 0.0f : max));
}

template <bool CAPPED, int N>
CU_FN void scores_log2(float s[N][4], const attend_args *a, float c)
{
    float u;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            s[n][e] = attend_log2<CAPPED>(a, s[n][e], c, &u);
}

/* Converts the scores of 8 * N keys from `key` on to units of log 2; -inf where
 * not visible. */
template <int N>
CU_FN void mask_scores(float s[N][4], const attend_args *a, const fold_rows *r,
                       uint32_t key, float c)
{
    uint32_t j0 = key + threadIdx.x % 4 * 2;
    if (a->softcap == 0.0f)
        scores_log2<false, N>(s, a, c);
    else
        scores_log2<true, N>(s, a, c);
    if (key >= r->firm && key + N * 8 - 1 <= r->solid)
        return;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            uint32_t j = j0 + n * 8 + e % 2;
            int seen = j <= r->pos[e / 2] && j >= r->from[e / 2];
            s[n][e] = seen ? s[n][e] : NEG_INF;
        }
}

/* Folds the scores of one block, all but its values: finds the new maximum,
 * scales the previous sums to it, turns the scores into probabilities and adds
 * these in key order. */
template <int COLS> CU_FN void fold_scores(fold<COLS> *f, float s[GROUPS][4])
{
    float alpha[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float max = f->max[h];
#pragma unroll
        for (int n = 0; n < GROUPS; n++)
            max = fmaxf(max, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
        max = fmaxf(max, __shfl_xor_sync(CU_FULL, max, 1));
        max = fmaxf(max, __shfl_xor_sync(CU_FULL, max, 2));
        alpha[h] = relative(f->max[h], max);
        f->max[h] = max;
        float sum = 0.0f;
        float use = max == NEG_INF ? 0.0f : max;
#pragma unroll
        for (int n = 0; n < GROUPS; n++)
#pragma unroll
            for (int e = 2 * h; e < 2 * h + 2; e++) {
                s[n][e] = exp2f(s[n][e] - use);
                sum = sum + s[n][e];
            }
        f->sum[h] = fmaf(f->sum[h], alpha[h], sum);
    }
#pragma unroll
    for (int n = 0; n < COLS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            f->o[n][e] = f->o[n][e] * alpha[e / 2];
}

/* Adds the four partial sums of a row and gives the result to all four
 * lanes. */
template <int COLS> CU_FN void fold_close(fold<COLS> *f)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        f->sum[h] = f->sum[h] + __shfl_xor_sync(CU_FULL, f->sum[h], 1);
        f->sum[h] = f->sum[h] + __shfl_xor_sync(CU_FULL, f->sum[h], 2);
    }
}

/* The weights of a total and of the split that joins it. max and sum of the
 * total become those of both. */
CU_FN void join_weights(float *max, float *sum, float other_max,
                        float other_sum, float out[2])
{
    float m = fmaxf(*max, other_max);
    out[0] = relative(*max, m);
    out[1] = relative(other_max, m);
    *sum = fmaf(other_sum, out[1], *sum * out[0]);
    *max = m;
}

/* The rows of a tile from `row` on that this lane's warp folds. */
CU_FN void lane_rows(const attend_args *a, const attend_tile *w, uint32_t row,
                     fold_rows *r)
{
    uint32_t end = w->count * w->heads - 1;
    uint32_t top = w->pos + min(row, end) / w->heads;
    uint32_t bottom = w->pos + min(row + 15, end) / w->heads;
    for (uint32_t h = 0; h < 2; h++) {
        uint32_t i = min(row + threadIdx.x % 32 / 4 + 8 * h, end);
        r->pos[h] = w->pos + i / w->heads;
        r->from[h] = attend_first_key(r->pos[h], a->window);
    }
    r->low = attend_first_key(top, a->window);
    r->firm = attend_first_key(bottom, a->window);
    r->high = bottom;
    r->solid = top;
}

/* Loads `rows` rows of queries of the tile, rounded; those beyond the tile are
 * 0. Their type is looked up here and where o is stored, once for each tile, so
 * that it does not double the kernels. */
template <int DIM, int THREADS>
CU_FN void load_tile_queries(const attend_args *a, const attend_tile *w,
                             uint32_t rows, uint16_t *to)
{
    const uint32_t pieces = DIM / 8;
    const float *wide = static_cast<const float *>(a->q);
    const uint16_t *narrow = static_cast<const uint16_t *>(a->q);
    for (uint32_t i = threadIdx.x; i < rows * pieces; i += THREADS) {
        uint32_t r = i / pieces;
        uint32_t d = i % pieces * 8;
        uint4 x = make_uint4(0, 0, 0, 0);
        if (r < w->count * w->heads && d < a->dim) {
            uint64_t t = w->token + r / w->heads;
            uint64_t at = t * a->q_stride +
                          (uint64_t)(w->head + r % w->heads) * a->dim + d;
            x = a->dtype == XRAY_BF16 ? attend_piece(narrow + at, a->dim - d)
                                      : attend_piece(wide + at, a->dim - d);
        }
        *reinterpret_cast<uint4 *>(to + r * attend_pitch<DIM>::of + d) = x;
    }
}

/* Stores the lane's values of row h of the warp, times `scale`, to the row at
 * `to`. The fold's columns are sixteen of every 16 * STEP, from sixteen `part`
 * on. */
template <int COLS, int STEP, typename T>
CU_FN void store_row(T *to, const fold<COLS> *f, int h, uint32_t part,
                     uint32_t dim, float scale)
{
#pragma unroll
    for (int n = 0; n < COLS / 8; n++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            uint32_t d = (part + n / 2 * STEP) * 16 + n % 2 * 8 +
                         threadIdx.x % 4 * 2 + e;
            if (d < dim)
                cu_put1(to + d, f->o[n][2 * h + e] * scale);
        }
}

/* Writes the rows of a lane, of which row 0 is row `row` of the tile, to o and
 * lse, or to the scratch of the split. */
template <int COLS, int STEP>
CU_FN void store_rows(const attend_args *a, const attend_tile *w,
                      const fold<COLS> *f, uint32_t row, uint32_t part,
                      uint32_t split)
{
    uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint32_t r = row + lane / 4 + 8 * h;
        if (r >= w->count * w->heads)
            continue;
        uint64_t t = w->token + r / w->heads;
        uint64_t head = w->head + r % w->heads;
        uint64_t at = (t * a->heads + head) * a->splits + split;
        uint64_t o = t * a->o_stride + head * a->dim;
        float inverse = 1.0f / f->sum[h];
        if (gridDim.z > 1)
            store_row<COLS, STEP>(a->partial + at * a->dim, f, h, part, a->dim,
                                  1.0f);
        else if (a->dtype == XRAY_BF16)
            store_row<COLS, STEP>(static_cast<uint16_t *>(a->o) + o, f, h, part,
                                  a->dim, inverse);
        else
            store_row<COLS, STEP>(static_cast<float *>(a->o) + o, f, h, part,
                                  a->dim, inverse);
        if (lane % 4 != 0 || part != 0)
            continue;
        if (gridDim.z > 1) {
            a->partial_ml[at * 2] = f->max[h];
            a->partial_ml[at * 2 + 1] = f->sum[h];
        } else if (a->lse) {
            a->lse[t * a->heads + head] =
                fmaf(f->max[h], LN2, cu_log(f->sum[h]));
        }
    }
}

#endif
