/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the chat template of a model directory, and its special tokens.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/file_format.h"
#include "model/chat/chat_internal.h"

/* The state of collecting a directory's templates. */
struct opening {
    const char *dir;
    const char *name; /* the only one wanted, or NULL */
    xr_err *err;
    xm_chat *chat;
};

static xray_status add_template(struct opening *o, const char *name,
                                const char *source, const char *where)
{
    if (o->name && strcmp(o->name, name) != 0)
        return XRAY_OK;
    return xm_chat_add(o->chat, o->name ? "default" : name, source,
                       strlen(source), where, o->err);
}

/* Adds "chat_template": a text, or a list of {name, template}. */
static xray_status add_json_templates(struct opening *o, const cJSON *value,
                                      const char *path)
{
    if (cJSON_IsString(value))
        return add_template(o, "default", value->valuestring, path);
    if (!cJSON_IsArray(value))
        return xr_fail(o->err, XRAY_E_CONFIG,
                       "%s: \"chat_template\" must be a text or a list of "
                       "{name, template}",
                       path);
    const cJSON *item;
    cJSON_ArrayForEach(item, value)
    {
        const char *name;
        const char *source;
        xray_status status = xr_json_string(item, "name", path, o->err, &name);
        if (!status)
            status = xr_json_string(item, "template", path, o->err, &source);
        if (!status)
            status = add_template(o, name, source, path);
        if (status)
            return status;
    }
    return XRAY_OK;
}

/* Reads a JSON file. *out stays NULL if the file does not exist. */
static xray_status read_json_file(struct opening *o, const char *name,
                                  char *path, cJSON **out)
{
    xray_status status = xr_path_join(o->dir, name, path, XR_PATH_CAP, o->err);
    if (status || !xr_path_exists(path))
        return status;
    status = xr_json_file(path, o->err, out);
    if (!status && !cJSON_IsObject(*out))
        status = xr_fail(o->err, XRAY_E_CONFIG, "%s: must be an object", path);
    return status;
}

/* Adds the special tokens of a file, unless an earlier file named them. They
 * are texts, or objects with "content". */
static xray_status add_special_tokens(struct opening *o, const cJSON *config)
{
    static const char *const names[] = { "bos_token", "eos_token", "unk_token",
                                         "sep_token", "pad_token", "cls_token",
                                         "mask_token" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const cJSON *value = xr_json_get(config, names[i]);
        if (cJSON_IsObject(value))
            value = xr_json_get(value, "content");
        if (!cJSON_IsString(value) ||
            cJSON_GetObjectItemCaseSensitive(o->chat->special, names[i]))
            continue;
        if (!cJSON_AddStringToObject(o->chat->special, names[i],
                                     value->valuestring))
            return xr_fail(o->err, XRAY_E_NOMEM, "%s: out of memory", o->dir);
    }
    return XRAY_OK;
}

static xray_status add_extra_tokens(struct opening *o, const cJSON *config)
{
    static const char key[] = "additional_special_tokens";
    const cJSON *value = xr_json_get(config, key);
    if (!cJSON_IsArray(value) ||
        cJSON_GetObjectItemCaseSensitive(o->chat->special, key))
        return XRAY_OK;
    cJSON *list = cJSON_AddArrayToObject(o->chat->special, key);
    const cJSON *item;
    cJSON_ArrayForEach(item, value)
    {
        const cJSON *text =
            cJSON_IsObject(item) ? xr_json_get(item, "content") : item;
        if (!cJSON_IsString(text))
            continue;
        cJSON *copy = cJSON_CreateString(text->valuestring);
        if (!list || !copy || !cJSON_AddItemToArray(list, copy)) {
            cJSON_Delete(copy);
            return xr_fail(o->err, XRAY_E_NOMEM, "%s: out of memory", o->dir);
        }
    }
    return XRAY_OK;
}

static xray_status read_config_file(struct opening *o, const char *file,
                                    int with_template)
{
    char path[XR_PATH_CAP];
    cJSON *config = NULL;
    xray_status status = read_json_file(o, file, path, &config);
    if (!status && config) {
        const cJSON *value = xr_json_get(config, "chat_template");
        if (with_template && value && !o->chat->count)
            status = add_json_templates(o, value, path);
        if (!status)
            status = add_special_tokens(o, config);
        if (!status)
            status = add_extra_tokens(o, config);
    }
    cJSON_Delete(config);
    return status;
}

/* Reads a template file, after a check that it is not a file of another
 * format. */
static xray_status read_template_file(const char *path, xm_chat *chat,
                                      const char *name, xr_err *err)
{
    char *source;
    size_t size;
    xray_status status =
        xr_file_read(path, XM_CHAT_MAX_SOURCE, err, &source, &size);
    if (status)
        return status;
    status = xr_format_check(source, size, path, err);
    size_t bom = xr_bom_size(source, size);
    if (!status)
        status = xm_chat_add(chat, name, source + bom, size - bom, path, err);
    free(source);
    return status;
}

static xray_status open_jinja_file(struct opening *o, const char *file,
                                   const char *name)
{
    char path[XR_PATH_CAP];
    xray_status status = xr_path_join(o->dir, file, path, sizeof path, o->err);
    if (status || !xr_path_exists(path) ||
        (o->name && strcmp(o->name, name) != 0))
        return status;
    return read_template_file(path, o->chat, o->name ? "default" : name,
                              o->err);
}

/* Reads a named template from the folder in which transformers keeps further
 * ones. */
static xray_status open_named_file(struct opening *o)
{
    char file[256];
    const char *name = o->name ? o->name : "tool_use";
    if (strchr(name, '/') || strlen(name) > 128)
        return xr_fail(o->err, XRAY_E_ARG,
                       "%s: \"%.128s\" is not the name of a chat template",
                       o->dir, name);
    (void)snprintf(file, sizeof file, "additional_chat_templates/%s.jinja",
                   name);
    return open_jinja_file(o, file, name);
}

static xray_status open_all_sources(struct opening *o)
{
    static const struct {
        const char *file;
        int with_template;
    } configs[] = { { "tokenizer_config.json", 1 },
                    { "chat_template.json", 1 },
                    { "special_tokens_map.json", 0 } };
    o->chat->special = cJSON_CreateObject();
    if (!o->chat->special)
        return xr_fail(o->err, XRAY_E_NOMEM, "%s: out of memory", o->dir);
    xray_status status = open_jinja_file(o, "chat_template.jinja", "default");
    if (!status)
        status = open_named_file(o);
    for (size_t i = 0; !status && i < sizeof configs / sizeof configs[0]; i++)
        status = read_config_file(o, configs[i].file, configs[i].with_template);
    if (!status && o->name && !o->chat->count)
        return xr_fail(o->err, XRAY_E_ARG,
                       "%s: there is no chat template named \"%s\"", o->dir,
                       o->name);
    return status;
}

xray_status xm_chat_open(const char *dir, const char *name, xr_err *err,
                         xm_chat **out)
{
    struct opening o = { .dir = dir, .name = name, .err = err };
    *out = NULL;
    o.chat = xr_calloc(1, sizeof *o.chat);
    if (!o.chat)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", dir);
    xray_status status = open_all_sources(&o);
    if (status || !o.chat->count) {
        xm_chat_close(o.chat);
        return status;
    }
    *out = o.chat;
    return XRAY_OK;
}

xray_status xm_chat_open_file(const char *path, const char *dir, xr_err *err,
                              xm_chat **out)
{
    struct opening o = { .dir = dir ? dir : ".", .err = err };
    *out = NULL;
    o.chat = xr_calloc(1, sizeof *o.chat);
    if (!o.chat)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", path);
    xray_status status = read_template_file(path, o.chat, "default", err);
    o.chat->special = cJSON_CreateObject();
    if (!status && !o.chat->special)
        status = xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", path);
    if (!status && dir)
        status = read_config_file(&o, "tokenizer_config.json", 0);
    if (!status && dir)
        status = read_config_file(&o, "special_tokens_map.json", 0);
    if (status) {
        xm_chat_close(o.chat);
        return status;
    }
    *out = o.chat;
    return XRAY_OK;
}
