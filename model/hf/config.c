/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads config.json and generation_config.json into an xm_config.
 */
#include "model/hf/config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/file_format.h"
#include "core/base/json.h"
#include "model/hf/arch.h"

#define FILE_LIMIT ((size_t)16 << 20)

static xray_status find_architecture(const xm_keys *keys, const xm_arch **out)
{
    const char *name;
    xray_status status =
        xr_json_string(keys->root, "model_type", keys->where, keys->err, &name);
    if (status)
        return status;
    *out = xm_arch_find(name);
    if (!*out)
        return xr_fail(keys->err, XRAY_E_UNSUPPORTED,
                       "%s: model_type \"%.80s\" is not supported; llama, "
                       "mistral, qwen2, qwen3, gemma, gemma2, gemma3_text, "
                       "gpt2 and phi3 are",
                       keys->where, name);
    return XRAY_OK;
}

static xray_status read_size_key(const xm_keys *keys, const char *key,
                                 uint32_t preset, uint32_t most, uint32_t *out)
{
    const uint32_t bounds[2] = { 1, most };
    return xm_keys_integer(keys, key, preset, bounds, out);
}

/* Older files of GPT-2 call the number of positions n_ctx. */
static xray_status read_positions(const xm_keys *keys, const xm_arch *arch,
                                  xm_config *out)
{
    const char *key = arch->names->positions;
    if (arch->arch == XM_ARCH_GPT2 && !xr_json_get(keys->root, key))
        key = "n_ctx";
    return read_size_key(keys, key, arch->positions, 1u << 28,
                         &out->max_positions);
}

static xray_status read_model_sizes(const xm_keys *keys, const xm_arch *arch,
                                    xm_config *out)
{
    const xm_arch_names *names = arch->names;
    const struct {
        const char *key;
        uint32_t preset;
        uint32_t most;
        uint32_t *value;
    } sizes[] = {
        { names->hidden, arch->hidden, 1u << 20, &out->hidden },
        { names->layers, arch->layers, XM_MAX_LAYERS, &out->layers },
        { names->heads, arch->heads, 1u << 14, &out->heads },
    };
    xray_status status = XRAY_OK;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        status = read_size_key(keys, sizes[i].key, sizes[i].preset,
                               sizes[i].most, sizes[i].value);
        if (status)
            return status;
    }
    out->kv_heads = out->heads;
    if (arch->arch != XM_ARCH_GPT2 &&
        !xm_keys_is_null(keys, "num_key_value_heads"))
        status = read_size_key(keys, "num_key_value_heads",
                               arch->kv_heads ? arch->kv_heads : out->heads,
                               1u << 14, &out->kv_heads);
    if (status)
        return status;
    status =
        read_size_key(keys, names->ffn, arch->ffn ? arch->ffn : 4 * out->hidden,
                      1u << 22, &out->ffn);
    if (status)
        return status;
    status =
        read_size_key(keys, "vocab_size", arch->vocab, 1u << 24, &out->vocab);
    return status ? status : read_positions(keys, arch, out);
}

static xray_status read_head_sizes(const xm_keys *keys, const xm_arch *arch,
                                   xm_config *out)
{
    const xm_arch_names *names = arch->names;
    if (out->heads % out->kv_heads)
        return xr_fail(keys->err, XRAY_E_CONFIG,
                       "%s: \"%s\" (%u) must be a multiple of "
                       "\"num_key_value_heads\" (%u)",
                       keys->where, names->heads, out->heads, out->kv_heads);
    int own = arch->arch != XM_ARCH_GPT2 &&
              (arch->head_dim || xr_json_get(keys->root, "head_dim"));
    if (own) {
        xray_status status = read_size_key(keys, "head_dim", arch->head_dim,
                                           2 * XM_MAX_ROTARY, &out->head_dim);
        if (status)
            return status;
    } else {
        if (out->hidden % out->heads)
            return xr_fail(keys->err, XRAY_E_CONFIG,
                           "%s: \"%s\" (%u) must be a multiple of \"%s\" "
                           "(%u) where \"head_dim\" is missing",
                           keys->where, names->hidden, out->hidden,
                           names->heads, out->heads);
        out->head_dim = out->hidden / out->heads;
    }
    if (out->head_dim % 2 || out->head_dim > 2 * XM_MAX_ROTARY)
        return xr_fail(keys->err, XRAY_E_CONFIG,
                       "%s: \"head_dim\" (%u) must be even and at most %d",
                       keys->where, out->head_dim, 2 * XM_MAX_ROTARY);
    return XRAY_OK;
}

static xray_status read_token_id(const xm_keys *keys, const char *key,
                                 const cJSON *item, uint32_t vocab,
                                 int32_t *out)
{
    double value = cJSON_IsNumber(item) ? item->valuedouble : -1;
    if (!(value >= 0 && value < (double)vocab) ||
        value != (double)(int32_t)value)
        return xr_fail(keys->err, XRAY_E_CONFIG,
                       "%s: \"%s\" must hold ids from 0 to %u", keys->where,
                       key, (unsigned)(vocab - 1));
    *out = (int32_t)value;
    return XRAY_OK;
}

/* Reads eos_token_id: an id or a list of ids. A missing key leaves `out` as it
 * is. */
static xray_status read_end_ids(const xm_keys *keys, xm_config *out)
{
    const char *const key = "eos_token_id";
    const cJSON *item = xr_json_get(keys->root, key);
    if (!item)
        return XRAY_OK;
    int32_t ids[XM_MAX_END_IDS];
    uint32_t count = 0;
    const cJSON *id = cJSON_IsArray(item) ? item->child : item;
    for (; id; id = cJSON_IsArray(item) ? id->next : NULL) {
        if (count == XM_MAX_END_IDS)
            return xr_fail(keys->err, XRAY_E_UNSUPPORTED,
                           "%s: \"%s\" holds more than %d ids", keys->where,
                           key, XM_MAX_END_IDS);
        xray_status status =
            read_token_id(keys, key, id, out->vocab, &ids[count++]);
        if (status)
            return status;
    }
    memcpy(out->end_ids, ids, count * sizeof ids[0]);
    out->end_count = count;
    return XRAY_OK;
}

/* Sets what most architectures have; the reader of an architecture may override
 * it. */
static void set_common_defaults(xm_config *out)
{
    out->gated = 1;
    out->attn_scale = 1 / sqrt((double)out->head_dim);
    out->embed_scale = 1;
    out->rope.scale = 1;
    out->rope_local.scale = 1;
}

static xray_status read_token_ids(const xm_keys *keys, xm_config *out)
{
    out->bos_id = -1;
    const cJSON *bos = xr_json_get(keys->root, "bos_token_id");
    xray_status status = XRAY_OK;
    if (bos)
        status =
            read_token_id(keys, "bos_token_id", bos, out->vocab, &out->bos_id);
    return status ? status : read_end_ids(keys, out);
}

static xray_status read_config_keys(const xm_keys *keys, xm_config *out)
{
    const xm_arch *arch;
    xray_status status = find_architecture(keys, &arch);
    if (status)
        return status;
    out->arch = arch->arch;
    status = read_model_sizes(keys, arch, out);
    if (status)
        return status;
    status = read_head_sizes(keys, arch, out);
    if (status)
        return status;
    status =
        xm_keys_positive(keys, arch->names->eps, arch->eps, &out->norm_eps);
    if (status)
        return status;
    status =
        xm_keys_positive(keys, "initializer_range", 0.02, &out->init_range);
    if (status)
        return status;
    status = xm_keys_flag(keys, "tie_word_embeddings", arch->tied, &out->tied);
    if (status)
        return status;
    set_common_defaults(out);
    status = arch->read(keys, arch, out);
    if (status)
        return status;
    if (xr_json_get(keys->root, "quantization_config"))
        return xm_keys_refuse(keys, "quantization_config", "is not supported");
    return read_token_ids(keys, out);
}

xray_status xm_config_parse(const char *text, const char *where, xr_err *err,
                            xm_config *out)
{
    cJSON *root;
    xray_status status = xr_json_parse(text, strlen(text), where, err, &root);
    if (status) {
        xr_err_file(err, where);
        return status;
    }
    memset(out, 0, sizeof *out);
    if (cJSON_IsObject(root)) {
        xm_keys keys = { root, where, err };
        status = read_config_keys(&keys, out);
    } else {
        status =
            xr_fail(err, XRAY_E_CONFIG, "%s: must be a JSON object", where);
    }
    if (status)
        xr_err_file(err, where);
    cJSON_Delete(root);
    return status;
}

static xray_status read_generation_config(const char *dir, xr_err *err,
                                          xm_config *out)
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
    xm_keys keys = { root, path, err };
    status = read_end_ids(&keys, out);
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
    status = xr_format_check(text, size, path, err);
    if (!status && strlen(text) != size)
        status = xr_fail(err, XRAY_E_CONFIG, "%s: holds a NUL byte", path);
    else if (!status)
        status = xm_config_parse(text, path, err, out);
    if (!status)
        status = read_generation_config(dir, err, out);
    if (!status && out_text)
        *out_text = text;
    else
        free(text);
    return status;
}
