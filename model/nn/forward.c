/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the forward pass. Trainer and engine enqueue the same sequence of
 * operators, so their bits agree, but for what products do as they store their
 * outputs, which changes no bit: they add to the residual stream, unless a norm
 * comes between, and activate the outputs that no backward pass reads.
 */
#include "model/nn/internal.h"

static uint32_t layer_window(const xm_pass *pass)
{
    const xm_config *config = &pass->decoder->config;
    return xm_config_slides(config, pass->layer) ? config->window : 0;
}

xray_attention xm_attention_call(const xm_pass *pass, const xm_block *block)
{
    const xm_config *config = &pass->decoder->config;
    xm_dims d = xm_dims_of(config);
    return (xray_attention){ XRAY_HEADER(xray_attention),
                             .tokens = pass->tokens,
                             .row_start = pass->pack->row_start,
                             .rows = pass->pack->rows,
                             .row_bound = pass->pack->row_bound,
                             .q = block->qk,
                             .k = block->qk + d.q,
                             .v = block->qkv + d.q + d.kv,
                             .o = block->o,
                             .lse = block->lse,
                             .q_stride = block->qk_stride,
                             .k_stride = block->qk_stride,
                             .v_stride = d.qkv,
                             .o_stride = d.q,
                             .heads = config->heads,
                             .kv_heads = config->kv_heads,
                             .head_dim = config->head_dim,
                             .window = layer_window(pass),
                             .scale = (float)config->attn_scale,
                             .softcap = (float)config->attn_softcap,
                             .parent = pass->pack->parent };
}

static xray_attention_kv cached_attention_call(const xm_pass *pass,
                                               const xm_block *block)
{
    const xm_config *config = &pass->decoder->config;
    xm_dims d = xm_dims_of(config);
    return (xray_attention_kv){ XRAY_HEADER(xray_attention_kv),
                                .tokens = pass->tokens,
                                .kv = &pass->batch->kv[pass->layer],
                                .seq = pass->batch->seq,
                                .positions = pass->batch->positions,
                                .q = block->qk,
                                .k = block->qk + d.q,
                                .v = block->qkv + d.q + d.kv,
                                .o = block->o,
                                .q_stride = block->qk_stride,
                                .k_stride = block->qk_stride,
                                .v_stride = d.qkv,
                                .o_stride = d.q,
                                .position_bound = pass->batch->position_bound,
                                .heads = config->heads,
                                .window = layer_window(pass),
                                .scale = (float)config->attn_scale,
                                .softcap = (float)config->attn_softcap };
}

static void enqueue_attention(xm_pass *pass, const xm_block *block)
{
    if (pass->status != XRAY_OK)
        return;
    if (pass->pack) {
        xray_attention call = xm_attention_call(pass, block);
        xm_pass_keep_status(pass,
                            pass->device->attention(pass->self, NULL, &call),
                            "attention");
        return;
    }
    xray_attention_kv call = cached_attention_call(pass, block);
    xm_pass_keep_status(pass,
                        pass->device->attention_kv(pass->self, NULL, &call),
                        "attention over the cache");
}

/* Applies the norms of the query and key heads. */
static void norm_query_key_heads(xm_pass *pass, const xm_layer *layer,
                                 const xm_block *block)
{
    const xm_config *config = &pass->decoder->config;
    if (!config->qk_norm)
        return;
    xm_dims d = xm_dims_of(config);
    xm_rows q = { block->qkv, d.qkv, d.q };
    xm_rows q_out = { block->qk, block->qk_stride, d.q };
    xm_pass_norm(pass, layer->p[XM_Q_NORM].data, config->head_dim, q, q_out,
                 block->rstd_q);
    xm_rows k = { block->qkv + d.q, d.qkv, d.kv };
    xm_rows k_out = { block->qk + d.q, block->qk_stride, d.kv };
    xm_pass_norm(pass, layer->p[XM_K_NORM].data, config->head_dim, k, k_out,
                 block->rstd_k);
}

/* ---- residual branches -------------------------------------------------- */

xm_branch xm_attention_branch(const xm_pass *pass, const xm_block *block)
{
    return (xm_branch){ .weight = XM_O,
                        .bias = XM_O_BIAS,
                        .norm = XM_POST_NORM1,
                        .x = xm_rows_of(block->o,
                                        xm_dims_of(&pass->decoder->config).q),
                        .out = block->out1,
                        .post = block->post1 };
}

xm_branch xm_mlp_branch(const xm_pass *pass, const xm_block *block)
{
    return (xm_branch){ .weight = XM_DOWN,
                        .bias = XM_DOWN_BIAS,
                        .norm = XM_POST_NORM2,
                        .x = xm_rows_of(pass->space->act,
                                        pass->decoder->config.ffn),
                        .out = block->out2,
                        .post = block->post2 };
}

/* to = from + the branch's last product and its bias; NULL: without `from`. In
 * a slice what the ranks have is joined before the bias and `from` are added.
 */
static void multiply_branch(xm_pass *pass, const xm_branch *branch,
                            const float *from, xm_rows to)
{
    const xray_weight *weight = xm_pass_param(pass, branch->weight)->weight;
    xm_onto onto = { from, xm_pass_param(pass, branch->bias)->data };
    xm_onto none = { NULL, NULL };
    xm_rows sum = from ? xm_rows_of(pass->space->h, to.dim) : to;
    if (pass->decoder->config.slice.ranks < 2) {
        xm_pass_product_onto(pass, weight, &onto, branch->x, to);
        return;
    }
    xm_pass_product_onto(pass, weight, &none, branch->x, sum);
    xm_pass_join(pass, XM_JOIN_OUTPUTS, sum.data, sum.dim);
    xm_pass_add_bias(pass, onto.bias, sum, pass->space->hidden);
    if (!from)
        return;
    xm_pass_copy(pass, from, to.data, pass->tokens.bound * to.dim);
    xm_pass_add(pass, sum.data, to.data, pass->tokens.bound * to.dim);
}

void xm_branch_output(xm_pass *pass, const xm_branch *branch)
{
    xm_rows h = xm_rows_of(pass->space->h, pass->decoder->config.hidden);
    xm_rows out = branch->out ? xm_rows_of(branch->out, h.dim) : h;
    multiply_branch(pass, branch, NULL, out);
    if (pass->decoder->config.post_norms)
        xm_residual_norm(pass, branch->norm, out, h, branch->post);
}

/* to = from + the branch's output; `to` and `from` may be the same. */
static void add_branch_to_stream(xm_pass *pass, const xm_branch *branch,
                                 const float *from, float *to)
{
    uint64_t dim = pass->decoder->config.hidden;
    uint64_t count = pass->tokens.bound * dim;
    if (!pass->decoder->config.post_norms) {
        multiply_branch(pass, branch, from, xm_rows_of(to, dim));
        return;
    }
    xm_pass_copy(pass, from, to, count);
    xm_branch_output(pass, branch);
    xm_pass_add(pass, pass->space->h, to, count);
}

/* ---- blocks ------------------------------------------------------------- */

void xm_block_attend(xm_pass *pass, const xm_block *block, float *x)
{
    const xm_layer *layer = &pass->decoder->layers[pass->layer];
    xm_dims d = xm_dims_of(&pass->decoder->config);
    xm_rows h = xm_rows_of(pass->space->h, d.hidden);
    xm_residual_norm(pass, XM_NORM1, xm_rows_of(x, d.hidden), h, block->stat1);
    xm_pass_product(pass, layer->p[XM_Q].weight, layer->p[XM_Q_BIAS].data, h,
                    xm_rows_of(block->qkv, d.qkv));
    norm_query_key_heads(pass, layer, block);
    xm_rows qk = { block->qk, block->qk_stride, d.q + d.kv };
    xm_pass_rope(pass, qk, 0);
    enqueue_attention(pass, block);
    xm_branch branch = xm_attention_branch(pass, block);
    add_branch_to_stream(pass, &branch, x, block->mid);
}

/* The first matrix of the MLP, its bias and its input, which it computes. */
typedef struct mlp_input {
    const xray_weight *weight;
    const float *bias;
    xm_rows x;
} mlp_input;

static mlp_input norm_mlp_input(xm_pass *pass, const xm_block *block)
{
    const xm_layer *layer = &pass->decoder->layers[pass->layer];
    const xm_config *config = &pass->decoder->config;
    mlp_input in = {
        .weight = layer->p[config->gated ? XM_GATE : XM_UP].weight,
        .bias = layer->p[config->gated ? XM_GATE_BIAS : XM_UP_BIAS].data,
        .x = xm_rows_of(pass->space->h, config->hidden)
    };
    xm_residual_norm(pass, XM_NORM2, xm_rows_of(block->mid, config->hidden),
                     in.x, block->stat2);
    return in;
}

void xm_block_gate_up(xm_pass *pass, const xm_block *block)
{
    uint64_t up = xm_dims_of(&pass->decoder->config).up;
    mlp_input in = norm_mlp_input(pass, block);
    xm_pass_product(pass, in.weight, in.bias, in.x,
                    xm_rows_of(block->gate_up, up));
}

/* Computes space->act. Gates and up projections are stored only for a backward
 * pass that does not compute them again. */
static void activate_mlp(xm_pass *pass, const xm_block *block)
{
    uint32_t flags = pass->space->flags;
    if (flags & XM_SPACE_TRAIN && !(flags & XM_SPACE_RECOMPUTE)) {
        xm_block_gate_up(pass, block);
        xm_pass_glu(pass, block);
        return;
    }
    mlp_input in = norm_mlp_input(pass, block);
    xm_pass_product_act(
        pass, in.weight, in.bias, in.x,
        xm_rows_of(pass->space->act, pass->decoder->config.ffn));
}

void xm_pass_glu(xm_pass *pass, const xm_block *block)
{
    if (pass->status != XRAY_OK)
        return;
    const xm_config *config = &pass->decoder->config;
    xray_glu call = { XRAY_HEADER(xray_glu),  .tokens = pass->tokens,
                      .x = block->gate_up,    .y = pass->space->act,
                      .dim = config->ffn,     .act = xm_act_of(config),
                      .plain = !config->gated };
    xm_pass_keep_status(pass, pass->device->glu(pass->self, NULL, &call),
                        "an activation");
}

static void add_mlp_to_stream(xm_pass *pass, const xm_block *block, float *out)
{
    xm_branch branch = xm_mlp_branch(pass, block);
    activate_mlp(pass, block);
    add_branch_to_stream(pass, &branch, block->mid, out);
}

static void look_up_embedding(xm_pass *pass, xray_embedding *call,
                              const char *what)
{
    if (pass->status != XRAY_OK)
        return;
    call->tokens = pass->tokens;
    call->dim = pass->decoder->config.hidden;
    xm_pass_keep_status(pass, pass->device->embedding(pass->self, NULL, call),
                        what);
}

static void embed_tokens(xm_pass *pass, const int32_t *ids)
{
    const xm_config *config = &pass->decoder->config;
    xm_space *s = pass->space;
    xray_embedding tokens = { XRAY_HEADER(xray_embedding),
                              .ids = ids,
                              .table = xm_outer(pass->decoder, XM_EMBED)->data,
                              .table_dtype =
                                  xm_outer(pass->decoder, XM_EMBED)->dtype,
                              .y = s->x[0],
                              .vocab = config->vocab,
                              .scale = (float)config->embed_scale,
                              .vocab_first = config->slice.vocab_first,
                              .slice = config->slice.ranks > 1 };
    look_up_embedding(pass, &tokens, "the embedding");
    xm_pass_join(pass, XM_JOIN_OUTPUTS, s->x[0], config->hidden);
    if (!config->learned_positions)
        return;
    xray_embedding positions = {
        XRAY_HEADER(xray_embedding),
        .ids = xm_pass_positions(pass),
        .table = xm_outer(pass->decoder, XM_POSITIONS)->data,
        .table_dtype = xm_outer(pass->decoder, XM_POSITIONS)->dtype,
        .y = s->h,
        .vocab = config->max_positions,
        .scale = 1.0f
    };
    look_up_embedding(pass, &positions, "the embedding of positions");
    xm_pass_add(pass, s->h, s->x[0], pass->tokens.bound * config->hidden);
}

void xm_pass_blocks(xm_pass *pass, const int32_t *ids, const float *in)
{
    xm_space *s = pass->space;
    const xm_config *config = &pass->decoder->config;
    pass->layer = XM_NO_LAYER;
    xm_pass_need_bucket(pass, 0, 0);
    if (xm_config_is_first(config))
        embed_tokens(pass, ids);
    else
        xm_pass_copy(pass, in, s->x[0], pass->tokens.bound * config->hidden);
    for (uint32_t l = 0; l < s->layers; l++) {
        pass->layer = l;
        xm_pass_need_bucket(pass, l + 1, 0);
        xm_block_attend(pass, &s->blocks[l], s->x[l]);
        add_mlp_to_stream(pass, &s->blocks[l], s->x[l + 1]);
    }
    pass->layer = XM_NO_LAYER;
}

void xm_pass_final_norm(xm_pass *pass, float *x, float *stat)
{
    uint64_t dim = pass->decoder->config.hidden;
    float *out = pass->space->hidden;
    if (xm_config_is_last(&pass->decoder->config))
        xm_residual_norm(pass, XM_NORM, xm_rows_of(x, dim),
                         xm_rows_of(out, dim), stat);
    else
        xm_pass_copy(pass, x, out, pass->tokens.bound * dim);
}

xm_pass xm_pass_start(const xm_decoder *decoder, xm_space *space,
                      uint64_t tokens, xr_err *err)
{
    return (xm_pass){ .decoder = decoder,
                      .device = decoder->device,
                      .self = decoder->device_self,
                      .space = space,
                      .err = err,
                      .tokens = { .bound = tokens },
                      .layer = XM_NO_LAYER };
}

static xray_status check_pack(const xm_decoder *decoder, const xm_space *space,
                              const xm_pack *pack, xr_err *err)
{
    if (pack->tokens > space->tokens || pack->rows > space->rows)
        return xr_fail(err, XRAY_E_RANGE,
                       "%u tokens in %u rows do not fit a space of %llu tokens "
                       "in %llu rows",
                       pack->tokens, pack->rows,
                       (unsigned long long)space->tokens,
                       (unsigned long long)space->rows);
    if (pack->row_bound > decoder->positions)
        return xr_fail(err, XRAY_E_RANGE,
                       "a row of %llu tokens is longer than the %llu positions "
                       "of the model",
                       (unsigned long long)pack->row_bound,
                       (unsigned long long)decoder->positions);
    return XRAY_OK;
}

xray_status xm_forward(xm_decoder *decoder, xm_space *space,
                       const xm_pack *pack, xr_err *err)
{
    space->live = 0;
    space->kept = 0;
    xray_status status = check_pack(decoder, space, pack, err);
    if (status != XRAY_OK)
        return status;
    xm_pass pass = xm_pass_start(decoder, space, pack->tokens, err);
    if (pack->tokens == 0) {
        for (uint32_t b = 0; b < space->layers + 2; b++)
            xm_pass_need_bucket(&pass, b, 0);
        return pass.status;
    }
    pass.pack = pack;
    xm_pass_blocks(&pass, pack->ids, pack->in);
    xm_pass_need_bucket(&pass, space->layers + 1, 0);
    xm_pass_final_norm(&pass, space->x[space->layers], space->stat);
    if (pass.status == XRAY_OK)
        space->live = pack->tokens;
    return pass.status;
}
