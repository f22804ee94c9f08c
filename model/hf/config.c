/* SPDX-License-Identifier: Apache-2.0 */
#include "model/hf/config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/json.h"

#define FILE_LIMIT ((size_t)16 << 20)

typedef struct reader {
    const cJSON *root;
    const char *where;
    xr_err *err;
} reader;

static xray_status refuse(const reader *r, const char *key, const char *why)
{
    return xr_fail(r->err, XRAY_E_UNSUPPORTED, "%s: \"%s\" %s", r->where, key,
                   why);
}

/* An integer in [1, most]; preset 0: the key must be there. */
static xray_status size_key(const reader *r, const char *key, uint32_t preset,
                            uint32_t most, uint32_t *out)
{
    int64_t value;
    xray_status status =
        preset ? xr_json_int_or(r->root, key, preset, r->where, r->err, &value)
               : xr_json_int(r->root, key, r->where, r->err, &value);
    if (status)
        return status;
    if (value < 1 || value > (int64_t)most)
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "%s: \"%s\" must be from 1 to %u, not %lld", r->where,
                       key, (unsigned)most, (long long)value);
    *out = (uint32_t)value;
    return XRAY_OK;
}

static xray_status real_key(const reader *r, const cJSON *object,
                            const char *key, double preset, double *out)
{
    xray_status status =
        xr_json_real_or(object, key, preset, r->where, r->err, out);
    if (!status && !(*out > 0 && *out < 1e30))
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "%s: \"%s\" must be above 0 and below 1e30, not %g",
                       r->where, key, *out);
    return status;
}

static xray_status read_arch(const reader *r, xm_config *out)
{
    static const struct {
        const char *name;
        uint32_t arch;
    } known[] = { { "llama", XM_ARCH_LLAMA },
                  { "qwen2", XM_ARCH_QWEN2 },
                  { "qwen3", XM_ARCH_QWEN3 } };
    const char *name;
    xray_status status =
        xr_json_string(r->root, "model_type", r->where, r->err, &name);
    if (status)
        return status;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(name, known[i].name) == 0)
            out->arch = known[i].arch;
    if (!out->arch)
        return xr_fail(r->err, XRAY_E_UNSUPPORTED,
                       "%s: model_type \"%s\" is not supported; llama, qwen2 "
                       "and qwen3 are",
                       r->where, name);
    return XRAY_OK;
}

static xray_status read_sizes(const reader *r, xm_config *out)
{
    xray_status status = size_key(r, "hidden_size", 0, 1u << 20, &out->hidden);
    if (!status)
        status = size_key(r, "num_hidden_layers", 0, 4096, &out->layers);
    if (!status)
        status = size_key(r, "num_attention_heads", 0, 1u << 14, &out->heads);
    if (!status)
        status = size_key(r, "num_key_value_heads", out->heads, 1u << 14,
                          &out->kv_heads);
    if (!status)
        status = size_key(r, "intermediate_size", 0, 1u << 22, &out->ffn);
    if (!status)
        status = size_key(r, "vocab_size", 0, 1u << 24, &out->vocab);
    if (!status)
        status = size_key(r, "max_position_embeddings", 2048, 1u << 28,
                          &out->max_positions);
    return status;
}

static xray_status read_heads(const reader *r, xm_config *out)
{
    if (out->heads % out->kv_heads)
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "%s: \"num_attention_heads\" (%u) must be a multiple of "
                       "\"num_key_value_heads\" (%u)",
                       r->where, out->heads, out->kv_heads);
    if (xr_json_get(r->root, "head_dim")) {
        xray_status status =
            size_key(r, "head_dim", 0, 1u << 12, &out->head_dim);
        if (status)
            return status;
    } else if (out->arch == XM_ARCH_QWEN3) {
        out->head_dim = 128; /* what Qwen3 means by leaving it out */
    } else {
        if (out->hidden % out->heads)
            return xr_fail(r->err, XRAY_E_CONFIG,
                           "%s: \"hidden_size\" (%u) must be a multiple of "
                           "\"num_attention_heads\" (%u) where \"head_dim\" is "
                           "missing",
                           r->where, out->hidden, out->heads);
        out->head_dim = out->hidden / out->heads;
    }
    if (out->head_dim % 2)
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "%s: \"head_dim\" (%u) must be even", r->where,
                       out->head_dim);
    return XRAY_OK;
}

/* rope_scaling or rope_parameters: only the plain kind. */
static xray_status read_rope_object(const reader *r, const char *key,
                                    double *theta)
{
    const cJSON *rope = xr_json_get(r->root, key);
    if (!rope)
        return XRAY_OK;
    if (!cJSON_IsObject(rope))
        return refuse(r, key, "must be an object or null");
    const char *type = NULL;
    xray_status status =
        xr_json_string_or(rope, "rope_type", NULL, r->where, r->err, &type);
    if (!status && !type)
        status =
            xr_json_string_or(rope, "type", "default", r->where, r->err, &type);
    if (status)
        return status;
    if (strcmp(type, "default") != 0)
        return xr_fail(r->err, XRAY_E_UNSUPPORTED,
                       "%s: \"%s\" of type \"%s\" is not supported; only "
                       "\"default\" is",
                       r->where, key, type);
    return real_key(r, rope, "rope_theta", *theta, theta);
}

static xray_status read_rope(const reader *r, xm_config *out)
{
    xray_status status =
        real_key(r, r->root, "rope_theta", 10000.0, &out->rope.theta);
    if (!status)
        status = read_rope_object(r, "rope_scaling", &out->rope.theta);
    if (!status)
        status = read_rope_object(r, "rope_parameters", &out->rope.theta);
    double part = 1;
    if (!status)
        status = xr_json_real_or(r->root, "partial_rotary_factor", 1, r->where,
                                 r->err, &part);
    if (!status && part != 1)
        return refuse(r, "partial_rotary_factor",
                      "other than 1 is not "
                      "supported");
    return status;
}

static xray_status read_flags(const reader *r, xm_config *out)
{
    int tied = 0;
    int bias = 0;
    int flag = 0;
    xray_status status = xr_json_bool_or(r->root, "tie_word_embeddings", 0,
                                         r->where, r->err, &tied);
    if (!status)
        status = xr_json_bool_or(r->root, "attention_bias",
                                 out->arch == XM_ARCH_QWEN2, r->where, r->err,
                                 &bias);
    if (status)
        return status;
    /* In Llama and Qwen3 the same switch also gives o_proj a bias. */
    if (bias && out->arch != XM_ARCH_QWEN2)
        return refuse(r, "attention_bias",
                      "true is not supported: it gives o_proj a bias");
    out->tied = (uint32_t)tied;
    out->qkv_bias = (uint32_t)bias;
    out->qk_norm = out->arch == XM_ARCH_QWEN3;
    static const char *const off[] = { "mlp_bias", "use_sliding_window" };
    for (size_t i = 0; i < sizeof off / sizeof off[0]; i++) {
        status = xr_json_bool_or(r->root, off[i], 0, r->where, r->err, &flag);
        if (status)
            return status;
        if (flag)
            return refuse(r, off[i], "true is not supported");
    }
    return XRAY_OK;
}

/* What changes the mathematics in a way that we do not follow. */
static xray_status read_refusals(const reader *r)
{
    const char *act;
    double dropout = 0;
    xray_status status = xr_json_string_or(r->root, "hidden_act", "silu",
                                           r->where, r->err, &act);
    if (status)
        return status;
    if (strcmp(act, "silu") != 0 && strcmp(act, "swish") != 0)
        return xr_fail(r->err, XRAY_E_UNSUPPORTED,
                       "%s: \"hidden_act\" \"%s\" is not supported; only "
                       "\"silu\" is",
                       r->where, act);
    status = xr_json_real_or(r->root, "attention_dropout", 0, r->where, r->err,
                             &dropout);
    if (status)
        return status;
    if (dropout != 0)
        return refuse(r, "attention_dropout", "other than 0 is not supported");
    if (xr_json_get(r->root, "quantization_config"))
        return refuse(r, "quantization_config", "is not supported");
    const cJSON *kind;
    cJSON_ArrayForEach(kind, xr_json_get(r->root, "layer_types"))
    {
        if (!cJSON_IsString(kind) ||
            strcmp(kind->valuestring, "full_attention") != 0)
            return refuse(r, "layer_types",
                          "other than \"full_attention\" is not supported");
    }
    return XRAY_OK;
}

static xray_status one_id(const reader *r, const char *key, const cJSON *item,
                          uint32_t vocab, int32_t *out)
{
    double value = cJSON_IsNumber(item) ? item->valuedouble : -1;
    if (!(value >= 0 && value < (double)vocab) ||
        value != (double)(int32_t)value)
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "%s: \"%s\" must hold ids from 0 to %u", r->where, key,
                       (unsigned)(vocab - 1));
    *out = (int32_t)value;
    return XRAY_OK;
}

/* eos_token_id: an id, a list of them, or nothing, which changes nothing. */
static xray_status read_end_ids(const reader *r, xm_config *out)
{
    const char *const key = "eos_token_id";
    const cJSON *item = xr_json_get(r->root, key);
    if (!item)
        return XRAY_OK;
    int32_t ids[XM_MAX_END_IDS];
    uint32_t count = 0;
    const cJSON *id = cJSON_IsArray(item) ? item->child : item;
    for (; id; id = cJSON_IsArray(item) ? id->next : NULL) {
        if (count == XM_MAX_END_IDS)
            return xr_fail(r->err, XRAY_E_UNSUPPORTED,
                           "%s: \"%s\" holds more than %d ids", r->where, key,
                           XM_MAX_END_IDS);
        xray_status status = one_id(r, key, id, out->vocab, &ids[count++]);
        if (status)
            return status;
    }
    memcpy(out->end_ids, ids, count * sizeof ids[0]);
    out->end_count = count;
    return XRAY_OK;
}

/* What follows from the rest. */
static void derive(xm_config *out)
{
    out->gated = 1;
    out->act = XM_ACT_SILU;
    out->rotary = out->head_dim;
    out->attn_scale = 1 / sqrt((double)out->head_dim);
    out->embed_scale = 1;
    out->rope.scale = 1;
    out->rope_local = out->rope;
}

static xray_status read_all(const reader *r, xm_config *out)
{
    xray_status status = read_arch(r, out);
    if (!status)
        status = read_sizes(r, out);
    if (!status)
        status = read_heads(r, out);
    if (!status)
        status = real_key(r, r->root, "rms_norm_eps", 1e-6, &out->norm_eps);
    if (!status)
        status =
            real_key(r, r->root, "initializer_range", 0.02, &out->init_range);
    if (!status)
        status = read_rope(r, out);
    if (!status)
        status = read_flags(r, out);
    if (!status)
        status = read_refusals(r);
    if (!status)
        derive(out);
    out->bos_id = -1;
    const cJSON *bos = xr_json_get(r->root, "bos_token_id");
    if (!status && bos)
        status = one_id(r, "bos_token_id", bos, out->vocab, &out->bos_id);
    if (!status)
        status = read_end_ids(r, out);
    return status;
}

xray_status xm_config_parse(const char *text, const char *where, xr_err *err,
                            xm_config *out)
{
    cJSON *root;
    xray_status status = xr_json_parse(text, strlen(text), where, err, &root);
    if (status)
        return status;
    memset(out, 0, sizeof *out);
    if (cJSON_IsObject(root)) {
        reader r = { root, where, err };
        status = read_all(&r, out);
    } else {
        status =
            xr_fail(err, XRAY_E_CONFIG, "%s: must be a JSON object", where);
    }
    cJSON_Delete(root);
    return status;
}

static xray_status read_generation(const char *dir, xr_err *err, xm_config *out)
{
    char path[XR_PATH_CAP];
    xray_status status =
        xr_path_join(dir, "generation_config.json", path, sizeof path, err);
    if (status || !xr_path_exists(path))
        return status;
    cJSON *root;
    status = xr_json_file(path, err, &root);
    if (status)
        return status;
    reader r = { root, path, err };
    status = read_end_ids(&r, out);
    cJSON_Delete(root);
    return status;
}

xray_status xm_config_read(const char *dir, xr_err *err, xm_config *out,
                           char **out_text)
{
    char path[XR_PATH_CAP];
    char *text;
    size_t size;
    xray_status status =
        xr_path_join(dir, "config.json", path, sizeof path, err);
    if (!status)
        status = xr_file_read(path, FILE_LIMIT, err, &text, &size);
    if (status)
        return status;
    if (strlen(text) != size)
        status = xr_fail(err, XRAY_E_CONFIG, "%s: holds a NUL byte", path);
    else
        status = xm_config_parse(text, path, err, out);
    if (!status)
        status = read_generation(dir, err, out);
    if (!status && out_text)
        *out_text = text;
    else
        free(text);
    return status;
}
