/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the manifest of a checkpoint, and compares a folder with its manifest.
 */
#include "core/run/inventory.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/hash.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/base/system_error.h"
#include "core/plugin/cancel.h"

#define FORMAT "xray.checkpoint/1"
/* Begins the checksum of the text before it. */
#define SELF ",\n \"self\": \""
#define TEXT_LIMIT ((size_t)64 << 20)
#define DEEPEST 8

void xr_inventory_free(xr_inventory *v)
{
    for (size_t i = 0; i < v->count; i++)
        free(v->items[i].path);
    free(v->items);
    *v = (xr_inventory){ .count = 0 };
}

static int compare_paths(const void *a, const void *b)
{
    const xr_inventory_item *x = a;
    const xr_inventory_item *y = b;
    return strcmp(x->path, y->path);
}

static xray_status add_item(xr_inventory *v, const char *path, uint64_t size,
                            uint64_t hash, xr_err *err)
{
    if (v->count == v->cap) {
        size_t cap = v->cap ? 2 * v->cap : 16;
        xr_inventory_item *items = realloc(v->items, cap * sizeof(*items));
        if (!items)
            return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", path);
        v->items = items;
        v->cap = cap;
    }
    xr_inventory_item *item = &v->items[v->count];
    *item = (xr_inventory_item){ xr_strdup(path), size, hash };
    if (!item->path)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", path);
    v->count++;
    return XRAY_OK;
}

static xray_status hash_file(const char *path, xr_err *err, uint64_t *out_size,
                             uint64_t *out_hash)
{
    xr_map_file file;
    xray_status status = xr_file_map(path, err, &file);
    if (status != XRAY_OK)
        return status;
    *out_size = file.size;
    status =
        xr_hash64_long(file.data, file.size, &xr_cancel_service, err, out_hash);
    xr_file_unmap(&file);
    return status;
}

/* ---- visiting the files of a folder ------------------------------------- */

/* Called for every file, with its path relative to the root. */
typedef xray_status (*visit_fn)(void *ctx, const char *full, const char *path,
                                xr_err *err);

typedef struct visitor {
    visit_fn visit;
    void *ctx;
} visitor;

static xray_status visit_folder(const visitor *w, const char *dir,
                                const char *below, int depth, xr_err *err);

static xray_status visit_entry(const visitor *w, const char *dir,
                               const char *below, const char *name, int depth,
                               xr_err *err)
{
    char full[XR_PATH_CAP];
    char path[XR_PATH_CAP];
    xray_status status = xr_path_join(dir, name, full, sizeof(full), err);
    if (status != XRAY_OK)
        return status;
    int size =
        snprintf(path, sizeof(path), "%s%s%s", below, *below ? "/" : "", name);
    if (size < 0 || (size_t)size >= sizeof(path))
        return xr_fail(err, XRAY_E_RANGE, "%s: the path is too long", full);
    if (xr_path_is_dir(full))
        return visit_folder(w, full, path, depth + 1, err);
    if (strcmp(path, XR_INVENTORY_FILE) == 0)
        return XRAY_OK;
    return w->visit(w->ctx, full, path, err);
}

static xray_status visit_folder(const visitor *w, const char *dir,
                                const char *below, int depth, xr_err *err)
{
    if (depth > DEEPEST)
        return xr_fail(err, XRAY_E_IO, "%s: folders are nested too deep", dir);
    DIR *open = opendir(dir);
    if (!open)
        return xr_fail(err, XRAY_E_IO, "%s: cannot be read: %s", dir,
                       XR_SYSTEM_ERROR(errno));
    xray_status status = XRAY_OK;
    for (const char *name;
         status == XRAY_OK && (name = xr_dir_next(open, dir, err, &status));)
        status = visit_entry(w, dir, below, name, depth, err);
    (void)closedir(open);
    return status;
}

/* ---- writing ------------------------------------------------------------ */

static xray_status add_visited_file(void *ctx, const char *full,
                                    const char *path, xr_err *err)
{
    uint64_t size = 0;
    uint64_t hash = 0;
    xray_status status = hash_file(full, err, &size, &hash);
    return status == XRAY_OK
               ? add_item((xr_inventory *)ctx, path, size, hash, err)
               : status;
}

static void print_manifest(const xr_inventory *v, xr_str *out)
{
    xr_str_puts(out, "{\"format\": \"" FORMAT "\",\n \"files\": [");
    for (size_t i = 0; i < v->count; i++) {
        xr_str_puts(out, i ? ",\n  {\"path\": " : "\n  {\"path\": ");
        xr_str_json(out, v->items[i].path, strlen(v->items[i].path));
        xr_str_printf(out, ", \"size\": \"%llu\", \"xxh64\": \"%016llx\"}",
                      (unsigned long long)v->items[i].size,
                      (unsigned long long)v->items[i].hash);
    }
    xr_str_puts(out, "]");
    uint64_t self = xr_hash64(xr_str_text(out), out->size, 0);
    xr_str_printf(out, SELF "%016llx\"}\n", (unsigned long long)self);
}

xray_status xr_inventory_write(const char *dir, xr_err *err)
{
    xr_inventory v = { .count = 0 };
    const visitor w = { add_visited_file, &v };
    xr_str text = { 0 };
    char path[XR_PATH_CAP];
    xray_status status =
        xr_path_join(dir, XR_INVENTORY_FILE, path, sizeof(path), err);
    if (status == XRAY_OK)
        status = visit_folder(&w, dir, "", 0, err);
    if (status == XRAY_OK) {
        if (v.count)
            qsort(v.items, v.count, sizeof(*v.items), compare_paths);
        print_manifest(&v, &text);
        status = text.failed
                     ? xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", path)
                     : xr_file_write(path, text.data, text.size, err);
    }
    xr_str_free(&text);
    xr_inventory_free(&v);
    return status;
}

/* ---- reading ------------------------------------------------------------ */

/* Returns 1 if the path does not lead out of the folder. */
static int is_path_inside(const char *path)
{
    if (!*path || *path == '/')
        return 0;
    while (*path) {
        size_t n = strcspn(path, "/");
        if (n == 0 || (n == 1 && path[0] == '.') ||
            (n == 2 && path[0] == '.' && path[1] == '.'))
            return 0;
        path += n;
        path += *path == '/';
    }
    return 1;
}

static xray_status read_item(const cJSON *json, const char *where, xr_err *err,
                             xr_inventory *out)
{
    const char *path = NULL;
    const char *size = NULL;
    const char *hash = NULL;
    int64_t bytes = 0;
    uint64_t sum = 0;
    xray_status status = xr_json_string(json, "path", where, err, &path);
    if (status == XRAY_OK)
        status = xr_json_string(json, "size", where, err, &size);
    if (status == XRAY_OK)
        status = xr_json_string(json, "xxh64", where, err, &hash);
    if (status != XRAY_OK)
        return status;
    if (!is_path_inside(path))
        return xr_fail(err, XRAY_E_IO,
                       "%s: the path \"%s\" is not inside the checkpoint",
                       where, path);
    if (xr_parse_int(size, &bytes) != 0 || bytes < 0)
        return xr_fail(err, XRAY_E_IO, "%s: the size of %s is \"%s\"", where,
                       path, size);
    if (xr_parse_hex64(hash, &sum) != 0)
        return xr_fail(err, XRAY_E_IO, "%s: the checksum of %s is \"%s\"",
                       where, path, hash);
    return add_item(out, path, (uint64_t)bytes, sum, err);
}

/* Returns 1 if the text is complete, that is, if its checksum matches. */
static int is_text_complete(const char *text, size_t size)
{
    size_t tail = strlen(SELF) + 16 + strlen("\"}\n");
    char digits[17];
    uint64_t self = 0;
    if (size < tail)
        return 0;
    const char *at = text + size - tail;
    if (memcmp(at, SELF, strlen(SELF)) != 0 ||
        memcmp(text + size - 3, "\"}\n", 3) != 0)
        return 0;
    memcpy(digits, at + strlen(SELF), 16);
    digits[16] = '\0';
    return xr_parse_hex64(digits, &self) == 0 &&
           self == xr_hash64(text, size - tail, 0);
}

xray_status xr_inventory_parse(const char *text, size_t size, const char *where,
                               xr_err *err, xr_inventory *out)
{
    cJSON *json = NULL;
    const cJSON *item = NULL;
    const char *format = NULL;
    *out = (xr_inventory){ .count = 0 };
    if (!is_text_complete(text, size))
        return xr_fail(err, XRAY_E_IO, "%s is cut off or damaged", where);
    xray_status status = xr_json_parse(text, size, where, err, &json);
    if (status == XRAY_OK)
        status = xr_json_string(json, "format", where, err, &format);
    if (status == XRAY_OK && strcmp(format, FORMAT) != 0)
        status =
            xr_fail(err, XRAY_E_IO, "%s: format is %s, this xray reads " FORMAT,
                    where, format);
    const cJSON *files = status == XRAY_OK ? xr_json_get(json, "files") : NULL;
    if (status == XRAY_OK && !cJSON_IsArray(files))
        status = xr_fail(err, XRAY_E_IO, "%s: files is not a list", where);
    if (status == XRAY_OK)
        for (item = files->child; item && status == XRAY_OK; item = item->next)
            status = read_item(item, where, err, out);
    cJSON_Delete(json);
    if (status == XRAY_OK && out->count)
        qsort(out->items, out->count, sizeof(*out->items), compare_paths);
    if (status != XRAY_OK)
        xr_inventory_free(out);
    return status;
}

/* ---- comparing ---------------------------------------------------------- */

static xray_status check_item_size(const char *path, uint64_t size,
                                   const xr_inventory_item *item, xr_err *err)
{
    if (size == item->size)
        return XRAY_OK;
    return xr_fail(err, XRAY_E_IO, "%s has %llu bytes, its manifest says %llu",
                   path, (unsigned long long)size,
                   (unsigned long long)item->size);
}

static xray_status check_item_checksum(const char *path,
                                       const xr_inventory_item *item,
                                       xr_err *err)
{
    uint64_t size = 0;
    uint64_t hash = 0;
    xray_status status = hash_file(path, err, &size, &hash);
    if (status == XRAY_OK)
        status = check_item_size(path, size, item, err);
    if (status != XRAY_OK || hash == item->hash)
        return status;
    return xr_fail(err, XRAY_E_IO,
                   "%s is damaged: its checksum is %016llx, its manifest says "
                   "%016llx",
                   path, (unsigned long long)hash,
                   (unsigned long long)item->hash);
}

static xray_status check_item(const char *dir, const xr_inventory_item *item,
                              int sum, xr_err *err)
{
    char path[XR_PATH_CAP];
    uint64_t size = 0;
    int fd = -1;
    xray_status status = xr_path_join(dir, item->path, path, sizeof(path), err);
    if (status != XRAY_OK)
        return status;
    if (!xr_path_exists(path))
        return xr_fail(err, XRAY_E_IO, "%s is missing", path);
    if (sum)
        return check_item_checksum(path, item, err);
    status = xr_file_open(path, err, &fd, &size);
    if (status != XRAY_OK)
        return status;
    (void)close(fd);
    return check_item_size(path, size, item, err);
}

static xray_status expect_listed_file(void *ctx, const char *full,
                                      const char *path, xr_err *err)
{
    const xr_inventory *v = (const xr_inventory *)ctx;
    char name[XR_PATH_CAP];
    (void)snprintf(name, sizeof(name), "%s", path);
    const xr_inventory_item key = { .path = name };
    if (v->count &&
        bsearch(&key, v->items, v->count, sizeof(*v->items), compare_paths))
        return XRAY_OK;
    return xr_fail(
        err, XRAY_E_IO,
        "%s does not belong to the checkpoint: its manifest does not list it",
        full);
}

static xray_status read_inventory(const char *dir, xr_err *err,
                                  xr_inventory *out)
{
    char path[XR_PATH_CAP];
    char *text = NULL;
    size_t size = 0;
    *out = (xr_inventory){ .count = 0 };
    if (!xr_path_is_dir(dir))
        return xr_fail(err, XRAY_E_IO, "%s: there is no such folder", dir);
    xray_status status =
        xr_path_join(dir, XR_INVENTORY_FILE, path, sizeof(path), err);
    if (status != XRAY_OK)
        return status;
    if (!xr_path_exists(path))
        return xr_fail(err, XRAY_E_IO, "%s is missing", path);
    status = xr_file_read(path, TEXT_LIMIT, err, &text, &size);
    if (status != XRAY_OK)
        return status;
    status = xr_inventory_parse(text, size, path, err, out);
    free(text);
    return status;
}

xray_status xr_inventory_verify(const char *dir, xr_err *err)
{
    xr_inventory v;
    const visitor w = { expect_listed_file, &v };
    xray_status status = read_inventory(dir, err, &v);
    for (size_t i = 0; i < v.count && status == XRAY_OK; i++)
        status = check_item(dir, &v.items[i], 1, err);
    if (status == XRAY_OK)
        status = visit_folder(&w, dir, "", 0, err);
    xr_inventory_free(&v);
    return status;
}

/* Returns the path relative to the subfolder `leaf`; NULL if it is elsewhere.
 */
static const char *path_below(const char *path, const char *leaf)
{
    size_t size = strlen(leaf);
    return strncmp(path, leaf, size) == 0 && path[size] == '/' ? path + size + 1
                                                               : NULL;
}

xray_status xr_inventory_verify_model(const char *dir, const char *leaf,
                                      int sums, xr_err *err)
{
    char folder[XR_PATH_CAP];
    xr_inventory v;
    const visitor w = { expect_listed_file, &v };
    xray_status status = xr_path_join(dir, leaf, folder, sizeof(folder), err);
    if (status != XRAY_OK)
        return status;
    status = read_inventory(dir, err, &v);
    for (size_t i = 0; i < v.count && status == XRAY_OK; i++) {
        const char *name = path_below(v.items[i].path, leaf);
        if (name)
            status = check_item(dir, &v.items[i],
                                sums && strncmp(name, "optim", 5) != 0, err);
    }
    if (status == XRAY_OK)
        status = visit_folder(&w, folder, leaf, 0, err);
    xr_inventory_free(&v);
    return status;
}
