/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows for tests of attention, and the two ways to attend over them: packed, as
 * the trainer does, and token by token over a cache, as the engine does.
 */
#ifndef DEVICE_ATTENTION_ROWS_H
#define DEVICE_ATTENTION_ROWS_H

#include "tests/device/bench.h"

#define MOST_ROWS 12

typedef struct form {
    uint32_t heads, kv_heads, dim, window;
    float softcap;
    int32_t lengths[MOST_ROWS]; /* ends with 0 */
    float scale;                /* 0: 1 / sqrt(dim) */
} form;

typedef struct rows {
    form f;
    size_t count, tokens, q_width, kv_width, stride, longest;
    int32_t start[MOST_ROWS];
    float *qkv; /* [tokens, stride]: q, k, v as one projection writes them */
    float *o, *lse;
} rows;

/* Allocates rows of r->tokens tokens. */
static inline void alloc_rows(rows *r)
{
    r->q_width = (size_t)r->f.heads * r->f.dim;
    r->kv_width = (size_t)r->f.kv_heads * r->f.dim;
    r->stride = r->q_width + 2 * r->kv_width;
    r->qkv = random_floats(r->tokens * r->stride, 2);
    r->o = alloc_floats(r->tokens * r->q_width);
    r->lse = alloc_floats(r->tokens * r->f.heads);
}

static inline rows make_rows(form f)
{
    rows r = { .f = f };
    for (; f.lengths[r.count]; r.count++) {
        size_t n = (size_t)f.lengths[r.count];
        r.tokens += n;
        r.start[r.count + 1] = (int32_t)r.tokens;
        r.longest = n > r.longest ? n : r.longest;
    }
    r.q_width = (size_t)f.heads * f.dim;
    r.kv_width = (size_t)f.kv_heads * f.dim;
    r.stride = r.q_width + 2 * r.kv_width;
    r.qkv = random_floats(r.tokens * r.stride, 2);
    r.o = alloc_floats(r.tokens * r.q_width);
    r.lse = alloc_floats(r.tokens * f.heads);
    return r;
}

static inline void free_rows(rows *r)
{
    free(r->qkv);
    free(r->o);
    free(r->lse);
}

static inline float score_scale(const form *f)
{
    return f->scale != 0.0f ? f->scale : 1.0f / sqrtf((float)f->dim);
}

static inline xray_attention make_attention(const rows *r, float *o, float *lse)
{
    return (xray_attention){ .header = XRAY_HEADER(xray_attention),
                             .tokens = { r->tokens, NULL },
                             .row_start = r->start,
                             .rows = r->count,
                             .row_bound = r->longest,
                             .q = r->qkv,
                             .k = r->qkv + r->q_width,
                             .v = r->qkv + r->q_width + r->kv_width,
                             .o = o,
                             .lse = lse,
                             .q_stride = r->stride,
                             .k_stride = r->stride,
                             .v_stride = r->stride,
                             .o_stride = r->q_width,
                             .heads = r->f.heads,
                             .kv_heads = r->f.kv_heads,
                             .head_dim = r->f.dim,
                             .window = r->f.window,
                             .scale = score_scale(&r->f),
                             .softcap = r->f.softcap };
}

/* `grad` has the layout of qkv. */
static inline xray_attention_grad
make_attention_grad(const rows *r, const xray_attention *forward,
                    const float *d_o, float *grad)
{
    return (xray_attention_grad){ .header = XRAY_HEADER(xray_attention_grad),
                                  .forward = forward,
                                  .d_o = d_o,
                                  .dq = grad,
                                  .dk = grad + r->q_width,
                                  .dv = grad + r->q_width + r->kv_width,
                                  .dq_stride = r->stride,
                                  .dk_stride = r->stride,
                                  .dv_stride = r->stride };
}

/* Arguments for tokens `in`, with the layout of qkv, over a cache. The caller
 * sets `tokens`, seq and positions. */
static inline xray_attention_kv
make_attention_kv(const rows *r, const xray_kv *kv, const float *in, float *o)
{
    return (xray_attention_kv){ .header = XRAY_HEADER(xray_attention_kv),
                                .kv = kv,
                                .q = in,
                                .k = in + r->q_width,
                                .v = in + r->q_width + r->kv_width,
                                .o = o,
                                .q_stride = r->stride,
                                .k_stride = r->stride,
                                .v_stride = r->stride,
                                .o_stride = r->q_width,
                                .position_bound = r->longest,
                                .heads = r->f.heads,
                                .window = r->f.window,
                                .scale = score_scale(&r->f),
                                .softcap = r->f.softcap };
}

/* The cache of an engine: tokens come in calls of any length, with rows
 * interleaved. */
typedef struct cache {
    xray_kv kv;
    int32_t table[64];
    size_t per_row;
} cache;

static inline cache make_cache(const dev *d, const rows *r, uint32_t block,
                               int paged)
{
    cache c = { .kv = { .header = XRAY_HEADER(xray_kv),
                        .block_tokens = block,
                        .kv_heads = r->f.kv_heads,
                        .head_dim = r->f.dim,
                        .dtype = XRAY_F32 } };
    c.per_row = (r->longest + block - 1) / block;
    size_t blocks = c.per_row * r->count;
    assert_true(blocks <= 64);
    for (size_t i = 0; i < blocks; i++)
        c.table[i] = (int32_t)(blocks - 1 - i);
    c.kv.table_stride = c.per_row;
    c.kv.table = paged ? c.table : NULL;
    uint64_t bytes = d->ops->kv_block_bytes(d->self, &c.kv);
    assert_true(bytes > 0);
    must(d->ops->alloc(d->self, "test", XRAY_TAG_KV, bytes * blocks,
                       &c.kv.blocks));
    /* The content that earlier sequences left must not matter. */
    memset(c.kv.blocks, 0xFF, bytes * blocks);
    return c;
}

static inline void run_cached(const dev *d, const rows *r, cache *c,
                              size_t chunk, float *o)
{
    int32_t seq[512];
    int32_t positions[512];
    size_t index[512];
    c->kv.table = c->kv.table ? c->table : NULL;
    for (size_t base = 0; base < r->longest; base += chunk) {
        size_t n = 0;
        for (size_t row = 0; row < r->count; row++)
            for (size_t p = base;
                 p < base + chunk && p < (size_t)r->f.lengths[row]; p++) {
                seq[n] = (int32_t)row;
                positions[n] = (int32_t)p;
                index[n++] = (size_t)r->start[row] + p;
            }
        float *in = alloc_floats(n * r->stride);
        float *out = alloc_floats(n * r->q_width);
        for (size_t t = 0; t < n; t++)
            memcpy(in + t * r->stride, r->qkv + index[t] * r->stride,
                   r->stride * sizeof(*in));
        xray_attention_kv op = make_attention_kv(r, &c->kv, in, out);
        op.tokens.bound = n;
        op.seq = seq;
        op.positions = positions;
        must(d->ops->attention_kv(d->self, NULL, &op));
        for (size_t t = 0; t < n; t++)
            memcpy(o + index[t] * r->q_width, out + t * r->q_width,
                   r->q_width * sizeof(*o));
        free(in);
        free(out);
    }
}

#endif
