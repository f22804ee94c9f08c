/* SPDX-License-Identifier: Apache-2.0
 *
 * Packed rows that go on from a parent, and each of them joined with it.
 */
#ifndef DEVICE_ATTENTION_FAMILY_H
#define DEVICE_ATTENTION_FAMILY_H

#include "tests/device/attention_rows.h"

/* In its form a negative length is of a row that goes on from the last row of a
 * positive one. */
typedef struct family {
    rows r;
    int32_t parent[MOST_ROWS]; /* -1: none */
    float *d_o, *grad;
} family;

static inline size_t length_of(const family *f, size_t row)
{
    return (size_t)(f->r.start[row + 1] - f->r.start[row]);
}

/* Tokens of the parent of a row. */
static inline size_t before(const family *f, size_t row)
{
    return f->parent[row] < 0 ? 0 : length_of(f, (size_t)f->parent[row]);
}

static inline int has_children(const family *f, size_t row)
{
    return row + 1 < f->r.count && f->parent[row + 1] == (int32_t)row;
}

/* The row where the last family begins. */
static inline size_t last_family(const family *f)
{
    size_t row = f->r.count - 1;
    while (f->parent[row] >= 0)
        row--;
    return row;
}

/* Adds a row of n tokens, without data. */
static inline void family_add(family *f, size_t n, int32_t parent)
{
    rows *r = &f->r;
    size_t row = r->count++;
    f->parent[row] = parent;
    r->tokens += n;
    r->start[row + 1] = (int32_t)r->tokens;
    size_t joined = before(f, row) + n;
    r->longest = joined > r->longest ? joined : r->longest;
}

static inline void family_room(family *f)
{
    rows_room(&f->r);
    f->d_o = random_floats(f->r.tokens * f->r.q_width, 1);
    f->grad = random_floats(f->r.tokens * f->r.stride, 1); /* garbage */
}

static inline void family_free(family *f)
{
    rows_free(&f->r);
    free(f->d_o);
    free(f->grad);
}

static inline family family_make(form made)
{
    family f = { .r = { .f = made } };
    int32_t last = -1;
    for (size_t row = 0; made.lengths[row]; row++) {
        int child = made.lengths[row] < 0;
        family_add(&f, (size_t)abs(made.lengths[row]), child ? last : -1);
        last = child ? last : (int32_t)row;
    }
    family_room(&f);
    return f;
}

/* Where token t of a row joined with its parent is in `f`. */
static inline size_t family_token(const family *f, size_t row, size_t t)
{
    size_t shared = before(f, row);
    return t < shared ? (size_t)f->r.start[f->parent[row]] + t
                      : (size_t)f->r.start[row] + t - shared;
}

/* Rows [first, first + count), each behind its parent's tokens, where d_o is 0:
 * rows without parents. */
static inline family family_join(const family *from, size_t first, size_t count)
{
    family f = { .r = { .f = from->r.f } };
    for (size_t row = first; row < first + count; row++)
        family_add(&f, before(from, row) + length_of(from, row), -1);
    family_room(&f);
    size_t stride = f.r.stride;
    size_t width = f.r.q_width;
    for (size_t row = 0; row < count; row++)
        for (size_t t = 0; t < length_of(&f, row); t++) {
            size_t own = family_token(from, first + row, t);
            size_t to = (size_t)f.r.start[row] + t;
            memcpy(f.r.qkv + to * stride, from->r.qkv + own * stride,
                   stride * sizeof(float));
            memcpy(f.d_o + to * width, from->d_o + own * width,
                   width * sizeof(float));
            if (t < before(from, first + row))
                memset(f.d_o + to * width, 0, width * sizeof(float));
        }
    return f;
}

/* The rows from `first` on, where a family begins; their memory is f's. */
static inline family family_from(const family *f, size_t first)
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

/* o and lse of n tokens, in `a` from `from` and in `b` from `to`. */
static inline void same_outputs(const family *a, size_t from, const family *b,
                                size_t to, size_t n, const char *where)
{
    size_t width = a->r.q_width;
    size_t heads = a->r.f.heads;
    same_bits(a->r.o + from * width, b->r.o + to * width, n * width, "o",
              where);
    same_bits(a->r.lse + from * heads, b->r.lse + to * heads, n * heads, "lse",
              where);
}

#endif
