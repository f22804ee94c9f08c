/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of attention on a device whose memory may not be the host's: placed,
 * run as the trainer and as the engine do, and read back.
 */
#ifndef CUDA_ATTENTION_RUN_H
#define CUDA_ATTENTION_RUN_H

#include "tests/cuda/attention_rows.h"

#include "plugins/device-cuda/config.h"

const xray_plugin *xray_plugin_query_device_cuda(uint32_t host_abi);

/* Ends the suite as skipped where there is no GPU (the emulated device is
 * always there). */
static inline dev attend_open(int64_t precision)
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

static inline void *place(const dev *d, const void *data, size_t bytes)
{
    void *p = NULL;
    must(d->ops->alloc(d->self, "test", XRAY_TAG_WORKSPACE, bytes + 64, &p));
    if (data)
        must(d->ops->copy(d->self, NULL, p, data, bytes, XRAY_COPY_TO_DEVICE));
    must(d->ops->sync(d->self, NULL));
    return p;
}

static inline void fetch(const dev *d, void *to, const void *from, size_t bytes)
{
    must(d->ops->sync(d->self, NULL));
    must(d->ops->copy(d->self, NULL, to, from, bytes, XRAY_COPY_TO_HOST));
    must(d->ops->sync(d->self, NULL));
}

static inline void drop(const dev *d, void *p)
{
    d->ops->free(d->self, p);
}

/* o and lse of r's r->count rows from one call; the gradient too where `grad`
 * is not NULL. `parent` of each row, or NULL. */
static inline void run_packed(const dev *d, const rows *r,
                              const int32_t *starts, const int32_t *parent,
                              float *o, float *lse, const float *d_o,
                              float *grad)
{
    size_t qkv = r->tokens * r->stride * sizeof(float);
    size_t out = r->tokens * r->q_width * sizeof(float);
    size_t sums = r->tokens * r->f.heads * sizeof(float);
    float *x = place(d, r->qkv, qkv);
    float *to = place(d, NULL, out);
    float *l = place(d, NULL, sums);
    int32_t *start = place(d, starts, (r->count + 1) * sizeof(*starts));
    int32_t *from =
        parent ? place(d, parent, r->count * sizeof(*parent)) : NULL;
    xray_attention op = rows_op(r, to, l);
    op.row_start = start;
    op.parent = from;
    op.q = x;
    op.k = x + r->q_width;
    op.v = op.k + r->kv_width;
    must(d->ops->attention(d->self, NULL, &op));
    if (grad) {
        float *g = place(d, d_o, out);
        float *into = place(d, grad, qkv);
        xray_attention_grad back = rows_grad_op(r, &op, g, into);
        must(d->ops->attention_grad(d->self, NULL, &back));
        fetch(d, grad, into, qkv);
        drop(d, g);
        drop(d, into);
    }
    fetch(d, o, to, out);
    fetch(d, lse, l, sums);
    drop(d, x);
    drop(d, to);
    drop(d, l);
    drop(d, start);
    if (from)
        drop(d, from);
}

static inline void run_rows(const dev *d, const rows *r, float *o, float *lse,
                            const float *d_o, float *grad)
{
    run_packed(d, r, r->start, NULL, o, lse, d_o, grad);
}

/* One call over the cache: tokens [base, base + chunk) of every row. */
typedef struct turn {
    const rows *r;
    xray_kv kv;
    size_t base, chunk;
    size_t spare; /* tokens beyond `live` */
} turn;

static inline void run_turn(const dev *d, const turn *c, float *o)
{
    const rows *r = c->r;
    size_t most = r->count * c->chunk + c->spare;
    int32_t *ids = calloc(2 * most, sizeof(*ids));
    size_t *index = calloc(most, sizeof(*index));
    float *in = floats(most * r->stride);
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
    int32_t *seq = place(d, ids, 2 * most * sizeof(*ids));
    int32_t *live = place(d, &n, sizeof(n));
    float *x = place(d, in, most * r->stride * sizeof(*in));
    float *to = place(d, out, most * r->q_width * sizeof(*out));
    xray_attention_kv op = rows_kv_op(r, &c->kv, x, to);
    op.tokens.bound = c->spare ? most : (size_t)n;
    op.tokens.live = c->spare ? live : NULL;
    op.seq = seq;
    op.positions = seq + most;
    must(d->ops->attention_kv(d->self, NULL, &op));
    float *got = floats(most * r->q_width);
    fetch(d, got, to, most * r->q_width * sizeof(*out));
    for (size_t t = 0; t < (size_t)n; t++)
        memcpy(o + index[t] * r->q_width, got + t * r->q_width,
               r->q_width * sizeof(*o));
    if (c->spare)
        same_bits(got + (size_t)n * r->q_width, out + (size_t)n * r->q_width,
                  (most - (size_t)n) * r->q_width, "beyond live", d->name);
    void *all[] = { seq, live, x, to };
    for (size_t i = 0; i < 4; i++)
        drop(d, all[i]);
    free(ids);
    free(index);
    free(in);
    free(out);
    free(got);
}

/* The cache's form of a run. */
typedef struct way {
    uint32_t block;
    size_t chunk; /* tokens of a row in a call */
    size_t first; /* of the first call; 0: as the others */
    int paged;
    size_t spare;
    uint32_t dtype;
} way;

static inline void run_way(const dev *d, const rows *r, way w, float *o)
{
    turn c = { .r = r, .chunk = w.chunk, .spare = w.spare };
    size_t per_row = (r->longest + w.block - 1) / w.block;
    size_t blocks = per_row * r->count;
    int32_t *table = calloc(blocks + 1, sizeof(*table));
    assert_non_null(table);
    for (size_t i = 0; i < blocks; i++)
        table[i] = (int32_t)(blocks - 1 - i);
    int32_t *there = place(d, table, blocks * sizeof(*table));
    c.kv = (xray_kv){ .header = XRAY_HEADER(xray_kv),
                      .table = w.paged ? there : NULL,
                      .table_stride = per_row,
                      .block_tokens = w.block,
                      .kv_heads = r->f.kv_heads,
                      .head_dim = r->f.dim,
                      .dtype = w.dtype ? w.dtype : XRAY_F32 };
    size_t bytes = d->ops->kv_block_bytes(d->self, &c.kv) * blocks;
    assert_true(bytes > 0);
    /* What earlier sequences left must not matter. */
    void *stale = malloc(bytes + 1);
    assert_non_null(stale);
    memset(stale, 0xFF, bytes);
    c.kv.blocks = place(d, stale, bytes);
    for (c.base = 0; c.base < r->longest; c.base += c.chunk) {
        c.chunk = w.first && c.base == 0 ? w.first : w.chunk;
        run_turn(d, &c, o);
    }
    drop(d, c.kv.blocks);
    drop(d, there);
    free(stale);
    free(table);
}

#endif
