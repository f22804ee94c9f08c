/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the forward pass. Trainer and engine enqueue the same sequence of
 * operators, so their bits agree, but for what products do as they store their
 * outputs, which changes no bit: they add to the residual stream, unless a norm
 * comes between, and activate the outputs that no backward pass reads.
 */
#include "model/nn/internal.h"

static xray_attention_kv cached_attention_call(const xm_pass *pass,
                                               const xm_block *block)
{
    const xm_config *config = &pass->decoder->config;
    xm_dims d = xm_dims_of(config);
    xm_rows qkv = xm_qkv_of(pass, block);
    xm_rows qk = xm_qk_of(pass, block);
    return (xray_attention_kv){ XRAY_HEADER(xray_attention_kv),
                                .tokens = pass->tokens,
                                .kv = &pass->batch->kv[pass->layer],
                                .seq = pass->batch->seq,
                                .positions = pass->batch->positions,
                                .q = qk.data,
                                .k = xm_rows_part(qk, d.q, d.kv).data,
                                .v = xm_rows_part(qkv, d.q + d.kv, d.kv).data,
                                .o = block->o,
                                .q_stride = qk.stride,
                                .k_stride = qk.stride,
                                .v_stride = qkv.stride,
                                .o_stride = d.q,
                                .position_bound = pass->batch->position_bound,
                                .heads = config->heads,
                                .window = xm_pass_window(pass),
                                .scale = (float)config->attn_scale,
                                .softcap = (float)config->attn_softcap,
                                .dtype = config->dtype };
}

static void enqueue_attention(xm_pass *pass, const xm_block *block)
{
    if (pass->status != XRAY_OK)
        return;
    if (pass->pack) {
        xm_pass_gather_keys(pass, block);
        xm_pass_attend_rows(pass, block);
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
    xm_rows qkv = xm_qkv_of(pass, block);
    xm_rows qk = xm_qk_of(pass, block);
    xm_pass_norm(pass, layer->p[XM_Q_NORM].data, config->head_dim,
                 xm_rows_part(qkv, 0, d.q), xm_rows_part(qk, 0, d.q),
                 block->rstd_q);
    xm_pass_norm(pass, layer->p[XM_K_NORM].data, config->head_dim,
                 xm_rows_part(qkv, d.q, d.kv), xm_rows_part(qk, d.q, d.kv),
                 block->rstd_k);
}

/* ---- residual branches -------------------------------------------------- */

xm_branch xm_attention_branch(const xm_pass *pass, const xm_block *block)
{
    return (xm_branch){ .weight = XM_O,
                        .bias = XM_O_BIAS,
                        .norm = XM_POST_NORM1,
                        .x = xm_acts_of(pass, block->o,
                                        xm_dims_of(&pass->decoder->config).q),
                        .out = block->out1,
                        .post = block->post1 };
}

xm_branch xm_mlp_branch(const xm_pass *pass, const xm_block *block)
{
    return (xm_branch){ .weight = XM_DOWN,
                        .bias = XM_DOWN_BIAS,
                        .norm = XM_POST_NORM2,
                        .x = xm_acts_of(pass, block->act,
                                        pass->decoder->config.ffn),
                        .out = block->out2,
                        .post = block->post2 };
}

/* Fp32 rows of all tokens in which a slice's outputs are joined: `rows`, unless
 * they are bf16. */
static xm_rows joined_rows(const xm_pass *pass, xm_rows rows)
{
    return rows.dtype ? xm_rows_of(pass->space->sum, rows.dim) : rows;
}

/* to = from + the branch's last product and its bias; NULL: without `from`. In
 * a slice what the ranks have is joined before the bias and `from` are added.
 * All of these are the rank's own rows, but for what is joined. */
static void multiply_branch(xm_pass *pass, const xm_branch *branch,
                            const void *from, xm_rows to)
{
    const xray_weight *weight = xm_pass_param(pass, branch->weight)->weight;
    xm_onto onto = { from, xm_pass_param(pass, branch->bias)->data };
    xm_onto none = { NULL, NULL };
    xm_rows sum = joined_rows(
        pass,
        from || pass->each ? xm_acts_of(pass, pass->space->h, to.dim) : to);
    if (pass->decoder->config.slice.ranks < 2) {
        xm_pass_product_onto(pass, weight, &onto, branch->x, to);
        return;
    }
    xm_pass_product_onto(pass, weight, &none, branch->x, sum);
    sum = xm_pass_join_sums(pass, XM_JOIN_OUTPUTS, sum);
    xm_pass_compute_own(pass);
    xm_pass_add_bias(pass, onto.bias, sum, pass->space->hidden);
    if (from) {
        xm_pass_copy(pass, from, to);
        xm_pass_add(pass, sum, to);
    } else if (sum.data != to.data) {
        xm_pass_cast(pass, sum, to);
    }
    xm_pass_compute_all(pass);
}

xm_rows xm_branch_output(xm_pass *pass, const xm_branch *branch)
{
    xm_rows h = xm_pass_own_rows(
        pass, xm_acts_of(pass, pass->space->h, pass->decoder->config.hidden));
    xm_rows out = branch->out ? xm_acts_of(pass, branch->out, h.dim) : h;
    multiply_branch(pass, branch, NULL, out);
    if (pass->decoder->config.post_norms)
        xm_residual_norm(pass, branch->norm, out, h, branch->post);
    return h;
}

/* to = from + the branch's output; `to` and `from` may be the same. */
static void add_branch_to_stream(xm_pass *pass, const xm_branch *branch,
                                 const void *from, void *to)
{
    uint64_t dim = pass->decoder->config.hidden;
    xm_rows stream = xm_acts_of(pass, to, dim);
    if (!pass->decoder->config.post_norms) {
        multiply_branch(pass, branch, from, stream);
        return;
    }
    xm_rows out = xm_branch_output(pass, branch);
    xm_pass_compute_own(pass);
    xm_pass_copy(pass, from, stream);
    xm_pass_add(pass, out, stream);
    xm_pass_compute_all(pass);
}

/* ---- blocks ------------------------------------------------------------- */

/* Norms the rank's own rows of x and gathers those of the others, in `kept` or
 * in space->h. */
static xm_rows norm_input(xm_pass *pass, uint32_t slot, void *x, void *kept,
                          float *stat)
{
    uint64_t dim = pass->decoder->config.hidden;
    xm_rows all = xm_acts_of(pass, kept ? kept : pass->space->h, dim);
    xm_rows own = xm_pass_own_rows(pass, all);
    xm_residual_norm(pass, slot, xm_acts_of(pass, x, dim), own, stat);
    return xm_pass_gather_rows(pass, own, all);
}

xm_rows xm_block_norm1(xm_pass *pass, const xm_block *block, void *x)
{
    return norm_input(pass, XM_NORM1, x, block->normed1, block->stat1);
}

xm_rows xm_block_norm2(xm_pass *pass, const xm_block *block)
{
    return norm_input(pass, XM_NORM2, block->mid, block->normed2, block->stat2);
}

void xm_block_attend(xm_pass *pass, const xm_block *block, void *x)
{
    const xm_layer *layer = &pass->decoder->layers[pass->layer];
    xm_pass_product(pass, layer->p[XM_Q].weight, layer->p[XM_Q_BIAS].data,
                    xm_block_norm1(pass, block, x), xm_qkv_of(pass, block));
    norm_query_key_heads(pass, layer, block);
    xm_pass_rope(pass, xm_qk_of(pass, block), 0);
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
    return (mlp_input){
        .weight = layer->p[config->gated ? XM_GATE : XM_UP].weight,
        .bias = layer->p[config->gated ? XM_GATE_BIAS : XM_UP_BIAS].data,
        .x = xm_block_norm2(pass, block)
    };
}

void xm_block_gate_up(xm_pass *pass, const xm_block *block)
{
    uint64_t up = xm_dims_of(&pass->decoder->config).up;
    mlp_input in = norm_mlp_input(pass, block);
    xm_pass_product(pass, in.weight, in.bias, in.x,
                    xm_acts_of(pass, block->gate_up, up));
}

/* Computes block->act. Gates and up projections are stored only for a backward
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
        xm_acts_of(pass, block->act, pass->decoder->config.ffn));
}

void xm_pass_glu(xm_pass *pass, const xm_block *block)
{
    if (xm_pass_idles(pass))
        return;
    const xm_config *config = &pass->decoder->config;
    xray_glu call = { XRAY_HEADER(xray_glu),   .tokens = pass->tokens,
                      .x = block->gate_up,     .y = block->act,
                      .dim = config->ffn,      .act = xm_act_of(config),
                      .plain = !config->gated, .x_dtype = config->dtype,
                      .y_dtype = config->dtype };
    xm_pass_keep_status(pass, pass->device->glu(pass->self, NULL, &call),
                        "an activation");
}

static void add_mlp_to_stream(xm_pass *pass, const xm_block *block, void *out)
{
    xm_branch branch = xm_mlp_branch(pass, block);
    activate_mlp(pass, block);
    add_branch_to_stream(pass, &branch, block->mid, out);
}

static void look_up_embedding(xm_pass *pass, xray_embedding *call,
                              const char *what)
{
    if (xm_pass_idles(pass))
        return;
    call->tokens = pass->tokens;
    call->dim = pass->decoder->config.hidden;
    call->y_dtype = pass->decoder->config.dtype;
    xm_pass_keep_status(pass, pass->device->embedding(pass->self, NULL, call),
                        what);
}

/* Each id is in one slice, so the sum of bf16 rows is one of them. */
static void join_embedding(xm_pass *pass, xm_rows rows, xm_rows stream)
{
    xm_rows sum = joined_rows(pass, rows);
    if (pass->decoder->config.slice.ranks < 2)
        return;
    if (sum.data != rows.data)
        xm_pass_cast(pass, rows, sum);
    sum = xm_pass_join_sums(pass, XM_JOIN_OUTPUTS, sum);
    xm_pass_compute_own(pass);
    if (sum.data != stream.data)
        xm_pass_cast(pass, sum, stream);
    xm_pass_compute_all(pass);
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
                              .y = pass->each ? s->h : s->x[0],
                              .vocab = config->vocab,
                              .scale = (float)config->embed_scale,
                              .vocab_first = config->slice.vocab_first,
                              .slice = config->slice.ranks > 1 };
    xm_rows stream = xm_acts_of(pass, s->x[0], config->hidden);
    look_up_embedding(pass, &tokens, "the embedding");
    join_embedding(pass, xm_acts_of(pass, tokens.y, config->hidden), stream);
    if (!config->learned_positions)
        return;
    xray_embedding positions = {
        XRAY_HEADER(xray_embedding),
        .ids = xm_pass_positions(pass) + xm_pass_first(pass),
        .table = xm_outer(pass->decoder, XM_POSITIONS)->data,
        .table_dtype = xm_outer(pass->decoder, XM_POSITIONS)->dtype,
        .y = s->h,
        .vocab = config->max_positions,
        .scale = 1.0f
    };
    xm_pass_compute_own(pass);
    look_up_embedding(pass, &positions, "the embedding of positions");
    xm_pass_add(pass, xm_acts_of(pass, s->h, config->hidden), stream);
    xm_pass_compute_all(pass);
}

/* Begins the stream with what the stage before gave, of all tokens. */
static void take_stream(xm_pass *pass, const void *in)
{
    uint64_t dim = pass->decoder->config.hidden;
    uint64_t size = xm_config_act_bytes(&pass->decoder->config);
    xm_pass_compute_own(pass);
    xm_pass_copy(pass, (const char *)in + xm_pass_first(pass) * dim * size,
                 xm_acts_of(pass, pass->space->x[0], dim));
    xm_pass_compute_all(pass);
}

void xm_pass_blocks(xm_pass *pass, const int32_t *ids, const void *in)
{
    xm_space *s = pass->space;
    uint32_t first = xm_space_first_layer(s);
    pass->layer = XM_NO_LAYER;
    if (xm_pass_is_first(pass))
        xm_pass_need_bucket(pass, 0, 0);
    if (xm_pass_is_first(pass) && xm_config_is_first(&pass->decoder->config))
        embed_tokens(pass, ids);
    else
        take_stream(pass, in);
    for (uint32_t l = 0; l < s->layers; l++) {
        pass->layer = first + l;
        xm_pass_need_bucket(pass, first + l + 1, 0);
        xm_block_attend(pass, &s->blocks[l], s->x[l]);
        add_mlp_to_stream(pass, &s->blocks[l], s->x[l + 1]);
    }
    pass->layer = XM_NO_LAYER;
}

void xm_pass_final_norm(xm_pass *pass, void *x, float *stat)
{
    uint64_t dim = pass->decoder->config.hidden;
    xm_rows all = xm_acts_of(pass, pass->space->hidden, dim);
    xm_rows own = xm_pass_own_rows(pass, all);
    xm_pass_compute_own(pass);
    if (xm_pass_is_last(pass) && xm_config_is_last(&pass->decoder->config))
        xm_residual_norm(pass, XM_NORM, xm_acts_of(pass, x, dim), own, stat);
    else
        xm_pass_copy(pass, x, own);
    xm_pass_compute_all(pass);
    (void)xm_pass_gather_rows(pass, own, all);
}

xm_pass xm_pass_start(const xm_decoder *decoder, xm_space *space,
                      uint64_t tokens, xr_err *err)
{
    uint64_t ranks = decoder->config.slice.ranks;
    int divided = (space->flags & XM_SPACE_SEQUENCE) != 0;
    return (xm_pass){ .decoder = decoder,
                      .device = decoder->device,
                      .self = decoder->device_self,
                      .space = space,
                      .err = err,
                      .tokens = { .bound = tokens },
                      .all = divided ? tokens : 0,
                      .each = divided ? (tokens + ranks - 1) / ranks : 0,
                      .layer = XM_NO_LAYER };
}

static xray_status check_pack(const xm_decoder *decoder, const xm_space *space,
                              const xm_pack *pack, xr_err *err)
{
    uint64_t tokens = xm_pack_tokens(pack);
    if (tokens > space->tokens || pack->rows > space->rows)
        return xr_fail(err, XRAY_E_RANGE,
                       "%llu tokens in %u rows do not fit a space of %llu "
                       "tokens in %llu rows",
                       (unsigned long long)tokens, pack->rows,
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

/* Needs what a pass over the space's chunk does. */
static void need_buckets(xm_pass *pass)
{
    uint32_t first = xm_space_first_layer(pass->space);
    uint32_t begin = xm_pass_is_first(pass) ? 0 : first + 1;
    uint32_t end =
        first + pass->space->layers + (xm_pass_is_last(pass) ? 2 : 1);
    for (uint32_t b = begin; b < end; b++)
        xm_pass_need_bucket(pass, b, 0);
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
    if (xm_pack_tokens(pack) == 0) {
        need_buckets(&pass);
        return pass.status;
    }
    pass.pack = pack;
    xm_pass_blocks(&pass, pack->ids, pack->in);
    if (xm_pass_is_last(&pass))
        xm_pass_need_bucket(&pass, decoder->config.layers + 1, 0);
    xm_pass_final_norm(&pass, space->x[space->layers], space->stat);
    if (pass.status == XRAY_OK)
        space->live = pack->tokens;
    return pass.status;
}
