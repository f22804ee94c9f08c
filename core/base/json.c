/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses JSON strictly and reads typed members with errors that name file and
 * key.
 */
#include "core/base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/file_format.h"
#include "core/base/jsoncheck.h"
#include "core/base/locale.h"
#include "core/base/map.h"
#include "core/base/str.h"

/* Doubles represent every integer exactly up to 2^53. */
#define EXACT 0x1p53

/* No configuration, tokenizer or index comes close to this size. */
#define FILE_LIMIT ((size_t)1 << 30)

/* Objects with up to this many members, which are most, are compared pair by
 * pair. */
#define FEW 8

/* Returns in *out a key that occurs twice in the object, or NULL. Returns -1
 * when out of memory. */
static int find_repeated_key(const cJSON *object, size_t count,
                             const char **out)
{
    const cJSON *item;
    xr_map *seen = count > FEW ? xr_map_new(count) : NULL;
    uint64_t value;
    int bad = count > FEW && !seen;
    *out = NULL;
    cJSON_ArrayForEach(item, object)
    {
        const char *key = item->string;
        const cJSON *other = object->child;
        if (bad || *out)
            break;
        for (; !seen && other != item && !*out; other = other->next)
            *out = strcmp(other->string, key) == 0 ? key : NULL;
        if (seen && xr_map_get(seen, key, strlen(key), &value))
            *out = key;
        else if (seen)
            bad = xr_map_put(seen, key, strlen(key), 1);
    }
    xr_map_free(seen);
    return bad ? -1 : 0;
}

/* Refuses objects that repeat a key, because either value could be meant.
 * xr_json_check has bounded the depth of the recursion. */
static xray_status check_unique_keys(const cJSON *tree, const char *where,
                                     xr_err *err)
{
    const cJSON *item;
    const char *key = NULL;
    size_t count = 0;
    cJSON_ArrayForEach(item, tree)
    {
        count++;
        if (!cJSON_IsArray(item) && !cJSON_IsObject(item))
            continue;
        xray_status status = check_unique_keys(item, where, err);
        if (status != XRAY_OK)
            return status;
    }
    if (cJSON_IsObject(tree) && find_repeated_key(tree, count, &key))
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory reading JSON",
                       where);
    return key ? xr_fail(err, XRAY_E_CONFIG,
                         "%s: \"%.100s\" occurs twice in one object", where,
                         key)
               : XRAY_OK;
}

xray_status xr_json_parse(const char *text, size_t size, const char *where,
                          xr_err *err, cJSON **out)
{
    size_t bom = xr_bom_size(text, size);
    text += bom;
    size -= bom;
    xray_status status = xr_json_check(text, size, where, err);
    if (status != XRAY_OK && xr_format_check(text, size, where, err) != XRAY_OK)
        return XRAY_E_CONFIG;
    if (status != XRAY_OK)
        return status;
    xr_locale saved = xr_locale_use_c();
    cJSON *tree = cJSON_ParseWithLength(text, size);
    xr_locale_restore(saved);
    if (!tree)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory reading JSON",
                       where);
    status = check_unique_keys(tree, where, err);
    if (status == XRAY_OK)
        *out = tree;
    else
        cJSON_Delete(tree);
    return status;
}

/* True if a line of a JSON-lines file holds only the opening bracket of a value
 * that continues on further lines. */
static int is_open_bracket(const char *line, size_t size)
{
    return size == 1 && (*line == '{' || *line == '[');
}

xray_status xr_json_line(const char *line, size_t size, const char *where,
                         xr_err *err, cJSON **out)
{
    while (size && strchr(" \t\r", line[size - 1]) && line[size - 1])
        size--;
    if (!size)
        return xr_fail(err, XRAY_E_CONFIG,
                       "%s: the line is blank, but a JSON object is expected",
                       where);
    xray_status status = xr_json_parse(line, size, where, err, out);
    if (status != XRAY_OK && !is_open_bracket(line, size))
        return status;
    if (status == XRAY_OK && cJSON_IsObject(*out))
        return XRAY_OK;
    if (status == XRAY_OK)
        cJSON_Delete(*out);
    *out = NULL;
    if (*line == '[')
        return xr_fail(err, XRAY_E_CONFIG,
                       "%s: this line begins a JSON array, but each line must "
                       "be an object; "
                       "jq -c '.[]' FILE writes one entry per line",
                       where);
    return xr_fail(err, XRAY_E_CONFIG,
                   *line == '{'
                       ? "%s: the object continues after this line; jq -c . "
                         "FILE writes each object as one line"
                       : "%s: a line must be a JSON object",
                   where);
}

xray_status xr_json_file(const char *path, xr_err *err, cJSON **out)
{
    char *text;
    size_t size;
    xray_status status = xr_file_read(path, FILE_LIMIT, err, &text, &size);
    if (status)
        return status;
    status = xr_json_parse(text, size, path, err, out);
    free(text);
    return status;
}

const cJSON *xr_json_get(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return item && !cJSON_IsNull(item) ? item : NULL;
}

const cJSON *xr_json_path(const cJSON *object, const char *path)
{
    char key[256];
    for (;;) {
        size_t size = strcspn(path, ".");
        if (size >= sizeof(key))
            return NULL;
        memcpy(key, path, size);
        key[size] = '\0';
        object = xr_json_get(object, key);
        if (!object || !path[size])
            return object;
        path += size + 1;
    }
}

static const char *name_json_type(const cJSON *item)
{
    if (cJSON_IsBool(item))
        return "a boolean";
    if (cJSON_IsNumber(item))
        return "a number";
    if (cJSON_IsString(item))
        return "a string";
    if (cJSON_IsArray(item))
        return "an array";
    return cJSON_IsObject(item) ? "an object" : "null";
}

static xray_status fail_wrong_type(const cJSON *item, const char *key,
                                   const char *where, const char *wanted,
                                   xr_err *err)
{
    return xr_fail(err, XRAY_E_CONFIG, "%s: \"%s\" must be %s, not %s", where,
                   key, wanted, name_json_type(item));
}

static xray_status fail_missing(const char *key, const char *where, xr_err *err)
{
    return xr_fail(err, XRAY_E_CONFIG, "%s: \"%s\" is missing", where, key);
}

xray_status xr_json_int_or(const cJSON *object, const char *key, int64_t preset,
                           const char *where, xr_err *err, int64_t *out)
{
    const cJSON *item = xr_json_get(object, key);
    if (!item) {
        *out = preset;
        return XRAY_OK;
    }
    if (!cJSON_IsNumber(item))
        return fail_wrong_type(item, key, where, "an integer", err);
    double value = item->valuedouble;
    if (value != floor(value) || fabs(value) > EXACT)
        return xr_fail(err, XRAY_E_CONFIG,
                       "%s: \"%s\" must be an integer, not %.17g", where, key,
                       value);
    *out = (int64_t)value;
    return XRAY_OK;
}

xray_status xr_json_int(const cJSON *object, const char *key, const char *where,
                        xr_err *err, int64_t *out)
{
    if (!xr_json_get(object, key))
        return fail_missing(key, where, err);
    return xr_json_int_or(object, key, 0, where, err, out);
}

xray_status xr_json_real_or(const cJSON *object, const char *key, double preset,
                            const char *where, xr_err *err, double *out)
{
    const cJSON *item = xr_json_get(object, key);
    if (!item) {
        *out = preset;
        return XRAY_OK;
    }
    if (!cJSON_IsNumber(item))
        return fail_wrong_type(item, key, where, "a number", err);
    if (!isfinite(item->valuedouble))
        return xr_fail(err, XRAY_E_CONFIG, "%s: \"%s\" is too large", where,
                       key);
    *out = item->valuedouble;
    return XRAY_OK;
}

xray_status xr_json_bool_or(const cJSON *object, const char *key, int preset,
                            const char *where, xr_err *err, int *out)
{
    const cJSON *item = xr_json_get(object, key);
    if (item && !cJSON_IsBool(item))
        return fail_wrong_type(item, key, where, "true or false", err);
    *out = item ? cJSON_IsTrue(item) : preset;
    return XRAY_OK;
}

xray_status xr_json_string_or(const cJSON *object, const char *key,
                              const char *preset, const char *where,
                              xr_err *err, const char **out)
{
    const cJSON *item = xr_json_get(object, key);
    if (item && !cJSON_IsString(item))
        return fail_wrong_type(item, key, where, "a string", err);
    *out = item ? item->valuestring : preset;
    return XRAY_OK;
}

xray_status xr_json_string(const cJSON *object, const char *key,
                           const char *where, xr_err *err, const char **out)
{
    if (!xr_json_get(object, key))
        return fail_missing(key, where, err);
    return xr_json_string_or(object, key, NULL, where, err, out);
}

xray_status xr_json_ids(const cJSON *array, const char *where, xr_err *err,
                        int32_t **out_ids, size_t *out_count)
{
    if (!cJSON_IsArray(array))
        return xr_fail(err, XRAY_E_CONFIG, "%s: ids must be an array", where);
    size_t count = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, array) count++;
    int32_t *ids = xr_calloc(count, sizeof *ids);
    if (!ids)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory for %zu ids",
                       where, count);
    size_t i = 0;
    cJSON_ArrayForEach(item, array)
    {
        double value = cJSON_IsNumber(item) ? item->valuedouble : -1;
        if (!(value >= 0 && value <= INT32_MAX) || value != floor(value)) {
            free(ids);
            return xr_fail(err, XRAY_E_CONFIG,
                           "%s: id %zu of the array must be an integer from 0 "
                           "to 2147483647",
                           where, i);
        }
        ids[i++] = (int32_t)value;
    }
    *out_ids = ids;
    *out_count = count;
    return XRAY_OK;
}
