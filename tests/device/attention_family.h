/* SPDX-License-Identifier: Apache-2.0
 *
 * Packed rows with parents for tests of attention, and the same rows joined
 * with their parents.
 */
#ifndef DEVICE_ATTENTION_FAMILY_H
#define DEVICE_ATTENTION_FAMILY_H

#include "tests/device/attention_rows.h"

/* In `form`, a negative length belongs to a row whose parent is the last row
 * with a positive length. */
typedef struct family {
    rows r;
    int32_t parent[MOST_ROWS]; /* -1: none */
    float *d_o, *grad;
} family;

static inline size_t row_length(const family *f, size_t row)
{
    return (size_t)(f->r.start[row + 1] - f->r.start[row]);
}

/* The number of tokens of a row's parent. */
static inline size_t parent_length(const family *f, size_t row)
{
    return f->parent[row] < 0 ? 0 : row_length(f, (size_t)f->parent[row]);
}

static inline int has_children(const family *f, size_t row)
{
    return row + 1 < f->r.count && f->parent[row + 1] == (int32_t)row;
}

/* The row where the last family begins. */
static inline size_t find_last_family(const family *f)
{
    size_t row = f->r.count - 1;
    while (f->parent[row] >= 0)
        row--;
    return row;
}

/* Adds a row of n tokens without data. */
static inline void add_family_row(family *f, size_t n, int32_t parent)
{
    rows *r = &f->r;
    size_t row = r->count++;
    f->parent[row] = parent;
    r->tokens += n;
    r->start[row + 1] = (int32_t)r->tokens;
    size_t joined = parent_length(f, row) + n;
    r->longest = joined > r->longest ? joined : r->longest;
}

static inline void alloc_family(family *f)
{
    alloc_rows(&f->r);
    f->d_o = random_floats(f->r.tokens * f->r.q_width, 1);
    f->grad = random_floats(f->r.tokens * f->r.stride, 1); /* garbage */
}

static inline void free_family(family *f)
{
    free_rows(&f->r);
    free(f->d_o);
    free(f->grad);
}

static inline family make_family(form made)
{
    family f = { .r = { .f = made } };
    int32_t last = -1;
    for (size_t row = 0; made.lengths[row]; row++) {
        int child = made.lengths[row] < 0;
        add_family_row(&f, (size_t)abs(made.lengths[row]), child ? last : -1);
        last = child ? last : (int32_t)row;
    }
    alloc_family(&f);
    return f;
}

/* The token of `f` that is token t of the row joined with its parent. */
static inline size_t joined_token(const family *f, size_t row, size_t t)
{
    size_t shared = parent_length(f, row);
    return t < shared ? (size_t)f->r.start[f->parent[row]] + t
                      : (size_t)f->r.start[row] + t - shared;
}

/* Rows [first, first + count) without parents: each is joined with the tokens
 * of its parent, for which d_o is 0. */
static inline family join_family(const family *from, size_t first, size_t count)
{
    family f = { .r = { .f = from->r.f } };
    for (size_t row = first; row < first + count; row++)
        add_family_row(&f, parent_length(from, row) + row_length(from, row),
                       -1);
    alloc_family(&f);
    size_t stride = f.r.stride;
    size_t width = f.r.q_width;
    for (size_t row = 0; row < count; row++)
        for (size_t t = 0; t < row_length(&f, row); t++) {
            size_t own = joined_token(from, first + row, t);
            size_t to = (size_t)f.r.start[row] + t;
            memcpy(f.r.qkv + to * stride, from->r.qkv + own * stride,
                   stride * sizeof(float));
            memcpy(f.d_o + to * width, from->d_o + own * width,
                   width * sizeof(float));
            if (t < parent_length(from, first + row))
                memset(f.d_o + to * width, 0, width * sizeof(float));
        }
    return f;
}

/* A view of the rows from `first` on, where a family begins; `f` keeps the
 * memory. */
static inline family view_family_from(const family *f, size_t first)
{
    family part = *f;
    rows *r = &part.r;
    int32_t skip = f->r.start[first];
    size_t tokens = (size_t)skip;
    r->count -= first;
    r->tokens -= tokens;
    r->qkv += tokens * r->stride;
    r->o += tokens * r->q_width;
    r->lse += tokens * r->f.heads;
    part.d_o += tokens * r->q_width;
    part.grad += tokens * r->stride;
    for (size_t row = 0; row <= r->count; row++)
        r->start[row] = f->r.start[first + row] - skip;
    for (size_t row = 0; row < r->count; row++) {
        int32_t parent = f->parent[first + row];
        part.parent[row] = parent < 0 ? -1 : parent - (int32_t)first;
    }
    return part;
}

/* Compares o and lse of n tokens, in `a` from `from` on and in `b` from `to`
 * on. */
static inline void assert_same_family(const family *a, size_t from,
                                      const family *b, size_t to, size_t n,
                                      const char *where)
{
    size_t width = a->r.q_width;
    size_t heads = a->r.f.heads;
    assert_same_bits(a->r.o + from * width, b->r.o + to * width, n * width, "o",
                     where);
    assert_same_bits(a->r.lse + from * heads, b->r.lse + to * heads, n * heads,
                     "lse", where);
}

#endif
