/* SPDX-License-Identifier: Apache-2.0
 *
 * The operators of a staged device: each finds the memory ranges of its
 * arguments, copies them to the device, makes the call, and copies the results
 * back.
 */
#include <xray/numerics.h>

#include "tests/cuda/staged_internal.h"

#define RANGES 24

/* The memory of a call: ranges, of which overlapping ones share one region. */
typedef struct range {
    void *at; /* the argument, which is set to the device's address */
    uintptr_t from;
    uintptr_t to;
    int out;
    int region;
    void *dev; /* address of the region; in its first range only */
} range;

typedef struct call {
    staged *s;
    xray_stream *stream;
    range r[RANGES];
    int count;
    xray_status status;
} call;

static void add_range(call *c, void *at, uint64_t bytes, int out)
{
    const void *p;
    memcpy(&p, at, sizeof(p));
    if (!p || bytes == 0 || c->count == RANGES)
        return;
    range *r = &c->r[c->count];
    *r = (range){ .at = at, .from = (uintptr_t)p, .out = out };
    r->to = r->from + bytes;
    r->region = c->count++;
}

#define IN(c, member, bytes) add_range(c, &(member), bytes, 0)
#define OUT(c, member, bytes) add_range(c, &(member), bytes, 1)
#define FLOATS(n) ((uint64_t)(n) * sizeof(float))

/* The bytes of n rows of `width` elements at a stride. */
static uint64_t count_typed(uint64_t n, uint64_t stride, uint64_t width,
                            uint32_t dtype)
{
    return n ? ((n - 1) * stride + width) * element_bytes(dtype) : 0;
}

static uint64_t count_strided(uint64_t n, uint64_t stride, uint64_t width)
{
    return count_typed(n, stride, width, XRAY_F32);
}

static void merge_ranges(call *c)
{
    for (int again = 1; again;) {
        again = 0;
        for (int i = 0; i < c->count; i++) {
            range *a = &c->r[c->r[i].region];
            for (int j = 0; j < i; j++) {
                range *b = &c->r[c->r[j].region];
                if (a == b || a->from >= b->to || b->from >= a->to)
                    continue;
                range *keep = a < b ? a : b;
                range *gone = a < b ? b : a;
                keep->from = a->from < b->from ? a->from : b->from;
                keep->to = a->to > b->to ? a->to : b->to;
                keep->out = a->out || b->out;
                int old = (int)(gone - c->r);
                for (int k = 0; k < c->count; k++)
                    if (c->r[k].region == old)
                        c->r[k].region = (int)(keep - c->r);
                again = 1;
                a = keep;
            }
        }
    }
}

static const void *get_host_address(const range *r)
{
    const void *p;
    memcpy(&p, &r->from, sizeof(p));
    return p;
}

static void begin_call(call *c)
{
    uintptr_t asked[RANGES];
    for (int i = 0; i < c->count; i++)
        asked[i] = c->r[i].from;
    merge_ranges(c);
    for (int i = 0; i < c->count; i++) {
        range *r = &c->r[i];
        if (r->region != i || c->status != XRAY_OK)
            continue;
        c->status = c->s->ops->alloc(c->s->self, "staged", XRAY_TAG_WORKSPACE,
                                     r->to - r->from, &r->dev);
        if (c->status == XRAY_OK)
            c->status = c->s->ops->copy(c->s->self, c->stream, r->dev,
                                        get_host_address(r), r->to - r->from,
                                        XRAY_COPY_TO_DEVICE);
    }
    for (int i = 0; i < c->count && c->status == XRAY_OK; i++) {
        const range *region = &c->r[c->r[i].region];
        void *to = (char *)region->dev + (asked[i] - region->from);
        memcpy(c->r[i].at, &to, sizeof(to));
    }
}

static xray_status end_call(call *c, xray_status status)
{
    for (int i = 0; i < c->count; i++) {
        range *r = &c->r[i];
        if (r->region != i || !r->dev)
            continue;
        if (status == XRAY_OK && r->out) {
            void *to;
            memcpy(&to, &r->from, sizeof(to));
            status = c->s->ops->copy(c->s->self, c->stream, to, r->dev,
                                     r->to - r->from, XRAY_COPY_TO_HOST);
            if (status == XRAY_OK)
                status = c->s->ops->sync(c->s->self, c->stream);
        }
        c->s->ops->free(c->s->self, r->dev);
    }
    return status;
}

/* ---- operators ----------------------------------------------------------- */

static uint64_t read_count(const xray_extent *e)
{
    if (!e->live)
        return e->bound;
    return *e->live < 0                    ? 0
           : (uint64_t)*e->live < e->bound ? (uint64_t)*e->live
                                           : e->bound;
}

/* One more than the largest of n indices. */
static uint64_t index_bound(const int32_t *index, uint64_t n)
{
    int32_t most = -1;
    for (uint64_t i = 0; i < n; i++)
        most = index[i] > most ? index[i] : most;
    return (uint64_t)(most + 1);
}

/* Defines staged_NAME: `lists` names the ranges of `o`, a copy of the
 * arguments. Invalid arguments are passed on unchanged, to be refused. */
#define OPERATOR(name, type, lists)                                   \
    static void list_##name(call *c, type *o)                         \
    {                                                                 \
        lists                                                         \
    }                                                                 \
    static xray_status staged_##name(void *self, xray_stream *stream, \
                                     const type *op)                  \
    {                                                                 \
        staged *s = self;                                             \
        if (!op || op->header.size < sizeof(*op))                     \
            return s->ops->name(s->self, stream, op);                 \
        type o = *op;                                                 \
        call c = { .s = s, .stream = stream };                        \
        list_##name(&c, &o);                                          \
        begin_call(&c);                                               \
        return end_call(&c, c.status == XRAY_OK                       \
                                ? s->ops->name(s->self, stream, &o)   \
                                : c.status);                          \
    }

#define LIVE(extent) IN(c, o->extent.live, sizeof(int32_t))

OPERATOR(matmul, xray_matmul, {
    const matrix *m = get_matrix(c->s, o->weight);
    uint64_t n = o->tokens.bound;
    if (m) {
        uint64_t in = o->kind == XRAY_NT ? m->cols : m->rows;
        uint64_t out = o->kind == XRAY_NT ? m->rows : m->cols;
        uint64_t kept = o->act && !o->plain ? out / 2 : out;
        IN(c, o->x, count_typed(n, o->x_stride, in, o->x_dtype));
        OUT(c, o->y, count_typed(n, o->y_stride, kept, o->y_dtype));
        IN(c, o->bias, FLOATS(out));
        IN(c, o->residual,
           count_typed(n, o->residual_stride, out, o->residual_dtype));
    }
    LIVE(tokens);
})

OPERATOR(matmul_grad, xray_matmul_grad, {
    uint64_t n = o->tokens.bound;
    IN(c, o->dy, count_strided(n, o->dy_stride, o->rows));
    IN(c, o->x, count_typed(n, o->x_stride, o->cols, o->x_dtype));
    OUT(c, o->dw, FLOATS(o->rows * o->cols));
    OUT(c, o->dbias, FLOATS(o->rows));
    LIVE(tokens);
})

OPERATOR(embedding, xray_embedding, {
    uint64_t n = o->tokens.bound;
    IN(c, o->ids, FLOATS(n));
    IN(c, o->table, o->vocab * o->dim * element_bytes(o->table_dtype));
    OUT(c, o->y, n * o->dim * element_bytes(o->y_dtype));
    LIVE(tokens);
})

OPERATOR(embedding_grad, xray_embedding_grad, {
    uint64_t n = o->tokens.bound;
    IN(c, o->ids, FLOATS(n));
    IN(c, o->dy, FLOATS(n * o->dim));
    OUT(c, o->dtable, FLOATS(o->vocab * o->dim));
    LIVE(tokens);
})

OPERATOR(gather, xray_rows, {
    uint64_t row = o->dim * element_bytes(o->dtype);
    if (o->index)
        IN(c, o->x, index_bound(o->index, read_count(&o->count)) * row);
    IN(c, o->index, FLOATS(o->count.bound));
    OUT(c, o->y, o->count.bound * row);
    LIVE(count);
})

OPERATOR(scatter, xray_rows, {
    uint64_t row = o->dim * element_bytes(o->dtype);
    if (o->index)
        OUT(c, o->y, index_bound(o->index, read_count(&o->count)) * row);
    IN(c, o->index, FLOATS(o->count.bound));
    IN(c, o->x, o->count.bound * row);
    LIVE(count);
})

OPERATOR(rmsnorm, xray_rmsnorm, {
    uint64_t n = o->tokens.bound;
    uint64_t width = (uint64_t)o->groups * o->dim;
    IN(c, o->x, count_typed(n, o->x_stride, width, o->x_dtype));
    OUT(c, o->residual, n * o->dim * element_bytes(o->residual_dtype));
    IN(c, o->weight, FLOATS(o->dim));
    OUT(c, o->y, count_typed(n, o->y_stride, width, o->y_dtype));
    OUT(c, o->rstd, FLOATS(n * o->groups));
    LIVE(tokens);
})

OPERATOR(rmsnorm_grad, xray_rmsnorm_grad, {
    uint64_t n = o->tokens.bound;
    uint64_t width = (uint64_t)o->groups * o->dim;
    IN(c, o->x, count_typed(n, o->x_stride, width, o->x_dtype));
    IN(c, o->weight, FLOATS(o->dim));
    IN(c, o->rstd, FLOATS(n * o->groups));
    IN(c, o->dy, count_strided(n, o->dy_stride, width));
    OUT(c, o->dx, count_strided(n, o->dx_stride, width));
    OUT(c, o->dweight,
        FLOATS((uint64_t)(o->segments ? o->segments : 1) * o->dim));
    LIVE(tokens);
})

OPERATOR(layernorm, xray_layernorm, {
    uint64_t n = o->tokens.bound;
    IN(c, o->x, count_typed(n, o->x_stride, o->dim, o->x_dtype));
    IN(c, o->weight, FLOATS(o->dim));
    IN(c, o->bias, FLOATS(o->dim));
    OUT(c, o->y, count_typed(n, o->y_stride, o->dim, o->y_dtype));
    OUT(c, o->stat, FLOATS(n * 2));
    LIVE(tokens);
})

OPERATOR(layernorm_grad, xray_layernorm_grad, {
    uint64_t n = o->tokens.bound;
    IN(c, o->x, count_typed(n, o->x_stride, o->dim, o->x_dtype));
    IN(c, o->weight, FLOATS(o->dim));
    IN(c, o->stat, FLOATS(n * 2));
    IN(c, o->dy, count_strided(n, o->dy_stride, o->dim));
    OUT(c, o->dx, count_strided(n, o->dx_stride, o->dim));
    OUT(c, o->dweight, FLOATS(o->dim));
    OUT(c, o->dbias, FLOATS(o->dim));
    LIVE(tokens);
})

OPERATOR(rope_table, xray_rope_table,
         { OUT(c, o->table, FLOATS(o->positions * o->half * 2)); })

OPERATOR(rope, xray_rope, {
    uint64_t n = o->tokens.bound;
    if (o->positions)
        IN(c, o->table,
           FLOATS(index_bound(o->positions, read_count(&o->tokens)) * o->half *
                  2));
    OUT(c, o->x,
        count_typed(n, o->stride, (uint64_t)o->heads * o->head_dim, o->dtype));
    IN(c, o->positions, FLOATS(n));
    LIVE(tokens);
})

OPERATOR(glu, xray_glu, {
    uint64_t n = o->tokens.bound * o->dim;
    IN(c, o->x, (o->plain ? n : 2 * n) * element_bytes(o->x_dtype));
    OUT(c, o->y, n * element_bytes(o->y_dtype));
    LIVE(tokens);
})

OPERATOR(glu_grad, xray_glu_grad, {
    uint64_t n = o->tokens.bound * o->dim;
    IN(c, o->x, (o->plain ? n : 2 * n) * element_bytes(o->x_dtype));
    IN(c, o->dy, FLOATS(n));
    OUT(c, o->dx, FLOATS(o->plain ? n : 2 * n));
    LIVE(tokens);
})

static uint64_t count_queries(const xray_attention *o)
{
    return o->query_start ? o->queries.bound : o->tokens.bound;
}

OPERATOR(attention, xray_attention, {
    uint64_t n = o->tokens.bound;
    uint64_t queries = count_queries(o);
    uint64_t own = (uint64_t)o->heads * o->head_dim;
    uint64_t kv = (uint64_t)o->kv_heads * o->head_dim;
    IN(c, o->row_start, FLOATS(o->rows + 1));
    IN(c, o->parent, FLOATS(o->rows));
    IN(c, o->query_start, FLOATS(o->rows + 1));
    IN(c, o->query_first, FLOATS(o->rows));
    IN(c, o->q, count_typed(queries, o->q_stride, own, o->dtype));
    IN(c, o->k, count_typed(n, o->k_stride, kv, o->dtype));
    IN(c, o->v, count_typed(n, o->v_stride, kv, o->dtype));
    OUT(c, o->o, count_typed(queries, o->o_stride, own, o->dtype));
    OUT(c, o->lse, FLOATS(queries * o->heads));
    LIVE(tokens);
    LIVE(queries);
})

static xray_status staged_attention_grad(void *self, xray_stream *stream,
                                         const xray_attention_grad *op)
{
    staged *s = self;
    if (!op || op->header.size < sizeof(*op) || !op->forward)
        return s->ops->attention_grad(s->self, stream, op);
    xray_attention f = *op->forward;
    xray_attention_grad o = *op;
    call c = { .s = s, .stream = stream };
    uint64_t n = f.tokens.bound;
    uint64_t queries = count_queries(&f);
    uint64_t own = (uint64_t)f.heads * f.head_dim;
    uint64_t kv = (uint64_t)f.kv_heads * f.head_dim;
    list_attention(&c, &f);
    IN(&c, o.d_o, count_strided(queries, f.o_stride, own));
    OUT(&c, o.dq, count_strided(queries, o.dq_stride, own));
    OUT(&c, o.dk, count_strided(n, o.dk_stride, kv));
    OUT(&c, o.dv, count_strided(n, o.dv_stride, kv));
    o.forward = &f;
    begin_call(&c);
    return end_call(&c, c.status == XRAY_OK
                            ? s->ops->attention_grad(s->self, stream, &o)
                            : c.status);
}

/* Finds the blocks that the sequences of a call use, and the entries of the
 * table. */
static void find_kv_bounds(const xray_attention_kv *o, uint64_t *out_blocks,
                           uint64_t *out_entries)
{
    const xray_kv *kv = o->kv;
    uint64_t n = read_count(&o->tokens);
    *out_blocks = 0;
    *out_entries = 0;
    for (uint64_t t = 0; t < n; t++) {
        uint64_t first = (uint64_t)o->seq[t] * kv->table_stride;
        uint64_t last = first + (uint64_t)o->positions[t] / kv->block_tokens;
        if (last + 1 > *out_entries)
            *out_entries = last + 1;
        for (uint64_t i = first; i <= last; i++) {
            uint64_t block = kv->table ? (uint64_t)kv->table[i] : i;
            if (block + 1 > *out_blocks)
                *out_blocks = block + 1;
        }
    }
}

static xray_status staged_attention_kv(void *self, xray_stream *stream,
                                       const xray_attention_kv *op)
{
    staged *s = self;
    if (!op || op->header.size < sizeof(*op) || !op->kv || !op->seq ||
        !op->positions || !op->kv->block_tokens)
        return s->ops->attention_kv(s->self, stream, op);
    xray_attention_kv o = *op;
    xray_kv kv = *op->kv;
    call c = { .s = s, .stream = stream };
    uint64_t n = o.tokens.bound;
    uint64_t own = (uint64_t)o.heads * kv.head_dim;
    uint64_t pair = (uint64_t)kv.kv_heads * kv.head_dim;
    uint64_t blocks;
    uint64_t entries;
    find_kv_bounds(&o, &blocks, &entries);
    OUT(&c, kv.blocks, blocks * s->ops->kv_block_bytes(s->self, &kv));
    IN(&c, kv.table, FLOATS(entries));
    IN(&c, o.seq, FLOATS(n));
    IN(&c, o.positions, FLOATS(n));
    IN(&c, o.q, count_typed(n, o.q_stride, own, o.dtype));
    IN(&c, o.k, count_typed(n, o.k_stride, pair, o.dtype));
    IN(&c, o.v, count_typed(n, o.v_stride, pair, o.dtype));
    OUT(&c, o.o, count_typed(n, o.o_stride, own, o.dtype));
    IN(&c, o.tokens.live, sizeof(int32_t));
    o.kv = &kv;
    begin_call(&c);
    return end_call(&c, c.status == XRAY_OK
                            ? s->ops->attention_kv(s->self, stream, &o)
                            : c.status);
}

OPERATOR(lm_head_logp, xray_lm_head_logp, {
    const matrix *m = get_matrix(c->s, o->weight);
    uint64_t n = o->items.bound;
    if (m) {
        IN(c, o->x, n * m->cols * element_bytes(o->x_dtype));
    }
    IN(c, o->targets, FLOATS(n));
    IN(c, o->temperature, FLOATS(n));
    IN(c, o->top, FLOATS(n));
    OUT(c, o->logp, FLOATS(n));
    OUT(c, o->entropy, FLOATS(n));
    OUT(c, o->lse, FLOATS(n));
    OUT(c, o->partial, FLOATS(n * 4));
    if (m)
        OUT(c, o->logits, FLOATS(n * ((m->rows + 15) / 16 * 16)));
    LIVE(items);
})

static xray_status staged_lm_head_grad(void *self, xray_stream *stream,
                                       const xray_lm_head_grad *op)
{
    staged *s = self;
    if (!op || op->header.size < sizeof(*op) || !op->forward)
        return s->ops->lm_head_grad(s->self, stream, op);
    xray_lm_head_logp f = *op->forward;
    xray_lm_head_grad o = *op;
    const matrix *m = get_matrix(s, f.weight);
    call c = { .s = s, .stream = stream };
    uint64_t n = f.items.bound;
    list_lm_head_logp(&c, &f);
    IN(&c, o.dlogp, FLOATS(n));
    IN(&c, o.dentropy, FLOATS(n));
    if (m) {
        OUT(&c, o.dx, FLOATS(n * m->cols));
        OUT(&c, o.dweight, FLOATS(m->rows * m->cols));
    }
    o.forward = &f;
    begin_call(&c);
    return end_call(&c, c.status == XRAY_OK
                            ? s->ops->lm_head_grad(s->self, stream, &o)
                            : c.status);
}

OPERATOR(lm_head_join, xray_lm_head_join, {
    uint64_t n = o->items.bound;
    IN(c, o->partials, count_strided(o->slices, o->slice_stride, 4 * n));
    OUT(c, o->logp, FLOATS(n));
    OUT(c, o->entropy, FLOATS(n));
    OUT(c, o->lse, FLOATS(n));
    LIVE(items);
})

OPERATOR(sample, xray_sample, {
    const matrix *m = get_matrix(c->s, o->weight);
    uint64_t n = o->items.bound;
    if (m) {
        IN(c, o->x, n * m->cols * element_bytes(o->x_dtype));
    }
    IN(c, o->logits, count_strided(n, o->logits_stride, o->vocab));
    IN(c, o->changed, count_strided(n, o->logits_stride, o->vocab));
    IN(c, o->draws, n * o->draw_stride);
    OUT(c, o->token, FLOATS(n));
    OUT(c, o->raw_logp, FLOATS(n));
    OUT(c, o->logp, FLOATS(n));
    LIVE(items);
})

OPERATOR(advance, xray_advance, {
    uint64_t n = o->items.bound;
    uint64_t live = read_count(&o->items);
    IN(c, o->token, FLOATS(n));
    OUT(c, o->ids, FLOATS(n));
    OUT(c, o->positions, FLOATS(n));
    OUT(c, o->draws, n * o->draw_stride);
    OUT(c, o->stop, FLOATS(n));
    IN(c, o->limit, FLOATS(n));
    IN(c, o->stop_ids, o->stop_start ? FLOATS(o->stop_start[live]) : 0);
    IN(c, o->stop_start, FLOATS(n + 1));
    LIVE(items);
})

OPERATOR(edit_logits, xray_edit_logits, {
    uint64_t n = o->items.bound;
    uint64_t live = read_count(&o->items);
    uint64_t edits = o->edit_start ? (uint64_t)o->edit_start[live] : 0;
    uint64_t sets = o->allowed_set ? index_bound(o->allowed_set, live) : 0;
    IN(c, o->logits, count_strided(n, o->stride, o->vocab));
    OUT(c, o->changed, count_strided(n, o->stride, o->vocab));
    IN(c, o->edit_start, FLOATS(n + 1));
    IN(c, o->edits, edits * o->edit_stride);
    IN(c, o->allowed, FLOATS(sets * ((o->vocab + 31) / 32)));
    IN(c, o->allowed_set, FLOATS(n));
    LIVE(items);
})

OPERATOR(pick_logp, xray_pick_logp, {
    uint64_t n = o->items.bound;
    IN(c, o->logits, count_strided(n, o->stride, o->vocab));
    OUT(c, o->ids, FLOATS(n * o->count));
    OUT(c, o->logp, FLOATS(n * o->count));
    LIVE(items);
})

OPERATOR(axpby, xray_axpby, {
    IN(c, o->x, o->count * element_bytes(o->x_dtype));
    OUT(c, o->y, o->count * element_bytes(o->y_dtype));
})

OPERATOR(cast, xray_cast, {
    uint64_t more = o->rows > 1 ? o->rows - 1 : 0;
    IN(c, o->x, (more * o->x_stride + o->count) * element_bytes(o->x_dtype));
    OUT(c, o->y, (more * o->y_stride + o->count) * element_bytes(o->y_dtype));
})

OPERATOR(sumsq, xray_sumsq, {
    IN(c, o->x, FLOATS(o->count));
    OUT(c, o->result, XRAY_SQUARES_WORDS * sizeof(uint64_t));
})

OPERATOR(adamw, xray_adamw, {
    OUT(c, o->p, FLOATS(o->count));
    IN(c, o->g, FLOATS(o->count));
    OUT(c, o->m, FLOATS(o->count));
    OUT(c, o->v, FLOATS(o->count));
    OUT(c, o->out, o->count * element_bytes(o->out_dtype));
    IN(c, o->scalars, FLOATS(4));
})

void staged_operators(xray_device_ops *ops)
{
    ops->matmul = staged_matmul;
    ops->matmul_grad = staged_matmul_grad;
    ops->embedding = staged_embedding;
    ops->embedding_grad = staged_embedding_grad;
    ops->gather = staged_gather;
    ops->scatter = staged_scatter;
    ops->rmsnorm = staged_rmsnorm;
    ops->rmsnorm_grad = staged_rmsnorm_grad;
    ops->layernorm = staged_layernorm;
    ops->layernorm_grad = staged_layernorm_grad;
    ops->rope_table = staged_rope_table;
    ops->rope = staged_rope;
    ops->glu = staged_glu;
    ops->glu_grad = staged_glu_grad;
    ops->attention = staged_attention;
    ops->attention_grad = staged_attention_grad;
    ops->attention_kv = staged_attention_kv;
    ops->lm_head_logp = staged_lm_head_logp;
    ops->lm_head_grad = staged_lm_head_grad;
    ops->lm_head_join = staged_lm_head_join;
    ops->sample = staged_sample;
    ops->edit_logits = staged_edit_logits;
    ops->pick_logp = staged_pick_logp;
    ops->advance = staged_advance;
    ops->axpby = staged_axpby;
    ops->cast = staged_cast;
    ops->sumsq = staged_sumsq;
    ops->adamw = staged_adamw;
}
