/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention kernels of the CPU, forward and backward.
 *
 * The forward kernel takes a tile of queries over the complete visible row:
 * scores, their exact maximum, exp, a sum in 16 lanes by key position, then a
 * chain over keys. The scores of all keys are kept, so the result does not
 * depend on any blocking of the keys.
 */
#ifndef CPU_K_ATTENTION_H
#define CPU_K_ATTENTION_H

#include "plugins/device-cpu/k_matmul.h"
#include "plugins/device-cpu/k_rows.h"

VFN size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The first visible key of the query at `pos`. */
VFN size_t first_key(size_t pos, size_t window)
{
    return window && pos + 1 > window ? pos + 1 - window : 0;
}

VFN size_t block_of(const cpu_attend *a, size_t position)
{
    size_t b = position / a->block_tokens;
    return a->table ? (size_t)(uint32_t)a->table[b] : a->first + b;
}

/* Widens rows that lie x_row elements apart, and stores them one after the
 * other. */
VFN void widen_rows(float *y, const void *x, size_t x_row, size_t rows,
                    size_t n)
{
    for (size_t r = 0; r < rows; r++)
        widen_row(y + r * n, (const uint16_t *)x + r * x_row, n);
}

/* scores[r, j - base] = chain over d of q[r, d] k[j, d], for keys base <= j <
 * end; base is a multiple of 16. */
static void attend_scores(const cpu_attend *a, size_t base, size_t end)
{
    for (size_t j = base; j < end;) {
        size_t inside = j % a->block_tokens;
        size_t count = min_size(end - j, a->block_tokens - inside);
        cpu_gemm g = { .a = a->q,
                       .a_row = a->q_row,
                       .b = cpu_element(a->k, a->kv_narrow,
                                        block_of(a, j) * a->k_block +
                                            inside * a->dim),
                       .b_panel = a->dim * 16,
                       .b_row = 16,
                       .b_narrow = a->kv_narrow,
                       .c = a->scores + (j - base),
                       .c_row = a->score_row,
                       .rows = a->rows,
                       .cols = (count + 15) / 16 * 16,
                       .depth = a->dim };
        gemm(&g);
        j += count;
    }
}

/* Applies the scale and then the softcap, as every pass over the scores needs
 * them. */
VFN v16 scaled_score(v16 chain, float scale, float softcap)
{
    v16 s = v16_mul(v16_set(scale), chain);
    if (softcap == 0.0f)
        return s;
    v16 cap = v16_set(softcap);
    return v16_mul(cap, v16_tanh(v16_div(s, cap)));
}

/* Turns the scores s[0..] of the keys from `base` on into exp(s - max) for the
 * keys first <= j <= last, and into 0 for other keys of their groups of 16.
 * Returns the sum. */
static float attend_softmax(const cpu_attend *a, float *s, const size_t *range,
                            float *out_max)
{
    size_t base = range[0];
    size_t from = range[1] - base;
    size_t to = range[2] + 1 - base;
    v16 low = v16_set(-VEC_INF);
    v16 top = low;
    for (size_t j = from / 16 * 16; j < to; j += 16) {
        v16 x = scaled_score(v16_load(s + j), a->scale, a->softcap);
        m16 seen = m16_range(from > j ? from - j : 0, to - j);
        x = v16_pick(seen, x, low);
        top = v16_max(x, top);
        v16_store(s + j, x);
    }
    float max = v16_hmax(top);
    v16 m = v16_set(max);
    v16 sum = v16_set(0.0f);
    for (size_t j = from / 16 * 16; j < to; j += 16) {
        m16 seen = m16_range(from > j ? from - j : 0, to - j);
        v16 p = v16_exp_of(seen, v16_sub(v16_load(s + j), m));
        sum = v16_add(sum, p);
        v16_store(s + j, p);
    }
    *out_max = max;
    return v16_sum(sum);
}

/* Rows row .. row + rows - 1 of o continue the chain over keys from <= j < end
 * of p[r, j] v[j, d]. In a triangle, row r continues it to end + r. */
typedef struct key_range {
    size_t row, rows;
    size_t from, end;
    int start;
    int triangle;
} key_range;

static void attend_keys(const cpu_attend *a, size_t base, const key_range *k)
{
    int start = k->start;
    for (size_t j = k->from; j < k->end;) {
        size_t inside = j % a->block_tokens;
        size_t count = min_size(k->end - j, a->block_tokens - inside);
        cpu_gemm g = { .a = a->scores + k->row * a->score_row + (j - base),
                       .a_row = a->score_row,
                       .b = cpu_element(a->v, a->kv_narrow,
                                        block_of(a, j) * a->v_block +
                                            inside * a->v_row),
                       .b_panel = 16,
                       .b_row = a->v_row,
                       .b_narrow = a->kv_narrow,
                       .c = (float *)a->o + k->row * a->o_row,
                       .c_row = a->o_row,
                       .rows = k->rows,
                       .cols = a->dim,
                       .depth = count,
                       .start = start,
                       .b_tail = 1 };
        j += count;
        start = GEMM_LOAD;
        if (j == k->end && k->triangle)
            gemm_triangle(&g);
        else
            gemm(&g);
    }
}

/* o = chain over the visible keys. Where a window moves with the rows, the keys
 * that the last row no longer sees come first, row by row. */
static void attend_values(const cpu_attend *a)
{
    size_t from = first_key(a->pos, a->window);
    size_t base = from / 16 * 16;
    size_t common = first_key(a->pos + a->step * (a->rows - 1), a->window);
    key_range k = { .rows = a->rows,
                    .from = common,
                    .end = a->pos + 1,
                    .start = GEMM_ZERO,
                    .triangle = a->step && a->rows > 1 };
    for (size_t r = 0; from < common && r < a->rows; r++) {
        key_range lead = { .row = r,
                           .rows = 1,
                           .from = first_key(a->pos + r, a->window),
                           .end = common,
                           .start = GEMM_LOAD };
        for (size_t d = 0; d < a->dim; d++)
            ((float *)a->o)[r * a->o_row + d] = 0.0f;
        attend_keys(a, base, &lead);
        k.start = GEMM_LOAD;
    }
    attend_keys(a, base, &k);
}

/* lse = max + log(sum), for all rows at once. */
VFN void attend_lse(const cpu_attend *a, const float *max, const float *sum)
{
    float lse[16];
    v16 m = v16_loadn(max, a->rows);
    v16 log = v16_log(v16_loadn(sum, a->rows));
    v16_store(lse, v16_add(m, log));
    for (size_t r = 0; r < a->rows; r++)
        a->lse[r * a->lse_row] = lse[r];
}

/* Attends a tile. With step 1 all its positions lie in one block, and the last
 * row sees the key of the first row. */
static void attend_tile(const cpu_attend *a)
{
    size_t last = a->pos + a->step * (a->rows - 1);
    size_t from = first_key(a->pos, a->window);
    size_t base = from / 16 * 16;
    float sum[CPU_QUERY_TILE];
    float max[CPU_QUERY_TILE];
    attend_scores(a, base, last + 1);
    for (size_t r = 0; r < a->rows; r++) {
        size_t pos = a->pos + a->step * r;
        size_t range[3] = { base, first_key(pos, a->window), pos };
        sum[r] =
            attend_softmax(a, a->scores + r * a->score_row, range, &max[r]);
    }
    if (a->lse)
        attend_lse(a, max, sum);
    attend_values(a);
    for (size_t r = 0; r < a->rows; r++) {
        float *o = (float *)a->o + r * a->o_row;
        divide(o, o, sum[r], a->dim);
    }
}

static void attend_wide(const cpu_attend *a)
{
    size_t last = a->pos + a->step * (a->rows - 1);
    if (!a->step || first_key(last, a->window) <= a->pos) {
        attend_tile(a);
        return;
    }
    for (size_t r = 0; r < a->rows; r++) {
        cpu_attend one = *a;
        one.q = (const float *)a->q + r * a->q_row;
        one.o = (float *)a->o + r * a->o_row;
        one.lse = a->lse ? a->lse + r * a->lse_row : NULL;
        one.rows = 1;
        one.pos = a->pos + r;
        attend_tile(&one);
    }
}

static void attend(const cpu_attend *a)
{
    if (!a->narrow) {
        attend_wide(a);
        return;
    }
    float *o = a->work + CPU_QUERY_TILE * a->dim;
    cpu_attend wide = *a;
    wide.q = a->work;
    wide.o = o;
    wide.q_row = wide.o_row = a->dim;
    widen_rows(a->work, a->q, a->q_row, a->rows, a->dim);
    attend_wide(&wide);
    for (size_t r = 0; r < a->rows; r++)
        narrow_row((uint16_t *)a->o + r * a->o_row, o + r * a->dim, a->dim);
}

/* ---- backward ----------------------------------------------------------- */

/* Queries [i0, i1) of one head. The scores cover keys from `base`, a multiple
 * of 16; rows of p and ds are `wide` floats apart. Row i - i0 of q and of o is
 * that of query i, whose other vectors are those of token i - first. */
typedef struct grad_tile {
    const float *q, *o;
    size_t q_row, o_row;
    const float *d_o, *lse;
    float *dq;
    float *p, *ds;
    size_t i0, i1;
    size_t base, wide;
} grad_tile;

#define GRAD_ROWS 32 /* queries whose products end at the same key */

/* Computes the chains q k into p and dO v into ds. Of the keys after a query
 * only those in its group of 16 and those that its neighbours see are computed
 * or read. */
static void grad_chains(const cpu_attend_grad *a, const grad_tile *t)
{
    for (size_t i = t->i0, end; i < t->i1; i = end) {
        size_t token = i - a->first;
        end = min_size(t->i1, i / GRAD_ROWS * GRAD_ROWS + GRAD_ROWS);
        cpu_gemm g = { .a = t->q + (i - t->i0) * t->q_row,
                       .a_row = t->q_row,
                       .b = a->kt + t->base * a->dim,
                       .b_panel = a->dim * 16,
                       .b_row = 16,
                       .c = t->p + (i - t->i0) * t->wide,
                       .c_row = t->wide,
                       .rows = end - i,
                       .cols = (end - t->base + 15) / 16 * 16,
                       .depth = a->dim };
        gemm(&g);
        g.a = t->d_o + token * a->o_row;
        g.a_row = a->o_row;
        g.b = a->vt + t->base * a->dim;
        g.c = t->ds + (i - t->i0) * t->wide;
        gemm(&g);
    }
}

/* p = exp(s - lse) and ds = p (dO v - sum(dO o)), both 0 where the key is not
 * visible. */
static void grad_scores(const cpu_attend_grad *a, const grad_tile *t)
{
    grad_chains(a, t);
    v16 cap = v16_set(a->softcap);
    for (size_t i = t->i0; i < t->i1; i++) {
        float *p = t->p + (i - t->i0) * t->wide;
        float *ds = t->ds + (i - t->i0) * t->wide;
        size_t token = i - a->first;
        v16 lse = v16_set(t->lse[token * a->lse_row]);
        v16 d = v16_set(dot_row(t->d_o + token * a->o_row,
                                t->o + (i - t->i0) * t->o_row, a->dim));
        size_t from = first_key(i, a->window);
        size_t to = i + 1 - t->base;
        from = from > t->base ? from - t->base : 0;
        for (size_t j = 0; j < to; j += 16) {
            m16 seen = m16_range(min_size(from > j ? from - j : 0, 16),
                                 min_size(to > j ? to - j : 0, 16));
            v16 s = scaled_score(v16_load(p + j), a->scale, a->softcap);
            v16 e = v16_exp(v16_sub(s, lse));
            v16 x = v16_mul(e, v16_sub(v16_load(ds + j), d));
            if (a->softcap != 0.0f) {
                v16 u = v16_div(s, cap);
                v16 neg = v16_sub(v16_set(-0.0f), u);
                x = v16_mul(x, v16_fma(neg, u, v16_set(1.0f)));
            }
            v16_store(p + j, v16_pick(seen, e, v16_set(0.0f)));
            v16_store(ds + j, v16_pick(seen, x, v16_set(0.0f)));
        }
    }
}

/* dq of queries i .. i + rows - 1 continues the chain over keys from <= j < end
 * of ds k. In a triangle, query i + r continues it to end + r. */
static void grad_query_keys(const cpu_attend_grad *a, const grad_tile *t,
                            const key_range *k)
{
    cpu_gemm g = { .a =
                       t->ds + (k->row - t->i0) * t->wide + (k->from - t->base),
                   .a_row = t->wide,
                   .b = a->k + k->from * a->k_row,
                   .b_panel = 16,
                   .b_row = a->k_row,
                   .c = t->dq + (k->row - a->first) * a->dq_row,
                   .c_row = a->dq_row,
                   .rows = k->rows,
                   .cols = a->dim,
                   .depth = k->end - k->from,
                   .start = k->start,
                   .b_tail = 1 };
    if (k->triangle)
        gemm_triangle(&g);
    else
        gemm(&g);
}

/* dq[i] = scale * chain over the visible keys of ds k, in the order of
 * attend_values. */
static void grad_queries(const cpu_attend_grad *a, const grad_tile *t)
{
    for (size_t i = t->i0; i < t->i1;) {
        size_t rows = min_size(t->i1 - i, TRI_ROWS);
        if (first_key(i + rows - 1, a->window) > i)
            rows = 1;
        size_t common = first_key(i + rows - 1, a->window);
        key_range k = { .row = i,
                        .rows = rows,
                        .from = common,
                        .end = i + 1,
                        .start = GEMM_ZERO,
                        .triangle = rows > 1 };
        for (size_t r = i; first_key(i, a->window) < common && r < i + rows;
             r++) {
            key_range lead = { .row = r,
                               .rows = 1,
                               .from = first_key(r, a->window),
                               .end = common,
                               .start = GEMM_LOAD };
            for (size_t d = 0; d < a->dim; d++)
                t->dq[(r - a->first) * a->dq_row + d] = 0.0f;
            if (lead.from < common)
                grad_query_keys(a, t, &lead);
            k.start = GEMM_LOAD;
        }
        grad_query_keys(a, t, &k);
        float *dq = t->dq + (i - a->first) * a->dq_row;
        for (size_t r = 0; r < rows; r++, dq += a->dq_row)
            scaled(dq, dq, a->scale, a->dim);
        i += rows;
    }
}

/* acc[j] continues the chain over queries of m[i, j] rows[i]; `rows` begins
 * with that of query i0. */
static void grad_keys(const cpu_attend_grad *a, const grad_tile *t,
                      const float *m, const float *rows, size_t row, float *acc)
{
    for (size_t j = t->base; j < t->i1; j += 16) {
        size_t from = j > t->i0 ? j : t->i0;
        cpu_gemm g = { .a = m + (from - t->i0) * t->wide + (j - t->base),
                       .a_row = t->wide,
                       .b = rows + (from - t->i0) * row,
                       .b_panel = 16,
                       .b_row = row,
                       .c = acc + j * a->dim,
                       .c_row = a->dim,
                       .rows = min_size(16, a->n - j),
                       .cols = a->dim,
                       .depth = t->i1 - from,
                       .start = GEMM_LOAD,
                       .b_tail = 1 };
        gemm_t(&g);
    }
}

/* Sets q and o of the tile's queries, of head h. Those of bf16 are widened into
 * `room`, CPU_GRAD_TILE rows of each. */
static void grad_vectors(const cpu_attend_grad *a, size_t h, float *room,
                         grad_tile *t)
{
    size_t token = t->i0 - a->first;
    size_t head = h * a->dim;
    const void *q = cpu_element(a->q, a->narrow, token * a->q_row + head);
    const void *o = cpu_element(a->o, a->narrow, token * a->o_row + head);
    t->q = q;
    t->o = o;
    t->q_row = a->q_row;
    t->o_row = a->o_row;
    if (!a->narrow)
        return;
    float *wide_o = room + CPU_GRAD_TILE * a->dim;
    widen_rows(room, q, a->q_row, t->i1 - t->i0, a->dim);
    widen_rows(wide_o, o, a->o_row, t->i1 - t->i0, a->dim);
    t->q = room;
    t->o = wide_o;
    t->q_row = t->o_row = a->dim;
}

static void attend_grad(const cpu_attend_grad *a)
{
    size_t wide = (a->n + 15) / 16 * 16;
    float *dk = a->work;
    float *dv = dk + a->bound * a->dim;
    grad_tile t = { .p = dv + a->bound * a->dim, .wide = wide };
    t.ds = t.p + CPU_GRAD_TILE * wide;
    float *room = t.ds + CPU_GRAD_TILE * wide;
    for (size_t i = a->own * a->dim; i < a->n * a->dim; i++)
        dk[i] = dv[i] = 0.0f;
    for (size_t h = 0; h < a->heads; h++) {
        t.d_o = a->d_o + h * a->dim;
        t.lse = a->lse + h;
        t.dq = a->dq + h * a->dim;
        for (size_t i = a->first; i < a->end; i = t.i1) {
            size_t tile = i - (i - a->own) % CPU_GRAD_TILE;
            t.i0 = i;
            t.i1 = min_size(a->end, tile + CPU_GRAD_TILE);
            t.base = first_key(tile, a->window) / 16 * 16;
            grad_vectors(a, h, room, &t);
            grad_scores(a, &t);
            grad_queries(a, &t);
            grad_keys(a, &t, t.ds, t.q, t.q_row, dk);
            grad_keys(a, &t, t.p, t.d_o + (i - a->first) * a->o_row, a->o_row,
                      dv);
        }
    }
}

#endif
