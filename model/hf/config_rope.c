/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads how a configuration rotates queries and keys, in the old spelling
 * (rope_theta, rope_scaling) and the new one (rope_parameters).
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/file.h"
#include "model/hf/arch.h"

/* The objects from which one set of rope keys is read. In Gemma 3 rope_scaling
 * overrides the entry of the full-attention layers. */
typedef struct rope_source {
    const xm_keys *keys;
    const char *key;      /* for messages */
    const cJSON *over;    /* NULL: none */
    const cJSON *entry;   /* NULL: none */
    const cJSON *outside; /* the object that holds the entry */
    double theta;         /* used if neither object has rope_theta */
} rope_source;

static const cJSON *find_key_holder(const rope_source *s, const char *key)
{
    return xr_json_get(s->over, key) ? s->over : s->entry;
}

/* Reads a number above 0; it is required if `preset` is NAN. */
static xray_status read_positive_real(const rope_source *s, const char *key,
                                      double preset, double *out)
{
    char where[XR_PATH_CAP + 64];
    (void)snprintf(where, sizeof where, "%s: \"%s\"", s->keys->where, s->key);
    const xm_keys inner = { find_key_holder(s, key), where, s->keys->err };
    if (isnan(preset) && !xr_json_get(inner.root, key))
        return xr_fail(s->keys->err, XRAY_E_CONFIG, "%s: \"%s\" is missing",
                       where, key);
    return xm_keys_positive(&inner, key, preset, out);
}

static xray_status read_kind_name(const rope_source *s, const cJSON *object,
                                  const char **out)
{
    static const char *const names[] = { "rope_type", "type" };
    for (size_t i = 0; object && !*out && i < 2; i++) {
        xray_status status = xr_json_string_or(
            object, names[i], NULL, s->keys->where, s->keys->err, out);
        if (status)
            return status;
    }
    return XRAY_OK;
}

static xray_status read_rope_kind(const rope_source *s, uint32_t arch,
                                  uint32_t *out)
{
    static const char *const kinds[] = { "default", "linear", "llama3",
                                         "yarn" };
    const char *name = NULL;
    xray_status status = read_kind_name(s, s->over, &name);
    if (!status)
        status = read_kind_name(s, s->entry, &name);
    if (status)
        return status;
    name = name ? name : kinds[0];
    /* In files of Phi-3 "yarn" is an old name of longrope, which is not
     * supported. */
    uint32_t known = arch == XM_ARCH_PHI3 ? 1 : 4;
    for (uint32_t i = 0; i < known; i++)
        if (strcmp(name, kinds[i]) == 0) {
            *out = i;
            return XRAY_OK;
        }
    return xr_fail(s->keys->err, XRAY_E_UNSUPPORTED,
                   "%s: \"%s\" of type \"%.40s\" is not supported; %s",
                   s->keys->where, s->key, name,
                   known == 1 ? "only \"default\" is for phi3"
                              : "\"default\", \"linear\", \"llama3\" and "
                                "\"yarn\" are");
}

/* Reads the context length before it was extended. */
static xray_status read_original_positions(const rope_source *s,
                                           const xm_config *config, double *out)
{
    static const char *const key = "original_max_position_embeddings";
    if (s->outside == s->entry && xr_json_get(s->keys->root, key))
        return xm_keys_positive(s->keys, key, 0, out);
    return read_positive_real(s, key, config->max_positions, out);
}

static xray_status read_llama3_scaling(const rope_source *s,
                                       const xm_config *config, xm_rope *out)
{
    const struct {
        const char *key;
        double *value;
    } factors[] = {
        { "factor", &out->factor },
        { "low_freq_factor", &out->low_freq_factor },
        { "high_freq_factor", &out->high_freq_factor },
    };
    for (size_t i = 0; i < sizeof factors / sizeof factors[0]; i++) {
        xray_status status = read_positive_real(s, factors[i].key, (double)NAN,
                                                factors[i].value);
        if (status)
            return status;
    }
    xray_status status =
        read_original_positions(s, config, &out->original_positions);
    if (status)
        return status;
    if (out->high_freq_factor <= out->low_freq_factor)
        return xr_fail(s->keys->err, XRAY_E_CONFIG,
                       "%s: \"%s\": \"high_freq_factor\" (%g) must be above "
                       "\"low_freq_factor\" (%g)",
                       s->keys->where, s->key, out->high_freq_factor,
                       out->low_freq_factor);
    return XRAY_OK;
}

static double yarn_attention_scale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

/* Reads the factor of cos and sin (Peng et al. 2023, section 3.4). */
static xray_status read_yarn_scale(const rope_source *s, xm_rope *out)
{
    if (xr_json_get(find_key_holder(s, "attention_factor"), "attention_factor"))
        return read_positive_real(s, "attention_factor", 1, &out->scale);
    static const char *const keys[2] = { "mscale", "mscale_all_dim" };
    double mscale[2] = { 0, 0 };
    for (size_t i = 0; i < 2; i++) {
        xray_status status =
            xr_json_real_or(find_key_holder(s, keys[i]), keys[i], 0,
                            s->keys->where, s->keys->err, &mscale[i]);
        if (status)
            return status;
        if (!(mscale[i] >= 0 && mscale[i] < 1e6))
            return xr_fail(s->keys->err, XRAY_E_CONFIG,
                           "%s: \"%s\": \"%s\" must be from 0 to 1e6",
                           s->keys->where, s->key, keys[i]);
    }
    out->scale = mscale[0] > 0 && mscale[1] > 0
                     ? yarn_attention_scale(out->factor, mscale[0]) /
                           yarn_attention_scale(out->factor, mscale[1])
                     : yarn_attention_scale(out->factor, 1);
    return XRAY_OK;
}

static xray_status read_yarn_scaling(const rope_source *s,
                                     const xm_config *config, xm_rope *out)
{
    int truncate = 1;
    xray_status status =
        read_original_positions(s, config, &out->original_positions);
    if (status)
        return status;
    status = read_positive_real(s, "factor",
                                config->max_positions / out->original_positions,
                                &out->factor);
    if (status)
        return status;
    status = read_positive_real(s, "beta_fast", 32, &out->beta_fast);
    if (status)
        return status;
    status = read_positive_real(s, "beta_slow", 1, &out->beta_slow);
    if (status)
        return status;
    /* transformers expects this key outside the entry of one kind of layer. */
    status = xr_json_bool_or(s->outside, "truncate", 1, s->keys->where,
                             s->keys->err, &truncate);
    out->truncate = (uint32_t)truncate;
    if (status)
        return status;
    if (out->theta <= 1)
        return xr_fail(s->keys->err, XRAY_E_CONFIG,
                       "%s: \"rope_theta\" must be above 1 with yarn, not %g",
                       s->keys->where, out->theta);
    return read_yarn_scale(s, out);
}

static xray_status read_rope_entry(const rope_source *s,
                                   const xm_config *config, xm_rope *out)
{
    out->scale = 1;
    xray_status status = read_rope_kind(s, config->arch, &out->kind);
    if (status)
        return status;
    status = read_positive_real(s, "rope_theta", s->theta, &out->theta);
    if (status)
        return status;
    switch (out->kind) {
    case XM_ROPE_LINEAR:
        return read_positive_real(s, "factor", (double)NAN, &out->factor);
    case XM_ROPE_LLAMA3:
        return read_llama3_scaling(s, config, out);
    case XM_ROPE_YARN:
        return read_yarn_scaling(s, config, out);
    default:
        return XRAY_OK;
    }
}

/* Finds a nonempty object; NULL if it is missing or empty. */
static xray_status find_object_key(const xm_keys *keys, const cJSON *holder,
                                   const char *key, const cJSON **out)
{
    const cJSON *object = xr_json_get(holder, key);
    *out = object && object->child ? object : NULL;
    if (object && !cJSON_IsObject(object))
        return xm_keys_refuse(keys, key, "must be an object or null");
    return XRAY_OK;
}

/* Reads how many dimensions of a head are rotary. */
static xray_status read_rotary_dimensions(const rope_source *s, xm_config *out)
{
    static const char *const key = "partial_rotary_factor";
    const cJSON *object = find_key_holder(s, key);
    double part = 1;
    xray_status status =
        xr_json_real_or(xr_json_get(object, key) ? object : s->keys->root, key,
                        1, s->keys->where, s->keys->err, &part);
    if (status)
        return status;
    out->rotary = out->head_dim;
    if (part == 1)
        return XRAY_OK;
    if (out->arch != XM_ARCH_PHI3)
        return xm_keys_refuse(s->keys, key,
                              "other than 1 is not supported for this "
                              "model_type");
    if (!(part > 0 && part < 1))
        return xm_keys_refuse(s->keys, key, "must be above 0 and at most 1");
    out->rotary = (uint32_t)(out->head_dim * part);
    if (out->rotary < 2 || out->rotary % 2)
        return xr_fail(s->keys->err, XRAY_E_UNSUPPORTED,
                       "%s: \"%s\" gives %u rotary dimensions of a head; an "
                       "even number above 0 is needed",
                       s->keys->where, key, out->rotary);
    return XRAY_OK;
}

static xray_status read_gemma3_ropes(const xm_keys *keys, const cJSON *scaling,
                                     const cJSON *parameters, xm_config *out)
{
    static const char *const flat[] = { "rope_type", "type", "rope_theta" };
    for (size_t i = 0; i < sizeof flat / sizeof flat[0]; i++)
        if (xr_json_get(parameters, flat[i]))
            return xm_keys_refuse(keys, "rope_parameters",
                                  "must hold \"full_attention\" and "
                                  "\"sliding_attention\" for gemma3_text");
    rope_source full = { .keys = keys,
                         .key = scaling ? "rope_scaling" : "rope_parameters",
                         .over = scaling,
                         .outside = parameters };
    rope_source local = { .keys = keys,
                          .key = "rope_parameters",
                          .outside = parameters };
    xray_status status =
        find_object_key(keys, parameters, "full_attention", &full.entry);
    if (status)
        return status;
    status =
        find_object_key(keys, parameters, "sliding_attention", &local.entry);
    if (status)
        return status;
    status = xm_keys_positive(keys, "rope_theta", 1e6, &full.theta);
    if (status)
        return status;
    status = xm_keys_positive(keys, "rope_local_base_freq", 1e4, &local.theta);
    if (status)
        return status;
    status = read_rope_entry(&full, out, &out->rope);
    if (status)
        return status;
    status = read_rope_entry(&local, out, &out->rope_local);
    return status ? status : read_rotary_dimensions(&full, out);
}

xray_status xm_read_rope(const xm_keys *keys, xm_config *out)
{
    const cJSON *scaling = NULL;
    const cJSON *parameters = NULL;
    xray_status status =
        find_object_key(keys, keys->root, "rope_scaling", &scaling);
    if (!status)
        status =
            find_object_key(keys, keys->root, "rope_parameters", &parameters);
    if (status)
        return status;
    if (out->arch == XM_ARCH_GEMMA3)
        return read_gemma3_ropes(keys, scaling, parameters, out);
    rope_source s = { .keys = keys,
                      .key = scaling ? "rope_scaling" : "rope_parameters",
                      .entry = scaling ? scaling : parameters };
    s.outside = s.entry;
    if (xr_json_get(s.entry, "full_attention") ||
        xr_json_get(s.entry, "sliding_attention"))
        return xm_keys_refuse(keys, s.key,
                              "by kind of layer is supported for gemma3_text "
                              "only");
    status = xm_keys_positive(keys, "rope_theta", 1e4, &s.theta);
    if (!status)
        status = read_rope_entry(&s, out, &out->rope);
    out->rope_local = out->rope;
    return status ? status : read_rotary_dimensions(&s, out);
}
