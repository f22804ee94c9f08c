/* SPDX-License-Identifier: Apache-2.0
 *
 * Packed rows that go on from a parent, and each of them joined with it.
 */
#ifndef CUDA_ATTENTION_FAMILY_H
#define CUDA_ATTENTION_FAMILY_H

#include "tests/cuda/attention_run.h"

#define FAMILY_ROWS 12

/* Lengths, ended by 0: a row that others may go on from, or, negative, one that
 * goes on from the last such row. */
typedef struct family_form {
    form f; /* without lengths */
    int32_t lengths[FAMILY_ROWS];
} family_form;

typedef struct family {
    rows r; /* start and lengths are those below */
    int32_t start[FAMILY_ROWS];
    int32_t parent[FAMILY_ROWS];
    float *d_o, *grad;
} family;

static inline size_t length_of(const family *f, size_t row)
{
    return (size_t)(f->start[row + 1] - f->start[row]);
}

/* Tokens of the parent of a row. */
static inline size_t before(const family *f, size_t row)
{
    return f->parent[row] < 0 ? 0 : length_of(f, (size_t)f->parent[row]);
}

/* Room for rows of r.tokens tokens. */
static inline void family_room(family *f)
{
    rows *r = &f->r;
    r->q_width = (size_t)r->f.heads * r->f.dim;
    r->kv_width = (size_t)r->f.kv_heads * r->f.dim;
    r->stride = r->q_width + 2 * r->kv_width;
    r->qkv = random_floats(r->tokens * r->stride, 2);
    r->o = floats(r->tokens * r->q_width);
    r->lse = floats(r->tokens * r->f.heads);
    f->d_o = random_floats(r->tokens * r->q_width, 1);
    f->grad = random_floats(r->tokens * r->stride, 1);
}

static inline void family_free(family *f)
{
    rows_free(&f->r);
    free(f->d_o);
    free(f->grad);
}

/* Operands are rounded to bf16, for which both precisions are exact. */
static inline void family_make(const family_form *made, family *f)
{
    rows *r = &f->r;
    int32_t last = -1;
    *f = (family){ .r = { .f = made->f } };
    for (; made->lengths[r->count]; r->count++) {
        int32_t n = made->lengths[r->count];
        f->parent[r->count] = n < 0 ? last : -1;
        last = n < 0 ? last : (int32_t)r->count;
        r->tokens += (size_t)abs(n);
        f->start[r->count + 1] = (int32_t)r->tokens;
        size_t joined = before(f, r->count) + (size_t)abs(n);
        r->longest = joined > r->longest ? joined : r->longest;
    }
    family_room(f);
    round_all(r->qkv, r->tokens * r->stride);
    round_all(f->d_o, r->tokens * r->q_width);
}

/* One row behind its parent's tokens, where d_o is 0. */
static inline void family_join(const family *from, size_t row, family *f)
{
    size_t shared = before(from, row);
    size_t n = length_of(from, row);
    size_t own = (size_t)from->start[row];
    *f = (family){ .r = { .f = from->r.f, .count = 1 }, .parent = { -1 } };
    rows *r = &f->r;
    r->tokens = r->longest = shared + n;
    f->start[1] = r->start[1] = (int32_t)r->tokens;
    family_room(f);
    memset(f->d_o, 0, shared * r->q_width * sizeof(float));
    memcpy(f->d_o + shared * r->q_width, from->d_o + own * r->q_width,
           n * r->q_width * sizeof(float));
    if (shared)
        memcpy(r->qkv,
               from->r.qkv + (size_t)from->start[from->parent[row]] * r->stride,
               shared * r->stride * sizeof(float));
    memcpy(r->qkv + shared * r->stride, from->r.qkv + own * r->stride,
           n * r->stride * sizeof(float));
}

/* o, lse and grad of all rows, from row `first` on; `grad` starts as garbage.
 */
static inline void family_run(const dev *d, family *f, size_t first,
                              const int32_t *parent)
{
    rows part = f->r;
    size_t skip = (size_t)f->start[first];
    int32_t start[FAMILY_ROWS];
    int32_t shifted[FAMILY_ROWS];
    part.count -= first;
    part.tokens -= skip;
    part.qkv += skip * part.stride;
    for (size_t row = 0; row <= part.count; row++)
        start[row] = f->start[first + row] - (int32_t)skip;
    for (size_t row = 0; parent && row < part.count; row++)
        shifted[row] =
            parent[first + row] < 0 ? -1 : parent[first + row] - (int32_t)first;
    run_packed(d, &part, start, parent ? shifted : NULL,
               f->r.o + skip * part.q_width, f->r.lse + skip * part.f.heads,
               f->d_o + skip * part.q_width, f->grad + skip * part.stride);
}

/* Adds what float64 says of a joined row's own queries to `want`, and its size
 * to `size`, both laid out as qkv of all rows. */
static inline void family_reference(const family *from, size_t row,
                                    const family *joined, double *want,
                                    double *size)
{
    const rows *r = &joined->r;
    size_t n = r->tokens * r->stride;
    size_t shared = before(from, row);
    double *sum = calloc(2 * n, sizeof(*sum));
    assert_non_null(sum);
    for (size_t i = shared; i < r->tokens; i++)
        for (size_t h = 0; h < r->f.heads; h++) {
            seen q = seen_of(r, 0, i, h);
            seen_grad(&q, joined->d_o + i * r->q_width + h * r->f.dim, sum,
                      sum + n);
        }
    for (size_t i = 0; i < r->tokens; i++) {
        size_t to = i < shared ? (size_t)from->start[from->parent[row]] + i
                               : (size_t)from->start[row] + i - shared;
        for (size_t e = 0; e < r->stride; e++) {
            want[to * r->stride + e] += sum[i * r->stride + e];
            size[to * r->stride + e] += sum[n + i * r->stride + e];
        }
    }
    free(sum);
}

#endif
