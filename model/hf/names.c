/* SPDX-License-Identifier: Apache-2.0
 *
 * The parameters of a decoder under their Hugging Face names.
 */
#include <stdio.h>

#include "model/hf/config.h"

/* One kind of parameter in every layer. */
typedef struct part {
    const char *name;
    uint64_t rows;
    uint64_t cols;
    uint32_t there;
} part;

#define PARTS 14

static void layer_parts(const xm_config *c, part out[PARTS])
{
    uint64_t q = (uint64_t)c->heads * c->head_dim;
    uint64_t kv = (uint64_t)c->kv_heads * c->head_dim;
    const part parts[PARTS] = {
        { "input_layernorm.weight", c->hidden, 0, 1 },
        { "self_attn.q_proj.weight", q, c->hidden, 1 },
        { "self_attn.q_proj.bias", q, 0, c->qkv_bias },
        { "self_attn.k_proj.weight", kv, c->hidden, 1 },
        { "self_attn.k_proj.bias", kv, 0, c->qkv_bias },
        { "self_attn.v_proj.weight", kv, c->hidden, 1 },
        { "self_attn.v_proj.bias", kv, 0, c->qkv_bias },
        { "self_attn.q_norm.weight", c->head_dim, 0, c->qk_norm },
        { "self_attn.k_norm.weight", c->head_dim, 0, c->qk_norm },
        { "self_attn.o_proj.weight", c->hidden, q, 1 },
        { "post_attention_layernorm.weight", c->hidden, 0, 1 },
        { "mlp.gate_proj.weight", c->ffn, c->hidden, 1 },
        { "mlp.up_proj.weight", c->ffn, c->hidden, 1 },
        { "mlp.down_proj.weight", c->hidden, c->ffn, 1 },
    };
    for (size_t i = 0; i < PARTS; i++)
        out[i] = parts[i];
}

static xray_status visit_layer(const part parts[PARTS], uint32_t layer,
                               xm_param_visit f, void *ctx)
{
    for (size_t i = 0; i < PARTS; i++) {
        if (!parts[i].there)
            continue;
        char name[96];
        (void)snprintf(name, sizeof name, "model.layers.%u.%s", layer,
                       parts[i].name);
        xray_status status = f(ctx, name, parts[i].rows, parts[i].cols);
        if (status)
            return status;
    }
    return XRAY_OK;
}

xray_status xm_config_params(const xm_config *config, xm_param_visit f,
                             void *ctx)
{
    part parts[PARTS];
    layer_parts(config, parts);
    xray_status status =
        f(ctx, "model.embed_tokens.weight", config->vocab, config->hidden);
    for (uint32_t layer = 0; !status && layer < config->layers; layer++)
        status = visit_layer(parts, layer, f, ctx);
    if (!status)
        status = f(ctx, "model.norm.weight", config->hidden, 0);
    if (!status && !config->tied)
        status = f(ctx, "lm_head.weight", config->vocab, config->hidden);
    return status;
}

static xray_status add_count(void *ctx, const char *name, uint64_t rows,
                             uint64_t cols)
{
    (void)name;
    *(uint64_t *)ctx += cols ? rows * cols : rows;
    return XRAY_OK;
}

uint64_t xm_config_param_count(const xm_config *config)
{
    uint64_t count = 0;
    (void)xm_config_params(config, add_count, &count);
    return count;
}
