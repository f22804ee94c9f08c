/* SPDX-License-Identifier: Apache-2.0
 *
 * What a model_type means: the names of its keys, what a missing key stands
 * for (the defaults of transformers' configuration classes), and how the rest
 * of its keys is read.
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
    /* What is the architecture's own, after the sizes and the head. */
    xray_status (*read)(const xm_keys *keys, const xm_arch *arch,
                        xm_config *out);
};

/* The architecture `name`, or NULL. */
const xm_arch *xm_arch_find(const char *name);

xray_status xm_arch_llama(const xm_keys *keys, const xm_arch *arch,
                          xm_config *out); /* Mistral, Qwen, Phi-3 too */
xray_status xm_arch_gemma(const xm_keys *keys, const xm_arch *arch,
                          xm_config *out);
xray_status xm_arch_gpt2(const xm_keys *keys, const xm_arch *arch,
                         xm_config *out);

/* The activation behind `arch->act_key`. `gelu_is_tanh`: what "gelu" means in
 * Gemma 1 alone; elsewhere it is the exact form and refused. */
xray_status xm_read_act(const xm_keys *keys, const xm_arch *arch,
                        int gelu_is_tanh, xm_config *out);

/* layer_types, where the key is there, into out->sliding; *out_given says
 * whether it was. */
xray_status xm_read_layer_types(const xm_keys *keys, xm_config *out,
                                int *out_given);
/* sliding_window; 0: null or missing without a `preset`. */
xray_status xm_read_window(const xm_keys *keys, uint32_t preset, uint32_t *out);
/* Refuses layers that slide where there is no window. */
xray_status xm_check_window(const xm_keys *keys, const xm_config *config);
/* Makes the layers from `first` on slide. */
void xm_slide_from(xm_config *config, uint32_t first);

/* rope_theta, rope_scaling, rope_parameters, partial_rotary_factor and Gemma
 * 3's rope_local_base_freq; sets rope, rope_local and rotary. */
xray_status xm_read_rope(const xm_keys *keys, xm_config *out);

#endif
