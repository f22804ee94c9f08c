/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the backward pass, block by block from the last. The gradient of each
 * parameter is one chain of additions over tokens that starts from the bucket's
 * contents, so cutting a batch elsewhere changes no bit. Normed inputs and
 * activations are cheap, so they are recomputed unless they are to be kept.
 */
#include "model/nn/internal.h"

/* dx += gradient through the norm before a branch. */
static void backprop_pre_norm(xm_pass *pass, uint32_t slot, const float *stat,
                              void *x, xm_rows dy)
{
    xm_residual_norm_grad_call call = {
        .stat = stat, .dy = dy.data, .slot = slot, .accumulate = 1
    };
    xm_residual_norm_grad(pass, &call, xm_acts_of(pass, x, dy.dim),
                          xm_rows_of(pass->space->dx, dy.dim));
}

/* Propagates the stream's gradient through a branch's output to the input of
 * the branch's last product. */
static void backprop_branch(xm_pass *pass, const xm_branch *branch, float *d_in)
{
    xm_space *s = pass->space;
    xm_rows dy = xm_rows_of(s->dx, pass->decoder->config.hidden);
    xm_rows all = xm_rows_of(s->h, dy.dim);
    if (pass->decoder->config.post_norms) {
        xm_residual_norm_grad_call call = { .stat = branch->post,
                                            .dy = s->dx,
                                            .slot = branch->norm };
        dy = xm_pass_own_rows(pass, all);
        xm_residual_norm_grad(pass, &call,
                              xm_acts_of(pass, branch->out, dy.dim), dy);
    }
    dy = xm_pass_gather_rows(pass, dy, all);
    xm_pass_weight_grad(pass, dy, branch->x, xm_pass_grad(pass, branch->weight),
                        xm_pass_grad_or_null(pass, branch->bias));
    xm_pass_input_grad(pass, xm_pass_param(pass, branch->weight)->weight, dy,
                       xm_rows_of(d_in, branch->x.dim), 0);
}

/* The gradients of gate and up, which overwrite them if they are fp32. */
static float *gate_up_grads(const xm_pass *pass, const xm_block *block)
{
    return pass->space->d_up ? pass->space->d_up : block->gate_up;
}

static void backprop_activation(xm_pass *pass, const xm_block *block)
{
    if (xm_pass_idles(pass))
        return;
    const xm_config *config = &pass->decoder->config;
    xray_glu_grad call = { XRAY_HEADER(xray_glu_grad),
                           .tokens = pass->tokens,
                           .x = block->gate_up,
                           .dy = pass->space->act,
                           .dx = gate_up_grads(pass, block),
                           .dim = config->ffn,
                           .act = xm_act_of(config),
                           .plain = !config->gated,
                           .x_dtype = config->dtype };
    xm_pass_keep_status(pass, pass->device->glu_grad(pass->self, NULL, &call),
                        "the gradient of an activation");
}

static void backprop_mlp(xm_pass *pass, const xm_block *block)
{
    xm_space *s = pass->space;
    const xm_layer *layer = &pass->decoder->layers[pass->layer];
    const xm_config *config = &pass->decoder->config;
    xm_dims d = xm_dims_of(config);
    xm_rows d_up = xm_rows_of(gate_up_grads(pass, block), d.up);
    xm_branch branch = xm_mlp_branch(pass, block);
    uint32_t weight = config->gated ? XM_GATE : XM_UP;
    uint32_t bias = config->gated ? XM_GATE_BIAS : XM_UP_BIAS;
    const uint64_t parts[3] = { d.ffn, d.up - d.ffn };

    if (!(s->flags & XM_SPACE_INPUTS))
        xm_pass_glu(pass, block);
    /* Recomputation stopped before the branch's output, whose norm needs it. */
    if (config->post_norms && s->flags & XM_SPACE_RECOMPUTE)
        (void)xm_branch_output(pass, &branch);
    backprop_branch(pass, &branch, s->act);
    backprop_activation(pass, block);
    xm_pass_weight_grad(
        pass, d_up,
        block->normed2 ? xm_acts_of(pass, block->normed2, d.hidden)
                       : xm_block_norm2(pass, block),
        xm_pass_grad(pass, weight), xm_pass_grad_or_null(pass, bias));
    backprop_pre_norm(pass, XM_NORM2, block->stat2, block->mid,
                      xm_pass_joint_input_grad(pass, layer->p[weight].weight,
                                               parts, d_up,
                                               xm_rows_of(s->h, d.hidden)));
}

/* Propagates the gradient through the norm of the q heads or k heads, in place.
 */
static void backprop_head_norm(xm_pass *pass, uint32_t slot, const float *rstd,
                               xm_rows x, xm_rows dx)
{
    uint32_t segments = 1;
    xm_norm_grad_call call = { .weight = xm_pass_param(pass, slot)->data,
                               .stat = rstd,
                               .dy = dx.data,
                               .dweight = xm_pass_head_norm_grad(pass, slot,
                                                                 &segments),
                               .dim = pass->decoder->config.head_dim };
    call.segments = segments;
    xm_pass_norm_grad(pass, &call, x, dx);
}

static void backprop_query_key_norms(xm_pass *pass, const xm_block *block)
{
    if (!pass->decoder->config.qk_norm)
        return;
    xm_dims d = xm_dims_of(&pass->decoder->config);
    xm_rows qkv = xm_qkv_of(pass, block);
    xm_rows dqkv = xm_rows_of(pass->space->dqkv, d.qkv);
    backprop_head_norm(pass, XM_Q_NORM, block->rstd_q,
                       xm_rows_part(qkv, 0, d.q), xm_rows_part(dqkv, 0, d.q));
    backprop_head_norm(pass, XM_K_NORM, block->rstd_k,
                       xm_rows_part(qkv, d.q, d.kv),
                       xm_rows_part(dqkv, d.q, d.kv));
}

static void backprop_attention_branch(xm_pass *pass, const xm_block *block,
                                      void *x)
{
    xm_space *s = pass->space;
    const xm_layer *layer = &pass->decoder->layers[pass->layer];
    xm_dims d = xm_dims_of(&pass->decoder->config);
    xm_rows dqkv = xm_rows_of(s->dqkv, d.qkv);
    const uint64_t parts[3] = { d.q, d.kv, d.kv };
    xm_branch branch = xm_attention_branch(pass, block);

    backprop_branch(pass, &branch, s->d_o);
    /* Recomputation has gathered the keys again. */
    if (!(s->flags & XM_SPACE_RECOMPUTE))
        xm_pass_gather_keys(pass, block);
    xm_pass_backprop_rows(pass, block);
    xm_pass_rope(pass, xm_rows_part(dqkv, 0, d.q + d.kv), 1);
    backprop_query_key_norms(pass, block);
    xm_pass_weight_grad(
        pass, dqkv,
        block->normed1 ? xm_acts_of(pass, block->normed1, d.hidden)
                       : xm_block_norm1(pass, block, x),
        xm_pass_grad(pass, XM_Q), xm_pass_grad_or_null(pass, XM_Q_BIAS));
    backprop_pre_norm(pass, XM_NORM1, block->stat1, x,
                      xm_pass_joint_input_grad(pass, layer->p[XM_Q].weight,
                                               parts, dqkv,
                                               xm_rows_of(s->h, d.hidden)));
}

/* Layer number `layer` of the pass's chunk. */
static void backprop_block(xm_pass *pass, uint32_t layer)
{
    xm_space *s = pass->space;
    const xm_block *block = &s->blocks[layer];
    pass->layer = xm_space_first_layer(s) + layer;
    if (s->flags & XM_SPACE_RECOMPUTE) {
        xm_block_attend(pass, block, s->x[layer]);
        xm_block_gate_up(pass, block);
    }
    backprop_mlp(pass, block);
    backprop_attention_branch(pass, block, s->x[layer]);
}

static void backprop_final_norm(xm_pass *pass, const float *dhidden)
{
    xm_space *s = pass->space;
    uint64_t dim = pass->decoder->config.hidden;
    const float *own = dhidden + xm_pass_first(pass) * dim;
    xm_residual_norm_grad_call call = { .stat = s->stat,
                                        .dy = own,
                                        .slot = XM_NORM };
    if (!xm_pass_is_last(pass) || !xm_config_is_last(&pass->decoder->config)) {
        xm_pass_compute_own(pass);
        xm_pass_copy(pass, own, xm_rows_of(s->dx, dim));
        xm_pass_compute_all(pass);
        return;
    }
    xm_residual_norm_grad(pass, &call, xm_acts_of(pass, s->x[s->layers], dim),
                          xm_rows_of(s->dx, dim));
}

/* Gives the ranks the gradients of all tokens at the start of the stream. */
static void gather_input_grad(xm_pass *pass)
{
    xm_space *s = pass->space;
    uint64_t dim = pass->decoder->config.hidden;
    s->input_grad =
        xm_pass_gather_rows(pass, xm_rows_of(s->dx, dim), xm_rows_of(s->h, dim))
            .data;
}

static void add_embedding_gradient(xm_pass *pass, xray_embedding_grad *call,
                                   const char *what)
{
    if (xm_pass_idles(pass))
        return;
    call->tokens = pass->tokens;
    call->dy = pass->space->input_grad;
    call->dim = pass->decoder->config.hidden;
    xm_pass_keep_status(
        pass, pass->device->embedding_grad(pass->self, NULL, call), what);
}

static void backprop_embedding(xm_pass *pass)
{
    const xm_config *config = &pass->decoder->config;
    xray_embedding_grad tokens = { XRAY_HEADER(xray_embedding_grad),
                                   .ids = pass->pack->ids,
                                   .dtable = xm_pass_grad(pass, XM_EMBED),
                                   .vocab = config->vocab,
                                   .scale = (float)config->embed_scale,
                                   .slice = config->slice.ranks > 1,
                                   .vocab_first = config->slice.vocab_first };
    if (config->tied)
        tokens.dtable = pass->grads->aside.data +
                        xm_layout_at(pass->grads->layout, 0, XM_EMBED)->offset;
    add_embedding_gradient(pass, &tokens, "the gradient of the embedding");
    if (!config->learned_positions)
        return;
    xray_embedding_grad positions = {
        XRAY_HEADER(xray_embedding_grad), .ids = xm_pass_positions(pass),
        .dtable = xm_pass_grad(pass, XM_POSITIONS),
        .vocab = config->max_positions, .scale = 1.0f
    };
    add_embedding_gradient(pass, &positions, "the gradient of positions");
}

static xray_status check_backward_inputs(const xm_decoder *decoder,
                                         const xm_space *space,
                                         const xm_pack *pack,
                                         const xm_grads *grads, xr_err *err)
{
    if (!(space->flags & XM_SPACE_TRAIN))
        return xr_fail(
            err, XRAY_E_STATE,
            "the space of this forward pass keeps nothing for a backward pass");
    if (space->live != pack->tokens)
        return xr_fail(
            err, XRAY_E_STATE,
            "a backward pass of %u tokens was asked for, but the last forward "
            "pass kept %llu (each backward pass uses them up)",
            pack->tokens, (unsigned long long)space->live);
    return xm_grads_check(grads, decoder, err);
}

xray_status xm_backward(xm_decoder *decoder, xm_space *space,
                        const xm_pack *pack, const float *dhidden,
                        xm_grads *grads, xr_err *err)
{
    xray_status status =
        check_backward_inputs(decoder, space, pack, grads, err);
    if (status != XRAY_OK)
        return status;
    space->live = 0;
    xm_pass pass = xm_pass_start(decoder, space, pack->tokens, err);
    pass.pack = pack;
    pass.grads = grads;
    uint64_t tokens = xm_pack_tokens(pack);
    uint32_t last = decoder->config.layers + 1;
    uint32_t first = xm_space_first_layer(space);
    uint32_t frozen = grads->layout->frozen;
    if (xm_pass_is_last(&pass))
        xm_pass_need_bucket(&pass, last, 1);
    if (tokens)
        backprop_final_norm(&pass, dhidden);
    if (xm_pass_is_last(&pass))
        xm_pass_done_bucket(&pass, last);
    for (uint32_t b = first + space->layers + 1; --b > first && b >= frozen;) {
        xm_pass_need_bucket(&pass, b, 1);
        xm_pass_begin_bucket(&pass, b);
        if (tokens)
            backprop_block(&pass, b - 1 - first);
        xm_pass_done_bucket(&pass, b);
    }
    pass.layer = XM_NO_LAYER;
    if (frozen > first + 1)
        return pass.status;
    if (first) {
        if (tokens)
            gather_input_grad(&pass);
        return pass.status;
    }
    /* Where the gradients of a tied lm_head are, the bucket has begun. */
    if (!frozen &&
        (!decoder->config.tied || !xm_config_is_last(&decoder->config)))
        xm_pass_begin_bucket(&pass, 0);
    if (tokens)
        gather_input_grad(&pass);
    if (frozen)
        return pass.status;
    if (tokens && xm_config_is_first(&decoder->config))
        backprop_embedding(&pass);
    xm_pass_done_bucket(&pass, 0);
    return pass.status;
}
