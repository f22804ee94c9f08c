/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a plugin's manifest from its file and checks it without running any
 * code.
 */
#include <stdio.h>
#include <string.h>

#include "core/base/json.h"
#include "core/plugin/internal.h"

static xray_status read_manifest_string(const cJSON *json, const char *key,
                                        const char *where, char *out,
                                        size_t cap, xr_err *err)
{
    const char *text = NULL;
    xray_status status = xr_json_string(json, key, where, err, &text);
    if (status != XRAY_OK)
        return status;
    if (strlen(text) >= cap)
        return xr_fail(err, XRAY_E_ABI,
                       "%s: %s of its note is longer than %zu bytes", where,
                       key, cap - 1);
    memcpy(out, text, strlen(text) + 1);
    return XRAY_OK;
}

/* Reads 1 to 5 digits that make a number below 2^16 and ends at `end`. Returns
 * the text after it, or NULL. */
static const char *read_number(const char *text, char end, uint32_t *out)
{
    size_t size = strspn(text, "0123456789");
    *out = 0;
    if (!size || size > 5 || text[size] != end)
        return NULL;
    for (size_t i = 0; i < size; i++)
        *out = *out * 10 + (uint32_t)(text[i] - '0');
    return *out <= 0xffff ? text + size + 1 : NULL;
}

/* Reads "MAJOR.MINOR". */
static xray_status read_version(const cJSON *json, const char *key,
                                const char *path, xr_err *err, uint32_t *out)
{
    char text[32];
    uint32_t major = 0;
    uint32_t minor = 0;
    xray_status status =
        read_manifest_string(json, key, path, text, sizeof(text), err);
    if (status != XRAY_OK)
        return status;
    const char *rest = read_number(text, '.', &major);
    if (!rest || !read_number(rest, '\0', &minor))
        return xr_fail(err, XRAY_E_ABI,
                       "%s: \"%s\" of its note is '%s', expected a version "
                       "such as 0.2",
                       path, key, text);
    *out = XRAY_ABI_MAKE(major, minor);
    return XRAY_OK;
}

/* Checks the versions of the note; a note without "needs" needs the version it
 * was built for. */
static xray_status check_abi(const cJSON *json, const char *path, xr_err *err)
{
    uint32_t built = 0;
    uint32_t needed = 0;
    xray_status status = read_version(json, "abi", path, err, &built);
    if (status == XRAY_OK && xr_json_get(json, "needs"))
        status = read_version(json, "needs", path, err, &needed);
    else
        needed = built;
    if (status != XRAY_OK || xray_abi_serves(XRAY_ABI, built, needed))
        return status;
    if (xray_abi_serves(XRAY_ABI, built, 0))
        return xr_fail(err, XRAY_E_ABI,
                       "%s: needs xray ABI %u.%u, but this is %u.%u", path,
                       needed >> 16, needed & 0xffffu, XRAY_ABI_MAJOR,
                       XRAY_ABI_MINOR);
    return xr_fail(err, XRAY_E_ABI,
                   "%s: built for xray ABI %u.%u, but this is %u.%u; a draft "
                   "ABI runs only on its own minor version",
                   path, built >> 16, built & 0xffffu, XRAY_ABI_MAJOR,
                   XRAY_ABI_MINOR);
}

static xray_status read_manifest_fields(const cJSON *json, const char *path,
                                        xr_err *err, xr_manifest *out)
{
    const struct {
        const char *key;
        char *text;
        size_t cap;
    } fields[] = {
        { "name", out->name, sizeof(out->name) },
        { "version", out->version, sizeof(out->version) },
        { "provides", out->provides, sizeof(out->provides) },
    };
    int64_t format = 0;
    xray_status status = xr_json_int(json, "manifest", path, err, &format);
    if (status != XRAY_OK)
        return status;
    if (format != 1)
        return xr_fail(err, XRAY_E_ABI,
                       "%s: its note has format %lld, but this xray reads 1",
                       path, (long long)format);
    status = check_abi(json, path, err);
    for (size_t i = 0;
         i < sizeof(fields) / sizeof(fields[0]) && status == XRAY_OK; i++)
        status = read_manifest_string(json, fields[i].key, path, fields[i].text,
                                      fields[i].cap, err);
    return status;
}

static xray_status parse_manifest(const char *text, const char *path,
                                  xr_err *err, xr_manifest *out)
{
    cJSON *json = NULL;
    xray_status status = xr_json_parse(text, strlen(text), path, err, &json);
    if (status != XRAY_OK)
        return status;
    status = read_manifest_fields(json, path, err, out);
    cJSON_Delete(json);
    return status;
}

static xray_status check_symbols(const xr_symbols *symbols, const char *path,
                                 xr_err *err)
{
    if (symbols->known && !symbols->query)
        return xr_fail(err, XRAY_E_ABI,
                       "%s: exports no " XRAY_PLUGIN_QUERY
                       " of its own; XRAY_PLUGIN_ENTRY defines it",
                       path);
    /* Such a symbol could replace another object's. */
    if (symbols->extra)
        return xr_fail(err, XRAY_E_ABI,
                       "%s: exports %s%s besides " XRAY_PLUGIN_QUERY
                       "; hide all other symbols, as xray_add_plugin does",
                       path, symbols->first,
                       symbols->extra > 1 ? " and more" : "");
    return XRAY_OK;
}

xray_status xr_manifest_read(const char *path, xr_err *err, xr_manifest *out)
{
    char text[4096];
    xr_symbols symbols = { .known = 0 };
    xr_map_file file = { 0 };
    xray_status status = xr_file_map(path, err, &file);
    if (status != XRAY_OK)
        return status;
    status = xr_note_find(file.data, file.size, text, sizeof(text));
    if (status == XRAY_OK)
        xr_symbols_read(file.data, file.size, &symbols);
    xr_file_unmap(&file);
    *out = (xr_manifest){ .name = "" };
    if (status == XRAY_END)
        return xr_fail(err, XRAY_E_ABI,
                       "%s: has no xray note, so it is not a plugin", path);
    if (status == XRAY_E_RANGE)
        return xr_fail(err, XRAY_E_ABI, "%s: the file is cut off or damaged",
                       path);
    if (status != XRAY_OK)
        return xr_fail(err, XRAY_E_ABI, "%s: is not a 64-bit ELF file", path);
    status = parse_manifest(text, path, err, out);
    return status == XRAY_OK ? check_symbols(&symbols, path, err) : status;
}
