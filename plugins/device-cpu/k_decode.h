/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of one token over a KV cache. The queries of several kv heads are
 * computed side by side, because the chains of a single head would wait for
 * their own sums. The sums and their order are those of attend().
 */
#ifndef CPU_K_DECODE_H
#define CPU_K_DECODE_H

#include "plugins/device-cpu/k_attention.h"

/* The number of chains that keeps the FMA units busy and fits the registers. */
#if VEC_ROWS == 14
#define DECODE_CHAINS 8
#else
#define DECODE_CHAINS 4
#endif

/* Queries row .. row + rows - 1 of each of `heads` kv heads, beginning with
 * `head`. */
typedef struct decode_part {
    const cpu_decode *a;
    size_t head, heads;
    size_t row, rows;
    size_t from; /* first visible key */
    size_t base; /* the group of 16 that contains it */
    size_t column;
    float top[CPU_QUERY_TILE];
    float sum[CPU_QUERY_TILE];
} decode_part;

/* Address of K or V of key j, the first of a group of 16; `part` is a->k or
 * a->v. */
VFN const float *decode_at(const cpu_decode *a, const float *part, size_t head,
                           size_t j)
{
    size_t b = j / a->block_tokens;
    size_t block = a->table ? (size_t)(uint32_t)a->table[b] : a->first + b;
    return part + block * a->block + head * a->head +
           j % a->block_tokens * a->dim;
}

/* A lane beyond the last head reads the last head again. */
VFN size_t decode_head(const decode_part *p, size_t h)
{
    return p->head + min_size(h, p->heads - 1);
}

VFN float *decode_scores(const decode_part *p, size_t h, size_t r)
{
    return p->a->scores + (h * p->rows + r) * p->a->score_row;
}

/* ---- scores ------------------------------------------------------------- */

/* Computes the scores of R queries of kv head h, P groups of keys at a time,
 * and their maximum. */
VFN void decode_scores_of(const size_t R, const size_t P, decode_part *p,
                          size_t h)
{
    const cpu_decode *a = p->a;
    const float *q = a->q + ((p->head + h) * a->group + p->row) * a->dim;
    size_t end = (a->pos + 16) / 16 * 16;
    v16 low = v16_set(-VEC_INF);
    v16 top[4];
    UNROLL_PANELS
    for (size_t r = 0; r < R; r++)
        top[r] = low;
    for (size_t j = p->base; j < end; j += 16 * P) {
        const float *k[8];
        v16 c[4][8];
        UNROLL_PANELS
        for (size_t i = 0; i < P; i++) {
            k[i] =
                decode_at(a, a->k, p->head + h, min_size(j + 16 * i, end - 16));
            UNROLL_PANELS
            for (size_t r = 0; r < R; r++)
                c[r][i] = v16_set(0.0f);
        }
        for (size_t d = 0; d < a->dim; d++) {
            v16 s[4];
            UNROLL_PANELS
            for (size_t r = 0; r < R; r++)
                s[r] = v16_set(q[r * a->dim + d]);
            UNROLL_PANELS
            for (size_t i = 0; i < P; i++) {
                v16 x = v16_load(k[i] + d * 16);
                UNROLL_PANELS
                for (size_t r = 0; r < R; r++)
                    c[r][i] = v16_fma(s[r], x, c[r][i]);
            }
        }
        UNROLL_PANELS
        for (size_t i = 0; i < P; i++) {
            size_t at = min_size(j + 16 * i, end - 16);
            m16 seen =
                m16_range(p->from > at ? p->from - at : 0, a->pos + 1 - at);
            UNROLL_PANELS
            for (size_t r = 0; r < R; r++) {
                v16 x = v16_pick(
                    seen, scaled_score(c[r][i], a->scale, a->softcap), low);
                top[r] = v16_max(x, top[r]);
                v16_store(decode_scores(p, h, r) + (at - p->base), x);
            }
        }
    }
    UNROLL_PANELS
    for (size_t r = 0; r < R; r++)
        p->top[h * R + r] = v16_hmax(top[r]);
}

/* Turns scores into exp(s - max) and computes their sum. */
static void decode_exp(decode_part *p, size_t row)
{
    const cpu_decode *a = p->a;
    float *s = p->a->scores + row * a->score_row;
    v16 m = v16_set(p->top[row]);
    v16 sum = v16_set(0.0f);
    for (size_t j = p->base; j <= a->pos; j += 16) {
        m16 seen = m16_range(p->from > j ? p->from - j : 0, a->pos + 1 - j);
        v16 e = v16_exp_of(seen, v16_sub(v16_load(s + (j - p->base)), m));
        sum = v16_add(sum, e);
        v16_store(s + (j - p->base), e);
    }
    p->sum[row] = v16_sum(sum);
}

/* ---- values ------------------------------------------------------------- */

/* Computes 16 D columns of o for R queries of each of H kv heads. */
VFN void decode_values_of(const size_t R, const size_t D, const size_t H,
                          const decode_part *p)
{
    const cpu_decode *a = p->a;
    v16 c[8][4][4];
    UNROLL_PANELS
    for (size_t h = 0; h < H; h++) {
        UNROLL_PANELS
        for (size_t r = 0; r < R; r++) {
            UNROLL_PANELS
            for (size_t d = 0; d < D; d++)
                c[h][r][d] = v16_set(0.0f);
        }
    }
    for (size_t j = p->base; j <= a->pos; j += 16) {
        const float *v[8];
        const float *e = a->scores + (j - p->base);
        UNROLL_PANELS
        for (size_t h = 0; h < H; h++)
            v[h] = decode_at(a, a->v, decode_head(p, h), j) + p->column;
        size_t end = min_size(16, a->pos + 1 - j);
        for (size_t i = p->from > j ? p->from - j : 0; i < end; i++) {
            UNROLL_PANELS
            for (size_t h = 0; h < H; h++) {
                v16 x[4];
                UNROLL_PANELS
                for (size_t d = 0; d < D; d++)
                    x[d] = v16_load(v[h] + i * a->dim + d * 16);
                UNROLL_PANELS
                for (size_t r = 0; r < R; r++) {
                    v16 s = v16_set(e[(h * R + r) * a->score_row + i]);
                    UNROLL_PANELS
                    for (size_t d = 0; d < D; d++)
                        c[h][r][d] = v16_fma(s, x[d], c[h][r][d]);
                }
            }
        }
    }
    UNROLL_PANELS
    for (size_t h = 0; h < H; h++)
        UNROLL_PANELS
    for (size_t r = 0; r < R; r++) {
        float *o = a->o + ((p->head + h) * a->group + p->row + r) * a->dim;
        if (h >= p->heads)
            continue;
        UNROLL_PANELS
        for (size_t d = 0; d < D; d++)
            v16_store(o + p->column + d * 16,
                      v16_div(c[h][r][d], v16_set(p->sum[h * R + r])));
    }
}

/* ---- tables ------------------------------------------------------------- */

/* kv heads side by side, and groups of keys, that give this many chains. */
#define DECODE_SIDE(chains) \
    ((chains) < DECODE_CHAINS ? DECODE_CHAINS / (chains) : 1)

typedef void decode_scores_fn(decode_part *p, size_t h);
typedef void decode_values_fn(const decode_part *p);

#define SCORES(R)                                                           \
    static __attribute__((noinline)) void decode_scores_##R(decode_part *p, \
                                                            size_t h)       \
    {                                                                       \
        decode_scores_of(R, DECODE_SIDE(R), p, h);                          \
    }
#define VALUES(R, D)                                               \
    static __attribute__((noinline)) void decode_values_##R##_##D( \
        const decode_part *p)                                      \
    {                                                              \
        decode_values_of(R, D, DECODE_SIDE((R) * (D)), p);         \
    }
SCORES(1)
SCORES(2)
SCORES(4)
VALUES(1, 1)
VALUES(1, 2)
VALUES(1, 4)
VALUES(2, 1)
VALUES(2, 2)
VALUES(4, 1)
#if DECODE_CHAINS == 8
VALUES(2, 4)
VALUES(4, 2)
VALUES(4, 4)
#else
#define decode_values_2_4 NULL
#define decode_values_4_2 NULL
#define decode_values_4_4 NULL
#endif

static decode_scores_fn *const decode_scores_by[3] = { decode_scores_1,
                                                       decode_scores_2,
                                                       decode_scores_4 };
static decode_values_fn *const decode_values_by[3][3] = {
    { decode_values_1_1, decode_values_1_2, decode_values_1_4 },
    { decode_values_2_1, decode_values_2_2, decode_values_2_4 },
    { decode_values_4_1, decode_values_4_2, decode_values_4_4 },
};

/* The number of panels of 16 columns that are computed at a time. */
VFN size_t decode_panels(size_t rows, size_t left)
{
    size_t most = 2 * DECODE_CHAINS / rows;
#if DECODE_CHAINS < 8
    most /= 2;
#endif
    return panel_step(most < 4 ? most : 4, left);
}

static void decode_heads(decode_part *p)
{
    const cpu_decode *a = p->a;
    for (size_t h = 0; h < p->heads; h++)
        decode_scores_by[p->rows / 2](p, h);
    for (size_t r = 0; r < p->heads * p->rows; r++)
        decode_exp(p, r);
    for (size_t d = 0, step; d < a->dim / 16; d += step) {
        step = decode_panels(p->rows, a->dim / 16 - d);
        p->column = d * 16;
        decode_values_by[p->rows / 2][step / 2](p);
    }
}

static void decode(const cpu_decode *a)
{
    decode_part p = { .a = a, .from = first_key(a->pos, a->window) };
    p.base = p.from / 16 * 16;
    for (p.row = 0; p.row < a->group; p.row += p.rows) {
        p.rows = panel_step(4, a->group - p.row);
        size_t side = DECODE_SIDE(p.rows * decode_panels(p.rows, a->dim / 16));
        for (p.head = 0; p.head < a->heads; p.head += side) {
            p.heads = min_size(side, a->heads - p.head);
            decode_heads(&p);
        }
    }
}

#endif
