/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists the parameters of a decoder under their Hugging Face names, with their
 * shapes.
 */
#include "model/hf/param_slots.h"

#include <stdio.h>

#include "model/hf/config.h"

#define NAME_CAP 96

/* The names of an architecture's parameters; NULL: it has none at that slot.
 * Names in a block are preceded by "<prefix><layer>.". */
typedef struct naming {
    const char *prefix;
    const char *slots[XM_SLOTS];
} naming;

/* The names that Llama and Gemma 2 and 3 share. Gemma gives the name of Llama's
 * norm before the MLP to a post-norm, so the norms are not among them. */
#define COMMON                                                                 \
    [XM_NORM1] = "input_layernorm.weight", [XM_Q] = "self_attn.q_proj.weight", \
    [XM_K] = "self_attn.k_proj.weight", [XM_V] = "self_attn.v_proj.weight",    \
    [XM_Q_BIAS] = "self_attn.q_proj.bias",                                     \
    [XM_K_BIAS] = "self_attn.k_proj.bias",                                     \
    [XM_V_BIAS] = "self_attn.v_proj.bias",                                     \
    [XM_Q_NORM] = "self_attn.q_norm.weight",                                   \
    [XM_K_NORM] = "self_attn.k_norm.weight",                                   \
    [XM_O] = "self_attn.o_proj.weight", [XM_O_BIAS] = "self_attn.o_proj.bias", \
    [XM_GATE] = "mlp.gate_proj.weight", [XM_UP] = "mlp.up_proj.weight",        \
    [XM_GATE_BIAS] = "mlp.gate_proj.bias", [XM_UP_BIAS] = "mlp.up_proj.bias",  \
    [XM_DOWN] = "mlp.down_proj.weight", [XM_DOWN_BIAS] = "mlp.down_proj.bias", \
    [XM_EMBED] = "model.embed_tokens.weight", [XM_NORM] = "model.norm.weight", \
    [XM_LM_HEAD] = "lm_head.weight"

static const naming llama = {
    "model.layers.", { COMMON, [XM_NORM2] = "post_attention_layernorm.weight" }
};
static const naming gemma2 = {
    "model.layers.",
    { COMMON, [XM_POST_NORM1] = "post_attention_layernorm.weight",
      [XM_NORM2] = "pre_feedforward_layernorm.weight",
      [XM_POST_NORM2] = "post_feedforward_layernorm.weight" }
};
static const naming phi3 = { "model.layers.",
                             { [XM_NORM1] = "input_layernorm.weight",
                               [XM_Q] = "self_attn.qkv_proj.weight",
                               [XM_O] = "self_attn.o_proj.weight",
                               [XM_NORM2] = "post_attention_layernorm.weight",
                               [XM_GATE] = "mlp.gate_up_proj.weight",
                               [XM_DOWN] = "mlp.down_proj.weight",
                               [XM_EMBED] = "model.embed_tokens.weight",
                               [XM_NORM] = "model.norm.weight",
                               [XM_LM_HEAD] = "lm_head.weight" } };
static const naming gpt2 = { "transformer.h.",
                             { [XM_NORM1] = "ln_1.weight",
                               [XM_NORM1_BIAS] = "ln_1.bias",
                               [XM_Q] = "attn.c_attn.weight",
                               [XM_Q_BIAS] = "attn.c_attn.bias",
                               [XM_O] = "attn.c_proj.weight",
                               [XM_O_BIAS] = "attn.c_proj.bias",
                               [XM_NORM2] = "ln_2.weight",
                               [XM_NORM2_BIAS] = "ln_2.bias",
                               [XM_UP] = "mlp.c_fc.weight",
                               [XM_UP_BIAS] = "mlp.c_fc.bias",
                               [XM_DOWN] = "mlp.c_proj.weight",
                               [XM_DOWN_BIAS] = "mlp.c_proj.bias",
                               [XM_EMBED] = "transformer.wte.weight",
                               [XM_POSITIONS] = "transformer.wpe.weight",
                               [XM_NORM] = "transformer.ln_f.weight",
                               [XM_NORM_BIAS] = "transformer.ln_f.bias",
                               [XM_LM_HEAD] = "lm_head.weight" } };

static const naming *find_naming(const xm_config *config)
{
    switch (config->arch) {
    case XM_ARCH_GPT2:
        return &gpt2;
    case XM_ARCH_PHI3:
        return &phi3;
    case XM_ARCH_GEMMA2:
    case XM_ARCH_GEMMA3:
        return &gemma2;
    default:
        return &llama;
    }
}

typedef struct shape {
    uint64_t rows; /* 0: the configuration has no such parameter */
    uint64_t cols;
} shape;

static shape shape_if(uint32_t there, uint64_t rows, uint64_t cols)
{
    return there ? (shape){ rows, cols } : (shape){ 0, 0 };
}

static void fill_block_shapes(const xm_config *c, shape out[XM_SLOTS])
{
    uint64_t h = c->hidden;
    uint64_t q = (uint64_t)c->heads * c->head_dim;
    uint64_t kv = (uint64_t)c->kv_heads * c->head_dim;
    uint64_t ffn = c->ffn;
    uint32_t apart = !c->fused;
    out[XM_NORM1] = shape_if(1, h, 0);
    out[XM_NORM1_BIAS] = shape_if(c->layer_norm, h, 0);
    out[XM_Q] = shape_if(1, apart ? q : q + 2 * kv, h);
    out[XM_K] = out[XM_V] = shape_if(apart, kv, h);
    out[XM_Q_BIAS] = shape_if(c->qkv_bias, out[XM_Q].rows, 0);
    out[XM_K_BIAS] = out[XM_V_BIAS] = shape_if(c->qkv_bias && apart, kv, 0);
    out[XM_Q_NORM] = out[XM_K_NORM] = shape_if(c->qk_norm, c->head_dim, 0);
    out[XM_O] = shape_if(1, h, q);
    out[XM_O_BIAS] = shape_if(c->o_bias, h, 0);
    out[XM_POST_NORM1] = out[XM_POST_NORM2] = shape_if(c->post_norms, h, 0);
    out[XM_NORM2] = shape_if(1, h, 0);
    out[XM_NORM2_BIAS] = shape_if(c->layer_norm, h, 0);
    out[XM_GATE] = shape_if(c->gated, apart ? ffn : 2 * ffn, h);
    out[XM_UP] = shape_if(apart || !c->gated, ffn, h);
    out[XM_GATE_BIAS] = shape_if(c->mlp_bias && c->gated, out[XM_GATE].rows, 0);
    out[XM_UP_BIAS] = shape_if(c->mlp_bias && out[XM_UP].rows, ffn, 0);
    out[XM_DOWN] = shape_if(1, h, ffn);
    out[XM_DOWN_BIAS] = shape_if(c->mlp_bias, h, 0);
}

static void fill_outer_shapes(const xm_config *c, shape out[XM_SLOTS])
{
    uint32_t first = (uint32_t)xm_config_is_first(c);
    uint32_t last = (uint32_t)xm_config_is_last(c);
    out[XM_EMBED] = shape_if(first || (last && c->tied), c->vocab, c->hidden);
    out[XM_POSITIONS] =
        shape_if(first && c->learned_positions, c->max_positions, c->hidden);
    out[XM_NORM] = shape_if(last, c->hidden, 0);
    out[XM_NORM_BIAS] = shape_if(last && c->layer_norm, c->hidden, 0);
    out[XM_LM_HEAD] = shape_if(last && !c->tied, c->vocab, c->hidden);
    out[XM_VALUE] = shape_if(0, 0, 0);
}

/* The state of one visit of all parameters. */
typedef struct param_walk {
    const xm_config *config;
    const naming *names;
    shape shapes[XM_SLOTS];
    xm_param_visit f;
    void *ctx;
} param_walk;

static xray_status visit_param_slot(const param_walk *w, uint32_t slot,
                                    uint32_t layer)
{
    const shape *size = &w->shapes[slot];
    if (!size->rows || !w->names->slots[slot])
        return XRAY_OK;
    char name[NAME_CAP];
    int inside = layer < XM_MAX_LAYERS;
    if (inside)
        (void)snprintf(name, sizeof name, "%s%u.%s", w->names->prefix,
                       xm_config_layer(w->config, layer),
                       w->names->slots[slot]);
    else
        (void)snprintf(name, sizeof name, "%s", w->names->slots[slot]);
    xm_param_info info = { .name = name,
                           .rows = size->rows,
                           .cols = size->cols,
                           .transposed =
                               inside && size->cols && w->config->transposed,
                           .layer = layer,
                           .slot = slot };
    return w->f(w->ctx, &info);
}

xray_status xm_config_params(const xm_config *config, xm_param_visit f,
                             void *ctx)
{
    param_walk w = {
        .config = config, .names = find_naming(config), .f = f, .ctx = ctx
    };
    fill_block_shapes(config, w.shapes);
    fill_outer_shapes(config, w.shapes);
    xray_status status = visit_param_slot(&w, XM_EMBED, XM_MAX_LAYERS);
    if (!status)
        status = visit_param_slot(&w, XM_POSITIONS, XM_MAX_LAYERS);
    for (uint32_t layer = 0; layer < config->layers; layer++)
        for (uint32_t slot = 0; !status && slot < XM_BLOCK_SLOTS; slot++)
            status = visit_param_slot(&w, slot, layer);
    for (uint32_t slot = XM_NORM; !status && slot <= XM_LM_HEAD; slot++)
        status = visit_param_slot(&w, slot, XM_MAX_LAYERS);
    return status;
}

static xray_status add_param_count(void *ctx, const xm_param_info *info)
{
    *(uint64_t *)ctx += info->cols ? info->rows * info->cols : info->rows;
    return XRAY_OK;
}

uint64_t xm_config_param_count(const xm_config *config)
{
    uint64_t count = 0;
    (void)xm_config_params(config, add_param_count, &count);
    return count;
}
