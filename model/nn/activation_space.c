/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocates the activations and scratch memory of a pass as one block of device
 * memory, and divides it into arrays.
 */
#include <stdlib.h>

#include "core/base/str.h"
#include "model/nn/internal.h"

/* Recomputation is a kind of training: RECOMPUTE implies TRAIN. One rank has no
 * other to divide tokens with. */
static uint32_t complete_flags(const xm_config *config, uint32_t flags)
{
    if (flags & XM_SPACE_RECOMPUTE)
        flags |= XM_SPACE_TRAIN;
    if (config->slice.ranks < 2)
        flags &= ~XM_SPACE_SEQUENCE;
    return flags;
}

/* The most tokens that a rank has of rows. */
static uint64_t rank_tokens(const xm_config *config, const xm_space *s)
{
    return xm_context_each(s->tokens, config->context_ranks);
}

/* The most tokens that a rank holds along the residual stream. */
static uint64_t own_tokens(const xm_config *config, const xm_space *s)
{
    uint64_t ranks = s->flags & XM_SPACE_SEQUENCE ? config->slice.ranks : 1;
    return (rank_tokens(config, s) + ranks - 1) / ranks;
}

/* As many tokens for each of the ranks. */
static uint64_t padded_tokens(const xm_config *config, const xm_space *s)
{
    uint64_t ranks = s->flags & XM_SPACE_SEQUENCE ? config->slice.ranks : 1;
    return ranks * own_tokens(config, s);
}

/* Hands out consecutive pieces of an arena. Without a base it only counts. */
typedef struct arena_cursor {
    unsigned char *base;
    uint64_t used; /* bytes */
    uint64_t size; /* of an activation */
} arena_cursor;

static void *take_bytes(arena_cursor *c, uint64_t bytes)
{
    void *piece = c->base ? c->base + c->used : NULL;
    c->used += (bytes + 63u) & ~(uint64_t)63u;
    return piece;
}

static float *take_floats(arena_cursor *c, uint64_t count)
{
    return take_bytes(c, count * sizeof(float));
}

static void *take_acts(arena_cursor *c, uint64_t count)
{
    return take_bytes(c, count * c->size);
}

/* Memory that also holds the fp32 gradients of the activations. */
static void *take_shared(arena_cursor *c, const xm_space *s, uint64_t count)
{
    return s->flags & XM_SPACE_TRAIN ? take_floats(c, count)
                                     : take_acts(c, count);
}

/* Floats that a norm keeps per token for its gradient. */
static uint64_t norm_stat_floats(const xm_config *config)
{
    return config->layer_norm ? 2 : 1;
}

static void take_block_buffers(arena_cursor *c, const xm_config *config,
                               const xm_space *s, xm_block *b)
{
    xm_dims d = xm_dims_of(config);
    uint64_t n = rank_tokens(config, s);
    uint64_t own = own_tokens(config, s);
    int train = (s->flags & XM_SPACE_TRAIN) != 0;
    *b = (xm_block){ .qk_stride = d.qkv, .act = s->act };
    if (train)
        b->mid = take_acts(c, own * d.hidden);
    b->qkv = take_acts(c, n * d.qkv);
    b->qk = b->qkv;
    if (train && config->qk_norm) {
        /* The gradient of the norm needs the norm's input. */
        b->qk_stride = d.q + d.kv;
        b->qk = take_acts(c, n * b->qk_stride);
        b->rstd_q = take_floats(c, n * config->heads);
        b->rstd_k = take_floats(c, n * config->kv_heads);
    }
    b->o = take_acts(c, n * d.q);
    if (train) {
        b->gate_up = take_acts(c, n * d.up);
        b->lse = take_floats(c, n * config->heads);
        b->stat1 = take_floats(c, own * norm_stat_floats(config));
        b->stat2 = take_floats(c, own * norm_stat_floats(config));
    }
    if (s->flags & XM_SPACE_INPUTS) {
        b->normed1 = take_acts(c, padded_tokens(config, s) * d.hidden);
        b->normed2 = take_acts(c, padded_tokens(config, s) * d.hidden);
        b->act = take_acts(c, n * d.ffn);
    }
    if (train && config->post_norms) {
        b->out1 = take_acts(c, own * d.hidden);
        b->out2 = take_acts(c, own * d.hidden);
        b->post1 = take_floats(c, own * norm_stat_floats(config));
        b->post2 = take_floats(c, own * norm_stat_floats(config));
    }
}

static void take_block_inputs(arena_cursor *c, const xm_config *config,
                              xm_space *s)
{
    void *x = NULL;
    for (uint32_t l = 0; l <= xm_config_chunk(config); l++) {
        if (l == 0 || s->flags & XM_SPACE_TRAIN)
            x = take_acts(c, own_tokens(config, s) * config->hidden);
        if (s->x)
            s->x[l] = x;
    }
}

static void take_all_blocks(arena_cursor *c, const xm_config *config,
                            xm_space *s)
{
    int apart = s->flags & XM_SPACE_TRAIN && !(s->flags & XM_SPACE_RECOMPUTE);
    xm_block block = { 0 };
    for (uint32_t l = 0; l < xm_config_chunk(config); l++) {
        if (l == 0 || apart)
            take_block_buffers(c, config, s, &block);
        if (!s->blocks)
            continue;
        s->blocks[l] = block;
        if (!block.mid)
            s->blocks[l].mid = s->x[l];
    }
}

/* Keys and values of whole rows, where ranks divide them. */
static void take_keys(arena_cursor *c, const xm_config *config, xm_space *s)
{
    uint64_t dim = 2 * xm_dims_of(config).kv;
    if (config->context_ranks < 2)
        return;
    s->kv = take_acts(c, s->tokens * dim);
    s->kv_parts =
        take_shared(c, s, config->context_ranks * rank_tokens(config, s) * dim);
    if (s->flags & XM_SPACE_TRAIN)
        s->dkv = take_floats(c, s->tokens * dim);
}

/* What a pass leaves to no other one. */
static void take_scratch(arena_cursor *c, const xm_config *config, xm_space *s)
{
    xm_dims d = xm_dims_of(config);
    uint64_t n = rank_tokens(config, s);
    s->act = take_shared(c, s, n * d.ffn);
    take_keys(c, config, s);
    if (config->slice.ranks > 1 && config->dtype == XRAY_BF16)
        s->sum = take_floats(c, padded_tokens(config, s) * d.hidden);
    if (!(s->flags & XM_SPACE_TRAIN))
        return;
    if (config->dtype == XRAY_BF16)
        s->d_up = take_floats(c, n * d.up);
    s->d_o = take_floats(c, n * d.q);
    s->dqkv = take_floats(c, n * d.qkv);
}

/* The scratch comes first; a space beside another one has that one's. */
static uint64_t lay_out_space(const xm_config *config, void *arena, xm_space *s)
{
    arena_cursor c = { .base = s->beside ? s->beside->arena : arena,
                       .size = xm_config_act_bytes(config) };
    xm_dims d = xm_dims_of(config);
    uint64_t n = rank_tokens(config, s);
    uint64_t padded = padded_tokens(config, s);
    int biased = config->o_bias || config->mlp_bias;
    int sliced = config->slice.ranks > 1;
    take_scratch(&c, config, s);
    c.base = arena;
    c.used = s->beside ? 0 : c.used;
    s->h = take_shared(&c, s, padded * d.hidden);
    take_block_inputs(&c, config, s);
    take_all_blocks(&c, config, s);
    /* Slices add biases to fp32 sums, and have a scratch for that here, in
     * which the rank's own tokens have room anyway. */
    s->hidden = sliced && biased && !(s->flags & XM_SPACE_SEQUENCE)
                    ? take_floats(&c, n * d.hidden)
                    : take_acts(&c, padded * d.hidden);
    s->items = take_shared(&c, s, n * d.hidden);
    s->logp = take_floats(&c, n);
    s->entropy = take_floats(&c, n);
    s->lse = take_floats(&c, n);
    s->value = take_floats(&c, n);
    if (s->flags & XM_SPACE_TRAIN || (sliced && biased))
        s->zeros = take_floats(&c, n);
    if (sliced) {
        s->top = take_floats(&c, n);
        s->partial = take_floats(&c, 4 * n);
    }
    if (s->flags & XM_SPACE_LOGITS)
        s->logits = take_floats(&c, n * xm_round16(config->vocab));
    if (s->flags & XM_SPACE_TRAIN) {
        s->stat =
            take_floats(&c, own_tokens(config, s) * norm_stat_floats(config));
        s->dvalue = take_floats(&c, n);
        s->dhidden = take_floats(&c, n * d.hidden);
        /* No gathered states are needed once the backward pass reaches the
         * blocks. */
        s->dx = s->items;
    }
    return c.used;
}

uint64_t xm_space_bytes(const xm_config *config, uint64_t tokens, uint64_t rows,
                        uint64_t row_tokens, uint32_t flags)
{
    xm_space s = { .tokens = tokens,
                   .rows = rows,
                   .row_tokens = row_tokens,
                   .flags = complete_flags(config, flags) };
    return lay_out_space(config, NULL, &s);
}

uint64_t xm_space_beside_bytes(const xm_config *config, uint64_t tokens,
                               uint64_t rows, uint64_t row_tokens,
                               uint32_t flags)
{
    const xm_space first = { .arena = NULL };
    xm_space s = { .tokens = tokens,
                   .rows = rows,
                   .row_tokens = row_tokens,
                   .flags = complete_flags(config, flags),
                   .beside = &first };
    return lay_out_space(config, NULL, &s);
}

static xray_status allocate_arena(const xm_decoder *decoder, xm_space *s,
                                  const char *owner, xr_err *err)
{
    const xm_config *config = &decoder->config;
    uint64_t bytes = lay_out_space(config, NULL, s);
    s->x = xr_calloc(s->layers + 1u, sizeof *s->x);
    s->blocks = xr_calloc(s->layers, sizeof *s->blocks);
    if (!s->x || !s->blocks)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", owner);
    void *arena = NULL;
    xray_status status = s->device->alloc(s->device_self, owner,
                                          XRAY_TAG_ACTIVATIONS, bytes, &arena);
    if (status != XRAY_OK)
        return xr_fail(err, status,
                       "%s: no device memory for the activations of %llu "
                       "tokens (%llu bytes)",
                       owner, (unsigned long long)s->tokens,
                       (unsigned long long)bytes);
    s->arena = arena;
    (void)lay_out_space(config, s->arena, s);
    return XRAY_OK;
}

/* Creates a space of the sizes of `like`. */
static xray_status create_space(const xm_decoder *decoder, const xm_space *like,
                                const char *owner, xr_err *err, xm_space **out)
{
    xm_space *s = xr_calloc(1, sizeof *s);
    if (!s)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", owner);
    *s = *like;
    xray_status status = allocate_arena(decoder, s, owner, err);
    if (status != XRAY_OK) {
        xm_space_destroy(s);
        return status;
    }
    *out = s;
    return XRAY_OK;
}

xray_status xm_space_create(const xm_decoder *decoder, uint64_t tokens,
                            uint64_t rows, uint64_t row_tokens, uint32_t flags,
                            const char *owner, xr_err *err, xm_space **out)
{
    if (tokens == 0 || tokens > INT32_MAX || rows == 0)
        return xr_fail(err, XRAY_E_RANGE,
                       "%s: a space needs between 1 and 2^31 - 1 tokens and "
                       "at least one row, got %llu and %llu",
                       owner, (unsigned long long)tokens,
                       (unsigned long long)rows);
    const xm_space like = { .device = decoder->device,
                            .device_self = decoder->device_self,
                            .tokens = tokens,
                            .rows = rows,
                            .row_tokens = row_tokens,
                            .flags = complete_flags(&decoder->config, flags),
                            .layers = xm_config_chunk(&decoder->config) };
    return create_space(decoder, &like, owner, err, out);
}

xray_status xm_space_create_beside(const xm_decoder *decoder,
                                   const xm_space *first, const char *owner,
                                   xr_err *err, xm_space **out)
{
    const xm_space like = { .device = first->device,
                            .device_self = first->device_self,
                            .tokens = first->tokens,
                            .rows = first->rows,
                            .row_tokens = first->row_tokens,
                            .flags = first->flags,
                            .layers = first->layers,
                            .beside = first };
    return create_space(decoder, &like, owner, err, out);
}

void xm_space_destroy(xm_space *s)
{
    if (!s)
        return;
    s->device->free(s->device_self, s->arena);
    free(s->x);
    free(s->blocks);
    free(s);
}

xray_status xm_space_evict(xm_space *s)
{
    s->live = 0;
    if (!XRAY_HAS(xray_device_ops, s->device, evict))
        return XRAY_E_UNSUPPORTED;
    xray_status status = s->device->sync(s->device_self, NULL);
    return status == XRAY_OK ? s->device->evict(s->device_self, s->arena)
                             : status;
}

xray_status xm_space_restore(xm_space *s)
{
    return s->device->restore(s->device_self, s->arena);
}

void xm_space_set_chunk(xm_space *s, uint32_t chunk)
{
    s->chunk = chunk;
}

void xm_space_forget(xm_space *s)
{
    s->live = 0;
}

const float *xm_space_input_grad(const xm_space *space)
{
    return space->input_grad;
}

void *xm_space_hidden(const xm_space *space)
{
    return space->hidden;
}

float *xm_space_hidden_grad(const xm_space *space)
{
    return space->dhidden;
}
