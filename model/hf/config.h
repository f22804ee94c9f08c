/* SPDX-License-Identifier: Apache-2.0
 *
 * config.json of a decoder: what every part of the model library works from.
 */
#ifndef XM_CONFIG_H
#define XM_CONFIG_H

#include <stdint.h>

#include "core/base/err.h"

#define XM_ARCH_LLAMA 1u
#define XM_ARCH_QWEN2 2u
#define XM_ARCH_QWEN3 3u

#define XM_MAX_END_IDS 8

typedef struct xm_config {
    uint32_t arch;          /* XM_ARCH_* */
    uint32_t hidden;        /* hidden_size */
    uint32_t layers;        /* num_hidden_layers */
    uint32_t heads;         /* num_attention_heads */
    uint32_t kv_heads;      /* num_key_value_heads */
    uint32_t head_dim;      /* head_dim, or hidden / heads */
    uint32_t ffn;           /* intermediate_size */
    uint32_t vocab;         /* vocab_size */
    uint32_t max_positions; /* max_position_embeddings */
    uint32_t tied;          /* tie_word_embeddings */
    uint32_t qkv_bias;      /* Qwen2; or attention_bias */
    uint32_t qk_norm;       /* Qwen3 */
    double norm_eps;        /* rms_norm_eps */
    double rope_theta;
    double init_range;  /* initializer_range */
    int32_t bos_id;     /* -1: none */
    uint32_t end_count; /* eos_token_id of config.json, one or a list */
    int32_t end_ids[XM_MAX_END_IDS];
} xm_config;

/* Reads the text of config.json. What is not supported (another model_type,
 * rope scaling, sliding windows in use, o_proj or mlp biases, another
 * activation) is refused by name; `where` starts the message. */
xray_status xm_config_parse(const char *text, const char *where, xr_err *err,
                            xm_config *out);

/* Reads <dir>/config.json, and the end ids of generation_config.json where the
 * directory has one (nothing else of it is used). *out_text, if not NULL, gets
 * the text of config.json; free() releases it. */
xray_status xm_config_read(const char *dir, xr_err *err, xm_config *out,
                           char **out_text);

/* Every parameter's fixed name and shape, in file order: f is called with the
 * HF name, rows and cols (cols 0: a vector of `rows`). Stops at the first
 * status other than XRAY_OK and returns it. */
typedef xray_status (*xm_param_visit)(void *ctx, const char *name,
                                      uint64_t rows, uint64_t cols);
xray_status xm_config_params(const xm_config *config, xm_param_visit f,
                             void *ctx);

/* Number of parameters, embeddings included. */
uint64_t xm_config_param_count(const xm_config *config);

#endif
