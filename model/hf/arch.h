/* SPDX-License-Identifier: Apache-2.0
 *
 * Defines what a model_type implies: the names of its keys, the values of
 * missing keys (the defaults of transformers' configuration classes), and the
 * function that reads its other keys.
 */
#ifndef XM_ARCH_H
#define XM_ARCH_H

#include "model/hf/config.h"
#include "model/hf/config_keys.h"

typedef struct xm_arch_names {
    const char *hidden;
    const char *layers;
    const char *heads;
    const char *ffn;
    const char *positions;
    const char *eps;
} xm_arch_names;

typedef struct xm_arch xm_arch;
struct xm_arch {
    const char *name; /* model_type */
    uint32_t arch;    /* XM_ARCH_* */
    uint32_t tied;
    const xm_arch_names *names;
    uint32_t hidden;
    uint32_t layers;
    uint32_t heads;
    uint32_t kv_heads; /* 0: as many as heads */
    uint32_t head_dim; /* 0: hidden / heads */
    uint32_t ffn;      /* 0: 4 hidden */
    uint32_t vocab;
    uint32_t positions;
    double eps;
    const char *act_key;
    const char *act;
    /* Reads the keys that only this architecture has, after the sizes. */
    xray_status (*read)(const xm_keys *keys, const xm_arch *arch,
                        xm_config *out);
};

/* The architecture `name`, or NULL. */
const xm_arch *xm_arch_find(const char *name);

xray_status xm_arch_llama(const xm_keys *keys, const xm_arch *arch,
                          xm_config *out); /* also Mistral, Qwen and Phi-3 */
xray_status xm_arch_gemma(const xm_keys *keys, const xm_arch *arch,
                          xm_config *out);
xray_status xm_arch_gpt2(const xm_keys *keys, const xm_arch *arch,
                         xm_config *out);

/* Reads the activation under `arch->act_key`. `gelu_is_tanh`: "gelu" means the
 * tanh form, which is so in Gemma 1 alone; elsewhere it means the exact form
 * and is refused. */
xray_status xm_read_act(const xm_keys *keys, const xm_arch *arch,
                        int gelu_is_tanh, xm_config *out);

/* Reads layer_types, if present, into out->sliding; *out_given tells whether it
 * was. */
xray_status xm_read_layer_types(const xm_keys *keys, xm_config *out,
                                int *out_given);
/* Reads sliding_window; 0 if it is null, or missing with a `preset` of 0. */
xray_status xm_read_window(const xm_keys *keys, uint32_t preset, uint32_t *out);
/* Refuses sliding layers in a configuration without a window. */
xray_status xm_check_window(const xm_keys *keys, const xm_config *config);
/* Marks the layers from `first` on as sliding. */
void xm_slide_from(xm_config *config, uint32_t first);

/* Reads rope_theta, rope_scaling, rope_parameters, partial_rotary_factor and
 * Gemma 3's rope_local_base_freq; sets rope, rope_local and rotary. */
xray_status xm_read_rope(const xm_keys *keys, xm_config *out);

#endif
