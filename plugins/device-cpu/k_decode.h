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

/* Keys and values are read in parts of so many keys, of one kv head after the
 * other: what is read together is then close together in a block, and takes
 * fewer entries of the tables of pages. A part of bf16 stays in the cache while
 * columns that share its lines are computed one after the other. */
#define DECODE_KEYS ((size_t)64)

/* Queries row .. row + rows - 1 of each of `heads` kv heads, beginning with
 * `head`; there are CPU_QUERY_TILE at most. */
typedef struct decode_part {
    const cpu_decode *a;
    const float *q; /* query r of kv head h at q + h * q_head + r * dim */
    size_t q_head;
    size_t head, heads;
    size_t row, rows;
    size_t from; /* first visible key */
    size_t base; /* the group of 16 that contains it */
    size_t column;
    size_t side;     /* the kv head, from `head` on, of the first values */
    size_t key, end; /* of the part that is read */
    float top[CPU_QUERY_TILE];
    float sum[CPU_QUERY_TILE];
} decode_part;

/* Address of K or V of key j, the first of a group of 16; `part` is a->k or
 * a->v. */
VFN const void *decode_at(const cpu_decode *a, const void *part, size_t head,
                          size_t j)
{
    size_t b = j / a->block_tokens;
    size_t block = a->table ? (size_t)(uint32_t)a->table[b] : a->first + b;
    return cpu_element(part, a->kv_narrow,
                       block * a->block + head * a->head +
                           j % a->block_tokens * a->dim);
}

/* Lanes of K or V, `narrow` if they are bf16, from element i of p on. */
VFN v16 decode_load(const void *p, const int narrow, size_t i)
{
    return narrow ? v16_widen((const uint16_t *)p + i)
                  : v16_load((const float *)p + i);
}

/* A lane beyond the last head reads the last head again. */
VFN size_t decode_head(const decode_part *p, size_t h)
{
    return p->head + min_size(p->side + h, p->heads - 1);
}

VFN float *decode_scores(const decode_part *p, size_t h, size_t r)
{
    return p->a->scores + (h * p->rows + r) * p->a->score_row;
}

/* ---- scores ------------------------------------------------------------- */

/* Computes the scores of R queries of kv head h in a part of the keys, P groups
 * at a time, and their maximum so far; K is bf16 if `narrow`. */
VFN void decode_scores_of(const size_t R, const size_t P, const int narrow,
                          decode_part *p, size_t h)
{
    const cpu_decode *a = p->a;
    const float *q = p->q + h * p->q_head;
    size_t end = (p->end + 15) / 16 * 16;
    v16 low = v16_set(-VEC_INF);
    v16 top[4];
    UNROLL_PANELS
    for (size_t r = 0; r < R; r++)
        top[r] = p->key == p->base ? low : v16_set(p->top[h * R + r]);
    for (size_t j = p->key; j < end; j += 16 * P) {
        const void *k[8];
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
                v16 x = decode_load(k[i], narrow, d * 16);
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

/* Where the chains of panel d of row `row` are kept. */
VFN float *decode_chain(const decode_part *p, size_t row, size_t d)
{
    const cpu_decode *a = p->a;
    return a->work + (CPU_QUERY_TILE + row) * a->dim + p->column + d * 16;
}

/* Computes 16 D columns of o for R queries of each of H kv heads, or continues
 * them over a part of the keys; V is bf16 if `narrow`. Chains that do not end
 * are kept in the second half of `work`. */
VFN void decode_values_of(const size_t R, const size_t D, const size_t H,
                          const int narrow, const decode_part *p)
{
    const cpu_decode *a = p->a;
    const size_t first = p->side * R;
    v16 c[8][4][4];
    UNROLL_PANELS
    for (size_t h = 0; h < H; h++) {
        UNROLL_PANELS
        for (size_t r = 0; r < R; r++) {
            UNROLL_PANELS
            for (size_t d = 0; d < D; d++)
                c[h][r][d] =
                    p->key != p->base
                        ? v16_load(decode_chain(p, first + h * R + r, d))
                        : v16_set(0.0f);
        }
    }
    for (size_t j = p->key; j < p->end; j += 16) {
        const void *v[8];
        const float *e = a->scores + first * a->score_row + (j - p->base);
        UNROLL_PANELS
        for (size_t h = 0; h < H; h++)
            v[h] = decode_at(a, a->v, decode_head(p, h), j);
        size_t end = min_size(16, p->end - j);
        for (size_t i = p->from > j ? p->from - j : 0; i < end; i++) {
            UNROLL_PANELS
            for (size_t h = 0; h < H; h++) {
                v16 x[4];
                UNROLL_PANELS
                for (size_t d = 0; d < D; d++)
                    x[d] = decode_load(v[h], narrow,
                                       p->column + i * a->dim + d * 16);
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
        size_t head = p->side + h;
        size_t o =
            ((p->head + head) * a->group + p->row + r) * a->dim + p->column;
        if (head >= p->heads)
            continue;
        if (p->end <= a->pos) {
            UNROLL_PANELS
            for (size_t d = 0; d < D; d++)
                v16_store(decode_chain(p, head * R + r, d), c[h][r][d]);
            continue;
        }
        UNROLL_PANELS
        for (size_t d = 0; d < D; d++)
            v16_put(a->o, a->narrow, o + d * 16,
                    v16_div(c[h][r][d], v16_set(p->sum[head * R + r])), 16);
    }
}

/* ---- tables ------------------------------------------------------------- */

/* kv heads side by side, and groups of keys, that give this many chains. */
#define DECODE_SIDE(chains) \
    ((chains) < DECODE_CHAINS ? DECODE_CHAINS / (chains) : 1)

typedef void decode_scores_fn(decode_part *p, size_t h);
typedef void decode_values_fn(const decode_part *p);

#define SCORES(R, KIND, NARROW)                                       \
    static __attribute__((noinline)) void decode_scores_##KIND##_##R( \
        decode_part *p, size_t h)                                     \
    {                                                                 \
        decode_scores_of(R, DECODE_SIDE(R), NARROW, p, h);            \
    }
#define VALUES(R, D, KIND, NARROW)                                          \
    static __attribute__((noinline)) void decode_values_##KIND##_##R##_##D( \
        const decode_part *p)                                               \
    {                                                                       \
        decode_values_of(R, D, DECODE_SIDE((R) * (D)), NARROW, p);          \
    }
/* Kernels with many chains exist only where registers do. */
#if DECODE_CHAINS == 8
#define MANY(R, D, KIND, NARROW) VALUES(R, D, KIND, NARROW)
#define MANY_OF(R, D, KIND) decode_values_##KIND##_##R##_##D
#else
#define MANY(R, D, KIND, NARROW)
#define MANY_OF(R, D, KIND) NULL
#endif
#define DECODE_KERNELS(KIND, NARROW) \
    SCORES(1, KIND, NARROW)          \
    SCORES(2, KIND, NARROW)          \
    SCORES(4, KIND, NARROW)          \
    VALUES(1, 1, KIND, NARROW)       \
    VALUES(1, 2, KIND, NARROW)       \
    VALUES(1, 4, KIND, NARROW)       \
    VALUES(2, 1, KIND, NARROW)       \
    VALUES(2, 2, KIND, NARROW)       \
    VALUES(4, 1, KIND, NARROW)       \
    MANY(2, 4, KIND, NARROW)         \
    MANY(4, 2, KIND, NARROW)         \
    MANY(4, 4, KIND, NARROW)
DECODE_KERNELS(wide, 0)
DECODE_KERNELS(narrow, 1)

#define SCORES_BY(KIND)                                     \
    {                                                       \
        decode_scores_##KIND##_1, decode_scores_##KIND##_2, \
            decode_scores_##KIND##_4                        \
    }
#define VALUES_BY(KIND)                                               \
    {                                                                 \
        { decode_values_##KIND##_1_1, decode_values_##KIND##_1_2,     \
          decode_values_##KIND##_1_4 },                               \
            { decode_values_##KIND##_2_1, decode_values_##KIND##_2_2, \
              MANY_OF(2, 4, KIND) },                                  \
            { decode_values_##KIND##_4_1, MANY_OF(4, 2, KIND),        \
              MANY_OF(4, 4, KIND) },                                  \
    }

/* Indexed by whether K and V are bf16, then by rows and panels. */
static decode_scores_fn *const decode_scores_by[2][3] = { SCORES_BY(wide),
                                                          SCORES_BY(narrow) };
static decode_values_fn *const decode_values_by[2][3][3] = {
    VALUES_BY(wide), VALUES_BY(narrow)
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

/* Sets the queries; those of bf16 are widened first. */
static void decode_queries(decode_part *p)
{
    const cpu_decode *a = p->a;
    const void *q =
        cpu_element(a->q, a->narrow, (p->head * a->group + p->row) * a->dim);
    p->q = q;
    p->q_head = a->group * a->dim;
    if (!a->narrow)
        return;
    p->q = a->work;
    p->q_head = p->rows * a->dim;
    for (size_t h = 0; h < p->heads; h++)
        widen_rows(a->work + h * p->q_head,
                   cpu_element(q, 1, h * a->group * a->dim), a->dim, p->rows,
                   a->dim);
}

/* Moves on to the next part of the keys, of at least the groups whose scores
 * are computed at a time; returns 0 after the last one. */
static int decode_next(decode_part *p)
{
    size_t least = 16 * DECODE_SIDE(p->rows);
    p->key = p->end;
    p->end = min_size(p->key + (least > DECODE_KEYS ? least : DECODE_KEYS),
                      p->a->pos + 1);
    return p->key < p->end;
}

static void decode_heads(decode_part *p)
{
    const cpu_decode *a = p->a;
    decode_queries(p);
    for (p->end = p->base; decode_next(p);)
        for (size_t h = 0; h < p->heads; h++)
            decode_scores_by[a->kv_narrow][p->rows / 2](p, h);
    for (size_t r = 0; r < p->heads * p->rows; r++)
        decode_exp(p, r);
    for (p->end = p->base; decode_next(p);) {
        for (size_t d = 0, step; d < a->dim / 16; d += step) {
            step = decode_panels(p->rows, a->dim / 16 - d);
            p->column = d * 16;
            for (p->side = 0; p->side < p->heads;
                 p->side += DECODE_SIDE(p->rows * step))
                decode_values_by[a->kv_narrow][p->rows / 2][step / 2](p);
        }
    }
}

static void decode(const cpu_decode *a)
{
    decode_part p = { .a = a, .from = first_key(a->pos, a->window) };
    p.base = p.from / 16 * 16;
    for (p.row = 0; p.row < a->group; p.row += p.rows) {
        p.rows = panel_step(4, a->group - p.row);
        for (p.head = 0; p.head < a->heads; p.head += p.heads) {
            p.heads = min_size(CPU_QUERY_TILE / p.rows, a->heads - p.head);
            decode_heads(&p);
        }
    }
}

#endif
