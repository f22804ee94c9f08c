/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs attention on a device whose memory may not be the host's: copies rows
 * there, runs them as the trainer and as the engine do, and reads the results
 * back.
 */
#ifndef CUDA_ATTENTION_RUN_H
#define CUDA_ATTENTION_RUN_H

#include "tests/cuda/attention_rows.h"

#include "plugins/device-cuda/config.h"

const xray_plugin *xray_plugin_query_device_cuda(uint32_t host_abi);

/* Opens a cuda device, or ends the suite as skipped if there is no GPU. The
 * emulated device always exists. */
static inline dev open_attention(int64_t precision)
{
    const xray_plugin *q = xray_plugin_query_device_cuda(XRAY_ABI);
    assert_non_null(q);
    dev d = { .ops = q->components[0]->ops, .name = "cuda" };
    cuda_config config = { .precision = precision };
    xray_status s = d.ops->create(&bench_host, &config, 1, &d.self);
    if (s == XRAY_E_DEVICE) {
        print_message("skipped: %s\n", last_failure);
        exit(77);
    }
    assert_int_equal(s, XRAY_OK);
    return d;
}

static inline void *copy_to_device(const dev *d, const void *data, size_t bytes)
{
    void *p = NULL;
    must(d->ops->alloc(d->self, "test", XRAY_TAG_WORKSPACE, bytes + 64, &p));
    if (data)
        must(d->ops->copy(d->self, NULL, p, data, bytes, XRAY_COPY_TO_DEVICE));
    must(d->ops->sync(d->self, NULL));
    return p;
}

static inline void copy_from_device(const dev *d, void *to, const void *from,
                                    size_t bytes)
{
    must(d->ops->sync(d->self, NULL));
    must(d->ops->copy(d->self, NULL, to, from, bytes, XRAY_COPY_TO_HOST));
    must(d->ops->sync(d->self, NULL));
}

static inline void free_on_device(const dev *d, void *p)
{
    d->ops->free(d->self, p);
}

/* Computes o and lse of r's r->count rows in one call, and the gradient if
 * `grad` is not NULL. `parent` has an entry per row, or is NULL. */
static inline void run_packed(const dev *d, const rows *r,
                              const int32_t *starts, const int32_t *parent,
                              float *o, float *lse, const float *d_o,
                              float *grad)
{
    size_t qkv = r->tokens * r->stride * sizeof(float);
    size_t out = r->tokens * r->q_width * sizeof(float);
    size_t sums = r->tokens * r->f.heads * sizeof(float);
    float *x = copy_to_device(d, r->qkv, qkv);
    float *to = copy_to_device(d, NULL, out);
    float *l = copy_to_device(d, NULL, sums);
    int32_t *start =
        copy_to_device(d, starts, (r->count + 1) * sizeof(*starts));
    int32_t *from =
        parent ? copy_to_device(d, parent, r->count * sizeof(*parent)) : NULL;
    xray_attention op = make_attention(r, to, l);
    op.row_start = start;
    op.parent = from;
    op.q = x;
    op.k = x + r->q_width;
    op.v = x + r->q_width + r->kv_width;
    must(d->ops->attention(d->self, NULL, &op));
    if (grad) {
        float *g = copy_to_device(d, d_o, out);
        float *into = copy_to_device(d, grad, qkv);
        xray_attention_grad back = make_attention_grad(r, &op, g, into);
        must(d->ops->attention_grad(d->self, NULL, &back));
        copy_from_device(d, grad, into, qkv);
        free_on_device(d, g);
        free_on_device(d, into);
    }
    copy_from_device(d, o, to, out);
    copy_from_device(d, lse, l, sums);
    free_on_device(d, x);
    free_on_device(d, to);
    free_on_device(d, l);
    free_on_device(d, start);
    if (from)
        free_on_device(d, from);
}

static inline void run_rows(const dev *d, const rows *r, float *o, float *lse,
                            const float *d_o, float *grad)
{
    run_packed(d, r, r->start, NULL, o, lse, d_o, grad);
}

/* A call over the cache: tokens [base, base + chunk) of every row. */
typedef struct cache_call {
    const rows *r;
    xray_kv kv;
    size_t base, chunk;
    size_t spare; /* tokens beyond `live` */
} cache_call;

static inline void run_cache_call(const dev *d, const cache_call *c, float *o)
{
    const rows *r = c->r;
    size_t most = r->count * c->chunk + c->spare;
    int32_t *ids = calloc(2 * most, sizeof(*ids));
    size_t *index = calloc(most, sizeof(*index));
    float *in = alloc_floats(most * r->stride);
    float *out = random_floats(most * r->q_width, 1);
    assert_true(ids && index);
    int32_t n = 0;
    for (size_t row = 0; row < r->count; row++)
        for (size_t p = c->base;
             p < c->base + c->chunk && p < (size_t)r->f.lengths[row];
             p++, n++) {
            ids[n] = (int32_t)row;
            ids[most + (size_t)n] = (int32_t)p;
            index[n] = (size_t)r->start[row] + p;
            memcpy(in + (size_t)n * r->stride, r->qkv + index[n] * r->stride,
                   r->stride * sizeof(*in));
        }
    int32_t *seq = copy_to_device(d, ids, 2 * most * sizeof(*ids));
    int32_t *live = copy_to_device(d, &n, sizeof(n));
    float *x = copy_to_device(d, in, most * r->stride * sizeof(*in));
    float *to = copy_to_device(d, out, most * r->q_width * sizeof(*out));
    xray_attention_kv op = make_attention_kv(r, &c->kv, x, to);
    op.tokens.bound = c->spare ? most : (size_t)n;
    op.tokens.live = c->spare ? live : NULL;
    op.seq = seq;
    op.positions = seq + most;
    must(d->ops->attention_kv(d->self, NULL, &op));
    float *got = alloc_floats(most * r->q_width);
    copy_from_device(d, got, to, most * r->q_width * sizeof(*out));
    for (size_t t = 0; t < (size_t)n; t++)
        memcpy(o + index[t] * r->q_width, got + t * r->q_width,
               r->q_width * sizeof(*o));
    if (c->spare)
        assert_same_bits(
            got + (size_t)n * r->q_width, out + (size_t)n * r->q_width,
            (most - (size_t)n) * r->q_width, "beyond live", d->name);
    void *all[] = { seq, live, x, to };
    for (size_t i = 0; i < 4; i++)
        free_on_device(d, all[i]);
    free(ids);
    free(index);
    free(in);
    free(out);
    free(got);
}

/* How a run over the cache is divided and stored. */
typedef struct cache_run {
    uint32_t block;
    size_t chunk; /* tokens per row and call */
    size_t first; /* tokens in the first call; 0: like the others */
    int paged;
    size_t spare;
    uint32_t dtype;
} cache_run;

/* Overwrites with NaN the blocks of every row that its queries from `base` on
 * do not see, as if they were another sequence's. There are `blocks` blocks,
 * and the table is their order reversed. */
static inline void free_passed_blocks(const dev *d, const cache_call *c,
                                      const void *stale, size_t blocks)
{
    size_t visible = c->base + 1 - c->r->f.window; /* the first key */
    size_t per_row = c->kv.table_stride;
    size_t bytes = d->ops->kv_block_bytes(d->self, &c->kv);
    for (size_t i = 0; i < blocks; i++) {
        size_t at = (blocks - 1 - i) * bytes;
        if ((i % per_row + 1) * c->kv.block_tokens <= visible)
            must(d->ops->copy(d->self, NULL, (char *)c->kv.blocks + at, stale,
                              bytes, XRAY_COPY_TO_DEVICE));
    }
    must(d->ops->sync(d->self, NULL));
}

static inline void run_over_cache(const dev *d, const rows *r, cache_run w,
                                  float *o)
{
    cache_call c = { .r = r, .chunk = w.chunk, .spare = w.spare };
    size_t per_row = (r->longest + w.block - 1) / w.block;
    size_t blocks = per_row * r->count;
    int32_t *table = calloc(blocks + 1, sizeof(*table));
    assert_non_null(table);
    for (size_t i = 0; i < blocks; i++)
        table[i] = (int32_t)(blocks - 1 - i);
    int32_t *there = copy_to_device(d, table, blocks * sizeof(*table));
    c.kv = (xray_kv){ .header = XRAY_HEADER(xray_kv),
                      .table = w.paged ? there : NULL,
                      .table_stride = per_row,
                      .block_tokens = w.block,
                      .kv_heads = r->f.kv_heads,
                      .head_dim = r->f.dim,
                      .dtype = w.dtype ? w.dtype : XRAY_F32 };
    size_t bytes = d->ops->kv_block_bytes(d->self, &c.kv) * blocks;
    assert_true(bytes > 0);
    /* The content that earlier sequences left must not matter. */
    void *stale = malloc(bytes + 1);
    assert_non_null(stale);
    memset(stale, 0xFF, bytes);
    c.kv.blocks = copy_to_device(d, stale, bytes);
    for (c.base = 0; c.base < r->longest; c.base += c.chunk) {
        c.chunk = w.first && c.base == 0 ? w.first : w.chunk;
        if (w.paged && r->f.window && c.base >= r->f.window)
            free_passed_blocks(d, &c, stale, blocks);
        run_cache_call(d, &c, o);
    }
    free_on_device(d, c.kv.blocks);
    free_on_device(d, there);
    free(stale);
    free(table);
}

#endif
